"""Procedures, functions, triggers and views."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    if isinstance(statement, tree.CreateProcedure):
        return creating.procedure(statement, known)
    raise ScriptError(statement.position, "only procedures are translated: write this in PostgreSQL's SQL")
