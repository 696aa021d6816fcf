"""The start of a message's body as a person reads it: JSON, XML, text or hexadecimal."""

from __future__ import annotations

import codecs
import json

FORMS = ("text", "json", "hex")
_ROW = 16


def shown(start: bytes, form: str | None) -> tuple[str, str]:
    """Return the form and the text; without a wish JSON, then text, then hexadecimal."""
    text = _text(start)
    if text is None or form == "hex":
        return "hex", _hexadecimal(start)
    if form != "text":
        laid_out = _json(text)
        if laid_out is not None:
            return "json", laid_out
    return "text", text


def _text(start: bytes) -> str | None:
    """Decode UTF-8 whose last character may be cut off; None for what is no text."""
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(start)
    except UnicodeDecodeError:
        return None
    is_plain = all(character.isprintable() or character in "\n\r\t" for character in text)
    return text if is_plain else None


def _json(text: str) -> str | None:
    # A few bytes of brackets nest deeper than Python recurses.
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return None


def _hexadecimal(start: bytes) -> str:
    rows = []
    for place in range(0, len(start), _ROW):
        row = start[place : place + _ROW]
        seen = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)  # noqa: PLR2004 - ASCII
        rows.append(f"{place:08x}  {row.hex(' '):<47}  {seen}")
    return "\n".join(rows)
