"""`make capacity`: what a load needs, from what a run of `make bench` measured a message to cost.

Costs of bodies between two measured sizes are interpolated, beyond the largest extrapolated. Processor time is what
carries over to another machine, as far as its processors are alike; rates do not.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console

from tests.bench.loads import BODY_BYTES
from tests.bench.scenarios import (
    ONE_DIALOG,
    PATH_SEALED,
    SEND,
    SEND_BATCH,
    SIZES,
    TOP_BATCH,
    TOP_ONE,
    sized,
)
from tests.bench.stage import BATCH

# Of the processors, so that a burst finds room.
FULL = 0.7
BACKLOG_SECONDS = 3600
MANY = f"{SEND}, 7,500 dialogs"
HOP = "hop, TLS, sealed"


class MissingLineError(Exception):
    """The run did not measure what is needed; the text names it."""


@dataclass(frozen=True)
class Cost:
    """What one message costs.

    Attributes:
        server_us: Microseconds of the servers' processors.
        worker_us: Microseconds of the workers'.
        wal_bytes: Bytes of WAL on all servers together.
    """

    server_us: float
    worker_us: float
    wal_bytes: float

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.server_us + other.server_us,
            self.worker_us + other.worker_us,
            self.wal_bytes + other.wal_bytes,
        )


@dataclass(frozen=True)
class Load:
    """What is asked for: messages a second, bytes of a body, dialogs, messages a transaction, whether they leave their worker."""

    rate: float
    size: int = BODY_BYTES
    dialogs: int = 1_000
    batch: int = 1
    crosses: bool = False


@dataclass(frozen=True)
class Capacity:
    """What a load needs.

    Attributes:
        cost: What one message costs.
        cores: Cores of the servers, of the workers.
        wal: Bytes of WAL a second.
        backlog: Bytes of bodies that gather in an hour without readers.
        least_dialogs: With fewer each dialog waits for its own commits.
        most: Messages a second at which the measured machine's processors, doing all of it, are 70 % busy.
        machines: How many such machines the load is to be spread over.
    """

    cost: Cost
    cores: tuple[float, float]
    wal: float
    backlog: float
    least_dialogs: int
    most: float
    machines: int


class Results:
    """The lines of a run."""

    def __init__(self, result: dict[str, Any]) -> None:
        self.machine: dict[str, Any] = result["machine"]
        self._lines = {(line["name"], line["clients"]): line for line in result["lines"]}

    def cost(self, name: str, clients: int) -> Cost:
        """Return what a message of this line costs."""
        line = self._line(name, clients)
        return Cost(line["cpu_us"], line["worker_us"] or 0.0, line["wal_bytes"])

    def rate(self, name: str, clients: int) -> float:
        """Return the line's median rate."""
        return float(median(self._line(name, clients)["rates"]))

    def has(self, name: str, clients: int) -> bool:
        """Whether the run has this line."""
        return (name, clients) in self._lines

    def _line(self, name: str, clients: int) -> dict[str, Any]:
        try:
            found: dict[str, Any] = self._lines[name, clients]
        except KeyError:
            raise MissingLineError(
                f"The run has no line {name!r} with {clients} clients: run make bench whole."
            ) from None
        return found


def capacity(results: Results, load: Load) -> Capacity:
    """Return what a load needs.

    Raises:
        MissingLineError: The run did not measure what is needed.
    """
    cost = _cost(results, load)
    cores = load.rate * cost.server_us / 1e6, load.rate * cost.worker_us / 1e6
    # One dialog is one writer at a time: nobody else's commits help it.
    per_dialog = results.rate(ONE_DIALOG, 50) if load.batch == 1 else results.rate(SEND_BATCH, 1)
    most = FULL * results.machine["cores"] * 1e6 / (cost.server_us + cost.worker_us)
    return Capacity(
        cost,
        cores,
        load.rate * cost.wal_bytes,
        load.rate * load.size * BACKLOG_SECONDS,
        max(1, math.ceil(load.rate / per_dialog)),
        most,
        max(1, math.ceil(load.rate / most)),
    )


def _cost(results: Results, load: Load) -> Cost:
    """Return what a message costs from its SEND to its RECEIVE."""
    if load.batch == 1 and load.crosses:
        # Workers take single messages as they come: far smaller batches than those of a backlog, which the hop's line measures.
        return (
            results.cost(PATH_SEALED, 50)
            + _of_larger(results, MANY, 16, load.size)
            + _of_larger(results, HOP, 1, load.size)
            + _of_larger(results, TOP_ONE, 16, load.size)
        )
    receive, clients = (TOP_ONE, 16) if load.batch == 1 else (TOP_BATCH, 1)
    cost = _by_size(results, receive, clients, load.size)
    if load.batch == 1:
        return cost + _by_size(results, MANY, 16, load.size)
    # What a larger body adds to a batch is what it adds to a single one.
    cost += results.cost(SEND_BATCH, 1) + _of_larger(results, MANY, 16, load.size)
    return cost + _by_size(results, HOP, 1, load.size) if load.crosses else cost


def _of_larger(results: Results, name: str, clients: int, size: int) -> Cost:
    """Return what a message of this size costs more than a small one."""
    large, small = _by_size(results, name, clients, size), results.cost(name, clients)
    return Cost(
        max(0.0, large.server_us - small.server_us),
        max(0.0, large.worker_us - small.worker_us),
        max(0.0, large.wal_bytes - small.wal_bytes),
    )


def _by_size(results: Results, name: str, clients: int, size: int) -> Cost:
    """Return the cost of a body of this size, between those of the measured sizes beside it, or from the last two."""
    known = [BODY_BYTES, *(each for each in SIZES if results.has(sized(name, each), clients))]
    costs = [results.cost(sized(name, each), clients) for each in known]
    if len(known) == 1 or size <= BODY_BYTES:
        return costs[0]
    place = next((place for place, each in enumerate(known) if size <= each), len(known) - 1)
    low, high = costs[place - 1], costs[place]
    part = (size - known[place - 1]) / (known[place] - known[place - 1])

    def between(one: float, other: float) -> float:
        return one + part * (other - one)

    return Cost(
        between(low.server_us, high.server_us),
        between(low.worker_us, high.worker_us),
        between(low.wal_bytes, high.wal_bytes),
    )


def text(results: Results, load: Load) -> str:
    """Return the answer in words."""
    found = capacity(results, load)
    machine = results.machine
    servers, workers = found.cores
    where = "to another worker by TLS, sealed" if load.crosses else "within one database"
    lines = [
        f"{load.rate:,.0f} messages/s of {load.size:,} bytes, {where}, {load.batch} a transaction",
        f"  measured    {machine['processor']}, {machine['cores']} cores, PostgreSQL {machine['settings']['server_version']},"
        f" {machine['started'][:10]}, revision {machine['revision']}",
        f"  servers     {found.cost.server_us:,.0f} µs a message: {servers:,.1f} cores, all servers together",
    ]
    if load.crosses:
        lines.append(
            f"  workers     {found.cost.worker_us:,.0f} µs a message: {workers:,.1f} cores, all workers together"
        )
    lines += [
        f"  WAL         {found.cost.wal_bytes:,.0f} B a message: {found.wal / 1e6:,.1f} MB/s, all servers together",
        f"  dialogs     at least {found.least_dialogs:,}, as each waits for its own commits; asked for: {load.dialogs:,}"
        f"{'' if load.dialogs >= found.least_dialogs else ' - TOO FEW'}",
        f"  backlog     {found.backlog / 1e9:,.1f} GB of bodies in an hour without readers, rows and indexes besides",
        f"  at most     {found.most:,.0f} messages/s by the processors of such a machine, {FULL:.0%} busy (its disk may take less);"
        f" {'one is enough' if found.machines == 1 else f'spread it over {found.machines:,}'}",
    ]
    return "\n".join(lines)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.capacity", description="What a load needs, from a run of make bench."
    )
    parser.add_argument(
        "--results", type=Path, default=Path("build/bench/result.json"), help="default %(default)s"
    )
    parser.add_argument("--rate", type=_positive, required=True, help="messages a second")
    parser.add_argument(
        "--size", type=_positive, default=BODY_BYTES, help="bytes of a body (default %(default)s)"
    )
    parser.add_argument(
        "--dialogs", type=_positive, default=1_000, help="that send at the same time (default %(default)s)"
    )
    parser.add_argument(
        "--batch", type=int, choices=(1, BATCH), default=1, help="messages a transaction (default 1)"
    )
    parser.add_argument("--crosses", action="store_true", help="to a database of another worker")
    return parser.parse_args()  # fmt: skip


def _positive(given: str) -> int:
    if not given.isdecimal() or int(given) < 1:
        raise argparse.ArgumentTypeError(f"{given} is no whole number above 0")
    return int(given)


def main() -> int:
    """Print it; return the exit code."""
    given = _arguments()
    load = Load(given.rate, given.size, given.dialogs, given.batch, given.crosses)
    console, complaints = Console(highlight=False, soft_wrap=True), Console(stderr=True, soft_wrap=True)
    try:
        answer = text(Results(json.loads(given.results.read_text())), load)
    except FileNotFoundError:
        complaints.print(f"{given.results} is not there: run make bench, or name a result.json with RESULTS=")
        return 1
    except (MissingLineError, KeyError, ValueError) as error:
        complaints.print(f"{given.results} can't be used: {error}", markup=False)
        return 1
    console.print(answer, markup=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
