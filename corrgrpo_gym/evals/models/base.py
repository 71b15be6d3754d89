"""What answers the cases of a benchmark: the interface of endpoints, local models, saved answers and references."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from ...envs.chat import Message

Finish = Literal["stop", "length", "tool_calls", "content_filter", "unknown"]


@dataclass(frozen=True, slots=True)
class ChatSampling:
    """How an answer is drawn.

    Attributes:
        max_tokens: length limit of an answer, reasoning included; None for the model's own.
        temperature: 0 is greedy.
        top_p: nucleus size in (0, 1].
        seed: sample number s of a case is drawn with seed + s; None for none.
        stop: texts that end an answer.
        extra: further fields of an endpoint's request body, as given by the user.
    """

    max_tokens: int | None = 2048
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = 0
    stop: tuple[str, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Request:
    """One answer that is wanted.

    Attributes:
        case: id of the case.
        sample: number of the sample, from 0.
        turn: number of the model's turn in the episode, from 0.
        messages: the whole chat so far.
        tools: schemas of the tools that may be called, as in the `tools` of a chat completion.
        sampling: how to draw.
        reference: the case's gold answer for this turn, for models that answer by it.
    """

    case: str
    sample: int
    turn: int
    messages: Sequence[Message]
    tools: Sequence[dict[str, Any]]
    sampling: ChatSampling
    reference: str | Message | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one answer, where they are known."""

    prompt: int | None = None
    completion: int | None = None
    reasoning: int | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """What a model answered. Plain data: it goes to a file and comes back equal.

    Attributes:
        message: assistant message; `content` is a text or None, `tool_calls` (if any) are in the form of chat
            completions, their `arguments` the text that the model wrote; `reasoning_content` holds reasoning that
            came in a field of its own, `refusal` a refusal.
        finish: why the answer ended.
        usage: tokens.
        notes: what was out of the ordinary, for people ("empty choices", "seed not supported").
    """

    message: Message
    finish: Finish = "stop"
    usage: Usage = Usage()
    notes: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The content, or an empty text."""
        return self.message.get("content") or ""

    @property
    def answer(self) -> str:
        """The content without the reasoning in front of it: what follows the last `</think>`.

        Templates that begin the reasoning themselves leave the closing tag alone. Reasoning that was cut is no answer.
        """
        reasoning, closing, answer = self.text.rpartition("</think>")
        if closing:
            return answer.lstrip("\n")
        return "" if answer.lstrip().startswith("<think>") else answer


class ModelFailure(Exception):
    """There is no answer, through no fault of the model's words: the sample is recorded as failed.

    Attributes:
        kind: short and stable, for counting: `timeout`, `connection`, `rate_limit`, `server`, `rejected`,
            `no_answer`, `context`, `too_large`.
    """

    def __init__(self, kind: str, text: str):
        # What a server says may hold what no terminal and no file can.
        super().__init__(text.encode(errors="replace").decode())
        self.kind = kind


class ChatModel(Protocol):
    """Messages in, a message out.

    Attributes:
        identity: plain data that says what answers (kind, name, address, revision); part of the configuration of an
            evaluation, and free of secrets.
        concurrency: how many requests it can use at once; the runner makes as many.
    """

    concurrency: int

    @property
    def identity(self) -> Mapping[str, Any]: ...  # noqa: D102

    async def complete(self, request: Request) -> Reply:
        """Answer.

        Raises:
            ModelFailure: there is no answer, after whatever retries make sense.
            GymError: nothing will ever be answered this way (a wrong key, no such model): the evaluation stops.
        """
        ...

    async def close(self) -> None:
        """Let go of what it holds."""
        ...
