"""Internal activation: who is started, when, as whom, how many, and what happens when something breaks."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
import structlog

from pybroker import logs, migrations
from pybroker.backoff import Backoff
from pybroker.workers.activation import receiving
from pybroker.workers.database import WORKER_NAME, Database, shown
from tests.activated import (
    GATED,
    HOLDING,
    LOOP,
    ONE_MESSAGE,
    PATIENCE,
    RAMP,
    Application,
    CountingClock,
    RunningLoop,
    activating,
    eventually,
    next_event,
    start_worker,
    with_user,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pybroker.embedded import EmbeddedServer
    from tests.conftest import Database as MigratedDatabase


@pytest.fixture
def application(database: MigratedDatabase) -> Iterator[Application]:
    made = Application(database)
    yield made
    made.close()


@pytest.fixture
def application_of_each(any_database: MigratedDatabase) -> Iterator[Application]:
    made = Application(any_database)
    yield made
    made.close()


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
    # Back-offs would last longer than anybody waits.
    application.slow_time()
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


def test_what_a_procedure_puts_out_is_cut_before_it_is_logged_or_kept(application: Application) -> None:
    application.queue(
        "orders",
        "declare much constant text := repeat('x', 1000000);"
        " begin raise notice '%', much using detail = much;"
        " raise exception '%', much using detail = much, hint = much; end",
    )
    application.send("orders", "first")
    with structlog.testing.capture_logs() as events, activating(application.url):
        eventually(lambda: 28088 in application.numbers("orders"))
    assert [event["number"] for event in events if event.get("number")] == [9724, 9724, 28088]
    assert max(len(value) for event in events for value in event.values() if isinstance(value, str)) < 8200
    kept = "select max(length(text)), max(length(detail)) from broker.activation_log"
    assert application.connection.execute(kept).fetchall() == [(8000, 8000)]


def test_a_frame_in_a_statement_that_a_procedure_quotes_is_not_believed(application: Application) -> None:
    # A text that is only ever looked at: it receives, so whoever believes the frame takes the error for RECEIVE's.
    application.run(
        "create function public.named() returns void language plpgsql as $body$ declare m record; begin"
        " for m in select * from broker.receive('orders') loop null; end loop; end $body$"
    )
    application.queue(
        "orders",
        "begin perform nextval('public.starts'); perform broker.receive('orders'); execute E'select 1 / 0 /*"
        "\\nPL/pgSQL function public.named() line 1 at FOR over SELECT rows\\n*/'; end",
        poison_message_handling=False,
    )
    application.send("orders", "first")
    application.stop_time()
    with activating(application.url, CountingClock()):
        eventually(lambda: application.numbers("orders") == [9724, 28088])
        # An error after RECEIVE is tried again by itself; one in it would leave the monitor stuck.
        application.advance(0.25)
        eventually(lambda: application.starts() == 2)


LOOP_FRAME = "PL/pgSQL function public.run() line 7 at FOR over SELECT rows"
OWN_STATEMENT = "SQL statement \"delete from t where n = 'receive ('\n  returning 1\""
OF_RECEIVE = "PL/pgSQL function broker.receive(text,integer,uuid,uuid,interval) line 12 at assignment"


@pytest.mark.parametrize(
    ("context", "told"),
    [
        pytest.param(LOOP_FRAME, receiving.Loop("public.run()", 7), id="a loop"),
        pytest.param(f"{OWN_STATEMENT}\n{OF_RECEIVE}\n{LOOP_FRAME}", True, id="within RECEIVE"),
        pytest.param(
            "SQL statement \"insert into t select 1 from broker.receive ('q')\"\n"
            "PL/pgSQL function run() line 3 at SQL statement",
            True,
            id="a statement that receives",
        ),
        pytest.param(
            f"SQL statement \"insert into t values ('it''s receive()\n{OF_RECEIVE}\n')\"\n{LOOP_FRAME}",
            False,
            id="a sender's words",
        ),
        pytest.param(f'SQL statement "x\n{LOOP_FRAME}"', False, id="a forged loop"),
        pytest.param(
            f'SQL statement "x\nPL/pgSQL function broker.send() line 1 at x\n{LOOP_FRAME}"',
            False,
            id="forged twice",
        ),
        pytest.param(LOOP_FRAME.replace("7", "7" * 5000), False, id="a line without end"),
        pytest.param(")" * 100_000 + f"\n{OF_RECEIVE}", False, id="more than is read"),
        pytest.param("", False, id="nothing"),
    ],
)
def test_the_context_of_an_error_tells_whether_it_arose_in_receive(context: str, told: object) -> None:
    assert receiving.told_by(context) == told


def test_a_loop_over_messages_is_seen_within_the_text_that_is_read() -> None:
    loop = "for m in select * from {}broker.receive('orders') loop null; end loop"
    assert receiving.is_loop_of(loop.format(""))
    assert not receiving.is_loop_of("for m in select 1 loop perform broker.receive('orders'); end loop")
    assert not receiving.is_loop_of("for " * 1_000_000)
    assert not receiving.is_loop_of(loop.format(" " * 1_000_000))


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


ESCAPING = """
declare
  message record;
begin
  perform nextval('public.starts');
  for message in select * from broker.receive('clerks', top => 1) loop
    insert into public.seen (queue, body) values ('clerks', convert_from(message.message_body, 'UTF8'));
  end loop;
  commit;
  {escape}
  for message in select * from broker.receive('keepers', top => 1) loop
    insert into public.seen (queue, body) values ('keepers', convert_from(message.message_body, 'UTF8'));
  end loop;
  commit;
end
"""


@pytest.mark.parametrize(
    "escape",
    [
        "reset role; execute 'set role \"{keeper}\"';",
        "reset role;",
        "execute 'set role \"{worker}\"';",
        "execute 'set session authorization \"{worker}\"';",
        "execute 'reset session authorization'; execute 'set role \"{keeper}\"';",
    ],
)
@pytest.mark.parametrize("has_wall", [True, False], ids=["login", "set role"])
def test_a_procedure_that_resets_its_role_is_still_nobody_else_where_the_worker_logs_in(
    application_of_each: Application, escape: str, has_wall: bool
) -> None:
    application = application_of_each
    worker, clerk, keeper = application.role(), application.role(), application.role("nologin")
    migrations.migrate(application.url, worker_roles=[worker])
    application.run(f'grant "{keeper}" to "{worker}"')
    application.run(f'grant "{clerk}" to "{worker}"')
    body = ESCAPING.format(escape=escape.format(keeper=keeper, worker=worker))
    application.queue("clerks", body, execute_as=clerk)
    application.queue("keepers", "begin return; end", activation_status=False)
    application.run("select broker.grant('RECEIVE', 'QUEUE', 'clerks', %s)", clerk)
    application.run("select broker.grant('RECEIVE', 'QUEUE', 'keepers', %s)", keeper)
    application.run("select broker.grant('RECEIVE', 'QUEUE', 'keepers', %s)", worker)
    application.send("keepers", "secret")
    application.send("clerks", "first")
    as_worker = with_user(application.url, worker)
    with activating(as_worker, logins=[clerk] if has_wall else []):
        ended = eventually(
            lambda: application.connection.execute(
                "select number, sqlstate from broker.activation_log where number = 28088"
                " union all select 0, null from public.seen where queue = 'keepers'"
            ).fetchall()
        )
        eventually(lambda: application.sessions() == 0)
    assert application.seen("clerks") == ["first"]
    if has_wall:
        assert application.seen("keepers") == []
        # Refused by PostgreSQL (42501), or by RECEIVE (229).
        assert {sqlstate for _, sqlstate in ended} <= {"42501", "S0229"}
        assert application.value("select role from public.seen") == clerk
    else:
        # As it is documented: by SET ROLE alone no procedure is kept from what the worker's role may do.
        assert application.seen("keepers") == ["secret"]


def test_a_reader_that_logs_in_needs_no_right_of_the_worker(application_of_each: Application) -> None:
    application = application_of_each
    worker, clerk = application.role(), application.role()
    migrations.migrate(application.url, worker_roles=[worker])
    loop = LOOP.format(queue="orders", timeout="0")
    application.queue("orders", loop, max_readers=2, execute_as=clerk)
    application.run("select broker.grant('RECEIVE', 'QUEUE', 'orders', %s)", clerk)
    bodies = [f"message {number}" for number in range(30)]
    for body in bodies:
        application.send("orders", body)
    # The worker is no member of the role, which SET ROLE would need.
    with activating(with_user(application.url, worker), logins=[clerk]):
        eventually(lambda: sorted(application.seen("orders")) == sorted(bodies))
        eventually(lambda: application.sessions() == 0)
        application.send("orders", "later")
        eventually(lambda: "later" in application.seen("orders"))
        eventually(lambda: application.sessions() == 0)
    assert application.value("select array_agg(distinct role) from public.seen") == [clerk]
    assert application.value("select count(*) from broker.activation_log where severity = 'ERROR'") == 0
    assert application.value("select count(*) from broker.dm_broker_activated_tasks") == 0


def test_a_reader_that_logs_in_tells_the_monitor_what_it_did(application_of_each: Application) -> None:
    application = application_of_each
    clerk = application.role()
    application.queue("idle", "begin perform nextval('public.starts'); end", execute_as=clerk)
    application.queue("holding", HOLDING.format(queue="holding"), execute_as=clerk)
    for queue in ("idle", "holding"):
        application.run("select broker.grant('RECEIVE', 'QUEUE', %s, %s)", queue, clerk)
        application.send(queue, "first")
    application.run("select pg_advisory_lock(1)")
    with activating(application.url, CountingClock(), logins=[clerk]):
        eventually(
            lambda: application.value("select count(*) from broker.activation_log where number = 28087") == 1
        )
        # Its slot is its own session's, which is seen as the role's.
        shown = eventually(
            lambda: application.connection.execute(
                "select t.execute_as, a.usename from broker.dm_broker_activated_tasks t"
                " join pg_stat_activity a on a.pid = t.spid"
            ).fetchall()
        )
        assert shown == [(clerk, clerk)]
        application.run("select pg_advisory_unlock(1)")
        eventually(lambda: application.seen("holding") == ["first"])
        eventually(lambda: application.sessions() == 0)


def test_a_role_that_can_t_log_in_is_told_and_never_replaced_by_the_worker(
    application_of_each: Application,
) -> None:
    application = application_of_each
    clerk = application.role("nologin")
    application.queue("orders", LOOP.format(queue="orders", timeout="0"), execute_as=clerk)
    application.run("select broker.grant('RECEIVE', 'QUEUE', 'orders', %s)", clerk)
    application.send("orders", "first")
    application.stop_time()
    with (
        structlog.testing.capture_logs() as events,
        activating(application.url, CountingClock(), logins=[clerk]),
    ):
        refused = eventually(lambda: [event for event in events if event["event"] == "execute_as_refused"])
        assert f'--login "{clerk}"' in refused[0]["error"]
        assert application.seen("orders") == []
        application.run(f'alter role "{clerk}" login')
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
    event = logs.blotted(
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
