"""What the scripts that are read together have made so far: tables, types, functions, procedures."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pybroker.tsql.expressions.scope import Scope
from pybroker.tsql.translation import DEFAULT_SCHEMA

if TYPE_CHECKING:
    from pybroker.tsql.expressions.scope import Columns, TableVariable
    from pybroker.tsql.expressions.types import Type
    from pybroker.tsql.language.tree import Code


@dataclass(slots=True)
class Known:
    """Names are folded; a schema that is not written is dbo.

    Attributes:
        tables: their columns.
        temporary: temporary tables, with their `#`.
        aliases: types that CREATE TYPE made.
        table_types: the columns of types that CREATE TYPE … AS TABLE made, as they are written.
        functions: what they return.
        procedures: what CREATE PROCEDURE said, for those that call them.
        reads_identity: whether a batch asks for SCOPE_IDENTITY().
    """

    tables: dict[tuple[str, str], Columns] = field(default_factory=dict)
    temporary: dict[str, TableVariable] = field(default_factory=dict)
    aliases: dict[str, Type] = field(default_factory=dict)
    table_types: dict[str, Code] = field(default_factory=dict)
    functions: dict[str, Type] = field(default_factory=dict)
    procedures: dict[str, Any] = field(default_factory=dict)
    reads_identity: bool = False

    def columns(self, schema: str | None, name: str) -> Columns | None:
        """Return a table's columns; None where no script made it."""
        return self.tables.get(((schema or DEFAULT_SCHEMA).casefold(), name.casefold()))

    def scope(self, *, placeholders: bool = False) -> Scope:
        """Return the names that a batch begins with; temporary tables that it makes stay known."""
        return Scope(
            table_variables=self.temporary,
            tables=self.columns,
            aliases=self.aliases,
            table_types=self.table_types,
            functions=self.functions,
            placeholders=placeholders,
        )
