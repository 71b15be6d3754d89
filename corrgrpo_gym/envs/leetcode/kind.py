"""What a kind of embedded problem consists of."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from string import Template
from textwrap import dedent, indent

Constants = tuple[int, ...]
Inputs = Callable[[Constants, Random], list[str]]
_RANGE = range(2, 98)


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of problem; `$a` and `$b` in its texts stand for the constants of a task.

    Attributes:
        name: id of the kind, the first part of its task ids.
        tags: LeetCode-style topics.
        text: the statement.
        slow: body of a correct slow solution.
        fast: body of a correct fast solution.
        admits: whether these constants make a sensible task.
        inputs: constants and a random generator -> argument expressions, small ones first.
        argument: name and type of the method's argument.
        returns: the method's return type.
        arity: how many constants the kind takes, 1 or 2.
    """

    name: str
    tags: tuple[str, ...]
    text: str
    slow: str
    fast: str
    admits: Callable[..., bool]
    inputs: Inputs
    argument: str = "n: int"
    returns: str = "int"
    arity: int = 1

    def constants(self) -> list[Constants]:
        """Return every tuple of constants that the kind admits, in ascending order."""
        pools = [(a,) for a in _RANGE] if self.arity == 1 else [(a, b) for a in _RANGE for b in _RANGE]
        return [c for c in pools if self.admits(*c)]

    def fill(self, text: str, constants: Constants) -> str:
        """Return `text` with the constants in place."""
        return Template(text).substitute(dict(zip("ab", constants, strict=False)))

    def solution(self, body: str, constants: Constants, method: str) -> str:
        """Return the whole class for one of the two bodies."""
        return self.starter(method) + indent(self.fill(dedent(body).strip("\n"), constants), " " * 8) + "\n"

    def starter(self, method: str) -> str:
        """Return the class and method line that the statement shows."""
        return f"class Solution:\n    def {method}(self, {self.argument}) -> {self.returns}:\n"
