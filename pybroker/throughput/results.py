"""What a run has found so far, in a directory, so that it can go on after an interruption."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import psutil

from pybroker.throughput.analysis import ALL_ROLES, Outcome, merged
from pybroker.throughput.failures import ThroughputError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pybroker.throughput.estimates import Estimate
    from pybroker.throughput.matrix import Cell, Effort, Timing


class Conditions(msgspec.Struct, frozen=True):
    """What must be the same for all cells of a run.

    Attributes:
        on: The kind of test bed.
        warm_up: Seconds.
        measured: Seconds.
        machine: Processors, memory and system.
    """

    on: str
    warm_up: float
    measured: float
    machine: str


class Finished(msgspec.Struct, frozen=True):
    """What a directory holds.

    Attributes:
        conditions: Of all its cells.
        outcomes: One of each cell that has run, of all its repetitions together.
        servers: What was told of the servers, by version.
    """

    conditions: Conditions
    outcomes: list[Outcome]
    servers: dict[int, dict[str, str]]

    def quotas(self, cell: Cell) -> float | None:
        """Return the processors that a cell's servers and workers may use together; None without quotas."""
        about = self.servers.get(cell.version, {})
        initiator, target = (
            sum(
                float(cores.split()[0])
                for name, cores in about.items()
                if name.startswith(f"quota of the {server} ")
            )
            for server in ("initiator1", "target")
        )
        return cell.initiators * initiator + target if cell.how.is_limited and initiator and target else None

    def cores(self, cell: Cell) -> float | None:
        """Return the processors that are there for a cell, by its quotas or the machine; None if unknown."""
        if self.conditions.on == "urls":
            return None
        count = self.conditions.machine.split()[0]
        return self.quotas(cell) or (float(count) if count.isdigit() else None)


def read_finished(directory: Path) -> Finished:
    """Read what a run left, be it of this machine or of another."""
    by_cell: dict[Cell, list[Outcome]] = {}
    for file in sorted(directory.glob("cells/*/*/outcome.json")):
        one = msgspec.json.decode(file.read_bytes(), type=Outcome)
        by_cell.setdefault(one.cell, []).append(one)
    return Finished(
        conditions=msgspec.json.decode((directory / "conditions.json").read_bytes(), type=Conditions),
        outcomes=[merged(repetitions) for repetitions in by_cell.values()],
        servers={
            int(file.stem.rpartition("-")[2]): msgspec.json.decode(file.read_bytes(), type=dict[str, str])
            for file in sorted(directory.glob("servers-*.json"))
        },
    )


class Results:
    """A directory: `conditions.json`, and for each run of a cell its outcome and the Parquet files behind it.

    Raises:
        ThroughputError: The directory holds a run under other conditions.
    """

    def __init__(self, directory: Path, on: str, timing: Timing) -> None:
        self._directory = directory.resolve()
        self.conditions = Conditions(on, timing.warm_up, timing.measured, _machine())
        self._directory.mkdir(parents=True, exist_ok=True)
        file = self._directory / "conditions.json"
        if file.exists():
            before = msgspec.json.decode(file.read_bytes(), type=Conditions)
            if before != self.conditions:
                raise ThroughputError(
                    f"{directory} holds a run under other conditions: {_shown(before)};"
                    f" now {_shown(self.conditions)}."
                    " Name another directory with --output."
                )
        else:
            _write(file, self.conditions)

    def directory_of(self, cell: Cell, repetition: int) -> Path:
        """Return where the files of a cell's run are."""
        return self._directory / "cells" / cell.name / str(repetition)

    def add(self, outcome: Outcome) -> None:
        """Keep an outcome; a run with one is finished."""
        _write(self.directory_of(outcome.cell, outcome.repetition) / "outcome.json", outcome)

    def due(self, cells: Iterable[Cell], effort: Effort) -> dict[Cell, int]:
        """Return the cells that are to run again, each with how often it has run.

        A cell is done when it has run as often as it may, or when its messages per processor-second are
        known well enough; where nobody can tell processor seconds, its messages a second.
        """
        before = {one.cell: one for one in self.outcomes()}
        return {
            cell: before[cell].repetition if cell in before else 0
            for cell in cells
            if cell not in before or not is_done(before[cell], effort)
        }

    def outcomes(self) -> list[Outcome]:
        """Return the outcomes of what is finished."""
        return self.finished().outcomes

    def finished(self) -> Finished:
        """Return all that is finished, with its conditions."""
        return read_finished(self._directory)

    def path_of(self, name: str) -> Path:
        """Return the path of a file beside the cells."""
        return self._directory / name

    def note_servers(self, version: int, about: dict[str, str]) -> None:
        """Keep what is told of the servers of a version."""
        _write(self._directory / f"servers-{version}.json", about)


def is_done(outcome: Outcome, effort: Effort) -> bool:
    """Whether a cell has run often enough."""
    return outcome.repetition >= effort.repetitions or precise(outcome).is_within(effort.precision)


def precise(outcome: Outcome) -> Estimate:
    """Return the estimate that decides whether a cell is repeated."""
    return outcome.estimates.get(ALL_ROLES, outcome.estimates["messages/s"])


def _write(file: Path, content: Any) -> None:
    """Write it whole or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_suffix(".draft")
    draft.write_bytes(msgspec.json.format(msgspec.json.encode(content)))
    draft.replace(file)


def _shown(conditions: Conditions) -> str:
    return ", ".join(f"{name} {value}" for name, value in msgspec.to_builtins(conditions).items())


def _machine() -> str:
    memory = psutil.virtual_memory().total / 2**30
    system = f"{platform.system()} {platform.release()}"
    return f"{psutil.cpu_count()} cores{_processor()}, {memory:.0f} GiB, {system}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f" of {names[0]}" if names else ""
