"""PRINT, RAISERROR, THROW and WAITFOR of a time in PL/pgSQL."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pybroker.tsql.expressions import translating, types
from pybroker.tsql.expressions.types import Family, Unfaithful
from pybroker.tsql.procedures.errors import raised

if TYPE_CHECKING:
    from pybroker.tsql.language import tree
    from pybroker.tsql.procedures.body import Body

_DELAY = re.compile(
    r"\s*N?'(?P<hours>\d{1,2}):(?P<minutes>\d{1,2})(?::(?P<seconds>\d{1,2}(?:\.\d{1,3})?))?'\s*",
    re.IGNORECASE,
)
_OF_WAITFOR = frozenset({Family.TEXT, Family.DATETIME, Family.DATETIME2, Family.TIME})


def print_(body: Body, one: tree.Print) -> None:
    """Print PRINT."""
    body.line(f"raise notice '%', coalesce({body.value(one.value, types.TEXT)}, ' ');")


def raise_error(body: Body, one: tree.RaiseError) -> None:
    """Print RAISERROR; 10 and below is a message, above it is an error."""
    is_error, lines = raised(body, one)
    for line in lines:
        body.line(line)
    if is_error and not body.within_tries:
        body.note(
            one.position,
            "an error outside of TRY ends the procedure here, and undoes what is not committed",
        )


def throw(body: Body, one: tree.Throw) -> None:
    """Print THROW."""
    if not one.arguments:
        if body.catching is None:
            raise Unfaithful("THROW without arguments stands in CATCH")
        try_ = body.catching
        body.line(
            f"raise exception using errcode = {try_.state}, message = {try_.variable('error_message()')},"
            f" detail = coalesce({try_.detail}, '');"
        )
        return
    if len(one.arguments) != 3:  # noqa: PLR2004 - number, message, state
        raise Unfaithful("THROW has a number, a message and a state")
    number, message, state = one.arguments
    text = body.value(message, types.TEXT)
    text = text if text.startswith("'") else f"coalesce({text}, '')"
    body.line(
        f"raise exception using message = {text}, detail = format('Msg %s, Level 16, State %s',"
        f" {body.value(number, types.INTEGER)}, {body.value(state, types.INTEGER)});"
    )


def delay(body: Body, one: tree.Delay) -> None:
    """Print WAITFOR DELAY and WAITFOR TIME."""
    found = _DELAY.fullmatch(one.value.text)
    if one.kind == "DELAY" and found is not None:
        seconds = int(found["hours"]) * 3600 + int(found["minutes"]) * 60 + float(found["seconds"] or 0)
        body.line(f"perform pg_sleep({seconds:g});")
        return
    value = translating.expression(one.value, body.scope)
    if value.type.family not in _OF_WAITFOR:
        raise Unfaithful(f"WAITFOR {one.kind} has a text or a datetime: write 'hh:mm:ss'")
    body.note_all(one.value.position, value.notes)
    length = f"({value.sql})::time"
    if one.kind == "DELAY":
        body.line(f"perform pg_sleep(extract(epoch from {length}));")
    else:
        body.line(f"perform pg_sleep(mod(extract(epoch from {length} - localtime) + 86400, 86400));")


def no_meaning(body: Body, one: Any) -> None:
    """Say that a statement has no meaning here."""
    body.note(one.position, f"{one.text} has no meaning here: {one.why}")
