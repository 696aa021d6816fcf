"""`python -m tests.chaos.soak`: nothing fails, messages pass for long, and the workers must not grow by it."""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.chaos.patience import Patience
from tests.chaos.stage import a_stage
from tests.chaos.traffic import Traffic, compare

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.brokers import Site

_SEED = 1
# What pools, caches and the allocator take once; after this part of the samples nothing more may be taken.
_WARM_UP = 0.4
_GROWTH_BYTES = 24 * 2**20
# The 16 of its pool, those that listen, and those with the other worker.
_MOST_CONNECTIONS = 24


@dataclass(frozen=True)
class Sample:
    """The two workers after so many messages: bytes in memory, and connections to servers and to each other."""

    messages: int
    memory: tuple[int, int]
    connections: tuple[int, int]


@dataclass
class Soak:
    """The samples of a soak, and whether every message arrived once and in order."""

    samples: list[Sample] = field(default_factory=list)
    is_right: bool = True

    @property
    def warm(self) -> list[Sample]:
        return self.samples[int(len(self.samples) * _WARM_UP) :]

    @property
    def growth(self) -> int:
        """Bytes by which a worker has grown since it was warm, at the end."""
        first, last = self.warm[0], self.warm[-1]
        return max(after - before for before, after in zip(first.memory, last.memory, strict=True))

    @property
    def most_connections(self) -> int:
        """The most connections that a worker had."""
        return max(number for sample in self.samples for number in sample.connections)

    @property
    def is_flat(self) -> bool:
        return self.growth <= _GROWTH_BYTES and self.most_connections <= _MOST_CONNECTIONS


def soak(
    directory: Path,
    *,
    messages: int,
    steps: int,
    dialogs: int = 50,
    settings: dict[str, str] | None = None,
    watch: Callable[[Sample], None] | None = None,
) -> Soak:
    """Let `messages` pass in all, half of them each way, on new dialogs in each step, and look after each."""
    result = Soak()
    each = -(-messages // (2 * steps * dialogs))
    with a_stage(directory, settings or {}) as (sites, _):
        for site in sites:
            site.start_worker()
        for step in range(1, steps + 1):
            with Traffic(sites, dialogs, _SEED + step) as traffic:
                patience = Patience(sites, traffic)
                traffic.allow(each)
                patience.wait_for("received", each * dialogs)
                patience.end_dialogs()
            left, right = sites
            result.is_right &= compare(left, right).is_right and compare(right, left).is_right
            for site in sites:
                site.psql.rows("truncate dialogs, sent, received")
            result.samples.append(
                Sample(2 * step * each * dialogs, *zip(*map(_look, sites), strict=True))  # type: ignore[arg-type]
            )
            if watch is not None:
                watch(result.samples[-1])
    return result


def _look(site: Site) -> tuple[int, int]:
    assert site.worker is not None
    worker = psutil.Process(site.worker.pid)
    to_the_other = [each for each in worker.net_connections("tcp") if each.status == psutil.CONN_ESTABLISHED]
    to_the_server = site.psql.value(
        "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
    )
    return worker.memory_info().rss, len(to_the_other) + to_the_server


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.soak", description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000, help="both ways together")
    parser.add_argument("--steps", type=int, default=20)
    given = parser.parse_args()
    console = Console()
    bars = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
    )
    with bars, tempfile.TemporaryDirectory() as directory:
        bar = bars.add_task("messages", total=given.messages)
        result = soak(
            Path(directory),
            messages=given.messages,
            steps=given.steps,
            watch=lambda sample: bars.update(bar, completed=sample.messages),
        )
    table = Table("messages", "worker left", "worker right", "connections left", "connections right")
    for sample in result.samples:
        memory = [f"{size / 2**20:.1f} MB" for size in sample.memory]
        table.add_row(f"{sample.messages:,}", *memory, *map(str, sample.connections))
    console.print(table)
    console.print(
        "flat" if result.is_flat else "NOT FLAT", "and", "right" if result.is_right else "NOT RIGHT"
    )
    return 0 if result.is_flat and result.is_right else 1


if __name__ == "__main__":
    sys.exit(main())
