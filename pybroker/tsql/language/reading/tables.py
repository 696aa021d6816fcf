"""Reads CREATE, ALTER and DROP of modules, tables, types and indexes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pybroker.tsql.language import tree
from pybroker.tsql.language.reading import modules

if TYPE_CHECKING:
    from pybroker.tsql.language.reading.reader import Reader
    from pybroker.tsql.source import Position
    from pybroker.tsql.tree import Statement

_MODULES = frozenset({"PROC", "PROCEDURE", "FUNCTION", "TRIGGER", "VIEW"})


def create(reader: Reader, position: Position) -> Statement:
    """Read CREATE."""
    return _made(reader, "CREATE OR ALTER" if reader.skip("OR", "ALTER") else "CREATE", position)


def alter(reader: Reader, position: Position) -> Statement:
    """Read ALTER."""
    return _made(reader, "ALTER", position)


def _made(reader: Reader, verb: str, position: Position) -> Statement:
    word = reader.word()
    if word in _MODULES:
        modules.must_be_first(reader, verb, word, position)
        reader.at += 1
        return modules.module(reader, word, verb, position)
    if verb == "CREATE" and reader.skip("TABLE"):
        return _table(reader, position)
    if verb == "CREATE" and reader.skip("TYPE"):
        return _user_type(reader, position)
    if verb == "ALTER" and word == "TABLE":
        return _alter_table(reader, position)
    if verb != "CREATE":
        reader.refuse(f"{verb} {word} is not translated")
    return _index(reader, position)


def _table(reader: Reader, position: Position) -> Statement:
    name = reader.name()
    definition = reader.parenthesised()
    filegroup = None
    while True:
        if reader.skip("ON") or reader.skip("TEXTIMAGE_ON"):
            filegroup = reader.identifier()
            if reader.is_("("):
                reader.parenthesised()
        elif reader.is_("WITH", "("):
            reader.at += 1
            reader.parenthesised()
        else:
            break
    return tree.CreateTable(position=position, name=name, definition=definition, filegroup=filegroup)


def _user_type(reader: Reader, position: Position) -> Statement:
    name = reader.name()
    if reader.skip("AS"):
        reader.expect("TABLE")
        return tree.CreateType(position=position, name=name, definition=reader.parenthesised())
    if not reader.skip("FROM"):
        reader.refuse(None, "FROM", "AS TABLE")
    base = reader.type_()
    is_null = False if reader.skip("NOT", "NULL") else True if reader.skip("NULL") else None
    return tree.CreateType(position=position, name=name, base=base, is_null=is_null)


def _alter_table(reader: Reader, position: Position) -> Statement:
    first = reader.at - 1
    reader.at += 1
    reader.name()
    # What follows begins with words that begin statements elsewhere.
    begin = reader.at
    reader.span(
        goes_on=lambda at: (
            at == begin
            or reader.words[at - 1].word in ("ON", ",")
            or (reader.words[at].word == "SET" and reader.words[at - 1].word in ("DELETE", "UPDATE"))
        )
    )
    return tree.Definition(position=position, kind="ALTER TABLE", code=reader.code_between(first, reader.at))


def _index(reader: Reader, position: Position) -> Statement:
    first = reader.at - 1
    while reader.skip_one("UNIQUE", "CLUSTERED", "NONCLUSTERED", "PRIMARY", "XML"):
        pass
    if not reader.is_("INDEX"):
        reader.refuse(f"CREATE {reader.word()} is not translated")
    reader.at += 1
    reader.span()
    return tree.Definition(position=position, kind="CREATE INDEX", code=reader.code_between(first, reader.at))


def drop(reader: Reader, position: Position) -> Statement:
    """Read DROP."""
    first = reader.at - 1
    kind = reader.skip_one("PROC", "PROCEDURE", "FUNCTION", "TRIGGER", "VIEW", "TABLE", "TYPE", "INDEX")
    if kind is None:
        reader.refuse(f"DROP {reader.word()} is not translated")
    if kind == "INDEX":
        reader.skip("IF", "EXISTS")
        reader.span()
        return tree.Definition(
            position=position, kind="DROP INDEX", code=reader.code_between(first, reader.at)
        )
    if_exists = reader.skip("IF", "EXISTS")
    names = [reader.name()]
    while reader.skip(","):
        names.append(reader.name())
    return tree.DropThings(
        position=position,
        kind="PROCEDURE" if kind == "PROC" else kind,
        names=tuple(names),
        if_exists=if_exists,
    )
