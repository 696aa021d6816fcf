"""How long a request and its answer take between two databases, each with a worker.

One request at a time, from before its SEND until the answer has been received, both committed. The clients
sleep until a message comes, as `pybroker.connect` does, so the time is the way's and not that of polling.
"""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from statistics import median, quantiles
from typing import TYPE_CHECKING

import psycopg

import pybroker
from tests.bench.between import Roads
from tests.bench.loads import Compared
from tests.bench.stage import Bench, BenchmarkError, Sample, Usage, started_pgbench, warmed_up

if TYPE_CHECKING:
    from collections.abc import Iterator

BODY_BYTES = 100
BESIDE_CLIENTS = 4
# So many requests are made first, whose plans and connections are new.
FIRST_REQUESTS = 5
ANSWER_SECONDS = 30
MEDIAN_MS = "median ms"
TAIL_MS = "95 of 100 within ms"
_SEND = "\\set dialog random(1, 50)\nselect broker.send((select handle from dialogs where way = 'clear' and number = :dialog), 'order', :body::bytea)"


class _Desk:
    """A service that answers each request, on queues of its own."""

    def __init__(self, bench: Bench) -> None:
        self.roads = bench.part(Roads)
        shop, warehouse = self.roads.shop, self.roads.warehouse
        self.roads.far("clear")
        warehouse.psql.rows("select broker.create_queue('desk')")
        warehouse.psql.rows("select broker.create_service('//desk', 'desk', '{ordering}')")
        warehouse.psql.rows("select broker.grant('SEND', 'SERVICE', '//desk', 'public')")
        shop.psql.rows("select broker.create_queue('caller')")
        shop.psql.rows("select broker.create_service('//caller', 'caller')")
        shop.route("//desk", warehouse)
        warehouse.route("//caller", shop)
        self.handle = shop.psql.value(
            "select broker.begin_dialog('//caller', '//desk', 'ordering', encryption => false)"
        )


@dataclass(frozen=True)
class Request(Compared):
    """A request and its answer: one after the other, or so many a second; alone, or beside other messages.

    Attributes:
        per_second: how many requests are made; 0 is one after the other.
        beside: messages a second on 50 other dialogs of the same two databases.
    """

    part: str
    name: str
    of: tuple[str, int] | None = None
    per_second: float = 0.0
    beside: int = 0
    clients: int = 1

    def measure(self, bench: Bench) -> Sample:
        bench.dismiss()
        desk = bench.part(_Desk)
        roads = desk.roads
        for site in (roads.shop, roads.warehouse):
            site.psql.rows("select broker.alter_endpoint('endpoint', encryption => 'REQUIRED')")
        roads.start("clear")
        waits: list[float] = []
        with (
            _answering(roads.warehouse.url),
            ExitStack() as stack,
            pybroker.connect(roads.shop.url) as broker,
        ):
            if self.beside:
                stack.enter_context(_load(bench, roads, self.beside))
            for _ in range(FIRST_REQUESTS):
                _ask(broker, desk.handle)
            workers = [site.worker.pid for site in (roads.shop, roads.warehouse) if site.worker]
            usage = Usage([roads.shop.server, roads.warehouse.server], workers)
            started = time.perf_counter()
            while (now := time.perf_counter()) < started + bench.seconds:
                waits.append(_ask(broker, desk.handle))
                if self.per_second:
                    time.sleep(max(0.0, now + 1 / self.per_second - time.perf_counter()))
            usage.end()
        roads.clear("clear")
        tail = quantiles(waits, n=20)[-1] if len(waits) > 1 else waits[0]
        notes = {MEDIAN_MS: median(waits) * 1000, TAIL_MS: tail * 1000}
        # Per second of waiting, so that a longer way is a smaller figure, as with each other line.
        return usage.sample(len(waits), 1 / median(waits), notes=notes)


def _ask(broker: pybroker.Broker, handle: str) -> float:
    """Send a request and receive its answer; return how many seconds that took."""
    began = time.perf_counter()
    with broker.transaction():
        broker.conversation(handle).send("order", bytes(BODY_BYTES))
    with broker.transaction():
        answers = broker.receive("caller", top=1, timeout=ANSWER_SECONDS)
    if not answers:
        raise BenchmarkError(f"no answer came within {ANSWER_SECONDS} s")
    return time.perf_counter() - began


@contextmanager
def _answering(url: str) -> Iterator[None]:
    """Answer each request at the desk in a thread."""
    is_over = threading.Event()

    def answer() -> None:
        with pybroker.connect(url) as broker:
            while not is_over.is_set():
                with broker.transaction():
                    for message in broker.receive("desk", timeout=0.5):
                        message.reply("ack", message.body)

    thread = threading.Thread(target=answer, name="desk")
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


@contextmanager
def _load(bench: Bench, roads: Roads, per_second: int) -> Iterator[None]:
    """Send so many messages a second on other dialogs, and receive them."""
    is_over = threading.Event()

    def receive() -> None:
        with psycopg.connect(roads.warehouse.url, autocommit=True) as session:
            while not is_over.is_set():
                session.execute("select from broker.receive('warehouse', 1000, timeout => '0.2 s')")

    thread = threading.Thread(target=receive, name="warehouse")
    thread.start()
    try:
        # It ends when it is killed.
        with started_pgbench(
            bench.server, roads.shop.url, _SEND, BESIDE_CLIENTS, BODY_BYTES,
            f"--rate={per_second}", "--time=3600", "--progress=1",
        ) as clients:  # fmt: skip
            warmed_up(clients)
            yield
    finally:
        is_over.set()
        thread.join()
