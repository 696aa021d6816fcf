"""`make concepts`: how much there is to understand of SEND and RECEIVE, counted from the SQL files alone.

What is reached is reached by name: a function whose name stands in the body of one that is reached, and the
function of a trigger on a table that one of them writes. What only a special case needs counts too: a reader
meets it. What only refuses is counted apart: a reader may skip it.
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
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING

import pglast
from pglast.stream import RawStream
from rich.console import Console
from rich.table import Table

from tests.bench.figures import replaced
from tests.sql_checks import Routine, build, parse_failure

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

ROOT = Path(__file__).resolve().parents[1]
STARTS = {
    "SEND": ("broker.send", "broker.send_batch", "broker.send_all"),
    "RECEIVE": ("broker.receive", "broker.receive_groups", "broker.get_conversation_group"),
}
_REFUSALS = {"broker_private.refuse"}
_MARKS = "<!-- make concepts -->", "<!-- end of concepts -->"
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
_LOCKS = re.compile(r"\bfor (?:no key )?update\b")
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
        statements: the fingerprints of its longer statements, alike for those that differ in constants alone.
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
    functions_that_only_refuse: int
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
    found = {}
    for name, starts in STARTS.items():
        every = reached(sources, triggers, starts)
        refusing = {each for each in every if _only_refuses(each, sources, triggers)}
        way = reached(sources, triggers, starts, past=refusing)
        found[name] = _counted(way, len(every - way), sources, columns)
    return found


def reached(
    sources: Mapping[str, Source],
    triggers: Iterable[tuple[str, str, str]],
    starts: Iterable[str],
    past: Iterable[str] = (),
) -> set[str]:
    """Return the names that are reached from these, without those that it shall pass."""
    found: set[str] = set()
    waiting = [name for name in starts if name in sources]
    while waiting:
        name = waiting.pop()
        if name in found or name in _REFUSALS or name in past:
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


def _only_refuses(name: str, sources: Mapping[str, Source], triggers: Iterable[tuple[str, str, str]]) -> bool:
    """Say whether it refuses or does nothing: it returns nothing, and nothing that it reaches writes or locks."""
    text = sources[name].text
    return (
        bool(re.search(r"\breturns void\b", text))
        and any(f"{refusal}(" in text for refusal in _REFUSALS)
        and not any(
            _WRITES.search(sources[each].text) or _LOCKS.search(sources[each].text)
            for each in reached(sources, triggers, [name])
        )
    )


def _counted(
    names: set[str], refusing: int, sources: Mapping[str, Source], columns: Mapping[str, set[str]]
) -> Counts:
    ways = [sources[name] for name in names]
    text = "\n".join(way.text for way in ways)
    tables = {".".join(named) for named in _NAMED.findall(text)} & columns.keys()
    words = set(re.findall(r"\w+", text))
    statements = Counter(statement for way in ways for statement in way.statements)
    return Counts(
        functions=len(names),
        functions_that_only_refuse=refusing,
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
    for name, statement in _statements(tree):
        if name in found:
            found[name].statements.append(statement)
    yield from found.items()


def _statements(tree: Path) -> Iterator[tuple[str, str]]:
    """Yield each function's name with the fingerprint of each longer statement in it."""
    folders = ("sql", "migrations/versions")
    paths = [path for folder in folders for path in sorted((tree / folder).rglob("*.sql"))]
    texts = {path.relative_to(tree).as_posix(): path.read_text(encoding="utf-8") for path in paths}
    for file in build(texts):
        # A migration's functions are gone, or in sql too.
        for routine in () if file.is_migration else file.routines:
            if parse_failure(routine) is not None:
                raise ValueError(f"{file.path}: {routine.name}: {parse_failure(routine)}")
            for text in _said(routine):
                if len(text) >= _LONG_STATEMENT:
                    yield routine.name, pglast.fingerprint(text)


def _said(routine: Routine) -> Iterator[str]:
    for statement in routine.statements:
        nodes = statement.node if isinstance(statement.node, tuple) else (statement.node,)
        for node in nodes:
            if isinstance(node, tuple):
                yield from (RawStream()(each) for each in node)
            else:
                yield RawStream()(node)


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


def of(place: str) -> dict[str, Counts]:
    """Count in a checkout at this path, or else in a revision as git has it."""
    return counts(Path(place)) if (Path(place) / "sql").is_dir() else _of_revision(place)


def _of_revision(revision: str) -> dict[str, Counts]:
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(
            ["git", "-C", str(ROOT), "archive", revision, "sql", "migrations/versions"],
            check=True,
            capture_output=True,
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


def markdown(found: Mapping[str, Mapping[str, Counts]]) -> str:
    """Return the table for the docs: a column for each way at each place."""
    columns = [(way, at) for way in STARTS for at in found]
    return "\n".join(
        [
            f"| | {' | '.join(f'{way}, {at}' for way, at in columns)} |",
            f"|---{'|---:' * len(columns)}|",
            *(
                f"| {name.replace('_', ' ')} | {' | '.join(str(getattr(found[at][way], name)) for way, at in columns)} |"
                for name in (each.name for each in fields(Counts))
            ),
        ]
    )


def main() -> int:
    """Print the counts of this checkout, beside those of the places that are named; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.concepts", description=__doc__)
    parser.add_argument(
        "places",
        nargs="*",
        metavar="PLACE",
        help="a checkout's path or a revision, to be shown before this checkout",
    )
    parser.add_argument(
        "--only", action="store_true", help="the places that are named, without this checkout"
    )
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.add_argument("--page", type=Path, help="write the table into this page, between its marks")
    given = parser.parse_args()  # fmt: skip
    if given.only and not given.places:
        parser.error("--only needs a place")
    try:
        found = {place: of(place) for place in given.places}
        found |= {} if given.only else {"here": counts(ROOT)}
        if given.page:
            given.page.write_text(replaced(given.page.read_text(), markdown(found), _MARKS))
    except subprocess.CalledProcessError as error:
        Console(stderr=True, soft_wrap=True).print(error.stderr.decode().strip(), markup=False)
        return 1
    except (OSError, ValueError) as error:
        Console(stderr=True, soft_wrap=True).print(str(error), markup=False)
        return 1
    if given.json:
        json.dump(
            {at: {way: asdict(each) for way, each in ways.items()} for at, ways in found.items()},
            sys.stdout,
            indent=2,
        )
        return 0
    table = Table("", *(f"{way}, {at}" for way in STARTS for at in found), box=None)
    for name in (each.name for each in fields(Counts)):
        row = (str(getattr(ways[way], name)) for way in STARTS for ways in found.values())
        table.add_row(name.replace("_", " "), *row)
    Console(width=None if sys.stdout.isatty() else 160).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
