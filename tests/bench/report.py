"""What is shown: a table on the terminal, a JSON file, and a page with plots."""

from __future__ import annotations

import html
import importlib.util
import io
import json
from dataclasses import asdict, dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from rich.table import Table

from tests.bench.results import STEADY, verdicts
from tests.bench.scenarios import BODY_BYTES, TARGETS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rich.console import Console

    from tests.bench.machine import Machine
    from tests.bench.peers import Peer
    from tests.bench.results import Line

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


def clients(count: int) -> str:
    """Return the number of clients in words."""
    return "1 client" if count == 1 else f"{count} clients"


def introduce(console: Console, run: Run) -> None:
    """Say where it runs."""
    for label, value in _facts(run).items():
        console.print(f"{label:<12}{value}", highlight=False, soft_wrap=True)
    for warning in run.machine.warnings():
        console.print(f"[yellow]{warning}", soft_wrap=True)
    console.print()


def show(console: Console, run: Run) -> None:
    """Print the run.lines and what became of the targets."""
    table = Table(box=None, pad_edge=False)
    for heading in ("what", "clients", "messages/s", "ratio", "of", "WAL B", "CPU µs"):
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
    for heading in ("target", "must", "measured", ""):
        targets.add_column(heading, justify="left" if heading == "target" else "right")
    for found in verdicts(run.lines):
        style = None if found.is_reached is not False else "yellow"
        targets.add_row(
            found.target.text,
            f"{found.target.must:g}",
            _spread(found.ratios, ".2f") if found.ratios else "not measured",
            {True: "reached", False: "missed", None: ""}[found.is_reached],
            style=style,
        )
    console.print(targets)
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
            {"text": found.target.text, "must": found.target.must, "ratios": list(found.ratios)}
            for found in verdicts(run.lines)
        ],
        "not_measured": {peer.name: peer.why_not for peer in run.peers if peer.why_not},
    }
    return json.dumps(result, indent=2) + "\n"


def write_page(file: Path, run: Run) -> bool:
    """Write a page that needs nothing beside it; False if there is no matplotlib to draw with."""
    if importlib.util.find_spec("matplotlib") is None:
        return False
    facts = "".join(
        f"<dt>{html.escape(label)}</dt><dd>{html.escape(value)}</dd>" for label, value in _facts(run).items()
    )
    warnings = "".join(f"<p class=no>{html.escape(warning)}</p>" for warning in run.machine.warnings())
    targets = "".join(
        f"<tr><td>{html.escape(found.target.text)}</td><td>{found.target.must:g}</td>"
        f"<td class={'yes' if found.is_reached else 'no' if found.ratios else ''}>"
        f"{_spread(found.ratios, '.2f') if found.ratios else 'not measured'}</td></tr>"
        for found in verdicts(run.lines)
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
        f"<h2>Targets</h2><table><tr><th>target<th>must<th>measured</tr>{targets}</table>{absent}"
        f"<h2>Ratios</h2>{_ratio_plot(run.lines)}<h2>What a message costs</h2>{_cost_plot(run.lines)}"
        f"<h2>All lines</h2><table><tr><th>what<th>clients<th>messages/s<th>ratio<th>of<th>WAL B<th>CPU µs</tr>{rows}</table>"
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
    )


def _spread(values: Sequence[float], form: str) -> str:
    return f"{median(values):{form}} ({min(values):{form}}..{max(values):{form}})"


def _label(line: Line) -> str:
    return f"{line.name}, {clients(line.clients)}"


def _ratio_plot(lines: Sequence[Line]) -> str:
    shown = [line for line in lines if line.ratios][::-1]
    figure, axes = _canvas(len(shown))
    middles = [median(line.ratios) for line in shown]
    spreads = [
        [middle - min(line.ratios) for middle, line in zip(middles, shown, strict=True)],
        [max(line.ratios) - middle for middle, line in zip(middles, shown, strict=True)],
    ]
    colours = {"peers": "#9a6700", "adverse": "#8250df", "between servers": "#1a7f37"}
    axes.barh(
        [f"{_label(line)}, of {line.base}" for line in shown],
        middles,
        xerr=spreads,
        color=[colours.get(line.part, "#0969da") for line in shown],
        error_kw={"elinewidth": 1, "ecolor": "#57606a"},
    )
    places = {line.key: place for place, line in enumerate(shown)}
    for target in TARGETS:
        place = places.get(target.line)
        if place is not None and (target.of is None or target.of[0] == shown[place].base):
            axes.plot([target.must] * 2, [place - 0.45, place + 0.45], color="#a40e26", linewidth=2)
    axes.set_xlabel(
        "part of the base's rate, same rounds; red: what is demanded; lines: worst and best round"
    )
    return _svg(figure)


def _cost_plot(lines: Sequence[Line]) -> str:
    shown = [line for line in lines if line.cpu_us is not None][::-1]
    figure, axes = _canvas(len(shown))
    axes.barh([_label(line) for line in shown], [line.cpu_us or 0 for line in shown], color="#0969da")
    axes.set_xscale("log")
    axes.set_xlabel("microseconds of the server's processors a message (logarithmic)")
    return _svg(figure)


def _canvas(rows: int) -> Any:
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(11, 1 + 0.26 * rows), layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(y=0.01)
    axes.tick_params(axis="y", labelsize=8)
    return figure, axes


def _svg(figure: Any) -> str:
    drawn = io.StringIO()
    figure.savefig(drawn, format="svg")
    return drawn.getvalue().split("?>", 1)[-1].split('svg11.dtd">', 1)[-1]
