"""What computing each prompt once per group saves, against once per rollout, in one run side by side.

    python benchmarks/bench_shared_prefix.py [--prompt 400] [--answer 64] [--groups 2] [--samples 8] [--model FOLDER]

Update: forward and backward pass over all answers (same gradient). Sampling: our engine against transformers' generate
with one sequence per rollout. CPU seconds, the median of --repeats; without --model a random Llama of 12 M parameters.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from corrgrpo_gym.learners.config import PolicyConfig
from corrgrpo_gym.learners.engines.base import Sampling
from corrgrpo_gym.learners.engines.transformers import TransformersEngine
from corrgrpo_gym.learners.policy import Piece, Policy, load_model


class NoEnd:
    """A tokenizer's end token that is never sampled, so that every answer has full length."""

    eos_token_id = 10**9


def seconds(function: Callable[[], object]) -> float:
    start = time.process_time()
    function()
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("prompt", 400), ("answer", 64), ("groups", 2), ("samples", 8), ("repeats", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--model", default="")
    args = parser.parse_args()
    torch.manual_seed(0)
    if args.model:
        model, _ = load_model(args.model)
    else:
        shape = {"hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 8, "num_attention_heads": 4}
        model = LlamaForCausalLM(LlamaConfig(vocab_size=8192, tie_word_embeddings=True, **shape))
    model.generation_config.eos_token_id = None
    policy = Policy(model, NoEnd(), PolicyConfig())
    prompts = torch.randint(10, 8000, (args.groups, args.prompt)).tolist()
    answers = torch.randint(10, 8000, (args.groups, args.samples, args.answer)).tolist()
    pieces = [Piece(p, a) for p, a in zip(prompts, answers, strict=True)]

    def update(shared: bool) -> None:
        model.zero_grad()
        policy.logps(pieces, 1.0, shared=shared)[0].sum().backward()

    engine = TransformersEngine(model, [])

    def theirs() -> None:
        rows = torch.tensor([p for p in prompts for _ in range(args.samples)])
        options = {"max_new_tokens": args.answer, "min_new_tokens": args.answer, "do_sample": True, "pad_token_id": 0}
        model.generate(rows, attention_mask=torch.ones_like(rows), **options)

    cases = {
        "update": (lambda: update(True), lambda: update(False)),
        "sampling": (lambda: engine.generate(prompts, args.samples, Sampling(args.answer)), theirs),
    }
    print(f"{args.groups} groups x {args.samples}, prompt {args.prompt}, answer {args.answer}; CPU seconds")
    for name, (once, each) in cases.items():
        once(), each()
        pairs = [(seconds(once), seconds(each)) for _ in range(args.repeats)]
        ratio = statistics.median(b / a for a, b in pairs)
        a, b = (statistics.median(column) for column in zip(*pairs, strict=True))
        print(f"{name:<9} once per group {a:7.2f}   once per rollout {b:7.2f}   ratio {ratio:5.2f}")


if __name__ == "__main__":
    main()
