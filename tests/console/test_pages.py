"""What the pages show, in a browser."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
from selenium.webdriver.common.by import By

from tests.console.browsing import enter, reader_of, seen, sent
from tests.console.conftest import PASSWORD, Site
from tests.console.visitor import Answer, Visitor
from tests.shop import Session, until

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

LARGE = 100_000_000


def test_a_role_sees_the_queues_that_it_may_receive_from(site: Site, visitor: Visitor) -> None:
    sent(site, b"an order")
    overview = visitor.login(reader_of(site, "warehouse"), PASSWORD)
    assert "/queue/warehouse" in overview.text
    assert "/queue/shop" not in overview.text
    assert visitor.get("/database/1/queue/warehouse").status == 200
    assert visitor.get("/database/1/queue/shop").status == 404
    assert visitor.get("/database/2/queue/warehouse").status == 404


def test_from_a_problem_to_a_message_by_clicking(site: Site, console: str, chromium: Chrome) -> None:
    sent(site, b'{"id": 7}')
    with site.database.connect() as session:
        session.execute("select broker.alter_queue('shop', status => false)")
    enter(chromium, console, site.role("superuser"))
    seen(chromium, "select broker.alter_queue('shop', status => true)")
    chromium.find_element(By.LINK_TEXT, "warehouse").click()
    seen(chromium, "Activation log")
    chromium.find_element(By.CSS_SELECTOR, "tbody th a").click()
    seen(chromium, "shown as json")
    assert chromium.find_element(By.ID, "body").text == '{\n  "id": 7\n}'
    chromium.find_element(By.LINK_TEXT, "hex").click()
    seen(chromium, "7b 22 69 64")


def test_a_body_is_shown_and_never_run(site: Site, console: str, chromium: Chrome) -> None:
    script = b"<script>document.title = 'run'</script><img src=x onerror=\"document.title = 'run'\">"
    sent(site, script, b"\x00\x01binary\xff")
    enter(chromium, console, reader_of(site, "warehouse"))
    chromium.get(f"{console}/database/1/queue/warehouse")
    links = [one.get_attribute("href") for one in chromium.find_elements(By.CSS_SELECTOR, "tbody th a")]
    chromium.get(str(links[0]))
    assert chromium.find_element(By.ID, "body").text == script.decode()
    assert "run" not in chromium.title
    chromium.get(str(links[1]))
    assert "00 01 62 69" in chromium.find_element(By.ID, "body").text


def test_of_a_large_body_the_start_is_shown(site: Site, visitor: Visitor) -> None:
    with site.database.connect() as connection:
        session = Session(connection)
        dialog = session.dialog()
        session.rows("select broker.send(%s, 'order', repeat('x', %s))", dialog, LARGE)
        order = session.value("select queuing_order from warehouse")
    visitor.login(reader_of(site, "warehouse"), PASSWORD)
    page = visitor.get(f"/database/1/message/5/{order}/warehouse")
    assert f"{LARGE:,} bytes" in page.text
    assert "Only the first 65,536 bytes" in page.text
    assert len(page.text) < 100_000


def test_a_body_that_writes_what_is_no_text_is_shown_as_it_is_written(site: Site, visitor: Visitor) -> None:
    """Half a surrogate pair is no text, and a mark of direction would let the rest of the page be read backwards."""
    sent(site, rb'{"half":"\ud800","backwards":"\u202e"}')
    visitor.login(reader_of(site, "warehouse"), PASSWORD)
    (order,) = shown(visitor.get("/database/1/queue/warehouse"))
    page = visitor.get(f"/database/1/message/5/{order}/warehouse")
    assert page.status == 200
    assert r"\ud800" in page.text
    assert r"\u202e" in page.text
    assert "\u202e" not in page.text


def test_pages_are_the_same_however_the_database_writes_dates(site: Site, visitor: Visitor) -> None:
    with site.database.connect() as session:
        session.execute(f"alter database {site.database.name} set datestyle = 'German, DMY'".encode())
    sent(site, b"{}")
    visitor.login(reader_of(site, "warehouse"), PASSWORD)
    assert "warehouse" in visitor.get("/").text
    assert len(shown(visitor.get("/database/1/queue/warehouse"))) == 1


def test_a_full_queue_is_read_page_by_page(site: Site, visitor: Visitor) -> None:
    with site.database.connect() as connection:
        session = Session(connection)
        session.rows(
            "select broker.send_batch(%s, 'order', array_fill('x'::bytea, '{3000}'))", session.dialog()
        )
        first, last = session.rows("select min(queuing_order), max(queuing_order) from warehouse")[0]
    visitor.login(reader_of(site, "warehouse"), PASSWORD)
    page = visitor.get("/database/1/queue/warehouse")
    assert "more than 1,000" in page.text
    assert shown(page) == list(range(first, first + 50)), "they are those that RECEIVE returns first"
    following = re.findall(r'href="([^"]+after=[^"]+)"', page.text)[0]
    assert shown(visitor.get(following)) == list(range(first + 50, first + 100))
    end = visitor.get(f"/database/1/queue/warehouse?after=5-{last - 1}")
    assert (shown(end), "The next" in end.text) == ([last], False)
    assert "1 bytes" in visitor.get(f"/database/1/message/5/{last}/warehouse").text
    for place in (f"5/{last + 1}", f"4/{first}", f"11/{first}", f"5/{2**63}"):
        assert visitor.get(f"/database/1/message/{place}/warehouse").status == 404
    for after in ("x", "5-", "-5", "5-1-1", "11-1", f"5-{2**63}", "9" * 100, "٣-1\0"):
        assert visitor.get(f"/database/1/queue/warehouse?after={quote(after)}").status == 200, after


def shown(page: Answer) -> list[int]:
    return [int(order) for order in re.findall(r"/message/5/(\d+)/warehouse", page.text)]


# An open page may ask every minute only, where readings are slow.
@pytest.mark.timeout(900)
def test_a_page_lives_on_when_its_database_comes_back(site: Site, console: str, chromium: Chrome) -> None:
    role = reader_of(site, "warehouse")
    visitor = Visitor(console)
    visitor.login(role, PASSWORD)
    enter(chromium, console, role)
    chromium.get(f"{console}/database/1/queue/warehouse")
    name = site.database.name
    with site.outside() as other:
        other.execute(f'alter database "{name}" allow_connections false'.encode())
        other.execute("select pg_terminate_backend(pid) from pg_stat_activity where datname = %s", (name,))
    seen(chromium, "No answer from the database")
    until(lambda: "/queue/warehouse" not in visitor.get().text)
    with site.outside() as other:
        other.execute(f'alter database "{name}" allow_connections true'.encode())
    sent(site, b"while it was open")
    seen(chromium, "Ready: 1.")
    seen(chromium, "Incomplete: 0.")
    assert "No answer" not in chromium.find_element(By.TAG_NAME, "body").text
    assert "/queue/warehouse" in visitor.get().text


def test_the_overview_says_which_way_a_queue_goes(site: Site, visitor: Visitor) -> None:
    def row(page: Answer) -> str:
        return re.findall(r"/queue/warehouse\".*?</tr>", page.text, re.DOTALL)[0]

    dialog = sent(site, *[b"x"] * 40)
    assert "<svg" not in row(visitor.login(reader_of(site, "warehouse"), PASSWORD)), "one reading has no line"
    with site.database.connect() as connection:
        session = Session(connection)
        session.send(dialog, "order", b"y")
        until(lambda: "grows" in row(visitor.get()))
        assert len(session.receive("warehouse", top=30)) == 30
    until(
        lambda: (
            re.search(r"<td[^>]*>-[0-9.]+/s</td>\s*<td[^>]*>\s*[0-9]+ (s|min)", row(visitor.get()))
            is not None
        )
    )
    assert "from 11 to 41" in row(visitor.get())
    page = visitor.get("/database/1/queue/warehouse").text
    assert re.search(r"Empty in: [0-9]+ (s|min)", page) is not None


def test_a_queue_says_who_holds_its_groups(site: Site, visitor: Visitor) -> None:
    sent(site, b"held")
    visitor.login(site.role("superuser"), PASSWORD)
    assert "<td>nobody</td>" in visitor.get("/database/1/queue/warehouse").text
    with site.database.connect() as connection:
        reader = Session(connection)
        reader.rows("begin")
        reader.rows("select from broker.receive('warehouse', top => 1)")
        pid = reader.value("select pg_backend_pid()")
        page = visitor.get("/database/1/queue/warehouse").text
    assert f"pid {pid} (idle in transaction)" in page
    assert "<td>nobody</td>" not in page
