"""The paper's figures (paper_results.json: CorrGRPO, arXiv 2609.36820, tables 1-3), to stand beside ours."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from ..errors import GymError, unknown


@dataclass(frozen=True, slots=True)
class PaperRow:
    """What the paper has for one model.

    Attributes:
        model: its name there.
        methods: base, and the algorithms that trained it.
        figures: in percent, by our column and method.
    """

    model: str
    methods: tuple[str, ...]
    figures: Mapping[str, Mapping[str, float]]


def paper_rows(columns: Mapping[str, str], model: str, wanted: str = "") -> list[PaperRow]:
    """Find the rows of the paper that go with an evaluation.

    Args:
        columns: the paper's column by ours, as `Benchmark.paper`.
        model: what was evaluated; a name that holds one of the paper's (such as a hub id) picks its row.
        wanted: the paper's name of a model, to pick its row in any case.

    Returns:
        The model's row; all rows where none is its own.

    Raises:
        GymError: the paper has no figures for this benchmark, or no such model.
    """
    rows = [row for table in _tables() for row in _rows(table, columns)]
    if not rows:
        raise GymError("--against-paper: the paper has no figures for this benchmark")
    if wanted:
        if wanted not in {row.model for row in rows}:
            raise GymError(f"--paper-row: {unknown('model of the paper', wanted, {row.model for row in rows})}")
        return [row for row in rows if row.model == wanted]
    # The longest name: Qwen3-8B is not Qwen3-8B-Base's.
    own = [row for row in rows if row.model.lower() in model.lower()]
    return sorted(own, key=lambda row: -len(row.model))[:1] or rows


def _tables() -> list[dict[str, Any]]:
    text = resources.files(__package__).joinpath("paper_results.json").read_text()
    return [table for table in json.loads(text).values() if isinstance(table, dict)]


def _rows(table: dict[str, Any], columns: Mapping[str, str]) -> list[PaperRow]:
    places = {ours: table["columns"].index(theirs) for ours, theirs in columns.items() if theirs in table["columns"]}
    if not places:
        return []
    return [
        PaperRow(
            model,
            tuple(methods),
            {ours: {m: values[place] for m, values in methods.items()} for ours, place in places.items()},
        )
        for model, methods in table["rows"].items()
    ]
