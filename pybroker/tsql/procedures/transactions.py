"""BEGIN, COMMIT and ROLLBACK in PL/pgSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pybroker.tsql.expressions.names import relation
from pybroker.tsql.expressions.types import Unfaithful
from pybroker.tsql.language import tree
from pybroker.tsql.procedures import flow, savepoints
from pybroker.tsql.procedures.codes import IN_TRANSACTION, JOINS, TRANCOUNT
from pybroker.tsql.procedures.signatures import ending

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pybroker.tsql.procedures.body import Body

IS_IN_TRANSACTION = f"coalesce(current_setting('{IN_TRANSACTION}', true) = 'true', false)"

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
                _end(body)
            body.line("end if;")
        else:
            # What ran outside of a transaction is not undone with this one.
            _end(body)
    if body.counts_transactions:
        body.line(f"{TRANCOUNT} := {TRANCOUNT} + 1;")


def _commit(body: Body, depths: set[int]) -> None:
    if depths == {INNER}:
        body.line("-- COMMIT of an inner transaction")
    elif INNER in depths:
        body.line(f"if {TRANCOUNT} <= 1 then")
        with body.indented():
            _end(body)
        body.line("end if;")
    else:
        _end(body)
    if body.counts_transactions:
        body.line(f"{TRANCOUNT} := greatest({TRANCOUNT} - 1, 0);")


def _end(body: Body) -> None:
    if not body.joins:
        body.line("commit;")
        return
    body.line(f"if not {JOINS} then")
    with body.indented():
        body.line("commit;")
    body.line("end if;")


def may_join(body: Body, everything: Sequence[Any]) -> bool:
    """Whether a procedure's transactions change nothing but @@TRANCOUNT where it is called within one.

    Each of them is committed, by the procedure itself, on all ways through it.
    """
    own = [one for one in everything if isinstance(one, tree.Transaction)]
    if not own or any(one.verb not in ("BEGIN", "COMMIT") for one in own):
        return False
    if any(one.verb == "COMMIT" and 0 in body.flow.depths(one) for one in own):
        return False
    tries = [one for one in everything if isinstance(one, tree.TryCatch)]
    if body.flow.is_open_at_end or any(flow.ends_transactions(one) for one in tries):
        return False
    called = [one.procedure for one in everything if isinstance(one, tree.Execute)]
    found = [name for one in called for name in ending(relation(one.schema, one.name), body.procedures)]
    return all(body.procedures[name].joins for name in found)


def kinds(depths: set[int]) -> set[int]:
    """Return 0 for none, 1 for one and 2 for more transactions."""
    return {min(depth, INNER) for depth in depths}
