"""What is measured. A scenario is a row of data, and so is what must lie in its database before it begins."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from tests.bench.stage import BATCH, COUNT_MESSAGES, DIALOGS, HOP_DIALOGS, BenchmarkError, Sample, Stock, body

if TYPE_CHECKING:
    from tests.bench.stage import Bench

BODY_BYTES = 100
HELD_GROUPS = 8
HELD_MESSAGES = 20_000
DEPTH = 300_000
# With less than this part of its stock left when the clients stopped, a queue may have been empty for some
# of them before.
NEARLY_DRY = 0.05
COUNT_PLAIN_ROWS = "select count(*) from plain_rows"
COUNT_TRANSACTIONS = ""
NOTHING = Stock()

_SOME_DIALOG = "\\set dialog random(1, {dialogs})\n"
_HANDLE = "(select handle from dialogs where number = :dialog)"
_ONE_OF_EACH_DIALOG = (
    "select count(broker.send(d.handle, 'order', %(body)s::bytea))"
    " from (select handle from generate_series(1, %(turns)s) turn, dialogs order by turn, number) d"
)


class Scenario(Protocol):
    """One line of the result."""

    @property
    def key(self) -> tuple[str, int]:
        """Name and clients."""

    @property
    def base(self) -> tuple[str, int] | None:
        """The line that this one is a ratio of, or None for a line that is PostgreSQL's own."""

    @property
    def part(self) -> str:
        """Where it stands in the report."""

    def measure(self, bench: Bench) -> Sample:
        """Return what one measurement found."""


@dataclass(frozen=True)
class Load:
    """What pgbench's clients do again and again, each time in a transaction of its own unless the script says more."""

    part: str
    name: str
    script: str
    count: str
    stock: Stock = NOTHING
    of: str | tuple[str, int] | None = None
    clients: int = 1
    body_bytes: int = BODY_BYTES
    # Sessions that hold a group each, the oldest in the queue, while the clients run.
    held_groups: int = 0

    @property
    def key(self) -> tuple[str, int]:
        return self.name, self.clients

    @property
    def base(self) -> tuple[str, int] | None:
        return (self.of, self.clients) if isinstance(self.of, str) else self.of

    def measure(self, bench: Bench) -> Sample:
        stock = self.stock
        while True:
            sample, before, after = bench.run(self, stock)
            if not stock.per_second or after > stock.beneath + (before - stock.beneath) * NEARLY_DRY:
                return sample
            stock = replace(stock, per_second=2 * stock.per_second)


@dataclass(frozen=True)
class OldSnapshot:
    """Clients that send and receive while another session holds the snapshot that it took when they began.

    The rate is that of the last fifth of the time, and its ratio is to the first fifth's.
    """

    part: str
    name: str
    script: str
    stock: Stock
    clients: int
    # How many times as long as other scenarios.
    times: int = 10
    body_bytes: int = BODY_BYTES
    held_groups: int = 0
    count: str = COUNT_TRANSACTIONS

    @property
    def key(self) -> tuple[str, int]:
        return self.name, self.clients

    @property
    def base(self) -> None:
        return None

    def measure(self, bench: Bench) -> Sample:
        return bench.run_under_an_old_snapshot(self)


@dataclass(frozen=True)
class Hop:
    """From one server's transmission queue through two workers into the other's queue, and acknowledged."""

    part: str
    name: str
    of: tuple[str, int]
    per_second: int = 20_000
    body_bytes: int = BODY_BYTES
    encryption: str = "REQUIRED"
    clients: int = 1

    @property
    def key(self) -> tuple[str, int]:
        return self.name, self.clients

    @property
    def base(self) -> tuple[str, int]:
        return self.of

    def measure(self, bench: Bench) -> Sample:
        shop, warehouse = bench.between_servers()
        turns = max(1, self.per_second * bench.seconds // (HOP_DIALOGS * BATCH))
        for site in (shop, warehouse):
            site.psql.rows("select broker.alter_endpoint('endpoint', encryption => %s)", self.encryption)
        warehouse.start_worker()
        shop.psql.rows(
            "select count(broker.send_batch(d.handle, 'order', %s::bytea[]))"
            " from (select handle from generate_series(1, %s) turn, dialogs order by turn, number) d",
            [body(self.body_bytes)] * BATCH,
            turns,
        )
        shop.start_worker()
        # The clock starts with the first message that has arrived, so starting Python and shaking hands are
        # not in it; and what came with that message is not counted.
        arrived = 0
        while not arrived:
            bench.watch(0.005)
            started = time.perf_counter()
            arrived = warehouse.psql.value(COUNT_MESSAGES)
        while shop.psql.value("select exists (select from broker_private.transmission_messages)"):
            bench.watch(0.02)
        seconds = time.perf_counter() - started
        total = bench.clear_hop()
        if total != turns * HOP_DIALOGS * BATCH:
            raise BenchmarkError(f"{turns * HOP_DIALOGS * BATCH} messages were sent and {total} received")
        return Sample((total - arrived) / seconds)


DELETE = (
    "delete from plain_rows"
    " where id = any (array(select id from plain_rows order by id limit {} for update skip locked))"
    " returning id, body"
)
RECEIVE = (
    "select conversation_handle, message_type_name, message_body from broker.receive('warehouse', top => {})"
)
PLAIN_ROWS = Stock(
    "plain rows",
    60_000,
    f"insert into plain_rows (body) select %(body)s from generate_series(1, {DIALOGS} * %(turns)s)",
)
BATCHES_OF_PLAIN_ROWS = replace(PLAIN_ROWS, name="batches of plain rows", per_second=250_000)
# One message of each dialog in turn, as many small transactions would leave them.
MESSAGES = Stock("messages", 12_000, _ONE_OF_EACH_DIALOG)
DEEP_MESSAGES = Stock("deep", 12_000, _ONE_OF_EACH_DIALOG, beneath=DEPTH)
# Each dialog's messages in runs of 100, as send_batch leaves them.
BATCHES_OF_MESSAGES = Stock(
    "batches of messages",
    100_000,
    "select count(broker.send_batch(d.handle, 'order', %(bodies)s::bytea[]))"
    " from (select handle from generate_series(1, %(turns)s) turn, dialogs order by turn, number) d",
    DIALOGS * BATCH,
)
# First the messages of a few groups, then one of each other dialog in turn.
BEHIND_HELD_GROUPS = Stock(
    "behind held groups",
    12_000,
    _ONE_OF_EACH_DIALOG.replace("dialogs order", f"dialogs where number > {HELD_GROUPS} order"),
    rows_a_turn=DIALOGS - HELD_GROUPS,
    first="select count(broker.send_batch(d.handle, 'order', %(bodies)s::bytea[]))"
    f" from (select handle from generate_series(1, {HELD_MESSAGES // BATCH}) turn, dialogs where number <= {HELD_GROUPS}"
    " order by number) d",
    beneath=HELD_GROUPS * HELD_MESSAGES,
)

INSERT, INSERT_BATCH = "INSERT 1", f"INSERT {BATCH}"
DELETE_ONE, DELETE_BATCH = "DELETE 1", f"DELETE {BATCH}"
SEND = "broker.send"
TOP_ONE, TOP_BATCH = "broker.receive TOP 1", f"broker.receive TOP {BATCH}"

_insert = Load("limits", INSERT, "insert into plain_rows (body) values (:body)", COUNT_PLAIN_ROWS)
_insert_batch = Load(
    "limits",
    INSERT_BATCH,
    "insert into plain_rows (body) select b from unnest(:bodies::bytea[]) b",
    COUNT_PLAIN_ROWS,
)
_delete = Load("limits", DELETE_ONE, DELETE.format(1), COUNT_PLAIN_ROWS, PLAIN_ROWS)
_delete_batch = Load("limits", DELETE_BATCH, DELETE.format(BATCH), COUNT_PLAIN_ROWS, BATCHES_OF_PLAIN_ROWS)
_send = Load(
    "ours",
    SEND,
    f"{_SOME_DIALOG.format(dialogs=DIALOGS)}select broker.send({_HANDLE}, 'order', :body::bytea)",
    COUNT_MESSAGES,
    of=INSERT,
)
_send_batch = Load(
    "ours",
    f"broker.send_batch {BATCH}",
    f"{_SOME_DIALOG.format(dialogs=DIALOGS)}select broker.send_batch({_HANDLE}, 'order', :bodies::bytea[])",
    COUNT_MESSAGES,
    of=INSERT_BATCH,
)
_receive = Load("ours", TOP_ONE, RECEIVE.format(1), COUNT_MESSAGES, MESSAGES, of=DELETE_ONE)
_receive_batch = Load(
    "ours", TOP_BATCH, RECEIVE.format(BATCH), COUNT_MESSAGES, BATCHES_OF_MESSAGES, of=DELETE_BATCH
)


def _sized(load: Load, size: int, of: str | None) -> Load:
    return replace(load, name=f"{load.name}, {size:,} B", body_bytes=size, of=of)


# Each line comes right after its base, so that what else the machine does falls on both.
SCENARIOS: tuple[Scenario, ...] = (
    *(
        replace(load, clients=clients)
        for clients in (1, 16)
        for load in (
            _insert,
            _send,
            _insert_batch,
            _send_batch,
            _delete,
            _receive,
            _delete_batch,
            _receive_batch,
        )
    ),
    replace(_insert, clients=50),
    replace(_send, clients=50),
    replace(
        _send,
        name="broker.send, one dialog",
        script=_send.script.replace(_SOME_DIALOG.format(dialogs=DIALOGS), "\\set dialog 1\n"),
        clients=50,
    ),
    *(
        line
        for size in (1024, 8192)
        for line in (
            _sized(replace(_insert, clients=16), size, None),
            _sized(replace(_send, clients=16), size, f"{INSERT}, {size:,} B"),
        )
    ),
    Load(
        "ours",
        "broker.receive TOP 1000",
        RECEIVE.format(1000),
        COUNT_MESSAGES,
        replace(BATCHES_OF_MESSAGES, per_second=200_000),
        of=(DELETE_BATCH, 1),
    ),
    Load(
        "ours",
        "echo in one database, with an insert",
        f"{_SOME_DIALOG.format(dialogs=DIALOGS)}select broker.send({_HANDLE}, 'order', :body::bytea);\n"
        "with request as materialized (select * from broker.receive('warehouse', top => 1)),"
        " work as (insert into plain_rows (body) select message_body from request returning id)"
        " select broker.send(conversation_handle, 'receipt', message_body) from request;\n"
        "select conversation_handle, message_body from broker.receive('shop', top => 1);",
        COUNT_TRANSACTIONS,
        of=INSERT,
        clients=16,
    ),
    replace(
        _receive,
        part="adverse",
        name=f"TOP 1, {DEPTH:,} deep",
        stock=DEEP_MESSAGES,
        of=(TOP_ONE, 1),
    ),
    replace(
        _receive,
        part="adverse",
        name=f"TOP 1 behind {HELD_GROUPS} held groups of {HELD_MESSAGES:,}",
        stock=BEHIND_HELD_GROUPS,
        of=(TOP_ONE, 1),
        held_groups=HELD_GROUPS,
    ),
    OldSnapshot(
        "adverse",
        "SEND and TOP 1 under an old snapshot",
        f"{_send.script};\n{RECEIVE.format(1)};",
        replace(MESSAGES, name="a thousand messages", per_second=0, beneath=DIALOGS),
        clients=4,
    ),
    Hop("between servers", "hop, TLS", of=(INSERT_BATCH, 1)),
    Hop("between servers", "hop, no TLS", of=(INSERT_BATCH, 1), encryption="DISABLED"),
    Hop("between servers", "hop, TLS, 4,096 B", of=(INSERT_BATCH, 1), per_second=5_000, body_bytes=4096),
)


@dataclass(frozen=True)
class Target:
    """What the design demands: this line's rate as a part of the other's, in the same rounds."""

    text: str
    line: tuple[str, int]
    of: tuple[str, int] | None
    must: float


TARGETS = (
    Target("SEND, 16 clients, 1,000 dialogs, of LIMIT", (SEND, 16), (INSERT, 16), 0.50),
    Target("the same, of pgmq.send", (SEND, 16), ("pgmq.send", 16), 1.05),
    Target("SEND, 50 clients on one dialog, of LIMIT", ("broker.send, one dialog", 50), (INSERT, 50), 0.12),
    Target("send_batch 100, 1 client, of batch LIMIT", (f"broker.send_batch {BATCH}", 1), (INSERT_BATCH, 1), 0.45),
    Target("send_batch 100, 16 clients, of batch LIMIT", (f"broker.send_batch {BATCH}", 16), (INSERT_BATCH, 16), 0.45),
    Target("RECEIVE TOP (1), 1 client, of pgmq.pop", (TOP_ONE, 1), ("pgmq.pop", 1), 1.0),
    Target("RECEIVE TOP (1), 16 clients, of pgmq.pop", (TOP_ONE, 16), ("pgmq.pop", 16), 1.0),
    Target("RECEIVE TOP (100), of pgmq read + delete", (TOP_BATCH, 1), (f"pgmq.read {BATCH} + delete", 1), 2.0),
    Target("under another session's old snapshot, end of start", ("SEND and TOP 1 under an old snapshot", 4), None, 0.85),
    Target("RECEIVE 300,000 deep, of 36,000 deep", (f"TOP 1, {DEPTH:,} deep", 1), (TOP_ONE, 1), 0.9),
    Target("RECEIVE behind 8 held groups of 20,000, of none", (f"TOP 1 behind {HELD_GROUPS} held groups of {HELD_MESSAGES:,}", 1), (TOP_ONE, 1), 0.5),
    Target("hop, of batch LIMIT", ("hop, no TLS", 1), (INSERT_BATCH, 1), 0.10),
    Target("hop with TLS, of batch LIMIT", ("hop, TLS", 1), (INSERT_BATCH, 1), 0.08),
)  # fmt: skip
