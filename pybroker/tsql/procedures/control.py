"""IF, WHILE, GOTO and RETURN in PL/pgSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pybroker.tsql.expressions import types
from pybroker.tsql.expressions.types import Unfaithful
from pybroker.tsql.language import tree
from pybroker.tsql.language.jumps import Repeated
from pybroker.tsql.procedures import flow, trying
from pybroker.tsql.procedures.codes import LEFT_BEHIND, RETURN, returning
from pybroker.tsql.translation import identifier, literal

if TYPE_CHECKING:
    from pybroker.tsql.language.jumps import Again, Left
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
    label = f"while {len(body.loops) + 1}" if _is_left_from_repeated(one.body) else None
    if label is not None:
        body.line(f"<<{identifier(label)}>>")
    body.line("loop" if always else f"while {condition} loop")
    if body.current_try is not None and is_computed:
        with body.indented():
            trying.computed(body, one, body.current_try)
            body.line('exit when "@@condition" is not true;')
    reset = _reset(body, one)
    with body.indented():
        for line in reset:
            body.line(line)
    body.loops.append(label)
    body.block(one.body)
    body.loops.pop()
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


def repeated(body: Body, one: Repeated) -> None:
    """Print statements that GOTO begins anew."""
    label = identifier(f"{one.label}:")
    body.line(f"<<{label}>>")
    body.line("loop")
    body.loops.append("")
    with body.indented():
        body.each(one.statements)
        body.line(f"exit {label};")
    body.loops.pop()
    body.line("end loop;")


def again(body: Body, one: Again) -> None:
    """Print GOTO to a label above."""
    body.line(f"continue {identifier(f'{one.label}:')};")


def leave(body: Body, word: str) -> None:
    """Print BREAK or CONTINUE; within what GOTO begins anew, it names the loop of WHILE."""
    if all(one == "" for one in body.loops):
        raise Unfaithful(f"{'BREAK' if word == 'exit' else 'CONTINUE'} stands in no WHILE")
    is_in_repeated = body.loops[-1] == ""
    label = next((one for one in reversed(body.loops) if one != ""), None) if is_in_repeated else None
    body.line(f"{word};" if label is None else f"{word} {identifier(label)};")


def _is_left_from_repeated(one: Any, *, within: bool = False) -> bool:
    """Whether BREAK or CONTINUE of a WHILE stands among what GOTO begins anew."""
    if isinstance(one, tree.Break | tree.Continue):
        return within
    if isinstance(one, tree.While):
        return False
    inner = within or isinstance(one, Repeated)
    return any(_is_left_from_repeated(part, within=inner) for part in flow.parts(one))


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
