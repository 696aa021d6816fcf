"""What an activated procedure puts out: into the worker's log, and into a table that can be queried."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, NamedTuple

import psycopg
import structlog

from pybroker.printable import LONGEST, one_line

if TYPE_CHECKING:
    from psycopg.errors import Diagnostic
    from structlog.typing import FilteringBoundLogger

    from pybroker.workers.clock import Clock
    from pybroker.workers.database import Database

# Service Broker's number for whatever an activated procedure puts out, errors included.
OUTPUT = 9724

# At most so many lines in so many seconds: a procedure that floods drowns neither the log nor the table.
_LINES = 100
_SECONDS = 0.5

logger: FilteringBoundLogger = structlog.get_logger()


class Line(NamedTuple):
    """A row of `broker.activation_log`, but for queue, procedure, session and time."""

    number: int
    severity: str
    text: str
    sqlstate: str | None = None
    detail: str | None = None


class Output:
    """The output of one run of a procedure."""

    def __init__(
        self, database: Database, clock: Clock, queue_id: int, queue_name: str, procedure: str
    ) -> None:
        self._database = database
        self._clock = clock
        self._queue_id = queue_id
        self._queue_name = queue_name
        self._procedure = procedure
        self._log: FilteringBoundLogger = logger.bind(
            database=database.name, queue=queue_name, procedure=procedure
        )
        self._lines: list[Line] = []
        self._dropped = 0
        self._writing: asyncio.Task[None] | None = None
        self.spid: int | None = None

    def take_notice(self, notice: Diagnostic) -> None:
        """Take what a RAISE below ERROR says; psycopg calls it."""
        if len(self._lines) >= _LINES:
            self._dropped += 1
            return
        text = _cut(notice.message_primary) or ""
        severity = notice.severity_nonlocalized or "NOTICE"
        self._log.info("activated_procedure_output", number=OUTPUT, severity=severity, output=text)
        self._lines.append(Line(OUTPUT, severity, text, notice.sqlstate, _cut(notice.message_detail)))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write_soon(), name=f"output of {self._queue_name}")

    def take_error(self, number: int, error: psycopg.Error) -> None:
        """Take the error that ended the procedure, or kept it from starting."""
        diagnosis = error.diag
        text = said_by(error)
        parts = [_cut(part) for part in (diagnosis.message_detail, diagnosis.message_hint, diagnosis.context)]
        detail, hint, context = parts
        self._log.error(
            "activated_procedure_failed",
            number=number,
            output=text,
            sqlstate=error.sqlstate,
            detail=detail,
            hint=hint,
            context=context,
        )
        kept = _cut("\n".join(part for part in parts if part))
        self._lines.append(Line(number, "ERROR", text, error.sqlstate, kept or None))

    def take_end(
        self,
        number: int,
        severity: str,
        text: str,
        sqlstate: str | None = None,
        event: str = "activated_task_ended",
    ) -> None:
        """Take how the task ended, where that was no good end."""
        level = logging.ERROR if severity == "ERROR" else logging.INFO
        self._log.log(level, event, number=number, error=text, sqlstate=sqlstate)
        self._lines.append(Line(number, severity, text, sqlstate))

    async def close(self) -> None:
        """Write what is left."""
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.wait((self._writing,))
        await self._write()

    async def _write_soon(self) -> None:
        while self._lines:
            await self._clock.sleep(_SECONDS)
            await self._write()
        self._writing = None

    async def _write(self) -> None:
        lines, dropped = self._lines, self._dropped
        if dropped:
            lines = [*lines, Line(OUTPUT, "WARNING", f"{dropped} more lines were put out and not kept.")]
        if not lines:
            return
        try:
            async with self._database.connection() as connection:
                await connection.execute(
                    "select broker_private.log_activation(%s, %s, %s, %s, %s::integer[],"
                    " %s::text[], %s::text[], %s::text[], %s::text[])",
                    (
                        self._queue_id,
                        self._queue_name,
                        self._procedure,
                        self.spid,
                        *map(list, zip(*lines, strict=True)),
                    ),
                )
        except psycopg.Error as error:
            self._log.warning("activation_log_not_written", error=one_line(error))
        del self._lines[: len(lines) - bool(dropped)]
        self._dropped -= dropped


def said_by(error: psycopg.Error) -> str:
    """Return what an error says, as much of it as is kept."""
    return _cut(error.diag.message_primary) or one_line(error) or type(error).__name__


def _cut(text: str | None) -> str | None:
    """Cut what a procedure put out to what broker.activation_log keeps."""
    return text and text[:LONGEST]
