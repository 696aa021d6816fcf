"""What becomes of queries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pybroker.tsql import queries
from pybroker.tsql.expressions import types
from pybroker.tsql.expressions.alterations import insert_target
from pybroker.tsql.expressions.names import relation
from pybroker.tsql.expressions.translating import query
from pybroker.tsql.language import tree
from pybroker.tsql.preparing.preparer import percent, shown_headings
from pybroker.tsql.procedures.signatures import reached
from pybroker.tsql.session import StatementError
from pybroker.tsql.source import ScriptError, offset_of
from pybroker.tsql.steps import Shown, Step

if TYPE_CHECKING:
    from pybroker.tsql.execution import Execution
    from pybroker.tsql.preparing.preparer import Preparer


def plain_query(at: Preparer, one: tree.Query) -> Step:
    """Prepare a query, or what changes rows."""
    looked = _look(at, one)
    if looked is not None:
        return looked
    done = query(one.code, at.scope)
    if done.assigned:
        names = [name.casefold() for name in done.assigned]

        def act_assigned(execution: Execution) -> None:
            found = execution.query(done.sql)
            execution.rowcount = len(found.rows)
            if found.rows:
                execution.values.update(zip(names, found.rows[-1], strict=True))
            execution.session.show_count(execution.rowcount)

        return at.step(one, done.sql, act_assigned, done.notes)
    counts_on = done.counts_on
    if counts_on is not None and "scope_identity" in at.batch.text.lower():
        raise ScriptError(
            one.position, "SCOPE_IDENTITY() beside IDENTITY_INSERT: it is the value that INSERT gives"
        )
    headings = [name for name, _ in done.columns]
    changes = one.verb != "SELECT" or done.creates is not None

    def act(execution: Execution) -> None:
        if done.locks is not None:
            execution.query(done.locks)
        found = execution.query(done.sql, writes=changes)
        execution.rowcount = found.count
        if counts_on is not None:
            execution.query(counts_on)
            execution.session.identity = None
        elif done.inserts is not None and found.count and at.known.reads_identity:
            identity = f"select {types.identity_of('%(table)s', '%(identity)s::numeric')}"
            given = {"table": done.inserts.replace("%%", "%"), "identity": execution.session.identity}
            execution.session.identity = execution.session.query(identity, given).rows[0][0]
        if found.names is None:
            if one.verb != "TRUNCATE":
                execution.session.show_count(found.count)
            return
        execution.session.show_rows(shown_headings(headings, found.names), found.rows)

    def act_whole(execution: Execution) -> None:
        execution.session.all_or_nothing(lambda: act(execution))

    if done.locks is not None:
        # psql sends the two together, so that they are one transaction.
        return at.step(one, f"{done.locks} \\;\n{done.sql}", act_whole, done.notes)
    return at.step(one, done.sql, act if counts_on is None else act_whole, done.notes)


def _look(at: Preparer, one: tree.Query) -> Step | None:
    """Read a plain query of a catalog view, whose names match as SQL Server's do."""
    if one.verb != "SELECT" or one.code.text[:4].upper() == "WITH":
        return None
    begin = offset_of(at.batch, one.code.position)
    try:
        sql, at_home, has_hint, end = queries.read_query(at.batch, begin)
    except ScriptError:
        return None
    if end != begin + len(one.code.text):
        return None
    notes = ("NOLOCK has no meaning here: no reader waits for a writer",) if has_hint else ()
    return Step(one.position, one.code.text, sql, notes, Shown.ROWS, at_home=at_home)


def insert_execute(at: Preparer, one: tree.InsertExecute) -> Step:
    """Prepare INSERT … EXEC."""
    table, columns, _ = insert_target(one.target, at.scope)
    inner = at.one(one.execute)
    if isinstance(one.execute, tree.Execute):
        name = relation(one.execute.procedure.schema, one.execute.procedure.name)
        for each in reached(name, at.known.procedures):
            if each in at.known.procedures and at.known.procedures[each].executes_inserts:
                raise ScriptError(
                    one.position, f"{each} has INSERT … EXEC: it can't be nested, in SQL Server either"
                )
    values = ", ".join(f"%(c{number})s" for number in range(len(columns)))
    sql = f"insert into {table} ({percent(', '.join(columns))}) values ({values})"

    def act(execution: Execution) -> None:
        session = execution.session
        rows = session.rows_of(lambda: execution.run((inner,)))
        for row in rows:
            if len(row) != len(columns):
                raise StatementError(
                    "Column name or number of supplied values does not match table definition.", 213
                )
            session.query(sql, {f"c{number}": value for number, value in enumerate(row)})
        execution.rowcount = len(rows)
        session.show_count(execution.rowcount)

    return at.step(
        one, sql, lambda execution: execution.session.all_or_nothing(lambda: act(execution)), inner.notes
    )
