"""What becomes of control flow, of what raises or prints, and of SET options."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any

from pybroker.tsql import conditions
from pybroker.tsql.execution import GoTo, ReturnFromBatch
from pybroker.tsql.expressions import types
from pybroker.tsql.expressions.alterations import identity_insert
from pybroker.tsql.expressions.translating import condition
from pybroker.tsql.language import tree
from pybroker.tsql.language.printing import print_statement
from pybroker.tsql.preparing.preparer import NUMBER, plain_number
from pybroker.tsql.procedures.flow import ISOLATION
from pybroker.tsql.session import StatementError
from pybroker.tsql.source import ScriptError, offset_of
from pybroker.tsql.steps import Step

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pybroker.tsql.execution import Execution
    from pybroker.tsql.language.jumps import Again, Left, Repeated
    from pybroker.tsql.preparing.preparer import Preparer
    from pybroker.tsql.tree import Statement

_FORMAT = re.compile(r"%%|%(?P<flags>[-+ #0]*)(?P<width>\d*)(?:\.\d+)?(?:I64|l|h)?(?P<kind>[diosuxX])")
_WITHOUT_MEANING = frozenset({"DATEFIRST", "DATEFORMAT", "LANGUAGE", "NOEXEC", "PARSEONLY", "FMTONLY"})


def block(at: Preparer, one: tree.Block) -> Step:
    """Prepare BEGIN … END."""
    inner = tuple(at.all(one.statements))
    return Step(one.position, "BEGIN", None, act=lambda execution: execution.run(inner), inner=inner)


def if_(at: Preparer, one: tree.If) -> Step:
    """Prepare IF."""
    question = _question(at, one)
    asked = None if question is not None else condition(one.condition, at.scope)
    then = (at.one(one.then),)
    otherwise = () if one.otherwise is None else (at.one(one.otherwise),)

    def act(execution: Execution) -> None:
        if question is not None:
            holds = execution.session.answer(question)
        else:
            holds = execution.answer(asked.sql if asked else "false")
        execution.choose(answer=holds, then=then, otherwise=otherwise)

    if question is None and asked is not None and not asked.reads:
        question = conditions.Condition(f"select {asked.sql.replace('%%', '%')}")
    notes = asked.notes if asked else ()
    return Step(one.position, "IF", None, notes, act=act, inner=then, otherwise=otherwise, question=question)


def _question(at: Preparer, one: tree.If) -> conditions.Condition | None:
    """Return what the catalog is asked, where its names match as SQL Server's do."""
    begin = offset_of(at.batch, one.position)
    try:
        found, end = conditions.read(at.batch, begin)
    except ScriptError:
        return None
    whole = offset_of(at.batch, one.condition.position) + len(one.condition.text)
    return found if end == whole else None


def left(at: Preparer, one: Left) -> Step:
    """Prepare statements that GOTO leaves."""
    inner = tuple(at.all(one.statements))

    def act(execution: Execution) -> None:
        try:
            execution.run(inner)
        except GoTo as jump:
            if jump.label != one.label:
                raise

    return Step(one.position, "BEGIN", None, act=act, inner=inner)


def repeated(at: Preparer, one: Repeated) -> Step:
    """Prepare statements that GOTO begins anew."""
    inner = tuple(at.all(one.statements))

    def act(execution: Execution) -> None:
        while True:
            try:
                execution.run(inner)
            except GoTo as jump:
                if jump.label != one.label:
                    raise
            else:
                return

    return Step(one.position, "BEGIN", None, act=act, inner=inner)


def goto(at: Preparer, one: tree.Goto | Again) -> Step:
    """Prepare GOTO."""

    def act(_: Execution) -> None:
        raise GoTo(one.label.casefold())

    return at.step(tree.Goto(position=one.position, label=one.label), None, act)


def while_(at: Preparer, one: tree.While) -> Step:
    """Prepare WHILE."""
    asked = condition(one.condition, at.scope)
    at.loops += 1
    inner = (at.one(one.body),)
    at.loops -= 1
    return Step(
        one.position,
        "WHILE",
        None,
        asked.notes,
        act=lambda execution: execution.loop(asked.sql, inner),
        inner=inner,
    )


def raising(at: Preparer, one: Statement, signal: type[Exception]) -> Step:
    """Prepare what ends a loop or the batch, by raising a signal."""
    if signal is not ReturnFromBatch and not at.loops:
        raise ScriptError(one.position, f"{print_statement(one)[:-1]} stands in no WHILE")

    def act(_: Execution) -> None:
        raise signal

    return at.step(one, None, act)


def return_(at: Preparer, one: tree.Return) -> Step:
    """Prepare RETURN."""
    if one.value is not None:
        raise ScriptError(one.position, "RETURN with a value belongs to procedures: write RETURN")
    return raising(at, one, ReturnFromBatch)


def try_(at: Preparer, one: tree.TryCatch) -> Step:
    """Prepare TRY and CATCH."""
    tried, handler = tuple(at.all(one.body)), tuple(at.all(one.handler))
    return Step(
        one.position,
        "BEGIN TRY",
        None,
        act=lambda execution: execution.attempt(tried, handler),
        inner=tried,
        otherwise=handler,
    )


def throw(at: Preparer, one: tree.Throw) -> Step:
    """Prepare THROW."""
    if not one.arguments:
        return at.step(one, None, lambda execution: execution.throw())
    if len(one.arguments) != 3:  # noqa: PLR2004 - number, message, state
        raise ScriptError(one.position, "THROW has a number, a message and a state, or nothing")
    number, message, state = one.arguments
    kinds = (types.INTEGER, types.TEXT, types.INTEGER)
    sql = ", ".join(
        at.value(code, kind).sql for code, kind in zip((number, message, state), kinds, strict=True)
    )

    def act(execution: Execution) -> None:
        found = execution.query(f"select {sql}", writes=False).rows[0]
        raise StatementError(found[1] or "", found[0], state=found[2] or 0)

    return at.step(one, f"select {sql}", act)


def raise_error(at: Preparer, one: tree.RaiseError) -> Step:
    """Prepare RAISERROR."""
    if len(one.arguments) < 3:  # noqa: PLR2004 - message, severity, state
        raise ScriptError(one.position, "RAISERROR has a message, a severity and a state")
    message, severity, state, *quoted = one.arguments
    if plain_number(message) is not None:
        raise ScriptError(message.position, "numbers of sys.messages are not known here: write the message")
    items = [
        at.value(message, types.TEXT).sql,
        at.value(severity, types.INTEGER).sql,
        at.value(state, types.INTEGER).sql,
        *(at.value(code).sql for code in quoted),
    ]
    notes = tuple(
        f"{option} has no meaning here" for option in one.options if option not in ("NOWAIT", "SETERROR")
    )
    sql = f"select {', '.join(items)}"

    def act(execution: Execution) -> None:
        text, level, state, *given = execution.query(sql, writes=False).rows[0]
        execution.raise_error(_formatted(text or "", given), int(level or 0), int(state or 0))

    return at.step(one, sql, act, notes)


def _formatted(message: str, given: Sequence[Any]) -> str:
    waiting = iter(given)

    def one(found: re.Match[str]) -> str:
        if found.group() == "%%":
            return "%"
        value = next(waiting, None)
        kind = "s" if value is None or found["kind"] == "s" else found["kind"].replace("u", "d")
        written = "(null)" if value is None else value
        try:
            return f"%{found['flags']}{found['width']}{kind}" % written
        except (TypeError, ValueError):
            return str(written)

    return _FORMAT.sub(one, message)


def print_(at: Preparer, one: tree.Print) -> Step:
    """Prepare PRINT."""
    value = at.value(one.value, types.TEXT)

    def act(execution: Execution) -> None:
        execution.session.show_text(execution.value(value.sql) or "")

    return at.step(one, f"select {value.sql}", act, value.notes)


def delay(at: Preparer, one: tree.Delay) -> Step:
    """Prepare WAITFOR DELAY and TIME."""
    value = at.value(one.value)
    return at.step(
        one,
        f"select {value.sql}",
        lambda execution: execution.delay(one.kind, execution.value(value.sql)),
        value.notes,
    )


def set_option(at: Preparer, one: tree.SetOption) -> Step:
    """Prepare SET of an option."""
    if one.option == "XACT_ABORT":
        return at.step(one, None, partial(_set_abort, value=one.value.upper() == "ON"))
    if one.option == "TRANSACTION" and ISOLATION.fullmatch(one.value):
        return at.step(
            one, None, _nothing, ("READ COMMITTED is what there is: no reader waits for a writer",)
        )
    if one.option == "LOCK_TIMEOUT" and NUMBER.fullmatch(one.value.replace(" ", "")):
        milliseconds = max(int(one.value.replace(" ", "")), 0)
        return Step(one.position, print_statement(one), f"set lock_timeout = {milliseconds}")
    if one.option in ("IMPLICIT_TRANSACTIONS", "ROWCOUNT") and one.value.upper() in ("OFF", "0"):
        return at.step(one, None, _nothing, (f"SET {one.option} {one.value} is as it is here",))
    if one.option in _WITHOUT_MEANING:
        return at.step(one, None, _nothing, (f"SET {one.option} has no meaning here",))
    if one.option == "IDENTITY_INSERT":
        at.scope.identity_insert = identity_insert(one, at.scope)
        if not at.is_text:
            at.known.identity_insert = at.scope.identity_insert
        return at.step(one, None, _nothing)
    raise ScriptError(one.position, f"SET {one.option} {one.value} has no form here: leave it out")


def _set_abort(execution: Execution, *, value: bool) -> None:
    execution.session.aborts_on_error = value


def _nothing(_: Execution) -> None:
    pass
