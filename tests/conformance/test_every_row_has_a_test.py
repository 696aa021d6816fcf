"""`make conformance` may forget no line and call nothing passed that was not run."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from tests.conformance.__main__ import COLOURS, Line, find_tests, markdown_of, names_of, read_lines, table_of


def test_the_list_has_every_row_and_edge_case() -> None:
    expected = [("row", number) for number in range(1, 179)] + [("edge", number) for number in range(1, 97)]
    assert list(read_lines()) == expected


def test_of_every_line_it_was_asked_which_wrong_implementation_its_tests_let_pass() -> None:
    lines = read_lines()
    assert [name for name, line in lines.items() if not line.lets_pass] == []
    for line in lines.values():
        if line.lets_pass.startswith("see row "):
            there = lines["row", int(line.lets_pass.removeprefix("see row ").partition(",")[0])]
            assert not there.lets_pass.startswith("see")


def test_a_test_is_named_by_lines_that_there_are() -> None:
    assert set(find_tests()) <= set(read_lines())


def test_what_is_built_has_a_test() -> None:
    shown = find_tests()
    assert [name for name, line in read_lines().items() if name not in shown and not line.comes_with] == []


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("test_row_027_retention", {("row", 27)}),
        ("test_rows_056_057_in_order[postgresql-18]", {("row", 56), ("row", 57)}),
        ("test_row_065_edge_007_unchanged", {("row", 65), ("edge", 7)}),
        ("test_edges_012_013_of_100_messages", {("edge", 12), ("edge", 13)}),
        ("test_a_row_027_that_is_none", set()),
    ],
)
def test_the_name_of_a_test_says_what_it_shows(name: str, lines: set[tuple[str, int]]) -> None:
    assert names_of(name) == lines


@pytest.mark.parametrize(
    ("outcomes", "tests", "comes_with", "difference", "result"),
    [
        ({"passed"}, {"t"}, None, None, "pass"),
        ({"passed", "skipped"}, {"t"}, "a later issue", None, "pass"),
        ({"passed"}, {"t"}, None, "why", "differs"),
        ({"passed", "failed"}, {"t"}, None, "why", "FAIL"),
        ({"skipped"}, {"t"}, None, None, "not run"),
        (set(), {"t"}, "a later issue", None, "not run"),
        (set(), set(), "a later issue", None, "not built"),
        (set(), set(), None, "why", "no test"),
    ],
)
def test_only_tests_that_ran_make_a_line_pass(
    outcomes: set[str], tests: set[str], comes_with: str | None, difference: str | None, result: str
) -> None:
    line = Line("row", 1, "A", "feature", difference, comes_with, tests, outcomes)
    line.judge()
    assert line.result == result


def test_a_terminal_of_100_columns_shows_all_that_one_must_look_at() -> None:
    test = f"tests/conformance/test_with_a_long_name.py::test_row_001_{'which_goes_on_' * 8}end"
    feature = f"{'many words ' * 15}to the last [one]"
    lines = [
        Line("row", number, "A", feature, "why it differs", "a later issue", {test}, set(), result)
        for number, result in enumerate(COLOURS, 100)
    ]
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(table_of(lines))
    printed = console.export_text()
    assert max(map(len, printed.splitlines())) <= 100
    together = re.sub(r"\s", "", printed)
    for line in lines:
        assert f"row {line.number}" in printed
        assert line.result in printed
    # What is folded stands in columns beside each other: all its letters are there.
    assert printed.count("…") == 0
    assert len(together) >= len(lines) * len(re.sub(r"\s", "", feature)) + 3 * len(test)


def test_the_table_for_the_docs_has_a_line_for_each() -> None:
    lines = [Line("row", 1, "A", "a <type> | another", "why", None, set(), set(), "differs", "a wrong one")]
    assert markdown_of(lines).splitlines()[2:] == [
        "| row 1 | a &lt;type> \\| another | differs | docs/differences.md: why | a wrong one |"
    ]
