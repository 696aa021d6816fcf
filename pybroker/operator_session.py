"""The session in which a command reads what an operator asks for."""

from __future__ import annotations

from typing import Any

import psycopg


def opened(url: str, application_name: str, *, connect_timeout: int | None = None) -> psycopg.Connection[Any]:
    """Connect in autocommit mode, and have dates written as ISO.

    The driver reads dates in no other form, and role or database may have another as default.

    Raises:
        psycopg.OperationalError: the database can't be reached.
    """
    connection = psycopg.connect(
        url, autocommit=True, connect_timeout=connect_timeout, application_name=application_name
    )
    connection.execute("set datestyle = 'ISO'")
    return connection
