"""What never changes of the dialogs that a destination's messages are on, so that the database says it once.

`take_plain` returns what is new: rows, and numbers of dialogs and message types. What those stand for is
remembered here and put beside it. A database that was restored, or replaced by a copy, may have given the
same numbers to other dialogs: it has another incarnation, and nothing of it is known yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple
from weakref import WeakKeyDictionary

from pybroker.workers.transport import statements
from pybroker.workers.transport.protocol import arrays, envelope
from pybroker.workers.transport.protocol.rows import Taken

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from psycopg import AsyncConnection

    from pybroker.workers.transport.protocol.rows import Described, TakenPlainly

Columns = tuple[bytes | None, ...]

# About a kilobyte each, of all destinations of all databases of a worker.
_MOST: Final = 20_000
# The columns of a batch that say what a dialog is, and the type of their elements: what never changes, and
# what may, which nobody looks at where a dialog is in the clear.
_LASTING: Final = {
    "conversation_ids": arrays.UUID,
    "from_initiator": arrays.BOOLEAN,
    "from_services": arrays.TEXT,
    "to_services": arrays.TEXT,
    "to_brokers": arrays.UUID,
    "contracts": arrays.TEXT,
    "expirations": arrays.TIMESTAMPTZ,
    "encrypted": arrays.BOOLEAN,
    "established": arrays.TEXT,
}
_CHANGING: Final = {
    "owners": arrays.TEXT,
    "far_users": arrays.TEXT,
    "bindings": arrays.TEXT,
    "session_keys": arrays.BYTEA,
}
_COLUMNS: Final = _LASTING | _CHANGING
_TO_BROKER: Final = tuple(_LASTING).index("to_brokers")
_ESTABLISHED: Final = tuple(_LASTING).index("established")
_IN_THE_CLEAR: Final = envelope.CLEAR.encode()
_NOT_ASKED_FOR: Final = (None,) * len(_CHANGING)
# The second one sees what the first one has held, as nothing of it had gone before.
_LOOKS: Final = 2


class Found(NamedTuple):
    """What was found, and the broker that it comes from; nothing if nothing waits."""

    taken: Taken | None = None
    from_broker: UUID | None = None


class Room:
    """How much may be remembered of all destinations together, as those may be many."""

    def __init__(self, most: int = _MOST) -> None:
        """Prepare.

        Args:
            most: dialogs and message types. Beyond it the destinations that were not sent to for longest are
                forgotten whole, and what they need is asked for anew.
        """
        self._most = most
        # In the order of their last use. A destination that is gone leaves by itself.
        self._sizes: WeakKeyDictionary[KnownDialogs, int] = WeakKeyDictionary()

    @property
    def remembered(self) -> int:
        """How many dialogs and message types are remembered."""
        return sum(self._sizes.values())

    def use(self, known: KnownDialogs, size: int) -> None:
        """Note that a destination is sent to, of which so much is remembered; make room for it."""
        has_grown = size > self._sizes.pop(known, 0)
        self._sizes[known] = size
        if not has_grown:
            return
        excess = self.remembered - self._most
        for other, others_size in list(self._sizes.items()):
            if excess <= 0:
                return
            other.forget()
            self._sizes[other] = 0
            excess -= others_size


_ROOM: Final = Room()


class KnownDialogs:
    """The dialogs of one destination."""

    def __init__(self, room: Room = _ROOM) -> None:
        """Prepare: nothing is known.

        Args:
            room: shared with other destinations.
        """
        self._room = room
        self._incarnation = ""
        self._dialogs: dict[int, Columns] = {}
        self._types: dict[int, bytes | None] = {}

    async def take(
        self,
        connection: AsyncConnection[Any],
        destination: int,
        lane: tuple[int, int],
        limits: tuple[int, int, int],
        *,
        is_sibling: bool = False,
    ) -> Found | None:
        """Return the next batch; None if something in it is odd, so that it is `take_small`'s.

        `is_sibling`: it stays within this worker, so nobody asks how its dialogs are secured.
        """
        try:
            return await self._take(connection, destination, lane, limits, is_sibling=is_sibling)
        finally:
            # Last, as there may be too many for all of them to stay.
            self._room.use(self, len(self._dialogs) + len(self._types))

    async def _take(
        self,
        connection: AsyncConnection[Any],
        destination: int,
        lane: tuple[int, int],
        limits: tuple[int, int, int],
        *,
        is_sibling: bool,
    ) -> Found | None:
        said = dict[int, Columns]()
        for _ in range(_LOOKS):
            plain = await statements.take_plain(connection, destination, lane, limits)
            if plain is None:
                return None
            if not plain.kinds:
                return Found()
            self._begin(plain.incarnation)
            endpoints = arrays.to_integers(plain.endpoint_nos, arrays.BIGINT)
            types = arrays.to_integers(plain.type_ids, arrays.INTEGER)
            dialogs = {one: said.get(one, self._dialogs.get(one)) for one in sorted(set(endpoints))}
            asked = [one for one in _to_ask(dialogs, is_sibling=is_sibling) if one not in said]
            new_types = list(set(types).difference(self._types))
            if asked or new_types:
                described = await statements.describe_dialogs(connection, asked, new_types)
                said |= self._learn(described, new_types)
                if described.is_fresh:
                    continue
                dialogs |= said
            known = {endpoint: columns for endpoint, columns in dialogs.items() if columns is not None}
            if len(known) < len(dialogs) or not self._types.keys() >= set(types):
                return None
            return Found(self._put_together(plain, endpoints, types, known), plain.from_broker)
        return None

    def _begin(self, incarnation: str) -> None:
        if incarnation != self._incarnation:
            self._incarnation = incarnation
            self.forget()

    def forget(self) -> None:
        """Forget all that is known."""
        self._dialogs.clear()
        self._types.clear()

    def _learn(self, described: Described, types: Sequence[int]) -> dict[int, Columns]:
        """Remember what was said that never changes; return all that was said of dialogs."""
        names = arrays.to_elements(described.type_names, arrays.TEXT) if described.type_names else []
        if len(names) == len(types):
            self._types.update(zip(types, names, strict=True))
        if not described.endpoint_nos:
            return {}
        columns = (arrays.to_elements(getattr(described, name), kind) for name, kind in _COLUMNS.items())
        said = dict(
            zip(
                arrays.to_integers(described.endpoint_nos, arrays.BIGINT),
                zip(*columns, strict=True),
                strict=True,
            )
        )
        self._dialogs |= {
            endpoint: (*one[: len(_LASTING)], *_NOT_ASKED_FOR)
            for endpoint, one in said.items()
            # Until its first message is acknowledged it may not be known which broker a dialog is with.
            if one[_TO_BROKER] is not None
        }
        return said

    def _put_together(
        self,
        plain: TakenPlainly,
        endpoints: Sequence[int],
        types: Sequence[int],
        dialogs: dict[int, Columns],
    ) -> Taken:
        acknowledged = dict(
            zip(endpoints, arrays.to_integers(plain.acknowledged, arrays.BIGINT), strict=True)
        )
        places = {endpoint: place for place, endpoint in enumerate(dialogs, 1)}
        type_places = {type_id: place for place, type_id in enumerate(dict.fromkeys(types), 1)}
        next_numbers = dict(acknowledged)
        numbers = []
        for endpoint in endpoints:
            numbers.append(next_numbers[endpoint])
            next_numbers[endpoint] += 1
        said = {
            name: arrays.from_elements(column, kind)
            for (name, kind), column in zip(
                _COLUMNS.items(), zip(*dialogs.values(), strict=True), strict=True
            )
        }
        return Taken(
            endpoint_nos=arrays.from_integers(dialogs, arrays.BIGINT),
            type_names=arrays.from_elements([self._types[one] for one in type_places], arrays.TEXT),
            dialog_index=arrays.from_integers([places[one] for one in endpoints], arrays.INTEGER),
            type_index=arrays.from_integers([type_places[one] for one in types], arrays.INTEGER),
            sequence_numbers=arrays.from_integers(numbers, arrays.BIGINT),
            kinds=plain.kinds,
            bodies=plain.bodies,
            row_ids=plain.row_ids,
            acknowledged=arrays.from_integers([acknowledged[one] for one in dialogs], arrays.BIGINT),
            sent_at=plain.sent_at,
            priority=plain.priority,
            is_plain=True,
            **said,
        )


def _to_ask(dialogs: dict[int, Columns | None], *, is_sibling: bool) -> list[int]:
    """Return what the database has to be asked about: certificates and bindings change."""
    return [
        endpoint
        for endpoint, columns in dialogs.items()
        if columns is None or not (is_sibling or columns[_ESTABLISHED] == _IN_THE_CLEAR)
    ]
