"""What a training run shows in the terminal: a table that grows, and a line that says what is going on."""

import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

from ..envs import MultiRewardEnv
from .config import TrainConfig

# Rows of training steps that a run prints in all; each is the mean of the steps since the one before.
ROWS = 24


MODEL_NOTES = {"embedded": "embedded: the small policy that goes with embedded data; needs no GPU and no download"}


class Screen:
    """Prints a run's table to the terminal, or plain lines where there is none."""

    def __init__(self, console: Console | None = None):
        self.console = console or Console(highlight=False)
        self.progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        )
        self.task: Any = None
        self.names: tuple[str, ...] = ()
        self.steps = 0
        self._since: list[Mapping[str, float]] = []
        self._seconds = 0.0
        self._step = self._first = 0
        self._began = self._left = 0.0

    def __enter__(self) -> "Screen":
        self.progress.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.progress.stop()

    def header(self, config: TrainConfig, env: MultiRewardEnv, held_out: MultiRewardEnv | None, run: Path) -> None:
        """Say what is about to be trained on what."""
        tasks = f"{len(env.tasks)} train" + (f", {len(held_out.tasks)} held out ({held_out.split})" if held_out else "")
        rows = {
            "environment": f"{config.env}: {tasks} tasks",
            "data": env.data_note or config.data,
            "algorithm": f"{config.algo}, {config.rollout.prompts} prompts x {config.rollout.samples} rollouts a step",
            "model": MODEL_NOTES.get(config.model, config.model),
            "run": str(run),
        }
        for key, value in rows.items():
            self.console.print(f"[dim]{key:<12}[/]{escape(value)}", soft_wrap=True)

    def note(self, text: str) -> None:
        """Print a line."""
        self.console.print(f"[dim]{escape(text)}[/]", soft_wrap=True)

    @contextmanager
    def bar(self, name: str, total: int) -> Iterator[Callable[[int, float], None]]:
        """A progress bar; call what it yields with (done, loss)."""
        task = self.progress.add_task(name, total=total)
        loss = float("nan")
        if not self.console.is_terminal:
            self.note(f"{name}: {total} steps")

        def advance(done: int, value: float) -> None:
            nonlocal loss
            loss = value
            self.progress.update(task, completed=done, description=f"{name} (loss {value:.3f})")

        try:
            yield advance
            self.note(f"{name}: {total} steps, last loss {loss:.3f} nats per token")
        finally:
            self.progress.remove_task(task)

    def table(self, names: Sequence[str], steps: int, model: str, before: Sequence[Mapping[str, float]] = ()) -> None:
        """Print the head of the table; `before` are the metrics of the steps that were done earlier."""
        self.names, self.steps = tuple(names), steps
        self._step = self._first = int(before[-1]["step"]) if before else 0
        self._began = time.perf_counter()
        self.note(f"policy: {model}")
        self.task = self.progress.add_task("starting", total=None)
        self.console.print("[dim]train: mean reward of sampled answers; held out: of the validation split[/]")
        heads = [name[:width] for name, width in zip((*names, "total"), self._widths(), strict=True)]
        self.console.print(f"[bold]{self._line('step', '', heads)}[/] [dim]s/step[/]", soft_wrap=True)

    def phase(self, name: str, done: int, total: int) -> None:
        """See trainer.Display."""
        left = f", about {_clock(self._left)} left" if self._left else ""
        text = f"step {min(self._step + 1, self.steps)} of {self.steps}{left}: {name}"
        self.progress.update(self.task, description=escape(text), completed=done, total=total or None)

    def row(self, step: int, metrics: Mapping[str, float], seconds: float) -> None:
        """See trainer.Display."""
        self._step = step
        if step:
            self._left = (self.steps - step) * (time.perf_counter() - self._began) / (step - self._first)
        keys = [*self.names, "total"]
        if any(k.startswith("reward/") for k in metrics):
            self._since.append(metrics)
            self._seconds += seconds
        validated = "val/total" in metrics
        if self._since and (step % max(1, self.steps // ROWS) == 0 or step == self.steps or validated):
            means = [_mean([m[f"reward/{k}"] for m in self._since if f"reward/{k}" in m]) for k in keys]
            per_step = self._seconds / len(self._since)
            line = self._line(step, "train", means)
            self.console.print(f"{line} [dim]{per_step:>6.1f}[/]", soft_wrap=True)
            self._since, self._seconds = [], 0.0
        if validated:
            line = self._line(step, "held out", [metrics.get(f"val/{k}") for k in keys])
            self.console.print(f"[bold green]{line}[/]", soft_wrap=True)

    def footer(
        self, run: Path, algo: str, finished: bool, step: int, metrics: Sequence[Mapping[str, float]], seconds: float
    ) -> None:
        """Say how it ended, where it is, and what to do next."""
        self.progress.stop()
        validated = [m for m in metrics if "val/total" in m]
        if len(validated) > 1:
            table = Table(title=f"Held-out reward, step {validated[0]['step']} to {validated[-1]['step']}")
            table.add_column("component")
            for column in ("before", "after", "change"):
                table.add_column(column, justify="right")
            for name in (*self.names, "total"):
                first, last = validated[0].get(f"val/{name}"), validated[-1].get(f"val/{name}")
                if first is None or last is None:
                    continue
                colour = "green" if last > first + 5e-4 else "red" if last < first - 5e-4 else "dim"
                change = f"[{colour}]{last - first:+.3f}[/]"
                table.add_row(name, f"{first:.3f}", f"{last:.3f}", change, end_section=name == self.names[-1])
            self.console.print(table)
        place = escape(str(run))
        if finished:
            self.console.print(f"Finished step {step} in {seconds:.0f} s. The run is in [bold]{place}[/]:")
            model = "best   the best model" if (run / "checkpoints" / "best").exists() else "       the model"
            self.console.print(
                "  metrics.jsonl      every step's rewards, correlations, losses\n"
                "  rollouts.jsonl     every answer with its reward vector and advantage\n"
                f"  checkpoints/{model}, a Hugging Face folder"
            )
            program = command_name()
            again = "grpo" if algo != "grpo" else "corrgrpo"
            for why, command in (
                ("Train longer", f"train --resume {place} --steps {2 * max(step, 1)}"),
                ("The same run with another algorithm", f"train --config {place}/config.toml --algo {again}"),
                ("Draw the curves", f"plot {place}"),
            ):
                self.console.print(f"{why}:\n  {program} {command}", soft_wrap=True)
        else:
            done = f"after step {step}; everything up to there is saved" if step or metrics else "before the first step"
            self.console.print(f"Interrupted {done}. Go on with:")
            self.console.print(f"  {command_name()} train --resume {place}", soft_wrap=True)

    def _widths(self) -> list[int]:
        """Widths of the columns: the names', or as much of them as the terminal has room for."""
        names = (*self.names, "total")
        room = self.console.width - 15 - 8 if self.console.is_terminal else 1000
        most = max(6, min(max(map(len, names)), room // len(names) - 1))
        if sum(max(6, len(n)) + 1 for n in names) <= room:
            most = 1000
        return [max(6, min(most, len(n))) for n in names]

    def _line(self, step: int | str, kind: str, cells: Sequence[float | str | None]) -> str:
        widths = self._widths()
        texts = [c if isinstance(c, str) else "-" if c is None else f"{c:.3f}" for c in cells]
        return f"{step!s:>5} {kind:<9}" + " ".join(f"{t:>{w}}" for t, w in zip(texts, widths, strict=True))


def command_name() -> str:
    """How this user calls us: by name where the shell finds that, else by path."""
    program = Path(sys.argv[0])
    if program.name != "corrgrpo-gym" or shutil.which("corrgrpo-gym"):
        return "corrgrpo-gym"
    return str(program)


def _clock(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
