"""The session in which a command reads what an operator asks for."""

from __future__ import annotations

from typing import Any

import psycopg

from pybroker.errors import broker_errors, emptied_error


def opened(url: str, application_name: str, *, connect_timeout: int | None = None) -> psycopg.Connection[Any]:
    """Connect in autocommit mode, and have dates written as ISO.

    The driver reads dates in no other form, and role or database may have another as default.

    Raises:
        psycopg.OperationalError: the database can't be reached.
    """
    connection = psycopg.connect(
        url,
        autocommit=True,
        client_encoding="UTF8",
        connect_timeout=connect_timeout,
        application_name=application_name,
    )
    connection.execute("set datestyle = 'ISO'")
    return connection


def broker_session(url: str, application_name: str, *, autocommit: bool = True) -> psycopg.Connection[Any]:
    """Connect as `opened` does, to a database that has a broker.

    Raises:
        psycopg.OperationalError: the database can't be reached.
        NotMigratedError: it has no broker, or one without the rows that migrations write.
    """
    connection = opened(url, application_name)
    try:
        _require_broker(connection)
    except BaseException:
        connection.close()
        raise
    connection.autocommit = autocommit
    return connection


def _require_broker(connection: psycopg.Connection[Any]) -> None:
    with broker_errors():
        has_broker = connection.execute("select from broker.databases").rowcount == 1
    if not has_broker:
        raise emptied_error()
