"""Reads the notification queue, and says which queues should be read."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import psycopg
import structlog
from lxml import etree

from pybroker.backoff import Backoff
from pybroker.client.broker_async import AsyncBroker, connect_async
from pybroker.errors import BrokerError
from pybroker.printable import one_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from structlog.typing import FilteringBoundLogger

    from pybroker.client.conversation_async import AsyncMessage
    from pybroker.workers.clock import Clock

EVENT_NOTIFICATION = "http://schemas.microsoft.com/SQL/Notifications/EventNotification"
# Who only may SEND to the notification queue's service begins no dialog from the broker's own service.
_FROM_BROKER = """
select conversation_handle from broker.conversation_endpoints
where conversation_handle = any(%s) and not is_initiator
  and far_service = 'http://schemas.microsoft.com/SQL/Notifications/EventNotificationService'
"""
# Bytes. An event names a queue and roles; what is longer is none, and is not parsed.
_LONGEST = 64 * 1024
# A wait ends now and then, so that a connection that was cut without a word is noticed.
WAIT_SECONDS = 30.0

logger: FilteringBoundLogger = structlog.get_logger()


class Notification(NamedTuple):
    """An event, and the queue that it is of."""

    event_type: str
    database: str
    schema: str
    queue: str


class Watcher:
    """A reader of one notification queue."""

    def __init__(self, url: str, queue: str, notify: Callable[[Notification], bool], clock: Clock) -> None:
        """Prepare, without connecting.

        Args:
            url: the database.
            queue: the notification queue.
            notify: is called for each queue that should be read; returns whether anybody is there for it.
            clock: what waits between attempts to connect.
        """
        self._url = url
        self._queue = queue
        self._notify = notify
        self._clock = clock
        self._broker: AsyncBroker | None = None

    async def open(self) -> None:
        """Connect, and see that the queue can be read.

        Raises:
            psycopg.OperationalError: the database can't be reached.
            BrokerError: there is no such queue, or no right to receive from it.
        """
        self._broker = await connect_async(self._url, application_name="pybroker activate")
        await self._broker.receive(self._queue, top=0)
        logger.info("activator_ready", notification_queue=self._queue)

    async def close(self) -> None:
        """Close the connection."""
        if self._broker is not None:
            await self._broker.close()
            self._broker = None

    async def run(self) -> None:
        """Read until cancelled. A lost connection, or a queue that is turned off, is tried again."""
        backoff = Backoff(0.5, 15.0)
        while True:
            try:
                if self._broker is None:
                    await self.open()
                await self._read()
                backoff.reset()
            except (psycopg.OperationalError, BrokerError) as error:
                pause = backoff.failed()
                logger.warning("notification_queue_not_read", error=one_line(error), next_attempt_in=pause)
                await self.close()
                await self._clock.sleep(pause)

    async def _read(self) -> None:
        assert self._broker is not None  # noqa: S101 - run has opened it
        # Many events of one queue in one batch came while nobody read: they ask for one more process.
        notifications: dict[Notification, None] = {}
        ended: list[AsyncMessage] = []
        async with self._broker.transaction() as transaction:
            messages = await self._broker.receive(self._queue, timeout=WAIT_SECONDS)
            handles = list({message.conversation_handle for message in messages})
            cursor = await (await transaction.connection()).execute(_FROM_BROKER, (handles,))
            of_broker = {handle for (handle,) in await cursor.fetchall()} if messages else set()
            for message in messages:
                if message.is_end_dialog or message.is_error:
                    ended.append(message)
                    await message.conversation.end()
                elif message.conversation_handle not in of_broker:
                    logger.warning("event_of_stranger", conversation=str(message.conversation_handle))
                elif (notification := _parse(message)) is not None:
                    notifications[notification] = None
        for message in ended:
            logger.warning(
                "event_notification_ended",
                error=message.error and message.error.description,
                conversation=str(message.conversation_handle),
            )
        for notification in notifications:
            details = notification._asdict()
            if notification.event_type != "QUEUE_ACTIVATION":
                logger.error("queue_event", **details)
            elif not self._notify(notification):
                logger.warning("no_application_for_queue", **details)


def _parse(message: AsyncMessage) -> Notification | None:
    names = ("EventType", "DatabaseName", "SchemaName", "ObjectName")
    try:
        if message.message_type_name == EVENT_NOTIFICATION and len(message.message_body or b"") <= _LONGEST:
            document = message.xml()
            return Notification(*(document.findtext(name) or "" for name in names))
    except etree.XMLSyntaxError:
        pass
    logger.warning("message_is_no_event", message_type=message.message_type_name)
    return None
