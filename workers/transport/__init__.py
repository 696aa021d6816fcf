"""Transport: carries messages between databases.

Outgoing: router → sender → peer → session → link → wire. Incoming: link → session → receiver. Within
the worker: router → sender → siblings → receiver. Passing through: receiver → forwarder → peer. Each
module can be read alone; `statements` holds the SQL that they share. `connection.certificate_check` decides
who may talk to whom, `retry_schedule` says how long each try waits, `resends` what is sent again when.

    protocol         what goes over the wire: frames, arrays, the handshake, sealed envelopes; no I/O
    connection       the endpoint, TLS, who may connect, sessions, whose batch is next
    dialog_security  keys and certificates, how a dialog is secured, sealing and opening
    outgoing         where messages go, and the batches that leave
    incoming         the batches that arrive, and what is passed on
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pybroker.workers import cancellation
from pybroker.workers.clock import Clock
from pybroker.workers.presence import Presence
from pybroker.workers.transport.connection.connection_stats import ConnectionStats
from pybroker.workers.transport.connection.endpoint import HomeEndpoint
from pybroker.workers.transport.connection.session import WINDOW
from pybroker.workers.transport.connection.sessions import Sessions
from pybroker.workers.transport.dialog_security.secure_dialogs import SecureDialogs
from pybroker.workers.transport.incoming.forwarder import Forwarder
from pybroker.workers.transport.incoming.receiver import Receiver
from pybroker.workers.transport.outgoing.peer import Peer
from pybroker.workers.transport.outgoing.probe import Probe
from pybroker.workers.transport.outgoing.router import Router
from pybroker.workers.transport.outgoing.siblings import Siblings
from pybroker.workers.transport.retry_schedule import Pace
from pybroker.workers.transport.upkeep import Upkeep

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pybroker.workers.arrivals import Arrivals
    from pybroker.workers.database import Database
    from pybroker.workers.periodic import PeriodicTask

__all__ = ["Transport"]


class Transport:
    """The transport of one worker: one endpoint, and all the databases behind it."""

    def __init__(
        self,
        databases: Sequence[Database],
        home: Database,
        key_directory: Path | None,
        clock: Clock | None = None,
        pace: Pace | None = None,
        *,
        traces: bool = False,
    ) -> None:
        """Prepare, without connecting or listening.

        Args:
            databases: the databases that the worker serves; they stay open while transport runs.
            home: the one with the endpoint, the certificates and the CONNECT grants.
            key_directory: where private keys are; without it there are no far brokers.
            clock: the worker's clock.
            pace: how long is waited before what failed is tried again.
            traces: whether messages keep their trace contexts on their way, and spans are made of it.
        """
        self._clock = clock or Clock()
        self._pace = pace or Pace()
        self._peers: dict[tuple[str, ...], Peer] = {}
        forwarder = Forwarder(self._outbound_to, lambda: self._endpoint.forwarding_bytes, self._clock)
        dialogs = SecureDialogs(databases, key_directory, self._clock)
        receiver = Receiver(
            databases,
            dialogs,
            forwarder,
            self._clock,
            lambda database: self._probes[database].far_restarted(),
            traces=traces,
        )
        self._presence = Presence(home, self._clock)
        connections = ConnectionStats(self._clock, WINDOW, self._presence.changed.set)
        self._presence.add(connections.tell)
        self._presence.add(forwarder.tell)
        self._sessions = Sessions(self._presence.worker_id, receiver.answer, self._clock, self._pace)
        self._endpoint = HomeEndpoint(
            home,
            databases,
            key_directory,
            self._sessions,
            clock=self._clock,
            connections=connections,
            traces=traces,
        )
        siblings = Siblings(databases, receiver, self._clock)
        self._routers = {
            database: Router(
                database,
                siblings,
                dialogs,
                self._outbound_to,
                self._clock,
                pace=self._pace,
                traces=traces,
            )
            for database in databases
        }
        self._probes = {
            database: Probe(database, dialogs, router.carrier_for, self._clock)
            for database, router in self._routers.items()
        }
        self._upkeep = Upkeep(
            self._presence,
            receiver,
            forwarder,
            siblings=siblings,
            routers=self._routers,
            peers=self._peers,
            sessions=self._sessions,
            probes=self._probes,
            probe_after=self._pace.probe_after,
        )

    @property
    def endpoint_changed(self) -> Arrivals:
        """What somebody may set when endpoint or certificates changed: they are read then."""
        return self._endpoint.changed

    def arrived(self, database: Database) -> Arrivals:
        """Return what somebody may set when this database has a message to carry: it is looked at then."""
        return self._routers[database].arrived

    def periodic_tasks(self, database: Database) -> tuple[PeriodicTask, ...]:
        """Return what transport does at fixed periods for a database, beside its own running."""
        return self._upkeep.tasks(database)

    async def run(self, stop: asyncio.Event) -> None:
        """Carry messages until `stop` is set. Cut off at any moment, nothing is lost: it is sent again.

        Failures of the network, of a far broker or of a database are logged, become transmission statuses,
        and are tried again; none ends this coroutine.
        """
        parts = [asyncio.create_task(self._endpoint.run(), name="endpoint")]
        parts += [asyncio.create_task(router.run(), name="router") for router in self._routers.values()]
        stopping = asyncio.create_task(stop.wait())
        try:
            done, _ = await asyncio.wait((stopping, *parts), return_when=asyncio.FIRST_COMPLETED)
            for task in done - {stopping}:
                # Only an accident ends a part; the supervisor starts all of them anew.
                task.result()
        finally:
            await cancellation.end((stopping, *parts))
            # Also what a router has opened while it was stopped.
            await self._endpoint.close_lines()
            self._peers.clear()
            await self._presence.leave()

    def _outbound_to(self, addresses: tuple[str, ...]) -> Peer:
        peer = self._peers.get(addresses)
        if peer is None:
            peer = Peer(
                addresses, self._endpoint.connect, self._clock, self._pace, self._sessions.with_worker
            )
            self._peers[addresses] = peer
        return peer
