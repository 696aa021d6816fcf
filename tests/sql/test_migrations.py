"""Migrations: what an operator, or an application with its own Alembic, can rely on."""

from __future__ import annotations

import json
import lzma
import subprocess
import sys
import threading
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from sqlalchemy import MetaData, create_engine
from sqlalchemy.pool import NullPool
from typer.testing import CliRunner

from pybroker.commands import application
from pybroker.diagnosis.findings import findings_of
from pybroker.migrations import VERSIONS, MigrationError, include_name, migrate, offline_sql, upgrade
from tests.conftest import migrated_database
from tests.shop import DEFINITIONS, Session

if TYPE_CHECKING:
    from pybroker.embedded import EmbeddedServer
    from tests.conftest import Database

RELEASES = Path(__file__).parents[1] / "releases"

CATALOG = """
select 'function', p.oid::regprocedure::text, pg_get_functiondef(p.oid) || array(select a::text from unnest(p.proacl) a order by 1)::text
from pg_proc p where p.pronamespace in ('broker'::regnamespace, 'broker_private'::regnamespace)
union all
select 'relation', c.oid::regclass::text, concat(c.relkind, c.reloptions, array(select a::text from unnest(c.relacl) a order by 1), pg_get_viewdef(c.oid))
from pg_class c where c.relnamespace in ('broker'::regnamespace, 'broker_private'::regnamespace)
union all
select 'column', a.attrelid::regclass || '.' || a.attname, concat(a.attnum, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attstorage)
from pg_attribute a join pg_class c on c.oid = a.attrelid
where c.relnamespace in ('broker'::regnamespace, 'broker_private'::regnamespace) and a.attnum > 0
union all
select 'constraint', concat(conrelid::regclass, conname), pg_get_constraintdef(oid)
from pg_constraint where connamespace in ('broker'::regnamespace, 'broker_private'::regnamespace)
union all
select 'trigger', concat(tgrelid::regclass, tgname), concat(pg_get_triggerdef(oid), tgenabled) from pg_trigger where not tgisinternal
order by 1, 2
"""

# Event triggers that note, protect and grant, as frameworks and hosts have them, and another kind of table.
NEIGHBOURS = """
create table seen (tag text);
create function note() returns event_trigger language plpgsql as $$ begin insert into public.seen values (tg_tag); end $$;
create event trigger note_made on ddl_command_end execute function note();
create event trigger note_dropped on sql_drop execute function note();
create function protect() returns event_trigger language plpgsql as $$
declare r record;
begin
  for r in select * from pg_event_trigger_ddl_commands() where command_tag = 'CREATE TABLE' loop
    execute format('alter table %s enable row level security', r.object_identity);
  end loop;
  notify reload_schema;
end $$;
create event trigger protect on ddl_command_end execute function protect();
create access method other type table handler heap_tableam_handler;
do $$ begin
  execute format('alter database %I set default_table_access_method = other', current_database());
  execute format('alter database %I set search_path = nowhere, public', current_database());
  execute format('alter database %I set default_transaction_isolation = serializable', current_database());
  execute format('alter database %I set check_function_bodies = off', current_database());
end $$;
"""


@pytest.fixture
def empty(any_server: EmbeddedServer) -> str:
    """The URL of a database without pybroker."""
    return _empty(any_server)


def _empty(server: EmbeddedServer, owner: str | None = None) -> str:
    name = f"empty_{uuid.uuid4().hex[:8]}"
    server.create_database(name, owner=owner)
    return server.url(name) if owner is None else server.url(name, user=owner)


def _fresh(server: EmbeddedServer) -> str:
    """Return the URL of a database that was migrated to the newest revision at once."""
    return migrated_database(server, f"fresh_{uuid.uuid4().hex[:8]}").url


def _catalog(url: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url) as session:
        return session.execute(CATALOG).fetchall()


def test_a_second_migration_changes_nothing(empty: str) -> None:
    first = migrate(empty)
    assert first.previous is None
    assert first.warnings == ()
    assert first.applied_files > 0
    before = _catalog(empty)
    second = migrate(empty)
    assert (second.previous, second.current, second.applied_files) == (first.current, first.current, 0)
    assert _catalog(empty) == before


@pytest.mark.dear
def test_two_terminals_may_migrate_at_once(empty: str) -> None:
    results: list[int] = []
    threads = [
        threading.Thread(target=lambda: results.append(migrate(empty).applied_files)) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(count > 0 for count in results) == [False, False, False, True]


def test_an_upgraded_database_is_like_a_fresh_one_and_keeps_its_conversations(
    any_server: EmbeddedServer,
) -> None:
    fresh, old = _fresh(any_server), _fresh(any_server)
    with psycopg.connect(old, autocommit=True) as connection:
        psql = Session(connection)
        psql.rows(DEFINITIONS)
        psql.send(psql.dialog(), "order", b"sent before the upgrade")
        # The functions as an earlier release could have left them.
        psql.rows(
            "create or replace function broker.get_transmission_status(conversation_handle uuid) returns text"
            " language sql begin atomic select 'old'; end;"
            "create or replace function broker_private.clock() returns timestamptz language sql volatile"
            " begin atomic select pg_catalog.statement_timestamp(); end;"
            "update broker_private.applied_sql set sha256 = 'old'"
            " where path in ('conversation/get_transmission_status.sql', 'foundation/clock.sql')"
        )
        assert migrate(old).applied_files == 2
        assert psql.bodies() == [b"sent before the upgrade"]
        for name in ("shop", "warehouse"):
            psql.rows("select broker.drop_service(%s)", f"//{name}")
            psql.rows("select broker.drop_queue(%s)", name)
    assert _catalog(old) == _catalog(fresh)


@pytest.mark.parametrize("release", sorted(RELEASES.glob("*.sql.xz")), ids=lambda path: path.name)
def test_a_release_with_dialogs_in_it_is_upgraded_and_is_like_a_fresh_one(
    any_server: EmbeddedServer, release: Path
) -> None:
    fresh, old = _fresh(any_server), _empty(any_server)
    with psycopg.connect(old) as session:
        session.execute(lzma.decompress(release.read_bytes()))
    with psycopg.connect(old, autocommit=True) as connection:
        psql = Session(connection)
        psql.rows(DEFINITIONS)
        dialog = psql.dialog()
        psql.send(dialog, "order", b"sent before the upgrade")
        assert migrate(old).previous == "pybroker_0001"
        # The first goes the general way and makes the send plan, the others go by it.
        for body in (b"sent after it", b"by its plan", b"and again"):
            psql.send(dialog, "order", body)
        assert psql.bodies() == [b"sent before the upgrade", b"sent after it", b"by its plan", b"and again"]
        for name in ("shop", "warehouse"):
            psql.rows("select broker.drop_service(%s)", f"//{name}")
            psql.rows("select broker.drop_queue(%s)", name)
    assert _catalog(old) == _catalog(fresh)


def test_the_script_for_psql_makes_the_same(any_server: EmbeddedServer) -> None:
    online, offline = _fresh(any_server), _empty(any_server)
    with psycopg.connect(offline) as session:
        session.execute(offline_sql().encode())
    assert _catalog(offline) == _catalog(online)
    assert migrate(offline).applied_files == 0


@pytest.mark.dear
def test_a_role_that_owns_only_its_database_can_migrate_and_use_it(any_server: EmbeddedServer) -> None:
    owner = f"owner_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(any_server.url("postgres"), autocommit=True) as session:
        session.execute(f"create role {owner} login".encode())
    url = _empty(any_server, owner)
    migrate(url)
    with psycopg.connect(url, autocommit=True) as connection:
        psql = Session(connection)
        psql.rows("create schema app; set search_path = app")
        psql.rows(DEFINITIONS)
        psql.send(psql.dialog(), "order", b"mine")
        assert psql.bodies() == [b"mine"]


def test_a_migration_that_fails_leaves_nothing(empty: str) -> None:
    with psycopg.connect(empty, autocommit=True) as session:
        session.execute("create schema broker")
    with pytest.raises(psycopg.errors.DuplicateSchema):
        migrate(empty)
    with psycopg.connect(empty) as session:
        assert session.execute("select to_regnamespace('broker_private')").fetchone() == (None,)


def test_what_an_application_set_for_its_whole_database_hinders_no_broker(empty: str) -> None:
    with psycopg.connect(empty, autocommit=True) as session:
        session.execute(NEIGHBOURS.encode())
    migrate(empty)
    with psycopg.connect(empty, autocommit=True) as session:
        psql = Session(session)
        psql.rows(DEFINITIONS)
        dialog = psql.dialog()
        psql.send(dialog, "order", b"1")
        assert psql.bodies() == [b"1"]
        psql.end(psql.handle_of(dialog))
        psql.receive("shop")
        psql.end(dialog)
        psql.rows("select broker.drop_service('//shop'), broker.drop_queue('shop'), broker_private.sweep()")
        assert psql.rows("select number from broker.diagnose()") == []
        assert psql.value("select count(*) from seen where tag = 'DROP SEQUENCE'") > 0


def test_a_migration_that_an_event_trigger_stops_names_it(empty: str) -> None:
    with psycopg.connect(empty, autocommit=True) as session:
        session.execute(
            "create function guard() returns event_trigger language plpgsql as $$ begin"
            " if tg_tag = 'CREATE TABLE' then raise 'not in this house'; end if; end $$;"
            'create event trigger "House" on ddl_command_start execute function guard()'
        )
    shown = CliRunner().invoke(application, ["migrate", "--database-url", empty])
    assert shown.exit_code == 1
    assert "public.guard() of an event trigger failed: not in this house" in shown.output
    with psycopg.connect(empty, autocommit=True) as session:
        session.execute('alter event trigger "House" disable')
    migrate(empty)


@pytest.mark.dear
def test_a_worker_role_that_is_missing_is_named(empty: str) -> None:
    with pytest.raises(MigrationError, match="nobody_here"):
        migrate(empty, worker_roles=["nobody_here"])


@pytest.mark.dear
def test_an_application_brings_pybroker_along_in_its_own_alembic(empty: str, tmp_path: Path) -> None:
    versions = tmp_path / "versions"
    versions.mkdir()
    (versions / "app.py").write_text(
        "from alembic import op\n"
        "revision, down_revision, branch_labels, depends_on = 'app_1', None, ('app',), 'pybroker'\n"
        "def upgrade():\n"
        "    op.execute(\"select broker.create_queue('from_the_application', schema => 'public')\")\n"
    )
    (tmp_path / "env.py").write_text(
        "from alembic import context\nfrom sqlalchemy import create_engine, pool\n"
        "engine = create_engine(context.config.get_main_option('sqlalchemy.url'), poolclass=pool.NullPool)\n"
        "with engine.begin() as connection:\n"
        "    context.configure(connection=connection)\n"
        "    with context.begin_transaction():\n        context.run_migrations()\n"
    )
    config = Config()
    config.set_main_option("script_location", str(tmp_path))
    config.set_main_option("path_separator", "newline")
    config.set_main_option("version_locations", f"{versions}\n{VERSIONS}")
    config.set_main_option(
        "sqlalchemy.url", empty.replace("postgresql://", "postgresql+psycopg://").replace("%", "%%")
    )
    command.upgrade(config, "heads")
    with psycopg.connect(empty) as session:
        assert session.execute("select name from broker.service_queues").fetchall() == [
            ("from_the_application",)
        ]
    with pytest.raises(MigrationError, match="another Alembic"):
        migrate(empty)


@pytest.mark.dear
def test_an_application_lets_pybroker_migrate_in_its_own_env_py(empty: str, tmp_path: Path) -> None:
    (tmp_path / "versions").mkdir()
    (tmp_path / "versions" / "app.py").write_text(
        "from alembic import op\n"
        "revision, down_revision = 'app_1', None\n"
        "def upgrade():\n"
        "    op.execute(\"select broker.create_queue('from_the_application', schema => 'public')\")\n"
    )
    (tmp_path / "env.py").write_text(
        "from alembic import context\nfrom sqlalchemy import create_engine, pool\n"
        "from pybroker.migrations import upgrade\n"
        "engine = create_engine(context.config.get_main_option('sqlalchemy.url'), poolclass=pool.NullPool)\n"
        "with engine.begin() as connection:\n"
        "    context.configure(connection=connection)\n"
        "    with context.begin_transaction():\n"
        "        upgrade(connection)\n"
        "        context.run_migrations()\n"
    )
    config = Config()
    config.set_main_option("script_location", str(tmp_path))
    config.set_main_option("path_separator", "os")
    config.set_main_option(
        "sqlalchemy.url", empty.replace("postgresql://", "postgresql+psycopg://").replace("%", "%%")
    )
    for _ in range(2):
        command.upgrade(config, "head")
    with psycopg.connect(empty) as session:
        assert session.execute("select name from broker.service_queues").fetchall() == [
            ("from_the_application",)
        ]
    assert migrate(empty).applied_files == 0


@pytest.mark.dear
def test_the_command_says_what_it_did_and_what_is_wrong(empty: str) -> None:
    done = _pybroker("migrate", "--database-url", empty)
    assert done.returncode == 0, done.stderr
    newest = max(path.name for path in VERSIONS.glob("*.sql"))[:4]
    assert f"pybroker_{newest}" in done.stdout
    refused = _pybroker("migrate", "--database-url", "postgresql://postgres@127.0.0.1:1/nothing")
    assert refused.returncode == 1
    assert "Traceback" not in refused.stderr


@pytest.mark.dear
def test_an_upgrade_lists_the_bindings_of_roles_that_could_not_create_them(
    any_server: EmbeddedServer,
) -> None:
    older = b"update broker_private.applied_sql set sha256 = 'old' where path = 'foundation/clock.sql'"
    url, clerk, writer = _fresh(any_server), f"clerk_{uuid.uuid4().hex[:8]}", f"writer_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(url, autocommit=True) as session:
        session.execute(f"create role {clerk} login; create role {writer} login".encode())
        session.execute(f"grant create on database {session.info.dbname} to {writer}".encode())
        for name, owner in (("his", clerk), ("hers", writer), ("for_all", None)):
            session.execute(
                "select broker.create_remote_service_binding(%s, %s, 'far', owner => %s)",
                (name, f"//{name}", owner),
            )
        assert migrate(url).warnings == (), "nothing is upgraded"
        session.execute(older)
        done = _pybroker("migrate", "--database-url", url)
        assert f'The remote service binding "his" for the service "//his" belongs to "{clerk}"' in done.stderr
        assert "broker.drop_remote_service_binding('his')" in done.stderr
        assert "hers" not in done.stderr
        assert "for_all" not in done.stderr
        session.execute(older)
        (warning,) = json.loads(_pybroker("migrate", "--json", "--database-url", url).stdout)["warnings"]
        assert '"his"' in warning


@pytest.mark.dear
def test_an_upgrade_ends_the_dialogs_without_an_end(any_server: EmbeddedServer) -> None:
    url = _empty(any_server)
    with psycopg.connect(url) as session:
        session.execute(lzma.decompress((RELEASES / "0.1.0.sql.xz").read_bytes()))
    with psycopg.connect(url, autocommit=True) as connection:
        psql = Session(connection)
        psql.rows(DEFINITIONS)
        dialog = psql.dialog(lifetime="1 h")
        psql.send(dialog)
        psql.rows(
            "update broker_private.endpoints set expires_at = '294276-12-31 23:59:59+00',"
            " local_end = 'E', closed_at = '294276-12-31 23:59:59+00' where not is_initiator"
        )
        with pytest.raises(psycopg.errors.DatetimeFieldOverflow):
            psql.rows("select security_timestamp from broker.conversation_endpoints")
        migrate(url)
        lifetimes = psql.rows("select lifetime, security_timestamp from broker.conversation_endpoints")
        assert len(lifetimes) == 2


def test_an_upgrade_keeps_event_notifications_and_what_depends_on_their_view(empty: str) -> None:
    with psycopg.connect(empty) as session:
        session.execute(lzma.decompress((RELEASES / "0.1.0.sql.xz").read_bytes()))
    emit = "select queue_name, notification_name, problem from broker_private.emit_queue_activations()"
    with psycopg.connect(empty, autocommit=True) as connection:
        psql = Session(connection)
        psql.rows(DEFINITIONS)
        psql.rows(
            "select broker.create_queue('told'); select broker.create_service('//told', 'told',"
            " '{http://schemas.microsoft.com/SQL/Notifications/PostEventNotification}');"
            "select broker.create_event_notification('waits', 'warehouse', 'QUEUE_ACTIVATION', '//told'),"
            " broker.create_event_notification('off', 'warehouse', 'BROKER_QUEUE_DISABLED', '//told');"
            "create view ours as select name, type_desc from broker.event_notifications"
        )
        dialog = psql.dialog()
        psql.send(dialog)
        # What an older worker asks, in a session that stays open.
        assert psql.rows(emit) == [("warehouse", "waits", None)]
        migrate(empty)
        kept = [("off", "BROKER_QUEUE_DISABLED"), ("waits", "QUEUE_ACTIVATION")]
        assert psql.rows("select * from ours order by 1") == kept
        assert len(psql.bodies()) == 1
        psql.send(dialog)
        assert psql.rows(emit) == [("warehouse", "waits", None)]
        handles = psql.rows("select conversation_handle from broker.receive('told')")
        assert len(handles) == 2
        assert len(set(handles)) == 1
        psql.rows("select broker.drop_event_notification('waits')")
        assert psql.refused("select broker.drop_event_notification('waits')") == "S0208"
        psql.rows(
            "select broker.create_event_notification('off', 'shop', 'BROKER_QUEUE_DISABLED', '//told'),"
            " broker.drop_service('//warehouse'), broker.drop_queue('warehouse')"
        )
        assert psql.rows("select * from ours") == kept[:1]


@pytest.mark.dear
def test_an_upgrade_believes_no_plan_that_holds_a_wrong_priority(empty: str) -> None:
    migrate(empty)
    with psycopg.connect(empty, autocommit=True) as connection:
        psql = Session(connection)
        psql.rows(DEFINITIONS)
        psql.rows(
            "select broker.create_broker_priority('high', remote_service_name => '//shop', priority_level => 8)"
        )
        dialog = psql.dialog()
        look = "select priority from broker.receive('warehouse', top => 1)"
        for _ in range(3):
            psql.send(dialog, "order")
            assert psql.value(look) == 8
        # As the revision before left it.
        psql.rows(
            "update broker_private.groups set receive_plan.message.priority = 2 where (receive_plan).endpoint_no is not null"
        )
        for _ in range(2):
            psql.send(dialog, "order")
        assert psql.value(look) == 2, "it is believed before the upgrade"
        psql.rows((VERSIONS / "0018_receive_priority.sql").read_text(encoding="utf-8"))
        assert psql.value(look) == 8


@pytest.mark.dear
def test_an_upgrade_from_rows_that_mark_plans_keeps_what_was_sent_and_believes_no_plan(empty: str) -> None:
    with psycopg.connect(empty) as session:
        session.execute(lzma.decompress((RELEASES / "0.1.0.sql.xz").read_bytes()))
    migrate(empty)
    with psycopg.connect(empty, autocommit=True) as connection:
        psql = Session(connection)
        psql.rows(DEFINITIONS)
        dialog = psql.dialog()
        for body in (b"1", b"2"):
            psql.send(dialog, "order", body)
        assert psql.bodies(top=1) == [b"1"]
        # As the revision before left it: plans of another type of number, and a row for the last mark.
        psql.rows(
            "alter table broker_private.groups drop column send_made, add column send_made xid8,"
            "  drop column receive_made, add column receive_made xid8;"
            "alter table broker_private.endpoints drop column send_made, add column send_made xid8;"
            "update broker_private.groups set send_made = '1', receive_made = '1';"
            "create table broker_private.plan_marks (marked_by xid8 not null);"
            "drop sequence broker_private.plan_mark cascade;"
            "delete from broker_private.applied_sql where path = 'queue/is_plan_marked.sql'"
        )
        psql.rows((VERSIONS / "0020_plan_mark.sql").read_text(encoding="utf-8"))
        migrate(empty)
        psql.rows("select broker.send_batch(%s, 'order', '{3,4}')", dialog)
        for _ in range(2):
            psql.send(dialog, "order", b"5")
        for expected in (b"2", b"3", b"4", b"5", b"5"):
            assert psql.bodies(top=1) == [expected]
        psql.rows("select broker.alter_message_type('order', 'EMPTY')")
        assert psql.refused("select broker.send_batch(%s, 'order', '{6}')", dialog) == "S8430"


def _pybroker(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pybroker", *arguments], capture_output=True, text=True, check=False
    )


def test_rights_become_those_of_roles_and_names_without_a_role_are_told(any_server: EmbeddedServer) -> None:
    url, role, gone = _empty(any_server), f"Role {uuid.uuid4().hex[:8]}", f"gone_{uuid.uuid4().hex[:8]}"
    foundation = (VERSIONS / "0001_foundation.sql").read_text(encoding="utf-8")
    with psycopg.connect(url, autocommit=True) as connection:
        psql = Session(connection)
        psql.rows(foundation)
        psql.rows(
            "create table broker_private.alembic_version (version_num varchar(32) primary key);"
            "insert into broker_private.alembic_version values ('pybroker_0001');"
            # As a release of that revision left it: a view that a user's own view may name.
            "create view broker.services as select name, service_id, owner as principal_id, queue_id as service_queue_id"
            " from broker_private.services where name is not null and service_id >= 65536;"
            "create view public.ours as select name, principal_id from broker.services"
        )
        psql.rows(f'create role "{role}" login')
        psql.rows(
            f"insert into broker_private.worker_roles values ('{role}'), ('{gone}');"
            "insert into broker_private.queues (name, view_schema, owner, execute_as, is_activation_enabled, create_date, modify_date)"
            f" values ('kept', 'public', '{role}', '{role}', true, now(), now()), ('lost', 'public', '{gone}', '{gone}', true, now(), now());"
            "insert into broker_private.services (name, owner, queue_id)"
            f" select '//' || name, owner, queue_id from broker_private.queues where owner in ('{role}', '{gone}');"
            "insert into broker_private.permissions select 'Q', queue_id, 'RECEIVE', x from broker_private.queues,"
            f" unnest(array['{role}', '{gone}', 'public']) x where name = 'kept';"
            "insert into broker_private.permissions select 'S', service_id, 'SEND', x from broker_private.services,"
            f" unnest(array['{gone}']) x where name = '//kept'"
        )
    told: list[str | None] = []
    with create_engine(
        "postgresql+psycopg://", creator=lambda: _listening(url, told), poolclass=NullPool
    ).begin() as engine:
        upgrade(engine)
    assert sorted(line for line in told if line is not None and gone in line) == [
        f'There is no role "{gone}": it is no worker role any more.',
        f'There is no role "{gone}": its permission RECEIVE is dropped.',
        f'There is no role "{gone}": the activation of the queue "lost" is off.',
        f'There is no role "{gone}": the queue "lost" belongs to the owner of the database now.',
        f'There is no role "{gone}": the service "//lost" belongs to the owner of the database now.',
    ]
    with psycopg.connect(url, autocommit=True) as connection:
        psql = Session(connection)
        assert psql.rows("select * from public.ours order by name") == [
            ("//kept", role),
            ("//lost", "pg_database_owner"),
        ]
        assert psql.rows(
            "select execute_as_principal_id, is_activation_enabled from broker.service_queues order by name"
        ) == [(role, True), (None, False)]
        psql.rows(f'create role {gone} login; alter role "{role}" rename to "new {role}"')
    for name in (f"new {role}", gone):
        with psycopg.connect(any_server.url(_database(url), user=name), autocommit=True) as connection:
            user = Session(connection)
            assert user.receive("kept") == []
            if name == gone:
                assert user.refused("select broker.drop_service('//lost')") == "S0229"
            else:
                user.rows("select broker.drop_service('//kept')")


def _listening(url: str, told: list[str | None]) -> psycopg.Connection[Any]:
    connection = psycopg.connect(url)
    connection.add_notice_handler(lambda notice: told.append(notice.message_primary))
    return connection


def _database(url: str) -> str:
    return str(psycopg.conninfo.conninfo_to_dict(url)["dbname"])


@pytest.mark.filterwarnings("ignore:Did not recognize type")
def test_an_application_that_autogenerates_drops_nothing_of_the_broker(any_database: Database) -> None:
    engine = create_engine(
        "postgresql+psycopg://", creator=lambda: psycopg.connect(any_database.url), poolclass=NullPool
    )
    with engine.connect() as connection:
        for named, drops in ((None, True), (include_name, False)):
            options = {"include_schemas": True, "include_name": named}
            context = MigrationContext.configure(connection, opts=options)
            assert bool(compare_metadata(context, MetaData())) is drops


# What pg_dump --schema-only leaves: the tables, and in them nothing.
EMPTIED = """
do $$ begin execute (
  select 'truncate ' || string_agg(c.oid::regclass::text, ', ') from pg_class c
  where c.relnamespace = 'broker_private'::regnamespace and c.relkind = 'r'
); end $$
"""


def test_a_dump_of_the_schema_alone_is_found_and_filled(any_server: EmbeddedServer) -> None:
    url = _fresh(any_server)
    with psycopg.connect(url, autocommit=True) as session:
        session.execute("select broker.create_queue('iq', schema => 'public')")
        session.execute(EMPTIED)
        (finding,) = findings_of(session)
        assert (finding.number, finding.mend[0].statement.split()[:2]) == (5, ["pybroker", "migrate"])
    for command_line in (["status"], ["worker"]):
        refused = CliRunner().invoke(application, [*command_line, "--database-url", url])
        assert refused.exit_code == 1, command_line
        assert "pybroker migrate --database-url" in refused.output
        assert len(refused.output.splitlines()) == 1

    with psycopg.connect(url, autocommit=True) as session:
        session.execute("create view public.mine as select 1 as one from broker.service_queues")
    with pytest.raises(MigrationError, match=r'them: rule "_RETURN" on public\.mine\.'):
        migrate(url)
    with psycopg.connect(url, autocommit=True) as session:
        session.execute("drop view public.mine")
    assert "--schema-only" in migrate(url).warnings[0]
    assert _catalog(url) == _catalog(_fresh(any_server))
    with psycopg.connect(url, autocommit=True) as session:
        session.execute("select broker.create_queue('iq', schema => 'public')")


def test_rows_without_those_of_migrations_are_left_alone(any_server: EmbeddedServer) -> None:
    url = _fresh(any_server)
    with psycopg.connect(url, autocommit=True) as session:
        session.execute(EMPTIED)
        session.execute("insert into broker_private.worker_roles values (current_user::regrole)")
    with pytest.raises(MigrationError, match=r"broker_private\.worker_roles"):
        migrate(url)


def test_a_database_that_was_given_away_says_how_the_broker_follows(any_server: EmbeddedServer) -> None:
    old, new = (f"{word}_{uuid.uuid4().hex[:8]}" for word in ("old", "new"))
    with psycopg.connect(any_server.url("postgres"), autocommit=True) as session:
        session.execute(f"create role {old} login; create role {new} login".encode())
        url = _empty(any_server, old)
        migrate(url)
        name = psycopg.conninfo.conninfo_to_dict(url)["dbname"]
        session.execute(f"alter database {name} owner to {new}".encode())
    theirs = any_server.url(str(name), user=new)
    with pytest.raises(MigrationError) as refused:
        migrate(theirs)
    mend = f'REASSIGN OWNED BY "{old}" TO "{new}"'
    assert mend in str(refused.value.hint)
    worker = CliRunner().invoke(application, ["worker", "--database-url", theirs])
    assert mend in worker.output.replace('\\"', '"')
    with psycopg.connect(any_server.url(str(name)), autocommit=True) as session:
        session.execute(mend.encode())
    assert migrate(theirs).applied_files == 0
