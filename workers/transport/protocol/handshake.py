"""What two endpoints agree on before the first Hello: whether to encrypt, and proofs where they do not.

No I/O. Where there is TLS it proves the certificates. Where encryption is disabled each side signs what both
have said, so a certificate is shown by nobody but who has its key, and nobody on the line can make two
endpoints that could encrypt believe that they can't.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import TYPE_CHECKING, Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding

from pybroker.workers.transport.protocol import faults, wire
from pybroker.workers.transport.protocol.faults import TransportError

if TYPE_CHECKING:
    from pybroker.workers.transport.connection.certificate_check import Credentials
    from pybroker.workers.transport.protocol.rows import Encryption
    from pybroker.workers.transport.protocol.wire import Challenge

# The first byte of what a connecting side says: a TLS record, or the length of a frame in the clear.
CLEAR_FIRST_BYTE = b"\0"
# TLS's fatal alert insufficient_security, as a record: without encryption no TLS is there to say it.
ENCRYPTION_IS_DISABLED = bytes.fromhex("15030300020247")
ENCRYPTION_IS_DISABLED_REASON = "ALERT_INSUFFICIENT_SECURITY"

_PURPOSE: Final = b"pybroker endpoint proof 1\0"
_PSS: Final = padding.PSS(mgf=padding.MGF1(hashes.SHA256()), salt_length=32)


def refuse_without_encryption(own: Encryption, far: Encryption) -> None:
    """Refuse to go on in the clear where both sides could encrypt, or one has to.

    Raises:
        TransportError: 28027.
    """
    if "REQUIRED" in (own, far):
        raise TransportError(
            faults.NOTHING_IN_COMMON, "One endpoint requires encryption, and the other has it disabled."
        )
    if own == far == "SUPPORTED":
        raise TransportError(
            faults.NOTHING_IN_COMMON, "Both endpoints support encryption, and one began without it."
        )


def challenge(credentials: Credentials) -> Challenge:
    """Return what this side says first in the clear: who it claims to be, and what the peer is to sign."""
    encoded = credentials.certificate.public_bytes(Encoding.DER)
    return wire.Challenge(credentials.endpoint.encryption, encoded, secrets.token_bytes(32))


def sign(credentials: Credentials, connecting: Challenge, accepting: Challenge, *, accepts: bool) -> bytes:
    """Return this side's signature of both challenges.

    Raises:
        TransportError: 28037, the key is of a kind that can't sign.
    """
    key, signed = credentials.key, _signed(connecting, accepting, accepts=accepts)
    if isinstance(key, rsa.RSAPrivateKey):
        return key.sign(signed, _PSS, hashes.SHA256())
    if isinstance(key, ec.EllipticCurvePrivateKey):
        return key.sign(signed, ec.ECDSA(hashes.SHA256()))
    if isinstance(key, (ed25519.Ed25519PrivateKey, ed448.Ed448PrivateKey)):
        return key.sign(signed)
    raise TransportError(faults.NO_PRIVATE_KEY, "The private key of the endpoint's certificate can't sign.")


def verify(connecting: Challenge, accepting: Challenge, signature: bytes, *, accepts: bool) -> None:
    """Verify the signature of the accepting or the connecting side by the certificate in its challenge.

    Only of an admitted certificate: a stranger's key may be one that takes seconds.

    Raises:
        TransportError: 28038, it is not its signature.
    """
    try:
        certificate = x509.load_der_x509_certificate((accepting if accepts else connecting).certificate)
        key, signed = certificate.public_key(), _signed(connecting, accepting, accepts=accepts)
        if isinstance(key, rsa.RSAPublicKey):
            key.verify(signature, signed, _PSS, hashes.SHA256())
        elif isinstance(key, ec.EllipticCurvePublicKey):
            key.verify(signature, signed, ec.ECDSA(hashes.SHA256()))
        elif isinstance(key, (ed25519.Ed25519PublicKey, ed448.Ed448PublicKey)):
            key.verify(signature, signed)
        else:
            raise TransportError(faults.NOT_VERIFIED, "The peer's certificate has a key that can't sign.")
    except (InvalidSignature, ValueError):
        raise TransportError(
            faults.NOT_VERIFIED, "The peer did not prove that it has its certificate's key."
        ) from None


def _signed(connecting: Challenge, accepting: Challenge, *, accepts: bool) -> bytes:
    parts = [_PURPOSE, b"accepting\0" if accepts else b"connecting\0"]
    for side in (connecting, accepting):
        digest = hashlib.sha256(side.certificate).digest()
        parts += (side.encryption.encode(), b"\0", side.nonce, digest)
    return b"".join(parts)
