"""WITH XMLNAMESPACES: taken out of the tokens, as sqlglot does not read it, and written into paths."""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING

from sqlglot import TokenType

from pybroker.tsql.expressions.reading import closing, token
from pybroker.tsql.source import ScriptError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlglot import Token

    from pybroker.tsql.language.tree import Code

NO_NAMESPACES: Mapping[str, str] = MappingProxyType({})
_TEXTS = (TokenType.STRING, TokenType.NATIONAL_STRING)
# XPath 1.0 has no default namespace: its names get this prefix, which no XML of a script has.
PREFIX = "default-namespace"
_PATH = re.compile(
    r"""(?P<text>"[^"]*"|'[^']*')|(?P<number>\d[\d.]*)
    |(?P<name>(?:@\s*|[\w.-]+\s*::\s*|\$)?[A-Za-z_][\w.-]*(?::[\w.*-]+)?)(?P<call>\s*\()?|(?P<sign>::|[^\s])""",
    re.VERBOSE,
)
_OPERATORS = frozenset({"and", "or", "div", "mod"})
# Behind these stands a name, and no operator.
_BEFORE_NAMES = frozenset("/([,=<>+-*|!")


def without_namespaces(code: Code, tokens: Sequence[Token]) -> tuple[Mapping[str, str], list[Token]]:
    """Return the namespaces of WITH XMLNAMESPACES by their prefixes, and the tokens without them.

    Raises:
        ScriptError: at what is no namespace.
    """
    words = [str(one.text).upper() for one in tokens[:3]]
    if words != ["WITH", "XMLNAMESPACES", "("]:
        return NO_NAMESPACES, list(tokens)
    end = closing(tokens, 2)
    found: dict[str, str] = {}
    inner = list(tokens[3:end])
    while inner:
        before = len(found)
        if str(inner[0].text).upper() == "DEFAULT" and len(inner) > 1 and inner[1].token_type in _TEXTS:
            found[""] = str(inner[1].text)
            inner = inner[2:]
        elif len(inner) > 2 and inner[0].token_type in _TEXTS and str(inner[1].text).upper() == "AS":  # noqa: PLR2004
            found[str(inner[2].text)] = str(inner[0].text)
            inner = inner[3:]
        if len(found) == before or (inner and inner[0].token_type is not TokenType.COMMA):
            raise ScriptError(
                code.place(tokens[2].start), "XMLNAMESPACES has DEFAULT 'uri', or 'uri' AS prefix, once"
            )
        inner = inner[1:]
    rest = list(tokens[end + 1 :])
    if rest and rest[0].token_type is TokenType.COMMA:
        rest[0] = token(TokenType.WITH, "WITH", tokens[0])
    return found, rest


def with_default(path: str) -> str:
    """Write a prefix before the names of elements that have none."""
    parts: list[str] = []
    at, before = 0, "/"
    for found in _PATH.finditer(path):
        parts.append(path[at : found.start()])
        at = found.end()
        written = found.group()
        name = found["name"]
        is_element = name is not None and found["call"] is None and not re.match(r"@|\$|.*:", name)
        if is_element and name in _OPERATORS and before not in _BEFORE_NAMES:
            is_element = False
        parts.append(f"{PREFIX}:{written}" if is_element else written)
        before = written if name is None or is_element or name not in _OPERATORS else "("
        before = "(" if found["call"] else before
    return "".join([*parts, path[at:]])
