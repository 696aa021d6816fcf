"""CREATE, ALTER and DROP of procedures in PostgreSQL's SQL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pybroker.tsql.expressions import translating
from pybroker.tsql.expressions.names import folded, relation
from pybroker.tsql.expressions.types import Unfaithful
from pybroker.tsql.procedures.body import Body, written
from pybroker.tsql.source import ScriptError
from pybroker.tsql.translation import DEFAULT_SCHEMA, Translation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pybroker.tsql.known import Known
    from pybroker.tsql.language import tree


@dataclass(frozen=True, slots=True)
class Signature:
    """What is known of a procedure: its parameters, and whether it ends transactions."""

    parameters: tuple[tree.Parameter, ...]
    ends_transactions: bool = False

    def __iter__(self) -> Iterator[tree.Parameter]:
        return iter(self.parameters)


def procedure(one: tree.CreateProcedure, known: Known) -> Translation:
    """Translate CREATE, ALTER and CREATE OR ALTER PROCEDURE.

    Raises:
        ScriptError: for what has no faithful form, with what to write instead.
    """
    if one.name.database or one.name.name.startswith("#"):
        raise ScriptError(one.position, "a procedure of another database, or a temporary one: make it here")
    name = relation(one.name.schema, one.name.name)
    scope = known.scope()
    scope.variables = {}
    scope.table_variables = dict(scope.table_variables)
    body = Body(one.name.name.lower(), scope, known.procedures)
    try:
        parameters = [_parameter(body, parameter) for parameter in one.parameters]
    except Unfaithful as reason:
        raise ScriptError(one.position, str(reason)) from None
    body.print(one.body)
    security = _security(one, ends_transactions=body.ends_transactions)
    verb = "create" if one.verb == "CREATE" else "create or replace"
    known.procedures[name] = Signature(one.parameters, body.ends_transactions)
    text = body_text(body)
    quote = dollars(text)
    schema = folded(one.name.schema or DEFAULT_SCHEMA)
    sql = (
        f"create schema if not exists {schema};\n{verb} procedure {name}({', '.join(parameters)})\n"
        f"language plpgsql{security} as {quote}\n{text}\n{quote};"
    )
    notes = [f"{position.line}:{position.column}: {text}" for position, text in body.notes]
    return Translation(sql, tuple(dict.fromkeys(notes)))


def body_text(body: Body) -> str:
    """Return a module's text: what it declares, and its statements."""
    declared = [f"  {name} {type_};" for name, type_ in body.declarations.items()]
    head = ["declare", *declared] if declared else []
    return "\n".join([*head, "begin", *(body.lines or ["  null;"]), "end"])


def dollars(text: str) -> str:
    """Return a dollar quote that a text does not hold."""
    quote = "$procedure$"
    while quote in text:
        quote = f"$procedure_{len(quote)}{quote[10:]}"
    return quote


def _parameter(body: Body, one: tree.Parameter) -> str:
    if one.is_readonly:
        raise Unfaithful(f"{one.name} is a table: give the rows in a temporary table, or one by one")
    variable = body.scope.declare(one.name, written(one.type))
    mode = "inout " if one.is_output else ""
    default = ""
    if one.default is not None:
        default = f" default {translating.expression(one.default, body.scope, variable.type).sql}"
    return f"{mode}{variable.sql} {variable.type.sql}{default}"


def _security(one: Any, *, ends_transactions: bool) -> str:
    who = (one.execute_as or "CALLER").upper()
    if who == "CALLER":
        return ""
    if who not in ("OWNER", "SELF"):
        raise ScriptError(one.position, "EXECUTE AS a user: write EXECUTE AS OWNER, and let that user own it")
    if ends_transactions:
        raise ScriptError(
            one.position,
            "a procedure with EXECUTE AS can't end transactions: write it into the queue's ACTIVATION",
        )
    return " security definer set search_path = pg_catalog, pg_temp"
