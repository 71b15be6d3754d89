"""RLLA: tool calls, scored by form, function, parameters and values."""

from .env import RllaEnv
from .rewards import REWARD_NAMES, matched, rewards, well_formed

__all__ = ["REWARD_NAMES", "RllaEnv", "matched", "rewards", "well_formed"]
