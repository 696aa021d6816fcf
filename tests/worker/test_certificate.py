"""Certificates: the command that makes them, and who is let in with them."""

from __future__ import annotations

import asyncio
import json
import stat
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID
from typer.testing import CliRunner

from pybroker.commands.certificate import certificate
from pybroker.workers.transport.connection import link
from pybroker.workers.transport.connection.certificate_check import Credentials, load_credentials
from pybroker.workers.transport.dialog_security.key_files import (
    master_key_path,
    private_key_path,
    read_master_key,
)
from pybroker.workers.transport.protocol import faults, wire
from pybroker.workers.transport.protocol.faults import TransportError
from pybroker.workers.transport.protocol.rows import Endpoint, KnownCertificate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from click.testing import Result

HELLO = wire.Hello(1, 1, [bytes(16)], "REQUIRED", 4, wire.MAXIMUM_FRAME_BYTES)
DAY = timedelta(days=1)


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(certificate, [str(argument) for argument in arguments])


class Identity:
    """A key and its certificate, made quickly, valid as the test wants."""

    def __init__(
        self,
        directory: Path,
        name: str,
        begins: timedelta = -DAY,
        ends: timedelta = DAY,
        subject: str | None = None,
        *,
        key: Any = None,
        padding: int = 0,
    ) -> None:
        self.directory = directory
        self.name = name
        directory.mkdir(exist_ok=True)
        self.key = key or ec.generate_private_key(ec.SECP256R1())
        digest = None if isinstance(self.key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
        title = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject or name)])
        now = datetime.now(UTC)
        made = (
            x509.CertificateBuilder()
            .subject_name(title)
            .issuer_name(title)
            .public_key(self.key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + begins)
            .not_valid_after(now + ends)
            .add_extension(x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3"), bytes(padding)), False)
            .sign(self.key, digest)
        )
        self.pem = made.public_bytes(Encoding.PEM).decode()
        self.path = private_key_path(directory, name)
        self.path.touch(0o600)
        self.path.write_bytes(self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint("Broker", "STARTED", "ALL", 4022, self.name, self.pem, "REQUIRED")

    def known(self, *, may_connect: bool = True) -> KnownCertificate:
        return KnownCertificate(self.name, f"user of {self.name}", self.pem, may_connect)

    def credentials(self, *known: KnownCertificate, **changes: Any) -> Credentials:
        return load_credentials(replace(self.endpoint, **changes), known, self.directory)


@pytest.fixture
def identity(tmp_path: Path) -> Callable[..., Identity]:
    return lambda name, **options: Identity(tmp_path / "keys", name, **options)


@asynccontextmanager
async def listener(
    credentials: Credentials, hello: wire.Hello = HELLO
) -> AsyncIterator[tuple[str, asyncio.Queue[object]]]:
    """Accept, echo frames, and report whom was accepted or why not."""
    reports: asyncio.Queue[object] = asyncio.Queue()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            accepted = await link.accept(reader, writer, credentials, hello)
        except TransportError as error:
            await reports.put(error.number)
            return
        await reports.put(accepted.peer.user_name)
        try:
            while (frame := await accepted.receive()) is not None:
                await accepted.send(frame)
        except TransportError as error:
            await reports.put(error.number)
        finally:
            await accepted.close()
            await reports.put("closed")

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}", reports
    finally:
        server.close()


def handshake(
    caller: Credentials, callee: Credentials, *, callee_hello: bool = True
) -> tuple[str | int, object]:
    """Return whom each side sees, or the number of the error that it gets."""

    async def call() -> tuple[str | int, object]:
        async with listener(callee) as (address, reports):
            try:
                opened = await link.connect(address, caller, HELLO)
            except TransportError as error:
                return error.number, await reports.get()
            await opened.close()
            return opened.peer.user_name, await reports.get()

    return asyncio.run(call())


def test_known_peers_with_connect_are_accepted_by_each_other(identity: Callable[..., Identity]) -> None:
    # A database of an older version may have stored more than a pipe takes.
    shop, warehouse = identity("shop", padding=60_000), identity("warehouse")
    seen = handshake(shop.credentials(warehouse.known()), warehouse.credentials(shop.known()))
    assert seen == ("user of warehouse", "user of shop")


def test_frames_pass_in_both_directions(identity: Callable[..., Identity]) -> None:
    shop, warehouse = identity("shop"), identity("warehouse")

    async def talk() -> list[wire.Frame | None]:
        async with listener(warehouse.credentials(shop.known())) as (address, reports):
            opened = await link.connect(address, shop.credentials(warehouse.known()), HELLO)
            large = wire.Hello(1, 1, [bytes(16)] * 1000, "REQUIRED", 1, 2**31, "x" * 100)
            sent: list[wire.Frame] = [wire.Ping(is_answer=False), large, *[large] * 200]
            received: list[wire.Frame | None] = []

            async def send() -> None:
                for frame in sent:
                    await opened.send(frame)

            sending = asyncio.create_task(send())
            received += [await opened.receive() for _ in sent]
            await sending
            assert received == sent
            await opened.close()
            return [await reports.get(), await reports.get()]  # type: ignore[list-item]

    assert asyncio.run(talk()) == ["user of shop", "closed"]


def test_the_caller_is_told_that_his_certificate_is_unknown(identity: Callable[..., Identity]) -> None:
    shop, warehouse = identity("shop"), identity("warehouse")
    seen = handshake(shop.credentials(warehouse.known()), warehouse.credentials())
    assert seen == (faults.UNKNOWN_CERTIFICATE, faults.UNKNOWN_CERTIFICATE)


def test_the_caller_refuses_an_unknown_certificate(identity: Callable[..., Identity]) -> None:
    shop, warehouse = identity("shop"), identity("warehouse")
    seen = handshake(shop.credentials(), warehouse.credentials(shop.known()))
    assert seen == (faults.UNKNOWN_CERTIFICATE, faults.UNKNOWN_CERTIFICATE)


def test_the_name_alone_does_not_make_a_certificate_known(identity: Callable[..., Identity]) -> None:
    shop, warehouse = identity("shop"), identity("warehouse")
    mimic = identity("mimic", subject="shop")
    seen = handshake(mimic.credentials(warehouse.known()), warehouse.credentials(shop.known()))
    assert seen[0] in (faults.UNKNOWN_CERTIFICATE, faults.NOT_VERIFIED)
    assert seen[1] in (faults.UNKNOWN_CERTIFICATE, faults.NOT_VERIFIED)


def test_a_peer_without_connect_is_refused_with_28034(identity: Callable[..., Identity]) -> None:
    shop, warehouse = identity("shop"), identity("warehouse")
    seen = handshake(
        shop.credentials(warehouse.known()), warehouse.credentials(shop.known(may_connect=False))
    )
    assert seen == (28034, 28034)


def test_a_called_endpoint_without_connect_is_refused_with_28034(identity: Callable[..., Identity]) -> None:
    shop, warehouse = identity("shop"), identity("warehouse")
    seen = handshake(
        shop.credentials(warehouse.known(may_connect=False)), warehouse.credentials(shop.known())
    )
    assert seen == (28034, 28034)


@pytest.mark.parametrize(
    ("begins", "ends", "number"),
    [(-2 * DAY, -DAY, 28025), (DAY, 2 * DAY, 28024)],
    ids=["expired", "not yet valid"],
)
def test_a_caller_out_of_date_is_refused_and_told(
    identity: Callable[..., Identity],
    monkeypatch: pytest.MonkeyPatch,
    begins: timedelta,
    ends: timedelta,
    number: int,
) -> None:
    shop, warehouse = identity("shop", begins=begins, ends=ends), identity("warehouse")
    caller = shop.credentials(warehouse.known())
    with pytest.raises(TransportError) as refused:
        caller.check_own_validity()
    assert refused.value.number == number
    # As with a caller whose clock is wrong.
    monkeypatch.setattr(Credentials, "check_own_validity", lambda _: None)
    assert handshake(caller, warehouse.credentials(shop.known())) == (number, number)


def test_an_expired_called_endpoint_is_refused(identity: Callable[..., Identity]) -> None:
    shop, warehouse = identity("shop"), identity("warehouse", begins=-2 * DAY, ends=-DAY)
    seen = handshake(shop.credentials(warehouse.known()), warehouse.credentials(shop.known()))
    assert seen == (faults.EXPIRED, faults.EXPIRED)


def test_old_and_new_certificate_of_one_name_are_both_accepted(identity: Callable[..., Identity]) -> None:
    warehouse = identity("warehouse")
    old, new = identity("old", subject="shop"), identity("new", subject="shop")
    callee = warehouse.credentials(old.known(), new.known())
    assert handshake(old.credentials(warehouse.known()), callee)[1] == "user of old"
    assert handshake(new.credentials(warehouse.known()), callee)[1] == "user of new"


def test_a_disabled_endpoint_answers_9666(identity: Callable[..., Identity]) -> None:
    shop, warehouse = identity("shop"), identity("warehouse")
    callee = warehouse.credentials(shop.known(), state="DISABLED")
    assert handshake(shop.credentials(warehouse.known()), callee) == (9666, 9666)


def test_nobody_listens_is_9754(identity: Callable[..., Identity]) -> None:
    shop = identity("shop")

    async def call() -> None:
        async with listener(shop.credentials()) as (address, _):
            pass
        await link.connect(address, shop.credentials(), HELLO)

    with pytest.raises(TransportError) as refused:
        asyncio.run(call())
    assert refused.value.number == 9754


def test_one_damaged_certificate_does_not_shut_out_the_others(identity: Callable[..., Identity]) -> None:
    shop, warehouse = identity("shop"), identity("warehouse")
    damaged = KnownCertificate("damaged", "nobody", "-----BEGIN CERTIFICATE-----\nAAAA\n", True)
    seen = handshake(shop.credentials(damaged, warehouse.known()), warehouse.credentials(shop.known()))
    assert seen[0] == "user of warehouse"


def refusal(identity: Identity, endpoint: Endpoint | None, directory: Path | None) -> TransportError:
    with pytest.raises(TransportError) as refused:
        load_credentials(endpoint, [identity.known()], directory)
    return refused.value


def test_an_unusable_endpoint_is_named_by_its_number(identity: Callable[..., Identity]) -> None:
    shop = identity("shop")
    assert refusal(shop, None, shop.directory).number == 9748
    assert refusal(shop, replace(shop.endpoint, state="STOPPED"), shop.directory).number == 9666
    assert refusal(shop, replace(shop.endpoint, certificate_name=None), shop.directory).number == 28036
    assert refusal(shop, shop.endpoint, None).number == 28037
    assert refusal(shop, shop.endpoint, shop.directory / "elsewhere").number == 28037


def test_a_key_that_others_can_read_is_refused(identity: Callable[..., Identity]) -> None:
    shop = identity("shop")
    shop.path.chmod(0o644)
    refused = refusal(shop, shop.endpoint, shop.directory)
    assert refused.number == 28037
    assert "0600" in refused.text


def test_the_key_of_another_certificate_is_refused(identity: Callable[..., Identity]) -> None:
    shop, other = identity("shop"), identity("other")
    shop.path.write_bytes(other.path.read_bytes())
    assert refusal(shop, shop.endpoint, shop.directory).number == 28037


def test_a_damaged_or_encrypted_key_is_refused_without_a_word_of_it(
    identity: Callable[..., Identity],
) -> None:
    shop = identity("shop")
    for content in (
        b"-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n",
        shop.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"password")),
    ):
        shop.path.write_bytes(content)
        refused = refusal(shop, shop.endpoint, shop.directory)
        assert refused.number == 28037
        assert "c2VjcmV0" not in refused.text
        assert refused.__cause__ is None


def test_create_makes_a_private_key_and_a_certificate_that_transport_accepts(tmp_path: Path) -> None:
    directory = tmp_path / "keys"
    made = run("create", "//shop/endpoint", "--key-directory", directory, "--days", "30", "--json")
    assert made.exit_code == 0
    described = json.loads(made.stdout)
    key_path, pem_path = Path(described["key_file"]), Path(described["certificate_file"])
    assert key_path == private_key_path(directory, "//shop/endpoint")
    assert key_path.parent == pem_path.parent == directory
    assert stat.S_IMODE(key_path.stat().st_mode) == 0o600
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert load_pem_private_key(key_path.read_bytes(), None).key_size == 3072  # type: ignore[union-attr]
    pem = pem_path.read_text()
    endpoint = Endpoint("Broker", "STARTED", "ALL", 4022, "//shop/endpoint", pem, "REQUIRED")
    credentials = load_credentials(
        endpoint, [KnownCertificate("//shop/endpoint", "shop", pem, True)], directory
    )
    assert handshake(credentials, credentials) == ("shop", "shop")


@pytest.mark.parametrize("suffix", ["key", "pem"])
def test_create_never_overwrites(tmp_path: Path, suffix: str) -> None:
    existing = tmp_path / f"shop.{suffix}"
    existing.write_text("precious")
    refused = run("create", "shop", "--key-directory", tmp_path)
    assert refused.exit_code == 1
    assert str(existing) in refused.stderr
    assert existing.read_text() == "precious"
    assert list(tmp_path.iterdir()) == [existing]


def test_create_refuses_a_name_that_is_no_common_name(tmp_path: Path) -> None:
    assert run("create", "", "--key-directory", tmp_path).exit_code == 2
    assert run("create", "x" * 65, "--key-directory", tmp_path).exit_code == 2
    assert not list(tmp_path.iterdir())


def test_show_prints_subject_validity_and_fingerprint(tmp_path: Path) -> None:
    created = json.loads(run("create", "shop", "--key-directory", tmp_path, "--json").stdout)
    shown = run("show", tmp_path / "shop.pem", "--json")
    assert shown.exit_code == 0
    described = json.loads(shown.stdout)
    assert described["subject"] == "CN=shop"
    assert described["is_valid"] is True
    assert described["fingerprint"] == created["fingerprint"]
    assert created["fingerprint"] in run("show", tmp_path / "shop.pem").stdout


def test_show_exits_with_3_for_an_expired_certificate(tmp_path: Path) -> None:
    file = tmp_path / "old.pem"
    file.write_text(Identity(tmp_path / "keys", "old", begins=-2 * DAY, ends=-DAY).pem)
    shown = run("show", file, "--json")
    assert shown.exit_code == 3
    assert json.loads(shown.stdout)["is_valid"] is False


def test_show_says_in_one_line_what_is_no_certificate(tmp_path: Path) -> None:
    file = tmp_path / "shop.pem"
    assert run("show", file).exit_code == 1
    file.write_text("nonsense")
    refused = run("show", file)
    assert refused.exit_code == 1
    assert refused.stderr.count("\n") == 1


@pytest.mark.parametrize("command", ["create", "show", "install", "master-key"])
def test_help_has_an_example(command: str) -> None:
    assert f"pybroker certificate {command}" in run(command, "--help").stdout


def test_create_makes_a_master_key_once(tmp_path: Path) -> None:
    run("create", "shop", "--key-directory", tmp_path)
    first = read_master_key(master_key_path(tmp_path))
    assert stat.S_IMODE(master_key_path(tmp_path).stat().st_mode) == 0o600
    run("create", "warehouse", "--key-directory", tmp_path)
    assert read_master_key(master_key_path(tmp_path)) == first
    assert run("create", "dialog-master-of-mine", "--key-directory", tmp_path).exit_code == 2


def test_a_master_key_is_never_lost_by_making_another(tmp_path: Path) -> None:
    directory = tmp_path / "keys"
    assert run("master-key", "--rotate", "--key-directory", directory).exit_code == 1
    made = json.loads(run("master-key", "--key-directory", directory, "--json").stdout)
    first = read_master_key(Path(made["key_file"]))
    assert first.id.hex() == made["id"]
    assert run("master-key", "--key-directory", directory).exit_code == 1
    rotated = run("master-key", "--rotate", "--key-directory", directory, "--json")
    described = json.loads(rotated.stdout)
    assert read_master_key(Path(described["old_key_file"])) == first
    assert read_master_key(Path(described["key_file"])).id.hex() == described["id"] != made["id"]
    assert stat.S_IMODE(Path(described["key_file"]).stat().st_mode) == 0o600
