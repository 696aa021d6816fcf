"""Of two connections between two workers one is left, and nothing that was on the other is lost: rows 138, 139, 165 where both sides send."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, cast
from uuid import UUID

import msgspec
import pytest

from pybroker.workers.transport.connection.session import far_worker
from pybroker.workers.transport.connection.sessions import AlreadyConnectedError, Sessions
from pybroker.workers.transport.outgoing.peer import Peer
from pybroker.workers.transport.protocol import faults, wire
from pybroker.workers.transport.protocol.faults import TransportError
from pybroker.workers.transport.retry_schedule import Pace
from tests.conformance.test_i_connections import TestClock
from tests.transport import NO_DIALOGS, FarLink, settled

if TYPE_CHECKING:
    from pybroker.workers.transport.connection.link import Link
    from pybroker.workers.transport.connection.session import Session


class Worker:
    """One side: answers a batch once it may, and calls the other."""

    def __init__(self, number: int, clock: TestClock, pace: Pace | None = None) -> None:
        self.clock = clock
        self.certificate = f"certificate {number}".encode()
        self.lines = Sessions(UUID(int=number), self._answer, clock, pace or Pace())
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.taken: list[int] = []
        self.running: list[asyncio.Task[None]] = []

    @property
    def hello(self) -> wire.Hello:
        return wire.Hello(1, 1, [bytes(16)], "REQUIRED", 16, 2**20, arbitration_id=self.lines.arbitration_id)

    async def _answer(self, link: Link, batch: wire.Batch, _: asyncio.Task[bool] | None) -> bool:
        self.taken.append(batch.number)
        await self.may_answer.wait()
        await link.send(wire.Ack(batch.number, bytes(16), b"", b"", b"", b""))
        return True

    def begin(self, end: FarLink, *, is_accept: bool) -> Session:
        line = self.lines.begin(cast("Link", end), is_accept=is_accept)
        self.running.append(asyncio.create_task(line.run()))
        return line

    def usable(self) -> list[Session]:
        return [line for line in self.lines._sessions if line.is_usable and line.fault is None]


class Wire:
    """A connection in memory, from who calls to who is called."""

    def __init__(self, caller: Worker, called: Worker) -> None:
        self.caller, self.called = End(called), End(caller)
        self.caller.other, self.called.other = self.called, self.caller


class End(FarLink):
    """One end of it, which knows who is at the other."""

    def __init__(self, far: Worker) -> None:
        super().__init__("tcp://far:4022")
        self.far = far.hello
        self.certificate = far.certificate
        self.other: End | None = None

    async def send(self, frame: wire.Frame) -> None:
        self.sent += 1
        self.sent_frames.append(frame)
        if self.other is not None:
            self.other.arrive(frame)

    async def close(self, because: object = None) -> None:
        await super().close()
        if self.other is not None:
            if isinstance(because, TransportError):
                self.other.arrive(wire.Refusal(None, because.number, because.text))
            self.other.arrive(None)


def post(line: Session) -> asyncio.Task[wire.Ack] | None:
    """Send a batch, unless the connection is left already."""
    turn = line.send_slots.ask(5)
    return None if turn.send_slots.is_closed else line.post(turn, NO_DIALOGS).answer


@pytest.mark.parametrize("order", sorted(set(itertools.permutations("1122"))), ids="".join)
@pytest.mark.parametrize("numbers", [(1, 2), (2, 1)])
def test_of_two_that_call_each_other_at_once_the_lower_ids_connection_stays_and_no_batch_is_lost(
    order: tuple[str, ...], numbers: tuple[int, int]
) -> None:
    async def play() -> None:
        clock = TestClock()
        one, two = (Worker(number, clock) for number in numbers)
        lines: dict[str, list[Session]] = {"1": [], "2": []}
        ends = {"1": Wire(one, two), "2": Wire(two, one)}
        on_their_way = []
        for worker in (one, two):
            worker.may_answer.clear()
        for name in order:
            caller, called = (one, two) if name == "1" else (two, one)
            if not lines[name]:
                # A caller may use it before the one whom he has called knows who he is.
                lines[name].append(caller.begin(ends[name].caller, is_accept=False))
            else:
                lines[name].append(called.begin(ends[name].called, is_accept=True))
            on_their_way.append(post(lines[name][-1]))
            await asyncio.sleep(0)
        posted = [each for each in on_their_way if each is not None]
        await settled(lambda: len(one.taken) + len(two.taken) == len(posted))
        for worker in (one, two):
            worker.may_answer.set()
        await asyncio.gather(*posted)
        staying, going = ("1", "2") if numbers[0] < numbers[1] else ("2", "1")
        await settled(lambda: all(line.fault is not None for line in lines[going]))
        for line in lines[going]:
            assert line.fault is not None
            assert line.fault.number in (faults.LOST_TO_EXISTING, faults.LOST_TO_NEW)
        in_order = lines[staying] if staying == "1" else lines[staying][::-1]
        assert one.usable() + two.usable() == in_order
        assert len(one.taken) + len(two.taken) == len(set(one.taken + two.taken)) == len(posted)

    asyncio.run(play())


def test_who_answers_a_call_and_is_connected_already_is_not_connected_twice() -> None:
    async def play() -> None:
        clock = TestClock()
        near, far = Worker(1, clock), Worker(2, clock)
        accepted = near.begin(Wire(far, near).called, is_accept=True)
        with pytest.raises(AlreadyConnectedError) as met:
            near.lines.refuse_second(far.certificate, far.hello)
        assert (met.value.number, met.value.session) == (28032, accepted)
        opened = far.begin(Wire(far, near).caller, is_accept=False)
        with pytest.raises(AlreadyConnectedError) as met:
            far.lines.refuse_second(near.certificate, near.hello)
        assert (met.value.number, met.value.session) == (28098, opened)

    asyncio.run(play())


def test_a_peer_who_calls_himself_by_another_workers_id_has_none_of_its_traffic() -> None:
    async def play() -> None:
        clock = TestClock()
        near, far, impostor = Worker(1, clock), Worker(2, clock), Worker(2, clock)
        impostor.certificate = b"certificate of another peer"
        near.begin(Wire(impostor, near).called, is_accept=True)
        # Who answers at the address of the real one is nobody that is connected.
        near.lines.refuse_second(far.certificate, far.hello)
        worker = far_worker(far.certificate, far.hello, near.lines.arbitration_id)
        assert worker is not None
        assert near.lines.with_worker(worker) is None
        line = near.begin(Wire(near, far).caller, is_accept=False)
        assert near.lines.with_worker(worker) is line

    asyncio.run(play())


def test_an_older_worker_gets_no_batches_on_a_connection_that_it_has_opened() -> None:
    async def play() -> None:
        near, far = Worker(1, TestClock()), Worker(2, TestClock())
        end = Wire(far, near).called
        end.far = msgspec.structs.replace(end.far, arbitration_id=None)
        assert not near.begin(end, is_accept=True).is_usable
        # It is called, as if it had not called.
        near.lines.refuse_second(far.certificate, end.far)

    asyncio.run(play())


def test_row_138_a_connection_that_the_far_side_has_lost_makes_way_for_its_new_one() -> None:
    async def play() -> None:
        clock = TestClock()
        near, far = Worker(1, clock), Worker(2, clock)
        for seconds, is_accept in ((0, True), (600, False)):
            way = Wire(far, near) if is_accept else Wire(near, far)
            end = way.called if is_accept else way.caller
            # The far side is silent, as one is that is cut off.
            end.other = None
            older = near.begin(end, is_accept=is_accept)
            waits = post(older)
            assert waits is not None
            clock.seconds += seconds
            newer = near.begin(Wire(far, near).called, is_accept=True)
            assert near.usable() == [newer]
            # Who waited for its answer sends it again.
            with pytest.raises(TransportError) as lost:
                await waits
            assert lost.value.number == 28033
            newer.end(TransportError(faults.SEND_FAILED, "Over."))

    asyncio.run(play())


def test_both_sides_of_a_connection_notice_that_the_other_one_is_silent() -> None:
    async def play() -> None:
        clock = TestClock()
        near, far = (Worker(number, clock, Pace(ping_after=0.005)) for number in (1, 2))
        way = Wire(near, far)
        lines = [near.begin(way.caller, is_accept=False), far.begin(way.called, is_accept=True)]
        way.caller.other = way.called.other = None
        await settled(lambda: all(line.fault is not None for line in lines))
        for line in lines:
            assert line.fault is not None
            assert "did not answer" in line.fault.text

    asyncio.run(play())


def test_row_139_an_idle_connection_ends_after_the_answers_to_both_sides() -> None:
    async def play() -> None:
        clock = TestClock()
        near, far = Worker(1, clock), Worker(2, clock)
        way = Wire(near, far)
        opened, accepted = near.begin(way.caller, is_accept=False), far.begin(way.called, is_accept=True)
        near.may_answer.clear()
        clock.seconds += 89
        late = post(accepted)
        assert late is not None
        await settled(lambda: near.taken)
        clock.seconds += 89
        for worker in (near, far):
            worker.lines.leave_idle()
        assert opened.is_usable
        near.may_answer.set()
        await late
        clock.seconds += 2
        # The far side has sent another one before it hears that the connection is left.
        far.lines.leave_idle()
        later = post(accepted)
        assert later is not None
        near.lines.leave_idle()
        assert not opened.is_usable
        await later
        await settled(lambda: opened.fault is not None and accepted.fault is not None)
        for line in (opened, accepted):
            assert line.fault is not None
            assert line.fault.number == faults.CLOSED_IDLE

    asyncio.run(play())


def test_who_has_answered_at_an_address_is_sent_to_by_the_connection_that_he_opens_later() -> None:
    async def play() -> None:
        clock = TestClock()
        near, far = Worker(1, clock), Worker(2, clock)
        called: list[str] = []

        async def connect(address: str) -> Session:
            called.append(address)
            return near.begin(Wire(near, far).caller, is_accept=False)

        outbound = Peer(("tcp://far:4022",), connect, clock, Pace(), near.lines.with_worker)
        first = await outbound.open()
        first.end(TransportError(faults.CLOSED_IDLE, "It was idle."))
        await settled(lambda: first.fault is not None)
        accepted = near.begin(Wire(far, near).called, is_accept=True)
        assert await outbound.open() is accepted
        assert len(called) == 1
        # Nobody else may have moved to the address without being asked for ever.
        accepted.end(TransportError(faults.CLOSED_IDLE, "It was idle."))
        await settled(lambda: accepted.fault is not None)
        clock.seconds += 600
        near.begin(Wire(far, near).called, is_accept=True)
        await outbound.open()
        assert len(called) == 2

    asyncio.run(play())
