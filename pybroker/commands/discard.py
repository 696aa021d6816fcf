"""`pybroker discard`: remove the message that failed, and let its conversation go on."""

from __future__ import annotations

from pybroker.commands.options import DatabaseUrl, Json
from pybroker.commands.redrive import Handle, report


def discard(handle: Handle, *, database_url: DatabaseUrl, json: Json = False) -> None:
    """Remove the message that failed, and take its conversation out of quarantine with the others.

    The message is gone, and the far side is not told. The role needs RECEIVE on the queue.

    \b
    Example:
      psql -c 'select conversation_handle, last_error from broker.quarantine' postgresql://localhost/shop
      pybroker discard 6f1c2a52-8f51-4b5e-9b63-1f0c8a0e7c55 --database-url postgresql://localhost/shop

    Exit codes: 0 done, 1 unknown, not quarantined or not permitted, 2 wrong usage.
    """
    # Imported when it runs: the help of a command needs no client.
    import pybroker

    with pybroker.connect(database_url) as broker:
        ready = broker.conversation(handle).discard()
    report(handle, ready, "Discarded, and out of quarantine", as_json=json)
