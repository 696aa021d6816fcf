"""What becomes of EXEC with a text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pybroker.tsql.execution import ReturnFromBatch
from pybroker.tsql.expressions import types
from pybroker.tsql.language.jumps import structured
from pybroker.tsql.session import StatementError
from pybroker.tsql.source import ScriptError

if TYPE_CHECKING:
    from pybroker.tsql.execution import Execution
    from pybroker.tsql.language import tree
    from pybroker.tsql.preparing.preparer import Preparer
    from pybroker.tsql.steps import Step


def execute_text(at: Preparer, one: tree.ExecuteText) -> Step:
    """Prepare EXEC (text)."""
    value = at.value(one.text, types.TEXT)
    return at.step(
        one, f"select {value.sql}", lambda execution: _ran_text(at, execution, execution.value(value.sql))
    )


def _ran_text(at: Preparer, execution: Execution, text: str | None) -> None:
    nested = execution.nested({})
    run_text(at, nested, text)
    execution.took(nested)


def run_text(at: Preparer, execution: Execution, text: str | None, within: Preparer | None = None) -> None:
    """Run a text as a batch of its own; its variables are those of `within`."""
    from pybroker.tsql.language import read  # noqa: PLC0415 - read the text as a batch
    from pybroker.tsql.source import batches  # noqa: PLC0415

    for batch in batches(text or ""):
        inner = within or at.another(batch)
        inner.batch = batch
        try:
            steps = inner.all(structured(read(batch)))
        except ScriptError as error:
            place = f"{error.position.line}:{error.position.column}"
            raise StatementError(f"in the text of EXEC, {place}: {error}", 102) from None
        try:
            execution.run(steps)
        except ReturnFromBatch:
            return
