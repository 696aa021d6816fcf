"""Waiting for what the sessions have yet to do, as long as they do anything."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.brokers import Site
    from tests.chaos.traffic import Traffic

# However slow the machine: this long without a single message means that something hangs.
_STALLED_SECONDS = 180.0


class StalledError(AssertionError):
    """Messages wait, and none moves any more."""


class Patience:
    """Looks into the ledgers until they have what is waited for.

    Attributes:
        watch: Hears how many messages both sides have received.
    """

    def __init__(self, sites: tuple[Site, Site], traffic: Traffic) -> None:
        self.watch: Callable[[int], None] | None = None
        self._sites = sites
        self._traffic = traffic

    def wait_for(self, ledger: str, count: int) -> None:
        """Wait until both sides have so many rows in this ledger.

        Raises:
            StalledError: Nothing moves any more.
            Exception: What ended one of the sessions.
        """
        self.until(lambda: all(_count(site, ledger) >= count for site in self._sites))

    def end_dialogs(self) -> None:
        """End every dialog where it was begun, and wait until the other side has heard of it.

        Raises:
            As `wait_for`.
        """
        for site in self._sites:
            site.psql.rows(
                "select broker.end_conversation(conversation_handle) from broker.conversation_endpoints"
                " where is_initiator"
            )
        remains = "select from broker.conversation_endpoints where state <> 'CD'"
        self.until(lambda: not any(site.psql.rows(remains) for site in self._sites))
        self.until_nothing_waits()

    def until_nothing_waits(self) -> None:
        """Wait until both transmission queues are empty.

        Raises:
            As `wait_for`.
        """
        waits = "select from broker.transmission_queue"
        self.until(lambda: not any(site.psql.rows(waits) for site in self._sites))

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait for anything that the sessions bring about.

        Raises:
            As `wait_for`.
        """
        pause, last, moved_at = threading.Event(), -1, time.monotonic()
        for site in self._sites:
            # A fault may have ended the session.
            site.reconnect()
        while not condition():
            if self._traffic.failures:
                raise self._traffic.failures[0]
            received = sum(_count(site, "received") for site in self._sites)
            if received != last:
                last, moved_at = received, time.monotonic()
            elif time.monotonic() - moved_at > _STALLED_SECONDS:
                raise StalledError(f"nothing moves; in the transmission queues: {self._waiting()}")
            if self.watch is not None:
                self.watch(received)
            pause.wait(0.1)

    def _waiting(self) -> list[list[tuple[int, str]]]:
        query = "select count(*), transmission_status from broker.transmission_queue group by 2"
        return [site.psql.rows(query) for site in self._sites]


def _count(site: Site, ledger: str) -> int:
    count: int = site.psql.value(f"select count(*) from {ledger}")
    return count
