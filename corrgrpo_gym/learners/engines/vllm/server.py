"""vLLM as a server of its own, perhaps on other GPUs: tokens by HTTP, weights through files that both can read."""

import asyncio
import json
import os
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import openai
import torch

from ....errors import GymError
from ..base import Completion, Interrupted, More, OnFinish, Sampling
from . import weights
from .local import memory_folder, request_seed
from .worker import EXTENSION

# Seconds that taking new weights, or one batch's slowest answer, may take.
PATIENCE = 3600.0
HOW = "Start it by `corrgrpo-gym serve --model ...` (see the README)"


class VllmServer:
    """A vLLM server that was started by `corrgrpo-gym serve`.

    Args:
        url: Of its root or of its /v1.
        end_ids: Token ids that end an answer.
        folder: Where new weights are written for it; empty: in this machine's memory.
        cut: As in `local.Options`.
        lora: Whether adapters will be pushed.
        concurrency: Requests at the same time.

    Raises:
        GymError: It can't be reached, or was not started with what training needs.
    """

    name: Literal["transformers", "vllm"] = "vllm"

    def __init__(
        self, url: str, end_ids: Sequence[int], *, folder: str = "", cut: bool = False, lora: bool = False,
        concurrency: int = 256,
    ):  # fmt: skip
        self.root = url.rstrip("/").removesuffix("/v1")
        self.version = -1
        self._end_ids = list(end_ids)
        self._concurrency = concurrency
        self._key = os.environ.get("VLLM_API_KEY", "none")
        self._adapters = 0
        self._asleep = self._filled = False
        model = self._check(cut, lora)
        self._dtype = getattr(torch, str(model["dtype"]).removeprefix("torch."))
        self._can_sleep = bool(model["enable_sleep_mode"])
        self.model = self._served = str(self._get("/v1/models")["data"][0]["id"])
        if not folder and urlsplit(self.root).hostname not in ("localhost", "127.0.0.1", "::1"):
            raise GymError(
                f"engine.url is {url}, on another machine: name a folder that both can read by --set engine.folder=..."
            )
        try:
            self._folder = tempfile.TemporaryDirectory(prefix="corrgrpo-gym-vllm-", dir=folder or memory_folder())
        except OSError as e:
            raise GymError(f"engine.folder: cannot write to {folder}: {e.strerror}") from e

    def push(self, policy: Any, version: int) -> None:
        """See Engine. The server's workers read the file that holds the weights, or the folder of the adapters."""
        folder = Path(self._folder.name)
        if self._asleep:
            self._post("/wake_up?tags=weights")
        if not policy.is_lora or not self._filled:
            path = weights.write(policy, folder, self._dtype)
            try:
                self._post("/collective_rpc", {"method": "read_learner_weights", "args": [str(path)],
                                               "timeout": PATIENCE})  # fmt: skip
            except GymError as e:
                raise GymError(f"{e}\nDoes it serve the model that is trained? It serves {self._served}") from e
            finally:
                path.unlink()
        self._filled = True
        if self._asleep:
            self._post("/wake_up?tags=kv_cache")
        self._asleep = False
        if policy.is_lora:
            self._push_adapter(policy, folder)
        if not self._post("/reset_prefix_cache").get("success", True):
            raise GymError(f"the vLLM server at {self.root} did not forget the prefixes of the old weights: it is busy")
        self.version = version

    def _push_adapter(self, policy: Any, folder: Path) -> None:
        self._adapters += 1
        old, new = self.model, f"learner-{os.getpid()}-{self._adapters}"
        path = weights.write_adapter(policy, folder)
        self._post("/v1/load_lora_adapter", {"lora_name": new, "lora_path": str(path)})
        self.model = new
        if old != self._served:
            self._post("/v1/unload_lora_adapter", {"lora_name": old})

    def sleep(self) -> None:
        """See Engine: does what `corrgrpo-gym serve --sleep` allows."""
        if self._can_sleep and not self._asleep:
            self._post(f"/sleep?level={1 if self._adapters else 2}")
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
        """See TokenEngine. The n samples of a prompt are one request, further answers of a sample one each."""
        return asyncio.run(self._generate(prompts, n, sampling, seeds, on_finish, interrupted))

    def close(self) -> None:
        """See Engine. The server goes on."""
        self._folder.cleanup()

    async def _generate(
        self, prompts: Sequence[Sequence[int]], n: int, sampling: Sampling, seeds: Sequence[int] | None,
        on_finish: OnFinish | None, interrupted: Callable[[], bool],
    ) -> list[list[Completion]]:  # fmt: skip
        gate = asyncio.Semaphore(self._concurrency)
        client = openai.AsyncOpenAI(base_url=f"{self.root}/v1", api_key=self._key, timeout=PATIENCE, max_retries=2)

        async def ask(ids: Sequence[int], count: int, tokens: int, seed: int) -> list[Completion]:
            async with gate:
                return await self._ask(client, ids, count, tokens, sampling, seed)

        async def sample(i: int, j: int, answer: Completion) -> Completion:
            context, turn = list(prompts[i]), 0
            while on_finish is not None and (future := on_finish(i, j, answer)) is not None:
                more: More | None = await asyncio.wrap_future(future)
                if more is None:
                    break
                context += [*answer.ids, *more.ids]
                turn += 1
                seed = request_seed(sampling, seeds, i, j, turn)
                [answer] = await ask(context, 1, more.max_new_tokens, seed)
            return answer

        async def group(i: int) -> list[Completion]:
            seed = request_seed(sampling, seeds, i)
            # vLLM refuses several greedy answers of one request.
            asks, each = (1, n) if sampling.temperature else (n, 1)
            found = await asyncio.gather(*(ask(prompts[i], each, sampling.max_new_tokens, seed) for _ in range(asks)))
            answers = [answer for part in found for answer in part]
            return list(await asyncio.gather(*(sample(i, j, answer) for j, answer in enumerate(answers))))

        async def watch() -> Any:
            while not interrupted():
                await asyncio.sleep(0.2)
            raise Interrupted

        async with client:
            watcher = asyncio.create_task(watch())
            groups = [asyncio.create_task(group(i)) for i in range(len(prompts))]
            try:
                # The watcher ends only by raising, and so does whatever goes wrong in a group.
                left: set[asyncio.Task[Any]] = {*groups, watcher}
                while left != {watcher}:
                    done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
                    for task in done:
                        task.result()
                return [task.result() for task in groups]
            finally:
                # Connections that close make the server drop what it was sampling.
                for task in (watcher, *groups):
                    task.cancel()
                await asyncio.gather(watcher, *groups, return_exceptions=True)

    async def _ask(
        self, client: openai.AsyncOpenAI, ids: Sequence[int], count: int, tokens: int, sampling: Sampling, seed: int
    ) -> list[Completion]:
        try:
            answer = await client.completions.create(
                model=self.model,
                prompt=list(ids),
                n=count,
                max_tokens=tokens,
                temperature=sampling.temperature,
                top_p=sampling.top_p,
                seed=seed,
                logprobs=0,
                extra_body={
                    "top_k": sampling.top_k or -1,
                    "ignore_eos": True,
                    "stop_token_ids": self._end_ids,
                    "return_token_ids": True,
                    "skip_special_tokens": False,
                },
            )
        except openai.APIError as e:
            raise GymError(f"the vLLM server at {self.root} failed: {e.message}") from e
        out = []
        for choice in sorted(answer.choices, key=lambda c: c.index):
            token_ids = (choice.model_extra or {}).get("token_ids")
            if token_ids is None or choice.logprobs is None:
                raise GymError(f"the server at {self.root} gives no token ids or log-probabilities. {HOW}")
            logps = [float(p) for p in choice.logprobs.token_logprobs or ()]
            out.append(Completion(list(token_ids), logps, "stop" if choice.finish_reason == "stop" else "length"))
        return out

    def _check(self, cut: bool, lora: bool) -> dict[str, Any]:
        """The server's model configuration, if it was started as a learner needs it."""
        config = self._get("/server_info?config_format=json")["vllm_config"]
        model = config["model_config"]
        wanted = "raw_logprobs" if cut else "processed_logprobs"
        faults = [
            (config["parallel_config"].get("worker_extension_cls") != EXTENSION, "can't take new weights"),
            (model.get("logprobs_mode") != wanted, f"reports other log-probabilities than {wanted}"),
            (lora and not config.get("lora_config"), "takes no adapters (serve --lora-rank N)"),
        ]
        if found := [text for wrong, text in faults if wrong]:
            raise GymError(f"the vLLM server at {self.root} {' and '.join(found)}. {HOW}")
        return model

    def _get(self, path: str) -> Any:
        return self._call(urllib.request.Request(self.root + path))

    def _post(self, path: str, body: Any = None) -> Any:
        data = json.dumps(body).encode() if body is not None else b""
        return self._call(urllib.request.Request(self.root + path, data, {"Content-Type": "application/json"}))

    def _call(self, request: urllib.request.Request) -> Any:
        request.add_header("Authorization", f"Bearer {self._key}")
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as response:
                text = response.read()
        except urllib.error.HTTPError as e:
            if e.code == 404:
                raise GymError(f"the server at {self.root} has no {request.selector}. {HOW}") from e
            said = e.read(2000).decode(errors="replace")
            raise GymError(f"the vLLM server at {self.root}: {request.selector}: status {e.code}: {said}") from e
        except (OSError, ValueError) as e:
            reason = getattr(e, "reason", e)
            raise GymError(f"no vLLM server answers at {self.root}: {reason}. {HOW}") from e
        try:
            return json.loads(text) if text else {}
        except ValueError:
            return {}
