"""What Service Broker promises within one database, as plain dictionaries: two queues, their endpoints, several sessions.

A fact is a key and a value. A transaction is a stack of frames, one for each savepoint, each a dictionary of what it wrote; a
session sees what is committed and, over it, its own frames. Locks are keys like any other, so one rule says what would wait: a
call that writes a key which another open transaction wrote. A call writes all or nothing, as a statement does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.shop import DIALOG_TIMER, END_DIALOG, ERROR

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

LEFT, RIGHT = "left", "right"
FAR = {LEFT: RIGHT, RIGHT: LEFT}
# A contract's types, and which side of a dialog may send them: (initiator, target).
TYPES = {"order": (True, False), "ack": (False, True), "note": (True, True)}
# RECEIVE returns these before all else of their conversation, and they have no number of their own.
URGENT = (DIALOG_TIMER, ERROR)
WAITS = "55P03"
GONE = object()


class Refusal(Exception):  # noqa: N818 - it is an answer, not an error of the model
    """The call is refused with this SQLSTATE."""

    def __init__(self, sqlstate: str) -> None:
        super().__init__(sqlstate)
        self.sqlstate = sqlstate


@dataclass(frozen=True)
class Endpoint:
    """One side of a dialog. Straight: what it sends goes into the far queue; None: it has sent nothing yet."""

    number: int
    dialog: int
    is_initiator: bool
    side: str
    group: int
    is_straight: bool | None
    # E ended, X with an error, C cleaned up
    end: str | None = None
    is_closed: bool = False


@dataclass(frozen=True)
class Message:
    """A message in the queue of an endpoint, or (under another key) on its way from one."""

    number: int
    endpoint: int
    kind: str
    body: bytes | None


class Received(NamedTuple):
    """What RECEIVE returns of one message."""

    endpoint: int
    kind: str
    number: int
    body: bytes | None


class Model:
    """The broker, and the transaction of each session."""

    def __init__(self, sessions: int) -> None:
        self.committed: dict[tuple[str, Any], Any] = {("queue", LEFT): True, ("queue", RIGHT): True}
        self.frames: list[list[dict[tuple[str, Any], Any]]] = [[{}] for _ in range(sessions)]
        # As sequences do, these go on over a rollback.
        self._endpoints, self._dialogs, self._groups, self._order = count(), count(), count(), count()

    # Transactions

    def call(self, session: int, operation: Callable[[View], Any]) -> Any:
        """Do it all or nothing; a refusal is raised."""
        frames = self.frames[session]
        frames.append({})
        try:
            result = operation(View(self, session))
        except Refusal:
            frames.pop()
            raise
        written = frames.pop()
        frames[-1].update(written)
        return result

    def commit(self, session: int) -> None:
        for frame in self.frames[session]:
            for key, value in frame.items():
                if key[0] in {"lock", "returned"}:
                    continue
                if value is GONE:
                    self.committed.pop(key, None)
                else:
                    self.committed[key] = value
        self.frames[session] = [{}]

    def rollback(self, session: int) -> None:
        self.frames[session] = [{}]

    def savepoint(self, session: int) -> None:
        self.frames[session].append({})

    def rollback_to(self, session: int, depth: int) -> None:
        """What was locked after the savepoint is unlocked: unlike Service Broker, and documented."""
        self.frames[session][depth:] = [{}]

    def release(self, session: int, depth: int) -> None:
        for frame in self.frames[session][depth:]:
            self.frames[session][depth - 1].update(frame)
        del self.frames[session][depth:]

    def is_receiving_from_another(self, session: int, endpoint: int) -> bool:
        """Tell whether another session has put a message into the queue for the endpoint, and not committed."""
        return any(
            key[0] == "message" and value is not GONE and value.endpoint == endpoint
            for other, frames in enumerate(self.frames)
            if other != session
            for frame in frames
            for key, value in frame.items()
        )

    def is_written_by_another(self, session: int, key: tuple[str, Any]) -> bool:
        return any(
            key in frame for other, frames in enumerate(self.frames) if other != session for frame in frames
        )


class View:
    """The broker as a session sees it, with the calls that the session can make."""

    def __init__(self, model: Model, session: int) -> None:
        self.model = model
        self.session = session

    # Facts

    def get(self, kind: str, key: Any) -> Any:
        for frame in reversed(self.model.frames[self.session]):
            if (kind, key) in frame:
                found = frame[kind, key]
                return None if found is GONE else found
        return self.model.committed.get((kind, key))

    def all(self, kind: str) -> list[Any]:
        facts = {key: value for key, value in self.model.committed.items() if key[0] == kind}
        for frame in self.model.frames[self.session]:
            facts.update((key, value) for key, value in frame.items() if key[0] == kind)
        return [facts[key] for key in sorted(facts) if facts[key] is not GONE]

    def put(self, kind: str, key: Any, value: Any) -> None:
        if self.model.is_written_by_another(self.session, (kind, key)):
            raise Refusal(WAITS)
        self.model.frames[self.session][-1][kind, key] = value

    def remove(self, kind: str, key: Any) -> None:
        if self.get(kind, key) is not None:
            self.put(kind, key, GONE)

    def lock(self, group: int) -> None:
        self.put("lock", group, True)

    def can_lock(self, group: int) -> bool:
        return not self.model.is_written_by_another(self.session, ("lock", group))

    # What is where

    def state(self, endpoint: int) -> str | None:
        e: Endpoint | None = self.get("endpoint", endpoint)
        if e is None or e.end == "C":
            return None
        if e.end is not None:
            is_over = e.is_closed or self.get("far event", (endpoint, "A"))
            return ("CD" if not e.is_initiator else None) if is_over else "DO"
        if self.get("far event", (endpoint, "X")):
            return "ER"
        if self.get("far event", (endpoint, "E")):
            return "DI"
        return "SO" if e.is_straight is None else "CO"

    def is_open(self, endpoint: int) -> bool:
        return self.get("endpoint", endpoint).end is None

    def far_side(self, e: Endpoint) -> Endpoint | None:
        return next(
            (f for f in self.all("endpoint") if f.dialog == e.dialog and f.is_initiator != e.is_initiator),
            None,
        )

    def messages(self, endpoint: int) -> list[Message]:
        return [m for m in self.all("message") if m.endpoint == endpoint]

    def waiting(self, endpoint: int) -> list[Message]:
        return [m for m in self.all("waiting") if m.endpoint == endpoint]

    def queue(self, side: str) -> list[Received]:
        """What the queue's view shows: nothing of what lies on a side that has ended."""
        endpoints = [e for e in self.all("endpoint") if e.side == side and e.end is None]
        return [row for e in endpoints for row in self._numbered(self.messages(e.number))]

    def transmission_queue(self) -> list[tuple[int, str, bytes | None]]:
        return [(m.endpoint, m.kind, m.body) for m in self.all("waiting")]

    # Calls

    def begin_dialog(self, side: str, related: int | None = None, group: int | None = None) -> Endpoint:
        if related is not None:
            group = self._lock_group_of(related).group
        elif group is None:
            group = self.new_group()
        if self.get("group", group) is None:
            self.put("group", group, side)
        self.lock(group)
        if self.get("group", group) != side:
            raise Refusal("S9610")
        return self._new_endpoint(next(self.model._dialogs), side, group, is_initiator=True, is_straight=None)

    def new_group(self) -> int:
        return next(self.model._groups)

    def send(self, endpoint: int, kind: str, bodies: Sequence[bytes]) -> None:
        e = self._lock_group_of(endpoint)
        if self.state(endpoint) not in {"SO", "CO"}:
            raise Refusal("S8429")
        by_initiator, by_target = TYPES[kind]
        if e.is_initiator and not by_initiator:
            raise Refusal("S8432")
        if not e.is_initiator and not by_target:
            raise Refusal("S8434")
        far = self._far_if_straight(e)
        for body in bodies:
            if far is not None:
                self._arrive(far, kind, body)
            else:
                self._wait(e, kind, body)

    def end(self, endpoint: int, how: str, body: bytes | None = None) -> None:
        """How: E plainly, X with an error, C with cleanup."""
        e = self._lock_group_of(endpoint)
        state = self.state(endpoint)
        if how != "C" and state in {"DO", "CD"}:
            raise Refusal("S8427")
        if how == "C" or state in {"SO", "DI", "ER"}:
            self._drop_waiting(e, f"unsent when its sender ended ({how}) in state {state}")
            self.put("endpoint", endpoint, replace(e, end="C" if how == "C" else "E", is_closed=True))
        else:
            self._tell(e, how, body)
        for message in self.messages(endpoint):
            self._drop("message", message, "unread when its receiver ended")
        self.remove("timer", endpoint)
        if not self.waiting(endpoint):
            self.remove("status", endpoint)

    def begin_timer(self, endpoint: int) -> None:
        self._lock_group_of(endpoint)
        if self.state(endpoint) in {"DO", "CD"}:
            raise Refusal("S8458")
        self.put("timer", endpoint, (next(self.model._order), endpoint))

    def fire_timers(self) -> None:
        """What a worker does: all timers are over, the first one first, and those that another session has in hand are left out."""
        for _, endpoint in sorted(self.all("timer")):
            e: Endpoint = self.get("endpoint", endpoint)
            is_held = self.model.is_written_by_another(self.session, ("timer", endpoint))
            if is_held or not self.get("queue", e.side):
                continue
            self.remove("timer", endpoint)
            self._arrive(e, DIALOG_TIMER, None)

    def move(self, endpoint: int, group: int) -> None:
        state = self.state(endpoint)
        if state is None:
            raise Refusal("S8426")
        if state in {"DO", "CD"}:
            raise Refusal("S8438")
        if all(e.group != group or self.state(e.number) is None for e in self.all("endpoint")):
            raise Refusal("S8436")
        e = self.get("endpoint", endpoint)
        if self.get("group", group) != e.side:
            raise Refusal("S8439")
        self.lock(e.group)
        self.lock(group)
        self.put("endpoint", endpoint, replace(e, group=group))

    def get_conversation_group(self, side: str) -> int | None:
        self._check_receive(side)
        while (group := self._pick_group(side, is_next=True)) is not None:
            messages = self._in_group(group)
            if any(self.is_open(m.endpoint) for m in messages):
                break
            for message in messages:
                self._drop("message", message, "arrived after its receiver ended")
        if group is not None:
            self.put("returned", group, True)
        return group

    def receive(
        self, side: str, top: int | None = None, endpoint: int | None = None, group: int | None = None
    ) -> list[Received]:
        self._check_receive(side)
        if top == 0:
            return []
        while True:
            if endpoint is not None:
                e = self._lock_group_of(endpoint)
                if e.side != side:
                    raise Refusal("S8426")
                messages = self.messages(endpoint)
            else:
                if group is not None:
                    self._lock_named_group(side, group)
                    picked: int | None = group
                else:
                    picked = self._pick_group(side)
                if picked is None:
                    return []
                messages = self._in_group(picked)
            messages.sort(
                key=lambda m: (
                    m.endpoint,
                    URGENT.index(m.kind) if m.kind in URGENT else len(URGENT),
                    m.number,
                )
            )
            if not messages:
                return []
            received = self._take(messages[:top])
            if received:
                return received

    def alter_queue(self, side: str, *, status: bool) -> None:
        self.put("queue", side, status)
        if status:
            self._deliver(
                [m.endpoint for m in self.all("waiting") if self.get("endpoint", m.endpoint).side != side]
            )

    def retry(self) -> None:
        """What a worker does once in a while: it delivers what waits within this database."""
        self._deliver([m.endpoint for m in self.all("waiting")])

    # Parts of the calls

    def _check_receive(self, side: str) -> None:
        if not self.get("queue", side):
            raise Refusal("S9617")

    def _lock_group_of(self, endpoint: int) -> Endpoint:
        if self.state(endpoint) is None:
            raise Refusal("S8426")
        e: Endpoint = self.get("endpoint", endpoint)
        self.lock(e.group)
        return e

    def _lock_named_group(self, side: str, group: int) -> None:
        is_there = any(e.group == group and self.state(e.number) is not None for e in self.all("endpoint"))
        if self.get("group", group) != side or not is_there:
            raise Refusal("S8436")
        self.lock(group)

    def _pick_group(self, side: str, *, is_next: bool = False) -> int | None:
        """Of the groups that nobody else holds the one with the oldest message; all have one priority."""
        for message in self.all("message"):
            e = self.get("endpoint", message.endpoint)
            if is_next and self.get("returned", e.group):
                continue
            if e.side == side and self.can_lock(e.group):
                self.lock(e.group)
                group: int = e.group
                return group
        return None

    def _in_group(self, group: int) -> list[Message]:
        return [m for m in self.all("message") if self.get("endpoint", m.endpoint).group == group]

    def _numbered(self, messages: Sequence[Message]) -> Iterator[Received]:
        """Number the oldest messages of one endpoint; an Error was the last of all that were sent."""
        taken = count()
        for m in messages:
            first = self.get("received", m.endpoint) or 0
            if m.kind == DIALOG_TIMER:
                number = 0
            elif m.kind == ERROR:
                number = first + sum(w.kind not in URGENT for w in self.messages(m.endpoint))
            else:
                number = first + next(taken)
            yield Received(m.endpoint, m.kind, number, m.body)

    def _take(self, messages: Sequence[Message]) -> list[Received]:
        received = []
        for endpoint in sorted({m.endpoint for m in messages}):
            of_endpoint = [m for m in messages if m.endpoint == endpoint]
            if self.is_open(endpoint):
                received += self._numbered(of_endpoint)
            for message in of_endpoint:
                if self.is_open(endpoint):
                    self.remove("message", message.number)
                else:
                    self._drop("message", message, "arrived after its receiver ended")
            counted = sum(m.kind not in URGENT for m in of_endpoint)
            if counted:
                self.put("received", endpoint, (self.get("received", endpoint) or 0) + counted)
        return received

    def _new_endpoint(
        self, dialog: int, side: str, group: int, *, is_initiator: bool, is_straight: bool | None
    ) -> Endpoint:
        e = Endpoint(next(self.model._endpoints), dialog, is_initiator, side, group, is_straight)
        self.put("endpoint", e.number, e)
        return e

    def _accept(self, e: Endpoint) -> Endpoint:
        group = self.new_group()
        self.put("group", group, FAR[e.side])
        return self._new_endpoint(e.dialog, FAR[e.side], group, is_initiator=False, is_straight=True)

    def _far_if_straight(self, e: Endpoint) -> Endpoint | None:
        """The far side if a message may go straight to it: its queue is on, and nothing waits to go before it."""
        is_on = self.get("queue", FAR[e.side])
        if not e.is_straight and e.is_straight is not None:
            self._deliver_dialog(e.number)
        if self.waiting(e.number):
            return None
        if not e.is_straight:
            self.remove("status", e.number)
        far = self.far_side(e)
        if far is None and is_on:
            far = self._accept(e)
        if not is_on:
            self.put("status", e.number, True)
            far = None
        self.put("endpoint", e.number, replace(e, is_straight=far is not None))
        return far

    def _arrive(self, far: Endpoint, kind: str, body: bytes | None) -> None:
        number = next(self.model._order)
        self.put("message", number, Message(number, far.number, kind, body))

    def _wait(self, e: Endpoint, kind: str, body: bytes | None) -> None:
        number = next(self.model._order)
        self.put("waiting", number, Message(number, e.number, kind, body))

    def _drop(self, where: str, message: Message, rule: str) -> None:
        self.remove(where, message.number)
        if message.body is not None:
            self.put("dropped", message.body, (message.body, rule))

    def _drop_waiting(self, e: Endpoint, rule: str) -> None:
        for message in self.waiting(e.number):
            self._drop("waiting", message, rule)

    def _tell(self, e: Endpoint, how: str, body: bytes | None) -> None:
        """Tell the far side at once if nothing is in the way: then there's no acknowledgement to wait for."""
        kind = END_DIALOG if how == "E" else ERROR
        if not e.is_straight:
            self._far_if_straight(e)
            e = self.get("endpoint", e.number)
        far = self.far_side(e)
        far_is_open = far is not None and self.is_open(far.number)
        is_in_the_way = (
            self.waiting(e.number) or far is None or (far_is_open and not self.get("queue", far.side))
        )
        if is_in_the_way:
            if how == "X":
                self._drop_waiting(e, "unsent when its sender ended with an error")
            self._wait(e, kind, body)
            self.put("endpoint", e.number, replace(e, end=how, is_straight=False))
            return
        if far is not None and far_is_open:
            self.put("far event", (far.number, how), True)
            self._arrive(far, kind, body)
        self.put("endpoint", e.number, replace(e, end=how, is_closed=True))

    def _deliver(self, endpoints: Sequence[int]) -> None:
        for endpoint in dict.fromkeys(endpoints):
            if self.get("queue", FAR[self.get("endpoint", endpoint).side]):
                self._deliver_dialog(endpoint)

    def _deliver_dialog(self, endpoint: int) -> None:
        """Move what waits, up to what another session holds: nobody waits here for anybody."""
        if self.model.is_written_by_another(self.session, ("carrier", endpoint)):
            return
        self.put("carrier", endpoint, True)
        e: Endpoint = self.get("endpoint", endpoint)
        if not self.get("queue", FAR[e.side]):
            return
        for message in self.waiting(endpoint):
            if self.model.is_written_by_another(self.session, ("waiting", message.number)):
                break
            far = self.far_side(e) or self._accept(e)
            self.remove("waiting", message.number)
            how = {END_DIALOG: "E", ERROR: "X"}.get(message.kind)
            if far.end is None:
                if how is not None:
                    self.put("far event", (far.number, how), True)
                self._arrive(far, message.kind, message.body)
            elif message.body is not None:
                self.put("dropped", message.body, (message.body, "arrived after its receiver ended"))
            if how is not None:
                self.put("far event", (endpoint, "A"), True)
        if not self.model.is_written_by_another(self.session, ("status", endpoint)):
            self.remove("status", endpoint)
