"""What a sender sends by: the connection to a far broker, or another database of the same worker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from pybroker.workers.transport import wire
    from pybroker.workers.transport.faults import TransportError


class Carrier(Protocol):
    """Carries batches to one place, and brings back what became of them."""

    @property
    def is_sibling(self) -> bool:
        """Whether that is a database of the same worker: nothing is encrypted, no rights asked for."""

    @property
    def is_due(self) -> bool:
        """Whether it can be tried now."""

    @property
    def fault(self) -> TransportError | None:
        """Why it can't."""

    async def open(self) -> object:
        """Make ready.

        Raises:
            TransportError: It can't be now.
        """

    async def exchange(self, batch: Callable[[int], wire.Batch]) -> wire.Ack:
        """Send a batch, made for the number that it gets, and wait for what became of it.

        Raises:
            TransportError: Nobody knows; send it again.
        """
