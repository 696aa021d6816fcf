"""Logs of worker, activator and service programs: one form, so that one rule of a log collector reads all."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import typer
from typer.testing import CliRunner

from pybroker import logs
from pybroker.commands.options import DatabaseUrls, advice_on_passwords
from pybroker.commands.telling import say
from tests import forked
from tests.activated import CLI, REPOSITORY, next_event, start_worker
from tests.brokers import free_port, two_sites
from tests.patience import PATIENCE
from tests.shop import Shop, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pybroker.embedded import EmbeddedServer
    from tests.conftest import Database

PROGRAM = """
import sys
import pybroker
from pybroker import logs

logs.set_up(sys.argv[2], level=sys.argv[3])
app = pybroker.App(sys.argv[1])

@app.service_program("warehouse")
def fulfil(conversation):
    raise ValueError("no stock; password=s3cret")

app.run()
"""
WAITS = "select count(*) from pg_locks where not granted and relation = 'gate'::regclass"
NOWHERE = "postgresql://clerk:s3cret@127.0.0.1:1/shop"
TEXT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z (\w+) (\S.*)")


@pytest.fixture
def shop(database: Database) -> Iterator[Shop]:
    shop = Shop(database)
    yield shop
    shop.close()


def run(*arguments: str) -> tuple[int, list[str]]:
    """Run the command line until it ends by itself; return its exit code and what it wrote."""
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", CLI, *arguments],
        cwd=REPOSITORY,
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    return ended.returncode, ended.stderr.splitlines()


def test_a_program_and_a_worker_write_the_same_lines_and_name_the_conversation(shop: Shop) -> None:
    shop.psql.rows("select broker.alter_queue('warehouse', poison_action => 'QUARANTINE')")
    shop.psql.send(shop.psql.dialog())
    # A reader that is not ours: it fails without a word, and the worker is who notices.
    for _ in range(5):
        shop.psql.rows("begin")
        ((handle,),) = shop.psql.rows("select conversation_handle from broker.receive('warehouse')")
        shop.psql.rows("rollback")
    worker = start_worker(shop.database.url)
    try:
        quarantined = next_event(worker, "conversation_quarantined")
    finally:
        worker.kill()
        worker.communicate()
    shop.psql.rows("select broker.redrive(%s)", handle)
    program = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", PROGRAM, shop.database.url, "json", "warning"],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        failed = next_event(program, "A handler failed")
    finally:
        program.kill()
        program.communicate()
    assert list(failed)[:3] == list(quarantined)[:3] == ["timestamp", "level", "event"]
    assert failed["level"] == quarantined["level"] == "error"
    assert failed["conversation_handle"] == quarantined["conversation_handle"] == str(handle)
    assert "no stock" in failed["exception"]
    assert "s3cret" not in json.dumps(failed)


def test_a_program_writes_text_from_the_level_on(shop: Shop) -> None:
    shop.psql.send(shop.psql.dialog())
    program = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", PROGRAM, shop.database.url, "text", "error"],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert program.stderr is not None
        first = program.stderr.readline()
    finally:
        program.kill()
        program.communicate()
    matched = TEXT.match(first)
    assert matched, first
    # The line that tells what is read is information, and was left out.
    assert matched.groups()[0] == "error"
    assert "A handler failed logger=pybroker.app.warehouse conversation_handle=" in first


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_what_others_wrote_is_cut_before_it_is_searched_and_shows_no_password(
    log_format: logs.LogFormat,
) -> None:
    url = "postgresql://clerk:s3cret@db/shop "
    event = {"timestamp": "now", "level": "error", "event": "failed", "error": url * 300_000}
    line = logs.rendered(event, log_format)
    assert len(line) < 40_000
    assert "clerk" in line
    assert "s3" not in line


def test_a_worker_that_cannot_serve_says_so_in_one_line_without_the_password() -> None:
    code, lines = run("worker", "--database-url", NOWHERE, "--log-level", "warning")
    assert code == 1
    assert " warning password_in_arguments " in lines[0]
    assert "s3cret" not in "".join(lines)
    line = lines[-1]
    assert "s3cret" not in line
    matched = TEXT.fullmatch(line)
    assert matched, line
    assert matched.groups()[0] == "error"
    assert matched.groups()[1].startswith("worker_cannot_serve error=")


def test_a_password_in_the_arguments_is_warned_of_and_one_in_the_environment_is_not() -> None:
    command = typer.Typer()

    @command.command()
    def advise(context: typer.Context, database_url: DatabaseUrls) -> None:
        say(str(advice_on_passwords(context, database_url)))

    def said(*arguments: str, **environment: str) -> str:
        return CliRunner().invoke(command, arguments, env=environment).output

    plain = NOWHERE.replace(":s3cret", "")
    assert "passfile=" in said("--database-url", plain, "--database-url", NOWHERE)
    assert "passfile=" in said("--database-url", "host=db password=s3cret")
    assert said("--database-url", plain) == said(PYBROKER_DATABASE_URL=NOWHERE) == "None\n"


def test_an_activator_writes_from_the_level_on(shop: Shop, tmp_path: Path) -> None:
    shop.psql.rows("select broker.create_queue('notifications')")
    config = tmp_path / "activate.toml"
    config.write_text(
        'notification_queue = "notifications"\n[[application]]\nqueue = "warehouse"\n'
        'command = ["/nowhere/reader"]\nminimum_instances = 1\n'
    )
    activator = subprocess.Popen(
        [
            *(sys.executable, "-W", "error", "-c", CLI, "activate", "--database-url", shop.database.url),
            *("--config", str(config), "--log-level", "warning"),
        ],
        cwd=REPOSITORY,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert activator.stderr is not None
        matched = TEXT.match(activator.stderr.readline())
    finally:
        activator.kill()
        activator.communicate()
    assert matched
    assert matched.groups()[0] == "error"
    assert "queue=warehouse" in matched.groups()[1]


def test_what_somebody_else_wrote_looks_like_no_other_line_or_key() -> None:
    forged = "gone\n2026-01-01T00:00:00Z error worker_ready level=info \x1b[2J\u2028"
    event = {
        "timestamp": "T",
        "level": "info",
        "event": "part\nfailed",
        "reason": forged,
        "numbers": [1, None],
    }
    text = logs.rendered(event, "text")
    assert text.splitlines() == [text]
    assert "\x1b" not in text
    assert text.startswith('T info part failed reason="gone\\n')
    assert text.endswith("numbers=[1, null]")
    assert json.loads(logs.rendered(event, "json")) == event


def test_a_mistyped_format_or_level_is_refused_with_the_choices() -> None:
    with pytest.raises(ValueError, match="use text or json"):
        logs.set_up("xml")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="use debug, info, warning, error"):
        logs.set_up("text", level="loud")  # type: ignore[arg-type]
    code, lines = run("worker", "--database-url", NOWHERE, "--log-level", "loud")
    assert code == 2
    assert "--log-level" in " ".join(lines)


def test_a_full_disk_under_its_log_lets_a_worker_wait_for_a_running_procedure(shop: Shop) -> None:
    psql = shop.psql
    psql.rows("create table done (word text); create table gate (word text)")
    psql.rows(
        "create procedure act() language plpgsql as $$ begin"
        " perform count(*) from broker.receive('warehouse'); lock table gate; insert into done values ('done');"
        " end $$"
    )
    psql.rows("select broker.alter_queue('warehouse', activation_procedure => 'act', max_queue_readers => 1)")
    # As a pipe whose reader has gone, it takes no line.
    with Path("/dev/full").open("w") as full, shop.database.connect(autocommit=False) as holder:
        holder.execute("lock table gate")
        worker = forked.start(["worker", "--database-url", shop.database.url], stderr=full)
        try:
            psql.send(psql.dialog())
            until(lambda: worker.poll() is not None or psql.value(WAITS))
            worker.send_signal(signal.SIGTERM)
            holder.rollback()
            assert worker.wait(PATIENCE) == 0
        finally:
            worker.kill()
            worker.wait(PATIENCE)
    assert psql.rows("select word from done") == [("done",)]


ANSWERING = """
create procedure answer() language plpgsql as $$
declare m record;
begin
  for m in select * from broker.receive('warehouse') loop
    raise notice 'answered';
    perform broker.send(m.conversation_handle, 'ack', m.message_body);
  end loop;
end $$;
select broker.alter_queue('warehouse', activation_procedure => 'answer', max_queue_readers => 1);
"""


def test_nothing_that_a_worker_tells_others_keeps_a_message_or_a_procedure(
    tmp_path: Path,
    server_for: Callable[[str, int], EmbeddedServer],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with (
        two_sites(tmp_path, server_for=server_for) as (shop, warehouse),
        socket.create_server(("127.0.0.1", 0)) as silent,
        warehouse.session(autocommit=False).connection as holder,
    ):
        monkeypatch.setenv("PYBROKER_TRACES", "1")
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        shop.start_worker()
        port = free_port()
        monkeypatch.setenv("PYBROKER_METRICS_PORT", str(port))
        monkeypatch.setenv("PYBROKER_HEARTBEAT_FILE", str(tmp_path / "nowhere" / "heartbeat"))
        # No file takes a byte: neither the log nor one in the temporary directory.
        warehouse.prefix = ("prlimit", "--fsize=0")
        warehouse.psql.rows(ANSWERING)
        holder.execute("lock table broker_private.activation_log")
        warehouse.start_worker()
        shop.psql.rows(
            "select set_config('pybroker.traceparent', '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01', false)"
        )
        dialog = shop.psql.value(
            "select broker.begin_dialog('//shop', '//warehouse', 'ordering', encryption => false)"
        )
        for body in (b"1", b"2", b"3"):
            shop.psql.send(dialog, "order", body)
            assert shop.psql.received(1, "shop") == [("ack", int(body) - 1, body)]
        with socket.create_connection(("127.0.0.1", port)):
            assert warehouse.stop_worker() == 0
