"""A failing message is tried again later, as its program says; and a program says that it lives."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from pybroker import App
from pybroker.commands import application
from tests.shop import Session, Shop, until
from tests.worker.test_app import running

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pybroker import AsyncProgramConversation, ProgramConversation
    from tests.conftest import Database

HOUR = 3600


@pytest.fixture
def shop(database: Database) -> Iterator[Shop]:
    shop = Shop(database)
    shop.psql.rows("select broker.alter_queue('warehouse', poison_action => 'QUARANTINE')")
    yield shop
    shop.close()


def orders(psql: Session, *bodies: bytes) -> Any:
    dialog = psql.dialog()
    for body in bodies:
        psql.send(dialog, "order", body)
    return dialog


def set_aside(psql: Session) -> list[tuple[Any, ...]]:
    return psql.rows(
        "select convert_from(message_body, 'UTF8'), failures, retries, retry_at is not null, last_error"
        " from broker.quarantine order by 1"
    )


def let_pass(shop: Shop, hours: float) -> None:
    shop.psql.rows(
        "create or replace function broker_private.clock() returns timestamptz language sql volatile"
        f" begin atomic select pg_catalog.clock_timestamp() + interval '{hours} hours'; end"
    )


def test_later_messages_wait_behind_one_that_failed_and_other_conversations_go_on(shop: Shop) -> None:
    app = App(shop.database.url)
    tried: list[bytes | None] = []

    @app.service_program("warehouse", retry=[HOUR, timedelta(hours=2)])
    def fulfil(conversation: ProgramConversation) -> None:
        for message in conversation.messages:
            tried.append(message.body)
            if message.body == b"bad" and tried.count(b"bad") < 4:
                raise RuntimeError("not today")

    bad = orders(shop.psql, b"good", b"bad", b"later")
    with running(app):
        # It is set aside once it has failed alone, so that what came before it does not wait.
        until(lambda: set_aside(shop.psql))
        assert set_aside(shop.psql) == [("bad", 2, 1, True, "RuntimeError: not today")]
        assert tried == [b"good", b"bad", b"good", b"bad", b"bad"]
        orders(shop.psql, b"other")
        shop.psql.send(bad, "order", b"latest")
        until(lambda: tried[5:] == [b"other"])
        assert shop.psql.value("select retry_at - quarantined_at from broker.quarantine") == timedelta(
            hours=1
        )
        let_pass(shop, 1.1)
        until(lambda: b"latest" in tried)
    assert tried[6:] == [b"bad", b"later", b"latest"]
    assert set_aside(shop.psql) == []


def test_when_all_retries_are_used_up_the_conversation_stays_in_quarantine(shop: Shop) -> None:
    app = App(shop.database.url)
    tried = []

    @app.service_program("warehouse", retry=[0, 0])
    async def fulfil(conversation: AsyncProgramConversation) -> None:
        tried.append(conversation.messages[0].body)
        raise RuntimeError(f"no {len(tried)}")

    orders(shop.psql, b"bad")
    with running(app):
        until(lambda: set_aside(shop.psql) == [("bad", 3, 2, False, "RuntimeError: no 3")])
    assert len(tried) == 3
    # By hand it begins anew.
    shop.psql.rows("select broker.redrive(conversation_handle) from broker.quarantine")
    with running(app):
        until(lambda: set_aside(shop.psql) == [("bad", 3, 2, False, "RuntimeError: no 6")])


def test_a_success_begins_anew(shop: Shop) -> None:
    app = App(shop.database.url)
    tried = []

    @app.service_program("warehouse", retry=[0, HOUR])
    def fulfil(conversation: ProgramConversation) -> None:
        body = conversation.messages[0].body
        tried.append(body)
        if body == b"second" or tried.count(body) == 1:
            raise RuntimeError("not yet")

    dialog = orders(shop.psql, b"first")
    with running(app):
        until(lambda: tried == [b"first", b"first"])
        shop.psql.send(dialog, "order", b"second")
        until(lambda: set_aside(shop.psql) == [("second", 2, 2, True, "RuntimeError: not yet")])
    assert tried == [b"first", b"first", b"second", b"second"]


PROGRAM = """
import sys
import pybroker

app = pybroker.App(sys.argv[1])

@app.service_program("warehouse", max_queue_readers=2, retry=[3600])
def fulfil(conversation):
    for message in conversation.messages:
        print("tried", message.text, flush=True)
        if not conversation.connection.execute("select from mended").rowcount and message.text == "bad":
            raise RuntimeError("broken")
        conversation.send("ack", message.body)

app.run()
"""


@contextmanager
def process(shop: Shop, directory: Path) -> Iterator[subprocess.Popen[str]]:
    script = directory / "program.py"
    script.write_text(PROGRAM)
    started = subprocess.Popen(
        [sys.executable, str(script), shop.database.url], stdout=subprocess.PIPE, text=True
    )
    try:
        yield started
    finally:
        started.kill()
        started.communicate()


def test_the_due_time_survives_a_program_that_is_killed_and_no_transaction_waits(
    shop: Shop, tmp_path: Path
) -> None:
    psql = shop.psql
    psql.rows("create table mended ()")
    orders(psql, b"bad")
    with process(shop, tmp_path) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "tried bad\n"
        until(lambda: len(set_aside(psql)) == 1)
        until(
            lambda: (
                psql.rows(
                    "select from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
                    " and xact_start is not null"
                )
                == []
            )
        )
        due = psql.value("select retry_at from broker.quarantine")
        first.kill()
        first.wait()
    with process(shop, tmp_path) as second:
        assert second.stdout is not None
        orders(psql, b"other")
        assert second.stdout.readline() == "tried other\n"
        assert psql.value("select retry_at from broker.quarantine") == due
        psql.rows("insert into mended default values")
        let_pass(shop, 1.1)
        assert second.stdout.readline() == "tried bad\n"
        until(lambda: psql.value("select ready from broker.queue_depths where queue_name = 'shop'") == 2)
    assert set_aside(psql) == []


def test_a_queue_that_would_turn_itself_off_is_no_queue_for_retries(shop: Shop) -> None:
    shop.psql.rows("select broker.alter_queue('warehouse', poison_action => 'DISABLE_QUEUE')")
    app = App(shop.database.url)

    @app.service_program("warehouse", retry=[1])
    def fulfil(conversation: ProgramConversation) -> None:
        pass

    with pytest.raises(ValueError, match="does not quarantine") as refused:
        app.run()
    shop.psql.rows(str(refused.value).split("its owner runs ")[1].rstrip("."))
    with running(app):
        until(lambda: shop.psql.rows("select from broker.service_programs"))


@pytest.mark.parametrize("retry", [[-1], [1] * 101, [400 * 86_400], [timedelta(seconds=-1)]])
def test_strange_pauses_are_refused_where_the_program_is_written(shop: Shop, retry: list[float]) -> None:
    with pytest.raises(ValueError, match="at most 100 pauses"):
        App(shop.database.url).service_program("warehouse", retry=retry)


def status(shop: Shop) -> tuple[dict[str, Any], str]:
    """Return what `pybroker status` says to programs, and to people."""
    command = ["status", "--interval", "0.1", "--database-url", shop.database.url]
    return (
        json.loads(CliRunner().invoke(application, [*command, "--json"]).output),
        CliRunner().invoke(application, command).output,
    )


def test_a_program_says_what_it_reads_until_it_ends_and_one_that_dies_is_told_of(
    shop: Shop, tmp_path: Path
) -> None:
    psql = shop.psql
    psql.rows("create table mended ()")
    app = App(shop.database.url)

    @app.service_program("warehouse", max_queue_readers=3)
    def fulfil(conversation: ProgramConversation) -> None:
        pass

    with running(app):
        until(lambda: psql.rows("select from broker.service_programs"))
        shown, text = status(shop)
        assert [(one["queue"], one["readers"], one["is_alive"]) for one in shown["programs"]] == [
            ("warehouse", 3, True)
        ]
        assert "warehouse: 3 readers in process" in text
    assert psql.rows("select from broker.service_programs") == []

    with process(shop, tmp_path) as started:
        until(lambda: psql.rows("select from broker.service_programs"))
        started.kill()
        started.wait()
    orders(psql, b"waits")
    assert 211 not in {number for (number,) in psql.rows("select number from broker.diagnose()")}
    let_pass(shop, 1)
    (finding,) = psql.rows("select level, problem from broker.diagnose() where number = 211")
    assert (finding[0], f"process {started.pid}" in finding[1]) == ("error", True)
    shown, text = status(shop)
    assert [(one["process_id"], one["is_alive"]) for one in shown["programs"]] == [(started.pid, False)]
    assert "silent for" in text
    # Who reads it now takes the dead one's place.
    with running(app):
        until(lambda: psql.rows("select process_id from broker.service_programs where is_alive"))
        assert len(psql.rows("select from broker.service_programs")) == 1


def test_a_queue_that_refuses_a_program_stops_neither_retries_nor_announcements_of_other_queues(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    psql = shop.psql
    # What a machine is called is no reason to refuse it, nor is it obeyed.
    monkeypatch.setattr("socket.gethostname", lambda: "\x1b[2J" + "h" * 300)
    psql.rows("select broker.create_queue('full', poison_action => 'QUARANTINE')")
    announce = "select broker.announce_program(gen_random_uuid(), 'full', 1, 'here', 1)"
    psql.rows(f"{announce} from generate_series(1, 1000)")
    app = App(shop.database.url)
    tried: list[bytes | None] = []

    @app.service_program("full", retry=[HOUR])
    def idle(conversation: ProgramConversation) -> None:
        pass

    @app.service_program("warehouse", retry=[0])
    def fulfil(conversation: ProgramConversation) -> None:
        tried.append(conversation.messages[0].body)
        if len(tried) == 1:
            raise RuntimeError("not yet")

    orders(psql, b"order")
    with running(app):
        until(lambda: tried == [b"order", b"order"])
        until(lambda: psql.rows("select from broker.service_programs where queue_name = 'warehouse'"))
        assert (
            psql.value("select host from broker.service_programs where queue_name = 'warehouse'")
            == ("\\x1b[2J" + "h" * 300)[:255]
        )
    # It takes its own leave of each queue that took it.
    assert psql.value("select count(*) from broker.service_programs") == 1000


@pytest.mark.parametrize("readers", [0, 32_768])
def test_a_number_of_readers_that_could_not_be_announced_is_refused_where_the_program_is_written(
    shop: Shop, readers: int
) -> None:
    with pytest.raises(ValueError, match="1 to 32,767 readers"):
        App(shop.database.url).service_program("warehouse", max_queue_readers=readers)


def test_status_shows_what_others_name_and_lets_the_terminal_obey_none_of_it(shop: Shop) -> None:
    psql = shop.psql
    psql.rows("select broker.create_queue(E'[red]\\x1b[2J', poison_action => 'QUARANTINE')")
    psql.rows("select broker.announce_program(gen_random_uuid(), E'[red]\\x1b[2J', 1, E'\\u202ehost', 1)")
    _, text = status(shop)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert text.count(r"[red]\x1b[2J") == 2
    assert r"on \u202ehost" in text
