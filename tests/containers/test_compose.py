"""docker/compose.yaml: the stock-trading demo between two PostgreSQL servers and their workers, as README.md tells it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import uuid
from typing import TYPE_CHECKING

import pytest

from tests.containers.images import POSTGRES_IMAGE, PYTHON_IMAGE, ROOT, run
from tests.patience import NotStartedError, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.containers.images import Images

ORDERS = 50
DATABASES = {"trader-database": "Trader1", "brokerage-database": "DMBrokerage"}
WORKERS = {"trader-database": "trader", "brokerage-database": "brokerage"}
SERVICES = {*WORKERS, *WORKERS.values()}

pytestmark = [pytest.mark.containers, pytest.mark.timeout(900)]


class Composition:
    """The composition under a name of its own, so that it meets no other."""

    def __init__(self, command: tuple[str, ...], images: Images) -> None:
        self.name = f"pybroker-test-{uuid.uuid4().hex[:8]}"
        self._command = (*command, "--project-name", self.name, "--file", str(ROOT / "docker/compose.yaml"))
        self._environment = {
            "PYBROKER_BUILD_CONTEXT": str(images.context),
            "PYBROKER_WORKER_IMAGE": f"{images.worker}-compose",
            "PYBROKER_DATABASE_IMAGE": f"{images.database}-compose",
            "POSTGRES_IMAGE": POSTGRES_IMAGE,
            "PYTHON_IMAGE": PYTHON_IMAGE,
            "ORDERS": str(ORDERS),
        }

    def run(self, *arguments: str) -> str:
        return run(*self._command, *arguments, environment=self._environment)

    def check(self) -> str:
        """Run the one line of the README."""
        return self.say("trader", "python", "-m", "pybroker.demo.one_side", "check")

    def say(self, service: str, *command: str) -> str:
        """Return what a command says in a container; asked again while its output is lost, as happens on a busy machine."""
        said: str = until(lambda: self.run("exec", "-T", service, *command))
        return said

    def query(self, service: str, query: str) -> str:
        database = DATABASES[service]
        return self.say(service, "psql", "-XAt", "-d", database, "-c", query)

    def inspect(self, service: str, template: str) -> str:
        return run("docker", "inspect", "--format", template, self.run("ps", "-q", service))


@pytest.fixture(scope="module")
def composition(built: Images) -> Iterator[Composition]:
    command = ("docker", "compose")
    if subprocess.run([*command, "version"], capture_output=True, check=False).returncode != 0:
        command = ("docker-compose",)
    if shutil.which(command[0]) is None:
        if os.environ.get("CI"):
            pytest.fail("neither docker compose nor docker-compose is installed")
        pytest.skip("neither docker compose nor docker-compose is installed")
    composed = Composition(command, built)
    try:
        composed.run("up", "--detach")
        yield composed
    finally:
        composed.run("down", "--volumes", "--rmi", "all", "--timeout", "5")


def test_up_and_one_line_show_that_every_order_was_booked_and_acknowledged_once(
    composition: Composition,
) -> None:
    said = f"{ORDERS} of {ORDERS} orders were booked and acknowledged once"
    assert composition.check() == said
    booked = composition.query(
        "brokerage-database", "select order_id, trade_no, amount from trades order by 1"
    )
    acknowledged = composition.query(
        "trader-database", "select order_id, ack_id, amount from acknowledgements order by 1"
    )
    assert (booked, len(booked.splitlines())) == (acknowledged, ORDERS)
    composition.run("restart", "--timeout", "30", "trader")
    assert composition.check() == said


def test_every_container_becomes_healthy_and_none_runs_as_root(composition: Composition) -> None:
    for service in SERVICES:
        until(
            lambda service=service: composition.inspect(service, "{{.State.Health.Status}}") == "healthy",
            error=NotStartedError,
        )
        processes = run("docker", "top", composition.run("ps", "-q", service), "-eo", "pid,uid").split()
        assert set(processes[3::2]) == {"10001"}


def test_a_postgresql_meets_its_own_worker_only_and_workers_meet_each_other(composition: Composition) -> None:
    met: dict[str, set[str]] = {}
    for service in SERVICES:
        networks = json.loads(composition.inspect(service, "{{json .NetworkSettings.Networks}}"))
        for network in networks:
            met.setdefault(network, set()).add(service)
    pairs = [{database, worker} for database, worker in WORKERS.items()]
    assert sorted(map(sorted, met.values())) == sorted(map(sorted, [*pairs, set(WORKERS.values())]))
    look = "import socket,sys\ntry: socket.create_connection((sys.argv[1], 5432), 3)\nexcept OSError: print('out of reach')\nelse: print('within reach')"
    for worker, near, far in (
        ("trader", "trader-database", "brokerage-database"),
        ("brokerage", "brokerage-database", "trader-database"),
    ):
        assert composition.say(worker, "python", "-c", look, near) == "within reach"
        networks = json.loads(composition.inspect(far, "{{json .NetworkSettings.Networks}}"))
        (address,) = (network["IPAddress"] for network in networks.values())
        assert composition.say(worker, "python", "-c", look, address) == "out of reach"


def test_workers_come_as_ordinary_roles_over_tls_and_no_password_is_in_an_environment(
    composition: Composition,
) -> None:
    for database, worker in WORKERS.items():
        sessions = (
            "select distinct ssl, usename, rolsuper or rolcreaterole or rolcreatedb or rolbypassrls"
            " from pg_stat_ssl join pg_stat_activity using (pid) join pg_roles on rolname = usename"
            " where application_name = 'pybroker worker'"
        )
        assert composition.query(database, sessions) == f"t|{worker}|f"
        pgpass = composition.say(worker, "cat", "/run/pybroker/pgpass")
        password = pgpass.rpartition(":")[2]
        assert len(password) == 48
        assert password not in composition.inspect(worker, "{{json .}}")
        assert password not in composition.inspect(database, "{{json .}}")
        assert "no encryption" in composition.say(worker, "python", "-c", _IN_THE_CLEAR)


_IN_THE_CLEAR = """
import os, psycopg
try:
    psycopg.connect(os.environ["PYBROKER_DATABASE_URL"], sslmode="disable", sslrootcert="")
except psycopg.OperationalError as error:
    print(error)
else:
    print("connected")
"""
