"""Keys and certificates as files: made for a worker, and read for a database."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from pybroker.commands.telling import say

if TYPE_CHECKING:
    from cryptography import x509

DAYS = 365
_COMMON_NAME_CHARACTERS = 64

KeyDirectory = Annotated[
    Path,
    typer.Option(
        "--key-directory",
        envvar="PYBROKER_KEY_DIRECTORY",
        metavar="DIRECTORY",
        file_okay=False,
        help="Where the worker's private keys are.",
    ),
]


def create_files(name: str, key_directory: Path, days: int = DAYS) -> x509.Certificate:
    """Make a key with its certificate, and the master key if the directory has none; return the certificate.

    Raises:
        typer.BadParameter: The name is none for a certificate.
        typer.Exit: A file exists, or cannot be written; it was said.
    """
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    from pybroker.workers.self_signed import BACKDATED, KEY_BITS, common_name, self_signed
    from pybroker.workers.transport.dialog_security.key_files import (
        MASTER_KEY,
        certificate_path,
        make_master_key,
        master_key_path,
        private_key_path,
        write_new,
    )

    if not 1 <= len(name) <= _COMMON_NAME_CHARACTERS:
        raise typer.BadParameter(f"a certificate's name has 1 to {_COMMON_NAME_CHARACTERS} characters")
    if name.startswith(MASTER_KEY):
        raise typer.BadParameter(f"names that begin with {MASTER_KEY} are those of master keys")
    key_path, pem_path = private_key_path(key_directory, name), certificate_path(key_directory, name)
    # Looked at first, so that a second call leaves no key without its certificate.
    for path in (key_path, pem_path):
        if path.exists():
            fail(f"{path} exists; choose another name, or move the file away")
    key = rsa.generate_private_key(public_exponent=65537, key_size=KEY_BITS)
    now = datetime.now(UTC)
    made = self_signed(key, common_name(name), now - BACKDATED, now + timedelta(days=days))
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    try:
        make_key_directory(key_directory)
        write_new(key_path, private, 0o600)
        write_new(pem_path, made.public_bytes(Encoding.PEM), 0o644)
        if not master_key_path(key_directory).exists():
            make_master_key(key_directory)
    except OSError as error:
        fail(f"cannot write {error.filename}: {error.strerror}")
    return made


def read_certificate(file: Path) -> tuple[x509.Certificate, str]:
    """Return the certificate in a file, and it alone in PEM; exit with a word if there is none."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding

    try:
        read = x509.load_pem_x509_certificate(file.read_bytes())
    except OSError as error:
        fail(f"cannot read {file}: {error.strerror}")
    except ValueError:
        fail(f"{file} holds no certificate in PEM")
    refuse_weak(read, str(file))
    # Encoded anew: a file may hold more than the certificate, a private key included.
    return read, read.public_bytes(Encoding.PEM).decode()


def refuse_weak(certificate: x509.Certificate, where: str) -> None:
    """Exit with a word if whoever breaks the certificate's key could speak in its name."""
    from cryptography.exceptions import UnsupportedAlgorithm

    from pybroker.workers.transport.dialog_security.key_files import weakness_of

    try:
        weakness = weakness_of(certificate.public_key())
    except (ValueError, UnsupportedAlgorithm):
        weakness = "its key is of an unknown kind"
    if weakness is not None:
        fail(f"the certificate in {where} can't be trusted: {weakness}; have another one made")


def make_key_directory(key_directory: Path) -> None:
    """Make the directory if it is missing; exit with a word if others may write it.

    Raises:
        OSError: It can't be made.
    """
    from pybroker.workers.transport.dialog_security.key_files import check_key_directory
    from pybroker.workers.transport.protocol.faults import TransportError

    key_directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        check_key_directory(key_directory)
    except TransportError as fault:
        fail(fault.text)


def thumbprint_of(certificate: x509.Certificate) -> bytes:
    """Return what broker.certificates shows of it."""
    from cryptography.hazmat.primitives import hashes

    return certificate.fingerprint(hashes.SHA256())


def fail(reason: str) -> NoReturn:
    """Say why the command can't be done, and exit with 1."""
    say(f"pybroker certificate: {reason}", err=True)
    raise typer.Exit(1)
