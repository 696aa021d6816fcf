"""`pybroker quarantine`: list the conversations that failing messages have set aside."""

from __future__ import annotations

import typer

from pybroker.commands.options import DatabaseUrl, Json
from pybroker.commands.quarantined import CHOSEN, Error, Queue, Type
from pybroker.commands.telling import say, say_json

quarantine = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    help="List the conversations that failing messages have set aside.",
)


@quarantine.callback()
def group() -> None:
    """List the conversations that failing messages have set aside."""


@quarantine.command("list")
def list_conversations(
    *,
    database_url: DatabaseUrl,
    queue: Queue = None,
    message_type: Type = None,
    error: Error = None,
    json: Json = False,
) -> None:
    """List the quarantined conversations that the role may receive from, the oldest first.

    A line each, with tabs: handle, queue, message type, failures, messages, since when, the next try,
    the error.

    \b
    Example:
      pybroker quarantine list --queue warehouse --database-url postgresql://localhost/shop
    """
    from psycopg.rows import dict_row

    from pybroker.operator_session import broker_session

    columns = (
        "conversation_handle, queue_name, message_type_name, failures, messages_waiting, quarantined_at,"
        " retry_at, last_error"
    )
    chosen = {"queue": queue, "message_type": message_type, "error": error}
    with broker_session(database_url, "pybroker quarantine") as connection:
        for row in connection.cursor(row_factory=dict_row).execute(CHOSEN.format(columns).encode(), chosen):
            if json:
                say_json(row)
            else:
                say("\t".join("" if value is None else str(value) for value in row.values()))
