"""One HTML page: the machine, the figures, the answers to the recommendations, and every cell."""

from __future__ import annotations

import base64
import re
from collections import Counter
from datetime import UTC, datetime
from html import escape
from statistics import median
from typing import TYPE_CHECKING

import msgspec

from pybroker.throughput.figures import gain_figure, payload_words, seconds_figure, throughput_figure
from pybroker.throughput.matrix import (
    AIM_PER_CORE,
    GAIN_FROM_THREADS,
    GAIN_PERCENT,
    HEADLINE_PER_CORE,
    HEADLINES,
    PROTOTYPES_PER_CORE,
    Cell,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from pybroker.throughput.analysis import Outcome
    from pybroker.throughput.results import Finished, Results

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
# Of what a directory has no cells for.
NOT_RUN = "not run"
BACKLOG_HEADS = (
    "gathered and then processed", "messages gathered", "sent/s", "processed/s, once activation was on",
    "sent and processed at the same time, messages/s",
)  # fmt: skip
# Where a session waits that wants the content of a page which another one changes.
_PAGE_WAIT = "LWLock:BufferContent"
# Less is seldom; so much less with 150 is a difference, few as the samples of a cell are.
_SELDOM, _COOLED = 0.02, 0.5
_WHOLE = 0.999
_NOT_WAITING = {"running", "Client:ClientRead", "Timeout:PgSleep"}
_TOP_WAITS = 4


def write_report(results: Results) -> Path:
    """Write `report.html` from all finished cells, the figures as PNG beside it; return the page's path."""
    finished = results.finished()
    outcomes = finished.outcomes
    parts = [
        *_head(finished),
        *_figures(results, outcomes),
        *_answers(outcomes),
        *_backlogs(outcomes),
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
    found = [
        (171, "Many messages on each dialog, several dialogs", _dialog_reuse(by_cell)),
        (172, "RECEIVE TOP (N), not TOP (1)", _receive_top(by_cell)),
        (173, "Readers that wait 3 s", _lifetime(by_cell)),
        (174, "One or two readers a core", _readers(by_cell)),
        (175, "The 150 trick", _gain(by_cell)),
        (176, "The matrix", _matrix(by_cell)),
        (177, "Warm-up", _compare(by_cell, "warm", "cold", "warmed up", "not warmed up")),
        (178, "One, two, three initiators", _growth(by_cell)),
    ]
    return [(row, question, "; ".join(answer) or NOT_RUN) for row, question, answer in found]


def backlogs(outcomes: Iterable[Outcome]) -> list[tuple[str, ...]]:
    """Return a row, as BACKLOG_HEADS says, for each cell whose messages gathered before activation was on."""
    by_cell = {one.cell: one for one in outcomes}
    rows: list[tuple[str, ...]] = []
    for cell, one in sorted(by_cell.items(), key=lambda item: (item[0].series, *_place(item[0]))):
        if cell.how.is_deferred:
            series = "batches" if cell.how.batch > 1 else "whitepaper"
            twin = by_cell.get(Cell(series, *_place_of_twin(cell)))
            rows.append((
                f"{_shape(cell)}, {cell.how.batch} a transaction", f"{one.sent:,}", f"{one.send_rate:,.0f}",
                f"{one.rate:,.0f}", NOT_RUN if twin is None else f"{twin.rate:,.0f}",
            ))  # fmt: skip
    return rows


def best_of(outcomes: Iterable[Outcome]) -> dict[int, Outcome]:
    """Return the whitepaper's cell with the highest rate for each number of initiators that has one."""
    best: dict[int, Outcome] = {}
    for one in outcomes:
        initiators = one.cell.initiators
        is_printed = one.cell.series == "whitepaper" and initiators in HEADLINES
        if is_printed and (initiators not in best or best[initiators].rate < one.rate):
            best[initiators] = one
    return dict(sorted(best.items()))


def bounds(outcomes: Iterable[Outcome]) -> str:
    """Tell what bounded how many cells; the initiators are alike."""
    found = Counter(re.sub(r"the initiator\d+", "an initiator", one.bound_by) for one in outcomes)
    return ", ".join(f"{bound} ({count})" for bound, count in found.most_common())


def core_words(finished: Finished, one: Outcome) -> str:
    """Tell a cell's rate for each core that is there, beside the whitepaper's; and for each that was busy."""
    present, busy = finished.cores(one.cell), sum(one.cores.values())
    quotas = finished.quotas(one.cell)
    whose = "their quotas" if quotas is not None else "the machine, test clients included"
    words = [
        "How many cores the servers have is not known here"
        if present is None
        else f"{one.rate / present:,.0f} messages/s a core present ({present:g}: {whose})",
        f"the whitepaper's peak is about {HEADLINE_PER_CORE} a core present in its servers;"
        f" {AIM_PER_CORE:,} are aimed at here, and bare prototypes reached {PROTOTYPES_PER_CORE:,}",
    ]
    if busy:
        words.append(
            f"by busy cores instead ({busy:.2f} that servers and workers used): {one.rate / busy:,.0f} a core"
        )
    return "; ".join(words) + "."


def _head(finished: Finished) -> Iterator[str]:
    conditions, outcomes = finished.conditions, finished.outcomes
    failed = [one.cell.name for one in outcomes if one.has_failed]
    yield "<h1>The whitepaper's tests</h1>"
    yield (
        f"<p>{len(outcomes)} cells, on {escape(conditions.on)}; {escape(conditions.machine)};"
        f" warm-up at least {conditions.warm_up:g} s, measured {conditions.measured:g} s;"
        f" {datetime.now(UTC):%Y-%m-%d %H:%M} UTC."
        " All servers, workers and test clients share this machine unless it says otherwise.</p>"
    )
    for about in finished.servers.values():
        yield f"<p>{escape('; '.join(f'{name} {value}' for name, value in about.items()))}</p>"
    if failed:
        yield f"<p><b>{len(failed)} cells failed: {escape(', '.join(failed))}</b></p>"
    else:
        yield f"<p>All {sum(one.sent for one in outcomes):,} messages arrived, once and in order.</p>"
    best = _best(outcomes)
    if best is not None:
        yield (
            f"<p>Most: {best.rate:,.0f} messages/s, {best.cell.name}; bound by {escape(best.bound_by)}.</p>"
            f"<p>{escape(core_words(finished, best))}</p>"
            f"<p>What bounded the cells: {escape(bounds(outcomes))}.</p>"
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


def _backlogs(outcomes: Sequence[Outcome]) -> Iterator[str]:
    rows = backlogs(outcomes)
    yield "<h2>Activation off while sending, then on</h2>"
    if not rows:
        yield "<p>not run</p>"
        return
    yield f"<table><tr>{''.join(f'<th>{escape(head)}' for head in BACKLOG_HEADS)}"
    for row in rows:
        yield f"<tr>{''.join(f'<td>{escape(value)}' for value in row)}"
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
            events = ", ".join(f"{wait} {part:.0%}" for wait, part in waits[:_TOP_WAITS])
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


def _compare(by_cell: dict[Cell, Outcome], one: str, other: str, words: str, other_words: str) -> list[str]:
    return [
        f"{_shape(first.cell)}: {words} {first.rate:,.0f}/s, {other_words} {second.rate:,.0f}/s"
        for first, second in _twins(by_cell, one, other)
    ]


def _receive_top(by_cell: dict[Cell, Outcome]) -> list[str]:
    return [
        f"{_shape(first.cell)}: TOP (10000) {first.rate:,.0f}/s, {first.per_receive:,.1f} messages a RECEIVE;"
        f" TOP (1) {second.rate:,.0f}/s, {second.per_receive:,.1f} a RECEIVE"
        for first, second in _twins(by_cell, "whitepaper", "top-1")
    ]


def _dialog_reuse(by_cell: dict[Cell, Outcome]) -> list[str]:
    found = []
    for first, second in _twins(by_cell, "whitepaper", "one-dialog"):
        each = by_cell.get(Cell("dialog-a-message", *_place_of_twin(first.cell)))
        last = "" if each is None else f", a dialog for each message {each.rate:,.0f}/s"
        found.append(
            f"{_shape(first.cell)}: a dialog for each thread {first.rate:,.0f}/s, one for all"
            f" {second.rate:,.0f}/s{last}"
        )
    return found


def _lifetime(by_cell: dict[Cell, Outcome]) -> list[str]:
    return [
        f"{_shape(first.cell)}, a message every 0.5 s: waiting 3 s {first.readers} readers, 95 % within"
        f" {_part(first.latency)} ms; not waiting {second.readers} readers, {_part(second.latency)} ms"
        for first, second in _twins(by_cell, "sparse", "sparse-no-wait")
    ]


def _part(latency: Sequence[float]) -> str:
    return f"{1000 * latency[1]:,.0f}" if latency else "-"


def _readers(by_cell: dict[Cell, Outcome]) -> list[str]:
    found = []
    for first, second in _twins(by_cell, "1-reader", "4-readers"):
        two = by_cell.get(Cell("2-readers", *_place_of_twin(first.cell)))
        middle = "" if two is None else f", 2 a core {two.rate:,.0f}/s ({two.readers} received)"
        found.append(
            f"{_shape(first.cell)}: 1 a core {first.rate:,.0f}/s ({first.readers} received){middle},"
            f" 4 a core {second.rate:,.0f}/s ({second.readers} received)"
        )
    return found


def _gain(by_cell: dict[Cell, Outcome]) -> list[str]:
    pairs = [
        (one, spaced)
        for cell, one in by_cell.items()
        if cell.series == "whitepaper" and cell.ratio == 1 and one.rate
        for spaced in [by_cell.get(msgspec.structs.replace(cell, ratio=150))]
        if spaced is not None
    ]
    if not pairs:
        return []
    gains = _gains(pairs)
    many = _with_many_threads(pairs)
    most = max(pairs, key=lambda pair: pair[1].rate / pair[0].rate)[0].cell
    return [
        f"every 150th instead of every dialog: between {gains[0]:+.0f} % and {gains[-1]:+.0f} %"
        f" ({_shape(most)}), median {median(gains):+.0f} % over {len(gains)} pairs and"
        f" {median(_gains(many)):+.0f} % over the {len(many)} of {_threads(many)};"
        f" the whitepaper had up to +{GAIN_PERCENT} %.{_hot_page(many)}"
    ]


def _gains(pairs: Sequence[tuple[Outcome, Outcome]]) -> list[float]:
    return sorted(100 * (spaced.rate / one.rate - 1) for one, spaced in pairs)


def _with_many_threads(pairs: Sequence[tuple[Outcome, Outcome]]) -> Sequence[tuple[Outcome, Outcome]]:
    """Return those in which the whitepaper found a gain, or all if there are none."""
    return [
        pair for pair in pairs if pair[0].cell.initiators * pair[0].cell.threads >= GAIN_FROM_THREADS
    ] or pairs


def _hot_page(pairs: Sequence[tuple[Outcome, Outcome]]) -> str:
    """Tell whether sessions wait for pages, and whether less so if used dialogs share none."""
    every, spaced = (_mean_waits(pair[place] for pair in pairs) for place in (0, 1))
    if not every or not spaced:
        return ""
    shares = every.get(_PAGE_WAIT, 0.0), spaced.get(_PAGE_WAIT, 0.0)
    if max(shares) < _SELDOM:
        words = "there is no hot page here"
    elif shares[1] <= _COOLED * shares[0]:
        words = "neighbouring dialogs do wait for a page that they share, and spacing them helps against that"
    else:
        words = "sessions do wait for pages, and spacing the dialogs does not keep them from it"
    # Older outcomes name the four most frequent events.
    is_cut = any(sum(means.values()) < _WHOLE for means in (every, spaced))
    cut = ", counted where it is among the four most frequent" if is_cut else ""
    others = {wait: part for wait, part in every.items() if wait not in {*_NOT_WAITING, _PAGE_WAIT}}
    top = max(others, key=lambda wait: others[wait], default=None)
    most = (
        f" The initiators wait most for {top}: {others[top]:.0%} and {spaced.get(top, 0.0):.0%}."
        if top
        else ""
    )
    return (
        f" Hot page? {_PAGE_WAIT} is {shares[0]:.1%} of what the initiators' sessions were seen in with every"
        f" dialog, {shares[1]:.1%} with every 150th ({len(pairs)} pairs of {_threads(pairs)}{cut}):"
        f" {words}.{most}"
    )


def _threads(pairs: Sequence[tuple[Outcome, Outcome]]) -> str:
    counts = sorted({one.cell.initiators * one.cell.threads for one, _ in pairs})
    return f"{counts[0]} to {counts[-1]} threads" if len(counts) > 1 else f"{counts[0]} threads"


def _mean_waits(outcomes: Iterable[Outcome]) -> dict[str, float]:
    """Return each event's part of the samples, each initiator of each cell counting alike."""
    seen = [waits for one in outcomes for server, waits in one.waits.items() if server != "target" and waits]
    means: dict[str, float] = {}
    for waits in seen:
        for wait, part in waits:
            means[wait] = means.get(wait, 0.0) + part / len(seen)
    return means


def _matrix(by_cell: dict[Cell, Outcome]) -> list[str]:
    found = Counter(cell.version for cell in by_cell if cell.series == "whitepaper")
    return [
        f"{count} of the 264 cells" + (f" on PostgreSQL {version}" if version else "")
        for version, count in sorted(found.items())
    ]


def _growth(by_cell: dict[Cell, Outcome]) -> list[str]:
    best = best_of(by_cell.values())
    shown = []
    for initiators, one in best.items():
        ours, theirs = f"{one.rate:,.0f}/s", f"{HEADLINES[initiators]:,}"
        if initiators > 1 and 1 in best and best[1].rate:
            ours += f", {one.rate / best[1].rate:.1f} times one's"
            theirs += f", {HEADLINES[initiators] / HEADLINES[1]:.1f} times"
        shown.append(f"{initiators}: {ours} (whitepaper {theirs})")
    return shown


def _shape(cell: Cell) -> str:
    return f"{cell.initiators}x{cell.threads} threads, {payload_words(cell.payload)}"
