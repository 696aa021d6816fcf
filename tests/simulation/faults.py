"""What goes wrong in a run: a list that the seed makes, of which any part can be left out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.simulation.sites import SHOP, WAREHOUSE

if TYPE_CHECKING:
    import random

# At whose statements a worker or a session dies: what moves messages, and whatever comes first.
_AT = (
    None, None, "COMMIT", "COMMIT", "COMMIT", "take", "deliver", "deliver_one", "deliver_plain", "acknowledge",
    "acknowledge_one", "broker_instance", "transmission_work", "dialogs_to_ask",
)  # fmt: skip
WITH_WORKER, WITHOUT_WORKER = "with", "without"
_AT_OF_SESSIONS = (None, "COMMIT", "COMMIT", "send", "receive", "end_conversation", "begin_dialog")


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong.

    Attributes:
        at: not before so many seconds.
        kind: what.
        site: where.
        label: of who dies at a statement: which.
        is_after: whether the statement was executed.
        seconds: for how long.
        notice: after how many seconds each end notices; None: never.
        lost: for how many seconds what is on the way still comes.
        hours: by which a clock jumps.
        after: of a database that goes back: how many seconds it goes back.
        lingers: of a worker that dies at the COMMIT of a change, or of the one in `label`: after how many seconds its
            server executes it all the same.
    """

    at: float
    kind: str
    site: str
    label: str | None = None
    is_after: bool = False
    seconds: float = 0.0
    notice: tuple[float | None, float | None] = (0.0, 0.0)
    lost: tuple[float, float] = (0.0, 0.0)
    hours: int = 0
    after: float = 0.0
    lingers: float = 0.0

    @property
    def over_at(self) -> float:
        """When it is over, if it struck when it could."""
        return self.at + self.after + self.seconds + self.lingers

    def __str__(self) -> str:
        told = f"{self.at:.2f} s: {self.kind} {self.site}"
        if self.label or self.kind in ("worker dies", "session dies"):
            what = f"the COMMIT of {self.label or 'a change'}" if self.lingers else self.label
            told += f" {'after' if self.is_after else 'before'} {what or 'the next statement'}"
        if self.hours:
            told += f" jumps by {self.hours} h"
        if self.after:
            told += f" goes back by {self.after:.2f} s, {self.label} its worker"
        if self.lingers:
            told += f", which is executed after {self.lingers:.2f} s"
        if self.seconds:
            told += f", for {self.seconds:.2f} s"
        if self.kind in ("line cut", "worker dies"):
            told += f", noticed after {self.notice}, carried for {self.lost}"
        return told


def faults_of(random: random.Random, busy: float) -> list[Fault]:
    """Return what goes wrong within so many seconds, in its order."""
    made = [_one(random, random.uniform(0.5, busy)) for _ in range(random.randint(1, 6))]
    return sorted(made, key=lambda fault: fault.at)


def restore_of(random: random.Random, busy: float) -> Fault:
    """Return that a database goes back to what it was a while ago, as if a backup were restored."""
    return Fault(
        random.uniform(0.2, busy / 2),
        "restored",
        random.choice((SHOP, WAREHOUSE)),
        # A worker beside its server is started anew with it; another one only loses its sessions.
        label=random.choice((WITH_WORKER, WITHOUT_WORKER)),
        seconds=random.choice((0.05, 0.5, 2.0, 5.0)),
        after=random.uniform(0.1, busy / 2),
    )


def lingering(random: random.Random, busy: float) -> Fault:
    """Return that a worker dies at the COMMIT of what it has stored, which its server executes later than the next one's."""
    return Fault(
        random.uniform(0.2, busy / 2),
        "worker dies",
        random.choice((SHOP, WAREHOUSE)),
        random.choice((None, "deliver_one", "deliver_plain", "acknowledge_one")),
        seconds=random.choice((0.05, 0.5)),
        lingers=random.choice((2.0, 4.0, 6.0)),
    )


def _one(random: random.Random, at: float) -> Fault:
    site = random.choice((SHOP, WAREHOUSE))
    kind = random.choice((
        "worker dies", "worker dies", "worker dies", "line cut", "line cut", "line cut",
        "session dies", "session terminated", "parted", "server away", "slow network", "slow server",
        "clock of the worker", "clock of the server",
    ))  # fmt: skip
    notices = random.choice((0.0, 0.01, 0.3, 2.0, None)), random.choice((0.0, 0.01, 0.3, 2.0, None))
    if notices == (None, None):
        notices = (0.0, None)
    lost = random.choice((0.0, 0.0, 0.01, 0.2, 1.5)), random.choice((0.0, 0.0, 0.01, 0.2, 1.5))
    is_after = random.random() < 0.5
    seconds = random.choice((0.05, 0.5, 2.0, 5.0))
    match kind:
        case "worker dies":
            label = random.choice(_AT)
            return Fault(at, kind, site, label, is_after, seconds, (notices[0], 0.0), lost)
        case "session dies":
            return Fault(at, kind, site, random.choice(_AT_OF_SESSIONS), is_after, seconds)
        case "line cut":
            return Fault(at, kind, site, notice=notices, lost=lost)
        case "session terminated":
            return Fault(at, kind, site)
        case "clock of the worker" | "clock of the server":
            return Fault(at, kind, site, hours=random.choice((-1, 1)))
        case _:
            return Fault(at, kind, site, seconds=seconds)
