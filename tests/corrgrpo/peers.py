"""Golden cases: what peers' own functions returned, and the call of ours that must return the same.

The whole file is read where the shared folder stands beside the checkout, else the small copy in `data/`.
"""

import gzip
import json
from functools import cache
from pathlib import Path

import torch

from corrgrpo_gym.corrgrpo import (
    BatchTotals,
    aggregate,
    estimate,
    kl_divergence,
    overlong_penalty,
    policy_loss,
)

WHOLE = Path(__file__).parents[3] / "shared" / "spec" / "golden" / "peers.json.gz"
COPY = Path(__file__).parent / "data" / "peers_small.json.gz"


@cache
def suites() -> dict:
    with gzip.open(WHOLE if WHOLE.exists() else COPY, "rt") as file:
        return json.load(file)["suites"]


def tensor(values, dtype=torch.float64) -> torch.Tensor:
    return torch.tensor(_numbers(values), dtype=dtype)


def _numbers(values):
    if isinstance(values, list):
        return [_numbers(v) for v in values]
    return float("nan") if values is None else float(values)


# Where a peer's own arithmetic is coarser than its suite's tolerance: rtol and atol.
COARSER = {
    "verl_grpo_vectorized": (1e-6, 1e-6),  # mean and variance in float32
    "verl_reinforce_plus_plus_baseline": (1e-9, 5e-9),  # 1e-8 added to the number of tokens
} | dict.fromkeys(  # 1e-8 added to each sequence's number of tokens
    (
        "verl_loss_vanilla",
        "verl_loss_dapo_clip_higher",
        "verl_loss_gspo",
        "verl_loss_cispo",
        "verl_loss_cispo_upper_only",
        "verl_agg_loss",
    ),
    (2e-8, 1e-8),
)


def tolerance(name: str, case) -> tuple[float, float]:
    suite = suites()[name]
    if name in COARSER:
        wide = COARSER[name]
        if name == "verl_grpo_vectorized":
            largest = tensor(case["inputs"]["token_level_rewards"]).abs().max().item()
            wide = (wide[0], max(wide[1], 1e-7 * largest))
        return max(wide[0], case.get("rtol", 0)), max(wide[1], case.get("atol", 0))
    return case.get("rtol", suite["rtol"]), case.get("atol", suite["atol"])


def dtype_of(case) -> torch.dtype:
    return getattr(torch, case["inputs"].get("dtype", "float64"))


def _estimate(case, name, **options):
    inputs = case["inputs"]
    rewards = tensor(inputs["rewards"], dtype_of(case))
    weights = case["hyper"].get("base_weights", inputs["weights"])
    return estimate(name, rewards, weights=weights, **options)


def by_rollout(name, *, eps=(), **options):
    """[G, n] outputs; `eps` names the options that take the case's eps."""

    def pairs(case):
        result = _estimate(case, name, **dict.fromkeys(eps, case["hyper"]["eps"]), **options)
        yield "advantages", result.advantages, case["outputs"]["advantages"]
        if "query_weight" in case["outputs"]:
            n = result.advantages.shape[1]
            kept = tensor(case["outputs"]["query_weight"]).reshape(-1, n)[:, 0]
            yield "group_weights", result.group_weights, kept.tolist()

    return pairs


def by_token(name, *, eps=(), **options):
    """[G*n, T] outputs: a rollout's scalar at each of its response tokens; rows may be in another order."""

    def pairs(case):
        inputs = case["inputs"]
        rewards = inputs["rewards"]
        groups, n = len(rewards), len(rewards[0])
        order = torch.tensor(inputs.get("order", range(groups * n)))
        mask = tensor(inputs["response_mask"])
        lengths = torch.empty(groups * n, dtype=mask.dtype)
        lengths[order] = mask.sum(1)
        result = _estimate(
            case,
            name,
            token_counts=lengths.reshape(groups, n),
            **dict.fromkeys(eps, case["hyper"]["eps"]),
            **options,
        ).advantages
        rows = result.flatten()[order]
        yield "advantages", rows[:, None] * mask, case["outputs"]["advantages"]
        if "scalar" in case["outputs"]:
            yield "scalar", result, case["outputs"]["scalar"]

    return pairs


def corrgrpo_official(case):
    by_std = case["hyper"]["norm_adv_by_std"]
    yield from (by_token("corrgrpo", eps=["eps"], guard="paper") if by_std else by_token("dr_grpo"))(case)


def rloo(case):
    yield from by_rollout("rloo", missing="nansum", clip=case["hyper"]["reward_clip_range"])(case)


def loss(name, options, metrics=None):
    """Loss and its gradient. `options(hyper, inputs)` are ours for the peer's settings."""

    def pairs(case):
        inputs, hyper = case["inputs"], case["hyper"]
        logp = tensor(inputs["logprobs"], dtype_of(case)).requires_grad_()
        result = policy_loss(
            name,
            logp,
            tensor(inputs["old_logprobs"]),
            tensor(inputs["advantages"]),
            tensor(inputs["mask"]),
            **options(hyper, inputs),
        )
        result.loss.backward()
        yield "loss", result.loss.detach(), case["outputs"]["loss"]
        yield "gradient", logp.grad, case["outputs"]["grad_logprobs"]
        without_tokens = "beta" in hyper and (tensor(inputs["mask"]).sum(1) == 0).any()
        for ours, peer in (metrics or {}).items():
            if without_tokens:  # TRL's mean of the KL is over more than the tokens then; its loss agrees
                continue
            if peer in case["outputs"]["metrics"]:
                yield ours, result.metrics[ours], case["outputs"]["metrics"][peer]

    return pairs


def _trl(mode):
    def options(hyper, inputs):
        mask = tensor(inputs["mask"])
        return {
            "ref_logp": tensor(inputs["ref_logprobs"]),
            "kl_coef": hyper["beta"],
            "kl_unbiased": hyper["use_bias_correction_kl"],
            "aggregation": mode,
            "norm_length": hyper["max_completion_length"],
            # TRL's mean over sequences counts those without a token.
            "totals": BatchTotals(mask.sum().item(), len(mask)),
        }

    return options


def _trl_clip(mode):
    def options(hyper, inputs):
        return _trl(mode)(hyper, inputs) | {
            "clip_low": hyper["epsilon_low"],
            "clip_high": hyper["epsilon_high"],
            "dual_clip": hyper["delta"],  # a cap on the ratio binds where A < 0, as dual clip does
        }

    return options


def _trl_cispo(hyper, inputs):
    return _trl("token-mean")(hyper, inputs) | {"ratio_cap": hyper["epsilon_high"]}


def _verl(dual=True):
    def options(hyper, inputs):
        mask = tensor(inputs["mask"])
        ours = {
            "clip_low": hyper["clip_ratio_low"],
            "clip_high": hyper["clip_ratio_high"],
            "aggregation": hyper["loss_agg_mode"],
            "norm_length": mask.shape[1],
        }
        return ours | ({"dual_clip": hyper["clip_ratio_c"]} if dual else {})

    return options


VERL_METRICS = {"clip_fraction": "actor/pg_clipfrac", "dual_clip_fraction": "actor/pg_clipfrac_lower"}


def verl_agg(case):
    inputs, hyper = case["inputs"], case["hyper"]
    mask = tensor(inputs["mask"])
    length = hyper["loss_scale_factor"] or mask.shape[1]
    ours = aggregate(tensor(inputs["loss_mat"]), mask, hyper["loss_agg_mode"], norm_length=length)
    yield "loss", ours, case["outputs"]["loss"]


def verl_kl(case):
    if case["hyper"]["kind"] not in ("k1", "k2", "k3"):
        return
    logp = tensor(case["inputs"]["logprobs"]).requires_grad_()
    kl = kl_divergence(logp, tensor(case["inputs"]["ref_logprobs"]), case["hyper"]["kind"])
    kl.sum().backward()
    yield "kl", kl.detach(), case["outputs"]["kl"]
    yield "gradient", logp.grad, case["outputs"]["grad_logprobs"]


def overlong(case):
    hyper = case["hyper"]
    lengths = torch.tensor(case["inputs"]["lengths"])
    ours = overlong_penalty(lengths, hyper["max_completion_len"], hyper["soft_punish_cache"])
    yield "penalty", ours, case["outputs"]["rewards"]


OURS = {
    "trl_grpo": by_rollout("grpo", eps=["eps"], missing="nansum"),
    "trl_grpo_batch_scale": by_rollout("grpo", eps=["eps"], missing="nansum", scale="batch"),
    "trl_dr_grpo": by_rollout("dr_grpo", missing="nansum"),
    "trl_gdpo": by_rollout("gdpo", eps=["eps", "eps_batch"], missing="nansum"),
    "trl_rloo": rloo,
    "verl_grpo": by_token("grpo", eps=["eps"]),
    "verl_grpo_vectorized": by_token("grpo", eps=["eps"]),
    "verl_dr_grpo": by_token("dr_grpo"),
    "verl_rloo": by_token("rloo"),
    "verl_rloo_vectorized": by_token("rloo"),
    "verl_reinforce_plus_plus_baseline": by_token("reinforce++"),
    "verl_gdpo": by_token("gdpo", eps=["eps"], whiten="tokens"),
    "nvlabs_gdpo_trl": by_rollout("gdpo", eps=["eps", "eps_batch"], missing="zero"),
    "nvlabs_gdpo_verl": by_token("gdpo", eps=["eps"], whiten="tokens"),
    "corrgrpo_official": corrgrpo_official,
    "gdpo_corrgrpo_official": by_token("gdpo+corrgrpo", eps=["eps"], guard="paper"),
    "dara_asym": by_rollout("dara", eps=["eps", "eps_batch"]),
    "dara_sym": by_rollout("dara", eps=["eps", "eps_batch"], symmetric=True),
    "dara_repo_gdpo": by_rollout("gdpo", eps=["eps", "eps_batch"]),
    "dvao": by_rollout("dvao"),
    "gd2po_hard": by_rollout("gd2po", eps=["eps", "eps_batch"]),
    "trl_loss_grpo": loss("ppo_clip", _trl_clip("seq-mean-token-mean"), {"kl": "kl"}),
    "trl_loss_dapo": loss("dapo", _trl_clip("token-mean"), {"kl": "kl"}),
    "trl_loss_dr_grpo": loss("dr_grpo", _trl_clip(None), {"kl": "kl"}),
    "trl_loss_cispo": loss("cispo", _trl_cispo, {"kl": "kl"}),
    "trl_loss_gspo": loss("gspo", _trl_clip(None), {"kl": "kl"}),
    "verl_loss_vanilla": loss("ppo_clip", _verl(), VERL_METRICS),
    "verl_loss_dapo_clip_higher": loss("dapo", _verl(), VERL_METRICS),
    "verl_loss_gspo": loss("gspo", _verl(dual=False)),
    "verl_loss_cispo": loss("cispo", _verl(dual=False)),
    "verl_loss_cispo_upper_only": loss("cispo", _verl(dual=False)),
    "verl_agg_loss": verl_agg,
    "verl_kl_penalty": verl_kl,
    "trl_soft_overlong": overlong,
}


def write_copy(at_least: int = 8) -> None:
    """Write the small copy: of each suite of ours one short case per family, and more up to `at_least`."""
    with gzip.open(WHOLE, "rt") as file:
        whole = json.load(file)
    small = {}
    for name in OURS:
        suite = whole["suites"][name]
        short = [case for case in suite["cases"] if len(json.dumps(case)) < 6000]
        families = {case["id"].split("-")[1].split("_n")[0]: case for case in reversed(short)}
        chosen = list(families.values())
        chosen += [case for case in short if case not in chosen][: max(0, at_least - len(chosen))]
        small[name] = suite | {"cases": sorted(chosen, key=lambda case: case["id"])}
    COPY.parent.mkdir(exist_ok=True)
    with gzip.GzipFile(COPY, "wb", mtime=0) as file:
        file.write(json.dumps(whole | {"suites": small}, separators=(",", ":")).encode())


if __name__ == "__main__":
    write_copy()
