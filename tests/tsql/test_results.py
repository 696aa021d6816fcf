"""What a step of a script has for a person is shown as sqlcmd shows it, and no more than that."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from pybroker.tsql.databases import Databases
from pybroker.tsql.session import Session, StatementError
from pybroker.tsql.source import Position
from pybroker.tsql.steps import Shown, Step

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import Database


class Heard:
    """What a session shows and says."""

    def __init__(self) -> None:
        self.shown: list[str] = []
        self.noted: list[str] = []

    def show(self, line: str) -> None:
        self.shown.append(line)

    def note(self, line: str) -> None:
        self.noted.append(line)


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def session(database: Database, heard: Heard) -> Iterator[Session]:
    databases = Databases()
    databases.add("Shop", database.url)
    session = Session(databases, heard)
    yield session
    session.close()


def run(session: Session, sql: str, shown: Shown = Shown.NOTHING) -> None:
    session.run(Step(Position(1, 1), "its source", sql, shown=shown))


def test_rows_are_shown_with_their_count(session: Session, heard: Heard) -> None:
    run(session, "select 'a' as name, '<x/>'::bytea as body; select 1 as n where false", Shown.ROWS)
    assert heard.shown == [
        "name body",
        "---- ----",
        "a    <x/>",
        "",
        "(1 rows affected)",
        "n",
        "-",
        "",
        "(0 rows affected)",
    ]


def test_changes_are_counted_and_calls_are_silent(session: Session, heard: Heard) -> None:
    run(session, "create table t (id integer)", Shown.COUNT)
    run(session, "select broker.create_queue('q')")
    assert heard.shown == []
    run(session, "insert into t select generate_series(1, 3)", Shown.COUNT)
    assert heard.shown == ["", "(3 rows affected)"]


def test_what_is_raised_is_printed_and_postgresql_s_own_notices_are_not(
    session: Session, heard: Heard
) -> None:
    run(
        session,
        "do $$ begin raise notice 'hello'; raise warning 'careful'; end $$; create schema if not exists public",
    )
    assert heard.shown == ["hello"]


def test_result_sets_of_a_procedure_come_as_notices(session: Session, heard: Heard) -> None:
    told = """{"names": ["n", ""], "rows": [[1, "0x3c782f3e"], [2.50, null]]}"""
    run(session, f"do $do$ begin raise notice using errcode = '01R01', message = '{told}'; end $do$")
    assert heard.shown == ["n", "---- ----", "   1 <x/>", "2.50 NULL", "", "(2 rows affected)"]


def test_use_in_a_transaction_is_refused(session: Session) -> None:
    run(session, "begin")
    assert session.is_in_transaction
    with pytest.raises(StatementError, match="in a transaction"):
        session.change_database("master")


def test_a_refusal_has_service_broker_s_number(session: Session) -> None:
    with pytest.raises(StatementError) as caught:
        run(session, "select broker.end_conversation(gen_random_uuid())")
    assert (caught.value.number, caught.value.sqlstate) == (8426, "S8426")
    with pytest.raises(StatementError) as caught:
        run(session, "select 1/0")
    assert (caught.value.number, caught.value.sqlstate) == (8134, "22012")


def test_a_connection_that_was_lost_is_made_again(session: Session, database: Database) -> None:
    run(session, "select 1")
    with psycopg.connect(database.server.url("postgres"), autocommit=True) as other:
        other.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'pybroker tsql'"
        )
    with pytest.raises(StatementError):
        run(session, "select 1")
    run(session, "select 1")
