"""One direction of a hop, played by a test: take, deliver and acknowledge of two databases, and no worker between them."""

from __future__ import annotations

import asyncio
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from psycopg import AsyncConnection
from psycopg.adapt import Transformer
from psycopg.pq import Format

from pybroker.workers.transport.outgoing.known_dialogs import KnownDialogs
from tests.brokers import INITIATOR_DEFINITIONS, TARGET_DEFINITIONS
from tests.shop import Session

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from pybroker.workers.transport.outgoing.known_dialogs import Found
    from tests.conftest import Database

_ARRAYS = {
    "uuid[]": 2951,
    "boolean[]": 1000,
    "text[]": 1009,
    "timestamptz[]": 1185,
    "integer[]": 1007,
    "bigint[]": 1016,
    "bytea[]": 1001,
}
# Of take's columns those that deliver is given, in its order, with their types.
_COLUMNS = {
    "conversation_ids": "uuid[]",
    "from_initiator": "boolean[]",
    "from_services": "text[]",
    "to_services": "text[]",
    "to_brokers": "uuid[]",
    "contracts": "text[]",
    "expirations": "timestamptz[]",
    "encrypted": "boolean[]",
    "type_names": "text[]",
    "dialog_index": "integer[]",
    "type_index": "integer[]",
    "sequence_numbers": "bigint[]",
    "kinds": "text",
    "bodies": "bytea[]",
}


@dataclass(frozen=True)
class Batch:
    """What take returned of one dialog."""

    endpoint: int
    numbers: list[int]
    rows: list[int]
    columns: dict[str, Any]
    acknowledged: list[int]
    sent_at: list[Any]

    @property
    def end(self) -> int:
        return self.numbers[-1] + 1

    def last(self) -> Batch:
        """Return a batch of its last message alone, as one of a smaller size would be."""
        each = ("type_index", "sequence_numbers", "bodies", "dialog_index")
        columns = self.columns | {name: self.columns[name][-1:] for name in (*each, "kinds")}
        return replace(
            self, numbers=self.numbers[-1:], rows=self.rows[-1:], columns=columns, sent_at=self.sent_at[-1:]
        )


class Hop:
    """A shop with a route to a warehouse in another database; `dialog` is one between the two."""

    def __init__(self, make_database: Callable[[str], Database]) -> None:
        self.near, self.far = (Session(make_database(name).connect()) for name in ("near", "far"))
        self.near.connection.execute(INITIATOR_DEFINITIONS)
        self.far.connection.execute(TARGET_DEFINITIONS)
        self.near.rows(
            "select broker.create_route('far', 'tcp://127.0.0.1:9', service_name => '//warehouse')"
        )
        self.near_broker, self.far_broker = (
            site.value("select service_broker_guid from broker_private.broker_instance")
            for site in (self.near, self.far)
        )
        self.dialog = self.begin()
        # What a worker's sender remembers.
        self.known = KnownDialogs()
        self._worker: AsyncConnection[Any] | None = None

    def restart(self) -> None:
        """Forget what a worker remembers of the near database."""
        self.known = KnownDialogs()

    def back(self) -> Hop:
        """The same two databases, seen from the far one: it takes, and the near one delivers."""
        back = copy(self)
        back.near, back.far = self.far, self.near
        back.near_broker, back.far_broker = self.far_broker, self.near_broker
        back.known, back._worker = KnownDialogs(), None
        return back

    def begin(self, contract: str = "ordering") -> UUID:
        handle: UUID = self.near.value(
            "select broker.begin_dialog('//shop', '//warehouse', %s, encryption => false)", contract
        )
        return handle

    def take(self, size: int = 10, behind: Batch | None = None, *, paused: int = 0) -> Batch | None:
        """Take the next batch, behind one that is in flight; a paused dialog, even of no such number, has it taken fully."""
        destination = self.near.value("select max(destination_no) from broker_private.destinations")
        if behind is None and not paused and destination is not None:
            plain = asyncio.run(self._take_plainly(destination, size))
            if plain is not None:
                return self._batch(plain)
        found = self.near.rows(
            f"select endpoint_nos[1], sequence_numbers, row_ids, acknowledged, sent_at, {', '.join(_COLUMNS)}"
            " from broker_private.take(%s, 0, 1, %s, 1000000, %s::bigint[], in_flight_endpoints => %s::bigint[],"
            " in_flight_rows => %s::bigint[], in_flight_numbers => %s::bigint[]) where row_ids is not null",
            destination,
            size,
            [paused] if paused else [],
            *(([behind.endpoint], [behind.rows[-1]], [behind.end]) if behind else ([], [], [])),
        )
        return _one(found)

    def ask(self, dialog: UUID) -> Batch | None:
        """Ask on a dialog whether both sides remember the same, as a worker does after a restart."""
        columns = ", ".join(f"a.{name}" for name in _COLUMNS)
        found = self.near.rows(
            f"select a.endpoint_nos[1], sequence_numbers, row_ids, acknowledged, sent_at, {columns}"
            " from broker_private.endpoints e cross join broker_private.ask(array[e.endpoint_no]) a"
            " where e.conversation_handle = %s and exists (select from broker_private.dialogs_to_ask(0, 1000000) d"
            " where e.endpoint_no = any (d.endpoint_nos))",
            dialog,
        )
        return _one(found)

    async def _take_plainly(self, destination: int, size: int) -> Found | None:
        if self._worker is None:
            dsn = self.near.connection.info.dsn
            self._worker = await AsyncConnection.connect(dsn, autocommit=True)
        return await self.known.take(self._worker, destination, (0, 1), (size, 1_000_000, 500_000))

    def _batch(self, found: Found) -> Batch | None:
        if found.taken is None:
            return None
        transformer = Transformer(self.near.connection)

        def read(name: str, kind: str) -> Any:
            column = getattr(found.taken, name)
            return (
                column
                if kind == "text"
                else transformer.get_loader(_ARRAYS[kind], Format.BINARY).load(column)
            )

        columns = {name: read(name, kind) for name, kind in _COLUMNS.items()}
        return Batch(
            read("endpoint_nos", "bigint[]")[0],
            columns["sequence_numbers"],
            read("row_ids", "bigint[]"),
            columns,
            read("acknowledged", "bigint[]"),
            read("sent_at", "timestamptz[]"),
        )

    def deliver(self, batch: Batch) -> tuple[int, int | None]:
        """Deliver it; return the number that is expected next on its first dialog, and the fault."""
        if batch.columns["kinds"] == "M":
            number = self._deliver_one(batch)
            if number is not None:
                return number, None
        dialogs = len(batch.columns["conversation_ids"])
        casts = ", ".join(f"%s::{kind}" for kind in _COLUMNS.values())
        ((next_numbers, faults),) = self.far.rows(
            f"select next_numbers, fault_codes from broker_private.deliver(%s::uuid, {casts}, %s::text[], %s::text[],"
            " %s::bytea[], %s::bigint[], %s::timestamptz[])",
            self.near_broker,
            *batch.columns.values(),
            ["N"] * dialogs,
            [None] * dialogs,
            [None] * dialogs,
            batch.acknowledged,
            batch.sent_at,
        )
        return next_numbers[0], (faults or [None])[0]

    def _deliver_one(self, batch: Batch) -> int | None:
        only = {name: column[0] for name, column in batch.columns.items()}
        number: int | None = self.far.value(
            "select broker_private.deliver_one(%s, %s, %s, %s, %s, %s, %s::bytea, 'N', null, null, %s, %s)",
            self.near_broker,
            only["conversation_ids"],
            only["from_initiator"],
            only["to_brokers"],
            only["type_names"],
            only["sequence_numbers"],
            only["bodies"],
            batch.acknowledged[0],
            batch.sent_at[0],
        )
        return number

    def acknowledge(self, batch: Batch, next_number: int) -> None:
        """Do what the sender's worker does with an answer."""
        number = min(next_number, batch.end)
        if next_number > batch.end:
            torn = "select broker_private.fail_torn_dialogs(array[%s::bigint], array[%s::bigint])"
            self.near.rows(torn, batch.endpoint, next_number)
        if number > batch.numbers[0]:
            first, row = batch.numbers[0], batch.rows[number - batch.numbers[0] - 1]
            if self._acknowledge_one(batch, first, number, row) is None:
                self.near.rows(
                    "select broker_private.acknowledge(%s, array[%s::bigint], array[%s::bigint], array[%s::bigint])",
                    self.far_broker,
                    batch.endpoint,
                    number,
                    row,
                )

    def _acknowledge_one(self, batch: Batch, first: int, number: int, row: int) -> int | None:
        """Acknowledge by a short form; return None if it left the rows to the general one."""
        if batch.columns["kinds"].strip("M") or not batch.acknowledged[0]:
            return None
        removed: int | None = self.near.value(
            "select broker_private.acknowledge_one(%s, %s, %s, %s)", batch.endpoint, first, number, row
        )
        return removed

    def close(self) -> None:
        for site in (self.near, self.far):
            site.connection.close()
        if self._worker is not None:
            asyncio.run(self._worker.close())


def _one(found: list[tuple[Any, ...]]) -> Batch | None:
    if not found:
        return None
    endpoint, numbers, rows, acknowledged, sent_at, *columns = found[0]
    return Batch(endpoint, numbers, rows, dict(zip(_COLUMNS, columns, strict=True)), acknowledged, sent_at)
