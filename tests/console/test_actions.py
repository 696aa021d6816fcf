"""What a console with --write may do: only what was asked for, with the role's rights, and noted."""

from __future__ import annotations

import html
import re
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from tests.console.browsing import click, enter, quarantined, queried, reader_of, seen, sent
from tests.console.conftest import PASSWORD, Site
from tests.console.visitor import Answer, Visitor

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

ACT = "/database/1/act"


@pytest.fixture
def actor(writing_console: str) -> Visitor:
    return Visitor(writing_console)


def noted(site: Site) -> list[tuple[str, str, str]]:
    return queried(site, "select role::text, action, result from broker.console_actions order by id")


def is_on(site: Site) -> bool:
    ((enabled,),) = queried(
        site, "select is_receive_enabled from broker.service_queues where name = 'warehouse'"
    )
    return bool(enabled)


def post(actor: Visitor, page: Answer, **fields: str) -> Answer:
    return actor.post(ACT, **{"token": page.token, **fields})


def test_somebody_turns_a_queue_off_by_clicking(site: Site, writing_console: str, chromium: Chrome) -> None:
    role = site.role("superuser")
    enter(chromium, writing_console, role)
    click(chromium, "warehouse")
    click(chromium, "Turn the queue off")
    seen(chromium, "select broker.alter_queue('warehouse', status => false);")
    assert is_on(site), "it was asked for only"
    click(chromium, "Do it")
    seen(chromium, "Done")
    assert not is_on(site)
    click(chromium, "Actions")
    seen(chromium, "queue_off")
    assert noted(site) == [(role, "queue_off", "done")]


def test_what_was_set_aside_for_one_reason_is_redriven(
    site: Site, writing_console: str, chromium: Chrome
) -> None:
    (other,) = quarantined(site, error="too large")
    chosen = {str(handle) for handle in quarantined(site, 2, error="no such item")}
    role = reader_of(site, "warehouse")
    enter(chromium, writing_console, role)
    chromium.get(f"{writing_console}/database/1/quarantine?error=such")
    click(chromium, "Redrive what is shown (2)")
    seen(chromium, "2 statements, each in a transaction of its own")
    assert set(re.findall(r"broker\.redrive\('([^']+)'\)", chromium.page_source)) == chosen
    assert noted(site) == [], "a dry run does nothing"
    click(chromium, "Do it")
    seen(chromium, "Done")
    assert queried(site, "select conversation_handle from broker.quarantine") == [(other,)]
    assert noted(site) == [(role, "redrive", "done: 1")] * 2


def test_what_is_redriven_by_rate_is_apart_by_it(site: Site, actor: Visitor) -> None:
    handles = {str(handle) for handle in quarantined(site, 3)}
    actor.login(reader_of(site, "warehouse"), PASSWORD)
    assert '<option value="5">5 a second' in actor.get("/database/1/quarantine").text
    assert ", 3 quarantined</td>" in actor.get("/").text
    page = actor.get(f"{ACT}?do=redrive&rate=5&what={','.join(handles)}")
    assert "3 statements, each in a transaction of its own, 5 a second" in page.text
    answer = post(actor, page, do="redrive", rate="5", what=",".join(handles))
    assert answer.text.count("<strong>Done</strong>") == 3
    ((span,),) = queried(
        site, "select extract(epoch from max(acted_at) - min(acted_at)) from broker.console_actions"
    )
    assert span >= 0.3, "three at five a second are two fifths of a second apart"
    assert post(actor, page, do="redrive", rate="0.0001", what=",".join(handles)).status == 404


def test_one_of_two_who_redrive_at_once_is_told_that_it_was_done(site: Site, writing_console: str) -> None:
    (bad,) = quarantined(site)
    actors = [Visitor(writing_console), Visitor(writing_console)]
    for one in actors:
        one.login(reader_of(site, "warehouse"), PASSWORD)
    pages = [one.get(f"{ACT}?do=redrive&what={bad}") for one in actors]

    def redrive(number: int) -> str:
        return post(actors[number], pages[number], do="redrive", what=str(bad)).text

    with ThreadPoolExecutor(2) as pool:
        answers = sorted("<strong>Done</strong>" in text for text in pool.map(redrive, range(2)))
    assert answers == [False, True]
    assert sorted(result[:12] for _, _, result in noted(site)) == ["done: 1", "refused, S84"]


def test_who_lacks_the_right_is_refused_and_that_is_noted(site: Site, actor: Visitor) -> None:
    role = reader_of(site, "warehouse")
    actor.login(role, PASSWORD)
    page = actor.get(f"{ACT}?do=queue_off&what=warehouse")
    answer = post(actor, page, do="queue_off", what="warehouse")
    assert "<strong>Refused</strong>" in answer.text
    assert is_on(site)
    ((noted_role, action, result),) = noted(site)
    assert (noted_role, action, result.startswith("refused, ")) == (role, "queue_off", True)


def test_a_form_that_this_session_did_not_get_does_nothing(
    site: Site, writing_console: str, actor: Visitor
) -> None:
    role, other = site.role("superuser"), Visitor(writing_console)
    actor.login(role, PASSWORD)
    foreign = other.login(role, PASSWORD)
    assert actor.post(ACT, do="queue_off", what="warehouse").status == 403
    assert actor.post(ACT, token="forged", do="queue_off", what="warehouse").status == 403
    assert post(actor, foreign, do="queue_off", what="warehouse").status == 403
    assert actor.post(ACT, token="x" * 20_000, do="queue_off", what="warehouse").status == 403
    assert Visitor(writing_console).post(ACT, do="queue_off", what="warehouse").address.endswith("/login")
    assert is_on(site)


def test_without_write_nothing_is_offered_or_done(site: Site, visitor: Visitor) -> None:
    page = visitor.login(site.role("superuser"), PASSWORD)
    assert "/act?" not in visitor.get("/database/1/queue/warehouse").text
    assert visitor.get(f"{ACT}?do=queue_off&what=warehouse").status == 403
    assert post(visitor, page, do="queue_off", what="warehouse").status == 403
    assert is_on(site)


def test_only_what_diagnose_proposes_is_run_to_mend(site: Site, actor: Visitor) -> None:
    queried(site, "select broker.alter_queue('warehouse', status => false)")
    page = actor.login(site.role("superuser"), PASSWORD)
    offered = re.findall(r'href="(/database/1/act\?do=mend[^"]+warehouse[^"]+)"', page.text)
    ask = actor.get(html.unescape(offered[0]))
    mend = html.unescape(re.findall(r'name="what" value="([^"]+)"', ask.text)[0])
    assert post(actor, ask, do="mend", what=f"{mend}; drop schema public").status == 404
    assert not is_on(site)
    assert post(actor, ask, do="mend", what=mend).status == 200
    assert is_on(site)
    assert post(actor, ask, do="mend", what=mend).status == 404, "it is mended"


def test_what_the_console_does_not_do_is_not_found(site: Site, actor: Visitor) -> None:
    page = actor.login(site.role("superuser"), PASSWORD)
    for do, what in (
        ("drop", "warehouse"),
        ("queue_off", ""),
        ("queue_off", "a\0b"),
        ("redrive", "warehouse"),
        ("redrive", "x" * 5_000),
        ("mend", ""),
    ):
        assert post(actor, page, do=do, what=what).status == 404, (do, what)
    assert noted(site) == []


def test_a_script_in_a_name_is_shown_and_not_run(site: Site, actor: Visitor) -> None:
    actor.login(site.role("superuser"), PASSWORD)
    page = actor.get(f"{ACT}?do=queue_off&what=%3Cscript%3Ealert(1)%3C/script%3E'")
    assert "<script>alert" not in page.text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;&#39;&#39;" in page.text


def test_a_role_acts_thirty_times_in_a_minute(site: Site, actor: Visitor) -> None:
    page = actor.login(site.role(), PASSWORD)
    answers = [post(actor, page, do="drop", what="x").status for _ in range(31)]
    assert answers == [404] * 30 + [429]


def test_a_lost_connection_is_not_told_as_done(site: Site, actor: Visitor) -> None:
    page = actor.login(site.role("superuser"), PASSWORD)
    with site.outside() as outside:
        outside.execute(f'alter database "{site.database.name}" allow_connections false'.encode())
        outside.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where datname = %s",
            (site.database.name,),
        )
    answer = post(actor, page, do="queue_off", what="warehouse")
    assert (answer.status, "Look whether it was done" in answer.text) == (503, True)
    with site.outside() as outside:
        outside.execute(f'alter database "{site.database.name}" allow_connections true'.encode())
    assert is_on(site)
    assert sent(site, b"x")
