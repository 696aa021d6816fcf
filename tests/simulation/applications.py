"""Applications on both sides: they send, receive, answer and end, and keep a ledger in the same transactions."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import AsyncConnection

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from typing import LiteralString
    from uuid import UUID

_IS_IN_ERROR = "S8429"
# Seconds between two looks of an application at its queue, in which nobody stirs it.
_LONGEST_PAUSE = 20.0
# And before it looks at what it was stirred for.
_REACTIONS = (0.0, 0.01, 0.1, 0.5)
_STATE = """
select d.name, d.handle, d.is_ended,
  (select count(*) from sent s where s.dialog = d.name), (select count(*) from received r where r.dialog = d.name),
  d.timers_fired
from dialogs d order by d.name
"""

# The state is DO where an end has yet to be sent, which is so of each but those in error.
_WAS_IN_ERROR = """
insert into ends (dialog, kind, body)
select %s, 'not received/Error', '<Code>-9719</Code>'
where not exists (select from broker.conversation_endpoints where conversation_handle = %s and state = 'DO')
"""


@dataclass(frozen=True)
class Dialog:
    """What is to happen on a dialog.

    Attributes:
        orders: how many the initiator sends.
        size: bytes of each at least.
        waits: whether the initiator ends it only when all answers are there.
        with_error: whether the initiator ends it with an error.
        timers: how many the initiator sets, each when the one before has fired; it ends after the last.
    """

    name: str
    orders: int
    size: int
    waits: bool
    with_error: bool
    timers: int = 0

    def body(self, number: int, life: int) -> str:
        """Return an order's body; `life`: how often the sender's database has gone back."""
        return f"{self.name}:{number}:{life}:".ljust(self.size, "x")


class Application:
    """One session of an application, opened again whenever it is lost.

    Attributes:
        stirred: set by somebody else when its queue may have a message for it.
    """

    def __init__(
        self,
        url: str,
        random: random.Random,
        received: Callable[[AsyncConnection[Any], UUID], None],
        life: Callable[[], int],
    ) -> None:
        """Prepare.

        Args:
            url: the database's.
            random: what it decides by.
            received: told of each group that messages were received of.
            life: how often the database has gone back.
        """
        self._url = url
        self._random = random
        self._received = received
        self._life = life
        # Dialogs in error, of which the Error has not been received yet.
        self._in_error: set[UUID] = set()
        self._idle = 0.5
        self.stirred = asyncio.Event()

    def forget(self) -> None:
        """Forget what was seen of a database that goes back."""
        self._in_error.clear()

    async def run(self) -> None:
        """Work until there is nothing more to do."""
        while not await self._work():  # noqa: ASYNC110 - nothing sets an event when the server is back
            await asyncio.sleep(self._random.uniform(0.1, 2.0))

    async def _work(self) -> bool:
        """Work with one session; return False if it was lost."""
        connection = None
        try:
            connection = await AsyncConnection.connect(self._url, application_name="application")
            while await self._turn(connection):
                # Who finds nothing looks less often.
                self._idle = min(self._idle * 2, _LONGEST_PAUSE)
                await self._pause(self._idle * self._random.choice((0.05, 0.2, 1.0)))
                self.stirred.clear()
        except psycopg.OperationalError:
            return False
        finally:
            if connection is not None:
                await connection.close()
        return True

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self.stirred.wait()
        except TimeoutError:
            return
        await asyncio.sleep(self._random.choice(_REACTIONS))

    async def _turn(self, connection: AsyncConnection[Any]) -> bool:
        raise NotImplementedError

    async def _receive(self, connection: AsyncConnection[Any], queue: str) -> list[Any]:
        cursor = await connection.execute(
            "select conversation_group_id, conversation_handle, message_type_name,"
            " convert_from(substr(message_body, 1, 200), 'UTF8') from broker.receive(%s, top => %s)",
            (queue, self._random.choice((1, 2, 10))),
        )
        messages = await cursor.fetchall()
        if messages:
            self._idle = 0.5
        for group in {message[0]: None for message in messages}:
            self._received(connection, group)
        return messages

    async def _unless_in_error(
        self, connection: AsyncConnection[Any], handle: UUID, call: LiteralString, *values: Any
    ) -> bool:
        """Call a function of a dialog; if it is in error, roll all back and return False."""
        try:
            await connection.execute(call, (handle, *values))
        except psycopg.DatabaseError as error:
            if error.sqlstate != _IS_IN_ERROR:
                raise
            self._in_error.add(handle)
            await connection.rollback()
            return False
        return True

    async def _note_end(
        self, connection: AsyncConnection[Any], handle: UUID, kind: str, body: str | None
    ) -> None:
        await connection.execute(
            "insert into ends (dialog, kind, body) values (%s, %s, %s)", (handle, kind, body)
        )

    async def _finish(self, connection: AsyncConnection[Any]) -> None:
        if self._random.random() < 0.1:
            await connection.rollback()
        else:
            await connection.commit()


class Initiator(Application):
    """Begins dialogs, sends orders on them, and ends them."""

    def __init__(self, *arguments: Any, dialogs: list[Dialog], stays: Callable[[], bool]) -> None:
        super().__init__(*arguments)
        self._dialogs = dialogs
        # Whether dialogs that are over may still begin anew.
        self._stays = stays

    async def _turn(self, connection: AsyncConnection[Any]) -> bool:
        state = {name: rest for name, *rest in await (await connection.execute(_STATE)).fetchall()}
        await connection.rollback()
        missing = [dialog for dialog in self._dialogs if dialog.name not in state]
        open_ones = [dialog for dialog in self._dialogs if dialog.name in state and not state[dialog.name][1]]
        if not missing and not open_ones and not self._stays():
            return False
        ready = [dialog for dialog in open_ones if state[dialog.name][2] < dialog.orders]
        if missing or ready:
            self._idle = 0.5
        if missing and self._random.random() < 0.5:
            await self._begin(connection, missing[0])
            return True
        if ready and self._random.random() < 0.6:
            await self._send(connection, self._random.choice(ready))
            return True
        for dialog in open_ones:
            _, _, sent, answers, fired = state[dialog.name]
            if sent == dialog.orders and fired == dialog.timers and (not dialog.waits or answers == sent):
                self._idle = 0.5
                if self._random.random() < 0.5:
                    await self._end(connection, dialog)
                    return True
        for _, handle, kind, body in await self._receive(connection, "shop"):
            if kind == "ack":
                await _note(connection, "received", body)
            elif kind.endswith("/DialogTimer"):
                if not await self._note_timer(connection, handle):
                    return True
            else:
                await self._note_end(connection, handle, kind, body)
                await connection.execute("update dialogs set is_ended = true where handle = %s", (handle,))
                await connection.execute("select broker.end_conversation(%s)", (handle,))
        await self._finish(connection)
        return True

    async def _begin(self, connection: AsyncConnection[Any], dialog: Dialog) -> None:
        try:
            await connection.execute(
                "insert into dialogs (name, handle)"
                " select %s, broker.begin_dialog('//shop', '//warehouse', 'ordering', encryption => false)",
                (dialog.name,),
            )
        except psycopg.errors.UniqueViolation:
            # Another session was quicker.
            await connection.rollback()
            return
        if dialog.timers:
            await self._set_timer(connection, dialog.name)
        await self._finish(connection)

    async def _set_timer(self, connection: AsyncConnection[Any], name: str) -> None:
        await connection.execute(
            "select broker.begin_conversation_timer(handle, %s) from dialogs where name = %s",
            (timedelta(seconds=self._random.choice((0.2, 1.0, 4.0))), name),
        )

    async def _note_timer(self, connection: AsyncConnection[Any], handle: UUID) -> bool:
        """Note that one has fired, and set the next; return False if all was rolled back."""
        cursor = await connection.execute(
            "update dialogs set timers_fired = timers_fired + 1 where handle = %s returning name, timers_fired",
            (handle,),
        )
        name, fired = await anext(cursor)
        (dialog,) = (each for each in self._dialogs if each.name == name)
        if fired == dialog.timers or handle in self._in_error:
            return True
        pause = timedelta(seconds=self._random.choice((0.2, 1.0, 4.0)))
        return await self._unless_in_error(
            connection, handle, "select broker.begin_conversation_timer(%s, %s)", pause
        )

    async def _send(self, connection: AsyncConnection[Any], dialog: Dialog) -> None:
        handle, sent = await self._locked(connection, dialog)
        many = self._random.choice((1, 1, 2, 4, 8))
        is_sending = handle is not None and handle not in self._in_error
        for number in range(sent + 1, min(sent + many, dialog.orders) + 1) if is_sending else ():
            body = dialog.body(number, self._life())
            await _note(connection, "sent", body)
            call = "select broker.send(%s, 'order', %s::text)"
            if not await self._unless_in_error(connection, handle, call, body):
                return
        await self._finish(connection)

    async def _end(self, connection: AsyncConnection[Any], dialog: Dialog) -> None:
        handle, _ = await self._locked(connection, dialog)
        if handle:
            error = (1, "enough") if dialog.with_error else (None, None)
            await connection.execute("select broker.end_conversation(%s, %s, %s)", (handle, *error))
            if not dialog.with_error:
                # Who ends a dialog that is in error, before the Error was received, is not told of it any more.
                await connection.execute(_WAS_IN_ERROR, (handle, handle))
            await connection.execute("update dialogs set is_ended = true where name = %s", (dialog.name,))
        await self._finish(connection)

    async def _locked(self, connection: AsyncConnection[Any], dialog: Dialog) -> tuple[UUID | None, int]:
        """Keep other sessions from the dialog; return its handle, unless it was ended, and how much was sent."""
        await connection.execute("select from dialogs where name = %s for update", (dialog.name,))
        cursor = await connection.execute(
            "select handle, is_ended, (select count(*) from sent s where s.dialog = d.name) from dialogs d"
            " where name = %s",
            (dialog.name,),
        )
        handle, is_ended, sent = await anext(cursor)
        return (None if is_ended else handle), sent


class Target(Application):
    """Receives orders and answers each, for ever."""

    async def _turn(self, connection: AsyncConnection[Any]) -> bool:
        for _, handle, kind, body in await self._receive(connection, "warehouse"):
            if kind == "order":
                await _note(connection, "received", body)
                # Its Error may be behind this order.
                if handle in self._in_error:
                    continue
                dialog, number, _, rest = body.split(":", 3)
                answer = f"{dialog}:{number}:{self._life()}:{rest}"
                await _note(connection, "sent", answer)
                call = "select broker.send(%s, 'ack', %s::text)"
                if not await self._unless_in_error(connection, handle, call, answer):
                    return True
            else:
                await self._note_end(connection, handle, kind, body)
                await connection.execute("select broker.end_conversation(%s)", (handle,))
        await self._finish(connection)
        return True


async def _note(connection: AsyncConnection[Any], ledger: str, body: str) -> None:
    dialog, number, life, _ = body.split(":", 3)
    await connection.execute(
        f"insert into {ledger} (dialog, number, life) values (%s, %s, %s)".encode(),
        (dialog, int(number), int(life)),
    )
