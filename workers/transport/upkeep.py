"""What transport does at fixed periods; `periodic` runs it, and notes when, as it does its own tasks.

These are the tasks of Service Broker's dispatcher, transport and transmitter. Much of what they do there
happens here as soon as there is a reason; then the task is the look behind, which finds what was missed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pybroker.workers import presence
from pybroker.workers.periodic import PeriodicTask

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pybroker.workers.database import Database
    from pybroker.workers.presence import Presence
    from pybroker.workers.transport.connection.sessions import Sessions
    from pybroker.workers.transport.incoming.forwarder import Forwarder
    from pybroker.workers.transport.incoming.receiver import Receiver
    from pybroker.workers.transport.outgoing.peer import Peer
    from pybroker.workers.transport.outgoing.probe import Probe
    from pybroker.workers.transport.outgoing.router import Router
    from pybroker.workers.transport.outgoing.siblings import Siblings

# Seconds: every, every second and every fifth of Service Broker's ticks.
TICK = 5.0
SECOND_TICK = 10.0
FIFTH_TICK = 25.0


class Upkeep:
    """The periodic tasks of one worker's transport."""

    def __init__(
        self,
        here: Presence,
        receiver: Receiver,
        forwarder: Forwarder,
        *,
        siblings: Siblings,
        routers: Mapping[Database, Router],
        peers: dict[tuple[str, ...], Peer],
        sessions: Sessions,
        probes: Mapping[Database, Probe],
        probe_after: float,
    ) -> None:
        """Prepare.

        Args:
            here: this worker, as the views show it.
            receiver: holds what has arrived.
            forwarder: holds what is passed on to other workers.
            siblings: remember which services they have.
            routers: by database, its home first, as the tasks of the whole worker are its home's.
            peers: the ways to other workers, by addresses; what is of no more use is removed.
            sessions: the connections.
            probes: by database, too.
            probe_after: seconds from one look of a probe to the next.
        """
        self._presence = here
        self._receiver = receiver
        self._forwarder = forwarder
        self._siblings = siblings
        self._routers = routers
        self._peers = peers
        self._sessions = sessions
        self._probes = probes
        self._probe_after = probe_after

    def tasks(self, database: Database) -> tuple[PeriodicTask, ...]:
        """Return the tasks that are to run for a database; the home database has those of the worker too."""
        of_database = (
            PeriodicTask("transport", SECOND_TICK, self.connect),
            PeriodicTask("database_scan", FIFTH_TICK, self.scan),
            PeriodicTask("probe", self._probe_after, self.probe, self._probes[database].due),
        )
        if database is not next(iter(self._routers)):
            return of_database
        return (
            *of_database,
            PeriodicTask("presence", presence.PERIOD, self.tell_presence, self._presence.changed),
            PeriodicTask("dispatcher", TICK, self.drop_stale),
            PeriodicTask("transmitter", SECOND_TICK, self.trim),
            PeriodicTask("idle_connections", FIFTH_TICK, self.close_idle),
            PeriodicTask("forwarder", FIFTH_TICK, self.purge_forwarded),
        )

    async def connect(self, database: Database) -> None:
        """Connect to the destinations that messages wait for, but to none that failed a moment ago."""
        self._routers[database].arrived.set()
        self._probes[database].look_at_database()

    async def scan(self, database: Database) -> None:
        """Start the broker of a database that could not be started before."""
        await database.renew_greeting()
        self._routers[database].arrived.set()

    async def probe(self, database: Database) -> None:
        """Ask the far sides of open dialogs whether both sides remember the same."""
        await self._probes[database].look()

    async def tell_presence(self, _: Database) -> None:
        """Show the worker's connections, and that it lives."""
        await self._presence.tell()

    async def drop_stale(self, _: Database) -> None:
        """Drop what has arrived and was not picked up for 10 s."""
        self._receiver.drop_stale()

    async def purge_forwarded(self, _: Database) -> None:
        """Drop what could not be forwarded within 60 s."""
        self._forwarder.purge()

    async def trim(self, _: Database) -> None:
        """Trim caches, and let the dialogs that wait for a broker be given to one again."""
        self._receiver.trim()
        self._siblings.trim()
        for router in self._routers.values():
            router.reclassify()

    async def close_idle(self, _: Database) -> None:
        """Close the connections that were idle for 90 s."""
        self._sessions.leave_idle()
        for addresses, peer in tuple(self._peers.items()):
            if peer.is_forgettable:
                del self._peers[addresses]
