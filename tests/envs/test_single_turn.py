import asyncio
import gzip
import importlib.util
import json
import math
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from corrgrpo_gym import envs
from corrgrpo_gym.envs import Reward, SingleTurnEnv, check_env, reward
from corrgrpo_gym.errors import GymError, NotScored

ROWS = [{"prompt": "1 + 1 =", "target": "2"}, {"prompt": "2 + 2 =", "target": "4"}]


def correct(answer, target):
    return answer.strip() == target


def brief(answer):
    return 1 / (1 + len(answer))


def step(env, answer="2", task=0):
    env.reset(options={"task": task})
    return env.step(answer)


def one(function, rows=ROWS, **declaration):
    return SingleTurnEnv(rows, [Reward(function, **{"name": "it", **declaration})])


def test_data_and_functions_make_an_environment():
    env = SingleTurnEnv(ROWS, [correct, Reward(brief, weight=0.1)], reference="target", system="Count.")
    assert env.reward_names == ("correct", "brief") and env.reward_weights == (1.0, 0.1)
    observation, info = env.reset(options={"task": 1})
    assert observation == ({"role": "system", "content": "Count."}, {"role": "user", "content": "2 + 2 ="})
    assert info["task_id"] == "train/1"
    observation, rewards, terminated, truncated, _ = env.step(" 4")
    assert rewards == pytest.approx([1, 1 / 3]) and rewards.dtype == np.float32
    assert (observation, terminated, truncated) == ((), True, False)
    assert env.reference_answers(1) == ("4",)
    assert check_env(env).greatest["correct"] == 1


def test_the_example_runs(monkeypatch):
    path = Path(__file__).parents[2] / "examples" / "sums.py"
    spec = importlib.util.spec_from_file_location("sums", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert check_env(module.env).tasks == 320
    test = envs.make(f"{path}:env", split="test")
    assert step(test, "0")[1] == pytest.approx([1, 1 / 2])
    assert test.with_split("train").reset(options={"task": 1})[0][0]["content"] == "0 + 2 ="
    code = [x for x in path.read_text().split('"""', 2)[2].split("\n") if x.strip()]
    assert len(code) <= 10


class TestWhatFunctionsTake:
    def test_by_name(self):
        seen = {}

        def everything(task, messages, answer, reply, target, absent="default", *args, extra=None):
            seen.update(locals())
            return 0

        env = SingleTurnEnv([{**ROWS[0], "extra": [1]}], [everything])
        step(env, {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]})
        assert seen["answer"] == "" and seen["target"] == "2" and seen["extra"] == [1]
        assert seen["absent"] == "default" and seen["task"]["prompt"] == "1 + 1 ="
        assert [m["role"] for m in seen["messages"]] == ["user", "assistant"]
        assert seen["reply"]["tool_calls"] == [{"id": "1"}]

    def test_any_name(self):
        seen = {}
        step(one(lambda **given: seen.update(given) or 0))
        assert set(seen) == {"answer", "messages", "reply", "task", "prompt", "target"}

    def test_the_models_answer_goes_before_a_column(self):
        env = one(
            lambda answer, task: answer == "2" and task["answer"] == "column",
            [{"prompt": "x", "answer": "column"}],
        )
        assert step(env)[1] == [1]

    def test_columns_that_are_missing(self):
        with pytest.raises(GymError, match=r"row 1 of split 'train': reward 'correct' .*unknown column 'target'"):
            SingleTurnEnv([ROWS[0], {"prompt": "x"}], [correct])
        with pytest.raises(GymError, match="Did you mean 'target'"):
            one(lambda answer, tarhet: 0)

    def test_positional_only(self):
        with pytest.raises(GymError, match="'answer' can't be given by name"):
            one(lambda answer, /: 0)

    def test_what_a_function_changes_stays_with_it(self):
        def vandal(messages, task, reply):
            messages[0]["content"] = task["target"] = reply["content"] = "changed"
            return 0

        env = SingleTurnEnv(ROWS, [vandal, correct])
        for _ in range(2):
            assert step(env)[1].tolist() == [0, 1]
        assert env.chat[0]["content"] == "1 + 1 ="


class TestAsync:
    def test_at_the_same_time(self):
        """Each waits until the other has begun: one after the other would never end."""
        begun = [None, None]

        async def meet(me, other):
            begun[me].set()
            await asyncio.wait_for(begun[other].wait(), 30)
            return 1

        async def left(answer):
            begun[0], begun[1] = asyncio.Event(), asyncio.Event()
            return await meet(0, 1)

        async def right(answer):
            return await meet(1, 0)

        assert step(SingleTurnEnv(ROWS, [left, brief, right]))[1] == pytest.approx([1, 0.5, 1])

    def test_one_loop_for_all_steps_and_threads(self):
        loops = set()

        async def look(answer):
            loops.add(id(asyncio.get_running_loop()))
            return 1

        env = one(look)
        threads = [threading.Thread(target=step, args=(env.clone(),)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        step(env)
        assert len(loops) == 1

    def test_inside_of_a_running_loop(self):
        async def score(answer):
            await asyncio.sleep(0)
            return 1

        async def notebook():
            return step(one(score))[1]

        assert asyncio.run(notebook()) == [1]

    def test_errors(self):
        async def fail(answer):
            await asyncio.sleep(0)
            raise KeyError("lost")

        with pytest.raises(GymError, match=r"reward 'it' \(.*test_single_turn.py:\d+\) raised KeyError: 'lost'"):
            step(one(fail))


class TestWhatFunctionsReturn:
    @pytest.mark.parametrize("value", [1, True, 0.5, np.float32(0.25), np.bool_(True), np.array(0.5), np.int64(1)])
    def test_numbers(self, value):
        assert step(one(lambda answer: value))[1] == [pytest.approx(float(value))]

    @pytest.mark.parametrize("value", [None, math.nan])
    def test_not_scorable(self, value):
        assert np.isnan(step(one(lambda answer: value, nan=True))[1]).all()
        with pytest.raises(GymError, match=r"reward 'it' .* returned (None|nan) for task train/0; declare by nan=True"):
            step(one(lambda answer: value))

    @pytest.mark.parametrize("value", [1.01, -0.01, math.inf, -math.inf, 2])
    def test_outside(self, value):
        with pytest.raises(GymError, match=rf"returned {float(value)} for task train/0, outside of its range 0.0..1.0"):
            step(one(lambda answer: value, nan=True))

    def test_declared_range(self):
        assert step(one(lambda answer: -3, low=-3.5, high=2))[1] == [-3]

    @pytest.mark.parametrize("value", ["1", b"1", [1], {}, object(), np.zeros(2)])
    def test_no_numbers(self, value):
        with pytest.raises(GymError, match="not a number or None"):
            step(one(lambda answer: value))

    def test_exceptions(self):
        with pytest.raises(
            GymError, match=r"reward 'it' .* raised ZeroDivisionError.* for task train/1 and the answer '2'"
        ):
            step(one(lambda answer: 1 / 0), task=1)

    def test_long_answers_are_cut_in_messages(self):
        with pytest.raises(GymError) as caught:
            step(one(lambda answer: 1 / 0), "x" * 1_000_000)
        assert len(str(caught.value)) < 600


class TestDeclaration:
    def test_decorator(self):
        @reward(low=-1, high=0, weight=3, nan=True, name="cost")
        def spent(answer):
            return -len(answer)

        assert spent("a") == -1
        env = SingleTurnEnv(ROWS, [spent])
        assert env.reward_names == ("cost",) and env.reward_weights == (3.0,) and env.nan_rewards == {"cost"}
        assert env.reward_space.low == [-1] and env.reward_space.high == [0]

    def test_by_name(self):
        env = SingleTurnEnv(ROWS, {"right": correct, "terse": Reward(brief, weight=2), "one": lambda answer: 1})
        assert env.reward_names == ("right", "terse", "one") and env.reward_weights == (1, 2, 1)

    def test_callable_objects(self):
        class Judge:
            def __call__(self, answer):
                return 1

        env = SingleTurnEnv(ROWS, [Judge()])
        assert env.reward_names == ("Judge",) and step(env)[1] == [1]

    def test_weights_of_the_environment(self):
        assert SingleTurnEnv(ROWS, [correct, brief], reward_weights={"brief": 9}).reward_weights == (1, 9)

    @pytest.mark.parametrize(
        ("rewards", "message"),
        [
            ([], "at least one reward function"),
            ({}, "at least one reward function"),
            (correct, "a list of functions"),
            ([correct, correct], "two rewards are called 'correct'"),
            ([lambda answer: 1], "a lambda as a reward needs a name"),
            ([3], "a reward is a function, not 3"),
            ([Reward(brief, low=1, high=0)], "low must be under high"),
        ],
    )
    def test_mistakes(self, rewards, message):
        with pytest.raises(GymError, match=message):
            SingleTurnEnv(ROWS, rewards)


class TestData:
    def write(self, folder, name, lines):
        path = folder / name
        opened = gzip.open(path, "wt") if name.endswith(".gz") else path.open("w")
        with opened as file:
            file.write("\n".join(x if isinstance(x, str) else json.dumps(x) for x in lines))
        return path

    @pytest.mark.parametrize("name", ["rows.jsonl", "rows.jsonl.gz"])
    def test_files(self, tmp_path, name):
        path = self.write(tmp_path, name, [ROWS[0], "", ROWS[1]])
        for data in (path, str(path), {"train": path}, lambda split: path):
            assert SingleTurnEnv(data, [correct]).tasks == ROWS

    def test_a_file_per_split(self, tmp_path):
        self.write(tmp_path, "train.jsonl", ROWS)
        self.write(tmp_path, "dev.jsonl", ROWS[:1])
        env = SingleTurnEnv(f"{tmp_path}/{{split}}.jsonl", [correct], splits=("train", "dev"))
        dev = env.with_split("dev")
        assert (len(env.tasks), env.split, len(dev.tasks), dev.split) == (2, "train", 1, "dev")
        assert dev.reset(seed=0)[1]["task_id"] == "dev/0"

    def test_splits(self):
        env = SingleTurnEnv({"a": ROWS, "b": ROWS[:1]}, [correct], split="b")
        assert env.splits == ("a", "b") and len(env.tasks) == 1
        with pytest.raises(GymError, match="unknown split 'c'"):
            env.with_split("c")
        with pytest.raises(GymError, match="unknown split 'test'"):
            SingleTurnEnv(ROWS, [correct], split="test")

    def test_a_split_is_read_once(self):
        reads = []
        env = SingleTurnEnv(lambda split: reads.append(split) or ROWS, [correct])
        for _ in range(3):
            env.with_split("test").with_split("train")
        assert reads == ["train", "test"]

    def test_other_sequences(self):
        class Lazy:
            def __len__(self):
                return 2

            def __getitem__(self, i):
                return ROWS[i]

        assert SingleTurnEnv(Lazy(), [correct]).tasks == ROWS

    @pytest.mark.parametrize(
        ("lines", "message"),
        [
            ([ROWS[0], "{broken"], r"rows.jsonl:2: not JSON"),
            ([ROWS[0], "", "[1]"], r"rows.jsonl:3: a row is a dict"),
            ([ROWS[0], {"target": ""}], r"rows.jsonl:2: prompt: unknown column 'prompt'"),
            ([{**ROWS[0], "prompt": 3}], r"rows.jsonl:1: the prompt is no text or chat"),
            ([{**ROWS[0], "prompt": ["x"]}], r"rows.jsonl:1: prompt: a message is a dict"),
            ([{**ROWS[0], "prompt": []}], r"rows.jsonl:1: the prompt has no messages"),
            ([{**ROWS[0], "prompt": [{"role": "x"}]}], r"rows.jsonl:1: prompt: role is 'x'"),
            (
                [{**ROWS[0], "task_id": 1}, {**ROWS[0], "task_id": "1"}],
                r"jsonl:2: task_id '1' is that of .*jsonl:1",
            ),
            ([{**ROWS[0], "target": 3}], r"rows.jsonl:1: reference 3 is neither a text nor a list"),
            ([], r"have no rows"),
        ],
    )
    def test_bad_rows_are_named(self, tmp_path, lines, message):
        path = self.write(tmp_path, "rows.jsonl", lines)
        with pytest.raises(GymError, match=message):
            SingleTurnEnv(path, [correct], reference="target")

    def test_broken_files(self, tmp_path):
        with pytest.raises(GymError, match="there is no file"):
            SingleTurnEnv(tmp_path / "absent.jsonl", [correct])
        path = self.write(tmp_path, "rows.jsonl.gz", ROWS * 100)
        path.write_bytes(path.read_bytes()[:-12])
        with pytest.raises(GymError, match="damaged gzip file after line"):
            SingleTurnEnv(path, [correct])
        path = tmp_path / "latin.jsonl"
        path.write_bytes(b'{"prompt": "\xe9"}')
        with pytest.raises(GymError, match="not UTF-8 text after line 0"):
            SingleTurnEnv(path, [correct])

    @pytest.mark.parametrize("data", [3, None, object()])
    def test_no_data(self, data):
        with pytest.raises(GymError, match="should be a sequence of dicts or a path"):
            SingleTurnEnv(data, [correct])

    def test_task_ids(self):
        assert SingleTurnEnv([{**ROWS[0], "task_id": "sum"}], [correct]).task_id(0) == "sum"


class TestPrompts:
    def test_chats(self):
        chat = [
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": "b"},
            {"role": "user", "content": "c"},
        ]
        env = SingleTurnEnv([{"chat": chat}], [brief], prompt="chat", system="s")
        observation, _ = env.reset(options={"task": 0})
        assert [m["content"] for m in observation] == ["s", "a", "b", "c"]

    def test_functions(self):
        env = SingleTurnEnv([{"a": 1}], [brief], prompt=lambda row: f"{row.pop('a')}?")
        for _ in range(2):
            assert env.reset(seed=0)[0] == ({"role": "user", "content": "1?"},)

    def test_functions_that_fail(self):
        with pytest.raises(GymError, match="row 0 of split 'train': the prompt function raised KeyError: 'b'"):
            SingleTurnEnv([{"a": 1}], [brief], prompt=lambda row: row["b"])


def test_references():
    rows = [{"prompt": "x", "right": ["a", "b"]}, {"prompt": "y", "right": "c"}, {"prompt": "z", "right": []}]
    env = SingleTurnEnv(rows, [brief], reference="right")
    assert [env.reference_answers(i) for i in range(3)] == [("a", "b"), ("c",), ()]
    assert SingleTurnEnv(rows, [brief]).reference_answers(0) == ()
    with pytest.raises(GymError, match="reference: unknown column 'rigt'. Did you mean 'right'"):
        SingleTurnEnv(rows, [brief], reference="rigt")


def test_clones_score_in_threads():
    def slow(answer, target):
        time.sleep(0.001)
        return answer == target

    env = SingleTurnEnv([{"prompt": str(i), "target": str(i)} for i in range(30)], [slow])
    found = {}

    def play(task):
        found[task] = step(env.clone(), str(task), task)[1].tolist()

    threads = [threading.Thread(target=play, args=(task,)) for task in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {task: [1] for task in range(30)}


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_reward_function_may_say_that_it_cannot_score_now(kind):
    def away(answer):
        raise NotScored("the judge is away")

    async def away_too(answer):
        raise NotScored("the judge is away")

    env = SingleTurnEnv(ROWS, [away if kind == "sync" else away_too])
    with pytest.raises(NotScored, match=r"^the judge is away$"):
        step(env, "text")
