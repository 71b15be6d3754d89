"""What survives an interruption, a kill, a full disk, and goes on to the same end."""

import errno
import os
import random
import resource
import signal
import time

import pytest
import torch

from corrgrpo_gym import run_files
from corrgrpo_gym.errors import GymError
from corrgrpo_gym.learners import checkpoints, runfolder, session
from corrgrpo_gym.learners.config import load_toml

from . import runs, toy
from .runs import VARIANTS, same_as


# 12 answers are scored before the first step, 24 in each, 12 more after the second and the fourth.
@pytest.mark.parametrize("variant", VARIANTS)
def test_interrupted_and_resumed_is_the_same_as_uninterrupted(variant, whole, tmp_path, capsys):
    out = tmp_path / "run"
    runs.at_answer(30, runs.terminate)  # in the first step
    assert not runs.start(out, **VARIANTS[variant]).finished
    assert f"corrgrpo-gym train --resume {out}" in " ".join(capsys.readouterr().out.split())
    runs.at_answer(20, runs.terminate)  # again there
    assert not session.resume(out).finished
    runs.at_answer(24 * 4 - 10, runs.terminate)
    session.resume(out)
    toy.HOOKS.clear()
    assert session.resume(out).finished
    same_as(out, whole(variant))


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(1, id="validation before the first step"),
        pytest.param(12, id="its end"),
        pytest.param(12 + 24 + 23, id="step 2"),
        pytest.param(12 + 48 + 1, id="validation after step 2"),
        pytest.param(12 + 48 + 12, id="end of it"),
        pytest.param(12 + 48 + 12 + 48 + 5, id="validation after the last step"),
    ],
)
def test_interrupted_at(answer, whole, tmp_path, capsys):
    out = tmp_path / "run"
    runs.at_answer(answer, runs.terminate)
    runs.start(out, **VARIANTS["corrgrpo"])
    toy.HOOKS.clear()
    assert session.resume(out).finished
    same_as(out, whole("corrgrpo"))
    before = runs.streams(out)
    assert session.resume(out).finished  # nothing is left to do
    assert runs.streams(out) == before


def test_interrupted_while_the_warm_start_runs(whole, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CORRGRPO_GYM_CACHE", str(tmp_path / "cache"))
    real = session.warm_start

    def stopped(*args, progress, **options):
        def advance(step, loss):
            if step == 20:
                runs.terminate()
            progress(step, loss)

        return real(*args, progress=advance, **options)

    monkeypatch.setattr(session, "warm_start", stopped)
    out = tmp_path / "run"
    assert not runs.start(out, **VARIANTS["corrgrpo"]).finished
    assert f"corrgrpo-gym train --resume {out}" in " ".join(capsys.readouterr().out.split())
    assert not (out / "start").exists()
    monkeypatch.setattr(session, "warm_start", real)
    assert session.resume(out).finished
    same_as(out, whole("corrgrpo"))  # the same policy, made anew


def _killed(out, prepare, **over):
    """A run in a child that is killed by what `prepare` arranges there."""

    def child():
        prepare()
        if (out / "config.toml").exists():
            session.resume(out)
        else:
            runs.start(out, **VARIANTS["corrgrpo"] | over)

    return runs.ended(runs.forked(child))


@pytest.mark.parametrize("answer", [5, 12 + 10, 12 + 48 + 6, 12 + 48 + 12 + 30])
def test_killed_while_sampling(answer, whole, tmp_path):
    whole("corrgrpo")
    out = tmp_path / "run"
    assert _killed(out, lambda: runs.at_answer(answer, runs.kill)) == -signal.SIGKILL
    assert session.resume(out).finished
    same_as(out, whole("corrgrpo"))


def _half_a_state():
    """torch.save writes half of the file, then the power goes."""
    real, calls = torch.save, []

    def save(state, path):
        real(state, path)
        calls.append(path)
        os.truncate(path, path.stat().st_size // 2)
        runs.kill()

    checkpoints.torch.save = save


def _after_weights():
    checkpoints.torch.save = lambda state, path: runs.kill()


def _replace(number, after):
    """Killed at a rename: 1 is the new checkpoint's, 2 the link's."""

    def arrange():
        real, calls = os.replace, []

        def replace(source, target):
            if "checkpoints" not in str(target):
                return real(source, target)
            calls.append(target)
            if len(calls) == number and not after:
                runs.kill()
            real(source, target)
            if len(calls) == number and after:
                runs.kill()

        checkpoints.os.replace = replace

    return arrange


def _half_a_line(number):
    def arrange():
        real, calls = runfolder.RunFolder.append, []

        def append(self, stream, records):
            records = list(records)
            calls.append(stream)
            real(self, stream, records)
            if len(calls) == number:
                path = self.path / stream
                os.truncate(path, path.stat().st_size - 7)
                runs.kill()

        runfolder.RunFolder.append = append

    return arrange


MOMENTS = {
    "state half written": _half_a_state,
    "only weights written": _after_weights,
    "before the rename": _replace(1, False),
    "after the rename, before the link": _replace(1, True),
    "before the link's rename": _replace(2, False),
    "after the link": _replace(2, True),
    "after the last rename, before its link": _replace(3, True),
    "in rollouts.jsonl": _half_a_line(3),
    "in metrics.jsonl": _half_a_line(8),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_while_writing(moment, whole, tmp_path):
    expected = whole("corrgrpo")
    out = tmp_path / "run"
    assert _killed(out, MOMENTS[moment]) == -signal.SIGKILL
    assert session.resume(out).finished
    same_as(out, expected)
    assert os.readlink(out / "checkpoints/best") == os.readlink(expected / "checkpoints/best")
    assert sorted(p.name for p in (out / "checkpoints").iterdir()) == sorted(
        p.name for p in (expected / "checkpoints").iterdir()
    )


def test_killed_while_an_old_checkpoint_is_removed(whole, tmp_path):
    out = tmp_path / "run"
    # Renames: step 2 and the link, step 4 and the link, then the old one out of the way.
    arrange = _replace(5, True)
    assert _killed(out, arrange, checkpoint={"every": 2, "keep": 1}) == -signal.SIGKILL
    assert len(list((out / "checkpoints").glob(".new-doomed-*/trainer.pt"))) == 1
    assert session.resume(out).finished
    same_as(out, whole("corrgrpo"))
    assert sorted(p.name for p in (out / "checkpoints").iterdir()) == ["best", "step-000004"]


def test_killed_while_a_checkpoint_replaces_its_own_older_version(whole, tmp_path):
    """Interrupted in a validation, then killed between the two renames that add the validation's result."""
    out = tmp_path / "run"
    # This answer takes a while, so that the validation cannot end before the signal is heard.
    runs.at_answer(12 + 48 + 5, lambda: (runs.terminate(), time.sleep(3)))
    assert not runs.start(out, **VARIANTS["corrgrpo"]).finished
    assert runs.saved(out) == [2] and [m["step"] for m in runs.records(out)] == [0, 1]
    toy.HOOKS.clear()
    assert _killed(out, _replace(1, True)) == -signal.SIGKILL
    assert not (out / "checkpoints/step-000002").exists()
    assert session.resume(out).finished
    same_as(out, whole("corrgrpo"))


def test_killed_at_any_time(whole, tmp_path):
    expected, out, rng = whole("corrgrpo"), tmp_path / "run", random.Random(5)
    kills = 0
    for _ in range(4):

        def child():
            if (out / "config.toml").exists():
                session.resume(out)
            else:
                runs.start(out, **VARIANTS["corrgrpo"])

        process = runs.forked(child)
        time.sleep(rng.uniform(0.1, 0.9))
        os.kill(process, signal.SIGKILL)
        kills += runs.ended(process) == -signal.SIGKILL
    if (out / "config.toml").exists():
        assert session.resume(out).finished
    else:
        runs.start(out, **VARIANTS["corrgrpo"])
    same_as(out, expected)


def test_longer(whole, tmp_path, capsys):
    out = tmp_path / "run"
    runs.start(out, **VARIANTS["corrgrpo"] | {"steps": 2})
    assert session.resume(out, steps=4).steps == 4
    same_as(out, whole("corrgrpo"))
    assert load_toml(out / "config.toml")["steps"] == 4
    with pytest.raises(GymError, match="cannot resume .* to step 3: it has done 4 steps already"):
        session.resume(out, steps=3)
    assert load_toml(out / "config.toml")["steps"] == 4


def test_two_processes_cannot_write_to_one_run(tmp_path):
    out = tmp_path / "run"
    runs.start(out, steps=0)
    with pytest.raises(GymError, match="holds a run already: .*--resume"):
        runs.start(out, steps=0)
    folder = runfolder.RunFolder.open(out)
    try:
        with pytest.raises(GymError, match="another process is writing to the run folder"):
            session.resume(out)
    finally:
        folder.close()
    assert session.resume(out).finished
    with pytest.raises(GymError, match="not a run folder"):
        session.resume(tmp_path)


def test_full_disk_at_a_checkpoint(whole, tmp_path, monkeypatch, capsys):
    out = tmp_path / "run"
    real = torch.save

    def full(state, path):
        if "000004" in str(path):
            raise OSError(errno.ENOSPC, "No space left on device")
        real(state, path)

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(GymError, match=f"cannot write .*step-000004: No space left.*--resume {out}"):
        runs.start(out, **VARIANTS["corrgrpo"])
    assert runs.saved(out) == [2]
    assert [p.name for p in (out / "checkpoints").glob(".*")] == []
    assert checkpoints.Checkpoints(out / "checkpoints").load(2)["step"] == 2
    assert "No space left" in (out / "log.txt").read_text()
    monkeypatch.setattr(torch, "save", real)
    assert session.resume(out).finished
    same_as(out, whole("corrgrpo"))


def test_files_that_cannot_grow(whole, tmp_path, capsys):
    """The operating system refuses for real: weights do not fit any more."""
    out = tmp_path / "run"
    whole("corrgrpo")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    runs.at_answer(20, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, before[1])))
    try:
        with pytest.raises(GymError, match=f"cannot write .*step-000002: .*--resume {out}"):
            runs.start(out, **VARIANTS["corrgrpo"])
        with pytest.raises(GymError, match=f"cannot write .*/start: .*--resume {out}2"):
            runs.start(tmp_path / "run2", **VARIANTS["corrgrpo"])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    toy.HOOKS.clear()
    for path in (out, tmp_path / "run2"):
        assert session.resume(path).finished
        same_as(path, whole("corrgrpo"))


@pytest.mark.parametrize(("stream", "done"), [("metrics.jsonl", 2), ("rollouts.jsonl", 2), ("config.toml", 0)])
def test_full_disk_elsewhere(stream, done, whole, tmp_path, monkeypatch, capsys):
    out = tmp_path / "run"
    real = open
    writes = []

    def full(path, mode="r", *args, **options):
        if stream in str(path) and mode in ("a", "w"):
            writes.append(path)
            if len(writes) == {"metrics.jsonl": 4, "rollouts.jsonl": 5, "config.toml": 1}[stream]:
                raise OSError(errno.ENOSPC, "No space left on device", str(path))
        return real(path, mode, *args, **options)

    monkeypatch.setattr(run_files, "open", full, raising=False)
    with pytest.raises(GymError, match="cannot write .*No space left"):
        runs.start(out, **VARIANTS["corrgrpo"])
    monkeypatch.setattr(run_files, "open", real)
    if done:
        assert runs.saved(out) == [done]
        session.resume(out)
    else:
        runs.start(out, **VARIANTS["corrgrpo"])
    same_as(out, whole("corrgrpo"))
