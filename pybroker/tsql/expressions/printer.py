"""An expression in PostgreSQL's SQL: one table, from sqlglot's classes to what each becomes."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlglot import exp

from pybroker.tsql.expressions import types
from pybroker.tsql.expressions.names import folded, relation
from pybroker.tsql.expressions.reading import place_of
from pybroker.tsql.expressions.system import BOOLEAN, SYSTEM
from pybroker.tsql.expressions.types import MOMENTS, NUMBERS, Family, Type, Unfaithful, cast, convert
from pybroker.tsql.source import ScriptError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pybroker.tsql.expressions.scope import Columns, Scope
    from pybroker.tsql.language.tree import Code


class Value(NamedTuple):
    """An expression in PostgreSQL's SQL, and its type."""

    sql: str
    type: Type


@dataclass(frozen=True, slots=True)
class Source:
    """A table that columns may come from.

    Attributes:
        columns: None where nobody knows them.
        prefix: what stands before its columns that are written without a table.
        is_system: whether it is a catalog view, some of whose columns are known by their names.
        is_exact: whether the names in that view match exactly.
    """

    columns: Columns | None
    prefix: str = ""
    is_system: bool = False
    is_exact: bool = False

    def type_of(self, name: str) -> Type | None:
        """Return a column's type, if it is known."""
        if self.is_system and not self.is_exact and name.casefold() == "name":
            return types.NAME
        return (SYSTEM if self.is_system else self.columns or {}).get(name.casefold())


Sources = dict[str, Source]


class Queries(dict[str, Source]):
    """The queries of WITH: tables that FROM may name, whose columns nothing else names."""


@dataclass(slots=True)
class Printer:
    """Prints the expressions of one piece of code.

    Attributes:
        sources: the tables of the query, and of those around it; the innermost last.
        notes: what has no meaning here.
        aliases: headings of the query that is printed, by folded names: ORDER BY may name them.
        over: the window of the function that is printed next.
        namespaces: prefixes that XML methods may use, and what they stand for.
    """

    code: Code
    scope: Scope
    sources: list[Sources] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    aliases: dict[str, str] = field(default_factory=dict)
    over: str = ""
    namespaces: Mapping[str, str] = field(default_factory=dict)

    def value(self, node: exp.Expr) -> Value:
        """Print a value.

        Raises:
            ScriptError: there is no faithful form.
        """
        way = VALUES.get(type(node), _no_value)
        try:
            return way(self, node)
        except Unfaithful as reason:
            raise ScriptError(place_of(self.code, node), str(reason)) from None

    def condition(self, node: exp.Expr) -> str:
        """Print a predicate, which is a boolean in PostgreSQL and no value in T-SQL."""
        way = CONDITIONS.get(type(node), _no_condition)
        try:
            return way(self, node)
        except Unfaithful as reason:
            raise ScriptError(place_of(self.code, node), str(reason)) from None

    def converted(self, node: exp.Expr, target: Type) -> str:
        """Print a value that is assigned to something of a type."""
        value = self.value(node)
        try:
            return convert(value.sql, value.type, target)
        except Unfaithful as reason:
            raise ScriptError(place_of(self.code, node), str(reason)) from None

    def text(self, node: exp.Expr) -> str:
        """Print a value as a text."""
        return self.converted(node, types.TEXT)

    def whole(self, node: exp.Expr) -> str:
        """Print a value as a whole number."""
        value = self.value(node)
        if value.type.family in (Family.INTEGER, Family.BIT, Family.NULL, Family.UNKNOWN):
            return value.sql
        return self.converted(node, types.INTEGER)

    def column_type(self, table: str | None, name: str) -> tuple[Type, str]:
        """Return a column's type and what must stand before it."""
        for sources in reversed(self.sources):
            if isinstance(sources, Queries):
                continue
            if table is not None:
                found = sources.get(table.casefold())
                if found is not None:
                    return found.type_of(name) or types.UNKNOWN, ""
                continue
            holders = [(one, type_) for one in sources.values() if (type_ := one.type_of(name)) is not None]
            if len(holders) == 1:
                return holders[0][1], holders[0][0].prefix
            if any(one.columns is None for one in sources.values()):
                return types.UNKNOWN, ""
        return types.UNKNOWN, ""


def _no_value(_printer: Printer, node: exp.Expr) -> Value:
    if type(node) in CONDITIONS:
        raise Unfaithful("a condition is no value: write CASE WHEN … THEN 1 ELSE 0 END")
    raise Unfaithful(f"{type(node).__name__.upper()} has no form here: write it without")


def _no_condition(_printer: Printer, _node: exp.Expr) -> str:
    raise Unfaithful("a condition is missing here: write a comparison, as = 1")


# Values.


def _literal(printer: Printer, node: Any) -> Value:
    if node.is_string:
        return Value(
            printer.scope.literal(node.this), Type("text", Family.TEXT, len(node.this), literal=node.this)
        )
    text = node.this
    if "e" in text.lower():
        return Value(text, types.FLOAT)
    if "." in text:
        whole, _, fraction = text.partition(".")
        scale = len(fraction)
        return Value(text, types.decimal(max(len(whole.lstrip("0")) + scale, 1), scale))
    if int(text) < 2**31:
        return Value(text, types.INTEGER)
    # A whole number of PostgreSQL's would be divided without a rest.
    return Value(f"{text}.", types.decimal(len(text), 0))


def _national(printer: Printer, node: Any) -> Value:
    return Value(
        printer.scope.literal(node.this), Type("text", Family.TEXT, len(node.this), literal=node.this)
    )


def _hex(_printer: Printer, node: Any) -> Value:
    digits = str(node.this).lower()
    digits = "0" + digits if len(digits) % 2 else digits
    return Value(f"decode('{digits}', 'hex')", Type("bytea", Family.BINARY, len(digits) // 2))


def _null(_printer: Printer, _node: Any) -> Value:
    return Value("null", types.NULL)


def _parameter(printer: Printer, node: Any) -> Value:
    name = "@" + (("@" + node.this.name) if isinstance(node.this, exp.Parameter) else node.name)
    if name.casefold() in SESSION_VALUES:
        return SESSION_VALUES[name.casefold()]
    if name.casefold() == "@@identity":
        raise Unfaithful("@@IDENTITY may be that of a trigger: write SCOPE_IDENTITY()")
    variable = printer.scope.variable(name)
    return Value(variable.sql, variable.type)


SESSION_VALUES = {
    "@@spid": Value("pg_backend_pid()", types.INTEGER),
}


def _column(printer: Printer, node: Any) -> Value:
    if isinstance(node.this, exp.Star):
        raise Unfaithful("* stands only in the list of a SELECT")
    if not isinstance(node.this, exp.Identifier) or node.name.startswith("$"):
        raise Unfaithful("a number of money is written without $ here")
    if not printer.scope.is_here(node.catalog or None):
        raise Unfaithful("a table of another database can't be read here: read it there, and send it")
    if node.args.get("db") is not None:
        type_, _ = printer.column_type(node.table, node.name)
        return Value(f"{relation(node.args['db'].name, node.table)}.{folded(node.name)}", type_)
    if node.table:
        type_, _ = printer.column_type(node.table, node.name)
        return _as_bit(f"{folded(node.table)}.{folded(node.name)}", type_)
    type_, prefix = printer.column_type(None, node.name)
    if not printer.sources or (type_ is types.UNKNOWN and not any(printer.sources)):
        raise Unfaithful(
            f"there is no column {node.name} here: a variable begins with @, a text stands in '…'"
        )
    return _as_bit(f"{prefix}{folded(node.name)}", type_)


def _as_bit(sql: str, type_: Type) -> Value:
    return Value(cast(sql, "integer"), types.BIT) if type_ == BOOLEAN else Value(sql, type_)


def _parenthesis(printer: Printer, node: Any) -> Value:
    value = printer.value(node.this)
    return Value(f"({value.sql})", value.type)


def _negative(printer: Printer, node: Any) -> Value:
    value = printer.value(node.this)
    if value.type.family not in NUMBERS | {Family.UNKNOWN}:
        raise Unfaithful(f"{value.type.family.value} has no negative")
    # A blank, so that two of them are no comment.
    return Value(f"- {value.sql}" if value.sql.startswith("-") else f"-{value.sql}", value.type)


def _add(printer: Printer, node: Any) -> Value:
    left, right = printer.value(node.this), printer.value(node.expression)
    one, other = left.type.family, right.type.family
    if Family.NULL in (one, other):
        return Value("null", left.type if other is Family.NULL else right.type)
    if one is Family.TEXT and other is Family.TEXT:
        return _joined(left, right)
    if one is Family.BINARY and other is Family.BINARY:
        return Value(f"{left.sql} || {right.sql}", types.BINARY)
    if {one, other} == {Family.TEXT, Family.UNKNOWN}:
        text = left if one is Family.TEXT else right
        # What were no text would make SQL Server fail at such a literal.
        if text.type.literal is not None and not _may_be_number(text.type.literal):
            return _joined(left, right)
        raise Unfaithful("whether + adds or joins depends on a column's type, which is not known: CAST it")
    digits = left.type.literal if one is Family.TEXT else right.type.literal
    if Family.TEXT in (one, other) and {one, other} & NUMBERS and not (digits or "").isdigit():
        raise Unfaithful("+ adds where one side is a number: to join, write CAST(… AS nvarchar(20))")
    if one is Family.UNKNOWN and other is Family.UNKNOWN:
        raise Unfaithful(
            "whether + adds or joins depends on the columns' types, which are not known: CAST one"
        )
    if one is Family.DATETIME and other in NUMBERS:
        return Value(f"{left.sql} + {_factor(right)} * interval '1 day'", left.type)
    return _arithmetic(left, right, "+")


def _subtract(printer: Printer, node: Any) -> Value:
    left, right = printer.value(node.this), printer.value(node.expression)
    if left.type.family is Family.DATETIME and right.type.family in NUMBERS:
        return Value(f"{left.sql} - {_factor(right)} * interval '1 day'", left.type)
    return _arithmetic(left, right, "-")


def _factor(value: Value) -> str:
    return value.sql if value.sql.isalnum() or value.sql.startswith('"') else f"({value.sql})"


def _joined(left: Value, right: Value) -> Value:
    return Value(f"{types.filled(left.sql, left.type)} || {types.filled(right.sql, right.type)}", types.TEXT)


def _may_be_number(text: str) -> bool:
    digits = any(one.isdigit() for one in text) and not any(one.isalpha() for one in text)
    return digits or not text.strip()


def _binary(sign: str) -> Callable[[Printer, Any], Value]:
    def way(printer: Printer, node: Any) -> Value:
        written = printer.scope.beside_placeholders(sign)
        return _arithmetic(printer.value(node.this), printer.value(node.expression), written)

    return way


_RANKS = (Family.BIT, Family.INTEGER, Family.DECIMAL, Family.FLOAT)


def _arithmetic(left: Value, right: Value, sign: str) -> Value:
    sides = []
    for one, other in ((left, right), (right, left)):
        family = one.type.family
        if family is Family.TEXT and other.type.family in NUMBERS:
            sides.append(Value(convert(one.sql, one.type, other.type), other.type))
        elif family in NUMBERS | {Family.UNKNOWN, Family.NULL}:
            sides.append(one)
        else:
            raise Unfaithful(f"{sign} takes no {family.value.removeprefix('a ')} here: use DATEADD or CAST")
    known = [one.type for one in sides if one.type.family in NUMBERS]
    type_ = max(known, key=lambda one: _RANKS.index(one.family), default=types.UNKNOWN)
    if len(known) < len(sides) and type_.family is not Family.FLOAT:
        type_ = types.UNKNOWN
    if type_.family is Family.BIT:
        type_ = types.INTEGER
    if type_.family is Family.DECIMAL:
        return _of_decimals(sides[0], sides[1], sign)
    return Value(f"{sides[0].sql} {sign} {sides[1].sql}", types.without_literal(type_))


def _of_decimals(left: Value, right: Value, sign: str) -> Value:
    """Compute with decimals: the result has the digits that SQL Server gives it."""
    sql, operator = f"{left.sql} {sign} {right.sql}", sign[0]
    one, other = types.digits_of(left.type, left.sql), types.digits_of(right.type, right.sql)
    if one is None or other is None or left.type.money or right.type.money:
        if operator == "/":
            raise Unfaithful("how many digits / gives is not known here: CAST both sides to decimal(p, s)")
        return Value(sql, types.Type("numeric", Family.DECIMAL, money=left.type.money or right.type.money))
    (p1, s1), (p2, s2) = one, other
    whole = max(p1 - s1, p2 - s2)
    match operator:
        case "*":
            precision, scale = p1 + p2 + 1, s1 + s2
        case "/":
            scale = max(_LEAST_SCALE, s1 + p2 + 1)
            precision = p1 - s1 + s2 + scale
        case "%":
            scale = max(s1, s2)
            precision = min(p1 - s1, p2 - s2) + scale
        case _:
            scale = max(s1, s2)
            precision = whole + scale + 1
    type_ = types.decimal(precision, scale)
    if type_ != types.Type(f"numeric({precision},{scale})", Family.DECIMAL) and scale > _LEAST_SCALE:
        raise Unfaithful(f"{operator} gives more than 38 digits: CAST one side to a shorter decimal(p, s)")
    if operator == "/":
        return Value(f"trunc(round({left.sql}, {scale}) / {right.sql}, {scale})", type_)
    return Value(sql, type_)


_LEAST_SCALE = 6


def _bits(sign: str) -> Callable[[Printer, Any], Value]:
    def way(printer: Printer, node: Any) -> Value:
        inner = node.expression
        if isinstance(inner, exp.Add | exp.Sub):
            # T-SQL reads from left to right here, sqlglot does not.
            raise Unfaithful("+ or - behind &, | or ^ needs parentheses here")
        # In parentheses, as the two languages bind these operators differently.
        value = _arithmetic(printer.value(node.this), printer.value(node.expression), sign)
        return Value(f"({value.sql})", value.type)

    return way


def _not_bits(printer: Printer, node: Any) -> Value:
    value = printer.value(node.this)
    if value.type.family is not Family.INTEGER:
        raise Unfaithful("~ takes whole numbers alone here")
    return Value(f"(~ {value.sql})", value.type)


def _cast(printer: Printer, node: Any) -> Value:
    if node.args.get("safe"):
        raise Unfaithful("TRY_CAST has no form here: write CAST in TRY … CATCH")
    return _converted(printer, node.this, _target(printer, node.args["to"]))


def _target(printer: Printer, node: Any) -> Type:
    kind = node.args.get("kind")
    if kind is not None:
        return printer.scope.type(kind.sql() if isinstance(kind, exp.Expr) else str(kind), cast=True)
    return types.of_node(node)


def _converted(printer: Printer, node: exp.Expr, target: Type) -> Value:
    if isinstance(node, exp.Identifier):
        node = exp.Column(this=node)
    value = printer.value(node)
    if value.type.family is Family.NULL:
        return Value(cast("null", target), target)
    return Value(convert(value.sql, value.type, target), target)


def _convert(printer: Printer, node: Any) -> Value:
    if node.args.get("safe"):
        raise Unfaithful("TRY_CONVERT has no form here: write CONVERT in TRY … CATCH")
    target, style = _target(printer, node.this), node.args.get("style")
    if style is None or target.family is Family.XML:
        return _converted(printer, node.expression, target)
    if not isinstance(style, exp.Literal) or not str(style.this).isdigit():
        raise Unfaithful("the style of CONVERT must be a number here")
    number, value = int(style.this), printer.value(node.expression)
    family = value.type.family
    if target.family is Family.TEXT and family in MOMENTS:
        sql = types.styled(value.sql, value.type, number)
        return Value(convert(sql, types.TEXT, target), target)
    if target.family is Family.TEXT and family is Family.BINARY and number in (1, 2):
        digits = f"upper(encode({value.sql}, 'hex'))"
        written = f"'0x' || {digits}" if number == 1 else digits
        return Value(convert(written, types.TEXT, target), target)
    if target.family is Family.BINARY and family is Family.TEXT and number in (1, 2):
        if number == 1 and not (value.type.literal or "").lower().startswith("0x"):
            # What does not begin with 0x is an error.
            digits = f"case when {value.sql} ilike '0x%' then substr({value.sql}, 3) else '0x' end"
            digits = printer.scope.beside_placeholders(digits)
        else:
            digits = f"substr({value.sql}, 3)" if number == 1 else value.sql
        return Value(convert(f"decode({digits}, 'hex')", types.BINARY, target), target)
    if target.family in MOMENTS and family is Family.TEXT and number in (20, 21, 23, 25, 112, 120, 121, 126):
        return _converted(printer, node.expression, target)
    if number == 0:
        return _converted(printer, node.expression, target)
    raise Unfaithful(f"style {number} of CONVERT is not known here for these types")


def _case(printer: Printer, node: Any) -> Value:
    subject = node.this
    results = [*(one.args["true"] for one in node.args["ifs"])]
    if node.args.get("default") is not None:
        results.append(node.args["default"])
    values, type_ = unified(printer, results)
    parts = ["case"]
    for one, value in zip(node.args["ifs"], values, strict=False):
        when = (
            printer.condition(one.this)
            if subject is None
            else compared(printer.value(subject), printer.value(one.this), "=")
        )
        parts.append(f"when {when} then {value}")
    if node.args.get("default") is not None:
        parts.append(f"else {values[-1]}")
    return Value(" ".join([*parts, "end"]), type_)


def _if(printer: Printer, node: Any) -> Value:
    if node.args.get("false") is None:
        raise Unfaithful("IIF needs three arguments")
    values, type_ = unified(printer, [node.args["true"], node.args["false"]])
    return Value(f"case when {printer.condition(node.this)} then {values[0]} else {values[1]} end", type_)


_PRECEDENCE = (
    Family.BINARY,
    Family.TEXT,
    Family.UUID,
    Family.BIT,
    Family.INTEGER,
    Family.DECIMAL,
    Family.FLOAT,
    Family.TIME,
    Family.DATE,
    Family.DATETIME,
    Family.DATETIME2,
    Family.OFFSET,
    Family.XML,
)


def unified(printer: Printer, nodes: list[exp.Expr]) -> tuple[list[str], Type]:
    """Print values of which one is chosen: all of the type that T-SQL would give it."""
    values = [printer.value(one) for one in nodes]
    known = [one.type for one in values if one.type.family is not Family.NULL]
    if not known:
        return [one.sql for one in values], types.NULL
    if any(one.family is Family.UNKNOWN for one in known):
        return [one.sql for one in values], types.UNKNOWN
    target = max(known, key=lambda one: _PRECEDENCE.index(one.family))
    if target.family is Family.TEXT:
        target = types.TEXT
    elif target.family is Family.DECIMAL:
        return _of_one_scale(values, known)
    elif target.family is Family.BINARY:
        target = types.BINARY
    else:
        target = types.without_literal(target)
    return [
        one.sql if one.type.family is target.family else convert(one.sql, one.type, target) for one in values
    ], target


def _of_one_scale(values: list[Value], known: list[Type]) -> tuple[list[str], Type]:
    """Give numbers the digits that a decimal needs for all of them."""
    counts = [types.digits_of(one.type, one.sql) for one in values if one.type.family is not Family.NULL]
    if None in counts or any(one.money for one in known):
        target = types.DECIMAL
    else:
        scale = max(one[1] for one in counts if one)
        target = types.decimal(max(one[0] - one[1] for one in counts if one) + scale, scale)
    return [
        one.sql
        if one.type.family is Family.DECIMAL and target == types.DECIMAL
        else convert(one.sql, one.type, target)
        for one in values
    ], target


def _coalesce(printer: Printer, node: Any) -> Value:
    nodes = [node.this, *node.expressions]
    if not node.args.get("is_null"):
        values, type_ = unified(printer, nodes)
        return Value(f"coalesce({', '.join(values)})", type_)
    first = printer.value(node.this)
    # The result of ISNULL has the type of its first argument.
    target = types.TEXT if first.type.literal is not None else first.type
    second = printer.value(nodes[1])
    if first.type.family is Family.NULL:
        return second
    other = second.sql if target.family is Family.UNKNOWN else convert(second.sql, second.type, target)
    return Value(f"coalesce({first.sql}, {other})", target)


def _nullif(printer: Printer, node: Any) -> Value:
    left, right = printer.value(node.this), printer.value(node.expression)
    compared(left, right, "=")
    return Value(f"nullif({left.sql}, {right.sql})", types.without_literal(left.type))


def _subquery(printer: Printer, node: Any) -> Value:
    from pybroker.tsql.expressions.rows import select  # noqa: PLC0415 - the two call each other

    found = select(printer, node.this)
    if len(found.columns) != 1:
        raise Unfaithful("a query in place of a value has one column")
    return Value(f"({found.sql})", found.columns[0][1])


def _identifier(printer: Printer, node: Any) -> Value:
    return _column(printer, exp.Column(this=node))


def _collate(printer: Printer, node: Any) -> Value:
    printer.notes.append(f"COLLATE {node.expression.name} has no meaning here: texts are compared exactly")
    return printer.value(node.this)


# Conditions.


def compared(left: Value, right: Value, sign: str) -> str:
    """Print a comparison; a side of another type is converted, as SQL Server does."""
    one, other = left.type.family, right.type.family
    if one is not other and not {one, other} & {Family.NULL, Family.UNKNOWN}:
        if left.type.literal is None and right.type.literal is None and not {one, other} <= NUMBERS:
            if _PRECEDENCE.index(one) < _PRECEDENCE.index(other):
                left = Value(convert(left.sql, left.type, right.type), right.type)
            else:
                right = Value(convert(right.sql, right.type, left.type), left.type)
        elif Family.BINARY in (one, other) or Family.XML in (one, other):
            if one is Family.TEXT:
                left = Value(convert(left.sql, left.type, right.type), right.type)
            else:
                right = Value(convert(right.sql, right.type, left.type), left.type)
    if Family.XML in (one, other):
        raise Unfaithful("XML can't be compared: CAST it to nvarchar(max)")
    if sign in ("=", "<>") and (left.type.any_case or right.type.any_case) and one is other:
        return f"lower({left.sql}) {sign} lower({right.sql})"
    return f"{left.sql} {sign} {right.sql}"


def _comparison(sign: str) -> Callable[[Printer, Any], str]:
    def way(printer: Printer, node: Any) -> str:
        right = node.expression
        if isinstance(right, exp.Any | exp.All):
            raise Unfaithful("ANY and ALL have no form here: write IN or EXISTS")
        return compared(printer.value(node.this), printer.value(right), sign)

    return way


def _logical(word: str) -> Callable[[Printer, Any], str]:
    def way(printer: Printer, node: Any) -> str:
        return f"{printer.condition(node.this)} {word} {printer.condition(node.expression)}"

    return way


def _not(printer: Printer, node: Any) -> str:
    inner = node.this
    if isinstance(inner, exp.Is):
        return f"{printer.value(inner.this).sql} is not null"
    if isinstance(inner, exp.In):
        return _in(printer, inner, " not")
    if isinstance(inner, exp.Between):
        return _between(printer, inner, " not")
    return f"not {printer.condition(inner)}"


def _is(printer: Printer, node: Any) -> str:
    if not isinstance(node.expression, exp.Null):
        raise Unfaithful("IS is followed by NULL or NOT NULL")
    return f"{printer.value(node.this).sql} is null"


def _in(printer: Printer, node: Any, negated: str = "") -> str:
    left = printer.value(node.this)
    query = node.args.get("query")
    if query is not None:
        found = printer.value(query)
        compared(left, Value("", found.type), "=")
        return f"{left.sql}{negated} in {found.sql}"
    values = [printer.value(one) for one in node.expressions]
    left, values = _comparable(left, values)
    if left.type.any_case and {one.type.family for one in values} == {Family.TEXT}:
        return f"lower({left.sql}){negated} in ({', '.join(f'lower({one.sql})' for one in values)})"
    return f"{left.sql}{negated} in ({', '.join(one.sql for one in values)})"


def _comparable(left: Value, others: list[Value]) -> tuple[Value, list[Value]]:
    """Convert what is compared with each of several values, as = does with one."""
    for one in others:
        compared(left, one, "=")
    if left.type.family is Family.TEXT and left.type.literal is None:
        # A text gives way to any other type.
        wanted = [
            one.type for one in others if one.type.family not in (Family.TEXT, Family.NULL, Family.UNKNOWN)
        ]
        if wanted:
            target = types.without_literal(max(wanted, key=lambda one: _PRECEDENCE.index(one.family)))
            left = Value(convert(left.sql, left.type, target), target)
    same = []
    for one in others:
        is_text = one.type.family is Family.TEXT and one.type.literal is None
        known = left.type.family not in (Family.TEXT, Family.NULL, Family.UNKNOWN)
        same.append(Value(convert(one.sql, one.type, left.type), left.type) if is_text and known else one)
    return left, same


def _between(printer: Printer, node: Any, negated: str = "") -> str:
    left = printer.value(node.this)
    low, high = printer.value(node.args["low"]), printer.value(node.args["high"])
    left, (low, high) = _comparable(left, [low, high])
    return f"{left.sql}{negated} between {low.sql} and {high.sql}"


def _like(printer: Printer, node: Any, escape: exp.Expr | None = None) -> str:
    left, right = printer.value(node.this), printer.value(node.expression)
    if right.type.literal is not None and "[" in right.type.literal:
        if escape is not None:
            raise Unfaithful("LIKE with both [ ] and ESCAPE has no form here: write [%] for a percent sign")
        sign = "!~" if node.args.get("negate") else "~"
        return f"({left.sql}) {sign} {printer.scope.literal(_regular(right.type.literal))}"
    negated = " not" if node.args.get("negate") else ""
    character = "''" if escape is None else printer.value(escape).sql
    if right.type.literal is not None and escape is None and "\\" not in right.type.literal:
        return f"{left.sql}{negated} like {right.sql}"
    return f"{left.sql}{negated} like {right.sql} escape {character}"


_OF_LIKE = re.compile(r"\[(?P<not>\^?)(?P<set>[^\]]+)\]|(?P<any>%)|(?P<one>_)|(?P<other>.)", re.DOTALL)
_PLAIN_CHARACTER = re.compile(r"\w", re.ASCII)


def _regular(pattern: str) -> str:
    """Write a pattern of LIKE that has sets of characters as a regular expression."""

    def written(found: re.Match[str]) -> str:
        if found["set"] is not None:
            return f"[{found['not']}{''.join(_in_set(one) for one in found['set'])}]"
        if found["any"]:
            return ".*"
        return "." if found["one"] else _escaped(found["other"])

    return f"^{_OF_LIKE.sub(written, pattern)}$"


def _in_set(one: str) -> str:
    return one if one == "-" else _escaped(one)


def _escaped(one: str) -> str:
    return one if _PLAIN_CHARACTER.match(one) or not one.isascii() or one.isspace() else f"\\{one}"


def _escape(printer: Printer, node: Any) -> str:
    return _like(printer, node.this, node.expression)


def _exists(printer: Printer, node: Any) -> str:
    from pybroker.tsql.expressions.rows import select  # noqa: PLC0415 - the two call each other

    query = node.this
    while isinstance(query, exp.Subquery):
        query = query.this
    return f"exists ({select(printer, query).sql})"


def _condition_in_parentheses(printer: Printer, node: Any) -> str:
    return f"({printer.condition(node.this)})"


CONDITIONS: Mapping[type[exp.Expr], Callable[..., str]] = {
    exp.And: _logical("and"),
    exp.Or: _logical("or"),
    exp.Not: _not,
    exp.Paren: _condition_in_parentheses,
    exp.EQ: _comparison("="),
    exp.NEQ: _comparison("<>"),
    exp.LT: _comparison("<"),
    exp.LTE: _comparison("<="),
    exp.GT: _comparison(">"),
    exp.GTE: _comparison(">="),
    exp.Is: _is,
    exp.In: _in,
    exp.Between: _between,
    exp.Like: _like,
    exp.Escape: _escape,
    exp.Exists: _exists,
}

VALUES: dict[type[exp.Expr], Callable[[Printer, Any], Value]] = {
    exp.Literal: _literal,
    exp.National: _national,
    exp.HexString: _hex,
    exp.Null: _null,
    exp.Parameter: _parameter,
    exp.Column: _column,
    exp.Identifier: _identifier,
    exp.Paren: _parenthesis,
    exp.Neg: _negative,
    exp.Add: _add,
    exp.Sub: _subtract,
    exp.Mul: _binary("*"),
    exp.Div: _binary("/"),
    exp.Mod: _binary("%"),
    exp.BitwiseAnd: _bits("&"),
    exp.BitwiseOr: _bits("|"),
    exp.BitwiseXor: _bits("#"),
    exp.BitwiseNot: _not_bits,
    exp.Cast: _cast,
    exp.TryCast: _cast,
    exp.Convert: _convert,
    exp.Case: _case,
    exp.If: _if,
    exp.Coalesce: _coalesce,
    exp.Nullif: _nullif,
    exp.Subquery: _subquery,
    exp.Collate: _collate,
}
