"""A module with EXECUTE AS lends the rights of its owner, or of a user, for what it does alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from pybroker.tsql import modules
from pybroker.tsql.expressions.types import INTEGER
from pybroker.tsql.known import Known
from pybroker.tsql.language import read
from pybroker.tsql.preparing import prepare
from pybroker.tsql.source import Position, ScriptError, batches

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
        (batch,) = batches(f"GRANT EXECUTE ON {routine} TO {self.login}")
        for step in prepare(read(batch), batch, self.known):
            assert step.sql is not None
            self.owner.execute(step.sql.encode())

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


CALLS = {
    "procedure": (
        "PROCEDURE dbo.work @a int, @b nvarchar(10) OUTPUT, @c decimal(9, 2) = 1 WITH EXECUTE AS OWNER"
        " AS SET @b = N'done'",
        b"call dbo.work(1, 'x')",
    ),
    "function": (
        "FUNCTION dbo.work (@a int, @b nvarchar(10)) RETURNS nvarchar(10) WITH EXECUTE AS OWNER"
        " AS BEGIN RETURN N'done' END",
        b"select dbo.work(1, 'x')",
    ),
}


@pytest.mark.parametrize("kind", CALLS)
def test_nobody_calls_a_module_with_its_owners_rights_before_it_is_granted(made: Modules, kind: str) -> None:
    text, call = CALLS[kind]
    made.create(f"CREATE {text}")
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="permission denied"):
        made.caller.execute(call)
    assert made.owner.execute(call).fetchone() == ("done",)
    made.grant("Work")
    assert made.caller.execute(call).fetchone() == ("done",)
    made.create(f"ALTER {text}")
    assert made.caller.execute(call).fetchone() == ("done",)


def test_a_trigger_acts_with_its_owners_rights_on_its_own_table_alone(made: Modules) -> None:
    made.owner.execute(
        b"create schema dbo; create table dbo.orders (n integer); create table dbo.log (n integer)"
    )
    made.known.tables.update({("dbo", "orders"): {"n": INTEGER}, ("dbo", "log"): {"n": INTEGER}})
    made.create(
        "CREATE TRIGGER logged ON dbo.orders WITH EXECUTE AS OWNER AFTER INSERT"
        " AS INSERT INTO dbo.log (n) SELECT n FROM inserted"
    )
    made.owner.execute(f"grant insert on dbo.orders to {made.login}".encode())
    made.caller.execute(b"insert into dbo.orders values (1)")
    made.caller.execute(b"create temporary table mine (n integer)")
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="permission denied"):
        made.caller.execute(
            b"create trigger forged after insert on mine referencing new table as inserted"
            b" for each statement execute function dbo.logged()"
        )
    assert made.owner.execute(b"select n from dbo.log").fetchall() == [(1,)]


LOG = b"create schema dbo; create table dbo.log (n integer, who name default current_user)"
WRITES = "INSERT INTO dbo.log (n) VALUES (1)"
MODULES = {
    "procedure": (f"PROCEDURE dbo.act {{}} AS {WRITES}", "dbo.act", b"call dbo.act()"),
    "trigger": (
        f"TRIGGER dbo.act ON dbo.orders {{}} AFTER INSERT AS {WRITES}",
        None,
        b"insert into dbo.orders values (1)",
    ),
}


@pytest.mark.parametrize("kind", MODULES)
def test_a_module_acts_as_the_user_that_execute_as_names(made: Modules, kind: str) -> None:
    text, routine, act = MODULES[kind]
    clerk, owner = f"Clerk of {made.login}", "postgres"
    made.owner.execute(LOG + b"; create table dbo.orders (n integer)")
    made.owner.execute(f'create role "{clerk}"'.encode())
    made.owner.execute(f'grant usage on schema dbo to "{clerk}"'.encode())
    made.owner.execute(f'grant insert on dbo.log to "{clerk}"'.encode())
    made.owner.execute(f"grant insert on dbo.orders to {made.login}".encode())
    made.known.tables.update({("dbo", "log"): {"n": INTEGER}, ("dbo", "orders"): {"n": INTEGER}})
    made.known.principals[clerk.casefold()] = clerk
    made.create("CREATE " + text.format(f"WITH EXECUTE AS '{clerk.upper()}'"))
    if routine is not None:
        made.grant(routine)
    made.caller.execute(act)
    for who in ("SELF", "OWNER"):
        made.create("ALTER " + text.format(f"WITH EXECUTE AS '{clerk}'"))
        made.create("ALTER " + text.format(f"WITH EXECUTE AS {who}"))
        made.caller.execute(act)
    made.create("ALTER " + text.format("WITH EXECUTE AS N'dbo'"))
    made.caller.execute(act)
    assert made.owner.execute(b"select who from dbo.log").fetchall() == [(clerk,), *[(owner,)] * 3]
    query = (
        "select has_schema_privilege(%s, 'dbo', 'CREATE'), has_table_privilege(%s, 'dbo.orders', 'SELECT')"
    )
    assert made.owner.execute(query, (clerk, clerk)).fetchone() == (False, False)


def test_nobody_lends_the_rights_of_a_user_whom_he_may_not_become(made: Modules) -> None:
    clerk = f"clerk_of_{made.login}"
    made.owner.execute(f"create role {clerk}; create schema dbo authorization {made.login}".encode())
    made.owner.execute(b"create table dbo.log (n integer, who name default current_user)")
    made.owner.execute(f"grant usage on schema dbo to {clerk}; grant insert on dbo.log to {clerk}".encode())
    # Who makes a module makes the schema, where it is missing.
    made.owner.execute(f"grant create on database {made.caller.info.dbname} to {made.login}".encode())
    made.known.tables["dbo", "log"] = {"n": INTEGER}
    (batch,) = batches(f"CREATE PROCEDURE dbo.act WITH EXECUTE AS '{clerk}' AS {WRITES}")
    (one,) = read(batch)
    done = modules.translate(one, made.known)
    assert "1:1" in done.notes[0]
    assert f"{clerk} owns the module" in done.notes[0]
    assert done.sql is not None
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match=clerk):
        made.caller.execute(done.sql.encode())
    assert made.owner.execute(b"select to_regproc('dbo.act')").fetchone() == (None,)
    made.owner.execute(f"grant {clerk} to {made.login}".encode())
    made.caller.execute(done.sql.encode())
    made.caller.execute(b"call dbo.act()")
    assert made.owner.execute(b"select who from dbo.log").fetchall() == [(clerk,)]
    query = "select has_schema_privilege(%s, 'dbo', 'CREATE')"
    assert made.owner.execute(query, (clerk,)).fetchone() == (False,)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("CREATE PROCEDURE p WITH EXECUTE AS 'guest' AS RETURN", "nobody is everybody"),
        ("CREATE PROCEDURE p WITH EXECUTE AS clerk AS RETURN", "write CALLER, SELF, OWNER or 'user'"),
        ("CREATE PROCEDURE p WITH EXECUTE AS 'clerk' AS BEGIN TRAN COMMIT", "can't end transactions"),
        (
            "CREATE FUNCTION f () RETURNS TABLE WITH EXECUTE AS OWNER AS RETURN (SELECT 1 AS n)",
            "a function that returns one query",
        ),
    ],
)
def test_other_forms_of_execute_as_are_refused(text: str, why: str) -> None:
    (batch,) = batches(text)
    with pytest.raises(ScriptError, match=why) as refused:
        modules.translate(read(batch)[0], Known())
    assert refused.value.position == Position(1, 1)
