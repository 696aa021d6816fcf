"""`pybroker.testing`: a user's tests of service programs say what went wrong, and leave nothing behind."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

import pybroker
from pybroker.testing import BrokerDatabase

if TYPE_CHECKING:
    from tests.conftest import Database

DEFINITIONS = [
    pybroker.MessageType("//shop/order"),
    pybroker.Contract("//shop/ordering", sent_by_initiator=["//shop/order"]),
    pybroker.Queue("orders"),
    pybroker.Queue("warehouse"),
    pybroker.Service("//shop/orders", queue="orders"),
    pybroker.Service("//shop/warehouse", queue="warehouse", contracts=["//shop/ordering"]),
]


@pytest.fixture
def shop(database: Database) -> BrokerDatabase:
    """A shop with three orders."""
    made = BrokerDatabase(database.url)
    with made.connect() as broker, broker.transaction():
        broker.apply(DEFINITIONS)
        dialog = broker.begin_dialog("//shop/orders", "//shop/warehouse", contract="//shop/ordering")
        dialog.send_batch("//shop/order", [1, 2, 3])
    return made


def test_messages_are_shown_in_their_order_and_stay(shop: BrokerDatabase) -> None:
    for _ in range(2):
        assert [message.json() for message in shop.messages("warehouse")] == [1, 2, 3]
    with pytest.raises(LookupError, match='"wearhouse"'):
        shop.messages("wearhouse")


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_quiet_is_committed_and_an_application_can_run_again(shop: BrokerDatabase, is_async: bool) -> None:
    app, seen = pybroker.App(shop.url), list[int]()

    def note(conversation: pybroker.ProgramConversation, number: int) -> None:
        seen.append(number)

    async def note_async(conversation: pybroker.AsyncProgramConversation, number: int) -> None:
        seen.append(number)

    app.service_program("warehouse", top=1).on("//shop/order")(note_async if is_async else note)
    shop.run_until_quiet(app)
    assert seen == [1, 2, 3]
    assert shop.messages("warehouse") == []
    shop.run_until_quiet(app)
    with shop.connect() as broker:
        dialog = broker.begin_dialog("//shop/orders", "//shop/warehouse", contract="//shop/ordering")
        dialog.send("//shop/order", 4)
    shop.run_until_quiet(app)
    assert seen == [1, 2, 3, 4]


def test_the_first_failure_ends_it_as_the_handler_raised_it(shop: BrokerDatabase) -> None:
    app, calls = pybroker.App(shop.url), list[int]()

    @app.service_program("warehouse").on("//shop/order")
    def fail(conversation: pybroker.ProgramConversation, number: int) -> None:
        calls.append(number)
        raise ZeroDivisionError(number)

    with pytest.raises(ZeroDivisionError):
        shop.run_until_quiet(app)
    assert [message.json() for message in shop.messages("warehouse")] == [1, 2, 3]


def test_what_still_waits_is_said(shop: BrokerDatabase) -> None:
    app, go_on = pybroker.App(shop.url), threading.Event()

    @app.service_program("warehouse")
    def hang(conversation: pybroker.ProgramConversation) -> None:
        go_on.wait(0.5)

    with pytest.raises(AssertionError, match='3 in "warehouse"'):
        shop.run_until_quiet(app, timeout=0.1)
    with shop.connect() as broker:
        dialog = broker.begin_dialog("//shop/orders", "//shop/warehouse", contract="//shop/ordering")
        dialog.send("//shop/order", 4)
        broker.apply([pybroker.Queue("warehouse", status=False)])
    with pytest.raises(pybroker.QueueDisabledError):
        shop.run_until_quiet(app)


def test_an_application_that_cannot_start_says_why(shop: BrokerDatabase) -> None:
    app = pybroker.App(shop.url)
    app.service_program("wearhouse")(lambda conversation: None)
    with pytest.raises(pybroker.QueueNotFound):
        shop.run_until_quiet(app)
