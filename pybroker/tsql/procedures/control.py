"""IF, WHILE, GOTO and RETURN in PL/pgSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pybroker.tsql.expressions import types
from pybroker.tsql.expressions.types import Unfaithful
from pybroker.tsql.language import tree
from pybroker.tsql.procedures import flow, trying
from pybroker.tsql.procedures.codes import LEFT_BEHIND, RETURN, returning
from pybroker.tsql.translation import identifier, literal

if TYPE_CHECKING:
    from pybroker.tsql.language.jumps import Left
    from pybroker.tsql.procedures.body import Body


def if_(body: Body, one: tree.If, word: str = "if") -> None:
    """Print IF with ELSE."""
    condition = '"@@condition"' if id(one) in body.conditions else body.condition(one.condition)
    body.line(f"{word} {condition} then")
    reset = _reset(body, one)
    with body.indented():
        for line in reset:
            body.line(line)
    body.block(one.then)
    otherwise = one.otherwise
    if isinstance(otherwise, tree.If) and not reset and not _needs_block(body, otherwise):
        if_(body, otherwise, "elsif")
        return
    if otherwise is not None or reset:
        body.line("else")
        with body.indented():
            for line in reset:
                body.line(line)
        if otherwise is not None:
            body.block(otherwise)
    body.line("end if;")


def _needs_block(body: Body, one: tree.If) -> bool:
    if body.current_try is None:
        return False
    return not trying.splits(one, body.current_try) or not trying.SAFE.fullmatch(one.condition.text)


def while_(body: Body, one: tree.While) -> None:
    """Print WHILE."""
    condition = body.condition(one.condition)
    is_computed = body.current_try is not None and not trying.SAFE.fullmatch(one.condition.text)
    always = flow.TRUE.fullmatch(one.condition.text) or is_computed
    body.line("loop" if always else f"while {condition} loop")
    if body.current_try is not None and is_computed:
        with body.indented():
            trying.computed(body, one, body.current_try)
            body.line('exit when "@@condition" is not true;')
    reset = _reset(body, one)
    with body.indented():
        for line in reset:
            body.line(line)
    body.block(one.body)
    body.line("end loop;")
    for what, variable in LEFT_BEHIND.items():
        if body.flow.is_read(one, what):
            body.line(f"{variable} := 0;")


def _reset(body: Body, one: tree.If | tree.While) -> list[str]:
    """Return what a condition leaves behind: a statement of its own that neither has rows nor fails."""
    read = body.flow.in_branches.get(id(one), ())
    return [f"{variable} := 0;" for what, variable in LEFT_BEHIND.items() if what in read]


def left(body: Body, one: Left) -> None:
    """Print statements that GOTO leaves."""
    label = identifier(f"{one.label}:")
    body.line(f"<<{label}>>")
    body.line("begin")
    with body.indented():
        body.each(one.statements)
        body.line("null;")
    body.line(f"end {label};")


def goto(body: Body, one: tree.Goto) -> None:
    """Print GOTO."""
    body.line(f"exit {identifier(f'{one.label.casefold()}:')};")


def return_(body: Body, one: tree.Return) -> None:
    """Print RETURN; the code has no reader here."""
    if body.returned is not None:
        if one.value is None:
            raise Unfaithful("RETURN of a function needs a value")
        body.line(f"return {body.value(one.value, body.returned)};")
        return
    if any(body.flow.depths(one)):
        body.open_at_end(one.position)
    if one.value is not None and body.returns != RETURN:
        body.note(one.position, "the return code of a trigger has no meaning")
    elif one.value is not None and one.value.text.strip() != "0":
        value = body.value(one.value, types.INTEGER)
        body.line(returning(literal(value) if value.isdigit() else f"cast({value} as text)"))
    elif body.has_calls:
        body.line(returning("'0'"))
    body.line(body.returns)
