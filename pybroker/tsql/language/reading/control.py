"""Reads blocks, control flow, TRY and CATCH, and what raises or prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pybroker.tsql.language import tree
from pybroker.tsql.language.reading import conversations, transactions

if TYPE_CHECKING:
    from pybroker.tsql.language.reading.reader import Reader
    from pybroker.tsql.source import Position
    from pybroker.tsql.tree import Statement


def begin(reader: Reader, position: Position) -> Statement:
    """Read what BEGIN begins: a transaction, a dialog, a timer, TRY, or a block."""
    if reader.skip_one("TRAN", "TRANSACTION"):
        return transactions.transaction(reader, "BEGIN", position)
    if reader.skip("DIALOG"):
        reader.skip("CONVERSATION")
        return conversations.begin_dialog(reader, position)
    if reader.skip("CONVERSATION", "TIMER"):
        reader.expect("(")
        handle = reader.code()
        reader.expect(")", "TIMEOUT", "=")
        return tree.BeginTimer(position=position, handle=handle, timeout=reader.code())
    if reader.is_("CONVERSATION"):
        reader.at += 1
        return conversations.begin_dialog(reader, position)
    if reader.skip("TRY"):
        return _try(reader, position)
    if reader.is_("DISTRIBUTED") or reader.is_("ATOMIC"):
        reader.refuse(f"BEGIN {reader.word()} is not translated: write BEGIN TRANSACTION")
    statements = reader.statements()
    reader.expect("END")
    if not statements:
        reader.at -= 1
        reader.refuse("BEGIN and END hold no statement")
    return tree.Block(position=position, statements=tuple(statements))


def if_(reader: Reader, position: Position) -> Statement:
    """Read IF."""
    condition = reader.code()
    then = reader.statement()
    before = reader.at
    while reader.skip(";"):
        pass
    if reader.skip("ELSE"):
        return tree.If(position=position, condition=condition, then=then, otherwise=reader.statement())
    reader.at = before
    return tree.If(position=position, condition=condition, then=then)


def while_(reader: Reader, position: Position) -> Statement:
    """Read WHILE."""
    condition = reader.code()
    return tree.While(position=position, condition=condition, body=reader.statement())


def goto(reader: Reader, position: Position) -> Statement:
    """Read GOTO."""
    return tree.Goto(position=position, label=reader.identifier())


def return_(reader: Reader, position: Position) -> Statement:
    """Read RETURN."""
    return tree.Return(position=position, value=None if reader.is_over() else reader.code())


def _try(reader: Reader, position: Position) -> Statement:
    body = reader.statements()
    reader.expect("END", "TRY")
    reader.skip(";")
    reader.expect("BEGIN", "CATCH")
    handler = reader.statements()
    reader.expect("END", "CATCH")
    return tree.TryCatch(position=position, body=tuple(body), handler=tuple(handler))


def throw(reader: Reader, position: Position) -> Statement:
    """Read THROW."""
    is_alone = reader.is_over() or reader.is_("THROW")
    return tree.Throw(position=position, arguments=() if is_alone else _arguments_alone(reader))


def _arguments_alone(reader: Reader) -> tuple[tree.Code, ...]:
    found = [reader.code(comma=True)]
    while reader.skip(","):
        found.append(reader.code(comma=True))
    return tuple(found)


def raiserror(reader: Reader, position: Position) -> Statement:
    """Read RAISERROR."""
    if not reader.is_("("):
        reader.refuse("RAISERROR without parentheses: write RAISERROR (message, severity, state)")
    reader.at += 1
    arguments = _arguments_alone(reader)
    reader.expect(")")
    options: list[str] = []
    if reader.skip("WITH"):
        options.append(reader.identifier().upper())
        while reader.skip(","):
            options.append(reader.identifier().upper())
    return tree.RaiseError(position=position, arguments=arguments, options=tuple(options))


def print_(reader: Reader, position: Position) -> Statement:
    """Read PRINT."""
    return tree.Print(position=position, value=reader.code())
