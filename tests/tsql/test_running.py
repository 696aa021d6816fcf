"""A script's definitions are in the database as SQL Server would have them, all of them or none."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from pybroker.commands import application
from pybroker.tsql.script import read

if TYPE_CHECKING:
    from collections.abc import Callable

    from click.testing import Result

    from tests.conftest import Database

SCRIPT = """
CREATE MESSAGE TYPE TradeEntry VALIDATION = WELL_FORMED_XML;
CREATE MESSAGE TYPE [//it's/Ack] AUTHORIZATION postgres VALIDATION = NONE
CREATE CONTRACT TradeContract (TradeEntry SENT BY INITIATOR, [//it's/Ack] SENT BY TARGET)
GO
CREATE QUEUE dbo.TradeQueue WITH STATUS = OFF, RETENTION = ON, POISON_MESSAGE_HANDLING (STATUS = OFF) ON [PRIMARY]
CREATE SERVICE Trader ON QUEUE tradequeue
CREATE SERVICE Broker ON QUEUE [dbo].[TRADEQUEUE] (TradeContract)
alter queue TradeQueue with status = on
CREATE ROUTE Far WITH SERVICE_NAME = N'Far', ADDRESS = 'TCP://far.example:4022', LIFETIME = 600
CREATE BROKER PRIORITY High FOR CONVERSATION SET (CONTRACT_NAME = TradeContract, LOCAL_SERVICE_NAME = ANY, PRIORITY_LEVEL = 9)
ALTER BROKER PRIORITY High FOR CONVERSATION SET (CONTRACT_NAME = ANY)
ALTER SERVICE Broker (DROP CONTRACT TradeContract, ADD CONTRACT [DEFAULT])
CREATE REMOTE SERVICE BINDING Bound TO SERVICE 'Far' WITH USER = FarUser, ANONYMOUS = ON
"""
DROPS = """
DROP REMOTE SERVICE BINDING Bound DROP BROKER PRIORITY High DROP ROUTE Far
DROP SERVICE Trader DROP SERVICE Broker DROP QUEUE dbo.TradeQueue
"""


def tsql(*arguments: str) -> Result:
    return CliRunner().invoke(application, ["tsql", *arguments])


def test_the_definitions_of_a_script_are_made_and_dropped(database: Database, tmp_path: Path) -> None:
    script = tmp_path / "trade.sql"
    script.write_text(SCRIPT, "utf-16")
    done = tsql("run", str(script), "--database-url", database.url)
    assert done.exit_code == 0, done.output
    assert ":6:1: ON [PRIMARY] has no meaning here" in done.output
    with database.connect() as session:
        assert session.execute("select * from dbo.TradeQueue").fetchall() == []
        queue = "select is_receive_enabled, is_retention_enabled, is_poison_message_handling_enabled"
        found = session.execute(f"{queue} from broker.service_queues where name = 'tradequeue'".encode())
        assert found.fetchone() == (True, True, False)
        found = session.execute(
            "select validation from broker.service_message_types where name in ('TradeEntry', '//it''s/Ack')"
            " order by name desc"
        )
        assert [validation.strip() for (validation,) in found] == ["X", "N"]
        found = session.execute(
            "select s.name, c.name from broker.services s"
            " join broker.service_contract_usages u on u.service_id = s.service_id"
            " join broker.service_contracts c on c.service_contract_id = u.service_contract_id"
            " where s.name in ('Trader', 'Broker')"
        )
        assert found.fetchall() == [("Broker", "DEFAULT")]
        found = session.execute(
            "select priority, service_contract_id from broker.conversation_priorities where name = 'High'"
        )
        assert found.fetchone() == (9, None)
        found = session.execute("select address, lifetime > now() from broker.routes where name = 'Far'")
        assert found.fetchone() is not None
        found = session.execute("select name from broker.remote_service_bindings")
        assert found.fetchall() == [("Bound",)]
    script.write_text(DROPS)
    done = tsql("run", str(script), "--database-url", database.url)
    assert done.exit_code == 0, done.output
    with database.connect() as session:
        found = session.execute("select count(*) from broker.services where name in ('Trader', 'Broker')")
        assert found.fetchone() == (0,)


def test_a_statement_that_fails_is_named_and_a_single_transaction_leaves_nothing(
    database: Database, tmp_path: Path
) -> None:
    script = tmp_path / "trade.sql"
    script.write_text("create queue a\nGO\ncreate service s on queue missing")
    done = tsql("run", str(script), "--database-url", database.url, "--single-transaction")
    assert done.exit_code == 1
    assert f"{script}:3:1: Msg 208: " in done.output
    assert "select broker.create_service('s', queue => 'missing');" in done.output
    with database.connect() as session:
        found = session.execute("select count(*) from broker.service_queues where name = 'a'")
        assert found.fetchone() == (0,)


def test_nothing_runs_of_a_script_that_is_refused(database: Database, tmp_path: Path) -> None:
    script = tmp_path / "trade.sql"
    script.write_text("create queue a\nGO\nselecting 1")
    done = tsql("run", str(script), "--database-url", database.url)
    assert done.exit_code == 1
    assert f'{script}:3:1: "selecting" is not understood here' in done.output
    with database.connect() as session:
        found = session.execute("select count(*) from broker.service_queues where name = 'a'")
        assert found.fetchone() == (0,)


def test_check_reports_each_statement_and_goes_on_behind_a_refused_batch(tmp_path: Path) -> None:
    (tmp_path / "a.sql").write_text("select @a\nGO\ncreate queue q on [x]\nGO\ndrop queue q")
    done = tsql("check", str(tmp_path), "--json")
    assert done.exit_code == 1
    found = [(one["line"], one["column"], one["answer"]) for one in json.loads(done.output)]
    assert found == [(1, 1, "refused"), (3, 1, "runs with a note"), (5, 1, "runs")]
    done = tsql("check", str(tmp_path))
    assert f"{tmp_path}/a.sql:5:1: runs: DROP QUEUE [q];" in done.output


def test_a_script_of_an_old_editor_is_read_when_its_encoding_is_named(tmp_path: Path) -> None:
    script = tmp_path / "a.sql"
    script.write_bytes("create queue Dienstplan\ngo\nprint N'Größe: 5 €'\n".encode("cp1252"))
    done = tsql("check", str(script))
    assert done.exit_code == 1
    assert "a.sql:3:11: refused" in done.output
    assert "--encoding" in done.output
    done = tsql("translate", str(script), "--encoding", "cp1252")
    assert "Größe: 5 €" in done.output, done.output
    # A byte order mark says more than the command line.
    script.write_text("print N'Größe: 5 €'", "utf-8-sig")
    assert "Größe: 5 €" in tsql("translate", str(script), "--encoding", "cp1252").output
    for wrong in ("klingon", "hex"):
        assert tsql("check", str(script), "--encoding", wrong).exit_code == 2


# All that the pages show, and what they refuse.
PAGES = "\n".join(Path(page).read_text("utf-8") for page in ("docs/tsql.md", "docs/tsql-procedures.md"))
SHOWN = "\nGO\n".join(
    [*re.findall(r"```sql\n(.*?)```", PAGES, re.DOTALL), *re.findall(r"^\| `(.+?)` \|", PAGES, re.MULTILINE)]
)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A script of some lines with random bytes in the place of others, cut off somewhere."""
    content = SHOWN.encode(draw(st.sampled_from(["utf-8", "utf-8-sig", "utf-16"])))
    begin = draw(st.integers(0, len(content)))
    piece = content[begin : begin + draw(st.integers(0, 1000))]
    at = draw(st.integers(0, len(piece)))
    end = draw(st.integers(at, min(at + 20, len(piece))))
    head = content[:3] if draw(st.booleans()) else b""
    return head + piece[:at] + draw(st.binary(max_size=20)) + piece[end:]


@given(content=st.binary(max_size=300) | damaged())
@settings(max_examples=200, deadline=None)
def test_check_of_random_bytes_says_a_place_for_what_it_refuses(
    content: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged.sql"
    path.write_bytes(content)
    lines = len(re.split(rb"\r\n?|\n|\r\0?\n?|\n\0", content))
    for finding in read(path).findings:
        assert (finding.step is None) == bool(finding.refusal)
        assert 1 <= finding.position.line <= lines
        assert finding.position.column >= 1


def test_translate_prints_the_form_below_the_place(tmp_path: Path) -> None:
    script = tmp_path / "a.sql"
    script.write_text("\n drop queue Q")
    done = tsql("translate", str(script))
    assert done.output == f"-- {script}:2:2\nselect broker.drop_queue('q');\n"


def test_translate_keeps_the_texts_of_a_condition(tmp_path: Path) -> None:
    script = tmp_path / "a.sql"
    script.write_text("IF 'a  b\n c' = 'a b c' DROP QUEUE q")
    done = tsql("translate", str(script))
    assert "'a  b\n c' = 'a b c'" in done.output


@pytest.mark.parametrize(
    "text",
    [
        "USE [host=evil dbname=x]",
        "USE [postgresql://evil/x]",
        "ALTER DATABASE [host=evil] SET ENABLE_BROKER",
    ],
)
def test_a_databases_name_is_no_connection_to_another_server(tmp_path: Path, text: str) -> None:
    script = tmp_path / "a.sql"
    script.write_text(f"DROP QUEUE q\nGO\nUSE Shop\n{text}")
    done = tsql("translate", str(script))
    assert done.exit_code == 1
    assert f"{script}:4:1: " in done.output
    assert "would be read as a connection" in done.output


def test_the_page_shows_what_translate_prints_and_its_scripts_run(
    database: Database,
    make_database: Callable[[str], Database],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    page = Path("docs/tsql.md").read_text("utf-8")
    shown = dict(re.findall(r"<!-- ([\w-]+) -->\n```\w*\n(.*?)```", page, re.DOTALL))
    monkeypatch.chdir(tmp_path)
    for script, source, becomes in (
        ("trader.sql", "tsql", "translated"),
        ("statements.sql", "statements", "becomes"),
        ("order.sql", "order", "order-becomes"),
    ):
        Path(script).write_text(shown[source])
        assert tsql("translate", script).stdout == shown[becomes]
        done = tsql("run", script, "--database", f"Trader1={make_database(source).url}")
        assert done.exit_code == 0, done.output
    with make_database("psql").connect() as session:
        # Each statement by itself, as psql sends them.
        for statement in shown["order-becomes"].split("-- order.sql:")[1:]:
            session.execute(statement.partition("\n")[2].encode())
        ended = session.execute(
            "select is_conversation_error from broker.transmission_queue union all select true"
            " from dbo.tradequeue where message_type_name like '%/Error'"
        ).fetchall()
        assert ended == [(True,)]
    Path("instance.sql").write_text(shown["instance"])
    command = shlex.split(shown["shell"].replace("$TRADER1_URL", database.url))
    assert command[:2] == ["pybroker", "tsql"]
    done = tsql(*command[2:])
    assert done.exit_code == 0, done.output
    assert Path("certs/Trader.cer").exists()
    assert {path.name for path in Path("keys").iterdir()} == {"TraderCert.key", "dialog-master.key"}
