"""What must hold after each step, and at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation.sites import SHOP, WAREHOUSE

if TYPE_CHECKING:
    from uuid import UUID

    import psycopg

    from tests.simulation.applications import Dialog
    from tests.simulation.gate import Session

# Everything that is somewhere between a SEND and its RECEIVE, by what its body begins with.
_WAITING = """
select split_part(b.text, ':', 1), split_part(b.text, ':', 2)::integer from (
  select convert_from(substr(body, 1, 40), 'UTF8') from broker_private.{table} where body is not null
) b (text) where b.text ~ '^[a-z0-9]+:[0-9]+:'
"""
_OUTGOING = ("transmission_messages",)
_INCOMING = ("messages", "incomplete_messages", "early_messages")
_LEDGERS = """
select 'sent', dialog, array_agg(number order by place) from sent group by dialog
union all
select 'received', dialog, array_agg(number order by place) from received group by dialog
"""
_TIMERS = b"select name, timers_fired from dialogs"
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
# By these the application itself has a dialog ended.
_ENOUGH = "<Code>1</Code>"


class BrokenError(AssertionError):
    """Something that must hold does not."""


class Invariants:
    """Looks at both databases, with sessions of its own that nobody else sees."""

    def __init__(self, sessions: dict[str, psycopg.Connection[Any]], dialogs: list[Dialog]) -> None:
        self._sessions = sessions
        self._dialogs = {dialog.name: dialog for dialog in dialogs}
        self._has_timers = any(dialog.timers for dialog in dialogs)
        self._holders: dict[tuple[str, UUID], Session] = {}

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

    def check(self) -> None:
        """Look at all ledgers.

        Raises:
            BrokenError: a message was lost, came twice or out of order.
        """
        ledgers = self._ledgers()
        for sender, receiver in ((SHOP, WAREHOUSE), (WAREHOUSE, SHOP)):
            sent, received = ledgers[sender, "sent"], ledgers[receiver, "received"]
            waiting: set[tuple[str, int]] | None = None
            for dialog, numbers in sent.items():
                if numbers != list(range(1, len(numbers) + 1)):
                    raise BrokenError(f"{sender} has sent on {dialog} {numbers}")
                came = received.get(dialog, [])
                if came != list(range(1, len(came) + 1)):
                    raise BrokenError(f"{receiver} has received on {dialog} {came}")
                missing = numbers[len(came) :]
                if len(came) > len(numbers):
                    raise BrokenError(f"{receiver} has received on {dialog} {came}, and {numbers} was sent")
                if missing and not self._may_lose(dialog, sender):
                    waiting = self._waiting(sender, receiver) if waiting is None else waiting
                    lost = [number for number in missing if (dialog, number) not in waiting]
                    if lost:
                        raise BrokenError(f"of {dialog}, sent by {sender}, {lost} is nowhere")
            if unknown := received.keys() - sent.keys():
                raise BrokenError(f"{receiver} has received on {unknown}, on which nothing was sent")
        for dialog, fired in self._sessions[SHOP].execute(_TIMERS).fetchall() if self._has_timers else ():
            if fired > self._dialogs[dialog].timers:
                raise BrokenError(
                    f"{self._dialogs[dialog].timers} timers of {dialog} have fired {fired} times"
                )

    def unquiet(self) -> list[str]:
        """Return what is not as it must be once all is over."""
        found = []
        for name, session in self._sessions.items():
            found += [f"{name}: {what}" for (what,) in session.execute(_QUIET.encode()).fetchall()]
        return found

    def check_end(self) -> None:
        """Look whether all has arrived that had to.

        Raises:
            BrokenError: it has not, or a side was told of an error that nobody made.
        """
        self.check()
        ledgers = self._ledgers()
        for sender, receiver in ((SHOP, WAREHOUSE), (WAREHOUSE, SHOP)):
            sent, received = ledgers[sender, "sent"], ledgers[receiver, "received"]
            for dialog, numbers in sent.items():
                if not self._may_lose(dialog, sender) and numbers != received.get(dialog):
                    raise BrokenError(
                        f"{receiver} never received of {dialog} more than {received.get(dialog)}"
                    )
        for name, session in self._sessions.items():
            query = "select kind, body from ends where kind like '%/Error'"
            for kind, body in session.execute(query.encode()).fetchall():
                if _ENOUGH not in body:
                    raise BrokenError(f"{name} was told {kind} {body}")
        if len(ledgers[SHOP, "sent"]) != len(self._dialogs):
            raise BrokenError("not all dialogs were begun")
        for dialog, fired in self._sessions[SHOP].execute(_TIMERS).fetchall():
            if fired != self._dialogs[dialog].timers:
                raise BrokenError(f"of {self._dialogs[dialog].timers} timers of {dialog} {fired} have fired")

    def digest(self) -> list[Any]:
        """Return what the ledgers say."""
        return sorted((key, sorted(ledger.items())) for key, ledger in self._ledgers().items())

    def _may_lose(self, dialog: str, sender: str) -> bool:
        """Whether the initiator has agreed to lose what is still on its way."""
        plan = self._dialogs[dialog]
        if sender == WAREHOUSE and not plan.waits:
            return True
        if not plan.with_error:
            return False
        query = "select is_ended from dialogs where name = %s"
        return bool(self._sessions[SHOP].execute(query.encode(), (dialog,)).fetchone() == (True,))

    def _ledgers(self) -> dict[tuple[str, str], dict[str, list[int]]]:
        found: dict[tuple[str, str], dict[str, list[int]]] = {}
        for name, session in self._sessions.items():
            found[name, "sent"], found[name, "received"] = {}, {}
            for ledger, dialog, numbers in session.execute(_LEDGERS.encode()).fetchall():
                found[name, ledger][dialog] = numbers
        return found

    def _waiting(self, sender: str, receiver: str) -> set[tuple[str, int]]:
        found: set[tuple[str, int]] = set()
        for name, tables in ((sender, _OUTGOING), (receiver, _INCOMING)):
            query = " union all ".join(_WAITING.format(table=table) for table in tables)
            found.update(self._sessions[name].execute(query.encode()).fetchall())
        return found
