"""A run of `pybroker throughput` in which everything went wrong once, as its clients, its samples and its target's rows tell it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from pybroker.throughput.cell import Run
from pybroker.throughput.clients import Sent
from pybroker.throughput.sampling import Busy, Sample

if TYPE_CHECKING:
    from pathlib import Path

TEST, BEGAN, ENDED = 7, 1_000.0, 1_010.0


def faulty_run(directory: Path) -> tuple[Run, int]:
    """Leave the target's rows as Parquet; return the run, and how many rows there are.

    One message is missing on a thread, one came twice, one was overtaken, and of a thread's five none came.
    """
    arrived = {(1, 1): [1, 2, 3], (1, 2): [1, 3, 4], (2, 1): [1, 2, 2], (2, 2): [2, 1, 3], (2, 3): []}
    sent = {(1, 1): 3, (1, 2): 4, (2, 1): 2, (2, 2): 3, (2, 3): 5}
    rows = [(TEST, *whose, number) for whose, numbers in arrived.items() for number in numbers]
    # Left by another test.
    rows.append((TEST - 1, 1, 1, 1))
    columns = {
        "drop_no": range(len(rows)),
        "receive_no": [1] * len(rows),
        "enqueued": [BEGAN + 1] * len(rows),
        "bytes": pa.array([100] * len(rows), pa.int32()),
        "test": [test for test, _, _, _ in rows],
        "initiator": pa.array([initiator for _, initiator, _, _ in rows], pa.int32()),
        "thread": pa.array([thread for _, _, thread, _ in rows], pa.int32()),
        "number": [number for _, _, _, number in rows],
        "sent": [BEGAN + 0.5] * len(rows),
    }
    pq.write_table(pa.table(columns), directory / "messages.parquet")
    receives = [{"receive_no": 1, "reader": 9, "messages": len(rows), "processed": BEGAN + 2.5}]
    pq.write_table(pa.Table.from_pylist(receives), directory / "receives.parquet")
    run = Run(
        test=TEST,
        sent=[Sent(*whose, messages, BEGAN, ENDED, 0.1) for whose, messages in sent.items()],
        samples=_samples(),
        began=BEGAN,
        ended=ENDED,
        drained=ENDED,
        quotas={"target server": 0.26},
        # In ten seconds eight of all programs, five of which are ours.
        busy=[Busy(BEGAN, 100.0, 50.0), Busy(ENDED, 108.0, 55.0)],
    )
    return run, len(rows)


def _samples() -> list[Sample]:
    """Two initiators and a target: outside of the measured seconds everything jumps."""
    found = []
    for server, waits in (
        ("initiator1", ["LWLock:WALWrite", "LWLock:WALWrite", "LWLock:BufferContent", "running"]),
        ("initiator2", []),
        ("target", ["Timeout:PgSleep"]),
    ):
        for at in (BEGAN - 1, BEGAN, BEGAN + 2, BEGAN + 4, ENDED + 1):
            is_measured = BEGAN <= at <= ENDED
            found.append(
                Sample(
                    at=at,
                    server=server,
                    wal_bytes=int(1_000_000 + 600 * (at - BEGAN)) if is_measured else int(at),
                    readers=1,
                    waits=waits if is_measured else ["Lock:advisory"] * 9,
                    server_cpu=50 + 0.25 * (at - BEGAN) if is_measured else 0.0,
                    worker_cpu=None,
                    machine_cpu=30.0 if is_measured else 100.0,
                )
            )
    return found
