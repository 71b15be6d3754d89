import json
import multiprocessing
import os
from dataclasses import replace

import pytest

from corrgrpo_gym import cache as kept_files
from corrgrpo_gym.envs.leetcode import LeetCodeEnv, reference_times
from corrgrpo_gym.envs.leetcode.reference_times import keep_time, kept_time
from corrgrpo_gym.envs.sandbox import Measured, Verdict

from .conftest import DATA, ScriptedSandbox


@pytest.fixture
def problem():
    return LeetCodeEnv("test", DATA, sandbox=ScriptedSandbox(None)).tasks[0]


def files(folder):
    return [path for path in folder.rglob("*") if path.is_file()]


def timed_env(seconds=2.0):
    box = ScriptedSandbox(lambda job: Verdict("passed", cpu_seconds=seconds), harness_seconds=0.25)
    return LeetCodeEnv("test", DATA, sandbox=box), box


def test_a_time_is_measured_once_on_a_machine(cache):
    env, box = timed_env()
    assert env.reference_seconds(0) == 2.0 and len(box.measured) == 1
    again, other = timed_env(seconds=7.0)
    assert again.reference_seconds(0) == 2.0 and not other.measured
    assert again.reference_seconds(1) == 7.0 and len(other.measured) == 1
    assert len(files(cache)) == 2


def test_what_is_kept_says_what_it_is_of(cache, problem):
    keep_time(problem, "scripted", Measured(0.5, 0.125))
    kept = json.loads(files(cache)[0].read_text())
    assert (kept["task_id"], kept["seconds"], kept["harness_seconds"]) == (problem.task_id, 0.5, 0.125)
    assert set(kept["machine"]) == {"cpu", "cpus", "kernel", "python", "sandbox", "method"}


def test_another_machine_sandbox_method_or_row_has_a_time_of_its_own(problem, monkeypatch):
    keep_time(problem, "scripted", Measured(0.5, 0.125))
    assert kept_time(problem, "scripted") == Measured(0.5, 0.125)
    assert kept_time(problem, "another") is None
    for change in ({"test": problem.test + "\n"}, {"prelude": ""}, {"baseline": "x"}, {"entry_point": "f"}):
        assert kept_time(replace(problem, **change), "scripted") is None
    assert kept_time(replace(problem, query="another text"), "scripted") is not None
    here = reference_times.fingerprint("scripted")
    for name in here:
        monkeypatch.setattr(reference_times, "fingerprint", lambda backend, name=name: here | {name: "another"})
        assert kept_time(problem, "scripted") is None


@pytest.mark.parametrize(
    "damage",
    ["", "{", "[]", "null", "[" * 100_000, "\xff", '{"seconds": 1}', '{"seconds": -1.0}', '{"seconds": NaN}',
     '{"seconds": 1e300}', '{"seconds": "2.0"}', '{"machine": null}', '{"harness_seconds": null}'],
    ids=str.__len__,
)  # fmt: skip
def test_a_damaged_file_is_measured_anew_and_rewritten(cache, damage):
    timed_env()[0].reference_seconds(0)
    (path,) = files(cache)
    whole = json.loads(path.read_text())
    if damage.startswith('{"'):
        damage = json.dumps(whole | json.loads(damage))
    path.write_bytes(damage.encode("latin-1"))
    env, box = timed_env(seconds=3.0)
    assert env.reference_seconds(0) == 3.0 and len(box.measured) == 1
    assert json.loads(path.read_text()) == whole | {"seconds": 3.0}


def test_a_reference_that_fails_is_not_kept(cache):
    env = LeetCodeEnv("test", DATA, sandbox=ScriptedSandbox(lambda job: Verdict("failed")))
    assert env.reference_seconds(0) is None
    assert not files(cache)


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CORRGRPO_GYM_CACHE", str(tmp_path / "file"))
    assert timed_env()[0].reference_seconds(0) == 2.0


def test_a_write_that_fails_leaves_what_was_there(cache, problem, monkeypatch):
    keep_time(problem, "scripted", Measured(0.5, 0.125))

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(kept_files.os, "replace", full)
    keep_time(problem, "scripted", Measured(0.75, 0.125))
    assert kept_time(problem, "scripted") == Measured(0.5, 0.125)
    assert len(files(cache)) == 1


def _write(problem, number, start):
    start.wait()
    for _ in range(50):
        keep_time(problem, "scripted", Measured(float(number), 0.5))
        if kept_time(problem, "scripted") is None:
            os._exit(1)


def test_several_processes_write_whole_files(cache, problem):
    context = multiprocessing.get_context("fork")
    start = context.Event()
    writers = [context.Process(target=_write, args=(problem, number, start)) for number in (1, 2, 3)]
    for writer in writers:
        writer.start()
    start.set()
    for writer in writers:
        writer.join(60)
    assert [writer.exitcode for writer in writers] == [0, 0, 0]
    assert kept_time(problem, "scripted").seconds in (1.0, 2.0, 3.0)
    assert len(files(cache)) == 1
