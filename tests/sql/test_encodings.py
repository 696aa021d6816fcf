"""Databases that are not in UTF-8: texts stay texts, and what an encoding lacks ends no program."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import psycopg
import pytest
from typer.testing import CliRunner

import pybroker
from pybroker.commands import application
from pybroker.definitions import Queue, Service
from pybroker.errors import ArgumentError
from pybroker.migrations import migrate
from pybroker.programs.failures import noted
from pybroker.sql import sql_files

if TYPE_CHECKING:
    from pybroker.embedded import EmbeddedServer


def made(server: EmbeddedServer, encoding: str) -> str:
    name = f"{encoding.lower()}_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(server.url("postgres"), autocommit=True) as session:
        session.execute(
            f"create database {name} template template0 encoding '{encoding}' locale 'C'".encode()
        )
    return server.url(name)


def test_a_database_in_sql_ascii_gives_texts(server: EmbeddedServer) -> None:
    url = made(server, "SQL_ASCII")
    migrate(url)
    for command in ("status", "diagnose"):
        shown = CliRunner().invoke(application, [command, "--database-url", url])
        assert not isinstance(shown.exception, TypeError), command
    with pybroker.connect(url) as broker:
        broker.apply([Queue("größe"), Service("größe", queue="größe", contracts=["DEFAULT"])])
        with broker.transaction():
            dialog = broker.begin_dialog("größe", "größe")
            dialog.send("DEFAULT", b"1")
            dialog.end()
        with broker.transaction():
            received = broker.receive("größe")
        assert [type(message.message_type_name) for message in received] == [str, str]
        assert received[-1].is_end_dialog
    with psycopg.connect(url, client_encoding="SQL_ASCII") as session:
        broker = pybroker.connect(session)
        with pytest.raises(ArgumentError, match="client_encoding is SQL_ASCII"):
            broker.receive("größe")


def test_a_database_that_lacks_a_character_refuses_names_with_it_and_takes_any_body(
    server: EmbeddedServer,
) -> None:
    assert [file.path for file in sql_files() if not file.text.isascii()] == []
    url = made(server, "LATIN1")
    migrate(url)
    lacking = CliRunner().invoke(application, ["queue", "on", "n€", "--database-url", url])
    assert (lacking.exit_code, lacking.output.count("\n")) == (1, 1)
    assert 'no equivalent in encoding "LATIN1"' in lacking.output
    with pybroker.connect(url) as broker:
        broker.apply([Queue("größe"), Service("größe", queue="größe", contracts=["DEFAULT"])])
        with pytest.raises(psycopg.errors.UntranslatableCharacter):
            broker.begin_dialog("größe", "€")
        dialog = broker.begin_dialog("größe", "größe")
        dialog.send("DEFAULT", {"price": "1 €"})
        dialog.send("DEFAULT", "здесь")
        received = broker.receive("größe", top=2)
        assert [message.text for message in received] == ['{"price":"1 €"}', "здесь"]


@pytest.mark.parametrize(
    ("encoding", "stored"),
    [
        ("UTF8", "ValueError: a\\x00b \\ud800 é €"),
        ("SQL_ASCII", "ValueError: a\\x00b \\ud800 é €"),
        ("LATIN1", "ValueError: a\\x00b \\ud800 é \\u20ac"),
        ("WIN1252", "ValueError: a\\x00b \\ud800 é €"),
        ("EUC_TW", "ValueError: a\\x00b \\ud800 \\xe9 \\u20ac"),
    ],
)
def test_what_an_encoding_lacks_is_escaped_in_an_error(encoding: str, stored: str) -> None:
    assert noted(ValueError("a\0b \ud800 é €"), encoding) == stored
