"""Which version of the package a database was last migrated with: the comment of schema broker says it."""

from __future__ import annotations

import re
from importlib.metadata import version

from psycopg import sql

COMMENT = "select pg_catalog.obj_description(pg_catalog.to_regnamespace('broker')::oid, 'pg_namespace')"
# Who has the schema, as a role that has not the owner's rights sees it; no row for one that has them.
STRANGER = """
select pg_catalog.pg_get_userbyid(n.nspowner)::text, current_user::text
from pg_catalog.pg_namespace n
where n.nspname = 'broker_private' and not pg_catalog.pg_has_role(n.nspowner, 'USAGE')
"""
_STATED = re.compile(r"pybroker (\d+(?:\.\d+)*)")


def comment() -> str:
    """Return the comment that a migration by this package leaves."""
    return f"pybroker {version('pybroker')}: the functions and views for everybody"


def newer(text: str | None) -> str | None:
    """Return the version that a comment states, if it is newer than this package; else None."""
    stated = _STATED.match(text or "")
    own = _STATED.match(comment())
    if stated is None or own is None or _parts(stated) <= _parts(own):
        return None
    return stated[1]


def advice(wanted: str) -> str:
    """Say what to install."""
    return (
        f"The database was migrated with pybroker {wanted}, and this is {version('pybroker')}."
        f" Run: pip install 'pybroker>={wanted}'"
    )


def handed_over(owner: str, role: str) -> str:
    """Say how the schemas follow a database that was given to another role."""
    old, new = (sql.Identifier(one).as_string(None) for one in (owner, role))
    return f"If the database was given to {new}, a superuser runs in it: REASSIGN OWNED BY {old} TO {new}."


def _parts(stated: re.Match[str]) -> tuple[int, ...]:
    return tuple(int(part) for part in stated[1].split("."))
