"""Every page and action in a browser, beside two databases with workers and an application that never pauses.

The file's tests share one set-up. At its end everything that was sent was handled, once.
"""

from __future__ import annotations

import http.server
import re
import threading
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from selenium.webdriver.common.by import By

from tests.console.browsing import Clicks, click, enter, opened, seen, shown_text
from tests.console.conftest import running_console, started_chromium
from tests.console.loaded import Loaded, loaded
from tests.console.visitor import Visitor
from tests.patience import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from selenium.webdriver import Chrome

    from pybroker.embedded import EmbeddedServer

SHOP, WAREHOUSE = "/database/1", "/database/2"
CLICKS = 5
LARGE = 100_000_000


@pytest.fixture(scope="module")
def live(
    tmp_path_factory: pytest.TempPathFactory, server_for: Callable[[str, int], EmbeddedServer]
) -> Iterator[Loaded]:
    with loaded(tmp_path_factory.mktemp("sites"), server_for) as found:
        yield found


@pytest.fixture(scope="module")
def address(live: Loaded) -> Iterator[str]:
    """The console of both databases, which may write."""
    with running_console(*live.urls, may_write=True) as found:
        yield found


@pytest.fixture(scope="module")
def owner(live: Loaded) -> str:
    return live.role("superuser")


@pytest.fixture(scope="module")
def cookie(chromium: Chrome, address: str, owner: str) -> dict[str, Any]:
    """Of a superuser's session: an address may log in but a few times in a minute."""
    enter(chromium, address, owner)
    (found,) = [one for one in chromium.get_cookies() if one["name"] == "pybroker_console"]
    return {name: found[name] for name in ("name", "value", "path", "sameSite", "httpOnly")}


@pytest.fixture
def inside(chromium: Chrome, address: str, cookie: dict[str, Any]) -> Chrome:
    """A browser that is logged in as a superuser."""
    chromium.get(f"{address}/login")
    chromium.delete_all_cookies()
    chromium.add_cookie(cookie)
    chromium.get(f"{address}/")
    seen(chromium, "Overview")
    return chromium


# The first of the file: an open page asks the more seldom the more pages are read, and the load goes on meanwhile.
@pytest.mark.timeout(900)
def test_an_open_page_of_a_queue_shows_what_comes(chromium: Chrome, address: str, live: Loaded) -> None:
    # A role of its own: the pages of one that looked at much are read seldom.
    inside = chromium
    enter(inside, address, live.role("superuser"))
    # A session's first readings are the slow ones: by them the page would ask a minute later.
    for page in ("/", "/", f"{WAREHOUSE}/queue/side", f"{WAREHOUSE}/queue/side"):
        opened(inside, f"{address}{page}", "Activation log" if "queue" in page else "Overview")
    far = live.arrived(live.sent(b"while the page is open"))
    seen(inside, str(far))
    live.warehouse.psql.rows("select from broker.receive('side', conversation_handle => %s)", far)
    until(lambda: str(far) not in shown_text(inside))


def test_the_overview_and_the_picture_show_what_flows(inside: Chrome, address: str, live: Loaded) -> None:
    for site in (live.shop, live.warehouse):
        seen(inside, site.name)
    until(lambda: len(re.findall(r"In [1-9][\d.,]*/s", shown_text(inside))) == 2)
    assert shown_text(inside).count("a worker serves it") == 2
    # The picture has what is open now, and the application's own conversations may have just ended.
    far = live.arrived(live.sent(b"a conversation that goes on"))
    click(inside, "Topology")
    seen(inside, "LOGGED_IN")
    seen(inside, "days left")
    links = inside.find_elements(By.CSS_SELECTOR, "svg.picture path.link")
    assert links, "the shop talks to the warehouse"
    seen(inside, f"tcp://127.0.0.1:{live.warehouse.port}")
    live.warehouse.psql.rows("select from broker.receive('side', conversation_handle => %s)", far)


def test_a_conversation_shows_both_ends_its_route_its_security_and_why(
    inside: Chrome, address: str, live: Loaded
) -> None:
    sealed = live.sent(b"one", b"two", to="//sealed", encryption=True)
    far = live.arrived(sealed, 2)
    inside.get(f"{address}{SHOP}/conversation/{sealed}")
    seen(inside, f"tcp://127.0.0.1:{live.warehouse.port}")
    assert said(inside, "Security") == "encryption on, far user warehouse_user"
    assert said(inside, "Route") == f"//sealed: tcp://127.0.0.1:{live.warehouse.port}"
    seen(inside, "diagnose finds nothing that keeps it")
    line = inside.find_element(By.CSS_SELECTOR, "table.line").text
    assert f"(//shop, {live.shop.name})" in line
    assert f"(//sealed, {live.warehouse.name})" in line
    # A route to another broker is not taken, as this one has answered.
    elsewhere = "select broker.create_route('elsewhere', 'tcp://127.0.0.1:2', service_name => '//shop', broker_instance => %s)"
    live.warehouse.psql.rows(elsewhere, str(uuid4()))
    inside.get(f"{address}{WAREHOUSE}/conversation/{far}")
    seen(inside, "Time line")
    assert said(inside, "Security") == "encryption on, far user shop_user"
    assert said(inside, "Route") == f"//shop: tcp://127.0.0.1:{live.shop.port}"
    live.warehouse.psql.rows("select broker.drop_route('elsewhere')")
    clear = live.sent(b"three")
    live.arrived(clear)
    inside.get(f"{address}{SHOP}/conversation/{clear}")
    seen(inside, "Time line")
    assert said(inside, "Security").startswith("encryption off")
    live.warehouse.psql.rows("select from broker.receive('side')")


def test_every_page_of_both_databases_is_shown_under_load(inside: Chrome, address: str) -> None:
    for base in (SHOP, WAREHOUSE):
        for name, shows in {
            "transmission": "By destination and reason",
            "quarantine": "that were set aside",
            "leaks": "Largest tables",
            "definitions": "Send a test message",
            "actions": "Result",
        }.items():
            inside.get(f"{address}{base}/{name}")
            seen(inside, shows)
            assert "No answer" not in shown_text(inside)


def test_two_people_redrive_the_same_at_once_and_one_is_told_so(
    inside: Chrome, address: str, live: Loaded
) -> None:
    handles = [str(handle) for handle in live.quarantined(2, "broken by two")]
    with started_chromium() as other:
        enter(other, address, live.role("superuser"))
        people = [inside, other]
        for one in people:
            one.get(f"{address}{WAREHOUSE}/quarantine?error=by two")
            click(one, "Redrive what is shown (2)")
            seen(one, "2 statements, each in a transaction of its own")
        together = threading.Barrier(2)

        def do(one: Chrome) -> None:
            together.wait(60)
            click(one, "Do it")
            seen(one, "Overview")

        threads = [threading.Thread(target=do, args=(one,)) for one in people]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        told = [
            (item.text.startswith("Done"), next(handle for handle in handles if handle in item.text))
            for one in people
            for item in one.find_elements(By.CSS_SELECTOR, "ul.findings li")
        ]
    assert sorted(told) == sorted((is_done, handle) for handle in handles for is_done in (False, True))
    noted = "select object, left(result, 7) from broker.console_actions where action = 'redrive' and object = any(%s)"
    assert sorted(live.warehouse.psql.rows(noted, handles)) == sorted(
        (handle, result) for handle in handles for result in ("done: 1", "refused")
    )
    assert live.warehouse.psql.rows("select from broker.quarantine") == []
    live.warehouse.psql.rows("select from broker.receive('side')")


def test_what_was_set_aside_is_discarded_by_clicking(inside: Chrome, address: str, live: Loaded) -> None:
    (handle,) = live.quarantined(1, "beyond repair")
    inside.get(f"{address}{WAREHOUSE}/quarantine?error=beyond")
    click(inside, "Discard the failed messages of what is shown (1)")
    seen(inside, "This loses messages or ends conversations")
    assert live.warehouse.psql.value("select count(*) from broker.quarantine") == 1, "it was asked for only"
    click(inside, "Do it")
    seen(inside, "Done")
    assert live.warehouse.psql.rows("select from broker.quarantine") == []
    assert live.warehouse.psql.rows("select from side where conversation_handle = %s", handle) == []


def test_queue_and_activation_are_turned_off_and_on_by_clicking(
    inside: Chrome, address: str, live: Loaded
) -> None:
    live.warehouse.psql.rows("create procedure public.idle() language plpgsql as 'begin null; end'")
    live.warehouse.psql.rows("select broker.create_queue('switched')")
    live.warehouse.psql.rows(
        "select broker.alter_queue('switched', activation_procedure => 'public.idle', max_queue_readers => 1,"
        " activation_status => true)"
    )
    is_so = (
        "select is_receive_enabled, is_activation_enabled from broker.service_queues where name = 'switched'"
    )
    for words, state in {
        "Turn the queue off": (False, True),
        "Turn activation off": (False, False),
        "Turn activation on": (False, True),
        "Turn the queue on": (True, True),
    }.items():
        inside.get(f"{address}{WAREHOUSE}/queue/switched")
        click(inside, words)
        seen(inside, "broker.alter_queue('switched'")
        click(inside, "Do it")
        seen(inside, "Done")
        assert live.warehouse.psql.rows(is_so) == [state]


def test_a_test_message_is_watched_on_its_way_to_the_other_database(
    inside: Chrome, address: str, live: Loaded
) -> None:
    inside.get(f"{address}{SHOP}/definitions")
    for name, value in {
        "what": "//shop",
        "to": "//sealed",
        "contract": "ordering",
        "type": "order",
        "body": "?",
    }.items():
        inside.execute_script(
            "document.querySelector(`[name=${arguments[0]}]`).value = arguments[1]", name, value
        )
    inside.execute_script("document.querySelector('[name=trace]').checked = true")
    click(inside, "Show the statement")
    seen(inside, "broker.begin_dialog('//shop', '//sealed', 'ordering')")
    click(inside, "Do it")
    seen(inside, "Done")
    click(inside, "Watch its journey")
    seen(inside, f"(//sealed, {live.warehouse.name})")
    live.warehouse.psql.received(1, "side")


def test_definitions_of_one_database_are_imported_into_the_other(
    inside: Chrome, address: str, live: Loaded
) -> None:
    inside.get(f"{address}{SHOP}/definitions")
    text = "select broker.create_message_type(name => 'imported');"
    inside.execute_script("document.querySelector('textarea').value = arguments[0]", text)
    click(inside, "Show the plan")
    seen(inside, "create_message_type")
    click(inside, "Do it")
    seen(inside, "Done")
    assert live.shop.psql.rows("select from broker.service_message_types where name = 'imported'") == [()]


def test_a_script_a_binary_and_a_large_body_are_shown_and_never_run(
    inside: Chrome, address: str, live: Loaded
) -> None:
    script = b"<script>document.title = 'run'</script><img src=x onerror=\"document.title = 'run'\">"
    binary = bytes(range(256))
    far = live.arrived(live.sent(script, binary), 2)
    session = live.warehouse.psql
    session.rows("select broker.create_service('//near', 'side')")
    near = session.value("select broker.begin_dialog('//near', '//side', 'ordering', encryption => false)")
    session.rows("select broker.send(%s, 'order', repeat('x', %s))", near, LARGE)
    orders = [
        order
        for handle in (far, session.handle_of(near))
        for (order,) in session.rows(
            "select queuing_order from side where conversation_handle = %s order by queuing_order", handle
        )
    ]
    pages = []
    for order in orders:
        opened(inside, f"{address}{WAREHOUSE}/message/5/{order}/side", "shown as")
        assert "run" not in inside.title
        pages.append(str(inside.execute_script("return document.getElementById('body').textContent")))
    assert pages[0] == script.decode()
    assert "00 01 02 03" in pages[1]
    assert pages[2] == "x" * 65_536
    assert f"{LARGE:,} bytes" in shown_text(inside)
    for handle in (far, session.handle_of(near)):
        session.rows("select from broker.receive('side', conversation_handle => %s)", handle)


def test_a_role_that_may_not_see_a_queue_finds_no_way_to_it(
    chromium: Chrome, address: str, live: Loaded
) -> None:
    far = live.arrived(live.sent(b"not for the clerk"))
    ((order,),) = live.warehouse.psql.rows(
        "select queuing_order from side where conversation_handle = %s", far
    )
    clerk = live.role()
    live.warehouse.psql.rows("select broker.grant('RECEIVE', 'QUEUE', 'warehouse', %s::name)", clerk)
    enter(chromium, address, clerk)
    seen(chromium, "This role sees some of the queues only")
    links = {one.get_attribute("href") for one in chromium.find_elements(By.CSS_SELECTOR, "tbody th a")}
    assert links == {f"{address}{WAREHOUSE}/queue/warehouse"}
    other = "select min(conversation_handle::text) from broker.conversation_endpoints"
    for place in (
        "queue/side",
        f"message/5/{order}/side",
        f"conversation/{far}",
        f"conversation/{live.shop.psql.value(other)}",
    ):
        chromium.get(f"{address}{WAREHOUSE}/{place}")
        seen(chromium, "Not found")
    chromium.get(f"{address}{WAREHOUSE}/act?do=queue_off&what=side")
    click(chromium, "Do it")
    seen(chromium, "Refused")
    assert live.warehouse.psql.value(
        "select is_receive_enabled from broker.service_queues where name = 'side'"
    )
    live.warehouse.psql.rows("select from broker.receive('side', conversation_handle => %s)", far)


def test_a_forged_session_and_a_foreign_form_do_nothing_in_a_browser(
    inside: Chrome, address: str, live: Loaded, tmp_path: Path
) -> None:
    is_on = "select is_receive_enabled from broker.service_queues where name = 'side'"
    inside.get(f"{address}{WAREHOUSE}/act?do=queue_off&what=side")
    inside.execute_script("document.querySelector('main [name=token]').value = 'forged'")
    click(inside, "Do it")
    seen(inside, "Refused")
    form = f"""<form method="post" action="{address}{WAREHOUSE}/act"><input name="do" value="queue_off">
<input name="what" value="side"><button>Win a prize</button></form>"""
    (tmp_path / "prize.html").write_text(f"<main>{form}</main>")
    with served(tmp_path) as elsewhere:
        inside.get(f"{elsewhere}/prize.html")
        click(inside, "Win a prize")
        # The cookie does not come along, so nobody is logged in.
        seen(inside, "Password")
    inside.get(f"{address}/")
    seen(inside, "Overview")
    cookie = inside.get_cookie("pybroker_console")
    assert cookie is not None
    inside.delete_all_cookies()
    head, _, signature = cookie["value"].rpartition(".")
    inside.add_cookie({"name": cookie["name"], "value": f"{head}.{'A' * len(signature)}"})
    inside.get(f"{address}{WAREHOUSE}/queue/side")
    seen(inside, "Password")
    assert live.warehouse.psql.value(is_on)


@pytest.mark.parametrize(
    "number", [101, *(pytest.param(one, marks=pytest.mark.nightly) for one in (106, 202, 303, 401))]
)
def test_a_fault_is_found_and_mended_by_clicking(
    inside: Chrome, address: str, live: Loaded, number: int, record_property: Callable[[str, object], None]
) -> None:
    """The clicks, counted from the overview, are in the report of the tests."""
    site, planted, way, mended = FAULTS[number]
    handle = planted(live)
    clicks = Clicks(inside)
    # Not only once: what was read a moment before is shown again, and an open page under load asks a minute later.
    opened(inside, f"{address}/", f" {number}: ")
    for text, shown in way:
        clicks.click(str(handle) if text == "handle" else text)
        seen(inside, shown)
    record_property("clicks", f"{number}: {', '.join(clicks.made)}")
    assert len(clicks.made) <= CLICKS
    if number == 303:
        seen(inside, f"{number}: //nowhere")
        live.shop.route("//nowhere", live.warehouse)
    assert getattr(live, site).psql.rows(mended) == [(True,)]
    if number == 303:
        live.shop.psql.rows("select broker.end_conversation(%s, cleanup => true)", handle)
        live.shop.psql.rows("select broker.drop_route('//nowhere')")
    live.warehouse.psql.rows("select from broker.receive('side')")
    live.flows()


def _turned_off(live: Loaded) -> None:
    live.warehouse.psql.rows("select broker.create_queue('turned off')")
    live.warehouse.psql.rows("select broker.alter_queue('turned off', status => false)")


# Where it is planted; how; what is clicked, and what the page then shows; what holds when it is mended.
FAULTS = {
    101: (
        "shop",
        lambda live: live.shop.psql.rows("select broker.alter_broker('DISABLE_BROKER')"),
        [("Run it", "ENABLE_BROKER"), ("Do it", "Done")],
        "select is_broker_enabled from broker.databases",
    ),
    106: (
        "shop",
        lambda live: live.shop.psql.rows("alter table broker_private.messages set (autovacuum_enabled = false)"),
        [("Leaks and bloat of", "Largest tables"), ("Run it", "reset"), ("Do it", "Done")],
        "select not 'autovacuum_enabled=false' = any (coalesce(reloptions, '{}')) from pg_class"
        " where oid = 'broker_private.messages'::regclass",
    ),
    202: (
        "warehouse",
        _turned_off,
        [("Queue turned off", "Activation log"), ("Run it", "status => true"), ("Do it", "Done")],
        "select is_receive_enabled from broker.service_queues where name = 'turned off'",
    ),
    303: (
        "shop",
        lambda live: live.sent(b"lost", to="//nowhere"),
        [("Transmission of", "By destination and reason"), ("handle", "Why it is here")],
        "select true",
    ),
    401: (
        "warehouse",
        lambda live: live.quarantined()[0],
        [("Conversation", "no such item"), ("Run it", "broker.redrive("), ("Do it", "Done")],
        "select not exists (select from broker.quarantine)",
    ),
}  # fmt: skip


# Each step may wait for a page that asks every minute only, as one does whose readings are slow.
@pytest.mark.timeout(900)
@pytest.mark.nightly
def test_an_open_page_lives_on_when_a_server_crashes_and_comes_back(
    chromium: Chrome, address: str, live: Loaded
) -> None:
    enter(chromium, address, live.role("superuser"))
    (cookie,) = [
        f"pybroker_console={one['value']}"
        for one in chromium.get_cookies()
        if one["name"] == "pybroker_console"
    ]
    visitor = Visitor(address)

    def overview() -> str:
        return visitor.get("/", cookie).text

    opened(chromium, f"{address}{WAREHOUSE}/queue/side", "Activation log")
    live.warehouse.server.kill()
    seen(chromium, "No answer from the database; what is shown is old")
    assert "Activation log" in shown_text(chromium), "what was read stays"
    page = overview()
    assert "be reached" in page
    assert "/database/1/queue/shop" in page, "the other database is still shown"
    live.warehouse.server.start()
    live.warehouse.reconnect()
    far = live.arrived(live.sent(b"after the crash"))
    seen(chromium, str(far))
    until(lambda: "No answer" not in shown_text(chromium))
    until(lambda: overview().count("a worker serves it") == 2)
    live.flows()
    live.warehouse.psql.rows("select from broker.receive('side')")


def said(chromium: Chrome, term: str) -> str:
    """What a list of terms says of one."""
    return " ".join(
        chromium.find_element(By.XPATH, f"//dt[.='{term}']/following-sibling::dd[1]").text.split()
    )


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder's files from another origin."""
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        # Another site for cookies, not only another port.
        yield f"http://localhost:{server.server_port}"
        server.shutdown()
        thread.join(10)
