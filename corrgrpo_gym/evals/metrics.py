"""Figures with intervals, from scored samples."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


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
        count: samples or cases that it is over.
    """

    value: float | None
    low: float | None
    high: float | None
    count: int


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
    estimate: Callable[[Sequence[Sample]], Estimate]
    percent: bool = True
