"""Wakes the parts of the worker that have something to do: messages, a moment after they were committed.

One session for each database sleeps on the queues that the worker has to do with, by the protocol that
sql/conversation/sleep_on.sql tells: while it sleeps, whoever puts a message into one of them notifies it.
Its looks see what else is due too, and when the next timer is. So the parts need hardly look by themselves.
Everything works without it, at the pace at which each part looks by itself.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
import structlog

from pybroker.workers.database import WORKER_NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from uuid import UUID

    from psycopg import AsyncConnection
    from structlog.typing import FilteringBoundLogger

    from pybroker.workers.arrivals import Arrivals
    from pybroker.workers.clock import Clock
    from pybroker.workers.database import Database

# What nobody notifies of is found by the look after a sleep. Definitions notify, and so do timers that are
# over before it (broker.begin_conversation_timer).
LONGEST_SLEEP = 5.0
# While messages come or wait, failures may follow, which can't notify. And the parts are told no more often.
BUSY_SLEEP = 2.0
# A session that needs longer for a look is taken for lost: until it is back the parts look by themselves.
_LOOK_LIMIT = 5.0
# While messages wait somewhere it can't sleep on everything.
LOOK_SECONDS = 0.25
# After a notification: while messages come one after the other, not each should have to notify.
REST_SECONDS = 0.05
# Numbers of what is slept on besides queues: the transmission queue, the incomplete messages, what the broker
# itself answers, and what asks for a look now: definitions, and short timers and lifetimes.
TRANSMISSION_QUEUE = 0
INCOMPLETE_MESSAGES = 1
SYSTEM_CONTRACTS = 3
LOOK_NOW = -1
_CHANNEL = "pybroker_"

logger: FilteringBoundLogger = structlog.get_logger()


def is_plain_queue(queue: int) -> bool:
    """Whether this is the number of a queue that somebody receives from."""
    return queue not in (TRANSMISSION_QUEUE, INCOMPLETE_MESSAGES, SYSTEM_CONTRACTS, LOOK_NOW)


class _Due(NamedTuple):
    """What broker_private.due() says."""

    timers_in: float | None
    is_poisoned: bool
    has_readers: bool
    has_events: bool
    has_schemas: bool
    service_broker_guid: UUID
    broker_problem: str | None
    has_moved: bool
    is_trace_due: bool
    endpoint_hash: int | None


class WakeUps:
    """The wake-ups of one database."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._waiters: list[tuple[Arrivals, Callable[[int], bool]]] = []
        self._reasons: dict[str, Arrivals] = {}
        self._endpoint_hash: int | None = None
        self._look_at = self._tell_at = float("-inf")
        # Numbers that were notified of. Whoever may log in may notify, eight kilobytes at a time, and the
        # driver would keep all of it that comes during a statement.
        self._heard: set[int] = set()

    def add(self, arrivals: Arrivals, concerns: Callable[[int], bool] = is_plain_queue) -> None:
        """Have this set whenever a message may have arrived in one of the queues that concern its waiter."""
        self._waiters.append((arrivals, concerns))

    def add_reason(self, reason: str, arrivals: Arrivals) -> None:
        """Have this set for another reason than messages: one of those that `_tell` names."""
        self._reasons[reason] = arrivals

    async def run(self) -> None:
        """Wake until cancelled. Returns at once behind a pooler, where others would get the notifications.

        Raises:
            psycopg.OperationalError: the server is away.
        """
        session = await self._database.open_own_session(f"{WORKER_NAME}: wake-ups")
        async with session:
            if await _value(session, "select pg_catalog.pg_backend_pid()") != session.info.backend_pid:
                logger.info("wake_ups_unavailable", database=self._database.name, reason="a pooler")
                return
            try:
                await self._watch(session)
            finally:
                for arrivals in self._all():
                    arrivals.are_watched = False
                    arrivals.set()

    def _all(self) -> list[Arrivals]:
        return [*(arrivals for arrivals, _ in self._waiters), *self._reasons.values()]

    async def _watch(self, session: AsyncConnection[Any]) -> None:
        self._heard.clear()
        session.add_notify_handler(lambda notification: self._hear(notification.channel))
        await session.execute(f'listen "{_CHANNEL}{LOOK_NOW}"'.encode())
        self._look_at = self._tell_at = float("-inf")
        while True:
            try:
                async with asyncio.timeout(_LOOK_LIMIT):
                    awake_on, due = await self._look(session)
            except TimeoutError:
                raise psycopg.OperationalError(f"a look took longer than {_LOOK_LIMIT:g} s") from None
            # What was committed since the last sleep has notified nobody.
            self._wake(awake_on)
            if due is not None:
                self._keep_watch(due)
                self._tell(due)
            until_look = max(0.0, self._look_at - self._clock.monotonic())
            notified = await self._notified(
                session, min(LOOK_SECONDS, until_look) if awake_on else until_look
            )
            self._wake(notified)
            if LOOK_NOW in notified:
                self._look_at = float("-inf")
            if notified or awake_on:
                self._look_at = min(self._look_at, self._clock.monotonic() + BUSY_SLEEP)
            if notified:
                await session.execute("select pg_catalog.pg_advisory_unlock_all()")
                await self._clock.sleep(REST_SECONDS)

    async def _look(self, session: AsyncConnection[Any]) -> tuple[list[int], _Due | None]:
        """Return which queues it does not sleep on, and what is due.

        After each of many notifications it would be too early to ask for what is due: that is None then.
        """
        if self._clock.monotonic() < self._look_at:
            return await _value(session, "select broker_private.sleep_on_queues()"), None
        # Prepared: to plan it anew costs half as much as it does.
        cursor = await session.execute(
            "select broker_private.sleep_on_queues(), d.timers_in, d.is_poisoned, d.has_readers,"
            " d.has_events, d.has_schemas, d.service_broker_guid, d.broker_problem,"
            " d.has_moved, d.is_trace_due, d.endpoint_hash"
            " from broker_private.due() d",
            prepare=True,
        )
        awake_on, *due = await anext(cursor)
        return awake_on, _Due(*due)

    def _keep_watch(self, due: _Due) -> None:
        """Let the parts sleep long, but for those whose work moves with time."""
        were_watched = {reason: arrivals.are_watched for reason, arrivals in self._reasons.items()}
        for arrivals in self._all():
            arrivals.are_watched = True
        for reason, is_busy in (("readers", due.has_readers), ("moved", due.has_moved)):
            if is_busy and reason in self._reasons:
                self._reasons[reason].are_watched = False
                if were_watched[reason]:
                    self._set(reason)

    def _tell(self, due: _Due) -> None:
        now = self._clock.monotonic()
        longest = LONGEST_SLEEP
        if due.timers_in is not None:
            # What can't be done now, as its queue is off, is not to be looked at without a pause.
            longest = min(longest, due.timers_in if due.timers_in > 0 else LOOK_SECONDS)
            if due.timers_in <= 0:
                self._set("timers")
        self._look_at = now + longest
        if now < self._tell_at:
            self._look_at = min(self._look_at, self._tell_at)
            return
        self._tell_at = now + BUSY_SLEEP - REST_SECONDS
        greeting = self._database.greeting
        seen = greeting.service_broker_guid, greeting.broker_problem
        for reason, is_due in (
            ("poison", due.is_poisoned),
            ("readers", due.has_readers),
            ("events", due.has_events),
            ("schemas", due.has_schemas),
            ("greeting", seen != (due.service_broker_guid, due.broker_problem)),
            ("trace", due.is_trace_due),
            ("endpoint", self._endpoint_hash != due.endpoint_hash),
        ):
            if is_due:
                self._set(reason)
        self._endpoint_hash = due.endpoint_hash

    async def _notified(self, session: AsyncConnection[Any], seconds: float) -> set[int]:
        """Return the numbers that were notified of; wait for the first so long at most.

        The driver's own wait looks ten times a second whether it has missed anything.
        """
        self._read(session)
        if not self._heard and seconds > 0:
            loop, readable = asyncio.get_running_loop(), asyncio.Event()
            loop.add_reader(session.fileno(), readable.set)
            try:
                async with asyncio.timeout(seconds):
                    await readable.wait()
            except TimeoutError:
                pass
            finally:
                loop.remove_reader(session.fileno())
            self._read(session)
        heard, self._heard = self._heard, set()
        return heard

    def _read(self, session: AsyncConnection[Any]) -> None:
        session.pgconn.consume_input()
        while notification := session.pgconn.notifies():
            self._hear(notification.relname.decode())

    def _hear(self, channel: str) -> None:
        self._heard.add(int(channel.removeprefix(_CHANNEL)))

    def _set(self, reason: str) -> None:
        if reason in self._reasons:
            self._reasons[reason].set()

    def _wake(self, queues: Iterable[int]) -> None:
        for arrivals, concerns in self._waiters:
            if any(map(concerns, queues)):
                arrivals.set()


async def _value(session: AsyncConnection[Any], query: str) -> Any:
    row = await (await session.execute(query.encode())).fetchone()
    return row and row[0]
