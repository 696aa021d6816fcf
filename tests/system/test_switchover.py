"""A database that moves to its standby while messages pass, by Patroni: nothing is lost or doubled, and flow goes on."""

from __future__ import annotations

from contextlib import ExitStack
from threading import Event
from typing import TYPE_CHECKING

import psycopg
import pytest

from pybroker.migrations import migrate
from tests import missing
from tests.brokers import INITIATOR_DEFINITIONS, TARGET_DEFINITIONS, Site, free_port, introduce
from tests.patroni import BINARIES, NODES, patroni
from tests.shop import Session, in_background, until
from tests.system.test_deployment import tool

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pybroker.embedded import EmbeddedServer
    from tests.patroni import Cluster

LEDGERS = """
create table sent (number integer primary key);
create table received (place bigint generated always as identity, number integer);
"""


class Moving(Site):
    """A site whose database is the cluster's."""

    def __init__(self, name: str, cluster: Cluster, directory: Path) -> None:
        self.name = name
        self.keys = directory / name
        self.port = free_port()
        self.worker = None
        self.log = directory / f"{name}.log"
        with psycopg.connect(cluster.url("postgres"), autocommit=True) as session:
            session.execute(f'create database "{name}"'.encode())
        self.url = cluster.url(name)
        migrate(self.url)
        self.psql = self.session()

    def session(self, *, autocommit: bool = True) -> Session:
        return Session(psycopg.connect(self.url, autocommit=autocommit))


class Traffic:
    """Sends orders and receives answers in one thread, and answers in another, each in a transaction with its ledger.

    Attributes:
        lost: how many transactions of the initiator ended with their session.
        refused: how many times nobody took its connection.
        committed: the numbers whose COMMIT has said so.
    """

    def __init__(self, shop: Site, warehouse: Site) -> None:
        self._shop, self._warehouse = shop, warehouse
        self._is_over = Event()
        self.lost = self.refused = 0
        self.committed: list[int] = []
        for site in (shop, warehouse):
            site.psql.rows(LEDGERS)
        self._dialog = shop.psql.value(
            "select broker.begin_dialog('//shop', '//warehouse', 'ordering', encryption => false)"
        )

    def begin(self) -> None:
        self._workers = [in_background(self._initiate), in_background(self._answer)]

    def end(self) -> None:
        """Let all that was sent be answered."""
        self._is_over.set()
        for worker in self._workers:
            worker.result(120)

    def _initiate(self) -> None:
        while True:
            try:
                with psycopg.connect(self._shop.url, connect_timeout=5) as session:
                    try:
                        while self._turn(session):
                            self._is_over.wait(0.05)
                    except psycopg.OperationalError:
                        self.lost += 1
                    else:
                        return
            except psycopg.OperationalError:
                self.refused += 1
            # For nothing but not to ask all the time.
            self._is_over.wait(0.2)

    def _turn(self, session: psycopg.Connection[tuple[object, ...]]) -> bool:
        """Send the next one, and receive what is there; return False when all is over and answered."""
        row = session.execute(
            "select (select count(*) from sent), (select count(*) from received)"
        ).fetchone()
        assert row is not None
        sent, answered = row
        assert isinstance(sent, int)
        is_over = self._is_over.is_set()
        if not is_over:
            session.execute("insert into sent values (%s)", (sent,))
            session.execute("select broker.send(%s, 'order', %s::text)", (self._dialog, str(sent)))
        self._receive(session, "shop")
        session.commit()
        if not is_over:
            self.committed.append(sent)
        return not is_over or answered != sent

    def _answer(self) -> None:
        with psycopg.connect(self._warehouse.url) as session:
            while not (self._is_over.wait(0.05) and self._workers[0].done()):
                for handle, body in self._receive(session, "warehouse"):
                    session.execute("select broker.send(%s, 'ack', %s)", (handle, body))
                session.commit()

    def _receive(
        self, session: psycopg.Connection[tuple[object, ...]], queue: str
    ) -> list[tuple[object, bytes]]:
        rows = session.execute(
            "select conversation_handle, message_body from broker.receive(%s) order by queuing_order",
            (queue,),
        ).fetchall()
        for _, body in rows:
            session.execute("insert into received (number) values (%s)", (int(body),))
        return rows


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_a_switchover_by_patroni_loses_and_doubles_nothing(
    tmp_path: Path, server_for: Callable[[str, int], EmbeddedServer]
) -> None:
    """A worker that stays with the old primary, or a commit that the new one does not know."""
    tool("patroni", "patroni python3-etcd")
    tool("etcd", "etcd-server")
    if not BINARIES.is_dir():
        missing.skip("PostgreSQL 15", "apt-get install postgresql-15")
    with ExitStack() as stack:
        cluster = stack.enter_context(patroni())
        shop = Moving("shop", cluster, tmp_path)
        stack.callback(shop.close)
        warehouse = Site("warehouse", server_for("warehouse", 18), tmp_path)
        stack.callback(warehouse.drop_database)
        stack.callback(warehouse.close)
        introduce(shop, warehouse)
        shop.psql.rows(INITIATOR_DEFINITIONS)
        warehouse.psql.rows(TARGET_DEFINITIONS)
        shop.route("//warehouse", warehouse)
        warehouse.route("//shop", shop)
        traffic = Traffic(shop, warehouse)
        cluster.write_through()
        shop.start_worker()
        warehouse.start_worker()
        traffic.begin()
        for _ in NODES:
            seen = len(traffic.committed)
            until(lambda seen=seen: len(traffic.committed) >= seen + 20)
            cluster.switch_over()
            answered = warehouse.psql.value("select count(*) from received")
            until(lambda answered=answered: warehouse.psql.value("select count(*) from received") > answered)
        traffic.end()
        shop.reconnect()
        sent = [number for (number,) in shop.psql.rows("select number from sent order by number")]
        assert set(traffic.committed) <= set(sent) == set(range(len(sent)))
        for site in (shop, warehouse):
            assert [
                number for (number,) in site.psql.rows("select number from received order by place")
            ] == sent
        until(lambda: shop.psql.value("select count(*) from broker.transmission_queue") == 0)
        until(lambda: warehouse.psql.value("select count(*) from broker.transmission_queue") == 0)
        # Each switchover ends the initiator's session, and it may meet the old primary once more as it closes.
        assert len(NODES) <= traffic.lost <= 2 * len(NODES), (traffic.lost, traffic.refused)
