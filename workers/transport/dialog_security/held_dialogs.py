"""The dialogs that can't be secured as they should be: left out for a while, and told why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import structlog

from pybroker.workers.transport import statements
from pybroker.workers.transport.dialog_security.decision import UnboundError
from pybroker.workers.transport.outgoing.peer import FIRST_PAUSE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from psycopg import AsyncConnection
    from structlog.typing import FilteringBoundLogger

    from pybroker.workers.clock import Clock
    from pybroker.workers.transport.protocol.faults import TransportError
    from pybroker.workers.transport.protocol.rows import Taken

# Until it is looked again whether a binding, a certificate or a key is there that was missing. Where many
# thousands wait it takes longer, or a look at all of them would never end; but less than the 25 s that are
# promised for a key, as what the worker knows of its directory may be two seconds old.
_SECONDS: Final = 2.0
_LONGEST_SECONDS: Final = 20.0
_DIALOGS_A_SECOND: Final = 2000

logger: FilteringBoundLogger = structlog.get_logger()


class HeldDialogs:
    """Which dialogs wait, and until when nobody looks at them."""

    def __init__(self, database_name: str, clock: Clock) -> None:
        """Prepare.

        Args:
            database_name: where they are, for the log.
            clock: says when they are looked at again.
        """
        self._database_name = database_name
        self._clock = clock
        self._until: dict[int, float] = {}
        self._because: str | None = None

    def endpoints(self) -> list[int]:
        """Return those that are not to be looked at yet."""
        now = self._clock.monotonic()
        self._until = {endpoint: until for endpoint, until in self._until.items() if until > now}
        return list(self._until)

    async def hold(
        self,
        connection: AsyncConnection[Any],
        taken: Taken,
        held: Sequence[tuple[int, TransportError | None]],
    ) -> bool:
        """Undo the transaction that took their messages; return whether their status says why they wait now.

        Without a reason they wait for a moment, as their batch had room for no more keys.
        """
        # They were not sent: what `take` noted must not stay, or another route would come too late for them.
        await connection.rollback()
        now = self._clock.monotonic()
        seconds = min(_SECONDS + len(self._until) / _DIALOGS_A_SECOND, _LONGEST_SECONDS)
        for endpoint, fault in held:
            self._until[endpoint] = now + (FIRST_PAUSE if fault is None else seconds)
        faulty = [(endpoint, fault) for endpoint, fault in held if fault is not None]
        unbound = [endpoint for endpoint, fault in faulty if isinstance(fault, UnboundError)]
        if unbound:
            await statements.hold_unbound(connection, unbound)
        others = [(e, str(fault)) for e, fault in faulty if not isinstance(fault, UnboundError)]
        if others:
            await statements.set_dialog_statuses(connection, *map(list, zip(*others, strict=True)))
        if faulty and str(faulty[0][1]) != self._because:
            first = faulty[0][1]
            self._because = str(first)
            logger.info(
                "dialogs_held",
                database=self._database_name,
                dialogs=len(faulty),
                number=first.number,
                reason=first.text,
                conversation_ids=taken.conversations({endpoint for endpoint, _ in faulty}),
            )
        return bool(faulty)
