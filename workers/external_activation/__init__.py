"""External activation: starts command lines when event notifications say that queues should be read.

`configuration` is what the operator writes, `applications` keeps the processes of one queue, `watcher` reads
the notification queue. It needs no worker's rights: it is a client, on any host.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pybroker.workers import cancellation
from pybroker.workers.clock import Clock
from pybroker.workers.external_activation.applications import Application
from pybroker.workers.external_activation.configuration import Configuration, ConfigurationError, read
from pybroker.workers.external_activation.watcher import Watcher

if TYPE_CHECKING:
    from pybroker.workers.external_activation.watcher import Notification

__all__ = ["Configuration", "ConfigurationError", "read", "run"]


async def run(
    url: str, configuration: Configuration, stop: asyncio.Event, *, grace: float, clock: Clock | None = None
) -> None:
    """Start command lines until `stop` is set; then tell the running ones to end, and wait for them.

    Args:
        url: the database with the notification queue.
        configuration: which command line is for which queue.
        stop: set by the caller to end.
        grace: seconds that the processes have to end; then they are killed.
        clock: what paces restarts.

    Raises:
        psycopg.OperationalError: the database can't be reached at the start.
        BrokerError: the notification queue can't be read at the start.
    """
    clock = clock or Clock()
    applications = [Application(one, clock) for one in configuration.application]

    def notify(notification: Notification) -> bool:
        matching = [application for application in applications if application.is_for(notification)]
        for application in matching:
            application.activate()
        return bool(matching)

    watcher = Watcher(url, configuration.notification_queue, notify, clock)
    await watcher.open()
    stopping = asyncio.create_task(stop.wait())
    parts = [asyncio.create_task(application.run()) for application in applications]
    parts.append(asyncio.create_task(watcher.run()))
    try:
        done, _ = await asyncio.wait((stopping, *parts), return_when=asyncio.FIRST_COMPLETED)
        for task in done - {stopping}:
            task.result()
    finally:
        await cancellation.end((stopping, *parts))
        await watcher.close()
        await asyncio.gather(*(application.finish(grace) for application in applications))
