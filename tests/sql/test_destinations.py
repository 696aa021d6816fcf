"""Names that others choose leave nothing behind: a destination goes some time after its last dialog."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.shop import Session, Shop

WORK = "select service_name from broker_private.transmission_work()"


def begin(session: Session, count: int) -> None:
    session.rows(
        "select broker.begin_dialog('//shop', '//far/' || n, encryption => false) from generate_series(1, %s) n",
        count,
    )


def end_all(session: Session) -> None:
    session.rows(
        "select broker.end_conversation(conversation_handle, cleanup => true) from broker.conversation_endpoints"
    )


def destinations(session: Session) -> int:
    count: int = session.value("select count(*) from broker_private.destinations where destination_no > 0")
    return count


def sweep_for_hours(session: Session, clock: Callable[[str], None], hours: range, turns: int = 3) -> None:
    """Sweep a few times in each of these hours, counted from now."""
    for hour in hours:
        clock(f"{hour} hours")
        for _ in range(turns):
            session.rows("select broker_private.sweep()")


def test_a_destination_goes_with_its_last_dialog_and_stays_while_it_has_one(
    shop: Shop, clock: Callable[[str], None]
) -> None:
    psql = shop.psql
    begin(psql, 40)
    end_all(psql)
    kept = psql.value("select broker.begin_dialog('//shop', '//far/kept', encryption => false)")
    assert destinations(psql) == 41
    sweep_for_hours(psql, clock, range(2, 6))
    assert destinations(psql) == 1
    psql.rows("select broker.send(%s, 'DEFAULT')", kept)
    assert psql.rows(WORK) == [("//far/kept",)]
    end_all(psql)
    sweep_for_hours(psql, clock, range(6, 10))
    assert destinations(psql) == 0


def test_who_saw_a_destination_before_it_went_sends_all_the_same(
    shop: Shop, clock: Callable[[str], None]
) -> None:
    psql = shop.psql
    begin(psql, 1)
    end_all(psql)
    old = shop.session(autocommit=False)
    old.rows("set transaction isolation level repeatable read")
    assert old.rows("select name from broker.services where name = '//shop'") == [("//shop",)]
    sweep_for_hours(psql, clock, range(2, 6))
    assert destinations(psql) == 0
    dialog = old.value("select broker.begin_dialog('//shop', '//far/1', encryption => false)")
    old.rows("select broker.send(%s, 'DEFAULT')", dialog)
    old.connection.commit()
    assert destinations(psql) == 0
    assert psql.rows(WORK) == [("//far/1",)]
    assert destinations(psql) == 1


def test_the_walk_over_dialogs_has_turns_and_removes_nothing_before_its_end(
    shop: Shop, clock: Callable[[str], None]
) -> None:
    psql = shop.psql
    psql.rows("select broker.begin_dialog('//shop', '//far', encryption => false)")
    # More than a turn has, and none with a group or a message of its own: the walk reads their numbers alone.
    columns = psql.value(
        "select string_agg(quote_ident(attname), ', ') from pg_attribute"
        " where attrelid = 'broker_private.endpoints'::regclass and attnum > 0 and not attisdropped"
        " and attidentity = '' and attgenerated = '' and attname not in ('conversation_handle', 'conversation_id')"
    )
    psql.rows(
        f"insert into broker_private.endpoints (conversation_handle, conversation_id, {columns})"
        f" select gen_random_uuid(), gen_random_uuid(), {columns}"
        " from broker_private.endpoints, generate_series(1, 10499)"
    )
    begin(psql, 30)
    clock("3 hours")
    for _ in range(2):
        psql.rows("select broker_private.sweep()")
        assert psql.value("select place from broker_private.destination_walk") > 0, "it is under way"
    for _ in range(4):
        psql.rows("select broker_private.sweep()")
    assert psql.value("select place from broker_private.destination_walk") == 0, "it rests"
    assert destinations(psql) == 31
