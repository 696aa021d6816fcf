"""Certificates that vouch for themselves alone."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    from datetime import datetime

    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

# RSA, as in Service Broker: such a key can also wrap the session keys of dialogs, an elliptic curve's can't.
# 3072 bits are held equal to 128 bits of AES, and a handshake is rare enough not to notice them.
KEY_BITS = 3072
# A clock of a peer that is a little behind must not find the certificate not yet valid.
BACKDATED = timedelta(minutes=5)


def common_name(name: str) -> x509.Name:
    """Return the subject that is called so."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def self_signed(key: RSAPrivateKey, subject: x509.Name, begin: datetime, end: datetime) -> x509.Certificate:
    """Return a certificate for a key, valid from one moment to another."""
    public = key.public_key()
    usage = x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=True,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(end)
        # Trusted as itself, it must never vouch for another.
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
            critical=False,
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(public), critical=False)
        .sign(key, hashes.SHA256())
    )
