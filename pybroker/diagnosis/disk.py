"""Whether the server's disk has room: every SEND fails without, and the database can't write that down."""

from __future__ import annotations

from typing import Any

import psycopg

from pybroker.diagnosis.findings import Finding

# Where the database's own tables are, not where temporary ones go; not compressed.
_STATEMENTS = (
    b"set local temp_tablespaces = ''",
    b"create temporary table pybroker_room (body bytea) on commit drop",
    b"alter table pg_temp.pybroker_room alter column body set storage external",
    b"insert into pg_temp.pybroker_room values (pg_catalog.decode(pg_catalog.repeat('00', 1048576), 'hex'))",
)


def full(connection: psycopg.Connection[Any]) -> list[Finding]:
    """Take room for a megabyte and give it back; whoever may not write here is told nothing."""
    try:
        with connection.transaction(force_rollback=True):
            for statement in _STATEMENTS:
                connection.execute(statement)
    except psycopg.errors.DiskFull as error:
        return [
            Finding(
                116,
                "error",
                connection.info.dbname,
                f"The server's disk is full: {error.diag.message_primary}",
                "Nothing can be sent or received. Make room there; what was committed is safe.",
            )
        ]
    except psycopg.Error:
        return []
    return []
