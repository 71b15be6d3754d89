"""Checks the learner on one GPU and measures it; see gpu_check.sh. Writes a JSON of figures.

Every rate stands beside the limit that was measured on the same card in the same run.
"""

import argparse
import json
import math
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import torch
import transformers

from corrgrpo_gym.corrgrpo import Algorithm, catalogue
from corrgrpo_gym.envs import SingleTurnEnv
from corrgrpo_gym.learners import plan
from corrgrpo_gym.learners.config import PolicyConfig, UpdateConfig, resolve
from corrgrpo_gym.learners.engines.base import Sampling
from corrgrpo_gym.learners.engines.transformers import TransformersEngine
from corrgrpo_gym.learners.episode import Rollout
from corrgrpo_gym.learners.mismatch import measure
from corrgrpo_gym.learners.policy import Piece, Policy
from corrgrpo_gym.learners.rollouts import Group, Prompts, collect
from corrgrpo_gym.learners.update import Updater

# Qwen2.5-0.5B's sizes; on a CPU a sketch of them, so that the script itself can be tried.
SIZES = {
    "cuda": {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14,
             "num_key_value_heads": 2, "vocab_size": 151936},
    "cpu": {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2,
            "num_key_value_heads": 1, "vocab_size": 2048},
}  # fmt: skip
WORK = {
    "cuda": {"prompts": 32, "samples": 8, "prompt": 512, "answer": 256, "micro_batch_tokens": 16384, "copy": 2**31},
    "cpu": {"prompts": 2, "samples": 4, "prompt": 32, "answer": 16, "micro_batch_tokens": 256, "copy": 2**26},
}


class Check:
    """The device, and the figures so far."""

    def __init__(self, device: str):
        self.device, self.kind = torch.device(device), torch.device(device).type
        self.work, self.figures = WORK[self.kind], {}

    def model(self, **over):
        sizes = SIZES[self.kind] | {"eos_token_id": 1} | over
        config = transformers.Qwen2Config(
            **sizes, tie_word_embeddings=True, bos_token_id=None, pad_token_id=None,
            max_position_embeddings=4096, attn_implementation="sdpa",
        )  # fmt: skip
        torch.manual_seed(0)
        with self.device:
            return transformers.Qwen2ForCausalLM(config).float()

    def sync(self):
        if self.kind == "cuda":
            torch.cuda.synchronize()

    def seconds(self, what, times=1):
        self.sync()
        begun = time.perf_counter()
        for _ in range(times):
            what()
        self.sync()
        return (time.perf_counter() - begun) / times

    def measure(self, what):
        """Seconds that it takes, and bytes at its peak; None where they aren't counted."""
        if self.kind == "cuda":
            torch.cuda.reset_peak_memory_stats()
        seconds = self.seconds(what)
        return seconds, torch.cuda.max_memory_allocated() if self.kind == "cuda" else None


class Ends:
    """What a policy needs of a tokenizer where no text is involved."""

    eos_token_id = 1


def machine(check):
    found = {"torch": torch.__version__, "transformers": transformers.__version__, "python": sys.version.split()[0]}
    if check.kind == "cuda":
        card = torch.cuda.get_device_properties(check.device)
        found |= {"gpu": card.name, "memory_gib": round(card.total_memory / 2**30, 1), "cuda": torch.version.cuda}
    return found


def limits(check):
    """What the card does at best: copies in GB/s, bfloat16 products in TFLOP/s."""
    n = check.work["copy"] // 4
    pair = [torch.empty(n, dtype=torch.float32, device=check.device) for _ in range(2)]
    pair[1].copy_(pair[0])
    copied = 2 * 4 * n / check.seconds(lambda: pair[1].copy_(pair[0]), 20)
    pair.clear()
    side = 8192 if check.kind == "cuda" else 512
    x, y = (torch.randn(side, side, device=check.device, dtype=torch.bfloat16) for _ in range(2))
    for _ in range(3):
        x @ y
    flops = 2 * side**3 / check.seconds(lambda: x @ y, 20)
    return {"copy_gb_per_s": copied / 1e9, "matmul_bf16_tflop_per_s": flops / 1e12}


def algorithms(check, folder):
    """One step of every algorithm, from text to new weights, with a small model."""
    from corrgrpo_gym.learners import embedded_policy

    words = ["red", "blue", "green", "please", "and"]
    rows = [{"prompt": f"say {a} and {b}", "answer": f"{a} {b}"} for a in words for b in words]
    env = SingleTurnEnv(rows, [red, short], reference="answer")
    embedded_policy.build(embedded_policy.texts_of(env), folder)
    out = {}
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    end = tokenizer.eos_token_id
    for row in catalogue.algorithms():
        model = check.model(num_hidden_layers=2, vocab_size=len(tokenizer), eos_token_id=end)
        policy = Policy(model, tokenizer, PolicyConfig(), reference=True)
        algorithm = Algorithm(row.loss, row.estimator, {"kl_coef": 0.01, "norm_length": 24.0}, {}, [1.0, 0.5], row.name)
        engine = TransformersEngine(model, policy.end_ids, autocast=policy.autocast)
        with ThreadPoolExecutor(4) as scorers:
            groups = collect(
                Prompts(env, tokenizer, 64), range(8), 8, engine, policy.end_ids, Sampling(24, seed=1), scorers
            )
        rewards = torch.stack([torch.stack([torch.from_numpy(r.reward) for r in g.rollouts]) for g in groups])
        lengths = torch.tensor([[len(r.ids) for r in g.rollouts] for g in groups])
        advantages = algorithm.estimate(rewards, token_counts=lengths).weighted()
        before = torch.cat([p.detach().flatten().clone() for p in policy.trainable()])
        metrics = Updater(policy, algorithm, UpdateConfig(lr=1e-4), 1.0, 2.0).update(groups, advantages, 1e-4, (0,))
        after = torch.cat([p.detach().flatten() for p in policy.trainable()])
        moved = float((after - before).abs().max())
        assert moved > 0 and all(math.isfinite(v) for v in metrics.values()), (row.name, metrics)
        out[row.name] = {
            "loss": metrics["loss"], "grad_norm": metrics["grad_norm"], "largest_change": moved,
            "sampler_gap_max": metrics["sampler_gap_max"],
        }  # fmt: skip
    return out


def red(answer):
    return float("red" in answer)


def short(answer):
    return 1 / (1 + len(answer))


def shared_prefix(check):
    """Gradients of the pass that computes each prompt once, against one whole sequence per rollout, in float32."""
    model = check.model(num_hidden_layers=2, vocab_size=2048)
    generator = torch.Generator().manual_seed(0)
    pieces = [
        Piece(
            torch.randint(2, 2048, (p,), generator=generator).tolist(),
            [torch.randint(2, 2048, (c,), generator=generator).tolist() for c in (5, 17, 9, 30)],
        )
        for p in (40, 7, 23)
    ]
    out = {}
    for dtype in ("float32", "bfloat16"):
        policy = Policy(model, Ends(), PolicyConfig(dtype=dtype))
        grads, values = [], []
        for shared in (True, False):
            model.zero_grad()
            logps, mask = policy.logps(pieces, 1.0, shared=shared)
            (logps * mask).sum().backward()
            values.append((logps * mask).detach().double())
            grads.append(torch.cat([p.grad.flatten().double() for p in model.parameters()]))
        cosine = float(torch.nn.functional.cosine_similarity(*grads, dim=0))
        gap = float((values[0] - values[1]).abs().max())
        out[dtype] = {"gradient_cosine": cosine, "logp_gap_max": gap}
    assert out["float32"]["gradient_cosine"] > 0.99999 and out["float32"]["logp_gap_max"] < 1e-3, out
    return out


def speed(check):
    """Tokens per second of sampling and updating, the share of the card's limits, and memory beside the estimate."""
    work, model = check.work, check.model()
    shape = plan.shape_from(model.config.to_dict())
    policy = Policy(model, Ends(), PolicyConfig())
    generator = torch.Generator().manual_seed(1)
    vocabulary = model.config.vocab_size
    prompts = torch.randint(2, vocabulary, (work["prompts"], work["prompt"]), generator=generator).tolist()
    engine = TransformersEngine(model, (), autocast=policy.autocast)  # no end: every answer has the full length
    sampling = Sampling(work["answer"], seed=3)
    engine.generate(prompts[:1], 2, Sampling(4))
    sampled = []
    sampling_seconds, sampling_peak = check.measure(
        lambda: sampled.extend(engine.generate(prompts, work["samples"], sampling))
    )
    rows, tokens = work["prompts"] * work["samples"], work["prompts"] * work["samples"] * work["answer"]
    mean_length = work["prompt"] + work["answer"] / 2
    read = work["answer"] * (2 * shape.parameters + rows * mean_length * shape.kv_bytes)
    groups = []
    for prompt, completions in zip(prompts, sampled, strict=True):
        rollouts = []
        for completion in completions:
            rollouts.append(Rollout(finish="length", turns=1))
            rollouts[-1].append(completion.ids, completion.logps)
        groups.append(Group(0, "0", prompt, rollouts))
    updater = Updater(
        policy, Algorithm.from_name("corrgrpo"),
        UpdateConfig(lr=1e-6, micro_batch_tokens=work["micro_batch_tokens"]), 1.0, 2.0,
    )  # fmt: skip
    advantages = torch.randn(work["prompts"], work["samples"], generator=generator)
    metrics = updater.update(groups, advantages, 1e-6, (0,))  # also fills the optimiser's state
    seconds, peak = check.measure(lambda: updater.update(groups, advantages, 1e-6, (1,)))
    computed = work["prompts"] * (work["prompt"] + work["samples"] * work["answer"])
    flops = 6 * shape.parameters * computed
    config = resolve({
        "model": "x", "rollout": {"prompts": work["prompts"], "samples": work["samples"],
                                  "max_prompt_tokens": work["prompt"], "max_new_tokens": work["answer"]},
        "update": {"micro_batch_tokens": work["micro_batch_tokens"]},
        "policy": {"dtype": "bfloat16" if check.kind == "cuda" else "float32"},
    })  # fmt: skip
    expected = {phase.name: phase.total for phase in plan.phases(config, shape, "transformers")}
    limit = check.figures["limits"]
    return {
        "parameters": shape.parameters,
        "sampling_tokens_per_s": tokens / sampling_seconds,
        "sampling_share_of_copy_limit": read / sampling_seconds / 1e9 / limit["copy_gb_per_s"],
        "updating_tokens_per_s": computed / seconds,
        "updating_share_of_matmul_limit": flops / seconds / 1e12 / limit["matmul_bf16_tflop_per_s"],
        "sampler_gap_mean": metrics["sampler_gap_mean"],
        "sampler_gap_max": metrics["sampler_gap_max"],
        "memory_gib": {
            name: {"peak": None if found is None else found / 2**30, "estimated": expected[name] / 2**30}
            for name, found in (("sampling", sampling_peak), ("updating", peak))
        },
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, default=Path("gpu_check.json"))
    args = parser.parse_args()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    check, failed = Check(args.device), False
    parts = {
        "machine": lambda: machine(check),
        "limits": lambda: limits(check),
        "shared_prefix": lambda: shared_prefix(check),
        "algorithms": lambda: algorithms(check, args.out.with_suffix(".model")),
        "speed": lambda: speed(check),
        "vllm": lambda: vllm_part(check),
    }
    for name, part in parts.items():
        begun = time.perf_counter()
        try:
            check.figures[name] = part()
        except Exception as error:
            failed = True
            check.figures[name] = {"failed": f"{type(error).__name__}: {error}"}
            traceback.print_exc()
        print(f"{name}: {time.perf_counter() - begun:.1f} s", json.dumps(check.figures[name], indent=1), flush=True)
        args.out.write_text(json.dumps(check.figures, indent=1) + "\n")
        if check.kind == "cuda":
            torch.cuda.empty_cache()
    print(f"{'FAILED' if failed else 'passed'}; figures in {args.out}")
    return int(failed)


def vllm_part(check):
    """The engine against the learner before and after an update, its speed, and what sleep gives back; needs vLLM."""
    if find_spec("vllm") is None:
        return "not run: vLLM is not installed"
    out = {dtype: vllm_figures(check, dtype) for dtype in ("float32", "bfloat16")}
    assert out["float32"]["gap_max_after_push"] < 1e-2 < out["float32"]["gap_max_with_old_weights"], out
    return out


def vllm_figures(check, dtype):
    from corrgrpo_gym.learners.engines.vllm.local import Options, VllmEngine

    work, cuda = check.work, check.kind == "cuda"
    policy = Policy(check.model(), Ends(), PolicyConfig(dtype=dtype))
    generator = torch.Generator().manual_seed(2)
    vocabulary = policy.model.config.vocab_size
    prompts = torch.randint(2, vocabulary, (work["prompts"], work["prompt"]), generator=generator).tolist()
    rows = work["prompts"] * work["samples"]
    options = Options(
        dtype=dtype, max_model_len=work["prompt"] + work["answer"], max_rows=rows, gpu_memory_utilization=0.4,
        kv_cache_bytes=None if cuda else 2**27,
    )  # fmt: skip
    engine = VllmEngine.of_policy(policy, options)

    def gaps():
        return measure(policy, prompts[:2], engine.generate(prompts[:2], 4, Sampling(16, seed=5)))

    try:
        push = check.seconds(lambda: engine.push(policy, 0))
        found = {"push_seconds": push, "gap_max_at_first": gaps().largest}
        with torch.no_grad():
            for p in policy.trainable():
                p.mul_(1 + 0.05 * torch.randn_like(p))
        found["gap_max_with_old_weights"] = gaps().largest
        found["push_again_seconds"] = check.seconds(lambda: engine.push(policy, 1))
        after = gaps()
        found |= {"gap_max_after_push": after.largest, "gap_mean_after_push": after.mean}
        seconds = check.seconds(lambda: engine.generate(prompts, work["samples"], Sampling(work["answer"], seed=6)))
        found["sampling_tokens_per_s_at_most"] = rows * work["answer"] / seconds
        if cuda:
            awake = torch.cuda.mem_get_info()[0]
            engine.sleep()
            found["sleep_gives_back_gib"] = (torch.cuda.mem_get_info()[0] - awake) / 2**30
            found["wake_and_push_seconds"] = check.seconds(lambda: engine.push(policy, 2))
            found["gap_max_after_sleep"] = gaps().largest
            assert (
                found["sleep_gives_back_gib"] > 1
                and found["gap_max_after_sleep"] < 2 * found["gap_max_after_push"] + 1e-2
            )
        return found
    finally:
        engine.close()


if __name__ == "__main__":
    sys.exit(main())
