"""Procedures, functions, triggers and views in PostgreSQL's SQL."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pybroker.tsql.expressions import translating
from pybroker.tsql.expressions.names import folded, relation
from pybroker.tsql.expressions.scope import TableVariable, Variable
from pybroker.tsql.expressions.tables import written
from pybroker.tsql.expressions.types import BIGINT, UNKNOWN, Unfaithful, without_literal
from pybroker.tsql.language import tree
from pybroker.tsql.procedures.body import Body
from pybroker.tsql.procedures.defaults import has_default
from pybroker.tsql.procedures.flow import all_code, without_strings
from pybroker.tsql.procedures.signatures import Signature, reached
from pybroker.tsql.source import ScriptError
from pybroker.tsql.translation import DEFAULT_SCHEMA, Translation, literal, principal
from pybroker.tsql.tree import Name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pybroker.tsql.known import Known
    from pybroker.tsql.tree import Statement


def procedure(one: tree.CreateProcedure, known: Known) -> Translation:
    """Translate CREATE, ALTER and CREATE OR ALTER PROCEDURE.

    Raises:
        ScriptError: for what has no faithful form, with what to write instead.
    """
    name, body = _begun(one, known)
    try:
        parameters = _parameters(body, one.parameters)
    except Unfaithful as reason:
        raise ScriptError(one.position, str(reason)) from None
    # A procedure that a queue activates has no parameters, and no caller.
    body.may_join = bool(one.parameters)
    body.print(one.body)
    _fit_parameters(body, one.parameters)
    security = _security(one, body, known)
    verb = "create" if one.verb == "CREATE" else "create or replace"
    known.procedures[name] = Signature(
        one.parameters,
        body.ends_transactions,
        body.has_tables,
        frozenset(body.calls),
        frozenset(body.results),
        frozenset(body.calls_in_try),
        executes_inserts=body.executes_inserts,
        joins=body.joins,
    )
    _refuse_shared_tables(name, body, known)
    text = body_text(body)
    sql = (
        f"{_schema(one)}{verb} procedure {name}({', '.join(parameters)})\n"
        f"language plpgsql{security.clauses} as {_quoted(text)};"
    )
    return Translation(_secured(sql, security, name, body, one.parameters), _notes(body))


def _refuse_shared_tables(name: str, body: Body, known: Known) -> None:
    """Refuse a call that leads back to the procedure where one on the way has table variables.

    All runs of a procedure in a session share the tables behind them.
    """
    for called, position in body.calls.items():
        made = known.procedures
        way = {one for one in reached(called, made) if name in reached(one, made)}
        if any(made[one].has_tables for one in way if one in made):
            raise ScriptError(
                position,
                "a procedure that calls itself would share its table variables with itself:"
                " write a loop, or a table with a column for the depth",
            )


def block(statements: tuple[Statement, ...], known: Known) -> Translation:
    """Translate a batch to a DO block; what it selects is told as notices.

    Raises:
        ScriptError: for what only a client can do.
    """
    _, body = _begun(tree.CreateProcedure(verb="CREATE", name=Name("batch"), body=statements), known)
    # No module has this name, as PostgreSQL would write it in quotes.
    body.name = "a batch"
    body.scope.identity_insert = known.identity_insert
    body.print(statements)
    return Translation(f"do {_quoted(body_text(body))};", _notes(body))


def function(one: tree.CreateFunction, known: Known) -> Translation:
    """Translate CREATE FUNCTION that returns a value, or the rows of one query.

    Raises:
        ScriptError: for what has no faithful form, with what to write instead.
    """
    name, body = _begun(one, known)
    # SQL Server's functions reach no temporary table of their caller.
    body.scope.table_variables = {}
    verb = "create" if one.verb == "CREATE" else "create or replace"
    key = f"{one.name.schema or DEFAULT_SCHEMA}.{one.name.name}".casefold()
    try:
        parameters = ", ".join(_parameters(body, one.parameters))
        declared = (
            (parameter.name, body.scope.variables.get(parameter.name.casefold()))
            for parameter in one.parameters
        )
        known.parameters[key] = tuple(
            (name, UNKNOWN if each is None else each.type) for name, each in declared
        )
        head = f"{_schema(one)}{verb} function {name}({parameters})"
        if one.query is not None:
            return _rows(one, known, body, head)
        if isinstance(one.returns, tree.TableVariable):
            return _table(one, known, body, one.returns, head)
        type_ = known.functions[key] = body.scope.type(_returned(one))
    except Unfaithful as reason:
        raise ScriptError(one.position, str(reason)) from None
    body.print(one.body, value=type_)
    _fit_parameters(body, one.parameters)
    _check_function(one, body)
    security = _security(one, body, known)
    sql = (
        f"{_schema(one)}{verb} function {name}({parameters}) returns {type_.sql}\n"
        f"language plpgsql{security.clauses} as {_quoted(body_text(body))};"
    )
    return Translation(_secured(sql, security, name, body, one.parameters), _notes(body))


def _check_function(one: tree.CreateFunction, body: Body) -> None:
    called = rf"(?<![@#\w]){re.escape(one.name.name)}\]?\s*\("
    if body.has_tables and re.search(called, _all_text(one.body), re.IGNORECASE):
        raise ScriptError(
            one.position, "a function that calls itself would share its table variables with itself"
        )
    if body.ends_transactions:
        raise ScriptError(one.position, "a function can't end transactions")


def _returned(one: tree.CreateFunction) -> str:
    assert isinstance(one.returns, tree.Type)  # noqa: S101 - for the type checker
    return written(one.returns)


def _table(
    one: tree.CreateFunction, known: Known, body: Body, table: tree.TableVariable, head: str
) -> Translation:
    """Translate a function that returns the rows of a table variable."""
    columns = body.return_table(table)
    last = f"return query select * from {body.scope.table_variable(table.name).sql}; return;"
    body.print(one.body, returns=last)
    _fit_parameters(body, one.parameters)
    _check_function(one, body)
    known.tables[((one.name.schema or DEFAULT_SCHEMA).casefold(), one.name.name.casefold())] = columns
    returned = ", ".join(f"{folded(column)} {type_.sql}" for column, type_ in columns.items())
    security = _security(one, body, known)
    # The columns that it returns have names of variables in PL/pgSQL.
    text = f"#variable_conflict use_column\n{body_text(body, last)}"
    sql = f"{head}\nreturns table ({returned})\nlanguage plpgsql{security.clauses} as {_quoted(text)};"
    name = relation(one.name.schema, one.name.name)
    return Translation(_secured(sql, security, name, body, one.parameters), _notes(body))


def _rows(one: tree.CreateFunction, known: Known, body: Body, head: str) -> Translation:
    assert one.query is not None  # noqa: S101 - for the type checker
    if (one.execute_as or "CALLER") != "CALLER":
        raise Unfaithful("EXECUTE AS is no clause of a function that returns one query: leave it out")
    found = translating.query(one.query, body.scope, outermost=False)
    if any(heading in (None, "*") or type_.sql == "unknown" for heading, type_ in found.columns):
        raise Unfaithful("a column whose name or type is not known: give it a name by AS, and CAST it")
    columns = {(heading or "").casefold(): without_literal(type_) for heading, type_ in found.columns}
    known.tables[((one.name.schema or DEFAULT_SCHEMA).casefold(), one.name.name.casefold())] = columns
    returned = ", ".join(f"{folded(heading)} {type_.sql}" for heading, type_ in columns.items())
    items = ", ".join(f"cast(r.c{at} as {type_.sql})" for at, type_ in enumerate(columns.values(), 1))
    names = ", ".join(f"c{at}" for at in range(1, len(columns) + 1))
    text = f"select {items} from ({found.sql}) r ({names})"
    return Translation(f"{head}\nreturns table ({returned})\nlanguage sql as {_quoted(text)};", found.notes)


def view(one: tree.CreateView, known: Known) -> Translation:
    """Translate CREATE VIEW."""
    scope = known.scope()
    found = translating.query(one.query, scope, outermost=False)
    headings: list[str | None] = [*one.columns] if one.columns else [heading for heading, _ in found.columns]
    if None in headings:
        raise ScriptError(one.position, "a column of the view has no name: give it one by AS")
    if "*" not in headings:
        pairs = zip(headings, found.columns, strict=False)
        columns = {(heading or "").casefold(): without_literal(type_) for heading, (_, type_) in pairs}
        known.tables[((one.name.schema or DEFAULT_SCHEMA).casefold(), one.name.name.casefold())] = columns
    listed = f" ({', '.join(map(folded, one.columns))})" if one.columns else ""
    verb = "create" if one.verb == "CREATE" else "create or replace"
    name = relation(one.name.schema, one.name.name)
    return Translation(f"{_schema(one)}{verb} view {name}{listed} as\n{found.sql};", found.notes)


def trigger(one: tree.CreateTrigger, known: Known) -> Translation:
    """Translate CREATE TRIGGER: a function, and a trigger for each event, as each sees other rows.

    Raises:
        ScriptError: for what has no faithful form, with what to write instead.
    """
    name, body = _begun(one, known)
    if one.timing == "INSTEAD OF":
        raise ScriptError(one.position, "INSTEAD OF triggers have no form here: write AFTER")
    _refuse_columns_updated(one)
    text = _all_text(one.body).lower()
    used = [rows for rows in _TRANSITIONS if re.search(rf"\b{rows}\b", text)]
    # Events that see the same rows share their statements.
    kinds: dict[tuple[str, ...], list[str]] = {}
    for event in one.events:
        kinds.setdefault(tuple(rows for rows in used if rows in _SEEN[event]), []).append(event)
    bodies = {seen: _trigger_body(one, known, seen) for seen in kinds}
    for seen, other in bodies.items():
        body.declarations.update(other.declarations)
        body.notes += other.notes
        if len(bodies) == 1:
            body.lines = other.lines
            continue
        events = ", ".join(f"'{event}'" for event in kinds[seen])
        body.lines += [f"  if tg_op in ({events}) then", *(f"  {line}" for line in other.lines), "  end if;"]
    security = _security(one, body, known)
    verb = "create" if one.verb == "CREATE" else "create or replace"
    sql = (
        f"{_schema(one)}{verb} function {name}()\n"
        f"returns trigger language plpgsql{security.clauses} as\n{_quoted(body_text(body, 'return null;'))};"
    )
    lines = []
    table = relation(one.table.schema, one.table.name)
    for seen, events_ in kinds.items():
        tables = " ".join(f"{_TRANSITIONS[rows]} table as {rows}" for rows in seen)
        seeing = f"referencing {tables} " if tables else ""
        for event in map(str.lower, events_):
            own = folded(f"{one.name.name}_{event}")
            lines.append(f"{verb} trigger {own} after {event} on {table}")
            lines.append(f"{seeing}for each statement execute function {name}();")
    if verb != "create":
        lines += [
            f"drop trigger if exists {folded(f'{one.name.name}_{event.lower()}')} on {table};"
            for event in _SEEN
            if event not in one.events
        ]
    return Translation(_secured(sql, security, name, body, (), behind=lines), _notes(body))


_TRANSITIONS = {"inserted": "new", "deleted": "old"}
_SEEN = {"INSERT": ("inserted",), "DELETE": ("deleted",), "UPDATE": ("inserted", "deleted")}
_COLUMNS_UPDATED = re.compile(r"\bUPDATE\s*\(|\bCOLUMNS_UPDATED\s*\(", re.IGNORECASE)


def _refuse_columns_updated(one: tree.CreateTrigger) -> None:
    for code in (code for statement in one.body for code in all_code(statement)):
        found = _COLUMNS_UPDATED.search(without_strings(code.text))
        if found is not None:
            raise ScriptError(
                code.place(found.start()),
                "which columns UPDATE named is not known here: compare inserted with deleted",
            )


def _trigger_body(one: tree.CreateTrigger, known: Known, seen: tuple[str, ...]) -> Body:
    """Print a trigger's statements for events that see these rows; the other rows are an empty set."""
    _, body = _begun(one, known)
    columns = known.columns(one.table.schema, one.table.name)
    # Of the table's type, as whoever fires the trigger need not be allowed to read the table.
    nothing = f"(select (null::{relation(one.table.schema, one.table.name)}).* where false)"
    for rows in _TRANSITIONS:
        body.scope.table_variables[rows] = TableVariable(rows if rows in seen else nothing, columns)
    body.print(one.body, returns="return null;")
    if body.ends_transactions:
        raise ScriptError(one.position, "a trigger can't end transactions: THROW undoes its statement")
    return body


def drop_trigger(one: tree.DropThings) -> Translation:
    """Translate DROP TRIGGER: the function goes with its triggers."""
    condition = "if exists " if one.if_exists else ""
    lines = [f"drop function {condition}{relation(name.schema, name.name)}() cascade;" for name in one.names]
    return Translation("\n".join(lines))


def _begun(one: Any, known: Known) -> tuple[str, Body]:
    if one.name.database or one.name.name.startswith("#"):
        raise ScriptError(one.position, "a module of another database, or a temporary one: make it here")
    scope = known.scope()
    scope.variables = {}
    scope.module = one.name.name
    scope.identity_insert = None
    scope.table_variables = dict(scope.table_variables)
    name = relation(one.name.schema, one.name.name)
    own = f"cast(cast(to_regproc({scope.literal(name)}) as oid) as bigint)"
    scope.variables["@@procid"] = Variable(own, BIGINT)
    return name, Body(name.removeprefix("dbo."), scope, known.procedures, known.promised)


def _schema(one: Any) -> str:
    return f"create schema if not exists {folded(one.name.schema or DEFAULT_SCHEMA)};\n"


def _secured(
    sql: str,
    security: _Security,
    name: str,
    body: Body,
    parameters: tuple[tree.Parameter, ...],
    *,
    behind: Sequence[str] = (),
) -> str:
    """Take from PUBLIC what PostgreSQL grants it, and let the right role own the module.

    In one statement, so that nobody calls it in between.
    """
    if not security.clauses:
        return "\n".join((sql, *behind))
    known = body.scope.variables
    types = ", ".join(
        known[one.name.casefold()].type.sql if one.name.casefold() in known else "json" for one in parameters
    )
    routine = f"{name}({types})"
    head = f"declare\n{_OWNER_VARIABLES}\nbegin" if security.owner else "begin"
    owned = _OWNER.format(routine=literal(routine), owner=security.owner) if security.owner else ""
    revoked = f"revoke execute on routine {routine} from public;"
    made = "\n".join(part for part in (head, sql, revoked, *behind, owned, "end") if part)
    return f"do {_quoted(made)};"


_OWNER_VARIABLES = """\
  module record;
  runner name;
  lends boolean;"""
# A new owner needs CREATE on the schema, at this moment alone.
_OWNER = """\
select p.oid::regprocedure as called, n.nspname, n.nspowner, p.proowner into module
from pg_proc p join pg_namespace n on n.oid = p.pronamespace where p.oid = to_regprocedure({routine});
runner := {owner};
if runner <> pg_get_userbyid(module.proowner) then
  lends := not has_schema_privilege(runner, module.nspname, 'CREATE');
  if lends then
    execute format('grant create on schema %I to %I', module.nspname, runner);
  end if;
  execute format('alter routine %s owner to %I', module.called, runner);
  if lends then
    execute format('revoke create on schema %I from %I', module.nspname, runner);
  end if;
end if;"""
# The owner of a schema owns what is made in it; nobody is pg_database_owner.
_SCHEMA_OWNER = """\
(
  select pg_get_userbyid(
    case when module.nspowner = 'pg_database_owner'::regrole then d.datdba else module.nspowner end
  )
  from pg_database d where d.datname = current_database()
)"""


@dataclass(frozen=True, slots=True)
class _Security:
    """Whose rights a module has.

    Attributes:
        clauses: of its definition.
        owner: the role that is to own it, as SQL.
    """

    clauses: str = ""
    owner: str | None = None


def _quoted(text: str) -> str:
    quote = dollars(text)
    return f"{quote}\n{text}\n{quote}"


def _notes(body: Body) -> tuple[str, ...]:
    notes = [f"{position.line}:{position.column}: {text}" for position, text in body.notes]
    return tuple(dict.fromkeys(notes))


def body_text(body: Body, last: str = "") -> str:
    """Return a module's text: what it declares, and its statements."""
    declared = [f"  {name} {type_};" for name, type_ in body.declarations.items()]
    head = ["declare", *declared] if declared else []
    lines = [*body.lines, *([f"  {last}"] if last else [])]
    return "\n".join([*head, "begin", *(lines or ["  null;"]), "end"])


def dollars(text: str) -> str:
    """Return a dollar quote that a text does not hold."""
    quote = "$procedure$"
    while quote in text:
        quote = f"$procedure_{len(quote)}{quote[10:]}"
    return quote


def _parameters(body: Body, parameters: tuple[tree.Parameter, ...]) -> list[str]:
    """Print parameters; PostgreSQL wants a default for each one behind the first that has one."""
    printed: list[str] = []
    is_behind_default = False
    for one in parameters:
        text = _parameter(body, one)
        if has_default(one, body.scope):
            is_behind_default = True
        elif is_behind_default:
            text += " default null"
        printed.append(text)
    return printed


def _parameter(body: Body, one: tree.Parameter) -> str:
    columns = body.scope.table_type(written(one.type))
    if columns is not None:
        return body.take_rows(one, columns)
    if one.is_readonly:
        raise Unfaithful(f"{one.name} is a table: let its CREATE TYPE stand in these scripts")
    variable = body.scope.declare(one.name, written(one.type))
    mode = "inout " if one.is_output else ""
    default = ""
    if one.default is not None:
        default = f" default {translating.expression(one.default, body.scope, variable.type).sql}"
    return f"{mode}{variable.sql} {variable.type.sql}{default}"


def _all_text(body: tuple[Statement, ...]) -> str:
    return "\n".join(code.text for statement in body for code in all_code(statement))


def _fit_parameters(body: Body, parameters: tuple[tree.Parameter, ...]) -> None:
    """Cut what is too long for its parameter, as a variable does; PostgreSQL ignores a parameter's length."""
    fitted = [
        f"  {known.sql} := cast({known.sql} as {known.type.sql});"
        for one in parameters
        if (known := body.scope.variables.get(one.name.casefold())) is not None and "(" in known.type.sql
    ]
    body.lines[:0] = fitted


def _security(one: Any, body: Body, known: Known) -> _Security:
    who = one.execute_as or "CALLER"
    if who == "CALLER":
        return _Security()
    if body.ends_transactions:
        raise ScriptError(
            one.position,
            "a procedure with EXECUTE AS can't end transactions: write it into the queue's ACTIVATION",
        )
    return _Security(
        " security definer set search_path = pg_catalog, pg_temp", _runner(one, who, body, known)
    )


def _runner(one: Any, who: str, body: Body, known: Known) -> str:
    """Return the role that EXECUTE AS names, as SQL; whoever gives it a module may SET ROLE to it."""
    if who in ("OWNER", "SELF"):
        return _SCHEMA_OWNER if who == "OWNER" else "current_user"
    if not who.startswith("["):
        raise ScriptError(one.position, f"EXECUTE AS {who}: write CALLER, SELF, OWNER or 'user'")
    user = who[1:-1]
    if user.lower() in ("guest", "public"):
        raise ScriptError(one.position, f"EXECUTE AS '{user}': nobody is everybody, so name a user")
    body.note(
        one.position,
        f"{user} owns the module here, and needs the rights on what it does: ALTER and DROP are this owner's",
    )
    return principal(known.principals.get(user.casefold(), user))
