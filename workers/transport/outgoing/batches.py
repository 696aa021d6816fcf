"""What a sender makes of what it has taken, and reads from the answer; no I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pybroker.workers.transport.protocol import arrays, faults, wire
from pybroker.workers.transport.protocol.faults import TransportError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Collection, Iterable, Mapping
    from uuid import UUID

    from pybroker.workers.transport.dialog_security.sealing import Sealed
    from pybroker.workers.transport.protocol.rows import Destination, Taken

_LARGEST_CODE = 2**31 - 1


def batch_of(
    number: int,
    destination: Destination,
    taken: Taken,
    from_broker: UUID,
    *,
    sealed: Sealed | None,
    after: int | None = None,
    has_restarted: bool = False,
    traceparents: list[wire.Traceparent] | None = None,
) -> wire.Batch:
    """Return the frame of a batch, with the number that it has on its connection."""
    return wire.Batch(
        number=number,
        from_broker=from_broker.bytes,
        to_service=destination.service_name,
        to_broker=None if destination.broker_instance is None else destination.broker_instance.bytes,
        conversation_ids=taken.conversation_ids,
        from_initiator=taken.from_initiator,
        from_services=taken.from_services,
        to_services=taken.to_services,
        to_brokers=taken.to_brokers,
        contracts=taken.contracts,
        expirations=taken.expirations,
        encrypted=taken.encrypted,
        type_names=taken.type_names,
        dialog_index=taken.dialog_index,
        type_index=taken.type_index,
        sequence_numbers=taken.sequence_numbers,
        kinds=taken.kinds,
        bodies=taken.bodies if sealed is None else sealed.bodies,
        envelopes=b"" if sealed is None else sealed.envelopes,
        key_exchanges=[] if sealed is None else sealed.key_exchanges,
        acknowledged=taken.acknowledged,
        sent_at=taken.sent_at,
        after=after,
        has_restarted=has_restarted,
        traceparents=traceparents or [],
    )


async def proven(answer: Awaitable[wire.Ack], sealed: Sealed | None) -> wire.Ack:
    """Return what of an answer is the far broker's own, where dialogs are sealed.

    Raises:
        TransportError: Nobody knows what became of the batch.
    """
    ack = await answer
    if sealed is None:
        return ack
    try:
        return sealed.proven(ack)
    except arrays.ArrayError as error:
        raise corrupted(error) from error


def corrupted(error: arrays.ArrayError) -> TransportError:
    """Return what is said of an answer that is malformed."""
    return TransportError(faults.CORRUPTED, f"A corrupted answer was received: {error}.")


class End(NamedTuple):
    """Where a batch ends on a dialog: the number after its last message there, and that message's row."""

    next_number: int
    row: int


def ends_of(taken: Taken) -> dict[int, End]:
    """Return where a batch ends on each of its dialogs, by endpoint."""
    endpoint_nos = arrays.to_integers(taken.endpoint_nos, arrays.BIGINT)
    last = dict(zip(arrays.to_integers(taken.dialog_index, arrays.INTEGER), _places(taken), strict=True))
    return {endpoint_nos[dialog - 1]: End(number + 1, row) for dialog, (number, row) in last.items()}


def outcome(
    taken: Taken, ends: Mapping[int, End], ack: wire.Ack
) -> tuple[list[tuple[int, int, int]], list[tuple[int, int, str]], list[tuple[int, int, str]]]:
    """Return, by endpoint: the next number and row id acknowledged, the final faults, the passing ones.

    `ends` is what `ends_of` says of what was taken. A fault has the far broker's number, which is negative,
    and its text.

    The number acknowledged goes no further than the batch: what else the far broker has stored is
    acknowledged with its own rows, as each number stands for one row.
    """
    endpoint_nos = arrays.to_integers(taken.endpoint_nos, arrays.BIGINT)
    next_numbers = arrays.to_nullable_integers(ack.next_numbers, arrays.BIGINT)
    if len(next_numbers) != len(endpoint_nos):
        raise arrays.ArrayError(f"{len(next_numbers)} dialogs where {len(endpoint_nos)} were sent")
    expected = {
        endpoint: number
        for endpoint, number in zip(endpoint_nos, next_numbers, strict=True)
        if number is not None
    }
    acknowledged = {endpoint: ends[endpoint] for endpoint in ends if endpoint in expected}
    if any(expected[endpoint] < end.next_number for endpoint, end in acknowledged.items()):
        acknowledged.clear()
        for dialog, (number, row) in zip(
            arrays.to_integers(taken.dialog_index, arrays.INTEGER), _places(taken), strict=True
        ):
            endpoint = endpoint_nos[dialog - 1]
            if endpoint in expected and number < expected[endpoint]:
                acknowledged[endpoint] = End(number + 1, row)
    failed, waiting = list[tuple[int, int, str]](), list[tuple[int, int, str]]()
    for endpoint_no, code, text, is_final in zip(
        endpoint_nos,
        arrays.to_nullable_integers(ack.fault_codes, arrays.INTEGER),
        arrays.to_texts(ack.fault_texts),
        arrays.to_booleans(ack.fault_is_final),
        strict=True,
    ):
        if code is None:
            continue
        if abs(code) > _LARGEST_CODE:
            raise arrays.ArrayError(f"{code} is no error number")
        reason = text.replace("\0", "") if text else f"{abs(code)}: The far broker did not take the message."
        (failed if is_final else waiting).append((endpoint_no, code, reason))
    # In the order of their endpoints, as all who lock several counters.
    return sorted((endpoint, *end) for endpoint, end in acknowledged.items()), failed, waiting


def is_plain(taken: Taken, acknowledged: Collection[tuple[int, int, int]], ack: wire.Ack) -> bool:
    """Return whether nothing is odd in an answer: of each dialog something is new, the broker is known."""
    return (
        taken.is_plain
        and not taken.kinds.strip("M")
        and len(acknowledged) == arrays.element_count(taken.endpoint_nos, arrays.BIGINT)
        and 0 not in arrays.to_integers(taken.acknowledged, arrays.BIGINT)
        and set(arrays.to_elements(taken.to_brokers, arrays.UUID)) == {ack.broker_instance}
    )


def keyless(waiting: Iterable[tuple[int, int, str]]) -> list[int]:
    """Return the endpoints of the passing faults that are for a key, which the far worker lacks."""
    return [endpoint_no for endpoint_no, code, _ in waiting if abs(code) == faults.NO_MASTER_KEY]


def ahead(taken: Taken, ends: Mapping[int, End], ack: wire.Ack) -> list[tuple[int, int]]:
    """Return endpoint and next number of the dialogs of which the far broker has more than the batch.

    An earlier attempt may have brought it; or this database has gone back to an earlier state.
    """
    return [
        (endpoint, expected)
        for endpoint, expected in zip(
            arrays.to_integers(taken.endpoint_nos, arrays.BIGINT),
            arrays.to_nullable_integers(ack.next_numbers, arrays.BIGINT),
            strict=True,
        )
        if expected is not None and expected > ends[endpoint].next_number
    ]


def _places(taken: Taken) -> Iterable[tuple[int, int]]:
    """Return number and row of each message."""
    return zip(
        arrays.to_integers(taken.sequence_numbers, arrays.BIGINT),
        arrays.to_integers(taken.row_ids, arrays.BIGINT),
        strict=True,
    )
