"""EXEC: procedures, and sp_executesql."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pybroker.tsql.expressions import types
from pybroker.tsql.expressions.names import relation
from pybroker.tsql.expressions.tables import rows_of
from pybroker.tsql.language import tree
from pybroker.tsql.language.reading import read_parameters
from pybroker.tsql.procedures import locks
from pybroker.tsql.procedures.codes import JOINING, RETURNED
from pybroker.tsql.procedures.defaults import require_values
from pybroker.tsql.session import StatementError
from pybroker.tsql.source import Batch, ScriptError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pybroker.tsql.execution import Execution
    from pybroker.tsql.preparing.preparer import Preparer
    from pybroker.tsql.steps import Step

# What a script asks SQL Server's own procedures for has no form here.
_OWN = ("sp_", "xp_")
# What Management Studio writes into each script of a database.
_NO_MEANING = ("sp_fulltext_database",)


def call(at: Preparer, one: tree.Execute) -> Step:
    """Prepare EXEC."""
    name = one.procedure
    if name.name.lower() == "sp_executesql":
        return _execute_sql(at, one)
    if name.name.startswith("@"):
        return _call_named(at, one)
    if name.name.lower() in _NO_MEANING and at.known.procedures.get(relation(name.schema, name.name)) is None:
        note = f"{name.name} has no meaning here: PostgreSQL has its own ways to search texts"
        return at.step(one, None, lambda _: None, (note,))
    if not at.known.is_here(name.database):
        raise ScriptError(
            one.position, f"a procedure of another database: write USE [{name.database}] before"
        )
    written = relation(name.schema, name.name)
    signature = at.known.procedures.get(written)
    parameters = list(signature or ())
    if signature is None and name.name.lower() in locks.PROCEDURES:
        return _lock(at, one)
    if signature is None and name.name.lower().startswith(_OWN) and written not in at.known.promised:
        raise ScriptError(one.position, f"{name.name} is of SQL Server's own: it has no form here")
    try:
        require_values(parameters, one, at.scope)
    except types.Unfaithful as reason:
        raise ScriptError(one.position, str(reason)) from None
    given, outputs = [], []
    # CALL takes no query, so rows are read before.
    tables: dict[str, str] = {}
    for number, argument in enumerate(one.arguments):
        if argument.value is None:
            if argument.name is None and number + 1 < len(one.arguments):
                raise ScriptError(one.position, "DEFAULT before other arguments: name those behind it")
            continue
        label = argument.name or (parameters[number].name if number < len(parameters) else None)
        if argument.is_output:
            at.variable(argument.value.text, argument.value.position)
            outputs.append((label, argument.value.text.casefold()))
        quoted = (argument.name or "").replace('"', '""')
        prefix = "" if argument.name is None else f'"{quoted}" => '
        table = at.scope.table_variables.get(argument.value.text.strip().casefold())
        if table is not None:
            tables[f"rows of {argument.value.text.strip().casefold()}"] = (
                f"cast({rows_of(table.sql)} as text)"
            )
        value = at.value(argument.value).sql if table is None else f"%({list(tables)[-1]})s::json"
        given.append(f"{prefix}{value}")
    result = None if one.result is None else at.variable(one.result, one.position)
    sql = f"call {written}({', '.join(given)})"

    def act(execution: Execution) -> None:
        if result is not None:
            execution.query(f"select pg_catalog.set_config('{RETURNED}', '0', false)", writes=False)
        for name, rows in tables.items():
            execution.values[name] = execution.value(rows)
        if execution.session.transactions:
            execution.query(f"select pg_catalog.{JOINING}", writes=False)
        execution.session.call(execution, sql, outputs)
        if result is not None and one.result is not None:
            code = execution.value(f"cast(current_setting('{RETURNED}') as integer)")
            execution.values[one.result.casefold()] = execution.converted(code, result)

    return at.step(one, sql, act)


def _call_named(at: Preparer, one: tree.Execute) -> Step:
    """Prepare EXEC of the procedure that a variable names: its arguments are known when it runs."""
    from pybroker.tsql.language import read  # noqa: PLC0415 - the name is read as EXEC reads it

    at.variable(one.procedure.name, one.position)
    for argument in one.arguments:
        if argument.value is not None and argument.value.text.casefold() not in at.scope.table_variables:
            at.value(argument.value)

    def act(execution: Execution) -> None:
        given = execution.values.get(one.procedure.name.casefold())
        try:
            (named,) = read(Batch(f"EXEC {given}"))
        except (ScriptError, ValueError):
            named = None
        if not isinstance(named, tree.Execute) or named.arguments or named.procedure.name.startswith("@"):
            raise StatementError(f"Could not find stored procedure '{given}'.", 2812)
        try:
            step = call(at, replace(one, procedure=named.procedure))
        except ScriptError as error:
            raise StatementError(str(error), 102) from None
        if step.act is not None:
            step.act(execution)

    return at.step(one, None, act)


def _lock(at: Preparer, one: tree.Execute) -> Step:
    """Prepare sp_getapplock and sp_releaseapplock."""
    found = locks.read_call(one, lambda code, kind: at.value(code, kind).sql)
    result = None if one.result is None else at.variable(one.result, one.position)
    held = found.releases and not found.is_of_session
    notes = ("a lock of a transaction is held up to its end",) if held else ()

    def act(execution: Execution) -> None:
        if not found.is_of_session and not execution.session.transactions:
            raise StatementError(
                "sp_getapplock without a transaction: BEGIN one, or take @LockOwner = 'Session'."
            )
        code = _released(execution, found) if found.releases else _locked(execution, found)
        if result is not None and one.result is not None:
            execution.values[one.result.casefold()] = execution.converted(code, result)

    return at.step(one, f"select {found.function('pg_')}", act, notes)


def _released(execution: Execution, found: locks.Call) -> int:
    return 0 if not found.is_of_session or execution.value(found.unlocks) else -999


def _locked(execution: Execution, found: locks.Call) -> int:
    """Take a lock; return 0, 1 after waiting, -1 after the timeout, -3 in a deadlock."""
    if execution.value(found.function("pg_try_")):
        return 0
    milliseconds = -1 if found.timeout is None else int(execution.value(found.timeout) or 0)
    if not milliseconds:
        return -1
    before = execution.value("pg_catalog.current_setting('lock_timeout')")
    limit = "select pg_catalog.set_config('lock_timeout', %(limit)s, false)"
    if milliseconds > 0:
        execution.session.query(limit, {"limit": str(milliseconds)})
    try:
        execution.query(f"select {found.function('pg_')}", writes=False)
    except StatementError as error:
        if error.sqlstate in _REFUSED_LOCKS:
            return _REFUSED_LOCKS[error.sqlstate]
        raise
    finally:
        execution.session.query(limit, {"limit": before})
    return 1


_REFUSED_LOCKS = {"55P03": -1, "40P01": -3}


def _execute_sql(at: Preparer, one: tree.Execute) -> Step:
    from pybroker.tsql.preparing.texts import run_text  # noqa: PLC0415 - a text is a batch

    if not one.arguments or one.arguments[0].value is None:
        raise ScriptError(one.position, "sp_executesql has a text")
    text = at.value(one.arguments[0].value, types.TEXT)
    if len(one.arguments) > 1 and one.arguments[1].value is not None and not _is_text(one.arguments[1].value):
        return _execute_sql_of(at, one, text.sql, at.value(one.arguments[1].value, types.TEXT).sql)
    parameters = declared(one)
    given: list[tuple[tree.Parameter, Any, str | None]] = []
    inner = at.another(at.batch)
    for number, argument in enumerate(one.arguments[2:]):
        parameter = parameter_of(parameters, number, argument, one)
        kind = inner.declare(tree.Variable(name=parameter.name, type=parameter.type), one.position)
        if argument.value is None:
            raise ScriptError(one.position, "DEFAULT has no meaning for sp_executesql: leave it out")
        variable = argument.value.text.casefold() if argument.is_output else None
        given.append((parameter, at.value(argument.value, kind).sql, variable))

    def act(execution: Execution) -> None:
        values = {parameter.name.casefold(): execution.value(sql) for parameter, sql, _ in given}
        written = execution.value(text.sql)
        # Each run declares what its text declares.
        within = at.another(at.batch)
        within.scope.variables.update(inner.scope.variables)
        nested = execution.nested(values)
        run_text(at, nested, written, within)
        execution.took(nested)
        for parameter, _, variable in given:
            if variable is not None:
                execution.values[variable] = nested.values[parameter.name.casefold()]

    return at.step(one, f"select {text.sql}", act, text.notes)


def _execute_sql_of(at: Preparer, one: tree.Execute, text: str, parameters: str) -> Step:
    """Prepare sp_executesql whose parameters are an expression: what it declares is known when it runs."""

    def act(execution: Execution) -> None:
        written = str(execution.value(parameters) or "").replace("'", "''")
        first, second, *given = one.arguments
        place = one.position if second.value is None else second.value.position
        second = replace(second, value=tree.Code(f"N'{written}'", place))
        try:
            step = _execute_sql(at, replace(one, arguments=(first, second, *given) if written else (first,)))
        except ScriptError as error:
            raise StatementError(str(error), 102) from None
        if step.act is not None:
            step.act(execution)

    return at.step(one, f"select {text}", act)


def _is_text(code: tree.Code) -> bool:
    return code.text.endswith("'") and "'" in code.text


def declared(one: tree.Execute) -> Sequence[tree.Parameter]:
    """Return the parameters that sp_executesql declares in its second text.

    Raises:
        ScriptError: they stand in no text, or are not understood.
    """
    if len(one.arguments) == 1:
        return ()
    code = one.arguments[1].value
    if code is None or not _is_text(code):
        raise ScriptError(one.position, "the parameters of sp_executesql stand in a text, '@a int, …'")
    written = code.text.partition("'")[2][:-1].replace("''", "'")
    try:
        return read_parameters(Batch(written))
    except ScriptError as error:
        raise ScriptError(code.position, f"in the parameters: {error}") from None


def parameter_of(
    parameters: Sequence[tree.Parameter], number: int, argument: tree.Argument, one: tree.Execute
) -> tree.Parameter:
    """Return the parameter that an argument is for, by its name or its place.

    Raises:
        ScriptError: there is none.
    """
    for at, parameter in enumerate(parameters):
        if argument.name is None and at == number:
            return parameter
        if argument.name is not None and parameter.name.casefold() == argument.name.casefold():
            return parameter
    raise ScriptError(one.position, f"sp_executesql has no parameter {argument.name or number + 1}")
