"""What a specification of two databases does, the functions do: TLC's behaviours, with every batch that is on its way in hand."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.hop import Batch, Hop
from tests.replay import DiffersError, Player, plant, replay
from tests.shop import END_DIALOG, ERROR, Session
from tests.simulation import sites
from tests.specs import tlc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from uuid import UUID

    from tests.conftest import Database

pytestmark = pytest.mark.skipif(
    tlc.missing() is not None and "CI" not in os.environ, reason=str(tlc.missing())
)
SEED = 19
# Behaviours at a landing, and at night.
NUMBER, NIGHTLY = 12, 400
NUMBERS = [NUMBER, pytest.param(NIGHTLY, marks=[pytest.mark.nightly, pytest.mark.timeout(1800)])]
KINDS = {END_DIALOG: "E", ERROR: "X"}
# What comes early is kept apart only where there is room. In the specifications there is none: it comes again.
NO_ROOM = (
    "insert into broker_private.early_messages (endpoint_no, sequence_number, enqueue_time, queue_id, message_type_id, kind, size)"
    " values (-1, 0, now(), 0, 2, 'M', 536870912)"
)

CLOCK = """
create schema replay;
create table replay.passed as select 0 as minutes;
create or replace function broker_private.clock() returns timestamptz language sql volatile
begin atomic select pg_catalog.clock_timestamp() + make_interval(mins => p.minutes) from replay.passed p; end;
"""


@pytest.fixture
def hop(make_database: Callable[[str], Database]) -> Iterator[Hop]:
    """Two databases with a route to each other."""
    hop = Hop(make_database)
    hop.far.rows("select broker.create_route('near', 'tcp://127.0.0.1:9', service_name => '//shop')")
    for site in (hop.near, hop.far):
        site.rows(NO_ROOM)
    yield hop
    hop.close()


def behaviours_of(name: str, number: int) -> list[list[tlc.Step]]:
    return tlc.traces(name, number=number, depth=60, seed=SEED)


def actions_of(name: str, number: int) -> set[str]:
    return {step.action for behaviour in behaviours_of(name, number) for step in behaviour}


class EndsSide:
    """One side of all dialogs: what leaves it, who sends there, and its clock, which an action may put forward."""

    def __init__(self, way: Hop, queue: str, kind: str) -> None:
        self.way, self.site, self.queue, self.kind = way, way.near, queue, kind
        self.sender = Session(psycopg.connect(self.site.connection.info.dsn))
        self.site.connection.execute(CLOCK)


class Ends:
    """One new dialog, which both sides end."""

    STATE = (
        "select coalesce(e.local_end::text, 'none'),"
        " (select coalesce(string_agg(f.event::text, '' order by f.event::text), '') from broker_private.far_events f"
        "  where f.endpoint_no = e.endpoint_no and f.event in ('E', 'X')),"
        " case when e.closed_at > broker_private.clock() then 'late' when e.closed_at is not null then 'soon'"
        "  when exists (select from broker_private.far_events f where f.endpoint_no = e.endpoint_no and f.event = 'A')"
        "  then 'acknowledged' else 'no' end,"
        " a.next_number, i.next_number,"
        " (select count(*) from broker_private.transmission_messages t where t.endpoint_no = e.endpoint_no),"
        " (select count(*) from broker_private.messages m where m.endpoint_no = e.endpoint_no),"
        " case when i.is_confirmed and not e.is_initiator then 'confirmed' else '' end"
        " from broker_private.endpoints e"
        " cross join lateral broker_private.newest_counter(e.endpoint_no, 'A') a"
        " cross join lateral broker_private.newest_counter(e.endpoint_no, 'I') i"
        " where e.conversation_id = %s and e.is_initiator = %s"
    )

    def __init__(self, sides: dict[str, EndsSide]) -> None:
        self._sides, self._net = sides, dict[str, Batch]()
        for side in sides.values():
            side.sender.connection.rollback()
            for table in ("transmission_messages", "messages"):
                side.site.rows(f"delete from broker_private.{table}")
        self._handles: dict[str, UUID] = {"I": sides["I"].way.begin()}
        self._conversation = sides["I"].site.value(
            "select conversation_id from broker_private.endpoints where conversation_handle = %s",
            self._handles["I"],
        )

    def act(self, action: str, *arguments: str) -> None:
        match action, *arguments:
            case "take", side, place, name:
                self._take(self._sides[side].way, int(place) + 1, name)
            case "arrive", name, expected:
                self._arrive(name, expected)
            case "settle", name, answer:
                self._settle(self._sides[name[0]].way, self._net[name], answer)
            case _, side, *rest:
                self._on(self._sides[side], self._handles[side], action, *rest)

    def _on(self, side: EndsSide, handle: UUID, action: str, kinds: str = "") -> None:
        match action:
            case "send":
                side.sender.send(handle, side.kind)
            case "commit":
                side.sender.connection.commit()
            case "refuse":
                self._refuse(side, handle)
            case "end":
                side.site.end(handle)
            case "error":
                side.site.rows("select broker.end_conversation(%s, 1, 'no more')", handle)
            case "cleanup":
                side.site.rows("select broker.end_conversation(%s, cleanup => true)", handle)
            case "close":
                side.site.rows("select broker_private.sweep()")
            case "sweep":
                side.site.rows("update replay.passed set minutes = minutes + 31")
                side.site.rows("select broker_private.sweep()")
            case "wait":
                if (batch := side.way.take()) is not None:
                    raise DiffersError(f"it takes {batch.numbers}")
            case "receive":
                received = side.site.rows("select message_type_name from broker.receive(%s, 100)", side.queue)
                if (has := "".join(KINDS.get(name, "M") for (name,) in received)) != kinds:
                    raise DiffersError(f"it received {has}")

    @staticmethod
    def _refuse(side: EndsSide, handle: UUID) -> None:
        try:
            side.site.send(handle, side.kind)
        except psycopg.Error:
            return
        raise DiffersError("it sends")

    def _take(self, way: Hop, size: int, name: str) -> None:
        batch = way.take(size)
        _, kind, number, acknowledged = re.fullmatch(r"[IT](\d+)([MEX])(\d+),(\d+)", name).groups()  # type: ignore[union-attr]
        if batch is None or len(batch.numbers) != size:
            raise DiffersError(f"it takes {batch and batch.numbers}")
        batch = self._net[name] = batch.last()
        has = (batch.columns["kinds"], *batch.numbers, *batch.acknowledged)
        if has != (kind, int(number), int(acknowledged)):
            raise DiffersError(f"it takes {has}")

    def _arrive(self, name: str, expected: str) -> None:
        number, fault = self._sides[name[0]].way.deliver(self._net[name])
        if (has := {None: str(number), -8462: "gone", -9719: "torn"}.get(fault, str(fault))) != expected:
            raise DiffersError(f"the answer is {has}")
        if name[0] == "I":
            for (handle,) in self._sides["T"].site.rows(
                "select conversation_handle from broker_private.endpoints where conversation_id = %s",
                self._conversation,
            ):
                self._handles["T"] = handle

    @staticmethod
    def _settle(way: Hop, batch: Batch, answer: str) -> None:
        if answer == "gone":
            way.near.rows(
                "select broker_private.fail_dialogs(array[%s::bigint], array[8462], array['gone'])",
                batch.endpoint,
            )
        else:
            way.acknowledge(batch, int(answer))

    def state(self) -> str:
        return " ".join(self._of_side(name) for name in ("I", "T"))

    def _of_side(self, name: str) -> str:
        found = self._sides[name].site.rows(self.STATE, self._conversation, name == "I")
        return ",".join(map(str, found[0])) if found else "-"

    def finish(self, last: str) -> None:
        """Nothing is left to look at."""


@pytest.fixture
def ends(hop: Hop) -> Iterator[dict[str, EndsSide]]:
    sides = {"I": EndsSide(hop, "shop", "order"), "T": EndsSide(hop.back(), "warehouse", "ack")}
    yield sides
    for side in sides.values():
        side.sender.connection.close()
    sides["T"].way.close()


@pytest.mark.parametrize("number", NUMBERS)
def test_dialogs_end_as_the_specification_says(ends: dict[str, EndsSide], number: int) -> None:
    assert actions_of("ends", number) >= {
        *("send", "commit", "refuse", "end", "error", "cleanup", "close", "sweep"),
        *("take", "arrive", "settle", "receive", "rest"),
    }
    replay(behaviours_of("ends", number), lambda: Ends(ends))


# The first are found at each landing, by its few behaviours; the others are waited for at night.
MISTAKES_OF_ENDS = {
    "a forgotten dialog is opened again": ("open_dialog", "or acknowledged > 0", ""),
    "what was cleaned up is opened again": (
        "open_dialog",
        "e.conversation_id = conversation and not e.is_initiator",
        "false",
    ),
    "what comes after an end is stored": (
        "deliver_fully",
        "limit 1) is null as is_open",
        "limit 1) is null or true as is_open",
    ),
    "any answer acknowledges the end": (
        "acknowledge",
        "if is_end then\n      ended",
        "if true then\n      ended",
    ),
    "a side that waits is swept": ("sweep", "where x.closed_at < horizon", "where x.local_end is not null"),
    "nothing confirms a dialog": ("confirm_dialogs", "is_confirmed = true", "is_confirmed = n.is_confirmed"),
    "the end of a dialog that is forgotten is never acknowledged": (
        "fail_dialogs",
        "and e.local_end is not null",
        "and false",
    ),
    "a late SEND outlives the close of its side": ("close_side", "and t.kind <> 'X'", "and false"),
    "a closed target is kept for half an hour": ("closing_time", "if not e.is_initiator", "if false"),
    "what the far side has ended leaves": ("take", "and e.local_end is null", "and false"),
    "an Error waits behind what it drops": (
        "send_end",
        "if end_kind = 'X' then\n      delete",
        "if false then\n      delete",
    ),
}
FOUND_AT_ONCE = list(MISTAKES_OF_ENDS)[:7]


@pytest.mark.parametrize(
    ("number", "mistakes"),
    [
        (NUMBER, FOUND_AT_ONCE),
        pytest.param(NIGHTLY, [*MISTAKES_OF_ENDS], marks=[pytest.mark.nightly, pytest.mark.timeout(1800)]),
    ],
    ids=["at once", "all"],
)
def test_mistakes_in_ends_are_found(ends: dict[str, EndsSide], number: int, mistakes: list[str]) -> None:
    sessions = [side.site for side in ends.values()]
    behaviours = behaviours_of("ends", number)
    missed = [
        one
        for one in mistakes
        if not is_found(sessions, MISTAKES_OF_ENDS[one], behaviours, lambda: Ends(ends))
    ]
    assert missed == []


def is_found(
    sessions: Sequence[Session],
    mistake: tuple[str, str, str],
    behaviours: list[list[tlc.Step]],
    begin: Callable[[], Player],
) -> bool:
    """Make a mistake in both databases, look whether a replay sees it, and mend it."""
    texts = [plant(session, *mistake) for session in sessions]
    try:
        replay(behaviours, begin)
    except DiffersError:
        return True
    finally:
        for session, text in zip(sessions, texts, strict=True):
            session.connection.execute(text.encode())
    return False


class Restore:
    """One new dialog, and one direction of it, between two databases of which one goes back."""

    NEAR = (
        "select case when exists (select from broker_private.far_events f where f.endpoint_no = e.endpoint_no and f.event = 'X')"
        " then 'failed' else a.next_number || ',' || (select count(*) from broker_private.transmission_messages t"
        " where t.endpoint_no = e.endpoint_no) end"
        " from broker_private.endpoints e cross join lateral broker_private.newest_counter(e.endpoint_no, 'A') a"
        " where e.conversation_handle = %s"
    )
    FAR = (
        "select case when exists (select from broker_private.far_events f where f.endpoint_no = e.endpoint_no and f.event = 'X')"
        " then 'failed' else i.next_number || ',' || (select coalesce(string_agg(convert_from(m.body, 'UTF8'), '' order by m.sequence_number), '')"
        " from broker_private.messages m where m.endpoint_no = e.endpoint_no) end"
        " from broker_private.endpoints e cross join lateral broker_private.newest_counter(e.endpoint_no, 'I') i"
        " where e.conversation_id = %s and not e.is_initiator"
    )

    def __init__(self, hop: Hop) -> None:
        self._hop, self._net, self._sent = hop, dict[str, Batch](), 0
        self._sites = {"near": hop.near, "far": hop.far}
        for site in self._sites.values():
            for table in ("transmission_messages", "messages"):
                site.rows(f"delete from broker_private.{table}")
        self._dialog = hop.begin()
        self._conversation = hop.near.value(
            "select conversation_id from broker_private.endpoints where conversation_handle = %s",
            self._dialog,
        )
        for site in self._sites.values():
            site.rows("call simulation.back_up()")

    def act(self, action: str, *arguments: str) -> None:
        match action, *arguments:
            case ("send",):
                self._sent += 1
                self._hop.near.send(self._dialog, "order", str(self._sent).encode())
            case "backup", site:
                self._sites[site].rows("call simulation.back_up()")
            case "restore", site:
                self._sites[site].rows("call simulation.restore()")
                self._hop.restart()
            case "take", size, name:
                self._take(int(size), name)
            case "arrive", name, expected:
                number, fault = self._hop.deliver(self._net[name])
                if (has := str(number) if fault is None else "final") != expected:
                    raise DiffersError(f"the answer is {has}")
            case "settle", name, answer:
                self._settle(self._net[name], answer)

    def _take(self, size: int, name: str) -> None:
        batch = self._hop.take(size) if size else self._hop.ask(self._dialog)
        first, _, times, acknowledged = name.split(",")
        if batch is None:
            raise DiffersError("it takes nothing")
        self._net[name] = batch
        numbers = [int(first) + place for place in range(size)] if size else [int(first) - 1]
        bodies = [bytes(body or b"") for body in batch.columns["bodies"]]
        if (batch.numbers, b"".join(bodies), batch.acknowledged) != (
            numbers,
            times.encode(),
            [int(acknowledged)],
        ):
            raise DiffersError(f"it takes {batch.numbers}, {bodies}, {batch.acknowledged}")

    def _settle(self, batch: Batch, answer: str) -> None:
        near, endpoint = self._hop.near, batch.endpoint
        if answer == "final":
            near.rows(
                "select broker_private.fail_dialogs(array[%s::bigint], array[9719], array['it has gone back'])",
                endpoint,
            )
        elif batch.columns["kinds"] != "P":
            self._hop.acknowledge(batch, int(answer))
        elif int(answer) > batch.end:
            near.rows(
                "select broker_private.fail_torn_dialogs(array[%s::bigint], array[%s::bigint])",
                endpoint,
                answer,
            )
        # What the far side is told arrives at once.
        if (error := self._hop.take()) is not None and error.columns["kinds"] == "X":
            self._hop.deliver(error)

    def state(self) -> str:
        far = self._hop.far.rows(self.FAR, self._conversation)
        return f"{self._hop.near.value(self.NEAR, self._dialog)} {far[0][0] if far else '-'}"

    def finish(self, last: str) -> None:
        bodies = self._hop.far.bodies(top=100)
        _, far = last.split()
        if (
            far not in ("-", "failed")
            and b"".join(body or b"" for body in bodies).decode() != far.partition(",")[2]
        ):
            raise DiffersError(last, bodies)


@pytest.fixture
def restoring(hop: Hop) -> Hop:
    for site in (hop.near, hop.far):
        for definition in ("create schema simulation", sites.REMEMBER, sites.BACKUP):
            site.connection.execute(definition.encode())
    return hop


@pytest.mark.parametrize(
    "number", [NUMBER, pytest.param(100, marks=[pytest.mark.nightly, pytest.mark.timeout(1800)])]
)
def test_who_has_gone_back_is_found_as_the_specification_says(restoring: Hop, number: int) -> None:
    assert actions_of("restore", number) == {
        *("send", "backup", "restore", "take", "arrive", "settle", "rest")
    }
    replay(behaviours_of("restore", number), lambda: Restore(restoring))


MISTAKES_OF_RESTORE = {
    "the time of sending is not compared": ("torn_dialogs", " or b.is_other)", ")"),
    "the time of sending is kept of the first message only": (
        "deliver_fully",
        "sent_at = m.sent_at",
        "sent_at = coalesce(n.sent_at, m.sent_at)",
    ),
    "what was forgotten is opened again": ("open_dialog", "or acknowledged > 0", ""),
    "more than was sent is taken for granted": (
        "fail_torn_dialogs",
        "where u.next_number > c.next_number + w.messages",
        "where false",
    ),
    "the far side is not told": ("tell_far_side", "e.path = 'R' or", "false and"),
}


def test_mistakes_in_restore_are_found(restoring: Hop) -> None:
    sessions, behaviours = [restoring.near, restoring.far], behaviours_of("restore", NUMBER)
    missed = [
        one
        for one, mistake in MISTAKES_OF_RESTORE.items()
        if not is_found(sessions, mistake, behaviours, lambda: Restore(restoring))
    ]
    assert missed == []
