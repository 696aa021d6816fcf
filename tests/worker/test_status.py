"""`pybroker status` says what an operator wants to know of a broker, for people and for programs."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import IO, TYPE_CHECKING, Any

import pytest

from pybroker.commands.certificate_files import create_files as make_files
from pybroker.embedded import EmbeddedServer
from tests.activated import activating
from tests.brokers import INITIATOR_DEFINITIONS, Site
from tests.conftest import SETTINGS
from tests.shop import Shop, until
from tests.standby import standby_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import Database


@pytest.fixture
def shop(database: Database) -> Iterator[Shop]:
    shop = Shop(database)
    yield shop
    shop.close()


def status(url: str, *options: str) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-m",
        "pybroker",
        "status",
        "--database-url",
        url,
        "--interval",
        "0.2",
        *options,
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def queues(line: str) -> dict[str, Any]:
    return {queue["queue"]: queue for queue in json.loads(line)["queues"]}


def test_backlog_age_and_switches_are_there_for_programs(shop: Shop) -> None:
    psql = shop.psql
    dialog = psql.dialog()
    for _ in range(3):
        psql.send(dialog)
    psql.rows("select broker.alter_queue('shop', status => false)")
    output, errors = status(shop.database.url, "--json").communicate()
    assert not errors
    shown = json.loads(output)
    assert shown["is_broker_enabled"] is True
    assert shown["database"] == shop.database.name
    assert queues(output)["shop"]["is_enabled"] is False
    warehouse = queues(output)["warehouse"]
    assert (warehouse["ready"], warehouse["retained"], warehouse["incomplete"]) == (3, 0, 0)
    assert warehouse["oldest_age_seconds"] > 0
    assert warehouse["tasks_running"] == 0
    assert {"tasks_started_per_second", "task_limit_reached_per_second"} <= warehouse.keys()


def test_the_depth_of_a_long_queue_is_its_own_and_flagged(shop: Shop) -> None:
    psql = shop.psql
    psql.rows("select broker.create_queue('orders')")
    psql.rows("select broker.create_service('//orders', 'orders', '{ordering}')")
    dialogs = [psql.dialog(), psql.value("select broker.begin_dialog('//shop', '//orders', 'ordering')")]
    many = "select broker.send_batch(%s, 'order', array_fill(''::bytea, array[%s]))"
    for _ in range(24):
        for dialog, messages in zip(dialogs, (500, 1500), strict=True):
            psql.rows(many, dialog, messages)
    shown = queues(status(shop.database.url, "--json").communicate()[0])
    for queue, messages in (("warehouse", 12_000), ("orders", 36_000)):
        assert abs(shown[queue]["ready"] - messages) < messages / 3, shown[queue]
        assert shown[queue]["is_estimate"]
    assert not shown["shop"]["is_estimate"]


def test_how_a_database_writes_dates_stops_no_worker_and_no_command(shop: Shop) -> None:
    psql, url = shop.psql, shop.database.url
    for setting in ("datestyle = 'German, DMY'", "intervalstyle = 'sql_standard'", "bytea_output = 'escape'"):
        psql.rows(f"alter database {shop.database.name} set {setting}")
    psql.rows(
        "create table public.seen (body bytea, datestyle text);"
        "create procedure public.work() language plpgsql as $$begin"
        " insert into public.seen select message_body, current_setting('datestyle') from broker.receive('warehouse'); end$$;"
        "select broker.alter_queue('warehouse', activation_procedure => 'public.work', max_queue_readers => 1)"
    )
    far = psql.value("select broker.begin_dialog('//shop', '//far', 'ordering', encryption => false)")
    psql.send(far)
    psql.send(psql.dialog(), body=b"\xff\\")
    with activating(url):
        # A procedure has the defaults that it was written for.
        until(lambda: psql.rows("select * from public.seen") == [(b"\xff\\", "German, DMY")])
    psql.rows("select broker.alter_queue('warehouse', drop_activation => true)")
    psql.send(psql.dialog())
    output, errors = status(url, "--json").communicate()
    assert not errors
    assert queues(output)["warehouse"]["oldest_age_seconds"] > 0
    for options in ((), ("--journey", str(far))):
        run = [sys.executable, "-m", "pybroker", "diagnose", "--database-url", url, "--json", *options]
        told = subprocess.run(run, capture_output=True, text=True, check=False)
        assert not told.stderr
        assert json.loads(told.stdout)


def until_line(lines: IO[str], beginning: str) -> str:
    return next(line for line in lines if line.startswith(beginning))


def test_a_person_watches_a_table_until_ctrl_c(shop: Shop) -> None:
    shop.psql.send(shop.psql.dialog())
    output, _ = status(shop.database.url).communicate()
    line = next(line for line in output.splitlines() if line.startswith("warehouse"))
    assert line.split()[3] == "1"

    # Into a file each reading is written when it is taken.
    watching = status(shop.database.url, "--watch")
    assert watching.stdout is not None
    for _ in range(2):
        until_line(watching.stdout, "warehouse")
    watching.terminate()
    watching.communicate()

    watching = status(shop.database.url, "--watch", "--json")
    assert watching.stdout is not None
    first, second = watching.stdout.readline(), watching.stdout.readline()
    assert json.loads(first)["read_at"] < json.loads(second)["read_at"]
    watching.send_signal(signal.SIGINT)
    watching.communicate()
    assert watching.returncode == 0


def test_what_keeps_messages_is_told_and_not_cut_in_a_pipe(shop: Shop, tmp_path: Path) -> None:
    psql, far = shop.psql, "//far/" + "x" * 100
    make_files("shop", tmp_path, days=20)
    pem = (tmp_path / "shop.pem").read_text()
    psql.rows("select broker.create_certificate('shop', %s, current_user)", pem)
    psql.rows("select broker.alter_queue('warehouse', poison_action => 'QUARANTINE')")
    dialog = psql.dialog()
    psql.send(dialog)
    for _ in range(5):
        psql.rows("select broker.note_failure(%s, 'x')", psql.handle_of(dialog))
    psql.send(psql.value("select broker.begin_dialog('//shop', %s, encryption => false)", far), "DEFAULT")
    output, errors = status(shop.database.url).communicate()
    assert not errors
    assert f"1 for {far}, " in output
    assert "1 quarantined" in output
    assert queues(status(shop.database.url, "--json").communicate()[0])["warehouse"]["quarantined"] == 1
    assert "no worker serves it, 0 connections" in output
    assert "certificate shop: 20 days left" in output
    shown = json.loads(status(shop.database.url, "--json").communicate()[0])
    assert [(one["service"], one["messages"]) for one in shown["waiting"]] == [(far, 1)]
    url = shop.database.server.url(shop.database.name, user=shop.database.role())
    assert "sees the queues that it may receive from, 0 here" in status(url).communicate()[0]


def test_who_may_not_receive_sees_no_queue_and_a_database_without_a_broker_is_named(shop: Shop) -> None:
    role = shop.database.role()
    url = shop.database.server.url(shop.database.name, user=role)
    output, _ = status(url, "--json").communicate()
    assert queues(output) == {}
    process = status(shop.database.server.url("postgres"))
    _, errors = process.communicate()
    assert process.returncode == 1
    assert "pybroker migrate" in errors


def test_a_standby_shows_its_queues_and_no_workers_of_its_own(tmp_path: Path) -> None:
    with EmbeddedServer(version=18, listen=True, settings=SETTINGS) as server:
        shop = Site("shop", server, tmp_path)
        try:
            shop.listen(shop.certificate())
            shop.psql.rows(INITIATOR_DEFINITIONS)
            shop.psql.rows(
                "create procedure read_all() language plpgsql as 'begin end';"
                " select broker.alter_queue('shop', activation_procedure => 'read_all', max_queue_readers => 1)"
            )
            with standby_of(shop) as standby:
                shop.start_worker()
                workers = "select count(*) from broker_private.workers"
                until(lambda: shop.psql.value("select count(*) from broker_private.live_workers") == 1)
                until(lambda: standby.psql.value(workers) == 1)
                output, errors = status(standby.url, "--json").communicate()
                assert not errors
                shown = queues(output)["shop"]
                assert (shown["is_enabled"], shown["tasks_running"]) == (True, 0)
                for view in (
                    "dm_broker_activated_tasks",
                    "dm_broker_connections",
                    "dm_broker_forwarded_messages",
                ):
                    assert standby.psql.value(f"select count(*) from broker.{view}") == 0, view
                for (view,) in standby.psql.rows(
                    "select viewname::text from pg_views where schemaname = 'broker'"
                ):
                    assert standby.psql.rows(f"select count(*) from broker.{view}"), view
                shop.psql.rows("select broker.alter_queue('shop', status => false)")
                until(lambda: standby.psql.value("select number from broker.diagnose()") == 202)
                run = [sys.executable, "-m", "pybroker", "diagnose", "--database-url", standby.url, "--json"]
                told = subprocess.run(run, capture_output=True, text=True, check=True)
                assert [one["number"] for one in json.loads(told.stdout)["findings"]] == [202]
                counters = "select queue_name, tasks_running from broker.dm_broker_activation_counters"
                assert standby.psql.rows(counters) == [("shop", 0)]
        finally:
            shop.close()
