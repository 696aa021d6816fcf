"""Procedures, functions, triggers and views."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pybroker.tsql.expressions.types import Unfaithful
from pybroker.tsql.language import tree
from pybroker.tsql.procedures import creating
from pybroker.tsql.source import ScriptError

if TYPE_CHECKING:
    from pybroker.tsql.known import Known
    from pybroker.tsql.translation import Translation
    from pybroker.tsql.tree import Statement


def translate(statement: Statement, known: Known) -> Translation:
    """Return what the definition of a module becomes.

    Raises:
        ScriptError: for what has no faithful form, with what to write instead.
    """
    try:
        return _translated(statement, known)
    except Unfaithful as reason:
        raise ScriptError(statement.position, str(reason)) from None


def _translated(statement: Statement, known: Known) -> Translation:
    match statement:
        case tree.CreateProcedure():
            return creating.procedure(statement, known)
        case tree.CreateFunction():
            return creating.function(statement, known)
        case tree.CreateView():
            return creating.view(statement, known)
        case tree.CreateTrigger():
            return creating.trigger(statement, known)
        case tree.DropThings(kind="TRIGGER"):
            return creating.drop_trigger(statement)
        case _:
            raise ScriptError(statement.position, "this is no module: it is not translated here")
