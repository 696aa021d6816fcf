"""Priorities of what waits in the transmission queue: row 97 and edge 62, without a worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.shop import Session, Shop

TAKE = "select bodies from broker_private.take(%s, 0, 1, %s, 1000000, '{}')"
NUMBERS = "select sequence_numbers from broker_private.take(%s, 0, 1, 100, 1000000, '{}')"


def _destination(psql: Session) -> int:
    number: int = psql.value("select destination_no from broker_private.transmission_messages limit 1")
    return number


def _taken(psql: Session, most: int = 100) -> list[bytes]:
    taken: list[bytes] = psql.value(TAKE, _destination(psql), most)
    return taken


def test_row_097_edge_062_the_level_counts_while_it_is_honoured_and_is_always_shown(shop: Shop) -> None:
    psql = shop.psql
    psql.rows("select broker.create_route('far', 'tcp://127.0.0.1:1', service_name => '//far')")
    psql.rows("select broker.create_service('//urgent', 'shop')")
    psql.rows(
        "select broker.create_broker_priority('high', local_service_name => '//urgent', priority_level => 10)"
    )
    psql.rows(
        "select broker.create_broker_priority('low', local_service_name => '//shop', priority_level => 1)"
    )
    low, high = (
        psql.value("select broker.begin_dialog(%s, '//far', 'ordering')", service)
        for service in ("//shop", "//urgent")
    )
    for number in (b"1", b"2"):
        psql.send(low, "order", b"low " + number)
    psql.send(high, "order", b"high 1")
    levels = "select priority from broker.transmission_queue order by enqueue_time"
    honored = "select is_broker_priority_honored from broker.databases"
    assert psql.rows(levels) == [(1,), (1,), (10,)]
    assert psql.value(honored) is False
    assert _taken(psql) == [b"low 1", b"low 2", b"high 1"]
    psql.rows("select broker.alter_broker(honor_broker_priority => true)")
    assert psql.value(honored) is True
    assert _taken(psql) == [b"high 1", b"low 1", b"low 2"]
    psql.send(high, "order", b"high 2")
    psql.send(low, "order", b"low 3")
    psql.end(high)
    assert _taken(psql, 2) == [b"high 1", b"high 2"]
    # Each dialog's own numbers: two messages and the end of one, three messages of the other.
    assert psql.value(NUMBERS, _destination(psql)) == [0, 1, 2, 0, 1, 2]
    psql.rows("select broker.alter_broker(honor_broker_priority => false)")
    assert _taken(psql) == [b"low 1", b"low 2", b"high 1", b"high 2", b"low 3", None]
    assert psql.value(NUMBERS, _destination(psql)) == [0, 1, 0, 1, 2, 2]
    assert psql.rows(levels) == [(1,), (1,), (10,), (10,), (1,), (10,)]


def test_row_097_the_option_is_the_database_owners(shop: Shop) -> None:
    clerk = shop.session(user=shop.database.role())
    assert clerk.refused("select broker.alter_broker(honor_broker_priority => true)") == "S0229"
    assert shop.psql.refused("select broker.alter_broker()") == "S0153"
