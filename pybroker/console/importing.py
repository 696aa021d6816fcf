"""Definitions as SQL, as the console exports them, read back: calls with constants, and nothing else."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import psycopg

from pybroker.definitions.objects import Definition, Grant
from pybroker.definitions.planning import ORDER
from pybroker.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Iterator

LONGEST = 200_000
_TOKEN = re.compile(
    r"(?:\s+|--[^\n]*(?:\n|$))"
    r"|(?P<escaped>[Ee]'(?:[^'\\]|''|\\.)*')"
    r"|(?P<text>'(?:[^']|'')*')"
    r"|(?P<number>-?\d{1,18})"
    r'|(?P<word>[A-Za-z_]\w*|"\w+")'
    r"|(?P<sign>=>|::|\[\]|[.,();])",
    re.DOTALL,
)
_CONSTANTS: dict[str, Any] = {"true": True, "false": False, "null": None}
_KINDS: dict[str, type[Definition | Grant]] = {
    **{f"create_{kind.kind}": kind for kind in ORDER},
    "grant": Grant,
}


class ImportRefusedError(BrokerError):
    """The SQL is not one that an export writes; nothing of it was run."""


def definitions_of(connection: psycopg.Connection[Any], text: str) -> list[Definition | Grant]:
    """Return what the SQL defines. Nothing of it is run: only arrays and intervals are read by the server.

    Raises:
        ImportRefusedError: it has more than calls of `broker.create_…` and `broker.grant` with constants.
    """
    return [_definition(connection, name, given) for name, given in _calls(text)]


def _calls(text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    tokens = _Tokens(text)
    while not tokens.is_at_end():
        if tokens.takes("begin", "commit"):
            tokens.need(";")
            continue
        tokens.need("select")
        tokens.need("broker")
        tokens.need(".")
        name = tokens.name()
        tokens.need("(")
        given: dict[str, Any] = {}
        while not tokens.takes(")"):
            if given:
                tokens.need(",")
            argument = tokens.name()
            tokens.need("=>")
            given[argument] = tokens.constant()
        if not tokens.is_at_end():
            tokens.need(";")
        yield name, given


class _Tokens:
    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0
        self._kind, self._token = "", ""
        self._next()

    def is_at_end(self) -> bool:
        return not self._kind

    def takes(self, *wanted: str) -> bool:
        """Pass by one of these words or signs, if it comes next."""
        if self._kind in ("word", "sign") and self._token.lower() in wanted:
            self._next()
            return True
        return False

    def need(self, wanted: str) -> None:
        if not self.takes(wanted):
            raise self._refused()

    def name(self) -> str:
        found = self._token.strip('"')
        if self._kind != "word":
            raise self._refused()
        self._next()
        return found

    def constant(self) -> Any:
        kind, token = self._kind, self._token
        if kind == "text":
            value: Any = token[1:-1].replace("''", "'")
        elif kind == "escaped":
            value = re.sub(r"''|\\(['\\])", lambda found: found[1] or "'", token[2:-1])
            if re.search(r"(?<!\\)(?:\\\\)*\\[^'\\]", token):
                raise self._refused()
        elif kind == "number":
            value = int(token)
        elif kind == "word" and token.lower() in _CONSTANTS:
            value = _CONSTANTS[token.lower()]
        else:
            raise self._refused()
        self._next()
        # A type that is named is the one that the argument has.
        if self.takes("::"):
            self.name()
            self.takes("[]")
        return value

    def _next(self) -> None:
        self._kind = self._token = ""
        while self._at < len(self._text):
            found = _TOKEN.match(self._text, self._at)
            if found is None:
                raise self._refused()
            self._at = found.end()
            if found.lastgroup is not None:
                self._kind, self._token = found.lastgroup, found.group()
                return

    def _refused(self) -> ImportRefusedError:
        line = self._text.count("\n", 0, self._at) + 1
        near = (self._token or self._text[self._at : self._at + 20]).strip()[:100]
        return ImportRefusedError(
            f'Line {line}, near "{near}": only calls of broker.create_… and broker.grant with named arguments'
            " and constants are imported, as an export has them."
        )


def _definition(
    connection: psycopg.Connection[Any], function: str, given: dict[str, Any]
) -> Definition | Grant:
    kind = _KINDS.get(function)
    if kind is None:
        raise ImportRefusedError(f"broker.{function} defines nothing that an export has.")
    types = {each.name: str(each.type) for each in fields(kind)}
    try:
        return kind(**{name: _value(connection, types[name], value) for name, value in given.items()})
    except KeyError as error:
        raise ImportRefusedError(f"broker.{function} has no argument {error.args[0]}.") from None
    except (TypeError, psycopg.DataError) as error:
        raise ImportRefusedError(f"broker.{function}: {error}") from None


def _value(connection: psycopg.Connection[Any], wanted: str, value: Any) -> Any:
    if value is None:
        return None
    for mark, cast in (("Names", "text[]"), ("timedelta", "interval")):
        if mark in wanted:
            row = connection.execute(f"select %s::{cast}".encode(), (value,)).fetchone()
            return row[0] if row else None
    if ("bool" in wanted) != isinstance(value, bool) or ("int" in wanted) != (type(value) is int):
        raise TypeError(f"{value!r} is of another type than {wanted}")
    return value
