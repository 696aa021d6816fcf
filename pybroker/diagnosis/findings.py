"""Findings of a database: those of `broker.diagnose`, and those that keep it from being asked."""

from __future__ import annotations

import shlex
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import class_row

from pybroker import database_version
from pybroker.diagnosis.catalogue import KINDS
from pybroker.operator_session import opened
from pybroker.printable import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime
    from uuid import UUID

Level = Literal["error", "warning", "information"]
LEVELS: tuple[Level, ...] = ("error", "warning", "information")
# What nobody but the operator knows, as it decides who gets a right or a message.
_GAPS = ("HOST:PORT", "'NAME'", "'PEM'", "'QUEUE'", "'ROLE'", "'USER'")
# What of a connection string leads to a database; a password is not printed.
_WAY = ("host", "port", "dbname", "user", "sslmode", "sslrootcert", "sslcert", "sslkey")
# The first number of what concerns less than a database.
_OF_QUEUES = 200
_NO_WORKER, _SILENT = 103, 305
_NOT_INSTALLED = (
    psycopg.errors.UndefinedFunction,
    psycopg.errors.InvalidSchemaName,
    psycopg.errors.UndefinedTable,
)


class Mend(msgspec.Struct, frozen=True):
    """What to run against a finding.

    Attributes:
        database: where; "" if nobody knows its name.
        role: who may run it; None if anybody may, or if nobody knows.
        statement: SQL, or a command that begins with `pybroker`.
        is_destructive: whether it loses messages or ends conversations.
        is_far: whether that is the database of `--far-database-url`; both may have one name.
    """

    database: str
    role: str | None
    statement: str
    is_destructive: bool
    is_far: bool = False

    @property
    def is_sql(self) -> bool:
        """Whether it can be run in the database as it is: it is no command and lacks nothing."""
        has_gap = any(gap in self.statement for gap in _GAPS)
        return not self.statement.startswith(("pybroker ", "pip ")) and not has_gap


class Finding(msgspec.Struct, frozen=True):
    """What is wrong, why it matters, and what mends it; numbers as in docs/diagnose.md.

    More than one mend is a choice that nobody but the operator can make.
    """

    number: int
    level: Level
    object: str
    problem: str
    why: str
    since: datetime | None = None
    mend: tuple[Mend, ...] = ()

    @property
    def gravity(self) -> tuple[int, bool]:
        """Sort by this: errors first, of these what concerns a whole database; the rest is in order."""
        return LEVELS.index(self.level), self.number >= _OF_QUEUES


def of_far_side(finding: Finding) -> Finding:
    """Return the finding of a database that was asked as the far one: what is far from there is here."""
    mend = tuple(msgspec.structs.replace(one, is_far=not one.is_far) for one in finding.mend)
    return msgspec.structs.replace(finding, mend=mend)


class _Row(msgspec.Struct):
    number: int
    level: Level
    object: str
    problem: str
    why: str
    since: datetime | None
    mend: str | None
    mend_role: str | None
    is_destructive: bool


def unreachable(name: str, reason: str) -> Finding:
    """Say that no session can be had."""
    return Finding(
        1,
        "error",
        name,
        f"The database can't be reached: {reason}",
        "Nothing can be told of it, and no program can use it.",
    )


def connect(url: str) -> psycopg.Connection[Any] | Finding:
    """Connect, or say why that is impossible."""
    try:
        return opened(url, "pybroker diagnose", connect_timeout=5)
    except psycopg.OperationalError as error:
        return unreachable(_database_of(url), one_line(error))


def _database_of(url: str) -> str:
    given = conninfo_to_dict(url)
    return str(given.get("dbname") or given.get("user") or "?")


def findings_of(connection: psycopg.Connection[Any], handle: UUID | None = None) -> list[Finding]:
    """Ask one database; the gravest come first."""
    database = connection.info.dbname
    found = connection.execute(database_version.COMMENT.encode()).fetchone()
    wanted = database_version.newer(found and found[0])
    newer = [] if wanted is None else [_newer(database, wanted)]
    try:
        with connection.cursor(row_factory=class_row(_Row)) as cursor:
            cursor.execute(
                "select number, level, object, problem, why, since, mend, mend_role, is_destructive"
                " from broker.diagnose(%s)",
                (handle,),
            )
            rows = cursor.fetchall()
        emptied = connection.execute("select from broker.databases").rowcount == 0
    except _NOT_INSTALLED:
        return newer or [_not_installed(connection)]
    if emptied:
        return [*newer, _emptied(connection)]
    return newer + [
        Finding(
            first.number,
            first.level,
            first.object,
            first.problem,
            first.why,
            first.since,
            tuple(_mend(connection, row) for row in (first, *others) if row.mend is not None),
        )
        for _, (first, *others) in groupby(rows, lambda row: (row.number, row.object, row.problem))
    ]


def _mend(connection: psycopg.Connection[Any], row: _Row) -> Mend:
    is_far = KINDS[row.number].is_far
    statement = str(row.mend)
    # What SQL quotes may come from a stranger, this text too.
    if statement.startswith("pybroker "):
        statement = statement.replace("--database-url URL", f"--database-url {connecting(connection)}")
    return Mend(
        "" if is_far else connection.info.dbname, row.mend_role, statement, row.is_destructive, is_far
    )


def connecting(connection: psycopg.Connection[Any]) -> str:
    """Return what leads to the connection's database, for a shell; a password is not in it."""
    given = conninfo_to_dict(connection.info.dsn)
    return shlex.quote(make_conninfo("", **{key: given[key] for key in _WAY if key in given}))


def far_worker_missing(
    connection: psycopg.Connection[Any], near: Iterable[Finding], far: Iterable[Finding]
) -> list[Finding]:
    """Name the cause, where nobody answers at the address because the far database has no worker."""
    if all(one.number != _SILENT for one in near) or any(one.number == _NO_WORKER for one in far):
        return []
    row = connection.execute(
        "select pg_catalog.pg_get_userbyid(d.datdba) from pg_catalog.pg_database d"
        " where d.datname = pg_catalog.current_database() and not pg_catalog.pg_is_in_recovery()"
        " and not exists (select from pg_catalog.pg_stat_activity a"
        " where a.datname = d.datname and a.application_name = 'pybroker worker')"
    ).fetchone()
    if row is None:
        return []
    database = connection.info.dbname
    return [
        Finding(
            _NO_WORKER,
            "error",
            database,
            "No worker serves this database.",
            "It answers at the address that messages wait for.",
            mend=(
                Mend(
                    database,
                    row[0],
                    f"pybroker worker --database-url {connecting(connection)}",
                    is_destructive=False,
                ),
            ),
        )
    ]


def not_installed(connection: psycopg.Connection[Any]) -> list[Finding]:
    """Say that the database lacks what this version asks it for; nothing, if it has that."""
    found = connection.execute("select pg_catalog.to_regclass('broker.trace') is not null").fetchone()
    return [] if found is not None and found[0] else [_not_installed(connection)]


def _newer(database: str, wanted: str) -> Finding:
    return Finding(
        3,
        "error",
        database,
        "The database is newer than this program.",
        database_version.advice(wanted),
        mend=(Mend(database, None, f"pip install 'pybroker>={wanted}'", is_destructive=False),),
    )


def _emptied(connection: psycopg.Connection[Any]) -> Finding:
    return Finding(
        5,
        "error",
        connection.info.dbname,
        "The database has the tables of pybroker and none of their rows.",
        "pg_dump --schema-only leaves it so. Nothing can be sent, received or created.",
        mend=(_migrate(connection),),
    )


def _not_installed(connection: psycopg.Connection[Any]) -> Finding:
    database = connection.info.dbname
    found = connection.execute(
        "select pg_catalog.to_regclass('broker_private.applied_sql') is not null"
    ).fetchone()
    is_older = found is not None and found[0]
    return Finding(
        4 if is_older else 2,
        "error",
        database,
        "The pybroker of this database is older than this program."
        if is_older
        else "pybroker is not installed in this database.",
        "It has no broker.diagnose.",
        mend=(_migrate(connection),),
    )


def _migrate(connection: psycopg.Connection[Any]) -> Mend:
    database = connection.info.dbname
    owner = connection.execute(
        "select pg_catalog.pg_get_userbyid(datdba) from pg_catalog.pg_database"
        " where datname = pg_catalog.current_database()"
    ).fetchone()
    command = f"pybroker migrate --database-url {connecting(connection)}"
    return Mend(database, owner and owner[0], command, is_destructive=False)


def shown(findings: Iterable[Finding], *, level: Level, ignored: set[int]) -> list[Finding]:
    """Leave out what nobody asked for, and put the gravest first."""
    wanted = LEVELS[: LEVELS.index(level) + 1]
    return sorted(
        (one for one in findings if one.level in wanted and one.number not in ignored),
        key=lambda one: one.gravity,
    )
