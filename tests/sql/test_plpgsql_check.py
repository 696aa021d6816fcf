"""plpgsql_check finds in no function what would fail only when its line is reached.

Debian has the extension for PostgreSQL 15; `.ci/run` installs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests import missing
from tests.conftest import Database, migrated_database

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import psycopg

    from pybroker.embedded import EmbeddedServer

VERSION = 15
# A statement that must be run and has an answer needs a variable to put it into.
NEVER_READ = "never read variable "
# A refusal is an assignment that never returns: sql/foundation/refuse.sql says why.
REFUSES = '"found" should not be modified by user'
# PL/pgSQL's end of a loop that only RETURN leaves.
END_REACHED = "control reached end of function without RETURN"
ENDLESS_LOOPS = {"broker.get_conversation_group", "broker_private.walk_to_group"}
# Its names come from PostgreSQL's own types for names of objects and roles, which quote.
UNSANITIZED = "text type variable is not sanitized"
QUOTED = {"broker_private.set_rights"}


@pytest.fixture(scope="module")
def database(start_server: Callable[[int], EmbeddedServer]) -> Database:
    server = start_server(VERSION)
    made = migrated_database(server, "plpgsql_check")
    with made.connect() as session:
        found = session.execute("select from pg_available_extensions where name = 'plpgsql_check'").fetchone()
        if found is None:
            missing.skip("plpgsql_check", "apt-get install postgresql-15-plpgsql-check")
        session.execute("create extension plpgsql_check")
        # Its triggers are there only while somebody traces.
        session.execute("select broker.start_trace()")
    return made


@pytest.fixture
def session(database: Database) -> Iterator[psycopg.Connection[Any]]:
    with database.connect(autocommit=False) as session:
        yield session
        session.rollback()


def faults(session: psycopg.Connection[Any]) -> list[str]:
    """Check every PL/pgSQL function and procedure, a trigger's once for each of its tables."""
    found = session.execute(
        "select f.function, c.lineno, c.message, c.detail"
        " from (select p.oid, p.pronamespace::regnamespace || '.' || p.proname as function,"
        "    coalesce(t.tgrelid, 0) as relation, t.tgoldtable as oldtable, t.tgnewtable as newtable"
        "  from pg_proc p join pg_language l on l.oid = p.prolang and l.lanname = 'plpgsql'"
        "  left join pg_trigger t on t.tgfoid = p.oid"
        "  where p.pronamespace in ('broker'::regnamespace, 'broker_private'::regnamespace)) f"
        " cross join lateral plpgsql_check_function_tb(f.oid, f.relation, security_warnings => true,"
        "  other_warnings => false, oldtable => f.oldtable, newtable => f.newtable) c"
        " order by 1, 2, 3"
    )
    return [
        f"{function}, line {line}: {message}{f'; {detail}' if detail else ''}"
        for function, line, message, detail in found
        if not message.startswith(NEVER_READ)
        and not message.endswith(REFUSES)
        and not (message == END_REACHED and function in ENDLESS_LOOPS)
        and not (message == UNSANITIZED and function in QUOTED)
    ]


def test_every_function_of_the_broker_could_be_run_to_its_last_line(
    session: psycopg.Connection[Any],
) -> None:
    assert faults(session) == []


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ("perform from broker_private.messages m where m.no_such_column;", "column m.no_such_column does not exist"),
        ("if false then perform broker_private.no_such_function(); end if;", "does not exist"),
        ("execute 'select ' || given;", "text type variable is not sanitized"),
        ("return; perform broker_private.clock();", "unreachable code"),
    ],
)  # fmt: skip
def test_a_fault_in_a_line_that_no_test_reaches_is_found(
    session: psycopg.Connection[Any], body: str, fault: str
) -> None:
    session.execute(
        "create function broker_private.probe(given text) returns void language plpgsql"
        f" set search_path = pg_catalog, pg_temp as $$ begin {body} end $$".encode()
    )
    assert any(each.startswith("broker_private.probe, line ") and fault in each for each in faults(session))
