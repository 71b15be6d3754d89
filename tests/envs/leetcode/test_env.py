import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from corrgrpo_gym import envs
from corrgrpo_gym.envs.leetcode import REWARD_NAMES, REWARD_WEIGHTS, LeetCodeEnv
from corrgrpo_gym.envs.leetcode.noise import fenced
from corrgrpo_gym.envs.sandbox import SandboxError, Verdict
from corrgrpo_gym.errors import GymError

from .conftest import DATA, ScriptedSandbox


def scripted(verdict=lambda job: Verdict("failed"), harness_seconds=0.0, **options):
    box = ScriptedSandbox(verdict, harness_seconds)
    options = {"split": "test", "data": DATA} | options
    return LeetCodeEnv(sandbox=box, **options), box


def step(env, task, answer):
    env.reset(options={"task": task})
    _, reward, terminated, truncated, info = env.step(answer)
    assert terminated and not truncated
    return dict(zip(env.reward_names, reward.tolist(), strict=True)), info


def timed(seconds_by_answer, reference=1.0):
    """Pass every answer, after the CPU time that its text names."""

    def verdict(job):
        return Verdict("passed", code=job.answer, cpu_seconds=seconds_by_answer.get(job.answer, reference))

    return verdict


def test_one_user_message_with_the_query():
    env, box = scripted()
    observation, info = env.reset(options={"task": 1})
    assert observation == ({"role": "user", "content": env.tasks[1].query},)
    assert info == {"task": 1, "task_id": "find-the-k-th-character-in-string-game-i", "tools": []}
    assert not box.jobs


def test_the_job():
    env, box = scripted(memory_bytes=1 << 29)
    step(env, 0, "an answer")
    (job,) = box.jobs
    problem = env.tasks[0]
    assert (job.name, job.answer) == (problem.task_id, "an answer")
    assert (job.prelude, job.test, job.entry_point) == (problem.prelude, problem.test, problem.entry_point)
    assert (job.cpu_seconds, job.memory_bytes) == (15.0, 1 << 29)
    assert job.wall_seconds >= 60.0


def test_a_tool_call_without_text_is_an_empty_answer():
    env, box = scripted()
    env.reset(options={"task": 0})
    env.step({"role": "assistant", "content": None, "tool_calls": []})
    assert box.jobs[0].answer == ""


def test_equal_answers_to_a_task_are_judged_once():
    env, box = scripted()
    first, again = (step(env.clone(), 0, "a") for _ in range(2))
    assert first == again and len(box.jobs) == 1
    step(env, 1, "a")
    step(env, 0, "b")
    assert len(box.jobs) == 3
    env, box = scripted(cache_verdicts=0)
    for _ in range(2):
        step(env, 0, "a")
    assert len(box.jobs) == 2


def test_changing_the_info_does_not_change_what_is_remembered():
    env, _ = scripted()
    step(env, 0, "a")[1]["status"] = "passed"
    assert step(env, 0, "a")[1]["status"] == "failed"


def test_the_reference_is_timed_once_when_an_answer_passes():
    def verdict(job):
        return Verdict("passed" if "wrong" not in job.answer else "failed", cpu_seconds=job.answer[:5] == "right" or 3)

    env, box = scripted(verdict, harness_seconds=0.5)
    assert step(env, 0, "wrong")[0]["efficiency"] == 0.0
    assert len(box.jobs) == 1 and not box.measured
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda i: step(env.clone(), 0, f"right {i}"), range(8)))
    assert [rewards["efficiency"] for rewards, _ in results] == pytest.approx([1 - 0.5 / 2.5] * 8)
    info = results[0][1]
    assert [info[f"{kind}cpu_seconds"] for kind in ("", "reference_", "harness_")] == [1.0, 3.0, 0.5]
    assert len(box.jobs) == 1 + 8
    (job,) = box.measured
    assert job.answer == fenced(env.tasks[0].completion) and job.cpu_seconds == 60.0
    assert env.reference_seconds(0) == 3.0


def test_a_reference_that_fails_gives_no_efficiency_and_one_warning(caplog):
    def verdict(job):
        return Verdict("passed" if job.answer.startswith("right") else "failed", detail="assert 1 == 2")

    env, _ = scripted(verdict)
    for i in range(3):
        rewards, info = step(env, 0, f"right {i}")
        assert rewards["accuracy"] == 1.0 and rewards["efficiency"] == 0.0
        assert info["reference_cpu_seconds"] is None
    assert env.reference_seconds(0) is None
    assert caplog.text.count("the reference of 'stone-removal-game' fails its own tests (failed: assert 1 == 2)") == 1


def second_is_broken(job):
    if job.name == "find-the-k-th-character-in-string-game-i":
        return Verdict("failed", detail="assert 1 == 2")
    return Verdict("passed", cpu_seconds=1.0)


def test_broken_references_are_errors_by_name_before_anything_starts():
    with pytest.raises(GymError) as caught:
        scripted(second_is_broken, broken_references="error")
    text = str(caught.value)
    assert "1 of 3 references of the test split fail their own tests" in text
    assert "- find-the-k-th-character-in-string-game-i: failed: assert 1 == 2\n" in text
    assert "broken_references='drop'" in text
    env, box = scripted(lambda job: Verdict("passed", cpu_seconds=1.0), broken_references="error")
    assert len(env.tasks) == 3 and [job.name for job in box.jobs] == ["find-the-k-th-character-in-string-game-i"]
    _, box = scripted(second_is_broken, broken_references="error")
    assert not box.jobs and not box.measured  # all known


def test_broken_references_are_left_out_on_request(caplog):
    with pytest.raises(GymError, match="3 of 3 references"):
        scripted(lambda job: Verdict("failed"), broken_references="drop")
    env, _ = scripted(second_is_broken, broken_references="drop")
    assert [problem.task_id for problem in env.tasks] == ["stone-removal-game", "smallest-number-with-all-set-bits"]
    assert env.data_note.endswith("1 with broken references left out")
    assert "left out: find-the-k-th-character-in-string-game-i" in caplog.text
    with pytest.raises(GymError, match="Did you mean 'drop'"):
        scripted(broken_references="dropp")


def test_a_row_whose_test_is_broken_has_a_broken_reference():
    def verdict(job):
        raise SandboxError(f"task {job.name!r}: the data row is broken: its prelude raised NameError")

    with pytest.raises(GymError, match="- stone-removal-game: the data row is broken: its prelude raised NameError"):
        scripted(verdict, broken_references="error")


def test_a_slow_reference_raises_the_limit_of_answers_that_run_out_of_time():
    def verdict(job):
        if "class Solution" in job.answer:
            return Verdict("passed", cpu_seconds=6.0)
        return Verdict("timeout" if job.cpu_seconds < 16 else "passed", cpu_seconds=16.0)

    env, box = scripted(verdict)
    rewards, _ = step(env, 0, "slow but right")
    assert rewards["accuracy"] == 1.0
    assert [job.cpu_seconds for job in box.jobs if job.answer == "slow but right"] == [15.0, 18.0]
    env, box = scripted(verdict, recipe="paper")
    assert step(env, 0, "slow but right")[1]["status"] == "timeout"
    (job,) = box.jobs
    assert (job.cpu_seconds, job.wall_seconds, job.memory_bytes) == (5.0, 5.0, 1 << 30)


def test_embedded_problems_are_timed_by_the_slow_solution_and_rounded():
    seconds = {"a": 0.85, "b": 0.6, "c": 0.4, "d": 0.02}
    env, box = scripted(timed(seconds), data="embedded")
    assert [step(env, 0, answer)[0]["efficiency"] for answer in seconds] == [0.0, 0.0, 1.0, 1.0]
    assert fenced(env.tasks[0].baseline) in [job.answer for job in box.measured]
    assert {job.cpu_seconds for job in box.jobs} == {0.5}
    env, _ = scripted(timed(seconds), data="embedded", efficiency_resolution=0.2)
    values = [step(env, 0, answer)[0]["efficiency"] for answer in seconds]
    assert values == pytest.approx([0.2, 0.4, 0.6, 1.0])
    env, _ = scripted(timed(seconds), efficiency_resolution=0.0)
    values = [step(env, 0, answer)[0]["efficiency"] for answer in seconds]
    assert values == pytest.approx([0.15, 0.4, 0.6, 0.98])


def test_weights():
    assert scripted()[0].reward_weights == REWARD_WEIGHTS["default"]
    assert scripted(reward_weights="paper-vector")[0].reward_weights == (1.0,) * 7
    assert scripted(reward_weights={"efficiency": 2})[0].reward_weights[5] == 2.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reward_weights": "papervector"}, "Did you mean 'paper-vector'"),
        ({"recipe": "papr"}, "unknown recipe 'papr'. Did you mean 'paper'"),
        ({"split": "tset"}, "unknown split 'tset'. Did you mean 'test'"),
        ({"efficiency_resolution": 2}, "efficiency_resolution is 2"),
        ({"cpu_seconds": -1}, "must be positive"),
        ({"cache_verdicts": -1}, "cache_verdicts must be at least 0"),
        ({"data": DATA / "missing.jsonl"}, "no file or folder"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(GymError, match=message):
        scripted(**options)


def test_reference_answers():
    env, _ = scripted()
    assert env.reference_answers(0) == (fenced(env.tasks[0].completion),)
    env, _ = scripted(data="embedded", warm_start_answers=200)
    answers = env.reference_answers(5)
    assert answers == env.reference_answers(5) and len(answers) == 200
    slow, fast = fenced(env.tasks[5].baseline), fenced(env.tasks[5].completion)
    # Shares of 0.595 and 0.255, within four standard errors.
    assert 91 < answers.count(slow) < 147 and 26 < answers.count(fast) < 76
    env, _ = scripted(data="embedded")
    assert env.reference_answers(5) == answers[:8]


def test_a_broken_sandbox_is_an_error_and_the_answer_can_be_judged_later():
    broken = [True]

    def verdict(job):
        if broken[0]:
            raise SandboxError("the worker was lost")
        return Verdict("failed")

    env, _ = scripted(verdict)
    env.reset(options={"task": 0})
    with pytest.raises(SandboxError):
        env.step("a")
    broken[0] = False
    assert step(env, 0, "a")[1]["status"] == "failed"


def test_a_sandbox_that_was_given_stays_open():
    env, box = scripted()
    step(env, 0, "a")
    env.close()
    assert env.sandbox is box and box.closed == 0


def test_the_sandbox_is_made_at_first_use_and_closed_by_its_owner_only(monkeypatch):
    made = []

    def make(name, workers):
        assert (name, workers) == ("bubblewrap", 3)
        made.append(ScriptedSandbox(lambda job: Verdict("failed")))
        return made[-1]

    monkeypatch.setattr("corrgrpo_gym.envs.sandbox.lazy.make_sandbox", make)
    env = LeetCodeEnv("test", DATA, workers=3)
    clones = [env.clone() for _ in range(4)]
    assert not made
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda i: step(clones[i], 0, f"answer {i}"), range(4)))
    clones[0].close()
    assert len(made) == 1 and made[0].closed == 0 and len(made[0].jobs) == 4
    env.close()
    assert made[0].closed == 1


def test_a_sandbox_of_no_known_name():
    env = LeetCodeEnv("test", DATA, sandbox="bubblewarp")
    env.reset(options={"task": 0})
    with pytest.raises(GymError, match="Did you mean 'bubblewrap'"):
        env.step("a")


def test_importing_the_package_is_light():
    code = (
        "import sys, corrgrpo_gym.envs.leetcode\n"
        "heavy = {'torch', 'pyarrow', 'pandas', 'transformers', 'huggingface_hub'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


ANSWERS = {
    # answer: (format, syntax, compile, runtime, accuracy)
    "I don't know.": (0, 0, 0, 0, 0),
    fenced("class Solution:\n    def canAliceWin(self, n: int) -> bool\n        return n > 9"): (
        1,
        0,
        0,
        0,
        0,
    ),
    fenced("class Solution:\n    def canAliceWin(self, n: int) -> bool:\n        nonlocal n"): (
        1,
        1,
        0,
        0,
        0,
    ),
    fenced("class Solution:\n    def canAliceWin(self, n: int) -> bool:\n        return n / 0"): (
        1,
        1,
        1,
        0,
        0,
    ),
    fenced("class Solution:\n    def canAliceWin(self, n: int) -> bool:\n        raise SystemExit"): (
        1,
        1,
        1,
        0,
        0,
    ),
    fenced("class Solution:\n    def canAliceWin(self, n: int) -> bool:\n        while True: pass"): (
        1,
        1,
        1,
        0,
        0,
    ),
    fenced("class Solution:\n    def canAliceWin(self, n: int) -> bool:\n        return False"): (
        1,
        1,
        1,
        1,
        0,
    ),
    "class Solution:\n    def canAliceWin(self, n: int) -> bool:\n        return 9 < n < 19": (0, 1, 1, 1, 0),
}


def test_stages_in_the_real_sandbox(sandbox):
    env = LeetCodeEnv("test", DATA, sandbox=sandbox, cpu_seconds=0.4)
    for answer, expected in ANSWERS.items():
        rewards, info = step(env, 0, answer)
        assert tuple(rewards.values())[:5] == expected, (answer, info)
        assert rewards["efficiency"] == 0.0


@pytest.mark.parametrize(("split", "data"), [("test", DATA), ("train", DATA), ("test", DATA / "nested")])
def test_published_references_pass_in_the_real_sandbox(sandbox, split, data):
    env = LeetCodeEnv(split, data, sandbox=sandbox)
    for task in range(len(env.tasks)):
        rewards, info = step(env, task, env.reference_answers(task)[0])
        assert info["status"] == "passed", info
        expected = dict.fromkeys(REWARD_NAMES, 1.0)
        assert rewards | {"efficiency": 1.0} == expected and 0.0 <= rewards["efficiency"] <= 1.0
        assert info["cpu_seconds"] > 0.0 and info["reference_cpu_seconds"] > 0.0


def test_slow_and_fast_in_the_real_sandbox(sandbox):
    env = LeetCodeEnv("test", "embedded", sandbox=sandbox)
    for task in range(0, len(env.tasks), 9):
        problem = env.tasks[task]
        fast, _ = step(env, task, fenced(problem.completion))
        assert set(fast.values()) == {1.0}
        slow, _ = step(env, task, fenced(problem.baseline))
        assert tuple(slow.values())[:5] == (1.0,) * 5
        assert slow["efficiency"] <= fast["efficiency"] and 0.2 < slow["ast_similarity"] < 1.0


def test_check_env(sandbox):
    envs.check_env(LeetCodeEnv("test", DATA, sandbox=sandbox, cpu_seconds=1.0))


def test_made_by_name(sandbox):
    gymnasium = pytest.importorskip("gymnasium")
    env = envs.make("leetcode", split="test", data="embedded", sandbox=sandbox)
    assert isinstance(env, LeetCodeEnv) and env.data_note.startswith("embedded")
    wrapped = gymnasium.make("corrgrpo_gym/LeetCode-v0", split="test", data="embedded", sandbox=sandbox)
    observation, info = wrapped.reset(seed=3)
    _, reward, terminated, _, _ = wrapped.step(fenced(wrapped.unwrapped.tasks[info["task"]].completion))
    assert terminated and reward.dtype == np.float32 and reward.tolist() == [1.0] * 7
