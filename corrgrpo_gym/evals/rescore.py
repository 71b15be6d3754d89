"""Scores anew from saved replies, without asking anybody."""

import json
import os
import signal
import traceback
from collections.abc import Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rich.console import Console

from ..configuration import flat, merge
from ..errors import GymError, NotScored
from ..run_files import append_records, plain
from .benchmark import Benchmark, Case
from .config import resolve
from .models.plain import reply_of
from .records import (
    CONFIG,
    FACTS,
    SCORES,
    SUMMARY,
    EvalFolder,
    EvalRecord,
    cannot_write,
    not_scored_record,
    sample_of,
    score_record,
)
from .runner import sample_of_case
from .screen import EvalScreen, print_summary
from .session import EvalOutcome, check_same, command_name, ids_of, make_benchmark, saved_config
from .summary import summarise

NEW = SCORES + ".new"


def rescore(run: Path, options: Mapping[str, Any] | None = None, console: Console | None = None) -> EvalOutcome:
    """Score an evaluation's saved replies anew; the old scores stay until all new ones are there.

    Args:
        run: the run folder.
        options: options of the benchmark in the place of the run's own.
        console: where to print.

    Raises:
        GymError: it is no evaluation, another process is at it, or the benchmark cannot be made.
    """
    if not (run / CONFIG).is_file():
        raise GymError(f"cannot score {run} anew: it is not a run folder (no {CONFIG})")
    saved = saved_config(run)
    check_same(run, resolve(saved))
    config = resolve(merge(saved, {"options": dict(options or {})}))
    benchmark = make_benchmark(config)
    screen = EvalScreen(benchmark, config, console)
    folder = None
    try:
        names = ids_of(benchmark)
        folder = EvalFolder(run)
        facts = folder.facts()
        screen.row("benchmark", f"{benchmark.name}: {len(names)} cases")
        screen.row("run", str(run))
        settings = json.loads(json.dumps(dict(benchmark.settings)))
        was, now = flat(facts.get("scored", facts["benchmark"])), flat(settings)
        for key in sorted(k for k in was | now if was.get(k) != now.get(k)):
            screen.note(f"{key} was {was.get(key)!r}, now {now.get(key)!r}")
        with _terminated():
            _score_all(folder, benchmark, names, screen, config.scorers or 2 * (os.cpu_count() or 1))
        folder.write(FACTS, json.dumps({**facts, "scored": settings}, indent=2) + "\n")
        names = names[: config.limit or None]
        summary = summarise(folder, benchmark, config, names)
        if summary["answered"] + sum(summary["failed"].values()) == summary["samples"]:
            folder.write(SUMMARY, json.dumps(summary, indent=2) + "\n")
        else:
            screen.note("the evaluation is not finished: these are the figures of what there is")
        print_summary(screen.console, run, summary, (), command_name())
        return EvalOutcome(run, True, summary)
    except KeyboardInterrupt:
        screen.console.print("Interrupted: the scores are as they were.")
        return EvalOutcome(run, False, None)
    finally:
        screen.end()
        if folder is not None:
            with suppress(OSError):
                (run / NEW).unlink(missing_ok=True)
            folder.close()
        benchmark.close()


def _score_all(folder: EvalFolder, benchmark: Benchmark, names: list[str], screen: EvalScreen, threads: int) -> None:
    place = {name: i for i, name in enumerate(names)}
    answered = len(folder.replied) - len(folder.failed)
    temporary = folder.path / NEW
    temporary.unlink(missing_ok=True)
    screen.begin(answered, 0, {})
    pool = ThreadPoolExecutor(threads, "corrgrpo-gym scorer")
    running: dict[Future[EvalRecord], EvalRecord] = {}

    def write(at_most: int) -> None:
        """Write finished scores down until at most so many are running."""
        while len(running) > at_most:
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                record = running.pop(future)
                line = _line(folder, future, record)
                try:
                    append_records(temporary, [line])
                except OSError as e:
                    raise cannot_write(temporary, folder.path, e) from e
                screen.scored(sample_of(line) if "values" in line else None)

    try:
        for record in folder.latest():
            if record["failure"]:
                continue
            if record["case"] not in place:
                raise GymError(f"{folder.path} has replies to {record['case']!r}, which is no case of {benchmark.name}")
            case = benchmark.cases[place[record["case"]]]
            running[pool.submit(_scored, benchmark, case, record)] = record
            write(4 * threads)
        write(0)
        temporary.touch()
        folder.replace_scores(temporary)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _scored(benchmark: Benchmark, case: Case, record: EvalRecord) -> EvalRecord:
    """The line of scores.jsonl; whatever keeps it from being one is the scorer's fault."""
    score = benchmark.score(case, [reply_of(r) for r in record["replies"]])
    line = score_record(sample_of_case(case, score), record["sample"], score)
    json.dumps(plain(line))
    return line


def _line(folder: EvalFolder, future: "Future[EvalRecord]", record: EvalRecord) -> EvalRecord:
    error = future.exception()
    if error is None:
        return future.result()
    if not isinstance(error, Exception) or (isinstance(error, GymError) and not isinstance(error, NotScored)):
        raise error
    if not isinstance(error, NotScored):
        folder.note(f"{record['case']} sample {record['sample']}:\n{''.join(traceback.format_exception(error))}")
    return not_scored_record((record["case"], record["sample"]), error)


@contextmanager
def _terminated() -> Iterator[None]:
    """SIGTERM as Ctrl-C."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, interrupt)
    except ValueError:
        # Not in the main thread: whoever runs that one has the say.
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
