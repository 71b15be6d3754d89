"""The command line: parses, calls, prints."""

from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from . import __version__
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


def _asked(topic: str, text: str, default: str = "", metavar: str = "", name: str | None = None) -> Any:
    """An option of `eval`: its topic in the help, what it is, its default, and what stands for its value."""
    text = f"{text} [default: {default}]" if default else text
    names = (name,) if name else ()
    return typer.Option(*names, help=text, metavar=metavar, show_default=False, rich_help_panel=topic)


@app.command("eval")
def evaluate(
    env: Annotated[
        str | None,
        _asked(
            "What is asked",
            "Benchmark: leetcode, humaneval, mbpp, livecodebench, rlla, api-bank, bfcl, agentdojo, asb, injecagent. Or "
            "an environment: a name of `corrgrpo-gym envs`, package.module:thing, file.py:thing.",
            metavar="NAME",
        ),
    ] = None,
    data: Annotated[str | None, _asked("What is asked", "auto, hub, or a path.", "auto", "PATH")] = None,
    option: Annotated[
        list[str] | None,
        _asked(
            "What is asked",
            "An option of the benchmark or environment, such as split=train; may be given again.",
            metavar="KEY=VALUE",
        ),
    ] = None,
    prompt: Annotated[
        Path | None, _asked("What is asked", "Another prompt, for benchmarks that take one.", metavar="FILE")
    ] = None,
    limit: Annotated[int | None, _asked("What is asked", "Only the first cases; 0: all.", "0", "N")] = None,
    model: Annotated[
        str | None,
        _asked(
            "Who answers",
            "With --base-url the endpoint's name of it; may be left out where it has but one. Without: a hub id, a "
            "folder, a .gguf file, a run folder of a training, or `reference`: the gold answers.",
            metavar="NAME",
        ),
    ] = None,
    base_url: Annotated[
        str | None,
        _asked("Who answers", "OpenAI-compatible endpoint, such as http://localhost:8000/v1.", metavar="URL"),
    ] = None,
    answers: Annotated[
        Path | None,
        _asked("Who answers", "Saved answers: JSON lines with case, sample, answer; or a run folder.", metavar="FILE"),
    ] = None,
    engine: Annotated[
        str | None, _asked("Who answers", "Of a local model: vllm, transformers.", "auto", "NAME")
    ] = None,
    device: Annotated[str | None, _asked("Who answers", "Of a local model: cpu, cuda.", "auto", "NAME")] = None,
    n: Annotated[int | None, _asked("How answers are drawn", "Samples per case.", "1", "N", "--n")] = None,
    temperature: Annotated[float | None, _asked("How answers are drawn", "0: greedy.", "0", "X")] = None,
    top_p: Annotated[float | None, _asked("How answers are drawn", "Nucleus sampling.", "1", "X")] = None,
    max_tokens: Annotated[
        int | None,
        _asked(
            "How answers are drawn",
            "Tokens of an answer, reasoning included; 0: what the model allows.",
            "2048",
            "N",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        _asked("How answers are drawn", "Sample s is drawn with seed + s; -1: none is sent.", "0", "N"),
    ] = None,
    stop: Annotated[
        list[str] | None,
        _asked("How answers are drawn", "A text that ends an answer; may be given again.", metavar="TEXT"),
    ] = None,
    system: Annotated[str | None, _asked("How answers are drawn", "A system message in front.", metavar="TEXT")] = None,
    completions: Annotated[
        bool, _asked("Endpoint", "Plain completions, without a chat template.", name="--completions")
    ] = False,
    extra_body: Annotated[
        str | None, _asked("Endpoint", 'Further fields of requests, such as {"top_k": 20}.', metavar="JSON")
    ] = None,
    api_key_env: Annotated[
        str | None, _asked("Endpoint", "Environment variable that holds the key.", "OPENAI_API_KEY", "NAME")
    ] = None,
    concurrency: Annotated[
        int | None,
        _asked("Endpoint", "Requests at once, fewer while it is overloaded; a local model: 32.", "16", "N"),
    ] = None,
    timeout: Annotated[float | None, _asked("Endpoint", "Seconds that a request may take.", "600", "X")] = None,
    retries: Annotated[int | None, _asked("Endpoint", "Times that a request is sent again.", "8", "N")] = None,
    price_in: Annotated[
        float | None, _asked("Endpoint", "Price of a million prompt tokens, for the cost.", metavar="X")
    ] = None,
    price_out: Annotated[float | None, _asked("Endpoint", "Price of a million answer tokens.", metavar="X")] = None,
    out: Annotated[
        Path | None,
        _asked(
            "Run and report",
            "Run folder; one that holds this evaluation is gone on with.",
            "runs/eval-ENV-MODEL-DATE",
            "FOLDER",
        ),
    ] = None,
    resume: Annotated[
        Path | None, _asked("Run and report", "Go on with this run and its configuration.", metavar="RUN")
    ] = None,
    retry_failed: Annotated[
        bool, _asked("Run and report", "Ask for failed samples again.", name="--retry-failed")
    ] = False,
    config: Annotated[
        Path | None,
        _asked("Run and report", "TOML file; a run's own config.toml repeats the run.", metavar="FILE"),
    ] = None,
    print_config: Annotated[
        bool,
        _asked("Run and report", "Print the configuration, every key explained, and stop.", name="--print-config"),
    ] = False,
    against_paper: Annotated[
        bool,
        _asked("Run and report", "Show the paper's figures for this model, or all.", name="--against-paper"),
    ] = False,
    paper_row: Annotated[
        str | None,
        _asked("Run and report", "Show the paper's figures for this model of its tables.", metavar="NAME"),
    ] = None,
) -> None:
    """Evaluate any model on a benchmark or an environment.

    Every sample is saved as it comes: an interrupted evaluation goes on where it stopped. Status 1: nothing was
    answered, or something could not be scored; 2: a mistake of the user; 130: interrupted.
    """
    from .configuration import documented_toml, load_toml
    from .evals import config as configs
    from .evals import session

    given = {
        "env": env, "model": model, "base_url": base_url, "answers": _text(answers), "data": data,
        "prompt": _text(prompt), "limit": limit, "n": n, "temperature": temperature, "top_p": top_p,
        "max_tokens": max_tokens, "seed": seed, "stop": stop, "system": system, "completions": completions or None,
        "api_key_env": api_key_env, "concurrency": concurrency, "timeout": timeout, "retries": retries,
        "engine": engine, "device": device, "price_in": price_in, "price_out": price_out,
        "options": configs.options(option), "extra_body": configs.json_object(extra_body),
    }  # fmt: skip
    flags: dict = {k: v for k, v in given.items() if v is not None}
    if resume is not None:
        if config or out:
            raise GymError("--resume goes on with the run's own configuration: leave --config and --out out")
        resolved = session.resume_config(resume, flags)
    else:
        resolved = configs.resolve(load_toml(config) if config else {}, flags)
    if print_config:
        typer.echo(documented_toml(resolved))
        return
    outcome = session.evaluate(
        resolved,
        resume or out,
        retry_failed=retry_failed,
        paper=against_paper,
        paper_row=paper_row or "",
    )
    if not outcome.finished:
        raise typer.Exit(130)
    if outcome.summary is not None and (not outcome.summary["answered"] or outcome.summary["not_scored"]):
        raise typer.Exit(1)


@app.command()
def rescore(
    run: Annotated[Path, typer.Argument(help="Run folder of an evaluation.")],
    option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="An option of the benchmark in the place of the run's own; may be given again.",
            show_default="none",
        ),
    ] = None,
) -> None:
    """Score an evaluation's saved replies anew, without asking the model.

    Status 1: some could not be scored.
    """
    from .evals import config as configs
    from .evals.rescore import rescore as score_anew

    outcome = score_anew(run, configs.options(option))
    if not outcome.finished:
        raise typer.Exit(130)
    if outcome.summary is not None and outcome.summary["not_scored"]:
        raise typer.Exit(1)


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


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


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
