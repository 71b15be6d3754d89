"""The command line: parses, calls, prints."""

from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from . import __version__, cli_eval
from .errors import GymError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    help="Train and evaluate language models against several rewards at once.",
    epilog="Start with `corrgrpo-gym train`: it needs no GPU, no download and no account.",
)


class DType(StrEnum):
    """Formats of exported weights."""

    float32 = "float32"
    bfloat16 = "bfloat16"
    float16 = "float16"


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        typer.echo(__version__)
        raise typer.Exit


@app.command()
def train(
    env: Annotated[
        str | None,
        typer.Option(
            help="Environment: a name of `corrgrpo-gym envs`, package.module:thing, or file.py:thing.",
            show_default="leetcode",
        ),
    ] = None,
    algo: Annotated[
        str | None,
        typer.Option(help="Algorithm: a name of `corrgrpo-gym algos`, or loss+estimator.", show_default="corrgrpo"),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="auto, embedded, a hub id, a folder, or a .gguf file. auto: with a GPU "
            "Qwen/Qwen2.5-Coder-0.5B-Instruct, else the embedded policy.",
            show_default="auto",
        ),
    ] = None,
    data: Annotated[str | None, typer.Option(help="auto, embedded, hub, or a path.", show_default="auto")] = None,
    engine: Annotated[
        str | None,
        typer.Option(help="What samples: vllm, transformers, or auto.", show_default="auto"),
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Training steps.", show_default="100")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of sampling and task order.", show_default="0")] = None,
    out: Annotated[Path | None, typer.Option(help="Run folder.", show_default="runs/ENV-ALGO-DATE")] = None,
    loss: Annotated[str | None, typer.Option(help="Policy loss.", show_default="the algorithm's")] = None,
    estimator: Annotated[str | None, typer.Option(help="Advantage estimator.", show_default="the algorithm's")] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            help="TOML file, or a name of `corrgrpo-gym recipes`; a run's own config.toml repeats the run.",
            show_default="none",
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Any key, such as update.lr=1e-5; may be given again.",
            show_default="none",
        ),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(help="Go on with this run folder (only --steps may be given too).", show_default="none"),
    ] = None,
    print_config: Annotated[
        bool,
        typer.Option(
            "--print-config",
            help="Print the resolved configuration, every key explained, and stop.",
            show_default="off",
        ),
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Print the plan and a memory estimate, load no model, and stop.",
            show_default="off",
        ),
    ] = False,
) -> None:
    """Train a policy on an environment with a vector reward.

    `corrgrpo-gym train --print-config` shows every further key that `--set` and `--config` take.
    """
    _need_torch()
    from .learners import config as configs
    from .learners import plan, recipes, session

    given = {"env": env, "algo": algo, "model": model, "data": data, "steps": steps, "seed": seed}
    flags: dict = {k: v for k, v in given.items() if v is not None}
    for section, key, value in (
        ("algorithm", "loss", loss),
        ("algorithm", "estimator", estimator),
        ("engine", "name", engine),
    ):
        if value is not None:
            flags = configs.merge(flags, {section: {key: value}})
    assigned: dict = {}
    for text in set_ or ():
        assigned = configs.merge(assigned, configs.parse_assignment(text))
    if resume is not None:
        if set(flags) - {"steps"} or assigned or config or out:
            raise GymError("--resume goes on with the run's own configuration: only --steps may be given with it")
        outcome = session.resume(resume, steps)
    else:
        resolved = configs.resolve(recipes.load(config) if config else {}, flags, assigned)
        if print_config:
            typer.echo(configs.documented_toml(resolved))
            return
        if dry_run:
            typer.echo("\n".join(plan.of(resolved)))
            return
        outcome = session.start(resolved, out)
    if not outcome.finished:
        raise typer.Exit(130)


@app.command("recipes")
def list_recipes() -> None:
    """List the configurations that come with the package: the paper's trainings, by model."""
    from .learners import recipes

    for row in recipes.recipes():
        typer.secho(row.name, bold=True, nl=False)
        typer.echo(f"  {row.model}")
        typer.secho(f"    {row.description}", dim=True)
    typer.echo("Look at one: corrgrpo-gym train --config NAME --dry-run (any --algo). Every key: --print-config.")


app.command("eval")(cli_eval.evaluate)
app.command()(cli_eval.rescore)


@app.command()
def algos() -> None:
    """List algorithms, estimators and losses, with papers and defaults."""
    from .corrgrpo import catalogue

    rules = {"dynamic": "dynamic sampling", "overlong": "overlong shaping"}
    for row in catalogue.algorithms():
        extra = [text for name, text in rules.items() if getattr(row.sampling, name)]
        options = ", ".join([*(f"{k}={v}" for k, v in row.defaults.items()), *extra])
        typer.secho(row.name, bold=True, nl=False)
        typer.echo(f"  loss {row.loss}, estimator {row.estimator}. {row.paper}")
        typer.echo(f"    {row.description}")
        typer.secho(f"    {options}", dim=True)
    typer.echo("Any loss goes with any estimator: --algo LOSS+ESTIMATOR, such as cispo+corrgrpo or dapo+gdpo.")
    typer.echo(f"Losses: {', '.join(catalogue.losses())}")
    typer.echo(f"Estimators: {', '.join(catalogue.estimators())}")


@app.command()
def envs() -> None:
    """List environments with their reward components."""
    from .envs import list_envs

    for info in list_envs():
        typer.secho(info.name, bold=True, nl=False)
        typer.echo(f"  {info.description} ({info.source})")
        typer.echo(f"    rewards: {', '.join(info.reward_names or ('known when made',))}")
    typer.echo("Your own: --env package.module:thing, see the README.")


@app.command()
def export(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    to: Annotated[Path, typer.Option(help="New folder for the model.")],
    step: Annotated[int | None, typer.Option(help="Checkpoint.", show_default="the best, else the latest")] = None,
    dtype: Annotated[DType, typer.Option(help="Format of the weights.")] = DType.float32,
) -> None:
    """Write a run's model as a plain Hugging Face folder, LoRA adapters merged."""
    _need_torch()
    from .learners import session

    typer.echo(f"wrote {session.export(run, to, step, dtype.value)}")


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def serve(
    context: typer.Context,
    model: Annotated[str, typer.Option(help="Hub id or folder.")],
    host: Annotated[str, typer.Option(help="Address; whoever reaches it can replace the weights.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port.")] = 8000,
    lora_rank: Annotated[int, typer.Option(help="Rank of the adapters that a training will push; 0: none.")] = 0,
    sleep: Annotated[bool, typer.Option("--sleep", help="Let the training put it to sleep; needs CUDA.")] = False,
    cut: Annotated[bool, typer.Option("--cut", help="The training draws with top-p or top-k.")] = False,
) -> None:
    """Start a vLLM server for trainings (`--set engine.url=...`) and evaluations (`--base-url`).

    Further options go to vLLM as they are, such as --max-model-len 4096 --enable-auto-tool-choice.
    """
    _need_torch()
    from .learners.engines.vllm import serve as server

    server.serve(model, host=host, port=port, lora_rank=lora_rank, sleep=sleep, cut=cut, more=context.args)


@app.command()
def plot(
    runs: Annotated[list[Path], typer.Argument(help="Run folders; several runs of one algorithm are averaged.")],
    out: Annotated[Path | None, typer.Option(help="Picture (png, svg, pdf).", show_default="RUN/curves.png")] = None,
) -> None:
    """Draw the learning curves of one or several runs."""
    _need_torch()
    from .learners import curves

    typer.echo(f"wrote {curves.draw(runs, out or runs[0] / 'curves.png')}")


@app.command("doctor")
def check_sandboxes() -> None:
    """Say which sandboxes for programs work here, what each does not isolate, and how to get a better one.

    Each is really started and judges two programs. Status 0: the default one works.
    """
    import shutil

    from .envs.sandbox import backends, doctor

    works, width = False, min(shutil.get_terminal_size().columns, 100)
    for name in backends.NAMES:
        finding = doctor.examine(name)
        works = works or (name == backends.DEFAULT and not finding.problem)
        typer.echo(doctor.describe(finding, width) + "\n")
    typer.echo("\n".join(doctor.wrapped(doctor.SHARED_KERNEL, width)))
    raise typer.Exit(0 if works else 1)


def _need_torch() -> None:
    if find_spec("torch") is None or find_spec("transformers") is None:
        raise GymError("training needs torch and transformers: pip install 'corrgrpo-gym[train]'")


def main() -> None:
    """Entry point of the `corrgrpo-gym` command: mistakes of the user end in one message and status 2."""
    try:
        app()
    except GymError as e:
        typer.secho(f"error: {e}", fg="red", err=True)
        raise SystemExit(2) from None
