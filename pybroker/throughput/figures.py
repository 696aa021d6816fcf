"""The whitepaper's figures 2 to 5 with our lines, and what each role's processors carry, as SVG.

Matplotlib draws them. Its SVG goes into the page as it is: text stays text, colours are the page's own, and
each point has a name, by which the page's script tells its value. So a report is a few hundred kilobytes and
needs nothing from elsewhere; a plotting library in JavaScript would add megabytes to each.
"""

from __future__ import annotations

import io
import math
import re
from statistics import median
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

import matplotlib as mpl
import msgspec
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator, StrMethodFormatter

from pybroker.throughput.analysis import ALL_ROLES, ROLES
from pybroker.throughput.estimates import Estimate
from pybroker.throughput.matrix import GAIN_FROM_THREADS, GAIN_PERCENT, HEADLINES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pybroker.throughput.analysis import Outcome
    from pybroker.throughput.matrix import Cell
    from pybroker.throughput.model import Capacity, Hardware

# Text stays text: small files, which a search finds words in.
mpl.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "pybroker", "font.size": 12.0}

# Inches: as wide as a phone, so that letters are as large as they are meant to be there.
_SIZE = (4.9, 3.5)
# So many times as high as our highest point a line of the whitepaper's may be.
_TALLEST = 1.5
_MARKERS = "osD^vP"
# Names of the page's colours, and what they are in a picture that stands alone.
_INK, _GRID = "#a000f0", "#a000f1"
_LINES = ("#a00001", "#a00002", "#a00003", "#a00004", "#a00005", "#a00006")
_ALONE = {
    _INK: "#333333", _GRID: "#cccccc",
    **dict(zip(_LINES, ("#0b63c4", "#c2410c", "#15803d", "#7e22ce", "#b4235a", "#0f766e"), strict=True)),
}  # fmt: skip
_NAMES = {_INK: "var(--ink)", _GRID: "var(--grid)"} | {
    colour: f"var(--line{number})" for number, colour in enumerate(_LINES, 1)
}
_INTERNAL_ID = re.compile(
    r' id="(?:figure|axes|patch|text|line2d|xtick|ytick|matplotlib\.axis|\w+Collection)_\d+"'
)
WORDS = {1: "one initiator", 2: "two initiators", 3: "three initiators"}
RATE = "messages/s"


class Figure(msgspec.Struct, frozen=True):
    """A picture.

    Attributes:
        name: Good for a file.
        title: What it shows.
        caption: What the whitepaper has beside it, and what else a reader must know.
        svg: With the page's colours.
        lines: What the legend names, by line: 1 and on.
    """

    name: str
    title: str
    caption: str
    svg: str
    lines: list[str]

    @property
    def alone(self) -> bytes:
        """The picture with colours of its own, and a legend, for a page that isn't ours."""
        svg = self.svg
        for colour, name in _NAMES.items():
            svg = svg.replace(name, _ALONE[colour])
        return svg.encode()


def payload_words(payload: int) -> str:
    """Return a payload as the whitepaper writes it."""
    return f"{payload // 1024}K" if payload % 1024 == 0 else f"{payload} bytes"


def throughput_figure(
    outcomes: Iterable[Outcome],
    initiators: int,
    ratio: int,
    *,
    series: str = "whitepaper",
    measure: str = RATE,
    with_legend: bool = False,
) -> Figure | None:
    """Draw figure 2, 3 or 4 over threads, a line for each payload; None without cells.

    Args:
        outcomes: Of all cells.
        initiators: 1 to 3, of figures 2 to 4.
        ratio: Which dialogs are used.
        series: Of which series.
        measure: RATE, or ALL_ROLES for messages per processor-second.
        with_legend: Whether the picture names its lines itself.
    """
    chosen = [
        one
        for one in outcomes
        if (one.cell.series, one.cell.initiators, one.cell.ratio) == (series, initiators, ratio)
        and _estimate(one, measure) is not None
    ]
    if not chosen:
        return None
    name = f"figure-{initiators + 1}"
    name += "" if series == "whitepaper" else f"-{series}"
    name += "" if ratio > 1 else "-every-dialog"
    name += "" if measure == RATE else "-processors"
    versions = {one.cell.version for one in chosen}
    drawing = _Drawing(name, "test client threads for each initiator", _unit(measure))
    for version, payload in sorted({(one.cell.version, one.cell.payload) for one in chosen}):
        line = sorted(
            (one for one in chosen if (one.cell.version, one.cell.payload) == (version, payload)),
            key=lambda one: one.cell.threads,
        )
        drawing.line(
            payload_words(payload) + (f", PostgreSQL {version}" if len(versions) > 1 else ""),
            [(one.cell.threads, _required(one, measure), _words(one, measure)) for one in line],
        )
    headline = HEADLINES[initiators]
    caption = f"The paper: {headline:,} messages/s at most, on {initiators + 1} servers of 8 processors."
    if measure == RATE:
        caption += drawing.mark(headline, "the paper's most")
    else:
        caption = (
            "Of all servers and workers. It is what a larger machine multiplies, and other programs change it"
            " less than messages/s. The paper does not tell it."
        )
    drawing.threads()
    which = "every 150th dialog is used" if ratio > 1 else "every dialog is used"
    title = f"Figure {initiators + 1}: {WORDS[initiators]}, {_unit(measure)}; {which}"
    return drawing.finished(title, caption, with_legend=with_legend)


def gain_figure(
    outcomes: Iterable[Outcome], *, measure: str = RATE, with_legend: bool = False
) -> Figure | None:
    """Draw figure 5, how much more every 150th dialog carries than every one, as it scatters by threads."""
    by_cell = {one.cell: one for one in outcomes if one.cell.series == "whitepaper"}
    gains: dict[int, list[tuple[float, Cell]]] = {}
    for cell, one in by_cell.items():
        spaced = by_cell.get(msgspec.structs.replace(cell, ratio=150))
        mine = _estimate(one, measure)
        theirs = None if spaced is None else _estimate(spaced, measure)
        if cell.ratio == 1 and mine is not None and theirs is not None and mine.mean:
            gains.setdefault(cell.initiators * cell.threads, []).append(
                (
                    100 * (theirs.mean / mine.mean - 1),
                    cell,
                )
            )
    if not gains:
        return None
    name = "figure-5" + ("" if measure == RATE else "-processors")
    drawing = _Drawing(name, "test client threads in all", f"% more {_unit(measure)}")
    drawing.spread(
        {
            threads: [
                (
                    gain,
                    f"{gain:+.0f} %: {cell.initiators}x{cell.threads} threads, {payload_words(cell.payload)}",
                )
                for gain, cell in found
            ]
            for threads, found in sorted(gains.items())
        }
    )
    drawing.threads(from_zero=False)
    return drawing.finished(
        f"Figure 5: what using every 150th dialog gains, {_unit(measure)}",
        f"A point is a pair of cells, the line their median. The paper: {GAIN_PERCENT} % at most, nothing"
        f" below {GAIN_FROM_THREADS} threads.",
        with_legend=with_legend,
    )


def roles_figure(outcomes: Iterable[Outcome], *, with_legend: bool = False) -> Figure | None:
    """Draw what a processor-second of each role carries over initiators: the middle of all cells of each."""
    chosen = [one for one in outcomes if one.cell.series == "whitepaper" and one.work]
    counts = sorted({one.cell.initiators for one in chosen})
    if not counts:
        return None
    drawing = _Drawing("roles", "initiators", "messages per processor-second")
    for role in (*ROLES, ALL_ROLES):
        points = []
        for count in counts:
            found = [
                each
                for one in chosen
                if one.cell.initiators == count and (each := _estimate(one, role)) is not None
            ]
            if found:
                middle = sorted(found, key=lambda each: each.mean)[len(found) // 2]
                points.append((count, middle, f"{role}: {_interval(middle)} with {WORDS.get(count, count)}"))
        if points:
            drawing.line(role, points)
    drawing.threads(is_logarithmic=False)
    return drawing.finished(
        "What a second of a processor carries, by role",
        "The middle of all cells, whatever their threads and payloads. All roles together cost a message the"
        " sum of what each costs, so their line is the lowest.",
        with_legend=with_legend,
    )


def model_figure(capacities: Sequence[Capacity], hardware: Hardware, *, with_legend: bool = False) -> Figure:
    """Draw what a model says that so many initiators give, with the interval that its costs leave."""
    drawing = _Drawing("model", "initiators", RATE)
    drawing.line(
        "the model",
        [
            (one.initiators, one.rate, f"{one.initiators}: {_interval(one.rate)}; bound by {one.bound_by}")
            for one in capacities
        ],
    )
    drawing.threads(is_logarithmic=False)
    return drawing.finished(
        f"The model: servers of {hardware.cores:g} processors",
        f"Processors like those measured; {hardware.threads} threads an initiator,"
        f" {payload_words(hardware.payload)}.",
        with_legend=with_legend,
    )


def seconds_figure(outcome: Outcome) -> Figure:
    """Draw the messages that the target processed in each measured second of a cell."""
    drawing = _Drawing("by-second", "measured second", RATE)
    drawing.line(
        "processed",
        [
            (second, Estimate(float(rate), None, None, 1), f"second {second}: {rate:,}")
            for second, rate in enumerate(outcome.by_second, 1)
        ],
    )
    drawing.threads(is_logarithmic=False)
    return drawing.finished(f"The fastest cell by second: {outcome.cell.name}", "")


def _unit(measure: str) -> str:
    return RATE if measure == RATE else "messages per processor-second"


def _estimate(one: Outcome, measure: str) -> Estimate | None:
    if measure in one.estimates:
        return one.estimates[measure]
    value = one.rate if measure == RATE else one.per_processor_second.get(measure)
    return None if value is None else Estimate(value, None, None, 1)


def _required(one: Outcome, measure: str) -> Estimate:
    found = _estimate(one, measure)
    assert found is not None  # noqa: S101
    return found


def _interval(each: Estimate) -> str:
    if each.low is None or each.high is None:
        return f"{each.mean:,.0f}, one run"
    return f"{each.mean:,.0f} ({max(0, each.low):,.0f} to {each.high:,.0f}, {each.count} runs)"


def _words(one: Outcome, measure: str) -> str:
    disturbed = "; other programs disturbed it" if one.is_disturbed else ""
    return (
        f"{one.cell.threads} threads, {payload_words(one.cell.payload)}:"
        f" {_interval(_required(one, measure))}; bound by {one.bound_by}{disturbed}"
    )


class _Drawing:
    """A pair of axes in the page's colours, whose points have names."""

    def __init__(self, name: str, across: str, up: str) -> None:
        self._name = name
        self._figure = Canvas(figsize=_SIZE)
        self._axes = self._figure.subplots()
        self._axes.set_xlabel(across, color=_INK)
        self._axes.set_ylabel(up, color=_INK)
        self._lines: list[str] = []
        self._words: dict[str, str] = {}
        self._places: set[int] = set()
        self._lowest, self._highest = 0.0, 0.0

    def line(self, label: str, points: Sequence[tuple[int, Estimate, str]]) -> None:
        """Draw a line with its intervals."""
        number = len(self._lines)
        colour = _LINES[number % len(_LINES)]
        self._lines.append(label)
        group = f"{self._name}-line{number + 1}"
        (drawn,) = self._axes.plot(
            [place for place, _, _ in points], [each.mean for _, each, _ in points], color=colour,
            linewidth=1.6, clip_on=False, label=label,
        )  # fmt: skip
        drawn.set_gid(group)
        for at, (place, each, words) in enumerate(points):
            self._places.add(place)
            low, high = each.low, each.high
            if low is not None and high is not None:
                (bar,) = self._axes.plot(
                    [place, place],
                    [max(0.0, low), high],
                    color=colour,
                    linewidth=1.0,
                    alpha=0.6,
                    clip_on=False,
                )
                bar.set_gid(f"{group}-interval{at}")
            self._highest = max(self._highest, each.mean, high or 0.0)
            self._point(f"{group}-point{at}", place, each.mean, words, number)

    def spread(self, points: dict[int, list[tuple[float, str]]]) -> None:
        """Draw all values of each place, and the line through their medians."""
        for place, values in points.items():
            self._places.add(place)
            for at, (value, words) in enumerate(values):
                self._lowest, self._highest = min(self._lowest, value), max(self._highest, value)
                self._point(f"{self._name}-spread{place}-point{at}", place, value, words, 0)
        self._lines.append("median")
        (drawn,) = self._axes.plot(
            list(points), [median(value for value, _ in values) for values in points.values()],
            color=_LINES[1], linewidth=1.6, clip_on=False, label="median",
        )  # fmt: skip
        drawn.set_gid(f"{self._name}-line1")
        self._axes.axhline(0, color=_INK, linewidth=0.8)

    def mark(self, height: float, words: str) -> str:
        """Draw what the whitepaper had as a line; return what is to be said where it would flatten ours."""
        if height > _TALLEST * self._highest:
            return " That is above this picture."
        self._highest = max(self._highest, height)
        self._axes.axhline(height, color=_INK, linestyle="--", linewidth=1.0, label=words)
        return " It is the broken line."

    def threads(self, *, from_zero: bool = True, is_logarithmic: bool = True) -> None:
        """Put a tick below each number of threads that was run, and nowhere else."""
        if is_logarithmic and len(self._places) > 1:
            self._axes.set_xscale("log", base=2)
        self._axes.xaxis.set_minor_locator(NullLocator())
        self._axes.xaxis.set_major_locator(FixedLocator(_apart(sorted(self._places), is_logarithmic)))
        self._axes.xaxis.set_major_formatter(StrMethodFormatter("{x:.0f}"))
        height = self._highest - self._lowest
        self._axes.set_ylim(
            0 if from_zero else self._lowest - 0.05 * height, self._highest + 0.05 * height or 1
        )

    def finished(self, title: str, caption: str, *, with_legend: bool = False) -> Figure:
        """Return the picture; nothing can be drawn any more."""
        axes = self._axes
        axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        axes.tick_params(colors=_INK, labelsize=9.5)
        axes.grid(color=_GRID, linewidth=0.6)
        axes.set_axisbelow(True)
        for side, spine in axes.spines.items():
            spine.set_visible(side in {"left", "bottom"})
            spine.set_color(_INK)
        if with_legend:
            axes.set_title(title, fontsize=9, color=_INK)
            axes.legend(fontsize=8, frameon=False, labelcolor=_INK)
        image = io.StringIO()
        self._figure.savefig(
            image, format="svg", bbox_inches="tight", transparent=True, metadata={"Date": None}
        )
        return Figure(self._name, title, caption, self._in_the_page(image.getvalue()), self._lines)

    def _point(self, name: str, place: int, height: float, words: str, number: int) -> None:
        (drawn,) = self._axes.plot(
            [place], [height], marker=_MARKERS[number % len(_MARKERS)], markersize=6,
            color=_LINES[number % len(_LINES)], linestyle="none", clip_on=False,
        )  # fmt: skip
        drawn.set_gid(name)
        self._words[name] = words

    def _in_the_page(self, text: str) -> str:
        """Return only the element itself, with the page's colours and each point's words."""
        svg = _INTERNAL_ID.sub("", text[text.index("<svg") :])
        for colour, name in _NAMES.items():
            svg = svg.replace(colour, name)
        for name, words in self._words.items():
            svg = svg.replace(
                f'<g id="{name}">',
                f'<g id="{name}" class="point" tabindex="0" role="img"><title>{escape(words)}</title>',
            )
        return svg


def _apart(places: Sequence[int], is_logarithmic: bool) -> list[int]:
    """Leave out labels that would touch the one before; the last one stays."""
    if len(places) < 2 or not is_logarithmic:  # noqa: PLR2004
        return list(places)
    whole = math.log(places[-1] / places[0])
    kept = [places[-1]]
    for place in reversed(places[:-1]):
        if math.log(kept[-1] / place) > 0.045 * whole:
            kept.append(place)
    return sorted(kept)
