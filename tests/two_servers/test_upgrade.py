"""A database of the release 0.1.0 becomes one of this version under load, with workers of both: nothing is lost or doubled."""

from __future__ import annotations

import lzma
import subprocess
import sys
import threading
import time
import uuid
import zipfile
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from pybroker.migrations import MigrationError, migrate
from tests.brokers import INITIATOR_DEFINITIONS, TARGET_DEFINITIONS, Site, free_port, introduce
from tests.shop import DEFINITIONS, Session, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from uuid import UUID

    from pybroker.embedded import EmbeddedServer

RELEASES = Path(__file__).parents[1] / "releases"
DIALOGS = 4
IN_FLIGHT = 10
# A statement that meets the upgrade may be told to run again: its transaction has done nothing.
_AGAIN = (
    psycopg.errors.DeadlockDetected,
    psycopg.errors.UndefinedFunction,
    psycopg.errors.UndefinedColumn,
    psycopg.errors.InternalError_,
    psycopg.errors.FeatureNotSupported,
)


class OldSite(Site):
    """A site whose database the release made."""

    def __init__(self, name: str, server: EmbeddedServer, directory: Path, release: Path) -> None:
        self.name = name
        self.server = server
        self.keys = directory / name
        self.port = free_port()
        self.worker = None
        self.log = directory / f"{name}.log"
        # Safe, as `python -m` would look in the current folder first, which has this version's code.
        self.prefix = ("env", "PYTHONSAFEPATH=yes", f"PYTHONPATH={release}")
        found = [*self.prefix, sys.executable, "-c", "import pybroker; print(pybroker.__file__)"]
        imported = subprocess.run(found, check=True, capture_output=True, text=True).stdout
        assert Path(imported).is_relative_to(release), imported
        server.create_database(name)
        with psycopg.connect(server.url(name)) as session:
            session.execute(lzma.decompress((RELEASES / "0.1.0.sql.xz").read_bytes()))
        self.url = server.tcp_url(name)
        self.psql = self.session()

    def replace_worker(self) -> None:
        """Let the release's worker end in order, and start this version's."""
        assert self.stop_worker() == 0
        self.prefix = ()
        self.start_worker()


class Load:
    """Sessions that send and receive, each in transactions of their own, and what they have committed.

    They rest three times as long as they work, since beside sessions that always hold a lock nobody can upgrade,
    and send no more than is answered, on a slow machine too.

    Attributes:
        retries: how often each session was told to run a transaction again, by the error's kind.
    """

    def __init__(self, shop: Site, warehouse: Site) -> None:
        self.sent: Counter[str] = Counter()
        self.received: dict[str, list[int]] = {}
        self.answers: dict[str, list[int]] = {}
        self.failures: list[BaseException] = []
        self.retries: dict[str, Counter[str]] = {}
        self._shop = shop
        self._warehouse = warehouse
        self._is_over = threading.Event()
        self._is_sent = threading.Event()
        self._threads: list[threading.Thread] = []

    def begin(self, handles: dict[str, UUID]) -> None:
        for name, handle in handles.items():
            self._start(name, self._shop, lambda s, n=name, h=handle: self._send(s, n, h), self._is_sent)
        self._start("answering", self._warehouse, self._answer, self._is_over)
        self._start("noting", self._shop, self._note, self._is_over)

    def passes(self) -> None:
        """Wait until each dialog has had ten more messages answered."""
        before = {name: len(self.answers.get(name, ())) for name in self.sent}
        until(lambda: self.failures or all(len(self.answers.get(n, ())) >= k + 10 for n, k in before.items()))
        assert not self.failures, self.failures

    def end(self) -> None:
        """Send no more, and wait until all is answered."""
        self._is_sent.set()
        until(lambda: self.failures or sum(map(len, self.answers.values())) >= self.sent.total())
        self._is_over.set()
        for thread in self._threads:
            thread.join()
        assert not self.failures, self.failures

    def _start(
        self, name: str, site: Site, work: Callable[[Session], None], is_over: threading.Event
    ) -> None:
        retries = self.retries[name] = Counter()

        def run() -> None:
            session = site.session(autocommit=False)
            try:
                # So an upgrade that is in its way gives way each time, however long a busy machine makes it wait.
                session.rows("set deadlock_timeout = '1h'")
                session.connection.commit()
                rest = 0.01
                while not is_over.wait(rest):
                    begin = time.monotonic()
                    try:
                        work(session)
                    except _AGAIN as error:
                        retries[type(error).__name__] += 1
                        session.connection.rollback()
                    rest = max(0.01, 3 * (time.monotonic() - begin))
            except BaseException as error:
                self.failures.append(error)
            finally:
                session.connection.close()

        thread = threading.Thread(target=run)
        thread.start()
        self._threads.append(thread)

    def _send(self, session: Session, name: str, handle: UUID) -> None:
        if self.sent[name] >= len(self.answers.get(name, ())) + IN_FLIGHT:
            return
        session.send(handle, "order", f"{name}:{self.sent[name]}".encode())
        session.connection.commit()
        self.sent[name] += 1

    def _answer(self, session: Session) -> None:
        rows = session.rows(
            "select conversation_handle, message_body from broker.receive('warehouse', timeout => '0')"
        )
        for handle, body in rows:
            session.send(handle, "ack", body)
        session.connection.commit()
        _note(self.received, [body for _, body in rows])

    def _note(self, session: Session) -> None:
        bodies = session.bodies("shop")
        session.connection.commit()
        _note(self.answers, bodies)


def _note(into: dict[str, list[int]], bodies: list[bytes | None]) -> None:
    for body in bodies:
        name, number = (body or b"").decode().split(":")
        into.setdefault(name, []).append(int(number))


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """The Python code of the release, which its workers run."""
    folder = tmp_path / "release"
    with zipfile.ZipFile(RELEASES / "0.1.0.zip") as archive:
        archive.extractall(folder)
    return folder


@contextmanager
def old_sites(
    directory: Path, release: Path, server_for: Callable[[str, int], EmbeddedServer]
) -> Iterator[tuple[OldSite, OldSite]]:
    """Yield a shop and a warehouse of the release, with its workers."""
    shop, warehouse = (
        OldSite(name, server_for(name, 18), directory, release) for name in ("shop", "warehouse")
    )
    try:
        introduce(shop, warehouse)
        shop.psql.rows(INITIATOR_DEFINITIONS)
        warehouse.psql.rows(TARGET_DEFINITIONS)
        shop.route("//warehouse", warehouse)
        warehouse.route("//shop", shop)
        shop.start_worker()
        warehouse.start_worker()
        yield shop, warehouse
    finally:
        for site in (shop, warehouse):
            site.close()
            site.drop_database()


@pytest.mark.timeout(600)
def test_schema_first_and_worker_first_under_load_nothing_is_lost_or_doubled(
    tmp_path: Path, release: Path, server_for: Callable[[str, int], EmbeddedServer]
) -> None:
    with old_sites(tmp_path, release, server_for) as (shop, warehouse):
        handles = {
            f"dialog {number}": shop.psql.value(
                "select broker.begin_dialog('//shop', '//warehouse', 'ordering', encryption => false)"
            )
            for number in range(DIALOGS)
        }
        load = Load(shop, warehouse)
        load.begin(handles)
        try:
            load.passes()
            migrate(shop.url)
            load.passes()
            warehouse.replace_worker()
            load.passes()
            shop.replace_worker()
            load.passes()
            migrate(warehouse.url)
            load.passes()
        finally:
            load.end()
        for name, count in load.sent.items():
            assert load.received[name] == list(range(count)), name
            assert load.answers[name] == list(range(count)), name
        # Only a statement that began before an upgrade's COMMIT may fail by it, and the next one begins after it.
        assert all(retries.total() <= 1 for retries in load.retries.values()), load.retries


IMPATIENT = "-c lock_timeout=500ms -c idle_in_transaction_session_timeout=250ms"


@pytest.mark.parametrize(
    "statement", ["select broker.send(%s, 'order', 'x')", "select from broker.conversation_endpoints"]
)
def test_an_upgrade_names_who_keeps_it_waiting_and_waits_no_longer_than_it_is_told(
    any_server: EmbeddedServer, statement: str
) -> None:
    name = f"old_{uuid.uuid4().hex[:8]}"
    any_server.create_database(name)
    url = any_server.url(name)
    with psycopg.connect(url) as session:
        session.execute(lzma.decompress((RELEASES / "0.1.0.sql.xz").read_bytes()))
    with psycopg.connect(url, autocommit=True) as connection, psycopg.connect(url) as idle:
        psql = Session(connection)
        psql.rows(DEFINITIONS)
        idle.execute(statement, [psql.dialog()][: statement.count("%s")])
        impatient = psycopg.conninfo.make_conninfo(url, options=IMPATIENT)
        with pytest.raises(MigrationError, match=rf"stayed in use(.|\n)*: {idle.info.backend_pid}\."):
            migrate(impatient)
        # Nobody waits for it afterwards, and nothing was changed.
        psql.send(psql.dialog(), "order", b"goes on")
        idle.commit()
        assert migrate(impatient).previous == "pybroker_0001"
        assert b"goes on" in psql.bodies() + psql.bodies()


def test_what_waits_is_retained_quarantined_or_incomplete_is_so_after_the_upgrade_and_goes_on(
    any_server: EmbeddedServer,
) -> None:
    name = f"old_{uuid.uuid4().hex[:8]}"
    any_server.create_database(name)
    with psycopg.connect(any_server.url(name)) as session:
        session.execute(lzma.decompress((RELEASES / "0.1.0.sql.xz").read_bytes()))
    with psycopg.connect(any_server.url(name), autocommit=True) as connection:
        psql = Session(connection)
        psql.rows(DEFINITIONS)
        psql.rows(
            "select broker.alter_queue('warehouse', poison_action => 'QUARANTINE'),"
            " broker.alter_queue('shop', retention => true)"
        )
        talking, poison, invoiced, late = (psql.dialog() for _ in range(4))
        for body in (b"0", b"1"):
            psql.send(talking, "order", body)
        one = "select message_body from broker.receive('warehouse', top => 1, conversation_handle => %s)"
        assert psql.rows(one, psql.handle_of(talking)) == [(b"0",)]
        psql.send(psql.handle_of(talking), "ack", b"retained")
        assert psql.bodies("shop") == [b"retained"]
        psql.send(poison, "order", b"poison")
        poisoned = psql.handle_of(poison)
        for _ in range(5):
            with connection.transaction(force_rollback=True):
                assert psql.rows(one, poisoned) == [(b"poison",)]
        assert psql.rows(one, poisoned) == []
        psql.send(invoiced, "invoice", b"<invoice/>")
        psql.rows("select broker.alter_queue('warehouse', status => false)")
        psql.send(late, "order", b"waits")
        far = psql.value("select broker.begin_dialog('//shop', '//far', 'ordering')")
        psql.send(far, "order", b"far")
        seen = (
            "select conversation_handle, state, send_sequence, receive_sequence, priority, lifetime"
            " from broker.conversation_endpoints order by 1",
            "select conversation_handle, message_sequence_number, message_body, transmission_status"
            " from broker.transmission_queue order by 1, 2",
            "select conversation_handle, message_body, failures, messages_waiting from broker.quarantine",
            "select queue_name, ready, retained, incomplete from broker.queue_depths order by 1",
            "select status, conversation_handle, message_body, message_id from warehouse order by queuing_order",
            "select status, conversation_handle, message_body, message_id from shop order by queuing_order",
        )
        before = [psql.rows(query) for query in seen]
        assert all(before)
        assert psql.rows("select sum(retained) > 0, count(*) from broker.queue_depths") == [(True, 2)]
        migrate(any_server.url(name))
        assert [psql.rows(query) for query in seen] == before
        psql.rows("select broker.alter_queue('warehouse', status => true)")
        psql.send(talking, "order", b"2")
        psql.rows("select broker.redrive(%s)", poisoned)
        assert psql.bodies(conversation_handle=psql.handle_of(talking)) == [b"1", b"2"]
        assert psql.bodies(conversation_handle=psql.handle_of(late)) == [b"waits"]
        assert psql.bodies(conversation_handle=poisoned) == [b"poison"]
        for handle in (psql.handle_of(talking), talking):
            psql.end(handle)
        assert psql.value("select sum(retained) from broker.queue_depths") == len(
            psql.rows("select from broker_private.retained_messages")
        )
