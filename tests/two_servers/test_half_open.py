"""A worker whose session hears nothing any more, and is not told: messages flow on, and it takes a new session."""

from __future__ import annotations

import asyncio
from contextlib import closing
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pybroker.workers import database as worker_database
from tests.brokers import Site, two_sites
from tests.conftest import migrated_database
from tests.proxy import Proxy
from tests.shop import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pybroker.embedded import EmbeddedServer

MESSAGES = 20
SLEEPERS = "select pid from pg_stat_activity where application_name like '%wake-ups' and datname = current_database()"


def bodies_of(site: Site, count: int) -> list[bytes | None]:
    return [body for _, _, body in site.psql.received(count)]


def test_a_listening_session_that_vanished_is_replaced_and_nothing_is_lost_or_doubled(
    tmp_path: Path, server_for: Callable[[str, int], EmbeddedServer]
) -> None:
    """PostgreSQL keeps the old session, and the queues that it sleeps on, until its own keepalive gives up."""
    with two_sites(tmp_path, server_for=server_for) as (shop, warehouse):
        direct = conninfo_to_dict(shop.url)
        with closing(Proxy(int(str(direct["port"])))) as line:
            shop.url = make_conninfo(shop.url, port=line.port, sslmode="disable", gssencmode="disable")
            shop.start_worker()
            warehouse.start_worker()
            dialog = shop.psql.value(
                "select broker.begin_dialog('//shop', '//warehouse', 'ordering', encryption => false)"
            )
            shop.psql.send(dialog, "order", b"before")
            assert bodies_of(warehouse, 1) == [b"before"]
            old = until(lambda: shop.psql.rows(SLEEPERS))
            assert line.swallow(b"wake-ups") == 1
            bodies = [str(number).encode() for number in range(MESSAGES)]
            for body in bodies:
                shop.psql.send(dialog, "order", body)
            assert bodies_of(warehouse, MESSAGES) == bodies
            until(lambda: set(shop.psql.rows(SLEEPERS)) - set(old))
            assert set(old) < set(shop.psql.rows(SLEEPERS))
            shop.psql.send(dialog, "order", b"after")
            assert bodies_of(warehouse, 1) == [b"after"]
            assert warehouse.psql.bodies() == []
            until(lambda: shop.psql.value("select count(*) from broker.transmission_queue") == 0)


def test_connections_that_all_fell_silent_are_replaced(
    server_for: Callable[[str, int], EmbeddedServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy whose other side is gone may acknowledge what it is sent: TCP notices nothing."""
    server = server_for("silent", 18)
    migrated_database(server, "silent")
    direct = server.tcp_url("silent")

    async def play(line: Proxy) -> None:
        url = make_conninfo(direct, port=line.port, sslmode="disable", gssencmode="disable")
        async with worker_database.Database(url) as served:

            async def answer() -> None:
                async with served.statement() as connection:
                    await connection.execute("select 1")

            # Some more wait in the pool.
            await asyncio.gather(*(answer() for _ in range(4)))
            assert line.swallow(b"") >= 1
            # What is to be answered has all the time that a busy machine takes.
            with monkeypatch.context() as impatient:
                impatient.setattr(worker_database, "LONGEST_LOAN", 1.0)
                with pytest.raises(psycopg.OperationalError, match="no answer within 1 s"):
                    await answer()
            await answer()

    with closing(Proxy(int(str(conninfo_to_dict(direct)["port"])))) as line:
        asyncio.run(play(line))
