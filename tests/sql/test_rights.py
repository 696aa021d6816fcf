"""Rights on the broker's own objects: what migrate sets, and what is found that has crept in since."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from alembic import command
from alembic.config import Config
from structlog.testing import capture_logs
from typer.testing import CliRunner

from pybroker.commands import application
from pybroker.migrations import VERSIONS, MigrationError, migrate, offline_sql
from pybroker.workers.database import Database as Served
from tests.shop import DEFINITIONS, Session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pybroker.embedded import EmbeddedServer

# What PostgreSQL itself says: of schemas, tables, columns, sequences, functions and types.
INSTALLED = """
select o.kind, o.name, case a.grantee when 0 then 'public' when o.owner then 'owner' else a.grantee::regrole::text end,
  a.privilege_type, a.is_grantable and a.grantee <> o.owner
from (
  select 'schema', n.nspname::text, n.nspowner, coalesce(n.nspacl, acldefault('n', n.nspowner)) from pg_namespace n
  where n.nspname in ('broker', 'broker_private')
  union all
  select 'relation', c.oid::regclass::text, c.relowner,
    coalesce(c.relacl, acldefault((case c.relkind when 'S' then 's' else 'r' end)::"char", c.relowner))
  from pg_class c
  where c.relkind not in ('i', 'c') and (c.relnamespace in ('broker'::regnamespace, 'broker_private'::regnamespace) or c.relname = 'later')
  union all
  select 'column', c.oid::regclass || '.' || a.attname, c.relowner, a.attacl from pg_class c
  join pg_attribute a on a.attrelid = c.oid
  where c.relnamespace in ('broker'::regnamespace, 'broker_private'::regnamespace)
  union all
  select 'function', p.oid::regprocedure::text, p.proowner, coalesce(p.proacl, acldefault('f', p.proowner)) from pg_proc p
  where p.pronamespace in ('broker'::regnamespace, 'broker_private'::regnamespace)
  union all
  select 'type', t.oid::regtype::text, t.typowner, coalesce(t.typacl, acldefault('T', t.typowner)) from pg_type t
  where t.typcategory <> 'A' and t.typnamespace in ('broker'::regnamespace, 'broker_private'::regnamespace)
) o (kind, name, owner, acl)
cross join aclexplode(o.acl) a
"""
# What many shops have, and worse: for a role all that there is, and for everybody more tables and fewer functions than usual.
DEFAULTS = """
alter default privileges {0} grant all on tables to {1} with grant option;
alter default privileges {0} grant all on sequences to {1} with grant option;
alter default privileges {0} grant all on routines to {1} with grant option;
alter default privileges {0} grant all on types to {1} with grant option;
alter default privileges {0} grant insert, select on tables to public;
alter default privileges {0} grant usage on sequences to public;
"""
GLOBAL_DEFAULTS = """
alter default privileges grant all on schemas to {1} with grant option;
alter default privileges grant create on schemas to public;
alter default privileges revoke execute on routines from public;
alter default privileges revoke usage on types from public;
"""


@dataclass(frozen=True)
class Place:
    """A database of an ordinary owner, and a role that nobody meant to have a right there."""

    server: EmbeddedServer
    name: str
    owner: str
    app: str

    @property
    def url(self) -> str:
        return self.server.url(self.name, user=self.owner)

    def rows(self, query: str, *, user: str | None = None) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.server.url(self.name, user=user or self.owner), autocommit=True) as session:
            return Session(session).rows(query)

    def refused(self, query: str, *, user: str | None = None) -> str | None:
        try:
            self.rows(query, user=user or self.app)
        except psycopg.Error as error:
            return error.sqlstate
        return None

    def installed(self) -> set[tuple[Any, ...]]:
        return set(self.rows(INSTALLED, user="postgres"))

    def found(self) -> list[tuple[str, str, str]]:
        """What a diagnosis says of rights, and how to mend it."""
        return self.rows(
            "select object, problem, mend from broker.diagnose() where number = 113 order by 1, 2"
        )


class Grounds:
    """An ordinary owner of databases on one server, and a role that nobody meant to have a right there."""

    def __init__(self, server: EmbeddedServer) -> None:
        self.server = server
        self.mark = uuid.uuid4().hex[:8]
        self.names: list[str] = []
        self.owner, self.app = self.role("owner"), self.role("app")
        self.migrated: Place | None = None

    def role(self, prefix: str) -> str:
        self.run(f"create role {prefix}_{self.mark} login")
        return f"{prefix}_{self.mark}"

    def empty(self) -> Place:
        self.names.append(f"rights_{self.mark}_{len(self.names)}")
        self.server.create_database(self.names[-1], owner=self.owner)
        return Place(self.server, self.names[-1], self.owner, self.app)

    def ready(self) -> Place:
        """A copy of a database that its owner migrated."""
        if self.migrated is None:
            self.migrated = self.empty()
            migrate(self.migrated.url)
        name = f"rights_{self.mark}_{len(self.names)}"
        self.names.append(name)
        self.run(
            f"create database {name} owner {self.owner} template {self.migrated.name} strategy file_copy"
        )
        return Place(self.server, name, self.owner, self.app)

    def run(self, statement: str) -> None:
        with psycopg.connect(self.server.url("postgres"), autocommit=True) as session:
            session.execute(statement.encode())


@pytest.fixture(scope="module")
def grounds(any_server: EmbeddedServer) -> Iterator[Grounds]:
    grounds = Grounds(any_server)
    yield grounds
    for name in grounds.names:
        grounds.run(f"drop database {name} with (force)")


async def greeted(place: Place) -> None:
    """Begin to serve the database, as a worker does."""
    async with Served(place.url):
        pass


def by_command(place: Place, _: Path) -> None:
    migrate(place.url)


def by_superuser(place: Place, _: Path) -> None:
    migrate(place.server.url(place.name))


def by_script(place: Place, _: Path) -> None:
    with psycopg.connect(place.url) as session:
        session.execute(offline_sql().encode())


def by_alembic(place: Place, folder: Path) -> None:
    (folder / "env.py").write_text(
        "from alembic import context\nfrom sqlalchemy import create_engine, pool\n"
        f"engine = create_engine({place.url.replace('postgresql:', 'postgresql+psycopg:')!r}, poolclass=pool.NullPool)\n"
        "with engine.begin() as connection:\n"
        "    context.configure(connection=connection)\n"
        "    with context.begin_transaction():\n        context.run_migrations()\n"
    )
    config = Config()
    config.set_main_option("script_location", str(folder))
    config.set_main_option("path_separator", "newline")
    config.set_main_option("version_locations", str(VERSIONS))
    command.upgrade(config, "heads")


FORGED = (
    "begin; insert into broker_private.vouchers (backend, caller) values (pg_backend_pid(), '{owner}');"
    "select broker_private.grant('{owner}'::name, 'RECEIVE', 'QUEUE', 'warehouse', '{app}'); commit"
)
LATER = (
    "create schema app; set search_path = app; select broker.create_queue('later');"
    "select broker_private.create_receive_marks(queue_id) from broker_private.queues where name = 'later'"
)
# As a later version could bring them: made anew.
UPGRADE = (
    "drop view broker.traceparents; drop function broker.read_status; drop function broker_private.worker_greeting;"
    "update broker_private.applied_sql set sha256 = 'old'"
    " where path in ('monitoring/traceparents.sql', 'events/read_status.sql', 'activation/worker_greeting.sql')"
)


@pytest.mark.parametrize(
    "install",
    [
        by_command,
        *(pytest.param(other, marks=pytest.mark.dear) for other in (by_superuser, by_script, by_alembic)),
    ],
)
def test_default_privileges_give_nobody_a_right_on_what_is_the_broker_s(
    grounds: Grounds, install: Callable[[Place, Path], None], tmp_path: Path
) -> None:
    plain, hostile = grounds.ready(), grounds.empty()
    runner = "postgres" if install is by_superuser else plain.owner
    hostile.rows((DEFAULTS + GLOBAL_DEFAULTS).format("", hostile.app), user=runner)
    own = "select defaclobjtype, defaclacl::text from pg_default_acl where defaclnamespace = 0"
    defaults = hostile.rows(own)

    def differences() -> tuple[set[tuple[Any, ...]], set[tuple[Any, ...]]]:
        wanted, found = plain.installed(), hostile.installed()
        # In schema broker an operator may give roles what everybody has there.
        of_all = {
            (kind, name, right)
            for kind, name, grantee, right, _ in wanted
            if grantee == "public" and "broker_private" not in name
        }
        too_many = {
            row
            for row in found - wanted
            if row[2] != hostile.app or row[4] or (row[0], row[1], row[3]) not in of_all
        }
        # Another Alembic keeps its version elsewhere.
        return too_many, {row for row in wanted - found if row[1] != "broker_private.alembic_version"}

    install(hostile, tmp_path)
    assert differences() == (set(), set())
    # What is made at run time, by the application's owner, and with an upgrade.
    if install is by_command:
        for schema in ("broker", "broker_private"):
            hostile.rows(DEFAULTS.format(f"in schema {schema}", hostile.app))
    for place, user in ((plain, plain.owner), (hostile, runner)):
        place.rows(LATER, user=user)
        if install is not by_alembic:
            place.rows(UPGRADE, user=user)
            migrate(place.server.url(place.name, user=user))
    assert differences() == (set(), set())
    assert hostile.rows(own) == defaults


def test_default_privileges_of_tables_make_nobody_another(grounds: Grounds) -> None:
    place = grounds.empty()
    place.rows(f"alter default privileges grant select, insert, update, delete on tables to {place.app}")
    warnings = migrate(place.url).warnings
    place.rows("create schema app; set search_path = app;" + DEFINITIONS)
    for attempt in (
        "select from broker_private.messages",
        FORGED,
        "insert into broker.routes (name, address) values ('evil', 'tcp://127.0.0.1:9')",
    ):
        assert place.refused(attempt.format(owner=place.owner, app=place.app)) == "42501", attempt
    assert place.refused("select broker.receive('warehouse')") == "S0229"
    assert any(f"Taken from {place.app}: DELETE, INSERT" in said for said in warnings)
    # Inherent: roles of PostgreSQL's own have each right on each table.
    writer, reader = grounds.role("writer"), grounds.role("reader")
    place.rows(f"grant pg_write_all_data to {writer}; grant pg_read_all_data to {reader}", user="postgres")
    assert place.refused("select from broker_private.messages", user=reader) is None
    assert place.refused(FORGED.format(owner=place.owner, app=writer), user=writer) is None
    if grounds.server.version >= 17:
        place.rows(f"grant pg_maintain to {reader}", user="postgres")
        lock = "begin; lock table broker_private.messages in access exclusive mode; rollback"
        assert place.refused(lock, user=reader) is None


def test_a_right_that_crept_in_is_found_taken_and_said(grounds: Grounds) -> None:
    place = grounds.ready()
    before = place.installed()
    friend = grounds.role("friend")
    place.rows(
        f"grant select on broker_private.messages to {place.app} with grant option;"
        f"grant update (body) on broker_private.messages to {place.app};"
        f"grant execute on function broker_private.clock(), broker_private.take_early, broker.peek to {place.app} with grant option;"
        f"grant create on schema broker to {place.app};"
        "grant usage on sequence broker_private.plan_mark to public"
    )
    place.rows(
        f"grant select on broker_private.messages to {friend}; grant execute on function broker_private.take_early, broker.peek to {friend}",
        user=place.app,
    )
    found = place.found()
    assert [name for name, _, _ in found] == sorted([place.app, friend, "public"])
    assert all("broker_private.set_rights()" in mend for _, _, mend in found)
    with capture_logs() as logged:
        asyncio.run(greeted(place))
    assert [(line["event"], line["mend"]) for line in logged] == [
        ("stray_rights", mend) for _, _, mend in found
    ]
    said = "\n".join(migrate(place.server.url(place.name)).warnings)
    for taken in (
        f"Taken from {place.app}: SELECT, UPDATE (body) on table broker_private.messages.",
        f"Taken from {place.app}: CREATE on schema broker.",
        f"Taken from {place.app}: GRANT OPTION FOR EXECUTE on routine broker.peek(",
        f"Taken from {friend}: SELECT on table broker_private.messages.",
        "Taken from public: USAGE on sequence broker_private.plan_mark.",
    ):
        assert taken in said
    assert place.found() == []
    left = place.installed() - before
    assert {(row[2], row[3], row[4]) for row in left} == {(place.app, "EXECUTE", False)}
    assert "broker.peek" in min(left)[1]
    # An owner takes nothing from what a superuser made, and says so.
    place.rows(
        f"create sequence broker_private.extra; grant usage on sequence broker_private.extra to {place.app}",
        user="postgres",
    )
    (said,) = migrate(place.url).warnings
    assert f"Not taken from {place.app}: USAGE on sequence broker_private.extra." in said
    (said,) = migrate(place.server.url(place.name)).warnings
    assert said.startswith(f"Taken from {place.app}: USAGE on sequence broker_private.extra.")
    assert migrate(place.url).warnings == ()


def test_what_others_left_among_the_broker_s_objects_is_named_with_its_removal(
    grounds: Grounds,
) -> None:
    place = grounds.ready()
    place.rows(
        f"create schema app authorization {place.app}; grant create on schema broker to {place.app};"
        f"grant trigger on broker_private.messages to {place.app};"
        f"grant references on broker_private.groups to {place.app}",
        user="postgres",
    )
    place.rows(
        "create function broker.mine() returns void language sql as '';"
        "create function app.mine() returns trigger language plpgsql as 'begin return new; end';"
        "create trigger spy after insert on broker_private.messages for each row execute function app.mine();"
        "create table app.mine (g bigint constraint holds references broker_private.groups (group_no))",
        user=place.app,
    )
    said = "\n".join(migrate(place.url).warnings)
    assert (
        place.refused("create or replace function broker.another() returns void language sql as ''")
        == "42501"
    )
    removals = [
        "alter table app.mine drop constraint holds",
        "drop function broker.mine()",
        "drop trigger spy on broker_private.messages",
    ]
    assert sorted(mend for _, _, mend in place.found()) == removals
    for removal in removals:
        assert removal in said
        place.rows(removal, user="postgres")
    assert place.found() == []
    assert migrate(place.url).warnings == ()


def test_what_an_operator_took_from_everybody_stays_taken(grounds: Grounds) -> None:
    place = grounds.ready()
    place.rows(
        f"revoke usage on schema broker from public; grant usage on schema broker to {place.app};"
        "revoke select on broker.routes from public; revoke execute on function broker.peek from public;"
        f"grant select on broker.routes to {place.app}; grant execute on function broker.peek to {place.app}"
    )
    before = place.installed()
    place.rows(UPGRADE)
    assert migrate(place.url).warnings == ()
    assert place.installed() == before
    assert place.found() == []


def test_what_was_restored_without_rights_gets_them(grounds: Grounds) -> None:
    place = grounds.ready()
    before = place.installed()
    ours = "('broker'::regnamespace, 'broker_private'::regnamespace)"
    place.rows(
        f"update pg_namespace set nspacl = null where oid in {ours}; update pg_class set relacl = null where relnamespace in {ours};"
        f"update pg_proc set proacl = null where pronamespace in {ours}; update pg_type set typacl = null where typnamespace in {ours}",
        user="postgres",
    )
    assert place.found()
    assert any("Taken from public: EXECUTE on routine" in said for said in migrate(place.url).warnings)
    assert place.installed() == before


def test_a_worker_role_that_is_none_any_more_loses_all(grounds: Grounds) -> None:
    place = grounds.ready()
    before = place.installed()
    migrate(place.url, worker_roles=[place.app])
    assert place.rows("select from broker_private.worker_greeting()", user=place.app)
    assert place.found() == []
    done = CliRunner().invoke(
        application, ["migrate", "--database-url", place.url, "--no-worker-role", place.app]
    )
    assert done.exit_code == 0, done.output
    assert f"Taken from {place.app}: EXECUTE on routine" in done.stderr
    assert place.refused("select from broker_private.worker_greeting()") == "42501"
    assert place.installed() == before
    with pytest.raises(MigrationError, match="no worker role"):
        migrate(place.url, former_worker_roles=[place.app])
