"""The acceptance application: three initiators and a target, and ledgers of the user's that tell what became of each message.

A ledger's row is written in the SEND's or in the RECEIVE's own transaction, by an ordinary role, so what the ledgers say does not
depend on anything that the broker says of itself. Both sides receive by activation.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Protocol

import psycopg

from tests.shop import until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

TARGET_SERVICE = "//ledgers/target"
_DIALOGS = 4
# However slow the machine: this long without a single message means that something hangs.
_STALLED_SECONDS = 300.0

_COMMON = """
select broker.create_message_type('request'), broker.create_message_type('reply');
select broker.create_contract('asking', sent_by_initiator => '{request}', sent_by_target => '{reply}');
create table sent (place bigint generated always as identity, dialog text, number integer);
create table received (place bigint generated always as identity, dialog text, number integer);
create table failures (body text);
create procedure read_queue(queue text, is_target boolean) language plpgsql as $$
declare
  conversation_group uuid;
  message broker.message;
  body text;
begin
  -- A worker that stops in order waits for its procedures; under load one that goes on until nothing comes would never end.
  for n in 1 .. 20 loop
    conversation_group := broker.get_conversation_group(queue, timeout => '500 ms');
    if conversation_group is null then
      rollback;
      exit;
    end if;
    for message in select r.* from broker.receive(queue, top => 50, conversation_group_id => conversation_group) r loop
      if message.message_type_name in ('request', 'reply') then
        body := convert_from(message.message_body, 'UTF8');
        insert into received (dialog, number) values (split_part(body, ':', 1), split_part(body, ':', 2)::integer);
        if is_target then
          insert into sent (dialog, number) values (split_part(body, ':', 1), split_part(body, ':', 2)::integer);
          perform broker.send(message.conversation_handle, 'reply', body);
        end if;
      else
        if message.message_type_name like '%/Error' then
          insert into failures values (convert_from(message.message_body, 'UTF8'));
        end if;
        perform broker.end_conversation(message.conversation_handle);
      end if;
    end loop;
    commit;
  end loop;
end $$;
"""
_TARGET = (
    _COMMON
    + """
create procedure book() language plpgsql as $$ begin call read_queue('requests', true); end $$;
select broker.create_queue('requests', activation_procedure => 'book', max_queue_readers => 3, execute_as => 'SELF');
select broker.create_service('//ledgers/target', 'requests', '{asking}');
select broker.grant('SEND', 'SERVICE', '//ledgers/target', 'public');
"""
)
_INITIATOR = (
    _COMMON
    + """
create table dialogs (name text primary key, handle uuid not null);
create procedure record() language plpgsql as $$ begin call read_queue('replies', false); end $$;
select broker.create_queue('replies', activation_procedure => 'record', max_queue_readers => 2, execute_as => 'SELF');
"""
)
_BEGIN = """
insert into dialogs
select %(name)s || '-' || n, broker.begin_dialog(%(service)s, '//ledgers/target', 'asking', encryption => false)
from generate_series(1, %(count)s) n
"""
# The next numbers come from the ledger: nobody else knows whether a commit that was cut off took place. With some dozens on their
# way it waits, so that a slow machine is not buried.
_SEND = """
with next as (
  select d.handle, d.name, coalesce((select max(s.number) from sent s where s.dialog = d.name), 0) + k as number
  from dialogs d cross join generate_series(1, %(count)s) k
  where d.name = %(name)s and (select count(*) from sent) - (select count(*) from received) < 30
),
booked as (insert into sent (dialog, number) select name, number from next order by number)
select broker.send(handle, 'request', name || ':' || number) from (select * from next order by number) n
"""


class Site(Protocol):
    """A database of the application, wherever it is; a connection to it may be refused for a while."""

    name: str

    def connect(self) -> psycopg.Connection[Any]:
        """Open a session as the ordinary role that owns the database."""

    def log(self) -> str:
        """Return the last lines of the worker's log."""


def service_of(initiator: Site) -> str:
    return f"//ledgers/{initiator.name}"


def define(initiators: Sequence[Site], target: Site) -> None:
    """Create the application's objects; routes are whoever's who knows the addresses."""
    with target.connect() as session:
        session.execute(_TARGET.encode())
    for initiator in initiators:
        with initiator.connect() as session:
            session.execute(_INITIATOR.encode())
            session.execute("select broker.create_service(%s, 'replies')", (service_of(initiator),))


class Load:
    """Dialogs of every initiator on which messages are sent, until the end of the block; then it counts.

    Raises:
        AssertionError: A message was lost, came twice or out of order, or nothing moves any more.
    """

    def __init__(self, initiators: Sequence[Site], target: Site, *, batch: int = 3) -> None:
        self._initiators = initiators
        self._target = target
        self._batch = batch
        self._name = f"{random.getrandbits(32):08x}"
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._failures: list[BaseException] = []
        self._held: set[str] = set()
        self._idle: set[str] = set()
        self._sessions: dict[str, psycopg.Connection[Any]] = {}

    def __enter__(self) -> Load:
        for initiator in self._initiators:
            parameters = {
                "name": self._prefix(initiator),
                "service": service_of(initiator),
                "count": _DIALOGS,
            }
            with initiator.connect() as session:
                session.execute(_BEGIN.encode(), parameters)
            thread = threading.Thread(target=self._send, args=(initiator,))
            thread.start()
            self._threads.append(thread)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        if kind is None:
            assert self._failures == []
            self._drain()
            self._end()
        for site in (*self._initiators, self._target):
            self._forget(site)

    def go_on(self, *initiators: Site) -> None:
        """Wait until each of these initiators, or every one, got a reply to something that it sends from now on."""
        before = {initiator: self.last_sent(initiator) for initiator in initiators or self._initiators}
        for initiator, place in before.items():
            self._wait(lambda i=initiator, p=place: self.was_answered(i, p))

    def last_sent(self, initiator: Site) -> int:
        """Return the place in its ledger of what this initiator sent last."""
        query = "select coalesce(max(place), 0) from sent where starts_with(dialog, %s)"
        place: int = self._ask(initiator, query, self._prefix(initiator))[0][0]
        return place

    def was_answered(self, initiator: Site, place: int) -> bool:
        """Say whether a reply came to anything that this initiator sent behind that place."""
        query = (
            "select exists (select from sent join received using (dialog, number)"
            " where sent.place > %s and starts_with(dialog, %s))"
        )
        return bool(self._ask(initiator, query, place, self._prefix(initiator))[0][0])

    def hold(self, initiator: Site) -> None:
        """Let this initiator's sender leave its database, and stay away."""
        self._held.add(initiator.name)
        until(lambda: initiator.name in self._idle or self._failures)

    def release(self, initiator: Site) -> None:
        """Let this initiator's sender begin again, wherever its database is now."""
        self._idle.discard(initiator.name)
        self._held.discard(initiator.name)

    def _prefix(self, initiator: Site) -> str:
        return f"{self._name}-{initiator.name}"

    def _send(self, initiator: Site) -> None:
        session: psycopg.Connection[Any] | None = None
        number = 0
        while not self._stop.wait(0.1):
            if initiator.name in self._held:
                if session is not None:
                    session.close()
                session = None
                self._idle.add(initiator.name)
                continue
            try:
                session = session or initiator.connect()
                name = f"{self._prefix(initiator)}-{number % _DIALOGS + 1}"
                session.execute(_SEND.encode(), {"name": name, "count": self._batch})
                session.commit()
                number += 1
            except (psycopg.OperationalError, ConnectionError):
                if session is not None:
                    session.close()
                session = None
            except BaseException as error:
                self._failures.append(error)
                return
        if session is not None:
            session.close()

    def _ask(self, site: Site, query: str, *arguments: object) -> list[tuple[Any, ...]]:
        """Ask again until the server is there; the session is kept, as a new one costs more than what it asks."""
        failure: Exception | None = None

        def answer() -> list[list[tuple[Any, ...]]]:
            nonlocal failure
            try:
                if site.name not in self._sessions:
                    self._sessions[site.name] = site.connect()
                    self._sessions[site.name].autocommit = True
                return [self._sessions[site.name].execute(query.encode(), arguments).fetchall()]
            except (psycopg.OperationalError, ConnectionError) as error:
                failure = error
                self._forget(site)
                return []

        rows: list[tuple[Any, ...]]
        [rows] = until(answer)
        return rows

    def _forget(self, site: Site) -> None:
        if site.name in self._sessions:
            self._sessions.pop(site.name).close()

    def _ledger(self, site: Site, table: str, prefix: str) -> list[tuple[str, int]]:
        query = f"select dialog, number from {table} where starts_with(dialog, %s) order by place"
        return [(dialog, number) for dialog, number in self._ask(site, query, prefix)]

    def _count(self, site: Site, prefix: str) -> int:
        query = "select count(*) from received where starts_with(dialog, %s)"
        count: int = self._ask(site, query, prefix)[0][0]
        return count

    def _wait(self, condition: Any) -> None:
        """Wait as long as anything moves."""
        seen, since = -1, time.monotonic()
        while not condition():
            now = sum(self._count(site, self._name) for site in (*self._initiators, self._target))
            if now != seen:
                seen, since = now, time.monotonic()
            assert time.monotonic() - since < _STALLED_SECONDS, self._why()
            assert self._failures == []
            time.sleep(0.1)

    def _why(self) -> str:
        query = "select distinct transmission_status from broker.transmission_queue where transmission_status <> ''"
        sites = (*self._initiators, self._target)
        failures = [self._ask(site, "select body from failures") for site in sites]
        logs = "\n".join(f"{site.name}: {site.log()}" for site in sites)
        return f"nothing moves any more: {[self._ask(site, query) for site in sites]} {failures}\n{logs}"

    def _drain(self) -> None:
        """Wait until every message has arrived, then compare the ledgers message by message."""
        for initiator in self._initiators:
            prefix = self._prefix(initiator)
            sent = self._ledger(initiator, "sent", prefix)
            assert sent, "nothing was sent"
            count = len(sent)
            self._wait(lambda i=initiator, p=prefix, n=count: self._count(i, p) >= n)
            _compare(sent, self._ledger(self._target, "received", prefix))
            _compare(self._ledger(self._target, "sent", prefix), self._ledger(initiator, "received", prefix))
        for site in (*self._initiators, self._target):
            assert self._ask(site, "select body from failures") == []

    def _end(self) -> None:
        """End every dialog, and wait until no side has an open one."""
        for initiator in self._initiators:
            ended = "select count(broker.end_conversation(handle)) from dialogs where starts_with(name, %s)"
            assert self._ask(initiator, ended, self._prefix(initiator)) == [(_DIALOGS,)]
        waiting = "select count(*) from broker.conversation_endpoints where state <> 'CD'"
        for site in (*self._initiators, self._target):
            until(lambda s=site: self._ask(s, waiting) == [(0,)])


def _compare(sent: list[tuple[str, int]], received: list[tuple[str, int]]) -> None:
    """Say what was lost, what came twice, and which dialog is out of order."""
    lost = set(sent) - set(received)
    unknown = set(received) - set(sent)
    twice = [message for message, count in Counter(received).items() if count > 1]
    assert (lost, unknown, twice) == (set(), set(), [])
    for dialog in {dialog for dialog, _ in sent}:
        numbers = [number for name, number in received if name == dialog]
        assert numbers == list(range(1, len(numbers) + 1)), f"{dialog} is out of order: {numbers}"
