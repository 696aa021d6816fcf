"""Whose turn it is among those who wait: each peer in its turn, and within a peer each origin. No I/O."""

from __future__ import annotations

from typing import Generic, TypeVar

_Item = TypeVar("_Item")


class Rotation(Generic[_Item]):
    """What waits, by peer and by origin behind the peer.

    Who has been given a turn goes to the end of the line, and who comes anew joins it there: so between two
    turns of one, each other has at most one. An origin is what a peer says it is: its origins share the
    peer's turns, so inventing them gains nothing.
    """

    def __init__(self) -> None:
        """Begin with nobody waiting."""
        self._peers: dict[bytes, dict[bytes, dict[_Item, None]]] = {}

    def add(self, peer: bytes, origin: bytes, item: _Item) -> None:
        """Let an item wait behind what the same origin has waiting."""
        self._peers.setdefault(peer, {}).setdefault(origin, {})[item] = None

    def discard(self, peer: bytes, origin: bytes, item: _Item) -> None:
        """Forget an item that need not wait any more, if it is still there."""
        origins = self._peers.get(peer, {})
        items = origins.get(origin, {})
        items.pop(item, None)
        if not items:
            origins.pop(origin, None)
        if not origins:
            self._peers.pop(peer, None)

    def next(self) -> _Item | None:
        """Take out whose turn it is, or return None if nobody waits."""
        if not self._peers:
            return None
        peer = next(iter(self._peers))
        origins = self._peers.pop(peer)
        origin = next(iter(origins))
        items = origins.pop(origin)
        item = next(iter(items))
        del items[item]
        if items:
            origins[origin] = items
        if origins:
            self._peers[peer] = origins
        return item
