"""Which of two programs needs less CPU time: pairs of repetitions, until their order is clear.

A repetition is one run of a side's calls in a process that has seen nothing of an earlier one. What a machine's load
does to times comes and goes over seconds, so the two sides take turns, and each round gives one ratio. The first of a
pair is another one each time, so what it leaves behind (caches, the machine's state) favours neither.

A process differs from the next of the same program by 3 to 5 %, whether it runs for a millisecond or for a second, and
now and then by far more, when others take its caches. So what helps is many processes, not long ones. A round of short
programs has several runs of each side, taking turns, and is the mean of the faster half of each: what others take only
ever adds.

The estimate is the median of the rounds' ratios. Its interval is the one of the sign test, by order statistics: it
assumes nothing of how times are distributed but that rounds are independent. It is looked at after 8, 15, 25, 40 and
60 rounds, each time at 99 %; at a true ratio of 1 all looks together claim an order in fewer than 5 % of comparisons,
were it not for the margin, which leaves next to none. Rounds end when an order is clear, or, from the fifteenth on,
when it is clear that the programs differ by no more than a twentieth.

What every program costs that is not its own, decoding arguments and encoding results, is measured with one that only
hands out the recorded results, in turn with the two sides, and taken off both.

Runs in the judge as well as in the user's process: standard library only.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

Side = Literal["candidate", "reference", "harness"]
Ranking = Literal["faster", "slower", "undecided"]

METHOD = 3  # to be raised with every change of what is timed, so that kept times are taken anew
SHARE_ROUNDS = 8  # the rounds of the paper's efficiency
LOOKS = (8, 15, 25, 40, 60)
_FEWEST = 3  # rounds, of programs that run for many seconds
_ERROR = 0.01  # of one look
# Programs of equal work differ by the layout of their memory: differences up to this share and this much are no claim.
_SAME = 0.02
_SAME_SECONDS = 20e-6
_ALIKE = 0.05  # an interval within this of 1 is worth no more rounds
_LONG_SECONDS = 0.01  # a round of this much of the shorter side's own time is long enough
_LONGEST_SECONDS = 0.1  # and one of this much of the longer side's is enough in any case
_MOST_RUNS = 16  # of each side in a round
_SHORTEST = 5e-6  # seconds of a program's own time that can be told from none
_WARM_UP = 2
_WARM_SECONDS = 0.5  # a run of this much is a warm-up by itself
_HARNESS_RUNS = 5
_HARNESS_EVERY = 4  # runs of a side
_NEGLIGIBLE = 0.005


@dataclass(frozen=True, slots=True)
class Timing:
    """How long a program takes beside a reference on the same calls.

    All times are CPU seconds of one run, loading included and the harness's share taken off, read from outside the
    program's process.

    Attributes:
        ranking: ``faster`` or ``slower`` than the reference, where the interval of the ratio lies on one side of 1 by
            more than a fiftieth and 20 microseconds; else ``undecided``.
        rounds: pairs that were timed; 0 where nothing was.
        runs: runs of each side in a round.
        faster_share: share of the first eight rounds (of all, where they are fewer) in which the program was the faster
            one.
        ratio: the median of the rounds' ratios, program / reference; under 1 is faster.
        low: lower end of the ratio's interval, of at least 99 %; 0 of fewer than eight rounds.
        high: its upper end; infinite of fewer than eight rounds.
        candidate_seconds: the program's time, the median of rounds.
        reference_seconds: the reference's.
        harness_seconds: what was taken off both.
        problem: why nothing was timed: a side does not pass, or answers otherwise when it runs again; else empty.
    """

    ranking: Ranking = "undecided"
    rounds: int = 0
    runs: int = 0
    faster_share: float | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    candidate_seconds: float | None = None
    reference_seconds: float | None = None
    harness_seconds: float | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Measured:
    """How long a right program takes when it is judged.

    Attributes:
        seconds: CPU seconds of a run, as in `Verdict.cpu_seconds`; the median of runs.
        harness_seconds: the harness's share of them: what a program takes that does nothing but return the results;
            0 where the program takes over a second.
        problem: why there are none: it does not pass, or answers otherwise when it runs again; else empty.
    """

    seconds: float = 0.0
    harness_seconds: float = 0.0
    problem: str = ""


def rank(n: int, error: float = _ERROR) -> int:
    """Return the largest k for which the k-th smallest and k-th largest of n enclose the median but for ``error``.

    0 where there is none.
    """
    k, below = 0, 0.0
    while k < n // 2:
        below += 2 * math.comb(n, k) / 2**n
        if below > error:
            break
        k += 1
    return k


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The median's interval, of at least 99 %; without bounds where the values are too few."""
    k = rank(len(values))
    if k == 0:
        return 0.0, math.inf
    ordered = sorted(values)
    return ordered[k - 1], ordered[-k]


def compare(run: Callable[[Side], float], spend: float, judged: tuple[float, float] = (0.0, 0.0)) -> Timing:
    """Time two programs against each other.

    Args:
        run: runs one side in a fresh process; returns its CPU seconds. ``harness`` is the program that does nothing.
        spend: CPU seconds after which more rounds than three are not worth it. Fewer than eight claim no order.
        judged: CPU seconds that the candidate and the reference took when they were judged; where that was long, it
            warmed the machine up.
    """
    harness = [run("harness") for _ in range(_HARNESS_RUNS)]
    sides: tuple[Side, Side] = ("candidate", "reference")
    warm = list(judged)
    if min(judged) < _WARM_SECONDS:
        warm = [min(run(side) for _ in range(_WARM_UP)) for side in sides]
    spent = sum(harness) + _WARM_UP * sum(warm)
    short, long = (max(seconds - faster_half(harness), _SHORTEST) for seconds in sorted(warm))
    runs = max(min(math.ceil(_LONG_SECONDS / short), int(_LONGEST_SECONDS / long), _MOST_RUNS), 1)
    with_harness = faster_half(harness) > _NEGLIGIBLE * min(warm)
    rounds: list[tuple[float, float]] = []
    turns = 0
    while True:
        taken: dict[Side, list[float]] = {"candidate": [], "reference": []}
        for turn in range(runs):
            for side in sides if (len(rounds) + turn) % 2 == 0 else sides[::-1]:
                taken[side].append(run(side))
            if with_harness and turns % _HARNESS_EVERY == 0:
                harness.append(run("harness"))
            turns += 1
        rounds.append((faster_half(taken["candidate"]), faster_half(taken["reference"])))
        spent += sum(map(sum, taken.values()))
        last = spent > spend and len(rounds) >= _FEWEST
        if last or len(rounds) in LOOKS:
            timing = conclude(rounds, faster_half(harness), runs)
            enough = len(rounds) == LOOKS[-1] or (len(rounds) >= LOOKS[1] and _alike(timing))
            if timing.ranking != "undecided" or enough or last:
                return timing


def faster_half(seconds: Sequence[float]) -> float:
    """Return the mean of the faster half, the middle one included."""
    return statistics.fmean(sorted(seconds)[: (len(seconds) + 1) // 2])


def conclude(rounds: Sequence[tuple[float, float]], harness: float, runs: int) -> Timing:
    """Say what rounds say.

    Args:
        rounds: of each round, the CPU seconds of a run of the candidate and of the reference.
        harness: its share in one run.
        runs: runs of each side in a round.
    """
    own = [tuple(max(seconds - harness, _SHORTEST) for seconds in pair) for pair in rounds]
    ratios = [candidate / reference for candidate, reference in own]
    low, high = interval(ratios)
    unit = statistics.median(reference for _, reference in own)
    margin = _SAME + _SAME_SECONDS / unit
    ranking: Ranking = "faster" if high < 1 - margin else "slower" if low > 1 + margin else "undecided"
    shared = rounds[:SHARE_ROUNDS]
    return Timing(
        ranking=ranking,
        rounds=len(rounds),
        runs=runs,
        faster_share=sum(candidate < reference for candidate, reference in shared) / len(shared),
        ratio=statistics.median(ratios),
        low=low,
        high=high,
        candidate_seconds=statistics.median(candidate for candidate, _ in own),
        reference_seconds=unit,
        harness_seconds=harness,
    )


def _alike(timing: Timing) -> bool:
    """Whether the interval says that the programs are alike."""
    assert timing.low is not None and timing.high is not None and timing.reference_seconds is not None
    margin = _ALIKE + _SAME_SECONDS / timing.reference_seconds
    return 1 - margin < timing.low and timing.high < 1 + margin
