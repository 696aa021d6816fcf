"""What a partner may send that no honest broker would: a dialog without an end, and Errors of any content.

The test plays the far worker: it brings batches as `deliver` gets them.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest
from lxml import etree

from tests.shop import ERROR

if TYPE_CHECKING:
    from uuid import UUID

    from tests.shop import Session, Shop

FAR = uuid.UUID(int=1)
NAMESPACE = "http://schemas.microsoft.com/SQL/ServiceBroker/Error"
LONGEST = "interval '2147483647 s'"
BOMB = b"".join(
    [
        b'<!DOCTYPE Error [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>',
        f'<Error xmlns="{NAMESPACE}"><Code>1</Code><Description>&b;</Description></Error>'.encode(),
    ]
)


def error(code: object, description: str = "text", *, tail: str = "") -> bytes:
    return (
        f'<Error xmlns="{NAMESPACE}"><Code>{code}</Code><Description>{description}</Description>{tail}</Error>'
    ).encode()


def described(description: bytes) -> bytes:
    return error(1, "@").replace(b"@", description)


def bring(
    psql: Session,
    conversation: UUID,
    *,
    kind: str = "M",
    body: bytes | None = b"x",
    expiry: str = "now() + interval '1 h'",
    to_initiator: bool = False,
) -> tuple[int, int | None]:
    """Bring the first message of a side; return the number that is expected next, and the fault."""
    services = ("//far", "//shop") if to_initiator else ("//far", "//warehouse")
    ((next_numbers, codes),) = psql.rows(
        "select next_numbers, fault_codes from broker_private.deliver(%s, array[%s], array[%s], array[%s],"
        f" array[%s], array[null::uuid], '{{ordering}}', array[{expiry}]::timestamptz[], '{{false}}', array[%s],"
        " '{1}', '{1}', '{0}', %s, array[%s::bytea], '{L}', '{null}', array[null::bytea])",
        FAR,
        conversation,
        not to_initiator,
        *services,
        "ack" if to_initiator else "order",
        kind,
        body,
    )
    return next_numbers[0], codes[0]


@pytest.mark.parametrize("end", ["'294276-12-31 23:59:59+00'", "'infinity'"])
def test_a_dialog_that_says_it_has_no_end_is_seen_and_cleaned_up_as_any_other(shop: Shop, end: str) -> None:
    psql, conversation = shop.psql, uuid.uuid4()
    assert bring(psql, conversation, expiry=end) == (1, None)
    ((handle,),) = psql.rows(
        "select conversation_handle from broker.conversation_endpoints where conversation_id = %s",
        conversation,
    )
    bring(psql, conversation, kind="X", body=error(1), expiry=end)
    psql.end(handle)
    # The row stays, in case that the first message comes again: the view adds 30 minutes to the lifetime's end.
    assert psql.value("select count(security_timestamp) from broker.conversation_endpoints") == 1
    assert psql.value(f"select bool_and(lifetime <= now() + {LONGEST}) from broker.conversation_endpoints"), (
        "no lifetime is longer than the longest that begin_dialog gives"
    )


HONEST = [
    error(2147483647, "caf\u00e9 \u20ac \U0001f600 &amp; &lt;b&gt; \\ \t\n ]] '\""),
    error(-9719),
    error(5, ""),
]
STRANGE = {
    "null": None,
    "empty": b"",
    "no XML": b"Error 5: text",
    "a bomb": BOMB,
    "another namespace": error(1).replace(b"ServiceBroker", b"ServiceBreaker"),
    "no code": error(""),
    "code 0": error(0),
    "a code of words": error("one"),
    "a code too large": error(2147483648),
    "a code with a zero before it": error("01"),
    "a part too much": error(1, tail="<More/>"),
    "an element": error(1, "<b>text</b>"),
    "an entity": error(1, "&lol;"),
    "a reference": error(1, "&#0;"),
    "a bare ampersand": error(1, "a & b"),
    "a second root": error(1) + error(2),
    "a byte-order mark": b"\xef\xbb\xbf" + error(1),
    "a NUL": described(b"a\x00b"),
    "a control character": described(b"a\x01b"),
    "no UTF-8": described(b"a\xffb"),
    "an overlong form": described(b"\xc0\xaf"),
    "a surrogate": described(b"\xed\xa0\x80"),
    "U+FFFE": described(b"\xef\xbf\xbe"),
    "U+FFFF": described(b"\xef\xbf\xbf"),
    "beyond Unicode": described(b"\xf4\x90\x80\x80"),
    "half a character": described(b"a\xe2\x82"),
    "a written escape": described(b"\x01".replace(b"\x01", b"\\001\x02")),
    "a megabyte": error(1, "x" * 1_000_000),
}


def received_error(psql: Session, body: bytes | None) -> bytes:
    """Let the far side end a dialog with this body; return what its initiator receives."""
    handle = psql.value("select broker.begin_dialog('//shop', '//far', 'ordering', encryption => false)")
    psql.send(handle)
    ((conversation,),) = psql.rows(
        "select conversation_id from broker.conversation_endpoints where conversation_handle = %s", handle
    )
    bring(psql, conversation, kind="X", body=body, to_initiator=True)
    assert psql.state(handle) == "ER", "whatever its body is, an Error ends the dialog"
    ((kind, _, received),) = psql.receive("shop", conversation_handle=handle)
    assert kind == ERROR
    psql.end(handle)
    return received or b""


@pytest.fixture
def psql(shop: Shop) -> Session:
    shop.psql.rows("select broker.create_route('far', 'tcp://127.0.0.1:9', service_name => '//far')")
    return shop.psql


@pytest.mark.parametrize("body", HONEST, ids=["characters", "of the broker", "without a description"])
def test_an_error_of_the_one_shape_arrives_as_it_was_sent(psql: Session, body: bytes) -> None:
    assert received_error(psql, body) == body


@pytest.mark.parametrize("kind", STRANGE)
def test_an_error_of_any_other_shape_arrives_as_9615(psql: Session, kind: str) -> None:
    received = received_error(psql, STRANGE[kind])
    root = etree.fromstring(received, etree.XMLParser(resolve_entities=False))
    code, description = root
    assert (root.tag, code.tag, description.tag) == tuple(
        f"{{{NAMESPACE}}}{name}" for name in ("Error", "Code", "Description")
    )
    assert code.text == "-9615"
    assert description.text, "it says what happened"


def test_an_end_with_what_xml_can_t_have_is_still_xml(shop: Shop) -> None:
    psql, dialog = shop.psql, shop.psql.dialog()
    psql.send(dialog)
    psql.end(psql.handle_of(dialog), 7, "a\ufffeb\uffffc\x01d\ufffd\U0001f600")
    ((_, _, body),) = psql.receive("shop")
    assert etree.fromstring(body or b"")[1].text == "a?b?c?d\ufffd\U0001f600"
