"""Connections and sessions of SQLAlchemy: psycopg's connection in one, in SQLAlchemy's transaction.

A pair of each name, as in concurrency.py. SQLAlchemy is looked at only in programs that have imported it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard, Union

import psycopg
from psycopg.pq import TransactionStatus

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
    from sqlalchemy.orm import Session

AsyncSQLAlchemySource: TypeAlias = Union["AsyncConnection", "AsyncSession"]
SQLAlchemySource: TypeAlias = Union["Connection", "Session"]


def is_sqlalchemy_async(source: object) -> TypeGuard[AsyncSQLAlchemySource]:
    """Return whether it is an AsyncConnection or AsyncSession of SQLAlchemy."""
    if "sqlalchemy.ext.asyncio" not in sys.modules:
        return False
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession  # noqa: PLC0415 - not ours to require

    return isinstance(source, AsyncConnection | AsyncSession)


def is_sqlalchemy(source: object) -> TypeGuard[SQLAlchemySource]:
    """Return whether it is a Connection or Session of SQLAlchemy."""
    if "sqlalchemy" not in sys.modules:
        return False
    from sqlalchemy import Connection  # noqa: PLC0415 - not ours to require
    from sqlalchemy.orm import Session  # noqa: PLC0415

    return isinstance(source, Connection | Session)


async def begun_async(source: AsyncSQLAlchemySource) -> psycopg.AsyncConnection[Any]:
    """Begin SQLAlchemy's transaction, if it has not begun, and return psycopg's connection.

    Raises:
        TypeError: the engine's driver is not psycopg 3.
    """
    from sqlalchemy.ext.asyncio import AsyncSession  # noqa: PLC0415

    connection = await source.connection() if isinstance(source, AsyncSession) else source
    if not connection.in_transaction():
        await connection.begin()
    driver = (await connection.get_raw_connection()).driver_connection
    if not isinstance(driver, psycopg.AsyncConnection):
        raise TypeError(_WRONG_DRIVER)
    if _has_not_begun(driver):
        await driver.execute(_NOTHING)
    return driver


def begun(source: SQLAlchemySource) -> psycopg.Connection[Any]:
    """Begin SQLAlchemy's transaction, if it has not begun, and return psycopg's connection.

    Raises:
        TypeError: the engine's driver is not psycopg 3.
    """
    from sqlalchemy.orm import Session  # noqa: PLC0415

    connection = source.connection() if isinstance(source, Session) else source
    if not connection.in_transaction():
        connection.begin()
    driver = connection.connection.driver_connection
    if not isinstance(driver, psycopg.Connection):
        raise TypeError(_WRONG_DRIVER)
    if _has_not_begun(driver):
        driver.execute(_NOTHING)
    return driver


_WRONG_DRIVER = "The engine's driver is not psycopg 3: its URL must begin with postgresql+psycopg://."

# SQLAlchemy's begin is a note of its own, and psycopg begins with a statement. Without one a transaction
# block of ours would be the outermost, and commit what SQLAlchemy may still roll back.
_NOTHING = ""


def _has_not_begun(driver: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    return not driver.autocommit and driver.info.transaction_status == TransactionStatus.IDLE
