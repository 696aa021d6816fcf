"""An event loop of simulated time, in which several processes live, and any of them can die at any moment."""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from contextvars import ContextVar
from itertools import count
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from contextvars import Context

    from tests.simulation.network import Network


class Process:
    """What lives and dies as a whole: a worker, or an application. All its tasks carry it in their context."""

    def __init__(self, host: str, name: str) -> None:
        self.host = host
        self.name = name
        self.is_dead = False


PROCESS: ContextVar[Process | None] = ContextVar("process", default=None)
_numbers = count(1)


class _Task(asyncio.Task[Any]):
    """A task whose place in a set does not depend on its address."""

    def __new__(cls, *_: object, **__: object) -> _Task:
        task = super().__new__(cls)
        task.number = next(_numbers)
        return task

    number: int

    def __hash__(self) -> int:
        return self.number


class _Future(asyncio.Future[Any]):
    def __init__(self, *, loop: asyncio.AbstractEventLoop) -> None:
        self.number = next(_numbers)
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self.number


class EndlessError(Exception):
    """Nothing is left to do, more was done than a seed may take, or nobody has looked at an accident."""


class SimulatedLoop(asyncio.AbstractEventLoop):
    """Runs what is ready in its order, and then lets time pass up to the next timer.

    Attributes:
        network: what stands for sockets.
        halt: raised as soon as it is there, whatever runs.
    """

    network: Network

    def __init__(self) -> None:
        self.halt: Exception | None = None
        self._now = 0.0
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._order = count()
        self._is_closed = False
        self._readers: dict[int, asyncio.Handle] = {}
        # A task that is dropped would run its `finally` blocks, which nobody does who was killed.
        self._tasks: list[asyncio.Task[Any]] = []

    # Time.

    def time(self) -> float:
        return self._now

    def call_soon(
        self, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._order), timer))
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It is left out when its time comes."""

    # Tasks.

    def create_future(self) -> asyncio.Future[Any]:
        return _Future(loop=self)

    def create_task(
        self, coro: Coroutine[Any, Any, Any], *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[Any]:
        task = _Task(coro, loop=self, name=name, context=context)
        self._tasks.append(task)
        return task

    def run_in_executor(
        self, executor: object, func: Callable[..., Any], *args: object
    ) -> asyncio.Future[Any]:
        """Run it here and now: a thread would come back when it likes."""
        del executor
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # whoever waits gets it
            future.set_exception(error)
        return future

    # What is readable.

    def add_reader(self, fd: Any, callback: Callable[..., Any], *args: object) -> None:
        """Have it called by `readable`."""
        self._readers[fd] = asyncio.Handle(callback, args, self)

    def remove_reader(self, fd: Any) -> bool:
        return self._readers.pop(fd, None) is not None

    def reads(self, fd: int) -> bool:
        """Whether somebody waits for what comes in there."""
        return fd in self._readers

    def readable(self, fd: int) -> None:
        """Tell who waits that something has come in."""
        self._ready.append(self._readers[fd])

    # The network.

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], Any], host: str, port: int, **_: object
    ) -> tuple[Any, Any]:
        return await self.network.connect(protocol_factory, host, port)

    async def create_server(  # type: ignore[override]
        self, protocol_factory: Callable[[], Any], host: str | None, port: int, **_: object
    ) -> Any:
        del host
        return self.network.listen(protocol_factory, port)

    # Running.

    def run_until_complete(self, future: Coroutine[Any, Any, Any]) -> Any:  # type: ignore[override]
        """Run until it is done.

        Raises:
            EndlessError: nothing is left that could ever end it.
        """
        asyncio._set_running_loop(self)
        try:
            task = self.create_task(future)
            while not task.done():
                self._step()
            return task.result()
        finally:
            asyncio._set_running_loop(None)

    def _step(self) -> None:
        if self._ready:
            handle = self._ready.popleft()
        elif self._timers:
            when, _, handle = heapq.heappop(self._timers)
            if not handle.cancelled():
                self._now = max(self._now, when)
        else:
            raise EndlessError("nothing is left to do")
        if handle.cancelled():
            return
        process = handle._context.get(PROCESS)  # type: ignore[attr-defined]
        if process is not None and process.is_dead:
            return
        handle._run()
        if self.halt is not None:
            raise self.halt

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return self._is_closed

    def close(self) -> None:
        self._is_closed = True

    def get_debug(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """End here: nothing in a worker may end in a way that nobody looks at."""
        self.halt = self.halt or EndlessError(f"nobody looks at {context}")
