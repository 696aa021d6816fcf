"""The tree of the language around definitions: conversations, variables, control flow, modules, queries.

Expressions and queries stay text, `Code`, which `pybroker.tsql` translates by itself.
Names of variables are as they are written, with their `@`; they match in any case.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pybroker.tsql.source import Position
from pybroker.tsql.tree import NOWHERE, Name, Statement


@dataclass(frozen=True, slots=True)
class Code:
    """An expression or a query as it is written, without blanks and comments around it."""

    text: str
    position: Position = field(default=NOWHERE, compare=False)

    def place(self, offset: int) -> Position:
        """Return where a character of the text stands in the script."""
        before = self.text[:offset]
        lines = before.count("\n")
        if not lines:
            return Position(self.position.line, self.position.column + offset)
        return Position(self.position.line + lines, offset - before.rfind("\n"))


@dataclass(frozen=True, slots=True)
class Type:
    """A type; its arguments are numbers, MAX, or the name of a schema collection."""

    name: Name
    arguments: tuple[str, ...] = ()


# The name of a service, contract or message type; Code where a variable has it.
Exact = str | Code


# Conversations.


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginDialog(Statement):
    """BEGIN DIALOG."""

    handle: str
    from_service: Exact
    to_service: Code
    broker_instance: Code | None = None
    contract: Exact | None = None
    related_conversation: Code | None = None
    related_conversation_group: Code | None = None
    lifetime: Code | None = None
    encryption: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Send(Statement):
    """SEND on one handle or several."""

    handles: tuple[Code, ...]
    message_type: Exact | None = None
    body: Code | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of RECEIVE, into a variable if one is named."""

    value: Code
    name: str | None = None
    variable: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Receive(Statement):
    """RECEIVE; without conditions it takes what is next."""

    top: Code | None = None
    columns: tuple[Column, ...]
    queue: Name
    into: str | None = None
    conversation_handle: Code | None = None
    conversation_group_id: Code | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetConversationGroup(Statement):
    """GET CONVERSATION GROUP."""

    variable: str
    queue: Name


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitFor(Statement):
    """WAITFOR (RECEIVE or GET CONVERSATION GROUP); the timeout is in milliseconds."""

    statement: Receive | GetConversationGroup
    timeout: Code | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveConversation(Statement):
    """MOVE CONVERSATION."""

    handle: Code
    group: Code


@dataclass(frozen=True, slots=True, kw_only=True)
class EndConversation(Statement):
    """END CONVERSATION."""

    handle: Code
    error: Code | None = None
    description: Code | None = None
    cleanup: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginTimer(Statement):
    """BEGIN CONVERSATION TIMER; the timeout is in seconds."""

    handle: Code
    timeout: Code


# Variables.


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """A declared variable."""

    name: str
    type: Type
    default: Code | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableVariable:
    """A declared table variable; the definition is `(column type, …)`."""

    name: str
    definition: Code


@dataclass(frozen=True, slots=True, kw_only=True)
class Declare(Statement):
    """DECLARE of scalars and table variables."""

    variables: tuple[Variable | TableVariable, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Assign(Statement):
    """SET @variable = value; the operator may be += and the like."""

    variable: str
    operator: str = "="
    value: Code


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectVariables(Statement):
    """SELECT @variable = value, …; `source` is what follows the list, from FROM on, `with_` its WITH."""

    with_: Code | None = None
    top: Code | None = None
    assignments: tuple[Assign, ...]
    source: Code | None = None


# Control flow.


@dataclass(frozen=True, slots=True, kw_only=True)
class Block(Statement):
    """BEGIN … END."""

    statements: tuple[Statement, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class If(Statement):
    """IF with ELSE."""

    condition: Code
    then: Statement
    otherwise: Statement | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class While(Statement):
    """WHILE."""

    condition: Code
    body: Statement


@dataclass(frozen=True, slots=True, kw_only=True)
class Break(Statement):
    """BREAK."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Continue(Statement):
    """CONTINUE."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goto(Statement):
    """GOTO."""

    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Label(Statement):
    """A label, which GOTO names."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Return(Statement):
    """RETURN."""

    value: Code | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TryCatch(Statement):
    """BEGIN TRY … END TRY BEGIN CATCH … END CATCH."""

    body: tuple[Statement, ...]
    handler: tuple[Statement, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Throw(Statement):
    """THROW; without arguments it raises the error that CATCH caught."""

    arguments: tuple[Code, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RaiseError(Statement):
    """RAISERROR; arguments are message, severity, state and what the message quotes."""

    arguments: tuple[Code, ...]
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Print(Statement):
    """PRINT."""

    value: Code


@dataclass(frozen=True, slots=True, kw_only=True)
class Delay(Statement):
    """WAITFOR DELAY or TIME."""

    kind: str
    value: Code


@dataclass(frozen=True, slots=True, kw_only=True)
class SetOption(Statement):
    """SET of an option that has a meaning here, as XACT_ABORT."""

    option: str
    value: str


# Transactions.


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction(Statement):
    """BEGIN, COMMIT, ROLLBACK or SAVE TRANSACTION; the name may be a variable."""

    verb: str
    name: str | None = None


# Calls.


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """An argument of EXEC; the value is None for DEFAULT."""

    name: str | None = None
    value: Code | None
    is_output: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Execute(Statement):
    """EXEC of a procedure; `result` is the variable of its return code. The name may be a variable."""

    result: str | None = None
    procedure: Name
    arguments: tuple[Argument, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecuteText(Statement):
    """EXEC (text)."""

    text: Code


# Queries.


@dataclass(frozen=True, slots=True, kw_only=True)
class Query(Statement):
    """SELECT, INSERT, UPDATE, DELETE, MERGE or TRUNCATE, with the WITH before it."""

    verb: str
    code: Code


@dataclass(frozen=True, slots=True, kw_only=True)
class InsertExecute(Statement):
    """INSERT … EXEC; the target is the table with its columns, and `execute` an EXEC of any kind."""

    target: Code
    execute: Statement


# Cursors.


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclareCursor(Statement):
    """DECLARE … CURSOR; the name of a cursor variable has its `@`."""

    name: str
    options: tuple[str, ...] = ()
    query: Code | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor(Statement):
    """OPEN, CLOSE or DEALLOCATE."""

    verb: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetch(Statement):
    """FETCH; the direction is NEXT, PRIOR, FIRST, LAST, or ABSOLUTE and RELATIVE with an offset."""

    direction: str = "NEXT"
    offset: Code | None = None
    name: str
    variables: tuple[str, ...] = ()


# Modules and tables.


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A parameter of a procedure or function."""

    name: str
    type: Type
    default: Code | None = None
    is_output: bool = False
    is_readonly: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateProcedure(Statement):
    """CREATE, ALTER or CREATE OR ALTER PROCEDURE; execute_as is a keyword, or a user's name in brackets."""

    verb: str
    name: Name
    parameters: tuple[Parameter, ...] = ()
    execute_as: str | None = None
    options: tuple[str, ...] = ()
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateFunction(Statement):
    """CREATE FUNCTION: it returns a type, the rows of a query, or a table variable."""

    verb: str
    name: Name
    parameters: tuple[Parameter, ...] = ()
    returns: Type | TableVariable | None = None
    execute_as: str | None = None
    options: tuple[str, ...] = ()
    query: Code | None = None
    body: tuple[Statement, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTrigger(Statement):
    """CREATE TRIGGER on a table; the timing is AFTER or INSTEAD OF."""

    verb: str
    name: Name
    table: Name
    timing: str
    events: tuple[str, ...]
    execute_as: str | None = None
    options: tuple[str, ...] = ()
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateView(Statement):
    """CREATE VIEW; `code` is the statement whole."""

    verb: str
    name: Name
    query: Code
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTable(Statement):
    """CREATE TABLE; the definition is `(column type, …)`. Names of temporary tables have their `#`."""

    name: Name
    definition: Code
    filegroup: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateType(Statement):
    """CREATE TYPE from another type, or as a table."""

    name: Name
    base: Type | None = None
    is_null: bool | None = None
    definition: Code | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition(Statement):
    """What is left of CREATE and ALTER as text: ALTER TABLE, CREATE INDEX."""

    kind: str
    code: Code


@dataclass(frozen=True, slots=True, kw_only=True)
class DropThings(Statement):
    """DROP PROCEDURE, FUNCTION, TRIGGER, VIEW, TABLE, TYPE."""

    kind: str
    names: tuple[Name, ...]
    if_exists: bool = False
