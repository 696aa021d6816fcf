"""A console beside a database that asks for passwords, and a browser."""

from __future__ import annotations

import shutil
import subprocess
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from psycopg import sql

from tests import forked, missing
from tests.conftest import NEWEST, Database, migrated_database
from tests.console.visitor import Visitor
from tests.patience import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import psycopg
    from selenium.webdriver import Chrome

    from pybroker.embedded import EmbeddedServer

PASSWORD = "a long & odd password"


class Site:
    """A database whose server asks for passwords over TCP."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.url = f"postgresql://127.0.0.1:{database.server.port}/{database.name}"

    def outside(self) -> psycopg.Connection[Any]:
        """Open a session in another database of the server."""
        return Database(self.database.server, "postgres").connect()

    def role(self, options: str = "") -> str:
        """Create a role that may log in by PASSWORD."""
        name = f"role_{uuid.uuid4().hex[:12]}"
        with self.database.connect() as session:
            session.execute(
                sql.SQL("create role {} login {} password {}").format(
                    sql.Identifier(name), sql.SQL(options), sql.Literal(PASSWORD)
                )
            )
        return name


@pytest.fixture
def site(server_for: Callable[[str, int], EmbeddedServer]) -> Iterator[Site]:
    """The shop's database."""
    server = server_for("console", NEWEST)
    database = migrated_database(server, f"console_{uuid.uuid4().hex[:8]}", with_shop=True)
    yield Site(database)
    with Database(server, "postgres").connect() as session:
        session.execute(f'drop database "{database.name}" with (force)'.encode())


@pytest.fixture
def other(site: Site) -> Iterator[Site]:
    """A second database of the same server."""
    server = site.database.server
    database = migrated_database(server, f"other_{uuid.uuid4().hex[:8]}")
    yield Site(database)
    with Database(server, "postgres").connect() as session:
        session.execute(f'drop database "{database.name}" with (force)'.encode())


@contextmanager
def running_console(
    *urls: str, may_write: bool = False, further_options: Sequence[str] = ()
) -> Iterator[str]:
    """Start a console on a free port, and return its address."""
    options = [part for url in urls for part in ("--database-url", url)]
    options += ["--write"] if may_write else []
    options += further_options
    with forked.start(["console", "--port", "0", *options], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("The console is at "), (
                f"it ended with {process.poll()} instead of listening"
            )
            yield line.split()[-1]
        finally:
            process.terminate()
            process.wait(PATIENCE)


@pytest.fixture
def console(site: Site) -> Iterator[str]:
    """The address of a console of the shop's database."""
    with running_console(site.url) as address:
        yield address


@pytest.fixture
def writing_console(site: Site) -> Iterator[str]:
    """The address of a console that may change the shop's database."""
    with running_console(site.url, may_write=True) as address:
        yield address


@pytest.fixture
def visitor(console: str) -> Visitor:
    """Somebody without a browser, who can send what no browser would."""
    return Visitor(console)


@contextmanager
def started_chromium() -> Iterator[Chrome]:
    """Start Debian's chromium, without a window, and with a profile of its own."""
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if browser is None or driver is None:
        missing.skip("chromium", "apt-get install chromium chromium-driver")
    from selenium import webdriver  # noqa: PLC0415 - only where there is a browser

    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    found = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    try:
        yield found
    finally:
        found.quit()


@pytest.fixture(scope="session")
def chromium() -> Iterator[Chrome]:
    """A browser that the tests of a process share."""
    with started_chromium() as found:
        yield found
