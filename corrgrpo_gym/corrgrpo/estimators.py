"""Advantage estimators: reward vectors [G, n, K] to one advantage per rollout [G, n].

Each is one function, beside its formula and paper. In the formulas R = sum_k w_k r_k is a rollout's weighted
total and Z_k = (r_k - mean r_k) / (std r_k + eps); mean and std are over a group, std with divisor n - 1. A
penalty (overlong shaping) is part of R, or is added, centred, to a sum of Z_k: it never enters a correlation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import GymError
from .catalogue import choose, register_estimator
from .results import Estimate
from .statistics import (
    BATCH,
    centre,
    correlation_sum,
    count,
    std,
    token_mean,
    unit,
    whiten_rollouts,
    whiten_tokens,
)

if TYPE_CHECKING:
    from torch import Tensor

    from .batch import RewardBatch


@register_estimator(
    "grpo",
    paper="DeepSeekMath, arXiv 2402.03300",
    description="(R - mean R) / (std R + eps)",
)
def grpo(batch: RewardBatch, *, eps: float = 1e-6, scale: str = "group") -> Tensor:
    """GRPO. `scale="batch"` takes the std of R over the batch. The default eps is verl's; TRL's is 1e-4."""
    choose("scale", scale, ("group", "batch"))
    if scale == "group":
        spread = std(batch.centred_total, batch.present)
    else:
        spread = std(centre(batch.total, batch.present, BATCH), batch.present, BATCH)
    return batch.centred_total / (spread + eps)


@register_estimator(
    "dr_grpo",
    paper="Understanding R1-Zero-Like Training, arXiv 2503.20783",
    description="R - mean R",
)
def dr_grpo(batch: RewardBatch) -> Tensor:
    """Dr. GRPO: no division by the standard deviation."""
    return batch.centred_total


@register_estimator(
    "corrgrpo",
    paper="CorrGRPO, arXiv 2609.36820",
    description="(R - mean R) / sqrt(max(S, 0) + eps), S = sum of the correlation matrix of the w_k r_k",
)
def corrgrpo(batch: RewardBatch, *, eps: float = 1e-6, guard: str = "floor", s_min: float = 0.1) -> Estimate:
    """CorrGRPO. S is the variance of the sum of the z-scored components; a constant component is not in it.

    Opposed components of unequal scale make S about 0 with a numerator that is not: `guard="floor"` keeps S
    at `s_min` or more, `guard="paper"` is the formula as published.
    """
    columns, alive = unit(centre(batch.components, batch.scorable))
    s = correlation_sum(columns)
    live = alive.any(-1)
    s, floored = _guarded(s, live, guard, s_min)
    return Estimate(
        batch.centred_total / (s + eps).sqrt()[:, None],
        info={
            "s_mean": _mean(s, live),
            "floored_share": _mean(floored, live),
            "live_share": live.double().mean().item(),
        },
    )


@register_estimator(
    "gdpo",
    paper="GDPO, arXiv 2601.05242",
    description="A = sum_k w_k Z_k, then (A - mean A) / (std A + eps_batch) over the batch",
)
def gdpo(batch: RewardBatch, *, eps: float = 1e-6, eps_batch: float = 1e-4, whiten: str = "rollouts") -> Tensor:
    """GDPO. `whiten="tokens"`, as in verl: every response token counts once, divided by sqrt(var + 1e-8)."""
    return _whiten(_z_total(batch, eps), batch, whiten, eps_batch)


@register_estimator(
    "gdpo+corrgrpo",
    paper="CorrGRPO, arXiv 2609.36820, table 8",
    description="A = sum_k w_k Z_k, (A - token mean A) / sqrt(max(S, 0) + eps), S of the batch's w_k Z_k",
)
def gdpo_corrgrpo(batch: RewardBatch, *, eps: float = 1e-6, guard: str = "floor", s_min: float = 0.1) -> Estimate:
    """GDPO's components and CorrGRPO's denominator over the batch, one row per rollout; its guards."""
    columns = batch.z(eps) * batch.weights
    total = columns.sum(-1) + batch.centred_penalty
    numerator = total - token_mean(total, batch.present, batch.tokens)
    rows, alive = unit(centre(columns, batch.present[..., None], BATCH).flatten(0, 1)[None])
    s = correlation_sum(rows)
    live = alive.any(-1)
    s, floored = _guarded(s, live, guard, s_min)
    return Estimate(
        numerator / (s + eps).sqrt(),
        info={"s_mean": _mean(s, live), "floored_share": _mean(floored, live)},
    )


@register_estimator(
    "rloo",
    paper="Back to Basics, arXiv 2402.14740",
    description="R_i - mean of R_j over the other rollouts j of the group",
)
def rloo(batch: RewardBatch, *, clip: tuple[float, float] | None = None) -> Tensor:
    """Leave-one-out baseline; `clip=(low, high)` bounds R first. A rollout without siblings has A = 0."""
    if clip is not None and not (len(clip) == 2 and clip[0] <= clip[1]):
        raise GymError(f"option 'clip' of estimator 'rloo' must be (low, high), got {clip!r}.")
    total = batch.total if clip is None else batch.total.clamp(*clip)
    n = count(total, batch.present)
    return centre(total, batch.present) * n / (n - 1).clamp(min=1)


@register_estimator(
    "reinforce++",
    paper="REINFORCE++, arXiv 2501.03262 (its baseline variant)",
    description="R - mean R, then whitened over the batch's response tokens, divided by sqrt(var + eps)",
)
def reinforce_plus_plus(batch: RewardBatch, *, eps: float = 1e-8) -> Tensor:
    """REINFORCE++ with a group baseline."""
    return whiten_tokens(batch.centred_total, batch.present, batch.tokens, eps)


@register_estimator(
    "mo_grpo",
    paper="MO-GRPO, arXiv 2509.22047 (formula inferred from its abstract)",
    description="sum_k w_k Z_k",
)
def mo_grpo(batch: RewardBatch, *, eps: float = 1e-6) -> Tensor:
    """GDPO without the whitening over the batch."""
    return _z_total(batch, eps)


@register_estimator(
    "dara",
    paper="DARA, arXiv 2610.00574, its code",
    description="sum_k [Z_k + (d_k - 1) max(Z_k, 0)], d_k = min(5, sqrt(max pi / pi_k)); GDPO's whitening",
)
def dara(
    batch: RewardBatch,
    *,
    symmetric: bool = False,
    d_max: float = 5.0,
    eps: float = 1e-6,
    eps_batch: float = 1e-6,
    whiten: str = "rollouts",
) -> Estimate:
    """DARA: a component that is rarely alive counts more.

    pi_k is the share of the batch's groups in which component k is alive (sum_i |Z_k| > 1e-8); a component
    that is alive nowhere has d_k = 1. `symmetric` weights the whole Z_k: s = sum_k d_k Z_k. The components'
    own weights w_k, 1 in the paper, multiply their terms.
    """
    z = batch.z(eps)
    density = (z.abs().sum(1) > 1e-8).double().mean(0)
    boost = (density.max() / density.masked_fill(density == 0, 1)).sqrt().clamp(max=d_max)
    boost = boost.masked_fill(density == 0, 1)
    terms = boost * z if symmetric else z + (boost - 1) * z.clamp(min=0)
    total = (batch.weights * terms).sum(-1) + batch.centred_penalty
    info = {f"density_{k}": pi for k, pi in enumerate(density.tolist())}
    return Estimate(_whiten(total, batch, whiten, eps_batch), info=info)


@register_estimator(
    "dvao",
    paper="DVAO, as ported in DARA's code, arXiv 2610.00574",
    description="(R - mean R) / sum_k w_k std_k, std with divisor n; 0 where the divisor is <= 1e-8",
)
def dvao(batch: RewardBatch) -> Tensor:
    """DVAO: the denominator ignores the correlations, as if all were 1. No whitening."""
    centred = centre(batch.rewards, batch.scorable)
    divisor = (batch.weights * std(centred, batch.scorable, ddof=0)).sum(-1)
    dead = divisor <= 1e-8
    return (batch.centred_total / divisor.masked_fill(dead, 1)).masked_fill(dead, 0)


@register_estimator(
    "gd2po",
    paper="GD2PO, arXiv 2606.16771, as ported in DARA's code",
    description="sum_k w_k Z_k of the rollouts whose Z_k agree in sign, whitened over them; 0 for the others",
)
def gd2po(batch: RewardBatch, *, eps: float = 1e-6, eps_batch: float = 1e-6, sign_eps: float = 1e-8) -> Estimate:
    """GD2PO (hard): rollouts in conflict are dropped; the share kept weights the prompt's loss."""
    z = batch.z(eps) * batch.weights
    mixed = (z > sign_eps).any(-1) & (z < -sign_eps).any(-1)
    kept = batch.present & ~mixed
    share = kept.double().sum(1) / batch.present.double().sum(1).clamp(min=1)
    return Estimate(
        whiten_rollouts(z.sum(-1) + batch.centred_penalty, kept, eps_batch),
        group_weights=share,
        info={"kept_share": _mean(kept, batch.present)},
    )


def _z_total(batch: RewardBatch, eps: float) -> Tensor:
    return (batch.weights * batch.z(eps)).sum(-1) + batch.centred_penalty


def _whiten(total: Tensor, batch: RewardBatch, whiten: str, eps_batch: float) -> Tensor:
    choose("whiten", whiten, ("rollouts", "tokens"))
    if whiten == "tokens":
        return whiten_tokens(total, batch.present, batch.tokens)
    return whiten_rollouts(total, batch.present, eps_batch)


def _guarded(s: Tensor, live: Tensor, guard: str, s_min: float) -> tuple[Tensor, Tensor]:
    """S after its guard, and which entries the floor lifted.

    Where every component is constant only a penalty can be left in the numerator: S = 1 keeps its scale.
    """
    choose("guard", guard, ("floor", "paper"))
    floored = live & (s < s_min) if guard == "floor" else live & False
    return s.masked_fill(floored, s_min).masked_fill(~live, 1), floored


def _mean(values: Tensor, where: Tensor) -> float:
    return (values.double() * where).sum().item() / max(1, int(where.sum()))
