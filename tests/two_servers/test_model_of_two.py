"""Two databases, and workers that are killed and restarted, against a model of what may come next and of what must be there at rest.

Every second dialog is sealed. Nobody knows when a message crosses, so between two rests the model says what is possible: only what comes next on its dialog may
be received. At rest both workers run and nothing waits to cross; then all is compared.
"""

from __future__ import annotations

import inspect
import os
import signal
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from tests.brokers import Site, two_sites
from tests.shop import END_DIALOG, ERROR, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from uuid import UUID

    from pybroker.embedded import EmbeddedServer
    from tests.shop import Session

EXAMPLES = int(os.environ.get("PYBROKER_MODEL_OF_TWO_EXAMPLES", "4"))
STEPS = 25
DEFINITIONS = """
select broker.create_message_type('note');
select broker.create_contract('talk', sent_by_any => '{note}');
"""
IS_OVER = "S8429"
ALREADY_ENDED = "S8427"
UNKNOWN = "S8426"
SEALED = "/sealed"
# What waits on an endpoint that the far side has ended stays until its own side ends.
CROSSING = """
select from broker.transmission_queue t left join broker.conversation_endpoints e using (conversation_handle)
where coalesce(e.state, '') not in ('DI', 'ER')
"""
WEIGHTS = {
    "begin_dialog": 3,
    "send": 12,
    "receive": 12,
    "end_conversation": 3,
    "kill_worker": 1,
    "stop_worker": 1,
    "start_worker": 3,
    "rest": 2,
}
actions = st.sampled_from([action for action, weight in WEIGHTS.items() for _ in range(weight)])


@dataclass
class End:
    """One side of a dialog, as its application knows it; a target has no handle before its first message."""

    site: int
    is_initiator: bool
    handle: UUID | None = None
    sent: list[bytes] = field(default_factory=list)
    received: int = 0
    end: str | None = None
    has_heard: bool = False


@dataclass
class Dialog:
    """Both sides, the initiator's first."""

    ends: tuple[End, End]

    def far(self, end: End) -> End:
        return self.ends[1] if end is self.ends[0] else self.ends[0]


class Arena:
    """Two sites and their workers, for all examples; each example has services of its own."""

    def __init__(self, sites: tuple[Site, Site]) -> None:
        self.sites = sites
        self.examples = count()
        for site in sites:
            site.psql.rows(DEFINITIONS)
            site.start_worker()

    def is_running(self, site: int) -> bool:
        worker = self.sites[site].worker
        return worker is not None and worker.poll() is None


def refusal(session: Session, query: str, *arguments: object) -> str | None:
    """Run it, and return the SQLSTATE if it is refused."""
    try:
        session.rows(query, *arguments)
    except psycopg.Error as error:
        return error.sqlstate
    return None


class Machine(RuleBasedStateMachine):
    """An application at each site, which begins dialogs with the other and says, hears and ends whatever it likes."""

    def __init__(self, arena: Arena) -> None:
        super().__init__()
        self.arena = arena
        example = next(arena.examples)
        self.names = [f"//{site.name}/{example}" for site in arena.sites]
        for number, site in enumerate(arena.sites):
            name = self.names[number]
            far_name, far = self.names[1 - number], arena.sites[1 - number]
            site.psql.rows("select broker.create_queue(%s, poison_message_handling => false)", name)
            for kind, sender in (("", "public"), (SEALED, f"{far.name}_user")):
                service = name + kind
                site.psql.rows("select broker.create_service(%s, %s, '{talk}')", service, name)
                site.psql.rows("select broker.grant('SEND', 'SERVICE', %s, %s::name)", service, sender)
                site.route(far_name + kind, far)
            site.psql.rows(
                "select broker.create_remote_service_binding(%s, %s, %s::name)",
                far_name,
                far_name + SEALED,
                f"{far.name}_user",
            )
        self.dialogs: dict[UUID, Dialog] = {}
        self.bodies = count()
        self.has_failed = False

    # What the applications know

    def ends(self, site: int) -> list[tuple[Dialog, End]]:
        """The ends at a site that its application has met."""
        return [
            (dialog, end)
            for dialog in self.dialogs.values()
            for end in dialog.ends
            if end.site == site and end.handle is not None
        ]

    def an_end(self, site: int, pick: int) -> tuple[Dialog, End] | None:
        known = self.ends(site)
        alive = [found for found in known if found[1].end is None] if pick % 8 else known
        return alive[-1 - pick % len(alive)] if alive else None

    # What they do

    def begin_dialog(self, site: int) -> None:
        psql = self.arena.sites[site].psql
        is_sealed = len(self.dialogs) % 2 == 1
        kind = SEALED if is_sealed else ""
        handle = psql.value(
            "select broker.begin_dialog(%s, %s, 'talk', encryption => %s)",
            self.names[site] + kind,
            self.names[1 - site] + kind,
            is_sealed,
        )
        conversation = psql.value(
            "select conversation_id from broker.conversation_endpoints where conversation_handle = %s", handle
        )
        self.dialogs[conversation] = Dialog((End(site, True, handle), End(1 - site, False)))

    def send(self, site: int, pick: int, size: int) -> None:
        found = self.an_end(site, pick)
        if found is None:
            self.begin_dialog(site)
            found = self.ends(site)[-1]
        dialog, end = found
        bodies = [b"%d" % next(self.bodies) for _ in range(size)]
        session = self.arena.sites[site].psql
        session.rows("begin")
        refused = refusal(session, "select broker.send_batch(%s, 'note', %s::bytea[])", end.handle, bodies)
        if refused is not None:
            session.rows("rollback")
            # The far end may have arrived; one's own is known.
            assert refused in ({IS_OVER, UNKNOWN} if end.end else {IS_OVER} if dialog.far(end).end else set())
            return
        assert end.end is None
        assert not end.has_heard, "sent after an EndDialog or an Error was received"
        is_kept = pick % 6 != 0
        session.rows("commit" if is_kept else "rollback")
        if is_kept:
            end.sent += bodies

    def receive(self, site: int, pick: int, size: int) -> None:
        session = self.arena.sites[site].psql
        session.rows("begin")
        rows = session.rows(
            "select conversation_handle, message_type_name, message_body from broker.receive(%s, top => %s)",
            self.names[site],
            size * 2,
        )
        conversations = dict(
            session.rows("select conversation_handle, conversation_id from broker.conversation_endpoints")
        )
        is_kept = pick % 6 != 0
        session.rows("commit" if is_kept else "rollback")
        if is_kept:
            for handle, kind, body in rows:
                self.hear(site, conversations[handle], handle, kind, body)

    def hear(self, site: int, conversation: UUID, handle: UUID, kind: str, body: bytes | None) -> None:
        """Check that what was received is what comes next on its dialog."""
        dialog = self.dialogs[conversation]
        (end,) = [each for each in dialog.ends if each.site == site]
        end.handle = end.handle or handle
        far = dialog.far(end)
        assert end.handle == handle
        assert end.end is None
        if kind == "note":
            assert body == far.sent[end.received], f"{body!r} after {end.received} messages"
            end.received += 1
            return
        assert not end.has_heard, f"{kind} twice"
        end.has_heard = True
        if kind == END_DIALOG:
            assert (far.end, end.received) == ("E", len(far.sent))
        else:
            assert (kind, far.end) == (ERROR, "X")
            assert b"<Code>7</Code>" in (body or b"")

    def end_conversation(self, site: int, pick: int) -> None:
        found = self.an_end(site, pick)
        if found is None:
            return
        _, end = found
        error = (7, "enough") if pick % 3 == 0 else ()
        refused = refusal(
            self.arena.sites[site].psql,
            f"select broker.end_conversation(%s{', %s' * len(error)})",
            end.handle,
            *error,
        )
        if end.end is not None:
            assert refused in {ALREADY_ENDED, UNKNOWN}
            return
        assert refused is None
        end.end = "X" if error else "E"

    # What happens to the workers

    def kill_worker(self, site: int) -> None:
        if self.arena.is_running(site):
            self.arena.sites[site].kill_worker()

    def stop_worker(self, site: int) -> None:
        if self.arena.is_running(site):
            # One that has just been started knows no signal yet.
            assert self.arena.sites[site].stop_worker() in {0, -signal.SIGTERM}

    def start_worker(self, site: int) -> None:
        if not self.arena.is_running(site):
            self.arena.sites[site].start_worker()

    # What must be there at rest

    def rest(self) -> None:
        for site in (0, 1):
            self.start_worker(site)
        until(lambda: not any(site.psql.rows(CROSSING) for site in self.arena.sites))
        for number, site in enumerate(self.arena.sites):
            self.compare(number, site)

    def compare(self, number: int, site: Site) -> None:
        states = dict(
            site.psql.rows(
                "select conversation_id, state from broker.conversation_endpoints where conversation_id = any (%s)",
                list(self.dialogs),
            )
        )
        queued = site.psql.rows(
            "select e.conversation_id, m.message_type_name, m.message_body from broker.queue_messages m"
            " join broker.conversation_endpoints e using (conversation_handle)"
            " where m.service_name = any (%s) order by m.message_sequence_number",
            [self.names[number], self.names[number] + SEALED],
        )
        for conversation, dialog in self.dialogs.items():
            (end,) = [each for each in dialog.ends if each.site == number]
            far = dialog.far(end)
            rows = [(kind, body) for found, kind, body in queued if found == conversation]
            assert states.get(conversation) in self.states(dialog, end), (dialog, end)
            if end.end is not None:
                assert rows == []
                continue
            bodies = [body for kind, body in rows if kind == "note"]
            ends = [kind for kind, _ in rows if kind != "note"]
            due = far.sent[end.received :]
            if far.end == "X":
                # It took back what had not left; an Error alone may be the first that is heard of the dialog.
                assert bodies == due[: len(bodies)]
            else:
                assert bodies == due
            expected = {None: [], "E": [END_DIALOG], "X": [ERROR]}[far.end]
            if end.has_heard or not self.is_there(dialog, end):
                expected = []
            assert ends == expected, (dialog, end)

    def states(self, dialog: Dialog, end: End) -> set[str | None]:
        far = dialog.far(end)
        if end.end is not None:
            return {None} if end.is_initiator else {"CD"}
        if not self.is_there(dialog, end):
            return {None}
        if far.end is not None:
            return {"ER" if far.end == "X" else "DI"}
        return {"CO" if end.sent or not end.is_initiator else "SO"}

    @staticmethod
    def is_there(dialog: Dialog, end: End) -> bool:
        """Whether this end exists: an initiator's does, a target's once its far side has said something."""
        return end.is_initiator or bool(dialog.far(end).sent)

    @rule(action=actions, site=st.integers(0, 1), pick=st.integers(0, 99), size=st.integers(1, 4))
    def step(self, action: str, site: int, pick: int, size: int) -> None:
        offered = {"site": site, "pick": pick, "size": size}
        method = getattr(self, action)
        self.has_failed = True
        method(**{name: offered[name] for name in inspect.signature(method).parameters})
        self.has_failed = False

    def teardown(self) -> None:
        for site in self.arena.sites:
            site.psql.rows("rollback")
        if not self.has_failed:
            self.rest()


@pytest.fixture(scope="module")
def arena(
    tmp_path_factory: pytest.TempPathFactory, server_for: Callable[[str, int], EmbeddedServer]
) -> Iterator[Arena]:
    with two_sites(tmp_path_factory.mktemp("model"), server_for=server_for) as sites:
        yield Arena(sites)


@pytest.mark.filterwarnings("ignore:there is no transaction in progress")
def test_what_two_databases_say_to_each_other_agrees_with_the_model(arena: Arena) -> None:
    run_state_machine_as_test(
        lambda: Machine(arena),
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            report_multiple_bugs=False,
            # An example takes seconds; a shorter one that fails would take an hour to find.
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
