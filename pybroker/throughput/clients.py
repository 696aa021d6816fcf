"""The load: each test client thread is a task of one barrier stage, with a connection of its own."""

from __future__ import annotations

import struct
import time
from typing import TYPE_CHECKING, Any

import msgspec

from pybroker.throughput.failures import ThroughputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import SparkSession

# What each body begins with, so that each message can be accounted for: the test's number, initiator, thread,
# the message's number on its thread, and the client's clock in microseconds.
HEADER = struct.Struct(">IHHQQ")
# The advisory lock of each initiator's database at which clients that are ready wait for the start.
GATE = (5114, 1)
# Seconds between two looks at whether the test is over, and until a client ends by itself.
_LOOK, _LIMIT = 0.5, 900.0


class Client(msgspec.Struct, frozen=True):
    """What a test client thread is told.

    Attributes:
        url: Its initiator's database.
        test: The test's number.
        initiator: From 1.
        thread: From 1.
        handles: The dialogs that it uses, one after the other; none: one for each message.
        payload: Bytes of a message.
        batch: Messages in a transaction.
        pause: Seconds of rest after each.
        secure: Whether dialogs that it begins have ENCRYPTION = ON.
        target_guid: The target's broker.
    """

    url: str
    test: int
    initiator: int
    thread: int
    handles: tuple[str, ...]
    payload: int
    batch: int
    pause: float
    secure: bool
    target_guid: str


class Sent(msgspec.Struct, frozen=True):
    """What a test client thread did; times are seconds of its machine's clock, and of its processor."""

    initiator: int
    thread: int
    messages: int
    began: float
    ended: float
    processor: float = 0.0


def run_clients(spark: SparkSession, clients: list[Client]) -> list[Sent]:
    """Run all clients at the same time until their initiator's `lab.control` says that it is over.

    Each prepares what it needs, and then waits until nobody holds GATE in its initiator's database any more.

    Raises:
        ThroughputError: Fewer ran; Spark refuses a barrier stage with more tasks than slots.
    """
    stage = spark.sparkContext.parallelize([msgspec.json.encode(client) for client in clients], len(clients))
    done = [msgspec.json.decode(one, type=Sent) for one in stage.barrier().mapPartitions(_run).collect()]
    if len(done) != len(clients):
        raise ThroughputError(f"{len(clients)} test clients were to run at the same time, and did not.")
    return done


def _run(given: Iterable[bytes]) -> Iterator[bytes]:
    # Here in the task: the driver's side needs neither.
    import psycopg  # noqa: PLC0415

    (client,) = (msgspec.json.decode(one, type=Client) for one in given)
    with psycopg.connect(client.url, autocommit=True, application_name="test client") as connection:
        connection.prepare_threshold = 0
        send = _sender(connection, client)
        # A session's first SEND loads and plans what the others use.
        with connection.transaction(force_rollback=True):
            send(1)
        connection.execute("select pg_catalog.pg_advisory_lock_shared(%s, %s)", GATE)
        connection.execute("select pg_catalog.pg_advisory_unlock_shared(%s, %s)", GATE)
        began = looked = time.time()
        used = time.process_time()
        messages = 0
        while True:
            messages += send(messages + 1)
            if client.pause:
                time.sleep(client.pause)
            now = time.time()
            if now - looked >= _LOOK:
                looked = now
                over = connection.execute("select is_over from lab.control").fetchone()
                if over is None or over[0] or now - began > _LIMIT:
                    break
        done = Sent(client.initiator, client.thread, messages, began, time.time(), time.process_time() - used)
    yield msgspec.json.encode(done)


def _sender(connection: Any, client: Client) -> Callable[[int], int]:
    """Return what sends from a number on, and returns how many messages that were."""
    filler = b"x" * (client.payload - HEADER.size)

    def body(number: int) -> bytes:
        moment = time.time_ns() // 1000
        return HEADER.pack(client.test, client.initiator, client.thread, number, moment) + filler

    def send(number: int) -> int:
        if not client.handles:
            connection.execute(
                "call lab.send_on_new_dialog(%s, %s, %b)", [client.secure, client.target_guid, body(number)]
            )
            return 1
        handle = client.handles[number // client.batch % len(client.handles)]
        if client.batch == 1:
            connection.execute("call lab.send(%s::uuid, %b)", [handle, body(number)])
            return 1
        bodies = [body(number + place) for place in range(client.batch)]
        connection.execute("call lab.send_many(%s::uuid, %b::bytea[])", [handle, bodies])
        return client.batch

    return send
