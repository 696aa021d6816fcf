"""`make concepts`: how much there is to understand of SEND and RECEIVE, counted from the SQL files alone.

What is reached is reached by name: a function whose name stands in the body of one that is reached, and the
function of a trigger on a table that one of them writes. So a refusal counts that hardly ever happens, and so
does what only a special case needs: a reader meets them too.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

ROOT = Path(__file__).resolve().parents[1]
STARTS = {
    "SEND": ("broker.send", "broker.send_batch", "broker.send_all"),
    "RECEIVE": ("broker.receive", "broker.receive_groups", "broker.get_conversation_group"),
}
_REFUSALS = {"broker_private.refuse"}
_CREATED = re.compile(
    r"^create (?:or replace )?(function|procedure|view|trigger) (?:(broker(?:_private)?)\.)?(\w+)",
    re.MULTILINE,
)
_NAMED = re.compile(r"\b(broker(?:_private)?)\.(\w+)")
_TRIGGER = re.compile(
    r"^create (?:or replace )?trigger (\w+)\s+(?:before|after)\s+(.+?)\s+on (broker_private\.\w+)\s.*?"
    r"execute function (broker_private\.\w+)\(",
    re.MULTILINE | re.DOTALL,
)
_WRITES = re.compile(r"\b(insert into|update|delete from)\s+(broker_private\.\w+)")
_TABLE = re.compile(r"^create (?:unlogged )?table (broker_private\.\w+) \((.*?)^\)", re.MULTILINE | re.DOTALL)
_COLUMN = re.compile(r"^  (\w+) (boolean|\"char\")", re.MULTILINE)
_ALTERED = re.compile(r"^alter table (broker_private\.\w+)(.*?);", re.MULTILINE | re.DOTALL)
_BRANCH = re.compile(r"^\s*(?:if|elsif|while|for(?! each row)|foreach)\b|^\s*loop$|\bwhen\b", re.MULTILINE)
# Shorter ones, as a look whether something is there, are alike by chance.
_LONG_STATEMENT = 80


@dataclass
class Source:
    """One function, view or trigger function, with all its overloads.

    Attributes:
        files: where it is made.
        lines: without comments and blank ones.
        text: the same, joined.
        branches: what it decides: IF, ELSIF, WHEN and loops.
        statements: its longer statements, each on one line.
    """

    files: set[str] = field(default_factory=set)
    lines: int = 0
    text: str = ""
    branches: int = 0
    statements: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Counts:
    """What the way of one statement has: each a number of things to understand."""

    functions: int
    files: int
    lines: int
    branches: int
    tables: int
    columns_that_steer: int
    statements_said_again: int
    inserts_of_messages: int
    deletes_of_messages: int


def counts(tree: Path) -> dict[str, Counts]:
    """Count each statement's way in a checkout.

    Args:
        tree: has the folders sql and migrations/versions.
    """
    sources = dict(_sources(tree))
    columns = _columns_that_steer(tree)
    triggers = list(_triggers(tree))
    return {
        name: _counted(reached(sources, triggers, starts), sources, columns)
        for name, starts in STARTS.items()
    }


def reached(
    sources: Mapping[str, Source], triggers: Iterable[tuple[str, str, str]], starts: Iterable[str]
) -> set[str]:
    """Return the names that are reached from these."""
    found: set[str] = set()
    waiting = [name for name in starts if name in sources]
    while waiting:
        name = waiting.pop()
        if name in found or name in _REFUSALS:
            continue
        found.add(name)
        # Not what a hint says that one could type.
        text = re.sub(r"'(?:[^']|'')*'", "''", sources[name].text)
        waiting += {".".join(named) for named in _NAMED.findall(text)} & sources.keys()
        writes = {(verb.split()[0], table) for verb, table in _WRITES.findall(text)}
        waiting += [
            function
            for events, table, function in triggers
            if function in sources and any(verb in events and table == to for verb, to in writes)
        ]
    return found


def _counted(names: set[str], sources: Mapping[str, Source], columns: Mapping[str, set[str]]) -> Counts:
    ways = [sources[name] for name in names]
    text = "\n".join(way.text for way in ways)
    tables = {".".join(named) for named in _NAMED.findall(text)} & columns.keys()
    words = set(re.findall(r"\w+", text))
    statements = Counter(statement for way in ways for statement in way.statements)
    return Counts(
        functions=len(names),
        files=len(set[str]().union(*(way.files for way in ways))),
        lines=sum(way.lines for way in ways),
        branches=sum(way.branches for way in ways),
        tables=len(tables),
        columns_that_steer=sum(len(columns[table] & words) for table in tables),
        statements_said_again=sum(count - 1 for count in statements.values()),
        inserts_of_messages=len(re.findall(r"insert into broker_private\.messages\b", text)),
        deletes_of_messages=len(re.findall(r"delete from broker_private\.messages\b", text)),
    )


def _sources(tree: Path) -> Iterator[tuple[str, Source]]:
    found: dict[str, Source] = {}
    for file in sorted((tree / "sql").rglob("*.sql")):
        text = re.sub(r"--[^\n]*", "", file.read_text(encoding="utf-8"))
        begins = [match for match in _CREATED.finditer(text) if match[1] != "trigger"]
        ends = [*(match.start() for match in begins), len(text)][1:]
        for match, end in zip(begins, ends, strict=True):
            source = found.setdefault(f"{match[2]}.{match[3]}", Source())
            body = "\n".join(line for line in text[match.start() : end].splitlines() if line.strip())
            source.files.add(str(file.relative_to(tree)))
            source.lines += body.count("\n") + 1
            source.text += f"{body}\n"
            source.branches += len(_BRANCH.findall(body))
            said = (" ".join(statement.split()) for statement in body.split(";"))
            source.statements += [statement for statement in said if len(statement) >= _LONG_STATEMENT]
    yield from found.items()


def _triggers(tree: Path) -> Iterator[tuple[str, str, str]]:
    for file in sorted((tree / "sql").rglob("*.sql")):
        for match in _TRIGGER.finditer(file.read_text(encoding="utf-8")):
            yield match[2], match[3], match[4]


def _columns_that_steer(tree: Path) -> dict[str, set[str]]:
    """Return each table with its columns of truth and of letters."""
    columns: dict[str, set[str]] = {}
    for file in sorted((tree / "migrations" / "versions").glob("*.sql")):
        text = re.sub(r"--[^\n]*", "", file.read_text(encoding="utf-8"))
        for table, body in _TABLE.findall(text):
            columns[table] = {name for name, _ in _COLUMN.findall(body)}
        for table, changes in _ALTERED.findall(text):
            known = columns.setdefault(table, set())
            known |= set(re.findall(r"add column (\w+) (?:boolean|\"char\")", changes))
            known -= set(re.findall(r"drop column (?:if exists )?(\w+)", changes))
        for table in re.findall(r"^drop table (?:if exists )?(broker_private\.\w+)", text, re.MULTILINE):
            columns.pop(table, None)
    return columns


def of_revision(revision: str) -> dict[str, Counts]:
    """Count in a revision as git has it."""
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(
            ["git", "-C", str(ROOT), "archive", revision, "sql", "migrations/versions"],
            check=True,
            stdout=subprocess.PIPE,
        ).stdout
        file = Path(folder) / "tree.tar"
        file.write_bytes(archive)
        with tarfile.open(file) as tree:
            for member in tree:
                if member.isfile() and (content := tree.extractfile(member)) is not None:
                    to = Path(folder) / member.name
                    to.parent.mkdir(parents=True, exist_ok=True)
                    to.write_bytes(content.read())
        return counts(Path(folder))


def main() -> int:
    """Print the counts of this checkout, beside those of the revisions that are named."""
    parser = argparse.ArgumentParser(prog="python -m tests.concepts", description=__doc__)
    parser.add_argument("revisions", nargs="*", help="to be shown before this checkout, as git names them")
    parser.add_argument("--json", action="store_true", help="for programs")
    given = parser.parse_args()  # fmt: skip
    found = {revision: of_revision(revision) for revision in given.revisions} | {"here": counts(ROOT)}
    if given.json:
        json.dump(
            {at: {way: asdict(each) for way, each in ways.items()} for at, ways in found.items()},
            sys.stdout,
            indent=2,
        )
        return 0
    table = Table("", *(f"{way}, {at}" for way in STARTS for at in found), box=None)
    for name in asdict(found["here"]["SEND"]):
        row = (str(getattr(ways[way], name)) for way in STARTS for ways in found.values())
        table.add_row(name.replace("_", " "), *row)
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
