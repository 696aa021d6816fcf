"""Service programs in Python: what their authors lean on, with real processes, signals and kills."""

from __future__ import annotations

import asyncio
import logging
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import pybroker
from pybroker import App
from tests.activated import PATIENCE
from tests.shop import ERROR, Session, Shop, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pybroker import AsyncProgramConversation, ProgramConversation
    from tests.conftest import Database


@dataclass
class Order:
    id: int
    articles: list[str] = field(default_factory=list)


@dataclass
class Tally:
    orders: int = 0


@pytest.fixture
def shop(database: Database) -> Iterator[Shop]:
    shop = Shop(database)
    yield shop
    shop.close()


@contextmanager
def running(app: App) -> Iterator[None]:
    """Run an application in a thread, and stop it at the end."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            app.run()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        app.stop()
        thread.join()
    assert not failures, failures


def waiting(psql: Session, queue: str) -> int:
    return psql.value("select ready from broker.queue_depths where queue_name = %s", queue)


def order(psql: Session, body: bytes = b'{"id": 1}', **options: object) -> Any:
    dialog = psql.dialog(**options)
    psql.send(dialog, "order", body)
    return dialog


def test_a_handler_gets_the_body_as_its_annotation_says_and_replies_in_the_same_transaction(
    shop: Shop,
) -> None:
    app = App(shop.database.url)
    program = app.service_program("warehouse", max_queue_readers=2)
    seen = []

    @program.on("order")
    def fulfil(conversation: ProgramConversation, order: Order) -> None:
        seen.append(order)
        conversation.connection.execute("insert into fulfilled values (%s)", (order.id,))
        conversation.send("ack", {"id": order.id})

    @program.on("nudge")
    def nudge(conversation: Any, message: pybroker.Message) -> None:
        message.reply("nudge")

    @program.on("invoice")
    @program.on("DEFAULT")
    def take(conversation: Any, body: bytes) -> None:
        seen.append(body)

    shop.psql.rows("create table fulfilled (id integer)")
    with running(app):
        dialog = order(shop.psql, b'{"id": 7, "articles": ["ink"]}')
        shop.psql.send(dialog, "nudge")
        until(lambda: waiting(shop.psql, "shop") == 2)
        assert shop.psql.receive("shop") == [("ack", 0, b'{"id":7}'), ("nudge", 1, None)]
        assert shop.psql.rows("select id from fulfilled") == [(7,)]
        assert seen == [Order(7, ["ink"])]
        shop.psql.end(dialog)
        until(
            lambda: (
                shop.psql.value("select count(*) from broker.conversation_endpoints where state <> 'CD'") == 0
            )
        )


def test_an_error_that_the_database_cannot_store_ends_no_application(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    # What pytest's processes tell each other can't hold such a text either.
    caplog.set_level(logging.CRITICAL, "pybroker")
    app = App(shop.database.url)

    @app.service_program("warehouse")
    def fulfil(conversation: ProgramConversation) -> None:
        raise ValueError("no such article: a\0b \ud800")

    shop.psql.rows("select broker.alter_queue('warehouse', poison_action => 'QUARANTINE')")
    order(shop.psql)
    with running(app):
        until(lambda: shop.psql.value("select count(*) from broker.quarantine") == 1)
    told = shop.psql.value("select last_error from broker.quarantine")
    assert told == "ValueError: no such article: a\\x00b \\ud800"


def test_a_function_gets_each_conversation_with_its_messages(shop: Shop) -> None:
    app = App(shop.database.url)
    calls = []

    @app.service_program("warehouse")
    def fulfil(conversation: ProgramConversation) -> None:
        calls.append((conversation.service_name, [message.body for message in conversation.messages]))
        conversation.end(error_code=7, error_description="sold out")

    dialog = shop.psql.dialog()
    for body in (b"1", b"2", b"3"):
        shop.psql.send(dialog, "order", body)
    with running(app):
        until(lambda: shop.psql.state(dialog) == "ER")
    assert calls == [("//warehouse", [b"1", b"2", b"3"])]
    assert shop.psql.receive("shop")[0][0] == ERROR


def test_async_handlers_have_the_same_shape(shop: Shop) -> None:
    app = App(shop.database.url)
    program = app.service_program("warehouse", max_queue_readers=3, state=Tally, state_table="tallies")

    @program.on("order")
    async def fulfil(conversation: AsyncProgramConversation, order: Order) -> None:
        conversation.state.orders += 1
        await (await conversation.connection()).execute("insert into fulfilled values (%s)", (order.id,))
        await asyncio.sleep(0)
        await conversation.send("ack", str(conversation.state.orders))

    @program
    async def other(conversation: AsyncProgramConversation) -> None:
        await conversation.end()

    shop.psql.rows("create table fulfilled (id integer)")
    shop.psql.rows("create table tallies (conversation_group_id uuid primary key, state jsonb)")
    with running(app):
        dialogs = [order(shop.psql, f'{{"id": {number}}}'.encode()) for number in range(5)]
        until(lambda: shop.psql.value("select count(*) from fulfilled") == 5)
        until(lambda: waiting(shop.psql, "shop") == 5)
        for dialog in dialogs:
            assert shop.psql.receive("shop", conversation_handle=dialog) == [("ack", 0, b"1")]
            shop.psql.end(dialog)
        until(
            lambda: (
                shop.psql.value("select count(*) from broker.conversation_endpoints where state <> 'CD'") == 0
            )
        )
    assert shop.psql.rows("select state from tallies") == [({"orders": 1},)] * 5


def test_state_belongs_to_the_group_and_rolls_back_with_the_messages(shop: Shop) -> None:
    app = App(shop.database.url)
    program = app.service_program("shop", state=Tally, state_table="tallies", top=1)
    fails = [True]

    @program.on("ack")
    def acknowledge(conversation: ProgramConversation) -> None:
        conversation.state.orders += 1
        if conversation.state.orders == 2 and fails.pop():
            fails.append(False)
            raise RuntimeError("not yet")
        if conversation.state.orders == 3:
            conversation.forget_state()

    psql = shop.psql
    psql.rows("create table tallies (conversation_group_id uuid primary key, state jsonb)")
    first = order(psql)
    second = order(psql, related_conversation=first)
    for dialog in (first, second):
        psql.send(psql.handle_of(dialog), "ack")
    psql.bodies(), psql.bodies()
    with running(app):
        until(lambda: psql.rows("select state from tallies") == [({"orders": 2},)])
        psql.send(psql.handle_of(first), "ack")
        until(lambda: psql.rows("select state from tallies") == [])


def test_end_dialog_error_and_timer_are_handled_unless_the_program_does(shop: Shop) -> None:
    psql = shop.psql
    app = App(shop.database.url)
    seen = []

    @app.service_program("shop")
    def answer(conversation: ProgramConversation) -> None:
        seen.append("answer")

    @answer.on("http://schemas.microsoft.com/SQL/ServiceBroker/DialogTimer")
    def timer(conversation: ProgramConversation) -> None:
        seen.append("timer")

    ended, failed, timed = order(psql), order(psql), order(psql)
    for _ in range(3):
        psql.receive()
    psql.end(psql.handle_of(ended))
    psql.end(psql.handle_of(failed), 5, "no")
    psql.rows("select broker.begin_conversation_timer(%s, '1 millisecond')", timed)
    with running(app):
        until(lambda: psql.state(ended) is None and psql.state(failed) is None)
        until(lambda: psql.value("select broker_private.fire_timers()") or seen)
        until(lambda: seen)
    assert seen == ["timer"]
    assert psql.state(timed) == "CO"


def test_a_message_whose_handler_fails_comes_back_and_others_go_on(shop: Shop) -> None:
    app = App(shop.database.url)
    done = []
    tries = []

    @app.service_program("warehouse", max_queue_readers=2)
    def fulfil(conversation: ProgramConversation) -> None:
        body = conversation.messages[0].body
        if body == b"bad" and len(tries) < 3:
            tries.append(body)
            raise RuntimeError("not today")
        done.append(body)

    order(shop.psql, b"bad")
    for number in range(5):
        order(shop.psql, str(number).encode())
    with running(app):
        until(lambda: len(done) == 6)
    assert len(tries) == 3
    assert sorted(done) == [b"0", b"1", b"2", b"3", b"4", b"bad"]


def test_a_body_that_does_not_fit_its_type_is_quarantined_with_its_error(shop: Shop) -> None:
    psql = shop.psql
    psql.rows("select broker.alter_queue('warehouse', poison_action => 'QUARANTINE')")
    app = App(shop.database.url)
    program = app.service_program("warehouse")
    done = []

    @program.on("order")
    def fulfil(conversation: ProgramConversation, order: Order) -> None:
        done.append(order.id)

    @program
    def other(conversation: ProgramConversation) -> None:
        done.append("other")

    order(psql, b'{"id": "seven"}')
    with running(app):
        until(lambda: psql.rows("select from broker.quarantine"))
        order(psql, b'{"id": 8}')
        until(lambda: done == [8])
    assert "Expected `int`" in psql.value("select q::text from broker.quarantine q")


PROGRAM = """
import logging, os, sys, time
import pybroker

app = pybroker.App(sys.argv[1])

@app.service_program("warehouse", max_queue_readers=3, top=7)
def fulfil(conversation):
    for message in conversation.messages:
        conversation.connection.execute(
            "insert into ledger (dialog, number, worker) values (%s, %s, %s)",
            (conversation.handle, message.message_sequence_number, os.getpid()),
        )
        if message.text == "slow":
            print("slow", flush=True)
            time.sleep(0.5)
        if message.text == "stuck":
            logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
            print("stuck", flush=True)
            time.sleep(3600)
        conversation.send("ack", message.body)

print("started", flush=True)
app.run()
print("ended", flush=True)
"""


@contextmanager
def processes(shop: Shop, directory: Path, count: int) -> Iterator[list[subprocess.Popen[str]]]:
    """Start so many processes of one program; those that still run at the end are killed."""
    script = directory / "program.py"
    script.write_text(PROGRAM)
    shop.psql.rows("create table ledger (place bigserial, dialog uuid, number bigint, worker integer)")
    started = [
        subprocess.Popen(
            [sys.executable, str(script), shop.database.url],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for _ in range(count)
    ]
    try:
        yield started
    finally:
        for process in started:
            process.kill()
            process.communicate()


def test_a_program_that_is_told_to_stop_finishes_what_it_has_received(shop: Shop, tmp_path: Path) -> None:
    order(shop.psql, b"slow")
    with processes(shop, tmp_path, 1) as (process,):
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        assert [next(lines), next(lines)] == ["started\n", "slow\n"]
        process.send_signal(signal.SIGTERM)
        assert next(lines) == "ended\n"
        assert process.wait() == 0
    assert shop.psql.value("select count(*) from ledger") == 1
    assert shop.psql.bodies("shop") == [b"slow"]


@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_ends_a_program_at_once_and_loses_nothing(
    shop: Shop, tmp_path: Path, second: signal.Signals
) -> None:
    order(shop.psql, b"stuck")
    with processes(shop, tmp_path, 1) as (process,):
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        assert [next(lines), next(lines)] == ["started\n", "stuck\n"]
        process.send_signal(signal.SIGINT)
        assert next(lines) == "SIGINT: stopping; a second one ends the process at once\n"
        process.send_signal(second)
        rest, _ = process.communicate(timeout=PATIENCE)
        assert process.returncode == -second
        assert rest == ""
    until(lambda: waiting(shop.psql, "warehouse") == 1)


def test_programs_on_several_hosts_share_a_queue_and_one_that_is_killed_loses_nothing(
    shop: Shop, tmp_path: Path
) -> None:
    psql = shop.psql
    dialogs = [psql.dialog() for _ in range(30)]
    with processes(shop, tmp_path, 2) as started:
        for round_number in range(10):
            for dialog in dialogs:
                psql.send(dialog, "order", str(round_number).encode())
            if round_number == 5:
                until(lambda: psql.rows("select from ledger limit 1"))
                victim = psql.value("select worker from ledger order by place desc limit 1")
                next(process for process in started if process.pid == victim).kill()
        until(lambda: psql.value("select count(*) from ledger") >= 300)
        until(lambda: waiting(psql, "shop") == 300)
    taken = psql.rows("select dialog, array_agg(number order by place) from ledger group by dialog")
    assert [numbers for _, numbers in taken] == [list(range(10))] * 30


def test_readers_come_back_when_their_connections_are_cut(shop: Shop) -> None:
    app = App(shop.database.url)
    done = []

    @app.service_program("warehouse", max_queue_readers=2)
    def fulfil(conversation: ProgramConversation) -> None:
        done.extend(message.body for message in conversation.messages)

    with running(app):
        order(shop.psql, b"1")
        until(lambda: done == [b"1"])
        # A reader that is cut off before its commit gets the message again.
        until(lambda: waiting(shop.psql, "warehouse") == 0)
        shop.psql.rows(
            "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
        )
        order(shop.psql, b"2")
        until(lambda: done == [b"1", b"2"])


def test_a_program_that_could_not_work_says_so_before_the_first_message(shop: Shop) -> None:
    url = shop.database.url
    with pytest.raises(LookupError, match="no service program"):
        App(url).run()

    app = App(url)
    app.service_program("nowhere")
    with pytest.raises(pybroker.QueueNotFound) as missing:
        app.run()
    assert missing.value.number == 208

    app = App(url)
    program = app.service_program("warehouse")
    program.on("order")(lambda conversation: None)
    with pytest.raises(LookupError, match='"DEFAULT", "invoice", "nudge"'):
        app.run()
    program.on("oder")(lambda conversation: None)
    with pytest.raises(LookupError, match='do not exist: "oder"'):
        app.run()

    role = shop.database.role()
    app = App(shop.database.server.url(shop.database.name, user=role))
    app.service_program("warehouse")
    with pytest.raises(pybroker.PermissionDenied):
        app.run()

    with pytest.raises(psycopg.ProgrammingError):
        App("no url at all")


def test_a_program_that_is_written_wrong_is_refused_where_it_is_written(shop: Shop) -> None:
    app = App(shop.database.url)
    for wrong in ({"max_queue_readers": 0}, {"top": 0}, {"state": Tally}, {"state_table": "tallies"}):
        with pytest.raises(ValueError, match=r"\."):
            app.service_program("shop", **wrong)  # type: ignore[arg-type]
    program = app.service_program("warehouse")
    with pytest.raises(ValueError, match="has a program"):
        app.service_program("warehouse")

    @program
    def fulfil(conversation: Any) -> None: ...

    with pytest.raises(TypeError, match="has a function"):
        program(lambda conversation: None)

    async def handler(conversation: Any) -> None: ...

    with pytest.raises(TypeError, match="all be async"):
        program.on("order")(handler)
    with pytest.raises(TypeError, match="takes 3"):
        program.on("order")(lambda conversation, body, more: None)
    program.on("ack")(lambda conversation: None)
    with pytest.raises(TypeError, match='"ack" already'):
        program.on("ack")(lambda conversation: None)


def test_a_queue_that_is_off_is_waited_for(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pybroker.programs.reader._DISABLED_PAUSE", 0.05)
    app = App(shop.database.url)
    done = []

    @app.service_program("warehouse")
    def fulfil(conversation: ProgramConversation) -> None:
        done.append(conversation.handle)

    with running(app):
        order(shop.psql)
        until(lambda: len(done) == 1)
        shop.psql.rows("select broker.alter_queue('warehouse', status => false)")
        order(shop.psql)
        shop.psql.rows("select broker.alter_queue('warehouse', status => true)")
        until(lambda: len(done) == 2)
