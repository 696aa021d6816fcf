"""The one form of all events: of the worker, the activator and service programs, as text or JSON.

Each event is one line on standard error, with the same keys everywhere: timestamp, level, event, and what it
concerns (database, queue, conversation_handle, conversation_id). Passwords are blotted out.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, TextIO

from pybroker import tracing
from pybroker.printable import printable, printable_json

if TYPE_CHECKING:
    from collections.abc import Mapping

LogFormat = Literal["text", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]

_LEVELS: Mapping[LogLevel, int] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
# Characters of one value: it may be somebody else's, and to read it all would hold up the process.
_LONGEST = 32_000
# In this order; what else an event says follows them.
_FIRST = ("timestamp", "level", "event")
_IN_URL = re.compile(r"(\w://[^\s:/@?]*:)[^\s/]*@")
_AS_SETTING = re.compile(r"((?:ssl)?password\s*=\s*)(?:'(?:[^'\\]|\\.)*'|[^\s&'\"]+)", re.IGNORECASE)
_BARE = re.compile(r"[^\s\"=\x00-\x1f\x7f-\x9f\u2028\u2029]+")
# What every record has; the rest came with `extra`.
_OF_RECORDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def set_up(log_format: LogFormat = "text", *, level: LogLevel = "info") -> None:
    """Write events of this process to standard error: pybroker's from `level` on, of others the warnings.

    Libraries log what concerns their authors; at level error their warnings are left out too.

    Args:
        log_format: text, for a person, or json, one object a line.
        level: debug, info, warning or error.

    Raises:
        ValueError: an argument is none of these.
    """
    if log_format not in {"text", "json"}:
        raise ValueError(f'"{log_format}" is no log format: use text or json.')
    number = number_of(level)
    handler = logging.StreamHandler(Lines(sys.stderr))
    handler.setFormatter(Formatter(log_format))
    logging.basicConfig(handlers=[handler], level=max(logging.WARNING, number), force=True)
    logging.getLogger("pybroker").setLevel(number)


def number_of(level: LogLevel) -> int:
    """Return Python's number of a level.

    Raises:
        ValueError: there is no such level.
    """
    if level not in _LEVELS:
        raise ValueError(f'"{level}" is no log level: use {", ".join(_LEVELS)}.')
    return _LEVELS[level]


class Lines:
    """A stream of lines that nobody need read: what can't be written is lost, and whoever logs goes on.

    A log collector that has gone, or a full disk, must not end a worker in the middle of its work. Nothing is
    buffered either: at its exit Python would try to write that, and change the exit code.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write whole lines, if that is possible."""
        with suppress(OSError, ValueError):
            raw = getattr(getattr(self._stream, "buffer", None), "raw", None)
            if raw is None:
                self._stream.write(text)
                self._stream.flush()
            else:
                rest = text.encode(errors="backslashreplace")
                while rest:
                    rest = rest[raw.write(rest) or len(rest) :]
        return len(text)

    def flush(self) -> None:
        """Do nothing: each line is written at once."""


class Formatter(logging.Formatter):
    """For a handler of your own: the same lines as :func:`set_up` writes."""

    def __init__(self, log_format: LogFormat = "text") -> None:
        super().__init__()
        self._log_format = log_format

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line; in text the lines of a traceback follow it."""
        event: dict[str, Any] = {
            "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat().replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "event": " ".join(record.getMessage().split()),
            "logger": record.name,
        }
        event.update((key, value) for key, value in vars(record).items() if key not in _OF_RECORDS)
        # Where a service program logs, its span is current.
        event.update(tracing.ids())
        if record.exc_info:
            event["exception"] = self.formatException(record.exc_info)
        return rendered(event, self._log_format)


def rendered(event: Mapping[str, Any], log_format: LogFormat) -> str:
    """Return the line of an event that has at least timestamp, level and event."""
    ordered = {key: event[key] for key in _FIRST if key in event}
    ordered |= {key: value for key, value in event.items() if key not in ordered}
    ordered = {key: blotted(value) for key, value in ordered.items()}
    if log_format == "json":
        return printable_json(json.dumps(ordered, ensure_ascii=False, default=_blotted_text))
    ordered = {key: value for key, value in ordered.items() if value is not None}
    exception = ordered.pop("exception", None)
    first = [_one_line(ordered.pop(key)) for key in _FIRST if key in ordered]
    line = " ".join([*first, *(f"{key}={_value(value)}" for key, value in ordered.items())])
    lines = [] if exception is None else exception.split("\n")
    return "\n".join(printable(one) for one in (line, *lines))


def blotted(value: Any) -> Any:
    """Blot out what follows `user:` in a URL and `password=` in a connection string, in lists too."""
    # Last before the line is made: an exception's text, libpq's say, may quote the connection string.
    if isinstance(value, str):
        # A password is seen by its end: what lies across the cut is cut off after it was blotted out.
        return _AS_SETTING.sub(r"\1***", _IN_URL.sub(r"\1***@", value[: 2 * _LONGEST]))[:_LONGEST]
    if isinstance(value, (list, tuple)):
        return [blotted(element) for element in value]
    if isinstance(value, dict):
        return {key: blotted(element) for key, element in value.items()}
    return value


def _blotted_text(value: object) -> Any:
    return blotted(str(value))


def _one_line(text: object) -> str:
    return " ".join(str(text).split())


def _value(value: Any) -> str:
    if not isinstance(value, str):
        return json.dumps(value, ensure_ascii=False, default=_blotted_text)
    # What somebody else wrote must not look like another key, or like another line.
    return value if _BARE.fullmatch(value) else json.dumps(value)
