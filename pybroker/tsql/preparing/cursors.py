"""What becomes of cursors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pybroker.tsql.execution import OpenCursor
from pybroker.tsql.expressions import types
from pybroker.tsql.expressions.translating import query
from pybroker.tsql.session import StatementError

if TYPE_CHECKING:
    from pybroker.tsql.execution import Execution
    from pybroker.tsql.language import tree
    from pybroker.tsql.preparing.preparer import Preparer
    from pybroker.tsql.steps import Step


def declare_cursor(at: Preparer, one: tree.DeclareCursor) -> Step:
    """Prepare DECLARE CURSOR."""
    name = one.name.casefold()
    at.cursors.add(name)
    done = None if one.query is None else query(one.query, at.scope)

    def act(execution: Execution) -> None:
        if done is not None:
            execution.session.cursors[name] = OpenCursor(done.sql)

    return at.step(one, None if done is None else done.sql, act, done.notes if done else ())


def cursor(at: Preparer, one: tree.Cursor) -> Step:
    """Prepare OPEN, CLOSE and DEALLOCATE."""

    def act(execution: Execution) -> None:
        found = _found_cursor(execution, one.name)
        if one.verb == "OPEN":
            found.rows, found.at = execution.query(found.sql, writes=False).rows, -1
        elif one.verb == "CLOSE":
            found.rows = None
        else:
            del execution.session.cursors[one.name.casefold()]

    return at.step(one, None, act)


def _found_cursor(execution: Execution, name: str) -> OpenCursor:
    found = execution.session.cursors.get(name.casefold())
    if found is None:
        raise StatementError(f"A cursor with the name '{name}' does not exist.", 16916)
    return found


def fetch(at: Preparer, one: tree.Fetch) -> Step:
    """Prepare FETCH."""
    kinds = [at.variable(name, one.position) for name in one.variables]
    offset = None if one.offset is None else at.value(one.offset, types.INTEGER).sql

    def act(execution: Execution) -> None:
        found = _found_cursor(execution, one.name)
        if found.rows is None:
            raise StatementError("Cursor is not open.", 16917)
        number = 0 if offset is None else int(execution.value(offset) or 0)
        last = len(found.rows) - 1
        found.at = {
            "NEXT": found.at + 1,
            "PRIOR": found.at - 1,
            "FIRST": 0,
            "LAST": last,
            "ABSOLUTE": number - 1 if number > 0 else last + 1 + number,
            "RELATIVE": found.at + number,
        }[one.direction]
        found.at = min(max(found.at, -1), last + 1)
        is_there = 0 <= found.at <= last
        execution.values["@@fetch_status"] = 0 if is_there else -1
        row = found.rows[found.at] if is_there else ()
        execution.rowcount = int(is_there)
        if not one.variables:
            execution.session.show_rows([""] * len(row), [row] if is_there else [])
        elif is_there and len(row) != len(one.variables):
            raise StatementError(
                "The number of variables in the INTO list must match that of the columns.", 16924
            )
        elif is_there:
            for name, kind, value in zip(one.variables, kinds, row, strict=True):
                execution.values[name.casefold()] = execution.converted(value, kind)

    return at.step(one, None, act)
