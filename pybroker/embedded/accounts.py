"""Which account runs the server: the caller's own, and for root one that PostgreSQL accepts."""

from __future__ import annotations

import contextlib
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pybroker.embedded.errors import EmbeddedServerError

if sys.platform != "win32":
    import pwd

if TYPE_CHECKING:
    from pathlib import Path

# `postgres` is made for this. `nobody` and `daemon` exist nearly everywhere and own next to nothing.
_ACCOUNTS = ("postgres", "nobody", "daemon")


@dataclass(frozen=True)
class Account:
    """An entry of /etc/passwd, as far as running a server needs it."""

    name: str
    uid: int
    gid: int


def account_for(data_directory: Path | None) -> Account | None:
    """Choose the account that runs the server, or None for the caller's own."""
    uid = os.geteuid()
    if uid != 0:
        try:
            pwd.getpwuid(uid)
        except KeyError:
            raise EmbeddedServerError(f"PostgreSQL needs an entry in /etc/passwd for user id {uid}") from None
        return None
    # A data directory names its own account by who owns it, and PostgreSQL would accept no other.
    if data_directory is not None and data_directory.exists():
        owner = data_directory.stat().st_uid
        if owner != 0:
            try:
                entry = pwd.getpwuid(owner)
            except KeyError:
                raise EmbeddedServerError(
                    f"{data_directory} belongs to user id {owner}, which has no entry in /etc/passwd"
                ) from None
            return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)
    for name in _ACCOUNTS:
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            if entry.pw_uid != 0:
                return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)
    raise EmbeddedServerError(
        f"PostgreSQL refuses to run as root, and none of the accounts {', '.join(_ACCOUNTS)} exists"
    )


def hand_over(data_directory: Path, account: Account) -> bool:
    """Give a new or empty directory of root's to the server's account; return whether it was made here."""
    try:
        made = not data_directory.exists()
        if made:
            data_directory.mkdir(mode=0o700, parents=True)
        # Owner and emptiness are read, and changed, through one descriptor: the name could be swapped.
        descriptor = os.open(data_directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            if os.fstat(descriptor).st_uid == 0:
                if os.listdir(descriptor):  # noqa: PTH208
                    raise EmbeddedServerError(
                        f"{data_directory} belongs to root and is not empty. PostgreSQL refuses to run as "
                        f"root; give it a new directory, or this one to the account {account.name}"
                    )
                os.fchown(descriptor, account.uid, account.gid)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise EmbeddedServerError(
            f"{data_directory} cannot hold the server's data: {error.strerror}"
        ) from error
    return made
