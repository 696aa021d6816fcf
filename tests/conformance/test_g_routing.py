"""Section G between what one database sees: which route a dialog takes, and what waits for one."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID, uuid4

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.shop import Session, Shop

HERE, THERE = "tcp://here.example:4022", "tcp://there.example:4022"
ONE, OTHER = UUID(int=1), UUID(int=2)
SENDS_AGAIN = "select broker_private.deliver_local()"


@pytest.fixture
def psql(shop: Shop) -> Session:
    return shop.psql


def route(psql: Session, name: str, address: str, **clauses: object) -> None:
    extra = "".join(f", {clause} => %s" for clause in clauses)
    psql.rows(f"select broker.create_route(%s, %s{extra})", name, address, *clauses.values())


def goes_to(psql: Session, service: str, broker: UUID | None = None) -> str | None:
    """Return the address that messages for a service take now, or the number of why there is none."""
    query = "select coalesce(address, left(problem, 4)) from broker_private.route_of(%s, %s)"
    address: str | None = psql.value(query, service, broker)
    return address


def begun(psql: Session, service: str, **options: object) -> UUID:
    """Begin a dialog with a service, and send one message on it."""
    extra = "".join(f", {name} => %s" for name in options)
    dialog: UUID = psql.value(
        f"select broker.begin_dialog('//shop', %s, 'ordering'{extra})", service, *options.values()
    )
    psql.send(dialog, "order", b"hello")
    return dialog


def waits_with(psql: Session, dialog: UUID) -> str:
    status: str = psql.value("select broker.get_transmission_status(%s)", dialog)
    return status[:4]


def destinations(psql: Session) -> dict[tuple[str, UUID | None], int]:
    """Return how many messages wait for each service and broker."""
    rows = psql.rows(
        "select d.service_name, d.broker_instance, count(*) from broker_private.transmission_messages t"
        " join broker_private.destinations d using (destination_no) group by 1, 2"
    )
    return {(service, broker): count for service, broker, count in rows}


def test_row_100_a_new_database_finds_its_own_services(psql: Session) -> None:
    assert psql.rows(
        "select address, remote_service_name, broker_instance from broker.routes where name = 'AutoCreatedLocal'"
    ) == [("LOCAL", None, None)]
    begun(psql, "//warehouse")
    assert psql.bodies() == [b"hello"]


def test_rows_101_102_the_route_that_says_most_is_taken(psql: Session) -> None:
    route(psql, "service", HERE, service_name="//far")
    route(psql, "exact", THERE, service_name="//far", broker_instance=str(ONE))
    assert goes_to(psql, "//far", ONE) == THERE
    assert goes_to(psql, "//far", OTHER) == HERE
    assert goes_to(psql, "//far") == HERE, "a route for one broker comes after the one for the service"


def test_the_owner_of_one_service_s_route_does_not_take_the_others_along(shop: Shop) -> None:
    psql, clerk = shop.psql, shop.database.role()
    route(psql, "his", HERE, service_name="//his", owner=clerk)
    user = shop.session(user=clerk)
    user.rows("select broker.alter_route('his', address => %s, service_name => '//his')", THERE)
    take = "select broker.alter_route('his', service_name => '//warehouse')"
    assert user.refused(take) == "S0229"
    assert (goes_to(psql, "//warehouse"), goes_to(psql, "//his")) == ("LOCAL", THERE)
    psql.rows(f"grant create on database {shop.database.name} to {clerk}")
    user.rows(take)


def test_rows_101_106_a_matching_route_that_leads_nowhere_is_not_passed_over(psql: Session) -> None:
    route(psql, "nowhere", "LOCAL", service_name="//far", broker_instance=str(ONE))
    route(psql, "service", HERE, service_name="//far")
    assert goes_to(psql, "//far", ONE) == "9796"
    assert goes_to(psql, "//far", OTHER) == HERE


def test_row_103_edge_052_new_dialogs_are_spread_over_the_brokers_of_a_service(psql: Session) -> None:
    route(psql, "one", HERE, service_name="//far", broker_instance=str(ONE))
    route(psql, "other", THERE, service_name="//far", broker_instance=str(OTHER))
    dialogs = [begun(psql, "//far") for _ in range(40)]
    spread = destinations(psql)
    assert set(spread) == {("//far", ONE), ("//far", OTHER)}, "40 dialogs go to both"
    for dialog in dialogs:
        psql.send(dialog, "order", b"more")
    assert destinations(psql) == {place: 2 * count for place, count in spread.items()}, "a dialog goes to one"


def test_row_103_dialogs_that_wait_already_are_spread_when_the_brokers_become_known(psql: Session) -> None:
    psql.rows("select broker.drop_route('AutoCreatedLocal')")
    for _ in range(40):
        begun(psql, "//far")
    ((waiting, place),) = psql.rows(
        "select broker_instances, destination_no from broker_private.transmission_work()"
    )
    assert waiting is None
    route(psql, "one", HERE, service_name="//far", broker_instance=str(ONE))
    route(psql, "other", THERE, service_name="//far", broker_instance=str(OTHER))
    ((waiting,),) = psql.rows("select broker_instances from broker_private.transmission_work()")
    assert waiting == [ONE, OTHER]
    spread = "select moved, stays from broker_private.spread_dialogs(%s, %s)"
    assert psql.rows(spread, place, waiting) == [(40, 0)]
    assert set(destinations(psql)) == {("//far", ONE), ("//far", OTHER)}
    psql.rows("select broker.drop_route('one')")
    stranded = (
        "select broker_instance, address, is_stranded from broker_private.transmission_work() order by 3"
    )
    assert psql.rows(stranded)[1:] == [(ONE, None, True)]
    route(psql, "any", THERE)
    assert psql.rows(stranded) == [(OTHER, THERE, False), (ONE, THERE, True)]
    psql.rows("select broker.drop_route('other'), broker.drop_route('any')")
    for (place,) in psql.rows(
        "select destination_no from broker_private.transmission_work() where address is null"
    ):
        psql.rows(spread, place, None)
    assert destinations(psql) == {("//far", None): 40}, "what went nowhere may go to another broker"


def test_row_108_edge_051_a_better_route_moves_no_dialog_that_was_sent(psql: Session) -> None:
    route(psql, "service", HERE, service_name="//far")
    sent, acknowledged = begun(psql, "//far"), begun(psql, "//far")
    ((place,),) = psql.rows("select destination_no from broker_private.transmission_work()")
    endpoints, numbers, rows = psql.rows(
        "select endpoint_nos, array_fill(1::bigint, array[2]), row_ids"
        " from broker_private.take(%s, 0, 1, 10, 10000, '{}')",
        place,
    )[0]
    second = psql.value(
        "select endpoint_no from broker_private.endpoints where conversation_handle = %s", acknowledged
    )
    at = endpoints.index(second)
    psql.rows(
        "select broker_private.acknowledge(%s, %s::bigint[], %s::bigint[], %s::bigint[])",
        ONE,
        [second],
        [numbers[at]],
        [rows[at]],
    )
    psql.send(acknowledged, "order", b"more")
    assert destinations(psql) == {("//far", None): 2}
    moved, stays = psql.rows(
        "select moved, stays from broker_private.spread_dialogs(%s, %s)", place, [OTHER]
    )[0]
    assert (moved, stays) == (1, 1), "one goes to who answered, one where it may have been stored already"
    assert destinations(psql) == {("//far", None): 1, ("//far", ONE): 1}
    assert waits_with(psql, sent) == ""


def test_row_104_a_route_for_any_service_comes_last(psql: Session) -> None:
    psql.rows("select broker.drop_route('AutoCreatedLocal')")
    route(psql, "any", HERE)
    assert goes_to(psql, "//far") == HERE
    assert goes_to(psql, "//far", ONE) == HERE
    assert goes_to(psql, "//warehouse") == HERE, "without LOCAL not even its own services"
    route(psql, "one", THERE, service_name="//far", broker_instance=str(ONE))
    assert goes_to(psql, "//far") == THERE


def test_row_105_a_dialog_that_names_this_broker_needs_no_route(psql: Session) -> None:
    psql.rows("select broker.drop_route('AutoCreatedLocal')")
    waiting = begun(psql, "//warehouse")
    assert waits_with(psql, waiting) == "9750"
    begun(psql, "//warehouse", broker_instance="CURRENT DATABASE")
    assert psql.bodies() == [b"hello"]


def test_rows_106_115_edge_047_edge_048_what_has_no_route_waits_for_one(psql: Session) -> None:
    dialog = begun(psql, "//later")
    assert waits_with(psql, dialog) == "9793"
    psql.rows("select broker.create_queue('later')")
    psql.rows("select broker.create_service('//later', 'later', '{ordering}')")
    psql.rows(SENDS_AGAIN)
    assert psql.bodies("later") == [b"hello"]
    psql.rows("select broker.drop_route('AutoCreatedLocal')")
    dialog = begun(psql, "//later")
    assert waits_with(psql, dialog) == "9750"
    route(psql, "later", "LOCAL", service_name="//later")
    psql.rows(SENDS_AGAIN)
    assert psql.bodies("later") == [b"hello"]


def test_row_115_a_status_follows_what_the_message_waits_for(shop: Shop) -> None:
    psql = shop.psql
    own, given = begun(psql, "//later"), begun(psql, "//later")
    # As a worker says of all that waits for a destination.
    psql.rows(
        "select broker_private.set_destination_status(destination_no, problem) from broker_private.transmission_work()"
    )
    assert waits_with(psql, own) == waits_with(psql, given) == "9793"
    psql.rows("select broker.create_queue('later', status => false)")
    psql.rows("select broker.create_service('//later', 'later', '{ordering}')")
    psql.rows(SENDS_AGAIN)
    shown = "select distinct left(transmission_status, 4) from broker.transmission_queue"
    assert (waits_with(psql, own), psql.rows(shown)) == ("9749", [("9749",)]), (
        "the service is there, its queue is off"
    )
    psql.rows("update broker_private.destinations set transmission_status = null")
    assert waits_with(psql, own) == "9749", "each dialog's own reason, too"
    psql.rows("select broker.alter_queue('later', status => true)")
    assert psql.bodies("later") + psql.bodies("later") == [b"hello"] * 2
    assert waits_with(psql, own) == ""


def test_edge_048_a_broker_that_is_named_says_that_it_has_no_such_service(psql: Session) -> None:
    dialog = begun(psql, "//nobody", broker_instance="CURRENT DATABASE")
    ((kind, _, body),) = psql.receive("shop")
    assert kind.endswith("Error")
    assert b"-8490" in (body or b"")
    assert psql.state(dialog) == "ER"


def test_row_107_of_the_routes_that_match_local_comes_first_and_transport_last(psql: Session) -> None:
    route(psql, "transport", "transport")
    route(psql, "network", HERE)
    assert goes_to(psql, "//warehouse") == "LOCAL"
    assert goes_to(psql, "tcp://there.example:4022/far") == HERE
    psql.rows("select broker.drop_route('network')")
    assert goes_to(psql, "tcp://there.example:4022/far") == THERE


def test_row_110_edge_053_an_expired_route_is_listed_and_not_taken(psql: Session) -> None:
    route(psql, "short", HERE, service_name="//far", lifetime="1 min")
    assert goes_to(psql, "//far") == HERE
    psql.rows("update broker_private.routes set expires_at = broker_private.clock() where name = 'short'")
    assert goes_to(psql, "//far") == "9793"
    assert psql.value("select count(*) from broker.routes where name = 'short'") == 1
    psql.rows("select broker.alter_route('short', lifetime => '1 min')")
    assert goes_to(psql, "//far") == HERE


@pytest.mark.parametrize(
    ("service", "address"),
    [
        ("tcp://there.example:4022/far", "tcp://there.example:4022"),
        ("TCP://there.example:4022/", "tcp://there.example:4022"),
        ("tcp://[::1]:4022/a/b", "tcp://[::1]:4022"),
        ("tcp://there.example:4022", "tcp://there.example:4022"),
        ("tcp://there.example/far", "9750"),
        ("//far", "9750"),
    ],
)
def test_row_111_transport_takes_the_address_from_the_service_name(
    psql: Session, service: str, address: str
) -> None:
    psql.rows("select broker.alter_route('AutoCreatedLocal', address => 'TRANSPORT')")
    assert goes_to(psql, service) == address


@pytest.mark.parametrize(
    ("clauses", "state"),
    [
        ({"address": ""}, "S9659"),
        ({"address": f"tcp://{'a' * 300}:1"}, "S9660"),
        ({"mirror_address": "tcp://mirror:1"}, "S9661"),
        ({"service_name": "//far", "mirror_address": "tcp://mirror:1"}, "S9661"),
        ({"broker_instance": str(ONE)}, "S9662"),
        (
            {"service_name": "//far", "broker_instance": str(ONE), "mirror_address": "LOCAL"},
            "S9743",
        ),
        ({"address": "TRANSPORT", "service_name": "//far"}, "S9745"),
        ({"lifetime": "0"}, "S9746"),
        (
            {"service_name": "//far", "broker_instance": str(ONE), "mirror_address": "TCP://far:1"},
            "S9747",
        ),
        ({"address": "far:4022"}, "S9744"),
        ({"address": "http://far:4022"}, "S9744"),
        ({"address": "tcp://far"}, "S9785"),
        ({"address": "tcp://far:65536"}, "S9785"),
        ({"scope": "SERVER"}, "S0153"),
    ],
)
def test_row_113_a_route_that_means_nothing_is_refused(
    psql: Session, clauses: dict[str, str], state: str
) -> None:
    given = {"address": "tcp://far:1", **clauses}
    names = "".join(f", {name} => %s" for name in given)
    assert psql.refused(f"select broker.create_route('bad'{names})", *given.values()) == state


def test_row_114_messages_outlast_their_route(psql: Session) -> None:
    route(psql, "far", HERE, service_name="//far")
    begun(psql, "//far")
    psql.rows("select broker.drop_route('far')")
    assert psql.value("select count(*) from broker.transmission_queue") == 1
    assert goes_to(psql, "//far") == "9793"
    route(psql, "again", THERE, service_name="//far")
    assert psql.value("select address from broker_private.transmission_work()") == THERE


def test_edge_054_names_are_compared_byte_for_byte(psql: Session) -> None:
    route(psql, "far", HERE, service_name="//Far")
    assert goes_to(psql, "//Far") == HERE
    for name in ("//far", "//Far ", "//Far\u0301"):
        assert goes_to(psql, name) == "9793"


def test_row_109_edge_055_what_comes_from_outside_has_a_table_of_its_own(psql: Session) -> None:
    route(psql, "worker", HERE, service_name="//warehouse", scope="WORKER")
    assert goes_to(psql, "//warehouse") == "LOCAL", "what this database sends goes by its own routes"
    from_outside = "select address from broker_private.route_of(%s, %s, 'WORKER')"
    assert psql.value(from_outside, "//warehouse", None) == HERE
    assert psql.value(from_outside, "//shop", uuid4()) == "LOCAL"


def taken(psql: Session, place: int) -> tuple[list[int], list[int]]:
    """Send what waits for a destination, as a worker does; return the dialogs' endpoints and the rows' ids."""
    ((endpoints, rows),) = psql.rows(
        "select endpoint_nos, row_ids from broker_private.take(%s, 0, 1, 10, 10000, '{}')", place
    )
    return endpoints, rows


def answered(psql: Session, dialog: UUID, broker: UUID, number: int, body: bytes) -> tuple[int | None, bool]:
    """Let a target's broker send a message; return the code that it is refused with, and whether for good."""
    ((codes, final),) = psql.rows(
        "select fault_codes, fault_is_final from broker_private.deliver(%s, array[(select conversation_id from"
        " broker.conversation_endpoints where conversation_handle = %s)], '{false}', '{//far}', '{//shop}',"
        " array[null::uuid], '{ordering}', array[now() + interval '1 hour'], '{false}', '{ack}', '{1}', '{1}',"
        " array[%s::bigint], 'M', array[%s::bytea], '{L}', '{null}', '{null}')",
        broker,
        dialog,
        number,
        body,
    )
    return codes[0], final[0]


@pytest.mark.parametrize("is_acknowledged", [True, False])
def test_row_118_edge_052_the_second_target_that_took_a_dialog_is_refused(
    psql: Session, *, is_acknowledged: bool
) -> None:
    route(psql, "far", HERE, service_name="//far")
    dialog = begun(psql, "//far")
    ((place,),) = psql.rows("select destination_no from broker_private.transmission_work()")
    endpoints, rows = taken(psql, place)
    acknowledge = "select broker_private.acknowledge(%s, %s::bigint[], array[1::bigint], %s::bigint[])"
    if is_acknowledged:
        assert psql.value(acknowledge, ONE, endpoints, rows) == 1
    assert answered(psql, dialog, ONE, 0, b"first") == (None, False)
    assert answered(psql, dialog, OTHER, 0, b"second") == (-8495, True)
    assert answered(psql, dialog, OTHER, 1, b"third") == (-8495, True)
    assert answered(psql, dialog, ONE, 1, b"fourth") == (None, False)
    assert psql.bodies("shop") == [b"first", b"fourth"]
    if not is_acknowledged:
        assert psql.value(acknowledge, OTHER, endpoints, rows) == 0, "the first has not said that it has it"
        assert psql.value(acknowledge, ONE, endpoints, rows) == 1


BROKER_CONFIGURATION = "SQL/ServiceBroker/BrokerConfiguration"
NOTICE = "http://schemas.microsoft.com/SQL/ServiceBroker/BrokerConfigurationNotice"


def test_row_116_a_service_is_asked_for_missing_routes_once_at_a_time(psql: Session) -> None:
    psql.rows("select broker.create_queue('routing')")
    psql.rows("select broker.create_service(%s, 'routing', array[%s])", BROKER_CONFIGURATION, NOTICE)
    dialog = begun(psql, "//<far>")
    begun(psql, "//<far>")
    assert waits_with(psql, dialog) == "9770"
    begun(psql, "//warehouse")
    assert psql.bodies() == [b"hello"], "what is here is not asked for"

    def look() -> None:
        query = "select broker_private.request_route(service_name) from broker_private.transmission_work() where is_missing"
        psql.rows(query)

    look()
    look()
    ((handle, kind, body),) = psql.rows(
        "select conversation_handle, message_type_name, message_body from broker.receive('routing')"
    )
    assert kind == f"{NOTICE}/MissingRoute"
    assert body == b"<MissingRoute><SERVICE_NAME>//&lt;far&gt;</SERVICE_NAME></MissingRoute>"
    assert goes_to(psql, "//<far>") == "9770", "until it is answered"
    psql.end(handle, 5, "unknown")
    look()
    assert goes_to(psql, "//<far>") == "9793", "an error means that nobody knows: the next step is taken"
    look()
    assert psql.bodies("routing") == []
    psql.rows(
        "create or replace function broker_private.clock() returns timestamptz language sql volatile"
        " begin atomic select pg_catalog.clock_timestamp() + interval '11 min'; end"
    )
    look()
    ((handle,),) = psql.rows("select conversation_handle from broker.receive('routing')")
    route(psql, "found", HERE, service_name="//<far>")
    psql.end(handle)
    look()
    assert goes_to(psql, "//<far>") == HERE
    assert destinations(psql) == {("//<far>", None): 2}


def test_row_116_an_answer_is_kept_as_long_as_it_counts_and_then_forgotten(psql: Session) -> None:
    psql.rows("select broker.create_queue('routing')")
    psql.rows("select broker.create_service(%s, 'routing', array[%s])", BROKER_CONFIGURATION, NOTICE)
    look = "select broker_private.request_route(service_name) from broker_private.transmission_work() where is_missing"
    for number in range(3):
        begun(psql, f"//far/{number}")
    psql.rows(look)
    for _ in range(3):
        ((handle,),) = psql.rows("select conversation_handle from broker.receive('routing')")
        psql.end(handle, 5, "unknown")
    psql.rows(look)
    psql.rows("select broker_private.sweep()")
    psql.rows(look)
    assert psql.bodies("routing") == [], "the answers still count"
    psql.rows(
        "create or replace function broker_private.clock() returns timestamptz language sql volatile"
        " begin atomic select pg_catalog.clock_timestamp() + interval '11 min'; end"
    )
    psql.rows("select broker_private.sweep()")
    assert psql.value("select count(*) from broker_private.configuration_requests") == 0
    psql.rows(look)
    assert len([psql.receive("routing") for _ in range(3)]) == psql.value(
        "select count(*) from broker_private.configuration_requests"
    )


@pytest.mark.parametrize("is_received", [True, False], ids=["received", "never received"])
def test_row_116_a_request_that_nobody_answers_ends_after_a_day_and_leaves_nothing(
    psql: Session, clock: Callable[[str], None], *, is_received: bool
) -> None:
    psql.rows("select broker.create_queue('routing')")
    psql.rows("select broker.create_service(%s, 'routing', array[%s])", BROKER_CONFIGURATION, NOTICE)
    look = "select broker_private.request_route(service_name) from broker_private.transmission_work() where is_missing"
    requests = "select count(*) from broker_private.configuration_requests"
    open_sides = (
        "select count(*) from broker_private.endpoints where contract_name = %s and closed_at is null"
    )

    def tidy(later: str) -> None:
        clock(later)
        psql.rows("select broker_private.fire_timers()")
        psql.rows("select broker_private.sweep()")

    waiting, gone = begun(psql, "//waiting"), begun(psql, "//gone")
    psql.rows(look)
    assert psql.value(open_sides, NOTICE) == 4
    psql.rows("select broker.end_conversation(%s, cleanup => true)", gone)
    handles = []
    if is_received:
        handles = [psql.value("select conversation_handle from broker.receive('routing')") for _ in range(2)]
    tidy("23 hours")
    assert waits_with(psql, waiting) == "9770"
    tidy("25 hours")
    assert goes_to(psql, "//waiting") == "9793", "nobody knows: the next step is taken"
    for handle in handles:
        ((_, _, told),) = psql.receive("routing", conversation_handle=handle)
        assert told is not None
        assert b"<Code>-8489</Code>" in told
        psql.end(handle)
    psql.rows(look)
    assert psql.bodies("routing") == []
    tidy("25 hours 11 minutes")
    assert psql.value(requests) == 0
    assert psql.value(open_sides, NOTICE) == 0
    psql.rows(look)
    assert psql.value(requests) == 1, "what is still waited for is asked for again"
    ((_, _, asked),) = psql.receive("routing")
    assert asked is not None
    assert b"//waiting" in asked


def test_row_116_the_service_is_asked_for_missing_bindings_and_its_no_counts_for_ten_minutes(
    psql: Session,
) -> None:
    route(psql, "far", HERE, service_name="//far")
    dialog = begun(psql, "//far")
    hold = "select broker_private.hold_unbound(array(select endpoint_no from broker_private.transmission_messages))"
    psql.rows(hold)
    assert waits_with(psql, dialog) == "9727"
    psql.rows("select broker.create_queue('routing')")
    psql.rows("select broker.create_service(%s, 'routing', array[%s])", BROKER_CONFIGURATION, NOTICE)
    for _ in range(2):
        psql.rows(hold)
        assert waits_with(psql, dialog) == "9770"
    ((handle, kind, body),) = psql.rows(
        "select conversation_handle, message_type_name, message_body from broker.receive('routing')"
    )
    assert kind == f"{NOTICE}/MissingRemoteServiceBinding"
    assert body == (
        b"<MissingRemoteServiceBinding><SERVICE_NAME>//far</SERVICE_NAME></MissingRemoteServiceBinding>"
    )
    psql.end(handle, 5, "unknown")
    for _ in range(2):
        psql.rows(hold)
        assert waits_with(psql, dialog) == "9727"
    assert psql.bodies("routing") == []
    psql.rows(
        "create or replace function broker_private.clock() returns timestamptz language sql volatile"
        " begin atomic select pg_catalog.clock_timestamp() + interval '11 min'; end"
    )
    psql.rows(hold)
    assert waits_with(psql, dialog) == "9770"
    assert len(psql.bodies("routing")) == 1
