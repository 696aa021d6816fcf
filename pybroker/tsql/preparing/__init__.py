"""What becomes of each statement of a batch: one table, from a class of the tree to a step.

A statement that has no faithful form is refused here, before anything runs.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pybroker.tsql.calls import call
from pybroker.tsql.execution import BreakLoop, ContinueLoop
from pybroker.tsql.language import tree
from pybroker.tsql.language.jumps import Again, Left, Repeated, structured
from pybroker.tsql.preparing import (
    control,
    conversations,
    cursors,
    definitions,
    queries,
    texts,
    transactions,
    variables,
)
from pybroker.tsql.preparing.preparer import Preparer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pybroker.tsql.known import Known
    from pybroker.tsql.preparing.preparer import Table
    from pybroker.tsql.source import Batch
    from pybroker.tsql.steps import Step
    from pybroker.tsql.tree import Statement

_TABLE: Table = {
    tree.BeginDialog: conversations.begin_dialog,
    tree.Send: conversations.send,
    tree.Receive: conversations.receive,
    tree.GetConversationGroup: conversations.get,
    tree.WaitFor: conversations.waitfor,
    tree.MoveConversation: conversations.move,
    tree.EndConversation: conversations.end,
    tree.BeginTimer: conversations.timer,
    tree.Declare: variables.declare,
    tree.Assign: variables.assign,
    tree.SelectVariables: variables.select_variables,
    tree.Block: control.block,
    tree.If: control.if_,
    tree.While: control.while_,
    tree.Break: partial(control.raising, signal=BreakLoop),
    tree.Continue: partial(control.raising, signal=ContinueLoop),
    tree.Return: control.return_,
    tree.TryCatch: control.try_,
    tree.Goto: control.goto,
    Left: control.left,
    Repeated: control.repeated,
    Again: control.goto,
    tree.Throw: control.throw,
    tree.RaiseError: control.raise_error,
    tree.Print: control.print_,
    tree.Delay: control.delay,
    tree.SetOption: control.set_option,
    tree.Transaction: transactions.transaction,
    tree.Execute: call,
    tree.ExecuteText: texts.execute_text,
    tree.Query: queries.plain_query,
    tree.InsertExecute: queries.insert_execute,
    tree.DeclareCursor: cursors.declare_cursor,
    tree.Cursor: cursors.cursor,
    tree.Fetch: cursors.fetch,
    tree.CreateProcedure: definitions.module,
    tree.CreateFunction: definitions.module,
    tree.CreateTrigger: definitions.module,
    tree.CreateView: definitions.module,
    tree.CreateTable: definitions.table,
    tree.CreateType: definitions.user_type,
    tree.Definition: definitions.change_definition,
    tree.DropThings: definitions.drop,
}


def prepare(
    statements: Sequence[Statement], batch: Batch, known: Known, *, in_msdb: bool = False
) -> list[Step]:
    """Return the steps of a batch.

    Args:
        statements: of the batch.
        batch: its text.
        known: what the scripts have made before it; what it makes is added.
        in_msdb: whether the batch begins in msdb, whose routes are those of the worker.

    Raises:
        ScriptError: at the first statement that has no faithful form.
    """
    return Preparer(batch, known, _TABLE, in_msdb=in_msdb).all(structured(statements))
