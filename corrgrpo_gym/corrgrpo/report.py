"""What the reward vectors of a batch look like to GRPO and to CorrGRPO."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from torch import Tensor

from ..errors import GymError
from .batch import RewardBatch
from .catalogue import choose
from .statistics import centre, correlation_sum, count, std, unit


@dataclass(frozen=True)
class RewardReport:
    """Diagnostics by group, in float64; components are weighted, NaN stands where a figure is not defined.

    Attributes:
        names: K names.
        covariance: [G, K, K]; its sum is the variance of the total R if no value is missing.
        correlation: [G, K, K]; row and column of a constant component are 0. Its sum is S.
        alive: bool [G, K], components that are not constant in their group.
        grpo_share: [G, K], each component's share of GRPO's denominator: cov(c_k, R) / var R. They add up to
            1.
        corrgrpo_share: [G, K], the same for CorrGRPO: sum_j rho_kj / S. They add up to 1.
        variance_share: [G, K], var c_k / var R, without the covariances (the 91.1 % of the paper's Figure 2).
        grpo_multiplier: [G], 1 / (std R + eps); NaN where R is constant.
        corrgrpo_multiplier: [G], 1 / sqrt(S + eps), S after the guard; NaN where every component is constant.
        s: [G], S before the guard; NaN where every component is constant.
        floored: bool [G], groups whose S the guard lifted.
    """

    names: tuple[str, ...]
    covariance: Tensor
    correlation: Tensor
    alive: Tensor
    grpo_share: Tensor
    corrgrpo_share: Tensor
    variance_share: Tensor
    grpo_multiplier: Tensor
    corrgrpo_multiplier: Tensor
    s: Tensor
    floored: Tensor

    @property
    def per_group(self) -> dict[str, Tensor]:
        """All tensors by name, groups first."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "names"}

    def summary(self) -> dict[str, float]:
        """Averages over the batch by flat name, such as "correlation/format/accuracy"; ready for JSON.

        Each is taken over the groups where it is defined; correlations over those where both components are
        alive, shares over those that were not floored. One that is defined nowhere is left out.
        """
        live = self.alive.any(-1)
        live_groups = max(1, int(live.sum()))
        figures = {
            "groups": float(len(live)),
            "live_share": live.double().mean().item(),
            "floored_share": self.floored.sum().item() / live_groups,
        }
        for name in ("s", "grpo_multiplier", "corrgrpo_multiplier"):
            figures[name] = getattr(self, name).nanmean().item()
        alive = self.alive.double().mean(0).tolist()
        covariance = self.covariance.mean(0).tolist()
        both_alive = self.alive[:, :, None] & self.alive[:, None, :]
        correlation = self.correlation.masked_fill(~both_alive, float("nan")).nanmean(0).tolist()
        for k, name in enumerate(self.names):
            figures[f"alive_share/{name}"] = alive[k]
            for share in ("grpo_share", "corrgrpo_share", "variance_share"):
                values = getattr(self, share)[:, k]
                figures[f"{share}/{name}"] = values.masked_fill(self.floored, float("nan")).nanmean().item()
            for j in range(k + 1):
                figures[f"covariance/{self.names[j]}/{name}"] = covariance[j][k]
                if j < k:
                    figures[f"correlation/{self.names[j]}/{name}"] = correlation[j][k]
        return {name: value for name, value in figures.items() if value == value}


def reward_report(
    rewards: Tensor,
    weights: Sequence[float] | Tensor | None = None,
    mask: Tensor | None = None,
    *,
    names: Sequence[str] | None = None,
    eps: float = 1e-6,
    guard: str = "floor",
    s_min: float = 0.1,
) -> RewardReport:
    """Compare what GRPO and CorrGRPO divide by, group by group.

    Args:
        rewards: [G, n, K], NaN for what could not be scored.
        weights: K weights; None is 1 each.
        mask: bool [G, n], False for a missing rollout.
        names: K names; None is "0", "1", ...
        eps: As in both estimators.
        guard: CorrGRPO's, "floor" or "paper".
        s_min: CorrGRPO's floor.

    Raises:
        GymError: As `RewardBatch.of`, or names that do not fit.
    """
    choose("guard", guard, ("floor", "paper"))
    batch = RewardBatch.of(rewards, weights=weights, mask=mask)
    components = batch.rewards.shape[-1]
    labels = tuple(names) if names is not None else tuple(str(k) for k in range(components))
    if len(labels) != components:
        raise GymError(f"{len(labels)} names for {components} reward components.")

    centred = centre(batch.components, batch.scorable)
    columns, alive = unit(centred)
    live = alive.any(-1)
    s = correlation_sum(columns).masked_fill(~live, float("nan"))
    floored = (s < s_min) & (guard == "floor")

    total = batch.centred_total[..., None]
    squares = total.square().sum(1)
    varies = squares > 1e-12 * centred.square().sum((1, 2))[:, None]  # less is rounding
    of_total = squares.masked_fill(~varies, float("nan"))
    of_s = s.masked_fill(s < 1e-9, float("nan"))[:, None]
    spread = std(total, batch.present[..., None])[:, 0, 0]
    scaled = centred / (count(centred, batch.scorable) - 1).clamp(min=1).sqrt()
    return RewardReport(
        names=labels,
        covariance=scaled.mT @ scaled,
        correlation=columns.mT @ columns,
        alive=alive,
        grpo_share=(centred * total).sum(1) / of_total,
        corrgrpo_share=(columns * columns.sum(-1, keepdim=True)).sum(1) / of_s,
        variance_share=centred.square().sum(1) / of_total,
        grpo_multiplier=(1 / (spread + eps)).masked_fill(~varies[:, 0], float("nan")),
        corrgrpo_multiplier=1 / (s.masked_fill(floored, s_min) + eps).sqrt(),
        s=s,
        floored=floored,
    )
