"""One HTML page: the machine, the figures, the answers to the recommendations, and every cell."""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, datetime
from statistics import median
from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader, StrictUndefined

from pybroker.throughput.analysis import ALL_ROLES, DISTURBED
from pybroker.throughput.answers import NOT_RUN, answers, best_of, place, place_of_twin, shape
from pybroker.throughput.costs import costs
from pybroker.throughput.figures import (
    RATE,
    WORDS,
    Figure,
    gain_figure,
    roles_figure,
    seconds_figure,
    throughput_figure,
)
from pybroker.throughput.matrix import (
    HEADLINE_PER_CORE,
    HEADLINES,
    Cell,
    Effort,
)
from pybroker.throughput.results import precise

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from jinja2 import Template

    from pybroker.throughput.analysis import Outcome
    from pybroker.throughput.estimates import Estimate
    from pybroker.throughput.results import Finished, Results

_CELL_HEADS = (
    "cell", "runs", "messages per processor-second", "within", "messages/s", "within", "sent/s", "sent",
    "lost", "doubled", "out of order", "latency 50 / 95 / 99 %, ms", "from SEND, ms", "readers",
    "per RECEIVE", "per batch", "cores", "WAL a message", "bound by", "others", "seconds",
)  # fmt: skip
BESIDE_HEADS = (
    "initiators", "messages per processor-second", "most messages/s", "times one's", "the paper's most",
    "times its one's",
)  # fmt: skip
BACKLOG_HEADS = (
    "gathered and then processed", "messages gathered", "sent/s", "processed/s, once activation was on",
    "sent and processed at the same time, messages/s",
)  # fmt: skip
_TOP_WAITS = 4


def write_report(results: Results, effort: Effort | None = None) -> Path:
    """Write `report.html` from all finished cells, the figures as SVG beside it; return the page's path."""
    finished = results.finished()
    outcomes = finished.outcomes
    drawn = figures(outcomes)
    for figure in drawn:
        results.path_of(f"{figure.name}.svg").write_bytes(figure.alone)
    page = _template().render(
        finding=finding(outcomes),
        complaints=list(_complaints(outcomes)),
        conditions=_conditions(finished),
        servers=[
            "; ".join(f"{name} {value}" for name, value in about.items())
            for about in finished.servers.values()
        ],
        beside_heads=BESIDE_HEADS,
        beside=beside(outcomes),
        beside_words=_beside_words(finished),
        figures=drawn,
        costs=costs(outcomes),
        answers=[(question, answer) for _, question, answer in answers(outcomes)],
        backlog_heads=BACKLOG_HEADS,
        backlogs=backlogs(outcomes),
        repetitions=repetition_words(outcomes, effort or Effort()),
        cell_heads=_CELL_HEADS,
        cells=[(one.has_failed, _values(one)) for one in _in_order(outcomes)],
        waits=list(_waits(_in_order(outcomes))),
    )
    path = results.path_of("report.html")
    path.write_text(page, encoding="utf-8")
    return path


def figures(outcomes: Sequence[Outcome]) -> list[Figure]:
    """Return all figures that the cells suffice for."""
    drawn: list[Figure | None] = [
        throughput_figure(outcomes, initiators, ratio, series=series, measure=measure)
        for series in ("whitepaper", "unlimited")
        for initiators in HEADLINES
        for ratio in (150, 1)
        for measure in (ALL_ROLES, RATE)
    ]
    drawn += [gain_figure(outcomes, measure=measure) for measure in (ALL_ROLES, RATE)]
    drawn.append(roles_figure(outcomes))
    best = _best(outcomes)
    if best is not None:
        drawn.append(seconds_figure(best))
    return [figure for figure in drawn if figure is not None]


def finding(outcomes: Sequence[Outcome]) -> str:
    """Say in a few sentences what was found."""
    if not outcomes:
        return "Nothing has run yet."
    sent = sum(one.sent for one in outcomes)
    failed = sum(one.has_failed for one in outcomes)
    fate = (
        f"{failed} of {len(outcomes)} cells lost, doubled or swapped messages."
        if failed
        else f"All {sent:,} messages arrived, once and in order."
    )
    middles = _middles(outcomes)
    if not middles:
        best = _best(outcomes)
        assert best is not None  # noqa: S101
        return f"At most {best.rate:,.0f} messages/s, in {best.cell.name}, bound by {best.bound_by}. {fate}"
    (first, each), *others = middles.items()
    more = "; ".join(f"with {WORDS.get(count, count)} {value:,.0f}" for count, value in others)
    return (
        f"A second of one processor carries {each:,.0f} messages from a client to a far reader"
        f" with {WORDS.get(first, first)}{f'; {more}' if more else ''}. {fate}"
    )


def beside(outcomes: Sequence[Outcome]) -> list[tuple[str, ...]]:
    """Return a row, as BESIDE_HEADS says, for each number of initiators that has cells."""
    best, middles = best_of(outcomes), _middles(outcomes)
    rows: list[tuple[str, ...]] = []
    for count, one in best.items():
        times = f"{one.rate / best[1].rate:.1f}" if 1 in best and best[1].rate else "-"
        rows.append((
            str(count), f"{middles[count]:,.0f}" if count in middles else "-",
            f"{one.rate:,.0f}, {shape(one.cell)}{', disturbed' if one.is_disturbed else ''}", times,
            f"{HEADLINES[count]:,}", f"{HEADLINES[count] / HEADLINES[1]:.1f}",
        ))  # fmt: skip
    return rows


def repetition_words(outcomes: Sequence[Outcome], effort: Effort) -> str:
    """Say how many cells are known well enough, and how many have used their budget up."""
    unknown = [one for one in outcomes if not precise(one).is_within(effort.precision)]
    known, spent = len(outcomes) - len(unknown), sum(one.repetition >= effort.repetitions for one in unknown)
    disturbed = sum(one.is_disturbed for one in outcomes)
    return (
        f"{known} of {len(outcomes)} cells are known within ±{effort.precision:.0%}; {spent} are not, and"
        f" have run {effort.repetitions} times, as often as they may. In {disturbed} other programs used more"
        f" than {DISTURBED:.0%} of the machine: messages/s of these say little."
    )


def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("pybroker.throughput", "."), autoescape=True, undefined=StrictUndefined
    )
    return environment.get_template("report.html.jinja")


def _middles(outcomes: Iterable[Outcome]) -> dict[int, float]:
    """Return the middle of the messages per processor-second, by initiators, of the cells as in the paper."""
    found: dict[int, list[float]] = {}
    for one in outcomes:
        each = one.estimates.get(ALL_ROLES)
        if each is not None and one.cell.series == "whitepaper":
            found.setdefault(one.cell.initiators, []).append(each.mean)
    return {count: median(values) for count, values in sorted(found.items())}


def backlogs(outcomes: Iterable[Outcome]) -> list[tuple[str, ...]]:
    """Return a row, as BACKLOG_HEADS says, for each cell whose messages gathered before activation was on."""
    by_cell = {one.cell: one for one in outcomes}
    rows: list[tuple[str, ...]] = []
    for cell, one in sorted(by_cell.items(), key=lambda item: (item[0].series, *place(item[0]))):
        if cell.how.is_deferred:
            series = "batches" if cell.how.batch > 1 else "whitepaper"
            twin = by_cell.get(Cell(series, *place_of_twin(cell)))
            rows.append((
                f"{shape(cell)}, {cell.how.batch} a transaction", f"{one.sent:,}", f"{one.send_rate:,.0f}",
                f"{one.rate:,.0f}", NOT_RUN if twin is None else f"{twin.rate:,.0f}",
            ))  # fmt: skip
    return rows


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
        f"The whitepaper's peak is about {HEADLINE_PER_CORE} a core present in its servers",
    ]
    if busy:
        words.append(
            f"By busy cores instead ({busy:.2f} that servers and workers used): {one.rate / busy:,.0f} a core"
        )
    return ". ".join(words) + "."


def _complaints(outcomes: Sequence[Outcome]) -> Iterator[str]:
    failed = [one.cell.name for one in outcomes if one.has_failed]
    if failed:
        yield f"{len(failed)} cells failed: {', '.join(failed)}"


def _conditions(finished: Finished) -> str:
    conditions = finished.conditions
    return (
        f"{len(finished.outcomes)} cells, on {conditions.on}; {conditions.machine};"
        f" warm-up at least {conditions.warm_up:g} s, measured {conditions.measured:g} s;"
        f" {datetime.now(UTC):%Y-%m-%d %H:%M} UTC."
        " All servers, workers and test clients share this machine unless it says otherwise."
    )


def _beside_words(finished: Finished) -> str:
    best = _best(finished.outcomes)
    if best is None:
        return ""
    return (
        f"Most: {best.rate:,.0f} messages/s, {best.cell.name}; bound by {best.bound_by}."
        f" {core_words(finished, best)} What bounded the cells: {bounds(finished.outcomes)}."
    )


def _best(outcomes: Sequence[Outcome]) -> Outcome | None:
    """Return the fastest cell, of those as in the whitepaper where there are any."""
    printed = [one for one in outcomes if one.cell.series == "whitepaper"]
    return max(printed or outcomes, key=lambda one: one.rate, default=None)


def _in_order(outcomes: Iterable[Outcome]) -> list[Outcome]:
    return sorted(outcomes, key=lambda one: (one.cell.series, *place(one.cell)))


def _values(one: Outcome) -> tuple[str, ...]:
    each, rate = one.estimates.get(ALL_ROLES), one.estimates["messages/s"]
    return (
        one.cell.name, str(one.repetition), "-" if each is None else f"{each.mean:,.0f}", _within(each),
        f"{one.rate:,.0f}", _within(rate), f"{one.send_rate:,.0f}", f"{one.sent:,}", str(one.lost),
        str(one.doubled), str(one.swapped), _milliseconds(one.latency), _milliseconds(one.from_send),
        str(one.readers), f"{one.per_receive:,.1f}",
        "-" if one.per_batch is None else f"{one.per_batch:,.1f}",
        _by_name({name: f"{value:.2f}" for name, value in one.cores.items()}),
        _by_name({name: f"{value:,.0f}" for name, value in one.wal_per_message.items()}), one.bound_by,
        "-" if one.others is None else f"{one.others:.0%}{' disturbed' if one.is_disturbed else ''}",
        f"{one.seconds:.0f}",
    )  # fmt: skip


def _within(each: Estimate | None) -> str:
    return "-" if each is None or each.relative is None else f"±{each.relative:.0%}"


def _waits(outcomes: Iterable[Outcome]) -> Iterator[tuple[str, str, str]]:
    for one in outcomes:
        for server, waits in one.waits.items():
            events = ", ".join(f"{wait} {part:.0%}" for wait, part in waits[:_TOP_WAITS])
            yield one.cell.name, server, events


def _milliseconds(seconds: Sequence[float]) -> str:
    return " / ".join(f"{1000 * value:,.0f}" for value in seconds) or "-"


def _by_name(values: dict[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items()) or "-"
