"""A line between two sites that a test can cut: a TCP proxy that sees bytes, and frames where there is no TLS."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_BYTES = 256 * 1024


class Proxy:
    """Carries connections to a port of this host.

    Attributes:
        port: Where it listens.
        cuts_answers_after: When this many bytes went there on a connection, the next bytes that come back end it: a batch
            of that size arrives, and its acknowledgement does not. None: nothing is cut.
        cuts_once_after: When this many bytes went there on a connection, it is ended in their midst, once.
        is_down: Nobody who connects gets through.
        delay: Seconds for which each chunk of bytes is held back.
        cuts: How often one of both happened.
        carried: How many bytes went there.
        seen: The bytes that went there, where a test asks for them by giving a bytearray.
        rewrites: Between endpoints without encryption: given each frame, with its length, and whether it goes there, it
            returns what is passed on. None, when a connection begins: bytes pass as they are.
    """

    host = "127.0.0.1"

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.cuts_answers_after: int | None = None
        self.cuts_once_after: int | None = None
        self.is_down = False
        self.delay = 0.0
        self.cuts = 0
        self.carried = 0
        self.seen: bytearray | None = None
        self.rewrites: Callable[[bytes, bool], bytes] | None = None
        self._lines: set[_Line] = set()
        self._lock = threading.Lock()
        self._is_open = True
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """End every connection."""
        with self._lock:
            lines = list(self._lines)
        for line in lines:
            line.close()

    def swallow(self, said: bytes) -> int:
        """Let nothing pass any more, and tell nobody, on the connections that began with this text; return how many."""
        with self._lock:
            lines = [line for line in self._lines if said in line.said]
        for line in lines:
            line.is_swallowed = True
        return len(lines)

    def close(self) -> None:
        self._is_open = False
        self._listener.close()
        self.cut()

    def ended(self, line: _Line) -> None:
        with self._lock:
            self._lines.discard(line)

    def _accept(self) -> None:
        while self._is_open:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            if self.is_down:
                near.close()
                continue
            try:
                far = socket.create_connection(("127.0.0.1", self._target), timeout=10)
                far.settimeout(None)
            except OSError:
                near.close()
                continue
            line = _Line(self, near, far)
            with self._lock:
                self._lines.add(line)
            line.start()


class _Line:
    """One connection."""

    def __init__(self, proxy: Proxy, near: socket.socket, far: socket.socket) -> None:
        self._proxy = proxy
        self._near = near
        self._far = far
        self._asked = 0
        self.said = b""
        self.is_swallowed = False
        self._loses_answers = False
        self._has_frames = proxy.rewrites is not None
        self._partial = {True: b"", False: b""}

    def start(self) -> None:
        threading.Thread(target=self._ask, daemon=True).start()
        threading.Thread(target=self._answer, daemon=True).start()

    def close(self) -> None:
        for side in (self._near, self._far):
            # Both threads end by it; a close alone would leave them reading.
            with contextlib.suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)
            side.close()
        self._proxy.ended(self)

    def _ask(self) -> None:
        try:
            self._carry_there()
        finally:
            # Also where a test's rewriting fails: else the connection would stay, and nothing pass.
            if not (self._loses_answers or self.is_swallowed):
                self.close()

    def _carry_there(self) -> None:
        with contextlib.suppress(OSError):
            while data := self._near.recv(_BYTES):
                # Who is there is said at the beginning.
                self.said = self.said or data
                if self.is_swallowed:
                    continue
                self._proxy.carried += len(data)
                if self._proxy.seen is not None:
                    self._proxy.seen += data
                limit = self._proxy.cuts_once_after
                if limit is not None and self._asked + len(data) > limit:
                    self._proxy.cuts_once_after = None
                    self._proxy.cuts += 1
                    break
                self._hold_back()
                self._far.sendall(self._rewritten(data, True))
                self._asked += len(data)

    def _answer(self) -> None:
        try:
            self._carry_back()
        finally:
            self.close()

    def _carry_back(self) -> None:
        with contextlib.suppress(OSError):
            while data := self._far.recv(_BYTES):
                if self.is_swallowed:
                    continue
                limit = self._proxy.cuts_answers_after
                if limit is not None and self._asked > limit:
                    self._proxy.cuts += 1
                    self._lose_answers()
                    break
                self._hold_back()
                self._near.sendall(self._rewritten(data, False))

    def _lose_answers(self) -> None:
        """End the connection for who asked; the other side reads all that was sent there first."""
        self._loses_answers = True
        self._near.shutdown(socket.SHUT_RDWR)
        self._far.shutdown(socket.SHUT_WR)
        # Closed with bytes unread it would be reset, and what the other side has not read yet be lost.
        while self._far.recv(_BYTES):
            pass

    def _rewritten(self, data: bytes, goes_there: bool) -> bytes:
        if not self._has_frames:
            return data
        data = self._partial[goes_there] + data
        passed = []
        while len(data) >= 4 and len(data) >= (end := 4 + int.from_bytes(data[:4], "big")):
            rewrites = self._proxy.rewrites
            passed.append(data[:end] if rewrites is None else rewrites(data[:end], goes_there))
            data = data[end:]
        self._partial[goes_there] = data
        return b"".join(passed)

    def _hold_back(self) -> None:
        if self._proxy.delay:
            time.sleep(self._proxy.delay)


@contextlib.contextmanager
def proxy_to(port: int) -> Iterator[Proxy]:
    """Yield a proxy to a port of this host."""
    proxy = Proxy(port)
    try:
        yield proxy
    finally:
        proxy.close()
