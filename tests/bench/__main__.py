"""`python -m tests.bench`: runs it all, or the rest of what was interrupted."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import psutil
import psycopg
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import tests.bench
from pybroker.embedded import EmbeddedServer
from tests.bench.between import WhitepaperPath
from tests.bench.machine import UNCOMMITTED, is_in_memory, machine_of, use_a_disk
from tests.bench.peers import databases, peers
from tests.bench.plots import clients
from tests.bench.profiles import Profiler
from tests.bench.report import Run, as_json, introduce, show, write_page
from tests.bench.results import DISTURBED, Measurements
from tests.bench.scenarios import FULL, QUICK, in_turn, scenarios, targets
from tests.bench.stage import Bench, BenchmarkError
from tests.brokers import two_sites

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

    from tests.bench.loads import Scenario
    from tests.bench.machine import Machine
    from tests.bench.peers import Peer
    from tests.bench.scenarios import Scale
    from tests.bench.stage import Sample

FOLDER = Path("build/bench")
# A profile of less has too few samples: a second or more goes by before it sees any.
PROFILE_SECONDS = 8


def _chosen(scale: Scale, found: Sequence[Peer], words: Sequence[str]) -> list[Scenario]:
    everything = [*scenarios(scale), *(load for peer in found for load in peer.loads)]
    if not words:
        return everything
    named = _named(everything, words)
    while True:
        # What a line is a ratio of may be a ratio itself.
        bases = {scenario.base for scenario in everything if scenario.key in named and scenario.base} - named
        if not bases:
            return [scenario for scenario in everything if scenario.key in named]
        named |= bases


def _named(everything: Sequence[Scenario], words: Sequence[str]) -> set[tuple[str, int]]:
    """Return the keys of the lines of that part or name; of all with these words, where none is called so."""
    named: set[tuple[str, int]] = set()
    for word in words:
        exact = {scenario.key for scenario in everything if word in (scenario.part, scenario.key[0])}
        named |= exact or {scenario.key for scenario in everything if word in scenario.key[0]}
    return named


def _measure(
    console: Console, bench: Bench, measurements: Measurements, chosen: Sequence[Scenario], rounds: int
) -> None:
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=rounds * len(chosen), completed=len(measurements))
        for number in range(rounds):
            started = time.monotonic()
            # Every other round backwards: what a run does to a machine as it goes on falls on all alike.
            for scenario in chosen if number % 2 == 0 else chosen[::-1]:
                if measurements.has(scenario, number):
                    continue
                name, count = scenario.key
                progress.update(task, description=f"{name}, {clients(count)}")
                sample = _undisturbed(scenario, bench)
                measurements.add(scenario, number, sample)
                progress.advance(task)
                if not console.is_terminal:
                    console.print(
                        f"round {number + 1}: {name}, {clients(count)}: {sample.rate:,.0f}", soft_wrap=True
                    )
            console.print(f"round {number + 1} took {(time.monotonic() - started) / 60:.1f} minutes")


def _profiled(
    console: Console, bench: Bench, chosen: Sequence[Scenario], run: Run, words: Sequence[str]
) -> Run:
    """Measure the lines that missed a target, and those named, once more, and see where their time goes; the rates of these runs are not shown."""
    wanted = _named(chosen, words) | {each.target.line for each in run.verdicts if each.is_reached is False}
    profiles: dict[tuple[str, int], dict[str, str]] = {}
    bench.seconds = max(bench.seconds, PROFILE_SECONDS)
    for scenario in chosen:
        if scenario.key not in wanted:
            continue
        name = f"{scenario.key[0]}, {clients(scenario.key[1])}"
        console.print(f"profile: {name}", soft_wrap=True)
        bench.profiler = Profiler(name, FOLDER / "profiles")
        try:
            scenario.measure(bench)
        except (BenchmarkError, psycopg.Error) as error:
            # What was measured before is not to be lost with it.
            profiles[scenario.key] = {"not profiled": str(error)}
        else:
            profiles[scenario.key] = bench.profiler.said()
    return replace(run, profiles=profiles)


def _undisturbed(scenario: Scenario, bench: Bench) -> Sample:
    """Measure once more where other programs were busy meanwhile; return the better."""
    sample = scenario.measure(bench)
    if sample.others <= DISTURBED:
        return sample
    return min(sample, scenario.measure(bench), key=lambda each: each.others)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=tests.bench.__doc__)
    parser.add_argument(
        "--full",
        action="store_true",
        help="the whole of it, in hours: 5 rounds of 10 s, SEND with each number of clients, dialogs and bytes, backlogs of up to"
        " 5,000,000, groups of 100,000, two minutes under an old snapshot",
    )
    parser.add_argument("--rounds", type=_above_zero, help="how often each is measured (3, with --full 5)")
    parser.add_argument("--seconds", type=_above_zero, help="seconds for each (2, with --full 10)")
    parser.add_argument(
        "--scenario", action="append", default=[], metavar="WORDS",
        help="only this part (limits, ours, adverse, between databases, peers), or lines whose name has these words, and what they are "
        "ratios of; may be given again",
    )  # fmt: skip
    parser.add_argument(
        "--profile", action="append", default=[], metavar="WORDS",
        help="look, after the rounds, where the time of these lines goes too, and not only of those that missed a target; may be given again",
    )  # fmt: skip
    parser.add_argument(
        "--no-profiles", action="store_true", help="do not look where the time goes, to be done sooner"
    )
    parser.add_argument(
        "--peer-sql", type=Path, metavar="DIR", help="a folder with pgmq.sql, pgq_pl_only.sql"
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", type=_setting, dest="settings",
        help="a setting of PostgreSQL's for all servers, such as shared_buffers=1GB; may be given again. The whitepaper's path is left out, as its servers"
        " have their own",
    )  # fmt: skip
    parser.add_argument(
        "--in-memory",
        action="store_true",
        help="run although the data is on tmpfs, and say of no target that it was reached or missed",
    )
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


def _setting(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not (name and sign and value):
        raise ValueError
    return name, value


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    # Once: the clean-up that this begins is not to be cut off by an impatient second Ctrl-C.
    for other in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(other, signal.SIG_IGN)
    raise KeyboardInterrupt


def _complaint(chosen: Sequence[Scenario], profiled: Sequence[str], *, in_memory: bool) -> str:
    """Say why nothing can be measured, or nothing."""
    if is_in_memory() and not in_memory:
        return "Temporary files are in memory here, where fsync costs nothing: set TMPDIR to a folder on a disk, or say --in-memory."
    if not chosen:
        return "No line has such a name."
    unknown = [words for words in profiled if not _named(chosen, [words])]
    return f"--profile {unknown[0]}: no line of this run has such a name." if unknown else ""


def _identity(
    machine: Machine,
    seconds: int,
    settings: Sequence[tuple[str, str]],
    chosen: Sequence[Scenario],
    found: Sequence[Peer],
) -> str:
    """Return what two runs must have in common, if one is to go on with what the other measured."""
    keys, versions = [scenario.key for scenario in chosen], [peer.version for peer in found]
    return repr((machine.revision, seconds, sorted(settings), keys, versions))


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
        console = Console(width=175)
    scale = FULL if arguments.full else QUICK
    rounds = arguments.rounds or (5 if arguments.full else 3)
    seconds = arguments.seconds or (10 if arguments.full else 2)
    found = peers(arguments.peer_sql, scale)
    chosen = [
        scenario
        for scenario in _chosen(scale, found, arguments.scenario)
        if not arguments.settings or not isinstance(scenario, WhitepaperPath)
    ]
    if complaint := _complaint(chosen, arguments.profile, in_memory=arguments.in_memory):
        watcher.print(complaint)
        return 2
    try:
        busy_percent = psutil.cpu_percent(interval=1)
        with (
            tempfile.TemporaryDirectory(prefix="pybroker-benchmark-") as name,
            ExitStack() as stack,
        ):
            settings = dict(arguments.settings)

            def server_for(_: str, version: int) -> EmbeddedServer:
                return stack.enter_context(EmbeddedServer(version=version, listen=True, settings=settings))

            sites = stack.enter_context(two_sites(Path(name), server_for=server_for))
            bench = Bench(
                sites,
                Path(name),
                stack,
                seconds=seconds,
                definitions=databases(found),
                server_settings=settings,
            )
            machine = machine_of(bench, busy_percent)
            introduce(console, Run(machine, found, seconds, rounds))
            identity = _identity(machine, seconds, arguments.settings, chosen, found)
            # What was measured of code that has changed since is not to be mixed with what comes now.
            keeps = UNCOMMITTED not in machine.revision
            state = arguments.json.with_name("unfinished.json")
            if arguments.fresh:
                state.unlink(missing_ok=True)
            measurements = Measurements(state if keeps else None, identity)
            if len(measurements):
                console.print(f"{len(measurements)} measurements of an interrupted run are kept.\n")
            _measure(watcher, bench, measurements, in_turn(chosen, targets(scale)), rounds)
            run = Run(machine, found, seconds, rounds, measurements.lines(chosen, rounds), targets(scale))
            if not arguments.no_profiles:
                run = _profiled(watcher, bench, chosen, run, arguments.profile)
    except KeyboardInterrupt:
        watcher.print("Interrupted; the servers are gone. The same command goes on where it was.")
        return 130
    except BenchmarkError as error:
        watcher.print(f"The benchmark failed: {error}", markup=False)
        return 1
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
