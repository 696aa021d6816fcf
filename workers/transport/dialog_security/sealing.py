"""Seals what leaves for a far broker, and tells which answers come from who could open it.

Nothing is stored. With full security each batch has a session key of its own; with anonymous security it is
derived from the master key. A batch's keys are derived from it and a random salt.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from uuid import UUID

import msgspec
import structlog
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from pybroker.workers.transport.dialog_security.decision import Dialog, decide
from pybroker.workers.transport.protocol import arrays, envelope, faults, wire
from pybroker.workers.transport.protocol.envelope import BatchKeys, Envelope, SealError
from pybroker.workers.transport.protocol.faults import TransportError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from structlog.typing import FilteringBoundLogger

    from pybroker.workers.clock import Clock
    from pybroker.workers.transport.dialog_security.certificates import DialogCertificate, DialogCertificates
    from pybroker.workers.transport.dialog_security.decision import Kind
    from pybroker.workers.transport.dialog_security.key_store import KeyStore
    from pybroker.workers.transport.protocol.rows import Taken

MOST_KEY_EXCHANGES: Final = 64

# Receivers hold their senders to it (opening.py).
RENEWED_AFTER: Final = 4 * 3600
# Each wraps a session key with a random nonce: far below where two of them would meet.
_WRAPS: Final = 2**28
_MOST_EXCHANGED: Final = 1024
# A line of the log names at most so many conversations.
_NAMED: Final = 10

logger: FilteringBoundLogger = structlog.get_logger()


@dataclass
class _Exchanged:
    """A key that session keys for one certificate are wrapped with."""

    block: bytes
    digest: bytes
    cipher: AESGCM
    until: float
    issued_at: int
    wraps: int = 0


class KeyExchanges:
    """The key-exchange keys of a worker: one for each far certificate, and own one with full security."""

    def __init__(self, clock: Clock) -> None:
        """Prepare.

        Args:
            clock: says when a key is renewed.
        """
        self._clock = clock
        self._exchanged: dict[tuple[bytes, bytes | None], _Exchanged] = {}

    def key_for(
        self, far: DialogCertificate, own: tuple[DialogCertificate, RSAPrivateKey] | None
    ) -> _Exchanged:
        """Return the key for a far certificate; with an own one for full security, without for anonymous."""
        if far.public_key is None:
            raise AssertionError("chosen as it can be used")
        name = far.digest, own and own[0].digest
        found = self._exchanged.get(name)
        if found is None or self._is_over(found):
            issued_at = int(self._clock.now().timestamp())
            key = envelope.new_exchange_key(issued_at)
            block = envelope.make_key_exchange(
                key, (far.digest, far.public_key), own and (own[0].digest, own[1])
            )
            if len(self._exchanged) >= _MOST_EXCHANGED:
                self._exchanged.clear()
            found = self._exchanged[name] = _Exchanged(
                block,
                hashlib.sha256(block).digest(),
                AESGCM(key),
                self._clock.monotonic() + RENEWED_AFTER,
                issued_at,
            )
        found.wraps += 1
        return found

    def _is_over(self, exchanged: _Exchanged) -> bool:
        # By the time of day too: where that was set, receivers would find the key too old, or of tomorrow.
        age = self._clock.now().timestamp() - exchanged.issued_at
        return (
            self._clock.monotonic() >= exchanged.until
            or not 0 <= age < RENEWED_AFTER
            or exchanged.wraps >= _WRAPS
        )


@dataclass(slots=True)
class _Plan:
    """How one dialog of a batch is sealed; without a session key, not at all."""

    kind: Kind
    session_key: bytes | None = field(default=None, repr=False)
    master_key: bytes | None = None
    exchanged: _Exchanged | None = None


@dataclass
class Plans:
    """What was decided about the dialogs of a batch.

    Attributes:
        pins: What is to be noted of dialogs that leave for the first time: endpoints, kinds, and what is
            needed to find the session key again.
        held: The dialogs that must wait, and why; without a reason, for a moment.
    """

    plans: list[_Plan] = field(default_factory=list)
    pins: list[tuple[int, Kind, bytes | None]] = field(default_factory=list)
    held: list[tuple[int, TransportError | None]] = field(default_factory=list)

    @property
    def has_secrets(self) -> bool:
        """Whether any dialog is to be sealed."""
        return any(plan.session_key is not None for plan in self.plans)


class Sealer:
    """Decides and seals for one database."""

    def __init__(
        self, key_store: KeyStore, certificates: DialogCertificates, exchanges: KeyExchanges, clock: Clock
    ) -> None:
        """Prepare.

        Args:
            key_store: the worker's keys.
            certificates: what the database knows; both are refreshed by the caller.
            exchanges: the worker's key-exchange keys.
            clock: says when something was sealed.
        """
        self._key_store = key_store
        self._certificates = certificates
        self._exchanges = exchanges
        self._clock = clock

    def plan(self, taken: Taken) -> Plans:
        """Decide how each dialog of a batch leaves.

        Raises:
            ArrayError: What was taken is not what `take` returns.
        """
        plans = Plans()
        blocks: set[int] = set()
        for dialog in _dialogs(taken):
            try:
                plan = self._plan(dialog)
            except TransportError as fault:
                plans.held.append((dialog.endpoint_no, fault))
                continue
            if plan.exchanged is not None:
                blocks.add(id(plan.exchanged))
                if len(blocks) > MOST_KEY_EXCHANGES:
                    plans.held.append((dialog.endpoint_no, None))
                    continue
            plans.plans.append(plan)
            if dialog.established is None:
                plans.pins.append((dialog.endpoint_no, plan.kind, plan.master_key))
        return plans

    def seal(
        self, taken: Taken, plans: Plans, from_broker: UUID, piece: tuple[int, int] | None = None
    ) -> Sealed | None:
        """Seal a batch of which no dialog is held; None if nothing in it is to be sealed.

        `piece` is where a fragment's piece begins, and how long its whole body is.
        """
        if not plans.has_secrets:
            return None
        sealed_at = int(self._clock.now().timestamp() * 1_000_000)
        sealing = _Sealing(taken, from_broker.bytes, sealed_at)
        for plan in plans.plans:
            sealing.add(plan)
        return sealing.seal(piece)

    def _plan(self, dialog: _TakenDialog) -> _Plan:
        is_new = dialog.is_initiator and dialog.established is None
        own: tuple[DialogCertificate, RSAPrivateKey] | None = None

        def certificate_fault() -> TransportError | None:
            nonlocal own
            try:
                own = self._certificates.own(dialog.owner, self._key_store, is_new=is_new)
            except TransportError as fault:
                return fault
            return None

        kind = decide(
            Dialog(dialog.is_initiator, dialog.is_encrypted, dialog.binding, dialog.established),
            certificate_fault,
        )
        if kind == envelope.CLEAR:
            return _Plan(envelope.CLEAR)
        if kind == envelope.ANONYMOUS and not dialog.is_initiator:
            return self._plan_answer(dialog)
        master = self._key_store.master_key(dialog.kept_key if kind == envelope.ANONYMOUS else None)
        # It goes along with each batch, so only an anonymous initiator must find it again, for the answers.
        session_key = envelope.session_key_of(
            master.key,
            dialog.conversation_id,
            from_initiator=dialog.is_initiator,
            salt=secrets.token_bytes(envelope.KEY_BYTES) if kind == envelope.FULL else None,
        )
        if kind == envelope.FULL and own is None and (fault := certificate_fault()) is not None:
            raise fault
        far = self._certificates.far(dialog.far_user, is_new=is_new)
        exchanged = self._exchanges.key_for(far, own)
        return _Plan(kind, session_key, master.id if kind == envelope.ANONYMOUS else None, exchanged)

    def _plan_answer(self, dialog: _TakenDialog) -> _Plan:
        """An anonymous initiator has no certificate: what it sent its key with opens what comes back."""
        try:
            kept = dialog.kept_key or b""
            initiators, own = envelope.master_keys_of(kept)
            key = envelope.release(self._key_store.master_key(own).key, kept, dialog.conversation_id)
        except SealError as error:
            raise TransportError(
                faults.NO_MASTER_KEY, f"The session key of this conversation can't be used: {error}."
            ) from None
        return _Plan(envelope.ANONYMOUS, key, initiators)


@dataclass(frozen=True, slots=True)
class _TakenDialog:
    endpoint_no: int
    conversation_id: bytes
    is_initiator: bool
    is_encrypted: bool
    owner: str
    far_user: str
    binding: str | None
    established: str | None
    kept_key: bytes | None


@dataclass
class Sealed:
    """A batch's bodies and what goes with them; and what its answer has to show.

    Attributes:
        bodies: The bodies, sealed where their dialog is.
        envelopes: One for each dialog, null for one in the clear.
        key_exchanges: The key exchange blocks that the envelopes name.
    """

    bodies: bytes
    envelopes: bytes
    key_exchanges: list[bytes]
    conversation_ids: list[bytes] = field(repr=False)
    keys: list[BatchKeys | None] = field(repr=False)

    def proven(self, ack: wire.Ack) -> wire.Ack:
        """Return the answer without what somebody else than the receiver may have said.

        Of a sealed dialog without a valid proof nothing is acknowledged, and nothing is final.

        Raises:
            ArrayError: The answer is malformed.
        """
        next_numbers = arrays.to_nullable_integers(ack.next_numbers, arrays.BIGINT)
        codes = arrays.to_nullable_integers(ack.fault_codes, arrays.INTEGER)
        texts = arrays.to_texts(ack.fault_texts)
        final = arrays.to_booleans(ack.fault_is_final)
        proofs: Sequence[bytes | None] = [None] * len(self.keys)
        if ack.proofs:
            proofs = arrays.to_elements(ack.proofs, arrays.BYTEA)
        if len(next_numbers) != len(self.keys):
            raise arrays.ArrayError(f"{len(next_numbers)} dialogs where {len(self.keys)} were sent")
        stored_bytes, forged = ack.stored_bytes, list[str]()
        for place, keys in enumerate(self.keys):
            if keys is None:
                continue
            answer = (
                self.conversation_ids[place],
                ack.broker_instance,
                next_numbers[place],
                (codes[place], texts[place], final[place]),
                ack.stored_bytes,
            )
            proof = proofs[place]
            if proof is not None and secrets.compare_digest(proof, keys.prove(*answer)):
                continue
            # What could not be opened is answered without a proof, and says nothing that would need one.
            if proof is not None or next_numbers[place] is not None or final[place]:
                forged.append(str(UUID(bytes=self.conversation_ids[place])))
            next_numbers[place] = None
            final[place] = False
            stored_bytes = 0
        if forged:
            logger.warning(
                "corrupted_answer",
                broker_instance=str(UUID(bytes=ack.broker_instance)),
                dialogs=len(forged),
                conversation_ids=forged[:_NAMED],
            )
        return msgspec.structs.replace(
            ack,
            next_numbers=arrays.from_integers(next_numbers, arrays.BIGINT),
            fault_is_final=arrays.from_elements([b"\1" if each else b"\0" for each in final], arrays.BOOLEAN),
            stored_bytes=stored_bytes,
        )


class _Sealing:
    """The work on one batch."""

    def __init__(self, taken: Taken, from_broker: bytes, sealed_at: int) -> None:
        self._taken = taken
        self._from_broker = from_broker
        self._sealed_at = sealed_at
        self._columns = list(zip(*wire.dialog_columns(taken), strict=True))
        self._blocks: dict[bytes, int] = {}
        self._key_exchanges: list[bytes] = []
        self._envelopes: list[bytes | None] = []
        self._keys: list[BatchKeys | None] = []
        self._headers: list[bytes] = []

    def add(self, plan: _Plan) -> None:
        """Make the envelope of the next dialog."""
        columns = self._columns[len(self._keys)]
        conversation_id, from_initiator = columns[0] or b"", columns[1] == b"\1"
        if plan.session_key is None or plan.kind == envelope.CLEAR:
            self._envelopes.append(None)
            self._keys.append(None)
            self._headers.append(b"")
            return
        place, wrapped, digest = None, None, None
        if (exchanged := plan.exchanged) is not None:
            digest = exchanged.digest
            place = self._blocks.setdefault(digest, len(self._blocks))
            if place == len(self._key_exchanges):
                self._key_exchanges.append(exchanged.block)
            wrapped = envelope.wrap(
                exchanged.cipher,
                plan.session_key,
                plan.kind,
                conversation_id,
                from_initiator=from_initiator,
            )
        salt = secrets.token_bytes(envelope.SALT_BYTES)
        made = Envelope(plan.kind, place, wrapped, plan.master_key, salt, self._sealed_at)
        encoded = envelope.encode(made)
        self._envelopes.append(encoded)
        self._keys.append(BatchKeys(plan.session_key, made, from_initiator=from_initiator))
        self._headers.append(envelope.header_digest(encoded, digest, self._from_broker, columns))

    def seal(self, piece: tuple[int, int] | None) -> Sealed:
        types = [name or b"" for name in arrays.to_elements(self._taken.type_names, arrays.TEXT)]
        bodies = arrays.to_elements(self._taken.bodies, arrays.BYTEA)
        numbers = arrays.to_integers(self._taken.sequence_numbers, arrays.BIGINT)
        dialogs = arrays.to_integers(self._taken.dialog_index, arrays.INTEGER)
        type_index = arrays.to_integers(self._taken.type_index, arrays.INTEGER)
        sent_at = wire.message_times(self._taken)
        for place, (dialog, kind) in enumerate(zip(dialogs, self._taken.kinds, strict=True)):
            keys = self._keys[dialog - 1]
            if keys is not None:
                associated = envelope.associated_data(
                    self._headers[dialog - 1],
                    (numbers[place], kind, sent_at[place]),
                    types[type_index[place] - 1],
                    piece,
                )
                bodies[place] = keys.seal(place, bodies[place], associated)
        return Sealed(
            arrays.from_elements(bodies, arrays.BYTEA),
            arrays.from_elements(self._envelopes, arrays.BYTEA),
            self._key_exchanges,
            [columns[0] or b"" for columns in self._columns],
            self._keys,
        )


def is_plain(taken: Taken) -> bool:
    """Return whether all dialogs of a batch began in the clear, at one glance."""
    count = arrays.element_count(taken.established, arrays.TEXT)
    return taken.established == _plain(count)


def _plain(count: int) -> bytes:
    if count not in _PLAIN:
        if len(_PLAIN) >= _MOST_EXCHANGED:
            _PLAIN.clear()
        _PLAIN[count] = arrays.from_texts([envelope.CLEAR] * count)
    return _PLAIN[count]


_PLAIN: dict[int, bytes] = {}


def _dialogs(taken: Taken) -> list[_TakenDialog]:
    return [
        _TakenDialog(
            endpoint_no,
            conversation_id or b"",
            is_initiator,
            is_encrypted,
            owner or "",
            far_user or "",
            binding,
            established,
            kept_key,
        )
        for (
            endpoint_no,
            conversation_id,
            is_initiator,
            is_encrypted,
            owner,
            far_user,
            binding,
            established,
            kept_key,
        ) in zip(
            arrays.to_integers(taken.endpoint_nos, arrays.BIGINT),
            arrays.to_elements(taken.conversation_ids, arrays.UUID),
            arrays.to_booleans(taken.from_initiator),
            arrays.to_booleans(taken.encrypted),
            arrays.to_texts(taken.owners),
            arrays.to_texts(taken.far_users),
            arrays.to_texts(taken.bindings),
            arrays.to_texts(taken.established),
            arrays.to_elements(taken.session_keys, arrays.BYTEA),
            strict=True,
        )
    ]
