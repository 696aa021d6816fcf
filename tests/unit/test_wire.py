"""The wire format: what is encoded is decoded again, and nothing else gets through."""

from __future__ import annotations

import struct
import tracemalloc
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.workers.transport import traces
from pybroker.workers.transport.dialog_security import sealing
from pybroker.workers.transport.outgoing import sender
from pybroker.workers.transport.protocol import arrays, rows, slices, wire
from pybroker.workers.transport.protocol.envelope import SEAL_BYTES, Envelope

GUID = bytes(range(16))


def batch(**changes: Any) -> wire.Batch:
    two_texts = arrays.from_texts(["//shop", "//büro"])
    fields: dict[str, Any] = {
        "number": 7,
        "from_broker": GUID,
        "to_service": "//warehouse",
        "to_broker": None,
        "conversation_ids": arrays.from_elements([GUID, GUID[::-1]], arrays.UUID),
        "from_initiator": arrays.from_elements([b"\1", b"\0"], arrays.BOOLEAN),
        "from_services": two_texts,
        "to_services": two_texts,
        "to_brokers": arrays.from_elements([None, GUID], arrays.UUID),
        "contracts": two_texts,
        "expirations": arrays.from_elements([bytes(8), bytes(8)], arrays.TIMESTAMPTZ),
        "encrypted": arrays.from_elements([b"\0", b"\0"], arrays.BOOLEAN),
        "type_names": arrays.from_texts(["//order"]),
        "dialog_index": arrays.from_integers([1, 2, 1], arrays.INTEGER),
        "type_index": arrays.from_integers([1, 1, 1], arrays.INTEGER),
        "sequence_numbers": arrays.from_integers([0, 4, 1], arrays.BIGINT),
        "kinds": "MME",
        "bodies": arrays.from_elements([b"one", b"\0" * 100_000, None], arrays.BYTEA),
        "acknowledged": arrays.from_integers([0, 4], arrays.BIGINT),
        "sent_at": arrays.from_elements([bytes(8)] * 3, arrays.TIMESTAMPTZ),
    }
    return wire.Batch(**{**fields, **changes})


def fragment(piece: bytes, piece_at: int, total_bytes: int) -> wire.Fragment:
    """Return a piece of the one message of one dialog."""
    whole = msgspec.structs.asdict(
        batch(
            conversation_ids=arrays.from_elements([GUID], arrays.UUID),
            from_initiator=arrays.from_elements([b"\1"], arrays.BOOLEAN),
            to_brokers=arrays.from_elements([None], arrays.UUID),
            expirations=arrays.from_elements([bytes(8)], arrays.TIMESTAMPTZ),
            encrypted=arrays.from_elements([b"\0"], arrays.BOOLEAN),
            dialog_index=arrays.from_integers([1], arrays.INTEGER),
            type_index=arrays.from_integers([1], arrays.INTEGER),
            sequence_numbers=arrays.from_integers([0], arrays.BIGINT),
            kinds="M",
            bodies=arrays.from_elements([piece], arrays.BYTEA),
            acknowledged=arrays.from_integers([0], arrays.BIGINT),
            sent_at=arrays.from_elements([bytes(8)], arrays.TIMESTAMPTZ),
            **dict.fromkeys(("from_services", "to_services", "contracts"), arrays.from_texts(["//shop"])),
        )
    )
    return wire.Fragment(**whole, piece_at=piece_at, total_bytes=total_bytes)


def ack(**changes: Any) -> wire.Ack:
    fields: dict[str, Any] = {
        "number": 7,
        "broker_instance": GUID,
        "next_numbers": arrays.from_integers([2, 5], arrays.BIGINT),
        "fault_codes": arrays.from_integers([None, -9749], arrays.INTEGER),
        "fault_texts": arrays.from_texts([None, "9749: The target queue is disabled."]),
        "fault_is_final": arrays.from_elements([b"\0", b"\0"], arrays.BOOLEAN),
    }
    return wire.Ack(**{**fields, **changes})


TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
HELLO = wire.Hello(1, 1, [GUID], "REQUIRED", 16, wire.MAXIMUM_FRAME_BYTES, "pybroker")
FRAMES: list[wire.Frame] = [
    HELLO,
    batch(),
    batch(to_broker=GUID),
    ack(),
    fragment(b"last", 6, 10),
    wire.Refusal(None, 28034, "no CONNECT"),
    wire.Refusal(3, 9736, "disk full"),
    wire.Ping(is_answer=True),
    wire.Farewell(9760, "idle"),
    msgspec.structs.replace(HELLO, arbitration_id=GUID),
    msgspec.structs.replace(HELLO, takes_traceparents=True),
    batch(traceparents=[(1, TRACEPARENT)]),
    msgspec.structs.replace(HELLO, maximum_frame_bytes=wire.LEAST_MAXIMUM_FRAME_BYTES),
]


def decoded(data: bytes, maximum: int = wire.MAXIMUM_FRAME_BYTES) -> list[wire.Frame]:
    decoder = wire.FrameDecoder(maximum)
    decoder.feed(data)
    frames = []
    while (frame := decoder.next_frame()) is not None:
        frames.append(frame)
    decoder.end()
    return frames


@pytest.mark.parametrize("frame", FRAMES, ids=lambda frame: type(frame).__name__)
def test_a_frame_comes_out_as_it_went_in(frame: wire.Frame) -> None:
    assert decoded(bytes(wire.encode(frame))) == [frame]


@given(st.integers(1, 4000))
def test_frames_may_arrive_in_pieces(size: int) -> None:
    stream = b"".join(bytes(wire.encode(frame)) for frame in FRAMES)
    decoder = wire.FrameDecoder(wire.MAXIMUM_FRAME_BYTES)
    frames = []
    for start in range(0, len(stream), size):
        decoder.feed(stream[start : start + size])
        while (frame := decoder.next_frame()) is not None:
            frames.append(frame)
    decoder.end()
    assert frames == FRAMES


def test_the_prefix_is_the_length_in_four_bytes_big_endian() -> None:
    encoded = bytes(wire.encode(wire.Ping(is_answer=False)))
    assert struct.unpack(">I", encoded[:4]) == (len(encoded) - 4,)
    assert msgspec.msgpack.decode(encoded[4:]) == {"frame": "ping", "is_answer": False}


def test_an_oversized_frame_is_refused_before_it_has_arrived() -> None:
    decoder = wire.FrameDecoder(100)
    decoder.feed(struct.pack(">I", 101))
    with pytest.raises(wire.ProtocolError):
        decoder.next_frame()


def test_an_oversized_frame_is_not_sent() -> None:
    with pytest.raises(wire.ProtocolError):
        wire.encode(batch(), 1000)


def test_a_cut_frame_is_noticed() -> None:
    with pytest.raises(wire.ProtocolError):
        decoded(bytes(wire.encode(HELLO))[:-1])


def test_fields_of_later_versions_are_ignored() -> None:
    fields = {"frame": "ping", "is_answer": True, "mood": "fine"}
    assert wire.decode(msgspec.msgpack.encode(fields)) == wire.Ping(is_answer=True)


@pytest.mark.parametrize(
    "frame",
    [
        batch(number=0),
        batch(from_broker=b"short"),
        batch(to_service=""),
        batch(kinds="MM"),
        batch(kinds="MM?"),
        batch(conversation_ids=arrays.from_elements([GUID], arrays.UUID)),
        batch(conversation_ids=arrays.from_texts(["a", "b"])),
        batch(dialog_index=arrays.from_integers([1, 2, 3], arrays.INTEGER)),
        batch(dialog_index=arrays.from_integers([0, 1, 1], arrays.INTEGER)),
        batch(type_index=arrays.from_integers([1, 1, None], arrays.INTEGER)),
        batch(bodies=arrays.from_elements([b"one"], arrays.BYTEA)),
        batch(bodies=b""),
        batch(traceparents=[(0, TRACEPARENT)]),
        batch(traceparents=[(4, TRACEPARENT)]),
        batch(traceparents=[(2, TRACEPARENT), (2, TRACEPARENT)]),
        batch(traceparents=[(1, TRACEPARENT + "0")]),
        batch(traceparents=[(1, "")]),
        fragment(b"last", 7, 10),
        fragment(b"", 11, 10),
        ack(fault_codes=arrays.from_integers([], arrays.INTEGER)),
        ack(broker_instance=None),
        wire.Refusal(1, 2**40, ""),
        wire.Refusal(1, 9736, "x" * 5000),
        msgspec.structs.replace(HELLO, encryption="MAYBE"),
        msgspec.structs.replace(HELLO, window=0),
        msgspec.structs.replace(HELLO, maximum_frame_bytes=wire.LEAST_MAXIMUM_FRAME_BYTES - 1),
    ],
    ids=repr,
)
def test_a_malformed_frame_is_a_protocol_error(frame: wire.Frame) -> None:
    with pytest.raises(wire.ProtocolError):
        decoded(bytes(wire.encode(frame)))


def test_the_largest_batch_and_piece_fit_what_every_peer_takes() -> None:
    """Else a batch that is too large for the far worker would be made again for ever."""
    # Every message on a dialog of its own, with the longest names, the longest envelopes and as many exchanges of keys as may be.
    name, many = "\U0001f4e6" * 128, sender.MAXIMUM_MESSAGES
    names = arrays.from_texts([name] * many)
    envelope = Envelope("F", 63, bytes(60), bytes(8), bytes(16), 2**63 - 1)
    places = arrays.from_integers(list(range(1, many + 1)), arrays.INTEGER)
    # `take` counts 64 bytes for a message beside its body.
    body = bytes(sender.MAXIMUM_BYTES // many - 64 + SEAL_BYTES)
    largest = batch(
        number=2**63 - 1,
        to_service=name,
        to_broker=GUID,
        conversation_ids=arrays.from_elements([GUID] * many, arrays.UUID),
        from_initiator=arrays.from_elements([b"\1"] * many, arrays.BOOLEAN),
        from_services=names,
        to_services=names,
        to_brokers=arrays.from_elements([GUID] * many, arrays.UUID),
        contracts=names,
        expirations=arrays.from_elements([bytes(8)] * many, arrays.TIMESTAMPTZ),
        encrypted=arrays.from_elements([b"\1"] * many, arrays.BOOLEAN),
        type_names=names,
        dialog_index=places,
        type_index=places,
        sequence_numbers=arrays.from_integers([2**62] * many, arrays.BIGINT),
        kinds="M" * many,
        bodies=arrays.from_elements([body] * many, arrays.BYTEA),
        acknowledged=arrays.from_integers([2**62] * many, arrays.BIGINT),
        sent_at=arrays.from_elements([bytes(8)] * many, arrays.TIMESTAMPTZ),
        traceparents=[(place, TRACEPARENT) for place in range(1, many + 1)],
        envelopes=arrays.from_elements([msgspec.msgpack.encode(envelope)] * many, arrays.BYTEA),
        # More than two RSA blocks of 2,048 bytes and what names their certificates.
        key_exchanges=[bytes(4400)] * sealing.MOST_KEY_EXCHANGES,
        after=2**63 - 1,
    )
    encoded = wire.encode(largest, wire.LEAST_MAXIMUM_FRAME_BYTES)
    assert len(encoded) > 3 * 2**20
    assert decoded(bytes(encoded), wire.LEAST_MAXIMUM_FRAME_BYTES) == [largest]
    # One piece goes alone, with what is told of one dialog.
    assert sender.PIECE_BYTES + SEAL_BYTES < sender.MAXIMUM_BYTES


def only_protocol_errors(data: bytes) -> None:
    try:
        decoded(data, wire.HELLO_FRAME_BYTES)
    except wire.ProtocolError:
        return


@given(st.binary(max_size=500))
def test_any_bytes_decode_or_are_a_protocol_error(data: bytes) -> None:
    only_protocol_errors(data)
    only_protocol_errors(struct.pack(">I", len(data)) + data)


nested = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.text(max_size=20)
    | st.binary(max_size=60),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)


@given(st.sampled_from(FRAMES), st.data())
def test_any_value_in_any_field_decodes_or_is_a_protocol_error(
    frame: wire.Frame, data: st.DataObject
) -> None:
    fields = msgspec.msgpack.decode(bytes(wire.encode(frame))[4:])
    fields[data.draw(st.sampled_from(sorted(fields)))] = data.draw(nested)
    payload = msgspec.msgpack.encode(fields)
    only_protocol_errors(struct.pack(">I", len(payload)) + payload)


@given(st.sampled_from(FRAMES), st.data())
def test_a_damaged_frame_decodes_or_is_a_protocol_error(frame: wire.Frame, data: st.DataObject) -> None:
    encoded = wire.encode(frame)
    for _ in range(data.draw(st.integers(1, 4))):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    only_protocol_errors(bytes(encoded))


@pytest.mark.parametrize("header", [b"\xdd", b"\xdf", b"\xc6", b"\xdb"])
def test_a_count_of_what_does_not_follow_takes_no_memory(header: bytes) -> None:
    """Four billion elements, pairs, bytes and characters are announced, in fields with a limit and without."""
    frames = [
        b"\x82"
        + msgspec.msgpack.encode("frame")
        + msgspec.msgpack.encode(kind)
        + field
        + header
        + b"\xff" * 4
        for kind, name in (("hello", "broker_instances"), ("batch", "bodies"), ("batch", "unknown"))
        for field in [msgspec.msgpack.encode(name)]
    ]
    tracemalloc.start()
    try:
        for frame in frames:
            with pytest.raises(wire.ProtocolError):
                wire.decode(frame)
        array = arrays.from_elements([b"x"], arrays.BYTEA)
        with pytest.raises(arrays.ArrayError):
            arrays.to_elements(array[:12] + b"\x7f\xff\xff\xff" + array[16:], arrays.BYTEA)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_deep_nesting_is_a_protocol_error() -> None:
    payload = b"\x91" * 60_000
    with pytest.raises(wire.ProtocolError):
        decoded(struct.pack(">I", len(payload)) + payload)


@given(st.lists(st.none() | st.binary(max_size=50), max_size=20))
def test_array_elements_come_out_as_they_went_in(elements: list[bytes | None]) -> None:
    array = arrays.from_elements(elements, arrays.BYTEA)
    assert arrays.element_count(array, arrays.BYTEA) == len(elements)
    assert arrays.to_elements(array, arrays.BYTEA) == elements


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20))
def test_array_integers_come_out_as_they_went_in(integers: list[int]) -> None:
    array = arrays.from_integers(integers, arrays.BIGINT)
    assert arrays.to_integers(array, arrays.BIGINT) == integers
    assert arrays.to_nullable_integers(array, arrays.BIGINT) == integers


@given(st.lists(st.none() | st.text(max_size=20), max_size=20))
def test_array_texts_come_out_as_they_went_in(texts: list[str | None]) -> None:
    assert arrays.to_texts(arrays.from_texts(texts)) == texts


@given(
    st.binary(max_size=100)
    | st.binary(max_size=60).map(lambda tail: struct.pack(">iiIii", 1, 0, 25, 2, 1) + tail)
)
def test_any_bytes_are_an_array_or_an_array_error(data: bytes) -> None:
    for read in (
        arrays.to_texts,
        arrays.to_booleans,
        lambda array: arrays.to_integers(array, arrays.BIGINT),
        lambda array: arrays.to_nullable_integers(array, arrays.INTEGER),
        lambda array: arrays.to_elements(array, arrays.TEXT),
    ):
        try:
            read(data)
        except arrays.ArrayError:
            continue


def test_only_messages_that_were_stored_get_the_context_that_a_partner_gives_them() -> None:
    """Else he could write into the traces of dialogs that are not his."""
    contexts = [(1, TRACEPARENT), (2, TRACEPARENT), (3, TRACEPARENT)]
    came = batch(traceparents=contexts)

    def stored(next_numbers: list[int | None], codes: list[int | None], part: wire.Batch = came) -> list[int]:
        answer = rows.Delivered(
            arrays.from_integers(next_numbers, arrays.BIGINT),
            arrays.from_integers(codes, arrays.INTEGER),
            arrays.from_texts([None] * len(codes)),
            arrays.from_elements([b"\0"] * len(codes), arrays.BOOLEAN),
        )
        return [one.sequence_number for one in traces.stored(came, part, answer)]

    assert stored([2, 5], [None, None]) == [0, 4, 1]
    assert stored([1, 5], [None, None]) == [0, 4]
    assert stored([2, 5], [-9749, None]) == [4]
    assert stored([None, None], [None, None]) == []
    # What could not be opened is no part of what is delivered.
    assert stored([5], [None], slices.picked(came, [1])) == [4]
