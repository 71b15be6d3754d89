"""95 % intervals of means and medians over cases that may come in clusters."""

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence
from functools import lru_cache
from statistics import NormalDist

LEVEL = 0.95
_Z = NormalDist().inv_cdf(0.5 + LEVEL / 2)
Interval = tuple[float | None, float | None]


def wilson(p: float, n: float) -> tuple[float, float]:
    """Wilson's score interval of a proportion p in [0, 1] over n (effective) trials, n > 0."""
    z2 = _Z * _Z
    centre = (p + z2 / (2 * n)) / (1 + z2 / n)
    half = _Z / (1 + z2 / n) * math.sqrt(p * (1 - p) / n + z2 / (4 * n * n))
    # At the ends rounding would leave 1e-17 where the interval includes the end itself.
    return (0.0 if p == 0 else max(0.0, centre - half)), (1.0 if p == 1 else min(1.0, centre + half))


def mean_interval(
    values: Sequence[float], clusters: Sequence[Hashable], bounds: tuple[float, float] | None, trials: int | None
) -> Interval:
    """Interval of the mean of one value per case.

    0/1 values without clusters get Wilson's interval. Other values within bounds get Wilson's with an effective number
    of trials: as many as would give a proportion the cluster-robust variance of this mean, less a correction for few
    clusters (Korn and Graubard 1998; Franco et al. 2019). That stays inside the bounds and does not collapse where all
    values are equal: there the clusters count as the trials. Values without bounds get Student's interval with the
    cluster-robust variance, and none where there is one cluster.

    Args:
        values: by case; at least one.
        clusters: the cluster of each.
        bounds: least and greatest possible value; None where there are none.
        trials: how many answers stand behind the values where each is right or wrong: the effective number of trials
            is never larger. None where answers are graded.
    """
    n, groups = len(values), len(set(clusters))
    mean = math.fsum(values) / n
    if bounds is not None and not all(bounds[0] <= v <= bounds[1] for v in values):
        bounds = None
    if bounds is None:
        if groups < 2:
            return None, None
        half = student(groups - 1) * math.sqrt(cluster_variance(values, clusters))
        return mean - half, mean + half
    low, width = bounds[0], bounds[1] - bounds[0]
    scaled = [(v - low) / width for v in values]
    p = min(1.0, max(0.0, (mean - low) / width))
    if trials == n == groups:
        effective = float(n)
    else:
        effective = float(groups)
        variance = cluster_variance(scaled, clusters) if groups > 1 else 0.0
        # Rounding alone may leave a variance of 1e-34.
        if variance > 1e-15 * p * (1 - p) and 0 < p < 1:
            effective = max(1.0, p * (1 - p) / variance * (_Z / student(groups - 1)) ** 2)
            effective = min(effective, trials or math.inf)
    a, b = wilson(p, effective)
    return low + width * a, low + width * b


def cluster_variance(values: Sequence[float], clusters: Sequence[Hashable]) -> float:
    """Variance of the mean where only cases of different clusters are independent; two clusters at least.

    The sandwich estimator of a ratio mean, sum over clusters of (sum of residuals)^2 / n^2, times G / (G - 1).
    """
    mean = math.fsum(values) / len(values)
    residuals: dict[Hashable, float] = defaultdict(float)
    for value, cluster in zip(values, clusters, strict=True):
        residuals[cluster] += value - mean
    groups = len(residuals)
    return groups / (groups - 1) * math.fsum(r * r for r in residuals.values()) / len(values) ** 2


def median_interval(values: Sequence[float], clusters: Sequence[Hashable]) -> Interval:
    """Interval of the median between two order statistics (binomial ranks; for clusters by Woodruff's method).

    (None, None) where there are too few values for any: five or fewer independent ones.
    """
    ranked = sorted(values)
    n, groups = len(ranked), len(set(clusters))
    effective = n
    if groups < n:
        middle = (ranked[(n - 1) // 2] + ranked[n // 2]) / 2
        below = [float(v < middle) + 0.5 * (v == middle) for v in values]
        variance = cluster_variance(below, clusters) if groups > 1 else math.inf
        effective = min(n, math.floor(0.25 / variance)) if variance > 0 else groups
    rank = _binomial_rank(effective)
    if rank is None:
        return None, None
    # The rank-th of `effective` values stands for the same share of all of them.
    index = math.floor((rank - 1) * n / effective)
    return ranked[index], ranked[n - 1 - index]


def _binomial_rank(n: int) -> int | None:
    """Largest r with P(Binomial(n, 1/2) < r) <= 2.5 %: the r-th value from each end bounds the median."""
    tail, rank = 0.0, 0
    log_half = n * math.log(0.5)
    while rank <= n // 2:
        choose = math.lgamma(n + 1) - math.lgamma(rank + 1) - math.lgamma(n - rank + 1)
        tail += math.exp(choose + log_half)
        if tail > (1 - LEVEL) / 2:
            break
        rank += 1
    return rank or None


@lru_cache(maxsize=1024)
def student(df: int) -> float:
    """The 97.5 % quantile of Student's t with df degrees of freedom."""
    if df > 200:
        z = _Z
        # Cornish-Fisher: off by less than 1e-7 here.
        return z + (z**3 + z) / (4 * df) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * df**2)
    low, high = 0.0, 20.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, df) < LEVEL else (low, middle)
    return (low + high) / 2


def _within(t: float, df: int) -> float:
    """P(|T| <= t), by the finite sums of Abramowitz and Stegun 26.7.3 and 26.7.4."""
    angle = math.atan(t / math.sqrt(df))
    cos2, term = math.cos(angle) ** 2, 1.0
    if df % 2:
        term, total = math.cos(angle), 0.0
        for j in range(1, (df - 1) // 2 + 1):
            total += term
            term *= cos2 * (2 * j) / (2 * j + 1)
        return 2 / math.pi * (angle + math.sin(angle) * total)
    total = 0.0
    for j in range(df // 2):
        total += term
        term *= cos2 * (2 * j + 1) / (2 * j + 2)
    return math.sin(angle) * total
