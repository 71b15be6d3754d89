"""From a configuration, or a run folder, to a table."""

import asyncio
import json
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from .. import __version__
from ..configuration import checked, differences, flat, load_toml, merge, to_toml
from ..errors import GymError
from ..learners.display import command_name
from . import registry
from .benchmark import Benchmark
from .config import FREE, EvalConfig, resolve
from .models import open_model
from .models.base import ChatModel
from .paper import PaperRow, paper_rows
from .records import CONFIG, FACTS, REPLIES, SUMMARY, EvalFolder, read_facts
from .runner import Runner
from .screen import EvalScreen, print_summary, quoted
from .summary import summarise


@dataclass(frozen=True, slots=True)
class EvalOutcome:
    """How a session ended.

    Attributes:
        run: the run folder.
        finished: False if it was interrupted.
        summary: as in summary.json; None if it was interrupted.
    """

    run: Path
    finished: bool
    summary: dict[str, Any] | None


def evaluate(
    config: EvalConfig,
    out: Path | None = None,
    *,
    retry_failed: bool = False,
    paper: bool = False,
    paper_row: str = "",
    console: Console | None = None,
) -> EvalOutcome:
    """Evaluate a model on a benchmark, or go on with that.

    Args:
        config: the resolved configuration.
        out: run folder; one that holds this evaluation already is gone on with; None makes a new one in runs/.
        retry_failed: ask for failed samples again.
        paper: show the paper's figures beside ours.
        paper_row: for which of the paper's models.
        console: where to print.

    Raises:
        GymError: wrong configuration or data, a folder that holds another evaluation, a model that cannot answer.
    """
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    answering = (Path(config.answers).resolve().stem if config.answers else "") or config.model or "endpoint"
    name = f"eval-{config.env}-{answering}-{stamp}".replace("/", "_").replace(":", "_")
    path = out or Path("runs") / name
    if path.exists() and not path.is_dir():
        raise GymError(f"--out {path} is a file; a run needs a folder")
    if (path / CONFIG).exists():
        check_same(path, config)
    elif (path / REPLIES).exists():
        raise GymError(
            f"{path} holds replies but no {CONFIG}, so it is not known what was asked. Its {FACTS} has the "
            "configuration: put the file back, or give another --out"
        )
    benchmark = make_benchmark(config)
    try:
        names = ids_of(benchmark)
        paper_facts = paper_rows(benchmark.paper, config.model, paper_row) if paper or paper_row else []
        model = open_model(config, names)
        names = names[: config.limit or None]
        screen = EvalScreen(benchmark, config, console)
        work = _Session(benchmark, model, config, path, screen, names, retry_failed, paper_facts)
        return asyncio.run(work.run())
    finally:
        benchmark.close()


def resume_config(run: Path, flags: Mapping[str, Any]) -> EvalConfig:
    """The configuration of a run folder with what is given now laid over it.

    Raises:
        GymError: it is no run folder of an evaluation.
    """
    if not (run / CONFIG).is_file():
        raise GymError(f"cannot resume {run}: it is not a run folder (no {CONFIG})")
    return resolve(merge(saved_config(run), dict(flags)))


def check_same(run: Path, config: EvalConfig) -> None:
    """Refuse to mix what differs in a way that changes results.

    Raises:
        GymError: naming every difference, and whether it is one of config.toml, which somebody edited.
    """
    file, facts = saved_config(run), read_facts(run)
    try:
        old = checked(EvalConfig, facts.get("config", file))
    except GymError as e:
        raise GymError(f"{run / FACTS}, config: {e}") from e
    was, now = flat(old.model_dump(mode="json")), flat(config.model_dump(mode="json"))
    changed = [k for k in differences(old, config) if k not in FREE and k.partition(".")[0] not in FREE]
    if changed:
        listed = "; ".join(f"{k} was {was.get(k)!r}, now {now.get(k)!r}" for k in changed)
        edited = set(changed) <= set(differences(old, resolve(file)))
        if edited:
            raise GymError(f"{run / CONFIG} was edited: {listed}. Put it back, or evaluate anew by --config and --out")
        raise GymError(f"{run} holds an evaluation of another configuration: {listed}. Give another --out")
    for key, unlimited in (("limit", 0), ("n", -1)):
        before, after = getattr(old, key), getattr(config, key)
        if after != unlimited and (before == unlimited or after < before):
            raise GymError(f"{run}: {key} was {before}, now {after}. A run can grow, not shrink: give another --out")


def make_benchmark(config: EvalConfig) -> Benchmark:
    """The benchmark that a configuration names."""
    options = dict(config.options)
    if config.prompt:
        if not registry.takes(config.env, "prompt_file"):
            raise GymError(f"--prompt: {config.env} takes no other prompt")
        if not Path(config.prompt).expanduser().is_file():
            raise GymError(f"--prompt: there is no file {config.prompt} (current directory: {Path.cwd()})")
        options["prompt_file"] = str(Path(config.prompt).expanduser())
    benchmark = registry.make(config.env, None if config.data == "auto" else config.data, **options)
    if not len(benchmark.cases):
        raise GymError(f"{config.env} has no cases; check the data")
    return benchmark


def ids_of(benchmark: Benchmark) -> list[str]:
    """Names of a benchmark's cases in order.

    Raises:
        GymError: two have the same.
    """
    ids = getattr(benchmark.cases, "ids", None) or [case.id for case in benchmark.cases]
    if len(set(ids)) < len(ids):
        twice = next(name for i, name in enumerate(ids) if name in ids[:i])
        raise GymError(f"{benchmark.name}: two cases are named {twice!r}")
    return list(ids)


def check_facts(run: Path, facts: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuse to go on where the benchmark or the model is no longer what it was.

    Raises:
        GymError: naming every difference.
    """
    listed = []
    for part in ("benchmark", "model"):
        a, b = flat(dict(facts[part])), flat(json.loads(json.dumps(now[part])))
        listed += [f"{part}.{k} was {a.get(k)!r}, now {b.get(k)!r}" for k in sorted(a | b) if a.get(k) != b.get(k)]
    if listed:
        raise GymError(f"{run} cannot go on: {'; '.join(listed)}. Put it back, or give another --out")
    if facts.get("scored", facts["benchmark"]) != facts["benchmark"]:
        raise GymError(f"{run} was scored anew with other options: `rescore {run}` without them first")


def saved_config(run: Path) -> dict[str, Any]:
    """The configuration in a run folder.

    Raises:
        GymError: it can't be read, is no configuration, or is a training's.
    """
    values = load_toml(run / CONFIG)
    if "algo" in values:
        raise GymError(f"{run} is the run of a training, not of an evaluation. Evaluate its model by --model {run}")
    try:
        resolve(values)
    except GymError as e:
        raise GymError(f"{run / CONFIG}: {e}") from e
    return values


@dataclass(slots=True)
class _Session:
    benchmark: Benchmark
    model: ChatModel
    config: EvalConfig
    path: Path
    screen: EvalScreen
    ids: Sequence[str]
    retry_failed: bool
    paper: Sequence[PaperRow]

    async def run(self) -> EvalOutcome:
        try:
            if not (self.path / CONFIG).exists():
                # Before the folder is there: a wrong address leaves nothing behind.
                await self._check()
            folder = EvalFolder(self.path)
            try:
                return await self._evaluate(folder)
            finally:
                folder.close()
        finally:
            await self.model.close()

    async def _check(self) -> None:
        if check := getattr(self.model, "check", None):
            await check()

    async def _evaluate(self, folder: EvalFolder) -> EvalOutcome:
        def stop() -> None:
            self.screen.note("stopping: what is finished is being saved")
            runner.stop()

        runner = Runner(self.benchmark, self.model, self.config, folder, self.screen, self.ids, self.retry_failed)
        missing, unscored = runner.missing(), len(runner.unscored())
        if (self.path / CONFIG).exists() and missing:
            await self._check()
        facts = {
            "benchmark": json.loads(json.dumps(dict(self.benchmark.settings))),
            "model": dict(self.model.identity),
            "version": __version__,
            "config": self.config.model_dump(mode="json", exclude_none=True),
        }
        if (self.path / CONFIG).exists():
            # A server that is asked nothing more may be gone.
            before = folder.facts()
            check_facts(self.path, before, facts if missing else {**facts, "model": before["model"]})
            folder.go_on(to_toml(self.config), {**before, "config": facts["config"]})
        else:
            folder.begin(to_toml(self.config), facts)
        total = len(self.ids) * self.config.n
        self._head(total, missing, unscored)
        folder.note(f"begin: {missing} of {total} samples to generate, {unscored} to score")
        waits = getattr(self.model, "status", str)
        self.screen.status = lambda: "  ".join(filter(None, (waits(), self.benchmark.status())))
        self.screen.begin(total, total - missing - unscored, folder.samples)
        ticking = asyncio.create_task(self._tick())
        try:
            with _signals(stop):
                finished = await runner.run()
        finally:
            ticking.cancel()
            self.screen.end()
            troubles = ", ".join(f"{kind} {n}" for kind, n in getattr(self.model, "troubles", {}).items())
            folder.note("end" + (f", after troubles with the endpoint: {troubles}" if troubles else ""))
        command = command_name()
        if not finished:
            known = set(self.ids)
            done = sum(case in known and sample < self.config.n for case, sample in folder.replied)
            self.screen.console.print(
                f"Interrupted after {done} of {total} samples, which are saved. Go on with:\n"
                f"  {command} eval --resume {quoted(self.path)}",
                soft_wrap=True,
            )
            return EvalOutcome(self.path, False, None)
        summary = summarise(folder, self.benchmark, self.config, self.ids)
        if self.paper:
            summary["paper"] = [{"model": r.model, "figures": r.figures} for r in self.paper]
        folder.write(SUMMARY, json.dumps(summary, indent=2) + "\n")
        if troubles:
            self.screen.note(f"troubles with the endpoint, with those that another try mended: {troubles}")
        print_summary(self.screen.console, self.path, summary, self.paper, command)
        return EvalOutcome(self.path, True, summary)

    async def _tick(self) -> None:
        """Keep the time that is left true while a sample takes long."""
        while True:
            await asyncio.sleep(1.0)
            self.screen.tick()

    def _head(self, total: int, missing: int, unscored: int) -> None:
        config, screen = self.config, self.screen
        note = f" ({self.benchmark.note})" if self.benchmark.note else ""
        screen.row("benchmark", f"{self.benchmark.name}: {len(self.ids)} cases{note}")
        identity = self.model.identity
        if identity["kind"] == "endpoint":
            model = f"{identity['model']} at {identity['base_url']}"
        else:
            model = config.answers or config.model
        drawn = "greedy" if config.temperature == 0 else f"temperature {config.temperature:g}"
        if identity["kind"] in ("endpoint", "transformers"):
            model += f", {drawn}, {config.n} sample{'s' if config.n > 1 else ''} per case"
        screen.row("model", model)
        screen.row("run", str(self.path))
        if total > missing:
            rest = f", {unscored} of them to be scored" if unscored else ""
            screen.note(f"going on: {total - missing} of {total} samples are there{rest}")
        if config.n > 1 and config.temperature == 0 and identity["kind"] in ("endpoint", "transformers"):
            screen.note("several samples at temperature 0 are mostly the same one: give --temperature")
        for text in getattr(self.model, "notes", ()):
            screen.note(text)


@contextmanager
def _signals(stop: Callable[[], None]) -> Iterator[None]:
    """Let the first Ctrl-C or SIGTERM stop the work; the second one is as rough as ever."""
    loop = asyncio.get_running_loop()
    wanted = (signal.SIGINT, signal.SIGTERM)

    def once() -> None:
        for s in wanted:
            loop.remove_signal_handler(s)
        stop()

    installed = []
    for s in wanted:
        try:
            loop.add_signal_handler(s, once)
            installed.append(s)
        except (ValueError, RuntimeError):
            # Not in the main thread: whoever runs that one has the say.
            break
    try:
        yield
    finally:
        for s in installed:
            loop.remove_signal_handler(s)
