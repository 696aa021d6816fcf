"""Internal activation: who is started, when, as whom, how many, and what happens when something breaks."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
import structlog

from pybroker import migrations
from pybroker.workers.activation import READER_NAME, Activation
from pybroker.workers.clock import Backoff, Clock
from pybroker.workers.database import WORKER_NAME, Database, shown
from pybroker.workers.journal import without_passwords

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from datetime import datetime

    from pybroker.embedded import EmbeddedServer
    from tests.conftest import Database as MigratedDatabase

REPOSITORY = Path(__file__).resolve().parent.parent
PATIENCE = 60.0
CLI = "from pybroker.commands import main; main()"


def eventually(condition: Callable[[], Any]) -> Any:
    """Return the condition's first true value."""
    deadline = time.monotonic() + PATIENCE
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, "the condition did not become true"
        time.sleep(0.02)


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
def activating(url: str, clock: Clock | None = None, grace: float = 0.0) -> Iterator[None]:
    """Activate the queues of a database; at the end, procedures still running get `grace` seconds."""
    loop = RunningLoop()
    try:
        database = Database(url)
        loop.run(database.open())
        activation = Activation(database, clock)
        running = loop.start(activation.run())
        try:
            yield
        finally:
            running.cancel()
            loop.run(activation.finish(grace))
            loop.run(database.close())
    finally:
        loop.close()


class Application:
    """Queues with procedures, a service on each, and somebody who sends."""

    def __init__(self, database: MigratedDatabase) -> None:
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

    def queue(self, name: str, body: str, *, max_readers: int = 1, execute_as: str = "SELF") -> None:
        """Create the queue `name`, a procedure for it of this PL/pgSQL body, and the service `//<name>`."""
        self.run(f"create procedure public.run_{name}() language plpgsql as $body$ {body} $body$")
        self.run(
            "select broker.create_queue(%s, activation_procedure => %s, max_queue_readers => %s,"
            " execute_as => %s, schema => 'public')",
            name, f"public.run_{name}", max_readers, execute_as,
        )  # fmt: skip
        self.run("select broker.create_service(%s, %s, array['DEFAULT'])", f"//{name}", name)

    def send(self, queue: str, *bodies: str) -> None:
        """Send each body on a dialog of its own, so that each is in a conversation group of its own."""
        with self.connection.transaction():
            for body in bodies:
                dialog = self.value("select broker.begin_dialog('//senders', %s)", f"//{queue}")
                self.run("select broker.send(%s, 'DEFAULT', %s::text)", dialog, body)

    def seen(self, queue: str) -> list[str]:
        rows = self.connection.execute("select body from public.seen where queue = %s", (queue,))
        return sorted(body for (body,) in rows)

    def stop_time(self) -> None:
        """Let the database's time stand still, but for `advance`."""
        self._set_time(self.value("select broker_private.clock()"))

    def advance(self, seconds: float) -> None:
        self._set_time(self._stopped + timedelta(seconds=seconds))

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


@pytest.fixture
def application(database: MigratedDatabase) -> Iterator[Application]:
    made = Application(database)
    yield made
    made.close()


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


def test_the_first_message_starts_the_procedure_at_once(application: Application) -> None:
    application.queue("orders", LOOP.format(queue="orders", timeout="0"))
    # Nothing that waits for a moment could start a reader.
    application.stop_time()
    with activating(application.url, CountingClock()):
        application.send("orders", "first")
        eventually(lambda: application.seen("orders") == ["first"])
        assert application.starts() == 1


def test_a_loop_with_a_commit_of_its_own_empties_the_queue(application: Application) -> None:
    application.queue("orders", LOOP.format(queue="orders", timeout="200 ms"))
    bodies = [f"order {number:02}" for number in range(50)]
    application.send("orders", *bodies)
    with activating(application.url):
        eventually(lambda: application.seen("orders") == bodies)
        eventually(lambda: application.sessions() == 0)
        application.send("orders", "one more")
        eventually(lambda: "one more" in application.seen("orders"))


def test_a_procedure_that_receives_one_message_is_started_again_without_delay(
    application: Application,
) -> None:
    application.queue("orders", ONE_MESSAGE.format(queue="orders"))
    bodies = [f"order {number:02}" for number in range(20)]
    application.send("orders", *bodies)
    # A back-off would never end.
    application.stop_time()
    with activating(application.url, CountingClock()):
        eventually(lambda: application.seen("orders") == bodies)


def test_readers_are_added_one_by_one_and_never_beyond_max_readers(application: Application) -> None:
    application.queue("orders", HOLDING.format(queue="orders"), max_readers=3)
    application.run("select pg_advisory_lock(1)")
    bodies = [f"order {number:02}" for number in range(12)]
    application.send("orders", *bodies)
    application.stop_time()
    clock = CountingClock()
    with activating(application.url, clock):
        for readers in (1, 2, 3, 3, 3):
            eventually(lambda expected=readers: application.sessions() == expected)
            clock.let_worker_look()
            assert application.sessions() == readers
            application.advance(RAMP)
        application.run("select pg_advisory_unlock(1)")
        eventually(lambda: application.seen("orders") == bodies)
        eventually(lambda: application.sessions() == 0)


def test_the_procedure_runs_as_the_queue_s_role(application: Application) -> None:
    clerk = application.role("nologin")
    application.queue("orders", LOOP.format(queue="orders", timeout="0"), execute_as=clerk)
    application.run("select broker.grant('RECEIVE', 'QUEUE', 'orders', %s)", clerk)
    application.send("orders", "first")
    with activating(application.url):
        eventually(lambda: application.seen("orders"))
    assert application.value("select role from public.seen") == clerk


def test_a_failing_procedure_neither_spins_nor_stops_the_others(application: Application) -> None:
    application.queue(
        "broken",
        "begin raise notice 'about to fail'; perform nextval('public.starts');"
        " raise exception 'out of paper' using errcode = 'XX123'; end",
    )
    application.queue("orders", GATED.format(queue="orders"))
    application.send("broken", "never read")
    application.stop_time()
    clock = CountingClock()
    with structlog.testing.capture_logs() as events, activating(application.url, clock):
        eventually(lambda: application.numbers("broken")[-1:] == [28088])
        application.send("orders", "first")
        eventually(lambda: application.seen("orders") == ["first"])
        clock.let_worker_look()
        assert application.starts() == 1
        assert application.state("broken") == "NOTIFIED"
        # It never got as far as to receive, so only the watchdog starts it again.
        application.advance(59)
        clock.let_worker_look()
        assert application.starts() == 1
        application.advance(60)
        eventually(lambda: application.starts() == 2)
    assert application.log("broken")[:3] == [
        (9724, "NOTICE", "about to fail", "00000"),
        (9724, "ERROR", "out of paper", "XX123"),
        (28088, "ERROR", "The activated task was ended by an error: out of paper", "XX123"),
    ]
    failures = [event for event in events if event["event"] == "activated_procedure_failed"]
    assert failures
    assert {
        "log_level": "error",
        "number": 9724,
        "output": "out of paper",
        "sqlstate": "XX123",
        "queue": "broken",
        "procedure": "public.run_broken",
    }.items() <= failures[0].items()
    notices = [event for event in events if event["event"] == "activated_procedure_output"]
    assert {"log_level": "info", "number": 9724, "output": "about to fail"}.items() <= notices[0].items()


def test_a_procedure_that_does_nothing_does_not_spin(application: Application) -> None:
    application.queue("orders", "begin perform nextval('public.starts'); end")
    application.send("orders", "never read")
    application.stop_time()
    clock = CountingClock()
    with activating(application.url, clock):
        eventually(lambda: application.numbers("orders") == [28087])
        clock.let_worker_look()
        assert application.starts() == 1
        application.advance(60)
        eventually(lambda: application.starts() == 2)


def test_a_drained_queue_forgets_that_its_procedure_did_nothing(application: Application) -> None:
    application.queue("orders", "begin perform nextval('public.starts'); end")
    application.send("orders", "received by somebody else")
    clock = CountingClock()
    with activating(application.url, clock):
        eventually(lambda: application.numbers("orders") == [28087])
        application.run("select broker.receive('orders')")
        clock.let_worker_look()
        application.send("orders", "new")
        eventually(lambda: application.starts() == 2)


def test_a_worker_without_the_role_says_what_to_grant(application: Application) -> None:
    clerk, worker = application.role("nologin"), application.role()
    migrations.migrate(application.url, worker_roles=[worker])
    application.queue("orders", LOOP.format(queue="orders", timeout="0"), execute_as=clerk)
    application.run("select broker.grant('RECEIVE', 'QUEUE', 'orders', %s)", clerk)
    application.send("orders", "first")
    application.stop_time()
    clock = CountingClock()
    as_worker = with_user(application.url, worker)
    with structlog.testing.capture_logs() as events, activating(as_worker, clock):
        refused = eventually(lambda: [event for event in events if event["event"] == "execute_as_refused"])
        grant = f'GRANT "{clerk}" TO "{worker}"'
        assert grant in refused[0]["error"]
        application.run(grant)
        application.advance(60)
        eventually(lambda: application.seen("orders") == ["first"])


def test_a_queue_turned_off_lets_its_reader_end_and_gets_no_other(application: Application) -> None:
    application.queue("orders", HOLDING.format(queue="orders"), max_readers=3)
    application.run("select pg_advisory_lock(1)")
    application.send("orders", "first", "second")
    application.stop_time()
    clock = CountingClock()
    with activating(application.url, clock):
        eventually(lambda: application.starts() == 1)
        application.run("select broker.alter_queue('orders', activation_status => false)")
        application.advance(10 * RAMP)
        clock.let_worker_look()
        assert application.sessions() == 1
        application.run("select pg_advisory_unlock(1)")
        eventually(lambda: application.seen("orders") == ["first", "second"])
        eventually(lambda: application.numbers("orders") == [28086])
        eventually(lambda: application.sessions() == 0)


def test_a_disabled_broker_starts_nobody_until_it_is_enabled(application: Application) -> None:
    application.queue("orders", LOOP.format(queue="orders", timeout="0"))
    application.send("orders", "first")
    application.run("update broker_private.broker_instance set is_broker_enabled = false")
    process = start_worker(application.url)
    try:
        next_event(process, "broker_disabled")
        next_event(process, "worker_ready")
        assert application.starts() == 0
        application.run("update broker_private.broker_instance set is_broker_enabled = true")
        next_event(process, "broker_changed")
        eventually(lambda: application.seen("orders") == ["first"])
    finally:
        process.kill()
        process.communicate()


def test_an_endpoint_outside_of_the_home_database_is_refused(
    make_database: Callable[[str], MigratedDatabase],
) -> None:
    home, other = make_database("home"), make_database("other")
    with other.connect() as session:
        session.execute("select broker.create_endpoint('far', 4022)")
    assert "not the home database" in refusal(home.url, other.url)


def test_a_procedure_that_outlives_the_grace_is_left_to_the_server(application: Application) -> None:
    application.queue("orders", HOLDING.format(queue="orders"))
    application.run("select pg_advisory_lock(1)")
    application.send("orders", "first")
    with activating(application.url, grace=0.1):
        eventually(lambda: application.starts() == 1)
    # Its slot is taken as long as it runs, so no other worker goes above max_queue_readers.
    assert application.tasks("orders") == 1
    assert application.sessions() == 1
    application.run("select pg_advisory_unlock(1)")
    eventually(lambda: application.seen("orders") == ["first"])
    eventually(lambda: application.sessions() == 0)
    assert application.tasks("orders") == 0


def test_a_pool_whose_sessions_were_ended_serves_again(application: Application) -> None:
    loop = RunningLoop()
    try:
        served = Database(application.url)
        loop.run(served.open())

        async def who() -> Any:
            async with served.connection() as connection:
                cursor = await connection.execute("select pg_backend_pid()")
                return await cursor.fetchone()

        def is_served() -> bool:
            try:
                return bool(loop.run(who()))
            except psycopg.OperationalError:
                return False

        assert loop.run(who())
        application.run(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and application_name = %s",
            WORKER_NAME,
        )
        eventually(is_served)
        assert loop.run(who())
        loop.run(served.close())
    finally:
        loop.close()


def with_user(url: str, user: str, password: str = "") -> str:
    parts = urlsplit(url)
    login = f"{user}:{password}" if password else user
    return urlunsplit(parts._replace(netloc=f"{login}@{parts.netloc.rpartition('@')[2]}"))


def start_worker(*urls: str, log_format: str = "json") -> subprocess.Popen[str]:
    arguments = [argument for url in urls for argument in ("--database-url", url)]
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", CLI, "worker", *arguments, "--log-format", log_format],
        cwd=REPOSITORY,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYBROKER_")},
        stderr=subprocess.PIPE,
        text=True,
    )


def next_event(process: subprocess.Popen[str], name: str) -> dict[str, Any]:
    assert process.stderr is not None
    seen = []
    for line in process.stderr:
        event: dict[str, Any] = json.loads(line)
        if event["event"] == name:
            return event
        seen.append(line)
    pytest.fail(f"the worker ended without the event {name}:\n{''.join(seen)}")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_worker_process_ends_in_order_and_leaves_no_session(
    application: Application, number: signal.Signals
) -> None:
    application.queue("orders", GATED.format(queue="orders"))
    application.run("select pg_advisory_lock(1)")
    application.send("orders", "first")
    process = start_worker(application.url)
    try:
        ready = next_event(process, "worker_ready")
        assert ready["databases"] == [application.connection.info.dbname]
        assert ready["listening"] is None
        eventually(lambda: application.sessions() == 1)
        process.send_signal(number)
        next_event(process, "waiting_for_readers")
        application.run("select pg_advisory_unlock(1)")
        _, rest = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, rest
        assert application.seen("orders") == ["first"]
        eventually(lambda: application.sessions("pybroker") == 0)
    finally:
        process.kill()
        process.communicate()


def test_a_second_signal_ends_the_worker_process_at_once(application: Application) -> None:
    application.queue("orders", "begin perform pg_sleep(3600); end")
    application.send("orders", "first")
    process = start_worker(application.url)
    try:
        next_event(process, "worker_ready")
        eventually(lambda: application.sessions() == 1)
        process.send_signal(signal.SIGTERM)
        next_event(process, "waiting_for_readers")
        process.send_signal(signal.SIGTERM)
        _, rest = process.communicate(timeout=PATIENCE)
        assert process.returncode == 1, rest
        assert "Traceback" not in rest
        eventually(lambda: application.sessions("pybroker") == 0)
    finally:
        process.kill()
        process.communicate()


def refusal(*urls: str) -> str:
    """Start a worker that can't serve, and return its reason."""
    process = start_worker(*urls)
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1, errors
    assert "s3cret" not in errors
    events = [json.loads(line) for line in errors.splitlines()]
    assert [event["event"] for event in events].count("worker_cannot_serve") == 1, errors
    reason: str = events[-1]["error"]
    return reason


def test_a_database_without_service_broker_is_refused(server: EmbeddedServer) -> None:
    server.create_database("never_migrated", exist_ok=True)
    reason = refusal(with_user(server.url("never_migrated"), "postgres", "s3cret"))
    assert "never_migrated" in reason
    assert "pybroker migrate --database-url" in reason


def test_an_unreachable_server_is_refused() -> None:
    reason = refusal("postgresql://clerk:s3cret@127.0.0.1:1/shop")
    assert "postgresql://clerk@127.0.0.1:1/shop" in reason


def test_a_role_without_rights_is_refused(application: Application) -> None:
    stranger = application.role()
    reason = refusal(with_user(application.url, stranger, "s3cret"))
    assert f"--worker-role {stranger}" in reason


def test_one_database_given_twice_is_refused(database: MigratedDatabase) -> None:
    assert "the same broker instance" in refusal(database.url, database.url)


def test_wrong_usage_has_an_exit_code_of_its_own() -> None:
    process = start_worker("not a url")
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 2


def test_no_password_is_shown_or_logged() -> None:
    assert shown("postgresql://clerk:s3cret@db.example:5433/shop?sslpassword=s3cret") == (
        "postgresql://clerk@db.example:5433/shop"
    )
    assert shown("host=/run/pg dbname=shop password=s3cret") == "postgresql:///shop?host=/run/pg"
    event = without_passwords(
        None,
        "info",
        {
            "event": "postgresql://clerk:s3cret@db/shop",
            "error": "host=db password='s3 s3cret' user=clerk",
            "urls": ["postgresql://clerk:s3@cret@db/shop?sslpassword=s3cret&x=1"],
            "number": 9724,
        },
    )
    assert "s3" not in json.dumps(event)
    assert "clerk" in event["event"]
    assert "user=clerk" in event["error"]
    assert event["number"] == 9724


def test_a_backoff_doubles_up_to_its_limit_and_starts_anew_after_a_success() -> None:
    backoff = Backoff(1.0, 5.0)
    assert [backoff.failed() for _ in range(5)] == [1.0, 2.0, 4.0, 5.0, 5.0]
    backoff.reset()
    assert backoff.failed() == 1.0


def test_an_unopened_database_has_no_greeting() -> None:
    with pytest.raises(RuntimeError, match="not opened"):
        _ = Database("postgresql://db/shop").greeting
