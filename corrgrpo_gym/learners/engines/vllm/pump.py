"""A thread that owns a vLLM engine: everything that is asked of the engine happens there, one thing at a time."""

import itertools
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from ..base import Completion, Sampling

T = TypeVar("T")
OnAnswer = Callable[[int, "Completion | BaseException"], None]


class Pump:
    """Steps an LLMEngine while it has requests.

    Requests of several callers share its batches. Callbacks run in its thread and must be short.

    Args:
        build: Makes the LLMEngine; called in the thread, so that all of CUDA's state is of one thread.
        end_ids: Token ids that end an answer.

    Raises:
        Exception: What `build` raised.
    """

    def __init__(self, build: Callable[[], Any], end_ids: Sequence[int]):
        self._end_ids = list(end_ids)
        self._inbox: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._answers: dict[str, tuple[OnAnswer, dict[int, tuple[list[int], list[float]]]]] = {}
        self._numbers = itertools.count()
        self._engine: Any = None
        self._thread = threading.Thread(target=self._run, name="vllm", daemon=True)
        self._thread.start()
        try:
            self.call(lambda engine: self._start(build))
        except BaseException:
            self.close()
            raise

    def call(self, what: Callable[[Any], T]) -> T:
        """Run a function of the LLMEngine in the thread, and wait for what it returns or raises."""
        future: Future[T] = Future()

        def work() -> None:
            try:
                future.set_result(what(self._engine))
            except BaseException as e:
                future.set_exception(e)

        self._put(work)
        return future.result()

    def submit(
        self, prompt: Sequence[int], n: int, sampling: Sampling, seed: int, lora: Any, on_answer: OnAnswer
    ) -> str:
        """Ask for n answers in one request.

        Args:
            prompt: Token ids.
            n: How many.
            sampling: How to draw; its seed is not looked at.
            seed: Answer j is drawn with seed + j.
            lora: vLLM's LoRARequest, or None.
            on_answer: Called with (sample index, completion) as each is done, or with (0, error) once.

        Returns:
            A name for `abort`.
        """
        name = f"r{next(self._numbers)}"

        def work() -> None:
            try:
                self._answers[name] = (on_answer, {})
                self._engine.add_request(name, {"prompt_token_ids": list(prompt)}, self._params(n, sampling, seed),
                                         lora_request=lora)  # fmt: skip
            except Exception as e:
                self._answers.pop(name, None)
                on_answer(0, e)

        self._put(work)
        return name

    def abort(self, names: Sequence[str]) -> None:
        """Drop requests; nothing more is heard of them."""

        def drop(engine: Any) -> None:
            left = [name for name in names if self._answers.pop(name, None)]
            if left:
                engine.abort_request(left)

        self.call(drop)

    def close(self) -> None:
        """End the thread and let go of the engine."""
        if self._thread.is_alive():
            self._inbox.put(None)
            self._thread.join()

    def _put(self, work: Callable[[], None]) -> None:
        if not self._thread.is_alive():
            raise RuntimeError("the vLLM engine is closed")
        self._inbox.put(work)

    def _start(self, build: Callable[[], Any]) -> None:
        self._engine = build()

    def _run(self) -> None:
        while True:
            # Wait for work only where there is nothing to step.
            work = self._take(wait=not self._answers)
            while work is not _NOTHING:
                if work is None:
                    self._shut_down()
                    return
                work()
                work = self._take(wait=False)
            if self._answers:
                try:
                    self._step()
                except Exception as e:
                    # The engine is beyond help, and so are those that wait for it.
                    answers, self._answers = self._answers, {}
                    for on_answer, _ in answers.values():
                        on_answer(0, e)

    def _take(self, wait: bool) -> Any:
        try:
            return self._inbox.get(block=wait)
        except queue.Empty:
            return _NOTHING

    def _step(self) -> None:
        for output in self._engine.step():
            if output.request_id not in self._answers:
                continue
            on_answer, parts = self._answers[output.request_id]
            for piece in output.outputs:
                ids, logps = parts.setdefault(piece.index, ([], []))
                ids += piece.token_ids
                # One entry a token: that of the sampled one.
                logps += [piece.logprobs.logprobs[k] for k in piece.logprobs.start_indices]
                if piece.finish_reason is not None:
                    del parts[piece.index]
                    stopped = piece.finish_reason == "stop"
                    on_answer(piece.index, Completion(ids, logps, "stop" if stopped else "length"))
            if output.finished:
                del self._answers[output.request_id]

    def _params(self, n: int, sampling: Sampling, seed: int) -> Any:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        return SamplingParams(
            n=n,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k or -1,
            seed=seed,
            max_tokens=sampling.max_new_tokens,
            # What ends an answer is for the caller to say, not for a generation_config.json.
            ignore_eos=True,
            stop_token_ids=self._end_ids,
            logprobs=0,
            flat_logprobs=True,
            detokenize=False,
            # Each of the n comes as soon as it is done; the engine is built with an interval longer than any answer.
            output_kind=RequestOutputKind.DELTA,
        )

    def _shut_down(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.engine_core.shutdown()


_NOTHING: Any = object()
