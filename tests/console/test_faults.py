"""Five faults, each found and mended or explained by clicking only, within five clicks of the overview."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.console.browsing import click, enter, quarantined, queried, seen, sent

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

    from tests.console.conftest import Site

CLICKS = 5
# What is planted; what is clicked, and what the page then shows; what holds when it is mended.
FAULTS = {
    101: (
        "select broker.alter_broker('DISABLE_BROKER')",
        [("Run it", "ENABLE_BROKER"), ("Do it", "Done")],
        "select is_broker_enabled from broker.databases",
    ),
    106: (
        "alter table broker_private.messages set (autovacuum_enabled = false)",
        [("Leaks and bloat of", "Largest tables"), ("Run it", "reset"), ("Do it", "Done")],
        "select not 'autovacuum_enabled=false' = any (coalesce(reloptions, '{}')) from pg_class where oid = 'broker_private.messages'::regclass",
    ),
    202: (
        "select broker.alter_queue('warehouse', status => false)",
        [("Queue warehouse", "Activation log"), ("Run it", "status => true"), ("Do it", "Done")],
        "select is_receive_enabled from broker.service_queues where name = 'warehouse'",
    ),
    303: (
        "select",
        [("Transmission of", "By destination and reason"), ("handle", "Why it is here")],
        "select true",
    ),
    401: (
        "select",
        [("Conversation", "no such item"), ("Run it", "broker.redrive("), ("Do it", "Done")],
        "select not exists (select from broker.quarantine)",
    ),
}


@pytest.mark.parametrize("number", FAULTS)
def test_a_fault_is_found_by_clicking(
    site: Site, writing_console: str, chromium: Chrome, number: int
) -> None:
    planted, clicks, mended = FAULTS[number]
    queried(site, planted)
    handle = ""
    if number == 303:
        handle = str(sent(site, b"lost", to="//nowhere"))
    elif number == 401:
        quarantined(site)
    enter(chromium, writing_console, site.role("superuser"))
    seen(chromium, f" {number}: ")
    for text, shown in clicks:
        click(chromium, handle if text == "handle" else text)
        seen(chromium, shown)
    assert len(clicks) <= CLICKS
    if number == 303:
        seen(chromium, f"error {number}: //nowhere")
    assert queried(site, mended) == [(True,)]
