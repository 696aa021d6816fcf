"""What must hold after each step, and at the end."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tests.simulation.sites import SHOP, WAREHOUSE

if TYPE_CHECKING:
    from uuid import UUID

    import psycopg

    from tests.simulation.applications import Dialog
    from tests.simulation.gate import Session

# Everything that is somewhere between a SEND and its RECEIVE, by what its body begins with.
_WAITING = """
select '{kind}', split_part(b.text, ':', 1), array_agg(split_part(b.text, ':', 2)::integer), null from ({bodies}) b (text)
where b.text ~ '^[a-z0-9]+:[0-9]+:' group by split_part(b.text, ':', 1)
"""
_BODIES = (
    "select convert_from(substr(body, 1, 40), 'UTF8') from broker_private.{table} where body is not null"
)
_PLACES = {
    "outgoing": ("transmission_messages",),
    "incoming": ("messages", "incomplete_messages", "early_messages"),
}
# One statement, as it is asked after most steps.
_LOOK = """
select 'sent', dialog, array_agg(number order by place), array_agg(life order by place) from sent group by dialog
union all
select 'received', dialog, array_agg(number order by place), array_agg(life order by place) from received group by dialog
union all
select 'fired', name, array[timers_fired], null from dialogs
""" + "".join(
    "union all"
    + _WAITING.format(kind=kind, bodies=" union all ".join(_BODIES.format(table=table) for table in tables))
    for kind, tables in _PLACES.items()
)
_QUIET = """
select 'open conversation ' || c.conversation_handle || ' ' || c.state from broker.conversation_endpoints c
where c.state <> 'CD'
union all
select 'waiting ' || t.message_sequence_number || ' ' || t.message_type_name || ': ' || t.transmission_status from broker.transmission_queue t
union all
select 'in a queue: ' || count(*) from broker_private.messages m
-- What came while its side was ending is swept with the conversation, half an hour later.
join broker_private.endpoints e on e.endpoint_no = m.endpoint_no where e.local_end is null having count(*) > 0
"""
# What is asked often is planned once, and known to the next seed.
_PREPARED = {"unquiet": _QUIET, "look": _LOOK}
# By these the application itself has a dialog ended.
_ENOUGH = "<Code>1</Code>"
# And by these a database that has gone back.
_GONE_BACK = ("<Code>-9719</Code>", "<Code>-9720</Code>", "<Code>-8462</Code>")
_CONVERSATIONS = b"select conversation_id, conversation_handle from broker_private.endpoints"
_NAMES = b"select handle, name from dialogs"
# All that a database remembers of each conversation.
_MEMORY = """
select e.conversation_id, concat_ws('|', e.local_end, {}) from broker_private.endpoints e
""".format(
    ", ".join(
        f"(select string_agg(x::text, ' ' order by x::text) from broker_private.{table} x"
        " where x.endpoint_no = e.endpoint_no)"
        for table in (
            "sequence_counters",
            "transmission_messages",
            "far_events",
            "messages",
            "early_messages",
            "incomplete_messages",
        )
    )
)


class BrokenError(AssertionError):
    """Something that must hold does not."""


@dataclass
class _Look:
    """What was seen of a database: by dialog, what its ledgers say, what waits in it, and how many timers have fired."""

    sent: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    received: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    outgoing: dict[str, list[int]] = field(default_factory=dict)
    incoming: dict[str, list[int]] = field(default_factory=dict)
    fired: dict[str, int] = field(default_factory=dict)


class Invariants:
    """Looks at both databases, with sessions of its own that nobody else sees."""

    def __init__(self, sessions: dict[str, psycopg.Connection[Any]], dialogs: list[Dialog]) -> None:
        self._sessions = sessions
        self._plans = dialogs
        self._dialogs = {dialog.name: dialog for dialog in dialogs}
        # Of each database, until it changes.
        self._looks: dict[str, _Look] = {}
        self._holders: dict[tuple[str, UUID], Session] = {}
        # Of databases that go back: what they remembered when they were copied, the conversation and the name of
        # each handle, and the dialogs of which something was forgotten.
        self._memories: dict[str, dict[UUID, str]] = {}
        self._conversations: dict[UUID, UUID] = {}
        self._names: dict[UUID, str] = {}
        self._hurt: set[str] = set()
        for session in sessions.values():
            known = session.execute(b"select name from pg_prepared_statements").fetchall()
            for name, query in _PREPARED.items():
                if (name,) not in known:
                    session.execute(f"prepare {name} as {query}".encode())

    def received(self, session: Session, group: UUID) -> None:
        """Note that a session has received of a group, which is its own until its transaction ends.

        Raises:
            BrokenError: it is another one's.
        """
        holder = self._holders.get((session.database, group))
        if holder is not None and holder is not session and not (holder.is_ended or holder.is_terminated):
            raise BrokenError(f"sessions {holder.number} and {session.number} both hold the group {group}")
        self._holders[session.database, group] = session

    def is_over(self, session: Session) -> None:
        """Note that a session's transaction has ended."""
        self._holders = {key: holder for key, holder in self._holders.items() if holder is not session}

    def has_changed(self, site: str) -> None:
        """Note that a database is no longer what was seen of it."""
        self._looks.pop(site, None)

    def check(self) -> None:
        """Look at all ledgers.

        Raises:
            BrokenError: a message was lost, came twice or out of order.
        """
        if self._memories:
            self._note_conversations()
        looks = {site: self._look(site) for site in self._sessions}
        for site, look in looks.items():
            _check_order(site, look)
        for sender, receiver in ((SHOP, WAREHOUSE), (WAREHOUSE, SHOP)):
            sent, received = looks[sender].sent, looks[receiver].received
            for dialog, messages in sent.items():
                if dialog in self._hurt:
                    continue
                came = received.get(dialog, [])
                if came != messages[: len(came)]:
                    raise BrokenError(f"{receiver} has received on {dialog} {came}, and {messages} was sent")
                waiting = {*looks[sender].outgoing.get(dialog, ()), *looks[receiver].incoming.get(dialog, ())}
                lost = [number for number, _ in messages[len(came) :] if number not in waiting]
                if lost and not self._may_lose(dialog, sender):
                    raise BrokenError(f"of {dialog}, sent by {sender}, {lost} is nowhere")
            if unknown := received.keys() - sent.keys() - self._hurt:
                raise BrokenError(f"{receiver} has received on {unknown}, on which nothing was sent")
        for dialog, fired in looks[SHOP].fired.items():
            if fired > self._dialogs[dialog].timers:
                raise BrokenError(
                    f"{self._dialogs[dialog].timers} timers of {dialog} have fired {fired} times"
                )

    def unquiet(self) -> list[str]:
        """Return what is not as it must be once all is over."""
        found = []
        for name, session in self._sessions.items():
            found += [f"{name}: {what}" for (what,) in session.execute(b"execute unquiet").fetchall()]
        return found

    def check_end(self) -> None:
        """Look whether all has arrived that had to.

        Raises:
            BrokenError: it has not, or a side was told of an error that nobody made.
        """
        self._looks.clear()
        self.check()
        failed = self._failed()
        for sender, receiver in ((SHOP, WAREHOUSE), (WAREHOUSE, SHOP)):
            sent, received = self._look(sender).sent, self._look(receiver).received
            for dialog in sent.keys() - failed:
                if dialog in self._hurt and (
                    # What only one side remembers, which has ended it, nobody can tell it of any more.
                    dialog not in received
                    # And an initiator that had its answers in the future that was forgotten has no use for others.
                    or (sender == WAREHOUSE and WAREHOUSE in self._memories)
                ):
                    continue
                if not self._may_lose(dialog, sender) and sent[dialog] != received.get(dialog):
                    raise BrokenError(
                        f"{receiver} received of {dialog} {received.get(dialog)}, and {sent[dialog]} was sent"
                    )
        fired = self._look(SHOP).fired
        if fired.keys() != {dialog.name for dialog in self._plans}:
            raise BrokenError(f"of the dialogs only {sorted(fired)} were begun")
        for dialog, times in fired.items():
            if dialog not in failed and times != self._dialogs[dialog].timers:
                raise BrokenError(f"of {self._dialogs[dialog].timers} timers of {dialog} {times} have fired")

    def _failed(self) -> set[str]:
        """Return the dialogs that have ended as those do of which a database has forgotten something.

        Raises:
            BrokenError: a side was told of an error that nobody made.
        """
        failed = set()
        for site, session in self._sessions.items():
            query = "select dialog, kind, body from ends where kind like '%/Error'"
            for handle, kind, body in session.execute(query.encode()).fetchall():
                if _ENOUGH in body:
                    continue
                name = self._names.get(handle) or self._names.get(self._conversations.get(handle))
                if name not in self._hurt or not any(code in body for code in _GONE_BACK):
                    raise BrokenError(f"{site} was told on {name} {kind} {body}")
                failed.add(name)
        return failed

    # Databases that go back.

    def copied(self, site: str) -> None:
        """Note what a database remembers, as it is copied."""
        self._memories[site] = self._memory(site)

    def goes_back(self, site: str) -> None:
        """Note what a database will have forgotten when it has gone back to its copy."""
        then, now = self._memories[site], self._memory(site)
        for conversation in then.keys() | now.keys():
            if then.get(conversation) != now.get(conversation) and conversation in self._names:
                self._hurt.add(self._names[conversation])

    def has_gone_back(self, site: str, life: int) -> None:
        """Have the dialogs that a database has forgotten begun anew, as others."""
        self.has_changed(site)
        if site != SHOP:
            return
        known = {name for _, name in self._sessions[SHOP].execute(_NAMES).fetchall()}
        begun = set(self._names.values())
        for place, dialog in enumerate(self._plans):
            if dialog.name in begun - known:
                self._plans[place] = replace(dialog, name=f"{dialog.name}in{life}")
                self._dialogs[self._plans[place].name] = self._plans[place]

    def _memory(self, site: str) -> dict[UUID, str]:
        self._note_conversations()
        return dict(self._sessions[site].execute(_MEMORY.encode()).fetchall())

    def _note_conversations(self) -> None:
        for session in self._sessions.values():
            for conversation, handle in session.execute(_CONVERSATIONS).fetchall():
                self._conversations[handle] = conversation
        for handle, name in self._sessions[SHOP].execute(_NAMES).fetchall():
            self._names[handle] = name
            if handle in self._conversations:
                self._names[self._conversations[handle]] = name

    def digest(self) -> list[Any]:
        """Return what the ledgers say."""
        looks = [(site, self._look(site)) for site in self._sessions]
        return sorted(
            ((site, ledger), sorted(dialogs.items()))
            for site, look in looks
            for ledger, dialogs in (("sent", look.sent), ("received", look.received))
        )

    def _may_lose(self, dialog: str, sender: str) -> bool:
        """Whether the initiator has agreed to lose what is still on its way."""
        plan = self._dialogs[dialog]
        if sender == WAREHOUSE and not plan.waits:
            return True
        if not plan.with_error:
            return False
        query = "select is_ended from dialogs where name = %s"
        return bool(self._sessions[SHOP].execute(query.encode(), (dialog,)).fetchone() == (True,))

    def _look(self, site: str) -> _Look:
        look = self._looks.get(site)
        if look is None:
            look = self._looks[site] = _Look()
            for kind, dialog, numbers, lives in self._sessions[site].execute(b"execute look").fetchall():
                match kind:
                    case "sent" | "received":
                        getattr(look, kind)[dialog] = list(zip(numbers, lives, strict=True))
                    case "outgoing" | "incoming":
                        getattr(look, kind)[dialog] = numbers
                    case _:
                        (look.fired[dialog],) = numbers
        return look


def _check_order(site: str, look: _Look) -> None:
    for ledger, dialogs in (("sent", look.sent), ("received", look.received)):
        for dialog, messages in dialogs.items():
            if [number for number, _ in messages] != list(range(1, len(messages) + 1)):
                raise BrokenError(f"{site} has {ledger} on {dialog} {messages}")
