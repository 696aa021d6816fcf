"""`pybroker migrate`: install the broker in a database, or bring it to this version."""

from __future__ import annotations

from typing import Annotated

import typer

from pybroker.commands.options import Json, OptionalDatabaseUrl
from pybroker.commands.telling import say, say_json, say_text


def migrate(
    *,
    database_url: OptionalDatabaseUrl = None,
    sql: Annotated[
        bool,
        typer.Option("--sql", help="Print the SQL of a fresh installation, and touch no database."),
    ] = False,
    worker_role: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ROLE",
            help="A role that `pybroker worker` connects as; may be given more than once.",
        ),
    ] = None,
    no_worker_role: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ROLE",
            help="A worker role that is none any more: it loses its rights; may be given more than once.",
        ),
    ] = None,
    new_broker: Annotated[
        bool,
        typer.Option(
            "--new-broker",
            help="In a copy of a database: give it an identity of its own, without the copied conversations.",
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Install Service Broker in a database, or bring it to this version.

    Safe to repeat: a database that is up to date stays as it is.

    \b
    Example:
      pybroker migrate --database-url postgresql://localhost/shop --worker-role broker_worker
      pybroker migrate --database-url postgresql://localhost/shop --no-worker-role former_worker
      pybroker migrate --database-url postgresql://localhost/copied_from_template --new-broker
      pybroker migrate --sql > install.sql
    """
    # Imported when it runs: Alembic takes longer to import than the help to print.
    from pybroker import migrations

    worker_roles, former_worker_roles = worker_role or [], no_worker_role or []
    if sql:
        if json or former_worker_roles:
            raise typer.BadParameter(
                "it prints the SQL of a fresh installation: leave --json and --no-worker-role out",
                param_hint="--sql",
            )
        say_text(migrations.offline_sql(worker_roles=worker_roles))
        return
    if database_url is None:
        raise typer.BadParameter(
            "give the database, or set PYBROKER_DATABASE_URL", param_hint="--database-url"
        )
    result = migrations.migrate(
        database_url,
        worker_roles=worker_roles,
        former_worker_roles=former_worker_roles,
        new_broker=new_broker,
    )
    if json:
        say_json(
            {
                "previous": result.previous,
                "current": result.current,
                "applied_files": result.applied_files,
                "broker_problem": result.broker_problem,
                "warnings": result.warnings,
            }
        )
    elif result.previous == result.current and not result.applied_files:
        say(f"Already at version {result.current}: nothing to do.")
    elif result.previous is None:
        say(f"Installed version {result.current} ({result.applied_files} files).")
    elif result.previous == result.current:
        say(f"Renewed version {result.current} ({result.applied_files} files).")
    else:
        say(f"Upgraded from version {result.previous} to {result.current} ({result.applied_files} files).")
    if not json:
        for warning in result.warnings:
            say(warning, err=True)
    if result.broker_problem is not None and not json:
        say(result.broker_problem, err=True)
