"""The parsers that are fuzzed: each takes bytes, and fails if they do anything but be understood or be refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from pybroker.workers.transport.outgoing import batches
from pybroker.workers.transport.protocol import arrays, envelope, slices, wire
from pybroker.workers.transport.protocol.rows import Securities, Taken
from tests.unit.test_wire import FRAMES, GUID, ack, batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

# Bytes of one input; what depends on a frame's length shows by then.
LONGEST = 16_384
KINDS = (
    arrays.UUID,
    arrays.BOOLEAN,
    arrays.TEXT,
    arrays.TIMESTAMPTZ,
    arrays.INTEGER,
    arrays.BIGINT,
    arrays.BYTEA,
)
BATCH = batch(bodies=arrays.from_elements([b"one", b"two", None], arrays.BYTEA))
FIELDS = [name for name in BATCH.__struct_fields__ if isinstance(getattr(BATCH, name), bytes)]
ANSWER = ack()
ANSWERS = [name for name in ANSWER.__struct_fields__ if isinstance(getattr(ANSWER, name), bytes)]
SESSION_KEY, SALT = bytes(range(32)), bytes(16)
ENVELOPE = envelope.Envelope("A", 0, bytes(60), bytes(8), SALT, 1)
SEALED_HEADER = envelope.encode(ENVELOPE)
ENDPOINTS = [1, 2]
COLUMNS = [GUID, b"\1", b"//shop", None]
BODY = b"a secret"


def frames(data: bytes) -> None:
    """A stream, which arrives in two parts."""
    decoder = wire.FrameDecoder(LONGEST)
    try:
        for part in (data[: len(data) // 2], data[len(data) // 2 :]):
            decoder.feed(part)
            while (frame := decoder.next_frame()) is not None:
                again = wire.decode(bytes(wire.encode(frame))[4:])
                # Compared as bytes: a NaN is not itself.
                assert wire.encode(again) == wire.encode(frame)
                used(frame)
        decoder.end()
    except wire.ProtocolError:
        return


def batch_fields(data: bytes) -> None:
    """A batch with other bytes in one of its arrays: the first byte says in which."""
    if data:
        fuzzed(msgspec.structs.replace(BATCH, **{FIELDS[data[0] % len(FIELDS)]: data[1:]}))


def ack_fields(data: bytes) -> None:
    """An answer with other bytes in one of its arrays."""
    if data:
        fuzzed(msgspec.structs.replace(ANSWER, **{ANSWERS[data[0] % len(ANSWERS)]: data[1:]}))


def array(data: bytes) -> None:
    """An array of each type; what is understood is written again as the same."""
    for kind in KINDS:
        try:
            elements = arrays.to_elements(data, kind)
        except arrays.ArrayError:
            continue
        assert len(elements) == arrays.element_count(data, kind)
        assert arrays.to_elements(arrays.from_elements(elements, kind), kind) == elements
    readers: list[Callable[[bytes], Iterable[object]]] = [
        arrays.to_texts,
        arrays.to_booleans,
        lambda of: arrays.to_integers(of, arrays.INTEGER),
        lambda of: arrays.to_integers(of, arrays.BIGINT),
        lambda of: arrays.to_nullable_integers(of, arrays.INTEGER),
    ]
    for read in readers:
        try:
            read(data)
        except arrays.ArrayError:
            continue


def security(data: bytes) -> None:
    """An envelope, a key exchange, and a session key that was kept."""
    decoders: list[Callable[[bytes], Any]] = [envelope.decode_envelope, envelope.decode_key_exchange]
    for decode in decoders:
        try:
            found = decode(data)
        except envelope.SealError:
            continue
        assert decode(envelope.encode(found)) == found
    try:
        envelope.master_keys_of(data)
        # Asked in this order, as the first looks at the length.
        envelope.release(SESSION_KEY, data, GUID)
    except envelope.SealError:
        pass
    envelope.issued_at(data)


def sealed(data: bytes) -> None:
    """A sealed message with changes: each four bytes are a place, and what is there instead.

    Nothing but what was sealed is ever opened, whichever of its parts was changed.
    """
    associated = envelope.associated_data(header(SEALED_HEADER, COLUMNS), (3, "M", bytes(8)), b"//order")
    keys = envelope.BatchKeys(SESSION_KEY, ENVELOPE, from_initiator=True)
    body = keys.seal(0, BODY, associated)
    whole = bytearray(SEALED_HEADER + body)
    for at in range(0, len(data) - 3, 4):
        whole[int.from_bytes(data[at : at + 2], "big") % len(whole)] ^= data[at + 2]
    changed_header, changed_body = bytes(whole[: len(SEALED_HEADER)]), bytes(whole[len(SEALED_HEADER) :])
    try:
        read = envelope.decode_envelope(changed_header)
        opened = envelope.BatchKeys(SESSION_KEY, read, from_initiator=True).open(
            0,
            changed_body,
            envelope.associated_data(header(changed_header, COLUMNS), (3, "M", bytes(8)), b"//order"),
        )
    except envelope.SealError:
        return
    assert (changed_header, changed_body, opened) == (SEALED_HEADER, body, BODY)


TARGETS: dict[str, Callable[[bytes], None]] = {
    "frames": frames,
    "batch_fields": batch_fields,
    "ack_fields": ack_fields,
    "array": array,
    "security": security,
    "sealed": sealed,
}


def header(encoded: bytes, columns: list[bytes | None]) -> bytes:
    """Return the digest that stands for a dialog's header."""
    return envelope.header_digest(encoded, None, GUID, columns)


def fuzzed(frame: wire.Frame) -> None:
    """Send a frame and use what arrives, if it is one."""
    try:
        used(wire.decode(bytes(wire.encode(frame))[4:]))
    except wire.ProtocolError:
        return


def used(frame: wire.Frame) -> None:
    """Do with a frame what a worker does before it asks a database."""
    try:
        if isinstance(frame, wire.Batch):
            count = len(wire.dialog_columns(frame)[0])
            wire.message_times(frame)
            parts = list(slices.cut(frame, Securities.of_all("N", count), 1))
            assert len(parts) == max(count, 1)
            assert sum(len(part.kinds) for part, _ in parts) == len(frame.kinds)
            if frame.envelopes:
                arrays.to_elements(frame.envelopes, arrays.BYTEA)
        elif isinstance(frame, wire.Ack):
            ends = batches.ends_of(TAKEN)
            acknowledged, _, _ = batches.outcome(TAKEN, ends, frame)
            # Nothing counts as acknowledged that was not sent, nor what the far broker says it has not stored.
            told = arrays.to_nullable_integers(frame.next_numbers, arrays.BIGINT)
            for endpoint, number, _ in acknowledged:
                stored = told[ENDPOINTS.index(endpoint)]
                assert stored is not None
                assert number <= min(stored, ends[endpoint].next_number)
            batches.ahead(TAKEN, ends, frame)
    except arrays.ArrayError:
        return


def taken() -> Taken:
    """Return what the batch was made from, in a database whose endpoints are 1 and 2."""
    shared = {
        field: getattr(BATCH, field)
        for field in BATCH.__struct_fields__
        if field in Taken.__dataclass_fields__
    }
    nothing = dict.fromkeys(("owners", "far_users", "bindings", "established", "session_keys"), b"")
    return Taken(
        **shared,
        **nothing,
        endpoint_nos=arrays.from_integers(ENDPOINTS, arrays.BIGINT),
        row_ids=arrays.from_integers([11, 12, 13], arrays.BIGINT),
    )


TAKEN = taken()


def beginnings(name: str) -> list[bytes]:
    """Return inputs from which the fuzzer sets out."""
    if name == "frames":
        encoded = [bytes(wire.encode(frame)) for frame in [*FRAMES, BATCH]]
        return [each for each in encoded if len(each) <= LONGEST]
    if name == "batch_fields":
        return [bytes([place]) + getattr(BATCH, field) for place, field in enumerate(FIELDS)]
    if name == "ack_fields":
        return [bytes([place]) + getattr(ANSWER, field) for place, field in enumerate(ANSWERS)]
    if name == "array":
        return [getattr(BATCH, field) for field in FIELDS]
    if name == "security":
        exchange = envelope.KeyExchange(1, "F", bytes(32), bytes(32), bytes(256), bytes(256))
        kept = envelope.keep((bytes(8), SESSION_KEY), bytes(32), GUID, bytes(8))
        return [SEALED_HEADER, envelope.encode(exchange), kept]
    return [b"\0\0\0\0", bytes(range(64))]
