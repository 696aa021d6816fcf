"""`python -m tests.bench.poison`: how many rollbacks it takes until a queue is off, by readers at the same time.

A transaction that has rolled back leaves nothing but the value of a sequence, and a queue has two of them for its
rollbacks. So of many readers some go uncounted (sql/poison/note_receive.sql). Each reader receives one message, of a
group of its own, works for 5 ms, and rolls back, again and again, until the queue refuses.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import psycopg

from pybroker.embedded import EmbeddedServer
from tests.conftest import migrated_database
from tests.shop import DEFINITIONS

READERS = (1, 2, 3, 6, 24)
WORK_SECONDS = 0.005
RECEIVE = b"select conversation_handle from broker.receive('warehouse', 1)"


def rollbacks(url: str, readers: int) -> int:
    """Return how many transactions that received something rolled back until the queue was off."""
    counted, lock, together = 0, threading.Lock(), threading.Barrier(readers)

    def read() -> None:
        nonlocal counted
        with psycopg.connect(url) as session:
            together.wait()
            while True:
                try:
                    received = session.execute(RECEIVE).fetchall()
                    time.sleep(WORK_SECONDS)
                except psycopg.Error as error:
                    if error.sqlstate != "S9617":
                        raise
                    return
                finally:
                    session.rollback()
                if received:
                    with lock:
                        counted += 1

    with ThreadPoolExecutor(readers) as pool:
        for reader in [pool.submit(read) for _ in range(readers)]:
            reader.result()
    return counted


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests.bench.poison", description=__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="times that each is counted (default 9)")
    options = parser.parse_args()
    with EmbeddedServer(listen=True) as server:
        url = migrated_database(server, "poison").url
        with psycopg.connect(url, autocommit=True) as session:
            session.execute(DEFINITIONS.encode())
            for _ in range(2 * max(READERS)):
                session.execute(
                    "select broker.send(broker.begin_dialog('//shop', '//warehouse', 'ordering'), 'order', 'x'::bytea)"
                )
            for readers in READERS:
                found = []
                for _ in range(options.rounds):
                    found.append(rollbacks(url, readers))
                    session.execute("select broker.alter_queue('warehouse', status => true)")
                sys.stdout.write(
                    f"{readers:>3} readers: {min(found)} to {max(found)}, median {statistics.median(found):g}\n"
                )


if __name__ == "__main__":
    main()
