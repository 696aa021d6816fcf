"""Whether an activated procedure failed in its RECEIVE, as far as the error's context tells.

The context holds what the procedure's role wrote, and perhaps what a sender wrote: statements with quotes,
lines, and whatever else looks like a frame of the stack. So each text is cut before it is read, and is read
once. A frame of somebody's function counts only before the first statement that is quoted: nobody knows where
that one ends.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from pybroker.printable import LONGEST

_FRAME = "PL/pgSQL function "
_RECEIVES = ("receive", "receive_groups", "get_conversation_group")
_OF_RECEIVE = tuple(f"{_FRAME}broker.{name}(" for name in _RECEIVES)
_OF_BROKER = (f"{_FRAME}broker.", f"{_FRAME}broker_private.")
# What is in a literal may be a sender's.
_LITERAL = re.compile(r"'[^']*(?:'|\Z)")
_LOOP = re.compile(r"(?P<function>.+\)) line (?P<line>\d{1,9}) at FOR over SELECT rows")
_RECEIVE = re.compile(rf"\b(?:{'|'.join(_RECEIVES)})\s*\(", re.IGNORECASE)
_FOR = re.compile(r"\bfor\b", re.IGNORECASE)
_BODY = re.compile(r"\bloop\b", re.IGNORECASE)


class Loop(NamedTuple):
    """A FOR loop over a query: the context names its function and its line, and does not quote it."""

    function: str
    line: int


def told_by(context: str) -> bool | Loop:
    """Tell whether the innermost statement that is not pybroker's own receives, or which loop to look at."""
    quoted: list[str] = []
    for line in _LITERAL.sub("''", context[:LONGEST]).splitlines():
        if not line.startswith(_FRAME):
            quoted.append(line)
        elif line.startswith(_OF_RECEIVE):
            return True
        elif not line.startswith(_OF_BROKER):
            if quoted:
                break
            loop = _LOOP.fullmatch(line, len(_FRAME))
            return Loop(loop["function"], int(loop["line"])) if loop else False
    return _RECEIVE.search("\n".join(quoted)) is not None


def is_loop_of(text: str) -> bool:
    """Tell whether the FOR loop at the beginning of this text of a function is over what it receives."""
    text = text[:LONGEST]
    if (begin := _FOR.search(text)) is None or (end := _BODY.search(text, begin.end())) is None:
        return False
    return _RECEIVE.search(text, begin.end(), end.start()) is not None
