"""The pipe to the supervisor: starts the script, sends it orders, and ends it by hanging up."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import weakref
from typing import Any

from pybroker.embedded import supervisor
from pybroker.embedded.errors import EmbeddedServerError

# What initdb and the postmaster see of the caller's environment. The rest may hold secrets that the account
# of the server should not read, or PG* variables that would change the server.
_ENVIRONMENT = ("PATH", "TZ", "LD_LIBRARY_PATH")


def _supervisor_environment() -> dict[str, str]:
    kept = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    return {"PATH": os.defpath, **kept, "LC_ALL": "C"}


class Line:
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
                [sys.executable, "-I", "-S", supervisor.__file__],
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


_lines: weakref.WeakSet[Line] = weakref.WeakSet()


def _forget_lines() -> None:
    for line in list(_lines):
        line.forget()
    _lines.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_lines)
