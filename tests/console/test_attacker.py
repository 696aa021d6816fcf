"""What somebody gains who reaches the console, or has a role that may do nothing: nothing."""

from __future__ import annotations

import html
import re
import select
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from urllib.parse import quote, urlencode, urlsplit
from uuid import uuid4

import pytest
from starlette.routing import Route

from pybroker.console.application import HEADERS, application
from tests.console.browsing import quarantined, queried, sent
from tests.console.conftest import PASSWORD, Site, running_console
from tests.console.visitor import Visitor, asked, entered
from tests.patience import PATIENCE

BASE = "/database/1"
PAGES = (
    "/", "/topology", f"{BASE}/transmission", f"{BASE}/quarantine", f"{BASE}/leaks", f"{BASE}/definitions",
    f"{BASE}/definitions.sql", f"{BASE}/actions", f"{BASE}/queue/warehouse",
)  # fmt: skip
ADDRESSES = [route for route in application((), is_secure=False).routes if isinstance(route, Route)]


def cookie_of(visitor: Visitor) -> str:
    (found,) = [one for one in visitor.cookies if one.name == "pybroker_console"]
    return f"{found.name}={found.value}"


def addressed(route: Route, handle: str) -> str:
    """An address of the route."""
    given = {"number": "1", "priority": "5", "order": "1", "handle": handle, "name": "warehouse"}
    return re.sub(r"\{(\w+)[^}]*\}", lambda found: given[found[1]], route.path)


def everything(site: Site) -> str:
    """Give every page something to hide, and return a handle."""
    (bad,) = quarantined(site, error="no such item")
    sent(site, b"a secret body", to="//nowhere")
    queried(site, "select broker.note_console_action('queue_off', 'shop', 'done')")
    queried(site, "select broker.alter_queue('shop', status => false)")
    return str(bad)


def test_a_role_without_rights_reads_no_name_on_any_page(site: Site, console: str) -> None:
    handle = everything(site)
    visitor = Visitor(console)
    visitor.login(site.role(), PASSWORD)
    secrets = ("//shop", "//nowhere", "no such item", "a secret body", "queue_off", "/queue/")
    for path in (*PAGES, f"{BASE}/conversation/{handle}", f"{BASE}/message/5/1/warehouse"):
        page = visitor.get(path)
        assert page.status in (200, 404), path
        assert [secret for secret in secrets if secret in page.text] == [], path


@pytest.mark.parametrize("may_write", [False, True])
def test_a_role_without_rights_changes_nothing_by_any_address(site: Site, may_write: bool) -> None:
    """Addresses are those that the console has, so one that is added is tried too."""
    handle = everything(site)
    before = state(site)
    with running_console(site.url, may_write=may_write) as console:
        visitor = Visitor(console)
        token = visitor.login(site.role(), PASSWORD).token
        deeds = [
            {"do": do, "what": what}
            for do, what in {
                "queue_on": "shop",
                "queue_off": "warehouse",
                "activation_on": "warehouse",
                "redrive": handle,
                "discard": handle,
                "mend": "select broker.alter_queue('shop', status => true)",
                "import": "select broker.create_message_type(name => 'imported');",
                "test": "//shop",
            }.items()
        ]
        tried = 0
        for route in ADDRESSES:
            for method in ("POST", "PUT", "PATCH", "DELETE"):
                for deed in deeds if method == "POST" and route.path.endswith(("act", "import")) else [{}]:
                    fields = {
                        "token": token,
                        "to": "//warehouse",
                        "contract": "ordering",
                        "type": "order",
                        **deed,
                    }
                    # It would log the visitor out.
                    if route.path == "/logout":
                        continue
                    cookie = {"Cookie": cookie_of(visitor)}
                    status, _, text = asked(
                        console, addressed(route, handle), method, cookie, urlencode(fields)
                    )
                    assert status < 500, (method, route.path, deed)
                    assert "<strong>Done</strong>" not in text, (method, route.path, deed)
                    tried += 1
    assert tried > 60
    assert state(site) == before


def state(site: Site) -> list[list[tuple[object, ...]]]:
    """What an action could change."""
    return [
        queried(site, query)
        for query in (
            "select name, is_receive_enabled, is_activation_enabled from broker.service_queues order by name",
            "select conversation_handle from broker.quarantine order by 1",
            "select name from broker.service_message_types order by name",
            "select count(*) from broker.conversation_endpoints",
            "select count(*) from broker.queue_messages",
        )
    ]


def test_without_a_session_every_address_but_the_login_leads_there(site: Site, console: str) -> None:
    handle = everything(site)
    tricks = (
        "/static/../", "/static/%2e%2e/", "/static/..%2f", "/login/../", "/login%2f..%2f", "//", "/./", "/%2e/",
    )  # fmt: skip
    places = [addressed(route, handle) for route in ADDRESSES if route.path != "/login"]
    places += [f"{trick}{place.lstrip('/')}" for trick in tricks for place in PAGES]
    for place in places:
        for method in ("GET", "POST"):
            status, headers, text = asked(console, place, method)
            assert status in (303, 404, 405), (method, place)
            assert status != 303 or headers["location"] == "/login", (method, place)
            assert "warehouse" not in text, (method, place)


def test_no_file_but_those_of_the_page_is_sent(console: str) -> None:
    for path in (
        "/static/../application.py",
        "/static/%2e%2e/application.py",
        "/static/..%2fapplication.py",
        "/static/..%5capplication.py",
        "/static//etc/passwd",
        "/static/%2fetc%2fpasswd",
        "/static/console.js%00.py",
        "/static/",
    ):
        status, _, text = asked(console, path)
        assert (status in (303, 404), "import" in text) == (True, False), path


def test_odd_requests_are_answered_with_the_headers_of_all(site: Site, console: str) -> None:
    visitor = Visitor(console)
    visitor.login(site.role("superuser"), PASSWORD)
    cookie = {"Cookie": cookie_of(visitor)}
    much = "9" * 5_000
    paths = [
        f"/database/{much}/leaks",
        f"{BASE}/message/{much}/1/warehouse",
        f"{BASE}/message/5/{much}/warehouse",
        f"{BASE}/queue/a%00b",
        f"{BASE}/queue/%ff%fe",
        f"{BASE}/queue/{'q' * 10_000}",
        f"{BASE}/message/5/1/a%00b",
        f"{BASE}/conversation/{uuid4()}?x=%ff",
        *(
            f"{place}?{name}={value}"
            for place, name in {
                f"{BASE}/definitions": "search",
                f"{BASE}/quarantine": "error",
                f"{BASE}/transmission": "reason",
                f"{BASE}/queue/warehouse": "after",
                f"{BASE}/act": "do",
            }.items()
            for value in ("%00", "%ff", "%ed%a0%80", "%5c", "%25", "'", "1" * 20_000, "a&" * 2_000)
        ),
    ]
    for path in paths:
        status, headers, _ = asked(console, path, headers=cookie)
        assert status in (200, 403, 404), path[:100]
        assert {name.lower() for name in HEADERS} <= set(headers), path[:100]


def test_a_page_of_another_name_does_not_reach_the_console(site: Site, console: str) -> None:
    """A site whose name comes to mean this machine is another origin, and could guess passwords from here."""
    visitor = Visitor(console)
    visitor.login(site.role("superuser"), PASSWORD)
    cookie = {"Cookie": cookie_of(visitor)}
    port = urlsplit(console).port
    for name in ("127.0.0.1", f"127.0.0.1:{port}", f"localhost:{port}", "LOCALHOST", f"[::1]:{port}"):
        assert asked(console, "/", headers={**cookie, "Host": name})[0] == 200, name
    for name in (
        "evil.example",
        f"evil.example:{port}",
        "127.0.0.1.evil.example",
        "localhost/static/",
        "",
        "[",
        "a@127.0.0.1",
    ):
        for path in ("/login", "/", "/static/console.js"):
            status, headers, text = asked(console, path, headers={**cookie, "Host": name})
            assert (status, "<form" in text) == (400, False), (name, path)
            assert "content-security-policy" in headers


def test_another_address_is_not_believed_without_a_proxy(site: Site, visitor: Visitor) -> None:
    role = site.role()
    token = visitor.get("/login").token
    (form,) = visitor.cookies

    def guess(number: int) -> int:
        claimed = {"X-Forwarded-For": f"10.0.0.{number}", "Forwarded": f"for=10.0.0.{number}"}
        fields = urlencode({"token": token, "role": role, "password": "wrong"})
        headers = {"Cookie": f"{form.name}={form.value}", **claimed}
        return asked(visitor.address, "/login", "POST", headers, fields)[0]

    with ThreadPoolExecutor(12) as pool:
        assert set(pool.map(guess, range(12))) == {401, 429}


def test_a_role_is_no_part_of_a_connection_string(site: Site, visitor: Visitor) -> None:
    role = site.role()
    for name in (
        f"{role} dbname=postgres",
        f"{role}' options='-c x=y",
        f"postgresql://{role}@127.0.0.1/",
        " ",
    ):
        assert visitor.login(name, PASSWORD).status == 401, name


def test_a_cookie_is_of_no_use_after_logging_out(site: Site, visitor: Visitor) -> None:
    inside = visitor.login(site.role(), PASSWORD)
    cookie = cookie_of(visitor)
    assert asked(visitor.address, "/", headers={"Cookie": cookie})[0] == 200
    visitor.post("/logout", token=inside.token)
    assert asked(visitor.address, "/", headers={"Cookie": cookie})[0] == 303


def test_dozens_of_requests_that_never_end_keep_nobody_out(site: Site, visitor: Visitor) -> None:
    """Some say nothing, some stop within their headers, some within a form; some never read their answer."""
    place = urlsplit(visitor.address)
    visitor.login(site.role(), PASSWORD)
    starts = (
        b"",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-",
        b"POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\ntoken=",
        f"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: {cookie_of(visitor)}\r\n\r\n".encode(),
    )
    with ExitStack() as stack:
        for number in range(96):
            held = stack.enter_context(
                socket.create_connection((str(place.hostname), place.port or 80), PATIENCE)
            )
            held.sendall(starts[number % len(starts)])
        assert visitor.get("/database/1/definitions").status == 200
        assert Visitor(visitor.address).login(site.role(), PASSWORD).status == 200


@pytest.mark.parametrize(
    "start",
    [
        b"",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-",
        b"POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\ntoken=",
    ],
    ids=["nothing", "half of the headers", "half of a form"],
)
def test_hundreds_of_half_open_connections_keep_nobody_out(
    site: Site, visitor: Visitor, start: bytes
) -> None:
    place = urlsplit(visitor.address)
    with ExitStack() as stack:
        for _ in range(500):
            held = stack.enter_context(
                socket.create_connection((str(place.hostname), place.port or 80), PATIENCE)
            )
            held.sendall(start)
        assert visitor.login(site.role(), PASSWORD).status == 200
        assert visitor.get("/database/1/definitions").status == 200


def test_slow_actions_of_one_role_leave_the_console_to_others(site: Site, writing_console: str) -> None:
    """Fifty refused steps, one a second: each such request holds a thread that all roles share."""
    greedy, patient = Visitor(writing_console), Visitor(writing_console)
    token = greedy.login(site.role(), PASSWORD).token
    patient.login(site.role(), PASSWORD)
    place, handles = urlsplit(writing_console), ",".join(str(uuid4()) for _ in range(50))
    form = urlencode({"token": token, "do": "redrive", "rate": "1", "what": handles})
    request = (
        f"POST {BASE}/act HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: {cookie_of(greedy)}\r\n"
        f"Content-Length: {len(form)}\r\n\r\n{form}"
    )
    with ExitStack() as stack:
        held = [
            stack.enter_context(socket.create_connection((str(place.hostname), place.port or 80), PATIENCE))
            for _ in range(25)
        ]
        for one in held:
            one.sendall(request.encode())
        answered, _, _ = select.select(held, [], [], PATIENCE)
        assert answered, "none of them was answered"
        assert {one.recv(12) for one in answered} == {b"HTTP/1.1 429"}, "those that are not done at once wait"
        assert patient.get(f"{BASE}/definitions").status == 200


def test_what_somebody_named_is_mended_and_never_run(site: Site, writing_console: str) -> None:
    queried(site, "create table public.kept (id integer)")
    name = "a'); drop table public.kept; --"
    queried(site, "select broker.create_queue(%s)", name)
    queried(site, "select broker.alter_queue(%s, status => false)", name)
    visitor = Visitor(writing_console)
    page = visitor.login(site.role("superuser"), PASSWORD)
    (offered,) = [
        one
        for one in re.findall(r'href="(/database/1/act\?do=mend[^"]+)"', page.text)
        if quote("drop table") in one or "drop+table" in one
    ]
    ask = visitor.get(html.unescape(offered))
    what = html.unescape(re.findall(r'name="what" value="([^"]+)"', ask.text)[0])
    assert "<strong>Done</strong>" in visitor.post(f"{BASE}/act", token=ask.token, do="mend", what=what).text
    assert queried(site, "select is_receive_enabled from broker.service_queues where name = %s", name) == [
        (True,)
    ]
    assert queried(site, "select to_regclass('public.kept') is not null") == [(True,)]


def test_a_role_that_logs_in_again_and_again_takes_nobody_s_place(site: Site) -> None:
    """A proxy tells the visitors apart, so that this one may log in as often as it likes."""
    role = site.role()
    with running_console(site.url, further_options=["--behind-proxy"]) as console:
        other = entered(console, site.role(), PASSWORD, "10.0.0.1")
        cookies = [entered(console, role, PASSWORD, f"10.0.1.{number}") for number in range(1, 40)]
        seen = [asked(console, "/topology", headers={"Cookie": cookie})[0] == 200 for cookie in cookies]
        assert (seen[0], seen[-1]) == (False, True), "of one role the newest sessions stay"
        assert asked(console, "/topology", headers={"Cookie": other})[0] == 200
