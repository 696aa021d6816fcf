"""What a hop between two databases promises, call by call: no worker, so nothing is left to chance."""

from __future__ import annotations

import dataclasses
import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.hop import Batch, Hop
from tests.patience import PATIENCE
from tests.replay import DiffersError, plant, replay
from tests.shop import END_DIALOG, ERROR, Session, until, waits
from tests.specs import tlc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.conftest import Database

needs_tlc = pytest.mark.skipif(
    tlc.missing() is not None and "CI" not in os.environ, reason=str(tlc.missing())
)
BEHAVIOURS, SEED = 12, 19
# Function, what it says, and what a careless hand makes of it.
MISTAKES = {
    "an acknowledgement is not counted": (
        "take_plain",
        "select n.next_number from",
        "select n.next_number - sign(n.next_number)::bigint from",
    ),
    "what is in flight is not counted": (
        "take",
        "coalesce(take.in_flight_numbers[array_position(take.in_flight_endpoints, e.endpoint_no)], c.acknowledged)",
        "c.acknowledged",
    ),
    "the counter is left where it was": (
        "acknowledge",
        "numbers := numbers || number;",
        "numbers := numbers || number - cardinality(locations);",
    ),
    "the counter of a lone dialog is left where it was": (
        "acknowledge_one",
        "set next_number = acknowledge_one.next_number, epoch = acknowledge_one.next_number >> 7",
        "set next_number = number, epoch = number >> 7",
    ),
    "a lone duplicate is not dropped": (
        "deliver_one",
        " and n.epoch = number >> 7 and n.next_number = number;",
        ";",
    ),
    "the rows are not counted": (
        "acknowledge",
        "numbers := numbers || number;",
        "numbers := numbers || number + 1;",
    ),
    "a duplicate is not dropped": (
        "deliver_plain",
        "n.next_number = first_numbers[",
        "n.next_number >= first_numbers[",
    ),
}


class Numbering:
    """One new dialog, of which a behaviour sends, takes, delivers and acknowledges."""

    def __init__(self, hop: Hop, ending: psycopg.Connection[Any]) -> None:
        ending.rollback()
        self._hop, self._ending = hop, ending
        hop.near.rows("delete from broker_private.transmission_messages")
        self._dialog = hop.begin()
        self._endpoint, self._conversation = hop.near.rows(
            "select endpoint_no, conversation_id from broker_private.endpoints where conversation_handle = %s",
            self._dialog,
        )[0]
        self._sent, self._flight, self._net = 0, list[Batch](), dict[str, Batch]()

    def act(self, action: str, *arguments: str) -> None:
        match action:
            case "send":
                self._sent += 1
                self._hop.near.send(self._dialog, "order", str(self._sent).encode())
            case "error":
                self._ending.execute("select broker.end_conversation(%s, 1, 'no more')", (self._dialog,))
            case "commit":
                self._ending.commit()
            case "rollback":
                self._ending.rollback()
            case "lose":
                self._flight.clear()
            case "take":
                self._take(*arguments)
            case "arrive":
                self._hop.deliver(self._net[arguments[0]])
            case "settle":
                self._hop.acknowledge(self._flight.pop(0), int(arguments[0]))

    def _take(self, size: str, name: str) -> None:
        batch = self._hop.take(int(size), behind=self._flight[-1] if self._flight else None)
        first, length, _, _ = map(int, name.split(","))
        if batch is None or batch.numbers != list(range(first, first + length)):
            raise DiffersError(batch and batch.numbers)
        self._flight.append(batch)
        self._net[name] = batch

    def state(self) -> str:
        acknowledged, rows = self._hop.near.rows(
            "select n.next_number, (select count(*) from broker_private.transmission_messages)"
            " from broker_private.sequence_counters n where n.endpoint_no = %s and n.kind = 'A'",
            self._endpoint,
        )[0]
        expected = self._hop.far.value(
            "select coalesce(max(n.next_number), 0) from broker_private.sequence_counters n"
            " join broker_private.endpoints e using (endpoint_no) where e.conversation_id = %s and n.kind = 'I'",
            self._conversation,
        )
        return f"{acknowledged} {expected} {rows}"

    def finish(self, last: str) -> None:
        received = self._hop.far.rows(
            "select message_type_name, message_body from broker.receive('warehouse', 100)"
        )
        bodies = [body for kind, body in received if kind != ERROR]
        if bodies != [str(place + 1).encode() for place in range(len(bodies))]:
            raise DiffersError(last, bodies)


def replay_all(hop: Hop) -> None:
    behaviours = tlc.traces("numbering", number=BEHAVIOURS, depth=40, seed=SEED)
    with psycopg.connect(hop.near.connection.info.dsn) as ending:
        replay(behaviours, lambda: Numbering(hop, ending))


def test_a_batch_of_dialogs_that_the_far_side_opened_in_another_order_goes_to_the_right_ones(
    hop: Hop,
) -> None:
    first, second = hop.dialog, hop.begin()
    for dialog, body in ((second, b"second 0"), (first, b"first 0")):
        hop.near.send(dialog, "order", body)
        opening = hop.take()
        assert opening is not None
        expected, fault = hop.deliver(opening)
        assert (expected, fault) == (1, None)
        hop.acknowledge(opening, expected)
    for dialog, body in ((first, b"first 1"), (second, b"second 1"), (first, b"first 2")):
        hop.near.send(dialog, "order", body)
    both = hop.take()
    assert both is not None
    assert len(both.columns["conversation_ids"]) == 2
    # The second time each is known, by its number and by when it was sent.
    assert [hop.deliver(both) for _ in range(2)] == [(3, None), (3, None)]
    received = hop.far.rows("select conversation_handle, message_body from broker.receive('warehouse', 100)")
    while more := hop.far.rows(
        "select conversation_handle, message_body from broker.receive('warehouse', 100)"
    ):
        received += more
    by_dialog: dict[object, list[bytes]] = {}
    for handle, body in received:
        by_dialog.setdefault(handle, []).append(bytes(body))
    assert sorted(by_dialog.values()) == [
        [b"first 0", b"first 1", b"first 2"],
        [b"second 0", b"second 1"],
    ]


def test_a_type_of_one_dialog_s_contract_is_refused_on_another_dialog_of_the_batch(hop: Hop) -> None:
    asking = "select broker.create_contract('asking', sent_by_initiator => %s)"
    for site, types in ((hop.near, ["order", "question"]), (hop.far, ["question"])):
        site.rows("select broker.create_message_type('question')")
        site.rows(asking, types)
    hop.far.rows("select broker.alter_service('//warehouse', add_contracts => '{asking}')")
    dialogs = [hop.dialog, hop.begin("asking")]
    for kind in ("question", "order"):
        for dialog, right in zip(dialogs, ("order", kind), strict=True):
            hop.near.send(dialog, right, f"{kind} {dialogs.index(dialog)}".encode())
        both = hop.take()
        assert both is not None
        assert hop.deliver(both)[1] is None
        hop.near.rows(
            "select broker_private.acknowledge(%s, array_agg(e.endpoint_no order by e.endpoint_no), '{1,1}', %s)"
            " from broker_private.endpoints e",
            hop.far_broker,
            both.rows,
        )
    bodies = hop.far.bodies() + hop.far.bodies()
    assert sorted(bodies) == [b"order 0", b"question 0", b"question 1"]


@needs_tlc
def test_what_the_specification_does_the_functions_do(hop: Hop) -> None:
    behaviours = tlc.traces("numbering", number=BEHAVIOURS, depth=40, seed=SEED)
    assert {step.action for behaviour in behaviours for step in behaviour} >= {
        "error",
        "commit",
        "lose",
        "settle",
    }
    replay_all(hop)


@needs_tlc
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_function_that_does_something_else_is_found(hop: Hop, mistake: str) -> None:
    for site in (hop.near, hop.far):
        plant(site, *MISTAKES[mistake])
    with pytest.raises(DiffersError):
        replay_all(hop)


def half_an_hour_later(site: Session) -> None:
    site.rows(
        "create or replace function broker_private.clock() returns timestamptz language sql volatile"
        " begin atomic select pg_catalog.clock_timestamp() + interval '31 min'; end"
    )
    site.rows("select broker_private.sweep()")


@pytest.fixture
def hop(make_database: Callable[[str], Database]) -> Iterator[Hop]:
    hop = Hop(make_database)
    yield hop
    hop.close()


READ = (
    "select sum(coalesce(t.idx_tup_fetch, 0) + coalesce(t.seq_tup_read, 0))"
    " from pg_stat_xact_user_tables t where t.schemaname = 'broker_private'"
)


def test_a_batch_reads_of_its_own_dialogs_whatever_its_plans_were_made_for(hop: Hop) -> None:
    """A session keeps its plans: made while there were no dialogs, they would go through all that there are later."""
    for site in (hop.near, hop.far):
        site.connection.execute("vacuum analyze")

    def rows_read(site: Session, call: Callable[[], Any], *, is_undone: bool = False) -> tuple[int, Any]:
        with site.connection.transaction(force_rollback=is_undone):
            before = site.value(READ)
            result = call()
            return int(site.value(READ) - before), result

    def cross(dialogs: int) -> dict[str, int]:
        for _ in range(dialogs):
            hop.near.send(hop.begin(), "order", b"first")
        described, _ = rows_read(
            hop.near,
            lambda: hop.near.rows(
                "select broker_private.describe_dialogs(array_agg(distinct t.endpoint_no), '{}')"
                " from broker_private.transmission_messages t"
            ),
            is_undone=True,
        )
        taken, batch = rows_read(hop.near, lambda: hop.take(dialogs, paused=-1))
        delivered, _ = rows_read(hop.far, lambda: hop.deliver(batch))
        hop.near.rows("delete from broker_private.transmission_messages returning 1")
        return {"describe": described, "take": taken, "deliver": delivered}

    alone = cross(1)
    cross(100)
    among_others = cross(1)
    assert {step: read - alone[step] < 50 for step, read in among_others.items()} == dict.fromkeys(
        alone, True
    ), (alone, among_others)


def test_a_dialog_whose_answers_were_lost_is_not_opened_twice(hop: Hop) -> None:
    hop.near.send(hop.dialog, "order", b"first")
    hop.near.end(hop.dialog)
    first = hop.take(1)
    assert first is not None
    second = hop.take(1, behind=first)
    assert second is not None
    assert (first.numbers, second.numbers) == ([0], [1])
    hop.deliver(first)
    hop.deliver(second)
    (handle,) = {
        row[0] for row in hop.far.rows("select conversation_handle from broker.receive('warehouse', 10)")
    }
    hop.far.end(handle)
    # What the warehouse answered to the two batches never arrives.
    half_an_hour_later(hop.far)
    again = hop.take()
    if again is not None:
        hop.deliver(again)
    assert hop.far.bodies() == []


def test_a_target_whose_initiator_has_its_acknowledgement_leaves_no_side_behind(hop: Hop) -> None:
    for body in (b"first", b"second"):
        hop.near.send(hop.dialog, "order", body)
        batch = hop.take()
        assert batch is not None
        next_number, _ = hop.deliver(batch)
        hop.acknowledge(batch, next_number)
    assert hop.far.bodies() == [b"first", b"second"]
    # The initiator refuses the answers for ever, as a worker is told.
    endpoint, handle = hop.far.rows("select endpoint_no, conversation_handle from broker_private.endpoints")[
        0
    ]
    hop.far.rows(
        "select broker_private.fail_dialogs(array[%s::bigint], array[8489], array['gone'])", endpoint
    )
    hop.far.end(handle)
    half_an_hour_later(hop.far)
    assert hop.far.rows("select conversation_handle from broker.conversation_endpoints") == []


@pytest.mark.parametrize("paused", [0, -1], ids=["short way", "fully"])
def test_what_another_session_moves_within_the_database_is_not_sent_as_well(hop: Hop, paused: int) -> None:
    hop.near.send(hop.dialog, "order", b"once")
    hop.near.connection.execute(
        "select broker.create_queue('warehouse');"
        "select broker.create_service('//warehouse', 'warehouse', '{ordering}');"
        "select broker.drop_route('far')"
    )
    with psycopg.connect(hop.near.connection.info.dsn) as moving:
        moved = moving.execute("select broker_private.deliver_local()").fetchone()
        assert moved == (1,)
        batch = hop.take(paused=paused)
        if batch is not None:
            hop.deliver(batch)
        moving.commit()
    assert hop.near.bodies() + hop.far.bodies() == [b"once"]


def turn_queue(site: Session, *, on: bool) -> None:
    site.rows("select broker.alter_queue('warehouse', status => %s)", on)


def test_a_queue_that_is_off_takes_nothing_and_loses_nothing(hop: Hop) -> None:
    """Neither a first message, which leaves no conversation behind, nor a later one."""
    for bodies in ([b"first"], [b"first", b"second"]):
        hop.near.send(hop.dialog, "order", bodies[-1])
        batch = hop.take()
        assert batch is not None
        turn_queue(hop.far, on=False)
        _, fault = hop.deliver(batch)
        assert fault is not None
        assert hop.far.rows("select message_body from broker.queue_messages") == []
        conversations = hop.far.value("select count(*) from broker.conversation_endpoints")
        assert conversations == len(bodies) - 1
        turn_queue(hop.far, on=True)
        next_number, fault = hop.deliver(batch)
        assert fault is None
        hop.acknowledge(batch, next_number)
        assert hop.far.bodies() == bodies[-1:]


def test_a_first_message_that_is_refused_leaves_no_conversation(hop: Hop) -> None:
    hop.near.send(hop.dialog, "order", b"first")
    batch = hop.take()
    assert batch is not None
    _, fault = hop.deliver(dataclasses.replace(batch, columns={**batch.columns, "type_names": ["no type"]}))
    assert fault is not None
    assert hop.far.rows("select conversation_handle from broker.conversation_endpoints") == []
    assert hop.deliver(batch) == (1, None)
    assert hop.far.bodies() == [b"first"]


def test_after_an_end_with_error_what_has_not_left_does_not_leave(hop: Hop) -> None:
    for body in (b"1", b"2", b"3"):
        hop.near.send(hop.dialog, "order", body)
    hop.near.rows("select broker.end_conversation(%s, 5, 'changed our mind')", hop.dialog)
    batch = hop.take()
    assert batch is not None
    assert batch.columns["kinds"] == "X"


def test_a_dialog_that_fails_twice_says_so_once(hop: Hop) -> None:
    """Its lifetime is over, say, while a worker is told that the far side refuses it."""
    endpoint = hop.near.value("select endpoint_no from broker_private.endpoints")
    for number in (8489, 9719):
        hop.near.rows(
            "select broker_private.fail_dialogs(array[%s::bigint], array[%s], array['gone'])",
            endpoint,
            number,
        )
    ((kind, _, body),) = hop.near.receive("shop")
    assert kind == ERROR
    assert b"<Code>-8489</Code>" in body


@pytest.mark.parametrize(
    "failing",
    [
        "select broker_private.fail_dialogs(array[%s::bigint], array[9719], array['gone'])",
        "select broker_private.fail_torn_dialogs(array[%s::bigint], array[7::bigint])",
    ],
    ids=["refused", "ahead"],
)
def test_who_is_told_of_the_end_of_a_dialog_is_not_told_of_an_error_as_well(hop: Hop, failing: str) -> None:
    """Who ends the conversation for the first of the two could not do so for the second, in one transaction."""
    hop.near.send(hop.dialog, "order", b"first")
    hop.near.end(hop.dialog)
    batch = hop.take()
    assert batch is not None
    hop.deliver(batch)
    endpoint = hop.far.value("select endpoint_no from broker_private.endpoints")
    hop.far.rows(failing, endpoint)
    assert [kind for kind, _, _ in hop.far.receive("warehouse", top=10)] == ["order", END_DIALOG]


def test_a_side_that_has_ended_and_turns_out_to_remember_less_is_closed(hop: Hop) -> None:
    """Its end is dropped with all that it had to send, and nobody ever acknowledges it: it waits for ever."""
    for body in (b"first", b"second"):
        hop.near.send(hop.dialog, "order", body)
    batch = hop.take(size=1)
    assert batch is not None
    hop.acknowledge(batch, hop.deliver(batch)[0])
    ((_, handle),) = hop.far.rows("select message_body, conversation_handle from broker.receive('warehouse')")
    hop.far.end(handle)
    batch = hop.take()
    assert batch is not None
    # Its database was put back: the sender has had more acknowledged than it remembers.
    _, fault = hop.deliver(dataclasses.replace(batch, acknowledged=[7]))
    assert fault == -9720
    assert hop.far.state(handle) == "CD"
    assert hop.far.rows("select from broker.transmission_queue") == []


def test_what_comes_far_too_early_is_not_kept(hop: Hop) -> None:
    """A sender that is wrong, or wicked, would fill the table with what never gets its turn."""
    hop.near.send(hop.dialog, "order", b"first")
    batch = hop.take()
    assert batch is not None
    for number, kept in ((1000, 0), (999, 1)):
        hop.deliver(dataclasses.replace(batch, columns={**batch.columns, "sequence_numbers": [number]}))
        assert hop.far.value("select count(*) from broker_private.early_messages") == kept


def test_an_acknowledgement_takes_away_no_more_than_its_numbers_say(hop: Hop) -> None:
    """An END WITH ERROR, or a worker that was late, has removed rows: the number does not fit what is left."""
    for body in (b"1", b"2", b"3"):
        hop.near.send(hop.dialog, "order", body)
    batch = hop.take()
    assert batch is not None
    assert hop.deliver(batch) == (3, None)
    acknowledge = (
        "select broker_private.acknowledge(%s, array[%s::bigint], array[%s::bigint], array[%s::bigint])"
    )
    assert hop.near.value(acknowledge, hop.far_broker, batch.endpoint, 1, batch.rows[-1]) == 0
    # Nothing was forgotten: all of it is there to be sent again, with the same numbers.
    again = hop.take()
    assert again is not None
    assert (again.numbers, again.rows) == (batch.numbers, batch.rows)


def test_an_acknowledgement_waits_for_the_one_before_it_and_goes_on_from_there(hop: Hop) -> None:
    """Else it would count from a number that is over, fit nothing, and have all of it sent a second time."""
    for body in (b"1", b"2", b"3"):
        hop.near.send(hop.dialog, "order", body)
    batch = hop.take()
    assert batch is not None
    hop.deliver(batch)
    acknowledge = (
        "select broker_private.acknowledge(%s, array[%s::bigint], array[%s::bigint], array[%s::bigint])"
    )
    second = Session(psycopg.connect(hop.near.connection.info.dsn, autocommit=True))
    watching = Session(psycopg.connect(hop.near.connection.info.dsn, autocommit=True))
    with ThreadPoolExecutor(1) as threads, hop.near.connection.transaction():
        assert hop.near.value(acknowledge, hop.far_broker, batch.endpoint, 1, batch.rows[0]) == 1
        rest = threads.submit(second.value, acknowledge, hop.far_broker, batch.endpoint, 3, batch.rows[-1])
        until(lambda: rest.done() or waits(watching, second, "Lock"))
    assert rest.result(200) == 2
    assert hop.near.value("select count(*) from broker_private.transmission_messages") == 0
    second.connection.close()
    watching.connection.close()


def test_a_delivery_wakes_who_sleeps(hop: Hop) -> None:
    """Else what comes from another server waits until somebody looks by himself."""
    sleep = "select broker.sleep_on('warehouse')"
    reader = Session(psycopg.connect(hop.far.connection.info.dsn, autocommit=True))
    assert reader.value(sleep) is False
    for number, body in enumerate((b"first", b"second")):
        hop.near.send(hop.dialog, "order", body)
        assert reader.value(sleep) is True
        batch = hop.take()
        assert batch is not None
        assert hop.deliver(batch) == (number + 1, None)
        hop.acknowledge(batch, number + 1)
        assert list(reader.connection.notifies(timeout=PATIENCE, stop_after=1))
        reader.rows("select broker.wake_up('warehouse')")
        assert reader.bodies() == [body]
    reader.connection.close()


def test_two_deliveries_of_the_same_batch_store_it_once(hop: Hop) -> None:
    hop.near.send(hop.dialog, "order", b"first")
    opening = hop.take()
    assert opening is not None
    hop.deliver(opening)
    hop.acknowledge(opening, 1)
    hop.near.send(hop.dialog, "order", b"once")
    batch = hop.take()
    assert batch is not None
    other = Hop.__new__(Hop)
    other.__dict__.update(hop.__dict__)
    other.far = Session(psycopg.connect(hop.far.connection.info.dsn, autocommit=True))
    with ThreadPoolExecutor(1) as threads, hop.far.connection.transaction():
        hop.deliver(batch)
        second = threads.submit(other.deliver, batch)
        pid = other.far.connection.info.backend_pid
        until(lambda: is_blocked(hop, pid) or second.done())
    with_both = second.result()
    other.far.connection.close()
    assert with_both == (2, None)
    assert hop.far.bodies() == [b"first", b"once"]


def is_blocked(hop: Hop, pid: int) -> bool:
    return bool(hop.far.value("select cardinality(pg_blocking_pids(%s)) > 0", pid))
