"""What is not encrypted: messages between the databases of one worker, whatever their dialogs ask for."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.conftest import migrated_database
from tests.patience import PATIENCE
from tests.proxy import proxy_to
from tests.shop import Session

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pybroker.embedded import EmbeddedServer

NAMES = ("within_shop", "within_warehouse")
SECRET = b"a secret between two databases of one worker"


def test_row_121_messages_within_an_instance_pass_in_the_clear_though_encryption_is_on(
    tmp_path: Path, server_for: Callable[[str, int], EmbeddedServer]
) -> None:
    server = server_for("within", 18)
    for name in NAMES:
        migrated_database(server, name)
    sessions = [Session(psycopg.connect(server.url(name), autocommit=True)) for name in NAMES]
    shop, warehouse = sessions
    for session, service in zip(sessions, ("//shop", "//warehouse"), strict=True):
        session.rows("select broker.create_queue('queue')")
        session.rows("select broker.create_service(%s, 'queue', '{DEFAULT}')", service)
    address = conninfo_to_dict(server.tcp_url(NAMES[1]))
    with proxy_to(int(str(address["port"]))) as proxy, (tmp_path / "worker.log").open("w") as log:
        proxy.seen = bytearray()
        # Whoever wants these bytes hidden has the server's TLS: here there is none, so they can be looked at.
        there = make_conninfo(server.tcp_url(NAMES[1]), host=proxy.host, port=proxy.port, sslmode="disable")
        urls = [part for url in (server.tcp_url(NAMES[0]), there) for part in ("--database-url", url)]
        worker = subprocess.Popen([sys.executable, "-m", "pybroker", "worker", *urls], stdout=log, stderr=log)
        try:
            dialog = shop.value("select broker.begin_dialog('//shop', '//warehouse', encryption => true)")
            shop.rows("select broker.send(%s, 'DEFAULT', %s::bytea)", dialog, SECRET)
            assert warehouse.bodies("queue", timeout="120 s") == [SECRET]
        finally:
            worker.terminate()
            worker.wait(timeout=PATIENCE)
        assert SECRET in proxy.seen
        encrypted = "select is_encrypted from broker.conversation_endpoints"
        assert (shop.rows(encrypted), warehouse.rows(encrypted)) == ([(True,)], [(True,)])
    for session in sessions:
        session.connection.close()
    with psycopg.connect(server.url("postgres"), autocommit=True) as admin:
        for name in NAMES:
            admin.execute(f'drop database "{name}" with (force)'.encode())
