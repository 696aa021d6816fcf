"""Code to sqlglot's tree; clauses that sqlglot does not read are taken out of the tokens before."""

from __future__ import annotations

from functools import cache, wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import sqlglot
from sqlglot import Token, TokenType, exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import SqlglotError, TokenError

from pybroker.tsql.language.tree import Code
from pybroker.tsql.source import Position, ScriptError, end_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

P = ParamSpec("P")
R = TypeVar("R")

# A parser that is surprised by a text may fail with any of these; that is a refusal, never a crash.
_SURPRISES = (
    SqlglotError,
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    NotImplementedError,
    RecursionError,
    TypeError,
    ValueError,
)
_OPENING, _CLOSING = TokenType.L_PAREN, TokenType.R_PAREN
# sqlglot takes SYSDATETIME for GETDATE, which has fewer digits.
SYSDATETIME = "SYSDATETIME_EXACTLY"
XML_METHODS = ("value", "query", "exist", "nodes", "modify")
# What the names of functions with a schema have while sqlglot reads them: dbo.Rows is none of its own.
_OWN = "\N{WORD JOINER}"
_MOST_TOKENS = 100_000
# The same as Python's own limit allows sqlglot.
_MOST_DEPTH = 60


def careful(way: Callable[P, R]) -> Callable[P, R]:
    """Make a refusal of what a tree that nobody thought of leads to."""

    @wraps(way)
    def carefully(*arguments: P.args, **named: P.kwargs) -> R:
        try:
            return way(*arguments, **named)
        except _SURPRISES:
            first = next((one for one in arguments if isinstance(one, Code)), None)
            position = Position(1, 1) if first is None else first.position
            raise ScriptError(position, "this is not understood here: write it in a simpler way") from None

    return carefully


@cache
def _dialect() -> Dialect:
    return Dialect.get_or_raise("tsql")


def tokens_of(code: Code) -> list[Token]:
    """Split code into sqlglot's tokens.

    Raises:
        ScriptError: at what is no token, and at what is too long or nested too deeply.
    """
    try:
        found: list[Token] = list(_dialect().tokenize(code.text))
    except _SURPRISES as error:
        raise ScriptError(code.position, f"this can't be read: {_first_line(error)}") from None
    if len(found) > _MOST_TOKENS:
        raise ScriptError(code.position, f"a statement of more than {_MOST_TOKENS} words: divide it")
    depth = 0
    for token in found:
        depth += (token.token_type is _OPENING or token.token_type is TokenType.CASE) - (
            token.token_type is _CLOSING or token.token_type is TokenType.END
        )
        if depth > _MOST_DEPTH:
            raise ScriptError(code.place(token.start), "this is nested too deeply: divide it")
    return found


def parse(code: Code, tokens: Sequence[Token] | None = None) -> exp.Expr:
    """Read one expression or statement.

    Raises:
        ScriptError: where sqlglot stopped.
    """
    given = list(tokens_of(code) if tokens is None else tokens)
    if not given:
        raise ScriptError(code.position, "there is nothing here: write an expression")
    try:
        given = [_as_written(given, at) for at in range(len(given))]
        found: list[Any] = _dialect().parser(error_level=sqlglot.ErrorLevel.IMMEDIATE).parse(given, code.text)
    except _SURPRISES as error:
        raise ScriptError(_place(code, error), f"this is not understood: {_first_line(error)}") from None
    trees: list[Any] = [one for one in found if one is not None]
    for one in (named for tree in trees for named in tree.find_all(exp.Anonymous, exp.Identifier)):
        if one.name.endswith(_OWN):
            one.set("this", one.name.removesuffix(_OWN))
    if len(trees) != 1:
        raise ScriptError(code.position, "this is not one expression or statement: divide it")
    if isinstance(trees[0], exp.Command):
        raise ScriptError(code.position, f"{given[0].text.upper()} is not understood here")
    return trees[0]  # type: ignore[no-any-return]


def _as_written(tokens: Sequence[Token], at: int) -> Token:
    """Return a token with a name by which sqlglot takes it for no other function than it is."""
    one = tokens[at]
    if one.text.upper() == "SYSDATETIME":
        return token(one.token_type, SYSDATETIME, one)
    is_call = 0 < at < len(tokens) - 1 and tokens[at + 1].token_type is _OPENING
    if (
        is_call
        and tokens[at - 1].token_type is TokenType.DOT
        and one.text.isidentifier()
        and one.text.lower() not in XML_METHODS
    ):
        return token(TokenType.IDENTIFIER, one.text + _OWN, one)
    return one


def place_of(code: Code, node: exp.Expr) -> Position:
    """Return where a node stands, as nearly as sqlglot knows."""
    at: exp.Expr | None = node
    while at is not None:
        starts = [one.meta["start"] for one in at.walk() if "start" in one.meta]
        if starts:
            return code.place(min(starts))
        at = at.parent
    return code.position


def at_top(tokens: Sequence[Token]) -> Iterator[tuple[int, Token]]:
    """Yield the tokens that stand in no parentheses, with their indexes."""
    depth = 0
    for index, token in enumerate(tokens):
        if token.token_type is _CLOSING:
            depth -= 1
        if not depth:
            yield index, token
        if token.token_type is _OPENING:
            depth += 1


def closing(tokens: Sequence[Token], opening: int) -> int:
    """Return the index of the parenthesis that closes one, or the end."""
    depth = 0
    for index in range(opening, len(tokens)):
        kind = tokens[index].token_type
        depth += (kind is _OPENING) - (kind is _CLOSING)
        if not depth:
            return index
    return len(tokens)


def text_of(code: Code, tokens: Sequence[Token]) -> Code:
    """Return the piece of code from the first token to the last."""
    if not tokens:
        raise ScriptError(code.position, "something is missing here")
    begin, end = tokens[0].start, tokens[-1].end + 1
    return Code(code.text[begin:end], code.place(begin))


def token(kind: TokenType, text: str, like: Token) -> Token:
    """Make a token that stands where another does."""
    return Token(kind, text, like.line, like.col, like.start, like.end)


def _place(code: Code, error: BaseException) -> Position:
    details = getattr(error, "errors", None)
    if isinstance(error, TokenError) or not details:
        return code.position
    line, column = details[0].get("line"), details[0].get("col")
    word = details[0].get("highlight") or ""
    if not line or not column:
        return code.position
    lines = code.text.split("\n")
    offset = sum(len(one) + 1 for one in lines[: line - 1]) + max(column - len(word), 0)
    return code.place(min(offset, len(code.text))) if code.text else end_of("")


def _first_line(error: BaseException) -> str:
    details = getattr(error, "errors", None)
    if details and details[0].get("description"):
        word = str(details[0].get("highlight") or "").strip()
        return str(details[0]["description"]).partition(" for <class")[0] + (f": {word[:40]}" if word else "")
    return str(error).partition("\n")[0][:120] or type(error).__name__
