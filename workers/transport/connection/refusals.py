"""Logs who and what was turned away: the first of each kind as it happens, the others as a count."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from pybroker.workers.transport.protocol.faults import TransportError

# Strangers may refuse us with any number.
_MOST_NUMBERS = 100

logger: FilteringBoundLogger = structlog.get_logger()


class Refusals:
    """Connections, or batches, that were refused or broke the protocol, however many a peer makes of them."""

    def __init__(self, one: str = "connection", many: str = "connections") -> None:
        """Prepare.

        Args:
            one: what is counted; `ONE_refused` is the event of the first.
            many: its plural; `MANY_refused` is the event of the count.
        """
        self._one = f"{one}_refused"
        self._several = f"{many}_refused"
        self._many = many
        self._counts: Counter[int] = Counter()

    def note(self, address: str, fault: TransportError) -> None:
        """Count one that ended by a fault; of each number the first is logged with who and why."""
        is_known = fault.number in self._counts
        number = fault.number if is_known or len(self._counts) < _MOST_NUMBERS else 0
        if number not in self._counts:
            logger.warning(self._one, address=address, number=fault.number, reason=fault.text)
        self._counts[number] += 1

    def tell(self) -> None:
        """Log how many there were of each number since the last time, if more than the one."""
        for number, count in self._counts.items():
            if count > 1:
                logger.warning(self._several, number=number, **{self._many: count})
        self._counts.clear()
