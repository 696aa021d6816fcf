"""What the scripts that are read together have made so far: tables, types, functions, procedures."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from pybroker.tsql.administration.tree import CreatePrincipal, DropPrincipal
from pybroker.tsql.expressions.scope import Scope
from pybroker.tsql.translation import DEFAULT_SCHEMA, OWNERS

if TYPE_CHECKING:
    from pybroker.tsql.expressions.scope import Columns, TableVariable
    from pybroker.tsql.expressions.types import Type
    from pybroker.tsql.found_tables import FoundTables
    from pybroker.tsql.language.tree import Code
    from pybroker.tsql.tree import Statement

_OF_PRINCIPALS = {"owner", "user", "role", "member", "principals"}
_ALWAYS_THERE = {*OWNERS, "guest", "public"}


@dataclass(slots=True)
class Known:
    """Names are folded; a schema that is not written is dbo.

    Attributes:
        tables: their columns.
        temporary: temporary tables, with their `#`.
        aliases: types that CREATE TYPE made.
        table_types: the columns of types that CREATE TYPE … AS TABLE made, as they are written.
        functions: what they return.
        parameters: what the parameters of functions are called and of which types.
        principals: as they were made, by their folded names.
        procedures: what CREATE PROCEDURE said, for those that call them.
        promised: names of procedures that the script makes, as PostgreSQL writes them, also further down.
        identity_insert: the table of SET IDENTITY_INSERT … ON, as PostgreSQL writes it.
        reads_identity: whether a batch asks for SCOPE_IDENTITY().
        found: the tables and principals that databases have; None where no database is named.
        database: where the script is.
    """

    tables: dict[tuple[str, str], Columns] = field(default_factory=dict)
    temporary: dict[str, TableVariable] = field(default_factory=dict)
    aliases: dict[str, Type] = field(default_factory=dict)
    table_types: dict[str, Code] = field(default_factory=dict)
    functions: dict[str, Type] = field(default_factory=dict)
    parameters: dict[str, tuple[tuple[str, Type], ...]] = field(default_factory=dict)
    principals: dict[str, str] = field(default_factory=dict)
    procedures: dict[str, Any] = field(default_factory=dict)
    promised: set[str] = field(default_factory=set)
    identity_insert: str | None = None
    reads_identity: bool = False
    found: FoundTables | None = None
    database: str = ""

    def with_principals(self, statement: Statement) -> Statement:
        """Return a statement that names principals as they were made; they match in any case."""
        if isinstance(statement, CreatePrincipal):
            name = self._principal(statement.name)
            self.principals.setdefault(statement.name.casefold(), name)
            return replace(statement, name=name)
        names = {*_OF_PRINCIPALS, "name"} if isinstance(statement, DropPrincipal) else _OF_PRINCIPALS
        changed: dict[str, Any] = {}
        for one in fields(statement):
            value = getattr(statement, one.name) if one.name in names else None
            if isinstance(value, str):
                changed[one.name] = self._principal(value)
            elif isinstance(value, tuple):
                changed[one.name] = tuple(map(self._principal, value))
        return replace(statement, **changed) if changed else statement

    def _principal(self, name: str) -> str:
        key = name.casefold()
        if key in self.principals or self.found is None or key in _ALWAYS_THERE:
            return self.principals.get(key, name)
        return self.found.principal(self.database, name)

    def columns(self, schema: str | None, name: str) -> Columns | None:
        """Return a table's columns; None where no script made it and no database has it."""
        key = ((schema or DEFAULT_SCHEMA).casefold(), name.casefold())
        if key in self.tables or self.found is None:
            return self.tables.get(key)
        return self.found.columns(self.database, *key)

    def is_here(self, database: str | None) -> bool:
        """Whether a database is the one where the script is; a name without one is of that."""
        return database is None or database.casefold() == self.database.casefold()

    def scope(self, *, placeholders: bool = False) -> Scope:
        """Return the names that a batch begins with; temporary tables that it makes stay known."""
        return Scope(
            table_variables=self.temporary,
            tables=self.columns,
            aliases=self.aliases,
            table_types=self.table_types,
            functions=self.functions,
            parameters=self.parameters,
            identity_insert=self.identity_insert,
            is_here=self.is_here,
            placeholders=placeholders,
        )
