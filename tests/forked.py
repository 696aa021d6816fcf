"""`pybroker` commands that begin where their modules have been imported already.

A command's imports take most of a second of a processor, and a run of the tests starts hundreds. So each process of
the tests keeps one that has imported what a subcommand needs. A fork of it goes on as that command: a process of its own,
which is signalled, waited for, and ends as any other. What matters before that is for the tests that type the command.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import warnings
from importlib import import_module
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

_REPOSITORY = Path(__file__).resolve().parent.parent
# What a subcommand has imported when it is ready.
_MODULES = {
    "worker": (
        "typer._adapters",
        "pybroker.commands.worker",
        "pybroker.connection_string",
        "pybroker.workers.log_setup",
        "pybroker.workers.supervisor",
    ),
    "activate": (
        "typer._adapters",
        "pybroker.commands.activate",
        "pybroker.connection_string",
        "pybroker.workers.log_setup",
        "pybroker.workers.external_activation",
    ),
    "console": (
        "typer._adapters",
        "pybroker.commands.console",
        "pybroker.connection_string",
        "uvicorn.loops.auto",
        "uvicorn.protocols.http.auto",
        "uvicorn.protocols.websockets.auto",
        "uvicorn.lifespan.on",
        "pybroker.console.application",
    ),
    "tsql": (
        "typer._adapters",
        "pybroker.commands.tsql",
        "pybroker.tsql.certificates",
        "pybroker.tsql.found_tables",
        "pybroker.tsql.running",
        "pybroker.tsql.session",
    ),
}
_LONGEST_ORDER = 2**18


class Command:
    """A running `pybroker` command, with what tests need of `subprocess.Popen`."""

    def __init__(
        self,
        arguments: Sequence[str | os.PathLike[str]],
        *,
        stdout: IO[str] | int | None = None,
        stderr: IO[str] | int | None = None,
        env: Mapping[str, str] | None = None,
        warnings_are_errors: bool = False,
    ) -> None:
        self.args = [os.fspath(argument) for argument in arguments]
        self.returncode: int | None = None
        self._lock = threading.RLock()
        self._source = _source(self.args[0])
        self.stdout, out = _opened(stdout, 1)
        self.stderr, err = _opened(stderr, 2)
        order = {
            "arguments": self.args,
            "environment": dict(os.environ if env is None else env),
            "directory": str(Path.cwd()),
            "warnings_are_errors": warnings_are_errors,
        }
        self.pid: int = self._source.ask(order, [out, err])
        # It stays a zombie until the source is asked for its end, so the number is nobody else's.
        self._ended = os.pidfd_open(self.pid)
        for wanted, descriptor in ((stdout, out), (stderr, err)):
            if wanted == subprocess.PIPE:
                os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for stream in (self.stdout, self.stderr):
            if stream is not None:
                stream.close()
        self.wait()

    def poll(self) -> int | None:
        """Return the exit code, or minus the signal that ended it; None while it runs."""
        with self._lock:
            if self.returncode is None and _is_readable(self._ended, 0):
                self.returncode = self._source.ask({"ended": self.pid})
                os.close(self._ended)
            return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end, and return what `poll` does."""
        if self.returncode is None and not _is_readable(self._ended, timeout):
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        code = self.poll()
        assert code is not None
        return code

    def communicate(self, timeout: float | None = None) -> tuple[str | None, str | None]:
        """Return what is left of its one stream that is read, and wait for its end."""
        assert None in {self.stdout, self.stderr}, "one stream after the other could wait for ever"
        said = []
        for stream in (self.stdout, self.stderr):
            # As with Popen: what has been read to its end and closed says nothing more.
            said.append(None if stream is None else "" if stream.closed else stream.read())
            if stream is not None:
                stream.close()
        self.wait(timeout)
        return said[0], said[1]

    def send_signal(self, number: int) -> None:
        """Signal it, unless it has ended."""
        with self._lock:
            if self.poll() is None:
                signal.pidfd_send_signal(self._ended, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


Process = Command | subprocess.Popen[str]


def start(
    arguments: Sequence[str | os.PathLike[str]],
    *,
    stdout: IO[str] | int | None = None,
    stderr: IO[str] | int | None = None,
    env: Mapping[str, str] | None = None,
    warnings_are_errors: bool = False,
) -> Process:
    """Start `pybroker` with these arguments.

    It is typed where it can't be forked, and where a coverage counts what each process runs.
    """
    if hasattr(os, "pidfd_open") and not any(name.startswith("COVERAGE_PROCESS") for name in os.environ):
        return Command(
            arguments, stdout=stdout, stderr=stderr, env=env, warnings_are_errors=warnings_are_errors
        )
    strictly = ("-W", "error") if warnings_are_errors else ()
    typed = [sys.executable, *strictly, "-m", "pybroker", *arguments]
    return subprocess.Popen(typed, stdout=stdout, stderr=stderr, env=env, text=True)


class _Source:
    """The process that forks, and the line to it."""

    def __init__(self, subcommand: str) -> None:
        self._lock = threading.Lock()
        self._line, its_line = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its_line:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.forked", subcommand, str(its_line.fileno())],
                cwd=_REPOSITORY,
                pass_fds=[its_line.fileno()],
            )
        atexit.register(self.close)

    def ask(self, order: Mapping[str, Any], descriptors: Sequence[int] = ()) -> int:
        with self._lock:
            socket.send_fds(self._line, [json.dumps(order).encode()], descriptors)
            answer = self._line.recv(64)
        if not answer:
            raise RuntimeError("the process that forks commands has ended")
        return int(answer)

    def close(self) -> None:
        self._line.close()
        self._process.wait()


_sources: dict[str, _Source] = {}


def _source(subcommand: str) -> _Source:
    if subcommand not in _sources:
        _sources[subcommand] = _Source(subcommand)
    return _sources[subcommand]


def _opened(wanted: IO[str] | int | None, own: int) -> tuple[IO[str] | None, int]:
    """Return what the caller reads, and what the command writes to."""
    if wanted is None:
        return None, own
    if isinstance(wanted, int):
        assert wanted == subprocess.PIPE
        reading, writing = os.pipe()
        return os.fdopen(reading), writing
    return None, wanted.fileno()


def _is_readable(descriptor: int, timeout: float | None) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(None if timeout is None else 1000 * timeout))


def _serve(line: socket.socket) -> dict[str, Any] | None:
    """Fork for each order; return the order in the fork, and None when there is nobody left to order."""
    running = set()
    while True:
        message, descriptors, _, _ = socket.recv_fds(line, _LONGEST_ORDER, 2)
        if not message:
            # Whoever waited for them is gone.
            for process in running:
                os.kill(process, signal.SIGKILL)
            return None
        order: dict[str, Any] = json.loads(message)
        if "ended" in order:
            _, status = os.waitpid(order["ended"], 0)
            running.remove(order["ended"])
            line.send(str(os.waitstatus_to_exitcode(status)).encode())
            continue
        process = os.fork()
        if not process:
            line.close()
            for number, descriptor in enumerate(descriptors, start=1):
                os.dup2(descriptor, number)
        for descriptor in descriptors:
            os.close(descriptor)
        if not process:
            return order
        running.add(process)
        line.send(str(process).encode())


def _main() -> None:
    subcommand, descriptor = sys.argv[1:]
    for module in _MODULES[subcommand]:
        import_module(module)
    # Ctrl-C is for the tests, which then end their line.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # What nobody collects stays shared with the forks.
    gc.freeze()
    order = _serve(socket.socket(fileno=int(descriptor)))
    if order is None:
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(order["environment"])
    os.chdir(order["directory"])
    tempfile.tempdir = None
    if order["warnings_are_errors"]:
        warnings.simplefilter("error")
    sys.argv = ["pybroker", *order["arguments"]]
    from pybroker.commands import main  # noqa: PLC0415 - not for those that ask

    main()


if __name__ == "__main__":
    _main()
