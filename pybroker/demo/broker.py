"""One side of the demo: an embedded server with one database, and the worker process that serves it."""

from __future__ import annotations

import itertools
import json
import os
import secrets
import socket
import subprocess
import sys
import time
from typing import IO, TYPE_CHECKING, Any, Self

import psycopg
from psycopg import sql

from pybroker.demo.failures import DemoError
from pybroker.embedded import EmbeddedServer
from pybroker.migrations import migrate
from pybroker.workers.transport.dialog_security.key_files import certificate_path

if TYPE_CHECKING:
    from pathlib import Path


# Seconds. A worker is up in one or two; a loaded machine gets its time.
_WORKER_START = 60.0
_WORKER_GRACE = 5.0
_PORTS = range(10_000, 32_768)
_place = itertools.count(secrets.randbelow(len(_PORTS)))


class Broker:
    """A broker instance of the demo, from the server's start to its end.

    Everything that it writes is in directories of the embedded server, which go with the server even when
    this process is killed; so do the server and the worker.

    Attributes:
        name: The database's name.
        role: The ordinary role that owns the database; it exists on this server only.
        port: Where the worker listens on 127.0.0.1.
    """

    def __init__(self, name: str, role: str, port: int, server: EmbeddedServer | None = None) -> None:
        self.name = name
        self.role = role
        self.port = port
        self._server = server or EmbeddedServer()
        self._worker: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._server.start()
        try:
            self._create_database()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """The database's URL, as its owner."""
        return self._server.url(self.name, user=self.role)

    @property
    def psql(self) -> str:
        """The command that opens this database in psql."""
        return f"{self._server.binary('psql')} '{self.url}'"

    @property
    def worker_id(self) -> int | None:
        """The worker's process, once it was started."""
        return None if self._worker is None else self._worker.pid

    @property
    def key_directory(self) -> Path:
        """Where the worker's private key is."""
        return self._server.socket_directory / "keys"

    @property
    def address(self) -> str:
        """Where the far broker reaches this one."""
        return f"tcp://127.0.0.1:{self.port}"

    def connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        """Open a session of the owner's, in which each statement commits by itself."""
        return psycopg.connect(self.url, autocommit=True)

    def create_certificate(self) -> str:
        """Make the worker's key and certificate; return the certificate.

        Raises:
            DemoError: It could not be made.
        """
        with _pybroker(
            "certificate", "create", self.name, "--key-directory", str(self.key_directory),
            stderr=subprocess.PIPE,
        ) as command:  # fmt: skip
            assert command.stderr is not None  # noqa: S101
            complaint = command.stderr.read().decode(errors="replace").strip()
            if command.wait() != 0:
                raise DemoError(f"The certificate of {self.name} could not be made: {complaint}")
        return certificate_path(self.key_directory, self.name).read_text()

    def start_worker(self) -> None:
        """Start the worker process; `wait_for_worker` says when it serves."""
        with self._log_path.open("ab") as log:
            self._worker = _pybroker(
                "worker", "--database-url", self.url, "--key-directory", str(self.key_directory),
                "--grace", str(_WORKER_GRACE), "--log-format", "json",
                # A person who watches the demo is not to wait for what a network needs.
                "--reconnect-after", "0.5", "--retry-connect-after", "1", stderr=log,
            )  # fmt: skip

    def wait_for_worker(self) -> None:
        """Return when the worker serves its database and listens.

        Raises:
            DemoError: It ended, or does not listen.
        """
        deadline = time.monotonic() + _WORKER_START
        while not self._is_serving():
            self.check_worker()
            if '"listener_failed"' in self._log() or time.monotonic() > deadline:
                raise DemoError(
                    f"The worker of {self.name} does not listen at {self.address}. If another program has"
                    f" taken the port, start the demo again: it chooses a free one. Its last words:\n"
                    f"{self.last_words()}"
                )
            time.sleep(0.05)

    def check_worker(self) -> None:
        """Do nothing while the worker runs.

        Raises:
            DemoError: It has ended.
        """
        if self._worker is not None and self._worker.poll() is not None:
            raise DemoError(
                f"The worker of {self.name} ended by itself, with exit code {self._worker.returncode}."
                f" Its last words:\n{self.last_words()}"
            )

    def last_words(self) -> str:
        """Return the last events of the worker's log, indented, each that repeats itself once."""
        lines = self._log().splitlines()
        # A dictionary keeps the order in which its keys first came: from the newest back.
        events = list(dict.fromkeys(_readable(line) for line in reversed(lines[-200:])))[:8]
        return "\n".join(f"    {event}" for event in reversed(events)) or "    (none)"

    def close(self) -> None:
        """Stop the worker, then the server; what they wrote goes with it."""
        try:
            self._stop_worker()
        finally:
            self._server.close()

    def _create_database(self) -> None:
        with psycopg.connect(self._server.url(), autocommit=True) as connection:
            connection.execute(sql.SQL("create role {} login").format(sql.Identifier(self.role)))
        self._server.create_database(self.name, owner=self.role)
        migrate(self.url)
        self.key_directory.mkdir(mode=0o700)
        # The server's account removes it at the end; what is in it belongs to whoever runs the worker.
        account = self._server.socket_directory.stat()
        os.chown(self.key_directory, account.st_uid, account.st_gid)

    @property
    def _log_path(self) -> Path:
        return self._server.socket_directory / "worker.log"

    def _log(self) -> str:
        try:
            return self._log_path.read_text(errors="replace")
        except OSError:
            return ""

    def _is_serving(self) -> bool:
        # Asked of the log: a connection that does nothing but look would worry the worker.
        log = self._log()
        return '"worker_ready"' in log and '"listener_opened"' in log

    def _stop_worker(self) -> None:
        worker, self._worker = self._worker, None
        if worker is None:
            return
        try:
            worker.terminate()
            worker.wait(_WORKER_GRACE * 3)
        except subprocess.TimeoutExpired:
            pass
        finally:
            worker.kill()
            worker.wait()
            if worker.stdin is not None:
                worker.stdin.close()


def free_ports(count: int) -> list[int]:
    """Return ports of 127.0.0.1, all different, that nobody uses now.

    They are below those that systems give to outgoing connections. One of these could take a port before
    its server does.
    """
    found: list[int] = []
    for _ in _PORTS:
        # Each process has a row of its own, so that two of them seldom ask for the same one.
        port = _PORTS[next(_place) % len(_PORTS)]
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise DemoError(f"No {count} ports of 127.0.0.1 from {_PORTS.start} on are free.")


def _pybroker(*arguments: str, stderr: int | IO[bytes]) -> subprocess.Popen[bytes]:
    """Start the command `pybroker`, so that it cannot outlive this process."""
    # Nothing that this process was told may lead a worker to another database or key.
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYBROKER_", "PG"))
    }
    return subprocess.Popen(  # noqa: S603
        [sys.executable, "-m", "pybroker.demo.attached", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=stderr,
        env=environment,
        # Keeps a terminal's Ctrl-C from it: the demo ends it, in order.
        start_new_session=True,
    )


def _readable(line: str) -> str:
    """Write an event of the worker's log without its time, and a traceback as its last line."""
    try:
        event = json.loads(line)
        del event["timestamp"]
        shown = [event.pop("level"), event.pop("event")]
    except (ValueError, KeyError, TypeError):
        return line
    if "exception" in event:
        event["exception"] = event["exception"].splitlines()[-1]
    return " ".join(shown + [f"{name}={value}" for name, value in event.items()])
