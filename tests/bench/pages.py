"""`python -m tests.bench.pages`: median milliseconds of each page of the console beside a queue of many messages.

First as nobody analyzed the tables, then analyzed. It fails if the median of a page is over 200 ms. The pages are
read one after the other, each time anew, by one visitor.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from typing import TYPE_CHECKING, Any

from pybroker.embedded import EmbeddedServer
from tests.bench.diagnosis import _SEND
from tests.conftest import migrated_database
from tests.console.conftest import PASSWORD, Site, running_console
from tests.console.visitor import Visitor

if TYPE_CHECKING:
    import psycopg

_DIALOGS, _LONGEST_MS = 100, 200
# An overview is read again after two seconds.
_PAUSE_SECONDS = 2.1


def pages(session: psycopg.Connection[Any], messages: int) -> dict[str, str]:
    """Fill queue and transmission queue, nine to one, and return the pages' addresses."""
    begun = "select broker.begin_dialog('//shop', %s, 'ordering') from generate_series(1, %s)"
    handles = []
    for service, share in (("//warehouse", 0.9), ("//nowhere", 0.1)):
        handles = [row[0] for row in session.execute(begun, (service, _DIALOGS))]
        for handle in handles:
            session.execute(_SEND, (handle, int(messages * share) // _DIALOGS))
    row = session.execute("select priority, queuing_order from broker.peek('warehouse', 1)").fetchone()
    assert row is not None
    base = "/database/1"
    return {
        "overview": "/",
        "queue": f"{base}/queue/warehouse",
        "message": f"{base}/message/{row[0]}/{row[1]}/warehouse",
        "conversation": f"{base}/conversation/{handles[0]}",
        **{
            name: f"{base}/{name}"
            for name in ("transmission", "quarantine", "leaks", "definitions", "actions")
        },
        "topology": "/topology",
    }


def medians(visitor: Visitor, addresses: dict[str, str], times: int) -> dict[str, float]:
    """Read each page so often; return medians in milliseconds."""
    found = {}
    for name, address in addresses.items():
        spent = []
        for _ in range(times):
            time.sleep(_PAUSE_SECONDS)
            began = time.perf_counter()
            answer = visitor.get(address)
            spent.append(1000 * (time.perf_counter() - began))
            assert answer.status == 200, f"{name}: {answer.status}"
        found[name] = round(statistics.median(spent), 1)
    return found


def main() -> int:
    """Measure, and print JSON; 1 if a page takes too long."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--times", type=int, default=5, help="how often each page is read")
    options = parser.parse_args()
    found: dict[str, dict[str, float]] = {}
    with EmbeddedServer(listen=True) as server:
        site = Site(migrated_database(server, "paged", with_shop=True))
        with site.database.connect() as session:
            for table in ("messages", "transmission_messages", "endpoints", "groups"):
                session.execute(
                    f"alter table broker_private.{table} set (autovacuum_enabled = false)".encode()
                )
            addresses = pages(session, options.messages)
            with running_console(site.url) as console:
                visitor = Visitor(console)
                visitor.login(site.role("superuser"), PASSWORD)
                found["never analyzed"] = medians(visitor, addresses, options.times)
                session.execute("vacuum analyze")
                found["analyzed"] = medians(visitor, addresses, options.times)
    sys.stdout.write(json.dumps({"messages": options.messages, "milliseconds": found}, indent=2) + "\n")
    return int(any(each > _LONGEST_MS for state in found.values() for each in state.values()))


if __name__ == "__main__":
    sys.exit(main())
