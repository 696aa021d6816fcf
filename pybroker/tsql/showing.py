"""Results as sqlcmd shows them: columns below a line of dashes, and how many rows there were."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_MOST_WIDTH = 256


def table(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> Iterator[str]:
    """Yield the lines of a result set; columns are as wide as what they hold, up to 256 characters."""
    written = [[text(value) for value in row] for row in rows]
    widths = [
        min(_MOST_WIDTH, max([len(name), 1, *(len(row[at]) for row in written)]))
        for at, name in enumerate(names)
    ]
    numeric = [
        any(_is_number(row[at]) for row in rows) and all(_is_number(row[at], or_null=True) for row in rows)
        for at in range(len(names))
    ]
    yield _line(names, widths, [False] * len(names))
    yield " ".join("-" * width for width in widths)
    for row in written:
        yield _line(row, widths, numeric)
    yield from counted(len(rows))


def counted(count: int) -> Iterator[str]:
    """Yield how many rows a statement had to do with."""
    yield ""
    yield f"({count} rows affected)"


def text(value: Any) -> str:
    """Write one value; bytes that are text as text, with no character that moves a terminal's cursor."""
    match value:
        case None:
            return "NULL"
        case bool():
            return "1" if value else "0"
        case bytes() | memoryview():
            return _body(bytes(value))
        case UUID():
            return str(value).upper()
        case datetime():
            return value.strftime("%Y-%m-%d %H:%M:%S.") + f"{value.microsecond // 1000:03}"
        case _:
            return printable(str(value))


def _body(value: bytes) -> str:
    try:
        decoded = value.decode("utf-8")
    except UnicodeDecodeError:
        return "0x" + value.hex().upper()
    is_text = all(character.isprintable() or character in "\t\r\n" for character in decoded)
    return printable(decoded) if is_text else "0x" + value.hex().upper()


def printable(value: str) -> str:
    """Return a text without what moves a terminal's cursor; its lines and tabs stay."""
    return "".join(one if one.isprintable() or one in "\t\n" else "�" for one in value)


def _is_number(value: Any, *, or_null: bool = False) -> bool:
    if value is None:
        return or_null
    return isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)


def _line(values: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]) -> str:
    return " ".join(
        value[:width].rjust(width) if right else value[:width].ljust(width)
        for value, width, right in zip(values, widths, numeric, strict=True)
    ).rstrip()
