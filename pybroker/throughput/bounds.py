"""What kept a cell from being faster, told from what was measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Above this part of what it may use, nothing but more of it makes a cell faster.
_BUSY = 0.9
# What others use is worth a word above this part of the machine.
_NOTICED = 0.05
# Sessions that wait for the log's disk so often have no time for anything else.
_MOSTLY = 0.5
# RECEIVE that waits for messages, and sessions that wait for nothing.
_IDLE = {"running", "Timeout:PgSleep", "Client:ClientRead"}
# The log is written and flushed; a commit that waits for another's flush waits for the same disk.
_FLUSH = {
    "IO:WALSync", "IO:WalSync", "IO:WALWrite", "IO:WalWrite", "LWLock:WALWrite", "LWLock:WALWriteLock",
}  # fmt: skip


def bound(
    *,
    quotas: Mapping[str, float],
    cores: Mapping[str, float],
    machine: float,
    others: float,
    clients: float,
    waits: Mapping[str, Sequence[tuple[str, float]]],
) -> str:
    """Tell what bounded a cell.

    Args:
        quotas: Cores that each server and worker may use; empty where they are not limited.
        cores: Cores that each kept busy, such as `target worker`.
        machine: Part of the machine's processors that were busy, by whomever.
        others: Part of them that other programs used.
        clients: Part of its time that the busiest test client was on a processor.
        waits: What sessions waited for, by server: event and part of the samples.
    """
    used = {who: cores[who] / quota for who, quota in quotas.items() if who in cores}
    if used and max(used.values()) > _BUSY:
        return f"the quota of the {max(used, key=lambda who: used[who])}"
    # A worker is one process, and one thread of it does nearly all.
    workers = {who: busy for who, busy in cores.items() if who.endswith(" worker")}
    if workers and max(workers.values()) > _BUSY:
        return f"the processor of the {max(workers, key=lambda who: workers[who])}"
    if machine > _BUSY:
        return f"the machine's processors{', with what other programs used' if others > _NOTICED else ''}"
    if clients > _BUSY:
        return "the test clients"
    flushing = {
        server: sum(part for wait, part in events if wait in _FLUSH) for server, events in waits.items()
    }
    if flushing and max(flushing.values()) > _MOSTLY:
        return f"flushes to the disk of {max(flushing, key=lambda server: flushing[server])}"
    waiting = [
        (part, f"{wait} at the {server}")
        for server, events in waits.items()
        for wait, part in events
        if wait not in _IDLE
    ]
    return max(waiting)[1] if waiting else "the number of clients, who wait for each answer"
