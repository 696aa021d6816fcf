"""What goes between databases: backlogs through workers, and the whitepaper's whole path.

A backlog lies in transmission queues before the workers start. Its time runs from the first message that has
arrived until the last has been acknowledged: starting Python and shaking hands are not in it, and what came with that message is not
counted. Afterwards all is received and counted.
"""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import psutil
import psycopg
from psycopg.conninfo import make_conninfo

from pybroker.embedded import EmbeddedServer
from pybroker.embedded.supervisor import SUPERUSER
from pybroker.throughput.testbed import embedded
from tests.bench.loads import Compared
from tests.bench.stage import (
    BATCH,
    COUNT_MESSAGES,
    PROCESSED,
    WARM_UP_SECONDS,
    Bench,
    BenchmarkError,
    Others,
    Sample,
    Usage,
    body,
    drain,
    early_transactions,
    figure,
    finish_pgbench,
    number,
    started_pgbench,
    warmed_up,
)
from tests.bench.waits import Waits
from tests.brokers import INITIATOR_DEFINITIONS, TARGET_DEFINITIONS, Site
from tests.conftest import migrated_database
from tests.shop import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pybroker.throughput.testbed import Bed

BODY_BYTES = 100
HOP_DIALOGS = 50
# Dialogs of all initiators together, however many there are.
BRANCH_DIALOGS = 300
PATH_INITIATORS = 3
PATH_DIALOGS = 50
# A path that runs for less is all start.
PATH_SECONDS = 5
# A backlog of less is gone before its rate is steady; and the hop takes more of it a second than each is made for.
BACKLOG_SECONDS = 5
# Between two counts of a worker's connections.
LOOK_SECONDS = 0.25
MOST_CONNECTIONS = "most connections between the workers"
MOST_SESSIONS = "most sessions of the initiators' worker, for each of its databases"

BACKLOG = """
select count(broker.send_batch(d.handle, 'order', array_fill(%s::bytea, array[%s])))
from (select handle from generate_series(1, %s) turn, dialogs where way = %s order by turn, number) d
"""
# What leaves last is at the end of an index; from the beginning each look would pass all that has left, for a tenth of the servers' time.
_MOVES = """
select coalesce((
  select true from broker_private.transmission_messages order by destination_no desc, precedence desc, id desc limit 1
), false)
"""
_DIALOGS = "create table dialogs (way text, number integer, handle uuid not null, primary key (way, number))"
_OPEN = """
insert into dialogs
select %s, n, broker.begin_dialog('//shop', %s, 'ordering', encryption => %s) from generate_series(1, %s) n
"""
_FIRST = "select count(broker.send(handle, 'order')) from dialogs where way = %s"


class Roads:
    """The two sites of the bench, and the ways between them that have been opened.

    A way is `clear` or `sealed`, between two workers, or `siblings`, two databases of one worker.
    """

    SERVICES = {"clear": "//warehouse", "sealed": "//vault", "siblings": "//depot"}  # noqa: RUF012

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self.shop, self.warehouse = bench.shop, bench.warehouse
        self._far = {"clear": self.warehouse.psql, "sealed": self.warehouse.psql}
        self._depot_url = ""
        self.shop.psql.rows(_DIALOGS)

    def far(self, way: str) -> Session:
        """Return a session in the database where a way ends, after opening the way if nobody has."""
        if way not in self._far:
            depot = migrated_database(self.warehouse.server, "depot")
            self._depot_url = self.warehouse.server.tcp_url("depot")
            session = psycopg.connect(depot.url, autocommit=True)
            self._far[way] = Session(self._bench.stack.enter_context(session))
            self._far[way].rows(TARGET_DEFINITIONS.replace("//warehouse", "//depot"))
        if way == "sealed" and not self._far[way].rows("select from broker.services where name = '//vault'"):
            self._seal()
        if not self.shop.psql.value("select exists (select from dialogs where way = %s)", way):
            self.shop.psql.rows(_OPEN, way, self.SERVICES[way], way == "sealed", HOP_DIALOGS)
            self.shop.psql.rows(_FIRST, way)
            self.start(way)
            while self.shop.psql.value(_MOVES):
                watch([self.shop, self.warehouse], 0.02)
            self.clear(way)
        return self._far[way]

    def urls(self, way: str) -> list[str]:
        """Return the URLs of the databases at both ends of the way."""
        return [self.shop.url, self._depot_url if way == "siblings" else self.warehouse.url]

    def start_far(self, way: str) -> None:
        """Start the worker at the end of the way, if it has one of its own."""
        if way != "siblings":
            start_worker(self.warehouse, [self.warehouse.url])

    def start_near(self, way: str) -> None:
        """Start the shop's worker."""
        start_worker(self.shop, [self.shop.url, *([self._depot_url] if way == "siblings" else [])])

    def start(self, way: str) -> None:
        """Start both."""
        self.start_far(way)
        self.start_near(way)

    def clear(self, way: str) -> int:
        """Stop the workers, empty the far queue, and return how many messages were in it."""
        return clear([self.shop, self.warehouse], self._far[way], [self.shop.psql, self._far[way]])

    def _seal(self) -> None:
        """Let dialogs to a service of its own go with full security."""
        far = self.warehouse.psql
        far.rows("select broker.create_service('//vault', 'warehouse', '{ordering}')")
        far.rows("select broker.grant('SEND', 'SERVICE', '//vault', 'shop_user')")
        self.shop.route("//vault", self.warehouse)
        self.shop.psql.rows(
            "select broker.create_remote_service_binding('vault', '//vault', 'warehouse_user')"
        )


@dataclass(frozen=True)
class Hop(Compared):
    """From one server's transmission queue into the other's queue, and acknowledged."""

    part: str
    name: str
    of: tuple[str, int]
    way: str = "clear"
    per_second: int = 20_000
    body_bytes: int = BODY_BYTES
    encryption: str = "REQUIRED"
    clients: int = 1

    def measure(self, bench: Bench) -> Sample:
        bench.dismiss()
        roads = bench.part(Roads)
        shop, warehouse = roads.shop, roads.warehouse
        far = roads.far(self.way)
        turns = max(1, self.per_second * max(BACKLOG_SECONDS, bench.seconds) // (HOP_DIALOGS * BATCH))
        for site in (shop, warehouse):
            site.psql.rows("select broker.alter_endpoint('endpoint', encryption => %s)", self.encryption)
        roads.start_far(self.way)
        shop.psql.rows(BACKLOG, body(self.body_bytes), BATCH, turns, self.way)
        roads.start_near(self.way)
        total = turns * HOP_DIALOGS * BATCH
        sample = _follow(
            bench, total, [shop.psql], far, sites=[shop, warehouse], databases=roads.urls(self.way)
        )
        _check(roads.clear(self.way), total)
        return sample


class Branches:
    """A server with many databases, all initiators, and one worker that serves as many of them as it is told."""

    def __init__(self, bench: Bench) -> None:
        self.target = bench.warehouse
        # A worker may keep up to 16 sessions for each database.
        server = EmbeddedServer(
            version=18, listen=True, settings={**bench.server_settings, "max_connections": 2000}
        )
        self.office = Site("office", bench.stack.enter_context(server), bench.directory)
        bench.stack.callback(self.office.close)
        bench.check("the initiator databases", self.office.psql.connection)
        self.urls = [self.office.url]
        self.sessions: list[Session] = []
        self._stack = bench.stack
        certificate = self.office.certificate()
        self.office.listen(certificate)
        self.target.trust("office", certificate)
        self.office.trust("warehouse", self.target.certificate())

    def sized(self, databases: int) -> Sequence[Session]:
        """Return a session in each of so many databases, whose dialogs are open."""
        while len(self.sessions) < databases:
            self._add()
        sessions = self.sessions[:databases]
        way = f"{databases} branches"
        if not sessions[0].value("select exists (select from dialogs where way = %s)", way):
            for session in sessions:
                session.rows(_OPEN, way, "//warehouse", False, BRANCH_DIALOGS // databases)
                session.rows(_FIRST, way)
            start_worker(self.target, [self.target.url])
            self.start(databases)
            for session in sessions:
                while session.value(_MOVES):
                    watch([self.office, self.target], 0.02)
            self.clear([])
        return sessions

    def start(self, databases: int) -> None:
        """Start the worker of the first so many databases."""
        start_worker(self.office, self.urls[: 1 + databases])

    def clear(self, sessions: Sequence[Session]) -> int:
        """Stop the workers, empty the far queue, and return how many messages were in it."""
        return clear([self.office, self.target], self.target.psql, [*sessions, self.target.psql])

    def _add(self) -> None:
        name = f"branch_{len(self.sessions) + 1}"
        database = migrated_database(self.office.server, name)
        session = Session(self._stack.enter_context(psycopg.connect(database.url, autocommit=True)))
        session.rows(INITIATOR_DEFINITIONS)
        session.rows(_DIALOGS)
        session.rows(
            "select broker.create_route('//warehouse', %s, service_name => '//warehouse')",
            f"tcp://{self.target.host}:{self.target.port}",
        )
        guid = session.value("select service_broker_guid::text from broker.databases")
        self.target.psql.rows(
            "select broker.create_route(%s, %s, service_name => '//shop', broker_instance => %s)",
            name,
            f"tcp://{self.office.host}:{self.office.port}",
            guid,
        )
        self.sessions.append(session)
        self.urls.append(self.office.server.tcp_url(name))


@dataclass(frozen=True)
class ManyDatabases(Compared):
    """A backlog in many databases of one worker, all for one target: the whitepaper's customer."""

    part: str
    name: str
    databases: int
    of: tuple[str, int] | None = None
    per_second: int = 20_000
    clients: int = 1

    def measure(self, bench: Bench) -> Sample:
        bench.dismiss()
        branches = bench.part(Branches)
        sessions = branches.sized(self.databases)
        office, target = branches.office, branches.target
        for site in (office, target):
            site.psql.rows("select broker.alter_endpoint('endpoint', encryption => 'REQUIRED')")
        turns = max(1, self.per_second * max(BACKLOG_SECONDS, bench.seconds) // (BRANCH_DIALOGS * BATCH))
        total = turns * BATCH * self.databases * (BRANCH_DIALOGS // self.databases)
        way = f"{self.databases} branches"
        start_worker(target, [target.url])
        for session in sessions:
            session.rows(BACKLOG, body(BODY_BYTES), BATCH, turns, way)
        branches.start(self.databases)
        connections = _Connections(office, target, self.databases)
        sample = _follow(
            bench, total, sessions, target.psql, sites=[office, target],
            databases=[*branches.urls[1 : 1 + self.databases], target.url], look=connections.look,
        )  # fmt: skip
        _check(branches.clear(sessions), total)
        return replace(sample, notes=connections.most)


class Path:
    """The whitepaper's servers, a database and a worker on each, and what sends and reads there."""

    def __init__(self, bed: Bed) -> None:
        self.bed = bed
        self._opened: set[bool] = set()
        with bed.target.connect() as session:
            session.execute(
                "select broker.alter_queue('MySSBLabTestQueue', max_queue_readers => %s)", [bed.cores]
            )

    def open(self, *, is_sealed: bool) -> None:
        """Open the dialogs of this kind, if they are not."""
        if is_sealed in self._opened:
            return
        for initiator in self.bed.initiators:
            with initiator.connect() as session:
                session.execute(
                    "call lab.open_dialogs(%s, 1, %s, %s)", [is_sealed, PATH_DIALOGS, self.bed.target.guid]
                )
        self._opened.add(is_sealed)
        self.wait_for(len(self._opened) * len(self.bed.initiators) * PATH_DIALOGS)

    def wait_for(self, messages: int) -> None:
        """Return when so many messages have been processed since the bed was made."""
        with self.bed.target.connect() as session:
            while number(session, "select coalesce(sum(messages), 0) from lab.receives") < messages:
                self.bed.check()
                time.sleep(0.01)

    def workers(self) -> list[int]:
        """Return the processes of the workers: no other runs while the path is measured."""
        return [
            process.pid
            for process in psutil.Process().children(recursive=True)
            if "worker" in process.cmdline()
        ]

    def processed(self) -> int:
        """Return how many messages have been processed since the bed was made."""
        with self.bed.target.connect() as session:
            return int(number(session, "select coalesce(sum(messages), 0) from lab.receives"))

    def used(self) -> tuple[float, float, float]:
        """Return WAL bytes, the servers' and the workers' processor seconds so far."""
        wal = 0.0
        for each in self.bed.servers:
            with each.connect() as session:
                wal += number(session, "select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')")
        found = [each.cpu() for each in self.bed.servers]
        return wal, sum(seconds["server"] for seconds in found), sum(seconds["worker"] for seconds in found)

    def servers_seconds(self) -> float:
        """Return the servers' processor seconds so far."""
        return sum(each.cpu()["server"] for each in self.bed.servers)


@contextmanager
def _path() -> Iterator[Path]:
    with embedded(PATH_INITIATORS, version=18, endpoint="REQUIRED") as bed:
        yield Path(bed)


@dataclass(frozen=True)
class WhitepaperPath(Compared):
    """Clients that send at three initiators, activated readers that process at the target; the rate until all is processed."""

    part: str
    name: str
    of: tuple[str, int] | None = None
    messages: int = 1
    is_sealed: bool = False
    clients: int = 50

    def measure(self, bench: Bench) -> Sample:
        path = bench.guest("path", _path)
        bed = path.bed
        for server in bed.servers:
            with server.connect() as session:
                bench.check(f"the path's {server.name}", session)
        path.open(is_sealed=self.is_sealed)
        what = "send" if self.messages == 1 else "send_batch"
        handle = (
            "(select conversation_handle from lab.dialogs"
            f" where is_secure = {str(self.is_sealed).lower()} and ratio = 1 and thread = :thread)"
        )
        given = ":body::bytea" if self.messages == 1 else ":bodies::bytea[]"
        script = (
            f"\\set thread random(1, {PATH_DIALOGS})\n"
            f"select broker.{what}({handle}, '//MySSB.com/Lab/M_Test', {given})"
        )
        before = path.processed()
        # An owner may not let the server count functions.
        urls = [make_conninfo(server.url, user=SUPERUSER) for server in bed.servers]
        with bench.profiled(urls, urls, path.workers()), ExitStack() as clients:
            processes = [
                clients.enter_context(
                    started_pgbench(
                        bench.server, initiator.url, script, its_clients, BODY_BYTES,
                        f"--time={WARM_UP_SECONDS + max(PATH_SECONDS, bench.seconds)}", f"--progress={WARM_UP_SECONDS}",
                    )
                )
                for initiator, its_clients in zip(
                    bed.initiators, split(self.clients, PATH_INITIATORS), strict=True
                )
            ]  # fmt: skip
            early = [warmed_up(process) for process in processes]
            used, others = path.used(), Others(path.servers_seconds)
            started = time.perf_counter()
            with Waits(urls) as waits:
                outputs = [
                    begun + finish_pgbench(process, script)
                    for begun, process in zip(early, processes, strict=True)
                ]
                sent = self.messages * sum(int(figure(PROCESSED, output)) for output in outputs)
                path.wait_for(before + sent)
                seconds = time.perf_counter() - started
            share = others.share()
        wal, cpu, worker = (now - then for now, then in zip(path.used(), used, strict=True))
        # What was sent while they warmed up is not counted, though it may have been processed afterwards.
        sent -= self.messages * sum(round(early_transactions(output)) for output in outputs)
        return Sample(
            sent / seconds,
            wal / sent,
            cpu * 1e6 / sent,
            None,
            worker * 1e6 / sent,
            waits.shares(),
            others=share,
        )


def split(clients: int, servers: int) -> list[int]:
    """Return how many of the clients each server gets: all of them, spread as evenly as can be."""
    least, rest = divmod(clients, servers)
    return [least + (place < rest) for place in range(servers)]


def start_worker(site: Site, urls: Sequence[str]) -> None:
    """Start a site's worker for these databases; the first is its home database."""
    databases = [word for url in urls for word in ("--database-url", url)]
    with site.log.open("a") as log:
        site.worker = subprocess.Popen(
            [
                sys.executable, "-m", "pybroker", "worker", *databases, "--key-directory", site.keys,
                # The other side may not listen yet.
                "--reconnect-after=0.3", "--retry-connect-after=0.3",
            ],
            stdout=log,
            stderr=log,
            text=True,
        )  # fmt: skip


def watch(sites: Sequence[Site], seconds: float) -> None:
    """Wait a moment, unless a worker has ended: then what is waited for never comes."""
    for site in sites:
        if site.worker is not None and site.worker.poll() is not None:
            raise BenchmarkError(f"the worker of {site.name} ended:\n{site.log.read_text()[-2000:]}")
    time.sleep(seconds)


def clear(sites: Sequence[Site], far: Session, sessions: Sequence[Session]) -> int:
    """Stop the sites' workers, empty the far queue, and return how many messages were in it."""
    for site in sites:
        if site.worker is not None:
            site.stop_worker()
            site.worker = None
    received = drain(far.connection)
    for session in sessions:
        session.rows("vacuum (analyze)")
    return received


def _follow(
    bench: Bench,
    total: int,
    near: Sequence[Session],
    far: Session,
    *,
    sites: Sequence[Site],
    databases: Sequence[str],
    look: Callable[[], None] = lambda: None,
) -> Sample:
    """Return the sample of a backlog on its way between databases; `look` is called again and again meanwhile."""
    servers = {id(site.server): site.server for site in sites}
    running = [site.worker.pid for site in sites if site.worker is not None]
    arrived = 0
    while not arrived:
        watch(sites, 0.005)
        look()
        started = time.perf_counter()
        arrived = far.value(COUNT_MESSAGES)
    usage = Usage(list(servers.values()), running)
    urls = [server.url("postgres") for server in servers.values()]
    with bench.profiled(urls, databases, running), Waits(urls) as waits:
        waiting = list(near)
        while waiting:
            look()
            if waiting[-1].value(_MOVES):
                watch(sites, 0.02)
            else:
                waiting.pop()
        seconds = time.perf_counter() - started
    usage.end(waits.shares())
    return usage.sample(total - arrived, (total - arrived) / seconds)


class _Connections:
    """The most that a site's worker was seen to have open at a time: to the other's worker, and to databases."""

    def __init__(self, site: Site, other: Site, databases: int) -> None:
        assert site.worker is not None
        # With its home database.
        self._databases = 1 + databases
        self._worker = psutil.Process(site.worker.pid)
        self._workers_ports = {site.port, other.port}
        self._server_port = site.server.port
        self._next_look = 0.0
        self.most: dict[str, float] = {}

    def look(self) -> None:
        """Count them, unless that was done just now: with a thousand of them it takes some milliseconds."""
        if time.monotonic() < self._next_look:
            return
        try:
            open_now = self._worker.net_connections("tcp")
        except psutil.Error:
            # It has ended, which `watch` says better.
            return
        of_workers = sessions = 0
        for connection in open_now:
            if connection.status == psutil.CONN_ESTABLISHED:
                of_workers += bool({connection.laddr.port, connection.raddr.port} & self._workers_ports)
                sessions += connection.raddr.port == self._server_port
        seen = {MOST_CONNECTIONS: of_workers, MOST_SESSIONS: sessions / self._databases}
        self.most = {name: max(count, self.most.get(name, 0)) for name, count in seen.items()}
        self._next_look = time.monotonic() + LOOK_SECONDS


def _check(received: int, sent: int) -> None:
    if received != sent:
        raise BenchmarkError(f"{sent} messages were sent and {received} received")
