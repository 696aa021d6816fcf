"""The tables and principals that the databases of scripts have before any of them runs."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING

import psycopg

from pybroker.tsql import catalog
from pybroker.tsql.expressions import types
from pybroker.tsql.expressions.system import BOOLEAN
from pybroker.tsql.expressions.types import Family, Type

if TYPE_CHECKING:
    from pybroker.tsql.databases import Databases
    from pybroker.tsql.expressions.scope import Columns

_QUERY = """
    select n.nspname, c.relname, a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod),
      a.attidentity <> '' or a.attgenerated <> '',
      exists (
        select from pg_catalog.pg_constraint k
        where k.conrelid = c.oid and k.conkey = array[a.attnum] and k.contype = 'c'
          and pg_catalog.pg_get_constraintdef(k.oid) like '%= ANY (ARRAY[0, 1])%'
      )
    from pg_catalog.pg_class c
    join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    join pg_catalog.pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
    where c.relkind in ('r', 'v', 'm', 'p', 'f')
      and n.nspname not in ('pg_catalog', 'information_schema', 'broker', 'broker_private')
      and n.nspname not like 'pg\\_t%'
    order by c.oid, a.attnum
"""
_FIXED = {
    "bigint": types.BIGINT,
    "boolean": BOOLEAN,
    "bytea": types.BINARY,
    "character varying": types.TEXT,
    "date": types.DATE,
    "double precision": types.FLOAT,
    "integer": types.INTEGER,
    "name": types.TEXT,
    "numeric": types.DECIMAL,
    "real": Type("real", Family.FLOAT),
    "smallint": Type("smallint", Family.INTEGER),
    "text": types.TEXT,
    "time without time zone": types.TIME,
    "timestamp with time zone": types.OFFSET,
    "timestamp without time zone": types.DATETIME2,
    "timestamp(3) without time zone": types.DATETIME,
    "uuid": types.UUID,
    "xml": types.XML,
}
_LONG = re.compile(
    r"character varying\((?P<text>\d+)\)|character\((?P<padded>\d+)\)"
    r"|numeric\((?P<digits>\d+),(?P<scale>\d+)\)"
)


class FoundTables:
    """Reads a database's tables, and its principals, once: when a script first names one of others."""

    def __init__(self, databases: Databases) -> None:
        self._databases = databases
        self._tables: dict[str, dict[tuple[str, str], Columns]] = {}
        self._principals: dict[str, list[str]] = {}

    def columns(self, database: str, schema: str, name: str) -> Columns | None:
        """Return a table's columns; None where there is none, or where the database can't be reached."""
        key = database.casefold()
        if key not in self._tables:
            self._tables[key] = {}
            url = self._databases.url(database)
            # What can't be reached is told of when it is used.
            with suppress(psycopg.Error):
                self._tables[key] = {} if url is None else _read(url)
        return self._tables[key].get((schema.casefold(), name.casefold()))

    def principal(self, database: str, name: str) -> str:
        """Return the principal of this name in any case; the name itself where it is none, or several."""
        key = database.casefold()
        if key not in self._principals:
            self._principals[key] = []
            url = self._databases.url(database)
            with suppress(psycopg.Error):
                self._principals[key] = [] if url is None else _read_principals(url)
        same = [one for one in self._principals[key] if one.casefold() == name.casefold()]
        return name if name in same or len(same) != 1 else same[0]


def _read_principals(url: str) -> list[str]:
    query = f"select p.name from {catalog.relation('database_principals')} p"  # noqa: S608 - a text of ours
    with psycopg.connect(url, application_name="pybroker tsql") as connection:
        return [str(name) for (name,) in connection.execute(query.encode())]


def _read(url: str) -> dict[tuple[str, str], Columns]:
    found: dict[tuple[str, str], dict[str, Type]] = {}
    with psycopg.connect(url, application_name="pybroker tsql") as connection:
        for schema, table, column, written, is_made, is_bit in connection.execute(_QUERY.encode()):
            type_ = types.BIT if is_bit and written == "smallint" else _type(written)
            columns = found.setdefault((schema, table), {})
            columns[column] = types.made(type_) if is_made else type_
    return dict(found)


def _type(written: str) -> Type:
    long = _LONG.fullmatch(written)
    if long is None:
        return _FIXED.get(written, types.UNKNOWN)
    if long["digits"]:
        return types.decimal(int(long["digits"]), int(long["scale"]))
    length = int(long["text"] or long["padded"])
    return Type(f"varchar({length})", Family.TEXT, length, padded=bool(long["padded"]))
