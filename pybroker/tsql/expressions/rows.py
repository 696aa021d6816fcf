"""SELECT in PostgreSQL's SQL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from pybroker.tsql import catalog
from pybroker.tsql.expressions import functions, types, xml
from pybroker.tsql.expressions.for_xml import for_xml
from pybroker.tsql.expressions.names import exact, folded, relation
from pybroker.tsql.expressions.printer import Printer, Queries, Source, Value, unified
from pybroker.tsql.expressions.reading import place_of
from pybroker.tsql.expressions.system import EXACT, OWN
from pybroker.tsql.expressions.types import Type, Unfaithful
from pybroker.tsql.source import ScriptError
from pybroker.tsql.translation import DEFAULT_SCHEMA

# Hints that change how a query is run, and nothing of what it returns or locks in PostgreSQL.
_NO_MEANING = frozenset(
    """
    nolock rowlock paglock tablock readuncommitted readcommitted readcommittedlock forceseek forcescan nowait
    noexpand keepidentity fastfirstrow index
    """.split()  # noqa: SIM905 - a list that a person can read
)
_LOCKING = frozenset({"updlock", "xlock", "readpast"})
_SELECT_PARTS = frozenset(
    """
    expressions from_ joins where group having order limit offset distinct with_ into for_ options kind hint
    operation_modifiers
    """.split()  # noqa: SIM905 - as above
)
_TABLE_PARTS = frozenset({"this", "db", "catalog", "alias", "hints", "joins"})


@dataclass(frozen=True, slots=True)
class Rows:
    """A query, and its columns with their headings; `*` is one whose columns nobody knows."""

    sql: str
    columns: list[tuple[str | None, Type]]


@dataclass(slots=True)
class From:
    """What FROM became.

    Attributes:
        sql: behind FROM.
        locks: the clause of row locks, if a hint asked for them.
        first: the first table's name, as FOR XML AUTO shows it.
    """

    sql: str
    locks: str
    first: str


def select(printer: Printer, node: Any, *, outermost: bool = False) -> Rows:
    """Print a query.

    Args:
        printer: of the code that holds it.
        node: SELECT, UNION, or one in parentheses.
        outermost: whether its headings are shown, and keep their case.

    Raises:
        ScriptError: there is no faithful form.
    """
    try:
        return _select(printer, node, outermost=outermost)
    except Unfaithful as reason:
        raise ScriptError(place_of(printer.code, node), str(reason)) from None


def _select(printer: Printer, node: Any, *, outermost: bool) -> Rows:
    if isinstance(node, exp.Subquery) and not node.args.get("alias"):
        inner = select(printer, node.this, outermost=outermost)
        return Rows(f"({inner.sql})", inner.columns)
    if isinstance(node, exp.SetOperation):
        return _united(printer, node, outermost=outermost)
    if not isinstance(node, exp.Select):
        raise Unfaithful("a query begins with SELECT")
    _refuse_others(node, _SELECT_PARTS)
    begin = len(printer.sources)
    prefix = common_tables(printer, node)
    try:
        tables = from_clause(printer, node)
        printed = _parts(printer, node, tables, prefix, outermost=outermost)
        if node.args.get("for_") is not None:
            value = for_xml(
                _numbered(printer, node, tables, prefix),
                printed.columns,
                node.args["for_"],
                [tables.first] * max(len(printer.sources[-1]), 1),
                printer.namespaces,
            )
            return Rows(value.sql, [(None, value.type)])
        return printed
    finally:
        del printer.sources[begin:]
        printer.aliases = {}


def _parts(printer: Printer, node: Any, tables: From, prefix: str, *, outermost: bool) -> Rows:
    items, columns = _items(printer, node.expressions, outermost=outermost)
    distinct = "distinct " if node.args.get("distinct") is not None else ""
    selected = f"select {distinct}{', '.join(items)}"
    return Rows(f"{prefix}{selected}{_rest(printer, node, tables, selected)}", columns)


def _numbered(printer: Printer, node: Any, tables: From, prefix: str) -> str:
    """Print the query again with columns named c1, c2 and so on, for FOR XML."""
    items = [
        f"{printer.value(_unnamed(one)).sql} as c{number}" for number, one in enumerate(node.expressions, 1)
    ]
    distinct = "distinct " if node.args.get("distinct") is not None else ""
    selected = f"select {distinct}{', '.join(items)}"
    return f"{prefix}{selected}{_rest(printer, node, tables, selected)}"


def _rest(printer: Printer, node: Any, tables: From, selected: str) -> str:
    parts = []
    if tables.sql:
        parts.append(f"from {tables.sql}")
    if node.args.get("where") is not None:
        parts.append(f"where {printer.condition(node.args['where'].this)}")
    if node.args.get("group") is not None:
        group = node.args["group"]
        _refuse_others(group, frozenset({"expressions"}))
        parts.append(f"group by {', '.join(printer.value(one).sql for one in group.expressions)}")
    if node.args.get("having") is not None:
        parts.append(f"having {printer.condition(node.args['having'].this)}")
    parts.extend(order_and_limit(printer, node, " ".join((selected, *parts))))
    if tables.locks:
        parts.append(tables.locks)
    if node.args.get("options"):
        printer.notes.append("OPTION (…) has no meaning here")
    return "".join(f" {one}" for one in parts)


def order_and_limit(printer: Printer, node: Any, query: str = "") -> list[str]:
    """Print ORDER BY, TOP and OFFSET; TOP … PERCENT counts the rows of the query before them."""
    parts = []
    if node.args.get("order") is not None:
        parts.append(
            f"order by {', '.join(ordering(printer, one) for one in node.args['order'].expressions)}"
        )
    if node.args.get("offset") is not None:
        parts.append(f"offset {printer.whole(node.args['offset'].expression)}")
    limit = node.args.get("limit")
    if limit is not None:
        options = limit.args.get("limit_options")
        given = limit.args.get("expression") or limit.args.get("count")
        if options is not None and options.args.get("percent"):
            if not query:
                raise Unfaithful("TOP … PERCENT has no form here: write a number")
            share = printer.converted(given, types.FLOAT)
            count = f"(select cast(ceil(count(*) * {share} / 100) as bigint) from ({query}) r)"
        else:
            count = printer.whole(given)
        if options is not None and options.args.get("with_ties"):
            parts.append(f"fetch first {count} rows with ties")
        else:
            parts.append(f"limit {count}")
    return parts


def ordering(printer: Printer, node: Any) -> str:
    """Print an item of ORDER BY; NULL is the least value in SQL Server, the greatest in PostgreSQL."""
    inner = node.this
    if isinstance(inner, exp.Column) and not inner.table and inner.name.casefold() in printer.aliases:
        sql = printer.aliases[inner.name.casefold()]
    else:
        sql = printer.value(inner).sql
    return f"{sql} desc nulls last" if node.args.get("desc") else f"{sql} nulls first"


def _items(
    printer: Printer, nodes: list[Any], *, outermost: bool
) -> tuple[list[str], list[tuple[str | None, Type]]]:
    items: list[str] = []
    columns: list[tuple[str | None, Type]] = []
    aliases: dict[str, str] = {}
    for node in nodes:
        star = isinstance(node, exp.Star) or (
            isinstance(node, exp.Column) and isinstance(node.this, exp.Star)
        )
        if star:
            table = node.table if isinstance(node, exp.Column) else ""
            items.append(f"{folded(table)}.*" if table else "*")
            columns.extend(_columns_of(printer, table))
            continue
        if isinstance(node, exp.EQ):
            raise ScriptError(
                place_of(printer.code, node), "SELECT either assigns all of its columns or none: divide it"
            )
        heading = _heading(node)
        value = printer.value(_unnamed(node))
        written = "" if heading is None else (exact(heading) if outermost else folded(heading))
        if isinstance(node, exp.Alias | exp.Subquery) and heading is not None:
            aliases[heading.casefold()] = written
            items.append(f"{value.sql} as {written}")
        else:
            items.append(value.sql)
        columns.append((heading, value.type))
    printer.aliases = aliases
    return items, columns


def _columns_of(printer: Printer, table: str) -> list[tuple[str | None, Type]]:
    sources = printer.sources[-1] if printer.sources else {}
    found: list[tuple[str | None, Type]] = []
    for name, source in sources.items():
        if table and name != table.casefold():
            continue
        found += [("*", types.UNKNOWN)] if source.columns is None else list(source.columns.items())
    return found


def _heading(node: Any) -> str | None:
    if isinstance(node, exp.Alias):
        # Of AS 'x' sqlglot keeps the quotes.
        return str(node.alias).strip("'") or None
    if isinstance(node, exp.Subquery) and node.args.get("alias") is not None:
        return str(node.alias)
    return str(node.name) if isinstance(node, exp.Column) else None


def _unnamed(node: Any) -> Any:
    if isinstance(node, exp.Alias):
        return node.this
    if isinstance(node, exp.Subquery) and node.args.get("alias") is not None:
        return exp.Subquery(this=node.this)
    return node


def _united(printer: Printer, node: Any, *, outermost: bool) -> Rows:
    begin = len(printer.sources)
    prefix = common_tables(printer, node)
    left = select(printer, node.this, outermost=outermost)
    right = select(printer, node.expression)
    word = {exp.Union: "union", exp.Except: "except", exp.Intersect: "intersect"}[type(node)]
    if node.args.get("distinct") is False:
        word += " all"
    printer.aliases = {
        name.casefold(): exact(name) if outermost else folded(name) for name, _ in left.columns if name
    }
    rest = "".join(f" {one}" for one in order_and_limit(printer, node))
    printer.aliases = {}
    del printer.sources[begin:]
    return Rows(f"{prefix}{left.sql} {word} {right.sql}{rest}", left.columns)


# Tables.


def common_tables(printer: Printer, node: Any) -> str:
    """Print WITH and its queries; their columns are known from then on."""
    with_ = node.args.get("with_")
    if with_ is None:
        return ""
    parts = []
    known = Queries()
    printer.sources.append(known)
    recursive = False
    for cte in with_.expressions:
        name = cte.alias
        listed = [one.name for one in cte.args["alias"].args.get("columns") or []]
        uses_itself = any(
            isinstance(one.this, exp.Identifier) and one.name.casefold() == name.casefold()
            for one in cte.this.find_all(exp.Table)
        )
        recursive = recursive or uses_itself
        if uses_itself:
            known[name.casefold()] = Source(
                dict.fromkeys((one.casefold() for one in listed), types.UNKNOWN) or None
            )
        rows = select(printer, cte.this)
        headings: list[str | None] = [*listed] if listed else [heading for heading, _ in rows.columns]
        columns = (
            None
            if "*" in headings or None in headings
            else {
                (heading or "").casefold(): type_
                for heading, (_, type_) in zip(headings, rows.columns, strict=False)
            }
        )
        known[name.casefold()] = Source(columns)
        names = f" ({', '.join(map(folded, listed))})" if listed else ""
        parts.append(f"{folded(name)}{names} as ({rows.sql})")
    return f"with {'recursive ' if recursive else ''}{', '.join(parts)} "


def from_clause(printer: Printer, node: Any, *, also: dict[str, Source] | None = None) -> From:
    """Print FROM with its joins, and remember the tables' columns."""
    sources: dict[str, Source] = dict(also or {})
    printer.sources.append(sources)
    from_ = node.args.get("from_")
    if from_ is None:
        return From("", "", "row")
    locks: list[str] = []
    first, name = table(printer, from_.this, sources, locks)
    parts = [first, *joins_of(printer, from_.this.args.get("joins"), sources, locks)]
    parts += joins_of(printer, node.args.get("joins"), sources, locks)
    return From("".join(parts), " ".join(dict.fromkeys(locks)), name)


def joins_of(printer: Printer, joins: Any, sources: dict[str, Source], locks: list[str]) -> list[str]:
    """Print the joins behind a table, and remember their tables' columns."""
    parts = []
    for join in joins or []:
        kind, side = (join.args.get("kind") or "").upper(), (join.args.get("side") or "").upper()
        _refuse_others(join, frozenset({"this", "on", "kind", "side"}))
        if isinstance(join.this, exp.Lateral):
            parts.append(_applied(printer, join.this, sources))
            continue
        sql, _ = table(printer, join.this, sources, locks)
        nested = joins_of(printer, join.this.args.get("joins"), sources, locks)
        if nested:
            sql = f"({sql}{''.join(nested)})"
        on = join.args.get("on")
        if on is None:
            parts.append(f", {sql}" if not kind and not side else f" cross join {sql}")
            continue
        word = f"{side.lower()} join" if side else "join"
        parts.append(f" {word} {sql} on {printer.condition(on)}")
    return parts


def _applied(printer: Printer, node: Any, sources: dict[str, Source]) -> str:
    outer = not node.args.get("cross_apply")
    alias = node.args.get("alias")
    name = alias.this.name if alias is not None and alias.this is not None else ""
    inner = node.this
    if not name and isinstance(inner, exp.Dot) and isinstance(inner.expression, exp.Anonymous):
        name, alias = inner.expression.name, exp.TableAlias()
    if not name:
        raise Unfaithful("a table behind APPLY needs a name")
    if isinstance(inner, exp.Subquery):
        rows = select(printer, inner.this)
        sources[name.casefold()] = _derived(rows)
        sql = f"({rows.sql}) {folded(name)}"
    else:
        sql = _function(printer, inner, name, alias, sources)
    return f" left join lateral {sql} on true" if outer else f" cross join lateral {sql}"


def _function(printer: Printer, node: Any, name: str, alias: Any, sources: dict[str, Source]) -> str:
    columns = [one.name for one in alias.args.get("columns") or []]
    method = node.expression if isinstance(node, exp.Dot) else node
    if isinstance(method, exp.Anonymous) and method.name.lower() == "nodes" and isinstance(node, exp.Dot):
        target = node.this
        if isinstance(target, exp.Dot):
            target = exp.Column(this=target.expression, table=target.this)
        value = printer.value(target)
        sources[name.casefold()] = Source({columns[0].casefold(): types.XML} if columns else None)
        return f"{xml.nodes(printer, value, method)} as {folded(name)} ({', '.join(map(folded, columns))})"
    if isinstance(method, exp.Anonymous):
        schema = node.this.name if isinstance(node, exp.Dot) else None
        arguments = ", ".join(functions.arguments_of(printer, schema or DEFAULT_SCHEMA, method))
        sources[name.casefold()] = Source(printer.scope.tables(schema, method.name))
        return f"{relation(schema, method.name)}({arguments}) as {folded(name)}"
    raise Unfaithful("this function has no rows here")


def table(printer: Printer, node: Any, sources: dict[str, Source], locks: list[str]) -> tuple[str, str]:
    """Print a table of FROM, and remember its columns; the second value is its name."""
    if isinstance(node, exp.Subquery):
        name = node.alias
        if not name:
            raise Unfaithful("a query behind FROM needs a name")
        rows = select(printer, node.this)
        listed = [one.name for one in node.args["alias"].args.get("columns") or []]
        sources[name.casefold()] = _derived(rows, listed)
        names = f" ({', '.join(map(folded, listed))})" if listed else ""
        return f"({rows.sql}) {folded(name)}{names}", name
    if isinstance(node, exp.Values):
        return _listed_rows(printer, node, sources)
    if isinstance(node, exp.Lateral):
        raise Unfaithful("APPLY stands behind another table")
    if not isinstance(node, exp.Table):
        raise Unfaithful("this is no table here")
    _refuse_others(node, _TABLE_PARTS)
    alias = node.args.get("alias")
    name = alias.this.name if alias is not None else ""
    method = node.this
    if isinstance(method, exp.Anonymous) and method.name.lower() == "nodes":
        owner = node.args.get("db")
        catalog_name = node.args.get("catalog")
        target = exp.Column(this=owner, table=catalog_name) if isinstance(owner, exp.Identifier) else owner
        dot = exp.Dot(this=target, expression=method)
        if alias is None or not name:
            raise Unfaithful("nodes needs a name: AS T(c)")
        return _function(printer, dot, name, alias, sources), name
    if isinstance(method, exp.Anonymous):
        owner = node.args.get("db")
        call = exp.Dot(this=owner, expression=method) if owner is not None else method
        return _function(
            printer, call, name or method.name, alias or exp.TableAlias(), sources
        ), name or method.name
    hints(printer, node, locks, name)
    sql, columns = relation_of(printer, node)
    own = _own_name(node)
    is_system = node.db.lower() == "sys"
    is_exact = node.name.lower() in EXACT
    sources[(name or own).casefold()] = Source(
        columns, is_system=is_system and columns is None, is_exact=is_exact
    )
    if not name and sql.startswith("("):
        name = own
    return f"{sql} {folded(name)}" if name else sql, name or own


def _listed_rows(printer: Printer, node: Any, sources: dict[str, Source]) -> tuple[str, str]:
    """Print (VALUES …) AS name (columns)."""
    alias = node.args.get("alias")
    listed = [one.name for one in alias.args.get("columns") or []] if alias is not None else []
    if not listed:
        raise Unfaithful("VALUES behind FROM needs a name and columns: AS v (a, b)")
    cells = [list(row.expressions) if isinstance(row, exp.Tuple) else [row] for row in node.expressions]
    if any(len(row) != len(listed) for row in cells):
        raise Unfaithful(f"{node.alias} has {len(listed)} columns, and a row of VALUES others")
    columns = [unified(printer, [row[at] for row in cells]) for at in range(len(listed))]
    rows = ", ".join(f"({', '.join(values[at] for values, _ in columns)})" for at in range(len(cells)))
    sources[node.alias.casefold()] = Source(
        {
            name.casefold(): types.without_literal(type_)
            for name, (_, type_) in zip(listed, columns, strict=True)
        }
    )
    return f"(values {rows}) {folded(node.alias)} ({', '.join(map(folded, listed))})", node.alias


def _own_name(node: Any) -> str:
    return str(node.this.this.name if isinstance(node.this, exp.Parameter) else node.name).lstrip("@#")


def relation_of(printer: Printer, node: Any) -> tuple[str, Any]:
    """Return a table's name in PostgreSQL and its columns."""
    scope = printer.scope
    sign = "@" if isinstance(node.this, exp.Parameter) else ("#" if node.this.args.get("temporary") else "")
    if sign:
        one = scope.table_variable(sign + node.this.name)
        return one.sql, one.columns
    if not scope.is_here(node.catalog or None):
        raise Unfaithful("a table of another database can't be read here: read it there, and send it")
    schema, name = node.db or None, node.name
    if schema is None:
        for sources in reversed(printer.sources):
            found = sources.get(name.casefold()) if isinstance(sources, Queries) else None
            if found is not None:
                return folded(name), found.columns
        special = scope.table_variables.get(name.casefold())
        if special is not None:
            return special.sql, special.columns
    if schema is not None and schema.lower() == "sys":
        view = catalog.relation(name)
        if view is None:
            raise Unfaithful(f"sys.{name} is not known here: see the list in docs/tsql.md")
        return scope.beside_placeholders(view), OWN.get(name.lower()) or scope.tables("sys", name)
    if schema is not None and schema.lower() == "information_schema":
        return f"information_schema.{folded(name)}", None
    return relation(schema, name), scope.tables(schema, name)


def _derived(rows: Rows, listed: list[str] | None = None) -> Source:
    headings: list[str | None] = [*listed] if listed else [heading for heading, _ in rows.columns]
    if "*" in headings:
        return Source(None)
    return Source(
        {
            (heading or "").casefold(): types.without_literal(type_)
            for heading, (_, type_) in zip(headings, rows.columns, strict=False)
        }
    )


def hints(printer: Printer, node: Any, locks: list[str], name: str) -> None:
    """Note the hints of a table, and add the locks that they ask for."""
    found = [
        str(one.name or one.sql()).lower()
        for hint in node.args.get("hints") or []
        for one in hint.expressions
    ]
    for one in found:
        if one.partition("(")[0].strip() in _NO_MEANING:
            printer.notes.append(f"the hint {one.upper()} has no meaning here")
        elif one not in _LOCKING:
            raise Unfaithful(
                f"the hint {one.upper()} has no form here: lock the table in a statement of its own"
            )
    if set(found) & _LOCKING:
        of = f" of {folded(name or _own_name(node))}"
        skip = " skip locked" if "readpast" in found else ""
        locks.append(f"for update{of}{skip}")


def _refuse_others(node: Any, known: frozenset[str]) -> None:
    for key, value in node.args.items():
        if value and key not in known:
            raise Unfaithful(
                f"{key.rstrip('_').replace('_', ' ').upper()} has no form here: write it without"
            )


__all__ = [
    "From",
    "Rows",
    "Value",
    "from_clause",
    "functions",
    "joins_of",
    "ordering",
    "relation_of",
    "select",
    "table",
]
