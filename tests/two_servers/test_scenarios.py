"""The scenarios of the book and of the page on conversation priorities, typed as their readers would."""

from __future__ import annotations

import subprocess
import sys
import threading
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from tests.brokers import Site, introduce
from tests.conftest import NEWEST
from tests.shop import END_DIALOG, Session, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pybroker.embedded import EmbeddedServer
    from tests.conftest import Database
    from tests.shop import Shop

# Chapter 15, pages 515 and 516: a header, and line items that refer to it; one instance of the service a work order.
WORK_ORDERS = """
create table work_order (id integer primary key, location text not null);
create table line_item (
  work_order_id integer not null references work_order, number integer not null, task text not null,
  primary key (work_order_id, number)
);
select broker.create_message_type('//jobs/header', 'VALID_JSON');
select broker.create_message_type('//jobs/line', 'VALID_JSON');
select broker.create_message_type('//jobs/done', 'EMPTY');
select broker.create_contract('//jobs/order', '{//jobs/header,//jobs/line}', '{//jobs/done}');
select broker.create_queue('work_orders');
select broker.create_queue('offices');
select broker.create_service('//jobs/orders', 'work_orders', '{//jobs/order}');
select broker.create_service('//jobs/office', 'offices');
"""
INSERT_HEADER = "insert into work_order select (%s::jsonb->>'id')::integer, %s::jsonb->>'location'"
INSERT_LINE = "insert into line_item select (%s::jsonb->>'id')::integer, (%s::jsonb->>'number')::integer, %s::jsonb->>'task'"


@contextmanager
def _together(programs: list[Callable[[], None]]) -> Iterator[list[BaseException]]:
    """Run each program in a thread until it ends by itself; what one raises is told to the others."""
    failures: list[BaseException] = []

    def run(program: Callable[[], None]) -> None:
        try:
            program()
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(program,)) for program in programs]
    for thread in threads:
        thread.start()
    try:
        yield failures
    finally:
        for thread in threads:
            thread.join()


def test_eight_readers_store_each_work_order_s_header_before_its_lines(shop: Shop) -> None:
    """A line that came before its header would break the foreign key; two readers on one order would meet."""
    orders, lines = 24, 6
    psql = shop.psql
    psql.rows(WORK_ORDERS)
    is_over = threading.Event()
    met: list[str] = []

    def office(mine: range) -> None:
        session = shop.session(autocommit=False)
        begin = "select broker.begin_dialog('//jobs/office', '//jobs/orders', '//jobs/order')"
        handles = {order: session.value(begin) for order in mine}
        for order, handle in handles.items():
            body = f'{{"id": {order}, "location": "street {order}"}}'
            session.rows("select broker.send(%s, '//jobs/header', %s::jsonb)", handle, body)
            session.connection.commit()
        for number in range(lines):
            for order, handle in handles.items():
                body = f'{{"id": {order}, "number": {number}, "task": "task {number}"}}'
                session.rows("select broker.send(%s, '//jobs/line', %s::jsonb)", handle, body)
                session.connection.commit()
        for handle in handles.values():
            session.rows("select broker.end_conversation(%s)", handle)
        session.connection.commit()

    def reader() -> None:
        session = shop.session(autocommit=False)
        while not is_over.is_set():
            group = session.value("select broker.get_conversation_group('work_orders', timeout => '100 ms')")
            if group is None:
                session.connection.rollback()
                continue
            if not session.value("select pg_try_advisory_xact_lock(hashtextextended(%s::text, 0))", group):
                met.append(str(group))
            received = session.rows(
                "select message_type_name, conversation_handle, message_body"
                " from broker.receive('work_orders', conversation_group_id => %s)",
                group,
            )
            for kind, handle, body in received:
                if kind == "//jobs/header":
                    session.rows(INSERT_HEADER, body.decode(), body.decode())
                elif kind == "//jobs/line":
                    session.rows(INSERT_LINE, *[body.decode()] * 3)
                elif kind == END_DIALOG:
                    session.rows("select broker.end_conversation(%s)", handle)
            session.connection.commit()

    offices = [lambda half=half: office(range(half, orders, 2)) for half in (0, 1)]
    with _together([*offices, *[reader] * 8]) as failures:
        stored = "select (select count(*) from work_order), (select count(*) from line_item)"
        open_targets = (
            "select from broker.conversation_endpoints where state <> 'CD' and not is_initiator limit 1"
        )
        until(
            lambda: (
                failures
                or (psql.rows(stored) == [(orders, orders * lines)] and psql.rows(open_targets) == [])
            )
        )
        is_over.set()
    assert (failures, met) == ([], [])
    assert psql.value("select bool_and(task = 'task ' || number) from line_item") is True
    assert psql.rows("select from work_orders") == []


# Page 507 and figure 15-2. A reader stores what it received and then works on it for as long as the test holds the gate.
PEAK = """
create table done (queue text, body text);
create function work(queue text) returns void language plpgsql as $$
declare message broker.message;
begin
  loop
    select r.* into message from broker.receive(queue, top => 1, timeout => '300 ms') r;
    exit when message.conversation_handle is null;
    insert into done values (queue, convert_from(message.message_body, 'UTF8'));
    perform pg_advisory_xact_lock_shared(20260101);
  end loop;
end $$;
create procedure do_orders() language plpgsql as $$ begin perform public.work('orders'); end $$;
create procedure do_reports() language plpgsql as $$ begin perform public.work('reports'); end $$;
select broker.create_queue('clients');
select broker.create_service('//clients', 'clients');
select broker.create_queue('orders', activation_procedure => 'public.do_orders', max_queue_readers => 1);
select broker.create_queue('reports', activation_procedure => 'public.do_reports', max_queue_readers => 1);
select broker.create_service('//orders', 'orders', '{DEFAULT}');
select broker.create_service('//reports', 'reports', '{DEFAULT}');
"""


def _ask(psql: Session, service: str, *bodies: str) -> None:
    for body in bodies:
        dialog = psql.value("select broker.begin_dialog('//clients', %s)", service)
        psql.rows("select broker.send(%s, 'DEFAULT', %s::text)", dialog, body)


def test_at_peak_load_what_can_wait_is_turned_off_and_what_cannot_gets_more_readers(
    database: Database,
) -> None:
    psql, gate = Session(database.connect()), Session(database.connect())
    command = [sys.executable, "-m", "pybroker", "worker", "--database-url", database.url]
    with ExitStack() as stack:
        stack.callback(psql.connection.close)
        psql.rows(PEAK)
        worker = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        stack.callback(worker.wait, 60)
        stack.callback(worker.terminate)
        stack.callback(gate.connection.close)
        gate.rows("select pg_advisory_lock(20260101)")
        waiting = (
            "select count(*) from pg_locks where locktype = 'advisory' and objid = 20260101 and not granted"
        )

        psql.rows("select broker.alter_queue('reports', activation_status => false)")
        _ask(psql, "//reports", "report 1", "report 2")
        _ask(psql, "//orders", "order 1", "order 2")
        until(lambda: psql.value(waiting) == 1)
        psql.rows("select broker.alter_queue('orders', max_queue_readers => 2)")
        until(lambda: psql.value(waiting) == 2)
        assert len(psql.rows("select from reports")) == 2
        gate.rows("select pg_advisory_unlock(20260101)")
        immediate = "select body from done where queue = 'orders' order by body"
        until(lambda: psql.rows(immediate) == [("order 1",), ("order 2",)])

        psql.rows("select broker.alter_queue('orders', max_queue_readers => 1)")
        psql.rows("select broker.alter_queue('reports', activation_status => true)")
        deferred = "select body from done where queue = 'reports' order by body"
        until(lambda: psql.rows(deferred) == [("report 1",), ("report 2",)])
        _ask(psql, "//orders", "order 3")
        until(lambda: len(psql.rows(immediate)) == 3)


def test_a_priority_that_is_made_at_peak_load_holds_for_what_begins_then(shop: Shop) -> None:
    psql = shop.psql
    psql.rows(
        "select broker.create_queue('calls'); select broker.create_queue('phones');"
        "select broker.create_service('//calls', 'calls', '{DEFAULT}');"
        "select broker.create_service('//gold', 'phones'); select broker.create_service('//silver', 'phones')"
    )
    begin = "select broker.begin_dialog(%s, '//calls')"
    take = "select priority, convert_from(message_body, 'UTF8') from broker.receive('calls')"

    def call(service: str, body: str) -> None:
        psql.rows("select broker.send(%s, 'DEFAULT', %s::text)", psql.value(begin, service), body)

    call("//silver", "before the peak")
    psql.rows("select broker.create_broker_priority('peak', 'DEFAULT', '//calls', '//gold', 9)")
    call("//silver", "at the peak")
    call("//gold", "at the peak")
    assert psql.rows(take) == [(9, "at the peak")]
    psql.rows("select broker.alter_broker_priority('peak', priority_level => 2)")
    call("//gold", "after it")
    assert [psql.rows(take) for _ in range(3)] == [
        [(5, "before the peak")],
        [(5, "at the peak")],
        [(2, "after it")],
    ]
    psql.rows("select broker.drop_broker_priority('peak')")
    call("//gold", "as ever")
    assert psql.rows(take) == [(5, "as ever")]


# The page's example. It has a typing error in the name of the local service, which is refused here as there.
SIMPLE = """
select broker.create_message_type('RequestMessage');
select broker.create_message_type('ReplyMessage');
select broker.create_contract('SimpleContract',
  sent_by_initiator => '{RequestMessage}', sent_by_target => '{ReplyMessage}');
"""
PRIORITY = """
select broker.create_broker_priority(%s, contract_name => 'SimpleContract', local_service_name => %s,
  remote_service_name => %s, priority_level => 3)
"""


def test_level_3_is_given_on_both_sides_in_initiator_db_and_target_db(
    tmp_path: Path, server_for: Callable[[str, int], EmbeddedServer]
) -> None:
    with ExitStack() as stack:
        server = server_for("shop", NEWEST)
        initiator, target = (Site(name, server, tmp_path) for name in ("InitiatorDB", "TargetDB"))
        for site in (initiator, target):
            stack.callback(site.drop_database)
            stack.callback(site.close)
        introduce(initiator, target)
        for site, queue, service, far in (
            (initiator, "InitiatorQueue", "InitiatorService", target),
            (target, "TargetQueue", "TargetService", initiator),
        ):
            site.psql.rows(SIMPLE)
            site.psql.rows("select broker.create_queue(%s)", queue)
            site.psql.rows("select broker.create_service(%s, %s, '{SimpleContract,DEFAULT}')", service, queue)
            site.psql.rows("select broker.grant('SEND', 'SERVICE', %s, 'public')", service)
            site.route("TargetService" if site is initiator else "InitiatorService", far)
            site.psql.rows("select broker.alter_broker(honor_broker_priority => true)")
        wrong = ("InitiatorToTargetPriority", "InitiatorSerivce", "TargetService")
        assert initiator.psql.refused(PRIORITY, *wrong) == "S8423"
        initiator.psql.rows(PRIORITY, "InitiatorToTargetPriority", "InitiatorService", "TargetService")
        target.psql.rows(PRIORITY, "TargetToInitiatorPriority", "TargetService", "InitiatorService")
        begin = "select broker.begin_dialog('InitiatorService', 'TargetService', %s, encryption => false)"
        request = initiator.psql.value(begin, "SimpleContract")
        initiator.psql.send(request, "RequestMessage", b"level 3")
        other = initiator.psql.value(begin, "DEFAULT")
        initiator.psql.send(other, "DEFAULT", b"level 5, sent later")
        sent = "select priority from broker.transmission_queue order by enqueue_time"
        assert initiator.psql.rows(sent) == [(3,), (5,)]
        initiator.start_worker()
        target.start_worker()
        arrived = 'select priority, message_body from "TargetQueue" order by queuing_order'
        expected = [(5, b"level 5, sent later"), (3, b"level 3")]
        until(lambda: len(target.psql.rows(arrived)) == 2)
        assert target.psql.rows(arrived) == expected
        # One RECEIVE passes a group by while a worker delivers to it again.
        take = (
            "select priority, message_body, conversation_handle from broker.receive(%s, timeout => '120 s')"
        )
        received = [target.psql.rows(take, "TargetQueue")[0] for _ in range(2)]
        assert [(level, body) for level, body, _ in received] == expected
        target.psql.send(received[1][2], "ReplyMessage", b"answer")
        queued = 'select priority, message_body from "InitiatorQueue"'
        until(lambda: initiator.psql.rows(queued) == [(3, b"answer")])
        assert initiator.psql.bodies("InitiatorQueue", timeout="120 s") == [b"answer"]
