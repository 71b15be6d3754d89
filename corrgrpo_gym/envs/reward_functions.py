"""Reward functions: what they declare, and how they are called with what they ask for by name."""

import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..errors import GymError, unknown

GIVEN = ("answer", "messages", "reply", "task")


@dataclass(frozen=True)
class Reward:
    """A reward function with its declaration; called, it calls the function.

    The function may be async. It takes what it wants by the names of its parameters: `answer` (the model's
    text), `messages` (the whole chat, the answer last), `reply` (the model's message), `task` (the row of
    the data), and any column of the row; these names go before columns that are called the same. It returns
    a number, or None where the answer can't be scored (which becomes NaN and asks for `nan=True`).

    Attributes:
        function: the function.
        low: smallest value that it returns.
        high: largest value that it returns.
        weight: its default weight in training.
        nan: whether it may return None or NaN.
        name: the component's name; the function's where it is empty.
    """

    function: Callable[..., Any]
    low: float = 0.0
    high: float = 1.0
    weight: float = 1.0
    nan: bool = False
    name: str = ""

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise GymError(f"a reward is a function, not {self.function!r}")
        if not self.name:
            name = getattr(self.function, "__name__", type(self.function).__name__)
            if name == "<lambda>":
                raise GymError("a lambda as a reward needs a name: Reward(lambda answer: ..., name='short')")
            object.__setattr__(self, "name", name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function as it is."""
        return self.function(*args, **kwargs)

    @property
    def label(self) -> str:
        """How messages call it: its name, and where the function is defined."""
        code = getattr(inspect.unwrap(self.function), "__code__", None)
        return f"reward {self.name!r}" + (f" ({code.co_filename}:{code.co_firstlineno})" if code else "")

    def required(self) -> tuple[set[str], bool]:
        """Return the columns that the function can't do without, and whether it takes any (**kwargs)."""
        needed, anything = set(), False
        for p in inspect.signature(self.function).parameters.values():
            if p.kind is p.VAR_KEYWORD:
                anything = True
            elif p.kind is p.POSITIONAL_ONLY:
                raise GymError(f"{self.label}: parameter {p.name!r} can't be given by name; drop the '/'")
            elif p.kind is not p.VAR_POSITIONAL and p.default is p.empty and p.name not in GIVEN:
                needed.add(p.name)
        return needed, anything

    def arguments(self, given: Mapping[str, Any], row: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call.

        Args:
            given: `answer`, `messages`, `reply`, `task`.
            row: the columns of the task.
        """
        everything = {**row, **given}
        parameters = inspect.signature(self.function).parameters.values()
        if any(p.kind is p.VAR_KEYWORD for p in parameters):
            return everything
        return {p.name: everything[p.name] for p in parameters if p.name in everything}

    def value(self, result: Any, where: str) -> float:
        """Return what the function returned as a float, NaN for None.

        Args:
            result: what it returned.
            where: the task, for messages.

        Raises:
            GymError: no number, outside of low..high, or not scorable without `nan=True`.
        """
        try:
            value = math.nan if result is None else float(result)
        except (TypeError, ValueError):
            value = None
        if value is None or isinstance(result, str | bytes):
            raise GymError(f"{self.label} returned {result!r} for {where}, not a number or None")
        if math.isnan(value):
            if not self.nan:
                raise GymError(f"{self.label} returned {result!r} for {where}; declare by nan=True that it may")
        elif not self.low <= value <= self.high:
            raise GymError(f"{self.label} returned {value} for {where}, outside of its range {self.low}..{self.high}")
        return value


def reward(
    *, low: float = 0.0, high: float = 1.0, weight: float = 1.0, nan: bool = False, name: str = ""
) -> Callable[[Callable[..., Any]], Reward]:
    """Decorate a function as a `Reward` with this declaration."""
    return lambda function: Reward(function, low, high, weight, nan, name)


def as_rewards(given: Iterable[Any] | Mapping[str, Any]) -> tuple[Reward, ...]:
    """Return functions and `Reward`s, in a sequence or by name, as `Reward`s with distinct names."""
    if isinstance(given, Mapping):
        named: list[tuple[str, Any]] = [(str(name), item) for name, item in given.items()]
        found = [replace(r, name=n) if isinstance(r, Reward) else Reward(r, name=n) for n, r in named]
    else:
        if callable(given):
            raise GymError("rewards is a list of functions, or a dict of them by name: [fn]")
        items: list[Any] = list(given)
        found = [item if isinstance(item, Reward) else Reward(item) for item in items]
    if not found:
        raise GymError("an environment needs at least one reward function")
    names = [r.name for r in found]
    for name in names:
        if names.count(name) > 1:
            raise GymError(f"two rewards are called {name!r}; give one another name: Reward(fn, name=...)")
    return tuple(found)


def check_row(rewards: Iterable[Reward], row: Mapping[str, Any], where: str) -> None:
    """Raise GymError, with the row's place, where a function asks for a column that the row doesn't have."""
    for r in rewards:
        for name in r.required()[0]:
            if name not in row:
                raise GymError(f"{where}: {r.label}: {unknown('column', name, [*row, *GIVEN])}")
