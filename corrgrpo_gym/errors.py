"""Errors that a user can act on, and the nearest-name suggestion that they carry."""

from collections.abc import Iterable
from difflib import get_close_matches


class GymError(Exception):
    """A mistake in a call, a configuration or a data file: the message says what, where and what to do.

    The command line prints it without a traceback and exits with status 2.
    """


class NotScored(GymError):
    """One answer could not be scored, which says nothing about it; the next one may be.

    An environment may raise it from `score` or `turn`, and so may a reward function. Training then goes on without that
    rollout.
    """


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """Return the message for a name that is not registered, with the nearest ones first."""
    names = sorted(known)
    near = get_close_matches(name, names, n=3, cutoff=0.5)
    hint = f" Did you mean {' or '.join(repr(n) for n in near)}?" if near else ""
    return f"unknown {kind} {name!r}.{hint} Known: {', '.join(names)}."
