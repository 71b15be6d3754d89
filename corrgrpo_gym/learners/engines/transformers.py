"""Sampling with a transformers model, the learner's own: no copy of the weights, so nothing to synchronise."""

import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Literal

import torch

from ..kv import padding_is_free, prefill, select_rows
from . import base
from .base import Completion, Interrupted, More, OnFinish, Sampling, settle


class TransformersEngine:
    """Batched decoding with each prompt prefilled once for all of its samples.

    Args:
        model: A causal LM of transformers whose cache can be indexed by row.
        end_ids: Token ids that end an answer.
        max_rows: Sequences decoded at the same time.
        autocast: A function that returns the context manager in which the model runs.
    """

    name: Literal["transformers", "vllm"] = "transformers"

    def __init__(
        self,
        model: Any,
        end_ids: Sequence[int],
        max_rows: int = 256,
        autocast: Callable[[], Any] | None = None,
    ):
        self.model = model
        self.end_ids = tuple(end_ids)
        self.max_rows = max_rows
        self.autocast = autocast or (lambda: torch.autocast("cpu", enabled=False))
        self.version = -1

    def push(self, policy: Any, version: int) -> None:
        """See Engine: the weights are the policy's own."""
        self.version = version

    def sleep(self) -> None:
        """See Engine: there is nothing but the learner's own memory."""

    def close(self) -> None:
        """See Engine."""

    @torch.no_grad()
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
        """See TokenEngine. Further answers are sampled in rounds, so that a batch holds the same rows each time."""
        training = self.model.training
        self.model.eval()
        results: list[list[Completion | None]] = [[None] * n for _ in prompts]
        waiting: dict[_Row, Future[More | None]] = {}

        def finish(row: _Row, completion: Completion) -> None:
            results[row.prompt][row.sample] = completion
            future = on_finish(row.prompt, row.sample, completion) if on_finish else None
            if future is not None:
                waiting[row] = future

        rows = [_Row(i, j, prompt, sampling.max_new_tokens) for i, prompt in enumerate(prompts) for j in range(n)]
        turn = 0
        try:
            while rows:
                longest = max(row.limit for row in rows)
                if seeds is None:
                    noise = _noise(sampling.seed, turn, len(prompts) * n, longest)
                else:
                    noise = torch.cat([_noise(seed, turn, n, longest) for seed in seeds])
                with self.autocast():
                    for batch in self._batches(rows):
                        draws = noise[[row.prompt * n + row.sample for row in batch]]
                        self._decode(batch, draws, sampling, finish, interrupted)
                settle(waiting.values(), interrupted)
                rows = []
                for row, future in waiting.items():
                    if (more := future.result()) is not None:
                        answer = results[row.prompt][row.sample]
                        assert answer is not None
                        context = [*row.context, *answer.ids, *more.ids]
                        rows.append(_Row(row.prompt, row.sample, context, more.max_new_tokens))
                rows.sort(key=lambda row: (row.prompt, row.sample))
                waiting.clear()
                turn += 1
        finally:
            self.model.train(training)
        return results  # type: ignore[return-value]

    def _batches(self, rows: list["_Row"]) -> list[list["_Row"]]:
        """Rows of similar length share a batch: less padding."""
        ordered = sorted(rows, key=lambda row: len(row.context))
        parts = [ordered]
        if not padding_is_free(self.model):
            parts = [list(part) for _, part in itertools.groupby(ordered, key=lambda row: len(row.context))]
        return [part[k : k + self.max_rows] for part in parts for k in range(0, len(part), self.max_rows)]

    def _decode(
        self,
        rows: list["_Row"],
        draws: torch.Tensor,
        sampling: Sampling,
        finish: Callable[["_Row", Completion], None],
        interrupted: Callable[[], bool],
    ) -> None:
        """Sample one answer to each row; `draws` [B, limit] are uniform numbers."""
        device = self.model.device
        # What several rows have in common, the prompt of their first answer, is the same object.
        place: dict[int, int] = {}
        for row in rows:
            place.setdefault(id(row.context), len(place))
        distinct = {id(row.context): row.context for row in rows}
        prefix = prefill(self.model, list(distinct.values()), device)
        expand = torch.tensor([place[id(row.context)] for row in rows], device=device)
        cache, mask, position = prefix.cache, prefix.mask[expand], prefix.lengths[expand]
        select_rows(cache, expand)
        token = torch.tensor([row.context[-1] for row in rows], device=device)
        draws = draws.to(device)
        ends = torch.tensor(self.end_ids, device=device)
        alive = list(rows)
        sampled: dict[_Row, tuple[list[int], list[float]]] = {row: ([], []) for row in rows}
        for step in itertools.count(1):
            if interrupted():
                raise Interrupted
            mask = torch.cat([mask, mask.new_ones(len(alive), 1)], 1)
            logits = self.model(
                input_ids=token[:, None],
                attention_mask=mask,
                position_ids=position[:, None],
                use_cache=True,
                **cache,
            ).logits[:, -1]
            token, logp = draw(logits.float(), draws[:, step - 1], sampling)
            stopped = torch.isin(token, ends).tolist()
            done = []
            for row, t, p, stop in zip(alive, token.tolist(), logp.tolist(), stopped, strict=True):
                sampled[row][0].append(t)
                sampled[row][1].append(p)
                done.append(stop or step == row.limit)
                if done[-1]:
                    finish(row, Completion(*sampled.pop(row), "stop" if stop else "length"))
            if all(done):
                break
            position = position + 1
            if any(done):
                keep = torch.tensor([k for k, d in enumerate(done) if not d], device=device)
                alive = [row for row, d in zip(alive, done, strict=True) if not d]
                select_rows(cache, keep)
                token, mask, position, draws = token[keep], mask[keep], position[keep], draws[keep]


@dataclass(frozen=True, slots=True, eq=False)
class _Row:
    """A sequence that waits for an answer: whose it is, what it holds so far, and how long the answer may be."""

    prompt: int
    sample: int
    context: Sequence[int]
    limit: int


def _noise(seed: int, turn: int, rows: int, tokens: int) -> torch.Tensor:
    """One uniform number per row and token, drawn up front.

    So the draw of a row depends neither on which other rows are still running nor on how rows are cut into batches.
    """
    if turn:
        seed = base.seed(seed, turn)
    return torch.rand((rows, tokens), generator=torch.Generator().manual_seed(seed))


def draw(logits: torch.Tensor, u: torch.Tensor, sampling: Sampling) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw a token per row by inverting the distribution function at u.

    Args:
        logits: [B, V], float32.
        u: [B] in [0, 1).
        sampling: How to draw.

    Returns:
        Tokens [B] and their log-probabilities [B] as Completion defines them.
    """
    if sampling.temperature == 0:
        token = logits.argmax(-1)
        return token, logits.log_softmax(-1).gather(-1, token[:, None])[:, 0]
    logps = (logits / sampling.temperature).log_softmax(-1)
    if sampling.top_k or sampling.top_p < 1:
        ranked, order = logps.sort(dim=-1, descending=True, stable=True)
        probs = ranked.exp()
        if sampling.top_p < 1:
            probs = probs.masked_fill(probs.cumsum(-1) - probs >= sampling.top_p, 0.0)
        if sampling.top_k:
            probs[:, sampling.top_k :] = 0.0
    else:
        order, probs = None, logps.exp()
    cumulative = probs.cumsum(-1)
    # Strictly below the total: the last token with any probability is the largest answer.
    target = torch.minimum(u[:, None] * cumulative[:, -1:], cumulative[:, -1:] * (1 - 1e-6))
    index = torch.searchsorted(cumulative, target, right=True).clamp(max=logits.shape[-1] - 1)
    token = index if order is None else order.gather(-1, index)
    return token[:, 0], logps.gather(-1, token)[:, 0]
