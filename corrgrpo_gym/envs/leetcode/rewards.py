"""The seven rewards of a LeetCode answer, each in [0, 1], from one verdict of the sandbox.

`format` and `ast_similarity` stand alone. The five between them are stages: one that is not reached gives 0.

1. format: the answer is in a fenced block that holds `class Solution`.
2. syntax: the extracted code parses.
3. compile: prelude, code and test compile.
4. runtime: it ran to a verdict in time: all tests passed or an assertion failed, with no other exception.
5. accuracy: all tests pass.
6. efficiency: 1 - t / t_reference, clipped to [0, 1], of an answer that passes; t is CPU time without the sandbox's
   own share.
7. ast_similarity: difflib's ratio of the syntax trees' shapes, the answer's first (see `ast_shape`).

Source: the public material of the CorrGRPO paper (arXiv 2609.36820).
"""

import math
import re

from ..sandbox import Measured, Verdict
from .ast_shape import Shape, similarity

REWARD_NAMES = ("format", "syntax", "compile", "runtime", "accuracy", "efficiency", "ast_similarity")

REWARD_WEIGHTS: dict[str, tuple[float, ...]] = {
    # The paper's training weights; for `grpo` their weighted sum is the reward.
    "default": (0.05, 0.05, 0.05, 0.25, 0.60, 0.20, 0.30),
    # What the paper's reference implementation gives `corrgrpo` and `gdpo`: the components as they are.
    "paper-vector": (1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0),
}

_STAGES = {"nothing": 0, "syntax_error": 0, "compile_error": 1, "runtime_error": 2, "timeout": 2, "failed": 3}
_SOLUTION = re.compile(r"^[ \t]*class[ \t]+Solution\b", re.MULTILINE)


def rewards(
    verdict: Verdict,
    reference_shape: Shape | None,
    reference: Measured | None,
    efficiency_resolution: float = 0.0,
) -> tuple[float, ...]:
    """Score one verdict.

    Args:
        verdict: the sandbox's.
        reference_shape: shape of the reference solution; None if it has none (then nothing is similar).
        reference: the baseline's time on the same tests; None if that isn't known.
        efficiency_resolution: efficiency is rounded to multiples of this; 0 leaves it exact.

    Returns:
        Seven values in the order of `REWARD_NAMES`.
    """
    reached = 4 if verdict.status == "passed" else _STAGES[verdict.status]
    syntax, compiles, runtime, accuracy = (float(reached > stage) for stage in range(4))
    in_block = verdict.fenced and _SOLUTION.search(verdict.code) is not None
    speed = 0.0
    if accuracy and reference is not None:
        speed = efficiency(verdict.cpu_seconds, reference.seconds, reference.harness_seconds, efficiency_resolution)
    alike = 0.0
    if verdict.shape is not None and reference_shape is not None:
        alike = similarity(verdict.shape, reference_shape)
    return (float(in_block), syntax, compiles, runtime, accuracy, speed, alike)


def efficiency(
    seconds: float, reference_seconds: float, harness_seconds: float = 0.0, resolution: float = 0.0
) -> float:
    """Return the share of the reference's time that was saved, in [0, 1].

    Args:
        seconds: CPU time of a right answer.
        reference_seconds: CPU time of the baseline; 0 gives 0.
        harness_seconds: the sandbox's own share in both (passing arguments and results), which is taken off. Most of
            LeetCodeDataset's references need a few milliseconds, of which it is about half: with it, an answer in half
            the time would earn a quarter. At most half of the baseline's time is taken off, as noise grows likewise.
        resolution: rounds to the nearest multiple of it (never above 1). At 0.2, an answer within 10 % of the
            baseline's time gets exactly 0 and one under 10 % of it exactly 1, whatever the clock's noise.
    """
    if not reference_seconds:
        return 0.0
    harness_seconds = min(harness_seconds, reference_seconds / 2)
    ratio = (seconds - harness_seconds) / (reference_seconds - harness_seconds)
    saved = min(max(1.0 - ratio, 0.0), 1.0)
    if resolution:
        saved = min(math.floor(saved / resolution + 0.5) * resolution, 1.0)
    return saved
