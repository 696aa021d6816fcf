"""Who serves which database: starts the parts of the worker, restarts what dies, and ends them in order."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING

import psycopg
import structlog

from pybroker.backoff import Backoff
from pybroker.printable import one_line
from pybroker.workers import cancellation, heartbeat, periodic, standby
from pybroker.workers.activation import Activation
from pybroker.workers.arrivals import Arrivals
from pybroker.workers.clock import Clock
from pybroker.workers.database import Database, ServingError, UnreachableError
from pybroker.workers.event_notifications import EventNotifications
from pybroker.workers.transport import Transport
from pybroker.workers.transport.dialog_security.key_files import check_key_directory
from pybroker.workers.transport.protocol.faults import TransportError
from pybroker.workers.validation import Validation
from pybroker.workers.wake_ups import INCOMPLETE_MESSAGES, SYSTEM_CONTRACTS, TRANSMISSION_QUEUE, WakeUps

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from pathlib import Path

    from structlog.typing import FilteringBoundLogger

    from pybroker.workers.transport.retry_schedule import Pace

GRACE = 30.0

# A part that ran for this long before it died is restarted as if it never had died before.
_STEADY = 60.0
# Transport gets this long to close its connections; the far brokers cope with less.
_TRANSPORT_GRACE = 10.0

logger: FilteringBoundLogger = structlog.get_logger()


async def run(
    urls: Sequence[str],
    key_directory: Path | None,
    stop: asyncio.Event,
    *,
    grace: float = GRACE,
    clock: Clock | None = None,
    pace: Pace | None = None,
    heartbeat_file: Path | None = None,
    waits: bool = False,
    logins: Sequence[str] = (),
    traces: bool = False,
) -> None:
    """Serve databases until `stop` is set, then end in order.

    Beside a standby it waits: it serves once none of the servers is in recovery, and waits again when one is.

    Readers are no longer started, running procedures end by themselves or are left to the server after
    `grace`, and then transport stops. Cancelling this coroutine ends all of it at once; nothing is lost by
    that either.

    Args:
        urls: the databases; the first is the home database, which holds the endpoint.
        key_directory: where the private keys are, if the worker needs any.
        stop: set by the caller to end.
        grace: seconds that are waited for running procedures.
        clock: the worker's clock.
        pace: how long transport waits before it tries again.
        heartbeat_file: touched every few seconds, from when all databases are reached.
        waits: whether to keep trying for a database that is away, until `stop` is set.
        logins: the roles that readers log in as, instead of SET ROLE.
        traces: whether messages keep their trace contexts on their way, and spans are made of it.

    Raises:
        ServingError: a database can't be served; nothing was started.
    """
    clock = clock or Clock()
    if key_directory is not None:
        try:
            check_key_directory(key_directory)
        except TransportError as fault:
            raise ServingError(fault.text) from None
    databases = [Database(url, clock) for url in urls]
    async with AsyncExitStack() as opened:
        for database in databases:
            while not stop.is_set():
                try:
                    await opened.enter_async_context(database)
                    break
                except UnreachableError as error:
                    if not waits:
                        raise
                    logger.warning("worker_waits", error=str(error))
        if stop.is_set():
            logger.info("worker_stopped")
            return
        _refuse_same_broker(databases)
        listening = await _listening_address(databases)
        watches: list[asyncio.Task[None]] = []
        if heartbeat_file is not None:
            beating = _keep_running("heartbeat", partial(heartbeat.run, heartbeat_file, clock), clock)
            watches.append(asyncio.create_task(beating, name="heartbeat"))
        try:
            while not stop.is_set() and await standby.until_principal(databases, stop, clock):
                transport = Transport(databases, databases[0], key_directory, clock, pace, traces=traces)
                over = asyncio.Event()
                watches.append(
                    asyncio.create_task(standby.watch(databases, stop, over, clock), name="standby")
                )
                await _Parts(databases, transport, clock, logins).run(over, grace, listening)
        finally:
            await cancellation.end(watches)
    logger.info("worker_stopped")


class _Parts:
    """The running parts: those that may be cut off at any moment, transport, and the readers."""

    def __init__(
        self, databases: Sequence[Database], transport: Transport, clock: Clock, logins: Sequence[str]
    ) -> None:
        self._databases = databases
        self._transport = transport
        self._clock = clock
        self._activations = [Activation(database, clock, logins) for database in databases]

    async def run(self, stop: asyncio.Event, grace: float, listening: str | None) -> None:
        stop_transport = asyncio.Event()
        tasks = [
            self._start(f"activation {database.name}", activation.run)
            for database, activation in zip(self._databases, self._activations, strict=True)
        ]
        for database, activation in zip(self._databases, self._activations, strict=True):
            notifications = EventNotifications(database, self._clock)
            validation = Validation(database, self._clock)
            wake_ups = WakeUps(database, self._clock)
            wake_ups.add(activation.wake)
            wake_ups.add(notifications.arrived)
            wake_ups.add(self._transport.arrived(database), TRANSMISSION_QUEUE.__eq__)
            wake_ups.add(validation.arrived, INCOMPLETE_MESSAGES.__eq__)
            for event, arrivals in (
                ("readers", activation.wake),
                ("events", notifications.arrived),
                ("schemas", validation.arrived),
            ):
                wake_ups.add_reason(event, arrivals)
            reasons = {name: Arrivals() for name in ("timers", "poison", "greeting", "moved", "trace")}
            for name, reason in reasons.items():
                wake_ups.add_reason(name, reason)
            reasons["system_contracts"] = Arrivals()
            wake_ups.add(reasons["system_contracts"], SYSTEM_CONTRACTS.__eq__)
            if database is self._databases[0]:
                wake_ups.add_reason("endpoint", self._transport.endpoint_changed)
            periodic_tasks = periodic.PERIODIC_TASKS + self._transport.periodic_tasks(database)
            repeating = partial(periodic.run, database, self._clock, periodic_tasks, reasons)
            tasks.append(self._start(f"periodic {database.name}", repeating))
            tasks.append(self._start(f"event notifications {database.name}", notifications.run))
            tasks.append(self._start(f"wake-ups {database.name}", wake_ups.run))
            tasks.append(self._start(f"validation {database.name}", validation.run))
        transport = self._start("transport", partial(self._transport.run, stop_transport))
        try:
            logger.info(
                "worker_ready",
                databases=[database.name for database in self._databases],
                brokers=[str(database.greeting.service_broker_guid) for database in self._databases],
                listening=listening,
            )
            await stop.wait()
            logger.info("worker_stopping")
            await cancellation.end(tasks)
            await asyncio.gather(*(activation.finish(grace) for activation in self._activations))
            stop_transport.set()
            await asyncio.wait((transport,), timeout=_TRANSPORT_GRACE)
        finally:
            await cancellation.end([*tasks, transport])
            await asyncio.gather(*(activation.cancel() for activation in self._activations))

    def _start(self, name: str, part: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        return asyncio.create_task(_keep_running(name, part, self._clock), name=name)


async def _keep_running(name: str, part: Callable[[], Awaitable[None]], clock: Clock) -> None:
    backoff = Backoff(0.5, 5.0)
    while True:
        started = clock.monotonic()
        try:
            await part()
        except Exception as error:  # whatever it is, the other parts go on
            if clock.monotonic() - started > _STEADY:
                backoff.reset()
            seconds = backoff.failed()
            if isinstance(error, (psycopg.OperationalError, ServingError)):
                reason = one_line(error)
                logger.warning("part_interrupted", part=name, error=reason, restart_in=seconds)
            else:
                logger.exception("part_failed", part=name, restart_in=seconds)
        else:
            return
        await clock.sleep(seconds)


def _refuse_same_broker(databases: Sequence[Database]) -> None:
    served: dict[object, Database] = {}
    for database in databases:
        guid = database.greeting.service_broker_guid
        other = served.setdefault(guid, database)
        if other is not database:
            raise ServingError(
                f"{other.address} and {database.address} are the same broker instance, {guid}. Give each "
                "database once; if one is a copy, run there: select broker.alter_broker('NEW_BROKER')"
            )
        if not database.greeting.is_broker_enabled:
            logger.warning("broker_disabled", database=database.name, reason=database.greeting.broker_problem)


async def _listening_address(databases: Sequence[Database]) -> str | None:
    """Return where the home database's endpoint is to listen, or None; refuse an endpoint anywhere else.

    Transport opens the listener a moment later, logs that it did, and follows changes.
    """
    listening = None
    for database in databases:
        async with database.connection() as connection:
            cursor = await connection.execute(
                "select name, state, listener_ip, listener_port from broker_private.worker_endpoint()"
            )
            endpoint = await cursor.fetchone()
        if endpoint is None:
            continue
        name, state, listener_ip, listener_port = endpoint
        if database is not databases[0]:
            raise ServingError(
                f'the endpoint "{name}" is in {database.address}, which is not the home database. '
                "Drop it there, or give this database's URL first"
            )
        if state == "STARTED":
            host = "*" if listener_ip == "ALL" else f"[{listener_ip}]" if ":" in listener_ip else listener_ip
            listening = f"tcp://{host}:{listener_port}"
    return listening
