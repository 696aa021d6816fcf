"""The report of SQL functions that no test calls: what PostgreSQL counts, and what it can't count."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pybroker.embedded import EmbeddedServer
from tests import sql_calls
from tests.conftest import SETTINGS, migrated_database

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

BODIES = {
    "broker.send(text)": ("plpgsql", "begin perform broker_private.send(), broker_private.clock(); end"),
    "broker_private.send()": ("plpgsql", "begin end"),
    "broker_private.clock()": ("sql", "select broker_private.inner_clock()"),
    "broker_private.inner_clock()": ("sql", "select now()"),
    "broker_private.of_a_view()": ("sql", "select 1"),
    "broker_private.unused()": ("sql", "select broker_private.unused_too()"),
    "broker_private.unused_too()": ("sql", "select 1"),
}


def test_a_function_that_is_put_into_its_caller_counts_as_called() -> None:
    views = ["select broker_private.of_a_view() as one"]
    assert sql_calls.reached({"broker.send(text)", "broker_private.probe()"}, BODIES, views) == {
        "broker.send(text)",
        "broker_private.clock()",
        "broker_private.inner_clock()",
        "broker_private.of_a_view()",
    }


def test_a_call_is_noted_before_its_database_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(sql_calls.FOLDER, str(tmp_path))
    with EmbeddedServer(settings={**SETTINGS, "track_functions": "all"}) as server:
        database = migrated_database(server, "calls")
        with database.connect(autocommit=False) as open_still:
            open_still.execute("select broker.create_queue('orders')")
            open_still.execute("rollback")
            open_still.execute("begin")
            sql_calls.note_all(server)
            open_still.close()
    (file,) = tmp_path.iterdir()
    noted = {line.partition("(")[0] for line in file.read_text().splitlines()}
    assert "broker.create_queue" in noted, "though its session had not ended, and had rolled back"
    assert "broker.drop_queue" not in noted


def test_a_database_that_is_gone_fails_no_test(
    server: EmbeddedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(sql_calls.FOLDER, str(tmp_path))
    sql_calls.note(server.url("no_such_database"))
    assert list(tmp_path.iterdir()) == []
