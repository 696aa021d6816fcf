"""From a batch's text to its tree.

Definitions and administration are read by their grammars, at the word where they begin. All else
is read here, by the first word of a statement: `_TABLE` names the function for each.
An expression or a query ends where a word stands that can only begin the next statement.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pybroker.tsql import administration
from pybroker.tsql.language import tree
from pybroker.tsql.language.reading import (
    calls,
    control,
    conversations,
    cursors,
    modules,
    queries,
    tables,
    transactions,
    variables,
)
from pybroker.tsql.language.reading.reader import INSTEAD, Reader

if TYPE_CHECKING:
    from collections.abc import Callable

    from pybroker.tsql.language.words import Word
    from pybroker.tsql.source import Batch, Position
    from pybroker.tsql.tree import Statement

# The first word of a statement, and what reads the rest of it.
_TABLE: dict[str, Callable[[Reader, Position], Statement]] = {
    "ALTER": tables.alter,
    "BEGIN": control.begin,
    "BREAK": lambda _, position: tree.Break(position=position),
    "CLOSE": cursors.close,
    "COMMIT": transactions.commit,
    "CONTINUE": lambda _, position: tree.Continue(position=position),
    "CREATE": tables.create,
    "DEALLOCATE": cursors.deallocate,
    "DECLARE": variables.declare,
    "DELETE": queries.data,
    "DROP": tables.drop,
    "END": conversations.end,
    "EXEC": calls.exec_,
    "EXECUTE": calls.exec_,
    "FETCH": cursors.fetch,
    "GET": conversations.get,
    "GOTO": control.goto,
    "IF": control.if_,
    "INSERT": queries.data,
    "MERGE": queries.data,
    "MOVE": conversations.move,
    "OPEN": cursors.open_,
    "PRINT": control.print_,
    "RAISERROR": control.raiserror,
    "RECEIVE": conversations.receive,
    "RETURN": control.return_,
    "ROLLBACK": transactions.rollback,
    "SAVE": transactions.save,
    "SELECT": queries.select,
    "SEND": conversations.send,
    "SET": variables.set_,
    "THROW": control.throw,
    "TRUNCATE": queries.truncate,
    "UPDATE": queries.data,
    "WAITFOR": conversations.waitfor,
    "WHILE": control.while_,
    "WITH": queries.data,
}


def read(batch: Batch) -> list[Statement]:
    """Return the statements of a batch; they stand where they stand in the script.

    Args:
        batch: its text has no block comments, as from `source.batches`.

    Raises:
        ScriptError: at the first word that is not understood.
    """
    reader = Reader(batch, _TABLE)
    first = reader.peek()
    is_call = first is not None and _is_call_without_exec(reader, first)
    statements = [calls.called(reader, reader.place(0))] if is_call else []
    statements += reader.statements()
    if reader.peek() is not None:
        reader.refuse("END without BEGIN" if reader.is_("END") else None)
    return statements


def read_parameters(batch: Batch) -> tuple[tree.Parameter, ...]:
    """Return the parameters that a text declares, as sp_executesql has them.

    Raises:
        ScriptError: at the first word that is not understood.
    """
    reader = Reader(batch, _TABLE)
    found = modules.declared_parameters(reader)
    if reader.peek() is not None:
        reader.refuse(None, "a @variable")
    return found


def _is_call_without_exec(reader: Reader, first: Word) -> bool:
    """The first statement of a batch may be a procedure's name alone."""
    if first.kind == "quoted":
        return True
    return (
        first.kind == "word"
        and first.word not in _TABLE
        and first.word not in INSTEAD
        and reader.word(1) != ":"
        and not administration.begins(reader.batch.text, first.begin)
        and first.word.startswith(("SP_", "USP_", "XP_", "DBO"))
    )
