"""Other queues, each by its own SQL: pgmq from a folder of the user's, procrastinate and PGQueuer from their packages.

A peer that isn't here is named in the report as not measured. pybroker needs none of them.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.bench.scenarios import COUNT_TRANSACTIONS, INSERT, INSERT_BATCH, Load
from tests.bench.stage import BATCH, Stock

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@dataclass(frozen=True)
class Peer:
    """Another queue: why it can't be measured, or how its database is made and what is measured."""

    name: str
    why_not: str = ""
    definitions: Callable[[], str] | None = None
    loads: tuple[Load, ...] = ()


PGMQ, PROCRASTINATE, PGQUEUER = "bench pgmq", "bench procrastinate", "bench pgqueuer"


def peers(folder: Path | None) -> tuple[Peer, ...]:
    """Return every peer; `folder` may have pgmq.sql, as its project publishes it."""
    return _pgmq(folder), _pgq(), _procrastinate(), _pgqueuer()


def _pgmq(folder: Path | None) -> Peer:
    if folder is None or not (folder / "pgmq.sql").is_file():
        return Peer("pgmq", "give --peer-sql a folder with its pgmq.sql")
    script = (folder / "pgmq.sql").read_text() + "\nselect pgmq.create('orders');\n"
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
        f"with r as materialized (select msg_id, message from pgmq.read('orders', 30, {BATCH}))"
        " select pgmq.delete('orders', array_agg(msg_id)), count(message) from r"
    )
    return Peer(
        "pgmq",
        definitions=lambda: script,
        loads=(
            *(
                load
                for clients in (1, 16)
                for load in (
                    Load(
                        "peers", "pgmq.send", "select pgmq.send('orders', :text::jsonb)", rows, empty,
                        of=INSERT, clients=clients,
                    ),
                    Load("peers", "pgmq.pop", pop, rows, stock, of="DELETE 1", clients=clients),
                )
            ),
            Load(
                "peers", f"pgmq.send_batch {BATCH}", "select pgmq.send_batch('orders', :texts::jsonb[])", rows,
                empty, of=INSERT_BATCH,
            ),
            Load(
                "peers", f"pgmq.read {BATCH} + delete", read_and_delete, rows,
                Stock("pgmq batches", 100_000, stock.fill, base=PGMQ), of=f"DELETE {BATCH}",
            ),
        ),
    )  # fmt: skip


def _pgq() -> Peer:
    return Peer("PgQ", "its readers take batches that a ticker of its own makes, so no line here is like it")


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
        "select id as job from procrastinate_fetch_job_v2(null, 1) \\gset\n"
        "select procrastinate_finish_job_v1(:job, 'succeeded', true);"
    )
    return Peer(
        "procrastinate",
        definitions=definitions,
        loads=(
            Load(
                "peers", "procrastinate defer", defer.format(text="(:text::jsonb)"), waiting,
                Stock("procrastinate nothing", base=PROCRASTINATE), of=INSERT, clients=16,
            ),
            Load(
                "peers", "procrastinate fetch and finish", fetch, waiting,
                Stock("procrastinate jobs", 3_000, fill, base=PROCRASTINATE), of="DELETE 1", clients=16,
            ),
        ),
    )  # fmt: skip


def _pgqueuer() -> Peer:
    if importlib.util.find_spec("pgqueuer") is None:
        return Peer("PGQueuer", "pip install --group bench")

    def definitions() -> str:
        from pgqueuer.adapters.persistence.qb import QueryBuilderEnvironment  # noqa: PLC0415

        return str(QueryBuilderEnvironment().build_install_query())

    from pgqueuer.adapters.persistence.qb import QueryQueueBuilder  # noqa: PLC0415

    query = str(QueryQueueBuilder().build_enqueue_query())
    for place, value in enumerate(
        ("'{0}'", "'{order}'", "array[:body::bytea]", "'{0 s}'", "array[null]", "array[null]"), 1
    ):
        query = query.replace(f"${place}::", f"{value}::")
    one_line = " ".join(line.split("--")[0].strip() for line in query.splitlines())
    return Peer(
        "PGQueuer",
        definitions=definitions,
        loads=(
            Load(
                "peers", "PGQueuer enqueue", one_line, COUNT_TRANSACTIONS, Stock("pgqueuer nothing", base=PGQUEUER),
                of=INSERT, clients=16,
            ),
        ),
    )  # fmt: skip


def databases(found: tuple[Peer, ...]) -> dict[str, Callable[[], str]]:
    """Return the definitions of each database that the peers' stocks are put into."""
    return {peer.loads[0].stock.base: peer.definitions for peer in found if peer.definitions is not None}
