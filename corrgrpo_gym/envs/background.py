"""One event loop in the background, on which the coroutines of all environments run.

A loop of its own for every step would break clients that are shared between steps (their connections belong
to a loop), and `asyncio.run` can't be used where a loop runs already, in a notebook for instance.
"""

import os
import threading
from collections.abc import Awaitable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio

_lock = threading.Lock()
_loop: "asyncio.AbstractEventLoop | None" = None
_owner = 0


def gather(awaitables: Iterable[Awaitable[Any]]) -> list[Any]:
    """Wait for all of them at once, from any thread; return results, or exceptions in their place."""
    # Imported here because it is slow to import and most environments have no coroutines.
    import asyncio

    async def together() -> list[Any]:
        return await asyncio.gather(*awaitables, return_exceptions=True)

    future = asyncio.run_coroutine_threadsafe(together(), _running_loop())
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


def _running_loop() -> "asyncio.AbstractEventLoop":
    global _loop, _owner
    import asyncio

    with _lock:
        # A forked process has the loop but not the thread that runs it.
        if _loop is None or _owner != os.getpid():
            _loop, _owner = asyncio.new_event_loop(), os.getpid()
            threading.Thread(target=_loop.run_forever, name="corrgrpo-gym rewards", daemon=True).start()
        return _loop
