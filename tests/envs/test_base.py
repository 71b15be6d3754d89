import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corrgrpo_gym import envs
from corrgrpo_gym.envs import ActionSpace, ChatSpace, MultiRewardEnv, Turn
from corrgrpo_gym.envs.chat import message_problem
from corrgrpo_gym.errors import GymError


class Echo(MultiRewardEnv):
    reward_names = ("same", "short")
    reward_ranges = {"short": (-1.0, 0.0)}
    nan_rewards = frozenset({"same"})
    reward_weights = (2.0, 0.5)
    splits = ("train", "test")

    def prompt(self, task):
        return [{"role": "user", "content": self.tasks[task]}]

    def score(self, task, reply):
        text = reply["content"] or ""
        same = np.nan if self.tasks[task] == "?" else float(text == self.tasks[task])
        return {"same": same, "short": -min(len(text), 10) / 10}, {"length": len(text)}


class Guess(MultiRewardEnv):
    """Several turns: find the number; the state of an episode lives in attributes that begin assigns."""

    reward_names = ("found", "calls")

    def begin(self, task):
        self.tries = []

    def prompt(self, task):
        return [{"role": "system", "content": "Find it."}, {"role": "user", "content": "Go."}]

    def tools(self, task):
        return [{"type": "function", "function": {"name": "try", "parameters": {}}}]

    def turn(self, reply):
        self.tries.append(reply["content"])
        if reply["content"] == self.tasks[self.task]:
            return Turn((1, 0), terminated=True)
        if len(self.tries) == 3:
            return Turn({"found": 0, "calls": 1}, truncated=True, info={"tries": list(self.tries)})
        return Turn(messages=[{"role": "tool", "content": "no", "tool_call_id": "1"}])


@pytest.fixture
def env():
    return Echo(["one", "two", "?"], split="test")


def test_single_turn(env):
    observation, info = env.reset(options={"task": 1})
    assert observation == ({"role": "user", "content": "two"},)
    assert info == {"task": 1, "task_id": "test/1", "tools": []}
    observation, reward, terminated, truncated, info = env.step("two")
    assert observation == () and terminated and not truncated
    assert reward.dtype == np.float32 and reward == pytest.approx([1, -0.3])
    assert info == {"task": 1, "task_id": "test/1", "length": 3}
    assert [m["role"] for m in env.chat] == ["user", "assistant"]


def test_an_assistant_message_is_an_action_too(env):
    env.reset(options={"task": 0})
    message = {"role": "assistant", "content": "one", "tool_calls": [{"id": "x"}]}
    assert env.step(message)[1][0] == 1
    assert env.chat[-1] == message and env.chat[-1] is not message
    env.reset(options={"task": 0})
    assert env.step({"role": "assistant"})[4]["length"] == 0


def test_several_turns():
    env = Guess(["4", "5"])
    _, info = env.reset(options={"task": 1})
    assert info["tools"][0]["function"]["name"] == "try"
    observation, reward, terminated, truncated, _ = env.step("1")
    assert observation == ({"role": "tool", "content": "no", "tool_call_id": "1"},)
    assert reward.tolist() == [0, 0] and not terminated and not truncated
    assert env.step("5")[1:4] == (pytest.approx([1, 0]), True, False)
    assert len(env.chat) == 5
    env.reset(options={"task": 1})
    for text in "12":
        env.step(text)
    *_, truncated, info = env.step("3")
    assert truncated and info["tries"] == ["1", "2", "3"]


def test_episodes_that_are_cut_from_outside():
    env = Guess(["4", "5"])
    with pytest.raises(GymError, match=r"call reset\(\) first"):
        env.truncate()
    env.reset(options={"task": 0})
    env.step("1")
    observation, reward, terminated, truncated, info = env.truncate()
    assert (observation, reward.tolist(), terminated, truncated) == ((), [0, 0], False, True)
    assert info == {"task": 0, "task_id": "train/0"}
    for call in (env.truncate, lambda: env.step("4")):
        with pytest.raises(GymError, match="the episode is over"):
            call()

    class Forgiving(Guess):
        def cut(self):
            return Turn({"found": 0, "calls": len(self.tries) / 4}, messages=[{"role": "user"}], info={"cut": True})

    env = Forgiving(["4"])
    env.reset()
    env.step("1")
    observation, reward, terminated, truncated, info = env.truncate()
    assert (observation, reward.tolist(), terminated, truncated) == ((), [0, 0.25], False, True) and info["cut"]


def test_seeds_draw_the_same_tasks(env):
    other = Echo(["one", "two", "?"], split="test")

    def draw(e, seed):
        return [e.reset(seed=seed)[1]["task"], *(e.reset()[1]["task"] for _ in range(20))]

    assert draw(env, 3) == draw(other, 3)
    assert len({tuple(draw(env, seed)) for seed in range(5)}) == 5


def test_clones_are_independent(env):
    env.reset(seed=1, options={"task": 0})
    clone = env.clone()
    with pytest.raises(GymError, match="reset"):
        clone.step("x")
    clone.reset(options={"task": 1})
    assert env.task == 0 and clone.task == 1 and clone.tasks is env.tasks
    assert env.step("one")[1][0] == 1
    assert clone.step("two")[1][0] == 1
    first, second = env.clone(), env.clone()
    assert [first.reset()[1]["task"] for _ in range(20)] != [second.reset()[1]["task"] for _ in range(20)]


def test_clones_of_a_seeded_environment_repeat():
    def drawn():
        env = Echo([str(i) for i in range(100)])
        env.reset(seed=5)
        return [[clone.reset()[1]["task"] for _ in range(5)] for clone in (env.clone(), env.clone())]

    assert drawn() == drawn()


def test_clones_step_in_threads():
    env = Guess([str(i) for i in range(40)])
    found = []

    def play(clone, task):
        clone.reset(options={"task": task})
        clone.step("no")
        found.append((task, clone.step(str(task))[1][0], len(clone.tries)))

    threads = [threading.Thread(target=play, args=(env.clone(), task)) for task in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [(task, 1, 2) for task in range(40)]


def test_what_the_caller_changes_does_not_come_back(env):
    observation, _ = env.reset(options={"task": 0})
    observation[0]["content"] = "changed"
    assert env.chat[0]["content"] == "one"
    _, reward, *_ = env.step("one")
    reward[:] = 9
    assert env.reset(options={"task": 0})[0][0]["content"] == "one"
    assert env.step("one")[1][0] == 1


def test_nan_where_declared(env):
    env.reset(options={"task": 2})
    assert np.isnan(env.step("x")[1]).tolist() == [True, False]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"task": 3}, r"no task 3; split 'test' has 0\.\.2"),
        ({"task": -1}, "no task -1"),
        ({"task": "0"}, "by its index, an int, not by '0'"),
        ({"task": True}, "not by True"),
        ({"task": 1.0}, "not by 1.0"),
        ({"tsk": 1}, "unknown option 'tsk'. Did you mean 'task'"),
    ],
)
def test_bad_reset_options(env, options, message):
    with pytest.raises(GymError, match=message):
        env.reset(options=options)


def test_numpy_index(env):
    assert env.reset(options={"task": np.int64(1)})[1]["task"] == 1


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (None, "NoneType"),
        (3, "int"),
        (b"x", "bytes"),
        ({"role": "user", "content": "x"}, "role is 'user'"),
        ({"content": "x"}, "role is None"),
        ({"role": "assistant", "content": 3}, "content is a int"),
        ({"role": "assistant", "tool_calls": "x"}, "tool_calls is not a list of dicts"),
        ({"role": "assistant", "tool_calls": [1]}, "tool_calls is not a list of dicts"),
    ],
)
def test_bad_actions(env, action, message):
    env.reset(seed=0)
    with pytest.raises(GymError, match=message):
        env.step(action)
    assert len(env.chat) == 1


def test_order_of_calls(env):
    with pytest.raises(GymError, match=r"call reset\(\) first"):
        env.step("x")
    env.reset(seed=0)
    env.step("x")
    with pytest.raises(GymError, match="the episode is over"):
        env.step("x")


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ((0.5,), r"shape \(1,\), but there are 2 reward_names"),
        ((0.5, 0.5, 0.5), r"shape \(3,\)"),
        (0.5, r"shape \(\)"),
        ({"same": 1}, r"named \['same'\], but reward_names is"),
        ({"same": 1, "shrt": 0}, "shrt"),
        ((1.5, 0), "task test/0: reward 'same' is 1.5, outside its range 0.0..1.0"),
        ((1, 0.1), "'short' is 0.1"),
        ((np.inf, 0), "'same' is inf"),
        ((0, np.nan), "'short' is NaN, but nan_rewards"),
        (("x", 0), "must be numbers"),
    ],
)
def test_bad_vectors_are_errors_of_the_environment(monkeypatch, env, returned, message):
    monkeypatch.setattr(Echo, "score", lambda self, task, reply: returned)
    env.reset(options={"task": 0})
    with pytest.raises(GymError, match=message):
        env.step("x")


def test_bad_prompts_are_errors_of_the_environment(monkeypatch, env):
    monkeypatch.setattr(Echo, "prompt", lambda self, task: [{"role": "user"}])
    with pytest.raises(GymError, match="Echo.prompt for test/0: the user message has no content"):
        env.reset(options={"task": 0})


@pytest.mark.parametrize(
    ("attributes", "arguments", "message"),
    [
        ({}, {"split": "tset"}, "unknown split 'tset'. Did you mean 'test'"),
        ({}, {"tasks": []}, "split 'train' has no tasks"),
        ({"reward_names": ()}, {}, "at least one name"),
        ({"reward_names": "ab"}, {}, "at least one name"),
        ({"reward_names": ("a", "a"), "reward_ranges": {}, "nan_rewards": ()}, {}, "distinct"),
        (
            {"reward_ranges": {"shrt": (0, 1)}},
            {},
            "reward_ranges: unknown reward 'shrt'. Did you mean 'short'",
        ),
        ({"reward_ranges": {"short": (0, 0)}}, {}, "low must be under high"),
        ({"nan_rewards": {"x"}}, {}, "nan_rewards: unknown reward 'x'"),
        ({}, {"reward_weights": [1]}, "1 reward_weights, but 2 rewards"),
        ({}, {"reward_weights": [1, np.nan]}, "finite"),
        ({}, {"reward_weights": [1, "x"]}, "must be numbers"),
        ({}, {"reward_weights": {"sam": 1}}, "unknown reward 'sam'. Did you mean 'same'"),
    ],
)
def test_bad_declarations(attributes, arguments, message):
    kind = type("Echo", (Echo,), attributes)
    with pytest.raises(GymError, match=message):
        kind(**{"tasks": ["one"], **arguments})


def test_weights():
    assert Echo(["x"]).reward_weights == (2.0, 0.5)
    assert Echo(["x"], reward_weights={"short": 3}).reward_weights == (2.0, 3.0)
    assert Echo(["x"], reward_weights=iter([1, 2])).reward_weights == (1.0, 2.0)
    assert Guess(["x"]).reward_weights == (1.0, 1.0)


def test_task_ids_come_from_the_task():
    class Named:
        task_id = 7

    env = Echo([{"task_id": "a"}, Named(), "x", {"other": 1}])
    assert [env.task_id(i) for i in range(4)] == ["a", "7", "train/2", "train/3"]
    with pytest.raises(GymError, match="no task 4"):
        env.task_id(4)


def test_a_class_without_methods_says_what_is_missing():
    class Bare(MultiRewardEnv):
        reward_names = ("a",)

    with pytest.raises(NotImplementedError, match="prompt"):
        Bare(["x"]).reset()


class TestSpaces:
    @pytest.mark.parametrize("kind", [ChatSpace, ActionSpace])
    def test_samples(self, kind):
        first, second = kind(seed=1), kind(seed=1)
        samples = [first.sample() for _ in range(50)]
        assert samples == [second.sample() for _ in range(50)]
        assert all(sample in first for sample in samples)
        first.seed(1)
        assert first.sample() == samples[0]
        assert len({str(s) for s in samples}) > 40

    def test_equality(self):
        assert ChatSpace() == ChatSpace() != ChatSpace(max_length=3)
        assert ChatSpace() != ActionSpace()
        assert hash(ChatSpace()) == hash(ChatSpace())

    def test_chats(self):
        space = ChatSpace()
        assert () in space
        assert ({"role": "user", "content": "\udc80\0"},) in space
        assert (
            {"role": "assistant", "content": None, "tool_calls": [{}]},
            {"role": "tool", "content": ""},
        ) in space
        for other in ([], "x", ({"role": "robot", "content": ""},), ({"role": "tool"},), ("x",), None):
            assert other not in space

    def test_actions(self):
        space = ActionSpace()
        for action in ("", "\udc80", {"role": "assistant", "content": None}, {"role": "assistant"}):
            assert action in space
        for other in (None, 3, b"", {"role": "user", "content": ""}):
            assert other not in space

    @given(st.recursive(st.none() | st.text() | st.integers(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)))
    def test_any_object_has_an_answer(self, thing):
        assert (message_problem(thing) is None) is False or isinstance(thing, dict)
        assert isinstance(thing in ChatSpace(), bool) and isinstance(thing in ActionSpace(), bool)

    def test_unhashable_role(self):
        assert ({"role": [], "content": ""},) not in ChatSpace()


def test_public_names_exist():
    assert all(hasattr(envs, name) for name in envs.__all__)
