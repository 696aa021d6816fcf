"""`pybroker certificate exchange`: after one command on each side they trust each other, and nobody else."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import psycopg
import pytest
from typer.testing import CliRunner

from pybroker.commands.certificate import certificate
from tests.brokers import INITIATOR_DEFINITIONS, TARGET_DEFINITIONS
from tests.shop import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from click.testing import Result

    from tests.conftest import Database

NAMES = ("shop", "warehouse")
TARGET = TARGET_DEFINITIONS.replace("select broker.grant('SEND', 'SERVICE', '//warehouse', 'public');", "")


class Side:
    """A database with its owner's session, and its worker's keys."""

    def __init__(self, database: Database, directory: Path, name: str, port: int, definitions: str) -> None:
        self.owner = database.role()
        with database.connect() as session:
            session.execute(f"alter database {database.name} owner to {self.owner}".encode())
        self.database = database
        self.name = name
        self.url = database.server.url(database.name, user=self.owner)
        self.keys = directory / name
        self.file = directory / f"{name}.json"
        self.address = f"tcp://127.0.0.1:{port}"
        self.psql = Session(psycopg.connect(self.url, autocommit=True))
        self.psql.rows("create schema own; set search_path = own")
        self.psql.rows(definitions)

    def exchange(self, *options: object) -> Result:
        return CliRunner().invoke(certificate, ["exchange", "--database-url", self.url, *map(str, options)])

    def tell(self, *options: object) -> Result:
        """Write this side's file."""
        own = ("--out", self.file, "--address", self.address, "--key-directory", self.keys)
        return self.exchange(self.name, *own, *options)

    def known(self) -> list[tuple[str, str]]:
        return self.psql.rows("select name, principal_id from broker.certificates order by certificate_id")


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keys for the tests that are not about making them, which takes a while."""
    directory = tmp_path_factory.mktemp("keys")
    for name in NAMES:
        made = CliRunner().invoke(certificate, ["create", name, "--key-directory", str(directory / name)])
        assert made.exit_code == 0
    return directory


@pytest.fixture
def sides(
    make_database: Callable[[str], Database], keys: Path, tmp_path: Path
) -> Iterator[tuple[Side, Side]]:
    for name in NAMES:
        shutil.copytree(keys / name, tmp_path / name)
    shop = Side(make_database("shop"), tmp_path, "shop", 14022, INITIATOR_DEFINITIONS)
    warehouse = Side(make_database("warehouse"), tmp_path, "warehouse", 14023, TARGET)
    yield shop, warehouse
    for side in (shop, warehouse):
        side.psql.connection.close()


def test_one_command_on_each_side_and_they_know_each_other(sides: tuple[Side, Side]) -> None:
    shop, warehouse = sides
    for _ in range(2):
        # A second time nothing is new, and nothing is refused.
        for result in (
            shop.tell(),
            warehouse.tell("--in", shop.file, "--service", "//shop", "--allow", "//warehouse"),
            shop.exchange("--in", warehouse.file, "--bind", "//warehouse"),
        ):
            assert result.exit_code == 0, result.output
    assert shop.known() == [("shop", shop.owner), ("warehouse", "warehouse")]
    assert warehouse.known() == [("warehouse", warehouse.owner), ("shop", "shop")]
    for side, far in ((shop, warehouse), (warehouse, shop)):
        endpoint = "select state_desc, port, c.name from broker.service_broker_endpoints join broker.certificates c using (certificate_id)"
        assert side.psql.rows(endpoint) == [("STARTED", int(side.address[-5:]), side.name)]
        with side.database.connect() as session:
            connects = "select user_name from broker_private.worker_certificates() where may_connect"
            # The endpoint's own, of its owner, is the worker itself.
            assert set(session.execute(connects)) == {(side.owner,), (far.name,)}
        assert side.psql.rows(
            "select name, address from broker.routes where remote_service_name is not null"
        ) == [(f"//{far.name}", far.address)]
    # The next certificate of one who has CONNECT needs no second grant, and the command says so.
    keys = warehouse.file.parent / "next"
    CliRunner().invoke(certificate, ["create", "next", "--key-directory", str(keys)])
    install = ["install", "next", str(keys / "next.pem"), "--user", "shop", "--json"]
    result = CliRunner().invoke(certificate, [*install, "--database-url", warehouse.database.url])
    assert json.loads(result.output)["may_connect"] is True, result.output
    bound = (
        "select remote_service_name, remote_principal_id, is_anonymous_on from broker.remote_service_bindings"
    )
    assert shop.psql.rows(bound) == [("//warehouse", "warehouse", False)]
    assert warehouse.psql.rows(bound) == []


def test_a_file_makes_no_route_that_nobody_asked_for(sides: tuple[Side, Side]) -> None:
    shop, warehouse = sides
    assert shop.tell().exit_code == 0
    system = "SQL/ServiceBroker/BrokerConfiguration"
    told = [
        "//shop",
        system,
        "//bank/payments",
        "//x/\x1b]0;owned\x07\n\x9b2Jmade a route",
        *map(str, range(50)),
    ]
    shop.file.write_text(json.dumps({**json.loads(shop.file.read_text()), "services": told}))
    taken = warehouse.tell("--in", shop.file, "--service", "//shop")
    assert taken.exit_code == 0, taken.output
    routes = "select remote_service_name from broker.routes where remote_service_name is not null"
    assert warehouse.psql.rows(routes) == [("//shop",)]
    assert "//bank/payments" in taken.output
    assert len(taken.output) < 2_000
    assert all(character.isprintable() for character in taken.output.replace("\n", ""))
    assert "//x/\\x1b]0;owned\\x07\\n\\x9b2Jmade a route" in taken.output
    assert warehouse.exchange("--in", shop.file, "--service", system).exit_code == 1
    assert warehouse.exchange("--in", shop.file, "--bind", system).exit_code == 1
    assert warehouse.exchange("--in", shop.file, "--service", "//elsewhere").exit_code == 1
    assert warehouse.psql.rows(routes) == [("//shop",)]


def test_what_is_exchanged_holds_no_secret(sides: tuple[Side, Side]) -> None:
    shop, _ = sides
    shutil.rmtree(shop.keys)
    result = shop.tell("--json")
    fingerprint = CliRunner().invoke(certificate, ["show", str(shop.keys / "shop.pem"), "--json"])
    assert json.loads(fingerprint.stdout)["fingerprint"] in json.loads(result.stdout)["done"][-1]
    assert "PRIVATE" not in shop.file.read_text() + result.stdout
    content = json.loads(shop.file.read_text())
    assert (content["name"], content["services"]) == ("shop", ["//shop"])
    assert {path.name for path in shop.keys.iterdir()} == {"shop.key", "shop.pem", "dialog-master.key"}


def test_a_renewed_certificate_is_added_beside_the_old_one(sides: tuple[Side, Side]) -> None:
    shop, warehouse = sides
    shop.tell()
    warehouse.tell("--in", shop.file)
    shop.name = "shop 2027"
    assert shop.tell().exit_code == 0
    again = warehouse.exchange("--in", shop.file, "--as", "shop")
    assert again.exit_code == 0, again.output
    names = warehouse.known()
    assert names[:2] == [("warehouse", warehouse.owner), ("shop", "shop")]
    assert [user for _, user in names[2:]] == ["shop"]


def test_a_file_makes_nobody_a_role_of_this_server(sides: tuple[Side, Side]) -> None:
    shop, warehouse = sides
    assert shop.tell().exit_code == 0
    for name in (warehouse.owner, "PUBLIC"):
        shop.file.write_text(json.dumps({**json.loads(shop.file.read_text()), "name": name}))
        refused = warehouse.tell("--in", shop.file)
        assert refused.exit_code == 1
        assert "--as" in refused.output
    assert warehouse.known() == []
    assert warehouse.tell("--in", shop.file, "--as", "the shop").exit_code == 0
    assert warehouse.known()[1:] == [("the shop", "the shop")]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{}",
        "[1]",
        '{"version": 2, "name": "x", "address": "tcp://a:1", "broker_instance": "", "services": [], "certificates": []}',
        '{"version": 1, "name": "x", "address": "tcp://a:1", "broker_instance": "", "services": [], "certificates": ["x"]}',
    ],
)
def test_a_file_that_is_none_changes_nothing(sides: tuple[Side, Side], content: str) -> None:
    _, warehouse = sides
    warehouse.file.write_text(content)
    own = ("--out", warehouse.file.with_suffix(".out"), "--address", warehouse.address)
    refused = warehouse.exchange("warehouse", *own, "--key-directory", warehouse.keys, "--in", warehouse.file)
    assert refused.exit_code == 1
    assert refused.stderr.count("\n") == 1
    assert warehouse.known() == []


def test_what_cannot_be_meant_is_refused(sides: tuple[Side, Side]) -> None:
    shop, warehouse = sides
    assert shop.exchange().exit_code == 2
    assert shop.exchange("--out", shop.file).exit_code == 2
    assert shop.exchange("shop", "--out", shop.file, "--bind", "//x").exit_code == 2
    shop.address = "warehouse:1"
    assert shop.tell().exit_code == 2
    warehouse.tell()
    assert "no endpoint" in shop.exchange("--in", warehouse.file).output
    shop.address = "tcp://127.0.0.1:14022"
    refused = shop.tell("--in", warehouse.file, "--bind", "//nothing")
    assert refused.exit_code == 1
    assert "//nothing" in refused.output
    assert shop.known() == [], "all of it, or nothing"
