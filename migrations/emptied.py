"""An installation without rows, as ``pg_dump --schema-only`` leaves it: it is removed, and made anew."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, LiteralString

import psycopg
from psycopg import sql

from pybroker.migrations.errors import MigrationError

if TYPE_CHECKING:
    from collections.abc import Iterator

WARNING = (
    "This database had the tables of pybroker and none of their rows, as pg_dump --schema-only leaves it."
    " All was made anew. Revoke again what you had revoked from PUBLIC in schema broker."
)
_TABLES: LiteralString = """
select c.oid::regclass::text, n.nspname, c.relname
from pg_catalog.pg_class c
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where n.nspname = 'broker_private' and c.relkind = 'r'
order by c.relname
"""
# As broker.create_queue makes them. Without a row in broker_private.queues they are nobody's.
_QUEUE_VIEWS: LiteralString = """
select distinct n.nspname, c.relname
from pg_catalog.pg_depend d
join pg_catalog.pg_rewrite r on r.oid = d.objid
join pg_catalog.pg_class c on c.oid = r.ev_class
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where d.classid = 'pg_catalog.pg_rewrite'::regclass
  and d.refobjid = pg_catalog.to_regclass('broker.queue_messages')
  and n.nspname not in ('broker', 'broker_private')
  and pg_catalog.pg_get_viewdef(c.oid)
    ~ 'FROM broker\\.queue_messages\\s+WHERE \\((queue_messages\\.)?queue_id = \\d+\\);$'
"""
# What hangs on a table, as a rule or a trigger, has no schema: its address begins with the table's.
_FOREIGN: LiteralString = """
with ours (class, object) as (
  select 'pg_catalog.pg_namespace'::regclass, n.oid
  from pg_catalog.pg_namespace n
  where n.nspname in ('broker', 'broker_private')
), held (class, object) as (
  select o.class, o.object from ours o
  union all
  select 'pg_catalog.pg_class'::regclass, c.oid
  from pg_catalog.pg_class c join ours o on o.object = c.relnamespace
  union all
  select 'pg_catalog.pg_proc'::regclass, p.oid
  from pg_catalog.pg_proc p join ours o on o.object = p.pronamespace
  union all
  select 'pg_catalog.pg_type'::regclass, t.oid
  from pg_catalog.pg_type t join ours o on o.object = t.typnamespace
)
select distinct i.type || ' ' || i.identity
from held h
join pg_catalog.pg_depend d on d.refclassid = h.class and d.refobjid = h.object and d.deptype = 'n'
cross join lateral pg_catalog.pg_identify_object(d.classid, d.objid, d.objsubid) i
cross join lateral pg_catalog.pg_identify_object_as_address(d.classid, d.objid, d.objsubid) a
where coalesce(i.schema, a.object_names[1]) not in ('broker', 'broker_private')
order by 1
limit 10
"""


def remove(driver: psycopg.Connection[Any]) -> bool:
    """Remove an installation that has no rows; tell whether there was one.

    Migrations write the first rows of every installation, so without them it serves nobody, and it holds
    nothing that could be lost.

    Raises:
        MigrationError: some of its tables hold rows, or something of the application's depends on it.
    """
    found = driver.execute("select pg_catalog.to_regclass('broker_private.alembic_version')").fetchone()
    if found is None or found[0] is None:
        return False
    filled = list(_filled(driver))
    if filled:
        raise MigrationError(
            "This database's pybroker lacks the rows that migrations write, and holds others:"
            f" {', '.join(filled[:5])}.",
            hint="Restore the schemas broker and broker_private from a whole dump. Nothing was changed.",
        )
    try:
        for schema, view in driver.execute(_QUEUE_VIEWS).fetchall():
            driver.execute(sql.SQL("drop view {}").format(sql.Identifier(schema, view)))
    except psycopg.errors.DependentObjectsStillExist as error:
        raise _depended_on(error.diag.message_detail or str(error)) from error
    foreign = [name for (name,) in driver.execute(_FOREIGN).fetchall()]
    if foreign:
        raise _depended_on(", ".join(foreign))
    driver.execute("drop schema broker, broker_private cascade")
    return True


def _filled(driver: psycopg.Connection[Any]) -> Iterator[str]:
    for shown, schema, table in driver.execute(_TABLES).fetchall():
        holds = sql.SQL("select from {} limit 1").format(sql.Identifier(schema, table))
        if driver.execute(holds).rowcount:
            yield shown


def _depended_on(what: str) -> MigrationError:
    return MigrationError(
        "This database has the tables of pybroker and none of their rows, as pg_dump --schema-only leaves it,"
        f" and they can't be made anew, because of what depends on them: {' '.join(what.split())}.",
        hint="Drop that, run pybroker migrate, and create it again. Nothing was changed.",
    )
