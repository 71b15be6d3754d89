"""Runs of the toy environment, whole, interrupted and killed."""

import json
import os
import signal
import sys

from corrgrpo_gym.learners import session
from corrgrpo_gym.learners.checkpoints import Checkpoints
from corrgrpo_gym.learners.config import merge, resolve

from . import toy

STREAMS = ("metrics.jsonl", "rollouts.jsonl")
BASE = {
    "env": f"{toy.__name__}:make",
    "model": "embedded",
    "steps": 4,
    "threads": 1,
    "rollout": {"prompts": 4, "samples": 6, "max_prompt_tokens": 32, "max_new_tokens": 8},
    "update": {"lr": 1e-3},
    "warm_start": {"steps": 200, "batch": 8},
    "validation": {"every": 2, "prompts": 6, "samples": 2, "temperature": 1.0},
    "checkpoint": {"every": 2},
}

VARIANTS = {
    "corrgrpo": {"algo": "corrgrpo"},
    "dapo": {"algo": "dapo+gdpo", "rollout": {"temperature": 1.8}},
    "kl": {"algo": "grpo", "algorithm": {"kl_coef": 0.1}},
    "lora": {"algo": "gdpo", "algorithm": {"kl_coef": 0.1}, "policy": {"lora_rank": 4}},
    "epochs": {"algo": "cispo", "update": {"mini_batch": 2, "epochs": 2, "schedule": "cosine", "warmup_steps": 2}},
}


def config(**over):
    return resolve(merge(BASE, over))


def start(out, **over):
    return session.start(config(**over), out)


def streams(out):
    return [(out / name).read_bytes() for name in STREAMS]


def records(out, stream="metrics.jsonl"):
    return [json.loads(line) for line in (out / stream).read_text().splitlines()]


def saved(out):
    return Checkpoints(out / "checkpoints").steps()


def at_answer(number, what):
    """Call `what` when this many answers have been scored."""
    seen = []

    def hook(answer):
        seen.append(answer)
        if len(seen) == number:
            what()

    toy.HOOKS[:] = [hook]


def terminate():
    os.kill(os.getpid(), signal.SIGTERM)


def kill():
    os.kill(os.getpid(), signal.SIGKILL)


def forked(what):
    """Do it in a child process; return what os.waitpid says of its end: 0, or minus the signal."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            what()
            code = 0
        except BaseException as error:
            print(repr(error), file=sys.stderr)
        finally:
            os._exit(code)
    return child


def ended(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def checkpoints_state(out):
    """Weights and optimiser of the last checkpoint, by name."""
    from safetensors.torch import load_file

    folder = Checkpoints(out / "checkpoints").path(saved(out)[-1])
    tensors = dict(load_file(next(folder.glob("*.safetensors"))))
    state = Checkpoints(out / "checkpoints").load(saved(out)[-1])
    for number, moments in state["optimizer"]["state"].items():
        tensors |= {f"{number}.{name}": value for name, value in moments.items()}
    return tensors


def same_as(out, expected):
    """Streams, weights and optimiser of two runs are equal."""
    import torch

    for name, a, b in zip(STREAMS, streams(out), streams(expected), strict=True):
        assert a == b, name
    final = [checkpoints_state(path) for path in (out, expected)]
    assert final[0].keys() == final[1].keys()
    for name, tensor in final[0].items():
        assert torch.equal(tensor, final[1][name]), name
