"""LeetCode: seven rewards for one program, on the published data or an embedded problem family."""

from .embedded import embedded_rows
from .env import LeetCodeEnv
from .noise import noisy_answers
from .rewards import REWARD_NAMES, REWARD_WEIGHTS

__all__ = ["REWARD_NAMES", "REWARD_WEIGHTS", "LeetCodeEnv", "embedded_rows", "noisy_answers"]
