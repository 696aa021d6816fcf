"""What the pages show, in a browser."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from selenium.common.exceptions import TimeoutException
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from tests.console.conftest import PASSWORD, Site
from tests.console.visitor import Visitor
from tests.shop import Session, until

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

PHONE, DESK = (390, 844), (1280, 900)
LARGE = 100_000_000


def enter(chromium: Chrome, console: str, role: str) -> None:
    chromium.delete_all_cookies()
    chromium.get(f"{console}/login")
    chromium.find_element(By.ID, "role").send_keys(role)
    chromium.find_element(By.ID, "password").send_keys(PASSWORD)
    chromium.find_element(By.CSS_SELECTOR, ".login button").click()
    seen(chromium, "Overview")


def seen(chromium: Chrome, text: str) -> None:
    """Wait until the page shows a text."""

    def shows(browser: Chrome) -> bool:
        # The page may be on its way to the next.
        return text in str(browser.execute_script("return document.body ? document.body.innerText : ''"))

    try:
        WebDriverWait(chromium, 60).until(shows)
    except TimeoutException:
        shown = chromium.find_element(By.TAG_NAME, "body").text
        pytest.fail(f"{chromium.current_url} never showed {text!r}, but {shown!r}")


def sent(site: Site, *bodies: bytes) -> None:
    with site.database.connect() as connection:
        session = Session(connection)
        dialog = session.dialog()
        for body in bodies:
            session.send(dialog, "order", body)


def reader_of(site: Site, queue: str) -> str:
    role = site.role()
    with site.database.connect() as session:
        session.execute("select broker.grant('RECEIVE', 'QUEUE', %s, %s)", (queue, role))
    return role


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
    page = visitor.get(f"/database/1/message/{order}/warehouse")
    assert f"{LARGE:,} bytes" in page.text
    assert "Only the first 65,536 bytes" in page.text
    assert len(page.text) < 100_000


def test_of_a_full_queue_no_message_is_read(site: Site, visitor: Visitor) -> None:
    with site.database.connect() as connection:
        session = Session(connection)
        session.rows(
            "select broker.send_batch(%s, 'order', array_fill(''::bytea, '{1001}'))", session.dialog()
        )
        order = session.value("select min(queuing_order) from warehouse")
    visitor.login(reader_of(site, "warehouse"), PASSWORD)
    assert "more than 1,000 messages" in visitor.get("/database/1/queue/warehouse").text
    assert visitor.get(f"/database/1/message/{order}/warehouse").status == 404


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


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_nothing_scrolls_sideways_on_a_phone(
    site: Site, console: str, chromium: Chrome, theme: str, tmp_path: Path
) -> None:
    sent(site, b"x" * 5000)
    with site.database.connect() as session:
        session.execute("select broker.alter_queue('shop', status => false)")
    enter(chromium, console, site.role("superuser"))
    features = [{"name": "prefers-color-scheme", "value": theme}]
    chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    chromium.get(f"{console}/database/1/queue/warehouse")
    message = chromium.find_element(By.CSS_SELECTOR, "tbody th a").get_attribute("href")
    folder = Path(os.environ.get("PYBROKER_SCREENSHOTS") or tmp_path)
    for name, address in {
        "overview": f"{console}/",
        "queue": f"{console}/database/1/queue/warehouse",
        "message": str(message),
        "missing": f"{console}/database/1/queue/none",
    }.items():
        for device, (width, height) in {"phone": PHONE, "desk": DESK}.items():
            metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
            chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
            chromium.get(address)
            chromium.save_screenshot(str(folder / f"{name}-{device}-{theme}.png"))
            wide = chromium.execute_script("return document.documentElement.scrollWidth")
            assert wide <= width, f"{name} on a {device}"
    refused = [line for line in chromium.get_log("browser") if "Content Security Policy" in line["message"]]
    assert not refused, "a page asked for what its own policy forbids"
