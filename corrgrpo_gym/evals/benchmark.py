"""What a benchmark is: cases with prompts, a scorer, and the columns of its table."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

from ..envs.chat import Message
from ..errors import NotScored
from .metrics import Column, Sample
from .models.base import Reply

# Why there is no score where an episode broke off (a tool that failed): only the model's next answer can tell.
UNFINISHED = "its saved replies do not end the episode: it is asked again by eval --resume RUN --retry-failed"


@dataclass(frozen=True, slots=True)
class Case:
    """One thing that a model is asked.

    Attributes:
        id: unique in the benchmark, and the same tomorrow.
        messages: the chat that opens it.
        tools: schemas of the tools that may be called natively; none where the prompt lists them.
        reference: a right answer as a model would write it (one per turn in a sequence); None where there is none.
        cluster: cases with the same one are not independent of each other (a user task under several attacks);
            empty: the case is its own.
        group: which part of the benchmark it belongs to (a level, a category), for columns.
        row: what the scorer needs.
    """

    id: str
    messages: tuple[Message, ...]
    tools: tuple[dict[str, Any], ...] = ()
    reference: str | Message | Sequence[str | Message] | None = None
    cluster: str = ""
    group: str = ""
    row: Any = None


class Caveat(str):
    """A caveat about some cases alone: reports leave it out where none of them took part.

    Args:
        text: the line; what is `listed` follows it.
        cases: ids of those cases; or a group of ids by the name that is shown for it.
        listed: whether the names follow.
    """

    def __new__(cls, text: str, cases: Collection[str] | Mapping[str, Collection[str]], listed: bool = False) -> Self:
        """The whole line, with all names."""
        groups = cases if isinstance(cases, Mapping) else {case: (case,) for case in cases}
        line = super().__new__(cls, text + ", ".join(groups) if listed else text)
        line._text, line._groups, line._listed = text, groups, listed
        return line

    def among(self, ids: Set[str]) -> str | None:
        """The line for cases that took part; None where it is about none of them."""
        names = [name for name, cases in self._groups.items() if not ids.isdisjoint(cases)]
        return None if not names else self._text + ", ".join(names) if self._listed else self._text

    _text: str
    _groups: Mapping[str, Collection[str]]
    _listed: bool


@dataclass(frozen=True, slots=True)
class Score:
    """What a sample earned. Plain data.

    Attributes:
        values: by metric; None where the sample is not eligible for it (the efficiency of a wrong program).
        detail: for people: what failed and why; JSON.
    """

    values: Mapping[str, float | None]
    detail: Mapping[str, Any] = field(default_factory=dict)


class Episode:
    """The course of one sample. This one is over after the first reply; multi-turn benchmarks have their own."""

    def __init__(self, case: Case):
        self.case = case

    def advance(self, reply: Reply) -> Sequence[Message] | None:
        """Take the model's answer; return the new messages (tool results), or None: it is over.

        An override is called in a thread of its own; it may raise what `Benchmark.score` may.
        """
        return None

    def score(self) -> Score | None:
        """The score of the episode that is over, where its course gave it already; else `Benchmark.score` does."""
        return None

    def cut(self) -> Score | None:
        """The score of an episode that ends because the model's context is used up; None: the sample has failed.

        Nothing is recorded but the replies so far: `Benchmark.score` must tell such an episode by its missing end.
        """
        return None

    def close(self) -> None:
        """Let go of what it holds; called once, also where the sample failed."""


class Scored(Protocol):
    """An episode whose course gives its score."""

    def advance(self, reply: Reply) -> Sequence[Message] | None: ...  # noqa: D102

    def score(self) -> Score: ...  # noqa: D102


def replay(episode: Scored, replies: Sequence[Reply]) -> Score:
    """Play saved replies again.

    Raises:
        NotScored: they do not end the episode.
    """
    for reply in replies:
        if episode.advance(reply) is None:
            return episode.score()
    raise NotScored(UNFINISHED)


class Benchmark(ABC):
    """A set of cases and what is measured on them. `score` is called from several threads at once.

    Attributes:
        name: what `--env` takes.
        note: which data these are, and from where, in a line.
        settings: plain data: all that changes prompts or scores (prompt variant, limits, a digest of the data). A run
            resumes with equal settings only.
        cases: in a fixed order.
        columns: of the table, in order.
        caveats: known faults of the data, and departures from upstream, a line each, for the report; a `Caveat` is
            about some cases alone.
        paper: keys of paper_results by column: where `--against-paper` finds the paper's figures.
        passing: the metric that is 1 for a right answer; the report names the cases in which it is not. By default the
            first column's; "-" where answers are graded and none is right or wrong.
    """

    name: str
    note: str = ""
    settings: Mapping[str, Any]
    cases: Sequence[Case]
    columns: Sequence[Column]
    caveats: Sequence[str] = ()
    paper: Mapping[str, str] = {}
    passing: str = ""

    def episode(self, case: Case) -> Episode:
        """Begin an episode; replies saved by an earlier run are replayed through a fresh one."""
        return Episode(case)

    @abstractmethod
    def score(self, case: Case, replies: Sequence[Reply]) -> Score:
        """Score the model's replies, one per turn.

        Raises:
            NotScored: it cannot be scored now (a lost verdict); the sample is recorded so, and can be rescored.
            GymError: the data or the machine are at fault; the evaluation stops.
        """

    def remarks(self, samples: Sequence[Sample]) -> Sequence[str]:
        """What the samples showed to be known, besides `caveats`; a line each."""
        return ()

    def status(self) -> str:
        """What takes long now, for the line of progress; nothing where nothing does."""
        return ""

    def close(self) -> None:  # noqa: B027
        """Let go of a sandbox and the like."""
