"""Reads what Service Broker adds to programs: conversations, SEND, RECEIVE and WAITFOR."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pybroker.tsql.language import tree
from pybroker.tsql.language.words import name_of

if TYPE_CHECKING:
    from pybroker.tsql.language.reading.reader import Reader
    from pybroker.tsql.source import Position
    from pybroker.tsql.tree import Statement

_ENDS_VALUE = frozenset({"word", "quoted", "text", "number", "variable"})


def begin_dialog(reader: Reader, position: Position) -> Statement:
    """Read BEGIN DIALOG, from the handle on."""
    handle = reader.variable()
    reader.expect("FROM", "SERVICE")
    from_service = reader.exact()
    reader.expect("TO", "SERVICE")
    to_service = reader.code("ON", "WITH", comma=True)
    instance = reader.code("ON", "WITH") if reader.skip(",") else None
    contract = reader.exact() if reader.skip("ON", "CONTRACT") else None
    options: dict[str, Any] = {}
    if reader.is_("WITH"):
        reader.at += 1
        options = _dialog_options(reader)
    return tree.BeginDialog(
        position=position,
        handle=handle,
        from_service=from_service,
        to_service=to_service,
        broker_instance=instance,
        contract=contract,
        **options,
    )


def _dialog_options(reader: Reader) -> dict[str, Any]:
    names = ("RELATED_CONVERSATION", "RELATED_CONVERSATION_GROUP", "LIFETIME", "ENCRYPTION")
    found: dict[str, Any] = {}
    while True:
        name = reader.skip_one(*names)
        if name is None:
            reader.refuse(None, *names)
        if name.lower() in found:
            reader.at -= 1
            reader.refuse(f"{name} is given twice: leave one")
        reader.expect("=")
        if name == "ENCRYPTION":
            found["encryption"] = _switch(reader)
        else:
            found[name.lower()] = reader.code(*names, comma=True)
        if not reader.skip(",") and reader.word() not in names:
            return found


def _switch(reader: Reader) -> bool:
    found = reader.skip_one("ON", "OFF")
    if found is None:
        reader.refuse(None, "ON", "OFF")
    return found == "ON"


def _handle(reader: Reader) -> tree.Code:
    one = reader.peek()
    if one is None or one.kind not in ("variable", "text"):
        reader.refuse(None, "a conversation handle")
    reader.at += 1
    return reader.code_between(reader.at - 1, reader.at)


def send(reader: Reader, position: Position) -> Statement:
    """Read SEND."""
    reader.expect("ON", "CONVERSATION")
    if reader.skip("("):
        handles = [reader.code(comma=True)]
        while reader.skip(","):
            handles.append(reader.code(comma=True))
        reader.expect(")")
    else:
        handles = [_handle(reader)]
        while reader.skip(","):
            handles.append(_handle(reader))
    message_type = reader.exact() if reader.skip("MESSAGE", "TYPE") else None
    body = None
    if reader.skip("("):
        body = reader.code()
        reader.expect(")")
    return tree.Send(position=position, handles=tuple(handles), message_type=message_type, body=body)


def receive(reader: Reader, position: Position) -> tree.Receive:
    """Read RECEIVE."""
    top = reader.top()
    columns = [_column(reader)]
    while reader.skip(","):
        columns.append(_column(reader))
    reader.expect("FROM")
    queue = reader.name()
    into = reader.variable() if reader.skip("INTO") else None
    where: dict[str, Any] = {}
    if reader.skip("WHERE"):
        name = reader.skip_one("CONVERSATION_HANDLE", "CONVERSATION_GROUP_ID")
        one = reader.peek()
        if name is None and one is not None and one.kind == "quoted":
            name = name_of(one).upper()
            reader.at += name in ("CONVERSATION_HANDLE", "CONVERSATION_GROUP_ID")
        if name not in ("CONVERSATION_HANDLE", "CONVERSATION_GROUP_ID"):
            reader.refuse(None, "conversation_handle", "conversation_group_id")
        reader.expect("=")
        where[name.lower()] = reader.code("AND", "OR")
        if reader.word() in ("AND", "OR"):
            reader.refuse("RECEIVE asks for one conversation_handle or conversation_group_id, no more")
    return tree.Receive(position=position, top=top, columns=tuple(columns), queue=queue, into=into, **where)


def _column(reader: Reader) -> tree.Column:
    one, follower = reader.peek(), reader.word(1)
    if one is not None and one.kind == "variable" and follower == "=":
        variable = reader.variable()
        reader.at += 1
        return tree.Column(value=reader.code("FROM", comma=True), variable=variable)
    if one is not None and one.kind in ("word", "quoted") and follower == "=":
        name = reader.identifier()
        reader.at += 1
        return tree.Column(value=reader.code("FROM", comma=True), name=name)
    first = reader.at
    reader.span(frozenset({"AS", "FROM"}), comma=True)
    if reader.at == first:
        reader.refuse(None, "a column")
    behind = reader.at
    if reader.skip("AS"):
        return tree.Column(value=reader.code_between(first, behind), name=_alias(reader))
    last, before = reader.words[behind - 1], reader.words[behind - 2]
    is_alias = (
        behind - first > 1
        and last.kind in ("word", "quoted", "text")
        and last.word != "END"
        and (before.kind in _ENDS_VALUE or before.word == ")")
    )
    if is_alias:
        reader.at -= 1
        return tree.Column(value=reader.code_between(first, behind - 1), name=_alias(reader))
    return tree.Column(value=reader.code_between(first, behind))


def _alias(reader: Reader) -> str:
    one = reader.peek()
    if one is not None and one.kind == "text":
        reader.at += 1
        return one.written.partition("'")[2][:-1].replace("''", "'")
    return reader.identifier()


def get(reader: Reader, position: Position) -> tree.GetConversationGroup:
    """Read GET CONVERSATION GROUP."""
    reader.expect("CONVERSATION", "GROUP")
    variable = reader.variable()
    reader.expect("FROM")
    return tree.GetConversationGroup(position=position, variable=variable, queue=reader.name())


def waitfor(reader: Reader, position: Position) -> Statement:
    """Read WAITFOR: DELAY, TIME, RECEIVE or GET CONVERSATION GROUP."""
    kind = reader.skip_one("DELAY", "TIME")
    if kind is not None:
        return tree.Delay(position=position, kind=kind, value=reader.code())
    reader.expect("(")
    one = reader.peek()
    inner: tree.Receive | tree.GetConversationGroup
    if one is not None and reader.skip("RECEIVE"):
        inner = receive(reader, reader.place(one.begin))
    elif one is not None and reader.skip("GET"):
        inner = get(reader, reader.place(one.begin))
    else:
        reader.refuse(None, "RECEIVE", "GET CONVERSATION GROUP")
    reader.skip(";")
    reader.expect(")")
    timeout = None
    if reader.is_(",", "TIMEOUT") or reader.is_("TIMEOUT"):
        reader.skip(",")
        reader.at += 1
        timeout = reader.code()
    return tree.WaitFor(position=position, statement=inner, timeout=timeout)


def move(reader: Reader, position: Position) -> Statement:
    """Read MOVE CONVERSATION."""
    reader.expect("CONVERSATION")
    handle = reader.code("TO")
    reader.expect("TO")
    return tree.MoveConversation(position=position, handle=handle, group=reader.code())


def end(reader: Reader, position: Position) -> Statement:
    """Read END CONVERSATION."""
    reader.expect("CONVERSATION")
    handle = reader.code("WITH")
    error = description = None
    cleanup = False
    while reader.skip("WITH"):
        if reader.skip("CLEANUP"):
            cleanup = True
            continue
        reader.expect("ERROR", "=")
        error = reader.code("DESCRIPTION")
        reader.expect("DESCRIPTION", "=")
        description = reader.code("WITH")
    return tree.EndConversation(
        position=position, handle=handle, error=error, description=description, cleanup=cleanup
    )
