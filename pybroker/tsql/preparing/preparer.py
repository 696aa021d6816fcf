"""Prepares the statements of a batch: what it knows of names and types, and what all kinds of them use."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pybroker.tsql import administration, printing, translation
from pybroker.tsql.administration.translation import translate as translate_administration
from pybroker.tsql.expressions import types
from pybroker.tsql.expressions.alterations import ENCLOSED, IDENTITY_STAYS
from pybroker.tsql.expressions.queue import MESSAGE
from pybroker.tsql.expressions.tables import as_table
from pybroker.tsql.expressions.translating import expression
from pybroker.tsql.expressions.types import Type, Unfaithful
from pybroker.tsql.language import tree
from pybroker.tsql.language.printing import print_statement
from pybroker.tsql.source import ScriptError
from pybroker.tsql.steps import Step
from pybroker.tsql.translation import literal
from pybroker.tsql.tree import Queue

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pybroker.tsql.execution import Execution
    from pybroker.tsql.expressions.translating import Expression
    from pybroker.tsql.known import Known
    from pybroker.tsql.source import Batch, Position
    from pybroker.tsql.tree import Name, Statement

    Table = Mapping[type[Statement], Callable[["Preparer", Any], Step]]

NUMBER = re.compile(r"-?\d{1,9}")
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


class Preparer:
    """Prepares the statements of one batch, in their order, each by what a table has for its class."""

    def __init__(self, batch: Batch, known: Known, table: Table, *, in_msdb: bool = False) -> None:
        self._table = table
        self.batch = batch
        self.known = known
        self.scope = known.scope(placeholders=True)
        self.in_msdb = in_msdb
        self.loops = 0
        self.cursors: set[str] = set()
        self.is_text = False
        known.reads_identity = known.reads_identity or "scope_identity" in batch.text.lower()
        for name, type_ in _SPECIAL.items():
            written = name if name.startswith("@@") else f"{name}()"
            self.scope.declare(written, type_, f"%({name})s::{type_.sql}")

    def another(self, batch: Batch) -> Preparer:
        """Return what prepares a text that this batch executes; it has variables of its own."""
        made = Preparer(batch, self.known, self._table, in_msdb=self.in_msdb)
        made.is_text, made.scope.identity_insert = True, None
        return made

    def all(self, statements: Sequence[Statement]) -> list[Step]:
        """Prepare statements one after the other."""
        return [self.one(statement) for statement in statements]

    def one(self, statement: Statement) -> Step:
        """Prepare a statement."""
        if isinstance(statement, administration.tree.Use):
            self.in_msdb = statement.database.lower() == "msdb"
            self.known.database = statement.database
        statement = self.known.with_principals(statement)
        method = self._table.get(type(statement))
        if method is not None:
            before = self.scope.identity_insert
            try:
                step = method(self, statement)
            except Unfaithful as reason:
                raise ScriptError(statement.position, str(reason)) from None
            if isinstance(statement, ENCLOSED) and self.scope.identity_insert != before:
                raise ScriptError(statement.position, IDENTITY_STAYS)
            return step
        if isinstance(statement, Queue) and statement.verb == "CREATE":
            name = statement.name
            self.known.tables[(name.schema or "dbo").casefold(), name.name.casefold()] = MESSAGE
        if type(statement) in translation.TABLE:
            translation.refuse_others(statement, self.known.is_here)
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
        return percent(literal(name))

    def queue(self, name: Name, position: Position) -> str:
        """Translate the name of a queue."""
        if not self.known.is_here(name.database):
            raise ScriptError(position, f"a queue of another database: write USE [{name.database}] before")
        return percent(literal(name.name.lower()))

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


def percent(sql: str) -> str:
    """Return SQL as a query with parameters has it."""
    return sql.replace("%", "%%")


def plain_number(code: tree.Code) -> int | None:
    """Return a number that is written as such; None for all else."""
    return int(code.text) if NUMBER.fullmatch(code.text) else None


def shown_headings(written: Sequence[str | None], names: Sequence[str]) -> Sequence[str]:
    """Return the headings of a result: as written, or as the database names them."""
    if "*" in written or len(written) != len(names):
        return names
    return [name or "" for name in written]
