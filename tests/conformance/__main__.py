"""Print every row and edge case of the checklist of Service Broker's behaviour, and what its tests say: `make conformance`.

A test shows what its name says: `test_row_027_...`, `test_rows_056_057_...`, `test_edge_022_...`, `test_row_065_edge_007_...`.
Exit code 1: a test failed, a line has no test, or the documented difference is not documented.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tomllib
from collections import defaultdict
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Sequence

ROWS = Path(__file__).with_name("rows.toml")
TESTS = Path(__file__).parents[1]
DIFFERENCES = TESTS.parent / "docs" / "differences.md"
_NAMED = re.compile(r"test(?:_(?:row|edge)s?(?:_\d{3})+)+")
_PART = re.compile(r"(row|edge)s?((?:_\d{3})+)")
# Of a line that goes into a file.
WIDTH = 160
BAD = {"FAIL", "no test", "not run"}
COLOURS = {
    "pass": "green",
    "differs": "yellow",
    "not built": "dim",
    "no test": "red",
    "not run": "red",
    "FAIL": "bold red",
}


@dataclass
class Line:
    """A row or an edge case: what it says, where it belongs, what its tests said, and what they would let pass."""

    kind: str
    number: int
    group: str
    feature: str
    difference: str | None = None
    comes_with: str | None = None
    tests: set[str] = field(default_factory=set)
    outcomes: set[str] = field(default_factory=set)
    result: str = "no test"
    lets_pass: str = ""

    def judge(self) -> None:
        if "failed" in self.outcomes:
            self.result = "FAIL"
        elif "passed" in self.outcomes:
            self.result = "differs" if self.difference else "pass"
        elif self.tests:
            self.result = "not run"
        elif self.comes_with:
            self.result = "not built"


def names_of(test: str) -> set[tuple[str, int]]:
    """Return the lines that a test is named by, such as ("row", 56)."""
    named = _NAMED.match(test)
    if named is None:
        return set()
    return {
        (kind, int(number))
        for kind, numbers in _PART.findall(named.group())
        for number in numbers.split("_")
        if number
    }


def read_lines() -> dict[tuple[str, int], Line]:
    """Read rows.toml, and look its differences up in the docs; ValueError for one that is not there."""
    data = tomllib.loads(ROWS.read_text())
    lines = {
        (kind, int(number)): Line(kind, int(number), title, feature)
        for kind in ("row", "edge")
        for group in data[f"{kind}s"].values()
        for title in [group.pop("title")]
        for number, feature in group.items()
    }
    for reason, numbers in data["later"].items():
        for kind in ("row", "edge"):
            for span in numbers[f"{kind}s"]:
                first, last = span if isinstance(span, list) else (span, span)
                for number in range(first, last + 1):
                    lines[kind, number].comes_with = reason
    for kind in ("row", "edge"):
        for number, implementation in data["lets_pass"][f"{kind}s"].items():
            lines[kind, int(number)].lets_pass = implementation
    documented = re.findall(r"^\| ([^|]+) \|", DIFFERENCES.read_text(), re.MULTILINE)
    for kind in ("row", "edge"):
        for number, start in data["differences"].get(f"{kind}s", {}).items():
            found = [cell for cell in documented if cell.startswith(start)]
            if len(found) != 1:
                raise ValueError(
                    f"{kind} {number}: docs/differences.md has {len(found)} lines that begin with {start!r}"
                )
            lines[kind, int(number)].difference = found[0]
    return lines


class Listener:
    """A pytest plugin that notes what the tests of each line said."""

    def __init__(self, lines: dict[tuple[str, int], Line]) -> None:
        self.lines = lines

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        test = report.nodeid.rpartition("::")[2]
        for name in names_of(test):
            line = self.lines[name]
            line.tests.add(report.nodeid.partition("[")[0])
            if report.when == "call" or report.outcome != "passed":
                line.outcomes.add(report.outcome)


def find_tests() -> dict[tuple[str, int], set[str]]:
    """Find the tests by their names, without importing anything."""
    found: dict[tuple[str, int], set[str]] = defaultdict(set)
    for path in sorted(TESTS.rglob("test_*.py")):
        for test in re.findall(r"^(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE):
            for name in names_of(test):
                found[name].add(f"{path.relative_to(TESTS.parent)}::{test}")
    return found


def _how(line: Line) -> str:
    """Return where to look, of a line that one must look at."""
    if line.result == "differs":
        return f"docs/differences.md: {line.difference}"
    if line.result == "not built":
        return f"comes with {line.comes_with}"
    return ", ".join(sorted(line.tests)) if line.result in BAD else ""


def table_of(lines: Sequence[Line]) -> Table:
    """Return the table for a terminal: it folds what is too long for a column, and cuts nothing."""
    table = Table(box=None, pad_edge=False)
    table.add_column("", no_wrap=True)
    table.add_column("feature", ratio=3, overflow="fold")
    table.add_column("result", no_wrap=True)
    table.add_column("how, or what its tests would let pass", ratio=2, overflow="fold")
    group = ""
    for line in lines:
        if line.group != group:
            group = line.group
            table.add_row("", f"[bold]{group}[/bold]")
        table.add_row(
            f"{line.kind} {line.number}",
            Text(line.feature),
            Text(line.result, COLOURS[line.result]),
            Text(_how(line) or line.lets_pass),
        )
    return table


def markdown_of(lines: Sequence[Line]) -> str:
    """Return the table for the docs."""

    def cell(text: str) -> str:
        return text.replace("|", "\\|").replace("<", "&lt;")

    return "\n".join(
        [
            "| line | feature | result | how | its tests would let pass |\n|---|---|---|---|---|",
            *(
                f"| {line.kind} {line.number} | {cell(line.feature)} | {line.result} | {cell(_how(line))} |"
                f" {cell(line.lets_pass)} |"
                for line in lines
            ),
        ]
    )


def _summary(lines: Sequence[Line]) -> str:
    results = [line.result for line in lines]
    return ", ".join(f"{results.count(result)} {result}" for result in COLOURS)


def _run(lines: dict[tuple[str, int], Line], options: list[str]) -> int:
    """Run the tests that are named by a line, and note what they said; return pytest's exit code."""
    for name, tests in find_tests().items():
        lines[name].tests |= tests
    files = sorted({test.partition("::")[0] for line in lines.values() for test in line.tests})
    arguments = ["-q", "--no-header", "-r", "fE", "-k", "test_row or test_edge", *files, *options]
    # What pytest prints is for the person who waits: a program reads standard output.
    with redirect_stdout(sys.stderr):
        code = pytest.main(arguments, plugins=[Listener(lines)])
    for line in lines.values():
        line.judge()
    return int(code)


def main() -> int:
    """Run, print, and return the exit code; what this does not know is handed to pytest, such as --numprocesses 4."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print a list of objects")
    form.add_argument("--markdown", action="store_true", help="print the table for the docs")
    arguments, options = parser.parse_known_args()
    lines = read_lines()
    code = _run(lines, options)
    if arguments.json:
        json.dump([asdict(line) for line in lines.values()], sys.stdout, indent=1, default=sorted)
    elif arguments.markdown:
        sys.stdout.write(f"{markdown_of(list(lines.values()))}\n\n{_summary(list(lines.values()))}\n")
    else:
        console = Console()
        console = console if console.is_terminal else Console(width=WIDTH)
        console.print(table_of(list(lines.values())))
        console.print(_summary(list(lines.values())))
    return int(code != pytest.ExitCode.OK or any(line.result in BAD for line in lines.values()))


if __name__ == "__main__":
    sys.exit(main())
