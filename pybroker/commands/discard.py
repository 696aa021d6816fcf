"""`pybroker discard`: remove messages that failed, and let their conversations go on."""

from __future__ import annotations

import typer

from pybroker.commands.options import DatabaseUrl, Json
from pybroker.commands.quarantined import DryRun, Error, Handle, Queue, Rate, Type, release, wanted


def discard(
    handle: Handle = None,
    *,
    database_url: DatabaseUrl,
    queue: Queue = None,
    message_type: Type = None,
    error: Error = None,
    dry_run: DryRun = False,
    rate: Rate = None,
    json: Json = False,
) -> None:
    """Remove the message that failed, and take its conversation out of quarantine with the others.

    One conversation by its handle, or all that the filters choose, each in a transaction of its own.
    The messages are gone, and the far sides are not told. The role needs RECEIVE on the queue.

    \b
    Example:
      pybroker quarantine list --database-url postgresql://localhost/shop
      pybroker discard 6f1c2a52-8f51-4b5e-9b63-1f0c8a0e7c55 --database-url postgresql://localhost/shop
      pybroker discard --queue warehouse --message-type order --dry-run

    Exit codes: 0 done, 1 unknown, not quarantined or not permitted, 2 wrong usage.
    """
    chosen = wanted(handle, queue, message_type, error)
    done = release(chosen, "discard", database_url, rate=rate, is_dry=dry_run, as_json=json)
    raise typer.Exit(0 if done else 1)
