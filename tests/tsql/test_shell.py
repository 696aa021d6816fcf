"""What is typed runs at GO, a mistake ends only its batch, and names are completed."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput
from typer.testing import CliRunner

from pybroker.commands import application
from pybroker.tsql import shell
from pybroker.tsql.databases import Databases, Foresight
from pybroker.tsql.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Database


class Heard:
    """What a session shows and says."""

    def __init__(self) -> None:
        self.shown: list[str] = []
        self.noted: list[str] = []

    def show(self, line: str) -> None:
        self.shown.append(line)

    def note(self, line: str) -> None:
        self.noted.append(line)


def queues(database: Database) -> list[str]:
    with database.connect() as session:
        return [name for (name,) in session.execute("select name from broker.service_queues order by 1")]


def test_a_file_is_run_batch_by_batch_and_goes_on_behind_a_mistake(database: Database) -> None:
    typed = "CREATE QUEUE a\ngo\nDROP QUEUE missing\nGO\nCREATE QUEUE\nGO\nDROP QUEUE a\nRESET\nCREATE QUEUE b\nGO 1\nEXIT\nDROP QUEUE b\nGO\n"
    done = CliRunner().invoke(application, ["tsql", "shell", "--database-url", database.url], input=typed)
    assert done.exit_code == 0, done.output
    assert "batch:1:1: Msg 208: " in done.output
    assert "batch:1:13: the end of the batch is not understood here" in done.output
    assert queues(database) == ["a", "b"]


@pytest.fixture
def type_keys(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Heard]:
    monkeypatch.setattr(shell, "HISTORY", tmp_path / "history")

    def type_all(keys: str) -> Heard:
        databases = Databases()
        databases.add("Shop", database.url)
        heard = Heard()
        session = Session(databases, heard)
        foresight = Foresight(databases, has_key_directory=False, single_transaction=False)
        with create_pipe_input() as typed, create_app_session(input=typed, output=DummyOutput()):
            monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
            typed.send_text(keys)
            shell.Shell(session, foresight, {}).run()
        session.close()
        return heard

    return type_all


def test_a_persons_batch_ends_at_go_and_ctrl_d_leaves(
    database: Database, type_keys: Callable[[str], Heard], tmp_path: Path
) -> None:
    heard = type_keys("CREATE QUEUE\rtyped\rGO\rUSE Far\rGO\r\x04")
    assert queues(database) == ["typed"]
    assert heard.noted == ["batch:1:1: the database \"Far\" is not known: give --database 'Far=URL'"]
    assert "+CREATE QUEUE\n" in (tmp_path / "history").read_text()
    assert (tmp_path / "history").stat().st_mode & 0o077 == 0


def test_ctrl_c_forgets_the_batch(database: Database, type_keys: Callable[[str], Heard]) -> None:
    type_keys("CREATE QUEUE a\r\x03CREATE QUEUE b\rGO\rQUIT\r")
    assert queues(database) == ["b"]


def test_statements_and_the_names_of_objects_are_completed(database: Database) -> None:
    databases = Databases()
    databases.add("Trader1", database.url)
    session = Session(databases, Heard())
    foresight = Foresight(databases, has_key_directory=False, single_transaction=False)
    completer = shell.Shell(session, foresight, {}).completer

    def completed(typed: str) -> list[str]:
        return [one.text for one in completer.get_completions(Document(typed), CompleteEvent())]

    with database.connect() as maker:
        maker.execute("select broker.create_queue('trade_entry_queue')")
        maker.execute("select broker.create_service('//trade/entries', 'trade_entry_queue')")
    assert completed("DROP SERVICE //trade/e") == ["[//trade/entries]"]
    assert completed("DROP QUEUE trade_e") == ["trade_entry_queue"]
    assert completed("  create mess") == ["CREATE MESSAGE TYPE"]
    assert completed("USE tra") == ["Trader1", "[//trade/entries]", "trade_entry_queue"]
    assert completed("tra") == []
    session.close()
