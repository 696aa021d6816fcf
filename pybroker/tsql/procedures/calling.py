"""EXEC of procedures and of texts in PL/pgSQL."""

from __future__ import annotations

import re
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

from pybroker.tsql.expressions import tables, translating, types
from pybroker.tsql.expressions.names import relation
from pybroker.tsql.expressions.scope import Variable
from pybroker.tsql.expressions.types import Family, Type, Unfaithful
from pybroker.tsql.procedures import locks, texts
from pybroker.tsql.procedures.codes import JOINING, RETURNED, TRANCOUNT, returning
from pybroker.tsql.procedures.defaults import require_values
from pybroker.tsql.procedures.signatures import Results, ending
from pybroker.tsql.source import ScriptError
from pybroker.tsql.translation import identifier, literal

if TYPE_CHECKING:
    from pybroker.tsql.language import tree
    from pybroker.tsql.procedures.body import Body

# A variable that DECLARE made; it is not known within a text of EXEC.
_OWN = re.compile(r"@(?!@)")
_TEXT_OR_NAME = re.compile(r"""(?<!\w)(E?)'((?:[^']|'')*)' | "(?:[^"]|"")*\"""", re.IGNORECASE | re.VERBOSE)


def execute(body: Body, one: tree.Execute) -> None:
    """Print EXEC of a procedure."""
    if one.procedure.name.startswith("@"):
        _execute_named(body, one)
        return
    name = relation(one.procedure.schema, one.procedure.name)
    if one.procedure.name.lower() in locks.PROCEDURES and name not in body.procedures:
        locks.print_call(body, one)
        return
    is_made = name in body.procedures or name in body.promised
    if one.procedure.name.lower().startswith(("sp_", "xp_")) and not is_made:
        raise Unfaithful(f"{one.procedure.name} is not known here: write what it does")
    if not body.scope.is_here(one.procedure.database):
        raise Unfaithful("a procedure of another database can't be called here: send it a message")
    if body.flow.is_read(one, "@@rowcount"):
        raise Unfaithful("@@ROWCOUNT behind EXEC is that of the procedure: use an OUTPUT parameter")
    known = body.procedures.get(name)
    body.calls.setdefault(name, one.position)
    if body.is_in_try:
        body.calls_in_try.add(name)
    if found := ending(name, body.procedures):
        _end_within(body, one, found)
    parameters = list(known or ())
    require_values(parameters, one, body.scope)
    arguments = []
    for at, argument in enumerate(one.arguments):
        parameter = _parameter(parameters, argument, at)
        arguments.append(_argument(body, argument, parameter))
    if one.result is not None:
        body.line(returning("'0'"))
    body.line(f"call {name}({', '.join(arguments)});")
    if one.result is not None:
        body.set_result(one.result, f"cast(current_setting('{RETURNED}') as integer)")


def _end_within(body: Body, one: tree.Execute, ending_ones: list[str]) -> None:
    """Print what stands before EXEC of a procedure that ends transactions, or calls some that do."""
    depths = body.flow.depths(one)
    if body.is_caught and 0 in depths:
        raise Unfaithful(
            f"{ending_ones[0]} ends transactions, so TRY can't call it: give it a TRY of its own"
        )
    if not max(depths, default=0):
        return
    for name in ending_ones:
        if not body.procedures[name].joins:
            raise Unfaithful(
                f"{name} ends transactions, so it can't be called within one: take BEGIN TRAN out of it"
            )
    if 0 not in depths:
        body.line(f"perform {JOINING};")
        return
    body.line(f"if {TRANCOUNT} > 0 then")
    with body.indented():
        body.line(f"perform {JOINING};")
    body.line("end if;")


def joins_at_times(body: Body, one: tree.Execute) -> bool:
    """Whether a procedure joins a transaction here or begins one, as it comes."""
    name = relation(one.procedure.schema, one.procedure.name)
    depths = body.flow.depths(one)
    return 0 in depths and len(depths) > 1 and bool(ending(name, body.procedures))


def _execute_named(body: Body, one: tree.Execute) -> None:
    """Print EXEC of the procedure that a variable names; where it ends transactions, it fails with 2D000."""
    if body.flow.is_read(one, "@@rowcount"):
        raise Unfaithful("@@ROWCOUNT behind EXEC is that of the procedure: use an OUTPUT parameter")
    body.results.add(Results(None))
    variable = body.scope.variable(one.procedure.name)
    if variable.type.family is not Family.TEXT:
        raise Unfaithful(f"{one.procedure.name} is no text, so it names no procedure")
    values, places, outputs = [], [], []
    for at, argument in enumerate(one.arguments, 1):
        values.append(_argument(body, replace(argument, name=None), None))
        places.append(f"${at}" if argument.name is None else f"{identifier(argument.name)} => ${at}")
        if argument.is_output and argument.name is not None:
            raise Unfaithful("OUTPUT by name, of a procedure that a variable names: give it by its place")
        outputs += [values[-1]] if argument.is_output else []
    # A name is read as T-SQL reads it, and quoted: it is never SQL.
    names = f"""parse_ident(translate(lower({variable.sql}), '[]', '""'))"""
    body.line(f"-- EXEC of the procedure that {one.procedure.name} names.")
    if one.result is not None:
        body.line(returning("'0'"))
    body.line("execute (")
    body.line("  select case cardinality(n)")
    for count, form in ((1, "dbo.%I"), (2, "%I.%I")):
        named = ", ".join(f"n[{number}]" for number in range(1, count + 1))
        call = literal(f"call {form}({', '.join(places)})")
        body.line(f"    when {count} then format({call}, {named})")
    body.line("  end")
    body.line(f"  from (select {names}) name (n)")
    into = ' into "@@row"' if outputs else ""
    using = f" using {', '.join(values)}" if values else ""
    body.line(f"){into}{using};")
    _take_outputs(body, outputs)
    if one.result is not None:
        body.set_result(one.result, f"cast(current_setting('{RETURNED}') as integer)")


def _take_outputs(body: Body, outputs: list[str]) -> None:
    """Give variables what a procedure gave whose parameters are not known."""
    if not outputs:
        return
    body.declarations.setdefault('"@@row"', "record")
    body.declarations.setdefault('"@@outputs"', "text[]")
    body.line('"@@outputs" := array(select value from json_each_text(row_to_json("@@row")));')
    body.line(f'if cardinality("@@outputs") <> {len(outputs)} then')
    with body.indented():
        body.line("raise exception 'The procedure has other OUTPUT parameters.';")
    body.line("end if;")
    for at, variable in enumerate(outputs, 1):
        body.line(f'{variable} := "@@outputs"[{at}];')


def text(body: Body, one: texts.Text) -> None:
    """Print the statements of a text that EXEC runs; it has variables of its own."""
    body.text_count += 1
    suffix = f" {body.text_count}"
    body.line("-- The text of EXEC.")
    inner = {name: known for name, known in body.scope.variables.items() if not _OWN.match(name)}
    found = [(each, *_given(body, each)) for each in one.given]
    lines = []
    for each, value, type_ in found:
        known = Variable(f'"{each.name}{suffix}"', type_)
        if each.name.casefold() in inner:
            raise Unfaithful(f"{each.name} is given twice: leave one out")
        inner[each.name.casefold()] = known
        body.declarations[known.sql] = type_.sql
        lines.append(f"{known.sql} := {value};")
        if each.pattern is not None:
            lines += _checked(known.sql, each.pattern)
    body.computing(lines)
    parts = [inner[each.name.casefold()].sql for each in one.given if each.is_part]
    if parts:
        body.line(f"if {' and '.join(f'{part} is not null' for part in parts)} then")
    saved = body.scope.variables, body.scope.table_variables, body.suffix, body.aborts
    body.scope.variables, body.suffix = inner, suffix
    body.scope.table_variables = temporary = {
        name: table for name, table in saved[1].items() if name.startswith("#")
    }
    before, notes, begin = len(temporary), len(body.notes), len(body.lines)
    try:
        with body.indented() if parts else nullcontext():
            body.declare_all(one.statements)
            body.each(one.statements)
            if parts and not one.statements:
                body.line("null;")
    except ScriptError as error:
        raise ScriptError(one.place(error.position), f"in the text of EXEC: {error}") from None
    _fill_names(body, one, begin, inner)
    body.notes[notes:] = [(one.place(position), note) for position, note in body.notes[notes:]]
    body.scope.variables, body.scope.table_variables, body.suffix, body.aborts = saved
    if len([name for name in temporary if name.startswith("#")]) > before:
        raise Unfaithful("a temporary table of a text goes with it: use a table variable")
    if parts:
        body.line("end if;")
    outputs = []
    for each in one.given:
        if each.output is not None:
            outer, own = body.scope.variable(each.output), inner[each.name.casefold()]
            outputs.append(f"{outer.sql} := {types.convert(own.sql, own.type, outer.type)};")
    body.computing(outputs)


def _checked(value: str, pattern: str) -> list[str]:
    """Return lines that refuse a value which would be more than a name in SQL Server, or another one."""
    return [
        f"if {value} !~ {literal(f'^{pattern}$')} then",
        f"  raise exception '\"%\" is no name of an object.', {value}",
        "    using detail = 'Msg 102, Level 15, State 1';",
        "end if;",
    ]


def _fill_names(body: Body, one: texts.Text, begin: int, variables: dict[str, Variable]) -> None:
    """Put the values that are names in place of their marks, which stand in texts of PostgreSQL alone."""
    values = {
        (each.mark or "").casefold(): variables[each.name.casefold()].sql
        for each in one.given
        if each.mark is not None
    }
    if not values:
        return
    # A DO block is a text of its own, in which a procedure's variables are not known.
    closed = (line for line in body.lines[begin:] if line.lstrip().startswith("do $"))
    if any(texts.ANY_MARK.search(written) for written in (*texts.code_and_principals(one), *closed)):
        texts.refuse_shape(one)

    def filled(found: re.Match[str]) -> str:
        if not texts.ANY_MARK.search(found[2] or ""):
            return found[0]
        prefix, content = found[1], found[2]
        pieces: list[str] = []
        at = 0
        for mark in texts.ANY_MARK.finditer(content):
            value = values.get(mark[0].casefold())
            if value is None:
                return found[0]
            pieces += [f"{prefix}'{content[at : mark.start()]}'"] if mark.start() > at else []
            value = f"lower({value})" if mark[0].islower() else value
            is_quoted = content.startswith('"')
            pieces.append(f"""replace({value}, '"', '""')""" if is_quoted else value)
            at = mark.end()
        pieces += [f"{prefix}'{content[at:]}'"] if at < len(content) else []
        return pieces[0] if len(pieces) == 1 else f"({' || '.join(pieces)})"

    body.lines[begin:] = [_TEXT_OR_NAME.sub(filled, line) for line in body.lines[begin:]]
    left = [*body.lines[begin:], *body.declarations, *body.first]
    if any(texts.ANY_MARK.search(line) for line in left):
        texts.refuse_shape(one)


def _given(body: Body, each: texts.Given) -> tuple[str, Type]:
    """Return what a text gets, and the type that it has there."""
    if each.type is not None:
        type_ = body.scope.type(tables.written(each.type))
        return body.value(each.value, type_), type_
    found = translating.expression(each.value, body.scope)
    if each.is_number and found.type.family not in types.NUMBERS:
        raise Unfaithful(f"{each.value.text} is no number, so it may be any SQL: write an IF for each")
    if not each.is_number and found.type.family is not Family.TEXT:
        raise Unfaithful(f"{each.value.text} is no text: CAST it to nvarchar")
    return (found.sql, found.type) if each.is_number else (body.value(each.value, types.TEXT), types.TEXT)


def _argument(body: Body, argument: tree.Argument, parameter: tree.Parameter | None) -> str:
    if argument.value is None:
        raise Unfaithful("DEFAULT as an argument has no form here: leave the argument out")
    if argument.value.text.strip().casefold() in body.scope.table_variables:
        rows = tables.rows_of(body.scope.table_variable(argument.value.text.strip()).sql)
        # CALL takes no query.
        value = f'"@@rows of {argument.value.text.strip().lower()}"'
        body.declarations[value] = "json"
        body.computing([f"{value} := {rows};"])
        name = None if argument.name is None else parameter.name if parameter else argument.name
        return value if name is None else f"{identifier(name)} => {value}"
    target = None if parameter is None else body.scope.type(tables.written(parameter.type))
    if argument.is_output or (parameter is not None and parameter.is_output):
        if not argument.is_output:
            name = "" if parameter is None else parameter.name
            raise Unfaithful(f"{name} is an OUTPUT parameter: write OUTPUT behind it")
        value = body.scope.variable(argument.value.text.strip()).sql
    else:
        value = body.value(argument.value, target)
        if target is not None and target.sql == "smallint":
            value = types.cast(value, target)
    if argument.name is None:
        return value
    name = parameter.name if parameter else argument.name
    return '"' + name.replace('"', '""') + f'" => {value}'


def _parameter(parameters: list[tree.Parameter], argument: tree.Argument, at: int) -> tree.Parameter | None:
    if not parameters:
        return None
    if argument.name is None:
        if at >= len(parameters):
            raise Unfaithful(f"the procedure has {len(parameters)} parameters")
        return parameters[at]
    for one in parameters:
        if one.name.casefold() == argument.name.casefold():
            return one
    raise Unfaithful(f"the procedure has no parameter {argument.name}")
