"""From a message that waits to its trace, wherever a tracing system shows it."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from selenium.webdriver.common.by import By

from tests.console.browsing import click, enter, queried, reader_of, seen
from tests.console.conftest import PASSWORD, Site, running_console
from tests.patience import PATIENCE
from tests.shop import Session

if TYPE_CHECKING:
    from uuid import UUID

    from selenium.webdriver import Chrome

    from tests.console.visitor import Visitor

TRACE, OTHER = "0af7651916cd43dd8448eb211c80319c", "11111111111111111111111111111111"


def traced(site: Site, *traces: str) -> UUID:
    """Send a message in each trace on one dialog, and return its handle."""
    with site.database.connect() as connection:
        session = Session(connection)
        dialog = session.dialog()
        for trace in traces:
            session.rows(f"set pybroker.traceparent = '00-{trace}-b7ad6b7169203331-01'")
            session.send(dialog, "order", b"traced")
        session.rows("set pybroker.traceparent = ''")
        session.send(dialog, "order", b"not traced")
        return dialog


def test_a_conversation_and_a_message_link_to_their_traces(site: Site, chromium: Chrome) -> None:
    traced(site, OTHER, TRACE, TRACE)
    with running_console(
        site.url, further_options=["--trace-url", "https://traces.invalid/trace/{trace_id}?from=console"]
    ) as console:
        enter(chromium, console, reader_of(site, "warehouse"))
        chromium.get(f"{console}/database/1/queue/warehouse")
        chromium.find_element(By.CSS_SELECTOR, "tbody th a").click()
        seen(chromium, "Body")
        links = [str(one.get_attribute("href")) for one in chromium.find_elements(By.CSS_SELECTOR, "dd a")]
        assert f"https://traces.invalid/trace/{OTHER}?from=console" in links
        click(chromium, str(queried(site, "select conversation_handle from warehouse limit 1")[0][0]))
        seen(chromium, f"{TRACE}: 2 waiting messages")
        seen(chromium, f"{OTHER}: 1 waiting message")
        found = chromium.find_element(By.LINK_TEXT, TRACE)
        assert found.get_attribute("href") == f"https://traces.invalid/trace/{TRACE}?from=console"
    with site.database.connect() as connection:
        contexts = Session(connection).rows(
            "select broker.get_traceparent(m) from broker.receive('warehouse') m order by m.queuing_order"
        )
    assert [context and context[3:35] for (context,) in contexts] == [OTHER, TRACE, TRACE, None], (
        "who looked took nothing away"
    )


def test_without_an_address_a_trace_is_named(site: Site, visitor: Visitor) -> None:
    dialog = traced(site, TRACE)
    visitor.login(site.role("superuser"), PASSWORD)
    page = visitor.get(f"/database/1/conversation/{dialog}")
    assert f"<code>{TRACE}</code>: 1 waiting message</li>" in page.text
    untraced = visitor.get(f"/database/1/conversation/{traced(site)}")
    assert "Traces" not in untraced.text


def test_who_may_not_receive_a_message_sees_no_trace_of_it(site: Site, visitor: Visitor) -> None:
    dialog = traced(site, TRACE)
    visitor.login(reader_of(site, "shop"), PASSWORD)
    page = visitor.get(f"/database/1/conversation/{dialog}")
    assert page.status == 200
    assert TRACE not in page.text


@pytest.mark.parametrize(
    "template",
    [
        "",
        "traces.example/{trace_id}",
        "javascript:alert('{trace_id}')",
        "https://traces.example/trace",
        "https://{trace_id}.example/",
        "https:///{trace_id}",
        "https://traces.example/{trace_id}/{trace_id}",
        "https://traces.example/a b/{trace_id}",
        "https://[traces/{trace_id}",
    ],
)
def test_what_is_no_template_of_an_address_is_refused_at_the_start(template: str) -> None:
    command = [sys.executable, "-m", "pybroker", "console", "--database-url", "postgresql:///x"]
    refused = subprocess.run(
        [*command, "--trace-url", template], capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    assert refused.returncode == 2
    assert "--trace-url" in refused.stderr
    assert "Traceback" not in refused.stderr
