"""One served database: its pool of connections, and what it says of itself."""

from __future__ import annotations

import asyncio
import shlex
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

import psycopg
import structlog
from psycopg import AsyncConnection
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus
from psycopg.rows import class_row, scalar_row
from psycopg_pool import AsyncConnectionPool

from pybroker import database_version
from pybroker.connection_string import checked
from pybroker.printable import one_line
from pybroker.workers.clock import Clock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from datetime import datetime
    from types import TracebackType
    from uuid import UUID

    from structlog.typing import FilteringBoundLogger

WORKER_NAME = "pybroker worker"

# A dead server or a cut network is noticed within a minute instead of the two hours of the kernel's defaults.
# What the URL itself says goes first.
_NETWORK = {
    "connect_timeout": 10,
    "keepalives": 1,
    "keepalives_idle": 20,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 45_000,
}
_ATTEMPTS = 4
_BETWEEN_ATTEMPTS = 1.0
_APPLICATION_NAME_BYTES = 63
# A default that is meant for people's sessions would end the worker, or the same work again and again, or
# change what it reads. Each is set, whatever it is now, as a default may change under a session. Limits of
# time are what the URL says, if it does. What waits for more than this disk at COMMIT still does.
_SETTINGS = """
select pg_catalog.set_config(s.name, coalesce(w.setting, nullif(s.setting, 'off'), 'on'), false)
from (
  values
    ('statement_timeout', '0'),
    ('lock_timeout', '0'),
    ('transaction_timeout', '0'),
    ('idle_in_transaction_session_timeout', '0'),
    ('idle_session_timeout', '0'),
    ('default_transaction_isolation', 'read committed'),
    ('default_transaction_read_only', 'off'),
    ('default_transaction_deferrable', 'off'),
    ('standard_conforming_strings', 'on'),
    ('array_nulls', 'on'),
    ('client_encoding', 'UTF8'),
    ('synchronous_commit', null)
) w (name, setting)
join pg_catalog.pg_settings s on s.name = w.name
where s.source <> 'client' or s.name not like '%timeout'
"""
# Whoever puts a database back to an earlier state restarts its server, or makes it anew.
_INCARNATION = """
select pg_catalog.concat_ws(
  ' ', d.oid, pg_catalog.date_part('epoch', pg_catalog.pg_postmaster_start_time())
)
from pg_catalog.pg_database d
where d.datname = pg_catalog.current_database()
"""
# Seconds. No work of one loan takes as long. A proxy whose other side is gone may still acknowledge what it
# is sent, so that TCP's own limits notice nothing.
LONGEST_LOAN = 300.0

logger: FilteringBoundLogger = structlog.get_logger()


class ServingError(Exception):
    """A database can't be served; the text says why and what to do, and holds no password."""


class UnreachableError(ServingError):
    """No session can be had; a while later there may be one."""


@dataclass(frozen=True)
class Greeting:
    """What a database says of itself.

    Attributes:
        service_broker_guid: the database as a broker instance; `alter_broker('NEW_BROKER')` changes it.
        has_xml_parser: whether PostgreSQL was built with libxml; without it the worker checks XML.
        is_broker_enabled: whether messages are sent, delivered and activated at all.
        broker_problem: why they are not: the broker was turned off, or the database is a copy.
        is_in_recovery: whether the server is a standby, where nothing can be written.
        server_started_at: when the server was started.
    """

    service_broker_guid: UUID
    has_xml_parser: bool
    is_broker_enabled: bool
    broker_problem: str | None
    is_in_recovery: bool = False
    # A restart alone is no change of the broker.
    server_started_at: datetime | None = field(default=None, compare=False)


class Session(AsyncConnection[Any]):
    """A session of the pool.

    Attributes:
        incarnation: of the database. Another one may have forgotten what this one said, and have given the
            same numbers to something else.
    """

    incarnation = ""


class Database:
    """A database that the worker serves.

    It survives a restart of its server: calls fail with `psycopg.OperationalError` while the server is away,
    and work again once it is back.
    """

    def __init__(self, url: str, clock: Clock | None = None, *, max_connections: int = 16) -> None:
        """Prepare, without connecting.

        Args:
            url: a libpq URL or connection string.
            clock: what waits between the first attempts to connect.
            max_connections: the pool's limit; the sessions of queue readers come on top.

        Raises:
            ServingError: the URL can't be read; the text quotes nothing of it.
        """
        try:
            self.url = checked(url)
        except psycopg.ProgrammingError as error:
            raise ServingError(str(error)) from None
        self._clock = clock or Clock()
        given = conninfo_to_dict(url)
        self._name = str(given.get("dbname") or "")
        self._conninfo = make_conninfo(
            url,
            client_encoding="UTF8",
            **{name: value for name, value in _NETWORK.items() if name not in given},
        )
        self._greeting: Greeting | None = None
        self._pool = AsyncConnectionPool(
            make_conninfo(self._conninfo, application_name=WORKER_NAME),
            connection_class=Session,
            kwargs={"autocommit": False, "prepare_threshold": 0},
            configure=_configure,
            min_size=1,
            max_size=max_connections,
            open=False,
            timeout=5.0,
            # The pool's pauses double up to this; giving up early, it tries anew for the next caller.
            reconnect_timeout=5.0,
            name=self._name,
        )

    @property
    def name(self) -> str:
        """The database's name; before `open`, as far as the URL tells."""
        return self._name

    @property
    def greeting(self) -> Greeting:
        """What the database said when it was last asked.

        Raises:
            RuntimeError: the database was never opened.
        """
        if self._greeting is None:
            raise RuntimeError(f"the database {self.name} was not opened")
        return self._greeting

    @property
    def address(self) -> str:
        """The URL without its password and options, for people."""
        return shown(self.url)

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Connect, and read the greeting; an unreachable server is tried for a few seconds.

        Raises:
            ServingError: unreachable, not migrated, or the role is no worker's.
        """
        attempt = 1
        while True:
            try:
                # Not from the pool, which would answer every cause with the same timeout.
                session = await self.open_own_session(WORKER_NAME)
                break
            except psycopg.OperationalError as error:
                if attempt == _ATTEMPTS:
                    raise UnreachableError(
                        f"cannot reach the database {self.address}: {one_line(error)}. "
                        "Check that the server runs, and host, port, database, role and password of the URL"
                    ) from error
                logger.warning("database_unreachable", database=self.address, error=one_line(error))
            attempt += 1
            await self._clock.sleep(_BETWEEN_ATTEMPTS)
        async with session:
            self._name = session.info.dbname
            self._greeting = await self._ask(session)
            wanted = await _newer_version(session)
            if wanted is not None:
                # It goes on: an upgrade migrates the database first, while older workers still serve it.
                logger.warning(
                    "database_is_newer", database=self.address, advice=database_version.advice(wanted)
                )
            for problem, mend in await _rights(session):
                logger.warning("stray_rights", database=self.address, problem=problem, mend=mend)
        await self._pool.open()

    async def close(self) -> None:
        """Close every connection of the pool; sessions of readers are their openers'."""
        await self._pool.close()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Session]:
        """Lend a connection: the block is one READ COMMITTED transaction, committed unless it raises.

        Raises:
            psycopg.OperationalError: the server is away, all connections stayed busy for 5 seconds, or the
                block took five minutes.
        """
        lost = False
        limit = asyncio.timeout(LONGEST_LOAN)
        try:
            async with self._pool.connection() as connection:
                try:
                    async with limit:
                        yield connection
                except TimeoutError:
                    if not limit.expired():
                        raise
                    await connection.close()
                    raise psycopg.OperationalError(
                        f"{self.address}: no answer within {LONGEST_LOAN:g} s; connecting anew"
                    ) from None
                except psycopg.Error:
                    lost = connection.broken
                    # After an upgrade its prepared statements may stand for functions that are no more, and
                    # would fail for ever; a new connection costs less than finding out.
                    await connection.close()
                    raise
        finally:
            if limit.expired():
                # The others most likely answer as little, and asking them would take as long.
                await self._pool.drain()
            elif lost:
                # The pool's others were most likely lost too, and each would cost somebody a failure.
                await self._pool.check()

    @asynccontextmanager
    async def statement(self) -> AsyncIterator[Session]:
        """Lend a connection on which each statement is a READ COMMITTED transaction of its own.

        One statement needs no BEGIN and no COMMIT, which are two more ways to the server and back.

        Raises:
            psycopg.OperationalError: as `connection` does.
        """
        async with self.connection() as connection:
            await connection.set_autocommit(True)
            try:
                yield connection
            finally:
                if connection.info.transaction_status == TransactionStatus.IDLE:
                    await connection.set_autocommit(False)
                else:
                    await connection.close()

    async def open_own_session(self, application_name: str) -> AsyncConnection[Any]:
        """Open a session for the worker's own work, with what it needs set, as those of the pool have it.

        Raises:
            psycopg.OperationalError: the server is away or refuses.
        """
        session = await self.open_session(application_name)
        await session.execute(_SETTINGS)
        return session

    async def open_session(self, application_name: str, login: str | None = None) -> AsyncConnection[Any]:
        """Open a connection outside of the pool, in autocommit mode and without prepared statements.

        It has the defaults that server, database and role give it.

        Args:
            application_name: as which it is seen.
            login: another role to log in as than the URL's; its password is in libpq's password file.

        Raises:
            psycopg.OperationalError: the server is away or refuses.
        """
        name = application_name.encode()[:_APPLICATION_NAME_BYTES].decode(errors="ignore")
        conninfo = self._conninfo
        if login is not None:
            given = conninfo_to_dict(conninfo)
            # It is another role's.
            given.pop("password", None)
            conninfo = make_conninfo("", **given | {"user": login})
        return await AsyncConnection.connect(
            conninfo, autocommit=True, prepare_threshold=None, application_name=name
        )

    async def renew_greeting(self) -> None:
        """Ask again: `alter_broker` changes the answer.

        Raises:
            ServingError: the database is no longer migrated, or the role no longer a worker's.
        """
        async with self.statement() as connection:
            greeting = await self._ask(connection)
        if greeting != self._greeting:
            logger.info(
                "broker_changed",
                database=self.name,
                service_broker_guid=str(greeting.service_broker_guid),
                is_broker_enabled=greeting.is_broker_enabled,
                is_in_recovery=greeting.is_in_recovery,
            )
        self._greeting = greeting

    async def _ask(self, connection: AsyncConnection[Any]) -> Greeting:
        try:
            # In binary, since the role or the database may have another DateStyle than the driver reads.
            async with connection.cursor(row_factory=class_row(Greeting), binary=True) as cursor:
                await cursor.execute(
                    "select service_broker_guid, has_xml_parser, is_broker_enabled, broker_problem,"
                    " is_in_recovery, server_started_at"
                    " from broker_private.worker_greeting()"
                )
                greeting = await cursor.fetchone()
        except (psycopg.errors.InvalidSchemaName, psycopg.errors.UndefinedFunction) as error:
            # A transaction that has failed answers nothing more.
            wanted = await _newer_version(connection) if connection.autocommit else None
            if wanted is not None:
                raise ServingError(f"{self.address}: {database_version.advice(wanted)}") from error
            raise ServingError(
                f"the database {self.address} holds no Service Broker, or one older than this worker. "
                f"Run: pybroker migrate --database-url {_as_owner(self.url)}"
            ) from error
        except psycopg.errors.InsufficientPrivilege as error:
            role = connection.info.user
            handed_over = await _handed_over(connection) if connection.autocommit else ""
            raise ServingError(
                f'the role "{role}" has no right to run a worker on the database {self.address}. Run, as the '
                f"owner of the database: pybroker migrate --database-url {_as_owner(self.url)} "
                f"--worker-role {shlex.quote(role)}{handed_over}"
            ) from error
        if greeting is None:
            raise ServingError(
                f"the database {self.address} has the tables of pybroker and none of their rows, as pg_dump "
                f"--schema-only leaves it. Run: pybroker migrate --database-url {_as_owner(self.url)}"
            )
        return greeting


async def _rights(connection: AsyncConnection[Any]) -> list[tuple[str, str]]:
    """Return what is wrong with rights on the broker's objects, each with the statement that mends it."""
    try:
        found = await connection.execute(
            "select f ->> 'problem', f ->> 'mend' from broker_private.rights_findings() f"
        )
    except psycopg.errors.UndefinedFunction:
        # An upgrade of the database brings it.
        return []
    return await found.fetchall()


async def _handed_over(connection: AsyncConnection[Any]) -> str:
    """Say how the schemas follow the database, if it belongs to this role and they don't."""
    cursor = await connection.execute(
        f"{database_version.STRANGER} and pg_catalog.pg_has_role('pg_database_owner', 'USAGE')".encode()
    )
    found = await cursor.fetchone()
    return "" if found is None else f". {database_version.handed_over(*found)}"


async def _newer_version(connection: AsyncConnection[Any]) -> str | None:
    """Return the version that migrated the database, if it is newer than this package."""
    async with connection.cursor(row_factory=scalar_row) as cursor:
        await cursor.execute(database_version.COMMENT.encode())
        return database_version.newer(await cursor.fetchone())


def shown(url: str) -> str:
    """Return a connection string as a URL of role, host, port and database only."""
    given = conninfo_to_dict(url)
    role = f"{quote(str(given['user']), safe='')}@" if given.get("user") else ""
    database = quote(str(given.get("dbname") or ""), safe="")
    host, port = str(given.get("host") or given.get("hostaddr") or ""), given.get("port")
    if host.startswith(("/", "@")):
        return f"postgresql://{role}/{database}?host={host}" + (f"&port={port}" if port else "")
    return f"postgresql://{role}{host}" + (f":{port}" if port else "") + f"/{database}"


def _as_owner(url: str) -> str:
    given = conninfo_to_dict(url)
    given["user"] = "OWNER"
    return shlex.quote(shown(make_conninfo("", **given)))


async def _configure(connection: Session) -> None:
    # In a transaction the shortest of the limits could end the session before they are lifted.
    await connection.set_autocommit(True)
    await connection.execute(_SETTINGS, prepare=False)
    (connection.incarnation,) = await anext(await connection.execute(_INCARNATION, prepare=False))
    await connection.set_autocommit(False)
