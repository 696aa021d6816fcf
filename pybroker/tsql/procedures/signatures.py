"""What is known of a procedure by those that call it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pybroker.tsql.expressions.types import Type
    from pybroker.tsql.language import tree


@dataclass(frozen=True, slots=True)
class Results:
    """Result sets that a procedure gives at one place.

    Attributes:
        columns: their types; None where they are not known.
        is_in_try: whether an error behind it would take it back.
    """

    columns: tuple[Type, ...] | None
    is_in_try: bool = False


@dataclass(frozen=True, slots=True)
class Signature:
    """What is known of a procedure.

    Attributes:
        parameters: as they are declared.
        ends_transactions: whether it has BEGIN TRANSACTION, COMMIT or ROLLBACK.
        has_tables: whether it has table variables or temporary tables.
        calls: the procedures that it calls, as PostgreSQL writes their names.
        results: the result sets that it gives itself.
        calls_in_try: those of `calls` that stand in a TRY.
        executes_inserts: whether it has INSERT … EXEC.
        joins: whether it may be called within a transaction though it ends some.
    """

    parameters: tuple[tree.Parameter, ...]
    ends_transactions: bool = False
    has_tables: bool = False
    calls: frozenset[str] = frozenset()
    results: frozenset[Results] = frozenset()
    calls_in_try: frozenset[str] = frozenset()
    executes_inserts: bool = False
    joins: bool = False

    def __iter__(self) -> Iterator[tree.Parameter]:
        return iter(self.parameters)


def reached(called: str, procedures: Mapping[str, Signature]) -> set[str]:
    """Return a procedure and those that it calls, directly or not."""
    found: set[str] = set()
    waiting = [called]
    while waiting:
        one = waiting.pop()
        if one not in found:
            found.add(one)
            waiting += procedures[one].calls if one in procedures else ()
    return found


def ending(called: str, procedures: Mapping[str, Signature]) -> list[str]:
    """Return which of a procedure and those that it calls, directly or not, end transactions."""
    found = reached(called, procedures)
    return sorted(one for one in found if one in procedures and procedures[one].ends_transactions)
