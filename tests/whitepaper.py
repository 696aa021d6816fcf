"""Put a finished run of `pybroker throughput` into docs/whitepaper.md: `python -m tests.whitepaper DIRECTORY`.

Writes figures 2 to 5 as docs/whitepaper/figure-N.svg, and the text between the two marks of the page.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

import msgspec

from pybroker.throughput.analysis import Outcome
from pybroker.throughput.figures import gain_figure, payload_words, throughput_figure
from pybroker.throughput.matrix import HEADLINES
from pybroker.throughput.report import answers
from pybroker.throughput.results import Conditions

DOCS = Path(__file__).resolve().parent.parent / "docs"
BEGINS, ENDS = "<!-- measured -->\n", "<!-- end of measured -->\n"


def main(directory: Path, docs: Path = DOCS) -> None:
    files = sorted(directory.glob("cells/*/outcome.json"))
    if not files:
        sys.exit(
            f"{directory} has no finished cells: name a directory that pybroker throughput --output wrote."
        )
    outcomes = [msgspec.json.decode(file.read_bytes(), type=Outcome) for file in files]
    conditions = msgspec.json.decode((directory / "conditions.json").read_bytes(), type=Conditions)
    drawn = {
        **{
            initiators + 1: throughput_figure(outcomes, initiators, 150, kind="svg")
            for initiators in HEADLINES
        },
        5: gain_figure(outcomes, kind="svg"),
    }
    (docs / "whitepaper").mkdir(exist_ok=True)
    pictures = []
    for number, image in drawn.items():
        if image is not None:
            (docs / "whitepaper" / f"figure-{number}.svg").write_bytes(image)
            pictures.append(f"![Figure {number}](whitepaper/figure-{number}.svg)\n")
    page = docs / "whitepaper.md"
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGINS)
    _, _, after = rest.partition(ENDS)
    words = [
        "## Measured\n",
        *_conditions(outcomes, conditions),
        *_headlines(outcomes),
        *_answers(outcomes),
        *pictures,
    ]
    page.write_text(
        "\n".join([before + BEGINS.rstrip(), *words, ENDS.rstrip()]) + "\n" + after, encoding="utf-8"
    )


def _conditions(outcomes: list[Outcome], conditions: Conditions) -> list[str]:
    printed = [one for one in outcomes if one.cell.series == "whitepaper"]
    failed = sum(one.has_failed for one in outcomes)
    seconds = statistics.median(one.seconds for one in printed)
    fate = "all arrived, once and in order" if not failed else f"{failed} cells lost, doubled or swapped some"
    return [
        f"{len(printed)} of the 264 cells, on {conditions.on}; {conditions.machine}, which the test clients share;"
        f" {conditions.warm_up:g} s of warm-up at least, {conditions.measured:g} s measured,"
        f" {seconds:.1f} s a cell in the median with everything. {sum(one.sent for one in printed):,} messages: {fate}.\n"
    ]


def _headlines(outcomes: list[Outcome]) -> list[str]:
    lines = [
        "| initiators | most messages/s | with | times one initiator's | the whitepaper's most | times its one initiator's |",
        "|---|---|---|---|---|---|",
    ]
    best = {}
    for initiators, headline in HEADLINES.items():
        mine = [
            one for one in outcomes if (one.cell.series, one.cell.initiators) == ("whitepaper", initiators)
        ]
        if not mine:
            continue
        best[initiators] = max(mine, key=lambda one: one.rate)
        cell, rate = best[initiators].cell, best[initiators].rate
        growth = f"{rate / best[1].rate:.1f}" if 1 in best and best[1].rate else "-"
        lines.append(
            f"| {initiators} | {rate:,.0f} | {initiators}x{cell.threads} threads, {payload_words(cell.payload)},"
            f" ratio {cell.ratio}; bound by {best[initiators].bound_by} | {growth} | {headline:,} |"
            f" {headline / HEADLINES[1]:.1f} |"
        )
    return [*lines, ""]


def _answers(outcomes: list[Outcome]) -> list[str]:
    lines = ["| row | recommendation | here |", "|---|---|---|"]
    lines += [f"| {row} | {question} | {answer} |" for row, question, answer in answers(outcomes)]
    return [*lines, ""]


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m tests.whitepaper DIRECTORY")
    main(Path(sys.argv[1]))
