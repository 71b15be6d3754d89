"""Figures by hand, and intervals that hold what they promise."""

import math
import random
from itertools import combinations

import pytest

from corrgrpo_gym.evals.intervals import cluster_variance, mean_interval, median_interval, student, wilson
from corrgrpo_gym.evals.metrics import Estimate, Sample, average, mean, median, pass_at, pass_rate


def samples(values, metric="passed", cluster=None, group=""):
    """One case per entry; a list is several samples of a case."""
    out = []
    for i, entry in enumerate(values):
        for v in entry if isinstance(entry, list) else [entry]:
            place = str(i) if cluster is None else cluster[i]
            out.append(Sample(f"{group}{i}", f"{group}{place}", group, {metric: v}))
    return out


def rounded(estimate):
    return tuple(None if v is None else round(v, 4) for v in (estimate.value, estimate.low, estimate.high))


# Published: Newcombe 1998, table I (method 3, no continuity correction), and the textbook 10 of 10.
@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718),
     (10, 10, 0.7225, 1.0), (0, 1, 0.0, 0.7935), (1, 1, 0.2065, 1.0)],
)  # fmt: skip
def test_wilson(successes, n, low, high):
    assert wilson(successes / n, n) == pytest.approx((low, high), abs=5e-5)
    got = mean("passed")(samples([1.0] * successes + [0.0] * (n - successes)))
    assert got == Estimate(pytest.approx(successes / n), pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5), n)


@pytest.mark.parametrize(
    ("df", "t"),
    [(1, 12.7062), (2, 4.3027), (3, 3.1824), (9, 2.2622), (30, 2.0423), (120, 1.9799), (201, 1.9718), (10**6, 1.96)],
)  # fmt: skip
def test_students_quantiles(df, t):
    assert student(df) == pytest.approx(t, abs=6e-5)


def test_pass_at_k_is_the_share_of_draws_with_a_right_one():
    for n, correct in ((5, 2), (6, 0), (4, 4), (10, 1)):
        right = [True] * correct + [False] * (n - correct)
        for k in range(1, n + 1):
            draws = list(combinations(right, k))
            assert pass_rate(correct, n, k) == pytest.approx(sum(map(any, draws)) / len(draws))


def test_pass_at_k_over_cases():
    # 1 of 4, 2 of 4, none of 2 (too few for k = 3): (1 - C(3,3)/C(4,3) = 3/4, and 1).
    data = samples([[1, 0, 0, 0], [1, 1, 0, 0], [0, 0]])
    assert pass_at(3)(data).value == pytest.approx((0.75 + 1.0) / 2) and pass_at(3)(data).count == 2
    assert pass_at(1)(data).value == pytest.approx((0.25 + 0.5 + 0) / 3) and pass_at(1)(data).count == 3
    assert pass_at(1)(data).value == mean("passed")(data).value
    assert pass_at(5)(data) == Estimate(None, None, None, 0)
    with pytest.raises(ValueError, match="1 or more"):
        pass_at(0)


def test_what_is_not_eligible_counts_nowhere():
    data = samples([1.0, None, 0.0, None, 1.0]) + [Sample("x", "x", "", {}), Sample("y", "y", "b", {"passed": 0.0})]
    assert mean("passed", group="")(data).count == 3 and mean("passed")(data).count == 4
    assert mean("passed", group="b")(data).value == 0
    assert mean("passed", where=lambda s: s.case == "0")(data) == Estimate(1.0, pytest.approx(0.2065, abs=1e-4), 1.0, 1)
    assert mean("absent")(data) == median("absent")(data) == Estimate(None, None, None, 0)
    assert mean("passed")([]) == Estimate(None, None, None, 0)


def test_samples_of_a_case_are_averaged_first():
    assert mean("passed")(samples([[1, 1, 1, 1], [0]])).value == 0.5
    assert median("passed")(samples([[1, 3], [5], [9]])).value == 5


def test_intervals_of_extremes():
    for value, (low, high) in ((0.0, (0, 0.2)), (1.0, (0.8, 1))):
        # Ten answers to each of twenty cases, all the same: no surer than twenty independent ones.
        e = mean("passed")(samples([[value] * 10] * 20))
        assert (e.low, e.high) == pytest.approx(wilson(value, 20)) and low <= e.low <= e.high <= high
    one = mean("score")(samples([0.5], "score"))
    assert 0 < one.low < 0.1 < 0.9 < one.high < 1
    equal = mean("score")(samples([0.5] * 3, "score"))
    assert equal.low < 0.2 and equal.high > 0.8
    assert mean("ratio", bounds=None)(samples([1.7], "ratio")) == Estimate(1.7, None, None, 1)


def test_unbounded_values_have_students_interval():
    values = [1.2, 3.4, 2.2, 0.7, 5.0]
    centre = sum(values) / 5
    half = 2.7764 * math.sqrt(sum((v - centre) ** 2 for v in values) / 4 / 5)
    for bounds in (None, (0.0, 1.0)):  # values outside the bounds given have none
        e = mean("ratio", bounds=bounds)(samples(values, "ratio"))
        assert (e.low, e.high) == pytest.approx((centre - half, centre + half), abs=1e-3)


def test_other_bounds():
    e = mean("score", bounds=(-3.0, 3.0))(samples([3.0] * 30, "score"))
    assert e.value == 3 and e.high == 3 and e.low == pytest.approx(-3 + 6 * wilson(1, 30)[0])
    assert rounded(mean("s", bounds=(0.0, 10.0))(samples([0.0, 10.0] * 5, "s"))) == (5.0, 2.3659, 7.6341)


def test_cluster_variance_by_hand():
    # Residuals by cluster: a: .5 + .5 - .5 = .5, b: -.5; variance 2/1 (.25 + .25) / 16.
    assert cluster_variance([1, 1, 0, 0], ["a", "a", "a", "b"]) == pytest.approx(2 * 0.5 / 16)
    # Every value its own cluster: the variance of a mean, s^2 / n.
    assert cluster_variance([1, 2, 6], [0, 1, 2]) == pytest.approx(((-2) ** 2 + 1 + 9) / 2 / 3)


def test_clusters_widen_the_interval():
    values = [1.0] * 40 + [0.0] * 40
    apart = mean("passed")(samples(values))
    together = mean("passed")(samples(values, cluster=[str(i // 8) for i in range(80)]))
    assert together.value == apart.value
    assert together.high - together.low > 2 * (apart.high - apart.low)
    # Clusters that say nothing leave it as it was, but for the correction for few of them.
    mixed = mean("passed")(samples([1.0, 0.0] * 40, cluster=[str(i // 2) for i in range(80)]))
    assert mixed.low <= 0.5 <= mixed.high


def covered(draw, estimate, truth, times=400, seed=0):
    rng = random.Random(seed)
    intervals = [(e.low, e.high) for e in (estimate(draw(rng)) for _ in range(times))]
    return sum(low <= truth <= high for low, high in intervals) / times


def beta_clusters(p, clusters, cases, rho):
    a, b = p * (1 - rho) / rho, (1 - p) * (1 - rho) / rho

    def draw(rng):
        out = []
        for c in range(clusters):
            q = rng.betavariate(a, b)
            out += [Sample(f"{c}.{i}", str(c), "", {"passed": float(rng.random() < q)}) for i in range(cases)]
        return out

    return draw


def test_coverage_with_clusters():
    for p in (0.5, 0.2):
        draw = beta_clusters(p, 30, 8, 0.3)
        assert covered(draw, mean("passed"), p) >= 0.9
        # What an interval that knows no clusters would cover, for scale.
        blind = lambda data: mean("passed")([Sample(s.case, s.case, "", s.values) for s in data])  # noqa: E731
        assert covered(draw, blind, p) < 0.85


def test_coverage_of_several_samples_and_of_graded_answers():
    def several(rng):
        out = []
        for c in range(30):
            q = rng.betavariate(0.5, 1)
            out += [Sample(str(c), str(c), "", {"passed": float(rng.random() < q)}) for _ in range(8)]
        return out

    def graded(rng):
        return samples([rng.betavariate(2, 8) for _ in range(25)], "score")

    for estimate in (mean("passed"), pass_at(1)):
        assert 0.9 <= covered(several, estimate, 1 / 3) <= 0.99
    assert 0.9 <= covered(graded, mean("score"), 0.2) <= 0.99
    assert covered(lambda rng: samples([float(rng.random() < 0.1) for _ in range(50)]), mean("passed"), 0.1) >= 0.93


def test_graded_answers_are_surer_than_right_or_wrong_ones():
    rng = random.Random(1)
    values = [0.5 + 0.05 * (rng.random() - 0.5) for _ in range(50)]
    low, high = mean_interval(values, range(50), (0.0, 1.0), None)
    assert 0 < high - low < 0.02


def test_median_between_order_statistics():
    # n = 10: the 2nd and the 9th (97.9 %); n = 6: the ends (96.9 %); n = 5: none (93.8 % at most).
    assert rounded(median("x")(samples(list(range(1, 11)), "x"))) == (5.5, 2, 9)
    assert rounded(median("x")(samples([3, 1, 2, 6, 5, 4], "x"))) == (3.5, 1, 6)
    assert rounded(median("x")(samples([1, 2, 3, 4, 5], "x"))) == (3, None, None)
    assert covered(lambda rng: samples([rng.gauss(2, 1) for _ in range(25)], "x"), median("x"), 2) >= 0.93

    def in_clusters(rng):
        out = []
        for c in range(40):
            centre = rng.gauss(0, 1)
            out += [Sample(f"{c}.{i}", str(c), "", {"x": centre + rng.gauss(0, 1)}) for i in range(5)]
        return out

    assert covered(in_clusters, median("x"), 0) >= 0.9
    assert median_interval([1.0] * 12, ["a"] * 12) == (None, None)


def test_average_of_disjoint_columns():
    data = samples([1.0] * 8 + [0.0] * 2, group="a") + samples([1.0] * 2 + [0.0] * 8, group="b")
    one, two = mean("passed", group="a"), mean("passed", group="b")
    both = average(one, two)(data)
    a, b = one(data), two(data)
    assert both.value == 0.5 and both.count == 20
    assert both.low == pytest.approx(0.5 - math.hypot(a.value - a.low, b.value - b.low) / 2)
    assert both.high == pytest.approx(0.5 + math.hypot(a.high - a.value, b.high - b.value) / 2)
    # The same cases twice: nothing is gained by averaging.
    assert rounded(average(one, one)(data)) == rounded(a)
    assert rounded(average(one, lambda rows: one(rows))(data)) == rounded(a)
    assert average(one, mean("absent"))(data) == Estimate(None, None, None, 0)

    def levels(rng):
        return [s for g in "abc" for s in samples([float(rng.random() < 0.3) for _ in range(40)], group=g)]

    assert covered(levels, average(*(mean("passed", group=g) for g in "abc")), 0.3) >= 0.93
