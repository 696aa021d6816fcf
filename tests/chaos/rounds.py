"""Rounds of faults under traffic, the drain after them, and what the ledgers say then."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from tests.chaos.faults import FAULTS, OF_THE_LINE, Victim
from tests.chaos.stage import a_stage
from tests.chaos.traffic import Account, Traffic, compare

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.brokers import Site
    from tests.chaos.lines import Line

_MOST_FAULTS_AT_ONCE = 3
_LONGEST_FAULT = 1.5
# However slow the machine: this long without a single message means that something hangs.
_STALLED_SECONDS = 180.0


class StalledError(AssertionError):
    """Messages wait, and none moves any more."""


@dataclass
class Report:
    """What was done to the two sites, and what became of the messages."""

    seed: int
    line: str = ""
    faults: Counter[str] = field(default_factory=Counter)
    rolled_back: int = 0
    there: Account = field(default_factory=Account)
    back: Account = field(default_factory=Account)
    seconds: float = 0.0

    @property
    def is_right(self) -> bool:
        return self.there.is_right and self.back.is_right


class Watch(Protocol):
    """Hears how far it is."""

    def __call__(self, *, rounds: int, received: int) -> None: ...


def play(
    directory: Path,
    *,
    rounds: int,
    messages: int,
    dialogs: int,
    seed: int,
    watch: Watch | None = None,
    settings: dict[str, str] | None = None,
) -> Report:
    """Let `messages` pass each way on `dialogs` dialogs, with up to three faults at once in each round.

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
            progress = _Progress(sites, traffic, watch)
            for number in range(rounds):
                traffic.allowance = -(-each * (number + 1) // rounds)
                harm.round()
                progress.wait_for("sent", traffic.allowance * dialogs, rounds=number + 1)
            progress.wait_for("received", each * dialogs, rounds=rounds)
            _end_dialogs(sites, progress)
        report.rolled_back = traffic.rolled_back
        if traffic.failures:
            raise traffic.failures[0]
        left, right = sites
        report.there, report.back = compare(left, right), compare(right, left)
    report.seconds = time.monotonic() - begun
    return report


class _Harm:
    """Chooses faults and where they strike: each once, in any order, before one comes again."""

    def __init__(
        self,
        sites: tuple[Site, Site],
        line: Line,
        traffic: Traffic,
        chance: random.Random,
        counted: Counter[str],
    ) -> None:
        self._victims = [Victim(site, line, traffic, chance) for site in sites]
        self._chance = chance
        self._counted = counted
        self._to_come: list[tuple[str, Victim]] = []

    def round(self) -> None:
        """Let some faults begin and be healed, one after another, each in a time of its own."""
        pause = threading.Event()
        healing: list[Callable[[], None]] = []
        for _ in range(self._chance.randint(1, _MOST_FAULTS_AT_ONCE)):
            name, victim = self._next()
            pause.wait(self._chance.uniform(0, _LONGEST_FAULT / 2))
            healing.append(FAULTS[name](victim))
            self._counted[name] += 1
        for heal in healing:
            pause.wait(self._chance.uniform(0, _LONGEST_FAULT))
            heal()

    def _next(self) -> tuple[str, Victim]:
        if not self._to_come:
            for name in FAULTS:
                victims = self._victims[:1] if name in OF_THE_LINE else self._victims
                self._to_come += [(name, victim) for victim in victims]
            self._chance.shuffle(self._to_come)
        return self._to_come.pop()


class _Progress:
    """Looks into the ledgers until they have what is waited for."""

    def __init__(self, sites: tuple[Site, Site], traffic: Traffic, watch: Watch | None) -> None:
        self._sites = sites
        self._traffic = traffic
        self._watch = watch

    def wait_for(self, ledger: str, count: int, *, rounds: int) -> None:
        self.until(lambda: self._counts(ledger, count), rounds=rounds)

    def until(self, condition: Callable[[], bool], *, rounds: int = 0) -> None:
        pause, last, moved_at = threading.Event(), -1, time.monotonic()
        for site in self._sites:
            site.reconnect()
        while not condition():
            if self._traffic.failures:
                raise self._traffic.failures[0]
            received = sum(_count(site, "received") for site in self._sites)
            if received != last:
                last, moved_at = received, time.monotonic()
            elif time.monotonic() - moved_at > _STALLED_SECONDS:
                raise StalledError(self._what_waits())
            if self._watch is not None and rounds:
                self._watch(rounds=rounds, received=received)
            pause.wait(0.1)

    def _counts(self, ledger: str, count: int) -> bool:
        return all(_count(site, ledger) >= count for site in self._sites)

    def _what_waits(self) -> str:
        waiting = "select count(*), transmission_status from broker.transmission_queue group by 2"
        return (
            f"nothing moves; in the transmission queues: {[site.psql.rows(waiting) for site in self._sites]}"
        )


def _end_dialogs(sites: tuple[Site, Site], progress: _Progress) -> None:
    """End every dialog where it was begun, and wait until the other side has heard of it."""
    for site in sites:
        site.psql.rows(
            "select broker.end_conversation(conversation_handle) from broker.conversation_endpoints where is_initiator"
        )
    open_ = "select from broker.conversation_endpoints where state <> 'CD'"
    waiting = "select from broker.transmission_queue"
    progress.until(lambda: not any(site.psql.rows(query) for site in sites for query in (open_, waiting)))


def _count(site: Site, ledger: str) -> int:
    count: int = site.psql.value(f"select count(*) from {ledger}")
    return count
