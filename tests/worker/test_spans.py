"""Who traces sees the whole way of a message: an OTLP receiver gets the spans of programs and workers."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

import pybroker
from pybroker import logs
from tests.activated import Application, eventually
from tests.brokers import INITIATOR_DEFINITIONS, TARGET_DEFINITIONS
from tests.conformance.test_i_forwarding import bind, forward, three_sites
from tests.otlp import Collector, collecting, provided
from tests.patience import PATIENCE
from tests.shop import Session, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pybroker.embedded import EmbeddedServer
    from tests.brokers import Site
    from tests.conftest import Database
    from tests.shop import Shop

    ServerFor = Callable[[str, int], EmbeddedServer]

TRACE_ID, SPAN_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE_ID}-{SPAN_ID}-01"
OTHER_TRACEPARENT = f"00-{TRACE_ID[::-1]}-{SPAN_ID}-01"
LEFT = "select count(*) from broker_private.traceparents"
RECEIVE = "select m.message_body, broker.get_traceparent(m) from broker.receive('warehouse') m"
SET = "select set_config('pybroker.traceparent', %s, false)"


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as collector:
        yield collector


@pytest.fixture
def tracing_workers(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Let workers that are started from now on trace; the patch names them."""
    monkeypatch.setenv("PYBROKER_TRACES", "1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    return monkeypatch


@contextmanager
def running(app: pybroker.App) -> Iterator[None]:
    thread = threading.Thread(target=app.run)
    thread.start()
    try:
        yield
    finally:
        app.stop()
        thread.join()


def answering(url: str) -> pybroker.App:
    app = pybroker.App(url)

    @app.service_program("warehouse")
    def fulfil(conversation: Any) -> None:
        for message in conversation.messages:
            conversation.send("ack", message.body)

    return app


def start(site: Site, patch: pytest.MonkeyPatch) -> None:
    patch.setenv("OTEL_SERVICE_NAME", site.name)
    site.start_worker()


def test_a_trace_leads_from_a_program_over_a_forwarder_to_another_program_and_back(
    tmp_path: Path, server_for: ServerFor, collector: Collector, tracing_workers: pytest.MonkeyPatch
) -> None:
    with three_sites(tmp_path, server_for) as sites, provided(collector, tracing_workers) as span:
        shop, warehouse, post = sites
        forward(post)
        bind(shop, warehouse)
        for site in sites:
            start(site, tracing_workers)
        with running(answering(warehouse.url)), pybroker.connect(shop.url) as broker:
            with span("checkout"), broker.transaction():
                dialog = broker.begin_dialog("//shop", "//warehouse", "ordering")
                dialog.send("order", b"1")
            (answer,) = broker.receive("shop", timeout=PATIENCE)
        assert (answer.body, answer.message_sequence_number) == (b"1", 0)

        checkout, order = collector.one("checkout"), collector.one("send order")
        assert order.parent_id == checkout.span_id
        processed = collector.one("process warehouse")
        assert processed.parent_id == order.span_id
        ack = collector.one("send ack")
        assert ack.parent_id == processed.span_id
        assert answer.traceparent is not None
        assert answer.traceparent.startswith(ack.context)
        assert collector.one("receive shop").links == (ack.span_id,)
        ways = [("order", order, "//warehouse", shop, warehouse), ("ack", ack, "//shop", warehouse, shop)]
        for _, sent, service, near, far in ways:
            for operation, site in (("transmit", near), ("forward", post), ("deliver", far)):
                # More than one, if it was sent again meanwhile.
                passed = collector.some(f"{operation} {service}", site.name)
                assert {span.parent_id for span in passed} == {sent.span_id}, (operation, service)
        whole = [found for found in collector.spans if not found.name.startswith("receive ")]
        assert {found.trace_id for found in whole} == {checkout.trace_id}
        # Nothing is left of it once all was received and acknowledged.
        for site in (shop, warehouse):
            until(lambda site=site: site.psql.value(LEFT) == 0)


def test_large_messages_keep_their_contexts_between_databases_of_a_worker(
    make_database: Callable[[str], Database], collector: Collector, tracing_workers: pytest.MonkeyPatch
) -> None:
    near, far = (make_database(name) for name in ("near", "far"))
    shop, warehouse = Session(near.connect()), Session(far.connect())
    shop.rows(INITIATOR_DEFINITIONS)
    warehouse.rows(TARGET_DEFINITIONS)
    urls = ["--database-url", near.url, "--database-url", far.url]
    worker = subprocess.Popen([sys.executable, "-m", "pybroker", "worker", *urls])
    try:
        dialog = shop.value("select broker.begin_dialog('//shop', '//warehouse', 'ordering')")
        # Crosses in pieces.
        large = b"x" * 1_200_000
        for body, context in ((b"1", TRACEPARENT), (large, OTHER_TRACEPARENT), (b"3", "")):
            shop.rows(SET, context)
            shop.send(dialog, "order", body)
        arrived: list[tuple[Any, ...]] = []
        until(lambda: arrived.extend(warehouse.rows(RECEIVE)) or len(arrived) == 3)
        assert arrived == [(b"1", TRACEPARENT), (large, OTHER_TRACEPARENT), (b"3", None)]
        until(lambda: shop.value(LEFT) == warehouse.value(LEFT) == 0)
    finally:
        worker.terminate()
        worker.wait()
        shop.connection.close()
        warehouse.connection.close()
    whole = {span.trace_id for span in collector.named("deliver //warehouse")}
    assert whole == {TRACE_ID, TRACE_ID[::-1]}


def test_a_worker_that_does_not_trace_gets_no_context_and_the_message(
    tmp_path: Path, server_for: ServerFor, collector: Collector, tracing_workers: pytest.MonkeyPatch
) -> None:
    with three_sites(tmp_path, server_for) as sites:
        shop, warehouse, post = sites
        forward(post)
        start(shop, tracing_workers)
        start(warehouse, tracing_workers)
        tracing_workers.delenv("PYBROKER_TRACES")
        start(post, tracing_workers)
        shop.psql.rows(SET, TRACEPARENT)
        dialog = shop.psql.value(
            "select broker.begin_dialog('//shop', '//warehouse', 'ordering', encryption => false)"
        )
        shop.psql.send(dialog, "order", b"1")
        arrived: list[tuple[Any, ...]] = []
        until(lambda: arrived.extend(warehouse.psql.rows(RECEIVE)) or arrived)
        assert arrived == [(b"1", None)]
        assert collector.some("transmit //warehouse", "shop")[0].parent_id == SPAN_ID
        assert not collector.named("deliver //warehouse")


def test_sql_users_continue_a_trace_and_so_does_an_activated_procedure(
    database: Database, collector: Collector, tracing_workers: pytest.MonkeyPatch
) -> None:
    application = Application(database)
    application.queue(
        "orders",
        """
        declare
          message record;
        begin
          for message in select m.*, broker.get_traceparent(m) as traceparent from broker.receive('orders') m loop
            perform set_config('pybroker.traceparent', message.traceparent, false);
            perform broker.send(message.conversation_handle, 'DEFAULT', message.message_body);
          end loop;
        end
        """,
    )
    worker = subprocess.Popen([sys.executable, "-m", "pybroker", "worker", "--database-url", database.url])
    try:
        application.run(SET, TRACEPARENT)
        application.send("orders", "1")
        read = "select convert_from(m.message_body, 'UTF8'), broker.get_traceparent(m) from broker.receive('senders') m"
        found: list[tuple[Any, ...]] = []
        eventually(lambda: found.extend(application.connection.execute(read.encode()).fetchall()) or found)
        assert found == [("1", TRACEPARENT)]
        call = collector.one("process orders")
        assert (call.trace_id, call.parent_id) == (TRACE_ID, SPAN_ID)
    finally:
        worker.terminate()
        worker.wait()
        application.close()


@pytest.mark.parametrize(
    "given",
    [
        "",
        "x",
        TRACEPARENT.upper(),
        TRACEPARENT + "-",
        TRACEPARENT.replace("00-", "ff-", 1),
        f"00-{'0' * 32}-{SPAN_ID}-01",
        f"00-{TRACE_ID}-{'0' * 16}-01",
        "0" * 100_000,
    ],
)
def test_what_is_no_context_is_passed_by(shop: Shop, given: str) -> None:
    shop.psql.rows(SET, given)
    dialog = shop.psql.dialog()
    shop.psql.send(dialog, "order", b"first")
    shop.psql.send(dialog, "order", b"second")
    assert shop.psql.rows(RECEIVE) == [(b"first", None), (b"second", None)]
    assert shop.psql.value(LEFT) == 0


def test_each_message_has_the_context_that_was_set_when_it_was_sent(shop: Shop) -> None:
    one, other = shop.psql.dialog(), shop.psql.dialog()
    shop.psql.send(one, "order", b"untraced")
    shop.psql.rows(SET, TRACEPARENT)
    shop.psql.send(one, "order", b"traced")
    second = TRACEPARENT.replace(SPAN_ID, SPAN_ID[::-1])
    shop.psql.rows(SET, second)
    shop.psql.rows("select broker.send_batch(%s, 'order', %s)", one, [b"b1", b"b2"])
    shop.psql.rows("select broker.send_all(%s, 'order', %s::bytea)", [one, other], b"all")
    shop.psql.rows("reset pybroker.traceparent")
    shop.psql.send(one, "order", b"after")
    received: list[tuple[Any, ...]] = []
    until(lambda: received.extend(shop.psql.rows(RECEIVE)) or len(received) == 7)
    assert sorted(received) == sorted(
        [
            (b"untraced", None),
            (b"traced", TRACEPARENT),
            (b"b1", second),
            (b"b2", second),
            (b"all", second),
            (b"all", second),
            (b"after", None),
        ]
    )
    assert shop.psql.value(LEFT) == 0


def test_a_rollback_keeps_the_context_for_the_next_receive(shop: Shop) -> None:
    shop.psql.rows(SET, TRACEPARENT)
    shop.psql.send(shop.psql.dialog(), "order", b"1")
    with shop.psql.connection.transaction(force_rollback=True):
        assert shop.psql.rows(RECEIVE) == [(b"1", TRACEPARENT)]
    assert shop.psql.rows(RECEIVE) == [(b"1", TRACEPARENT)]


def test_nobody_reads_or_takes_the_context_of_a_queue_that_he_may_not_receive_from(shop: Shop) -> None:
    shop.psql.rows(SET, TRACEPARENT)
    shop.psql.send(shop.psql.dialog(), "order", b"1")
    with shop.psql.connection.transaction(force_rollback=True):
        shop.psql.rows("create role stranger")
        shop.psql.rows("create temp table received as select m from broker.receive('warehouse') m")
        shop.psql.rows("grant select on received to stranger")
        shop.psql.rows("set local role stranger")
        assert shop.psql.rows("select broker.get_traceparent(m) from received") == [(None,)]
        shop.psql.rows("reset role")
        assert shop.psql.rows("select broker.get_traceparent(m) from received") == [(TRACEPARENT,)]


def test_contexts_that_nobody_asks_for_go_after_a_day_and_beyond_a_number(shop: Shop) -> None:
    shop.psql.rows(SET, TRACEPARENT)
    dialog = shop.psql.dialog()
    shop.psql.send(dialog, "order", b"old")
    shop.psql.rows("update broker_private.traceparents set noted_at = noted_at - interval '1 day 1 s'")
    shop.psql.send(dialog, "order", b"new")
    shop.psql.rows("select broker_private.sweep()")
    assert shop.psql.rows(RECEIVE) == [(b"old", None), (b"new", TRACEPARENT)]
    shop.psql.rows(
        "insert into broker_private.traceparents select -1, n, now() - n * interval '1 ms', %s"
        " from generate_series(1, 100010) n",
        TRACEPARENT,
    )
    shop.psql.rows("select broker_private.sweep()")
    assert 100_000 <= shop.psql.value(LEFT) <= 100_001


def test_a_program_that_does_not_trace_asks_for_nothing(shop: Shop) -> None:
    shop.psql.rows(SET, TRACEPARENT)
    shop.psql.send(shop.psql.dialog(), "order", b"1")
    (message,) = pybroker.connect(shop.psql.connection).receive("warehouse")
    assert message.traceparent is None
    assert shop.psql.value(LEFT) == 1


def test_what_a_program_has_set_itself_counts_again_after_a_traced_send(
    shop: Shop, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.psql.rows(SET, TRACEPARENT)
    broker = pybroker.connect(shop.psql.connection)
    with provided(collector, monkeypatch), broker.transaction():
        dialog = broker.begin_dialog("//shop", "//warehouse", "ordering")
        dialog.send("order", b"1")
        dialog.send_batch("order", [b"2", b"3"])
        shop.psql.send(dialog.handle, "order", b"4")
    one, batch = collector.named("send order")
    assert batch.attributes["messaging.batch.message_count"] == 2
    # OTLP does not tell the flags of a context.
    contexts = [context[: len(one.context)] for _, context in shop.psql.rows(RECEIVE)]
    assert contexts == [one.context, batch.context, batch.context, TRACEPARENT[: len(one.context)]]


def test_a_handler_of_several_messages_has_a_link_to_each_and_its_lines_in_the_log_name_the_trace(
    shop: Shop, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = pybroker.App(shop.database.url)
    lines: list[str] = []

    @app.service_program("warehouse")
    async def fulfil(conversation: Any) -> None:
        record = logging.makeLogRecord({"msg": "at work", "levelname": "INFO"})
        lines.append(logs.Formatter().format(record))
        app.stop()

    with provided(collector, monkeypatch):
        broker = pybroker.connect(shop.psql.connection)
        with broker.transaction():
            dialog = broker.begin_dialog("//shop", "//warehouse", "ordering")
            dialog.send("order", b"1")
            dialog.send("order", b"2")
        with running(app):
            process = collector.one("process warehouse")
    sent = {span.span_id for span in collector.named("send order")}
    assert len(sent) == 2
    assert set(process.links) == sent
    assert set(collector.one("receive warehouse").links) == sent
    assert process.attributes["messaging.batch.message_count"] == 2
    assert f"trace_id={process.trace_id}" in lines[0]


def test_without_the_extra_a_worker_says_what_to_install(database: Database) -> None:
    code = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "import pybroker.commands, pybroker.tracing\n"
        "assert not pybroker.tracing.is_on()\n"
        "pybroker.commands.main()"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, "worker", "--traces", "--database-url", database.url],
        check=False, capture_output=True, text=True, timeout=PATIENCE,
    )  # fmt: skip
    assert run.returncode == 1
    assert 'opentelemetry is not installed: pip install "pybroker[telemetry]"' in run.stderr
