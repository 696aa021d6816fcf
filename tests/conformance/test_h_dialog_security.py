"""Dialog security between two workers, over a line that somebody listens to and changes: rows 120 to 125 and 128.

The endpoints do not encrypt, so what the listener can't read or change is what dialog security keeps from him.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
from typing import TYPE_CHECKING, TypeGuard

import msgspec
import pytest
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from pybroker.workers.transport.dialog_security import key_files
from pybroker.workers.transport.protocol import arrays, envelope, wire
from tests.brokers import Site, two_sites
from tests.proxy import Proxy
from tests.shop import END_DIALOG, until
from tests.two_servers.test_dialog_security import rsa_key
from tests.worker.test_certificate import DAY, Identity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from uuid import UUID

    from pybroker.embedded import EmbeddedServer

_NUMBERS = itertools.count(1)
CERTIFICATE = "select broker.create_certificate(%s, %s, %s::name)"


class Listener:
    """Somebody on the line, whoever calls: keeps every frame, and changes what a test wants changed."""

    def __init__(self, *ports: int) -> None:
        self.proxies = [Proxy(port) for port in ports]
        for proxy in self.proxies:
            proxy.rewrites = self._rewrite
        self.frames: list[wire.Frame] = []
        self._seen: list[bytes] = []
        self.changes: Callable[[wire.Frame], list[wire.Frame]] | None = None
        self.changed = 0

    @property
    def seen(self) -> bytes:
        return b"".join(self._seen)

    def batches(self, to_service: str) -> list[wire.Batch]:
        return [frame for frame in tuple(self.frames) if is_for(frame, to_service)]

    def envelopes(self, to_service: str) -> list[envelope.Envelope]:
        return [
            envelope.decode_envelope(encoded)
            for batch in self.batches(to_service)
            if batch.envelopes
            for encoded in arrays.to_elements(batch.envelopes, arrays.BYTEA)
            if encoded is not None
        ]

    def forget(self) -> None:
        self.frames, self._seen, self.changes, self.changed = [], [], None, 0

    def _rewrite(self, encoded: bytes, goes_there: bool) -> bytes:  # noqa: ARG002 - as a Proxy calls it
        frame = wire.decode(encoded[4:])
        self._seen.append(encoded)
        self.frames.append(frame)
        changes = self.changes
        if changes is None:
            return encoded
        passed = changes(frame)
        self.changed += passed != [frame]
        return b"".join(bytes(wire.encode(each)) for each in passed)


def is_for(frame: wire.Frame, service: str) -> TypeGuard[wire.Batch]:
    return isinstance(frame, wire.Batch) and frame.to_service == service


class Line:
    """A service at each site of its own, and what passes between them."""

    def __init__(self, sites: tuple[Site, Site], listener: Listener) -> None:
        self.shop, self.warehouse = sites
        self.listener = listener
        number = next(_NUMBERS)
        self.initiator, self.target = f"//shop {number}", f"//warehouse {number}"
        for site, service in ((self.shop, self.initiator), (self.warehouse, self.target)):
            site.psql.rows("select broker.create_queue(%s)", service)
            site.psql.rows("select broker.create_service(%s, %s, '{ordering}')", service, service)
        self.warehouse.psql.rows("select broker.grant('SEND', 'SERVICE', %s, 'public')", self.target)
        there, back = listener.proxies
        self.shop.route(self.target, there)
        self.warehouse.route(self.initiator, back)
        listener.forget()

    def bind(self, *, anonymous: bool = False, user: str = "warehouse_user") -> None:
        self.shop.psql.rows(
            "select broker.create_remote_service_binding(%s, %s, %s::name, anonymous => %s)",
            self.target,
            self.target,
            user,
            anonymous,
        )

    def dialog(self, *, encryption: bool = True) -> UUID:
        handle: UUID = self.shop.psql.value(
            "select broker.begin_dialog(%s, %s, 'ordering', encryption => %s)",
            self.initiator,
            self.target,
            encryption,
        )
        return handle

    def send(self, dialog: UUID, body: bytes) -> None:
        self.shop.psql.send(dialog, "order", body)

    def answer(self, body: bytes) -> None:
        ((handle,),) = self.warehouse.psql.rows(
            "select conversation_handle from broker.conversation_endpoints where far_service = %s and state <> 'CD'",
            self.initiator,
        )
        self.warehouse.psql.send(handle, "ack", body)

    def arrived(self, count: int = 1) -> list[bytes | None]:
        return self._received(self.warehouse, self.target, count)

    def answered(self, count: int = 1) -> list[bytes | None]:
        return self._received(self.shop, self.initiator, count)

    def _received(self, site: Site, queue: str, count: int) -> list[bytes | None]:
        bodies: list[bytes | None] = []

        def gathers() -> int:
            bodies.extend(body for _, _, body in site.psql.receive(queue, timeout="1 s"))
            return len(bodies)

        # What still waits is read for who is told that it was in vain.
        until(lambda: gathers() >= count or (self._unsent(self.shop), self._unsent(self.warehouse)) == ())
        return bodies

    @staticmethod
    def _unsent(site: Site) -> list[tuple[object, ...]]:
        return site.psql.rows(
            "select to_service_name, message_sequence_number, transmission_status from broker.transmission_queue"
        )

    def converses(self, *, encryption: bool = True) -> None:
        """Say something each way."""
        self.send(self.dialog(encryption=encryption), b"a secret order")
        assert self.arrived() == [b"a secret order"]
        self.answer(b"a secret answer")
        assert self.answered() == [b"a secret answer"]

    def waiting(self) -> list[str]:
        """Return the statuses of what the initiator still has to send."""
        return [
            status
            for (status,) in self.shop.psql.rows(
                "select transmission_status from broker.transmission_queue where to_service_name = %s",
                self.target,
            )
        ]

    def waits_with(self, number: int) -> None:
        until(lambda: self._waits_with(number))

    def sends_until_it_waits_with(self, number: int) -> None:
        """Send orders, until one waits: a worker looks at its key directory every two seconds."""
        while True:
            self.send(self.dialog(), b"order")
            until(lambda: self.waiting() == [] or self._waits_with(number))
            if self.waiting():
                return
            assert self.arrived() == [b"order"]

    def _waits_with(self, number: int) -> bool:
        return [status[: status.find(":")] for status in self.waiting()] == [str(number)]


@pytest.fixture(scope="module")
def line_of_sites(
    tmp_path_factory: pytest.TempPathFactory, server_for: Callable[[str, int], EmbeddedServer]
) -> Iterator[tuple[tuple[Site, Site], Listener]]:
    with two_sites(tmp_path_factory.mktemp("sites"), server_for=server_for) as sites:
        for site in sites:
            site.psql.rows("select broker.alter_endpoint('endpoint', encryption => 'DISABLED')")
            site.start_worker()
        listener = Listener(*(site.port for site in reversed(sites)))
        yield sites, listener
        for proxy in listener.proxies:
            proxy.close()


@pytest.fixture
def line(line_of_sites: tuple[tuple[Site, Site], Listener]) -> Line:
    return Line(*line_of_sites)


@pytest.mark.parametrize("encryption", [True, False])
@pytest.mark.parametrize("binding", ["none", "anonymous", "full"])
def test_rows_120_125_edge_088_a_dialog_leaves_as_its_binding_says(
    line: Line, binding: str, *, encryption: bool
) -> None:
    if binding != "none":
        line.bind(anonymous=binding == "anonymous")
    elif encryption:
        line.send(line.dialog(), b"a secret order")
        line.waits_with(9727)
        assert line.listener.batches(line.target) == []
        # It was not lost, and it goes as soon as it can be secured.
        line.bind()
        assert line.arrived() == [b"a secret order"]
        assert b"secret" not in line.listener.seen
        return
    line.converses(encryption=encryption)
    expected = {"none": [], "anonymous": ["A"], "full": ["F"]}[binding]
    for service, body in ((line.target, b"a secret order"), (line.initiator, b"a secret answer")):
        assert sorted({sealed.mode for sealed in line.listener.envelopes(service)}) == expected
        assert (body in line.listener.seen) is (binding == "none")
        # Whoever forwards it reads where it goes.
        assert service.encode() in line.listener.seen


def test_row_120_without_a_certificate_of_the_services_owner_only_anonymous_security_goes(line: Line) -> None:
    line.shop.psql.rows("do $$ begin create role keyless; exception when duplicate_object then null; end $$")
    line.shop.psql.rows("select broker.alter_authorization('SERVICE', %s, 'keyless')", line.initiator)
    line.bind()
    line.send(line.dialog(), b"order")
    line.waits_with(9730)
    line.shop.psql.rows("select broker.alter_remote_service_binding(%s, anonymous => true)", line.target)
    assert line.arrived() == [b"order"]
    line.answer(b"answer")
    assert line.answered() == [b"answer"]


@pytest.mark.parametrize("anonymous", [False, True])
def test_row_120_a_dialog_that_began_with_security_never_goes_on_without(
    line: Line, *, anonymous: bool
) -> None:
    line.bind(anonymous=anonymous)
    dialog = line.dialog(encryption=False)
    line.send(dialog, b"first")
    assert line.arrived() == [b"first"]
    until(lambda: line.waiting() == [])
    line.shop.psql.rows("select broker.drop_remote_service_binding(%s)", line.target)
    line.send(dialog, b"second")
    line.waits_with(9727)
    line.bind(anonymous=anonymous)
    assert line.arrived() == [b"second"]


def damaged(name: str) -> Callable[[wire.Frame], list[wire.Frame]]:
    """Return what changes this of every sealed batch."""

    def change(frame: wire.Frame) -> list[wire.Frame]:
        if not isinstance(frame, wire.Batch) or not frame.envelopes:
            return [frame]
        if name == "body":
            bodies = arrays.to_elements(frame.bodies, arrays.BYTEA)
            # One bit, as any byte that takes the place of another may be the same one.
            altered = [bytes([*body[:-1], body[-1] ^ 1]) if body else body for body in bodies]
            changed = arrays.from_elements(altered, arrays.BYTEA)
            return [msgspec.structs.replace(frame, bodies=changed)]
        # As if the dialog had begun in the clear.
        return [msgspec.structs.replace(frame, envelopes=b"", key_exchanges=[])]

    return change


@pytest.mark.parametrize("anonymous", [False, True])
def test_row_124_what_was_changed_on_the_way_is_dropped_and_told_and_comes_once_when_nobody_changes_it(
    line: Line, *, anonymous: bool
) -> None:
    line.bind(anonymous=anonymous)
    dialog = line.dialog()
    line.send(dialog, b"first")
    assert line.arrived() == [b"first"]
    until(lambda: line.waiting() == [])
    dropped = corrupted(line.warehouse)
    line.listener.changes = damaged("body")
    line.send(dialog, b"second")
    until(lambda: corrupted(line.warehouse) > dropped)
    line.listener.changed, line.listener.changes = 0, damaged("security")
    until(lambda: line.listener.changed > 1)
    assert line.warehouse.psql.receive(line.target) == []
    assert len(line.waiting()) == 1
    line.listener.changes = None
    line.send(dialog, b"third")
    assert line.arrived(2) == [b"second", b"third"]
    until(lambda: line.waiting() == [])
    assert line.warehouse.psql.receive(line.target) == []


def corrupted(site: Site) -> int:
    return site.log.read_text().count("corrupted_message")


def forged(frame: wire.Frame) -> list[wire.Frame]:
    """Acknowledge what did not arrive, and end the dialog."""
    if not isinstance(frame, wire.Ack):
        return [frame]
    count = arrays.element_count(frame.next_numbers, arrays.BIGINT)
    return [
        msgspec.structs.replace(
            frame,
            next_numbers=arrays.from_integers([2**40] * count, arrays.BIGINT),
            fault_codes=arrays.from_integers([-8494] * count, arrays.INTEGER),
            fault_texts=arrays.from_texts(["8494: forged"] * count),
            fault_is_final=arrays.from_elements([b"\1"] * count, arrays.BOOLEAN),
        )
    ]


@pytest.mark.parametrize("anonymous", [False, True])
def test_row_124_nobody_on_the_line_acknowledges_or_ends_a_secured_dialog(
    line: Line, *, anonymous: bool
) -> None:
    line.bind(anonymous=anonymous)
    line.listener.changes = forged
    dialog = line.dialog()
    line.send(dialog, b"first")
    line.waits_with(8494)
    line.listener.changes = None
    until(lambda: line.waiting() == [])
    line.send(dialog, b"second")
    assert line.arrived(2) == [b"first", b"second"]
    assert line.shop.psql.receive(line.initiator) == []


@pytest.mark.parametrize("anonymous", [False, True])
def test_row_124_what_was_recorded_and_is_sent_again_changes_nothing(line: Line, *, anonymous: bool) -> None:
    line.bind(anonymous=anonymous)
    dialog = line.dialog()
    for body in (b"first", b"second"):
        line.send(dialog, body)
        assert line.arrived() == [body]
    line.answer(b"answer")
    assert line.answered() == [b"answer"]
    recorded = line.listener.batches(line.target)
    # Both sides end; then all of it comes again, the first message too, before what is said on another dialog.
    line.shop.psql.rows("select broker.end_conversation(%s)", dialog)
    ((kind, _, _),) = line.warehouse.psql.receive(line.target, timeout="120 s")
    assert kind == END_DIALOG
    line.warehouse.psql.rows(
        "select broker.end_conversation(conversation_handle) from broker.conversation_endpoints"
        " where far_service = %s",
        line.initiator,
    )
    until(lambda: line.waiting() == [])
    again = itertools.count(10**6)

    def replay(frame: wire.Frame) -> list[wire.Frame]:
        if not is_for(frame, line.target):
            return [frame]
        return [*(msgspec.structs.replace(batch, number=next(again)) for batch in recorded), frame]

    line.listener.changes = replay
    line.send(line.dialog(), b"another dialog")
    assert line.arrived() == [b"another dialog"]
    until(lambda: line.waiting() == [])
    assert next(again) >= 10**6 + len(recorded)
    assert line.warehouse.psql.receive(line.target) == []
    states = "select state from broker.conversation_endpoints where far_service = %s order by 1"
    assert [state for (state,) in line.warehouse.psql.rows(states, line.initiator) if state != "CD"] == ["CO"]


def test_row_122_a_certificate_that_is_not_valid_is_told_and_the_next_one_is_taken(line: Line) -> None:
    directory = line.shop.keys.parent / "identities"
    user = f"far user {line.target}"
    expired = Identity(directory, "expired", begins=-2 * DAY, ends=-DAY, key=rsa_key("expired"))
    future = Identity(directory, "future", begins=DAY, ends=2 * DAY, key=rsa_key("future"))
    stranger = Identity(directory, "stranger", ends=2 * DAY, key=rsa_key("stranger"))
    line.shop.psql.rows(CERTIFICATE, f"expired {user}", expired.pem, user)
    line.bind(user=user)
    line.send(line.dialog(), b"order")
    line.waits_with(28025)
    line.shop.psql.rows(CERTIFICATE, f"future {user}", future.pem, user)
    line.waits_with(28024)
    # Valid, and nobody's whom the far database knows.
    line.shop.psql.rows(CERTIFICATE, f"stranger {user}", stranger.pem, user)
    line.waits_with(9730)
    # Of two that are valid the one that expires last is taken.
    key_file = key_files.private_key_path(line.warehouse.keys, "warehouse")
    own = Identity(
        directory, "own", ends=3 * DAY, key=load_pem_private_key(key_file.read_bytes(), password=None)
    )
    line.warehouse.psql.rows(CERTIFICATE, f"own {user}", own.pem, user)
    line.shop.psql.rows(CERTIFICATE, f"own {user}", own.pem, user)
    assert line.arrived() == [b"order"]


def test_row_123_without_the_master_key_messages_wait_with_28050_and_flow_when_it_is_back(line: Line) -> None:
    line.bind()
    line.converses()
    path = key_files.master_key_path(line.shop.keys)
    away = path.rename(path.with_suffix(".away"))
    line.sends_until_it_waits_with(28050)
    away.rename(path)
    assert line.arrived() == [b"order"]


def test_row_123_a_target_without_its_master_key_takes_no_anonymous_dialog_until_it_is_back(
    line: Line,
) -> None:
    line.bind(anonymous=True)
    path = key_files.master_key_path(line.warehouse.keys)
    away = path.rename(path.with_suffix(".away"))
    line.sends_until_it_waits_with(28050)
    assert "At the far side" in line.waiting()[0]
    away.rename(path)
    assert line.arrived() == [b"order"]


@pytest.mark.parametrize("anonymous", [False, True])
def test_open_dialogs_outlive_new_master_keys(line: Line, *, anonymous: bool) -> None:
    line.bind(anonymous=anonymous)
    dialog = line.dialog()
    line.send(dialog, b"first")
    assert line.arrived() == [b"first"]
    for site in (line.shop, line.warehouse):
        run = [sys.executable, "-m", "pybroker", "certificate", "master-key", "--rotate"]
        subprocess.run([*run, "--key-directory", site.keys], check=True, capture_output=True)
    line.send(dialog, b"second")
    assert line.arrived() == [b"second"]
    line.answer(b"answer")
    assert line.answered() == [b"answer"]


def test_row_125_a_large_body_crosses_in_sealed_pieces(line: Line) -> None:
    line.bind()
    body = b"a secret of many words, " * 60_000
    line.send(line.dialog(), body)
    assert line.arrived() == [body]
    fragments = [batch for batch in line.listener.batches(line.target) if isinstance(batch, wire.Fragment)]
    assert len(fragments) >= 3
    assert b"secret" not in line.listener.seen


def test_keys_and_bodies_are_in_no_log(line: Line) -> None:
    line.bind()
    line.converses()
    line.listener.changes = damaged("body")
    dropped = corrupted(line.warehouse)
    line.send(line.dialog(), b"a secret that is dropped")
    until(lambda: corrupted(line.warehouse) > dropped)
    line.listener.changes = None
    assert line.arrived() == [b"a secret that is dropped"]
    for site in (line.shop, line.warehouse):
        log = site.log.read_text()
        assert "a secret" not in log
        for path in site.keys.glob("dialog-master*.key"):
            key = key_files.read_master_key(path).key
            assert all(text not in log for text in (path.read_text().strip(), key.hex(), repr(key)))
        private = (site.keys / f"{site.name}.key").read_text().splitlines()[1]
        assert private not in log
