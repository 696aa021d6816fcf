"""`python -m tests.bench.against REVISION`: each line of the benchmark beside the same line of another revision.

A rate on one day says nothing of a rate on another. So both revisions are measured in one run, round by round,
and each goes first in every other round. A round is `python -m tests.bench --rounds 1` in a checkout of its own,
with the same interpreter and libraries; an old revision's lines are those that it had. What is compared is each
line's ratio to what it is a ratio of, and the servers' and workers' processor time a message.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).resolve().parents[2]
LINKED = ("migrations", "sql", "workers")


@dataclass(frozen=True)
class Line:
    """What a line came to in each round, in one revision.

    Attributes:
        ratios: to the line that it is a ratio of.
        cpu: microseconds a message of the servers' and the workers' processors.
    """

    ratios: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Compared:
    """One line of both revisions; `is_worse` where all rounds of the newer one lie below all of the older one."""

    name: str
    clients: int
    old: Line
    new: Line

    @property
    def is_worse(self) -> bool:
        """Whether the newer interval lies below the older one."""
        return bool(self.new.ratios and self.old.ratios) and max(self.new.ratios) < min(self.old.ratios)


def compared(old: Sequence[dict[str, Any]], new: Sequence[dict[str, Any]]) -> list[Compared]:
    """Return the lines that both have, in the newer one's order, from the results of each round."""
    befores, nows = _lines(old), _lines(new)
    return [Compared(*key, befores[key], line) for key, line in nows.items() if key in befores]


def _lines(results: Sequence[dict[str, Any]]) -> dict[tuple[str, int], Line]:
    found: dict[tuple[str, int], Line] = {}
    for result in results:
        for line in result["lines"]:
            kept = found.setdefault((line["name"], line["clients"]), Line())
            kept.ratios.extend(line["ratios"])
            if line["cpu"]:
                kept.cpu.append(median(line["cpu"]) + (median(line["worker"]) if line["worker"] else 0))
    return found


@contextmanager
def _checkout(revision: str) -> Iterator[Path]:
    """Yield a checkout of the revision, which goes afterwards."""
    with tempfile.TemporaryDirectory(prefix="pybroker-against-") as folder:
        tree = Path(folder) / "tree"
        git = ["git", "-C", str(ROOT)]
        subprocess.run([*git, "worktree", "add", "--quiet", "--detach", tree, revision], check=True)
        try:
            for name in LINKED:
                link = tree / "pybroker" / name
                if not link.exists():
                    link.symlink_to(Path("..") / name)
            yield tree
        finally:
            subprocess.run([*git, "worktree", "remove", "--force", tree], check=True)


def _round(tree: Path, options: Sequence[str]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="pybroker-against-") as folder:
        file = Path(folder) / "result.json"
        command = [sys.executable, "-m", "tests.bench", "--rounds", "1", "--no-profiles", "--fresh"]
        ran = subprocess.run(
            [*command, "--json", file, "--page", file.with_suffix(".html"), *options],
            cwd=tree,
            env={**os.environ, "PYTHONPATH": str(tree)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        # It exits with 1 where a target was missed, and has measured all the same.
        if not file.exists():
            raise SystemExit(f"The benchmark in {tree} ended with {ran.returncode}:\n{ran.stderr}")
        result: dict[str, Any] = json.loads(file.read_text())
        return result


def _spread(values: Sequence[float]) -> str:
    return f"{median(values):.2f} ({min(values):.2f}..{max(values):.2f})" if values else ""


def _show(console: Console, revision: str, lines: Sequence[Compared]) -> None:
    table = Table("line", "clients", f"ratio at {revision}", "ratio now", f"µs at {revision}", "µs now", "")
    for line in lines:
        table.add_row(
            line.name,
            str(line.clients),
            _spread(line.old.ratios),
            _spread(line.new.ratios),
            f"{median(line.old.cpu):,.0f}" if line.old.cpu else "",
            f"{median(line.new.cpu):,.0f}" if line.new.cpu else "",
            "worse" if line.is_worse else "",
        )
    console.print(table)


def main() -> int:
    """Compare; return 1 where a line is worse than it was."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.against", description=__doc__)
    parser.add_argument("revision", help="what to compare with, as git names it")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is measured (%(default)s)")
    parser.add_argument("--json", type=Path, help="where to write each round's figures")
    parser.epilog = "What follows -- goes to tests.bench: -- --scenario ours --seconds 2."
    arguments = [*sys.argv[1:], "--"]
    end = arguments.index("--")
    given, options = parser.parse_args(arguments[:end]), arguments[end + 1 : -1]  # fmt: skip
    console = Console(width=None if sys.stdout.isatty() else 160)
    old: list[dict[str, Any]] = []
    new: list[dict[str, Any]] = []
    with _checkout(given.revision) as tree:
        for number in range(given.rounds):
            sides = [(tree, old), (ROOT, new)]
            for where, results in sides if number % 2 == 0 else reversed(sides):
                results.append(_round(where, options))
                if given.json is not None:
                    given.json.parent.mkdir(parents=True, exist_ok=True)
                    given.json.write_text(json.dumps({"old": old, "new": new}, indent=2))
            console.print(f"round {number + 1} of {given.rounds}")
    lines = compared(old, new)
    _show(console, given.revision, lines)
    return int(any(line.is_worse for line in lines))


if __name__ == "__main__":
    sys.exit(main())
