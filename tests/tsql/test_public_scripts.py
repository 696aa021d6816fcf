"""`python -m tests.public_scripts` on a set that is made up here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.public_scripts import instance
from tests.public_scripts.running import departures, run_set
from tests.public_scripts.table import Table

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from pybroker.embedded import EmbeddedServer

TABLE = """
[[edit]]
files = "two\\\\.sql"
find = "@nowhere"
replace = "ScratchQueue"
why = "misprint"

[[set]]
name = "made up"
repository = "somebody/something"
default = "ScratchOfSets"
databases = ["ScratchOfSets"]
again = true
left = ["1 - -> Scratch STARTED_OUTBOUND"]
scripts = [
  { path = "two.sql", verdict = "as SQL Server", rows = "0 ?" },
  { path = "one.sql", verdict = "nothing shown" },
]
"""
ONE = "CREATE QUEUE ScratchQueue\nCREATE SERVICE Scratch ON QUEUE ScratchQueue ([DEFAULT])"
TWO = """
SELECT * FROM @nowhere
GO
DECLARE @h uniqueidentifier
BEGIN DIALOG @h FROM SERVICE Scratch TO SERVICE 'Scratch' WITH ENCRYPTION = OFF
SEND ON CONVERSATION @h
SELECT name FROM sys.services WHERE name = 'Scratch'
"""


def test_a_set_runs_on_its_own_databases_and_is_compared(
    server: EmbeddedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without a worker nothing moves once a script has ended.
    monkeypatch.setattr(instance, "QUIET_SECONDS", 0.0)
    repository = tmp_path / "checkouts" / "somebody" / "something"
    repository.mkdir(parents=True)
    for name, text in (("one", ONE), ("two", TWO)):
        (repository / f"{name}.sql").write_text(text)
    (tmp_path / "table.toml").write_text(TABLE)
    table = Table.read(tmp_path / "table.toml")
    (scripts,) = table.sets

    shown, left = run_set(
        table, scripts, tmp_path / "checkouts", tmp_path / "run", lambda _: server, worker=False
    )

    assert [now.code for now in shown.values()] == [0, 0]
    assert [now.rows() for now in shown.values()] == ["0 1", ""]
    assert left == [
        "1 Scratch -> Scratch CONVERSING",
        "1 Scratch -> Scratch CONVERSING (target)",
        "1 scratchqueue: DEFAULT 1",
    ]
    assert [line.partition(":")[2] for line in departures(scripts, shown, left)] == [
        " only now: 1 Scratch -> Scratch CONVERSING",
        " only now: 1 Scratch -> Scratch CONVERSING (target)",
        " only now: 1 scratchqueue: DEFAULT 1",
        " no more: 1 - -> Scratch STARTED_OUTBOUND",
    ]
