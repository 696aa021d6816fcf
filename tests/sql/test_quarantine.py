"""Quarantine of the one conversation that fails, instead of its whole queue."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import TYPE_CHECKING, Any

import pytest

import pybroker
from pybroker.commands import application as main
from tests.shop import END_DIALOG, Session, Shop, until

if TYPE_CHECKING:
    from uuid import UUID


@pytest.fixture
def shop(shop: Shop) -> Shop:
    """A shop whose warehouse quarantines."""
    shop.psql.rows("select broker.alter_queue('warehouse', poison_action => 'QUARANTINE')")
    return shop


def orders(shop: Shop, *bodies: bytes, group: UUID | None = None) -> UUID:
    """Send these on a new dialog, and return the warehouse's handle."""
    psql = shop.psql
    dialog = psql.dialog()
    for body in bodies:
        psql.send(dialog, "order", body)
    return psql.handle_of(dialog)


def work(reader: Session, culprit: bytes = b"poison", **options: object) -> list[bytes | None]:
    """Receive, fail on the culprit, and return what was done."""
    done = reader.bodies(**options)
    if culprit in done:
        reader.connection.rollback()
        return []
    reader.connection.commit()
    return done


def work_until_empty(reader: Session, **options: object) -> list[bytes | None]:
    """Work as a service program that goes on after each failure; return what was done."""
    done: list[bytes | None] = []
    for _ in range(100):
        done += work(reader, **options)
        if reader.value("select count(*) from warehouse") == 0:
            reader.connection.commit()
            return done
        reader.connection.commit()
    raise AssertionError(f"it never comes to an end; done: {done}")


def quarantined(session: Session) -> list[tuple[Any, ...]]:
    return session.rows(
        "select conversation_handle, queue_name, service_name, message_type_name, message_body, failures, last_error"
        " from broker.quarantine order by quarantined_at"
    )


def is_on(shop: Shop) -> bool:
    query = (
        "select is_receive_enabled and is_enqueue_enabled from broker.service_queues where name = 'warehouse'"
    )
    return bool(shop.psql.value(query))


def test_five_rollbacks_quarantine_the_conversation_and_the_queue_stays_on(shop: Shop) -> None:
    bad = orders(shop, b"poison", b"behind 1", b"behind 2")
    (reader,) = shop.sessions(1)
    for _ in range(5):
        assert quarantined(shop.psql) == []
        assert reader.bodies()[0] == b"poison"
        reader.connection.rollback()
    orders(shop, b"good")
    assert work(reader) == [b"good"]
    assert work(reader) == []
    assert is_on(shop)
    assert quarantined(shop.psql) == [(bad, "warehouse", "//warehouse", "order", b"poison", 5, None)]
    assert shop.psql.rows("select from warehouse") == []


def test_the_message_that_fails_is_found_among_those_of_its_group(shop: Shop) -> None:
    psql = shop.psql
    # A group of the target's own has several conversations when it moved them there; the shop's has by itself.
    first = psql.dialog()
    second = psql.dialog(related_conversation=first)
    psql.rows("select broker.alter_queue('shop', poison_action => 'QUARANTINE')")
    for dialog in (first, second):
        psql.send(dialog)
    for dialog, bodies in ((first, (b"1", b"2")), (second, (b"3", b"poison", b"4"))):
        for body in bodies:
            psql.send(psql.handle_of(dialog), "ack", body)
    (reader,) = shop.sessions(1)
    done: list[bytes | None] = []
    until(lambda: done.extend(work(reader, queue="shop")) or quarantined(psql))
    assert (done, quarantined(psql)[0][0], quarantined(psql)[0][4]) == ([b"1", b"2", b"3"], second, b"poison")
    # The other conversation of the group goes on.
    psql.send(psql.handle_of(first), "ack", b"5")
    assert work(reader, queue="shop") == [b"5"]


def test_what_arrives_later_waits_behind_the_message_that_failed(shop: Shop) -> None:
    psql = shop.psql
    dialog = psql.dialog()
    psql.send(dialog, "order", b"poison")
    bad = psql.handle_of(dialog)
    (reader,) = shop.sessions(1)
    work_until_empty(reader)
    psql.send(dialog, "order", b"later")
    psql.end(dialog)
    for options in ({}, {"conversation_handle": bad}, {"top": 1}):
        assert work(reader, **options) == []
    assert psql.value("select broker.get_conversation_group('warehouse')") is None
    assert psql.value("select messages_waiting from broker.quarantine") == 3
    assert psql.value("select broker.redrive(%s)", bad) == 3
    assert quarantined(psql) == []
    assert psql.receive() == [("order", 0, b"poison"), ("order", 1, b"later"), (END_DIALOG, 2, None)]


def test_redrive_counts_anew_and_discard_goes_on_with_the_rest(shop: Shop) -> None:
    psql = shop.psql
    bad = orders(shop, b"before", b"poison", b"after")
    (reader,) = shop.sessions(1)
    assert work_until_empty(reader) == [b"before"]
    psql.rows("select broker.redrive(%s)", bad)
    for _ in range(4):
        work(reader)
    assert quarantined(psql) == []
    assert work_until_empty(reader) == []
    assert [row[4:6] for row in quarantined(psql)] == [(b"poison", 5)]
    assert psql.value("select broker.discard(%s)", bad) == 1
    # The number of the discarded message is not used again.
    assert psql.receive() == [("order", 2, b"after")]
    for verb in ("redrive", "discard"):
        assert psql.refused(f"select broker.{verb}(%s)", bad) == "S8427"
        assert psql.refused(f"select broker.{verb}(%s)", "00000000-0000-0000-0000-000000000000") == "S8426"


def test_redrive_of_a_conversation_that_nobody_committed_to_quarantine(shop: Shop) -> None:
    bad = orders(shop, b"poison")
    (reader,) = shop.sessions(1)
    for _ in range(5):
        work(reader)
    for _ in range(3):
        assert reader.bodies() == []
        reader.connection.rollback()
    assert shop.psql.value("select broker.redrive(%s)", bad) == 1
    assert shop.psql.bodies() == [b"poison"]


def test_a_worker_quarantines_what_failed_and_sets_aside_what_comes(shop: Shop) -> None:
    psql = shop.psql
    dialog = psql.dialog()
    psql.send(dialog, "order", b"poison")
    (reader,) = shop.sessions(1)
    for _ in range(5):
        work(reader)
    settle = "select queue_name, conversation_handle from broker_private.settle_poison()"
    assert psql.rows(settle) == [("warehouse", psql.handle_of(dialog))]
    psql.send(dialog, "order", b"later")
    assert psql.rows(settle) == []
    assert psql.rows("select from warehouse") == []
    assert psql.value("select messages_waiting from broker.quarantine") == 2


def test_a_commit_begins_anew(shop: Shop) -> None:
    orders(shop, b"flaky")
    (reader,) = shop.sessions(1)
    for _ in range(4):
        work(reader, b"flaky")
    assert work(reader) == [b"flaky"]
    shop.psql.send(shop.psql.dialog(), "order", b"other")
    for _ in range(4):
        work(reader, b"other")
    assert work(reader) == [b"other"]
    assert quarantined(shop.psql) == []


def test_a_transaction_that_goes_on_has_got_past_what_it_received_before(shop: Shop) -> None:
    innocent = [orders(shop, b"good %d" % number) for number in range(3)]
    bad = orders(shop, b"poison")
    (reader,) = shop.sessions(1)
    for _ in range(20):
        # One transaction for all that there is, as the whitepaper's batches.
        while (bodies := reader.bodies(top=1)) and b"poison" not in bodies:
            pass
        if bodies:
            reader.connection.rollback()
        else:
            reader.connection.commit()
    assert [row[0] for row in quarantined(shop.psql)] == [bad]
    assert bad not in innocent
    assert shop.psql.rows("select from warehouse") == []


@pytest.mark.parametrize("receive", ["receive", "receive_groups"])
def test_a_program_that_receives_everything_first_finds_the_culprit_too(shop: Shop, receive: str) -> None:
    bad = orders(shop, b"poison")
    for number in range(4):
        orders(shop, b"good %d" % number)
    (reader,) = shop.sessions(1)
    batches = {
        "receive": "select message_body from broker.receive('warehouse')",
        "receive_groups": "select message_body from broker.receive_groups('warehouse', 3)",
    }
    done = []
    for _ in range(20):
        bodies: list[bytes] = []
        while batch := reader.rows(batches[receive]):
            bodies += [body for (body,) in batch]
        if b"poison" in bodies:
            reader.connection.rollback()
        else:
            reader.connection.commit()
            done += bodies
    assert done == [b"good %d" % number for number in range(4)]
    assert [row[0] for row in quarantined(shop.psql)] == [bad]


def test_what_an_activated_procedure_raised_is_shown(shop: Shop) -> None:
    psql = shop.psql
    orders(shop, b"poison")
    (reader,) = shop.sessions(1)
    work_until_empty(reader)
    # What a worker does after an activated procedure has failed, and each second.
    psql.rows(
        "select broker_private.log_activation(object_id, name, 'p', %s, '{9724,28088}', '{ERROR,ERROR}',"
        " '{no such item,The activated task was ended}', '{P0001,P0001}', '{NULL,NULL}') from broker.service_queues where name = 'warehouse'",
        reader.connection.info.backend_pid,
    )
    psql.rows("select from broker_private.settle_poison()")
    assert [row[5:] for row in quarantined(psql)] == [(5, "no such item")]


def test_many_readers_find_each_culprit_while_good_conversations_go_on(shop: Shop) -> None:
    bad = {orders(shop, b"fine", b"poison", b"behind") for _ in range(3)}
    for number in range(20):
        orders(shop, b"good %d" % number)
    done: list[bytes | None] = []

    def read(reader: Session) -> None:
        for _ in range(30):
            done.extend(work(reader, top=1))

    readers = [threading.Thread(target=read, args=(reader,)) for reader in shop.sessions(4)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    (last,) = shop.sessions(1)
    done += work_until_empty(last)
    assert sorted(body for body in done if body) == sorted(
        [b"good %d" % n for n in range(20)] + [b"fine"] * 3
    )
    assert {row[0] for row in quarantined(shop.psql)} == bad
    assert all(row[4:6] == (b"poison", 5) for row in quarantined(shop.psql))
    assert is_on(shop)


def test_a_program_notes_its_failures_with_their_text(shop: Shop) -> None:
    psql = shop.psql
    bad = orders(shop, b"poison", b"behind")
    (reader,) = shop.sessions(1)
    for attempt in range(1, 6):
        work(reader)
        note = "select broker.note_failure(%s, %s)"
        assert psql.value(note, bad, f"attempt {attempt}") is (attempt == 5)
    assert [row[4:] for row in quarantined(psql)] == [(b"poison", 5, "attempt 5")]
    assert psql.value("select broker.note_failure(%s, 'again')", bad) is True
    assert psql.rows("select from warehouse") == []
    assert psql.refused("select broker.note_failure(%s, null)", bad) == "S0153"
    psql.end(bad)
    assert quarantined(psql) == []
    assert psql.value("select count(*) from broker_private.quarantined_messages") == 0
    assert psql.refused("select broker.redrive(%s)", bad) in {"S8426", "S8427"}


def test_what_a_program_told_of_is_received_first_in_its_transaction_and_one_by_one(shop: Shop) -> None:
    orders(shop, b"good")
    bad = orders(shop, b"poison", b"behind")
    assert shop.psql.value("select broker.note_failure(%s, 'no')", bad) is False
    (reader,) = shop.sessions(1)
    assert reader.bodies() == [b"good"]
    # It would take the good one along.
    assert reader.bodies() == []
    reader.connection.commit()
    assert reader.bodies() == [b"poison"]


def test_more_conversations_fail_than_a_queue_has_marks_and_the_others_get_past_them(shop: Shop) -> None:
    bad = set()
    for number in range(6):
        bad.add(orders(shop, b"poison"))
        orders(shop, b"good %d" % number)
    (reader,) = shop.sessions(1)
    done: list[bytes] = []
    for _ in range(60):
        batch: list[tuple[UUID, bytes]] = []
        while rows := reader.rows(
            "select conversation_handle, message_body from broker.receive('warehouse')"
        ):
            batch += rows
        culprit = next((handle for handle, body in batch if body == b"poison"), None)
        if culprit is None:
            reader.connection.commit()
            done += [body for _, body in batch]
        else:
            reader.connection.rollback()
            shop.psql.value("select broker.note_failure(%s, 'no')", culprit)
    assert done == [b"good %d" % number for number in range(6)]
    assert {row[0] for row in quarantined(shop.psql)} == bad


def test_noted_failures_are_forgotten_by_a_commit_and_by_nothing_else(shop: Shop) -> None:
    psql = shop.psql
    handle = orders(shop, b"flaky", b"2", b"3")
    (reader,) = shop.sessions(1)
    for _ in range(4):
        assert psql.value("select broker.note_failure(%s, 'failed')", handle) is False
    assert reader.bodies() == [b"flaky"]
    reader.connection.rollback()
    assert reader.bodies() == [b"flaky"]
    reader.connection.commit()
    assert psql.value("select broker.note_failure(%s, 'failed')", handle) is False
    assert quarantined(psql) == []


def test_a_queue_that_turns_itself_off_notes_nothing(shop: Shop) -> None:
    psql = shop.psql
    psql.rows("select broker.alter_queue('warehouse', poison_action => 'DISABLE_QUEUE')")
    handle = orders(shop, b"1")
    for _ in range(6):
        assert psql.value("select broker.note_failure(%s, 'failed')", handle) is False
    assert psql.bodies() == [b"1"]


def test_what_is_quarantined_stays_so_when_the_queue_gets_the_other_action(shop: Shop) -> None:
    psql = shop.psql
    dialog = psql.dialog()
    psql.send(dialog, "order", b"poison")
    (reader,) = shop.sessions(1)
    work_until_empty(reader)
    psql.rows("select broker.alter_queue('warehouse', poison_action => 'DISABLE_QUEUE')")
    psql.send(dialog, "order", b"later")
    orders(shop, b"good")
    assert work(reader) == [b"good"]
    for _ in range(5):
        psql.send(psql.dialog(), "order", b"poison")
        work(reader)
    assert not is_on(shop)
    assert len(quarantined(psql)) == 1


def test_only_who_may_receive_sees_and_frees_a_quarantined_conversation(shop: Shop) -> None:
    bad = orders(shop, b"poison")
    (reader,) = shop.sessions(1)
    work_until_empty(reader)
    name = shop.database.role()
    stranger = shop.session(user=name)
    assert quarantined(stranger) == []
    for query in ("broker.redrive(%s)", "broker.discard(%s)", "broker.note_failure(%s, 'x')"):
        assert stranger.refused(f"select {query}", bad) == "S0229"
    shop.psql.rows("select broker.grant('RECEIVE', 'QUEUE', 'warehouse', %s)", name)
    assert [row[0] for row in quarantined(stranger)] == [bad]
    assert stranger.value("select broker.redrive(%s)", bad) == 1


def test_the_python_client_notes_redrives_and_discards(shop: Shop) -> None:
    bad = orders(shop, b"poison", b"behind")
    with pybroker.connect(shop.database.url) as broker:
        conversation = broker.conversation(bad)
        assert [conversation.note_failure("no such item") for _ in range(5)] == [False] * 4 + [True]
        assert conversation.redrive() == 2
        with pytest.raises(pybroker.ConversationStateError):
            conversation.redrive()

    async def discard() -> int:
        async with await pybroker.connect_async(shop.database.url) as broker:
            conversation = broker.conversation(bad)
            for _ in range(5):
                await conversation.note_failure("no such item")
            with pytest.raises(pybroker.ConversationNotFound):
                await broker.conversation("00000000-0000-0000-0000-000000000000").redrive()
            return await conversation.discard()

    assert asyncio.run(discard()) == 1
    assert shop.psql.bodies() == [b"behind"]


def test_the_commands_redrive_and_discard(shop: Shop, capfd: pytest.CaptureFixture[str]) -> None:
    bad = orders(shop, b"poison", b"behind", b"last")

    def run(*arguments: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as left:
            main([*arguments, "--database-url", shop.database.url])
        out, error = capfd.readouterr()
        assert isinstance(left.value.code, int)
        return left.value.code, out or error

    def quarantine() -> None:
        for _ in range(5):
            shop.psql.rows("select broker.note_failure(%s, 'no such item')", bad)

    quarantine()
    code, out = run("redrive", str(bad))
    assert (code, "3 messages" in out) == (0, True)
    code, out = run("redrive", str(bad))
    assert (code, "broker.quarantine lists" in out) == (1, True)
    quarantine()
    code, out = run("discard", str(bad), "--json")
    assert (code, json.loads(out)) == (0, {"conversation_handle": str(bad), "messages_ready": 2})
    assert run("discard", "no-handle")[0] == 2


def test_the_commands_take_what_filters_choose(shop: Shop, capfd: pytest.CaptureFixture[str]) -> None:
    shop.psql.rows("select broker.alter_queue('warehouse', poison_action => 'QUARANTINE')")

    def run(*arguments: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as left:
            main([*arguments, "--database-url", shop.database.url])
        assert isinstance(left.value.code, int)
        return left.value.code, capfd.readouterr().out

    dialogs = [shop.psql.dialog() for _ in range(3)]
    handles = []
    for dialog, reason in zip(dialogs, ("timeout at 10:00", "timeout at 11:00", "no such item"), strict=True):
        shop.psql.send(dialog, "order", reason.encode())
        handles.append(shop.psql.handle_of(dialog))
        for _ in range(5):
            shop.psql.rows("select broker.note_failure(%s, %s)", handles[-1], reason)
    assert len(quarantined(shop.psql)) == 3
    code, out = run("quarantine", "list", "--error", "timeout")
    assert [line.split("\t")[0] for line in out.splitlines()] == [str(handle) for handle in handles[:2]]
    code, out = run("quarantine", "list", "--queue", "warehouse", "--json")
    told = [(one["message_type_name"], one["last_error"]) for one in map(json.loads, out.splitlines())]
    assert told[2] == ("order", "no such item")
    code, out = run("redrive", "--queue", "warehouse", "--error", "timeout", "--dry-run")
    assert (code, out.count("Would redrive"), len(quarantined(shop.psql))) == (0, 2, 3)
    code, out = run("redrive", "--error", "timeout", "--message-type", "order", "--rate", "50")
    assert (code, "2 chosen, 0 failed" in out) == (0, True)
    assert sorted(shop.psql.bodies() + shop.psql.bodies()) == [b"timeout at 10:00", b"timeout at 11:00"]
    assert run("discard", "--queue", "shop") == (0, "0 chosen, 0 failed.\n")
    code, out = run("discard", "--error", "no such item", "--json")
    assert (code, json.loads(out)["conversation_handle"]) == (0, str(handles[2]))
    assert quarantined(shop.psql) == []
    assert run("redrive")[0] == run("redrive", str(handles[0]), "--queue", "warehouse")[0] == 2


def test_a_body_that_many_dialogs_share_is_kept(shop: Shop) -> None:
    psql = shop.psql
    dialogs = [psql.dialog() for _ in range(3)]
    body = b"poison" * 10_000
    psql.rows("select broker.send_all(%s, 'order', %s::bytea)", dialogs, body)
    bad = psql.handle_of(dialogs[0])
    for _ in range(5):
        psql.rows("select broker.note_failure(%s, 'too large')", bad)
    for dialog in dialogs[1:]:
        assert psql.bodies(conversation_handle=psql.handle_of(dialog)) == [body]
    psql.rows("select broker_private.sweep()")
    assert [row[4] for row in quarantined(psql)] == [body]
    psql.rows("select broker.redrive(%s)", bad)
    assert psql.bodies() == [body]


def test_nothing_is_redriven_or_noted_without_a_conversation(shop: Shop) -> None:
    for query in ("broker.redrive(null)", "broker.discard(null)", "broker.note_failure(null, 'x')"):
        assert shop.psql.refused(f"select {query}") == "S8426"


def failed(psql: Session, handle: UUID, *pauses: str) -> bool:
    return bool(psql.value("select broker.note_failure(%s, 'broken', %s::interval[])", handle, list(pauses)))


def test_a_failure_with_pauses_sets_aside_at_once_and_is_back_when_it_is_due(shop: Shop) -> None:
    psql = shop.psql
    bad = orders(shop, b"1", b"2")
    assert failed(psql, bad, "1 hour", "0 s")
    assert failed(psql, bad, "0 s"), "who is set aside already stays so"
    assert psql.value("select broker.redrive_due('warehouse')") == 0
    assert psql.receive("warehouse") == []
    psql.rows(
        "create or replace function broker_private.clock() returns timestamptz language sql volatile"
        " begin atomic select pg_catalog.clock_timestamp() + interval '1 hour'; end"
    )
    (holder,) = shop.sessions(1)
    psql.rows("select broker.alter_queue('shop', poison_action => 'QUARANTINE')")
    assert psql.value("select broker.redrive_due('shop')") == 0, "that of another queue stays"
    assert psql.value("select broker.redrive_due('warehouse')") == 1
    # It counts on from there.
    assert failed(psql, bad, "1 hour", "0 s")
    assert psql.rows("select failures, retries, messages_waiting from broker.quarantine") == [(2, 2, 2)]
    # A worker does the same, and leaves what somebody holds.
    handle = psql.value("select conversation_handle from broker.quarantine")
    holder.rows("select broker.move_conversation(%s, conversation_group_id) from broker.quarantine", handle)
    psql.rows("select broker_private.settle_poison()")
    assert psql.rows("select failures from broker.quarantine") == [(2,)]
    holder.connection.commit()
    psql.rows("select broker_private.settle_poison()")
    assert psql.bodies("warehouse") == [b"1"], "one by one, as long as it may fail again"
    assert psql.bodies("warehouse") == [b"2"]


def test_a_conversation_that_waits_for_its_retry_can_be_ended_moved_redriven_and_discarded(
    shop: Shop,
) -> None:
    psql = shop.psql
    ended, moved, redriven, discarded = (orders(shop, body) for body in (b"1", b"2", b"3", b"4"))
    for handle in (ended, moved, redriven, discarded):
        assert failed(psql, handle, "0 s")
    psql.end(ended)
    group = psql.value(
        "select conversation_group_id from broker.conversation_endpoints where conversation_handle = %s",
        redriven,
    )
    psql.rows("select broker.move_conversation(%s, %s)", moved, group)
    assert psql.value("select broker.redrive(%s)", redriven) == 1
    assert psql.value("select broker.discard(%s)", discarded) == 0
    assert psql.value("select broker.redrive_due('warehouse')") == 1
    rows = psql.rows("select conversation_handle, conversation_group_id from broker.receive('warehouse')")
    rows += psql.rows("select conversation_handle, conversation_group_id from broker.receive('warehouse')")
    assert sorted(rows) == sorted([(moved, group), (redriven, group)])
    assert quarantined(psql) == []


def test_a_failure_that_another_snapshot_notes_loses_nothing_of_what_waits(shop: Shop) -> None:
    """A session in REPEATABLE READ does not see that the conversation is set aside already."""
    bad = orders(shop, b"1")
    (old,) = shop.sessions(1)
    old.rows("set transaction isolation level repeatable read")
    old.rows("select 1 from warehouse")
    assert failed(shop.psql, bad, "0 s")
    assert not old.value("select broker.note_failure(%s, 'broken')", bad)
    old.connection.commit()
    assert shop.psql.value("select broker.redrive_due('warehouse')") == 1
    assert quarantined(shop.psql) == []
    assert shop.psql.bodies() == [b"1"]


def test_who_holds_many_conversations_stops_no_retry_of_others(shop: Shop) -> None:
    held = [orders(shop, b"held") for _ in range(101)]
    other = orders(shop, b"free")
    (holder,) = shop.sessions(1)
    for handle in [*held, other]:
        assert failed(shop.psql, handle, "0 s")
    for handle in held:
        assert failed(holder, handle)
    shop.psql.rows("select broker_private.settle_poison()")
    assert shop.psql.bodies() == [b"free"]


def test_who_may_not_receive_waits_for_no_lock_to_be_told_so(shop: Shop) -> None:
    bad = orders(shop, b"1")
    (holder,) = shop.sessions(1)
    assert holder.bodies() == [b"1"]
    with shop.database.connect(user=shop.database.role()) as stranger:
        stranger.execute("set lock_timeout = '10 s'")
        assert Session(stranger).refused("select broker.note_failure(%s, 'broken')", bad) == "S0229"


@pytest.mark.parametrize(
    "pauses",
    [
        ["-1 s"],
        [None],
        ["2 years"],
        ["1 s"] * 101,
        # Months of 30 days, of which a year has more than twelve.
        ["200000 years -72000000 days"],
        ["-4000 years 1440000 days"],
        ["5000000 years -1800000000 days"],
    ],
)
def test_pauses_that_are_none_are_refused_and_nothing_is_set_aside(
    shop: Shop, pauses: list[str | None]
) -> None:
    bad = orders(shop, b"1")
    statement = "select broker.note_failure(%s, 'broken', %s::interval[])"
    assert shop.psql.refused(statement, bad, pauses) == "S0153"
    assert quarantined(shop.psql) == []


def test_a_list_of_pauses_that_begins_elsewhere_is_refused(shop: Shop) -> None:
    bad = orders(shop, b"1")
    list_of_one = "'[5:5]={1 s}'::interval[]"
    assert shop.psql.refused(f"select broker.note_failure(%s, 'broken', {list_of_one})", bad) == "S0153"


def test_only_who_may_receive_redrives_what_is_due_or_announces_a_program(shop: Shop) -> None:
    announce = "select broker.announce_program(gen_random_uuid(), %s, %s, %s, %s)"
    with shop.database.connect(user=shop.database.role()) as stranger:
        session = Session(stranger)
        assert session.refused("select broker.redrive_due('warehouse')") == "S0229"
        assert session.refused(announce, "warehouse", 1, "here", 1) == "S0229"
        assert session.rows("select from broker.service_programs") == []
    assert shop.psql.refused("select broker.redrive_due('nowhere')") == "S0208"
    for readers, host, process in ((-1, "h", 1), (1, "", 1), (1, "h" * 256, 1), (1, None, 1), (1, "h", None)):
        assert shop.psql.refused(announce, "warehouse", readers, host, process) == "S0153"
    # What an administrator's terminal would obey.
    for host in ("\x1b]0;pwned\x07", "a\nb", "a\x7f", "a\x9b2J"):
        assert shop.psql.refused(announce, "warehouse", 1, host, 1) == "S0153"
    assert shop.psql.rows("select from broker.service_programs") == []


def test_a_role_has_a_thousand_programs_of_a_queue_and_uses_up_none_of_the_others_places(shop: Shop) -> None:
    psql = shop.psql
    psql.rows("select broker.create_queue('popular')")
    announce = "select broker.announce_program(gen_random_uuid(), 'popular', 1, 'here', 1)"
    alice = shop.database.role()
    psql.rows("select broker.grant('RECEIVE', 'QUEUE', 'popular', %s)", alice)
    with shop.database.connect(user=alice) as connection:
        session = Session(connection)
        session.rows(f"{announce} from generate_series(1, 1000)")
        assert session.refused(announce) == "S0153"
    psql.rows(announce)
    assert psql.value("select count(*) from broker.service_programs") == 1001
    psql.rows("select broker.drop_queue('popular')")
    assert psql.rows("select from broker.service_programs") == []
