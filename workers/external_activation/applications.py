"""The processes of one queue: started when the queue should be read, kept between a minimum and a maximum."""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import DEVNULL
from typing import TYPE_CHECKING

import structlog

from pybroker.backoff import Backoff

if TYPE_CHECKING:
    from asyncio.subprocess import Process

    from structlog.typing import FilteringBoundLogger

    from pybroker.workers.clock import Clock
    from pybroker.workers.external_activation.configuration import ApplicationConfiguration
    from pybroker.workers.external_activation.watcher import Notification

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 60.0
# One that is to run all the time and ends sooner has not worked, whatever it says.
QUICK = 1.0

# Service Broker's number for an activated task that ended with an error.
_FAILED = 28088

logger: FilteringBoundLogger = structlog.get_logger()


class Application:
    """One command line, and the processes that run it."""

    def __init__(self, configuration: ApplicationConfiguration, clock: Clock) -> None:
        self._configuration = configuration
        self._clock = clock
        self._running: dict[asyncio.Task[None], Process] = {}
        self._is_wanted = False
        self._changed = asyncio.Event()
        # A process that failed delays the next one, more with each failure.
        self._not_before = 0.0
        self._failures = Backoff(FIRST_PAUSE, LONGEST_PAUSE)
        self._log: FilteringBoundLogger = logger.bind(
            queue=configuration.queue, command=" ".join(configuration.command)
        )

    def is_for(self, notification: Notification) -> bool:
        """Tell whether the notification is of this application's queue."""
        wanted = self._configuration
        return (
            wanted.queue == notification.queue
            and wanted.schema in {None, notification.schema}
            and wanted.database in {None, notification.database}
        )

    def activate(self) -> None:
        """Have one more process, unless there are as many as there may be."""
        if len(self._running) < self._configuration.maximum_instances:
            self._is_wanted = True
            self._changed.set()

    async def run(self) -> None:
        """Start what is due until cancelled. The processes go on then; `finish` ends them."""
        while True:
            self._changed.clear()
            while self._is_short() and self._clock.monotonic() >= self._not_before:
                self._is_wanted = False
                await self._start()
                if len(self._running) >= self._configuration.maximum_instances:
                    # Whoever has asked meanwhile asked for more than there may be, and is not owed it later.
                    self._is_wanted = False
            if self._is_short():
                await self._clock.wait(self._changed, self._not_before - self._clock.monotonic())
            else:
                await self._changed.wait()

    async def finish(self, grace: float) -> None:
        """Tell the processes to end (SIGTERM), and kill those that have not after `grace` seconds."""
        if not self._running:
            return
        self._log.info("instances_stopping", instances=len(self._running), grace=grace)
        for process in self._running.values():
            _signal(process, signal.SIGTERM)
        _, pending = await asyncio.wait(self._running, timeout=grace)
        for task in pending:
            self._log.warning("instance_killed", pid=self._running[task].pid)
            _signal(self._running[task], signal.SIGKILL)
        if pending:
            await asyncio.wait(pending)

    def _is_short(self) -> bool:
        number = len(self._running)
        return number < self._configuration.minimum_instances or (
            self._is_wanted and number < self._configuration.maximum_instances
        )

    async def _start(self) -> None:
        try:
            process = await asyncio.create_subprocess_exec(
                *self._configuration.command,
                cwd=self._configuration.directory,
                stdin=DEVNULL,
                # Ctrl-C is for the activator, which ends its processes in order.
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            self._pause("command_not_started", error=str(error))
            return
        self._log.info("instance_started", pid=process.pid, instances=len(self._running) + 1)
        task = asyncio.create_task(self._wait_for(process, self._clock.monotonic()))
        self._running[task] = process
        task.add_done_callback(self._ended)

    async def _wait_for(self, process: Process, started: float) -> None:
        code = await process.wait()
        seconds = self._clock.monotonic() - started
        is_missed = len(self._running) <= self._configuration.minimum_instances
        if code != 0 or (is_missed and seconds < QUICK):
            if seconds > LONGEST_PAUSE:
                self._failures.reset()
            self._pause("instance_failed", pid=process.pid, exit_code=code)
        else:
            self._failures.reset()
            self._log.info("instance_ended", pid=process.pid)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._running[task]
        self._changed.set()

    def _pause(self, event: str, **details: object) -> None:
        pause = self._failures.failed()
        self._not_before = self._clock.monotonic() + pause
        self._log.error(event, number=_FAILED, next_start_in=pause, **details)


def _signal(process: Process, number: signal.Signals) -> None:
    """Send a signal: SIGKILL to the process and all that it has started, any other to itself alone."""
    try:
        if number == signal.SIGKILL:
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
    except ProcessLookupError:
        return
