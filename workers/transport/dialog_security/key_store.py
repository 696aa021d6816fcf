"""The worker's key directory as dialogs use it: private keys by their public ones, master keys by their ids.

A private key's file may have any name, so databases may give their certificates equal ones. What changes in
the directory is seen within seconds, without a restart.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import structlog
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

from pybroker.workers.transport.dialog_security.key_files import (
    KEY_SUFFIX,
    MasterKey,
    check_key_directory,
    is_master_key,
    master_key_path,
    public_key_of,
    read_master_key,
    read_private_key,
)
from pybroker.workers.transport.protocol import faults
from pybroker.workers.transport.protocol.faults import TransportError

if TYPE_CHECKING:
    from pathlib import Path

    from structlog.typing import FilteringBoundLogger

    from pybroker.workers.clock import Clock

    _State = tuple[int, ...]

REFRESH_SECONDS: Final = 2.0

logger: FilteringBoundLogger = structlog.get_logger()


class KeyStore:
    """The keys of a worker. No key leaves it in text."""

    def __init__(self, directory: Path | None, clock: Clock) -> None:
        """Prepare, without reading.

        Args:
            directory: the worker's key directory, if it has one.
            clock: says when the directory is looked at again.
        """
        self._directory = directory
        self._clock = clock
        self._due = float("-inf")
        self._reading = asyncio.Lock()
        # By file name: how it was when it was read, and what was in it.
        self._files: dict[str, tuple[_State, tuple[bytes, RSAPrivateKey] | MasterKey | None]] = {}
        self._private_keys: dict[bytes, RSAPrivateKey] = {}
        self._master_keys: dict[bytes, MasterKey] = {}
        self._master_key: MasterKey | None = None
        self._refusal: str | None = None

    async def refresh(self) -> None:
        """Look at the directory, unless that was done a moment ago."""
        async with self._reading:
            if self._clock.monotonic() < self._due:
                return
            # In a thread: OpenSSL tests a private key for as long as many batches take.
            await asyncio.to_thread(self.read)
            self._due = self._clock.monotonic() + REFRESH_SECONDS

    def read(self) -> None:
        """Read what has changed in the directory since the last time."""
        files: dict[str, tuple[_State, tuple[bytes, RSAPrivateKey] | MasterKey | None]] = {}
        for path in self._paths():
            try:
                status = path.stat()
            except OSError:
                continue
            state = (status.st_mtime_ns, status.st_size, status.st_ino, status.st_mode, status.st_uid)
            known = self._files.get(path.name)
            files[path.name] = known if known and known[0] == state else (state, _content(path))
        self._files = files
        contents = [content for _, content in files.values()]
        self._private_keys = dict(content for content in contents if isinstance(content, tuple))
        self._master_keys = {content.id: content for content in contents if isinstance(content, MasterKey)}
        current = None
        if self._directory is not None:
            _, current = files.get(master_key_path(self._directory).name, (None, None))
        self._master_key = current if isinstance(current, MasterKey) else None

    def private_key(self, public_key: bytes) -> RSAPrivateKey | None:
        """Return the private key of a public one (SubjectPublicKeyInfo as DER), if it is here."""
        return self._private_keys.get(public_key)

    def master_key(self, key_id: bytes | None = None) -> MasterKey:
        """Return the master key for sealing, or one that something was sealed with before.

        Raises:
            TransportError: 28050, it is not here.
        """
        key = self._master_key if key_id is None else self._master_keys.get(key_id)
        if key is not None:
            return key
        if self._directory is None:
            raise TransportError(
                faults.NO_MASTER_KEY,
                "The session keys of this conversation could not be accessed: start the worker with"
                " --key-directory.",
            )
        name = master_key_path(self._directory).name if key_id is None else f"number {key_id.hex()}"
        raise TransportError(
            faults.NO_MASTER_KEY,
            f"The session keys of this conversation could not be accessed: the master key, {name}, is not in"
            " the worker's key directory, or can't be used.",
        )

    def _paths(self) -> list[Path]:
        if self._directory is None:
            return []
        try:
            check_key_directory(self._directory)
            paths = [path for path in self._directory.iterdir() if path.suffix == KEY_SUFFIX]
        except (OSError, TransportError) as fault:
            if str(fault) != self._refusal:
                logger.warning("key_directory_ignored", reason=str(fault))
            self._refusal = str(fault)
            return []
        self._refusal = None
        return paths


def _content(path: Path) -> tuple[bytes, RSAPrivateKey] | MasterKey | None:
    """Return a master key, or a private key by its public one; None for what dialogs can't use."""
    try:
        if is_master_key(path.name):
            return read_master_key(path)
        key = read_private_key(path)
    except TransportError as fault:
        logger.warning("key_ignored", number=fault.number, reason=fault.text)
        return None
    # Session keys can't be wrapped with another kind, which may be an endpoint's.
    return (public_key_of(key.public_key()), key) if isinstance(key, RSAPrivateKey) else None
