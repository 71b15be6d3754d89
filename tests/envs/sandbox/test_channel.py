"""The judge's end of a stream: whose process it is, and what that has used."""

import os
import signal
import time

import pytest

from corrgrpo_gym.envs.sandbox import wire
from corrgrpo_gym.envs.sandbox.channel import Channel, OverTime


@pytest.fixture
def talk():
    """Start a process that greets and then runs ``body(fd)``; return the channel, and the process's id."""
    started = []

    def start(body, limit=5.0, before=0.0):
        channel = Channel(limit)
        pid = os.fork()
        if pid == 0:
            try:
                os.write(channel.peer.fileno(), wire.frame(b""))
                body(channel.peer.fileno())
            finally:
                os._exit(0)
        started.append((channel, pid))
        time.sleep(before)
        channel.meet(10)
        return channel, pid

    yield start
    for channel, pid in started:
        channel.close()
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


@pytest.mark.parametrize("before", [0.0, 0.2])
def test_the_process_is_known_however_early_it_greets(talk, before):
    channel, pid = talk(lambda fd: time.sleep(60), before=before)
    assert channel.pid == pid


def test_the_clock_is_the_other_processs_and_exact_when_it_sleeps(talk):
    def body(fd):
        burn(0.05)
        os.write(fd, wire.frame(b"done"))
        time.sleep(60)

    channel, _ = talk(body)
    burn(0.5)
    assert channel.read() == b"done"
    assert channel.settle()
    assert 0.04 < channel.used() < 0.4


def test_waiting_ends_with_the_cpu_time_of_the_other(talk):
    channel, _ = talk(lambda fd: burn(60), limit=0.1)
    with pytest.raises(OverTime):
        channel.read()
    channel, _ = talk(lambda fd: burn(60), limit=0.1)
    with pytest.raises(OverTime):
        channel.write(bytes(1 << 25))


def test_an_end_is_told(talk):
    channel, _ = talk(lambda fd: None)
    with pytest.raises(EOFError):
        channel.read()
    assert channel.settle("ZX")


def test_a_message_too_large_is_refused_before_it_is_read(talk):
    channel, _ = talk(lambda fd: (os.write(fd, b"\xff" * 4), time.sleep(60)))
    with pytest.raises(wire.BadBytes):
        channel.read()


def test_no_greeting_in_time_is_an_end():
    channel = Channel(1)
    with pytest.raises(EOFError):
        channel.meet(0.1)
    channel.close()
