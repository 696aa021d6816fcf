"""A script is read whole, or refused with the place that its author must look at."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.tsql import tree
from pybroker.tsql.language import read as parse
from pybroker.tsql.printing import print_statement
from pybroker.tsql.source import Position, ScriptError, batches, decode
from pybroker.tsql.translation import translate

EXACT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"), min_size=1, max_size=20)
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"), max_size=20)
NAMES = st.builds(tree.Name, EXACT, st.none() | EXACT, st.none() | EXACT)
VERBS = st.sampled_from(["CREATE", "ALTER"])
SWITCHES = st.none() | st.booleans()
NUMBERS = st.integers(0, 2**31 - 1)
KINDS = st.sampled_from(
    ["MESSAGE TYPE", "CONTRACT", "QUEUE", "SERVICE", "ROUTE", "REMOTE SERVICE BINDING", "BROKER PRIORITY"]
)


def optional(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


def some(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(strategy, min_size=1, max_size=3).map(tuple)


ACTIVATIONS = st.just(tree.Activation(drop=True)) | st.builds(
    tree.Activation,
    status=SWITCHES,
    procedure=NAMES,
    max_queue_readers=optional(NUMBERS),
    execute_as=st.sampled_from([None, "SELF", "OWNER"]) | TEXTS.map("[{}]".format),
)
STATEMENTS = st.one_of(
    st.builds(tree.MessageType, verb=VERBS, name=EXACT, owner=optional(EXACT))
    | st.builds(
        tree.MessageType,
        verb=VERBS,
        name=EXACT,
        validation=st.sampled_from(["NONE", "EMPTY", "WELL_FORMED_XML"]),
    )
    | st.builds(
        tree.MessageType, verb=VERBS, name=EXACT, validation=st.just("VALID_XML"), schema_collection=NAMES
    ),
    st.builds(
        tree.Contract,
        name=EXACT,
        owner=optional(EXACT),
        usages=some(st.tuples(EXACT, st.sampled_from(["INITIATOR", "TARGET", "ANY"]))),
    ),
    st.builds(
        tree.Queue,
        verb=VERBS,
        name=NAMES,
        status=SWITCHES,
        retention=SWITCHES,
        activation=optional(ACTIVATIONS),
        poison_message_handling=SWITCHES,
        filegroup=optional(EXACT),
    ),
    st.builds(
        tree.Queue,
        verb=VERBS,
        name=NAMES,
        maintenance=st.sampled_from(
            ["REBUILD", "REBUILD WITH (MAXDOP = 2)", "REORGANIZE", "REORGANIZE WITH (LOB_COMPACTION = ON)"]
        )
        | EXACT.map(lambda name: f"MOVE TO [{name.replace(']', ']]')}]"),
    ),
    st.builds(tree.Service, name=EXACT, owner=optional(EXACT), queue=NAMES, contracts=optional(some(EXACT))),
    st.builds(
        tree.AlterService,
        name=EXACT,
        queue=optional(NAMES),
        changes=optional(some(st.tuples(st.sampled_from(["ADD", "DROP"]), EXACT))),
    ),
    st.builds(
        tree.Route,
        verb=VERBS,
        name=EXACT,
        owner=optional(EXACT),
        service_name=optional(TEXTS),
        broker_instance=optional(TEXTS),
        lifetime=optional(NUMBERS),
        address=TEXTS,
        mirror_address=optional(TEXTS),
    ),
    st.builds(
        tree.RemoteServiceBinding,
        verb=VERBS,
        name=EXACT,
        owner=optional(EXACT),
        to_service=optional(TEXTS),
        user=EXACT,
        anonymous=SWITCHES,
    ),
    st.builds(
        tree.BrokerPriority,
        verb=VERBS,
        name=EXACT,
        contract_name=optional(EXACT | st.just("")),
        local_service_name=optional(EXACT | st.just("")),
        remote_service_name=optional(TEXTS.filter(bool) | st.just("")),
        priority_level=optional(NUMBERS),
    ),
    st.builds(tree.Drop, kind=KINDS, name=NAMES),
)


def read(content: bytes) -> list[tree.Statement]:
    return [statement for batch in batches(decode(content)) for statement in parse(batch)]


def refused(script: str) -> tuple[int, int]:
    with pytest.raises(ScriptError) as caught:
        list(map(translate, read(script.encode())))
    return caught.value.position.line, caught.value.position.column


@given(st.lists(STATEMENTS, max_size=4))
def test_what_is_printed_is_read_again_as_the_same(statements: list[tree.Statement]) -> None:
    text = "\nGO\n".join(map(print_statement, statements))
    assert read(text.encode()) == statements
    assert read(text.replace("\n", "\r\n").encode("utf-8-sig")) == statements


def place_of_refusal(content: bytes) -> Position | None:
    try:
        read(content)
    except ScriptError as error:
        return error.position
    return None


@given(st.binary(max_size=200) | TEXTS.map(str.encode))
def test_random_bytes_get_an_error_with_a_position(content: bytes) -> None:
    place = place_of_refusal(content)
    assert place is None or min(place.line, place.column) >= 1


@given(STATEMENTS, st.data())
def test_a_cut_off_script_gets_an_error_inside_of_it(statement: tree.Statement, data: st.DataObject) -> None:
    text = print_statement(statement)
    cut = text[: data.draw(st.integers(0, len(text)))]
    place = place_of_refusal(cut.encode())
    assert place is None or 1 <= place.line <= cut.count("\n") + 1


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_script_is_read_in_each_encoding_that_sql_server_saves(encoding: str) -> None:
    script = "CREATE QUEUE [größe];\r\nGO\r\ndrop queue größe"
    created, dropped = read(script.encode(encoding))
    assert created == tree.Queue(verb="CREATE", name=tree.Name("größe"))
    assert dropped.position == Position(3, 1)


def test_go_ends_a_batch_only_outside_of_texts_names_and_comments() -> None:
    script = "/* /*\nGO\n*/ */ create route r with address = '\nGO\n'; drop queue [a\ngo\n]\n  go -- done\ndrop queue b"
    assert [batch.line for batch in batches(script)] == [1, 8]
    assert [statement.position.line for statement in read(script.encode())] == [3, 5, 9]


@pytest.mark.parametrize(
    ("script", "place"),
    [
        ("drop queue a\nGO\n  selecting 1", (3, 3)),
        ("create queue a with\n  statsu = on", (2, 3)),
        ("create contract c (\n[m] sent by initiator", (2, 22)),
        ("create queue a with status = on, status = off", (1, 1)),
        ("drop queue [a", (1, 12)),
        ("drop queue a /* never\nclosed", (1, 14)),
        ("drop queue a\nGO " + "9" * 100_000, (2, 1)),
        ("create route r with lifetime = 5", (1, 1)),
        ("create route r with lifetime = " + "9" * 100_000, (1, 32)),
        ("create queue " + "q" * 129, (1, 14)),
        ("drop service dbo.s", (1, 1)),
        ("create queue q with activation (drop)", (1, 1)),
        ("drop queue a\0", (1, 13)),
    ],
)
def test_what_is_not_understood_is_refused_where_it_stands(script: str, place: tuple[int, int]) -> None:
    assert refused(script) == place
