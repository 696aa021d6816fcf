"""`make coverage`: which SQL functions no test has called, as the test servers have counted.

A server that a test kills forgets its counts, and a session's arrive when it ends. So a database is asked right
before it is dropped, once its sessions have ended, and what is left when its server stops. Only calls that a
killed server has seen, and no other, are missed.

PostgreSQL puts the body of a simple SQL function into the statement that calls it, and counts no call. Such a
function counts as called if a view or a called function names it.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
from rich.console import Console

from pybroker.embedded import EmbeddedServer
from pybroker.migrations import migrate

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# Names a folder, for the processes of one run of the tests.
FOLDER = "PYBROKER_TEST_SQL_CALLS"
SETTINGS = {"track_functions": "all"} if FOLDER in os.environ else {}
_SCHEMAS = "('broker', 'broker_private')"
_NAMED = re.compile(r"\b(?:broker|broker_private)\.\w+")
_SECONDS_TO_END = 5


def note(url: str) -> None:
    """Write down what has been called in this database, which ends its sessions; do nothing in other runs."""
    if FOLDER not in os.environ:
        return
    # A test may have dropped the database, or closed it to everybody.
    with suppress(psycopg.OperationalError), psycopg.connect(url, autocommit=True) as session:
        session.execute(
            "select pg_terminate_backend(pid, %s) from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid()",
            [_SECONDS_TO_END * 1000],
        )
        called = session.execute(
            "select p.oid::regprocedure::text from pg_stat_user_functions s join pg_proc p on p.oid = s.funcid"
            " join pg_namespace n on n.oid = p.pronamespace"
            f" where n.nspname in {_SCHEMAS} and s.calls > 0".encode()
        ).fetchall()
        with (Path(os.environ[FOLDER]) / f"{os.getpid()}.txt").open("a", encoding="utf-8") as file:
            file.writelines(f"{name}\n" for (name,) in called)


def note_all(server: EmbeddedServer) -> None:
    """Write down what has been called in the databases that a server still has, before it stops."""
    if FOLDER not in os.environ or not server.running:
        return
    with psycopg.connect(server.url("postgres"), autocommit=True) as session:
        names = session.execute(
            "select d.datname from pg_database d where d.datallowconn and not d.datistemplate"
        ).fetchall()
    for (name,) in names:
        note(server.url(name))


def reached(called: set[str], bodies: Mapping[str, tuple[str, str]], views: Iterable[str]) -> set[str]:
    """Return what was called, and SQL functions that it or a view names.

    Args:
        called: as counted, with arguments: broker.send(uuid,text,bytea).
        bodies: each function's language and definition.
        views: the definitions of all views.
    """
    found = called & bodies.keys()
    named = {name for text in views for name in _NAMED.findall(text)}
    waiting = list(found)
    while True:
        named |= {name for each in waiting for name in _NAMED.findall(bodies[each][1])}
        waiting = [
            each
            for each, (language, _) in bodies.items()
            if each not in found and language == "sql" and each.partition("(")[0] in named
        ]
        if not waiting:
            return found
        found |= set(waiting)


def main() -> int:
    """Print the functions that were never called, and how many were; return 1 if these are too few."""
    parser = argparse.ArgumentParser(prog="python -m tests.sql_calls", description=__doc__)
    parser.add_argument("folder", type=Path, help=f"what {FOLDER} named while the tests ran")
    parser.add_argument("--floor", type=float, default=0, help="percent that must have been called")
    given = parser.parse_args()  # fmt: skip
    called = {line for file in given.folder.glob("*.txt") for line in file.read_text().splitlines()}
    with EmbeddedServer() as server:
        server.create_database("broker")
        migrate(server.url("broker"))
        with psycopg.connect(server.url("broker")) as session:
            bodies = {
                name: (language, body)
                for name, language, body in session.execute(
                    "select p.oid::regprocedure::text, l.lanname, pg_get_functiondef(p.oid)"
                    " from pg_proc p join pg_language l on l.oid = p.prolang"
                    f" where p.pronamespace::regnamespace::text in {_SCHEMAS}".encode()
                )
            }
            views = [
                text
                for (text,) in session.execute(
                    "select pg_get_viewdef(c.oid) from pg_class c where c.relkind = 'v'"
                    f" and c.relnamespace::regnamespace::text in {_SCHEMAS}".encode()
                )
            ]
    found = reached(called, bodies, views)
    percent = 100 * len(found) / len(bodies)
    console = Console(soft_wrap=True)
    for name in sorted(bodies.keys() - found):
        console.print(f"never called: {name}", markup=False, highlight=False)
    console.print(
        f"{len(found)} of {len(bodies)} SQL functions were called: {percent:.1f} %", highlight=False
    )
    if percent < given.floor:
        console.print(f"that is below the floor of {given.floor:g} %", highlight=False)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
