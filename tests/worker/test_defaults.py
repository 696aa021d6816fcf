"""What a server, a database or a role has as default for its sessions, and a worker that works all the same."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import psycopg
from structlog.testing import capture_logs

from pybroker.migrations import migrate
from pybroker.workers.clock import Clock
from pybroker.workers.database import Database as Served
from pybroker.workers.transport.dialog_security.secure_dialogs import SecureDialogs
from pybroker.workers.transport.outgoing.router import Router
from tests.activated import next_event, start_worker
from tests.shop import DEFINITIONS, Session, Shop, until

if TYPE_CHECKING:
    from collections.abc import Callable

    from pybroker.workers.transport.outgoing.siblings import Siblings
    from tests.conftest import Database

# Each could stop a session's work, change how PostgreSQL reads what it is told, or change how it answers.
DEFAULTS = {
    "array_nulls": "off",
    "backslash_quote": "off",
    "bytea_output": "escape",
    "check_function_bodies": "off",
    "client_encoding": "LATIN1",
    "DateStyle": "German, DMY",
    "default_transaction_deferrable": "on",
    "default_transaction_isolation": "serializable",
    "default_transaction_read_only": "on",
    "enable_indexscan": "off",
    "enable_nestloop": "off",
    "extra_float_digits": "-15",
    "idle_in_transaction_session_timeout": "1ms",
    "idle_session_timeout": "300ms",
    "IntervalStyle": "iso_8601",
    "lock_timeout": "1s",
    "plan_cache_mode": "force_custom_plan",
    "plpgsql.extra_errors": "all",
    "plpgsql.variable_conflict": "use_variable",
    "quote_all_identifiers": "on",
    "row_security": "off",
    "search_path": "nowhere",
    "session_replication_role": "replica",
    "standard_conforming_strings": "off",
    "statement_timeout": "20s",
    "synchronous_commit": "off",
    "TimeZone": "Pacific/Chatham",
    "transform_null_equals": "on",
    "work_mem": "64kB",
    "xmlbinary": "hex",
    "xmloption": "document",
}
# What of that would keep the test's own sessions from their work.
OPTIONS = (
    "-c default_transaction_read_only=off -c idle_session_timeout=0 -c idle_in_transaction_session_timeout=0"
    " -c statement_timeout=0 -c lock_timeout=0 -c client_encoding=UTF8 -c standard_conforming_strings=on"
)
LOOKS = 50
HERE, THERE = "//здесь", "//там"


def test_a_worker_works_whatever_the_defaults_of_its_databases_are(
    make_database: Callable[[str], Database],
) -> None:
    databases = [make_database("here"), make_database("there")]
    for made, service in zip(databases, (HERE, THERE), strict=True):
        with made.connect() as session:
            session.execute(DEFINITIONS)
            session.execute("select broker.create_service(%s, 'shop', '{ordering}')", (service,))
            session.execute("select broker.grant('SEND', 'SERVICE', %s, 'public')", (service,))
            for name, default in DEFAULTS.items():
                session.execute(f"alter database \"{made.name}\" set {name} = '{default}'".encode())
    sessions = [psycopg.connect(made.url, autocommit=True, options=OPTIONS) for made in databases]
    here, there = map(Session, sessions)
    worker = start_worker(*(made.url for made in databases))
    try:
        next_event(worker, "worker_ready")
        dialog = here.value(
            "select broker.begin_dialog(%s, %s, 'ordering', encryption => false)", HERE, THERE
        )
        here.send(dialog, "order", b"\x00\\1'")
        here.send(dialog, "invoice", b"<a>NULL</a>")
        large = b"large" * 200_000
        here.send(dialog, "order", large)
        arrived = there.received(3, "shop")
        assert [body for _, _, body in arrived] == [b"\x00\\1'", b"<a>NULL</a>", large]
        far = there.value("select conversation_handle from broker.conversation_endpoints")
        there.send(far, "ack", b"yes")
        assert here.received(1, "shop") == [("ack", 0, b"yes")]
        here.rows("select broker.begin_conversation_timer(%s, '0.1 s')", dialog)
        assert [kind.rpartition("/")[2] for kind, _, _ in here.received(1, "shop")] == ["DialogTimer"]
        there.rows(r"select broker.end_conversation(%s, 5, 'it''s over\ да')", far)
        ((_, _, error),) = here.received(1, "shop")
        assert error is not None
        assert r"it's over\ да" in error.decode()
    finally:
        worker.kill()
        worker.communicate()
        for session in sessions:
            session.close()


def test_a_name_that_the_far_database_s_encoding_lacks_holds_up_its_own_dialog_alone(
    make_database: Callable[[str], Database],
) -> None:
    here, there = make_database("here"), make_database("there")
    with psycopg.connect(here.server.url("postgres"), autocommit=True) as session:
        session.execute(f'drop database "{there.name}"'.encode())
        session.execute(
            f"create database \"{there.name}\" template template0 encoding 'LATIN1' locale 'C'".encode()
        )
    migrate(there.url)
    with here.connect() as first, there.connect() as second:
        near, far = Session(first), Session(second)
        for session in (near, far):
            session.rows(DEFINITIONS)
        far.rows("select broker.create_service('//there', 'warehouse', '{ordering}')")
        far.rows("select broker.grant('SEND', 'SERVICE', '//there', 'public')")
        near.rows("select broker.create_service(%s, 'shop')", HERE)
        for service in (HERE, "//shop"):
            dialog = near.value(
                "select broker.begin_dialog(%s, '//there', 'ordering', encryption => false)", service
            )
            near.send(dialog, "order", "1 €".encode())
        worker = start_worker(here.url, there.url)
        try:
            assert far.received(1) == [("order", 0, "1 €".encode())]
            status = "select transmission_status from broker.transmission_queue"
            until(lambda: "LATIN1" in "".join(row[0] or "" for row in near.rows(status)))
            assert len(near.rows(status)) == 1
        finally:
            worker.kill()
            worker.communicate()


class StoppedClock(Clock):
    """No time passes, however often somebody looks."""

    def __init__(self) -> None:
        self._looks = 0
        self.has_looked_often = asyncio.Event()

    def monotonic(self) -> float:
        return 0.0

    async def wait(self, event: asyncio.Event, seconds: float) -> bool:  # noqa: ARG002
        self._looks += 1
        if self._looks == LOOKS:
            self.has_looked_often.set()
        await asyncio.sleep(0.001)
        return event.is_set()

    async def sleep(self, seconds: float) -> None:  # noqa: ARG002
        await asyncio.sleep(0.001)


def test_what_the_database_refuses_to_note_is_tried_again_after_a_pause_and_not_at_each_look(
    shop: Shop,
) -> None:
    dialog = shop.psql.value("select broker.begin_dialog('//shop', '//nowhere', encryption => false)")
    shop.psql.rows("select broker.send(%s, 'DEFAULT')", dialog)
    shop.psql.rows("select broker.create_route('r', 'tcp://r:1', service_name => '//elsewhere')")
    shop.psql.rows("select broker.drop_route('AutoCreatedLocal')")
    shop.psql.rows(
        "create or replace function broker_private.set_destination_status(destination integer, status_text text)"
        " returns void language plpgsql as $$ begin raise 'no'; end $$"
    )

    async def look() -> None:
        clock = StoppedClock()
        async with Served(shop.database.url) as served:
            router = Router(
                served, cast("Siblings", None), SecureDialogs([served], None, clock), cast("Any", None), clock
            )
            running = asyncio.create_task(router.run())
            looked = asyncio.create_task(clock.has_looked_often.wait())
            done, _ = await asyncio.wait((running, looked), return_when=asyncio.FIRST_COMPLETED)
            assert looked in done, "it ended after fewer looks"
            running.cancel()
            await asyncio.wait((running,))

    with capture_logs() as logged:
        asyncio.run(look())
    assert [line["event"] for line in logged if line["event"] == "status_not_set"] == ["status_not_set"], (
        logged
    )
