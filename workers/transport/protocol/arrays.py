"""PostgreSQL's binary arrays and records: bytes to Python lists and back, no I/O.

A batch crosses Python as the arrays that the database wrote. Only the few columns that the transport itself
has to read are taken apart here.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

BOOLEAN = 16
BYTEA = 17
BIGINT = 20
INTEGER = 23
TEXT = 25
TIMESTAMPTZ = 1184
UUID = 2950

_EMPTY = struct.Struct(">iiI")
_HEADER = struct.Struct(">iiIii")
_LENGTH = struct.Struct(">i")
_FIELD = struct.Struct(">Ii")
# Of an integer with its length before it, and the bytes of the integer alone.
_PAIR = {BIGINT: (struct.Struct(">iq"), 8), INTEGER: (struct.Struct(">ii"), 4)}


class ArrayError(ValueError):
    """Bytes that are no one-dimensional PostgreSQL array of the expected type."""


def element_count(array: bytes, element_type: int) -> int:
    """Return the number of elements that the header promises.

    Raises:
        ArrayError: The header is not that of such an array, one-dimensional and from 1, or it promises more
            elements than the bytes could hold.
    """
    if len(array) == _EMPTY.size:
        dimensions, flags, kind = _EMPTY.unpack(array)
        count, lower = 0, 1
        expected = 0
    elif len(array) >= _HEADER.size:
        dimensions, flags, kind, count, lower = _HEADER.unpack_from(array)
        expected = 1
    else:
        raise ArrayError("shorter than the header of an array")
    if dimensions != expected or lower != 1 or flags not in (0, 1):
        raise ArrayError("not a one-dimensional array from 1")
    if kind != element_type:
        raise ArrayError(f"elements of type {kind} where {element_type} belongs")
    if count < expected or count * _LENGTH.size > len(array) - _HEADER.size * expected:
        raise ArrayError("the number of elements does not match the length")
    return count


def has_nulls(array: bytes) -> bool:
    """Return whether an array that the database wrote has an element that is null, by its header alone."""
    return len(array) >= _HEADER.size and _HEADER.unpack_from(array)[1] == 1


def to_elements(array: bytes, element_type: int) -> list[bytes | None]:
    """Return the elements as the bytes of their binary format, None for a null.

    Raises:
        ArrayError: The bytes are no such array.
    """
    count = element_count(array, element_type)
    elements: list[bytes | None] = []
    position, end = (_HEADER.size if count else _EMPTY.size), len(array)
    if count:
        # Most columns of a batch have elements of one length: those are read in one go.
        (length,) = _LENGTH.unpack_from(array, position)
        if length >= 0 and end == position + count * (_LENGTH.size + length):
            # Not one format for all: struct keeps those, and who sends the column says how long it is.
            pairs = list(struct.Struct(f">i{length}s").iter_unpack(memoryview(array)[position:]))
            if all(size == length for size, _ in pairs):
                return [element for _, element in pairs]
    for _ in range(count):
        if position + _LENGTH.size > end:
            raise ArrayError("ends inside of an element")
        (length,) = _LENGTH.unpack_from(array, position)
        position += _LENGTH.size
        if length == -1:
            elements.append(None)
            continue
        if length < 0 or position + length > end:
            raise ArrayError("ends inside of an element")
        elements.append(array[position : position + length])
        position += length
    if position != end:
        raise ArrayError("bytes follow the last element")
    return elements


def to_fields(record: bytes) -> list[bytes | None]:
    """Return the fields of a record that the database wrote, in their binary format, None for a null."""
    (count,) = _LENGTH.unpack_from(record)
    fields: list[bytes | None] = []
    position = _LENGTH.size
    for _ in range(count):
        _, length = _FIELD.unpack_from(record, position)
        position += _FIELD.size
        fields.append(None if length < 0 else record[position : position + length])
        position += max(length, 0)
    return fields


def to_integers(array: bytes, element_type: int) -> list[int]:
    """Return the elements of an integer[] or bigint[] without nulls.

    Raises:
        ArrayError: The bytes are no such array, or an element is null.
    """
    count = element_count(array, element_type)
    pair, width = _PAIR[element_type]
    if not count:
        return []
    if len(array) != _HEADER.size + count * (_LENGTH.size + width):
        raise ArrayError("an integer is null or of another size")
    # Every column of a batch's messages comes by here.
    pairs = list(pair.iter_unpack(memoryview(array)[_HEADER.size :]))
    if any(size != width for size, _ in pairs):
        raise ArrayError("an integer is null or of another size")
    return [integer for _, integer in pairs]


def to_nullable_integers(array: bytes, element_type: int) -> list[int | None]:
    """Return the elements of an integer[] or bigint[], None for a null.

    Raises:
        ArrayError: The bytes are no such array.
    """
    _, width = _PAIR[element_type]
    integers: list[int | None] = []
    for element in to_elements(array, element_type):
        if element is not None and len(element) != width:
            raise ArrayError("an integer is of another size")
        integers.append(None if element is None else int.from_bytes(element, "big", signed=True))
    return integers


def to_booleans(array: bytes) -> list[bool]:
    """Return the elements of a boolean[]; a null is false.

    Raises:
        ArrayError: The bytes are no such array.
    """
    elements = to_elements(array, BOOLEAN)
    if any(element not in (None, b"\0", b"\1") for element in elements):
        raise ArrayError("a boolean is neither true nor false")
    return [element == b"\1" for element in elements]


def to_texts(array: bytes) -> list[str | None]:
    """Return the elements of a text[] in UTF-8.

    Raises:
        ArrayError: The bytes are no such array.
    """
    try:
        return [None if element is None else element.decode("utf-8") for element in to_elements(array, TEXT)]
    except UnicodeDecodeError as error:
        raise ArrayError("a text is not UTF-8") from error


def from_elements(elements: Sequence[bytes | None], element_type: int) -> bytes:
    """Return the array of these elements, given in their binary format."""
    if not elements:
        return _EMPTY.pack(0, 0, element_type)
    parts = [_HEADER.pack(1, int(None in elements), element_type, len(elements), 1)]
    for element in elements:
        if element is None:
            parts.append(_LENGTH.pack(-1))
        else:
            parts += (_LENGTH.pack(len(element)), element)
    return b"".join(parts)


def from_integers(integers: Iterable[int | None], element_type: int) -> bytes:
    """Return the integer[] or bigint[] of these integers."""
    _, width = _PAIR[element_type]
    return from_elements(
        [None if integer is None else integer.to_bytes(width, "big", signed=True) for integer in integers],
        element_type,
    )


def from_texts(texts: Iterable[str | None]) -> bytes:
    """Return the text[] of these texts, in UTF-8."""
    return from_elements([None if text is None else text.encode() for text in texts], TEXT)
