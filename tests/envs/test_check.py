import numpy as np
import pytest

from corrgrpo_gym.envs import MultiRewardEnv, Turn, check_env
from corrgrpo_gym.envs.check import HOSTILE
from corrgrpo_gym.errors import GymError


class Good(MultiRewardEnv):
    reward_names = ("a", "b")
    nan_rewards = frozenset({"b"})

    def __init__(self, tasks=("one", "two", "three"), **kwargs):
        super().__init__(list(tasks), **kwargs)

    def prompt(self, task):
        return [{"role": "user", "content": self.tasks[task]}]

    def reference_answers(self, task):
        return [self.tasks[task]]

    def score(self, task, reply):
        text = reply["content"] or ""
        return [float(text == self.tasks[task]), len(text) % 2 or np.nan]


def test_good_environment_passes():
    env = Good()
    env.reset(options={"task": 1})
    report = check_env(env)
    assert env.task == 1 and len(env.chat) == 1
    assert (report.env, report.tasks, report.reward_names) == ("Good", 3, ("a", "b"))
    assert report.steps >= len(HOSTILE) and len(report.checks) > 30
    assert report.least == {"a": 0, "b": 1} and report.greatest == {"a": 1, "b": 1}
    assert "3 tasks" in str(report) and "a 0..1" in str(report)


def test_several_turns_pass():
    class Turns(Good):
        def begin(self, task):
            self.left = 3

        def turn(self, reply):
            self.left -= 1
            return Turn((0, 0), [{"role": "user", "content": "more"}] if self.left else [], terminated=not self.left)

    assert check_env(Turns()).steps > 3 * len(HOSTILE)


def step_with(change):
    """A way to break the vector or the rest of what step returns."""

    def step(self, action):
        return change(self, *super(type(self), self).step(action))

    return step


def declared(**attributes):
    def init(self, *args, **kwargs):
        super(type(self), self).__init__(*args, **kwargs)
        vars(self).update(attributes)

    return {"__init__": init}


def crash_on(*texts):
    def score(self, task, reply):
        if (reply["content"] or "") in texts:
            raise ValueError("boom")
        return 0, 0

    return {"score": score}


def shared_clone(self):
    return self


def shared_vector(self, observation, reward, *rest):
    self.__class__.buffer = getattr(self.__class__, "buffer", reward)
    return observation, self.__class__.buffer, *rest


def forgetful_reset(self, *, seed=None, options=None):
    return Good.reset(self, options=options)


def any_action(self, action):
    return Good.step(self, action if isinstance(action, str) else "x")


def leaky_prompt(self, task):
    self.__class__.count = getattr(self.__class__, "count", 0) + 1
    return [{"role": "user", "content": f"{self.tasks[task]} {self.count}"}]


BAD = {
    "names and space differ": (declared(reward_names=("a", "b", "c")), "one dimension per reward name"),
    "names are a list": (declared(reward_names=["a", "b"]), "tuple of distinct str"),
    "weights are short": (declared(reward_weights=(1.0,)), "reward_weights has one finite number"),
    "weights are infinite": (declared(reward_weights=(1.0, np.inf)), "reward_weights has one finite number"),
    "NaN of an unknown name": (declared(nan_rewards=frozenset({"x"})), "nan_rewards are among reward_names"),
    "split is unknown": (declared(split="other"), "split is one of splits"),
    "ids are not distinct": ({"task_id": lambda self, i: "x"}, "task ids are distinct"),
    "ids are numbers": ({"task_id": lambda self, i: i}, "task ids are str"),
    "float64": ({"step": step_with(lambda s, o, r, *rest: (o, r.astype(float), *rest))}, "float32 vectors"),
    "a list": ({"step": step_with(lambda s, o, r, *rest: (o, r.tolist(), *rest))}, "float32 vectors"),
    "too short": ({"step": step_with(lambda s, o, r, *rest: (o, r[:1], *rest))}, "float32 vectors"),
    "NaN undeclared": (
        {"step": step_with(lambda s, o, r, *rest: (o, r * np.float32("nan"), *rest))},
        "a is NaN",
    ),
    "outside": ({"step": step_with(lambda s, o, r, *rest: (o, r + 2, *rest))}, "rewards are inside"),
    "infinite": ({"step": step_with(lambda s, o, r, *rest: (o, r + np.inf, *rest))}, "rewards are inside"),
    "one buffer": ({"step": step_with(shared_vector)}, "vector of its own"),
    "observation is a list": (
        {"step": step_with(lambda s, o, *rest: ([], *rest))},
        "observations are inside",
    ),
    "terminated is an int": (
        {"step": step_with(lambda s, o, r, t, u, i: (o, r, 1, u, i))},
        "truncated are bool",
    ),
    "info is empty": ({"step": step_with(lambda s, o, r, t, u, i: (o, r, t, u, {}))}, "info holds task and"),
    "never ends": ({"turn": lambda self, reply: Turn()}, "episode ends within"),
    "raises on nothing": (crash_on(""), r"any text is fine \(nothing\): raised ValueError: boom"),
    "raises on a megabyte": (crash_on(HOSTILE["a megabyte"]), r"any text is fine \(a megabyte\)"),
    "encodes": ({"score": lambda s, t, r: (len((r["content"] or "").encode()) * 0, 0)}, "a lone surrogate"),
    "no clone": ({"clone": shared_clone}, "a clone's reset leaves the other's episode alone"),
    "ignores the seed": ({"reset": forgetful_reset}, "the same seed gives the same task"),
    "takes any action": (
        {"step": any_action},
        "neither text nor assistant message is a GymError; seen: no error",
    ),
    "another prompt every time": ({"prompt": leaky_prompt}, "same seed gives the same task, observation"),
    "reference is a text": (
        {"reference_answers": lambda s, t: "one"},
        "reference answers are texts",
    ),
    "tools are missing": (
        {"reset": lambda self, **k: (Good.reset(self, **k)[0], {"task": 0, "task_id": ""})},
        "info holds a list of tools",
    ),
}


@pytest.mark.parametrize(("attributes", "message"), BAD.values(), ids=BAD.keys())
def test_bad_environments_are_told_what_fails(attributes, message):
    kind = type("Bad", (Good,), attributes)
    with pytest.raises(GymError, match=message) as caught:
        check_env(kind())
    assert "Bad (split" in str(caught.value)


def test_every_failure_is_listed():
    kind = type("Bad", (Good,), {**crash_on(""), **declared(reward_weights=(1.0,)), "task_id": lambda self, i: "x"})
    with pytest.raises(GymError, match="fails 5 checks"):
        check_env(kind())


def test_other_environments():
    import gymnasium

    with pytest.raises(GymError, match="not a MultiRewardEnv"):
        check_env(gymnasium.make("CartPole-v1"))
