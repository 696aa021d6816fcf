"""What the worker and the process that examines bodies say to each other: frames of a length and msgpack."""

from __future__ import annotations

import msgspec

LENGTH_BYTES = 4


class Schemas(msgspec.Struct, tag=True):
    """Read a collection, and keep it under a number."""

    number: int
    documents: list[str]


class Body(msgspec.Struct, tag=True):
    """Examine a body; by the collection kept under that number, if one is given."""

    content: bytes
    schemas: int | None


class Answer(msgspec.Struct, tag=True):
    """What is wrong: Service Broker's number of the error and the reason; the number 0 is nothing."""

    number: int
    reason: str


_QUESTION = msgspec.msgpack.Decoder(Schemas | Body)
_ANSWER = msgspec.msgpack.Decoder(Answer)


def frame(message: Schemas | Body | Answer) -> bytes:
    """Return a message as it is written."""
    content = msgspec.msgpack.encode(message)
    return len(content).to_bytes(LENGTH_BYTES, "big") + content


def question(content: bytes) -> Schemas | Body:
    """Return the question of a frame, given without its length."""
    asked: Schemas | Body = _QUESTION.decode(content)
    return asked


def answer(content: bytes) -> Answer:
    """Return the answer of a frame, given without its length."""
    return _ANSWER.decode(content)
