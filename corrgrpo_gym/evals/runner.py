"""Asks a model, scores its answers, and writes both down as they come."""

import asyncio
import math
import os
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from ..envs.chat import Message
from ..errors import GymError, NotScored
from .benchmark import UNFINISHED, Benchmark, Case, Episode, Score
from .config import EvalConfig
from .metrics import Sample
from .models.base import ChatModel, ChatSampling, ModelFailure, Reply, Request
from .records import EvalFolder, Key

T = TypeVar("T")


class Progress(Protocol):
    """Who is told how an evaluation goes."""

    def replied(self, key: Key, replies: Sequence[Reply], failure: ModelFailure | None) -> None:
        """A sample was generated, or failed."""

    def scored(self, sample: Sample | None) -> None:
        """A sample was scored; None: it could not be."""


class Runner:
    """One evaluation in one process.

    As many tasks as the model can use generate samples; each is written down at once and scored in a thread. What waits
    for its score is bounded, so memory does not grow with the number of samples.

    Args:
        benchmark: what is asked.
        model: who answers.
        config: how.
        folder: where it is written.
        progress: who is told.
        ids: names of the cases that take part, in order.
        retry_failed: ask failed samples again.
    """

    def __init__(
        self,
        benchmark: Benchmark,
        model: ChatModel,
        config: EvalConfig,
        folder: EvalFolder,
        progress: Progress,
        ids: Sequence[str],
        retry_failed: bool = False,
    ):
        self.benchmark, self.model, self.config = benchmark, model, config
        self.folder, self.progress, self.ids = folder, progress, ids
        self.retry_failed = retry_failed
        self.sampling = ChatSampling(
            max_tokens=config.max_tokens or None,
            temperature=config.temperature,
            top_p=config.top_p,
            seed=None if config.seed < 0 else config.seed,
            stop=tuple(config.stop),
            extra=config.extra_body,
        )
        self._halt = asyncio.Event()
        self._error: BaseException | None = None
        self._scoring: set[asyncio.Task[None]] = set()
        scorers = config.scorers or 2 * (os.cpu_count() or 1)
        self._pool = ThreadPoolExecutor(scorers, "corrgrpo-gym scorer")
        self._running = asyncio.Semaphore(scorers)
        self._waiting = asyncio.Semaphore(2 * max(scorers, model.concurrency))

    def stop(self) -> None:
        """Begin nothing new, write down what is finished, and return from `run`."""
        self._halt.set()

    def todo(self) -> Iterator[tuple[int, int]]:
        """Numbers of cases and samples that are still to be generated, in order, each once."""
        for i, name in enumerate(self.ids):
            for sample in range(self.config.n):
                key = name, sample
                if key not in self.folder.replied or (self.retry_failed and self._to_retry(key)):
                    yield i, sample

    def _to_retry(self, key: Key) -> bool:
        unscored = self.folder.unscored.get(key)
        return key in self.folder.failed or (unscored is not None and unscored["not_scored"] == UNFINISHED)

    def unscored(self) -> list[tuple[int, int]]:
        """Numbers of cases and samples that were answered and have no score."""
        place = {name: i for i, name in enumerate(self.ids)}
        return sorted(
            (place[key[0]], key[1])
            for key in self.folder.replied
            if key[0] in place
            and key[1] < self.config.n
            and key not in self.folder.failed
            and key not in self.folder.scored
            and not (self.retry_failed and self._to_retry(key))
        )

    def missing(self) -> int:
        """How many samples are still to be generated."""
        known = set(self.ids)
        there = [key for key in self.folder.replied if key[0] in known and key[1] < self.config.n]
        again = sum(map(self._to_retry, there)) if self.retry_failed else 0
        return len(self.ids) * self.config.n - len(there) + again

    async def run(self) -> bool:
        """Generate and score what is missing.

        Returns:
            Whether all is done; False if it was stopped.

        Raises:
            GymError: nothing can be answered, scored or written; what is finished is saved.
        """
        # This list is made now: what this session generates is scored as it comes.
        unscored, todo = self.unscored(), self.todo()
        tasks = [asyncio.create_task(self._guard(self._score_saved(unscored)))] if unscored else []
        tasks += [asyncio.create_task(self._guard(self._work(todo))) for _ in range(self.model.concurrency)]
        halted = asyncio.create_task(self._halt.wait())
        try:
            await asyncio.wait({halted, asyncio.ensure_future(_all(tasks))}, return_when=asyncio.FIRST_COMPLETED)
            if self._halt.is_set():
                for task in tasks:
                    task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            while self._scoring:
                await asyncio.gather(*self._scoring, return_exceptions=True)
        finally:
            halted.cancel()
            self._pool.shutdown(wait=True, cancel_futures=True)
        if self._error is not None:
            raise self._error
        return not self._halt.is_set()

    async def _guard(self, work: Any) -> None:
        try:
            await work
        except Exception as e:
            self._fail(e)

    def _fail(self, error: BaseException) -> None:
        self._error = self._error or error
        self._halt.set()

    async def _work(self, todo: Iterator[tuple[int, int]]) -> None:
        i, case = -1, None
        for number, sample in todo:
            if case is None or number != i:
                i, case = number, self.benchmark.cases[number]
            await self._sample(case, sample)

    async def _sample(self, case: Case, number: int) -> None:
        key, began = (case.id, number), time.monotonic()
        result = await self._episode(case, number)
        # From here to the record nothing waits: a sample is written down whole, or asked again.
        self.folder.add_replies(key, result.replies, time.monotonic() - began, result.failure)
        self.progress.replied(key, result.replies, result.failure)
        if result.failure is not None:
            self.folder.note(f"{case.id} sample {number}: {result.failure.kind}: {result.failure}")
        elif result.error is not None:
            self._not_scored(key, result.error)
        elif result.score is not None:
            try:
                self._scored(case, number, result.score)
            except Exception as e:
                self._not_scored(key, e)
        else:
            await self._hand_over(case, number, result.replies)

    async def _episode(self, case: Case, number: int) -> "_Result":
        """Generate a sample: the model and the benchmark in turns."""
        result = _Result([])
        messages: Sequence[Message] = with_system(case.messages, self.config.system)
        episode: Episode | None = None
        try:
            episode = self.benchmark.episode(case)
            while True:
                reference = reference_of(case, len(result.replies))
                request = Request(case.id, number, len(result.replies), messages, case.tools, self.sampling, reference)
                try:
                    reply = await self.model.complete(request)
                except (ModelFailure, GymError):
                    raise
                except Exception as e:
                    self.folder.note(f"{case.id} sample {number}:\n{traceback.format_exc()}")
                    raise ModelFailure("internal", f"{type(e).__name__}: {e}") from e
                result.replies.append(reply)
                try:
                    # The base class's does nothing that needs a thread.
                    whole = type(episode).advance is Episode.advance
                    new = None if whole else await self._in_thread(episode.advance, reply)
                    if new is None:
                        result.score = episode.score()
                        return result
                except Exception as e:
                    result.error = e
                    return result
                messages = [*messages, reply.message, *new]
        except ModelFailure as e:
            if e.kind == "context" and episode is not None:
                await self._cut(episode, result, e)
            if result.score is None and result.error is None:
                result.failure = e
            return result
        finally:
            if episode is not None:
                episode.close()

    async def _cut(self, episode: Episode, result: "_Result", failure: ModelFailure) -> None:
        """Let the benchmark say what an episode is worth in which the model's context is used up."""
        try:
            result.score = await self._in_thread(episode.cut)
        except Exception as e:
            result.error = e
        if result.score is not None:
            self.folder.note(f"{episode.case.id}: cut short, {failure}")

    async def _score_saved(self, unscored: Sequence[tuple[int, int]]) -> None:
        for number, sample in unscored:
            case = self.benchmark.cases[number]
            await self._hand_over(case, sample, self.folder.replies((case.id, sample)))

    async def _hand_over(self, case: Case, number: int, replies: Sequence[Reply]) -> None:
        await self._waiting.acquire()
        task = asyncio.create_task(self._score(case, number, replies))
        self._scoring.add(task)
        task.add_done_callback(self._scoring.discard)

    async def _score(self, case: Case, number: int, replies: Sequence[Reply]) -> None:
        try:
            async with self._running:
                if self._halt.is_set():
                    return
                score = await self._in_thread(self.benchmark.score, case, replies)
            self._scored(case, number, score)
        except Exception as e:
            try:
                self._not_scored((case.id, number), e)
            except Exception as worse:
                self._fail(worse)
        finally:
            self._waiting.release()

    def _scored(self, case: Case, number: int, score: Score) -> None:
        sample = sample_of_case(case, score)
        self.folder.add_score(sample, number, score)
        self.progress.scored(sample)

    def _not_scored(self, key: Key, error: Exception) -> None:
        """Record that there is no score, or stop where there can be none."""
        if isinstance(error, GymError) and not isinstance(error, NotScored):
            self._fail(error)
            return
        self.folder.add_not_scored(key, error)
        if not isinstance(error, NotScored):
            self.folder.note(f"{key[0]} sample {key[1]}:\n{''.join(traceback.format_exception(error))}")
        self.progress.scored(None)

    async def _in_thread(self, function: Callable[..., T], *args: Any) -> T:
        """Call in a thread, and wait for its end also when cancelled: its arguments are in use until then."""
        future = asyncio.get_running_loop().run_in_executor(self._pool, function, *args)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            await asyncio.wait([future])
            raise


@dataclass(slots=True)
class _Result:
    replies: list[Reply]
    failure: ModelFailure | None = None
    error: Exception | None = None
    score: Score | None = None


async def _all(tasks: Sequence["asyncio.Task[None]"]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)


def sample_of_case(case: Case, score: Score) -> Sample:
    """A score as figures see it, now as after it was written: numbers that are not finite count as none.

    Raises:
        TypeError, ValueError: a value is no number.
    """
    values = {name: None if value is None else float(value) for name, value in score.values.items()}
    finite = {name: value if value is None or math.isfinite(value) else None for name, value in values.items()}
    return Sample(case.id, case.cluster or case.id, case.group, finite)


def reference_of(case: Case, turn: int) -> str | Message | None:
    """The gold answer of a turn."""
    reference = case.reference
    if reference is None or isinstance(reference, str | dict):
        return reference if turn == 0 else None
    return reference[turn] if turn < len(reference) else None


def with_system(messages: Sequence[Message], system: str) -> Sequence[Message]:
    """The chat with the user's system message in front; a system message of the benchmark follows in the same one."""
    if not system:
        return messages
    first = messages[0] if messages else {}
    if first.get("role") in ("system", "developer"):
        return [{**first, "content": f"{system}\n\n{first['content']}"}, *messages[1:]]
    return [{"role": "system", "content": system}, *messages]
