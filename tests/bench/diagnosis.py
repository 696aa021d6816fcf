"""`python -m tests.bench.diagnosis`: what `broker.diagnose()` reads of a short and of a long queue.

Pages are counted, which no other work of the machine changes; the seconds are of this machine, now. It fails if
the long queue costs more than a few pages more: then something is scanned.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from pybroker.embedded import EmbeddedServer
from tests.conftest import migrated_database

if TYPE_CHECKING:
    from collections.abc import Sequence

    import psycopg

SHORT, LONG = 1_000, 1_000_000
_DIALOGS = 100
# The depth of the indexes, for each priority of each queue, and what autovacuum's statistics take.
_FEW_PAGES = 100
_SEND = "select broker.send_batch(%s, 'order', array_fill('x'::bytea, array[%s]))"


@dataclass(frozen=True)
class Reading:
    """One diagnosis: messages in the queue, pages that it read, seconds that it took, what it found."""

    messages: int
    pages: int
    seconds: float
    findings: tuple[int, ...]


def read(session: psycopg.Connection[Any], messages: int) -> Reading:
    """Diagnose once for the caches, once for the pages, and once for the time."""
    findings = session.execute("select number from broker.diagnose()").fetchall()
    plan = session.execute("explain (analyze, buffers, format json) select from broker.diagnose()").fetchone()
    assert plan is not None
    top = plan[0][0]["Plan"]
    begun = time.perf_counter()
    session.execute("select from broker.diagnose()").fetchall()
    return Reading(
        messages,
        int(top["Shared Hit Blocks"]) + int(top["Shared Read Blocks"]),
        round(time.perf_counter() - begun, 3),
        tuple(number for (number,) in findings),
    )


def readings(depths: Sequence[int]) -> list[Reading]:
    """Diagnose a queue of each depth, of a hundred dialogs; the depths rise."""
    with EmbeddedServer() as server:
        database = migrated_database(server, "diagnosed", with_shop=True)
        with database.connect() as session:
            begun = (
                "select broker.begin_dialog('//shop', '//warehouse', 'ordering') from generate_series(1, %s)"
            )
            dialogs = [row[0] for row in session.execute(begun, (_DIALOGS,))]
            found, sent = [], 0
            for depth in depths:
                # As many of each dialog, so that only the messages are more.
                for dialog in dialogs:
                    session.execute(_SEND, (dialog, (depth - sent) // _DIALOGS))
                sent = depth
                session.execute("vacuum analyze broker_private.messages")
                found.append(read(session, depth))
            return found


def main() -> int:
    """Count, and print JSON; 1 if the long queue is scanned, or takes more than five seconds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=LONG, help="how many lie in the long queue")
    options = parser.parse_args()
    if options.messages < 2 * SHORT:
        parser.error(f"--messages is {options.messages}: give {2 * SHORT} or more")
    short, long = readings((SHORT, options.messages))
    sys.stdout.write(json.dumps([asdict(short), asdict(long)], indent=2) + "\n")
    return int(long.pages > short.pages + _FEW_PAGES or long.seconds > 5)


if __name__ == "__main__":
    sys.exit(main())
