"""Durations, as programs give them and as the server is told."""

from __future__ import annotations

from datetime import timedelta

Duration = float | timedelta
"""A number of seconds, or a timedelta."""


def as_timedelta(duration: Duration) -> timedelta:
    """Return a duration as a timedelta.

    Raises:
        ValueError: it is not a number, or longer than a timedelta can be.
    """
    if isinstance(duration, timedelta):
        return duration
    try:
        return timedelta(seconds=duration)
    except (OverflowError, ValueError):
        raise ValueError(f"{duration} is no duration: give seconds or a timedelta.") from None


def as_interval(duration: timedelta) -> timedelta | str:
    """Return what the server reads as this interval, and would show in a message as it was given."""
    if duration >= timedelta(0):
        return duration
    # psycopg sends a timedelta as Python keeps it: -1 second is a day back and 86,399 seconds forth.
    back = -duration
    return f"-{back.days} days -{back.seconds}.{back.microseconds:06} seconds"
