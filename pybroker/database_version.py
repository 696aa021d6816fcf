"""Which version of the package a database was last migrated with: the comment of schema broker says it."""

from __future__ import annotations

import re
from importlib.metadata import version

COMMENT = "select pg_catalog.obj_description(pg_catalog.to_regnamespace('broker')::oid, 'pg_namespace')"
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


def _parts(stated: re.Match[str]) -> tuple[int, ...]:
    return tuple(int(part) for part in stated[1].split("."))
