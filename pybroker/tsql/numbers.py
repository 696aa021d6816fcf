"""SQL Server's numbers for PostgreSQL's errors."""

from __future__ import annotations

import re

_REFUSAL = re.compile(r"([ST])(\d{4})")
_FIRST_OF_FIVE_DIGITS = 20000
RAISED = 50000
# Errors behind which SQL Server lets a transaction only be rolled back: conversions and deadlocks.
DOOMING = ("22P02", "22007", "22008", "40001", "40P01")
NUMBERS = {
    "22001": 2628,
    "22003": 8115,
    "22007": 241,
    "22008": 242,
    "22012": 8134,
    "22P02": 245,
    "23502": 515,
    "23503": 547,
    "23505": 2627,
    "23514": 547,
    "40001": 1205,
    "40P01": 1205,
    "42501": 229,
    "42601": 102,
    "42703": 207,
    "42723": 2714,
    "42883": 2812,
    "42P01": 208,
    "42P07": 2714,
    "42710": 2714,
    "55P03": 1222,
}


def number_of(sqlstate: str | None) -> int | None:
    """Return the number of an error: the broker's own, or the one that SQL Server has for it."""
    found = _REFUSAL.fullmatch(sqlstate or "")
    if found is not None:
        return int(found[2]) + (_FIRST_OF_FIVE_DIGITS if found[1] == "T" else 0)
    return NUMBERS.get(sqlstate or "")
