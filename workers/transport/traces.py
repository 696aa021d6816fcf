"""The trace contexts of messages on their way, and transport's own spans; only where the worker is to trace.

A message that nobody traces has no context, and gets no span here.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from pybroker import tracing
from pybroker.workers.transport.protocol import arrays

if TYPE_CHECKING:
    from asyncio import Task
    from collections.abc import Iterable, Iterator, Sequence

    from pybroker.spans import Operation
    from pybroker.workers.transport.protocol.rows import Delivered, Taken
    from pybroker.workers.transport.protocol.wire import Ack, Batch, Traceparent


class Arrived(NamedTuple):
    """The context of a message that was stored: its conversation, who sent it, its number."""

    conversation_id: bytes
    from_initiator: bool
    sequence_number: int
    traceparent: str


def rows_of(taken: Taken) -> tuple[list[int], list[int]]:
    """Return the endpoint and the row of each message of a batch."""
    endpoint_nos = arrays.to_integers(taken.endpoint_nos, arrays.BIGINT)
    dialogs = arrays.to_integers(taken.dialog_index, arrays.INTEGER)
    return [endpoint_nos[dialog - 1] for dialog in dialogs], arrays.to_integers(taken.row_ids, arrays.BIGINT)


def acknowledged(
    taken: Taken, traceparents: Iterable[Traceparent], rows: dict[int, int]
) -> tuple[list[int], list[int]]:
    """Return endpoint and row of the traced messages up to the last one acknowledged, by endpoint."""
    endpoint_nos, row_ids = rows_of(taken)
    stored = [
        (endpoint_nos[place - 1], row_ids[place - 1])
        for place, _ in traceparents
        if row_ids[place - 1] <= rows.get(endpoint_nos[place - 1], 0)
    ]
    return [endpoint for endpoint, _ in stored], [row for _, row in stored]


def stored(batch: Batch, part: Batch, delivered: Delivered) -> list[Arrived]:
    """Return the contexts of the messages that were stored.

    Of no others: a partner could write any context to the messages of dialogs that are not his.

    Args:
        batch: what came, with its contexts.
        part: what of it was stored.
        delivered: what became of that.
    """
    next_numbers = {
        (conversation, side): number
        for conversation, side, number, code in zip(
            arrays.to_elements(part.conversation_ids, arrays.UUID),
            arrays.to_booleans(part.from_initiator),
            arrays.to_nullable_integers(delivered.next_numbers, arrays.BIGINT),
            arrays.to_nullable_integers(delivered.fault_codes, arrays.INTEGER),
            strict=True,
        )
        if number is not None and code is None
    }
    conversations = arrays.to_elements(batch.conversation_ids, arrays.UUID)
    sides = arrays.to_booleans(batch.from_initiator)
    dialogs = arrays.to_integers(batch.dialog_index, arrays.INTEGER)
    numbers = arrays.to_integers(batch.sequence_numbers, arrays.BIGINT)
    found = []
    for place, traceparent in batch.traceparents:
        conversation, side = conversations[dialogs[place - 1] - 1], sides[dialogs[place - 1] - 1]
        if conversation and numbers[place - 1] < next_numbers.get((conversation, side), 0):
            found.append(Arrived(conversation, side, numbers[place - 1], traceparent))
    return found


@contextmanager
def spanned(operation: Operation, service: str, traceparents: Sequence[Traceparent]) -> Iterator[None]:
    """Give the block a span, if any of its messages is traced; an exception becomes its status."""
    if not traceparents or not tracing.is_on():
        yield
        return
    from opentelemetry import trace  # noqa: PLC0415 - it is in an extra

    from pybroker import spans  # noqa: PLC0415

    span = spans.begin(operation, service, [context for _, context in traceparents])
    span.set_attribute("messaging.batch.message_count", len(traceparents))
    with trace.use_span(span, end_on_exit=True):
        yield


def on_its_way(service: str, traceparents: Sequence[Traceparent], answer: Task[Ack], began: int) -> None:
    """Make the span of a batch that was posted, which ends with its answer; `began` in nanoseconds."""
    if not traceparents or not tracing.is_on():
        return
    from pybroker import spans  # noqa: PLC0415 - what it needs is in an extra

    attributes = {"messaging.batch.message_count": len(traceparents)}
    contexts = [context for _, context in traceparents]
    span = spans.begin("transmit", service, contexts, attributes=attributes, start_time=began)

    def settle(done: Task[Ack]) -> None:
        if done.cancelled():
            span.set_attribute("error.type", "cancelled")
        elif (error := done.exception()) is not None:
            span.record_exception(error)
            span.set_attribute("error.type", type(error).__name__)
        span.end()

    answer.add_done_callback(settle)
