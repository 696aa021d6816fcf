"""Who talks to whom, and whether anybody can listen: rows 126 and 127, between two endpoints."""

from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import psutil
import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa

from pybroker.workers.transport.connection import link
from pybroker.workers.transport.connection.tls import TlsStream
from pybroker.workers.transport.protocol import handshake, wire
from pybroker.workers.transport.protocol.faults import TransportError
from tests.brokers import Site, two_sites
from tests.shop import until
from tests.worker.test_certificate import DAY, HELLO, Identity, listener

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from uuid import UUID

    from pybroker.embedded import EmbeddedServer
    from pybroker.workers.transport.connection.certificate_check import Credentials

    Outcome = tuple[str | int, str | int]

MODES = ("DISABLED", "SUPPORTED", "REQUIRED")


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Identity, Identity]:
    return Identity(tmp_path / "keys", "shop"), Identity(tmp_path / "keys", "warehouse")


def between(
    pair: tuple[Identity, Identity], connecting: str, accepting: str
) -> tuple[Credentials, Credentials]:
    shop, warehouse = pair
    return (
        shop.credentials(warehouse.known(), encryption=connecting),
        warehouse.credentials(shop.known(), encryption=accepting),
    )


def hello(credentials: Credentials) -> wire.Hello:
    return msgspec.structs.replace(HELLO, encryption=credentials.endpoint.encryption)


def greet(caller: Credentials, callee: Credentials) -> Outcome:
    """Return what each side has: the cipher (TLS or NONE) after a frame went there and back, or the number of its error."""

    async def play() -> Outcome:
        outcome: asyncio.Queue[str | int] = asyncio.Queue()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                accepted = await link.accept(reader, writer, callee, hello(callee))
                frame = await accepted.receive()
                assert frame is not None
                await accepted.send(frame)
                await outcome.put(cipher_of(accepted))
                await accepted.close()
            except TransportError as error:
                await outcome.put(error.number)

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        try:
            async with asyncio.timeout(30):
                mine: str | int
                try:
                    opened = await link.connect(f"tcp://127.0.0.1:{port_of(server)}", caller, hello(caller))
                    await opened.send(wire.Ping(is_answer=False))
                    assert await opened.receive() == wire.Ping(is_answer=False)
                    mine = cipher_of(opened)
                    await opened.close()
                except TransportError as error:
                    mine = error.number
                theirs = await outcome.get()
                while not outcome.empty():
                    # The caller began with TLS, and came again without.
                    theirs = await outcome.get()
                return mine, theirs
        finally:
            server.close()

    return asyncio.run(play())


def port_of(server: asyncio.Server) -> int:
    port: int = server.sockets[0].getsockname()[1]
    return port


def cipher_of(opened: link.Link) -> str:
    return opened.encryption.partition("_")[0]


@pytest.mark.parametrize("connecting", MODES)
@pytest.mark.parametrize("accepting", MODES)
def test_row_126_encryption_is_negotiated(
    pair: tuple[Identity, Identity], connecting: str, accepting: str
) -> None:
    both = {connecting, accepting}
    expected: str | int = "NONE" if "DISABLED" in both else "TLS"
    if both == {"DISABLED", "REQUIRED"}:
        expected = 28027
    assert greet(*between(pair, connecting, accepting)) == (expected, expected)


def test_row_126_nobody_on_the_line_talks_two_endpoints_out_of_encryption(
    pair: tuple[Identity, Identity],
) -> None:
    caller, callee = between(pair, "SUPPORTED", "SUPPORTED")
    # Told falsely that the far side has no encryption, the caller comes in the clear, and says what it could do.
    said = handshake.challenge(caller)
    assert said.encryption == "SUPPORTED"
    with pytest.raises(TransportError) as refused:
        handshake.refuse_without_encryption("SUPPORTED", said.encryption)
    assert refused.value.number == 28027
    # If that is changed on its way, the signature is of something else.
    answer = handshake.challenge(callee)
    proof = handshake.sign(caller, said, answer, accepts=False)
    changed = msgspec.structs.replace(said, encryption="DISABLED")
    handshake.verify(said, answer, proof, accepts=False)
    with pytest.raises(TransportError) as refused:
        handshake.verify(changed, answer, proof, accepts=False)
    assert refused.value.number == 28038


def test_row_127_without_encryption_a_certificate_is_proven_by_its_key(
    pair: tuple[Identity, Identity], tmp_path: Path
) -> None:
    shop, warehouse = pair
    caller, callee = between(pair, "DISABLED", "DISABLED")
    thief = Identity(tmp_path / "keys", "thief").credentials(warehouse.known(), encryption="DISABLED")
    assert greet(thief, callee) == (28045, 28045)
    # With the shop's certificate, which is no secret, and a key of his own.
    assert greet(replace(caller, key=thief.key), callee) == (28038, 28038)
    assert greet(caller, replace(callee, key=thief.key)) == (28038, 28038)
    without = warehouse.credentials(shop.known(may_connect=False), encryption="DISABLED")
    assert greet(caller, without) == (28034, 28034)
    closed = warehouse.credentials(shop.known(), encryption="DISABLED", state="DISABLED")
    assert greet(caller, closed) == (9666, 9666)
    expired = Identity(tmp_path / "keys", "expired", begins=-2 * DAY, ends=-DAY)
    late = expired.credentials(shop.known(), encryption="DISABLED")
    known = shop.credentials(expired.known(), encryption="DISABLED")
    assert greet(known, late) == (28025, 28025)


def test_row_127_a_proof_is_of_one_connection_and_of_one_side(pair: tuple[Identity, Identity]) -> None:
    caller, callee = between(pair, "DISABLED", "DISABLED")
    mine, theirs = handshake.challenge(caller), handshake.challenge(callee)
    proof = handshake.sign(caller, mine, theirs, accepts=False)
    handshake.verify(mine, theirs, proof, accepts=False)
    mirrored = handshake.sign(caller, mine, theirs, accepts=True)
    for connecting, accepting, signature in (
        (handshake.challenge(caller), theirs, proof),
        (mine, handshake.challenge(callee), proof),
        (mine, theirs, mirrored),
        (mine, theirs, b"\0" * len(proof)),
    ):
        with pytest.raises(TransportError) as refused:
            handshake.verify(connecting, accepting, signature, accepts=False)
        assert refused.value.number == 28038


@pytest.mark.parametrize("kind", ["RSA", "Ed25519"])
def test_row_127_keys_of_other_kinds_sign_too(pair: tuple[Identity, Identity], kind: str) -> None:
    caller, callee = between(pair, "DISABLED", "DISABLED")
    key = rsa.generate_private_key(65537, 2048) if kind == "RSA" else ed25519.Ed25519PrivateKey.generate()
    signer = Identity(pair[0].directory, "signer", key=key).credentials(encryption="DISABLED")
    said, answer = handshake.challenge(signer), handshake.challenge(callee)
    handshake.verify(said, answer, handshake.sign(signer, said, answer, accepts=False), accepts=False)
    with pytest.raises(TransportError):
        handshake.verify(said, answer, handshake.sign(caller, said, answer, accepts=False), accepts=False)


VERSIONS = pytest.mark.parametrize(
    ("caller", "callee", "number"),
    [
        ((1, 1), (1, 1), None),
        ((3, 1), (1, 1), None),
        ((1, 1), (3, 1), None),
        ((3, 2), (2, 1), None),
        ((3, 2), (1, 1), 28027),
        ((1, 1), (3, 2), 28027),
        ((5, 4), (3, 2), 28027),
    ],
)


def of_versions(version: int, oldest_version: int) -> wire.Hello:
    return msgspec.structs.replace(HELLO, version=version, oldest_version=oldest_version)


@VERSIONS
def test_two_without_a_common_version_hang_up_and_both_know_why(
    pair: tuple[Identity, Identity], caller: tuple[int, int], callee: tuple[int, int], number: int | None
) -> None:
    shop, warehouse = between(pair, "REQUIRED", "REQUIRED")

    async def call() -> tuple[object, object]:
        async with listener(warehouse, of_versions(*callee)) as (address, reports):
            try:
                opened = await link.connect(address, shop, of_versions(*caller))
            except TransportError as fault:
                return fault.number, await reports.get()
            await opened.close()
            return None, await reports.get()

    assert asyncio.run(call()) == (number, number or "user of shop")


@VERSIONS
def test_a_caller_of_another_version_is_refused_though_he_asks_for_none(
    pair: tuple[Identity, Identity], caller: tuple[int, int], callee: tuple[int, int], number: int | None
) -> None:
    shop, warehouse = between(pair, "REQUIRED", "REQUIRED")

    async def call() -> tuple[object, object]:
        async with listener(warehouse, of_versions(*callee)) as (address, reports):
            streams = await asyncio.open_connection(*link.host_and_port(address))
            stream, decoder = TlsStream(*streams, shop.client_context, server_side=False), wire.FrameDecoder()
            await stream.handshake()
            assert isinstance(await link._receive(stream, decoder), wire.Hello)
            await stream.write(wire.encode(of_versions(*caller)))
            report = await reports.get()
            answer = await link._receive(stream, decoder) if report == number else None
            await stream.close()
            return answer.error_number if isinstance(answer, wire.Refusal) else None, report

    assert asyncio.run(call()) == (number, number or "user of shop")


@pytest.fixture(scope="module")
def sites(
    tmp_path_factory: pytest.TempPathFactory, server_for: Callable[[str, int], EmbeddedServer]
) -> Iterator[tuple[Site, Site]]:
    with two_sites(tmp_path_factory.mktemp("sites"), server_for=server_for) as (initiator, target):
        initiator.start_worker()
        target.start_worker()
        yield initiator, target


def begin(site: Site) -> UUID:
    handle: UUID = site.psql.value(
        "select broker.begin_dialog('//shop', '//warehouse', 'ordering', encryption => false)"
    )
    return handle


def arrives(shop: Site, warehouse: Site, body: bytes) -> None:
    shop.psql.send(begin(shop), "order", body)
    assert warehouse.psql.bodies(timeout="120 s") == [body]


def test_row_126_an_endpoint_changes_its_encryption_while_it_runs(sites: tuple[Site, Site]) -> None:
    shop, warehouse = sites
    change = "select broker.alter_endpoint('endpoint', encryption => %s)"
    warehouse.psql.rows(change, "DISABLED")
    shop.psql.rows(change, "SUPPORTED")
    arrives(shop, warehouse, b"in the clear, or by a connection of before")
    shop.psql.rows(change, "REQUIRED")
    shop.kill_worker()
    shop.start_worker()
    dialog = begin(shop)
    shop.psql.send(dialog, "order", b"waits")
    until(lambda: "28027" in shop.psql.value("select broker.get_transmission_status(%s)", dialog))
    assert warehouse.psql.bodies() == []
    warehouse.psql.rows(change, "REQUIRED")
    assert warehouse.psql.bodies(timeout="120 s") == [b"waits"]


def test_row_127_who_may_not_connect_any_more_loses_the_connection_that_he_has(
    sites: tuple[Site, Site],
) -> None:
    shop, warehouse = sites
    connected = "select from broker.dm_broker_connections where login_state_desc = 'ONLINE'"
    arrives(shop, warehouse, b"while he may")
    until(lambda: warehouse.psql.rows(connected) != [])
    warehouse.psql.rows("select broker.revoke('CONNECT', 'ENDPOINT', 'endpoint', 'shop_user')")
    until(lambda: warehouse.psql.rows(connected) == [])
    dialog = begin(shop)
    shop.psql.send(dialog, "order", b"waits")
    until(lambda: "28034" in shop.psql.value("select broker.get_transmission_status(%s)", dialog))
    assert warehouse.psql.bodies() == []
    warehouse.psql.rows("select broker.grant('CONNECT', 'ENDPOINT', 'endpoint', 'shop_user')")
    assert warehouse.psql.bodies(timeout="120 s") == [b"waits"]


def test_a_thousand_strangers_who_say_nothing_keep_no_peer_out_and_cost_little(
    sites: tuple[Site, Site],
) -> None:
    shop, warehouse = sites
    assert warehouse.worker is not None
    arrives(shop, warehouse, b"before")
    worker = psutil.Process(warehouse.worker.pid)
    before = worker.memory_info().rss
    shop.kill_worker()
    with ExitStack() as strangers:
        for number in range(1000):
            stranger = strangers.enter_context(socket.create_connection(("127.0.0.1", warehouse.port)))
            stranger.setblocking(False)
            if number % 3:
                # Some begin a handshake, or a frame, and never end it.
                stranger.send(b"\x16\x03\x01\x02\x00" if number % 3 == 1 else b"\0\0\xff\xff")
        shop.start_worker()
        arrives(shop, warehouse, b"in spite of them")
        assert worker.memory_info().rss - before < 64 * 2**20
        connected = [
            each
            for each in worker.net_connections("tcp")
            if each.laddr and each.laddr.port == warehouse.port and each.status == psutil.CONN_ESTABLISHED
        ]
        assert len(connected) <= 80


def test_row_127_a_certificate_is_replaced_while_messages_flow(sites: tuple[Site, Site]) -> None:
    shop, warehouse = sites

    def renewals() -> int:
        return warehouse.log.read_text().count("endpoint_renewed")

    shop.kill_worker()
    until(lambda: "listener_opened" in warehouse.log.read_text())
    # Were the connection lost, or one refused, nothing would arrive in the time of this test.
    shop.start_worker(reconnect_after=600, retry_connect_after=600)
    arrives(shop, warehouse, b"by the old one")
    new = Identity(shop.keys, "shop_new", subject="shop", ends=20 * DAY)
    before = renewals()
    warehouse.psql.rows("select broker.create_certificate('shop_new', %s, 'shop_user')", new.pem)
    until(lambda: renewals() > before)
    shop.psql.rows("select broker.create_certificate('shop_new', %s, current_user)", new.pem)
    shop.psql.rows("select broker.alter_endpoint('endpoint', certificate => 'shop_new')")
    until(lambda: "certificate_expires_soon" in shop.log.read_text())
    arrives(shop, warehouse, b"by the new one")
    before = renewals()
    warehouse.psql.rows("select broker.drop_certificate('shop')")
    until(lambda: renewals() > before)
    arrives(shop, warehouse, b"without the old one")
