"""`pybroker apply`: make a database have what a file of definitions defines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from pybroker.commands.options import DatabaseUrl, Json
from pybroker.commands.telling import say, say_json


def apply(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE.py", exists=True, dir_okay=False, help="A Python file with a list `definitions`."
        ),
    ],
    *,
    database_url: DatabaseUrl,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what would be done.")] = False,
    prune: Annotated[
        bool,
        typer.Option("--prune", help="Drop what is not defined, with its conversations."),
    ] = False,
    json: Json = False,
) -> None:
    """Create what is defined and not there, and alter what differs, in one transaction.

    Applied again it does nothing. Nothing is dropped without --prune.

    \b
    Example:
      pybroker apply definitions.py --database-url postgresql://localhost/shop --dry-run

    Exit codes: 0 done, or nothing to do; 1 refused, and nothing was done; 2 wrong usage.
    """
    import pybroker
    from pybroker.operator_session import broker_session

    with broker_session(database_url, "pybroker apply") as connection:
        plan = pybroker.connect(connection).apply(_definitions(file), prune=prune, dry_run=dry_run)
    if json:
        steps = [
            {
                "summary": each.summary,
                "is_destructive": each.is_destructive,
                "function": each.function,
                "arguments": each.arguments,
            }
            for each in plan.steps
        ]
        say_json({"steps": steps, "is_done": not dry_run})
    else:
        say(*map(str, plan.steps) if plan.steps else [str(plan)])


def _definitions(file: Path) -> list[Any]:
    import runpy

    found = runpy.run_path(str(file)).get("definitions")
    if not isinstance(found, list | tuple):
        raise typer.BadParameter(f"{file} has no list `definitions` at its top level.", param_hint="FILE.py")
    return list(found)
