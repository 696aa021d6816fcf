"""One HTML page: the machine, the figures, the answers to the recommendations, and every cell."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING

from pybroker.throughput.figures import gain_figure, payload_words, seconds_figure, throughput_figure
from pybroker.throughput.matrix import AIM_PER_CORE, HEADLINE_PER_CORE, HEADLINES, PROTOTYPES_PER_CORE, Cell

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from pybroker.throughput.analysis import Outcome
    from pybroker.throughput.results import Results

_STYLE = """
body { font: 15px/1.5 sans-serif; margin: 2em auto; max-width: 75em; padding: 0 1em; color: #222 }
table { border-collapse: collapse; margin: 1em 0; font-size: 13px }
th, td { border-bottom: 1px solid #ddd; padding: .25em .7em; text-align: right; vertical-align: top }
th:first-child, td:first-child, td.text { text-align: left }
tr.failed { background: #fdd }
img { max-width: 100%; display: block; margin: 1em 0 }
"""
_CELL_HEADS = (
    "cell", "messages/s", "sent/s", "sent", "lost", "doubled", "out of order", "latency 50 / 95 / 99 %, ms",
    "from SEND, ms", "readers", "per RECEIVE", "cores", "WAL a message", "bound by", "seconds",
)  # fmt: skip


def write_report(results: Results) -> Path:
    """Write `report.html` from all finished cells, the figures as PNG beside it; return the page's path."""
    outcomes = results.outcomes()
    parts = [
        *_head(results, outcomes),
        *_figures(results, outcomes),
        *_answers(outcomes),
        *_cells(outcomes),
    ]
    page = (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>pybroker throughput</title>'
        f"<style>{_STYLE}</style>{''.join(parts)}</html>\n"
    )
    path = results.path_of("report.html")
    path.write_text(page, encoding="utf-8")
    return path


def answers(outcomes: Iterable[Outcome]) -> list[tuple[int, str, str]]:
    """Return the checklist's rows 171 to 178: number, question, and what was measured."""
    by_cell = {one.cell: one for one in outcomes}
    return [
        (171, "Many messages on each dialog, several dialogs", _dialog_reuse(by_cell)),
        (
            172,
            "RECEIVE TOP (N), not TOP (1)",
            _compare(by_cell, "whitepaper", "top-1", "TOP (10000)", "TOP (1)"),
        ),
        (173, "Readers that wait 3 s", _lifetime(by_cell)),
        (174, "One or two readers a core", _readers(by_cell)),
        (175, "The 150 trick", _gain(by_cell)),
        (176, "The matrix", _matrix(by_cell)),
        (177, "Warm-up", _compare(by_cell, "warm", "cold", "warmed up", "not warmed up")),
        (178, "One, two, three initiators", _growth(by_cell)),
    ]


def _head(results: Results, outcomes: Sequence[Outcome]) -> Iterator[str]:
    conditions = results.conditions
    failed = [one.cell.name for one in outcomes if one.has_failed]
    yield "<h1>The whitepaper's tests</h1>"
    yield (
        f"<p>{len(outcomes)} cells on {escape(conditions.on)} servers; {escape(conditions.machine)};"
        f" warm-up at least {conditions.warm_up:g} s, measured {conditions.measured:g} s;"
        f" {datetime.now(UTC):%Y-%m-%d %H:%M} UTC."
        " All servers, workers and test clients share this machine unless it says otherwise.</p>"
    )
    for about in results.servers():
        yield f"<p>{escape('; '.join(f'{name} {value}' for name, value in about.items()))}</p>"
    if failed:
        yield f"<p><b>{len(failed)} cells failed: {escape(', '.join(failed))}</b></p>"
    else:
        yield f"<p>All {sum(one.sent for one in outcomes):,} messages arrived, once and in order.</p>"
    best = _best(outcomes)
    if best is not None:
        cores = sum(best.cores.values())
        yield (
            f"<p>Most: {best.rate:,.0f} messages/s, {best.cell.name}; bound by {escape(best.bound_by)}."
            + (
                f" That is {best.rate / cores:,.0f} a processor core that servers and workers used;"
                if cores
                else ""
            )
            + f" {AIM_PER_CORE:,} a core are aimed at, bare prototypes reached {PROTOTYPES_PER_CORE:,},"
            f" and the whitepaper's peak is about {HEADLINE_PER_CORE} a core of its servers.</p>"
        )


def _figures(results: Results, outcomes: Sequence[Outcome]) -> Iterator[str]:
    drawn = {
        **{
            f"figure-{initiators + 1}{words}{'' if ratio > 1 else '-every-dialog'}": throughput_figure(
                outcomes, initiators, ratio, series=series
            )
            for series, words in (("whitepaper", ""), ("unlimited", "-unlimited"))
            for initiators in HEADLINES
            for ratio in (150, 1)
        },
        "figure-5": gain_figure(outcomes),
    }
    best = _best(outcomes)
    if best is not None:
        drawn["by-second"] = seconds_figure(best)
    for name, image in drawn.items():
        if image is not None:
            results.path_of(f"{name}.png").write_bytes(image)
            yield f'<img alt="{name}" src="data:image/png;base64,{base64.b64encode(image).decode()}">'


def _best(outcomes: Sequence[Outcome]) -> Outcome | None:
    """Return the fastest cell, of those as in the whitepaper where there are any."""
    printed = [one for one in outcomes if one.cell.series == "whitepaper"]
    return max(printed or outcomes, key=lambda one: one.rate, default=None)


def _answers(outcomes: Sequence[Outcome]) -> Iterator[str]:
    yield "<h2>What the whitepaper recommends, measured</h2><table><tr><th>row<th>recommendation<th>here"
    for row, question, answer in answers(outcomes):
        yield f'<tr><td>{row}<td class="text">{escape(question)}<td class="text">{escape(answer)}'
    yield "</table>"


def _cells(outcomes: Sequence[Outcome]) -> Iterator[str]:
    yield f"<h2>Cells</h2><table><tr>{''.join(f'<th>{escape(head)}' for head in _CELL_HEADS)}"
    for one in sorted(outcomes, key=lambda one: (one.cell.series, *_place(one.cell))):
        values = (
            one.cell.name, f"{one.rate:,.0f}", f"{one.send_rate:,.0f}", f"{one.sent:,}", one.lost,
            one.doubled, one.swapped, _milliseconds(one.latency), _milliseconds(one.from_send), one.readers,
            f"{one.per_receive:,.1f}", _by_name({name: f"{value:.2f}" for name, value in one.cores.items()}),
            _by_name({name: f"{value:,.0f}" for name, value in one.wal_per_message.items()}), one.bound_by,
            f"{one.seconds:.0f}",
        )  # fmt: skip
        shown = "".join(f"<td>{escape(str(value))}" for value in values)
        yield f"<tr{' class=failed' if one.has_failed else ''}>{shown}"
    yield "</table><h2>What sessions waited for</h2>"
    yield "<table><tr><th>cell<th>server<th>event, part of the samples"
    for one in outcomes:
        for server, waits in one.waits.items():
            events = ", ".join(f"{wait} {part:.0%}" for wait, part in waits)
            yield f'<tr><td>{escape(one.cell.name)}<td class="text">{server}<td class="text">{escape(events)}'
    yield "</table>"


def _place(cell: Cell) -> tuple[int, ...]:
    return cell.version, cell.initiators, cell.ratio, cell.payload, cell.threads


def _milliseconds(seconds: Sequence[float]) -> str:
    return " / ".join(f"{1000 * value:,.0f}" for value in seconds) or "-"


def _by_name(values: dict[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items()) or "-"


def _twins(by_cell: dict[Cell, Outcome], one: str, other: str) -> Iterator[tuple[Outcome, Outcome]]:
    """Yield the cells that both series have."""
    for cell, outcome in sorted(by_cell.items(), key=lambda item: _place(item[0])):
        twin = by_cell.get(Cell(other, *_place_of_twin(cell)))
        if cell.series == one and twin is not None:
            yield outcome, twin


def _place_of_twin(cell: Cell) -> tuple[int, int, int, int, int]:
    return cell.version, cell.initiators, cell.threads, cell.ratio, cell.payload


def _compare(by_cell: dict[Cell, Outcome], one: str, other: str, words: str, other_words: str) -> str:
    found = [
        f"{_shape(first.cell)}: {words} {first.rate:,.0f}/s, {other_words} {second.rate:,.0f}/s"
        for first, second in _twins(by_cell, one, other)
    ]
    return "; ".join(found) or "not run"


def _dialog_reuse(by_cell: dict[Cell, Outcome]) -> str:
    found = []
    for first, second in _twins(by_cell, "whitepaper", "one-dialog"):
        each = by_cell.get(Cell("dialog-a-message", *_place_of_twin(first.cell)))
        last = "" if each is None else f", a dialog for each message {each.rate:,.0f}/s"
        found.append(
            f"{_shape(first.cell)}: a dialog for each thread {first.rate:,.0f}/s, one for all"
            f" {second.rate:,.0f}/s{last}"
        )
    return "; ".join(found) or "not run"


def _lifetime(by_cell: dict[Cell, Outcome]) -> str:
    found = [
        f"{_shape(first.cell)}, a message every 0.5 s: waiting 3 s {first.readers} readers, 95 % within"
        f" {_part(first.latency)} ms; not waiting {second.readers} readers, {_part(second.latency)} ms"
        for first, second in _twins(by_cell, "sparse", "sparse-no-wait")
    ]
    return "; ".join(found) or "not run"


def _part(latency: Sequence[float]) -> str:
    return f"{1000 * latency[1]:,.0f}" if latency else "-"


def _readers(by_cell: dict[Cell, Outcome]) -> str:
    found = []
    for first, second in _twins(by_cell, "1-reader", "4-readers"):
        two = by_cell.get(Cell("whitepaper", *_place_of_twin(first.cell)))
        middle = "" if two is None else f", 2 a core {two.rate:,.0f}/s ({two.readers} received)"
        found.append(
            f"{_shape(first.cell)}: 1 a core {first.rate:,.0f}/s ({first.readers} received){middle},"
            f" 4 a core {second.rate:,.0f}/s ({second.readers} received)"
        )
    return "; ".join(found) or "not run"


def _gain(by_cell: dict[Cell, Outcome]) -> str:
    gains = []
    for cell, outcome in by_cell.items():
        spaced = by_cell.get(
            Cell("whitepaper", cell.version, cell.initiators, cell.threads, 150, cell.payload)
        )
        if cell.series == "whitepaper" and cell.ratio == 1 and spaced is not None and outcome.rate:
            gains.append((100 * (spaced.rate / outcome.rate - 1), cell))
    if not gains:
        return "not run"
    (least, _), (most, at) = min(gains, key=lambda gain: gain[0]), max(gains, key=lambda gain: gain[0])
    middle = sorted(gain for gain, _ in gains)[len(gains) // 2]
    return (
        f"every 150th instead of every dialog: between {least:+.0f} % and {most:+.0f} % ({_shape(at)}),"
        f" median {middle:+.0f} % over {len(gains)} pairs; the whitepaper had up to +315 %"
    )


def _matrix(by_cell: dict[Cell, Outcome]) -> str:
    mine = [cell for cell in by_cell if cell.series == "whitepaper"]
    return (
        f"{len(mine)} of the 264 cells for each of {len({cell.version for cell in mine})} PostgreSQL versions"
        if mine
        else "not run"
    )


def _growth(by_cell: dict[Cell, Outcome]) -> str:
    best = {
        initiators: max(
            (
                one.rate
                for cell, one in by_cell.items()
                if (cell.series, cell.initiators) == ("whitepaper", initiators)
            ),
            default=None,
        )
        for initiators in HEADLINES
    }
    shown = [
        f"{initiators}: {rate:,.0f}/s (whitepaper {HEADLINES[initiators]:,})"
        for initiators, rate in best.items()
        if rate is not None
    ]
    return "; ".join(shown) or "not run"


def _shape(cell: Cell) -> str:
    return f"{cell.initiators}x{cell.threads} threads, {payload_words(cell.payload)}"
