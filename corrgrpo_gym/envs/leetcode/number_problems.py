"""Embedded problems on one number n: a loop up to n against a closed form."""

from collections.abc import Callable
from random import Random

from .kind import Constants, Kind


def _numbers(large: Callable[..., int], *, negative: bool = False) -> Callable[[Constants, Random], list[str]]:
    """Inputs n around 0, around the constants and their sum, a few random ones, and `large(*constants)`."""

    def inputs(constants: Constants, rng: Random) -> list[str]:
        a = constants[0]
        b = constants[-1]
        around = [a - 1, a + 1, a // 2, b, b - 1, a + b, 5 * a + b - 1, a * b]
        small = [1, 0, a, *around, rng.randrange(500, 3000)]
        if negative:
            small += [-1, -a - rng.randrange(100)]
        return [str(n) for n in dict.fromkeys([*small, large(*constants)])]

    return inputs


NUMBER_KINDS: tuple[Kind, ...] = (
    Kind(
        name="multiples-sum",
        tags=("Math",),
        text="Return the sum of all multiples of $a from 1 to n. It is 0 if n is negative.",
        slow="""
            total = 0
            for i in range(1, n + 1):
                if i % $a == 0:
                    total += i
            return total
        """,
        fast="""
            m = max(n, 0) // $a
            return $a * m * (m + 1) // 2
        """,
        admits=lambda a: True,
        inputs=_numbers(lambda a: 150_000 + a, negative=True),
    ),
    Kind(
        name="either-count",
        tags=("Math",),
        text="How many integers from 1 to n are divisible by $a or by $b?",
        slow="""
            count = 0
            for i in range(1, n + 1):
                if i % $a == 0 or i % $b == 0:
                    count += 1
            return count
        """,
        fast="return n // $a + n // $b - n // lcm($a, $b)",
        admits=lambda a, b: a % b != 0 and b % a != 0,
        inputs=_numbers(lambda a, b: 100_000 + a * b),
        arity=2,
    ),
    Kind(
        name="remainder-count",
        tags=("Math",),
        text="How many integers from 0 to n leave remainder $b when divided by $a?",
        slow="""
            count = 0
            for i in range(n + 1):
                if i % $a == $b:
                    count += 1
            return count
        """,
        fast="return (n - $b) // $a + 1",
        admits=lambda a, b: b < a,
        inputs=_numbers(lambda a, b: 150_000 + b),
        arity=2,
    ),
    Kind(
        name="power-mod",
        tags=("Math", "Recursion"),
        text="Return $a to the power n modulo $b.",
        slow="""
            power = 1
            for i in range(n):
                power = power * $a % $b
            return power
        """,
        fast="return pow($a, n, $b)",
        admits=lambda a, b: a != b and a % b > 1,
        inputs=_numbers(lambda a, b: 130_000 + a + b),
        arity=2,
    ),
    Kind(
        name="snail",
        tags=("Math", "Simulation"),
        text="A snail climbs $a meters each day and slips $b meters each night. "
        "On which day does it first reach height n? It is 0 if n is not positive.",
        slow="""
            if n <= 0:
                return 0
            for day in range(1, n + 1):
                if day * $a - (day - 1) * $b >= n:
                    return day
        """,
        fast="""
            if n <= 0:
                return 0
            return max(0, -(($a - n) // ($a - $b))) + 1
        """,
        admits=lambda a, b: b < a,
        inputs=_numbers(lambda a, b: 55_000 * (a - b) + a, negative=True),
        arity=2,
    ),
    Kind(
        name="savings",
        tags=("Math", "Simulation"),
        text="You save $a coins on the first day and $b coins more on each next day. Return the total after n days.",
        slow="""
            total = 0
            coins = $a
            for i in range(n):
                total += coins
                coins += $b
            return total
        """,
        fast="return n * $a + $b * n * (n - 1) // 2",
        admits=lambda a, b: a != b,
        inputs=_numbers(lambda a, b: 85_000 + a - b),
        arity=2,
    ),
    Kind(
        name="countdown",
        tags=("Math", "Simulation"),
        text="Return the sum of n, n - $a, n - 2 * $a and so on while the terms are positive.",
        slow="""
            total = 0
            for x in range(n, 0, -$a):
                total += x
            return total
        """,
        fast="""
            m = max(0, (n + $a - 1) // $a)
            return m * n - $a * m * (m - 1) // 2
        """,
        admits=lambda a: True,
        inputs=_numbers(lambda a: 130_000 * a + a // 2, negative=True),
    ),
    Kind(
        name="range-xor",
        tags=("Math", "Bit Manipulation"),
        text="Return the bitwise xor of all integers from $a to n. It is 0 if n is below $a.",
        slow="""
            total = 0
            for i in range($a, n + 1):
                total ^= i
            return total
        """,
        fast="""
            if n < $a:
                return 0
            f = lambda x: [x, 1, x + 1, 0][x % 4]
            return f(n) ^ f($a - 1)
        """,
        admits=lambda a: True,
        inputs=_numbers(lambda a: 155_000 + a),
    ),
    Kind(
        name="rectangles",
        tags=("Math", "Combinatorics"),
        text="A grid has n rows and $a columns. How many rectangles of whole cells are in it?",
        slow="""
            total = 0
            for i in range(1, n + 1):
                for j in range(1, $a + 1):
                    total += i * j
            return total
        """,
        fast="""
            rows = n * (n + 1) // 2
            return rows * $a * ($a + 1) // 2
        """,
        admits=lambda a: True,
        inputs=lambda c, rng: [
            *("1", "0", "2", "3", "10", str(c[0] + 1)),
            *map(str, (rng.randrange(20, 50), rng.randrange(50, 99), 110_000 // (c[0] + 3))),
        ],
    ),
    Kind(
        name="capped-sum",
        tags=("Math",),
        text="Return the sum of min(i, $a) for i from 1 to n.",
        slow="""
            total = 0
            for i in range(1, n + 1):
                total += min(i, $a)
            return total
        """,
        fast="""
            m = min(n, $a)
            return m * (m + 1) // 2 + (n - m) * $a
        """,
        admits=lambda a: True,
        inputs=_numbers(lambda a: 28_000 + a),
    ),
    Kind(
        name="quotient-sum",
        tags=("Math",),
        text="Return the sum of i // $a for i from 0 to n.",
        slow="""
            total = 0
            for i in range(n + 1):
                total += i // $a
            return total
        """,
        fast="""
            q, r = divmod(n + 1, $a)
            return $a * q * (q - 1) // 2 + q * r
        """,
        admits=lambda a: True,
        inputs=_numbers(lambda a: 90_000 + a),
    ),
)
