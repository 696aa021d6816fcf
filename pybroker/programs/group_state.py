"""The state that a service program keeps by conversation group, as rows of a table of the program's own.

The table has the columns ``conversation_group_id uuid primary key`` and ``state jsonb``. Whoever has received
messages of a group holds it until the transaction ends, so its row is nobody else's meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from psycopg import sql

if TYPE_CHECKING:
    from uuid import UUID


class StateStatements(NamedTuple):
    """The statements for one table; parameters are ``group`` and ``state``, which is JSON as text."""

    load: sql.Composed
    save: sql.Composed
    forget: sql.Composed


def statements_for(table: str) -> StateStatements:
    """Return the statements for a table, whose name may have a schema before a dot."""
    name = sql.Identifier(*table.split("."))
    return StateStatements(
        sql.SQL("select state::text from {} where conversation_group_id = %(group)s").format(name),
        sql.SQL(
            "insert into {} as s (conversation_group_id, state) values (%(group)s, %(state)s::jsonb)"
            " on conflict (conversation_group_id) do update set state = excluded.state"
        ).format(name),
        sql.SQL("delete from {} where conversation_group_id = %(group)s").format(name),
    )


class GroupState:
    """The state of one group, for one transaction.

    Attributes:
        value: an instance of the program's state type, to be changed in place.
    """

    def __init__(self, group: UUID, state_type: type[Any], stored: str | None) -> None:
        self._group = group
        self._is_stored = stored is not None
        self._is_forgotten = False
        self.value: Any = msgspec.json.decode(stored, type=state_type) if stored is not None else state_type()
        self._before = msgspec.json.encode(self.value)

    def forget(self) -> None:
        """Remove the row when the transaction commits: the group's work is done."""
        self._is_forgotten = True

    def change(self, statements: StateStatements) -> tuple[sql.Composed, dict[str, Any]] | None:
        """Return the statement that stores the state, and its parameters; None if nothing has changed."""
        if self._is_forgotten:
            return (statements.forget, {"group": self._group}) if self._is_stored else None
        after = msgspec.json.encode(self.value)
        if after == self._before:
            return None
        return statements.save, {"group": self._group, "state": after.decode()}
