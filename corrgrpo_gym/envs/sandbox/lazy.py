"""A sandbox that is made when it is first needed."""

from threading import Lock

from .pool import Sandbox, make_sandbox


class LazySandbox:
    """Safe to use from many threads.

    Args:
        given: a back end's name, of which a sandbox is made at the first use; or a sandbox, which stays its owner's.
        workers: processes of one made here; None for one per CPU.
    """

    def __init__(self, given: str | Sandbox, workers: int | None) -> None:
        self._given, self._workers = given, workers
        self._made: Sandbox | None = None
        self._lock = Lock()

    def get(self) -> Sandbox:
        """Return the sandbox.

        Raises:
            GymError: the back end isn't there, or not usable on this machine.
        """
        if not isinstance(self._given, str):
            return self._given
        with self._lock:
            if self._made is None:
                self._made = make_sandbox(self._given, workers=self._workers)
            return self._made

    def close(self) -> None:
        """Close the sandbox if it was made here; `get` then makes a new one."""
        with self._lock:
            made, self._made = self._made, None
        if made is not None:
            made.close()
