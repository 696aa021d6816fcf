"""The dialog protocol between two sites: what is sent again and when, what waits for what came before it."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pybroker.workers.clock import Clock
from pybroker.workers.transport.resends import Resends
from pybroker.workers.transport.retry_schedule import Pace
from tests.brokers import Site, two_sites
from tests.proxy import Proxy, proxy_to
from tests.shop import END_DIALOG, ERROR, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from uuid import UUID

    from pybroker.embedded import EmbeddedServer
    from tests.shop import Shop

# More than a handshake takes, so that only an acknowledgement is cut off.
LARGE = b"x" * 40_000
WAITING = "select count(*) from broker.transmission_queue where conversation_handle = %s"


@pytest.fixture(scope="module")
def sites(
    tmp_path_factory: pytest.TempPathFactory, server_for: Callable[[str, int], EmbeddedServer]
) -> Iterator[tuple[Site, Site]]:
    with two_sites(tmp_path_factory.mktemp("protocol"), server_for=server_for) as (initiator, target):
        # Nothing is for the shop; and a worker that called it would share a way past the proxy.
        target.psql.rows("select broker.drop_route('//shop')")
        target.start_worker()
        yield initiator, target


@pytest.fixture
def line(sites: tuple[Site, Site]) -> Iterator[Proxy]:
    """The shop's way to the warehouse; its worker is started by the test, with the knobs that it needs."""
    shop, warehouse = sites
    with proxy_to(warehouse.port) as proxy:
        shop.psql.rows("select broker.drop_route('//warehouse')")
        shop.route("//warehouse", proxy)
        yield proxy
        shop.stop_worker()
        # A worker asks about each dialog that it finds. The proxy would cut that answer, and the next test's order
        # would be lost with the connection.
        for site in sites:
            site.psql.rows(
                "select broker.end_conversation(conversation_handle, cleanup => true)"
                " from broker.conversation_endpoints"
            )


def begin(site: Site) -> UUID:
    handle: UUID = site.psql.value(
        "select broker.begin_dialog('//shop', '//warehouse', 'ordering', encryption => false)"
    )
    return handle


class SetClock(Clock):
    """Time that passes when the test says so."""

    def __init__(self) -> None:
        self.time = 1000.0

    def monotonic(self) -> float:
        return self.time


def test_row_132_a_dialog_is_sent_again_after_4_8_16_32_and_then_every_64_seconds() -> None:
    clock = SetClock()
    resends = Resends(clock, Pace())
    for seconds in (4, 8, 16, 32, 64, 64, 64):
        resends.sent([1])
        clock.time += seconds - 0.01
        assert resends.waiting() == [1]
        clock.time += seconds * 0.1 + 0.02
        assert resends.waiting() == []
    resends.acknowledged([1])
    resends.sent([1])
    clock.time += 4.5
    assert resends.waiting() == []


def test_row_132_the_schedule_of_a_dialog_that_is_gone_is_forgotten() -> None:
    clock = SetClock()
    resends = Resends(clock, Pace())
    for _ in range(4):
        resends.sent([1])
    clock.time += 200
    assert resends.waiting() == []
    resends.sent([1])
    clock.time += 4.5
    assert resends.waiting() == []


def test_row_123_what_the_far_side_lacks_a_key_for_is_sent_again_after_16_seconds_at_most() -> None:
    clock = SetClock()
    resends = Resends(clock, Pace())
    for _ in range(5):
        resends.sent([1, 2])
    resends.keyless([1, 3])
    for _ in range(3):
        clock.time += 15.9
        assert resends.waiting() == [1, 2]
        clock.time += 1.8
        assert resends.waiting() == [2]
        resends.sent([1])
    resends.acknowledged([1])
    for _ in range(5):
        resends.sent([1])
    clock.time += 17.7
    assert resends.waiting() == [1]


def test_row_133_edge_056_edge_058_what_loses_its_acknowledgement_is_sent_again_and_delivered_once(
    sites: tuple[Site, Site], line: Proxy
) -> None:
    shop, warehouse = sites
    line.cuts_answers_after = 20_000
    dialog = begin(shop)
    shop.psql.send(dialog, "order", LARGE)
    shop.start_worker()
    until(lambda: line.cuts >= 3)
    assert shop.psql.value(WAITING, dialog) == 1
    line.cuts_answers_after = None
    until(lambda: shop.psql.value(WAITING, dialog) == 0)
    shop.psql.send(dialog, "order", b"next")
    until(lambda: shop.psql.value(WAITING, dialog) == 0)
    assert warehouse.psql.received(2) == [("order", 0, LARGE), ("order", 1, b"next")]


def test_edge_057_a_new_message_does_not_make_its_dialog_due_and_holds_no_other_up(
    sites: tuple[Site, Site], line: Proxy
) -> None:
    shop, warehouse = sites
    # Nearly all of it: the answer to something else may not cut it in its midst.
    line.cuts_answers_after = len(LARGE)
    dialog, other = begin(shop), begin(shop)
    shop.psql.send(dialog, "order", LARGE)
    shop.start_worker(resend_after=600)
    until(lambda: line.cuts >= 1)
    line.cuts_answers_after = None
    assert warehouse.psql.bodies(timeout="120 s") == [LARGE]
    shop.psql.send(dialog, "order", b"waits for its dialog's next attempt")
    shop.psql.send(other, "order", b"goes")
    assert warehouse.psql.bodies(timeout="120 s") == [b"goes"]
    until(lambda: shop.psql.value(WAITING, other) == 0)
    assert (line.cuts, shop.psql.value(WAITING, dialog)) == (1, 2)
    assert shop.psql.value("select broker.get_transmission_status(%s)", dialog) == ""
    # Its schedule is the worker's; another one tries at once.
    shop.stop_worker()
    shop.start_worker()
    assert warehouse.psql.bodies(timeout="120 s") == [b"waits for its dialog's next attempt"]


class FarBroker:
    """An initiator elsewhere, whose batches a test brings in any order, as its worker and the line might."""

    def __init__(self, shop: Shop) -> None:
        self.psql = shop.psql
        self.conversation = uuid.uuid4()

    def bring(self, numbers: list[int], kinds: str = "", kind_of_message: str = "order") -> int:
        """Bring messages, whose bodies are their numbers; return the number that the target expects next."""
        kinds = kinds or "M" * len(numbers)
        bodies = [
            None if kind == "E" else str(number).encode() for kind, number in zip(kinds, numbers, strict=True)
        ]
        ((answer,),) = self.psql.rows(
            "select next_numbers from broker_private.deliver(%s, array[%s], array[true], array['//far'],"
            " array['//warehouse'], array[null::uuid], array['ordering'], array[now() + interval '1 day'], array[true],"
            " array[%s], array_fill(1, array[%s]), array_fill(1, array[%s]), %s::bigint[], %s, %s::bytea[], '{L}', '{null}', '{null}')",
            uuid.UUID(int=1),
            self.conversation,
            kind_of_message,
            len(numbers),
            len(numbers),
            numbers,
            kinds,
            bodies,
        )
        return int(answer[0])

    def bring_piece(
        self, number: int, at: int, piece: bytes, total: int, *, sent_at: str | None = None
    ) -> tuple[int, int]:
        """Bring a piece of a message; return the number that the target expects next, and how many bytes it has."""
        ((answer, stored),) = self.psql.rows(
            "select next_numbers, stored_bytes from broker_private.deliver_piece(%s, array[%s], array[true], array['//far'],"
            " array['//warehouse'], array[null::uuid], array['ordering'], array[now() + interval '1 day'], array[true],"
            " array['order'], '{1}', '{1}', array[%s]::bigint[], 'M', array[%s]::bytea[], %s, %s, '{L}', '{null}', '{null}',"
            " sent_at => array[%s]::timestamptz[])",
            uuid.UUID(int=1),
            self.conversation,
            number,
            piece,
            at,
            total,
            sent_at,
        )
        return int(answer[0]), stored

    def state(self) -> str | None:
        found = self.psql.rows(
            "select state from broker.conversation_endpoints where conversation_id = %s", self.conversation
        )
        return found[0][0] if found else None

    def rows(self) -> list[tuple[int, int, bytes | None]]:
        """Return status, number and body of what the target's queue shows of the dialog."""
        found: list[tuple[int, int, bytes | None]] = self.psql.rows(
            "select m.status, m.message_sequence_number, m.message_body from broker.queue_messages m"
            " join broker.conversation_endpoints e using (conversation_handle) where e.conversation_id = %s"
            " order by m.message_sequence_number",
            self.conversation,
        )
        return found


def test_row_134_row_052_edge_025_what_comes_before_message_0_waits_as_incomplete(shop: Shop) -> None:
    far = FarBroker(shop)
    assert far.bring([2]) == 0
    assert far.bring([1, 2]) == 0
    assert far.state() == "SI"
    assert far.rows() == [(2, 1, b"1"), (2, 2, b"2")]
    depths = "select ready, incomplete from broker.queue_depths where queue_name = 'warehouse'"
    assert shop.psql.rows(depths) == [(0, 2)]
    assert shop.psql.receive("warehouse") == []
    assert far.bring([0]) == 3
    assert far.state() == "CO"
    assert shop.psql.rows(depths) == [(3, 0)]
    assert shop.psql.receive("warehouse") == [("order", number, str(number).encode()) for number in range(3)]


def test_a_body_is_put_together_of_its_own_pieces_without_a_hole(shop: Shop) -> None:
    """Pieces can be lost, and a sender that went back to an earlier state has another message of that number."""
    far = FarBroker(shop)
    before, after = "2026-01-01 00:00:00Z", "2026-01-02 00:00:00Z"
    assert far.bring_piece(0, 0, b"ab", 6, sent_at=before) == (0, 2)
    assert far.bring_piece(0, 4, b"ef", 6, sent_at=before) == (0, 2)
    assert far.bring_piece(0, 2, b"CD", 6, sent_at=after) == (0, 0)
    for at, piece in ((0, b"AB"), (2, b"CD"), (4, b"EF")):
        far.bring_piece(0, at, piece, 6, sent_at=after)
    assert shop.psql.receive("warehouse") == [("order", 0, b"ABCDEF")]


def test_row_134_a_gap_in_the_middle_is_filled_in_order_and_an_end_waits_too(shop: Shop) -> None:
    far = FarBroker(shop)
    assert far.bring([0]) == 1
    assert far.bring([3, 5, 6], "MME") == 1
    assert far.state() == "CO"
    assert [status for status, _, _ in far.rows()] == [1, 2, 2, 2]
    assert far.bring([1, 2]) == 4
    assert far.state() == "CO"
    assert far.bring([4]) == 7
    assert far.state() == "DI"
    assert shop.psql.receive("warehouse") == [
        *(("order", number, str(number).encode()) for number in range(6)),
        (END_DIALOG, 6, None),
    ]


def test_row_134_what_waits_is_judged_in_its_turn(shop: Shop) -> None:
    far = FarBroker(shop)
    shop.psql.rows("select broker.alter_message_type('order', 'EMPTY')")
    assert far.bring([1]) == 0
    shop.psql.rows("select broker.alter_message_type('order', 'NONE')")
    assert far.bring([0]) == 2
    assert far.bring([3], kind_of_message="not of the contract") == 2
    assert far.rows() == [(1, 0, b"0"), (1, 1, b"1")]


def test_row_134_an_error_drops_what_waits_and_so_does_the_end_of_this_side(shop: Shop) -> None:
    failed, ended = FarBroker(shop), FarBroker(shop)
    for far in (failed, ended):
        assert far.bring([0]) == 1
        assert far.bring([2]) == 1
    assert failed.bring([1], "X") == 2
    assert [status for status, _, _ in failed.rows()] == [1, 1]
    assert failed.state() == "ER"
    handle = shop.psql.value(
        "select conversation_handle from broker.conversation_endpoints where conversation_id = %s",
        ended.conversation,
    )
    shop.psql.end(handle)
    assert ended.rows() == []
    received = {name for name, _, _ in shop.psql.receive("warehouse")}
    assert received == {"order", ERROR}


def test_row_134_how_much_a_far_broker_may_send_ahead_is_bounded(shop: Shop) -> None:
    far = FarBroker(shop)
    assert far.bring([999, 1000, 2**40]) == 0
    assert [number for _, number, _ in far.rows()] == [999]


def test_row_134_an_end_alone_opens_no_dialog(shop: Shop) -> None:
    far = FarBroker(shop)
    assert far.bring([3], "E") == 0
    assert far.state() is None


def test_row_135_edge_026_a_message_of_which_a_part_has_come_is_seen_and_not_received(shop: Shop) -> None:
    far = FarBroker(shop)
    shop.psql.rows("create procedure public.read() language plpgsql as 'begin end'")
    shop.psql.rows(
        "select broker.alter_queue('warehouse', activation_procedure => 'public.read', max_queue_readers => 1)"
    )
    activations = "select count(*) from broker_private.activate_queues()"
    assert far.bring_piece(0, 0, b"abc", 8) == (0, 3)
    assert shop.psql.value(activations) == 0
    assert far.state() == "SI"
    assert far.rows() == [(2, 0, None)]
    assert shop.psql.receive("warehouse") == []
    # The line brings it again, loses one, and what follows on the dialog comes first.
    assert far.bring_piece(0, 0, b"abc", 8) == (0, 3)
    assert far.bring_piece(0, 6, b"gh", 8) == (0, 3)
    assert far.bring([1]) == 0
    assert far.bring_piece(0, 3, b"def", 8) == (0, 6)
    assert far.bring_piece(0, 6, b"gh", 8)[0] == 2
    assert far.state() == "CO"
    assert shop.psql.value(activations) == 1
    assert shop.psql.receive("warehouse") == [("order", 0, b"abcdefgh"), ("order", 1, b"1")]
    assert far.bring_piece(0, 0, b"abc", 8)[0] == 2


def test_row_135_pieces_wait_for_a_queue_that_is_off_and_go_with_the_end_of_this_side(shop: Shop) -> None:
    waiting, ended = FarBroker(shop), FarBroker(shop)
    assert waiting.bring_piece(0, 0, b"ab", 4) == (0, 2)
    shop.psql.rows("select broker.alter_queue('warehouse', status => false)")
    assert waiting.bring_piece(0, 2, b"cd", 4) == (0, 4)
    shop.psql.rows("select broker.alter_queue('warehouse', status => true)")
    assert waiting.bring_piece(0, 4, b"", 4)[0] == 1
    assert shop.psql.receive("warehouse") == [("order", 0, b"abcd")]
    assert ended.bring([0]) == 1
    assert ended.bring_piece(1, 0, b"a", 2) == (1, 1)
    ((handle, _),) = shop.psql.rows(
        "select conversation_handle, status from broker.queue_messages where status = 2"
    )
    shop.psql.end(handle)
    assert shop.psql.rows("select from broker.queue_messages where status = 2") == []
    assert ended.bring_piece(1, 1, b"b", 2)[0] == 2


def test_row_135_what_is_refused_without_its_body_is_refused_with_the_first_piece(shop: Shop) -> None:
    far = FarBroker(shop)
    shop.psql.rows("select broker.alter_message_type('order', 'EMPTY')")
    assert far.bring_piece(0, 0, b"a", 1000) == (0, 0)
    assert far.state() is None
    assert (
        far.psql.refused(
            "select broker_private.deliver_piece(%s, array[%s], '{true}', '{a}', '{b}', array[null::uuid], '{c}', array[now()], '{true}',"
            " '{d}', '{1}', '{1}', '{0}', 'M', array['abc'::bytea], 0, 2, '{L}', '{null}', '{null}')",
            uuid.UUID(int=1),
            far.conversation,
        )
        == "T8040"
    )


def test_row_135_only_what_is_missing_is_sent_again_and_others_go_between(
    sites: tuple[Site, Site], line: Proxy
) -> None:
    shop, warehouse = sites
    megabytes = 8
    large = os.urandom(2**20) * megabytes
    dialog, other = begin(shop), begin(shop)
    line.cuts_once_after = 5 * 2**20
    shop.psql.send(dialog, "order", b"before")
    shop.psql.send(dialog, "order", large)
    shop.psql.send(dialog, "order", b"after")
    shop.psql.send(other, "order", b"between")
    shop.start_worker()
    until(lambda: shop.psql.value("select count(*) from broker.transmission_queue") == 0)
    assert line.cuts == 1
    assert line.carried < (megabytes + 2) * 2**20
    received = warehouse.psql.received(4)
    assert sorted(received, key=lambda message: (message[1], message[2] != b"before")) == [
        ("order", 0, b"before"),
        ("order", 0, b"between"),
        ("order", 1, large),
        ("order", 2, b"after"),
    ]


def test_row_135_a_large_body_crosses_with_little_memory_in_both_workers(
    sites: tuple[Site, Site], line: Proxy
) -> None:
    """With PYBROKER_TEST_BODY_MEGABYTES=200 a body of 200 MB crosses."""
    shop, warehouse = sites
    megabytes = int(os.environ.get("PYBROKER_TEST_BODY_MEGABYTES", "32"))
    dialog = begin(shop)
    shop.psql.send(dialog, "order", b"small")
    shop.start_worker()
    assert warehouse.psql.bodies(timeout="120 s") == [b"small"]
    before = [_most_memory(site) for site in sites]
    length = megabytes * 2**20
    shop.psql.rows("select broker.send(%s, 'order', convert_to(repeat('x', %s), 'UTF8'))", dialog, length)
    until(lambda: shop.psql.value(WAITING, dialog) == 0)
    grown = [_most_memory(site) - earlier for site, earlier in zip(sites, before, strict=True)]
    assert max(grown) < 16 * 2**20
    received = "select octet_length(message_body) from broker.receive('warehouse', timeout => '120 s')"
    assert warehouse.psql.value(received) == length


def test_row_097_a_large_body_of_level_10_arrives_before_most_of_those_of_level_1_that_were_sent_earlier(
    sites: tuple[Site, Site], line: Proxy
) -> None:
    shop, warehouse = sites
    shop.psql.rows(
        "select broker.create_broker_priority('low', local_service_name => '//shop', priority_level => 1);"
        "select broker.create_service('//urgent', 'shop');"
        "select broker.create_broker_priority('high', local_service_name => '//urgent', priority_level => 10);"
        "select broker.alter_broker(honor_broker_priority => true)"
    )
    low, high = 3 * 2**19, 2**19 + 1
    for _ in range(8):
        shop.psql.send(begin(shop), "order", bytes(low))
    urgent = shop.psql.value(
        "select broker.begin_dialog('//urgent', '//warehouse', 'ordering', encryption => false)"
    )
    shop.psql.send(urgent, "order", bytes(high))
    shop.start_worker()
    until(lambda: shop.psql.value("select count(*) from broker.transmission_queue") == 0)
    shop.psql.rows(
        "select broker.alter_broker(honor_broker_priority => false);"
        "select broker.drop_broker_priority('low'), broker.drop_broker_priority('high')"
    )
    arrived = [
        length
        for (length,) in warehouse.psql.rows(
            "select octet_length(message_body) from public.warehouse order by queuing_order"
        )
    ]
    assert sorted(arrived) == [high, *[low] * 8]
    assert arrived.index(high) < 4
    warehouse.psql.received(9)


def test_a_target_that_stores_nothing_for_a_while_makes_the_sender_hold_no_more_than_what_is_unanswered(
    sites: tuple[Site, Site], line: Proxy
) -> None:
    shop, warehouse = sites
    # Two destinations on one connection: together they send more batches than it takes unanswered.
    warehouse.psql.rows("select broker.create_queue('slow')")
    for service in ("//slow 1", "//slow 2"):
        warehouse.psql.rows("select broker.create_service(%s, 'slow', '{ordering}')", service)
        warehouse.psql.rows("select broker.grant('SEND', 'SERVICE', %s, 'public')", service)
        shop.route(service, line)
    dialogs = [
        shop.psql.value("select broker.begin_dialog('//shop', %s, 'ordering', encryption => false)", service)
        for service in ("//slow 1", "//slow 2")
    ]
    for dialog in dialogs:
        shop.psql.send(dialog, "order", b"small")
    shop.start_worker()
    until(lambda: shop.psql.value("select count(*) from broker.transmission_queue") == 0)
    before = [_most_memory(site) for site in sites]
    messages, length = 320, 100_000
    holder = warehouse.session(autocommit=False)
    with holder.connection:
        holder.rows("lock table broker_private.messages in share mode")
        for dialog in dialogs:
            shop.psql.rows(
                "select broker.send_batch(%s, 'order', array_fill(convert_to(repeat('x', %s), 'UTF8'), array[%s::int]))",
                dialog,
                length,
                messages,
            )
        controlled = (
            "select is_send_flow_controlled and sends_posted >= 16 from broker.dm_broker_connections"
            " where state_desc = 'LOGGED_IN'"
        )
        until(lambda: (True,) in shop.psql.rows(controlled))
        grown = [_most_memory(site) - earlier for site, earlier in zip(sites, before, strict=True)]
    assert max(grown) < 2 * messages * length * len(dialogs) // 3
    received = "select count(*) from public.slow"
    until(lambda: warehouse.psql.value(received) > 2)
    for dialog in dialogs:
        shop.psql.rows("select broker.end_conversation(%s, cleanup => true)", dialog)


def _most_memory(site: Site) -> int:
    """Return the most bytes that the site's worker has had in memory."""
    assert site.worker is not None
    status = Path(f"/proc/{site.worker.pid}/status")
    if not status.exists():
        pytest.skip("the memory of a process is read from /proc")
    (kilobytes,) = [text.split()[1] for text in status.read_text().splitlines() if text.startswith("VmHWM")]
    return int(kilobytes) * 1024
