"""The certificates of one database, as dialogs use them: whose each is, and which one to take."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import Encoding

from pybroker.workers.transport import statements
from pybroker.workers.transport.connection.certificate_check import validity_fault
from pybroker.workers.transport.dialog_security.key_files import public_key_of, weakness_of
from pybroker.workers.transport.protocol import faults
from pybroker.workers.transport.protocol.faults import TransportError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime
    from typing import Any

    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from psycopg import AsyncConnection
    from structlog.typing import FilteringBoundLogger

    from pybroker.workers.clock import Clock
    from pybroker.workers.transport.dialog_security.key_store import KeyStore
    from pybroker.workers.transport.protocol.rows import KnownCertificate

REFRESH_SECONDS: Final = 2.0

logger: FilteringBoundLogger = structlog.get_logger()


@dataclass(frozen=True)
class DialogCertificate:
    """A certificate, and whom it stands for.

    Attributes:
        name: Its name in the database.
        user_name: Whom it stands for there.
        digest: The SHA-256 of its DER form.
        spki: Its public key as DER, by which a key store finds the private one.
        public_key: The same; None if it is of a kind, or a length, that dialogs can't use.
        is_active: Whether a new dialog may be secured with it.
    """

    name: str
    user_name: str
    certificate: x509.Certificate
    digest: bytes
    spki: bytes
    public_key: RSAPublicKey | None
    is_active: bool

    def fault(self, now: datetime) -> TransportError | None:
        """Say why it can't be used at this moment, if so."""
        if self.public_key is None:
            return TransportError(
                faults.BAD_KEY,
                f'The certificate "{self.name}" has no RSA key of at least 2048 bits.',
            )
        return validity_fault(self.certificate, f'The certificate "{self.name}"', now)


class DialogCertificates:
    """What one database knows, looked at again every few seconds while it is needed."""

    def __init__(self, clock: Clock) -> None:
        """Prepare, without reading.

        Args:
            clock: says when to look again, and what is valid.
        """
        self._clock = clock
        self._due = float("-inf")
        self._rows: list[KnownCertificate] = []
        self._certificates: list[DialogCertificate] = []
        self._by_digest: dict[bytes, DialogCertificate] = {}

    async def refresh(self, connection: AsyncConnection[Any]) -> None:
        """Read the database's certificates, unless that was done a moment ago."""
        if self._clock.monotonic() < self._due:
            return
        self.renew(await statements.certificates(connection))
        self._due = self._clock.monotonic() + REFRESH_SECONDS

    def renew(self, rows: Iterable[KnownCertificate]) -> None:
        """Take these for what the database knows."""
        wanted = sorted(rows, key=lambda row: row.name)
        if wanted == self._rows:
            return
        self._rows = wanted
        self._certificates = [parsed for row in wanted if (parsed := _parsed(row)) is not None]
        self._by_digest = {certificate.digest: certificate for certificate in self._certificates}

    def with_digest(self, digest: bytes) -> DialogCertificate | None:
        """Return the certificate with this SHA-256, valid or not."""
        return self._by_digest.get(digest)

    def far(self, user_name: str, *, is_new: bool = True) -> DialogCertificate:
        """Return the certificate of a far user: valid, active if the dialog is new, the last to expire.

        Raises:
            TransportError: 9730, he has none; 9767, 28024, 28025 or 9733, none that can be used.
        """
        return _latest(self._of(user_name), self._clock.now(), f'The user "{user_name}"', is_new=is_new)

    def own(
        self, user_name: str, key_store: KeyStore, *, is_new: bool = True
    ) -> tuple[DialogCertificate, RSAPrivateKey]:
        """Return a user's certificate and its private key, chosen as by `far`.

        Raises:
            TransportError: 9730, he has none; 9731, no private key of his is here; 9767, 28024, 28025 or
                9733, none that can be used.
        """
        who = f'The owner of the service, "{user_name}",'
        owned = self._of(user_name)
        with_key = [certificate for certificate in owned if key_store.private_key(certificate.spki)]
        if owned and not with_key:
            raise TransportError(
                faults.NO_DIALOG_KEY,
                f"{who} has a certificate whose private key is not in the worker's key directory.",
            )
        chosen = _latest(with_key, self._clock.now(), who, is_new=is_new)
        key = key_store.private_key(chosen.spki)
        if key is None:
            raise AssertionError("chosen by its private key")
        return chosen, key

    def _of(self, user_name: str) -> list[DialogCertificate]:
        return [certificate for certificate in self._certificates if certificate.user_name == user_name]


def _latest(
    certificates: list[DialogCertificate], now: datetime, who: str, *, is_new: bool
) -> DialogCertificate:
    if not certificates:
        raise TransportError(faults.NO_DIALOG_CERTIFICATE, f"{who} has no certificate in this database.")
    if is_new:
        certificates = [certificate for certificate in certificates if certificate.is_active]
        if not certificates:
            raise TransportError(
                faults.NOT_FOR_NEW_DIALOGS,
                f"{who} has no certificate that is active for new dialogs:"
                " broker.alter_certificate(name, active_for_begin_dialog => true).",
            )
    # If none is valid, the latest says why.
    ranked = sorted(certificates, key=lambda c: c.certificate.not_valid_after_utc, reverse=True)
    usable = [certificate for certificate in ranked if certificate.fault(now) is None]
    if usable:
        return usable[0]
    raise ranked[0].fault(now) or AssertionError("usable after all")


def _parsed(row: KnownCertificate) -> DialogCertificate | None:
    try:
        certificate = x509.load_pem_x509_certificate(row.certificate_pem.encode())
        key = certificate.public_key()
    except ValueError:
        # One damaged row must not stop all other users' dialogs.
        logger.warning("certificate_ignored", certificate=row.name, reason="not valid PEM")
        return None
    usable = key if isinstance(key, RSAPublicKey) and weakness_of(key) is None else None
    digest = hashlib.sha256(certificate.public_bytes(Encoding.DER)).digest()
    return DialogCertificate(
        row.name,
        row.user_name,
        certificate,
        digest,
        public_key_of(key),
        usable,
        row.is_active_for_begin_dialog,
    )
