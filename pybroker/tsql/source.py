"""A script's text: its encoding, and its batches with the lines on which they begin."""

from __future__ import annotations

import codecs
import re
from bisect import bisect_right
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_ENCODINGS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# GO counts only outside of what may hold a line of any text. What is open at the end is left to the grammar.
_PIECES = re.compile(
    r"""'[^']*(?:'|\Z) | "[^"]*(?:"|\Z) | \[(?:[^\]]|\]\])*(?:\]|\Z) | --[^\n]* | /\*
      | (?P<go>^[ \t]*GO[ \t]*(?P<count>\d*)[ \t]*;?[ \t]*(?:--[^\n]*)?$)""",
    re.IGNORECASE | re.MULTILINE | re.VERBOSE | re.ASCII,
)
_COMMENT_EDGES = re.compile(r"/\*|\*/")
_NEWLINE = re.compile("\n")
_NO_NEWLINE = re.compile(r"[^\n]")
_MOST_ROUNDS = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a script; lines and columns begin at 1."""

    line: int
    column: int


class ScriptError(Exception):
    """What can't be read or translated, where it stands, and what to write instead."""

    def __init__(self, position: Position, message: str) -> None:
        super().__init__(message)
        self.position = position


@dataclass(frozen=True, slots=True)
class Batch:
    """The text up to a GO, which runs `count` times.

    `line` is the line of the script on which the text begins.
    """

    text: str
    line: int = field(default=1)
    count: int = 1


def position_of(batch: Batch, offset: int) -> Position:
    """Return where a character of a batch's text stands in the script."""
    begins = _line_begins(batch.text)
    line = bisect_right(begins, offset)
    return Position(batch.line + line - 1, offset - begins[line - 1] + 1)


def offset_of(batch: Batch, position: Position) -> int:
    """Return which character of a batch's text stands there; the inverse of `position_of`."""
    return _line_begins(batch.text)[position.line - batch.line] + position.column - 1


# One batch is read after the other, and asked for each of its statements.
@lru_cache(maxsize=1)
def _line_begins(text: str) -> list[int]:
    return [0, *(found.end() for found in _NEWLINE.finditer(text))]


def decode(content: bytes, encoding: str = "utf-8") -> str:
    """Return a script's text with newlines alone.

    Args:
        content: of the script.
        encoding: of scripts without a byte order mark.

    Raises:
        ScriptError: where the first byte stands that is not of the encoding, and for a zero character.
    """
    mark, encoding = next(
        ((mark, name) for mark, name in _ENCODINGS if content.startswith(mark)), (b"", encoding)
    )
    content = content[len(mark) :]
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        before = content[: error.start].decode(encoding, errors="replace")
        raise ScriptError(
            end_of(_newlines(before)),
            f"the script is not {encoding.upper()}: save it as UTF-8, or name its --encoding",
        ) from None
    text = _newlines(text)
    if "\0" in text:
        raise ScriptError(
            end_of(text.partition("\0")[0]),
            "a zero character: save UTF-16 with a byte order mark, or as UTF-8",
        )
    return text


def batches(text: str) -> Iterator[Batch]:
    """Split a script at its lines of GO; one that holds blanks alone is left out.

    Raises:
        ScriptError: at GO with a count that is too large, and at a comment that is not closed.
    """
    text = _without_block_comments(text)
    begin, line = 0, 1
    for found in _PIECES.finditer(text):
        if found["go"] is None:
            continue
        line_of_go = line + text.count("\n", begin, found.start())
        # The length first: int() of a million digits is not linear.
        if len(found["count"]) > len(str(_MOST_ROUNDS)) or int(found["count"] or 1) > _MOST_ROUNDS:
            raise ScriptError(Position(line_of_go, 1), f"GO runs a batch at most {_MOST_ROUNDS} times")
        batch = text[begin : found.start()]
        if batch.strip():
            yield Batch(batch, line, int(found["count"] or 1))
        begin, line = found.end(), line_of_go
    if text[begin:].strip():
        yield Batch(text[begin:], line)


def end_of(text: str) -> Position:
    """Return the position behind a text."""
    return Position(text.count("\n") + 1, len(text) - text.rfind("\n"))


def comments(text: str) -> Iterator[tuple[int, int]]:
    """Yield where comments begin and end; one that is not closed ends with the text."""
    at = 0
    while found := _PIECES.search(text, at):
        at = found.end()
        if found.group() == "/*":
            try:
                at = _end_of_comment(text, found.start())
            except ScriptError:
                at = len(text)
        if found.group().startswith(("/*", "--")):
            yield found.start(), at


def _without_block_comments(text: str) -> str:
    """Return a text with blanks for its comments; what is left stays on its line and column."""
    parts, begin, at = [], 0, 0
    while found := _PIECES.search(text, at):
        at = found.end()
        if found.group() == "/*":
            at = _end_of_comment(text, found.start())
            parts += [text[begin : found.start()], _NO_NEWLINE.sub(" ", text[found.start() : at])]
            begin = at
    return "".join([*parts, text[begin:]])


def _end_of_comment(text: str, begin: int) -> int:
    """Return where a comment ends; comments nest, as in SQL Server."""
    depth = 0
    for edge in _COMMENT_EDGES.finditer(text, begin):
        depth += 1 if edge.group() == "/*" else -1
        if not depth:
            return edge.end()
    raise ScriptError(end_of(text[:begin]), "a comment that is not closed: write */ behind it")


def _newlines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")
