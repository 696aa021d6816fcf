"""What could go wrong between sessions, and who may do what: each test names what a user would lose."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.patience import PATIENCE
from tests.shop import Session, Shop, in_background, until, waits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import Database


@pytest.fixture
def shop(database: Database) -> Iterator[Shop]:
    """The shop on the newest PostgreSQL: what is tested here is not a matter of the version."""
    shop = Shop(database)
    shop.psql.rows("set lock_timeout = '5 s'")
    yield shop
    shop.close()


DELIVER_LOCAL = "select broker_private.deliver_local()"


def later(shop: Shop, offset: str) -> None:
    shop.psql.rows(
        "create or replace function broker_private.clock() returns timestamptz language sql volatile"
        f" begin atomic select pg_catalog.clock_timestamp() + interval '{offset}'; end"
    )


def switch(session: Session, *, status: bool) -> None:
    session.rows("select broker.alter_queue('warehouse', status => %s)", status)


def test_who_waited_while_a_conversation_was_cleaned_up_is_told_that_it_is_gone(shop: Shop) -> None:
    dialog = shop.psql.dialog()
    shop.psql.send(dialog, "order", b"0")
    first, second = shop.sessions(2)
    first.rows("select broker.end_conversation(%s, cleanup => true)", dialog)
    ended = in_background(lambda: second.refused("select broker.end_conversation(%s)", dialog))
    until(lambda: waits(shop.psql, second, "Lock"))
    first.connection.commit()
    assert ended.result(PATIENCE) == "S8426"
    second.connection.rollback()
    assert shop.psql.bodies() == [b"0"], "the far side was told of an end"


def test_an_old_snapshot_never_lets_a_message_overtake(shop: Shop) -> None:
    psql = shop.psql
    dialog = psql.dialog()
    switch(psql, status=False)
    psql.send(dialog, "order", b"0")
    slow, old = shop.sessions(2)
    slow.send(dialog, "order", b"1")
    switch(psql, status=True)
    old.connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    old.rows("select 1")
    slow.connection.commit()
    old.send(dialog, "order", b"2")
    old.connection.commit()
    psql.rows(DELIVER_LOCAL)
    assert psql.bodies() == [b"0", b"1", b"2"]


def test_a_group_that_is_about_to_get_a_dialog_is_not_swept(shop: Shop) -> None:
    psql = shop.psql
    group = psql.value("select gen_random_uuid()")
    first = psql.dialog(related_conversation_group=group)
    psql.send(first)
    psql.end(first)
    later(shop, "31 min")
    (holder,) = shop.sessions(1)
    second = holder.dialog(related_conversation_group=group)
    psql.rows("select broker_private.sweep()")
    holder.connection.commit()
    psql.send(second, "order", b"kept")
    assert psql.value("select broker_private.sweep()") == 1
    assert psql.rows(
        "select conversation_group_id from broker.conversation_groups where conversation_group_id = %s", group
    ) == [(group,)]


def test_what_waited_moves_without_a_worker_once_the_queue_is_on(shop: Shop) -> None:
    psql = shop.psql
    dialog, ended = psql.dialog(), psql.dialog()
    switch(psql, status=False)
    psql.send(ended, "order", b"ended")
    (slow,) = shop.sessions(1)
    slow.send(dialog, "order", b"0")
    switch(psql, status=True)
    slow.connection.commit()
    psql.end(ended)
    assert psql.state(ended) is None
    psql.send(dialog, "order", b"1")
    assert psql.rows("select from broker.transmission_queue") == []
    assert sorted(
        psql.value("select array_agg(message_body) from warehouse where message_body is not null")
    ) == [b"0", b"1", b"ended"]


def test_nobody_waits_for_an_end_with_error_that_is_not_committed(shop: Shop) -> None:
    psql = shop.psql
    dialogs = [psql.dialog() for _ in range(2)]
    switch(psql, status=False)
    for dialog in dialogs:
        psql.send(dialog)
    (ending,) = shop.sessions(1)
    ending.end(dialogs[1], 1, "dropped")
    switch(psql, status=True)
    psql.rows(DELIVER_LOCAL)
    numbers = "(select array_agg(endpoint_no) from broker_private.endpoints where is_initiator)"
    psql.rows(f"select broker_private.fail_dialogs({numbers}, '{{-8462,-8462}}', '{{gone,gone}}')")
    ending.connection.rollback()


def test_strangers_who_name_a_new_service_do_not_wait_for_each_other(shop: Shop) -> None:
    one, two = shop.sessions(2)
    begin = "select broker.begin_dialog('//shop', %s, 'ordering')"
    two.rows("set lock_timeout = '5 s'")
    one.rows(begin, "//new")
    two.rows(begin, "//newer")
    one.rows(begin, "//newer")
    two.rows(begin, "//new")


def test_a_message_that_arrives_after_all_is_swept_holds_nobody_up(shop: Shop) -> None:
    psql = shop.psql
    dialog = psql.dialog()
    psql.send(dialog)
    target = psql.handle_of(dialog)
    (late,) = shop.sessions(1)
    late.send(dialog, "order", b"late")
    psql.end(target)
    late.connection.commit()
    # As if its transaction had taken longer than the remains are kept.
    psql.rows("delete from broker_private.groups; delete from broker_private.endpoints")
    assert psql.value("select broker.get_conversation_group('warehouse')") is None
    psql.rows("select broker_private.sweep()")
    assert psql.value("select count(*) from broker_private.messages") == 0


def test_timers_of_a_queue_that_is_off_do_not_stop_the_others(shop: Shop) -> None:
    psql = shop.psql
    psql.rows(
        "select broker.begin_conversation_timer(broker.begin_dialog('//shop', '//warehouse', 'ordering'), '1 s')"
        " from generate_series(1, 1001)"
    )
    psql.rows("select broker.alter_queue('shop', status => false)")
    other = psql.value("select broker.begin_dialog('//warehouse', '//shop', 'ordering')")
    psql.rows("select broker.begin_conversation_timer(%s, '2 s')", other)
    later(shop, "1 min")
    assert psql.value("select broker_private.fire_timers()") == 1
    assert len(psql.receive()) == 1


def test_a_dialog_stays_with_the_broker_that_its_first_message_went_to(shop: Shop) -> None:
    psql = shop.psql
    psql.rows("select broker.create_route('far', 'tcp://127.0.0.1:9', service_name => '//later')")
    dialog = psql.value("select broker.begin_dialog('//shop', '//later', 'ordering')")
    psql.send(dialog, "order", b"0")
    destination = psql.value("select destination_no from broker_private.transmission_work()")
    assert psql.rows("select kinds from broker_private.take(%s, 0, 1, 10, 1000, '{}')", destination) == [
        ("M",)
    ]
    psql.rows("select broker.create_service('//later', 'warehouse', '{ordering}')")
    psql.rows("select broker.alter_route('far', address => 'LOCAL')")
    psql.rows(DELIVER_LOCAL)
    assert psql.bodies() == []
    assert psql.value("select count(*) from broker.transmission_queue") == 1


def test_no_route_leads_a_dialog_away_whose_other_side_is_here(shop: Shop) -> None:
    psql = shop.psql
    dialog = psql.dialog()
    psql.send(dialog, "order", b"0")
    switch(psql, status=False)
    psql.send(dialog, "order", b"1")
    psql.rows("select broker.create_route('elsewhere', 'tcp://127.0.0.1:9', service_name => '//warehouse')")
    assert psql.rows("select address from broker_private.transmission_work()") == [("LOCAL",)]
    switch(psql, status=True)
    assert psql.bodies() == [b"0", b"1"]


def test_two_acknowledgements_of_one_dialog_at_once_remove_no_more_than_the_counter_moves(shop: Shop) -> None:
    psql = shop.psql
    psql.rows("select broker.create_route('far', 'tcp://127.0.0.1:9', service_name => '//far')")
    dialog = psql.value("select broker.begin_dialog('//shop', '//far', 'ordering')")
    for body in (b"0", b"1", b"2"):
        psql.send(dialog, "order", body)
    destination = psql.value("select destination_no from broker_private.transmission_work()")
    take = "select endpoint_nos, row_ids, sequence_numbers from broker_private.take(%s, 0, 1, 10, 1000, '{}')"
    (((endpoint,), rows, _),) = psql.rows(take, destination)
    acknowledge = (
        "select broker_private.acknowledge(%s, array[%s::bigint], array[%s::bigint], array[%s::bigint])"
    )
    far = uuid.uuid4()
    one, other = shop.sessions(2)
    assert one.value(acknowledge, far, endpoint, 1, rows[0]) == 1
    waiting = in_background(lambda: other.value(acknowledge, far, endpoint, 2, rows[1]))
    until(lambda: waits(psql, other, "Lock"))
    one.connection.commit()
    waiting.result(PATIENCE)
    other.connection.commit()
    # Whatever is left has the numbers that it had.
    (((_,), left, numbers),) = psql.rows(take, destination)
    assert dict(zip(left, numbers, strict=True)).items() <= dict(zip(rows, (0, 1, 2), strict=True)).items()


def test_a_batch_that_comes_twice_is_stored_once_and_a_refused_first_message_leaves_nothing(
    shop: Shop,
) -> None:
    psql = shop.psql
    deliver = (
        "select next_numbers, fault_codes from broker_private.deliver(gen_random_uuid(), array[%s::uuid], '{true}',"
        " '{//far}', '{//warehouse}', array[null::uuid], '{ordering}', array[now() + interval '1 day'], '{true}', array[%s],"
        " '{1,1}', '{1,1}', array[%s, %s]::bigint[], 'MM', array['a', 'b']::bytea[], '{L}', '{null}', '{null}')"
    )
    dialog = psql.value("select gen_random_uuid()")
    assert psql.rows(deliver, dialog, "order", 0, 1) == [([2], [None])]
    assert psql.rows(deliver, dialog, "order", 0, 1) == [([2], [None])]
    assert psql.rows(deliver, dialog, "order", 1, 2) == [([3], [None])]
    assert psql.rows(deliver, dialog, "order", 5, 6) == [([3], [None])]
    assert psql.receive() == [("order", 0, b"a"), ("order", 1, b"b"), ("order", 2, b"b")]
    refused = psql.value("select gen_random_uuid()")
    before = psql.rows("select count(*) from broker.conversation_endpoints")
    for _ in range(2):
        assert psql.rows(deliver, refused, "nudge", 0, 1) == [([0], [-8430])]
    assert psql.rows(deliver, refused, "ack", 0, 1) == [([0], [-8437])]
    assert psql.rows(deliver, refused, "DEFAULT", 0, 1) == [([0], [-8498])]
    assert psql.rows("select count(*) from broker.conversation_endpoints") == before


def test_what_comes_in_disorder_or_with_one_dialog_named_twice_is_stored_once_and_in_order(
    shop: Shop,
) -> None:
    psql = shop.psql
    first, second = psql.value("select array[gen_random_uuid(), gen_random_uuid()]")

    def deliver(dialogs: list[object], lines: str) -> list[int | None]:
        """Deliver lines of dialog, type, number and kind; return what is expected next."""
        numbers: list[int | None] = psql.value(
            "select (select d.next_numbers from broker_private.deliver("
            " '00000000-0000-0000-0000-000000000001', h.ids, array_fill(true, h.n), array_fill('//far'::text, h.n),"
            " array_fill('//warehouse'::text, h.n), array_fill(null::uuid, h.n), array_fill('ordering'::text, h.n),"
            " array_fill(now() + interval '1 day', h.n), array_fill(true, h.n), '{order,invoice,nudge,ack}', l.dialogs, l.types,"
            " l.numbers, l.kinds, l.bodies, array_fill('L'::text, h.n), array_fill(null::text, h.n),"
            " array_fill(null::bytea, h.n)) d)"
            " from (select %s::uuid[] as ids, array[%s] as n) h,"
            " (select array_agg(f[1]::integer) as dialogs, array_agg(f[2]::integer) as types, array_agg(f[3]::bigint) as numbers,"
            "  string_agg(f[4], '') as kinds, array_agg(convert_to(case f[2] when '1' then f[3] when '2' then '<a/>' else '' end, 'UTF8')) as bodies"
            "  from (select regexp_split_to_array(line, '') as f from regexp_split_to_table(%s, ' ') line) x) l",
            dialogs,
            len(dialogs),
            lines,
        )
        return numbers

    assert deliver([first, second], "110M 210M 111M 211M 112M") == [3, 2]
    # 2 comes again, and 3 is twice in the batch.
    assert deliver([first, second], "112M 113M 113M 212M") == [4, 3]
    # What comes too early waits for what precedes it.
    assert deliver([first, second], "115M 114M 213M") == [6, 4]
    # One dialog as two.
    assert deliver([first, first], "116M 216M") == [7, 7]
    # A body that is looked at, and a type that only the target sends.
    assert deliver([first], "117M 138M") == [9]
    assert deliver([second], "114M 145M") == [5]
    # A type that is not named.
    assert deliver([second], "155M") == [5]
    received = sorted([number for _, number, _ in psql.receive()] for _ in range(2))
    assert received == [[*range(5)], [*range(9)]]


def test_a_refusal_is_not_the_end_of_the_transaction_for_who_catches_it(shop: Shop) -> None:
    psql = shop.psql
    psql.send(psql.dialog(), "order", b"0")
    (user,) = shop.sessions(1)
    user.rows("savepoint attempt")
    assert user.refused("select broker.receive('nothing')") == "S0208"
    user.rows("rollback to attempt")
    assert user.bodies() == [b"0"]
    psql.rows(
        "do $$ begin begin perform broker.receive('nothing'); exception when others then null; end;"
        " perform broker.begin_dialog('//shop', '//warehouse'); end $$"
    )


def test_whoever_lets_a_queue_run_a_procedure_is_a_member_of_the_role_that_runs_it(shop: Shop) -> None:
    psql = shop.psql
    owner, other = shop.database.role(), shop.database.role()
    psql.rows(f"grant create on database {shop.database.name} to {owner}")
    psql.rows(f"create schema app authorization {owner}; grant usage on schema app to {other}")
    user = shop.session(user=owner)
    user.rows("create procedure app.work() language plpgsql as 'begin end'")
    create = "select broker.create_queue('mine', activation_procedure => 'work', max_queue_readers => 1, schema => 'app', execute_as => %s)"
    assert user.refused(create, other) == "S0229"
    assert user.refused(create, "no such role") == "S0229"
    user.rows(create, "SELF")
    assert user.refused("select broker.alter_queue('mine', execute_as => %s)", other) == "S0229"
    psql.rows(f"grant {other} to {owner}")
    user.rows("select broker.alter_queue('mine', execute_as => %s)", other)
    psql.rows(f"revoke {other} from {owner}")
    user.rows("select broker.alter_queue('mine', max_queue_readers => 2)")
    assert user.refused("select broker.alter_queue('mine', activation_procedure => 'work')") == "S0229"
    runs = "select execute_as_principal_id, max_readers from broker.service_queues where name = 'mine'"
    assert user.rows(runs) == [(other, 2)]
    user.rows("drop procedure app.work()")
    user.rows("select broker.alter_queue('mine', status => false)")
    user.rows("select broker.alter_queue('mine', drop_activation => true)")
    assert user.rows(runs) == [(None, None)]


@pytest.mark.parametrize("execute_as", ["{other}", "OWNER"])
def test_whoever_inherits_a_role_and_may_not_set_it_lets_no_queue_run_as_it(
    shop: Shop, execute_as: str
) -> None:
    psql = shop.psql
    if shop.database.server.version < 16:
        pytest.skip("before 16 every member may SET ROLE")
    owner, other = shop.database.role(), shop.database.role()
    psql.rows(f"grant create on database {shop.database.name} to {owner}")
    psql.rows(f"grant {other} to {owner} with inherit true, set false")
    psql.rows(f"create schema app authorization {owner}; grant usage on schema app to {other}")
    psql.rows("create procedure app.work() language sql as ''")
    create = (
        "select broker.create_queue('mine', activation_procedure => 'work', max_queue_readers => 1, schema => 'app',"
        " execute_as => %s, owner => %s)"
    )
    user, runner = shop.session(user=owner), execute_as.format(other=other)
    assert user.refused(create, runner, other) == "S0229"
    user.rows(create, "SELF", other)
    assert user.refused("select broker.alter_queue('mine', execute_as => %s)", runner) == "S0229"
    psql.rows(f"grant {other} to {owner} with set true")
    user.rows("select broker.alter_queue('mine', execute_as => %s)", runner)


@pytest.mark.parametrize(
    "give",
    [
        "select broker.alter_authorization('QUEUE', 'mine', %s)",
        "select broker.alter_queue('mine', owner => %s)",
    ],
)
@pytest.mark.parametrize("right", ["inherits", "owns the database"])
def test_nobody_gives_a_queue_that_runs_as_its_owner_to_a_role_that_he_may_not_set(
    shop: Shop, right: str, give: str
) -> None:
    """Else whoever owns the database had a procedure of his own run as a superuser."""
    psql, clerk, other = shop.psql, shop.database.role(), shop.database.role()
    if right == "inherits":
        if shop.database.server.version < 16:
            pytest.skip("before 16 every member may SET ROLE")
        psql.rows(f"grant create on database {shop.database.name} to {clerk}")
        psql.rows(f"grant {other} to {clerk} with inherit true, set false")
    else:
        psql.rows(f"alter database {shop.database.name} owner to {clerk}")
    psql.rows(f"create schema app authorization {clerk}; create procedure app.work() language sql as ''")
    user = shop.session(user=clerk)
    user.rows(
        "select broker.create_queue('mine', activation_procedure => 'work', max_queue_readers => 1, schema => 'app',"
        " execute_as => 'OWNER')"
    )
    runs = "select principal_id, execute_as_principal_id from broker.service_queues where name = 'mine'"
    for runner in (other, "postgres") if right == "owns the database" else (other,):
        assert user.refused(give, runner) == "S0229"
    assert user.rows(runs) == [(clerk, None)]
    # As itself its procedure may run for whoever has the queue.
    user.rows("select broker.alter_queue('mine', execute_as => 'SELF')")
    user.rows(give, other)
    assert psql.rows(runs) == [(other, clerk)]
    psql.rows("select broker.alter_queue('mine', execute_as => 'OWNER', owner => %s)", clerk)
    psql.rows(give, "postgres")


def test_row_128_the_owner_of_the_initiating_service_needs_send_on_the_target(shop: Shop) -> None:
    psql = shop.psql
    clerk = shop.database.role()
    psql.rows(
        f"grant create on database {shop.database.name} to {clerk}; create schema app authorization {clerk}"
    )
    psql.rows("select broker.grant('REFERENCES', 'CONTRACT', 'ordering', %s::name)", clerk)
    user = shop.session(user=clerk)
    user.rows("select broker.create_queue('desk', schema => 'app'), broker.create_service('//desk', 'desk')")
    begin = "select broker.begin_dialog('//desk', '//warehouse', 'ordering')"
    user.send(user.value(begin))
    ((_, _, body),) = user.receive("desk")
    assert b"<Code>-8494</Code>" in (body or b"")
    psql.rows("select broker.grant('SEND', 'SERVICE', '//warehouse', %s::name)", clerk)
    user.send(user.value(begin), "order", b"granted")
    assert psql.bodies() == [b"granted"]
    psql.rows("select broker.alter_authorization('SERVICE', '//desk', %s)", shop.database.role())
    user.send(user.value(begin))
    ((_, _, body),) = user.receive("desk")
    assert b"<Code>-8494</Code>" in (body or b"")


def test_row_013_an_object_changes_hands_only_between_roles_that_one_belongs_to(shop: Shop) -> None:
    psql = shop.psql
    clerk, other = shop.database.role(), shop.database.role()
    user = shop.session(user=clerk)
    alter = "select broker.alter_authorization(%s, %s, %s::name)"
    assert user.refused(alter, "CONTRACT", "ordering", clerk) == "S0229"
    objects = [
        ("MESSAGE TYPE", "order"),
        ("CONTRACT", "ordering"),
        ("QUEUE", "shop"),
        ("SERVICE", "//shop"),
        ("ROUTE", "AutoCreatedLocal"),
    ]
    for kind, name in objects:
        psql.rows(alter, kind, name, clerk)
        assert user.refused(alter, kind, name, other) == "S0229"
    user.dialog()
    assert user.refused(alter, "CONTRACT", "DEFAULT", clerk) == "S9663"
    assert user.refused(alter, "TABLE", "shop", clerk) == "S0153"
    assert user.refused(alter, "QUEUE", "nothing", clerk) == "S0208"
    assert user.refused(alter, "QUEUE", "shop", None) == "S0153"


def test_a_cheap_function_of_ones_own_sees_nothing_that_a_view_hides(shop: Shop) -> None:
    psql = shop.psql
    psql.send(psql.dialog(), "order", b"secret")
    clerk = shop.database.role()
    psql.rows(f"create schema prying authorization {clerk}")
    user = shop.session(user=clerk)
    user.rows(
        "create function prying.show(text) returns boolean language plpgsql cost 0.0000001 as"
        " 'begin raise exception ''seen: %'', $1; end'"
    )
    for view in ("conversation_endpoints", "conversation_groups", "transmission_queue", "queue_messages"):
        assert user.rows(f"select from broker.{view} v where prying.show(v::text)") == []
    assert user.rows("select from warehouse") == []
    psql.rows("select broker.grant('RECEIVE', 'QUEUE', 'warehouse', 'PUBLIC')")
    assert user.rows("select message_body from warehouse") == [(b"secret",)]


@pytest.mark.parametrize(
    ("call", "sqlstate"),
    [
        ("broker.create_queue('q', watchdog => null)", "S0153"),
        ("broker.create_queue('q', watchdog => '-1 s')", "S0153"),
        ("broker.create_queue('q', schema => 'no such schema')", "S0208"),
        ("broker.create_queue('q', schema => 'pg_temp')", "S0208"),
        ("broker.create_queue('q', schema => 'pg_catalog')", "S0153"),
        ("broker.create_queue('q', activation_procedure => 'a b', max_queue_readers => 1)", "S9614"),
        ("broker.create_queue('q', activation_procedure => '', max_queue_readers => 1)", "S9614"),
        ("broker.create_queue('q', activation_procedure => 'a.b.c', max_queue_readers => 1)", "S9614"),
        ("broker.create_queue('q', activation_procedure => 'no_such', max_queue_readers => 1)", "S9614"),
        (
            "broker.create_queue('q', activation_procedure => 'now', max_queue_readers => 1, schema => 'public')",
            "S9614",
        ),
        ("broker.create_queue('q', activation_procedure => 'pg_temp.p', max_queue_readers => 1)", "S9742"),
        (
            "broker.alter_queue('shop', activation_procedure => 'pg_temp_3.p', max_queue_readers => 1)",
            "S9742",
        ),
        ("broker.alter_queue('shop', schema => 'no such schema')", "S0208"),
        ("broker.alter_queue('shop', schema => 'pg_catalog')", "S0153"),
        ("broker.alter_queue('shop', owner => 'no such role')", "T5151"),
        ("broker.create_queue('q', max_queue_readers => 1)", "S0153"),
        ("broker.create_queue('q', retention => null)", "S0153"),
        ("broker.create_queue('q', owner => '')", "S0153"),
        ("broker.create_contract('c', '{{order,ack},{nudge,invoice}}')", "S0153"),
        ("broker.create_contract('c', null)", "S0153"),
        ("broker.begin_dialog('//shop', '//warehouse', broker_instance => 'nonsense')", "S8413"),
        (
            "broker.begin_dialog('//shop', '//warehouse', broker_instance => '{8f0a2f4e-0000-0000-0000-000000000000')",
            "S8413",
        ),
        ("broker.begin_dialog('//shop', null)", "S8421"),
        ("broker.begin_dialog(null, '//warehouse')", "S8423"),
        ("broker.begin_dialog('//shop', '//warehouse', lifetime => '300000 years')", "S8411"),
        ("broker.begin_dialog('//shop', '//warehouse', encryption => null)", "S0153"),
        ("broker.begin_dialog('//shop', '//warehouse', related_conversation => gen_random_uuid())", "S8426"),
        ("broker.send_batch(gen_random_uuid(), 'order', '{}')", "S8426"),
        ("broker.send(gen_random_uuid(), null)", "S8426"),
        ("broker.receive('warehouse', timeout => '300000 years')", "S0153"),
        ("broker.receive(null)", "S0208"),
        ("broker.get_conversation_group(null)", "S0208"),
        ("broker.end_conversation(null)", "S8426"),
        ("broker.create_route('r', '')", "S9659"),
        ("broker.create_route('r', 'http://host:1')", "S9744"),
        ("broker.create_route('r', 'tcp://host:99999')", "S9785"),
        (
            "broker.create_route('r', 'tcp://host:1', broker_instance => '8f0a2f4e-0000-0000-0000-000000000000')",
            "S9662",
        ),
        ("broker.create_route('r', 'LOCAL', lifetime => '300000 years')", "S9746"),
        ("broker.create_route('AutoCreatedLocal', 'LOCAL')", "S2714"),
        ("broker.alter_route('no such route', 'LOCAL')", "S0208"),
        ("broker.drop_route('no such route')", "S0208"),
        ("broker.create_endpoint('e', 80)", "S0153"),
        ("broker.create_endpoint('e', 4022, listener_ip => '999.1.1.1')", "S0153"),
        ("broker.create_endpoint('e', 4022, certificate => 'no such certificate')", "S0208"),
        ("broker.drop_endpoint('no such endpoint')", "S0208"),
        ("broker.drop_endpoint(null)", "S0208"),
        ("broker.create_certificate('c', 'AAAA', 'user')", "S0153"),
        ("broker.create_certificate('c', '-----BEGIN PRIVATE KEY-----', 'user')", "S0153"),
        ("broker.drop_certificate('no such certificate')", "S0208"),
        ("broker.drop_broker_priority('no such priority')", "S0208"),
        ("broker.grant('SEND', 'QUEUE', 'warehouse', 'public')", "S0153"),
        ("broker.grant('RECEIVE', 'QUEUE', 'no such queue', 'public')", "S0208"),
        ("broker.grant('RECEIVE', 'QUEUE', 'warehouse', null)", "S0153"),
        ("broker.create_service('s', null)", "S0208"),
        ("broker.create_service('s', 'warehouse', null)", "S0153"),
        ("broker.drop_queue(null)", "S0208"),
        ("broker.alter_queue('no such queue', status => false)", "S0208"),
    ],
)
def test_bad_input_is_refused_with_a_number_and_a_hint(shop: Shop, call: str, sqlstate: str) -> None:
    assert shop.psql.refused(f"select {call}") == sqlstate


def test_who_looks_at_queues_while_one_is_dropped_gets_no_error(shop: Shop) -> None:
    shop.psql.rows("select broker.create_queue('returns')")
    dropping, looking = shop.session(autocommit=False), shop.session()
    dropping.rows("select broker.drop_queue('returns')")
    look = in_background(lambda: looking.rows("select name from broker.service_queues"))
    until(lambda: waits(shop.psql, looking, "Lock"))
    dropping.connection.commit()
    assert ("warehouse",) in look.result(PATIENCE)
    assert ("returns",) not in looking.rows("select name from broker.service_queues")


def test_readers_that_are_too_late_for_a_message_get_none(shop: Shop) -> None:
    """Each message lies alone on a new dialog, so a reader that sees it may find it gone once it has the group."""
    count = 300
    for number in range(count):
        shop.psql.send(shop.psql.dialog(), "order", str(number).encode())
    readers = [shop.session() for _ in range(4)]

    def read(reader: Session) -> list[bytes | None]:
        bodies: list[bytes | None] = []
        for _ in range(count):
            bodies += [body for _, _, body in reader.receive("warehouse", top=1)]
        return bodies

    with ThreadPoolExecutor(len(readers)) as pool:
        received = [body for bodies in pool.map(read, readers) for body in bodies]
    assert None not in received
    assert sorted(body or b"" for body in received) == sorted(str(number).encode() for number in range(count))
