"""The listings of the book chapter run: the stock trade goes through by T-SQL alone."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import psycopg
import pytest
from typer.testing import CliRunner

from pybroker.commands import application
from tests.activated import eventually, start_worker
from tests.conftest import migrated_database
from tests.tsql.listings import PRINTED, listing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pybroker.embedded import EmbeddedServer
    from tests.conftest import Database

    Run = Callable[[str], str]

COMMON = listing("15-2") + listing("15-6")
DEFINITIONS = "".join(
    [
        *("USE Trader1\nGO\n", COMMON, "GO\n", listing("before 15-8, Trader1")),
        *("USE DMBrokerage\nGO\n", COMMON, "GO\n", listing("before 15-8, DMBrokerage")),
        *(listing("15-8"), "GO\n", listing("15-10")),
    ]
)


@pytest.fixture
def sides(start_server: Callable[[int], EmbeddedServer]) -> Iterator[tuple[Database, Database]]:
    """Two databases on a server with libxml, as the listings have variables of XML."""
    server = start_server(15)
    names = [f"{name}_{uuid.uuid4().hex[:8]}" for name in ("trader", "brokerage")]
    trader, brokerage = (migrated_database(server, name) for name in names)
    yield trader, brokerage
    with psycopg.connect(server.url("postgres"), autocommit=True) as session:
        for name in names:
            session.execute(f'drop database "{name}" with (force)'.encode())


@pytest.fixture
def run(sides: tuple[Database, Database], tmp_path: Path) -> Run:
    def run_one(text: str) -> str:
        script = tmp_path / "listing.sql"
        script.write_text(text, "utf-8")
        urls = zip(("Trader1", "DMBrokerage"), sides, strict=True)
        (tmp_path / "certs").mkdir(exist_ok=True)
        options = [option for name, side in urls for option in ("--database", f"{name}={side.url}")]
        options += ["--key-directory", str(tmp_path / "keys"), "--path", f"c:\\Certs={tmp_path}/certs"]
        done = CliRunner().invoke(application, ["tsql", "run", str(script), *options])
        assert done.exit_code == 0, done.output
        return done.stdout

    return run_one


def count(side: Database, query: str) -> int:
    with side.connect() as session:
        row = session.execute(query.encode()).fetchone()
        return int(row[0]) if row else 0


def test_each_listing_is_mended_or_runs_as_it_is_printed() -> None:
    assert {number for number in PRINTED if listing(number) != PRINTED[number]} == {
        "15-3",
        "before 15-8, DMBrokerage",
        "15-18",
        "15-19",
    }


def test_the_stock_trade_goes_through_activated(run: Run, sides: tuple[Database, Database]) -> None:
    trader, brokerage = sides
    run(DEFINITIONS)
    run("USE DMBrokerage\nGO\n" + listing("15-18"))
    run("USE Trader1\nGO\n" + listing("15-19"))
    for _ in range(3):
        run("USE Trader1\nGO\n" + listing("15-14"))
    worker = start_worker(trader.url, brokerage.url)
    try:
        is_over = "select count(*) from broker.conversation_endpoints where state <> 'CD'"
        begun = "select count(*) from broker.conversation_endpoints"
        eventually(lambda: count(brokerage, begun) == 3 and count(brokerage, is_over) == 0)
        eventually(lambda: count(trader, is_over) == 0)
    finally:
        worker.terminate()
        worker.communicate()
    assert count(brokerage, "select count(*) from dbo.tradeentryqueue") == 0
    assert count(trader, "select count(*) from dbo.tradeackqueue") == 0


def test_what_is_typed_at_the_top_shows_the_message(run: Run, sides: tuple[Database, Database]) -> None:
    trader, brokerage = sides
    run(DEFINITIONS)
    off = "ALTER QUEUE {} WITH ACTIVATION (STATUS = OFF)\nGO\n"
    run("USE DMBrokerage\n" + off.format("tradeEntryQueue"))
    run("USE Trader1\nGO\n" + listing("15-12"))
    for _ in range(3):
        run("USE Trader1\nGO\n" + listing("15-14"))
    worker = start_worker(trader.url, brokerage.url)
    try:
        eventually(lambda: count(brokerage, "select count(*) from dbo.tradeentryqueue") == 3)
    finally:
        worker.terminate()
        worker.communicate()
    shown = run("USE DMBrokerage\nGO\nSELECT * FROM tradeEntryQueue\nGO\n" + listing("15-16"))
    assert shown.count("<id>Order1</id>") == 4
    assert "<id>Order1</id>" in run("USE DMBrokerage\nGO\n" + listing("15-17"))
    assert "<id>Order1</id>" in run(
        "USE DMBrokerage\nGO\n" + listing("behind 15-16").replace("MyQueue", "tradeEntryQueue")
    )
    assert count(brokerage, "select count(*) from dbo.tradeentryqueue") == 0


def test_message_types_are_validated_by_schemas(run: Run, sides: tuple[Database, Database]) -> None:
    run("USE Trader1\nGO\n" + listing("15-3"))
    validated = "select count(*) from broker.service_message_types where xml_collection_id is not null"
    assert count(sides[0], validated) == 2


def test_certificates_are_read_from_files(run: Run, sides: tuple[Database, Database], tmp_path: Path) -> None:
    made = """
        CREATE CERTIFICATE {0} WITH SUBJECT = '{0}', EXPIRY_DATE = '2098-12-31'
        BACKUP CERTIFICATE {0} TO FILE = 'c:\\Certs\\{0}.cer' WITH PRIVATE KEY (
          FILE = 'c:\\Certs\\{0}.pvk', ENCRYPTION BY PASSWORD = '[email protected]')
        DROP CERTIFICATE {0}
    """
    run("USE master\n" + made.format("Trader") + made.format("DMBroker"))
    for key in (tmp_path / "keys").glob("*.key"):
        key.unlink()
    run(listing("15-20") + listing("15-21"))
    assert count(sides[0], "select count(*) from broker.certificates where name = 'TraderCert'") == 1
    remote = "select count(*) from broker.certificates where name = 'RemoteDMBrokerCert'"
    assert count(sides[0], remote) == 1
    assert list((tmp_path / "keys").iterdir()) != []
