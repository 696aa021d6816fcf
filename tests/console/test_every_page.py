"""Every page, at a desk and on a phone, in both themes: nothing is cut off, and nobody is kept out."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from selenium.webdriver.common.by import By

from tests.console.browsing import DESK, PHONE, axe_core, barriers, enter, look, quarantined, queried, sent
from tests.console.conftest import Site, running_console

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

# A picture may scroll.
CUT_OFF = """
return [...document.querySelectorAll('.wide, pre, dl')]
  .filter(one => one.scrollWidth > one.clientWidth && !one.querySelector('svg.picture'))
  .map(one => `${one.getAttribute('aria-label')} ${one.scrollWidth} in ${one.clientWidth}`)
"""
LONG = "//a/very/" + "long/" * 15 + "name"


def everything_wrong(site: Site, other: Site) -> dict[str, str]:
    """Give every page something to show, and return the pages' addresses."""
    queried(site, "select broker.create_service(%s, 'warehouse', '{ordering}')", LONG)
    queried(other, "select broker.create_queue('empty')")
    dialog = sent(site, b"x" * 5000, b"{}")
    sent(site, b"", to=LONG)
    sent(site, b"lost", to="//nowhere")
    (bad,) = quarantined(site, error="no such item " * 40)
    queried(site, "select broker.alter_queue('shop', status => false)")
    queried(site, "select broker.note_console_action('queue_off', 'shop', 'done')")
    ((order,),) = queried(
        site, "select min(queuing_order) from warehouse where octet_length(message_body) = 5000"
    )
    base = "/database/1"
    return {
        "login": "/login",
        "overview": "/",
        "queue": f"{base}/queue/warehouse",
        "message": f"{base}/message/5/{order}/warehouse",
        "conversation": f"{base}/conversation/{dialog}",
        "conversation-in-quarantine": f"{base}/conversation/{bad}",
        "transmission": f"{base}/transmission",
        "quarantine": f"{base}/quarantine",
        "leaks": f"{base}/leaks",
        "topology": "/topology",
        "definitions": f"{base}/definitions",
        "actions": f"{base}/actions",
        "ask": f"{base}/act?do=discard&what={bad}",
        "missing": f"{base}/queue/none",
        "empty": "/database/2/quarantine",
    }


# Thirty pictures and fifteen looks by axe-core: minutes, where others work too.
@pytest.mark.timeout(900)
@pytest.mark.parametrize("theme", ["light", pytest.param("dark", marks=pytest.mark.nightly)])
def test_every_page_can_be_read_by_everybody(
    site: Site, other: Site, chromium: Chrome, theme: str, tmp_path: Path
) -> None:
    script = axe_core()
    pages = everything_wrong(site, other)
    folder = Path(os.environ.get("PYBROKER_SCREENSHOTS") or tmp_path)
    faults = []
    with running_console(site.url, other.url, may_write=True) as console:
        look(chromium, DESK, theme)
        enter(chromium, console, site.role("superuser"))
        chromium.get_log("browser")
        for name, path in pages.items():
            chromium.get(f"{console}{path}")
            for device, size in {"phone": PHONE, "desk": DESK}.items():
                look(chromium, size, theme)
                chromium.save_screenshot(str(folder / f"{name}-{device}-{theme}.png"))
                wide = chromium.execute_script("return document.documentElement.scrollWidth")
                faults += [f"{name} on a {device} scrolls sideways: {wide}"] if wide > size[0] else []
                cut = chromium.execute_script(CUT_OFF)
                faults += [f"{name} on a {device}: a part is wider than its place: {one}" for one in cut]
            faults += [f"{name}: {one}" for one in barriers(chromium, script)] if script else []
            assert chromium.find_element(By.TAG_NAME, "h1").text, f"{name} is empty"
    refused = [
        line["message"] for line in chromium.get_log("browser") if "Content Security" in line["message"]
    ]
    assert not faults
    assert not refused, "a page asked for what its own policy forbids"
    if script is None:
        without = "axe-core-python is not installed: only widths and policies were looked at"
        pytest.fail(without) if os.environ.get("CI") else pytest.skip(without)
