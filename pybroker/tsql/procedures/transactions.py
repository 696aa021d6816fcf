"""BEGIN, COMMIT and ROLLBACK in PL/pgSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pybroker.tsql.expressions.types import Unfaithful
from pybroker.tsql.procedures import savepoints
from pybroker.tsql.procedures.codes import TRANCOUNT

if TYPE_CHECKING:
    from pybroker.tsql.language import tree
    from pybroker.tsql.procedures.body import Body

# More than one transaction is open.
INNER = 2


def transaction(body: Body, one: tree.Transaction) -> None:
    """Print BEGIN, COMMIT and ROLLBACK."""
    if one.verb == "SAVE":
        raise Unfaithful(savepoints.INSTEAD)
    if body.open_cursors:
        raise Unfaithful(f"{one.verb} while a cursor is open: read its rows into a table variable first")
    depths = kinds(body.flow.depths(one)) or {0}
    if one.verb == "BEGIN":
        _begin(body, one, depths)
    elif one.verb == "ROLLBACK":
        body.line("rollback;")
        if body.counts_transactions:
            body.line(f"{TRANCOUNT} := 0;")
    else:
        _commit(body, depths)


def _begin(body: Body, one: tree.Transaction, depths: set[int]) -> None:
    body.line("-- BEGIN TRANSACTION")
    if body.flow.is_pending(one):
        if len(depths) > 1:
            body.line(f"if {TRANCOUNT} = 0 then")
            with body.indented():
                body.line("commit;")
            body.line("end if;")
        else:
            # What ran outside of a transaction is not undone with this one.
            body.line("commit;")
    if body.counts_transactions:
        body.line(f"{TRANCOUNT} := {TRANCOUNT} + 1;")


def _commit(body: Body, depths: set[int]) -> None:
    if depths == {INNER}:
        body.line("-- COMMIT of an inner transaction")
    elif INNER in depths:
        body.line(f"if {TRANCOUNT} <= 1 then")
        with body.indented():
            body.line("commit;")
        body.line("end if;")
    else:
        body.line("commit;")
    if body.counts_transactions:
        body.line(f"{TRANCOUNT} := greatest({TRANCOUNT} - 1, 0);")


def kinds(depths: set[int]) -> set[int]:
    """Return 0 for none, 1 for one and 2 for more transactions."""
    return {min(depth, INNER) for depth in depths}
