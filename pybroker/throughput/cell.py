"""One cell: dialogs and warm-up, load, the measured seconds, and every message that is still on its way."""

from __future__ import annotations

import itertools
import math
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from pybroker.throughput.clients import GATE, HEADER, Client, Sent, run_clients
from pybroker.throughput.failures import ThroughputError
from pybroker.throughput.objects import QUEUE, SERVICE, end_conversations
from pybroker.throughput.sampling import Busy, Sample, Sampler

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import psycopg
    from pyspark.sql import SparkSession

    from pybroker.throughput.matrix import Cell, Series, Timing
    from pybroker.throughput.testbed import Bed

# Seconds: a monitor adds a reader every 5 s, so after a little more none is to come.
_READERS_SETTLED = 5.5
_RAMP_LIMIT = 60.0
# Seconds without any progress after which something is wrong; a worker connects again within 60.
PATIENCE, _CLIENTS_START = 150.0, 600.0
# How long what is on its way may take once all has been processed: it is acknowledged, or comes twice.
_SETTLED = 30.0
_POLL, _LOOK = 0.1, 2.0
# Counting what has been sent costs the initiators something: they rest so many times as long.
_REST = 10
_ROWS = 50_000
# What moves while all goes well. While activation is off messages only arrive.
_RECEIVED = "select last_value from lab.receive_numbers"
# Where only patience is to count.
_NO_PROGRESS = "select 0"
_PROCESSED = "select coalesce(pg_catalog.sum(messages), 0) from lab.receives"
_ARRIVED = f"""
    select pg_catalog.sum(e.receive_sequence) from broker.conversation_endpoints e
    join broker.services s on s.service_id = e.service_id
    where s.name = '{SERVICE}'
    """  # noqa: S608
_READERS = f"""
    select pg_catalog.count(*) from broker.dm_broker_activated_tasks t
    join broker.service_queues q on q.object_id = t.queue_id
    where q.name = '{QUEUE}'
    """  # noqa: S608
_IS_SENDING = f"select exists (select from broker.transmission_queue where from_service_name = '{SERVICE}')"  # noqa: S608
_HAS_MESSAGES = f'select exists (select from "{QUEUE}")'  # noqa: S608
_WAITING = f"""
    select pg_catalog.count(*) from pg_catalog.pg_locks l join pg_catalog.pg_database d on d.oid = l.database
    where d.datname = pg_catalog.current_database() and l.locktype = 'advisory' and not l.granted
      and (l.classid, l.objid, l.objsubid) = ({GATE[0]}, {GATE[1]}, 2)
    """  # noqa: S608


class Run(msgspec.Struct, frozen=True):
    """What happened in a cell; times are seconds of the target's clock, which dates its rows.

    Attributes:
        test: The number that its messages carry.
        sent: What each client sent, by the client's own clock.
        samples: What the servers showed.
        began: When the measurement began.
        ended: When it ended.
        drained: When the last message was processed.
        quotas: Processors that each server and worker could use; empty where they were not limited.
        busy: What this machine's processors did when the measurement began and when it ended.
    """

    test: int
    sent: list[Sent]
    samples: list[Sample]
    began: float
    ended: float
    drained: float
    quotas: dict[str, float]
    busy: list[Busy] = []


def run_cell(
    spark: SparkSession,
    bed: Bed,
    cell: Cell,
    *,
    test: int,
    timing: Timing,
    directory: Path,
    tell: Callable[[float], None],
    before_load: Callable[[], None],
) -> Run:
    """Run a cell, and leave the target's rows as Parquet in the directory.

    Args:
        spark: With as many slots as the cell has threads.
        bed: With as many initiators as the cell has.
        cell: What to run.
        test: A number that no other cell on this bed had.
        timing: How long.
        directory: For `messages.parquet` and `receives.parquet`.
        tell: Told the messages a second at the target, again and again.
        before_load: Called when the dialogs are open, before anything is measured.

    Raises:
        ThroughputError: A server, a worker or the clients are broken. Messages that are lost while all is
            well are for the analysis to tell.
    """
    # What comes before and after the load is not measured, and need not take the time of few processors.
    bed.limit(False)
    clients = _prepare(bed, cell, test)
    before_load()
    load = _Load(spark, bed, clients, is_limited=cell.how.is_limited)
    with bed.target.connect() as target, Sampler(bed) as sampler:
        if cell.how.is_deferred:
            sent, began, ended = _run_deferred(bed, cell, load, target, sampler, timing=timing)
            drained = ended
        else:
            sent, began, ended = _run_at_once(bed, cell, load, target, sampler, timing=timing, tell=tell)
            drain(bed, target, sum(one.messages for one in sent), sampler.check)
            drained = time.time()
        is_settled = _settle(bed, target)
        sampler.check()
        _export(target, directory)
        if not is_settled:
            abandon(bed)
        ahead = _ahead(target)
    return Run(
        test,
        sent,
        [msgspec.structs.replace(sample, at=sample.at + ahead) for sample in sampler.samples],
        began + ahead,
        ended + ahead,
        drained + ahead,
        dict(bed.quotas) if cell.how.is_limited else {},
        sampler.busy,
    )


def _run_at_once(
    bed: Bed,
    cell: Cell,
    load: _Load,
    target: psycopg.Connection[Any],
    sampler: Sampler,
    *,
    timing: Timing,
    tell: Callable[[float], None],
) -> tuple[list[Sent], float, float]:
    """Measure while the clients send; return what they sent, and when the measurement began and ended."""
    try:
        began = load.start()
        if cell.how.is_from_start:
            sampler.mark()
        else:
            _await_readers(bed, sampler, load, target, tell=tell, timing=timing)
            began = time.time()
            sampler.mark()
        while time.time() - began < timing.measured:
            _watch(bed, sampler, load, target, tell)
        sampler.mark()
        ended = time.time()
    finally:
        sent = load.stop()
    return sent, began, ended


def _await_readers(
    bed: Bed,
    sampler: Sampler,
    load: _Load,
    target: psycopg.Connection[Any],
    *,
    tell: Callable[[float], None],
    timing: Timing,
) -> None:
    """Return when the warm-up is over, and the target has all readers that it is to get."""
    _wait(bed, lambda: _processed(target) > 0, load.check)
    began = time.time()
    while time.time() - began < timing.warm_up or (
        sampler.seconds_without_new_readers() < min(_READERS_SETTLED, timing.warm_up)
        and time.time() - began < _RAMP_LIMIT
    ):
        _watch(bed, sampler, load, target, tell)


def _run_deferred(
    bed: Bed,
    cell: Cell,
    load: _Load,
    target: psycopg.Connection[Any],
    sampler: Sampler,
    *,
    timing: Timing,
) -> tuple[list[Sent], float, float]:
    """Let messages gather while activation is off; measure how they are processed once it is on."""
    target.execute("select broker.alter_queue(%s, activation_status => false)", [QUEUE])
    _wait(bed, lambda: _value(target, _READERS) == 0)
    with ExitStack() as stack:
        counters = [
            _SentSoFar(stack.enter_context(initiator.connect()), load.handles_of(number))
            for number, initiator in enumerate(bed.initiators, 1)
        ]
        try:
            load.start()
            _wait(bed, lambda: _value(target, _HAS_MESSAGES), load.check)
            _gather(load, counters, seconds=timing.measured, depth=cell.depth)
        finally:
            sent = load.stop()
    for initiator in bed.initiators:
        with initiator.connect() as connection:
            _wait_until_sent(bed, connection, progress=_ARRIVED)
    bed.limit(cell.how.is_limited)
    began = time.time()
    sampler.mark()
    target.execute("select broker.alter_queue(%s, activation_status => true)", [QUEUE])
    drain(bed, target, sum(one.messages for one in sent), sampler.check)
    sampler.mark()
    return sent, began, time.time()


def _gather(load: _Load, counters: list[_SentSoFar], *, seconds: float, depth: int) -> None:
    """Return when the clients have sent for so many seconds, or where a depth is given so many messages.

    Raises:
        ThroughputError: The clients have ended before that.
    """
    began = time.time()
    if not depth:
        while time.time() - began < seconds:
            load.check()
            time.sleep(_POLL)
        return
    while True:
        asked = time.time()
        messages = sum(counter.messages() for counter in counters)
        if messages >= depth:
            return
        load.check()
        if not load.is_running:
            raise ThroughputError(
                f"The test clients have ended after {asked - began:.0f} s, with {messages:,} of {depth:,}"
                " messages sent: take more of them, --series deferred-batches, or a smaller --depth."
            )
        time.sleep(max(_POLL, _REST * (time.time() - asked)))


class _SentSoFar:
    """Counts what has been sent on an initiator's dialogs since it was made, by the broker's own numbers."""

    def __init__(self, connection: psycopg.Connection[Any], handles: list[str]) -> None:
        self._connection = connection
        self._handles = handles
        self._before = 0
        self._before = self.messages()

    def messages(self) -> int:
        row = self._connection.execute(
            """
            select coalesce(pg_catalog.sum(send_sequence), 0) from broker.conversation_endpoints
            where conversation_handle = any(%s::uuid[])
            """,
            [self._handles],
        ).fetchone()
        assert row is not None  # noqa: S101
        return int(row[0]) - self._before


class _Load:
    """The barrier stage, in a thread: Spark's calls return when the stage is over."""

    def __init__(self, spark: SparkSession, bed: Bed, clients: list[Client], *, is_limited: bool) -> None:
        self._spark = spark
        self._bed = bed
        self._clients = clients
        self._is_limited = is_limited
        self._gates: list[psycopg.Connection[Any]] = []
        self._sent: list[Sent] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def handles_of(self, initiator: int) -> list[str]:
        """Return the dialogs that the clients of an initiator use."""
        mine = [client.handles for client in self._clients if client.initiator == initiator]
        return list(itertools.chain.from_iterable(mine))

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def start(self) -> float:
        """Let all clients begin at once, when the last of them is ready; from then on quotas are in force.

        Returns:
            When they began.
        """
        self._tell_initiators(is_over=False)
        for initiator in self._bed.initiators:
            self._gates.append(initiator.connect())
            self._gates[-1].execute("select pg_catalog.pg_advisory_lock(%s, %s)", GATE)
        self._thread.start()
        # Nothing is sent meanwhile, and a busy machine may need long for many clients.
        _wait(self._bed, self._are_ready, self.check, patience=_CLIENTS_START)
        self._bed.limit(self._is_limited)
        began = time.time()
        self._open_gates()
        return began

    def check(self) -> None:
        if self._error is not None:
            raise ThroughputError(f"The test clients failed: {self._error}") from self._error

    def stop(self) -> list[Sent]:
        self._tell_initiators(is_over=True)
        self._bed.limit(False)
        self._open_gates()
        if self._thread.ident is not None:
            self._thread.join()
        self.check()
        return self._sent

    def _are_ready(self) -> bool:
        return sum(int(_value(gate, _WAITING)) for gate in self._gates) == len(self._clients)

    def _open_gates(self) -> None:
        while self._gates:
            self._gates.pop().close()

    def _run(self) -> None:
        try:
            self._sent = run_clients(self._spark, self._clients)
        except BaseException as error:
            self._error = error

    def _tell_initiators(self, *, is_over: bool) -> None:
        for initiator in self._bed.initiators:
            with initiator.connect() as connection:
                connection.execute("update lab.control set is_over = %s", [is_over])


def _prepare(bed: Bed, cell: Cell, test: int) -> list[Client]:
    """Open the dialogs, warm them up, set the readers, and return the clients."""
    how = cell.how
    is_secure = how.secure and bed.is_secured
    with bed.target.connect() as target:
        _set_readers(bed, target, how)
        with ThreadPoolExecutor(len(bed.initiators)) as pool:
            clients = list(
                pool.map(
                    lambda number: _prepare_initiator(bed, cell, test, number, is_secure=is_secure),
                    range(1, len(bed.initiators) + 1),
                )
            )
        _wait(bed, lambda: not _value(target, _HAS_MESSAGES))
        # Not TRUNCATE, which would wait for a reader that waits for messages.
        target.execute("delete from lab.message_drop")
        target.execute("delete from lab.receives")
        return list(itertools.chain.from_iterable(clients))


def _prepare_initiator(bed: Bed, cell: Cell, test: int, number: int, *, is_secure: bool) -> list[Client]:
    initiator = bed.initiators[number - 1]
    with initiator.connect() as connection:
        dialogs = _dialogs(connection, bed, cell, is_secure=is_secure)
        _wait_until_sent(bed, connection)
    return [
        Client(
            url=initiator.url,
            test=test,
            initiator=number,
            thread=thread,
            handles=handles,
            payload=cell.payload,
            batch=cell.how.batch,
            pause=cell.how.pause,
            secure=is_secure,
            target_guid=bed.target.guid,
        )
        for thread, handles in enumerate(dialogs, 1)
    ]


def _set_readers(bed: Bed, target: psycopg.Connection[Any], how: Series) -> None:
    readers = how.readers_on(bed.target_cores(is_limited=how.is_limited))
    wanted = (how.top, timedelta(seconds=how.timeout), how.dialogs == "ended", readers)
    if (
        wanted
        == target.execute(
            """
        select r.top, r.timeout, r.ends_dialogs, q.max_readers::integer
        from lab.reader_settings r, broker.service_queues q
        where q.name = %s
        """,
            [QUEUE],
        ).fetchone()
    ):
        return
    # Readers that run go on with the settings that they have read: first they must end.
    target.execute("select broker.alter_queue(%s, activation_status => false)", [QUEUE])
    _wait(bed, lambda: _value(target, _READERS) == 0)
    target.execute("update lab.reader_settings set top = %s, timeout = %s, ends_dialogs = %s", wanted[:3])
    target.execute(
        "select broker.alter_queue(%s, activation_status => true, max_queue_readers => %s)", [QUEUE, readers]
    )


def _dialogs(
    connection: psycopg.Connection[Any], bed: Bed, cell: Cell, *, is_secure: bool
) -> list[tuple[str, ...]]:
    """Return the dialogs that each thread uses; those that are missing are opened."""
    how = cell.how
    if how.dialogs in ("each", "ended"):
        return [()] * cell.threads
    if how.dialogs == "rotating":
        # New ones each time, since warm or cold is what is looked at.
        ratio, rows = 0, cell.threads * cell.ratio
        connection.execute("delete from lab.dialogs where ratio = 0")
    else:
        ratio, rows = cell.ratio, 1 if how.dialogs == "shared" else cell.threads
    connection.execute(
        "call lab.open_dialogs(%s, %s, %s, %s, %s)", [is_secure, ratio, rows, bed.target.guid, how.warm]
    )
    handles = [
        handle
        for (handle,) in connection.execute(
            """
            select conversation_handle::text from lab.dialogs
            where is_secure = %s and ratio = %s
            order by thread
            limit %s
            """,
            [is_secure, ratio, rows],
        )
    ]
    if how.dialogs == "shared":
        return [(handles[0],)] * cell.threads
    share = len(handles) // cell.threads
    return [tuple(handles[first : first + share]) for first in range(0, len(handles), share)]


def _watch(
    bed: Bed, sampler: Sampler, load: _Load, target: psycopg.Connection[Any], tell: Callable[[float], None]
) -> None:
    bed.check()
    sampler.check()
    load.check()
    tell(
        float(
            _value(
                target,
                """
                select coalesce(pg_catalog.sum(messages), 0) / 2.0 from lab.receives
                where processed_at > pg_catalog.clock_timestamp() - interval '2 s'
                """,
            )
        )
    )
    time.sleep(_POLL * 3)


def drain(
    bed: Bed,
    target: psycopg.Connection[Any],
    expected: int,
    check: Callable[[], None],
    *,
    patience: float = PATIENCE,
) -> None:
    """Wait until so many messages have been processed, or nothing more is to come: a message was lost then.

    Raises:
        ThroughputError: A server or worker has ended, or an initiator can't reach the target.
    """
    is_whole = _happens(
        bed, lambda: _processed(target) >= expected, check, patience=patience, progress=_PROCESSED
    )
    if not is_whole and (statuses := _statuses(bed)):
        raise ThroughputError(_complaint(patience, statuses))


def abandon(bed: Bed) -> None:
    """End all dialogs: behind a message that was lost others wait for ever, in the next cell's way."""
    for initiator in bed.initiators:
        with initiator.connect() as connection:
            ended = end_conversations(connection)
            connection.execute("delete from lab.dialogs")
        with bed.target.connect() as connection:
            end_conversations(connection, ended)


def _settle(bed: Bed, target: psycopg.Connection[Any]) -> bool:
    """Wait until nothing is on its way: what comes twice is to be among the target's rows.

    Returns:
        Whether that is so; it is not waited for for ever.
    """
    return _happens(bed, lambda: _is_quiet(bed, target), patience=_SETTLED, progress=_NO_PROGRESS)


def _is_quiet(bed: Bed, target: psycopg.Connection[Any]) -> bool:
    for initiator in bed.initiators:
        with initiator.connect() as connection:
            if _value(connection, _IS_SENDING):
                return False
    # After the others: what has left them is here.
    return not _value(target, _HAS_MESSAGES)


def _wait(
    bed: Bed,
    condition: Callable[[], bool],
    check: Callable[[], None] = lambda: None,
    *,
    patience: float = PATIENCE,
    progress: str = _RECEIVED,
) -> None:
    """Wait for what the servers are about to do.

    Raises:
        ThroughputError: Nothing happened at the target for so many seconds.
    """
    if not _happens(bed, condition, check, patience=patience, progress=progress):
        raise ThroughputError(_complaint(patience, _statuses(bed)))


def _happens(
    bed: Bed,
    condition: Callable[[], bool],
    check: Callable[[], None] = lambda: None,
    *,
    patience: float = PATIENCE,
    progress: str = _RECEIVED,
) -> bool:
    """Wait for what the servers are about to do; return False where their progress has stood still."""
    before: Any = None
    since = time.monotonic()
    looked = -math.inf
    with bed.target.connect() as target:
        while not condition():
            bed.check()
            check()
            if time.monotonic() - looked >= min(_LOOK, patience):
                now = _value(target, progress)
                looked = time.monotonic()
                if now != before:
                    before, since = now, looked
                elif looked - since > patience:
                    return False
            time.sleep(_POLL)
    return True


def _complaint(patience: float, statuses: str) -> str:
    return f"Nothing has arrived at the target for {patience:.0f} s. {statuses}"


def _wait_until_sent(bed: Bed, initiator: psycopg.Connection[Any], *, progress: str = _RECEIVED) -> None:
    _wait(bed, lambda: not _value(initiator, _IS_SENDING), progress=progress)


def _statuses(bed: Bed) -> str:
    found = []
    for initiator in bed.initiators:
        with initiator.connect() as connection:
            rows = connection.execute(
                """
                select distinct transmission_status from broker.transmission_queue
                where from_service_name = %s and transmission_status <> ''
                limit 3
                """,
                [SERVICE],
            ).fetchall()
            found += [f"{initiator.name} says: {status}" for (status,) in rows]
    return " ".join(found)


def _ahead(target: psycopg.Connection[Any]) -> float:
    """Return by how many seconds the target's clock is ahead of this machine's."""
    asked = time.time()
    there = float(_value(target, "select extract(epoch from pg_catalog.clock_timestamp())"))
    return there - (asked + time.time()) / 2


def _processed(target: psycopg.Connection[Any]) -> int:
    return int(_value(target, _PROCESSED))


def _value(connection: psycopg.Connection[Any], query: str) -> Any:
    row = connection.execute(query.encode()).fetchone()
    assert row is not None  # noqa: S101
    return row[0]


def _export(target: psycopg.Connection[Any], directory: Path) -> None:
    """Write what the target's readers wrote, of each body its header."""
    directory.mkdir(parents=True, exist_ok=True)
    fields = pa.schema([
        ("drop_no", pa.int64()), ("receive_no", pa.int64()), ("enqueued", pa.float64()),
        ("bytes", pa.int32()),
        ("test", pa.int64()), ("initiator", pa.int32()), ("thread", pa.int32()), ("number", pa.int64()),
        ("sent", pa.float64()),
    ])  # fmt: skip
    query = f"""
        select drop_no, receive_no, extract(epoch from enqueue_time)::float8, pg_catalog.length(message_val),
          pg_catalog.substr(message_val, 1, {HEADER.size})
        from lab.message_drop
        """  # noqa: S608
    with (
        target.transaction(),
        target.cursor(name="drop", binary=True) as cursor,
        pq.ParquetWriter(directory / "messages.parquet", fields) as writer,
    ):
        cursor.execute(query.encode())
        while rows := cursor.fetchmany(_ROWS):
            heads = [HEADER.unpack(row[4]) for row in rows]
            columns = [list(column) for column in zip(*rows, strict=True)][:4]
            columns += [list(column) for column in zip(*heads, strict=True)]
            columns[-1] = [moment / 1e6 for moment in columns[-1]]
            writer.write_table(pa.table(columns, schema=fields))
    receives = target.execute(
        "select receive_no, reader, messages, extract(epoch from processed_at)::float8 from lab.receives"
    ).fetchall()
    types = {
        "receive_no": pa.int64(),
        "reader": pa.int64(),
        "messages": pa.int64(),
        "processed": pa.float64(),
    }
    pq.write_table(
        pa.table(
            {name: [row[place] for row in receives] for place, name in enumerate(types)},
            schema=pa.schema(types.items()),
        ),
        directory / "receives.parquet",
    )
