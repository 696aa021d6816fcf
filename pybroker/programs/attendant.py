"""What an application does beside its readers: it says that it lives, and lets what is due be tried again.

It has one connection for all its programs, and goes on while readers finish what they have received.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import psycopg

from pybroker.client.session import opened
from pybroker.errors import BrokerError, broker_errors
from pybroker.printable import printable
from pybroker.programs.failures import in_one_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pybroker.programs.service_program import ServiceProgram

# Who says nothing for 15 seconds is taken for dead.
_BEAT_SECONDS = 5.0
_RETRY_SECONDS = 1.0
_RECONNECT_SECONDS = 2.0
_ANNOUNCE = "select broker.announce_program(%s::uuid, %s::text, %s::integer, %s::text, %s::integer)"
_REDRIVE_DUE = "select broker.redrive_due(%s::text)"
_FAILED = {_ANNOUNCE: "A program is not announced", _REDRIVE_DUE: "Retries wait"}
# As broker.announce_program has it.
_LONGEST_HOST = 255

_logger = logging.getLogger("pybroker.app")


@contextmanager
def attending(programs: Sequence[ServiceProgram], url: str) -> Iterator[None]:
    """Announce these programs while the block runs."""
    attendant = _Attendant(programs, url)
    thread = threading.Thread(target=attendant.run, name="attendant", daemon=True)
    thread.start()
    try:
        yield
    finally:
        attendant.is_over.set()
        thread.join()


class _Attendant:
    def __init__(self, programs: Sequence[ServiceProgram], url: str) -> None:
        self.is_over = threading.Event()
        self._programs = programs
        self._url = url
        self._program_id = uuid4()
        self._refusals: dict[tuple[str, str], str] = {}
        self._retrying = [program for program in programs if program.retry]

    def run(self) -> None:
        while not self.is_over.is_set():
            try:
                with opened(self._url) as connection:
                    self._attend(connection)
            except (psycopg.Error, BrokerError) as error:
                # The readers say so if they can't go on either.
                _logger.warning("Not announced, trying again: %s", in_one_line(error))
                self.is_over.wait(_RECONNECT_SECONDS)

    def _attend(self, connection: psycopg.Connection[Any]) -> None:
        next_beat = 0.0
        while not self.is_over.is_set():
            for program in self._retrying:
                self._ask(connection, _REDRIVE_DUE, (program.queue,), program.queue)
            if time.monotonic() >= next_beat:
                next_beat = time.monotonic() + _BEAT_SECONDS
                for program in self._programs:
                    self._announce(connection, program, program.max_queue_readers)
            self.is_over.wait(_RETRY_SECONDS if self._retrying else _BEAT_SECONDS)
        for program in self._programs:
            self._announce(connection, program, 0)

    def _announce(
        self, connection: psycopg.Connection[Any], program: ServiceProgram, max_queue_readers: int
    ) -> None:
        # A machine may have any name, or none.
        host = printable(socket.gethostname())[:_LONGEST_HOST] or "unnamed"
        place = (max_queue_readers, host, os.getpid())
        self._ask(connection, _ANNOUNCE, (self._program_id, program.queue, *place), program.queue)

    def _ask(
        self, connection: psycopg.Connection[Any], call: str, arguments: tuple[object, ...], queue: str
    ) -> None:
        """Make a call for one queue. What comes of it, told once, is no matter of the others."""
        try:
            with broker_errors():
                connection.execute(call.encode(), arguments)
        except (psycopg.Error, BrokerError) as error:
            if connection.closed:
                raise
            refusal = in_one_line(error)
            if self._refusals.get((queue, call)) != refusal:
                _logger.warning("%s, queue %s: %s", _FAILED[call], queue, refusal)
            self._refusals[queue, call] = refusal
        else:
            self._refusals.pop((queue, call), None)
