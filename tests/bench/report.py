"""What is shown: a table on the terminal, a JSON file, and a page with plots."""

from __future__ import annotations

import html
import importlib.util
import json
from dataclasses import asdict, dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from rich.table import Table

from tests.bench.loads import BODY_BYTES
from tests.bench.plots import cost_plot, growth_plot, label, ratio_plot
from tests.bench.results import STEADY, verdicts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rich.console import Console

    from tests.bench.machine import Machine
    from tests.bench.peers import Peer
    from tests.bench.results import Line, Verdict
    from tests.bench.scenarios import Target

COLUMNS = ("what", "clients", "messages/s", "ratio", "of", "WAL B", "CPU µs", "worker µs")
_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:64rem;margin:2rem auto;padding:0 1rem;color:#1b1f24}"
    "table{border-collapse:collapse;margin:1rem 0}td,th{padding:.2rem .8rem;text-align:right;"
    "border-bottom:1px solid #d8dee4}td:first-child,th:first-child{text-align:left}svg{max-width:100%;height:auto}"
    ".yes{color:#116329}.no{color:#a40e26}dt{font-weight:600}"
)


@dataclass(frozen=True)
class Run:
    """A run that is complete."""

    machine: Machine
    peers: Sequence[Peer]
    seconds: int
    rounds: int
    lines: Sequence[Line] = ()
    targets: Sequence[Target] = ()

    @property
    def verdicts(self) -> list[Verdict]:
        """What became of each target."""
        return verdicts(self.lines, self.targets, self.machine.cores)


def introduce(console: Console, run: Run) -> None:
    """Say where it runs."""
    for name, value in _facts(run).items():
        console.print(f"{name:<12}{value}", highlight=False, soft_wrap=True)
    for warning in run.machine.warnings():
        console.print(f"[yellow]{warning}", soft_wrap=True)
    console.print()


def show(console: Console, run: Run) -> None:
    """Print the run.lines and what became of the targets."""
    table = Table(box=None, pad_edge=False)
    for heading in COLUMNS:
        table.add_column(
            heading, justify="left" if heading in ("what", "of") else "right", no_wrap=heading != "what"
        )
    for line in run.lines:
        table.add_row(
            line.name if line.is_steady else f"{line.name} ?",
            *_cells(line),
            style=None if line.ratios else "dim",
        )
    console.print(table)
    if not all(line.is_steady for line in run.lines):
        console.print(
            f"? one round only, or rounds that differ by more than a factor of {STEADY}: not a result"
        )
    console.print()
    targets = Table(box=None, pad_edge=False)
    for heading in ("target", "must", "aim", "measured", ""):
        targets.add_column(heading, justify="left" if heading == "target" else "right")
    for found in run.verdicts:
        style = None if found.is_reached is not False else "yellow"
        targets.add_row(*_target_cells(found), _word(found), style=style)
    console.print(targets)
    for found in run.verdicts:
        if found.bound:
            console.print(f"missed: {found.target.text}\n    {found.bound}", soft_wrap=True, highlight=False)
    for line in run.lines:
        if line.notes:
            console.print(f"{label(line)}: {_notes(line)}", soft_wrap=True, highlight=False)
    for peer in run.peers:
        if peer.why_not:
            console.print(f"{peer.name}: not measured; {peer.why_not}", soft_wrap=True)


def as_json(run: Run) -> str:
    """Return all of it, each round's figures too."""
    result: dict[str, Any] = {
        "machine": asdict(run.machine),
        "seconds": run.seconds,
        "rounds": run.rounds,
        "body_bytes": BODY_BYTES,
        "warnings": run.machine.warnings(),
        "lines": [asdict(line) for line in run.lines],
        "targets": [
            {
                "text": found.target.text,
                "must": found.target.must,
                "aim": found.target.aim,
                "found": list(found.found),
                "is_reached": found.is_reached,
                "bound": found.bound,
            }
            for found in run.verdicts
        ],
        "not_measured": {peer.name: peer.why_not for peer in run.peers if peer.why_not},
    }
    return json.dumps(result, indent=2) + "\n"


def write_page(file: Path, run: Run) -> bool:
    """Write a page that needs nothing beside it; False if there is no matplotlib to draw with."""
    if importlib.util.find_spec("matplotlib") is None:
        return False
    facts = "".join(
        f"<dt>{html.escape(name)}</dt><dd>{html.escape(value)}</dd>" for name, value in _facts(run).items()
    )
    warnings = "".join(f"<p class=no>{html.escape(warning)}</p>" for warning in run.machine.warnings())
    targets = "".join(
        f"<tr class={_class(found)}>{''.join(f'<td>{html.escape(cell)}' for cell in _target_cells(found))}<td>{_word(found)}</tr>"
        for found in run.verdicts
    )
    bounds = "".join(
        f"<dt>{html.escape(found.target.text)}</dt><dd>{html.escape(found.bound)}</dd>"
        for found in run.verdicts
        if found.bound
    )
    notes = "".join(
        f"<dt>{html.escape(label(line))}</dt><dd>{html.escape(_notes(line))}</dd>"
        for line in run.lines
        if line.notes
    )
    rows = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in (line.name, *_cells(line))) + "</tr>"
        for line in run.lines
    )
    absent = "".join(
        f"<p>{html.escape(peer.name)}: not measured; {html.escape(peer.why_not)}</p>"
        for peer in run.peers
        if peer.why_not
    )
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(
        f"<!doctype html><html lang=en><meta charset=utf-8><title>pybroker beside PostgreSQL</title>"
        f"<style>{_STYLE}</style><h1>pybroker beside PostgreSQL</h1>{warnings}"
        f"<h2>Targets</h2><table><tr><th>target<th>must<th>aim<th>measured<th></tr>{targets}</table>{absent}"
        f"{f'<h2>What bounds those that were missed</h2><dl>{bounds}</dl>' if bounds else ''}"
        f"<h2>Ratios</h2>{ratio_plot(run.lines, run.targets)}{growth_plot(run.lines)}"
        f"<h2>What a message costs</h2>{cost_plot(run.lines)}"
        f"<h2>All lines</h2><table><tr>{''.join(f'<th>{column}' for column in COLUMNS)}</tr>{rows}</table>"
        f"{f'<dl>{notes}</dl>' if notes else ''}"
        f"<h2>Machine</h2><dl>{facts}</dl></html>\n"
    )
    return True


def _facts(run: Run) -> dict[str, str]:
    return {
        "date": run.machine.started,
        "revision": run.machine.revision,
        "machine": f"{run.machine.processor}, {run.machine.cores} cores, {run.machine.memory_gib} GiB, {run.machine.system}",
        "busy before": f"{run.machine.busy_percent:.0f} % of the processors",
        "data": f"{run.machine.data_directory} on {run.machine.file_system}",
        "PostgreSQL": ", ".join(f"{name} {value}" for name, value in run.machine.settings.items()),
        "run": f"{run.rounds} rounds of {run.seconds} s, bodies of {BODY_BYTES} bytes; median (min..max)",
    }


def _cells(line: Line) -> tuple[str, ...]:
    return (
        str(line.clients),
        _spread(line.rates, ",.0f"),
        _spread(line.ratios, ".2f") if line.ratios else "",
        line.base or "",
        "" if line.wal_bytes is None else f"{line.wal_bytes:,.0f}",
        "" if line.cpu_us is None else f"{line.cpu_us:,.1f}",
        "" if line.worker_us is None else f"{line.worker_us:,.1f}",
    )


def _target_cells(found: Verdict) -> tuple[str, ...]:
    target = found.target
    form = ".2f" if target.of is not None or target.figure == "rate" else ",.0f"
    return (
        target.text,
        f"{target.must:g}",
        "" if target.aim is None else f"{target.aim:g}",
        _spread(found.found, form) if found.found else "not measured",
    )


def _word(found: Verdict) -> str:
    if found.is_reached and found.is_hoped_for:
        return "reached, the aim too"
    return {True: "reached", False: "missed", None: ""}[found.is_reached]


def _class(found: Verdict) -> str:
    return {True: "yes", False: "no", None: "none"}[found.is_reached]


def _notes(line: Line) -> str:
    said = [f"{name} {value:,.0f}" for name, value in line.notes.items()]
    if line.curve:
        said.append(f"messages/s in each second: {' '.join(f'{rate:.0f}' for rate in line.curve)}")
    return ", ".join(said)


def _spread(values: Sequence[float], form: str) -> str:
    return f"{median(values):{form}} ({min(values):{form}}..{max(values):{form}})"
