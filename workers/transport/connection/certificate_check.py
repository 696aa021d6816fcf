"""Who may talk to whom: TLS contexts and known peers from the certificates of the home database.

Certificates are self-signed and exchanged, so each known one is a trust anchor of its own; there is no
authority, and no host name in them that could be checked. Private keys stay in files.
"""

from __future__ import annotations

import hashlib
import os
import ssl
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Thread
from typing import TYPE_CHECKING

import structlog
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding

from pybroker.workers.clock import Clock
from pybroker.workers.transport.dialog_security.key_files import (
    private_key_path,
    public_key_of,
    read_private_key,
    weakness_of,
)
from pybroker.workers.transport.protocol import faults
from pybroker.workers.transport.protocol.faults import TransportError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime
    from pathlib import Path

    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
    from structlog.typing import FilteringBoundLogger

    from pybroker.workers.transport.protocol.rows import Endpoint, KnownCertificate


logger: FilteringBoundLogger = structlog.get_logger()

_X509_NOT_YET_VALID = 9
_X509_EXPIRED = 10
_X509_UNKNOWN = frozenset({18, 19, 20, 21})


@dataclass(frozen=True)
class KnownPeer:
    """Whom a certificate stands for, and whether he has CONNECT on the endpoint."""

    user_name: str
    certificate_name: str
    may_connect: bool


@dataclass(frozen=True)
class Credentials:
    """All that a handshake needs, made from one reading of the home database.

    Attributes:
        endpoint: The endpoint that it was made for.
        certificate: The endpoint's own certificate.
        peers: Who is known, by the SHA-256 of his certificate as DER.
        key: The private key of the certificate.
        now: The worker's clock.
    """

    endpoint: Endpoint
    certificate: x509.Certificate
    client_context: ssl.SSLContext
    server_context: ssl.SSLContext
    peers: Mapping[bytes, KnownPeer]
    # No log may print it.
    key: PrivateKeyTypes = field(repr=False)
    now: Callable[[], datetime] = field(default=Clock().now, compare=False)

    def admit(self, certificate: bytes) -> KnownPeer:
        """Return whose certificate (as DER) this is.

        Raises:
            TransportError: 28045, nobody's, or 28034, its user lacks CONNECT on the endpoint; 28024, it is
                not yet valid, or 28025, it has expired; 9666, the endpoint is disabled.
        """
        peer = self.peers.get(hashlib.sha256(certificate).digest())
        if peer is None:
            raise TransportError(
                faults.UNKNOWN_CERTIFICATE,
                f"The certificate {fingerprint(certificate)} is not known at the endpoint.",
            )
        known = x509.load_der_x509_certificate(certificate)
        # By the worker's clock: TLS has looked at the system's.
        fault = validity_fault(known, "The peer's certificate", self.now())
        if fault is not None:
            raise fault
        if not peer.may_connect:
            raise TransportError(
                faults.NO_CONNECT_PERMISSION,
                f'"{peer.user_name}" has no CONNECT permission on the endpoint "{self.endpoint.name}".',
            )
        if self.endpoint.state == "DISABLED":
            raise TransportError(faults.ENDPOINT_STOPPED, f'The endpoint "{self.endpoint.name}" is disabled.')
        return peer

    def check_own_validity(self) -> None:
        """Refuse to use a certificate that every peer would refuse.

        Raises:
            TransportError: 28024, it is not yet valid, or 28025, it has expired.
        """
        what = f'The certificate "{self.endpoint.certificate_name}"'
        fault = validity_fault(self.certificate, what, self.now())
        if fault is not None:
            raise fault


def fingerprint(certificate: bytes) -> str:
    """Return the SHA-256 of a certificate (as DER) in hexadecimal."""
    return hashlib.sha256(certificate).hexdigest()


def validity_fault(certificate: x509.Certificate, what: str, now: datetime) -> TransportError | None:
    """Say that a certificate is not valid at this moment, if so."""
    if now < certificate.not_valid_before_utc:
        return TransportError(
            faults.NOT_YET_VALID,
            f"{what} is not valid before {certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC.",
        )
    if now > certificate.not_valid_after_utc:
        return TransportError(
            faults.EXPIRED, f"{what} expired at {certificate.not_valid_after_utc:%Y-%m-%d %H:%M} UTC."
        )
    return None


def load_credentials(
    endpoint: Endpoint | None,
    certificates: Sequence[KnownCertificate],
    key_directory: Path | None,
    now: Callable[[], datetime] | None = None,
) -> Credentials:
    """Make contexts for both directions.

    `now` is the worker's clock, by which certificates are valid.

    Raises:
        TransportError: 9748 or 9666, there is no endpoint or it is stopped; 28036, it names no usable
            certificate; 28037, the private key is missing, readable by others, or another certificate's.
    """
    if endpoint is None:
        raise TransportError(
            faults.NO_ENDPOINT,
            "The transport is not available: the home database of this worker has no endpoint.",
        )
    if endpoint.state == "STOPPED":
        raise TransportError(faults.ENDPOINT_STOPPED, f'The endpoint "{endpoint.name}" is stopped.')
    certificate = _own_certificate(endpoint)
    key_path, key = _checked_key(endpoint, certificate, key_directory)
    peers, anchors = _known(certificates)
    contexts = []
    for side in (ssl.PROTOCOL_TLS_CLIENT, ssl.PROTOCOL_TLS_SERVER):
        context = ssl.SSLContext(side)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        # A connection is known by its certificate alone; names and addresses may change.
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
        # A resumed session would skip the look at the certificate.
        context.options |= ssl.OP_NO_TICKET
        if anchors:
            context.load_verify_locations(cadata=anchors)
        _load_own(context, certificate, key_path)
        contexts.append(context)
    contexts[1].num_tickets = 0
    return Credentials(endpoint, certificate, contexts[0], contexts[1], peers, key, now or Clock().now)


def verification_fault(error: ssl.SSLCertVerificationError) -> TransportError:
    """Turn the refusal of a peer's certificate, by this side, into its number."""
    if error.verify_code == _X509_NOT_YET_VALID:
        return TransportError(faults.NOT_YET_VALID, "The peer's certificate is not yet valid.")
    if error.verify_code == _X509_EXPIRED:
        return TransportError(faults.EXPIRED, "The peer's certificate has expired.")
    if error.verify_code in _X509_UNKNOWN:
        return TransportError(faults.UNKNOWN_CERTIFICATE, "The peer's certificate is not known here.")
    return TransportError(
        faults.NOT_VERIFIED, f"The peer's certificate was not accepted: {error.verify_message}."
    )


def alert_fault(error: ssl.SSLError, credentials: Credentials) -> TransportError:
    """Turn the refusal of our certificate, by the peer's alert, into its number."""
    reason = error.reason or ""
    if reason.endswith("ALERT_CERTIFICATE_EXPIRED"):
        return TransportError(
            faults.EXPIRED, "The far endpoint refused this endpoint's certificate, as it has expired."
        )
    if reason.endswith("ALERT_UNKNOWN_CA"):
        return TransportError(
            faults.UNKNOWN_CERTIFICATE, "The far endpoint does not know this endpoint's certificate."
        )
    # TLS has no alert for a certificate from the future: it is called a bad one.
    if reason.endswith("ALERT_BAD_CERTIFICATE"):
        own = validity_fault(
            credentials.certificate,
            "This endpoint's certificate, refused by the far endpoint,",
            credentials.now(),
        )
        return own or TransportError(
            faults.NOT_VERIFIED, "The far endpoint did not accept this endpoint's certificate."
        )
    return TransportError(faults.NOT_VERIFIED, f"The TLS handshake failed: {reason or 'no reason given'}.")


def _own_certificate(endpoint: Endpoint) -> x509.Certificate:
    if endpoint.certificate_name is None or endpoint.certificate_pem is None:
        raise TransportError(faults.NO_CERTIFICATE, f'The endpoint "{endpoint.name}" names no certificate.')
    try:
        certificate = x509.load_pem_x509_certificate(endpoint.certificate_pem.encode())
        weakness = weakness_of(certificate.public_key())
    except (ValueError, UnsupportedAlgorithm) as error:
        raise TransportError(
            faults.NO_CERTIFICATE, f'The certificate "{endpoint.certificate_name}" is not valid PEM.'
        ) from error
    if weakness is not None:
        raise TransportError(
            faults.NO_CERTIFICATE,
            f'The certificate "{endpoint.certificate_name}" can\'t be trusted: {weakness}.'
            " Make another one with pybroker certificate create.",
        )
    return certificate


def _checked_key(
    endpoint: Endpoint, certificate: x509.Certificate, key_directory: Path | None
) -> tuple[Path, PrivateKeyTypes]:
    name = endpoint.certificate_name
    if key_directory is None or name is None:
        raise TransportError(
            faults.NO_PRIVATE_KEY,
            f'The private key of "{name}" is out of reach: start the worker with --key-directory.',
        )
    path = private_key_path(key_directory, name)
    key = read_private_key(path)
    if public_key_of(key.public_key()) != public_key_of(certificate.public_key()):
        raise TransportError(
            faults.NO_PRIVATE_KEY, f'The key file {path} is not that of the certificate "{name}".'
        )
    return path, key


def _known(certificates: Sequence[KnownCertificate]) -> tuple[dict[bytes, KnownPeer], bytes]:
    peers: dict[bytes, KnownPeer] = {}
    anchors: dict[bytes, bytes] = {}
    for known in certificates:
        try:
            certificate = x509.load_pem_x509_certificate(known.certificate_pem.encode())
            weakness = weakness_of(certificate.public_key())
        except (ValueError, UnsupportedAlgorithm):
            # One damaged row must not shut out all other peers.
            logger.warning("certificate_ignored", certificate=known.name, reason="not valid PEM")
            continue
        if weakness is not None:
            logger.warning("certificate_ignored", certificate=known.name, reason=weakness)
            continue
        encoded = certificate.public_bytes(Encoding.DER)
        digest = hashlib.sha256(encoded).digest()
        anchors[digest] = encoded
        if digest not in peers or known.may_connect:
            peers[digest] = KnownPeer(known.user_name, known.name, known.may_connect)
    return peers, b"".join(anchors.values())


def _load_own(context: ssl.SSLContext, certificate: x509.Certificate, key_path: Path) -> None:
    # Python's ssl reads certificates of its own side from files only. A pipe needs no room on a disk.
    # It may hold less than the certificate has, so a thread fills it. The key is read where it is.
    reading, writing = os.pipe()
    filling = Thread(target=_fill, args=(writing, certificate.public_bytes(Encoding.PEM)), daemon=True)
    filling.start()
    try:
        context.load_cert_chain(f"/dev/fd/{reading}", key_path)
    except (ssl.SSLError, OSError):
        raise TransportError(
            faults.NO_PRIVATE_KEY, f"OpenSSL does not accept the key file {key_path} and its certificate."
        ) from None
    finally:
        os.close(reading)


def _fill(pipe: int, content: bytes) -> None:
    # OpenSSL reads no further than to what it does not accept.
    with suppress(BrokenPipeError), os.fdopen(pipe, "wb", buffering=0) as file:
        file.write(content)
