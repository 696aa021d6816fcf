"""The definitions of tables: of CREATE TABLE, of table variables, and of OUTPUT's targets."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import Token, TokenType

from pybroker.tsql.expressions.names import folded, relation
from pybroker.tsql.expressions.printer import Printer, Source
from pybroker.tsql.expressions.reading import at_top, careful, closing, parse, text_of, tokens_of
from pybroker.tsql.expressions.types import (
    BIT,
    UNKNOWN,
    Family,
    Type,
    Unfaithful,
    convert,
    made,
    without_literal,
)
from pybroker.tsql.language import tree
from pybroker.tsql.source import ScriptError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pybroker.tsql.expressions.scope import Scope
    from pybroker.tsql.language.tree import Code

_CONSTRAINTS = frozenset(
    {"CONSTRAINT", "PRIMARY", "PRIMARY KEY", "UNIQUE", "CHECK", "FOREIGN", "FOREIGN KEY", "INDEX"}
)
# Of IDENTITY: where it begins, and its step.
_NUMBERS = re.compile(r"[-+]?[0-9]{1,18},[-+]?[0-9]{1,18}")
_KEYS = ("PRIMARY KEY", "UNIQUE", "FOREIGN KEY")
_ACTIONS = ("CASCADE", "SET NULL", "SET DEFAULT", "NO ACTION")


@dataclass(frozen=True, slots=True)
class Definition:
    """A table's columns in PostgreSQL's SQL, without parentheses, and their types by folded names."""

    sql: str
    columns: dict[str, Type]


@careful
def definition(code: Code, scope: Scope, notes: list[str]) -> Definition:
    """Print `(column type, …)`.

    Raises:
        ScriptError: there is no faithful form.
    """
    tokens = tokens_of(code)
    if not tokens or tokens[0].token_type is not TokenType.L_PAREN:
        raise ScriptError(code.position, "the columns of a table stand in parentheses")
    end = closing(tokens, 0)
    if end == len(tokens):
        raise ScriptError(code.position, "the parenthesis of a table's columns is not closed")
    if end < len(tokens) - 1:
        notes.append("what stands behind a table's columns has no meaning here")
    items = [part for item in between_commas(tokens[1:end]) for part in _divided(item)]
    if len(items) > 1 and not items[-1]:
        # SQL Server takes a comma behind the last column.
        items.pop()
    printed: list[str] = []
    columns: dict[str, Type] = {}
    rest: list[list[Token]] = []
    computed: list[tuple[int, list[Token]]] = []
    for item in items:
        if not item:
            raise ScriptError(code.position, "a column is missing between two commas")
        if is_constraint(item):
            rest.append(item)
            continue
        if is_computed(item):
            # It may read columns that stand behind it.
            computed.append((len(printed), item))
            columns[item[0].text.casefold()] = UNKNOWN
        printed.append("" if is_computed(item) else Item(code, scope, notes, item, columns).printed())
    for at, item in computed:
        printed[at] = Item(code, scope, notes, item, columns).computed()
    for item in rest:
        sql = Item(code, scope, notes, item, columns).constraint()
        if sql:
            printed.append(sql)
    return Definition(",\n  ".join(printed), columns)


def as_table(
    variable: tree.Variable | tree.TableVariable, scope: Scope
) -> tree.Variable | tree.TableVariable:
    """Return a variable of a table type as a table variable, and any other as it is."""
    if isinstance(variable, tree.TableVariable):
        return variable
    columns = scope.table_type(written(variable.type))
    return variable if columns is None else tree.TableVariable(name=variable.name, definition=columns)


def written(type_: tree.Type) -> str:
    """Return a type as it is written."""
    name = f"{type_.name.schema}.{type_.name.name}" if type_.name.schema else type_.name.name
    return f"{name}({', '.join(type_.arguments)})" if type_.arguments else name


def rows_of(table: str) -> str:
    """Print the rows of a table as JSON, as a parameter of a table type takes them."""
    return f"(select coalesce(json_agg(r), '[]') from {table} r)"


def between_commas(tokens: Sequence[Token]) -> list[list[Token]]:
    """Divide tokens at the commas that stand in no parentheses."""
    items: list[list[Token]] = [[]]
    tops = {index for index, one in at_top(tokens) if one.token_type is TokenType.COMMA}
    for index, one in enumerate(tokens):
        if index in tops:
            items.append([])
        else:
            items[-1].append(one)
    return items


def _divided(item: list[Token]) -> list[list[Token]]:
    """Divide a column and a constraint of the table that stands behind it without a comma."""
    if not item or is_constraint(item):
        return [item]
    words = [one.text.upper() for one in item]
    for at, _ in at_top(item):
        key = next((length for length in (1, 2) if " ".join(words[at : at + length]) in _KEYS), 0)
        behind = words[at + key : at + key + 2]
        if key and "(" in (behind[1:] if behind[:1] in (["CLUSTERED"], ["NONCLUSTERED"]) else behind[:1]):
            begin = at - 2 if "CONSTRAINT" in words[max(at - 2, 0) : at - 1] else at
            return [item[:begin], item[begin:]]
    return [item]


def is_computed(item: Sequence[Token]) -> bool:
    """Whether a column stands between two commas whose value is an expression."""
    return len(item) > 1 and item[1].token_type is TokenType.ALIAS


def is_constraint(item: Sequence[Token]) -> bool:
    """Whether a constraint stands between two commas, and no column."""
    return item[0].token_type is not TokenType.IDENTIFIER and item[0].text.upper() in _CONSTRAINTS


class Item:
    """Reads one item between commas, from left to right."""

    def __init__(
        self, code: Code, scope: Scope, notes: list[str], tokens: list[Token], columns: dict[str, Type]
    ) -> None:
        self._code, self._scope, self._notes = code, scope, notes
        self._tokens, self._at = tokens, 0
        self._columns = columns

    def printed(self) -> str:
        """Return a column."""
        return " ".join(self.parts())

    def parts(self) -> list[str]:
        """Return a column's name, its type, and each of its options."""
        name = self._next().text
        type_ = self._columns[name.casefold()] = self._type()
        parts = [folded(name), type_.sql]
        if type_.padded:
            parts[1] = f"char({type_.length})"
        if type_ is BIT:
            parts.append(f"check ({folded(name)} in (0, 1))")
        return parts + self._options(type_)

    def computed(self) -> str:
        """Return a computed column; it is kept in the row, and has the same value."""
        name = self._next().text
        self._next()
        begin = self._at
        words = [one.text.upper() for one in self._tokens]
        end = next((at for at, word in enumerate(words) if at > begin and word == "PERSISTED"), len(words))
        piece = text_of(self._code, self._tokens[begin:end])
        others = {known: type_ for known, type_ in self._columns.items() if known != name.casefold()}
        printer = Printer(piece, self._scope, sources=[{"": Source(others)}], notes=self._notes)
        value = printer.value(parse(piece))
        if value.type.family in (Family.UNKNOWN, Family.NULL):
            raise ScriptError(piece.position, "the type of a computed column is not known: CAST it")
        type_ = without_literal(value.type)
        self._columns[name.casefold()] = made(type_)
        self._at = min(end + 1, len(words))
        kept = f"{folded(name)} {type_.sql} generated always as ({value.sql}) stored"
        return " ".join([kept, *self._options(type_)])

    def _options(self, type_: Type) -> list[str]:
        parts: list[str] = []
        identity = False
        while self._at < len(self._tokens):
            if self._is("IDENTITY"):
                numbers = self._numbers()
                start, step = (*numbers, 1, 1)[:2]
                # PostgreSQL's own bounds are 1 upwards and -1 downwards.
                bound = f" minvalue {start}" if step > 0 > start - 1 else ""
                bound = f" maxvalue {start}" if step < 0 <= start else bound
                parts.append(f"generated always as identity (start with {start} increment by {step}{bound})")
                identity = True
            elif self._is("NOT", "NULL"):
                parts.append("not null")
            elif self._is("NULL") or self._is("ROWGUIDCOL") or self._is("SPARSE"):
                pass
            elif self._is("COLLATE"):
                self._notes.append(
                    f"COLLATE {self._next().text} has no meaning here: texts are compared exactly"
                )
            elif self._is("CONSTRAINT"):
                parts.append(f"constraint {folded(self._next().text)}")
            elif self._is("DEFAULT"):
                parts.append(f"default {self._value(type_)}")
            elif self._is("WITH", "VALUES"):
                pass
            elif self._is("INDEX"):
                self._index()
            else:
                parts.append(self._check())
        if identity:
            self._columns[self._tokens[0].text.casefold()] = made(type_)
        if identity and "not null" in parts:
            parts.remove("not null")
        return [one for one in parts if one]

    def constraint(self) -> str:
        """Return a constraint; empty where it has no meaning here."""
        prefix = f"constraint {folded(self._next().text)} " if self._is("CONSTRAINT") else ""
        if self._is("DEFAULT"):
            begin = self._at
            while self._at < len(self._tokens) and self._peek().upper() != "FOR":
                self._at += 1
            if not self._is("FOR"):
                raise self._refusal("DEFAULT of a table needs FOR and a column")
            name = self._next().text
            type_ = self._columns.get(name.casefold())
            if type_ is None:
                raise self._refusal(f"the type of {name} is not known: CREATE TABLE in the same scripts")
            self._at = begin
            return f"alter column {folded(name)} set default {self._value(type_)}"
        if self._is("INDEX"):
            self._index()
            return ""
        return prefix + self._check()

    def _index(self) -> None:
        self._notes.append("an index within CREATE TABLE is not made here: write CREATE INDEX")
        self._next()
        self._is("UNIQUE")
        self._key()

    def _check(self) -> str:
        if self._is("PRIMARY", "KEY"):
            return "primary key" + self._key()
        if self._is("UNIQUE"):
            # NULL is a value like others to UNIQUE of SQL Server.
            return "unique nulls not distinct" + self._key()
        if self._is("CHECK"):
            return f"check ({self._condition()})"
        if self._is("FOREIGN", "KEY"):
            names = self._names()
            if not self._is("REFERENCES"):
                raise self._refusal("REFERENCES is missing")
            return f"foreign key{names} {self._references()}"
        if self._is("REFERENCES"):
            return self._references()
        raise self._refusal(f"{self._peek()} has no form here: leave it out")

    def _key(self) -> str:
        """Read [NON]CLUSTERED, (columns), WITH (…), ON filegroup."""
        if self._is("CLUSTERED") or self._is("NONCLUSTERED"):
            pass
        names = self._names()
        if self._is("WITH"):
            self._at = closing(self._tokens, self._at) + 1
        if self._is("ON"):
            self._next()
        return names

    def _names(self) -> str:
        names: list[str] = []
        if self._peek() == "(":
            end = closing(self._tokens, self._at)
            names += [
                folded(one.text)
                for one in self._tokens[self._at + 1 : end]
                if one.token_type is not TokenType.COMMA and one.text.upper() not in ("ASC", "DESC")
            ]
            self._at = end + 1
        return f" ({', '.join(names)})" if names else ""

    def _references(self) -> str:
        words = [self._next().text]
        while self._peek() == ".":
            self._next()
            words.append(self._next().text)
        sql = f"references {relation(words[-2] if len(words) > 1 else None, words[-1])}{self._names()}"
        while self._is("ON"):
            event = self._next().text.lower()
            action = next((one for one in _ACTIONS if self._is(*one.split())), None)
            if event not in ("delete", "update") or action is None:
                raise self._refusal("ON DELETE or ON UPDATE with an action is expected")
            sql += f" on {event} {action.lower()}"
        return sql

    def _value(self, type_: Type) -> str:
        begin = self._at
        depth_end = begin + 1
        if self._peek() == "(":
            depth_end = closing(self._tokens, begin) + 1
        elif begin + 1 < len(self._tokens) and self._tokens[begin + 1].text == "(":
            depth_end = closing(self._tokens, begin + 1) + 1
        elif self._peek() in ("-", "+"):
            depth_end = begin + 2
        piece = text_of(self._code, self._tokens[begin:depth_end])
        self._at = depth_end
        tree = parse(piece)
        printer = Printer(piece, self._scope, notes=self._notes)
        value = printer.value(tree)
        try:
            sql = convert(value.sql, value.type, type_)
        except Unfaithful as reason:
            raise ScriptError(piece.position, str(reason)) from None
        return sql if sql.startswith("(") or sql.replace("'", "").isalnum() else f"({sql})"

    def _condition(self) -> str:
        end = closing(self._tokens, self._at)
        piece = text_of(self._code, self._tokens[self._at + 1 : end])
        self._at = end + 1
        printer = Printer(piece, self._scope, sources=[{"": Source(self._columns)}], notes=self._notes)
        return printer.condition(parse(piece))

    def _type(self) -> Type:
        begin = self._at
        self._at += 1
        while self._peek() == ".":
            self._at += 2
        if self._peek() == "(":
            self._at = closing(self._tokens, self._at) + 1
        piece = text_of(self._code, self._tokens[begin : self._at])
        try:
            return self._scope.type(piece.text)
        except Unfaithful as reason:
            raise ScriptError(piece.position, str(reason)) from None

    def _numbers(self) -> list[int]:
        if self._peek() != "(":
            return []
        end = closing(self._tokens, self._at)
        written = "".join(one.text for one in self._tokens[self._at + 1 : end])
        self._at = end + 1
        if not _NUMBERS.fullmatch(written):
            raise Unfaithful(f"({written}) behind IDENTITY: write two whole numbers, a start and a step")
        return [int(one) for one in written.split(",")]

    def _is(self, *words: str) -> bool:
        # sqlglot reads some pairs of words as one token.
        if self._peek().upper() == " ".join(words):
            self._at += 1
            return True
        found = [one.text.upper() for one in self._tokens[self._at : self._at + len(words)]]
        if found != list(words):
            return False
        self._at += len(words)
        return True

    def _peek(self) -> str:
        return str(self._tokens[self._at].text) if self._at < len(self._tokens) else ""

    def _next(self) -> Token:
        if self._at >= len(self._tokens):
            raise ScriptError(
                self._code.place(self._tokens[-1].end + 1), "the definition of a column ends here"
            )
        self._at += 1
        return self._tokens[self._at - 1]

    def _refusal(self, message: str) -> ScriptError:
        at = min(self._at, len(self._tokens) - 1)
        return ScriptError(self._code.place(self._tokens[at].start), message)
