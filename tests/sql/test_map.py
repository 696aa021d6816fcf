"""The map of the database is whole, and the walk of a message leads to the lines that it names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.walk import PAGE, STEP, wrong

if TYPE_CHECKING:
    from tests.conftest import Database

ROOT = Path(__file__).parents[2]


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
    page = PAGE.read_text()
    assert len(STEP.findall(page)) == page.count("#L") >= 20
    assert list(wrong(page)) == []
    moved = page.replace("#L", "#L1")
    assert len(list(wrong(moved))) == page.count("#L")
