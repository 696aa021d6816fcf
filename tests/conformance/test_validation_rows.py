"""Validation that the server leaves to a worker: VALID_XML, and all XML where it was built without libxml."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest

from tests.shop import END_DIALOG, ERROR, Session, Shop, until
from tests.validating import TRADE_ACK, TRADE_ENTRY, Worker, trade_entry

if TYPE_CHECKING:
    from collections.abc import Iterator
    from uuid import UUID

SMALL = """<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema"><xs:element name="id" type="xs:int"/></xs:schema>"""
DEFINITIONS = """
select broker.create_schema_collection('small', array[%s]);
select broker.create_message_type('label', 'VALID_XML', 'small');
select broker.create_message_type('receipt', 'VALID_XML', 'small');
select broker.create_contract('labelling', sent_by_initiator => '{label,order}', sent_by_target => '{receipt,ack}');
select broker.alter_service('//warehouse', add_contracts => '{labelling}');
"""


class Labels:
    """A contract whose messages are validated, beside the shop's own."""

    def __init__(self, shop: Shop, worker: Worker) -> None:
        self.shop = shop
        self.psql = shop.psql
        self.worker = worker
        for statement in DEFINITIONS.strip().split(";\n"):
            self.psql.rows(statement, *([SMALL] if "%s" in statement else []))

    def dialog(self) -> UUID:
        handle: UUID = self.psql.value("select broker.begin_dialog('//shop', '//warehouse', 'labelling')")
        return handle

    def queue(self, name: str = "warehouse") -> list[tuple[int, int, str]]:
        return [
            (status, number, kind)
            for status, number, kind in self.psql.rows(
                f"select status, message_sequence_number, message_type_name from {name} order by queuing_order"
            )
        ]

    def incomplete(self, queue: str = "warehouse") -> int:
        counted: int = self.psql.value(
            "select incomplete from broker.queue_depths where queue_name = %s", queue
        )
        return counted


@pytest.fixture
def labels(shop: Shop) -> Iterator[Labels]:
    with Worker(shop.database.url) as worker:
        yield Labels(shop, worker)


def error_of(body: bytes | None) -> tuple[int, str]:
    root = ET.fromstring(body or b"")
    code, description = root
    return int(code.text or ""), description.text or ""


def only_error(session: Session, queue: str = "shop") -> tuple[int, str]:
    ((kind, _, body),) = session.receive(queue)
    assert kind == ERROR
    return error_of(body)


def test_row_005_listing_15_3_a_trade_that_keeps_to_the_schema_arrives_and_another_does_not(
    shop: Shop,
) -> None:
    psql = shop.psql
    psql.rows("select broker.create_schema_collection('TradeEntrySchema', array[%s])", TRADE_ENTRY)
    psql.rows(
        "select broker.create_message_type('//www.develop.com/DMBrokerage/TradeEntry',"
        " validation => 'VALID_XML', schema_collection => 'TradeEntrySchema')"
    )
    psql.rows("select broker.create_schema_collection('TradeAckSchema', array[%s])", TRADE_ACK)
    psql.rows(
        "select broker.create_message_type('//www.develop.com/DMBrokerage/TradeAck',"
        " validation => 'VALID_XML', schema_collection => 'TradeAckSchema')"
    )
    psql.rows(
        "select broker.create_contract('//www.develop.com/DMBrokerage/EnterTrade',"
        " sent_by_initiator => array['//www.develop.com/DMBrokerage/TradeEntry'],"
        " sent_by_target => array['//www.develop.com/DMBrokerage/TradeAck'])"
    )
    psql.rows(
        "select broker.alter_service('//warehouse',"
        " add_contracts => array['//www.develop.com/DMBrokerage/EnterTrade'])"
    )
    begin = "select broker.begin_dialog('//shop', '//warehouse', '//www.develop.com/DMBrokerage/EnterTrade')"
    send = "select broker.send(%s, '//www.develop.com/DMBrokerage/TradeEntry', %s::text)"
    good, bad = psql.value(begin), psql.value(begin)
    psql.rows(send, good, trade_entry())
    psql.rows(send, bad, trade_entry(volume="many"))
    assert psql.bodies() == []
    with Worker(shop.database.url) as worker:
        worker.work()
        assert psql.bodies() == [trade_entry().encode()]
        code, description = only_error(psql)
        assert (code, "Volume" in description) == (-9616, True)
        assert (psql.state(good), psql.state(bad)) == ("CO", "ER")
        ack = '<tradeAck xmlns="http://www.develop.com/DMBrokerage/schemas/tradeAck"><OrderID>1</OrderID></tradeAck>'
        target = psql.handle_of(good)
        psql.rows("select broker.send(%s, '//www.develop.com/DMBrokerage/TradeAck', %s::text)", target, ack)
        worker.work()
        assert only_error(psql, "warehouse")[0] == -9616


def test_row_005_a_schema_collection_is_named_used_and_dropped(shop: Shop) -> None:
    psql = shop.psql
    psql.rows("select broker.create_schema_collection('small', array[%s])", SMALL)
    psql.rows("select broker.create_message_type('label', 'VALID_XML', 'small')")
    assert psql.rows(
        "select t.validation, t.validation_desc, c.name from broker.service_message_types t"
        " join broker.xml_schema_collections c using (xml_collection_id)"
    ) == [("X", "XML", "small")]
    assert psql.rows(
        "select count(*) from broker.message_type_xml_schema_collection_usages"
        " join broker.service_message_types using (message_type_id, xml_collection_id)"
    ) == [(1,)]
    refused = psql.refused
    assert refused("select broker.create_message_type('a', 'VALID_XML')") == "S0153"
    assert refused("select broker.create_message_type('a', 'WELL_FORMED_XML', 'small')") == "S0153"
    assert refused("select broker.create_message_type('a', 'VALID_XML', 'Small')") == "S0208"
    assert refused("select broker.alter_message_type('label', 'NONE', 'small')") == "S0153"
    assert refused("select broker.create_schema_collection('small', array[%s])", SMALL) == "S2714"
    assert refused("select broker.create_schema_collection('', array[%s])", SMALL) == "S0153"
    assert refused("select broker.create_schema_collection(%s, array[%s])", "n" * 129, SMALL) == "S0103"
    for documents in (None, [], [[SMALL], [SMALL]]):
        assert refused("select broker.create_schema_collection('a', %s::text[])", documents) == "S0153"
    for document in (None, "", "<a/>", SMALL + SMALL[:5], f"<!DOCTYPE a>{SMALL}"):
        if shop.has_xml_parser or document is None or "schema" not in document or "DOCTYPE" in document:
            state = refused("select broker.create_schema_collection('a', array[%s, %s])", SMALL, document)
            assert state == "S2378"
    assert refused("select broker.drop_schema_collection('small')") == "S3716"
    assert refused("select broker.drop_schema_collection('nothing')") == "S0208"
    psql.rows("select broker.drop_message_type('label')")
    psql.rows("select broker.drop_schema_collection('small')")
    assert psql.rows("select from broker.xml_schema_collections") == []


def test_row_005_only_who_may_refer_to_a_schema_collection_uses_it(shop: Shop) -> None:
    psql = shop.psql
    user = shop.database.role()
    psql.rows(f"grant create on database {shop.database.name} to {user}")
    theirs = shop.session(user=user)
    psql.rows("select broker.create_schema_collection('small', array[%s])", SMALL)
    assert theirs.refused("select broker.create_message_type('label', 'VALID_XML', 'small')") == "S0229"
    assert theirs.refused("select broker.drop_schema_collection('small')") == "S0229"
    grant = "select broker.grant('REFERENCES', 'XML SCHEMA COLLECTION', 'small', %s::name)"
    assert theirs.refused(grant, user) == "S0229"
    psql.rows(grant, user)
    theirs.rows("select broker.create_message_type('label', 'VALID_XML', 'small')")
    psql.rows("select broker.alter_authorization('XML SCHEMA COLLECTION', 'small', %s::name)", user)
    theirs.rows("select broker.drop_message_type('label'), broker.drop_schema_collection('small')")
    stranger = shop.session(user=shop.database.role())
    assert stranger.refused("select broker.create_schema_collection('a', array[%s])", SMALL) == "S0229"


def test_rows_005_026_what_waits_is_seen_and_holds_its_dialog_up(labels: Labels) -> None:
    psql = labels.psql
    held, other = labels.dialog(), labels.dialog()
    psql.send(held, "order", b"before")
    psql.send(held, "label", b"<id>1</id>")
    psql.send(held, "order", b"behind")
    psql.send(other, "order", b"other")
    assert labels.incomplete() == 2
    assert psql.value("select ready from broker.queue_depths where queue_name = 'warehouse'") == 2
    assert [row for row in labels.queue() if row[0] == 2] == [(2, 1, "label"), (2, 2, "order")]
    assert "pybroker worker" in psql.value("select broker.get_transmission_status(%s)", held)
    assert [*psql.bodies(), *psql.bodies()] == [b"before", b"other"]
    assert psql.bodies() == []
    psql.end(held)
    assert psql.state(held) == "DO"
    labels.worker.work()
    assert psql.receive() == [("label", 1, b"<id>1</id>"), ("order", 2, b"behind"), (END_DIALOG, 3, None)]
    assert (psql.state(held), labels.incomplete()) == (None, 0)
    psql.send(other, "order", b"straight again")
    assert psql.bodies() == [b"straight again"]


def test_row_005_a_worker_that_sleeps_is_woken_by_what_it_has_to_validate(labels: Labels) -> None:
    sleeper = labels.shop.session()
    # The first call begins to listen.
    for awake_on in ([0, 1, 3], []):
        assert sleeper.value("select broker_private.sleep_on_queues()") == awake_on
    labels.psql.send(labels.dialog(), "label", b"<id>1</id>")
    assert [each.channel for each in sleeper.connection.notifies(stop_after=1)] == ["pybroker_1"]
    assert sleeper.value("select broker_private.sleep_on_queues()") == [1]
    labels.worker.work()
    assert sleeper.value("select broker_private.sleep_on_queues()") == []


def test_row_005_a_dialog_goes_straight_again_once_nothing_waits(labels: Labels) -> None:
    psql = labels.psql
    dialog = labels.dialog()
    psql.send(dialog, "label", b"<id>1</id>")
    labels.worker.work()
    psql.send(dialog, "order", b"ready at once")
    assert psql.receive() == [("label", 0, b"<id>1</id>"), ("order", 1, b"ready at once")]
    assert psql.value("select broker.get_transmission_status(%s)", dialog) == ""


@pytest.mark.parametrize("body", [b"<id>many</id>", b"<other/>"], ids=["type", "element"])
def test_row_005_what_is_refused_is_never_seen_and_the_sender_hears_it(labels: Labels, body: bytes) -> None:
    psql = labels.psql
    dialog = labels.dialog()
    dtd = "select broker.send(%s, 'label', '<!-- --> <!DOCTYPE id><id>1</id>')"
    assert psql.refused(dtd, dialog) == "S8430"
    psql.send(dialog, "order", b"before")
    psql.send(dialog, "label", b"<id>1</id>")
    psql.send(dialog, "label", body)
    psql.send(dialog, "order", b"behind")
    labels.worker.work()
    assert psql.bodies() == [b"before", b"<id>1</id>"]
    assert only_error(psql)[0] == -9616
    assert psql.state(dialog) == "ER"
    assert psql.refused("select broker.send(%s, 'order')", dialog) == "S8429"
    assert psql.state(psql.handle_of(dialog)) == "CO"
    assert labels.incomplete() == 0


def test_edge_083_a_refused_first_message_leaves_nothing_at_the_target(labels: Labels) -> None:
    psql = labels.psql
    dialog = labels.dialog()
    psql.send(dialog, "label", b"<id>many</id>")
    psql.send(dialog, "order", b"behind")
    assert psql.state(psql.handle_of(dialog)) == "SI"
    labels.worker.work()
    assert psql.bodies() == []
    assert psql.value("select count(*) from broker.conversation_endpoints where not is_initiator") == 0
    assert only_error(psql)[0] == -9616
    psql.end(dialog)
    assert psql.value("select count(*) from broker.conversation_endpoints") == 0


def test_row_052_a_target_whose_first_message_is_incomplete_is_started_inbound(labels: Labels) -> None:
    psql = labels.psql
    dialog = labels.dialog()
    psql.send(dialog, "label", b"<id>1</id>")
    target = psql.handle_of(dialog)
    assert psql.state(target) == "SI"
    labels.worker.work()
    assert psql.state(target) == "CO"
    psql.send(target, "ack")
    assert psql.receive("shop") == [("ack", 0, None)]


def test_row_087_an_error_waits_for_no_incomplete_message(labels: Labels) -> None:
    psql = labels.psql
    dialog = labels.dialog()
    psql.send(dialog, "label", b"<id>1</id>")
    psql.end(dialog, 7, "changed our mind")
    ((kind, number, body),) = psql.receive()
    assert (kind, number, error_of(body)) == (ERROR, 1, (7, "changed our mind"))
    labels.worker.work()
    assert psql.receive() == [("label", 0, b"<id>1</id>")]


def test_rows_083_084_a_timer_fires_beside_an_incomplete_message(labels: Labels) -> None:
    psql = labels.psql
    dialog = labels.dialog()
    psql.send(dialog, "order")
    psql.bodies()
    target = psql.handle_of(dialog)
    psql.send(dialog, "label", b"<id>1</id>")
    psql.rows("select broker.begin_conversation_timer(%s, '0.001 s')", target)
    until(lambda: psql.value("select broker_private.fire_timers()"))
    ((kind, _, _),) = psql.receive()
    assert kind.endswith("/DialogTimer")
    assert labels.incomplete() == 1


def test_edge_078_incomplete_messages_start_nobody(labels: Labels) -> None:
    psql = labels.psql
    psql.rows("create procedure public.read() language plpgsql as 'begin end'")
    psql.rows(
        "select broker.alter_queue('warehouse', activation_procedure => 'public.read', max_queue_readers => 1)"
    )
    activations = "select count(*) from broker_private.activate_queues()"
    psql.send(labels.dialog(), "label", b"<id>1</id>")
    assert psql.value(activations) == 0
    labels.worker.work()
    assert psql.value(activations) == 1


def test_row_007_altering_a_type_leaves_what_waits_as_it_was_sent(labels: Labels) -> None:
    psql = labels.psql
    good, bad = labels.dialog(), labels.dialog()
    psql.send(good, "label", b"<id>1</id>")
    psql.send(bad, "label", b"<id>many</id>")
    psql.rows("select broker.alter_message_type('label', 'EMPTY')")
    psql.rows("select broker.alter_message_type('receipt', 'NONE')")
    assert psql.refused("select broker.drop_schema_collection('small')") == "S3716"
    labels.worker.work()
    assert psql.bodies() == [b"<id>1</id>"]
    assert only_error(psql)[0] == -9616
    psql.rows("select broker.drop_schema_collection('small')")


def test_row_005_the_end_of_a_side_takes_what_waits_for_it(labels: Labels) -> None:
    psql = labels.psql
    dialog, ended = labels.dialog(), labels.dialog()
    for handle in (dialog, ended):
        psql.send(handle, "order")
        psql.send(handle, "label", b"<id>1</id>")
    psql.end(ended)
    for handle in (dialog, ended):
        psql.end(psql.handle_of(handle))
    assert labels.incomplete() == 0
    assert (psql.state(dialog), psql.state(ended)) == ("DI", None)
    labels.worker.work()
    assert psql.bodies() == []


def test_row_021_a_queue_that_is_off_takes_nothing_that_was_validated(labels: Labels) -> None:
    psql = labels.psql
    dialog = labels.dialog()
    psql.send(dialog, "label", b"<id>1</id>")
    psql.rows("select broker.alter_queue('warehouse', status => false)")
    psql.send(dialog, "order", b"behind")
    labels.worker.work()
    assert labels.incomplete() == 1
    assert psql.value("select count(*) from broker.transmission_queue") == 1
    psql.rows("select broker.alter_queue('warehouse', status => true)")
    assert psql.receive() == [("label", 0, b"<id>1</id>"), ("order", 1, b"behind")]


def test_row_005_what_waited_for_a_queue_is_validated_before_it_is_ready(labels: Labels) -> None:
    psql = labels.psql
    psql.rows("select broker.alter_queue('warehouse', status => false)")
    good, bad = labels.dialog(), labels.dialog()
    for handle, body in ((good, b"<id>1</id>"), (bad, b"<id>many</id>")):
        psql.send(handle, "label", body)
        psql.send(handle, "order", b"behind")
        psql.end(handle)
    psql.rows("select broker.alter_queue('warehouse', status => true)")
    assert psql.bodies() == []
    assert labels.incomplete() == 6
    labels.worker.work()
    assert psql.bodies() == [b"<id>1</id>", b"behind", None]
    assert (psql.state(good), psql.state(bad)) == (None, None)


def test_row_005_a_client_may_not_call_a_message_valid(labels: Labels) -> None:
    psql = labels.psql
    psql.send(labels.dialog(), "label", b"<id>many</id>")
    user = labels.shop.session(user=labels.shop.database.role())
    for query in (
        "select broker_private.conclude_validation('{1}', '{null}', '{null}')",
        "select broker_private.release_waiting()",
        "select broker_private.messages_to_validate(1, 1, 1)",
        "select broker_private.set_schema_problem(1, 'no')",
    ):
        with pytest.raises(Exception, match="permission denied"):
            user.rows(query)


def test_row_005_a_broken_collection_says_so_and_what_waits_takes_the_next(labels: Labels) -> None:
    psql = labels.psql
    broken = SMALL.replace("xs:int", "xs:nothing")
    psql.rows("select broker.create_schema_collection('broken', array[%s])", broken)
    psql.rows("select broker.alter_message_type('label', 'VALID_XML', 'broken')")
    dialog = labels.dialog()
    psql.send(dialog, "label", b"<id>1</id>")
    labels.worker.work()
    problem = psql.value("select problem from broker.xml_schema_collections where name = 'broken'")
    assert "xs:nothing" in problem or "nothing" in problem
    assert problem in psql.value("select broker.get_transmission_status(%s)", dialog)
    assert (psql.bodies(), labels.incomplete()) == ([], 1)
    psql.rows("select broker.alter_message_type('label', 'VALID_XML', 'small')")
    labels.worker.work()
    assert psql.bodies() == [b"<id>1</id>"]
    assert psql.rows("select is_read, problem from broker.xml_schema_collections where name = 'small'") == [
        (True, None)
    ]


def test_row_004_a_server_without_a_parser_leaves_xml_to_the_worker(shop: Shop) -> None:
    psql = shop.psql
    dialog, bad = psql.dialog(), psql.dialog()
    psql.send(dialog, "invoice", b"<id>1</id>")
    psql.send(dialog, "order", b"behind")
    if shop.has_xml_parser:
        assert psql.bodies() == [b"<id>1</id>", b"behind"]
        return
    psql.send(bad, "invoice", b"<broken")
    with Worker(shop.database.url) as worker:
        worker.work()
    assert psql.bodies() == [b"<id>1</id>", b"behind"]
    assert only_error(psql)[0] == -9615


@pytest.mark.parametrize(
    ("body", "is_valid"),
    [
        (b"{}", True),
        (b' [1, "\\u00e9"] ', True),
        (b"null", True),
        (b"", False),
        (b"{", False),
        (b"{'a': 1}", False),
        (b'"\xff"', False),
        (b'"\x00"', False),
        (b"[" * 100_000, False),
    ],
)
def test_row_003_valid_json_is_checked_at_send(shop: Shop, body: bytes, is_valid: bool) -> None:
    psql = shop.psql
    psql.rows("select broker.alter_message_type('order', 'VALID_JSON')")
    dialog = psql.dialog()
    if is_valid:
        psql.send(dialog, "order", body)
        assert psql.bodies() == [body]
    else:
        assert psql.refused("select broker.send(%s, 'order', %s::bytea)", dialog, body) == "S8430"


def test_edge_081_a_body_of_no_bytes_is_null_and_null_is_refused(shop: Shop) -> None:
    psql = shop.psql
    dialog = psql.dialog()
    psql.rows("select broker.send(%s, 'order', ''::bytea)", dialog)
    psql.rows("select broker.send(%s, 'order', ''::text)", dialog)
    assert psql.refused("select broker.send(%s, 'order', null::bytea)", dialog) == "S8433"
    assert psql.bodies() == [None, None]


def test_edge_082_a_body_that_nobody_validates_arrives_as_it_is(shop: Shop) -> None:
    psql = shop.psql
    body = '<?xml version="1.0" encoding="UTF-8"?><id>1</id>'.encode("utf-16")
    psql.send(psql.dialog(), "order", body)
    assert psql.bodies() == [body]
    with pytest.raises(ET.ParseError):
        ET.fromstring(body)


def test_edge_084_a_type_without_a_body_refuses_one(shop: Shop) -> None:
    assert shop.psql.refused("select broker.send(%s, 'nudge', 'body')", shop.psql.dialog()) == "S8430"


def test_row_034_what_is_incomplete_follows_its_service_to_another_queue(labels: Labels) -> None:
    psql = labels.psql
    psql.send(labels.dialog(), "label", b"<id>1</id>")
    psql.rows("select broker.create_queue('annex')")
    psql.rows("select broker.alter_service('//warehouse', queue => 'annex')")
    assert (labels.incomplete("annex"), labels.incomplete()) == (1, 0)
    labels.worker.work()
    assert psql.bodies("annex") == [b"<id>1</id>"]


def test_row_049_a_body_that_many_conversations_share_is_validated_for_each(labels: Labels) -> None:
    psql = labels.psql
    handles = [labels.dialog(), labels.dialog()]
    body = b"<id>" + b" " * 200 + b"1</id>"
    psql.rows("select broker.send_all(%s, 'label', %s::bytea)", handles, body)
    assert (psql.bodies(), labels.incomplete()) == ([], 2)
    psql.rows("select broker_private.sweep()")
    labels.worker.work()
    assert [*psql.bodies(), *psql.bodies()] == [body, body]
