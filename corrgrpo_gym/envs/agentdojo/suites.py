"""The suites: their tools, and environments with injected texts, which are built once and copied."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from ..once import Once
from . import upstream

# Built environments that are kept, by suite and injected texts.
BUILT = 64


class Suite:
    """A suite of the benchmark version.

    Attributes:
        name: workspace, travel, banking or slack.
        user_tasks: the package's user tasks by id.
        injection_tasks: its injection tasks by id.
        functions: its tools by name (`agentdojo.functions_runtime.Function`).
        schemas: the tools as chat completions take them.
        official: the package's `TaskSuite`; it builds environments as this object does.
    """

    def __init__(self, official: Any):
        self.official = official
        self.name: str = official.name
        self.user_tasks: Mapping[str, Any] = official.user_tasks
        self.injection_tasks: Mapping[str, Any] = official.injection_tasks
        self.functions: Mapping[str, Any] = {tool.name: tool for tool in official.tools}
        self.schemas = tuple(_schema(tool) for tool in official.tools)
        self._template = _Template(official)
        self._built: Once[Any] = Once(BUILT)
        official.load_and_inject_default_environment = self.environment
        official.get_injection_vector_defaults = lambda: dict(self._template.defaults)

    def environment(self, injections: Mapping[str, str]) -> Any:
        """Make an environment in which texts are injected; it is the caller's own.

        Args:
            injections: texts by the name of the place; other places keep their default text.

        Raises:
            ValueError: there is no such place in this suite.
        """
        return self.pristine(injections).model_copy(deep=True)

    def pristine(self, injections: Mapping[str, str]) -> Any:
        """As `environment`, but shared: it must not be changed."""
        key = tuple(sorted(injections.items()))
        return self._built.get(key, lambda: self._template.build(injections))


@dataclass(frozen=True, slots=True)
class _Place:
    """A text of the environment that holds places to inject into.

    Attributes:
        path: from the environment to the object that holds the text.
        key: of the text in that object.
        source: the text as a YAML scalar with {places}.
    """

    path: tuple[Any, ...]
    key: Any
    source: str


class _Template:
    """An environment as its YAML file describes it, with places to inject texts into.

    Upstream puts the texts into the YAML file and reads all of it, which takes 200 ms. Here the file is read once, with
    a mark in each place; to build one, the scalars that hold a place are read alone, and put into a copy.
    """

    def __init__(self, official: Any):
        folder = upstream.folder() / "data/suites" / official.name
        vectors = _read(folder / "injection_vectors.yaml")
        self.defaults: Mapping[str, str] = {name: vector["default"] for name, vector in vectors.items()}
        text = _quoted(_read(folder / "environment.yaml"))
        marks = {name: f"\u2042{hashlib.sha256(name.encode()).hexdigest()}" for name in self.defaults}
        self._base = official.environment_type.model_validate(_load(text.format(**marks)))
        sources = {_load(source.format(**marks)): source for source in _scalars(text)}
        self._places = tuple(
            _Place(path, key, sources[value]) for path, key, value in _texts(self._base) if value in sources
        )
        if len({place.source for place in self._places}) != len(sources):
            raise RuntimeError(f"agentdojo {official.name}: a text to inject into was lost")

    def build(self, injections: Mapping[str, str]) -> Any:
        for name in injections:
            if name not in self.defaults:
                raise ValueError(f"there is no place {name!r} to inject into")
        texts = {**self.defaults, **injections}
        environment = self._base.model_copy(deep=True)
        for place in self._places:
            holder = environment
            for step in place.path:
                holder = _get(holder, step)
            text = _load(place.source.format(**texts))
            if isinstance(holder, dict | list):
                holder[place.key] = text
            else:
                setattr(holder, place.key, text)
                # What the class computes from its fields.
                if hasattr(holder, "compute_size"):
                    holder.compute_size()
        return environment


def _schema(tool: Any) -> dict[str, Any]:
    parameters = tool.parameters.model_json_schema()
    function = {"name": tool.name, "description": tool.description, "parameters": parameters}
    return {"type": "function", "function": function}


def _read(path: Path) -> Any:
    loader = upstream.module("yaml_loader").ImportLoader
    import yaml

    with path.open() as file:
        return yaml.load(file, loader)


def _quoted(data: Any) -> str:
    """YAML in which every text is in double quotes, as upstream injects into it."""
    import yaml

    class Quoting(yaml.Dumper):
        pass

    Quoting.add_representer(str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"'))
    return yaml.dump(data, Dumper=Quoting, default_flow_style=False)


def _load(text: str) -> Any:
    import yaml

    return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def _scalars(text: str) -> Iterator[str]:
    """The scalars of a YAML text that hold places, as they are written."""
    import yaml

    for event in yaml.parse(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        if isinstance(event, yaml.ScalarEvent) and "{" in event.value:
            yield text[event.start_mark.index : event.end_mark.index]


def _texts(holder: Any, path: tuple[Any, ...] = (), seen: set[int] | None = None) -> Iterator[tuple[Any, Any, str]]:
    """All texts in a model, with the way to what holds them; what is held twice comes once."""
    seen = set() if seen is None else seen
    if id(holder) in seen:
        return
    seen.add(id(holder))
    if isinstance(holder, dict):
        items = list(holder.items())
    elif isinstance(holder, list):
        items = list(enumerate(holder))
    elif hasattr(type(holder), "model_fields"):
        items = [(name, getattr(holder, name)) for name in type(holder).model_fields]
    else:
        return
    for key, value in items:
        if isinstance(value, str):
            yield path, key, value
        else:
            yield from _texts(value, (*path, key), seen)


def _get(holder: Any, step: Any) -> Any:
    return holder[step] if isinstance(holder, dict | list) else getattr(holder, step)


_lock = Lock()
_suites: dict[str, Suite] = {}


def suites() -> Mapping[str, Suite]:
    """The four suites by name, in the order of the package; loaded once per process.

    Raises:
        GymError: the package is not installed, or not in the version that is needed.
    """
    with _lock:
        if not _suites:
            loaded = {name: Suite(official) for name, official in upstream.load().items()}
            _suites.update(loaded)
    return _suites
