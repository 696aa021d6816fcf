"""Dialog security without a database: what is sealed opens, and nothing else does."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from hypothesis import given
from hypothesis import strategies as st

from pybroker.workers.clock import Clock
from pybroker.workers.transport.dialog_security import key_files
from pybroker.workers.transport.dialog_security.certificates import DialogCertificates
from pybroker.workers.transport.dialog_security.decision import Dialog, decide
from pybroker.workers.transport.dialog_security.key_store import KeyStore
from pybroker.workers.transport.dialog_security.opening import Opened, Opener
from pybroker.workers.transport.dialog_security.sealing import KeyExchanges, Sealed, Sealer
from pybroker.workers.transport.outgoing import batches
from pybroker.workers.transport.protocol import arrays, envelope, wire
from pybroker.workers.transport.protocol.envelope import SealError
from pybroker.workers.transport.protocol.faults import TransportError
from pybroker.workers.transport.protocol.rows import Delivered, KnownCertificate, Taken
from tests.worker.test_certificate import DAY, Identity

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SHOP, WAREHOUSE = UUID(int=1), UUID(int=2)
CERTIFICATE_FAULT = TransportError(9730, "no certificate")


class SetClock(Clock):
    """Stands still until a test moves it."""

    def __init__(self) -> None:
        self.passed = timedelta()
        self.set_by = timedelta()
        self._began = datetime.now(UTC)

    def monotonic(self) -> float:
        return self.passed.total_seconds()

    def now(self) -> datetime:
        return self._began + self.passed + self.set_by


@cache
def rsa_key(_: str) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


def identity(directory: Path, name: str, **options: Any) -> Identity:
    return Identity(directory, name, key=rsa_key(name), **options)


class Side:
    """A worker with one database: its own service is owned by NAME_owner, the other side's user is FAR_user."""

    def __init__(self, directory: Path, name: str, broker: UUID, clock: SetClock) -> None:
        self.name, self.broker, self.clock = name, broker, clock
        self.directory = directory / name
        self.own = identity(self.directory, name)
        key_files.make_master_key(self.directory)
        self.key_store = KeyStore(self.directory, clock)
        self.certificates = DialogCertificates(clock)
        self.sealer = Sealer(self.key_store, self.certificates, KeyExchanges(clock), clock)
        self.opener = Opener(self.key_store, clock)
        self.rows = [KnownCertificate(name, f"{name}_owner", self.own.pem, False)]

    def know(self, far: Side) -> None:
        self.rows.append(KnownCertificate(far.name, f"{far.name}_user", far.own.pem, False))
        self.look()

    def look(self) -> None:
        self.certificates.renew(self.rows)
        self.key_store.read()


@dataclass
class Conversation:
    """One dialog of a batch, as its sender has it."""

    bodies: Sequence[bytes | None]
    mode: str = "F"
    from_initiator: bool = True
    established: str | None = None
    kept: bytes | None = None
    encrypted: bool = True
    conversation_id: UUID = field(default_factory=uuid4)
    first: int = 0


def taken(sender: Side, far: Side, conversations: Sequence[Conversation]) -> Taken:
    def texts(each: Sequence[str | None]) -> bytes:
        return arrays.from_texts(each)

    count = len(conversations)
    messages = [
        (dialog, c.first + place, body)
        for dialog, c in enumerate(conversations, 1)
        for place, body in enumerate(c.bodies)
    ]
    # As of two dialogs whose messages left in turns.
    messages.sort(key=lambda message: (message[1], message[0]))
    return Taken(
        arrays.from_integers(range(1, count + 1), arrays.BIGINT),
        arrays.from_elements([c.conversation_id.bytes for c in conversations], arrays.UUID),
        arrays.from_elements([b"\1" if c.from_initiator else b"\0" for c in conversations], arrays.BOOLEAN),
        texts([f"//{sender.name}"] * count),
        texts([f"//{far.name}"] * count),
        arrays.from_elements([None, far.broker.bytes][:1] * count, arrays.UUID),
        texts(["ordering"] * count),
        arrays.from_elements([bytes(8)] * count, arrays.TIMESTAMPTZ),
        arrays.from_elements([b"\1" if c.encrypted else b"\0" for c in conversations], arrays.BOOLEAN),
        texts(["order", "ack"]),
        arrays.from_integers([dialog for dialog, _, _ in messages], arrays.INTEGER),
        arrays.from_integers([1 + number % 2 for _, number, _ in messages], arrays.INTEGER),
        arrays.from_integers([number for _, number, _ in messages], arrays.BIGINT),
        "M" * len(messages),
        arrays.from_elements([body for _, _, body in messages], arrays.BYTEA),
        arrays.from_integers(range(len(messages)), arrays.BIGINT),
        texts([f"{sender.name}_owner"] * count),
        texts([f"{far.name}_user"] * count),
        texts([c.mode if c.from_initiator and c.mode in "AF" else None for c in conversations]),
        texts([c.established for c in conversations]),
        arrays.from_elements([c.kept for c in conversations], arrays.BYTEA),
        arrays.from_integers([c.first for c in conversations], arrays.BIGINT),
        arrays.from_elements([number.to_bytes(8, "big") for _, number, _ in messages], arrays.TIMESTAMPTZ),
    )


def batch_of(sender: Side, batch: Taken, sealed: Sealed | None, **piece: int) -> wire.Batch:
    columns = {name: getattr(batch, name) for name in wire.Batch.__struct_fields__ if hasattr(batch, name)}
    if sealed is not None:
        columns |= {
            "bodies": sealed.bodies,
            "envelopes": sealed.envelopes,
            "key_exchanges": sealed.key_exchanges,
        }
    kind: Any = wire.Fragment if piece else wire.Batch
    made = kind(
        number=1, from_broker=sender.broker.bytes, to_service="//far", to_broker=None, **columns, **piece
    )
    decoded = wire.decode(bytes(wire.encode(made))[4:])
    assert isinstance(decoded, wire.Batch)
    return decoded


def send(sender: Side, far: Side, *conversations: Conversation) -> tuple[wire.Batch, Sealed]:
    batch = taken(sender, far, conversations)
    plans = sender.sealer.plan(batch)
    assert plans.held == []
    sealed = sender.sealer.seal(batch, plans, sender.broker)
    assert sealed is not None
    return batch_of(sender, batch, sealed), sealed


def bodies_of(opened: Opened) -> list[bytes | None]:
    assert opened.batch is not None
    return arrays.to_elements(opened.batch.bodies, arrays.BYTEA)


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def sides(tmp_path: Path, clock: SetClock) -> tuple[Side, Side]:
    shop, warehouse = Side(tmp_path, "shop", SHOP, clock), Side(tmp_path, "warehouse", WAREHOUSE, clock)
    shop.know(warehouse)
    warehouse.know(shop)
    return shop, warehouse


@pytest.fixture(scope="module")
def module_sides(tmp_path_factory: pytest.TempPathFactory) -> tuple[Side, Side]:
    clock = SetClock()
    directory = tmp_path_factory.mktemp("sides")
    shop, warehouse = Side(directory, "shop", SHOP, clock), Side(directory, "warehouse", WAREHOUSE, clock)
    shop.know(warehouse)
    warehouse.know(shop)
    return shop, warehouse


@pytest.mark.parametrize(
    ("has_certificate", "is_encrypted", "outcomes"),
    [
        (True, True, (9727, "A", "F")),
        (True, False, ("N", "A", "F")),
        (False, True, (9727, "A", 9730)),
        (False, False, ("N", "A", 9730)),
    ],
)
def test_row_120_the_security_of_a_dialog_is_decided_by_the_table(
    *, has_certificate: bool, is_encrypted: bool, outcomes: tuple[str | int, ...]
) -> None:
    for binding, outcome in zip((None, "A", "F"), outcomes, strict=True):
        try:
            decided: str | int = decide(
                Dialog(True, is_encrypted, binding, None),
                lambda: None if has_certificate else CERTIFICATE_FAULT,
            )
        except TransportError as fault:
            decided = fault.number
        assert decided == outcome


@pytest.mark.parametrize("established", ["A", "F"])
@pytest.mark.parametrize("binding", [None, "A", "F"])
@pytest.mark.parametrize("is_encrypted", [True, False])
def test_row_120_a_dialog_keeps_the_security_that_it_began_with(
    established: str, binding: str | None, *, is_encrypted: bool
) -> None:
    dialog = Dialog(True, is_encrypted, binding, established)
    if binding == established:
        assert decide(dialog, lambda: None) == established
    else:
        with pytest.raises(TransportError) as waits:
            decide(dialog, lambda: None)
        assert waits.value.number == 9727
    # The target answers with the same, whatever bindings it has itself.
    assert decide(Dialog(False, is_encrypted, None, established), lambda: CERTIFICATE_FAULT) == established
    assert decide(Dialog(True, is_encrypted, binding, "N"), lambda: CERTIFICATE_FAULT) == "N"


dialogs = st.lists(
    st.tuples(
        st.sampled_from("AF"),
        st.lists(st.none() | st.binary(max_size=50), min_size=1, max_size=4),
        st.integers(0, 2**40),
    ),
    min_size=1,
    max_size=4,
)


@given(dialogs)
def test_what_is_sealed_opens(
    module_sides: tuple[Side, Side], given_dialogs: list[tuple[str, list[bytes | None], int]]
) -> None:
    shop, warehouse = module_sides
    conversations = [Conversation(bodies, mode, first=first) for mode, bodies, first in given_dialogs]
    batch, sealed = send(shop, warehouse, *conversations)
    opened = warehouse.opener.open(batch, warehouse.certificates)
    assert opened.batch is not None
    plain = taken(shop, warehouse, conversations)
    assert opened.batch == msgspec.structs.replace(batch_of(shop, plain, None), number=1)
    assert opened.kinds == [c.mode for c in conversations]
    assert opened.far_users == ["shop_user" if c.mode == "F" else None for c in conversations]
    count = len(conversations)
    delivered = Delivered(
        arrays.from_integers([c.first + len(c.bodies) for c in conversations], arrays.BIGINT),
        arrays.from_integers([None] * count, arrays.INTEGER),
        arrays.from_texts([None] * count),
        arrays.from_elements([b"\0"] * count, arrays.BOOLEAN),
    )
    ack = opened.answer(1, warehouse.broker, delivered)
    assert sealed.proven(ack).next_numbers == delivered.next_numbers
    # And the way back, of dialogs whose target knows what the initiator began with.
    answers = [
        Conversation(
            c.bodies,
            c.mode,
            from_initiator=False,
            established=c.mode,
            kept=kept,
            conversation_id=c.conversation_id,
        )
        for c, kept in zip(conversations, opened.session_keys, strict=True)
    ]
    batch, sealed = send(warehouse, shop, *answers)
    opened = shop.opener.open(batch, shop.certificates)
    assert opened.far_users == ["warehouse_user" if c.mode == "F" else None for c in conversations]
    assert bodies_of(opened) == arrays.to_elements(taken(warehouse, shop, answers).bodies, arrays.BYTEA)


SEALED_FIELDS = [
    "from_broker", "conversation_ids", "from_initiator", "from_services", "to_services", "to_brokers", "contracts",
    "expirations", "encrypted", "acknowledged", "type_names", "type_index", "sequence_numbers", "sent_at", "kinds",
    "bodies", "envelopes", "key_exchanges",
]  # fmt: skip


@pytest.mark.parametrize("mode", ["A", "F"])
@pytest.mark.parametrize("name", SEALED_FIELDS)
def test_rows_124_125_whatever_is_changed_on_the_way_is_dropped(
    module_sides: tuple[Side, Side], mode: str, name: str
) -> None:
    shop, warehouse = module_sides
    batch, _ = send(shop, warehouse, Conversation([b"one", None, b"three"], mode))
    untouched = warehouse.opener.open(batch, warehouse.certificates).batch
    assert untouched is not None
    expected = meaning(untouched)
    content = getattr(batch, name)
    changes = random.Random(name)
    for _ in range(25):
        if name == "kinds":
            changed: Any = changes.choice(["MME", "EMM", "XMM", "MXM"])
        elif name == "key_exchanges":
            changed = [flipped(content[0], changes)]
        else:
            changed = flipped(content, changes)
        try:
            frame = wire.decode(bytes(wire.encode(msgspec.structs.replace(batch, **{name: changed})))[4:])
            assert isinstance(frame, wire.Batch)
            opened = warehouse.opener.open(frame, warehouse.certificates)
        except (wire.ProtocolError, arrays.ArrayError, UnicodeDecodeError):
            continue
        if opened.batch is not None:
            # The flag that an array may have nulls says nothing.
            assert name not in ("bodies", "kinds", "key_exchanges")
            assert meaning(opened.batch) == expected
            continue
        # A fault is said without a proof, so it says nothing final.
        assert opened.answer(1, warehouse.broker, None).next_numbers == arrays.from_integers(
            [None], arrays.BIGINT
        )


def meaning(batch: wire.Batch) -> list[object]:
    return [
        batch.kinds,
        *wire.dialog_columns(batch),
        arrays.to_texts(batch.type_names),
        arrays.to_integers(batch.type_index, arrays.INTEGER),
        arrays.to_integers(batch.sequence_numbers, arrays.BIGINT),
        arrays.to_elements(batch.bodies, arrays.BYTEA),
        wire.message_times(batch),
    ]


def flipped(content: bytes, changes: random.Random) -> bytes:
    place = changes.randrange(len(content))
    return content[:place] + bytes([content[place] ^ (1 << changes.randrange(8))]) + content[place + 1 :]


def test_row_124_one_damaged_dialog_does_not_stop_the_others_of_its_batch(sides: tuple[Side, Side]) -> None:
    shop, warehouse = sides
    conversations = [
        Conversation([b"first"]),
        Conversation([b"second", b"third"], "A"),
        Conversation([b"fourth"]),
    ]
    batch, sealed = send(shop, warehouse, *conversations)
    bodies = arrays.to_elements(batch.bodies, arrays.BYTEA)
    bodies[0] = b"\0" + (bodies[0] or b"")[1:]
    opened = warehouse.opener.open(
        msgspec.structs.replace(batch, bodies=arrays.from_elements(bodies, arrays.BYTEA)),
        warehouse.certificates,
    )
    assert opened.batch is not None
    assert bodies_of(opened) == [b"second", b"fourth", b"third"]
    assert arrays.to_integers(opened.batch.dialog_index, arrays.INTEGER) == [1, 2, 1]
    delivered = Delivered(
        arrays.from_integers([2, 1], arrays.BIGINT),
        arrays.from_integers([None, -9749], arrays.INTEGER),
        arrays.from_texts([None, "9749: busy"]),
        arrays.from_elements([b"\0", b"\0"], arrays.BOOLEAN),
    )
    proven = sealed.proven(opened.answer(1, warehouse.broker, delivered))
    assert arrays.to_nullable_integers(proven.next_numbers, arrays.BIGINT) == [None, 2, 1]
    assert arrays.to_nullable_integers(proven.fault_codes, arrays.INTEGER) == [None, None, -9749]


def test_row_124_an_answer_that_somebody_made_on_the_way_acknowledges_and_ends_nothing(
    sides: tuple[Side, Side],
) -> None:
    shop, warehouse = sides
    batch, sealed = send(shop, warehouse, Conversation([b"one"]))
    opened = warehouse.opener.open(batch, warehouse.certificates)
    refused = Delivered(
        arrays.from_integers([0], arrays.BIGINT),
        arrays.from_integers([-8494], arrays.INTEGER),
        arrays.from_texts(["8494: no permission"]),
        arrays.from_elements([b"\1"], arrays.BOOLEAN),
    )
    ack = opened.answer(1, warehouse.broker, refused)
    assert arrays.to_booleans(sealed.proven(ack).fault_is_final) == [True]
    _, another = send(shop, warehouse, Conversation([b"one"]))
    changes: list[dict[str, Any]] = [
        {"next_numbers": arrays.from_integers([1], arrays.BIGINT)},
        {"fault_codes": arrays.from_integers([-8495], arrays.INTEGER)},
        {"fault_texts": arrays.from_texts(["8494: other words"])},
        {"broker_instance": SHOP.bytes},
        {"stored_bytes": 1},
        {"proofs": b""},
        {"proofs": arrays.from_elements([None], arrays.BYTEA)},
        {"proofs": arrays.from_elements([bytes(32)], arrays.BYTEA)},
    ]
    for forged in [msgspec.structs.replace(ack, **change) for change in changes]:
        proven = sealed.proven(forged)
        assert arrays.to_nullable_integers(proven.next_numbers, arrays.BIGINT) == [None]
        assert arrays.to_booleans(proven.fault_is_final) == [False]
        assert proven.stored_bytes == 0
    # That of another batch of the same dialog is none either.
    assert arrays.to_booleans(another.proven(ack).fault_is_final) == [False]


def test_a_batch_that_is_sent_again_has_other_keys(sides: tuple[Side, Side]) -> None:
    shop, warehouse = sides
    for mode in "AF":
        again = Conversation([b"one", b"two"], mode)
        batches = [send(shop, warehouse, again)[0] for _ in range(100)]
        salts = set()
        for batch in batches:
            (encoded,) = arrays.to_elements(batch.envelopes, arrays.BYTEA)
            salts.add(envelope.decode_envelope(encoded or b"").salt)
            assert bodies_of(warehouse.opener.open(batch, warehouse.certificates)) == [b"one", b"two"]
        assert len(salts) == len({batch.bodies for batch in batches}) == 100


def test_the_exchanged_key_is_used_again_and_renewed_after_four_hours(
    sides: tuple[Side, Side], clock: SetClock
) -> None:
    shop, warehouse = sides
    first = send(shop, warehouse, Conversation([b"one"]))[0].key_exchanges
    clock.passed = timedelta(hours=3, minutes=59)
    assert send(shop, warehouse, Conversation([b"one"]))[0].key_exchanges == first
    clock.passed = timedelta(hours=4)
    assert send(shop, warehouse, Conversation([b"one"]))[0].key_exchanges != first


def test_a_target_knows_an_anonymous_initiator_again_by_its_key(
    sides: tuple[Side, Side], tmp_path: Path
) -> None:
    shop, warehouse = sides
    dialog = Conversation([b"one"], "A")
    kept = []
    for _ in range(2):
        batch, _ = send(shop, warehouse, dialog)
        kept += warehouse.opener.open(batch, warehouse.certificates).session_keys
    assert kept[0] is not None
    assert kept[1] is not None
    assert kept[0] != kept[1]
    assert kept[0][:16] == kept[1][:16]
    # Who has only seen the conversation id makes another key.
    thief = Side(tmp_path, "thief", UUID(int=3), shop.clock)
    thief.know(warehouse)
    batch, _ = send(thief, warehouse, dialog)
    (other,) = warehouse.opener.open(batch, warehouse.certificates).session_keys
    assert other is not None
    assert other[:16] != kept[0][:16]
    # What is kept for one dialog is of no use for another.
    with pytest.raises(SealError):
        envelope.release(
            key_files.read_master_key(key_files.master_key_path(warehouse.directory)).key, kept[0], bytes(16)
        )


def test_master_keys_are_rotated_under_open_dialogs(sides: tuple[Side, Side]) -> None:
    shop, warehouse = sides
    dialog = Conversation([b"one"], "A")
    batch = taken(shop, warehouse, [dialog])
    plans = shop.sealer.plan(batch)
    ((_, kind, first_key),) = plans.pins
    assert (kind, first_key) == ("A", shop.key_store.master_key().id)
    opened = warehouse.opener.open(send(shop, warehouse, dialog)[0], warehouse.certificates)
    (kept,) = opened.session_keys
    for side in sides:
        key_files.rotate_master_key(side.directory)
        side.look()
    assert shop.key_store.master_key().id != first_key
    later = replace(dialog, established="A", kept=first_key, first=1)
    (kept_later,) = warehouse.opener.open(
        send(shop, warehouse, later)[0], warehouse.certificates
    ).session_keys
    assert kept is not None
    assert kept_later is not None
    assert kept[:16] == kept_later[:16]
    answer = Conversation(
        [b"answer"],
        "A",
        from_initiator=False,
        established="A",
        kept=kept,
        conversation_id=dialog.conversation_id,
    )
    batch_back, _ = send(warehouse, shop, answer)
    assert bodies_of(shop.opener.open(batch_back, shop.certificates)) == [b"answer"]


def test_row_123_without_a_master_key_a_dialog_waits_with_28050(sides: tuple[Side, Side]) -> None:
    shop, warehouse = sides
    batch, sealed = send(shop, warehouse, Conversation([b"one"], "A"), Conversation([b"two"], "F"))
    paths = [key_files.master_key_path(side.directory) for side in sides]
    away = [path.rename(path.with_suffix(".away")) for path in paths]
    for side in sides:
        side.look()
    again = taken(shop, warehouse, [Conversation([b"one"], "A"), Conversation([b"two"], "F")])
    plans = shop.sealer.plan(again)
    assert [fault and fault.number for _, fault in plans.held] == [28050, 28050]
    # To open what is sealed for a certificate its private key is enough; to keep an anonymous initiator's key is not.
    opened = warehouse.opener.open(batch, warehouse.certificates)
    assert bodies_of(opened) == [b"two"]
    assert {place: str(fault)[:23] for place, fault in opened.faults.items()} == {
        0: "28050: At the far side:"
    }
    answer = sealed.proven(opened.answer(1, warehouse.broker, None))
    _, _, waiting = batches.outcome(again, batches.ends_of(again), answer)
    assert batches.keyless(waiting) == [1]
    for path, kept in zip(paths, away, strict=True):
        kept.rename(path)
    for side in sides:
        side.look()
    assert bodies_of(warehouse.opener.open(batch, warehouse.certificates)) == [b"one", b"two"]
    assert shop.sealer.plan(taken(shop, warehouse, [Conversation([b"one"], "A")])).held == []


def held(side: Side, far: Side, dialog: Conversation) -> int | None:
    ((_, fault),) = side.sealer.plan(taken(side, far, [dialog])).held
    return None if fault is None else fault.number


def test_row_122_of_the_valid_certificates_that_which_expires_last_is_taken(
    sides: tuple[Side, Side], clock: SetClock, tmp_path: Path
) -> None:
    shop, warehouse = sides
    offers = {
        "short": identity(tmp_path / "keys", "short", ends=10 * DAY),
        "long": identity(tmp_path / "keys", "long", ends=30 * DAY),
        "future": identity(tmp_path / "keys", "future", begins=5 * DAY, ends=60 * DAY),
    }
    shop.rows = shop.rows[:1] + [
        KnownCertificate(name, "warehouse_user", offered.pem, False) for name, offered in offers.items()
    ]
    shop.look()

    def chosen() -> str:
        return shop.certificates.far("warehouse_user").name

    assert chosen() == "long"
    clock.passed = 6 * DAY
    assert chosen() == "future"
    shop.rows = shop.rows[:3]
    shop.look()
    assert chosen() == "long"
    clock.passed = 31 * DAY
    shop.rows = shop.rows[1:]
    shop.look()
    assert held(shop, warehouse, Conversation([b"one"], "A")) == 28025


@pytest.mark.parametrize("place", [0, 1], ids=["own", "far"])
def test_row_122_a_certificate_out_of_use_secures_no_new_dialog_and_those_it_has_go_on(
    sides: tuple[Side, Side], place: int
) -> None:
    shop, warehouse = sides
    shop.rows[place] = replace(shop.rows[place], is_active_for_begin_dialog=False)
    shop.look()
    assert held(shop, warehouse, Conversation([b"new"])) == 9767
    assert shop.sealer.plan(taken(shop, warehouse, [Conversation([b"known"], established="F")])).held == []
    shop.rows[place] = replace(shop.rows[place], is_active_for_begin_dialog=True)
    shop.look()
    assert shop.sealer.plan(taken(shop, warehouse, [Conversation([b"new"])])).held == []


def test_row_122_of_two_certificates_the_active_one_secures_a_new_dialog(
    sides: tuple[Side, Side], tmp_path: Path
) -> None:
    shop, _ = sides
    shop.rows = [
        KnownCertificate(name, "user", identity(tmp_path / "keys", name, ends=ends).pem, False, is_active)
        for name, ends, is_active in (("later", 30 * DAY, False), ("sooner", 10 * DAY, True))
    ]
    shop.look()
    assert shop.certificates.far("user", is_new=True).name == "sooner"
    assert shop.certificates.far("user", is_new=False).name == "later"


def test_row_122_a_certificate_that_can_t_be_used_is_told_by_its_number(
    sides: tuple[Side, Side], tmp_path: Path, clock: SetClock
) -> None:
    shop, warehouse = sides
    dialog = Conversation([b"one"])
    batch, _ = send(shop, warehouse, dialog)

    def arrival() -> int:
        opened = warehouse.opener.open(batch, warehouse.certificates)
        assert opened.batch is None
        return opened.faults[0].number

    kept = list(shop.rows)
    shop.rows = kept[:1]
    shop.look()
    assert held(shop, warehouse, dialog) == 9730
    shop.rows = [*kept[:1], replace(kept[1], certificate_pem=Identity(tmp_path / "keys", "curve").pem)]
    shop.look()
    assert held(shop, warehouse, dialog) == 9733
    shop.rows = kept[1:]
    shop.look()
    assert held(shop, warehouse, dialog) == 9730
    shop.rows = kept
    shop.own.path.rename(tmp_path / "away")
    shop.look()
    assert held(shop, warehouse, dialog) == 9731
    clock.passed = -2 * DAY
    (tmp_path / "away").rename(shop.own.path)
    shop.look()
    assert held(shop, warehouse, dialog) == 28024
    assert arrival() == 28024
    clock.passed = 2 * DAY
    assert held(shop, warehouse, dialog) == 28025
    assert arrival() == 28025
    clock.passed = timedelta()
    # What the far side lacks. Its own cache of opened keys must not hide it: each is another worker.
    for rows, number in ((warehouse.rows[:1], 9730), (warehouse.rows[1:], 9730)):
        certificates = DialogCertificates(clock)
        certificates.renew(rows)
        opened = warehouse.opener.open(batch, certificates)
        assert {place: fault.number for place, fault in opened.faults.items()} == {0: number}
    warehouse.own.path.unlink()
    elsewhere = KeyStore(warehouse.directory, clock)
    elsewhere.read()
    opened = Opener(elsewhere, clock).open(batch, warehouse.certificates)
    assert opened.faults[0].number == 9731


def test_row_122_the_senders_certificate_alone_is_over_and_vouches_no_more(
    sides: tuple[Side, Side], tmp_path: Path, clock: SetClock
) -> None:
    """Else who holds a key that was given up speaks for its owner for ever; the far worker must not ask the sender's."""
    shop, warehouse = sides
    short = identity(tmp_path / "short", "shop", ends=timedelta(minutes=5))
    shop.own.path.write_bytes(short.path.read_bytes())
    shop.rows[0] = replace(shop.rows[0], certificate_pem=short.pem)
    warehouse.rows[1] = replace(warehouse.rows[1], certificate_pem=short.pem)
    shop.look()
    warehouse.look()
    batch, _ = send(shop, warehouse, Conversation([b"one"]))
    assert bodies_of(warehouse.opener.open(batch, warehouse.certificates)) == [b"one"]
    clock.passed = timedelta(minutes=6)
    opened = warehouse.opener.open(batch, warehouse.certificates)
    assert opened.batch is None
    assert opened.faults[0].number == 28025


def test_full_security_is_for_nobody_but_who_has_the_key(sides: tuple[Side, Side], tmp_path: Path) -> None:
    shop, warehouse = sides
    thief = Side(tmp_path, "thief", SHOP, shop.clock)
    thief.know(warehouse)
    # He shows the shop's certificate, and signs with his own key.
    thief.own.path.write_bytes(shop.own.path.read_bytes())
    thief.look()
    batch, _ = send(shop, warehouse, Conversation([b"one"]))
    block = envelope.decode_key_exchange(batch.key_exchanges[0])
    assert block.sender is not None
    forged = envelope.make_key_exchange(
        bytes(32),
        (block.recipient, rsa_key("warehouse").public_key()),
        (block.sender, rsa_key("thief")),
    )
    opened = warehouse.opener.open(
        msgspec.structs.replace(batch, key_exchanges=[forged]), warehouse.certificates
    )
    assert opened.batch is None
    assert opened.faults == {}
    # What was sealed for the warehouse is not to be passed on to another.
    other = Side(tmp_path, "other", WAREHOUSE, shop.clock)
    other.know(shop)
    assert other.opener.open(batch, other.certificates).faults[0].number == 9730
    # Nor does an anonymous key exchange stand for a signed one.
    anonymous, _ = send(shop, warehouse, Conversation([b"one"], "A"))
    mixed = msgspec.structs.replace(batch, key_exchanges=anonymous.key_exchanges)
    assert warehouse.opener.open(mixed, warehouse.certificates).batch is None


def test_what_was_recorded_opens_no_dialog_that_is_forgotten(
    sides: tuple[Side, Side], clock: SetClock
) -> None:
    shop, warehouse = sides
    batch, _ = send(shop, warehouse, Conversation([b"one"]))
    for passed in (timedelta(minutes=24), timedelta(minutes=-3)):
        clock.passed = passed
        assert warehouse.opener.open(batch, warehouse.certificates).batch is not None
    # With 25 minutes ahead and 25 behind it would be good for longer than the 30 for which an ended dialog is known.
    for passed in (timedelta(minutes=26), timedelta(minutes=-4, seconds=-10)):
        clock.passed = passed
        opened = warehouse.opener.open(batch, warehouse.certificates)
        assert opened.batch is None
        assert opened.faults[0].number == 28040


def steal_exchanges(sender: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let it seal with the exchange keys that it has for ever, as who has stolen them from its memory."""
    exchanges = sender.sealer._exchanges._exchanged
    monkeypatch.setattr(
        KeyExchanges,
        "key_for",
        lambda _self, far, own: exchanges[far.digest, own and own[0].digest],
    )


@pytest.mark.parametrize("mode", ["F", "A"])
def test_a_stolen_key_exchange_speaks_for_nobody_after_its_hours(
    sides: tuple[Side, Side], clock: SetClock, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    shop, warehouse = sides
    send(shop, warehouse, Conversation([b"one"], mode))
    steal_exchanges(shop, monkeypatch)
    for passed in (timedelta(hours=4, minutes=28), timedelta(minutes=-3)):
        clock.passed = passed
        batch, _ = send(shop, warehouse, Conversation([b"two"], mode))
        assert bodies_of(warehouse.opener.open(batch, warehouse.certificates)) == [b"two"]
    restarted = Opener(warehouse.key_store, clock)
    for passed in (timedelta(hours=4, minutes=30), timedelta(hours=23), timedelta(minutes=-5)):
        clock.passed = passed
        # Sealed this moment, with a signature that is the shop's, for certificates that are valid.
        batch, _ = send(shop, warehouse, Conversation([b"forged"], mode))
        for opener in (warehouse.opener, restarted):
            opened = opener.open(batch, warehouse.certificates)
            assert opened.batch is None
            assert opened.faults[0].number == 28040


def test_nobody_takes_the_time_out_of_a_key_exchange(sides: tuple[Side, Side], clock: SetClock) -> None:
    shop, warehouse = sides
    batch, _ = send(shop, warehouse, Conversation([b"one"]))
    block = envelope.decode_key_exchange(batch.key_exchanges[0])
    stolen = rsa_key("warehouse").decrypt(block.key, envelope._OAEP)
    assert envelope.issued_at(stolen) == int(clock.now().timestamp())
    # The same key, or another one, encrypted anew: the signature is not of that.
    for key in (stolen, bytes(32)):
        encrypted = rsa_key("warehouse").public_key().encrypt(key, envelope._OAEP)
        forged = envelope.encode(msgspec.structs.replace(block, key=encrypted))
        opened = Opener(warehouse.key_store, clock).open(
            msgspec.structs.replace(batch, key_exchanges=[forged]), warehouse.certificates
        )
        assert opened.batch is None


def test_the_key_exchange_of_an_older_worker_has_no_time_and_is_taken(
    sides: tuple[Side, Side], monkeypatch: pytest.MonkeyPatch
) -> None:
    shop, warehouse = sides
    monkeypatch.setattr(envelope, "new_exchange_key", lambda _: bytes(range(32)))
    batch, _ = send(shop, warehouse, Conversation([b"one"]))
    assert bodies_of(warehouse.opener.open(batch, warehouse.certificates)) == [b"one"]


def test_a_clock_that_is_set_renews_the_exchanged_key(sides: tuple[Side, Side], clock: SetClock) -> None:
    shop, warehouse = sides
    first = send(shop, warehouse, Conversation([b"one"]))[0].key_exchanges
    for clock.set_by in (timedelta(minutes=-10), timedelta(hours=5)):
        assert send(shop, warehouse, Conversation([b"one"]))[0].key_exchanges != first


def test_a_master_key_alone_opens_nothing_with_full_security(sides: tuple[Side, Side]) -> None:
    shop, warehouse = sides
    dialog = Conversation([b"one"])
    keys = set()
    for _ in range(3):
        batch = taken(shop, warehouse, [dialog])
        (plan,) = shop.sealer.plan(batch).plans
        assert plan.session_key is not None
        keys.add(plan.session_key)
    master = shop.key_store.master_key()
    keys.add(envelope.session_key_of(master.key, dialog.conversation_id.bytes, from_initiator=True))
    assert len(keys) == 4


def test_a_piece_of_a_large_body_is_sealed_with_its_place(sides: tuple[Side, Side]) -> None:
    shop, warehouse = sides
    batch = replace(
        taken(shop, warehouse, [Conversation([b"piece"])]), type_names=arrays.from_texts(["order"])
    )
    sealed = shop.sealer.seal(batch, shop.sealer.plan(batch), shop.broker, (10, 15))
    fragment = batch_of(shop, batch, sealed, piece_at=10, total_bytes=15)
    assert bodies_of(warehouse.opener.open(fragment, warehouse.certificates)) == [b"piece"]
    for piece_at, total_bytes in ((5, 15), (10, 16)):
        moved = msgspec.structs.replace(fragment, piece_at=piece_at, total_bytes=total_bytes)
        assert warehouse.opener.open(moved, warehouse.certificates).batch is None
    with pytest.raises(wire.ProtocolError):
        batch_of(shop, batch, sealed, piece_at=11, total_bytes=15)


def test_keys_and_bodies_are_in_no_text(sides: tuple[Side, Side]) -> None:
    shop, warehouse = sides
    master = shop.key_store.master_key()
    plans = shop.sealer.plan(taken(shop, warehouse, [Conversation([b"a body"], "A")]))
    texts = [repr(value) for value in (master, plans, plans.plans)]
    assert all(repr(master.key) not in text for text in texts)
    session_key = plans.plans[0].session_key
    assert all(repr(session_key) not in text for text in texts)


def test_a_key_directory_is_looked_at_again(tmp_path: Path, clock: SetClock) -> None:
    store = KeyStore(tmp_path, clock)
    store.read()
    with pytest.raises(TransportError) as missing:
        store.master_key()
    assert missing.value.number == 28050
    made = key_files.make_master_key(tmp_path)
    store.read()
    assert store.master_key() == made
    key_files.master_key_path(tmp_path).chmod(0o644)
    store.read()
    with pytest.raises(TransportError):
        store.master_key()
    key_files.master_key_path(tmp_path).chmod(0o600)
    rotated, kept = key_files.rotate_master_key(tmp_path)
    store.read()
    assert store.master_key() == rotated
    assert store.master_key(made.id) == made
    assert made.id.hex() in kept.name
    with pytest.raises(TransportError) as unknown:
        store.master_key(bytes(8))
    assert unknown.value.number == 28050


@pytest.mark.parametrize("encoded", [b"", b"\x80", b"\xc0", bytes(200), envelope.encode({"mode": "F"})])
def test_what_is_no_envelope_drops_its_dialog(sides: tuple[Side, Side], encoded: bytes) -> None:
    shop, warehouse = sides
    batch, _ = send(shop, warehouse, Conversation([b"one"]))
    made = msgspec.structs.replace(batch, envelopes=arrays.from_elements([encoded], arrays.BYTEA))
    assert warehouse.opener.open(made, warehouse.certificates).batch is None
    unsealed = msgspec.structs.replace(batch, bodies=arrays.from_elements([b""], arrays.BYTEA))
    assert warehouse.opener.open(unsealed, warehouse.certificates).batch is None
    for other in (None, b"", bytes(15)):
        strange = msgspec.structs.replace(batch, conversation_ids=arrays.from_elements([other], arrays.UUID))
        with pytest.raises(arrays.ArrayError):
            warehouse.opener.open(strange, warehouse.certificates)
