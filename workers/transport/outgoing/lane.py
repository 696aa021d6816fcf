"""The batches of one lane that are on their way, settled one after the other."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Self

from pybroker.workers.transport.outgoing.in_flight import InFlight

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from types import TracebackType

# Each batch says to `take` what is on its way: that is for dialogs with much to send, not for thousands.
_MOST_IN_FLIGHT = 64


class Lane:
    """The batches on their way of those dialogs that one lane has; when it is left, there are none.

    Attributes:
        number: which lane it is.
        lanes: of how many.
        in_flight: where in their dialogs these batches end.
        last_batch: the number of the newest, which the next one follows.
        newest: what settles it.
    """

    def __init__(self, number: int, lanes: int, depth: int) -> None:
        self.number = number
        self.lanes = lanes
        self.in_flight = InFlight()
        self.last_batch: int | None = None
        self.newest: asyncio.Task[bool] | None = None
        self._depth = depth
        self._settling: deque[asyncio.Task[bool]] = deque()

    @property
    def is_alone(self) -> bool:
        """Whether all dialogs are in this one lane."""
        return self.lanes == 1

    @property
    def is_empty(self) -> bool:
        """Whether nothing is on its way."""
        return not self._settling

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, asyncio.CancelledError):
            for settling in self._settling:
                settling.cancel()
        # None may be left: the next turn would take the same messages again.
        results = await asyncio.gather(*self._settling, return_exceptions=True)
        for result in results:
            if error is None and isinstance(result, BaseException):
                raise result

    def add(self, settle: Coroutine[None, None, bool]) -> None:
        """Settle a batch when its answer comes."""
        self.newest = asyncio.create_task(settle, name="settle")
        self._settling.append(self.newest)

    async def room(self) -> bool:
        """Wait until another batch may follow; return False if one was settled of which nothing moved."""
        return await self._down_to(self._depth if len(self.in_flight) <= _MOST_IN_FLIGHT else 1)

    async def drained(self) -> bool:
        """Wait until nothing is on its way; return as `room` does."""
        return await self._down_to(1)

    async def _down_to(self, batches: int) -> bool:
        has_moved = True
        while len(self._settling) >= batches:
            # Left in its place until it is done: who is cancelled here has to cancel it.
            has_moved = await self._settling[0] and has_moved
            self._settling.popleft()
        return has_moved
