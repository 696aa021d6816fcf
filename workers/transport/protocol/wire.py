"""Bytes to frames and back, no I/O. Every field is described in docs/wire-format.md."""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated

import msgspec

from pybroker.workers.transport.protocol import arrays
from pybroker.workers.transport.protocol.envelope import SEAL_BYTES
from pybroker.workers.transport.protocol.rows import Encryption  # noqa: TC001 - msgspec resolves it

if TYPE_CHECKING:
    from pybroker.workers.transport.protocol.rows import Taken

PROTOCOL_VERSION = 1
OLDEST_PROTOCOL_VERSION = 1

# Of one batch: so many are delivered in one transaction, and while they are, others wait for the slot.
MAXIMUM_DIALOGS = 1000
# A batch has 1 MiB of bodies and 1,000 dialogs at most, and what is larger crosses in pieces.
MAXIMUM_FRAME_BYTES = 2**24
# What every peer has to take: more than the largest batch that a sender makes, however long its names are.
LEAST_MAXIMUM_FRAME_BYTES = 2**22
# All that may come from a peer before it has said who it is.
HELLO_FRAME_BYTES = 64 * 1024

# How many forwarders a batch may pass, and milliseconds for which they may hold it all in all: its sender
# gives up waiting for an answer then.
HOPS = 16
TIME_TO_LIVE_MS = 120_000

# The longest text of a refusal.
TEXT_CHARACTERS = 4000

_PREFIX = struct.Struct(">I")
_KINDS = frozenset("MEX")
# Of a batch that only asks whether both sides of its dialogs remember the same.
QUESTION = "P"
_TIMESTAMPTZ_BYTES = 8

Guid = Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]
Positive = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
Number = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Text = Annotated[str, msgspec.Meta(max_length=TEXT_CHARACTERS)]
# A message's place in its batch, from 1, and the W3C trace context that it has.
TRACEPARENT_CHARACTERS = 55
# Of one batch: no sender here makes one of more messages.
MAXIMUM_TRACEPARENTS = 1000
Traceparent = tuple[
    Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)],
    Annotated[str, msgspec.Meta(min_length=TRACEPARENT_CHARACTERS, max_length=TRACEPARENT_CHARACTERS)],
]
KeyExchange = Annotated[bytes, msgspec.Meta(min_length=1, max_length=8192)]


class ProtocolError(Exception):
    """The peer sent what is no frame of this protocol; nothing more can be understood on this connection."""


class Hello(msgspec.Struct, tag="hello", tag_field="frame", frozen=True):
    """The first frame of each side, the accepting side's first."""

    version: Positive
    oldest_version: Positive
    broker_instances: Annotated[list[Guid], msgspec.Meta(max_length=1000)]
    encryption: Encryption
    window: Annotated[int, msgspec.Meta(ge=1, le=1024)]
    maximum_frame_bytes: Annotated[int, msgspec.Meta(ge=LEAST_MAXIMUM_FRAME_BYTES, le=2**32 - 1)]
    software: Annotated[str, msgspec.Meta(max_length=100)] = ""
    arbitration_id: Guid | None = None
    # How many dialogs a batch may have; who doesn't say it takes as many as there are.
    maximum_dialogs: Positive = MAXIMUM_DIALOGS
    # Whether batches may bring the trace contexts of their messages.
    takes_traceparents: bool = False


class Challenge(msgspec.Struct, tag="challenge", tag_field="frame", frozen=True):
    """The first frame of each side without TLS, the connecting side's first: who it claims to be."""

    encryption: Encryption
    certificate: Annotated[bytes, msgspec.Meta(min_length=1, max_length=HELLO_FRAME_BYTES // 2)]
    nonce: Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]


class Proof(msgspec.Struct, tag="proof", tag_field="frame", frozen=True):
    """That who has sent a Challenge has its certificate's key."""

    signature: Annotated[bytes, msgspec.Meta(min_length=1, max_length=4096)]


class Batch(msgspec.Struct, tag="batch", tag_field="frame", frozen=True):
    """Messages of some dialogs for one destination; the arrays are PostgreSQL's binary arrays."""

    number: Positive
    from_broker: Guid
    to_service: Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
    to_broker: Guid | None
    conversation_ids: bytes
    from_initiator: bytes
    from_services: bytes
    to_services: bytes
    to_brokers: bytes
    contracts: bytes
    expirations: bytes
    encrypted: bytes
    type_names: bytes
    dialog_index: bytes
    type_index: bytes
    sequence_numbers: bytes
    kinds: str
    bodies: bytes
    acknowledged: bytes = b""
    sent_at: bytes = b""
    envelopes: bytes = b""
    key_exchanges: Annotated[list[KeyExchange], msgspec.Meta(max_length=64)] = []
    hops_remaining: Annotated[int, msgspec.Meta(ge=0, le=255)] = HOPS
    time_to_live_ms: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] = TIME_TO_LIVE_MS
    time_consumed_ms: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] = 0
    after: Positive | None = None
    has_restarted: bool = False
    # In the order of the messages; of most there is none.
    traceparents: Annotated[list[Traceparent], msgspec.Meta(max_length=MAXIMUM_TRACEPARENTS)] = []


class Fragment(Batch, tag="fragment", tag_field="frame", frozen=True, kw_only=True):
    """A batch of one message, of whose body it has a piece."""

    piece_at: Annotated[int, msgspec.Meta(ge=0, le=2**30)]
    total_bytes: Annotated[int, msgspec.Meta(ge=0, le=2**30)]


class Ack(msgspec.Struct, tag="ack", tag_field="frame", frozen=True):
    """What became of a batch, one array element for each of its dialogs.

    `stored_bytes` answers a fragment: so much of the message is there, without a gap.
    """

    number: Positive
    broker_instance: Guid
    next_numbers: bytes
    fault_codes: bytes
    fault_texts: bytes
    fault_is_final: bytes
    stored_bytes: Annotated[int, msgspec.Meta(ge=0, le=2**30)] = 0
    proofs: bytes = b""


class Refusal(msgspec.Struct, tag="refusal", tag_field="frame", frozen=True):
    """A batch that was not taken in, or, without a number, the whole connection."""

    number: Positive | None
    error_number: Number
    text: Text


class Ping(msgspec.Struct, tag="ping", tag_field="frame", frozen=True):
    """A question whether the peer is there, or the answer."""

    is_answer: bool


class Farewell(msgspec.Struct, tag="farewell", tag_field="frame", frozen=True):
    """That this side has every answer that it waited for, and sends no batch any more on this connection."""

    error_number: Number
    text: Text


Frame = Hello | Challenge | Proof | Batch | Fragment | Ack | Refusal | Ping | Farewell

_DIALOG_COLUMNS = {
    "conversation_ids": arrays.UUID,
    "from_initiator": arrays.BOOLEAN,
    "from_services": arrays.TEXT,
    "to_services": arrays.TEXT,
    "to_brokers": arrays.UUID,
    "contracts": arrays.TEXT,
    "expirations": arrays.TIMESTAMPTZ,
    "encrypted": arrays.BOOLEAN,
    "acknowledged": arrays.BIGINT,
}
_MESSAGE_COLUMNS = {
    "dialog_index": arrays.INTEGER,
    "type_index": arrays.INTEGER,
    "sequence_numbers": arrays.BIGINT,
    "bodies": arrays.BYTEA,
    "sent_at": arrays.TIMESTAMPTZ,
}
# Empty where a sender doesn't say it.
_OPTIONAL_COLUMNS = frozenset({"acknowledged", "sent_at"})
_ANSWER_COLUMNS = {
    "next_numbers": arrays.BIGINT,
    "fault_codes": arrays.INTEGER,
    "fault_texts": arrays.TEXT,
    "fault_is_final": arrays.BOOLEAN,
}

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Frame)


def encode(frame: Frame, maximum_bytes: int = MAXIMUM_FRAME_BYTES) -> bytearray:
    """Return the bytes of a frame, length prefix included.

    Raises:
        ProtocolError: The frame is larger than `maximum_bytes`, which the peer announced.
    """
    encoded = bytearray(_PREFIX.size)
    _encoder.encode_into(frame, encoded, _PREFIX.size)
    length = len(encoded) - _PREFIX.size
    if length > maximum_bytes:
        raise ProtocolError(f"a frame of {length} bytes, where the peer takes {maximum_bytes}")
    _PREFIX.pack_into(encoded, 0, length)
    return encoded


def decode(payload: bytes | bytearray | memoryview) -> Frame:
    """Return the frame in `payload`, which comes without its length prefix.

    Raises:
        ProtocolError: It is none, a field is missing or out of its range, or arrays differ in length.
    """
    try:
        frame: Frame = _decoder.decode(payload)
        if isinstance(frame, Batch):
            _check_batch(frame)
        elif isinstance(frame, Ack):
            _check_ack(frame)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ProtocolError(f"a malformed frame: {error}") from error
    return frame


def dialog_columns(batch: Batch | Taken) -> list[list[bytes | None]]:
    """Return the elements of each array of dialogs, in the order of the columns.

    Raises:
        ArrayError: One is malformed.
    """
    count = arrays.element_count(batch.conversation_ids, arrays.UUID)
    return [
        arrays.to_elements(getattr(batch, name), kind) if getattr(batch, name) else [None] * count
        for name, kind in _DIALOG_COLUMNS.items()
    ]


def message_times(batch: Batch | Taken) -> list[bytes | None]:
    """Return when each message was sent, as a timestamptz of 8 bytes; None where that is not told.

    Raises:
        ArrayError: They are malformed.
    """
    if not batch.sent_at:
        return [None] * len(batch.kinds)
    times = arrays.to_elements(batch.sent_at, arrays.TIMESTAMPTZ)
    if any(time is not None and len(time) != _TIMESTAMPTZ_BYTES for time in times):
        raise arrays.ArrayError("a timestamptz is of another size")
    return times


def columns_of_dialogs(columns: list[list[bytes | None]]) -> dict[str, bytes]:
    """Return the arrays of dialogs with these elements, given in the order of `dialog_columns`."""
    return {
        name: arrays.from_elements(elements, kind)
        for (name, kind), elements in zip(_DIALOG_COLUMNS.items(), columns, strict=True)
    }


class FrameDecoder:
    """Cuts a stream of bytes into frames.

    Attributes:
        maximum_bytes: The largest frame, without its prefix, that is accepted from now on.
    """

    def __init__(self, maximum_bytes: int = HELLO_FRAME_BYTES) -> None:
        self.maximum_bytes = maximum_bytes
        self._buffer = bytearray()

    @property
    def unfinished(self) -> int:
        """Bytes of a frame whose end has not come."""
        return len(self._buffer)

    def feed(self, data: bytes) -> None:
        """Add what arrived."""
        self._buffer += data

    def next_frame(self) -> Frame | None:
        """Return the next complete frame, or None while more bytes are needed.

        Raises:
            ProtocolError: The frame is malformed or too large. The decoder is of no more use.
        """
        if len(self._buffer) < _PREFIX.size:
            return None
        (length,) = _PREFIX.unpack_from(self._buffer)
        if length > self.maximum_bytes:
            raise ProtocolError(f"a frame of {length} bytes, where {self.maximum_bytes} are accepted")
        end = _PREFIX.size + length
        if len(self._buffer) < end:
            return None
        with memoryview(self._buffer) as view, view[_PREFIX.size : end] as payload:
            frame = decode(payload)
        del self._buffer[:end]
        return frame

    def end(self) -> None:
        """Note that nothing more arrives.

        Raises:
            ProtocolError: A frame was cut.
        """
        if self._buffer:
            raise ProtocolError("the connection ended inside of a frame")


def _common_count(frame: Batch | Ack, columns: dict[str, int]) -> int:
    counts = {
        arrays.element_count(getattr(frame, name), kind)
        for name, kind in columns.items()
        if getattr(frame, name) or name not in _OPTIONAL_COLUMNS
    }
    if len(counts) != 1:
        raise ValueError(f"{', '.join(columns)} differ in length")
    return counts.pop()


def _check_ack(ack: Ack) -> None:
    dialogs = _common_count(ack, _ANSWER_COLUMNS)
    if ack.proofs and arrays.element_count(ack.proofs, arrays.BYTEA) != dialogs:
        raise ValueError("proofs has not one element for each dialog")


def _check_batch(batch: Batch) -> None:
    dialogs = _common_count(batch, _DIALOG_COLUMNS)
    messages = _common_count(batch, _MESSAGE_COLUMNS)
    types = arrays.element_count(batch.type_names, arrays.TEXT)
    if batch.envelopes and arrays.element_count(batch.envelopes, arrays.BYTEA) != dialogs:
        raise ValueError("envelopes has not one element for each dialog")
    if isinstance(batch, Fragment):
        if (dialogs, messages, types, batch.kinds) != (1, 1, 1, "M"):
            raise ValueError("a fragment is not of one message")
        (piece,) = arrays.to_elements(batch.bodies, arrays.BYTEA)
        if batch.envelopes and arrays.to_elements(batch.envelopes, arrays.BYTEA) != [None]:
            # Sealed, it is longer than what is in it, and its seal covers where it lies.
            piece = (piece or b"")[SEAL_BYTES:]
        if batch.piece_at + len(piece or b"") > batch.total_bytes:
            raise ValueError("a piece lies outside of its message")
    is_question = batch.kinds.startswith(QUESTION) and not batch.kinds.strip(QUESTION)
    if len(batch.kinds) != messages or not (is_question or _KINDS.issuperset(batch.kinds)):
        raise ValueError("kinds is not one of the letters M, E and X for each message, nor P for all")
    places = [place for place, _ in batch.traceparents]
    if places and (max(places) > messages or any(one >= other for one, other in pairwise(places))):
        raise ValueError("traceparents are not of messages of the batch in their order")
    # An index that points nowhere would make the message vanish from the joins of `deliver`.
    for name, highest in (("dialog_index", dialogs), ("type_index", types)):
        indexes = arrays.to_integers(getattr(batch, name), arrays.INTEGER)
        if indexes and not (min(indexes) >= 1 and max(indexes) <= highest):
            raise ValueError(f"{name} points outside of 1 to {highest}")
