"""Figures with intervals, from scored samples."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median as middle
from typing import TypeAlias

from .intervals import Interval, mean_interval, median_interval


@dataclass(frozen=True, slots=True)
class Sample:
    """What columns are computed from: the values of one scored sample, and where it belongs.

    Attributes:
        case: id of its case.
        cluster: cases of one cluster are not independent; the case's id where it has none.
        group: the case's part of the benchmark.
        values: by metric; None where it is not eligible.
    """

    case: str
    cluster: str
    group: str
    values: Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure.

    Attributes:
        value: None where nothing is eligible.
        low, high: ends of the 95 % interval; None where there is none.
        count: cases that it is over.
    """

    value: float | None
    low: float | None
    high: float | None
    count: int


Estimator: TypeAlias = Callable[[Sequence[Sample]], Estimate]
Where: TypeAlias = Callable[[Sample], bool]
Bounds: TypeAlias = tuple[float, float]
NOTHING = Estimate(None, None, None, 0)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a benchmark's table.

    Attributes:
        name: as in the paper's tables where it is there.
        meaning: one line.
        estimate: from the scored samples.
        percent: shown times 100, with a percent sign in the head.
    """

    name: str
    meaning: str
    estimate: Estimator
    percent: bool = True


def mean(
    metric: str,
    *,
    group: str | None = None,
    where: Where | None = None,
    bounds: tuple[float, float] | None = (0.0, 1.0),
) -> Estimator:
    """Mean over cases of a metric; several samples of a case are averaged first.

    The interval is Wilson's for one 0/1 value per independent case, else cluster-aware: see `intervals.mean_interval`.

    Args:
        metric: name in `Score.values`; samples in which it is None or missing are not eligible.
        group: only cases of this part of the benchmark.
        where: only samples for which this is true.
        bounds: least and greatest possible value; None where there are none (ratios, lengths).
    """
    return _PerCase(metric, group, where, bounds=bounds)


def pass_at(k: int, metric: str = "passed", *, group: str | None = None, where: Where | None = None) -> Estimator:
    """pass@k: mean over cases of the unbiased 1 - prod_{i=n-c+1..n} (1 - k/i) (Chen et al. 2021).

    Args:
        k: samples that may be drawn; cases with fewer scored samples than that are left out, as the count shows.
        metric: 1 where the sample passed, 0 where it did not.
        group: only cases of this part of the benchmark.
        where: only samples for which this is true.
    """
    if k < 1:
        raise ValueError(f"pass@k needs k of 1 or more, not {k}")
    return _PerCase(metric, group, where, k=k)


def median(metric: str, *, group: str | None = None, where: Where | None = None) -> Estimator:
    """Median over cases of a metric (samples of a case averaged first), between two order statistics."""
    return _PerCase(metric, group, where, middle=True)


def average(*estimators: Estimator) -> Estimator:
    """Unweighted mean of several figures; nothing where one of them has nothing.

    The interval joins theirs by the square root of the sum of squares of their arms (MOVER: Zou and Donner 2008) where
    no two share a cluster, and by the plain mean of the arms, which holds for any dependence, elsewhere.
    """
    return _Average(estimators)


def pass_rate(correct: int, samples: int, k: int) -> float:
    """The unbiased estimate of pass@k of one case: `correct` of `samples` passed, samples >= k."""
    return 1.0 - math.prod(1.0 - k / i for i in range(samples - correct + 1, samples + 1))


@dataclass(frozen=True, slots=True)
class _PerCase:
    """One value per case, then their mean or median."""

    metric: str
    group: str | None
    where: Where | None
    bounds: Bounds | None = (0.0, 1.0)
    k: int = 0
    middle: bool = False

    def select(self, samples: Sequence[Sample]) -> list[Sample]:
        """The samples that are eligible."""
        return [
            s
            for s in samples
            if (self.group is None or s.group == self.group)
            and s.values.get(self.metric) is not None
            and (self.where is None or self.where(s))
        ]

    def __call__(self, samples: Sequence[Sample]) -> Estimate:
        by_case: dict[str, tuple[str, list[float]]] = {}
        for s in self.select(samples):
            value = s.values[self.metric]
            assert value is not None
            by_case.setdefault(s.case, (s.cluster, []))[1].append(float(value))
        if self.k:
            by_case = {case: row for case, row in by_case.items() if len(row[1]) >= self.k}
        if not by_case:
            return NOTHING
        clusters = [cluster for cluster, _ in by_case.values()]
        if self.k:
            values = [pass_rate(sum(v > 0.5 for v in vs), len(vs), self.k) for _, vs in by_case.values()]
        else:
            values = [math.fsum(vs) / len(vs) for _, vs in by_case.values()]
        interval: Interval
        if self.middle:
            value, interval = middle(values), median_interval(values, clusters)
        else:
            value = math.fsum(values) / len(values)
            answers = [v for _, vs in by_case.values() for v in vs]
            trials = len(answers) if all(v in (self.bounds or ()) for v in answers) else None
            interval = mean_interval(values, clusters, self.bounds, trials)
        return Estimate(value, *interval, len(values))


@dataclass(frozen=True, slots=True)
class _Average:
    estimators: tuple[Estimator, ...]

    def select(self, samples: Sequence[Sample]) -> list[Sample]:
        """The samples that are eligible for any of them."""
        return [s for e in self.estimators for s in _selected(e, samples)]

    def __call__(self, samples: Sequence[Sample]) -> Estimate:
        parts = [estimate(samples) for estimate in self.estimators]
        values = [p.value for p in parts if p.value is not None]
        if not parts or len(values) < len(parts):
            return NOTHING
        value = math.fsum(values) / len(values)
        count = sum(p.count for p in parts)
        down = [v - p.low for v, p in zip(values, parts, strict=True) if p.low is not None]
        up = [p.high - v for v, p in zip(values, parts, strict=True) if p.high is not None]
        if len(down) < len(parts) or len(up) < len(parts):
            return Estimate(value, None, None, count)
        clusters = [{s.cluster for s in _selected(e, samples)} for e in self.estimators]
        apart = sum(map(len, clusters)) == len(set().union(*clusters))
        join = math.hypot if apart else lambda *arms: math.fsum(arms)
        return Estimate(value, value - join(*down) / len(parts), value + join(*up) / len(parts), count)


def _selected(estimator: Estimator, samples: Sequence[Sample]) -> Sequence[Sample]:
    """The samples behind a figure; all of them where it does not say."""
    select = getattr(estimator, "select", None)
    return samples if select is None else select(samples)
