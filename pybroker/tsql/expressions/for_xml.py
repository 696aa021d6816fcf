"""FOR XML in PostgreSQL's functions: an element for each row, which holds what the names of columns say."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from pybroker.tsql.expressions import types
from pybroker.tsql.expressions.names import exact
from pybroker.tsql.expressions.printer import Value
from pybroker.tsql.expressions.types import Family, Type, Unfaithful, cast
from pybroker.tsql.translation import literal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

# What has no name of its own within its element.
_INLINE = ("", "*", "node()", "text()")
_NIL = "http://www.w3.org/2001/XMLSchema-instance"


@dataclass(slots=True)
class _Options:
    mode: str = ""
    element: str = "row"
    root: str | None = None
    elements: bool = False
    typed: bool = False
    # NULL is an element that says so.
    has_nil: bool = False


@dataclass(frozen=True, slots=True)
class _Column:
    path: tuple[str, ...]
    sql: str

    @property
    def first(self) -> str:
        return self.path[0] if self.path else ""

    @property
    def is_leaf(self) -> bool:
        return len(self.path) == 1 and self.first not in _INLINE and not self.first.startswith("@")

    @property
    def inner(self) -> _Column:
        return _Column(self.path[1:], self.sql)


def for_xml(
    select: str,
    columns: Sequence[tuple[str | None, Type]],
    options: Any,
    tables: Sequence[str],
    spaces: Mapping[str, str],
) -> Value:
    """Print FOR XML around a query whose columns are named c1, c2 and so on.

    Args:
        select: the query.
        columns: its headings and their types.
        options: what stands behind FOR XML.
        tables: the names of the tables that it reads.
        spaces: the namespaces of WITH XMLNAMESPACES, by their prefixes.
    """
    one = _read(options, tables)
    escaped = [_as_xml(f"x.c{number}", type_) for number, (_, type_) in enumerate(columns, 1)]
    named = [(name, sql) for (name, _), sql in zip(columns, escaped, strict=True)]
    result = types.XML if one.typed else types.TEXT
    if one.mode == "PATH" and one.element == "" and len(named) == 1 and named[0][0] in (None, "text()"):
        text = "x.c1"
        if columns[0][1].family in (Family.INTEGER, Family.DECIMAL, Family.BIT):
            text = cast(text, "text")
        elif columns[0][1].family is not Family.XML:
            for character, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
                text = f"replace({text}, '{character}', '{entity}')"
        row = f"string_agg({text if text != 'x.c1' else cast(text, 'text')}, '')"
        return Value(f"select {cast(row, 'xml') if one.typed else row} from ({select}) x", result)
    declared = [(f"xmlns:{prefix}" if prefix else "xmlns", literal(uri)) for prefix, uri in spaces.items()]
    if one.has_nil:
        declared.append(("xmlns:xsi", literal(_NIL)))
    declared.reverse()
    row = _row(one, named, [] if one.root is not None else declared)
    whole = f"xmlagg({row})"
    if one.root is not None:
        # A query without rows has no root either.
        whole = f"case when count(*) > 0 then {_element(one.root, declared, [whole])} end"
    return Value(f"select {whole if one.typed else cast(whole, 'text')} from ({select}) x", result)


def _as_xml(column: str, type_: Type) -> str:
    return f"upper(cast({column} as text))" if type_.family is Family.UUID else column


def _row(one: _Options, named: list[tuple[str | None, str]], declared: list[tuple[str, str]]) -> str:
    if one.mode == "PATH":
        columns = [_Column(tuple((name or "").split("/")), sql) for name, sql in named]
        if one.element == "":
            if declared or any(not column.is_leaf and len(column.path) == 1 for column in columns):
                raise Unfaithful("FOR XML PATH('') has no row for attributes, namespaces and texts")
            parts = _content(columns, one)
            return parts[0] if len(parts) == 1 else f"xmlconcat({', '.join(parts)})"
        return _path(one.element, columns, one, declared)
    for name, _ in named:
        if name is None:
            raise Unfaithful("a column of FOR XML without a name: give it one by AS")
        if name.startswith("@") or "/" in name:
            raise Unfaithful(f"{name} is a name for PATH: FOR XML {one.mode} would escape it")
    leaves = [_Column((name or "",), sql) for name, sql in named]
    if one.elements:
        return _element(one.element, declared, _content(leaves, one))
    return _element(one.element, [*declared, *((name or "", sql) for name, sql in named)], [])


def _path(name: str, columns: Sequence[_Column], one: _Options, declared: Sequence[tuple[str, str]]) -> str:
    """Print an element whose columns are paths from it on."""
    attributes = [column for column in columns if column.first.startswith("@")]
    rest = [column for column in columns if not column.first.startswith("@")]
    if list(columns[: len(attributes)]) != attributes:
        raise Unfaithful(f"an attribute of {name} stands behind its content: write it before")
    pairs = [(column.first[1:], column.sql) for column in attributes]
    return _element(name, [*declared, *pairs], _content(rest, one))


def _content(columns: Sequence[_Column], one: _Options) -> list[str]:
    """Print what an element holds; neighbours that begin with the same name are one element."""
    parts: list[str] = []
    seen = ""
    for (name, is_deep, is_plain), grouped in groupby(_joined(columns), key=_kind):
        group = list(grouped)
        if "(" in group[0].first and group[0].first not in _INLINE:
            raise Unfaithful(f"{group[0].first} of FOR XML has no form here")
        if is_deep:
            if name == seen:
                raise Unfaithful(f"{name} is both a column and holds columns: nest a query with TYPE")
            inner = _path(name, [column.inner for column in group], one, [])
            nothing = " and ".join(f"{column.sql} is null" for column in group)
            parts.append(inner if one.has_nil else f"case when not ({nothing}) then {inner} end")
        elif not is_plain:
            parts += [column.sql for column in group]
        elif one.has_nil:
            parts += [_nil(column) for column in group]
        else:
            forest = ", ".join(f"{column.sql} as {exact(column.first)}" for column in group)
            parts.append(f"xmlforest({forest})")
        seen = group[-1].first
    return parts


def _joined(columns: Sequence[_Column]) -> Iterator[_Column]:
    """Yield columns; one that is named as the element before it, is the text of that element."""
    before: _Column | None = None
    for column in columns:
        joins = before is not None and len(before.path) > 1 and column.path == before.path[:1]
        before = _Column((*column.path, ""), column.sql) if joins else column
        yield before


def _kind(column: _Column) -> tuple[str, bool, bool]:
    is_deep = len(column.path) > 1
    return column.first if is_deep else "", is_deep, column.is_leaf


def _nil(column: _Column) -> str:
    name = exact(column.first)
    nil = f"""xmlelement(name {name}, xmlattributes('true' as "xsi:nil"))"""
    return f"coalesce(xmlforest({column.sql} as {name}), {nil})"


def _element(name: str, attributes: Sequence[tuple[str, str]], content: Sequence[str]) -> str:
    parts = [f"name {exact(name)}"]
    if attributes:
        parts.append(f"xmlattributes({', '.join(f'{sql} as {exact(each)}' for each, sql in attributes)})")
    return f"xmlelement({', '.join([*parts, *content])})"


def _read(node: Any, tables: Sequence[str]) -> _Options:
    one = _Options()
    for option in node.expressions:
        each = option.this
        is_pair = isinstance(each, exp.XMLKeyValueOption)
        name = (each.this.name if is_pair else each.name).upper()
        argument = each.expression.name if is_pair and each.expression else None
        match name:
            case "PATH" | "RAW" | "AUTO":
                one.mode, one.elements = name, one.elements or name == "PATH"
                one.element = argument if argument is not None else tables[0] if name == "AUTO" else "row"
            case "ROOT":
                one.root = argument or "root"
            case "ELEMENTS":
                one.elements = True
                one.has_nil = (argument or "").upper() == "XSINIL"
            case "ELEMENTS XSINIL":
                one.elements = one.has_nil = True
            case "TYPE":
                one.typed = True
            case _:
                raise Unfaithful(f"{name} of FOR XML has no form here: write PATH, RAW or AUTO")
    if not one.mode:
        raise Unfaithful("FOR XML needs PATH, RAW or AUTO here")
    if one.mode == "AUTO" and len(tables) != 1:
        raise Unfaithful("FOR XML AUTO nests the rows of several tables: write PATH")
    return one
