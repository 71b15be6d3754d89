"""Verdicts per second, beside a fresh `python -I` for each program on the same work in the same run.

    python benchmarks/bench_sandbox.py [--data PATH] [--quick] [--backends bubblewrap docker subprocess]

The work: right programs (the reference solutions of LeetCodeDataset's test split where --data has it, else the
package's own problems), one to a problem as in an evaluation, and in groups of 8 to a problem as in training; wrong and
hostile ones against the same tests; and a few slow ones, which run into their limit of a second of CPU time in any way
of running them. `python -I` runs a program with its test in one process, as reference implementations do, with the same
limits; it believes what that process says. So the hostile programs here crash, exit or flood, but do not forge: those
that do are in tests/envs/sandbox/test_forgery.py.

All ways run the same programs, as many at once, in turns of a few dozen programs, so that what else the machine does
falls on all of them; CPU time, of all processes but a container's, is told as well, and what right programs need
where nothing but compiling and running them is done: no way can take less. References that need more than
--longest seconds of CPU time are left out: what they take is their own time, whoever runs them.
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from corrgrpo_gym.envs.leetcode.data import load_problems
from corrgrpo_gym.envs.leetcode.problem import Problem
from corrgrpo_gym.envs.sandbox import CodeJob, SandboxUnavailable, make_sandbox

FOLDER = "leetcodedataset"
CPU_SECONDS, SLOW_CPU_SECONDS, MEMORY_BYTES = 15, 1, 1 << 30
TURN = 48
SLOW_PROGRAMS = 8
GROUP, GROUP_EVERY = 8, 4

# After a right solution, whose method they replace: {name} is the method's.
WRONG = {
    "wrong value": "Solution.{name} = lambda self, *a, **k: (-7, 'no')",
    "nothing": "Solution.{name} = lambda self, *a, **k: None",
    "exception": "Solution.{name} = lambda self, *a, **k: 1 / 0",
    "does not parse": "Solution.{name} = = 1",
    "missing method": "del Solution.{name}",
}
HOSTILE = {
    "sys.exit(0)": "import sys\nSolution.{name} = lambda self, *a, **k: sys.exit(0)",
    "os._exit(0)": "import os\nSolution.{name} = lambda self, *a, **k: os._exit(0)",
    "recursion": "def f(self, *a, **k): return f(self, *a, **k)\nSolution.{name} = f",
    "memory": "Solution.{name} = lambda self, *a, **k: bytearray(1 << 34)",
    "output": "def f(self, *a, **k):\n    for _ in range(200): print('x' * 10000)\n    return -7\nSolution.{name} = f",
    "abort": "import os\nSolution.{name} = lambda self, *a, **k: os.abort()",
}
SLOW = {
    "endless loop": "def f(self, *a, **k):\n    while True: pass\nSolution.{name} = f",
    "a loop in C": "def f(self, *a, **k): return sum(range(1 << 40))\nSolution.{name} = f",
}

ALONE = """
import resource as _resource, sys as _sys
_resource.setrlimit(_resource.RLIMIT_CPU, ({cpu}, {cpu}))
_resource.setrlimit(_resource.RLIMIT_AS, ({memory}, {memory}))
_resource.setrlimit(_resource.RLIMIT_CORE, (0, 0))
def _end(status):
    _sys.__stdout__.write("\\n" + status)
    _sys.__stdout__.flush()
    _sys.exit(0)
try:
    exec(compile({program!r}, "<program>", "exec"), globals())
except SyntaxError:
    _end("syntax_error")
except BaseException:
    _end("runtime_error")
try:
    check({entry_point})
except AssertionError:
    _end("failed")
except BaseException:
    _end("runtime_error")
_end("passed")
"""


def alone(job: CodeJob, folder: Path) -> str:
    """The status that a fresh interpreter says of itself."""
    program = "\n".join((job.prelude, job.answer.removeprefix("```python\n").removesuffix("\n```"), job.test))
    descriptor, path = tempfile.mkstemp(suffix=".py", dir=folder)
    with open(descriptor, "w") as file:
        cpu, memory = int(job.cpu_seconds), job.memory_bytes
        file.write(ALONE.format(program=program, entry_point=job.entry_point, cpu=cpu, memory=memory))
    done = subprocess.run(
        [sys.executable, "-I", path], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    os.unlink(path)
    if done.returncode < 0 and done.returncode in (-9, -24):  # SIGKILL, SIGXCPU
        return "timeout"
    status = done.stdout.rpartition(b"\n")[2].decode(errors="replace")
    return status if done.returncode == 0 and status in STATUSES else "runtime_error"


# One warm interpreter for all programs: what each takes whoever runs it, compiled and run with its test.
WARM = """
import json, sys, time
jobs = json.load(sys.stdin)
def run(prelude, code, test, entry_point):
    space = {"__name__": "program"}
    exec(compile(prelude + "\\n" + code + "\\n" + test, "<program>", "exec"), space)
    exec("check(" + entry_point + ")", space)
for job in jobs[:5]:
    run(*job)
began = time.process_time()
for job in jobs:
    run(*job)
print(time.process_time() - began)
"""


def own_seconds(jobs: list[CodeJob]) -> float:
    """CPU seconds that right programs take in a warm interpreter."""
    texts = [
        (job.prelude, job.answer.removeprefix("```python\n").removesuffix("\n```"), job.test, job.entry_point)
        for job in jobs
    ]
    command = [sys.executable, "-I", "-c", WARM]
    return float(subprocess.run(command, input=json.dumps(texts), capture_output=True, text=True, check=True).stdout)


STATUSES = ("syntax_error", "runtime_error", "failed", "passed")


def job(problem: Problem, code: str, cpu_seconds: float = CPU_SECONDS) -> CodeJob:
    return CodeJob(
        problem.task_id, f"```python\n{code}\n```", problem.prelude, problem.test, problem.entry_point,
        cpu_seconds=cpu_seconds, wall_seconds=30 + 6 * cpu_seconds, memory_bytes=MEMORY_BYTES,
    )  # fmt: skip


def bad(problems: list[Problem], kinds: dict[str, str], cpu_seconds: float) -> list[tuple[str, CodeJob]]:
    """A bad program for each problem, with its kind, in turn."""
    jobs = []
    for problem, (kind, text) in zip(problems, itertools.cycle(kinds.items()), strict=False):
        code = problem.completion + "\n" + text.format(name=problem.entry_point.rpartition(".")[2]) + "\n"
        jobs.append((kind, job(problem, code, cpu_seconds)))
    return jobs


_looking = 0.0  # CPU seconds that looking took


def cpu_seconds() -> float:
    """CPU time of this process, of those below it, and of those that they have waited for."""
    global _looking
    began = time.process_time()
    parents, used = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(path.parent.name)] = int(fields[1])
        used[int(path.parent.name)] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    found = {os.getpid()}
    while below := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= below
    total = sum(used.get(pid, 0.0) for pid in found) - _looking
    _looking += time.process_time() - began
    return total


def take_turns(
    ways: dict[str, Callable[[CodeJob], str]], jobs: list[CodeJob], workers: int
) -> tuple[dict[str, tuple[float, float]], dict[str, list[str]]]:
    """Seconds (wall, CPU) and statuses of each way."""
    seconds = dict.fromkeys(ways, (0.0, 0.0))
    statuses: dict[str, list[str]] = {way: [] for way in ways}
    order = list(ways)
    with ThreadPoolExecutor(workers) as pool:
        for start in range(0, len(jobs), TURN):
            for way in order:
                wall, cpu = time.perf_counter(), cpu_seconds()
                statuses[way] += pool.map(ways[way], jobs[start : start + TURN])
                before = seconds[way]
                seconds[way] = before[0] + time.perf_counter() - wall, before[1] + cpu_seconds() - cpu
            order.reverse()
    return seconds, statuses


def report(
    title: str, work: list[tuple[str, CodeJob]], seconds: dict[str, tuple[float, float]], statuses: dict[str, list[str]]
) -> None:
    """Print one table."""
    told = statuses["python -I"]
    if set(told) == {"passed"}:
        own = own_seconds([each for _, each in work]) / len(work)
        title += f" ({1e3 * own:.1f} ms of CPU each in one warm interpreter)"
    found = ", ".join(f"{n} {status}" for status, n in Counter(told).most_common())
    print(f"\n{title}: {len(work)} programs; alone: {found}")
    for way, own in statuses.items():
        differs = [i for i, status in enumerate(own) if status != told[i]]
        same = f"{len(differs)} results differ" if differs else "results identical"
        wall, cpu = seconds[way]
        times, less = (alone / own for alone, own in zip(seconds["python -I"], seconds[way], strict=True))
        cost = f"{1e3 * cpu / len(work):8.1f} ms of CPU each  1/{less:5.2f}" if way != "docker" else " " * 34
        print(f"  {way:12} {len(work) / wall:8.1f} verdicts/s  {times:6.2f} x  {cost}  {same}")
        for i in differs:
            print(f"     {work[i][0]} on {work[i][1].name}: {own[i]}, alone {told[i]}")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", help="LeetCodeDataset's file or folder, or a folder of data sets")
    parser.add_argument("--backends", nargs="+", default=["bubblewrap", "docker", "subprocess"])
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="programs at once, of every way")
    parser.add_argument("--longest", type=float, default=0.25, help="CPU seconds of the longest reference to take")
    parser.add_argument("--quick", action="store_true", help="a sixth of the problems")
    args = parser.parse_args()
    inside = Path(args.data or ".").expanduser() / FOLDER
    loaded = load_problems((inside if inside.is_dir() else args.data) or "embedded", "test")
    problems = loaded.problems[:: 6 if args.quick else 1]
    print(loaded.note)
    print(f"{os.cpu_count()} CPUs, {args.workers} programs at once, Python {sys.version.split()[0]}")
    print(f"load average {os.getloadavg()[0]:.2f} at the beginning")
    ways: dict[str, Callable[[CodeJob], str]] = {}
    sandboxes = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            for name in args.backends:
                try:
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        sandbox = make_sandbox(name, workers=args.workers)
                except SandboxUnavailable as error:
                    print(f"{name}: not usable here: {str(error).splitlines()[0]}")
                    continue
                sandboxes.append(sandbox)
                ways[name] = lambda work, sandbox=sandbox: sandbox.judge(work).status
            if not ways:
                raise SystemExit("no back end is usable")
            # All workers started and warm, and the longest programs known.
            first = sandboxes[0]
            with ThreadPoolExecutor(args.workers) as pool:
                for sandbox in sandboxes:
                    list(pool.map(sandbox.judge, [job(problems[0], problems[0].completion)] * 4 * args.workers))
                trial = list(pool.map(lambda p: first.judge(job(p, p.completion, args.longest)), problems))
            short = [p for p, verdict in zip(problems, trial, strict=True) if verdict.status != "timeout"]
            print(f"{len(problems) - len(short)} problems left out, whose references take over {args.longest:g} s")
            ways["python -I"] = lambda work: alone(work, Path(folder))
            works = {
                "references": [("reference", job(p, p.completion)) for p in short],
                f"references in groups of {GROUP}": [
                    ("reference", job(p, f"{p.completion}\n# {i}\n"))
                    for p in short[::GROUP_EVERY]
                    for i in range(GROUP)
                ],
                "wrong and hostile": bad(short, WRONG | HOSTILE, CPU_SECONDS),
                "slow": bad(short[:SLOW_PROGRAMS], SLOW, SLOW_CPU_SECONDS),
            }
            for title, work in works.items():
                seconds, statuses = take_turns(ways, [each for _, each in work], args.workers)
                report(title, work, seconds, statuses)
            print(f"\nload average {os.getloadavg()[0]:.2f} at the end")
        finally:
            for sandbox in sandboxes:
                sandbox.close()


if __name__ == "__main__":
    main()
