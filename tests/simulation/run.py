"""One seed: two workers, their applications, faults, and what came of it."""

from __future__ import annotations

import asyncio
import os
import random
import traceback
from collections import defaultdict, deque
from contextvars import copy_context
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg_pool.base
import psycopg_pool.pool_async
import psycopg_pool.sched_async
import structlog
from psycopg import connection_async, waiting

from pybroker.workers import database, presence, supervisor, wake_ups
from pybroker.workers.clock import Clock
from pybroker.workers.database import ServingError
from pybroker.workers.periodic_task_log import Records
from pybroker.workers.transport.outgoing import router, sender
from pybroker.workers.transport.retry_schedule import Pace
from pybroker.workers.validation import validation
from tests.simulation.applications import Application, Dialog, Initiator, Target
from tests.simulation.faults import WITH_WORKER, Fault, faults_of, lingering, restore_of
from tests.simulation.gate import Gate, Session, Statement
from tests.simulation.invariants import BrokenError, Invariants
from tests.simulation.loop import PROCESS, EndlessError, Process, SimulatedLoop
from tests.simulation.network import Network
from tests.simulation.sites import EPOCH, SHOP, WAREHOUSE
from tests.simulation.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Sequence
    from uuid import UUID

    from psycopg import AsyncConnection

    from tests.simulation.sites import Sites

# Simulated seconds in which the faults of a short seed fall.
BUSY = 8.0
# And after the last of them, until all must be over: the longest pauses of a worker are about a minute.
PATIENCE = 300.0
_SHORT = Pace(
    resend_after=1.0,
    reconnect_after=1.0,
    retry_connect_after=2.0,
    ping_after=3.0,
    close_idle_after=10.0,
    probe_after=20.0,
)
_MOST_STATEMENTS = 8000
# How many seeds are not short.
_LONG = 0.1
# How many seeds have workers that look at what waits seldom.
_CALM = 0.9
# How many seeds have a database that goes back.
_RESTORED = 0.15
# How many of the others have a COMMIT that comes late.
_LINGERING = 0.15
# How many seeds have workers whose batches are small.
_TIGHT = 0.6
# After so many seconds each worker has asked on each dialog.
_PROBES = 100.0
# Monotonic clocks begin somewhere.
_UPTIME = 1000.0
# After these a message may be in a queue that was not there before, or is no longer another session's.
_STIRS = ("receive", "end_conversation", "deliver", "fail", "settle", "fire_timers", "sweep")
# After these something may be seen that must not be.
_CHANGES = ("send", "receive", "end_conversation", "deliver", "acknowledge", "fail", "settle_moved")
# What a worker writes into its log when something went wrong that its author did not expect.
_ACCIDENTS = ("part_failed", "batch_failed", "destination_failed", "endpoint_unusable")


@dataclass(frozen=True)
class Result:
    """What came of a seed.

    Attributes:
        failure: what did not hold, or None.
        hash: of the trace.
        faults: what went wrong on purpose.
        steps: events in the trace.
        statements: that databases have executed.
        seconds: simulated ones.
        lines: the end of the trace, or all of it.
    """

    seed: int
    failure: str | None
    hash: str
    faults: list[Fault]
    steps: int
    statements: int
    seconds: float
    lines: list[str]


class _WorkersClock(Clock):
    def __init__(self, loop: SimulatedLoop, jumps: Callable[[], float]) -> None:
        self._loop = loop
        self._jumps = jumps

    def monotonic(self) -> float:
        return _UPTIME + self._loop.time()

    def now(self) -> datetime:
        return EPOCH + timedelta(seconds=self._loop.time() + self._jumps())


class Simulation:
    """One run of one seed, in a process that runs nothing else before or after it."""

    def __init__(
        self,
        sites: Sites,
        seed: int,
        *,
        without: Collection[int] = (),
        faults: Sequence[Fault] | None = None,
        is_whole: bool = False,
    ) -> None:
        """Prepare.

        Args:
            sites: the databases.
            seed: decides everything.
            without: the faults, by their place in the list, that are left out.
            faults: what goes wrong, in place of what the seed makes.
            is_whole: whether the whole trace is kept.
        """
        self._sites = sites
        self._seed = seed
        self._trace = Trace(is_whole=is_whole)
        self._loop = SimulatedLoop()
        self._trace.time = self._loop.time
        _seed_everything(self._loop, seed)
        self._network = Network(self._loop, self._random("network"), self._trace)
        self._loop.network = self._network
        plan = self._random("plan")
        is_long = plan.random() < _LONG
        self._dialogs = [
            _dialog(plan, place, is_long) for place in range(plan.randint(1, 3 if is_long else 2))
        ]
        self._sessions = plan.randint(1, 2), plan.randint(1, 2)
        # Few wait as long as a worker does by itself, so that a seed is short.
        self._pace = Pace() if plan.random() < 0.05 else _SHORT
        if plan.random() < _CALM:
            _calm_workers()
        if plan.random() < _TIGHT:
            # So that few messages are several batches in flight, in lanes, and large bodies in pieces.
            sender.MAXIMUM_MESSAGES = plan.choice((1, 2, 3))
            sender.PIECE_BYTES = plan.choice((1000, 2**19))
            sender._FEW_DIALOGS = plan.choice((1, 4))
        made = self._faults() if faults is None else faults
        if not any(fault.kind == "clock of the server" and fault.hours < 0 for fault in made):
            # Else one that is due in a second is due in an hour.
            self._dialogs = [_with_timers(dialog, self._random(dialog.name)) for dialog in self._dialogs]
        self.faults = [fault for place, fault in enumerate(made) if place not in without]
        self._armed: list[Fault] = []
        self._workers: dict[str, Process] = {}
        self._applications: dict[str, Process] = {}
        self._numbers = dict.fromkeys((SHOP, WAREHOUSE), 0)
        # What each session has done last that is not committed, by its number.
        self._changed: dict[int, str] = {}
        self._stirring: set[int] = set()
        # Seconds by which wall clocks are wrong.
        self._jumps: dict[tuple[str, str], float] = defaultdict(float)
        # How often each database has gone back.
        self._lives = dict.fromkeys((SHOP, WAREHOUSE), 0)
        self._programs: dict[str, list[Application]] = {SHOP: [], WAREHOUSE: []}
        # Nothing is asked of the workers before all faults are over.
        self._last_fault = 0.0

    def run(self) -> Result:
        """Run it."""
        self._gate = Gate(
            self._loop, self._random("server"), self._trace, self._sites.monitor, self._sites.spares
        )
        self._gate.before, self._gate.after = self._before, self._after
        # A server that is put back is started anew.
        database._INCARNATION = database._INCARNATION.replace(
            "pg_catalog.pg_postmaster_start_time()", "simulation.started()"
        )
        self._invariants = Invariants(self._sites.sessions, self._dialogs)
        structlog.configure(processors=[self._log], cache_logger_on_first_use=False)
        failure = None
        try:
            self._loop.run_until_complete(self._play())
            self._trace.note(self._invariants.digest())
        except (BrokenError, EndlessError) as error:
            failure = f"{type(error).__name__}: {error}"
        self._gate.close()
        return Result(
            self._seed,
            failure,
            self._trace.hash,
            self.faults,
            self._trace.count,
            self._gate.statements,
            self._loop.time(),
            list(self._trace.lines),
        )

    async def _play(self) -> None:
        for host in (SHOP, WAREHOUSE):
            self._start_worker(host)
        initiators = [
            self._start(
                Process(SHOP, f"initiator {number}"),
                self._program(
                    Initiator, SHOP, f"initiator {number}", dialogs=self._dialogs, stays=self._may_go_back
                ),
            )
            for number in range(self._sessions[0])
        ]
        targets = [
            self._start(
                Process(WAREHOUSE, f"target {number}"),
                self._program(Target, WAREHOUSE, f"target {number}"),
            )
            for number in range(self._sessions[1])
        ]
        for fault in self.faults:
            self._loop.call_at(fault.at, self._strike, fault)
            self._last_fault = max(self._last_fault, fault.over_at)
        is_forgotten = any(fault.kind == "restored" for fault in self.faults)
        while True:
            await asyncio.sleep(1.0)
            is_late = self._loop.time() > self._last_fault + PATIENCE
            for task in (*initiators, *targets):
                if task.done() and not task.cancelled() and task.exception() is not None:
                    raise BrokenError(f"{task.get_name()}: {task.exception()!r}")
            if self._loop.time() > self._last_fault and all(task.done() for task in initiators):
                unquiet = self._invariants.unquiet()
                if not unquiet:
                    break
                if is_forgotten and self._loop.time() > self._last_fault + _PROBES:
                    # A side that had ended, and whose end was taken and is forgotten now, is swept after half an
                    # hour. Only then the other one is told, when it asks.
                    is_forgotten = False
                    for site in self._lives:
                        self._jumps["clock of the server", site] += 3600.0
                if is_late:
                    raise BrokenError(f"after {PATIENCE:g} s: {'; '.join(unquiet)}")
            elif is_late:
                raise BrokenError(f"after {PATIENCE:g} s: {'; '.join(self._invariants.unquiet())}")
        self._invariants.check_end()

    def _faults(self) -> list[Fault]:
        made = faults_of(self._random("faults"), BUSY)
        chance = self._random("restores")
        if chance.random() < _RESTORED:
            return [*made, restore_of(chance, BUSY)]
        chance = self._random("lingering")
        return [*made, lingering(chance, BUSY)] if chance.random() < _LINGERING else made

    # Who runs.

    def _program(
        self, kind: type[Application], site: str, name: str, **rest: Any
    ) -> Coroutine[Any, Any, None]:
        program = kind(
            self._sites.urls[site], self._random(name), self._received, lambda: self._lives[site], **rest
        )
        self._programs[site].append(program)
        return program.run()

    def _may_go_back(self) -> bool:
        """Whether a database may yet forget dialogs."""
        return self._loop.time() <= self._last_fault and any(
            fault.kind == "restored" for fault in self.faults
        )

    def _start(self, process: Process, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        context = copy_context()
        context.run(PROCESS.set, process)
        return self._loop.create_task(work, name=process.name, context=context)

    def _start_worker(self, host: str) -> None:
        self._numbers[host] += 1
        process = Process(host, f"worker {host} {self._numbers[host]}")
        self._workers[host] = process
        self._trace.note("start", process.name)
        self._start(process, self._work(host, process))

    async def _work(self, host: str, process: Process) -> None:
        try:
            await supervisor.run(
                [self._sites.urls[host]],
                self._sites.keys[host],
                asyncio.Event(),
                clock=_WorkersClock(self._loop, lambda: self._jumps["clock of the worker", host]),
                pace=self._pace,
                waits=True,
            )
        except ServingError as error:
            # Whoever runs workers starts them again.
            self._trace.note("ended", process.name, type(error).__name__)
            self._loop.call_later(1.0, self._start_worker, host, context=self._network.context)

    def _die(self, process: Process, notice: float | None, lingering: Session | None = None) -> None:
        self._trace.note("dies", process.name)
        process.is_dead = True
        self._network.died(process, notice=notice)
        self._gate.died(process, lingering)

    # What goes wrong.

    def _strike(self, fault: Fault) -> None:
        self._trace.note("fault", fault)
        match fault.kind:
            case "worker dies" | "session dies":
                self._armed.append(fault)
            case "line cut":
                for line in self._network.lines[-1:]:
                    line.cut(fault.notice, fault.lost)
            case "session terminated":
                sessions = self._gate.sessions_of(self._workers[fault.site])
                if sessions:
                    self._gate.terminate(self._random(f"terminated {fault.at}").choice(sessions))
            case "parted":
                self._network.parted_until = max(
                    self._network.parted_until, self._loop.time() + fault.seconds
                )
            case "server away":
                self._stop_server(fault)
            case "restored":
                self._sites.back_up(fault.site)
                self._invariants.copied(fault.site)
                self._loop.call_later(fault.after, self._restore, fault)
            case "clock of the worker" | "clock of the server":
                self._jumps[fault.kind, fault.site] += fault.hours * 3600.0
            case "slow network":
                self._network.slowness = 30.0
                self._loop.call_later(fault.seconds, setattr, self._network, "slowness", 1.0)
            case "slow server":
                self._gate.slowness = 30.0
                self._loop.call_later(fault.seconds, setattr, self._gate, "slowness", 1.0)

    def _stop_server(self, fault: Fault) -> None:
        """End all sessions, and let none in until it is over."""
        self._gate.away.add(fault.site)
        for session in self._gate.sessions_in(fault.site):
            self._gate.terminate(session)
        self._sites.set_started(fault.site, self._loop.time() + fault.seconds)
        self._loop.call_later(fault.seconds, self._gate.away.discard, fault.site)

    def _restore(self, fault: Fault) -> None:
        self._trace.note("restored", fault.site)
        worker = self._workers[fault.site]
        if fault.label == WITH_WORKER and not worker.is_dead:
            self._die(worker, 0.0)
            self._loop.call_later(
                fault.seconds, self._start_worker, fault.site, context=self._network.context
            )
        self._stop_server(fault)
        self._invariants.goes_back(fault.site)
        self._sites.restore(fault.site)
        self._lives[fault.site] += 1
        self._invariants.has_gone_back(fault.site, self._lives[fault.site])
        for program in self._programs[fault.site]:
            program.forget()

    def _meet(self, statement: Statement, *, is_after: bool) -> None:
        """Have an armed fault strike at this statement, if it is for it."""
        session = statement.session
        process = None if session is None else session.process
        if session is None or process is None or process.is_dead:
            return
        for fault in self._armed:
            is_worker = process is self._workers.get(process.host)
            label = statement.label
            if fault.lingers:
                label = self._changed.get(session.number, "") if label == "COMMIT" else ""
            if (
                fault.site != process.host
                or is_worker != (fault.kind == "worker dies")
                or fault.is_after != is_after
                or fault.label not in (None, label)
                or not label
            ):
                continue
            self._armed.remove(fault)
            self._trace.note("strikes", fault)
            self._last_fault = max(self._last_fault, self._loop.time() + fault.seconds + fault.lingers)
            if fault.lingers:
                self._die(process, fault.notice[0], session)
                self._loop.call_later(
                    fault.lingers, self._gate.commit_late, session, context=self._network.context
                )
            elif is_worker:
                self._die(process, fault.notice[0])
            if is_worker:
                self._loop.call_later(
                    fault.seconds, self._start_worker, process.host, context=self._network.context
                )
            else:
                self._gate.terminate(session)
            return

    # What is looked at.

    def _before(self, statement: Statement) -> None:
        jumps = self._jumps["clock of the server", statement.database]
        self._sites.set_clock(statement.database, self._loop.time() + jumps)
        if self._gate.statements > _MOST_STATEMENTS:
            self._loop.halt = EndlessError(f"{_MOST_STATEMENTS} statements were not enough")
        self._meet(statement, is_after=False)

    def _after(self, statement: Statement, outcome: str) -> None:
        session = statement.session
        assert session is not None
        if (statement.label, outcome) != ("receive", "0"):
            if statement.label.startswith(_CHANGES):
                self._changed[session.number] = statement.label
            if statement.label.startswith(_STIRS):
                self._stirring.add(session.number)
        if session.is_at_rest:
            self._invariants.is_over(session)
            self._look_on(session)
        self._meet(statement, is_after=True)

    def _look_on(self, session: Session) -> None:
        """Look at what a transaction has changed that is over, and stir who waits for it."""
        number = session.number
        if number in self._changed or number in self._stirring:
            self._invariants.has_changed(session.database)
        if number in self._changed:
            del self._changed[number]
            self._check()
        if number in self._stirring:
            self._stirring.discard(number)
            for program in self._programs[session.database]:
                program.stirred.set()

    def _check(self) -> None:
        try:
            self._invariants.check()
        except BrokenError as error:
            self._fail(error)

    def _received(self, connection: AsyncConnection[Any], group: UUID) -> None:
        session = self._gate.session_of(connection.fileno())
        try:
            self._invariants.received(session, group)
        except BrokenError as error:
            self._fail(error)

    def _fail(self, error: BrokenError) -> None:
        self._loop.halt = self._loop.halt or error

    def _log(self, logger: object, method: str, event: dict[str, Any]) -> str:
        del logger
        process = PROCESS.get()
        name = process.name if process else "-"
        told = " ".join(f"{key}={value!r}" for key, value in event.items() if key != "event")
        if event.get("exc_info"):
            told += f"\n{traceback.format_exc()}"
        self._trace.comment(name, method, event["event"], told)
        if event["event"] in _ACCIDENTS:
            self._fail(BrokenError(f"{name}: {event['event']} {told}"))
        raise structlog.DropEvent

    def _random(self, purpose: str) -> random.Random:
        return random.Random(f"{self._seed} {purpose}")


def _dialog(random: random.Random, place: int, is_long: bool) -> Dialog:
    return Dialog(
        f"d{place}",
        random.choice((5, 9, 12) if is_long else (1, 2, 2, 3, 4)),
        random.choice((20, 20, 200, 3000)),
        waits=random.random() < 0.7,
        with_error=random.random() < 0.15,
    )


def _calm_workers() -> None:
    """Have workers look less often at what they are told of, and write nothing that is for people only."""
    # While a sender runs it finds by itself what comes for its destination.
    router.RUNNING_SECONDS = router.IDLE_SECONDS = 1.0
    router.BUSY_SECONDS = 0.1
    router._GROWTH = 5.0
    # While messages wait somewhere.
    wake_ups.LOOK_SECONDS = 1.0
    # Nothing is validated here.
    validation.BUSY_SECONDS = validation.IDLE_SECONDS = 5.0
    # What the views show of a worker.
    presence._GATHER_SECONDS = 5.0
    # Each session reads catalogs and makes plans of its own.
    database.Database.__init__.__kwdefaults__["max_connections"] = 4
    psycopg_pool.base.deque = _LastFirst
    Records.note = _note_nothing  # type: ignore[method-assign]


class _LastFirst(deque[Any]):
    """Sessions of a pool, of which the one that was given back last is taken first."""

    def popleft(self) -> Any:
        return self.pop()


async def _note_nothing(records: Records, *_: object) -> None:
    del records


def _with_timers(dialog: Dialog, random: random.Random) -> Dialog:
    return replace(dialog, timers=random.choice((0, 0, 1, 2)))


def _seed_everything(loop: SimulatedLoop, seed: int) -> None:
    """Have chance and time come from the seed and the loop, wherever libraries ask for them."""
    random.seed(seed)
    chance = random.Random(f"{seed} chance")
    os.urandom = random._urandom = chance.randbytes  # type: ignore[attr-defined]
    for module in (
        psycopg_pool.base,
        psycopg_pool.pool_async,
        psycopg_pool.sched_async,
        connection_async,
        waiting,
    ):
        module.monotonic = loop.time  # type: ignore[attr-defined]
