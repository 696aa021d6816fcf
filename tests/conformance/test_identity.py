"""Who a database is as a broker: its guid, turning it off and on, copies, and what survives a restart."""

from __future__ import annotations

import subprocess
import sys
import uuid
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from pybroker.embedded import EmbeddedServer, EmbeddedServerError
from pybroker.migrations import migrate
from tests.conftest import SETTINGS, Database
from tests.shop import DIALOG_TIMER, ERROR, FIRE, Session, Shop, in_background, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from uuid import UUID

IDENTITY = "select service_broker_guid, is_broker_enabled from broker.databases"
STATUS = "select broker.get_transmission_status(%s)"


class Original:
    """A database with a dialog in it and one to elsewhere, which nobody is connected to: so it can be copied."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.shop = Shop(database)
        psql = self.shop.psql
        psql.rows("select broker.create_queue('elsewhere')")
        self.dialog: UUID = psql.dialog()
        psql.send(self.dialog, "order", b"0")
        self.remote: UUID = psql.value("select broker.begin_dialog('//shop', '//far', 'ordering')")
        psql.rows("select broker.create_route('far', 'tcp://far.example:4022', '//far')")
        psql.send(self.remote, "order", b"far")
        self.guid: UUID = psql.value("select service_broker_guid from broker.databases")
        self.shop.close()

    def template_copy(self) -> Database:
        """Copy the files of the database."""
        server = self.database.server
        name = f"copy_{uuid.uuid4().hex[:8]}"
        with psycopg.connect(server.url("postgres"), autocommit=True) as session:
            session.execute(f"create database {name} template {self.database.name}".encode())
        return Database(server, name)


@pytest.fixture
def original(any_database: Database) -> Original:
    return Original(any_database)


@pytest.fixture
def sessions() -> Iterator[Callable[[Database], Session]]:
    """A function that opens a session in a database."""
    opened: list[psycopg.Connection[Any]] = []

    def session(database: Database) -> Session:
        opened.append(database.connect())
        return Session(opened[-1])

    yield session
    for connection in opened:
        connection.close()


def assert_disabled(copy: Session, original: Original) -> None:
    """Assert that the copy keeps still: what is sent waits, and nothing is taken, brought or started."""
    assert copy.rows(IDENTITY) == [(original.guid, False)]
    assert str(copy.value("select disabled_reason from broker.databases")).startswith("9773")
    dialog = copy.dialog()
    copy.send(dialog, "order", b"waits")
    assert copy.value(STATUS, dialog).startswith("9773")
    assert copy.value(STATUS, original.remote).startswith("9773")
    assert copy.value("select min(left(transmission_status, 4)) from broker.transmission_queue") == "9773"
    assert copy.value("select broker_private.deliver_local()") == 0
    assert (
        copy.rows("select from broker_private.take(1, 0, 1, 10, 1000, '{}') where row_ids is not null") == []
    )
    assert copy.value("select is_broker_enabled from broker_private.worker_greeting()") is False
    copy.rows("create procedure program() language sql as ''")
    copy.rows(
        "select broker.alter_queue('warehouse', activation_procedure => 'public.program', max_queue_readers => 1)"
    )
    assert copy.rows("select from broker_private.activate_queues()") == []
    nothing = (
        "'{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '', '{}', '{}', '{}', '{}'"
    )
    assert copy.refused(f"select broker_private.deliver(gen_random_uuid(), {nothing})") == "T8012"


def test_rows_158_162_edge_089_a_copied_database_is_off_until_it_is_told_who_it_is(
    original: Original, sessions: Callable[[Database], Session]
) -> None:
    successor, newcomer = sessions(original.template_copy()), sessions(original.template_copy())
    for copy in (successor, newcomer):
        assert_disabled(copy, original)
    successor.rows("select broker.alter_broker('ENABLE_BROKER')")
    assert successor.rows(IDENTITY) == [(original.guid, True)]
    successor.send(original.dialog, "order", b"1")
    assert sorted(map(str, successor.bodies() + successor.bodies())) == ["b'0'", "b'1'", "b'waits'"]
    # What was open within the database goes on: both of its sides are in the copy.
    newcomer.send(original.dialog, "order", b"1")
    assert newcomer.bodies() == [b"0", b"1"]
    newcomer.rows("select broker.alter_broker('NEW_BROKER')")
    ((guid, is_enabled),) = newcomer.rows(IDENTITY)
    assert guid != original.guid
    assert is_enabled
    assert newcomer.rows("select from broker.conversation_endpoints") == []
    newcomer.send(newcomer.dialog(), "order", b"anew")
    assert newcomer.bodies() == [b"anew"]
    assert sessions(original.database).rows(IDENTITY) == [(original.guid, True)]


def test_row_161_error_broker_conversations_turns_a_restored_database_on(
    original: Original, sessions: Callable[[Database], Session]
) -> None:
    copy = sessions(original.template_copy())
    copy.rows("select broker.alter_broker('ERROR_BROKER_CONVERSATIONS')")
    assert copy.rows(IDENTITY) == [(original.guid, True)]
    assert copy.rows("select distinct state from broker.conversation_endpoints") == [("ER",)]


def test_row_162_a_restored_dump_is_off_until_it_is_told_who_it_is(
    original: Original, sessions: Callable[[Database], Session]
) -> None:
    server = original.database.server
    try:
        pg_dump = server.binary("pg_dump")
    except EmbeddedServerError:
        pytest.skip(f"PostgreSQL {server.version} comes without pg_dump here")
    dump = subprocess.run([pg_dump, original.database.url], capture_output=True, text=True, check=True).stdout
    name = f"restored_{uuid.uuid4().hex[:8]}"
    server.create_database(name)
    psql = [server.binary("psql"), "-X", "-q", "-v", "ON_ERROR_STOP=1", server.url(name)]
    restored = subprocess.run(psql, input=dump, capture_output=True, text=True, check=False)
    assert restored.returncode == 0, restored.stderr
    copy = sessions(Database(server, name))
    assert_disabled(copy, original)
    copy.rows("select broker.alter_broker('ENABLE_BROKER')")
    copy.send(original.dialog, "order", b"1")
    assert sorted(map(str, copy.bodies() + copy.bodies())) == ["b'0'", "b'1'", "b'waits'"]
    assert migrate(server.url(name)).applied_files == 0


def test_a_dump_restored_on_another_server_believes_no_plan_that_a_change_there_made_old(
    original: Original, sessions: Callable[[Database], Session]
) -> None:
    first = sessions(original.database)
    # The other server counts its transactions from the beginning.
    first.rows("do $$ begin for i in 1..5000 loop perform pg_current_xact_id(); commit; end loop; end $$")
    first.rows("select broker.alter_message_type('order', 'NONE')")
    for _ in range(2):
        first.send(original.dialog)
    try:
        pg_dump = original.database.server.binary("pg_dump")
    except EmbeddedServerError:
        pytest.skip(f"PostgreSQL {original.database.server.version} comes without pg_dump here")
    dump = subprocess.run([pg_dump, original.database.url], capture_output=True, text=True, check=True).stdout
    refusing, allowing = (
        f"select broker.alter_message_type('order', '{validation}')" for validation in ("EMPTY", "NONE")
    )
    send = "select broker.send(%s, 'order', 'x'::bytea)"
    with EmbeddedServer(version=original.database.server.version, settings=SETTINGS) as server:
        server.create_database("shop")
        psql = [server.binary("psql"), "-X", "-q", "-v", "ON_ERROR_STOP=1", server.url("shop")]
        restored = subprocess.run(psql, input=dump, capture_output=True, text=True, check=False)
        assert restored.returncode == 0, restored.stderr
        with psycopg.connect(server.url("shop"), autocommit=True) as connection:
            copy = Session(connection)
            copy.rows(send, original.dialog)
            copy.rows(refusing)
            assert copy.refused(send, original.dialog) == "S8430"
            # A rollback leaves the mark that holds for every plan of the other server.
            with connection.transaction(force_rollback=True):
                copy.rows("select broker.alter_broker('ENABLE_BROKER')")
            assert copy.refused(send, original.dialog) == "S8430"
            copy.rows("select broker.alter_broker('ENABLE_BROKER')")
            assert copy.refused(send, original.dialog) == "S8430"
            # From now on plans are made and become old as on any server.
            copy.rows(allowing)
            for _ in range(2):
                copy.rows(send, original.dialog)
            assert copy.value("select count(*) from broker_private.groups where send_handle is not null") == 1
            copy.rows(refusing)
            assert copy.refused(send, original.dialog) == "S8430"


def test_a_crash_of_the_server_loses_no_mark_of_what_was_committed(any_server: EmbeddedServer) -> None:
    with EmbeddedServer(version=any_server.version, settings=SETTINGS) as server:
        server.create_database("shop")
        migrate(server.url("shop"))
        shop = Shop(Database(server, "shop"))
        dialog = shop.psql.dialog()
        for change in ("rolled back by a crash", "committed"):
            for _ in range(2):
                shop.psql.send(dialog, "order", b"x")
            (changing,) = shop.sessions(1)
            changing.rows("select broker.alter_message_type('order', 'EMPTY')")
            if change == "committed":
                changing.connection.commit()
            server.kill()
            shop.close()
            server.start()
            shop.psql = shop.session()
        assert shop.psql.refused("select broker.send(%s, 'order', 'x'::bytea)", dialog) == "S8430"
        assert len(shop.psql.bodies()) == 4
        shop.close()


def test_row_162_a_copy_on_another_server_is_off_even_under_the_same_oid(shop: Shop) -> None:
    psql = shop.psql
    psql.rows(
        "create or replace function broker_private.system_identifier() returns bigint language sql stable"
        " begin atomic select 1::bigint; end"
    )
    assert psql.value("select left(disabled_reason, 4) from broker.databases") == "9773"
    psql.rows("select broker.alter_broker('ENABLE_BROKER')")
    assert psql.value("select is_broker_enabled from broker.databases") is True


def test_row_162_where_the_owner_may_not_ask_for_the_servers_identity_the_oid_tells(
    any_server: EmbeddedServer,
) -> None:
    owner, name = f"owner_{uuid.uuid4().hex[:8]}", f"managed_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(any_server.url("postgres"), autocommit=True) as session:
        session.execute(f"create role {owner} login".encode())
    any_server.create_database(name, owner=owner)
    with psycopg.connect(any_server.url(name), autocommit=True) as session:
        session.execute("revoke execute on function pg_control_system() from public")
    migrate(any_server.url(name, user=owner))
    for database, is_enabled in ((name, True), (f"{name}_copy", False)):
        if not is_enabled:
            with psycopg.connect(any_server.url("postgres"), autocommit=True) as session:
                session.execute(f"create database {database} template {name} owner {owner}".encode())
        with psycopg.connect(any_server.url(database, user=owner), autocommit=True) as session:
            query = "select is_broker_enabled from broker.databases"
            assert session.execute(query).fetchone() == (is_enabled,)
            session.execute("select broker.alter_broker('ENABLE_BROKER')")
            assert session.execute(query).fetchone() == (True,)


def test_row_162_a_renamed_database_is_no_copy(
    original: Original, sessions: Callable[[Database], Session]
) -> None:
    server, renamed = original.database.server, f"renamed_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(server.url("postgres"), autocommit=True) as session:
        session.execute(f"alter database {original.database.name} rename to {renamed}".encode())
    psql = sessions(Database(server, renamed))
    assert psql.rows(IDENTITY) == [(original.guid, True)]
    psql.send(original.dialog, "order", b"1")
    assert psql.bodies() == [b"0", b"1"]


def test_migrate_says_that_a_database_is_a_copy_and_renews_only_such_a_one(
    original: Original, sessions: Callable[[Database], Session]
) -> None:
    def run(database: Database, *options: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "pybroker", "migrate", "--database-url", database.url, *options]
        return subprocess.run(command, capture_output=True, text=True, check=True)

    copy = original.template_copy()
    assert run(copy).stderr.startswith("9773")
    assert run(copy, "--new-broker").stderr == ""
    ((guid, is_enabled),) = sessions(copy).rows(IDENTITY)
    assert (guid != original.guid, is_enabled) == (True, True)
    assert migrate(copy.url, new_broker=True).broker_problem is None
    assert sessions(copy).rows(IDENTITY) == [(guid, True)]
    assert migrate(original.database.url, new_broker=True).broker_problem is None
    assert sessions(original.database).rows(IDENTITY) == [(original.guid, True)]


def test_only_the_owner_of_the_private_schema_sets_the_clock(shop: Shop) -> None:
    role = shop.database.role()
    shop.psql.rows(f"grant create on database {shop.database.name} to {role}")
    user = shop.session(user=role)
    for statement in (
        "create or replace function broker_private.clock() returns timestamptz language sql as 'select now()'",
        "create function broker_private.clock(integer) returns timestamptz language sql as 'select now()'",
        "alter function broker_private.clock() rename to old_clock",
        "drop function broker_private.clock()",
        "alter schema broker_private rename to mine",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            user.rows(statement)
    # A clock of one's own earlier in the search path is not asked either.
    user.rows(
        f"create schema {role}; set search_path = {role}, pg_catalog;"
        "create function clock() returns timestamptz language sql as $$select timestamptz '2000-01-01'$$;"
        "create function clock_timestamp() returns timestamptz language sql as $$select timestamptz '2000-01-01'$$"
    )
    shop.psql.rows("select broker.grant('RECEIVE', 'QUEUE', 'shop', %s::name)", role)
    shop.psql.rows("select broker.grant('REFERENCES', 'CONTRACT', 'ordering', %s::name)", role)
    dialog = user.dialog(lifetime="1 h")
    ends = "select lifetime > now() from broker.conversation_endpoints where conversation_handle = %s"
    assert user.value(ends, dialog) is True


def test_row_163_everything_survives_a_restart_of_the_server(any_server: EmbeddedServer) -> None:
    with EmbeddedServer(version=any_server.version, settings=SETTINGS) as server:
        server.create_database("shop")
        migrate(server.url("shop"))
        shop = Shop(Database(server, "shop"))
        dialog, unsent = shop.psql.dialog(lifetime="1 h"), shop.psql.dialog()
        far = shop.psql.value("select broker.begin_dialog('//shop', '//far', 'ordering')")
        shop.psql.send(dialog, "order", b"0")
        shop.psql.send(far, "order", b"far")
        target = shop.psql.handle_of(dialog)
        shop.psql.rows("select broker.begin_conversation_timer(%s, '1 min')", target)
        seen = (
            "select * from broker.conversation_endpoints order by 1",
            "select * from broker.conversation_groups order by 1",
            "select * from broker.transmission_queue",
            "select * from warehouse",
            IDENTITY,
        )
        before = [shop.psql.rows(query) for query in seen]
        assert all(before)
        shop.close()
        server.stop()
        server.start()
        shop.psql = shop.session()
        assert [shop.psql.rows(query) for query in seen] == before
        shop.psql.send(dialog, "order", b"1")
        assert shop.psql.bodies() == [b"0", b"1"]
        assert shop.psql.state(unsent) == "SO"
        shop.close()


def test_row_163_what_was_committed_survives_a_kill_and_timers_and_lifetimes_end_after_it(
    any_server: EmbeddedServer,
) -> None:
    with EmbeddedServer(version=any_server.version, settings=SETTINGS) as server:
        server.create_database("shop")
        migrate(server.url("shop"))
        shop = Shop(Database(server, "shop"))
        dialog, mortal = shop.psql.dialog(), shop.psql.dialog(lifetime="1 s")
        shop.psql.send(dialog, "order", b"committed")
        shop.psql.send(mortal, "order", b"short")
        target = shop.psql.handle_of(dialog)
        shop.psql.rows("select broker.begin_conversation_timer(%s, '1 s')", target)
        open_one = shop.session(autocommit=False)
        open_one.send(dialog, "order", b"never committed")
        open_one.rows("select from broker.receive('warehouse')")
        server.kill()
        shop.close()
        server.start()
        shop.psql = shop.session()
        fired = 0

        def all_fired() -> bool:
            nonlocal fired
            fired += shop.psql.value(FIRE)
            return fired == 3

        until(all_fired)
        kinds = [(kind, body) for kind, _, body in shop.psql.receive(conversation_handle=target)]
        assert kinds == [(DIALOG_TIMER, None), ("order", b"committed")]
        assert [kind for kind, _, _ in shop.psql.receive("shop")] == [ERROR]
        assert shop.psql.state(mortal) == "ER"
        shop.close()
        shop.close()


def test_edge_090_after_new_broker_peers_learn_only_that_the_guid_is_gone(
    original: Original, sessions: Callable[[Database], Session]
) -> None:
    psql = sessions(original.database)
    psql.rows("select broker.alter_broker('NEW_BROKER')")
    deliver = (
        "select fault_codes, fault_is_final from broker_private.deliver(gen_random_uuid(), array[%s::uuid], array[%s],"
        " '{//shop}', '{//warehouse}', array[%s::uuid], '{ordering}', array[now() + interval '1 h'], '{t}', '{order}',"
        " '{1}', '{1}', array[%s::bigint], 'M', array['x'::bytea], '{L}', '{null}', '{null}')"
    )
    known, forgotten = original.guid, uuid.uuid4()
    # A message for the guid that was waits at its sender; one for a conversation that was removed is told so.
    assert psql.rows(deliver, forgotten, True, known, 1) == [([-9795], [False])]
    assert psql.rows(deliver, forgotten, False, None, 1) == [([-8462], [True])]
    assert psql.rows("select from broker.conversation_endpoints") == []


WAITS = "select from pg_stat_activity where pid = %s and wait_event_type = 'Lock'"


def test_a_new_broker_that_waits_for_a_reader_lets_the_others_go_on(shop: Shop) -> None:
    psql, owner, reader = shop.psql, shop.session(), shop.session(autocommit=False)
    read, other = psql.dialog(), psql.dialog()
    psql.send(read, "order", b"read")
    guid = psql.value("select service_broker_guid from broker.databases")
    assert reader.bodies() == [b"read"]
    told: list[str] = []
    owner.connection.add_notice_handler(lambda notice: told.append(notice.message_primary or ""))
    renewed = in_background(lambda: owner.rows("select broker.alter_broker('NEW_BROKER')"))
    until(lambda: psql.rows(WAITS, owner.connection.info.backend_pid))
    # Far longer than anybody waits behind the owner, and not for ever, as the reader would.
    psql.rows("set lock_timeout = '20 s'")
    for body in (b"0", b"1"):
        psql.send(other, "order", body)
        assert psql.bodies() == [body]
    assert not renewed.done(), "the reader is still there"
    # A notice comes with the next one, or with the end.
    reader.connection.rollback()
    renewed.result(timeout=60)
    assert any(
        f"waits for transactions that use conversations: pid {reader.connection.info.backend_pid}" in text
        for text in told
    )
    assert psql.value("select service_broker_guid from broker.databases") != guid
    assert psql.rows("select from broker.conversation_endpoints") == []
    assert owner.value("show lock_timeout") == "0"


def test_a_new_broker_waits_no_longer_than_its_session_does(shop: Shop) -> None:
    psql, reader = shop.psql, shop.session(autocommit=False)
    psql.send(psql.dialog(), "order", b"read")
    assert reader.bodies() == [b"read"]
    psql.rows("set lock_timeout = '50 ms'")
    with pytest.raises(psycopg.errors.LockNotAvailable):
        psql.rows("select broker.alter_broker('NEW_BROKER')")
    reader.connection.rollback()
    psql.rows("begin; select broker.alter_broker('NEW_BROKER')")
    assert psql.value("show lock_timeout") == "50ms"
    psql.rows("commit")
    assert psql.rows("select from broker.conversation_endpoints") == []
