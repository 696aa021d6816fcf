"""External activation with real processes: a worker that sends the events, an activator, and what it starts."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from pybroker.workers.arrivals import WATCHED_SECONDS
from pybroker.workers.clock import Clock
from pybroker.workers.database import Database as Served
from pybroker.workers.event_notifications import LOOK_SECONDS, EventNotifications
from pybroker.workers.external_activation import applications, read
from pybroker.workers.external_activation.configuration import ApplicationConfiguration
from pybroker.workers.external_activation.watcher import EVENT_NOTIFICATION, Watcher
from pybroker.workers.validation import Validation
from pybroker.workers.wake_ups import WakeUps
from tests import forked
from tests.shop import DEFINITIONS, Session, until
from tests.transport import settled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import Database

SUBSCRIBE = """
select broker.create_queue('notifications');
select broker.create_service('//activator', 'notifications',
  '{http://schemas.microsoft.com/SQL/Notifications/PostEventNotification}');
select broker.create_event_notification('warehouse', 'warehouse', 'QUEUE_ACTIVATION', '//activator');
"""

READER = """
import sys, pybroker
with pybroker.connect(sys.argv[1]) as broker:
    while messages := broker.receive("warehouse", timeout=0.05):
        for message in messages:
            print(message.text, flush=True)
"""


class Site:
    """A database with a notification, and the processes around it."""

    def __init__(self, database: Database, directory: Path) -> None:
        self.database = database
        self.url = database.url
        self.directory = directory
        self.psql = self.session()
        self.psql.rows(DEFINITIONS)
        self.psql.rows(SUBSCRIBE)
        self._processes: list[forked.Process] = []
        self._logs: list[Log] = []

    def session(self) -> Session:
        return Session(self.database.connect())

    def start(self, *arguments: str) -> tuple[forked.Process, Log]:
        process = forked.start(
            [*arguments, "--database-url", self.url, "--log-format", "json"],
            stderr=subprocess.PIPE,
            warnings_are_errors=True,
        )
        log = Log(process)
        self._processes.append(process)
        self._logs.append(log)
        return process, log

    def activate(self, configuration: str, *options: str) -> tuple[forked.Process, Log]:
        config = self.directory / "activate.toml"
        config.write_text(f'notification_queue = "notifications"\n{configuration}')
        return self.start("activate", "--config", str(config), *options)

    def close(self) -> None:
        for process in self._processes:
            # In order, as what it has started would outlive it, and hold its standard error open.
            process.terminate()
        for process in self._processes:
            process.wait()
        for log in self._logs:
            log.reader.join()
        self.psql.connection.close()


class Log:
    """What a process writes, event by event."""

    def __init__(self, process: forked.Process) -> None:
        self.events: list[dict[str, Any]] = []
        self._process = process
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as lines:
            for line in lines:
                self.events.append(json.loads(line) if line.startswith("{") else {"event": line})

    def of(self, name: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["event"] == name]

    def wait(self, name: str, count: int = 1) -> list[dict[str, Any]]:
        # What a process wrote last is read after its end.
        until(lambda: len(self.of(name)) >= count or not self.reader.is_alive())
        assert len(self.of(name)) >= count, self.events
        return self.of(name)


@pytest.fixture
def site(database: Database, tmp_path: Path) -> Iterator[Site]:
    made = Site(database, tmp_path)
    yield made
    made.close()


def application(command: list[str], **options: object) -> str:
    lines = {"queue": "warehouse", "command": command, **options}
    return "[[application]]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in lines.items())


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_row_152_a_message_starts_a_program_outside_of_the_database(site: Site) -> None:
    (site.directory / "reader.py").write_text(READER)
    output = site.directory / "output"
    shell = f"exec {sys.executable} {site.directory}/reader.py '{site.url}' >>{output}"
    worker, worker_log = site.start("worker")
    activator, log = site.activate(
        application(["sh", "-c", shell], database=site.database.name, schema="public", maximum_instances=2)
    )
    worker_log.wait("worker_ready")
    log.wait("activator_ready")
    dialog = site.psql.dialog()
    site.psql.send(dialog, "order", b"first")
    until(lambda: output.exists() and output.read_text() == "first\n")
    log.wait("instance_ended")
    site.psql.send(dialog, "order", b"second")
    until(lambda: output.read_text() == "first\nsecond\n")
    for process in (activator, worker):
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 0


def notify(site: Site, times: int = 1) -> None:
    """Send events as if messages waited."""
    for _ in range(times):
        site.psql.rows("delete from broker_private.notified_queues")
        assert site.psql.rows("select problem from broker_private.emit_queue_activations()") == [(None,)]


def test_who_may_send_to_the_activator_starts_no_program(site: Site) -> None:
    stranger = site.database.role()
    site.psql.rows("select broker.grant('SEND', 'SERVICE', '//activator', %s)", stranger)
    for kind in ("queue", "service"):
        options = ", 'strangers'" if kind == "service" else ""
        site.psql.rows(f"select broker.create_{kind}('{'//' if options else ''}strangers'{options})")
    site.psql.rows(f"select broker.alter_authorization('SERVICE', '//strangers', '{stranger}')")
    contract = "http://schemas.microsoft.com/SQL/Notifications/PostEventNotification"
    forged = "<EVENT_INSTANCE><EventType>QUEUE_ACTIVATION</EventType><ObjectName>warehouse</ObjectName></EVENT_INSTANCE>"
    dialog = site.psql.value("select broker.begin_dialog('//strangers', '//activator', %s)", contract)
    told: list[Any] = []

    async def read() -> None:
        served = Served(site.url)
        await served.open()
        validation = Validation(served, Clock())
        await validation.look()
        await validation.close()
        await served.close()
        watcher = Watcher(site.url, "notifications", lambda one: told.append(one.queue) or True, Clock())
        await watcher.open()
        await watcher._read()
        await watcher.close()

    site.psql.rows("select broker.send(%s, %s, %s)", dialog, EVENT_NOTIFICATION, forged)
    with capture_logs() as events:
        asyncio.run(read())
    assert (told, [event["event"] for event in events][1:]) == ([], ["event_of_stranger"])
    site.psql.send(site.psql.dialog())
    notify(site)
    asyncio.run(read())
    assert told == ["warehouse"]


def test_processes_stay_between_minimum_and_maximum_and_what_is_killed_is_replaced(site: Site) -> None:
    _, log = site.activate(application(["sleep", "1000"], minimum_instances=1, maximum_instances=2))
    (first,) = log.wait("instance_started")
    site.psql.send(site.psql.dialog())
    for _ in range(3):
        notify(site)
        until(lambda: site.psql.rows("select from notifications") == [])
    assert [event["instances"] for event in log.wait("instance_started", 2)] == [1, 2]
    os.kill(first["pid"], signal.SIGKILL)
    (failed,) = log.wait("instance_failed")
    assert (failed["pid"], failed["exit_code"], failed["number"]) == (first["pid"], -signal.SIGKILL, 28088)
    second = log.of("instance_started")[1]["pid"]
    os.kill(second, signal.SIGKILL)
    assert log.wait("instance_started", 3)[2]["instances"] == 1
    assert len(log.of("instance_started")) == 3


class NothingDue(Clock):
    """No process is to be started later."""

    async def wait(self, event: asyncio.Event, seconds: float) -> bool:
        raise AssertionError(f"{event} or {seconds} s are waited for")


def test_what_is_asked_for_while_the_last_process_starts_is_not_owed_when_one_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def play() -> None:
        program = applications.Application(
            ApplicationConfiguration(
                "warehouse", ["sleep", "1000"], minimum_instances=1, maximum_instances=2
            ),
            NothingDue(),
        )
        start = asyncio.create_subprocess_exec

        async def asked_meanwhile(*command: Any, **options: Any) -> Any:
            program.activate()
            return await start(*command, **options)

        monkeypatch.setattr(asyncio, "create_subprocess_exec", asked_meanwhile)
        running = asyncio.create_task(program.run())
        try:
            await settled(lambda: len(of("instance_started")) == 2)
            os.kill(of("instance_started")[0]["pid"], signal.SIGKILL)
            await settled(lambda: of("instance_failed"))
            # It hears of the end, and decides.
            for _ in range(100):
                await asyncio.sleep(0)
            assert not running.done(), running
            assert len(of("instance_started")) == 2
        finally:
            running.cancel()
            await asyncio.wait((running,))
            await program.finish(0)

    def of(name: str) -> list[Any]:
        return [event for event in events if event["event"] == name]

    with capture_logs() as events:
        asyncio.run(play())


def test_a_command_that_does_not_exist_is_reported_and_the_others_go_on(site: Site) -> None:
    _, log = site.activate(
        application(["/nowhere/program"], minimum_instances=1)
        + application(["sleep", "1000"], minimum_instances=1)
    )
    failed = log.wait("command_not_started", 2)
    assert failed[0]["number"] == 28088
    assert "/nowhere/program" in failed[0]["error"]
    assert [event["next_start_in"] for event in failed[:2]] == [1.0, 2.0]
    assert len(log.wait("instance_started")) == 1


def test_stopping_ends_the_processes_in_order_and_kills_those_that_do_not_end(site: Site) -> None:
    deaf = site.directory / "deaf"
    stubborn = f"trap '' TERM; : >{deaf}; while :; do sleep 0.1; done"
    activator, log = site.activate(
        application(["sleep", "1000"], minimum_instances=1)
        + application(["sh", "-c", stubborn], minimum_instances=1),
        "--grace",
        "0.3",
    )
    pids = [event["pid"] for event in log.wait("instance_started", 2)]
    until(deaf.exists)
    activator.send_signal(signal.SIGTERM)
    assert activator.wait() == 0
    until(lambda: not any(map(is_running, pids)))
    # On a busy machine one that ends may be noticed too late, and is killed too.
    assert "trap" in " ".join(event["command"] for event in log.wait("instance_killed"))


def test_events_of_other_queues_and_a_notification_that_ended_are_reported(site: Site) -> None:
    _, log = site.activate(application(["sleep", "1000"], queue="other"))
    log.wait("activator_ready")
    site.psql.send(site.psql.dialog())
    notify(site)
    (event,) = log.wait("no_application_for_queue")
    assert (event["database"], event["queue"]) == (site.database.name, "warehouse")
    site.psql.rows("select broker.drop_event_notification('warehouse')")
    log.wait("event_notification_ended")
    assert site.psql.rows("select from notifications") == []


def test_the_activator_survives_the_loss_of_its_session_and_a_queue_that_is_off(site: Site) -> None:
    _, log = site.activate(application(["sleep", "1000"]))
    log.wait("activator_ready")
    site.psql.rows(
        "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'pybroker activate'"
    )
    log.wait("notification_queue_not_read")
    log.wait("activator_ready", 2)
    site.psql.rows("select broker.alter_queue('notifications', status => false)")
    log.wait("notification_queue_not_read", 2)
    site.psql.rows("select broker.alter_queue('notifications', status => true)")
    site.psql.send(site.psql.dialog())
    notify(site)
    log.wait("instance_started")


@pytest.mark.parametrize(
    ("configuration", "reason"),
    [
        ("", "application"),
        ("nonsense", "activate.toml"),
        (application([]), "command"),
        (application(["sleep"], maximum=3), "maximum"),
        (application(["sleep"], minimum_instances=2), "above maximum_instances"),
        (application(["sleep"], maximum_instances=0), "maximum_instances"),
    ],
)
def test_a_configuration_that_can_t_be_meant_is_refused(site: Site, configuration: str, reason: str) -> None:
    activator, log = site.activate(configuration)
    assert activator.wait() == 2
    until(lambda: any(reason in event["event"] for event in log.events))


def test_an_activator_without_its_queue_ends_with_a_reason(site: Site) -> None:
    site.psql.rows("select broker.drop_service('//activator'), broker.drop_queue('notifications')")
    activator, log = site.activate(application(["sleep", "1000"]))
    assert activator.wait() == 1
    until(lambda: any('The queue "notifications" is not found' in event["event"] for event in log.events))


def test_the_configuration_and_the_sql_of_the_page_work(database: Database, tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/external-activation.md").read_text()
    script = "".join(re.findall(r"```sql\n(.*?)```", page, re.DOTALL))
    (configuration,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    with database.connect() as connection:
        connection.execute("select broker.create_queue('fulfilment')")
        connection.execute(script.encode())
    (tmp_path / "activate.toml").write_text(configuration)
    (fulfilment,) = read(tmp_path / "activate.toml").application
    assert (fulfilment.queue, fulfilment.maximum_instances) == ("fulfilment", 4)


class NoLooks(Clock):
    """Nobody looks by himself: what happens, a wake-up has caused."""

    async def wait(self, event: asyncio.Event, seconds: float) -> bool:
        assert seconds in (LOOK_SECONDS, WATCHED_SECONDS)
        return await event.wait()


def test_the_worker_is_woken_by_the_message(site: Site) -> None:
    loop = asyncio.new_event_loop()
    runner = threading.Thread(target=loop.run_forever)
    runner.start()

    def run(coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, loop)

    served = Served(site.url)
    run(served.open()).result()
    notifications = EventNotifications(served, NoLooks())
    wake_ups = WakeUps(served, Clock())
    wake_ups.add(notifications.arrived)
    parts = [run(notifications.run()), run(wake_ups.run())]
    locks = (
        "select from pg_locks where locktype = 'advisory' and classid = 1886937714 and mode = 'ExclusiveLock'"
        " and database = (select oid from pg_database where datname = current_database())"
    )
    # The queue's, the transmission queue's, and those of what waits for validation and of what the broker answers.
    until(lambda: len(site.psql.rows(locks)) == 4)
    dialog = site.psql.dialog()
    for number in (1, 2):
        site.psql.send(dialog)
        until(lambda expected=number: site.psql.value("select count(*) from notifications") == expected)
        site.psql.bodies()
        until(lambda: len(site.psql.rows(locks)) == 4)
    for part in parts:
        part.cancel()
    run(served.close()).result()
    loop.call_soon_threadsafe(loop.stop)
    runner.join()
    loop.close()
