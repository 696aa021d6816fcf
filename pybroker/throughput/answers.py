"""The whitepaper's recommendations and conclusions, each answered by what was measured."""

from __future__ import annotations

from collections import Counter
from statistics import median
from typing import TYPE_CHECKING

import msgspec

from pybroker.throughput.analysis import ALL_ROLES, ROLES
from pybroker.throughput.figures import payload_words
from pybroker.throughput.matrix import GAIN_FROM_THREADS, GAIN_PERCENT, HEADLINES, Cell

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pybroker.throughput.analysis import Outcome

# Of what a directory has no cells for.
NOT_RUN = "not run"
# Where a session waits that wants the content of a page which another one changes.
_PAGE_WAIT = "LWLock:BufferContent"
# Less is seldom; so much less with 150 is a difference, few as the samples of a cell are.
_SELDOM, _COOLED = 0.02, 0.5
_WHOLE = 0.999
_NOT_WAITING = {"running", "Client:ClientRead", "Timeout:PgSleep"}


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
        (178, "The initiator is the bottleneck", _bottleneck(by_cell)),
        (178, "Processors at half load", _half_load(by_cell)),
        (178, "Larger payloads flatten earlier", _payloads(by_cell)),
        (178, "Two transactions a message at the initiator", _transactions(by_cell)),
    ]
    return [(row, question, "; ".join(answer) or NOT_RUN) for row, question, answer in found]


def best_of(outcomes: Iterable[Outcome]) -> dict[int, Outcome]:
    """Return the whitepaper's cell with the highest rate for each number of initiators that has one."""
    best: dict[int, Outcome] = {}
    for one in outcomes:
        initiators = one.cell.initiators
        is_printed = one.cell.series == "whitepaper" and initiators in HEADLINES
        if is_printed and (initiators not in best or best[initiators].rate < one.rate):
            best[initiators] = one
    return dict(sorted(best.items()))


def shape(cell: Cell) -> str:
    """Return what a reader must know of a cell: initiators, threads, payload."""
    return f"{cell.initiators}x{cell.threads} threads, {payload_words(cell.payload)}"


def place(cell: Cell) -> tuple[int, ...]:
    """Return by what cells of a series are ordered."""
    return cell.version, cell.initiators, cell.ratio, cell.payload, cell.threads


def _twins(by_cell: dict[Cell, Outcome], one: str, other: str) -> Iterator[tuple[Outcome, Outcome]]:
    """Yield the cells that both series have."""
    for cell, outcome in sorted(by_cell.items(), key=lambda item: place(item[0])):
        twin = by_cell.get(Cell(other, *place_of_twin(cell)))
        if cell.series == one and twin is not None:
            yield outcome, twin


def place_of_twin(cell: Cell) -> tuple[int, int, int, int, int]:
    """Return what a cell shares with those of other series that are compared with it."""
    return cell.version, cell.initiators, cell.threads, cell.ratio, cell.payload


def _compare(by_cell: dict[Cell, Outcome], one: str, other: str, words: str, other_words: str) -> list[str]:
    return [
        f"{shape(first.cell)}: {words} {first.rate:,.0f}/s, {other_words} {second.rate:,.0f}/s"
        for first, second in _twins(by_cell, one, other)
    ]


def _receive_top(by_cell: dict[Cell, Outcome]) -> list[str]:
    return [
        f"{shape(first.cell)}: TOP (10000) {first.rate:,.0f}/s, {first.per_receive:,.1f} messages a RECEIVE;"
        f" TOP (1) {second.rate:,.0f}/s, {second.per_receive:,.1f} a RECEIVE"
        for first, second in _twins(by_cell, "whitepaper", "top-1")
    ]


def _dialog_reuse(by_cell: dict[Cell, Outcome]) -> list[str]:
    found = []
    for first, second in _twins(by_cell, "whitepaper", "one-dialog"):
        rates = [("a dialog for each thread", first.rate), ("one for all", second.rate)]
        for words, name in (
            ("one for each message", "dialog-a-message"),
            ("that ends", "short-conversations"),
        ):
            other = by_cell.get(Cell(name, *place_of_twin(first.cell)))
            rates += [] if other is None else [(words, other.rate)]
        found.append(f"{shape(first.cell)}: {', '.join(f'{words} {rate:,.0f}/s' for words, rate in rates)}")
    return found


def _lifetime(by_cell: dict[Cell, Outcome]) -> list[str]:
    return [
        f"{shape(first.cell)}, a message every 0.5 s: waiting 3 s {first.readers} readers, 95 % within"
        f" {_part(first.latency)} ms; not waiting {second.readers} readers, {_part(second.latency)} ms"
        for first, second in _twins(by_cell, "sparse", "sparse-no-wait")
    ]


def _part(latency: Sequence[float]) -> str:
    return f"{1000 * latency[1]:,.0f}" if latency else "-"


def _readers(by_cell: dict[Cell, Outcome]) -> list[str]:
    found = []
    for first, second in _twins(by_cell, "1-reader", "4-readers"):
        two = by_cell.get(Cell("2-readers", *place_of_twin(first.cell)))
        middle = "" if two is None else f", 2 a core {two.rate:,.0f}/s ({two.readers} received)"
        found.append(
            f"{shape(first.cell)}: 1 a core {first.rate:,.0f}/s ({first.readers} received){middle},"
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
        f" ({shape(most)}), median {median(gains):+.0f} % over {len(gains)} pairs and"
        f" {median(_gains(many)):+.0f} % over the {len(many)} of {_threads(many)}."
        f" The whitepaper had up to +{GAIN_PERCENT} %.{_hot_page(many)}"
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
        words = "There is no hot page here"
    elif shares[1] <= _COOLED * shares[0]:
        words = "Neighbouring dialogs do wait for a page that they share, and spacing them helps against that"
    else:
        words = "Sessions do wait for pages, and spacing the dialogs does not keep them from it"
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
        f" Hot page? {words}. The initiators' sessions were seen in {_PAGE_WAIT} {shares[0]:.1%} of the"
        f" time with every dialog, {shares[1]:.1%} with every 150th."
        f" That is {len(pairs)} pairs of {_threads(pairs)}{cut}.{most}"
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


def _printed(by_cell: dict[Cell, Outcome]) -> list[Outcome]:
    return [one for cell, one in by_cell.items() if cell.series == "whitepaper"]


def _bottleneck(by_cell: dict[Cell, Outcome]) -> list[str]:
    """Compare what a message costs an initiator and the target, server and worker together."""
    costs_of = []
    for one in _printed(by_cell):
        each = one.per_processor_second
        if all(each.get(role) for role in ROLES):
            initiator, target = (
                1 / each[f"{side} server"] + 1 / each[f"{side} worker"] for side in ("initiator", "target")
            )
            costs_of.append((1e6 * initiator, 1e6 * target))
    if not costs_of:
        return []
    initiator, target = (median(pair[place] for pair in costs_of) for place in (0, 1))
    verdict = (
        "a message costs the initiator more" if initiator > target else "a message costs the target more"
    )
    return [
        f"{verdict}: {initiator:,.0f} µs of a processor there and {target:,.0f} µs at the target,"
        f" in the middle of {len(costs_of)} cells. One target like the initiators keeps up with"
        f" {initiator / target:.1f} of them"
    ]


def _half_load(by_cell: dict[Cell, Outcome]) -> list[str]:
    """Tell how many cores the servers of the fastest cell kept busy; the paper had 50 % and 45 %."""
    best = max(_printed(by_cell), key=lambda one: one.rate, default=None)
    if best is None or not best.cores:
        return []
    sides = {
        side: sum(busy for who, busy in best.cores.items() if who.startswith(side))
        for side in ("initiator", "target")
    }
    return [
        f"in the fastest cell {sides['initiator']:.2f} cores of its initiators and {sides['target']:.2f} of"
        " the target were busy; the paper's were at 50 % and 45 %"
    ]


def _payloads(by_cell: dict[Cell, Outcome]) -> list[str]:
    """Compare what a processor-second carries of each payload, with the most threads that were run."""
    printed = [one for one in _printed(by_cell) if ALL_ROLES in one.per_processor_second]
    found: dict[int, list[float]] = {}
    for one in printed:
        found.setdefault(one.cell.payload, []).append(one.per_processor_second[ALL_ROLES])
    if len(found) < 2:  # noqa: PLR2004
        return []
    words = ", ".join(
        f"{payload_words(payload)} {median(each):,.0f}" for payload, each in sorted(found.items())
    )
    return [f"messages per processor-second, in the middle of all cells: {words}"]


def _transactions(by_cell: dict[Cell, Outcome]) -> list[str]:
    """Tell the transactions of an initiator's server for a message, and the flushes of its log."""
    printed = [one for one in _printed(by_cell) if one.commits_per_message is not None]
    if not printed:
        return []
    commits = median(one.commits_per_message or 0.0 for one in printed)
    flushes = median(one.flushes_per_message or 0.0 for one in printed)
    batch = [one.per_batch for one in printed if one.per_batch]
    batches = f", in batches of {median(batch):,.1f}" if batch else ""
    return [
        f"{commits:.2f} transactions a message{batches}, and {flushes:.2f} flushes of the log, in the middle"
        f" of {len(printed)} cells; the paper's initiator had 2 transactions"
    ]
