"""Spark SQL over what the target's readers wrote and over the samples.

Is every message there, how many a second, how late; and what the servers used and waited for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

# msgspec reads an outcome's annotations.
from pybroker.throughput.matrix import Cell  # noqa: TC001

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import Row, SparkSession

    from pybroker.throughput.cell import Run

_ACCOUNTS = """
    with numbered as (
      select m.*, lag(number) over (partition by initiator, thread order by drop_no) as before
      from messages m where test = {test}
    ),
    counted as (
      select initiator, thread, count(*) as rows, count(distinct number) as numbers, max(number) as highest,
        count_if(before > number) as swapped
      from numbered group by initiator, thread
    )
    select
      coalesce(sum(s.messages - coalesce(c.numbers, 0)), 0) as lost,
      coalesce(sum(coalesce(c.rows, 0) - coalesce(c.numbers, 0)), 0) as doubled,
      coalesce(sum(c.swapped), 0) as swapped,
      (select count(*) from messages where test <> {test}) as strays
    from sent s left join counted c using (initiator, thread)
    """
_SECONDS = """
    select cast(floor(processed - {began}) as int) as second, sum(messages) as messages,
      count(*) as receives, collect_set(reader) as readers
    from receives where processed >= {began} and processed < {ended}
    group by 1 order by 1
    """
_LATENCIES = """
    select
      percentile_approx(r.processed - m.enqueued, array(0.5, 0.95, 0.99), 10000) as from_queue,
      percentile_approx(r.processed - m.sent, array(0.5, 0.95, 0.99), 10000) as from_send
    from messages m join receives r using (receive_no)
    where r.processed >= {began} and r.processed < {ended}
    """
# Counters that a server has none of, such as processor seconds of somebody's own, are null in the samples.
_COUNTERS = """
    select server, counter,
      (max_by(value, at) - min_by(value, at)) / nullif(max(at) - min(at), 0) as each_second,
      (select avg(machine_cpu) from samples where at between {began} and {ended}) as machine_cpu
    from (
      select server, at,
        stack(3, 'wal', double(wal_bytes), 'server', server_cpu, 'worker', worker_cpu) as (counter, value)
      from samples where at between {began} and {ended}
    )
    where value is not null
    group by server, counter
    order by server, counter
    """
_WAITS = """
    select server, wait, count(wait) / nullif(sum(count(wait)) over (partition by server), 0) as part
    from (select server, explode_outer(waits) as wait from samples where at between {began} and {ended})
    group by server, wait
    order by server, part desc, wait
    """
_COLUMNS = {
    "messages": (
        "drop_no bigint, receive_no bigint, enqueued double, bytes int, test bigint, initiator int,"
        " thread int, number bigint, sent double"
    ),
    "receives": "receive_no bigint, reader bigint, messages bigint, processed double",
    "sent": "initiator bigint, thread bigint, messages bigint, began double, ended double",
    "samples": (
        "at double, server string, wal_bytes bigint, readers bigint, waits array<string>,"
        " server_cpu double, worker_cpu double, machine_cpu double"
    ),
}
# Said, as a column of nothing but nulls or empty lists does not tell its type.
_SAMPLE = pa.schema([
    ("at", pa.float64()), ("server", pa.string()), ("wal_bytes", pa.int64()), ("readers", pa.int64()),
    ("waits", pa.list_(pa.string())), ("server_cpu", pa.float64()), ("worker_cpu", pa.float64()),
    ("machine_cpu", pa.float64()),
])  # fmt: skip
# Above this part of the processors nothing but more of them makes a cell faster.
_BUSY_PERCENT = 90.0
# RECEIVE that waits for messages, and sessions that wait for nothing.
_IDLE = {"running", "Timeout:PgSleep"}


class Outcome(msgspec.Struct, frozen=True):
    """What a cell showed.

    Attributes:
        cell: Which.
        sent: Messages, of the whole cell.
        lost: Sent, and not among the target's rows.
        doubled: Rows beyond the first of a message.
        swapped: Messages of a thread with one dialog that came after a later one.
        rate: Messages a second that the target committed in the measured seconds.
        by_second: The same for each measured second.
        send_rate: Messages a second that the clients sent, over all their time.
        latency: Seconds from the target's queue until processed: median, 95th, 99th percentile.
        from_send: The same from the client's call.
        receives: RECEIVEs that brought something.
        per_receive: Messages that one brought.
        readers: Readers that received.
        cores: Processors that were busy by server and by whom, such as `target worker`.
        wal_per_message: Bytes of WAL a message by server.
        waits: What sessions waited for, by server: event and part of the samples, most frequent first.
        bound_by: What kept the cell from being faster.
        seconds: What the cell took, warm-up and draining included.
    """

    cell: Cell
    sent: int
    lost: int
    doubled: int
    swapped: int
    rate: float
    by_second: list[int]
    send_rate: float
    latency: list[float]
    from_send: list[float]
    receives: int
    per_receive: float
    readers: int
    cores: dict[str, float]
    wal_per_message: dict[str, float]
    waits: dict[str, list[tuple[str, float]]]
    bound_by: str
    seconds: float

    @property
    def has_failed(self) -> bool:
        """Whether a message was lost, doubled or out of order."""
        return bool(self.lost or self.doubled or self.swapped)


def analyse(spark: SparkSession, cell: Cell, run: Run, directory: Path, *, seconds: float) -> Outcome:
    """Account for each message of a cell, and measure it; the samples join the target's rows as Parquet."""
    pq.write_table(
        pa.Table.from_pylist([msgspec.to_builtins(one) for one in run.samples], _SAMPLE),
        directory / "samples.parquet",
    )
    pq.write_table(
        pa.Table.from_pylist([msgspec.to_builtins(one) for one in run.sent]), directory / "sent.parquet"
    )
    for name, columns in _COLUMNS.items():
        # With its columns given, Spark needs no job of its own to find them out.
        file = directory / f"{name}.parquet"
        spark.read.schema(columns).parquet(str(file)).createOrReplaceTempView(name)
    names = {"test": run.test, "began": run.began, "ended": run.ended}
    (accounts,) = spark.sql(_ACCOUNTS.format(**names)).collect()
    by_second = {row.second: row for row in spark.sql(_SECONDS.format(**names)).collect()}
    (latencies,) = spark.sql(_LATENCIES.format(**names)).collect()
    counters = spark.sql(_COUNTERS.format(**names)).collect()
    waits = _waits(spark.sql(_WAITS.format(**names)).collect())
    measured = run.ended - run.began
    received = sum(int(row.messages) for row in by_second.values())
    receives = sum(row.receives for row in by_second.values())
    cores = {
        f"{row.server} {row.counter}": float(row.each_second)
        for row in counters
        if row.counter != "wal" and row.each_second is not None
    }
    return Outcome(
        cell=cell,
        sent=sum(one.messages for one in run.sent),
        lost=int(accounts.lost),
        doubled=int(accounts.doubled) + accounts.strays,
        # Threads that share a dialog, or use several, have no order among their messages.
        swapped=int(accounts.swapped) if cell.how.dialogs == "own" else 0,
        rate=received / measured,
        by_second=[
            int(by_second[second].messages) if second in by_second else 0 for second in range(int(measured))
        ],
        send_rate=sum(one.messages / max(one.ended - one.began, 1e-3) for one in run.sent),
        latency=[float(value) for value in latencies.from_queue or ()],
        from_send=[float(value) for value in latencies.from_send or ()],
        receives=receives,
        per_receive=received / max(receives, 1),
        readers=len({reader for row in by_second.values() for reader in row.readers}),
        cores=cores,
        wal_per_message=_wal(counters, received / measured, cell.initiators),
        waits=waits,
        bound_by=_bound(run.quotas, counters[0].machine_cpu if counters else 0.0, waits, cores),
        seconds=seconds,
    )


def _wal(counters: Sequence[Row], rate: float, initiators: int) -> dict[str, float]:
    """Return what each server wrote for a message; of several initiators each has its share of them."""
    return {
        row.server: row.each_second / (rate if row.server == "target" else rate / initiators)
        for row in counters
        if row.counter == "wal" and row.each_second is not None and rate
    }


def _waits(rows: Sequence[Row]) -> dict[str, list[tuple[str, float]]]:
    found: dict[str, list[tuple[str, float]]] = {}
    for row in rows:
        mine = found.setdefault(row.server, [])
        # A sample in which no session did anything.
        if row.wait is not None:
            mine.append((row.wait, float(row.part)))
    return found


def _bound(
    quotas: Mapping[str, float],
    machine_cpu: float,
    waits: Mapping[str, Sequence[tuple[str, float]]],
    cores: Mapping[str, float],
) -> str:
    used = {who: 100 * cores[who] / quota for who, quota in quotas.items() if who in cores}
    if used and max(used.values()) > _BUSY_PERCENT:
        return f"the quota of the {max(used, key=lambda who: used[who])}"
    if machine_cpu > _BUSY_PERCENT:
        return "the machine's processors"
    tops = [
        (part, f"{wait} at the {server}")
        for server, events in waits.items()
        for wait, part in events
        if wait not in _IDLE
    ]
    return max(tops)[1] if tops else "the number of clients"
