"""The files of a key directory: private keys, and the master key of dialogs."""

from __future__ import annotations

import base64
import binascii
import errno
import hashlib
import os
import secrets
import shlex
import stat
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from pybroker.workers.transport.protocol import faults
from pybroker.workers.transport.protocol.faults import TransportError

if TYPE_CHECKING:
    from pathlib import Path

    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes, PublicKeyTypes

KEY_SUFFIX: Final = ".key"
MASTER_KEY: Final = "dialog-master"

_MASTER_KEY_BYTES: Final = 32
_LEAST_RSA_BITS: Final = 2048
_LEAST_CURVE_BITS: Final = 256
_MASTER_KEY_ID_BYTES: Final = 8


@dataclass(frozen=True)
class MasterKey:
    """What session keys of dialogs are derived from; Service Broker's database master key.

    Attributes:
        id: The first 8 bytes of the key's SHA-256.
        key: 32 random bytes.
    """

    id: bytes
    # No log may print it.
    key: bytes = field(repr=False)

    @classmethod
    def of(cls, key: bytes) -> MasterKey:
        """Return the master key with its id."""
        return cls(hashlib.sha256(key).digest()[:_MASTER_KEY_ID_BYTES], key)


def private_key_path(key_directory: Path, certificate_name: str) -> Path:
    """Return where the private key of a certificate is kept."""
    return key_directory / f"{quote(certificate_name, safe='')}{KEY_SUFFIX}"


def certificate_path(key_directory: Path, certificate_name: str) -> Path:
    """Return where `pybroker certificate create` puts a certificate, beside its key."""
    return key_directory / f"{quote(certificate_name, safe='')}.pem"


def master_key_path(key_directory: Path) -> Path:
    """Return where the master key that is used for sealing is kept."""
    return key_directory / f"{MASTER_KEY}{KEY_SUFFIX}"


def is_master_key(file_name: str) -> bool:
    """Return whether a file of a key directory is a master key, of now or of before."""
    return file_name == f"{MASTER_KEY}{KEY_SUFFIX}" or (
        file_name.startswith(f"{MASTER_KEY}-") and file_name.endswith(KEY_SUFFIX)
    )


def weakness_of(key: PublicKeyTypes) -> str | None:
    """Say why a certificate's key proves nothing, as it can be broken or can't sign; None for a good one."""
    if isinstance(key, RSAPublicKey):
        return _shortness("RSA", key.key_size, _LEAST_RSA_BITS)
    if isinstance(key, EllipticCurvePublicKey):
        return _shortness("elliptic curve", key.key_size, _LEAST_CURVE_BITS)
    if isinstance(key, (Ed25519PublicKey, Ed448PublicKey)):
        return None
    return "its key is neither RSA nor of an elliptic curve"


def check_key_directory(key_directory: Path) -> None:
    """Refuse a key directory that somebody else can write: who can may take keys away, or put others there.

    A mount that is read-only can be written by nobody, whatever its mode says: so Kubernetes mounts secrets.
    Root's worker takes a directory that an account gave it: the key files must be root's own, and no links.

    Raises:
        TransportError: 28037, it can be written by others, belongs to somebody else, or can't be read.
    """
    try:
        status = key_directory.stat()
        is_read_only = os.statvfs(key_directory).f_flag & os.ST_RDONLY
    except OSError as error:
        raise TransportError(
            faults.NO_PRIVATE_KEY, f"The key directory {key_directory} cannot be read: {error.strerror}."
        ) from error
    if status.st_mode & 0o022 and not is_read_only:
        raise TransportError(
            faults.NO_PRIVATE_KEY,
            f"The key directory {key_directory} can be written by others than its owner."
            f" Run: chmod go-w {shlex.quote(str(key_directory))}",
        )
    if os.geteuid() not in (0, status.st_uid) and status.st_uid != 0 and not is_read_only:
        raise TransportError(
            faults.NO_PRIVATE_KEY,
            f"The key directory {key_directory} belongs to another user than the worker's or root.",
        )


def public_key_of(key: PublicKeyTypes) -> bytes:
    """Return the bytes by which a private key and its certificate are known to belong together."""
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def read_private_key(path: Path) -> PrivateKeyTypes:
    """Return a private key.

    Raises:
        TransportError: 28037, the file is missing, readable by others, or holds no such key.
    """
    try:
        return load_pem_private_key(_read(path), password=None)
    except (ValueError, TypeError):
        # Without the cause: a parser's message may quote what it could not parse.
        raise TransportError(
            faults.NO_PRIVATE_KEY, f"The key file {path} holds no private key in PEM without a password."
        ) from None


def read_master_key(path: Path) -> MasterKey:
    """Return a master key.

    Raises:
        TransportError: 28037, the file is missing, readable by others, or holds no such key.
    """
    try:
        key = base64.b64decode(_read(path).strip(), validate=True)
    except binascii.Error:
        key = b""
    if len(key) != _MASTER_KEY_BYTES:
        raise TransportError(
            faults.NO_PRIVATE_KEY, f"The key file {path} does not hold {_MASTER_KEY_BYTES} bytes in base64."
        )
    return MasterKey.of(key)


def make_master_key(key_directory: Path) -> MasterKey:
    """Make a master key where there is none.

    Raises:
        FileExistsError: There is one.
        OSError: It can't be written.
    """
    made = MasterKey.of(secrets.token_bytes(_MASTER_KEY_BYTES))
    write_new(master_key_path(key_directory), _encoded(made), 0o600)
    return made


def rotate_master_key(key_directory: Path) -> tuple[MasterKey, Path]:
    """Put a new master key in the place of the old one; return it, and where the old one is kept.

    At no moment is there none: what is sealed with the old one can always be opened.

    Raises:
        TransportError: 28037, there is none that could be used.
        OSError: A file can't be written.
    """
    path = master_key_path(key_directory)
    old = read_master_key(path)
    kept = key_directory / f"{MASTER_KEY}-{old.id.hex()}{KEY_SUFFIX}"
    if not kept.exists():
        write_new(kept, _encoded(old), 0o600)
    made = MasterKey.of(secrets.token_bytes(_MASTER_KEY_BYTES))
    beside = key_directory / f"{MASTER_KEY}.new"
    beside.unlink(missing_ok=True)
    write_new(beside, _encoded(made), 0o600)
    beside.replace(path)
    return made, kept


def write_new(path: Path, content: bytes, mode: int) -> None:
    """Write a file that is not there yet.

    Raises:
        FileExistsError: It is there.
        OSError: It can't be written.
    """
    # The mode from the first moment on, and no file of anybody else's, not even through a link.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(descriptor)


def _shortness(kind: str, bits: int, least: int) -> str | None:
    return f"its {kind} key has {bits} bits, of {least} at least" if bits < least else None


def _encoded(master_key: MasterKey) -> bytes:
    return base64.b64encode(master_key.key) + b"\n"


def _read(path: Path) -> bytes:
    check_key_directory(path.parent)
    # What an account gives to root's worker may hold links to files that only root can read.
    is_lent = os.geteuid() == 0 and path.parent.stat().st_uid != 0
    flags = os.O_NONBLOCK | (os.O_NOFOLLOW if is_lent else 0)
    try:
        # The open file is asked, not its name: between two looks at a name its file can be another one.
        with open(path, "rb", opener=lambda name, mode: os.open(name, mode | flags)) as file:
            status = os.fstat(file.fileno())
            # PostgreSQL's own rule for its server key: the group may read it where root owns it.
            forbidden = 0o037 if status.st_uid == 0 else 0o077
            if not stat.S_ISREG(status.st_mode) or status.st_mode & forbidden:
                raise TransportError(
                    faults.NO_PRIVATE_KEY,
                    f"The key file {path} can be read by others: make its mode 0600"
                    f" (0640 where root owns it). Run: chmod 600 {shlex.quote(str(path))}",
                )
            if status.st_uid not in (0, os.geteuid()):
                raise TransportError(
                    faults.NO_PRIVATE_KEY,
                    f"The key file {path} belongs to another user than the worker's or root.",
                )
            if is_lent and status.st_nlink > 1:
                raise _link(path)
            return file.read()
    except OSError as error:
        if is_lent and error.errno == errno.ELOOP:
            raise _link(path) from error
        raise TransportError(
            faults.NO_PRIVATE_KEY, f"The key file {path} cannot be read: {error.strerror}."
        ) from error


def _link(path: Path) -> TransportError:
    return TransportError(
        faults.NO_PRIVATE_KEY,
        f"The key file {path} is a link, in a directory that is not root's."
        " Put the file itself there, or give the worker a directory that root owns.",
    )
