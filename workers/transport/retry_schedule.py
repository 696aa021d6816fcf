"""The retry schedule: how long transport waits before it tries again, as far as an operator may set it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pace:
    """What an operator may set.

    Attributes:
        resend_after: seconds after which messages that were sent and not acknowledged are sent again; each
            further attempt for the same dialog waits twice as long, up to 16 times this.
        reconnect_after: seconds from the end of a connection to the next attempt to connect.
        retry_connect_after: seconds from a failed attempt to connect to the next one.
        ping_after: seconds of silence, after which the far side is asked whether it is there.
        close_idle_after: seconds without a batch, after which a connection is closed.
        probe_after: seconds from one look at all open dialogs, whose far sides are asked, to the next.
        linger: seconds that a message waits at most, so that others leave with it; 0 is not at all.
    """

    resend_after: float = 4.0
    reconnect_after: float = 15.0
    retry_connect_after: float = 60.0
    ping_after: float = 15.0
    close_idle_after: float = 90.0
    probe_after: float = 3600.0
    linger: float = 0.1
