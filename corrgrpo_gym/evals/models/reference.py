"""The gold answers as a model: what they do not score, no model can."""

from collections.abc import Mapping
from typing import Any

from .base import ModelFailure, Reply, Request


class ReferenceModel:
    """Answers every case with its reference."""

    identity: Mapping[str, Any] = {"kind": "reference"}

    def __init__(self, concurrency: int = 64):
        self.concurrency = concurrency

    async def complete(self, request: Request) -> Reply:
        """See ChatModel."""
        if request.reference is None:
            raise ModelFailure("no_answer", f"there is no reference answer for turn {request.turn + 1}")
        if isinstance(request.reference, str):
            return Reply({"role": "assistant", "content": request.reference})
        calls = request.reference.get("tool_calls")
        return Reply({**request.reference, "role": "assistant"}, finish="tool_calls" if calls else "stop")

    async def close(self) -> None:
        """See ChatModel."""
