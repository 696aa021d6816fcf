"""Other queues, each as its authors recommend: pgmq and PgQ by their own SQL, from a folder of the user's; procrastinate by the calls of its client,
PGQueuer by its client, both from their packages.

A peer that isn't here is named in the report as not measured. pybroker needs none of them.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import re
import time
from dataclasses import dataclass
from datetime import timedelta
from importlib import metadata
from typing import TYPE_CHECKING
from uuid import uuid4

from tests.bench.loads import BODY_BYTES, COUNT_TRANSACTIONS, Compared, Load, OldSnapshot
from tests.bench.scenarios import (
    COUNT_PLAIN_ROWS,
    DELETE_BATCH,
    DELETE_MANY,
    DELETE_ONE,
    INSERT,
    INSERT_BATCH,
)
from tests.bench.stage import BATCH, WARM_UP_SECONDS, BenchmarkError, Sample, Stock

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pgqueuer.adapters.persistence.queries import Queries

    from tests.bench.loads import Scenario
    from tests.bench.scenarios import Scale
    from tests.bench.stage import Bench


@dataclass(frozen=True)
class Peer:
    """Another queue: why it can't be measured, or how its database is made and what is measured."""

    name: str
    why_not: str = ""
    # Its own, or of what file it was made.
    version: str = ""
    definitions: Callable[[], str] | None = None
    base: str = ""
    loads: tuple[Scenario, ...] = ()


PGMQ, PGQ, PROCRASTINATE, PGQUEUER = "bench pgmq", "bench pgq", "bench procrastinate", "bench pgqueuer"
# Its daemon ticks once a second: so many events are what its sender inserts in one, roughly, as measured here with 16 clients.
TICK = 10_000


def peers(folder: Path | None, scale: Scale) -> tuple[Peer, ...]:
    """Return every peer; `folder` may have pgmq.sql and pgq_pl_only.sql, as their projects make them."""
    return _pgmq(folder, scale), _pgq(folder), _procrastinate(), _pgqueuer()


def _pgmq(folder: Path | None, scale: Scale) -> Peer:
    if folder is None or not (folder / "pgmq.sql").is_file():
        return Peer("pgmq", "give --peer-sql a folder with its pgmq.sql")
    script = (folder / "pgmq.sql").read_text() + (
        "\nselect pgmq.create('orders'), pgmq.create('receipts');"
        "\ncreate table plain_rows (id bigint generated always as identity primary key, body bytea not null);\n"
    )
    rows = "select count(*) from pgmq.q_orders"
    stock = Stock(
        "pgmq messages",
        12_000,
        "select count(*) from pgmq.send_batch('orders', array_fill(to_jsonb(%(text)s::text), array[%(turns)s * 1000]))",
        base=PGMQ,
    )
    empty = Stock("pgmq nothing", base=PGMQ)
    pop = "select msg_id, message from pgmq.pop('orders')"
    read_and_delete = (
        "with r as materialized (select msg_id, message from pgmq.read('orders', 30, {}))"
        " select pgmq.delete('orders', array_agg(msg_id)), count(message) from r"
    )
    send = "select pgmq.send('orders', :text::jsonb)"
    return Peer(
        "pgmq",
        version=_digest(folder / "pgmq.sql"),
        definitions=lambda: script,
        base=PGMQ,
        loads=(
            *(
                load
                for clients in (1, 16)
                for load in (
                    Load("peers", "pgmq.send", send, rows, empty, of=INSERT, clients=clients),
                    Load("peers", "pgmq.pop", pop, rows, stock, of=DELETE_ONE, clients=clients),
                )
            ),
            Load(
                "peers", f"pgmq.send_batch {BATCH}", "select pgmq.send_batch('orders', :texts::jsonb[])", rows,
                empty, of=INSERT_BATCH,
            ),
            *(
                Load(
                    "peers", f"pgmq.read {size} + delete", read_and_delete.format(size), rows,
                    Stock(f"pgmq batches of {size}", 100_000, stock.fill, base=PGMQ), of=of,
                )
                for size, of in ((BATCH, DELETE_BATCH), (1000, DELETE_MANY))
            ),
            *(
                Load(
                    "peers", f"pgmq.pop {size}", f"select msg_id, message from pgmq.pop('orders', {size})", rows,
                    Stock(f"pgmq batches of {size}", 100_000, stock.fill, base=PGMQ), of=of,
                )
                for size, of in ((BATCH, DELETE_BATCH), (1000, DELETE_MANY))
                if re.search(r"function pgmq\.pop\(queue_name text, qty", script, re.IGNORECASE)
            ),
            Load(
                "peers", "pgmq echo, with an insert",
                f"{send};\n"
                "with request as materialized (select message from pgmq.pop('orders')),"
                " work as (insert into plain_rows (body) select convert_to(message::text, 'UTF8') from request returning id)"
                " select pgmq.send('receipts', message) from request;\n"
                "select message from pgmq.pop('receipts');",
                COUNT_PLAIN_ROWS, empty, of=INSERT, clients=16,
            ),
            OldSnapshot(
                "peers", "pgmq send and pop under an old snapshot", f"{send};\n{pop};", rows,
                Stock("pgmq a thousand", fill=stock.fill, beneath=1_000, base=PGMQ), 4, scale.snapshot_seconds,
            ),
        ),
    )  # fmt: skip


def _pgq(folder: Path | None) -> Peer:
    if folder is None or not (folder / "pgq_pl_only.sql").is_file():
        return Peer("PgQ", "give --peer-sql a folder with its pgq_pl_only.sql: make plonly, in its sources")
    # Its ticker is a daemon; here a procedure, whose ticks are as many events apart as the daemon's are under load.
    script = (
        (folder / "pgq_pl_only.sql").read_text()
        + f"""
select pgq.create_queue('orders'), pgq.register_consumer('orders', 'reader');
create procedure fill_orders(batches integer, body text) language plpgsql as $$
begin
  for batch in 1..batches loop
    perform pgq.insert_event('orders', 'order', body) from generate_series(1, {TICK});
    commit;
    perform pgq.ticker('orders');
    commit;
  end loop;
end
$$;
"""
    )
    # Events that were ticked and not read.
    waiting = (
        "select (select max(tick_event_seq) from pgq.tick) - t.tick_event_seq"
        " from pgq.subscription s join pgq.tick t on t.tick_id = s.sub_last_tick and t.tick_queue = s.sub_queue"
    )
    read = (
        "select coalesce(pgq.next_batch('orders', 'reader'), 0) as batch \\gset\n"
        # There is none between the last tick and the next.
        "\\if :batch > 0\n"
        "select ev_id, ev_type, ev_data from pgq.get_batch_events(:batch);\n"
        "select pgq.finish_batch(:batch);\n"
        "\\endif"
    )
    insert = "select pgq.insert_event('orders', 'order', :text)"
    return Peer(
        "PgQ",
        version=f"in PL/pgSQL, {_digest(folder / 'pgq_pl_only.sql')}",
        definitions=lambda: script,
        base=PGQ,
        loads=(
            *(
                Load("peers", "pgq.insert_event", insert, COUNT_TRANSACTIONS, Stock("pgq nothing", base=PGQ), of=INSERT, clients=clients)
                for clients in (1, 16)
            ),
            Load(
                "peers", f"pgq batch of {TICK:,}", read, waiting,
                Stock(
                    "pgq events", 300_000, "call fill_orders(%(turns)s, %(text)s)", rows_a_turn=TICK, base=PGQ
                ),
                of=DELETE_MANY,
            ),
        ),
    )  # fmt: skip


def _procrastinate() -> Peer:
    if importlib.util.find_spec("procrastinate") is None:
        return Peer("procrastinate", "pip install --group bench")

    def definitions() -> str:
        from procrastinate.schema import SchemaManager  # noqa: PLC0415

        return f"{SchemaManager.get_schema()};\ninsert into procrastinate_workers default values;\n"

    defer = (
        "select procrastinate_defer_jobs_v1(array[row('orders', 'order', 0, null, null,"
        " jsonb_build_object('body', {text}), null)::procrastinate_job_to_defer_v1])"
    )
    waiting = "select count(*) from procrastinate_jobs where status = 'todo'"
    fill = defer.format(text="%(text)s::text") + " from generate_series(1, %(turns)s * 1000)"
    fetch = (
        "select coalesce(id, 0) as job from procrastinate_fetch_job_v2(null, 1) \\gset\n"
        # A queue that ran dry is filled deeper and measured again.
        "\\if :job > 0\n"
        "select procrastinate_finish_job_v1(:job, 'succeeded', true);\n"
        "\\endif"
    )
    return Peer(
        "procrastinate",
        version=metadata.version("procrastinate"),
        definitions=definitions,
        base=PROCRASTINATE,
        loads=(
            Load(
                "peers", "procrastinate defer, its SQL", defer.format(text="(:text::jsonb)"), waiting,
                Stock("procrastinate nothing", base=PROCRASTINATE), of=INSERT, clients=16,
            ),
            Load(
                "peers", "procrastinate fetch, finish and delete, its SQL", fetch, waiting,
                Stock("procrastinate jobs", 3_000, fill, base=PROCRASTINATE), of=DELETE_ONE, clients=16,
            ),
        ),
    )  # fmt: skip


def _pgqueuer() -> Peer:
    if importlib.util.find_spec("pgqueuer") is None or importlib.util.find_spec("asyncpg") is None:
        return Peer("PGQueuer", "pip install --group bench")

    def definitions() -> str:
        from pgqueuer.adapters.persistence.qb import QueryBuilderEnvironment  # noqa: PLC0415

        queries = QueryBuilderEnvironment()
        # `pgq autovac` is the first that its page on performance recommends.
        return f"{queries.build_install_query()}\n{queries.build_optimize_autovacuum_query()}"

    from pgqueuer.adapters.persistence.qb import QueryQueueBuilder  # noqa: PLC0415

    query = str(QueryQueueBuilder().build_enqueue_query())
    for place, value in enumerate(
        ("'{0}'", "'{order}'", "array[:body::bytea]", "'{0 s}'", "array[null]", "array[null]"), 1
    ):
        query = query.replace(f"${place}::", f"{value}::")
    one_line = " ".join(line.split("--")[0].strip() for line in query.splitlines())
    return Peer(
        "PGQueuer",
        version=metadata.version("pgqueuer"),
        definitions=definitions,
        base=PGQUEUER,
        loads=(
            Load(
                "peers", "PGQueuer enqueue, its SQL", one_line, COUNT_TRANSACTIONS, Stock("pgqueuer nothing", base=PGQUEUER),
                of=INSERT, clients=16,
            ),
            # Ten are its default; its page on performance recommends larger batches for short jobs.
            PgqueuerReader("peers", "PGQueuer's client, dequeue 10 and log", (DELETE_ONE, 1), 10, 8_000),
            PgqueuerReader("peers", f"PGQueuer's client, dequeue {BATCH} and log", (DELETE_BATCH, 1), BATCH, 40_000),
        ),
    )  # fmt: skip


@dataclass(frozen=True)
class PgqueuerReader(Compared):
    """Jobs through PGQueuer's own client: some are taken, and then logged as done, as its queue manager does."""

    part: str
    name: str
    of: tuple[str, int]
    batch: int
    per_second: int
    clients: int = 1

    def measure(self, bench: Bench) -> Sample:
        bench.begin(Stock("pgqueuer nothing", base=PGQUEUER), BODY_BYTES)
        sample = asyncio.run(self._read(bench))
        bench.drop("bench")
        return sample

    async def _read(self, bench: Bench) -> Sample:
        # With the driver that its README begins with.
        import asyncpg  # noqa: PLC0415
        from pgqueuer.adapters.drivers.asyncpg import AsyncpgDriver  # noqa: PLC0415
        from pgqueuer.adapters.persistence.queries import Queries  # noqa: PLC0415

        session = await asyncpg.connect(bench.server.url("bench"))
        try:
            queries = Queries(AsyncpgDriver(session))
            for _ in range(WARM_UP_SECONDS + bench.seconds):
                jobs = self.per_second
                await queries.enqueue(["order"] * jobs, [bytes(BODY_BYTES)] * jobs, [0] * jobs)
            await session.execute("vacuum (analyze)")
            await self._take(queries, WARM_UP_SECONDS)
            with bench.metered() as used:
                done, seconds = await self._take(queries, bench.seconds)
        finally:
            await session.close()
        if not done:
            raise BenchmarkError(f"{self.name} did nothing")
        return used.sample(done, done / seconds)

    async def _take(self, queries: Queries, most: float) -> tuple[int, float]:
        from pgqueuer.domain.types import QueueEntrypoint, QueueManagerId  # noqa: PLC0415
        from pgqueuer.ports.repository import EntrypointExecutionParameter  # noqa: PLC0415

        me, done = QueueManagerId(uuid4()), 0
        entrypoints = {QueueEntrypoint("order"): EntrypointExecutionParameter(0)}
        started = time.perf_counter()
        while (seconds := time.perf_counter() - started) < most:
            taken = await queries.dequeue(self.batch, entrypoints, me, None, timedelta(seconds=30))
            if not taken:
                # What was done until then is a rate as well.
                break
            await queries.log_jobs([(job, "successful", None) for job in taken])
            done += len(taken)
        return done, seconds


def _digest(script: Path) -> str:
    return f"sha256 {hashlib.sha256(script.read_bytes()).hexdigest()[:16]}"


def databases(found: tuple[Peer, ...]) -> dict[str, Callable[[], str]]:
    """Return the definitions of each database that the peers' stocks are put into."""
    return {peer.base: peer.definitions for peer in found if peer.definitions is not None}
