"""Embedded problems on a list nums: a loop over all pairs or runs against one pass."""

from collections.abc import Callable
from random import Random

from .kind import Constants, Inputs, Kind


def _lists(
    small: Callable[[int, Random], list[list[int]]], length: int, spread: Callable[[int], int], low: int = 0
) -> Inputs:
    """Inputs nums: hand-made small lists and random ones, then a long list written as a comprehension."""

    def inputs(constants: Constants, rng: Random) -> list[str]:
        k = constants[0]
        out = [str(nums) for nums in [*small(k, rng), [], [k]]]
        for size in (6, 9, 14):
            out.append(str([rng.randrange(low, low + spread(k)) for _ in range(size)]))
        step, start = rng.choice((37, 41, 43, 53, 59)), rng.randrange(100)
        out.append(f"[(i * i + i * {step} + {start}) % {spread(k)} + {low} for i in range({length})]")
        return list(dict.fromkeys(out))

    return inputs


def _long_windows(constants: Constants, rng: Random) -> list[str]:
    """Lists just shorter than, as long as, and longer than the window; some with negative sums only."""
    k = constants[0]
    out = ["[]", "[5]"]
    for size in (k - 1, k, k + 1, k + 7):
        step, start = rng.choice((7, 11, 13, 17)), rng.randrange(20)
        out.append(f"[(i * {step} + {start}) % 23 - 9 for i in range({size})]")
    out.append(f"[-1 - i % 5 for i in range({k + 3})]")
    out.append(f"[i % 9 for i in range({2 * k})]")
    out.append(f"[(i * i + i * {rng.choice((37, 41, 43))}) % 101 - 40 for i in range({110_000 // k + k})]")
    return out


LIST_KINDS: tuple[Kind, ...] = (
    Kind(
        name="pair-sum",
        tags=("Array", "Hash Table"),
        text="How many pairs of positions i < j have nums[i] + nums[j] equal to $a?",
        slow="""
            count = 0
            for i in range(len(nums)):
                for j in range(i):
                    if nums[i] + nums[j] == $a:
                        count += 1
            return count
        """,
        fast="""
            count = 0
            seen = defaultdict(int)
            for x in nums:
                count += seen[$a - x]
                seen[x] += 1
            return count
        """,
        admits=lambda a: True,
        inputs=_lists(
            lambda k, rng: [[0, k], [k // 2, k - k // 2], [k, 0, 0, k], [k + 1, -1, k - 1, 1, 1], [1, k]],
            length=590,
            spread=lambda k: k + 3,
        ),
        argument="nums: List[int]",
    ),
    Kind(
        name="pair-gap",
        tags=("Array", "Hash Table"),
        text="How many pairs of positions i < j have nums[i] and nums[j] exactly $a apart?",
        slow="""
            count = 0
            for i in range(len(nums)):
                for j in range(i):
                    if abs(nums[i] - nums[j]) == $a:
                        count += 1
            return count
        """,
        fast="""
            count = 0
            seen = defaultdict(int)
            for x in nums:
                count += seen[x - $a] + seen[x + $a]
                seen[x] += 1
            return count
        """,
        admits=lambda a: True,
        inputs=_lists(
            lambda k, rng: [[0, k], [k, 0], [1, 1, k + 1, k], [-k, 0, k, 2 * k], [3, k + 3, 3, k + 3]],
            length=490,
            spread=lambda k: 2 * k + 3,
        ),
        argument="nums: List[int]",
    ),
    Kind(
        name="pair-divisible",
        tags=("Array", "Hash Table", "Math"),
        text="How many pairs of positions i < j have a sum nums[i] + nums[j] divisible by $a?",
        slow="""
            count = 0
            for i in range(len(nums)):
                for j in range(i):
                    if (nums[i] + nums[j]) % $a == 0:
                        count += 1
            return count
        """,
        fast="""
            count = 0
            seen = defaultdict(int)
            for x in nums:
                count += seen[-x % $a]
                seen[x % $a] += 1
            return count
        """,
        admits=lambda a: True,
        inputs=_lists(
            lambda k, rng: [[0, k], [1, k - 1], [k + 1, 2 * k - 1, -1, 1], [0, 0, 0], [-k, k, 1, 2]],
            length=480,
            spread=lambda k: 2 * k + 5,
            low=-3,
        ),
        argument="nums: List[int]",
    ),
    Kind(
        name="near-duplicate",
        tags=("Array", "Hash Table"),
        text="How many positions i have the same number at an earlier position at most $a steps before?",
        slow="""
            count = 0
            for i in range(len(nums)):
                for j in range(i):
                    if nums[i] == nums[j] and i - j <= $a:
                        count += 1
                        break
            return count
        """,
        fast="""
            count = 0
            last = {}
            for i, x in enumerate(nums):
                if x in last and i - last[x] <= $a:
                    count += 1
                last[x] = i
            return count
        """,
        admits=lambda a: True,
        inputs=lambda c, rng: [
            "[]",
            "[1, 1]",
            "[3, 4, 3, 4, 4]",
            f"list(range({c[0]})) * 2",
            f"list(range({c[0] + 1})) * 2",
            f"list(range({c[0] - 1})) * 3",
            "[2] * 5",
            f"[i % {c[0] + 2} for i in range({c[0] * 2})] + [7, 7]",
            f"[i * {rng.choice((37, 41, 43))} % 977 for i in range(600)] + [0, 0]",
        ],
        argument="nums: List[int]",
    ),
    Kind(
        name="trade-fee",
        tags=("Array", "Greedy"),
        text="nums holds the price of each day. Buy on one day, sell on a later day and pay a fee of $a. "
        "Return the best profit, at least 0.",
        slow="""
            best = 0
            for i in range(len(nums)):
                for j in range(i):
                    best = max(best, nums[i] - nums[j] - $a)
            return best
        """,
        fast="""
            best = 0
            low = inf
            for x in nums:
                best = max(best, x - low - $a)
                low = min(low, x)
            return best
        """,
        admits=lambda a: True,
        inputs=_lists(
            lambda k, rng: [[1, k + 2], [k + 9, 4], [5, 1, k + 9, 0], [2, 2 * k + 7, 1, 2 * k + 3], [0, k]],
            length=260,
            spread=lambda k: 3 * k + 5,
            low=1,
        ),
        argument="nums: List[int]",
    ),
    Kind(
        name="run-sum",
        tags=("Array", "Hash Table", "Prefix Sum"),
        text="How many runs of consecutive numbers in nums sum to $a?",
        slow="""
            count = 0
            for i in range(len(nums)):
                total = 0
                for x in nums[i:]:
                    total += x
                    if total == $a:
                        count += 1
            return count
        """,
        fast="""
            count = total = 0
            seen = defaultdict(int, {0: 1})
            for x in nums:
                total += x
                count += seen[total - $a]
                seen[total] += 1
            return count
        """,
        admits=lambda a: True,
        inputs=_lists(
            lambda k, rng: [[k, 0], [1, k - 1, 1], [k, -k, k], [0, 0, k, 0], [k + 1, -1, 2, k - 1]],
            length=600,
            spread=lambda k: k + 1 + k // 2,
            low=-1,
        ),
        argument="nums: List[int]",
    ),
    Kind(
        name="window-sum",
        tags=("Array", "Sliding Window"),
        text="Return the largest sum of $a consecutive numbers in nums. It is 0 if nums has fewer than $a numbers.",
        slow="""
            if len(nums) < $a:
                return 0
            best = -inf
            for i in range(len(nums) - $a + 1):
                total = 0
                for j in range(i, i + $a):
                    total += nums[j]
                best = max(best, total)
            return best
        """,
        fast="""
            if len(nums) < $a:
                return 0
            best = total = sum(nums[:$a])
            for i in range($a, len(nums)):
                total += nums[i] - nums[i - $a]
                best = max(best, total)
            return best
        """,
        admits=lambda a: a >= 50,
        inputs=_long_windows,
        argument="nums: List[int]",
    ),
)
