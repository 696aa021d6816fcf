"""What a specification does, the functions do: TLC's behaviours, done by sessions that stop where the specification says."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.replay import GATES, DiffersError, SteppedSession, plant, replay
from tests.shop import Session, Shop
from tests.specs import tlc

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import Database

pytestmark = pytest.mark.skipif(
    tlc.missing() is not None and "CI" not in os.environ, reason=str(tlc.missing())
)
SEED = 19
# At a landing, and at night.
NUMBERS = [12, pytest.param(300, marks=[pytest.mark.nightly, pytest.mark.timeout(1800)])]


@pytest.fixture
def shop(database: Database) -> Iterator[Shop]:
    """The shop on the newest PostgreSQL, with gates."""
    shop = Shop(database)
    shop.psql.connection.execute(GATES)
    yield shop
    shop.close()


def actions_of(name: str, number: int) -> set[str]:
    return {step.action for behaviour in behaviours_of(name, number) for step in behaviour}


def behaviours_of(name: str, number: int) -> list[list[tlc.Step]]:
    return tlc.traces(name, number=number, depth=60, seed=SEED)


class FloorsSessions:
    """The sessions of all behaviours, and a queue whose floors each of them raises when it is told to."""

    # Before each of these a raiser stops: they are the steps of floors.tla.
    RAISING = (
        "  this_number := nextval(",
        "  select f.* into base from",
        "  select s.last_value",
        "  select\n    coalesce(array_agg(l.virtualtransaction)",
        "  raised := base.floors;",
    )

    def __init__(self, shop: Shop) -> None:
        self.shop, self.psql = shop, shop.psql
        self.stepped = {name: SteppedSession(shop, name) for name in ("s1", "s2", "r1", "r2", "mover")}
        self.psql.rows("select broker.create_queue('annex')")
        self.psql.rows("select broker.create_service('//annex', 'annex', '{ordering}')")
        self.psql.rows("update broker_private.queues set is_poison_message_handling_enabled = false")
        self.psql.rows("update broker_private.queues set has_floors = true where name = 'warehouse'")
        # RECEIVE raises nothing by itself, and raise_floors does though nothing is slow.
        plant(self.psql, "pick_above_floors", "is_sample or random() < 0.1", "false")
        plant(self.psql, "first_message", "walked > 200", "false")
        plant(self.psql, "first_message", "pages > 60", "false")
        plant(self.psql, "raise_floors", "saved_dead <= 200", "false")
        for anchor in self.RAISING:
            plant(self.psql, "raise_floors", anchor, f"  perform replay.gate();\n{anchor}")
        # Who meets a reset has ended at its look.
        again = "  select f.number into newest_number\n"
        plant(self.psql, "raise_floors", again, f"  perform replay.gate() where not is_reset;\n{again}")
        for anchor in ("  perform nextval(", "  insert into broker_private.queue_floors"):
            plant(self.psql, "reset_floors", anchor, f"  perform replay.gate();\n{anchor}")

    def close(self) -> None:
        for session in self.stepped.values():
            session.let_go()


class Floors:
    """Messages of one priority, each on a dialog of its own, in a queue that nothing else is in."""

    RAISE = "select broker_private.raise_floors(queue_id, 3000, null) from broker_private.queues where name = 'warehouse'"
    MOVE = "select broker.alter_service('//annex', queue => %s)"
    # Messages, and the newest floors: number, floor, decided, horizon, senders.
    SIGHT = (
        "select array(select m.id from broker_private.messages m where m.queue_id = q.queue_id order by 1),"
        " f.number, f.floors[6], f.decided, f.horizon, cardinality(f.senders)"
        " from broker_private.queues q left join lateral (select x.* from broker_private.queue_floors x"
        " where x.queue_id = q.queue_id order by x.number desc limit 1) f on true where q.name = 'warehouse'"
    )

    def __init__(self, sessions: FloorsSessions) -> None:
        self._psql, self._stepped = sessions.psql, sessions.stepped
        self._psql.rows("delete from broker_private.messages")
        self._psql.rows("delete from broker_private.queue_floors")
        if self._psql.value(
            "select s.queue_id = q.queue_id from broker_private.services s, broker_private.queues q where s.name = '//annex' and q.name = 'warehouse'"
        ):
            self._psql.rows(self.MOVE, "annex")
            self._psql.rows("delete from broker_private.queue_floors")
        self._psql.rows("select setval('broker_private.floor_numbers', 1, false)")
        self._send(self._psql, "//annex", 1)
        self._before = self._last_id() - 1

    def _last_id(self) -> int:
        last: int = self._psql.value("select last_value from broker_private.queuing_order")
        return last

    @staticmethod
    def _send(session: Session, service: str, number: int) -> None:
        dialog = session.value("select broker.begin_dialog('//shop', %s, contract => 'ordering')", service)
        session.send(dialog, "order", str(number).encode())

    def act(self, action: str, *arguments: str) -> None:
        session = self._stepped[arguments[0]]
        match action:
            case "send":
                self._send(session, "//warehouse", self._last_id() - self._before + 1)
            case "receive":
                session.begin(
                    "select convert_from(message_body, 'UTF8') from broker.receive('warehouse', top => 1)"
                )
                if (body := session.result()) != arguments[1]:
                    raise DiffersError(f"it received {body}")
            case "move":
                session.begin(self.MOVE, "warehouse")
            case "raise":
                session.begin(self.RAISE)
            case "step":
                session.go_on()
            case "commit":
                session.connection.commit()
            case "rollback":
                session.connection.rollback()

    def state(self) -> str:
        sights = [self._sight(self._psql)]
        for name in ("r1", "r2"):
            session = self._stepped[name]
            sights.append("-" if session.stands else self._sight(session))
        return " ".join([str(self._last_id() - self._before), *sights])

    def _sight(self, session: Session) -> str:
        ids, number, *places, senders = session.rows(self.SIGHT)[0]
        marks = "".join(str(int(self._before + number in ids)) for number in range(1, 7))
        # Where nothing is decided yet 0 and 1 are below all ids, here and in the specification.
        shown = [max(place - self._before, min(place, 1)) if place else 0 for place in places]
        return ",".join(map(str, [marks, number or 0, *shown, senders or 0]))

    def finish(self, last: str) -> None:
        for session in self._stepped.values():
            session.let_go()
            session.connection.rollback()
        marks = last.split()[1].split(",", maxsplit=1)[0]
        bodies = [self._psql.bodies(top=1) for _ in range(len(marks) + 1)]
        expected = [[str(place + 1).encode()] for place, mark in enumerate(marks) if mark == "1"]
        if [body for body in bodies if body] != expected:
            raise DiffersError(last, bodies)


@pytest.fixture
def floors(shop: Shop) -> Iterator[FloorsSessions]:
    sessions = FloorsSessions(shop)
    yield sessions
    sessions.close()


@pytest.mark.parametrize("number", NUMBERS)
def test_floors_rise_as_the_specification_says(floors: FloorsSessions, number: int) -> None:
    assert actions_of("floors", number) == {"send", "receive", "move", "raise", "step", "commit", "rollback"}
    replay(behaviours_of("floors", number), lambda: Floors(floors))


MISTAKES_OF_FLOORS = {
    "senders are not waited for": ("raise_floors", "if senders = '{}' then", "if true then"),
    "who resets is not looked for": ("raise_floors", "if is_reset or newest", "if newest"),
    "a move resets nothing": ("rehome_service", "  perform broker_private.reset_floors(queue);\n", ""),
}


@pytest.mark.parametrize("mistake", MISTAKES_OF_FLOORS)
def test_a_mistake_in_floors_is_found(floors: FloorsSessions, mistake: str) -> None:
    plant(floors.psql, *MISTAKES_OF_FLOORS[mistake])
    with pytest.raises(DiffersError):
        replay(behaviours_of("floors", 12), lambda: Floors(floors))


class SleepingSessions:
    """The sessions of all behaviours; SEND and sleep_on stop where sleeping.tla has a step."""

    def __init__(self, shop: Shop) -> None:
        self.shop, self.psql = shop, shop.psql
        self.senders = {name: SteppedSession(shop, name) for name in ("s1", "s2")}
        self.sleepers = dict[str, SteppedSession]()
        self.is_notified = dict[str, bool]()
        for name in ("r1", "r2"):
            self.begin_sleeper(name)
        self.dialogs = {name: self.psql.dialog() for name in self.senders}
        # The second one is no first message: SEND has its plan.
        for dialog in self.dialogs.values():
            for body in (b"first", b"second"):
                self.psql.send(dialog, "order", body)
        lock = "pg_try_advisory_xact_lock_shared(broker_private.sleepers_lock(), place)"
        plant(self.psql, "send", f"if found and {lock}", f"if found and replay.gate() and {lock}")
        look = "elsif broker_private.has_arrivals(queue)"
        plant(self.psql, "sleep_on", f"{look} or not", f"{look} or not replay.gate() or not")
        plant(
            self.psql,
            "sleep_on",
            f"{look}\n",
            "elsif not replay.gate() or broker_private.has_arrivals(queue)\n",
        )

    def begin_sleeper(self, name: str) -> None:
        self.sleepers[name] = SteppedSession(self.shop, name, autocommit=True)
        self.is_notified[name] = False

    def close(self) -> None:
        for session in (*self.senders.values(), *self.sleepers.values()):
            session.let_go()


class Sleeping:
    """One queue, who sends to it, and who sleeps on it."""

    SLEEP = "select broker.sleep_on('warehouse')"
    HOLDERS = (
        "select l.mode, l.pid from pg_locks l join pg_database d on d.oid = l.database"
        " join broker_private.queues q on q.queue_id::bigint = l.objid::bigint"
        " where q.name = 'warehouse' and d.datname = current_database() and l.locktype = 'advisory'"
        " and l.classid::bigint = broker_private.sleepers_lock() and l.granted"
    )

    def __init__(self, sessions: SleepingSessions) -> None:
        self._sessions, self._psql = sessions, sessions.psql
        self._psql.rows("delete from broker_private.messages")

    def act(self, action: str, name: str, *ends: str) -> None:
        if name in self._sessions.senders:
            self._send(self._sessions.senders[name], action)
        elif action == "crash":
            self._sessions.sleepers[name].crash()
            self._sessions.begin_sleeper(name)
        else:
            self._sleep(self._sessions.sleepers[name], action, *ends)

    def _send(self, session: SteppedSession, action: str) -> None:
        match action:
            case "insert":
                session.begin("select broker.send(%s, 'order', 'next')", self._sessions.dialogs[session.name])
                if not session.stands:
                    raise DiffersError("it took another way")
            case "step":
                session.go_on()
            case "commit":
                session.connection.commit()
            case "rollback":
                session.let_go()
                session.connection.rollback()

    def _sleep(self, session: SteppedSession, action: str, *ends: str) -> None:
        match action:
            case "sleep":
                session.begin(self.SLEEP)
            case "step":
                session.go_on()
            case "wake":
                if not self._sessions.is_notified[session.name]:
                    raise DiffersError("nobody wakes it")
                self._sessions.is_notified[session.name] = False
                session.rows("select broker.wake_up('warehouse')")
            case "receive":
                if len(session.bodies(top=1)) != 1:
                    raise DiffersError("it received nothing")
        for end in ends:
            has = "at a gate" if session.stands else session.result()
            if has != {"awake": False, "asleep": True}.get(end, "at a gate"):
                raise DiffersError(f"it is not {end}: {has}")

    def state(self) -> str:
        waiting = self._psql.value("select count(*) from broker_private.messages where urgency = 2")
        sleepers, senders = self._sessions.sleepers, self._sessions.senders
        names = {session.connection.info.backend_pid: name for name, session in (sleepers | senders).items()}
        holders = [(mode, names.get(pid, "?")) for mode, pid in self._psql.rows(self.HOLDERS)]
        held = [name for mode, name in holders if mode == "ExclusiveLock"] or ["nobody"]
        shared = [name for mode, name in holders if mode == "ShareLock"]
        marks = "".join(str(int(name in shared)) for name in senders)
        return " ".join([str(waiting), ",".join(held), marks, *map(self._of_sleeper, sleepers)])

    def _of_sleeper(self, name: str) -> str:
        session = self._sessions.sleepers[name]
        if session.stands:
            return "-"
        # What has been committed before a statement is notified at its end.
        listens = session.value(
            "select exists (select from pg_listening_channels() c, broker_private.queues q"
            " where q.name = 'warehouse' and c = 'pybroker_' || q.queue_id)"
        )
        if list(session.connection.notifies(timeout=0)):
            self._sessions.is_notified[name] = True
        return f"{int(listens)}{int(self._sessions.is_notified[name])}"

    def finish(self, last: str) -> None:
        del last
        for session in self._sessions.senders.values():
            session.let_go()
            session.connection.rollback()
        for name, session in self._sessions.sleepers.items():
            session.let_go()
            session.rows("select pg_advisory_unlock_all()")
            session.rows("unlisten *")
            list(session.connection.notifies(timeout=0))
            self._sessions.is_notified[name] = False


@pytest.fixture
def sleeping(shop: Shop) -> Iterator[SleepingSessions]:
    sessions = SleepingSessions(shop)
    yield sessions
    sessions.close()


@pytest.mark.parametrize("number", NUMBERS)
def test_sleepers_are_woken_as_the_specification_says(sleeping: SleepingSessions, number: int) -> None:
    assert actions_of("sleeping", number) == {
        *("insert", "step", "commit", "rollback", "sleep", "wake", "receive", "crash")
    }
    replay(behaviours_of("sleeping", number), lambda: Sleeping(sleeping))


MISTAKES_OF_SLEEPING = {
    "the sleeper looks only before the lock": (
        "sleep_on",
        "not replay.gate() or broker_private.has_arrivals(queue)\n",
        "not replay.gate()\n",
    ),
    "a sender that finds the lock taken tells nobody": (
        "send",
        "perform broker_private.wake_sleepers(place);",
        "null;",
    ),
    "the sender gives its lock back before its commit": (
        "send",
        "replay.gate() and pg_try_advisory_xact_lock_shared(broker_private.sleepers_lock(), place)",
        "replay.gate() and pg_try_advisory_lock_shared(broker_private.sleepers_lock(), place)"
        " and pg_advisory_unlock_shared(broker_private.sleepers_lock(), place)",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES_OF_SLEEPING)
def test_a_mistake_in_sleeping_is_found(sleeping: SleepingSessions, mistake: str) -> None:
    plant(sleeping.psql, *MISTAKES_OF_SLEEPING[mistake])
    with pytest.raises(DiffersError):
        replay(behaviours_of("sleeping", 12), lambda: Sleeping(sleeping))
