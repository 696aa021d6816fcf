"""The page's plots, as SVG."""

from __future__ import annotations

import io
from statistics import median
from typing import TYPE_CHECKING, Any

from tests.bench.scenarios import INSERT, SEND, SIZES, deep, sized

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.bench.results import Line
    from tests.bench.scenarios import Target

_COLOURS = {
    "ours": "#0969da",
    "adverse": "#8250df",
    "between databases": "#1a7f37",
    "peers": "#9a6700",
    "limits": "#57606a",
}
_WORKERS = "#bf3989"
_DEMAND = "#a40e26"
_SPREAD = "#57606a"


def clients(count: int) -> str:
    """Return the number of clients in words."""
    return "1 client" if count == 1 else f"{count} clients"


def label(line: Line) -> str:
    """Return what a line is called."""
    return f"{line.name}, {clients(line.clients)}"


def ratio_plot(lines: Sequence[Line], targets: Sequence[Target]) -> str:
    """Draw each line's part of its base."""
    shown = [line for line in lines if line.ratios][::-1]
    figure, axes = _canvas(len(shown))
    for place, line in enumerate(shown):
        axes.plot([min(line.ratios), max(line.ratios)], [place] * 2, color=_SPREAD, linewidth=1)
        axes.plot(median(line.ratios), place, "o", color=_COLOURS[line.part])
    _name(axes, [f"{label(line)}, of {line.base}" for line in shown])
    places = {line.key: place for place, line in enumerate(shown)}
    for target in targets:
        row = places.get(target.line)
        own = target.of is None or (row is not None and target.of[0] == shown[row].base)
        if row is not None and own and target.figure == "rate":
            axes.plot([target.must] * 2, [row - 0.45, row + 0.45], color=_DEMAND, linewidth=2)
    axes.axvline(1, color=_SPREAD, linewidth=0.8, linestyle=":")
    axes.set_xlabel("part of the rate of what it is a ratio of, in the same rounds (logarithmic)")
    _explain(axes, [line.part for line in shown], demand=True)
    return _svg(figure)


def cost_plot(lines: Sequence[Line]) -> str:
    """Draw what a message of each line costs the processors."""
    shown = [line for line in lines if line.cpu_us is not None][::-1]
    figure, axes = _canvas(len(shown))
    for place, line in enumerate(shown):
        for values, colour in ((line.cpu, _COLOURS[line.part]), (line.worker, _WORKERS)):
            if values:
                axes.plot([min(values), max(values)], [place] * 2, color=_SPREAD, linewidth=1)
                axes.plot(median(values), place, "o", color=colour)
    _name(axes, [label(line) for line in shown])
    axes.set_xlabel("microseconds of processors a message (logarithmic)")
    _explain(axes, [line.part for line in shown], workers=True)
    return _svg(figure)


def growth_plot(lines: Sequence[Line]) -> str:
    """Draw how rates go with clients, with size and with depth; nothing where fewer than two of a kind were measured."""
    from matplotlib.figure import Figure  # noqa: PLC0415
    from matplotlib.ticker import FuncFormatter  # noqa: PLC0415

    by_key = {line.key: line for line in lines}
    many = f"{SEND}, 7,500 dialogs"
    depths = sorted(
        int(line.name.split()[2].replace(",", ""))
        for line in lines
        if line.name.startswith("TOP 1, ") and line.name.endswith(" behind")
    )
    panels = [
        ("clients", {name: [(count, (name, count)) for count in (1, 4, 16, 50)] for name in (INSERT, SEND, f"{SEND}, one dialog")}),
        ("bytes of a body, 16 clients", {name: [(size, (sized(name, size), 16)) for size in (100, *SIZES)] for name in (INSERT, many)}),
        ("messages in the queue behind, 1 client", {"broker.receive TOP 1": [(depth, (deep(depth), 1)) for depth in depths]}),
    ]  # fmt: skip
    figure = Figure(figsize=(11, 3.4), layout="constrained")
    any_drawn = False
    for axes, (title, curves) in zip(figure.subplots(1, len(panels)), panels, strict=True):
        axes.spines[["top", "right"]].set_visible(False)
        for name, points in curves.items():
            found = [(x, median(by_key[key].rates)) for x, key in points if key in by_key]
            if len(found) > 1:
                any_drawn = True
                axes.plot(*zip(*found, strict=True), marker="o", label=name)
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
        axes.set_ylim(bottom=0)
        axes.set_xlabel(title)
        axes.set_ylabel("messages/s")
        if axes.lines:
            axes.legend(fontsize=8, frameon=False)
    return _svg(figure) if any_drawn else ""


def decline_plot(lines: Sequence[Line]) -> str:
    """Draw the rate in each second of what another session's snapshot may slow down; nothing where that was not measured."""
    from matplotlib.figure import Figure  # noqa: PLC0415

    shown = [line for line in lines if line.curve]
    if not shown:
        return ""
    figure = Figure(figsize=(11, 3.4), layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    for line in shown:
        axes.plot(range(1, len(line.curve) + 1), line.curve, label=label(line))
    axes.set_ylim(bottom=0)
    axes.set_xlabel("second, while another session holds a snapshot")
    axes.set_ylabel("messages/s")
    axes.legend(fontsize=8, frameon=False)
    return _svg(figure)


def _explain(axes: Any, parts: Sequence[str], *, demand: bool = False, workers: bool = False) -> None:
    from matplotlib.lines import Line2D  # noqa: PLC0415
    from matplotlib.patches import Patch  # noqa: PLC0415

    marks: list[Any] = [Patch(color=colour, label=part) for part, colour in _COLOURS.items() if part in parts]
    if workers:
        marks.append(Patch(color=_WORKERS, label="the workers"))
    if demand:
        marks.append(Line2D([], [], color=_DEMAND, linewidth=2, label="what is demanded"))
        marks.append(Line2D([], [], color=_SPREAD, linewidth=1, label="worst to best round"))
    axes.figure.legend(handles=marks, fontsize=8, loc="outside upper right", ncols=7, frameon=False)


def _name(axes: Any, names: Sequence[str]) -> None:
    from matplotlib.ticker import FuncFormatter, NullFormatter  # noqa: PLC0415

    axes.set_yticks(range(len(names)), names)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.grid(axis="both", linewidth=0.3)


def _canvas(rows: int) -> Any:
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(11, 1.4 + 0.24 * rows), layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(y=0.01)
    axes.tick_params(axis="y", labelsize=8)
    axes.tick_params(axis="x", top=True, labeltop=True)
    return figure, axes


def _svg(figure: Any) -> str:
    drawn = io.StringIO()
    figure.savefig(drawn, format="svg")
    return drawn.getvalue().split("?>", 1)[-1].split('svg11.dtd">', 1)[-1]
