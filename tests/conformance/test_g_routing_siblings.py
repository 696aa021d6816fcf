"""Section G between the databases of one worker, which reach each other without a route, an endpoint or a certificate."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, NamedTuple

import psycopg
import pytest

from tests import sql_calls
from tests.conftest import migrated_database
from tests.patience import PATIENCE
from tests.shop import END_DIALOG, Session, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from uuid import UUID

    from pybroker.embedded import EmbeddedServer

DEFINITIONS = """
select broker.create_message_type('order');
select broker.create_message_type('ack');
select broker.create_contract('ordering', sent_by_initiator => '{order}', sent_by_target => '{ack}');
"""
NAMES = ("siblings_home", "siblings_one", "siblings_other")


class Siblings(NamedTuple):
    """Three databases on one server, and one worker for all of them."""

    home: Session
    one: Session
    other: Session


def service(session: Session, name: str) -> None:
    session.rows("select broker.create_queue(%s)", name)
    session.rows("select broker.create_service(%s, %s, '{ordering}')", name, name)


def begun(session: Session, initiator: str, target: str, **options: object) -> UUID:
    extra = "".join(f", {name} => %s" for name in options)
    dialog: UUID = session.value(
        f"select broker.begin_dialog(%s, %s, 'ordering'{extra})", initiator, target, *options.values()
    )
    session.send(dialog, "order", b"hello")
    return dialog


def guid(session: Session) -> str:
    return str(session.value("select service_broker_guid from broker.databases"))


def unsent(session: Session, dialog: UUID) -> int:
    count: int = session.value(
        "select count(*) from broker.transmission_queue where conversation_handle = %s", dialog
    )
    return count


@pytest.fixture(scope="module")
def siblings(
    tmp_path_factory: pytest.TempPathFactory, server_for: Callable[[str, int], EmbeddedServer]
) -> Iterator[Siblings]:
    server = server_for("siblings", 18)
    for name in NAMES:
        migrated_database(server, name)
    sessions = [Session(psycopg.connect(server.url(name), autocommit=True)) for name in NAMES]
    for session in sessions:
        session.rows(DEFINITIONS)
    urls = [part for name in NAMES for part in ("--database-url", server.tcp_url(name))]
    with (tmp_path_factory.mktemp("siblings") / "worker.log").open("w") as log:
        worker = subprocess.Popen([sys.executable, "-m", "pybroker", "worker", *urls], stdout=log, stderr=log)
    yield Siblings(*sessions)
    worker.terminate()
    worker.wait(timeout=PATIENCE)
    for session in sessions:
        session.connection.close()
    for name in NAMES:
        sql_calls.note(server.url(name))
    with psycopg.connect(server.url("postgres"), autocommit=True) as session:
        for name in NAMES:
            session.execute(f'drop database "{name}" with (force)'.encode())


def test_rows_100_105_a_dialog_between_databases_of_a_worker_needs_no_route(siblings: Siblings) -> None:
    home, one, _ = siblings
    service(home, "//shop")
    service(one, "//warehouse")
    dialog = begun(home, "//shop", "//warehouse")
    ((kind, number, body),) = one.receive("//warehouse", timeout="120 s")
    assert (kind, number, body) == ("order", 0, b"hello")
    far = one.value(
        "select conversation_handle from broker.conversation_endpoints where far_service = '//shop'"
    )
    one.send(far, "ack", b"thanks")
    one.end(far)
    answers = home.receive("//shop", timeout="120 s")
    while len(answers) < 2:
        answers += home.receive("//shop", timeout="120 s")
    assert [kind for kind, _, _ in answers] == ["ack", END_DIALOG]
    home.end(dialog)
    until(lambda: one.state(far) in (None, "CD"))
    # What was said first may be acknowledged last.
    until(lambda: home.rows("select * from broker.transmission_queue") == [])


def test_row_100_a_large_body_reaches_another_database_of_the_worker(siblings: Siblings) -> None:
    home, one, _ = siblings
    service(home, "//ships")
    service(one, "//unloads")
    dialog = home.value("select broker.begin_dialog('//ships', '//unloads', 'ordering')")
    body = bytes(range(256)) * 8_000
    home.send(dialog, "order", body)
    home.send(dialog, "order", b"after")
    received = one.bodies("//unloads", timeout="120 s")
    while len(received) < 2:
        received += one.bodies("//unloads", timeout="120 s")
    assert received == [body, b"after"]


def test_row_105_a_named_broker_of_the_worker_needs_not_even_the_local_route(siblings: Siblings) -> None:
    home, one, other = siblings
    service(home, "//asks")
    service(one, "//named")
    service(other, "//named")
    home.rows("select broker.drop_route('AutoCreatedLocal')")
    waiting = begun(home, "//asks", "//named")
    begun(home, "//asks", "//named", broker_instance=guid(other))
    assert other.bodies("//named", timeout="120 s") == [b"hello"]
    until(lambda: home.value("select broker.get_transmission_status(%s)", waiting).startswith("9750"))
    home.rows("select broker.create_route('AutoCreatedLocal', 'LOCAL')")
    until(lambda: unsent(home, waiting) == 0)
    assert len(one.bodies("//named") + other.bodies("//named")) == 1


def test_row_105_an_answer_goes_straight_to_a_broker_of_the_worker(siblings: Siblings) -> None:
    home, one, _ = siblings
    service(home, "//asked")
    service(one, "//answers")
    one.rows("select broker.create_route('astray', 'tcp://127.0.0.1:1', service_name => '//asked')")
    begun(home, "//asked", "//answers")
    ((handle,),) = one.rows("select conversation_handle from broker.receive('//answers', timeout => '120 s')")
    one.send(handle, "ack", b"answer")
    assert home.bodies("//asked", timeout="120 s") == [b"answer"]


def test_rows_103_108_edge_052_each_dialog_goes_to_one_of_the_databases_with_the_service(
    siblings: Siblings,
) -> None:
    home, one, other = siblings
    service(home, "//spreads")
    service(one, "//copies")
    service(other, "//copies")
    dialogs = [begun(home, "//spreads", "//copies") for _ in range(30)]
    until(lambda: not any(unsent(home, dialog) for dialog in dialogs))
    for dialog in dialogs:
        home.send(dialog, "order", b"more")
    until(lambda: not any(unsent(home, dialog) for dialog in dialogs))
    query = (
        "select conversation_handle, array_agg(message_body order by message_sequence_number)"
        " from broker.queue_messages m join broker.service_queues q on q.object_id = m.queue_id"
        " where q.name = '//copies' group by 1"
    )
    here, there = dict(one.rows(query)), dict(other.rows(query))
    assert here
    assert there, "30 dialogs go to both"
    assert len(here) + len(there) == 30, "no dialog is in two databases"
    assert all(bodies == [b"hello", b"more"] for bodies in (*here.values(), *there.values()))


def test_row_106_edge_061_a_disabled_database_is_waited_for_if_it_is_named(siblings: Siblings) -> None:
    home, one, _ = siblings
    service(home, "//patient")
    service(one, "//sleeping")
    one.rows("select broker.alter_broker('DISABLE_BROKER')")
    dialog = begun(home, "//patient", "//sleeping", broker_instance=guid(one))
    until(lambda: home.value("select broker.get_transmission_status(%s)", dialog).startswith("28012"))
    one.rows("select broker.alter_broker('ENABLE_BROKER')")
    assert one.bodies("//sleeping", timeout="120 s") == [b"hello"]


def test_edge_087_no_key_is_asked_for_between_databases_of_a_worker(siblings: Siblings) -> None:
    home, one, _ = siblings
    service(home, "//keyless")
    service(one, "//open")
    begun(home, "//keyless", "//open", encryption=True)
    assert one.bodies("//open", timeout="120 s") == [b"hello"]


def test_rows_106_115_edge_047_the_service_may_come_later(siblings: Siblings) -> None:
    home, _, other = siblings
    service(home, "//early")
    dialog = begun(home, "//early", "//late")
    assert home.value("select broker.get_transmission_status(%s)", dialog).startswith("9793")
    service(other, "//late")
    assert other.bodies("//late", timeout="120 s") == [b"hello"]


def test_row_116_what_waits_goes_when_the_dynamic_routing_service_has_made_the_route(
    siblings: Siblings,
) -> None:
    home, _, other = siblings
    service(other, "//wanders")
    service(home, "//found")
    other.rows("select broker.create_queue('routing')")
    other.rows(
        "select broker.create_service('SQL/ServiceBroker/BrokerConfiguration', 'routing',"
        " '{http://schemas.microsoft.com/SQL/ServiceBroker/BrokerConfigurationNotice}')"
    )
    begun(other, "//wanders", "//found")
    ((handle, body),) = other.rows(
        "select conversation_handle, message_body from broker.receive('routing', timeout => '120 s')"
    )
    assert b"<SERVICE_NAME>//found</SERVICE_NAME>" in body
    assert home.bodies("//found") == []
    other.rows("select broker.create_route('found', 'LOCAL', service_name => '//found')")
    other.end(handle)
    assert home.bodies("//found", timeout="120 s") == [b"hello"]
    other.rows("select broker.drop_service('SQL/ServiceBroker/BrokerConfiguration')")


def test_edge_090_a_dialog_with_a_broker_that_is_no_more_ends_in_an_error_or_waits(
    siblings: Siblings,
) -> None:
    home, _, other = siblings
    service(home, "//left")
    service(other, "//renewed")
    dialog = begun(home, "//left", "//renewed")
    assert other.bodies("//renewed", timeout="120 s") == [b"hello"]
    until(lambda: unsent(home, dialog) == 0)
    other.rows("select broker.alter_broker('NEW_BROKER')")
    home.send(dialog, "order", b"more")
    until(lambda: home.value("select broker.get_transmission_status(%s)", dialog)[:4] in ("9795", "9793"))
    assert other.bodies("//renewed") == []
