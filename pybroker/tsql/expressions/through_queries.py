"""UPDATE and DELETE of a query of WITH: they change the rows of the table that the query reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from pybroker.tsql.expressions import types
from pybroker.tsql.expressions.names import folded
from pybroker.tsql.expressions.printer import Printer, Source
from pybroker.tsql.expressions.rows import common_tables, relation_of, select
from pybroker.tsql.expressions.types import Type, Unfaithful

if TYPE_CHECKING:
    from collections.abc import Mapping

# The place of a row in its table, as the query returns it.
_ROW = "@@row"
_WHOLE = ("group", "having", "distinct", "with_", "for_", "joins")


@dataclass(frozen=True, slots=True)
class Through:
    """A query of WITH whose rows change.

    Attributes:
        prefix: WITH and its queries.
        name: of the query.
        table: that it reads, with its columns; None where nobody knows them.
        known: those columns.
        columns: of the query.
        written: the columns of the table by the names that the query gives them.
        locks: a query that locks the rows before; None where those that others lock are left out, or windows
            are read.
    """

    prefix: str
    name: str
    table: str
    known: Mapping[str, Type] | None
    columns: Mapping[str, Type] | None
    written: Mapping[str, str]
    locks: str | None

    def column(self, name: str) -> str:
        """Return the table's column that one of the query is."""
        found = self.written.get(name.casefold(), None if self.columns is not None else name)
        if found is None:
            raise Unfaithful(f"{name} is no column of the table behind {self.name}: name the table")
        return found


def find(printer: Printer, node: Any) -> Through | None:
    """Return the query of WITH that UPDATE or DELETE names; None if it names a table."""
    named = node.args.get("tables")
    target = named[0] if named else node.this
    with_ = node.args.get("with_")
    if with_ is None or not isinstance(target, exp.Table) or target.args.get("db") is not None:
        return None
    chosen = next((one for one in with_.expressions if one.alias.casefold() == target.name.casefold()), None)
    if chosen is None:
        return None
    query = chosen.this
    from_ = query.args.get("from_") if isinstance(query, exp.Select) else None
    if (
        from_ is None
        or not isinstance(from_.this, exp.Table)
        or any(query.args.get(part) for part in _WHOLE)
        or from_.this.args.get("joins")
        or chosen.args["alias"].args.get("columns")
        or node.args.get("from_") is not None
        or (named and node.this)
    ):
        raise Unfaithful(f"{chosen.alias} does not read the rows of one table: name the table that changes")
    with_.set("expressions", [one for one in with_.expressions if one is not chosen])
    prefix = common_tables(printer, node) if with_.expressions else ""
    query.append("expressions", exp.alias_(exp.Column(this=exp.to_identifier("ctid")), _ROW, quoted=True))
    rows = select(printer, query)
    # As SQL Server, it waits for who changes a row, and leaves it out if it is gone then.
    lock = "" if " for update" in rows.sql or query.find(exp.Window) else " for update"
    table, known = relation_of(printer, from_.this)
    headings = [heading for heading, _ in rows.columns[:-1]]
    columns = None
    if "*" not in headings:
        columns = {(heading or "").casefold(): type_ for heading, type_ in rows.columns[:-1]}
    inner = f"{folded(chosen.alias)} as materialized ({rows.sql}{lock})"
    # A row that somebody changes meanwhile has another place afterwards, which this statement does not see.
    locks = None
    if " skip locked" not in rows.sql and not query.find(exp.Window):
        locks = f"select 1 from ({prefix}{rows.sql}{lock}) {folded(chosen.alias)}"
    begin = f"{prefix.rstrip()}, " if prefix else "with "
    written = {name: name for name in known or ()} if any(map(_is_star, query.expressions)) else {}
    for one in query.expressions[:-1]:
        column = one.this if isinstance(one, exp.Alias) else one
        if isinstance(column, exp.Column) and not _is_star(column):
            written[one.alias_or_name.casefold()] = column.name
    return Through(f"{begin}{inner} ", chosen.alias, table, known, columns, written, locks)


def _is_star(node: Any) -> bool:
    return isinstance(node, exp.Star) or (isinstance(node, exp.Column) and isinstance(node.this, exp.Star))


def conditions(printer: Printer, node: Any, through: Through, owner: str) -> str:
    """Print what leads from a row of the query to that of the table."""
    where = node.args.get("where")
    name = folded(through.name)
    if owner:
        extra = f" and ({printer.condition(where.this)})" if where is not None else ""
        return f" from {name} where {owner}ctid = {name}.{folded(_ROW)}{extra}"
    extra = f" where {printer.condition(where.this)}" if where is not None else ""
    return f" where ctid in (select {folded(_ROW)} from {name}{extra})"


def values(printer: Printer, node: Any, through: Through) -> str:
    """Print SET; the values are those of the query."""
    if through.columns is None or through.known is None:
        raise Unfaithful(f"the columns of {through.table} are not known: let its CREATE TABLE stand here")
    sets = []
    for one in node.expressions:
        if not isinstance(one.this, exp.Column):
            raise Unfaithful("UPDATE of a query of WITH that assigns variables: name the table")
        column = through.column(one.this.name)
        type_ = through.known.get(column.casefold(), types.UNKNOWN)
        is_default = isinstance(one.expression, exp.Var)
        value = "default" if is_default else printer.converted(one.expression, type_)
        sets.append(f"{folded(column)} = {value}")
    return ", ".join(sets)


def source(through: Through, owner: str) -> dict[str, Source]:
    """Return the columns of the query, as values and conditions name them."""
    prefix = f"{folded(through.name)}." if owner else ""
    return {through.name.casefold(): Source(through.columns, prefix)}
