"""Answers of an endpoint are read up to a size: what a server sends must not fill our memory."""

from typing import Any

import openai

# Bytes of one answer, unpacked; the longest honest ones (a million tokens with their log-probabilities) are smaller.
MAX_BODY = 64 << 20
MAX_REDIRECTS = 5
# What is unpacked as it comes. A block of these is at most a thousand times as large as what came.
_PACKED = ("", "identity", "gzip", "x-gzip", "deflate")


class TooLarge(openai.OpenAIError):
    """An answer of an endpoint is larger than `MAX_BODY`, or may be."""


class BoundedClient(openai.DefaultAsyncHttpxClient):
    """An HTTP client that stops reading where a body is larger than `MAX_BODY`; those of redirections it skips."""

    async def send(self, request: Any, *, stream: bool = False, **more: Any) -> Any:
        """Send a request and read the answer.

        Raises:
            TooLarge: its body is larger than that, or packed in a way that does not tell.
        """
        more["follow_redirects"] = False
        response = await super().send(request, stream=True, **more)
        for _ in range(MAX_REDIRECTS):
            if response.next_request is None:
                break
            await response.aclose()
            response = await super().send(response.next_request, stream=True, **more)
        if stream:
            return response
        try:
            body = await _read(response)
        finally:
            await response.aclose()
        headers = [
            (name, value)
            for name, value in response.headers.multi_items()
            if name.lower() not in ("content-encoding", "content-length", "transfer-encoding")
        ]
        return type(response)(
            response.status_code,
            headers=headers,
            content=body,
            request=response.request,
            extensions=response.extensions,
        )


async def _read(response: Any) -> bytes:
    for packed in response.headers.get("content-encoding", "").lower().split(","):
        if packed.strip() not in _PACKED:
            raise TooLarge(f"the answer is packed by {packed.strip()[:40]!r}, which was not asked for")
    body = bytearray()
    async for block in response.aiter_bytes():
        body += block
        if len(body) > MAX_BODY:
            raise TooLarge(f"the answer is larger than {MAX_BODY >> 20} MiB")
    return bytes(body)
