"""RLLA's test split (ToolRL): function, parameter names and values over the rows whose label has calls.

Columns: function, param_name and param_value, the rewards of the environment (see `envs.rlla.rewards`) mapped linearly
to 0-100; all_exact: all three at their maximum; and format, over all rows, which the paper's tables leave out.
"""

from collections.abc import Sequence
from pathlib import Path

from ...envs.rlla import matched, well_formed
from ...envs.rlla.data import Dialogue, load_dialogues
from ...envs.tool_calls import parse
from ..benchmark import Benchmark, Case, Score
from ..data import digest_of
from ..metrics import Column, mean
from ..models.base import Reply


class Rlla(Benchmark):
    """See the module."""

    name = "rlla"

    def __init__(self, data: str | Path | None = None, *, split: str = "test", strict_reference: bool = False) -> None:
        """Load a split.

        Args:
            data: None, "auto" or "hub" (its cache, then the hub), "embedded" (the package's own tasks), or the path of
                a folder or file.
            split: "test", or "train".
            strict_reference: score as the reference code does, where it differs.

        Raises:
            GymError: bad options or data.
        """
        loaded = load_dialogues("hub" if data in (None, "auto") else data, split)
        self.note = loaded.note
        self._strict = strict_reference
        self.cases = [Case(d.task_id, d.messages, reference=d.label, row=d) for d in loaded.dialogues]
        self.settings = {
            "split": split,
            "strict_reference": strict_reference,
            "data": digest_of([(d.messages, d.label) for d in loaded.dialogues]),
        }
        self.columns = [
            Column("function", "names of the functions, of 100", mean("function")),
            Column("param_name", "names of the parameters, of 100", mean("param_name")),
            Column("param_value", "values of the parameters, of 100", mean("param_value")),
            Column("all_exact", "all three at their maximum", mean("all_exact")),
            Column("format", "the parts of the label, in order (all rows)", mean("format")),
        ]
        if not loaded.embedded:
            self.paper = {name: f"rlla_{name}" for name in ("function", "param_name", "param_value", "all_exact")}
        self.caveats = [
            "all but format are over the rows whose label has calls",
            "native calls count like those in the label's dialect",
        ]
        if not strict_reference:
            self.caveats.append("all blocks of calls are read, and empty parameters earn only with their function")

    def score(self, case: Case, replies: Sequence[Reply]) -> Score:
        """Compare the answer with the label."""
        dialogue: Dialogue = case.row
        message = replies[-1].message
        shares = matched(message, dialogue.calls, self._strict)
        exact = None if shares.function_name is None else float(shares == (1.0, 1.0, 1.0))
        parsed = parse(message, "tags")
        values = {
            "function": shares.function_name,
            "param_name": shares.parameter_name,
            "param_value": shares.parameter_value,
            "all_exact": exact,
            "format": float(well_formed(message, dialogue.label)),
        }
        return Score(values, {"errors": [str(e) for e in parsed.errors], "calls": len(parsed.calls)})
