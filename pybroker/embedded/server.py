"""EmbeddedServer: what a caller starts, stops, asks for URLs, and closes."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self
from urllib.parse import quote, urlencode

from pybroker.embedded.accounts import account_for, hand_over
from pybroker.embedded.errors import EmbeddedServerError
from pybroker.embedded.installations import binaries_of, installation_of
from pybroker.embedded.line import Line
from pybroker.embedded.supervisor import PRIVATE_PORT, SUPERUSER, is_alive

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

_IDENTIFIER_BYTES = 63

_OWN_SETTINGS = frozenset({
    "config_file", "data_directory", "listen_addresses", "port", "unix_socket_directories",
    "unix_socket_group", "unix_socket_permissions",
})  # fmt: skip

StopMode = Literal["fast", "immediate"]


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
        self._binaries = binaries_of(installation_of(version))
        self._given_directory = None if data_directory is None else Path(data_directory).resolve()
        self._listen = listen or port is not None
        self._given_port = port
        self._start_timeout = start_timeout
        self._line: Line | None = None
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
            account = account_for(self._given_directory)
        except OSError as error:
            raise EmbeddedServerError(f"{self._given_directory} is out of reach: {error.strerror}") from error
        self._made_directory = False
        if account is not None and self._given_directory is not None:
            self._made_directory = hand_over(self._given_directory, account)
        self._line = Line()
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
        while is_alive(self._postmaster) and time.monotonic() < deadline:
            time.sleep(0.05)
        for directory in self._temporary:
            shutil.rmtree(directory, ignore_errors=True)

    def url(self, database: str = "postgres", user: str = SUPERUSER, password: str | None = None) -> str:
        """Return a libpq URL over the private socket, which asks for no password.

        Args:
            database: The database's name, unquoted.
            user: The role's name, unquoted.
            password: Put into the URL when given; the server does not look at it.

        Raises:
            EmbeddedServerError: The server has not been started.
        """
        # libpq would take a missing port from $PGPORT.
        query = urlencode({"host": self.socket_directory, "port": self._port or PRIVATE_PORT}, safe="/")
        return f"postgresql://{_user_part(user, password)}@/{quote(database, safe='')}?{query}"

    def tcp_url(self, database: str = "postgres", user: str = SUPERUSER, password: str | None = None) -> str:
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
        if password is None and user == SUPERUSER:
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
            sql.Identifier(name), sql.Identifier(owner or SUPERUSER)
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
                    password.encode(), SUPERUSER.encode(), b"scram-sha-256"
                )
                connection.execute(
                    sql.SQL("alter role {} password {}").format(
                        sql.Identifier(SUPERUSER), sql.Literal(hashed.decode())
                    )
                )
        except psycopg.Error as error:
            raise EmbeddedServerError(f"the password for TCP could not be set: {error}") from error

    def _require_owner(self) -> None:
        if os.getpid() != self._owner:
            raise EmbeddedServerError("the server belongs to the process that made it, not to a forked child")

    def _connected(self) -> Line:
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
