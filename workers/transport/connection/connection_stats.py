"""The connections that this worker has now, for its own decisions and for `broker.dm_broker_connections`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from psycopg.types.json import Jsonb

from pybroker.workers.transport import statements
from pybroker.workers.transport.connection.limits import Limits

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from psycopg import AsyncConnection

    from pybroker.workers.clock import Clock
    from pybroker.workers.transport.connection.link import Link

# As in sys.dm_broker_connections.
_CONNECTING = 2
_CONNECTED = 3
_LOGGED_IN = 4


@dataclass(eq=False)
class Connection:
    """One connection, from the first attempt on.

    Attributes:
        address: the far side's, for people.
        is_accept: whether the far side opened it.
        connect_time: when it began.
        login_time: when both sides had shown who they are.
        link: what it has become by then.
    """

    address: str
    is_accept: bool
    connect_time: datetime
    login_time: datetime | None = None
    link: Link | None = None
    connection_id: UUID = field(default_factory=uuid4)
    _bytes: int = 0
    _active: datetime | None = None

    def described(self, now: datetime, window: int) -> dict[str, Any]:
        """Return the columns of `broker_private.connections`, as JSON has them."""
        link = self.link
        columns: dict[str, Any] = {
            "connection_id": str(self.connection_id),
            "address": self.address,
            "is_accept": self.is_accept,
            "connect_time": self.connect_time.isoformat(),
        }
        if link is None:
            return columns | {
                "state": _CONNECTED if self.is_accept else _CONNECTING,
                "last_activity_time": self.connect_time.isoformat(),
                **dict.fromkeys(_COUNTERS, 0),
                "is_receive_flow_controlled": False,
                "is_send_flow_controlled": False,
            }
        passed = link.sent + link.received
        if passed != self._bytes or self._active is None:
            self._bytes, self._active = passed, now
        traffic = link.traffic
        return columns | {
            "state": _LOGGED_IN,
            "login_time": None if self.login_time is None else self.login_time.isoformat(),
            "last_activity_time": self._active.isoformat(),
            "user_name": link.peer.user_name,
            "certificate_name": link.peer.certificate_name,
            "encryption": link.encryption,
            "peer_arbitration_id": str(UUID(bytes=link.far.arbitration_id))
            if link.far.arbitration_id
            else None,
            "receives_posted": traffic.to_answer,
            "is_receive_flow_controlled": traffic.to_answer >= window,
            "sends_posted": traffic.unanswered,
            "is_send_flow_controlled": traffic.unanswered >= link.far.window,
            "bytes_sent": link.sent,
            "bytes_received": link.received,
            "messages_sent": traffic.messages_sent,
            "messages_received": traffic.messages_received,
            "frames_sent": traffic.frames_sent,
            "frames_received": traffic.frames_received,
        }


_COUNTERS = (
    "receives_posted",
    "sends_posted",
    "bytes_sent",
    "bytes_received",
    "messages_sent",
    "messages_received",
    "frames_sent",
    "frames_received",
)


class ConnectionStats:
    """All connections of the worker's endpoint, opened and accepted."""

    def __init__(self, clock: Clock, window: int, changed: Callable[[], None]) -> None:
        """Prepare.

        Args:
            clock: says when a connection began.
            window: batches that a far side may have unanswered.
            changed: called when a connection has logged in or has ended.
        """
        self._clock = clock
        self._window = window
        self._changed = changed
        self._all: dict[Connection, None] = {}
        self._were_shown = False
        self._limits = Limits()

    def begin(self, address: str, *, is_accept: bool) -> Connection:
        """Note an attempt, which `logged_in` or `end` follows."""
        connection = Connection(address, is_accept, self._clock.now())
        self._all[connection] = None
        return connection

    def logged_in(self, connection: Connection, link: Link) -> None:
        """Note that both sides know each other; when the link is closed the connection has ended.

        Raises:
            LimitError: It was accepted, and there are as many as there may be.
        """
        if connection.is_accept:
            self._limits.connect(link.peer.user_name)
        link.limit(self._limits)
        connection.link = link
        connection.login_time = self._clock.now()
        link.when_closed(lambda: self.end(connection))
        self._changed()

    def end(self, connection: Connection) -> None:
        """Forget a connection; one that has ended already is no news."""
        if connection not in self._all:
            return
        del self._all[connection]
        if connection.link is not None:
            if connection.is_accept:
                self._limits.disconnect(connection.link.peer.user_name)
            self._changed()

    def links(self) -> list[Link]:
        """Return those that have logged in."""
        return [connection.link for connection in self._all if connection.link is not None]

    async def tell(self, session: AsyncConnection[Any], worker: UUID) -> None:
        """Write them for the view.

        Raises:
            psycopg.Error: They can't be written now.
        """
        now = self._clock.now()
        rows = [connection.described(now, self._window) for connection in self._all]
        if rows or self._were_shown:
            await statements.note_connections(session, worker, Jsonb(rows))
        self._were_shown = bool(rows)
