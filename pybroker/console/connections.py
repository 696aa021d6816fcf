"""A connection that waits for its visitor makes room for others.

A visitor decides how long a connection stays half open: without a whole request, or with an answer
that nobody reads. uvicorn ends none of these, and refuses everybody once it has so many.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import asyncio

# A browser keeps up to six, between its requests.
MOST_WAITING = 100
_arrivals = count()


class Connection(H11Protocol):
    """One that ends the oldest of those that wait for their visitor, if they are too many."""

    arrival = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Come in, and make room."""
        self.arrival = next(_arrivals)
        others = cast("set[Connection]", self.connections)
        waiting = [other for other in others if other.waits_for_visitor]
        if len(waiting) >= MOST_WAITING:
            oldest = min(waiting, key=lambda other: other.arrival)
            # The transport tells of the end later, and the next one may come before that.
            self.connections.discard(oldest)
            oldest.transport.abort()
        super().connection_made(transport)

    @property
    def waits_for_visitor(self) -> bool:
        """Whether nothing goes on before the visitor sends, or reads, something."""
        is_answered = self.cycle is None or self.cycle.response_complete
        return is_answered or self.conn.their_state is h11.SEND_BODY or self.flow.write_paused
