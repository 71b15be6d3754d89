"""Throughput and memory of `corrgrpo-gym eval` against a local server with a fixed latency.

    python benchmarks/bench_eval.py [--latency 0.2] [--concurrency 64] [--samples 500 2000 8000]

The server is a process of its own that answers every request after the same time, whatever the load; so latency and
concurrency allow concurrency / latency samples a second, and no client can have more. The rate is measured at the
server, from its first request to its last answer; memory is the highest resident size of the evaluating process, which
runs as a user's does: the command line, the openai client, scores, records, summary. The last row is the openai client
alone, in a loop that throws its answers away: what the machine gave at that moment.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.request import urlopen

PROMPT, ANSWER = "What is said here? " + "word " * 400, "An answer of some length. " * 12


def env(size: int = 2000, split: str = "train"):
    """As many tasks as wanted, with a trivial score: what is measured is the runner."""
    from corrgrpo_gym.envs import SingleTurnEnv

    def brief(answer: str) -> float:
        return 1 / (1 + len(answer))

    rows = [{"task_id": f"task-{i}"} for i in range(size)]
    return SingleTurnEnv(rows, [brief], prompt=lambda row: f"{PROMPT} {row['task_id']}")


def serve(latency: float) -> None:
    """Answer chat completions on a free port, which is printed, until killed."""
    message = {"role": "assistant", "content": ANSWER}
    usage = {"prompt_tokens": 410, "completion_tokens": 72}
    body = json.dumps({"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage}).encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    first, last, requests, flying, most = 0.0, 0.0, 0, 0, 0

    class Connection(asyncio.Protocol):
        def connection_made(self, transport):
            self.transport, self.buffer = transport, b""

        def data_received(self, data):
            nonlocal first, requests, flying, most
            self.buffer += data
            head_end = self.buffer.find(b"\r\n\r\n")
            if head_end < 0:
                return
            length = 0
            for line in self.buffer[:head_end].lower().split(b"\r\n"):
                if line.startswith(b"content-length:"):
                    length = int(line[15:])
            if len(self.buffer) < head_end + 4 + length:
                return
            line, self.buffer = self.buffer.split(b"\r\n", 1)[0], self.buffer[head_end + 4 + length :]
            if line.startswith(b"GET /stats"):
                answer = json.dumps({"seconds": last - first, "requests": requests, "most": most}).encode()
                self.transport.write(head % len(answer) + answer)
            elif line.startswith(b"GET"):
                answer = json.dumps({"data": [{"id": "fixed"}]}).encode()
                self.transport.write(head % len(answer) + answer)
            else:
                first = first or time.perf_counter()
                requests, flying = requests + 1, flying + 1
                most = max(most, flying)
                asyncio.get_running_loop().call_later(latency, self.answer)

        def answer(self):
            nonlocal last, flying
            self.transport.write(head % len(body) + body)
            last, flying = time.perf_counter(), flying - 1

    async def run():
        server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", 0, backlog=1024)
        print(server.sockets[0].getsockname()[1], flush=True)
        await server.serve_forever()

    asyncio.run(run())


def measure(samples: int, latency: float, concurrency: int, alone: bool = False) -> dict[str, float]:
    """One evaluation, or the client alone."""
    server = subprocess.Popen([sys.executable, __file__, "--serve", str(latency)], stdout=subprocess.PIPE, text=True)
    try:
        port = int(server.stdout.readline())
        with tempfile.TemporaryDirectory() as folder:
            command = [
                sys.executable, "-m", "corrgrpo_gym", "eval", "--env", f"{Path(__file__).resolve()}:env",
                "--option", f"size={samples}", "--base-url", f"http://127.0.0.1:{port}/v1", "--model", "fixed",
                "--concurrency", str(concurrency), "--out", f"{folder}/run",
            ]  # fmt: skip
            if alone:
                command = [sys.executable, __file__, "--bare", f"http://127.0.0.1:{port}/v1"]
                command += ["--samples", str(samples), "--concurrency", str(concurrency)]
            began = time.perf_counter()
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            output = process.stdout.read()
            _, status, usage = os.wait4(process.pid, 0)
            wall = time.perf_counter() - began
            if status:
                raise SystemExit(f"the evaluation failed:\n{output}")
            done = alone or json.loads(Path(folder, "run", "summary.json").read_text())["scored"] == samples
        with urlopen(f"http://127.0.0.1:{port}/stats") as answer:
            stats = json.load(answer)
    finally:
        server.kill()
    assert done and samples == stats["requests"], stats
    rate = samples / stats["seconds"]
    return {
        "samples": samples,
        "rate": rate,
        "share": rate * latency / concurrency,
        "most": stats["most"],
        "cpu": 1000 * (usage.ru_utime + usage.ru_stime) / samples,
        "rss": usage.ru_maxrss / 1024,
        "wall": wall,
    }


def bare(samples: int, url: str, concurrency: int) -> None:
    """The openai client without anything around it."""
    from openai import AsyncOpenAI

    async def run():
        client, numbers = AsyncOpenAI(base_url=url, api_key="none", max_retries=0), iter(range(samples))

        async def ask():
            for i in numbers:
                messages = [{"role": "user", "content": f"{PROMPT} task-{i}"}]
                await client.chat.completions.create(model="fixed", messages=messages, temperature=0, max_tokens=2048)

        await asyncio.gather(*(ask() for _ in range(concurrency)))
        await client.close()

    asyncio.run(run())


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--latency", type=float, default=0.2, help="seconds of every answer")
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--samples", type=int, nargs="+", default=[500, 2000])
    parser.add_argument("--serve", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--bare", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.bare:
        bare(args.samples[0], args.bare, args.concurrency)
        return
    if args.serve is not None:
        serve(args.serve)
        return
    allowed = args.concurrency / args.latency
    print(f"latency {args.latency} s, {args.concurrency} at once: {allowed:.0f} samples/s allowed; "
          f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}")  # fmt: skip
    print(f"{'samples':>8} {'samples/s':>10} {'of allowed':>11} {'in flight':>10} {'CPU ms each':>12} {'RSS MB':>7} "
          f"{'wall s':>7}")  # fmt: skip
    for samples, alone in [*((n, False) for n in args.samples), (max(args.samples), True)]:
        m = measure(samples, args.latency, args.concurrency, alone)
        label = "client" if alone else samples
        print(f"{label:>8} {m['rate']:>10.1f} {m['share']:>11.1%} {m['most']:>10} {m['cpu']:>12.2f} "
              f"{m['rss']:>7.0f} {m['wall']:>7.1f}")  # fmt: skip


if __name__ == "__main__":
    main()
