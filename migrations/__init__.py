"""Migrations: tables by Alembic revisions, functions and views from the files of ``pybroker.sql``.

A database is migrated in one transaction under an advisory lock, so two terminals at once are safe. From an
application's own Alembic, either call :func:`upgrade` in ``env.py``, or add :data:`VERSIONS` to
``version_locations``: the revisions have the branch label ``pybroker``.
"""

from __future__ import annotations

import io
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
from alembic import command, op
from alembic.config import Config
from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext, MigrationStep
from alembic.script import ScriptDirectory
from psycopg import sql
from sqlalchemy import create_engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from pybroker import database_version
from pybroker.connection_string import checked
from pybroker.definitions.applying import ONE_AT_A_TIME
from pybroker.migrations import emptied
from pybroker.migrations.errors import MigrationError
from pybroker.migrations.table_locks import lock_tables
from pybroker.sql import sql_files

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sqlalchemy.engine import Connection

VERSIONS = Path(__file__).parent / "versions"
VERSION_TABLE = "alembic_version"
VERSION_TABLE_SCHEMA = "broker_private"
# Others may create functions and operators in a schema of the owner's search_path. One whose arguments fit
# better than PostgreSQL's own would be called as the owner, or get into a view for good.
_PINNED_PATH = "set local search_path = pg_catalog, pg_temp"
_EVENT_TRIGGERS = """
select evtfoid::regprocedure::text, format('alter event trigger %I disable', evtname)
from pg_event_trigger where evtenabled <> 'D'
"""
# Service Broker's number for a database whose broker instance may live on in another.
_COPY = "9773"


@dataclass(frozen=True)
class MigrationResult:
    """What a migration did.

    Attributes:
        previous: the revision found, None in a database that had none.
        current: the revision that the database has now.
        applied_files: how many files of functions and views were applied.
        broker_problem: why the broker of this database is off, None if it is on.
        warnings: what was found that somebody should look at, each with what to do; rights that were taken.
    """

    previous: str | None
    current: str
    applied_files: int
    broker_problem: str | None
    warnings: tuple[str, ...] = ()


def migrate(
    database_url: str,
    *,
    worker_roles: Sequence[str] = (),
    former_worker_roles: Sequence[str] = (),
    new_broker: bool = False,
) -> MigrationResult:
    """Bring a database to this version of pybroker.

    Args:
        database_url: a libpq URL or connection string; its role owns the database, or may create schemas.
        worker_roles: existing roles that may run ``pybroker worker`` on this database, beside its owner.
        former_worker_roles: worker roles that are none any more: they lose all that they had as such.
        new_broker: if the database is a copy of another, of a template for one, give it an identity of its
            own and forget the conversations that were copied. Nothing happens to a database that is no copy.

    Raises:
        MigrationError: the database is not one to migrate, or a role is not there; nothing was changed.
        psycopg.Error: the database can't be reached, or the role lacks a right; nothing was changed.
    """
    url = checked(database_url)
    engine = create_engine(
        "postgresql+psycopg://",
        creator=lambda: psycopg.connect(url, client_encoding="UTF8"),
        poolclass=NullPool,
    )
    with engine.begin() as connection:
        return upgrade(
            connection,
            worker_roles=worker_roles,
            former_worker_roles=former_worker_roles,
            new_broker=new_broker,
        )


def upgrade(
    connection: Connection,
    *,
    worker_roles: Sequence[str] = (),
    former_worker_roles: Sequence[str] = (),
    new_broker: bool = False,
) -> MigrationResult:
    """Migrate over a SQLAlchemy connection, in its transaction; the caller commits.

    Args:
        connection: a connection with the psycopg 3 driver.
        worker_roles: as in :func:`migrate`.
        former_worker_roles: as in :func:`migrate`.
        new_broker: as in :func:`migrate`.
    """
    with _pinned_path(connection), _named_event_triggers(_driver(connection)):
        return _upgrade(connection, worker_roles, former_worker_roles, new_broker=new_broker)


def _upgrade(
    connection: Connection,
    worker_roles: Sequence[str],
    former_worker_roles: Sequence[str],
    *,
    new_broker: bool,
) -> MigrationResult:
    _execute(connection, ONE_AT_A_TIME)
    _refuse_stranger(_driver(connection))
    _execute(connection, f"create schema if not exists {VERSION_TABLE_SCHEMA}")
    context = MigrationContext.configure(
        connection, opts={"version_table": VERSION_TABLE, "version_table_schema": VERSION_TABLE_SCHEMA}
    )
    previous = context.get_current_revision()
    applied_before = _applied(_driver(connection)) if previous is not None else {}
    is_half = previous is None and _has_installation(connection)
    if is_half and emptied.remove(_driver(connection)):
        _execute(connection, f"create schema {VERSION_TABLE_SCHEMA}")
    elif is_half:
        raise MigrationError(
            "This database's pybroker was installed by another Alembic, with a version table of its own.",
            hint="Upgrade it with that Alembic: alembic upgrade heads.",
        )
    _refuse_newer(connection, previous)
    with _collected_warnings(_driver(connection)) as warnings:
        _run_revisions(connection)
        _apply_changed_files(connection)
        _set_rights(_driver(connection), worker_roles, former_worker_roles)
    if is_half:
        warnings.insert(0, emptied.WARNING)
    current = context.get_current_revision()
    if current is None:
        raise RuntimeError("Alembic recorded no revision")
    applied = dict(_applied(_driver(connection)).items() - applied_before.items())
    problem = _broker_problem(connection)
    if new_broker and problem is not None and problem.startswith(_COPY):
        _execute(connection, "select broker.alter_broker('NEW_BROKER')")
        problem = _broker_problem(connection)
    return MigrationResult(previous, current, len(applied), problem, tuple(warnings))


def _refuse_stranger(driver: psycopg.Connection[Any]) -> None:
    """Refuse a role that has not the rights of the owner of the schemas, and name that owner."""
    found = driver.execute(database_version.STRANGER.encode()).fetchone()
    if found is not None:
        raise MigrationError(
            f'The pybroker of this database belongs to the role "{found[0]}", and this is "{found[1]}".',
            hint=f"Migrate as that role. {database_version.handed_over(*found)} Nothing was changed.",
        )


def _refuse_newer(connection: Connection, previous: str | None) -> None:
    """Refuse a database whose tables or functions a newer package made."""
    found = _driver(connection).execute(database_version.COMMENT.encode()).fetchone()
    wanted = database_version.newer(found and found[0])
    if wanted is not None:
        raise MigrationError(
            "This database is newer than this package.", hint=database_version.advice(wanted)
        )
    known = {script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()}
    if previous is not None and previous not in known:
        raise MigrationError(
            f'This database is newer than this package, which knows no revision "{previous}".',
            hint="Run: pip install --upgrade pybroker",
        )


def _note_version(driver: psycopg.Connection[Any]) -> None:
    found = driver.execute(database_version.COMMENT.encode()).fetchone()
    if found is None or found[0] != database_version.comment():
        driver.execute(sql.SQL("comment on schema broker is {}").format(database_version.comment()))


def include_name(name: str | None, type_: str, _parent_names: Mapping[str, str | None]) -> bool:
    """Keep an application's Alembic away from the broker's schemas: for ``context.configure`` in ``env.py``.

    With ``include_schemas`` and without this, ``--autogenerate`` drops what no model of the application's
    describes.

    Args:
        name: of a schema, or of what is in one.
        type_: as Alembic says it; ``"schema"`` for a schema.
    """
    return type_ != "schema" or name not in {"broker", VERSION_TABLE_SCHEMA}


def offline_sql(*, worker_roles: Sequence[str] = ()) -> str:
    """Return the whole migration of an empty database as a SQL script, for ``psql -1 -f``."""
    buffer = io.StringIO()
    config = _config(output_buffer=buffer)
    command.upgrade(config, "pybroker@head", sql=True)
    files = sql_files()
    parts = [f"{_PINNED_PATH};", f"create schema if not exists {VERSION_TABLE_SCHEMA};"]
    parts += [_without_transaction(buffer.getvalue())]
    parts += [file.text for file in files]
    parts += [_literal(_RECORD_FILE, file.path, file.sha256) + ";" for file in files]
    parts += [_literal(_ADD_WORKER_ROLE, role) + ";" for role in worker_roles]
    parts += [f"{_SET_RIGHTS};", _literal("comment on schema broker is {}", database_version.comment()) + ";"]
    return "\n".join(parts)


def run_revision_sql(file_name: str) -> None:
    """Run a revision's SQL file, from the revision's ``upgrade()``.

    In an application's own Alembic nobody calls :func:`upgrade`, so the newest revision brings the
    functions too. An older one can't: they use tables that only come later.
    """
    text = (VERSIONS / file_name).read_text(encoding="utf-8")
    context = op.get_context()
    if context.as_sql:
        context.impl.static_output(text)
        return
    connection = op.get_bind()
    with _pinned_path(connection):
        lock_tables(_driver(connection))
        _execute(connection, text)
        if file_name == max(path.name for path in VERSIONS.glob("*.sql")):
            _apply_changed_files(connection)
            _set_rights(_driver(connection))


@contextmanager
def _pinned_path(connection: Connection) -> Iterator[None]:
    """Look for names in PostgreSQL's own schema only; what follows has its own search_path again."""
    driver = _driver(connection)
    found = driver.execute("select pg_catalog.current_setting('search_path')").fetchone()
    driver.execute(_PINNED_PATH)
    yield
    driver.execute("select pg_catalog.set_config('search_path', %s, true)", found)


@contextmanager
def _named_event_triggers(driver: psycopg.Connection[Any]) -> Iterator[None]:
    """Refuse with the name of the event trigger in whose function a statement failed."""
    triggers = driver.execute(_EVENT_TRIGGERS.encode()).fetchall()
    try:
        yield
    except (psycopg.Error, DBAPIError) as error:
        failed = error.orig if isinstance(error, DBAPIError) else error
        if isinstance(failed, psycopg.Error):
            for function, disabled in triggers:
                if f" {function} " in (failed.diag.context or ""):
                    raise MigrationError(
                        f"The function {function} of an event trigger failed: {failed.diag.message_primary}",
                        hint="Let it pass what is in the schemas broker and broker_private, and qualify each"
                        f" name that it uses. Or turn it off meanwhile: {disabled}. Nothing was changed.",
                    ) from error
        raise


@contextmanager
def _collected_warnings(driver: psycopg.Connection[Any]) -> Iterator[list[str]]:
    """Yield a list that each WARNING of the server joins, once, with its hint."""
    warnings: list[str] = []

    def collect(notice: psycopg.errors.Diagnostic) -> None:
        text = " ".join(part for part in (notice.message_primary, notice.message_hint) if part)
        if notice.severity_nonlocalized == "WARNING" and text not in warnings:
            warnings.append(text)

    driver.add_notice_handler(collect)
    try:
        yield warnings
    finally:
        driver.remove_notice_handler(collect)


def _broker_problem(connection: Connection) -> str | None:
    found = _driver(connection).execute("select disabled_reason from broker.databases").fetchone()
    return None if found is None else found[0]


def _has_installation(connection: Connection) -> bool:
    found = _driver(connection).execute("select to_regtype('broker.message')").fetchone()
    return found is not None and found[0] is not None


def _run_revisions(connection: Connection) -> None:
    """Run what is missing, in a context of its own: Alembic's command would end that of an ``env.py``."""
    script = ScriptDirectory.from_config(_config())
    context = MigrationContext.configure(
        connection,
        opts={
            "version_table": VERSION_TABLE,
            "version_table_schema": VERSION_TABLE_SCHEMA,
            "script": script,
            "fn": lambda revision, _: _missing(script, revision),
        },
    )
    with Operations.context(context):
        context.run_migrations()


def _missing(script: ScriptDirectory, revision: str | tuple[str, ...]) -> list[MigrationStep]:
    """Return the steps from an installed revision to the newest, the oldest first."""
    newest_first = script.iterate_revisions("pybroker@head", revision or "base")
    return [
        MigrationStep.upgrade_from_script(script.revision_map, each) for each in reversed([*newest_first])
    ]


_RECORD_FILE = (
    "insert into broker_private.applied_sql (path, sha256) values ({}, {})"
    " on conflict (path) do update set sha256 = excluded.sha256"
)
# Those that were moved or deleted.
_FORGET_FILES = "delete from broker_private.applied_sql where path <> all(%s)"
# Others' default privileges may give PUBLIC less. With these it has what it is given from the start,
# so whatever it lacks later an operator has taken.
_GIVE_TO_PUBLIC = """
alter default privileges in schema broker {0} execute on routines {1} public;
alter default privileges in schema broker {0} select on tables {1} public
"""
_SET_RIGHTS = "select broker_private.forget_dropped_roles(), broker_private.set_rights()"
_ADD_WORKER_ROLE = (
    "insert into broker_private.worker_roles (role_name)"
    " values (quote_ident({})::regrole) on conflict (role_name) do nothing"
)
_REMOVE_WORKER_ROLE = (
    "delete from broker_private.worker_roles where role_name = to_regrole(quote_ident(%s)) returning true"
)


def _config(output_buffer: io.StringIO | None = None) -> Config:
    config = Config(output_buffer=output_buffer) if output_buffer is not None else Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    config.set_main_option("path_separator", "os")
    config.set_main_option("version_locations", str(VERSIONS))
    return config


def _applied(driver: psycopg.Connection[Any]) -> dict[str, str]:
    return dict(driver.execute("select path, sha256 from broker_private.applied_sql").fetchall())


def _apply_changed_files(connection: Connection) -> None:
    driver = _driver(connection)
    known = _applied(driver)
    changed = [file for file in sql_files() if known.get(file.path) != file.sha256]
    if not changed:
        return
    driver.execute(_GIVE_TO_PUBLIC.format("grant", "to").encode())
    for file in changed:
        driver.execute(file.text.encode())
        driver.execute(sql.SQL(_RECORD_FILE).format(file.path, file.sha256))
    driver.execute(_GIVE_TO_PUBLIC.format("revoke", "from").encode())
    driver.execute(_FORGET_FILES, [[file.path for file in sql_files()]])
    driver.execute(b"select broker_private.warn_of_bindings()")


def _set_rights(
    driver: psycopg.Connection[Any], worker_roles: Sequence[str] = (), former_worker_roles: Sequence[str] = ()
) -> None:
    """Make the rights on the broker's objects what they should be; then the database has its version."""
    for role in worker_roles:
        known = driver.execute("select from pg_roles where rolname = %s", (role,)).fetchone()
        if known is None:
            raise MigrationError(
                f'There is no role "{role}".',
                hint=f"Create it first: CREATE ROLE {role} LOGIN; nothing was changed.",
            )
        driver.execute(sql.SQL(_ADD_WORKER_ROLE).format(role))
    for role in former_worker_roles:
        if driver.execute(_REMOVE_WORKER_ROLE, (role,)).fetchone() is None:
            raise MigrationError(
                f'The role "{role}" is no worker role of this database.', hint="Nothing was changed."
            )
    driver.execute(_SET_RIGHTS.encode())
    _note_version(driver)


def _driver(connection: Connection) -> psycopg.Connection[Any]:
    driver = connection.connection.driver_connection
    if not isinstance(driver, psycopg.Connection):
        raise TypeError("pybroker migrates over the psycopg 3 driver: use a postgresql+psycopg:// URL")
    return driver


def _execute(connection: Connection, text: str) -> None:
    _driver(connection).execute(text.encode())


def _literal(template: str, *values: str) -> str:
    return sql.SQL(template).format(*values).as_string(None)


def _without_transaction(script: str) -> str:
    """Drop Alembic's own BEGIN and COMMIT: the whole script is one transaction, not the revisions alone."""
    lines = [line for line in script.splitlines() if line.strip() not in {"BEGIN;", "COMMIT;"}]
    return "\n".join(lines)
