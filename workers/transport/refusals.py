"""Logs whom the endpoint turned away: the first of each kind as it happens, the others as a count."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from pybroker.workers.transport.faults import TransportError

# A stranger may refuse us with any number.
_MOST_NUMBERS = 100

logger: FilteringBoundLogger = structlog.get_logger()


class Refusals:
    """Connections that were refused or broke the protocol, however many a stranger makes of them."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()

    def note(self, address: str, fault: TransportError) -> None:
        """Count a connection that ended by a fault; one of each number is logged with who and why."""
        is_known = fault.number in self._counts
        number = fault.number if is_known or len(self._counts) < _MOST_NUMBERS else 0
        if number not in self._counts:
            logger.warning("connection_refused", address=address, number=fault.number, reason=fault.text)
        self._counts[number] += 1

    def tell(self) -> None:
        """Log how many there were of each number since the last time, if more than the one."""
        for number, count in self._counts.items():
            if count > 1:
                logger.warning("connections_refused", number=number, connections=count)
        self._counts.clear()
