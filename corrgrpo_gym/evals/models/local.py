"""A model in this process, by a token engine that training samples with."""

import asyncio
import zlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import GymError
from ...learners.chat import decode, render
from ...learners.config import PolicyConfig
from ...learners.engines.base import Completion, Interrupted, Sampling, TokenEngine
from ...learners.engines.transformers import TransformersEngine
from ...learners.engines.vllm.local import useful
from ...learners.engines.vllm.pretrained import VllmModel
from ...learners.policy import load_policy
from .base import ModelFailure, Reply, Request, Usage

# How long an answer may be where neither the request nor the model limits it.
LONG = 4096


@dataclass(slots=True)
class _Waiting:
    request: Request
    prompt: list[int]
    sampling: Sampling
    notes: tuple[str, ...]
    reply: "asyncio.Future[Reply]"


class LocalModel:
    """A model that transformers or vLLM runs.

    What an answer is drawn from depends on its case, sample, turn and seed alone, not on what shares its batch. With
    transformers, requests are gathered into batches; vLLM takes each into its running one.

    Args:
        source: hub id, folder, .gguf file, or a run folder of `corrgrpo-gym train` (its best checkpoint).
        device: as in the trainer's configuration; vLLM takes the GPU, where there is one.
        concurrency: sequences that are decoded together.
        engine: transformers, vllm, or auto: vllm where it is installed and torch sees a GPU.

    Raises:
        GymError: no such model, or one that cannot be loaded.
    """

    def __init__(self, source: str, *, device: str = "auto", concurrency: int = 32, engine: str = "auto"):
        folder = _checkpoint(source)
        self._vllm: VllmModel | None = None
        if engine == "vllm" or (engine == "auto" and device == "auto" and useful()):
            self._vllm = VllmModel(folder, concurrency)
            self.tokenizer, self.end_ids = self._vllm.tokenizer, self._vllm.end_ids
            self.engine: TokenEngine = self._vllm.engine
            self._room, commit = self._vllm.room, self._vllm.commit
        else:
            policy = load_policy(folder, PolicyConfig(device=device))
            self.tokenizer, self.end_ids = policy.tokenizer, policy.end_ids
            self.engine = TransformersEngine(policy.model, policy.end_ids, concurrency, policy.autocast)
            config = policy.model.config
            # What the model can read; 0 where it does not say.
            self._room = int(getattr(config, "max_position_embeddings", 0) or 0)
            commit = str(getattr(config, "_commit_hash", None) or "")
        self.concurrency = concurrency
        kind = "vllm" if self._vllm else "transformers"
        self.identity: Mapping[str, Any] = {"kind": kind, "model": source, "commit": commit}
        self._queue: list[_Waiting] = []
        self._threads = ThreadPoolExecutor(concurrency if self._vllm else 1, "corrgrpo-gym model")
        self._batch: asyncio.Task[None] | None = None
        self._closed = False

    async def complete(self, request: Request) -> Reply:
        """See ChatModel."""
        prompt = render(self.tokenizer, request.messages, request.tools)
        wanted = request.sampling.max_tokens or LONG
        room = self._room - len(prompt) if self._room else wanted
        if room < 1:
            raise ModelFailure("context", f"the prompt has {len(prompt)} tokens; the model reads {self._room}")
        notes = (f"the context leaves room for {room} tokens",) if room < wanted else ()
        sampling = Sampling(
            max_new_tokens=min(wanted, room),
            temperature=request.sampling.temperature,
            top_p=request.sampling.top_p,
            seed=_seed(request),
        )
        loop = asyncio.get_running_loop()
        waiting = _Waiting(request, prompt, sampling, notes, loop.create_future())
        if self._vllm:
            await self._run([waiting])
            return await waiting.reply
        self._queue.append(waiting)
        if self._batch is None or self._batch.done():
            self._batch = asyncio.create_task(self._work())
        return await waiting.reply

    async def close(self) -> None:
        """Stop what is being decoded."""
        self._closed = True
        if self._batch is not None:
            await asyncio.gather(self._batch, return_exceptions=True)
        self._threads.shutdown()
        if self._vllm:
            self._vllm.engine.close()

    async def _work(self) -> None:
        """Decode batch after batch until nothing waits."""
        # Those that ask at the same moment share a batch.
        await asyncio.sleep(0)
        while self._queue:
            await self._run(self._take())

    async def _run(self, batch: Sequence[_Waiting]) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._threads, self._decode, batch, loop)
        except Interrupted:
            for waiting in batch:
                waiting.reply.cancel()
        except Exception as e:
            for waiting in batch:
                if not waiting.reply.done():
                    waiting.reply.set_exception(e)

    def _take(self) -> list[_Waiting]:
        """The next batch: those that are drawn alike, whoever has waited longest first."""
        first = self._queue[0]
        same = [w for w in self._queue if _alike(w.sampling, first.sampling)][: self.concurrency]
        taken = set(map(id, same))
        self._queue = [w for w in self._queue if id(w) not in taken]
        return same

    def _decode(self, batch: Sequence[_Waiting], loop: asyncio.AbstractEventLoop) -> None:
        def finish(prompt: int, sample: int, completion: Completion) -> None:
            loop.call_soon_threadsafe(self._answer, batch[prompt], completion)

        self.engine.generate(
            [w.prompt for w in batch],
            1,
            batch[0].sampling,
            seeds=[w.sampling.seed for w in batch],
            on_finish=finish,
            interrupted=lambda: self._closed,
        )

    def _answer(self, waiting: _Waiting, completion: Completion) -> None:
        if waiting.reply.done():
            return
        text, finish = decode(self.tokenizer, completion.ids, self.end_ids), completion.finish
        for stop in waiting.request.sampling.stop:
            before, found, _ = text.partition(stop)
            if found:
                text, finish = before, "stop"
        message = {"role": "assistant", "content": text}
        usage = Usage(len(waiting.prompt), len(completion.ids))
        waiting.reply.set_result(Reply(message, finish, usage, waiting.notes))


def _alike(a: Sampling, b: Sampling) -> bool:
    return (a.max_new_tokens, a.temperature, a.top_p) == (b.max_new_tokens, b.temperature, b.top_p)


def _seed(request: Request) -> int:
    name = f"{request.sampling.seed}/{request.case}/{request.sample}/{request.turn}"
    return zlib.crc32(name.encode(errors="replace"))


def _checkpoint(source: str) -> str:
    """The folder to load: the best checkpoint, else the latest, of a run folder; anything else as it is."""
    run = Path(source).expanduser()
    if not (run / "checkpoints").is_dir():
        if source == "embedded":
            raise GymError("the embedded policy knows nothing before it is trained: give the run folder of a training")
        return source
    from ...learners.checkpoints import Checkpoints

    checkpoints = Checkpoints(run / "checkpoints")
    steps = checkpoints.steps()
    if not steps:
        raise GymError(f"{source} has no checkpoint yet")
    folder = checkpoints.path(checkpoints.best if checkpoints.best in steps else steps[-1])
    if (folder / "adapter_config.json").exists():
        raise GymError(
            f"{source} holds adapters: merge them by `corrgrpo-gym export {source} --to FOLDER`, and give that"
        )
    return str(folder)
