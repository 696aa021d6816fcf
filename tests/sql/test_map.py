"""The map of the database is whole, and the walk of a message leads to the lines that it names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.conftest import Database

ROOT = Path(__file__).parents[2]
STEP = re.compile(r"\[`?([\w./-]+?)`?:(\d+)`?\]\(\.\./([\w./-]+)#L(\d+)\) \| `([^`]+)`")


def test_every_table_and_private_view_is_on_the_map(database: Database) -> None:
    with database.connect() as session:
        relations = session.execute(
            "select relname::text from pg_class where relnamespace = 'broker_private'::regnamespace"
            " and relkind in ('r', 'p', 'v')"
        ).fetchall()
        sequences = session.execute(
            "select relname::text from pg_class where relnamespace = 'broker_private'::regnamespace and relkind = 'S'"
        ).fetchall()
    page = (ROOT / "sql/README.md").read_text()
    assert len(relations) > 40
    assert [name for (name,) in relations if f"`{name}`" not in page] == []
    assert ("queuing_order",) in sequences


def test_the_walk_of_a_message_leads_to_the_lines_that_it_names() -> None:
    page = (ROOT / "docs/walk.md").read_text()
    steps = STEP.findall(page)
    assert len(steps) == page.count("#L") >= 20
    for shown, line, path, anchor, text in steps:
        lines = (ROOT / path).read_text().splitlines()
        assert (path.endswith(shown), line) == (True, anchor)
        found = [number for number, content in enumerate(lines, start=1) if text in content]
        assert int(line) in found, f"{path}: `{text}` is in line {found}, and docs/walk.md says {line}"
