"""Cursors in PL/pgSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pybroker.tsql.expressions import translating, types
from pybroker.tsql.expressions.types import Unfaithful
from pybroker.tsql.translation import identifier

if TYPE_CHECKING:
    from pybroker.tsql.language import tree
    from pybroker.tsql.procedures.body import Body

_CURSOR_OPTIONS = frozenset(
    # Of SCROLL, other ways than forwards are refused at FETCH.
    [
        "FAST_FORWARD",
        "FORWARD_ONLY",
        "GLOBAL",
        "INSENSITIVE",
        "LOCAL",
        "READ_ONLY",
        "SCROLL",
        "STATIC",
        "TYPE_WARNING",
    ]
)


def declare_cursor(body: Body, one: tree.DeclareCursor) -> None:
    """Remember a cursor; its query is printed by OPEN."""
    others = {word.upper() for word in one.options} - _CURSOR_OPTIONS
    if others:
        raise Unfaithful(f"a cursor with {', '.join(sorted(others))} has no form here: leave it out")
    is_variable, key = one.name.startswith("@"), one.name.casefold()
    if is_variable and key in body.scope.variables:
        raise Unfaithful(f"{one.name} is declared twice: leave one out")
    if is_variable and one.query is not None and key not in body.cursors:
        raise Unfaithful(
            f"the cursor {one.name} has a variable's name: write it without the @, or DECLARE it as one"
        )
    body.cursors[key] = one
    body.declarations[identifier(one.name)] = "refcursor"


def _cursor(body: Body, name: str) -> tree.DeclareCursor:
    found = body.cursors.get(name.casefold())
    if found is None:
        raise Unfaithful(f"the cursor {name} is not declared above")
    return found


def cursor(body: Body, one: tree.Cursor) -> None:
    """Print OPEN, CLOSE and DEALLOCATE."""
    declared = _cursor(body, one.name)
    name = identifier(declared.name)
    if one.verb == "OPEN":
        if declared.query is None:
            raise Unfaithful(f"the cursor {one.name} has no query: SET it above")
        found = translating.query(declared.query, body.scope)
        body.note_all(one.position, found.notes)
        if any(heading == "*" for heading, _ in found.columns):
            raise Unfaithful("a cursor over * needs its table's CREATE TABLE here: list the columns")
        columns = ", ".join(f"c{number}" for number in range(1, len(found.columns) + 1))
        body.line(f"open {name} for select * from ({found.sql}) r ({columns});")
        body.open_cursors.add(one.name.casefold())
    elif one.verb == "CLOSE":
        body.line(f"close {name};")
        body.open_cursors.discard(one.name.casefold())
    else:
        body.open_cursors.discard(one.name.casefold())


def fetch(body: Body, one: tree.Fetch) -> None:
    """Print FETCH NEXT; behind the last row the variables stay as they are."""
    declared = _cursor(body, one.name)
    if one.direction != "NEXT":
        raise Unfaithful(f"FETCH {one.direction} has no form here: a cursor is read forwards")
    if declared.query is None or not one.variables:
        raise Unfaithful("FETCH without INTO has no form here: write INTO")
    columns = translating.query(declared.query, body.scope).columns
    if len(columns) != len(one.variables):
        raise Unfaithful(
            f"FETCH names {len(one.variables)} variables, and the cursor has {len(columns)} columns"
        )
    body.declarations.setdefault('"@@row"', "record")
    body.line(f'fetch {identifier(declared.name)} into "@@row";')
    if "@@fetch_status" in body.scope.variables:
        body.line('"@@fetch_status" := case when found then 0 else -1 end;')
    body.line("if found then")
    with body.indented():
        for number, (name, (_, type_)) in enumerate(zip(one.variables, columns, strict=True), 1):
            known = body.scope.variable(name)
            value = types.convert(f'"@@row".c{number}', type_, known.type)
            body.line(f"{known.sql} := {value};")
    body.line("end if;")
    body.set_count(one, "case when found then 1 else 0 end")
