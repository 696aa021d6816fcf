"""Sessions at random, call by call against a model of the broker: what each returns, refuses, waits for and leaves behind.

PYBROKER_MODEL_EXAMPLES runs more examples than the default; `make nightly` does.
"""

from __future__ import annotations

import inspect
import os
import uuid
from collections import defaultdict
from itertools import count
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from tests.conftest import migrated_database
from tests.model import FAR, LEFT, RIGHT, TYPES, URGENT, WAITS, Model, Received, Refusal, View
from tests.shop import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pybroker.embedded import EmbeddedServer
    from tests.conftest import Database

EXAMPLES = int(os.environ.get("PYBROKER_MODEL_EXAMPLES", "20"))
STEPS = 50
SESSIONS = 3
OBSERVER = SESSIONS
DEFINITIONS = """
select broker.create_message_type('order');
select broker.create_message_type('ack');
select broker.create_message_type('note');
select broker.create_contract('talk',
  sent_by_initiator => '{order}', sent_by_target => '{ack}', sent_by_any => '{note}');
"""
TABLES = (
    "conversation_timers",
    "endpoints",
    "far_events",
    "groups",
    "messages",
    "moved_conversations",
    "sequence_counters",
    "transmission_messages",
    "transmission_status",
)

sessions = st.integers(0, SESSIONS - 1)
sides = st.sampled_from([LEFT, RIGHT])
ON_DIALOGS = {
    "send": 9,
    "send_batch": 3,
    "begin_dialog_with_related_conversation": 1,
    "send_in_any_direction": 1,
    "receive_from_conversation": 3,
    "receive_from_group": 3,
    "end_conversation": 3,
    "move_conversation": 2,
    "begin_conversation_timer": 5,
}
ON_TRANSACTIONS = {
    "commit": 8,
    "rollback": 2,
    "savepoint": 2,
    "rollback_to_savepoint": 2,
    "release_savepoint": 1,
    "disconnect": 1,
}
OTHERS = {
    "begin_dialog": 3,
    "begin_dialog_in_group": 2,
    "receive": 8,
    "get_conversation_group": 2,
    "alter_queue": 3,
    "retry": 1,
    "fire_timers": 5,
}
WEIGHTS = ON_DIALOGS | ON_TRANSACTIONS | OTHERS

actions = st.sampled_from([action for action, weight in WEIGHTS.items() for _ in range(weight)])
picks = st.integers(0, 99)
tops = st.sampled_from([None, None, None, 1, 2, 3, 0])


class Arena:
    """One database and its sessions, for all examples; each example has queues of its own."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.observer = Session(database.connect())
        self.observer.rows(DEFINITIONS)
        self.observer.connection.prepare_threshold = 0
        self.sessions = [self._connect() for _ in range(SESSIONS)]
        self.examples = count()

    def _connect(self) -> Session:
        session = Session(self.database.connect())
        # Only another session of the example can be in the way, and that one won't move until this one has its answer.
        session.rows("set lock_timeout = '10 ms'")
        session.connection.prepare_threshold = 0
        return session

    def disconnect(self, session: int) -> None:
        """End the session's connection with whatever it has open, and connect again when the server is done with it."""
        connection = self.sessions[session].connection
        pid = connection.info.backend_pid
        connection.close()
        self.observer.rows(
            "select pg_terminate_backend(%s, 60000) from pg_stat_activity where pid = %s", pid, pid
        )
        self.sessions[session] = self._connect()

    def close(self) -> None:
        for session in [self.observer, *self.sessions]:
            session.connection.close()


class Machine(RuleBasedStateMachine):
    """Two services, and sessions that talk on their dialogs; the first session commits after each call."""

    def __init__(self, arena: Arena) -> None:
        super().__init__()
        self.arena = arena
        self.model = Model(SESSIONS + 1)
        # What earlier examples left would only make each look at a view slower.
        arena.observer.rows(f"truncate {', '.join(f'broker_private.{table}' for table in TABLES)}")
        example = next(arena.examples)
        self.queues = {side: f"{side} {example}" for side in FAR}
        self.services = {side: f"//{side}/{example}" for side in FAR}
        for side in FAR:
            arena.observer.rows(
                # Rollbacks are not to turn the queue off here.
                "select broker.create_queue(%s, poison_message_handling => false), broker.create_service(%s, %s, '{talk}')",
                self.queues[side],
                self.services[side],
                self.queues[side],
            )
        # The model numbers endpoints, dialogs and groups; these say which they are in the database.
        self.handles: dict[int, uuid.UUID] = {}
        self.dialogs: dict[int, uuid.UUID] = {}
        self.groups: dict[int, uuid.UUID] = {}
        self.bodies = count()
        self.has_failed = False
        # What was really sent and received, by the savepoints of each open transaction, and in committed ones.
        self.open: list[list[list[tuple[str, Any]]]] = [[[]] for _ in range(SESSIONS)]
        self.committed: list[tuple[str, Any]] = []

    # What a session does

    def view(self, session: int) -> View:
        return View(self.model, session)

    def call(
        self,
        session: int,
        operation: Callable[[View], Any],
        query: str,
        *arguments: object,
        or_waits: bool = False,
    ) -> tuple[Any, list[tuple[Any, ...]]] | None:
        """Make a call and compare: its refusal, or else what the session sees then. Returns the model's result and the rows."""
        real = self.arena.sessions[session]
        if real.connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE:
            real.rows("begin")
        try:
            expected = self.model.call(session, operation)
        except Refusal as refusal:
            real.rows("savepoint call")
            with pytest.raises(psycopg.Error) as caught:
                real.rows(query, *arguments)
            real.rows("rollback to call")
            real.rows("release call")
            allowed = {refusal.sqlstate, WAITS} if or_waits else {refusal.sqlstate}
            self.check_refusal(caught.value, allowed)
            return None
        return expected, real.rows(query, *arguments)

    @staticmethod
    def check_refusal(error: psycopg.Error, allowed: set[str]) -> None:
        assert error.sqlstate in allowed, error
        assert error.sqlstate == WAITS or error.diag.message_hint, "a refusal says what to do"

    def after(self, session: int) -> None:
        self.compare(session)
        if session == 0 and self.is_open(session):
            self.finish(session, is_commit=True)

    def finish(self, session: int, *, is_commit: bool) -> None:
        if not self.is_open(session):
            return
        self.arena.sessions[session].rows("commit" if is_commit else "rollback")
        if is_commit:
            self.model.commit(session)
            self.committed += [event for frame in self.open[session] for event in frame]
        else:
            self.model.rollback(session)
        self.open[session] = [[]]
        self.compare(OBSERVER)

    def compare(self, session: int) -> None:
        """Compare what a session sees: states, queues, what waits."""
        real = self.arena.observer if session == OBSERVER else self.arena.sessions[session]
        view = self.view(session)
        rows = real.rows(
            "select e.conversation_handle, e.conversation_id, e.is_initiator, e.conversation_group_id, e.state"
            " from broker.conversation_endpoints e join broker.services s using (service_id) where s.name = any (%s)",
            list(self.services.values()),
        )
        seen = {(dialog, is_initiator): rest for _, dialog, is_initiator, *rest in rows}
        handles = {(dialog, is_initiator): handle for handle, dialog, is_initiator, *_ in rows}
        dialogs = {handle: dialog for handle, dialog, *_ in rows}
        expected = {}
        for e in view.all("endpoint"):
            state = view.state(e.number)
            if state is None:
                continue
            if e.dialog not in self.dialogs:
                self.dialogs[e.dialog] = dialogs[self.handles[e.number]]
            key = self.dialogs[e.dialog], e.is_initiator
            assert key in seen, f"no endpoint for {e}"
            assert self.handles.setdefault(e.number, handles[key]) == handles[key]
            expected[key] = [self.groups.setdefault(e.group, seen[key][0]), state]
        assert seen == expected

        found = real.rows(
            "select conversation_handle, message_type_name, message_sequence_number, message_body"
            " from broker.queue_messages where service_name = any (%s) order by 1, 2, 3",
            list(self.services.values()),
        )
        wanted = [(self.handles[row.endpoint], *row[1:]) for side in FAR for row in view.queue(side)]
        assert found == sorted(wanted, key=lambda row: row[:3])

        found = real.rows(
            "select conversation_handle, message_type_name, message_body from broker.transmission_queue"
            " where from_service_name = any (%s) order by conversation_handle, message_sequence_number",
            list(self.services.values()),
        )
        wanted = [(self.handles[e], kind, body) for e, kind, body in view.transmission_queue()]
        assert found == sorted(wanted, key=lambda row: row[0])

    def endpoint(self, session: int, pick: int) -> int:
        """Choose an endpoint: mostly one that the session sees, sometimes any that ever was."""
        view = self.view(session)
        live = [e.number for e in view.all("endpoint") if view.state(e.number) is not None]
        known = sorted(self.handles) if pick % 10 == 9 or not live else live
        return known[-1 - pick // 10 % len(known)]

    def check_received(self, session: int, result: tuple[Any, list[tuple[Any, ...]]] | None) -> None:
        if result is not None:
            expected, rows = result
            numbers = {handle: number for number, handle in self.handles.items()}
            assert [Received(numbers[row[0]], *row[1:]) for row in rows] == expected
            self.open[session][-1] += [("received", row) for row in expected]
        self.after(session)

    # Rules

    def _begin(self, session: int, side: str, option: str = "", value: object = None, **related: int) -> None:
        query = "select broker.begin_dialog(%s, %s, 'talk'" + (f", {option} => %s)" if option else ")")
        arguments = [self.services[side], self.services[FAR[side]], *([value] if option else [])]
        result = self.call(session, lambda view: view.begin_dialog(side, **related), query, *arguments)
        if result is not None:
            expected, ((handle,),) = result
            self.handles[expected.number] = handle
        self.after(session)

    def begin_dialog(self, session: int, side: str) -> None:
        self._begin(session, side)

    def begin_dialog_with_related_conversation(self, session: int, side: str, pick: int) -> None:
        endpoint = self.endpoint(session, pick)
        self._begin(session, side, "related_conversation", self.handles[endpoint], related=endpoint)

    def begin_dialog_in_group(self, session: int, side: str, pick: int) -> None:
        known = sorted(self.groups)
        if not known or pick % 4 == 0:
            group = self.view(session).new_group()
            self.groups[group] = uuid.uuid4()
        else:
            group = known[-1 - pick // 4 % len(known)]
        self._begin(session, side, "related_conversation_group", self.groups[group], group=group)

    def _send(self, session: int, pick: int, kind: str, size: int | None) -> None:
        endpoint = self.endpoint(session, pick)
        bodies = [b"m%d" % next(self.bodies) for _ in range(size or 1)]
        query = "select broker.send_batch(%s, %s, %s)" if size else "select broker.send(%s, %s, %s::bytea)"
        # A short cut of SEND locks the group before it looks whether the conversation is over.
        result = self.call(
            session,
            lambda view: view.send(endpoint, kind, bodies),
            query,
            self.handles[endpoint],
            kind,
            bodies if size else bodies[0],
            or_waits=True,
        )
        if result is not None:
            self.open[session][-1] += [("sent", (endpoint, body)) for body in bodies]
        self.after(session)

    def kind(self, session: int, pick: int, *, allowed: bool) -> str:
        if not allowed:
            return ["order", "ack"][pick % 2]
        e = self.view(session).get("endpoint", self.endpoint(session, pick))
        return "note" if e is None or pick % 3 == 0 else "order" if e.is_initiator else "ack"

    def send(self, session: int, pick: int) -> None:
        self._send(session, pick, self.kind(session, pick, allowed=True), None)

    def send_batch(self, session: int, pick: int) -> None:
        self._send(session, pick, self.kind(session, pick, allowed=True), 1 + pick % 4)

    def send_in_any_direction(self, session: int, pick: int) -> None:
        self._send(session, pick, self.kind(session, pick, allowed=False), None)

    RECEIVE = (
        "select conversation_handle, message_type_name, message_sequence_number, message_body"
        " from broker.receive(%s, top => %s"
    )

    def receive(self, session: int, side: str, top: int | None) -> None:
        result = self.call(
            session, lambda view: view.receive(side, top), self.RECEIVE + ")", self.queues[side], top
        )
        self.check_received(session, result)

    def receive_from_conversation(self, session: int, pick: int, top: int | None) -> None:
        endpoint = self.endpoint(session, pick)
        e = self.view(session).get("endpoint", endpoint)
        side = e.side if e is not None and pick % 7 else LEFT
        result = self.call(
            session,
            lambda view: view.receive(side, top, endpoint=endpoint),
            self.RECEIVE + ", conversation_handle => %s)",
            self.queues[side],
            top,
            self.handles[endpoint],
        )
        self.check_received(session, result)

    def receive_from_group(self, session: int, pick: int, top: int | None) -> None:
        known = sorted(self.groups)
        group = known[-1 - pick % len(known)]
        side = self.view(session).get("group", group) or RIGHT
        side = side if pick % 7 else FAR[side]
        result = self.call(
            session,
            lambda view: view.receive(side, top, group=group),
            self.RECEIVE + ", conversation_group_id => %s)",
            self.queues[side],
            top,
            self.groups[group],
        )
        self.check_received(session, result)

    def get_conversation_group(self, session: int, side: str) -> None:
        result = self.call(
            session,
            lambda view: view.get_conversation_group(side),
            "select broker.get_conversation_group(%s)",
            self.queues[side],
        )
        if result is not None:
            expected, ((group,),) = result
            assert group == (None if expected is None else self.groups[expected])
        self.after(session)

    def end_conversation(self, session: int, pick: int) -> None:
        how = "EEEXXC"[pick % 6]
        endpoint = self.endpoint(session, pick)
        text = f"failure {next(self.bodies)}"
        body = (
            '<Error xmlns="http://schemas.microsoft.com/SQL/ServiceBroker/Error"><Code>1</Code>'
            f"<Description>{text}</Description></Error>"
        ).encode()
        query, arguments = {
            "E": ("select broker.end_conversation(%s)", ()),
            "X": ("select broker.end_conversation(%s, 1, %s)", (text,)),
            "C": ("select broker.end_conversation(%s, cleanup => true)", ()),
        }[how]
        self.call(
            session,
            lambda view: view.end(endpoint, how, body if how == "X" else None),
            query,
            self.handles[endpoint],
            *arguments,
        )
        self.after(session)

    def move_conversation(self, session: int, pick: int) -> None:
        """Move and commit, and not past what is being sent: where that lands is tested apart, with the conversation's moves."""
        endpoint = self.endpoint(session, pick)
        if self.model.is_receiving_from_another(session, endpoint):
            return
        e = self.view(session).get("endpoint", endpoint)
        known = sorted(
            group
            for group in self.groups
            if pick % 5 == 0 or e is None or self.view(session).get("group", group) == e.side
        ) or sorted(self.groups)
        group = known[-1 - pick % len(known)]
        self.call(
            session,
            lambda view: view.move(endpoint, group),
            "select broker.move_conversation(%s, %s)",
            self.handles[endpoint],
            self.groups[group],
        )
        self.finish(session, is_commit=True)

    def begin_conversation_timer(self, session: int, pick: int) -> None:
        """Set a timer that is over at once, and fires when a session does the worker's work."""
        endpoint = self.endpoint(session, pick)
        self.call(
            session,
            lambda view: view.begin_timer(endpoint),
            "select broker.begin_conversation_timer(%s, '1 microsecond')",
            self.handles[endpoint],
        )
        self.after(session)

    def fire_timers(self, session: int) -> None:
        self.call(session, View.fire_timers, "select broker_private.fire_timers()")
        self.after(session)

    def alter_queue(self, session: int, side: str, pick: int) -> None:
        # A queue that is off hides much: the next of these calls turns it on again.
        view = self.view(session)
        side = next((queue for queue in FAR if not view.get("queue", queue)), side)
        status = not view.get("queue", side) or pick % 5 == 0
        self.call(
            session,
            lambda view: view.alter_queue(side, status=status),
            "select broker.alter_queue(%s, status => %s)",
            self.queues[side],
            status,
        )
        self.after(session)

    def retry(self, session: int) -> None:
        self.call(session, View.retry, "select broker_private.deliver_local()")
        self.after(session)

    def commit(self, session: int) -> None:
        self.finish(session, is_commit=True)

    def rollback(self, session: int) -> None:
        self.finish(session, is_commit=False)

    def is_open(self, session: int) -> bool:
        info = self.arena.sessions[session].connection.info
        return info.transaction_status == psycopg.pq.TransactionStatus.INTRANS

    def savepoint(self, session: int) -> None:
        if self.is_open(session):
            self.model.savepoint(session)
            self.open[session].append([])
            self.arena.sessions[session].rows(f"savepoint s{len(self.open[session]) - 1}")

    def rollback_to_savepoint(self, session: int, pick: int) -> None:
        depths = len(self.open[session]) - 1
        if depths:
            depth = depths - pick % depths
            self.model.rollback_to(session, depth)
            self.open[session][depth:] = [[]]
            self.arena.sessions[session].rows(f"rollback to s{depth}")
            self.compare(session)

    def release_savepoint(self, session: int, pick: int) -> None:
        depths = len(self.open[session]) - 1
        if depths:
            depth = depths - pick % depths
            self.model.release(session, depth)
            for events in self.open[session][depth:]:
                self.open[session][depth - 1] += events
            del self.open[session][depth:]
            self.arena.sessions[session].rows(f"release s{depth}")
            self.compare(session)

    def disconnect(self, session: int) -> None:
        self.arena.disconnect(session)
        self.model.rollback(session)
        self.open[session] = [[]]
        self.compare(OBSERVER)

    @rule(action=actions, session=sessions, side=sides, pick=picks, top=tops)
    def step(self, action: str, session: int, side: str, pick: int, top: int | None) -> None:
        """One rule for all: hypothesis would leave whole rules out of an example, and a dialog needs most of them."""
        if action in ON_DIALOGS and not self.handles:
            action = "begin_dialog"
        if action in ON_TRANSACTIONS and session == 0:
            session = SESSIONS - 1
        offered = {"session": session, "side": side, "pick": pick, "top": top}
        method = getattr(self, action)
        self.has_failed = True
        method(**{name: offered[name] for name in inspect.signature(method).parameters})
        self.has_failed = False

    # The end of a run

    def teardown(self) -> None:
        for session, real in enumerate(self.arena.sessions):
            real.rows("rollback")
            self.model.rollback(session)
        if not self.has_failed:
            self.account()

    def account(self) -> None:
        """Nothing is lost, nothing comes twice, and each direction of a dialog is in order."""
        view = self.view(OBSERVER)
        sent: dict[bytes, int] = {body: place for place, (_, body) in enumerate(self.events("sent"))}
        fates: dict[bytes, list[str]] = defaultdict(list)
        numbers: dict[int, list[int]] = defaultdict(list)
        places: dict[int, list[int]] = defaultdict(list)
        for row in self.events("received"):
            if row.kind in TYPES:
                fates[row.body].append("received")
                places[row.endpoint].append(sent[row.body])
            if row.kind not in URGENT:
                numbers[row.endpoint].append(row.number)
        for endpoint, received in numbers.items():
            assert received == list(range(len(received))), f"numbers at endpoint {endpoint}"
        for endpoint, received in places.items():
            assert received == sorted(received), f"order at endpoint {endpoint}"
        for side, queue in self.queues.items():
            rows = self.arena.observer.rows(f'select message_body from "{queue}"')
            depth = self.arena.observer.value(
                "select ready from broker.queue_depths where queue_name = %s", queue
            )
            assert depth == len(rows)
            for (body,) in rows:
                fates[body].append(f"in queue {side}")
        for (body,) in self.arena.observer.rows(
            "select message_body from broker.transmission_queue where from_service_name = any (%s)",
            list(self.services.values()),
        ):
            fates[body].append("in the transmission queue")
        for body, dropped_by in view.all("dropped"):
            fates[body].append(dropped_by)
        for message in view.all("message"):
            if not view.is_open(message.endpoint):
                fates[message.body].append("arrived after its receiver ended")
        assert {body: fates[body] for body in sent if len(fates[body]) != 1} == {}

    def events(self, kind: str) -> list[Any]:
        return [event for name, event in self.committed if name == kind]


@pytest.fixture(scope="module")
def arena(server: EmbeddedServer) -> Iterator[Arena]:
    arena = Arena(migrated_database(server, f"model_{uuid.uuid4().hex[:8]}"))
    yield arena
    arena.close()


# Hypothesis may look for a shorter failing example for five minutes.
@pytest.mark.timeout(500 + 2 * EXAMPLES)
def test_sessions_at_random_agree_with_the_model(arena: Arena) -> None:
    run_state_machine_as_test(
        lambda: Machine(arena),
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )
