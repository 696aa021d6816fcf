"""EXEC: procedures, and sp_executesql."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pybroker.tsql.expressions import types
from pybroker.tsql.expressions.names import relation
from pybroker.tsql.language import tree
from pybroker.tsql.language.reading import read_parameters
from pybroker.tsql.source import Batch, ScriptError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pybroker.tsql.execution import Execution
    from pybroker.tsql.preparing import Preparer
    from pybroker.tsql.steps import Step

# What a script asks SQL Server's own procedures for has no form here.
_OWN = ("sp_", "xp_")


def call(at: Preparer, one: tree.Execute) -> Step:
    """Prepare EXEC."""
    name = one.procedure
    if name.name.lower() == "sp_executesql":
        return _execute_sql(at, one)
    if name.name.startswith("@"):
        raise ScriptError(one.position, "EXEC of a procedure that a variable names: write its name")
    if name.database is not None:
        raise ScriptError(
            one.position, f"a procedure of another database: write USE [{name.database}] before"
        )
    written = relation(name.schema, name.name)
    signature = at.known.procedures.get(written)
    parameters = list(signature or ())
    if signature is None and name.name.lower().startswith(_OWN):
        raise ScriptError(one.position, f"{name.name} is of SQL Server's own: it has no form here")
    given, outputs = [], []
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
        given.append(f"{prefix}{_value(at, argument.value).sql}")
    if one.result is not None:
        raise ScriptError(
            one.position, "a procedure returns no value here: write EXEC with an OUTPUT parameter"
        )
    sql = f"call {written}({', '.join(given)})"

    def act(execution: Execution) -> None:
        execution.session.call(execution, sql, outputs)

    return at.step(one, sql, act)


def _value(at: Preparer, code: tree.Code) -> Any:
    # EXEC takes a word without quotes for a text.
    if code.text.isidentifier() and code.text.upper() != "NULL":
        code = tree.Code(f"'{code.text}'", code.position)
    return at.value(code)


def _execute_sql(at: Preparer, one: tree.Execute) -> Step:
    from pybroker.tsql.preparing import Preparer, run_text  # noqa: PLC0415 - a text is a batch

    if not one.arguments or one.arguments[0].value is None:
        raise ScriptError(one.position, "sp_executesql has a text")
    text = at.value(one.arguments[0].value, types.TEXT)
    parameters = declared(one)
    given: list[tuple[tree.Parameter, Any, str | None]] = []
    inner = Preparer(at.batch, at.known, in_msdb=at.in_msdb)
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
        within = Preparer(at.batch, at.known, in_msdb=at.in_msdb)
        within.scope.variables.update(inner.scope.variables)
        nested = execution.nested(values)
        run_text(at, nested, written, within)
        execution.took(nested)
        for parameter, _, variable in given:
            if variable is not None:
                execution.values[variable] = nested.values[parameter.name.casefold()]

    return at.step(one, f"select {text.sql}", act, text.notes)


def declared(one: tree.Execute) -> Sequence[tree.Parameter]:
    """Return the parameters that sp_executesql declares in its second text.

    Raises:
        ScriptError: they stand in no text, or are not understood.
    """
    if len(one.arguments) == 1:
        return ()
    code = one.arguments[1].value
    if code is None or not code.text.endswith("'") or "'" not in code.text:
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
