"""How a dialog with a far broker is secured: the decision table of Service Broker, no I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pybroker.workers.transport.protocol import envelope, faults
from pybroker.workers.transport.protocol.faults import TransportError

if TYPE_CHECKING:
    from collections.abc import Callable

Kind = Literal["N", "A", "F"]


class UnboundError(TransportError):
    """The far service has no remote service binding, and the dialog may not go without."""


_NAMES = {envelope.CLEAR: "no", envelope.ANONYMOUS: "anonymous", envelope.FULL: "full"}


@dataclass(frozen=True, slots=True)
class Dialog:
    """What the decision rests on.

    Attributes:
        is_initiator: Whether this side began the dialog.
        is_encrypted: Whether ENCRYPTION is ON.
        binding: The security of the remote service binding for the far service; None without one, and at
            the target.
        established: What the dialog began with; None before its first message has left.
    """

    is_initiator: bool
    is_encrypted: bool
    binding: str | None
    established: str | None


def decide(dialog: Dialog, certificate_fault: Callable[[], TransportError | None]) -> Kind:
    """Return how the messages of a dialog leave.

    Args:
        dialog: what the decision rests on.
        certificate_fault: says why the owner of the initiating service has no certificate to be identified
            by; asked only where that matters.

    Raises:
        TransportError: They must wait: 9727, there is no binding, or another one than the dialog began with;
            what `certificate_fault` says.
    """
    if not dialog.is_initiator:
        return _established(dialog)
    if dialog.established == envelope.CLEAR:
        # The target holds it to that as well.
        return envelope.CLEAR
    wanted = _wanted(dialog)
    if dialog.established is not None and dialog.established != wanted:
        raise TransportError(
            faults.NO_BINDING,
            f"The dialog began with {_NAMES.get(dialog.established, 'other')} security, and by the remote"
            f" service bindings of today it would have {_NAMES[wanted]}. It is never changed.",
        )
    if wanted == envelope.FULL and (fault := certificate_fault()) is not None:
        raise fault
    return wanted


def _wanted(dialog: Dialog) -> Kind:
    match dialog.binding:
        case envelope.FULL:
            return envelope.FULL
        case envelope.ANONYMOUS:
            return envelope.ANONYMOUS
        case _ if dialog.is_encrypted:
            raise UnboundError(
                faults.NO_BINDING,
                "Dialog security is not available, as there is no remote service binding for the target"
                " service. Create one, or begin the dialog with ENCRYPTION = OFF.",
            )
        case _:
            return envelope.CLEAR


def _established(dialog: Dialog) -> Kind:
    """Return what a target answers with: what the initiator began with."""
    match dialog.established:
        case envelope.FULL:
            return envelope.FULL
        case envelope.ANONYMOUS:
            return envelope.ANONYMOUS
        case envelope.CLEAR:
            return envelope.CLEAR
        case _ if dialog.is_encrypted:
            raise TransportError(
                faults.NO_BINDING,
                "Dialog security is not available, as the dialog began without: both sides were databases of"
                " one worker then.",
            )
        case _:
            return envelope.CLEAR
