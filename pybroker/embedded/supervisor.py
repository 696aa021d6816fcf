"""The supervisor: a script that takes orders from a pipe, parent of the postmaster, owner of its directories.

It runs under `python -I -S` and, once it has dropped root's rights, may be unable to read the interpreter's
own folder. So it imports the standard library only, at the top, and nothing of this package, which imports
from here what both sides of the pipe need.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

SUPERUSER = "postgres"
PRIVATE_PORT = 5432

_PASSWORD_FILE = "pybroker_tcp_password"  # noqa: S105

# sockaddr_un holds 104 bytes on macOS and 108 on Linux, with the final NUL.
_SOCKET_PATH_BYTES = 103


def is_alive(process: int | None) -> bool:
    """Whether a process of this id runs, be it of another account."""
    if process is None:
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


class _OrderError(Exception):
    """An order could not be carried out; the text says why and what to do, and goes to the caller."""


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
                except (_OrderError, OSError) as error:
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
                raise _OrderError(f"the server cannot run as {who}: {error.strerror}") from error
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
        raise _OrderError(
            f"the server's account can make no directory in any of {', '.join(map(str, roots))}"
        )

    def check_data_directory(self, who: str) -> None:
        try:
            self.data_directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            empty = not any(self.data_directory.iterdir())
            version = self.data_directory / "PG_VERSION"
            found = version.read_text().strip() if version.exists() else None
        except FileExistsError:
            raise _OrderError(f"{self.data_directory} is not a directory") from None
        except OSError as error:
            raise _OrderError(
                f"{self.data_directory} is out of reach for {who}: {error.strerror}. "
                f"Give the server a directory that {who} can reach and write to"
            ) from error
        if not empty and found is None:
            raise _OrderError(f"{self.data_directory} is not empty and no PostgreSQL data directory")
        if found is not None and found != str(self.major):
            raise _OrderError(
                f"{self.data_directory} belongs to PostgreSQL {found}, not {self.major}. "
                f"Use version={found}, or another directory"
            )
        if found is not None and not (self.data_directory / "global" / "pg_control").exists():
            raise _OrderError(
                f"{self.data_directory} was left half made by an interrupted initdb. Remove it, start again"
            )

    def start(self, order: dict[str, Any]) -> dict[str, Any]:
        if self.running():
            assert self.child is not None  # noqa: S101
            return {"started": False, "port": order["port"], "process": self.child.pid}
        if not (self.data_directory / "PG_VERSION").exists():
            self.initialise()
        if not order["listen"]:
            self.launch(PRIVATE_PORT, order)
            return {"started": True, "port": PRIVATE_PORT, "process": self.process()}
        port = self.launch_listening(order)
        return {"started": True, "port": port, "process": self.process(), "password": self.password()}

    def process(self) -> int | None:
        return None if self.child is None else self.child.pid

    def initialise(self) -> None:
        command = [
            str(self.binaries / "initdb"), "--pgdata", str(self.data_directory), "--username", SUPERUSER,
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
                raise _OrderError(f"initdb failed in {self.data_directory}:\n{text}")

    def launch_listening(self, order: dict[str, Any]) -> int:
        given: int | None = order["port"]
        attempts = 5
        while True:
            port = self.bindable(given or 0)
            try:
                self.launch(port, order)
            except _OrderError:
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
                raise _OrderError(f"port {port} on 127.0.0.1 cannot be used: {error.strerror}") from error
            chosen: int = probe.getsockname()[1]
            return chosen

    def is_bindable(self, port: int) -> bool:
        try:
            self.bindable(port)
        except _OrderError:
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
                raise _OrderError(self.why_not_started(log_offset))
            if time.monotonic() > deadline:
                self.end(signal.SIGQUIT)
                raise _OrderError(
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
        if lines and lines[0].isdigit() and is_alive(int(lines[0])):
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
        # A checkpoint of what is removed next would only take time.
        self.end(signal.SIGINT if self.keeps_data else signal.SIGQUIT)
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
