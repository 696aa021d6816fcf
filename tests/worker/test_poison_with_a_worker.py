"""Poison messages as a worker meets them: procedures that find nothing, that raise each time, and that are stopped half-way."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from pybroker.workers.clock import Clock
from tests.activated import (
    BOOK,
    CLI,
    HOLDING,
    ONE_MESSAGE,
    PATIENCE,
    REPOSITORY,
    WHITEPAPER,
    Application,
    activating,
    eventually,
    next_event,
    start_worker,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.conftest import Database

NOTIFICATIONS = "http://schemas.microsoft.com/SQL/Notifications/PostEventNotification"

RAISING = """
declare
  message record;
begin
  perform nextval('public.starts');
  for message in select * from broker.receive('{queue}', top => 10) loop
    if convert_from(message.message_body, 'UTF8') = 'poison' then
      raise exception 'out of paper' using errcode = 'XX123';
    end if;
    insert into public.seen (queue, body) values ('{queue}', convert_from(message.message_body, 'UTF8'));
  end loop;
end
"""


@pytest.fixture
def application(database: Database) -> Iterator[Application]:
    made = Application(database)
    yield made
    made.close()


@contextmanager
def worker_of(application: Application) -> Iterator[subprocess.Popen[str]]:
    process = start_worker(application.url)
    try:
        next_event(process, "worker_ready")
        yield process
    finally:
        process.kill()
        process.communicate()


def hurry(application: Application, condition: Callable[[], Any]) -> Any:
    """Return the condition's first true value; the worker's back-offs are over with each look, as a minute has passed."""

    def advance() -> Any:
        value = condition()
        if not value:
            application.put_forward(60)
        return value

    return eventually(advance)


def is_on(application: Application, queue: str) -> bool:
    on: bool = application.value(
        "select is_receive_enabled and is_enqueue_enabled from broker.service_queues where name = %s", queue
    )
    return on


def test_ten_idle_rounds_of_the_printed_procedures_leave_the_queue_on(application: Application) -> None:
    application.run("create table public.message_drop (body bytea)")
    application.run("create table public.receive_times (received integer, took interval)")
    printed = {"papers": WHITEPAPER, "trades": BOOK}
    for queue, procedure in printed.items():
        application.run(f"create sequence public.rounds_{queue}")
        counted = procedure.replace(
            "begin\n  loop", f"begin\n  perform nextval('public.rounds_{queue}');\n  loop"
        )
        # The timeouts are 3 and 10 seconds in print.
        application.queue(queue, counted.format(queue=queue, timeout="1 ms"), watchdog="0")
        application.send(queue, "first")

    def rounds(queue: str) -> int:
        number: int = application.value(
            f"select case when is_called then last_value else 0 end from public.rounds_{queue}"
        )
        return number

    with psycopg.connect(application.url) as holder:
        # The readers find messages that somebody else holds, so none has received anything.
        for queue in printed:
            holder.execute("select broker.get_conversation_group(%s)", (queue,))
        with worker_of(application):
            hurry(application, lambda: all(rounds(queue) >= 11 for queue in printed))
            assert all(is_on(application, queue) for queue in printed)
            holder.rollback()
            hurry(application, lambda: application.seen("trades") == ["first"])
            hurry(application, lambda: application.value("select count(*) from public.message_drop") == 1)
    assert not any(application.numbers(queue) for queue in printed)


def test_a_procedure_that_raises_each_time_turns_its_queue_off_after_five_rollbacks(
    application: Application,
) -> None:
    application.run("select broker.create_queue('alarms', schema => 'public')")
    application.run("select broker.create_service('//alarms', 'alarms', array[%s])", NOTIFICATIONS)
    application.queue("orders", RAISING.format(queue="orders"), watchdog="0")
    application.queue("invoices", ONE_MESSAGE.format(queue="invoices"))
    application.run("alter sequence public.starts restart")
    application.run(
        "select broker.create_event_notification('off', 'orders', 'BROKER_QUEUE_DISABLED', '//alarms')"
    )
    application.send_on_one_dialog("orders", "before", "poison")
    with worker_of(application) as worker:
        hurry(application, lambda: not is_on(application, "orders"))
        assert next_event(worker, "queue_disabled")["queue"] == "orders"
        assert application.starts() == 5
        application.send("invoices", "first")
        eventually(lambda: application.seen("invoices") == ["first"])
        eventually(lambda: len(application.log("orders")) >= 10)
    with pytest.raises(psycopg.Error) as refused:
        application.run("select broker.receive('orders')")
    assert refused.value.sqlstate == "S9617"
    assert application.log("orders")[:2] == [
        (9724, "ERROR", "out of paper", "XX123"),
        (28088, "ERROR", "The activated task was ended by an error: out of paper", "XX123"),
    ]
    assert application.seen("orders") == []
    assert application.value("select count(*) from orders") == 2
    event = "select convert_from(message_body, 'UTF8') from broker.receive('alarms')"
    assert "BROKER_QUEUE_DISABLED" in application.value(event)
    assert application.state("orders") == "INACTIVE"


def test_a_worker_quarantines_the_one_conversation_and_redrive_processes_it(application: Application) -> None:
    application.queue("orders", RAISING.format(queue="orders"), watchdog="0", poison_action="QUARANTINE")
    application.send_on_one_dialog("orders", "poison", "behind")
    application.send("orders", "one", "two", "three")

    def quarantine() -> list[tuple[Any, ...]]:
        return application.connection.execute(
            "select conversation_handle, convert_from(message_body, 'UTF8'), failures, last_error, messages_waiting"
            " from broker.quarantine"
        ).fetchall()

    with worker_of(application):
        hurry(application, lambda: quarantine() and quarantine()[0][3])
        ((handle, *failed),) = quarantine()
        assert failed == ["poison", 5, "out of paper", 2]
        application.send("orders", "four")
        hurry(application, lambda: application.seen("orders") == ["four", "one", "three", "two"])
        assert is_on(application, "orders")
        # What it could not do is mended.
        mended = RAISING.format(queue="orders").replace("= 'poison'", "= 'none'")
        application.run(
            f"create or replace procedure public.run_orders() language plpgsql as $body$ {mended} $body$"
        )
        redriven = subprocess.run(
            [sys.executable, "-c", CLI, "redrive", str(handle), "--database-url", application.url],
            cwd=REPOSITORY,
            env={name: value for name, value in os.environ.items() if not name.startswith("PYBROKER_")},
            timeout=PATIENCE,
            check=False,
        )
        assert redriven.returncode == 0
        hurry(application, lambda: {"poison", "behind"} <= set(application.seen("orders")))
        assert quarantine() == []


def test_a_stop_in_the_middle_of_a_transaction_is_not_the_fifth_rollback(application: Application) -> None:
    application.queue("orders", HOLDING.format(queue="orders"), activation_status=False)
    application.send("orders", "first")
    with psycopg.connect(application.url) as reader:
        for _ in range(4):
            reader.execute("select broker.receive('orders')")
            reader.rollback()
    application.run("select pg_advisory_lock(1)")
    application.alter("orders", activation_status=True)
    with activating(application.url, Clock(), grace=0.01):
        eventually(lambda: application.starts() == 1)
        eventually(
            lambda: application.value(
                "select count(*) from pg_locks where locktype = 'advisory' and not granted"
            )
        )
    # The worker is gone; what it started has received, and goes on.
    assert application.tasks("orders") == 1
    assert is_on(application, "orders")
    assert application.connection.execute("select from broker.receive('orders')").fetchall() == []
    application.run("select pg_advisory_unlock(1)")
    eventually(lambda: application.seen("orders") == ["first"])
    eventually(lambda: application.tasks("orders") == 0)
    application.send("orders", "second")
    assert application.connection.execute("select from broker.receive('orders')").fetchall() != []
