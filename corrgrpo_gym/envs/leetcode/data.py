"""Where the problems come from: the embedded family, the hub (or its cache), a folder or a file."""

import logging
import re
from pathlib import Path
from typing import NamedTuple

from ...errors import GymError
from .. import hub
from ..rows import read_file
from .embedded import embedded_rows
from .problem import Problem, parse_row

_log = logging.getLogger(__name__)
_FILE = re.compile(
    r"(?:LeetCodeDataset-)?(?:v(?P<version>[\d.]+)-)?(?P<split>train|test)(?P<first>-problems)?\.jsonl(?P<gz>\.gz)?",
    re.I,
)
_REPOSITORY = "newfacade/LeetCodeDataset"
_REVISION = "215604aeed660029df7de2fea5a4d7b6ed476a08"  # v0.3.1
_INSTEAD = "Pass data=PATH (a folder with its files) or data='embedded' to do without."
_SPLIT_WORD = re.compile(r"(?<![A-Za-z])(train|test)(?![A-Za-z])", re.I)


class Loaded(NamedTuple):
    """Problems, a note that says which data these are and why, and whether they are the embedded ones."""

    problems: list[Problem]
    note: str
    embedded: bool = False


def load_problems(data: str | Path | None, split: str) -> Loaded:
    """Load one split.

    Args:
        data: None or "auto" (the hub's cache, the hub, else the embedded family), "embedded", "hub", or a
            path: a folder with the published files, or one .jsonl or .jsonl.gz file.
        split: "train" or "test".

    Raises:
        GymError: data that can't be found, reached or read, that lack the split, or that have a bad row (the
            message names file and row).
    """
    if data is None or data == "auto":
        return _auto(split)
    if data == "embedded":
        return _embedded(split, 'data = "embedded"')
    if data == "hub":
        path, where = _fetch(split)
        return _from_file(path, f"hub: {where}")
    path = Path(data).expanduser()
    if not path.exists():
        raise GymError(
            f"leetcode: there is no file or folder {str(data)!r}; data takes 'auto', 'embedded', 'hub' or a "
            "path to LeetCodeDataset's .jsonl or .jsonl.gz files"
        )
    return _from_file(_split_file(path, split) if path.is_dir() else _holds(path, split), "path")


def _fetch(split: str) -> tuple[Path, str]:
    return hub.fetch(_REPOSITORY, f"LeetCodeDataset-{split}.jsonl", revision=_REVISION, instead=_INSTEAD)


def _auto(split: str) -> Loaded:
    try:
        path, where = _fetch(split)
    except hub.Unreachable as error:
        reason = str(error)
    else:
        return _from_file(path, f"hub: {where}")
    _log.warning("leetcode: %s Using the embedded problems instead.", reason)
    return _embedded(split, reason)


def _embedded(split: str, why: str) -> Loaded:
    problems = [parse_row(row) for row in embedded_rows(split)]
    return Loaded(problems, f"embedded: {len(problems)} problems of the package's own family ({why})", True)


def _split_file(folder: Path, split: str) -> Path:
    """Choose the split's file in a folder: one without a version (as on the hub) first, else the newest."""
    found = [(match, path) for path in folder.iterdir() if (match := _FILE.fullmatch(path.name))]
    wanted = [(match, path) for match, path in found if match["split"].lower() == split]
    if not wanted:
        held = ", ".join(sorted(path.name for _, path in found))
        raise GymError(
            f"leetcode: {folder} has no file of split {split!r} (LeetCodeDataset-{split}.jsonl, .jsonl.gz or "
            f"with a version, LeetCodeDataset-v0.3.1-{split}.jsonl.gz). "
            + (f"It holds {held}." if held else "Pass the folder that holds them, or one file.")
        )

    def rank(item: tuple[re.Match[str], Path]) -> tuple[bool, bool, list[int], bool]:
        match = item[0]
        version = [int(part) for part in (match["version"] or "").split(".") if part]
        # "v2-train-problems" came before v0.2.0.
        return match["version"] is None, match["first"] is None, version, match["gz"] is None

    return max(wanted, key=rank)[1]


def _holds(path: Path, split: str) -> Path:
    """Return the file unless its name says that it holds the other split."""
    words = {word.lower() for word in _SPLIT_WORD.findall(path.name)}
    if words and split not in words:
        (other, *_) = words
        raise GymError(
            f"leetcode: {path} holds the {other} split, not {split!r}; pass the folder that holds both, or "
            f"the {split} file"
        )
    return path


def _from_file(path: Path, source: str) -> Loaded:
    problems, repeats = read_problems(path)
    note = f"{source}: {len(problems)} problems of {path}"
    return Loaded(problems, note + (f" ({repeats} repeated rows left out)" if repeats else ""))


def read_problems(path: Path) -> tuple[list[Problem], int]:
    """Read and check every row of a file.

    Returns:
        The problems in the file's order, and how many rows repeated an earlier one and were left out: v0.2.0
        has some problems twice, under two question ids.

    Raises:
        GymError: the file can't be read or is empty, or a row is bad or has the id of another one.
    """
    problems: dict[str, Problem] = {}
    first: dict[str, int] = {}
    repeats = 0
    for number, row in read_file(path):
        try:
            problem = parse_row(row)
        except ValueError as error:
            name = row.get("task_id") if isinstance(row, dict) else None
            label = f" ({name})" if isinstance(name, str) and name else ""
            raise GymError(f"{path}:{number}{label}: {error}; fix or remove the row") from None
        if problem.task_id not in problems:
            problems[problem.task_id], first[problem.task_id] = problem, number
        elif _same_task(problem, problems[problem.task_id]):
            repeats += 1
        else:
            raise GymError(
                f"{path}:{number}: task_id {problem.task_id!r} is that of line {first[problem.task_id]}, "
                "which is another problem; ids must differ"
            )
    if not problems:
        raise GymError(f"{path} has no rows; it should have one JSON object a line")
    return list(problems.values()), repeats


def _same_task(one: Problem, other: Problem) -> bool:
    return (one.query, one.entry_point, one.test) == (other.query, other.entry_point, other.test)
