"""What becomes of modules, tables, types and indexes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pybroker.tsql import modules
from pybroker.tsql.expressions.alterations import alteration
from pybroker.tsql.expressions.names import folded, relation
from pybroker.tsql.expressions.tables import definition
from pybroker.tsql.language.printing import print_statement
from pybroker.tsql.source import ScriptError
from pybroker.tsql.steps import Step
from pybroker.tsql.translation import identifier

if TYPE_CHECKING:
    from pybroker.tsql.language import tree
    from pybroker.tsql.preparing.preparer import Preparer
    from pybroker.tsql.tree import Statement


def module(at: Preparer, one: Statement) -> Step:
    """Prepare a procedure, a function, a trigger or a view."""
    done = modules.translate(one, at.known)
    return Step(one.position, print_statement(one), done.sql, done.notes)


def table(at: Preparer, one: tree.CreateTable) -> Step:
    """Prepare CREATE TABLE."""
    notes: list[str] = []
    made = definition(one.definition, at.known.scope(), notes)
    if one.filegroup is not None:
        notes.append(f"ON [{one.filegroup}] has no meaning here: there are no filegroups")
    name = one.name
    if not (name.name.startswith("#") or at.known.is_here(name.database)):
        raise ScriptError(one.position, f"a table of another database: write USE [{name.database}] before")
    if name.name.startswith("#"):
        known = at.scope.declare_table(name.name, made.columns)
        sql = f"create temporary table {known.sql.removeprefix('pg_temp.')} (\n  {made.sql}\n);"
    else:
        schema = name.schema or "dbo"
        at.known.tables[schema.casefold(), name.name.casefold()] = made.columns
        sql = (
            f"create schema if not exists {folded(schema)};\n"
            f"create table {relation(name.schema, name.name)} (\n  {made.sql}\n);"
        )
    return Step(one.position, print_statement(one), sql, tuple(notes))


def user_type(at: Preparer, one: tree.CreateType) -> Step:
    """Prepare CREATE TYPE."""
    if one.definition is not None:
        notes: list[str] = []
        definition(one.definition, at.known.scope(), notes)
        at.known.table_types[one.name.name.casefold()] = one.definition
        notes.append(
            "the type is known to the scripts that are read together: its variables are temporary tables"
        )
        return Step(one.position, print_statement(one), None, tuple(notes))
    if one.base is None:
        raise ScriptError(one.position, "a type needs FROM or AS TABLE")
    at.known.aliases[one.name.name.casefold()] = at.type(one.base, one.position)
    note = "the type is known to the scripts that are read together: PostgreSQL gets its base"
    return Step(one.position, print_statement(one), None, (note,))


def change_definition(at: Preparer, one: tree.Definition) -> Step:
    """Prepare ALTER TABLE and what is done with indexes."""
    notes: list[str] = []
    scope = at.known.scope()
    done = alteration(one.code, scope, notes)
    if done.table is not None and done.columns is not None:
        schema, name = done.table
        if name.startswith("#"):
            at.scope.declare_table(name, done.columns)
        else:
            at.known.tables[(schema or "dbo").casefold(), name.casefold()] = done.columns
    return Step(one.position, print_statement(one), done.sql or None, tuple(notes))


def drop(at: Preparer, one: tree.DropThings) -> Step:
    """Prepare DROP."""
    if one.kind == "TYPE":
        return Step(one.position, print_statement(one), None, ("a type leaves nothing behind here",))
    if one.kind == "TRIGGER":
        return module(at, one)
    exists = "if exists " if one.if_exists else ""
    names = [
        f"pg_temp.{identifier(name.name.lstrip('#'))}"
        if name.name.startswith("#")
        else relation(name.schema, name.name)
        for name in one.names
    ]
    sql = "\n".join(f"drop {one.kind.lower()} {exists}{name};" for name in names)
    return Step(one.position, print_statement(one), sql)
