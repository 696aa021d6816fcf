"""What is shown: a table on the terminal, a JSON file, and a page with plots."""

from __future__ import annotations

import html
import importlib.util
import json
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

from rich.table import Table

from tests.bench.loads import BODY_BYTES
from tests.bench.plots import cost_plot, decline_plot, growth_plot, label, ratio_plot
from tests.bench.results import DISTURBED, UNSTEADY, verdicts
from tests.bench.scenarios import SYNC
from tests.bench.waits import percent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from rich.console import Console

    from tests.bench.machine import Machine
    from tests.bench.peers import Peer
    from tests.bench.results import Line, Verdict
    from tests.bench.scenarios import Target

BESIDE = f"! other programs used more than {percent(DISTURBED)} of the processors, the second time too: not a result"
NOT_TRIED = "nothing yet"
TARGET_COLUMNS = ("target", "must", "aim", "measured", "of the aim")
COLUMNS = ("what", "clients", "messages/s", "ratio", "of", "WAL B", "CPU µs", "worker µs")
_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:76rem;margin:2rem auto;padding:0 1rem;color:#1b1f24}"
    "table{border-collapse:collapse;margin:1rem 0}td,th{padding:.2rem .8rem;text-align:right;white-space:nowrap;"
    "border-bottom:1px solid #d8dee4}td:first-child,th:first-child{text-align:left;white-space:normal}"
    "table.lines{font-size:12px;width:100%}.lines td,.lines th{padding:.15rem .4rem}.lines td:nth-child(5){white-space:normal}svg{max-width:100%;height:auto}h3{margin:1.6rem 0 .2rem;font-size:1em}"
    ".yes{color:#116329}.no{color:#a40e26}p.no{margin:.2rem 0}"
    "dl{display:grid;grid-template-columns:13rem 1fr;gap:.2rem 1rem;margin:.4rem 0}dt{font-weight:600}dd{margin:0}"
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
    # Of some lines, by their key: where the time goes, in words.
    profiles: Mapping[tuple[str, int], Mapping[str, str]] = field(default_factory=dict)

    @property
    def verdicts(self) -> list[Verdict]:
        """What became of each target."""
        return verdicts(self.lines, self.targets, self.machine.cores, in_memory=self.machine.is_in_memory)

    @property
    def warnings(self) -> list[str]:
        """What a reader of the figures must know."""
        syncs = [max(line.rates) for line in self.lines if line.name == SYNC]
        return self.machine.warnings(*syncs)

    @property
    def explanations(self) -> list[Explanation]:
        """Of each line that missed a target or was profiled: what bounds it, where its time goes, and what was tried."""
        found = []
        for line in self.lines:
            missed = [
                each for each in self.verdicts if each.is_reached is False and each.target.line == line.key
            ]
            profile = self.profiles.get(line.key, {})
            if not missed and not profile:
                continue
            said = dict.fromkeys(
                f"{each.target.text}: {_figures(each)}, must {each.target.must:g}; {_word(each)}"
                for each in missed
            )
            reasons = dict(profile)
            if missed:
                tried = dict.fromkeys(each.target.tried or NOT_TRIED for each in missed)
                reasons = {"bound by": missed[0].bound, **profile, "tried": " ".join(tried)}
            found.append(Explanation(label(line), list(said), reasons))
        return found


@dataclass(frozen=True)
class Explanation:
    """Why a line is as fast as it is: the targets that their median misses, and the reasons, by what kind they are of."""

    line: str
    missed: Sequence[str]
    reasons: Mapping[str, str]


def introduce(console: Console, run: Run) -> None:
    """Say where it runs."""
    for name, value in _facts(run).items():
        console.print(f"{name:<12}{value}", highlight=False, soft_wrap=True)
    for warning in run.warnings:
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
            _title(line),
            *_cells(line),
            style=None if line.ratios else "dim",
        )
    console.print(table)
    if not all(line.is_steady for line in run.lines):
        console.print(UNSTEADY)
    if any(line.is_disturbed for line in run.lines):
        console.print(BESIDE)
    console.print()
    targets = Table(box=None, pad_edge=False)
    for heading in (*TARGET_COLUMNS, ""):
        targets.add_column(heading, justify="left" if heading == "target" else "right")
    for found in run.verdicts:
        style = "dim" if found.doubt else None if found.is_reached is not False else "yellow"
        targets.add_row(*_target_cells(found), _word(found), style=style)
    console.print(targets)
    for each in run.explanations:
        console.print(f"\n{each.line}", soft_wrap=True, highlight=False)
        for text in [
            *each.missed,
            *(f"{name}: {reason}" for name, reason in each.reasons.items()),
        ]:
            console.print(f"    {text}", soft_wrap=True, highlight=False)
    console.print()
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
        "warnings": run.warnings,
        "lines": [asdict(line) for line in run.lines],
        "targets": [
            {
                "text": found.target.text,
                "must": found.target.must,
                "aim": found.target.aim,
                "found": list(found.found),
                "of_aim": found.of_aim,
                "is_reached": found.is_reached,
                "verdict": _word(found),
            }
            for found in run.verdicts
        ],
        "explanations": [asdict(each) for each in run.explanations],
        "peers": {peer.name: peer.version for peer in run.peers if not peer.why_not},
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
    warnings = "".join(f"<p class=no>{html.escape(warning)}</p>" for warning in run.warnings)
    targets = "".join(
        f"<tr class={_class(found)}>{''.join(f'<td>{html.escape(cell)}' for cell in _target_cells(found))}<td>{_word(found)}</tr>"
        for found in run.verdicts
    )
    explanations = "".join(_explained(each) for each in run.explanations)
    notes = "".join(
        f"<dt>{html.escape(label(line))}</dt><dd>{html.escape(_notes(line))}</dd>"
        for line in run.lines
        if line.notes
    )
    rows = "".join(
        "<tr>"
        + "".join(f"<td>{html.escape(cell)}</td>" for cell in (_title(line), *_cells(line, spread=True)))
        + "</tr>"
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
        f"<style>{_STYLE}</style><h1>pybroker beside PostgreSQL</h1>{warnings}<p>{html.escape(_summary(run))}</p>"
        f"<h2>Targets</h2><table><tr>{''.join(f'<th>{column}' for column in TARGET_COLUMNS)}<th></tr>{targets}</table>{absent}"
        f"{f'<h2>Where the time goes</h2>{explanations}' if explanations else ''}"
        f"<h2>Ratios</h2>{ratio_plot(run.lines, run.targets)}{growth_plot(run.lines)}{decline_plot(run.lines)}"
        f"<h2>What a message costs</h2>{cost_plot(run.lines)}"
        f"<h2>All lines</h2><p>{UNSTEADY}; {BESIDE}</p><table class=lines><tr>{''.join(f'<th>{column}' for column in COLUMNS)}</tr>{rows}</table>"
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
        "peers": ", ".join(f"{peer.name} {peer.version}" for peer in run.peers if not peer.why_not) or "none",
        "run": f"{run.rounds} rounds of {run.seconds} s, bodies of {BODY_BYTES} bytes; median (min..max)",
    }


def _summary(run: Run) -> str:
    judged = [each for each in run.verdicts if each.is_reached is not None]
    doubtful = sum(1 for each in judged if each.doubt)
    reached = sum(1 for each in judged if each.is_reached and not each.doubt)
    return (
        f"{len(judged)} of {len(run.targets)} targets were measured: {reached} reached, {len(judged) - doubtful - reached} missed, {doubtful} without a verdict, as the rounds allow"
        f" none. Rounds of {run.seconds} s: {run.rounds}, on"
        f" {run.machine.processor}, {run.machine.cores} cores, {run.machine.started[:10]}, revision {run.machine.revision}. Each figure is a median"
        " with the least and the most of the rounds; a ratio is taken within each round, and is all that may be carried to another machine."
    )


def _title(line: Line) -> str:
    return f"{line.name}{'' if line.is_steady else ' ?'}{' !' if line.is_disturbed else ''}"


def _cells(line: Line, *, spread: bool = False) -> tuple[str, ...]:
    costs = ((line.wal, ",.0f"), (line.cpu, ",.1f"), (line.worker, ",.1f"))
    return (
        str(line.clients),
        _spread(line.rates, ",.0f"),
        _spread(line.ratios, ".2f") if line.ratios else "",
        line.base or "",
        *(
            "" if not values else _spread(values, form) if spread else f"{median(values):{form}}"
            for values, form in costs
        ),
    )


def _explained(each: Explanation) -> str:
    missed = "".join(f"<p class=no>{html.escape(target)}</p>" for target in each.missed)
    reasons = "".join(
        f"<dt>{html.escape(name)}</dt><dd>{html.escape(reason)}</dd>" for name, reason in each.reasons.items()
    )
    return f"<h3>{html.escape(each.line)}</h3>{missed}<dl>{reasons}</dl>"


def _target_cells(found: Verdict) -> tuple[str, ...]:
    return (
        found.target.text,
        f"{found.target.must:g}",
        "" if found.target.aim is None else f"{found.target.aim:g}",
        _figures(found),
        "" if found.of_aim is None else percent(found.of_aim),
    )


def _figures(found: Verdict) -> str:
    if not found.found:
        return "not measured"
    is_part = found.target.of is not None or found.target.figure == "rate"
    return _spread(found.found, ".2f" if is_part else ",.0f")


def _word(found: Verdict) -> str:
    if found.doubt or found.is_reached is None:
        return found.doubt
    word = "missed" if not found.is_reached else "reached, the aim too" if found.is_hoped_for else "reached"
    return word if found.is_steady else f"{word} ?"


def _class(found: Verdict) -> str:
    return "none" if found.doubt else {True: "yes", False: "no", None: "none"}[found.is_reached]


def _notes(line: Line) -> str:
    said = [f"{name} {value:,.0f}" for name, value in line.notes.items()]
    if line.curve:
        said.append(f"messages/s in each second: {' '.join(f'{rate:.0f}' for rate in line.curve)}")
    return ", ".join(said)


def _spread(values: Sequence[float], form: str) -> str:
    return f"{median(values):{form}} ({min(values):{form}}..{max(values):{form}})"
