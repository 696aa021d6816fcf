"""A far side of one connection that a test plays: no socket, no certificate."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, cast

from pybroker.workers.transport.connection.certificate_check import KnownPeer
from pybroker.workers.transport.connection.link import Traffic
from pybroker.workers.transport.connection.session import Session
from pybroker.workers.transport.protocol import wire
from tests.patience import state_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from pybroker.workers.clock import Clock
    from pybroker.workers.transport.connection.link import Link
    from pybroker.workers.transport.retry_schedule import Pace


def NO_DIALOGS(number: int) -> wire.Batch:  # noqa: N802
    """Return a batch without anything in it."""
    return wire.Batch(number, bytes(16), "//far", None, *[b""] * 12, "", b"")


class FarLink:
    """What stands for a Link: remembers what was sent, and answers pings while it is to."""

    certificate = b""

    def __init__(self, address: str) -> None:
        self.address = address
        self.peer = KnownPeer("far_user", "far", True)
        self.far = wire.Hello(1, 1, [bytes(16)], "REQUIRED", 16, 2**20)
        self.sent = self.received = 0
        self.sent_frames: list[wire.Frame] = []
        self.answers_pings = True
        self.is_closed = self.is_outdated = self.was_closed_here = False
        self.traffic = Traffic()
        self.running: asyncio.Task[None] | None = None
        self._arrived: asyncio.Queue[wire.Frame | None] = asyncio.Queue()

    def line(self, clock: Clock, pace: Pace) -> Session:
        """Return it as a connection that this side has opened, and that is read from."""

        async def answer(*_: object) -> bool:
            raise AssertionError("an older worker sends no batch on what others have opened")

        line = Session(cast("Link", self), answer, clock, pace, is_accept=False)
        self.running = asyncio.create_task(line.run())
        return line

    @property
    def batches(self) -> list[wire.Batch]:
        return [frame for frame in self.sent_frames if isinstance(frame, wire.Batch)]

    def arrive(self, frame: wire.Frame | None) -> None:
        """Let the near side read this next; None is a farewell."""
        self.received += 1
        self._arrived.put_nowait(frame)

    async def send(self, frame: wire.Frame) -> None:
        self.sent += 1
        self.sent_frames.append(frame)
        if isinstance(frame, wire.Ping) and self.answers_pings:
            self.arrive(wire.Ping(is_answer=True))

    async def receive(self) -> wire.Frame | None:
        return await self._arrived.get()

    async def close(self, because: object = None) -> None:  # noqa: ARG002 - as a Link
        self.is_closed = True


async def settled(condition: Callable[[], object]) -> None:
    """Let the other tasks run until `condition()`."""
    gives_up_at = time.monotonic() + 60
    while not condition():  # nothing sets an event
        assert time.monotonic() < gives_up_at, f"waited in vain: {state_of(condition)}"
        await asyncio.sleep(0.001)
