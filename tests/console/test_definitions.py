"""Definitions that are imported, and a test message: shown first, then done with the role's rights."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING

import pytest

from tests.console.browsing import click, enter, queried, seen
from tests.console.conftest import PASSWORD, Site, running_console
from tests.console.visitor import Answer, Visitor

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

IMPORT, ACT, EXPORT = "/database/1/import", "/database/1/act", "/database/1/definitions.sql"
NAMES = (
    "select name from broker.services union all select name from broker.service_queues"
    " union all select name from broker.service_message_types order by 1"
)

NO_EXPORTS = [
    "drop table x",
    "select broker.create_queue(name => 'one'); drop table x",
    "select broker.create_queue(name => (select 'one'))",
    "select broker.create_queue(name => 'one' || 'two')",
    "select broker.create_queue('one')",
    "select broker.create_queue(name => E'a\\nb')",
    "select broker.create_queue(title => 'one')",
    "select broker.create_queue(name => 5)",
    "select broker.create_queue(status => true)",
    "select broker.create_queue(name => 'one', watchdog => 'x')",
    "select broker.drop_queue(name => 'warehouse')",
    "select broker.__class__(name => 'x')",
    "select pg_sleep(10)",
    "select broker.create_queue(name => 'one",
    "$$",
    "; " * 5,
]


def hidden(page: Answer) -> dict[str, str]:
    return {
        name: html.unescape(value)
        for name, value in re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', page.text)
    }


@pytest.fixture
def actor(site: Site, writing_console: str) -> Visitor:
    one = Visitor(writing_console)
    one.login(site.role("superuser"), PASSWORD)
    return one


def test_an_export_is_imported_by_clicking_once_and_again_without_effect(
    site: Site, other: Site, chromium: Chrome
) -> None:
    odd = "it's \\ ; -- odd"
    queried(site, "select broker.create_message_type(%s)", odd)
    queried(
        site,
        "select broker.create_schema_collection('books', array['<schema xmlns=\"http://www.w3.org/2001/XMLSchema\"/>'])",
    )
    with running_console(site.url, other.url, may_write=True) as console:
        role = site.role("superuser")
        visitor = Visitor(console)
        visitor.login(role, PASSWORD)
        export = visitor.get(EXPORT).text
        enter(chromium, console, role)
        chromium.get(f"{console}/database/2/definitions")
        chromium.execute_script("document.querySelector('textarea').value = arguments[0]", export)
        click(chromium, "Show the plan")
        seen(chromium, 'broker."create_service"')
        assert queried(other, NAMES) != queried(site, NAMES), "it was asked for only"
        click(chromium, "Do it")
        seen(chromium, "Done")
        assert queried(other, NAMES) == queried(site, NAMES)
        ((result, about),) = queried(other, "select result, object from broker.console_actions")
        assert result.startswith("done")
        assert "create service //warehouse" in about
        again = visitor.post("/database/2/import", token=hidden(visitor.get("/"))["token"], what=export)
        assert "There is nothing" in again.text


def test_what_was_changed_since_the_plan_was_shown_is_not_imported(site: Site, actor: Visitor) -> None:
    token = actor.get("/").token
    text = "select broker.create_queue(name => 'one'); select broker.create_queue(name => 'two');"
    page = actor.post(IMPORT, token=token, what=text)
    assert page.text.count("create_queue") >= 2
    queried(site, "select broker.create_queue('one')")
    answer = actor.post(ACT, **hidden(page))
    assert (answer.status, "changed since the plan" in answer.text) == (409, True)
    assert queried(site, "select from broker.service_queues where name = 'two'") == []


def test_sql_that_no_export_has_is_refused_and_nothing_of_it_is_run(site: Site, actor: Visitor) -> None:
    before, token = queried(site, NAMES), actor.get().token
    for text in NO_EXPORTS:
        answer = actor.post(IMPORT, token=token, what=text)
        assert (answer.status, "Do it" in answer.text) == (422, False), text
    assert queried(site, NAMES) == before


def test_an_import_needs_write_and_this_session_s_form(site: Site, visitor: Visitor, actor: Visitor) -> None:
    text = "select broker.create_queue(name => 'one')"
    reader = visitor.login(site.role("superuser"), PASSWORD)
    assert "Import" not in visitor.get("/database/1/definitions").text
    assert visitor.post(IMPORT, token=reader.token, what=text).status == 403
    assert actor.post(IMPORT, token="forged", what=text).status == 403
    assert actor.post(IMPORT, token=actor.get("/").token, what="x" * 700_000).status == 403
    assert Visitor(actor.address).post(IMPORT, what=text).address.endswith("/login")


def test_a_role_imports_what_it_may_and_nothing_by_halves(site: Site, writing_console: str) -> None:
    one = Visitor(writing_console)
    role = site.role()
    token = one.login(role, PASSWORD).token
    text = "select broker.create_queue(name => 'one'); select broker.grant(permission => 'RECEIVE', securable_class => 'QUEUE', securable_name => 'shop', role => 'public')"
    page = one.post(IMPORT, token=token, what=text)
    answer = one.post(ACT, **hidden(page))
    assert "<strong>Refused</strong>" in answer.text
    assert queried(site, "select from broker.service_queues where name = 'one'") == []


def test_a_test_message_is_sent_and_its_journey_watched(
    site: Site, writing_console: str, chromium: Chrome
) -> None:
    enter(chromium, writing_console, site.role("superuser"))
    chromium.get(f"{writing_console}/database/1/definitions")
    for name, value in {
        "what": "//shop", "to": "//warehouse", "contract": "ordering", "type": "order", "body": "it's <b>a</b> test",
    }.items():  # fmt: skip
        chromium.execute_script(
            "document.querySelector(`[name=${arguments[0]}]`).value = arguments[1]", name, value
        )
    chromium.execute_script("document.querySelector('[name=trace]').checked = true")
    click(chromium, "Show the statement")
    seen(chromium, "broker.begin_dialog('//shop', '//warehouse', 'ordering')")
    assert queried(site, "select from warehouse") == []
    click(chromium, "Do it")
    seen(chromium, "Done")
    click(chromium, "Watch its journey")
    seen(chromium, "Time line")
    seen(chromium, "SEND")
    assert queried(site, "select message_body from warehouse") == [(b"it's <b>a</b> test",)]
    queried(site, "select from broker.receive('warehouse')")
    chromium.refresh()
    seen(chromium, "RECEIVE")


def test_a_test_message_takes_the_rights_that_sending_takes(site: Site, writing_console: str) -> None:
    one = Visitor(writing_console)
    one.login(site.role(), PASSWORD)
    page = one.get(f"{ACT}?do=test&what=//shop&to=//warehouse&contract=ordering&type=order&body=x")
    assert "<strong>Refused</strong>" in one.post(ACT, **hidden(page)).text
    assert queried(site, "select from warehouse") == []
    assert one.get(f"{ACT}?do=test&what=//shop&to=&contract=ordering&type=order").status == 404
