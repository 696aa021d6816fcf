"""The HTTP endpoint: `/metrics`, `/healthz` and `/readyz`, in threads of its own."""

from __future__ import annotations

import asyncio
import socket
from contextlib import contextmanager
from socketserver import ThreadingMixIn
from threading import Thread
from typing import TYPE_CHECKING
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector, make_wsgi_app

from pybroker.metrics.collector import DatabaseCollector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from wsgiref.types import StartResponse, WSGIEnvironment


# An event loop that doesn't get to a task in this time does nothing else either.
_SECONDS_TO_TURN = 5.0


def turning(loop: asyncio.AbstractEventLoop) -> Callable[[], bool]:
    """Return what asks from another thread whether an event loop turns."""

    def is_alive() -> bool:
        nothing = asyncio.sleep(0)
        try:
            asyncio.run_coroutine_threadsafe(nothing, loop).result(timeout=_SECONDS_TO_TURN)
        except TimeoutError:
            return False
        except RuntimeError:
            # The loop is closed, and will not run it.
            nothing.close()
            return False
        return True

    return is_alive


@contextmanager
def serving(urls: Sequence[str], address: str, port: int, is_alive: Callable[[], bool]) -> Iterator[int]:
    """Serve the metrics of these databases while the block lasts.

    Args:
        urls: the databases.
        address: the IP address to listen on.
        port: the TCP port; 0 is a free one.
        is_alive: whether the process does its work, for `/healthz`; asked from another thread.

    Yields:
        The port.

    Raises:
        OSError: the address can't be listened on.
    """
    collector = DatabaseCollector(urls)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    metrics = make_wsgi_app(registry)

    def application(environment: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        path = environment.get("PATH_INFO", "")
        if path == "/metrics":
            exposed: Iterable[bytes] = metrics(environment, start)
            return exposed
        if path == "/healthz":
            return _answer(start, [] if is_alive() else ["the event loop does not turn"])
        if path == "/readyz":
            return _answer(start, [f"database {name} can't be read" for name in collector.away()])
        start("404 Not Found", [("Content-Type", "text/plain; charset=utf-8")])
        return [b"there are /metrics, /healthz and /readyz\n"]

    server = make_server(address, port, application, _Server.for_address(address), _Quiet)
    Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        collector.close()


def _answer(start: StartResponse, problems: Sequence[str]) -> Iterable[bytes]:
    status = "503 Service Unavailable" if problems else "200 OK"
    start(status, [("Content-Type", "text/plain; charset=utf-8")])
    return [("\n".join(problems) or "ok").encode() + b"\n"]


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    # Else one client that says nothing would be waited for at the end.
    block_on_close = False

    @classmethod
    def for_address(cls, address: str) -> type[_Server]:
        """The server for IPv4, or for IPv6."""
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        return type("_Server", (cls,), {"address_family": family})


class _Quiet(WSGIRequestHandler):
    # A client that sends nothing keeps a thread for so long.
    timeout = 10

    def log_message(self, *_: object) -> None:
        """Say nothing: scrapes are no events."""
