"""The stock trade of the book chapter goes through by its translated procedures, which workers activate."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any

from typer.testing import CliRunner

from pybroker.commands import application
from pybroker.tsql import modules
from pybroker.tsql.expressions.types import TEXT
from pybroker.tsql.known import Known
from pybroker.tsql.language import read
from pybroker.tsql.source import batches
from tests.activated import eventually, start_worker
from tests.patience import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Database

# Listings 15-2, 15-6, 15-8 and 15-10. Listing 15-8 names procedures, which stand above it in the chapter.
BOTH = """
CREATE MESSAGE TYPE [//www.develop.com/DMBrokerage/TradeEntry] VALIDATION = WELL_FORMED_XML
CREATE MESSAGE TYPE [//www.develop.com/DMBrokerage/TradeAck] VALIDATION = WELL_FORMED_XML
CREATE CONTRACT [//www.develop.com/DMBrokerage/EnterTrade]
(
  [//www.develop.com/DMBrokerage/TradeEntry] SENT BY INITIATOR,
  [//www.develop.com/DMBrokerage/TradeAck] SENT BY TARGET
)
"""
DEFINITIONS = f"""
USE Trader1
GO
{BOTH}
CREATE QUEUE tradeAckQueue WITH STATUS = ON, ACTIVATION (PROCEDURE_NAME = dbo.tradeAckProc, MAX_QUEUE_READERS = 5, EXECUTE AS SELF)
CREATE SERVICE enterTrade ON QUEUE tradeAckQueue ([//www.develop.com/DMBrokerage/EnterTrade])
GO
USE DMBrokerage
GO
{BOTH}
CREATE QUEUE tradeEntryQueue WITH STATUS = ON, ACTIVATION (PROCEDURE_NAME = dbo.tradeEntryProc, MAX_QUEUE_READERS = 5, EXECUTE AS SELF)
CREATE SERVICE [//www.develop.com/DMBrokerage/TradeEntryService] ON QUEUE tradeEntryQueue
  ([//www.develop.com/DMBrokerage/EnterTrade])
"""
# The empty shells, then listings 15-18 and 15-19. In print their variables have no types, and the
# acknowledgement has two roots, which its own message type refuses.
SHELL = "CREATE PROCEDURE {name} AS RETURN 0"
ENTRY = """
ALTER PROCEDURE tradeEntryProc
AS
-- declare variables
DECLARE @dh uniqueidentifier
DECLARE @msg varbinary(max)
DECLARE @ack nvarchar(max)
DECLARE @cg uniqueidentifier
WHILE (1=1)
BEGIN
  -- 1. start a transaction
  BEGIN TRAN;
  SET @cg = NULL;
  -- 2. Lock the conversation group if dealing with state data
  WAITFOR ( GET CONVERSATION GROUP @cg FROM tradeEntryQueue ), TIMEOUT 1000
  -- check that we have a message
  IF @cg IS NULL
  BEGIN
    ROLLBACK TRANSACTION
    BREAK
  END;
  -- 3. Do what is necessary to deal with state
  -- 4. RECEIVE
  ;RECEIVE TOP(1) @dh=conversation_handle, @msg=message_body
  FROM tradeEntryQueue
  WHERE conversation_group_id = @cg
  -- 5. process received data
  INSERT INTO trades (entry) VALUES (@msg)
  SET @ack='<ack><id>1</id><ackid>1</ackid></ack>'
  -- 6. send the message
  ;SEND ON CONVERSATION @dh
  MESSAGE TYPE [//www.develop.com/DMBrokerage/TradeAck]
  (@ack)
  -- 7. end the conversation
  END CONVERSATION @dh
  -- 9. Commit or roll back
  COMMIT TRAN
END
"""
ACK = """
ALTER PROCEDURE tradeAckProc
AS
DECLARE @dh uniqueidentifier
DECLARE @msg varbinary(max)
DECLARE @mt sysname
DECLARE @cg uniqueidentifier
WHILE (1=1)
BEGIN
  BEGIN TRAN;
  SET @cg = NULL;
  WAITFOR ( GET CONVERSATION GROUP @cg FROM tradeAckQueue ), TIMEOUT 1000
  IF @cg IS NULL
  BEGIN
    ROLLBACK TRANSACTION
    BREAK
  END;
  ;RECEIVE TOP(1) @dh=conversation_handle, @msg=message_body, @mt = message_type_name
  FROM tradeAckQueue
  WHERE conversation_group_id = @cg
  -- process received data
  INSERT INTO acks (kind, body) VALUES (@mt, @msg)
  END CONVERSATION @dh
  COMMIT TRAN
END
"""
# Listing 15-14, as the procedure of which it is a part. XML needs a server with libxml.
ENTER = """
CREATE PROCEDURE enterTrade AS
--declare variable for the conversation handle
DECLARE @dh uniqueidentifier;
--variable to hold the message in XML format
DECLARE @msgBody {xml}
SET @msgBody = '<id>Order1</id>'
--begin the dialog
BEGIN DIALOG CONVERSATION @dh
FROM SERVICE enterTrade
TO SERVICE '//www.develop.com/DMBrokerage/TradeEntryService'
ON CONTRACT [//www.develop.com/DMBrokerage/EnterTrade];
SEND ON CONVERSATION @dh
MESSAGE TYPE [//www.develop.com/DMBrokerage/TradeEntry]
(@msgBody)
"""


def create(database: Database, known: Known, *texts: str) -> None:
    with database.connect() as session:
        for text in texts:
            for batch in batches(text):
                for statement in read(batch):
                    session.execute(modules.translate(statement, known).sql.encode())


def rows(database: Database, query: str) -> list[tuple[Any, ...]]:
    with database.connect() as session:
        return session.execute(query.encode()).fetchall()


def test_the_stock_trade_goes_through_by_its_activated_procedures(
    make_database: Callable[[str], Database], tmp_path: Path
) -> None:
    trader, brokerage = make_database("trader"), make_database("brokerage")
    for database in (trader, brokerage):
        with database.connect() as session:
            session.execute("create schema if not exists dbo")
            session.execute(
                "create table dbo.trades (entry text); create table dbo.acks (kind text, body text)"
            )
    known = Known(tables={("dbo", "trades"): {"entry": TEXT}, ("dbo", "acks"): {"kind": TEXT, "body": TEXT}})
    create(trader, known, SHELL.format(name="tradeAckProc"))
    create(brokerage, known, SHELL.format(name="tradeEntryProc"))
    script = tmp_path / "stock_trade.sql"
    script.write_text(DEFINITIONS, "utf-8")
    databases = ("--database", f"Trader1={trader.url}", "--database", f"DMBrokerage={brokerage.url}")
    done = CliRunner().invoke(application, ["tsql", "run", str(script), *databases])
    assert done.exit_code == 0, done.output
    create(brokerage, known, ENTRY)
    create(trader, known, ACK, ENTER.format(xml="XML" if trader.has_xml_parser else "nvarchar(max)"))
    worker = start_worker(trader.url, brokerage.url, grace=1.0)
    try:
        with trader.connect() as session:
            session.execute("call dbo.entertrade()")
        eventually(lambda: rows(brokerage, "select entry from dbo.trades") == [("<id>Order1</id>",)])
        ack = "//www.develop.com/DMBrokerage/TradeAck"
        expected = [(ack, "<ack><id>1</id><ackid>1</ackid></ack>")]
        eventually(lambda: rows(trader, "select kind, body from dbo.acks") == expected)
        # Both sides have ended: nothing is left to receive, or to send.
        left = "select count(*) from broker.conversation_endpoints where state not in ('CD', 'DI')"
        eventually(lambda: rows(trader, left) == rows(brokerage, left) == [(0,)])
    finally:
        worker.terminate()
        try:
            worker.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.communicate()
