"""What the worker writes: one event a line, on standard error, for a person or as JSON, without passwords."""

from __future__ import annotations

import logging
import re
import sys
from typing import TYPE_CHECKING, Literal

import structlog

if TYPE_CHECKING:
    from structlog.typing import EventDict, Processor, WrappedLogger

LogFormat = Literal["console", "json"]

_IN_URL = re.compile(r"(\w://[^\s:/@?]*:)[^\s/]*@")
_AS_SETTING = re.compile(r"((?:ssl)?password\s*=\s*)(?:'(?:[^'\\]|\\.)*'|[^\s&'\"]+)", re.IGNORECASE)


def set_up(log_format: LogFormat) -> None:
    """Send structlog's events, and the warnings of libraries that use `logging`, to standard error."""
    processors: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        without_passwords,
    ]
    if log_format == "json":
        processors.append(structlog.processors.JSONRenderer(ensure_ascii=False))
    else:
        processors.append(structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty()))
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    logging.basicConfig(handlers=[_ToStructlog()], level=logging.WARNING, force=True)


def without_passwords(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Blot out what follows `user:` in a URL and `password=` in a connection string."""
    # Last before rendering: an exception's text, libpq's say, may quote the connection string.
    return {key: _blotted(value) for key, value in event.items()}


def _blotted(value: object) -> object:
    if isinstance(value, str):
        return _AS_SETTING.sub(r"\1***", _IN_URL.sub(r"\1***@", value))
    if isinstance(value, (list, tuple)):
        return [_blotted(element) for element in value]
    return value


class _ToStructlog(logging.Handler):
    """Without it the connection pool's warnings would be plain lines among JSON."""

    def emit(self, record: logging.LogRecord) -> None:
        logger = structlog.get_logger()
        message = " ".join(record.getMessage().split())
        logger.log(record.levelno, message, logger=record.name, exc_info=record.exc_info)
