"""What a program may do in its own namespaces, read from outside: inside, the calls that would tell do not exist."""

import os
import threading
import time
from pathlib import Path

import pytest

from corrgrpo_gym.envs.sandbox import CodeJob, make_sandbox


def nested():
    """Status fields of our descendants that are two process namespaces below this one."""
    every = {}
    for path in Path("/proc").glob("[0-9]*/status"):
        try:
            lines = path.read_text().splitlines()
        except OSError:
            continue
        fields = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
        every[int(fields["Pid"])] = fields

    def ours(pid):
        while pid > 1 and pid != os.getpid():
            pid = int(every[pid]["PPid"]) if pid in every else 0
        return pid == os.getpid()

    return [fields for pid, fields in every.items() if len(fields.get("NSpid", "").split()) >= 3 and ours(pid)]


@pytest.mark.skipif(len(Path("/proc/self/status").read_text().partition("NSpid:")[2].split("\n")[0].split()) > 1,
                    reason="this process is in a namespace of its own, so the levels differ")  # fmt: skip
def test_programs_have_no_capabilities_in_their_namespaces():
    job = CodeJob(
        name="t", answer="import time\ndef f():\n    time.sleep(3)", prelude="", entry_point="f",
        test="def check(candidate):\n    assert candidate() is None\n",
    )  # fmt: skip
    with make_sandbox("bubblewrap", workers=1) as sandbox:
        thread = threading.Thread(target=sandbox.judge, args=(job,))
        thread.start()
        seen = []
        while thread.is_alive() and not seen:
            seen = nested()
            time.sleep(0.05)
        time.sleep(0.2)
        seen = nested() or seen
        thread.join()
    assert seen
    for fields in seen:
        assert int(fields["CapEff"], 16) == int(fields["CapPrm"], 16) == 0, fields
        assert fields["NoNewPrivs"].strip() == "1"
