"""Event notifications: a service is told when a queue should be read, and when it was disabled."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest

from tests.shop import END_DIALOG, Session, Shop

if TYPE_CHECKING:
    from uuid import UUID

CONTRACT = "http://schemas.microsoft.com/SQL/Notifications/PostEventNotification"
EVENT = "http://schemas.microsoft.com/SQL/Notifications/EventNotification"
LATER = """
create or replace function broker_private.clock() returns timestamptz language sql volatile
begin atomic select pg_catalog.clock_timestamp() + interval '{}'; end
"""


@pytest.fixture
def notified(shop: Shop) -> Shop:
    shop.psql.rows("select broker.create_queue('notifications')")
    shop.psql.rows(f"select broker.create_service('//activator', 'notifications', '{{{CONTRACT}}}')")
    return shop


def create(psql: Session, event: str = "QUEUE_ACTIVATION", name: str = "n", **options: object) -> None:
    arguments = {"queue": "warehouse", "to_service": "//activator", **options}
    psql.rows(
        f"select broker.create_event_notification(%s, event => %s{''.join(f', {a} => %s' for a in arguments)})",
        name,
        event,
        *arguments.values(),
    )


def emit(psql: Session) -> list[tuple[str, str, str | None]]:
    """Do what the worker does."""
    return psql.rows(
        "select queue_name, notification_name, problem from broker_private.emit_queue_activations()"
    )


def events(psql: Session) -> list[dict[str, str | None]]:
    received = []
    while rows := psql.receive("notifications"):
        for kind, _, body in rows:
            assert kind == EVENT
            received.append({e.tag: e.text for e in ET.fromstring(body or b"")})
    return received


def test_row_169_an_event_says_what_happened_to_which_queue(notified: Shop) -> None:
    psql = notified.psql
    create(psql)
    assert emit(psql) == []
    psql.send(psql.dialog())
    assert emit(psql) == [("warehouse", "n", None)]
    ((kind, number, body),) = psql.receive("notifications")
    assert (kind, number) == (EVENT, 0)
    document = ET.fromstring(body or b"")
    assert document.tag == "EVENT_INSTANCE"
    assert [element.tag for element in document] == [
        "EventType", "PostTime", "SPID", "ServerName", "LoginName", "UserName", "DatabaseName", "SchemaName",
        "ObjectName", "ObjectType",
    ]  # fmt: skip
    assert {
        "EventType": "QUEUE_ACTIVATION",
        "DatabaseName": notified.database.name,
        "SchemaName": "public",
        "ObjectName": "warehouse",
        "ObjectType": "QUEUE",
    }.items() <= {element.tag: element.text for element in document}.items()


def test_row_152_one_event_until_the_queue_was_read_or_a_time_out(notified: Shop) -> None:
    psql = notified.psql
    create(psql)
    dialog = psql.dialog()
    psql.send(dialog)
    assert len(emit(psql)) == 1
    psql.send(dialog)
    assert emit(psql) == []
    assert len(psql.receive()) == 2
    assert emit(psql) == []
    psql.send(dialog)
    assert len(emit(psql)) == 1
    assert emit(psql) == []
    psql.rows(LATER.format("6 s"))
    assert len(emit(psql)) == 1
    assert emit(psql) == []
    psql.receive()
    psql.rows(LATER.format("12 s"))
    assert emit(psql) == []
    assert len(events(psql)) == 3


def test_a_queue_with_a_notification_has_a_monitor(notified: Shop) -> None:
    psql = notified.psql
    monitors = (
        "select q.name, m.state, m.last_activated_time is not null from broker.dm_broker_queue_monitors m"
        " join broker.service_queues q on q.object_id = m.queue_id"
    )
    create(psql, name="a")
    create(psql, name="b")
    assert psql.rows(monitors) == [("warehouse", "INACTIVE", False)]
    psql.send(psql.dialog())
    emit(psql)
    assert psql.rows(monitors) == [("warehouse", "NOTIFIED", True)]
    psql.receive()
    assert psql.rows(monitors) == [("warehouse", "INACTIVE", True)]


def test_no_event_comes_from_a_queue_or_a_broker_that_is_off(notified: Shop) -> None:
    psql = notified.psql
    create(psql)
    psql.send(psql.dialog())
    for off, on in (
        ("alter_queue('warehouse', status => false)", "alter_queue('warehouse', status => true)"),
        ("alter_broker('DISABLE_BROKER')", "alter_broker('ENABLE_BROKER')"),
    ):
        psql.rows(f"select broker.{off}")
        assert emit(psql) == []
        psql.rows(f"select broker.{on}")
    assert len(emit(psql)) == 1


def test_every_notification_of_the_event_is_told(notified: Shop) -> None:
    psql = notified.psql
    for name in ("a", "b"):
        create(psql, name=name)
    create(psql, "BROKER_QUEUE_DISABLED", "c")
    psql.send(psql.dialog())
    assert [name for _, name, _ in emit(psql)] == ["a", "b"]
    assert len(events(psql)) == 2
    assert psql.rows(
        "select name, type_desc, service_name, parent_id from broker.event_notifications order by 1"
    ) == [
        (name, event, "//activator", queue)
        for queue in psql.rows("select object_id from broker.service_queues where name = 'warehouse'")[0]
        for name, event in (
            ("a", "QUEUE_ACTIVATION"),
            ("b", "QUEUE_ACTIVATION"),
            ("c", "BROKER_QUEUE_DISABLED"),
        )
    ]


def test_a_notification_of_several_events_is_told_of_each_on_one_conversation(notified: Shop) -> None:
    psql = notified.psql
    both = "BROKER_QUEUE_DISABLED,QUEUE_ACTIVATION, QUEUE_ACTIVATION"
    create(psql, both, fan_in=True)
    create(psql, "BROKER_QUEUE_DISABLED", "later", fan_in=True)
    shown = "select name, type_desc from broker.event_notifications order by 1, 2"
    assert psql.rows(shown) == [
        ("later", "BROKER_QUEUE_DISABLED"),
        ("n", "BROKER_QUEUE_DISABLED"),
        ("n", "QUEUE_ACTIVATION"),
    ]
    psql.send(psql.dialog(), "order", b"poison")
    assert emit(psql) == [("warehouse", "n", None)]
    reader = notified.session(autocommit=False)
    for _ in range(5):
        assert reader.bodies() == [b"poison"]
        reader.connection.rollback()
    psql.rows("select broker_private.settle_poison()")
    rows = psql.rows("select conversation_handle, message_body from broker.receive('notifications')")
    assert [ET.fromstring(body or b"").findtext("EventType") for _, body in rows] == [
        "QUEUE_ACTIVATION",
        "BROKER_QUEUE_DISABLED",
    ]
    assert len({handle for handle, _ in rows}) == 1
    psql.rows("select broker.alter_queue('warehouse', status => true)")
    psql.rows("create procedure book() language plpgsql as 'begin end'")
    activate = (
        "select broker.alter_queue('warehouse', activation_procedure => 'book', max_queue_readers => 1)"
    )
    assert psql.refused(activate) == "S9717"
    psql.rows("select broker.drop_event_notification('n')")
    psql.rows(activate)
    statement = f"select broker.create_event_notification('n', 'warehouse', '{both}', '//activator')"
    assert psql.refused(statement) == "S9718"


def test_a_notifications_name_is_its_own_on_its_queue_or_on_the_database(notified: Shop) -> None:
    psql = notified.psql
    shown = (
        "select parent_class_desc, parent_id from broker.event_notifications where name = 'n' order by 1, 2"
    )
    shop, warehouse = (
        psql.value("select object_id from broker.service_queues where name = %s", name)
        for name in ("shop", "warehouse")
    )
    on_queues = [("OBJECT_OR_COLUMN", number) for number in sorted((shop, warehouse))]
    for queue in ("warehouse", "shop", None):
        create(psql, queue=queue)
        again = "select broker.create_event_notification('n', {}, 'BROKER_QUEUE_DISABLED', '//activator')"
        assert psql.refused(again.format("null" if queue is None else f"'{queue}'")) == "S2714"
    assert psql.rows(shown) == [("DATABASE", 0), *on_queues]
    psql.rows("select broker.drop_event_notification('n')")
    assert psql.rows(shown) == on_queues
    assert psql.refused("select broker.drop_event_notification('n')") == "S0153", "which of two?"
    assert psql.refused("select broker.drop_event_notification('n', 'notifications')") == "S0208"
    assert psql.refused("select broker.drop_event_notification('n', 'nowhere')") == "S0208"
    psql.rows("select broker.drop_event_notification('n', 'warehouse')")
    assert psql.rows(shown) == [("OBJECT_OR_COLUMN", shop)]
    psql.rows("select broker.drop_event_notification('n')")
    assert psql.rows(shown) == []


def test_row_153_internal_activation_and_the_notification_exclude_each_other(notified: Shop) -> None:
    psql = notified.psql
    psql.rows("create procedure book() language plpgsql as 'begin end'")
    activate = (
        "select broker.alter_queue('warehouse', activation_procedure => 'book', max_queue_readers => 1)"
    )
    create(psql)
    assert psql.refused(activate) == "S9717"
    psql.rows("select broker.drop_event_notification('n')")
    create(psql, "BROKER_QUEUE_DISABLED")
    psql.rows(activate)
    notification = (
        "select broker.create_event_notification('m', 'warehouse', 'QUEUE_ACTIVATION', '//activator')"
    )
    assert psql.refused(notification) == "S9718"
    psql.rows("select broker.alter_queue('warehouse', activation_status => false)")
    psql.rows(notification)
    assert psql.refused("select broker.alter_queue('warehouse', activation_status => true)") == "S9717"


def far_end(psql: Session) -> UUID:
    handle: UUID = psql.value("select conversation_handle from broker.receive('notifications')")
    return handle


@pytest.mark.parametrize(("error", "number"), [((), "17004"), ((1, "enough"), "17003")])
def test_a_subscriber_that_ends_the_conversation_drops_the_notification_with_a_reported_error(
    notified: Shop, error: tuple[object, ...], number: str
) -> None:
    psql = notified.psql
    create(psql)
    create(psql, name="other")
    psql.send(psql.dialog())
    assert len(emit(psql)) == 2
    psql.end(far_end(psql), *error)
    ((queue, name, problem),) = emit(psql)
    assert (queue, name) == ("warehouse", "n")
    assert (problem or "").startswith(number)
    if error:
        assert "enough" in (problem or "")
    assert psql.rows("select name from broker.event_notifications") == [("other",)]


def test_a_notification_that_is_dropped_ends_its_conversation(notified: Shop) -> None:
    psql = notified.psql
    create(psql)
    psql.send(psql.dialog())
    emit(psql)
    psql.rows("select broker.drop_event_notification('n')")
    assert [kind for kind, _, _ in psql.receive("notifications")] == [EVENT, END_DIALOG]
    assert psql.refused("select broker.drop_event_notification('n')") == "S0208"
    create(psql)
    psql.rows("select broker.drop_service('//warehouse'), broker.drop_queue('warehouse')")
    assert psql.rows("select name from broker.event_notifications") == []


@pytest.mark.parametrize(
    ("prepare", "reason"),
    [
        (
            "select broker.drop_service('//activator'), broker.create_service('//activator', 'notifications')",
            "8408",
        ),
        ("select broker.alter_broker('NEW_BROKER')", "17005"),
    ],
)
def test_a_service_that_can_t_be_told_drops_the_notification(
    notified: Shop, prepare: str, reason: str
) -> None:
    psql = notified.psql
    create(psql)
    psql.rows(prepare)
    psql.send(psql.dialog())
    ((_, _, problem),) = emit(psql)
    assert reason in (problem or "")
    assert psql.rows("select name from broker.event_notifications") == []


def test_an_event_for_a_service_that_is_not_there_yet_waits(notified: Shop) -> None:
    psql = notified.psql
    create(psql, to_service="//later")
    psql.send(psql.dialog())
    assert len(emit(psql)) == 1
    assert psql.rows("select message_type_name from broker.transmission_queue") == [(EVENT,)]
    psql.rows(f"select broker.create_service('//later', 'notifications', '{{{CONTRACT}}}')")
    psql.rows(LATER.format("6 s"))
    assert len(emit(psql)) == 1
    if notified.has_xml_parser:
        assert len(events(psql)) == 2


def test_a_notification_needs_the_queue_and_the_right_to_send(notified: Shop) -> None:
    psql = notified.psql
    role = notified.database.role()
    clerk = notified.session(user=role)
    statement = "select broker.create_event_notification('n', 'warehouse', 'QUEUE_ACTIVATION', '//activator')"
    assert clerk.refused(statement) == "S0229"
    psql.rows("select broker.alter_authorization('QUEUE', 'warehouse', %s::name)", role)
    assert clerk.refused(statement) == "S0229"
    clerk.rows("select broker.create_event_notification('n', 'warehouse', 'QUEUE_ACTIVATION', '//later')")
    psql.rows(f"select broker.create_service('//later', 'notifications', '{{{CONTRACT}}}')")
    psql.send(psql.dialog())
    ((_, _, problem),) = emit(psql)
    assert "-8494" in (problem or "")
    psql.rows("select broker.grant('SEND', 'SERVICE', '//activator', %s::name)", role)
    clerk.rows(statement)
    assert len(emit(psql)) == 1
    assert len(events(psql)) == 1
    stranger = notified.session(user=notified.database.role())
    assert stranger.refused("select broker.drop_event_notification('n')") == "S0229"
    with pytest.raises(Exception, match="permission denied"):
        stranger.rows("select broker_private.emit_queue_activations()")


def told_of(found: list[tuple[str, str, str | None]]) -> list[tuple[str, str]]:
    assert {problem for _, _, problem in found} <= {None}
    return sorted((queue, name) for queue, name, _ in found)


def test_row_169_a_notification_of_the_database_is_told_of_each_queue_by_itself(notified: Shop) -> None:
    psql = notified.psql
    create(psql, queue=None)
    shown = "select parent_class, parent_class_desc, parent_id, is_fan_in from broker.event_notifications"
    assert psql.rows(shown) == [(0, "DATABASE", 0, False)]
    dialog = psql.dialog()
    psql.send(dialog)
    assert told_of(emit(psql)) == [("warehouse", "n")]
    psql.send(psql.handle_of(dialog), "ack")
    assert told_of(emit(psql)) == [("shop", "n")], "the warehouse was told of already"
    psql.rows(
        "select broker.create_queue('newer'); select broker.create_service('//newer', 'newer', '{DEFAULT}')"
    )
    psql.rows("select broker.send(broker.begin_dialog('//shop', '//newer'))")
    assert told_of(emit(psql)) == [("newer", "n")], "a queue that was created later"
    assert psql.value("select count(*) from public.notifications") == 3
    psql.rows(LATER.format("6 s"))
    assert told_of(emit(psql)) == [("newer", "n"), ("shop", "n"), ("warehouse", "n")]
    assert emit(psql) == [], "events are no reason for events"
    watched = "select state from broker.dm_broker_queue_monitors where queue_id = %s"
    assert psql.rows(
        watched, psql.value("select object_id from broker.service_queues where name = 'shop'")
    ) == [("NOTIFIED",)]
    psql.rows("create procedure public.read() language plpgsql as 'begin end'")
    psql.rows(
        "select broker.alter_queue('shop', activation_procedure => 'public.read', max_queue_readers => 1)"
    )
    psql.rows(LATER.format("12 s"))
    assert told_of(emit(psql)) == [("newer", "n"), ("warehouse", "n")], "the shop starts its own readers"
    psql.rows("select broker.drop_event_notification('n')")
    assert emit(psql) == []


def test_row_169_equal_notifications_with_fan_in_are_told_of_an_event_once(notified: Shop) -> None:
    psql = notified.psql
    for name, queue, is_merged in (
        ("first", "warehouse", True),
        ("second", "warehouse", True),
        ("all", None, True),
        ("apart", "warehouse", False),
    ):
        create(psql, name=name, queue=queue, fan_in=is_merged)
    create(psql, name="other", to_service="//elsewhere", fan_in=True)
    dialog = psql.dialog()
    psql.send(dialog)
    told = [("warehouse", name) for name in ("apart", "first", "other")]
    assert told_of(emit(psql)) == told
    psql.send(psql.handle_of(dialog), "ack")
    assert told_of(emit(psql)) == [("shop", "all")], "nobody else is told of this queue"
    psql.rows("select broker.drop_event_notification('first')")
    psql.rows(LATER.format("6 s"))
    assert told_of(emit(psql)) == [
        ("shop", "all"),
        ("warehouse", "apart"),
        ("warehouse", "other"),
        ("warehouse", "second"),
    ]


def test_row_169_a_notification_of_the_database_hears_of_any_queue_that_rollbacks_turn_off(
    notified: Shop,
) -> None:
    psql = notified.psql
    create(psql, "BROKER_QUEUE_DISABLED", queue=None)
    psql.send(psql.dialog(), "order", b"poison")
    reader = notified.session(autocommit=False)
    for _ in range(5):
        assert reader.bodies() == [b"poison"]
        reader.connection.rollback()
    psql.rows("select broker_private.settle_poison()")
    ((_, _, body),) = psql.receive("notifications")
    assert b"<ObjectName>warehouse</ObjectName>" in (body or b"")


def test_only_the_owner_of_the_database_hears_of_all_its_queues(notified: Shop) -> None:
    psql = notified.psql
    role = notified.database.role()
    psql.rows("select broker.alter_authorization('QUEUE', 'warehouse', %s::name)", role)
    psql.rows("select broker.grant('SEND', 'SERVICE', '//activator', %s::name)", role)
    clerk = notified.session(user=role)
    statement = "select broker.create_event_notification('n', {}, 'QUEUE_ACTIVATION', '//activator')"
    assert clerk.refused(statement.format("null")) == "S0229"
    create(psql, queue=None)
    assert clerk.rows("select name from broker.event_notifications") == []
    assert clerk.refused("select broker.drop_event_notification('n')") == "S0229"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ("'', 'warehouse', 'QUEUE_ACTIVATION', '//activator'", "S0153"),
        ("null, 'warehouse', 'QUEUE_ACTIVATION', '//activator'", "S0153"),
        ("repeat('n', 129), 'warehouse', 'QUEUE_ACTIVATION', '//activator'", "S0103"),
        ("'n', 'nowhere', 'QUEUE_ACTIVATION', '//activator'", "S0208"),
        ("'n', '', 'QUEUE_ACTIVATION', '//activator'", "S0208"),
        ("'n', 'warehouse', 'QUEUE_ACTIVATION', '//activator', fan_in => null", "S0153"),
        ("'n', 'EventNotificationErrorsQueue', 'QUEUE_ACTIVATION', '//activator'", "S0208"),
        ("'n', 'warehouse', 'CREATE_TABLE', '//activator'", "S0153"),
        ("'n', 'warehouse', 'QUEUE_ACTIVATION, CREATE_TABLE', '//activator'", "S0153"),
        ("'n', 'warehouse', 'QUEUE_ACTIVATION,', '//activator'", "S0153"),
        ("'n', 'warehouse', '', '//activator'", "S0153"),
        ("'n', 'warehouse', null, '//activator'", "S0153"),
        ("'n', 'warehouse', 'QUEUE_ACTIVATION', ''", "S8421"),
        ("'n', 'warehouse', 'QUEUE_ACTIVATION', null", "S8421"),
        ("'n', 'warehouse', 'QUEUE_ACTIVATION', '//activator', 'no guid'", "S8413"),
        ("'taken', 'warehouse', 'QUEUE_ACTIVATION', '//activator'", "S2714"),
    ],
)
def test_what_can_t_be_notified_is_refused(notified: Shop, arguments: str, error: str) -> None:
    create(notified.psql, name="taken")
    assert notified.psql.refused(f"select broker.create_event_notification({arguments})") == error


def test_row_169_a_queue_that_rollbacks_have_disabled_is_reported(notified: Shop) -> None:
    psql = notified.psql
    create(psql, "BROKER_QUEUE_DISABLED")
    psql.send(psql.dialog(), "order", b"poison")
    reader = notified.session(autocommit=False)
    for _ in range(5):
        assert reader.bodies() == [b"poison"]
        reader.connection.rollback()
    psql.rows("select broker_private.settle_poison()")
    ((kind, _, body),) = psql.receive("notifications")
    assert kind == EVENT
    assert b"<EventType>BROKER_QUEUE_DISABLED</EventType>" in (body or b"")
    assert b"<ObjectName>warehouse</ObjectName>" in (body or b"")
