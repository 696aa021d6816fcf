"""What a message costs does not grow: the statements of SEND and RECEIVE keep their indexes, whatever lies in the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.shop import Session, Shop

DIALOGS = 20
HOT_CALLS = {
    "SEND": "select broker.send((select handle from dialogs where number = {}), 'order', '\\x01'::bytea)",
    "send_batch": "select broker.send_batch((select handle from dialogs where number = {}), 'order', '{{a,b}}')",
    "RECEIVE TOP (1)": "select * from broker.receive('warehouse', top => 1)",
    "RECEIVE TOP (2)": "select * from broker.receive('warehouse', top => 2)",
}


def pages(session: Session, call: str) -> int:
    """Return how many pages a call touches once its plans are made: of a few calls the least, as one may split a page."""
    touched = []
    for number in range(1, 9):
        found = session.value(f"explain (analyze, buffers, format json) {call.format(number)}")[0]["Plan"]
        touched.append(found["Shared Hit Blocks"] + found["Shared Read Blocks"])
    return min(touched[2:])


def test_a_call_touches_as_few_pages_in_a_deep_queue_as_in_a_shallow_one(shop: Shop) -> None:
    psql = shop.psql
    psql.rows("create table dialogs (number integer primary key, handle uuid not null)")
    psql.rows(
        "insert into dialogs select n, broker.begin_dialog('//shop', '//warehouse', contract => 'ordering')"
        " from generate_series(1, %s) n",
        DIALOGS,
    )
    fill = (
        "select count(broker.send_batch(handle, 'order', array_fill('\\x01'::bytea, array[%s]))) from dialogs"
    )
    psql.rows(fill, 5)
    shallow = {name: pages(psql, call) for name, call in HOT_CALLS.items()}
    psql.rows(fill, 500)
    deep = {name: pages(psql, call) for name, call in HOT_CALLS.items()}
    # The indexes are a level higher; all else is as before. A scan of the table or of a whole index touches hundreds more.
    assert {name: deep[name] - shallow[name] < 30 for name in HOT_CALLS} == dict.fromkeys(HOT_CALLS, True), (
        shallow,
        deep,
    )


@pytest.mark.parametrize("behind", [20, 450, 899])
def test_a_free_group_is_met_behind_hundreds_of_messages_of_held_groups_wherever_it_lies(
    shop: Shop, behind: int
) -> None:
    many = "select broker.send_batch(%s, 'order', array_fill('\\x01'::bytea, array[%s]))"
    held = [shop.psql.dialog() for _ in range(3)]
    free = shop.psql.dialog()
    left = behind
    for handle in held:
        shop.psql.rows(many, handle, min(left, 300))
        left -= min(left, 300)
    shop.psql.send(free, "order", b"free")
    for handle in held:
        shop.psql.rows(many, handle, 300)
    holder = shop.session(autocommit=False)
    for handle in held:
        group = holder.value(
            "select conversation_group_id from broker.conversation_endpoints where conversation_handle = %s",
            shop.psql.handle_of(handle),
        )
        assert holder.bodies(conversation_group_id=group, top=1) == [b"\x01"]
    assert shop.psql.bodies(top=1) == [b"free"]
    assert shop.psql.bodies(top=1) == []
