"""The methods of XML by PostgreSQL's functions; they need a server with libxml."""

from __future__ import annotations

import re
from typing import Any

from sqlglot import exp

from pybroker.tsql.expressions import types
from pybroker.tsql.expressions.names import exact
from pybroker.tsql.expressions.namespaces import PREFIX, with_default
from pybroker.tsql.expressions.printer import Printer, Value
from pybroker.tsql.expressions.types import Family, Type, Unfaithful, cast, convert

_PROLOG = re.compile(
    r'\s*declare\s+(?:namespace\s+(?P<prefix>[\w.-]+)\s*=|default\s+element\s+namespace)\s*(?P<quote>["\'])(?P<uri>[^"\']*)(?P=quote)\s*;'
)
# What XQuery has and XPath 1.0 has not, and what would reach out of the path.
_NOT_XPATH = re.compile(r"\b(?:for|let|return|declare|if|some|every|sql:\w+|data|cast\s+as|xs:\w+)\b|[{}]|:=")


def _path(printer: Printer, node: exp.Expr) -> tuple[str, dict[str, str]]:
    if not isinstance(node, exp.Literal | exp.National):
        raise Unfaithful("the path of an XML method stands in quotes")
    text, spaces = str(node.this), dict(printer.namespaces)
    while found := _PROLOG.match(text):
        spaces[found["prefix"] or ""] = found["uri"]
        text = text[found.end() :]
    text = text.strip()
    if _NOT_XPATH.search(text) or not text:
        raise Unfaithful("paths are XPath 1.0 here: write one without XQuery's own words")
    if "" in spaces:
        spaces[PREFIX] = spaces.pop("")
        text = with_default(text)
    return text, spaces


def method(printer: Printer, target: exp.Expr, node: Any) -> Value:
    """Print .value, .query and .exist."""
    if isinstance(target, exp.Dot) and isinstance(target.this, exp.Identifier):
        target = exp.Column(this=target.expression, table=target.this)
    value = printer.value(exp.Column(this=target) if isinstance(target, exp.Identifier) else target)
    if value.type.family is not Family.XML:
        raise Unfaithful(f"{node.name} is a method of XML: CAST it")
    name = node.name.lower()
    if name in ("modify", "nodes"):
        raise Unfaithful(f".{name} has no form here" + (": it stands behind FROM" if name == "nodes" else ""))
    if len(node.expressions) != (2 if name == "value" else 1):
        raise Unfaithful(f".{name} has other arguments")
    path, spaces = _path(printer, node.expressions[0])
    literal = printer.scope.literal
    if name == "value":
        # A query's XML may be a text without an element, as of FOR XML PATH('').
        is_query = isinstance(target, exp.Subquery | exp.Paren)
        is_piece = path == "." or (is_query and not path.startswith(("/", "(/")))
        return _value(printer, value.sql, path, spaces, node.expressions[1], is_piece=is_piece)
    arguments = f"{literal(path)}, {value.sql}{_namespace_array(printer, spaces)}"
    if name == "exist":
        return Value(cast(f"xpath_exists({arguments})", "integer"), types.BIT)
    return Value(cast(f"array_to_string(xpath({arguments}), '')", "xml"), types.XML)


def _value(
    printer: Printer, value: str, path: str, spaces: dict[str, str], written: exp.Expr, *, is_piece: bool
) -> Value:
    target = printer.scope.type(str(written.this), cast=True)
    # A path that is relative is of a node, whose row is the element itself.
    row = "/" if path.startswith(("/", "(/")) else "/*"
    literal = printer.scope.literal
    names = ", ".join(f"{literal(uri)} as {exact(prefix)}" for prefix, uri in spaces.items())
    declared = f"xmlnamespaces({names}), " if names else ""
    table = f"xmltable({declared}{literal(row)} passing ({value}) columns v text path {literal(path)}) v"
    if is_piece:
        whole = table.replace(f"passing ({value})", "passing (xmlelement(name piece, p.p))")
        table = f"(select {value} as p) p, {whole} where p.p is not null"
    read = f"(select v.v from {table})"
    return Value(
        convert(read, types.TEXT, target) if target.family is not Family.TEXT else _text(read, target), target
    )


def _text(read: str, target: Type) -> str:
    return read if target.length is None else cast(read, target)


def nodes(printer: Printer, value: Value, node: Any) -> str:
    """Print .nodes() behind FROM: a row for each node."""
    if value.type.family is not Family.XML:
        raise Unfaithful("nodes is a method of XML: CAST it")
    path, spaces = _path(printer, node.expressions[0])
    return f"unnest(xpath({printer.scope.literal(path)}, {value.sql}{_namespace_array(printer, spaces)}))"


def _namespace_array(printer: Printer, spaces: dict[str, str]) -> str:
    if not spaces:
        return ""
    literal = printer.scope.literal
    pairs = ", ".join(f"[{literal(prefix)}, {literal(uri)}]" for prefix, uri in spaces.items())
    return f", array[{pairs}]"
