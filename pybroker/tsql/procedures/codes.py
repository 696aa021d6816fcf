"""Names in PL/pgSQL: what T-SQL's @@ values are called, and where RETURN leaves a code for EXEC @code =."""

from __future__ import annotations

COUNT, ERROR, TRANCOUNT = '"@@rowcount"', '"@@error"', '"@@trancount"'
IDENTITY = '"scope_identity()"'
LEFT_BEHIND = {"@@rowcount": COUNT, "@@error": ERROR}
RETURN = "return;"
RETURNED = "pybroker_tsql.returned"
# True up to the end of a transaction in which a procedure with transactions of its own is called.
IN_TRANSACTION = "pybroker_tsql.in_transaction"
# SQL that tells a procedure so, and its variable that remembers it.
JOINING = f"set_config('{IN_TRANSACTION}', 'true', true)"
JOINS = '"@@joins"'


def returning(text: str) -> str:
    """Print what RETURN leaves for its caller."""
    return f"perform set_config('{RETURNED}', {text}, false);"
