"""A picture of boxes with rows, and links between rows, as numbers that a template writes as SVG."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

# In the picture's own unit, which is a pixel at a desk.
_LEFT, _RIGHT, _BOX_WIDTH, _WIDTH = 110, 620, 340, 980
_HEAD, _ROW, _GAP, _MARGIN = 52, 30, 28, 12
_LONGEST_NAME, _LONGEST_FACT = 27, 18
_LONGEST_HEAD = 40
_BOW, _BOW_STEP, _BOWS = 26, 14, 6


@dataclass(frozen=True)
class Row:
    """A line in a box; links name its key."""

    key: Hashable
    name: str
    fact: str


@dataclass(frozen=True)
class Box:
    """A box with its title, a line of facts, and its rows."""

    title: str
    facts: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Link:
    """An arrow from one row to another."""

    source: Hashable
    target: Hashable
    label: str
    is_waiting: bool


@dataclass(frozen=True)
class Picture:
    """What is drawn where: boxes and texts by their left upper corner or baseline, links as SVG paths."""

    width: int
    height: int
    boxes: tuple[dict[str, Any], ...]
    links: tuple[dict[str, Any], ...]


def drawn(near: Sequence[Box], far: Sequence[Box], links: Sequence[Link]) -> Picture:
    """Lay boxes out in two columns; links within the left one bow to its left."""
    places: dict[Hashable, tuple[int, int]] = {}
    boxes, heights = [], [0]
    for column, x in ((near, _LEFT), (far, _RIGHT)):
        y = _MARGIN
        for box in column:
            boxes.append(_placed(box, x, y, places))
            y += boxes[-1]["height"] + _GAP
        heights.append(y)
    paths, bows = [], 0
    for link in links:
        source, target = places.get(link.source), places.get(link.target)
        if source is None or target is None:
            continue
        bows += source[0] == target[0]
        paths.append(_path(link, source, target, bows % _BOWS))
    return Picture(_WIDTH, max(heights), tuple(boxes), tuple(paths))


def _placed(box: Box, x: int, y: int, places: dict[Hashable, tuple[int, int]]) -> dict[str, Any]:
    rows = []
    for number, row in enumerate(box.rows):
        middle = y + _HEAD + _ROW * number + _ROW // 2
        places[row.key] = (x, middle)
        rows.append({
            "y": middle + 5,
            "line": middle - _ROW // 2,
            "name": _short(row.name, _LONGEST_NAME),
            "full": row.name,
            "fact": _short(row.fact, _LONGEST_FACT),
        })  # fmt: skip
    return {
        "x": x,
        "y": y,
        "width": _BOX_WIDTH,
        "height": _HEAD + _ROW * len(rows) + (0 if rows else -4),
        "title": _short(box.title, _LONGEST_HEAD),
        "facts": _short(box.facts, _LONGEST_HEAD),
        "rows": rows,
    }


def _path(link: Link, source: tuple[int, int], target: tuple[int, int], bow: int) -> dict[str, Any]:
    (x, y), (end, below) = source, target
    if x == end:
        # Each bow reaches a little further, so that the labels keep apart.
        reach = x - _BOW - _BOW_STEP * bow
        # From a service to itself.
        below += 8 if y == below else 0
        path = f"M {x} {y} C {reach} {y}, {reach} {below}, {x} {below}"
        at = ((x + 3 * reach) // 4 - 4, (y + below) // 2 + 4)
        anchor = "end"
    else:
        x += _BOX_WIDTH
        middle = (x + end) // 2
        path = f"M {x} {y} C {middle} {y}, {middle} {below}, {end} {below}"
        at, anchor = (end - 14, below - 6), "end"
    return {
        "path": path,
        "x": at[0],
        "y": at[1],
        "anchor": anchor,
        "label": link.label,
        "waits": link.is_waiting,
    }


def _short(text: str, longest: int) -> str:
    """The end of a name tells more than its beginning."""
    return text if len(text) <= longest else "…" + text[1 - longest :]
