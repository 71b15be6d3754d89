"""What went wrong with a request, and what to do about it."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import openai

from .bodies import TooLarge
from .pace import retry_after
from .replies import NoReply

# Beyond 4xx: overloaded in different dialects.
_LATER = {408, 409, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529}
_OVERLOAD = {429, 503, 529}
# Parameters without which the request still asks the same question.
_OPTIONAL = ("seed", "top_p", "temperature", "stop", "max_tokens", "max_completion_tokens")
_UNSUPPORTED = re.compile(
    r"unsupported|not supported|does not support|doesn't support|unrecogni[sz]ed|unknown|unexpected|not permitted|"
    r"not allowed|not accepted|does not accept|extra (inputs|fields)|deprecated|instead",
    re.IGNORECASE,
)
_CONTEXT = re.compile(
    r"context.{0,3}(length|window|size|limit)|max_model_len|(prompt|input|request|messages?).{0,20}too (long|large)|"
    r"(too many|exceed\w*|maximum|longer).{0,60}tokens|tokens.{0,40}exceed",
    re.IGNORECASE,
)
_FILTERED = re.compile(r"content[_ ]?(filter|policy|management)|moderat|flagged|safety", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Trouble:
    """A request without an answer.

    Attributes:
        kind: as `ModelFailure.kind`, or `filtered`: the words were refused before a model saw or said them.
        text: for people.
        again: another try may succeed.
        wait: seconds that the endpoint asks to wait; None where it does not say.
        overload: the endpoint has too much to do.
        drop: the parameter that it does not know.
        hopeless: no request can succeed (a wrong key, no such model).
    """

    kind: str
    text: str
    again: bool = False
    wait: float | None = None
    overload: bool = False
    drop: str = ""
    hopeless: bool = False


def trouble_of(error: BaseException, sent: Collection[str]) -> Trouble:
    """Read an error of the client.

    Args:
        error: what was raised for a request.
        sent: names of the parameters in it that were not asked for by name.
    """
    if isinstance(large := error.__cause__ if isinstance(error, openai.APIConnectionError) else error, TooLarge):
        return Trouble("too_large", str(large))
    if isinstance(error, openai.APIStatusError):
        return of_status(error.status_code, error.body, error.response.text, error.response.headers, sent)
    if isinstance(error, TimeoutError | openai.APITimeoutError):
        return Trouble("timeout", "no answer in time", again=True, overload=True)
    if isinstance(error, openai.APIConnectionError):
        cause = error.__cause__ or error
        return Trouble("connection", f"{type(cause).__name__}: {cause}".rstrip(": "), again=True)
    if isinstance(error, NoReply):
        return Trouble("no_answer", str(error), again=True)
    if isinstance(error, openai.APIResponseValidationError | ValueError):
        return Trouble("server", f"the body of the answer is not JSON: {error}"[:300], again=True)
    return Trouble("server", f"{type(error).__name__}: {error}"[:300], again=True)


def of_status(status: int, body: Any, raw: str, headers: Mapping[str, str], sent: Collection[str]) -> Trouble:
    """Read an HTTP error.

    Args:
        status: its number.
        body: the `error` object of the answer, where there is one.
        raw: the whole answer.
        headers: of the answer, names in any case.
        sent: names of the parameters that may be left out.
    """
    fields = body if isinstance(body, dict) else {}
    message = fields.get("message")
    # The beginning says it; a body may be of any length.
    words = (message if isinstance(message, str) else raw)[:2000]
    code = f"{fields.get('code') or ''} {fields.get('type') or ''}"
    text = f"HTTP {status}: {' '.join(words.split())[:300]}"
    if status == 429 and "insufficient_quota" in code:
        return Trouble("rate_limit", text, hopeless=True)
    if status in _LATER or status >= 500:
        kind = "rate_limit" if status == 429 else "timeout" if status in (408, 504) else "server"
        overload = status in _OVERLOAD or status in (408, 504)
        return Trouble(kind, text, again=status in _LATER, wait=retry_after(headers), overload=overload)
    if status in (400, 403, 422) and _FILTERED.search(f"{code} {words}"):
        return Trouble("filtered", text)
    if status in (400, 413, 422):
        if "context_length" in code or _CONTEXT.search(words):
            return Trouble("context", text)
        return Trouble("rejected", text, drop=_named(fields.get("param"), words, sent))
    return Trouble("rejected", text, hopeless=status in (401, 403, 404))


def _named(param: Any, words: str, sent: Collection[str]) -> str:
    """The optional parameter that a complaint is about."""
    if not _UNSUPPORTED.search(words):
        return ""
    for name in _OPTIONAL:
        if name in sent and (param == name or re.search(rf"\b{name}\b", words)):
            return name
    return ""
