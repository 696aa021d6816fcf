"""`pybroker redrive`: take conversations out of quarantine with all their messages."""

from __future__ import annotations

import typer

from pybroker.commands.options import DatabaseUrl, Json
from pybroker.commands.quarantined import DryRun, Error, Handle, Queue, Rate, Type, release, wanted


def redrive(
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
    """Take conversations out of quarantine: each goes on with the message that failed.

    One by its handle, or all that the filters choose, the oldest first, each in a transaction of its
    own. The role needs RECEIVE on the queue. Mend first what made it fail: after five more failures
    the conversation is quarantined again.

    \b
    Example:
      pybroker quarantine list --database-url postgresql://localhost/shop
      pybroker redrive 6f1c2a52-8f51-4b5e-9b63-1f0c8a0e7c55 --database-url postgresql://localhost/shop
      pybroker redrive --queue warehouse --error timeout --dry-run
      pybroker redrive --queue warehouse --error timeout --rate 10

    Exit codes: 0 done, 1 unknown, not quarantined or not permitted, 2 wrong usage.
    """
    chosen = wanted(handle, queue, message_type, error)
    done = release(chosen, "redrive", database_url, rate=rate, is_dry=dry_run, as_json=json)
    raise typer.Exit(0 if done else 1)
