"""What becomes of each statement of a batch: one table, from a class of the tree to a step.

A statement that has no faithful form is refused here, before anything runs.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any

from pybroker.tsql import administration, conditions, modules, printing, queries, translation
from pybroker.tsql.administration.translation import translate as translate_administration
from pybroker.tsql.calls import call
from pybroker.tsql.execution import BreakLoop, ContinueLoop, GoTo, OpenCursor, ReturnFromBatch
from pybroker.tsql.expressions import types
from pybroker.tsql.expressions.alterations import alteration, insert_target
from pybroker.tsql.expressions.names import folded, relation
from pybroker.tsql.expressions.queue import MESSAGE
from pybroker.tsql.expressions.tables import as_table, definition
from pybroker.tsql.expressions.translating import assignments, body, condition, expression, query
from pybroker.tsql.expressions.types import Type, Unfaithful
from pybroker.tsql.language import tree
from pybroker.tsql.language.jumps import Again, Left, Repeated, structured
from pybroker.tsql.language.printing import print_statement
from pybroker.tsql.procedures.flow import ISOLATION
from pybroker.tsql.session import StatementError
from pybroker.tsql.source import Batch, ScriptError, offset_of
from pybroker.tsql.steps import Shown, Step
from pybroker.tsql.translation import identifier, literal
from pybroker.tsql.tree import Queue

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pybroker.tsql.execution import Execution
    from pybroker.tsql.expressions.translating import Expression
    from pybroker.tsql.known import Known
    from pybroker.tsql.source import Position
    from pybroker.tsql.tree import Name, Statement

_NUMBER = re.compile(r"-?\d{1,9}")
_COLUMN = re.compile(r"(?:\w+\s*\.\s*)?(?:\[(?P<bracketed>[^\]]+)\]|(?P<plain>\w+))")
_SPECIAL = {
    "@@rowcount": types.INTEGER,
    "@@error": types.INTEGER,
    "@@trancount": types.INTEGER,
    "@@fetch_status": types.INTEGER,
    "xact_state": types.INTEGER,
    "error_number": types.INTEGER,
    "error_message": types.TEXT,
    "error_severity": types.INTEGER,
    "error_state": types.INTEGER,
    "error_line": types.INTEGER,
    "error_procedure": types.TEXT,
    "scope_identity": types.IDENTITY,
}
_FORMAT = re.compile(r"%%|%(?P<flags>[-+ #0]*)(?P<width>\d*)(?:\.\d+)?(?:I64|l|h)?(?P<kind>[diosuxX])")


def prepare(
    statements: Sequence[Statement], batch: Batch, known: Known, *, in_msdb: bool = False
) -> list[Step]:
    """Return the steps of a batch.

    Args:
        statements: of the batch.
        batch: its text.
        known: what the scripts have made before it; what it makes is added.
        in_msdb: whether the batch begins in msdb, whose routes are those of the worker.

    Raises:
        ScriptError: at the first statement that has no faithful form.
    """
    return Preparer(batch, known, in_msdb=in_msdb).all(structured(statements))


class Preparer:
    """Prepares the statements of one batch, in their order."""

    def __init__(self, batch: Batch, known: Known, *, in_msdb: bool = False) -> None:
        self.batch = batch
        self.known = known
        self.scope = known.scope(placeholders=True)
        self.in_msdb = in_msdb
        self.loops = 0
        self.cursors: set[str] = set()
        known.reads_identity = known.reads_identity or "scope_identity" in batch.text.lower()
        for name, type_ in _SPECIAL.items():
            written = name if name.startswith("@@") else f"{name}()"
            self.scope.declare(written, type_, f"%({name})s::{type_.sql}")

    def all(self, statements: Sequence[Statement]) -> list[Step]:
        """Prepare statements one after the other."""
        return [self.one(statement) for statement in statements]

    def one(self, statement: Statement) -> Step:
        """Prepare a statement."""
        if isinstance(statement, administration.tree.Use):
            self.in_msdb = statement.database.lower() == "msdb"
        statement = self.known.with_principals(statement)
        method = TABLE.get(type(statement))
        if method is not None:
            try:
                return method(self, statement)
            except Unfaithful as reason:
                raise ScriptError(statement.position, str(reason)) from None
        if isinstance(statement, Queue) and statement.verb == "CREATE":
            name = statement.name
            self.known.tables[(name.schema or "dbo").casefold(), name.name.casefold()] = MESSAGE
        if type(statement) in translation.TABLE:
            done = translation.translate(statement, in_msdb=self.in_msdb)
            source = printing.print_statement(statement)
            return Step(statement.position, source, done.sql, done.notes)
        administered = translate_administration(statement)
        return Step(
            statement.position,
            administration.print_statement(statement),
            administered.sql,
            administered.notes,
            statement=statement,
            at_home=administered.at_home,
        )

    # What the methods of the table use.

    def step(
        self,
        statement: Statement,
        sql: str | None,
        act: Callable[[Execution], None],
        notes: Sequence[str] = (),
        **given: Any,
    ) -> Step:
        """Make the step of a statement that stands alone."""
        return Step(
            statement.position,
            print_statement(statement),
            sql,
            tuple(notes),
            statement=statement,
            act=act,
            **given,
        )

    def variable(self, name: str, position: Position) -> Type:
        """Return the type of a variable that is given a value."""
        try:
            return self.scope.variable(name).type
        except Unfaithful as reason:
            raise ScriptError(position, str(reason)) from None

    def value(self, code: tree.Code, target: Type | None = None) -> Expression:
        """Translate an expression."""
        return expression(code, self.scope, target)

    def name(self, name: tree.Exact) -> str:
        """Translate the name of a service, contract or message type."""
        if isinstance(name, tree.Code):
            return self.value(name, types.TEXT).sql
        return _percent(literal(name))

    def queue(self, name: Name, position: Position) -> str:
        """Translate the name of a queue."""
        if name.database is not None:
            raise ScriptError(position, f"a queue of another database: write USE [{name.database}] before")
        return _percent(literal(name.name.lower()))

    def declare(self, variable: tree.Variable, position: Position) -> Type:
        """Add a variable to those that are known."""
        key = variable.name.casefold()
        if key in self.scope.variables:
            raise ScriptError(position, f"{variable.name} is declared twice: leave one")
        type_ = self.type(variable.type, position)
        self.scope.declare(variable.name, type_, f"%({key})s::{type_.sql}")
        return type_

    def as_table(self, variable: tree.Variable | tree.TableVariable) -> tree.Variable | tree.TableVariable:
        """Return a variable of a table type as a table variable."""
        return as_table(variable, self.scope)

    def type(self, kind: tree.Type, position: Position) -> Type:
        """Translate a type."""
        arguments = f"({', '.join(kind.arguments)})" if kind.arguments else ""
        name = ".".join(one for one in (kind.name.schema, kind.name.name) if one)
        if kind.name.name.lower() == "xml":
            arguments = ""
        try:
            return self.scope.type(f"{name}{arguments}")
        except Unfaithful as reason:
            raise ScriptError(position, str(reason)) from None


def _percent(sql: str) -> str:
    return sql.replace("%", "%%")


def _plain_number(code: tree.Code) -> int | None:
    return int(code.text) if _NUMBER.fullmatch(code.text) else None


# Conversations.


def _begin_dialog(at: Preparer, one: tree.BeginDialog) -> Step:
    type_ = at.variable(one.handle, one.position)
    if type_.family is not types.UUID.family:
        raise ScriptError(one.position, f"{one.handle} is no uniqueidentifier")
    given = [at.name(one.from_service), at.value(one.to_service, types.TEXT).sql]
    if one.contract is not None:
        given.append(f"contract => {at.name(one.contract)}")
    if one.broker_instance is not None:
        given.append(f"broker_instance => {at.value(one.broker_instance, types.TEXT).sql}")
    for name in ("related_conversation", "related_conversation_group"):
        code = getattr(one, name)
        if code is not None:
            given.append(f"{name} => {at.value(code, types.UUID).sql}")
    if one.lifetime is not None:
        given.append(f"lifetime => {_seconds(at, one.lifetime)}")
    if one.encryption is not None:
        given.append(f"encryption => {str(one.encryption).lower()}")
    sql = f"select broker.begin_dialog({', '.join(given)})"

    def act(execution: Execution) -> None:
        execution.values[one.handle.casefold()] = execution.query(sql).rows[0][0]

    return at.step(one, sql, act)


def _seconds(at: Preparer, code: tree.Code) -> str:
    number = _plain_number(code)
    if number is not None:
        return f"'{number} s'"
    return f"make_interval(secs => {at.value(code, types.INTEGER).sql})"


def _send(at: Preparer, one: tree.Send) -> Step:
    handles = [at.value(code, types.UUID).sql for code in one.handles]
    function = "send" if len(handles) == 1 else "send_all"
    given = [handles[0] if function == "send" else f"array[{', '.join(handles)}]"]
    if one.message_type is not None or one.body is not None:
        given.append("'DEFAULT'" if one.message_type is None else at.name(one.message_type))
    notes: tuple[str, ...] = ()
    if one.body is not None:
        sent = body(one.body, at.scope)
        family = sent.type.family
        cast = {types.BINARY.family: "bytea", types.XML.family: "xml"}.get(family, "text")
        given.append(f"cast({sent.sql} as {cast})")
        notes = sent.notes
    sql = f"select broker.{function}({', '.join(given)})"
    return at.step(one, sql, lambda execution: _did(execution, sql), notes)


def _did(execution: Execution, sql: str) -> None:
    execution.query(sql)


def _receive(at: Preparer, one: tree.Receive, timeout: str | None = None) -> Step:
    given = [at.queue(one.queue, one.position)]
    if one.top is not None:
        given.append(f"top => {at.value(one.top, types.INTEGER).sql}")
    checked = None
    for name in ("conversation_handle", "conversation_group_id"):
        code = getattr(one, name)
        if code is not None:
            checked = at.value(code, types.UUID).sql
            given.append(f"{name} => {checked}")
    if timeout is not None:
        given.append(f"timeout => {timeout}")
    source = f"broker.receive({', '.join(given)}) m"
    if one.into is not None:
        return _received_into(at, one, source, checked)
    variables = [column.variable for column in one.columns if column.variable is not None]
    if variables and len(variables) < len(one.columns):
        raise ScriptError(
            one.position, "RECEIVE assigns variables or returns columns, not both: give each a variable"
        )
    items: list[str] = []
    names: list[str | None] = []
    notes: list[str] = []
    for column in one.columns:
        if column.value.text == "*":
            items.append("m.*")
            names.append("*")
            continue
        target = None if column.variable is None else at.variable(column.variable, column.value.position)
        value = expression(column.value, at.scope, target, ("m.", MESSAGE))
        items.append(value.sql)
        names.append(_heading(column))
        notes += value.notes
    sql = f"select {', '.join(items)} from {source}"

    def act(execution: Execution) -> None:
        _check_condition(execution, checked)
        found = execution.query(sql)
        execution.rowcount = len(found.rows)
        if not variables:
            execution.session.show_rows(_headings(names, found.names or ()), found.rows)
            return
        if found.rows:
            execution.values.update(zip((name.casefold() for name in variables), found.rows[-1], strict=True))
        execution.session.show_count(execution.rowcount)

    return at.step(one, sql, act, notes)


def _check_condition(execution: Execution, sql: str | None) -> None:
    if sql is not None and execution.value(sql) is None:
        raise StatementError("The conversation handle is missing. Specify a conversation handle.", 8418)


def _received_into(at: Preparer, one: tree.Receive, source: str, checked: str | None) -> Step:
    try:
        table = at.scope.table_variable(one.into or "")
    except Unfaithful as reason:
        raise ScriptError(one.position, str(reason)) from None
    wanted = list((table.columns or {}).values())
    columns: list[tree.Code] = []
    for column in one.columns:
        if column.variable is not None:
            raise ScriptError(column.value.position, "RECEIVE … INTO has no variables: leave one of them")
        starred = column.value.text == "*"
        columns += [tree.Code(name, column.value.position) for name in MESSAGE] if starred else [column.value]
    if len(columns) != len(wanted):
        raise ScriptError(
            one.position,
            f"{one.into} has {len(wanted)} columns, and RECEIVE has {len(columns)}: make them equal",
        )
    items = [
        expression(code, at.scope, type_, ("m.", MESSAGE)).sql
        for code, type_ in zip(columns, wanted, strict=True)
    ]
    sql = f"insert into {table.sql} select {', '.join(items)} from {source}"

    def act(execution: Execution) -> None:
        _check_condition(execution, checked)
        execution.rowcount = execution.query(sql).count
        execution.session.show_count(execution.rowcount)

    return at.step(one, sql, act)


def _heading(column: tree.Column) -> str | None:
    if column.name is not None:
        return column.name
    found = _COLUMN.fullmatch(column.value.text)
    return found and (found["bracketed"] or found["plain"])


def _headings(written: Sequence[str | None], names: Sequence[str]) -> Sequence[str]:
    if "*" in written or len(written) != len(names):
        return names
    return [name or "" for name in written]


def _get(at: Preparer, one: tree.GetConversationGroup, timeout: str | None = None) -> Step:
    at.variable(one.variable, one.position)
    given = at.queue(one.queue, one.position) + ("" if timeout is None else f", timeout => {timeout}")
    sql = f"select broker.get_conversation_group({given})"

    def act(execution: Execution) -> None:
        execution.values[one.variable.casefold()] = execution.query(sql).rows[0][0]

    return at.step(one, sql, act)


def _waitfor(at: Preparer, one: tree.WaitFor) -> Step:
    timeout = "null"
    if one.timeout is not None:
        number = _plain_number(one.timeout)
        if number is not None:
            timeout = f"'{number} ms'" if number >= 0 else "null"
        else:
            value = at.value(one.timeout, types.INTEGER).sql
            timeout = f"case when {value} >= 0 then make_interval(secs => {value} / 1000.0) end"
    if isinstance(one.statement, tree.Receive):
        return _receive(at, one.statement, timeout)
    return _get(at, one.statement, timeout)


def _move(at: Preparer, one: tree.MoveConversation) -> Step:
    handle, group = (at.value(code, types.UUID).sql for code in (one.handle, one.group))
    sql = f"select broker.move_conversation({handle}, {group})"
    return at.step(one, sql, lambda execution: _did(execution, sql))


def _end(at: Preparer, one: tree.EndConversation) -> Step:
    given = [at.value(one.handle, types.UUID).sql]
    if one.error is not None and one.description is not None:
        given.append(f"error_code => {at.value(one.error, types.INTEGER).sql}")
        given.append(f"error_description => {at.value(one.description, types.TEXT).sql}")
    if one.cleanup:
        given.append("cleanup => true")
    sql = f"select broker.end_conversation({', '.join(given)})"
    return at.step(one, sql, lambda execution: _did(execution, sql))


def _timer(at: Preparer, one: tree.BeginTimer) -> Step:
    handle = at.value(one.handle, types.UUID).sql
    sql = f"select broker.begin_conversation_timer({handle}, {_seconds(at, one.timeout)})"
    return at.step(one, sql, lambda execution: _did(execution, sql))


# Variables.


def _declare(at: Preparer, one: tree.Declare) -> Step:
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


def _assign(at: Preparer, one: tree.Assign) -> Step:
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


def _select_variables(at: Preparer, one: tree.SelectVariables) -> Step:
    for assigned in one.assignments:
        at.variable(assigned.variable, assigned.position)
    if one.source is None and one.top is None and one.with_ is None:
        steps = [_assign(at, assigned) for assigned in one.assignments]

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


# Control flow.


def _block(at: Preparer, one: tree.Block) -> Step:
    inner = tuple(at.all(one.statements))
    return Step(one.position, "BEGIN", None, act=lambda execution: execution.run(inner), inner=inner)


def _if(at: Preparer, one: tree.If) -> Step:
    question = _question(at, one)
    asked = None if question is not None else condition(one.condition, at.scope)
    then = (at.one(one.then),)
    otherwise = () if one.otherwise is None else (at.one(one.otherwise),)

    def act(execution: Execution) -> None:
        if question is not None:
            holds = execution.session.answer(question)
        else:
            holds = execution.answer(asked.sql if asked else "false")
        execution.choose(answer=holds, then=then, otherwise=otherwise)

    if question is None and asked is not None and not asked.reads:
        question = conditions.Condition(f"select {asked.sql.replace('%%', '%')}")
    notes = asked.notes if asked else ()
    return Step(one.position, "IF", None, notes, act=act, inner=then, otherwise=otherwise, question=question)


def _question(at: Preparer, one: tree.If) -> conditions.Condition | None:
    """Return what the catalog is asked, where its names match as SQL Server's do."""
    begin = offset_of(at.batch, one.position)
    try:
        found, end = conditions.read(at.batch, begin)
    except ScriptError:
        return None
    whole = offset_of(at.batch, one.condition.position) + len(one.condition.text)
    return found if end == whole else None


def _left(at: Preparer, one: Left) -> Step:
    inner = tuple(at.all(one.statements))

    def act(execution: Execution) -> None:
        try:
            execution.run(inner)
        except GoTo as jump:
            if jump.label != one.label:
                raise

    return Step(one.position, "BEGIN", None, act=act, inner=inner)


def _repeated(at: Preparer, one: Repeated) -> Step:
    inner = tuple(at.all(one.statements))

    def act(execution: Execution) -> None:
        while True:
            try:
                execution.run(inner)
            except GoTo as jump:
                if jump.label != one.label:
                    raise
            else:
                return

    return Step(one.position, "BEGIN", None, act=act, inner=inner)


def _goto(at: Preparer, one: tree.Goto | Again) -> Step:
    def act(_: Execution) -> None:
        raise GoTo(one.label.casefold())

    return at.step(tree.Goto(position=one.position, label=one.label), None, act)


def _while(at: Preparer, one: tree.While) -> Step:
    asked = condition(one.condition, at.scope)
    at.loops += 1
    inner = (at.one(one.body),)
    at.loops -= 1
    return Step(
        one.position,
        "WHILE",
        None,
        asked.notes,
        act=lambda execution: execution.loop(asked.sql, inner),
        inner=inner,
    )


def _raising(at: Preparer, one: Statement, signal: type[Exception]) -> Step:
    if signal is not ReturnFromBatch and not at.loops:
        raise ScriptError(one.position, f"{print_statement(one)[:-1]} stands in no WHILE")

    def act(_: Execution) -> None:
        raise signal

    return at.step(one, None, act)


def _return(at: Preparer, one: tree.Return) -> Step:
    if one.value is not None:
        raise ScriptError(one.position, "RETURN with a value belongs to procedures: write RETURN")
    return _raising(at, one, ReturnFromBatch)


def _try(at: Preparer, one: tree.TryCatch) -> Step:
    tried, handler = tuple(at.all(one.body)), tuple(at.all(one.handler))
    return Step(
        one.position,
        "BEGIN TRY",
        None,
        act=lambda execution: execution.attempt(tried, handler),
        inner=tried,
        otherwise=handler,
    )


def _throw(at: Preparer, one: tree.Throw) -> Step:
    if not one.arguments:
        return at.step(one, None, lambda execution: execution.throw())
    if len(one.arguments) != 3:  # noqa: PLR2004 - number, message, state
        raise ScriptError(one.position, "THROW has a number, a message and a state, or nothing")
    number, message, state = one.arguments
    kinds = (types.INTEGER, types.TEXT, types.INTEGER)
    sql = ", ".join(
        at.value(code, kind).sql for code, kind in zip((number, message, state), kinds, strict=True)
    )

    def act(execution: Execution) -> None:
        found = execution.query(f"select {sql}", writes=False).rows[0]
        raise StatementError(found[1] or "", found[0], state=found[2] or 0)

    return at.step(one, f"select {sql}", act)


def _raise_error(at: Preparer, one: tree.RaiseError) -> Step:
    if len(one.arguments) < 3:  # noqa: PLR2004 - message, severity, state
        raise ScriptError(one.position, "RAISERROR has a message, a severity and a state")
    message, severity, state, *quoted = one.arguments
    if _plain_number(message) is not None:
        raise ScriptError(message.position, "numbers of sys.messages are not known here: write the message")
    items = [
        at.value(message, types.TEXT).sql,
        at.value(severity, types.INTEGER).sql,
        at.value(state, types.INTEGER).sql,
        *(at.value(code).sql for code in quoted),
    ]
    notes = tuple(
        f"{option} has no meaning here" for option in one.options if option not in ("NOWAIT", "SETERROR")
    )
    sql = f"select {', '.join(items)}"

    def act(execution: Execution) -> None:
        text, level, state, *given = execution.query(sql, writes=False).rows[0]
        execution.raise_error(_formatted(text or "", given), int(level or 0), int(state or 0))

    return at.step(one, sql, act, notes)


def _formatted(message: str, given: Sequence[Any]) -> str:
    waiting = iter(given)

    def one(found: re.Match[str]) -> str:
        if found.group() == "%%":
            return "%"
        value = next(waiting, None)
        kind = "s" if value is None or found["kind"] == "s" else found["kind"].replace("u", "d")
        written = "(null)" if value is None else value
        try:
            return f"%{found['flags']}{found['width']}{kind}" % written
        except (TypeError, ValueError):
            return str(written)

    return _FORMAT.sub(one, message)


def _print(at: Preparer, one: tree.Print) -> Step:
    value = at.value(one.value, types.TEXT)

    def act(execution: Execution) -> None:
        execution.session.show_text(execution.value(value.sql) or "")

    return at.step(one, f"select {value.sql}", act, value.notes)


def _delay(at: Preparer, one: tree.Delay) -> Step:
    value = at.value(one.value)
    return at.step(
        one,
        f"select {value.sql}",
        lambda execution: execution.delay(one.kind, execution.value(value.sql)),
        value.notes,
    )


_WITHOUT_MEANING = frozenset({"DATEFIRST", "DATEFORMAT", "LANGUAGE", "NOEXEC", "PARSEONLY", "FMTONLY"})


def _set_option(at: Preparer, one: tree.SetOption) -> Step:
    if one.option == "XACT_ABORT":
        return at.step(one, None, partial(_set_abort, value=one.value.upper() == "ON"))
    if one.option == "TRANSACTION" and ISOLATION.fullmatch(one.value):
        return at.step(
            one, None, _nothing, ("READ COMMITTED is what there is: no reader waits for a writer",)
        )
    if one.option == "LOCK_TIMEOUT" and _NUMBER.fullmatch(one.value.replace(" ", "")):
        milliseconds = max(int(one.value.replace(" ", "")), 0)
        return Step(one.position, print_statement(one), f"set lock_timeout = {milliseconds}")
    if one.option in ("IMPLICIT_TRANSACTIONS", "ROWCOUNT") and one.value.upper() in ("OFF", "0"):
        return at.step(one, None, _nothing, (f"SET {one.option} {one.value} is as it is here",))
    if one.option in _WITHOUT_MEANING:
        return at.step(one, None, _nothing, (f"SET {one.option} has no meaning here",))
    raise ScriptError(one.position, f"SET {one.option} {one.value} has no form here: leave it out")


def _set_abort(execution: Execution, *, value: bool) -> None:
    execution.session.aborts_on_error = value


def _nothing(_: Execution) -> None:
    pass


# Transactions.


def _transaction(at: Preparer, one: tree.Transaction) -> Step:
    name = one.name
    is_variable = name is not None and name.startswith("@")
    if is_variable and name is not None:
        at.variable(name, one.position)

    def act(execution: Execution) -> None:
        session = execution.session
        given = execution.values.get(name.casefold()) if is_variable and name else name
        match one.verb:
            case "BEGIN":
                session.begin()
            case "COMMIT":
                session.commit_one()
            case "SAVE":
                session.save(str(given))
            case _:
                session.rollback(None if given is None else str(given))
                # A rollback takes tables away that were made in the transaction.
                session.make_tables(execution.table_variables)

    return at.step(one, _TRANSACTION[one.verb], act)


_TRANSACTION = {"BEGIN": "begin", "COMMIT": "commit", "ROLLBACK": "rollback", "SAVE": "savepoint"}


# Calls.


def _execute(at: Preparer, one: tree.Execute) -> Step:
    return call(at, one)


def _execute_text(at: Preparer, one: tree.ExecuteText) -> Step:
    value = at.value(one.text, types.TEXT)
    return at.step(
        one, f"select {value.sql}", lambda execution: _ran_text(at, execution, execution.value(value.sql))
    )


def _ran_text(at: Preparer, execution: Execution, text: str | None) -> None:
    nested = execution.nested({})
    run_text(at, nested, text)
    execution.took(nested)


def run_text(at: Preparer, execution: Execution, text: str | None, within: Preparer | None = None) -> None:
    """Run a text as a batch of its own; its variables are those of `within`."""
    from pybroker.tsql.language import read  # noqa: PLC0415 - read the text as a batch
    from pybroker.tsql.source import batches  # noqa: PLC0415

    for batch in batches(text or ""):
        inner = within or Preparer(batch, at.known, in_msdb=at.in_msdb)
        inner.batch = batch
        try:
            steps = inner.all(structured(read(batch)))
        except ScriptError as error:
            place = f"{error.position.line}:{error.position.column}"
            raise StatementError(f"in the text of EXEC, {place}: {error}", 102) from None
        try:
            execution.run(steps)
        except ReturnFromBatch:
            return


# Queries.


def _query(at: Preparer, one: tree.Query) -> Step:
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
    headings = [name for name, _ in done.columns]
    changes = one.verb != "SELECT" or done.creates is not None

    def act(execution: Execution) -> None:
        found = execution.query(done.sql, writes=changes)
        execution.rowcount = found.count
        if done.inserts is not None and found.count and at.known.reads_identity:
            identity = f"select {types.identity_of('%(table)s', '%(identity)s::numeric')}"
            given = {"table": done.inserts.replace("%%", "%"), "identity": execution.session.identity}
            execution.session.identity = execution.session.query(identity, given).rows[0][0]
        if found.names is None:
            if one.verb != "TRUNCATE":
                execution.session.show_count(found.count)
            return
        execution.session.show_rows(_headings(headings, found.names), found.rows)

    return at.step(one, done.sql, act, done.notes)


def _look(at: Preparer, one: tree.Query) -> Step | None:
    """Read a plain query of a catalog view or queue, whose names match as SQL Server's do."""
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


def _insert_execute(at: Preparer, one: tree.InsertExecute) -> Step:
    table, columns = insert_target(one.target, at.scope)
    inner = at.one(one.execute)
    values = ", ".join(f"%(c{number})s" for number in range(len(columns)))
    sql = f"insert into {table} ({_percent(', '.join(columns))}) values ({values})"

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


# Cursors.


def _declare_cursor(at: Preparer, one: tree.DeclareCursor) -> Step:
    name = one.name.casefold()
    at.cursors.add(name)
    done = None if one.query is None else query(one.query, at.scope)

    def act(execution: Execution) -> None:
        if done is not None:
            execution.session.cursors[name] = OpenCursor(done.sql)

    return at.step(one, None if done is None else done.sql, act, done.notes if done else ())


def _cursor(at: Preparer, one: tree.Cursor) -> Step:
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


def _fetch(at: Preparer, one: tree.Fetch) -> Step:
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


# Modules and tables.


def _module(at: Preparer, one: Statement) -> Step:
    done = modules.translate(one, at.known)
    return Step(one.position, print_statement(one), done.sql, done.notes)


def _table(at: Preparer, one: tree.CreateTable) -> Step:
    notes: list[str] = []
    made = definition(one.definition, at.known.scope(), notes)
    if one.filegroup is not None:
        notes.append(f"ON [{one.filegroup}] has no meaning here: there are no filegroups")
    name = one.name
    if name.database is not None and not name.name.startswith("#"):
        raise ScriptError(one.position, f"a table of another database: write USE [{name.database}] before")
    if name.name.startswith("#"):
        known = at.scope.declare_table(name.name, made.columns)
        sql = f"create temporary table {known.sql.removeprefix('pg_temp.')} (\n  {made.sql}\n);"
    else:
        schema = name.schema or "dbo"
        at.known.tables[schema.casefold(), name.name.casefold()] = made.columns
        sql = (
            f"create schema if not exists {folded(schema)};\n"
            f"create table {relation(name.schema, name.name)} (\n  {made.sql}\n);"
        )
    return Step(one.position, print_statement(one), sql, tuple(notes))


def _user_type(at: Preparer, one: tree.CreateType) -> Step:
    if one.definition is not None:
        notes: list[str] = []
        definition(one.definition, at.known.scope(), notes)
        at.known.table_types[one.name.name.casefold()] = one.definition
        notes.append(
            "the type is known to the scripts that are read together: its variables are temporary tables"
        )
        return Step(one.position, print_statement(one), None, tuple(notes))
    if one.base is None:
        raise ScriptError(one.position, "a type needs FROM or AS TABLE")
    at.known.aliases[one.name.name.casefold()] = at.type(one.base, one.position)
    note = "the type is known to the scripts that are read together: PostgreSQL gets its base"
    return Step(one.position, print_statement(one), None, (note,))


def _definition(at: Preparer, one: tree.Definition) -> Step:
    notes: list[str] = []
    scope = at.known.scope()
    done = alteration(one.code, scope, notes)
    if done.table is not None and done.columns is not None:
        schema, name = done.table
        if name.startswith("#"):
            at.scope.declare_table(name, done.columns)
        else:
            at.known.tables[(schema or "dbo").casefold(), name.casefold()] = done.columns
    return Step(one.position, print_statement(one), done.sql or None, tuple(notes))


def _drop(at: Preparer, one: tree.DropThings) -> Step:
    if one.kind == "TYPE":
        return Step(one.position, print_statement(one), None, ("a type leaves nothing behind here",))
    if one.kind == "TRIGGER":
        return _module(at, one)
    exists = "if exists " if one.if_exists else ""
    names = [
        f"pg_temp.{identifier(name.name.lstrip('#'))}"
        if name.name.startswith("#")
        else relation(name.schema, name.name)
        for name in one.names
    ]
    sql = "\n".join(f"drop {one.kind.lower()} {exists}{name};" for name in names)
    return Step(one.position, print_statement(one), sql)


TABLE: dict[type[Statement], Callable[[Preparer, Any], Step]] = {
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
    tree.Break: partial(_raising, signal=BreakLoop),
    tree.Continue: partial(_raising, signal=ContinueLoop),
    tree.Return: _return,
    tree.TryCatch: _try,
    tree.Goto: _goto,
    Left: _left,
    Repeated: _repeated,
    Again: _goto,
    tree.Throw: _throw,
    tree.RaiseError: _raise_error,
    tree.Print: _print,
    tree.Delay: _delay,
    tree.SetOption: _set_option,
    tree.Transaction: _transaction,
    tree.Execute: _execute,
    tree.ExecuteText: _execute_text,
    tree.Query: _query,
    tree.InsertExecute: _insert_execute,
    tree.DeclareCursor: _declare_cursor,
    tree.Cursor: _cursor,
    tree.Fetch: _fetch,
    tree.CreateProcedure: _module,
    tree.CreateFunction: _module,
    tree.CreateTrigger: _module,
    tree.CreateView: _module,
    tree.CreateTable: _table,
    tree.CreateType: _user_type,
    tree.Definition: _definition,
    tree.DropThings: _drop,
}
