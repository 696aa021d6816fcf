"""That no message key of a dialog is used twice, whatever becomes of its databases and workers: row 120."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import psycopg

from pybroker.workers.transport.protocol import arrays, envelope
from tests.brokers import Site, two_sites
from tests.conformance.test_h_dialog_security import Listener, forged
from tests.shop import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pybroker.embedded import EmbeddedServer


def test_no_key_is_used_twice_after_a_restore_or_by_two_workers(
    tmp_path: Path, server_for: Callable[[str, int], EmbeddedServer]
) -> None:
    with two_sites(tmp_path, server_for=server_for) as (shop, warehouse), ExitStack() as stack:
        listener = Listener(warehouse.port, shop.port)
        there, back = listener.proxies
        for proxy in listener.proxies:
            stack.callback(proxy.close)
        for site in (shop, warehouse):
            site.psql.rows("select broker.alter_endpoint('endpoint', encryption => 'DISABLED')")
        shop.psql.rows(
            "select broker.create_remote_service_binding('binding', '//warehouse', 'warehouse_user')"
        )
        for site, service, proxy in ((shop, "//warehouse", there), (warehouse, "//shop", back)):
            address = f"tcp://{proxy.host}:{proxy.port}"
            site.psql.rows("select broker.alter_route(%s, %s)", service, address)
        dialog = shop.psql.dialog()
        # No answer is what the target said, so all is sent again and again.
        listener.changes = forged
        warehouse.start_worker()
        shop.start_worker()
        shop.psql.send(dialog, "order", b"one")
        until(lambda: len(listener.envelopes("//warehouse")) >= 2)
        assert shop.stop_worker() == 0
        restore(shop)
        sent = len(listener.envelopes("//warehouse"))
        shop.start_worker()
        first = shop.worker
        assert first is not None
        stack.callback(first.wait)
        stack.callback(first.kill)
        shop.start_worker()
        shop.psql.send(dialog, "order", b"two")
        until(lambda: len(listener.envelopes("//warehouse")) >= sent + 4)
        listener.changes = None
        bodies: list[bytes | None] = []
        while len(bodies) < 2:
            bodies += [body for _, _, body in warehouse.psql.receive(timeout="120 s")]
        assert bodies == [b"one", b"two"]
        sealed: dict[bytes, tuple[bytes, bytes]] = {}
        for batch in listener.batches("//warehouse"):
            (encoded,) = arrays.to_elements(batch.envelopes, arrays.BYTEA)
            assert encoded is not None
            # A message key comes from the session key, which stays the same, and the salt.
            salt = envelope.decode_envelope(encoded).salt
            assert sealed.setdefault(salt, (encoded, batch.bodies)) == (encoded, batch.bodies)
        assert len(sealed) >= 6


def restore(site: Site) -> None:
    """Put the database back to what it is now, as from a backup."""
    site.psql.connection.close()
    with psycopg.connect(site.server.url("postgres"), autocommit=True) as session:
        session.execute(f"create database {site.name}_saved template {site.name}".encode())
        session.execute(f"drop database {site.name} with (force)".encode())
        session.execute(f"create database {site.name} template {site.name}_saved".encode())
        session.execute(f"drop database {site.name}_saved".encode())
    site.psql = site.session()
    site.psql.rows("select broker.alter_broker('ENABLE_BROKER')")
