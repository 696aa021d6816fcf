"""Statements on conversations in PL/pgSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pybroker.tsql.expressions import translating, types
from pybroker.tsql.expressions.queue import MESSAGE
from pybroker.tsql.expressions.types import Type, Unfaithful
from pybroker.tsql.language import tree
from pybroker.tsql.procedures import queries
from pybroker.tsql.procedures.codes import COUNT
from pybroker.tsql.source import ScriptError
from pybroker.tsql.translation import literal

if TYPE_CHECKING:
    from pybroker.tsql.procedures.body import Body
    from pybroker.tsql.tree import Name


def begin_dialog(body: Body, one: tree.BeginDialog) -> None:
    """Print BEGIN DIALOG."""
    arguments = [body.exact(one.from_service), body.value(one.to_service, types.TEXT)]
    if one.contract is not None:
        arguments.append(f"contract => {body.exact(one.contract)}")
    if one.broker_instance is not None:
        instance = body.value(one.broker_instance, types.TEXT)
        if instance.upper() == "'CURRENT DATABASE'":
            instance = "'CURRENT DATABASE'"
        arguments.append(f"broker_instance => {instance}")
    if one.related_conversation is not None:
        arguments.append(f"related_conversation => {body.value(one.related_conversation, types.UUID)}")
    if one.related_conversation_group is not None:
        arguments.append(
            f"related_conversation_group => {body.value(one.related_conversation_group, types.UUID)}"
        )
    if one.lifetime is not None:
        arguments.append(f"lifetime => {_seconds(body, one.lifetime)}")
    if one.encryption is not None:
        arguments.append(f"encryption => {'true' if one.encryption else 'false'}")
    handle = body.scope.variable(one.handle).sql
    body.line(f"{handle} := broker.begin_dialog({', '.join(arguments)});")


def _seconds(body: Body, code: tree.Code) -> str:
    if code.text.strip().isdigit():
        return f"'{int(code.text)} s'"
    return f"make_interval(secs => {body.value(code, types.INTEGER)})"


def send(body: Body, one: tree.Send) -> None:
    """Print SEND."""
    arguments = []
    if one.message_type is not None:
        arguments.append(body.exact(one.message_type))
    elif one.body is not None:
        arguments.append("'DEFAULT'")
    if one.body is not None:
        found = translating.body(one.body, body.scope)
        body.note_all(one.body.position, found.notes)
        sent = f"cast({found.sql} as text)" if found.type.sql.startswith("varchar") else found.sql
        arguments.append(sent)
    handles = [body.value(handle, types.UUID) for handle in one.handles]
    if len(handles) == 1:
        body.line(f"perform broker.send({', '.join([*handles, *arguments])});")
    else:
        body.line(f"perform broker.send_all(array[{', '.join(handles)}]::uuid[], {', '.join(arguments)});")


def receive(body: Body, one: tree.Receive, timeout: str = "") -> None:
    """Print RECEIVE."""
    arguments = [literal(_queue(one.queue))]
    if one.top is not None:
        arguments.append(f"top => {body.value(one.top, types.INTEGER)}")
    for column, code in (
        ("conversation_handle", one.conversation_handle),
        ("conversation_group_id", one.conversation_group_id),
    ):
        if code is not None:
            value = body.value(code, types.UUID)
            # NULL would be no condition, and takes nothing in SQL Server.
            arguments.append(f"{column} => coalesce({value}, '00000000-0000-0000-0000-000000000000')")
    if timeout:
        arguments.append(f"timeout => {timeout}")
    source = f"broker.receive({', '.join(arguments)})"
    if one.into is not None:
        _receive_into(body, one, source, one.into)
    elif any(column.variable for column in one.columns):
        _receive_variables(body, one, source)
    else:
        _receive_rows(body, one, source)


def _receive_variables(body: Body, one: tree.Receive, source: str) -> None:
    body.declarations.setdefault('"@@message"', "broker.message")
    counts = body.flow.is_read(one, "@@rowcount")
    if counts:
        body.line(f"{COUNT} := 0;")
    body.line(f'for "@@message" in select * from {source} loop')
    with body.indented():
        for column in one.columns:
            if column.variable is None:
                raise ScriptError(column.value.position, "RECEIVE either assigns all of its columns or none")
            known = body.scope.variable(column.variable)
            value = body.value(column.value, known.type, ('"@@message".', MESSAGE))
            body.line(f"{known.sql} := {value};")
        if counts:
            body.line(f"{COUNT} := {COUNT} + 1;")
    body.line("end loop;")


def _received(body: Body, one: tree.Receive) -> list[tuple[str | None, str, Type]]:
    """Return the columns with their headings, values and types."""
    found: list[tuple[str | None, str, Type]] = []
    for column in one.columns:
        if column.value.text.strip() == "*":
            found += [(name, f"m.{name}", type_) for name, type_ in MESSAGE.items()]
            continue
        value = translating.expression(column.value, body.scope, None, ("m.", MESSAGE))
        body.note_all(column.value.position, value.notes)
        own = column.value.text.strip().strip("[]").lower() if value.sql.startswith("m.") else None
        heading = column.name or own
        found.append((heading, value.sql, value.type))
    return found


def _receive_into(body: Body, one: tree.Receive, source: str, into: str) -> None:
    target = body.scope.table_variable(into)
    columns = _received(body, one)
    wanted = list((target.columns or {}).values())
    if len(columns) != len(wanted):
        raise Unfaithful(f"{into} has {len(wanted)} columns, and RECEIVE gives {len(columns)}: list them")
    items = [types.convert(sql, type_, other) for (_, sql, type_), other in zip(columns, wanted, strict=True)]
    body.line(f"insert into {target.sql}")
    body.line(f"select {', '.join(items)}")
    body.line(f"from {source} m;")
    if body.flow.is_read(one, "@@rowcount"):
        body.line(f"get diagnostics {COUNT} = row_count;")


def _receive_rows(body: Body, one: tree.Receive, source: str) -> None:
    columns = _received(body, one)
    items = ", ".join(sql for _, sql, _ in columns)
    queries.result_set(
        body,
        one,
        translating.Statement(
            f"select {items} from {source} m", tuple((heading, type_) for heading, _, type_ in columns)
        ),
    )


def wait_for(body: Body, one: tree.WaitFor) -> None:
    """Print WAITFOR (RECEIVE …) and WAITFOR (GET CONVERSATION GROUP …)."""
    timeout = "null"
    if one.timeout is not None:
        text = one.timeout.text.strip()
        if text.isdigit():
            count = int(text)
            timeout = f"'{count // 1000} s'" if count % 1000 == 0 else f"'{count} ms'"
        elif text.replace(" ", "") != "-1":
            value = body.value(one.timeout, types.INTEGER)
            timeout = f"case when {value} >= 0 then make_interval(secs => {value} / 1000.0) end"
    # Who reads @@ROWCOUNT behind WAITFOR reads that of what it waits for.
    body.flow.after[id(one.statement)] = body.flow.after.get(id(one), frozenset())
    if isinstance(one.statement, tree.Receive):
        receive(body, one.statement, timeout)
    else:
        get_conversation_group(body, one.statement, timeout)


def get_conversation_group(body: Body, one: tree.GetConversationGroup, timeout: str = "") -> None:
    """Print GET CONVERSATION GROUP; where there is none, the variable is NULL in both."""
    waits = f", timeout => {timeout}" if timeout else ""
    variable = body.scope.variable(one.variable).sql
    body.line(f"{variable} := broker.get_conversation_group({literal(_queue(one.queue))}{waits});")
    body.set_count(one, f"case when {variable} is null then 0 else 1 end")


def move_conversation(body: Body, one: tree.MoveConversation) -> None:
    """Print MOVE CONVERSATION."""
    handle, group = body.value(one.handle, types.UUID), body.value(one.group, types.UUID)
    body.line(f"perform broker.move_conversation({handle}, {group});")


def end_conversation(body: Body, one: tree.EndConversation) -> None:
    """Print END CONVERSATION."""
    arguments = [body.value(one.handle, types.UUID)]
    if one.error is not None:
        arguments.append(f"error_code => {body.value(one.error, types.INTEGER)}")
    if one.description is not None:
        arguments.append(f"error_description => {body.value(one.description, types.TEXT)}")
    if one.cleanup:
        arguments.append("cleanup => true")
    body.line(f"perform broker.end_conversation({', '.join(arguments)});")


def begin_timer(body: Body, one: tree.BeginTimer) -> None:
    """Print BEGIN CONVERSATION TIMER."""
    handle = body.value(one.handle, types.UUID)
    body.line(f"perform broker.begin_conversation_timer({handle}, {_seconds(body, one.timeout)});")


def _queue(name: Name) -> str:
    return name.name.lower()
