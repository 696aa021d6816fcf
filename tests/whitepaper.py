"""Put finished runs of `pybroker throughput` into docs/whitepaper.md: `python -m tests.whitepaper RUN [RUN …]`.

The first is the matrix: what was found, figures 2 to 5 as docs/whitepaper/figure-N.svg, and what a message costs each role. The answers to rows 171 to
178 come from all. The text goes between the two marks of the page.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pybroker.throughput.answers import NOT_RUN, answers, best_of
from pybroker.throughput.costs import costs
from pybroker.throughput.figures import gain_figure, payload_words, throughput_figure
from pybroker.throughput.matrix import HEADLINES, SERIES, Effort
from pybroker.throughput.report import (
    BACKLOG_HEADS,
    BESIDE_HEADS,
    backlogs,
    beside,
    bounds,
    core_words,
    finding,
    repetition_words,
)
from pybroker.throughput.results import Finished, read_finished

if TYPE_CHECKING:
    from collections.abc import Sequence

DOCS = Path(__file__).resolve().parent.parent / "docs"
BEGINS, ENDS = "<!-- measured -->\n", "<!-- end of measured -->\n"
# What a whole matrix tells, a few cells don't.
OF_THE_MATRIX = SERIES["whitepaper"].rows


def main(directory: Path, docs: Path = DOCS, others: Sequence[Path] = ()) -> None:
    runs = [_read(one) for one in (directory, *others)]
    first = runs[0]
    page = docs / "whitepaper.md"
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGINS)
    _, _, after = rest.partition(ENDS)
    words = [
        "## Measured\n",
        f"**{finding(first.outcomes)}**\n",
        *_headlines(first),
        *(line for number, run in enumerate(runs, 1) for line in _conditions(number, run, len(runs))),
        *_pictures(first, docs),
        *_costs(first),
        *_answers(runs),
        *_backlogs(runs),
    ]
    page.write_text(
        "\n".join([before + BEGINS.rstrip(), *words, ENDS.rstrip()]) + "\n" + after, encoding="utf-8"
    )


def _read(directory: Path) -> Finished:
    run = read_finished(directory) if (directory / "conditions.json").exists() else None
    if run is None or not run.outcomes:
        sys.exit(
            f"{directory} has no finished cells: name a directory that pybroker throughput --output wrote."
        )
    return run


def _conditions(number: int, run: Finished, runs: int) -> list[str]:
    printed = [one for one in run.outcomes if one.cell.series == "whitepaper"]
    others = sorted({one.cell.series for one in run.outcomes} - {"whitepaper"})
    failed = sum(one.has_failed for one in run.outcomes)
    seconds = statistics.median(one.seconds for one in run.outcomes)
    cells = [f"{len(printed)} of the 264 cells"] if printed else []
    if others:
        count = len(run.outcomes) - len(printed)
        cells.append(f"{count} cell{'s' if count > 1 else ''} of the series {', '.join(others)}")
    versions = sorted(
        {about["server_version"].split()[0] for about in run.servers.values() if "server_version" in about}
    )
    fate = "all arrived, once and in order" if not failed else f"{failed} cells lost, doubled or swapped some"
    name = f"Run {number}: " if runs > 1 else ""
    return [
        f"{name}{' and '.join(cells)}, on {run.conditions.on}{', PostgreSQL ' if versions else ''}{' and '.join(versions)}."
        f" The test clients share the machine: {run.conditions.machine}. {run.conditions.warm_up:g} s of warm-up at least,"
        f" {run.conditions.measured:g} s measured, {seconds:.1f} s a cell in the median with everything."
        f" {sum(one.sent for one in run.outcomes):,} messages: {fate}. Bound by: {bounds(run.outcomes)}.\n"
    ]


def _headlines(run: Finished) -> list[str]:
    rows = beside(run.outcomes)
    if not rows:
        return []
    fastest = list(best_of(run.outcomes).values())[-1]
    effort = Effort(max(one.repetition for one in run.outcomes))
    return [
        *_table(BESIDE_HEADS, rows),
        f"{core_words(run, fastest)} {repetition_words(run.outcomes, effort)}\n",
    ]


def _costs(run: Finished) -> list[str]:
    found = costs(run.outcomes)
    if not found:
        return []
    heads = ("role", "a message, µs of a processor", "a batch, µs", "messages a batch")
    rows = [
        (
            cost.role,
            f"{cost.message:.0f} ± {cost.message_error:.0f}",
            f"{cost.batch:.0f} ± {cost.batch_error:.0f}",
            f"{cost.smallest:.1f} to {cost.largest:.1f}",
        )
        for cost in found
    ]
    return [
        f"What a message costs by itself, and what a batch costs however small it is: a line through {found[0].cells} cells of"
        f" {payload_words(found[0].payload)}.\n",
        *_table(heads, rows),
    ]


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [*(f"| {' | '.join(line)} |" for line in (heads, ["---"] * len(heads), *rows)), ""]


def _pictures(run: Finished, docs: Path) -> list[str]:
    drawn = {
        **{
            initiators + 1: throughput_figure(run.outcomes, initiators, 150, with_legend=True)
            for initiators in HEADLINES
        },
        5: gain_figure(run.outcomes, with_legend=True),
    }
    (docs / "whitepaper").mkdir(exist_ok=True)
    pictures = []
    for number, image in drawn.items():
        if image is not None:
            (docs / "whitepaper" / f"figure-{number}.svg").write_bytes(image.alone)
            pictures.append(f"![Figure {number}](whitepaper/figure-{number}.svg)\n")
    return pictures


def _answers(runs: Sequence[Finished]) -> list[str]:
    found = [
        (row, question, number, answer)
        for number, run in enumerate(runs, 1)
        for row, question, answer in answers(run.outcomes)
        if answer != NOT_RUN
    ]
    rows: list[tuple[str, ...]] = []
    for row, question, _ in answers([]):
        mine = [(number, answer) for _, one, number, answer in found if one == question]
        shown = mine[:1] if row in OF_THE_MATRIX else mine
        rows += [(question, str(number or "-"), answer) for number, answer in shown or [(0, NOT_RUN)]]
    return _table(("the paper's", "run", "here"), rows)


def _backlogs(runs: Sequence[Finished]) -> list[str]:
    rows = [(str(number), *row) for number, run in enumerate(runs, 1) for row in backlogs(run.outcomes)]
    title = "Activation off while messages are sent, then on (a batch at night)"
    if not rows:
        return [f"{title}: {NOT_RUN}.\n"]
    return [f"{title}:\n", *_table(("run", *BACKLOG_HEADS), rows)]


if __name__ == "__main__":
    if len(sys.argv) == 1:
        sys.exit("usage: python -m tests.whitepaper RUN [RUN ...]")
    main(Path(sys.argv[1]), others=[Path(one) for one in sys.argv[2:]])
