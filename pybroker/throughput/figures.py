"""The whitepaper's figures 2 to 5 with our lines, as PNG or SVG."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, Literal

import matplotlib as mpl

from pybroker.throughput.matrix import GAIN_FROM_THREADS, GAIN_PERCENT, HEADLINES, SERIES

mpl.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.ticker import StrMethodFormatter

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pybroker.throughput.analysis import Outcome

# Text stays text: small files, which a search finds words in.
mpl.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "pybroker"}

Kind = Literal["png", "svg"]

_SIZE = (9.0, 5.0)
_RESOLUTION = 110
# So many times as high as our highest point a line may be.
_TALLEST = 2.0
_MARKERS = "osD^vP"
_WORDS = {1: "one initiator", 2: "two initiators", 3: "three initiators"}


def payload_words(payload: int) -> str:
    """Return a payload as the whitepaper writes it."""
    return f"{payload // 1024}K" if payload % 1024 == 0 else f"{payload} bytes"


def throughput_figure(
    outcomes: Iterable[Outcome],
    initiators: int,
    ratio: int,
    *,
    series: str = "whitepaper",
    kind: Kind = "png",
) -> bytes | None:
    """Draw figure 2, 3 or 4: messages a second over threads, a line for each payload; None without cells."""
    chosen = [
        one
        for one in outcomes
        if (one.cell.series, one.cell.initiators, one.cell.ratio) == (series, initiators, ratio)
    ]
    if not chosen:
        return None
    figure, axes = plt.subplots(figsize=_SIZE)
    for place, (version, payload) in enumerate(
        sorted({(one.cell.version, one.cell.payload) for one in chosen})
    ):
        line = sorted(
            (one.cell.threads, one.rate)
            for one in chosen
            if (one.cell.version, one.cell.payload) == (version, payload)
        )
        axes.plot(
            [threads for threads, _ in line],
            [rate for _, rate in line],
            marker=_MARKERS[place % len(_MARKERS)],
            label=f"{payload_words(payload)}{_version_words(chosen, version)}",
        )
    headline = HEADLINES[initiators]
    _mark(axes, headline, max(one.rate for one in chosen), f"whitepaper's peak, {headline:,}")
    axes.set_xlabel(f"test client threads for each initiator ({_WORDS[initiators]}, one target)")
    axes.set_title(
        f"Figure {initiators + 1}: messages processed by one target, {_WORDS[initiators]},"
        f" every {_ordinal(ratio)} dialog{'' if series == 'whitepaper' else f', {SERIES[series].title}'}"
    )
    return _finished(figure, axes, "messages/s", legend="message", kind=kind)


def gain_figure(outcomes: Iterable[Outcome], *, kind: Kind = "png") -> bytes | None:
    """Draw figure 5: how much more every 150th dialog sends than every one; None without cells."""
    rates = {one.cell: one.rate for one in outcomes if one.cell.series == "whitepaper" and one.rate}
    gains: dict[tuple[int, int], list[tuple[int, float]]] = {}
    for (version, initiators, payload, threads), (every, spaced) in _pairs(rates).items():
        gains.setdefault((payload, version), []).append((initiators * threads, 100 * (spaced / every - 1)))
    if not gains:
        return None
    figure, axes = plt.subplots(figsize=_SIZE)
    versions = {version for _, version in gains}
    for place, ((payload, version), points) in enumerate(sorted(gains.items())):
        words = f", PostgreSQL {version}" if len(versions) > 1 else ""
        axes.scatter(
            [threads for threads, _ in sorted(points)],
            [gain for _, gain in sorted(points)],
            marker=_MARKERS[place % len(_MARKERS)],
            label=f"{payload_words(payload)}{words}",
        )
    most = max(gain for points in gains.values() for _, gain in points)
    _mark(axes, GAIN_PERCENT, most, f"whitepaper's largest gain, {GAIN_PERCENT} %")
    axes.axvline(GAIN_FROM_THREADS, color="0.4", linestyle=":", label="whitepaper: noticeable from here")
    axes.axhline(0, color="0.7", linewidth=0.8)
    axes.set_xlabel("test client threads in all")
    axes.set_title("Figure 5: gain by using every 150th dialog instead of every one")
    return _finished(figure, axes, "percent more messages/s", legend="message", from_zero=False, kind=kind)


def seconds_figure(outcome: Outcome) -> bytes:
    """Draw the messages that the target processed in each measured second of a cell."""
    figure, axes = plt.subplots(figsize=(9.0, 3.2))
    axes.bar(range(1, len(outcome.by_second) + 1), outcome.by_second, color="tab:blue", label="each second")
    axes.axhline(outcome.rate, color="0.3", linestyle="--", label=f"mean {outcome.rate:,.0f}")
    axes.set_xlabel("measured second")
    axes.set_title(f"Throughput by second: {outcome.cell.name}")
    return _finished(figure, axes, "messages/s")


def _pairs(rates: dict[Any, float]) -> dict[tuple[int, int, int, int], tuple[float, float]]:
    found = {}
    for cell, rate in rates.items():
        if cell.ratio == 1:
            spaced = [
                other
                for one, other in rates.items()
                if one.ratio > 1
                and (one.version, one.initiators, one.payload, one.threads)
                == (cell.version, cell.initiators, cell.payload, cell.threads)
            ]
            if spaced:
                found[cell.version, cell.initiators, cell.payload, cell.threads] = (rate, spaced[0])
    return found


def _mark(axes: Any, height: float, highest: float, words: str) -> None:
    """Draw what the whitepaper had as a line; where it would flatten ours, tell of it in the legend only."""
    if height <= _TALLEST * highest:
        axes.axhline(height, color="0.4", linestyle="--", label=words)
    else:
        axes.plot([], [], " ", label=f"{words} (above this scale)")


def _version_words(chosen: Iterable[Outcome], version: int) -> str:
    return f", PostgreSQL {version}" if len({one.cell.version for one in chosen}) > 1 else ""


def _ordinal(ratio: int) -> str:
    return "single" if ratio == 1 else f"{ratio}th"


def _finished(
    figure: Any,
    axes: Any,
    unit: str,
    *,
    legend: str | None = None,
    from_zero: bool = True,
    kind: Kind = "png",
) -> bytes:
    axes.set_ylabel(unit)
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    if from_zero:
        axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(title=legend, alignment="left", loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False)
    image = io.BytesIO()
    undated = {"Date": None} if kind == "svg" else None
    figure.savefig(image, format=kind, dpi=_RESOLUTION, bbox_inches="tight", metadata=undated)
    plt.close(figure)
    return image.getvalue()
