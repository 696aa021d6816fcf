"""A result looks as sqlcmd's does, and nothing in it can move a terminal's cursor."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from pybroker.tsql.showing import counted, table, text


def test_a_table_has_dashes_and_its_count() -> None:
    shown = list(table(["name", "quantity", ""], [("//trade/Entry", 5, None), ("x", None, "a")]))
    assert shown == [
        "name          quantity",
        "------------- -------- ----",
        "//trade/Entry        5 NULL",
        "x                 NULL a",
        "",
        "(2 rows affected)",
    ]
    assert list(counted(0)) == ["", "(0 rows affected)"]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (b"<trade>\xc3\xa4</trade>", "<trade>ä</trade>"),
        (b"\x00\xff", "0x00FF"),
        (b"a\x1b[2J", "0x611B5B324A"),
        ("a\x1b[2J", "a\ufffd[2J"),
        (True, "1"),
        (Decimal("1.50"), "1.50"),
        (uuid.UUID(int=10), "00000000-0000-0000-0000-00000000000A"),
        (datetime(2026, 1, 2, 3, 4, 5, 6789, UTC), "2026-01-02 03:04:05.006"),
    ],
)
def test_a_value_is_written_as_sql_server_writes_it(value: object, shown: str) -> None:
    assert text(value) == shown


def test_a_long_value_is_cut_at_256_characters() -> None:
    lines = list(table(["a", "b"], [("x" * 1000, "y")]))
    assert lines[2] == "x" * 256 + " y"
