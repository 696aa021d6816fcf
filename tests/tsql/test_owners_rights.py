"""A module with EXECUTE AS OWNER lends its owner's rights for what it does, and for nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from pybroker.tsql import modules
from pybroker.tsql.known import Known
from pybroker.tsql.language import read
from pybroker.tsql.source import batches

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import Database

PLANT = """
    create temporary table {table} (n integer);
    create function pg_temp.plant() returns trigger language plpgsql as $$
    begin
      execute format('alter role %I superuser', session_user);
      return new;
    end
    $$;
    create trigger plant before insert on {table} for each row execute function pg_temp.plant();
"""


class Modules:
    """A database whose owner makes modules, and an ordinary role that calls them."""

    def __init__(self, database: Database, owner: psycopg.Connection[Any]) -> None:
        self.owner = owner
        self.known = Known()
        self.login = database.role()
        self.caller = database.connect(user=self.login)

    def create(self, text: str) -> None:
        for batch in batches(text):
            for statement in read(batch):
                self.owner.execute(modules.translate(statement, self.known).sql.encode())
        self.owner.execute(f"grant usage on schema dbo to {self.login}".encode())

    def grant(self, routine: str) -> None:
        self.owner.execute(f"grant execute on routine {routine} to {self.login}".encode())

    def is_superuser(self) -> bool:
        query = f"select rolsuper from pg_roles where rolname = '{self.login}'"
        row = self.owner.execute(query.encode()).fetchone()
        assert row is not None
        return bool(row[0])


@pytest.fixture
def made(any_database: Database) -> Iterator[Modules]:
    with any_database.connect() as owner:
        one = Modules(any_database, owner)
        with one.caller:
            yield one


COUNT = "DECLARE @t TABLE (n int) INSERT INTO @t (n) VALUES (1) SET @n = (SELECT COUNT(*) FROM @t)"
LATER = """
    BEGIN TRY CREATE TABLE #t (n int) END TRY BEGIN CATCH PRINT 'caught' END CATCH
    INSERT INTO #t (n) VALUES (1) SET @n = (SELECT COUNT(*) FROM #t)
"""


@pytest.mark.parametrize(
    ("text", "table"),
    [
        (f"CREATE PROCEDURE dbo.totals @n int OUTPUT WITH EXECUTE AS OWNER AS {COUNT}", '"totals.@t"'),
        (f"CREATE PROCEDURE dbo.totals @n int OUTPUT WITH EXECUTE AS OWNER AS {LATER}", '"totals.#t"'),
        (
            f"CREATE PROCEDURE dbo.inner_one @n int OUTPUT AS {COUNT}\nGO\n"
            "CREATE PROCEDURE dbo.totals @n int OUTPUT WITH EXECUTE AS OWNER AS EXEC dbo.inner_one @n OUTPUT",
            '"inner_one.@t"',
        ),
    ],
)
def test_a_callers_temporary_table_never_acts_with_the_owners_rights(
    made: Modules, text: str, table: str
) -> None:
    made.create(text)
    made.grant("dbo.totals")
    assert made.caller.execute(b"call dbo.totals(0)").fetchone() == (1,)
    made.caller.execute(b"discard temp")
    made.caller.execute(PLANT.format(table=table).encode())
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="owned by another role"):
        made.caller.execute(b"call dbo.totals(0)")
    assert not made.is_superuser()
