"""Secrets stay secret: passwords in no message, keys where nobody else can put or read them."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import traceback
from typing import TYPE_CHECKING
from uuid import uuid4

import psycopg
import pytest
from cryptography.hazmat.primitives.asymmetric import dsa, ec, rsa

import pybroker
from pybroker.commands import main
from pybroker.connection_string import checked
from pybroker.migrations import migrate
from pybroker.workers import supervisor
from pybroker.workers.clock import Clock
from pybroker.workers.database import Database, ServingError
from pybroker.workers.transport.dialog_security import key_files
from pybroker.workers.transport.dialog_security.key_store import KeyStore
from pybroker.workers.transport.protocol.faults import TransportError
from tests.activated import CLI, PATIENCE, eventually, next_event
from tests.worker.test_certificate import Identity, handshake, refusal, run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pybroker.embedded import EmbeddedServer
    from tests.conftest import Database as MigratedDatabase

# Each holds a password with "hidden" in it, where libpq, or a later message, would quote what it takes for
# another part of the connection string.
MALFORMED = [
    "postgresql://clerk:hid%zzden@db/shop",
    "postgresql://clerk:hidden%@db/shop",
    "postgresql://clerk:hidden%00@db/shop",
    "postgresql://clerk:my hidden@db/shop",
    "mysql://clerk:hidden@db/shop",
    "postgresql//clerk:hidden@db/shop",
    "postgresql://clerk:hidden@[::1/shop",
    "postgresql://clerk:hidden@[::1]x/shop",
    "postgresql://clerk:my@hidden@db/shop",
    "postgresql://clerk:hidden/word@db/shop",
    "postgresql://127.0.0.1:12/hidden@db/shop",
    "host=db password=my hidden",
    "host=db password='hidden",
    "host=db hidden=word",
]


@pytest.mark.parametrize("url", MALFORMED)
def test_a_malformed_url_is_refused_without_a_word_of_its_password(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def shows_nothing(error: BaseException) -> None:
        told = "".join(traceback.format_exception(error))
        assert "hidden" not in told
        assert "zzden" not in told
        assert "percent-encode" in told

    for attempt in (pybroker.connect, pybroker.App, Database, migrate):
        with pytest.raises((psycopg.ProgrammingError, ServingError)) as refused:
            attempt(url)
        shows_nothing(refused.value)


@pytest.mark.parametrize("url", MALFORMED)
def test_no_command_says_a_word_of_the_password_of_a_malformed_url(
    url: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYBROKER_DATABASE_URL", url)
    for arguments, code in ((["status"], 2), (["worker", "--help"], 0)):
        monkeypatch.setattr(sys, "argv", ["pybroker", "--debug", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == code
        said = "".join(capfd.readouterr())
        assert said
        assert "hidden" not in said
        assert "zzden" not in said


def test_a_command_s_own_process_says_no_password_either() -> None:
    process = subprocess.run(
        [sys.executable, "-c", CLI, "--debug", "status"],
        env={**os.environ, "PYBROKER_DATABASE_URL": MALFORMED[0]},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert process.returncode == 2, process
    assert process.stderr
    assert "zzden" not in process.stdout + process.stderr


def test_an_unusual_url_is_taken_as_libpq_takes_it() -> None:
    for url in (
        "postgresql:///shop?host=/run/pg",
        "postgresql://clerk:hid%40%2Fden@[::1]:5433,db.example/shop%40home?sslmode=disable",
        "postgresql://clerk@%40abstract/shop",
        "postgresql://clerk:12?hid#den@db/shop",
        "postgresql:///shop@home",
        "host=db password='a b' dbname=shop@home",
        "",
    ):
        assert checked(url) == url


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770, 0o702, 0o720])
def test_a_key_directory_that_others_can_write_is_refused_with_the_chmod_that_mends_it(
    tmp_path: Path, mode: int
) -> None:
    shop = Identity(tmp_path / "the keys", "shop")
    key_files.make_master_key(shop.directory)
    mended = f"chmod go-w '{shop.directory}'"
    shop.directory.chmod(mode)
    refused = refusal(shop, shop.endpoint, shop.directory)
    assert refused.number == 28037
    assert mended in refused.text
    store = KeyStore(shop.directory, Clock())
    store.read()
    with pytest.raises(TransportError) as missing:
        store.master_key()
    assert missing.value.number == 28050
    with pytest.raises(ServingError, match="chmod go-w"):
        asyncio.run(supervisor.run(["postgresql:///nowhere"], shop.directory, asyncio.Event()))
    for command in (["create", "other"], ["master-key", "--rotate"], ["master-key"]):
        made = run(*command, "--key-directory", shop.directory)
        assert made.exit_code == 1, made.output
        assert mended in made.output
    assert sorted(path.name for path in shop.directory.iterdir()) == ["dialog-master.key", "shop.key"]
    shop.directory.chmod(mode & 0o1755)
    assert shop.credentials().certificate is not None
    store.read()
    assert store.master_key() is not None


def test_a_key_file_that_others_can_read_is_told_with_its_chmod(tmp_path: Path) -> None:
    shop = Identity(tmp_path / "keys", "shop")
    shop.path.chmod(0o604)
    assert f"chmod 600 {shop.path}" in refusal(shop, shop.endpoint, shop.directory).text


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone takes another account's key directory")
@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_root_uses_no_key_of_its_own_that_an_account_has_linked_to(
    tmp_path: Path, link: Callable[[Path, Path], None]
) -> None:
    shop = Identity(tmp_path / "keys", "shop")
    os.chown(shop.directory, 65534, -1)
    assert shop.credentials().certificate is not None
    of_root = shop.path.rename(tmp_path / "root's.key")
    link(of_root, shop.path)
    assert f"{shop.path} is a link" in refusal(shop, shop.endpoint, shop.directory).text


def test_a_certificate_whose_key_can_be_broken_is_not_trusted(tmp_path: Path) -> None:
    warehouse = Identity(tmp_path / "warehouse", "warehouse")
    weak_keys = (
        rsa.generate_private_key(public_exponent=65537, key_size=1024),
        ec.generate_private_key(ec.SECP192R1()),
        dsa.generate_private_key(2048),
    )
    for number, key in enumerate(weak_keys):
        weak = Identity(tmp_path / f"weak {number}", "weak", key=key)
        own = refusal(weak, weak.endpoint, weak.directory)
        assert own.number == 28036
        assert "can't be trusted" in own.text
        # It is no peer either, and the good ones beside it are.
        known = warehouse.credentials(weak.known(), warehouse.known())
        assert [peer.certificate_name for peer in known.peers.values()] == ["warehouse"]
        file = tmp_path / f"weak {number}.pem"
        file.write_text(weak.pem)
        installed = run(
            "install", "weak", file, "--user", "weak", "--database-url", "postgresql://127.0.0.1:1/nowhere"
        )
        assert installed.exit_code == 1
        assert "can't be trusted" in installed.output
    strong = Identity(
        tmp_path / "strong", "strong", key=rsa.generate_private_key(public_exponent=65537, key_size=2048)
    )
    seen = handshake(strong.credentials(warehouse.known()), warehouse.credentials(strong.known()))
    assert seen[0] == "user of warehouse"


@pytest.mark.parametrize("bits", [1024, 1536, 2040, 2047, 2048, 2049, 3072])
@pytest.mark.parametrize("exponent", [3, 65537])
def test_sql_takes_no_certificate_with_a_short_rsa_key(
    any_database: MigratedDatabase, tmp_path: Path, bits: int, exponent: int
) -> None:
    key = rsa.generate_private_key(public_exponent=exponent, key_size=bits)
    made = Identity(tmp_path / "keys", "shop", key=key)
    with any_database.connect() as session:
        create = "select broker.create_certificate('shop', %s, 'shop_user')"
        if bits < 2048:
            with pytest.raises(psycopg.Error, match="less than 2048 bits") as refused:
                session.execute(create, [made.pem])
            assert refused.value.sqlstate == "S0153"
        else:
            session.execute(create, [made.pem])


CLERK = """
create procedure public.run_orders() language plpgsql as $$
begin
  perform from broker.receive('orders');
  insert into public.seen values (session_user, current_user);
end $$
"""


def test_a_reader_logs_in_by_the_password_file(
    server_for: Callable[[str, int], EmbeddedServer], any_server: EmbeddedServer, tmp_path: Path
) -> None:
    server = server_for("secrets", any_server.version)
    name = f"shop_{uuid4().hex[:12]}"
    server.create_database(name)
    worker, clerk = f"worker_{name}", f"clerk_{name}"
    passfile = tmp_path / "pgpass"
    passfile.touch(0o600)
    with psycopg.connect(server.url(name), autocommit=True) as owner:
        for role in (worker, clerk):
            owner.execute(f"create role {role} login password 'of {role}'".encode())
        migrate(server.url(name), worker_roles=[worker])
        owner.execute("create table public.seen (login name, role name)")
        owner.execute(f"grant insert on public.seen to {clerk}".encode())
        owner.execute(CLERK.encode())
        owner.execute(
            "select broker.create_queue('orders', activation_procedure => 'public.run_orders',"
            " max_queue_readers => 1, execute_as => %s, schema => 'public')",
            [clerk],
        )
        owner.execute("select broker.grant('RECEIVE', 'QUEUE', 'orders', %s)", [clerk])
        owner.execute("select broker.create_service('//orders', 'orders', array['DEFAULT'])")
        owner.execute(
            "select broker.send(broker.begin_dialog('//orders', '//orders', 'DEFAULT', encryption => false),"
            " 'DEFAULT', ''::bytea)"
        )
        # The worker's password is in its URL, and the role's is not known yet.
        url = f"{server.tcp_url(name, user=worker, password=f'of {worker}')}?passfile={passfile}"
        process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                CLI,
                "worker",
                "--database-url",
                url,
                "--login",
                clerk,
                "--log-format",
                "json",
            ],
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            refused = next_event(process, "execute_as_refused")
            assert clerk in refused["error"]
            assert f"of {worker}" not in json.dumps(refused)
            assert owner.execute("select from public.seen").fetchone() is None
            passfile.write_text(f"127.0.0.1:*:{name}:{clerk}:of {clerk}\n")
            for status in (False, True):
                owner.execute("select broker.alter_queue('orders', activation_status => %s)", [status])
            eventually(lambda: owner.execute("select from public.seen").fetchone() is not None)
            assert owner.execute("select * from public.seen limit 1").fetchone() == (clerk, clerk)
        finally:
            process.terminate()
            process.communicate(timeout=PATIENCE)
