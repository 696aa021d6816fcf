"""A standby that becomes the primary right after definitions changed."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import psycopg
import pytest

from pybroker.embedded import EmbeddedServer
from tests.brokers import Site
from tests.conftest import SETTINGS
from tests.shop import DEFINITIONS, until
from tests.standby import follow_synchronously, standby_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.standby import Standby

READER = "create procedure read_orders() language plpgsql as 'begin end'"


@pytest.fixture
def promoted(any_server: EmbeddedServer, tmp_path: Path) -> Iterator[Standby]:
    """Yield a primary that was a standby when its queues were created, a moment ago."""
    with EmbeddedServer(version=any_server.version, listen=True, settings=SETTINGS) as server:
        site = Site("shop", server, tmp_path)
        try:
            site.listen(site.certificate())
            with standby_of(site) as standby:
                follow_synchronously(site)
                site.psql.rows(DEFINITIONS)
                site.psql.rows(READER)
                for options in (
                    "activation_procedure => 'read_orders', max_queue_readers => 1, activation_status => false",
                    "poison_action => 'QUARANTINE'",
                ):
                    site.psql.rows(f"select broker.alter_queue('warehouse', {options})")
                dialog = site.psql.dialog()
                for body in (b"1", b"2", b"3"):
                    site.psql.send(dialog, "order", body)
                site.close()
                standby.promote()
                standby.reconnect()
                yield standby
        finally:
            site.close()


def test_queues_made_just_before_a_promotion_are_received_from_once_a_worker_has_swept(
    promoted: Standby,
) -> None:
    psql = promoted.psql
    promoted.start_worker()
    received: list[bytes | None] = []

    def has_received() -> bool:
        # Until the worker has swept, the server says "bad magic number in sequence".
        with contextlib.suppress(psycopg.errors.InternalError_):
            received.extend(psql.bodies(top=1))
        return len(received) == 3

    until(has_received)
    assert received == [b"1", b"2", b"3"]
    # Rollbacks are counted as before.
    psql.send(psql.dialog())
    for _ in range(5):
        psql.rows("begin")
        assert len(psql.bodies()) == 1
        psql.rows("rollback")
    until(lambda: psql.value("select count(*) from broker.quarantine") == 1)
