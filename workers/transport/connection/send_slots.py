"""Who may send the next batch on a connection: the highest priority first, and nobody waits for ever.

The databases of a worker share its connections, so this is where a message of priority 10 in one of them
goes before those of priority 9 in all others. Once a batch is being written nothing goes before its rest.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pybroker.workers.transport.protocol.faults import TransportError

# What a database that doesn't honour priorities counts as, and what is forwarded.
DEFAULT_PRIORITY = 5
# After so many slots that were given past the one that waits longest it has the next, whatever its priority.
_SLOTS_BY_PRIORITY = 15


class SendSlot:
    """The right to send one batch, from the wish for it until the batch was answered.

    Attributes:
        priority: 1 to 10; may change while the slot has not been given.
        send_slots: those of the connection.
    """

    def __init__(self, send_slots: SendSlots, priority: int) -> None:
        """Ask `send_slots` for one; call `SendSlots.ask` instead."""
        self.priority = priority
        self.send_slots = send_slots
        self._given = asyncio.Event()
        self._is_writing = False
        self._is_over = False

    @property
    def is_given(self) -> bool:
        """Whether the batch may be written now, or the connection is closed."""
        return self._given.is_set()

    async def given(self, seconds: float | None = None) -> bool:
        """Wait for it, at most `seconds`; return whether it was given."""
        if not self.is_given:
            try:
                async with asyncio.timeout(seconds):
                    await self._given.wait()
            except TimeoutError:
                pass
        return self.is_given

    def give(self) -> None:
        """Let the batch be written."""
        self._is_writing = True
        self._given.set()

    def written(self) -> None:
        """Let the next batch be written; this one is not answered yet."""
        if self._is_writing:
            self._is_writing = False
            self.send_slots.written()

    def end(self) -> None:
        """Note that the batch was answered, or will never be; more than once is no matter."""
        if self._is_over:
            return
        self._is_over = True
        self.written()
        self.send_slots.ended(self)


class SendSlots:
    """The slots of one connection: one batch is written at a time, and so many may be unanswered.

    Attributes:
        is_closed: the connection is; whoever waited has a slot, and finds that.
        fault: how it ended, if it is not to be opened again at once.
    """

    def __init__(self, window: int) -> None:
        """Prepare for a connection whose far side takes `window` unanswered batches."""
        self._window = window
        self._unanswered = 0
        self._is_writing = False
        self._past_the_oldest = 0
        # In the order in which they asked.
        self._waiting: list[SendSlot] = []
        self.is_closed = False
        self.fault: TransportError | None = None

    @property
    def waiting(self) -> int:
        """How many have asked for a slot and have none yet."""
        return len(self._waiting)

    def ask(self, priority: int) -> SendSlot:
        """Return a slot, which is given at once if nobody is before it."""
        slot = SendSlot(self, priority)
        if self.is_closed:
            slot.give()
            return slot
        self._waiting.append(slot)
        self._give()
        return slot

    def close(self, fault: TransportError | None) -> None:
        """Note that the connection is closed."""
        self.is_closed = True
        self.fault = fault
        for slot in self._waiting:
            slot.give()
        self._waiting.clear()

    def written(self) -> None:
        """Note that the batch that was being written is on its way."""
        self._is_writing = False
        self._give()

    def ended(self, slot: SendSlot) -> None:
        """Note that a slot is over, or that nobody wants it any more."""
        if self.is_closed:
            return
        if slot.is_given:
            self._unanswered -= 1
        else:
            self._waiting.remove(slot)
        self._give()

    def _give(self) -> None:
        while self._waiting and not self._is_writing and self._unanswered < self._window:
            # The first of several is the one who has waited longest.
            slot = max(self._waiting, key=lambda waiting: waiting.priority)
            if slot is self._waiting[0] or self._past_the_oldest >= _SLOTS_BY_PRIORITY:
                slot = self._waiting[0]
                self._past_the_oldest = 0
            else:
                self._past_the_oldest += 1
            self._waiting.remove(slot)
            self._is_writing = True
            self._unanswered += 1
            slot.give()
