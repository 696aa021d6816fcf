"""`pybroker diagnose` names what keeps a message, and the statement that it prints mends that."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from pybroker import logs
from pybroker.commands import application
from pybroker.diagnosis.catalogue import KINDS, table
from pybroker.status_readings import read
from tests.conftest import migrated_database
from tests.shop import Shop, in_background

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pybroker.embedded import EmbeddedServer
    from tests.conftest import Database

ROOT = Path(__file__).resolve().parents[2]


class Diagnosed(Shop):
    """A shop, asked as a person asks."""

    def findings(self, handle: object = None, *, user: str = "postgres") -> list[dict[str, Any]]:
        """Return what broker.diagnose says; the gravest comes first."""
        columns = "number, level, object, problem, why, since, mend, mend_role, is_destructive"
        with self.database.connect(user=user) as session:
            cursor = session.execute(f"select {columns} from broker.diagnose(%s)".encode(), (handle,))
            return [dict(zip(columns.split(", "), row, strict=True)) for row in cursor]

    def numbers(self, handle: object = None, *, user: str = "postgres") -> list[int]:
        return [one["number"] for one in self.findings(handle, user=user)]

    def later(self, offset: str) -> None:
        self.psql.rows(
            "create or replace function broker_private.clock() returns timestamptz language sql volatile"
            f" begin atomic select pg_catalog.clock_timestamp() + interval '{offset}'; end"
        )

    def command(self, *arguments: str, answers: str = "") -> tuple[int, str]:
        """Run the command line; return its exit code and what it printed."""
        result = CliRunner().invoke(
            application, ["diagnose", *arguments, "--database-url", self.database.url], input=answers
        )
        return result.exit_code, result.output


@contextmanager
def diagnosed(server: EmbeddedServer) -> Iterator[Diagnosed]:
    database = migrated_database(server, f"diagnose_{uuid.uuid4().hex[:8]}", with_shop=True)
    shop = Diagnosed(database, is_defined=True)
    try:
        yield shop
    finally:
        shop.close()
        with psycopg.connect(server.url("postgres"), autocommit=True) as session:
            session.execute(f'drop database "{database.name}" with (force)'.encode())


@pytest.fixture
def shop(any_server: EmbeddedServer) -> Iterator[Diagnosed]:
    with diagnosed(any_server) as shop:
        assert shop.numbers() == [], "a fresh shop has no fault"
        yield shop


@pytest.fixture
def newest(server: EmbeddedServer) -> Iterator[Diagnosed]:
    """A shop for what does not depend on the version of PostgreSQL."""
    with diagnosed(server) as shop:
        yield shop


def roll_back_receives(shop: Diagnosed) -> None:
    for _ in range(5):
        reader = shop.session(autocommit=False)
        reader.receive()
        reader.connection.rollback()


def received_all(shop: Diagnosed) -> None:
    while shop.psql.receive():
        pass


@pytest.fixture
def activated(shop: Diagnosed) -> Iterator[Diagnosed]:
    """The warehouse has a procedure that may be called; no worker runs."""
    shop.psql.rows("create procedure public.work() language sql as 'select 1'")
    shop.psql.rows(
        "select broker.alter_queue('warehouse', activation_procedure => 'public.work', max_queue_readers => 1,"
        " execute_as => 'OWNER')"
    )
    yield shop
    shop.psql.rows("select broker.alter_queue('warehouse', drop_activation => true)")
    shop.psql.rows("drop procedure public.work")


def test_a_procedure_that_its_runner_may_not_run_is_refused(activated: Diagnosed) -> None:
    author, caller = activated.database.role(), activated.database.role()
    database = activated.database.name
    for grant in (f"create on database {database}", "create on schema public"):
        activated.psql.rows(f"grant {grant} to {caller}, {author}")
    eve = activated.session(user=caller)
    eve.rows("select broker.create_queue('own')")
    activated.psql.rows(f"create schema {author} authorization {author}")
    activated.psql.rows(f"create procedure {author}.work() language sql as 'select 1'")
    make = "select broker.create_queue('other', activation_procedure => %s, max_queue_readers => 1)"
    name = "select broker.alter_queue('own', activation_procedure => %s, max_queue_readers => 1)"
    for right in (f"usage on schema {author}", f"execute on procedure {author}.work()"):
        assert eve.refused(make, f"{author}.work") == eve.refused(name, f"{author}.work") == "S0229"
        activated.psql.rows(f"revoke execute on procedure {author}.work() from public")
        activated.psql.rows(f"grant {right} to {caller}")
    eve.rows(name, f"{author}.work")
    # Another role, or another owner whose the role then is, is asked for anew.
    for change in (f"execute_as => '{author}'", f"owner => '{author}', execute_as => 'OWNER'"):
        activated.psql.rows(f"revoke usage on schema {author} from {author}")
        assert activated.psql.refused(f"select broker.alter_queue('own', {change})") == "S0229"
        activated.psql.rows(f"grant usage on schema {author} to {author}")
    activated.psql.rows("select broker.alter_queue('own', execute_as => 'OWNER')")
    activated.psql.rows(f"revoke usage on schema {author} from {author}")
    give = f"select broker.alter_authorization('QUEUE', 'own', '{author}')"
    assert activated.psql.refused(give) == "S0229"
    activated.psql.rows("select broker.drop_queue('own')")


def test_a_procedure_that_the_database_s_owner_may_not_see_hides_no_finding(shop: Diagnosed) -> None:
    owner, eve = shop.database.role(), shop.database.role()
    shop.psql.rows(f"alter database {shop.database.name} owner to {owner}")
    shop.psql.rows(f"create schema {eve} authorization {eve}")
    shop.psql.rows(f"grant create on database {shop.database.name} to {eve}")
    theirs = shop.session(user=eve)
    theirs.rows(f"create procedure {eve}.work() language sql as 'select 1'")
    queue = f"'theirs', activation_procedure => '{eve}.work', max_queue_readers => 1, schema => '{eve}'"
    theirs.rows(f"select broker.create_queue({queue})")
    shop.psql.rows("select broker.alter_queue('warehouse', status => false)")
    # The broker's functions run as who migrated: here a role that is no superuser.
    shop.psql.rows(f"grant all on schema broker_private to {owner}")
    shop.psql.rows(f"grant all on all tables in schema broker_private to {owner}")
    shop.psql.rows(f"grant all on all functions in schema broker_private to {owner}")
    shop.psql.rows(f"alter function broker_private.diagnose(name, uuid) owner to {owner}")
    # What this test has granted is found too (113).
    assert set(shop.numbers(user=owner)) == {113, 202}
    shop.psql.rows("select broker.drop_queue('theirs')")


def test_a_message_for_another_database_without_a_worker(shop: Diagnosed) -> None:
    shop.psql.rows("select broker.create_route('far', 'tcp://far:4022', '//far')")
    dialog = shop.psql.value("select broker.begin_dialog('//shop', '//far', encryption => false)")
    shop.psql.send(dialog, "DEFAULT")
    assert shop.numbers(dialog)[0] == 103
    assert 103 not in shop.numbers(), "a worker that restarts is no fault"
    shop.later("1 min")
    assert shop.numbers() == [103]
    assert shop.numbers(user=shop.database.role()) == [901], "whose message waits is not told to others"
    shop.psql.rows("select broker.end_conversation(%s, cleanup => true)", dialog)
    shop.psql.rows("select broker.drop_route('far')")


SAID = {
    "9754: Nothing listens there.": 305,
    "9783: The host has no address.": 305,
    "28017: No answer.": 305,
    "28034: CONNECT is not granted.": 306,
    "28045: The certificate is unknown.": 307,
    "28024: Not valid yet.": 308,
    "28025: Not valid any more.": 308,
    "28036: The endpoint names no certificate.": 309,
    "9748: There is no endpoint.": 310,
    "9727: There is no binding.": 312,
    "9730: The user has no certificate.": 313,
    "9795: Another broker instance.": 314,
    "28027: No encryption in common.": 315,
    "9749: The target queue is disabled.": 316,
    "9792: Forwarding is off.": 317,
    "9736: Something else.": 399,
}


def test_what_a_worker_said_of_a_destination(newest: Diagnosed) -> None:
    newest.psql.rows("select broker.create_route('far', 'tcp://far:4022', '//far')")
    dialog = newest.psql.value("select broker.begin_dialog('//shop', '//far', encryption => false)")
    newest.psql.send(dialog, "DEFAULT")
    with psycopg.connect(newest.database.url, application_name="pybroker worker", autocommit=True) as worker:
        for status, number in SAID.items():
            worker.execute(
                "select broker_private.set_destination_status(d.destination_no, %s)"
                " from broker_private.destinations d where d.service_name = '//far'",
                (status,),
            )
            (found,) = newest.findings()
            assert (found["number"], found["object"], found["problem"]) == (number, "//far", status)


def test_a_queue_of_a_dropped_owner_lends_its_procedure_nobody_s_rights(activated: Diagnosed) -> None:
    leaver, runner = activated.database.role(), activated.database.role()
    activated.psql.rows("select broker.create_service('//orphan', 'warehouse')")
    for securable in ("'QUEUE', 'warehouse'", "'SERVICE', '//orphan'"):
        activated.psql.rows(f"select broker.alter_authorization({securable}, '{leaver}')")
    activated.psql.rows(f"drop role {leaver}")
    found = {one["object"]: one["mend"] for one in activated.findings() if one["number"] == 111}
    assert set(found) == {"warehouse", "//orphan"}
    assert "Run it?" not in activated.command("--fix", answers="y\n" * 5)[1]
    for mend in found.values():
        activated.psql.rows(mend.replace("ROLE", runner))
    assert activated.numbers() == []
    role = "select execute_as_principal_id from broker.service_queues where name = 'warehouse'"
    assert activated.psql.value(role) == runner
    activated.psql.rows("select broker.drop_service('//orphan')")


def test_a_notification_is_created_again_by_its_owner_alone(shop: Diagnosed) -> None:
    owner = shop.database.role()
    shop.psql.rows(f"select broker.grant('SEND', 'SERVICE', '//warehouse', '{owner}')")
    shop.psql.rows(f"select broker.alter_authorization('QUEUE', 'shop', '{owner}')")
    notified = shop.session(user=owner)
    notified.rows("select broker.create_event_notification('n', 'shop', 'QUEUE_ACTIVATION', '//warehouse')")
    handle = shop.psql.value(
        "select conversation_handle from broker.conversation_endpoints where far_service = '//warehouse'"
    )
    shop.psql.rows("select broker.end_conversation(%s, cleanup => true)", handle)
    (found,) = [one for one in shop.findings() if one["number"] == 109]
    assert (found["mend"], found["mend_role"]) == (None, owner)
    shop.psql.rows("select broker.drop_event_notification('n', 'shop')")


def certificate(keys: Path, name: str, days: int) -> str:
    given = ["certificate", "create", name, "--key-directory", str(keys), "--days", str(days)]
    result = CliRunner().invoke(application, given)
    assert result.exit_code == 0, result.output
    return (keys / f"{name}.pem").read_text()


def of_certificates(shop: Diagnosed) -> list[dict[str, Any]]:
    code, output = shop.command("--json")
    assert code == 0, output
    return [one for one in json.loads(output)["findings"] if one["number"] == 112]


def test_a_certificate_that_expires_soon_is_named_until_it_has_a_successor(
    newest: Diagnosed, tmp_path: Path
) -> None:
    register = "select broker.create_certificate(%s, %s, %s)"
    newest.psql.rows(register, "ours", certificate(tmp_path, "ours", 29), "it's us")
    newest.psql.rows(register, "fresh", certificate(tmp_path, "fresh", 40), "lasting")
    newest.psql.rows("select broker.create_endpoint('door', 4022, state => 'STARTED', certificate => 'ours')")
    (found,) = of_certificates(newest)
    assert (found["object"], found["level"]) == ("ours", "warning")
    # --fix must not run what still lacks the certificate's text.
    assert "This one is yours to run" in newest.command("--fix")[1]
    (mend,) = found["mend"]
    name = re.findall(r"create_certificate\('(\w+)'", mend["statement"])[0]
    newest.psql.rows(mend["statement"].replace("'PEM'", f"'{certificate(tmp_path, name, 365)}'"))
    assert of_certificates(newest) == []
    assert newest.psql.value("select count(*) from broker.certificates where name = 'ours'") == 1


def test_an_endpoint_that_goes_on_with_the_old_certificate_is_told_of_the_new_one(
    newest: Diagnosed, tmp_path: Path
) -> None:
    register = "select broker.create_certificate(%s, %s, %s)"
    newest.psql.rows(register, "ours", certificate(tmp_path, "ours", 1), "us")
    newest.psql.rows(register, "next", certificate(tmp_path, "next", 365), "us")
    assert of_certificates(newest) == []
    newest.psql.rows("select broker.create_endpoint('door', 4022, state => 'STARTED', certificate => 'ours')")
    (found,) = of_certificates(newest)
    (mend,) = found["mend"]
    assert mend["statement"] == "select broker.alter_endpoint('door', certificate => 'next')"
    assert "Done." in newest.command("--fix", answers="y\n")[1]
    assert of_certificates(newest) == []


def test_a_role_is_told_only_of_what_it_may_see(shop: Diagnosed) -> None:
    role = shop.database.role()
    dialog = shop.psql.dialog()
    shop.psql.rows("select broker.alter_queue('shop', status => false)")
    (found,) = shop.findings(user=role)
    assert found["number"] == 901
    assert "shop" not in found["problem"]
    assert shop.numbers(dialog, user=role) == [410], "what it may not see is told like what is not there"
    shop.psql.rows("select broker.grant('RECEIVE', 'QUEUE', 'shop', %s)", role)
    assert shop.numbers(user=role) == [202, 901]
    shop.psql.rows("select broker.revoke('RECEIVE', 'QUEUE', 'shop', %s)", role)
    shop.psql.rows("select broker.alter_queue('shop', status => true)")


def test_nobody_calls_what_stands_behind_it(shop: Diagnosed) -> None:
    stranger = shop.session(user=shop.database.role())
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        stranger.rows("select broker_private.diagnose('postgres', null)")
    for name in ("broker_findings", "queue_findings", "delivery_findings", "conversation_findings"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            stranger.rows(f"select broker_private.{name}('postgres', null)")


def test_a_caught_error_does_not_make_it_blind(shop: Diagnosed) -> None:
    shop.psql.rows(
        "do $$ begin perform broker.send(null); exception when others then"
        " perform * from broker.diagnose(); end $$"
    )


def test_a_backlog_under_load_is_no_finding(shop: Diagnosed) -> None:
    dialogs = [shop.psql.dialog() for _ in range(20)]
    for dialog in dialogs:
        for _ in range(5):
            shop.psql.send(dialog)
    reader = shop.session(autocommit=False)
    assert reader.receive()
    sender = shop.session(autocommit=False)
    sender.send(dialogs[0])
    assert shop.numbers() == []
    sender.connection.rollback()
    reader.connection.commit()
    received_all(shop)


# --- the command line


def test_row_168_the_command_prints_json_and_says_by_its_exit_code(newest: Diagnosed) -> None:
    assert newest.command("--json") == (0, '{"findings":[]}\n')
    newest.psql.rows("select broker.alter_broker('DISABLE_BROKER')")
    code, output = newest.command("--json")
    (found,) = json.loads(output)["findings"]
    assert code == 1
    assert set(found) == {"number", "level", "object", "problem", "why", "since", "mend"}
    (mend,) = found["mend"]
    assert set(mend) == {"database", "role", "statement", "is_destructive", "is_far"}
    assert mend["database"] == newest.database.name
    assert newest.command("--ignore", "101")[0] == 0
    assert newest.command("--ignore", "7")[0] == 2
    code, output = newest.command("--fix", answers="y\n")
    assert "Done." in output
    assert newest.numbers() == []


def test_fix_runs_only_what_was_agreed_to(newest: Diagnosed) -> None:
    newest.psql.rows("select broker.alter_queue('shop', status => false)")
    newest.psql.rows("alter table broker_private.messages set (autovacuum_enabled = false)")
    newest.psql.dialog(lifetime="1 hour")
    newest.later("2 hours")
    code, output = newest.command("--fix", answers="n\nn\n")
    assert (code, output.count("Run it?")) == (0, 2), "the destructive one is not offered"
    assert set(newest.numbers()) == {106, 202, 403}
    assert "403" not in newest.command("--level", "error")[1]
    code, output = newest.command("--fix", "--yes")
    assert (code, output.count("Done."), "Run it?" in output) == (0, 1, False), "nobody is asked"
    assert set(newest.numbers()) == {202, 403}, "what a person turned off stays so"
    newest.command("--fix", "--destructive", answers="y\ny\n")
    assert newest.numbers() == []
    newest.later("0")


def test_what_many_others_have_hides_nothing_of_one_s_own(newest: Diagnosed) -> None:
    psql = newest.psql
    psql.rows("select broker.alter_queue(name, poison_action => 'QUARANTINE') from broker.service_queues")

    def quarantine(handle: object) -> None:
        for _ in range(5):
            psql.rows("select broker.note_failure(%s, 'x')", handle)

    dialog = psql.dialog()
    psql.send(dialog)
    quarantine(psql.handle_of(dialog))
    for copied in ("endpoints", "quarantine", "quarantined_messages"):
        psql.rows(
            f"insert into broker_private.{copied} overriding system value select c.* from broker_private.{copied} t"
            " cross join generate_series(1, 10100) n cross join lateral jsonb_populate_record(t, jsonb_build_object("
            "'endpoint_no', -n, 'conversation_handle', gen_random_uuid(), 'conversation_id', gen_random_uuid())) c"
            " where t.endpoint_no in (select q.endpoint_no from broker_private.quarantine q where q.endpoint_no > 0)"
        )
    own = psql.dialog()
    psql.send(own)
    psql.rows("select broker.send(conversation_handle, 'ack', 'x'::text) from broker.receive('warehouse')")
    quarantine(own)
    psql.rows(
        "update broker_private.endpoints set expires_at = now() - interval '1 hour' * (1 + (endpoint_no > 0)::integer)"
        " where endpoint_no < 0 or conversation_handle = %s",
        own,
    )
    role = newest.database.role()
    psql.rows("select broker.grant('RECEIVE', 'QUEUE', 'shop', %s)", role)
    assert newest.numbers(user=role) == [401, 403, 901]
    shown = [one["object"] for one in newest.findings() if one["number"] == 401]
    assert shown == ["warehouse", str(own)], "and who sees all is told of both"
    counted = {one.queue: one.quarantined for one in read(psql.connection).queues}
    assert counted == {"shop": 1, "warehouse": 10001}


def test_what_is_not_shown_is_said_and_what_holds_up_most_comes_first(newest: Diagnosed) -> None:
    newest.psql.rows("select broker.create_queue('q' || n) from generate_series(1, 101) n")
    newest.psql.rows("select broker.alter_queue('q' || n, status => false) from generate_series(1, 101) n")
    for service, messages in (("//few", 1), ("//many", 3)):
        dialog = newest.psql.value("select broker.begin_dialog('//shop', %s, encryption => false)", service)
        for _ in range(messages):
            newest.psql.send(dialog, "DEFAULT")
    found = newest.findings()
    assert [(one["number"], one["object"]) for one in found[:2]] == [(303, "//many"), (303, "//few")]
    assert len(found) == 101
    assert (found[-1]["number"], found[-1]["problem"]) == (901, "3 more findings are not shown.")


def test_one_address_that_is_silent_is_one_finding(newest: Diagnosed) -> None:
    for service in ("//a", "//b", "//c"):
        newest.psql.rows("select broker.create_route(%s, 'tcp://far:4022', %s)", service, service)
        dialog = newest.psql.value("select broker.begin_dialog('//shop', %s, encryption => false)", service)
        newest.psql.send(dialog, "DEFAULT")
    newest.psql.rows("update broker_private.destinations set transmission_status = '28017: No answer.'")
    with psycopg.connect(newest.database.url, application_name="pybroker worker"):
        (found,) = newest.findings()
    assert (found["number"], "2 other services" in found["why"]) == (305, True)


def test_a_session_that_may_write_nothing_is_told_all(newest: Diagnosed) -> None:
    newest.psql.send(newest.psql.dialog())
    newest.psql.rows("select broker.alter_broker('DISABLE_BROKER')")
    newest.psql.rows(f"alter database {newest.database.name} set default_transaction_read_only = on")
    assert [one["number"] for one in json.loads(newest.command("--json")[1])["findings"]] == [101]


def test_fix_mends_the_far_database_also_where_both_have_one_name(
    newest: Diagnosed, server_for: Callable[[str, int], EmbeddedServer]
) -> None:
    far = migrated_database(server_for("far", 18), newest.database.name, with_shop=True)
    with far.connect() as session:
        session.execute("select broker.alter_queue('shop', status => false)")
        newest.psql.rows("select broker.alter_queue('warehouse', status => false)")
        code, output = newest.command("--fix", "--far-database-url", far.url, answers="y\ny\n")
        assert (code, output.count("Done.")) == (0, 2)
        assert output.count(f'In the far database "{far.name}"') == 1
        assert session.execute("select number from broker.diagnose()").fetchall() == []
    assert newest.numbers() == []


def test_a_name_of_a_stranger_does_not_command_the_terminal(newest: Diagnosed) -> None:
    dialog = newest.psql.value("select broker.begin_dialog('//shop', E'//far\\x1b[2J', encryption => false)")
    newest.psql.send(dialog, "DEFAULT")
    code, output = newest.command()
    assert code == 1
    assert "\x1b" not in output
    assert "//far\\x1b[2J" in output


def test_no_command_and_no_log_line_commands_a_terminal(newest: Diagnosed, tmp_path: Path) -> None:
    evil = "a\x1b]0;owned\x07\n\x9b2J\u202eb"
    newest.psql.rows("select broker.create_queue(%s)", evil)
    file = tmp_path / "objects.py"
    file.write_text(f"import pybroker\ndefinitions = [pybroker.MessageType({evil!r})]\n")
    url = ("--database-url", newest.database.url)
    for command in (
        ("queue", "list"),
        ("queue", "list", "--json"),
        ("queue", "off", evil),
        ("apply", str(file)),
    ):
        result = CliRunner().invoke(application, [*command, *url])
        assert (result.exit_code, "owned" in result.output) == (0, True), result.output
        assert all(one.isprintable() or one in "\n\t" for one in result.output), result.output
        if "--json" in command:
            assert evil in [queue["queue"] for queue in json.loads(result.output)]
    event = {"timestamp": "now", "level": "error", "event": evil, "queue": evil, "exception": evil}
    for log_format in ("text", "json"):
        line = logs.rendered(event, log_format)
        assert all(one.isprintable() or one == "\n" for one in line), line
    assert json.loads(line) == event
    newest.psql.rows("select broker.drop_queue(%s)", evil)


def test_a_database_that_is_away_is_an_error(newest: Diagnosed) -> None:
    url = newest.database.url.replace(newest.database.name, "nowhere")
    code, output = newest.command("--far-database-url", url, "--json")
    assert code == 1
    assert [one["number"] for one in json.loads(output)["findings"]] == [1]


def test_a_database_without_a_broker(server: EmbeddedServer) -> None:
    result = CliRunner().invoke(application, ["diagnose", "--json", "--database-url", server.url("postgres")])
    assert result.exit_code == 1
    assert [one["number"] for one in json.loads(result.output)["findings"]] == [2]


def test_a_database_that_is_newer_than_the_package(database: Database) -> None:
    with database.connect() as session:
        session.execute("comment on schema broker is 'pybroker 99.2: the functions and views for everybody'")
    url = ("--database-url", database.url)
    for command in (("migrate",), ("status", "--interval", "0.1"), ("diagnose",)):
        result = CliRunner().invoke(application, [*command, *url])
        assert "pip install 'pybroker>=99.2'" in result.output, result.output
        assert "Traceback" not in result.output
        assert result.exit_code == (0 if command[0] == "status" else 1)
    with database.connect() as session:
        session.execute("comment on schema broker is null")
        session.execute("update broker_private.alembic_version set version_num = '9999_later'")
    result = CliRunner().invoke(application, ["migrate", *url])
    assert (result.exit_code, "9999_later" in result.output) == (1, True), result.output


def test_a_worker_goes_on_beside_a_database_that_is_newer(database: Database) -> None:
    with database.connect() as session:
        session.execute("comment on schema broker is 'pybroker 99.2: the functions and views for everybody'")
    command = [sys.executable, "-m", "pybroker", "worker", "--database-url", database.url]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as worker:
        assert worker.stderr is not None
        told = ""
        for line in worker.stderr:
            told += line
            if "worker_ready" in line:
                break
        worker.terminate()
        told += worker.stderr.read()
    assert "pybroker>=99.2" in told
    assert worker.returncode == 0, told


def test_a_worker_waits_for_a_database_that_is_away(server: EmbeddedServer) -> None:
    name = f"late_{uuid.uuid4().hex[:8]}"
    command = [sys.executable, "-m", "pybroker", "worker", "--wait", "--database-url", server.url(name)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as worker:
        assert worker.stderr is not None
        told = ""
        for line in worker.stderr:
            told += line
            if "worker_waits" in line:
                migrated_database(server, name)
            elif "worker_ready" in line:
                break
        worker.terminate()
        told += worker.stderr.read()
    assert worker.returncode == 0, told
    with psycopg.connect(server.url("postgres"), autocommit=True) as session:
        session.execute(f'drop database "{name}" with (force)'.encode())


def test_wrong_usage_is_told(newest: Diagnosed) -> None:
    assert newest.command("configuration")[0] == 2
    assert newest.command("runtime")[0] == 2
    assert newest.command("--fix", "--json")[0] == 2
    assert newest.command("--yes")[0] == 2
    assert newest.command("--fix", "--yes", "--destructive")[0] == 2


def test_row_168_runtime_ends_when_the_message_has_arrived(newest: Diagnosed) -> None:
    dialog = newest.psql.dialog()
    watching = in_background(
        lambda: newest.command("runtime", "--conversation", str(dialog), "--json", "--timeout", "60")
    )
    newest.psql.send(dialog)
    code, output = watching.result(200)
    assert code == 0
    assert [one["number"] for one in json.loads(output)["findings"]] == [415]
    received_all(newest)


def test_a_queue_is_listed_and_turned_on_and_off(newest: Diagnosed) -> None:
    def typed(*arguments: str) -> tuple[int, str]:
        result = CliRunner().invoke(application, ["queue", *arguments, "--database-url", newest.database.url])
        return result.exit_code, result.output

    assert typed("off", "warehouse") == (0, "warehouse\toff\n")
    assert typed("list") == (0, "shop\ton\nwarehouse\toff\n")
    assert newest.numbers() == [202]
    assert typed("on", "warehouse")[0] == 0
    assert json.loads(typed("list", "--json")[1])[1] == {"queue": "warehouse", "is_enabled": True}
    code, output = typed("on", "nowhere")
    assert (code, "HINT" in output, "Traceback" in output) == (1, True, False)


def test_a_message_is_sent_and_looked_at_from_a_shell(newest: Diagnosed) -> None:
    def typed(*arguments: str, given: bytes | None = None) -> tuple[int, str]:
        line = [*arguments, "--database-url", newest.database.url]
        result = CliRunner().invoke(application, line, input=given)
        return result.exit_code, result.output

    way = ("--from-service", "//shop", "--to-service", "//warehouse", "--contract", "ordering")
    code, handle = typed("send", "one\ttab", *way, "--message-type", "order")
    assert code == 0, handle
    assert (
        typed("send", "-", "--conversation", handle.strip(), "--message-type", "order", given=b"\xff")[0] == 0
    )
    assert typed("send", "--conversation", handle.strip(), "--message-type", "order")[0] == 0, (
        "without a body"
    )
    for option in (way[:2], way[2:4], way[4:], ("--no-encryption",)):
        assert typed("send", "x", "--conversation", handle.strip(), *option)[0] == 2, option
    code, output = typed("peek", "warehouse")
    assert [line.split("\t")[2:] for line in output.splitlines()] == [
        ["//warehouse", "order", "7", "one\\ttab"],
        ["//warehouse", "order", "1", "\ufffd"],
        ["//warehouse", "order", "", ""],
    ]
    code, output = typed("peek", "warehouse", "--top", "1", "--json")
    assert (json.loads(output)["body_size"], json.loads(output)["body_start"]) == (7, "b25lCXRhYg==")
    assert newest.psql.bodies() == [b"one\ttab", b"\xff", None], "nothing was taken"
    assert typed("send", "x")[0] == typed("send", "x", "--conversation", handle.strip(), *way)[0] == 2
    assert typed("send", "x", *way, "--message-type", "nothing")[0] == 1
    sides = "select count(*) from broker.conversation_endpoints"
    assert newest.psql.value(sides) == 2, "what was refused has begun no conversation"


CONFIGURATION = ("configuration", "--from-service", "//shop", "--to-service", "//warehouse", "--json")


def found_by(shop: Diagnosed, *arguments: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(shop.command(*CONFIGURATION, *arguments)[1])["findings"]
    return found


def test_row_168_a_configuration_within_one_database(newest: Diagnosed) -> None:
    assert found_by(newest, "--contract", "ordering") == []
    newest.psql.rows("select broker.alter_service('//warehouse', drop_contracts => '{ordering}')")
    (found,) = found_by(newest, "--contract", "ordering")
    assert found["number"] == 503
    newest.psql.rows(found["mend"][0]["statement"])
    assert found_by(newest, "--contract", "ordering") == []
    assert [one["number"] for one in found_by(newest, "--contract", "nothing")] == [502]


def test_row_168_a_configuration_of_two_databases(newest: Diagnosed, server: EmbeddedServer) -> None:
    far = migrated_database(server, f"far_{uuid.uuid4().hex[:8]}")
    arguments = ("--contract", "ordering", "--far-database-url", far.url, "--encryption", "off")
    with far.connect() as session:
        session.execute("select broker.create_queue('warehouse')")
        found = found_by(newest, *arguments)
        assert [one["number"] for one in found] == [501, 502, 506, 506]
        for kind in ("order", "ack", "nudge", "invoice"):
            session.execute("select broker.create_message_type(%s)", (kind,))
        session.execute(found[1]["mend"][0]["statement"].encode())
        session.execute(found[0]["mend"][0]["statement"].replace("'QUEUE'", "'warehouse'").encode())
        found = found_by(newest, *arguments)
        assert [(one["number"], one["object"]) for one in found[:2]] == [(505, "invoice"), (505, "nudge")]
        for one in found[:2]:
            session.execute(one["mend"][0]["statement"].encode())
        # Another route has the name that would be given.
        newest.psql.rows("select broker.create_route('//warehouse', 'tcp://other:4022', '//other')")
        found = found_by(newest, *arguments)
        assert [one["number"] for one in found] == [506, 506, 507]
        for (mend,) in (one["mend"] for one in found):
            statement = mend["statement"].replace("HOST:PORT", "far:4022").replace("USER", "public")
            (session if mend["is_far"] else newest.psql.connection).execute(statement)
        assert found_by(newest, *arguments) == []
        encrypted = ("--contract", "ordering", "--far-database-url", far.url)
        assert [one["number"] for one in found_by(newest, *encrypted)] == [508]
        # Neither check is the lower one: which one is right, the owners know.
        session.execute("select broker.alter_message_type('invoice', 'EMPTY')")
        (one,) = found_by(newest, *arguments)
        ways = [(mend["is_far"], mend["statement"].split(", ")[1]) for mend in one["mend"]]
        assert ways == [(False, "'EMPTY')"), (True, "'WELL_FORMED_XML')")]
        session.execute(one["mend"][1]["statement"].encode())
        # A check that only the far side lacks is no reason to lower this one.
        session.execute("select broker.alter_message_type('order', 'VALID_JSON')")
        (one,) = found_by(newest, *arguments)
        assert [mend["is_far"] for mend in one["mend"]] == [False]
        newest.psql.rows(one["mend"][0]["statement"])
        newest.psql.rows("select broker.create_contract('apart', sent_by_initiator => '{order}')")
        session.execute("select broker.create_contract('apart', sent_by_any => '{order}')")
        session.execute("select broker.alter_service('//warehouse', add_contracts => '{apart}')")
        apart = ("--contract", "apart", *arguments[2:])
        assert [one["number"] for one in found_by(newest, *apart)] == [504]
        session.execute("select broker.alter_service('//warehouse', drop_contracts => '{apart}')")
        session.execute("select broker.drop_contract('apart')")
        session.execute(
            "select broker.create_contract('apart', sent_by_initiator => '{order}'),"
            " broker.alter_service('//warehouse', add_contracts => '{apart}')"
        )
        assert found_by(newest, *apart) == []


# --- the numbers


def test_each_number_is_in_the_catalogue_and_the_table_in_the_docs() -> None:
    emitted: set[int] = set()
    for path in (ROOT / "sql" / "diagnosis").glob("*.sql"):
        text = path.read_text(encoding="utf-8")
        emitted |= {int(number) for number in re.findall(r"broker_private\.finding\(\s*(\d{3}),", text)}
        emitted |= {int(number) for number in re.findall(r"(?:then|else) (\d{3})\b", text)}
    for path in (ROOT / "pybroker" / "diagnosis").glob("*.py"):
        text = path.read_text(encoding="utf-8")
        emitted |= {int(number) for number in re.findall(r"Finding\(\s*(\d{1,3}),", text)}
    assert emitted | {2, 3, 4} == set(KINDS)
    assert table() in (ROOT / "docs" / "diagnose.md").read_text(encoding="utf-8")


# --- what is healthy


EXAMPLES = int(os.environ.get("PYBROKER_TEST_EXAMPLES", "24"))
STEPS = st.lists(
    st.sampled_from(
        ["dialog", "send", "backlog", "receive", "reply", "end", "off", "on", "retention", "trace", "worker"]
    ),
    max_size=12,
)


@pytest.fixture(scope="module")
def healthy(server: EmbeddedServer) -> Iterator[Diagnosed]:
    with diagnosed(server) as shop:
        yield shop


@settings(max_examples=EXAMPLES)
@given(steps=STEPS)
def test_a_healthy_set_up_raises_no_alarm(healthy: Diagnosed, steps: list[str]) -> None:
    """Whatever an application does by the book, it is told of no error and no warning that isn't one."""
    psql = healthy.psql
    dialog, is_off = psql.dialog(), False
    psql.send(dialog)
    for step in steps:
        match step:
            case "dialog":
                dialog = psql.dialog()
                psql.send(dialog)
            case "send":
                psql.send(dialog)
            case "backlog":
                psql.rows("select broker.send_batch(%s, 'order', array_fill('x'::bytea, array[200]))", dialog)
            case "receive" if not is_off:
                psql.receive(top=50)
            case "reply" if not is_off:
                if far := psql.handle_of(dialog):
                    psql.send(far, "ack")
            case "end":
                psql.end(dialog)
                dialog = psql.dialog()
                psql.send(dialog)
            case "off" | "on":
                is_off = step == "off"
                psql.rows("select broker.alter_queue('warehouse', status => %s)", not is_off)
            case "retention":
                psql.rows("select broker.alter_queue('shop', retention => true)")
            case "worker":
                psycopg.connect(healthy.database.url, application_name="pybroker worker").close()
            case "trace":
                psql.rows("select broker.start_trace()")
    alarms = [one for one in healthy.findings() if one["level"] != "information" and one["number"] != 203]
    psql.rows("select broker.alter_queue('warehouse', status => true)")
    psql.rows("select broker.stop_trace()")
    assert alarms == []


def buffers(shop: Diagnosed) -> int:
    """How many pages one diagnosis reads."""
    shop.findings()
    plan = shop.psql.value("explain (analyze, buffers, format json) select from broker.diagnose()")
    top = plan[0]["Plan"]
    return int(top["Shared Hit Blocks"]) + int(top["Shared Read Blocks"])


def test_a_diagnosis_reads_no_more_pages_of_a_long_queue(newest: Diagnosed) -> None:
    dialog = newest.psql.dialog()
    newest.psql.send(dialog)
    many = "select broker.send_batch(%s, 'order', array_fill('x'::bytea, array[10000]))"
    newest.psql.rows(many, dialog)
    newest.psql.rows("analyze broker_private.messages")
    few = buffers(newest)
    for _ in range(4):
        newest.psql.rows(many, dialog)
    assert newest.psql.value("select pg_relation_size('broker_private.messages') / 8192") > 400
    assert buffers(newest) < few + 100


def test_each_further_queue_costs_a_diagnosis_the_same(newest: Diagnosed) -> None:
    buffers(newest)
    read = []
    for begin, end in ((1, 10), (11, 30), (31, 50)):
        newest.psql.rows(
            "select broker.create_queue('q' || n), broker.create_service('//q' || n, 'q' || n, '{DEFAULT}')"
            " from generate_series(%s::integer, %s) n",
            begin,
            end,
        )
        newest.psql.rows(
            "select broker.send(broker.begin_dialog('//shop', '//q' || n), 'DEFAULT', 'x'::text)"
            " from generate_series(%s::integer, %s) n",
            begin,
            end,
        )
        read.append(buffers(newest))
    first, second, third = read
    assert third - second < 1.5 * (second - first)
