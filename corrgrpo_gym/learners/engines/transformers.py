"""Sampling with a transformers model, the learner's own: no copy of the weights, so nothing to synchronise."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..kv import padding_is_free, prefill, select_rows
from .base import Completion, Interrupted, Sampling


class TransformersEngine:
    """Batched decoding with each prompt prefilled once for all of its samples.

    Args:
        model: A causal LM of transformers whose cache can be indexed by row.
        end_ids: Token ids that end an answer.
        max_rows: Sequences decoded at the same time.
        autocast: A function that returns the context manager in which the model runs.
    """

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

    @torch.no_grad()
    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        n: int,
        sampling: Sampling,
        *,
        on_finish: Callable[[int, int, Completion], None] | None = None,
        interrupted: Callable[[], bool] = lambda: False,
    ) -> list[list[Completion]]:
        """See TokenEngine."""
        training = self.model.training
        self.model.eval()
        results: list[list[Completion | None]] = [[None] * n for _ in prompts]

        def finish(prompt: int, sample: int, completion: Completion) -> None:
            results[prompt][sample] = completion
            if on_finish:
                on_finish(prompt, sample, completion)

        # One uniform number per row and token, drawn up front: the draw of a row depends neither on which other
        # rows are still running nor on how rows are cut into batches.
        generator = torch.Generator().manual_seed(sampling.seed)
        noise = torch.rand((len(prompts) * n, sampling.max_new_tokens), generator=generator)
        # Prompts of similar length share a batch: less padding.
        order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
        rows = [(i, j) for i in order for j in range(n)]
        if padding_is_free(self.model):
            parts = [rows]
        else:
            parts = [list(part) for _, part in itertools.groupby(rows, key=lambda row: len(prompts[row[0]]))]
        batches = [part[k : k + self.max_rows] for part in parts for k in range(0, len(part), self.max_rows)]
        try:
            with self.autocast():
                for batch in batches:
                    self._decode(prompts, batch, n, noise, sampling, finish, interrupted)
        finally:
            self.model.train(training)
        return results  # type: ignore[return-value]

    def _decode(
        self,
        prompts: Sequence[Sequence[int]],
        rows: list[tuple[int, int]],
        n: int,
        noise: torch.Tensor,
        sampling: Sampling,
        finish: Callable[[int, int, Completion], None],
        interrupted: Callable[[], bool],
    ) -> None:
        device = self.model.device
        distinct = sorted({i for i, _ in rows})
        place = {i: k for k, i in enumerate(distinct)}
        prefix = prefill(self.model, [prompts[i] for i in distinct], device)
        expand = torch.tensor([place[i] for i, _ in rows], device=device)
        cache, mask, position = prefix.cache, prefix.mask[expand], prefix.lengths[expand]
        select_rows(cache, expand)
        token = torch.tensor([prompts[i][-1] for i, _ in rows], device=device)
        draws = noise[[i * n + j for i, j in rows]].to(device)
        ends = torch.tensor(self.end_ids, device=device)
        alive = list(rows)
        sampled: dict[tuple[int, int], tuple[list[int], list[float]]] = {row: ([], []) for row in rows}
        for step in range(sampling.max_new_tokens):
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
            token, logp = draw(logits.float(), draws[:, step], sampling)
            done = torch.isin(token, ends).tolist()
            for row, t, p in zip(alive, token.tolist(), logp.tolist(), strict=True):
                sampled[row][0].append(t)
                sampled[row][1].append(p)
            last = step + 1 == sampling.max_new_tokens
            for row, stopped in zip(alive, done, strict=True):
                if stopped or last:
                    finish(*row, Completion(*sampled.pop(row), "stop" if stopped else "length"))
            if last or all(done):
                break
            position = position + 1
            if any(done):
                keep = torch.tensor([k for k, d in enumerate(done) if not d], device=device)
                alive = [row for row, d in zip(alive, done, strict=True) if not d]
                select_rows(cache, keep)
                token, mask, position, draws = token[keep], mask[keep], position[keep], draws[keep]


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
