"""The options that several subcommands share, so that each means the same everywhere."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


class LogFormat(StrEnum):
    """For a person, or one JSON object a line."""

    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    """From which level on events are written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def connection_string(value: str | None) -> str | None:
    """Refuse what is no connection string while the option that it came from can be named."""
    if value is None:
        return None
    # Imported here: the help of a command needs no client.
    import psycopg

    from pybroker.connection_string import checked

    try:
        return checked(value)
    except psycopg.ProgrammingError as error:
        raise typer.BadParameter(str(error)) from None


def connection_strings(values: list[str] | None) -> list[str] | None:
    """Refuse the first that is no connection string."""
    for value in values or ():
        connection_string(value)
    return values


def advice_on_passwords(context: typer.Context, urls: list[str]) -> str | None:
    """Say what to do where a password stands in the arguments, for a command that runs for long."""
    from psycopg.conninfo import conninfo_to_dict

    source = context.get_parameter_source("database_url")
    if source is None or source.name != "COMMANDLINE":
        return None
    if not any(conninfo_to_dict(url).get("password") for url in urls):
        return None
    return (
        "Everybody on this host can read the arguments of a process, and so the password in --database-url."
        " Put it into libpq's password file (passfile=FILE in the URL, or PGPASSFILE), or a service file"
        " (service=NAME)."
    )


DatabaseUrl = Annotated[
    str,
    typer.Option(
        "--database-url",
        envvar="PYBROKER_DATABASE_URL",
        metavar="URL",
        callback=connection_string,
        help="The database: postgresql://user@host:port/database, or libpq's key=value form.",
    ),
]

OptionalDatabaseUrl = Annotated[
    str | None,
    typer.Option(
        "--database-url",
        envvar="PYBROKER_DATABASE_URL",
        metavar="URL",
        callback=connection_string,
        help="The database: postgresql://user@host:port/database, or libpq's key=value form.",
    ),
]

DatabaseUrls = Annotated[
    list[str],
    typer.Option(
        "--database-url",
        envvar="PYBROKER_DATABASE_URL",
        metavar="URL",
        callback=connection_strings,
        help="A database to serve; may be given more than once, the first is the home database."
        " In the environment: URLs separated by spaces.",
    ),
]

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]

LogFormatOption = Annotated[
    LogFormat,
    typer.Option(
        "--log-format", envvar="PYBROKER_LOG_FORMAT", help="How events are written to standard error."
    ),
]

LogLevelOption = Annotated[
    LogLevel,
    typer.Option("--log-level", envvar="PYBROKER_LOG_LEVEL", help="From which level on they are written."),
]
