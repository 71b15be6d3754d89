"""Tables of what the sandbox holds: conformance by test and back end, and what each cheat earns on each.

    python benchmarks/sandbox_tables.py [--backends docker bubblewrap ...] > docs/sandbox-tables.md

The programs and checks are those of tests/envs/sandbox: the conformance table is a run of its tests, the others judge
and time its cheats anew. As root, with bubblewrap and a container engine's package installed (scripts/setup.sh), all
back ends are there; one that is not is left out of --backends. Takes several minutes.
"""

import argparse
import contextlib
import datetime
import os
import platform
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from corrgrpo_gym.envs.leetcode.rewards import REWARD_NAMES, rewards  # noqa: E402
from corrgrpo_gym.envs.sandbox import CodeJob, Measured, make_sandbox  # noqa: E402
from tests.envs.sandbox import engine, other_user, test_forgery, test_timing_cheats  # noqa: E402

ALL = ("docker", "bubblewrap", "bubblewrap-user", "subprocess")
SUITE = ("test_confinement.py", "test_forgery.py", "test_timing_cheats.py")
KINDS = {
    "a wrong answer that claims to be right": test_forgery.WRONG,
    "ends or breaks its process": test_forgery.CRASH,
    "writes to the judge's stream": {k: test_forgery.STREAM + v for k, v in test_forgery.STREAMS.items()},
}
TIMED = {
    "keeps results for the next repetition": {
        k: v + test_timing_cheats.CACHE for k, v in test_timing_cheats.KEPT.items()
    },
    "works elsewhere": test_timing_cheats.ELSEWHERE,
    "tells the timed run": {
        f"and answers {cheap}": test_timing_cheats.DETECT.format(judged=test_timing_cheats.TIMED_GETS_ALL, cheap=cheap)
        for cheap in ("-1", "None", "1 / 0", "sys.exit(0)")
    },
}


@contextlib.contextmanager
def sandbox(name: str) -> Iterator[Any]:
    with contextlib.ExitStack() as stack:
        if name == "bubblewrap-user":
            yield stack.enter_context(other_user.sandbox())
            return
        if name == "docker":
            stack.enter_context(engine.running())
        yield stack.enter_context(make_sandbox(name, workers=1))


def conformance(backends: list[str]) -> Iterator[str]:
    """A row for each test: passed, a declared gap, or failed."""
    with tempfile.TemporaryDirectory() as folder:
        files = [f"tests/envs/sandbox/{name}" for name in SUITE]
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files, f"--junitxml={folder}/out"]
        subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        cases = list(ElementTree.parse(f"{folder}/out").iter("testcase"))
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for case in cases:
        test, _, parameters = case.attrib["name"].partition("[")
        # The longest name first: one begins with another.
        backend = next((b for b in sorted(ALL, key=len, reverse=True) if re.match(rf"{b}(-|\])", parameters)), None)
        if backend is not None:
            bad, left = case.find("failure") is not None or case.find("error") is not None, case.find("skipped")
            result = "FAILED" if bad else "held" if left is None else "gap" if "declared" in str(left.attrib) else "-"
            found[test][backend].append(result)
    yield f"| | {' | '.join(backends)} |\n|---|{'---|' * len(backends)}"
    for test, by in found.items():
        cells = []
        for backend in backends:
            results = by.get(backend, [])
            worst = next((r for r in ("FAILED", "gap", "-") if r in results), "held" if results else "")
            cells.append(f"{worst} ({len(results)})" if len(results) > 1 else worst)
        yield f"| {test.removeprefix('test_').replace('_', ' ')} | {' | '.join(cells)} |"


def forged(backends: list[str]) -> Iterator[str]:
    """A row for each cheat: its status, and the rewards that are not those of an honest wrong answer or crash."""
    test = "def check(candidate):\n" + "".join(f"    {line}\n" for line in test_forgery.CHECK.strip().splitlines())

    def earned(box: Any, code: str) -> tuple[str, tuple[float, ...]]:
        job = CodeJob("a task", f"```python\n{code}\n```", "", test, "f", memory_bytes=200 << 20)
        verdict = box.judge(job)
        return verdict.status, rewards(verdict, None, Measured(0.01, 0.0))

    table: dict[tuple[str, str], list[str]] = {}
    for backend in backends:
        with sandbox(backend) as box:
            honest = dict(earned(box, code) for code in (test_forgery.WRONG["honest"], "def f(n): return 1 / 0"))
            for kind, cheats in KINDS.items():
                for name, code in cheats.items():
                    status, values = earned(box, code)
                    more = "" if values == honest.get(status) else f" EARNED {values}"
                    table.setdefault((kind, name), []).append(status + more)
    told = "; ".join(
        f"{status}: {', '.join(f'{n} {v:g}' for n, v in zip(REWARD_NAMES, values, strict=True))}"
        for status, values in honest.items()
    )
    yield f"An honest wrong answer is `failed`, an honest crash `runtime_error`. Rewards: {told}.\n"
    yield f"| class | cheat | {' | '.join(backends)} |\n|---|---|{'---|' * len(backends)}"
    for (kind, name), cells in table.items():
        yield f"| {kind} | {name} | {' | '.join(cells)} |"


def stopped(backends: list[str]) -> Iterator[str]:
    """A row for each cheat against the clock: its time beside the honest program's."""
    table: dict[tuple[str, str], list[str]] = {}
    for backend in backends:
        with sandbox(backend) as box:
            for kind, cheats in TIMED.items():
                for name, code in cheats.items():
                    timing = test_timing_cheats.timed(box, code)
                    cell = f"{timing.ratio:.2f}" if timing.ratio else timing.problem.partition(" (")[0]
                    table.setdefault((kind, name), []).append(cell)
    yield f"| class | cheat | {' | '.join(backends)} |\n|---|---|{'---|' * len(backends)}"
    for (kind, name), cells in table.items():
        yield f"| {kind} | {name} | {' | '.join(cells)} |"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backends", nargs="+", choices=ALL, default=list(ALL))
    backends = parser.parse_args().backends
    print("# What the sandbox holds\n\nMade by `python benchmarks/sandbox_tables.py`, not by hand.")
    print(f"{datetime.date.today()}, Linux {platform.release()}, Python {platform.python_version()}, "
          f"{os.cpu_count()} CPUs, load average {os.getloadavg()[0]:.2f}. `bubblewrap` is root's, `bubblewrap-user` "
          "that of a user without rights.")  # fmt: skip
    print("\n## Conformance\n\nA row is a test; in brackets, how many attacks it tries. *gap*: declared as not stopped "
          "(`corrgrpo-gym doctor` says what to do about it).\n", flush=True)  # fmt: skip
    for line in conformance(backends):
        print(line, flush=True)
    print("\n## Cheats on the verdict\n")
    for line in forged(backends):
        print(line, flush=True)
    print("\n## Cheats on the clock\n\nCPU time of the cheat / that of the honest program, median of paired rounds; "
          "one that saved its work would be under 0.1. Words: it was not timed, and has no efficiency.\n")  # fmt: skip
    for line in stopped(backends):
        print(line, flush=True)


if __name__ == "__main__":
    main()
