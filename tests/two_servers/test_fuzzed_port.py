"""What anybody may send to a worker's port: before he has shown who he is, and after. A worker answers it or hangs up, and lives.

`tests/frames` has what is sent each time, a file each; hypothesis adds what it finds. PYBROKER_FUZZ_EXAMPLES runs more.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
import struct
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pybroker.workers.transport.connection import link
from pybroker.workers.transport.protocol import arrays, faults, wire
from pybroker.workers.transport.protocol.faults import TransportError
from pybroker.workers.transport.protocol.rows import KnownCertificate
from tests.brokers import Site, two_sites
from tests.shop import until
from tests.unit.test_wire import FRAMES
from tests.worker.test_certificate import Identity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pybroker.embedded import EmbeddedServer
    from pybroker.workers.transport.connection.certificate_check import Credentials

EXAMPLES = int(os.environ.get("PYBROKER_FUZZ_EXAMPLES", "100"))
CORPUS = sorted((Path(__file__).parents[1] / "frames").glob("*.hex"))
GROWTH_BYTES = 48 * 2**20
ENOUGH_SECONDS = 120.0
FUZZING = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
PING = bytes(wire.encode(wire.Ping(is_answer=False)))
MICROSECONDS = 1_000_000


class Broken(NamedTuple):
    """The connections of 28040 in a worker's log: those that are named, and all."""

    named: int
    counted: int


def frame_of(fields: dict[str, Any], kind: str = "batch") -> bytes:
    """Return the bytes of a frame with any fields whatever."""
    payload = msgspec.msgpack.encode({"frame": kind, **fields})
    return struct.pack(">I", len(payload)) + payload


def is_whole(data: bytes) -> bool:
    """Tell whether the bytes end where a frame does, or have one that is refused for its length."""
    while len(data) >= len(PING[:4]):
        (length,) = struct.unpack_from(">I", data)
        if length > wire.MAXIMUM_FRAME_BYTES:
            return True
        if len(data) < 4 + length:
            return False
        data = data[4 + length :]
    return not data


NONSENSE = frame_of({}, "nonsense")


def changed_at(data: bytes, at: int, change: bytes) -> bytes:
    return data[:at] + change + data[at + len(change) :]


class Target:
    """A warehouse with its worker, and a peer of it who has CONNECT and means no good."""

    def __init__(self, shop: Site, warehouse: Site, credentials: Credentials) -> None:
        self.shop = shop
        self.warehouse = warehouse
        self.credentials = credentials
        self.hello = wire.Hello(1, 1, [bytes(16)], "SUPPORTED", 16, wire.MAXIMUM_FRAME_BYTES)
        self.numbers = 0
        self._runner = asyncio.Runner()
        self._link: link.Link | None = None

    @property
    def worker(self) -> psutil.Process:
        assert self.warehouse.worker is not None
        assert self.warehouse.worker.poll() is None, "the worker is dead"
        return psutil.Process(self.warehouse.worker.pid)

    @property
    def connections(self) -> int:
        """How many connections the worker's port has."""
        return sum(
            1
            for each in self.worker.net_connections("tcp")
            if each.laddr
            and each.laddr.port == self.warehouse.port
            and each.status == psutil.CONN_ESTABLISHED
        )

    def broken(self) -> Broken:
        """Return how many connections have broken the protocol, as the log tells; of the newest it may lack some."""
        lines = [line for line in self.warehouse.log.read_text().splitlines() if "number=28040" in line]
        named = sum("connection_refused" in line for line in lines)
        counts = [int(count) for line in lines for count in re.findall(r"connections=(\d+)", line)]
        return Broken(named, named + sum(counts) - len(counts))

    def say(self, data: bytes) -> list[wire.Frame] | None:
        """Say this as a peer who has CONNECT, and then ask for an answer; return all answers, or None if he hangs up."""
        return self._runner.run(self._say(data))

    async def _say(self, data: bytes) -> list[wire.Frame] | None:
        async with asyncio.timeout(ENOUGH_SECONDS):
            while self._link is None:
                address = f"tcp://127.0.0.1:{self.warehouse.port}"
                # On a busy machine a handshake may take longer than it is given.
                with contextlib.suppress(TransportError):
                    self._link = await link.connect(address, self.credentials, self.hello)
            opened = self._link
            answers: list[wire.Frame] = []
            # The answer to a batch may come after that to the question.
            due = 1 + data.count(b"\xa5batch")
            try:
                if not is_whole(data):
                    # He would wait for the rest, and take the question for it.
                    await opened._stream.write(data)
                    await self.hang_up()
                    return None
                await opened._stream.write(data + PING)
                while len(answers) < due:
                    frame = await opened.receive()
                    if frame is None:
                        break
                    answers.append(frame)
            except (TransportError, OSError):
                answers = []
            if len(answers) < due:
                await self.hang_up()
                return None
            return [answer for answer in answers if not isinstance(answer, wire.Ping)]

    async def hang_up(self) -> None:
        if self._link is not None:
            await self._link.close()
        self._link = None

    def hang_up_now(self) -> None:
        self._runner.run(self.hang_up())

    def close(self) -> None:
        self.hang_up_now()
        self._runner.close()

    def shout(self, data: bytes) -> None:
        """Say this as a stranger, and leave."""
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", self.warehouse.port)) as line,
        ):
            line.settimeout(ENOUGH_SECONDS)
            line.sendall(data)
            line.shutdown(socket.SHUT_WR)
            while line.recv(65536):
                pass

    def batch(self, **changes: object) -> dict[str, Any]:
        """Return the fields of a batch that is right: one message that opens a dialog with the warehouse."""
        self.numbers += 1
        tomorrow = int((time.time() - 946_684_800 + 86_400) * MICROSECONDS)
        fields: dict[str, Any] = {
            "number": self.numbers,
            "from_broker": uuid.UUID(int=7).bytes,
            "to_service": "//warehouse",
            "to_broker": None,
            "conversation_ids": arrays.from_elements([uuid.uuid4().bytes], arrays.UUID),
            "from_initiator": arrays.from_elements([b"\1"], arrays.BOOLEAN),
            "from_services": arrays.from_texts(["//far"]),
            "to_services": arrays.from_texts(["//warehouse"]),
            "to_brokers": arrays.from_elements([None], arrays.UUID),
            "contracts": arrays.from_texts(["ordering"]),
            "expirations": arrays.from_elements([struct.pack(">q", tomorrow)], arrays.TIMESTAMPTZ),
            "encrypted": arrays.from_elements([b"\0"], arrays.BOOLEAN),
            "type_names": arrays.from_texts(["order"]),
            "dialog_index": arrays.from_integers([1], arrays.INTEGER),
            "type_index": arrays.from_integers([1], arrays.INTEGER),
            "sequence_numbers": arrays.from_integers([0], arrays.BIGINT),
            "kinds": "M",
            "bodies": arrays.from_elements([b"fine"], arrays.BYTEA),
        }
        return {**fields, **changes}

    def is_well(self) -> None:
        """Assert that the worker does what it is for, and says nothing of an accident."""
        dialog = self.shop.psql.value(
            "select broker.begin_dialog('//shop', '//warehouse', 'ordering', encryption => false)"
        )
        self.shop.psql.send(dialog, "order", b"after all that")
        bodies: list[bytes | None] = []
        while b"after all that" not in bodies:
            bodies = self.warehouse.psql.bodies(timeout="120 s")
        log = self.warehouse.log.read_text()
        for accident in ("batch_failed", "Traceback", "never retrieved", "component_failed"):
            assert accident not in log


@pytest.fixture(scope="module")
def target(
    tmp_path_factory: pytest.TempPathFactory, server_for: Callable[[str, int], EmbeddedServer]
) -> Iterator[Target]:
    directory = tmp_path_factory.mktemp("fuzzed")
    with two_sites(directory, server_for=server_for) as (shop, warehouse):
        peer = Identity(directory / "keys", "peer")
        warehouse.trust("peer", peer.pem)
        for site in (shop, warehouse):
            site.psql.rows("select broker.alter_endpoint('endpoint', encryption => 'SUPPORTED')")
        warehouse.psql.rows("select broker.grant('SEND', 'SERVICE', '//warehouse', 'public')")
        warehouse.start_worker()
        shop.start_worker()
        until(lambda: "listener_opened" in warehouse.log.read_text())
        pem = (warehouse.keys / "warehouse.pem").read_text()
        credentials = peer.credentials(KnownCertificate("warehouse", "warehouse_user", pem, True))
        target = Target(shop, warehouse, credentials)
        target.is_well()
        yield target
        target.close()


def corpus(file: Path) -> bytes:
    """Return the bytes of a file of the corpus; what follows # is for people."""
    return bytes.fromhex(re.sub(r"#.*", "", file.read_text()))


prefixed = st.builds(
    lambda length, payload: struct.pack(">I", max(0, len(payload) + length)) + payload,
    st.sampled_from([0, 0, 0, -1, 1, 70_000, 2**24, 2**32 - 1 - 4096]),
    st.binary(max_size=2000),
)
flipped = st.builds(
    lambda data, at, byte: changed_at(data, at % len(data), byte),
    st.sampled_from([bytes(wire.encode(frame)) for frame in FRAMES if not isinstance(frame, wire.Batch)]),
    st.integers(0, 10_000),
    st.binary(min_size=1, max_size=1),
)
cut = st.builds(
    lambda frame, at: bytes(wire.encode(frame))[: at % 300],
    st.sampled_from(FRAMES),
    st.integers(1, 300),
)
anything = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=True),
    st.text(max_size=200),
    st.binary(max_size=200),
    st.lists(st.integers(0, 3), max_size=4),
    st.dictionaries(st.text(max_size=3), st.integers(0, 3), max_size=2),
)
element_types = (
    arrays.BOOLEAN,
    arrays.BYTEA,
    arrays.BIGINT,
    arrays.INTEGER,
    arrays.TEXT,
    arrays.TIMESTAMPTZ,
    arrays.UUID,
)
any_array = st.builds(
    lambda elements, kind, at, change: changed_at(arrays.from_elements(elements, kind), at, change),
    st.lists(st.one_of(st.none(), st.binary(max_size=20), st.just(bytes(8)), st.just(bytes(16))), max_size=4),
    st.sampled_from(element_types),
    st.integers(0, 24),
    st.one_of(st.just(b""), st.binary(max_size=4)),
)


def one(kind: int, *elements: st.SearchStrategy[bytes | None]) -> st.SearchStrategy[bytes]:
    """Arrays of one element, as a batch of one dialog and one message has them."""
    return st.builds(lambda element: arrays.from_elements([element], kind), st.one_of(st.none(), *elements))


def number(kind: int, width: int) -> st.SearchStrategy[bytes]:
    edge = 2 ** (8 * width - 1)
    numbers = st.one_of(st.integers(-1, 3), st.integers(-edge, edge - 1), st.sampled_from([-edge, edge - 1]))
    return one(
        kind, numbers.map(lambda n: n.to_bytes(width, "big", signed=True)), st.binary(max_size=width + 1)
    )


some_names = st.one_of(
    st.sampled_from(
        [
            b"//warehouse",
            b"//shop",
            b"ordering",
            b"DEFAULT",
            b"order",
            b"ack",
            b"",
            b"\0",
            b"\xff",
            b"x" * 300,
        ]
    ),
    st.text(max_size=20).map(str.encode),
)
texts = one(arrays.TEXT, some_names)
guids = one(arrays.UUID, st.binary(min_size=16, max_size=16), st.just(bytes(16)), st.binary(max_size=17))
booleans = one(arrays.BOOLEAN, st.sampled_from([b"\0", b"\1", b"\2", b""]))
# Of the right type, so that the database sees it, and any value of that type.
PLAUSIBLE: dict[str, st.SearchStrategy[Any]] = {
    "from_broker": st.binary(min_size=16, max_size=16),
    "to_service": st.sampled_from(["//warehouse", "//nobody", "\0", "x" * 128, "\ud7ff"]),
    "to_broker": st.sampled_from([None, bytes(16)]),
    "conversation_ids": guids,
    "from_initiator": booleans,
    "from_services": texts,
    "to_services": texts,
    "to_brokers": guids,
    "contracts": texts,
    "expirations": number(arrays.TIMESTAMPTZ, 8),
    "encrypted": booleans,
    "type_names": texts,
    "dialog_index": number(arrays.INTEGER, 4),
    "type_index": number(arrays.INTEGER, 4),
    "sequence_numbers": number(arrays.BIGINT, 8),
    "kinds": st.sampled_from(["M", "E", "X"]),
    "bodies": one(arrays.BYTEA, st.binary(max_size=50)),
    "envelopes": one(arrays.BYTEA, st.binary(max_size=50)),
    "key_exchanges": st.lists(st.binary(min_size=1, max_size=50), max_size=2),
    "after": st.none() | st.integers(1, 2**63 - 1),
    "hops_remaining": st.integers(0, 255),
    "time_to_live_ms": st.integers(0, 2**31 - 1),
}
plausible = st.lists(st.sampled_from(sorted(PLAUSIBLE)), min_size=1, max_size=3, unique=True).flatmap(
    lambda chosen: st.fixed_dictionaries({name: PLAUSIBLE[name] for name in chosen})
)
MISSING = object()


def test_frames_before_anybody_has_proven_who_he_is(target: Target) -> None:
    before, connections = target.worker.memory_info().rss, target.connections
    for file in CORPUS:
        target.shout(corpus(file))

    @FUZZING
    @given(st.one_of(st.binary(max_size=600), prefixed, flipped, cut))
    def shout(data: bytes) -> None:
        target.shout(data)

    shout()
    until(lambda: target.connections <= connections)
    target.is_well()
    assert target.worker.memory_info().rss - before < GROWTH_BYTES
    # Counted, and not a line for each.
    until(lambda: "connections_refused" in target.warehouse.log.read_text())


def test_frames_of_a_peer_who_may_connect(target: Target) -> None:
    before, connections = target.worker.memory_info().rss, target.connections
    for file in CORPUS:
        target.say(corpus(file))

    @FUZZING
    @given(st.one_of(st.binary(max_size=600), prefixed, flipped))
    def say(data: bytes) -> None:
        answers = target.say(data)
        assert not any(isinstance(answer, wire.Ack) for answer in answers or [])

    say()
    # A length that promises much, and then its bytes: they are not kept.
    assert target.say(struct.pack(">I", wire.MAXIMUM_FRAME_BYTES) + bytes(wire.MAXIMUM_FRAME_BYTES)) is None
    assert target.say(struct.pack(">I", wire.MAXIMUM_FRAME_BYTES + 1)) is None
    until(lambda: target.connections <= connections + 1)
    target.is_well()
    assert target.worker.memory_info().rss - before < GROWTH_BYTES
    # Each is counted, of whom only the first is named until the next count.
    named = target.broken().named
    while target.broken().named == named:
        assert target.say(NONSENSE) is None
    counted = target.broken().counted
    for _ in range(20):
        assert target.say(NONSENSE) is None
    until(lambda: target.broken().counted >= counted + 20)


def test_batches_that_are_refused_are_counted(target: Target) -> None:
    def refused() -> bool:
        data = b"".join(frame_of(target.batch(to_broker=bytes(16))) for _ in range(5))
        answers = target.say(data) or []
        assert all(isinstance(answer, wire.Refusal) for answer in answers)
        return "batches_refused" in target.warehouse.log.read_text()

    until(refused)


def test_batches_with_anything_in_their_fields_are_answered_or_end_the_connection(target: Target) -> None:
    before = target.worker.memory_info().rss
    names = [name for name in wire.Batch.__struct_fields__ if name != "number"]
    wild = st.dictionaries(
        st.sampled_from(names), st.one_of(any_array, anything, st.just(MISSING)), min_size=1, max_size=2
    )

    @FUZZING
    @given(st.one_of(plausible, plausible, plausible, wild))
    def say(changes: dict[str, object]) -> None:
        fields = {name: value for name, value in target.batch(**changes).items() if value is not MISSING}
        for answer in target.say(frame_of(fields)) or []:
            assert isinstance(answer, (wire.Ack, wire.Refusal))
            if isinstance(answer, wire.Refusal):
                # A constraint or a cast may refuse it; an error inside of PostgreSQL may not be what keeps it out.
                assert not re.search("SQLSTATE (XX|P0|42)", answer.text), answer.text

    say()
    target.is_well()
    assert target.worker.memory_info().rss - before < GROWTH_BYTES


def test_a_peer_who_takes_batches_too_says_anything(target: Target) -> None:
    before = target.worker.memory_info().rss
    one_way = target.hello
    target.hello = msgspec.structs.replace(one_way, arbitration_id=uuid.uuid4().bytes)
    try:
        for data in [corpus(file) for file in CORPUS] + [bytes(wire.encode(frame)) for frame in FRAMES]:
            target.say(data)
        # After his farewell he has nothing more to say.
        farewell = bytes(wire.encode(wire.Farewell(faults.CLOSED_IDLE, "")))
        for more in (farewell, frame_of(target.batch())):
            target.say(farewell + more)
            target.hang_up_now()
    finally:
        target.hello = one_way
        target.hang_up_now()
    target.is_well()
    assert target.worker.memory_info().rss - before < GROWTH_BYTES


def test_a_peer_who_calls_himself_by_another_workers_id_gets_none_of_its_messages(target: Target) -> None:
    shop, warehouse = target.shop.psql, target.warehouse.psql
    known = "select peer_arbitration_id from broker.dm_broker_connections where principal_name = 'shop_user'"
    target.is_well()
    until(lambda: warehouse.rows(known) != [])
    dialog = shop.value(
        "select broker.begin_dialog('//shop', '//warehouse', 'ordering', encryption => false)"
    )
    shop.send(dialog, "order", b"to be answered")
    which = "select {} from broker.conversation_endpoints where {} = %s"
    conversation = shop.value(which.format("conversation_id", "conversation_handle"), dialog)
    far = which.format("conversation_handle", "conversation_id")
    until(lambda: warehouse.rows(far, conversation) != [])
    handle = warehouse.value(far, conversation)
    one_way = target.hello
    target.hang_up_now()
    target.hello = msgspec.structs.replace(one_way, arbitration_id=warehouse.value(known).bytes)
    try:
        # He may have been given up meanwhile, as one who is silent for long.
        assert not target.say(b"")
        warehouse.send(handle, "ack", b"by the line that is there")
        until(lambda: b"by the line that is there" in shop.bodies("shop", timeout="1 s"))
        target.shop.kill_worker()
        warehouse.send(handle, "ack", b"while only he is there")
        until(lambda: warehouse.value("select broker.get_transmission_status(%s)", handle) != "")
        assert not target.say(b"")
        target.shop.start_worker()
        until(lambda: b"while only he is there" in shop.bodies("shop", timeout="1 s"))
    finally:
        target.hello = one_way
        target.hang_up_now()
    target.is_well()


def test_what_is_replayed_or_forged_is_not_delivered(target: Target) -> None:
    warehouse = target.warehouse.psql
    fields = target.batch(bodies=arrays.from_elements([b"once"], arrays.BYTEA))
    for _ in range(3):
        (answer,) = target.say(frame_of(fields)) or []
        assert isinstance(answer, wire.Ack)
        assert arrays.to_integers(answer.next_numbers, arrays.BIGINT) == [1]
        fields["number"] += 1
    assert warehouse.bodies() == [b"once"]
    # From the side that has said nothing, on this dialog and on one that nobody began.
    from_target = {"from_initiator": arrays.from_elements([b"\0"], arrays.BOOLEAN)}
    unknown = {"conversation_ids": arrays.from_elements([bytes(16)], arrays.UUID)}
    for forged in ({**fields, **from_target}, {**fields, **from_target, **unknown}):
        target.numbers += 10
        (answer,) = target.say(frame_of({**forged, "number": target.numbers})) or []
        assert isinstance(answer, wire.Ack)
        (code,) = arrays.to_nullable_integers(answer.fault_codes, arrays.INTEGER)
        assert code is not None
    assert warehouse.bodies() == []
    # Answers to what nobody asked, a second greeting, and more at once than was agreed.
    for frame in FRAMES:
        if not isinstance(frame, (wire.Batch, wire.Ping)):
            assert target.say(bytes(wire.encode(frame))) is None
    target.is_well()
