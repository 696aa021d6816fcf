"""`pybroker worker`: serve databases until told to stop."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Annotated

import typer

from pybroker.commands.options import (
    DatabaseUrls,
    LogFormat,
    LogFormatOption,
    LogLevel,
    LogLevelOption,
    advice_on_passwords,
)

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator
    from typing import Any

_SECONDS_FOR_LAST_SPANS = 2.0


def worker(
    context: typer.Context,
    *,
    database_url: DatabaseUrls,
    key_directory: Annotated[
        Path | None,
        typer.Option(
            envvar="PYBROKER_KEY_DIRECTORY",
            metavar="DIRECTORY",
            exists=True,
            file_okay=False,
            help="Where the private keys of the databases and of the endpoint are.",
        ),
    ] = None,
    login: Annotated[
        list[str] | None,
        typer.Option(
            envvar="PYBROKER_LOGIN",
            metavar="ROLE",
            help="A role that the worker logs in as to run the procedures of queues with EXECUTE AS ROLE, so"
            " that they can't RESET ROLE; may be given more than once. It has the password of libpq's"
            " password file. In the environment: roles separated by spaces.",
        ),
    ] = None,
    grace: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            min=0,
            help="How long running procedures are waited for at the end; then the server goes on with them.",
        ),
    ] = 30.0,
    resend_after: Annotated[
        float,
        typer.Option(
            envvar="PYBROKER_RESEND_AFTER",
            metavar="SECONDS",
            min=0.01,
            max=3600,
            help="When messages that were sent and not acknowledged are sent again; each further attempt for"
            " the same dialog waits twice as long, up to 16 times this.",
        ),
    ] = 4.0,
    reconnect_after: Annotated[
        float,
        typer.Option(
            envvar="PYBROKER_RECONNECT_AFTER",
            metavar="SECONDS",
            min=0.05,
            help="How long a far broker is not called after a connection to it was lost.",
        ),
    ] = 15.0,
    retry_connect_after: Annotated[
        float,
        typer.Option(
            envvar="PYBROKER_RETRY_CONNECT_AFTER",
            metavar="SECONDS",
            min=0.05,
            help="How long a far broker is not called after an attempt to connect to it failed.",
        ),
    ] = 60.0,
    probe_after: Annotated[
        float,
        typer.Option(
            envvar="PYBROKER_PROBE_AFTER",
            metavar="SECONDS",
            min=0.1,
            help="How often the far sides of open dialogs are asked whether both sides remember the same;"
            " after a restart they are asked at once.",
        ),
    ] = 3600.0,
    linger: Annotated[
        float,
        typer.Option(
            envvar="PYBROKER_LINGER",
            metavar="SECONDS",
            min=0,
            max=10,
            help="How long a message waits at most so that others leave with it, while they flow; 0 is not"
            " at all. The first one after idleness leaves at once.",
        ),
    ] = 0.1,
    wait: Annotated[
        bool,
        typer.Option(
            "--wait",
            envvar="PYBROKER_WAIT",
            help="Keep trying for a database that is away at the start, and say so each time.",
        ),
    ] = False,
    heartbeat_file: Annotated[
        Path | None,
        typer.Option(
            envvar="PYBROKER_HEARTBEAT_FILE",
            metavar="FILE",
            dir_okay=False,
            help="A file that is touched every 5 seconds while the worker serves, for health checks.",
        ),
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            envvar="PYBROKER_METRICS_PORT",
            metavar="PORT",
            min=0,
            max=65535,
            help="Serve /metrics for Prometheus, /healthz and /readyz here. Needs the extra telemetry.",
        ),
    ] = None,
    metrics_address: Annotated[
        str,
        typer.Option(
            envvar="PYBROKER_METRICS_ADDRESS",
            metavar="ADDRESS",
            help="Where it listens for that. Whoever reaches it reads names of queues and certificates.",
        ),
    ] = "127.0.0.1",
    traces: Annotated[
        bool,
        typer.Option(
            "--traces",
            envvar="PYBROKER_TRACES",
            help="Let messages keep their trace contexts between databases, and make OpenTelemetry spans of"
            " transport and activation; opentelemetry-sdk exports them. Needs the extra telemetry.",
        ),
    ] = False,
    log_format: LogFormatOption = LogFormat.TEXT,
    log_level: LogLevelOption = LogLevel.INFO,
) -> None:
    """Serve databases: activation, timers and transport.

    The first database is the home database: the endpoint and its rights live there. When all databases
    are reached, the event worker_ready is written. SIGTERM or Ctrl-C ends the worker in order, a second
    one at once.

    \b
    Example:
      pybroker worker --database-url postgresql://worker@localhost/shop \\
        --database-url postgresql://worker@localhost/warehouse --key-directory /etc/pybroker/keys

    \b
    Exit codes:
      0  stopped in order
      1  cannot serve: a database is unreachable, not migrated, or the role lacks the rights;
         or stopped at once
      2  wrong usage
    """
    # Imported when it runs: the client and the event loop take longer to import than the help to print.
    import asyncio

    import structlog

    from pybroker.workers import log_setup, supervisor
    from pybroker.workers.database import ServingError
    from pybroker.workers.transport.retry_schedule import Pace

    log_setup.set_up(log_format.value, log_level.value)
    if advice := advice_on_passwords(context, database_url):
        structlog.get_logger().warning("password_in_arguments", advice=advice)

    pace = Pace(
        resend_after=resend_after,
        reconnect_after=reconnect_after,
        retry_connect_after=retry_connect_after,
        probe_after=probe_after,
        linger=linger,
    )

    async def serve() -> None:
        stop = asyncio.Event()
        with exported(traces), measured(database_url, metrics_address, metrics_port):
            serving = supervisor.run(
                database_url,
                key_directory,
                stop,
                grace=grace,
                pace=pace,
                heartbeat_file=heartbeat_file,
                waits=wait,
                logins=login or (),
                traces=traces,
            )
            await until_signalled(serving, stop)

    try:
        asyncio.run(serve())
    except ServingError as error:
        structlog.get_logger().error("worker_cannot_serve", error=str(error))
        raise typer.Exit(1) from None
    except asyncio.CancelledError:
        raise typer.Exit(1) from None


@contextmanager
def exported(wanted: bool) -> Iterator[None]:
    """Export spans while the block lasts, as OTEL_... says; where a provider is set up, leave it to that."""
    if not wanted:
        yield
        return
    import structlog
    from opentelemetry import trace

    from pybroker import tracing

    if tracing.is_on():
        yield
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ModuleNotFoundError as error:
        structlog.get_logger().warning(
            "spans_not_exported",
            reason=f"{error.name} is not installed; messages keep their contexts",
            hint="pip install opentelemetry-sdk opentelemetry-exporter-otlp-proto-http",
        )
        yield
        return
    named = Resource({SERVICE_NAME: "pybroker worker"}).merge(OTELResourceDetector().detect())
    provider = TracerProvider(resource=named, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    try:
        yield
    finally:
        # A collector that says nothing would be waited for longer than an orchestrator waits for the worker.
        last = Thread(target=provider.shutdown, daemon=True)
        last.start()
        last.join(_SECONDS_FOR_LAST_SPANS)


@contextmanager
def measured(urls: list[str], address: str, port: int | None) -> Iterator[None]:
    """Serve metrics while the block lasts, if a port is given; healthy is whose event loop turns."""
    if port is None:
        yield
        return
    import asyncio

    import structlog

    from pybroker.metrics import endpoint

    is_alive = endpoint.turning(asyncio.get_running_loop())
    with ExitStack() as opened:
        try:
            listening = opened.enter_context(endpoint.serving(urls, address, port, is_alive))
        except OSError as error:
            raise typer.BadParameter(
                f"{address}:{port}: {error.strerror}", param_hint="--metrics-port"
            ) from None
        structlog.get_logger().info("metrics_ready", address=address, port=listening)
        yield


async def until_signalled(serving: Coroutine[Any, Any, None], stop: Any) -> None:
    """Run `serving`; the first SIGTERM or SIGINT sets `stop`, the second cancels."""
    import asyncio
    import signal

    task = asyncio.ensure_future(serving)

    def signalled() -> None:
        if stop.is_set():
            task.cancel()
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signalled)
    await task
