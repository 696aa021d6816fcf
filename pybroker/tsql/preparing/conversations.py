"""What becomes of conversations, SEND, RECEIVE and WAITFOR."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pybroker.tsql.expressions import types
from pybroker.tsql.expressions.queue import MESSAGE
from pybroker.tsql.expressions.translating import body, expression
from pybroker.tsql.expressions.types import Unfaithful
from pybroker.tsql.language import tree
from pybroker.tsql.preparing.preparer import plain_number, shown_headings
from pybroker.tsql.session import StatementError
from pybroker.tsql.source import ScriptError

if TYPE_CHECKING:
    from pybroker.tsql.execution import Execution
    from pybroker.tsql.preparing.preparer import Preparer
    from pybroker.tsql.steps import Step

_COLUMN = re.compile(r"(?:\w+\s*\.\s*)?(?:\[(?P<bracketed>[^\]]+)\]|(?P<plain>\w+))")


def begin_dialog(at: Preparer, one: tree.BeginDialog) -> Step:
    """Prepare BEGIN DIALOG."""
    type_ = at.variable(one.handle, one.position)
    if type_.family is not types.UUID.family:
        raise ScriptError(one.position, f"{one.handle} is no uniqueidentifier")
    given = [at.name(one.from_service), at.value(one.to_service, types.TEXT).sql]
    if one.contract is not None:
        given.append(f"contract => {at.name(one.contract)}")
    if one.broker_instance is not None:
        given.append(f"broker_instance => {at.value(one.broker_instance, types.TEXT).sql}")
    for name in ("related_conversation", "related_conversation_group"):
        code = getattr(one, name)
        if code is not None:
            given.append(f"{name} => {at.value(code, types.UUID).sql}")
    if one.lifetime is not None:
        given.append(f"lifetime => {_seconds(at, one.lifetime)}")
    if one.encryption is not None:
        given.append(f"encryption => {str(one.encryption).lower()}")
    sql = f"select broker.begin_dialog({', '.join(given)})"

    def act(execution: Execution) -> None:
        execution.values[one.handle.casefold()] = execution.query(sql).rows[0][0]

    return at.step(one, sql, act)


def _seconds(at: Preparer, code: tree.Code) -> str:
    number = plain_number(code)
    if number is not None:
        return f"'{number} s'"
    return f"make_interval(secs => {at.value(code, types.INTEGER).sql})"


def send(at: Preparer, one: tree.Send) -> Step:
    """Prepare SEND."""
    handles = [at.value(code, types.UUID).sql for code in one.handles]
    function = "send" if len(handles) == 1 else "send_all"
    given = [handles[0] if function == "send" else f"array[{', '.join(handles)}]"]
    if one.message_type is not None or one.body is not None:
        given.append("'DEFAULT'" if one.message_type is None else at.name(one.message_type))
    notes: tuple[str, ...] = ()
    if one.body is not None:
        sent = body(one.body, at.scope)
        family = sent.type.family
        cast = {types.BINARY.family: "bytea", types.XML.family: "xml"}.get(family, "text")
        given.append(f"cast({sent.sql} as {cast})")
        notes = sent.notes
    sql = f"select broker.{function}({', '.join(given)})"
    return at.step(one, sql, lambda execution: _did(execution, sql), notes)


def _did(execution: Execution, sql: str) -> None:
    execution.query(sql)


def receive(at: Preparer, one: tree.Receive, timeout: str | None = None) -> Step:
    """Prepare RECEIVE."""
    given = [at.queue(one.queue, one.position)]
    if one.top is not None:
        given.append(f"top => {at.value(one.top, types.INTEGER).sql}")
    checked = None
    for name in ("conversation_handle", "conversation_group_id"):
        code = getattr(one, name)
        if code is not None:
            checked = at.value(code, types.UUID).sql
            given.append(f"{name} => {checked}")
    if timeout is not None:
        given.append(f"timeout => {timeout}")
    source = f"broker.receive({', '.join(given)}) m"
    if one.into is not None:
        return _received_into(at, one, source, checked)
    variables = [column.variable for column in one.columns if column.variable is not None]
    if variables and len(variables) < len(one.columns):
        raise ScriptError(
            one.position, "RECEIVE assigns variables or returns columns, not both: give each a variable"
        )
    items: list[str] = []
    names: list[str | None] = []
    notes: list[str] = []
    for column in one.columns:
        if column.value.text == "*":
            items.append("m.*")
            names.append("*")
            continue
        target = None if column.variable is None else at.variable(column.variable, column.value.position)
        value = expression(column.value, at.scope, target, ("m.", MESSAGE))
        items.append(value.sql)
        names.append(_heading(column))
        notes += value.notes
    sql = f"select {', '.join(items)} from {source}"

    def act(execution: Execution) -> None:
        _check_condition(execution, checked)
        found = execution.query(sql)
        execution.rowcount = len(found.rows)
        if not variables:
            execution.session.show_rows(shown_headings(names, found.names or ()), found.rows)
            return
        if found.rows:
            execution.values.update(zip((name.casefold() for name in variables), found.rows[-1], strict=True))
        execution.session.show_count(execution.rowcount)

    return at.step(one, sql, act, notes)


def _check_condition(execution: Execution, sql: str | None) -> None:
    if sql is not None and execution.value(sql) is None:
        raise StatementError("The conversation handle is missing. Specify a conversation handle.", 8418)


def _received_into(at: Preparer, one: tree.Receive, source: str, checked: str | None) -> Step:
    try:
        table = at.scope.table_variable(one.into or "")
    except Unfaithful as reason:
        raise ScriptError(one.position, str(reason)) from None
    wanted = list((table.columns or {}).values())
    columns: list[tree.Code] = []
    for column in one.columns:
        if column.variable is not None:
            raise ScriptError(column.value.position, "RECEIVE … INTO has no variables: leave one of them")
        starred = column.value.text == "*"
        columns += [tree.Code(name, column.value.position) for name in MESSAGE] if starred else [column.value]
    if len(columns) != len(wanted):
        raise ScriptError(
            one.position,
            f"{one.into} has {len(wanted)} columns, and RECEIVE has {len(columns)}: make them equal",
        )
    items = [
        expression(code, at.scope, type_, ("m.", MESSAGE)).sql
        for code, type_ in zip(columns, wanted, strict=True)
    ]
    sql = f"insert into {table.sql} select {', '.join(items)} from {source}"

    def act(execution: Execution) -> None:
        _check_condition(execution, checked)
        execution.rowcount = execution.query(sql).count
        execution.session.show_count(execution.rowcount)

    return at.step(one, sql, act)


def _heading(column: tree.Column) -> str | None:
    if column.name is not None:
        return column.name
    found = _COLUMN.fullmatch(column.value.text)
    return found and (found["bracketed"] or found["plain"])


def get(at: Preparer, one: tree.GetConversationGroup, timeout: str | None = None) -> Step:
    """Prepare GET CONVERSATION GROUP."""
    at.variable(one.variable, one.position)
    given = at.queue(one.queue, one.position) + ("" if timeout is None else f", timeout => {timeout}")
    sql = f"select broker.get_conversation_group({given})"

    def act(execution: Execution) -> None:
        execution.values[one.variable.casefold()] = execution.query(sql).rows[0][0]

    return at.step(one, sql, act)


def waitfor(at: Preparer, one: tree.WaitFor) -> Step:
    """Prepare WAITFOR of RECEIVE or GET CONVERSATION GROUP."""
    timeout = "null"
    if one.timeout is not None:
        number = plain_number(one.timeout)
        if number is not None:
            timeout = f"'{number} ms'" if number >= 0 else "null"
        else:
            value = at.value(one.timeout, types.INTEGER).sql
            timeout = f"case when {value} >= 0 then make_interval(secs => {value} / 1000.0) end"
    if isinstance(one.statement, tree.Receive):
        return receive(at, one.statement, timeout)
    return get(at, one.statement, timeout)


def move(at: Preparer, one: tree.MoveConversation) -> Step:
    """Prepare MOVE CONVERSATION."""
    handle, group = (at.value(code, types.UUID).sql for code in (one.handle, one.group))
    sql = f"select broker.move_conversation({handle}, {group})"
    return at.step(one, sql, lambda execution: _did(execution, sql))


def end(at: Preparer, one: tree.EndConversation) -> Step:
    """Prepare END CONVERSATION."""
    given = [at.value(one.handle, types.UUID).sql]
    if one.error is not None and one.description is not None:
        given.append(f"error_code => {at.value(one.error, types.INTEGER).sql}")
        given.append(f"error_description => {at.value(one.description, types.TEXT).sql}")
    if one.cleanup:
        given.append("cleanup => true")
    sql = f"select broker.end_conversation({', '.join(given)})"
    return at.step(one, sql, lambda execution: _did(execution, sql))


def timer(at: Preparer, one: tree.BeginTimer) -> Step:
    """Prepare BEGIN CONVERSATION TIMER."""
    handle = at.value(one.handle, types.UUID).sql
    sql = f"select broker.begin_conversation_timer({handle}, {_seconds(at, one.timeout)})"
    return at.step(one, sql, lambda execution: _did(execution, sql))
