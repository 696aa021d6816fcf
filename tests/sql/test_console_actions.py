"""The audit of the console: each role notes in its own name, and sees what it did itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

if TYPE_CHECKING:
    from tests.shop import Session, Shop

NOTE = "select broker.note_console_action(%s, %s, %s)"
KEPT = 10_000


def lines(session: Session) -> list[tuple[object, ...]]:
    return session.rows("select role, action, object, result from broker.console_actions order by id")


def test_a_role_sees_what_it_did_and_the_owner_sees_all(shop: Shop) -> None:
    first, second = shop.database.role(), shop.database.role()
    one, other = shop.session(user=first), shop.session(user=second)
    one.rows(NOTE, "queue_off", "warehouse", "done")
    other.rows(NOTE, "redrive", "warehouse", "refused")
    assert lines(one) == [(first, "queue_off", "warehouse", "done")]
    assert lines(other) == [(second, "redrive", "warehouse", "refused")]
    assert [line[0] for line in lines(shop.psql)] == [first, second]


def test_nobody_writes_or_mends_the_audit_by_hand(shop: Shop) -> None:
    stranger = shop.session(user=shop.database.role())
    stranger.rows(NOTE, "queue_off", "warehouse", "done")
    for statement in (
        "update broker.console_actions set result = 'nothing happened'",
        "delete from broker.console_actions",
        "insert into broker.console_actions (action) values ('x')",
        "select 1 from broker_private.console_actions",
        "select broker_private.note_console_action('postgres', 'a', 'b', 'c')",
    ):
        with pytest.raises(
            (psycopg.errors.InsufficientPrivilege, psycopg.errors.ObjectNotInPrerequisiteState)
        ):
            stranger.rows(statement)
    assert len(lines(stranger)) == 1


def test_a_new_role_of_an_old_name_does_not_see_what_that_did(shop: Shop) -> None:
    name = shop.database.role()
    before = shop.session(user=name)
    before.rows(NOTE, "queue_off", "warehouse", "done")
    before.connection.close()
    shop.psql.rows(f'drop role "{name}"')
    shop.psql.rows(f'create role "{name}" login')
    assert lines(shop.session(user=name)) == []
    assert lines(shop.psql) == [(name, "queue_off", "warehouse", "done")]


def test_of_a_role_the_newest_lines_stay_and_no_other_loses_any(shop: Shop) -> None:
    other = shop.session(user=shop.database.role())
    other.rows(NOTE, "first", "warehouse", "done")
    (owner,) = shop.psql.rows("select current_user::regrole, current_user")
    # Through the function it would take ten seconds.
    shop.psql.rows(
        "insert into broker_private.console_actions (role, role_name, acted_at, action, object, result)"
        " select %s::regrole, %s, now(), 'a', n::text, 'done' from generate_series(1, %s) n",
        *owner,
        KEPT,
    )
    shop.psql.rows(
        "select broker.note_console_action('a', n::text, 'done') from generate_series(%s::int, %s) n",
        KEPT + 1,
        KEPT + 20,
    )
    of_owner = [line[2] for line in lines(shop.psql) if line[1] == "a"]
    assert of_owner == [str(number) for number in range(21, KEPT + 21)]
    assert len(lines(other)) == 1
