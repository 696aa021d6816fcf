"""How much of this worker each peer may take, and all together; no I/O. The figures are in docs/endpoints.md.

A peer is the user of its certificate, however many certificates and connections it has.
"""

from __future__ import annotations

from collections import Counter

from pybroker.workers.transport.protocol import faults
from pybroker.workers.transport.protocol.faults import LimitError

# Accepted connections that have logged in. A worker needs one; a user may have several workers.
PEER_CONNECTIONS = 16
ALL_CONNECTIONS = 512
# Bytes of frames whose end has not come. A pybroker has one frame under way on a connection, of 2 MB at most.
PEER_UNFINISHED_BYTES = 64 * 2**20
ALL_UNFINISHED_BYTES = 256 * 2**20


class Limits:
    """What is taken now."""

    def __init__(self) -> None:
        """Begin with nothing taken."""
        self._connections: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()

    def connect(self, peer: str) -> None:
        """Count a connection of a peer, which `disconnect` follows.

        Raises:
            LimitError: It would be one too many.
        """
        _refuse_beyond(self._connections, peer, 1, (PEER_CONNECTIONS, ALL_CONNECTIONS), "connections")
        self._connections[peer] += 1

    def disconnect(self, peer: str) -> None:
        """Forget a connection that was counted."""
        _take_off(self._connections, peer, 1)

    def hold(self, peer: str, size: int) -> None:
        """Count bytes of unfinished frames.

        Raises:
            LimitError: They would be too many; they are not counted.
        """
        _refuse_beyond(
            self._bytes,
            peer,
            size,
            (PEER_UNFINISHED_BYTES, ALL_UNFINISHED_BYTES),
            "bytes in unfinished frames",
        )
        self._bytes[peer] += size

    def release(self, peer: str, size: int) -> None:
        """Forget bytes that were counted."""
        _take_off(self._bytes, peer, size)


def _refuse_beyond(taken: Counter[str], peer: str, more: int, limits: tuple[int, int], what: str) -> None:
    of_peer, of_all = limits
    if taken[peer] + more > of_peer:
        raise LimitError(
            faults.TARGET_BUSY, f'The user "{peer}" may have {of_peer} {what} here, and has them.'
        )
    if taken.total() + more > of_all:
        raise LimitError(
            faults.TARGET_BUSY, f"All users together may have {of_all} {what} here, and have them."
        )


def _take_off(taken: Counter[str], peer: str, less: int) -> None:
    taken[peer] -= less
    if taken[peer] <= 0:
        del taken[peer]
