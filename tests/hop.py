"""One direction of a hop, played by a test: take, deliver and acknowledge of two databases, and no worker between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.brokers import INITIATOR_DEFINITIONS, TARGET_DEFINITIONS
from tests.shop import Session

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from tests.conftest import Database

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

    def begin(self, contract: str = "ordering") -> UUID:
        handle: UUID = self.near.value(
            "select broker.begin_dialog('//shop', '//warehouse', %s, encryption => false)", contract
        )
        return handle

    def take(self, size: int = 10, behind: Batch | None = None, *, paused: int = 0) -> Batch | None:
        """Take the next batch, behind one that is in flight; a paused dialog, even of no such number, has it taken fully."""
        found = self.near.rows(
            f"select endpoint_nos[1], sequence_numbers, row_ids, acknowledged, sent_at, {', '.join(_COLUMNS)}"
            " from broker_private.take(%s, 0, 1, %s, 1000000, %s::bigint[], in_flight_endpoints => %s::bigint[],"
            " in_flight_rows => %s::bigint[], in_flight_numbers => %s::bigint[]) where row_ids is not null",
            self.near.value("select max(destination_no) from broker_private.destinations"),
            size,
            [paused] if paused else [],
            *(([behind.endpoint], [behind.rows[-1]], [behind.end]) if behind else ([], [], [])),
        )
        if not found:
            return None
        endpoint, numbers, rows, acknowledged, sent_at, *columns = found[0]
        return Batch(
            endpoint, numbers, rows, dict(zip(_COLUMNS, columns, strict=True)), acknowledged, sent_at
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
            one = self.far_broker, batch.endpoint, number, batch.rows[number - batch.numbers[0] - 1]
            if self.near.value("select broker_private.acknowledge_one(%s, %s, %s, %s)", *one) is None:
                self.near.rows(
                    "select broker_private.acknowledge(%s, array[%s::bigint], array[%s::bigint], array[%s::bigint])",
                    *one,
                )

    def close(self) -> None:
        for site in (self.near, self.far):
            site.connection.close()
