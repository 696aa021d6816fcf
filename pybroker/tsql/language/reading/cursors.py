"""Reads what is said of cursors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pybroker.tsql.language import tree
from pybroker.tsql.language.reading import queries

if TYPE_CHECKING:
    from pybroker.tsql.language.reading.reader import Reader
    from pybroker.tsql.source import Position
    from pybroker.tsql.tree import Statement


def declare_cursor(reader: Reader, name: str, position: Position) -> Statement:
    """Read DECLARE CURSOR, behind the name."""
    options = []
    while (option := reader.skip_one("INSENSITIVE", "SCROLL")) is not None:
        options.append(option)
    reader.expect("CURSOR")
    return cursor_query(reader, name, position, options)


def cursor_query(reader: Reader, name: str, position: Position, before: list[str] | None = None) -> Statement:
    """Read a cursor's options and its query."""
    options = list(before or [])
    while not reader.is_("FOR"):
        one = reader.peek()
        if one is None or one.kind != "word" or reader.begins_statement(reader.at):
            reader.refuse(None, "FOR")
        options.append(one.word)
        reader.at += 1
    reader.at += 1
    first = reader.at
    verb = queries.main_verb(reader)
    if verb != "SELECT":
        reader.at -= 1
        reader.refuse(None, "SELECT")
    goes_on = queries.query_goes_on(reader, verb, first)
    reader.span(goes_on=lambda at: goes_on(at) or reader.words[at - 1].word == "FOR")
    return tree.DeclareCursor(
        position=position, name=name, options=tuple(options), query=reader.code_between(first, reader.at)
    )


def _cursor_name(reader: Reader) -> str:
    one = reader.peek()
    if one is not None and one.kind == "variable":
        return reader.variable()
    reader.skip("GLOBAL")
    return reader.identifier()


def open_(reader: Reader, position: Position) -> Statement:
    """Read OPEN."""
    return tree.Cursor(position=position, verb="OPEN", name=_cursor_name(reader))


def close(reader: Reader, position: Position) -> Statement:
    """Read CLOSE."""
    return tree.Cursor(position=position, verb="CLOSE", name=_cursor_name(reader))


def deallocate(reader: Reader, position: Position) -> Statement:
    """Read DEALLOCATE."""
    return tree.Cursor(position=position, verb="DEALLOCATE", name=_cursor_name(reader))


def fetch(reader: Reader, position: Position) -> Statement:
    """Read FETCH."""
    direction = reader.skip_one("NEXT", "PRIOR", "FIRST", "LAST", "ABSOLUTE", "RELATIVE") or "NEXT"
    offset = reader.code("FROM") if direction in ("ABSOLUTE", "RELATIVE") else None
    reader.skip("FROM")
    name = _cursor_name(reader)
    variables = []
    if reader.skip("INTO"):
        variables.append(reader.variable())
        while reader.skip(","):
            variables.append(reader.variable())
    return tree.Fetch(
        position=position, direction=direction, offset=offset, name=name, variables=tuple(variables)
    )
