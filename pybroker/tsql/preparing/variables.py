"""What becomes of DECLARE, SET @variable and SELECT @variable."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pybroker.tsql.expressions.tables import definition
from pybroker.tsql.expressions.translating import assignments
from pybroker.tsql.language import tree
from pybroker.tsql.source import ScriptError

if TYPE_CHECKING:
    from pybroker.tsql.execution import Execution
    from pybroker.tsql.preparing.preparer import Preparer
    from pybroker.tsql.steps import Step


def declare(at: Preparer, one: tree.Declare) -> Step:
    """Prepare DECLARE."""
    defaults: list[tuple[str, str | None]] = []
    made: list[tuple[str, str]] = []
    notes: list[str] = []
    for variable in map(at.as_table, one.variables):
        if isinstance(variable, tree.TableVariable):
            table = definition(variable.definition, at.known.scope(), notes)
            known = at.scope.declare_table(variable.name, table.columns)
            made.append(
                (known.sql, f"create temporary table {known.sql.removeprefix('pg_temp.')} ({table.sql})")
            )
            continue
        type_ = at.declare(variable, one.position)
        value = None if variable.default is None else at.value(variable.default, type_)
        defaults.append((variable.name.casefold(), value.sql if value else None))
        notes += value.notes if value else ()

    def act(execution: Execution) -> None:
        for name, sql in defaults:
            if sql is not None or name not in execution.values:
                execution.values[name] = None if sql is None else execution.value(sql)
        for name, sql in made:
            execution.session.make_table(f"drop table if exists {name}; {sql}")
            execution.table_variables[name] = sql

    types_ = [at.scope.variable(name).type.sql for name, _ in defaults]
    sql = ", ".join(
        f"{name} {type_}" + (f" := {default}" if default else "")
        for (name, default), type_ in zip(defaults, types_, strict=True)
    )
    written = [f"declare {sql}"] if sql else []
    return at.step(one, "; ".join([*written, *(sql for _, sql in made)]), act, notes)


def assign(at: Preparer, one: tree.Assign) -> Step:
    """Prepare SET @variable."""
    type_ = at.variable(one.variable, one.position)
    if one.operator == "=":
        value = at.value(one.value, type_)
    else:
        whole = tree.Code(f"{one.variable} {one.operator[0]} ({one.value.text}\n)", one.value.position)
        value = at.value(whole, type_)
    name = one.variable.casefold()

    def act(execution: Execution) -> None:
        execution.values[name] = execution.value(value.sql)

    return at.step(one, f"select {value.sql}", act, value.notes)


def select_variables(at: Preparer, one: tree.SelectVariables) -> Step:
    """Prepare SELECT @variable = …."""
    for assigned in one.assignments:
        at.variable(assigned.variable, assigned.position)
    if one.source is None and one.top is None and one.with_ is None:
        steps = [assign(at, assigned) for assigned in one.assignments]

        def act_each(execution: Execution) -> None:
            for step in steps:
                if step.act is not None:
                    step.act(execution)
            execution.rowcount = 1

        return at.step(one, "; ".join(step.sql or "" for step in steps), act_each)
    for assigned in one.assignments:
        if assigned.operator != "=":
            raise ScriptError(assigned.position, f"{assigned.operator} with FROM: write SUM or STRING_AGG")
    pairs = [(assigned.variable, assigned.value) for assigned in one.assignments]
    done = assignments(pairs, one.source, at.scope, one.top, one.with_)
    names = [assigned.variable.casefold() for assigned in one.assignments]
    if one.source is None:

        def act_values(execution: Execution) -> None:
            for name, value in zip(names, done.values, strict=True):
                execution.values[name] = execution.value(value)
            execution.rowcount = 1

        return at.step(one, f"select {', '.join(done.values)}", act_values, done.notes)

    def act(execution: Execution) -> None:
        found = execution.query(done.sql)
        execution.rowcount = len(found.rows)
        if found.rows:
            execution.values.update(zip(names, found.rows[-1], strict=True))

    return at.step(one, done.sql, act, done.notes)
