"""Ending in order when a signal asks for it: Ctrl-C, SIGTERM, the terminal's end."""

from __future__ import annotations

import signal
import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_TRY_AGAIN_SECONDS = 0.01


class Interruption(KeyboardInterrupt):
    """A signal asked the command to end. A Ctrl-C to psycopg, which then cancels what its session does."""

    def __init__(self, number: int) -> None:
        self.number = number


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise `Interruption` for the first signal that asks the command to end; ignore those that follow."""
    raised: list[Interruption] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        if _is_forgotten(frame):
            signal.signal(signal.SIGALRM, lambda _, later: interrupt(number, later))
            signal.setitimer(signal.ITIMER_REAL, _TRY_AGAIN_SECONDS)
            return
        ignore_signals()
        raised.append(Interruption(number))
        raise raised[0]

    before = {number: signal.signal(number, interrupt) for number in _SIGNALS}
    try:
        yield
    except Exception as error:
        # What was cut short may fail in its own words while it cleans up.
        if raised:
            raise raised[0] from error
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _is_forgotten(frame: FrameType | None) -> bool:
    """Whether what is raised here gets nowhere: Python prints what an object's end raises, and goes on."""
    while frame is not None:
        if frame.f_code.co_name == "__del__" or frame.f_code.co_filename == weakref.__file__:
            return True
        frame = frame.f_back
    return False


def ignore_signals() -> None:
    """Go on whatever signal comes: what was asked for twice still needs its time to end."""
    # A handler, not SIG_IGN, which the processes started from here would inherit.
    for number in _SIGNALS:
        signal.signal(number, lambda *_: None)
