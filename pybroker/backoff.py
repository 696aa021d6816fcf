"""How long to wait before the next attempt, after failures in a row."""

from __future__ import annotations

from tenacity import RetryCallState, Retrying, wait_exponential


class Backoff:
    """Pauses between attempts: each failure in a row doubles the next one."""

    def __init__(self, first: float, limit: float) -> None:
        """Begin with the shortest.

        Args:
            first: seconds after the first failure.
            limit: seconds that are never exceeded.
        """
        self._wait = wait_exponential(multiplier=first, max=limit)
        self._failures = RetryCallState(Retrying(), None, (), {})
        self.reset()

    def failed(self) -> float:
        """Note a failure, and return the seconds to wait because of it."""
        self._failures.attempt_number += 1
        return float(self._wait(self._failures))

    def reset(self) -> None:
        """Note a success: the next failure is a first one."""
        self._failures.attempt_number = 0
