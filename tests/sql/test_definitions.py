"""A database gets what a program defines: once, again without a change, and never by losing a conversation unasked."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
import sqlalchemy.exc
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import create_engine

import pybroker
import pybroker.migrations.operations
from pybroker import (
    BrokerPriority,
    Contract,
    DefinitionError,
    Grant,
    MessageType,
    Queue,
    RemoteServiceBinding,
    Route,
    SchemaCollection,
    Service,
)
from pybroker.migrations import upgrade
from tests.patience import until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pybroker.definitions import Definition
    from tests.conftest import Database

XSD = '<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema"><xs:element name="order"/></xs:schema>'
SHOP: Sequence[Definition | Grant] = (
    Service("//shop/orders", queue="orders"),
    Service("//shop/warehouse", queue="warehouse", contracts=["//shop/ordering"]),
    Queue("orders", watchdog=timedelta(seconds=30)),
    Queue("warehouse", retention=True, poison_action="QUARANTINE"),
    Contract("//shop/ordering", sent_by_initiator=["//shop/order"], sent_by_any=["//shop/note"]),
    MessageType("//shop/order", validation="VALID_XML", schema_collection="shop"),
    MessageType("//shop/note", validation="VALID_JSON"),
    SchemaCollection("shop", documents=[XSD]),
    Route("far", address="tcp://far.example:4022", service_name="//far/warehouse"),
    RemoteServiceBinding("far", to_service="//far/warehouse", user_name="far worker"),
    BrokerPriority("urgent", contract_name="//shop/ordering", priority_level=8),
    Grant("SEND", "SERVICE", "//shop/warehouse", "public"),
)


@pytest.fixture
def broker(database: Database) -> Iterator[pybroker.Broker]:
    """A broker with nothing defined."""
    with pybroker.connect(database.url) as made:
        yield made


def changed(name: str, replacement: Definition) -> list[Definition | Grant]:
    """The shop with another definition of one object."""
    return [
        replacement if getattr(each, "name", None) == name and type(each) is type(replacement) else each
        for each in SHOP
    ]


def summaries(plan: pybroker.Plan) -> list[str]:
    return [step.summary for step in plan.steps]


def test_what_is_defined_is_there_and_a_message_goes_through_it(
    broker: pybroker.Broker, database: Database
) -> None:
    plan = broker.apply(SHOP)
    assert len(plan.steps) == len(SHOP)
    dialog = broker.begin_dialog("//shop/orders", "//shop/warehouse", "//shop/ordering")
    dialog.send("//shop/note", {"id": 1})
    (message,) = broker.receive("warehouse")
    assert (message.message_body, message.priority) == (b'{"id":1}', 8)
    with database.connect() as session:
        assert session.execute(
            "select name, is_retention_enabled, poison_action, watchdog from broker.service_queues order by name"
        ).fetchall() == [
            ("orders", False, "DISABLE_QUEUE", timedelta(seconds=30)),
            ("warehouse", True, "QUARANTINE", timedelta(seconds=60)),
        ]


def test_processes_that_start_together_define_each_thing_once(database: Database) -> None:
    apart = [Queue("together"), Service("//together", queue="together")]
    start = threading.Barrier(4)
    waiting = "select pid from pg_locks where locktype = 'advisory' and not granted"

    def applied() -> int:
        with pybroker.connect(database.url) as broker:
            start.wait()
            return len(broker.apply(apart).steps)

    engine = create_engine(database.url.replace("postgresql://", "postgresql+psycopg://"))
    with ThreadPoolExecutor(4) as processes, database.connect() as session:
        # A migration replaces what they call, and would wait for what they have read.
        with engine.begin() as migrating:
            upgrade(migrating)
            started = [processes.submit(applied) for _ in range(4)]
            until(lambda: session.execute(waiting).rowcount + sum(each.done() for each in started) == 4)
            assert not any(each.done() for each in started)
            read = f"select from pg_locks where pid in ({waiting}) and locktype = 'relation' and relation >= 16384"
            assert session.execute(read).rowcount == 0
        steps = [each.result() for each in started]
    engine.dispose()
    assert sorted(steps) == [0, 0, 0, 2]


def test_what_was_applied_is_not_done_again(broker: pybroker.Broker) -> None:
    broker.apply(SHOP)
    assert broker.apply(reversed(SHOP)).steps == ()
    assert str(broker.apply(SHOP, prune=True)) == "nothing to do"


def test_a_dry_run_changes_nothing(broker: pybroker.Broker) -> None:
    planned = broker.apply(SHOP, dry_run=True)
    assert broker.apply(SHOP, dry_run=True) == planned
    assert broker.apply(SHOP) == planned


@pytest.mark.parametrize(
    ("replacement", "summary"),
    [
        (Queue("warehouse", poison_action="QUARANTINE"), "alter queue warehouse: retention off"),
        (Queue("orders", watchdog=timedelta(seconds=30), status=False), "alter queue orders: status off"),
        (MessageType("//shop/note"), "alter message type //shop/note: validation NONE"),
        (Service("//shop/orders", queue="warehouse"), "alter service //shop/orders: queue warehouse"),
        (Service("//shop/warehouse", queue="warehouse"), "alter service //shop/warehouse: contracts none"),
        (BrokerPriority("urgent", priority_level=8), "alter broker priority urgent: contract_name None"),
        (
            Route("far", address="tcp://far.example:4023", service_name="//far/warehouse"),
            "alter route far: address tcp://far.example:4023",
        ),
        (
            RemoteServiceBinding("far", to_service="//far/warehouse", user_name="far worker", anonymous=True),
            "alter remote service binding far: anonymous on",
        ),
    ],
)
def test_what_differs_is_altered_alone(
    broker: pybroker.Broker, replacement: Definition, summary: str
) -> None:
    broker.apply(SHOP)
    definitions = changed(replacement.name, replacement)
    assert summaries(broker.apply(definitions)) == [summary]
    assert broker.apply(definitions).steps == ()


def test_a_clause_that_a_route_can_not_unset_is_a_new_route(broker: pybroker.Broker) -> None:
    broker.apply(SHOP)
    plan = broker.apply(changed("far", Route("far", address="tcp://far.example:4022")))
    assert summaries(plan) == ["drop route far", "create route far"]


def test_a_procedure_that_is_no_longer_defined_is_no_longer_started(
    broker: pybroker.Broker, database: Database
) -> None:
    with database.connect() as session:
        session.execute("create procedure public.fulfil() language plpgsql as 'begin end'")
    started = Queue("orders", activation_procedure="public.fulfil", max_queue_readers=2)
    broker.apply([started])
    assert broker.apply([started]).steps == ()
    broker.apply([Queue("orders")])
    with database.connect() as session:
        found = session.execute(
            "select activation_procedure, max_readers from broker.service_queues"
        ).fetchone()
    assert found == (None, None)
    assert broker.apply([Queue("orders")]).steps == ()


def test_what_is_not_defined_stays_unless_it_is_pruned(broker: pybroker.Broker) -> None:
    broker.apply(SHOP)
    few = [each for each in SHOP if not isinstance(each, Grant | Route)]
    assert broker.apply(few).steps == ()
    plan = broker.apply(few, prune=True)
    assert summaries(plan) == ["revoke SEND on service //shop/warehouse from public", "drop route far"]
    assert all(step.is_destructive for step in plan.steps)


def test_types_of_a_pruned_contract_stay_as_long_as_its_conversations_may(broker: pybroker.Broker) -> None:
    broker.apply([*SHOP, MessageType("//shop/unused")])
    plan = broker.apply([], prune=True)
    assert "drop contract //shop/ordering" in summaries(plan)
    assert summaries(plan)[-1] == "drop message type //shop/unused"
    assert {step.function for step in broker.apply(SHOP).steps}.isdisjoint(
        {"create_message_type", "create_schema_collection"}
    )


def test_a_queue_that_somebody_turned_off_stays_off(broker: pybroker.Broker, database: Database) -> None:
    broker.apply(SHOP)
    with database.connect() as session:
        session.execute("select broker.alter_queue('orders', status => false)")
    assert broker.apply(SHOP).steps == ()


def test_a_contract_in_use_is_refused_with_the_steps_that_work(broker: pybroker.Broker) -> None:
    broker.apply(SHOP)
    wider = Contract("//shop/ordering", sent_by_any=["//shop/order", "//shop/note"])
    others = changed("orders", Queue("orders", retention=True))
    definitions = [wider if isinstance(each, Contract) else each for each in others]
    with pytest.raises(DefinitionError) as refused:
        broker.apply(definitions)
    assert "//shop/warehouse use it" in refused.value.message
    assert "another name" in (refused.value.hint or "")
    # Nothing else was done either.
    assert broker.apply(SHOP).steps == ()


def test_a_contract_that_nobody_uses_is_made_anew(broker: pybroker.Broker) -> None:
    broker.apply([MessageType("a"), MessageType("b"), Contract("c", sent_by_initiator=["a"])])
    plan = broker.apply([Contract("c", sent_by_initiator=["a", "b"])])
    assert summaries(plan) == ["drop contract c", "create contract c"]


@pytest.mark.parametrize(
    ("definitions", "message"),
    [
        ([Queue("q"), Queue("q", retention=True)], "queue q is defined twice."),
        ([SchemaCollection("shop", documents=[XSD.replace("order", "note")])], "has other documents"),
    ],
)
def test_what_can_not_be_meant_is_refused(
    broker: pybroker.Broker, definitions: list[Definition], message: str
) -> None:
    broker.apply([SchemaCollection("shop", documents=[XSD])])
    with pytest.raises(DefinitionError, match=message):
        broker.apply(definitions)


def test_a_string_is_no_list_of_names() -> None:
    with pytest.raises(TypeError, match="give a list of names"):
        Contract("c", sent_by_any="//shop/order")


def test_a_step_that_is_refused_undoes_those_before_it(broker: pybroker.Broker) -> None:
    with pytest.raises(pybroker.MessageTypeNotFound):
        broker.apply([Queue("q"), MessageType("a"), Contract("c", sent_by_initiator=["b"])])
    assert summaries(broker.apply([Queue("q"), MessageType("a")])) == [
        "create message type a",
        "create queue q",
    ]


def test_a_role_without_rights_is_told_and_changes_nothing(database: Database) -> None:
    role = database.role()
    with (
        pybroker.connect(database.server.url(database.name, user=role)) as stranger,
        pytest.raises(pybroker.PermissionDenied),
    ):
        stranger.apply([MessageType("a")])
    with pybroker.connect(database.url) as broker:
        assert summaries(broker.apply([MessageType("a", owner=role)])) == ["create message type a"]
        assert summaries(broker.apply([MessageType("a", owner="postgres")])) == [
            "alter message type a: owner postgres"
        ]


def test_the_async_client_applies_too(database: Database) -> None:
    async def apply() -> tuple[pybroker.Plan, pybroker.Plan]:
        async with await pybroker.connect_async(database.url) as broker:
            return await broker.apply(SHOP), await broker.apply(SHOP)

    first, second = asyncio.run(apply())
    assert (len(first.steps), second.steps) == (len(SHOP), ())


def test_the_command_shows_and_applies_a_file(database: Database, tmp_path: Path) -> None:
    file = tmp_path / "definitions.py"
    file.write_text(
        "from pybroker import MessageType, Queue\n\ndefinitions = [Queue('q'), MessageType('a')]\n"
    )
    command = [sys.executable, "-m", "pybroker", "apply", str(file), "--database-url", database.url]

    def run(*options: str) -> str:
        done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert run("--dry-run") == "create message type a\ncreate queue q\n"
    assert [step["summary"] for step in json.loads(run("--json"))["steps"]] == [
        "create message type a",
        "create queue q",
    ]
    assert run() == "nothing to do\n"


@pytest.mark.parametrize("text", ["definitions = 1", "other = []"])
def test_a_file_without_definitions_is_wrong_usage(database: Database, tmp_path: Path, text: str) -> None:
    file = tmp_path / "definitions.py"
    file.write_text(text)
    command = [sys.executable, "-m", "pybroker", "apply", str(file), "--database-url", database.url]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "has no list" in refused.stderr


def test_an_application_s_own_revision_applies_definitions(database: Database, tmp_path: Path) -> None:
    engine = create_engine(database.url.replace("postgresql://", "postgresql+psycopg://"))

    def revise(*definitions: Definition | Grant, then: str) -> int:
        with engine.begin() as connection:
            op = Operations(MigrationContext.configure(connection))
            plan = op.apply_broker_definitions(definitions)
            op.execute(then)
        return len(plan.steps)

    assert revise(*SHOP, then="create table order_lines (id bigint)") == len(SHOP)
    with pytest.raises(sqlalchemy.exc.ProgrammingError):
        revise(Queue("later"), then="do $$ begin raise 'the migration fails'; end $$")
    engine.dispose()
    with pybroker.connect(database.url) as broker:
        assert summaries(broker.apply([*SHOP, Queue("later")], dry_run=True)) == ["create queue later"]


def test_seconds_are_a_duration_as_good_as_a_timedelta(broker: pybroker.Broker, database: Database) -> None:
    applied = broker.apply([Queue("orders", watchdog=30), Route("far", address="LOCAL", lifetime=3600)])
    assert len(applied.steps) == 2
    assert broker.apply([Queue("orders", watchdog=timedelta(seconds=30))]).steps == ()
    with database.connect() as session:
        of_queue = session.execute("select watchdog from broker.service_queues where name = 'orders'")
        assert of_queue.fetchone() == (timedelta(seconds=30),)
        of_route = session.execute(
            "select lifetime - now() between interval '59 min' and interval '1 h' from broker.routes"
            " where name = 'far'"
        )
        assert of_route.fetchone() == (True,)
