"""Who may open the console: roles that a database lets in by their password, and nobody by a trick."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from tests.console.conftest import PASSWORD, Site, running_console
from tests.console.visitor import Visitor
from tests.patience import PATIENCE
from tests.shop import until

if TYPE_CHECKING:
    from pybroker.embedded import EmbeddedServer
    from tests.conftest import Database


def test_a_role_enters_by_its_password_and_leaves(site: Site, visitor: Visitor) -> None:
    role = site.role()
    assert visitor.get("/database/1/queue/shop").address.endswith("/login")
    assert visitor.login(role, "wrong").status == 401
    assert visitor.login(role, "").status == 401
    inside = visitor.login(role, PASSWORD)
    assert (inside.status, role in inside.text) == (200, True)
    assert visitor.post("/logout", token=inside.token).address.endswith("/login")
    assert visitor.get("/").address.endswith("/login")


def test_who_needs_no_password_at_the_server_does_not_enter(database: Database) -> None:
    """The socket lets in whoever says a name, and the console's visitors must not gain that."""
    with running_console(database.url) as address:
        assert Visitor(address).login("postgres", "anything").status == 401


def test_the_password_in_a_url_lets_nobody_in(server_for: object, site: Site) -> None:
    server: EmbeddedServer = site.database.server
    with running_console(server.tcp_url(site.database.name)) as address:
        assert Visitor(address).login("postgres", "wrong").status == 401


def test_a_forged_session_sees_nothing(site: Site, visitor: Visitor) -> None:
    visitor.login(site.role(), PASSWORD)
    (cookie,) = [one for one in visitor.cookies if one.name == "pybroker_console"]
    assert cookie.value is not None
    head, _, signature = cookie.value.rpartition(".")
    stranger = Visitor(visitor.address)
    for forged in (f"{head}.{'A' * len(signature)}", head, "", "a.b.c"):
        assert stranger.get("/", f"pybroker_console={forged}").address.endswith("/login")
    assert not stranger.get("/", f"pybroker_console={cookie.value}").address.endswith("/login")
    assert cookie.has_nonstandard_attr("HttpOnly")


def test_a_form_from_elsewhere_is_refused(site: Site, visitor: Visitor) -> None:
    role = site.role()
    visitor.get("/login")
    assert visitor.post("/login", token="forged", role=role, password=PASSWORD).status == 403
    foreign = Visitor(visitor.address).get("/login").token
    assert visitor.post("/login", token=foreign, role=role, password=PASSWORD).status == 403
    visitor.login(role, PASSWORD)
    assert visitor.post("/logout", token="forged").status == 403
    assert not visitor.get("/").address.endswith("/login")


def test_a_second_tab_leaves_the_first_login_form_good(site: Site, visitor: Visitor) -> None:
    token = visitor.get("/login").token
    visitor.get("/favicon.ico")
    assert visitor.post("/login", token=token, role=site.role(), password=PASSWORD).status == 200


def test_guessing_passwords_ends_after_five(site: Site, visitor: Visitor) -> None:
    role = site.role()
    seen = [visitor.login(role, f"guess {number}").status for number in range(6)]
    assert seen == [401] * 5 + [429]
    assert visitor.login(role, PASSWORD).status == 429


def test_every_answer_forbids_scripts_from_elsewhere(visitor: Visitor) -> None:
    for path in ("/login", "/static/console.js", "/nowhere"):
        policy = visitor.get(path).headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy


def test_an_address_of_the_network_needs_encryption() -> None:
    command = [
        sys.executable,
        "-m",
        "pybroker",
        "console",
        "--host",
        "0.0.0.0",
        "--database-url",
        "postgresql:///x",
    ]
    refused = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert refused.returncode == 2
    assert "--tls-certificate" in refused.stderr


def test_pages_of_one_role_share_a_session_of_the_database(site: Site, console: str) -> None:
    role = site.role()
    for visitor in (Visitor(console), Visitor(console)):
        assert role in visitor.login(role, PASSWORD).text
        visitor.get("/database/1/queue/shop")
    with site.database.connect() as session:
        query = "select count(*) from pg_stat_activity where application_name = 'pybroker console' and usename = %s"
        assert session.execute(query, (role,)).fetchone() == (1,)


def test_one_role_s_many_pages_leave_the_console_to_others(site: Site, other: Site) -> None:
    """Each waits for a lock, and all of them for one session, while another role looks elsewhere."""
    with running_console(site.url, other.url) as address, ThreadPoolExecutor(60) as pool:
        greedy, patient = Visitor(address), Visitor(address)
        for visitor in (greedy, patient):
            visitor.login(site.role(), PASSWORD)
        with site.database.connect() as holder, holder.transaction():
            holder.execute("lock table broker_private.queues in access exclusive mode")
            asked = [pool.submit(greedy.get, f"/database/1/queue/shop?n={number}") for number in range(60)]
            until(lambda: any(one.done() for one in asked))
            assert patient.get("/database/2/definitions").status == 200
        statuses = Counter(one.result().status for one in asked)
    assert statuses[429] >= 40, statuses
    assert statuses[429] < 60, statuses
