"""T-SQL's functions: one table, by sqlglot's classes and by names."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from sqlglot import exp

from pybroker.tsql import catalog
from pybroker.tsql.expressions import types
from pybroker.tsql.expressions.names import relation
from pybroker.tsql.expressions.printer import VALUES, Printer, Value, unified
from pybroker.tsql.expressions.reading import SYSDATETIME, XML_METHODS
from pybroker.tsql.expressions.types import MOMENTS, Family, Unfaithful, cast, convert, without_literal
from pybroker.tsql.translation import DEFAULT_SCHEMA, identifier

Way = Callable[[Printer, Any], Value]

# The units of DATEADD, DATEDIFF and DATEPART, with their abbreviations.
_UNITS = {
    "year": "year", "yy": "year", "yyyy": "year",
    "quarter": "quarter", "qq": "quarter", "q": "quarter",
    "month": "month", "mm": "month", "m": "month",
    "dayofyear": "dayofyear", "dy": "dayofyear", "y": "dayofyear",
    "day": "day", "dd": "day", "d": "day",
    "week": "week", "wk": "week", "ww": "week",
    "weekday": "weekday", "dw": "weekday", "dayofweek": "weekday",
    "hour": "hour", "hh": "hour",
    "minute": "minute", "mi": "minute", "n": "minute",
    "second": "second", "ss": "second", "s": "second",
    "millisecond": "millisecond", "ms": "millisecond",
    "microsecond": "microsecond", "mcs": "microsecond",
}  # fmt: skip
_INTERVALS = {
    "year": "1 year",
    "quarter": "3 months",
    "month": "1 month",
    "dayofyear": "1 day",
    "day": "1 day",
    "weekday": "1 day",
    "week": "7 days",
    "hour": "1 hour",
    "minute": "1 minute",
    "second": "1 second",
    "millisecond": "1 millisecond",
    "microsecond": "1 microsecond",
}
_PARTS_OF_DAY = frozenset({"hour", "minute", "second", "millisecond", "microsecond"})
_SECONDS = {"hour": 3600, "minute": 60, "second": 1}


def _unit(node: Any) -> str:
    written = node.args["unit"].name if "unit" in node.args else node.this.name
    unit = _UNITS.get(written.lower())
    if unit is None:
        raise Unfaithful(f"the unit {written} of a date is not known here")
    return unit


def _unwrapped(node: exp.Expr) -> exp.Expr:
    """Leave out the conversions that sqlglot puts around dates and texts."""
    while isinstance(node, exp.TimeStrToTime | exp.TsOrDsToDate):
        node = node.this
    return node


def _unwrapped_text(node: exp.Expr) -> exp.Expr:
    if isinstance(node, exp.Cast) and node.args["to"].this is exp.DType.TEXT:
        return node.this  # type: ignore[no-any-return]
    return node


def _moment(printer: Printer, node: exp.Expr) -> Value:
    value = printer.value(_unwrapped(node))
    if value.type.family is Family.TEXT:
        return Value(cast(value.sql, "timestamp"), types.DATETIME)
    if value.type.family not in MOMENTS | {Family.UNKNOWN, Family.NULL}:
        raise Unfaithful(f"{value.type.family.value} is no date: CAST it to datetime")
    return value


def _now(_printer: Printer, _node: Any) -> Value:
    return Value("cast(clock_timestamp() as timestamp(3))", types.DATETIME)


def _now_exactly(_printer: Printer, _node: Any) -> Value:
    return Value("cast(clock_timestamp() as timestamp)", types.DATETIME2)


def _now_utc_exactly(_printer: Printer, _node: Any) -> Value:
    return Value("(clock_timestamp() at time zone 'UTC')", types.DATETIME2)


def _now_with_offset(_printer: Printer, _node: Any) -> Value:
    return Value("clock_timestamp()", types.OFFSET)


def _now_utc(_printer: Printer, _node: Any) -> Value:
    return Value("cast(clock_timestamp() at time zone 'UTC' as timestamp(3))", types.DATETIME)


def _date_add(printer: Printer, node: Any) -> Value:
    unit, moment = _unit(node), _moment(printer, node.this)
    count = printer.whole(node.expression)
    factor = count if re.fullmatch(r'-?\w+|"[^"]+"', count) else f"({count})"
    sql = f"{moment.sql} + {factor} * interval '{_INTERVALS[unit]}'"
    if moment.type.family is Family.DATE and unit in _PARTS_OF_DAY:
        raise Unfaithful(f"DATEADD takes no {unit} with a date: CAST it to datetime")
    if moment.type.family is Family.DATE:
        return Value(cast(sql, "date"), moment.type)
    return Value(f"({sql})", moment.type)


def _date_difference(printer: Printer, node: Any) -> Value:
    """Count the borders of units between two moments, as DATEDIFF does, not the time."""
    unit = _unit(node)
    end, begin = (_moment(printer, one).sql for one in (node.this, node.expression))
    # sqlglot swaps the two: `this` is the later argument.
    target = "bigint" if node.args.get("big_int") else "integer"
    if unit in ("day", "dayofyear", "weekday"):
        return Value(f"(cast({end} as date) - cast({begin} as date))", types.INTEGER)
    if unit == "week":
        weeks = [f"floor((cast({one} as date) - date '1899-12-31') / 7.0)" for one in (end, begin)]
        return Value(cast(f"{weeks[0]} - {weeks[1]}", target), types.INTEGER)
    if unit in ("year", "quarter", "month"):
        counts = [_months(one, unit) for one in (end, begin)]
        return Value(cast(f"{counts[0]} - ({counts[1]})", target), types.INTEGER)
    if unit in ("millisecond", "microsecond"):
        factor = 1000 if unit == "millisecond" else 1_000_000
        counts = [f"floor(extract(epoch from {one}) * {factor})" for one in (end, begin)]
        return Value(cast(f"{counts[0]} - {counts[1]}", target), types.INTEGER)
    epochs = [f"extract(epoch from date_trunc('{unit}', {one}))" for one in (end, begin)]
    difference = f"{epochs[0]} - {epochs[1]}"
    seconds = _SECONDS[unit]
    return Value(cast(difference if seconds == 1 else f"({difference}) / {seconds}", target), types.INTEGER)


def _months(moment: str, unit: str) -> str:
    year = f"extract(year from {moment})"
    if unit == "year":
        return year
    per_year = 4 if unit == "quarter" else 12
    return f"{year} * {per_year} + extract({unit} from {moment})"


def _part(printer: Printer, unit: str, node: exp.Expr) -> Value:
    moment = _moment(printer, node).sql
    match unit:
        case "dayofyear":
            sql = f"extract(doy from {moment})"
        case "weekday":
            # SET DATEFIRST 7 is the default of English.
            sql = f"extract(dow from {moment}) + 1"
        case "second":
            sql = f"floor(extract(second from {moment}))"
        case "millisecond":
            sql = f"mod(floor(extract(millisecond from {moment})), 1000)"
        case "microsecond":
            sql = f"mod(extract(microsecond from {moment}), 1000000)"
        case "week":
            raise Unfaithful(
                "DATEPART(week) counts weeks as PostgreSQL does not: compute it from the day of year"
            )
        case _:
            sql = f"extract({unit} from {moment})"
    return Value(cast(sql, "integer"), types.INTEGER)


def _extract(printer: Printer, node: Any) -> Value:
    return _part(printer, _unit(node), node.expression)


def _fixed_part(unit: str) -> Way:
    return lambda printer, node: _part(printer, unit, node.this)


def _date_name(printer: Printer, node: Any) -> Value:
    pattern = {"%B": "FMMonth", "%A": "FMDay"}.get(node.args["format"].name)
    if pattern is None:
        raise Unfaithful("DATENAME and FORMAT are known for month and weekday: write CONVERT with a style")
    inner = node.this
    # DATENAME casts to datetime2, FORMAT does not.
    if not (isinstance(inner, exp.Cast) and inner.args["to"].this is exp.DType.DATETIME2):
        raise Unfaithful("FORMAT has no form here: write CONVERT with a style")
    return Value(f"to_char({_moment(printer, inner.this).sql}, '{pattern}')", types.TEXT)


def _new_id(_printer: Printer, _node: Any) -> Value:
    return Value("gen_random_uuid()", types.UUID)


def _length(printer: Printer, node: Any) -> Value:
    value = printer.value(_unwrapped_text(node.this))
    if value.type.family is Family.BINARY:
        return Value(f"octet_length({value.sql})", types.INTEGER)
    text = convert(value.sql, value.type, types.TEXT)
    # LEN does not count blanks at the end.
    return Value(f"length(rtrim({text}, ' '))", types.INTEGER)


def _data_length(printer: Printer, node: Any) -> Value:
    value = printer.value(_only(node))
    match value.type.family:
        case Family.BINARY:
            return Value(f"octet_length({value.sql})", types.INTEGER)
        case Family.TEXT | Family.XML:
            printer.notes.append("DATALENGTH counts bytes of UTF-8 here, not of UTF-16")
            text = value.sql if value.type.family is Family.TEXT else cast(value.sql, "text")
            return Value(f"octet_length({text})", types.INTEGER)
        case _:
            raise Unfaithful("DATALENGTH is known for texts and binaries here")


def _substring(printer: Printer, node: Any) -> Value:
    value = printer.value(node.this)
    if value.type.family is not Family.BINARY:
        value = Value(convert(value.sql, value.type, types.TEXT), types.TEXT)
    if node.args.get("length") is None:
        raise Unfaithful("SUBSTRING needs three arguments")
    start, length = printer.whole(node.args["start"]), printer.whole(node.args["length"])
    return Value(f"substr({value.sql}, {start}, {length})", without_literal(value.type))


def _on_text(function: str) -> Way:
    return lambda printer, node: Value(f"{function}({printer.text(_unwrapped_text(node.this))})", types.TEXT)


def _trim(printer: Printer, node: Any) -> Value:
    if node.expression is not None:
        raise Unfaithful("TRIM of other characters than blanks has no form here")
    function = {"LEADING": "ltrim", "TRAILING": "rtrim", None: "btrim"}[node.args.get("position")]
    return Value(f"{function}({printer.text(node.this)}, ' ')", types.TEXT)


def _replace(printer: Printer, node: Any) -> Value:
    texts = [printer.text(one) for one in (node.this, node.expression, node.args["replacement"])]
    return Value(f"replace({', '.join(texts)})", types.TEXT)


def _side(function: str) -> Way:
    def way(printer: Printer, node: Any) -> Value:
        text, count = printer.text(_unwrapped_text(node.this)), printer.whole(node.expression)
        # A negative count is an error in SQL Server, and leaves characters out in PostgreSQL.
        if not count.isdigit():
            count = f"greatest({count}, 0)"
        return Value(f'"{function}"({text}, {count})', types.TEXT)

    return way


def _position(printer: Printer, node: Any) -> Value:
    text, part = printer.text(node.this), printer.text(node.args["substr"])
    if node.args.get("position") is None:
        return Value(f"strpos({text}, {part})", types.INTEGER)
    start = printer.whole(node.args["position"])
    rest = f"strpos(substr({text}, greatest({start}, 1)), {part})"
    return Value(f"case when {rest} = 0 then 0 else {rest} + greatest({start}, 1) - 1 end", types.INTEGER)


def _stuff(printer: Printer, node: Any) -> Value:
    text, new = printer.text(node.this), printer.text(node.expression)
    start, length = printer.whole(node.args["start"]), printer.whole(node.args["length"])
    return Value(
        f"case when {start} between 1 and length({text}) and {length} >= 0"
        f" then overlay({text} placing coalesce({new}, '') from {start} for {length}) end",
        types.TEXT,
    )


def _repeat(printer: Printer, node: Any) -> Value:
    return Value(f"repeat({printer.text(node.this)}, {printer.whole(node.args['times'])})", types.TEXT)


def _space(printer: Printer, node: Any) -> Value:
    return Value(f"repeat(' ', {printer.whole(node.this)})", types.TEXT)


def _character(printer: Printer, node: Any) -> Value:
    return Value(f"chr({printer.whole(node.expressions[0])})", types.TEXT)


def _code_point(printer: Printer, node: Any) -> Value:
    return Value(f"ascii({printer.text(node.this)})", types.INTEGER)


def _concat(printer: Printer, node: Any) -> Value:
    return Value(f"concat({', '.join(printer.text(one) for one in node.expressions)})", types.TEXT)


def _joined_with(printer: Printer, node: Any) -> Value:
    return Value(f"concat_ws({', '.join(printer.text(one) for one in node.expressions)})", types.TEXT)


def _end_of_month(printer: Printer, node: Any) -> Value:
    moment = _moment(printer, node.this).sql
    last = f"date_trunc('month', {cast(moment, 'timestamp')}) + interval '1 month -1 day'"
    return Value(cast(last, "date"), types.DATE)


def _date_of(printer: Printer, node: Any) -> Value:
    parts = ", ".join(printer.whole(node.args[one]) for one in ("year", "month", "day"))
    return Value(f"make_date({parts})", types.DATE)


def _string_agg(printer: Printer, node: Any) -> Value:
    from pybroker.tsql.expressions.rows import ordering  # noqa: PLC0415 - the two call each other

    inner, order = node.this, ""
    if isinstance(inner, exp.Order):
        order = f" order by {', '.join(ordering(printer, one) for one in inner.expressions)}"
        inner = inner.this
    return Value(
        f"string_agg({printer.text(inner)}, {printer.text(node.args['separator'])}{order})", types.TEXT
    )


def _same_number(function: str) -> Way:
    def way(printer: Printer, node: Any) -> Value:
        value = printer.value(node.this)
        if value.type.family is Family.INTEGER and function in ("ceil", "floor"):
            return Value(value.sql, types.without_literal(value.type))
        if value.type.family is Family.INTEGER and function == "sign":
            # PostgreSQL's is a floating-point number, which is divided with a rest.
            return Value(cast(f"sign({value.sql})", value.type), without_literal(value.type))
        found = types.digits_of(value.type, value.sql)
        if value.type.family is Family.DECIMAL and found is not None and function != "abs":
            scale = found[1] if function == "sign" else 0
            sql = f"round(sign({value.sql}), {scale})" if function == "sign" else f"{function}({value.sql})"
            return Value(sql, types.decimal(found[0], scale))
        return Value(f"{function}({value.sql})", without_literal(value.type))

    return way


def _round(printer: Printer, node: Any) -> Value:
    value = printer.value(node.this)
    if node.args.get("truncate") is not None or value.type.family not in (Family.DECIMAL, Family.INTEGER):
        raise Unfaithful("ROUND is known for decimal numbers here: CAST it to decimal(p, s)")
    decimals = printer.whole(node.args["decimals"]) if node.args.get("decimals") is not None else "0"
    rounded = f"round({value.sql}, {decimals})"
    found = types.digits_of(value.type)
    if value.type.family is Family.DECIMAL and found is not None:
        # The digits that are rounded off stay as zeros.
        return Value(f"round({rounded}, {found[1]})", types.decimal(found[0] + 1, found[1]))
    whole = value.type.family is Family.INTEGER
    return Value(cast(rounded, value.type) if whole else rounded, without_literal(value.type))


def _power(printer: Printer, node: Any) -> Value:
    value, exponent = printer.value(node.this), printer.value(node.expression)
    sql = f"power({value.sql}, {exponent.sql})"
    if value.type.family is Family.INTEGER:
        return Value(cast(f"trunc({sql})", value.type), without_literal(value.type))
    found = types.digits_of(value.type)
    if value.type.family is Family.DECIMAL and found is not None:
        return Value(f"round({sql}, {found[1]})", types.decimal(38, found[1]))
    return Value(sql, without_literal(value.type))


def _root(printer: Printer, node: Any) -> Value:
    return Value(f"sqrt({printer.value(node.this).sql})", types.FLOAT)


def _random(_printer: Printer, node: Any) -> Value:
    if node.this is not None:
        raise Unfaithful("RAND with a seed gives other numbers here: write RAND()")
    return Value("random()", types.FLOAT)


def _hash(function: str) -> Way:
    def way(printer: Printer, node: Any) -> Value:
        binary = printer.converted(node.this, types.BINARY)
        name = f"sha{node.args['length'].this}" if function == "sha" else function
        if name == "md5":
            return Value(f"decode(md5({binary}), 'hex')", types.BINARY)
        return Value(f"{name}({binary})", types.BINARY)

    return way


# Aggregates.


def _over(printer: Printer) -> str:
    """Return the window of the aggregate that is printed, which stands within its casts."""
    over, printer.over = printer.over, ""
    return over


def _count(printer: Printer, node: Any) -> Value:
    over, inner = _over(printer), node.this
    if isinstance(inner, exp.Star):
        sql = "count(*)"
    elif isinstance(inner, exp.Distinct):
        sql = f"count(distinct {', '.join(printer.value(one).sql for one in inner.expressions)})"
    else:
        sql = f"count({printer.value(inner).sql})"
    return Value(f"{sql}{over}", types.BIGINT if node.args.get("big_int") else types.INTEGER)


def _aggregate(function: str) -> Way:
    def way(printer: Printer, node: Any) -> Value:
        over, inner, distinct = _over(printer), node.this, ""
        if isinstance(inner, exp.Distinct):
            inner, distinct = inner.expressions[0], "distinct "
        value = printer.value(inner)
        if value.type.family is Family.UUID:
            # PostgreSQL has max of uuid from 18 on, and another order of them.
            raise Unfaithful(f"{function.upper()} of a uniqueidentifier has another order here")
        if value.type.family is Family.BIT:
            raise Unfaithful(f"{function.upper()} takes no bit: CAST it to int")
        sql = f"{function}({distinct}{value.sql}){over}"
        if function == "sum" and value.type == types.BIGINT:
            # PostgreSQL's is numeric, which is divided with a rest.
            return Value(cast(sql, "bigint"), types.BIGINT)
        found = types.digits_of(value.type)
        if function == "sum" and value.type.family is Family.DECIMAL and found is not None:
            return Value(sql, types.decimal(38, found[1]))
        return Value(sql, without_literal(value.type))

    return way


def _average(printer: Printer, node: Any) -> Value:
    over, value = _over(printer), printer.value(node.this)
    if value.type.family is Family.UNKNOWN:
        raise Unfaithful("AVG of whole numbers is a whole number; the column's type is not known: CAST it")
    if value.type.family is Family.BIT:
        raise Unfaithful("AVG takes no bit: CAST it to int")
    sql = f"avg({value.sql}){over}"
    if value.type.family is Family.INTEGER:
        return Value(cast(f"trunc({sql})", value.type), value.type)
    if value.type.family is Family.DECIMAL:
        found = types.digits_of(value.type)
        if found is None or value.type.money:
            raise Unfaithful(
                "how many digits AVG gives is not known here: CAST its argument to decimal(p, s)"
            )
        scale = max(found[1], 6)
        return Value(f"trunc({sql}, {scale})", types.decimal(38, scale))
    return Value(sql, without_literal(value.type))


def _window(printer: Printer, node: Any) -> Value:
    from pybroker.tsql.expressions.rows import ordering  # noqa: PLC0415 - the two call each other

    if node.args.get("alias") is not None:
        raise Unfaithful("a window with a name has no form here: write it behind OVER")
    parts = []
    if node.args.get("partition_by"):
        parts.append(f"partition by {', '.join(printer.value(one).sql for one in node.args['partition_by'])}")
    if node.args.get("order") is not None:
        parts.append(
            f"order by {', '.join(ordering(printer, one) for one in node.args['order'].expressions)}"
        )
    if node.args.get("spec") is not None:
        parts.append(_frame(node.args["spec"]))
    printer.over = f" over ({' '.join(parts)})"
    value = printer.value(node.this)
    if printer.over:
        raise Unfaithful("OVER stands behind an aggregate or a number of rows here")
    return value


def _frame(spec: Any) -> str:
    ends = [
        f"{one if isinstance(one, str) else one.name} {spec.args.get(f'{name}_side') or ''}".strip().lower()
        for name in ("start", "end")
        if (one := spec.args.get(name)) is not None
    ]
    kind = str(spec.args["kind"]).lower()
    return f"{kind} {ends[0]}" if len(ends) == 1 else f"{kind} between {ends[0]} and {ends[1]}"


def _neighbour(function: str) -> Way:
    """LAG, LEAD, FIRST_VALUE and LAST_VALUE."""

    def way(printer: Printer, node: Any) -> Value:
        over = _over(printer)
        value = printer.value(node.this)
        given = [value.sql]
        if node.args.get("offset") is not None:
            given.append(printer.whole(node.args["offset"]))
        if node.args.get("default") is not None:
            # Of both PostgreSQL wants one type.
            given[0] = cast(value.sql, without_literal(value.type).sql) if value.type.literal else value.sql
            default = printer.converted(node.args["default"], without_literal(value.type))
            given.append(cast(default, without_literal(value.type)))
        return Value(f"{function}({', '.join(given)}){over}", without_literal(value.type))

    return way


def _row_number(function: str) -> Way:
    return lambda printer, _node: Value(f"{function}(){_over(printer)}", types.BIGINT)


# Functions that sqlglot leaves as they are written.


def _only(node: Any) -> exp.Expr:
    if len(node.expressions) != 1:
        raise Unfaithful(f"{node.name.upper()} takes one argument")
    return node.expressions[0]  # type: ignore[no-any-return]


def _scoped(printer: Printer, node: Any) -> Value:
    """XACT_STATE(), SCOPE_IDENTITY() and the ERROR_…() functions: who runs the code knows them."""
    variable = printer.scope.variable(f"{node.name}()")
    return Value(variable.sql, variable.type)


def _transmission_status(printer: Printer, node: Any) -> Value:
    return Value(f"broker.get_transmission_status({printer.converted(_only(node), types.UUID)})", types.TEXT)


def _choose(printer: Printer, node: Any) -> Value:
    index, *rest = node.expressions
    values, type_ = unified(printer, rest)
    number = printer.whole(index)
    cases = " ".join(f"when {at} then {value}" for at, value in enumerate(values, 1))
    return Value(f"case {number} {cases} end", type_)


def _fixed(sql: str, type_: types.Type) -> Way:
    def way(_printer: Printer, node: Any) -> Value:
        if node.expressions:
            raise Unfaithful(f"{node.name.upper()} is known without arguments here")
        return Value(sql, type_)

    return way


def _object_id(printer: Printer, node: Any) -> Value:
    """OBJECT_ID: the oid of a table, view or procedure, or NULL."""
    name = node.this
    if not (isinstance(name, exp.Literal) and name.is_string) and not isinstance(name, exp.National):
        raise Unfaithful("OBJECT_ID takes a name in quotes here")
    words = [one.strip("[]") for one in str(name.this).split(".")]
    kind = node.expression.name.strip().upper() if node.expression is not None else ""
    if words[0].lower() == "tempdb" or words[-1].startswith("#"):
        temporary = printer.scope.table_variables.get(words[-1].casefold())
        sql = temporary.sql if temporary is not None else f"pg_temp.{identifier(words[-1].lstrip('#'))}"
        return Value(f"cast(to_regclass({printer.scope.literal(sql)}) as oid)", types.BIGINT)
    *database, schema = words[:-1] or [DEFAULT_SCHEMA]
    if database and (len(database) > 1 or not printer.scope.is_here(database[0])):
        raise Unfaithful("an object of another database is not known here")
    schema = schema or DEFAULT_SCHEMA
    path = printer.scope.literal(f"{identifier(schema)}.{identifier(words[-1])}")
    table, routine = f"cast(to_regclass({path}) as oid)", f"cast(to_regproc({path}) as oid)"
    if kind in ("P", "FN", "TF", "IF"):
        return Value(routine, types.BIGINT)
    if kind in ("U", "V", "SQ", "S"):
        return Value(table, types.BIGINT)
    return Value(f"coalesce({table}, {routine})", types.BIGINT)


def _quote_name(printer: Printer, node: Any) -> Value:
    if len(node.expressions) != 1:
        raise Unfaithful("QUOTENAME takes one argument here")
    text = printer.text(node.expressions[0])
    return Value(f"'[' || replace({text}, ']', ']]') || ']'", types.TEXT)


_STR_LENGTH, _STR_DECIMALS = 10, 0


def _number_as_text(printer: Printer, node: Any) -> Value:
    """STR: a number with blanks before it, and asterisks where it is too long."""
    given = [*node.expressions]
    if not 1 <= len(given) <= 3:  # noqa: PLR2004 - a number, a length, decimals
        raise Unfaithful("STR takes a number, a length and decimals")
    number = cast(f"{printer.converted(given[0], types.FLOAT)}", "numeric")
    length, decimals = (
        _written_number(given[at]) if at < len(given) else default
        for at, default in ((1, _STR_LENGTH), (2, _STR_DECIMALS))
    )
    # What does not fit loses decimals first.
    kept = f"least({decimals}, greatest({length} - 1 - length(cast(trunc({number}) as text)), 0))"
    text = f"cast(round({number}, {kept}) as text)" if decimals else f"cast(round({number}) as text)"
    return Value(
        f"case when length({text}) > {length} then repeat('*', {length}) else lpad({text}, {length}) end",
        types.TEXT,
    )


def _written_number(node: exp.Expr) -> int:
    if not isinstance(node, exp.Literal) or node.is_string or not str(node.this).isdigit():
        raise Unfaithful("the length and decimals of STR are written as numbers here")
    return int(node.this)


_PROPERTIES = {
    "status": "'ONLINE'",
    "updateability": "case when pg_is_in_recovery() then 'READ_ONLY' else 'READ_WRITE' end",
    "useraccess": "'MULTI_USER'",
}


def _database_property(printer: Printer, node: Any) -> Value:
    """DATABASEPROPERTYEX: NULL of a database that is not there."""
    if len(node.expressions) != 2:  # noqa: PLR2004 - a name and a property
        raise Unfaithful("DATABASEPROPERTYEX takes a database and a property")
    name, asked = node.expressions
    written = asked.this if isinstance(asked, exp.National) else asked.name
    sql = _PROPERTIES.get(str(written).lower()) if isinstance(asked, exp.National | exp.Literal) else None
    if sql is None:
        raise Unfaithful(
            "DATABASEPROPERTYEX knows Status, Updateability and UserAccess here: ask sys.databases"
        )
    databases = printer.scope.beside_placeholders(catalog.relation("databases") or "")
    value = f"(select {sql} from {databases} d where lower(d.name) = lower({printer.text(name)}))"
    return Value(value, types.TEXT)


def _object_name(printer: Printer, node: Any) -> Value:
    """OBJECT_NAME(@@PROCID): the name of the module that reads it."""
    inner = _only(node)
    is_own = isinstance(inner, exp.Parameter) and inner.this.name.upper() == "PROCID"
    if not is_own or printer.scope.module is None:
        raise Unfaithful("OBJECT_NAME is known of @@PROCID here, in a module: join sys.objects")
    return Value(printer.scope.literal(printer.scope.module), types.TEXT)


def _anonymous(printer: Printer, node: Any) -> Value:
    way = BY_NAME.get(node.name.lower())
    if way is None:
        raise Unfaithful(f"the function {node.name.upper()} has no form here: write it without")
    return way(printer, node)


def arguments_of(printer: Printer, schema: str, method: Any) -> list[str]:
    """Print the arguments of a function of the scripts, each as its parameter takes it."""
    known = printer.scope.parameters.get(f"{schema}.{method.name}".casefold(), ())
    printed: list[str] = []
    is_named = False
    for at, one in enumerate(method.expressions):
        name, kind = known[at] if at < len(known) else ("", types.UNKNOWN)
        if isinstance(one, exp.Column) and one.name.upper() == "DEFAULT" and not one.this.args.get("quoted"):
            if not name:
                raise Unfaithful("DEFAULT of a function that no script here makes: write the value")
            is_named = True
            continue
        # What stands behind a default has to say which parameter it is for.
        before = f"{identifier(name)} => " if is_named else ""
        if kind is types.UNKNOWN:
            printed.append(before + printer.value(one).sql)
            continue
        value = printer.converted(one, kind)
        # PostgreSQL makes no smallint of an integer in a call.
        printed.append(before + (types.cast(value, kind) if kind.sql == "smallint" else value))
    return printed


def _dot(printer: Printer, node: Any) -> Value:
    """A function with its schema, or a method of XML."""
    from pybroker.tsql.expressions import xml  # noqa: PLC0415 - the two call each other

    method = node.expression
    if isinstance(method, exp.Anonymous) and method.name.lower() in XML_METHODS:
        return xml.method(printer, node.this, method)
    schema = node.this
    if isinstance(method, exp.Anonymous) and isinstance(schema, exp.Identifier):
        arguments = arguments_of(printer, schema.name, method)
        known = printer.scope.functions.get(f"{schema.name}.{method.name}".casefold(), types.UNKNOWN)
        return Value(f"{relation(schema.name, method.name)}({', '.join(arguments)})", known)
    raise Unfaithful("this has no form here")


BY_NAME: dict[str, Way] = {
    **dict.fromkeys(
        (
            "xact_state",
            "error_number",
            "error_message",
            "error_severity",
            "error_state",
            "error_line",
            "error_procedure",
            "scope_identity",
        ),
        _scoped,
    ),
    "choose": _choose,
    "databasepropertyex": _database_property,
    "datalength": _data_length,
    "db_id": _fixed(
        "(select d.oid::bigint from pg_database d where d.datname = current_database())", types.BIGINT
    ),
    "db_name": _fixed("current_database()", types.TEXT),
    # SQL Server's full-text search is not installed here.
    "fulltextserviceproperty": lambda _printer, _node: Value("0", types.INTEGER),
    "get_transmission_status": _transmission_status,
    "getutcdate": _now_utc,
    "nchar": _character,
    "newsequentialid": _new_id,
    "object_name": _object_name,
    "original_login": _fixed("session_user", types.TEXT),
    "quotename": _quote_name,
    "str": _number_as_text,
    "suser_name": _fixed("session_user", types.TEXT),
    SYSDATETIME.lower(): _now_exactly,
    "sysutcdatetime": _now_utc_exactly,
    "user_name": _fixed("current_user", types.TEXT),
}

VALUES.update(
    {
        exp.Abs: _same_number("abs"),
        exp.Anonymous: _anonymous,
        exp.Ascii: _code_point,
        exp.Avg: _average,
        exp.Ceil: _same_number("ceil"),
        exp.Chr: _character,
        exp.Concat: _concat,
        exp.ConcatWs: _joined_with,
        exp.Count: _count,
        exp.CurrentTimestamp: _now,
        exp.CurrentTimestampLTZ: _now_with_offset,
        exp.CurrentUser: lambda _printer, _node: Value("session_user", types.TEXT),
        exp.DateAdd: _date_add,
        exp.DateDiff: _date_difference,
        exp.DateFromParts: _date_of,
        exp.Day: _fixed_part("day"),
        exp.DenseRank: _row_number("dense_rank"),
        exp.Dot: _dot,
        exp.Extract: _extract,
        exp.FirstValue: _neighbour("first_value"),
        exp.Floor: _same_number("floor"),
        exp.GroupConcat: _string_agg,
        exp.Lag: _neighbour("lag"),
        exp.LastDay: _end_of_month,
        exp.LastValue: _neighbour("last_value"),
        exp.Lead: _neighbour("lead"),
        exp.Left: _side("left"),
        exp.Length: _length,
        exp.Lower: _on_text("lower"),
        exp.MD5: _hash("md5"),
        exp.Max: _aggregate("max"),
        exp.Min: _aggregate("min"),
        exp.Month: _fixed_part("month"),
        exp.ObjectId: _object_id,
        exp.Pow: _power,
        exp.Rand: _random,
        exp.Rank: _row_number("rank"),
        exp.Repeat: _repeat,
        exp.Replace: _replace,
        exp.Reverse: _on_text("reverse"),
        exp.Right: _side("right"),
        exp.Round: _round,
        exp.RowNumber: _row_number("row_number"),
        exp.SHA2: _hash("sha"),
        exp.SessionUser: lambda _printer, _node: Value("current_user", types.TEXT),
        exp.Sign: _same_number("sign"),
        exp.Space: _space,
        exp.Sqrt: _root,
        exp.StrPosition: _position,
        exp.Stuff: _stuff,
        exp.Substring: _substring,
        exp.Sum: _aggregate("sum"),
        exp.TimeToStr: _date_name,
        exp.Trim: _trim,
        exp.Unicode: _code_point,
        exp.Upper: _on_text("upper"),
        exp.Uuid: _new_id,
        exp.Window: _window,
        exp.Year: _fixed_part("year"),
    }
)
