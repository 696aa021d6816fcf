"""`pybroker redrive`: take a conversation out of quarantine with all its messages."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

import typer

from pybroker.commands.options import DatabaseUrl, Json

Handle = Annotated[
    UUID, typer.Argument(metavar="HANDLE", help="The conversation handle, as broker.quarantine shows it.")
]


def redrive(handle: Handle, *, database_url: DatabaseUrl, json: Json = False) -> None:
    """Take a conversation out of quarantine: it goes on with the message that failed.

    The role needs RECEIVE on the queue. Mend first what made it fail: after five more failures the
    conversation is quarantined again.

    \b
    Example:
      psql -c 'select conversation_handle, last_error from broker.quarantine' postgresql://localhost/shop
      pybroker redrive 6f1c2a52-8f51-4b5e-9b63-1f0c8a0e7c55 --database-url postgresql://localhost/shop

    Exit codes: 0 done, 1 unknown, not quarantined or not permitted, 2 wrong usage.
    """
    # Imported when it runs: the help of a command needs no client.
    import pybroker

    with pybroker.connect(database_url) as broker:
        ready = broker.conversation(handle).redrive()
    report(handle, ready, "Out of quarantine", as_json=json)


def report(handle: UUID, ready: int, what: str, *, as_json: bool) -> None:
    """Say how many messages of the conversation can be received now."""
    if as_json:
        import msgspec

        typer.echo(msgspec.json.encode({"conversation_handle": handle, "messages_ready": ready}))
    else:
        typer.echo(f"{what}: {ready} message{'' if ready == 1 else 's'} ready on conversation {handle}.")
