"""Whether the program traces; if it does, the spans of what it does.

Nothing happens, and nothing is asked of the database, in a program that has set up no tracer provider of
OpenTelemetry. Who has set one up has imported its API, so it is not imported here before that.
"""

from __future__ import annotations

import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager
    from uuid import UUID

_NOTHING = nullcontext(None)


def is_on() -> bool:
    """Return whether the program has set up a tracer provider."""
    trace: Any = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return False
    return not isinstance(trace.get_tracer_provider(), (trace.ProxyTracerProvider, trace.NoOpTracerProvider))


def sending(message_type: str, handle: UUID | None, messages: int = 1) -> AbstractContextManager[str | None]:
    """Return the block of a SEND, which gives the context for its messages; None while nobody traces."""
    if not is_on():
        return _NOTHING
    from pybroker import spans  # noqa: PLC0415 - what it needs is in an extra

    return spans.sending(message_type, handle, messages)


def received(queue: str, traceparents: Sequence[str | None], start_time: int) -> None:
    """Note that a RECEIVE, begun at nanoseconds since 1970, has found messages with these contexts."""
    from pybroker import spans  # noqa: PLC0415 - what it needs is in an extra

    spans.received(queue, traceparents, start_time)


def processing(queue: str, messages: Sequence[Any]) -> AbstractContextManager[None]:
    """Return the block in which a service program handles messages of one conversation."""
    if not is_on():
        return _NOTHING
    from pybroker import spans  # noqa: PLC0415 - what it needs is in an extra

    return spans.processing(queue, messages)


def ids() -> dict[str, str]:
    """Return trace_id and span_id of the span that is current here, for a line of a log."""
    if not is_on():
        return {}
    from pybroker import spans  # noqa: PLC0415 - what it needs is in an extra

    return spans.ids()
