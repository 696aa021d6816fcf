"""All connections that batches go over now; of two with the same far worker one is left.

That one stays which was opened by the side whose arbitration id is lower, so both sides choose the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pybroker.workers.transport.connection.session import FarWorker, Session, far_worker
from pybroker.workers.transport.protocol import faults
from pybroker.workers.transport.protocol.faults import TransportError

if TYPE_CHECKING:
    from uuid import UUID

    from pybroker.workers.clock import Clock
    from pybroker.workers.transport.connection.link import Link
    from pybroker.workers.transport.connection.session import Answer
    from pybroker.workers.transport.protocol import wire
    from pybroker.workers.transport.retry_schedule import Pace

# Longer than a handshake: what was opened at such a distance was not opened at the same time by both sides.
_AT_ONCE_SECONDS = 30.0


class AlreadyConnectedError(TransportError):
    """Who answers a call is connected with this worker already.

    Attributes:
        session: that connection.
    """

    def __init__(self, number: int, text: str, session: Session) -> None:
        super().__init__(number, text)
        self.session = session


class Sessions:
    """The connections of one worker, by who is at their other ends."""

    def __init__(self, arbitration_id: UUID, answer: Answer, clock: Clock, pace: Pace) -> None:
        """Prepare.

        Args:
            arbitration_id: what this process calls itself, chosen anew by each.
            answer: handles the batches that arrive.
            clock: says when a connection was idle for long.
            pace: how long that is.
        """
        self.arbitration_id = arbitration_id.bytes
        self._answer = answer
        self._clock = clock
        self._pace = pace
        self._sessions: dict[Session, None] = {}

    def begin(self, link: Link, *, is_accept: bool) -> Session:
        """Make a connection that has logged in one that batches go over; the caller has `run` it."""
        session = Session(
            link, self._answer, self._clock, self._pace, is_accept=is_accept, own_id=self.arbitration_id
        )
        self._forget_ended()
        if session.worker is not None:
            for other in self._with(session.worker):
                self._arbitrate(other, session)
        self._sessions[session] = None
        return session

    def with_worker(self, worker: FarWorker) -> Session | None:
        """Return the connection to use with a worker, if there is one."""
        # Of several the newest: older ones are those whose end was not noticed yet.
        return next(reversed(self._with(worker)), None)

    def refuse_second(self, certificate: bytes, far: wire.Hello) -> None:
        """Refuse to open another connection with who has answered, before this side has said who it is.

        Raises:
            AlreadyConnectedError: 28032 or 28098, there is one.
        """
        worker = far_worker(certificate, far, self.arbitration_id)
        session = None if worker is None else self.with_worker(worker)
        if session is None:
            return
        if session.is_accept:
            raise AlreadyConnectedError(faults.LOST_TO_EXISTING, _LOST_TO_EXISTING, session)
        raise AlreadyConnectedError(faults.SAME_PEER_ELSEWHERE, _SAME_PEER_ELSEWHERE, session)

    def leave_idle(self) -> None:
        """Leave those that were opened here and have carried nothing for long."""
        self._forget_ended()
        for session in self._sessions:
            session.leave_if_idle()

    def _with(self, worker: FarWorker) -> list[Session]:
        return [session for session in self._sessions if session.worker == worker and session.is_usable]

    def _forget_ended(self) -> None:
        for session in [session for session in self._sessions if session.fault is not None]:
            del self._sessions[session]

    def _arbitrate(self, older: Session, newer: Session) -> None:
        if older.is_accept == newer.is_accept:
            if newer.is_accept:
                # Who opens another one has lost the older one, though this side has not noticed.
                older.end(TransportError(faults.LOST_TO_NEW, _LOST_TO_NEW))
            else:
                newer.leave(TransportError(faults.SAME_PEER_ELSEWHERE, _SAME_PEER_ELSEWHERE))
            return
        if newer.is_accept and newer.began_at - older.began_at > _AT_ONCE_SECONDS:
            # He would have refused himself if he still had the older one.
            older.end(TransportError(faults.LOST_TO_NEW, _LOST_TO_NEW))
            return
        far_id = b"" if newer.worker is None else newer.worker.arbitration_id
        if self.arbitration_id < far_id:
            # The far side has opened the one that goes, and leaves it.
            return
        if newer.is_accept:
            older.leave(TransportError(faults.LOST_TO_NEW, _LOST_TO_NEW))
        else:
            newer.leave(TransportError(faults.LOST_TO_EXISTING, _LOST_TO_EXISTING))


_LOST_TO_EXISTING = (
    "There is a connection with the same peer already. This one lost the arbitration and is closed; all"
    " traffic goes by the one that was there."
)
_LOST_TO_NEW = (
    "A new connection with the same peer was established. This one lost the arbitration and is closed; all"
    " traffic goes by the new one."
)
_SAME_PEER_ELSEWHERE = (
    "There is a connection with the same peer, opened to another of its addresses. This one is closed; all"
    " traffic goes by the one that was there."
)
