"""Which large messages of a destination cross: few at once, one of a dialog, the highest priorities first."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from pybroker.workers.transport.outgoing.lane import Lane

# Dialogs whose large messages cross at once.
_AT_ONCE = 4
# After so many by priority the oldest one crosses.
_MOST_BY_PRIORITY = 15


class Transfers:
    """The dialogs that have a large message to send, and those that are sending it now."""

    def __init__(self) -> None:
        # With their priorities, the oldest first.
        self._waiting: dict[int, int] = {}
        # Whether those that the highest priorities hide are among them too.
        self._knows_oldest = False
        # Since the last one by age.
        self._by_priority = 0
        self._crossing: dict[int, asyncio.Task[None]] = {}

    @property
    def is_busy(self) -> bool:
        """Whether any waits or crosses."""
        return bool(self._waiting or self._crossing)

    @property
    def wants_oldest(self) -> bool:
        """Whether the next one should be the oldest, which is not known."""
        return self._by_priority >= _MOST_BY_PRIORITY and not self._knows_oldest

    def crossing(self) -> list[int]:
        """Return the endpoints whose large messages are crossing."""
        return list(self._crossing)

    def note(self, large: Mapping[int, int], *, by_age: bool) -> None:
        """Note which dialogs have a large message, with their priorities, the oldest first.

        Args:
            large: by endpoint the priority.
            by_age: whether none is older than these.
        """
        if by_age:
            self._waiting = {**large, **self._waiting}
            self._knows_oldest = True
        else:
            self._waiting.update(large)

    def start(self, lane: Lane, send: Callable[[int], Coroutine[None, None, None]]) -> None:
        """Begin to send large messages of dialogs of a lane without a batch in flight, while few cross.

        A piece is of the oldest message that is not acknowledged, so nothing before it may be on its way.

        Raises:
            TransportError, psycopg.Error: What went wrong with one that has ended.
        """
        for endpoint, crossing in tuple(self._crossing.items()):
            if crossing.done():
                del self._crossing[endpoint]
                crossing.result()
        for endpoint in self._crossing:
            self._waiting.pop(endpoint, None)
        while len(self._crossing) < _AT_ONCE and (next_one := self._next(lane)) is not None:
            del self._waiting[next_one]
            self._crossing[next_one] = asyncio.create_task(send(next_one), name=f"large {next_one}")

    def cancel(self) -> None:
        """Cancel those that are crossing; `end` waits for them."""
        for crossing in self._crossing.values():
            crossing.cancel()

    async def end(self) -> None:
        """Wait until the pieces on their way are answered; the next turn goes on after them.

        Raises:
            TransportError, psycopg.Error: What went wrong with the first that failed.
        """
        self._waiting.clear()
        self._knows_oldest = False
        transfers = list(self._crossing.values())
        if not transfers:
            return
        try:
            # None may be left in flight: the next turn would take the same message again.
            await asyncio.wait(transfers)
        finally:
            for transfer in transfers:
                transfer.cancel()
            self._crossing.clear()
        for transfer in transfers:
            if not transfer.cancelled() and (error := transfer.exception()) is not None:
                raise error

    def _next(self, lane: Lane) -> int | None:
        """Return the dialog whose large message crosses next, if that is one of the lane's and is ready."""
        by_age = self._by_priority >= _MOST_BY_PRIORITY and self._knows_oldest
        in_order = list(self._waiting)
        if not by_age:
            in_order.sort(key=self._waiting.__getitem__, reverse=True)
        for endpoint in in_order:
            if endpoint % lane.lanes != lane.number:
                # The place is for that one: its own lane begins it after its next batch.
                return None
            if endpoint not in lane.in_flight:
                self._by_priority = 0 if by_age else self._by_priority + 1
                return endpoint
        return None
