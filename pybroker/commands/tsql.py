"""`pybroker tsql`: Service Broker definitions of SQL Server, checked, translated and run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pybroker.commands.options import DatabaseUrl, Json

if TYPE_CHECKING:
    from pybroker.tsql.report import Finding

Scripts = Annotated[
    list[Path],
    typer.Argument(metavar="FILE...", exists=True, help="Scripts, or directories with *.sql files."),
]

tsql = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Check, translate and run Service Broker definitions of SQL Server.",
)


@tsql.command()
def check(files: Scripts, *, json: Json = False) -> None:
    """Say of each statement whether it runs, and if not, why; exit code 1 if one is refused.

    \b
    Example:
      pybroker tsql check scripts
    """
    found = _read(files)
    if json:
        import msgspec

        rows = [
            {
                "file": one.file,
                "line": one.position.line,
                "column": one.position.column,
                "answer": _answer(one),
                "statement": one.statement,
                "notes": one.notes,
            }
            for one in found
        ]
        typer.echo(msgspec.json.encode(rows))
    else:
        for one in found:
            statement = "" if one.sql is None else f" {one.statement}"
            notes = "".join(f" ({note})" for note in one.notes) if one.sql else f" {one.notes[0]}"
            typer.echo(f"{one.place}: {_answer(one)}:{statement}{notes}")
    if any(one.sql is None for one in found):
        raise typer.Exit(1)


@tsql.command()
def translate(files: Scripts) -> None:
    """Print the PostgreSQL form, each statement below its place in the script.

    Nothing is printed if a statement is refused.

    \b
    Example:
      pybroker tsql translate trader.sql
    """
    for one in _runnable(files):
        # The name is the file system's: a newline in it must not end the comment.
        typer.echo(f"-- {' '.join(one.place.splitlines())}\n{one.sql}")


@tsql.command()
def run(files: Scripts, *, database_url: DatabaseUrl) -> None:
    """Run scripts in one transaction; nothing runs if a statement is refused, and nothing stays if one fails.

    \b
    Example:
      pybroker tsql run trader.sql --database-url postgresql://localhost/trader1
    """
    import psycopg

    found = _runnable(files)
    with psycopg.connect(database_url, application_name="pybroker tsql") as connection:
        for one in found:
            try:
                connection.execute((one.sql or "").encode())
            except psycopg.Error as error:
                hint = f" HINT: {error.diag.message_hint}" if error.diag.message_hint else ""
                message = f"{one.place}: {error.sqlstate}: {error.diag.message_primary}{hint}\n{one.sql}"
                typer.echo(message, err=True)
                raise typer.Exit(1) from None


def _read(files: list[Path]) -> list[Finding]:
    from pybroker.tsql.report import findings

    scripts = [
        script for file in files for script in (sorted(file.rglob("*.sql")) if file.is_dir() else [file])
    ]
    return [one for script in scripts for one in findings(script)]


def _runnable(files: list[Path]) -> list[Finding]:
    """Read scripts, and leave with exit code 1 if a statement is refused."""
    found = _read(files)
    refused = [one for one in found if one.sql is None]
    for one in refused:
        typer.echo(f"{one.place}: {one.notes[0]}", err=True)
    if refused:
        raise typer.Exit(1)
    for one in found:
        for note in one.notes:
            typer.echo(f"{one.place}: {note}", err=True)
    return found


def _answer(one: Finding) -> str:
    if one.sql is None:
        return "refused"
    return "runs with a note" if one.notes else "runs"
