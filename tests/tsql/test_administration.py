"""The statements around Service Broker's own are read whole, wherever they stand, or refused where they go wrong."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.tsql.administration import begins, print_statement, read, tree
from pybroker.tsql.source import Batch, Position, ScriptError
from pybroker.tsql.tree import Name, Statement

EXACT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"), min_size=1, max_size=12)
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"), max_size=12)
NAMES = st.builds(Name, EXACT, st.none() | EXACT)
NUMBERS = st.integers(0, 2**31 - 1)
VERBS = st.sampled_from(["CREATE", "ALTER"])


def optional(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


def some(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(strategy, min_size=1, max_size=3).map(tuple)


KEYS = st.builds(tree.PrivateKey, file=TEXTS, decryption=optional(TEXTS), encryption=optional(TEXTS))
SCOPES = st.sampled_from(["SERVER", "DATABASE"])
SECURABLES = st.builds(
    tree.Securable,
    name=NAMES,
    kind=st.sampled_from([None, "SERVICE", "MESSAGE TYPE", "ENDPOINT", "XML SCHEMA COLLECTION"]),
)
PERMISSIONS = some(st.sampled_from(["SEND", "RECEIVE", "CREATE MESSAGE TYPE", "VIEW DEFINITION"]))
STATEMENTS: st.SearchStrategy[Statement] = st.one_of(
    st.builds(tree.Use, database=EXACT),
    st.builds(
        tree.CreateDatabase,
        database=EXACT,
        clauses=st.sampled_from(
            [
                (),
                ("COLLATE Latin1",),
                ("ON PRIMARY (NAME = a)", "WITH TRUSTWORTHY ON"),
                (
                    "ON (NAME = a), FILEGROUP f CONTAINS FILESTREAM DEFAULT (NAME = b), (NAME = c)",
                    "FOR ATTACH",
                ),
                ("LOG ON (NAME = a)", "AS SNAPSHOT OF [b c]"),
                ("WITH FILESTREAM (NON_TRANSACTED_ACCESS = OFF)", "WITH LEDGER = OFF"),
            ]
        ),
        action=st.sampled_from([None, "NEW_BROKER"]),
    ),
    st.builds(
        tree.AlterDatabase,
        database=EXACT,
        action=st.sampled_from(["ENABLE_BROKER", "ERROR_BROKER_CONVERSATIONS"]),
        honor_broker_priority=optional(st.booleans()),
        clauses=st.sampled_from(
            [
                (),
                ("TRUSTWORTHY ON", "RECOVERY SIMPLE", "COMPATIBILITY_LEVEL = 100"),
                ("AUTO_CREATE_STATISTICS ON (INCREMENTAL = OFF)", "FILESTREAM (NON_TRANSACTED_ACCESS = OFF)"),
            ]
        ),
        termination=st.sampled_from([None, "ROLLBACK IMMEDIATE", "ROLLBACK AFTER 5 SECONDS", "NO_WAIT"]),
    ),
    st.builds(tree.DropDatabase, databases=some(EXACT), if_exists=st.booleans()),
    st.builds(
        tree.CreatePrincipal,
        kind=st.just("USER"),
        name=EXACT,
        clauses=st.sampled_from([(), ("WITHOUT LOGIN",), ("FOR LOGIN [x]", "WITH DEFAULT_SCHEMA = dbo")]),
    ),
    st.builds(
        tree.CreatePrincipal,
        kind=st.just("LOGIN"),
        name=EXACT,
        clauses=st.sampled_from(
            [("WITH PASSWORD = N'x' MUST_CHANGE, CHECK_POLICY = OFF",), ("FROM CERTIFICATE [c]",)]
        ),
    ),
    st.builds(tree.CreatePrincipal, kind=st.just("ROLE"), name=EXACT, owner=optional(EXACT)),
    st.builds(
        tree.DropPrincipal,
        kind=st.sampled_from(["LOGIN", "USER", "ROLE"]),
        name=EXACT,
        if_exists=st.booleans(),
    ),
    st.builds(tree.Member, role=EXACT, verb=st.sampled_from(["ADD", "DROP"]), member=EXACT),
    st.builds(tree.MasterKey, password=optional(TEXTS)),
    st.builds(
        tree.Certificate,
        name=EXACT,
        owner=optional(EXACT),
        file=TEXTS,
        private_key=optional(KEYS),
        active=optional(st.booleans()),
    ),
    st.builds(
        tree.Certificate,
        name=EXACT,
        password=optional(TEXTS),
        subject=TEXTS,
        start_date=optional(TEXTS),
        expiry_date=optional(TEXTS),
        active=optional(st.booleans()),
    ),
    st.builds(tree.AlterCertificate, name=EXACT, active=st.booleans()),
    st.builds(tree.BackupCertificate, name=EXACT, file=TEXTS, private_key=optional(KEYS)),
    st.builds(
        tree.Endpoint,
        verb=VERBS,
        name=EXACT,
        owner=optional(EXACT),
        state=st.sampled_from([None, "STARTED", "STOPPED"]),
        port=optional(NUMBERS),
        ip=st.sampled_from([None, "ALL", "10.0.0.1", "::1"]),
        service_broker=st.just(value=True),
        certificate=optional(EXACT),
        windows=st.sampled_from([None, "WINDOWS", "WINDOWS KERBEROS"]),
        encryption=st.just("REQUIRED"),
        algorithm=st.sampled_from([None, "AES RC4"]),
        forwarding=st.sampled_from([None, "ENABLED"]),
        forward_size=optional(NUMBERS),
    ),
    st.builds(
        tree.EventNotification,
        name=EXACT,
        scope=SCOPES,
        fan_in=st.booleans(),
        events=some(st.sampled_from(["QUEUE_ACTIVATION", "BROKER_QUEUE_DISABLED"])),
        service=TEXTS,
        broker_instance=optional(TEXTS),
    ),
    st.builds(tree.DropEventNotification, names=some(EXACT), scope=st.just("QUEUE"), queue=NAMES),
    st.builds(tree.SchemaCollection, name=NAMES, text=TEXTS),
    st.builds(tree.Schema, name=EXACT, owner=optional(EXACT)),
    st.builds(
        tree.DropObject,
        kind=st.sampled_from(["CERTIFICATE", "ENDPOINT", "SCHEMA", "XML SCHEMA COLLECTION"]),
        name=NAMES,
        if_exists=st.booleans(),
    ),
    st.builds(tree.Authorization, securable=SECURABLES, owner=optional(EXACT)),
    st.builds(
        tree.Permission,
        verb=st.just("GRANT"),
        permissions=PERMISSIONS,
        securable=optional(SECURABLES),
        principals=some(EXACT),
        option=st.booleans(),
        grantor=optional(EXACT),
    ),
    st.builds(
        tree.Permission,
        verb=st.sampled_from(["REVOKE", "DENY"]),
        permissions=PERMISSIONS,
        securable=optional(SECURABLES),
        principals=some(EXACT),
        cascade=st.booleans(),
    ),
)
# What may follow a statement that no semicolon ends.
FOLLOWERS = st.sampled_from(
    [
        "",
        ";",
        "\nSELECT 1",
        "\nEND",
        "\nIF 1 = 1",
        " GRANT x",
        "\nSET @a = 1",
        " CREATE TABLE t (a int)",
        " EXEC p",
    ]
)


@given(STATEMENTS, FOLLOWERS)
def test_what_is_printed_is_read_again_as_the_same(statement: Statement, follower: str) -> None:
    printed = print_statement(statement).removesuffix(";")
    batch = Batch(f"\n {printed}{follower}", line=7)
    assert begins(batch.text, 2)
    found, end = read(batch, 2)
    assert found == statement
    assert batch.text[end:] == follower
    assert (found.position.line, found.position.column) == (8, 2)


def place_of_refusal(text: str) -> Position | None:
    try:
        read(Batch(text), 0)
    except ScriptError as error:
        return error.position
    return None


@given(STATEMENTS, st.data())
def test_a_cut_off_statement_gets_an_error_inside_of_it(statement: Statement, data: st.DataObject) -> None:
    text = print_statement(statement)
    cut = text[: data.draw(st.integers(0, len(text)))]
    place = place_of_refusal(cut)
    assert place is None or (1 <= place.line <= cut.count("\n") + 1 and place.column >= 1)


@given(st.sampled_from(["USE ", "GRANT ", "CREATE LOGIN ", "BACKUP CERTIFICATE "]), TEXTS)
def test_any_text_behind_the_first_words_is_read_or_refused(begin: str, text: str) -> None:
    place = place_of_refusal(begin + text)
    assert place is None or min(place.line, place.column) >= 1


@pytest.mark.parametrize(
    ("text", "place", "why"),
    [
        ("CREATE CERTIFICATE c\n  FROM DISK = 'x'", (2, 8), "DISK"),
        ("CREATE ENDPOINT e AS TCP (LISTENER_PORT = 1, LISTENER_PORT = 2)", (1, 1), "twice"),
        ("CREATE ENDPOINT e AS TCP (LISTENER_PORT = " + "9" * 100_000 + ")", (1, 43), "number"),
        ("GRANT FLY ON SERVICE::s TO u", (1, 7), "permission"),
        ("USE " + "d" * 129, (1, 5), "128"),
        ("ALTER DATABASE d SET", (1, 21), "end of the batch"),
        ("RESTORE DATABASE d FROM DISK = 'x'", (1, 1), "pg_restore"),
    ],
)
def test_what_is_not_understood_is_refused_where_it_stands(
    text: str, place: tuple[int, int], why: str
) -> None:
    with pytest.raises(ScriptError) as caught:
        read(Batch(text), 0)
    position = caught.value.position
    assert (position.line, position.column) == place
    assert why in str(caught.value)
    assert len(str(caught.value)) < 400


def test_words_begin_a_statement_only_where_they_stand_whole() -> None:
    for text in (
        "USER",
        "CREATE USERS",
        "SET @NOCOUNT",
        "SET x",
        "CREATE QUEUE",
        "EXEC sp_configured",
        "USEFUL",
    ):
        assert not begins(text, 0)
    assert begins("create -- why\n  login x", 0)
