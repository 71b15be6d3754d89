"""Configurations that come with the package: the paper's trainings, one file per training and model.

A recipe is a TOML file of `corrgrpo-gym train`. It may name another that it builds on (`extends = "leetcode"`).
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...configuration import load_toml, merge
from ...errors import GymError, unknown

FOLDER = Path(__file__).resolve().parent


@dataclass(frozen=True, slots=True)
class Recipe:
    """What `corrgrpo-gym recipes` says of a recipe.

    Attributes:
        name: What `--config` takes.
        env: Environment.
        model: Hub id.
        description: First line of the file, or of the one that it builds on.
    """

    name: str
    env: str
    model: str
    description: str


def names() -> list[str]:
    """Names of the recipes that have a model, and so can be run as they are."""
    return sorted(path.stem for path in FOLDER.glob("*.toml") if "model" in load_toml(path))


def recipes() -> list[Recipe]:
    """All that can be run, by name."""
    found = []
    for name in names():
        values = load(name)
        first = (FOLDER / f"{load_toml(FOLDER / f'{name}.toml')['extends']}.toml").read_text().splitlines()[0]
        found.append(Recipe(name, values["env"], values["model"], first.removeprefix("#").strip()))
    return found


def load(what: str | Path) -> dict[str, Any]:
    """Read a configuration: a file, a run folder, or a recipe by name (`NAME` or `recipes/NAME.toml`).

    Raises:
        GymError: There is neither such a file nor such a recipe, or it can't be read.
    """
    path = Path(what)
    if not path.exists():
        name = path.name.removesuffix(".toml")
        if (FOLDER / f"{name}.toml").is_file() and path.parent in (Path(), Path("recipes")):
            path = FOLDER / f"{name}.toml"
        elif path.suffix == ".toml" and path.parent not in (Path(), Path("recipes")):
            raise GymError(f"cannot read the configuration {path}: there is no such file")
        else:
            raise GymError(f"{what} is neither a file nor a recipe: {unknown('recipe', name, names())}")
    return _built(path, ())


def _built(path: Path, seen: tuple[Path, ...]) -> dict[str, Any]:
    values = load_toml(path)
    base = values.pop("extends", None)
    if base is None:
        return values
    if not isinstance(base, str):
        raise GymError(f"{path}: extends is {base!r}; it should name a file beside this one, or a recipe")
    places = [path.parent / base, path.parent / f"{base}.toml", FOLDER / f"{base}.toml"]
    below = next((place.resolve() for place in places if place.is_file()), None)
    if below is None:
        raise GymError(f"{path}: extends = {base!r}, but there is no such file beside it and no such recipe")
    if below in (*seen, path.resolve()):
        raise GymError(f"{path}: extends = {base!r} leads in a circle")
    return merge(_built(below, (*seen, path.resolve())), values)
