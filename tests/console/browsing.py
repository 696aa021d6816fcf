"""What a person does at a browser, and what a shop's database looks like when something is wrong."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from selenium.webdriver.common.by import By

from tests.console.conftest import PASSWORD, Site
from tests.patience import until
from tests.shop import Session

if TYPE_CHECKING:
    from uuid import UUID

    from selenium.webdriver import Chrome

PHONE, DESK = (390, 844), (1280, 900)


def enter(chromium: Chrome, console: str, role: str) -> None:
    chromium.delete_all_cookies()
    chromium.get(f"{console}/login")
    chromium.find_element(By.ID, "role").send_keys(role)
    chromium.find_element(By.ID, "password").send_keys(PASSWORD)
    chromium.find_element(By.CSS_SELECTOR, ".login button").click()
    seen(chromium, "Overview")


def shown_text(chromium: Chrome) -> str:
    """What the page says; nothing while it is on its way to the next."""
    return str(chromium.execute_script("return document.body ? document.body.innerText : ''"))


def seen(chromium: Chrome, text: str) -> None:
    """Wait until the page shows a text."""
    try:
        until(lambda: text in shown_text(chromium))
    except AssertionError:
        pytest.fail(f"{chromium.current_url} never showed {text!r}, but {shown_text(chromium)!r}")


def opened(chromium: Chrome, address: str, text: str) -> None:
    """Open an address until its page shows a text: a busy database may need longer than a page waits."""

    def shows() -> bool:
        chromium.get(address)
        return text in shown_text(chromium)

    try:
        until(shows)
    except AssertionError:
        pytest.fail(f"{address} never showed {text!r}, but {shown_text(chromium)!r}")


def click(chromium: Chrome, text: str) -> None:
    """Click the first link or button whose text, as it is seen, begins so."""
    # Found and clicked at once: an open page may be just replacing what it shows.
    script = """
const found = [...document.querySelectorAll('main a, main button, nav a')]
  .find(one => one.innerText.trim().startsWith(arguments[0]));
if (found) found.click();
return Boolean(found);
"""
    until(lambda: chromium.execute_script(script, text))


class Clicks:
    """Clicks of a person, and what they were made on."""

    def __init__(self, chromium: Chrome) -> None:
        self.made: list[str] = []
        self._chromium = chromium

    def click(self, text: str) -> None:
        click(self._chromium, text)
        self.made.append(text)


def look(chromium: Chrome, size: tuple[int, int], theme: str) -> None:
    """Look through a screen of this size, in this theme."""
    metrics = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": False}
    chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    features = [{"name": "prefers-color-scheme", "value": theme}]
    chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def axe_core() -> str | None:
    """The script of axe-core: a file that PYBROKER_AXE names, or that of the package; None without both."""
    if given := os.environ.get("PYBROKER_AXE"):
        return Path(given).read_text()
    package = find_spec("axe_core_python")
    if package is None or package.origin is None:
        return None
    return Path(package.origin).with_name("axe.min.js").read_text()


def barriers(chromium: Chrome, script: str) -> list[str]:
    """What axe-core finds that keeps somebody from using the page."""
    chromium.execute_script(script)
    found = chromium.execute_async_script(
        "const done = arguments[0]; axe.run({resultTypes: ['violations']}).then(result => done(result.violations))"
    )
    return [
        f"{one['id']}: {node['html']}: {node['failureSummary']}" for one in found for node in one["nodes"]
    ]


def sent(site: Site, *bodies: bytes, to: str = "//warehouse") -> UUID:
    """Send these on one dialog from the shop, and return its handle."""
    with site.database.connect() as connection:
        session = Session(connection)
        dialog: UUID = session.value("select broker.begin_dialog('//shop', %s, 'ordering')", to)
        for body in bodies:
            session.send(dialog, "order", body)
        return dialog


def reader_of(site: Site, queue: str) -> str:
    role = site.role()
    with site.database.connect() as session:
        session.execute("select broker.grant('RECEIVE', 'QUEUE', %s, %s)", (queue, role))
    return role


def quarantined(site: Site, count: int = 1, error: str = "no such item") -> list[UUID]:
    """Send on so many dialogs what fails, and return the handles of the sides in quarantine."""
    with site.database.connect() as connection:
        session = Session(connection)
        session.rows("select broker.alter_queue('warehouse', poison_action => 'QUARANTINE')")
        handles = [session.handle_of(_sent_on(session)) for _ in range(count)]
        for handle in handles:
            for _ in range(5):
                session.rows("select broker.note_failure(%s, %s)", handle, error)
        return handles


def _sent_on(session: Session) -> UUID:
    dialog = session.dialog()
    session.send(dialog, "order", b"an order")
    return dialog


def queried(site: Site, query: str, *arguments: Any) -> list[tuple[Any, ...]]:
    """Ask the database as its owner."""
    with site.database.connect() as connection:
        return Session(connection).rows(query, *arguments)
