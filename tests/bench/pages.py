"""`python -m tests.bench.pages`: median milliseconds of each page of the console beside a queue of many messages.

First as nobody analyzed the tables, then analyzed. It fails if the median of a page is over 200 ms. The pages are
read one after the other, each time anew, by one visitor. Beside the time stands what console and server spent of a
processor for it, which other work of the machine changes little.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from typing import TYPE_CHECKING, Any

import psutil

from pybroker.embedded import EmbeddedServer
from tests.bench.diagnosis import _SEND
from tests.conftest import migrated_database
from tests.console.conftest import PASSWORD, Site, running_console
from tests.console.visitor import Visitor

if TYPE_CHECKING:
    import psycopg

_DIALOGS, _LONGEST_MS = 100, 200
# What is sent; more are copies of their rows, which take minutes in place of hours.
_SENT = 1_000_000
# An overview is read again after two seconds.
_PAUSE_SECONDS = 2.1


def pages(session: psycopg.Connection[Any], messages: int) -> dict[str, str]:
    """Fill queue and transmission queue, nine to one, and return the pages' addresses."""
    begun = "select broker.begin_dialog('//shop', %s, 'ordering') from generate_series(1, %s)"
    handles = []
    for service, share in (("//warehouse", 0.9), ("//nowhere", 0.1)):
        handles = [row[0] for row in session.execute(begun, (service, _DIALOGS))]
        for handle in handles:
            session.execute(_SEND, (handle, int(min(messages, _SENT) * share) // _DIALOGS))
    for table in ("messages", "transmission_messages") if messages > _SENT else ():
        multiply(session, table, messages // _SENT)
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


def multiply(session: psycopg.Connection[Any], table: str, factor: int) -> None:
    """Make so many of each row of a table, with ids of their own, in the order of the first."""
    (columns,) = session.execute(
        "select string_agg(quote_ident(attname), ', ' order by attnum) from pg_attribute"
        " where attrelid = %s::regclass and attnum > 0 and attname <> 'id'",
        (f"broker_private.{table}",),
    ).fetchone() or ("",)
    session.execute(
        f"insert into broker_private.{table} ({columns}) select {columns} from"
        f" (select * from broker_private.{table} order by id) o cross join generate_series(2, {factor})".encode()
    )


def medians(
    visitor: Visitor, session: psycopg.Connection[Any], addresses: dict[str, str], times: int
) -> dict[str, dict[str, float]]:
    """Read each page so often; return medians in milliseconds, of the time and of the processors."""
    found = {}
    for name, address in addresses.items():
        took, spent = [], []
        for _ in range(times):
            time.sleep(_PAUSE_SECONDS)
            before, began = processor_seconds(session), time.perf_counter()
            answer = visitor.get(address)
            took.append(1000 * (time.perf_counter() - began))
            spent.append(1000 * (processor_seconds(session) - before))
            assert answer.status == 200, f"{name}: {answer.status}"
        found[name] = {
            "took": round(statistics.median(took), 1),
            "processors": round(statistics.median(spent), 1),
        }
    return found


def processor_seconds(session: psycopg.Connection[Any]) -> float:
    """Return what the console and its sessions with the server have spent since they began."""
    console = [one for one in psutil.Process().children() if "console" in one.cmdline()]
    backends = session.execute("select pid from pg_stat_activity where application_name = 'pybroker console'")
    times = [one.cpu_times() for one in [*console, *(psutil.Process(pid) for (pid,) in backends)]]
    return sum(one.user + one.system for one in times)


def main() -> int:
    """Measure, and print JSON; 1 if a page takes too long."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--times", type=int, default=5, help="how often each page is read")
    options = parser.parse_args()
    found: dict[str, dict[str, dict[str, float]]] = {}
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
                found["never analyzed"] = medians(visitor, session, addresses, options.times)
                session.execute("vacuum analyze")
                found["analyzed"] = medians(visitor, session, addresses, options.times)
    sys.stdout.write(json.dumps({"messages": options.messages, "milliseconds": found}, indent=2) + "\n")
    return int(any(one["took"] > _LONGEST_MS for state in found.values() for one in state.values()))


if __name__ == "__main__":
    sys.exit(main())
