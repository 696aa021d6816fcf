"""The kinds of scenario that run in one database."""

from __future__ import annotations

import os
import re
import struct
import tempfile
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING

from tests.bench.stage import (
    BATCH,
    DIALOGS,
    PROCESSED,
    WARM_UP_SECONDS,
    BenchmarkError,
    Others,
    Sample,
    Stock,
    body,
    drain,
    figure,
    number,
    postmaster,
    processor_seconds,
)

if TYPE_CHECKING:
    from tests.bench.stage import Bench

BODY_BYTES = 100
# With less than this part of its stock left when the clients stopped, a queue may have been empty for some
# of them before.
NEARLY_DRY = 0.05
COUNT_TRANSACTIONS = ""
NOTHING = Stock()
PAGE = 8192
# What the end under an old snapshot is compared with: later the rate has fallen already.
START_SECONDS = 2
# More than this part of what was sent may not be left where all is to be received.
LEFT_BEHIND = 0.02
_SIZES = """
select
  sum(pg_relation_size(c.oid)) filter (where c.relkind in ('r', 't')) as heap, sum(pg_relation_size(c.oid)) filter (where c.relkind = 'i') as indexes
from pg_class c
where c.relnamespace = 'broker_private'::regnamespace
  or c.oid in (select t.reltoastrelid from pg_class t where t.relnamespace = 'broker_private'::regnamespace)
"""


class Scenario(ABC):
    """One line of the result.

    Attributes:
        part: where it stands in the report.
        name: what it is called there.
        clients: how many there are at a time.
    """

    part: str
    name: str
    clients: int

    @property
    def key(self) -> tuple[str, int]:
        """Name and clients."""
        return self.name, self.clients

    @property
    def base(self) -> tuple[str, int] | None:
        """The line that this one is a ratio of, or None for a line that is PostgreSQL's own."""
        return None

    @abstractmethod
    def measure(self, bench: Bench) -> Sample:
        """Return what one measurement found."""


class Compared(Scenario):
    """A line that is a ratio of another one's.

    Attributes:
        of: the key of that one; None if it is what others are ratios of.
    """

    of: tuple[str, int] | None

    @property
    def base(self) -> tuple[str, int] | None:
        return self.of


@dataclass(frozen=True)
class Load(Scenario):
    """What pgbench's clients do again and again, each time in a transaction of its own unless the script says more."""

    part: str
    name: str
    script: str
    count: str
    stock: Stock = NOTHING
    of: str | tuple[str, int] | None = None
    clients: int = 1
    body_bytes: int = BODY_BYTES
    # Sessions that hold a group each, the oldest in the queue, while the clients run.
    held_groups: int = 0
    # Whose rights the clients have, if not a superuser's.
    role: str = ""
    # Whether the measurement begins with a checkpoint: then the first change of each page is written whole.
    is_after_checkpoint: bool = False

    @property
    def base(self) -> tuple[str, int] | None:
        return (self.of, self.clients) if isinstance(self.of, str) else self.of

    def measure(self, bench: Bench) -> Sample:
        stock = self.stock
        while True:
            sample, before, after = bench.run(self, stock)
            if not stock.per_second or after > stock.beneath + (before - stock.beneath) * NEARLY_DRY:
                return sample
            stock = replace(stock, per_second=2 * stock.per_second)


@dataclass(frozen=True)
class OldSnapshot(Scenario):
    """Clients that send and receive while another session holds the snapshot that it took when they began.

    The rate is that of the last fifth of the time, and its ratio is to that of the first two seconds. A RECEIVE that finds nothing leaves a message more in
    the table: the part of them that did is taken off the end's rate.
    """

    part: str
    name: str
    script: str
    count: str
    stock: Stock
    clients: int
    seconds: int
    body_bytes: int = BODY_BYTES

    def measure(self, bench: Bench) -> Sample:
        bench.begin(self.stock, self.body_bytes)
        before = bench.value(self.count)
        with bench.connect("bench") as session, bench.metered() as used:
            session.execute("begin isolation level repeatable read")
            snapshot = number(session, "select txid_snapshot_xmin(txid_current_snapshot())")
            output = bench.pgbench(
                self.script, self.clients, WARM_UP_SECONDS + self.seconds, self.body_bytes, progress=True
            )
            if number(session, "select txid_snapshot_xmin(txid_current_snapshot())") != snapshot:
                raise BenchmarkError(f"{self.name}: the old snapshot was not held to the end")
        more = bench.value(self.count) - before
        bench.drop("bench")
        processed = int(figure(PROCESSED, output))
        done = processed - more
        rates = [float(rate) for rate in re.findall(r"progress: .* s, ([\d.]+) tps", output)]
        del rates[:WARM_UP_SECONDS]
        first, last = rates[:START_SECONDS], rates[-max(1, len(rates) // 5) :]
        sample = used.sample(
            done,
            done / processed * fmean(last),
            fmean(first),
            {"messages more in the queue at the end": more},
        )
        return replace(sample, curve=rates)


@dataclass(frozen=True)
class Growth(Scenario):
    """So many messages sent and received again by clients; the ratio is the second half's rate to the first's.

    The queue is empty at first and after each half. The notes say how large the broker's tables and indexes were then, and what the clients had left.
    """

    part: str
    name: str
    script: str
    stock: Stock
    clients: int
    messages: int
    body_bytes: int = BODY_BYTES

    def measure(self, bench: Bench) -> Sample:
        bench.begin(self.stock, self.body_bytes)
        notes: dict[str, float] = {}
        rates = []
        half = max(1, self.messages // (2 * BATCH * self.clients))
        with bench.metered() as used:
            for when in ("half-way", "at the end"):
                output = bench.pgbench(self.script, self.clients, 0, self.body_bytes, transactions=half)
                with bench.connect("bench") as session:
                    left = drain(session)
                    heap, indexes = session.execute(_SIZES.encode()).fetchone() or (0, 0)
                sent = half * BATCH * self.clients
                if left > LEFT_BEHIND * sent:
                    raise BenchmarkError(f"{self.name}: {left} of {sent} messages were not received")
                rates.append((1 - left / sent) * BATCH * figure(r"tps = ([\d.]+)", output))
                notes[f"messages left {when}"] = left
                notes[f"MiB of heap {when}"] = float(heap) / 2**20
                notes[f"MiB of indexes {when}"] = float(indexes) / 2**20
        bench.drop("bench")
        return used.sample(2 * half * BATCH * self.clients, rates[1], rates[0], notes)


@dataclass(frozen=True)
class Copy(Scenario):
    """Rows by COPY, so many a transaction, by one client."""

    part: str
    name: str
    rows: int
    body_bytes: int = BODY_BYTES
    clients: int = 1

    def measure(self, bench: Bench) -> Sample:
        bench.begin(NOTHING, self.body_bytes)
        row = struct.pack("!hi", 1, self.body_bytes) + body(self.body_bytes)
        data = b"PGCOPY\n\xff\r\n\0" + bytes(8) + row * self.rows + struct.pack("!h", -1)
        copied = 0
        with bench.connect("bench") as session, bench.metered() as used:
            started = time.perf_counter()
            while (seconds := time.perf_counter() - started) < bench.seconds:
                with session.cursor().copy("copy plain_rows (body) from stdin (format binary)") as copy:
                    copy.write(data)
                copied += self.rows
        bench.drop("bench")
        return used.sample(copied, copied / seconds)


@dataclass(frozen=True)
class Sync(Scenario):
    """A page written and fdatasync'ed beside the server's data, again and again: what a commit can't do without."""

    part: str
    name: str
    clients: int = 1

    def measure(self, bench: Bench) -> Sample:
        bench.dismiss()
        page = body(PAGE)
        with tempfile.TemporaryFile(dir=bench.server.data_directory.parent) as file:
            # As in WAL, the pages are there before.
            file.write(bytes(PAGE * DIALOGS))
            os.fsync(file.fileno())
            syncs = 0
            others = Others(lambda: processor_seconds(postmaster(bench.server)))
            started = time.perf_counter()
            while (seconds := time.perf_counter() - started) < bench.seconds:
                os.pwrite(file.fileno(), page, PAGE * (syncs % DIALOGS))
                os.fdatasync(file.fileno())
                syncs += 1
        return Sample(syncs / seconds, others=others.share())
