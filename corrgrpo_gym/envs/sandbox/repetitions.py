"""Runs a program again for its time: the recorded calls, in a process forked for this one repetition.

What it answers must be what it answered when it was judged, so a program that knows that it is timed has nothing to
gain from it. The test does not run, so its work is not in the way.

Runs in the trusted judge process: standard library only.
"""

import marshal
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NoReturn

from . import wire
from .channel import OverTime
from .jails import Jail
from .line import Calls, Line
from .remote import Stop

_SETTLE_TRIES = 400


# A program gets the answers along with its prelude, which a process runs before its clock starts.
_PLAYBACK_PRELUDE = """
import marshal as _marshal, sys as _sys
def _played(kind, tree):
    if kind == "E":
        return type(tree[0], (Exception,), {})(tree[1])
    if kind == "V":
        return tree
    space, values = globals(), _sys.modules["corrgrpo_gym.envs.sandbox.values"]
    node = lambda name: lambda val: space.get(name, getattr(values, name))(val)
    return values.Unpacker(node("ListNode"), node("TreeNode"), lambda number: object()).unpack(tree)
_plays = [_played(*_answer) for _answer in _marshal.loads(%r)]
_plays.reverse()
_plays = _plays.pop
"""
_RAISING_PRELUDE = """
def _plays(_pop=_plays):
    value = _pop()
    if isinstance(value, Exception):
        raise value
    return value
"""
_METHOD = "class Solution:\n    def play(self, *args, **kwargs):\n        return _plays()\n"
_FUNCTION = "def play(*args, **kwargs):\n    return _plays()\n"


class Untimed(Exception):
    """A side cannot be timed; the text says why."""


@dataclass(frozen=True, slots=True)
class Repeatable:
    """A compiled program, what it answered when it was judged, and which requests were sent ahead then."""

    job: dict[str, Any]
    program: bytes
    answers: list[bytes]
    ahead: Sequence[bytes] = ()


class _Alarm:
    def stop(self, status: str, detail: str) -> NoReturn:
        raise Stop


def playback(job: dict[str, Any], calls: Calls, ahead: Sequence[bytes] = ()) -> Repeatable:
    """A program that decodes the arguments of calls, does nothing, and returns what was returned: the harness's share.

    Its objects for the results exist before its clock starts, so that what is timed is encoding them. An object of the
    program's own is any object here.
    """
    known = [(answer[:1].decode(), wire.loads(answer, 1)) for _, answer in calls]
    prelude = job["prelude"] + "\n" + _PLAYBACK_PRELUDE % marshal.dumps(known, wire.MARSHAL_VERSION)
    if any(kind == "E" for kind, _ in known):
        prelude += _RAISING_PRELUDE
    method = "()" in job["entry_point"]
    code = compile(_METHOD if method else _FUNCTION, "<playback>", "exec", 0, True, 0)
    entry_point = "Solution().play" if method else "play"
    return Repeatable({**job, "prelude": prelude, "entry_point": entry_point}, marshal.dumps(code), [], ahead)


def repeat(
    jail: Jail,
    side: Repeatable,
    requests: list[bytes],
    watch: Callable[[Any, float], AbstractContextManager[None]],
    judged: bool = False,
) -> float:
    """Run a program once more; return the CPU seconds of its process, from its loading to its last answer.

    Args:
        jail: where it runs.
        side: the program.
        requests: what it is asked.
        watch: has an object's ``stop`` called after some seconds by the wall clock.
        judged: whether it gets the calls as when it is judged. Else it gets all at once, so that nothing holds it up.

    Raises:
        Untimed: it ends, runs out of time, or answers otherwise than when it was judged.
        JailLost: the jail ended.
    """
    channel = jail.fork(side.job)
    used, problem = 0.0, ""
    try:
        channel.settle(tries=_SETTLE_TRIES)
        line = Line(channel, side.program, side.job["entry_point"], side.ahead)
        with watch(_Alarm(), side.job["wall_seconds"]):
            answers = [line.ask(request) for request in requests] if judged else line.ask_all(requests)
        channel.settle(tries=_SETTLE_TRIES)
        used = jail.settle(channel)
        if side.answers and answers != side.answers:
            problem = "answers otherwise when it runs again"
        if used > channel.limit:
            raise OverTime
    except (Stop, OverTime):
        problem = "runs out of time when it runs again"
    except (EOFError, wire.BadBytes):
        problem = "breaks when it runs again"
    finally:
        channel.close()
        jail.reap()
    if problem:
        raise Untimed(problem)
    return used
