"""What is done at fixed periods in each served database. A new task is one line of `PERIODIC_TASKS`.

What transport does at fixed periods is in `transport.upkeep`.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import psycopg
import structlog

from pybroker.printable import one_line
from pybroker.workers.database import ServingError
from pybroker.workers.periodic_task_log import Records

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from structlog.typing import FilteringBoundLogger

    from pybroker.workers.arrivals import Arrivals
    from pybroker.workers.clock import Clock
    from pybroker.workers.database import Database

# How many endpoints a call of broker_private.sweep closes or removes.
_MOST_SWEPT = 10_000

logger: FilteringBoundLogger = structlog.get_logger()


async def sweep(database: Database) -> None:
    """Remove what finished conversations left behind."""
    swept = _MOST_SWEPT
    while swept >= _MOST_SWEPT:
        # Each in a transaction of its own: more may have ended in a minute than are swept at once.
        async with database.statement() as connection:
            cursor = await connection.execute("select broker_private.sweep()")
            swept = (await cursor.fetchone() or (0,))[0]


async def fire_timers(database: Database) -> None:
    """Put DialogTimer messages into queues, and Errors on conversations whose lifetime is over."""
    async with database.statement() as connection:
        await connection.execute("select broker_private.fire_timers()")


async def settle_moved(database: Database) -> None:
    """Bring home what was being sent while its conversation or its service moved."""
    async with database.statement() as connection:
        await connection.execute("select broker_private.settle_moved()")


async def renew_greeting(database: Database) -> None:
    """Learn of a broker that was turned on, turned off or given a new identity."""
    await database.renew_greeting()


async def settle_poison(database: Database) -> None:
    """Turn off the queues and quarantine the conversations whose rollbacks demand it, and say so."""
    async with database.statement() as connection:
        cursor = await connection.execute(
            "select queue_name, conversation_handle from broker_private.settle_poison()"
        )
        settled = await cursor.fetchall()
    for queue, conversation in settled:
        if conversation is None:
            logger.error("queue_disabled", queue=queue, database=database.name)
        else:
            logger.error(
                "conversation_quarantined",
                queue=queue,
                conversation_handle=str(conversation),
                database=database.name,
            )


async def settle_trace(database: Database) -> None:
    """End the traces whose time is over, and forget what was traced a week ago."""
    async with database.statement() as connection:
        await connection.execute("select broker_private.settle_trace()")


async def answer_system_contracts(database: Database) -> None:
    """Answer what came on the contracts ServiceEcho and ServiceDiagnostic."""
    async with database.statement() as connection:
        await connection.execute("select broker_private.answer_system_contracts()")


class PeriodicTask(NamedTuple):
    """A name for the log, seconds from one run's end to the next one's start, and what runs.

    `due_early` makes the next run due at once when somebody sets it; the task clears it.
    """

    name: str
    period: float
    run: Callable[[Database], Awaitable[None]]
    due_early: asyncio.Event | None = None


PERIODIC_TASKS = (
    PeriodicTask("greeting", 2.0, renew_greeting),
    PeriodicTask("timers", 0.5, fire_timers),
    PeriodicTask("poison", 1.0, settle_poison),
    PeriodicTask("system_contracts", 2.0, answer_system_contracts),
    PeriodicTask("moved", 5.0, settle_moved),
    PeriodicTask("trace", 10.0, settle_trace),
    PeriodicTask("sweep", 60.0, sweep),
)

# For so long a task's first run keeps the next task from its own. All at once they would open a session each.
_FIRST_RUN_SECONDS = 0.1


async def run(
    database: Database,
    clock: Clock,
    tasks: tuple[PeriodicTask, ...] = PERIODIC_TASKS,
    reasons: Mapping[str, Arrivals] | None = None,
) -> None:
    """Run the tasks, each at its own period, until cancelled; a failed run is logged, and the next one comes.

    A run that is cancelled rolls back: every task may be cut off at any moment and repeated.

    Args:
        database: where.
        clock: paces them.
        tasks: what is to run.
        reasons: by task, what somebody sets when it has something to do; while that is so its period is long.
    """
    reasons = reasons or {}
    records = Records(database, clock)
    async with asyncio.TaskGroup() as group:
        for task in tasks:
            has_run = asyncio.Event()
            group.create_task(
                _repeat(task, database, clock, records, has_run, reason=reasons.get(task.name)),
                name=f"{task.name} {database.name}",
            )
            await clock.wait(has_run, _FIRST_RUN_SECONDS)


async def _repeat(
    task: PeriodicTask,
    database: Database,
    clock: Clock,
    records: Records,
    has_run: asyncio.Event,
    *,
    reason: Arrivals | None,
) -> None:
    description = (task.run.__doc__ or task.name).partition("\n")[0]
    while True:
        failure = None
        if reason is not None:
            reason.clear()
        try:
            await task.run(database)
        except (psycopg.Error, ServingError) as error:
            failure = one_line(error)
            logger.warning("periodic_task_failed", task=task.name, database=database.name, error=failure)
        # A server that is away is no news to the database.
        with suppress(psycopg.Error):
            await records.note(task.name, task.period, description, failure)
        has_run.set()
        # A task that was handed a connection of the pool when it was cancelled has forgotten it.
        if (this := asyncio.current_task()) is not None and this.cancelling():
            raise asyncio.CancelledError
        if reason is not None:
            await clock.wait(reason, reason.pause(task.period))
        elif task.due_early is None:
            await clock.sleep(task.period)
        else:
            await clock.wait(task.due_early, task.period)
