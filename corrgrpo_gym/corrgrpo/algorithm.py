"""An algorithm: a loss, an estimator, their options, and the loss's sampling rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .catalogue import SamplingRules, find, resolve
from .results import Estimate, PolicyLoss

if TYPE_CHECKING:
    from torch import Tensor

    from .aggregation import BatchTotals


@dataclass(frozen=True)
class Algorithm:
    """A named composition of a policy loss and an advantage estimator.

    Needs no torch until it computes something. All names and options are checked when it is made.

    Attributes:
        loss: Name of the loss.
        estimator: Name of the estimator.
        loss_options: The loss's options, and `aggregation`, `norm_length`, `kl_coef`, `kl`, `kl_unbiased`.
        estimator_options: The estimator's options, and `missing`.
        weights: Weights of the reward components, or None for 1 each.
        name: What `--algo` took; by default "<loss>+<estimator>".

    Raises:
        GymError: An unknown name or option, with the nearest ones.
    """

    loss: str = "ppo_clip"
    estimator: str = "grpo"
    loss_options: Mapping[str, Any] = field(default_factory=dict)
    estimator_options: Mapping[str, Any] = field(default_factory=dict)
    weights: Sequence[float] | None = None
    name: str = ""

    def __post_init__(self) -> None:
        find("loss", self.loss).check(self.loss_options)
        find("estimator", self.estimator).check(self.estimator_options)
        object.__setattr__(self, "name", self.name or f"{self.loss}+{self.estimator}")

    @classmethod
    def from_name(
        cls,
        name: str,
        *,
        loss_options: Mapping[str, Any] | None = None,
        estimator_options: Mapping[str, Any] | None = None,
        weights: Sequence[float] | None = None,
    ) -> Algorithm:
        """The algorithm of a name such as "corrgrpo", "cispo+corrgrpo" or "dapo+gdpo".

        The longest registered name wins: "gdpo+corrgrpo" is the estimator of that name.
        """
        loss, estimator = resolve(name)
        return cls(loss, estimator, loss_options or {}, estimator_options or {}, weights, name.strip().lower())

    @property
    def sampling(self) -> SamplingRules:
        """What the loss asks of the sampler (DAPO: dynamic sampling and overlong shaping)."""
        return find("loss", self.loss).sampling

    @property
    def aggregation(self) -> str:
        """The aggregation in use."""
        return self.loss_options.get("aggregation") or find("loss", self.loss).aggregation

    def estimate(
        self,
        rewards: Tensor,
        *,
        mask: Tensor | None = None,
        token_counts: Tensor | None = None,
        penalty: Tensor | None = None,
    ) -> Estimate:
        """Advantages of a batch; arguments as in `corrgrpo_gym.corrgrpo.estimate`."""
        from .advantage import estimate

        return estimate(
            self.estimator,
            rewards,
            weights=self.weights,
            mask=mask,
            token_counts=token_counts,
            penalty=penalty,
            **self.estimator_options,
        )

    def policy_loss(
        self,
        logp: Tensor,
        old_logp: Tensor,
        advantages: Tensor,
        mask: Tensor,
        *,
        ref_logp: Tensor | None = None,
        totals: BatchTotals | None = None,
        sampler_weights: Tensor | None = None,
        **options: Any,
    ) -> PolicyLoss:
        """The loss of a (micro-)batch; arguments as in `corrgrpo_gym.corrgrpo.policy_loss`.

        `options` come on top of `loss_options`.
        """
        from .objective import policy_loss

        return policy_loss(
            self.loss,
            logp,
            old_logp,
            advantages,
            mask,
            ref_logp=ref_logp,
            totals=totals,
            sampler_weights=sampler_weights,
            **{**self.loss_options, **options},
        )

    def keep_groups(
        self,
        rewards: Tensor,
        reward_names: Sequence[str],
        *,
        mask: Tensor | None = None,
        accuracy: str | None = None,
    ) -> Tensor:
        """Groups to train on, bool [G]: all, or with dynamic sampling those of `sampling.keep_groups`."""
        from .sampling import keep_groups

        kept = keep_groups(rewards, reward_names, mask=mask, accuracy=accuracy)
        return kept if self.sampling.dynamic else kept | True

    def overlong_penalty(self, lengths: Tensor, max_length: int, cache: int | None = None) -> Tensor | None:
        """The penalty for `estimate`, shaped like `lengths`; None where there is no overlong shaping."""
        from .sampling import overlong_penalty

        return overlong_penalty(lengths, max_length, cache) if self.sampling.overlong else None
