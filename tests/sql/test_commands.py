"""Every command says in one line what keeps it from its database, and what to type."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from pybroker.commands import application
from tests.conftest import migrated_database
from tests.sql.test_migrations import EMPTIED

if TYPE_CHECKING:
    from pathlib import Path

    from pybroker.embedded import EmbeddedServer

LINES = (
    "status",
    "queue list",
    "queue on warehouse",
    "peek warehouse",
    "send x --from-service shop --to-service warehouse",
    "quarantine list",
    f"redrive {uuid.UUID(int=1)}",
    "discard --queue warehouse",
    "apply FILE",
    "certificate install far PEM --user far",
    "certificate exchange shop --address 127.0.0.1:1 --key-directory KEYS --out OUT",
    "worker",
)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("files")
    made = CliRunner().invoke(
        application, ["certificate", "create", "far", "--key-directory", str(folder / "far")]
    )
    assert made.exit_code == 0, made.output
    (folder / "broker.py").write_text("definitions = []\n")
    return {
        "FILE": folder / "broker.py",
        "PEM": folder / "far" / "far.pem",
        "KEYS": folder / "keys",
        "OUT": folder / "out.json",
    }


@pytest.fixture(scope="module")
def emptied(server: EmbeddedServer) -> str:
    """A database of which a dump of the schema alone was restored."""
    database = migrated_database(server, f"emptied_{uuid.uuid4().hex[:8]}")
    with database.connect() as session:
        session.execute(EMPTIED)
    return database.url


@pytest.mark.parametrize("line", LINES)
def test_a_command_says_in_one_line_what_its_database_lacks(
    server: EmbeddedServer, files: dict[str, Path], emptied: str, line: str
) -> None:
    words = [str(files.get(word, word)) for word in line.split()]
    for url in (server.url("template1"), emptied):
        lacking = CliRunner().invoke(application, [*words, "--database-url", url])
        assert lacking.exit_code == 1, (url, lacking.output)
        assert "pybroker migrate" in lacking.output, url
        assert len(lacking.output.splitlines()) == 1, (url, lacking.output)
