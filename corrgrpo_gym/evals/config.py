"""The configuration of `corrgrpo-gym eval`."""

import json
import math
from collections.abc import Sequence
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import Field

from ..configuration import Section, checked, merge, parse_assignment
from ..errors import GymError


class EvalConfig(Section):
    """All of an evaluation. A run folder's config.toml holds it; `--config` repeats it."""

    env: str
    """Benchmark, or environment: a registered name, package.module:thing, or file.py:thing."""
    model: str = ""
    """What an endpoint calls the model; or a folder, hub id or .gguf file; or `reference` for the gold answers."""
    base_url: str = ""
    """Address of an OpenAI-compatible endpoint, such as http://localhost:8000/v1."""
    answers: str = ""
    """Saved answers in the place of a model: JSON lines with `case`, `sample` and `answer`, or another run's folder."""
    data: str = "auto"
    """auto, hub, or a path."""
    options: dict[str, Any] = {}
    """Options of the benchmark or environment."""
    prompt: str = ""
    """A file with another prompt, for benchmarks that take one."""
    limit: int = Field(0, ge=0, lt=2**63)
    """Only the first cases; 0: all. A run can go on with a larger limit."""
    n: int = Field(1, ge=1, lt=2**63)
    """Samples per case. A run can go on with more."""
    temperature: float = Field(0.0, ge=0, le=1000.0)
    """0: greedy."""
    top_p: float = Field(1.0, gt=0, le=1)
    """Nucleus sampling: the smallest set of tokens with this much probability."""
    max_tokens: int = Field(2048, ge=0, lt=2**31)
    """Tokens of an answer, reasoning included; 0: what the endpoint allows."""
    seed: int = Field(0, ge=-1, lt=2**63)
    """Sample s of a case is drawn with seed + s; -1: no seed is sent."""
    stop: list[str] = []
    """Texts that end an answer."""
    system: str = ""
    """A system message in front; a benchmark's own system message follows in the same one."""
    extra_body: dict[str, Any] = {}
    """Further fields of the request to an endpoint."""
    completions: bool = False
    """Ask the endpoint for a plain completion of the messages' texts, for models without a chat template."""
    api_key_env: str = "OPENAI_API_KEY"
    """Environment variable with the endpoint's key; it may be unset for servers that want none."""
    concurrency: int = Field(0, ge=0, le=4096)
    """Requests at the same time, fewer while the endpoint says that it is too many; 0: 16 (a local model: 32)."""
    timeout: float = Field(600.0, gt=0, le=7 * 86400.0)
    """Seconds that a request may take."""
    retries: int = Field(8, ge=0)
    """Times that a request is sent again after failures that may pass."""
    scorers: int = Field(0, ge=0, le=1024)
    """Threads that score answers; 0: two per CPU."""
    engine: Literal["auto", "vllm", "transformers"] = "auto"
    """What samples from a local model; auto: vllm where it is installed and torch sees a GPU."""
    device: str = "auto"
    """Of a local model: cpu, cuda, cuda:1; auto: the first GPU, else the CPU."""
    price_in: float | None = Field(None, ge=0, le=1e9)
    """Price of a million prompt tokens, for the cost."""
    price_out: float | None = Field(None, ge=0, le=1e9)
    """Price of a million answer tokens."""


# What can change while a run goes on: none of it changes what a sample is answered or scores.
FREE = (
    "limit", "n", "api_key_env", "concurrency", "timeout", "retries", "scorers", "device", "price_in", "price_out",
)  # fmt: skip


def options(assignments: Sequence[str] | None) -> dict[str, Any] | None:
    """What `--option KEY=VALUE` says, given several times; None where it was not given."""
    if not assignments:
        return None
    values: dict[str, Any] = {}
    for text in assignments:
        values = merge(values, parse_assignment(text, "--option", "split=train"))
    return values


def json_object(text: str | None) -> dict[str, Any] | None:
    """What `--extra-body` says.

    Raises:
        GymError: it is no JSON object, or holds what a configuration file cannot.
    """
    if text is None:
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise GymError(f"--extra-body is not JSON: {e}") from e
    if not isinstance(value, dict):
        raise GymError(f'--extra-body is a JSON {type(value).__name__}, not an object such as {{"top_k": 20}}')
    if _has_null(value):
        raise GymError("--extra-body: null cannot be kept in a configuration file; leave that key out")
    return value


def _has_null(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_has_null, value.values()))
    return any(map(_has_null, value)) if isinstance(value, list) else value is None


def _unwritable(value: Any) -> str | None:
    """Say what keeps a value from a configuration file or a request; None where nothing does."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return "holds bytes that are not UTF-8"
    if isinstance(value, float) and not math.isfinite(value):
        return f"holds {value}, which is no finite number"
    inner = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else []
    return next((problem for item in inner if (problem := _unwritable(item)) is not None), None)


def address_problem(url: str) -> str | None:
    """Say what keeps a text from being the address of an endpoint; None where nothing does."""
    if any(c.isspace() or not c.isprintable() for c in url):
        return "it holds a space, a line end or the like"
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
        if host is not None:
            host.encode("idna")
    except ValueError as e:
        # Of the two, UnicodeError's own words say nothing to people.
        return "there is no such host name" if isinstance(e, UnicodeError) else str(e)
    if parts.scheme not in ("http", "https"):
        return "it does not begin with http:// or https://"
    return None if host else "it has no host"


def resolve(*layers: dict[str, Any]) -> EvalConfig:
    """Lay tables over each other, later ones first in rank, and check the result.

    Raises:
        GymError: a wrong key or value, or sources of answers that exclude each other.
    """
    values: dict[str, Any] = {}
    for layer in layers:
        values = merge(values, layer)
    if not values.get("env"):
        from .registry import names

        raise GymError(f"eval needs --env: {', '.join(names())}, or an environment of `corrgrpo-gym envs`")
    config = checked(EvalConfig, values)
    for key, value in config.model_dump().items():
        if (problem := _unwritable(value)) is not None:
            raise GymError(f"configuration key {key} {problem}")
    if config.answers and (config.model or config.base_url):
        raise GymError("--answers takes the place of a model: leave --model and --base-url out")
    if not (config.answers or config.model or config.base_url):
        raise GymError(
            "what shall answer? --base-url URL --model NAME (an OpenAI-compatible endpoint), --model PATH or hub id "
            "(local), --model reference (the gold answers), or --answers FILE"
        )
    if "@" in config.base_url.partition("?")[0] or "?" in config.base_url:
        raise GymError(
            "--base-url holds a user, a password or a query, which would be written to the run folder: put the key in "
            "an environment variable and name it by --api-key-env"
        )
    if config.base_url and (problem := address_problem(config.base_url)) is not None:
        raise GymError(f"--base-url {config.base_url!r} is not an address such as http://localhost:8000/v1: {problem}")
    for key in ("model", "messages", "prompt", "n", "stream", "tools"):
        if key in config.extra_body:
            raise GymError(f"--extra-body: {key!r} is what the evaluation itself says; leave it out")
    for key in ("completions", "extra_body"):
        if getattr(config, key) and not config.base_url:
            raise GymError(f"--{key.replace('_', '-')} is for endpoints: give --base-url")
    return config
