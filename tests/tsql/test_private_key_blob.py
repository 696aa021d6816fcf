"""A private key that SQL Server has backed up is read with its password, and with no other."""

from __future__ import annotations

import hashlib
import struct

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from hypothesis import given
from hypothesis import strategies as st

from pybroker.tsql import private_key_blob

MAGIC = 0xB0B5F11E
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def backed_up(password: str | None, *, key_bytes: int = 16) -> bytes:
    """Return a PVK file, from what its format says: made here apart from what reads it."""
    numbers = KEY.private_numbers()
    whole, half = KEY.key_size // 8, KEY.key_size // 16
    parts = [(numbers.public_numbers.n, whole), *((n, half) for n in (numbers.p, numbers.q))]
    parts += [(n, half) for n in (numbers.dmp1, numbers.dmq1, numbers.iqmp)]
    parts += [(numbers.d, whole)]
    body = b"RSA2" + struct.pack("<II", KEY.key_size, numbers.public_numbers.e)
    body += b"".join(number.to_bytes(size, "little") for number, size in parts)
    kind = bytes([7, 2, 0, 0, 0, 0xA4, 0, 0])
    if password is None:
        return struct.pack("<6I", MAGIC, 0, 1, 0, 0, len(kind + body)) + kind + body
    salt = bytes(range(16))
    digest = hashlib.sha1(salt + password.encode()).digest()
    body = rc4(digest[:key_bytes] + bytes(16 - key_bytes), body)
    return struct.pack("<6I", MAGIC, 0, 1, 1, 16, len(kind + body)) + salt + kind + body


def rc4(key: bytes, content: bytes) -> bytes:
    box = list(range(256))
    at = 0
    for index in range(256):
        at = (at + box[index] + key[index % len(key)]) & 255
        box[index], box[at] = box[at], box[index]
    out, index, at = bytearray(), 0, 0
    for byte in content:
        index = (index + 1) & 255
        at = (at + box[index]) & 255
        box[index], box[at] = box[at], box[index]
        out.append(byte ^ box[(box[index] + box[at]) & 255])
    return bytes(out)


def test_the_cipher_is_the_published_one() -> None:
    assert rc4(b"Key", b"Plaintext").hex() == "bbf316e8d940af0ad3"


@pytest.mark.parametrize(("password", "key_bytes"), [(None, 16), ("secret", 16), ("secret", 5)])
def test_a_key_is_read_with_its_password(password: str | None, key_bytes: int) -> None:
    content = backed_up(password, key_bytes=key_bytes)
    assert private_key_blob.is_one(content)
    assert private_key_blob.load(content, password).private_numbers() == KEY.private_numbers()


@pytest.mark.parametrize("password", [None, "wrong", ""])
def test_another_password_opens_nothing(password: str | None) -> None:
    with pytest.raises(ValueError, match="password"):
        private_key_blob.load(backed_up("secret"), password)


@given(st.data())
def test_a_damaged_file_is_refused_and_nothing_else_happens(data: st.DataObject) -> None:
    content = bytearray(backed_up(None))
    cut = data.draw(st.integers(4, len(content) - 1))
    with pytest.raises(ValueError):  # noqa: PT011 - any of its reasons
        private_key_blob.load(bytes(content[:cut]), None)
