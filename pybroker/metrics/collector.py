"""Reads the metrics of some databases, at most every few seconds, however many scrapers there are."""

from __future__ import annotations

import time
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING, Any

import psycopg
from cryptography import x509
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector
from psycopg.rows import dict_row

from pybroker.metrics.catalogue import CERTIFICATES, EXPIRY, SOURCES, UP, Metric, every_metric

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

# Seconds for which what was read is given to other scrapers.
FRESH_FOR = 5.0
_TIMEOUT_MS = 10_000

Sample = tuple[tuple[str, ...], float]


class DatabaseCollector(Collector):
    """Collects what `catalogue` defines from each database, over one connection each.

    A database that can't be read has `pybroker_database_up` 0 and nothing else; it is tried again at the next
    scrape.
    """

    def __init__(self, urls: Sequence[str], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._databases = [_Database(url) for url in urls]
        self._clock = clock
        self._lock = Lock()
        self._read_at: float | None = None
        self._samples: dict[Metric, list[Sample]] = {}

    def describe(self) -> Iterable[Any]:
        """Nothing: the registry need not ask the databases what they have."""
        return ()

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """Give every metric, read now or a few seconds ago."""
        samples = self._fresh()
        for _, metric, labels in every_metric():
            kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            family = kind(f"pybroker_{metric.name}", metric.help, labels=labels)
            for values, number in samples.get(metric, ()):
                family.add_metric(list(values), number)
            yield family

    def away(self) -> Sequence[str]:
        """The names of the databases that can't be read."""
        return [values[0] for values, number in self._fresh()[UP] if not number]

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            for database in self._databases:
                database.close()

    def _fresh(self) -> dict[Metric, list[Sample]]:
        with self._lock:
            now = self._clock()
            if self._read_at is None or now - self._read_at >= FRESH_FOR:
                self._samples = self._read()
                self._read_at = now
            return self._samples

    def _read(self) -> dict[Metric, list[Sample]]:
        samples: dict[Metric, list[Sample]] = {UP: []}
        for database in self._databases:
            try:
                found = list(database.read())
            except psycopg.Error:
                database.close()
                samples[UP].append(((database.name,), 0))
                continue
            samples[UP].append(((database.name,), 1))
            for metric, sample in found:
                samples.setdefault(metric, []).append(sample)
        return samples


class _Database:
    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: psycopg.Connection[dict[str, Any]] | None = None
        self.name = str(psycopg.conninfo.conninfo_to_dict(url).get("dbname") or "postgres")

    def close(self) -> None:
        if self._connection is not None:
            with suppress(psycopg.Error):
                self._connection.close()
        self._connection = None

    def read(self) -> Iterator[tuple[Metric, Sample]]:
        """Read everything.

        Raises:
            psycopg.Error: the database is away, or has no schema broker.
        """
        if self._connection is None:
            self._connection = psycopg.Connection.connect(
                self._url,
                autocommit=True,
                client_encoding="UTF8",
                row_factory=dict_row,
                application_name="pybroker metrics",
                options=f"-c statement_timeout={_TIMEOUT_MS} -c default_transaction_read_only=on",
            )
        for source in SOURCES:
            for row in self._connection.execute(source.query.encode()):
                labels = (self.name, *(str(row[label]) for label in source.labels))
                for metric in source.metrics:
                    if row[metric.column] is not None:
                        yield metric, (labels, float(row[metric.column]))
        for row in self._connection.execute(CERTIFICATES):
            # The database takes a certificate as text; one that can't be read has no date.
            with suppress(ValueError):
                made = x509.load_pem_x509_certificate(row["certificate_pem"].encode())
                yield EXPIRY, ((self.name, row["name"]), made.not_valid_after_utc.timestamp())
