"""An environment of one's own in ten lines: sums, scored for being right and for being brief.

corrgrpo-gym train --env examples/sums.py:env --algo corrgrpo
"""

from corrgrpo_gym.envs import Reward, SingleTurnEnv


def correct(answer, target):
    return float(answer.strip() == target)


def brief(answer):
    return 1 / (1 + len(answer))


def rows(split):
    numbers = range(10) if split == "train" else range(10, 20)
    return [{"prompt": f"{a} + {b} =", "target": str(a + b)} for a in numbers for b in numbers]


env = SingleTurnEnv(rows, [correct, Reward(brief, weight=0.1)], reference="target")
