"""Queues with activation procedures, a worker in the test's own process, and workers that can be killed."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import threading
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

import pytest

from pybroker.workers.activation import READER_NAME, Activation
from pybroker.workers.clock import Clock
from pybroker.workers.database import Database
from tests import forked
from tests.patience import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Iterator
    from datetime import datetime

    from tests.conftest import Database as MigratedDatabase

REPOSITORY = Path(__file__).resolve().parent.parent
CLI = "from pybroker.commands import main; main()"


def eventually(condition: Callable[[], Any]) -> Any:
    """Return the condition's first true value."""
    return until(condition)


RAMP = 5.0


class CountingClock(Clock):
    """Counts the worker's looks; the pauses between them are short."""

    def __init__(self) -> None:
        self._pauses = 0

    async def wait(self, event: asyncio.Event, seconds: float) -> bool:
        self._pauses += 1
        return await super().wait(event, min(seconds, 0.02))

    def let_worker_look(self, times: int = 5) -> None:
        enough = self._pauses + times
        eventually(lambda: self._pauses >= enough)


class RunningLoop:
    """An event loop in a thread of its own, so that a test can look at the database beside the worker."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()

    def start(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return self.start(coroutine).result(PATIENCE)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()


@contextmanager
def activating(
    url: str, clock: Clock | None = None, grace: float = 0.0, logins: Collection[str] = ()
) -> Iterator[None]:
    """Activate the queues of a database; at the end procedures still running are cancelled, or left after `grace` seconds."""
    loop = RunningLoop()
    try:
        database = Database(url)
        loop.run(database.open())
        activation = Activation(database, clock, logins)

        async def begin() -> asyncio.Task[None]:
            return asyncio.create_task(activation.run())

        running: asyncio.Task[None] = loop.run(begin())

        async def end() -> bool:
            """Cancel it, and wait until a statement that is under way has been given up; return whether it had failed."""
            has_failed = running.done()
            running.cancel()
            await asyncio.wait((running,))
            return has_failed

        try:
            yield
        finally:
            has_failed = loop.run(end())
            loop.run(activation.finish(grace) if grace else activation.cancel())
            loop.run(database.close())
            # Also where the test has failed: this may be why.
            if has_failed:
                running.result()
    finally:
        loop.close()


class Application:
    """Queues with procedures, a service on each, and somebody who sends."""

    def __init__(self, database: MigratedDatabase) -> None:
        self._ahead = timedelta()
        self.url = database.url
        self.role = database.role
        self.connection = database.connect()
        self.run("create table public.seen (queue text, body text, role text default current_user)")
        self.run("grant all on public.seen to public")
        self.run("create sequence public.starts")
        self.run("grant all on public.starts to public")
        self.run("select broker.create_queue('senders', schema => 'public')")
        self.run("select broker.create_service('//senders', 'senders')")

    def close(self) -> None:
        self.connection.close()

    def run(self, statement: str, *values: Any) -> None:
        self.connection.execute(statement.encode(), values or None)

    def value(self, query: str, *values: Any) -> Any:
        row = self.connection.execute(query.encode(), values or None).fetchone()
        assert row is not None
        return row[0]

    def queue(
        self, name: str, body: str, *, max_readers: int = 1, execute_as: str = "SELF", **options: Any
    ) -> None:
        """Create the queue `name`, a procedure for it of this PL/pgSQL body, and the service `//<name>`."""
        self.run(f"create procedure public.run_{name}() language plpgsql as $body$ {body} $body$")
        extra = "".join(f", {option} => %s" for option in options)
        self.run(
            "select broker.create_queue(%s, activation_procedure => %s, max_queue_readers => %s,"
            f" execute_as => %s, schema => 'public'{extra})",
            name, f"public.run_{name}", max_readers, execute_as, *options.values(),
        )  # fmt: skip
        self.run("select broker.create_service(%s, %s, array['DEFAULT'])", f"//{name}", name)

    def alter(self, queue: str, **options: Any) -> None:
        given = ", ".join(f"{option} => %s" for option in options)
        self.run(f"select broker.alter_queue(%s, {given})", queue, *options.values())

    def send(self, queue: str, *bodies: str) -> None:
        """Send each body on a dialog of its own, so that each is in a conversation group of its own."""
        with self.connection.transaction():
            for body in bodies:
                dialog = self.value("select broker.begin_dialog('//senders', %s)", f"//{queue}")
                self.run("select broker.send(%s, 'DEFAULT', %s::text)", dialog, body)

    def send_on_one_dialog(self, queue: str, *bodies: str) -> None:
        with self.connection.transaction():
            dialog = self.value("select broker.begin_dialog('//senders', %s)", f"//{queue}")
            for body in bodies:
                self.run("select broker.send(%s, 'DEFAULT', %s::text)", dialog, body)

    def seen(self, queue: str) -> list[str]:
        rows = self.connection.execute("select body from public.seen where queue = %s", (queue,))
        return sorted(body for (body,) in rows)

    def stop_time(self) -> None:
        """Let the database's time stand still, but for `advance`."""
        self._set_time(self.value("select broker_private.clock()"))

    def slow_time(self) -> None:
        """Let time pass at a fifth of its pace: pauses that there should not be are long, and do not last for ever.

        A reader whose session lasts for a second can't tell any more that it took messages. While time stands still it
        would have returned at once, and in vain.
        """
        now = f"timestamptz '{self.value('select broker_private.clock()').isoformat()}'"
        self.run(
            "create or replace function broker_private.clock() returns timestamptz language sql volatile"
            f" begin atomic select {now} + (pg_catalog.clock_timestamp() - {now}) / 5; end"
        )

    def advance(self, seconds: float) -> None:
        """Let so many more seconds have passed."""
        self._set_time(self._stopped + timedelta(seconds=seconds))

    def put_forward(self, seconds: float) -> None:
        """Let so many more seconds have passed, while time goes on, so that what waits for a time-out returns."""
        self._ahead += timedelta(seconds=seconds)
        self.run(
            "create or replace function broker_private.clock() returns timestamptz language sql volatile"
            f" begin atomic select pg_catalog.clock_timestamp() + interval '{self._ahead.total_seconds()} s'; end"
        )

    def _set_time(self, moment: datetime) -> None:
        self._stopped = moment
        self.run(
            "create or replace function broker_private.clock() returns timestamptz language sql volatile"
            f" begin atomic select timestamptz '{moment.isoformat()}'; end"
        )

    def log(self, queue: str) -> list[tuple[Any, ...]]:
        """Return number, severity, text and SQLSTATE of what the queue's procedure put out."""
        return self.connection.execute(
            "select number, severity, text, sqlstate from broker.activation_log where queue_name = %s order by id",
            (queue,),
        ).fetchall()

    def numbers(self, queue: str) -> list[int]:
        return [number for number, _, _, _ in self.log(queue)]

    def state(self, queue: str) -> str | None:
        rows = self.connection.execute(
            "select m.state from broker.dm_broker_queue_monitors m"
            " join broker.service_queues q on q.object_id = m.queue_id where q.name = %s",
            (queue,),
        ).fetchall()
        return rows[0][0] if rows else None

    def tasks(self, queue: str) -> int:
        number: int = self.value(
            "select count(*) from broker.dm_broker_activated_tasks t join broker.service_queues q"
            " on q.object_id = t.queue_id where q.name = %s", queue,
        )  # fmt: skip
        return number

    def starts(self) -> int:
        """Return how often procedures asked the sequence; unlike a table's rows it survives a rollback."""
        started: int = self.value("select case when is_called then last_value else 0 end from public.starts")
        return started

    def sessions(self, name: str = READER_NAME) -> int:
        """Return how many sessions of this database the worker has, or only its readers."""
        number: int = self.value(
            "select count(*) from pg_stat_activity"
            " where datname = current_database() and starts_with(application_name, %s)",
            name,
        )
        return number


def with_user(url: str, user: str, password: str = "") -> str:
    parts = urlsplit(url)
    login = f"{user}:{password}" if password else user
    return urlunsplit(parts._replace(netloc=f"{login}@{parts.netloc.rpartition('@')[2]}"))


def start_worker(*urls: str, log_format: str = "json", grace: float = 30.0) -> forked.Process:
    arguments = [argument for url in urls for argument in ("--database-url", url)]
    arguments += ["--grace", str(grace), "--log-format", log_format]
    return forked.start(
        ["worker", *arguments],
        env={name: value for name, value in os.environ.items() if not name.startswith("PYBROKER_")},
        stderr=subprocess.PIPE,
        warnings_are_errors=True,
    )


def next_event(process: forked.Process, name: str) -> dict[str, Any]:
    assert process.stderr is not None
    seen = []
    for line in process.stderr:
        event: dict[str, Any] = json.loads(line)
        if event["event"] == name:
            return event
        seen.append(line)
    pytest.fail(f"the worker ended without the event {name}:\n{''.join(seen)}")


ONE_MESSAGE = """
declare
  message record;
begin
  perform nextval('public.starts');
  for message in select * from broker.receive('{queue}', top => 1) loop
    insert into public.seen (queue, body) values ('{queue}', convert_from(message.message_body, 'UTF8'));
  end loop;
end
"""

# The loop of the book: a transaction for each batch, and the end when RECEIVE waited in vain.
LOOP = """
declare
  message record;
  received integer;
begin
  perform nextval('public.starts');
  loop
    received := 0;
    for message in select * from broker.receive('{queue}', top => 1, timeout => '{timeout}') loop
      received := received + 1;
      insert into public.seen (queue, body) values ('{queue}', convert_from(message.message_body, 'UTF8'));
    end loop;
    if received = 0 then
      rollback;
      exit;
    end if;
    commit;
  end loop;
end
"""

# Blocks until the test lets go of the advisory lock.
GATED = """
begin
  perform pg_advisory_lock_shared(1);
  perform pg_advisory_unlock_shared(1);
  loop
    insert into public.seen (queue, body)
    select '{queue}', convert_from(message_body, 'UTF8') from broker.receive('{queue}', top => 1);
    exit when not found;
    commit;
  end loop;
end
"""


# Receives a message, and holds its group until the test lets go of the advisory lock.
HOLDING = """
declare
  received integer;
begin
  perform nextval('public.starts');
  loop
    insert into public.seen (queue, body)
    select '{queue}', convert_from(message_body, 'UTF8') from broker.receive('{queue}', top => 1);
    get diagnostics received = row_count;
    exit when received = 0;
    perform pg_advisory_lock_shared(1);
    perform pg_advisory_unlock_shared(1);
    commit;
  end loop;
end
"""

# The whitepaper's target procedure: RECEIVE up to 10,000 into a table variable, the first 2,000 bytes of each body
# into a table, a count for each RECEIVE, one transaction for each, and rollback and exit when RECEIVE was in vain.
WHITEPAPER = """
declare
  begun timestamptz;
  received integer;
begin
  loop
    begun := clock_timestamp();
    create temporary table received_messages on commit drop as
      select message_type_name, message_body, conversation_handle
      from broker.receive('{queue}', top => 10000, timeout => '{timeout}');
    select count(*) into received from received_messages;
    if received = 0 then
      rollback;
      exit;
    end if;
    insert into public.message_drop (body) select substr(message_body, 1, 2000) from received_messages;
    insert into public.receive_times (received, took) values (received, clock_timestamp() - begun);
    commit;
  end loop;
end
"""

# The book's listing 15-18: a group for each transaction, one message of it, an answer, the end of the conversation, and
# rollback and exit when GET CONVERSATION GROUP waited in vain. Listing 15-18 leaves out what it does with the message.
BOOK = """
declare
  conversation_group uuid;
  message record;
begin
  loop
    conversation_group := broker.get_conversation_group('{queue}', timeout => '{timeout}');
    if conversation_group is null then
      rollback;
      exit;
    end if;
    select conversation_handle, message_body into message
    from broker.receive('{queue}', top => 1, conversation_group_id => conversation_group);
    insert into public.seen (queue, body) values ('{queue}', convert_from(message.message_body, 'UTF8'));
    perform broker.send(message.conversation_handle, 'DEFAULT', '<id>1</id><ackid>1</ackid>'::text);
    perform broker.end_conversation(message.conversation_handle);
    commit;
  end loop;
end
"""
