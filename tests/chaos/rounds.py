"""Rounds of faults under traffic, the drain after them, and what the ledgers say then."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from tests.chaos.faults import FAULTS, OF_THE_LINE, Victim
from tests.chaos.patience import Patience
from tests.chaos.stage import SEALED, a_stage
from tests.chaos.traffic import Account, Traffic, compare

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.brokers import Site
    from tests.chaos.lines import Line

_MOST_FAULTS_AT_ONCE = 3
_LONGEST_FAULT = 1.5
# Seconds for which messages are still sent after that: a server takes as long to start.
_MARGIN = 1.0
# So many messages wait in a queue that was filled before it is read again, unless the rounds are over.
BACKLOG = 200
_WAITING = "select count(*) from broker.queue_messages"
# That somebody stands behind the far service is known of those that left with full security.
_SEALED = (
    "select count(*) from broker.conversation_endpoints"
    " where is_initiator and far_principal_id is not null and far_service like %s"
)


@dataclass
class Report:
    """What was done to the two sites, and what became of the messages.

    Attributes:
        sealed: Dialogs with full security.
        backlog: The most messages that waited in a queue whose readers were stopped.
    """

    seed: int
    line: str = ""
    faults: Counter[str] = field(default_factory=Counter)
    rolled_back: int = 0
    sealed: int = 0
    backlog: int = 0
    there: Account = field(default_factory=Account)
    back: Account = field(default_factory=Account)
    seconds: float = 0.0

    @property
    def is_right(self) -> bool:
        return self.there.is_right and self.back.is_right

    def add(self, other: Report) -> None:
        """Add what a further run came to."""
        self.line = other.line
        self.faults += other.faults
        self.rolled_back += other.rolled_back
        self.sealed += other.sealed
        self.backlog = max(self.backlog, other.backlog)
        self.there.add(other.there)
        self.back.add(other.back)
        self.seconds += other.seconds


def play(
    directory: Path,
    *,
    rounds: int,
    messages: int,
    dialogs: int,
    seed: int,
    watch: Callable[[int, int], None] | None = None,
    settings: dict[str, str] | None = None,
) -> Report:
    """Let `messages` pass each way on `dialogs` dialogs, with up to three faults at once in each round.

    `watch` hears how many rounds have begun, and how many messages were received.

    Raises:
        StalledError: Messages wait, and none moves.
        Exception: What a sender's or a reader's session met that no fault explains.
    """
    report, chance, begun = Report(seed), random.Random(seed), time.monotonic()
    each = -(-messages // dialogs)
    with a_stage(directory, settings or {}) as (sites, line):
        report.line = line.kind
        for site in sites:
            site.start_worker()
        with Traffic(sites, dialogs, seed) as traffic:
            harm = _Harm(sites, line, traffic, chance, report.faults)
            patience = Patience(sites, traffic)
            # Who did not begin a dialog sends on it once he has received of it: not for long, if readers are stopped before.
            traffic.allow(1)
            patience.wait_for("received", dialogs)
            for number in range(rounds):
                allowed = -(-each * (number + 1) // rounds)
                harm.round(allowed)
                patience.watch = partial(watch, number + 1) if watch is not None else None
                patience.wait_for("sent", allowed * dialogs)
                report.backlog = max(report.backlog, _read_again(traffic, patience, BACKLOG))
            _read_again(traffic, patience, 0)
            patience.wait_for("received", each * dialogs)
            report.sealed = sum(site.psql.value(_SEALED, f"%{SEALED}") for site in sites)
            patience.end_dialogs()
        report.rolled_back = traffic.rolled_back
        if traffic.failures:
            raise traffic.failures[0]
        left, right = sites
        report.there, report.back = compare(left, right), compare(right, left)
    report.seconds = time.monotonic() - begun
    return report


def _read_again(traffic: Traffic, patience: Patience, backlog: int) -> int:
    """Let stopped readers go on where so many messages wait, once all have crossed; return the most that do."""
    most = 0
    if traffic.stopped:
        patience.until_nothing_waits()
    for site in traffic.sites:
        if site.name in traffic.stopped:
            waiting = site.psql.value(_WAITING)
            most = max(most, waiting)
            if waiting >= backlog:
                traffic.stopped.discard(site.name)
    return most


class _Harm:
    """Chooses faults and where they strike: each once, in any order, before it strikes the other site, and then anew."""

    def __init__(
        self,
        sites: tuple[Site, Site],
        line: Line,
        traffic: Traffic,
        chance: random.Random,
        counted: Counter[str],
    ) -> None:
        # Their own, so that what a line asks it for doesn't change which faults come.
        disturbance = random.Random(chance.random())
        self._victims = [Victim(site, line, traffic, disturbance) for site in sites]
        self._traffic = traffic
        self._chance = chance
        self._counted = counted
        self._to_come: list[tuple[str, Victim]] = []

    def round(self, allowed: int) -> None:
        """Let some faults begin and be healed, one after another, each in a time of its own, and messages pass meanwhile."""
        chosen = [self._next() for _ in range(self._chance.randint(1, _MOST_FAULTS_AT_ONCE))]
        before = [self._chance.uniform(0, _LONGEST_FAULT / 2) for _ in chosen]
        after = [self._chance.uniform(0, _LONGEST_FAULT) for _ in chosen]
        self._traffic.allow(allowed, sum(before) + sum(after) + _MARGIN)
        pause = threading.Event()
        healing: list[Callable[[], None]] = []
        for (name, victim), seconds in zip(chosen, before, strict=True):
            pause.wait(seconds)
            healing.append(FAULTS[name](victim))
            self._counted[name] += 1
        for heal, seconds in zip(healing, after, strict=True):
            pause.wait(seconds)
            heal()

    def _next(self) -> tuple[str, Victim]:
        if not self._to_come:
            first, second = [], []
            for name in FAULTS:
                one, other = self._chance.sample(self._victims, 2)
                first.append((name, one))
                if name not in OF_THE_LINE:
                    second.append((name, other))
            for each in (first, second):
                self._chance.shuffle(each)
            self._to_come = second + first
        return self._to_come.pop()
