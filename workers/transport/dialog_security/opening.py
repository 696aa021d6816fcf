"""Opens what a far broker sealed, and proves the answers to it.

What is not as its sender sealed it is dropped, without an acknowledgement; what can't be opened as something
is missing here waits at its sender, with the reason as its status.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from uuid import UUID

import msgspec
import structlog

from pybroker.workers.transport.dialog_security.sealing import RENEWED_AFTER
from pybroker.workers.transport.protocol import arrays, envelope, faults, slices, wire
from pybroker.workers.transport.protocol.envelope import BatchKeys, SealError
from pybroker.workers.transport.protocol.faults import TransportError

if TYPE_CHECKING:
    from datetime import datetime

    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from structlog.typing import FilteringBoundLogger

    from pybroker.workers.clock import Clock
    from pybroker.workers.transport.dialog_security.certificates import DialogCertificate, DialogCertificates
    from pybroker.workers.transport.dialog_security.key_files import MasterKey
    from pybroker.workers.transport.dialog_security.key_store import KeyStore
    from pybroker.workers.transport.protocol.envelope import Envelope, KeyExchange
    from pybroker.workers.transport.protocol.rows import Delivered

# A dialog that has ended is known for 30 minutes. What was sealed longer ago may be of one that is forgotten,
# recorded and sent again by somebody, and would open it a second time. What a sender repeats is sealed anew.
# A sender whose clock is ahead seals what stays fresh for longer: both together are less than the 30 minutes.
_FRESH_SECONDS: Final = 25 * 60
_AHEAD_SECONDS: Final = 4 * 60
# A sender renews its exchange key after four hours, and what it sealed last may come as late as all else. So
# the signature of one that was stolen does not vouch for its thief for ever.
_EXCHANGE_SECONDS: Final = RENEWED_AFTER + _FRESH_SECONDS + _AHEAD_SECONDS
_MOST_OPENED: Final = 1024
_GUID_BYTES: Final = 16

logger: FilteringBoundLogger = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _Block:
    """A key exchange that was opened."""

    exchange: KeyExchange
    digest: bytes
    cipher: AESGCM
    issued_at: int | None


@dataclass
class Opened:
    """A batch as it can be delivered: without the dialogs that were dropped or must wait.

    Attributes:
        batch: What is left of it; None if that is nothing.
        kinds: The security of each dialog that is left: N, A or F.
        far_users: With full security, the user whose certificate signed.
        session_keys: With anonymous security, at the target, the initiator's session key to be kept.
    """

    batch: wire.Batch | None
    kinds: list[str | None]
    far_users: list[str | None]
    session_keys: list[bytes | None]
    faults: dict[int, TransportError] = field(default_factory=dict)
    left: list[int] = field(default_factory=list)
    keys: list[BatchKeys | None] = field(default_factory=list, repr=False)
    conversation_ids: list[bytes] = field(default_factory=list, repr=False)

    def answer(self, number: int, broker: UUID, delivered: Delivered | None) -> wire.Ack:
        """Return the answer to the batch as it came, with a proof for each dialog that was opened.

        Args:
            number: the batch's.
            broker: the database that it was delivered into.
            delivered: what became of what was left of it.
        """
        count = len(self.keys)
        next_numbers: list[int | None] = [None] * count
        codes: list[int | None] = [None] * count
        texts: list[str | None] = [None] * count
        final = [False] * count
        proofs: list[bytes | None] = [None] * count
        stored_bytes = 0
        for place, fault in self.faults.items():
            codes[place], texts[place] = -fault.number, str(fault)
        if delivered is not None:
            stored_bytes = delivered.stored_bytes
            for place, next_number, code, text, is_final in zip(
                self.left,
                arrays.to_nullable_integers(delivered.next_numbers, arrays.BIGINT),
                arrays.to_nullable_integers(delivered.fault_codes, arrays.INTEGER),
                arrays.to_texts(delivered.fault_texts),
                arrays.to_booleans(delivered.fault_is_final),
                strict=True,
            ):
                next_numbers[place], codes[place], texts[place] = next_number, code, text
                final[place] = is_final
                if (keys := self.keys[place]) is not None:
                    proofs[place] = keys.prove(
                        self.conversation_ids[place],
                        broker.bytes,
                        next_number,
                        (code, text, is_final),
                        stored_bytes,
                    )
        return wire.Ack(
            number,
            broker.bytes,
            arrays.from_integers(next_numbers, arrays.BIGINT),
            arrays.from_integers(codes, arrays.INTEGER),
            arrays.from_texts(texts),
            arrays.from_elements([b"\1" if each else b"\0" for each in final], arrays.BOOLEAN),
            stored_bytes,
            arrays.from_elements(proofs, arrays.BYTEA),
        )


class Opener:
    """Opens for all databases of a worker."""

    def __init__(self, key_store: KeyStore, clock: Clock) -> None:
        """Prepare.

        Args:
            key_store: the worker's keys; refreshed by the caller.
            clock: says what is valid, and what is fresh.
        """
        self._key_store = key_store
        self._clock = clock
        self._blocks: OrderedDict[bytes, _Block] = OrderedDict()
        self._corrupted = 0

    def open(self, batch: wire.Batch, certificates: DialogCertificates) -> Opened:
        """Open a batch.

        Args:
            batch: as it came.
            certificates: what the database knows that it is for; refreshed by the caller.

        Raises:
            ArrayError: The batch is malformed.
        """
        columns = list(zip(*wire.dialog_columns(batch), strict=True))
        encoded = arrays.to_elements(batch.envelopes, arrays.BYTEA)
        opening = _Opening(batch)
        for place, (dialog, sealed) in enumerate(zip(columns, encoded, strict=True)):
            conversation_id, from_initiator = dialog[0] or b"", dialog[1] == b"\1"
            if len(conversation_id) != _GUID_BYTES:
                raise arrays.ArrayError("a conversation id is of another size")
            opening.conversation_ids.append(conversation_id)
            opening.keys.append(None)
            opening.users.append((None, None))
            if sealed is None:
                opening.left.append(place)
                continue
            try:
                self._open_dialog(opening, place, dialog, sealed, certificates)
            except TransportError as fault:
                opening.faults[place] = fault
            except SealError as error:
                self._corrupted += 1
                logger.warning(
                    "corrupted_message",
                    conversation_id=str(UUID(bytes=conversation_id)),
                    from_initiator=from_initiator,
                    from_broker=str(UUID(bytes=batch.from_broker)),
                    reason=str(error),
                    dropped=self._corrupted,
                )
            else:
                opening.left.append(place)
        return opening.finished()

    def _open_dialog(
        self,
        opening: _Opening,
        place: int,
        dialog: tuple[bytes | None, ...],
        sealed: bytes,
        certificates: DialogCertificates,
    ) -> None:
        """Open the messages of one dialog.

        Raises:
            SealError: They are not what their sender sealed.
            TransportError: Something is missing here, or can't be used now.
        """
        conversation_id, from_initiator = dialog[0] or b"", dialog[1] == b"\1"
        read = envelope.decode_envelope(sealed)
        digest = None
        user_name = None
        if read.key_exchange is not None and read.session_key is not None:
            block, user_name = self._block(opening.batch, read, certificates)
            digest = block.digest
            session_key = envelope.unwrap(
                block.cipher, read.session_key, read.mode, conversation_id, from_initiator=from_initiator
            )
        elif read.mode == envelope.ANONYMOUS and not from_initiator and read.master_key is not None:
            master = self._master_key(read.master_key)
            session_key = envelope.session_key_of(master.key, conversation_id, from_initiator=True)
        else:
            raise SealError("an envelope without a session key")
        keys = BatchKeys(session_key, read, from_initiator=from_initiator)
        header = envelope.header_digest(sealed, digest, opening.batch.from_broker, dialog)
        opening.open(place, keys, header)
        # After the seal was found whole: only then it says when it was made.
        self._refuse_stale(read)
        kept = None
        if read.mode == envelope.ANONYMOUS and from_initiator:
            if read.master_key is None:
                raise SealError("an envelope without the id of its master key")
            master = self._master_key()
            kept = envelope.keep((master.id, master.key), session_key, conversation_id, read.master_key)
        opening.keys[place] = keys
        opening.kinds[place] = read.mode
        opening.users[place] = user_name, kept

    def _block(
        self, batch: wire.Batch, read: Envelope, certificates: DialogCertificates
    ) -> tuple[_Block, str | None]:
        """Return the key exchange that an envelope names, and with full security its sender's user."""
        if read.key_exchange is None or read.key_exchange >= len(batch.key_exchanges):
            raise SealError("an envelope names a key exchange that is not there")
        encoded = batch.key_exchanges[read.key_exchange]
        digest = hashlib.sha256(encoded).digest()
        known = self._blocks.get(digest)
        exchange = envelope.decode_key_exchange(encoded) if known is None else known.exchange
        if exchange.mode != read.mode:
            raise SealError("a key exchange is of another kind than the envelope that names it")
        now = self._clock.now()
        user_name = None
        if exchange.mode == envelope.FULL:
            sender = certificates.with_digest(exchange.sender or b"")
            if sender is None:
                raise TransportError(
                    faults.NO_DIALOG_CERTIFICATE,
                    f"The far database does not know the certificate {(exchange.sender or b'').hex()}.",
                )
            _refuse_unusable(sender, now)
            if known is None:
                _verify(exchange, sender)
            user_name = sender.user_name
        recipient = certificates.with_digest(exchange.recipient)
        if recipient is None:
            raise TransportError(
                faults.NO_DIALOG_CERTIFICATE,
                f"The message is sealed for the certificate {exchange.recipient.hex()}, which the far"
                " database does not know.",
            )
        _refuse_unusable(recipient, now)
        if known is None:
            key = self._key_store.private_key(recipient.spki)
            if key is None:
                raise TransportError(
                    faults.NO_DIALOG_KEY,
                    f'The private key of the certificate "{recipient.name}" is not in the far worker\'s key'
                    " directory.",
                )
            known = _Block(exchange, digest, *envelope.open_key_exchange(exchange, key))
            self._blocks[digest] = known
            if len(self._blocks) > _MOST_OPENED:
                self._blocks.popitem(last=False)
        else:
            self._blocks.move_to_end(digest)
        _refuse_old(known, now)
        return known, user_name

    def _master_key(self, key_id: bytes | None = None) -> MasterKey:
        try:
            return self._key_store.master_key(key_id)
        except TransportError as fault:
            raise _at_the_far_side(fault) from fault

    def _refuse_stale(self, read: Envelope) -> None:
        age = self._clock.now().timestamp() - read.sealed_at / 1_000_000
        if not -_AHEAD_SECONDS <= age <= _FRESH_SECONDS:
            raise TransportError(
                faults.CORRUPTED,
                f"The message was sealed {abs(age):.0f} s {'before' if age > 0 else 'after'} it arrived."
                " Do the clocks of the two workers agree?",
            )


class _Opening:
    """The work on one batch."""

    def __init__(self, batch: wire.Batch) -> None:
        self.batch = batch
        self.left: list[int] = []
        self.faults: dict[int, TransportError] = {}
        self.keys: list[BatchKeys | None] = []
        self.kinds: dict[int, str] = {}
        self.users: list[tuple[str | None, bytes | None]] = []
        self.conversation_ids: list[bytes] = []
        self._types = [name or b"" for name in arrays.to_elements(batch.type_names, arrays.TEXT)]
        self._bodies = arrays.to_elements(batch.bodies, arrays.BYTEA)
        self._numbers = arrays.to_integers(batch.sequence_numbers, arrays.BIGINT)
        self._sent_at = wire.message_times(batch)
        self._type_index = arrays.to_integers(batch.type_index, arrays.INTEGER)
        self._dialog_index = arrays.to_integers(batch.dialog_index, arrays.INTEGER)
        self._places: dict[int, list[int]] = {}
        for place, dialog in enumerate(self._dialog_index):
            self._places.setdefault(dialog - 1, []).append(place)
        self._piece = None
        if isinstance(batch, wire.Fragment):
            self._piece = batch.piece_at, batch.total_bytes

    def open(self, dialog: int, keys: BatchKeys, header: bytes) -> None:
        """Open the bodies of a dialog.

        Raises:
            SealError: One of them, or its header, was changed.
        """
        opened = []
        for place in self._places.get(dialog, ()):
            associated = envelope.associated_data(
                header,
                (self._numbers[place], self.batch.kinds[place], self._sent_at[place]),
                self._types[self._type_index[place] - 1],
                self._piece,
            )
            body = keys.open(place, self._bodies[place], associated)
            if self._piece is not None and self._piece[0] + len(body or b"") > self._piece[1]:
                raise SealError("a piece lies outside of its message")
            opened.append((place, body))
        for place, body in opened:
            self._bodies[place] = body

    def finished(self) -> Opened:
        """Return the batch without the dialogs that are not left."""
        return Opened(
            self._reduced(),
            [self.kinds.get(place, envelope.CLEAR) for place in self.left],
            [self.users[place][0] for place in self.left],
            [self.users[place][1] for place in self.left],
            self.faults,
            self.left,
            self.keys,
            self.conversation_ids,
        )

    def _reduced(self) -> wire.Batch | None:
        if not self.left:
            return None
        opened = msgspec.structs.replace(
            self.batch,
            bodies=arrays.from_elements(self._bodies, arrays.BYTEA),
            envelopes=b"",
            key_exchanges=[],
        )
        return opened if len(self.left) == len(self.keys) else slices.picked(opened, self.left)


def _refuse_unusable(certificate: DialogCertificate, now: datetime) -> None:
    fault = certificate.fault(now)
    if fault is not None:
        raise _at_the_far_side(fault)


def _refuse_old(block: _Block, now: datetime) -> None:
    # A worker of an older version tells no time; nobody can make its kind of exchange from one that has one.
    if block.issued_at is None:
        return
    age = now.timestamp() - block.issued_at
    if not -_AHEAD_SECONDS <= age <= _EXCHANGE_SECONDS:
        raise TransportError(
            faults.CORRUPTED,
            f"The key exchange was made {abs(age):.0f} s {'before' if age > 0 else 'after'} its message"
            " arrived. Do the clocks of the two workers agree?",
        )


def _at_the_far_side(fault: TransportError) -> TransportError:
    """Return it as the sender reads it."""
    return TransportError(fault.number, f"At the far side: {fault.text}")


def _verify(exchange: KeyExchange, sender: DialogCertificate) -> None:
    if sender.public_key is None:
        raise SealError("a certificate that can't sign")
    envelope.verify_sender(exchange, sender.public_key)
