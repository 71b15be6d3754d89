"""API-Bank (Li et al. 2023): the next API call of a dialogue, in three levels.

Level 1: the APIs are described in the prompt. Level 2: they must be searched for first. Level 3: several calls for one
wish, each a turn with the right calls before it.

Columns: v1, v2, v3, the share of turns that are right at each level, and their mean, avg; level 3 also by dialogue: all
calls of one right. `metric`:

- all_exact (default): exactly one call; its name equal; its parameters equal as dictionaries. Texts that are lists or
  dicts become that on both sides; otherwise types are not coerced.
- execution: the call does to API-Bank's databases, and gives back, what the label does (see `api_bank_execution`),
  after the calls that the dialogue holds. Where the label itself has no outcome there, the arguments decide.

`prompt`: rlla (default), the system message of RLLA with the turn's APIs as its tools and the dialogue as its history;
or official, API-Bank's instruction and input. Answers are read in the prompt's way of writing calls, and in the other
where that finds none; native calls count as well. With the rlla prompt an answer with a call in tags that can't be read
has failed, whatever stands beside it: two calls were made, and the benchmark asks for one.
"""

import csv
import io
import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...envs.rlla.rewards import same
from ...envs.tool_calls import Call, parse
from ...errors import GymError, unknown
from ..benchmark import Benchmark, Case, Score
from ..files import Files, Layout
from ..metrics import NOTHING, Column, Estimate, Sample, average, mean
from ..models.base import Reply
from .api_bank_execution import ApiBankTools
from .api_bank_text import as_rlla, calls_of, plain, rlla_answer, turns_of

LEVELS = {"v1": ("level-1-api.json", "expected_output"), "v2": ("level-2-api.json", "expected_output"),
          "v3": ("level-3-batch-inf.json", "output")}  # fmt: skip
LAYOUT = Layout("api_bank", "api-bank", "https://github.com/AlibabaResearch/DAMO-ConvAI")
PROMPTS = ("rlla", "official")
METRICS = ("all_exact", "execution")


class ApiBank(Benchmark):
    """See the module."""

    name = "api-bank"

    def __init__(self, data: str | Path | None = None, *, prompt: str = "rlla", metric: str = "all_exact") -> None:
        """Load the three levels.

        Args:
            data: the path of a folder with API-Bank's files (level-1-api.json and so on, packed by gzip or not).
            prompt: "rlla" or "official".
            metric: "all_exact" or "execution".

        Raises:
            GymError: bad options or data; labels that can't be read are named.
        """
        for name, value, known in (("prompt", prompt, PROMPTS), ("metric", metric, METRICS)):
            if value not in known:
                raise GymError(f"api-bank: {unknown(name, value, known)}")
        files = Files(LAYOUT, data)
        self.note = files.note
        self._official = prompt == "official"
        self._tools = _tools(files) if metric == "execution" else None
        self.cases = [
            self._case(level, number, row)
            for level, (name, _) in LEVELS.items()
            for number, row in enumerate(files.json(name))
        ]
        self.settings = {"prompt": prompt, "metric": metric, "data": files.digest}
        levels = [mean("right", group=level) for level in LEVELS]
        by_level = zip(LEVELS, levels, strict=True)
        turns = Counter(case.cluster for case in self.cases if case.group == "v3")
        self.columns = [
            *(Column(name, f"turns of level {name[1]} that are right", by) for name, by in by_level),
            Column("avg", "mean of the three", average(*levels)),
            Column("v3_dialogue", "dialogues of level 3 with every call right", _Dialogues(turns)),
        ]
        if metric == "all_exact":
            self.paper = {name: f"api_bank_{name}" for name in (*LEVELS, "avg")}
        self.caveats = [
            "the paper's text says all-exact, its project page an execution-based checker: --option metric=execution",
            "numbers that an answer gives as numbers are not equal to the labels' texts",
        ]
        if metric == "execution":
            self.caveats = [
                self.caveats[0],
                "the tool search goes by words, API-Bank's by sentence embeddings: in the recorded dialogues ours "
                "finds a recorded API for 18 of 45 keywords, so the 159 turns that search are judged by a stand-in",
                "APIs without a database have their arguments as outcome; so do 11 labels that fail on the databases",
            ]

    def _case(self, level: str, number: int, row: Any) -> Case:
        try:
            label = row[LEVELS[level][1]]
            calls = calls_of(label)
            instruction, dialogue = str(row["instruction"]), str(row["input"])
            tools = _described(f"{instruction}\n{dialogue}")
        except (KeyError, TypeError, ValueError) as error:
            raise GymError(f"api-bank: {LEVELS[level][0]}, row {number}: {type(error).__name__} {error}") from None
        if len(calls) != 1 or not tools:
            raise GymError(f"api-bank: {LEVELS[level][0]}, row {number}: label or APIs can't be read: {label!r}")
        turns = turns_of(dialogue)
        if self._official:
            system, user = instruction.strip(), dialogue.strip()
            reference = f"API-Request: [{label.partition('[')[2]}"
        else:
            system, user = as_rlla(tools, turns)
            reference = rlla_answer(calls)
        group = f"dialogue {row['sample_id']}" if level == "v3" else str(row.get("file", number))
        return Case(
            id=f"{level}/{row['sample_id']}-{row['api_id']}" if level == "v3" else f"{level}/{row['file']}/{row['id']}",
            messages=({"role": "system", "content": system}, {"role": "user", "content": user}),
            reference=reference,
            cluster=f"{level}/{group}",
            group=level,
            row=(
                calls[0],
                [call for who, said in turns if who.startswith("API") for call in _before(said)],
                {*calls[0].arguments, *(k for t in tools if t["name"] == calls[0].name for k in t["input_parameters"])},
            ),
        )

    def score(self, case: Case, replies: Sequence[Reply]) -> Score:
        """Compare the call with the label's."""
        wanted, before, known = case.row
        calls = self._calls(replies[-1])
        detail: dict[str, Any] = {"calls": len(calls)}
        right = len(calls) == 1 and calls[0].name == wanted.name
        if right and self._tools is None:
            right = same(plain(calls[0].arguments), plain(wanted.arguments))
        elif right:
            right, detail["by"] = self._same_outcome(calls[0], wanted, before)
            right = right and set(calls[0].arguments) <= known
        if not calls:
            detail["errors"] = [str(e) for e in parse(replies[-1].message).errors][:3]
        return Score({"right": float(right)}, detail)

    def _calls(self, reply: Reply) -> list[Call]:
        tagged = parse(reply.message, "auto")
        written = calls_of(tagged.text if not tagged.calls else "")
        if self._official and written:
            return written
        # What was begun in the prompt's way and can't be read is a call that failed, not a reason to look elsewhere.
        # API-Bank's own way is no Python where a text holds quotes.
        if tagged.errors and (tagged.calls or tagged.dialect != "pythonic"):
            return []
        return list(tagged.calls) or written

    def _same_outcome(self, call: Call, wanted: Call, before: Sequence[Call]) -> tuple[bool, str]:
        assert self._tools is not None
        tables = self._tools.tables
        for earlier in before:
            outcome = self._tools.run(earlier, tables)
            if outcome is not None:
                tables = tables | outcome.changes
        right, said = (self._tools.run(one, tables) for one in (wanted, call))
        if right is None:
            return same(plain(call.arguments), plain(wanted.arguments)), "arguments: the label has no outcome"
        return right == said, "outcome"


def _before(said: str) -> list[Call]:
    return calls_of(said.partition("->")[0])


def _described(text: str) -> list[dict[str, Any]]:
    """The APIs that lines of a prompt describe."""
    tools = []
    for line in text.splitlines():
        if line.startswith(('{"name"', '{"apiCode"')):
            about = json.loads(line)
            tools.append({
                "name": about.get("name") or about["apiCode"],
                "description": about["description"],
                "input_parameters": about.get("input_parameters", about.get("parameters", {})),
            })  # fmt: skip
    return tools


def _tools(files: Files) -> ApiBankTools:
    names = files.names("init_database")
    tables = {name.removesuffix(".json"): files.json(f"init_database/{name}") for name in names}
    library = {}
    for row in csv.DictReader(io.StringIO(files.text("all_apis.csv"))):
        about = row.get("api_info") or ""
        library[row["类名"]] = about.partition("input_parameters")[0].partition("=")[2].strip(' "\n')
    return ApiBankTools(tables, library)


@dataclass(frozen=True, slots=True)
class _Dialogues:
    """Level 3 by dialogue: the least right of its turns, samples of a turn averaged; where all turns are scored."""

    turns: Mapping[str, int]

    def __call__(self, samples: Sequence[Sample]) -> Estimate:
        found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for sample in samples:
            value = sample.values.get("right")
            if sample.group == "v3" and value is not None:
                found[sample.cluster][sample.case].append(float(value))
        whole = [
            Sample(name, name, "v3", {"right": min(sum(values) / len(values) for values in by_turn.values())})
            for name, by_turn in found.items()
            if len(by_turn) == self.turns[name]
        ]
        return mean("right")(whole) if whole else NOTHING
