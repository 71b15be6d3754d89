"""Tool calls in what a model answered: one parser for training, environments and evaluations."""

from .call import Call, CallError, Parsed
from .parse import Dialect, parse, split_reasoning

__all__ = ["Call", "CallError", "Dialect", "Parsed", "parse", "split_reasoning"]
