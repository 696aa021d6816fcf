"""Pytest fixtures for programs that use the broker: a PostgreSQL of their own, with a database for each test.

Name it in your conftest.py (it needs `pip install "pybroker[embedded]"`, and nothing that runs already):

    pytest_plugins = ["pybroker.testing"]

| fixture | scope | what it is |
|---|---|---|
| `broker_server` | session | an `EmbeddedServer` |
| `broker_database` | test | a `BrokerDatabase` on it: migrated, empty, and gone after the test |
"""

from __future__ import annotations

import logging
import time
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import uuid4

import psycopg
import pytest
from psycopg.rows import class_row

from pybroker.client.broker import Broker, connect
from pybroker.embedded import EmbeddedServer
from pybroker.message import COLUMNS, ReceivedMessage
from pybroker.migrations import migrate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pybroker.programs.app import App

_TEMPLATE = "pybroker_template"
_LOOK_SECONDS = 0.02
# All in one snapshot: what a handler sends is there as soon as what it received is gone.
_WAITING = "select d.queue_name, d.ready from broker.queue_depths d where d.queue_name = any (%s::text[])"
_CLOCK = (
    "create or replace function broker_private.clock() returns timestamptz language sql volatile"
    " begin atomic select pg_catalog.clock_timestamp() + interval '{ahead:f} s'; end"
)


@dataclass
class BrokerDatabase:
    """A database for one test. The test is its owner, so it may do everything.

    Attributes:
        url: for `pybroker.App`, for `psycopg.connect`, for programs of other kinds.
    """

    url: str
    _ahead: timedelta = field(default_factory=timedelta, init=False)

    def connect(self) -> Broker:
        """Return a broker; use it in a `with` statement."""
        return connect(self.url)

    def messages(self, queue: str) -> list[ReceivedMessage]:
        """Return what waits in a queue, in the order in which RECEIVE would return it. It stays there.

        Args:
            queue: the queue's name, as it is written in the database.

        Raises:
            LookupError: there is no such queue.
        """
        with psycopg.connect(self.url, row_factory=class_row(ReceivedMessage)) as session:
            if not session.execute(
                "select from broker.service_queues q where q.name = %s", (queue,)
            ).rowcount:
                raise LookupError(f'There is no queue "{queue}" in the test\'s database.')
            return session.execute(
                f"select {', '.join(f'm.{column}' for column in COLUMNS)}"  # noqa: S608
                " from broker.queue_messages m join broker.service_queues q on q.object_id = m.queue_id"
                " where q.name = %s and m.status = 1 order by m.priority desc, m.queuing_order",
                (queue,),
            ).fetchall()

    def run_until_quiet(self, app: App, *, timeout: float = 30.0) -> None:
        """Run an application until nothing waits in the queues that it reads, and what it did is committed.

        Args:
            app: an application on this database; it is stopped at the end, and can be run again.
            timeout: seconds until it should be quiet.

        Raises:
            Exception: a handler's own, at the first one that fails. Its messages are back in their queue.
            AssertionError: messages still wait; the text says how many, and where.
            BrokerError, LookupError: what `App.run` raises, such as for a queue that is off.
        """
        failures = _Failures()
        logger = logging.getLogger("pybroker.app")
        logger.addHandler(failures)
        try:
            with ThreadPoolExecutor(1, thread_name_prefix="app") as executor:
                running = executor.submit(app.run)
                try:
                    waiting = self._wait(app, lambda: running.done() or bool(failures.seen), timeout)
                finally:
                    # One that has ended by itself would take this for its next run.
                    if not running.done():
                        app.stop()
                    wait([running])
            running.result()
        finally:
            logger.removeHandler(failures)
        if failures.seen:
            raise failures.seen[0]
        if waiting:
            raise AssertionError(f"After {timeout:g} s messages still wait: {waiting}.")

    def let_pass(self, seconds: float) -> None:
        """Let so many more seconds have passed: timers and lifetimes that are over fire, retries are due.

        The broker's clock in this database goes on from there. `now()` of your own statements doesn't change.

        Args:
            seconds: added to what earlier calls let pass.
        """
        self._ahead += timedelta(seconds=seconds)
        with psycopg.connect(self.url) as session:
            session.execute(_CLOCK.format(ahead=self._ahead.total_seconds()).encode())
            session.execute("select broker_private.fire_timers()")
            session.execute("select broker_private.put_back_due(null)")

    def _wait(self, app: App, is_over: Callable[[], bool], timeout: float) -> str:
        """Return what still waits, as a text; empty if nothing does."""
        until = time.monotonic() + timeout
        with psycopg.connect(self.url, autocommit=True) as session:
            while True:
                found = session.execute(_WAITING, (list(app.queues),)).fetchall()
                waiting = [f'{ready} in "{name}"' for name, ready in found if ready]
                if not waiting or is_over():
                    return ""
                if time.monotonic() >= until:
                    return ", ".join(waiting)
                time.sleep(_LOOK_SECONDS)


class _Failures(logging.Handler):
    """What handlers raised, as the application logs it."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.seen: list[BaseException] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            self.seen.append(record.exc_info[1])


@pytest.fixture(scope="session")
def broker_server() -> Iterator[EmbeddedServer]:
    """A PostgreSQL server that ends with the tests. It does not wait for the disk."""
    with EmbeddedServer(settings={"fsync": "off"}) as server:
        server.create_database(_TEMPLATE)
        migrate(server.url(_TEMPLATE))
        yield server


@pytest.fixture
def broker_database(broker_server: EmbeddedServer) -> Iterator[BrokerDatabase]:
    """A migrated database without any queue, of this test alone."""
    name = f"test_{uuid4().hex[:12]}"
    with psycopg.connect(broker_server.url("postgres"), autocommit=True) as session:
        session.execute(f'create database "{name}" template "{_TEMPLATE}"'.encode())
        database = BrokerDatabase(broker_server.url(name))
        with psycopg.connect(database.url, autocommit=True) as own:
            # A copy is a broker of its own once it says so.
            own.execute("select broker.alter_broker('NEW_BROKER')")
        try:
            yield database
        finally:
            session.execute(f'drop database if exists "{name}" with (force)'.encode())
