"""What an expression may name: variables, table variables, and the columns of tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pybroker.tsql.expressions.names import fitting
from pybroker.tsql.expressions.types import Type, Unfaithful, read_type
from pybroker.tsql.translation import identifier, literal

if TYPE_CHECKING:
    from pybroker.tsql.language.tree import Code

Columns = Mapping[str, Type]

# What SQL Server's own names of a table lead to: its columns, or None where nobody knows.
Tables = Callable[[str | None, str], Columns | None]


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable, and how it is written in PostgreSQL's SQL."""

    sql: str
    type: Type


@dataclass(frozen=True, slots=True)
class TableVariable:
    """A table variable, or a temporary table."""

    sql: str
    columns: Columns | None


@dataclass(slots=True)
class Scope:
    """The names that are known at one place.

    Attributes:
        variables: by their folded names, with the @; `@@rowcount` and `error_number()` are among them.
        table_variables: likewise, with the @ or the #.
        tables: tells the columns of a table.
        aliases: types that CREATE TYPE made, by folded names.
        table_types: the columns of table types, as they are written, likewise.
        functions: what functions return, by folded names with their schemas.
        parameters: what their parameters are called and of which types, likewise.
        identity_insert: the table whose IDENTITY column INSERT gives values, as PostgreSQL writes it.
        module: the name of the module that is printed, as OBJECT_NAME(@@PROCID) is.
        is_here: whether a database that a name has, or None, is the one where the script is.
        placeholders: whether a percent sign is written twice, as psycopg wants it beside parameters.
    """

    variables: dict[str, Variable] = field(default_factory=dict)
    table_variables: dict[str, TableVariable] = field(default_factory=dict)
    tables: Tables = lambda _schema, _name: None
    aliases: dict[str, Type] = field(default_factory=dict)
    table_types: dict[str, Code] = field(default_factory=dict)
    functions: dict[str, Type] = field(default_factory=dict)
    parameters: dict[str, tuple[tuple[str, Type], ...]] = field(default_factory=dict)
    identity_insert: str | None = None
    module: str | None = None
    is_here: Callable[[str | None], bool] = lambda database: database is None
    placeholders: bool = False

    def literal(self, text: str) -> str:
        """Write a text."""
        return self.beside_placeholders(literal(text))

    def beside_placeholders(self, sql: str) -> str:
        """Write SQL without placeholders so that it may stand beside them."""
        return sql.replace("%", "%%") if self.placeholders else sql

    def declare(self, name: str, written: str | Type, sql: str | None = None) -> Variable:
        """Add a variable; its own name, quoted, is its name in PL/pgSQL."""
        type_ = self.type(written) if isinstance(written, str) else written
        one = Variable(sql or '"' + name.replace('"', '""') + '"', type_)
        self.variables[name.casefold()] = one
        return one

    def declare_table(self, name: str, columns: Columns, sql: str | None = None) -> TableVariable:
        """Add a table variable or a temporary table."""
        if sql is None and "%" in name:
            raise Unfaithful(f"a percent sign in the name {name}: name the temporary table without it")
        one = TableVariable(sql or f"pg_temp.{identifier(fitting(name.lstrip('@#')))}", columns)
        self.table_variables[name.casefold()] = one
        return one

    def variable(self, name: str) -> Variable:
        """Return the variable of a name, with its @.

        Raises:
            Unfaithful: there is none.
        """
        found = self.variables.get(name.casefold())
        if found is not None:
            return found
        if name.startswith("@@"):
            raise Unfaithful(f"{name} has no meaning here: leave it out")
        if name.casefold() == "scope_identity()":
            raise Unfaithful(
                "SCOPE_IDENTITY() is known in a procedure or batch alone: give it as a parameter"
            )
        if name.endswith("()"):
            raise Unfaithful(f"{name.upper()} is known within CATCH alone: give it as a parameter")
        raise Unfaithful(f"the variable {name} is not declared: DECLARE it")

    def table_variable(self, name: str) -> TableVariable:
        """Return the table variable or temporary table of a name.

        Raises:
            Unfaithful: there is none.
        """
        found = self.table_variables.get(name.casefold())
        if found is None:
            raise Unfaithful(f"the table {name} is not declared here: DECLARE or CREATE it above")
        return found

    def table_type(self, written: str) -> Code | None:
        """Return the columns of a table type, or None if it is another type."""
        return self.table_types.get(_folded(written))

    def type(self, written: str, *, cast: bool = False) -> Type:
        """Return a type by its name; those of CREATE TYPE are known."""
        return self.aliases.get(_folded(written)) or read_type(written, cast=cast)


def _folded(written: str) -> str:
    return written.replace("[", "").replace("]", "").strip().casefold().removeprefix("dbo.")
