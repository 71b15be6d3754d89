"""An OpenAI-compatible endpoint as a model, with the troubles that endpoints have."""

import asyncio
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import openai

from ...envs.chat import Message
from ...errors import GymError, unknown
from ..config import address_problem
from .base import ModelFailure, Reply, Request
from .bodies import BoundedClient, TooLarge
from .pace import BACKOFF, Pace, backoff
from .replies import parse_reply
from .troubles import Trouble, of_status, trouble_of

# A Retry-After longer than this is a quota of another day, not a queue.
PATIENCE = 600.0
# Timeouts of one sample: a server that hangs would else cost hours.
TIMEOUTS = 3
# Connection pools, and connections of each while that is enough.
POOLS, CONNECTIONS = 16, 8
# Fields of our messages that requests do not have.
OURS = ("reasoning_content", "refusal")


class Endpoint:
    """Chat completions (or plain completions) of a server.

    What the server has too much of is sent more slowly (see `Pace`); what may pass is sent again, with back-off, and
    not before Retry-After; parameters that it does not know are left out from then on, and noted. An answer larger than
    `bodies.MAX_BODY` is a failure.

    Args:
        base_url: such as http://localhost:8000/v1.
        model: its name; "" for the only one that the server has.
        api_key: None for servers that want none.
        key_name: of the environment variable that holds the key, for messages.
        completions: ask for plain completions.
        concurrency: most requests at once.
        timeout: seconds that a request may take.
        retries: times that a request is sent again.
        base: seconds of the first back-off.

    Attributes:
        troubles: how often what went wrong, also where another try succeeded.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        api_key: str | None = None,
        key_name: str = "OPENAI_API_KEY",
        completions: bool = False,
        concurrency: int = 16,
        timeout: float = 600.0,
        retries: int = 8,
        base: float = BACKOFF,
    ):
        if (problem := address_problem(base_url)) is not None:
            raise GymError(f"{base_url!r} is not an address such as http://localhost:8000/v1: {problem}")
        self.model, self.completions = model, completions
        # More are prepared than are sent: when an answer comes, the next request is ready to go.
        self.concurrency = concurrency + max(1, concurrency // 4)
        self.troubles: Counter[str] = Counter()
        self._base_url, self._key_name, self._has_key = _public(base_url), key_name, bool(api_key)
        self._key = api_key or ""
        self._timeout, self._retries, self._base = timeout, retries, base
        self._pace = Pace(concurrency)
        self._dropped: dict[str, str] = {}
        self._answered = False
        # The work of a connection pool for each request grows with its connections: several small ones.
        self._clients = [
            openai.AsyncOpenAI(
                base_url=base_url,
                # Without a key the client would refuse to start, and a local server does not look at it.
                api_key=api_key or "none",
                max_retries=0,
                timeout=openai.Timeout(timeout, connect=min(timeout, 30.0), pool=None),
                http_client=BoundedClient(headers={"Accept-Encoding": "gzip, deflate"}),
            )
            for _ in range(min(POOLS, -(-concurrency // CONNECTIONS)))
        ]
        self._flying = [0] * len(self._clients)

    @property
    def identity(self) -> Mapping[str, Any]:
        """See ChatModel."""
        api = "completions" if self.completions else "chat"
        return {"kind": "endpoint", "base_url": self._base_url, "model": self.model, "api": api}

    async def check(self) -> None:
        """Make sure that somebody listens, and find the model where none was named.

        Raises:
            GymError: nobody does, or the server has several models, or none.
        """
        offered: list[str] | None = None
        for attempt in range(1, 4):
            try:
                async with asyncio.timeout(min(self._timeout, 10.0)):
                    offered = _names(await self._clients[0].get("/models", cast_to=object))
            except openai.APITimeoutError:
                pass
            except openai.APIConnectionError as e:
                if attempt < 3:
                    await asyncio.sleep(backoff(attempt, self._base))
                    continue
                cause = e.__cause__ or e
                if isinstance(cause, TooLarge):
                    break
                raise GymError(
                    f"nobody answers at {self._base_url} ({type(cause).__name__}: {cause}). Is the server running, and "
                    "is --base-url right?"
                ) from e
            except (TimeoutError, openai.OpenAIError, ValueError):
                # Not every server lists its models, and a busy one may not now.
                pass
            break
        if not self.model:
            if offered is None or len(offered) != 1:
                which = f"it has {', '.join(offered[:20])}" if offered else "it does not say which models it has"
                raise GymError(f"name the model of {self._base_url} by --model: {which}")
            self.model = offered[0]

    async def complete(self, request: Request) -> Reply:
        """See ChatModel."""
        tries, counts = 0, Counter[str]()
        while True:
            body = self._body(request)
            async with self._pace.slot() as began:
                result = await self._once(body, request.sampling.extra)
                if isinstance(result, Reply):
                    self._pace.answered()
                elif result.overload:
                    self._pace.overloaded(began, result.wait if (result.wait or 0) <= PATIENCE else None)
            if isinstance(result, Reply):
                self._answered = True
                return result
            if result.drop:
                # Another request may have found that out meanwhile.
                self._drop(result)
                continue
            counts[result.kind] += 1
            self.troubles[result.kind] += 1
            tries += 1
            if result.hopeless and not self._answered:
                # Once is not enough to stop everything for.
                if tries < 3:
                    await asyncio.sleep(backoff(tries, self._base))
                    continue
                raise GymError(self._public(await self._hopeless(result)))
            if result.kind == "filtered":
                message: Message = {"role": "assistant", "content": None, "refusal": self._public(result.text)}
                return Reply(message, "content_filter", notes=("refused by the endpoint's filter",))
            if not result.again or tries > self._retries or counts["timeout"] >= TIMEOUTS:
                raise ModelFailure(result.kind, self._public(result.text) + (f" ({tries} tries)" if tries > 1 else ""))
            if (result.wait or 0) > PATIENCE:
                raise ModelFailure(result.kind, f"{self._public(result.text)} (asks to wait {result.wait:.0f} s)")
            await asyncio.sleep(max(backoff(tries, self._base), result.wait or 0))

    def _public(self, text: str) -> str:
        """What a server says, without our key, which some repeat."""
        return text.replace(self._key, "[the key]") if self._key else text

    def status(self) -> str:
        """What slows the evaluation down just now."""
        return self._pace.status()

    async def close(self) -> None:
        """See ChatModel."""
        for client in self._clients:
            await client.close()

    async def _once(self, body: dict[str, Any], asked_for: Mapping[str, Any]) -> Reply | Trouble:
        path = "/completions" if self.completions else "/chat/completions"
        optional = body.keys() - asked_for.keys()
        which = self._flying.index(min(self._flying))
        self._flying[which] += 1
        try:
            async with asyncio.timeout(self._timeout):
                answer: Any = await self._clients[which].post(path, cast_to=object, body=body)
            if isinstance(answer, str):
                # Some servers send JSON under another content type.
                answer = json.loads(answer)
            if isinstance(answer, dict) and isinstance(error := answer.get("error"), dict) and "choices" not in answer:
                status = error.get("code")
                status = status if isinstance(status, int) and 400 <= status < 600 else 500
                return of_status(status, error, json.dumps(error), {}, optional)
            return parse_reply(answer, tuple(self._dropped.values()))
        except Exception as e:
            return trouble_of(e, optional)
        finally:
            self._flying[which] -= 1

    def _body(self, request: Request) -> dict[str, Any]:
        sampling = request.sampling
        body: dict[str, Any] = {"model": self.model}
        if self.completions:
            if request.tools:
                raise GymError("plain completions have no native tools: leave --completions out for this benchmark")
            body["prompt"] = plain_prompt(request.messages)
        else:
            body["messages"] = [_sendable(m) for m in request.messages]
            if request.tools:
                body["tools"] = list(request.tools)
        body["temperature"] = sampling.temperature
        if sampling.top_p < 1:
            body["top_p"] = sampling.top_p
        if sampling.max_tokens:
            body["max_tokens"] = sampling.max_tokens
        if sampling.seed is not None:
            body["seed"] = sampling.seed + request.sample
        if sampling.stop:
            body["stop"] = list(sampling.stop)
        if "max_tokens" in self._dropped and "max_tokens" in body:
            body["max_completion_tokens"] = body["max_tokens"]
        body = {k: v for k, v in body.items() if k not in self._dropped}
        return body | dict(sampling.extra)

    def _drop(self, trouble: Trouble) -> None:
        name = trouble.drop
        instead = "max_completion_tokens sent instead" if name == "max_tokens" else "left out"
        self._dropped.setdefault(name, f"the endpoint does not take {name}: {instead}")

    async def _hopeless(self, trouble: Trouble) -> str:
        """What to tell the user of a key or model that never worked."""
        where = f"{self._base_url} refuses all requests: {trouble.text}."
        if "HTTP 404" in trouble.text:
            try:
                offered = _names(await self._clients[0].get("/models", cast_to=object, options={"timeout": 10.0}))
            except (openai.OpenAIError, ValueError):
                offered = None
            if offered:
                return f"{where} {unknown('model', self.model, offered)}"
            return f"{where} Is --base-url right (it mostly ends in /v1), and --model {self.model!r}?"
        if trouble.kind == "rate_limit":
            return f"{where} The account has no quota left"
        if not self._has_key:
            return f"{where} {self._key_name} is not set: export the key there, or name its variable by --api-key-env"
        return f"{where} Is the key in {self._key_name} right, and may it use {self.model!r}?"


def plain_prompt(messages: Sequence[Message]) -> str:
    """The texts of a chat, one after the other, for models without a chat template."""
    return "\n\n".join(m["content"] for m in messages if m.get("content"))


def _sendable(message: Message) -> Message:
    """A message as requests have them."""
    message = {k: v for k, v in message.items() if k not in OURS}
    if message["role"] == "assistant" and message.get("content") is None and not message.get("tool_calls"):
        message["content"] = ""
    return message


def _public(url: str) -> str:
    """The address without a user name or password in it."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="")).rstrip("/")


def _names(listing: Any) -> list[str] | None:
    """Names of models in the answer of GET /models."""
    rows = listing.get("data") if isinstance(listing, dict) else None
    if not isinstance(rows, list):
        return None
    return [row["id"] for row in rows if isinstance(row, dict) and isinstance(row.get("id"), str)]
