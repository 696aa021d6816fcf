"""What scripts ask before they make or drop something: IF [NOT] EXISTS (… FROM sys.…), DB_ID, OBJECT_ID."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pybroker.tsql import catalog
from pybroker.tsql.expressions.system import EXACT
from pybroker.tsql.source import Batch, ScriptError, position_of
from pybroker.tsql.translation import identifier, literal

# Nothing is tried twice (++), so that what is no condition is found out in one go.
TEXT = r"N?'(?:[^']|'')*+'"
_PREDICATE = rf"(?:\w++\.)?(?:\[\w++\]|\w++)\s*+(?:=|<>|LIKE)\s*+(?:{TEXT}|\d++)"
PREDICATES = rf"(?P<predicates>{_PREDICATE}(?:\s++AND\s++{_PREDICATE}){{0,9}}+)"
SOURCE = r"""(?:(?:\[master\]|master)\s*+\.\s*+)?
    (?:(?:\[(?P<schema>\w++)\]|(?P<plain_schema>\w++))?\s*+\.\s*+)?
    (?:\[(?P<bracketed>\w++)\]|(?P<plain>\w++))"""
_EXISTS = re.compile(
    rf"""IF\s++(?P<negated>NOT\s++)?EXISTS\s*+\(\s*+
    SELECT\s++(?:(?!FROM\b)[\w.*,()]++\s*+){{1,30}}+FROM\s++{SOURCE}
    (?:\s++(?:AS\s++)?(?!WHERE\b)\w++)?+(?:\s++WHERE\s++{PREDICATES})?+\s*+\)""",
    re.IGNORECASE | re.VERBOSE,
)
_ID = re.compile(
    rf"IF\s++(?P<function>DB_ID|OBJECT_ID)\s*+\(\s*+(?P<name>{TEXT})\s*+(?:,\s*+{TEXT}\s*+)?+\)"
    r"\s++IS\s++(?P<negated>NOT\s++)?NULL\b",
    re.IGNORECASE,
)
_ONE = re.compile(
    rf"(?:\w+\.)?\[?(?P<column>\w+)\]?\s*(?P<operator>=|<>|LIKE)\s*(?P<value>{TEXT}|\d+)", re.IGNORECASE
)
_PLAIN = re.compile(r"[a-z_]+", re.IGNORECASE | re.ASCII)
_AT_HOME = {"endpoints", "service_broker_endpoints", "tcp_endpoints"}


# Equal only to itself: a condition is asked once, however many statements hang on it.
@dataclass(frozen=True, slots=True, eq=False)
class Condition:
    """A question to a database, as SQL with one row and one truth value."""

    sql: str
    at_home: bool = False


@dataclass(frozen=True, slots=True)
class Source:
    """A catalog view that FROM names."""

    view: str

    @property
    def at_home(self) -> bool:
        """Whether the home database has its rows."""
        return self.view in _AT_HOME


def read(batch: Batch, at: int) -> tuple[Condition, int]:
    """Return the condition of the IF at this offset, and the offset behind it.

    Raises:
        ScriptError: it is none that is understood.
    """
    if found := _EXISTS.match(batch.text, at):
        return _exists(batch, found), found.end()
    if found := _ID.match(batch.text, at):
        return _id(found), found.end()
    raise ScriptError(
        position_of(batch, at),
        "IF is understood with [NOT] EXISTS (SELECT … FROM sys.… WHERE name = '…'), DB_ID and OBJECT_ID",
    )


def source(batch: Batch, found: re.Match[str]) -> Source:
    """Return the catalog view that a match's FROM names.

    Raises:
        ScriptError: it is a table or a queue, or a view of SQL Server that is not here.
    """
    name = found["bracketed"] or found["plain"]
    schema = found["schema"] or found["plain_schema"]
    in_catalog = schema is not None and schema.lower() == "sys"
    is_old = name.lower() in ("sysdatabases", "sysobjects") and (schema or "dbo").lower() == "dbo"
    at = found.start("bracketed" if found["bracketed"] else "plain")
    if not in_catalog and not is_old:
        # Its columns have types of their own, which = has to know.
        raise ScriptError(position_of(batch, at), f"{name} is no view of the catalog")
    if catalog.relation(name) is None:
        raise ScriptError(position_of(batch, at), f"sys.{name} is not known here")
    return Source(name.lower())


def where(found: re.Match[str], asked: Source) -> str:
    """Return the WHERE of a match in PostgreSQL's SQL; its rows are called v."""
    predicates = " and ".join(
        _predicate(one, is_exact=asked.view in EXACT) for one in _ONE.finditer(found["predicates"] or "")
    )
    return f" where {predicates}" if predicates else ""


def unquoted(written: str) -> str:
    """Return what a text in quotes says."""
    return written[:-1].partition("'")[2].replace("''", "'")


def column_name(written: str) -> str:
    """Return a column's name, in quotes only where it needs them."""
    return written.lower() if _PLAIN.fullmatch(written) else identifier(written)


def _exists(batch: Batch, found: re.Match[str]) -> Condition:
    asked = source(batch, found)
    relation = catalog.relation(asked.view) or ""
    negation = "not " if found["negated"] else ""
    sql = f"select {negation}exists (select from {relation} v{where(found, asked)})"  # noqa: S608
    return Condition(sql, at_home=asked.at_home)


def _predicate(found: re.Match[str], *, is_exact: bool) -> str:
    column, operator, written = column_name(found["column"]), found["operator"].lower(), found["value"]
    if written.isdigit():
        # A bit is a truth value here.
        meant = {"0": "('0', 'false')", "1": "('1', 'true')"}.get(written, f"('{written}')")
        return f"v.{column}::text {'not in' if operator == '<>' else 'in'} {meant}"
    value = literal(unquoted(written))
    if operator == "like":
        return f"v.{column}::text ilike {value} escape ''"
    if is_exact:
        return f"v.{column}::text {operator} {value}"
    return f"lower(v.{column}::text) {operator} lower({value})"


def _id(found: re.Match[str]) -> Condition:
    is_object = found["function"].upper() == "OBJECT_ID"
    relation = catalog.relation("objects" if is_object else "databases")
    name = unquoted(found["name"]).replace("[", "").replace("]", "")
    name = name.rpartition(".")[2] if is_object else name
    negation = "" if found["negated"] else "not "
    is_there = f"where lower(v.name::text) = lower({literal(name)})"
    return Condition(f"select {negation}exists (select from {relation} v {is_there})")  # noqa: S608
