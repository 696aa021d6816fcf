"""ALTER TABLE, CREATE INDEX and DROP INDEX; the target of INSERT … EXEC."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import TokenType

from pybroker.tsql.expressions import types
from pybroker.tsql.expressions.names import folded, relation
from pybroker.tsql.expressions.printer import Printer, Source
from pybroker.tsql.expressions.reading import careful, closing, parse, text_of, tokens_of
from pybroker.tsql.expressions.tables import Item, between_commas, is_computed, is_constraint
from pybroker.tsql.expressions.types import Type, Unfaithful
from pybroker.tsql.language import tree
from pybroker.tsql.language.tree import Code
from pybroker.tsql.source import ScriptError

if TYPE_CHECKING:
    from sqlglot import Token

    from pybroker.tsql.expressions.scope import Columns, Scope


@dataclass(frozen=True, slots=True)
class Altered:
    """A change of a table.

    Attributes:
        sql: its statements, each with a semicolon; empty where it has no meaning here.
        table: the schema and the name of the table; None where nothing of it is known.
        columns: of the table behind the change, by folded names; None where nothing of it is known.
    """

    sql: str
    table: tuple[str | None, str] | None = None
    columns: dict[str, Type] | None = None


@careful
def alteration(code: Code, scope: Scope, notes: list[str]) -> Altered:
    """Print ALTER TABLE, CREATE INDEX or DROP INDEX.

    Raises:
        ScriptError: there is no faithful form.
    """
    reader = _Reader(code, scope, notes, tokens_of(code))
    if reader.skip("ALTER", "TABLE"):
        return reader.alter_table()
    if reader.skip("DROP", "INDEX"):
        return reader.drop_index()
    return reader.create_index()


@careful
def insert_target(code: Code, scope: Scope) -> tuple[str, list[str], list[Type]]:
    """Print the table and the columns of INSERT … EXEC; return their types, too.

    Raises:
        ScriptError: its columns are not known.
    """
    return _Reader(code, scope, [], tokens_of(code)).insert_target()


# SET IDENTITY_INSERT is followed from one statement to the next, and not into branches.
ENCLOSED = (tree.If, tree.While, tree.TryCatch)
IDENTITY_STAYS = "SET IDENTITY_INSERT is left as it was not before: write its ON and OFF beside each other"


def identity_insert(one: tree.SetOption, scope: Scope) -> str | None:
    """Return the table that may get values for its IDENTITY column behind SET IDENTITY_INSERT; None for OFF.

    Raises:
        Unfaithful: the table is not known, or another one is ON.
    """
    name, _, switch = one.value.rpartition(" ")
    code = Code(name, one.position)
    table, columns = _Reader(code, scope, [], tokens_of(code)).only_table()
    if switch.upper() != "ON":
        return None if scope.identity_insert == table else scope.identity_insert
    if columns is None:
        raise Unfaithful(f"the columns of {table} are not known: let its CREATE TABLE stand in these scripts")
    if scope.identity_insert not in (None, table):
        raise Unfaithful(f"IDENTITY_INSERT is ON for {scope.identity_insert}: write OFF for it before")
    return table


class _Reader:
    """Reads a statement from left to right."""

    def __init__(self, code: Code, scope: Scope, notes: list[str], tokens: list[Token]) -> None:
        self._code, self._scope, self._notes, self._tokens = code, scope, notes, tokens
        self._at = 0

    # Words.

    def _peek(self) -> str:
        return str(self._tokens[self._at].text).upper() if self._at < len(self._tokens) else ""

    def skip(self, *words: str) -> bool:
        """Go behind these words, if they stand here."""
        if self._peek() == " ".join(words):
            self._at += 1
            return True
        found = [one.text.upper() for one in self._tokens[self._at : self._at + len(words)]]
        if found != list(words):
            return False
        self._at += len(words)
        return True

    def _refusal(self, message: str) -> ScriptError:
        at = min(self._at, len(self._tokens) - 1)
        return ScriptError(self._code.place(self._tokens[at].start), message)

    def _name(self) -> str:
        if self._at >= len(self._tokens):
            raise self._refusal("the statement ends here: a name is missing")
        self._at += 1
        if self._tokens[self._at - 1].token_type is TokenType.HASH:
            return "#" + self._name()
        return str(self._tokens[self._at - 1].text)

    def _parts(self) -> list[str]:
        parts = [self._name()]
        while self.skip("."):
            parts.append(self._name())
        if len(parts) > 2:  # noqa: PLR2004 - schema and name
            raise self._refusal("a table of another database: write USE before")
        return parts

    def _table(self) -> tuple[str, tuple[str | None, str], Columns | None]:
        """Read a table; return how it is written, its schema and name, and its columns."""
        *schema, name = self._parts()
        if name.startswith("#"):
            try:
                known = self._scope.table_variable(name)
            except Unfaithful as reason:
                raise self._refusal(str(reason)) from None
            return known.sql, (None, name), known.columns
        key = (schema[0] if schema else None, name)
        return relation(*key), key, self._scope.tables(*key)

    def _inside(self) -> list[Token]:
        if self._peek() != "(":
            raise self._refusal("( is missing here")
        begin, end = self._at + 1, closing(self._tokens, self._at)
        self._at = end + 1
        return self._tokens[begin:end]

    def _ended(self) -> None:
        if self._at < len(self._tokens):
            raise self._refusal(f"{self._tokens[self._at].text} has no form here: leave it out")

    def only_table(self) -> tuple[str, Columns | None]:
        """Read a table alone."""
        table, _, columns = self._table()
        self._ended()
        return table, columns

    def insert_target(self) -> tuple[str, list[str], list[Type]]:
        """Read what stands between INSERT and EXEC."""
        self.skip("INTO")
        if self._peek() == "@":
            self._at += 1
            name = f"@{self._name()}"
            try:
                known = self._scope.table_variable(name)
            except Unfaithful as reason:
                raise self._refusal(str(reason)) from None
            table, columns = known.sql, known.columns
        else:
            table, _, columns = self._table()
        if self._peek() == "(":
            listed = [str(one.text) for item in between_commas(self._inside()) for one in item]
        elif columns is None:
            raise self._refusal("the columns of the table are not known: list them")
        else:
            listed = [name for name, type_ in columns.items() if not type_.is_made]
        self._ended()
        known_types = [(columns or {}).get(name.casefold(), types.UNKNOWN) for name in listed]
        return table, [folded(name) for name in listed], known_types

    # ALTER TABLE.

    def alter_table(self) -> Altered:
        """Read what follows ALTER TABLE."""
        table, key, known = self._table()
        columns = dict(known or {})
        unchecked = self.skip("WITH", "NOCHECK")
        self.skip("WITH", "CHECK")
        if self.skip("ADD"):
            changes = self._added(columns, unchecked=unchecked)
        elif self.skip("DROP"):
            changes = self._dropped(columns)
        elif self.skip("ALTER", "COLUMN"):
            changes = [self._retyped(columns)]
        elif self.skip("CHECK", "CONSTRAINT"):
            self._notes.append("CHECK CONSTRAINT has no meaning here: constraints are always checked")
            return Altered("")
        elif self.skip("SET"):
            self._inside()
            self._ended()
            self._notes.append("ALTER TABLE … SET has no meaning here")
            return Altered("")
        else:
            raise self._refusal(
                f"ALTER TABLE … {self._peek()} has no form here: write ADD, DROP or ALTER COLUMN"
            )
        changes = [one for one in changes if one]
        if not changes:
            return Altered("")
        return Altered(f"alter table {table} {', '.join(changes)};", key, None if known is None else columns)

    def _added(self, columns: dict[str, Type], *, unchecked: bool) -> list[str]:
        items = between_commas(self._tokens[self._at :])
        if not all(items):
            raise self._refusal("a column is missing here")
        changes: list[str] = []
        later: list[str] = []
        for tokens in items:
            if is_computed(tokens):
                raise self._refusal("a computed column is added in CREATE TABLE here")
            if tokens[0].text.upper() == "DEFAULT" or is_constraint(tokens):
                constraint = Item(self._code, self._scope, self._notes, tokens, columns).constraint()
                # A default has a name in SQL Server alone.
                constraint = re.sub(r"\Aconstraint .*?(?=alter column .* set default )", "", constraint)
                is_checked = re.match(r"(?:constraint \S+ )?(?:check|foreign key)\b", constraint)
                changes.append(constraint)
                if constraint and not constraint.startswith("alter column"):
                    changes[-1] = f"add {constraint}{' not valid' if unchecked and is_checked else ''}"
                continue
            words = [one.text.upper() for one in tokens]
            parts = Item(self._code, self._scope, self._notes, tokens, columns).parts()
            default = next((one for one in parts if one.startswith("default ")), None)
            if default is not None and "not null" not in parts and words[-2:] != ["WITH", "VALUES"]:
                # Rows that are there get NULL, and those to come the default.
                later.append(f"alter column {parts[0]} set {default}")
                at = parts.index(default)
                del parts[at - (parts[at - 1].startswith("constraint ")) : at + 1]
            changes.append(f"add column {' '.join(parts)}")
        return changes + later

    def _dropped(self, columns: dict[str, Type]) -> list[str]:
        changes: list[str] = []
        kind = "constraint"
        while True:
            if self.skip("COLUMN"):
                kind = "column"
            elif self.skip("CONSTRAINT"):
                kind = "constraint"
            exists = "if exists " if self.skip("IF", "EXISTS") else ""
            name = self._name()
            if kind == "column":
                columns.pop(name.casefold(), None)
            changes.append(f"drop {kind} {exists}{folded(name)}")
            if not self.skip(","):
                self._ended()
                return changes

    def _retyped(self, columns: dict[str, Type]) -> str:
        tokens = self._tokens[self._at :]
        if not tokens:
            raise self._refusal("a column is missing here")
        before = columns.get(tokens[0].text.casefold())
        parts = Item(self._code, self._scope, self._notes, tokens, columns).parts()
        name, type_, *options = parts
        now = columns[tokens[0].text.casefold()]
        if set(options) - {"not null"}:
            raise self._refusal(
                "ALTER COLUMN has a type, and NULL or NOT NULL: write the rest as ADD CONSTRAINT"
            )
        if before is None or before.family is not now.family:
            raise self._refusal(f"the values of {name} would change their kind: add a column, and UPDATE it")
        null = "set" if "not null" in options else "drop"
        return f"alter column {name} type {type_}, alter column {name} {null} not null"

    # Indexes.

    def create_index(self) -> Altered:
        """Read CREATE INDEX."""
        self.skip("CREATE")
        unique = "unique " if self.skip("UNIQUE") else ""
        if not any(self.skip(*words.split()) for words in ("INDEX", "CLUSTERED INDEX", "NONCLUSTERED INDEX")):
            raise self._refusal(f"CREATE {self._peek()} INDEX has no form here: leave it out")
        name = self._name()
        if not self.skip("ON"):
            raise self._refusal("ON and a table are expected here")
        table, _, columns = self._table()
        sql = f"create {unique}index {folded(name)} on {table} ({self._keys()})"
        if self.skip("INCLUDE"):
            sql += f" include ({self._keys()})"
        if unique:
            # NULL is a value like others to UNIQUE of SQL Server.
            sql += " nulls not distinct"
        if self.skip("WHERE"):
            sql += f" where {self._where(columns)}"
        if self.skip("WITH"):
            self._inside()
            self._notes.append("what stands behind WITH has no meaning here")
        if self.skip("ON"):
            self._notes.append(f"ON [{self._name()}] has no meaning here: there are no filegroups")
        self._ended()
        return Altered(f"{sql};")

    def _keys(self) -> str:
        keys = []
        for item in between_commas(self._inside()):
            direction = item[-1].text.upper() if len(item) > 1 else ""
            if len(item) - (direction in ("ASC", "DESC")) != 1:
                raise self._refusal("an index has columns alone: compute the value in a column")
            keys.append(folded(item[0].text) + (" desc" if direction == "DESC" else ""))
        return ", ".join(keys)

    def _where(self, columns: Columns | None) -> str:
        begin = self._at
        while self._at < len(self._tokens) and self._peek() not in ("WITH", "ON"):
            self._at = closing(self._tokens, self._at) + 1 if self._peek() == "(" else self._at + 1
        piece = text_of(self._code, self._tokens[begin : self._at])
        printer = Printer(piece, self._scope, sources=[{"": Source(columns)}], notes=self._notes)
        return printer.condition(parse(piece))

    def drop_index(self) -> Altered:
        """Read what follows DROP INDEX."""
        exists = "if exists " if self.skip("IF", "EXISTS") else ""
        names = []
        while True:
            parts = self._parts()
            schema = None
            if self.skip("ON"):
                *schemas, table = self._parts()
                schema = schemas[0] if schemas else None
                is_temporary = table.startswith("#")
            elif len(parts) > 1:
                is_temporary = parts[0].startswith("#")
            else:
                raise self._refusal("ON and a table are expected here")
            name = folded(parts[-1])
            names.append(f"pg_temp.{name}" if is_temporary else relation(schema, parts[-1]))
            if not self.skip(","):
                self._ended()
                return Altered(f"drop index {exists}{', '.join(names)};")
