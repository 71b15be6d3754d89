"""How many requests an endpoint gets at once, and how long to wait before one is sent again."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

BACKOFF, LONGEST = 0.5, 60.0


class Pace:
    """A limit on requests in flight that gives way to an endpoint: additive increase, multiplicative decrease.

    Each answer raises the limit by 1/limit up to `most`; a sign of overload halves it, once for all requests that were
    in flight together. A Retry-After stops all requests until then.

    Args:
        most: the limit to begin with, never exceeded.
    """

    def __init__(self, most: int):
        self.most = most
        self.limit = float(most)
        self._flying = 0
        self._cuts = 0
        self._resume = 0.0
        self._free = asyncio.Condition()

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[int]:
        """Hold a place among the requests in flight; gives the number by which `overloaded` knows the request."""
        async with self._free:
            while True:
                pause = self._resume - time.monotonic()
                if pause > 0:
                    # Others must be able to wait, too.
                    self._free.release()
                    try:
                        await asyncio.sleep(pause * random.uniform(1.0, 1.1))
                    finally:
                        await self._free.acquire()
                elif self._flying < max(1, int(self.limit)):
                    break
                else:
                    await self._free.wait()
            self._flying += 1
        try:
            yield self._cuts
        finally:
            self._flying -= 1
            async with self._free:
                self._free.notify(max(1, int(self.limit) - self._flying))

    def status(self) -> str:
        """How far we gave way; nothing where we did not."""
        if (pause := self._resume - time.monotonic()) >= 1:
            return f"asked to wait {pause:.0f} s"
        return f"slowed to {int(self.limit)} at once" if int(self.limit) < self.most else ""

    def answered(self) -> None:
        """The endpoint kept up."""
        self.limit = min(float(self.most), self.limit + 1 / self.limit)

    def overloaded(self, began: int, wait: float | None) -> None:
        """The endpoint did not keep up, or said so.

        Args:
            began: what `slot` gave.
            wait: seconds until which it wants no request; None where it does not say.
        """
        if began == self._cuts:
            self._cuts += 1
            self.limit = max(1.0, self.limit / 2)
        if wait:
            self._resume = max(self._resume, time.monotonic() + wait)


def backoff(attempt: int, base: float = BACKOFF) -> float:
    """Seconds before attempt number `attempt` (from 1): exponential, with jitter, at most a minute."""
    # 2 to the power of a thousand and more is no float; a minute comes long before.
    return min(LONGEST, base * 2 ** min(attempt - 1, 60)) * random.uniform(0.5, 1.0)


def retry_after(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Seconds of a Retry-After header (a number of seconds, or a date), or of its variant in milliseconds."""
    try:
        if (value := headers.get("retry-after-ms")) is not None:
            return max(0.0, float(value) / 1000)
        if (value := headers.get("retry-after")) is None:
            return None
        try:
            seconds = float(value)
        except ValueError:
            when = parsedate_to_datetime(value)
            seconds = (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() - (
                now or datetime.now(UTC)
            ).timestamp()
    except (ValueError, TypeError):
        return None
    # Not a number, or no end: nothing that can be waited for.
    return max(0.0, seconds) if seconds < float("inf") else None
