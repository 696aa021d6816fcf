"""What goes wrong between two brokers, by Service Broker's error numbers."""

from __future__ import annotations

import traceback

from pybroker.printable import one_line

_SQLSTATE_CHARACTERS = 5
ENDPOINT_STOPPED = 9666
NO_BINDING = 9727
NO_DIALOG_CERTIFICATE = 9730
NO_DIALOG_KEY = 9731
NOT_FOR_NEW_DIALOGS = 9767
BAD_KEY = 9733
NOT_TRANSMITTED = 9736
NO_ENDPOINT = 9748
TARGET_BUSY = 9749
NO_ROUTE = 9750
CONNECT_FAILED = 9754
RECEIVE_FAILED = 9755
SEND_FAILED = 9759
CLOSED_IDLE = 9760
NAME_NOT_RESOLVED = 9783
FORWARDING_DISABLED = 9792
SERVICE_NOT_FOUND = 9793
BROKER_NOT_HERE = 9795
_FIRST_HANDSHAKE_NUMBER = 28000
TARGET_DISABLED = 28012
UNREACHABLE = 28017
REPLICA = 28018
NOT_YET_VALID = 28024
EXPIRED = 28025
NOTHING_IN_COMMON = 28027
# This connection lost to one that was there, to a newer one, to one that was opened to another address.
LOST_TO_EXISTING = 28032
LOST_TO_NEW = 28033
NO_CONNECT_PERMISSION = 28034
NO_CERTIFICATE = 28036
NO_PRIVATE_KEY = 28037
NOT_VERIFIED = 28038

CORRUPTED = 28040
UNKNOWN_CERTIFICATE = 28045
NO_MASTER_KEY = 28050
SAME_PEER_ELSEWHERE = 28098


class TransportError(Exception):
    """A reason why messages wait, fit to be shown as their transmission status.

    Attributes:
        number: Service Broker's error number.
        text: What happened, in a sentence; never a body or a key.
    """

    def __init__(self, number: int, text: str) -> None:
        super().__init__(number, text)
        self.number = number
        self.text = text

    def __str__(self) -> str:
        return f"{self.number}: {self.text}"

    def again(self) -> TransportError:
        """Return the same reason as another exception, to be raised again.

        An exception that is raised again and again gathers the frames of each time, and what they hold.
        """
        return type(self)(self.number, self.text)


class OwnSideError(TransportError):
    """What is wrong at this side, before anything was asked of a far one."""


class LimitError(TransportError):
    """A peer, or all together, take as much of this worker as they may; it is tried again later."""


def line_of(error: Exception) -> str:
    """Return what an error of PostgreSQL, or of the system, says in one line.

    Only PostgreSQL's primary message: its detail may quote data.
    """
    diagnosis = getattr(error, "diag", None)
    message = getattr(diagnosis, "message_primary", None) or str(error) or type(error).__name__
    return one_line(message)


def trace_of(error: BaseException) -> str:
    """Return the traceback of an accident, for the log.

    As text: a renderer that is handed the exception itself may print local variables, and with them bodies.
    """
    return "".join(traceback.format_exception(error))


def number_of(sqlstate: str | None) -> int:
    """Return Service Broker's number for an SQLSTATE of broker functions, or 9736 for any other."""
    if sqlstate and len(sqlstate) == _SQLSTATE_CHARACTERS and sqlstate[1:].isdigit():
        if sqlstate[0] == "S":
            return int(sqlstate[1:])
        if sqlstate[0] == "T":
            # T8034 stands for 28034, and T0102 would be 10102: the SQL side keeps the last four digits.
            return _FIRST_HANDSHAKE_NUMBER - 8000 + int(sqlstate[1:])
    return NOT_TRANSMITTED
