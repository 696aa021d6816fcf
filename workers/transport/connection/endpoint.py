"""The endpoint of the home database: follows its rows, listens, and greets in both directions."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

import psycopg
import structlog

from pybroker.workers.arrivals import Arrivals
from pybroker.workers.transport import statements
from pybroker.workers.transport.connection import link
from pybroker.workers.transport.connection.certificate_check import Credentials, load_credentials
from pybroker.workers.transport.connection.refusals import Refusals
from pybroker.workers.transport.connection.session import WINDOW
from pybroker.workers.transport.connection.sessions import AlreadyConnectedError
from pybroker.workers.transport.connection.tls import READ_BYTES
from pybroker.workers.transport.dialog_security.key_files import private_key_path
from pybroker.workers.transport.protocol import faults, handshake, wire
from pybroker.workers.transport.protocol.faults import (
    LimitError,
    OwnSideError,
    TransportError,
    line_of,
    trace_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from structlog.typing import FilteringBoundLogger

    from pybroker.workers.clock import Clock
    from pybroker.workers.database import Database
    from pybroker.workers.transport.connection.connection_stats import ConnectionStats
    from pybroker.workers.transport.connection.session import Session
    from pybroker.workers.transport.connection.sessions import Sessions
    from pybroker.workers.transport.protocol.rows import Endpoint, KnownCertificate

# How soon a new key is seen, and a certificate, a grant or a port where nobody tells of it.
REFRESH_SECONDS = 2.0
_EXPIRES_SOON = timedelta(days=30)
# Who has not yet proved who he is costs memory and a handshake. When one more comes, the one who takes
# longest goes: a peer proves itself in a few round trips, so however many are silent, they keep nobody out.
_STRANGERS = 64

logger: FilteringBoundLogger = structlog.get_logger()


class HomeEndpoint:
    """What the worker is on the network, as the home database has it now."""

    def __init__(
        self,
        home: Database,
        databases: Sequence[Database],
        key_directory: Path | None,
        sessions: Sessions,
        *,
        clock: Clock,
        connections: ConnectionStats,
        traces: bool = False,
    ) -> None:
        """Prepare, without listening.

        Args:
            home: the database with endpoint, certificates and CONNECT grants.
            databases: what this worker serves, for its Hello.
            key_directory: where private keys are.
            sessions: takes over what has logged in.
            clock: paces the look at the home database.
            connections: where those that are opened and accepted here are noted.
            traces: whether the Hello says that batches may bring trace contexts.
        """
        self._home = home
        self._databases = databases
        self._key_directory = key_directory
        self._sessions = sessions
        self._clock = clock
        self._seen: object = None
        self._known: tuple[Endpoint | None, list[KnownCertificate]] | None = None
        self._read_at = float("-inf")
        self.changed = Arrivals()
        self._credentials: Credentials | None = None
        self._fault: TransportError = OwnSideError(faults.NO_ENDPOINT, "The home database can't be read.")
        self._was_read = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._listening: tuple[str, int] | None = None
        self._connections = connections
        self._traces = traces
        self._callers: set[asyncio.Task[None]] = set()
        self._opened: set[asyncio.Task[None]] = set()
        self._strangers: dict[asyncio.Task[None], None] = {}
        self._warned: object = None
        self._dropped = 0
        self._refusals = Refusals()

    @property
    def forwarding_bytes(self) -> int | None:
        """How much may be held to be passed on to other workers; None: nothing is passed on."""
        if self._credentials is None or not self._credentials.endpoint.is_message_forwarding_enabled:
            return None
        return self._credentials.endpoint.message_forwarding_size * 2**20

    async def run(self) -> None:
        """Follow the home database until cancelled; then close the listener and every link."""
        try:
            while True:
                await self._refresh()
                await self._clock.wait(self.changed, REFRESH_SECONDS)
        finally:
            await self._close()

    async def _refresh(self) -> None:
        """Act on what changed in the home database, and of the key. Without an answer all stays as it is."""
        if self.changed.is_set() or self._clock.monotonic() >= self._read_at:
            await self._read()
        if self._known is None:
            return
        endpoint, certificates = self._known
        seen = (endpoint, sorted(certificates, key=lambda c: c.name), self._key_state(endpoint))
        if seen != self._seen:
            await self._renew(endpoint, certificates)
            self._seen = seen
        self._was_read.set()
        await self._listen()
        self._warn_of_expiry()
        self._refusals.tell()
        if self._dropped:
            logger.warning("strangers_dropped", connections=self._dropped, at_once=_STRANGERS)
            self._dropped = 0

    async def connect(self, address: str) -> Session:
        """Return a connection with who answers at `tcp://host:port`: a new one, unless there is one.

        Raises:
            TransportError: This endpoint can't be used, or the far one is unreachable, refuses or is refused.
        """
        # Right after the start nobody knows yet whether there is an endpoint.
        await self._was_read.wait()
        if self._credentials is None:
            # Anew: an exception that is raised again and again would keep the frames of each time.
            raise self._fault.again()
        credentials = self._credentials
        connection = self._connections.begin(address, is_accept=False)
        try:
            opened = await link.connect(
                address, credentials, self._hello(credentials), self._sessions.refuse_second
            )
        except AlreadyConnectedError as met:
            self._connections.end(connection)
            logger.info(
                "connection_shared", address=address, number=met.number, uses=met.session.link.address
            )
            return met.session
        except BaseException:
            self._connections.end(connection)
            raise
        self._connections.logged_in(connection, opened)
        # The rows may have changed during the handshake, when this link was not yet known.
        if credentials is not self._credentials:
            fault = OwnSideError(faults.NOT_VERIFIED, "The endpoint changed; connecting again.")
            await opened.close(fault)
            raise fault
        logger.info("connection_opened", address=address, user=opened.peer.user_name)
        session = self._sessions.begin(opened, is_accept=False)
        running = asyncio.create_task(self._run(session), name=f"to {address}")
        self._opened.add(running)
        running.add_done_callback(self._opened.discard)
        return session

    async def close_lines(self) -> None:
        """End every connection."""
        running = {*self._callers, *self._opened}
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)

    async def _read(self) -> None:
        self.changed.clear()
        try:
            async with self._home.statement() as connection:
                self._known = await statements.endpoint_and_certificates(connection)
        except (psycopg.Error, OSError) as error:
            logger.warning("home_database_unreadable", database=self._home.name, error=line_of(error))
            self._was_read.set()
        else:
            self._read_at = self._clock.monotonic() + self.changed.pause(REFRESH_SECONDS)

    async def _renew(self, endpoint: Endpoint | None, certificates: Sequence[KnownCertificate]) -> None:
        before = self._credentials
        try:
            # In a thread: OpenSSL tests a private key for as long as many batches take.
            self._credentials = await asyncio.to_thread(
                load_credentials, endpoint, certificates, self._key_directory, self._clock.now
            )
        except TransportError as fault:
            self._credentials, self._fault = None, OwnSideError(fault.number, fault.text)
            # No endpoint, or a stopped one, is somebody's wish and no failure.
            level = logger.info if endpoint is None or endpoint.state == "STOPPED" else logger.error
            level("endpoint_unavailable", number=fault.number, reason=fault.text)
        except Exception as error:  # whatever it is, nobody may go on by what was allowed before
            self._credentials = None
            self._fault = OwnSideError(
                faults.NO_ENDPOINT, "The endpoint's certificates can't be used; see the log."
            )
            logger.error("endpoint_unusable", trace=trace_of(error))  # noqa: TRY400 - its trace has locals
        else:
            logger.info(
                "endpoint_renewed",
                endpoint=self._credentials.endpoint.name,
                known=len(self._credentials.peers),
            )
        if before is not None and self._credentials is not None:
            has_changed = before.certificate != self._credentials.certificate
            for each in self._connections.links():
                # What is on its way is finished; then the sending side opens another one.
                each.is_outdated = each.is_outdated or has_changed
        refused = []
        for each in self._connections.links():
            try:
                if self._credentials is None:
                    raise self._fault.again()
                self._credentials.admit(each.certificate)
                if each.encryption == "NONE":
                    handshake.refuse_without_encryption(
                        self._credentials.endpoint.encryption, each.far.encryption
                    )
            except TransportError as fault:
                self._refusals.note(each.address, fault)
                refused.append(each.close(fault))
        # All at once: one that reads nothing must not give the others time.
        await asyncio.gather(*refused)

    def _warn_of_expiry(self) -> None:
        """Say once a day, and for each new certificate, that it expires within a month."""
        if self._credentials is None:
            return
        now, certificate = self._clock.now(), self._credentials.certificate
        if self._warned == (now.date(), certificate.serial_number):
            return
        self._warned = now.date(), certificate.serial_number
        if certificate.not_valid_after_utc - now < _EXPIRES_SOON:
            logger.warning(
                "certificate_expires_soon",
                certificate=self._credentials.endpoint.certificate_name,
                not_valid_after=certificate.not_valid_after_utc.isoformat(),
            )

    def _key_state(self, endpoint: Endpoint | None) -> tuple[int, ...] | None:
        if endpoint is None or endpoint.certificate_name is None or self._key_directory is None:
            return None
        try:
            status = private_key_path(self._key_directory, endpoint.certificate_name).stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino, status.st_mode, status.st_uid

    async def _listen(self) -> None:
        wanted = None
        if self._credentials is not None:
            endpoint = self._credentials.endpoint
            wanted = endpoint.listener_ip, endpoint.listener_port
        if wanted == self._listening:
            return
        if self._server is not None:
            self._server.close()
            self._server = None
            logger.info("listener_closed", listening=self._listening)
        self._listening = None
        if wanted is None:
            return
        host, port = wanted
        try:
            # In two steps: cancelled once it serves, start_server would leave the port bound for ever.
            self._server = await asyncio.start_server(
                self._accept, None if host == "ALL" else host, port, limit=READ_BYTES, start_serving=False
            )
            await self._server.start_serving()
        except OSError as error:
            logger.warning("listener_failed", host=host, port=port, error=line_of(error))
            return
        self._listening = wanted
        logger.info("listener_opened", host=host, port=port)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        credentials = self._credentials
        if credentials is None:
            writer.transport.abort()
            return
        if len(self._strangers) >= _STRANGERS:
            slowest = next(iter(self._strangers))
            del self._strangers[slowest]
            slowest.cancel()
            self._dropped += 1
        # A task of our own: asyncio reports one of its own that is cancelled as an accident.
        task = asyncio.create_task(self._greet(reader, writer, credentials))
        self._callers.add(task)
        self._strangers[task] = None
        task.add_done_callback(lambda done: self._strangers.pop(done, None))
        task.add_done_callback(self._callers.discard)
        # Also for one that is cancelled before it has begun, and so never came to close anything.
        task.add_done_callback(lambda _: writer.transport.abort())

    async def _greet(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, credentials: Credentials
    ) -> None:
        address = link.caller_address(writer)
        connection = self._connections.begin(address, is_accept=True)
        try:
            caller = await link.accept(reader, writer, credentials, self._hello(credentials))
        except TransportError as fault:
            self._connections.end(connection)
            if fault.number in (faults.LOST_TO_EXISTING, faults.SAME_PEER_ELSEWHERE):
                logger.info("connection_shared", address=address, number=fault.number)
            else:
                self._refusals.note(address, fault)
            return
        except BaseException:
            self._connections.end(connection)
            raise
        try:
            self._connections.logged_in(connection, caller)
        except LimitError as fault:
            self._connections.end(connection)
            self._refusals.note(address, fault)
            await caller.close(fault)
            return
        if (task := asyncio.current_task()) is not None:
            self._strangers.pop(task, None)
        # The rows may have changed during the handshake, when this link was not yet known.
        if credentials is not self._credentials:
            await caller.close(TransportError(faults.NOT_VERIFIED, "The endpoint changed; connect again."))
            return
        logger.info("connection_accepted", address=address, user=caller.peer.user_name)
        await self._run(self._sessions.begin(caller, is_accept=True))

    async def _run(self, session: Session) -> None:
        await session.run()
        if session.breach is not None:
            self._refusals.note(session.link.address, session.breach)

    def _hello(self, credentials: Credentials) -> wire.Hello:
        return wire.Hello(
            version=wire.PROTOCOL_VERSION,
            oldest_version=wire.OLDEST_PROTOCOL_VERSION,
            broker_instances=[database.greeting.service_broker_guid.bytes for database in self._databases],
            encryption=credentials.endpoint.encryption,
            window=WINDOW,
            maximum_frame_bytes=wire.MAXIMUM_FRAME_BYTES,
            software="pybroker",
            arbitration_id=self._sessions.arbitration_id,
            maximum_dialogs=wire.MAXIMUM_DIALOGS,
            takes_traceparents=self._traces,
        )

    async def _close(self) -> None:
        if self._server is not None:
            self._server.close()
        # Run again, this listens again.
        self._server = self._listening = self._seen = None
        self._read_at = float("-inf")
        await self.close_lines()
