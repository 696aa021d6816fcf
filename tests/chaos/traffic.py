"""Sessions that send and receive whatever happens, and the ledgers that they keep of it."""

from __future__ import annotations

import contextlib
import random
import threading
import time
import zlib
from collections import defaultdict
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import psycopg

from tests.chaos.stage import NAMES, QUEUE, SEALED

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.brokers import Site
    from tests.shop import Session

SENDERS = READERS = 2
_BATCH = 20
_QUEUE_IS_OFF = "S9617"
_DIALOG_IS_OVER = ("S8426", "S8429")
# Classes of SQLSTATE by which a session learns that its connection or its server goes.
_LOST = ("08", "57")
# Now and then a body that crosses in pieces.
_LARGE_BYTES, _LARGE_ONE_IN = 600_000, 3000
ROLLED_BACK = 0.03

_SEND = "select broker.send_batch(%s, 'note', %s::bytea[])"
_BOOK_SENT = """
insert into sent (dialog, number, digest)
select %s, %s + b.place - 1, md5(b.body) from unnest(%s::bytea[]) with ordinality as b (body, place)
"""
_RECEIVE_AND_BOOK = f"""
with arrived as materialized (
  select conversation_handle, message_type_name, message_body, message_sequence_number
  from broker.receive('{QUEUE}', top => 50, timeout => '200 ms')
),
notes as materialized (
  select conversation_handle, split_part(convert_from(substr(message_body, 1, 60), 'UTF8'), ':', 1) as dialog,
    split_part(convert_from(substr(message_body, 1, 60), 'UTF8'), ':', 2)::integer as number, md5(message_body) as digest
  from arrived where message_type_name = 'note' order by message_sequence_number
),
met as (
  insert into dialogs (name, handle) select distinct dialog, conversation_handle from notes on conflict do nothing
),
booked as (
  insert into received (dialog, number, digest) select dialog, number, digest from notes
),
failures as (
  insert into failed (handle, body)
  select conversation_handle, message_body from arrived where message_type_name like '%%/Error'
)
select conversation_handle, broker.end_conversation(conversation_handle) from arrived where message_type_name like '%%/E%%'
"""


class Traffic:
    """All the sessions of both sides.

    Attributes:
        failures: What ended a session for good: nothing should.
        rollback: By site, how likely a reader rolls back what it has received and booked.
        quiet: Dialogs on which nothing is sent for now.
        stopped: Sites at which nothing is received for now.
    """

    def __init__(
        self, sites: tuple[Site, Site], dialogs: int, seed: int, *, survives_errors: bool = False
    ) -> None:
        self.sites = sites
        self._allowed = (0, 0)
        self._release = (0.0, 0.0)
        self.failures: list[BaseException] = []
        self.rollback = dict.fromkeys(NAMES, ROLLED_BACK)
        self.rolled_back = 0
        self.quiet: set[str] = set()
        self.stopped: set[str] = set()
        self._survives_errors = survives_errors
        self._dialogs = dialogs
        self._seed = seed
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Traffic:
        self.begin(self._dialogs)
        jobs: list[Callable[[Site, int], None]] = [self._send] * SENDERS + [self._read] * READERS
        for site in self.sites:
            for place, job in enumerate(jobs):
                body = threading.Thread(target=self._guarded, args=(job, site, place % SENDERS))
                body.start()
                self._threads.append(body)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    @property
    def allowance(self) -> int:
        """How many messages each direction of a dialog may have sent by now."""
        before, after = self._allowed
        begun, seconds = self._release
        part = min(1.0, (time.monotonic() - begun) / seconds) if seconds else 1.0
        return before + int((after - before) * part)

    def allow(self, messages: int, seconds: float = 0.0) -> None:
        """Let each direction of a dialog have sent so many in the end; evenly over some seconds, or at once."""
        self._allowed = self.allowance, messages
        self._release = time.monotonic(), seconds

    def begin(self, dialogs: int) -> None:
        """Begin so many dialogs, half of them at each side."""
        for number, site in enumerate(self.sites):
            _begin(site, self.sites[1 - number], dialogs // 2)

    def _guarded(self, job: Callable[[Site, int], None], site: Site, place: int) -> None:
        try:
            job(site, place)
        except BaseException as error:
            self.failures.append(error)

    def _send(self, site: Site, place: int) -> None:
        """Send on this sender's part of the dialogs, each message as soon as it is allowed."""
        chance = random.Random(f"{self._seed} {site.name} sends {place}")
        survivor = Survivor(site, self._stop)
        known: dict[str, Any] = {}
        numbers: dict[str, int] = {}
        over: set[str] = set()

        def look(session: Session) -> None:
            known.update(
                (name, handle)
                for name, handle in session.rows("select name, handle from dialogs")
                if zlib.crc32(name.encode()) % SENDERS == place
            )
            counted = session.rows("select dialog, max(number) + 1 from sent group by dialog")
            numbers.update(dict.fromkeys(known, 0) | {name: n for name, n in counted if name in known})

        def send(session: Session, name: str, count: int, *, is_kept: bool) -> None:
            first = numbers[name]
            bodies = [_body(name, first + n, chance) for n in range(count)]
            session.rows("begin")
            session.rows(_BOOK_SENT, name, first, bodies)
            try:
                session.rows(_SEND, known[name], bodies)
            except psycopg.Error as error:
                if not self._survives_errors or error.sqlstate not in _DIALOG_IS_OVER:
                    raise
                session.rows("rollback")
                over.add(name)
                return
            session.rows("commit" if is_kept else "rollback")
            if is_kept:
                numbers[name] = first + count

        survivor.run(look)
        while not self._stop.is_set():
            allowance = self.allowance
            due = [name for name in known.keys() - over - self.quiet if numbers[name] < allowance]
            if not due:
                self._stop.wait(0.05)
                survivor.run(look)
                continue
            name = chance.choice(sorted(due))
            count = min(chance.randint(1, _BATCH), allowance - numbers[name])
            is_kept = chance.random() >= ROLLED_BACK
            # Nobody knows whether what a crash cut off was committed: the ledger does.
            if not survivor.attempt(lambda s, n=name, c=count, k=is_kept: send(s, n, c, is_kept=k)):
                survivor.run(look)
        survivor.close()

    def _read(self, site: Site, place: int) -> None:
        chance = random.Random(f"{self._seed} {site.name} reads {place}")
        survivor = Survivor(site, self._stop)

        def read(session: Session) -> None:
            session.rows("begin")
            try:
                session.rows(_RECEIVE_AND_BOOK)
            except psycopg.Error as error:
                if error.sqlstate != _QUEUE_IS_OFF:
                    raise
                session.rows("rollback")
                self._stop.wait(0.05)
                return
            is_kept = chance.random() >= self.rollback[site.name]
            session.rows("commit" if is_kept else "rollback")
            self.rolled_back += not is_kept

        while not self._stop.is_set():
            if site.name in self.stopped:
                self._stop.wait(0.05)
            else:
                survivor.attempt(read)
        survivor.close()


class Survivor:
    """A session that comes back after its server crashed."""

    def __init__(self, site: Site, stop: threading.Event) -> None:
        self._site = site
        self._stop = stop
        self._session: Session | None = None

    def attempt(self, work: Callable[[Session], None]) -> bool:
        """Do it; return False if the session was lost meanwhile, and whether it was done nobody knows."""
        try:
            if self._session is None:
                self._session = self._site.session()
            work(self._session)
        except psycopg.OperationalError as error:
            # Deadlocks are of this class too, and no fault explains one.
            if error.sqlstate is not None and error.sqlstate[:2] not in _LOST:
                raise
            self.close()
            self._stop.wait(0.05)
            return False
        return True

    def run(self, work: Callable[[Session], None]) -> None:
        """Do it again until it is done, or the traffic ends."""
        while not self.attempt(work) and not self._stop.is_set():
            pass

    def close(self) -> None:
        if self._session is not None:
            with contextlib.suppress(psycopg.Error):
                self._session.connection.close()
        self._session = None


@dataclass
class Account:
    """What two ledgers say of one direction."""

    sent: int = 0
    received: int = 0
    lost: int = 0
    twice: int = 0
    unknown: int = 0
    changed: int = 0
    out_of_order: int = 0
    dialogs: set[str] = field(default_factory=set)

    @property
    def is_right(self) -> bool:
        return not (self.lost or self.twice or self.unknown or self.changed or self.out_of_order)

    def add(self, other: Account) -> None:
        """Add what another pair of ledgers says."""
        for each in fields(self):
            if each.name == "dialogs":
                self.dialogs |= other.dialogs
            else:
                setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))


def compare(sender: Site, receiver: Site) -> Account:
    """Compare what one side's ledger says was sent with what the other's says was received."""
    account = Account()
    sent = {
        (name, n): digest for name, n, digest in sender.psql.rows("select dialog, number, digest from sent")
    }
    seen: set[tuple[str, int]] = set()
    last: dict[str, int] = defaultdict(lambda: -1)
    for name, number, digest in receiver.psql.rows(
        "select dialog, number, digest from received order by place"
    ):
        account.received += 1
        account.dialogs.add(name)
        account.twice += (name, number) in seen
        account.unknown += (name, number) not in sent
        account.changed += sent.get((name, number), digest) != digest
        account.out_of_order += number <= last[name]
        last[name] = max(last[name], number)
        seen.add((name, number))
    account.sent = len(sent)
    account.lost = len(sent.keys() - seen)
    return account


def _begin(site: Site, far: Site, count: int) -> None:
    """Begin dialogs, every second sealed; a dialog's name is the initiator's handle, and stands in each of its messages."""
    site.psql.rows(
        "insert into dialogs (name, handle) select b.handle, b.handle from generate_series(1, %s) n,"
        " lateral (select case when n %% 2 = 0 then %s else '' end as kind) k, lateral ("
        "select broker.begin_dialog(%s || k.kind, %s || k.kind, 'talk', encryption => n %% 2 = 0) as handle) b",
        count,
        SEALED,
        f"//{site.name}",
        f"//{far.name}",
    )


def _body(name: str, number: int, chance: random.Random) -> bytes:
    size = _LARGE_BYTES if chance.randrange(_LARGE_ONE_IN) == 0 else chance.randint(0, 200)
    return f"{name}:{number}:".encode() + b"x" * size
