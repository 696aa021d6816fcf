"""What others call: expressions, conditions and statements of code, given the names that are known."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sqlglot import TokenType, exp

from pybroker.tsql.expressions import functions, types
from pybroker.tsql.expressions.changes import change
from pybroker.tsql.expressions.names import folded
from pybroker.tsql.expressions.namespaces import NO_NAMESPACES, without_namespaces
from pybroker.tsql.expressions.printer import Printer, Source, Sources, Value
from pybroker.tsql.expressions.reading import careful, parse, place_of, token, tokens_of
from pybroker.tsql.expressions.rows import common_tables, from_clause, order_and_limit, select
from pybroker.tsql.expressions.types import Family, Type, Unfaithful, convert
from pybroker.tsql.source import ScriptError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pybroker.tsql.expressions.scope import Scope
    from pybroker.tsql.language.tree import Code


@dataclass(frozen=True, slots=True)
class Expression:
    """A value in PostgreSQL's SQL.

    Attributes:
        sql: without parentheses around it.
        type: what it has.
        notes: what has no meaning here.
        reads: the variables in it, by folded names.
    """

    sql: str
    type: Type
    notes: tuple[str, ...] = ()
    reads: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Statement:
    """A query or a change in PostgreSQL's SQL, without a semicolon.

    Attributes:
        sql: empty where variables get values without a table.
        columns: of the rows that it returns, with their headings; a heading of `*` is one or more unknown.
        assigned: variables that get the rows' columns c1, c2 and so on, each as the source names it.
        values: what `assigned` gets where there is no table.
        creates: the temporary table that SELECT … INTO makes, with its columns.
        inserts: the table that INSERT gives rows.
        counts_on: a query that lets an IDENTITY column go on behind values that it was given.
        locks: a query that locks the rows before, in the same transaction.
        notes: what has no meaning here.
        reads: the variables in it, by folded names.
    """

    sql: str
    columns: tuple[tuple[str | None, Type], ...] = ()
    assigned: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    creates: tuple[str, dict[str, Type]] | None = None
    inserts: str | None = None
    counts_on: str | None = None
    locks: str | None = None
    notes: tuple[str, ...] = ()
    reads: frozenset[str] = field(default_factory=frozenset)

    @property
    def returns_rows(self) -> bool:
        """Whether a client would see rows."""
        return bool(self.columns) and not self.assigned


@careful
def expression(
    code: Code,
    scope: Scope,
    target: Type | None = None,
    row: tuple[str, Any] | None = None,
    namespaces: Mapping[str, str] = NO_NAMESPACES,
) -> Expression:
    """Print an expression.

    Args:
        code: of the expression.
        scope: the names that are known.
        target: the type of what it is assigned to; SQL Server converts, shortens texts, and reads bodies.
        row: what stands before the columns of a row that is at hand, and its columns.
        namespaces: of WITH XMLNAMESPACES, by their prefixes; that of DEFAULT is empty.

    Raises:
        ScriptError: there is no faithful form.
    """
    tree = parse(code)
    notes: list[str] = []
    printer = Printer(code, scope, sources=_row(row), notes=notes, namespaces=namespaces)
    value = printer.value(tree)
    if target is not None:
        try:
            value = Value(convert(value.sql, value.type, target), target)
        except Unfaithful as reason:
            raise ScriptError(place_of(code, tree), str(reason)) from None
    return Expression(value.sql, value.type, tuple(notes), _reads(tree))


@careful
def condition(code: Code, scope: Scope) -> Expression:
    """Print a condition of IF or WHILE."""
    tree = parse(code)
    notes: list[str] = []
    sql = Printer(code, scope, notes=notes).condition(tree)
    return Expression(sql, Type("boolean", Family.UNKNOWN), tuple(notes), _reads(tree))


@careful
def body(code: Code, scope: Scope) -> Expression:
    """Print a message's body, a text, a binary or XML."""
    found = expression(code, scope)
    if found.type.family is Family.UUID:
        raise ScriptError(
            code.position, "a uniqueidentifier as a body has other bytes here: CAST it to nvarchar(36)"
        )
    if found.type.family not in (Family.TEXT, Family.BINARY, Family.XML, Family.NULL):
        raise ScriptError(
            code.position,
            f"{found.type.family.value} as a body has other bytes here: CAST it to nvarchar(max)",
        )
    return found


@careful
def query(code: Code, scope: Scope, *, outermost: bool = True) -> Statement:
    """Print SELECT, INSERT, UPDATE, DELETE or TRUNCATE.

    Args:
        code: of the statement.
        scope: the names that are known.
        outermost: whether its headings are shown, and keep their case; else they are names of columns.

    Raises:
        ScriptError: there is no faithful form.
    """
    namespaces, tokens = without_namespaces(code, tokens_of(code))
    notes: list[str] = []
    if not _is_select(tokens):
        changed = change(code, scope, notes, tokens, namespaces)
        named = _names(scope)
        return Statement(
            changed.sql,
            tuple(changed.columns),
            tuple(named[sql] for sql, _ in changed.assigned),
            inserts=changed.inserts,
            counts_on=changed.counts_on,
            locks=changed.locks,
            notes=tuple(notes),
            reads=_reads_of(tokens),
        )
    tree: Any = parse(code, tokens)
    printer = Printer(code, scope, notes=notes, namespaces=namespaces)
    into = tree.args.get("into") if isinstance(tree, exp.Select) else None
    if into is not None:
        return _selected_into(printer, tree, into, notes)
    rows = select(printer, tree, outermost=outermost)
    return Statement(rows.sql, tuple(rows.columns), notes=tuple(notes), reads=_reads_of(tokens))


_VERBS = frozenset({"SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE", "MERGE"})


def _is_select(tokens: Sequence[Any]) -> bool:
    """Whether what follows the queries of WITH is SELECT."""
    depth = 0
    for one in tokens:
        depth += (one.token_type is TokenType.L_PAREN) - (one.token_type is TokenType.R_PAREN)
        if not depth and one.token_type is not TokenType.IDENTIFIER and one.text.upper() in _VERBS:
            return str(one.text).upper() == "SELECT"
    return True


def _selected_into(printer: Printer, tree: Any, into: Any, notes: list[str]) -> Statement:
    if any(
        isinstance(one, exp.Anonymous) and one.name.upper() == "IDENTITY"
        for one in tree.find_all(exp.Anonymous)
    ):
        raise ScriptError(
            printer.code.position, "IDENTITY in SELECT … INTO has no form here: write CREATE TABLE first"
        )
    target = into.this
    tree.set("into", None)
    rows = select(printer, tree)
    temporary = target.this.args.get("temporary")
    columns = {(name or "").casefold(): types.without_literal(type_) for name, type_ in rows.columns}
    if any(name is None for name, _ in rows.columns):
        raise ScriptError(place_of(printer.code, target), "a column without a name: give it one by AS")
    if temporary:
        name = f"#{target.name}"
        one = printer.scope.declare_table(name, columns)
        sql = f"create temporary table {one.sql.removeprefix('pg_temp.')} as {rows.sql}"
        return Statement(sql, creates=(name, columns), notes=tuple(notes))
    from pybroker.tsql.expressions.rows import relation_of  # noqa: PLC0415 - the table is no source here

    name, _ = relation_of(Printer(printer.code, printer.scope), target)
    return Statement(f"create table {name} as {rows.sql}", creates=(name, columns), notes=tuple(notes))


@careful
def assignments(
    assigned: Sequence[tuple[str, Code]],
    source: Code | None,
    scope: Scope,
    top: Code | None = None,
    with_: Code | None = None,
) -> Statement:
    """Print [WITH …] SELECT @variable = value, … [FROM …].

    Without a table the values are assigned one after the other. With one they are columns c1, c2 and so on of
    a query: each row assigns, and where there is none the variables stay as they are.
    """
    notes: list[str] = []
    names = tuple(name for name, _ in assigned)
    namespaces, before = without_namespaces(with_, tokens_of(with_)) if with_ else (NO_NAMESPACES, [])
    if source is None:
        values = []
        for name, code in assigned:
            one = expression(code, scope, scope.variable(name).type, None, namespaces)
            values.append(one.sql)
            notes += one.notes
        return Statement("", assigned=names, values=tuple(values), notes=tuple(notes))
    tokens = tokens_of(source)
    select_ = [token(TokenType.SELECT, "SELECT", tokens[0]), token(TokenType.NUMBER, "1", tokens[0])]
    tree: Any = parse(source, [*before, *select_, *tokens])
    printer = Printer(source if with_ is None else with_, scope, notes=notes, namespaces=namespaces)
    prefix = common_tables(printer, tree)
    printer.code = source
    tables = from_clause(printer, tree)
    sources, items, reads = printer.sources, [], set(_reads_of(tokens))
    for number, (name, code) in enumerate(assigned, 1):
        inner = parse(code)
        used = _reads(inner)
        if any(one.casefold() in used for one in names):
            raise ScriptError(
                code.position,
                f"{name} gets a value from a table that rests on a variable of the same SELECT:"
                " write STRING_AGG, SUM or a cursor",
            )
        reads |= used
        printed = Printer(code, scope, sources=sources, notes=notes, namespaces=namespaces).converted(
            inner, scope.variable(name).type
        )
        items.append(f"{printed} as c{number}")
    where = tree.args.get("where")
    filtered = "" if where is None else f" where {printer.condition(where.this)}"
    if tree.args.get("group") is not None or tree.args.get("having") is not None:
        raise ScriptError(
            source.position, "GROUP BY behind SELECT @variable has no form here: nest the query"
        )
    rest = "".join(f" {one}" for one in order_and_limit(printer, tree))
    if top is not None:
        rest += f" limit {expression(top, scope).sql}"
    locks = f" {tables.locks}" if tables.locks else ""
    from_ = f" from {tables.sql}" if tables.sql else ""
    return Statement(
        f"{prefix}select {', '.join(items)}{from_}{filtered}{rest}{locks}",
        assigned=names,
        notes=tuple(notes),
        reads=frozenset(reads),
    )


def _row(row: tuple[str, Any] | None) -> list[Sources]:
    if row is None:
        return []
    prefix, columns = row
    return [{"": Source(columns, prefix)}]


def _reads(tree: Any) -> frozenset[str]:
    found = set()
    for one in tree.find_all(exp.Parameter):
        if isinstance(one.this, exp.Parameter):
            found.add(f"@@{one.this.name}".casefold())
        elif not isinstance(one.parent, exp.Parameter):
            found.add(f"@{one.name}".casefold())
    for function in tree.find_all(exp.Anonymous):
        if not function.expressions:
            found.add(f"{function.name}()".casefold())
    return frozenset(found)


def _reads_of(tokens: Sequence[Any]) -> frozenset[str]:
    found = set()
    for at, one in enumerate(tokens):
        if one.token_type is TokenType.PARAMETER and at + 1 < len(tokens):
            before = at > 0 and tokens[at - 1].token_type is TokenType.PARAMETER
            found.add(("@@" if before else "@") + str(tokens[at + 1].text).casefold())
        if (
            str(one.text).casefold() in functions.BY_NAME
            and at + 1 < len(tokens)
            and tokens[at + 1].text == "("
        ):
            found.add(f"{one.text}()".casefold())
    return frozenset(found)


def _names(scope: Scope) -> dict[str, str]:
    return {one.sql: name for name, one in scope.variables.items()}


__all__ = ["Expression", "Statement", "assignments", "body", "condition", "expression", "folded", "query"]
