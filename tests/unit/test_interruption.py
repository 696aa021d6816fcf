"""A signal that asks a command to end is never lost, whatever the command does just then."""

from __future__ import annotations

import os
import signal
import time
import weakref
from typing import TYPE_CHECKING

import pytest

from pybroker.commands.interruption import Interruption, interruptible

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE = 60.0


class Thing:
    """Weak references are to something."""


def _send() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def _in_a_finalizer() -> None:
    class Ending:
        def __del__(self) -> None:
            _send()

    Ending()


def _in_a_weak_reference_s_callback() -> None:
    thing = Thing()
    weakref.finalize(thing, _send)
    del thing


def _go_on_after(ends: Callable[[], None]) -> None:
    ends()
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        time.sleep(0.001)


@pytest.mark.parametrize("ends", [_send, _in_a_finalizer, _in_a_weak_reference_s_callback])
def test_a_signal_ends_the_command_though_an_object_ends_just_then(ends: Callable[[], None]) -> None:
    with pytest.raises(Interruption), interruptible():
        _go_on_after(ends)
