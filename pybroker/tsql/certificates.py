"""CREATE and BACKUP CERTIFICATE: private keys are files of the worker's key directory."""

from __future__ import annotations

import binascii
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_der_private_key,
    load_pem_private_key,
)

from pybroker.tsql import private_key_blob
from pybroker.tsql.session import StatementError
from pybroker.tsql.translation import principal
from pybroker.workers.self_signed import BACKDATED, KEY_BITS, common_name, self_signed
from pybroker.workers.transport.dialog_security.key_files import (
    check_key_directory,
    make_master_key,
    master_key_path,
    private_key_path,
    public_key_of,
    read_private_key,
    write_new,
)
from pybroker.workers.transport.protocol.faults import TransportError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

    from pybroker.tsql.administration import tree
    from pybroker.tsql.session import Session

_ONE_YEAR = timedelta(days=365)
_DATES = ("%Y-%m-%d", "%Y%m%d", "%m/%d/%Y", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%m/%d/%Y %H:%M:%S")
_COMMON_NAME_CHARACTERS = 64
_EXISTS, _NO_FILE, _BAD_FILE, _BAD_DATE = 15234, 15208, 15297, 241


class Certificates:
    """Where keys and files are.

    Args:
        key_directory: of the worker, for private keys; None if nobody said.
        paths: from a directory as scripts write it to the one here.
    """

    def __init__(self, key_directory: Path | None, paths: Mapping[str, Path]) -> None:
        self._keys = key_directory
        self._paths = sorted(
            ((_plain(theirs).rstrip("/"), ours) for theirs, ours in paths.items()),
            key=lambda pair: -len(pair[0]),
        )

    def make_master_key(self, session: Session) -> None:
        """CREATE MASTER KEY: all databases of a worker have one."""
        directory = self._key_directory()
        if master_key_path(directory).exists():
            session.console.note("the key directory has its master key already, and it is used as it is")
            return
        with _file_errors():
            make_master_key(directory)

    def create(self, session: Session, one: tree.Certificate) -> None:
        """CREATE CERTIFICATE: from a file, from bytes, or made with a key of its own."""
        certificate, key = self._given(one)
        pem = certificate.public_bytes(Encoding.PEM).decode()
        connection = session.connection(session.database)
        active = True if one.active is None else one.active
        owner = principal(one.owner or "dbo")
        # Both or nothing: a certificate of this side is of no use without its key.
        with connection.transaction():
            connection.execute(
                f"select broker.create_certificate(%s, %s, {owner}, %s)".encode(), (one.name, pem, active)
            )
            if key is not None:
                self._keep(one.name, certificate, key)

    def back_up(self, session: Session, one: tree.BackupCertificate) -> None:
        """BACKUP CERTIFICATE: the certificate, and its key with a password."""
        found = session.connection(session.database).execute(
            "select certificate_pem from broker.certificates where name = %s", (one.name,)
        )
        row = found.fetchone()
        if row is None:
            raise StatementError(f'The certificate "{one.name}" does not exist.', 15151, "Look at its name.")
        certificate = x509.load_pem_x509_certificate(row[0].encode())
        files = [(self.path(one.file), certificate.public_bytes(Encoding.DER), 0o644)]
        if one.private_key is not None:
            key = self._key_of(certificate)
            encryption = BestAvailableEncryption((one.private_key.encryption or "").encode())
            private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)
            files.append((self.path(one.private_key.file or ""), private, 0o600))
        with _file_errors():
            for path, content, mode in files:
                path.parent.mkdir(parents=True, exist_ok=True)
                write_new(path, content, mode)

    def path(self, written: str) -> Path:
        """Return the file that a script's path stands for.

        Raises:
            StatementError: no directory of --path holds it.
        """
        plain = _plain(written)
        for theirs, ours in self._paths:
            if plain.casefold().startswith(theirs.casefold() + "/"):
                rest = plain[len(theirs) + 1 :].split("/")
                if ".." not in rest:
                    return ours.joinpath(*rest)
        directory = written[: max(written.rfind("\\"), written.rfind("/"), 0)] or "."
        raise StatementError(
            f"The file {written} is in no directory that was named.",
            _NO_FILE,
            f"Give --path '{directory}=DIRECTORY'.",
        )

    def _given(self, one: tree.Certificate) -> tuple[x509.Certificate, PrivateKeyTypes | None]:
        if one.file is None and one.binary is None:
            return self._made(one)
        if one.file is not None:
            with _file_errors():
                content = self.path(one.file).read_bytes()
        else:
            content = _bytes(one.binary or "")
        certificate = _certificate(content, one.file or "The binary")
        if one.private_key is None:
            return certificate, None
        if one.private_key.file is None:
            raise StatementError("WITH PRIVATE KEY needs a file.", _BAD_FILE, "Give FILE = …")
        path = self.path(one.private_key.file)
        with _file_errors():
            key = _private_key(path.read_bytes(), one.private_key.decryption, one.private_key.file)
        if public_key_of(key.public_key()) != public_key_of(certificate.public_key()):
            raise StatementError(
                f"The key in {one.private_key.file} is not that of the certificate in {one.file}.", _BAD_FILE
            )
        return certificate, key

    def _made(self, one: tree.Certificate) -> tuple[x509.Certificate, PrivateKeyTypes]:
        now = datetime.now(UTC)
        begin = _date(one.start_date) if one.start_date else now
        end = _date(one.expiry_date) if one.expiry_date else begin + _ONE_YEAR
        if end <= begin:
            raise StatementError(
                "EXPIRY_DATE is not behind START_DATE.", _BAD_FILE, "Write a later EXPIRY_DATE."
            )
        key = rsa.generate_private_key(public_exponent=65537, key_size=KEY_BITS)
        subject = _subject(one.subject or one.name)
        return self_signed(key, subject, begin - BACKDATED, end), key

    def _keep(self, name: str, certificate: x509.Certificate, key: PrivateKeyTypes) -> None:
        """Put a private key into the key directory; it is found by its certificate, not by its name."""
        directory = self._key_directory()
        path = private_key_path(directory, name)
        if path.exists():
            # Another database's certificate may have this name.
            path = private_key_path(directory, f"{name} {certificate.fingerprint(hashes.SHA256()).hex()[:8]}")
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        with _file_errors():
            write_new(path, private, 0o600)

    def _key_of(self, certificate: x509.Certificate) -> PrivateKeyTypes:
        wanted = public_key_of(certificate.public_key())
        for path in sorted(self._key_directory().glob("*.key")):
            try:
                key = read_private_key(path)
            except TransportError:
                continue
            if public_key_of(key.public_key()) == wanted:
                return key
        raise StatementError(
            "The certificate's private key is not in the key directory.",
            _BAD_FILE,
            "Leave WITH PRIVATE KEY out.",
        )

    def _key_directory(self) -> Path:
        if self._keys is None:
            raise StatementError("Private keys are files.", hint="Give --key-directory.")
        self._keys.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _file_errors():
            check_key_directory(self._keys)
        return self._keys


@contextmanager
def _file_errors() -> Iterator[None]:
    """Tell what the file system refuses as SQL Server would."""
    try:
        yield
    except FileExistsError as error:
        raise StatementError(f"The file {error.filename} exists.", _EXISTS, "Move it away.") from None
    except OSError as error:
        raise StatementError(
            f"The file {error.filename} can't be used: {error.strerror}.", _NO_FILE
        ) from None
    except TransportError as fault:
        raise StatementError(fault.text) from None


def _plain(path: str) -> str:
    return path.replace("\\", "/")


def _bytes(written: str) -> bytes:
    try:
        return binascii.unhexlify(written[2:])
    except binascii.Error:
        raise StatementError("The binary has half a byte.", _BAD_FILE, "Write two digits for each.") from None


def _certificate(content: bytes, where: str) -> x509.Certificate:
    try:
        if b"-----BEGIN" in content:
            return x509.load_pem_x509_certificate(content)
        return x509.load_der_x509_certificate(content)
    except ValueError:
        raise StatementError(f"{where} holds no certificate.", _BAD_FILE, "Give one in DER or PEM.") from None


def _private_key(content: bytes, password: str | None, where: str) -> PrivateKeyTypes:
    secret = password.encode() if password else None
    try:
        if private_key_blob.is_one(content):
            return private_key_blob.load(content, password)
        if b"-----BEGIN" in content:
            return load_pem_private_key(content, secret)
        return load_der_private_key(content, secret)
    except (ValueError, TypeError):
        # Without the cause: a parser's message may quote what it could not parse.
        raise StatementError(
            f"The key in {where} can't be read.", 15465, "Look at its password: DECRYPTION BY PASSWORD = …"
        ) from None


def _subject(written: str) -> x509.Name:
    if "=" in written:
        try:
            return x509.Name.from_rfc4514_string(written.replace(", ", ","))
        except ValueError:
            pass
    return common_name(written[:_COMMON_NAME_CHARACTERS])


def _date(written: str) -> datetime:
    for form in _DATES:
        try:
            return datetime.strptime(written.strip(), form).replace(tzinfo=UTC)
        except ValueError:
            continue
    raise StatementError(f"'{written[:40]}' is no date.", _BAD_DATE, "Write it as '2027-12-31'.")
