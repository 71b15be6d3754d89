"""What an evaluation shows in the terminal: how far it is, and its table."""

import shlex
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn
from rich.table import Table

from .benchmark import Benchmark
from .config import EvalConfig
from .metrics import Sample
from .models.base import ModelFailure, Reply
from .paper import PaperRow
from .records import Key
from .summary import cost

# Names that a list of the report shows.
NAMES = 12
# Seconds between lines where there is no terminal.
PLAIN = 30.0

# A table of more columns than this leaves out those that no case is eligible for.
MANY_COLUMNS = 10


class EvalScreen:
    """Progress in one line, which a terminal redraws; elsewhere a line now and then.

    Attributes:
        status: says what slows the evaluation down; nothing where nothing does.
    """

    def __init__(self, benchmark: Benchmark, config: EvalConfig, console: Console | None = None):
        self.console = console or Console(highlight=False)
        self.benchmark, self.config = benchmark, config
        self.total = self.done = 0
        self.samples: Mapping[Key, Sample] = {}
        self.failed: Counter[str] = Counter()
        self.tokens: Counter[str] = Counter()
        self.status: Callable[[], str] = str
        self._not_scored = 0
        self._headline, self._headline_due = "", 0.0
        self._drawn = self._printed = self._began = time.monotonic()
        self._recent: deque[tuple[float, int]] = deque(maxlen=120)
        self._bar = Progress(
            SpinnerColumn(),
            BarColumn(bar_width=12),
            TextColumn("{task.description}"),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        )
        self._task: Any = None

    def begin(self, total: int, done: int, samples: Mapping[Key, Sample]) -> None:
        """Start the line: `done` of `total` samples are there already."""
        self.total, self.done, self.samples = total, done, samples
        self._began = self._printed = time.monotonic()
        self._recent.append((self._began, done))
        self._bar.start()
        self._task = self._bar.add_task("", total=total, completed=done)
        self._draw(force=True)

    def end(self) -> None:
        """Take the line away."""
        self._bar.stop()

    def note(self, text: str) -> None:
        """Print a line."""
        self.console.print(f"[dim]{escape(text)}[/]", soft_wrap=True)

    def row(self, key: str, value: str) -> None:
        """Print a line of the head."""
        self.console.print(f"[dim]{key:<11}[/]{escape(value)}", soft_wrap=True)

    def replied(self, key: Key, replies: Sequence[Reply], failure: ModelFailure | None) -> None:
        """See Progress."""
        for reply in replies:
            self.tokens["in"] += reply.usage.prompt or 0
            self.tokens["out"] += reply.usage.completion or 0
        if failure is not None:
            self.failed[failure.kind] += 1
            self.done += 1
        self._draw()

    def scored(self, sample: Sample | None) -> None:
        """See Progress."""
        self.done += 1
        self._not_scored += sample is None
        self._draw()

    def tick(self) -> None:
        """Draw anew though nothing has happened."""
        self._draw()

    def _draw(self, force: bool = False) -> None:
        now = time.monotonic()
        if now - self._drawn < 0.2 and not force:
            return
        self._drawn = now
        if now - self._recent[-1][0] >= 1:
            self._recent.append((now, self.done))
        if self.console.is_terminal:
            self._bar.update(self._task, completed=self.done, description=self._line(self.console.width - 17))
        elif now - self._printed >= PLAIN:
            self._printed = now
            self.console.print(self._line(1000), soft_wrap=True)

    def _line(self, room: int) -> str:
        """What there is to say, as much as fits."""
        then, before = self._recent[0]
        now = time.monotonic()
        rate = (self.done - before) / (now - then) if now > then else 0.0
        pieces = [f"{self.done}/{self.total}"]
        if rate > 0:
            pieces += [f"{rate:.1f}/s", f"{clock((self.total - self.done) / rate)} left"]
        if self.failed:
            kinds = ", ".join(f"{kind} {n}" for kind, n in self.failed.most_common(3))
            pieces.append(f"[red]failed {self.failed.total()} ({kinds})[/]")
        if status := self.status():
            pieces.append(status)
        if self._not_scored:
            pieces.append(f"[red]not scored {self._not_scored}[/]")
        if headline := self._current(now):
            pieces.append(headline)
        if self.tokens.total():
            pieces.append(f"{count(self.tokens['in'])} in, {count(self.tokens['out'])} out")
        price = cost(self.config, self.tokens["in"], self.tokens["out"])
        if price is not None:
            pieces.append(f"cost {price:.2f}")
        line, length = "", 0
        for piece in pieces:
            width = len(piece) - (len("[red][/]") if piece.startswith("[red]") else 0) + 2
            if length + width > room:
                break
            line, length = line + ("  " if line else "") + piece, length + width
        return line

    def _current(self, now: float) -> str:
        """The first column so far; computed anew when it is cheap to."""
        if now >= self._headline_due and self.samples:
            column = self.benchmark.columns[0]
            estimate = column.estimate(list(self.samples.values()))
            self._headline = f"{column.name} {figure(estimate.value, column.percent)}"
            self._headline_due = now + max(1.0, 50 * (time.monotonic() - now))
        return self._headline


def print_summary(
    console: Console, run: Path, summary: Mapping[str, Any], paper: Sequence[PaperRow], command: str
) -> None:
    """Print the table of an evaluation, with what must be known to read it."""
    asked, scored = summary["samples"], summary["scored"]
    sampled = f"{summary['samples_per_case']} samples per case" if summary["samples_per_case"] > 1 else "1 sample each"
    own = paper[0] if len(paper) == 1 else None
    console.print(f"[bold]{escape(summary['benchmark'])}[/]: {summary['cases']} cases, {sampled}", soft_wrap=True)
    table = Table()
    table.add_column("", no_wrap=True)
    for head in ("ours", "95 % interval", "cases"):
        table.add_column(head, justify="right", no_wrap=True)
    methods = _fitting(own, console.width, summary) if own else ()
    for method in methods:
        table.add_column(f"paper\n{method}", justify="right", no_wrap=True)
    shown = summary["columns"]
    if len(shown) > MANY_COLUMNS:
        shown = [column for column in shown if column["count"]] or shown
    for column in shown:
        name, percent = column["name"], column["percent"]
        low, high = figure(column["low"], percent), figure(column["high"], percent)
        cells = [escape(name + (" %" if percent else "")), figure(column["value"], percent)]
        cells += ["-" if column["low"] is None else f"{low} to {high}", str(column["count"])]
        theirs = own.figures.get(name, {}) if own else {}
        table.add_row(*cells, *(f"{theirs[m]:.2f}" if m in theirs else "" for m in methods))
    console.print(table)
    if summary["partial"]:
        console.print(f"[bold red]Partial:[/] these figures are of {scored} of {asked} samples.", soft_wrap=True)
    if len(shown) < len(summary["columns"]):
        left_out = len(summary["columns"]) - len(shown)
        console.print(f"[dim]{left_out} figures without any case are in summary.json alone.[/]", soft_wrap=True)
    if own:
        console.print(f"[dim]Paper: {escape(own.model)}, in percent. CorrGRPO, arXiv 2609.36820.[/]")
    elif paper:
        console.print("[bold]The paper's figures[/], in percent (CorrGRPO, arXiv 2609.36820)", soft_wrap=True)
        console.print(_all_rows(paper))
    tokens = summary["tokens"]
    parts = [f"{summary['answered']} of {asked} samples answered, {scored} scored"]
    if summary["cut"]:
        parts.append(f"{summary['cut']} cut by the limit on tokens")
    if tokens:
        parts.append(f"{count(tokens.get('prompt', 0))} tokens in, {count(tokens.get('completion', 0))} out")
    if summary["cost"] is not None:
        parts.append(f"cost {summary['cost']:.4f}")
    console.print(escape("; ".join(parts) + "."), soft_wrap=True)
    for note, n in summary["notes"].items():
        console.print(f"[yellow]{n} answers:[/] {escape(note)}", soft_wrap=True)
    if summary["failed"]:
        kinds = ", ".join(f"{kind} {n}" for kind, n in summary["failed"].items())
        console.print(f"[red]Failed {sum(summary['failed'].values())}:[/] {escape(kinds)}", soft_wrap=True)
        console.print("  No figure above counts them.")
        for f in summary["failed_samples"][:3]:
            console.print(f"[dim]  {escape(f['case'])}: {escape(f['text'][:200])}[/]", soft_wrap=True)
        names = [f["case"] for f in summary["failed_samples"]]
        if len(names) > 3:
            console.print(f"  {escape(named(names, sum(summary['failed'].values())))}", soft_wrap=True)
        console.print(f"  Ask them again: {command} eval --resume {quoted(run)} --retry-failed", soft_wrap=True)
    _print_not_scored(console, run, summary, command)
    wrong = summary["not_passed"]
    if wrong and wrong["count"]:
        listed = escape(named(wrong["cases"], wrong["count"]))
        console.print(f"Not passed, {wrong['count']} of {summary['cases']} cases: {listed}", soft_wrap=True)
    if summary["caveats"]:
        console.print("[dim]To know:[/]")
        for line in summary["caveats"]:
            console.print(f"[dim]- {escape(line)}[/]", soft_wrap=True)
    console.print(
        f"[dim]The run is in[/] [bold]{escape(str(run))}[/][dim]: replies.jsonl, scores.jsonl, summary.json[/]",
        soft_wrap=True,
    )


def _print_not_scored(console: Console, run: Path, summary: Mapping[str, Any], command: str) -> None:
    """Name what was answered and has no score, and why: no fault of the model's, so it counts neither way."""
    unscored = summary["not_scored_samples"]
    if not unscored:
        return
    console.print(f"[bold red]Not scored {summary['not_scored']}:[/] no figure above counts them.", soft_wrap=True)
    for u in unscored[:NAMES]:
        console.print(f"[dim]  {escape(u['case'])}: {escape(u['text'][:200])}[/]", soft_wrap=True)
    if summary["not_scored"] > NAMES:
        console.print(f"  and {summary['not_scored'] - NAMES} more in summary.json and scores.jsonl")
    if errors := summary["scorer_errors"]:
        console.print(
            f"  In {errors} of them the scorer failed: a fault of the benchmark or its data, not of the model. See "
            f"{quoted(run)}/log.txt",
            soft_wrap=True,
        )
    console.print(f"  Score anew, without asking the model: {command} rescore {quoted(run)}", soft_wrap=True)


def _fitting(row: PaperRow, width: int, summary: Mapping[str, Any]) -> tuple[str, ...]:
    """The paper's methods that the table has room for; the base model, GRPO and CorrGRPO at least."""
    names = max(len(c["name"]) for c in summary["columns"]) + 2
    if names + 42 + sum(max(6, len(m)) + 3 for m in row.methods) <= width:
        return row.methods
    return tuple(m for m in row.methods if m in ("base", "grpo", "corrgrpo"))


def _all_rows(rows: Sequence[PaperRow]) -> Table:
    """The paper's figures where none of its models is ours."""
    table = Table()
    table.add_column("model")
    table.add_column("trained by")
    for name in rows[0].figures:
        table.add_column(escape(name), justify="right")
    for row in rows:
        for method in row.methods:
            cells = [f"{figures[method]:.2f}" for figures in row.figures.values()]
            table.add_row(escape(row.model if method == row.methods[0] else ""), method, *cells)
    return table


def figure(value: float | None, percent: bool) -> str:
    """A figure for people."""
    if value is None:
        return "-"
    return f"{100 * value:.2f}" if percent else f"{value:.3f}"


def count(n: int) -> str:
    """A number for people."""
    return str(n) if n < 10_000 else f"{n / 1000:.0f} k" if n < 10_000_000 else f"{n / 1e6:.0f} M"


def clock(seconds: float) -> str:
    """A duration for people."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def named(names: Sequence[str], total: int) -> str:
    """The first of some names, and how many more there are."""
    shown = list(dict.fromkeys(names))[:NAMES]
    more = total - len(shown)
    return ", ".join(shown) + (f", and {more} more in summary.json" if more > 0 else "")


def quoted(run: Path) -> str:
    """The folder as a shell takes it."""
    return shlex.quote(str(run))
