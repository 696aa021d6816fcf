"""A worker with nothing to do asks for little, and what its one look finds is done though nobody else looks."""

from __future__ import annotations

import asyncio
import tracemalloc
from contextlib import contextmanager
from typing import TYPE_CHECKING

import psycopg
import pytest

from pybroker.workers import periodic
from pybroker.workers.arrivals import Arrivals
from pybroker.workers.clock import Clock
from pybroker.workers.database import Database as Served
from pybroker.workers.wake_ups import WakeUps
from tests.activated import RunningLoop, next_event, start_worker
from tests.patience import PATIENCE
from tests.shop import Shop, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import Database

LOOKS = 4
# What the parts of a worker ask by themselves where nobody looks for them.
OTHERS = (
    "activate_queues",
    "emit_queue_activations",
    "fire_timers",
    "messages_to_validate",
    "schema_collections_to_read",
    "settle_poison",
    "transmission_work",
    "worker_greeting",
)


@pytest.fixture
def shop(database: Database) -> Iterator[Shop]:
    made = Shop(database)
    yield made
    made.close()


class NoLooks(Clock):
    """Nobody looks by himself, once he has looked for the first time."""

    async def wait(self, event: asyncio.Event, seconds: float) -> bool:  # noqa: ARG002
        return await event.wait()


@contextmanager
def waking(shop: Shop, reasons: dict[str, Arrivals]) -> Iterator[Served]:
    """Run the periodic tasks, which nothing but a reason makes run again."""
    loop = RunningLoop()
    served = Served(shop.database.url)
    loop.run(served.open())
    wake_ups = WakeUps(served, Clock())
    for reason, arrivals in reasons.items():
        wake_ups.add_reason(reason, arrivals)
    tasks = tuple(task for task in periodic.PERIODIC_TASKS if task.name in reasons)
    stop = asyncio.Event()

    async def serve() -> None:
        parts = [
            asyncio.create_task(periodic.run(served, NoLooks(), tasks, reasons)),
            asyncio.create_task(wake_ups.run()),
        ]
        await stop.wait()
        for part in parts:
            part.cancel()
        await asyncio.wait(parts)

    async def end() -> None:
        stop.set()

    serving = loop.start(serve())
    try:
        until(lambda: all(reason.are_watched for reason in reasons.values()))
        yield served
    finally:
        loop.run(end())
        serving.result()
        loop.run(served.close())
        loop.close()


def test_what_an_idle_worker_asks_is_little_beside_its_looks(database: Database) -> None:
    calls = "select coalesce(sum(calls), 0) from pg_stat_user_functions where funcname = any (%s)"
    with database.connect() as session:
        session.execute(f'alter database "{database.name}" set track_functions = "all"'.encode())

        def called(*functions: str) -> int:
            row = session.execute(calls, (list(functions),)).fetchone()
            assert row is not None
            return int(row[0])

        worker = start_worker(database.url)
        try:
            next_event(worker, "worker_ready")
            # Most of these are from the start, and more of them the longer that takes. Where each part looks by itself
            # they are eleven a second, fifty for each look.
            until(lambda: called("due") >= LOOKS and called(*OTHERS) <= 12 * called("due"))
        finally:
            worker.kill()
            worker.communicate()


def test_timers_and_lifetimes_are_over_though_nobody_looks(shop: Shop) -> None:
    psql = shop.psql
    with waking(shop, {"timers": Arrivals()}):
        for seconds in ("0.1 s", "5.2 s"):
            dialog = psql.dialog()
            psql.rows("select broker.begin_conversation_timer(%s, %s)", dialog, seconds)
            until(lambda: psql.receive("shop"))
        psql.dialog(lifetime="1 s")
        until(lambda: psql.receive("shop"))


def test_a_broker_that_changes_is_noticed_though_nobody_looks(shop: Shop) -> None:
    with waking(shop, {"greeting": Arrivals()}) as served:
        before = served.greeting
        shop.psql.rows("select broker.alter_broker('NEW_BROKER')")
        until(lambda: served.greeting.service_broker_guid != before.service_broker_guid)
        shop.psql.rows("select broker.alter_broker('DISABLE_BROKER')")
        until(lambda: not served.greeting.is_broker_enabled)


def test_who_notifies_a_great_deal_fills_no_workers_memory(shop: Shop) -> None:
    """The notifications of a transaction come all at once, whatever the worker has asked meanwhile."""
    flood = "select count(pg_notify('pybroker_-1', n || repeat('x', 7900))) from generate_series(1, %s) n"
    stranger = shop.session(user=shop.database.role())
    with waking(shop, {"greeting": Arrivals()}) as served:
        tracemalloc.start()
        try:
            for _ in range(3):
                stranger.rows(flood, 4_000)
            shop.psql.rows("select broker.alter_broker('DISABLE_BROKER')")
            until(lambda: not served.greeting.is_broker_enabled)
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert most < 4_000 * 7_900 / 4


CHANGES = (
    "select broker.create_queue('woken')",
    "select broker.alter_queue('woken', status => false)",
    "select broker.create_event_notification('told', 'woken', 'QUEUE_ACTIVATION', '//shop/warehouse')",
    "select broker.drop_event_notification('told')",
    "select broker.drop_queue('woken')",
    "select broker.alter_broker('DISABLE_BROKER')",
    "select broker.alter_broker('ENABLE_BROKER')",
    "select broker.create_endpoint('woken', 4022)",
    "select broker.drop_endpoint('woken')",
)


def test_who_changes_what_a_look_asks_for_wakes_the_workers(shop: Shop) -> None:
    with shop.database.connect() as listener:
        listener.autocommit = True
        listener.execute('listen "pybroker_-1"')
        for change in CHANGES:
            shop.psql.rows(change)
            assert list(listener.notifies(timeout=PATIENCE, stop_after=1)), f"nobody was woken by: {change}"
        shop.psql.send(shop.psql.dialog())
        shop.psql.receive("warehouse")
        assert not list(listener.notifies(timeout=0)), "messages are no change of a definition"


def test_without_its_session_the_parts_look_by_themselves_again(shop: Shop) -> None:
    reasons = {name: Arrivals() for name in ("timers", "poison", "greeting")}
    with waking(shop, reasons):
        shop.psql.rows(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where application_name like '%%wake-ups' and datname = current_database()"
        )
        until(lambda: not any(reason.are_watched for reason in reasons.values()))
        assert [reasons["timers"].pause(seconds) for seconds in (0.5, 2.0)] == [0.5, 2.0]


def test_no_default_of_a_database_or_role_limits_a_worker_but_its_url_may(shop: Shop) -> None:
    """One millisecond in a transaction would end the first that it begins."""
    limits = {
        "statement_timeout": "20s",
        "lock_timeout": "10s",
        "idle_in_transaction_session_timeout": "1ms",
        "idle_session_timeout": "30s",
    }
    for name, limit in limits.items():
        shop.psql.rows(f"alter database \"{shop.database.name}\" set {name} = '{limit}'")

    async def asked(url: str) -> list[tuple[str, ...]]:
        query = "select " + ", ".join(f"current_setting('{name}')" for name in limits)
        found = []
        async with Served(url) as served:
            for lent in (served.connection, served.statement):
                async with lent() as connection:
                    found.append(await anext(await connection.execute(query.encode())))
                    await connection.execute("select pg_sleep(0)")
        return found

    assert asyncio.run(asked(shop.database.url)) == 2 * [("0", "0", "0", "0")]
    url = psycopg.conninfo.make_conninfo(shop.database.url, options="-c statement_timeout=15s")
    assert asyncio.run(asked(url)) == 2 * [("15s", "0", "0", "0")]


@pytest.mark.parametrize("default", ["read committed", "serializable"])
def test_a_statement_alone_is_read_committed_whatever_the_default_is(shop: Shop, default: str) -> None:
    shop.psql.connection.execute(
        f"alter database \"{shop.database.name}\" set default_transaction_isolation = '{default}'".encode()
    )

    async def asked() -> tuple[str, bool]:
        served = Served(shop.database.url)
        await served.open()
        async with served.statement() as connection:
            cursor = await connection.execute("select current_setting('transaction_isolation')")
            (isolation,) = await anext(cursor)
        # The pool's next borrower has a transaction again.
        async with served.connection() as connection:
            has_transactions = not connection.autocommit
        await served.close()
        return isolation, has_transactions

    assert asyncio.run(asked()) == ("read committed", True)
