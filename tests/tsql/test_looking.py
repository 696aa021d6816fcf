"""A script shows rows of catalog views and queues, and refuses a query that it would get wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from pybroker.commands import application
from pybroker.tsql.known import Known
from pybroker.tsql.language import read
from pybroker.tsql.preparing import prepare
from pybroker.tsql.source import Batch, ScriptError

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

    from tests.conftest import Database


def run(text: str, url: str, directory: Path) -> Result:
    script = directory / "look.sql"
    script.write_text(text, "utf-8")
    return CliRunner().invoke(application, ["tsql", "run", str(script), "--database", f"Shop={url}"])


def shown(text: str, url: str, directory: Path) -> list[str]:
    done = run(text, url, directory)
    assert done.exit_code == 0, done.output
    return done.stdout.splitlines()


def test_rows_of_the_catalog_and_of_a_queue_are_shown(database: Database, tmp_path: Path) -> None:
    definitions = """
        CREATE QUEUE dbo.Orders
        CREATE SERVICE [//shop] ON QUEUE Orders ([DEFAULT])
        PRINT N'it''s done' -- said
        SELECT name FROM sys.services WHERE name = '//shop'
        SELECT TOP (1) q.[name], is_receive_enabled AS [on] FROM sys.service_queues AS q WHERE q.name = N'ORDERS' AND is_receive_enabled = 1 ORDER BY q.name DESC
        IF NOT EXISTS (SELECT * FROM sys.services WHERE name = '//SHOP') PRINT 'names match exactly'
        """
    assert shown(definitions, database.url, tmp_path) == [
        "it's done",
        *("name", "------", "//shop", "", "(1 rows affected)"),
        *("name   on", "------ --", "orders 1", "", "(1 rows affected)"),
        "names match exactly",
    ]
    with database.connect() as session:
        session.execute(
            "select broker.send(broker.begin_dialog('//shop', '//shop', encryption => false), body => '<trade/>'::text, message_type => 'DEFAULT')"
        )
    assert shown(
        "SELECT message_type_name, message_body FROM dbo.Orders WITH (NOLOCK);", database.url, tmp_path
    ) == [
        *("message_type_name message_body", "----------------- ------------", "DEFAULT           <trade/>"),
        *("", "(1 rows affected)"),
    ]
    assert shown("SELECT COUNT(*) AS messages FROM Orders", database.url, tmp_path)[2] == "       1"


def test_rows_of_the_catalog_have_the_order_of_sql_server(database: Database, tmp_path: Path) -> None:
    lines = shown(
        """
        CREATE ROUTE a WITH SERVICE_NAME = '//b', ADDRESS = 'LOCAL'
        CREATE ROUTE b WITH SERVICE_NAME = '//a', ADDRESS = 'LOCAL'
        CREATE ROUTE c WITH ADDRESS = 'LOCAL'
        SELECT name AS n, remote_service_name AS to_service FROM sys.routes WHERE name IN ('a', 'b', 'c') ORDER BY To_Service
        SELECT r.name FROM sys.routes r WHERE r.name IN ('a', 'b', 'c') ORDER BY r.remote_service_name DESC
        -- The alias, and not the column of that name.
        SELECT remote_service_name AS name FROM sys.routes WHERE name IN ('a', 'b') ORDER BY name
        """,
        database.url,
        tmp_path,
    )
    rows = [
        " ".join(one.split()) for one in lines if one and "affected" not in one and not one.startswith("-")
    ]
    assert rows == [
        *("n to_service", "c NULL", "b //a", "a //b"),
        *("name", "a", "b", "c"),
        *("name", "//a", "//b"),
    ]


def prepared(text: str) -> None:
    batch = Batch(text)
    prepare(read(batch), batch, Known())


def test_the_databases_are_those_that_the_command_names(database: Database, tmp_path: Path) -> None:
    lines = shown("SELECT name, is_broker_enabled FROM sys.databases", database.url, tmp_path)
    assert lines[2:5] == ["master 1", "msdb   1", "Shop   1"]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT @a = name FROM sys.services",
        "SELECT name FROM sys.services s JOIN other.dbo.t q ON q.name = s.name",
        "SELECT name FROM sys.traces",
        "PRINT 'a' + @b",
        "EXEC sp_who",
        "CREATE TYPE t AS TABLE (a binary(3))",
        "INSERT INTO t EXEC p",
        "BREAK",
        "RETURN 1",
        "DECLARE @a int, @A int",
        "DECLARE @h int BEGIN DIALOG @h FROM SERVICE a TO SERVICE 'b'",
        "RECEIVE * FROM other.dbo.q",
        "DECLARE @a sysname; RECEIVE @a = message_type_name, message_body FROM q",
        "DECLARE @t TABLE (a int); RECEIVE * FROM q INTO @t",
        "SET ROWCOUNT 5",
        "RAISERROR (50001, 16, 1)",
        "PRINT @a",
    ],
)
def test_what_is_more_is_refused_and_not_run_in_part(query: str) -> None:
    with pytest.raises(ScriptError) as caught:
        prepared(f"\n {query}")
    assert caught.value.position.line == 2


@pytest.mark.parametrize(
    "text",
    [
        "IF EXISTS (SELECT " + " " * 30_000,
        "IF EXISTS (SELECT " + "x " * 30_000,
        "IF EXISTS (SELECT x FROM sys.services WHERE " + "name = 'x' AND " * 30_000,
        "SELECT " + "a, " * 30_000,
        "SELECT a FROM sys.services ORDER BY " + "a DESC, " * 30_000 + "=",
        "SELECT a FROM b " + " " * 30_000 + "c d",
        "PRINT '" + "''" * 30_000,
        "IF " * 30_000,
    ],
)
def test_what_is_hostile_is_refused_in_one_go(text: str) -> None:
    with pytest.raises(ScriptError):
        prepared(text)
