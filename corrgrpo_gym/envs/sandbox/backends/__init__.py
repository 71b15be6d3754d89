"""How jails are started: one module for each back end, by the name that users give."""

import importlib
from typing import Any

from ....errors import unknown
from ..job import SandboxUnavailable
from .base import Backend, Place, configured
from .gaps import ATTACKS, Gap

DEFAULT = "bubblewrap"
# From the strongest on; loaded when they are asked for.
NAMES = {"docker": "docker:Docker", "bubblewrap": "bubblewrap:Bubblewrap", "subprocess": "plain:Plain"}


def make(name: str, options: dict[str, Any]) -> Backend:
    """Make a back end.

    Raises:
        SandboxUnavailable: there is none of that name, or it cannot be used here.
        GymError: it has no such option.
    """
    if name not in NAMES:
        raise SandboxUnavailable(unknown("sandbox", name, NAMES))
    module, kind = NAMES[name].split(":")
    return configured(getattr(importlib.import_module(f".{module}", __name__), kind), options)


__all__ = ["ATTACKS", "DEFAULT", "NAMES", "Backend", "Gap", "Place", "make"]
