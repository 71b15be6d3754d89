"""The suites of the package agentdojo, loaded without the model SDKs that the package asks for.

The package's own `agent_pipeline/__init__.py` imports every SDK that it has a pipeline for (290 MB), though suites,
checkers and attacks need none. So its modules are loaded a second time under the private name `_NAME`, where that
file is passed over: an import of `agentdojo` by anybody else, before or after, is not touched by any of this.
"""

import builtins
import datetime
import importlib
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from threading import Lock
from types import ModuleType, SimpleNamespace
from typing import Any

from ...errors import GymError

VERSION = "0.1.35"
BENCHMARK = "v1.2.2"
INSTALL = f"pip install 'corrgrpo-gym[agentdojo]' && pip install --no-deps agentdojo=={VERSION}"
# When mails are sent and files are changed: a day of the suites', so that an episode is the same whenever it is run.
NOW = datetime.datetime(2024, 5, 15, 12, 0)
_NAME = "_corrgrpo_gym_agentdojo"
_PASSED_OVER = f"{_NAME}.agent_pipeline"
_SDK_CONSTANT = f"{_NAME}.agent_pipeline.llms.google_llm"
_lock = Lock()


def module(name: str) -> Any:
    """Import a module of the package ("task_suite.load_suites"), as a private copy.

    Raises:
        GymError: the package, or something that it needs, is not installed, or is another version.
    """
    with _lock:
        if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
            _check_version()
            # In front: the ordinary finder would find them too, from the second level on.
            sys.meta_path.insert(0, _Finder())
        try:
            return importlib.import_module(f"{_NAME}.{name}")
        except ModuleNotFoundError as error:
            raise GymError(f"agentdojo needs the package {error.name!r}. Install it with: {INSTALL}") from error


def folder() -> Path:
    """Where the package is installed, whatever else is called agentdojo."""
    return Path(str(metadata.distribution("agentdojo").locate_file("agentdojo")))


def load() -> dict[str, Any]:
    """Load the four suites of the benchmark version.

    Returns:
        The package's `TaskSuite` objects by name.

    Raises:
        GymError: as `module`.
    """
    import yaml

    strings = yaml.Dumper.yaml_representers[str]
    suites: dict[str, Any] = module("task_suite.load_suites").get_suites(BENCHMARK)
    # Importing the package changes how `yaml.dump` writes every text in this process; our suites don't need that.
    yaml.Dumper.add_representer(str, strings)
    clock = SimpleNamespace(**{**vars(datetime), "datetime": _Clock()})
    for name in ("email_client", "cloud_drive_client"):
        module(f"default_suites.v1.tools.{name}").datetime = clock
    return suites


def _check_version() -> None:
    try:
        version = metadata.version("agentdojo")
    except metadata.PackageNotFoundError:
        raise GymError(
            f"the environment agentdojo needs the package agentdojo {VERSION}, without the model SDKs that it asks "
            f"for. Install it with: {INSTALL}"
        ) from None
    if version != VERSION:
        raise GymError(
            f"the environment agentdojo is made for version {VERSION} of the package agentdojo, and {version} is "
            f"installed: its cases would be others. Install it with: {INSTALL}"
        )


class _Clock:
    """The class datetime.datetime, but for `now`."""

    def now(self, tz: datetime.tzinfo | None = None) -> datetime.datetime:
        return NOW.replace(tzinfo=tz)

    def __call__(self, *args: Any, **kwargs: Any) -> datetime.datetime:
        return datetime.datetime(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(datetime.datetime, name)


class _Finder(MetaPathFinder):
    """Finds modules of the private copy where the package has them."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] != _NAME:
            return None
        if path is None:
            path = [str(folder().parent)]
        for holder in path:
            place = Path(holder) / ("agentdojo" if fullname == _NAME else fullname.rpartition(".")[2])
            for file in (place / "__init__.py", place.with_name(f"{place.name}.py")):
                if file.is_file():
                    loader = _Loader(fullname, str(file))
                    return spec_from_file_location(
                        fullname,
                        file,
                        loader=loader,
                        submodule_search_locations=[str(place)] if file.parent == place else None,
                    )
            if place.is_dir():
                spec = ModuleSpec(fullname, None, is_package=True)
                spec.submodule_search_locations = [str(place)]
                return spec
        return None


class _Loader(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        if module.__name__ == _PASSED_OVER:
            return
        if module.__name__ == _SDK_CONSTANT:
            # All that the others want of it. No tool has this name.
            module.__dict__["EMPTY_FUNCTION_NAME"] = "<empty-function-name>"
            return
        module.__dict__["__builtins__"] = _BUILTINS
        super().exec_module(module)


def _import(
    name: str,
    globals: Mapping[str, Any] | None = None,
    locals: Mapping[str, Any] | None = None,
    fromlist: Sequence[str] | None = (),
    level: int = 0,
) -> ModuleType:
    if level == 0 and name.partition(".")[0] == "agentdojo":
        name = _NAME + name.removeprefix("agentdojo")
    return builtins.__import__(name, globals, locals, fromlist or (), level)


_BUILTINS = {**vars(builtins), "__import__": _import}
