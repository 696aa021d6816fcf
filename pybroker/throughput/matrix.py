"""Which cells there are, and what the whitepaper reports of them."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# Table 1: 264 cells, and as many again with the second version.
INITIATORS = (1, 2, 3)
THREADS = (1, 2, 3, 4, 5, 10, 15, 20, 30, 40, 50)
RATIOS = (1, 150)
PAYLOADS = (100, 1024, 4096, 8192)

# What `--quick` takes instead: threads, payloads, seconds of warm-up and of measurement, and repetitions.
# 36 cells of three initiators and two ratios, a quarter of a minute each with everything.
QUICK = ("1,5,15", "100,4096", 1.0, 2.0, 1)

# Messages a second at the target with so many initiators, by figures 2, 3 and 4.
HEADLINES = {1: 5_000, 2: 12_000, 3: 18_000}
# "Almost 19,000", on four servers of 8 cores each.
HEADLINE_PER_CORE = 600
# Figure 5: the largest gain of 150 over 1, and from how many threads in all it was worth anything.
GAIN_PERCENT, GAIN_FROM_THREADS = 315, 30


class Series(msgspec.Struct, frozen=True):
    """How a series of cells differs from what the whitepaper did.

    Attributes:
        title: What the report says.
        rows: The checklist's rows that it answers.
        endpoint: The endpoints' ENCRYPTION.
        secure: Whether dialogs are ENCRYPTION = ON, with a binding.
        batch: Messages in a transaction.
        dialogs: `own`: each thread has one; `shared`: all threads of an initiator share one; `each`: each
            message has one; `ended`: so, and both sides end it; `rotating`: each thread has as many as the
            ratio, and uses one after the other.
        warm: Whether one message was sent on each dialog beforehand.
        top: RECEIVE TOP.
        timeout: Seconds that RECEIVE waits.
        readers: Activated readers a core of the target.
        is_whole_core: Whether a part of a core has as many readers as a whole one.
        pause: Seconds that a thread rests after a message.
        is_deferred: Whether activation is off until everything has been sent.
        is_from_start: Whether the measured seconds begin with the load, without any before them.
        is_limited: Whether the containers' processor quotas are in force.
    """

    title: str = "as in the whitepaper"
    rows: tuple[int, ...] = (175, 176, 178)
    endpoint: Literal["DISABLED", "REQUIRED"] = "DISABLED"
    secure: bool = True
    batch: int = 1
    dialogs: Literal["own", "shared", "each", "ended", "rotating"] = "own"
    warm: bool = True
    top: int = 10_000
    timeout: float = 3.0
    readers: int = 2
    is_whole_core: bool = False
    pause: float = 0.0
    is_deferred: bool = False
    is_from_start: bool = False
    is_limited: bool = True

    def readers_on(self, cores: float) -> int:
        """Return how many readers a target with so many processors has, one at least."""
        # A quota is the sum of two that are rounded to thousandths.
        wanted = round(self.readers * (max(1.0, cores) if self.is_whole_core else cores), 3)
        return max(1, math.floor(wanted))


SERIES = {
    "whitepaper": Series(),
    "unlimited": Series(title="containers without processor quotas", is_limited=False),
    "tls": Series(title="endpoints with TLS", endpoint="REQUIRED"),
    "plain": Series(title="dialogs without security", secure=False),
    "batches": Series(title="100 messages a transaction", batch=100),
    "deferred": Series(title="activation off while sending, then on", is_deferred=True),
    "deferred-batches": Series(
        title="activation off while sending 100 a transaction, then on", batch=100, is_deferred=True
    ),
    "one-dialog": Series(title="one dialog for all threads", rows=(171,), dialogs="shared"),
    "dialog-a-message": Series(title="a dialog for each message", rows=(171,), dialogs="each"),
    "short-conversations": Series(title="conversations of one message", rows=(171,), dialogs="ended"),
    "top-1": Series(title="RECEIVE TOP (1)", rows=(172,), top=1),
    "sparse": Series(title="a message every 0.5 s, WAITFOR 3 s", rows=(173,), pause=0.5),
    "sparse-no-wait": Series(
        title="a message every 0.5 s, RECEIVE without WAITFOR", rows=(173,), pause=0.5, timeout=0.0
    ),
    "1-reader": Series(title="1 reader a core", rows=(174,), readers=1, is_whole_core=True),
    "2-readers": Series(title="2 readers a core", rows=(174,), is_whole_core=True),
    "4-readers": Series(title="4 readers a core", rows=(174,), readers=4, is_whole_core=True),
    # A load before the measured seconds would warm the cold ones up.
    "warm": Series(title="many dialogs, warmed up", rows=(177,), dialogs="rotating", is_from_start=True),
    "cold": Series(
        title="many dialogs, not warmed up", rows=(177,), dialogs="rotating", warm=False, is_from_start=True
    ),
}
# What the five recommendations, the warm-up and the row of one dialog a message are measured by.
RECOMMENDATIONS = (
    "one-dialog", "dialog-a-message", "short-conversations", "top-1", "sparse", "sparse-no-wait",
    "1-reader", "2-readers", "4-readers", "warm", "cold",
)  # fmt: skip


class Cell(msgspec.Struct, frozen=True):
    """One test.

    Attributes:
        series: Its name in SERIES.
        version: PostgreSQL's major, on all servers; 0 where the servers are the user's own.
        initiators: Initiator servers.
        threads: Test client threads for each initiator.
        ratio: Dialogs that were opened for each that is used.
        payload: Bytes of a message.
        depth: Messages that a deferred cell has sent before activation is on; 0: as many as the time allows.
    """

    series: str
    version: int
    initiators: int
    threads: int
    ratio: int
    payload: int
    depth: int = 0

    @property
    def name(self) -> str:
        """A name that is good for a file."""
        deep = f"-{self.depth}-deep" if self.depth else ""
        load = f"{self.initiators}x{self.threads}-{self.ratio}-{self.payload}"
        return f"{self.series}-{self.version}-{load}{deep}"

    @property
    def how(self) -> Series:
        """How it is run."""
        return SERIES[self.series]


class Timing(msgspec.Struct, frozen=True):
    """How long a cell takes, in seconds.

    Attributes:
        warm_up: Load before the measurement at least; longer while the target gets further readers.
        measured: The measurement.
    """

    warm_up: float = 6.0
    measured: float = 10.0


class Effort(msgspec.Struct, frozen=True):
    """How often a cell is run.

    Attributes:
        repetitions: At most.
        precision: A cell whose interval is narrower than this part of its mean, on each side, is done.
    """

    repetitions: int = 5
    precision: float = 0.05


def cells(
    *,
    series: Iterable[str] = ("whitepaper",),
    versions: Iterable[int] = (18,),
    initiators: Sequence[int] = INITIATORS,
    threads: Sequence[int] = THREADS,
    ratios: Sequence[int] = RATIOS,
    payloads: Sequence[int] = PAYLOADS,
    depth: int = 0,
) -> list[Cell]:
    """Return the cells, those that share servers one after the other; only deferred ones have the depth."""
    found = [
        Cell(name, version, initiator, thread, ratio, payload, depth if SERIES[name].is_deferred else 0)
        for version, initiator, name in itertools.product(versions, initiators, series)
        for ratio, payload, thread in itertools.product(ratios, payloads, threads)
    ]
    return sorted(found, key=lambda cell: (cell.version, cell.how.endpoint))


def recommendations(*, versions: Iterable[int] = (18,)) -> list[Cell]:
    """Return the cells behind the report's answers to the whitepaper's recommendations."""
    sparse = {"sparse", "sparse-no-wait"}
    ratio = {"warm": 150, "cold": 150}
    found = [
        Cell(name, version, 1, 2 if name in sparse else 10, ratio.get(name, 1), 1024)
        for version in versions
        for name in ("whitepaper", *RECOMMENDATIONS)
    ]
    return [*found, *(Cell("whitepaper", version, 1, 10, 150, 1024) for version in versions)]
