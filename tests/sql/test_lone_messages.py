"""A message that comes alone is stored by a form of its own; whatever is odd in it is left to the general one.

What the short form takes and should not, nobody looks at again: it would be stored from the wrong broker, out of
order, or past a validation.
"""

from __future__ import annotations

import dataclasses
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from tests.hop import Batch, Hop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.conftest import Database
    from tests.shop import Session

STRANGER = uuid.UUID(int=7)


@pytest.fixture
def hop(make_database: Callable[[str], Database]) -> Iterator[Hop]:
    """A dialog whose first message has been acknowledged, and whose second one waits."""
    hop = Hop(make_database)
    cross(hop, b"first")
    assert hop.far.bodies() == [b"first"]
    hop.near.send(hop.dialog, "order", b"second")
    yield hop
    hop.close()


def cross(hop: Hop, body: bytes, kind: str = "order") -> None:
    hop.near.send(hop.dialog, kind, body)
    batch = taken(hop)
    number, fault = hop.deliver(batch)
    assert fault is None
    hop.acknowledge(batch, number)


def taken(hop: Hop) -> Batch:
    batch = hop.take()
    assert batch is not None
    return batch


def arrive(site: Session, batch: Batch, broker: uuid.UUID, **changes: object) -> int | None:
    """Bring a lone message; return the number that is expected next, or None if it is the general form's."""
    only = {name: column[0] for name, column in batch.columns.items()}
    told: dict[str, Any] = {
        "from_broker": broker,
        "conversation": only["conversation_ids"],
        "is_from_initiator": only["from_initiator"],
        "to_broker": only["to_brokers"],
        "type_name": only["type_names"],
        "number": only["sequence_numbers"],
        "content": only["bodies"],
        "security_kind": "N",
        "sender": None,
        "dialog_key": None,
        "acknowledged": batch.acknowledged[0],
        "sent": batch.sent_at[0],
        **changes,
    }
    number: int | None = site.value(
        "select broker_private.deliver_one(%s, %s, %s, %s, %s, %s, %s::bytea, %s, %s, %s::bytea, %s, %s)",
        *told.values(),
    )
    return number


def stored(site: Session) -> list[bytes]:
    return [bytes(body) for (body,) in site.rows("select message_body from broker.queue_messages")]


def test_what_its_dialog_expects_next_is_stored_once(hop: Hop) -> None:
    batch = taken(hop)
    assert arrive(hop.far, batch, hop.near_broker) == 2
    assert arrive(hop.far, batch, hop.near_broker) is None, "it is known already"
    assert hop.far.bodies() == [b"second"]


@pytest.mark.parametrize(
    "changes",
    [
        {"conversation": STRANGER},
        {"is_from_initiator": False},
        {"to_broker": STRANGER},
        {"type_name": "ack"},
        {"type_name": "invoice"},
        {"type_name": "unknown"},
        {"number": 0},
        {"number": 2},
        {"security_kind": "A"},
        {"security_kind": "F"},
        {"acknowledged": 5},
        {"type_name": None},
        {"number": None},
        {"acknowledged": None},
    ],
    ids=str,
)
def test_what_is_odd_in_a_message_is_not_stored_by_the_short_form(
    hop: Hop, changes: dict[str, object]
) -> None:
    assert arrive(hop.far, taken(hop), hop.near_broker, **changes) is None
    assert stored(hop.far) == []


ODD_SIDES: dict[str, Callable[[Hop], None]] = {
    "its queue is off": lambda hop: hop.far.rows("select broker.alter_queue('warehouse', status => false)"),
    "this side has ended": lambda hop: hop.far.rows(
        "select broker.end_conversation(conversation_handle) from broker.conversation_endpoints"
    ),
    "the broker is off": lambda hop: hop.far.rows("select broker.alter_broker('DISABLE_BROKER')"),
}


@pytest.mark.parametrize("odd", ODD_SIDES)
def test_what_is_odd_about_its_side_is_not_stored_by_the_short_form(hop: Hop, odd: str) -> None:
    batch = taken(hop)
    ODD_SIDES[odd](hop)
    assert arrive(hop.far, batch, hop.near_broker) is None
    assert hop.far.value("select count(*) from broker_private.messages") == 0


def test_it_does_not_overtake_what_a_worker_has_to_look_at(hop: Hop) -> None:
    second = taken(hop)
    schema = '<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema"><xs:element name="invoice"/></xs:schema>'
    hop.far.rows("select broker.create_schema_collection('invoices', array[%s])", schema)
    hop.far.rows("select broker.alter_message_type('invoice', 'VALID_XML', 'invoices')")
    invoice = {"type_names": ["invoice"], "bodies": [b"<invoice/>"]}
    hop.deliver(dataclasses.replace(second, columns={**second.columns, **invoice}))
    hop.acknowledge(second, 2)
    assert hop.far.value("select count(*) from broker_private.incomplete_messages") == 1
    hop.near.send(hop.dialog, "order", b"behind it")
    assert arrive(hop.far, taken(hop), hop.near_broker) is None


def test_what_came_too_early_comes_with_it(hop: Hop) -> None:
    hop.near.send(hop.dialog, "order", b"third")
    second = hop.take(1)
    assert second is not None
    third = hop.take(1, behind=second)
    assert third is not None
    hop.deliver(third)
    assert arrive(hop.far, second, hop.near_broker) is None
    assert hop.deliver(second) == (3, None)
    assert hop.far.bodies() == [b"second", b"third"]


def test_an_answer_is_taken_from_the_broker_that_the_dialog_is_with_only(hop: Hop) -> None:
    batch = taken(hop)
    hop.near.rows(
        "select broker_private.note_dialog_security(array[%s::bigint], '{N}', array[null::bytea])",
        batch.endpoint,
    )
    answer = {
        "is_from_initiator": False,
        "to_broker": None,
        "type_name": "ack",
        "number": 0,
        "acknowledged": 0,
    }
    assert arrive(hop.near, batch, STRANGER, **answer) is None
    assert stored(hop.near) == []
    assert arrive(hop.near, batch, hop.far_broker, **answer) == 1
    assert len(stored(hop.near)) == 1
