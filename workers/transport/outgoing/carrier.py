"""What a sender sends by: the connection to a far broker, or another database of the same worker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from pybroker.workers.transport.connection.send_slots import SendSlot
    from pybroker.workers.transport.connection.session import Posted
    from pybroker.workers.transport.protocol import wire
    from pybroker.workers.transport.protocol.faults import TransportError


class Carrier(Protocol):
    """Carries batches to one place, and brings back what became of them."""

    @property
    def is_sibling(self) -> bool:
        """Whether that is a database of the same worker: nothing is encrypted, no rights asked for."""

    @property
    def is_due(self) -> bool:
        """Whether it can be tried now."""

    @property
    def maximum_dialogs(self) -> int:
        """How many dialogs a batch may have, as who takes it says."""

    @property
    def takes_traceparents(self) -> bool:
        """Whether batches may bring trace contexts, as who takes them says."""

    @property
    def fault(self) -> TransportError | None:
        """Why it can't."""

    async def open(self) -> object:
        """Make ready.

        Raises:
            TransportError: It can't be now.
        """

    async def ask(self, priority: int | None) -> SendSlot:
        """Ask for a slot to send a batch whose first message has this priority; None counts as 5.

        Raises:
            TransportError: It can't be now.
        """

    async def post(self, slot: SendSlot, batch: Callable[[int], wire.Batch]) -> Posted:
        """Begin to send a batch that has its slot; return its number, and what waits for the answer.

        Raises:
            TransportError: It was not sent. The task raises what `exchange` does.
        """

    async def exchange(self, batch: Callable[[int], wire.Batch], priority: int | None = None) -> wire.Ack:
        """Send a batch, and wait for what became of it.

        Raises:
            TransportError: Nobody knows; send it again.
        """
