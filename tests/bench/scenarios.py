"""What is measured. A scenario is a row of data, and so is what must lie in its database before it begins."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tests.bench.between import MOST_CONNECTIONS, MOST_SESSIONS, Hop, ManyDatabases, WhitepaperPath
from tests.bench.latency import Request
from tests.bench.loads import BODY_BYTES, NOTHING, Copy, Growth, Load, OldSnapshot, Sync
from tests.bench.stage import BATCH, CLERK, COUNT_MESSAGES, DIALOGS, Stock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.bench.loads import Scenario

SYNC = "fdatasync of a page"
COUNT_PLAIN_ROWS = "select count(*) from plain_rows"
HELD_GROUPS = 8
SIZES = (1024, 4096, 8192)
LARGE = 4096
CLIENTS = (1, 4, 16, 50)
FEW_INITIATORS = 3


@dataclass(frozen=True)
class Scale:
    """How deep and how long the adverse scenarios are.

    Attributes:
        depths: Messages behind those that are received; the first is what the others are compared with.
        held: Messages in each group that another session holds.
        snapshot_seconds: How long another session's snapshot is held.
        growth: Messages that pass through before the tables are looked at.
        initiators: Databases of one worker that send to one target.
        dialogs: Open ones, where there are very many.
        is_whole: Whether SEND has a line for each number of clients with each number of dialogs and each size, or each with the others' middle.
    """

    depths: tuple[int, ...]
    held: int
    snapshot_seconds: int
    growth: int
    initiators: int
    dialogs: int
    is_whole: bool


QUICK = Scale((1_000, 300_000), 20_000, 20, 200_000, 20, 20_000, False)
# That of the design's target.
DEEP = 2_000_000
# As the issue says; growth is what an hour of 1,000 messages a second is.
FULL = Scale((1_000, 100_000, DEEP, 5_000_000), 100_000, 120, 3_600_000, 100, 100_000, True)

_ONE_OF_EACH_DIALOG = (
    "select count(broker.send(d.handle, 'order', %(body)s::bytea))"
    " from (select handle from generate_series(1, %(turns)s) turn, dialogs order by turn, number) d"
)
_RUNS = (
    "select count(broker.send_batch(d.handle, 'order', %(bodies)s::bytea[]))"
    " from (select handle from generate_series(1, {turns}) turn, dialogs where {which} order by {order}) d"
)
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
# Each dialog's messages in runs of 100, as send_batch leaves them.
BATCHES_OF_MESSAGES = Stock(
    "batches of messages",
    100_000,
    _RUNS.format(turns="%(turns)s", which="true", order="turn, number"),
    DIALOGS * BATCH,
)
# Twenty dialogs with at least 10,000 messages each.
LONG_GROUPS = Stock(
    "long groups",
    200_000,
    _RUNS.format(turns="%(turns)s", which="number <= 20", order="number, turn"),
    20 * BATCH,
)
A_THOUSAND = replace(MESSAGES, name="a thousand messages", per_second=0, beneath=DIALOGS)


def _dialogs(count: int) -> str:
    return f"\\set dialog random(1, {count})\n"


_HANDLE = "(select handle from dialogs where number = :dialog)"
_SEND = f"select broker.send({_HANDLE}, 'order', :body::bytea)"

INSERT, INSERT_BATCH = "INSERT 1", f"INSERT {BATCH}"
INSERT_MANY = "INSERT 1000"
DELETE_ONE, DELETE_BATCH, DELETE_MANY = "DELETE 1", f"DELETE {BATCH}", "DELETE 1000"
SEND, SEND_BATCH = "broker.send", f"broker.send_batch {BATCH}"
AFTER_CHECKPOINT = f"{INSERT}, after a checkpoint"
ONE_DIALOG = f"{SEND}, one dialog"
TOP_ONE, TOP_BATCH, TOP_THOUSAND = (f"broker.receive TOP {top}" for top in (1, BATCH, 1000))
ECHO = "echo in one database, with an insert"
OLD_SNAPSHOT = "SEND and TOP 1 under an old snapshot"
HOT_DIALOG = f"{OLD_SNAPSHOT}, one hot dialog"
PATH = "whitepaper path, three initiators, TLS"
PATH_SEALED = f"{PATH}, sealed"
LONE_REQUEST = "a request and its answer, between workers"
PACED_REQUEST = "ten requests a second, between workers"


def sized(name: str, size: int) -> str:
    """Return the name of a line whose bodies are of this size."""
    return name if size == BODY_BYTES else f"{name}, {size:,} B"


_insert = Load("limits", INSERT, "insert into plain_rows (body) values (:body)", COUNT_PLAIN_ROWS)
_insert_batch = Load(
    "limits",
    INSERT_BATCH,
    "insert into plain_rows (body) select b from unnest(:bodies::bytea[]) b",
    COUNT_PLAIN_ROWS,
)
# Longer arrays are made where they are used: a command line has no room for them.
_insert_many = replace(
    _insert_batch,
    name=INSERT_MANY,
    script="insert into plain_rows (body) select b from unnest(array_fill(:body::bytea, array[1000])) b",
)
_insert_many_large = replace(_insert_many, name=sized(INSERT_MANY, LARGE), body_bytes=LARGE)
_delete = Load("limits", DELETE_ONE, DELETE.format(1), COUNT_PLAIN_ROWS, PLAIN_ROWS)
_delete_batch = Load("limits", DELETE_BATCH, DELETE.format(BATCH), COUNT_PLAIN_ROWS, BATCHES_OF_PLAIN_ROWS)
_delete_many = replace(
    _delete_batch,
    name=DELETE_MANY,
    script=DELETE.format(1000),
    stock=replace(BATCHES_OF_PLAIN_ROWS, name="many plain rows", per_second=500_000),
)
_send = Load("ours", SEND, f"{_dialogs(DIALOGS)}{_SEND}", COUNT_MESSAGES, of=INSERT)
_send_batch = Load(
    "ours",
    SEND_BATCH,
    f"{_dialogs(DIALOGS)}select broker.send_batch({_HANDLE}, 'order', :bodies::bytea[])",
    COUNT_MESSAGES,
    of=INSERT_BATCH,
)
_receive = Load("ours", TOP_ONE, RECEIVE.format(1), COUNT_MESSAGES, MESSAGES, of=DELETE_ONE)
_receive_batch = Load(
    "ours", TOP_BATCH, RECEIVE.format(BATCH), COUNT_MESSAGES, BATCHES_OF_MESSAGES, of=DELETE_BATCH
)


def _large(load: Load, *, per_second: int, clients: int = 1, of: str | None = None) -> Load:
    """Return the line with larger bodies, and fewer of them in stock: a copy of more would bring on a checkpoint, after which pages are written whole."""
    stock = replace(load.stock, name=f"large {load.stock.name}", per_second=per_second)
    if stock.fill == BATCHES_OF_MESSAGES.fill:
        # Of fewer dialogs, or there would be more than is wanted.
        stock = replace(
            stock,
            fill=_RUNS.format(turns="%(turns)s", which="number <= 100", order="turn, number"),
            rows_a_turn=100 * BATCH,
        )
    return replace(
        load,
        name=sized(load.name, LARGE),
        body_bytes=LARGE,
        stock=stock,
        clients=clients,
        of=of and sized(of, LARGE),
    )


def _send_to(dialogs: int, size: int, clients: int) -> Load:
    """Return SEND's line for one of so many dialogs."""
    words = {1: ", one dialog", DIALOGS: ""}.get(dialogs, f", {dialogs:,} dialogs")
    base = f"bench {dialogs:,} dialogs" if dialogs > DIALOGS else Stock.base
    return replace(
        _send,
        name=sized(f"{SEND}{words}", size),
        script=f"{_dialogs(dialogs)}{_SEND}",
        stock=Stock(f"nothing on {dialogs} dialogs", base=base),
        of=sized(INSERT, size),
        clients=clients,
        body_bytes=size,
    )


def _sends(scale: Scale) -> list[Load]:
    """Return SEND's lines, each number of clients and each size right after what they are a ratio of."""
    found = []
    for size in (BODY_BYTES, *SIZES):
        for clients in CLIENTS:
            if not scale.is_whole and size != BODY_BYTES and clients != 16:
                continue
            found.append(replace(_insert, name=sized(INSERT, size), clients=clients, body_bytes=size))
            dialogs = {DIALOGS} if size == BODY_BYTES else set()
            if scale.is_whole or clients == 16:
                dialogs |= {1, 50, 7_500} if size == BODY_BYTES or scale.is_whole else {7_500}
            elif clients == 50:
                dialogs.add(1)
            found += [_send_to(count, size, clients) for count in sorted(dialogs)]
    return found


def _ours(scale: Scale) -> list[Scenario]:
    return [
        *_sends(scale),
        *(
            replace(load, clients=clients)
            for clients in (1, 16)
            for load in (_insert_batch, _send_batch, _delete, _receive, _delete_batch, _receive_batch)
        ),
        _large(_delete, per_second=12_000, clients=16),
        _large(_receive, per_second=8_000, clients=16, of=DELETE_ONE),
        _large(_delete_batch, per_second=20_000),
        _large(_receive_batch, per_second=12_000, of=DELETE_BATCH),
        replace(
            _send,
            name="begin_dialog and first SEND",
            script="select broker.send(broker.begin_dialog('//shop', '//warehouse', 'ordering'), 'order', :body::bytea)",
            of=SEND,
            clients=16,
        ),
        _insert_many,
        replace(
            _send_batch,
            name="broker.send_batch 1000",
            script=f"{_dialogs(DIALOGS)}select broker.send_batch({_HANDLE}, 'order', array_fill(:body::bytea, array[1000]))",
            of=INSERT_MANY,
        ),
        _delete_many,
        *(
            replace(
                _receive_batch,
                name=f"broker.receive TOP {top}",
                script=RECEIVE.format(top),
                stock=LONG_GROUPS,
                of=DELETE_MANY,
            )
            for top in (1000, 10_000)
        ),
        replace(
            _receive_batch,
            name="broker.receive_groups, 100 of a message",
            script=(
                "select conversation_handle, message_type_name, message_body"
                f" from broker.receive_groups('warehouse', {BATCH}, top => 1)"
            ),
            stock=replace(MESSAGES, name="messages of many groups", per_second=40_000),
        ),
        Load(
            "ours",
            ECHO,
            f"{_dialogs(DIALOGS)}{_SEND};\n"
            "with request as materialized (select * from broker.receive('warehouse', top => 1)),"
            " work as (insert into plain_rows (body) select message_body from request returning id)"
            " select broker.send(conversation_handle, 'receipt', message_body) from request;\n"
            "select conversation_handle, message_body from broker.receive('shop', top => 1);",
            COUNT_PLAIN_ROWS,
            of=INSERT,
            clients=16,
        ),
    ]


def _after_checkpoint(load: Load, name: str, of: str | None = None) -> Load:
    return replace(
        load,
        part="adverse",
        name=name,
        clients=16,
        is_after_checkpoint=True,
        of=of,
    )


def _special(scale: Scale) -> list[Scenario]:
    """Return what may cost something, beside the same without."""
    sixteen = replace(_send, clients=16)
    many = Stock("nothing, many dialogs", base=f"bench {scale.dialogs:,} dialogs")
    return [
        _after_checkpoint(_insert, AFTER_CHECKPOINT),
        _after_checkpoint(_send, "SEND, after a checkpoint", AFTER_CHECKPOINT),
        replace(sixteen, part="adverse", name="SEND, retention on", stock=Stock("retention", base="bench retention"), of=SEND),
        replace(
            _receive,
            part="adverse",
            name="TOP 1, retention on",
            stock=replace(MESSAGES, name="retained", base="bench retention"),
            of=TOP_ONE,
        ),
        replace(
            sixteen,
            part="adverse",
            name="SEND, a role with granted rights",
            stock=Stock("rights", base="bench rights"),
            of=SEND,
            role=CLERK,
        ),
        replace(
            _receive,
            part="adverse",
            name="TOP 1, a role with granted rights",
            stock=replace(MESSAGES, name="messages for a role", base="bench rights"),
            of=TOP_ONE,
            role=CLERK,
        ),
        replace(
            _receive,
            part="adverse",
            name="TOP 1, ten priorities",
            stock=replace(MESSAGES, name="priorities", base="bench priorities"),
            of=TOP_ONE,
        ),
        replace(
            sixteen,
            part="adverse",
            name=f"SEND, {scale.dialogs:,} dialogs",
            script=f"{_dialogs(scale.dialogs)}{_SEND}",
            stock=many,
            of=SEND,
        ),
        replace(
            _receive,
            part="adverse",
            name=f"TOP 1, {scale.dialogs:,} dialogs",
            stock=replace(many, name="messages on many dialogs", per_second=12_000, fill=_ONE_OF_EACH_DIALOG.replace(
                "dialogs order by turn, number", f"dialogs where number %% {scale.dialogs // DIALOGS} = 0 order by turn, number"
            )),
            of=TOP_ONE,
        ),
    ]  # fmt: skip


def _deep(depth: int) -> Stock:
    """Return messages of each dialog in turn, and so many behind them, in runs."""
    return replace(
        MESSAGES,
        name=f"deep {depth}",
        last=_RUNS.format(
            turns=-(-depth // (DIALOGS * BATCH)),
            which=f"number <= {min(depth // BATCH, DIALOGS)}",
            order="turn, number",
        ),
        beneath=depth,
    )


def _behind(held: int) -> Stock:
    """Return first the messages of a few groups, then one of each other dialog in turn."""
    return Stock(
        f"behind {held}",
        12_000,
        _ONE_OF_EACH_DIALOG.replace("dialogs order", f"dialogs where number > {HELD_GROUPS} order"),
        rows_a_turn=DIALOGS - HELD_GROUPS,
        first=_RUNS.format(turns=held // BATCH, which=f"number <= {HELD_GROUPS}", order="number"),
        beneath=HELD_GROUPS * held,
    )


def deep(depth: int) -> str:
    """Return the name of the line with so many messages behind those that are received."""
    return f"TOP 1, {depth:,} behind"


def behind(held: int) -> str:
    """Return the name of the line with held groups of so many messages."""
    return f"TOP 1 behind {HELD_GROUPS} held groups of {held:,}"


def _adverse(scale: Scale) -> list[Scenario]:
    in_turn = f"{_dialogs(DIALOGS)}{_SEND};\n{RECEIVE.format(1)};"
    return [
        *(
            replace(
                _receive,
                part="adverse",
                name=deep(depth),
                stock=_deep(depth),
                of=(TOP_ONE, 1) if depth == scale.depths[0] else (deep(scale.depths[0]), 1),
            )
            for depth in scale.depths
        ),
        replace(
            _receive, part="adverse", name=behind(scale.held), stock=_behind(scale.held), of=TOP_ONE,
            held_groups=HELD_GROUPS,
        ),
        *_special(scale),
        OldSnapshot("adverse", OLD_SNAPSHOT, in_turn, COUNT_MESSAGES, A_THOUSAND, 4, scale.snapshot_seconds),
        # One client: others would find the dialog's group held, and receive nothing.
        OldSnapshot(
            "adverse", HOT_DIALOG, f"\\set dialog 1\n{in_turn.split(chr(10), 1)[1]}", COUNT_MESSAGES, NOTHING, 1,
            scale.snapshot_seconds,
        ),
        Growth(
            "adverse",
            f"{scale.growth:,} messages through the tables",
            # Whole groups: what is sent on one that another client holds goes with the next on it, and not a message stays for long.
            f"{_send_batch.script};\n{RECEIVE.format('null')};",
            NOTHING,
            4,
            scale.growth,
        ),
    ]  # fmt: skip


def _between(scale: Scale) -> list[Scenario]:
    limit, large = (INSERT_MANY, 1), (sized(INSERT_MANY, LARGE), 1)
    few, many = (f"{count} initiator databases of one worker" for count in (FEW_INITIATORS, scale.initiators))
    part = "between databases"
    return [
        Hop(part, "hop, no TLS", limit, encryption="DISABLED"),
        Hop(part, "hop, TLS", limit),
        Hop(part, "hop, no TLS, sealed", limit, "sealed", encryption="DISABLED"),
        Hop(part, "hop, TLS, sealed", limit, "sealed"),
        Hop(part, "hop, one worker", limit, "siblings"),
        Hop(part, sized("hop, no TLS", LARGE), large, per_second=5_000, body_bytes=LARGE, encryption="DISABLED"),
        Hop(part, sized("hop, TLS, sealed", LARGE), large, "sealed", per_second=5_000, body_bytes=LARGE),
        ManyDatabases(part, few, FEW_INITIATORS, limit),
        ManyDatabases(part, many, scale.initiators, (few, 1)),
        Request(part, LONE_REQUEST),
        Request(part, PACED_REQUEST, (LONE_REQUEST, 1), per_second=10),
        Request(part, f"{PACED_REQUEST}, beside 500/s on other dialogs", (PACED_REQUEST, 1), per_second=10, beside=500),
        WhitepaperPath(part, PATH, (INSERT, 50)),
        WhitepaperPath(part, f"{PATH}, ten threads each", (INSERT, 50), clients=30),
        WhitepaperPath(part, f"{PATH}, 100 a transaction", (PATH, 50), messages=BATCH),
        WhitepaperPath(part, PATH_SEALED, (INSERT, 50), is_sealed=True),
    ]  # fmt: skip


def scenarios(scale: Scale) -> list[Scenario]:
    """Return what is measured."""
    return [
        Sync("limits", SYNC),
        Copy("limits", "COPY 1000", 1000),
        *_ours(scale),
        *_adverse(scale),
        _insert_many_large,
        *_between(scale),
    ]


def in_turn(lines: Sequence[Scenario], demanded: Sequence[Target]) -> list[Scenario]:
    """Return the lines as they are measured: each soon after what it is a ratio of, so that what else the machine does falls on both.

    A peer's line comes right after ours that it is a target of, and what has no target comes last.
    """
    by_key = {line.key: line for line in lines}
    ours = {
        target.of: target.line
        for target in demanded
        if target.of in by_key and by_key[target.of].part == "peers"
    }
    compared = {target.line for target in demanded}
    found: list[Scenario] = []

    def add(line: Scenario) -> None:
        found.append(line)
        after = [each for each in lines if ours.get(each.key, each.base) == line.key]
        for each in sorted(after, key=lambda each: (each.key not in ours, each.key not in compared)):
            add(each)

    for line in lines:
        if ours.get(line.key, line.base) not in by_key:
            add(line)
    return found


# What was tried to reach a target, and what is left to try. Each is printed where its target is missed; an empty one as "nothing yet".
TRIED_SEND = (
    "Fewer plan nodes, operators and columns, the type's number on the endpoint: 312,000 instructions became 251,000 (pgmq.send 196,000), and 523,000 became 303,000 for a role with a grant; the look at the stack that proves who calls has added 12,000 since. No better:"
    " one statement that locks and inserts, the lock and the endpoint in one join, sub-selects in place of statements. A locked endpoint row instead of"
    " a second look at it: as much, and more WAL. A broker.send that the planner inlines: 3 % fewer, but another proof of who calls."
)
TRIED_ONE_DIALOG = (
    "Each message waits for the commit of the one before it. Type and rights are looked up before the lock. One statement that locks and inserts, and so is set up before it waits: as fast. An advisory lock"
    " instead of the group's row: 1.06 times as fast as a prototype, but a transaction over 10,000 dialogs exhausts the table of locks. A counter's row as the lock: half as fast."
)
TRIED_SEND_BATCH = "The endpoint read once and not by each of three statements: 4 % fewer instructions. Two thirds of the rest go into two indexes."
TRIED_TOP_ONE = (
    "One table a statement, names repeated on the endpoint, rollbacks counted without look-ups: 629,000 instructions became 510,000 (pgmq.pop 340,000). The counter updated by its key, and its page not"
    " pruned each time: 470,000, and among eight other readers 635,000 in place of 676,000. No better: the pick and the"
    " DELETE in one statement, the counter read and updated in one, one candidate in place of 16, conditions put together. Endpoint and type in one join: 2 % more. Each of many readers begins at another place of the head's priority: 4 % fewer among them, but a statement more. The rest is seven"
    " statements of 25,000 to 60,000 each, nearly all of it setting up."
)
TRIED_TOP_MANY = (
    "Endpoint and type looked up once where all messages are alike: TOP (100) takes 0.56 of the instructions, TOP (1000) 0.52. Floors past the index pages of what was received:"
    " 1.67 times the rate of TOP (100) over 190,000 messages without a vacuum, 1.06 of TOP (1000). Not sorted what comes in order: 5 % fewer instructions. TOP (1000) takes 26,000 a message,"
    " pgmq's read and delete 71,000; a tenth of ours makes message ids."
)
TRIED_ECHO = "What was tried for SEND and TOP (1), of which it consists."
TRIED_OLD_SNAPSHOT = (
    "Tokens for groups that have messages: three times the WAL, and they need a floor as well. It has a floor for each queue and priority, behind a horizon"
    " of senders in flight."
)
TRIED_HELD = (
    "All looks past what is held in one statement, each near group tried once: a quarter fewer instructions. Prototypes: a plain scan does 1 message a second, a loop of advisory locks 4; a session that remembers"
    " what it skipped 0.45 of the rate without held groups, and each quiet RECEIVE costs up to a quarter more."
)
TRIED_HOP = (
    "Prototypes: rows copied through the worker do 0.7 of what arrays passed on untouched do, rows one by one 0.6; another event loop is as fast."
    " Storing a batch without the sort that keeps its order: 3 % of deliver. A result of take that PL/pgSQL does not copy: 6 % of take at 4 KiB, nothing at 100 bytes."
)
TRIED_PATH = "Workers that look less often in vain: a third less of their processor time. Larger batches would gain little: each has some 250 messages, a RECEIVE 30. Single statements without BEGIN and COMMIT: 4 % of an idle worker's time. Some six tenths of the processor time are SEND's, a sixth the workers', half of that to seal and open."


@dataclass(frozen=True)
class Target:
    """What the design demands, and what it hopes for: this line's rate as a part of the other's, in the same rounds.

    `of` is None for a line that is compared with itself. `figure` is wal_bytes, or a note's name, where not the rate is meant; then less is better, and
    without `of` it is bytes, or what the note counts. `tried` says what was tried to reach it, and what is left; it is shown where the target is missed.
    """

    text: str
    line: tuple[str, int]
    of: tuple[str, int] | None
    must: float
    aim: float | None = None
    figure: str = "rate"
    tried: str = ""


def _of(here: int, design: int) -> str:
    return "" if here == design else f" (the design's {design:,} with --full)"


def targets(scale: Scale) -> list[Target]:
    """Return the targets of the design, with the depths and times of this scale; the texts say which are less than the design's."""
    initiators = f"{scale.initiators} initiator databases of one worker"
    pop, read = "pgmq.pop", "pgmq.read {} + delete"
    deepest = DEEP if DEEP in scale.depths else scale.depths[-1]
    return [
        Target("SEND, 16 clients, 1,000 dialogs, of LIMIT", (SEND, 16), (INSERT, 16), 0.50, 0.65, tried=TRIED_SEND),
        Target("SEND, 16 clients, of pgmq.send", (SEND, 16), ("pgmq.send", 16), 1.05, 1.25, tried=TRIED_SEND),
        Target("SEND, 50 clients on one dialog, of LIMIT", (ONE_DIALOG, 50), (INSERT, 50), 0.12, tried=TRIED_ONE_DIALOG),
        Target("send_batch 100, 1 client, of batch LIMIT", (SEND_BATCH, 1), (INSERT_BATCH, 1), 0.45, 0.7, tried=TRIED_SEND_BATCH),
        Target("send_batch 100, 16 clients, of batch LIMIT", (SEND_BATCH, 16), (INSERT_BATCH, 16), 0.45, 0.7, tried=TRIED_SEND_BATCH),
        Target("RECEIVE TOP (1), 1 client, of pgmq.pop", (TOP_ONE, 1), (pop, 1), 1.0, 1.3, tried=TRIED_TOP_ONE),
        Target("RECEIVE TOP (1), 16 clients, of pgmq.pop", (TOP_ONE, 16), (pop, 16), 1.0, 1.3, tried=TRIED_TOP_ONE),
        Target("RECEIVE TOP (100), of pgmq read + delete", (TOP_BATCH, 1), (read.format(100), 1), 2.0, 4.0, tried=TRIED_TOP_MANY),
        Target("RECEIVE TOP (1000), of pgmq read + delete", (TOP_THOUSAND, 1), (read.format(1000), 1), 3.0, 6.0, tried=TRIED_TOP_MANY),
        Target("echo in one database with an insert, of pgmq", (ECHO, 16), ("pgmq echo, with an insert", 16), 1.0, 1.4, tried=TRIED_ECHO),
        Target(f"{scale.snapshot_seconds} s{_of(scale.snapshot_seconds, FULL.snapshot_seconds)} under another session's old snapshot, end of start", (OLD_SNAPSHOT, 4), None, 0.85, 1.0, tried=TRIED_OLD_SNAPSHOT),
        Target("the same on one hot dialog, end of start", (HOT_DIALOG, 1), None, 0.85, 1.0, tried=TRIED_OLD_SNAPSHOT),
        Target(f"RECEIVE with {deepest:,}{_of(deepest, DEEP)} messages behind, of {scale.depths[0]:,} behind", (deep(deepest), 1), (deep(scale.depths[0]), 1), 0.9, 1.0),
        Target(f"RECEIVE behind 8 locked groups of {scale.held:,}{_of(scale.held, FULL.held)}, of none", (behind(scale.held), 1), (TOP_ONE, 1), 0.5, 0.9, tried=TRIED_HELD),
        Target("hop between databases of one worker, of INSERT 1000", ("hop, one worker", 1), (INSERT_MANY, 1), 0.10, 0.2, tried=TRIED_HOP),
        Target("hop between two workers, no TLS, of INSERT 1000", ("hop, no TLS", 1), (INSERT_MANY, 1), 0.10, 0.2, tried=TRIED_HOP),
        Target("hop with TLS, of INSERT 1000", ("hop, TLS", 1), (INSERT_MANY, 1), 0.08, 0.15, tried=TRIED_HOP),
        Target("hop at 4 KiB, of INSERT 1000 of 4 KiB", (sized("hop, no TLS", LARGE), 1), (sized(INSERT_MANY, LARGE), 1), 0.25, 0.4, tried=TRIED_HOP),
        Target("whole whitepaper path, one a transaction, of LIMIT at 50 clients", (PATH, 50), (INSERT, 50), 0.35, 0.6, tried=TRIED_PATH),
        Target("whole whitepaper path with ENCRYPTION = ON, of LIMIT at 50 clients", (PATH_SEALED, 50), (INSERT, 50), 0.35, 0.6, tried=TRIED_PATH),
        Target("whole whitepaper path, 100 a transaction, of one a transaction", (f"{PATH}, 100 a transaction", 50), (PATH, 50), 4, 10, tried=TRIED_PATH),
        Target(f"connections between two workers, {scale.initiators} initiator databases; at most", (initiators, 1), None, 2, None, MOST_CONNECTIONS),
        Target(f"sessions of a worker for each of {scale.initiators} databases; at most", (initiators, 1), None, 16, None, MOST_SESSIONS),
        Target("WAL of a SEND, of LIMIT's; at most", (SEND, 16), (INSERT, 16), 2.5, 1.6, "wal_bytes"),
        Target("WAL of RECEIVE TOP (100), bytes a message; at most", (TOP_BATCH, 1), None, 120, 60, "wal_bytes"),
    ]  # fmt: skip
