"""Findings of a database: those of `broker.diagnose`, and those that keep it from being asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec
import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import class_row

from pybroker import database_version
from pybroker.operator_session import opened
from pybroker.printable import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime
    from uuid import UUID

Level = Literal["error", "warning", "information"]
LEVELS: tuple[Level, ...] = ("error", "warning", "information")
# What nobody but the operator knows, as it decides who gets a right or a message.
_GAPS = ("HOST:PORT", "'PEM'", "'QUEUE'", "'ROLE'", "'USER'")
_NOT_INSTALLED = (
    psycopg.errors.UndefinedFunction,
    psycopg.errors.InvalidSchemaName,
    psycopg.errors.UndefinedTable,
)


class Mend(msgspec.Struct, frozen=True):
    """What to run against a finding.

    Attributes:
        database: where.
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
    """What is wrong, why it matters, and what mends it; numbers as in docs/diagnose.md."""

    number: int
    level: Level
    object: str
    problem: str
    why: str
    since: datetime | None = None
    mend: tuple[Mend, ...] = ()

    @property
    def gravity(self) -> tuple[int, int]:
        """Sort by this: errors first, then by number."""
        return LEVELS.index(self.level), self.number


def of_far_side(finding: Finding) -> Finding:
    """Return the finding of a database that was asked as the far one."""
    mend = tuple(msgspec.structs.replace(one, is_far=True) for one in finding.mend)
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
            row.number,
            row.level,
            row.object,
            row.problem,
            row.why,
            row.since,
            () if row.mend is None else (Mend(database, row.mend_role, row.mend, row.is_destructive),),
        )
        for row in rows
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
    command = f"pybroker migrate --database-url postgresql:///{database}"
    return Mend(database, owner and owner[0], command, is_destructive=False)


def shown(findings: Iterable[Finding], *, level: Level, ignored: set[int]) -> list[Finding]:
    """Leave out what nobody asked for, and put the gravest first."""
    wanted = LEVELS[: LEVELS.index(level) + 1]
    return sorted(
        (one for one in findings if one.level in wanted and one.number not in ignored),
        key=lambda one: one.gravity,
    )
