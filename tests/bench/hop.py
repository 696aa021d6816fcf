"""The hop between two databases, as `make instructions` counts it: take, deliver, acknowledge.

The worker's own functions make the calls, and hand each other what they return, so what is counted is what a batch
costs. The messages wait before the count begins.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import psycopg

from pybroker.workers.transport import statements
from pybroker.workers.transport.outgoing import batches
from pybroker.workers.transport.outgoing.known_dialogs import KnownDialogs
from pybroker.workers.transport.outgoing.sender import acknowledge
from pybroker.workers.transport.protocol import wire
from pybroker.workers.transport.protocol.rows import Destination, Securities

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from psycopg import AsyncConnection

    from pybroker.workers.transport.protocol.rows import Taken

TAKE, DELIVER, ACKNOWLEDGE, AFTER_VACUUM = "take", "deliver", "acknowledge", "take after a vacuum"
STEPS = (TAKE, DELIVER, ACKNOWLEDGE)
NEAR, FAR = "sending", "receiving"
LARGEST_BODY, LARGEST_BATCH = 2**19, 2**20
# What `take` reads: a vacuum that finds something to write down makes all plans with the table void.
TABLES = "transmission_messages", "far_events", "sequence_counters", "endpoints", "dialog_security"
_END = """
select broker.end_conversation(e.conversation_handle) from broker.conversation_endpoints e
join broker.services s using (service_id) where s.name = %s
"""


@dataclass(frozen=True)
class Shape:
    """Batches of so many messages of so many dialogs, and how many of them two sessions move.

    `is_first`: each batch has dialogs of its own, of which nothing has gone yet. `is_end`: each is
    the END of a target, which goes back.
    """

    messages: int
    dialogs: int
    few: int
    more: int
    is_first: bool = False
    after_vacuum: bool = False
    is_end: bool = False

    @property
    def service(self) -> str:
        """The far service of these dialogs, so each shape has a destination of its own."""
        return f"far {self.title}"

    @property
    def near_service(self) -> str:
        """The service that begins them: what comes back has a destination of its own too."""
        return f"near {self.title}"

    @property
    def title(self) -> str:
        """What the rows are called after the step."""
        what = "first of a dialog" if self.is_first else f"{self.messages} / {self.dialogs}"
        what = "END of a dialog" if self.is_end else what
        return f"{what}, after a vacuum" if self.after_vacuum else what

    @property
    def names(self) -> dict[str, str]:
        """The rows' names by step."""
        return {step: f"{step}, {self.title}" for step in ((TAKE,) if self.after_vacuum else STEPS)}

    @property
    def batches(self) -> int:
        """How many batches have to wait: those of three sessions."""
        return 1 + self.few + self.few + self.more


SHAPES = (
    Shape(1, 1, 20, 60),
    Shape(20, 20, 10, 30),
    Shape(250, 50, 4, 12),
    Shape(1, 1, 20, 60, is_first=True),
    Shape(1, 1, 20, 60, is_end=True),
    Shape(1, 1, 4, 12, after_vacuum=True),
)


def prepare(near_url: str, far_url: str, shapes: Sequence[Shape]) -> None:
    """Open the dialogs of the shapes and let their messages wait, in turn for each dialog."""
    with (
        psycopg.connect(near_url, autocommit=True) as near,
        psycopg.connect(far_url, autocommit=True) as far,
    ):
        _open(near, far, shapes)
        for shape in shapes:
            if shape.is_end:
                whole = replace(shape, messages=shape.batches)
                asyncio.run(move(near_url, far_url, shape.service, whole, 1))
                far.execute(_END, (shape.service,))
        near.execute("vacuum analyze")
        far.execute("vacuum analyze")


def _open(near: psycopg.Connection[Any], far: psycopg.Connection[Any], shapes: Sequence[Shape]) -> None:
    near.execute("select broker.create_queue('near')")
    far.execute("select broker.create_queue('far')")
    for shape in shapes:
        near.execute("select broker.create_service(%s, 'near')", (shape.near_service,))
        near.execute("select broker.create_route(%s, 'tcp://127.0.0.1:1', %s)", (shape.service,) * 2)
        far.execute("select broker.create_service(%s, 'far', '{DEFAULT}')", (shape.service,))
        far.execute("select broker.grant('SEND', 'SERVICE', %s, 'public')", (shape.service,))
        dialogs = shape.batches if shape.is_first or shape.is_end else shape.dialogs
        near.execute(
            "create temporary table dialog as select broker.begin_dialog(%s, %s) as handle"
            " from generate_series(1, %s)",
            (shape.near_service, shape.service, dialogs),
        )
        near.execute(
            "select broker.send(d.handle, 'DEFAULT', convert_to(repeat('x', 100), 'UTF8'))"
            " from generate_series(1, %s) n cross join dialog d",
            (shape.batches * shape.messages // dialogs,),
        )
        near.execute("drop table dialog")
    # As a worker does before it sends over a network.
    near.execute(
        "select broker_private.note_dialog_security(array_agg(e.endpoint_no), array_agg('N'::text), array_agg(null::bytea))"
        " from broker_private.endpoints e"
    )


async def move(near: str, far: str, service: str, shape: Shape, times: int) -> dict[str, int]:
    """Move so many batches to a service, each step in a session of its own; return the process of each."""
    connections = {
        step: await psycopg.AsyncConnection.connect(
            far if step == DELIVER else near, autocommit=True, prepare_threshold=0
        )
        for step in (*STEPS, "look", AFTER_VACUUM)
    }
    try:
        found = await connections["look"].execute(
            "select d.destination_no from broker_private.destinations d where d.service_name = %s",
            (service,),
        )
        (number,) = await found.fetchone() or (0,)
        guids = [await statements.broker_instance(connections[step]) for step in ("look", DELIVER)]
        destination = Destination(
            number, service, None, None, None, False, None, False, False, None, False, False
        )
        known = KnownDialogs()
        for _ in range(times):
            if shape.after_vacuum:
                for table in TABLES:
                    await connections[AFTER_VACUUM].execute(_vacuumed(table))
            taken = await _take(connections[TAKE], known, number, shape)
            await _settle(connections, destination, taken, *guids)
        return {step: connections[step].info.backend_pid for step in STEPS}
    finally:
        for connection in connections.values():
            await connection.close()


def _vacuumed(table: str) -> bytes:
    # It says to all sessions what a vacuum does that found something, and does so every time.
    return f"alter table broker_private.{table} set (autovacuum_enabled = on)".encode()


async def _take(
    connection: AsyncConnection[Any], known: KnownDialogs, destination: int, shape: Shape
) -> Taken:
    """Take as a sender does (outgoing/sender.py)."""
    limits = shape.messages, LARGEST_BATCH, LARGEST_BODY
    found = await known.take(connection, destination, (0, 1), limits)
    if found is None:
        taken, _ = await statements.take_small(connection, destination, (0, 1), limits, [])
    else:
        taken = found.taken
    assert taken is not None
    assert len(taken.kinds) == shape.messages
    return taken


async def _settle(
    connections: dict[str, AsyncConnection[Any]],
    destination: Destination,
    taken: Taken,
    guid: UUID,
    far_guid: UUID,
) -> None:
    ends = batches.ends_of(taken)
    batch = batches.batch_of(1, destination, taken, guid, sealed=None)
    delivered = await statements.deliver(connections[DELIVER], batch, Securities.of_all("N", len(ends)))
    ack = wire.Ack(
        number=1,
        broker_instance=far_guid.bytes,
        next_numbers=delivered.next_numbers,
        fault_codes=delivered.fault_codes,
        fault_texts=delivered.fault_texts,
        fault_is_final=delivered.fault_is_final,
    )
    moved, failed, waiting = batches.outcome(taken, ends, ack)
    assert not [*failed, *waiting], (failed, waiting)
    is_plain = batches.is_plain(taken, moved, ack)
    await acknowledge(connections[ACKNOWLEDGE], taken, moved, ack, is_plain=is_plain)


def move_batches(near: str, far: str, shape: Shape, times: int) -> dict[str, int]:
    """Do what `move` does, in an event loop of its own; an END goes back."""
    way = (far, near, shape.near_service) if shape.is_end else (near, far, shape.service)
    return asyncio.run(move(*way, shape, times))
