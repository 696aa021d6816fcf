"""A receiver of OTLP over HTTP: the spans that programs and workers of a test have exported."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from tests.patience import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pytest


@dataclass(frozen=True)
class Span:
    """A span as it came; ids are hex, an absent parent is empty."""

    service: str
    name: str
    trace_id: str
    span_id: str
    parent_id: str
    kind: int
    links: tuple[str, ...]
    attributes: dict[str, Any]

    @property
    def context(self) -> str:
        """What its context begins with; OTLP does not tell the flags."""
        return f"00-{self.trace_id}-{self.span_id}"


class Collector:
    """What came, and where to send it."""

    def __init__(self, port: int) -> None:
        self.endpoint = f"http://127.0.0.1:{port}"
        self.spans: list[Span] = []

    def take(self, content: bytes) -> None:
        request = ExportTraceServiceRequest.FromString(content)
        for resource in request.resource_spans:
            service = next(
                (a.value.string_value for a in resource.resource.attributes if a.key == "service.name"), ""
            )
            for scope in resource.scope_spans:
                self.spans += [
                    Span(
                        service,
                        span.name,
                        span.trace_id.hex(),
                        span.span_id.hex(),
                        span.parent_span_id.hex(),
                        span.kind,
                        tuple(link.span_id.hex() for link in span.links),
                        {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in span.attributes},
                    )
                    for span in scope.spans
                ]

    def named(self, name: str, service: str | None = None) -> list[Span]:
        return [span for span in self.spans if span.name == name and service in (None, span.service)]

    def some(self, name: str, service: str | None = None) -> list[Span]:
        """Wait for spans of this name, and return them."""
        until(lambda: self.named(name, service))
        return self.named(name, service)

    def one(self, name: str) -> Span:
        """Wait for the span of this name, and return it."""
        (span,) = self.some(name)
        return span


@contextmanager
def collecting() -> Iterator[Collector]:
    """Run a receiver while the block lasts."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            collector.take(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector = Collector(server.server_address[1])
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield collector
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def provided(
    collector: Collector, patch: pytest.MonkeyPatch, service: str = "program"
) -> Iterator[Callable[..., Any]]:
    """Have this process trace, as a program that set up a provider; its other tests don't. Gives start_as_current_span."""
    provider = TracerProvider(resource=Resource({"service.name": service}), shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"{collector.endpoint}/v1/traces")))
    with patch.context() as patched:
        patched.setattr(trace, "_TRACER_PROVIDER", provider)
        try:
            yield provider.get_tracer("test").start_as_current_span
        finally:
            provider.shutdown()
