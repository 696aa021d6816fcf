"""`pybroker queue`: list queues, and turn one on or off."""

from __future__ import annotations

from typing import Annotated

import typer

from pybroker.commands.options import DatabaseUrl, Json
from pybroker.commands.telling import say, say_json

Name = Annotated[str, typer.Argument(metavar="NAME", help="The queue's name.")]

queue = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    help="List the queues, and turn one on or off.",
)


@queue.command("list")
def list_queues(*, database_url: DatabaseUrl, json: Json = False) -> None:
    """List the queues that the role may see: one line each, tabs between the name and its state.

    \b
    Example:
      pybroker queue list --database-url postgresql://localhost/shop
    """
    from pybroker.operator_session import broker_session

    with broker_session(database_url, "pybroker queue") as connection:
        found = connection.execute(
            "select name, is_receive_enabled and is_enqueue_enabled from broker.service_queues order by name"
        ).fetchall()
    if json:
        say_json([{"queue": name, "is_enabled": is_on} for name, is_on in found])
        return
    for name, is_on in found:
        say(f"{name}\t{'on' if is_on else 'off'}")


@queue.command("on")
def on(name: Name, *, database_url: DatabaseUrl) -> None:
    """Turn a queue on, also one that rollbacks have turned off.

    \b
    Example:
      pybroker queue on warehouse --database-url postgresql://localhost/shop
    """
    _turn(name, database_url, is_on=True)


@queue.command("off")
def off(name: Name, *, database_url: DatabaseUrl) -> None:
    """Turn a queue off: nothing is received from it, and messages for it wait.

    \b
    Example:
      pybroker queue off warehouse --database-url postgresql://localhost/shop
    """
    _turn(name, database_url, is_on=False)


def _turn(name: str, url: str, *, is_on: bool) -> None:
    from pybroker.operator_session import broker_session

    with broker_session(url, "pybroker queue") as connection:
        connection.execute("select broker.alter_queue(%s, status => %s)", (name, is_on))
    say(f"{name}\t{'on' if is_on else 'off'}")
