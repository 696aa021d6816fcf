"""What a message costs does not grow: the hot statements keep their indexes, whatever lies in the queues."""

from __future__ import annotations

import uuid
from itertools import count, islice, repeat
from statistics import median
from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.patience import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from tests.shop import Session, Shop

DIALOGS = 20
CALLS = 8
BATCH = 100
# Messages of each dialog in a batch of the transport's.
RUN = BATCH // DIALOGS
DEEP = 2_000
FAR_BROKER = uuid.UUID(int=1)
PIECE = 1_000
ONE_BY_ONE = {
    "SEND": "select broker.send((select handle from dialogs where number = {}), 'order', '\\x01'::bytea)",
    "send_batch": "select broker.send_batch((select handle from dialogs where number = {}), 'order', '{{a,b}}')",
    "RECEIVE TOP (1)": "select * from broker.receive('warehouse', top => 1)",
    "RECEIVE TOP (2)": "select * from broker.receive('warehouse', top => 2)",
    "RECEIVE of a conversation": "select * from broker.receive('warehouse', 1, (select far from far_sides where number = {}))",
    "RECEIVE of a group": (
        "select * from broker.receive('warehouse', 1, conversation_group_id => (select far_group from far_sides where number = {}))"
    ),
    "GET CONVERSATION GROUP": "select broker.get_conversation_group('warehouse')",
    "a new dialog": "select broker.send(broker.begin_dialog('//shop', '//warehouse', 'ordering'), 'order', '\\x01'::bytea)",
    "a monitor's look": "select broker_private.has_arrivals((select service_queue_id from broker.services where name = '//warehouse'))",
}
BATCHES = {"RECEIVE TOP (100)": f"select * from broker.receive('warehouse', top => {BATCH})"}
GROUPS = {"receive_groups": "select * from broker.receive_groups('warehouse', 10, top => 1)"}
# What a worker asks many times a minute, whether or not there is anything to do.
LOOKS = {
    "step_monitor": (
        "select broker_private.step_monitor((select queue_id from broker_private.queues where name = 'warehouse'))"
    ),
    "sleep_on_queues": "select broker_private.sleep_on_queues()",
    "due": "select * from broker_private.due()",
    "transmission_work": "select * from broker_private.transmission_work()",
    "messages_to_validate": "select * from broker_private.messages_to_validate(100, 1000000, 1000000)",
    "release_waiting": "select broker_private.release_waiting()",
    "settle_moved": "select broker_private.settle_moved()",
    "settle_poison": "select broker_private.settle_poison()",
    "fire_timers": "select broker_private.fire_timers()",
    "activate_queues": "select * from broker_private.activate_queues()",
    "deliver_local": "select broker_private.deliver_local()",
}
# As a RECEIVE looks now and then.
MEASURE = "select broker_private.pick_above_floors(queue_id, true) from broker_private.queues where name = 'warehouse'"
VIEWS = {
    "queue_depths": "select * from broker.queue_depths",
    "depths": "select * from broker.depths",
    "dm_broker_queue_monitors": "select * from broker.dm_broker_queue_monitors",
}


def pages_of_one(session: Session, call: str) -> int:
    found = session.value(f"explain (analyze, buffers, format json) {call}")[0]["Plan"]
    return int(found["Shared Hit Blocks"] + found["Shared Read Blocks"])


def pages(session: Session, calls: Iterable[str]) -> float:
    """Return how many pages a call touches once its plans are made: the median of a few calls, as one may split a page."""
    return median([pages_of_one(session, call) for call in islice(calls, CALLS)][2:])


def pages_of_each(session: Session, dialogs: int) -> dict[str, float]:
    """Return the pages of each call on dialogs that are open, above what was received until now."""
    fill(session, 12 * BATCH // dialogs)
    session.rows(MEASURE)
    looks = {name: call for name, call in ONE_BY_ONE.items() if name != "a new dialog"} | BATCHES
    return {name: pages(session, map(call.format, repeat(1))) for name, call in looks.items()}


def fewest_pages(session: Session, calls: Mapping[str, str]) -> dict[str, int]:
    """Return how many pages calls touch that touch the same each time: a plan that has to be made anew touches hundreds more."""
    return {name: min(pages_of_one(session, call) for _ in range(4)) for name, call in calls.items()}


def open_dialogs(session: Session, *services: str) -> None:
    """Open dialogs with each service, numbered from 1."""
    session.rows(
        "create table dialogs (number integer generated always as identity primary key, handle uuid not null)"
    )
    for service in services:
        session.rows(
            "insert into dialogs (handle) select broker.begin_dialog('//shop', %s, 'ordering', encryption => false)"
            " from generate_series(1, %s)",
            service,
            DIALOGS,
        )


def fill(session: Session, messages: int, turns: int = 1) -> None:
    """Send so many messages on each dialog, one dialog after the other, in so many turns."""
    session.rows(
        "select count(broker.send_batch(d.handle, 'order', array_fill('\\x01'::bytea, array[%s])))"
        " from (select handle from generate_series(1, %s) turn, dialogs order by turn, number) d",
        messages,
        turns,
    )


def number_far_sides(session: Session) -> None:
    """Give the far sides, which are there once something was sent, the numbers of their dialogs."""
    session.rows(
        "create table far_sides as select d.number, f.conversation_handle as far, f.conversation_group_id as far_group"
        " from dialogs d join broker.conversation_endpoints e on e.conversation_handle = d.handle"
        " join broker.conversation_endpoints f on f.conversation_id = e.conversation_id and not f.is_initiator"
    )


@pytest.mark.parametrize(
    ("calls", "messages", "turns", "most"),
    # Ten groups are looked for with some five searches each.
    [(ONE_BY_ONE, 5, 1, 30), (BATCHES, BATCH, 1, 30), (GROUPS, 1, 10, 200)],
    ids=["one by one", "batches", "groups"],
)
def test_a_call_touches_as_few_pages_in_a_deep_queue_as_in_a_shallow_one(
    shop: Shop, calls: Mapping[str, str], messages: int, turns: int, most: int
) -> None:
    psql = shop.psql
    psql.rows("select broker.create_queue('annex')")
    psql.rows("select broker.create_service('//annex', 'annex', '{ordering}')")
    # What lies in another queue is none of a call's business either.
    open_dialogs(psql, "//warehouse", "//annex")
    fill(psql, messages, turns)
    number_far_sides(psql)
    shallow = {name: pages(psql, map(call.format, count(1))) for name, call in calls.items()}
    fill(psql, DEEP)
    deep = {name: pages(psql, map(call.format, count(1))) for name, call in calls.items()}
    # The indexes are a level higher for each search; all else is as before. A scan of the table touches hundreds more.
    assert {name: deep[name] - shallow[name] < most for name in calls} == dict.fromkeys(calls, True), (
        shallow,
        deep,
    )


def next_batch(session: Session, destination: int) -> tuple[str, str, str]:
    """Take a batch; return its dialogs' endpoints, the number that follows on each, and its last row of each."""
    ((endpoints, numbers, rows),) = session.rows(
        "select array_agg(d.endpoint_no)::text, array_agg(d.number + 1)::text, array_agg(d.row_id)::text from ("
        " select t.endpoint_nos[m.dialog] as endpoint_no, max(m.number) as number, max(m.row_id) as row_id"
        " from broker_private.take(%s, 0, 1, %s, 1000000, '{}') t,"
        " unnest(t.dialog_index, t.sequence_numbers, t.row_ids) as m (dialog, number, row_id) group by 1) d",
        destination,
        BATCH,
    )
    return endpoints, numbers, rows


def acknowledgements(session: Session, destination: int) -> Iterator[str]:
    """Yield the acknowledgement of one batch after the other."""
    while True:
        endpoints, numbers, rows = next_batch(session, destination)
        yield f"select broker_private.acknowledge('{FAR_BROKER}', '{endpoints}', '{numbers}', '{rows}')"


def of_each_dialog(*values: str) -> str:
    return ", ".join(f"array_fill({value}, array[{DIALOGS}])" for value in values)


def deliveries() -> Iterator[str]:
    """Yield the deliveries of one batch after the other from another broker, always on the same dialogs."""
    dialogs = "{" + ",".join(str(uuid.uuid4()) for _ in range(DIALOGS)) + "}"
    headers = of_each_dialog(
        "true", "'//far'::text", "'//warehouse'::text", "null::uuid", "'ordering'::text", "now() + interval '1 day'", "false"
    )  # fmt: skip
    security = of_each_dialog("'L'::text", "null::text", "null::bytea")
    for first in count(0, RUN):
        yield (
            f"select * from broker_private.deliver('{FAR_BROKER}', '{dialogs}', {headers}, '{{order}}',"
            f" array(select 1 + m / {RUN} from generate_series(0, {BATCH - 1}) m), array_fill(1, array[{BATCH}]),"
            f" array(select {first} + m % {RUN} from generate_series(0, {BATCH - 1}) m)::bigint[],"
            f" repeat('M', {BATCH}), array_fill('\\x01'::bytea, array[{BATCH}]), {security},"
            f" {of_each_dialog(f'{first}::bigint')}, array_fill(clock_timestamp(), array[{BATCH}]))"
        )


def test_a_batch_on_its_way_touches_as_few_pages_when_much_waits_as_when_little_does(shop: Shop) -> None:
    psql = shop.psql
    psql.rows("select broker.create_route('far', 'tcp://127.0.0.1:1', service_name => '//far')")
    open_dialogs(psql, "//far", "//warehouse")
    fill(psql, RUN, 20)
    destination = psql.value("select distinct destination_no from broker_private.transmission_messages")
    take = f"select * from broker_private.take({destination}, 0, 1, {BATCH}, 1000000, '{{}}', 500000"
    batches = {
        "deliver": deliveries(),
        "acknowledge": acknowledgements(psql, destination),
    }

    def touched() -> dict[str, float]:
        endpoints, numbers, rows = next_batch(psql, destination)
        in_flight = f"false, '{endpoints}', '{rows}', '{numbers}'"
        return {
            "SEND": pages(psql, map(ONE_BY_ONE["SEND"].format, count(1))),
            "take": pages(psql, repeat(f"{take})")),
            "take behind a batch in flight": pages(psql, repeat(f"{take}, {in_flight})")),
            **{name: pages(psql, calls) for name, calls in batches.items()},
        }

    shallow = touched()
    fill(psql, DEEP)
    deep = touched()
    # A batch is looked for at each level; each message of a delivery goes into two indexes, which are a level higher.
    most = {**dict.fromkeys(shallow, 100), "deliver": 2 * BATCH}
    assert {name: deep[name] - shallow[name] < most[name] for name in most} == dict.fromkeys(most, True), (
        shallow,
        deep,
    )
    done = 2 * CALLS * BATCH
    sent = DIALOGS * (RUN * 20 + DEEP) + 2 * CALLS
    assert psql.rows(
        "select (select count(*) from broker_private.transmission_messages),"
        " (select count(*) from broker_private.messages where sequence_number is not null)"
    ) == [(sent - done, done)]


@pytest.mark.parametrize("dialogs", [1, DIALOGS])
def test_a_call_touches_few_pages_under_an_old_snapshot_however_much_was_received_since(
    shop: Shop, dialogs: int
) -> None:
    psql = shop.psql
    for setting in ("enable_seqscan", "enable_bitmapscan", "jit"):
        psql.rows(f"set {setting} = off")
    open_dialogs(psql, "//warehouse")
    psql.rows("delete from dialogs where number > %s", dialogs)
    (old,) = shop.sessions(1)
    old.connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    old.rows("select 1")
    fill(psql, BATCH // dialogs)
    number_far_sides(psql)

    def touched_after(received: int) -> dict[str, float]:
        for _ in range(received // (20 * BATCH)):
            fill(psql, 20 * BATCH // dialogs)
            while psql.value("select count(*) from broker.receive('warehouse', top => 1000)"):
                pass
        return pages_of_each(psql, dialogs)

    shallow = touched_after(2_000)
    deep = touched_after(18_000)
    # Seventy entries of what was received have their messages on one page.
    assert {name: deep[name] - shallow[name] < 200 for name in deep} == dict.fromkeys(deep, True), (
        shallow,
        deep,
    )
    old.connection.rollback()
    psql.rows("vacuum broker_private.messages")
    psql.rows(
        "select broker_private.leave_floors(queue_id) from broker_private.queues where name = 'warehouse'"
    )
    assert psql.value("select has_floors from broker_private.queues where name = 'warehouse'") is False


@pytest.mark.parametrize("dialogs", [1, DIALOGS])
def test_a_call_touches_few_pages_however_much_was_received_since_the_last_vacuum(
    shop: Shop, dialogs: int
) -> None:
    psql = shop.psql
    psql.rows("alter table broker_private.messages set (autovacuum_enabled = off)")
    for setting in ("enable_seqscan", "enable_bitmapscan", "jit"):
        psql.rows(f"set {setting} = off")
    open_dialogs(psql, "//warehouse")
    psql.rows("delete from dialogs where number > %s", dialogs)
    fill(psql, BATCH // dialogs)
    number_far_sides(psql)

    def touched_after(received: int) -> dict[str, float]:
        fill(psql, received // dialogs)
        while psql.value("select count(*) from broker.receive('warehouse', top => 1000)"):
            pass
        return pages_of_each(psql, dialogs)

    shallow = touched_after(0)
    deep = touched_after(40_000)
    # A hundred and fifty pages of messages_head are of what was received, and two hundred of messages_group.
    assert {name: deep[name] - shallow[name] < 80 for name in deep} == dict.fromkeys(deep, True), (
        shallow,
        deep,
    )


def test_floors_that_rose_in_an_empty_queue_spare_a_hot_group_its_long_search_too(shop: Shop) -> None:
    psql = shop.psql
    psql.rows("alter table broker_private.messages set (autovacuum_enabled = off)")
    open_dialogs(psql, "//warehouse")
    psql.rows("delete from dialogs where number > 1")
    fill(psql, 40_000)
    # In one transaction, so that no RECEIVE but the first measures anything.
    psql.rows(
        "do $$ begin perform txid_current();"
        " for turn in 1..40 loop perform broker.receive('warehouse', top => 1000); end loop; end $$"
    )
    psql.rows(MEASURE)
    assert psql.value("select has_floors from broker_private.queues where name = 'warehouse'") is True
    fill(psql, BATCH)
    # As one RECEIVE in a hundred looks then.
    psql.rows(MEASURE)
    assert pages(psql, repeat(ONE_BY_ONE["RECEIVE TOP (1)"])) < 200


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


def test_a_call_touches_as_few_pages_behind_thousands_of_messages_of_held_groups_as_behind_few(
    shop: Shop,
) -> None:
    psql = shop.psql
    many = "select broker.send_batch(%s, 'order', array_fill('\\x01'::bytea, array[%s]))"
    calls = {name: ONE_BY_ONE[name] for name in ("RECEIVE TOP (1)", "GET CONVERSATION GROUP")}

    def touched(ahead: int) -> dict[str, float]:
        """Return the pages of calls whose messages lie behind so many of each of four groups that another session holds."""
        handles = [psql.dialog() for _ in range(4)]
        for handle in handles:
            psql.rows(many, handle, ahead)
        for _ in range(CALLS * len(calls)):
            psql.rows(many, psql.dialog(), 4)
        holder = shop.session(autocommit=False)
        for handle in handles:
            assert holder.receive(conversation_handle=psql.handle_of(handle), top=1)
        found = {name: pages(psql, repeat(call)) for name, call in calls.items()}
        holder.rows("rollback")
        while psql.receive():
            pass
        psql.rows("vacuum broker_private.messages")
        return found

    few, thousands = touched(100), touched(10_000)
    # A few more looks; each message that was walked past would be a page more.
    assert {name: thousands[name] - few[name] < 400 for name in calls} == dict.fromkeys(calls, True), (
        few,
        thousands,
    )


def test_a_call_on_queues_that_retain_touches_as_few_pages_when_much_is_kept_as_when_little_is(
    shop: Shop,
) -> None:
    psql = shop.psql
    psql.rows("select broker.alter_queue(name, retention => true) from broker.service_queues")
    open_dialogs(psql, "//warehouse")
    fill(psql, BATCH)
    calls = {name: ONE_BY_ONE[name] for name in ("SEND", "send_batch", "RECEIVE TOP (1)")} | BATCHES
    shallow = {name: pages(psql, map(call.format, count(1))) for name, call in calls.items()}
    for _ in range(4):
        fill(psql, BATCH)
        while psql.value("select count(*) from broker.receive('warehouse', top => 1000)"):
            pass
    fill(psql, BATCH)
    deep = {name: pages(psql, map(call.format, count(1))) for name, call in calls.items()}
    assert {name: deep[name] - shallow[name] < 200 for name in calls} == dict.fromkeys(calls, True), (
        shallow,
        deep,
    )
    assert psql.value("select sum(retained) from broker.queue_depths") > 4 * 2 * DIALOGS * BATCH


@pytest.mark.dear
@pytest.mark.parametrize("queue", ["noisy", "warehouse"])
def test_a_call_touches_as_few_pages_when_programs_told_of_a_thousand_failures_as_of_one(
    shop: Shop, queue: str
) -> None:
    psql = shop.psql
    psql.rows("select broker.create_queue('noisy')")
    psql.rows("select broker.create_service('//noisy', 'noisy', '{ordering}')")
    psql.rows(
        "select broker.alter_queue(name, poison_action => 'QUARANTINE') from unnest(array['noisy', 'warehouse']) name"
    )

    def fail(conversations: int) -> None:
        psql.rows(
            "select broker.send(broker.begin_dialog('//shop', '//' || %s, 'ordering', encryption => false), 'order', '\\x01'::bytea)"
            " from generate_series(1, %s)",
            queue,
            conversations,
        )
        psql.rows(
            "select broker.note_failure(conversation_handle, 'no') from broker.conversation_endpoints e"
            " where not is_initiator and service_id = (select service_id from broker.services where name = '//' || %s)"
            " and not exists (select from far_sides f where f.far = e.conversation_handle)",
            queue,
        )

    open_dialogs(psql, "//warehouse")
    fill(psql, 10 * BATCH // DIALOGS)
    number_far_sides(psql)
    # Each touches another group's messages, or another message of the same.
    calls = {name: ONE_BY_ONE[name] for name in ("RECEIVE TOP (1)", "RECEIVE of a conversation")} | BATCHES

    def touched() -> dict[str, float]:
        return {name: pages(psql, map(call.format, count(1))) for name, call in calls.items()}

    fail(1)
    few = touched()
    fail(PIECE)
    many = touched()
    assert {name: many[name] - few[name] < 50 for name in calls} == dict.fromkeys(calls, True), (few, many)


def test_receive_of_ten_thousand_messages_touches_ten_times_the_pages_of_a_thousand(shop: Shop) -> None:
    psql = shop.psql
    dialog = psql.dialog()
    psql.rows("select broker.send_batch(%s, 'order', array_fill('\\x01'::bytea, array[13000]))", dialog)
    call = "select * from broker.receive('warehouse', top => {})"
    thousand = min(pages_of_one(psql, call.format(1_000)) for _ in range(3))
    assert pages_of_one(psql, call.format(10_000)) < 15 * thousand
    assert psql.receive() == []


def test_a_look_of_a_worker_or_a_dashboard_touches_as_few_pages_when_much_waits_as_when_little_does(
    shop: Shop,
) -> None:
    psql = shop.psql
    psql.rows("create procedure reader() language plpgsql as $$begin end$$")
    for queue in ("shop", "warehouse"):
        psql.rows(
            "select broker.alter_queue(%s, activation_procedure => 'reader', max_queue_readers => 0)", queue
        )
    psql.rows("select broker.create_route('far', 'tcp://127.0.0.1:1', service_name => '//far')")
    open_dialogs(psql, "//warehouse", "//far")
    # Something waits within this database, among all that waits for others.
    psql.rows("select broker.create_queue('closed', status => false)")
    psql.rows("select broker.create_service('//closed', 'closed', '{ordering}')")
    psql.rows(
        "select broker.send(broker.begin_dialog('//shop', '//closed', 'ordering'), 'order', '\\x01'::bytea)"
    )
    fill(psql, 5)
    shallow = fewest_pages(psql, LOOKS)
    # The views count up to ten thousand.
    fill(psql, 10_200 // DIALOGS)
    shallow |= fewest_pages(psql, VIEWS)
    fill(psql, 10_000 // DIALOGS)
    psql.rows(
        "insert into dialogs (handle) select broker.begin_dialog('//shop', s, 'ordering', encryption => false)"
        " from unnest(array['//warehouse', '//far']) s, generate_series(1, 100)"
    )
    psql.rows("select broker.begin_conversation_timer(handle, interval '1 day') from dialogs")
    fill(psql, 1)
    deep = fewest_pages(psql, LOOKS | VIEWS)
    # A view looks at each of ten thousand by an index, which may be a level higher now.
    assert {name: deep[name] < 1.5 * shallow[name] + 100 for name in deep} == dict.fromkeys(deep, True), (
        shallow,
        deep,
    )


def test_a_piece_of_a_large_body_touches_as_few_pages_at_its_end_as_at_its_beginning(shop: Shop) -> None:
    psql = shop.psql
    psql.rows("select broker.create_route('far', 'tcp://127.0.0.1:1', service_name => '//far')")
    open_dialogs(psql, "//far", "//warehouse")
    many = 200
    large = f"convert_to(repeat('x', {many * PIECE}), 'UTF8')"
    psql.rows(f"select broker.send((select handle from dialogs where number = 1), 'order', {large})")
    ((endpoint, destination),) = psql.rows(
        "select endpoint_no, destination_no from broker_private.transmission_messages"
    )
    take = f"select * from broker_private.take_piece({destination}, {endpoint}, 0, {{}}, {PIECE})"
    conversation = uuid.uuid4()

    def deliveries_from(piece: int) -> Iterator[str]:
        for at in count(piece):
            yield (
                f"select * from broker_private.deliver_piece('{FAR_BROKER}', '{{{conversation}}}', '{{true}}', '{{//far}}', '{{//warehouse}}',"
                f" array[null::uuid], '{{ordering}}', array[now() + interval '1 day'], '{{false}}', '{{order}}', '{{1}}', '{{1}}', '{{0}}',"
                f" 'M', array[convert_to(repeat('x', {PIECE}), 'UTF8')], {at * PIECE}, {many * PIECE}, '{{L}}', array[null::text],"
                " array[null::bytea], '{0}', array['2026-01-01'::timestamptz])"
            )

    def touched(piece: int) -> dict[str, float]:
        return {
            "take_piece": pages(psql, map(take.format, count(piece * PIECE, PIECE))),
            "deliver_piece": pages(psql, deliveries_from(piece)),
        }

    first = touched(0)
    # What waits behind it is none of a piece's business.
    fill(psql, DEEP // 2)
    for delivery in islice(deliveries_from(CALLS), many - 2 * CALLS):
        psql.rows(delivery)
    last = touched(many - CALLS)
    assert {name: last[name] - first[name] < 50 for name in first} == dict.fromkeys(first, True), (
        first,
        last,
    )
    assert psql.value("select max(octet_length(body)) from broker_private.messages") == many * PIECE


@pytest.mark.dear
def test_a_look_at_quarantine_touches_as_few_pages_whatever_is_in_it_and_takes_turns(shop: Shop) -> None:
    psql = shop.psql
    psql.rows("select broker.alter_queue('warehouse', poison_action => 'QUARANTINE')")

    def quarantine(conversations: int) -> None:
        psql.rows(
            "select broker.send(broker.begin_dialog('//shop', '//warehouse', 'ordering', encryption => false), 'order', '\\x01'::bytea)"
            " from generate_series(1, %s)",
            conversations,
        )
        psql.rows(
            "select broker.note_failure(conversation_handle, 'no', '{1 day}') from broker.conversation_endpoints e"
            " where not is_initiator and not exists (select from broker.quarantine q where q.conversation_handle = e.conversation_handle)"
        )

    quarantine(90)
    few = fewest_pages(psql, {"settle_poison": LOOKS["settle_poison"]})
    quarantine(1_410)
    many = fewest_pages(psql, {"settle_poison": LOOKS["settle_poison"]})
    assert many["settle_poison"] < few["settle_poison"] + 400, (few, many)
    psql.rows(
        "select broker.send(conversation_handle, 'order', '\\x02'::bytea) from broker.conversation_endpoints where is_initiator"
    )
    for _ in range(1_500 // 100 + 1):
        psql.rows(LOOKS["settle_poison"])
    assert psql.value("select count(*) from warehouse") == 0, "each had its turn"
    assert psql.value("select sum(messages_waiting) from broker.quarantine") == 2 * 1_500


def end_far_dialogs(session: Session, dialogs: int) -> None:
    """Begin dialogs with another broker and end them, so that it has acknowledged each end."""
    session.rows(
        "insert into dialogs (handle) select broker.begin_dialog('//shop', '//far', 'ordering', encryption => false)"
        " from generate_series(1, %s)",
        dialogs,
    )
    session.rows("select broker.send(handle, 'order', '\\x01'::bytea) from dialogs")
    session.rows("select broker.end_conversation(handle) from dialogs")
    session.rows("delete from dialogs")
    destination = session.value("select distinct destination_no from broker_private.transmission_messages")
    for acknowledgement in acknowledgements(session, destination):
        session.rows(acknowledgement)
        if not session.value("select count(*) from broker_private.transmission_messages"):
            return


@pytest.mark.dear
def test_a_sweep_touches_as_few_pages_when_thousands_have_ended_as_when_few_have(
    shop: Shop, clock: Callable[[str], None]
) -> None:
    psql = shop.psql
    psql.rows("select broker.create_route('far', 'tcp://127.0.0.1:1', service_name => '//far')")
    open_dialogs(psql)
    sweep = {"sweep": "select broker_private.sweep()"}

    def swept() -> int:
        """Return the pages of a sweep that finds nothing, after one that has closed all that had ended."""
        psql.rows(sweep["sweep"])
        return fewest_pages(psql, sweep)["sweep"]

    end_far_dialogs(psql, 100)
    few = swept()
    end_far_dialogs(psql, 2_000)
    many = swept()
    assert many < few + 100, (few, many)
    assert psql.value("select count(*) from broker.conversation_endpoints") == 0
    clock("31 min")
    assert psql.value(sweep["sweep"]) == 2_100


@pytest.mark.dear
def test_a_look_for_lifetimes_touches_as_few_pages_when_thousands_are_over_as_when_few_are(
    shop: Shop, clock: Callable[[str], None]
) -> None:
    psql = shop.psql
    looks = {name: LOOKS[name] for name in ("due", "fire_timers")}

    def touched_after(dialogs: int) -> dict[str, int]:
        """Return the pages of looks that find nothing, after the lifetime of so many more dialogs is over."""
        clock("0 s")
        psql.rows(
            "select broker.send(broker.begin_dialog('//shop', '//warehouse', 'ordering', lifetime => '1 hour', encryption => false),"
            " 'order', '\\x01'::bytea) from generate_series(1, %s)",
            dialogs,
        )
        clock("2 hours")
        while psql.value(LOOKS["fire_timers"]):
            pass
        return fewest_pages(psql, looks)

    few, many = touched_after(50), touched_after(1_000)
    assert {name: many[name] < few[name] + 100 for name in looks} == dict.fromkeys(looks, True), (few, many)
    assert psql.rows("select state, count(*) from broker.conversation_endpoints group by state") == [
        ("ER", 2 * 1_050)
    ]


def test_no_view_of_a_database_that_was_never_analyzed_is_dear_enough_to_be_compiled(shop: Shop) -> None:
    psql = shop.psql
    views = psql.rows("select viewname from pg_views where schemaname = 'broker'")
    dearest = psql.value("select reset_val::float from pg_settings where name = 'jit_above_cost'")
    costs = {
        view: psql.value(f"explain (format json) select * from broker.{view}")[0]["Plan"]["Total Cost"]
        for (view,) in views
    }
    assert {view: cost for view, cost in costs.items() if cost >= dearest} == {}


def send_to_many(session: Session, first: int, last: int) -> None:
    """Send to that many services, which nobody has ever heard of."""
    session.rows(
        "select broker.send(broker.begin_dialog('//shop', '//nowhere/' || number, 'ordering', encryption => false), 'order', '\\x01'::bytea)"
        " from generate_series(%s::integer, %s::integer) number",
        first,
        last,
    )


@pytest.mark.dear
def test_a_look_touches_as_few_pages_when_messages_wait_for_thousands_of_services_as_when_for_hundreds(
    shop: Shop,
) -> None:
    psql = shop.psql
    psql.rows("select broker.create_queue('closed', status => false)")
    psql.rows("select broker.create_service('//closed', 'closed', '{ordering}')")
    psql.rows(
        "select broker.send(broker.begin_dialog('//shop', '//closed', 'ordering'), 'order', '\\x01'::bytea)"
    )
    looks = {name: LOOKS[name] for name in ("transmission_work", "deliver_local")} | {
        "has_arrivals": "select broker_private.has_arrivals(0)"
    }
    send_to_many(psql, 1, 400)
    few = fewest_pages(psql, looks)
    send_to_many(psql, 401, 3_000)
    many = fewest_pages(psql, looks)
    assert {name: many[name] < 1.5 * few[name] + 100 for name in looks} == dict.fromkeys(looks, True), (
        few,
        many,
    )
    psql.rows(
        "select broker.end_conversation(conversation_handle, cleanup => true) from broker.conversation_endpoints"
    )
    none = fewest_pages(psql, looks)
    assert {name: none[name] < few[name] + 100 for name in looks} == dict.fromkeys(looks, True), (few, none)


def test_who_names_many_services_delays_no_message_for_another_one(shop: Shop) -> None:
    psql = shop.psql
    send_to_many(psql, 1, 250)
    look = "select service_name from broker_private.transmission_work({})"
    seen = set()
    for _ in range(3):
        rows = psql.rows(look.format(""))
        assert len(rows) <= 100
        seen |= set(rows)
    assert len(seen) == 250, "each had its turn"
    psql.rows(
        "select broker_private.set_destination_status(destination_no, '9793: nowhere') from broker_private.destinations"
        " where service_name like '//nowhere/%'"
    )
    send_to_many(psql, 251, 251)
    for _ in range(3):
        assert ("//nowhere/251",) in psql.rows(look.format("")), "what has no problem waits for none that has"
    running = psql.value(
        "select destination_no from broker_private.destinations where service_name = '//nowhere/7'"
    )
    for _ in range(3):
        assert ("//nowhere/7",) in psql.rows(look.format(f"array[{running}]"))


def wait_for_closed_queues(session: Session, messages: int) -> None:
    """Send on dialogs whose far sides are there and on dialogs that have none yet."""
    fill(session, messages // DIALOGS // 2)
    session.rows(
        "select broker.send(broker.begin_dialog('//shop', '//closed', 'ordering', encryption => false), 'order', '\\x02'::bytea)"
        " from generate_series(1, %s)",
        messages // 2,
    )


@pytest.mark.dear
def test_a_look_touches_as_few_pages_when_thousands_wait_for_queues_that_are_off_as_when_a_hundred_do(
    shop: Shop,
) -> None:
    psql = shop.psql
    look = {"deliver_local": LOOKS["deliver_local"]}
    for queue in ("closed", "other"):
        psql.rows("select broker.create_queue(%s)", queue)
        psql.rows("select broker.create_service('//' || %s, %s, '{ordering}')", queue, queue)
    begin = "select broker.begin_dialog('//shop', '//other', 'ordering', encryption => false)"
    known = psql.value(begin)
    psql.send(known, "order", b"known")
    open_dialogs(psql, "//warehouse")
    fill(psql, 1)
    turn = "select broker.alter_queue(q, status => %s) from unnest(%s::text[]) q"
    psql.rows(turn, False, ["warehouse", "closed", "other"])
    wait_for_closed_queues(psql, 200)
    few = fewest_pages(psql, look)
    wait_for_closed_queues(psql, 2_000)
    # They are committed when their queue is on again, so that nobody but a look delivers them.
    late = shop.session(autocommit=False)
    late.send(known, "order", b"late")
    late.send(late.value(begin), "order", b"late and first")
    wait_for_closed_queues(psql, 2_000)
    many = fewest_pages(psql, look)
    # A hundred dialogs have their turn, and a hundred reasons; few is a look with less than that.
    assert many["deliver_local"] < few["deliver_local"] + 4_000, (few, many)
    psql.rows(turn, True, ["other"])
    late.connection.commit()
    assert psql.value(LOOKS["deliver_local"]) == 2, "no message waits behind those of another queue"
    assert sorted(psql.bodies("other") + psql.bodies("other")) == [b"known", b"late", b"late and first"]
    psql.rows(turn, True, ["warehouse", "closed"])
    assert psql.rows("select from broker.transmission_queue") == []
    assert psql.rows("select count(*), count(distinct conversation_handle) from closed") == [(2_100, 2_100)]
    in_order = "select array_agg(message_sequence_number order by queuing_order) from warehouse group by conversation_handle"
    sent = 1 + 2_100 // DIALOGS
    assert psql.rows(in_order) == [(list(range(sent)),)] * DIALOGS


@pytest.mark.dear
def test_a_look_for_timers_touches_as_few_pages_when_thousands_wait_for_a_queue_that_is_off_as_when_few_do(
    shop: Shop, clock: Callable[[str], None]
) -> None:
    psql = shop.psql
    looks = {name: LOOKS[name] for name in ("due", "fire_timers")}

    def begin_timers(dialogs: int) -> None:
        psql.rows(
            "select broker.begin_conversation_timer(broker.begin_dialog('//shop', '//warehouse', 'ordering'), '1 min')"
            " from generate_series(1, %s)",
            dialogs,
        )

    psql.rows("select broker.alter_queue('shop', status => false)")
    begin_timers(50)
    clock("1 hour")
    few = fewest_pages(psql, looks)
    clock("0 s")
    begin_timers(1_500)
    clock("1 hour")
    many = fewest_pages(psql, looks)
    assert {name: many[name] < few[name] + 100 for name in looks} == dict.fromkeys(looks, True), (few, many)
    # Their service goes to a queue that is on, and its timers go along.
    psql.rows("select broker.create_queue('annex')")
    psql.rows("select broker.alter_service('//shop', 'annex')")
    assert [psql.value(looks["fire_timers"]) for _ in range(3)] == [1_000, 550, 0]
    assert psql.value("select count(*) from annex") == 1_550


@pytest.mark.dear
def test_what_is_due_of_one_queue_waits_behind_no_quarantine_of_another(
    shop: Shop, clock: Callable[[str], None]
) -> None:
    psql = shop.psql
    for queue in ("noisy", "annex"):
        psql.rows("select broker.create_queue(%s)", queue)
    psql.rows("select broker.create_service('//noisy', 'noisy', '{ordering}')")
    psql.rows(
        "select broker.alter_queue(name, poison_action => 'QUARANTINE') from unnest('{noisy,warehouse,annex}'::text[]) name"
    )
    for service, dialogs in (("//noisy", 500), ("//warehouse", 1)):
        psql.rows(
            "select broker.send(broker.begin_dialog('//shop', %s, 'ordering', encryption => false), 'order', '\\x01'::bytea)"
            " from generate_series(1, %s)",
            service,
            dialogs,
        )
        psql.rows(
            "select broker.note_failure(e.conversation_handle, 'no', '{1 min}') from broker.conversation_endpoints e"
            " join broker.services s using (service_id) where not e.is_initiator and s.name = %s",
            service,
        )
    clock("1 hour")
    psql.rows(LOOKS["settle_poison"])
    assert [psql.value(f"select count(*) from {queue}") for queue in ("noisy", "warehouse")] == [100, 1]
    # What moves to another queue waits in the line of that one.
    psql.rows("select broker.alter_service('//noisy', 'annex')")
    assert [psql.value("select broker.redrive_due(%s)", queue) for queue in ("noisy", "annex")] == [0, 100]


def test_dialogs_get_a_broker_in_turns_at_the_same_cost_however_much_waits(shop: Shop) -> None:
    psql = shop.psql
    psql.rows("select broker.drop_route('AutoCreatedLocal')")
    begin = "select broker.begin_dialog('//shop', '//far', 'ordering', encryption => false)"
    fill_one = "select broker.send_batch(%s, 'order', array_fill('\\x01'::bytea, array[%s]))"
    held = psql.value(begin)
    psql.rows(fill_one, held, 1_000)
    destination = psql.value("select destination_no from broker_private.transmission_work()")
    spread = f"select moved from broker_private.spread_dialogs({destination}, array['{FAR_BROKER}'::uuid])"
    holder = shop.session(autocommit=False)
    holder.rows(fill_one, held, 1)

    def most_pages() -> int:
        """Return the pages of the longest turn, once the plans are made."""
        return max([pages_of_one(psql, spread) for _ in range(20)][2:])

    few = most_pages()
    holder.connection.rollback()
    psql.rows(fill_one, held, 8_000)
    holder.rows(fill_one, held, 1)
    many = most_pages()
    assert many < few + 200, (few, many)
    late = psql.value(begin)
    psql.rows(fill_one, late, 1)
    assert sum(psql.value(spread) for _ in range(10)) == 1, "ten turns pass all of what is held"
    holder.connection.rollback()
    assert sum(psql.value(spread) for _ in range(10)) == 1
    waiting = psql.rows(
        "select distinct broker_instance from broker_private.transmission_messages"
        " join broker_private.destinations using (destination_no)"
    )
    assert waiting == [(FAR_BROKER,)]


def believe_no_rows(session: Session) -> None:
    """Say of each table what an ANALYZE at a moment when all was received leaves: any search of any index seems to cost one page."""
    session.rows(
        "update pg_class set reltuples = 0, relpages = 10"
        " where relnamespace = 'broker_private'::regnamespace and relkind in ('r', 'i')"
    )


def test_a_call_touches_few_pages_where_statistics_say_that_the_tables_are_empty(shop: Shop) -> None:
    psql = shop.psql
    psql.rows("select broker.create_route('far', 'tcp://127.0.0.1:1', service_name => '//far')")
    psql.rows("select broker.create_queue('closed', status => false)")
    psql.rows("select broker.create_service('//closed', 'closed', '{ordering}')")
    psql.rows(
        "select broker.alter_queue(name, poison_action => 'QUARANTINE') from unnest('{shop,warehouse}'::text[]) name"
    )
    open_dialogs(psql, "//warehouse", "//far")
    fill(psql, BATCH)
    number_far_sides(psql)
    # Conversations of one group. What lies on the last one is no business of the others.
    siblings = 6 * CALLS
    psql.rows(
        "create table siblings as select n as number, broker.begin_dialog('//shop', '//warehouse', 'ordering',"
        " related_conversation_group => '00000000-0000-0000-0000-000000000001', encryption => false) as handle"
        " from generate_series(1, %s) n",
        siblings,
    )
    psql.rows("select broker.send(handle, 'order', '\\x01'::bytea) from siblings")
    psql.rows(
        "create table replies as select d.number, f.conversation_handle as far, e.endpoint_no, e.group_no, e.queue_id"
        " from siblings d join broker_private.endpoints e on e.conversation_handle = d.handle"
        " join broker_private.endpoints f on f.conversation_id = e.conversation_id and not f.is_initiator"
    )
    psql.rows("select broker.send_batch(far, 'ack', '{a,b}') from replies")
    # As from some 30,000 messages on: a search of the higher index seems dearer then.
    psql.rows("alter index broker_private.messages_group set (fillfactor = 10)")
    psql.rows("reindex index broker_private.messages_group")
    number = count(1)
    each = "(select handle from siblings where number = {})"
    ends = {
        "END CONVERSATION": f"select broker.end_conversation({each})",
        "END CONVERSATION WITH ERROR": f"select broker.end_conversation({each}, 1, 'no')",
        "note_failure": f"select broker.note_failure({each}, 'no', array[interval '1 day'])",
    }
    calls = {
        **ONE_BY_ONE,
        **BATCHES,
        **GROUPS,
        "sweep": "select broker_private.sweep()",
        **{
            name: f"select {call} from replies where number = {siblings - 1}"
            for name, call in {
                "messages_above_floors": "broker_private.messages_above_floors(queue_id, group_no, endpoint_no, 1)",
                "has_named_message": f"broker_private.has_named_message(queue_id, {each.format(siblings - 1)}, null)",
                "number_of_error": "broker_private.number_of_error(endpoint_no)",
            }.items()
        },
    }
    large = "convert_to(repeat('x', 1900), 'UTF8')"

    def grow(rows: int) -> None:
        """Let so many conversations wait for each service, and so many large messages on the last one of the group."""
        for service in ("//warehouse", "//far", "//closed"):
            psql.rows(
                f"select broker.send(broker.begin_dialog('//shop', %s, 'ordering', encryption => false), 'order', {large})"
                " from generate_series(1, %s)",
                service,
                rows,
            )
        psql.rows(
            f"select broker.send_batch(far, 'ack', array_fill({large}, array[%s])) from replies where number = %s",
            rows,
            siblings,
        )
        believe_no_rows(psql)

    def touched() -> dict[str, float]:
        return {
            **{name: pages(psql, map(call.format, count(1))) for name, call in calls.items()},
            **{name: pages(psql, map(call.format, number)) for name, call in ends.items()},
            **fewest_pages(psql, LOOKS),
        }

    grow(50)
    few = touched()
    grow(400)
    many = touched()
    # Ten groups are looked for with some five searches each, a hundred dialogs have their turn, and a hundred messages of each queue.
    most = {**dict.fromkeys(few, 100), "receive_groups": 300, "deliver_local": 2_000, "sweep": 1_000}
    assert {name: many[name] - few[name] < most[name] for name in most} == dict.fromkeys(most, True), (
        few,
        many,
    )


@pytest.mark.dear
def test_a_look_at_what_moved_touches_as_few_pages_when_thousands_have_moved_as_when_hundreds_have(
    shop: Shop, clock: Callable[[str], None]
) -> None:
    psql = shop.psql
    look = LOOKS["settle_moved"]

    def most_pages(call: str) -> int:
        """Return the pages of the longest turn, once the plans are made."""
        return max([pages_of_one(psql, call) for _ in range(6)][2:])

    home = "(select conversation_group_id from broker.conversation_endpoints where conversation_handle = %s)"
    first, guest = psql.dialog(), psql.dialog()

    def move(conversations: int) -> None:
        psql.rows(
            f"select broker.move_conversation(broker.begin_dialog('//shop', '//warehouse', 'ordering'), {home})"
            " from generate_series(1, %s)",
            first,
            conversations,
        )

    def visit(groups: int) -> None:
        """Move one conversation through so many groups of others."""
        psql.rows(
            "with homes as materialized (select broker.begin_dialog('//shop', '//warehouse', 'ordering') as handle"
            " from generate_series(1, %s))"
            " select broker.move_conversation(%s, e.conversation_group_id)"
            " from (select array_agg(handle) as handles from homes) h,"
            " lateral (select conversation_group_id from broker.conversation_endpoints"
            " where conversation_handle = any (h.handles)) e",
            groups,
            guest,
        )

    # What lies in the queue that a service has left is another one's.
    psql.rows("select broker.create_queue('annex')")
    psql.rows("select broker.create_service('//annex', 'warehouse', '{ordering}')")
    psql.rows("select broker.alter_service('//annex', 'annex')")
    sender = psql.dialog()
    fill_one = "select broker.send_batch(%s, 'order', array_fill('\\x01'::bytea, array[%s]))"
    annexed = "select broker.begin_dialog('//annex', '//warehouse', 'ordering') from generate_series(1, %s)"
    move(1_000)
    psql.rows(annexed, 10)
    psql.rows(fill_one, sender, 1_000)
    few = most_pages(look)
    move(1_000)
    visit(1_500)
    psql.rows(annexed, 2_000)
    psql.rows(fill_one, sender, 9_000)
    many = most_pages(look)
    # Of the first look each turn is full too.
    assert many < 2 * few, (few, many)
    clock("31 min")

    def is_settled() -> bool:
        psql.rows(look)
        return psql.value("select not has_moved from broker_private.due()") is True

    until(is_settled)
    empty = "select count(*) from broker_private.groups g where not exists (select from broker_private.endpoints e where e.group_no = g.group_no)"
    assert psql.value(empty) == 0, "none is left of what moved"


def test_what_waits_of_one_conversation_is_shown_without_numbering_what_waits_of_each_other(
    shop: Shop,
) -> None:
    psql = shop.psql
    mine, other = psql.dialog(), psql.dialog()
    psql.send(mine, "order", b"mine")
    psql.rows("select broker.send_batch(%s, 'order', array_fill('\\x01'::bytea, array[%s]))", other, DEEP)
    psql.rows("analyze")
    handle = psql.handle_of(mine)
    group = psql.value(
        "select conversation_group_id from broker.conversation_endpoints where conversation_handle = %s",
        handle,
    )
    for condition in (f"conversation_handle = '{handle}'", f"conversation_group_id = '{group}'"):
        for view in ("broker.queue_messages", "public.warehouse"):
            shown = f"select * from {view} where {condition}"
            assert psql.rows(shown.replace("*", "message_body")) == [(b"mine",)]
            # Each number is four pages or more.
            assert pages_of_one(psql, shown) < 2 * DEEP, shown


def test_the_depths_of_a_flooded_queue_cost_as_much_more_as_it_has_more_messages(shop: Shop) -> None:
    psql = shop.psql
    dialog = psql.dialog()
    looked = []
    # As after a flood: no statistics tell of them.
    for messages in (1_000, 3_000):
        psql.rows(
            "select broker.send_batch(%s, 'order', array_fill('\\x01'::bytea, array[%s]))", dialog, messages
        )
        looked.append(pages_of_one(psql, VIEWS["queue_depths"]))
    assert psql.value("select ready from broker.queue_depths where queue_name = 'warehouse'") == 4_000
    assert looked[1] < 6 * looked[0], "four times as many messages, read once"


def test_who_looks_for_what_is_set_aside_looks_at_no_conversation_while_nothing_is(shop: Shop) -> None:
    psql = shop.psql
    # As after a flood: no statistics tell of them.
    psql.rows(
        "select count(broker.begin_dialog('//shop', '//warehouse', 'ordering')) from generate_series(1, 500)"
    )
    assert pages_of_one(psql, "select * from broker.quarantine") < 100
