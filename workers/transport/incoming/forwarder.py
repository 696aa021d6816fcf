"""Passes on what a route of the worker leads to another worker: in memory, without a key, and with no say.

The far side's answer to a batch is the answer to it here, so nothing is acknowledged that is not stored, and
a forwarder that dies has forgotten what its senders send again. All wait in one line: forwarding knows no
priorities.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec
import structlog
from psycopg.types.json import Jsonb

from pybroker.workers.transport import statements
from pybroker.workers.transport.protocol import arrays, faults, wire
from pybroker.workers.transport.protocol.faults import TransportError

if TYPE_CHECKING:
    from collections.abc import Callable

    from psycopg import AsyncConnection
    from structlog.typing import FilteringBoundLogger

    from pybroker.workers.clock import Clock
    from pybroker.workers.transport.outgoing.peer import Peer

# What could not be passed on for so long is forgotten, and its sender told.
STALE_SECONDS = 60.0
# The view shows so many messages of a worker, those that wait longest.
_SHOWN = 1000

logger: FilteringBoundLogger = structlog.get_logger()


class _DroppedError(TransportError):
    """A forwarder's own reason."""


@dataclass(eq=False)
class _Held:
    """A batch on its way through.

    Attributes:
        size: bytes of its contents.
        since: when it came, by the worker's clock.
        has_left: it is being sent, or is sent and not answered.
        passing: the exchange with the next worker.
    """

    batch: wire.Batch
    address: str
    size: int
    since: float
    has_left: bool = False
    is_stale: bool = False
    passing: asyncio.Task[wire.Ack] | None = None


class Forwarder:
    """Holds the batches that this worker passes on."""

    def __init__(
        self,
        outbound_to: Callable[[tuple[str, ...]], Peer],
        limit: Callable[[], int | None],
        clock: Clock,
    ) -> None:
        """Prepare.

        Args:
            outbound_to: returns the shared connection to an address (and its mirror).
            limit: how many bytes may be held now, or None: nothing is passed on.
            clock: says how long a batch was held.
        """
        self._outbound_to = outbound_to
        self._limit = limit
        self._clock = clock
        self._held: dict[_Held, None] = {}
        self._bytes = 0
        self._dropped: Counter[str] = Counter()
        self._was_shown = False

    async def relay(self, batch: wire.Batch, addresses: tuple[str, ...]) -> wire.Ack:
        """Pass a batch on to another worker, and return what became of it there.

        Raises:
            TransportError: It was not passed on, or the next worker refused it or was lost.
        """
        held = self._take_in(batch, addresses)
        onward_peer = self._outbound_to(addresses)

        def onward(number: int) -> wire.Batch:
            age = self._age_ms(held)
            if batch.time_consumed_ms + age >= batch.time_to_live_ms:
                raise self._drop("time to live", "it was on its way for longer than its sender allows")
            held.has_left = True
            return msgspec.structs.replace(
                batch,
                number=number,
                hops_remaining=batch.hops_remaining - 1,
                time_consumed_ms=batch.time_consumed_ms + age,
                # A number of the connection that it came by; the one before it was passed on already.
                after=None,
                traceparents=batch.traceparents if onward_peer.takes_traceparents else [],
            )

        held.passing = asyncio.create_task(onward_peer.exchange(onward), name="forward")
        held.passing.add_done_callback(lambda done: self._let_go(held, done))
        try:
            ack = await asyncio.shield(held.passing)
        except asyncio.CancelledError:
            if held.is_stale:
                raise self._drop("not forwarded", f"it could not be for {STALE_SECONDS:g} s") from None
            # What is being written is not cut off, or the connection that others share would be.
            if not held.has_left:
                held.passing.cancel()
            raise
        except _DroppedError:
            raise
        except TransportError:
            if not held.has_left:
                self._dropped["unreachable"] += 1
            raise
        return msgspec.structs.replace(ack, number=batch.number)

    def purge(self) -> None:
        """Drop what could not be forwarded within 60 seconds."""
        for held in tuple(self._held):
            if not held.has_left and held.passing is not None and self._age_ms(held) >= STALE_SECONDS * 1000:
                held.is_stale = True
                held.passing.cancel()
        self.tell_dropped()

    def tell_dropped(self) -> None:
        """Write into the log what was dropped since the last time."""
        for reason, batches in self._dropped.items():
            logger.warning("forwarded_messages_dropped", reason=reason, batches=batches)
        self._dropped.clear()

    async def tell(self, session: AsyncConnection[Any], worker: UUID) -> None:
        """Show in the home database what is held.

        Raises:
            psycopg.Error: it can't be written now.
        """
        self.tell_dropped()
        shown: list[dict[str, Any]] = []
        for held in self._held:
            # Nobody has looked into the arrays, and nobody here has to.
            with suppress(arrays.ArrayError, IndexError):
                shown += self._described(held)
            if len(shown) >= _SHOWN:
                break
        if shown or self._was_shown:
            await statements.note_forwarded_messages(session, worker, Jsonb(shown[:_SHOWN]))
        self._was_shown = bool(shown)

    def _take_in(self, batch: wire.Batch, addresses: tuple[str, ...]) -> _Held:
        limit = self._limit()
        if limit is None:
            raise TransportError(
                faults.FORWARDING_DISABLED,
                f'The service "{batch.to_service}" is at {addresses[0]} by a route of this worker,'
                " and message forwarding is disabled.",
            )
        if batch.hops_remaining == 0:
            raise self._drop("hops", "it passed as many workers as it may; do routes lead in a circle?")
        size = _size(batch)
        # A batch that is alone is no larger than what the line has brought already.
        if self._held and self._bytes + size > limit:
            raise self._drop("memory", f"message_forward_size, {limit // 2**20} MB, is used up")
        held = _Held(batch, addresses[0], size, self._clock.monotonic())
        self._held[held] = None
        self._bytes += size
        return held

    def _let_go(self, held: _Held, done: asyncio.Task[wire.Ack]) -> None:
        del self._held[held]
        self._bytes -= held.size
        if not done.cancelled():
            # Nobody may wait for it any more, and it would be reported as forgotten.
            done.exception()

    def _drop(self, reason: str, text: str) -> TransportError:
        self._dropped[reason] += 1
        return _DroppedError(faults.NOT_TRANSMITTED, f"A forwarder has dropped the message: {text}.")

    def _age_ms(self, held: _Held) -> int:
        return round((self._clock.monotonic() - held.since) * 1000)

    def _described(self, held: _Held) -> list[dict[str, Any]]:
        batch = held.batch
        conversations = arrays.to_elements(batch.conversation_ids, arrays.UUID)
        sides = arrays.to_booleans(batch.from_initiator)
        from_services = arrays.to_texts(batch.from_services)
        common = {
            "to_service_name": batch.to_service,
            "to_broker_instance": None if batch.to_broker is None else str(UUID(bytes=batch.to_broker)),
            "from_broker_instance": str(UUID(bytes=batch.from_broker)),
            "adjacent_broker_address": held.address,
            "piece_at": batch.piece_at if isinstance(batch, wire.Fragment) else 0,
            "hops_remaining": batch.hops_remaining - 1,
            "time_to_live_ms": batch.time_to_live_ms,
            "time_consumed_ms": batch.time_consumed_ms + self._age_ms(held),
        }
        return [
            common
            | {
                "conversation_id": (conversations[dialog - 1] or b"").hex() or None,
                "is_initiator": sides[dialog - 1],
                "from_service_name": (from_services[dialog - 1] or "").replace("\0", ""),
                "kind": kind,
                "message_sequence_number": number,
            }
            for dialog, number, kind in zip(
                arrays.to_integers(batch.dialog_index, arrays.INTEGER),
                arrays.to_integers(batch.sequence_numbers, arrays.BIGINT),
                batch.kinds,
                strict=True,
            )
        ]


def _size(batch: wire.Batch) -> int:
    fields = (getattr(batch, name) for name in batch.__struct_fields__)
    contents = (*fields, *batch.key_exchanges, *(context for _, context in batch.traceparents))
    return sum(len(content) for content in contents if isinstance(content, (bytes, str)))
