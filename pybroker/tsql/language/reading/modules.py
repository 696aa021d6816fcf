"""Reads procedures, functions, triggers and views."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pybroker.tsql.language import tree
from pybroker.tsql.language.reading import queries

if TYPE_CHECKING:
    from pybroker.tsql.language.reading.reader import Reader
    from pybroker.tsql.source import Position
    from pybroker.tsql.tree import Statement


def module(reader: Reader, word: str, verb: str, position: Position) -> Statement:
    """Read a procedure, a function, a trigger or a view, from its name on."""
    if word == "FUNCTION":
        return _function(reader, verb, position)
    if word == "TRIGGER":
        return _trigger(reader, verb, position)
    if word == "VIEW":
        return _view(reader, verb, position)
    return _procedure(reader, verb, position)


def must_be_first(reader: Reader, verb: str, kind: str, position: Position) -> None:
    """Refuse a module that stands behind other statements of its batch."""
    begin = reader.words[0]
    if reader.place(begin.begin) != position or reader.depth > 1:
        reader.at -= 1
        reader.refuse(f"{verb} {kind} must be the first statement of its batch: write GO before it")


def _rest(reader: Reader) -> tuple[Statement, ...]:
    """Read the statements up to the end of the batch."""
    found = reader.statements()
    if reader.peek() is not None:
        reader.refuse("END without BEGIN" if reader.is_("END") else None)
    return tuple(found)


def declared_parameters(reader: Reader) -> tuple[tree.Parameter, ...]:
    """Read parameters as a module declares them."""
    found: list[tree.Parameter] = []
    one = reader.peek()
    while one is not None and one.kind == "variable":
        found.append(_parameter(reader))
        if not reader.skip(","):
            break
        one = reader.peek()
    return tuple(found)


def _parameter(reader: Reader) -> tree.Parameter:
    name = reader.variable()
    reader.skip("AS")
    kind = reader.type_()
    reader.skip("NULL")
    reader.skip("NOT", "NULL")
    default = None
    if reader.skip("="):
        default = reader.code("OUTPUT", "OUT", "READONLY", "AS", "WITH", comma=True)
    is_output = reader.skip_one("OUTPUT", "OUT") is not None
    is_readonly = reader.skip("READONLY")
    return tree.Parameter(name=name, type=kind, default=default, is_output=is_output, is_readonly=is_readonly)


def _module_options(reader: Reader) -> tuple[str | None, tuple[str, ...]]:
    execute_as: str | None = None
    options: list[str] = []
    if not reader.skip("WITH"):
        return None, ()
    while True:
        if reader.skip_one("EXECUTE", "EXEC"):
            reader.expect("AS")
            one = reader.take()
            execute_as = one.word.upper()
            if one.kind == "text":
                execute_as = f"[{one.written.partition(chr(39))[2][:-1].replace(chr(39) * 2, chr(39))}]"
        else:
            option = reader.identifier().upper()
            while option in ("RETURNS", "CALLED") and not reader.is_(",") and not reader.is_("AS"):
                option += " " + reader.take().word
                if option.endswith("INPUT"):
                    break
            options.append(option)
        if not reader.skip(","):
            return execute_as, tuple(options)


def _procedure(reader: Reader, verb: str, position: Position) -> Statement:
    name = reader.name()
    if reader.skip(";"):
        reader.refuse("a procedure's number is not translated: give it a name of its own")
    in_parentheses = reader.skip("(")
    parameters = declared_parameters(reader)
    if in_parentheses:
        reader.expect(")")
    execute_as, options = _module_options(reader)
    reader.skip("FOR", "REPLICATION")
    reader.expect("AS")
    if reader.is_("EXTERNAL"):
        reader.refuse("EXTERNAL NAME is not translated: write the procedure in Python (pybroker.App)")
    return tree.CreateProcedure(
        position=position,
        verb=verb,
        name=name,
        parameters=parameters,
        execute_as=execute_as,
        options=options,
        body=_rest(reader),
    )


def _function(reader: Reader, verb: str, position: Position) -> Statement:
    name = reader.name()
    reader.expect("(")
    parameters = declared_parameters(reader)
    reader.expect(")", "RETURNS")
    returns: tree.Type | tree.TableVariable | None
    one = reader.peek()
    if one is not None and one.kind == "variable":
        variable = reader.variable()
        reader.expect("TABLE")
        returns = tree.TableVariable(name=variable, definition=reader.parenthesised())
    elif reader.skip("TABLE"):
        returns = None
    else:
        returns = reader.type_()
    execute_as, options = _module_options(reader)
    reader.skip("AS")
    query: tree.Code | None = None
    body: tuple[Statement, ...] = ()
    if returns is None:
        query = _returned_query(reader)
    else:
        if not reader.is_("BEGIN"):
            reader.refuse(None, "BEGIN")
        body = _rest(reader)
    return tree.CreateFunction(
        position=position,
        verb=verb,
        name=name,
        parameters=parameters,
        returns=returns,
        execute_as=execute_as,
        options=options,
        query=query,
        body=body,
    )


def _returned_query(reader: Reader) -> tree.Code:
    reader.expect("RETURN")
    in_parentheses = reader.skip("(")
    query = queries.whole(reader)
    if in_parentheses:
        reader.expect(")")
    reader.skip(";")
    if reader.peek() is not None:
        reader.refuse(None)
    return query


def _trigger(reader: Reader, verb: str, position: Position) -> Statement:
    name = reader.name()
    reader.expect("ON")
    if reader.is_("DATABASE") or reader.is_("ALL", "SERVER"):
        reader.refuse("a trigger ON DATABASE or ALL SERVER is not translated: use an event trigger")
    table = reader.name()
    execute_as, options = _module_options(reader)
    timing = reader.skip_one("FOR", "AFTER") or ("INSTEAD OF" if reader.skip("INSTEAD", "OF") else None)
    if timing is None:
        reader.refuse(None, "AFTER", "INSTEAD OF")
    events = []
    while True:
        event = reader.skip_one("INSERT", "UPDATE", "DELETE")
        if event is None:
            reader.refuse(None, "INSERT", "UPDATE", "DELETE")
        events.append(event)
        if not reader.skip(","):
            break
    reader.skip("NOT", "FOR", "REPLICATION")
    reader.expect("AS")
    return tree.CreateTrigger(
        position=position,
        verb=verb,
        name=name,
        table=table,
        timing="AFTER" if timing == "FOR" else timing,
        events=tuple(events),
        execute_as=execute_as,
        options=options,
        body=_rest(reader),
    )


def _view(reader: Reader, verb: str, position: Position) -> Statement:
    name = reader.name()
    columns = []
    if reader.skip("("):
        columns.append(reader.identifier())
        while reader.skip(","):
            columns.append(reader.identifier())
        reader.expect(")")
    _module_options(reader)
    reader.expect("AS")
    query = queries.whole(reader)
    reader.skip("WITH", "CHECK", "OPTION")
    return tree.CreateView(position=position, verb=verb, name=name, query=query, columns=tuple(columns))
