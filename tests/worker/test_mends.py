"""Each fault of the catalogue is planted, is the first finding, and what `pybroker diagnose` prints of it mends it."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any
from uuid import UUID

import psycopg
import pytest
from typer.testing import CliRunner

from pybroker.commands import application
from pybroker.diagnosis.catalogue import KINDS
from tests.activated import activating
from tests.patience import PATIENCE
from tests.shop import in_background, until, waits
from tests.worker.test_diagnose import ROOT, Diagnosed, diagnosed, received_all

if TYPE_CHECKING:
    from pybroker.embedded import EmbeddedServer

Printed = list[dict[str, Any]]
# It plants, yields the handle that is asked about or None, is sent what was printed, and does that.
Fault = Generator[UUID | None, Printed, None]
FAULTS: dict[int, Callable[[Diagnosed], Fault]] = {}
# Those that need more than one database, a certificate, or another program: the test that does what is printed.
ELSEWHERE = {
    1: "tests/worker/test_diagnose.py::test_a_database_that_is_away_is_an_error",
    3: "tests/worker/test_diagnose.py::test_a_database_that_is_newer_than_the_package",
    5: "tests/sql/test_migrations.py::test_a_dump_of_the_schema_alone_is_found_and_filled",
    112: "tests/worker/test_diagnose.py::test_a_certificate_that_expires_soon_is_named_until_it_has_a_successor",
    113: "tests/sql/test_rights.py::test_a_right_that_crept_in_is_found_taken_and_said",
    114: "tests/sql/test_publications.py::test_a_publication_that_names_the_broker_s_tables_lets_them_go",
    **dict.fromkeys(
        (305, 306, 307, 316),
        "tests/two_servers/test_diagnosis_of_two.py::"
        "test_each_fault_of_the_way_is_the_first_finding_until_it_is_mended",
    ),
    **dict.fromkeys(
        (308, 309, 310, 311, 315),
        "tests/two_servers/test_diagnosis_of_two.py::"
        "test_each_fault_of_the_endpoints_is_the_first_finding_until_it_is_mended",
    ),
    **dict.fromkeys(
        (312, 313, 317),
        "tests/two_servers/test_diagnosis_of_two.py::"
        "test_each_fault_of_dialog_security_and_of_forwarding_is_named_until_it_is_mended",
    ),
    314: "tests/two_servers/test_diagnosis_of_two.py::test_a_broker_that_is_not_where_the_route_leads",
    **dict.fromkeys(
        (417, 509), "tests/two_servers/test_asking.py::test_a_far_broker_that_is_silent_is_said_to_be"
    ),
    **dict.fromkeys(
        (501, 502, 505, 506, 508),
        "tests/worker/test_diagnose.py::test_row_168_a_configuration_of_two_databases",
    ),
    503: "tests/worker/test_diagnose.py::test_row_168_a_configuration_within_one_database",
    504: "tests/worker/test_diagnose.py::test_row_168_a_configuration_of_two_databases",
    507: "tests/worker/test_diagnose.py::test_row_168_a_configuration_of_two_databases",
    901: "tests/worker/test_diagnose.py::test_a_role_is_told_only_of_what_it_may_see",
}


SCHEMA = '<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema"/>'


def plants(number: int) -> Callable[[Callable[[Diagnosed], Fault]], Callable[[Diagnosed], Fault]]:
    def register(fault: Callable[[Diagnosed], Fault]) -> Callable[[Diagnosed], Fault]:
        assert number not in FAULTS
        FAULTS[number] = fault
        return fault

    return register


def printed(shop: Diagnosed, handle: UUID | None = None) -> Printed:
    """Return what the command finds, the first first."""
    asked = () if handle is None else ("--conversation", str(handle))
    code, output = shop.command("--json", *asked)
    found: Printed = json.loads(output)["findings"]
    assert code == (1 if any(one["level"] == "error" for one in found) else 0)
    return found


def do(shop: Diagnosed, mends: Printed, **known: str) -> None:
    """Do what is printed, with what nobody but the operator knows put in."""
    assert mends, "nothing was printed"
    for mend in mends:
        statement = mend["statement"]
        for gap, value in known.items():
            assert gap in statement
            statement = statement.replace(gap, value)
        if statement.startswith("pybroker "):
            result = CliRunner().invoke(application, shlex.split(statement)[1:])
            assert result.exit_code == 0, result.output
        else:
            with shop.database.connect() as session:
                session.execute(statement.encode())


def until_found(shop: Diagnosed, number: int) -> None:
    until(lambda: number in shop.numbers())


@pytest.fixture
def shop(any_server: EmbeddedServer) -> Iterator[Diagnosed]:
    with diagnosed(any_server) as shop:
        yield shop


# --- the database


@plants(2)
def not_installed(shop: Diagnosed) -> Fault:
    with shop.database.connect() as session:
        session.execute("drop schema broker, broker_private cascade")
    do(shop, (yield None))


@plants(4)
def older_than_the_program(shop: Diagnosed) -> Fault:
    shop.psql.rows("drop function broker.diagnose(uuid)")
    shop.psql.rows("delete from broker_private.applied_sql where path = 'diagnosis/diagnose.sql'")
    do(shop, (yield None))


@plants(101)
def disabled(shop: Diagnosed) -> Fault:
    dialog = shop.psql.dialog()
    shop.psql.rows("select broker.alter_broker('DISABLE_BROKER')")
    shop.psql.send(dialog)
    assert shop.numbers() == [101], "it is the one cause of all that waits"
    do(shop, (yield None))
    shop.psql.send(dialog)
    assert len(shop.psql.receive()) == 2


@plants(102)
def copy(shop: Diagnosed) -> Fault:
    dialog = shop.psql.dialog()
    shop.psql.rows("update broker_private.broker_instance set database_oid = 1")
    mends = yield None
    assert all(one["is_destructive"] for one in mends)
    ways = {one["statement"].split("'")[1]: one for one in mends}
    assert ways.keys() == {"ENABLE_BROKER", "NEW_BROKER"}
    output = shop.command("--fix", "--destructive", answers="y\ny\n")[1]
    assert (output.count("yours to run"), "Run it?" in output) == (2, False), (
        "nobody chooses for the operator"
    )
    do(shop, [ways["ENABLE_BROKER"]])
    shop.psql.send(dialog)
    assert len(shop.psql.receive()) == 1, "its conversations go on"
    shop.psql.rows("update broker_private.broker_instance set database_oid = 1")
    do(shop, [ways["NEW_BROKER"]])


@plants(103)
def no_worker(shop: Diagnosed) -> Fault:
    activate(shop, "perform count(*) from broker.receive(''warehouse'')")
    shop.psql.rows(
        "insert into broker_private.workers values (gen_random_uuid(), now(), now() - interval '7 min')"
    )
    shop.psql.send(shop.psql.dialog())
    assert shop.numbers() == [], "a worker that restarts is no fault"
    shop.later("1 min")
    (since,) = (one["since"] for one in shop.findings())
    assert since == shop.psql.value("select max(last_seen) from broker_private.workers"), "when it died"
    (mend,) = yield None
    shop.later("0")
    command = [sys.executable, "-m", *shlex.split(mend["statement"])]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as worker:
        until(lambda: shop.psql.value("select count(*) from broker_private.messages") == 0)
        worker.terminate()
    assert worker.returncode == 0


@plants(104)
def prepared(shop: Diagnosed) -> Fault:
    begun = shop.session(autocommit=False)
    begun.rows("select txid_current()")
    gid = f"order {shop.database.name}"
    begun.rows(f"prepare transaction '{gid}'")
    begun.connection.autocommit = True
    assert shop.numbers() == []
    shop.later("10 min")
    do(shop, (yield None))
    shop.later("0")


@plants(105)
def old_snapshot(shop: Diagnosed) -> Fault:
    old = shop.session(autocommit=False)
    old.rows("set transaction isolation level repeatable read")
    old.rows("select count(*) from broker.services")
    assert shop.numbers() == []
    shop.later("1 hour")
    do(shop, (yield None))


@plants(106)
def no_autovacuum(shop: Diagnosed) -> Fault:
    shop.psql.rows("alter table broker_private.messages set (autovacuum_enabled = false)")
    do(shop, (yield None))


@plants(107)
def priorities_not_honored(shop: Diagnosed) -> Fault:
    shop.psql.rows("select broker.create_broker_priority('first', priority_level => 8)")
    do(shop, (yield None))


@plants(108)
def endpoint_stopped(shop: Diagnosed) -> Fault:
    shop.psql.rows("select broker.create_endpoint('door', 4022, encryption => 'DISABLED')")
    do(shop, (yield None))


@plants(109)
def notification_without_conversation(shop: Diagnosed) -> Fault:
    make = "select broker.create_event_notification('n', 'shop', 'QUEUE_ACTIVATION', '//warehouse')"
    shop.psql.rows(make)
    shop.psql.rows(
        "select broker.end_conversation(conversation_handle, cleanup => true) from broker.conversation_endpoints"
        " where far_service = '//warehouse'"
    )
    mends = yield None
    assert "yours to run" in shop.command("--fix", "--yes")[1], "nobody runs it unasked"
    do(shop, mends)


@plants(110)
def unread_collection(shop: Diagnosed) -> Fault:
    shop.psql.rows(f"select broker.create_schema_collection('forms', array['{SCHEMA}'])")
    shop.psql.rows(
        "select broker_private.set_schema_problem(schema_collection_id, 'no schema')"
        " from broker_private.schema_collections"
    )
    assert (yield None) == []
    shop.psql.rows("select broker.drop_schema_collection('forms')")


@plants(111)
def owner_dropped(shop: Diagnosed) -> Fault:
    role = shop.database.role()
    shop.psql.rows("select broker.create_queue('orphan')")
    shop.psql.rows(f"select broker.alter_authorization('QUEUE', 'orphan', '{role}')")
    shop.psql.rows(f"drop owned by {role}")
    shop.psql.rows(f"drop role {role}")
    do(shop, (yield None))


@plants(115)
def conversation_held(shop: Diagnosed) -> Fault:
    dialog = shop.psql.dialog()
    shop.psql.send(dialog)
    assert shop.psql.receive()
    holder, *waiting = shop.sessions(3)
    holder.send(dialog)
    sent = [in_background(lambda session=session: session.send(dialog)) for session in waiting]
    for session in waiting:
        until(lambda session=session: waits(shop.psql, session, "Lock"))
    (named,) = shop.findings(dialog)[:1]
    assert (named["number"], named["level"]) == (115, "information"), "it holds it for a moment yet"
    shop.later("2 min")
    first = shop.findings()[0]
    assert first["object"] == str(dialog)
    assert f"pid {holder.connection.info.backend_pid} " in first["problem"]
    assert "2 sessions wait for it" in first["problem"]
    do(shop, (yield None))
    # One after the other gets it.
    until(lambda: any(one.done() for one in sent))
    for one, session in zip(sent, waiting, strict=True):
        if one.done():
            session.connection.commit()
    for one, session in zip(sent, waiting, strict=True):
        one.result(PATIENCE)
        session.connection.commit()
    shop.later("0")


@plants(116)
def disk_full(shop: Diagnosed) -> Fault:
    shop.psql.rows(
        "create function public.full_disk() returns event_trigger language plpgsql as"
        " $$begin raise disk_full using message = 'No space left on device'; end$$"
    )
    shop.psql.rows(
        "create event trigger full_disk on ddl_command_start when tag in ('CREATE TABLE')"
        " execute function public.full_disk()"
    )
    assert (yield None) == []
    shop.psql.rows("drop event trigger full_disk")


@plants(117)
def task_fails(shop: Diagnosed) -> Fault:
    note = "select broker_private.note_periodic_task('sweep', '1 min', 'removes what is over', %s)"
    shop.psql.rows(note, "could not extend file: No space left on device")
    assert (yield None) == []
    # The disk has room again, and the worker did it.
    shop.later("1 min")
    shop.psql.rows(note, None)
    shop.later("0")


# --- queues


def activate(shop: Diagnosed, body: str = "null", max_readers: int = 1) -> None:
    shop.psql.rows(f"create or replace procedure public.work() language plpgsql as 'begin {body}; end'")
    shop.psql.rows(
        "select broker.alter_queue('warehouse', activation_procedure => 'public.work',"
        f" max_queue_readers => {max_readers}, execute_as => 'OWNER')"
    )


@plants(201)
def off_after_rollbacks(shop: Diagnosed) -> Fault:
    shop.psql.send(shop.psql.dialog())
    activate(
        shop, "perform count(*) from broker.receive(''warehouse''); raise exception ''the archive is full''"
    )
    with activating(shop.database.url):
        until(
            lambda: shop.psql.value(
                "select not is_receive_enabled from broker.service_queues where name = 'warehouse'"
            )
        )
    assert "the archive is full" in shop.findings()[0]["problem"], "the error is known"
    shop.psql.rows("select broker.alter_queue('warehouse', drop_activation => true)")
    do(shop, (yield None))
    assert len(shop.psql.receive()) == 1


@plants(202)
def turned_off(shop: Diagnosed) -> Fault:
    shop.psql.rows("select broker.alter_queue('warehouse', status => false)")
    do(shop, (yield None))


@plants(203)
def waits_for_a_queue_that_is_off(shop: Diagnosed) -> Fault:
    dialog = shop.psql.dialog()
    # The queue of the initiator keeps no message of it.
    shop.psql.rows("select broker.alter_queue(q, status => false) from unnest(array['shop', 'warehouse']) q")
    shop.psql.send(dialog)
    assert shop.numbers(dialog) == [203]
    do(shop, (yield dialog))
    assert len(shop.psql.receive()) == 1


@plants(204)
def procedure_gone(shop: Diagnosed) -> Fault:
    activate(shop)
    shop.psql.rows("drop procedure public.work")
    assert "9614" in shop.findings()[0]["problem"]
    assert (yield None) == []
    activate(shop)


@plants(205)
def activation_off(shop: Diagnosed) -> Fault:
    activate(shop)
    shop.psql.rows("select broker.alter_queue('warehouse', activation_status => false)")
    do(shop, (yield None))


@plants(206)
def procedure_not_allowed(shop: Diagnosed) -> Fault:
    role, author = shop.database.role(), shop.database.role()
    activate(shop)
    shop.psql.rows(f"select broker.alter_queue('warehouse', execute_as => '{role}')")
    shop.psql.rows(f"alter procedure public.work() owner to {author}")
    shop.psql.rows("revoke execute on procedure public.work() from public")
    assert shop.findings()[0]["mend_role"] == author
    assert (yield None) == []
    shop.psql.rows(f"grant execute on procedure public.work() to {role}")


@plants(207)
def procedure_fails(shop: Diagnosed) -> Fault:
    work = "perform count(*) from broker.receive(''warehouse''); commit; "
    activate(shop, work + "execute ''vacuum''")
    shop.psql.send(shop.psql.dialog())
    with activating(shop.database.url):
        until_found(shop, 207)
        # What it received is gone: nothing waits, and what it was to do is not done.
        assert shop.psql.value("select count(*) from broker_private.messages") == 0
        assert "VACUUM" in shop.findings()[0]["problem"]
        assert (yield None) == []
        activate(shop, work + "null")
        shop.psql.send(shop.psql.dialog())
        until(lambda: 207 not in shop.numbers())


@plants(208)
def readers_at_their_maximum(shop: Diagnosed) -> Fault:
    gate = shop.session()
    gate.rows("select pg_advisory_lock(8)")
    activate(
        shop,
        "perform count(*) from broker.receive(''warehouse''); commit; perform pg_advisory_lock_shared(8);"
        " perform pg_advisory_unlock_all()",
    )
    with (
        activating(shop.database.url),
        psycopg.connect(shop.database.url, application_name="pybroker worker"),
    ):
        for _ in range(2):
            shop.psql.send(shop.psql.dialog())
        until(lambda: shop.psql.value("select count(*) from broker_private.messages") == 1)
        assert shop.numbers() == []
        shop.later("6 min")
        first = shop.findings()[0]
        assert (first["level"], "of 1 readers that its activation may start 1 run" in first["problem"]) == (
            "error",
            True,
        )
        do(shop, (yield None))
        shop.later("0")
        until(lambda: shop.psql.value("select count(*) from broker_private.messages") == 0)
        gate.rows("select pg_advisory_unlock(8)")


@plants(209)
def role_of_procedure_dropped(shop: Diagnosed) -> Fault:
    role = shop.database.role()
    activate(shop)
    shop.psql.rows(f"select broker.alter_queue('warehouse', execute_as => '{role}')")
    shop.psql.rows(f"drop role {role}")
    mends = yield None
    # Who wrote the procedure would be the queue's owner: nobody runs that for whoever asks.
    assert "Run it?" not in shop.command("--fix", answers="y\n")[1]
    do(shop, mends, ROLE=shop.database.role())


@plants(210)
def first_group_held(shop: Diagnosed) -> Fault:
    shop.psql.send(shop.psql.dialog())
    holder = shop.session(autocommit=False)
    assert holder.receive()
    assert shop.numbers() == [], "who receives holds what it receives"
    shop.later("7 min")
    assert f"pid {holder.connection.info.backend_pid} " in shop.findings()[0]["problem"]
    assert shop.numbers() == [210], "that it waits for long has this one cause"
    do(shop, (yield None))
    shop.later("0")
    assert len(shop.psql.receive()) == 1, "its message is there again"


@plants(211)
def nobody_reads(shop: Diagnosed) -> Fault:
    # What an event notification tells a service is read by nobody either.
    contract = "http://schemas.microsoft.com/SQL/Notifications/PostEventNotification"
    shop.psql.rows("select broker.create_service('//told', 'shop', array[%s])", contract)
    shop.psql.rows("select broker.create_event_notification('n', 'warehouse', 'QUEUE_ACTIVATION', '//told')")
    shop.psql.send(shop.psql.dialog())
    shop.psql.rows("select broker_private.emit_queue_activations()")
    assert shop.numbers() == []
    shop.later("6 min")
    found = [(one["number"], one["level"], one["object"]) for one in shop.findings()]
    assert sorted(found) == [(211, "warning", "shop"), (211, "warning", "warehouse")], "no program is missed"
    assert (yield None) == []
    received_all(shop)
    assert len(shop.psql.receive("shop")) == 1


# --- the way to another service


def to(shop: Diagnosed, service: str) -> UUID:
    dialog: UUID = shop.psql.value("select broker.begin_dialog('//shop', %s, encryption => false)", service)
    shop.psql.send(dialog, "DEFAULT")
    return dialog


@plants(301)
def no_route_at_all(shop: Diagnosed) -> Fault:
    shop.psql.rows("select broker.drop_route('AutoCreatedLocal')")
    to(shop, "//nowhere")
    do(shop, (yield None), **{"tcp://HOST:PORT": "tcp://far:4022"})


@plants(302)
def dynamic_routing_silent(shop: Diagnosed) -> Fault:
    shop.psql.rows("select broker.create_queue('routing')")
    shop.psql.rows("select broker.create_service('SQL/ServiceBroker/BrokerConfiguration', 'routing')")
    to(shop, "//asked")
    assert (yield None) == []
    shop.psql.rows("select broker.create_route('asked', 'tcp://far:4022', '//asked')")


@plants(303)
def no_route_names_it(shop: Diagnosed) -> Fault:
    # A route of another service has the name.
    shop.psql.rows("select broker.create_route('//gone', 'tcp://other:4022', '//other')")
    dialog = to(shop, "//gone")
    assert shop.findings(dialog)[0]["number"] == 303
    do(shop, (yield None), **{"tcp://HOST:PORT": "tcp://far:4022"})


@plants(304)
def route_is_local(shop: Diagnosed) -> Fault:
    shop.psql.rows("select broker.create_route('near', 'LOCAL', '//nowhere')")
    to(shop, "//nowhere")
    do(shop, (yield None), **{"tcp://HOST:PORT": "tcp://far:4022"})


@plants(320)
def route_over(shop: Diagnosed) -> Fault:
    shop.psql.rows(
        "select broker.create_route('far', 'tcp://far:4022', '//far', lifetime => interval '1 hour')"
    )
    shop.later("2 hours")
    do(shop, (yield None))


@plants(321)
def route_over_and_messages_wait(shop: Diagnosed) -> Fault:
    shop.psql.rows(
        "select broker.create_route('far', 'tcp://far:4022', '//far', lifetime => interval '1 hour')"
    )
    shop.later("2 hours")
    to(shop, "//far")
    assert shop.numbers() == [321], "the route that is over is the cause, told once"
    do(shop, (yield None))


@plants(322)
def binding_without_certificate(shop: Diagnosed) -> Fault:
    role = shop.database.role()
    shop.psql.rows(f"select broker.create_remote_service_binding('far', '//far', '{role}')")
    mends = yield None
    assert mends[0]["statement"].count("'PEM'") == 1
    shop.psql.rows("select broker.drop_remote_service_binding('far')")


@plants(399)
def another_reason(shop: Diagnosed) -> Fault:
    shop.psql.rows("select broker.create_route('far', 'tcp://far:4022', '//far')")
    to(shop, "//far")
    say = (
        "select broker_private.set_destination_status(destination_no, %s)"
        " from broker_private.destinations where service_name = '//far'"
    )
    shop.psql.rows(say, "9736: Something else.")
    with psycopg.connect(shop.database.url, application_name="pybroker worker"):
        assert (yield None) == []
        shop.psql.rows(say, None)


# --- conversations


@plants(401)
def quarantined(shop: Diagnosed) -> Fault:
    shop.psql.rows("select broker.alter_queue('warehouse', poison_action => 'QUARANTINE')")
    dialogs = [shop.psql.dialog() for _ in range(4)]
    for place, dialog in enumerate(dialogs):
        shop.psql.send(dialog)
        for _ in range(5):
            shop.psql.rows(
                "select broker.note_failure(%s, %s)",
                shop.psql.handle_of(dialog),
                f"--database-url URL {place // 3}",
            )
    found = [(one["object"], one["problem"], one["since"]) for one in shop.findings()]
    since = shop.psql.value("select min(quarantined_at) from broker.quarantine")
    far = str(shop.psql.handle_of(dialogs[3]))
    assert found[0] == (
        "warehouse",
        '3 conversations are quarantined in the queue "warehouse": --database-url URL 0',
        since,
    )
    assert found[1][:2] == (
        far,
        'The conversation is quarantined in the queue "warehouse": --database-url URL 1',
    )
    do(shop, (yield None))
    assert len(shop.psql.rows("select from broker.quarantine")) == 1
    do(shop, printed(shop)[0]["mend"])
    received_all(shop)


@plants(403)
def lifetimes_over(shop: Diagnosed) -> Fault:
    for _ in range(2):
        shop.psql.dialog(lifetime="1 hour")
    shop.psql.rows("update broker_private.endpoints set expires_at = now() - interval '1 hour'")
    mends = yield None
    assert mends[0]["is_destructive"]
    do(shop, mends)
    assert shop.psql.rows("select from broker_private.endpoints where local_end is null") == []


@plants(404)
def nobody_ends_them(shop: Diagnosed) -> Fault:
    shop.psql.rows(
        "select broker.begin_dialog('//shop', '//warehouse', 'ordering') from generate_series(1, 101)"
    )
    until(lambda: shop.numbers() == [404])
    assert (yield None) == []
    shop.psql.rows("select broker.end_conversation(conversation_handle) from broker.conversation_endpoints")


@plants(410)
def unknown_conversation(shop: Diagnosed) -> Fault:
    unknown = UUID(int=1)
    assert (yield unknown) == []
    shop.psql.rows("update broker_private.endpoints set conversation_handle = %s", unknown)
    dialog = shop.psql.dialog()
    shop.psql.rows(
        "update broker_private.endpoints set conversation_handle = %s where conversation_handle = %s",
        unknown,
        dialog,
    )


@plants(411)
def far_side_ended(shop: Diagnosed) -> Fault:
    dialog = shop.psql.dialog()
    shop.psql.send(dialog)
    received_all(shop)
    shop.psql.end(shop.psql.handle_of(dialog))
    assert shop.psql.receive("shop")
    do(shop, (yield dialog))


@plants(412)
def in_error(shop: Diagnosed) -> Fault:
    dialog = shop.psql.dialog()
    shop.psql.send(dialog)
    received_all(shop)
    shop.psql.end(shop.psql.handle_of(dialog), 50001, "out of stock")
    assert "out of stock" in shop.findings(dialog)[0]["problem"]
    do(shop, (yield dialog))


@plants(413)
def this_side_ended(shop: Diagnosed) -> Fault:
    dialog = shop.psql.dialog()
    shop.psql.send(dialog)
    shop.psql.end(dialog)
    assert (yield dialog) == []
    received_all(shop)
    shop.psql.rows("delete from broker_private.endpoints where conversation_handle = %s", dialog)


@plants(414)
def nothing_sent(shop: Diagnosed) -> Fault:
    dialog = shop.psql.dialog()
    assert (yield dialog) == []
    shop.psql.send(dialog)


@plants(415)
def arrived(shop: Diagnosed) -> Fault:
    dialog = shop.psql.dialog()
    shop.psql.send(dialog)
    assert (yield dialog) == []
    received_all(shop)


@plants(416)
def one_is_missing(shop: Diagnosed) -> Fault:
    dialog = shop.psql.dialog()
    shop.psql.send(dialog)
    received_all(shop)
    shop.psql.rows(
        "insert into broker_private.early_messages (endpoint_no, sequence_number, enqueue_time, queue_id, message_type_id, kind, size)"
        " select e.endpoint_no, 7, now(), e.queue_id, 14, 'M', 0 from broker_private.endpoints e where e.conversation_handle = %s",
        dialog,
    )
    assert (yield dialog) == []
    shop.psql.rows("delete from broker_private.early_messages")


@plants(418)
def tried_again(shop: Diagnosed) -> Fault:
    shop.psql.rows("select broker.alter_queue('warehouse', poison_action => 'QUARANTINE')")
    dialog = shop.psql.dialog()
    shop.psql.send(dialog)
    far = shop.psql.handle_of(dialog)
    shop.psql.rows("select broker.note_failure(%s, 'no paper', '{1 h}')", far)
    told = shop.findings(far)[0]
    ((due, since),) = shop.psql.rows("select retry_at::text, quarantined_at from broker.quarantine")
    assert told["problem"] == (
        f'The conversation\'s message failed in the queue "warehouse", and is tried again at {due}: no paper'
    )
    assert (told["level"], told["since"]) == ("information", since)
    # One that will be tried again keeps nobody awake: only whoever asks for it is told.
    assert shop.numbers() == []
    assert (yield far) == []
    shop.psql.rows("select broker.redrive(%s)", far)
    assert len(shop.psql.receive()) == 1


# --- all of them


def test_each_entry_of_the_catalogue_is_planted_here_or_elsewhere() -> None:
    assert sorted([*FAULTS, *ELSEWHERE]) == sorted(KINDS)
    for place in ELSEWHERE.values():
        file, _, name = place.partition("::")
        assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8"), place


@pytest.mark.parametrize("number", FAULTS)
def test_what_is_printed_of_a_fault_mends_it(shop: Diagnosed, number: int) -> None:
    fault = FAULTS[number](shop)
    handle = next(fault)
    first = printed(shop, handle)[0]
    assert first["number"] == number, first
    assert first["level"] == KINDS[number].level or KINDS[number].level == "error", first
    with pytest.raises(StopIteration):
        fault.send(first["mend"])
    assert number not in [one["number"] for one in printed(shop, handle)]
