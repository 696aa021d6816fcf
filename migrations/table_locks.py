"""Locks the broker's tables and views before a revision changes one, without a deadlock with their users."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql
from psycopg.rows import class_row, scalar_row

from pybroker.migrations.errors import MigrationError

if TYPE_CHECKING:
    from collections.abc import Sequence

_PATIENCE_MS = 120_000
# Of an attempt: how long each lock but the first is waited for. Each attempt waits twice as long.
_FIRST_WAIT_MS = 100

# What this transaction made or locked itself needs no lock.
_RELATIONS = """
select nspname as schema, relname as name, relkind = 'v' as is_view,
    (select attname from pg_attribute where attrelid = pg_class.oid and attnum = 1) as first_column
from pg_class join pg_namespace on pg_namespace.oid = relnamespace
where nspname in ('broker', 'broker_private') and relkind in ('r', 'v')
and not exists (
    select from pg_locks
    where locktype = 'relation' and relation = pg_class.oid and mode = 'AccessExclusiveLock'
    and pid = pg_backend_pid() and granted
)
order by is_view desc, name
"""
_HOLDERS = """
select distinct pid from pg_locks
where locktype = 'relation' and relation = to_regclass(%s) and granted
and database = (select oid from pg_database where datname = current_database())
order by pid
"""


@dataclass(frozen=True)
class _Relation:
    schema: str
    name: str
    is_view: bool
    first_column: str

    @property
    def identifier(self) -> sql.Identifier:
        return sql.Identifier(self.schema, self.name)

    def lock(self, driver: psycopg.Connection[Any]) -> None:
        if self.is_view:
            # LOCK TABLE would lock what the view reads too: PostgreSQL's catalog, for one.
            view = sql.SQL("alter view {} alter column {} drop default")
            driver.execute(view.format(self.identifier, sql.Identifier(self.first_column)))
        else:
            driver.execute(sql.SQL("lock table {} in access exclusive mode").format(self.identifier))


def lock_tables(driver: psycopg.Connection[Any]) -> None:
    """Lock every table and view of the broker until the transaction ends.

    Transactions lock these in the order in which they come to them, and that differs. So an attempt that
    misses a lock gives all back, leaves the others as much time as it has taken from them, and the next one
    begins with what was missed, as C++'s ``std::lock`` does.

    The session's ``lock_timeout``, or two minutes, is how long the first lock of an attempt is waited for,
    and when the last attempt begins.

    Raises:
        MigrationError: a table stayed in use; the hint names the sessions that use it.
    """
    with driver.cursor(row_factory=class_row(_Relation)) as cursor:
        relations = cursor.execute(_RELATIONS).fetchall()
    if not relations:
        return
    with driver.cursor(row_factory=scalar_row) as cursor:
        setting = "select setting::bigint from pg_settings where name = 'lock_timeout'"
        own: int = cursor.execute(setting).fetchone() or 0
    # Between attempts it is idle, for as long as one took.
    driver.execute("set local idle_in_transaction_session_timeout = 0")
    patience = own or _PATIENCE_MS
    last_begin = time.monotonic() + patience / 1000
    wait = _FIRST_WAIT_MS
    while (missed := _missed(driver, relations, patience, min(wait, patience))) is not None:
        if missed is relations[0] or time.monotonic() > last_begin:
            raise _in_use(driver, missed)
        relations.remove(missed)
        relations.insert(0, missed)
        wait *= 2
    _set_lock_timeout(driver, own)


def _missed(
    driver: psycopg.Connection[Any], relations: Sequence[_Relation], patience: int, wait: int
) -> _Relation | None:
    """Lock all of them, or none, and return the one that others had."""
    relation = None
    since = time.monotonic()
    try:
        with driver.transaction():
            _set_lock_timeout(driver, patience)
            for relation in relations:
                relation.lock(driver)
                if relation is relations[0]:
                    since = time.monotonic()
                    _set_lock_timeout(driver, wait)
    except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected):
        time.sleep(time.monotonic() - since)
        return relation
    return None


def _set_lock_timeout(driver: psycopg.Connection[Any], milliseconds: int) -> None:
    driver.execute("select set_config('lock_timeout', %s, true)", (str(milliseconds),))


def _in_use(driver: psycopg.Connection[Any], relation: _Relation) -> MigrationError:
    name = relation.identifier.as_string(None)
    with driver.cursor(row_factory=scalar_row) as cursor:
        holders = cursor.execute(_HOLDERS, (name,)).fetchall()
    sessions = ", ".join(map(str, holders)) or "that are over now"
    return MigrationError(
        f"{name} stayed in use; nothing was changed.",
        hint=f"Let the transactions of these sessions end, or end them by pg_terminate_backend: {sessions}."
        " Then run it again.",
    )
