"""`python -m tests.chaos`: rounds of faults, and a report.

A long run is many of them (`--runs`), each with servers and ledgers of its own and a seed one higher. The
report stands after each run, for all up to then. So a run that is ended early tells what it did.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.chaos.faults import FAULTS
from tests.chaos.restores import play_restores
from tests.chaos.rounds import Report, play

if TYPE_CHECKING:
    from tests.chaos.restores import Restores
    from tests.chaos.traffic import Account

_COUNTS = ("sent", "received", "lost", "twice", "unknown", "changed", "out_of_order")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--messages", type=int, default=100_000, help="each way")
    parser.add_argument("--dialogs", type=int, default=100, help="half of them begun at each side")
    parser.add_argument("--runs", type=int, default=1, help="one after the other (%(default)s)")
    parser.add_argument(
        "--seed", type=int, help="of the faults and of what is sent; default: another each time"
    )
    parser.add_argument(
        "--restores", type=int, default=0, help="restores from a copy, played after the rounds"
    )
    given = parser.parse_args()
    for name in ("rounds", "messages", "dialogs", "runs"):
        if getattr(given, name) < 1:
            parser.error(f"--{name}: give 1 or more")
    seed = secrets.randbelow(2**32) if given.seed is None else given.seed
    console = Console()
    console.print(f"seed {seed}")
    total = Report(seed)
    for run in range(given.runs):
        report = _play(console, given, seed + run)
        total.add(report)
        _print(console, total, runs=run + 1)
    is_right = total.is_right
    if given.restores:
        with _bars(console) as bars, tempfile.TemporaryDirectory() as directory:
            in_restores = bars.add_task("restores", total=given.restores)
            restores = play_restores(
                Path(directory),
                restores=given.restores,
                dialogs=given.dialogs,
                seed=seed,
                watch=lambda number: bars.update(in_restores, completed=number),
            )
        _print_restores(console, restores)
        is_right = is_right and restores.is_right
    return 0 if is_right else 1


def _play(console: Console, given: argparse.Namespace, seed: int) -> Report:
    with _bars(console) as bars, tempfile.TemporaryDirectory() as directory:
        in_rounds = bars.add_task("rounds", total=given.rounds)
        in_messages = bars.add_task("messages received", total=2 * given.messages)

        def watch(rounds: int, received: int) -> None:
            bars.update(in_rounds, completed=rounds)
            bars.update(in_messages, completed=received)

        return play(
            Path(directory),
            rounds=given.rounds,
            messages=given.messages,
            dialogs=given.dialogs,
            seed=seed,
            watch=watch,
        )


def _bars(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
    )


def _print(console: Console, report: Report, *, runs: int) -> None:
    console.print(f"between the workers: {report.line}")
    faults = Table("fault", "times")
    for name in FAULTS:
        faults.add_row(name, str(report.faults[name]))
    faults.add_row("transactions of readers rolled back", str(report.rolled_back))
    faults.add_row("largest backlog of a queue", f"{report.backlog:,}")
    faults.add_row("dialogs with full security", str(report.sealed))
    ledgers = Table("ledgers", "left to right", "right to left")
    for count in _COUNTS:
        ledgers.add_row(count.replace("_", " "), _value(report.there, count), _value(report.back, count))
    console.print(faults, ledgers)
    verdict = "nothing lost, doubled, changed or out of order" if report.is_right else "NOT RIGHT"
    console.print(f"{verdict}, in {report.seconds:.0f} s; runs from seed {report.seed} on: {runs}")


def _print_restores(console: Console, restores: Restores) -> None:
    table = Table("restores", "")
    for site, count in restores.restored.items():
        table.add_row(f"of {site}", str(count))
    table.add_row(
        "dialogs that were hurt, and ended in an Error on each side that knows them", str(restores.hurt)
    )
    table.add_row("of these, on which nobody sent any more", str(restores.silent_hurt))
    table.add_row("dialogs of which everything arrived", str(restores.unhurt))
    table.add_row("dialogs that only the side that was put back had known", str(restores.gone))
    table.add_row("hurt though nothing had happened on them", str(restores.quiet_hurt))
    table.add_row("messages received twice", str(restores.twice))
    table.add_row("messages on dialogs that were begun afterwards", str(restores.afterwards))
    for code, count in sorted(restores.codes.items(), key=str):
        table.add_row(f"Errors {code}", str(count))
    console.print(table)


def _value(account: Account, count: str) -> str:
    value = getattr(account, count)
    return f"{value:,}"


if __name__ == "__main__":
    sys.exit(main())
