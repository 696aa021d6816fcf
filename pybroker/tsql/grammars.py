"""One statement by a lark grammar: it ends where no further word fits."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NoReturn

from lark import Lark, TextSlice
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken, VisitError

from pybroker.tsql.source import Batch, ScriptError, position_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from lark import Token, Transformer

    from pybroker.tsql.tree import Statement

_MOST_EXPECTED = 6
_PLAIN = {
    "WORD": "a name",
    "BRACKETED": "[a name]",
    "DOUBLE_QUOTED": '"a name"',
    "STRING": "'text'",
    "NUMBER": "a number",
    "BINARY": "0x…",
    "COMMA": ",",
    "DOT": ".",
    "EQUAL": "=",
    "LPAR": "(",
    "RPAR": ")",
    "__ANON_0": "::",
    "SIMPLE_OPTION": "an option",
    "OPTION": "an option",
    "PERMISSION": "a permission",
}


def read_statement(
    package: str, builder: Callable[[Batch], Transformer[Token, Any]], batch: Batch, at: int
) -> tuple[Statement, int]:
    """Return the statement that begins at this offset of a batch, and the offset behind it.

    Args:
        package: where grammar.lark lies.
        builder: makes the tree.
        batch: its text has no block comments.
        at: the offset.

    Raises:
        ScriptError: at the word that is not understood.
    """
    # Any: lark has no types for it.
    parser: Any = _parser(package).parse_interactive(TextSlice(batch.text, at, len(batch.text)))
    end = at
    try:
        for token in parser.lexer_thread.lex(parser.parser_state):
            parser.feed_token(token)
            end = token.end_pos or end
    except UnexpectedInput as error:
        if "$END" not in parser.accepts():
            _refuse(error, batch)
    try:
        return builder(batch).transform(parser.feed_eof()), end
    except UnexpectedInput as error:
        _refuse(error, batch)
    except VisitError as error:
        if isinstance(error.orig_exc, ScriptError):
            raise error.orig_exc from None
        raise


@cache
def _parser(package: str) -> Lark:
    grammar = files(package).joinpath("grammar.lark").read_text("utf-8")
    return Lark(grammar, parser="lalr", lexer="contextual", propagate_positions=True)


def _refuse(error: UnexpectedInput, batch: Batch) -> NoReturn:
    expected: set[str] = set()
    at = error.pos_in_stream
    if isinstance(error, UnexpectedToken):
        at = error.token.start_pos if error.token.type != "$END" else len(batch.text.rstrip())
        expected = error.accepts or error.expected
    elif isinstance(error, UnexpectedCharacters):
        expected = error.allowed or set()
    at = len(batch.text.rstrip()) if at is None or at < 0 else at
    rest = batch.text[at : at + 40].split(maxsplit=1)
    found = f'"{rest[0]}"' if rest else "the end of the batch"
    words = sorted(_PLAIN.get(one, one) for one in expected if one != "$END")
    more = ", …" if len(words) > _MOST_EXPECTED else ""
    hint = f": expected {', '.join(words[:_MOST_EXPECTED])}{more}" if words else ""
    raise ScriptError(position_of(batch, at), f"{found} is not understood here{hint}")
