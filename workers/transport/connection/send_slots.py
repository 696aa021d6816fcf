"""Who may send the next batch on a connection: the highest level first, and nobody waits for ever.

The databases of a worker share its connections, so this is where a message of level 10 in one of them
goes before those of level 9 in all others. Once a batch is being written nothing goes before the rest of it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pybroker.workers.transport.protocol.faults import TransportError

# What a database that doesn't honour priorities counts as, and what is forwarded.
DEFAULT_LEVEL = 5
# After so many turns that were given past the one who waits longest he has the next, whatever his level.
_TURNS_BY_LEVEL = 15


class SendSlot:
    """The right to send one batch, from the wish for it until the batch was answered.

    Attributes:
        level: 1 to 10; may change while the turn has not been given.
        turns: those of the connection.
    """

    def __init__(self, turns: SendSlots, level: int) -> None:
        """Ask `turns` for one; call `SendSlots.ask` instead."""
        self.level = level
        self.turns = turns
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
            self.turns.written()

    def end(self) -> None:
        """Note that the batch was answered, or will never be; more than once is no matter."""
        if self._is_over:
            return
        self._is_over = True
        self.written()
        self.turns.ended(self)


class SendSlots:
    """The turns of one connection: one batch is written at a time, and so many may be unanswered.

    Attributes:
        is_closed: the connection is; whoever waited has his turn, and finds that.
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
        """How many have asked for a turn and have none yet."""
        return len(self._waiting)

    def ask(self, level: int) -> SendSlot:
        """Return a turn, which is given at once if nobody is before it."""
        turn = SendSlot(self, level)
        if self.is_closed:
            turn.give()
            return turn
        self._waiting.append(turn)
        self._give()
        return turn

    def close(self, fault: TransportError | None) -> None:
        """Note that the connection is closed."""
        self.is_closed = True
        self.fault = fault
        for turn in self._waiting:
            turn.give()
        self._waiting.clear()

    def written(self) -> None:
        """Note that the batch that was being written is on its way."""
        self._is_writing = False
        self._give()

    def ended(self, turn: SendSlot) -> None:
        """Note that a turn is over, or that nobody wants it any more."""
        if self.is_closed:
            return
        if turn.is_given:
            self._unanswered -= 1
        else:
            self._waiting.remove(turn)
        self._give()

    def _give(self) -> None:
        while self._waiting and not self._is_writing and self._unanswered < self._window:
            # The first of several is the one who has waited longest.
            turn = max(self._waiting, key=lambda waiting: waiting.level)
            if turn is self._waiting[0] or self._past_the_oldest >= _TURNS_BY_LEVEL:
                turn = self._waiting[0]
                self._past_the_oldest = 0
            else:
                self._past_the_oldest += 1
            self._waiting.remove(turn)
            self._is_writing = True
            self._unanswered += 1
            turn.give()
