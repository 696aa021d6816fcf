"""Private keys as SQL Server backs them up (PVK): a header, a salt, and an RSA key, perhaps encrypted."""

from __future__ import annotations

import hashlib
import struct

from cryptography.hazmat.primitives.asymmetric import rsa

_MAGIC = 0xB0B5F11E
_HEADER = struct.Struct("<6I")
# What stands before a key is the kind of the blob; it is never encrypted.
_KIND_BYTES = 8
_RSA = struct.Struct("<4sII")
_MOST_BITS = 16384


def is_one(content: bytes) -> bool:
    """Return whether a file is of this kind."""
    return content[:4] == struct.pack("<I", _MAGIC)


def load(content: bytes, password: str | None) -> rsa.RSAPrivateKey:
    """Return the key.

    Raises:
        ValueError: it is no such key, or has another password.
    """
    if len(content) < _HEADER.size:
        raise ValueError("cut off")
    _, _, _, is_encrypted, salt_bytes, _ = _HEADER.unpack_from(content)
    salt = content[_HEADER.size : _HEADER.size + salt_bytes]
    blob = content[_HEADER.size + salt_bytes :]
    body = blob[_KIND_BYTES:]
    if not is_encrypted:
        return _key(body)
    if password is None:
        raise ValueError("it has a password")
    digest = hashlib.sha1(salt + password.encode("utf-8"), usedforsecurity=False).digest()
    # The whole digest, or 40 bits of it with zeros behind, as exported long ago.
    for key in (digest[:16], digest[:5] + bytes(11)):
        plain = _rc4(key, body)
        if plain[:4] == b"RSA2":
            return _key(plain)
    raise ValueError("another password")


def _key(body: bytes) -> rsa.RSAPrivateKey:
    if len(body) < _RSA.size:
        raise ValueError("cut off")
    magic, bits, exponent = _RSA.unpack_from(body)
    if magic != b"RSA2" or bits % 16 or not 0 < bits <= _MOST_BITS:
        raise ValueError("no RSA key")
    whole, half = bits // 8, bits // 16
    numbers, at = [], _RSA.size
    for size in (whole, half, half, half, half, half, whole):
        numbers.append(int.from_bytes(body[at : at + size], "little"))
        at += size
    if len(body) < at:
        raise ValueError("cut off")
    modulus, p, q, dmp1, dmq1, iqmp, d = numbers
    public = rsa.RSAPublicNumbers(exponent, modulus)
    return rsa.RSAPrivateNumbers(p, q, d, dmp1, dmq1, iqmp, public).private_key()


def _rc4(key: bytes, content: bytes) -> bytes:
    """Decrypt as these files are encrypted; nothing is ever encrypted so here."""
    state = list(range(256))
    j = 0
    for i in range(256):
        j = (j + state[i] + key[i % len(key)]) % 256
        state[i], state[j] = state[j], state[i]
    i = j = 0
    plain = bytearray()
    for byte in content:
        i = (i + 1) % 256
        j = (j + state[i]) % 256
        state[i], state[j] = state[j], state[i]
        plain.append(byte ^ state[(state[i] + state[j]) % 256])
    return bytes(plain)
