"""Variables, queries, changes and tables in PL/pgSQL."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pybroker.tsql.expressions import tables, translating, types
from pybroker.tsql.expressions.names import relation
from pybroker.tsql.expressions.types import Family, Unfaithful
from pybroker.tsql.language import tree
from pybroker.tsql.procedures.codes import COUNT, IDENTITY
from pybroker.tsql.procedures.inserting import TAKES, take
from pybroker.tsql.procedures.signatures import Results
from pybroker.tsql.source import Position
from pybroker.tsql.translation import literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pybroker.tsql.procedures.body import Body
    from pybroker.tsql.tree import Statement

_SIMPLE = re.compile(r"@?\w+|N?'(?:[^']|'')*'")


def declare(body: Body, one: tree.Declare) -> None:
    """Print the defaults of DECLARE; the names stand at the module's beginning."""
    for variable in one.variables:
        if isinstance(variable, tree.Variable) and variable.default is not None:
            known = body.scope.variable(variable.name)
            body.line(f"{known.sql} := {body.value(variable.default, known.type)};")


def assign(body: Body, one: tree.Assign) -> None:
    """Print SET @variable."""
    known = body.scope.variable(one.variable)
    value = one.value
    if one.operator != "=":
        is_simple = _SIMPLE.fullmatch(value.text)
        prefix = f"{one.variable} {one.operator[0]} {'' if is_simple else '('}"
        begin = value.position
        text = f"{prefix}{value.text}{'' if is_simple else ')'}"
        value = tree.Code(text, Position(begin.line, begin.column - len(prefix)))
    body.line(f"{known.sql} := {body.value(value, known.type)};")


def select_variables(body: Body, one: tree.SelectVariables) -> None:
    """Print SELECT @variable = …; where no row is found, the variables stay as they are."""
    pairs = [(each.variable, each.value) for each in one.assignments]
    if any(each.operator != "=" for each in one.assignments):
        for each in one.assignments:
            if one.source is not None:
                raise Unfaithful("SELECT @variable += … FROM has no form here: write SUM or STRING_AGG")
            assign(body, each)
        body.set_count(one, "1")
        return
    found = translating.assignments(pairs, one.source, body.scope, one.top, one.with_)
    body.note_all(one.position, found.notes)
    if one.source is None:
        for name, value in zip(found.assigned, found.values, strict=True):
            body.line(f"{body.scope.variable(name).sql} := {value};")
        body.set_count(one, "1")
        return
    _rows(body, one, found.sql, found.assigned)


def _rows(body: Body, one: Statement, sql: str, assigned: Sequence[str]) -> None:
    """Print a loop that assigns each row; the last one stays."""
    body.declarations.setdefault('"@@row"', "record")
    counts = body.flow.is_read(one, "@@rowcount")
    if counts:
        body.line(f"{COUNT} := 0;")
    body.line(f'for "@@row" in {sql} loop')
    with body.indented():
        for number, name in enumerate(assigned, 1):
            body.line(f'{body.scope.variable(name).sql} := "@@row".c{number};')
        if counts:
            body.line(f"{COUNT} := {COUNT} + 1;")
    body.line("end loop;")


def query(body: Body, one: tree.Query) -> None:
    """Print SELECT, INSERT, UPDATE, DELETE and TRUNCATE."""
    found = translating.query(one.code, body.scope)
    body.note_all(one.position, found.notes)
    if found.locks is not None:
        body.line(f"perform {found.locks.removeprefix('select ')};")
    if found.assigned:
        _rows(body, one, found.sql, found.assigned)
    elif found.returns_rows:
        result_set(body, one, found)
    else:
        body.line(f"{found.sql};")
        if body.flow.is_read(one, "@@rowcount"):
            body.line(f"get diagnostics {COUNT} = row_count;")
    if found.inserts is not None and IDENTITY in body.declarations:
        if found.returns_rows:
            raise Unfaithful("SCOPE_IDENTITY() beside INSERT with OUTPUT: take the value from OUTPUT INTO")
        if found.counts_on is not None:
            raise Unfaithful("SCOPE_IDENTITY() beside IDENTITY_INSERT: it is the value that INSERT gives")
        body.keep_identity(found.inserts)
    if found.counts_on is not None:
        body.line(f"perform {found.counts_on.removeprefix('select ')};")


def result_set(body: Body, one: Statement, found: translating.Statement) -> None:
    """Print a query whose rows a client sees: a notice has them, as a procedure returns none."""
    body.declarations.setdefault('"@@rows"', "json")
    is_known = all(heading != "*" and type_.family is not Family.UNKNOWN for heading, type_ in found.columns)
    columns_of = tuple(types.without_literal(type_) for _, type_ in found.columns)
    body.results.add(Results(columns_of if is_known else None, body.is_in_try))
    names = [heading for heading, _ in found.columns]
    if "*" in names:
        shown, headings, columns = "to_json(r)", "null", ""
    else:
        cells = [
            f"'0x' || encode(r.c{number}, 'hex')" if type_.family is Family.BINARY else f"r.c{number}"
            for number, (_, type_) in enumerate(found.columns, 1)
        ]
        shown = f"json_build_array({', '.join(cells)})"
        headings = f"json_build_array({', '.join(literal(name or '') for name in names)})"
        columns = f" ({', '.join(f'c{number}' for number in range(1, len(cells) + 1))})"
    body.line("-- A result set: EXEC shows it, activation writes it to broker.activation_log.")
    body.line(f"with r{columns} as ({found.sql})")
    body.line(f"select json_build_object('names', {headings}, 'rows', coalesce(json_agg({shown}), '[]'))")
    body.line('into "@@rows" from r;')
    body.line(f"if {TAKES} then")
    body.line(f"""  {take('"@@rows"')}""")
    body.line("else")
    body.line("""  raise notice using errcode = '01R01', message = "@@rows"::text;""")
    body.line("end if;")
    body.set_count(one, """json_array_length("@@rows" -> 'rows')""")


def create_table(body: Body, one: tree.CreateTable) -> None:
    """Print CREATE TABLE; a temporary one is made once in a session."""
    if one.name.name.startswith("#"):
        lines: list[str] = []
        body.make_table(one.name.name, one.definition, lines)
        for line in lines:
            body.line(line.removeprefix("  "))
        return
    notes: list[str] = []
    made = tables.definition(one.definition, body.scope, notes)
    body.note_all(one.position, notes)
    body.line(f"create table {relation(one.name.schema, one.name.name)} ({made.sql});")


def drop(body: Body, one: tree.DropThings) -> None:
    """Print DROP TABLE."""
    if one.kind != "TABLE":
        raise Unfaithful(f"DROP {one.kind} has no form within a procedure: run it before")
    names = [
        body.scope.table_variable(name.name).sql
        if name.name.startswith("#")
        else relation(name.schema, name.name)
        for name in one.names
    ]
    body.line(f"drop table {'if exists ' if one.if_exists else ''}{', '.join(names)};")
