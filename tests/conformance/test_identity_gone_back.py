"""A database that has gone back to an earlier state: a restored backup, a standby that was behind. Edge case 089 and section 28.

Its far sides have seen what it doesn't remember. Each dialog that is hurt ends in a numbered Error on both sides; the others go on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.brokers import Site, two_sites
from tests.shop import ERROR, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from uuid import UUID

    from pybroker.embedded import EmbeddedServer

    ServerFor = Callable[[str, int], EmbeddedServer]

LOCAL, REMOTE, UNKNOWN = "-9719", "-9720", "-8462"


@pytest.fixture
def sites(tmp_path: Path, server_for: ServerFor) -> Iterator[tuple[Site, Site]]:
    with two_sites(tmp_path, server_for=server_for) as (shop, warehouse):
        shop.start_worker()
        warehouse.start_worker()
        yield shop, warehouse


def run(site: Site, statement: str) -> None:
    """Run it where nobody is in the site's database, as copying and renaming need."""
    site.stop_worker()
    site.psql.connection.close()
    with psycopg.connect(site.server.url("postgres"), autocommit=True) as session:
        for part in statement.split(";"):
            session.execute(part.encode())
    site.reconnect()


def back_up(site: Site) -> None:
    run(site, f'create database "{site.name}_backup" template "{site.name}"')
    site.start_worker()


def restore(site: Site) -> None:
    run(
        site,
        f'drop database "{site.name}" with (force); alter database "{site.name}_backup" rename to "{site.name}"',
    )
    # It is noticed as a copy; it takes the original's place.
    site.psql.rows("select broker.alter_broker('ENABLE_BROKER')")
    site.start_worker()


def begin(shop: Site, body: bytes) -> UUID:
    handle: UUID = shop.psql.value(
        "select broker.begin_dialog('//shop', '//warehouse', 'ordering', encryption => false)"
    )
    shop.psql.send(handle, "order", body)
    return handle


def drained(*sites: Site) -> None:
    for site in sites:
        until(lambda site=site: site.psql.rows("select from broker.transmission_queue") == [])


def far_handle(site: Site, body: bytes) -> UUID:
    """Receive what waits on one dialog, and return the dialog's handle; its first message has this body."""
    found: list[UUID] = []

    def look() -> bool:
        found[:] = [
            handle
            for (handle,) in site.psql.rows(
                "select conversation_handle from broker.queue_messages where message_body = %s", body
            )
        ]
        return bool(found)

    until(look)
    return found[0]


def ended_by(site: Site, queue: str, handle: UUID) -> str:
    """Return the code of the Error that arrives on a dialog."""
    until(lambda: site.psql.state(handle) == "ER")
    errors = [body for kind, _, body in site.psql.receive(queue, conversation_handle=handle) if kind == ERROR]
    assert len(errors) == 1
    return (errors[0] or b"").partition(b"<Code>")[2].partition(b"</Code>")[0].decode()


def goes_on(shop: Site, warehouse: Site) -> None:
    """Show that a new dialog crosses both ways."""
    dialog = begin(shop, b"new")
    target = far_handle(warehouse, b"new")
    warehouse.psql.send(target, "ack", b"answer")
    until(
        lambda: (
            shop.psql.receive("shop", conversation_handle=dialog, timeout="1 s") == [("ack", 0, b"answer")]
        )
    )


def test_edge_089_what_a_restored_target_has_forgotten_ends_its_dialogs_on_both_sides(
    sites: tuple[Site, Site],
) -> None:
    shop, warehouse = sites
    lost, answered, quiet = begin(shop, b"lost"), begin(shop, b"answered"), begin(shop, b"quiet")
    there = {name: far_handle(warehouse, name) for name in (b"lost", b"answered", b"quiet")}
    drained(shop)
    back_up(warehouse)
    shop.psql.send(lost, "order", b"forgotten")
    unknown = begin(shop, b"unknown")
    warehouse.psql.send(there[b"answered"], "ack", b"from the lost future")
    far_handle(warehouse, b"unknown")
    drained(shop, warehouse)
    restore(warehouse)

    shop.psql.send(lost, "order", b"next")
    shop.psql.send(unknown, "order", b"next")
    warehouse.psql.send(there[b"answered"], "ack", b"another one")
    shop.psql.send(quiet, "order", b"goes on")
    assert ended_by(shop, "shop", lost) == REMOTE
    assert ended_by(warehouse, "warehouse", there[b"lost"]) == LOCAL
    assert ended_by(shop, "shop", unknown) == UNKNOWN
    assert ended_by(shop, "shop", answered) == REMOTE
    assert ended_by(warehouse, "warehouse", there[b"answered"]) == LOCAL
    drained(shop, warehouse)
    assert warehouse.psql.bodies(conversation_handle=there[b"quiet"], timeout="120 s") == [
        b"quiet",
        b"goes on",
    ]
    goes_on(shop, warehouse)


def test_edge_089_what_a_restored_initiator_has_forgotten_ends_its_dialogs_on_both_sides(
    sites: tuple[Site, Site],
) -> None:
    shop, warehouse = sites
    same, ahead, ended, quiet = (begin(shop, name) for name in (b"same", b"ahead", b"ended", b"quiet"))
    there = {name: far_handle(warehouse, name) for name in (b"same", b"ahead", b"ended", b"quiet")}
    drained(shop)
    back_up(shop)
    shop.psql.send(same, "order", b"forgotten")
    for handle in (ahead, ended):
        shop.psql.send(handle, "order", b"forgotten")
        shop.psql.send(handle, "order", b"forgotten too")
    unknown = begin(shop, b"unknown")
    there[b"unknown"] = far_handle(warehouse, b"unknown")
    drained(shop)
    restore(shop)

    # As many as were lost: their numbers are taken. Fewer: the target expects what was never sent.
    shop.psql.send(same, "order", b"with a number that was used")
    shop.psql.send(ahead, "order", b"with a number that was used")
    shop.psql.end(ended)
    warehouse.psql.send(there[b"unknown"], "ack", b"who are you?")
    shop.psql.send(quiet, "order", b"goes on")
    for handle, name in ((same, b"same"), (ahead, b"ahead")):
        assert ended_by(shop, "shop", handle) == LOCAL
        assert ended_by(warehouse, "warehouse", there[name]) == REMOTE
    assert ended_by(warehouse, "warehouse", there[b"ended"]) == REMOTE
    assert ended_by(warehouse, "warehouse", there[b"unknown"]) == UNKNOWN
    until(lambda: shop.psql.state(ended) is None)
    drained(shop, warehouse)
    assert warehouse.psql.bodies(conversation_handle=there[b"quiet"], timeout="120 s") == [
        b"quiet",
        b"goes on",
    ]
    del unknown
    goes_on(shop, warehouse)


def test_edge_089_an_answer_from_before_a_restore_acknowledges_nothing_that_was_sent_after_it(
    sites: tuple[Site, Site],
) -> None:
    """The worker lives on; message and number are the same, so what was sent after it would be gone unsent, without a word."""
    shop, warehouse = sites
    dialog = begin(shop, b"first")
    there = far_handle(warehouse, b"first")
    drained(shop)
    run(shop, "create database shop_backup template shop")
    # Nothing is sent a second time while the test runs.
    shop.start_worker(resend_after=600)
    holder = warehouse.session(autocommit=False)
    holder.rows("select from broker_private.sequence_counters for update")
    shop.psql.send(dialog, "order", b"forgotten")
    until(
        lambda: warehouse.psql.value(
            "select count(*) from pg_stat_activity where datname = %s and wait_event_type = 'Lock'",
            warehouse.name,
        )
    )
    with psycopg.connect(shop.server.url("postgres"), autocommit=True) as session:
        session.execute("drop database shop with (force)")
        session.execute("alter database shop_backup rename to shop")
    shop.reconnect()
    shop.psql.rows("select broker.alter_broker('ENABLE_BROKER')")
    shop.psql.send(dialog, "order", b"after it")
    holder.connection.close()
    assert ended_by(shop, "shop", dialog) == LOCAL
    assert ended_by(warehouse, "warehouse", there) == REMOTE
    goes_on(shop, warehouse)


@pytest.mark.parametrize(("restored", "is_sealed"), [("shop", True), ("warehouse", False)])
def test_edge_089_a_dialog_on_which_nobody_sends_any_more_ends_on_both_sides_too(
    sites: tuple[Site, Site], restored: str, *, is_sealed: bool
) -> None:
    shop, warehouse = sites
    if is_sealed:
        shop.psql.rows(
            "select broker.create_remote_service_binding('binding', '//warehouse', 'warehouse_user')"
        )
    names = (b"ordered", b"answered", b"quiet")
    here = {name: begin(shop, name) for name in names}
    there = {name: far_handle(warehouse, name) for name in names}
    drained(shop)
    victim, other = (shop, warehouse) if restored == "shop" else (warehouse, shop)
    back_up(victim)
    shop.psql.send(here[b"ordered"], "order", b"forgotten")
    warehouse.psql.send(there[b"answered"], "ack", b"forgotten")
    here[b"unknown"] = begin(shop, b"unknown")
    there[b"unknown"] = far_handle(warehouse, b"unknown")
    drained(shop, warehouse)
    restore(victim)

    codes = {shop: LOCAL, warehouse: REMOTE} if victim is shop else {shop: REMOTE, warehouse: LOCAL}
    for name in (b"ordered", b"answered"):
        assert ended_by(shop, "shop", here[name]) == codes[shop]
        assert ended_by(warehouse, "warehouse", there[name]) == codes[warehouse]
    handle = (there if other is warehouse else here)[b"unknown"]
    assert ended_by(other, other.name, handle) == UNKNOWN
    assert (shop.psql.state(here[b"quiet"]), warehouse.psql.state(there[b"quiet"])) == ("CO", "CO")
    warehouse.psql.send(there[b"quiet"], "ack", b"goes on")
    until(lambda: shop.psql.bodies("shop", conversation_handle=here[b"quiet"]) == [b"goes on"])
