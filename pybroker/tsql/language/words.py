"""The words of a batch, with where they stand."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pybroker.tsql.source import Batch, ScriptError, position_of

if TYPE_CHECKING:
    from collections.abc import Iterator

_WORDS = re.compile(
    r"""(?P<blank>\s+|--[^\n]*)
      | (?P<text>[Nn]?'(?:[^']|'')*+')
      | (?P<quoted>\[(?:[^\]]|\]\])++\]|"(?:[^"]|"")++")
      | (?P<variable>@[\w@$#]+)
      | (?P<number>0[xX][0-9a-fA-F]*|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|\$\d+(?:\.\d*)?)
      | (?P<word>[^\W\d][\w@$#]*|\#{1,2}\w[\w@$#]*)
      | (?P<mark>[<>!=+\-*/%&|^]=|<>|!<|!>|::|[-+*/%&|^~<>=(),;.:])""",
    re.VERBOSE,
)
_OPEN = {
    "'": "a text that is not closed: write ' behind it",
    "[": "a name that is not closed: write ] behind it",
}


@dataclass(frozen=True, slots=True)
class Word:
    """A word, text, name, variable, number or mark.

    Attributes:
        kind: text, quoted, variable, number, word or mark.
        word: as it is written; words in upper case.
        written: as it is written.
        begin: its offset in the batch.
        end: the offset behind it.
    """

    kind: str
    word: str
    written: str
    begin: int
    end: int


def words(batch: Batch) -> Iterator[Word]:
    """Yield the words of a batch without block comments.

    Raises:
        ScriptError: at what is no word of T-SQL.
    """
    text, at = batch.text, 0
    while at < len(text):
        found = _WORDS.match(text, at)
        if found is None:
            one = text[at]
            if text[at : at + 2].upper() == "N'":
                one = "'"
            said = _OPEN.get(one, f'"{one}" is not understood here')
            if one == '"':
                said = 'a name that is not closed: write " behind it'
            if text[at : at + 7].lower() == "$action":
                said = "MERGE with OUTPUT has no form here: write UPDATE and INSERT"
            raise ScriptError(position_of(batch, at), said)
        kind = found.lastgroup or ""
        if kind != "blank":
            word = found.group()
            yield Word(kind, word.upper() if kind == "word" else word, word, at, found.end())
        at = found.end()


def name_of(word: Word) -> str:
    """Return the name that a word or a quoted name says."""
    if word.kind == "quoted":
        close = word.written[-1]
        return word.written[1:-1].replace(close * 2, close)
    return word.written
