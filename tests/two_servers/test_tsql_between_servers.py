"""Two servers that only T-SQL scripts have set up talk with full dialog security."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from typer.testing import CliRunner

from pybroker.commands import application
from tests.brokers import Site

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pybroker.embedded import EmbeddedServer

    ServerFor = Callable[[str, int], EmbeddedServer]

OWN_SIDE = r"""
:setvar Certificates "C:\Certificates"
USE master
GO
IF NOT EXISTS (SELECT * FROM sys.symmetric_keys WHERE name = '##MS_DatabaseMasterKey##')
  CREATE MASTER KEY ENCRYPTION BY PASSWORD = 'a password'
GO
CREATE CERTIFICATE $(Site)TransportCert WITH SUBJECT = 'transport of $(Site)', EXPIRY_DATE = N'12/31/2098'
BACKUP CERTIFICATE $(Site)TransportCert TO FILE = '$(Certificates)\$(Site)Transport.cer'
GO
IF EXISTS (SELECT * FROM sys.endpoints WHERE name = 'InstanceEndpoint') DROP ENDPOINT InstanceEndpoint
GO
CREATE ENDPOINT InstanceEndpoint STATE = STARTED AS TCP (LISTENER_PORT = $(Port), LISTENER_IP = (127.0.0.1))
  FOR SERVICE_BROKER (AUTHENTICATION = CERTIFICATE $(Site)TransportCert, ENCRYPTION = REQUIRED ALGORITHM AES)
GO
USE $(Site)
ALTER DATABASE $(Site) SET ENABLE_BROKER WITH ROLLBACK IMMEDIATE
CREATE MASTER KEY ENCRYPTION BY PASSWORD = 'another'
CREATE USER $(Site)Owner WITHOUT LOGIN
CREATE CERTIFICATE $(Site)DialogCert AUTHORIZATION $(Site)Owner WITH SUBJECT = 'dialogs of $(Site)', EXPIRY_DATE = '2098-12-31'
BACKUP CERTIFICATE $(Site)DialogCert TO FILE = '$(Certificates)\$(Site)Dialog.cer'
GO
CREATE MESSAGE TYPE [//trade/Entry] VALIDATION = WELL_FORMED_XML
CREATE MESSAGE TYPE [//trade/Ack] VALIDATION = NONE
CREATE CONTRACT [//trade/Contract] ([//trade/Entry] SENT BY INITIATOR, [//trade/Ack] SENT BY TARGET)
CREATE QUEUE dbo.$(Site)Queue WITH STATUS = ON
CREATE SERVICE [//trade/$(Site)] AUTHORIZATION $(Site)Owner ON QUEUE dbo.$(Site)Queue ([//trade/Contract])
"""
FAR_SIDE = r"""
USE master
CREATE LOGIN $(Far)Login WITH PASSWORD = 'never used'
CREATE USER $(Far)Login
CREATE CERTIFICATE $(Far)TransportCert AUTHORIZATION $(Far)Login FROM FILE = 'C:\Certificates\$(Far)Transport.cer'
GRANT CONNECT ON ENDPOINT::InstanceEndpoint TO $(Far)Login
GO
USE $(Site)
CREATE USER $(Far)User WITHOUT LOGIN
CREATE CERTIFICATE $(Far)DialogCert AUTHORIZATION $(Far)User FROM FILE = 'C:\Certificates\$(Far)Dialog.cer'
CREATE ROUTE $(Far)Route WITH SERVICE_NAME = N'//trade/$(Far)', ADDRESS = N'TCP://127.0.0.1:$(FarPort)'
CREATE REMOTE SERVICE BINDING $(Far)Binding TO SERVICE N'//trade/$(Far)' WITH USER = $(Far)User
GRANT SEND ON SERVICE::[//trade/$(Site)] TO $(Far)User
"""


def run(site: Site, far: Site, directory: Path, text: str) -> None:
    script = directory / "script.sql"
    script.write_text(text, "utf-16")
    defined = (f"Site={site.name}", f"Port={site.port}", f"Far={far.name}", f"FarPort={far.port}")
    done = CliRunner().invoke(
        application,
        [
            *("tsql", "run", str(script), "--database", f"{site.name}={site.server.url(site.name)}"),
            *("--key-directory", str(site.keys), "--path", rf"C:\Certificates={directory / 'exchanged'}"),
            *(option for one in defined for option in ("--define", one)),
        ],
    )
    assert done.exit_code == 0, done.output
    assert "password" not in done.output


def test_scripts_alone_set_up_a_secured_conversation(tmp_path: Path, server_for: ServerFor) -> None:
    with ExitStack() as stack:
        sites = []
        for name in ("trader", "brokerage"):
            site = Site(name, server_for(name, 18), tmp_path)
            stack.callback(site.drop_database)
            stack.callback(site.close)
            sites.append(site)
        trader, brokerage = sites
        for text in (OWN_SIDE, FAR_SIDE):
            run(trader, brokerage, tmp_path, text)
            run(brokerage, trader, tmp_path, text)
        trader.start_worker()
        brokerage.start_worker()
        trader.psql.rows(
            "select broker.send(broker.begin_dialog('//trade/trader', '//trade/brokerage', '//trade/Contract'),"
            " '//trade/Entry', '<entry/>')"
        )
        message = "select conversation_handle, convert_from(message_body, 'UTF8') from broker.receive(%s, timeout => '120 s')"
        [(target, entry)] = brokerage.psql.rows(message, "brokeragequeue")
        assert entry == "<entry/>"
        far_user = "select far_principal_id from broker.conversation_endpoints where conversation_handle = %s"
        assert brokerage.psql.rows(far_user, target) == [("traderUser",)]
        brokerage.psql.rows("select broker.send(%s, '//trade/Ack', 'thanks')", target)
        assert [body for _, body in trader.psql.rows(message, "traderqueue")] == ["thanks"]
