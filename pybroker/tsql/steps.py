"""What a batch becomes: steps that a session takes one after the other, and steps within steps."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pybroker.tsql.conditions import Condition
    from pybroker.tsql.execution import Execution
    from pybroker.tsql.source import Position
    from pybroker.tsql.tree import Statement


class Shown(Enum):
    """What a person sees of a step's result."""

    NOTHING = auto()
    ROWS = auto()
    COUNT = auto()


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One statement.

    Attributes:
        position: where it stands in the text that was read.
        source: its T-SQL.
        sql: its PostgreSQL form; None for what only the client can do. Variables stand in it as `%(@name)s`.
        notes: what of it has no meaning here.
        shown: what a person sees of its result.
        statement: its tree, where the client does it.
        at_home: whether it runs in the home database, wherever USE has led.
        act: what a client does with it; None where it sends `sql` and shows the result.
        inner: the steps within it.
        question: of an IF whose answer a database gives without variables.
        otherwise: of such an IF.
    """

    position: Position
    source: str
    sql: str | None
    notes: tuple[str, ...] = ()
    shown: Shown = Shown.NOTHING
    statement: Statement | None = None
    at_home: bool = False
    act: Callable[[Execution], None] | None = None
    inner: tuple[Step, ...] = ()
    question: Condition | None = None
    otherwise: tuple[Step, ...] = ()

    def leaves(self) -> Iterator[Step]:
        """Yield the statements in it, in their order, without BEGIN, IF, WHILE and TRY."""
        if not self.inner and not self.otherwise:
            yield self
        for one in (*self.inner, *self.otherwise):
            yield from one.leaves()
