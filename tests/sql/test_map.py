"""The map of the database is whole, and the walk of a message goes as functions call each other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import Database

ROOT = Path(__file__).parents[2]
# A row of docs/walk.md: a file, a function, what it calls.
STEP = re.compile(r"^\| \[`(\S+)`\]\(\.\./\1\) \| `([\w.]+)` \| (.*?)\| ", re.MULTILINE)
DEFINITION = re.compile(r"^(class|create or replace function|(?:    )?(?:async )?def) ([\w.]+)", re.MULTILINE)
NO_CODE = re.compile(r'""".*?"""|#[^\n]*|--[^\n]*|^comment on.*?\$\$;', re.MULTILINE | re.DOTALL)
# A call, also within a statement; or a name by itself that a statement is made with.
CALL = re.compile(r'\w+(?=\()|(?<=")\w+(?=")')


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


def test_the_walk_of_a_message_goes_as_functions_call_each_other() -> None:
    page = (ROOT / "docs/walk.md").read_text()
    assert len(STEP.findall(page)) == page.count("](../") > 30
    assert list(wrong(page)) == []
    assert list(
        wrong(page.replace("pick_above_floors", "lock_next_group").replace("`Link.send`", "`Link.say`"))
    ) == [
        "Session.post does not call Link.say",
        "workers/transport/connection/link.py has no Link.say",
        "broker.receive does not call broker_private.lock_next_group",
    ]


def wrong(page: str) -> Iterator[str]:
    """What is wrong with the walk: a line each."""
    steps = STEP.findall(page)
    for file, function, calls in steps:
        defined = _defined(ROOT / file)
        if function not in defined:
            yield f"{file} has no {function}"
            continue
        called, waiting = set[str](), [function]
        while waiting:
            new = defined[waiting.pop()] - called
            called |= new
            waiting += [name for name in defined if name.rpartition(".")[2] in new]
        for callee in re.findall(r"`([\w.]+)`", calls):
            if callee.rpartition(".")[2] not in called or all(callee != step[1] for step in steps):
                yield f"{function} does not call {callee}"


def _defined(file: Path) -> dict[str, set[str]]:
    """The functions of a file, each with the names of what it calls."""
    found, scope = dict[str, set[str]](), ""
    _, *parts = DEFINITION.split(NO_CODE.sub("", file.read_text()))
    for kind, name, body in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        scope = f"{name}." if kind == "class" else scope
        found.setdefault(scope + name if kind.startswith(" ") else name, set()).update(CALL.findall(body))
    return found
