"""`python -m tests.bench`: runs it all, or the rest of what was interrupted."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import psutil
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import tests.bench
from tests.bench.machine import UNCOMMITTED, machine_of, use_a_disk
from tests.bench.peers import databases, peers
from tests.bench.report import Run, as_json, clients, introduce, show, write_page
from tests.bench.results import Measurements
from tests.bench.scenarios import SCENARIOS
from tests.bench.stage import Bench, BenchmarkError
from tests.brokers import two_sites

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

    from tests.bench.peers import Peer
    from tests.bench.scenarios import Scenario

FOLDER = Path("build/bench")


def _chosen(found: Sequence[Peer], words: Sequence[str]) -> list[Scenario]:
    everything = [*SCENARIOS, *(load for peer in found for load in peer.loads)]
    if not words:
        return everything
    named = {
        scenario.key
        for scenario in everything
        if any(word in (scenario.part, scenario.key[0]) for word in words)
    }
    named |= {
        scenario.key
        for scenario in everything
        if any(word in scenario.key[0] for word in words) and not named
    }
    bases = {scenario.base for scenario in everything if scenario.key in named}
    return [scenario for scenario in everything if scenario.key in named | bases]


def _measure(
    console: Console, bench: Bench, measurements: Measurements, scenarios: Sequence[Scenario], rounds: int
) -> None:
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=rounds * len(scenarios), completed=len(measurements))
        for number in range(rounds):
            # Every other round backwards: what a run does to a machine as it goes on falls on all alike.
            for scenario in scenarios if number % 2 == 0 else scenarios[::-1]:
                if measurements.has(scenario, number):
                    continue
                name, count = scenario.key
                progress.update(task, description=f"{name}, {clients(count)}")
                measurements.add(scenario, number, scenario.measure(bench))
                progress.advance(task)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=tests.bench.__doc__)
    parser.add_argument(
        "--rounds", type=_above_zero, default=3, help="how often each is measured (default 3)"
    )
    parser.add_argument("--seconds", type=_above_zero, default=2, help="seconds for each (default 2)")
    parser.add_argument(
        "--scenario", action="append", default=[], metavar="WORDS",
        help="only this part (limits, ours, adverse, between servers, peers), or lines whose name has these words, and what they are "
        "ratios of; may be given again",
    )  # fmt: skip
    parser.add_argument("--peer-sql", type=Path, metavar="DIR", help="a folder with pgmq.sql")
    parser.add_argument("--fresh", action="store_true", help="begin anew, whatever was interrupted")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", default=FOLDER / "result.json", help="default %(default)s"
    )
    parser.add_argument(
        "--page", type=Path, metavar="FILE", default=FOLDER / "result.html", help="default %(default)s"
    )
    return parser.parse_args()


def _above_zero(text: str) -> int:
    if int(text) < 1:
        raise ValueError
    return int(text)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    # Once: the clean-up that this begins is not to be cut off by an impatient second Ctrl-C.
    for other in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(other, signal.SIG_IGN)
    raise KeyboardInterrupt


def main() -> int:
    """Run it; return the exit code."""
    arguments = _arguments()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    # PGOPTIONS and its like would change the sessions behind the settings that are printed.
    for name in [name for name in os.environ if name.startswith("PG")]:
        del os.environ[name]
    use_a_disk()
    console, watcher = Console(), Console(stderr=True)
    if not console.is_terminal:
        # A file has no width; rich would take 80 columns and cut the table.
        console = Console(width=150)
    found = peers(arguments.peer_sql)
    scenarios = _chosen(found, arguments.scenario)
    if not scenarios:
        watcher.print("No line has such a name.")
        return 2
    rounds, seconds = arguments.rounds, arguments.seconds
    try:
        busy_percent = psutil.cpu_percent(interval=1)
        with (
            tempfile.TemporaryDirectory(prefix="pybroker-benchmark-") as directory,
            two_sites(Path(directory)) as sites,
        ):
            bench = Bench(*sites, seconds, databases(found))
            machine = machine_of(bench, busy_percent)
            introduce(console, Run(machine, found, seconds, rounds))
            identity = repr((machine.revision, seconds, [scenario.key for scenario in scenarios]))
            # What was measured of code that has changed since is not to be mixed with what comes now.
            keeps = UNCOMMITTED not in machine.revision
            state = FOLDER / "unfinished.json"
            if arguments.fresh:
                state.unlink(missing_ok=True)
            measurements = Measurements(state if keeps else None, identity)
            if len(measurements):
                console.print(f"{len(measurements)} measurements of an interrupted run are kept.\n")
            _measure(watcher, bench, measurements, scenarios, rounds)
    except KeyboardInterrupt:
        watcher.print("Interrupted; the servers are gone. The same command goes on where it was.")
        return 130
    except BenchmarkError as error:
        watcher.print(f"The benchmark failed: {error}", markup=False)
        return 1
    lines = measurements.lines(scenarios, rounds)
    run = Run(machine, found, seconds, rounds, lines)
    show(console, run)
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(as_json(run))
    if write_page(arguments.page, run):
        console.print(f"\nAll of it: {arguments.json}, with plots: {arguments.page}")
    else:
        console.print(f"\nAll of it: {arguments.json}; for a page with plots, pip install --group bench")
    measurements.finish()
    return 0


if __name__ == "__main__":
    sys.exit(main())
