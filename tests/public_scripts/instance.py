"""A server with the databases of a set of scripts, and a worker for them."""

from __future__ import annotations

import re
import subprocess
import time
from collections import Counter
from typing import TYPE_CHECKING, Self

import psycopg

from pybroker.migrations import migrate
from tests import forked

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from types import TracebackType

    from pybroker.embedded import EmbeddedServer

HOME = "home"
# A script with an endless loop is ended.
LIMIT_SECONDS = 200
# Whoever looks waits until nothing has changed for this long; a reply through three servers takes seconds.
QUIET_SECONDS, RESTLESS_SECONDS = 3.0, 30.0
PLACEHOLDER = re.compile(r"<\s*([\w ]+?)\s*,[^,<>]*,([^<>]*)>")
VARIABLE = re.compile(r"\$\((\w+)\)")
FOLDER = re.compile(r"'([A-Za-z]:(?:\\[^'\\]+)*)\\[^'\\]+'")
ON_ITS_WAY = "on its way to "
ENDPOINTS = f"""
select coalesce(s.name, '-') || ' -> ' || e.far_service || ' ' || e.state_desc || case when e.is_initiator then '' else ' (target)' end
from broker.conversation_endpoints e left join broker.services s using (service_id)
where e.far_service not like 'http://schemas.microsoft.com/%'
union all
select rtrim('{ON_ITS_WAY}' || to_service_name || ' ' || left(transmission_status, 5)) from broker.transmission_queue
"""


class Instance:
    """What stands for one SQL Server.

    Args:
        server: where the databases are made, and dropped at the end; the others there are left alone.
        folder: for its keys and the worker's log.
        databases: empty ones, beside the worker's home.
        worker: whether one runs, so that procedures are activated and messages leave.
    """

    def __init__(
        self, server: EmbeddedServer, folder: Path, databases: Sequence[str], *, worker: bool = True
    ) -> None:
        self._server = server
        self._folder = folder
        self._keys = folder / "keys"
        self._databases = (HOME, *databases)
        self._worker: forked.Process | None = None
        self._with_worker = worker
        self._before: tuple[set[str], set[str]] = (set(), set())

    def __enter__(self) -> Self:
        self._keys.mkdir(mode=0o700, parents=True)
        self._before = self._names()
        self._execute(f'create database "{HOME}"')
        migrate(self._server.url(HOME))
        for name in self._databases[1:]:
            self._execute(f'create database "{name}" template "{HOME}"')
            with psycopg.connect(self._server.url(name), autocommit=True) as session:
                session.execute("select broker.alter_broker('NEW_BROKER')")
        if self._with_worker:
            urls = [word for name in self._databases for word in ("--database-url", self._server.url(name))]
            with (self._folder / "worker.log").open("w") as log:
                arguments = ["worker", *urls, "--key-directory", str(self._keys)]
                self._worker = forked.start(arguments, stdout=log, stderr=log)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._worker is not None:
            self._worker.terminate()
            self._worker.wait()
        databases, roles = (now - before for now, before in zip(self._names(), self._before, strict=True))
        for name in databases:
            self._execute(f'drop database "{name}" with (force)')
        for name in roles:
            self._execute(f'drop role "{name}"')

    def run(self, script: Path, default: str, files: Path) -> tuple[int, str]:
        """Run a script by `pybroker tsql run`; return its exit code and all that it shows."""
        text = script.read_text()
        databases = ["--database", f"master={self._server.url(HOME)}"]
        if not default and not re.search(r"^\s*use\s", text, re.IGNORECASE | re.MULTILINE):
            databases = ["--database", f"only={self._server.url(HOME)}"]
        options = [
            "--server",
            self._server.url("postgres"),
            "--allow-drop",
            "--key-directory",
            str(self._keys),
        ]
        for name, value in _definitions(text):
            options += ["--define", f"{name}={value}"]
        for folder in {"C:\\", *FOLDER.findall(text)}:
            options += ["--path", f"{folder}={files}"]
        shown = self._folder / "shown"
        with shown.open("w") as file:
            command = forked.start(
                ["tsql", "run", str(script), *databases, *options], stdout=file, stderr=file
            )
            try:
                code = command.wait(LIMIT_SECONDS)
            except subprocess.TimeoutExpired:
                command.kill()
                command.wait()
                return -1, f"{shown.read_text()}\nended after {LIMIT_SECONDS} seconds"
        return code, shown.read_text()

    def left(self) -> list[str]:
        """What is left of conversations, once nothing changes any more: each kind of row, and how many there are."""
        last, quiet_since = self._look(), time.monotonic()
        gives_up_at = quiet_since + RESTLESS_SECONDS
        # A connection that was refused is tried again some seconds later.
        while time.monotonic() < gives_up_at and (
            ON_ITS_WAY in "".join(last) or time.monotonic() < quiet_since + QUIET_SECONDS
        ):
            time.sleep(0.2)
            if (now := self._look()) != last:
                last, quiet_since = now, time.monotonic()
        return [f"{count} {row}" for row, count in sorted(Counter(last).items())]

    def _look(self) -> list[str]:
        return [row for name in sorted(self._names()[0] - self._before[0]) for row in self._rows(name)]

    def _rows(self, name: str) -> Iterator[str]:
        with psycopg.connect(self._server.url(name), autocommit=True) as session:
            if session.execute("select to_regclass('broker.service_queues') is null").fetchone() == (True,):
                return
            yield from (row for (row,) in session.execute(ENDPOINTS).fetchall())
            queues = session.execute("select schema_id::text, name from broker.service_queues").fetchall()
            for schema, queue in queues:
                rows = session.execute(f'select message_type_name, status from "{schema}"."{queue}"'.encode())
                yield from (f"{queue}: {kind} {status}" for kind, status in rows.fetchall())

    def _names(self) -> tuple[set[str], set[str]]:
        with psycopg.connect(self._server.url("postgres")) as session:
            databases = session.execute("select datname from pg_database where not datistemplate").fetchall()
            roles = session.execute("select rolname from pg_roles").fetchall()
        return {name for (name,) in databases}, {name for (name,) in roles}

    def _execute(self, statement: str) -> None:
        with psycopg.connect(self._server.url("postgres"), autocommit=True) as session:
            session.execute(statement.encode())


def _definitions(text: str) -> Iterator[tuple[str, str]]:
    for name in dict.fromkeys(VARIABLE.findall(text)):
        yield name, "x"
    for name, default in dict(PLACEHOLDER.findall(text)).items():
        yield name, default.strip() or "x"
