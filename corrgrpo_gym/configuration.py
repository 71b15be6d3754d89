"""What the configurations of all commands share: TOML in and out, layers, and errors that name the nearest key."""

import tomllib
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

import tomli_w
from pydantic import BaseModel, ConfigDict, ValidationError

from .errors import GymError, unknown


class Section(BaseModel):
    """A table of a configuration; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, validate_default=True, allow_inf_nan=False)


AnySection = TypeVar("AnySection", bound=Section)


def load_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file, or a run folder's config.toml. Raises GymError naming the file and the line."""
    if path.is_dir():
        path = path / "config.toml"
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as e:
        raise GymError(f"cannot read the configuration {path}: {e.strerror}") from e
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as e:
        raise GymError(f"{path} is not valid TOML: {e}") from e
    except RecursionError:
        raise GymError(f"{path} is nested too deep") from None


def to_toml(config: Section) -> str:
    """The configuration as a TOML text that `load_toml` reads back."""
    return tomli_w.dumps(config.model_dump(mode="json", exclude_none=True))


def merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Return base with over laid on it, table by table."""
    out = dict(base)
    for key, value in over.items():
        old = out.get(key)
        out[key] = merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return out


def parse_assignment(text: str, flag: str = "--set", example: str = "update.lr=1e-6") -> dict[str, Any]:
    """Turn `a.b=c` into nested tables; c is a TOML value, or else a string."""
    key, eq, value = text.partition("=")
    path = [part.strip() for part in key.split(".")]
    if not eq or not all(path):
        raise GymError(f"{flag} {text!r}: expected KEY=VALUE, such as {example}")
    try:
        parsed: Any = tomllib.loads(f"x = {value.strip()}")["x"]
    except (tomllib.TOMLDecodeError, RecursionError):
        parsed = value.strip()
    for part in reversed(path):
        parsed = {part: parsed}
    return parsed


def checked(kind: type[AnySection], values: dict[str, Any]) -> AnySection:
    """Check a configuration. Raises GymError listing every wrong key, each with the nearest known one."""
    try:
        return kind.model_validate(values)
    except ValidationError as e:
        raise GymError("\n".join(_explain(kind, err) for err in e.errors())) from None


def _explain(kind: type[BaseModel], err: Any) -> str:
    path = [str(p) for p in err["loc"]]
    where = ".".join(path)
    if err["type"] == "extra_forbidden":
        table = kind
        for part in path[:-1]:
            annotation = table.model_fields[part].annotation
            assert isinstance(annotation, type) and issubclass(annotation, BaseModel)
            table = annotation
        prefix = "".join(f"{p}." for p in path[:-1])
        elsewhere = [key for key in _keys(kind) if key.split(".")[-1] == path[-1]]
        if elsewhere:
            return f"unknown configuration key {where!r}. Did you mean {' or '.join(map(repr, elsewhere))}?"
        return unknown("configuration key", where, [prefix + name for name in table.model_fields])
    got = err.get("input")
    return f"configuration key {where}: {err['msg']} (got {got!r})"


def _keys(table: type[BaseModel], prefix: str = "") -> list[str]:
    """Every key below a table, dotted."""
    out = []
    for name, field in table.model_fields.items():
        inner = field.annotation
        nested = isinstance(inner, type) and issubclass(inner, BaseModel)
        out += _keys(inner, f"{prefix}{name}.") if nested else [prefix + name]  # type: ignore[arg-type]
    return out


def differences(a: Section, b: Section) -> list[str]:
    """The keys, dotted, in which two configurations differ."""
    one, other = flat(a.model_dump(mode="json")), flat(b.model_dump(mode="json"))
    return sorted(key for key in one.keys() | other.keys() if one.get(key) != other.get(key))


def flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables as one, with dotted keys."""
    out: dict[str, Any] = {}
    for key, value in values.items():
        out |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return out


def documented_toml(config: Section) -> str:
    """The configuration as TOML with what each key means above it."""
    lines: list[str] = []

    def table(section: BaseModel, prefix: str) -> None:
        dump = section.model_dump(mode="json")
        later = []
        for name, field in type(section).model_fields.items():
            value = getattr(section, name)
            if isinstance(value, BaseModel):
                later.append((name, value))
                continue
            choices = get_args(field.annotation) if getattr(field.annotation, "__origin__", None) is Literal else ()
            note = f" One of: {', '.join(map(str, choices))}." if choices else ""
            lines.append(f"# {field.description or name}{note}")
            if dump[name] is None:
                lines.append(f"# {name} =")
            else:
                lines.append(f"{name} = {_inline(dump[name])}")
        for name, value in later:
            lines.append(f"\n[{prefix}{name}]")
            table(value, f"{prefix}{name}.")

    table(config, "")
    return "\n".join(lines) + "\n"


def _inline(value: Any) -> str:
    """A TOML value on one line."""
    if isinstance(value, dict):
        body = ", ".join(f"{_inline(key)} = {_inline(v)}" for key, v in value.items())
        return "{" + (f" {body} " if body else "") + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_inline, value)) + "]"
    return tomli_w.dumps({"x": value}).removeprefix("x = ").rstrip("\n")
