"""Dialog security as sender and receiver ask for it: one for a worker, over all of its databases."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pybroker.workers.transport import statements
from pybroker.workers.transport.dialog_security.certificates import DialogCertificates
from pybroker.workers.transport.dialog_security.key_store import KeyStore
from pybroker.workers.transport.dialog_security.opening import Opener
from pybroker.workers.transport.dialog_security.sealing import KeyExchanges, Sealer, is_plain

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import Any
    from uuid import UUID

    from psycopg import AsyncConnection

    from pybroker.workers.clock import Clock
    from pybroker.workers.database import Database
    from pybroker.workers.transport.dialog_security.opening import Opened
    from pybroker.workers.transport.dialog_security.sealing import Plans, Sealed
    from pybroker.workers.transport.protocol import wire
    from pybroker.workers.transport.protocol.rows import Taken


class SecureDialogs:
    """Decides, seals and opens, by the certificates of each database and the keys of the worker."""

    def __init__(self, databases: Sequence[Database], key_directory: Path | None, clock: Clock) -> None:
        """Prepare, without reading.

        Args:
            databases: all that the worker serves.
            key_directory: where private keys and the master key are.
            clock: says what is valid, and when to look again.
        """
        self._key_store = KeyStore(key_directory, clock)
        self._certificates = {database: DialogCertificates(clock) for database in databases}
        exchanges = KeyExchanges(clock)
        self._sealers = {
            database: Sealer(self._key_store, certificates, exchanges, clock)
            for database, certificates in self._certificates.items()
        }
        self._opener = Opener(self._key_store, clock)

    async def plan(self, connection: AsyncConnection[Any], database: Database, taken: Taken) -> Plans | None:
        """Decide how a batch leaves, in the transaction that took it; None if nothing of it is to be sealed.

        What leaves for the first time is noted, unless something is held.

        Raises:
            ArrayError: What was taken is not what `take` returns.
        """
        if is_plain(taken):
            return None
        await self._refresh(connection, database)
        plans = self._sealers[database].plan(taken)
        if plans.pins and not plans.held:
            endpoint_nos, kinds, keys = map(list, zip(*plans.pins, strict=True))
            await statements.note_dialog_security(connection, endpoint_nos, kinds, keys)
        return plans

    def seal(
        self,
        database: Database,
        taken: Taken,
        plans: Plans | None,
        from_broker: UUID,
        piece: tuple[int, int] | None = None,
    ) -> Sealed | None:
        """Seal a batch of which nothing is held; None if nothing of it is to be sealed.

        `piece` is where a fragment's piece begins, and how long its whole body is.
        """
        if plans is None:
            return None
        return self._sealers[database].seal(taken, plans, from_broker, piece)

    async def open(self, connection: AsyncConnection[Any], database: Database, batch: wire.Batch) -> Opened:
        """Open a batch that came from a far broker.

        Raises:
            ArrayError: The batch is malformed.
        """
        await self._refresh(connection, database)
        return self._opener.open(batch, self._certificates[database])

    async def _refresh(self, connection: AsyncConnection[Any], database: Database) -> None:
        await self._certificates[database].refresh(connection)
        await self._key_store.refresh()
