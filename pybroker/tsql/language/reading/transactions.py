"""Reads BEGIN, COMMIT, ROLLBACK and SAVE TRANSACTION."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pybroker.tsql.language import tree

if TYPE_CHECKING:
    from pybroker.tsql.language.reading.reader import Reader
    from pybroker.tsql.source import Position
    from pybroker.tsql.tree import Statement


def transaction(reader: Reader, verb: str, position: Position) -> Statement:
    """Read a transaction's name and its mark."""
    one = reader.peek()
    name = None
    if one is not None and one.kind == "variable":
        name = reader.variable()
    elif (
        one is not None and one.kind in ("word", "quoted") and not reader.is_over() and not reader.is_("WITH")
    ):
        name = reader.identifier()
    if reader.skip("WITH"):
        if reader.skip("MARK"):
            _skip_text(reader)
        else:
            reader.parenthesised()
    return tree.Transaction(position=position, verb=verb, name=name)


def _skip_text(reader: Reader) -> None:
    one = reader.peek()
    reader.at += one is not None and one.kind == "text"


def commit(reader: Reader, position: Position) -> Statement:
    """Read COMMIT."""
    return _ended(reader, "COMMIT", position)


def rollback(reader: Reader, position: Position) -> Statement:
    """Read ROLLBACK."""
    return _ended(reader, "ROLLBACK", position)


def _ended(reader: Reader, verb: str, position: Position) -> Statement:
    if reader.skip_one("TRAN", "TRANSACTION"):
        return transaction(reader, verb, position)
    reader.skip("WORK")
    return tree.Transaction(position=position, verb=verb)


def save(reader: Reader, position: Position) -> Statement:
    """Read SAVE TRANSACTION."""
    if reader.skip_one("TRAN", "TRANSACTION") is None:
        reader.refuse(None, "TRANSACTION")
    return transaction(reader, "SAVE", position)
