"""One queue reader: a session of its own that runs a queue's procedure once."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from pybroker import tracing
from pybroker.printable import LONGEST
from pybroker.workers.activation import receiving
from pybroker.workers.activation.output import OUTPUT, Output, said_by

if TYPE_CHECKING:
    from psycopg import AsyncConnection

    from pybroker.workers.clock import Clock
    from pybroker.workers.database import Database

READER_NAME = "pybroker reader"

_ENDS = {
    28085: "The activated task was ended because the queue was dropped.",
    28086: "The activated task was ended because the queue or its activation was disabled.",
    28087: "The activated task was ended because the procedure did not RECEIVE. It is started no more until"
    " somebody receives from the queue, its activation is turned off and on, or its watchdog frees it.",
    28088: "The activated task was ended by an error: {}",
}

# A function's text from a line on; by full names, as the procedure may have left a search_path behind.
_TEXT = """
select pg_catalog.left(pg_catalog.array_to_string(l.lines[%s:], pg_catalog.chr(10)), %s)
from pg_catalog.pg_proc p
cross join lateral (select pg_catalog.string_to_array(p.prosrc, pg_catalog.chr(10)) as lines) l
where p.oid operator(pg_catalog.=) pg_catalog.to_regprocedure(%s)::pg_catalog.oid
"""


@dataclass(frozen=True)
class Task:
    """A row of `broker_private.activate_queues()`: a reader that is to be started."""

    task_id: int
    queue_id: int
    queue_name: str
    activation_procedure: str
    execute_as: str


class Reader:
    """One run of a queue's procedure, under the queue's EXECUTE AS role."""

    def __init__(self, database: Database, task: Task, clock: Clock, login: str | None = None) -> None:
        """Prepare, without connecting.

        Args:
            database: the queue's.
            task: what is to be run.
            clock: the worker's clock.
            login: the queue's role, if the session is to log in as it. Then nothing of the worker is in the
                session, and the procedure can't reach it; else the session is the worker's, by SET ROLE.
        """
        self.task = task
        self._login = login
        self._database = database
        self._output = Output(database, clock, task.queue_id, task.queue_name, task.activation_procedure)
        self._session: AsyncConnection[Any] | None = None
        self._has_begun = False

    async def run(self) -> None:
        """Run the procedure to its end, and tell the monitor and the log how it ended."""
        try:
            await self._run()
        except psycopg.Error as error:
            # The session is lost, or never was there.
            self._output.take_error(OUTPUT, error)
            await self._report_loss(error)
        finally:
            await self._output.close()

    def leave(self) -> None:
        """Let go of the session without ending what it does: the server runs the procedure to its end."""
        if self._session is not None:
            self._session.pgconn.finish()

    async def interrupt(self) -> None:
        """Have the server cancel what the session does, if it does anything."""
        if self._session is not None:
            with suppress(psycopg.Error):
                await self._session.cancel_safe(timeout=5.0)

    async def _run(self) -> None:
        session = await self._open_session()
        if session is None:
            return
        async with session:
            self._output.spid = session.info.backend_pid
            session.add_notice_handler(self._output.take_notice)
            if not await self._begin(session):
                return
            self._session = session
            began = time.time_ns()
            error = await self._call(session)
            if error is None:
                outcome, has_worked = "RETURNED", await _has_deleted(session)
            else:
                if session.broken:
                    raise error
                is_receiving = not self._has_begun or await _is_receiving(session, error)
                outcome, has_worked = "FAILED_RECEIVING" if is_receiving else "FAILED", False
            if tracing.is_on():
                await self._trace(session, began, error)
            # What else the procedure has set is no business of ours, nor is its role.
            await session.execute("reset session authorization")
            await session.execute("reset all")
            if error is not None:
                await self._report_error(session, error)
            self._report_end(await self._end(session, outcome, has_worked=has_worked), error)

    async def _open_session(self) -> AsyncConnection[Any] | None:
        """Open the reader's session; None if the queue's role can't log in, which is told."""
        name = f"{READER_NAME}: {self.task.queue_name}"
        try:
            return await self._database.open_session(name, self._login)
        except psycopg.OperationalError as error:
            if self._login is None:
                raise
            # Never as the worker instead. If the server is away, this fails too.
            number = await self._of_worker(
                "select broker_private.end_task_for(%s, %s, 'FAILED_RECEIVING', false, null)",
                self.task.task_id, self.task.queue_id,
            )  # fmt: skip
            self._output.take_error(OUTPUT, error)
            self._report_end(number, error)
            return None

    async def _begin(self, session: AsyncConnection[Any]) -> bool:
        if self._login is None:
            return bool(await _first(session, "select broker_private.begin_task(%s)", self.task.task_id))
        # Asked for: behind a connection pooler the driver knows another number.
        self._output.spid = await _first(session, "select pg_catalog.pg_backend_pid()")
        return bool(
            await self._of_worker(
                "select broker_private.begin_task_for(%s, %s, %s)",
                self.task.task_id, self._output.spid, self._login,
            )
        )  # fmt: skip

    async def _end(self, session: AsyncConnection[Any], outcome: str, *, has_worked: bool) -> int | None:
        ended = self.task.task_id, self.task.queue_id, outcome, has_worked
        number: int | None
        if self._login is None:
            number = await _first(session, "select broker_private.end_task(%s, %s, %s, %s)", *ended)
        else:
            mark = await _first(session, "select broker_private.received_mark(%s)", self.task.queue_id)
            number = await self._of_worker(
                "select broker_private.end_task_for(%s, %s, %s, %s, %s)", *ended, mark
            )
        return number

    async def _report_error(self, session: AsyncConnection[Any], error: psycopg.Error) -> None:
        query = "select broker_private.activation_fault(%s)"
        if self._login is None:
            fault = await _first(session, query, self.task.queue_id)
        else:
            fault = await self._of_worker(query, self.task.queue_id)
        self._output.take_error(fault or OUTPUT, error)

    async def _of_worker(self, query: str, *values: object) -> Any:
        """Ask with the worker's rights, which a session that logged in as another role lacks."""
        async with self._database.connection() as connection:
            return await _first(connection, query, *values)

    async def _call(self, session: AsyncConnection[Any]) -> psycopg.Error | None:
        try:
            # NONE is who logged in, whatever the role's defaults say.
            role = sql.SQL("none") if self._login else sql.Identifier(self.task.execute_as)
            await session.execute(sql.SQL("set role {}").format(role))
            self._has_begun = True
            # Alone, in no transaction and without parameters: PostgreSQL lets a procedure COMMIT and
            # ROLL BACK only when it is called just like this.
            call = f"call {self.task.activation_procedure}()"
            await session.execute(call.encode(session.info.encoding))
        except psycopg.Error as error:
            return error
        return None

    async def _trace(self, session: AsyncConnection[Any], began: int, error: psycopg.Error | None) -> None:
        """Make the span of the call, in the trace that the procedure has set last, if any."""
        query = "select pg_catalog.left(pg_catalog.current_setting('pybroker.traceparent', true), 100)"
        if not (traceparent := await _first(session, query)):
            return
        from pybroker import spans  # noqa: PLC0415 - what it needs is in an extra

        attributes = {
            "messaging.operation.type": "process",
            "code.function.name": self.task.activation_procedure,
        }
        span = spans.begin(
            "process", self.task.queue_name, [traceparent], attributes=attributes, start_time=began
        )
        if error is not None:
            said = {"exception.type": type(error).__name__, "exception.message": said_by(error)}
            span.add_event("exception", said)
            span.set_attribute("error.type", error.sqlstate or type(error).__name__)
        span.end()

    def _report_end(self, number: int | None, error: psycopg.Error | None) -> None:
        if number is None:
            return
        text, sqlstate, event = _ENDS[number], None, "activated_task_ended"
        if error is not None:
            text, sqlstate = text.format(said_by(error)), error.sqlstate
            if self._login is not None and self._session is None:
                text, event = f"{text}. {self._lack_of_login()}", "execute_as_refused"
            elif not self._has_begun and isinstance(error, psycopg.errors.InsufficientPrivilege):
                text, event = f"{text}. {self._membership()}", "execute_as_refused"
        severity = "INFO" if number in (28085, 28086) else "ERROR"
        self._output.take_end(number, severity, text, sqlstate, event)

    def _membership(self) -> str:
        if self._session is None:
            return ""
        role, user = self.task.execute_as, self._session.info.user
        grant = sql.SQL("GRANT {} TO {}").format(sql.Identifier(role), sql.Identifier(user))
        return (
            f'The worker\'s role "{user}" is no member of "{role}", the role that the queue\'s procedure is'
            f" executed as. Run: {grant.as_string(self._session)}"
        )

    def _lack_of_login(self) -> str:
        return (
            f'The worker was started with --login "{self._login}", and can\'t log in as that role.'
            " Give the role LOGIN, and the worker its password in libpq's password file; or start the worker"
            " without that option"
        )

    async def _report_loss(self, error: psycopg.Error) -> None:
        try:
            number = await self._of_worker(
                "select broker_private.end_task(%s, %s, 'LOST', false)", self.task.task_id, self.task.queue_id
            )
        except psycopg.Error:
            # The session's end frees the slot, too.
            return
        self._report_end(number, error)


async def _first(session: AsyncConnection[Any], query: str, *values: object) -> Any:
    cursor = await session.execute(query.encode(), values)
    row = await cursor.fetchone()
    return row[0] if row else None


async def _is_receiving(session: AsyncConnection[Any], error: psycopg.Error) -> bool:
    """Tell whether the error arose in the statement that receives, so that the RECEIVE never completed."""
    found = receiving.told_by(error.diag.context or "")
    if isinstance(found, bool):
        return found
    try:
        text = await _first(session, _TEXT, found.line, LONGEST, found.function)
    except psycopg.Error:
        # The function is in a schema that this role may not use.
        return False
    # As bytes, where the procedure has left a session without an encoding behind.
    return receiving.is_loop_of(text.decode(errors="replace") if isinstance(text, bytes) else text or "")


async def _has_deleted(session: AsyncConnection[Any]) -> bool:
    """Tell whether the session took messages, as far as PostgreSQL still knows; False where it does not.

    RECEIVE deletes what it returns. A session's statistics are written to the shared ones at most once a
    second, and until then they show what all of its transactions did. So the answer is sure for a session
    that lived for less than a second, and only there it matters: has the procedure returned at once because
    it did its work, or because it had none?
    """
    try:
        # Still as the queue's role, and by full names: the procedure may have left a search_path behind.
        deleted = await _first(
            session,
            "select pg_catalog.sum(pg_catalog.pg_stat_get_xact_tuples_deleted(oid)) from pg_catalog.pg_class"
            " where relnamespace = pg_catalog.to_regnamespace('broker_private')::oid and relkind = 'r'",
        )
    except psycopg.Error:
        return False
    return bool(deleted)
