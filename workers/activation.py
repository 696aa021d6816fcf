"""Internal activation: starts the procedures of queues that have messages.

`Activation` looks at the queues of one database and decides when a queue reader is due; `_Reader` is one
session that runs a queue's procedure once. Service Broker's rules, with its timings:

- In a disabled broker nobody is started.
- A queue with messages and no reader gets its first reader at once.
- While messages remain, another reader is started every 5 seconds, up to the queue's max_readers. The 5
  seconds begin anew when a reader ends: it found nothing that it could receive, and another would not either.
- Nobody stops a reader; a procedure ends when its RECEIVE comes back empty. If messages remain, it is started
  again, so a procedure that receives one message and returns works too.
- A reader that fails delays the next start on its queue, more with each failure, so that a broken procedure
  costs little and the other queues nothing.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import psycopg
import structlog
from psycopg import sql
from psycopg.rows import class_row

from pybroker.workers.clock import Backoff, Clock

if TYPE_CHECKING:
    from psycopg import AsyncConnection
    from psycopg.errors import Diagnostic
    from structlog.typing import FilteringBoundLogger

    from pybroker.workers.database import Database

RAMP = 5.0
POLL_BUSY = 0.05
POLL_QUIET = 0.25
QUICK = 0.1
READER_NAME = "pybroker reader"

# Service Broker's number for whatever an activated procedure puts out, errors included.
_OUTPUT = 9724

logger: FilteringBoundLogger = structlog.get_logger()


@dataclass(frozen=True)
class ReadyQueue:
    """A row of `broker_private.worker_activations()`: a queue with messages that wants readers."""

    queue_id: int
    queue_name: str
    activation_procedure: str
    max_readers: int
    execute_as: str


@dataclass
class _Monitor:
    """What is remembered of one queue between two looks. Moments are the clock's `monotonic()`."""

    readers: set[asyncio.Task[None]] = field(default_factory=set)
    # Another reader beside running ones is due from here on.
    ramp_from: float = 0.0
    # No reader at all before this: the last one failed, or came back without having received.
    not_before: float = 0.0
    last_end: float = float("-inf")
    failures: Backoff = field(default_factory=lambda: Backoff(1.0, 60.0))
    # Messages that nobody can receive now are most likely of a locked group; Service Broker looks again
    # after 5 seconds, so longer pauses would be worse than its own.
    idle_returns: Backoff = field(default_factory=lambda: Backoff(1.0, RAMP))
    is_idle: bool = False

    def is_due(self, max_readers: int, now: float) -> bool:
        if now < self.not_before or len(self.readers) >= max_readers:
            return False
        return not self.readers or now >= self.ramp_from


class Activation:
    """The queue monitors of one database."""

    def __init__(self, database: Database, clock: Clock | None = None) -> None:
        self._database = database
        self._clock = clock or Clock()
        self._monitors: dict[int, _Monitor] = {}
        self._reader_ended = asyncio.Event()

    async def run(self) -> None:
        """Start readers until cancelled. Readers go on then; running again goes on with them.

        Raises:
            psycopg.OperationalError: the server is away.
        """
        pause = POLL_BUSY
        while True:
            self._reader_ended.clear()
            is_quiet = not await self._start_due_readers()
            pause = min(pause * 2, POLL_QUIET) if is_quiet else POLL_BUSY
            # The end of a reader is looked at without delay: the next one may be due.
            if await self._clock.wait(self._reader_ended, pause):
                pause = POLL_BUSY

    async def finish(self, grace: float) -> None:
        """Wait until the running procedures have ended; cancel those that need too long.

        To be called when `run` was cancelled, which ends the starting of readers.

        Args:
            grace: seconds; 0 cancels at once.
        """
        readers = {reader for monitor in self._monitors.values() for reader in monitor.readers}
        if not readers:
            return
        pending = readers
        if grace > 0:
            logger.info(
                "waiting_for_readers", database=self._database.name, readers=len(readers), grace=grace
            )
            _, pending = await asyncio.wait(readers, timeout=grace)
        for reader in pending:
            reader.cancel()
        if pending:
            logger.warning("readers_cancelled", database=self._database.name, readers=len(pending))
            await asyncio.wait(pending)

    async def _start_due_readers(self) -> bool:
        if not self._database.greeting.is_broker_enabled:
            return False
        looked_at = self._clock.monotonic()
        async with (
            self._database.connection() as connection,
            connection.cursor(row_factory=class_row(ReadyQueue)) as cursor,
        ):
            await cursor.execute(
                "select queue_id, queue_name, activation_procedure, max_readers, execute_as"
                " from broker_private.worker_activations()"
            )
            ready = {queue.queue_id: queue async for queue in cursor}
        self._note_drained(ready.keys())
        now = self._clock.monotonic()
        started = False
        for queue in ready.values():
            monitor = self._monitors.setdefault(queue.queue_id, _Monitor())
            # What we saw may be what a reader took since; its end causes the next look.
            if monitor.last_end > looked_at or not monitor.is_due(queue.max_readers, now):
                continue
            self._start_reader(queue, monitor, now)
            started = True
        return started

    def _note_drained(self, ready: Any) -> None:
        for queue_id in self._monitors.keys() - ready:
            monitor = self._monitors[queue_id]
            if monitor.is_idle:
                # Not being able to receive the old messages says nothing of the new ones.
                monitor.is_idle = False
                monitor.idle_returns.reset()
                monitor.not_before = 0.0
            if not monitor.readers and monitor.not_before <= self._clock.monotonic():
                del self._monitors[queue_id]

    def _start_reader(self, queue: ReadyQueue, monitor: _Monitor, now: float) -> None:
        monitor.ramp_from = now + RAMP
        reader = asyncio.create_task(
            self._read(queue, monitor), name=f"reader of {queue.queue_name} in {self._database.name}"
        )
        monitor.readers.add(reader)
        reader.add_done_callback(monitor.readers.discard)
        reader.add_done_callback(lambda _: self._reader_ended.set())

    async def _read(self, queue: ReadyQueue, monitor: _Monitor) -> None:
        started = self._clock.monotonic()
        reader = _Reader(self._database, queue)
        try:
            has_succeeded = await reader.run()
        except Exception:
            logger.exception("reader_failed", queue=queue.queue_name, database=self._database.name)
            has_succeeded = False
        now = self._clock.monotonic()
        monitor.last_end = now
        monitor.is_idle = False
        if not has_succeeded:
            pause = monitor.failures.failed()
            monitor.not_before = now + pause
            logger.info(
                "activation_delayed", queue=queue.queue_name, database=self._database.name, seconds=pause
            )
            return
        monitor.failures.reset()
        if reader.has_received:
            # One that receives a message and returns may be replaced at once, so it is no step of the ramp.
            monitor.idle_returns.reset()
            monitor.ramp_from = now
        elif now - started < QUICK:
            # It neither worked nor waited: started again and again it would only burn processor time.
            monitor.is_idle = True
            monitor.not_before = now + monitor.idle_returns.failed()
        else:
            monitor.idle_returns.reset()
            monitor.ramp_from = now + RAMP


class _Reader:
    """One run of a queue's procedure, in a session of its own, under the queue's EXECUTE AS role."""

    def __init__(self, database: Database, queue: ReadyQueue) -> None:
        self._database = database
        self._queue = queue
        self._log: FilteringBoundLogger = logger.bind(
            database=database.name, queue=queue.queue_name, procedure=queue.activation_procedure
        )
        self.has_received = False

    async def run(self) -> bool:
        """Run the procedure to its end; log its error, and return whether there was none."""
        try:
            session = await self._database.open_session(f"{READER_NAME}: {self._queue.queue_name}")
        except psycopg.OperationalError as error:
            self._log.error("reader_not_connected", error=str(error).strip())
            return False
        async with session:
            session.add_notice_handler(self._report_notice)
            if not await self._assume_role(session):
                return False
            try:
                # Alone, in no transaction and without parameters: PostgreSQL lets a procedure COMMIT and
                # ROLL BACK only when it is called just like this.
                call = f"call {self._queue.activation_procedure}()"
                await session.execute(call.encode(session.info.encoding))
            except psycopg.Error as error:
                self._report_error(error)
                return False
            self.has_received = await _has_deleted(session)
            return True

    async def _assume_role(self, session: AsyncConnection[Any]) -> bool:
        role = self._queue.execute_as
        try:
            await session.execute(sql.SQL("set role {}").format(sql.Identifier(role)))
        except psycopg.errors.InsufficientPrivilege:
            member = sql.SQL("GRANT {} TO {}").format(sql.Identifier(role), sql.Identifier(session.info.user))
            self._log.error(
                "execute_as_refused",
                error=f'The worker\'s role "{session.info.user}" is no member of "{role}", the role that the'
                f" queue's procedure is executed as. Run: {member.as_string(session)}",
            )
        except psycopg.Error as error:
            self._log.error("execute_as_failed", execute_as=role, error=_text(error), sqlstate=error.sqlstate)
        else:
            return True
        return False

    def _report_error(self, error: psycopg.Error) -> None:
        self._log.error(
            "activated_procedure_failed",
            number=_OUTPUT,
            output=_text(error),
            sqlstate=error.sqlstate,
            detail=error.diag.message_detail,
            hint=error.diag.message_hint,
            context=error.diag.context,
        )

    def _report_notice(self, notice: Diagnostic) -> None:
        self._log.info(
            "activated_procedure_output",
            number=_OUTPUT,
            severity=notice.severity_nonlocalized,
            output=notice.message_primary,
        )


async def _has_deleted(session: AsyncConnection[Any]) -> bool:
    """Tell whether the session took messages, as far as PostgreSQL still knows; False where it does not.

    RECEIVE deletes what it returns. A session's statistics are written to the shared ones at most once a
    second, and until then they show what all of its transactions did. So the answer is sure for a session
    that lived for less than a second, and only there it matters: has the procedure returned at once because
    it did its work, or because it had none?
    """
    try:
        # Still as the queue's role, and by full names: the procedure may have left a search_path behind.
        cursor = await session.execute(
            "select pg_catalog.sum(pg_catalog.pg_stat_get_xact_tuples_deleted(oid)) from pg_catalog.pg_class"
            " where relnamespace = pg_catalog.to_regnamespace('broker_private') and relkind = 'r'"
        )
        row = await cursor.fetchone()
    except psycopg.Error:
        return False
    return bool(row and row[0])


def _text(error: psycopg.Error) -> str:
    return error.diag.message_primary or " ".join(str(error).split()) or type(error).__name__
