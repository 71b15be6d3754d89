"""Gymnasium and MO-Gymnasium, the real packages, on environments of ours."""

import subprocess
import sys
import warnings

import gymnasium
import mo_gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from mo_gymnasium.wrappers import LinearReward, MOClipReward, MONormalizeReward, MORecordEpisodeStatistics
from mo_gymnasium.wrappers.vector import MOSyncVectorEnv

from corrgrpo_gym import envs
from corrgrpo_gym.envs import SingleTurnEnv, registry
from corrgrpo_gym.errors import GymError


def length(answer):
    return min(len(answer), 10)


def upper(answer):
    return float(answer.isupper())


def small(split="train", limit=10):
    rows = [{"prompt": f"{split} {i}"} for i in range(limit)]
    rewards = [envs.Reward(length, high=10), upper]
    return SingleTurnEnv({"train": rows, "test": rows}, rewards, split=split)


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    """Registrations of a test end with it, and Gymnasium's warnings are errors."""
    monkeypatch.setattr(registry, "_entries", dict(registry._entries))
    monkeypatch.setattr(gymnasium.envs.registration, "registry", dict(gymnasium.registry))
    monkeypatch.setattr(gymnasium, "registry", gymnasium.envs.registration.registry)
    envs.register("small", small, gymnasium_id="corrgrpo_gym_tests/Small-v0")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.mark.parametrize("make", [gymnasium.make, mo_gymnasium.make])
def test_make(make):
    env = make("corrgrpo_gym_tests/Small-v0", split="test", limit=3)
    assert env.unwrapped.reward_names == ("length", "upper") and env.unwrapped.split == "test"
    observation, _ = env.reset(seed=1, options={"task": 2})
    assert observation in env.observation_space
    assert observation[0]["content"] == "test 2"
    _, reward, terminated, truncated, _ = env.step("ABC")
    assert reward.tolist() == [3, 1] and reward in env.unwrapped.reward_space and terminated and not truncated
    assert env.spec.id == "corrgrpo_gym_tests/Small-v0"
    env.close()


def test_a_spec_makes_the_environment_again():
    env = gymnasium.make("corrgrpo_gym_tests/Small-v0", limit=3)
    again = gymnasium.make(EnvSpec.from_json(env.spec.to_json()))
    assert len(again.unwrapped.tasks) == 3


def test_leetcode_has_its_id():
    spec = gymnasium.spec("corrgrpo_gym/LeetCode-v0")
    assert spec.kwargs == {"name": "leetcode"} and spec.disable_env_checker


def test_the_id_is_there_after_the_import_alone():
    script = "import gymnasium, corrgrpo_gym.envs; print(gymnasium.spec('corrgrpo_gym/LeetCode-v0').id)"
    done = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "corrgrpo_gym/LeetCode-v0\n" and not done.stderr


def test_by_module_and_id():
    script = "import gymnasium; print(gymnasium.make('corrgrpo_gym.envs:corrgrpo_gym/LeetCode-v0', splt=1))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert "unknown option 'splt'" in done.stderr


def test_registering_twice_is_quiet():
    registry.register_gymnasium()
    registry.register_gymnasium()


def test_errors_come_through():
    with pytest.raises(GymError, match="unknown option 'limt'. Did you mean 'limit'"):
        gymnasium.make("corrgrpo_gym_tests/Small-v0", limt=3)


def test_record_episode_statistics_keeps_the_vector():
    env = MORecordEpisodeStatistics(gymnasium.make("corrgrpo_gym_tests/Small-v0"), gamma=0.9)
    for _ in range(2):
        env.reset(seed=0)
        *_, info = env.step("ABCD")
        assert info["episode"]["r"].tolist() == [4, 1] and info["episode"]["r"].dtype == np.float32


def test_linear_reward():
    env = LinearReward(gymnasium.make("corrgrpo_gym_tests/Small-v0"), weight=np.array([0.5, 2.0]))
    env.reset(seed=0)
    _, reward, *_, info = env.step("ABCD")
    assert reward == 4 and info["vector_reward"].tolist() == [4, 1]


def test_normalize_and_clip_change_only_their_component():
    env = MOClipReward(MONormalizeReward(gymnasium.make("corrgrpo_gym_tests/Small-v0"), idx=0), idx=0, min_r=0, max_r=2)
    seen = []
    for text in ("ABCD", "abcdefg", "A"):
        env.reset(seed=0)
        _, reward, *_ = env.step(text)
        assert reward.shape == (2,) and reward[1] == text.isupper()
        seen.append(reward[0])
    assert max(seen) <= 2


def test_wrappers_know_the_spaces():
    env = gymnasium.Wrapper(gymnasium.make("corrgrpo_gym_tests/Small-v0"))
    assert env.unwrapped.reward_dim == 2
    assert env.get_wrapper_attr("reward_space").shape == (2,)
    assert envs.check_env(env).tasks == 10


def test_vectorised():
    vector = MOSyncVectorEnv([small, small])
    observations, _ = vector.reset(seed=3)
    assert len(observations) == 2
    _, rewards, terminated, _, _ = vector.step(("ABC", "x"))
    assert rewards.tolist() == [[3, 1], [1, 0]] and terminated.all()
