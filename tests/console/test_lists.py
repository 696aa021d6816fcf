"""Conversations, what is on its way, what was set aside, what leaks: the pages behind a problem."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING
from uuid import uuid4

from tests.activated import start_worker
from tests.console.browsing import click, enter, quarantined, queried, reader_of, seen, sent
from tests.console.conftest import PASSWORD, Site, running_console
from tests.console.visitor import Visitor
from tests.patience import PATIENCE
from tests.shop import Session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from selenium.webdriver import Chrome

FAR = """
select broker.create_message_type('order');
select broker.create_contract('ordering', sent_by_initiator => '{order}');
select broker.create_queue('far');
select broker.create_service('//far', 'far', '{ordering}');
"""


@contextmanager
def worker(*sites: Site) -> Iterator[None]:
    with start_worker(*(site.database.url for site in sites)) as process:
        try:
            yield
        finally:
            process.terminate()
            process.communicate(timeout=PATIENCE)


def test_both_ends_of_a_conversation_are_on_one_time_line(site: Site, other: Site) -> None:
    queried(other, FAR)
    with other.database.connect() as connection, worker(site, other):
        dialog = sent(site, b"one", b"two", to="//far")
        assert len(Session(connection).received(2, "far")) == 2
    role = site.role("superuser")
    with running_console(site.url, other.url) as console:
        visitor = Visitor(console)
        visitor.login(role, PASSWORD)
        near = visitor.get(f"/database/1/conversation/{dialog}")
        ((handle,),) = queried(other, "select conversation_handle from broker.conversation_endpoints")
        far = visitor.get(f"/database/2/conversation/{handle}")
    for page in (near, far):
        line = page.text[page.text.index("<h2>Time line") :]
        assert f"(//shop, {site.database.name})" in line
        assert f"(//far, {other.database.name})" in line
    times = [re.findall(r"<tr>\s*<th scope=\"row\"><time>([^<]+)", page.text) for page in (near, far)]
    assert times[0] == sorted(times[0])


def test_from_a_message_to_its_conversation_and_why_it_waits(
    site: Site, console: str, chromium: Chrome
) -> None:
    dialog = sent(site, b"lost", to="//nowhere")
    enter(chromium, console, site.role("superuser"))
    click(chromium, "Transmission of")
    seen(chromium, "By destination and reason")
    click(chromium, str(dialog))
    seen(chromium, "Why it is here")
    seen(chromium, "waits in the transmission queue: order")
    seen(chromium, "303: //nowhere")


def test_the_route_of_a_conversation_is_the_one_that_its_messages_take(site: Site, visitor: Visitor) -> None:
    """Less exact routes match too, and are not taken; nobody knows the broker of a far side that never answered."""
    route = "select broker.create_route(%s, %s, service_name => %s, broker_instance => %s)"
    queried(site, route, "exact", "tcp://127.0.0.1:1", "//far", str(uuid4()))
    queried(site, route, "any broker", "tcp://127.0.0.1:2", "//far", None)
    queried(site, route, "another service", "tcp://127.0.0.1:3", "//another", None)
    begin = "select broker.begin_dialog('//shop', %s, 'ordering', encryption => false)"
    ((named,),), ((unnamed,),) = queried(site, begin, "//far"), queried(site, begin, "//else")
    visitor.login(site.role("superuser"), PASSWORD)
    for handle, taken in {
        named: "one of exact: tcp://127.0.0.1:1; any broker: tcp://127.0.0.1:2",
        unnamed: "AutoCreatedLocal: LOCAL (for any service)",
    }.items():
        page = visitor.get(f"/database/1/conversation/{handle}").text
        (found,) = re.findall(r"<dt>Route</dt><dd>(.*?)</dd>", page, re.DOTALL)
        assert " ".join(found.split()) == taken
    visitor.login(reader_of(site, "shop"), PASSWORD)
    page = visitor.get(f"/database/1/conversation/{named}").text
    assert "none that this role may see matches" in page


def test_security_says_whether_a_conversation_is_encrypted(site: Site, visitor: Visitor) -> None:
    """Who the far side is, a worker finds out: test_under_load has one."""
    begin = "select broker.begin_dialog('//shop', '//far', 'ordering', encryption => %s)"
    ((sealed,),), ((clear,),) = queried(site, begin, True), queried(site, begin, False)
    local = sent(site, b"near")
    visitor.login(site.role("superuser"), PASSWORD)
    for handle, security in {
        sealed: "encryption on, far user not known",
        clear: "encryption off, far user not known",
        local: "within this database, nothing crosses the network",
    }.items():
        page = visitor.get(f"/database/1/conversation/{handle}").text
        assert set(re.findall(r"<dt>Security</dt><dd>(.*?)</dd>", page)) == {security}


def test_a_conversation_of_others_is_not_shown(site: Site, visitor: Visitor) -> None:
    dialog = sent(site, b"secret")
    visitor.login(site.role(), PASSWORD)
    page = visitor.get(f"/database/1/conversation/{dialog}")
    assert (page.status, "//shop" in page.text) == (404, False)
    assert visitor.get("/database/1/conversation/none").status == 404


def test_what_waits_is_chosen_by_destination_and_reason(site: Site, visitor: Visitor) -> None:
    lost, other = sent(site, b"1", to="//nowhere"), sent(site, b"2", to="//else")
    visitor.login(site.role("superuser"), PASSWORD)
    everything = visitor.get("/database/1/transmission").text
    assert f"/conversation/{lost}" in everything
    assert f"/conversation/{other}" in everything
    chosen = visitor.get("/database/1/transmission?to=//nowhere").text
    assert f"/conversation/{lost}" in chosen
    assert f"/conversation/{other}" not in chosen
    assert f"/conversation/{lost}" not in visitor.get("/database/1/transmission?to=//nowhere&reason=x").text
    visitor.login(site.role(), PASSWORD)
    assert f"/conversation/{lost}" not in visitor.get("/database/1/transmission").text


def test_what_was_set_aside_is_chosen_by_queue_type_and_error(site: Site, visitor: Visitor) -> None:
    (item,), (size,) = quarantined(site, error="no such item"), quarantined(site, error="too <b>large")
    visitor.login(reader_of(site, "warehouse"), PASSWORD)
    for query, found in {
        "": {item, size},
        "?error=such": {item},
        "?queue=warehouse&type=order&error=": {item, size},
        "?queue=shop": set(),
        "?type=ack": set(),
        "?error=%25": set(),
        "?error=a%00b": set(),
    }.items():
        text = visitor.get(f"/database/1/quarantine{query}").text
        assert {one for one in (item, size) if f"/conversation/{one}" in text} == found, query
        assert "<b>large" not in text
    visitor.login(reader_of(site, "shop"), PASSWORD)
    assert str(item) not in visitor.get("/database/1/quarantine").text


def test_the_service_that_leaks_is_named(site: Site, visitor: Visitor) -> None:
    with site.database.connect() as connection:
        session = Session(connection)
        for _ in range(3):
            dialog = session.dialog()
            session.send(dialog, "order", b"")
            session.end(dialog)
    visitor.login(site.role("superuser"), PASSWORD)
    text = visitor.get("/database/1/leaks").text
    cells = re.findall(r'<th scope="row">//warehouse</th>(.*?)</tr>', text, re.DOTALL)[0]
    assert re.findall(r"<td[^>]*>(\d+)</td>", cells)[:2] == ["3", "3"]


def test_the_definitions_make_the_same_in_another_database(site: Site, other: Site, visitor: Visitor) -> None:
    visitor.login(site.role("superuser"), PASSWORD)
    found = visitor.get("/database/1/definitions?search=warehouse").text
    assert "/queue/warehouse" in found
    assert "/queue/shop" not in found
    export = visitor.get("/database/1/definitions.sql").text
    names = "select name from broker.services union all select name from broker.service_queues order by 1"
    with other.database.connect() as session:
        session.execute(export.encode())
    assert queried(other, names) == queried(site, names)


def test_a_service_talks_to_another_in_the_picture(site: Site, visitor: Visitor) -> None:
    sent(site, b"1", to="//nowhere")
    sent(site, b"2")
    visitor.login(site.role("superuser"), PASSWORD)
    text = visitor.get("/topology").text
    assert text.count('class="link') == 2
    assert text.count('class="link waits"') == 1, "what waits is seen"
