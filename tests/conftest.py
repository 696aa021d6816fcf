"""Fixtures that every test shares: embedded servers and freshly migrated databases."""

from __future__ import annotations

import gc
import os
import signal
import tempfile
import uuid
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from hypothesis import HealthCheck, settings

from pybroker.embedded import EmbeddedServer, available_versions
from pybroker.migrations import migrate
from tests import costs, flaky, missing, patience, sql_calls
from tests.shop import DEFINITIONS, Shop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NEWEST = 18
# Which older versions a landing tries, by file or else by folder, but for tests marked dear; the night tries all. The oldest lacks
# most of what a statement may use, and plans differ by version; 15 always has libxml here, which bodies in XML are about.
OLDER_AT_LANDING = {
    "sql": (15,),
    "test_receive_groups.py": (15, 17),
    **dict.fromkeys(
        (
            "test_a_message_types_and_contracts.py",
            "test_d_receiving_and_ending.py",
            "test_event_notifications.py",
            "test_strange_arrivals.py",
            "test_system_contracts.py",
            "test_validation_rows.py",
        ),
        (15,),
    ),
}
AT_RANDOM = "PYBROKER_TEST_AT_RANDOM"
MEMORY, MEMORY_BYTES = Path("/dev/shm"), 6 * 2**30
TO_INSTALL = {15: "apt-get install postgresql-15", 17: ".ci/postgresql-17"}
_TEMPLATES: set[tuple[Path, str]] = set()
MIGRATED, WITH_SHOP = "migrated", "migrated_with_shop"
# What takes longest comes first, as a process gets whole files (--dist loadfile). Each file is in one of these folders.
FOLDERS = ("system", "two_servers", "worker", "console", "sql", "conformance", "unit", "tsql", "containers")
# Ten containers under load leave nothing to those whose clients wait a few seconds only, so they come when nobody else is left but
# the model, which has all patience. At night the cell goes on longest; it has one test, and a process takes a further file as soon as
# it has but two tests left: behind the cell comes the shortest file.
LAST_FILES = (
    "test_throughput_cell.py",
    "test_images.py",
    "test_compose.py",
    "test_acceptance.py",
    "test_model.py",
)
# Without fsync a test can't show what a crashed disk would keep, but none here pulls the plug of a disk.
SETTINGS = {
    "fsync": "off",
    "max_connections": "200",
    "max_prepared_transactions": "9",
    "shared_buffers": "64MB",
    **sql_calls.SETTINGS,
}


# What autovacuum changes, a test that means it does by itself: otherwise the time of day would decide what a test sees. A test may
# set it anew, so it is none of the settings above, which nothing overrides.
AUTOVACUUM_RESTS = "alter system set autovacuum_naptime = '1d'"


class Database:
    """A freshly migrated database of a test server."""

    def __init__(self, server: EmbeddedServer, name: str) -> None:
        self.server = server
        self.name = name
        self.url = server.url(name)

    @property
    def has_xml_parser(self) -> bool:
        """Whether this PostgreSQL was built with libxml: those that come with the wheel were not."""
        with self.connect() as session:
            built = session.execute("select setting from pg_config where name = 'CONFIGURE'").fetchone()
        return built is not None and "--with-libxml" in built[0]

    def connect(self, *, user: str = "postgres", autocommit: bool = True) -> psycopg.Connection[Any]:
        """Open a session as this role."""
        return psycopg.connect(self.server.url(self.name, user=user), autocommit=autocommit)

    def role(self, options: str = "login") -> str:
        """Create an ordinary role that no other test has."""
        name = f"role_{uuid.uuid4().hex[:12]}"
        with self.connect() as session:
            session.execute(f"create role {name} {options}".encode())
        return name


def pytest_configure(config: pytest.Config) -> None:
    """Refuse to pass quietly in CI without the servers that the tests are for; keep the servers in memory if they fit."""
    for plugin in (missing, flaky, costs):
        config.pluginmanager.register(plugin)
    _use_memory()
    # A busy machine is no failure. What only chance finds is for the night: it would refuse a change that has no part in it.
    settings.register_profile(
        "patient",
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
        derandomize=AT_RANDOM not in os.environ,
    )
    settings.load_profile("patient")
    # A shell starts what it runs in the background with SIGINT ignored, and children inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if os.environ.get("CI") and not {15, 16, 18} <= set(available_versions()):
        raise pytest.UsageError(f"CI needs PostgreSQL 15, 16 and 18; found {available_versions()}")


def _use_memory() -> None:
    """Let temporary files be in memory: a test's database is a copy, and copying it on a busy disk takes ten times as long."""
    if "TMPDIR" in os.environ or not MEMORY.is_dir():
        return
    filesystem = os.statvfs(MEMORY)
    is_large = filesystem.f_bavail * filesystem.f_frsize >= MEMORY_BYTES
    if is_large and not filesystem.f_flag & os.ST_NOEXEC:
        os.environ["TMPDIR"] = str(MEMORY)
        # It has been asked for before, and remembers.
        tempfile.tempdir = None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[object]:
    """Let nobody look for garbage while half a million objects are made that stay, nor among them later."""
    gc.disable()
    result = yield
    gc.freeze()
    gc.enable()
    return result


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let the waits of a test give up, and say why, before its own limit ends it."""
    patience.begin(item)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the folders in their order, and last the files that want the machine to themselves; mark what can wait."""
    places = {name: place for place, name in enumerate(FOLDERS)}
    last = {name: place for place, name in enumerate(LAST_FILES, start=1)}
    tests = Path(__file__).parent
    strays = {item.path for item in items if item.path.relative_to(tests).parts[0] not in places}
    if strays:
        listed = ", ".join(sorted(str(path) for path in strays))
        raise pytest.UsageError(
            f"move into one of the folders {', '.join(FOLDERS)}, so that a tier runs it: {listed}"
        )
    items.sort(key=lambda item: (last.get(item.path.name, 0), places[item.path.relative_to(tests).parts[0]]))
    if "PYBROKER_TEST_VERSIONS" not in os.environ:
        for item in items:
            of_folder = OLDER_AT_LANDING.get(item.path.relative_to(tests).parts[0], ())
            landing = OLDER_AT_LANDING.get(item.path.name, of_folder)
            is_dear = item.get_closest_marker("dear") is not None
            if _version(item) not in {NEWEST, *(() if is_dear else landing)}:
                item.add_marker(pytest.mark.nightly)


def _version(item: pytest.Item) -> int:
    """The version that its parameters say, or the newest."""
    called = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    version: int = called.get("any_server", NEWEST)
    return version


def rest_autovacuum(server: EmbeddedServer) -> None:
    with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
        connection.execute(AUTOVACUUM_RESTS)
        connection.execute("select pg_reload_conf()")


@pytest.fixture(scope="session")
def start_server() -> Iterator[Callable[[int], EmbeddedServer]]:
    """A function that starts a PostgreSQL of this version once in this process, however the tests are ordered."""
    running: dict[int, EmbeddedServer] = {}
    with ExitStack() as servers:

        def start(version: int) -> EmbeddedServer:
            if version not in available_versions():
                missing.skip(f"PostgreSQL {version}", TO_INSTALL.get(version, "make .venv"))
            if version not in running:
                running[version] = servers.enter_context(EmbeddedServer(version=version, settings=SETTINGS))
                rest_autovacuum(running[version])
                servers.callback(sql_calls.note_all, running[version])
            return running[version]

        yield start


@pytest.fixture(scope="session")
def server(start_server: Callable[[int], EmbeddedServer]) -> EmbeddedServer:
    """The newest PostgreSQL."""
    return start_server(NEWEST)


@pytest.fixture(scope="session")
def server_for() -> Iterator[Callable[[str, int], EmbeddedServer]]:
    """A function that starts a server of this version for a site once in this process; clients and workers may use TCP."""
    running: dict[tuple[str, int], EmbeddedServer] = {}
    with ExitStack() as servers:

        def start(site: str, version: int) -> EmbeddedServer:
            if (site, version) not in running:
                server = EmbeddedServer(version=version, listen=True, settings=SETTINGS)
                running[site, version] = servers.enter_context(server)
                rest_autovacuum(server)
                servers.callback(sql_calls.note_all, server)
            return running[site, version]

        yield start


def _versions() -> list[int]:
    """Return the versions that the tests run on: those that PYBROKER_TEST_VERSIONS lists, the newest, or all in CI."""
    if chosen := os.environ.get("PYBROKER_TEST_VERSIONS"):
        return [int(version) for version in chosen.split(",")]
    if not os.environ.get("CI"):
        return [NEWEST]
    # No package of Debian's or Python's has 17, so CI has it only where .ci/run could fetch it.
    return [version for version in (15, 16, 17, NEWEST) if version != 17 or version in available_versions()]


@pytest.fixture(scope="session", params=_versions(), ids="postgresql-{}".format)
def any_server(
    request: pytest.FixtureRequest, start_server: Callable[[int], EmbeddedServer]
) -> EmbeddedServer:
    """Each PostgreSQL that the tests run on."""
    return start_server(request.param)


@pytest.fixture
def make_database(server: EmbeddedServer) -> Iterator[Callable[[str], Database]]:
    """A function that makes a migrated database with a name of its own."""
    with ExitStack() as databases:

        def make(prefix: str = "test") -> Database:
            return databases.enter_context(_temporary_database(server, prefix))

        yield make


@pytest.fixture
def database(server: EmbeddedServer) -> Iterator[Database]:
    """A migrated database on the newest PostgreSQL."""
    with _temporary_database(server) as database:
        yield database


@pytest.fixture
def any_database(any_server: EmbeddedServer) -> Iterator[Database]:
    """A migrated database on each PostgreSQL."""
    with _temporary_database(any_server) as database:
        yield database


@pytest.fixture
def shop(any_server: EmbeddedServer) -> Iterator[Shop]:
    """The shop's objects and sessions, on each PostgreSQL."""
    with _temporary_database(any_server, with_shop=True) as database:
        shop = Shop(database, is_defined=True)
        yield shop
        shop.close()


@pytest.fixture
def clock(shop: Shop) -> Callable[[str], None]:
    """A function that moves the clock of the shop's database; only the role that owns the schema can do that."""

    def move(offset: str) -> None:
        shop.psql.rows(
            "create or replace function broker_private.clock() returns timestamptz language sql volatile"
            f" begin atomic select pg_catalog.clock_timestamp() + interval '{offset}'; end"
        )

    return move


def migrated_database(server: EmbeddedServer, name: str, *, with_shop: bool = False) -> Database:
    """Copy a database that was made once for each server: migrated, or with the shop's objects too.

    A copy is a broker instance of its own once it has a guid of its own.
    """
    if (server.data_directory, MIGRATED) not in _TEMPLATES:
        server.create_database(MIGRATED)
        migrate(server.url(MIGRATED))
        _TEMPLATES.add((server.data_directory, MIGRATED))
    if with_shop and (server.data_directory, WITH_SHOP) not in _TEMPLATES:
        with _copy(server, MIGRATED, WITH_SHOP).connect() as session:
            session.execute(DEFINITIONS)
        _TEMPLATES.add((server.data_directory, WITH_SHOP))
    return _copy(server, WITH_SHOP if with_shop else MIGRATED, name)


@contextmanager
def _temporary_database(
    server: EmbeddedServer, prefix: str = "test", *, with_shop: bool = False
) -> Iterator[Database]:
    """Drop it at the end: a run has a thousand databases of 10 MB each."""
    database = migrated_database(server, f"{prefix}_{uuid.uuid4().hex[:8]}", with_shop=with_shop)
    yield database
    sql_calls.note(database.url)
    with psycopg.connect(server.url("postgres"), autocommit=True) as session:
        session.execute(f'drop database if exists "{database.name}" with (force)'.encode())


def _copy(server: EmbeddedServer, template: str, name: str) -> Database:
    with psycopg.connect(server.url("postgres"), autocommit=True) as session:
        session.execute(f'create database "{name}" template {template} strategy file_copy'.encode())
    database = Database(server, name)
    with database.connect() as session:
        # What NEW_BROKER does. It also empties twenty tables, which are empty here: half of what a copy would cost.
        session.execute(
            "update broker_private.broker_instance set service_broker_guid = gen_random_uuid(),"
            " database_oid = (select oid from pg_database where datname = current_database())"
        )
    return database
