"""Errors in PL/pgSQL: their numbers as SQL Server has them, and RAISERROR."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pybroker.tsql import numbers
from pybroker.tsql.expressions import types
from pybroker.tsql.expressions.types import Unfaithful
from pybroker.tsql.translation import literal

if TYPE_CHECKING:
    from pybroker.tsql.language import tree

_PLACEHOLDER = re.compile(r"%(?:%|[-+0 #]*\d*(?:\.\d+)?[diuosxX])")
_MESSAGE_ONLY = 10
_KNOWN = " ".join(f"when '{state}' then {number}" for state, number in sorted(numbers.NUMBERS.items()))
# The number of an error: what THROW said, the broker's own, or SQL Server's for PostgreSQL's error.
NUMBER = (
    "coalesce(cast(substring({detail} from '^Msg (\\d+),') as integer),"
    " cast(substring({state} from '^S(\\d\\d\\d\\d)$') as integer),"
    " 20000 + cast(substring({state} from '^T(\\d\\d\\d\\d)$') as integer),"
    f" case {{state}} {_KNOWN} else 50000 end)"
)


def caught_values(state: str, detail: str) -> dict[str, tuple[str, str | None]]:
    """Return what CATCH may read: its type, and how it is computed; None is read by the handler itself."""
    return {
        "error_number()": ("integer", NUMBER.format(state=state, detail=detail)),
        "error_severity()": (
            "integer",
            f"coalesce(cast(substring({detail} from 'Level (\\d+),') as integer), 16)",
        ),
        "error_state()": (
            "integer",
            f"coalesce(cast(substring({detail} from 'State (\\d+)$') as integer), 1)",
        ),
        "error_line()": ("integer", "cast(substring({context} from 'line (\\d+) at') as integer)"),
        "error_procedure()": ("text", "substring({context} from 'function ([^(]+)')"),
        "error_message()": ("text", ""),
    }


def raised(body: Any, one: tree.RaiseError) -> tuple[bool, list[str]]:
    """Print RAISERROR: whether it is an error, and its lines."""
    if len(one.arguments) < 3:  # noqa: PLR2004 - message, severity, state
        raise Unfaithful("RAISERROR needs a message, a severity and a state")
    message, severity, state, *rest = one.arguments
    level = severity.text.strip()
    if message.text.strip().isdigit():
        raise Unfaithful("RAISERROR with a number takes the text from SQL Server's catalog: write the text")
    if rest:
        text = _formatted(body, message, rest)
    else:
        text = body.value(message, types.TEXT)
        text = text.replace("%%", "%") if "'" in message.text else text
    if level.isdigit() and int(level) <= _MESSAGE_ONLY:
        return False, [f"raise notice '%', {text};"]
    detail = (
        literal(f"Msg 50000, Level {level}, State {state.text.strip()}")
        if level.isdigit() and state.text.strip().isdigit()
        else f"format('Msg 50000, Level %s, State %s', {body.value(severity, types.INTEGER)},"
        f" {body.value(state, types.INTEGER)})"
    )
    error = f"raise exception using message = {text}, detail = {detail};"
    if level.isdigit():
        return True, [error]
    return True, [
        f"if {body.value(severity, types.INTEGER)} <= {_MESSAGE_ONLY} then",
        f"  raise notice '%', {text};",
        "else",
        f"  {error}",
        "end if;",
    ]


def _formatted(body: Any, message: tree.Code, rest: list[tree.Code]) -> str:
    found = re.fullmatch(r"\s*N?'((?:[^']|'')*)'\s*", message.text)
    if found is None:
        raise Unfaithful("a message with arguments stands in quotes here")
    text = found[1].replace("''", "'")
    marks = [one for one in _PLACEHOLDER.findall(text) if one != "%%"]
    if len(marks) != len(rest):
        raise Unfaithful(f"the message has {len(marks)} places, and there are {len(rest)} arguments")
    if any(one[1:] not in ("s", "d", "i", "u") for one in marks):
        raise Unfaithful("of places in a message %s, %d, %i and %u are known here")
    pattern = _PLACEHOLDER.sub(lambda one: one.group() if one.group() == "%%" else "%s", text)
    values = [
        body.value(code, types.TEXT if mark == "%s" else None) for mark, code in zip(marks, rest, strict=True)
    ]
    shown = [
        one if one.startswith("'") or one.isdigit() else f"coalesce(cast({one} as text), '(null)')"
        for one in values
    ]
    return f"format({literal(pattern)}, {', '.join(shown)})"
