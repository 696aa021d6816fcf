"""The codes that procedures return: RETURN leaves them in a setting, where EXEC @code = finds them."""

from __future__ import annotations

RETURNED = "pybroker_tsql.returned"


def returning(text: str) -> str:
    """Print what RETURN leaves for its caller."""
    return f"perform set_config('{RETURNED}', {text}, false);"
