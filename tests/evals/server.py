"""A real server on a real socket that answers chat completions as well, or as badly, as a test wants."""

import asyncio
import json
import threading
from dataclasses import dataclass, field


@dataclass
class Asked:
    """A request as it came in."""

    number: int
    path: str
    headers: dict
    body: dict
    tries: int  # how often the same messages were asked for before

    @property
    def prompt(self):
        return self.body["messages"][-1]["content"] if "messages" in self.body else self.body.get("prompt")


def completion(content="hello", finish="stop", usage=(7, 3), **message):
    """The body of a well-behaved answer."""
    counted = {"prompt_tokens": usage[0], "completion_tokens": usage[1]} if usage else None
    choice = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": content, **message}}
    return {"id": "x", "object": "chat.completion", "choices": [choice], "usage": counted}


def error(message, code=None, param=None, kind=None):
    return {"error": {"message": message, "code": code, "param": param, "type": kind}}


@dataclass
class Response:
    """An HTTP response, or a part of one: what is `cut` off is never sent, `garbage` goes out in its place."""

    body: object = field(default_factory=completion)
    status: int = 200
    headers: dict = field(default_factory=dict)
    kind: str = "application/json"
    wait: float = 0.0
    cut: int = 0
    garbage: bytes | None = None
    drip: float = 0.0  # seconds between the bytes


DROP, HANG = object(), object()


class Server:
    """Serves in a thread of its own; `behave(asked)` says what to answer."""

    def __init__(self, behave=lambda asked: Response(), models=("tiny",)):
        self.behave, self.models = behave, models
        self.asked, self.most, self._flying = [], 0, 0
        self._loop = asyncio.new_event_loop()
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready,), daemon=True)
        self._thread.start()
        assert ready.wait(10)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}/v1"

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def _run(self, ready):
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=512))
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        self._loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0.01))
        self._loop.close()

    async def _serve(self, reader, writer):
        try:
            while await self._one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _one(self, reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        method, path, _ = head[0].split(" ")
        headers = {k.lower(): v for k, v in (line.split(": ", 1) for line in head[1:] if line)}
        raw = await reader.readexactly(int(headers.get("content-length", 0)))
        if method == "GET":
            if self.models is None:
                return await self._send(writer, Response({"detail": "Not Found"}, 404))
            return await self._send(writer, Response({"data": [{"id": name} for name in self.models]}))
        body = json.loads(raw)
        same = [a for a in self.asked if a.body.get("messages") == body.get("messages")]
        asked = Asked(len(self.asked), path, headers, body, len(same))
        self.asked.append(asked)
        self._flying += 1
        self.most = max(self.most, self._flying)
        try:
            response = self.behave(asked)
            if response is HANG:
                await asyncio.sleep(3600)
            if response is DROP:
                writer.transport.abort()
                return False
            return await self._send(writer, response)
        finally:
            self._flying -= 1

    async def _send(self, writer, response):
        await asyncio.sleep(response.wait)
        body = response.body if isinstance(response.body, bytes) else json.dumps(response.body).encode()
        head = [f"HTTP/1.1 {response.status} Because", f"Content-Type: {response.kind}"]
        head += [f"Content-Length: {len(body)}", *(f"{k}: {v}" for k, v in response.headers.items())]
        data = "\r\n".join(head).encode() + b"\r\n\r\n" + body
        if response.garbage is not None:
            data = response.garbage
        if response.cut:
            data = data[: -response.cut]
        if response.drip:
            for i in range(len(data)):
                writer.write(data[i : i + 1])
                await writer.drain()
                await asyncio.sleep(response.drip)
        writer.write(data)
        await writer.drain()
        # What is not whole ends with its connection.
        return not response.cut and response.garbage is None


def adds(asked):
    return Response(completion(str(2 * int(asked.prompt.split()[0]))), wait=0.01)


def half_wrong(asked):
    """Wrong where the first summand is odd; also says how often it was asked, so that repeats show."""
    i = int(asked.prompt.split()[0])
    return Response(completion(str(2 * i + i % 2)), wait=0.02)


def endpoint(server, **more):
    return {"base_url": server.url, "model": "tiny", **more}
