"""What becomes of transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pybroker.tsql.execution import Execution
    from pybroker.tsql.language import tree
    from pybroker.tsql.preparing.preparer import Preparer
    from pybroker.tsql.steps import Step

_TRANSACTION = {"BEGIN": "begin", "COMMIT": "commit", "ROLLBACK": "rollback", "SAVE": "savepoint"}


def transaction(at: Preparer, one: tree.Transaction) -> Step:
    """Prepare BEGIN, COMMIT, ROLLBACK and SAVE TRANSACTION."""
    name = one.name
    is_variable = name is not None and name.startswith("@")
    if is_variable and name is not None:
        at.variable(name, one.position)

    def act(execution: Execution) -> None:
        session = execution.session
        given = execution.values.get(name.casefold()) if is_variable and name else name
        match one.verb:
            case "BEGIN":
                session.begin()
            case "COMMIT":
                session.commit_one()
            case "SAVE":
                session.save(str(given))
            case _:
                session.rollback(None if given is None else str(given))
                # A rollback takes tables away that were made in the transaction.
                session.make_tables(execution.table_variables)

    return at.step(one, _TRANSACTION[one.verb], act)
