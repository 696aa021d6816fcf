"""Six small rights times four aims: what somebody with one small right gains. docs/security.md has the table.

The best try of each cell that no other test makes. Where PostgreSQL itself lets the attack succeed, a test
shows that too, so that the page's section on what is inherent was run.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

import pybroker
from pybroker.migrations import migrate
from pybroker.status_readings import read
from pybroker.workers.database import Database as Served
from tests.brokers import Site
from tests.patience import PATIENCE
from tests.shop import DEFINITIONS, Session, Shop, in_background, until, waits

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from pybroker.embedded import EmbeddedServer

TESTS = Path(__file__).parents[1]
RIGHTS = (
    "LOGIN",
    "REFERENCES on a table",
    "CREATE in a schema",
    "RECEIVE on one queue",
    "a partner's CONNECT",
    "a forwarder's place",
)
AIMS = ("read others' messages", "change or forge", "stop others", "become the owner")
NUMBER = "select object_id from broker.service_queues where name = %s"
# What shows bodies, or what might.
SHOWN = (
    "broker.queue_messages",
    "broker.transmission_queue",
    "broker.quarantine",
    "broker.activation_log",
    "broker.conversation_endpoints",
    "broker.conversation_groups",
    "broker.queue_depths",
    "public.warehouse",
    "public.ill",
)


class Place:
    """The shop with a secret message, and a clerk who has nothing but a login."""

    def __init__(self, shop: Shop) -> None:
        self.shop = shop
        self.owner = shop.psql
        self.dialog = shop.psql.dialog()
        self.owner.send(self.dialog, "order", b"secret")
        self.target = self.owner.handle_of(self.dialog)
        self.group: UUID = self.owner.value(
            "select conversation_group_id from broker.conversation_endpoints where conversation_handle = %s",
            self.target,
        )
        self.clerk = shop.database.role()
        self.user = shop.session(user=self.clerk)

    def let_receive(self) -> None:
        """Give the clerk RECEIVE on a queue with a service of its own, and the contract."""
        self.owner.rows(
            "select broker.create_queue('mine'), broker.create_service('//mine', 'mine', '{ordering}')"
        )
        self.owner.rows("select broker.grant('RECEIVE', 'QUEUE', 'mine', %s::name)", self.clerk)
        self.owner.rows("select broker.grant('REFERENCES', 'CONTRACT', 'ordering', %s::name)", self.clerk)

    def let_create(self, schema: str = "public") -> None:
        self.owner.rows(f'grant create on schema {schema} to "{self.clerk}"')

    def let_refer(self) -> None:
        """Give the clerk a schema of its own, and REFERENCES on a table of the application."""
        self.owner.rows(
            "create schema app; create table app.orders (n integer primary key); insert into app.orders values (1);"
            f'create schema lair authorization "{self.clerk}"; grant usage on schema lair, app to public;'
            f'grant references on app.orders to "{self.clerk}"'
        )
        self.user.rows(
            "create table lair.child (n integer references app.orders on delete cascade); insert into lair.child values (1)"
        )

    def still_whole(self) -> bool:
        """Tell whether the secret is there, untouched and alone, and messages still go both ways."""
        assert self.owner.bodies() == [b"secret"]
        self.owner.send(self.target, "ack", b"seen")
        return self.owner.bodies("shop") == [b"seen"]


@pytest.fixture
def place(shop: Shop) -> Place:
    return Place(shop)


def sqlstate(session: Session, statement: str, *arguments: object) -> str | None:
    try:
        session.rows(statement, *arguments)
    except psycopg.Error as error:
        return error.sqlstate
    return None


def test_each_right_and_aim_has_a_test_that_is_there_or_a_reason() -> None:
    page = (TESTS.parent / "docs/security.md").read_text(encoding="utf-8")
    cells = re.findall(r"^\| ([^|]+) \| ([^|]+) \| [^|]+ \| ([^|]+) \|$", page, re.MULTILINE)
    answered = {(right, aim) for right, aim, answer in cells if answer.startswith(("`test_", "reason: "))}
    assert answered == set(product(RIGHTS, AIMS))
    there = {
        name
        for path in TESTS.rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)
    }
    assert set(re.findall(r"`(test_\w+)`", page)) <= there


# LOGIN


def put_messages_everywhere(place: Place) -> None:
    """On the way to another broker, in quarantine, retained, and in an activated procedure's output."""
    owner = place.owner
    far = owner.value("select broker.begin_dialog('//shop', '//far', 'ordering', encryption => false)")
    owner.send(far, "order", b"on its way")
    owner.rows("select broker.create_queue('ill', poison_action => 'QUARANTINE', retention => true)")
    owner.rows("select broker.create_service('//ill', 'ill', '{ordering}')")
    for _ in range(2):
        owner.send(owner.value("select broker.begin_dialog('//shop', '//ill', 'ordering')"))
    owner.receive("ill")
    (failing,) = owner.rows(
        "select conversation_handle from broker.queue_messages where message_body is null and status = 1"
    )
    for _ in range(5):
        owner.rows("select broker.note_failure(%s, 'why')", *failing)
    owner.receive("ill")
    owner.rows(
        'insert into broker_private.activation_log (queue_id, queue_name, procedure_name, "time", number, severity, text)'
        " select object_id, name, 'program', now(), 9724, 'INFO', 'said' from broker.service_queues where name = 'ill'"
    )


def test_a_login_reads_nobodys_messages(place: Place) -> None:
    user, heard = place.user, []
    put_messages_everywhere(place)
    user.connection.add_notice_handler(lambda notice: heard.append(notice.message_primary))
    # So cheap that the planner runs it before every other condition, unless the view is a barrier.
    user.rows(
        "create function pg_temp.leak(shown text) returns boolean language plpgsql cost 0.0000001"
        " as 'begin raise notice ''%'', shown; return true; end'"
    )
    for view in SHOWN:
        assert place.owner.rows(f"select from {view}"), view
        assert user.rows(f"select * from {view} v where pg_temp.leak(v::text)") == [], view
        assert user.rows(f"select * from {view} v where 1 / (length(v::text) - length(v::text)) > 0") == []
    assert heard == []
    toast = place.owner.value(
        "select reltoastrelid::regclass::text from pg_class where oid = 'broker_private.messages'::regclass"
    )
    for reached in (
        "select * from broker_private.messages",
        f"select * from {toast}",
        "select query_to_xml('select * from broker_private.messages', true, true, '')",
        "select ts_stat('select body from broker_private.messages')",
        "copy broker_private.messages to stdout",
        "create temp view peek as select * from broker_private.messages; select * from peek",
        "create temp table peek as table broker_private.messages",
        "select last_value from broker_private.queuing_order",
    ):
        assert sqlstate(user, reached) == "42501", reached
    assert user.rows("select from pg_stats where schemaname in ('broker', 'broker_private')") == []
    seen = user.rows("select query from pg_stat_activity where usename <> current_user and query <> ''")
    assert {query for (query,) in seen} <= {"<insufficient privilege>"}
    assert place.still_whole()


def test_a_login_that_listens_hears_that_something_came_and_nothing_else(place: Place) -> None:
    queue = place.owner.value(NUMBER, "warehouse")
    place.user.rows(f"listen pybroker_{queue}")
    # While somebody holds the queue's lock, each SEND notifies.
    place.user.rows("select pg_advisory_lock(1886937714, %s)", queue)
    place.owner.send(place.dialog, "order", b"heard")
    heard = list(place.user.connection.notifies(timeout=PATIENCE, stop_after=1))
    assert [(notify.channel, notify.payload) for notify in heard] == [(f"pybroker_{queue}", "")]


# What works with a conversation, of which the clerk knows each handle.
ON_A_CONVERSATION = (
    "broker.send(%s, 'order', 'forged'::bytea)",
    "broker.send_batch(%s, 'order', array['forged'::bytea])",
    "broker.send_all(array[%s]::uuid[], 'order', 'forged'::bytea)",
    "broker.end_conversation(%s)",
    "broker.end_conversation(%s, 7, 'forged')",
    "broker.end_conversation(%s, cleanup => true)",
    "broker.begin_conversation_timer(%s, '1 s')",
    "broker.get_transmission_status(%s)",
    "broker.note_failure(%s, 'forged')",
    "broker.redrive(%s)",
    "broker.discard(%s)",
    "broker.receive('warehouse', conversation_handle => %s)",
    "broker.receive('shop', conversation_handle => %s)",
)


def test_a_login_that_knows_every_handle_changes_nothing(place: Place) -> None:
    for call in ON_A_CONVERSATION:
        for handle in (place.dialog, place.target):
            assert place.user.refused(f"select {call}", handle) == "S0229", call
    for statement in (
        "select setval('broker_private.queuing_order', 1)",
        "select nextval('broker_private.queuing_order')",
        "insert into broker_private.messages select * from broker_private.messages",
        "do 'begin lock table broker_private.messages; end'",
        "do 'begin lock table broker.queue_messages in exclusive mode; end'",
        "select * from broker.queue_messages for update",
        "truncate broker_private.messages",
    ):
        assert sqlstate(place.user, statement) in ("42501", "0A000"), statement
    assert place.still_whole()


# Objects of the clerk's own that have the names of what the broker's functions use.
SHADOWS = """
create function {schema}.pg_has_role(name, text, text) returns boolean language sql as 'select true';
create function {schema}.pg_has_role(name, regrole, text) returns boolean language sql as 'select true';
create function {schema}.has_database_privilege(name, name, text) returns boolean language sql as 'select true';
create function {schema}.has_schema_privilege(name, text, text) returns boolean language sql as 'select true';
create function {schema}.to_regrole(text) returns oid language sql as 'select 10::oid';
create function {schema}.current_setting(text) returns text language sql as 'select ''read committed''';
create function {schema}.same(a name, b name) returns boolean language sql as 'select true';
create operator {schema}.= (leftarg = name, rightarg = name, function = {schema}.same);
create table {schema}.permissions (class "char", securable_id integer, permission text, grantee name);
create table {schema}.queues (queue_id integer, name text, owner name);
create domain {schema}.name as text;
create domain {schema}.uuid as text;
"""
RECEIVES = "select broker.receive('warehouse')"
OWNERS = (
    RECEIVES,
    "select broker.grant('RECEIVE', 'QUEUE', 'warehouse', 'public')",
    "select broker.alter_authorization('QUEUE', 'warehouse', 'public')",
    "select broker.drop_service('//warehouse')",
    "select broker.create_message_type('mine')",
    "select broker.alter_broker('DISABLE_BROKER')",
)


def test_a_login_becomes_nobody_by_names_of_its_own(place: Place) -> None:
    place.user.rows("create temp table made (n integer)")
    place.user.rows(SHADOWS.format(schema="pg_temp"))
    for path in ("pg_temp, pg_catalog", "pg_temp, broker_private, pg_catalog", ""):
        place.user.rows("select pg_catalog.set_config('search_path', %s, false)", path)
        for statement in OWNERS:
            assert place.user.refused(statement) == "S0229", (path, statement)
    assert place.still_whole()


# Settings that a role may change for itself and that change how PostgreSQL reads or runs what comes after.
SETTINGS = {
    "standard_conforming_strings": "off",
    "quote_all_identifiers": "on",
    "transform_null_equals": "on",
    "array_nulls": "off",
    "row_security": "off",
    "default_transaction_isolation": "serializable",
    "plan_cache_mode": "force_custom_plan",
    "enable_indexscan": "off",
    "client_encoding": "latin1",
    "xmloption": "document",
    "pybroker.wake_ups": "off",
    "check_function_bodies": "off",
    # Known once a session has run its first function: then PostgreSQL finds that the role may not set it.
    "plpgsql.variable_conflict": "use_column",
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_login_becomes_nobody_by_a_setting(place: Place, setting: str) -> None:
    place.user.rows(f"set {setting} = '{SETTINGS[setting]}'")
    for statement in OWNERS:
        assert sqlstate(place.user, statement) == "S0229", statement
    for call in ON_A_CONVERSATION:
        assert sqlstate(place.user, f"select {call}", place.target) == "S0229", call
    place.user.rows("reset all")
    assert place.still_whole()


def test_a_login_may_not_set_what_would_make_it_another(place: Place) -> None:
    for statement in (
        "set role postgres",
        "set session authorization postgres",
        "set session_replication_role = replica",
        "set lc_messages = 'tr_TR.UTF-8'",
        f"alter role {place.shop.psql.value('select current_user')} set search_path = lair",
        f"alter database {place.shop.database.name} set search_path = lair",
        f"select pg_cancel_backend({place.owner.connection.info.backend_pid})",
        f"select pg_terminate_backend({place.owner.connection.info.backend_pid})",
    ):
        assert sqlstate(place.user, statement) == "42501", statement
    assert place.still_whole()


def test_a_login_that_holds_every_advisory_lock_stops_nobody(place: Place) -> None:
    """Nobody sleeps then, and every SEND notifies: messages come all the same, to SQL and to a client that waits."""
    owner = place.owner
    for (queue,) in owner.rows("select object_id from broker.service_queues union all values (0), (1)"):
        place.user.rows("select pg_advisory_lock(1886937714, %s)", queue)
    assert not any(owner.value("select broker.sleep_on('warehouse')") for _ in range(3))
    assert place.still_whole()
    reader = place.shop.session()
    in_sql = in_background(
        lambda: reader.value("select message_body from broker.receive('warehouse', timeout => null)")
    )
    until(lambda: waits(owner, reader))
    owner.send(place.dialog, "order", b"to SQL")
    assert in_sql.result(200) == b"to SQL", "the wait in SQL did not end"
    with pybroker.connect(place.shop.database.url) as broker, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(broker.receive, "warehouse", timeout=None)
        owner.send(place.dialog, "order", b"to a client")
        found = [message.body for message in waiting.result(200)]
    assert found == [b"to a client"], "the client's wait did not end"


def test_a_login_that_holds_advisory_locks_named_as_relations_stops_no_definition(place: Place) -> None:
    place.user.rows("select pg_advisory_lock('pg_class'::regclass::integer, c.oid::integer) from pg_class c")
    place.owner.rows("set lock_timeout = '10 s'")
    for validation in ("EMPTY", "NONE"):
        place.owner.rows("select broker.alter_message_type('order', %s)", validation)
    place.owner.rows("reset lock_timeout")
    assert place.still_whole()


def test_a_login_that_notifies_makes_nobody_receive_what_is_not_there(place: Place) -> None:
    queue = place.owner.value(NUMBER, "shop")
    with pybroker.connect(place.shop.database.url) as broker, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(broker.receive, "shop", timeout=None)
        for payload in ("", "forged", "x" * 7999):
            for channel in (f"pybroker_{queue}", "pybroker_0", "pybroker_", "pybroker_none"):
                place.user.rows("select pg_notify(%s, %s)", channel, payload)
        assert not waiting.done()
        place.owner.send(place.target, "ack", b"true")
        assert [message.body for message in waiting.result(200)] == [b"true"], "the wait did not end"


def test_a_login_with_an_old_snapshot_stops_nobody(place: Place) -> None:
    place.user.rows("begin isolation level repeatable read")
    place.user.rows("select count(*) from broker.queue_messages")
    for _ in range(20):
        place.owner.send(place.dialog, "order", b"more")
    assert len(place.owner.bodies(top=21)) == 21
    place.owner.rows("select broker.end_conversation(%s)", place.target)
    place.user.rows("rollback")


@pytest.mark.parametrize("table", ["pg_catalog.pg_class", "broker_private.messages"])
def test_inherent_a_login_can_queue_for_a_lock_on_any_table_that_it_can_name(
    place: Place, table: str
) -> None:
    """PostgreSQL asks for some locks before it asks for the right, of its own catalog as of any other table."""
    holder, other = place.shop.session(user=place.clerk), place.shop.session()
    pid = place.user.connection.info.backend_pid
    holder.rows(f"begin; prepare held as delete from {table}")
    queued = in_background(
        lambda: sqlstate(place.user, f"create rule stop as on insert to {table} do instead nothing")
    )
    other.rows("set lock_timeout = '50ms'")
    until(lambda: other.rows("select from pg_stat_get_activity(%s) where wait_event_type = 'Lock'", pid))
    assert sqlstate(other, f"do 'begin lock table {table} in access share mode; end'") == "55P03"
    # A superuser sees whom to end; nothing has changed then.
    blocking = other.value("select pg_blocking_pids(%s)", pid)
    assert blocking == [holder.connection.info.backend_pid]
    holder.rows("rollback")
    assert queued.result(200) == "42501", "the session that queues is still waiting"
    assert place.still_whole()


# REFERENCES on a table


def test_a_reference_that_fails_stops_only_who_changes_the_row(place: Place) -> None:
    place.let_refer()
    place.user.rows(
        "create function lair.fail() returns trigger language plpgsql as 'begin raise exception ''no''; end';"
        "create trigger fail before delete on lair.child for each row execute function lair.fail()"
    )
    program = place.shop.session()
    program.rows("begin")
    assert program.bodies() == [b"secret"]
    assert sqlstate(program, "delete from app.orders") == "P0001"
    # What the program received is not lost, and others go on.
    place.owner.send(place.owner.dialog(), "order", b"another")
    program.rows("rollback")
    assert sorted(place.owner.bodies() + place.owner.bodies()) == [b"another", b"secret"]


def test_inherent_a_reference_sets_the_search_path_of_whoever_deletes_the_row(place: Place) -> None:
    """That is PostgreSQL's, and makes what he runs by an unqualified name the clerk's. Not what the broker runs."""
    place.let_refer()
    place.user.rows(SHADOWS.format(schema="lair"))
    place.user.rows(
        "create function lair.pg_backend_pid() returns text language sql as 'select ''the clerk as '' || current_user';"
        "create function lair.trap() returns trigger language plpgsql as $$begin"
        " perform set_config('search_path', 'lair, pg_catalog', false); return old; end$$;"
        "create trigger trap before delete on lair.child for each row execute function lair.trap()"
    )
    victim = place.shop.session()
    victim.rows("delete from app.orders")
    assert victim.value("select pg_backend_pid()") == "the clerk as postgres"
    # The lair's functions say that everybody may do everything.
    nobody = place.shop.database.role("nologin")
    victim.rows(f'set role "{nobody}"')
    for statement in OWNERS:
        assert victim.refused(statement) == "S0229", statement
    victim.rows("reset role")
    assert victim.value("select message_body from broker.receive('warehouse')") == b"secret"


# CREATE in a schema

# They fit better than PostgreSQL's own functions of these names, which take other types, or any.
TRAPS = """
create schema lair authorization "{clerk}";
create table lair.loot (what text);
grant all on lair.loot to "{clerk}" with grant option; grant usage on schema lair to public;
set role "{clerk}";
grant insert on lair.loot to public;
create function public.rob(what text) returns void language plpgsql as
  'begin insert into lair.loot values (what || '' as '' || current_user); end';
create function public.pg_advisory_xact_lock(n integer) returns void language sql as 'select public.rob(''lock'')';
create function public.counted(s bigint, n bigint) returns bigint language plpgsql as
  'begin perform public.rob(''count''); return s + 1; end';
create function public.counted(s bigint, n integer) returns bigint language plpgsql as
  'begin perform public.rob(''count''); return s + 1; end';
create aggregate public.count(bigint) (sfunc = public.counted, stype = bigint, initcond = '0');
create aggregate public.count(integer) (sfunc = public.counted, stype = bigint, initcond = '0');
create function public.unnest(n bigint[]) returns setof bigint language plpgsql as
  'begin perform public.rob(''unnest''); return query select pg_catalog.unnest(n); end';
create function public.unnest(n text[]) returns setof text language plpgsql as
  'begin perform public.rob(''unnest''); return query select pg_catalog.unnest(n); end';
create function public.cardinality(n text[]) returns integer language plpgsql as
  'begin perform public.rob(''cardinality''); return 0; end';
create function public.joined(a text, b integer) returns text language plpgsql as
  'begin perform public.rob(''||''); return a operator(pg_catalog.||) b; end';
create operator public.|| (leftarg = text, rightarg = integer, function = public.joined);
reset role;
"""


def test_what_others_created_in_public_gets_into_no_migration(any_server: EmbeddedServer) -> None:
    name = f"trapped_{uuid.uuid4().hex[:8]}"
    any_server.create_database(name)
    url = any_server.url(name)
    with psycopg.connect(url, autocommit=True) as connection:
        owner, clerk = Session(connection), f"role_{uuid.uuid4().hex[:8]}"
        owner.rows(f'create role "{clerk}" login; grant create on schema public to "{clerk}"')
        owner.rows(TRAPS.format(clerk=clerk))
        migrate(url)
        migrate(url)
        owner.rows("select broker.create_queue('shop'), broker.create_service('//shop', 'shop', '{DEFAULT}')")
        owner.rows(
            "select broker.send(broker.begin_dialog('//shop', '//shop', encryption => false), body => 'x'::bytea)"
        )
        for (view,) in owner.rows(
            "select oid::regclass::text from pg_class where relnamespace = 'broker'::regnamespace and relkind = 'v'"
        ):
            owner.rows(f"select * from {view}")
        with pybroker.connect(url) as broker:
            broker.receive("shop")
        read(connection)
        assert owner.rows("select what from lair.loot") == []
        assert owner.rows("show search_path") == [('"$user", public',)]


# They fit what a worker and the commands have asked PostgreSQL for better than its own functions, which take other types, or any.
FITTING = """
create function public.aggregated(s jsonb, n jsonb) returns jsonb language plpgsql as
  'begin perform public.rob(''jsonb_agg''); return s; end';
create aggregate public.jsonb_agg(jsonb) (sfunc = public.aggregated, stype = jsonb);
create function public.collected(s name[], n name) returns name[] language plpgsql as
  'begin perform public.rob(''array_agg''); return s operator(pg_catalog.||) n; end';
create aggregate public.array_agg(name) (sfunc = public.collected, stype = name[]);
create function public.collected(s text[], n text) returns text[] language plpgsql as
  'begin perform public.rob(''array_agg''); return s operator(pg_catalog.||) n; end';
create aggregate public.array_agg(text) (sfunc = public.collected, stype = text[]);
create function public.concat_ws(s text, a text, b text, c text, d text) returns text language plpgsql as
  'begin perform public.rob(''concat_ws''); return a; end';
create function public.concat_ws(s text, a text, b text) returns text language plpgsql as
  'begin perform public.rob(''concat_ws''); return a; end';
create function public.joined(a text, b bigint) returns text language plpgsql as
  'begin perform public.rob(''||''); return a operator(pg_catalog.||) b; end';
create operator public.|| (leftarg = text, rightarg = bigint, function = public.joined);
create function public.pg_has_role(role text, privilege text) returns boolean language plpgsql as
  'begin perform public.rob(''pg_has_role''); return true; end';
create function public.lower(n name) returns text language plpgsql as
  'begin perform public.rob(''lower''); return n; end';
create function public.same(a oid, b regprocedure) returns boolean language plpgsql as
  'begin perform public.rob(''=''); return a operator(pg_catalog.=) b; end';
create operator public.= (leftarg = oid, rightarg = regprocedure, function = public.same);
"""
FAILS = """
create procedure public.program() language plpgsql as $$
declare
  message broker.message;
begin
  for message in select * from broker.receive('warehouse') loop
    raise exception 'ill';
  end loop;
end
$$;
select broker.alter_queue('warehouse', activation_procedure => 'public.program', max_queue_readers => 1);
"""


def test_what_others_created_in_public_is_run_by_no_worker_and_no_command(
    any_server: EmbeddedServer, server_for: Callable[[str, int], EmbeddedServer], tmp_path: Path
) -> None:
    site = Site(f"trapped_{uuid.uuid4().hex[:8]}", server_for("shop", any_server.version), tmp_path)
    with ExitStack() as stack:
        stack.callback(site.drop_database)
        stack.callback(site.close)
        owner, clerk = site.psql, f"role_{uuid.uuid4().hex[:8]}"
        owner.rows(DEFINITIONS)
        owner.rows(f'create role "{clerk}" login; grant create on schema public to "{clerk}"')
        owner.rows(TRAPS.format(clerk=clerk))
        owner.rows(f'set role "{clerk}"')
        owner.rows(FITTING)
        owner.rows("reset role")
        owner.rows(FAILS)
        site.listen(site.certificate())
        far = owner.value("select broker.begin_dialog('//shop', '//far', 'ordering', encryption => false)")
        owner.send(far)
        site.start_worker()
        owner.send(owner.dialog())
        # By then it has read its endpoint and certificates, and looked where the procedure has failed.
        until(lambda: owner.rows("select from broker.activation_log where number = 28088"))
        until(lambda: "listening" in site.log.read_text())
        definitions = tmp_path / "definitions.py"
        definitions.write_text("definitions = []\n")
        for command in (
            ("status",),
            ("diagnose",),
            ("diagnose", "--journey", str(far)),
            ("apply", str(definitions), "--prune", "--dry-run"),
            ("redrive", "--queue", "warehouse", "--dry-run"),
            ("queue", "list"),
        ):
            run = [sys.executable, "-m", "pybroker", *command, "--database-url", site.url]
            ended = subprocess.run(run, capture_output=True, text=True, check=False)
            assert ended.returncode in (0, 1), (command, ended.stderr)
        assert owner.rows("select what from lair.loot") == []


def test_create_in_a_schema_changes_no_right_and_shows_nothing(place: Place) -> None:
    place.let_create()
    place.user.rows(SHADOWS.format(schema="public"))
    place.user.rows("create view public.peek as select * from broker.queue_messages")
    place.user.rows("create view public.pry as select * from broker_private.messages")
    place.user.rows(
        "create function public.helpful() returns setof broker.message language sql security definer"
        " as 'select * from broker.receive(''warehouse'')'"
    )
    assert place.user.rows("select * from public.peek") == []
    assert sqlstate(place.owner, "select * from public.pry") == "42501"
    assert sqlstate(place.owner, "select * from public.helpful()") == "S0229"
    for statement in (
        *OWNERS,
        "select broker.create_queue('mine', schema => 'public')",
        "alter view public.warehouse rename to gone",
        "drop view public.warehouse",
        "create or replace view public.warehouse as select 1",
        "create trigger t instead of insert on public.warehouse for each row"
        " execute function suppress_redundant_updates_trigger()",
        "create rule r as on insert to public.warehouse do instead nothing",
        "create table public.child (n bigint references broker_private.endpoints)",
    ):
        assert sqlstate(place.user, statement) in ("S0229", "42501"), statement
    assert place.still_whole()


def test_a_name_that_is_taken_stops_a_queue_in_that_schema_only(place: Place) -> None:
    place.let_create()
    place.user.rows("create view public.orders as select 1 as n")
    assert place.owner.refused("select broker.create_queue('orders')") == "S2714"
    place.owner.rows("create schema app; select broker.create_queue('orders', schema => 'app')")
    assert place.still_whole()


def test_inherent_create_beside_an_activation_procedure_makes_its_call_ambiguous(place: Place) -> None:
    """Nobody else's procedure runs. That the call fails is PostgreSQL's way to look for a procedure."""
    place.owner.rows("create procedure public.program() language sql as ''")
    place.let_create()
    place.user.rows(
        "create procedure public.program(n integer default 1) language plpgsql"
        " as 'begin raise exception ''the clerk ran as %'', current_user; end'"
    )
    assert sqlstate(place.owner, "call public.program()") == "42725"
    place.owner.rows("create schema app; create procedure app.program() language sql as ''")
    place.owner.rows(
        "select broker.alter_queue('warehouse', activation_procedure => 'app.program', max_queue_readers => 1)"
    )
    place.owner.rows("call app.program()")


# Whoever owns the schema


def test_inherent_who_owns_the_schema_can_have_his_code_run_as_the_worker(place: Place) -> None:
    """The functions that a worker calls run as their owner, until their owner makes others of these names."""
    database, owner = place.shop.database, place.shop.session()
    worker = database.role()
    migrate(database.url, worker_roles=[worker])
    greeting = "broker_private.worker_greeting()"
    shape = owner.value("select pg_get_function_result(%s::regprocedure)", greeting)
    owner.rows(
        "create table public.ran (role name); grant insert on public.ran to public;"
        f"alter function {greeting} rename to true_greeting;"
        f"create function {greeting} returns {shape} language plpgsql as $$begin"
        " insert into public.ran values (current_user);"
        " return query select * from broker_private.true_greeting(); end$$;"
        f'grant execute on function {greeting} to "{worker}"'
    )

    async def greeted() -> None:
        async with Served(database.server.url(database.name, user=worker)):
            pass

    asyncio.run(greeted())
    assert owner.rows("select role from public.ran") == [(worker,)]


# RECEIVE on one queue


def test_receive_on_one_queue_reaches_into_no_other(place: Place) -> None:
    place.let_receive()
    user = place.user
    mine = user.value("select broker.begin_dialog('//mine', '//warehouse', 'ordering')")
    for statement, argument, refusal in (
        ("select broker.receive('mine', conversation_handle => %s)", place.target, "S8426"),
        ("select broker.receive('mine', conversation_group_id => %s)", place.group, "S8436"),
        (
            "select broker.begin_dialog('//mine', '//warehouse', 'ordering', related_conversation_group => %s)",
            place.group,
            "S9610",
        ),
        (
            "select broker.begin_dialog('//mine', '//warehouse', 'ordering', related_conversation => %s)",
            place.target,
            "S9610",
        ),
        (f"select broker.move_conversation('{mine}', %s)", place.group, "S8439"),
        (
            f"select broker.send_all(array['{mine}', %s]::uuid[], 'order', 'forged'::bytea)",
            place.target,
            "S0229",
        ),
    ):
        assert sqlstate(user, statement, argument) == refusal, statement
    for call in ON_A_CONVERSATION:
        for handle in (place.dialog, place.target):
            assert user.refused(f"select {call}", handle) == "S0229", call
    for statement in (
        "select broker.begin_dialog('//shop', '//warehouse', 'ordering')",
        "select broker.receive_groups('warehouse', 2)",
        "select broker.get_conversation_group('warehouse')",
        "select broker.sleep_on('warehouse')",
        "select broker.alter_queue('mine', status => false)",
        "select broker.grant('RECEIVE', 'QUEUE', 'mine', 'public')",
        "select broker.alter_service('//warehouse', queue => 'mine')",
    ):
        assert user.refused(statement) == "S0229", statement
    assert (
        user.rows(
            "select far_service from broker.conversation_endpoints where conversation_handle <> %s", mine
        )
        == []
    )
    assert user.rows("select from broker.queue_messages union all select from public.warehouse") == []
    assert place.still_whole()


def test_receive_on_one_queue_holds_up_no_other_and_no_sender(place: Place) -> None:
    """The clerk holds each group of its queue."""
    place.let_receive()
    senders = [place.shop.session() for _ in range(3)]
    handles = []
    for sender in senders:
        handle = sender.value("select broker.begin_dialog('//shop', '//mine', 'ordering')")
        sender.send(handle, "order", b"first")
        handles.append(handle)
    place.user.rows("begin")
    assert [place.user.bodies("mine") for _ in handles] == [[b"first"]] * 3
    for sender, handle in zip(senders, handles, strict=True):
        sender.rows("set lock_timeout = '5s'")
        sender.send(handle, "order", b"second")
        sender.end(handle)
    assert place.still_whole()
    assert place.owner.bodies("mine") == []
    place.user.rows("rollback")
    assert place.owner.bodies("mine")[:2] == [b"first", b"second"]


def test_receive_on_one_queue_poisons_that_queue_only(place: Place) -> None:
    place.let_receive()
    place.owner.send(place.owner.value("select broker.begin_dialog('//shop', '//mine', 'ordering')"))
    for _ in range(6):
        place.user.rows("begin")
        sqlstate(place.user, "select broker.receive('mine')")
        place.user.rows("rollback")
    assert place.user.refused("select broker.receive('mine')") == "S9617"
    # Who has RECEIVE on a queue can stop its readers, as in SQL Server; its owner turns it on again.
    place.owner.rows("select broker.alter_queue('mine', status => true)")
    assert len(place.owner.receive("mine")) == 1
    assert place.still_whole()


HUGE = {
    "top": ("select count(*) from broker.receive('mine', 2147483647)", None),
    "groups": ("select count(*) from broker.receive_groups('mine', 2147483647)", None),
    "no top": ("select broker.receive('mine', -1)", "S0153"),
    "handles that are none": (
        "select broker.send_all(array(select gen_random_uuid() from generate_series(1, 100000)), 'order')",
        "S8435",
    ),
    "the same handle again and again": (
        "select broker.send_all(array_fill(%(mine)s::uuid, array[100000]), 'order')",
        "S8451",
    ),
    "a service's name": ("select broker.begin_dialog('//mine', repeat('x', 10000000), 'ordering')", "S0103"),
    "a contract's name": ("select broker.begin_dialog('//mine', '//shop', repeat('x', 10000000))", "S8425"),
    "a queue's name": ("select broker.receive(repeat('x', 10000000))", "S0208"),
    "a message type's name": ("select broker.send(%(mine)s, repeat('x', 10000000))", "S8428"),
    "an error's text": ("select broker.end_conversation(%(mine)s, 7, repeat('x', 10000000))", "S8422"),
    "a lifetime": (
        "select broker.begin_dialog('//mine', '//shop', 'ordering', lifetime => '178000000 years')",
        "S8411",
    ),
    "a wait": ("select broker.receive('mine', timeout => '178000000 years')", "S0153"),
}


@pytest.mark.parametrize("name", HUGE)
def test_huge_arguments_are_refused_or_cost_no_more_than_what_is_there(place: Place, name: str) -> None:
    place.let_receive()
    statement, refusal = HUGE[name]
    mine = place.user.value("select broker.begin_dialog('//mine', '//warehouse', 'ordering')")
    filled = statement.replace("%(mine)s", f"'{mine}'")
    assert sqlstate(place.user, filled) == refusal
    assert place.still_whole()
