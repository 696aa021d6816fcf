"""A script's variables have their values, and what is refused stands where the file has it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.tsql.source import Position, ScriptError, batches
from pybroker.tsql.variables import replace

TEMPLATE = "CREATE QUEUE <schema_name, sysname, dbo>.<Queue name, sysname, q>"


def refused_at(text: str, **defined: str) -> tuple[int, int]:
    with pytest.raises(ScriptError) as caught:
        replace(text, defined)
    return caught.value.position.line, caught.value.position.column


def test_variables_are_replaced_in_any_case_in_texts_too() -> None:
    script = replace("USE $(Db) PRINT '$(DB)'", {"db": "Trader1"})
    assert script.text == "USE Trader1 PRINT 'Trader1'"


def test_setvar_gives_a_value_and_the_command_line_a_stronger_one() -> None:
    text = ':setvar Db "My ""own"" db"\n:setvar Other b\nUSE [$(Db)] $(Other)'
    assert replace(text, {}).text == '\n\nUSE [My "own" db] b'
    assert replace(text, {"DB": "Given"}).text == "\n\nUSE [Given] b"


def test_a_placeholder_is_asked_for_once_with_its_type_and_default() -> None:
    asked: list[tuple[str, str, str]] = []

    def answer(*question: str) -> str:
        asked.append(question)
        return question[2]

    script = replace(TEMPLATE + "\n" + TEMPLATE, {"queue NAME": "orders"}, answer)
    assert script.text == "CREATE QUEUE dbo.orders\nCREATE QUEUE dbo.orders"
    assert asked == [("schema_name", "sysname", "dbo")]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("USE a\n  USE $(missing)", (2, 7)),
        (TEMPLATE, (1, 14)),
        ("PRINT 1\n:connect far", (2, 1)),
        (":setvar", (1, 1)),
        ("$(two) $(missing)", (1, 8)),
    ],
)
def test_what_has_no_value_is_refused_where_it_stands(text: str, place: tuple[int, int]) -> None:
    assert refused_at(text, two="much longer") == place


def test_comments_and_comparisons_need_no_value() -> None:
    text = "-- <Author,,Name> $(x)\n/* $(x)\n:connect */ SELECT a < b, c, d > e, '<a>1, 2, 3</a>'"
    assert replace(text, {}).text == text


def test_a_value_of_several_lines_is_refused_so_that_lines_stay() -> None:
    assert refused_at("a $(x)", x="1\nGO\n2") == (1, 3)


def test_on_error_says_whether_the_script_goes_on() -> None:
    assert replace(":on error ignore\nPRINT 1", {}).goes_on_after_error
    assert not replace(":ON ERROR EXIT\nPRINT 1", {}).goes_on_after_error


@given(st.lists(st.sampled_from(["ab", "$(long)", "$(none)", " ", "\n"]), max_size=30))
def test_a_place_behind_a_value_is_where_the_file_has_it(parts: list[str]) -> None:
    old = "".join(parts) + "!"
    script = replace(old, {"long": "very long value", "none": ""})
    new = script.text
    at = Position(new.count("\n") + 1, len(new) - new.rfind("\n") - 1)
    assert script.place(at) == Position(old.count("\n") + 1, len(old) - old.rfind("\n") - 1)


def test_go_with_a_count_repeats_the_batch() -> None:
    assert [(one.text, one.count) for one in batches("a\nGO 3 -- times\nb\nGO\nc")] == [
        ("a\n", 3),
        ("\nb\n", 1),
        ("\nc", 1),
    ]
