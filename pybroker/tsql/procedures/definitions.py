"""Service Broker's definitions, and permissions, in PL/pgSQL."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pybroker.tsql import translation
from pybroker.tsql.administration import translation as administration
from pybroker.tsql.administration import tree
from pybroker.tsql.source import ScriptError

if TYPE_CHECKING:
    from pybroker.tsql.procedures.body import Body
    from pybroker.tsql.tree import Statement

# A text or a name may hold the words of a call.
_CALL = re.compile(r"""'(?:[^']|'')*' | "(?:[^"]|"")*" | (?P<call>\bselect(?=\ broker\.))""", re.VERBOSE)
# Who may not create schemas may use one that is there.
_SCHEMA = re.compile(r'create schema if not exists (?P<name>"(?:[^"]|"")*");\n')

# What only a client does: it needs another database, or files.
_OF_THE_CLIENT = frozenset(
    {
        tree.AlterDatabase,
        tree.BackupCertificate,
        tree.Certificate,
        tree.CreateDatabase,
        tree.DropDatabase,
        tree.MasterKey,
        tree.Use,
    }
)


def definition(body: Body, one: Statement) -> None:
    """Print a statement that is calls in schema `broker`, or SQL that PL/pgSQL takes as it is."""
    if type(one) in translation.TABLE:
        translation.refuse_others(one, body.scope.is_here)
        made = translation.translate(one)
        sql, notes, at_home = made.sql, made.notes, False
    else:
        done = administration.translate(one)
        sql, notes, at_home = done.sql, done.notes, done.at_home
    if at_home:
        raise ScriptError(one.position, f"{body.said(one)} has no form within a procedure: run it before")
    body.note_all(one.position, notes)
    text = sql or ""
    if found := _SCHEMA.match(text):
        name = found["name"]
        body.line(f"if to_regnamespace({translation.literal(name)}) is null then")
        with body.indented():
            body.line(f"create schema {name};")
        body.line("end if;")
        text = text[found.end() :]
    if text:
        # A text in it may have lines of its own, so they are not indented.
        body.line(_CALL.sub(lambda part: "perform" if part["call"] else part[0], text))


STATEMENTS = frozenset({*translation.TABLE, *administration.TABLE}) - _OF_THE_CLIENT
