"""Which calls a test will make, where that can be told without a candidate.

Most tests are a list of assertions on literals. One that uses no names but the candidate's is run once with a candidate
to which everything is equal; what that is asked, a right program is asked, too.

Runs in the trusted judge process: standard library only.
"""

import types
from typing import Any

from .remote import Stop, encode_request

MAX_CALLS = 100_000
MAX_BYTES = 1 << 20
SECONDS = 1.0


class _Agreeable:
    """What any assertion is content with."""

    def __eq__(self, other: object) -> bool:
        return True

    __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __eq__
    __hash__ = object.__hash__


class Foreseen:
    """A candidate that notes what it is asked.

    Attributes:
        requests: the calls, as they are sent.
    """

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self._left = MAX_BYTES

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: D102
        request = encode_request("call", 0, (args, kwargs))
        self._left -= len(request)
        if self._left < 0 or len(self.requests) >= MAX_CALLS:
            raise Stop
        self.requests.append(request)
        return _Agreeable()

    def stop(self, status: str, detail: str) -> None:
        """Unwind a test that does not come to an end."""
        raise Stop


def is_plain(test: types.CodeType) -> bool:
    """Whether a test's code is nothing but a function ``check`` that uses no other names than its own."""
    inner = [const for const in test.co_consts if isinstance(const, types.CodeType)]
    if test.co_names != ("check",) or len(inner) != 1 or inner[0].co_name != "check":
        return False
    check = inner[0]
    alone = not any(isinstance(const, types.CodeType) for const in check.co_consts)
    return alone and not check.co_names and not check.co_freevars


def run_blindly(test: types.CodeType, candidate: Foreseen) -> None:
    """Run a plain test; however it ends, what was noted before stands."""
    space: dict[str, Any] = {"__name__": "judge"}
    try:
        exec(test, space)
        space["check"](candidate)
    except (Stop, Exception):
        pass
