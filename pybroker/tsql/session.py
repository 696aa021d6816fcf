"""Runs the steps of scripts in their databases, and shows what sqlcmd would show."""

from __future__ import annotations

import json
import re
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Protocol

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus

from pybroker.tsql import showing
from pybroker.tsql.administration import tree
from pybroker.tsql.databases import HOME_NAMES
from pybroker.tsql.numbers import number_of
from pybroker.tsql.steps import Shown
from pybroker.tsql.translation import identifier

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from psycopg.errors import Diagnostic

    from pybroker.tsql.certificates import Certificates
    from pybroker.tsql.conditions import Condition
    from pybroker.tsql.databases import Databases
    from pybroker.tsql.execution import Execution, OpenCursor
    from pybroker.tsql.steps import Step

# What RAISE has; PostgreSQL's own notices, as "relation exists, skipping", are not shown.
_RAISED, _RAISE = "00000", "exec_stmt_raise"
# The detail of what THROW and RAISERROR raise in procedures.
_RAISED_AS = re.compile(r"Msg (\d{1,9}), Level (\d{1,3}), State (\d{1,3})")
# A notice that holds a result set of a procedure.
_RESULT_SET = "01R01"
_BINARY = re.compile(r"0x(?:[0-9a-fA-F]{2})*")
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
        severity: SQL Server's level.
        state: what RAISERROR and THROW have said.
        step: the statement.
    """

    def __init__(
        self,
        message: str,
        number: int | None = None,
        hint: str | None = None,
        *,
        severity: int = 16,
        state: int = 1,
    ) -> None:
        super().__init__(message)
        self.number = number
        self.sqlstate: str | None = None
        self.hint = hint
        self.severity = severity
        self.state = state
        self.step: Step | None = None


@dataclass(frozen=True, slots=True)
class Rows:
    """What a query gave.

    Attributes:
        names: of its columns; None where it has no rows.
        rows: of the query.
        count: of the rows that it returned or changed.
    """

    names: tuple[str, ...] | None
    rows: Sequence[Sequence[Any]]
    count: int


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
        # What BEGIN TRANSACTION, SAVE TRANSACTION and SET XACT_ABORT have said.
        self.transactions = 0
        self.aborts_on_error = False
        self.is_doomed = False
        # What SCOPE_IDENTITY() is.
        self.identity: int | None = None
        self._savepoints: list[str] = []
        self.cursors: dict[str, OpenCursor] = {}
        # The rows that INSERT … EXEC takes, while it runs.
        self._taken: list[Sequence[Any]] | None = None

    def run(self, step: Step) -> int:
        """Take one step; return how many rows it had to do with.

        Raises:
            StatementError: the database refused it, or can't be reached.
        """
        try:
            if step.sql is not None:
                return self._execute(step)
            if step.statement is not None and (action := ACTIONS.get(type(step.statement))):
                action(self, step.statement)
        except psycopg.Error as error:
            raise self.told(error) from None
        return 0

    def told(self, error: psycopg.Error) -> StatementError:
        """Return what is said of a database's error."""
        number = number_of(error.sqlstate)
        message = error.diag.message_primary or str(error).strip()
        told = StatementError(message, number, error.diag.message_hint)
        told.sqlstate = error.sqlstate
        if found := _RAISED_AS.fullmatch(error.diag.message_detail or ""):
            told.number, told.severity, told.state = (int(one) for one in found.groups())
        return told

    @property
    def is_usable(self) -> bool:
        """Whether the connection that a batch uses still stands."""
        known = self._connections.get(_same(self.databases.url(self.database) or ""))
        return known is not None and not known.closed and not known.broken

    def query(self, sql: str, parameters: Mapping[str, Any], *, at_home: bool = False) -> Rows:
        """Run a query; one that fails in a transaction undoes no more than itself.

        Raises:
            StatementError: the database refused it, or can't be reached.
        """
        try:
            connection = self._ready(sql, at_home=at_home)
            with self._guarded(connection):
                cursor = connection.execute(sql.encode(), parameters)
                if cursor.description is None:
                    return Rows(None, (), max(cursor.rowcount, 0))
                names = tuple(column.name for column in cursor.description)
                return Rows(names, cursor.fetchall(), cursor.rowcount)
        except psycopg.Error as error:
            raise self.told(error) from None

    def _guarded(self, connection: psycopg.Connection[Any]) -> AbstractContextManager[Any]:
        is_open = connection.info.transaction_status == TransactionStatus.INTRANS
        return connection.transaction() if is_open else nullcontext()

    def begin(self) -> None:
        """Begin a transaction, or count one that is in another."""
        if not self.transactions:
            self._command("savepoint script_transaction" if self._is_single else "begin")
        self.transactions += 1

    def commit_one(self) -> None:
        """Commit, or count down.

        Raises:
            StatementError: no transaction was begun, or it can't be committed.
        """
        if not self.transactions:
            raise StatementError(
                "The COMMIT TRANSACTION request has no corresponding BEGIN TRANSACTION.", 3902
            )
        if self.is_doomed:
            raise StatementError("The current transaction cannot be committed: ROLLBACK it.", 3930)
        if self.transactions > 1:
            self.transactions -= 1
            return
        self._ended()
        self._command("release savepoint script_transaction" if self._is_single else "commit")

    def save(self, name: str) -> None:
        """Make a savepoint.

        Raises:
            StatementError: no transaction was begun.
        """
        if not self.transactions:
            raise StatementError("Cannot issue SAVE TRANSACTION when there is no active transaction.", 628)
        self._command(f"savepoint {identifier(name)}")
        self._savepoints.append(name.casefold())

    def rollback(self, name: str | None = None) -> None:
        """Undo to a savepoint, or all.

        Raises:
            StatementError: no transaction was begun.
        """
        if not self.transactions:
            raise StatementError(
                "The ROLLBACK TRANSACTION request has no corresponding BEGIN TRANSACTION.", 3903
            )
        if name is not None and name.casefold() in self._savepoints and not self.is_doomed:
            self._command(f"rollback to savepoint {identifier(name)}")
            return
        self._ended()
        self._command(
            "rollback to savepoint script_transaction; release savepoint script_transaction"
            if self._is_single
            else "rollback"
        )

    def _ended(self) -> None:
        self.transactions, self.is_doomed = 0, False
        self._savepoints.clear()

    def _command(self, sql: str) -> None:
        try:
            self.connection(self.database).execute(sql.encode())
        except psycopg.Error as error:
            raise self.told(error) from None

    def make_table(self, sql: str) -> None:
        """Make the table of a table variable."""
        self._command(sql)

    def make_tables(self, tables: Mapping[str, str]) -> None:
        """Make those tables of table variables again that a rollback took away."""
        for name, sql in tables.items():
            found = self.query("select pg_catalog.to_regclass(%(name)s)", {"name": name})
            if found.rows[0][0] is None:
                self._command(sql)

    def call(self, execution: Execution, sql: str, outputs: Sequence[tuple[str | None, str]]) -> None:
        """Call a procedure, show its result sets, and give variables what it gave."""
        found = execution.query(sql)
        if found.names is None or not found.rows:
            return
        columns = dict(zip((name.casefold() for name in found.names), found.rows[0], strict=True))
        for number, (label, variable) in enumerate(outputs):
            is_known = label is not None and label.casefold() in columns
            value = columns[label.casefold()] if label and is_known else found.rows[0][number]
            execution.values[variable] = value

    def drop_tables(self, names: Iterable[str]) -> None:
        """Drop the tables of a batch's table variables, as far as they are there."""
        listed = ", ".join(names)
        if listed and self.is_usable:
            connection = self.connection(self.database)
            if connection.info.transaction_status != TransactionStatus.INERROR:
                connection.execute(f"drop table if exists {listed}".encode())

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
            url, application_name="pybroker tsql", autocommit=True
        )
        made.add_notice_handler(self._notice)
        # A schema that is not there yet may be in the path.
        made.execute(
            "select pg_catalog.set_config("
            "'search_path', pg_catalog.current_setting('search_path') || ', dbo', false)"
        )
        if self._is_single:
            made.execute("begin")
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
            raise self.told(error) from None

    def close(self) -> None:
        """Close all connections; what is not committed is undone."""
        for one in self._connections.values():
            with suppress(psycopg.Error):
                one.close()

    def answer(self, condition: Condition) -> bool:
        """Return what a database says to a question.

        Raises:
            StatementError: the database refused it, or can't be reached.
        """
        try:
            connection = self._ready(condition.sql, at_home=condition.at_home)
            with self._guarded(connection):
                row = connection.execute(condition.sql.encode()).fetchone()
        except psycopg.Error as error:
            raise self.told(error) from None
        return row is not None and row[0] is True

    def _ready(self, sql: str, *, at_home: bool) -> psycopg.Connection[Any]:
        """Return the connection for a query, which knows the other databases if it asks for them."""
        connection = self.connection("master" if at_home else self.database)
        if _READS_DATABASES in sql:
            connection.execute(
                "select pg_catalog.set_config('pybroker_tsql.databases', %s, false)", (self._described(),)
            )
        return connection

    def _execute(self, step: Step) -> int:
        sql = step.sql or ""
        connection = self._ready(sql, at_home=step.at_home)
        count = 0
        with self._guarded(connection), connection.cursor() as cursor:
            cursor.execute(sql.encode())
            more: bool | None = True
            while more:
                count = max(cursor.rowcount, 0)
                self._show(cursor, step.shown)
                more = cursor.nextset()
        return count

    def show_rows(self, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Show a result set, or keep it for INSERT … EXEC."""
        if self._taken is not None:
            self._taken += rows
            return
        self._lines(showing.table(names, rows))

    def all_or_nothing(self, act: Callable[[], None]) -> None:
        """Do something in a transaction; where it fails, undo it alone."""
        name = "insert_execute"
        is_open = bool(self.transactions)
        if is_open:
            self.save(name)
        else:
            self.begin()
        try:
            act()
        except StatementError:
            if self.transactions:
                self.rollback(name if is_open else None)
            raise
        if not is_open:
            self.commit_one()

    def rows_of(self, act: Callable[[], None]) -> list[Sequence[Any]]:
        """Do something; return the rows that it would show.

        Raises:
            StatementError: another INSERT … EXEC is under way.
        """
        if self._taken is not None:
            raise StatementError("An INSERT EXEC statement cannot be nested.", 8164)
        self._taken = []
        try:
            act()
            return self._taken
        finally:
            self._taken = None

    def show_text(self, text: str) -> None:
        """Show what PRINT says."""
        self.console.show(showing.text(text))

    def show_count(self, count: int) -> None:
        """Show how many rows a statement changed."""
        self._lines(showing.counted(count))

    def _show(self, cursor: psycopg.Cursor[Any], shown: Shown) -> None:
        if shown is Shown.NOTHING:
            return
        if cursor.description is None:
            if shown is Shown.COUNT and cursor.rowcount >= 0:
                self._lines(showing.counted(cursor.rowcount))
            return
        if shown is Shown.ROWS:
            names = [column.name for column in cursor.description]
            self.show_rows(names, cursor.fetchall())

    def _lines(self, lines: Any) -> None:
        for line in lines:
            self.console.show(line)

    def _notice(self, notice: Diagnostic) -> None:
        if notice.sqlstate == _RESULT_SET:
            self.show_rows(*_result_set(notice.message_primary or ""))
        elif notice.sqlstate == _RAISED and notice.source_function == _RAISE:
            self.console.show(showing.text(notice.message_primary or ""))
        elif notice.severity_nonlocalized == "WARNING":
            self.console.note(f"warning: {showing.text(notice.message_primary or '')}")

    def _described(self) -> str:
        """Return the databases that were named, for sys.databases."""
        rows = []
        others = [name for name in self.databases.names if name.casefold() not in HOME_NAMES]
        numbered = {name: number for number, name in zip((1, 4), HOME_NAMES, strict=True)}
        for name in (*HOME_NAMES, *others):
            # Neither one that is not there yet, nor one without a broker or with the tables of one alone.
            with suppress(psycopg.Error), psycopg.connect(self.databases.url(name) or "") as connection:
                row = connection.execute(
                    "select service_broker_guid, is_broker_enabled, is_broker_priority_honored, d.oid::bigint"
                    " from broker.databases, pg_catalog.pg_database d"
                    " where d.datname = pg_catalog.current_database()"
                ).fetchone()
                if row is None:
                    continue
                guid, enabled, honored, oid = row
                rows.append(
                    {
                        "name": name,
                        # What DB_ID() and the views of queues say.
                        "database_id": numbered.get(name, oid),
                        "service_broker_guid": str(guid),
                        "is_broker_enabled": enabled,
                        "is_broker_priority_honored": honored,
                    }
                )
        return json.dumps(rows)


def _same(url: str) -> str:
    """Return a form that is the same for all URLs of a database."""
    return json.dumps(conninfo_to_dict(url), sort_keys=True)


def _result_set(written: str) -> tuple[Sequence[str], list[Sequence[Any]]]:
    """Return the names and the rows of a result set that a procedure has told of."""
    found = json.loads(written, parse_float=Decimal)
    rows = found["rows"]
    names = found["names"]
    if names is None:
        names = list(rows[0]) if rows else []
        rows = [list(row.values()) for row in rows]
    return names, [[_readable(value) for value in row] for row in rows]


def _readable(value: Any) -> Any:
    is_binary = isinstance(value, str) and _BINARY.fullmatch(value)
    return bytes.fromhex(value[2:]) if is_binary else value


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
            force = _force(connection, str(conninfo_to_dict(url)["dbname"]))
            connection.execute(f"drop database {exists}{_quoted(url)}{force}".encode())
        session.databases.remove(name)


def _force(connection: psycopg.Connection[Any], name: str) -> str:
    """Return what ends a worker's sessions: in SQL Server it is a part of the server, and no user."""
    found = connection.execute(
        """
        select coalesce(pg_catalog.bool_and(a.application_name ~ '^pybroker worker(: wake-ups)?$'), false)
        from pg_catalog.pg_stat_activity a
        where a.datname = %s and a.backend_type = 'client backend'
        """,
        (name,),
    )
    are_workers = found.fetchone()
    return " with (force)" if are_workers and are_workers[0] else ""


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
