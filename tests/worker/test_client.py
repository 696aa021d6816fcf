"""The Python client: what a program may rely on, in sync and async alike."""

from __future__ import annotations

import asyncio
import dataclasses
import math
import os
import pickle
import re
import threading
import uuid
from contextlib import ExitStack
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import psycopg
import pytest
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool, ConnectionPool

import pybroker
from pybroker.embedded import EmbeddedServerError
from pybroker.errors import broker_errors
from pybroker.message import DIALOG_TIMER_MESSAGE_TYPE, END_DIALOG_MESSAGE_TYPE, ERROR_MESSAGE_TYPE
from tests.patience import PATIENCE
from tests.shop import in_background, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.conftest import Database

SHOP, WAREHOUSE, CONTRACT = "//shop/orders", "//warehouse/fulfilment", "//shop/ordering"
ORDER, ACK, INVOICE, NOTHING, LABEL = (
    "//shop/order",
    "//shop/ack",
    "//shop/invoice",
    "//shop/nothing",
    "//shop/label",
)


@dataclasses.dataclass
class Line:
    price: Decimal
    sizes: tuple[int, ...] = ()


class Order(msgspec.Struct):
    """What a program would send: every type that JSON knows nothing of."""

    id: uuid.UUID
    placed_at: datetime
    lines: list[Line]
    due: date | None = None


class Blocking:
    """An async object whose methods can be called without await, so that one test serves both clients."""

    def __init__(self, target: Any, runner: asyncio.Runner) -> None:
        self.target = target
        self.runner = runner

    def __getattr__(self, name: str) -> Any:
        return self._blocking(getattr(self.target, name))

    def __enter__(self) -> Any:
        return self._blocking(self.target.__aenter__())

    def __exit__(self, *error: object) -> Any:
        return self.runner.run(self.target.__aexit__(*error))

    def __eq__(self, other: object) -> bool:
        return self.target == (other.target if isinstance(other, Blocking) else other)

    __hash__ = None

    def _blocking(self, value: Any) -> Any:
        if asyncio.iscoroutine(value):
            return self._blocking(self.runner.run(value))
        if isinstance(value, list):
            return [self._blocking(one) for one in value]
        if "Async" in type(value).__name__:
            return Blocking(value, self.runner)
        if callable(value):
            return lambda *arguments, **named: self._blocking(value(*arguments, **named))
        return value


class Client:
    """Opens brokers of one flavour, sync or async, over whatever a program may have."""

    def __init__(self, url: str, runner: asyncio.Runner | None) -> None:
        self.url = url
        self.runner = runner
        self.held = ExitStack()

    def _open(self, sync: Callable[[], Any], asynchronous: Callable[[], Any]) -> Any:
        if self.runner is None:
            return self.held.enter_context(sync())

        async def opened() -> Any:
            value = asynchronous()
            return await value if asyncio.iscoroutine(value) else value

        return self.held.enter_context(Blocking(self.runner.run(opened()), self.runner))

    def connection(self, **options: Any) -> Any:
        return self._open(
            lambda: psycopg.connect(self.url, **options),
            lambda: psycopg.AsyncConnection.connect(self.url, **options),
        )

    def pool(self, **options: Any) -> Any:
        size = {"min_size": 1, "max_size": 4, "kwargs": options}
        return self._open(
            lambda: ConnectionPool(self.url, open=False, **size),
            lambda: AsyncConnectionPool(self.url, open=False, **size),
        )

    def broker(self, source: Any = None, **options: Any) -> Any:
        source = getattr(source, "target", source) or self.url
        return self._open(
            lambda: pybroker.connect(source, **options), lambda: pybroker.connect_async(source, **options)
        )

    def broker_over(self, kind: str, **options: Any) -> Any:
        if kind == "url":
            return self.broker(**options)
        if kind == "pool":
            return self.broker(self.pool(**options))
        return self.broker(self.connection(autocommit=True, **options))


@pytest.fixture
def shop(database: Database) -> Database:
    """A database with the shop's and the warehouse's services, and a table of the program's own."""
    with database.connect() as session:
        for statement in (
            f"select broker.create_message_type('{ORDER}')",
            f"select broker.create_message_type('{ACK}')",
            f"select broker.create_message_type('{LABEL}')",
            f"select broker.create_message_type('{INVOICE}', 'WELL_FORMED_XML')",
            f"select broker.create_message_type('{NOTHING}', 'EMPTY')",
            f"select broker.create_contract('{CONTRACT}', '{{{ORDER},{INVOICE},{NOTHING}}}', '{{{ACK}}}')",
            "select broker.create_queue('orders')",
            "select broker.create_queue('fulfilment')",
            f"select broker.create_service('{SHOP}', 'orders')",
            f"select broker.create_service('{WAREHOUSE}', 'fulfilment', array['{CONTRACT}'])",
            "create table book (line text)",
        ):
            session.execute(statement.encode())
    return database


@pytest.fixture(params=["sync", "async"])
def client(request: pytest.FixtureRequest, shop: Database) -> Iterator[Client]:
    with ExitStack() as stack:
        runner = stack.enter_context(asyncio.Runner()) if request.param == "async" else None
        client = Client(shop.url, runner)
        stack.enter_context(client.held)
        yield client


@pytest.fixture(params=["url", "connection", "pool"])
def broker(request: pytest.FixtureRequest, client: Client) -> Any:
    return client.broker_over(request.param)


def begin(broker: Any, **options: Any) -> Any:
    return broker.begin_dialog(SHOP, WAREHOUSE, contract=CONTRACT, **options)


def waiting_messages(shop: Database, queue: str = "fulfilment") -> int:
    with shop.connect() as session:
        (count,) = session.execute(f"select count(*) from public.{queue}".encode()).fetchone()
        return count


def bodies(messages: list[Any]) -> list[bytes]:
    return [message.body for message in messages]


def test_a_dialog_goes_there_and_back_and_ends(broker: Any) -> None:
    with broker.transaction():
        dialog = begin(broker)
        dialog.send(ORDER, {"id": 1})
    with broker.transaction():
        for message in broker.receive("fulfilment", top=100, timeout=3):
            assert message.json() == {"id": 1}
            message.reply(ACK, b"done")
            message.conversation.end()
    with broker.transaction():
        ack, end = broker.receive("orders", timeout=3)
        assert (ack.message_type_name, ack.body, ack.message_sequence_number) == (ACK, b"done", 0)
        assert ack.conversation == dialog
        assert end.is_end_dialog
        end.conversation.end()


def test_a_message_has_the_columns_of_broker_message(client: Client, shop: Database) -> None:
    with shop.connect() as session:
        rows = session.execute(
            "select attname from pg_attribute where attrelid = 'broker.message'::regclass order by attnum"
        ).fetchall()
    for kind in (pybroker.Message, pybroker.AsyncMessage):
        assert [f.name for f in dataclasses.fields(kind)] == [
            *(name for (name,) in rows),
            "conversation",
            "traceparent",
        ]
    broker = client.broker()
    begin(broker).send(ORDER, b"x")
    (message,) = broker.receive("fulfilment")
    assert (message.status, message.service_name, message.validation) == (0, WAREHOUSE, "N")
    assert message.message_enqueue_time.tzinfo is not None
    assert message.conversation.handle == message.conversation_handle


@pytest.mark.parametrize(
    ("body", "stored"),
    [
        (b"\x00\xff", b"\x00\xff"),
        (bytearray(b"ab"), b"ab"),
        (memoryview(b"ab"), b"ab"),
        ("größe", "größe".encode()),
        ({"größe": [1, None, True]}, '{"größe":[1,null,true]}'.encode()),
        ([], b"[]"),
        (0, b"0"),
        (False, b"false"),
        ("", b""),
    ],
)
def test_a_body_arrives_as_it_was_sent(client: Client, body: Any, stored: bytes) -> None:
    broker = client.broker()
    dialog = begin(broker)
    dialog.send(ORDER, body)
    dialog.send_batch(ORDER, [body, body])
    assert bodies(broker.receive("fulfilment")) == [stored] * 3


def test_a_left_out_body_is_no_body_and_none_is_refused(client: Client) -> None:
    broker = client.broker()
    dialog = begin(broker)
    dialog.send(ORDER)
    for refused in (lambda: dialog.send(ORDER, None), lambda: dialog.send_batch(ORDER, [b"x", None])):
        with pytest.raises(pybroker.NullBodyError) as caught:
            refused()
        assert caught.value.number == 8433
    (message,) = broker.receive("fulfilment")
    assert message.message_body is None
    assert message.text == ""


@pytest.mark.parametrize(
    ("body", "body_type"),
    [
        (
            Order(uuid.uuid4(), datetime.now(UTC), [Line(Decimal("1.10"), (1, 2)), Line(Decimal(0))]),
            Order,
        ),
        (Line(Decimal("0.1")), Line),
        ({"lines": [Line(Decimal(1)), Line(Decimal(2))]}, dict[str, list[Line]]),
        (uuid.uuid4(), uuid.UUID),
        (datetime(2026, 2, 28, 12, tzinfo=UTC), datetime),
        (Decimal("12345678901234567890.10"), Decimal),
    ],
)
def test_a_typed_body_is_read_as_the_type_that_was_sent(client: Client, body: Any, body_type: Any) -> None:
    broker = client.broker()
    dialog = begin(broker)
    dialog.send(ORDER, body)
    (message,) = broker.receive("fulfilment")
    read = message.json(body_type)
    assert read == body
    assert type(read) is type(body)


def test_a_body_of_another_type_is_refused_with_the_place_that_is_wrong(client: Client) -> None:
    broker = client.broker()
    dialog = begin(broker)
    dialog.send_batch(ORDER, [{"price": "dear"}, "no json"])
    dialog.end()
    wrong, no_json, end = broker.receive("fulfilment")
    with pytest.raises(ValueError, match=r"//shop/order.*can't be read as .*Line.*\$\.price"):
        wrong.json(Line)
    with pytest.raises(ValueError, match="//shop/order"):
        no_json.json(Line)
    with pytest.raises(ValueError, match=r"broker itself.*EndDialog.*is_end_dialog"):
        end.json()


def test_what_json_cannot_hold_is_not_sent(client: Client, shop: Database) -> None:
    dialog = begin(client.broker())
    with pytest.raises(ValueError, match="JSON"):
        dialog.send(ORDER, math.nan)
    with pytest.raises(ValueError, match="JSON"):
        dialog.send(ORDER, Line(Decimal(1), (math.nan,)))  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        dialog.send_batch(ORDER, [1, object()])
    assert waiting_messages(shop) == 0


def test_a_batch_keeps_its_order_and_an_empty_one_sends_nothing(client: Client) -> None:
    broker = client.broker()
    dialog = begin(broker)
    dialog.send_batch(ORDER, [])
    dialog.send_batch(ORDER, range(200))
    assert [message.json() for message in broker.receive("fulfilment")] == list(range(200))


def test_a_rollback_returns_the_message(broker: Any, shop: Database) -> None:
    begin(broker).send(ORDER, b"1")

    def fail() -> None:
        with broker.transaction():
            (message,) = broker.receive("fulfilment", timeout=3)
            message.reply(ACK)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert waiting_messages(shop, "orders") == 0
    with broker.transaction():
        assert bodies(broker.receive("fulfilment")) == [b"1"]
    assert broker.receive("fulfilment") == []


def test_outside_a_transaction_a_received_message_is_gone(broker: Any, shop: Database) -> None:
    begin(broker).send(ORDER, b"1")
    assert len(broker.receive("fulfilment")) == 1
    assert waiting_messages(shop) == 0


def test_a_transaction_in_a_transaction_is_a_savepoint(broker: Any, shop: Database) -> None:
    begin(broker).send(ORDER, b"1")
    with broker.transaction():
        kept = begin(broker)
        with broker.transaction():
            assert len(broker.receive("fulfilment")) == 1
            raise psycopg.Rollback
        kept.send(ORDER, b"2")
    assert waiting_messages(shop) == 2


def test_leaving_a_block_that_began_nothing_is_quiet(broker: Any) -> None:
    with broker.transaction():
        pass
    with broker.transaction():
        raise psycopg.Rollback
    with pytest.raises(ZeroDivisionError), broker.transaction():
        raise ZeroDivisionError


def test_a_wait_that_ends_empty_undoes_nothing(broker: Any, shop: Database) -> None:
    with broker.transaction():
        with broker.transaction():
            assert broker.receive("fulfilment", timeout=0.02) == []
            assert broker.get_conversation_group("fulfilment", timeout=0.02) is None
        begin(broker).send(ORDER, b"1")
        assert broker.receive("orders", timeout=0.02) == []
    assert waiting_messages(shop) == 1
    with broker.transaction():
        assert bodies(broker.receive("fulfilment", timeout=3)) == [b"1"]
        assert broker.receive("fulfilment", timeout=0.02) == []
    assert waiting_messages(shop) == 0


def observe_rest(shop: Database, application: str, times: int) -> None:
    """Return once the client was seen after that many different polls, each time with nothing held."""
    seen = set()
    with shop.connect() as session:
        while len(seen) < times:
            row = session.execute(
                "select state_change from pg_stat_activity where application_name = %s and state = 'idle'"
                " and xact_start is null and backend_xmin is null and backend_xid is null and query <> ''",
                (application,),
            ).fetchone()
            if row:
                seen.add(row[0])


@pytest.mark.parametrize("in_block", [False, True], ids=["call", "block"])
@pytest.mark.parametrize("kind", ["url", "pool"])
@pytest.mark.parametrize("verb", ["receive", "get_conversation_group"])
def test_a_waiting_client_holds_no_transaction_and_no_snapshot(
    client: Client, shop: Database, kind: str, in_block: bool, verb: str
) -> None:
    broker = client.broker_over(kind, application_name="waiter")
    results: list[Any] = []

    def wait() -> None:
        if in_block:
            with broker.transaction(), broker.transaction():
                results.append(getattr(broker, verb)("fulfilment", timeout=None))
        else:
            results.append(getattr(broker, verb)("fulfilment", timeout=120))

    thread = threading.Thread(target=wait)
    thread.start()
    observe_rest(shop, "waiter", 4)
    with pybroker.connect(shop.url) as sender:
        begin(sender).send(ORDER, b"1")
    thread.join()
    (result,) = results
    if verb == "receive":
        assert bodies(result) == [b"1"]
        assert waiting_messages(shop) == 0
    else:
        assert isinstance(result, uuid.UUID)


def test_a_wait_on_an_idle_connection_of_ones_own_holds_nothing(client: Client, shop: Database) -> None:
    connection = client.connection(application_name="waiter")
    broker = client.broker(connection)
    thread = threading.Thread(target=broker.receive, args=("fulfilment",), kwargs={"timeout": 120})
    thread.start()
    observe_rest(shop, "waiter", 4)
    with pybroker.connect(shop.url) as sender:
        begin(sender).send(ORDER, b"1")
    thread.join()
    connection.rollback()
    assert waiting_messages(shop) == 1


def test_ones_own_transaction_holds_the_broker_s_calls(client: Client, shop: Database) -> None:
    connection = client.connection(autocommit=True)
    broker = client.broker(connection)
    with connection.transaction():
        begin(broker).send(ORDER, b"1")
        with broker.transaction():
            begin(broker).send(ORDER, b"2")
        assert broker.receive("orders", timeout=0.01) == []
        raise psycopg.Rollback
    assert waiting_messages(shop) == 0


def test_a_connection_without_autocommit_is_the_program_s_to_commit(client: Client, shop: Database) -> None:
    connection = client.connection()
    broker = client.broker(connection)
    begin(broker).send(ORDER, b"1")
    connection.rollback()
    assert waiting_messages(shop) == 0
    begin(broker).send(ORDER, b"1")
    connection.commit()
    assert waiting_messages(shop) == 1
    with broker.transaction():
        broker.receive("fulfilment")
    assert waiting_messages(shop) == 0


def test_a_block_on_ones_own_connection_holds_ones_own_statements_from_its_start(
    client: Client, shop: Database
) -> None:
    connection = client.connection(autocommit=True)
    broker = client.broker(connection)
    with broker.transaction():
        connection.execute("insert into book values ('before any call of the broker')")
        broker.receive("fulfilment", timeout=0.02)
        raise psycopg.Rollback
    with shop.connect() as session:
        assert session.execute("select * from book").fetchall() == []


@pytest.mark.parametrize("kind", ["url", "pool"])
def test_the_block_s_connection_commits_with_the_messages(client: Client, shop: Database, kind: str) -> None:
    broker = client.broker_over(kind)
    with broker.transaction() as transaction:
        transaction.connection().execute("insert into book values ('undone')")
        assert broker.receive("fulfilment", timeout=0.02) == []
        begin(broker).send(ORDER, b"1")
        raise psycopg.Rollback
    assert waiting_messages(shop) == 0
    with broker.transaction() as transaction:
        transaction.connection().execute("insert into book values ('done')")
        assert broker.receive("fulfilment", timeout=0.02) == []
    with shop.connect() as session:
        assert session.execute("select * from book").fetchall() == [("done",)]
    with pytest.raises(RuntimeError, match="over"):
        transaction.connection()


def test_a_connection_with_rows_and_cursors_of_its_own_serves(shop: Database) -> None:
    with psycopg.connect(shop.url, row_factory=dict_row, cursor_factory=psycopg.ClientCursor) as connection:
        broker = pybroker.connect(connection)
        begin(broker).send(ORDER, b"\x00")
        assert bodies(broker.receive("fulfilment")) == [b"\x00"]


def test_each_thread_on_a_pool_has_its_own_transaction(shop: Database) -> None:
    with ConnectionPool(shop.url, min_size=2, open=True) as pool:
        broker = pybroker.connect(pool)
        for number in (1, 2):
            begin(broker).send(ORDER, number)
        got: list[Any] = []
        both_have_one = threading.Barrier(2)

        def work() -> None:
            with broker.transaction():
                (message,) = broker.receive("fulfilment")
                both_have_one.wait()
                got.append(message.json())
                if message.json() == 1:
                    raise psycopg.Rollback

        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(got) == [1, 2]
        assert bodies(broker.receive("fulfilment")) == [b"1"]


def test_a_task_that_waits_undoes_nothing_of_another_in_the_same_block(shop: Database) -> None:
    async def work() -> None:
        async with await pybroker.connect_async(shop.url) as broker, broker.transaction():
            waiting = asyncio.create_task(broker.receive("orders", timeout=0.3))
            for number in range(20):
                dialog = await broker.begin_dialog(SHOP, WAREHOUSE, CONTRACT)
                await dialog.send(ORDER, number)
                await asyncio.sleep(0.005)
            assert await waiting == []

    asyncio.run(work())
    assert waiting_messages(shop) == 20


def test_a_closed_broker_closes_only_what_it_opened(client: Client) -> None:
    connection, pool = client.connection(), client.pool()
    with client.broker(connection):
        pass
    with client.broker(pool):
        pass
    assert not connection.closed
    assert not pool.closed
    with client.broker() as broker:
        pass
    with pytest.raises(psycopg.OperationalError):
        broker.receive("fulfilment")


def test_only_a_url_takes_options_and_only_a_source_is_taken(client: Client, shop: Database) -> None:
    with pytest.raises(TypeError, match="connect_timeout"):
        client.broker(client.connection(), connect_timeout=1)
    with pytest.raises(TypeError, match="takes a URL"):
        client.broker(5)


def test_a_group_is_locked_for_the_transaction_and_read_by_its_id(client: Client, shop: Database) -> None:
    broker, other = client.broker(), client.broker()
    dialog = begin(broker)
    begin(broker, related_conversation=getattr(dialog, "target", dialog)).send(ORDER, b"1")
    with broker.transaction():
        group = broker.get_conversation_group("fulfilment", timeout=3)
        assert other.get_conversation_group("fulfilment") is None
        with broker.transaction():
            broker.receive("fulfilment", conversation_group_id=group)
            raise psycopg.Rollback
        assert other.receive("fulfilment") == []
        assert bodies(broker.receive("fulfilment", conversation_group_id=group, top=1)) == [b"1"]


def test_several_groups_come_at_once_and_a_conversation_moves_between_groups(client: Client) -> None:
    broker = client.broker()
    assert broker.receive_groups("fulfilment", 9) == []
    dialogs = [begin(broker) for _ in range(3)]
    for number, dialog in enumerate(dialogs):
        dialog.send_batch(ORDER, [f"{number}.{place}".encode() for place in range(3)])
    with broker.transaction():
        messages = broker.receive_groups("fulfilment", max_groups=2, top=2, timeout=3)
    assert bodies(messages) == [b"0.0", b"0.1", b"1.0", b"1.1"]
    one, other = messages[0], messages[2]
    one.conversation.move(other.conversation_group_id)
    assert bodies(broker.receive("fulfilment", conversation_group_id=other.conversation_group_id)) == [
        b"0.2",
        b"1.2",
    ]
    with pytest.raises(pybroker.ConversationGroupNotFound):
        other.conversation.move(one.conversation_group_id)


def test_a_stored_handle_leads_back_to_the_conversation(client: Client) -> None:
    broker = client.broker()
    dialog = begin(broker, lifetime=60.5, encryption=False)
    again = broker.conversation(str(dialog.handle))
    assert again == dialog
    again.send(ORDER, b"1")
    assert again.transmission_status() == ""
    again.end(cleanup=True)
    with pytest.raises(pybroker.ConversationNotFound):
        dialog.send(ORDER, b"2")


def test_a_timer_reminds_this_side_alone(client: Client, shop: Database) -> None:
    broker = client.broker()
    dialog = begin(broker)
    dialog.begin_timer(3600)
    dialog.begin_timer(timedelta(milliseconds=1))
    with pytest.raises(pybroker.BrokerError, match="above 0") as caught:
        dialog.begin_timer(0)
    assert caught.value.number == 153
    with shop.connect() as session:
        session.execute("select pg_sleep(0.002), broker_private.fire_timers()")
    (timer,) = broker.receive("orders")
    assert (timer.message_type_name, timer.body) == (DIALOG_TIMER_MESSAGE_TYPE, b"")
    assert timer.conversation == dialog
    assert bodies(broker.receive("fulfilment")) == []


def test_an_error_says_its_code_and_text(client: Client) -> None:
    broker = client.broker()
    begin(broker).send(ORDER, b"1")
    (message,) = broker.receive("fulfilment")
    assert message.error is None
    message.conversation.end(error_code=42, error_description="Out of <b>stock</b> & \N{PILE OF POO}")
    (failure,) = broker.receive("orders")
    assert failure.is_error
    assert failure.error == (42, "Out of <b>stock</b> & \N{PILE OF POO}")
    assert failure.xml().tag.endswith("}Error")
    with pytest.raises(pybroker.ConversationStateError) as caught:
        failure.reply(ORDER)
    assert caught.value.number == 8429


def made(type_name: str, body: bytes | None) -> pybroker.Message:
    one = uuid.uuid4()
    conversation: Any = None
    return pybroker.Message(
        0,
        5,
        1,
        one,
        one,
        0,
        SHOP,
        1,
        CONTRACT,
        2,
        type_name,
        3,
        "X",
        body,
        one,
        datetime.now(UTC),
        conversation,
    )


def test_an_error_in_either_namespace_is_read_and_an_unreadable_one_is_said_to_be() -> None:
    short = b'<Error xmlns="http://schemas.microsoft.com/SQL/ServiceBroker"><Code>-8489</Code></Error>'
    assert made(ERROR_MESSAGE_TYPE, short).error == (-8489, "")
    for body in (None, b"<Error/>", b"<Error><Code>x</Code></Error>"):
        message = made(ERROR_MESSAGE_TYPE, body)
        with pytest.raises(ValueError, match="can't be read"):
            _ = message.error
    assert made(END_DIALOG_MESSAGE_TYPE, None).error is None


def test_a_body_s_entities_are_not_read(tmp_path: Any) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    body = f'<!DOCTYPE a [<!ENTITY e SYSTEM "file://{secret}">]><a>&e;</a>'.encode()
    assert "secret" not in "".join(made("//a", body).xml().itertext("a"))


def test_a_received_message_cannot_be_changed() -> None:
    message = made("//a", b"")
    with pytest.raises(dataclasses.FrozenInstanceError):
        message.status = 1  # type: ignore[misc]


def test_xml_is_checked_before_it_is_sent(client: Client, shop: Database) -> None:
    broker = client.broker()
    dialog = begin(broker)
    dialog.send(INVOICE, "<invoice/>")
    for malformed in (b"<invoice>", b"", '<?xml version="1.0" encoding="UTF-8"?><a/><b/>', b"<a>\xff</a>"):
        with pytest.raises(pybroker.MessageValidationError) as caught:
            dialog.send(INVOICE, malformed)
        assert (caught.value.number, caught.value.sqlstate) == (8430, "S8430")
        assert caught.value.hint
    with pytest.raises(pybroker.MessageValidationError):
        dialog.send_batch(INVOICE, ["<a/>", "<a>"])
    with shop.connect() as session:
        session.execute(f"select broker.alter_message_type('{INVOICE}', 'NONE')".encode())
    dialog.send(INVOICE, "no longer XML")


def test_schemas_are_checked_before_a_message_is_sent(client: Client, shop: Database) -> None:
    broker = client.broker()
    with shop.connect() as session:
        schema = '<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema"><xs:element name="id" type="xs:int"/></xs:schema>'
        broken = schema.replace("xs:int", "xs:nothing")
        for name, document in (("ids", schema), ("broken", broken)):
            session.execute("select broker.create_schema_collection(%s, array[%s])", (name, document))
        session.execute(f"select broker.alter_message_type('{INVOICE}', 'VALID_XML', 'ids')".encode())
    dialog = begin(broker)
    dialog.send(INVOICE, "<id>1</id>")
    for body in ("<id>one</id>", "<other/>", "<id>", "<!DOCTYPE id><id>1</id>"):
        with pytest.raises(pybroker.MessageValidationError) as caught:
            dialog.send(INVOICE, body)
        assert caught.value.number == 8430
    with shop.connect() as session:
        session.execute(f"select broker.alter_message_type('{INVOICE}', 'VALID_XML', 'broken')".encode())
    dialog.send(INVOICE, "<id>one</id>")


NEGATIVE = {
    "-1 days": timedelta(days=-1),
    "-1 days -01:00:00": timedelta(hours=-25),
    "-00:01:30": -90,
    "-00:00:00.5": -0.5,
}
TOO_LONG = {"30000 days": timedelta(days=30_000)}


@pytest.mark.parametrize(
    ("call", "refused"),
    [
        (lambda b, _, given: begin(b, lifetime=given), {**NEGATIVE, **TOO_LONG}),
        (lambda b, _, given: b.receive("fulfilment", timeout=given), NEGATIVE),
        (lambda b, _, given: b.receive_groups("fulfilment", 2, timeout=given), NEGATIVE),
        (lambda b, _, given: b.get_conversation_group("fulfilment", timeout=given), NEGATIVE),
        (lambda _, dialog, given: dialog.begin_timer(given), NEGATIVE),
        (lambda b, _, given: b.apply([pybroker.Queue("orders", watchdog=given)]), NEGATIVE),
        (
            lambda b, _, given: b.apply([pybroker.Route("far", address="LOCAL", lifetime=given)]),
            {**NEGATIVE, **TOO_LONG},
        ),
    ],
    ids=["lifetime", "receive", "receive_groups", "get_conversation_group", "timer", "watchdog", "route"],
)
def test_a_refusal_shows_a_duration_as_it_was_given(
    client: Client, call: Callable[..., Any], refused: dict[str, float | timedelta]
) -> None:
    broker = client.broker_over("connection")
    dialog = begin(broker)
    for shown, given in refused.items():
        with pytest.raises(pybroker.BrokerError) as caught:
            call(broker, dialog, given)
        assert f" {shown} " in str(caught.value)


def test_what_is_no_duration_is_refused_by_its_value(client: Client) -> None:
    broker = client.broker_over("connection")
    dialog = begin(broker)
    for given in (math.nan, math.inf, 1e300):
        for call in (
            lambda given: begin(broker, lifetime=given),
            lambda given: broker.receive("fulfilment", timeout=given),
            dialog.begin_timer,
            lambda given: dialog.note_failure("no paper", retry_after=[given]),
            lambda given: pybroker.Queue("orders", watchdog=given),
        ):
            with pytest.raises(ValueError, match=re.escape(f"{given} is no duration")):
                call(given)


def test_a_queue_that_is_dropped_while_somebody_waits_is_said_to_be(database: Database) -> None:
    with database.connect() as session, pybroker.connect(database.url) as broker:
        session.execute("select broker.create_queue('alone')")
        waiting = in_background(lambda: broker.receive("alone", timeout=PATIENCE))
        looked = (
            "select count(*) from pg_stat_activity"
            " where datname = current_database() and state = 'idle' and strpos(query, 'broker.receive(') > 0"
        )
        until(lambda: session.execute(looked).fetchone() == (1,))
        session.execute("select broker.drop_queue('alone')")
        with pytest.raises(pybroker.QueueNotFound) as dropped:
            waiting.result(PATIENCE)
        assert "dropped while this session waited" in "".join(dropped.value.__notes__)


@pytest.mark.parametrize(
    ("call", "error", "number"),
    [
        (lambda b, _: b.receive("nowhere"), pybroker.QueueNotFound, 208),
        (lambda b, _: b.receive("nowhere", timeout=60), pybroker.QueueNotFound, 208),
        (lambda b, _: b.get_conversation_group("nowhere"), pybroker.QueueNotFound, 208),
        (lambda b, _: b.receive("fulfilment", timeout=-1), pybroker.ArgumentError, 153),
        (lambda b, _: b.receive("fulfilment", top=-1), pybroker.ArgumentError, 153),
        (
            lambda b, _: b.receive("fulfilment", conversation_handle=uuid.uuid4(), timeout=60),
            pybroker.ConversationNotFound,
            8426,
        ),
        (
            lambda b, _: b.receive("fulfilment", conversation_group_id=uuid.uuid4()),
            pybroker.ConversationGroupNotFound,
            8436,
        ),
        (lambda b, _: b.begin_dialog("//nobody", WAREHOUSE), pybroker.ServiceNotFound, 8423),
        (lambda b, _: b.begin_dialog(SHOP, WAREHOUSE, "//nothing"), pybroker.ContractNotFound, 8425),
        (lambda b, _: b.begin_dialog(SHOP, WAREHOUSE, lifetime=-1), pybroker.BrokerError, 8411),
        (
            lambda b, d: b.begin_dialog(WAREHOUSE, SHOP, related_conversation=d.handle),
            pybroker.ConversationGroupMismatch,
            9610,
        ),
        (lambda b, _: b.conversation(uuid.uuid4()).send(ORDER), pybroker.ConversationNotFound, 8426),
        (lambda _, d: d.send("//shop/unheard of"), pybroker.MessageTypeNotFound, 8428),
        (lambda _, d: d.send(LABEL), pybroker.MessageTypeNotInContract, 8431),
        (lambda _, d: d.send(ACK), pybroker.DirectionError, 8432),
        (lambda _, d: d.send(NOTHING, b"x"), pybroker.MessageValidationError, 8430),
        (lambda _, d: d.end(error_code=1), pybroker.BrokerError, 8422),
    ],
)
def test_a_refusal_has_a_class_a_number_and_a_hint(
    client: Client, call: Callable[[Any, Any], Any], error: type[pybroker.BrokerError], number: int
) -> None:
    broker = client.broker()
    dialog = begin(broker)
    with pytest.raises(error) as caught:
        call(broker, dialog)
    refusal = caught.value
    assert type(refusal) is error
    assert (refusal.number, refusal.sqlstate) == (number, f"S{number:04}")
    assert refusal.hint
    assert refusal.hint in str(refusal)
    assert isinstance(refusal.__cause__, psycopg.Error)
    dialog.send(ORDER, b"the connection is as good as before")


def test_a_disabled_queue_ends_a_wait(client: Client, shop: Database) -> None:
    broker = client.broker(application_name="waiter")
    caught: list[BaseException] = []

    def wait() -> None:
        try:
            with broker.transaction():
                broker.receive("fulfilment", timeout=None)
        except pybroker.QueueDisabledError as error:
            caught.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    observe_rest(shop, "waiter", 2)
    with shop.connect() as session:
        session.execute("select broker.alter_queue('fulfilment', status => false)")
    thread.join()
    assert [error.number for error in caught] == [9617]


def test_who_has_no_right_is_told_so(shop: Database) -> None:
    with shop.connect(user=shop.role()) as session, pytest.raises(pybroker.PermissionDenied) as caught:
        pybroker.connect(session).receive("fulfilment")
    assert caught.value.number == 229


def test_a_database_without_a_broker_says_what_to_run(client: Client, shop: Database) -> None:
    with shop.connect() as session:
        session.execute("drop schema broker cascade")
    broker = client.broker()
    for call in (
        lambda: broker.receive("fulfilment", timeout=60),
        lambda: begin(broker),
        lambda: broker.conversation(uuid.uuid4()).send(ORDER),
    ):
        with pytest.raises(pybroker.NotMigratedError, match="pybroker migrate --database-url") as caught:
            call()
        assert caught.value.number is None


def test_other_errors_stay_psycopg_s(client: Client, shop: Database) -> None:
    broker = client.broker()
    with pytest.raises(psycopg.errors.UndefinedTable), broker.transaction() as transaction:
        transaction.connection().execute("select * from broker.nowhere")
    with pytest.raises(psycopg.errors.DiskFull) as caught, broker_errors():
        raise psycopg.errors.DiskFull
    assert "Nothing of this transaction was stored" in caught.value.__notes__[0]


def test_a_wait_for_a_conversation_that_a_lock_timeout_ends_says_who_can_tell_its_holder(
    client: Client, shop: Database
) -> None:
    broker = client.broker(options="-c lock_timeout=50ms")
    dialog = broker.begin_dialog(SHOP, WAREHOUSE, CONTRACT)
    with shop.connect(autocommit=False) as holder, shop.connect() as asking:
        holder.execute("select broker.send(%s, %s)", (dialog.handle, ORDER))
        with pytest.raises(psycopg.errors.LockNotAvailable) as caught:
            dialog.send(ORDER)
        assert "broker.diagnose(conversation_handle)" in caught.value.__notes__[0]
        found = asking.execute("select problem from broker.diagnose(%s) where number = 115", (dialog.handle,))
        assert f"pid {holder.info.backend_pid} " in found.fetchall()[0][0]


@pytest.mark.parametrize("kind", ["url", "pool"])
def test_a_broker_of_another_process_says_so(shop: Database, kind: str) -> None:
    """As in a server that imports the application and then forks: two processes would write into one connection."""
    client = Client(shop.url, None)
    with client.held:
        broker = client.broker_over(kind)
        unopened = ConnectionPool(shop.url, open=False, min_size=1, max_size=1)
        own = pybroker.connect(unopened)
        reading, writing = os.pipe()
        said, child = "nothing", 1
        try:
            with broker.transaction():
                dialog = begin(broker)
                child = os.fork()
                if not child:
                    with broker:
                        begin(broker)
                os.close(writing)
                with os.fdopen(reading) as answer:
                    said = answer.read()
                os.waitpid(child, 0)
        except RuntimeError as error:
            said = str(error)
            with unopened:
                said += f" Its own pool: {own.receive('orders')}."
        finally:
            if not child:
                os.write(writing, said.encode())
                os._exit(0)
        assert "connect in each process" in said
        assert said.endswith("Its own pool: [].")
        # The connection and its transaction are as they were, though the child has left both of their blocks.
        dialog.send(ORDER)


@pytest.mark.parametrize("error_class", [pybroker.BrokerError, *pybroker.BrokerError.__subclasses__()])
def test_an_error_survives_the_way_from_a_worker_process(error_class: type[pybroker.BrokerError]) -> None:
    error = error_class("It was refused.", 8426, "Do that.", "S8426")
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.message, again.number, again.hint, again.sqlstate) == (
        error_class,
        *error.args,
    )
    assert str(again) == "8426: It was refused.\nHINT:  Do that."


def test_the_tutorial_runs_as_it_is_printed() -> None:
    tutorial = Path(__file__).parents[2] / "docs" / "python-client.md"
    names: dict[str, Any] = {}
    try:
        for number, snippet in enumerate(
            re.findall(r"```python\n(.*?)```", tutorial.read_text(encoding="utf-8"), re.DOTALL)
        ):
            exec(compile(snippet, f"snippet {number}", "exec"), names)
        with pytest.raises(EmbeddedServerError):
            names["server"].create_database("closed")
    finally:
        if "server" in names:
            names["server"].close()
