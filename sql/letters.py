"""The names of the letters that hot rows hold, in one byte where an enum would take four.

The SQL says a name, ``e.path = '<local>'``; what is applied has the letter, ``e.path = 'L'``. A name is
unique, and lint refuses a bare letter, an unknown name, and a name beside another column than its own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Letter:
    """One value of a "char" column: where it stands, its name, the byte, and what it means there."""

    columns: tuple[str, ...]
    name: str
    letter: str
    meaning: str


_MESSAGES = tuple(
    f"{table}.kind"
    for table in ("transmission_messages", "early_messages", "incomplete_messages", "forwarded_messages")
)
_VALIDATION = ("message_types.validation", "contract_messages.validation")

LETTERS = (
    Letter(("endpoints.path",), "unsent", "U", "nothing was sent yet"),
    Letter(("endpoints.path",), "local", "L", "straight into the far queue"),
    Letter(("endpoints.path",), "behind incomplete", "I", "local, behind an incomplete message"),
    Letter(("endpoints.path",), "delayed", "B", "local or not known yet, by way of the transmission queue"),
    Letter(("endpoints.path",), "remote", "R", "to another broker"),
    Letter(("endpoints.local_end",), "ended", "E", "ended"),
    Letter(("endpoints.local_end",), "ended with error", "X", "ended with an error"),
    Letter(("endpoints.local_end",), "cleaned up", "C", "ended with cleanup"),
    Letter(("far_events.event",), "first taken", "S", "our first message was taken to be sent"),
    Letter(("far_events.event",), "broker known", "B", "the far broker became known"),
    Letter(("far_events.event",), "far end", "E", "its EndDialog arrived"),
    Letter(("far_events.event",), "far error", "X", "its Error, or the broker's, arrived"),
    Letter(("far_events.event",), "end acknowledged", "A", "it acknowledged our end"),
    Letter(("far_events.event",), "refused here", "F", "we refused a message that we had acknowledged"),
    Letter(
        ("sequence_counters.kind",), "next acknowledged", "A", "the next that the far broker acknowledges"
    ),
    Letter(("sequence_counters.kind",), "next expected", "I", "the next that the far broker sends"),
    Letter(("sequence_counters.kind",), "next received", "R", "the next for RECEIVE, within this database"),
    Letter(
        ("sequence_counters.kind",), "next sent", "S", "the next to be sent, where RETENTION keeps copies"
    ),
    Letter(_MESSAGES, "message", "M", "a message"),
    Letter(_MESSAGES, "end dialog", "E", "EndDialog"),
    Letter(_MESSAGES, "error", "X", "Error"),
    Letter(_MESSAGES, "question", "P", "only in a batch: a question, which carries no message"),
    Letter(("dialog_security.kind",), "clear", "N", "in the clear"),
    Letter(("dialog_security.kind",), "anonymous", "A", "anonymous"),
    Letter(("dialog_security.kind",), "full", "F", "full"),
    Letter(
        ("dialog_security.kind",), "same worker", "L", "only between functions: within one worker, no row"
    ),
    Letter(("configuration_requests.kind",), "route", "R", "asked for a route"),
    Letter(("configuration_requests.kind",), "binding", "B", "asked for a binding"),
    Letter(_VALIDATION, "no validation", "N", "NONE"),
    Letter(_VALIDATION, "empty", "E", "EMPTY: no body"),
    Letter(_VALIDATION, "xml", "X", "WELL_FORMED_XML, or VALID_XML"),
    Letter(_VALIDATION, "json", "J", "VALID_JSON"),
    Letter(("permissions.class",), "queue", "Q", "a queue"),
    Letter(("permissions.class",), "service", "S", "a service"),
    Letter(("permissions.class",), "contract", "C", "a contract"),
    Letter(("permissions.class",), "message type", "M", "a message type"),
    Letter(("permissions.class",), "schema collection", "X", "a schema collection"),
    Letter(("permissions.class",), "tcp endpoint", "P", "the TCP endpoint"),
)
_BY_NAME = {letter.name: letter for letter in LETTERS}
NAMED_LETTER = re.compile(r"'<([a-z][a-z ]*)>'")


def with_letters(text: str) -> str:
    """Return SQL with a letter for each name.

    Raises:
        ValueError: if no letter has a name that the text says.
    """
    return NAMED_LETTER.sub(_letter, text)


def _letter(named: re.Match[str]) -> str:
    known = _BY_NAME.get(named[1])
    if known is None:
        raise ValueError(f"{named[0]} is the name of no letter in sql/letters.py")
    return f"'{known.letter}'"
