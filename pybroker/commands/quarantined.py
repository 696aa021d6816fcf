"""Which quarantined conversations `redrive` and `discard` take, and how fast."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Literal
from uuid import UUID

import typer

from pybroker.commands.telling import say, say_json

if TYPE_CHECKING:
    from pybroker import Broker

Handle = Annotated[
    UUID | None,
    typer.Argument(metavar="[HANDLE]", help="The conversation handle, as broker.quarantine shows it."),
]
Queue = Annotated[str | None, typer.Option(metavar="NAME", help="All conversations of this queue.")]
Type = Annotated[
    str | None, typer.Option(metavar="NAME", help="Those whose failed message is of this message type.")
]
Error = Annotated[str | None, typer.Option(metavar="TEXT", help="Those whose last error contains this.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would be taken.")]
Rate = Annotated[
    float | None, typer.Option(metavar="NUMBER", min=0.001, help="At most so many conversations a second.")
]

# Its columns are put in.
CHOSEN = """
select {}
from broker.quarantine
where queue_name = coalesce(%(queue)s, queue_name)
  and message_type_name = coalesce(%(message_type)s, message_type_name)
  and (%(error)s::text is null or pg_catalog.strpos(last_error, %(error)s) > 0)
order by quarantined_at, conversation_handle
"""
_WORDS = {"redrive": "Out of quarantine", "discard": "Discarded, and out of quarantine"}

Chosen = UUID | dict[str, str | None]


def wanted(handle: UUID | None, queue: str | None, message_type: str | None, error: str | None) -> Chosen:
    """Return the one handle, or the filters; refuse both, and neither."""
    filters = {"queue": queue, "message_type": message_type, "error": error}
    is_filtered = any(value is not None for value in filters.values())
    if (handle is None) != is_filtered:
        raise typer.BadParameter("give either HANDLE or filters: --queue, --message-type, --error")
    return filters if handle is None else handle


def release(
    chosen: Chosen,
    verb: Literal["redrive", "discard"],
    database_url: str,
    *,
    rate: float | None,
    is_dry: bool,
    as_json: bool,
) -> bool:
    """Redrive or discard them one by one; return whether each of them could be."""
    # Imported when it runs: the help of a command needs no client.
    import pybroker
    from pybroker.operator_session import broker_session

    with broker_session(database_url, f"pybroker {verb}") as connection:
        broker = pybroker.connect(connection)
        if isinstance(chosen, UUID):
            _report(chosen, verb, None if is_dry else _release(broker, verb, chosen), as_json=as_json)
            return True
        handles = [
            row[0]
            for row in connection.execute(CHOSEN.format("conversation_handle").encode(), chosen).fetchall()
        ]
        failed = 0
        began = time.monotonic()
        for number, handle in enumerate(handles):
            if is_dry:
                _report(handle, verb, None, as_json=as_json)
                continue
            if rate is not None:
                time.sleep(max(0.0, began + number / rate - time.monotonic()))
            try:
                _report(handle, verb, _release(broker, verb, handle), as_json=as_json)
            except pybroker.BrokerError as error:
                # Somebody else was there first, or may do what this role may not: the others go on.
                failed += 1
                say(f"pybroker: {handle}: {error}", err=True)
    if not as_json:
        say(f"{len(handles)} chosen, {failed} failed.")
    return failed == 0


def _release(broker: Broker, verb: Literal["redrive", "discard"], handle: UUID) -> int:
    conversation = broker.conversation(handle)
    return conversation.redrive() if verb == "redrive" else conversation.discard()


def _report(handle: UUID, verb: str, ready: int | None, *, as_json: bool) -> None:
    """Say how many messages of the conversation can be received now; none were asked for in a dry run."""
    if as_json:
        say_json({"conversation_handle": handle, "messages_ready": ready})
    elif ready is None:
        say(f"Would {verb} conversation {handle}.")
    else:
        plural = "" if ready == 1 else "s"
        say(f"{_WORDS[verb]}: {ready} message{plural} ready on conversation {handle}.")
