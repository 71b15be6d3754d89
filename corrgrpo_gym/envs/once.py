"""A memory that computes each value once, also when several threads ask for it at the same time."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from threading import Lock
from typing import Generic, TypeVar

V = TypeVar("V")


class Once(Generic[V]):
    """Values by key; the least recently used ones are forgotten."""

    def __init__(self, size: int) -> None:
        """Remember up to `size` values."""
        self._size = size
        self._lock = Lock()
        self._values: OrderedDict[Hashable, Future[V]] = OrderedDict()

    def get(self, key: Hashable, compute: Callable[[], V]) -> V:
        """Return the value of a key, computing it if nobody has; who asks meanwhile waits for the same value.

        Raises:
            Exception: whatever `compute` raises, to all who wait for it; the next call computes anew.
        """
        with self._lock:
            future = self._values.get(key)
            mine = future is None
            if future is None:
                future = self._values[key] = Future()
                if len(self._values) > self._size:
                    self._values.popitem(last=False)
            else:
                self._values.move_to_end(key)
        if mine:
            try:
                future.set_result(compute())
            except BaseException as error:
                with self._lock:
                    if self._values.get(key) is future:
                        del self._values[key]
                future.set_exception(error)
                raise
        return future.result()
