"""An environment of one's own in ten lines: sums, scored for being right and for being brief.

corrgrpo-gym train --env examples/sums.py:env --algo corrgrpo
"""

from corrgrpo_gym.envs import Reward, SingleTurnEnv


def correct(answer, target):
    return float(answer.strip() == target)


def brief(answer):
    return 1 / (1 + len(answer))


def rows(split):
    pairs = [(a, b) for a in range(20) for b in range(20) if ((a + 3 * b) % 5 == 0) == (split == "test")]
    return [{"prompt": f"{a} + {b} =", "target": str(a + b)} for a, b in pairs]


env = SingleTurnEnv(rows, [correct, Reward(brief, weight=0.1)], reference="target")
