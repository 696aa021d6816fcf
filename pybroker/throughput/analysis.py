"""Spark SQL over what the target's readers wrote and over the samples.

Is every message there, how many a second, how late; and what the servers used and waited for.
"""

from __future__ import annotations

import os
from statistics import fmean
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from pybroker.throughput.bounds import bound

# msgspec reads an outcome's annotations.
from pybroker.throughput.estimates import Estimate, estimate
from pybroker.throughput.matrix import Cell  # noqa: TC001

if TYPE_CHECKING:
    from collections.abc import Sequence
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
        stack(
          3, 'wal', double(wal_bytes), 'server', server_cpu, 'worker', worker_cpu
        ) as (counter, value)
      from samples where at between {began} and {ended}
    )
    where value is not null
    group by server, counter
    order by server, counter
    """
# What each server and worker did between its first and its last reading, and used meanwhile.
_WORK = """
    with readings as (
      select server, min(at) as first, max(at) as last,
        max_by(server_cpu, at) - min_by(server_cpu, at) as server_seconds,
        max_by(worker_cpu, at) - min_by(worker_cpu, at) as worker_seconds
      from samples
      where at between {began} and {ended} and coalesce(server_cpu, worker_cpu) is not null
      group by server
    )
    select w.server, first(w.server_seconds) as server_seconds, first(w.worker_seconds) as worker_seconds,
      count_if(m.sent between w.first and w.last) as sent,
      count_if(m.enqueued between w.first and w.last) as arrived,
      count_if(r.processed between w.first and w.last) as processed
    from readings w
    left join messages m
      on m.test = {test} and (w.server = 'target' or w.server = concat('initiator', m.initiator))
    left join receives r on r.receive_no = m.receive_no
    group by w.server
    """
_TOTALS = """
    select sum(commits) as commits, sum(flushes) as flushes, sum(left_here) as left_here,
      sum(batches) as batches
    from (
      select server, max(commits) - min(commits) as commits, max(flushes) - min(flushes) as flushes,
        max(left_here) - min(left_here) as left_here, max(batches) - min(batches) as batches
      from samples where server <> 'target' group by server
    )
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
    "sent": "initiator bigint, thread bigint, messages bigint, began double, ended double, processor double",
    "samples": (
        "at double, server string, wal_bytes bigint, flushes bigint, commits bigint, left_here bigint,"
        " batches bigint, readers bigint, waits array<string>,"
        " server_cpu double, worker_cpu double, machine_cpu double"
    ),
}
# Said, as a column of nothing but nulls or empty lists does not tell its type.
_SAMPLE = pa.schema([
    ("at", pa.float64()), ("server", pa.string()), ("wal_bytes", pa.int64()), ("flushes", pa.int64()),
    ("commits", pa.int64()), ("left_here", pa.int64()), ("batches", pa.int64()), ("readers", pa.int64()),
    ("waits", pa.list_(pa.string())), ("server_cpu", pa.float64()), ("worker_cpu", pa.float64()),
    ("machine_cpu", pa.float64()),
])  # fmt: skip
# The roles whose work is the broker's own; the test clients are Python.
ROLES = ("initiator server", "initiator worker", "target server", "target worker")
# All of ROLES together.
ALL_ROLES = "servers and workers"
# Of all processors: what other programs may use while a rate still means something, as in `make bench`.
DISTURBED = 0.15


class Work(msgspec.Struct, frozen=True):
    """What a role did in the measured seconds.

    Attributes:
        messages: Sent, for an initiator's server; arrived, for a worker; processed, for the target's.
        seconds: Processor seconds that it used for them.
    """

    messages: int
    seconds: float


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
        work: Messages and processor seconds by role: ROLES and `clients`.
        commits_per_message: Transactions of an initiator's server, over the whole cell; None where unknown.
        flushes_per_message: Flushes of its log to its disk.
        per_batch: Messages that its worker sent at a time.
        others: What part of the machine other programs used; None where nobody can tell.
        repetition: Which run of the cell this is, from 1.
        estimates: Of all repetitions: `messages/s`, and messages per processor-second by role.
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
    work: dict[str, Work] = {}
    commits_per_message: float | None = None
    flushes_per_message: float | None = None
    per_batch: float | None = None
    others: float | None = None
    repetition: int = 1
    estimates: dict[str, Estimate] = {}

    @property
    def has_failed(self) -> bool:
        """Whether a message was lost, doubled or out of order."""
        return bool(self.lost or self.doubled or self.swapped)

    @property
    def is_disturbed(self) -> bool:
        """Whether other programs used more of the machine than messages a second bear."""
        return self.others is not None and self.others > DISTURBED

    @property
    def per_processor_second(self) -> dict[str, float]:
        """Messages that a second of a processor is good for, by role and of all servers and workers."""
        found = {who: work.messages / work.seconds for who, work in self.work.items() if work.seconds}
        if all(found.get(role) for role in ROLES):
            found[ALL_ROLES] = 1 / sum(1 / found[role] for role in ROLES)
        return found


def analyse(
    spark: SparkSession, cell: Cell, run: Run, directory: Path, *, seconds: float, repetition: int = 1
) -> Outcome:
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
    # These come late, and those of the target's readers not before they end: of the whole cell, and there.
    (totals,) = spark.sql(_TOTALS).collect()
    sent_in_all = sum(one.messages for one in run.sent)
    waits = _waits(spark.sql(_WAITS.format(**names)).collect())
    measured = run.ended - run.began
    received = sum(int(row.messages) for row in by_second.values())
    receives = sum(row.receives for row in by_second.values())
    cores = {
        f"{row.server} {row.counter}": float(row.each_second)
        for row in counters
        if row.counter in {"server", "worker"} and row.each_second is not None
    }
    return Outcome(
        cell=cell,
        sent=sent_in_all,
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
        bound_by=bound(
            quotas=run.quotas,
            cores=cores,
            machine=_machine(run, (counters[0].machine_cpu or 0.0) if counters else 0.0),
            others=_others(run) or 0.0,
            clients=max(
                (one.processor / (one.ended - one.began) for one in run.sent if one.ended > one.began),
                default=0.0,
            ),
            waits=waits,
        ),
        seconds=seconds,
        work=_work(spark.sql(_WORK.format(**names)).collect(), run),
        commits_per_message=_share(totals.commits, sent_in_all),
        flushes_per_message=_share(totals.flushes, sent_in_all),
        per_batch=_share(totals.left_here, totals.batches),
        others=_others(run),
        repetition=repetition,
    )


def merged(outcomes: Sequence[Outcome]) -> Outcome:
    """Return what the repetitions of a cell say together: sums, means, and estimates of what is looked at."""
    first = outcomes[0]
    work = {
        who: Work(
            sum(one.work[who].messages for one in outcomes if who in one.work),
            sum(one.work[who].seconds for one in outcomes if who in one.work),
        )
        for who in first.work
    }
    found = {"messages/s": estimate([one.rate for one in outcomes])}
    for who in first.per_processor_second:
        values = [one.per_processor_second[who] for one in outcomes if who in one.per_processor_second]
        found[who] = estimate(values)
    receives = sum(one.receives for one in outcomes)
    return msgspec.structs.replace(
        # What can't be added, such as latencies and waits, is that of the repetition in the middle.
        sorted(outcomes, key=lambda one: one.rate)[len(outcomes) // 2],
        sent=sum(one.sent for one in outcomes),
        lost=sum(one.lost for one in outcomes),
        doubled=sum(one.doubled for one in outcomes),
        swapped=sum(one.swapped for one in outcomes),
        rate=found["messages/s"].mean,
        send_rate=fmean(one.send_rate for one in outcomes),
        receives=receives,
        per_receive=sum(one.per_receive * one.receives for one in outcomes) / max(receives, 1),
        seconds=sum(one.seconds for one in outcomes),
        work=work,
        others=max((one.others for one in outcomes if one.others is not None), default=None),
        repetition=len(outcomes),
        estimates=found,
    )


def _wal(counters: Sequence[Row], rate: float, initiators: int) -> dict[str, float]:
    """Return what each server wrote for a message; of several initiators each has its share."""
    return {
        row.server: row.each_second / (rate if row.server == "target" else rate / initiators)
        for row in counters
        if row.counter == "wal" and row.each_second is not None and rate
    }


def _share(part: int | None, whole: int | None) -> float | None:
    return part / whole if part is not None and whole else None


def _waits(rows: Sequence[Row]) -> dict[str, list[tuple[str, float]]]:
    found: dict[str, list[tuple[str, float]]] = {}
    for row in rows:
        mine = found.setdefault(row.server, [])
        # A sample in which no session did anything.
        if row.wait is not None:
            mine.append((row.wait, float(row.part)))
    return found


def _work(rows: Sequence[Row], run: Run) -> dict[str, Work]:
    """Return what each role did and used; left out is one that used nothing, as far as anybody can tell."""
    found: dict[str, Work] = {}
    for row in rows:
        kind = "target" if row.server == "target" else "initiator"
        at_server = row.processed if kind == "target" else row.sent
        for who, messages, seconds in (
            ("server", at_server, row.server_seconds),
            # A message that has arrived was the work of both workers.
            ("worker", row.arrived, row.worker_seconds),
        ):
            if seconds and messages:
                before = found.get(f"{kind} {who}", Work(0, 0.0))
                found[f"{kind} {who}"] = Work(
                    before.messages + int(messages), before.seconds + float(seconds)
                )
    used = sum(one.processor for one in run.sent)
    if used:
        found["clients"] = Work(sum(one.messages for one in run.sent), used)
    return found


def _others(run: Run) -> float | None:
    """Return what part of the machine other programs used; None where nobody can tell."""
    if len(run.busy) < 2:  # noqa: PLR2004
        return None
    first, last = run.busy[0], run.busy[-1]
    strange = (last.everybody - first.everybody) - (last.ours - first.ours)
    return max(0.0, strange / ((last.at - first.at) * (os.cpu_count() or 1)))


def _machine(run: Run, sampled: float) -> float:
    """Return what part of the machine's processors was busy, by the marks or else by samples in percent."""
    if len(run.busy) < 2:  # noqa: PLR2004
        return sampled / 100
    first, last = run.busy[0], run.busy[-1]
    return (last.everybody - first.everybody) / ((last.at - first.at) * (os.cpu_count() or 1))
