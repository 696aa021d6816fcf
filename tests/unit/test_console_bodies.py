"""How the console shows the start of a body: laid out where it can be, and never much longer than it is."""

from __future__ import annotations

import pytest

pytest.importorskip("jinja2", reason="the extra console is not installed")

from pybroker.console.bodies import shown


@pytest.mark.parametrize(
    ("body", "wanted", "form", "text"),
    [
        (b'{"id":7}', None, "json", '{\n  "id": 7\n}'),
        (b"<a><b>1</b></a>", None, "xml", "<a>\n  <b>1</b>\n</a>"),
        (b"<a><b>1</b></a>", "text", "text", "<a><b>1</b></a>"),
        (b"<a><b>1</b></a>", "json", "text", "<a><b>1</b></a>"),
        (b'{"id":7}', "xml", "text", '{"id":7}'),
        (b"<a><b>1</b>", None, "text", "<a><b>1</b>"),
        (b'{"id":7}', "nonsense", "json", '{\n  "id": 7\n}'),
        ("zażółć".encode()[:-1], None, "text", "zażół"),
        (b"\x00<a/>", "xml", "hex", "00000000  00 3c 61 2f 3e                                   .<a/>"),
        (b"", None, "text", ""),
        (b"<a>&#x202e;</a>", None, "xml", "<a>&#x202e;</a>"),
        (rb'["\ud800\u202e\u009b\u00f3"]', None, "json", '[\n  "\\ud800\\u202e\\u009bó"\n]'),
        (rb'["\ud83d\ude00\u2028\udb40\udc01"]', None, "json", '[\n  "😀\\u2028\\udb40\\udc01"\n]'),
    ],
)
def test_a_body_is_shown_as_what_it_is(body: bytes, wanted: str | None, form: str, text: str) -> None:
    assert shown(body, wanted) == (form, text)


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 900 + b"1," * 32_000 + b"1" + b"]" * 900,
        b"<a>" * 200 + b"<b/>" * 16_000 + b"</a>" * 200,
        b"[" * 60_000,
        b'<!DOCTYPE a [<!ENTITY x "' + b"x" * 100 + b'"><!ENTITY y "' + b"&x;" * 100 + b'">]><a>&y;</a>',
        b'<!DOCTYPE a [<!ENTITY f SYSTEM "file:///etc/passwd">]><a>&f;</a>',
    ],
)
def test_a_hostile_body_stays_short(body: bytes) -> None:
    _, text = shown(body[:65_536], None)
    assert len(text) <= 1_000_000
    assert "root:" not in text


def test_a_body_in_another_encoding_than_it_declares_is_text() -> None:
    body = b'<?xml version="1.0" encoding="UTF-16"?><a/>'
    assert shown(body, None)[0] in {"text", "xml"}
