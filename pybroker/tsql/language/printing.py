"""From a tree to T-SQL: what is printed is read as an equal tree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pybroker.tsql import administration, printing
from pybroker.tsql.language import tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pybroker.tsql.tree import Name, Statement


def print_statement(statement: Statement) -> str:
    """Return the T-SQL of any statement, in one form whatever the script's was."""
    if (method := TABLE.get(type(statement))) is not None:
        end = "" if isinstance(statement, tree.Label) else ";"
        return " ".join(part for part in method(statement) if part) + end
    if type(statement) in printing.TABLE:
        return printing.print_statement(statement)
    return administration.print_statement(statement)


def _all(statements: Iterable[Statement]) -> str:
    return " ".join(map(print_statement, statements))


def _bracketed(name: str) -> str:
    # Variables and temporary tables stay bare.
    return name if name.startswith(("@", "#")) else "[" + name.replace("]", "]]") + "]"


def _name(name: Name) -> str:
    if name.database is not None and name.schema is None:
        return f"{_bracketed(name.database)}..{_bracketed(name.name)}"
    parts = (name.database, name.schema, name.name)
    return ".".join(_bracketed(one) for one in parts if one is not None)


def _text(value: str) -> str:
    return "N'" + value.replace("'", "''") + "'"


def _exact(name: tree.Exact) -> str:
    return name.text if isinstance(name, tree.Code) else "[" + name.replace("]", "]]") + "]"


def _code(before: str, code: tree.Code | None, behind: str = "") -> str:
    return "" if code is None else f"{before}{_line(code)}{behind}"


def _line(code: tree.Code) -> str:
    # A comment at its end would swallow what follows.
    return f"{code.text}\n" if "--" in code.text.rpartition("\n")[2] else code.text


def _type(kind: tree.Type) -> str:
    arguments = f"({', '.join(kind.arguments)})" if kind.arguments else ""
    return _name(kind.name) + arguments


def _begin_dialog(one: tree.BeginDialog) -> Iterable[str]:
    encryption = None if one.encryption is None else tree.Code("ON" if one.encryption else "OFF")
    options = (
        _code("RELATED_CONVERSATION = ", one.related_conversation),
        _code("RELATED_CONVERSATION_GROUP = ", one.related_conversation_group),
        _code("LIFETIME = ", one.lifetime),
        _code("ENCRYPTION = ", encryption),
    )
    written = ", ".join(option for option in options if option)
    return (
        f"BEGIN DIALOG {one.handle} FROM SERVICE {_exact(one.from_service)}",
        f"TO SERVICE {_line(one.to_service)}{_code(', ', one.broker_instance)}",
        "" if one.contract is None else f"ON CONTRACT {_exact(one.contract)}",
        written and f"WITH {written}",
    )


def _send(one: tree.Send) -> Iterable[str]:
    return (
        f"SEND ON CONVERSATION ({', '.join(map(_line, one.handles))})",
        "" if one.message_type is None else f"MESSAGE TYPE {_exact(one.message_type)}",
        _code("(", one.body, ")"),
    )


def _column(one: tree.Column) -> str:
    if one.variable is not None:
        return f"{one.variable} = {_line(one.value)}"
    return _line(one.value) + ("" if one.name is None else f" AS {_bracketed(one.name)}")


def _receive(one: tree.Receive) -> Iterable[str]:
    return (
        "RECEIVE",
        _code("TOP (", one.top, ")"),
        ", ".join(map(_column, one.columns)),
        f"FROM {_name(one.queue)}",
        "" if one.into is None else f"INTO {one.into}",
        _code("WHERE conversation_handle = ", one.conversation_handle),
        _code("WHERE conversation_group_id = ", one.conversation_group_id),
    )


def _get(one: tree.GetConversationGroup) -> Iterable[str]:
    return (f"GET CONVERSATION GROUP {one.variable} FROM {_name(one.queue)}",)


def _waitfor(one: tree.WaitFor) -> Iterable[str]:
    inner = print_statement(one.statement).removesuffix(";")
    return (f"WAITFOR ({inner}){_code(', TIMEOUT ', one.timeout)}",)


def _move(one: tree.MoveConversation) -> Iterable[str]:
    return (f"MOVE CONVERSATION {_line(one.handle)} TO {_line(one.group)}",)


def _end(one: tree.EndConversation) -> Iterable[str]:
    return (
        f"END CONVERSATION {_line(one.handle)}",
        _code("WITH ERROR = ", one.error),
        _code("DESCRIPTION = ", one.description),
        "WITH CLEANUP" if one.cleanup else "",
    )


def _timer(one: tree.BeginTimer) -> Iterable[str]:
    return (f"BEGIN CONVERSATION TIMER ({_line(one.handle)}) TIMEOUT = {_line(one.timeout)}",)


def _declared(one: tree.Variable | tree.TableVariable) -> str:
    if isinstance(one, tree.TableVariable):
        return f"{one.name} TABLE {_line(one.definition)}"
    return f"{one.name} {_type(one.type)}{_code(' = ', one.default)}"


def _declare(one: tree.Declare) -> Iterable[str]:
    return ("DECLARE", ", ".join(map(_declared, one.variables)))


def _assigned(one: tree.Assign) -> str:
    return f"{one.variable} {one.operator} {_line(one.value)}"


def _assign(one: tree.Assign) -> Iterable[str]:
    return ("SET", _assigned(one))


def _select_variables(one: tree.SelectVariables) -> Iterable[str]:
    return (
        _code("", one.with_),
        "SELECT",
        _code("TOP (", one.top, ")"),
        ", ".join(map(_assigned, one.assignments)),
        _code("", one.source),
    )


def _block(one: tree.Block) -> Iterable[str]:
    return "BEGIN", _all(one.statements), "END"


def _if(one: tree.If) -> Iterable[str]:
    if one.otherwise is None:
        return (f"IF {_line(one.condition)} {print_statement(one.then).removesuffix(';')}",)
    otherwise = print_statement(one.otherwise).removesuffix(";")
    return (f"IF {_line(one.condition)} {print_statement(one.then)} ELSE {otherwise}",)


def _while(one: tree.While) -> Iterable[str]:
    return (f"WHILE {_line(one.condition)} {print_statement(one.body).removesuffix(';')}",)


def _try(one: tree.TryCatch) -> Iterable[str]:
    return "BEGIN TRY", _all(one.body), "END TRY BEGIN CATCH", _all(one.handler), "END CATCH"


def _raise_error(one: tree.RaiseError) -> Iterable[str]:
    options = "" if not one.options else f"WITH {', '.join(one.options)}"
    return f"RAISERROR ({', '.join(map(_line, one.arguments))})", options


def _transaction(one: tree.Transaction) -> Iterable[str]:
    return (f"{one.verb} TRANSACTION", "" if one.name is None else _bracketed(one.name))


def _argument(one: tree.Argument) -> str:
    name = "" if one.name is None else f"{one.name} = "
    value = "DEFAULT" if one.value is None else _line(one.value)
    return f"{name}{value}{' OUTPUT' if one.is_output else ''}"


def _execute(one: tree.Execute) -> Iterable[str]:
    result = "" if one.result is None else f"{one.result} ="
    return "EXEC", result, _name(one.procedure), ", ".join(map(_argument, one.arguments))


def _insert_execute(one: tree.InsertExecute) -> Iterable[str]:
    return f"INSERT {_line(one.target)}", print_statement(one.execute).removesuffix(";")


def _declare_cursor(one: tree.DeclareCursor) -> Iterable[str]:
    if one.name.startswith("@"):
        if one.query is None:
            return (f"DECLARE {one.name} CURSOR",)
        return f"SET {one.name} = CURSOR", *one.options, _code("FOR ", one.query)
    before = [option for option in one.options if option == "INSENSITIVE"]
    behind = [option for option in one.options if option != "INSENSITIVE"]
    return f"DECLARE {_bracketed(one.name)}", *before, "CURSOR", *behind, _code("FOR ", one.query)


def _cursor(one: tree.Cursor) -> Iterable[str]:
    return one.verb, _bracketed(one.name)


def _fetch(one: tree.Fetch) -> Iterable[str]:
    into = "" if not one.variables else f"INTO {', '.join(one.variables)}"
    return f"FETCH {one.direction}", _code("", one.offset), f"FROM {_bracketed(one.name)}", into


def _parameter(one: tree.Parameter) -> str:
    direction = " OUTPUT" if one.is_output else " READONLY" if one.is_readonly else ""
    return f"{one.name} {_type(one.type)}{_code(' = ', one.default)}{direction}"


def _options(execute_as: str | None, options: tuple[str, ...]) -> str:
    all_options = list(options)
    if execute_as is not None:
        user = _text(execute_as[1:-1]) if execute_as.startswith("[") else execute_as
        all_options.append(f"EXECUTE AS {user}")
    return f"WITH {', '.join(all_options)}" if all_options else ""


def _procedure(one: tree.CreateProcedure) -> Iterable[str]:
    return (
        f"{one.verb} PROCEDURE {_name(one.name)}",
        ", ".join(map(_parameter, one.parameters)),
        _options(one.execute_as, one.options),
        "AS",
        _all(one.body),
    )


def _function(one: tree.CreateFunction) -> Iterable[str]:
    returns = "TABLE"
    if isinstance(one.returns, tree.TableVariable):
        returns = _declared(one.returns)
    elif one.returns is not None:
        returns = _type(one.returns)
    return (
        f"{one.verb} FUNCTION {_name(one.name)} ({', '.join(map(_parameter, one.parameters))})",
        f"RETURNS {returns}",
        _options(one.execute_as, one.options),
        "AS",
        _code("RETURN ", one.query),
        _all(one.body),
    )


def _trigger(one: tree.CreateTrigger) -> Iterable[str]:
    return (
        f"{one.verb} TRIGGER {_name(one.name)} ON {_name(one.table)}",
        _options(one.execute_as, one.options),
        f"{one.timing} {', '.join(one.events)} AS",
        _all(one.body),
    )


def _view(one: tree.CreateView) -> Iterable[str]:
    columns = f"({', '.join(map(_bracketed, one.columns))})" if one.columns else ""
    return f"{one.verb} VIEW {_name(one.name)}", columns, _code("AS ", one.query)


def _table(one: tree.CreateTable) -> Iterable[str]:
    filegroup = "" if one.filegroup is None else f"ON {_bracketed(one.filegroup)}"
    return f"CREATE TABLE {_name(one.name)} {_line(one.definition)}", filegroup


def _user_type(one: tree.CreateType) -> Iterable[str]:
    null = "" if one.is_null is None else "NULL" if one.is_null else "NOT NULL"
    base = "" if one.base is None else f"FROM {_type(one.base)}"
    return f"CREATE TYPE {_name(one.name)}", base, null, _code("AS TABLE ", one.definition)


def _drop(one: tree.DropThings) -> Iterable[str]:
    exists = "IF EXISTS" if one.if_exists else ""
    return f"DROP {one.kind}", exists, ", ".join(map(_name, one.names))


TABLE: dict[type[Statement], Callable[[Any], Iterable[str]]] = {
    tree.BeginDialog: _begin_dialog,
    tree.Send: _send,
    tree.Receive: _receive,
    tree.GetConversationGroup: _get,
    tree.WaitFor: _waitfor,
    tree.MoveConversation: _move,
    tree.EndConversation: _end,
    tree.BeginTimer: _timer,
    tree.Declare: _declare,
    tree.Assign: _assign,
    tree.SelectVariables: _select_variables,
    tree.Block: _block,
    tree.If: _if,
    tree.While: _while,
    tree.Break: lambda _: ("BREAK",),
    tree.Continue: lambda _: ("CONTINUE",),
    tree.Goto: lambda one: (f"GOTO {one.label}",),
    tree.Label: lambda one: (f"{one.name}:",),
    tree.Return: lambda one: ("RETURN", _code("", one.value)),
    tree.TryCatch: _try,
    tree.Throw: lambda one: ("THROW", ", ".join(map(_line, one.arguments))),
    tree.RaiseError: _raise_error,
    tree.Print: lambda one: ("PRINT", _line(one.value)),
    tree.Delay: lambda one: (f"WAITFOR {one.kind}", _line(one.value)),
    tree.SetOption: lambda one: ("SET", one.option, one.value),
    tree.Transaction: _transaction,
    tree.Execute: _execute,
    tree.ExecuteText: lambda one: (f"EXEC ({_line(one.text)})",),
    tree.Query: lambda one: (_line(one.code),),
    tree.InsertExecute: _insert_execute,
    tree.DeclareCursor: _declare_cursor,
    tree.Cursor: _cursor,
    tree.Fetch: _fetch,
    tree.CreateProcedure: _procedure,
    tree.CreateFunction: _function,
    tree.CreateTrigger: _trigger,
    tree.CreateView: _view,
    tree.CreateTable: _table,
    tree.CreateType: _user_type,
    tree.Definition: lambda one: (_line(one.code),),
    tree.DropThings: _drop,
}
