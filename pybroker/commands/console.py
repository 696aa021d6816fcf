"""`pybroker console`: pages in a browser that show queues, messages and problems of databases."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pybroker.commands.options import DatabaseUrls, advice_on_passwords
from pybroker.commands.telling import say

_HERE = ("127.0.0.1", "::1", "localhost")
File = Annotated[Path | None, typer.Option(exists=True, dir_okay=False, readable=True)]


def console(
    context: typer.Context,
    *,
    database_url: DatabaseUrls,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="0 takes a free one.")] = 8750,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    write: Annotated[
        bool,
        typer.Option(
            "--write", help="Allow actions: each is asked for, and noted in broker.console_actions."
        ),
    ] = False,
    trace_url: Annotated[
        str | None,
        typer.Option(
            metavar="TEMPLATE", help="Where a tracing system shows {trace_id}, for links to traces."
        ),
    ] = None,
    tls_certificate: File = None,
    tls_key: File = None,
    behind_proxy: Annotated[
        bool, typer.Option("--behind-proxy", help="A proxy on this machine speaks HTTPS with the browsers.")
    ] = False,
) -> None:
    """Show databases in a browser: problems, queues, messages. It changes nothing without --write.

    Who opens it logs in with a role and its password, and sees what this role may see. A URL gives the
    address and the database only. The server must ask that role for a password.

    \b
    Example:
      pybroker console --database-url postgresql://localhost/shop
      pybroker console --database-url postgresql://localhost/shop --trace-url https://traces.example/trace/{trace_id}
    """
    if (tls_certificate is None) != (tls_key is None):
        raise typer.BadParameter("--tls-certificate and --tls-key go together")
    if host not in _HERE and tls_certificate is None and not behind_proxy:
        raise typer.BadParameter(
            f"passwords would cross the network in plain text: for --host {host} give --tls-certificate and"
            " --tls-key, or --behind-proxy",
            param_hint="--host",
        )
    import socket

    import uvicorn

    from pybroker.console import trace_links
    from pybroker.console.accounts import Target
    from pybroker.console.application import application
    from pybroker.console.connections import MOST_WAITING, Connection

    try:
        trace_url = None if trace_url is None else trace_links.checked(trace_url)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--trace-url") from None
    if advice := advice_on_passwords(context, database_url):
        say(advice, err=True)
    targets = tuple(Target.of(number, url) for number, url in enumerate(database_url, start=1))
    is_secure = tls_certificate is not None or behind_proxy
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family)
    except OSError as error:
        raise typer.BadParameter(
            f"{host}:{port} can't be listened on: {error.strerror}; choose another", param_hint="--port"
        ) from None
    configuration = uvicorn.Config(
        application(
            targets,
            is_secure=is_secure,
            # Encryption, or the proxy, knows its own names.
            is_local=host in _HERE and not is_secure,
            may_write=write,
            trace_url=trace_url,
        ),
        http=Connection,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=behind_proxy,
        # A request that was given up for another ends a little later than its connection.
        limit_concurrency=4 * MOST_WAITING,
        timeout_graceful_shutdown=5,
        ssl_certfile=tls_certificate,
        ssl_keyfile=tls_key,
    )
    scheme = "https" if tls_certificate else "http"
    shown = f"[{host}]" if ":" in host else host
    say(f"The console is at {scheme}://{shown}:{listener.getsockname()[1]}")
    uvicorn.Server(configuration).run(sockets=[listener])
