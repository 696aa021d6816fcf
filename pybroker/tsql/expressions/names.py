"""Names as PostgreSQL writes them: folded, and quoted where they must be."""

from __future__ import annotations

import re

_PLAIN = re.compile(r"[a-z_][a-z0-9_]*\Z")
# What PostgreSQL reserves, and what PL/pgSQL reads as its own or reads otherwise in a list of columns.
_RESERVED = frozenset(
    """
    all analyse analyze and any array as asc asymmetric authorization begin between binary both by case cast
    check close coalesce collate collation column commit concurrently constraint continue create cross
    current_catalog current_date current_role current_schema current_time current_timestamp current_user
    declare default deferrable desc diagnostics distinct do else elsif end except exception execute exists
    exit false fetch filter first for foreach foreign freeze from full get grant greatest group grouping
    having if ilike in initially inner insert intersect into is isnull join last lateral leading least left
    like limit localtime localtimestamp loop merge move natural next normalize not notnull null nullif of
    offset on only open or order outer over overlaps overlay perform placing position primary prior raise
    references relative return returning right rollback row scroll select session_user setof similar slice
    some strict substring symmetric system_user table tablesample then to trailing treat trim true union
    unique update user using values variadic verbose when where while window with within xmlagg
    xmlattributes xmlconcat xmlelement xmlexists xmlforest xmlnamespaces xmlparse xmlpi xmlroot
    xmlserialize xmltable
    """.split()  # noqa: SIM905 - a list that a person can read
)


def folded(name: str) -> str:
    """Write the name of a table or column, which match in any case."""
    lower = name.lower()
    return lower if _PLAIN.match(lower) and lower not in _RESERVED else _quoted(lower)


def exact(name: str) -> str:
    """Write a name as it is, such as the heading of a column."""
    if _PLAIN.match(name) and name not in _RESERVED:
        return name
    return _quoted(name)


def _quoted(name: str) -> str:
    quoted = '"' + name.replace('"', '""') + '"'
    # A percent sign would begin one of psycopg's placeholders; so it is never written.
    return "U&" + quoted.replace("\\", "\\\\").replace("%", "\\0025") if "%" in name else quoted


def relation(schema: str | None, name: str) -> str:
    """Write a table, procedure or function with its schema; one without is of dbo, as in SQL Server."""
    return f"{folded(schema or 'dbo')}.{folded(name)}"
