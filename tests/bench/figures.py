"""Writes a run's targets and costs into docs/performance.md, between its marks: `python -m tests.bench.figures`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from rich.console import Console

from tests.bench.results import UNSTEADY
from tests.bench.waits import percent

if TYPE_CHECKING:
    from collections.abc import Sequence

BEGIN, END = "<!-- figures of make bench -->", "<!-- end of figures -->"


def figures(result: dict[str, Any]) -> str:
    """Return the Markdown: where it ran, the targets, and each line's ratio and costs."""
    machine = result["machine"]
    settings = machine["settings"]
    said = [
        f"{result['rounds']} rounds of {result['seconds']} s at revision {machine['revision']}, {machine['started'][:10]}, on"
        f" {machine['processor']}, {machine['cores']} cores, {machine['memory_gib']:.0f} GiB, {machine['file_system']},"
        f" PostgreSQL {settings['server_version']}: median (least..most of the rounds). fsync {settings['fsync']}, synchronous_commit"
        f" {settings['synchronous_commit']}, full_page_writes {settings['full_page_writes']}.",
        f"LIMIT is a plain INSERT. {UNSTEADY}.",
        *(f"**{warning}**" for warning in result["warnings"]),
        "| target | must | aim | measured | of the aim |\n|---|---|---|---|---|\n"
        + "\n".join(
            f"| {each['text']} | {each['must']:g} | {'' if each['aim'] is None else format(each['aim'], 'g')}"
            f" | {_measured(each)} | {'' if each['of_aim'] is None else percent(each['of_aim'])} |"
            for each in result["targets"]
        ),
    ]
    missed = [each for each in result["explanations"] if each["missed"]]
    if missed:
        said.append("What bounds the lines that missed a target, and where their time goes:")
    for each in missed:
        reasons = "\n".join(f"  - {name}: {reason}" for name, reason in each["reasons"].items())
        said.append(f"- **{each['line']}**. {'; '.join(each['missed'])}.\n{reasons}")
    said.append(
        "| what | clients | ratio | of | WAL B | servers' µs | workers' µs |\n|---|---|---|---|---|---|---|\n"
        + "\n".join(
            f"| {line['name']} | {line['clients']} | {_spread(line['ratios']) if line['ratios'] else ''} | {line['base'] or ''}"
            f" | {_cost(line['wal'])} | {_cost(line['cpu'])} | {_cost(line['worker'])} |"
            for line in result["lines"]
        )
    )
    notes = [
        f"- {line['name']}: " + ", ".join(f"{name} {value:,.0f}" for name, value in line["notes"].items())
        for line in result["lines"]
        if line["notes"]
    ]
    said += ["\n".join(notes)] if notes else []
    said += (
        [f"Peers: {', '.join(f'{name} {version}' for name, version in result['peers'].items())}."]
        if result["peers"]
        else []
    )
    said += [f"{name}: not measured; {why}." for name, why in result["not_measured"].items()]
    return "\n\n".join(said)


def replaced(page: str, text: str, marks: tuple[str, str] = (BEGIN, END)) -> str:
    """Return the page with the text between its marks.

    Raises:
        ValueError: The page has no marks.
    """
    before, begin, rest = page.partition(marks[0])
    _, end, after = rest.partition(marks[1])
    if not (begin and end):
        raise ValueError(f"no {marks[0]} and {marks[1]}")
    return f"{before}{begin}\n\n{text}\n\n{end}{after}"


def _measured(target: dict[str, Any]) -> str:
    if not target["found"]:
        return "not measured"
    verdict = f"**{target['verdict']}**" if target["verdict"].startswith("missed") else target["verdict"]
    return f"{_spread(target['found'])}: {verdict}"


def _spread(values: Sequence[float]) -> str:
    form = ",.0f" if median(values) >= 100 else ".2f"
    return f"{median(values):{form}} ({min(values):{form}}..{max(values):{form}})"


def _cost(values: Sequence[float]) -> str:
    return f"{median(values):,.0f} ({min(values):,.0f}..{max(values):,.0f})" if values else ""


def main() -> int:
    """Write them; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.figures", description=__doc__)
    parser.add_argument(
        "--results", type=Path, default=Path("build/bench/result.json"), help="default %(default)s"
    )
    parser.add_argument("--page", type=Path, default=Path("docs/performance.md"), help="default %(default)s")
    given = parser.parse_args()  # fmt: skip
    try:
        page = replaced(given.page.read_text(), figures(json.loads(given.results.read_text())))
    except (OSError, ValueError, KeyError) as error:
        Console(stderr=True, soft_wrap=True).print(str(error), markup=False)
        return 1
    given.page.write_text(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
