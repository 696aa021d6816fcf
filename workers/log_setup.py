"""What the worker writes: structlog's events, in the form that service programs' events have too."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import structlog

from pybroker import logs

if TYPE_CHECKING:
    from structlog.typing import EventDict, WrappedLogger


def set_up(log_format: logs.LogFormat, level: logs.LogLevel) -> None:
    """Send structlog's events, and the warnings of libraries that use `logging`, to standard error."""
    logs.set_up(log_format, level=level)

    def render(_logger: WrappedLogger, _method: str, event: EventDict) -> str:
        return logs.rendered(event, log_format)

    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            render,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logs.number_of(level)),
        logger_factory=structlog.WriteLoggerFactory(logs.Lines(sys.stderr)),  # type: ignore[arg-type]
    )
