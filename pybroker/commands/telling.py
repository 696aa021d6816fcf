"""What commands print. Lint sees that they print nothing else, as names and texts come from strangers too."""

from __future__ import annotations

from typing import Any

import typer

from pybroker.printable import printable, printable_json


def say(*lines: str, err: bool = False) -> None:
    """Print lines, of which no terminal obeys anything.

    A line's end within one is shown as `\\n`, so that a name can't look like another line. Tabs stay.
    """
    for line in lines:
        typer.echo("\t".join(map(printable, line.split("\t"))), err=err)  # noqa: TID251


def say_text(text: str, *, err: bool = False) -> None:
    """Print a text of several lines."""
    say(*text.removesuffix("\n").split("\n"), err=err)


def say_json(value: Any) -> None:
    """Print a value as JSON, in one line."""
    import msgspec

    typer.echo(printable_json(msgspec.json.encode(value).decode()))  # noqa: TID251
