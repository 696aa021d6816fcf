"""Waiting for messages: who waits is woken by what happens, holds nothing, and costs the senders nothing."""

from __future__ import annotations

import contextlib
import random
import select
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import pybroker
from pybroker.embedded import EmbeddedServer
from tests.conftest import SETTINGS, migrated_database
from tests.patience import PATIENCE
from tests.shop import Session, Shop, until, waits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future

SLEEPERS = (
    "select a.pid, a.state, a.xact_start, a.backend_xmin, a.backend_xid from pg_locks l join pg_stat_activity a using (pid)"
    " where l.locktype = 'advisory' and l.classid = 1886937714 and l.mode = 'ExclusiveLock' and l.objid >= 65536"
    " and l.database = (select oid from pg_database where datname = current_database())"
)


@contextlib.contextmanager
def waiting(wait: Callable[[], Any]) -> Iterator[Future[Any]]:
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(wait)


def is_waiting_in_sql(shop: Shop) -> Callable[[], bool]:
    query = "select from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'"
    return lambda: bool(shop.psql.rows(query))


def is_asleep(shop: Shop) -> Callable[[], bool]:
    return lambda: bool(shop.psql.rows(SLEEPERS))


WAITS = {
    "receive": "select count(*) from broker.receive('warehouse', timeout => null)",
    "group": "select count(broker.get_conversation_group('warehouse', timeout => null))",
}


@pytest.mark.parametrize("wait", WAITS)
def test_row_061_a_wait_in_sql_ends_with_the_arrival(shop: Shop, wait: str) -> None:
    reader = shop.session()
    dialog = shop.psql.dialog()
    with waiting(lambda: reader.value(WAITS[wait])) as found:
        until(is_waiting_in_sql(shop))
        shop.psql.send(dialog)
        assert found.result() == 1


@pytest.mark.parametrize("wait", WAITS)
def test_row_063_edge_016_a_wait_in_sql_ends_with_an_error_when_the_queue_is_turned_off_or_dropped(
    shop: Shop, wait: str
) -> None:
    reader = shop.session()
    for change, error in (
        ("alter_queue('warehouse', status => false)", "S9617"),
        ("alter_queue('warehouse', status => true), broker.drop_service('//warehouse')", None),
        ("drop_queue('warehouse')", "S0208"),
    ):
        if error is None:
            shop.psql.rows(f"select broker.{change}")
            continue
        with waiting(lambda: reader.refused(WAITS[wait])) as state:
            until(is_waiting_in_sql(shop))
            shop.psql.rows(f"select broker.{change}")
            assert state.result() == error


def test_row_063_edge_016_a_client_that_sleeps_hears_at_once_that_its_queue_is_turned_off_or_dropped(
    shop: Shop,
) -> None:
    with pybroker.connect(shop.database.url) as broker:
        for change, error in (
            ("alter_queue('warehouse', status => false)", pybroker.QueueDisabledError),
            ("drop_queue('warehouse')", pybroker.QueueNotFound),
        ):
            with waiting(lambda: broker.receive("warehouse", timeout=None)) as received:
                until(is_asleep(shop))
                shop.psql.rows(f"select broker.{change}")
                assert isinstance(received.exception(), error)
            if error is pybroker.QueueDisabledError:
                shop.psql.rows(
                    "select broker.alter_queue('warehouse', status => true), broker.drop_service('//warehouse')"
                )


def test_a_client_that_waits_has_no_transaction_and_no_snapshot(shop: Shop) -> None:
    dialog = shop.psql.dialog()
    with pybroker.connect(shop.database.url) as broker:

        def wait() -> list[bytes]:
            with broker.transaction():
                return [message.body for message in broker.receive("warehouse", timeout=None)]

        with waiting(wait) as bodies:
            until(is_asleep(shop))
            until(lambda: [row[1:] for row in shop.psql.rows(SLEEPERS)] == [("idle", None, None, None)])
            shop.psql.send(dialog, "order", b"1")
            assert bodies.result() == [b"1"]
        assert shop.psql.rows(SLEEPERS) == []


def test_a_client_that_waits_gets_what_another_reader_rolled_back(shop: Shop) -> None:
    other = shop.session(autocommit=False)
    shop.psql.send(shop.psql.dialog(), "order", b"1")
    assert other.bodies() == [b"1"]
    with (
        pybroker.connect(shop.database.url) as broker,
        waiting(lambda: broker.receive("warehouse", timeout=None)) as received,
    ):
        other.connection.rollback()
        assert [message.body for message in received.result()] == [b"1"]


def test_row_061_a_send_notifies_only_while_somebody_sleeps(shop: Shop) -> None:
    sleeper = shop.session()
    dialog = shop.psql.dialog()
    assert not sleeper.value("select broker.sleep_on('warehouse')")
    shop.psql.send(dialog)
    assert not sleeper.value("select broker.sleep_on('warehouse')")
    assert sleeper.bodies() == [None]
    assert sleeper.value("select broker.sleep_on('warehouse')")
    shop.psql.rows("begin")
    shop.psql.send(dialog)
    shop.psql.rows("rollback")
    shop.psql.send(dialog)
    notified = list(sleeper.connection.notifies(timeout=PATIENCE, stop_after=1))
    assert [n.pid for n in notified] == [shop.psql.connection.info.backend_pid]
    sleeper.rows("select broker.wake_up('warehouse')")
    shop.psql.send(dialog)
    assert list(sleeper.connection.notifies(timeout=0)) == []


def make_noise(session: Session) -> None:
    for number in range(10_000):
        session.rows("select pg_notify('noise', repeat('x', 7000) || %s)", number)


def test_a_send_commits_while_the_queue_of_notifications_is_full_and_the_sleeper_finds_it() -> None:
    # Only from 17 on the size can be set; before it is 8 GB, which a test can't fill.
    settings = {**SETTINGS, "max_notify_queue_pages": 64}
    with EmbeddedServer(version=18, settings=settings) as server:
        database = migrated_database(server, "shop", with_shop=True)
        shop = Shop(database, is_defined=True)
        dialog, deaf, loud = shop.psql.dialog(), shop.session(autocommit=False), shop.session()
        deaf.rows("listen anything")
        deaf.connection.commit()
        deaf.rows("select 1")
        with (
            pybroker.connect(database.url) as broker,
            waiting(lambda: broker.receive("warehouse", timeout=PATIENCE)) as received,
        ):
            until(is_asleep(shop))
            with pytest.raises(psycopg.errors.ProgramLimitExceeded):
                make_noise(loud)
            shop.psql.send(dialog, "order", b"heard")
            assert [message.body for message in received.result()] == [b"heard"]
        shop.close()


@pytest.mark.parametrize(
    "arrival",
    [
        "select broker.send_batch(%s, 'order', '{1}')",
        "select broker.end_conversation(%s)",
        "select broker.end_conversation(%s, 1, 'error')",
        "select broker.alter_queue('warehouse', status => true)",
    ],
)
def test_everything_that_arrives_wakes_the_sleeper(shop: Shop, arrival: str) -> None:
    sleeper = shop.session()
    dialog = shop.psql.dialog()
    shop.psql.send(dialog)
    sleeper.bodies()
    if "alter_queue" in arrival:
        shop.psql.rows("update broker_private.queues set is_enqueue_enabled = false where name = 'warehouse'")
        shop.psql.send(dialog)
        shop.psql.rows("update broker_private.queues set is_enqueue_enabled = true where name = 'warehouse'")
    sleeper.rows("select broker.sleep_on('warehouse')")
    assert sleeper.value("select broker.sleep_on('warehouse')")
    shop.psql.rows(arrival, *([dialog] if "%s" in arrival else []))
    assert list(sleeper.connection.notifies(timeout=PATIENCE, stop_after=1))
    assert len(sleeper.receive()) == 1


def test_a_timer_wakes_the_sleeper(shop: Shop) -> None:
    sleeper = shop.session()
    dialog = shop.psql.dialog()
    sleeper.rows("select broker.sleep_on('shop')")
    assert sleeper.value("select broker.sleep_on('shop')")
    shop.psql.rows("select broker.begin_conversation_timer(%s, '1 ms')", dialog)
    until(lambda: shop.psql.value("select broker_private.fire_timers()"))
    assert list(sleeper.connection.notifies(timeout=PATIENCE, stop_after=1))


def test_one_session_sleeps_on_a_queue_and_the_end_of_the_session_ends_it(shop: Shop) -> None:
    first, second = shop.session(), shop.session()
    for session in (first, second):
        session.rows("select broker.sleep_on('warehouse')")
    assert first.value("select broker.sleep_on('warehouse')")
    assert not second.value("select broker.sleep_on('warehouse')")
    shop.psql.rows("select pg_terminate_backend(%s)", first.connection.info.backend_pid)
    until(lambda: second.value("select broker.sleep_on('warehouse')"))


def test_nobody_sleeps_on_a_queue_that_he_may_not_receive_from(shop: Shop) -> None:
    stranger = shop.session(user=shop.database.role())
    assert stranger.refused("select broker.sleep_on('warehouse')") == "S0229"
    assert stranger.refused("select broker.sleep_on('nowhere')") == "S0208"


def pause_after_looks_at(shop: Shop, queue: int) -> None:
    """Let whoever has looked into the queue wait for the session lock 19 before he goes on."""
    shop.psql.rows("alter function broker_private.has_arrivals rename to has_arrivals_at_once")
    shop.psql.rows(
        "create function broker_private.has_arrivals(queue integer) returns boolean language plpgsql volatile"
        " set search_path = pg_catalog, pg_temp as $$ declare found constant boolean"
        " := broker_private.has_arrivals_at_once(queue);"
        f" begin if queue = {queue} then perform pg_advisory_xact_lock_shared(19); end if; return found; end $$"
    )


@pytest.mark.parametrize(
    "sleep",
    [
        "select broker.sleep_on('warehouse')",
        "select not (%(queue)s = any (broker_private.sleep_on_queues()))",
    ],
    ids=["client", "worker"],
)
def test_row_061_what_is_committed_between_a_look_and_the_lock_finds_nobody_asleep(
    shop: Shop, sleep: str
) -> None:
    """Else the message would lie there until another one came: its sender had nobody to notify."""
    dialog = shop.psql.dialog()
    shop.psql.rows("create procedure app_nothing() language sql begin atomic select 1; end")
    shop.psql.rows(
        "select broker.alter_queue('warehouse', activation_procedure => 'app_nothing', max_queue_readers => 1,"
        " activation_status => true, execute_as => 'OWNER')"
    )
    queue = shop.psql.value("select queue_id from broker_private.queues where name = 'warehouse'")
    sleeper = shop.session()
    ask = psycopg.ClientCursor(sleeper.connection).mogrify(sleep, {"queue": queue})
    assert sleeper.value(ask) is False
    pause_after_looks_at(shop, queue)
    holder = shop.session()
    holder.rows("select pg_advisory_lock(19)")
    with waiting(lambda: sleeper.value(ask)) as asleep:
        until(lambda: waits(shop.psql, sleeper, "Lock"))
        shop.psql.send(dialog)
        holder.rows("select pg_advisory_unlock(19)")
        assert asleep.result(200) is False


def test_row_061_no_wake_up_is_lost_however_sleeper_and_senders_interleave(shop: Shop) -> None:
    """Each round: three senders, with pauses at random, and a sleeper that nothing but a notification wakes."""
    sleeps, senders = 40, 3
    chance = random.Random(1)
    reader = shop.session()
    sessions = [(session, session.dialog()) for session in shop.sessions(senders)]
    for session, dialog in sessions:
        session.send(dialog)
        session.connection.commit()
    while reader.bodies():
        pass
    reader.rows("select broker.sleep_on('warehouse')")

    def send(session: Session, dialog: Any, before: float, within: float) -> None:
        time.sleep(before)
        session.send(dialog)
        time.sleep(within)
        session.connection.commit()

    slept = lost = 0
    with ThreadPoolExecutor(senders) as pool:
        while slept < sleeps:
            pauses = [(chance.random() * 0.003, chance.random() * 0.002) for _ in sessions]
            sending = [pool.submit(send, *one, *pause) for one, pause in zip(sessions, pauses, strict=True)]
            received = 0
            while received < senders:
                if found := len(reader.bodies()):
                    received += found
                elif reader.value("select broker.sleep_on('warehouse')"):
                    slept += 1
                    lost += not list(reader.connection.notifies(timeout=PATIENCE, stop_after=1))
                    reader.rows("select broker.wake_up('warehouse')")
            for one in sending:
                one.result()
    assert lost == 0


class Pooler:
    """Like a transaction pooler in one point: it tells its clients a process id of its own making."""

    def __init__(self, shop: Shop) -> None:
        server = psycopg.conninfo.conninfo_to_dict(shop.database.url)
        self._server = f"{server['host']}/.s.PGSQL.{server.get('port', 5432)}"
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = psycopg.conninfo.make_conninfo(
            shop.database.url,
            host="127.0.0.1",
            port=self._listener.getsockname()[1],
            sslmode="disable",
            gssencmode="disable",
        )
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        client, _ = self._listener.accept()
        server = socket.socket(socket.AF_UNIX)
        server.connect(self._server)
        ends = {client: server, server: client}
        # Who hangs up while the other end still talks is no failure of the test.
        gone = contextlib.suppress(BrokenPipeError, ConnectionResetError)
        with gone, self._listener, client, server:
            while True:
                for end in select.select(list(ends), (), ())[0]:
                    data = end.recv(65536)
                    if not data:
                        return
                    if end is server and (key := data.find(b"K\x00\x00\x00\x0c")) >= 0:
                        data = data[: key + 5] + b"\x00\x00\x00\x01" + data[key + 9 :]
                    ends[end].sendall(data)


def test_behind_a_transaction_pooler_a_client_neither_listens_nor_locks_and_still_gets_its_message(
    shop: Shop,
) -> None:
    dialog = shop.psql.dialog()
    with (
        pybroker.connect(Pooler(shop).url) as broker,
        waiting(lambda: broker.receive("warehouse", timeout=None)) as received,
    ):
        polls = "select from pg_stat_activity where datname = current_database() and query like '%%broker.receive(%%' and pid <> pg_backend_pid()"
        until(lambda: shop.psql.rows(polls))
        assert shop.psql.rows(SLEEPERS) == []
        shop.psql.send(dialog, "order", b"1")
        assert [message.body for message in received.result()] == [b"1"]
