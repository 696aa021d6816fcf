"""Validates what waits for it in one database."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import structlog
from psycopg.rows import args_row

from pybroker.backoff import Backoff
from pybroker.workers.arrivals import Arrivals
from pybroker.workers.validation.examination import Examination, ExaminerLostError, Limits
from pybroker.xml import NOT_WELL_FORMED, Fault

if TYPE_CHECKING:
    from collections.abc import Iterator

    from psycopg import AsyncConnection
    from structlog.typing import FilteringBoundLogger

    from pybroker.workers.clock import Clock
    from pybroker.workers.database import Database

BUSY_SECONDS = 0.02
IDLE_SECONDS = 0.1
_GROWTH = 1.25
_SCHEMAS_SECONDS = 1.0
_MESSAGES = 100
_BYTES = 16 * 1024 * 1024
# What lost the process so often is refused: once may be bad luck.
_LOSSES = 3
_LOST = "To read it ended the process that does."

logger: FilteringBoundLogger = structlog.get_logger()


class _Waiting(NamedTuple):
    message: int
    schema_collection_id: int | None
    body: bytes | None
    size: int


class Validation:
    """Looks for messages that wait for validation, again and again.

    Attributes:
        arrived: set by somebody else when there may be one.
    """

    def __init__(self, database: Database, clock: Clock, limits: Limits | None = None) -> None:
        self._database = database
        self._clock = clock
        self._examination = Examination(limits)
        self._losses: Counter[tuple[str, int]] = Counter()
        self._schemas_due = 0.0
        self.arrived = Arrivals()

    async def run(self) -> None:
        """Validate until cancelled; a message whose validation is cut off is validated again.

        Raises:
            psycopg.OperationalError: the server is away.
        """
        pause = BUSY_SECONDS
        backoff = Backoff(0.5, 10.0)
        try:
            while True:
                self.arrived.clear()
                try:
                    is_busy = await self.look()
                    backoff.reset()
                    longest = self.arrived.pause(IDLE_SECONDS)
                    pause = BUSY_SECONDS if is_busy else min(pause * _GROWTH, longest)
                    if pause > IDLE_SECONDS:
                        pause = longest
                    await self._clock.wait(self.arrived, pause)
                except ExaminerLostError as error:
                    pause = backoff.failed()
                    logger.warning(
                        "validation_interrupted",
                        database=self._database.name,
                        error=str(error),
                        next_attempt_in=pause,
                    )
                    await self._clock.sleep(pause)
        finally:
            await self.close()

    async def close(self) -> None:
        """End the process that examines bodies; the next look starts another."""
        await self._examination.close()

    async def look(self) -> bool:
        """Validate what waits now, a batch at most; return whether that made anything ready or refused it.

        Raises:
            ExaminerLostError: the rest waits for another look.
            psycopg.OperationalError: the server is away.
        """
        if self._clock.monotonic() >= self._schemas_due:
            await self._read_new_schemas()
            self._schemas_due = self._clock.monotonic() + _SCHEMAS_SECONDS
        limits = self._examination.limits
        async with self._database.connection() as connection:
            async with connection.cursor(binary=True, row_factory=args_row(_Waiting)) as cursor:
                await cursor.execute(
                    "select message, schema_collection_id, body, size"
                    " from broker_private.messages_to_validate(%b::integer, %b::bigint, %b::bigint)",
                    (_MESSAGES, _BYTES, limits.largest_body),
                )
                waiting = await cursor.fetchall()
            if not waiting:
                released = await _value(connection, "select broker_private.release_waiting()")
                return bool(released)
        found: list[tuple[int, Fault | None]] = []
        try:
            for message in waiting:
                if await self._can_be_examined(message):
                    fault = await self._examine(message)
                    found.append((message.message, fault))
        finally:
            # What was found before the process was lost counts.
            await self._conclude(found)
        return True

    async def _can_be_examined(self, message: _Waiting) -> bool:
        collection = message.schema_collection_id
        return collection is None or self._examination.knows(collection) or await self._read(collection)

    async def _examine(self, message: _Waiting) -> Fault | None:
        key = ("message", message.message)
        if self._losses[key] >= _LOSSES:
            return Fault(NOT_WELL_FORMED, _LOST)
        with self._counting_losses(key):
            return await self._examination.fault_of(message.body, message.size, message.schema_collection_id)

    @contextmanager
    def _counting_losses(self, key: tuple[str, int]) -> Iterator[None]:
        try:
            yield
        except ExaminerLostError:
            self._losses[key] += 1
            raise

    async def _conclude(self, found: list[tuple[int, Fault | None]]) -> None:
        if not found:
            return
        async with self._database.statement() as connection:
            await _value(
                connection,
                "select broker_private.conclude_validation(%s::bigint[], %s::integer[], %s::text[])",
                [message for message, _ in found],
                [fault.number if fault else None for _, fault in found],
                [fault.reason if fault else None for _, fault in found],
            )
        for message, fault in found:
            del self._losses["message", message]
            if fault:
                logger.warning(
                    "message_refused", database=self._database.name, number=fault.number, reason=fault.reason
                )

    async def _read_new_schemas(self) -> None:
        async with self._database.statement() as connection:
            cursor = await connection.execute("select broker_private.schema_collections_to_read()")
            collections = [row[0] for row in await cursor.fetchall()]
        for collection in collections:
            await self._read(collection)

    async def _read(self, collection: int) -> bool:
        """Read a schema collection, and say in the database whether it can be used."""
        async with self._database.connection() as connection:
            documents = await _value(
                connection, "select broker_private.schema_documents(%s::integer)", collection
            )
        if documents is None:
            return False
        key = ("collection", collection)
        if self._losses[key] >= _LOSSES:
            problem: str | None = _LOST
        else:
            with self._counting_losses(key):
                problem = await self._examination.read_schemas(collection, documents)
        async with self._database.statement() as connection:
            await _value(
                connection,
                "select broker_private.set_schema_problem(%s::integer, %s::text)",
                collection,
                problem and f"The schema collection can't be used: {problem}",
            )
        if problem:
            logger.warning(
                "schema_collection_broken",
                database=self._database.name,
                collection=collection,
                reason=problem,
            )
        return problem is None


async def _value(connection: AsyncConnection[Any], query: str, *arguments: object) -> Any:
    cursor = await connection.execute(query.encode(), arguments)
    row = await cursor.fetchone()
    return row and row[0]
