"""Environments whose reward is a vector: the API, the registry and the environments themselves.

from corrgrpo_gym import envs

env = envs.make("leetcode", split="test")
observation, info = env.reset(options={"task": 0})
observation, reward, terminated, truncated, info = env.step("an answer")   # reward: float32 [K]
"""

from .base import MultiRewardEnv, Turn
from .chat import Action, ActionSpace, ChatSpace, Message, Observation
from .check import CheckReport, check_env
from .registry import EnvInfo, list_envs, make, register, register_gymnasium
from .reward_functions import Reward, reward
from .rewards import Rewards
from .single_turn import SingleTurnEnv

__all__ = [
    "Action",
    "ActionSpace",
    "ChatSpace",
    "CheckReport",
    "EnvInfo",
    "Message",
    "MultiRewardEnv",
    "Observation",
    "Reward",
    "Rewards",
    "SingleTurnEnv",
    "Turn",
    "check_env",
    "list_envs",
    "make",
    "register",
    "reward",
]

register(
    "leetcode",
    "corrgrpo_gym.envs.leetcode:LeetCodeEnv",
    description="LeetCode problems solved in Python: format, stages of correctness, speed, similarity",
    gymnasium_id="corrgrpo_gym/LeetCode-v0",
    reward_names=("format", "syntax", "compile", "runtime", "accuracy", "efficiency", "ast_similarity"),
)
register(
    "rlla",
    "corrgrpo_gym.envs.rlla:RllaEnv",
    description="Tool calls in a dialogue (RLLA-4K): form, functions, names and values of parameters",
    gymnasium_id="corrgrpo_gym/Rlla-v0",
    reward_names=("format", "function_name", "parameter_name", "parameter_value"),
)
register(
    "agent",
    "corrgrpo_gym.envs.agent:AgentEnv",
    description="An office with a mailbox: do what the user wants, not what a mail smuggles in; several turns",
    gymnasium_id="corrgrpo_gym/Agent-v0",
    reward_names=("utility", "safety", "format"),
)
register(
    "agentdojo",
    "corrgrpo_gym.envs.agentdojo:AgentDojoEnv",
    description="AgentDojo: a user's task with tools, and instructions injected in what they say; several turns",
    gymnasium_id="corrgrpo_gym/AgentDojo-v0",
    reward_names=("utility", "safety", "format"),
)
register_gymnasium()
