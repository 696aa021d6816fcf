"""`pybroker peek`: look at the messages that RECEIVE takes next."""

from __future__ import annotations

from typing import Annotated

import typer

from pybroker.commands.options import DatabaseUrl, Json
from pybroker.commands.telling import say, say_json


def peek(
    queue: Annotated[str, typer.Argument(metavar="QUEUE", help="The queue's name.")],
    *,
    database_url: DatabaseUrl,
    top: Annotated[
        int, typer.Option(metavar="NUMBER", min=1, max=1000, help="How many messages at most.")
    ] = 50,
    body_bytes: Annotated[
        int, typer.Option(metavar="NUMBER", min=0, max=65536, help="So much of each body.")
    ] = 80,
    json: Json = False,
) -> None:
    """Show the messages that RECEIVE takes next, without taking or locking one.

    A line each, with tabs: since when, handle, service, message type, bytes, how the body begins.
    A tab within one of these is shown as \\t.
    With --json the body is in base64. The role needs RECEIVE on the queue.

    \b
    Example:
      pybroker peek warehouse --top 5 --database-url postgresql://localhost/shop
    """
    from psycopg.rows import dict_row

    from pybroker.operator_session import broker_session

    with broker_session(database_url, "pybroker peek") as connection:
        rows = connection.cursor(row_factory=dict_row).execute(
            "select message_enqueue_time, conversation_handle, service_name, message_type_name, body_size,"
            " body_start from broker.peek(%s, top => %s, body_bytes => %s)",
            (queue, top, body_bytes),
        )
        for row in rows:
            if json:
                say_json(row)
                continue
            body = (row.pop("body_start") or b"").decode(errors="replace")
            shown = ("" if value is None else str(value) for value in (*row.values(), body))
            say("\t".join(one.replace("\t", "\\t") for one in shown))
