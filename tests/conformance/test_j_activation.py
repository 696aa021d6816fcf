"""Rows 144-151, 157, 165, 166 and edge cases 69-78: queues that start their procedures by themselves."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from pybroker.workers.clock import Clock
from pybroker.workers.periodic import PERIODIC_TASKS
from tests.activated import (
    GATED,
    HOLDING,
    LOOP,
    ONE_MESSAGE,
    PATIENCE,
    RAMP,
    WHITEPAPER,
    Application,
    CountingClock,
    activating,
    eventually,
    next_event,
    start_worker,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import Database

STARTS = "begin perform nextval('public.starts'); end"

# One line of output, then an error where `text` is no number; in the statement that receives, or after it.
CAST_WHILE_RECEIVING = """
declare
  number integer;
begin
  perform nextval('public.starts');
  for number in select convert_from(message_body, 'UTF8')::integer from broker.receive('{queue}') loop
    null;
  end loop;
end
"""
CAST_AFTER_RECEIVING = """
declare
  message record;
begin
  perform nextval('public.starts');
  for message in select * from broker.receive('{queue}') loop
    perform convert_from(message.message_body, 'UTF8')::integer;
  end loop;
end
"""


@pytest.fixture
def application(database: Database) -> Iterator[Application]:
    made = Application(database)
    yield made
    made.close()


@pytest.fixture
def on_each(any_database: Database) -> Iterator[Application]:
    made = Application(any_database)
    yield made
    made.close()


@contextmanager
def held_readers(application: Application) -> Iterator[None]:
    """Keep procedures that take the advisory lock 1 where they take it."""
    application.run("select pg_advisory_lock(1)")
    try:
        yield
    finally:
        application.run("select pg_advisory_unlock(1)")


def monitor(application: Application, column: str) -> Any:
    return application.value(f"select {column} from broker.dm_broker_queue_monitors")


def test_row_144_the_first_message_starts_a_reader(on_each: Application) -> None:
    on_each.queue("orders", LOOP.format(queue="orders", timeout="0"))
    on_each.slow_time()
    with activating(on_each.url):
        on_each.send("orders", "first")
        eventually(lambda: on_each.seen("orders") == ["first"])
        eventually(lambda: on_each.state("orders") == "INACTIVE")
        # It is so too while the reader is about to look again, and would take what comes.
        eventually(lambda: on_each.tasks("orders") == 0)
        on_each.send("orders", "second")
        eventually(lambda: on_each.seen("orders") == ["first", "second"])
    assert on_each.starts() == 2


def test_row_145_one_more_reader_in_5_seconds_up_to_max_queue_readers(application: Application) -> None:
    application.queue("orders", HOLDING.format(queue="orders"), max_readers=2)
    application.send("orders", "one", "two", "three", "four")
    application.stop_time()
    clock = CountingClock()
    with activating(application.url, clock), held_readers(application):
        eventually(lambda: application.starts() == 1)
        application.advance(RAMP - 0.1)
        clock.let_worker_look()
        assert application.starts() == 1
        application.advance(0.1)
        eventually(lambda: application.starts() == 2)
        for _ in range(2):
            application.advance(RAMP)
            clock.let_worker_look()
        assert application.starts() == 2


def test_row_145_a_procedure_of_one_message_gets_helpers_too(application: Application) -> None:
    application.queue("orders", ONE_MESSAGE.format(queue="orders"), max_readers=2)
    application.send("orders", *map(str, range(10)))
    application.slow_time()
    with activating(application.url):
        eventually(lambda: len(application.seen("orders")) == 10)


def test_row_146_the_states_of_a_monitor(on_each: Application) -> None:
    on_each.queue("orders", GATED.format(queue="orders"))
    on_each.stop_time()
    with activating(on_each.url):
        assert monitor(on_each, "state") == "INACTIVE"
        assert monitor(on_each, "last_activated_time") is None
        with held_readers(on_each):
            on_each.send("orders", "first")
            eventually(lambda: on_each.state("orders") == "NOTIFIED")
            assert monitor(on_each, "last_activated_time = broker_private.clock()")
        eventually(lambda: on_each.state("orders") == "INACTIVE")
        # The reader may not have looked again yet.
        eventually(
            lambda: monitor(on_each, "last_empty_rowset_time - broker_private.clock() < interval '1 ms'")
        )
    on_each.run("drop procedure public.run_orders()")
    on_each.run(
        "create procedure public.run_orders() language plpgsql as $body$"
        f" {HOLDING.format(queue='orders')} $body$"
    )
    # A reader that came too late for the first message makes the next one wait, and the clock stands still.
    on_each.advance(20 * RAMP)
    with activating(on_each.url), held_readers(on_each):
        on_each.send("orders", "one", "two")
        eventually(lambda: on_each.state("orders") == "RECEIVES_OCCURRING")
        on_each.alter("orders", status=False)
        assert on_each.state("orders") == "INACTIVE"


def test_row_146_the_monitor_of_a_queue_that_rollbacks_turned_off_is_inactive_before_a_worker_looks(
    application: Application,
) -> None:
    application.queue("orders", STARTS)
    application.send("orders", "poison")
    # As a worker's last look has left it.
    application.run("update broker_private.queue_monitors set state = 'RECEIVES_OCCURRING'")
    with psycopg.connect(application.url) as reader:
        for _ in range(5):
            assert application.state("orders") == "RECEIVES_OCCURRING"
            reader.execute("select from broker.receive('orders')")
            reader.rollback()
    assert application.value("select not is_receive_enabled from broker.service_queues where name = 'orders'")
    assert application.state("orders") == "INACTIVE"


def test_row_147_edge_070_no_second_start_before_a_receive(application: Application) -> None:
    application.queue("orders", GATED.format(queue="orders"), max_readers=5, watchdog="0")
    application.stop_time()
    clock = CountingClock()
    with activating(application.url, clock), held_readers(application):
        application.send("orders", "one")
        eventually(lambda: application.tasks("orders") == 1)
        for number in range(3):
            application.send("orders", f"more {number}")
            application.advance(20 * RAMP)
            clock.let_worker_look()
        assert application.tasks("orders") == 1
        assert application.state("orders") == "NOTIFIED"


def test_edge_071_a_receive_by_an_unrelated_session_counts(application: Application) -> None:
    application.queue("orders", GATED.format(queue="orders"), max_readers=5)
    application.send("orders", "one", "two", "three")
    application.stop_time()
    with activating(application.url), held_readers(application):
        eventually(lambda: application.tasks("orders") == 1)
        with psycopg.connect(application.url) as other:
            # It even counts where it is rolled back.
            other.execute("select from broker.receive('orders', top => 1)")
            other.rollback()
        eventually(lambda: application.state("orders") == "RECEIVES_OCCURRING")
        application.advance(RAMP)
        eventually(lambda: application.tasks("orders") == 2)


def test_row_148_edge_075_ten_thousand_messages_of_one_conversation_need_one_reader(
    application: Application,
) -> None:
    application.queue("orders", HOLDING.format(queue="orders"), max_readers=5)
    with application.connection.transaction():
        dialog = application.value("select broker.begin_dialog('//senders', '//orders')")
        application.run(
            "select broker.send_batch(%s, 'DEFAULT', array_fill('x'::bytea, array[10000]))", dialog
        )
    application.stop_time()
    clock = CountingClock()
    with activating(application.url, clock), held_readers(application):
        eventually(lambda: application.starts() == 1)
        for _ in range(4):
            application.advance(RAMP)
            clock.let_worker_look()
        assert application.starts() == 1


def test_row_148_an_empty_receive_begins_the_5_seconds_anew(application: Application) -> None:
    application.queue("orders", HOLDING.format(queue="orders"), max_readers=5)
    application.send("orders", "one")
    application.stop_time()
    clock = CountingClock()
    with activating(application.url, clock), held_readers(application):
        eventually(lambda: application.starts() == 1)
        eventually(lambda: application.state("orders") == "RECEIVES_OCCURRING")
        application.advance(4)
        # The only group is taken: whoever looks finds that those who read are enough.
        assert application.connection.execute("select from broker.receive('orders')").rowcount == 0
        application.send("orders", "two")
        application.advance(4.9)
        clock.let_worker_look()
        assert application.starts() == 1
        application.advance(0.1)
        eventually(lambda: application.starts() == 2)


def test_row_149_the_procedure_is_called_alone_and_its_output_is_logged(application: Application) -> None:
    clerk = application.role("nologin")
    application.queue(
        "orders",
        "begin perform from broker.receive('orders'); perform set_config('search_path', 'pg_temp', false);"
        " insert into public.seen (queue, body) values ('orders', session_user); commit;"
        " raise warning 'low on paper'; raise info 'done'; end",
        execute_as=clerk,
    )
    application.run("select broker.grant('RECEIVE', 'QUEUE', 'orders', %s)", clerk)
    application.send("orders", "first")
    with activating(application.url):
        eventually(lambda: len(application.log("orders")) == 2)
    assert application.value("select role from public.seen") == clerk
    assert application.log("orders") == [
        (9724, "WARNING", "low on paper", "01000"),
        (9724, "INFO", "done", "00000"),
    ]


def test_row_150_edge_073_a_procedure_that_never_receives_is_started_no_more(
    application: Application,
) -> None:
    application.queue("orders", STARTS, watchdog="0")
    application.stop_time()
    clock = CountingClock()
    with activating(application.url, clock):
        application.send("orders", "never read")
        eventually(lambda: application.numbers("orders") == [28087])
        application.send("orders", "more")
        application.advance(24 * 60 * 60)
        clock.let_worker_look()
        assert application.starts() == 1
        assert application.state("orders") == "NOTIFIED"
        application.alter("orders", activation_status=False)
        application.alter("orders", activation_status=True)
        eventually(lambda: application.starts() == 2)


def test_row_150_what_a_procedure_leaves_open_is_committed(application: Application) -> None:
    application.queue("orders", ONE_MESSAGE.format(queue="orders"))
    application.send("orders", "first")
    with activating(application.url):
        eventually(lambda: application.seen("orders") == ["first"])
        eventually(lambda: application.tasks("orders") == 0)
    assert application.numbers("orders") == []


def test_row_150_the_end_of_a_task_has_its_number(application: Application) -> None:
    application.queue("disabled", HOLDING.format(queue="disabled"))
    application.queue("dropped", GATED.format(queue="dropped"))
    application.queue(
        "failing", "begin perform from broker.receive('failing'); raise exception 'out of paper'; end"
    )
    for name in ("disabled", "dropped", "failing"):
        application.send(name, "first")
    with activating(application.url):
        with held_readers(application):
            eventually(lambda: application.starts() == 1)
            eventually(lambda: application.tasks("dropped") == 1)
            eventually(lambda: 28088 in application.numbers("failing"))
            application.alter("disabled", activation_status=False)
            application.run("select broker.drop_service('//dropped')")
            application.run("select broker.drop_queue('dropped')")
        eventually(lambda: application.numbers("disabled")[-1:] == [28086])
        eventually(lambda: application.numbers("dropped")[-1:] == [28085])


def test_row_151_raised_max_queue_readers_act_at_once_and_lowered_let_readers_finish(
    application: Application,
) -> None:
    application.queue("orders", HOLDING.format(queue="orders"), max_readers=1)
    bodies = ["four", "one", "three", "two"]
    application.send("orders", *bodies)
    application.stop_time()
    clock = CountingClock()
    with activating(application.url, clock):
        with held_readers(application):
            eventually(lambda: application.starts() == 1)
            eventually(lambda: application.state("orders") == "RECEIVES_OCCURRING")
            application.alter("orders", max_queue_readers=2)
            eventually(lambda: application.starts() == 2)
            application.alter("orders", max_queue_readers=1)
            clock.let_worker_look()
            assert application.tasks("orders") == 2
        eventually(lambda: application.seen("orders") == bodies)


def test_row_151_off_stops_starts_only_and_on_starts_at_once(application: Application) -> None:
    application.queue("orders", HOLDING.format(queue="orders"), activation_status=False)
    application.send("orders", "first")
    application.stop_time()
    clock = CountingClock()
    with activating(application.url, clock):
        clock.let_worker_look()
        assert application.starts() == 0
        assert application.state("orders") is None
        with held_readers(application):
            application.alter("orders", activation_status=True)
            eventually(lambda: application.starts() == 1)
            application.alter("orders", activation_status=False)
            assert application.tasks("orders") == 1
        eventually(lambda: application.seen("orders") == ["first"])


def test_edge_069_a_disabled_queue_ends_its_readers_and_starts_none(application: Application) -> None:
    application.queue("orders", LOOP.format(queue="orders", timeout="1 h"))
    application.send("orders", "first")
    clock = CountingClock()
    with activating(application.url, clock):
        eventually(lambda: application.seen("orders") == ["first"])
        application.alter("orders", status=False)
        eventually(lambda: application.numbers("orders") == [9724, 28086])
        assert application.log("orders")[0][3] == "S9617"
        clock.let_worker_look()
        assert application.starts() == 1
        application.alter("orders", status=True)
        application.send("orders", "second")
        eventually(lambda: application.seen("orders") == ["first", "second"])


@pytest.mark.parametrize("watchdog", ["0", "60 s"])
def test_edge_072_an_error_in_the_receive_statement_leaves_the_monitor_stuck(
    application: Application, watchdog: str
) -> None:
    application.queue("orders", CAST_WHILE_RECEIVING.format(queue="orders"), watchdog=watchdog)
    application.send("orders", "no number")
    application.stop_time()
    clock = CountingClock()
    with activating(application.url, clock):
        eventually(lambda: application.numbers("orders") == [9724, 28088])
        assert application.log("orders")[1][3] == "22P02"
        application.advance(59)
        clock.let_worker_look()
        assert (application.starts(), application.state("orders")) == (1, "NOTIFIED")
        application.advance(1)
        clock.let_worker_look()
        if watchdog == "0":
            assert (application.starts(), application.state("orders")) == (1, "NOTIFIED")
        else:
            eventually(lambda: application.starts() == 2)


def test_edge_072_an_error_after_the_receive_is_tried_again(application: Application) -> None:
    application.queue("orders", CAST_AFTER_RECEIVING.format(queue="orders"), poison_message_handling=False)
    application.send("orders", "no number")
    application.stop_time()
    clock = CountingClock()
    with activating(application.url, clock):
        eventually(lambda: application.numbers("orders") == [9724, 28088])
        clock.let_worker_look()
        assert application.starts() == 1
        # The pause doubles with each failure.
        application.advance(0.25)
        eventually(lambda: application.starts() == 2)
        eventually(lambda: len(application.log("orders")) == 4)
        application.advance(0.25)
        clock.let_worker_look()
        assert application.starts() == 2
        application.advance(0.25)
        eventually(lambda: application.starts() == 3)


def test_edge_091_an_activated_procedure_reaches_no_other_database(application: Application) -> None:
    application.queue("orders", "begin execute 'select from template1.pg_catalog.pg_class'; end")
    application.send("orders", "one")
    with activating(application.url):
        eventually(lambda: any("cross-database" in str(line) for line in application.log("orders")))


def test_edge_074_a_task_that_finds_nothing_is_normal(application: Application) -> None:
    application.queue("orders", GATED.format(queue="orders"))
    application.send("orders", "taken by another")
    with activating(application.url):
        with held_readers(application):
            eventually(lambda: application.tasks("orders") == 1)
            application.run("select from broker.receive('orders')")
        eventually(lambda: application.tasks("orders") == 0)
        application.send("orders", "next")
        eventually(lambda: application.seen("orders") == ["next"])
        # A reader that is cancelled may have an end of its own.
        eventually(lambda: application.tasks("orders") == 0)
    assert application.numbers("orders") == []


def test_edge_076_changing_the_procedure_does_not_free_a_stuck_monitor(application: Application) -> None:
    application.queue("orders", STARTS, watchdog="0")
    application.run(
        f"create procedure public.mended() language plpgsql as $$ {LOOP.format(queue='orders', timeout='0')} $$"
    )
    application.send("orders", "first")
    application.stop_time()
    clock = CountingClock()
    with activating(application.url, clock):
        eventually(lambda: application.numbers("orders") == [28087])
        application.alter("orders", activation_procedure="public.mended")
        application.advance(3600)
        clock.let_worker_look()
        assert application.starts() == 1
        application.alter("orders", activation_status=False)
        application.alter("orders", activation_status=True)
        eventually(lambda: application.seen("orders") == ["first"])


def test_edge_077_no_readers_is_legal_and_starts_nothing(application: Application) -> None:
    application.queue("orders", LOOP.format(queue="orders", timeout="0"), max_readers=0)
    application.send("orders", "first")
    clock = CountingClock()
    with activating(application.url, clock):
        clock.let_worker_look()
        assert application.starts() == 0
        application.alter("orders", max_queue_readers=1)
        eventually(lambda: application.seen("orders") == ["first"])


def test_edge_078_a_dialog_timer_starts_a_reader(application: Application) -> None:
    application.queue(
        "orders",
        "begin insert into public.seen select 'orders', message_type_name from broker.receive('orders'); end",
    )
    dialog = application.value("select broker.begin_dialog('//orders', '//orders')")
    application.run("select broker.begin_conversation_timer(%s, interval '1 s')", dialog)
    application.stop_time()
    clock = CountingClock()
    with activating(application.url, clock):
        clock.let_worker_look()
        assert application.seen("orders") == []
        application.advance(2)
        application.run("select broker_private.fire_timers()")
        eventually(lambda: application.seen("orders"))
    assert application.seen("orders")[0].endswith("/DialogTimer")


def test_row_157_periodic_work_and_when_it_ran(application: Application) -> None:
    worker = start_worker(application.url)
    try:
        next_event(worker, "worker_ready")

        def periods() -> dict[str, float]:
            rows = application.connection.execute(
                "select name, extract(epoch from period) from broker.periodic_tasks"
                " where last_run is not null and last_error is null and description <> ''"
            )
            return {name: float(period) for name, period in rows}

        transport = {
            "transport": 10,
            "database_scan": 25,
            "probe": 3600,
            "presence": 5,
            "dispatcher": 5,
            "transmitter": 10,
            "idle_connections": 25,
            "forwarder": 25,
        }
        expected = {task.name: task.period for task in PERIODIC_TASKS} | {"queue_monitors": RAMP} | transport
        eventually(lambda: periods() == expected)
    finally:
        worker.kill()
        worker.communicate()


def test_row_157_sweep_removes_the_marks_of_a_dropped_queue(application: Application) -> None:
    application.queue("orders", LOOP.format(queue="orders", timeout="0"))
    application.run("select broker.drop_service('//orders')")
    marks = (
        "select count(*) from pg_class where relkind = 'S' and relname like 'receive_marks%'"
        " and relnamespace = 'broker_private'::regnamespace"
    )
    with psycopg.connect(application.url) as reader:
        reader.execute("select from broker.receive('orders')")
        # Who has received and not ended his transaction keeps nobody from dropping the queue.
        application.run("select broker.drop_queue('orders')")
        application.run("select broker_private.sweep()")
        assert application.value(marks) == 1
        reader.rollback()
    application.run("select broker_private.sweep()")
    assert application.value(marks) == 0


def test_row_165_the_views_of_monitors_and_activated_tasks(on_each: Application) -> None:
    on_each.queue("orders", HOLDING.format(queue="orders"))
    on_each.send("orders", "first")
    stranger = psycopg.connect(on_each.url.replace("postgres@", f"{on_each.role()}@"), autocommit=True)
    with stranger, activating(on_each.url), held_readers(on_each):
        eventually(lambda: on_each.starts() == 1)
        eventually(lambda: on_each.state("orders") == "RECEIVES_OCCURRING")
        (task,) = on_each.connection.execute(
            "select a.application_name, t.database_id = d.oid, q.name, t.procedure_name, t.execute_as"
            " from broker.dm_broker_activated_tasks t"
            " join pg_stat_activity a on a.pid = t.spid"
            " join pg_database d on d.datname = current_database()"
            " join broker.service_queues q on q.object_id = t.queue_id"
        ).fetchall()
        assert task == ("pybroker reader: orders", True, "orders", "public.run_orders", "postgres")
        with psycopg.connect(on_each.url) as waiting:
            waiting.execute("select from broker.receive('orders')")
            eventually(lambda: monitor(on_each, "tasks_waiting") == 1)
        assert stranger.execute("select from broker.dm_broker_activated_tasks").rowcount == 0
        assert stranger.execute("select from broker.dm_broker_queue_monitors").rowcount == 0
        assert stranger.execute("select from broker.activation_log").rowcount == 0
        on_each.run("select broker.grant('RECEIVE', 'QUEUE', 'orders', %s)", stranger.info.user)
        (seen,) = stranger.execute(
            "select m.state, m.tasks_waiting, t.spid = a.pid from broker.dm_broker_queue_monitors m"
            " join broker.dm_broker_activated_tasks t using (queue_id, database_id)"
            " join pg_stat_activity a on a.pid = t.spid"
        ).fetchall()
        assert seen == ("RECEIVES_OCCURRING", 0, True)
    eventually(lambda: on_each.tasks("orders") == 0)


def test_row_165_a_queue_with_a_notification_has_a_monitor_too(application: Application) -> None:
    application.run("select broker.create_queue('watchers', schema => 'public')")
    application.run(
        "select broker.create_service('//watchers', 'watchers',"
        " array['http://schemas.microsoft.com/SQL/Notifications/PostEventNotification'])"
    )
    application.run("select broker.create_queue('orders', schema => 'public')")
    application.run("select broker.create_service('//orders', 'orders', array['DEFAULT'])")
    application.run(
        "select broker.create_event_notification('n', 'orders', 'QUEUE_ACTIVATION', '//watchers')"
    )
    assert application.state("orders") == "INACTIVE"
    application.send("orders", "first")
    application.run("select broker_private.emit_queue_activations()")
    assert application.state("orders") == "NOTIFIED"
    assert monitor(application, "last_activated_time is not null")
    application.alter("orders", status=False)
    assert application.state("orders") == "INACTIVE"
    application.alter("orders", status=True)
    application.run("select broker.receive('orders')")
    assert application.state("orders") == "INACTIVE"


def test_row_166_the_counters_of_broker_activation(application: Application) -> None:
    application.queue("orders", HOLDING.format(queue="orders"))
    application.send("orders", "one", "two")
    application.stop_time()

    def counters() -> Any:
        return application.connection.execute(
            "select tasks_running, tasks_started, tasks_aborted, task_limit_reached, stored_procedures_invoked"
            " from broker.dm_broker_activation_counters where queue_name = 'orders'"
        ).fetchone()

    assert counters() == (0, 0, 0, 0, 0)
    with activating(application.url):
        with held_readers(application):
            eventually(lambda: application.starts() == 1)
            assert counters() == (1, 1, 0, 0, 1)
            eventually(lambda: application.state("orders") == "RECEIVES_OCCURRING")
            application.advance(RAMP)
            eventually(lambda: counters() == (1, 1, 0, 1, 1))
            for instance in ("orders", "_Total"):
                assert application.connection.execute(
                    "select counter_name, cntr_value, cntr_type from broker.dm_os_performance_counters"
                    " where object_name = 'SQLServer:Broker Activation' and instance_name = %s order by 1",
                    [instance],
                ).fetchall() == [
                    ("Stored Procedures Invoked/sec", 1, 272696576),
                    ("Task Limit Reached", 1, 65792),
                    ("Task Limit Reached/sec", 1, 272696576),
                    ("Tasks Aborted/sec", 0, 272696576),
                    ("Tasks Running", 1, 65792),
                    ("Tasks Started/sec", 1, 272696576),
                ]
        eventually(lambda: len(application.seen("orders")) == 2)


def test_rows_149_150_bad_procedures_end_in_their_numbers_and_other_queues_go_on(
    application: Application,
) -> None:
    changes = {
        "gone": (9614, ""),
        "function": (9620, "create function public.run_function() returns int language sql return 1"),
        "parameters": (9653, "create procedure public.run_parameters(a int) language sql as ''"),
    }
    for name, (_, change) in changes.items():
        application.queue(name, STARTS)
        application.run(f"drop procedure public.run_{name}()")
        if change:
            application.run(change)
        application.send(name, "never read")
    application.queue("orders", LOOP.format(queue="orders", timeout="0"))
    with activating(application.url):
        for name, (number, _) in changes.items():
            eventually(lambda name=name, number=number: application.numbers(name) == [number, 28088])
            assert application.state(name) == "NOTIFIED"
        application.send("orders", "first")
        eventually(lambda: application.seen("orders") == ["first"])


class StandingClock(Clock):
    """No pause ends, so what a procedure puts out within one is all that it puts out."""

    async def sleep(self, _: float) -> None:
        await asyncio.Event().wait()


def test_a_flood_of_output_is_bounded(application: Application) -> None:
    application.queue(
        "orders",
        "begin perform from broker.receive('orders');"
        " for i in 1..2000 loop raise notice 'line %', i; end loop; end",
    )
    application.run(
        "select broker_private.log_activation(q.object_id, q.name, 'p', 1, array_fill(9724, array[2500]),"
        " array_fill('NOTICE'::text, array[2500]), array(select i::text from generate_series(1, 2500) i),"
        " array_fill(null::text, array[2500]), array_fill(null::text, array[2500]))"
        " from broker.service_queues q where q.name = 'orders'"
    )
    assert [text for _, _, text, _ in application.log("orders")] == [str(i) for i in range(1501, 2501)]
    application.send("orders", "first")
    with activating(application.url, StandingClock()):
        eventually(lambda: application.log("orders")[-1][1] == "WARNING")
    assert application.log("orders")[-1][2] == "1900 more lines were put out and not kept."
    assert len(application.log("orders")) == 1000


def test_backlog_scaling_starts_a_reader_for_each_group_at_once(application: Application) -> None:
    application.queue("orders", HOLDING.format(queue="orders"), max_readers=4, scaling="BACKLOG")
    application.send("orders", "one", "two", "three")
    application.stop_time()
    clock = CountingClock()
    with activating(application.url, clock):
        with held_readers(application):
            eventually(lambda: application.starts() == 3)
            application.send("orders", *map(str, range(10)))
            application.advance(0.25)
            eventually(lambda: application.starts() == 4)
            application.advance(1)
            clock.let_worker_look()
            assert application.tasks("orders") == 4
        eventually(lambda: len(application.seen("orders")) == 13)


def test_a_killed_worker_s_readers_still_count_and_another_worker_takes_over(
    application: Application,
) -> None:
    application.queue("orders", HOLDING.format(queue="orders"), max_readers=1)
    application.queue("invoices", ONE_MESSAGE.format(queue="invoices"))
    application.send("orders", "one", "two")
    with held_readers(application):
        killed = start_worker(application.url)
        try:
            next_event(killed, "worker_ready")
            eventually(lambda: application.tasks("orders") == 1)
            eventually(lambda: application.starts() == 1)
            os.kill(killed.pid, signal.SIGKILL)
            killed.wait()
            clock = CountingClock()
            with activating(application.url, clock):
                application.send("invoices", "first")
                eventually(lambda: application.seen("invoices") == ["first"])
                clock.let_worker_look()
                # The killed worker's reader runs on, in its slot.
                assert application.tasks("orders") == 1
                application.run("select pg_advisory_unlock(1)")
                eventually(lambda: application.seen("orders") == ["one", "two"])
                eventually(lambda: application.tasks("orders") == 0)
                application.send("orders", "three")
                eventually(lambda: "three" in application.seen("orders"))
                application.run("select pg_advisory_lock(1)")
        finally:
            killed.kill()
            killed.communicate()


def test_a_reader_lost_with_its_server_leaves_no_monitor_stuck(application: Application) -> None:
    application.queue("orders", GATED.format(queue="orders"), watchdog="0")
    application.send("orders", "first")
    application.slow_time()
    with activating(application.url):
        with held_readers(application):
            eventually(lambda: application.tasks("orders") == 1)
        eventually(lambda: application.seen("orders") == ["first"])
    # As a crash, or a standby that takes over, leaves it: unlogged tables are empty, and sequences begin anew.
    application.send("orders", "second")
    application.run("update broker_private.queue_monitors set state = 'NOTIFIED', notified_mark = 0")
    application.run("truncate broker_private.activated_tasks")
    application.run("select setval(receive_marks, 1, false) from broker_private.queues where name = 'orders'")
    with activating(application.url):
        eventually(lambda: application.seen("orders") == ["first", "second"])


def test_a_reader_whose_session_is_ended_is_replaced(application: Application) -> None:
    application.queue("orders", GATED.format(queue="orders"), watchdog="0")
    application.send("orders", "first")
    with activating(application.url), held_readers(application):
        eventually(lambda: application.tasks("orders") == 1)
        ended = application.value(
            "select spid from broker.dm_broker_activated_tasks where pg_terminate_backend(spid)"
        )
        eventually(lambda: 28088 in application.numbers("orders"))
        eventually(lambda: application.tasks("orders") == 1)
        assert application.value("select spid from broker.dm_broker_activated_tasks") != ended


def test_a_look_at_the_monitors_waits_for_no_reader_that_ends(application: Application) -> None:
    application.queue("orders", LOOP.format(queue="orders", timeout="0"))
    application.send("orders", "first")
    with psycopg.connect(application.url) as gone:
        task = gone.execute("select task_id, queue_id from broker_private.activate_queues()").fetchone()
    assert task is not None
    looker, holder, ender = (psycopg.connect(application.url, autocommit=True) for _ in range(3))
    with looker, holder, ender, ThreadPoolExecutor() as pool:
        with holder.transaction():
            holder.execute("select from broker_private.activated_tasks for update")
            ending = pool.submit(
                lambda: ender.execute(
                    "select broker_private.end_task(%s, %s, 'LOST', false)", task
                ).fetchone()
            )
            waits = "select wait_event_type = 'Lock' from pg_stat_activity where pid = %s"
            eventually(lambda: application.value(waits, ender.info.backend_pid))
            looker.execute("set statement_timeout = '30s'")
            assert looker.execute("select from broker_private.activate_queues()").fetchall() == []
        assert ending.result(PATIENCE) == (28088,)
    assert application.tasks("orders") == 0


def test_readers_come_and_go_without_a_pause(application: Application) -> None:
    application.queue("orders", LOOP.format(queue="orders", timeout="0"), watchdog="0")
    application.slow_time()
    with activating(application.url):
        for number in range(5):
            application.send("orders", f"order {number}")
            eventually(lambda number=number: len(application.seen("orders")) == number + 1)
            eventually(lambda: application.state("orders") == "INACTIVE")


def test_two_workers_share_one_queue_and_never_go_above_its_readers(application: Application) -> None:
    application.queue("orders", HOLDING.format(queue="orders"), max_readers=2)
    bodies = [f"order {number:02}" for number in range(20)]
    application.send("orders", *bodies)
    application.stop_time()
    first, second = CountingClock(), CountingClock()
    # Before the workers begin: the first might be through while the second one starts.
    with (
        held_readers(application),
        activating(application.url, first),
        activating(application.url, second),
    ):
        steps = itertools.count(1)

        def running() -> int:
            application.advance(next(steps) * RAMP)
            first.let_worker_look()
            second.let_worker_look()
            return application.tasks("orders")

        # On a busy machine a worker may look at fewer moments than there are.
        eventually(lambda: running() == 2)
        assert [running() for _ in range(3)] == [2, 2, 2]
        application.run("select pg_advisory_unlock(1)")
        eventually(lambda: application.seen("orders") == bodies)
        application.run("select pg_advisory_lock(1)")
    assert application.value("select tasks_started from broker.dm_broker_activation_counters") >= 2


def test_sigterm_rolls_no_reader_back(application: Application) -> None:
    application.queue("orders", HOLDING.format(queue="orders"))
    application.send("orders", "first")
    with held_readers(application):
        worker = start_worker(application.url, grace=0)
        try:
            next_event(worker, "worker_ready")
            eventually(lambda: application.starts() == 1)
            worker.terminate()
            assert worker.wait() == 0
            assert application.tasks("orders") == 1
            application.run("select pg_advisory_unlock(1)")
            eventually(lambda: application.seen("orders") == ["first"])
            eventually(lambda: application.tasks("orders") == 0)
            application.run("select pg_advisory_lock(1)")
        finally:
            worker.kill()
            worker.communicate()


def test_the_whitepaper_s_activation_procedure(application: Application) -> None:
    application.run("create table public.message_drop (body bytea)")
    application.run("create table public.receive_times (received integer, took interval)")
    application.queue("target", WHITEPAPER.format(queue="target", timeout="100 ms"), max_readers=16)
    for size in (100, 8000):
        application.send_on_one_dialog("target", *["x" * size] * 50)
    with activating(application.url):
        eventually(lambda: application.value("select count(*) from public.message_drop") == 100)
        eventually(lambda: application.tasks("target") == 0)
    assert application.value("select max(length(body)) from public.message_drop") == 2000
    assert application.value("select sum(received) from public.receive_times") == 100
    assert application.numbers("target") == []


def test_the_whitepaper_s_tip_bad_messages_are_noted_and_nothing_is_rolled_back(
    application: Application,
) -> None:
    application.run("create table public.bad_messages (body text, error text)")
    application.queue(
        "target",
        """
        declare
          message record;
          received integer := 0;
        begin
          for message in select * from broker.receive('target', top => 1000) loop
            begin
              insert into public.seen (queue, body)
              values ('target', convert_from(message.message_body, 'UTF8')::integer::text);
            exception when others then
              insert into public.bad_messages values (convert_from(message.message_body, 'UTF8'), sqlerrm);
            end;
          end loop;
        end
        """,
    )
    application.send_on_one_dialog("target", "1", "two", "3", "four", "5")
    with activating(application.url):
        eventually(lambda: application.seen("target") == ["1", "3", "5"])
    bad = application.connection.execute("select body from public.bad_messages order by body").fetchall()
    assert bad == [("four",), ("two",)]
    assert application.value("select count(*) from target") == 0
    assert application.value("select is_receive_enabled from broker.service_queues where name = 'target'")
