"""A person at a terminal: what a key completes, what GO runs, and what the next session remembers."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import psycopg

from tests.activated import CLI, REPOSITORY, eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import Database

UP, BACKSPACE, END_OF_INPUT = b"\x1b[A", b"\x7f", b"\x04"


class Terminal:
    """The shell's terminal: its keys, and all that it has shown."""

    def __init__(self, process: subprocess.Popen[bytes], side: int) -> None:
        self.process = process
        self.shown = b""
        self._side = side
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        # What reads a terminal fails when its other side is closed.
        with suppress(OSError):
            while piece := os.read(self._side, 4096):
                self.shown += piece

    def waits(self, text: bytes) -> None:
        """Wait until this is shown."""
        eventually(lambda: text in self.shown)
        self.shown = b""

    def press(self, keys: bytes) -> None:
        """Press keys."""
        os.write(self._side, keys)


@contextmanager
def shell(database: Database, home: Path) -> Iterator[Terminal]:
    """Start the shell in a terminal of 80 columns."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-c", CLI, "tsql", "shell", "--database", f"Shop={database.url}"],
        cwd=REPOSITORY,
        env=os.environ | {"HOME": str(home), "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    try:
        yield Terminal(process, ours)
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def has_message_type(database: Database, name: str) -> bool:
    with psycopg.connect(database.url) as session:
        found = session.execute("select from broker.service_message_types where name = %s", (name,))
        return found.fetchone() is not None


def test_a_key_completes_go_runs_and_the_next_session_remembers(database: Database, tmp_path: Path) -> None:
    with shell(database, tmp_path) as terminal:
        terminal.waits(b"Shop 1>")
        terminal.press(b"create mess\t")
        terminal.waits(b"CREATE MESSAGE TYPE")
        terminal.press(b" one\r")
        terminal.waits(b"Shop 2>")
        assert not has_message_type(database, "one")
        terminal.press(b"GO\r")
        eventually(lambda: has_message_type(database, "one"))
        terminal.waits(b"Shop 1>")
        terminal.press(END_OF_INPUT)
        assert terminal.process.wait() == 0

    with shell(database, tmp_path) as terminal:
        terminal.waits(b"Shop 1>")
        terminal.press(UP + UP + BACKSPACE * 3 + b"two\r")
        terminal.waits(b"Shop 2>")
        terminal.press(b"go\r")
        eventually(lambda: has_message_type(database, "two"))
        terminal.waits(b"Shop 1>")
        terminal.press(END_OF_INPUT)
        assert terminal.process.wait() == 0
