"""INSERT, UPDATE, DELETE and TRUNCATE in PostgreSQL's SQL."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sqlglot import Token, TokenType, exp

from pybroker.tsql.expressions import through_queries, types
from pybroker.tsql.expressions.names import exact, folded
from pybroker.tsql.expressions.printer import Printer, Source
from pybroker.tsql.expressions.reading import at_top, closing, parse, place_of, text_of, token, tokens_of
from pybroker.tsql.expressions.rows import common_tables, hints, joins_of, relation_of, select, table
from pybroker.tsql.expressions.types import Type, Unfaithful, convert
from pybroker.tsql.source import ScriptError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pybroker.tsql.expressions.scope import Columns, Scope, Variable
    from pybroker.tsql.language.tree import Code

_ENDS_OF_OUTPUT = frozenset(
    {"FROM", "WHERE", "VALUES", "SELECT", "DEFAULT", "EXEC", "EXECUTE", "OPTION", "WITH"}
)
_ENDS_OF_SET = frozenset({"FROM", "WHERE", "OUTPUT", "OPTION", "WHEN"})
_ARITHMETIC = {
    TokenType.PLUS,
    TokenType.DASH,
    TokenType.STAR,
    TokenType.SLASH,
    TokenType.MOD,
    TokenType.AMP,
    TokenType.PIPE,
    TokenType.CARET,
}


@dataclass(frozen=True, slots=True)
class Change:
    """A statement that changes rows, the rows that it returns, and the table that gets new ones.

    `counts_on` is a query that lets an IDENTITY column go on behind values that it was given, and `locks` one
    that locks the rows before.
    """

    sql: str
    columns: list[tuple[str | None, Type]]
    assigned: list[tuple[str, Type]]
    inserts: str | None = None
    counts_on: str | None = None
    locks: str | None = None


@dataclass(slots=True)
class _Clauses:
    """What was taken out of the tokens, as sqlglot does not read it."""

    output: list[Any]
    into: Any = None
    into_columns: tuple[str, ...] = ()
    top: exp.Expr | None = None


def change(
    code: Code, scope: Scope, notes: list[str], tokens: list[Token], namespaces: Mapping[str, str]
) -> Change:
    """Print INSERT, UPDATE, DELETE, MERGE or TRUNCATE.

    Raises:
        ScriptError: there is no faithful form.
    """
    tokens, clauses = _taken_out(code, tokens)
    tree = parse(code, tokens)
    printer = Printer(code, scope, notes=notes, namespaces=namespaces)
    ways: dict[Any, Any] = {
        exp.Insert: _insert,
        exp.Update: _update,
        exp.Delete: _delete,
        exp.TruncateTable: _truncate,
        exp.Merge: _merge,
    }
    way = ways.get(type(tree), _refused)
    try:
        return _with_queries(printer, tree, clauses, way)
    except Unfaithful as reason:
        raise ScriptError(place_of(code, tree), str(reason)) from None


def _with_queries(printer: Printer, node: Any, clauses: _Clauses, way: Any) -> Change:
    """Print a change with the WITH before it."""
    if node.args.get("with_") is None:
        return way(printer, node, clauses)  # type: ignore[no-any-return]
    if isinstance(node, exp.Update | exp.Delete):
        through = through_queries.find(printer, node)
        if through is not None:
            return _changed_through(printer, node, clauses, through)
    prefix = common_tables(printer, node)
    done: Change = way(printer, node, clauses)
    if done.locks is not None:
        raise Unfaithful(
            "OUTPUT of the value before an UPDATE beside WITH has no form here: SELECT it before"
        )
    rest = f"{prefix.rstrip()}, {done.sql.removeprefix('with ')}"
    return replace(done, sql=rest if done.sql.startswith("with ") else prefix + done.sql)


def _changed_through(
    printer: Printer, node: Any, clauses: _Clauses, through: through_queries.Through
) -> Change:
    """Print UPDATE or DELETE of a query of WITH."""
    if clauses.top is not None:
        raise Unfaithful(f"TOP beside WITH: write it in the query of {through.name}")
    for one in clauses.output:
        for column in one.find_all(exp.Column):
            if isinstance(column.this, exp.Star) and set(through.columns or through.written) != set(
                through.known or ()
            ):
                raise Unfaithful(f"OUTPUT of * from {through.name}: list the columns")
            if not isinstance(column.this, exp.Star) and through.column(column.name) != column.name:
                raise Unfaithful(
                    f"OUTPUT of {column.name} from {through.name}: give it the column's own name"
                )
    is_update = isinstance(node, exp.Update)
    owner = "changed." if is_update else ""
    printer.sources.append(through_queries.source(through, owner))
    changed = None
    if is_update:
        sets = through_queries.values(printer, node, through)
        changed = {through.column(one.this.name).casefold() for one in node.expressions}
        sql = f"update {through.table} as changed set {sets}"
    else:
        sql = f"delete from {through.table}"
    sql = f"{through.prefix}{sql}{through_queries.conditions(printer, node, through, owner)}"
    printer.sources.pop()
    kind = "updated" if is_update else "deleted"
    done = _with_output(printer, sql, clauses, through.known, kind, changed=changed, owner=owner)
    return replace(done, locks=through.locks)


def _taken_out(code: Code, tokens: list[Token]) -> tuple[list[Token], _Clauses]:
    _refuse_current(code, tokens)
    clauses = _Clauses([])
    tokens = _without_top(code, tokens, clauses)
    tokens = _without_compound(tokens, _merged_name(tokens))
    return _without_output(code, tokens, clauses), clauses


def _refuse_current(code: Code, tokens: list[Token]) -> None:
    for at, one in at_top(tokens):
        if _word(one) == "CURRENT" and at and _word(tokens[at - 1]) == "WHERE":
            raise ScriptError(
                code.place(one.start),
                "WHERE CURRENT OF has no form here: FETCH the key INTO a variable, write WHERE key = @key",
            )


def _word(one: Token) -> str:
    return "" if one.token_type is TokenType.IDENTIFIER else str(one.text).upper()


def _without_top(code: Code, tokens: list[Token], clauses: _Clauses) -> list[Token]:
    verbs = [index for index, one in at_top(tokens) if _word(one) in ("INSERT", "UPDATE", "DELETE")]
    if not verbs or verbs[0] + 2 >= len(tokens) or _word(tokens[verbs[0] + 1]) != "TOP":
        return tokens
    begin = verbs[0] + 2
    if tokens[begin].token_type is not TokenType.L_PAREN:
        raise ScriptError(code.place(tokens[begin].start), "the number behind TOP stands in parentheses here")
    end = closing(tokens, begin)
    clauses.top = parse(text_of(code, tokens[begin + 1 : end]))
    if end + 1 < len(tokens) and _word(tokens[end + 1]) == "PERCENT":
        raise ScriptError(code.place(tokens[end + 1].start), "TOP … PERCENT has no form here: write a number")
    return [*tokens[: verbs[0] + 1], *tokens[end + 1 :]]


def _merged_name(tokens: list[Token]) -> list[Token]:
    """Return the name of the target of MERGE with a point, as its columns are not alone in a value."""
    if not tokens or _word(tokens[0]) != "MERGE":
        return []
    using = next((index for index, one in at_top(tokens) if _word(one) == "USING"), 1)
    return [tokens[using - 1], token(TokenType.DOT, ".", tokens[using - 1])]


def _without_compound(tokens: list[Token], owner: list[Token]) -> list[Token]:
    """Write `a += b` as `a = a + (b)`."""
    if not tokens or _word(tokens[0]) not in ("UPDATE", "MERGE"):
        return tokens
    tops = dict(at_top(tokens))
    found: list[Token] = []
    index, open_ = 0, False
    while index < len(tokens):
        one = tokens[index]
        ends = index in tops and (one.token_type is TokenType.COMMA or _word(one) in _ENDS_OF_SET)
        if open_ and ends:
            found.append(token(TokenType.R_PAREN, ")", one))
            open_ = False
        follows = tokens[index + 1] if index + 1 < len(tokens) else None
        if (
            one.token_type in _ARITHMETIC
            and follows is not None
            and follows.token_type is TokenType.EQ
            and follows.start == one.end + 1
            and index in tops
        ):
            target = _target_before(found)
            target = target if len(target) > 1 else [*owner, *target]
            found += [follows, *target, one, token(TokenType.L_PAREN, "(", one)]
            index, open_ = index + 2, True
            continue
        found.append(one)
        index += 1
    if open_:
        found.append(token(TokenType.R_PAREN, ")", tokens[-1]))
    return found


def _target_before(found: list[Token]) -> list[Token]:
    begin = len(found) - 1
    while begin > 0 and found[begin - 1].token_type in (TokenType.DOT, TokenType.PARAMETER):
        begin -= 2 if found[begin - 1].token_type is TokenType.DOT else 1
    return found[begin:]


def _without_output(code: Code, tokens: list[Token], clauses: _Clauses) -> list[Token]:
    tops = list(at_top(tokens))
    begin = next((index for index, one in tops if _word(one) == "OUTPUT"), None)
    if begin is None:
        return tokens
    end = next((index for index, one in tops if index > begin and _word(one) in _ENDS_OF_OUTPUT), len(tokens))
    into = next((index for index, one in tops if begin < index < end and _word(one) == "INTO"), end)
    listed = text_of(code, tokens[begin + 1 : into])
    items = [*tokens_of(listed)]
    select_ = token(TokenType.SELECT, "SELECT", items[0]) if items else None
    tree: Any = parse(listed, [select_, *items] if select_ else [])
    clauses.output = list(tree.expressions)
    for one in clauses.output:
        for column in one.find_all(exp.Column):
            column.meta["output"] = True
    if into < end:
        _read_into(code, tokens[into + 1 : end], clauses)
    return [*tokens[:begin], *tokens[end:]]


def _read_into(code: Code, tokens: Sequence[Token], clauses: _Clauses) -> None:
    paren = next((at for at, one in enumerate(tokens) if one.token_type is TokenType.L_PAREN), len(tokens))
    name = text_of(code, tokens[:paren])
    prefix = [token(TokenType.SELECT, "SELECT", tokens[0]), token(TokenType.STAR, "*", tokens[0])]
    prefix.append(token(TokenType.FROM, "FROM", tokens[0]))
    tree: Any = parse(name, [*prefix, *tokens_of(name)])
    clauses.into = tree.args["from_"].this
    clauses.into_columns = tuple(
        str(one.text) for one in tokens[paren:] if one.token_type in (TokenType.VAR, TokenType.IDENTIFIER)
    )


# INSERT.


def _insert(printer: Printer, node: Any, clauses: _Clauses) -> Change:
    target, listed = node.this, []
    if isinstance(target, exp.Schema):
        target, listed = target.this, [one.name for one in target.expressions]
    if clauses.top is not None:
        raise Unfaithful("INSERT TOP has no form here: write TOP in the SELECT")
    hints(printer, target, [], "")
    name, known = relation_of(printer, target)
    identity = _given_identity(printer, name, listed, known)
    if not listed and known is not None and any(type_.is_made for type_ in known.values()):
        listed = [one for one, type_ in known.items() if not type_.is_made]
    columns = listed or (None if known is None else list(known))
    typed = [(known or {}).get(one.casefold(), types.UNKNOWN) for one in columns or []]
    head = f"insert into {name}" + (f" ({', '.join(map(folded, listed))})" if listed else "")
    head += " overriding system value" if identity else ""
    source = node.expression
    if node.args.get("default"):
        body = "default values"
    elif isinstance(source, exp.Values):
        body = _values(printer, source, typed)
    else:
        body = _inserted_rows(printer, source, typed)
    done = _with_output(printer, f"{head} {body}", clauses, known, "inserted")
    counts_on = None if identity is None else _counting_on(printer, name, identity)
    return replace(done, inserts=name, counts_on=counts_on)


def _given_identity(printer: Printer, name: str, listed: list[str], known: Columns | None) -> str | None:
    """Return the IDENTITY column that INSERT gives values, behind SET IDENTITY_INSERT."""
    if printer.scope.identity_insert != name:
        return None
    made = [one for one in listed if (known or {}).get(one.casefold(), types.UNKNOWN).is_made]
    if not made:
        raise Unfaithful("IDENTITY_INSERT is ON: list the columns, with the one that has IDENTITY")
    return made[0]


def _counting_on(printer: Printer, name: str, column: str) -> str:
    """Write a query that sets the counter of an IDENTITY column to its furthest value."""
    table_, column_ = printer.scope.literal(name), printer.scope.literal(column.lower())
    sequence = f"pg_get_serial_sequence({table_}, {column_})"
    last = "coalesce(pg_sequence_last_value(q.seqrelid), q.seqstart)"
    end = folded(column)
    return (
        "select setval(q.seqrelid, cast(case when q.seqincrement > 0 then t.most else t.least end as bigint))"
        f" from pg_catalog.pg_sequence q, (select max({end}) as most, min({end}) as least from {name}) t"
        f" where q.seqrelid = cast({sequence} as regclass)"
        f" and case when q.seqincrement > 0 then t.most >= {last} else t.least <= {last} end"
    )


def _values(printer: Printer, node: Any, typed: list[Type]) -> str:
    rows = []
    for row in node.expressions:
        cells = row.expressions if isinstance(row, exp.Tuple) else [row]
        rows.append(
            "("
            + ", ".join(
                "default"
                if isinstance(cell, exp.Var) and cell.name.upper() == "DEFAULT"
                else printer.converted(cell, typed[at] if at < len(typed) else types.UNKNOWN)
                for at, cell in enumerate(cells)
            )
            + ")"
        )
    return f"values {', '.join(rows)}"


def _inserted_rows(printer: Printer, node: Any, typed: list[Type]) -> str:
    rows = select(printer, node)
    wanted = [typed[at] if at < len(typed) else types.UNKNOWN for at in range(len(rows.columns))]
    pairs = list(zip(rows.columns, wanted, strict=True))
    if all(one.family is other.family or _assignable(one, other) for (_, one), other in pairs):
        return rows.sql
    if any(heading == "*" for heading, _ in rows.columns):
        raise Unfaithful(
            "the types behind * are not known: list the columns, and let its CREATE TABLE stand here"
        )
    return _converted_rows(rows.sql, [source for (_, source), _ in pairs], wanted)


def assigned_rows(sql: str, sources: Sequence[Type], targets: Sequence[Type]) -> str:
    """Write the rows of a query, of types that are known, as INSERT takes them.

    Raises:
        Unfaithful: PostgreSQL can't give what SQL Server would.
    """
    pairs = zip(sources, targets, strict=True)
    if all(one.family is other.family or _assignable(one, other) for one, other in pairs):
        return sql
    return _converted_rows(sql, sources, targets)


def _converted_rows(sql: str, sources: Sequence[Type], targets: Sequence[Type]) -> str:
    names = [f"c{number}" for number in range(1, len(sources) + 1)]
    # Within r a literal and NULL have types of their own.
    items = [
        "null"
        if source.family is types.Family.NULL
        else convert(f"r.{name}", types.without_literal(source), target)
        for name, source, target in zip(names, sources, targets, strict=True)
    ]
    return f"select {', '.join(items)} from ({sql}) r ({', '.join(names)})"


def _assignable(source: Type, target: Type) -> bool:
    """Whether PostgreSQL's own conversion on assignment gives what SQL Server's does."""
    if source.family is types.Family.NULL:
        return True
    if source.literal is not None:
        # 'true' is a bit.
        return target.family is not types.Family.BIT
    if target.family is types.Family.UNKNOWN:
        return source.family is not types.Family.BINARY
    if source.family is types.Family.UNKNOWN:
        return target.family is not types.Family.TEXT
    return source.family is types.Family.INTEGER and target.family in types.NUMBERS - {types.Family.BIT}


# UPDATE and DELETE.


def _target(node: Any, from_: Any) -> Any:
    """Return the table that changes; FROM may name it by an alias."""
    wanted = node.this if isinstance(node.this, exp.Table) else node.this.this
    if from_ is None:
        return wanted
    own = wanted.name.casefold()
    for one in [from_.this, *(join.this for join in from_.this.args.get("joins") or [])]:
        if not isinstance(one, exp.Table):
            continue
        if one.alias and one.alias.casefold() == own:
            return one
        if not one.alias and not isinstance(one.this, exp.Parameter) and one.name.casefold() == own:
            return one
        if (
            isinstance(one.this, exp.Parameter)
            and isinstance(wanted.this, exp.Parameter)
            and one.this.name == wanted.this.name
        ):
            return one
    return wanted


# What UPDATE reads a row's values from as they were, the place of a row, and what outer joins begin with.
_BEFORE, _ROW, _EMPTY = "@@before", "@@row", "@@one"


@dataclass(slots=True)
class _Changed:
    """The table that UPDATE or DELETE changes, and the others that it reads.

    Attributes:
        node: the table, as it is written.
        head: the table, with its alias.
        name: what its columns may stand behind.
        known: its columns.
        skips: whether rows that others lock are left out.
        others: further tables of FROM.
        conditions: of their joins, and of WHERE.
        joined: all of FROM as a query of one row of the table that changes, where outer joins are in it.
    """

    node: Any
    head: str
    name: str
    known: Columns | None
    skips: bool
    others: list[str]
    conditions: list[str]
    joined: str = ""

    @property
    def owner(self) -> str:
        """What stands before columns that several tables may have."""
        return f"{folded(self.name)}." if self.others else ""


def _changed(printer: Printer, node: Any, from_: Any, target: Any, clauses: _Clauses) -> _Changed:
    """Print the tables and conditions of UPDATE and DELETE, and remember the tables' columns."""
    sources: dict[str, Source] = {}
    locks: list[str] = []
    head, name = table(printer, target, sources, locks)
    skips = any("skip locked" in one for one in locks)
    one = _Changed(target, head, name, sources[name.casefold()].columns, skips, [], [])
    _others(printer, node, from_, sources, one)
    printer.sources.append(sources)
    where = node.args.get("where")
    if where is not None:
        one.conditions.append(printer.condition(where.this))
    if one.joined:
        owners = {column.table.lower() for each in clauses.output for column in each.find_all(exp.Column)}
        if not owners <= {"inserted", "deleted"}:
            raise Unfaithful("OUTPUT of a column from behind an outer join: SELECT it before")
        one.joined += f" where {one.conditions[0]}" if one.conditions else ""
        one.conditions = [f"exists (select from {one.joined})"]
    return one


def _update(printer: Printer, node: Any, clauses: _Clauses) -> Change:
    from_ = node.args.get("from_")
    one = _changed(printer, node, from_, _target(node, from_), clauses)
    sets, assigned = _sets(printer, node, one)
    where, others, before = _where(printer, clauses, one), one.others, None
    reads_before = _reads_before(clauses, set(sets))
    if reads_before:
        if clauses.top is None and not one.skips:
            # A row that another transaction has changed meanwhile would be another one than that of FROM.
            tables = ", ".join([one.head, *others])
            before = f"select 1 from {tables}{where} for update of {folded(one.name)}"
        one.others = others = [*others, _as_before(one.head.partition(" ")[0], clauses, one.known)]
        where += f"{' and' if where else ' where'} {folded(one.name)}.ctid = {exact(_BEFORE)}.{exact(_ROW)}"
    from_all = f" from {', '.join(others)}" if others else ""
    sql = f"update {one.head} set {', '.join(sets.values())}{from_all}{where}"
    if assigned:
        if clauses.output:
            raise Unfaithful("UPDATE that both assigns variables and has OUTPUT: divide it")
        items = [printer.converted(value, variable.type) for variable, value in assigned]
        names = [f"c{number}" for number in range(1, len(items) + 1)]
        returned = ", ".join(f"{item} as {name}" for item, name in zip(items, names, strict=True))
        return Change(
            f"{sql} returning {returned}", [], [(variable.sql, variable.type) for variable, _ in assigned]
        )
    changed = None if reads_before else set(sets)
    done = _with_output(printer, sql, clauses, one.known, "updated", changed=changed, owner=one.owner)
    return replace(done, locks=before)


def _sets(printer: Printer, node: Any, table_: _Changed) -> tuple[dict[str, str], list[tuple[Variable, Any]]]:
    """Print SET by the folded names of its columns, and return what variables get."""
    sets: dict[str, str] = {}
    assigned: list[tuple[Variable, Any]] = []
    columns = {one.this.name.casefold() for one in node.expressions if isinstance(one.this, exp.Column)}
    for one in node.expressions:
        left, right = one.this, one.expression
        if isinstance(left, exp.Parameter):
            if table_.joined:
                raise Unfaithful("a variable of UPDATE with an outer join: SELECT it before")
            variable = printer.scope.variable(f"@{left.name}")
            if not isinstance(right, exp.EQ):
                if any(column.name.casefold() in columns for column in right.find_all(exp.Column)):
                    raise Unfaithful("a variable that gets the value before the change: SELECT it before")
                assigned.append((variable, right))
                continue
            left, right = right.this, right.expression
            assigned.append((variable, left))
        type_ = (table_.known or {}).get(left.name.casefold(), types.UNKNOWN)
        value = "default" if isinstance(right, exp.Var) else printer.converted(right, type_)
        if table_.joined and right.find(exp.Identifier, exp.Subquery):
            # Of several rows SQL Server takes any one, too.
            value = f"(select {value} from {table_.joined} limit 1)"
        sets[left.name.casefold()] = f"{folded(left.name)} = {value}"
    if not sets:
        raise Unfaithful("UPDATE that changes no column: write SELECT")
    return sets, assigned


def _reads_before(clauses: _Clauses, changed: set[str]) -> bool:
    """Whether OUTPUT has values that UPDATE changes, as they were."""
    return any(
        column.table.lower() == "deleted"
        and (isinstance(column.this, exp.Star) or column.name.casefold() in changed)
        for one in clauses.output
        for column in one.find_all(exp.Column)
    )


def _as_before(table_: str, clauses: _Clauses, known: Columns | None) -> str:
    """Print the rows before UPDATE; their columns have names that no other column has."""
    wanted: dict[str, None] = {}
    for one in clauses.output:
        for column in one.find_all(exp.Column):
            if column.table.lower() != "deleted":
                continue
            if isinstance(column.this, exp.Star) and known is None:
                raise Unfaithful("OUTPUT deleted.* of a table that is not known: list the columns")
            wanted |= dict.fromkeys(known or ()) if isinstance(column.this, exp.Star) else {column.name: None}
    columns = [f"{folded(one)} as {folded(_before(one))}" for one in wanted]
    return f"(select ctid as {exact(_ROW)}, {', '.join(columns)} from {table_}) {exact(_BEFORE)}"


def _before(column: str) -> str:
    return f"deleted.{column.lower()}"


def _others(printer: Printer, node: Any, from_: Any, sources: dict[str, Source], changed: _Changed) -> None:
    """Print the other tables of UPDATE and DELETE and the conditions of their joins, or outer joins."""
    if from_ is None:
        return
    printer.sources.append(sources)
    joins = [*(from_.this.args.get("joins") or []), *(node.args.get("joins") or [])]
    sides = {(join.args.get("side") or "").upper() for join in joins} - {""}
    if sides or any(isinstance(join.this, exp.Lateral) for join in joins):
        if from_.this is not changed.node or sides - {"LEFT"}:
            raise Unfaithful(
                "outer joins of UPDATE and DELETE are LEFT, and begin with the table that changes"
            )
        # What stands before an outer join is one row of the table that changes.
        changed.joined = f"(select) {exact(_EMPTY)}{''.join(joins_of(printer, joins, sources, []))}"
        printer.sources.pop()
        return
    tables = [from_.this, *(join.this for join in joins)]
    changed.others = [table(printer, one, sources, [])[0] for one in tables if one is not changed.node]
    conditions = [printer.condition(join.args["on"]) for join in joins if join.args.get("on") is not None]
    printer.sources.pop()
    changed.conditions = [f"({one})" if " or " in one else one for one in conditions]


def _where(printer: Printer, clauses: _Clauses, changed: _Changed) -> str:
    """Print WHERE; with TOP or READPAST the rows are chosen and locked before they change."""
    conditions = changed.conditions
    if len(conditions) > 1:
        conditions = [f"({one})" if " or " in one and not one.startswith("(") else one for one in conditions]
    where = f" where {' and '.join(conditions)}" if conditions else ""
    if clauses.top is None and not changed.skips:
        return where
    if len(printer.sources[-1]) > 1:
        raise Unfaithful(
            "TOP or READPAST in UPDATE or DELETE with FROM has no form here: write a query in WHERE"
        )
    limit = "" if clauses.top is None else f" limit {printer.whole(clauses.top)}"
    lock = " for update skip locked" if changed.skips else " for update"
    row = f"{folded(changed.name)}.ctid"
    # An array is read once; what IN reads may be read again for each row.
    return f" where {row} = any (array(select {row} from {changed.head}{where}{limit}{lock}))"


def _delete(printer: Printer, node: Any, clauses: _Clauses) -> Change:
    from_ = None
    named = node.args.get("tables")
    if named and not node.this:
        # DELETE t, without FROM.
        target = named[0]
    elif named:
        # DELETE t FROM …: sqlglot has the tables behind FROM in `this`.
        from_ = exp.From(this=node.this)
        wanted = exp.Delete(this=named[0])
        target = _target(wanted, from_)
    elif isinstance(node.this, exp.Table):
        target = node.this
        if node.this.args.get("joins"):
            raise Unfaithful("DELETE FROM … JOIN needs the name of the table that it changes before FROM")
    else:
        raise Unfaithful("DELETE names a table")
    one = _changed(printer, node, from_, target, clauses)
    using = f" using {', '.join(one.others)}" if one.others else ""
    sql = f"delete from {one.head}{using}{_where(printer, clauses, one)}"
    return _with_output(printer, sql, clauses, one.known, "deleted", owner=one.owner)


def _refused(_printer: Printer, _node: Any, _clauses: _Clauses) -> Change:
    raise Unfaithful("this has no form here")


def _merge(printer: Printer, node: Any, clauses: _Clauses) -> Change:
    """Print MERGE; PostgreSQL 15 has its clauses, but for OUTPUT and rows that the target alone has."""
    if clauses.output or clauses.top is not None:
        raise Unfaithful("MERGE with OUTPUT or TOP has no form here: write UPDATE and INSERT")
    sources: dict[str, Source] = {}
    head, name = table(printer, node.this, sources, [])
    known = sources[name.casefold()].columns
    target = dict(sources)
    using, _ = table(printer, node.args["using"], sources, [])
    source = {key: value for key, value in sources.items() if key not in target}
    printer.sources.append(sources)
    on = printer.condition(node.args["on"])
    parts = [f"merge into {head} using {using} on {on}"]
    before = ""
    for when in node.args["whens"].expressions:
        if when.args.get("source"):
            if before:
                raise Unfaithful(
                    "a second WHEN NOT MATCHED BY SOURCE has no form here: write UPDATE or DELETE"
                )
            printer.sources[-1] = target
            before = _unmatched(printer, when, head, f"select from {using} where {on}", known)
            continue
        is_matched = bool(when.args.get("matched"))
        printer.sources[-1] = sources if is_matched else source
        word = "when matched" if is_matched else "when not matched"
        condition = when.args.get("condition")
        if condition is not None:
            word += f" and {printer.condition(condition)}"
        parts.append(f"{word} then {_merged(printer, when.args['then'], known)}")
    printer.sources.pop()
    if not before:
        return Change(" ".join(parts), [], [])
    if len(parts) == 1:
        return Change(before, [], [])
    printer.notes.append("@@ROWCOUNT behind MERGE counts no rows of WHEN NOT MATCHED BY SOURCE here")
    # Both see the rows that were there before, and none of them is of both.
    return Change(f"with by_source as ({before}) {' '.join(parts)}", [], [])


def _unmatched(printer: Printer, when: Any, head: str, matching: str, known: Any) -> str:
    """Print what WHEN NOT MATCHED BY SOURCE does to the rows that the target alone has."""
    condition, then = when.args.get("condition"), when.args["then"]
    extra = "" if condition is None else f" and {printer.condition(condition)}"
    where = f"where not exists ({matching}){extra}"
    done = _merged(printer, then, known)
    return f"delete from {head} {where}" if done == "delete" else f"update {head}{done[6:]} {where}"


def _merged(printer: Printer, then: Any, known: Any) -> str:
    columns = known or {}
    if isinstance(then, exp.Update):
        sets = []
        for one in then.expressions:
            if not isinstance(one, exp.EQ) or not isinstance(one.this, exp.Column):
                raise Unfaithful("this SET of MERGE has no form here: write column = value")
            type_ = columns.get(one.this.name.casefold(), types.UNKNOWN)
            sets.append(f"{folded(one.this.name)} = {_new_value(printer, one.expression, type_)}")
        return f"update set {', '.join(sets)}"
    if isinstance(then, exp.Insert):
        listed = [one.name for one in then.this.expressions] if then.this is not None else list(columns)
        cells = then.expression.expressions if then.expression is not None else []
        if not listed or len(listed) != len(cells):
            raise Unfaithful("INSERT of MERGE needs its columns, and a value for each")
        pairs = zip(listed, cells, strict=True)
        values = [
            _new_value(printer, cell, columns.get(name.casefold(), types.UNKNOWN)) for name, cell in pairs
        ]
        return f"insert ({', '.join(map(folded, listed))}) values ({', '.join(values)})"
    if isinstance(then, exp.Var) and then.name.upper() == "DELETE":
        return "delete"
    raise Unfaithful("MERGE has UPDATE, DELETE and INSERT here")


def _new_value(printer: Printer, node: Any, type_: Type) -> str:
    is_default = isinstance(node, exp.Var | exp.Column) and node.name.upper() == "DEFAULT"
    return "default" if is_default else printer.converted(node, type_)


def _truncate(printer: Printer, node: Any, _clauses: _Clauses) -> Change:
    names = [relation_of(printer, one)[0] for one in node.expressions]
    return Change(f"truncate table {', '.join(names)} restart identity", [], [])


def _with_output(
    printer: Printer,
    sql: str,
    clauses: _Clauses,
    known: Any,
    kind: str,
    *,
    changed: set[str] | None = None,
    owner: str = "",
) -> Change:
    if not clauses.output:
        return Change(sql, [], [])
    items, columns = [], []
    reads_before = kind == "updated" and changed is None
    printer.sources.append({one: Source(known) for one in ("inserted", "deleted")})
    for one in clauses.output:
        for column in one.find_all(exp.Column):
            _check_output(column, kind, changed)
        named = (
            one.alias if isinstance(one, exp.Alias) else (one.name if isinstance(one, exp.Column) else None)
        )
        inner = one.this if isinstance(one, exp.Alias) else one
        if isinstance(inner, exp.Column) and isinstance(inner.this, exp.Star):
            if reads_before and inner.table.lower() == "deleted":
                items += [f"{exact(_BEFORE)}.{folded(_before(each))}" for each in known or ()]
            else:
                items.append(f"{owner}*")
            columns += [("*", types.UNKNOWN)] if known is None else list(known.items())
            continue
        stripped = inner.copy()
        for column in stripped.find_all(exp.Column):
            if reads_before and column.table.lower() == "deleted":
                column.set("this", exp.to_identifier(_before(column.name), quoted=True))
                column.set("table", exp.to_identifier(_BEFORE, quoted=True))
            elif column.table.lower() in ("inserted", "deleted"):
                column.set("table", None)
        before = {_before(each): type_ for each, type_ in (known or {}).items()}
        printer.sources += [{_BEFORE: Source(before)}, {"": Source(known, owner)}]
        value = printer.value(stripped)
        del printer.sources[-2:]
        items.append(f"{value.sql} as {exact(named)}" if isinstance(one, exp.Alias) and named else value.sql)
        columns.append((named, value.type))
    printer.sources.pop()
    sql = f"{sql} returning {', '.join(items)}"
    if clauses.into is None:
        return Change(sql, columns, [])
    target, target_columns = relation_of(printer, clauses.into)
    listed = f" ({', '.join(map(folded, clauses.into_columns))})" if clauses.into_columns else ""
    wanted = [
        (target_columns or {}).get(one.casefold(), types.UNKNOWN)
        for one in (clauses.into_columns or tuple(target_columns or ()))
    ]
    for (_, source), type_ in zip(columns, wanted, strict=False):
        if source.family is not type_.family and not _assignable(source, type_):
            raise Unfaithful("OUTPUT INTO a column of another type: CAST it")
    return Change(f"with changed as ({sql}) insert into {target}{listed} select * from changed", [], [])


def _check_output(column: Any, kind: str, changed: set[str] | None) -> None:
    owner = column.table.lower()
    if kind == "updated" and owner == "deleted" and changed is not None:
        if isinstance(column.this, exp.Star) or column.name.casefold() in changed:
            raise Unfaithful("OUTPUT of the value before an UPDATE has no form here: SELECT it before")
    elif kind == "inserted" and owner == "deleted":
        raise Unfaithful("INSERT has no deleted rows")
    elif kind == "deleted" and owner == "inserted":
        raise Unfaithful("DELETE has no inserted rows")
