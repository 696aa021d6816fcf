"""OpenTelemetry spans by the messaging conventions; imported only by programs that trace (`tracing`)."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

from opentelemetry import trace
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, SpanKind, TraceFlags

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from uuid import UUID

    from opentelemetry.context import Context
    from opentelemetry.trace import Span

Operation = Literal["send", "receive", "process", "transmit", "deliver", "forward"]

# What OpenTelemetry's own SDK keeps of one span by default.
_MOST_LINKS = 128
_TRACEPARENT = re.compile(r"00-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})")


def begin(
    operation: Operation,
    destination: str,
    traceparents: Iterable[str | None] = (),
    *,
    attributes: dict[str, Any] | None = None,
    start_time: int | None = None,
) -> Span:
    """Begin a span by OpenTelemetry's messaging conventions; whoever gets it ends it.

    It continues the trace of its messages if they all have one context. Else it has links to the contexts, of
    128 at most.

    Args:
        operation: what is done.
        destination: the queue, service or message type that it is done with.
        traceparents: the contexts of its messages; None, or a text that is no context, is passed by.
        attributes: more of it, beside what the conventions ask for.
        start_time: nanoseconds since 1970, if it has begun before.
    """
    contexts = _contexts(traceparents)
    parent: Context | None = None
    links: list[Link] = []
    if len(contexts) == 1 and operation != "receive":
        parent = trace.set_span_in_context(NonRecordingSpan(contexts[0]))
    else:
        links = [Link(context) for context in contexts]
    kinds = {"send": SpanKind.PRODUCER, "process": SpanKind.CONSUMER, "deliver": SpanKind.CONSUMER}
    return trace.get_tracer("pybroker").start_span(
        f"{operation} {destination}",
        parent,
        kinds.get(operation, SpanKind.CLIENT),
        {
            "messaging.system": "pybroker",
            "messaging.operation.name": operation,
            "messaging.destination.name": destination,
            **(attributes or {}),
        },
        links,
        start_time,
    )


def traceparent_of(span: Span) -> str | None:
    """Return the context that a message gets in this span; None if nobody records it."""
    context = span.get_span_context()
    if not context.is_valid or not span.is_recording():
        return None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def received(queue: str, traceparents: Sequence[str | None], start_time: int) -> None:
    """Make the span of a RECEIVE that has found messages; it began at nanoseconds since 1970."""
    began = {"messaging.operation.type": "receive", "messaging.batch.message_count": len(traceparents)}
    begin("receive", queue, traceparents, attributes=began, start_time=start_time).end()


def ids() -> dict[str, str]:
    """Return trace_id and span_id of the span that is current here, if there is one."""
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return {}
    return {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}


@contextmanager
def sending(message_type: str, handle: UUID | None, messages: int) -> Iterator[str | None]:
    """Give the context for the messages of a SEND; None while nobody records."""
    attributes: dict[str, Any] = {"messaging.operation.type": "send"}
    if handle is not None:
        attributes["messaging.message.conversation_id"] = str(handle)
    if messages != 1:
        attributes["messaging.batch.message_count"] = messages
    with trace.use_span(begin("send", message_type, attributes=attributes), end_on_exit=True) as span:
        yield traceparent_of(span)


@contextmanager
def processing(queue: str, messages: Sequence[Any]) -> Iterator[None]:
    """Be the span in which a service program handles messages of one conversation."""
    first = messages[0]
    attributes: dict[str, Any] = {
        "messaging.operation.type": "process",
        "messaging.message.conversation_id": str(first.conversation_handle),
        "pybroker.message_type": first.message_type_name,
    }
    if len(messages) == 1:
        attributes["messaging.message.id"] = str(first.message_id)
    else:
        attributes["messaging.batch.message_count"] = len(messages)
    span = begin("process", queue, [message.traceparent for message in messages], attributes=attributes)
    with trace.use_span(span, end_on_exit=True):
        yield


def _contexts(traceparents: Iterable[str | None]) -> list[SpanContext]:
    contexts: list[SpanContext] = []
    for text in dict.fromkeys(traceparents):
        if len(contexts) < _MOST_LINKS and (match := _TRACEPARENT.fullmatch(text or "")):
            trace_id, span_id, flags = (int(part, 16) for part in match.groups())
            contexts.append(SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(flags)))
    return contexts
