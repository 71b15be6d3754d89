"""Evaluations: benchmarks, the models that answer them, and figures with intervals.

from corrgrpo_gym import evals

benchmark = evals.make("humaneval")
case = benchmark.cases[0]
score = benchmark.score(case, [evals.Reply({"role": "assistant", "content": case.reference})])
"""

from .benchmark import Benchmark, Case, Episode, Score
from .metrics import Column, Estimate, Sample, average, mean, median, pass_at
from .models.base import ChatModel, ChatSampling, ModelFailure, Reply, Request, Usage
from .registry import make, names

__all__ = [
    "Benchmark",
    "Case",
    "ChatModel",
    "ChatSampling",
    "Column",
    "Episode",
    "Estimate",
    "ModelFailure",
    "Reply",
    "Request",
    "Sample",
    "Score",
    "Usage",
    "average",
    "make",
    "mean",
    "median",
    "names",
    "pass_at",
]
