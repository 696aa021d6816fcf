"""Runs the steps of scripts in their databases, and shows what sqlcmd would show."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus

from pybroker.tsql import showing
from pybroker.tsql.administration import tree
from pybroker.tsql.databases import HOME_NAMES
from pybroker.tsql.steps import Shown

if TYPE_CHECKING:
    from collections.abc import Callable

    from psycopg.errors import Diagnostic

    from pybroker.tsql.certificates import Certificates
    from pybroker.tsql.conditions import Condition
    from pybroker.tsql.databases import Databases
    from pybroker.tsql.steps import Step

# What RAISE has; PostgreSQL's own notices, as "relation exists, skipping", are not shown.
_RAISED = "00000"
_REFUSAL = re.compile(r"([ST])(\d{4})")
_REFCURSOR = 1790
_FIRST_OF_FIVE_DIGITS = 20000
_READS_DATABASES = "pybroker_tsql.databases"


class Console(Protocol):
    """Where a session shows things: what a script prints, and what is said about it."""

    def show(self, line: str) -> None:
        """Show a line of a result, or of PRINT."""

    def note(self, line: str) -> None:
        """Say something about a statement."""


class StatementError(Exception):
    """A statement failed.

    Attributes:
        number: SQL Server's error number; None where it has none.
        sqlstate: PostgreSQL's code; None where no database was asked.
        hint: what to do.
    """

    def __init__(self, message: str, number: int | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.number = number
        self.sqlstate: str | None = None
        self.hint = hint


class Session:
    """A client's session; USE leads it from one database to the next.

    Each statement is a transaction of its own, as far as the script begins none.
    """

    def __init__(
        self,
        databases: Databases,
        console: Console,
        certificates: Certificates | None = None,
        *,
        single_transaction: bool = False,
    ) -> None:
        self.databases = databases
        self.console = console
        self.certificates = certificates
        self.database = databases.first
        self._is_single = single_transaction
        self._connections: dict[str, psycopg.Connection[Any]] = {}
        self._answers: dict[Condition, bool] = {}

    def run(self, step: Step) -> None:
        """Take one step.

        Raises:
            StatementError: the database refused it, or can't be reached.
        """
        try:
            if not all(self._answer(one) is wanted for one, wanted in step.conditions):
                return
            if step.sql is not None:
                self._execute(step)
            elif step.statement is not None and (action := ACTIONS.get(type(step.statement))):
                action(self, step.statement)
        except psycopg.Error as error:
            raise _told(error) from None

    def begin_batch(self) -> None:
        """Forget the answers to the last batch's conditions."""
        self._answers.clear()

    def connection(self, name: str) -> psycopg.Connection[Any]:
        """Return the connection to a database; one is kept for each.

        Raises:
            StatementError: nobody said where it is.
            psycopg.OperationalError: it can't be reached.
        """
        url = self.databases.url(name)
        if url is None:
            raise StatementError(f'The database "{name}" is not known.', 911, "Give --database for it.")
        known = self._connections.get(_same(url))
        if known is not None and not known.closed:
            return known
        made: psycopg.Connection[Any] = psycopg.connect(
            url, application_name="pybroker tsql", autocommit=not self._is_single
        )
        made.add_notice_handler(self._notice)
        # A schema that is not there yet may be in the path.
        made.execute(
            "select pg_catalog.set_config('search_path', current_setting('search_path') || ', dbo', false)"
        )
        self._connections[_same(url)] = made
        return made

    def forget(self, name: str) -> None:
        """Close the connection to a database, so that it can be dropped."""
        known = self._connections.pop(_same(self.databases.url(name) or ""), None)
        if known is not None:
            known.close()

    def change_database(self, name: str) -> None:
        """Go to another database.

        Raises:
            StatementError: a transaction is open, and it is of one database.
        """
        if not self._is_single and self.is_in_transaction:
            raise StatementError(
                f"USE {name} in a transaction: it is of one database.", hint="COMMIT before USE."
            )
        self.connection(name)
        self.database = name
        self.console.show(f"Changed database context to '{name}'.")

    @property
    def is_in_transaction(self) -> bool:
        """Whether a script has begun a transaction and not ended it."""
        return any(
            one.info.transaction_status not in (TransactionStatus.IDLE, TransactionStatus.UNKNOWN)
            for one in self._connections.values()
        )

    def commit(self) -> None:
        """Commit what --single-transaction holds.

        Raises:
            StatementError: it can't be committed.
        """
        try:
            for one in self._connections.values():
                one.commit()
        except psycopg.Error as error:
            raise _told(error) from None

    def close(self) -> None:
        """Close all connections; what is not committed is undone."""
        for one in self._connections.values():
            with suppress(psycopg.Error):
                one.close()

    def _answer(self, condition: Condition) -> bool:
        known = self._answers.get(condition)
        if known is None:
            connection = self._ready(condition.sql, at_home=condition.at_home)
            row = connection.execute(condition.sql.encode()).fetchone()
            known = self._answers[condition] = row is not None and row[0] is True
        return known

    def _ready(self, sql: str, *, at_home: bool) -> psycopg.Connection[Any]:
        """Return the connection for a query, which knows the other databases if it asks for them."""
        connection = self.connection("master" if at_home else self.database)
        if _READS_DATABASES in sql:
            connection.execute(
                "select pg_catalog.set_config('pybroker_tsql.databases', %s, false)", (self._described(),)
            )
        return connection

    def _execute(self, step: Step) -> None:
        sql = step.sql or ""
        connection = self._ready(sql, at_home=step.at_home)
        with connection.cursor() as cursor:
            cursor.execute(sql.encode())
            more: bool | None = True
            while more:
                self._show(connection, cursor, step.shown)
                more = cursor.nextset()

    def _show(self, connection: psycopg.Connection[Any], cursor: psycopg.Cursor[Any], shown: Shown) -> None:
        if shown is Shown.NOTHING:
            return
        if cursor.description is None:
            if shown is Shown.COUNT and cursor.rowcount >= 0:
                self._lines(showing.counted(cursor.rowcount))
            return
        columns = cursor.description
        rows = cursor.fetchall()
        if columns and all(column.type_code == _REFCURSOR for column in columns):
            for name in (value for row in rows for value in row if value is not None):
                self._fetch(connection, name)
            return
        if shown is Shown.ROWS:
            self._lines(showing.table([column.name for column in columns], rows))

    def _fetch(self, connection: psycopg.Connection[Any], name: str) -> None:
        quoted = '"' + name.replace('"', '""') + '"'
        found = connection.execute(f"fetch all from {quoted}".encode())
        names = [column.name for column in found.description or ()]
        self._lines(showing.table(names, found.fetchall()))

    def _lines(self, lines: Any) -> None:
        for line in lines:
            self.console.show(line)

    def _notice(self, notice: Diagnostic) -> None:
        if notice.sqlstate == _RAISED:
            self.console.show(showing.text(notice.message_primary or ""))
        elif notice.severity_nonlocalized == "WARNING":
            self.console.note(f"warning: {showing.text(notice.message_primary or '')}")

    def _described(self) -> str:
        """Return the databases that were named, for sys.databases."""
        rows = []
        others = [name for name in self.databases.names if name.casefold() not in HOME_NAMES]
        numbered = [*zip((1, 4), HOME_NAMES, strict=True), *enumerate(others, start=5)]
        for number, name in numbered:
            # Neither one that is not there yet, nor one without a broker.
            with suppress(psycopg.Error), psycopg.connect(self.databases.url(name) or "") as connection:
                row = connection.execute(
                    "select service_broker_guid, is_broker_enabled, is_broker_priority_honored"
                    " from broker.databases"
                ).fetchone()
                guid, enabled, honored = row or (None, False, False)
                rows.append(
                    {
                        "name": name,
                        "database_id": number,
                        "service_broker_guid": str(guid),
                        "is_broker_enabled": enabled,
                        "is_broker_priority_honored": honored,
                    }
                )
        return json.dumps(rows)


def _same(url: str) -> str:
    """Return a form that is the same for all URLs of a database."""
    return json.dumps(conninfo_to_dict(url), sort_keys=True)


def _use(session: Session, one: tree.Use) -> None:
    session.change_database(one.database)


def _alter_database(session: Session, one: tree.AlterDatabase) -> None:
    name = session.database if one.database.upper() == "CURRENT" else one.database
    connection = session.connection(name)
    if one.termination == "ROLLBACK IMMEDIATE" and one.action in ("NEW_BROKER", "ERROR_BROKER_CONVERSATIONS"):
        # Workers begin anew by themselves.
        connection.execute(
            """
            select pg_catalog.pg_terminate_backend(a.pid) from pg_catalog.pg_stat_activity a
            where a.datname = pg_catalog.current_database() and a.pid <> pg_catalog.pg_backend_pid()
              and a.backend_type = 'client backend' and a.xact_start is not null
              and a.application_name <> 'pybroker worker'
            """
        )
    if one.action is not None:
        connection.execute("select broker.alter_broker(%s)", (one.action,))
    if one.honor_broker_priority is not None:
        connection.execute(
            "select broker.alter_broker(honor_broker_priority => %s)", (one.honor_broker_priority,)
        )


def _create_database(session: Session, one: tree.CreateDatabase) -> None:
    # Alembic takes longer to import than most scripts to run.
    from pybroker import migrations  # noqa: PLC0415

    name = one.database
    url = session.databases.url_to_make(name)
    if url is None:
        raise StatementError(
            f'The database "{name}" is not known.', 911, "Give --database or --server for it."
        )
    is_made = _make(url)
    with psycopg.connect(url, autocommit=True) as connection:
        found = connection.execute(
            """
            select exists (select from pg_catalog.pg_namespace where nspname = 'broker'),
              exists (
                select from pg_catalog.pg_class c
                where c.relnamespace::regnamespace::text not in ('pg_catalog', 'information_schema')
                  and c.relnamespace::regnamespace::text not like 'pg\\_toast%'
              )
            """
        )
        is_migrated, is_used = found.fetchone() or (False, False)
    if not is_migrated and is_used:
        raise StatementError(
            f'The database "{name}" exists and is not empty.',
            1801,
            "Install the broker in it: pybroker migrate",
        )
    session.databases.add(name, url)
    if not is_migrated:
        migrations.migrate(url)
    if not is_made:
        session.console.note(f'the database "{name}" is there already, and is used as it is')
    if one.action is not None:
        session.connection(name).execute("select broker.alter_broker(%s)", (one.action,))


def _make(url: str) -> bool:
    """Make a database that is not there; return whether it was made."""
    try:
        psycopg.connect(url).close()
    except psycopg.OperationalError as error:
        # The message may be in any language, so the server is asked.
        with _maintenance(url) as connection:
            name = conninfo_to_dict(url)["dbname"]
            known = connection.execute("select from pg_catalog.pg_database where datname = %s", (name,))
            if known.fetchone() is not None:
                raise error from None
            connection.execute(f"create database {_quoted(url)}".encode())
        return True
    return False


def _drop_database(session: Session, one: tree.DropDatabase) -> None:
    for name in one.databases:
        url = session.databases.url_to_make(name)
        if url is None:
            if one.if_exists:
                continue
            raise StatementError(f'The database "{name}" does not exist.', 3701, "Give --database for it.")
        # Under the names of the home database it may go: the next CREATE DATABASE brings it back.
        if session.database.casefold() == name.casefold():
            raise StatementError(f'The database "{name}" is in use.', 3702, "Write USE master before.")
        session.forget(name)
        with _maintenance(url) as connection:
            exists = "if exists " if one.if_exists else ""
            connection.execute(f"drop database {exists}{_quoted(url)}".encode())
        session.databases.remove(name)


def _maintenance(url: str) -> psycopg.Connection[Any]:
    return psycopg.connect(make_conninfo(url, dbname="postgres"), autocommit=True)


def _quoted(url: str) -> str:
    name = str(conninfo_to_dict(url)["dbname"])
    return '"' + name.replace('"', '""') + '"'


def _master_key(session: Session, _: tree.MasterKey) -> None:
    _certificates(session).make_master_key(session)


def _certificate(session: Session, one: tree.Certificate) -> None:
    _certificates(session).create(session, one)


def _backup_certificate(session: Session, one: tree.BackupCertificate) -> None:
    _certificates(session).back_up(session, one)


def _certificates(session: Session) -> Certificates:
    if session.certificates is None:
        raise StatementError("Certificates need files.", hint="Give --key-directory and --path.")
    return session.certificates


ACTIONS: dict[type, Callable[[Session, Any], None]] = {
    tree.Use: _use,
    tree.CreateDatabase: _create_database,
    tree.AlterDatabase: _alter_database,
    tree.DropDatabase: _drop_database,
    tree.MasterKey: _master_key,
    tree.Certificate: _certificate,
    tree.BackupCertificate: _backup_certificate,
}


def _told(error: psycopg.Error) -> StatementError:
    found = _REFUSAL.fullmatch(error.sqlstate or "")
    number = None
    if found is not None:
        number = int(found[2]) + (_FIRST_OF_FIVE_DIGITS if found[1] == "T" else 0)
    message = error.diag.message_primary or str(error).strip()
    told = StatementError(message, number, error.diag.message_hint)
    told.sqlstate = error.sqlstate
    return told
