"""What one lane of a sender has on its way, so that its next batch can follow before the answers are there.

A message's number is the next one to be acknowledged, plus its place among the dialog's rows. What follows
a batch in flight begins behind its last row, with the number after its last one, and these two are known:
nothing of it depends on when the answer comes. What was not acknowledged whole is not built upon any more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pybroker.workers.transport.outgoing.batches import End


@dataclass
class _Dialog:
    last_row: int
    next_number: int
    batches: int = 0
    is_broken: bool = False


class InFlight:
    """The dialogs of one lane that have batches on their way, by endpoint."""

    def __init__(self) -> None:
        self._dialogs: dict[int, _Dialog] = {}

    def __contains__(self, endpoint: int) -> bool:
        return endpoint in self._dialogs

    def __len__(self) -> int:
        return len(self._dialogs)

    def add(self, ends: Mapping[int, End]) -> None:
        """Note that a batch goes, which ends so on each of its endpoints."""
        for endpoint, end in ends.items():
            dialog = self._dialogs.get(endpoint)
            if dialog is None:
                dialog = self._dialogs[endpoint] = _Dialog(end.row, end.next_number)
            else:
                dialog.last_row, dialog.next_number = end.row, end.next_number
            dialog.batches += 1

    def settle(self, ends: Mapping[int, End], acknowledged: Mapping[int, int]) -> None:
        """Note that a batch was answered, or never will be.

        Args:
            ends: what `add` was given for it.
            acknowledged: by endpoint, the number after the last one that the far broker has stored.
        """
        for endpoint, end in ends.items():
            dialog = self._dialogs[endpoint]
            dialog.batches -= 1
            dialog.is_broken = dialog.is_broken or acknowledged.get(endpoint) != end.next_number
            if not dialog.batches:
                del self._dialogs[endpoint]

    def broken(self) -> list[int]:
        """Return the endpoints of which nothing may be sent before all that is on its way was answered."""
        return [endpoint for endpoint, dialog in self._dialogs.items() if dialog.is_broken]

    def of(self, endpoints: Iterable[int]) -> list[int]:
        """Return those of the endpoints that have batches on their way."""
        return [endpoint for endpoint in endpoints if endpoint in self._dialogs]

    def columns(self) -> tuple[list[int], list[int], list[int]]:
        """Return the endpoints, the last row of each that is on its way, and the number that comes next."""
        return (
            list(self._dialogs),
            [dialog.last_row for dialog in self._dialogs.values()],
            [dialog.next_number for dialog in self._dialogs.values()],
        )
