"""What a refusal's CONTEXT shows of our functions: few lines, and none of their source."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

if TYPE_CHECKING:
    from tests.shop import Shop

REFUSED = {
    "send, unknown handle": ("select broker.send(gen_random_uuid(), 'order')", "S8426", 5),
    "send, unknown type": ("select broker.send(%(dialog)s, 'nothing')", "S8428", 5),
    "receive, unknown queue": ("select * from broker.receive('nowhere')", "S0208", 6),
    "end, strange code": ("select broker.end_conversation(%(dialog)s, -1, 'x')", "S8419", 3),
    "timer in the past": ("select broker.begin_conversation_timer(%(dialog)s, '-1 day')", "S0153", 3),
    "strange lifetime": (
        "select broker.begin_dialog('//shop', '//warehouse', lifetime => '-1 day')",
        "S8411",
        3,
    ),
    "a second queue": ("select broker.create_queue('warehouse')", "S2714", 4),
    "no such service": ("select broker.drop_service('nothing')", "S8423", 4),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_is_not_buried_under_our_frames(shop: Shop, name: str) -> None:
    statement, sqlstate, lines = REFUSED[name]
    dialog = shop.psql.dialog()
    with pytest.raises(psycopg.Error) as refused:
        shop.psql.connection.execute(statement.encode(), {"dialog": dialog})
    shop.psql.connection.rollback()
    diagnosis = refused.value.diag
    assert diagnosis.sqlstate == sqlstate
    assert diagnosis.message_hint
    context = (diagnosis.context or "").splitlines()
    assert len(context) <= lines, context
    assert "broker_private.refuse(" not in "".join(context[1:])


def test_a_value_in_a_message_is_as_the_user_gave_it(shop: Shop) -> None:
    dialog = shop.psql.dialog()
    for statement, value in (
        ("select broker.begin_conversation_timer(%(dialog)s, '-1 day')", "-1 day"),
        ("select broker.begin_dialog('//shop', '//warehouse', lifetime => '-90 minutes')", "-01:30:00"),
        ("select broker.end_conversation(%(dialog)s, -7, 'x')", "-7"),
    ):
        with pytest.raises(psycopg.Error) as refused:
            shop.psql.connection.execute(statement.encode(), {"dialog": dialog})
        shop.psql.connection.rollback()
        assert value in (refused.value.diag.message_primary or "")
