"""Lines in place of sockets: what is sent comes later, in order, and may be cut off at any byte.

As with TCP, a line that is cut is noticed by each end at a moment of its own, or never, and what was on its way
still comes or does not. Different lines know nothing of each other, so an older one may speak after a newer.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextvars import copy_context
from itertools import count
from math import inf
from typing import TYPE_CHECKING, Any

from tests.simulation.loop import PROCESS, Process, SimulatedLoop

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from contextvars import Context

    from tests.simulation.trace import Trace

# Where nobody answers a caller hears of it after so long.
_NO_ANSWER = 120.0


class End(asyncio.Transport):
    """One end of a line, as asyncio's streams want it."""

    def __init__(self, line: Line, process: Process | None, context: Context, name: str) -> None:
        super().__init__({"peername": (name, 1), "sockname": (f"not {name}", 1)})
        self.line = line
        self.process = process
        self.context = context
        self.protocol: Any = None
        self.far: End
        self.is_over = False
        self._is_closing = False
        self._is_paused = False
        self._came: deque[bytes | None] = deque()

    def is_closing(self) -> bool:
        return self._is_closing

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._is_closing:
            self.line.carry(self, bytes(data))

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self.line.carry(self, None)
            self.lose(None)

    def abort(self) -> None:
        if not self.is_over:
            self._is_closing = True
            self.line.reset(self)
            self.lose(None)

    def can_write_eof(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        self._is_paused = False
        self.line.loop.call_soon(self._read, context=self.context)

    def is_reading(self) -> bool:
        return not self._is_paused

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """The line takes everything."""

    def get_write_buffer_size(self) -> int:
        return 0

    def come(self, data: bytes | None) -> None:
        """Take what has arrived; None is the far side's farewell."""
        if not self.is_over:
            self._came.append(data)
            self.line.loop.call_soon(self._read, context=self.context)

    def lose(self, error: Exception | None) -> None:
        """Be over."""
        if not self.is_over:
            self.is_over = self._is_closing = True
            self.line.loop.call_soon(self.protocol.connection_lost, error, context=self.context)

    def _read(self) -> None:
        while self._came and not self._is_paused and not self.is_over:
            data = self._came.popleft()
            if data is None:
                if not self.protocol.eof_received():
                    self.close()
            else:
                self.protocol.data_received(data)


class Line:
    """A connection between two hosts."""

    def __init__(self, network: Network, number: int, latency: float) -> None:
        self.network = network
        self.loop = network.loop
        self.number = number
        self.latency = latency
        self.ends: tuple[End, End]
        self.is_cut = False
        self._last: dict[End, float] = {}
        # Of a line that is cut: what arrives later is lost.
        self._until: dict[End, float] = {}

    @property
    def is_open(self) -> bool:
        return not (self.ends[0].is_over or self.ends[1].is_over or self.is_cut)

    def carry(self, sender: End, data: bytes | None) -> None:
        """Let data arrive after a while, and never before what was sent earlier; maybe in two parts."""
        if self.is_cut:
            return
        random = self.network.random
        parts = [data]
        if data is not None and len(data) > 1 and random.random() < 0.1:
            place = random.randrange(1, len(data))
            parts = [data[:place], data[place:]]
        for part in parts:
            self._later(sender, part)

    def reset(self, sender: End) -> None:
        """Let the far end learn that this one is gone; what was not read yet is lost with it."""
        if not self.is_cut:
            at = self.loop.time() + self._pause()
            self.loop.call_at(
                at, sender.far.lose, ConnectionResetError("reset"), context=self.network.context
            )

    def cut(self, notice: tuple[float | None, float | None], lost: tuple[float, float]) -> None:
        """Carry nothing more; each end notices after its seconds, or never.

        `lost`: what would arrive later than so many seconds from now does not.
        """
        self.is_cut = True
        now = self.loop.time()
        for end, seconds, after in zip(self.ends, notice, lost, strict=True):
            self._until[end] = now + after
            if seconds is not None:
                at = now + max(seconds, after)
                self.loop.call_at(at, end.lose, ConnectionResetError("cut"), context=self.network.context)

    def _later(self, sender: End, part: bytes | None) -> None:
        receiver = sender.far
        at = max(self.loop.time() + self._pause(), self._last.get(sender, 0.0))
        at = self._last[sender] = max(at, self.network.parted_until)
        self.network.trace.note(
            "carry", self.number, self.ends.index(sender), -1 if part is None else len(part)
        )
        self.loop.call_at(at, self._arrive, receiver, part, context=self.network.context)

    def _arrive(self, receiver: End, part: bytes | None) -> None:
        if self.loop.time() > self._until.get(receiver, inf):
            return
        receiver.come(part)

    def _pause(self) -> float:
        return self.latency * (0.5 + self.network.random.random())


class Listener:
    """What asyncio calls a server."""

    def __init__(self, network: Network, key: tuple[str, int]) -> None:
        self._network = network
        self._key = key

    async def start_serving(self) -> None:
        self._network.is_serving.add(self._key)

    def close(self) -> None:
        self._network.is_serving.discard(self._key)
        self._network.listeners.pop(self._key, None)


class Network:
    """All hosts, and the lines between them."""

    def __init__(self, loop: SimulatedLoop, random: random.Random, trace: Trace) -> None:
        self.loop = loop
        self.random = random
        self.trace = trace
        self.context = copy_context()
        self.listeners: dict[tuple[str, int], tuple[Callable[[], Any], Process | None, Context]] = {}
        self.is_serving: set[tuple[str, int]] = set()
        self.lines: list[Line] = []
        # Until then nothing crosses; and whether that is by holding it back, or by silence for ever.
        self.parted_until = 0.0
        self.slowness = 1.0
        self._numbers = count(1)

    def listen(self, factory: Callable[[], Any], port: int) -> Listener:
        process = PROCESS.get()
        assert process is not None
        key = process.host, port
        held = self.listeners.get(key)
        if held is not None and held[1] is not None and not held[1].is_dead:
            raise OSError(98, "Address already in use")
        self.listeners[key] = factory, process, copy_context()
        return Listener(self, key)

    async def connect(self, factory: Callable[[], Any], host: str, port: int) -> tuple[End, Any]:
        latency = self.slowness * self.random.choice((0.0002, 0.001, 0.005, 0.05))
        await asyncio.sleep(latency)
        if self.loop.time() < self.parted_until:
            await asyncio.sleep(_NO_ANSWER)
            raise TimeoutError(110, "Connection timed out")
        found = self.listeners.get((host, port))
        if found is None or (host, port) not in self.is_serving or found[1] is None or found[1].is_dead:
            self.trace.note("refused", host)
            raise ConnectionRefusedError(111, "Connection refused")
        accepting, process, context = found
        line = Line(self, next(self._numbers), latency)
        self.trace.note("line", line.number, host, latency)
        near = End(line, PROCESS.get(), copy_context(), f"{host}")
        far = End(line, process, context, f"caller {line.number}")
        near.far, far.far = far, near
        line.ends = near, far
        self.lines = [each for each in self.lines if each.is_open] + [line]
        near.protocol = factory()
        near.protocol.connection_made(near)

        def accept() -> None:
            far.protocol = accepting()
            far.protocol.connection_made(far)

        context.run(accept)
        await asyncio.sleep(latency)
        return near, near.protocol

    def died(self, process: Process, *, notice: float | None) -> None:
        """Note that a process is gone; its peers notice after so many seconds, or never."""
        for key, (_, owner, _) in tuple(self.listeners.items()):
            if owner is process:
                del self.listeners[key]
                self.is_serving.discard(key)
        for line in self.lines:
            for end in line.ends:
                if end.process is process and not end.is_over:
                    line.is_cut = line.is_cut or notice is None
                    end.is_over = True
                    if notice is not None and not end.far.is_over:
                        self.loop.call_later(
                            notice, end.far.lose, ConnectionResetError("died"), context=self.context
                        )
