"""`pybroker send`: send one message, on a new conversation or on one that is open."""

from __future__ import annotations

import sys
from typing import Annotated
from uuid import UUID

import typer

from pybroker.commands.options import DatabaseUrl, Json
from pybroker.commands.telling import say, say_json


def send(
    body: Annotated[
        str,
        typer.Argument(
            metavar="[BODY]", help="As UTF-8; - reads bytes from the standard input.", show_default=False
        ),
    ] = "",
    *,
    database_url: DatabaseUrl,
    conversation: Annotated[
        UUID | None, typer.Option(metavar="HANDLE", help="An open conversation; else one is begun.")
    ] = None,
    from_service: Annotated[str | None, typer.Option(metavar="NAME", help="The initiator.")] = None,
    to_service: Annotated[str | None, typer.Option(metavar="NAME", help="The target.")] = None,
    contract: Annotated[str | None, typer.Option(metavar="NAME", help="Else DEFAULT.")] = None,
    message_type: Annotated[str, typer.Option(metavar="NAME")] = "DEFAULT",
    encryption: Annotated[
        bool | None,
        typer.Option("--encryption/--no-encryption", help="How a new dialog is secured; else encrypted."),
    ] = None,
    json: Json = False,
) -> None:
    """Send one message, and print the handle of its conversation.

    A conversation that it begins stays open: answers come to its handle, and its program ends it.

    \b
    Example:
      pybroker send '<order/>' --from-service //shop --to-service //warehouse --contract ordering \\
        --message-type order --database-url postgresql://localhost/shop
      pybroker send - --conversation 6f1c2a52-8f51-4b5e-9b63-1f0c8a0e7c55 < order.xml

    Exit codes: 0 sent, 1 refused, 2 wrong usage.
    """
    from pybroker.operator_session import broker_session

    is_new = conversation is None
    of_new = (from_service, to_service, contract, encryption)
    if None in of_new[:2] if is_new else any(one is not None for one in of_new):
        raise typer.BadParameter(
            "give either --conversation, or --from-service and --to-service, with what the new dialog has"
        )
    content = sys.stdin.buffer.read() if body == "-" else body.encode()
    with broker_session(database_url, "pybroker send", autocommit=False) as connection:
        if is_new:
            begun = connection.execute(
                "select broker.begin_dialog(%s, %s, contract => %s, encryption => %s)",
                (
                    from_service,
                    to_service,
                    "DEFAULT" if contract is None else contract,
                    encryption is not False,
                ),
            ).fetchall()
            conversation = begun[0][0]
        connection.execute("select broker.send(%s, %s, %s::bytea)", (conversation, message_type, content))
    if json:
        say_json({"conversation_handle": conversation})
    else:
        say(str(conversation))
