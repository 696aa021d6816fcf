"""`pybroker activate`: start command lines when the event notifications of queues ask for readers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pybroker.commands.options import (
    DatabaseUrl,
    LogFormat,
    LogFormatOption,
    LogLevel,
    LogLevelOption,
    advice_on_passwords,
)
from pybroker.commands.worker import until_signalled


def activate(
    context: typer.Context,
    *,
    database_url: DatabaseUrl,
    config: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="TOML: the notification queue, and a command line for each queue.",
        ),
    ],
    grace: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", min=0, help="How long the command lines may take to end after SIGTERM."
        ),
    ] = 30.0,
    log_format: LogFormatOption = LogFormat.TEXT,
    log_level: LogLevelOption = LogLevel.INFO,
) -> None:
    """Start command lines for queues with event notifications (external activation).

    Each QUEUE_ACTIVATION event starts one more process of the queue's command line, up to its maximum; a
    minimum is kept running. A command that fails, or does not exist, is tried again after a pause that
    doubles from 1 to 60 seconds, while the others go on. SIGTERM or Ctrl-C ends the processes in order, a
    second one at once.

    \b
    Example:
      pybroker activate --database-url postgresql://activator@localhost/shop --config activate.toml
    with activate.toml:
      notification_queue = "notifications"
      [[application]]
      queue = "incoming"
      command = ["python", "read_incoming.py"]
      maximum_instances = 4

    \b
    Exit codes:
      0  stopped in order
      1  the database is unreachable, or the notification queue can't be read; or stopped at once
      2  wrong usage, or a configuration that can't be read
    """
    # Imported when it runs: the client and the event loop take longer to import than the help to print.
    import asyncio

    import structlog

    from pybroker.workers import external_activation, log_setup

    try:
        configuration = external_activation.read(config)
    except external_activation.ConfigurationError as error:
        raise typer.BadParameter(str(error), param_hint="--config") from None
    log_setup.set_up(log_format.value, log_level.value)
    if advice := advice_on_passwords(context, [database_url]):
        structlog.get_logger().warning("password_in_arguments", advice=advice)

    async def serve() -> None:
        stop = asyncio.Event()
        await until_signalled(external_activation.run(database_url, configuration, stop, grace=grace), stop)

    try:
        asyncio.run(serve())
    except asyncio.CancelledError:
        raise typer.Exit(1) from None
