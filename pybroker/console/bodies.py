"""The start of a message's body as a person reads it: JSON, XML, text or hexadecimal."""

from __future__ import annotations

import codecs
import json
from typing import TYPE_CHECKING

from lxml import etree

if TYPE_CHECKING:
    from collections.abc import Callable

FORMS = ("text", "json", "xml", "hex")
_ROW = 16
# What is laid out grows by its depth: a short body of many brackets to tens of megabytes.
_LONGEST = 1_000_000


def shown(start: bytes, form: str | None) -> tuple[str, str]:
    """Return the form and the text; without a wish JSON, then XML, then text, then hexadecimal."""
    text = _text(start)
    if text is None or form == "hex":
        return "hex", _hexadecimal(start)
    for name, lay_out in (("json", _json), ("xml", _xml)):
        if form == name or form not in FORMS:
            laid_out = lay_out(text)
            if laid_out is not None and len(laid_out) <= _LONGEST:
                return name, laid_out
    return "text", text


def _text(start: bytes) -> str | None:
    """Decode UTF-8 whose last character may be cut off; None for what is no text."""
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(start)
    except UnicodeDecodeError:
        return None
    return text if all(_is_plain(character) for character in text) else None


def _is_plain(character: str) -> bool:
    return character.isprintable() or character in "\n\r\t"


def _plain(text: str, written: Callable[[str], str]) -> str:
    """Write again as an escape what a body had as one.

    Half a surrogate pair is no text, and a mark of direction would turn the rest of the page.
    """
    return "".join(character if _is_plain(character) else written(character) for character in text)


def _json(text: str) -> str | None:
    # A few bytes of brackets nest deeper than Python recurses.
    try:
        laid_out = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return None
    return _plain(laid_out, lambda character: json.dumps(character)[1:-1])


def _xml(text: str) -> str | None:
    # No entity is resolved and nothing is fetched.
    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, remove_blank_text=True)
    try:
        document = etree.fromstring(text.encode(), parser)
    except (etree.XMLSyntaxError, ValueError):
        return None
    laid_out = etree.tostring(document, encoding="unicode", pretty_print=True).rstrip()
    return _plain(laid_out, lambda character: f"&#x{ord(character):x};")


def _hexadecimal(start: bytes) -> str:
    rows = []
    for place in range(0, len(start), _ROW):
        row = start[place : place + _ROW]
        seen = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)  # noqa: PLR2004 - ASCII
        rows.append(f"{place:08x}  {row.hex(' '):<47}  {seen}")
    return "\n".join(rows)
