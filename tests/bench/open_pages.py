"""`python -m tests.bench.open_pages`: what pages of the console that nobody touches cost a server.

Each page is asked for as console.js does: again after the time that the answer names. Processor time is the
kernel's, of all processes of the server, without the console and with it. A last row is of as many roles as
pages, which share no session and no reading.
"""

from __future__ import annotations

import argparse
import re
import sys
import threading
import time
from typing import TYPE_CHECKING

import psycopg

from pybroker.embedded import EmbeddedServer
from tests.bench.idle import SETTINGS, SETTLE_SECONDS, _processes, _seconds
from tests.bench.pages import pages
from tests.conftest import migrated_database
from tests.console.conftest import PASSWORD, Site, running_console
from tests.console.visitor import asked, entered

if TYPE_CHECKING:
    from collections.abc import Sequence


def _keep_open(console: str, path: str, cookie: str, is_over: threading.Event, counts: list[int]) -> None:
    """Ask for a page as an open one does."""
    while not is_over.is_set():
        status, _, text = asked(console, path, headers={"Cookie": cookie, "X-Console-Refresh": "yes"})
        assert status == 200, text
        counts.append(1)
        is_over.wait(float(re.findall(r'data-wait="([0-9.]+)"', text)[0]))


def _counted(
    server: EmbeddedServer, console: str, addresses: Sequence[str], cookies: Sequence[str], seconds: float
) -> tuple[float, float]:
    """Keep the pages open for a while; return the server's share of a core, and answers a second."""
    is_over = threading.Event()
    counts: list[int] = []
    threads = [
        threading.Thread(target=_keep_open, args=(console, address, cookie, is_over, counts))
        for address, cookie in zip(addresses, cookies, strict=True)
    ]
    for thread in threads:
        thread.start()
    time.sleep(SETTLE_SECONDS)
    before, began, asked = _seconds(_processes(server)), time.monotonic(), len(counts)
    time.sleep(seconds)
    spent, took = _seconds(_processes(server)) - before, time.monotonic() - began
    answers = (len(counts) - asked) / took
    is_over.set()
    for thread in threads:
        thread.join()
    return spent / took, answers


def main() -> None:
    """Measure, and print a line for each."""
    parser = argparse.ArgumentParser(prog="tests.bench.open_pages", description=__doc__)
    parser.add_argument("--messages", type=int, default=10_000, help="in queue and transmission queue")
    parser.add_argument("--seconds", type=float, default=180, help="that are counted, after some to settle")
    given = parser.parse_args()
    with EmbeddedServer(listen=True, settings=SETTINGS) as server:
        site = Site(migrated_database(server, "opened", with_shop=True))
        with psycopg.connect(site.database.url, autocommit=True) as session:
            # A message's page is not asked for again.
            opened = {**pages(session, given.messages), "message": "/database/1/queue/shop"}
            addresses = list(opened.values())
            session.execute("vacuum (freeze, analyze)")
            session.execute("checkpoint")
        idle, _ = _counted(server, "", [], [], given.seconds)
        sys.stdout.write(f"no page: {idle:.2%} of a core\n")
        roles = [site.role("superuser") for _ in addresses]
        for name, used in (("one role", roles[:1] * len(addresses)), ("a role each", roles)):
            with running_console(site.url, further_options=["--behind-proxy"]) as console:
                # An address may log in but a few times in a minute; a proxy tells visitors apart.
                cookies = [
                    entered(console, role, PASSWORD, f"10.0.0.{number}")
                    for number, role in enumerate(used, 1)
                ]
                share, answers = _counted(server, console, addresses, cookies, given.seconds)
            sys.stdout.write(
                f"{len(addresses)} pages, {name}: {share - idle:.2%} of a core more, {answers:.1f} answers a second\n"
            )
            sys.stdout.flush()


if __name__ == "__main__":
    main()
