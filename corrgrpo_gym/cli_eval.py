"""The commands `eval` and `rescore`: parse, call, print."""

from pathlib import Path
from typing import Annotated, Any

import typer

from .errors import GymError


def _asked(topic: str, text: str, default: str = "", metavar: str = "", name: str | None = None) -> Any:
    """An option of `eval`: its topic in the help, what it is, its default, and what stands for its value."""
    text = f"{text} [default: {default}]" if default else text
    names = (name,) if name else ()
    return typer.Option(*names, help=text, metavar=metavar, show_default=False, rich_help_panel=topic)


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


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)
