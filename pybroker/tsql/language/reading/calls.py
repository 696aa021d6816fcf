"""Reads EXEC."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pybroker.tsql.language import tree
from pybroker.tsql.language.words import name_of
from pybroker.tsql.tree import Name

if TYPE_CHECKING:
    from pybroker.tsql.language.reading.reader import Reader
    from pybroker.tsql.source import Position
    from pybroker.tsql.tree import Statement


def exec_(reader: Reader, position: Position) -> Statement:
    """Read EXEC of a procedure or of a text."""
    if reader.is_("AS"):
        reader.refuse("EXECUTE AS as a statement is not translated: use SET ROLE, or EXECUTE AS on modules")
    if reader.is_("("):
        reader.at += 1
        text = reader.code()
        reader.expect(")")
        if reader.is_("AT"):
            reader.refuse("EXEC … AT a linked server is not translated")
        return tree.ExecuteText(position=position, text=text)
    return called(reader, position)


def called(reader: Reader, position: Position) -> Statement:
    """Read a procedure's name and its arguments."""
    one = reader.peek()
    result = None
    if one is not None and one.kind == "variable" and reader.word(1) == "=":
        result = reader.variable()
        reader.at += 1
        one = reader.peek()
    procedure = Name(reader.variable()) if one is not None and one.kind == "variable" else reader.name()
    if reader.skip(";"):
        reader.at -= 1
    arguments = []
    if not reader.is_over() and not reader.is_("WITH"):
        arguments.append(_argument(reader))
        while reader.skip(","):
            arguments.append(_argument(reader))
    if reader.skip("WITH"):
        reader.expect("RECOMPILE")
    return tree.Execute(position=position, result=result, procedure=procedure, arguments=tuple(arguments))


def _argument(reader: Reader) -> tree.Argument:
    one = reader.peek()
    name = None
    if one is not None and one.kind == "variable" and reader.word(1) == "=":
        name = reader.variable()
        reader.at += 1
    if reader.skip("DEFAULT"):
        return tree.Argument(name=name, value=None)
    value = _text_of_name(reader) or reader.code("OUTPUT", "OUT", "WITH", comma=True)
    return tree.Argument(name=name, value=value, is_output=reader.skip_one("OUTPUT", "OUT") is not None)


def _text_of_name(reader: Reader) -> tree.Code | None:
    """Read a name, which EXEC takes for a text."""
    one = reader.peek()
    is_name = one is not None and (
        one.kind == "quoted" or (one.kind == "word" and one.word not in ("CASE", "NULL"))
    )
    if one is None or not is_name or reader.word(1) in ("(", "."):
        return None
    text = name_of(one).replace("'", "''")
    reader.at += 1
    return tree.Code(f"'{text}'", reader.place(one.begin))
