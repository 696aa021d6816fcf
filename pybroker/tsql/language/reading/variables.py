"""Reads DECLARE and SET."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pybroker.tsql.language import tree
from pybroker.tsql.language.reading import cursors
from pybroker.tsql.language.reading.queries import ASSIGNMENTS

if TYPE_CHECKING:
    from pybroker.tsql.language.reading.reader import Reader
    from pybroker.tsql.source import Position
    from pybroker.tsql.tree import Statement


def declare(reader: Reader, position: Position) -> Statement:
    """Read DECLARE."""
    one = reader.peek()
    if one is not None and one.kind in ("word", "quoted"):
        return cursors.declare_cursor(reader, reader.identifier(), position)
    if one is not None and reader.word(1) == "CURSOR" and one.kind == "variable":
        name = reader.variable()
        reader.at += 1
        cursor = tree.DeclareCursor(position=position, name=name)
        if not reader.skip(","):
            return cursor
        return tree.Block(position=position, statements=(cursor, declare(reader, position)))
    declared = [_declared(reader)]
    while reader.skip(","):
        declared.append(_declared(reader))
    return tree.Declare(position=position, variables=tuple(declared))


def _declared(reader: Reader) -> tree.Variable | tree.TableVariable:
    name = reader.variable()
    reader.skip("AS")
    if reader.skip("TABLE"):
        return tree.TableVariable(name=name, definition=reader.parenthesised())
    kind = reader.type_()
    default = reader.code(comma=True) if reader.skip("=") else None
    return tree.Variable(name=name, type=kind, default=default)


def set_(reader: Reader, position: Position) -> Statement:
    """Read SET, of a variable or of an option."""
    one = reader.peek()
    if one is None or one.kind != "variable":
        return _set_option(reader, position)
    name = reader.variable()
    operator = reader.skip_one(*ASSIGNMENTS)
    if operator is None and reader.is_("."):
        reader.refuse(f"{name}.{reader.word(1).lower()} changes an XML variable: assign a new value to it")
    if operator is None:
        reader.refuse(None, "=")
    if reader.skip("CURSOR"):
        return cursors.cursor_query(reader, name, position)
    return tree.Assign(position=position, variable=name, operator=operator, value=reader.code())


def _set_option(reader: Reader, position: Position) -> Statement:
    option = reader.identifier().upper()
    rest = []
    while True:
        one = reader.peek()
        # Its value may be ON and a name of several words.
        if one is None or one.word == ";" or reader.begins_statement(reader.at):
            break
        rest.append(one.written)
        reader.at += 1
    if not rest:
        reader.refuse(None, "ON", "OFF")
    return tree.SetOption(position=position, option=option, value=" ".join(rest))
