"""The algorithms: advantage estimators, policy losses, their named compositions, reward diagnostics.

Pure functions on tensors. Names load on first use, so that the catalogue does not need torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .advantage import advantages as advantages
    from .advantage import estimate as estimate
    from .aggregation import BatchTotals as BatchTotals
    from .aggregation import aggregate as aggregate
    from .algorithm import Algorithm as Algorithm
    from .batch import RewardBatch as RewardBatch
    from .catalogue import AGGREGATIONS as AGGREGATIONS
    from .catalogue import KL_ESTIMATORS as KL_ESTIMATORS
    from .catalogue import Entry as Entry
    from .catalogue import SamplingRules as SamplingRules
    from .catalogue import register_estimator as register_estimator
    from .catalogue import register_loss as register_loss
    from .losses import TokenTerms as TokenTerms
    from .objective import kl_divergence as kl_divergence
    from .objective import policy_loss as policy_loss
    from .objective import truncated_importance_weights as truncated_importance_weights
    from .report import RewardReport as RewardReport
    from .report import reward_report as reward_report
    from .results import Estimate as Estimate
    from .results import PolicyLoss as PolicyLoss
    from .results import TokenLoss as TokenLoss
    from .sampling import keep_groups as keep_groups
    from .sampling import overlong_penalty as overlong_penalty

_HOME = {
    "advantage": ("advantages", "estimate"),
    "aggregation": ("BatchTotals", "aggregate"),
    "algorithm": ("Algorithm",),
    "batch": ("RewardBatch",),
    "catalogue": (
        "AGGREGATIONS",
        "KL_ESTIMATORS",
        "Entry",
        "SamplingRules",
        "register_estimator",
        "register_loss",
    ),
    "losses": ("TokenTerms",),
    "objective": ("kl_divergence", "policy_loss", "truncated_importance_weights"),
    "report": ("RewardReport", "reward_report"),
    "results": ("Estimate", "PolicyLoss", "TokenLoss"),
    "sampling": ("keep_groups", "overlong_penalty"),
}
_MODULE = {name: module for module, names in _HOME.items() for name in names}

__all__ = sorted(_MODULE)


def __getattr__(name: str) -> Any:
    if name not in _MODULE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_MODULE[name]}", __name__), name)


def __dir__() -> list[str]:
    return __all__
