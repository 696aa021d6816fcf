"""What a person looks at between definitions: PRINT, and rows of a catalog view."""

from __future__ import annotations

import re

from pybroker.tsql import catalog, conditions
from pybroker.tsql.source import Batch, ScriptError, position_of
from pybroker.tsql.translation import literal

# What may follow without a semicolon; anything else would go on with the query.
_NEXT = (
    "ALTER|BACKUP|CLOSE|CREATE|DENY|DROP|ELSE|END|EXEC|EXECUTE|GRANT|IF|OPEN|PRINT|RECONFIGURE|REVOKE"
    "|SELECT|SET|USE"
)
# What goes on with a query can't be its alias.
_CLAUSES = "EXCEPT|FOR|GROUP|HAVING|INTERSECT|JOIN|OPTION|ORDER|UNION|WHERE|WITH"
_ITEM = r"(?:\w++\.)?(?:\*|\[\w++\]|\w++)(?:\s++AS\s++(?:\[\w++\]|\w++))?+"
_COUNT = r"COUNT\s*+\(\s*+\*\s*+\)(?:\s++AS\s++(?:\[\w++\]|\w++))?+"
_QUERY = re.compile(
    rf"""SELECT\s++(?:TOP\s*+(?:\(\s*+(?P<top>\d{{1,9}})\s*+\)|(?P<plain_top>\d{{1,9}}))\s++)?+
    (?P<items>{_COUNT}|(?!(?:FROM|TOP|DISTINCT|ALL)\b){_ITEM}(?:\s*+,\s*+{_ITEM}){{0,99}}+)\s++
    FROM\s++{conditions.SOURCE}
    (?:\s++(?:AS\s++)?(?!(?:{_CLAUSES}|{_NEXT})\b)(?P<alias>\w++))?+
    (?P<hint>\s*+(?:WITH\s*+)?\(\s*+NOLOCK\s*+\))?+
    (?:\s++WHERE\s++{conditions.PREDICATES})?+
    (?:\s++ORDER\s++BY\s++(?P<order>{_ITEM}(?:\s++(?:ASC|DESC))?+(?:\s*+,\s*+{_ITEM}(?:\s++(?:ASC|DESC))?+){{0,9}}+))?+""",
    re.IGNORECASE | re.VERBOSE,
)
_PRINT = re.compile(rf"PRINT\s*+\(?\s*+(?P<text>{conditions.TEXT})\s*+\)?+", re.IGNORECASE)
_END = re.compile(rf"(?:\s|--[^\n]*(?:\n|\Z))*+(?:;|\Z|(?:{_NEXT})\b)", re.IGNORECASE)
_ONE_ITEM = re.compile(
    r"(?P<owner>\w+\.)?(?:(?P<star>\*)|\[?(?P<column>\w+)\]?)(?:\s+AS\s+\[?(?P<name>\w+)\]?)?"
    r"(?:\s+(?P<way>ASC|DESC))?",
    re.IGNORECASE,
)
_NAME = re.compile(r"AS\s+\[?(\w+)\]?\Z", re.IGNORECASE)


def read_query(batch: Batch, at: int) -> tuple[str, bool, bool, int]:
    """Return a query's PostgreSQL form, whether it is of the home database, has a hint, and its end.

    Raises:
        ScriptError: it is more than columns of one view with simple conditions.
    """
    found = _QUERY.match(batch.text, at)
    if found is None or not _END.match(batch.text, found.end()):
        raise ScriptError(
            position_of(batch, at),
            "SELECT is understood with columns FROM one view of sys, WHERE column = 'text',"
            " and ORDER BY alone",
        )
    source = conditions.source(batch, found)
    top = found["top"] or found["plain_top"]
    given = {
        one["name"].casefold(): f'"{one["name"]}"'
        for one in _ONE_ITEM.finditer(found["items"])
        if one["name"]
    }
    order = ", ".join(_ordered(one, given) for one in _ONE_ITEM.finditer(found["order"] or ""))
    where = conditions.where(found, source)
    sql = (
        f"select {_items(found['items'])} from {catalog.relation(source.view)} v{where}"  # noqa: S608 - names and literals
        + (f" order by {order}" if order else "")
        + (f" limit {int(top)}" if top else "")
        + ";"
    )
    return sql, source.at_home, found["hint"] is not None, found.end()


def read_print(batch: Batch, at: int) -> tuple[str, int]:
    """Return PRINT's PostgreSQL form, and its end.

    Raises:
        ScriptError: it prints more than a text.
    """
    found = _PRINT.match(batch.text, at)
    if found is None or not _END.match(batch.text, found.end()):
        raise ScriptError(position_of(batch, at), "PRINT is understood with a text in quotes alone")
    text = conditions.unquoted(found["text"])
    tag = "$print$"
    while tag in text:
        tag = f"$print{len(tag)}{tag[6:]}"
    return f"do {tag}begin raise notice '%', {literal(text)}; end{tag};", found.end()


def _items(written: str) -> str:
    if written.upper().startswith("COUNT"):
        name = _NAME.search(written)
        return f'count(*) as "{name[1] if name else ""}"' if name else "count(*)"
    return ", ".join(
        "v.*" if one["star"] else f"v.{conditions.column_name(one['column'])}" + _named(one)
        for one in _ONE_ITEM.finditer(written)
    )


def _named(one: re.Match[str]) -> str:
    return f' as "{one["name"]}"' if one["name"] else ""


def _ordered(one: re.Match[str], given: dict[str, str]) -> str:
    """Print an item of ORDER BY; NULL is the least value in SQL Server, the greatest in PostgreSQL."""
    column = one["column"] or ""
    alias = None if one["owner"] else given.get(column.casefold())
    sql = alias or f"v.{conditions.column_name(column)}"
    return f"{sql} desc nulls last" if (one["way"] or "").upper() == "DESC" else f"{sql} nulls first"
