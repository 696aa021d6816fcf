"""When what a dialog has unacknowledged is sent again."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from pybroker.workers.clock import Clock
    from pybroker.workers.transport.retry_schedule import Pace

# 4, 8, 16, 32, 64, 64 ... seconds: the longest pause is the first one doubled four times.
_DOUBLINGS = 4
# Up to a tenth longer, so that what failed together does not come back together. Never shorter.
_JITTER = 0.1
# A dialog for which the far side lacks a key flows within 25 s of its return, which is seen there in 2 s.
_KEYLESS_SECONDS = 16.0


class Resends:
    """When the messages of each dialog that were sent and not acknowledged may be sent again.

    A dialog's schedule begins with its first message that is not acknowledged, and goes on until the far
    broker takes something of it; what is sent on the dialog meanwhile changes nothing. While it lacks a key
    for the dialog no pause is longer than 16 s.
    """

    def __init__(self, clock: Clock, pace: Pace) -> None:
        self._clock = clock
        self._first = pace.resend_after
        # By dialog: how often it was sent in vain, the moment of the next attempt, and its longest pause.
        self._dialogs: dict[int, tuple[int, float, float]] = {}

    def sent(self, dialogs: Iterable[int]) -> None:
        """Note that messages of these dialogs are being sent."""
        now = self._clock.monotonic()
        # One for the batch: its dialogs go together again.
        jitter = _jitter()
        for dialog in dialogs:
            attempts, _, longest = self._dialogs.get(dialog, (0, now, math.inf))
            pause = min(self._first * 2 ** min(attempts, _DOUBLINGS), longest)
            self._dialogs[dialog] = (attempts + 1, now + pause * jitter, longest)

    def keyless(self, dialogs: Iterable[int]) -> None:
        """Note that the far broker has answered that it lacks a key for these dialogs."""
        latest = self._clock.monotonic() + _KEYLESS_SECONDS * _jitter()
        for dialog in dialogs:
            if dialog in self._dialogs:
                attempts, due, _ = self._dialogs[dialog]
                self._dialogs[dialog] = (attempts, min(due, latest), _KEYLESS_SECONDS)

    def acknowledged(self, dialogs: Collection[int]) -> None:
        """Note that the far broker has taken messages of these dialogs, or refused them for good."""
        for dialog in dialogs:
            self._dialogs.pop(dialog, None)

    def waiting(self) -> list[int]:
        """Return the dialogs that are not due."""
        now = self._clock.monotonic()
        waiting = [dialog for dialog, (_, due, _) in self._dialogs.items() if due > now]
        if len(waiting) != len(self._dialogs):
            # What is due and yet is not sent for long has ended or goes elsewhere.
            forgotten = now - self._first * 2**_DOUBLINGS
            for dialog in [dialog for dialog, (_, due, _) in self._dialogs.items() if due < forgotten]:
                del self._dialogs[dialog]
        return waiting


def _jitter() -> float:
    return 1 + random.uniform(0, _JITTER)  # noqa: S311
