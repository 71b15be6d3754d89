"""How often each way of timing ranks two programs right, idle and with every core busy.

    python benchmarks/bench_timing.py [--quick] [--trials 20] [--bases 0.002 0.02 0.2] [--ratios 1.0 1.02 1.05 1.1 1.3]

Pairs of programs do the same work, one a known number of times as much of it (by loop counts), under names and
constants of their own. Two estimators see the same pairs:

- ours: `Sandbox.compare`. It may leave a pair undecided; "right" and "wrong" are what it claims, and "median" is how
  often its estimate alone, claimed or not, lies on the right side of 1;
- one run each: a fresh `python -I` for each program, timed once by the wall clock, as reference implementations do.

At a ratio of 1.00 there is no right claim, and every one counts as wrong. Load is made by one endless loop per core.
"""

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from corrgrpo_gym.envs.sandbox import CodeJob, Sandbox, make_sandbox

WARM_UP_SECONDS = 2.0
PROGRAM = """
class Solution:
    def {method}(self, {n}):
        {total} = {start}
        for {i} in range({count}):
            {total} = ({total} + {i} * {i}) % {modulus}
        return {n} + 1
"""
ALONE = """
import time
began = time.perf_counter()
check(Solution().{method})
print(time.perf_counter() - began)
"""
TEST = "def check(candidate):\n    assert candidate(1) == 2\n"


def program(count: int, chance: random.Random) -> str:
    """A program that goes through its loop so many times, with names and constants drawn at random."""
    names = chance.sample(["a", "total", "result", "value", "x", "index", "k", "number", "acc", "left", "right"], 3)
    words = dict(zip(("n", "total", "i"), names, strict=True))
    return PROGRAM.format(
        method="solve", count=count, start=chance.randrange(100), modulus=chance.randrange(9000, 9999), **words
    )


def seconds_per_turn() -> float:
    """CPU seconds of one turn of the loop, roughly."""
    scope: dict = {}
    exec(program(200_000, random.Random(0)), scope)
    solve = scope["Solution"]().solve
    times = []
    for _ in range(5):
        began = time.process_time()
        solve(1)
        times.append(time.process_time() - began)
    return min(times) / 200_000


def run_once(code: str, folder: Path) -> float:
    """Seconds by the wall clock of one run in a fresh interpreter, without its start."""
    path = folder / "program.py"
    path.write_text(code + TEST + ALONE.format(method="solve"))
    return float(subprocess.run([sys.executable, "-I", str(path)], capture_output=True, text=True, check=True).stdout)


def job(code: str) -> CodeJob:
    return CodeJob("a pair", f"```python\n{code}\n```", "", TEST, "Solution().solve", cpu_seconds=60, wall_seconds=600)


@contextmanager
def busy(on: bool) -> Iterator[None]:
    """Keep every core busy."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1) if on]
    try:
        time.sleep(WARM_UP_SECONDS if on else 0)
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def cell(sandbox: Sandbox, ratio: float, count: int, trials: int, chance: random.Random, folder: Path) -> list[float]:
    """Shares of right, wrong and undecided claims, of right medians, of right single runs; rounds; error; seconds."""
    right = wrong = medians = singles = 0
    rounds, errors, taken = [], [], []
    for _ in range(trials):
        more, less = program(round(count * ratio), chance), program(count, chance)
        slower = chance.random() < 0.5  # whether the candidate is the one with more work
        candidate, reference = (more, less) if slower else (less, more)
        began = time.perf_counter()
        timing = sandbox.compare(job(candidate), f"```python\n{reference}\n```")
        taken.append(time.perf_counter() - began)
        if timing.problem:
            raise SystemExit(timing.problem)
        truth = ratio if slower else 1 / ratio
        first, second = run_once(candidate, folder), run_once(reference, folder)
        claim = timing.ranking
        if ratio > 1.0:
            right += claim == ("slower" if slower else "faster")
            medians += (timing.ratio > 1) == slower
            singles += (first > second) == slower
        wrong += claim != "undecided" and (ratio == 1.0 or claim != ("slower" if slower else "faster"))
        rounds.append(timing.rounds)
        errors.append(abs(timing.ratio / truth - 1))
    shares = [n / trials for n in (right, wrong, trials - right - wrong, medians, singles)]
    return [*shares, statistics.mean(rounds), statistics.median(errors), statistics.mean(taken)]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=20, help="pairs of each ratio and duration")
    parser.add_argument("--bases", type=float, nargs="+", default=[0.002, 0.02, 0.2], help="CPU seconds of the shorter")
    parser.add_argument("--ratios", type=float, nargs="+", default=[1.0, 1.02, 1.05, 1.1, 1.3])
    parser.add_argument("--loads", nargs="+", choices=("idle", "busy"), default=["idle", "busy"])
    parser.add_argument("--backend", default="bubblewrap")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="5 pairs, the two shorter durations")
    args = parser.parse_args()
    if args.quick:
        args.trials, args.bases = 5, args.bases[:2]
    turn = seconds_per_turn()
    print(f"{os.cpu_count()} CPUs, {sys.platform}, Python {sys.version.split()[0]}, {args.backend}")
    print(f"{args.trials} pairs a row. ours: claims of Sandbox.compare; one run: a fresh python -I each, wall clock")
    print(f"{'':6} {'ratio':>5} {'own ms':>7} | {'right':>6} {'wrong':>6} {'undec.':>6} {'median':>6} {'rounds':>6} "
          f"{'error':>6} {'s each':>6} | {'one run right':>13}")  # fmt: skip
    totals: dict[tuple[str, float], list[tuple[float, ...]]] = {}
    with make_sandbox(args.backend, workers=1) as sandbox, tempfile.TemporaryDirectory() as folder:
        for load in args.loads:
            with busy(load == "busy"):
                began = os.getloadavg()[0]
                for ratio in args.ratios:
                    for base in args.bases:
                        chance = random.Random(f"{args.seed}/{load}/{ratio}/{base}")
                        row = cell(sandbox, ratio, round(base / turn), args.trials, chance, Path(folder))
                        right, wrong, open_, medians, singles, rounds, error, taken = row
                        totals.setdefault((load, ratio), []).append((right, wrong, open_, medians, singles))
                        shown = [f"{x:6.1%}" if ratio > 1 else f"{'-':>6}" for x in (right, medians)]
                        single = f"{singles:13.1%}" if ratio > 1 else f"{'always claims':>13}"
                        print(f"{load:6} {ratio:5.2f} {base * 1e3:7.1f} | {shown[0]} {wrong:6.1%} {open_:6.1%} "
                              f"{shown[1]} {rounds:6.1f} {error:6.2%} {taken:6.1f} | {single}", flush=True)  # fmt: skip
                print(f"{load:6} load average {began:.2f} before, {os.getloadavg()[0]:.2f} after", flush=True)
    print("\nall durations together")
    for (load, ratio), rows in totals.items():
        right, wrong, open_, medians, singles = (statistics.mean(column) for column in zip(*rows, strict=True))
        n = args.trials * len(rows)
        print(f"{load:6} {ratio:5.2f}: ours right {right:.1%}, wrong {wrong:.1%}, undecided {open_:.1%}, median right "
              f"{medians:.1%}; one run right {singles:.1%} (n = {n})" if ratio > 1 else
              f"{load:6} {ratio:5.2f}: ours claims an order in {wrong:.1%}; one run always (n = {n})")  # fmt: skip


if __name__ == "__main__":
    main()
