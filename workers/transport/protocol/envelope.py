"""The bytes of dialog security: key exchange, envelope, and the keys that they lead to. No I/O.

docs/wire-format.md tells all of it, precise enough for another client. A session key stands for one direction
of a dialog (with anonymous security for both). No message is sealed by it: each batch derives keys of its own
from it with a random salt, so a nonce never repeats under a key, whatever was sent again, restored or copied.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import struct
from typing import TYPE_CHECKING, Annotated, Final, Literal

import msgspec
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey

KEY_BYTES: Final = 32
SALT_BYTES: Final = 16
# What sealing adds to a body: a letter that tells no body from an empty one, and the tag.
SEAL_BYTES: Final = 17

# How a dialog is secured, as batches and the database say it. In the clear; anonymous: the target is
# identified; full: both are.
CLEAR: Final = "N"
ANONYMOUS: Final = "A"
FULL: Final = "F"
Mode = Literal["A", "F"]

_NONCE_BYTES: Final = 12
_TAG_BYTES: Final = 16
_FINGERPRINT_BYTES: Final = 16
_MASTER_KEY_ID_BYTES: Final = 8
_WRAPPED_BYTES: Final = _NONCE_BYTES + KEY_BYTES + _TAG_BYTES
_NO_BODY: Final = b"\0"
_BODY: Final = b"\1"
_NO_BLOCK: Final = bytes(32)
_RANDOM_BYTES: Final = 20
_CHECK_BYTES: Final = 8
_NO_PIECE: Final = (-1, -1)

_KEY_EXCHANGE: Final = b"pybroker key exchange 1\0"
_ISSUED: Final = b"pybroker exchange key issued 1\0"
_SESSION: Final = b"pybroker session 1\0"
_SESSION_KEY: Final = b"pybroker session key 1\0"
_MESSAGES: Final = b"pybroker messages 1\0"
_HEADER: Final = b"pybroker dialog header 1\0"
_PROOF: Final = b"pybroker proof 1\0"
_KEPT: Final = b"pybroker kept key 1\0"
_FINGERPRINT: Final = b"pybroker fingerprint 1\0"

_OAEP: Final = padding.OAEP(padding.MGF1(hashes.SHA256()), hashes.SHA256(), label=None)
_PSS: Final = padding.PSS(mgf=padding.MGF1(hashes.SHA256()), salt_length=32)
_LENGTH: Final = struct.Struct(">i")
_SECONDS: Final = struct.Struct(">I")
_MESSAGE: Final = struct.Struct(">qcqq?8s")
_ANSWER: Final = struct.Struct(">?q?i?q")

Digest = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
Salt = Annotated[bytes, msgspec.Meta(min_length=SALT_BYTES, max_length=SALT_BYTES)]
WrappedKey = Annotated[bytes, msgspec.Meta(min_length=_WRAPPED_BYTES, max_length=_WRAPPED_BYTES)]
MasterKeyId = Annotated[bytes, msgspec.Meta(min_length=_MASTER_KEY_ID_BYTES, max_length=_MASTER_KEY_ID_BYTES)]


class SealError(Exception):
    """What arrived is not what its sender sealed, or was never sealed as it should be."""


class KeyExchange(msgspec.Struct, frozen=True):
    """A key for session keys, for who has the private key of a certificate; signed if its sender is known."""

    version: Literal[1]
    mode: Mode
    recipient: Digest
    sender: Digest | None
    key: Annotated[bytes, msgspec.Meta(min_length=256, max_length=2048)]
    signature: Annotated[bytes, msgspec.Meta(min_length=256, max_length=2048)] | None


class Envelope(msgspec.Struct, frozen=True):
    """How the messages of one dialog in one batch are sealed."""

    mode: Mode
    key_exchange: Annotated[int, msgspec.Meta(ge=0, le=63)] | None
    session_key: WrappedKey | None
    master_key: MasterKeyId | None
    salt: Salt
    sealed_at: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class BatchKeys:
    """The keys of one dialog in one batch: for its messages, and for what the receiver answers."""

    __slots__ = ("_cipher", "_proof_key")

    def __init__(self, session_key: bytes, envelope: Envelope, *, from_initiator: bool) -> None:
        info = _MESSAGES + envelope.mode.encode() + _side(from_initiator)
        both = HKDF(hashes.SHA256(), 2 * KEY_BYTES, envelope.salt, info).derive(session_key)
        self._cipher = AESGCM(both[:KEY_BYTES])
        self._proof_key = both[KEY_BYTES:]

    def seal(self, place: int, body: bytes | None, associated: bytes) -> bytes:
        """Return a body, or that there is none, sealed; `place` is the message's in its batch, from 0."""
        plain = _NO_BODY if body is None else _BODY + body
        return self._cipher.encrypt(place.to_bytes(_NONCE_BYTES, "big"), plain, associated)

    def open(self, place: int, sealed: bytes | None, associated: bytes) -> bytes | None:
        """Return what `seal` was given.

        Raises:
            SealError: It is not what was sealed.
        """
        if sealed is None:
            raise SealError("a message is not sealed")
        try:
            plain = self._cipher.decrypt(place.to_bytes(_NONCE_BYTES, "big"), sealed, associated)
        except InvalidTag:
            raise SealError("a message, or its header, was changed") from None
        return None if plain == _NO_BODY else plain[1:]

    def prove(
        self,
        conversation_id: bytes,
        broker_instance: bytes,
        next_number: int | None,
        fault: tuple[int | None, str | None, bool],
        stored_bytes: int,
    ) -> bytes:
        """Return the proof that an answer comes from who could open the messages."""
        code, text, is_final = fault
        said = _ANSWER.pack(
            next_number is not None, next_number or 0, code is not None, code or 0, is_final, stored_bytes
        )
        encoded = b"\0" if text is None else b"\1" + text.encode()
        content = b"".join((_PROOF, conversation_id, broker_instance, said, encoded))
        return hmac.digest(self._proof_key, content, "sha256")


_exchange_decoder = msgspec.msgpack.Decoder(KeyExchange)
_envelope_decoder = msgspec.msgpack.Decoder(Envelope)
encode = msgspec.msgpack.Encoder().encode


def decode_key_exchange(block: bytes) -> KeyExchange:
    """Return what is in a key exchange block.

    Raises:
        SealError: It is none.
    """
    try:
        return _exchange_decoder.decode(block)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise SealError("a malformed key exchange") from None


def decode_envelope(encoded: bytes) -> Envelope:
    """Return what is in an envelope.

    Raises:
        SealError: It is none.
    """
    try:
        return _envelope_decoder.decode(encoded)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise SealError("a malformed envelope") from None


def new_exchange_key(issued_at: int) -> bytes:
    """Return a fresh key to wrap session keys with, that says in seconds since 1970 when it was made.

    The time is in the key as that is what the signature covers, in the form that older workers know too: so
    nobody can leave it out or change it, and they take the key for the random bytes that most of it is.
    """
    content = secrets.token_bytes(_RANDOM_BYTES) + _SECONDS.pack(issued_at)
    return content + _issue_check(content)


def issued_at(exchange_key: bytes) -> int | None:
    """Return when an exchange key was made, in seconds since 1970; None for that of an older worker."""
    content = exchange_key[:-_CHECK_BYTES]
    if len(exchange_key) != KEY_BYTES or exchange_key[-_CHECK_BYTES:] != _issue_check(content):
        return None
    seconds: int = _SECONDS.unpack(content[_RANDOM_BYTES:])[0]
    return seconds


def make_key_exchange(
    key: bytes,
    recipient: tuple[bytes, RSAPublicKey],
    sender: tuple[bytes, RSAPrivateKey] | None,
) -> bytes:
    """Return a key exchange block; with a sender for full security, without for anonymous.

    Args:
        key: of `new_exchange_key`.
        recipient: the SHA-256 of the certificate that it is for, and its key.
        sender: the SHA-256 of the sender's certificate, and its private key.
    """
    encrypted = recipient[1].encrypt(key, _OAEP)
    mode: Mode = ANONYMOUS if sender is None else FULL
    digest, signature = None, None
    if sender is not None:
        digest = sender[0]
        signature = sender[1].sign(_signed(mode, recipient[0], digest, encrypted), _PSS, hashes.SHA256())
    return encode(KeyExchange(1, mode, recipient[0], digest, encrypted, signature))


def verify_sender(block: KeyExchange, key: RSAPublicKey) -> None:
    """Make sure that the block was signed with the key of its sender's certificate.

    Raises:
        SealError: It was not.
    """
    if block.sender is None or block.signature is None:
        raise SealError("a key exchange is not signed")
    try:
        signed = _signed(block.mode, block.recipient, block.sender, block.key)
        key.verify(block.signature, signed, _PSS, hashes.SHA256())
    except InvalidSignature:
        raise SealError("the signature of a key exchange is not its sender's") from None


def open_key_exchange(block: KeyExchange, key: RSAPrivateKey) -> tuple[AESGCM, int | None]:
    """Return the cipher that session keys are wrapped with, and when its key was made, if that is told.

    Raises:
        SealError: The block is not for this key.
    """
    try:
        exchanged = key.decrypt(block.key, _OAEP)
        return AESGCM(exchanged), issued_at(exchanged)
    except ValueError:
        raise SealError("a key exchange can't be opened with the key of its certificate") from None


def session_key_of(
    master_key: bytes, conversation_id: bytes, *, from_initiator: bool, salt: bytes | None = None
) -> bytes:
    """Return the session key of one direction of a dialog; with a random salt, one for once."""
    info = _SESSION + conversation_id + _side(from_initiator)
    return HKDF(hashes.SHA256(), KEY_BYTES, salt, info).derive(master_key)


def wrap(
    exchanged: AESGCM, session_key: bytes, mode: Mode, conversation_id: bytes, *, from_initiator: bool
) -> bytes:
    """Return a session key, sealed with an exchanged key."""
    nonce = secrets.token_bytes(_NONCE_BYTES)
    associated = _SESSION_KEY + mode.encode() + _side(from_initiator) + conversation_id
    return nonce + exchanged.encrypt(nonce, session_key, associated)


def unwrap(
    exchanged: AESGCM, wrapped: bytes, mode: Mode, conversation_id: bytes, *, from_initiator: bool
) -> bytes:
    """Return the session key that `wrap` was given.

    Raises:
        SealError: It is not what was wrapped for this dialog.
    """
    associated = _SESSION_KEY + mode.encode() + _side(from_initiator) + conversation_id
    try:
        return _checked(exchanged.decrypt(wrapped[:_NONCE_BYTES], wrapped[_NONCE_BYTES:], associated))
    except InvalidTag:
        raise SealError("a session key was changed, or is another dialog's") from None


def keep(master: tuple[bytes, bytes], session_key: bytes, conversation_id: bytes, initiators: bytes) -> bytes:
    """Return an initiator's session key, fit to be kept in a database.

    It begins with the key's fingerprint, which is always the same.

    Args:
        master: the master key of this side, its id and the key.
        session_key: what is kept.
        conversation_id: of its dialog.
        initiators: the id of the initiator's master key, kept with it.
    """
    fingerprint = HKDF(hashes.SHA256(), _FINGERPRINT_BYTES, None, _FINGERPRINT).derive(session_key)
    nonce = secrets.token_bytes(_NONCE_BYTES)
    head = fingerprint + initiators + master[0]
    sealed = _keeping(master[1], conversation_id).encrypt(nonce, session_key, head + conversation_id)
    return head + nonce + sealed


def master_keys_of(kept: bytes) -> tuple[bytes, bytes]:
    """Return the ids of the initiator's master key, and of that which a kept session key is sealed with.

    Raises:
        SealError: It is no kept key.
    """
    if len(kept) != _FINGERPRINT_BYTES + 2 * _MASTER_KEY_ID_BYTES + _WRAPPED_BYTES:
        raise SealError("a kept session key has another length")
    ids = kept[_FINGERPRINT_BYTES:]
    return ids[:_MASTER_KEY_ID_BYTES], ids[_MASTER_KEY_ID_BYTES : 2 * _MASTER_KEY_ID_BYTES]


def release(master_key: bytes, kept: bytes, conversation_id: bytes) -> bytes:
    """Return the session key that `keep` was given.

    Raises:
        SealError: It is not what was kept for this dialog.
    """
    head, wrapped = kept[:-_WRAPPED_BYTES], kept[-_WRAPPED_BYTES:]
    try:
        cipher = _keeping(master_key, conversation_id)
        return cipher.decrypt(wrapped[:_NONCE_BYTES], wrapped[_NONCE_BYTES:], head + conversation_id)
    except InvalidTag:
        raise SealError("a kept session key was changed, or is another dialog's") from None


def header_digest(
    envelope: bytes, block: bytes | None, from_broker: bytes, columns: Sequence[bytes | None]
) -> bytes:
    """Return what stands for a dialog's header in the seal of each of its messages.

    Args:
        envelope: as it is on the wire.
        block: the SHA-256 of the key exchange block that the envelope names.
        from_broker: the sending broker instance.
        columns: the dialog's element of each of the batch's arrays of dialogs, in their order.
    """
    parts = [_HEADER, _LENGTH.pack(len(envelope)), envelope, block or _NO_BLOCK, from_broker]
    for column in columns:
        parts += (_LENGTH.pack(-1),) if column is None else (_LENGTH.pack(len(column)), column)
    return hashlib.sha256(b"".join(parts)).digest()


def associated_data(
    header: bytes,
    message: tuple[int, str, bytes | None],
    type_name: bytes,
    piece: tuple[int, int] | None = None,
) -> bytes:
    """Return what is authenticated with a message's body.

    Args:
        header: the header_digest of its dialog.
        message: its sequence number; M, E or X; when it was sent (a timestamptz of 8 bytes), if that is told.
        type_name: its message type's name in UTF-8.
        piece: for a fragment where its piece begins, and how long the whole body is.
    """
    number, kind, sent_at = message
    place = piece or _NO_PIECE
    return (
        header + _MESSAGE.pack(number, kind.encode(), *place, sent_at is not None, sent_at or b"") + type_name
    )


def _issue_check(content: bytes) -> bytes:
    return hashlib.sha256(_ISSUED + content).digest()[:_CHECK_BYTES]


def _keeping(master_key: bytes, conversation_id: bytes) -> AESGCM:
    # A key for each conversation, as random nonces under one key would meet again one day.
    return AESGCM(HKDF(hashes.SHA256(), KEY_BYTES, None, _KEPT + conversation_id).derive(master_key))


def _signed(mode: Mode, recipient: bytes, sender: bytes, encrypted: bytes) -> bytes:
    return b"".join((_KEY_EXCHANGE, mode.encode(), recipient, sender, encrypted))


def _side(from_initiator: bool) -> bytes:
    return b"I" if from_initiator else b"T"


def _checked(session_key: bytes) -> bytes:
    if len(session_key) != KEY_BYTES:
        raise SealError("a session key has another length")
    return session_key
