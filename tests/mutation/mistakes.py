"""The mistakes: each is one text of one file, and what a careless hand makes of it.

They were listed before anybody looked which test finds them. One that nothing finds stays in the list.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


class StaleError(Exception):
    """The code has changed: the text of a mistake is not in its file once."""


@dataclass(frozen=True)
class Mistake:
    """One mistake: in a file, counted from the project's root, `right` becomes `wrong`."""

    name: str
    file: str
    right: str
    wrong: str

    def plant(self, root: Path) -> None:
        """Put it into the project at this path.

        Raises:
            StaleError: The right text is not there exactly once.
        """
        path = root / self.file
        text = path.read_text()
        if text.count(self.right) != 1:
            raise StaleError(
                f'"{self.name}": its text is {text.count(self.right)} times in {self.file}, not once'
            )
        path.write_text(text.replace(self.right, self.wrong))


MISTAKES = [
    # What is acknowledged.
    Mistake(
        "the rows of an acknowledgement are not counted",
        "sql/delivery/acknowledge.sql",
        "    continue when number <> next_number and not (is_end and found);\n",
        "",
    ),
    Mistake(
        "the last row of an acknowledgement stays",
        "sql/delivery/acknowledge.sql",
        "m.id <= u.row_id",
        "m.id < u.row_id",
    ),
    Mistake(
        "an acknowledgement locks no counter",
        "sql/delivery/acknowledge.sql",
        "      limit 1\n      for update\n",
        "      limit 1\n",
    ),
    Mistake(
        "one message too many counts as acknowledged",
        "workers/transport/outgoing/batches.py",
        "endpoint in expected and number < expected[endpoint]",
        "endpoint in expected and number <= expected[endpoint]",
    ),
    Mistake(
        "what follows a batch that was half taken is sent on",
        "workers/transport/outgoing/in_flight.py",
        "acknowledged.get(endpoint) != end.next_number",
        "endpoint not in acknowledged",
    ),
    Mistake(
        "an answer is noted before those that it follows",
        "workers/transport/outgoing/sender.py",
        "                if before_it is not None:\n",
        "                if before_it is not None and before_it.done():\n",
    ),
    Mistake(
        "a batch is acknowledged, then rolled back",
        "workers/database.py",
        "                        yield connection\n                except TimeoutError:\n",
        "                        yield connection\n                        await connection.rollback()\n"
        "                except TimeoutError:\n",
    ),
    # What is taken and delivered.
    Mistake(
        "a dialog that may be moving is not held",
        "sql/delivery/describe_dialogs.sql",
        "      for update skip locked\n",
        "",
    ),
    Mistake(
        "the oldest leaves first, whatever its priority",
        "sql/delivery/take_plain.sql",
        "    order by t.precedence, t.id\n",
        "    order by t.id\n",
    ),
    Mistake(
        "what a sender remembers outlives a restored database",
        "workers/transport/outgoing/known_dialogs.py",
        "if incarnation != self._incarnation:",
        "if not self._incarnation:",
    ),
    Mistake(
        "an answer for some dialogs is taken for all",
        "workers/transport/outgoing/batches.py",
        "        and len(acknowledged) == arrays.element_count(taken.endpoint_nos, arrays.BIGINT)\n",
        "",
    ),
    Mistake(
        "what arrived meanwhile is not seen",
        "sql/delivery/deliver_plain.sql",
        "select from broker_private.early_messages h where h.endpoint_no = any (endpoint_nos) and h.is_whole\n",
        "select from broker_private.early_messages h where false\n",
    ),
    Mistake(
        "what is odd is found when the counters have moved",
        "sql/delivery/deliver_plain.sql",
        "n.xmin = pg_current_xact_id()::xid",
        "false",
    ),
    Mistake(
        "what is put back forgets when it was sent",
        "sql/delivery/deliver_plain.sql",
        ">> 7, sent_at = n.sent_before\n",
        ">> 7\n",
    ),
    Mistake(
        "a gap is stepped over",
        "sql/delivery/deliver_plain.sql",
        "next_numbers[dialog] <> sequence_numbers[place]",
        "next_numbers[dialog] > sequence_numbers[place]",
    ),
    Mistake(
        "a message that came alone overtakes what is looked at",
        "sql/delivery/deliver_one.sql",
        "  select from broker_private.incomplete_messages i where i.endpoint_no = endpoint\n",
        "  select from broker_private.incomplete_messages i where false\n",
    ),
    Mistake(
        "a message that came alone is taken from anybody",
        "sql/delivery/deliver_one.sql",
        " and f.event = '<broker known>' and f.far_broker_instance = from_broker;",
        " and f.event = '<broker known>';",
    ),
    Mistake(
        "a message that came alone is taken with any security",
        "sql/delivery/deliver_one.sql",
        "where y.endpoint_no = endpoint and y.kind::text = security_kind",
        "where y.endpoint_no = endpoint",
    ),
    Mistake(
        "a queue that is off takes a message that came alone",
        "sql/delivery/deliver_one.sql",
        "where q.queue_id = queue and not q.is_enqueue_enabled",
        "where q.queue_id = queue and false",
    ),
    Mistake(
        "a queue that is off takes messages",
        "sql/delivery/deliver_plain.sql",
        "where q.queue_id = any (queue_ids) and not q.is_enqueue_enabled\n",
        "where q.queue_id = any (queue_ids) and false\n",
    ),
    Mistake(
        "a refused first message leaves a conversation",
        "sql/delivery/deliver_fully.sql",
        "      where next_numbers[u.place] = 0\n",
        "      where next_numbers[u.place] < 0\n",
    ),
    Mistake(
        "a sender that went back is not noticed",
        "sql/delivery/torn_dialogs.sql",
        "and (d.acknowledged > c.next_number or b.is_other);",
        "and d.acknowledged > c.next_number;",
    ),
    Mistake(
        "what came too early is kept without a limit",
        "sql/delivery/hold_early.sql",
        "a.number > c.next_number and a.number < c.next_number + 1000",
        "a.number > c.next_number",
    ),
    Mistake(
        "pieces of two messages become one",
        "sql/delivery/deliver_piece.sql",
        "\n    and h.sent_at is not distinct from deliver_piece.sent_at[1];",
        ";",
    ),
    Mistake(
        "a missing piece is stepped over",
        "sql/delivery/deliver_piece.sql",
        "if piece_at = stored_bytes and piece_bytes > 0",
        "if piece_at >= stored_bytes and piece_bytes > 0",
    ),
    Mistake(
        "a batch that is cut loses its last dialog",
        "workers/transport/protocol/slices.py",
        "range(first, min(first + most, count))",
        "range(first, min(first + most, count - 1))",
    ),
    # Ends, timers and what is swept.
    Mistake(
        "both sides' Errors are received",
        "sql/dialog/put_broker_error.sql",
        "  if not is_first then\n",
        "  if is_first is null then\n",
    ),
    Mistake(
        "END WITH ERROR sends the rest",
        "sql/sending/send_end.sql",
        "    if end_kind = '<error>' then\n",
        "    if end_kind = '<message>' then\n",
    ),
    Mistake(
        "a timer fires after its moment only",
        "sql/housekeeping/fire_timers.sql",
        "x.fires_at <= moment",
        "x.fires_at < moment",
    ),
    Mistake(
        "timers stay with the queue that their service has left",
        "sql/queue/rehome_service.sql",
        "conversation_timers t set queue_id = queue",
        "conversation_timers t set queue_id = t.queue_id",
    ),
    Mistake(
        "a closed side is forgotten while its first message may come again",
        "sql/housekeeping/sweep.sql",
        "interval '30 min'",
        "interval '30 s'",
    ),
    # Floors, groups and moves.
    Mistake(
        "the newest floors are swept",
        "sql/housekeeping/sweep.sql",
        "n.number > x.number)",
        "n.number < x.number)",
    ),
    Mistake(
        "a move resets no floor",
        "sql/queue/gather_moved.sql",
        "    perform broker_private.reset_floors(g.queue_id) from broker_private.groups g"
        " where g.group_no = group_number;\n",
        "    null;\n",
    ),
    Mistake(
        "a move believes what it saw before it waited",
        "sql/conversation/move_conversation.sql",
        "      exit when exists (\n",
        "      exit when true or exists (\n",
    ),
    # Who sleeps and who wakes.
    Mistake(
        "who sleeps does not look again",
        "sql/conversation/sleep_on.sql",
        "  elsif broker_private.has_arrivals(queue)\n    or (select",
        "  elsif (select",
    ),
    Mistake(
        "a worker that sleeps does not look again",
        "sql/wake_ups/sleep_on_queues.sql",
        "    elsif broker_private.has_arrivals(queue) then\n",
        "    elsif false then\n",
    ),
    Mistake(
        "a delivery wakes nobody",
        "sql/delivery/deliver_plain.sql",
        "      perform broker_private.wake_sleepers(queue);\n",
        "      null;\n",
    ),
    # Poison.
    Mistake(
        "the sixth rollback turns a queue off",
        "sql/poison/note_receive.sql",
        "if rollbacks >= 5 then",
        "if rollbacks > 5 then",
    ),
    Mistake(
        "a commit does not end a row of rollbacks",
        "sql/poison/rollbacks_in_a_row.sql",
        "case when is_committed then 0",
        "case when aborted = 0 and is_committed then 0",
    ),
    # Rights, and what a stranger sends.
    Mistake(
        "whoever knows a handle sends",
        "sql/conversation/send.sql",
        "\n    and pg_has_role(caller, g.send_receiver, 'USAGE') is not false\n",
        "\n",
    ),
    Mistake(
        "SEND believes a plan that a change made old",
        "sql/conversation/send.sql",
        "f.local_end is null and made > pg_sequence_last_value('broker_private.plan_mark');",
        "f.local_end is null;",
    ),
    Mistake(
        "a plan is believed that was made while a change was not committed",
        "sql/sending/refresh_plan.sql",
        "txid_snapshot_xmin(txid_current_snapshot())",
        "txid_current()",
    ),
    Mistake(
        "of two marks the later stays, not the greater",
        "sql/sending/mark_plans.sql",
        "  if pg_sequence_last_value('broker_private.plan_mark') >= marking then\n    return null;\n  end if;\n",
        "  perform setval('broker_private.plan_mark', marking);\n  return null;\n",
    ),
    Mistake(
        "a copy keeps the plans of the other server",
        "sql/sending/mark_plans.sql",
        "case when broker_private.is_copy() then 9223372036854775807 else txid_current() end",
        "txid_current()",
    ),
    Mistake(
        "whoever knows a handle moves the conversation",
        "sql/conversation/move_conversation.sql",
        "      perform broker_private.require_conversation_ownership(caller, e, 'move');\n",
        "",
    ),
    Mistake(
        "whoever likes grants RECEIVE",
        "sql/security/find_securable.sql",
        "      perform broker_private.require_ownership(role_name, queue.owner, 'queue', queue.name);\n",
        "",
    ),
    Mistake(
        "an index may point before the first dialog",
        "workers/transport/protocol/wire.py",
        "min(indexes) >= 1",
        "min(indexes) >= 0",
    ),
    Mistake(
        "a piece may lie outside of its message",
        "workers/transport/protocol/wire.py",
        'batch.piece_at + len(piece or b"") > batch.total_bytes',
        "batch.piece_at > batch.total_bytes",
    ),
    Mistake(
        "what was sealed long ago is opened",
        "workers/transport/dialog_security/opening.py",
        "        self._refuse_stale(read)\n",
        "",
    ),
    Mistake(
        "a certificate that is over still vouches",
        "workers/transport/dialog_security/opening.py",
        "            _refuse_unusable(sender, now)\n",
        "",
    ),
]
