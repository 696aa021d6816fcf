"""What public scripts write runs as it is printed: WITH before changes, names as texts, made columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from pybroker.commands import application
from tests.patience import until
from tests.shop import in_background

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from click.testing import Result

    from tests.conftest import Database

    Run = Callable[[str], Result]
    Lines = Callable[[str], list[str]]


@pytest.fixture
def run(database: Database, tmp_path: Path) -> Run:
    def run_one(text: str) -> Result:
        script = tmp_path / "script.sql"
        script.write_text(text, "utf-8")
        return CliRunner().invoke(
            application, ["tsql", "run", str(script), "--database", f"Shop={database.url}"]
        )

    return run_one


@pytest.fixture
def lines(run: Run) -> Lines:
    """Run a script, and return what it prints, without the lines of headings and counts."""

    def lines_of(text: str) -> list[str]:
        done = run(text)
        assert done.exit_code == 0, done.output
        rows = [line.rstrip() for line in done.stdout.splitlines() if line.strip()]
        heading = {at - 1 for at, line in enumerate(rows) if not line.strip("- ")}
        return [
            " ".join(line.split())
            for at, line in enumerate(rows)
            if at not in heading and line.strip("- ") and not line.startswith("(")
        ]

    return lines_of


def refusal(tmp_path: Path, text: str) -> str:
    script = tmp_path / "script.sql"
    script.write_text(text, "utf-8")
    done = CliRunner().invoke(application, ["tsql", "check", str(script)])
    assert done.exit_code == 1, done.output
    return done.output.replace(f"{tmp_path}/", "")


def test_rows_change_through_a_query_of_with(lines: Lines) -> None:
    shown = lines("""
        CREATE TABLE t (n int, v varchar(9))
        INSERT t VALUES (1, 'a'), (2, 'b'), (3, 'c'), (3, 'd');
        WITH x AS (SELECT n FROM t WHERE n > 2 AND v = 'd') DELETE x;
        WITH x AS (SELECT TOP (1) n, v FROM t ORDER BY n) UPDATE x SET n = n + 10 OUTPUT inserted.n, inserted.v;
        WITH x AS (SELECT n FROM t WHERE n > 10) DELETE FROM t WHERE n IN (SELECT n FROM x);
        WITH x AS (SELECT TOP (1) * FROM t WITH (ROWLOCK, READPAST) ORDER BY n) DELETE FROM x OUTPUT deleted.*;
        WITH q AS (SELECT 7 AS n, 'q' AS v) INSERT INTO t (n, v) SELECT n, v FROM q;
        SELECT n, v FROM t ORDER BY n
        DECLARE @o TABLE (n int);
        WITH q AS (SELECT n FROM t WHERE n = 7) DELETE q OUTPUT deleted.n INTO @o;
        SELECT n FROM @o;
        WITH q AS (SELECT 3 AS n, 'zz' AS v) MERGE t USING q ON t.n = q.n
          WHEN MATCHED THEN UPDATE SET v = q.v WHEN NOT MATCHED THEN INSERT (n, v) VALUES (q.n, q.v);
        INSERT t VALUES (3, 'aa');
        WITH d AS (SELECT *, ROW_NUMBER() OVER (PARTITION BY n ORDER BY v) AS r FROM t) DELETE FROM d WHERE r > 1;
        SELECT n, v FROM t
    """)
    assert shown == ["11 a", "2 b", "3 c", "7 q", "7", "3 aa"]


def test_a_procedure_takes_the_next_row_of_a_table(lines: Lines) -> None:
    shown = lines("""
        CREATE TABLE t (n int, v varchar(9))
        INSERT t VALUES (1, 'a'), (2, 'b'), (3, 'c')
        GO
        CREATE PROCEDURE p AS
        DECLARE @o TABLE (n int, v varchar(9));
        WITH x AS (SELECT TOP (1) n, v FROM t WITH (UPDLOCK, READPAST) ORDER BY n DESC)
          DELETE x OUTPUT deleted.n, deleted.v INTO @o (n, v);
        SELECT n, v FROM @o;
        WITH x AS (SELECT n, v AS w FROM t WHERE n = 2) UPDATE x SET w = w + 'x' WHERE n < 3;
        SELECT @@ROWCOUNT AS c
        GO
        EXEC p
        SELECT n, v FROM t ORDER BY n
    """)
    assert shown == ["3 c", "1", "1 a", "2 bx"]


def test_a_plain_query_of_a_table_compares_values_by_their_types(lines: Lines) -> None:
    shown = lines("""
        CREATE TABLE t (n decimal(5,2), d datetime, x float)
        INSERT t VALUES (1, '2024-01-01', 1)
        SELECT n FROM t WHERE n = 1
        SELECT d FROM t WHERE d = '2024-01-01'
        SELECT x FROM t WHERE x = 1 AND n <> 2
        GO
        IF EXISTS (SELECT * FROM t WHERE n = 1) PRINT 'number'
        IF NOT EXISTS (SELECT * FROM dbo.t WHERE d = '2024-01-01') PRINT 'lost'
    """)
    assert shown == ["1.00", "2024-01-01 00:00:00.000", "1.0", "number"]


def test_update_and_delete_have_outer_joins_and_apply(lines: Lines) -> None:
    shown = lines("""
        CREATE TABLE a (id int, v varchar(10), n int, w datetime)
        CREATE TABLE b (id int, v varchar(10))
        INSERT a VALUES (1, 'x', 0, NULL), (2, 'y', 0, NULL), (3, 'z', 0, NULL)
        INSERT b VALUES (1, 'n'), (3, 'm')
        UPDATE x SET v = ISNULL(b.v, 'none'), n = 5, w = '2024-01-01' FROM a x LEFT JOIN b ON x.id = b.id AND b.id < 3
        SELECT id, v, n, w FROM a ORDER BY id
        UPDATE a SET v = b.v FROM a LEFT JOIN b ON a.id = b.id WHERE b.id IS NULL
        SELECT id, v FROM a ORDER BY id
        UPDATE a SET v = q.m + '!' OUTPUT deleted.v AS o, inserted.v AS i FROM a
          CROSS APPLY (SELECT MAX(b.v) AS m FROM b WHERE b.id = a.id) q WHERE q.m = 'm'
        DELETE x OUTPUT deleted.id FROM a x JOIN b ON x.id >= b.id LEFT JOIN b c ON c.id = x.id WHERE c.id IS NULL
        SELECT id FROM a ORDER BY id
    """)
    moment = "2024-01-01 00:00:00.000"
    assert shown[:3] == [f"1 n 5 {moment}", f"2 none 5 {moment}", f"3 none 5 {moment}"]
    assert shown[3:] == ["1 n", "2 NULL", "3 none", "none m!", "2", "1", "3"]


def test_output_has_the_values_before_an_update(lines: Lines) -> None:
    shown = lines("""
        CREATE TABLE a (id int, v varchar(10))
        INSERT a VALUES (1, 'p')
        CREATE TABLE b (id int, v varchar(10))
        INSERT b VALUES (1, 'bb')
        CREATE TABLE l (o varchar(10), n varchar(10))
        UPDATE a SET v = 'new' OUTPUT deleted.v AS o, inserted.v AS n, deleted.v + '-' + inserted.v AS m WHERE id = 1
        UPDATE x SET v = b.v OUTPUT deleted.*, inserted.* FROM a x JOIN b ON b.id = x.id
        UPDATE x SET v = b.v + 'c' OUTPUT inserted.*, b.v FROM a x JOIN b ON b.id = x.id
        UPDATE TOP (1) a SET v = 'top' OUTPUT deleted.v, inserted.v, inserted.id
        GO
        CREATE PROCEDURE p AS
        UPDATE a SET v = 'in' OUTPUT deleted.v, inserted.v INTO l
        PRINT @@ROWCOUNT
        UPDATE a SET v = 'out' OUTPUT deleted.v AS o, inserted.v AS n
        GO
        EXEC p
        SELECT o, n FROM l
        DELETE x OUTPUT deleted.* FROM a x JOIN b ON b.id = x.id
    """)
    begun = ["p new p-new", "1 new 1 bb", "1 bbc bb", "bbc top 1"]
    assert shown == [*begun, "1", "in out", "top in", "1 out"]


def call_behind_another_change(database: Database) -> None:
    """Call dbo.p, which waits for a row of dbo.t that another transaction sets to 5, and then commits."""
    waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
    with database.connect() as other, database.connect() as caller, database.connect() as third:
        other.execute("begin")
        other.execute("update dbo.t set n = 5")
        running = in_background(lambda: caller.execute("call dbo.p()"))
        until(lambda: running.done() or third.execute(waiting.encode()).fetchone() == (1,))
        assert not running.done(), running.result()
        other.execute("commit")
        running.result(200)


def test_output_before_an_update_is_what_another_transaction_left(run: Run, database: Database) -> None:
    done = run("""
        CREATE TABLE t (id int, n int)
        CREATE TABLE l (o int, n int)
        INSERT t VALUES (1, 1)
        GO
        CREATE PROCEDURE p AS UPDATE t SET n = n + 10 OUTPUT deleted.n, inserted.n INTO l WHERE id = 1
    """)
    assert done.exit_code == 0, done.output
    call_behind_another_change(database)
    with database.connect() as session:
        assert session.execute("select o, n from dbo.l").fetchall() == [(5, 15)]
        assert session.execute("select n from dbo.t").fetchall() == [(15,)]


@pytest.mark.parametrize(
    ("statement", "left"),
    [
        ("WITH q AS (SELECT n FROM t WHERE id = 1) UPDATE q SET n = n + 10", [(15,)]),
        ("WITH q AS (SELECT TOP (1) n FROM t ORDER BY id) DELETE q", []),
    ],
)
def test_a_change_of_a_query_waits_for_the_row_that_another_transaction_changes(
    run: Run, database: Database, statement: str, left: list[tuple[int]]
) -> None:
    done = run(
        f"CREATE TABLE t (id int, n int)\nINSERT t VALUES (1, 1)\nGO\nCREATE PROCEDURE p AS {statement}"
    )
    assert done.exit_code == 0, done.output
    call_behind_another_change(database)
    with database.connect() as session:
        assert session.execute("select n from dbo.t").fetchall() == left


def test_readpast_of_the_table_that_changes_skips_what_others_lock(
    run: Run, lines: Lines, database: Database
) -> None:
    made = run("CREATE TABLE t (id int, v varchar(9)) INSERT t VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    assert made.exit_code == 0, made.output
    with database.connect() as other:
        other.execute("begin")
        other.execute("select from dbo.t where id = 1 for update")
        shown = lines("""
            UPDATE t WITH (READPAST) SET v = 'z' OUTPUT deleted.v, inserted.v WHERE id < 3
            DELETE TOP (1) FROM t WITH (ROWLOCK, READPAST) OUTPUT deleted.id WHERE id <> 3
            DELETE t WITH (READPAST)
            PRINT @@ROWCOUNT
        """)
        other.execute("rollback")
        assert other.execute("select id, v from dbo.t").fetchall() == [(1, "a")]
    assert shown == ["b z", "2", "1"]


def test_texts_of_a_fixed_length_keep_their_blanks(lines: Lines) -> None:
    shown = lines("""
        CREATE TABLE t (s char(5), v varchar(9))
        INSERT t (s) VALUES ('ab')
        DECLARE @c char(4) = 'x', @w varchar(20)
        SELECT REPLACE(s + '|', ' ', '.') AS x, LEN(s) AS l, REPLACE(s, ' ', '.') AS r FROM t WHERE s = 'ab'
        UPDATE t SET v = s
        SELECT @w = s FROM t
        PRINT REPLACE(@w + '|' + @c + '|', ' ', '.')
        SELECT DATALENGTH(v) AS d FROM t
    """)
    assert shown == ["ab...| 2 ab...", "ab...|x...|", "5"]


def test_like_has_sets_of_characters(lines: Lines) -> None:
    shown = lines("""
        CREATE TABLE t (v varchar(20))
        INSERT t VALUES ('abc'), ('a%c'), ('bcd'), ('a[c'), ('a.c'), ('5-x'), (NULL)
        SELECT v AS a FROM t WHERE v LIKE '[a]b_' OR v LIKE 'a[%]c' ORDER BY v DESC
        SELECT v AS b FROM t WHERE v LIKE 'a[[]c'
        SELECT v AS c FROM t WHERE v LIKE '[^a]%' ORDER BY v
        SELECT v AS d FROM t WHERE v NOT LIKE '%[^a-c]%'
        SELECT v + '' AS e FROM t WHERE v + 'e' LIKE 'a.[c]e' AND NOT v LIKE '[b]%'
        SELECT COUNT(*) AS f FROM t WHERE 'two' + CHAR(10) + 'lines' LIKE '[t]%s'
    """)
    assert shown == ["abc", "a%c", "a[c", "5-x", "bcd", "abc", "a.c", "7"]


def test_windows_have_frames_and_neighbours(lines: Lines) -> None:
    shown = lines("""
        CREATE TABLE t (g int, v int, s varchar(5), d decimal(6,2))
        INSERT t VALUES (1, 10, 'a', 1.5), (1, 20, 'b', 2.5), (2, 5, 'c', 3.25)
        SELECT v, SUM(v) OVER (PARTITION BY g ORDER BY v ROWS UNBOUNDED PRECEDING) AS s, LAG(v, 1, 0) OVER (ORDER BY v) AS l,
          LEAD(s, 1, '-') OVER (ORDER BY v) AS n, FIRST_VALUE(v) OVER (PARTITION BY g ORDER BY v) AS f,
          LAG(d, 1, 0) OVER (ORDER BY v) AS p,
          LAST_VALUE(v) OVER (ORDER BY v ROWS BETWEEN CURRENT ROW AND 1 FOLLOWING) AS t FROM t ORDER BY v
        DECLARE @d datetime = '2024-03-05T14:07:09.123'
        SELECT EOMONTH('2024-02-10') a, EOMONTH(@d, 1) b, DATEFROMPARTS(2024, 2, 3) d, CONCAT_WS(',', 'a', NULL, 1, 'b') e
    """)
    assert shown == [
        "5 5 0 a 5 0.00 10",
        "10 10 5 b 10 3.25 20",
        "20 30 10 - 10 1.50 20",
        "2024-02-29 2024-04-30 2024-02-03 a,1,b",
    ]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (
            "WITH x AS (SELECT t.n FROM t JOIN u ON t.n = u.n) DELETE x",
            "3:6: refused: x does not read the rows of one table",
        ),
        (
            "WITH x AS (SELECT n, n + 1 AS m FROM t) UPDATE x SET m = 1",
            "m is no column of the table behind x",
        ),
        ("WITH x AS (SELECT n AS m FROM t) DELETE x OUTPUT deleted.m", "give it the column's own name"),
        ("WITH x AS (SELECT n FROM t) UPDATE TOP (1) x SET n = 1", "write it in the query of x"),
    ],
)
def test_a_query_of_with_that_is_no_table_is_refused(tmp_path: Path, change: str, why: str) -> None:
    assert why in refusal(tmp_path, f"CREATE TABLE t (n int)\nCREATE TABLE u (n int);\n{change}")


def test_columns_that_are_made_need_no_value(lines: Lines) -> None:
    shown = lines("""
        CREATE TABLE t (
          id int IDENTITY, n int INDEX ix CLUSTERED, twice AS n * 2, more AS (n + 1) PERSISTED, s AS CAST(n AS varchar(9)) + 'x',
        )
        INSERT t VALUES (4)
        INSERT INTO t SELECT 5
        UPDATE t SET n = 6 WHERE id = 2
        SELECT * FROM t ORDER BY id
        GO
        CREATE PROCEDURE p AS
        INSERT t VALUES (7)
        SELECT id, twice FROM t WHERE n = 7
        GO
        EXEC p
    """)
    assert shown == ["1 4 8 5 4x", "2 6 12 7 6x", "3 14"]


def test_exec_takes_a_name_for_a_text(lines: Lines) -> None:
    shown = lines("""
        CREATE PROCEDURE dbo.p @a varchar(20), @b varchar(20) AS PRINT @a + @b
        GO
        EXEC p "Hello World!", x
        EXEC p [in brackets], "it's"
        GO
        CREATE PROCEDURE q AS EXEC p "Hello", word
        GO
        EXEC q
    """)
    assert shown == ["Hello World!x", "in bracketsit's", "Helloword"]


def test_functions_have_defaults_and_names_of_their_own(lines: Lines) -> None:
    shown = lines("""
        CREATE FUNCTION dbo.f (@a int, @b int = 5, @c int = 100) RETURNS int AS BEGIN RETURN @a + @b + @c END
        GO
        CREATE FUNCTION dbo.Rows (@a int) RETURNS TABLE AS RETURN (SELECT @a AS n UNION ALL SELECT @a + 1)
        GO
        CREATE FUNCTION dbo.[Left] (@a int) RETURNS int AS BEGIN RETURN @a - 1 END
        GO
        SELECT dbo.f(1, DEFAULT, 0) AS a, dbo.f(1, 2, DEFAULT) AS b, dbo.Left(7) AS c
        CREATE TABLE t (n int)
        INSERT t SELECT n FROM dbo.Rows(3)
        SELECT t.n, Rows.n AS m FROM t CROSS APPLY dbo.Rows(t.n + 10) ORDER BY t.n, m
    """)
    assert shown == ["6 103 6", "3 13", "3 14", "4 14", "4 15"]


def test_texts_and_procedures_are_found_where_they_are(lines: Lines) -> None:
    shown = lines("""
        CREATE PROCEDURE dbo.Named AS
        PRINT OBJECT_NAME(@@PROCID)
        EXEC sp_later 3
        GO
        CREATE PROCEDURE sp_later @n int AS PRINT STR(@n, 4) + '|' + STR(12.36, 6, 1) + '|' + STR(123456, 3)
        GO
        EXEC named
        DECLARE @p nvarchar(99) = N'@a int, @b int OUTPUT', @r int, @s nvarchar(99) = N'SET @b = @a + 1'
        EXEC sp_executesql @s, @p, @a = 4, @b = @r OUTPUT
        PRINT @r
        SELECT COUNT(*) AS n FROM sys.databases WHERE database_id = DB_ID()
    """)
    assert shown == ["Named", "3| 12.4|***", "5", "1"]


def test_tables_of_the_database_are_known_to_later_scripts(lines: Lines) -> None:
    lines("""
        CREATE QUEUE dbo.Orders
        CREATE SERVICE Orders ON QUEUE dbo.Orders ([DEFAULT])
        CREATE TABLE dbo.Log (id int IDENTITY, body varbinary(max), done bit, price decimal(9, 2), at datetime)
    """)
    shown = lines("""
        DECLARE @h uniqueidentifier
        BEGIN DIALOG @h FROM SERVICE Orders TO SERVICE 'Orders' WITH ENCRYPTION = OFF;
        SEND ON CONVERSATION @h (N'an order')
        SELECT CAST(message_body AS nvarchar(max)) AS body FROM Orders
        GO
        CREATE PROCEDURE dbo.p AS
        INSERT dbo.Log SELECT message_body, 'true', '7', NULL FROM Orders
        SELECT CAST(body AS nvarchar(max)) AS body, done, price / 2 AS half FROM Log WHERE at IS NULL
        GO
        EXEC p
    """)
    assert shown == ["an order", "an order 1 3.500000"]


def test_a_variable_names_the_procedure(lines: Lines, run: Run) -> None:
    shown = lines("""
        CREATE PROCEDURE dbo.Classify @a nvarchar(20), @n int OUTPUT, @s nvarchar(50) OUTPUT AS
        SET @n = @n + 1
        SET @s = @a + CAST(@n AS nvarchar(9))
        RETURN 7
        GO
        CREATE PROCEDURE dbo.p @name sysname AS
        DECLARE @n int = 4, @s nvarchar(50), @code int, @none sysname = 'nothing; drop table x'
        EXEC @code = @name 'x', @n OUTPUT, @s OUTPUT
        PRINT CONCAT(@n, ' ', @s, ' ', @code)
        BEGIN TRY EXEC @name 'y', @n, @s OUTPUT END TRY
        BEGIN CATCH PRINT ERROR_MESSAGE() END CATCH
        BEGIN TRY EXEC @none END TRY
        BEGIN CATCH PRINT 'no name' END CATCH
        GO
        EXEC p '[dbo].[classify]'
        DECLARE @x sysname = 'Classify', @k int = 1, @t nvarchar(50)
        EXEC @x 'z', @k OUTPUT, @t OUTPUT
        PRINT @t
    """)
    assert shown == ["5 x5 7", "The procedure has other OUTPUT parameters.", "no name", "z2"]
    failed = run("DECLARE @x sysname = 'a b'\nEXEC @x")
    assert failed.exit_code == 1
    assert "script.sql:2:1: Msg 2812: Could not find stored procedure 'a b'." in failed.output


def test_a_savepoint_undoes_what_stands_behind_it(lines: Lines) -> None:
    shown = lines("""
        CREATE TABLE t (n int)
        GO
        CREATE PROCEDURE dbo.p @what int AS
        DECLARE @s int, @t varchar(9) = 'a'
        BEGIN TRAN
        INSERT t VALUES (@what * 10 + 1)
        SAVE TRANSACTION sp
        BEGIN TRY
          INSERT t VALUES (@what * 10 + 2)
          IF @what = 1 RAISERROR ('raised', 16, 1)
          IF @what = 2 SET @s = CAST(@t AS int)
        END TRY
        BEGIN CATCH
          IF XACT_STATE() = -1
          BEGIN
            ROLLBACK
            PRINT CONCAT('all ', ERROR_NUMBER(), ' ', @@TRANCOUNT)
            RETURN
          END
          IF XACT_STATE() = 1 ROLLBACK TRANSACTION SP
          PRINT CONCAT(ERROR_MESSAGE(), ' ', @@TRANCOUNT)
        END CATCH
        INSERT t VALUES (@what * 10 + 3)
        COMMIT
        GO
        CREATE PROCEDURE dbo.odd @n int AS
        BEGIN TRAN
        WHILE @n > 0
        BEGIN
          SAVE TRAN a
          INSERT t VALUES (-@n)
          IF @n % 2 = 0
            ROLLBACK TRAN a
          ELSE
            PRINT 'odd'
          SET @n -= 1
        END
        COMMIT
        GO
        EXEC p 0
        EXEC p 1
        EXEC p 2
        EXEC odd 3
        SELECT n FROM t ORDER BY n
    """)
    assert shown == ["raised 1", "all 245 0", "odd", "odd", "-3", "-1", "1", "2", "3", "11", "13"]


def test_a_savepoint_within_try_goes_on_behind_it(lines: Lines) -> None:
    shown = lines("""
        CREATE TABLE t (n int)
        GO
        CREATE PROCEDURE dbo.p @more int AS
        BEGIN TRY
          BEGIN TRAN
          INSERT t VALUES (1)
          SAVE TRAN a
          INSERT t VALUES (2)
          IF (SELECT COUNT(*) FROM t) = 2 ROLLBACK TRAN a
          INSERT t VALUES (3 / @more)
          COMMIT
        END TRY
        BEGIN CATCH
          ROLLBACK
          PRINT CONCAT('caught ', ERROR_NUMBER())
        END CATCH
        GO
        EXEC p 1
        EXEC p 0
        SELECT n FROM t ORDER BY n
    """)
    assert shown == ["caught 8134", "1", "3"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("SAVE TRAN a\nCOMMIT", "2:1: refused: SAVE TRANSACTION: its ROLLBACK stands behind it"),
        (
            "BEGIN TRY SAVE TRAN a PRINT 1 END TRY BEGIN CATCH ROLLBACK TRAN a END CATCH",
            "2:11: refused: SAVE",
        ),
        ("SAVE TRAN a COMMIT\nROLLBACK TRAN a", "2:13: refused: COMMIT between SAVE and its ROLLBACK"),
        ("SAVE TRAN a ROLLBACK TRAN a SAVE TRAN b", "2:29: refused: SAVE"),
        ("SAVE TRAN a" + "\nIF 1 = 2 ROLLBACK" * 30 + "\nROLLBACK TRAN a", "23:10: refused: more than 20"),
        ("SAVE TRAN a IF 1 = 1 ROLLBACK TRAN a\nROLLBACK TRAN a", "2:22: refused: ROLLBACK to a twice"),
        (
            "BEGIN TRY SAVE TRAN a PRINT 1 ROLLBACK TRAN a END TRY BEGIN CATCH PRINT 2 END CATCH",
            "2:11: refused: SAVE TRANSACTION in a TRY whose CATCH does not begin with ROLLBACK",
        ),
    ],
)
def test_a_savepoint_without_a_block_is_refused(tmp_path: Path, text: str, why: str) -> None:
    assert why in refusal(tmp_path, f"CREATE PROCEDURE p AS\n{text}")


def test_constraints_stand_behind_a_column_without_a_comma(lines: Lines, run: Run) -> None:
    shown = lines("""
        CREATE TABLE t (a int NOT NULL, b int NOT NULL PRIMARY KEY (a, b))
        CREATE TABLE u (a int CONSTRAINT pk PRIMARY KEY CLUSTERED (a), b int CONSTRAINT fk FOREIGN KEY (a, b) REFERENCES t (a, b))
        INSERT t VALUES (1, 1), (1, 2)
        SELECT COUNT(*) AS n FROM t
    """)
    assert shown == ["2"]
    assert 'violates foreign key constraint "fk"' in run("INSERT u VALUES (1, 3)").output


def test_a_cursor_may_be_a_variables(lines: Lines, tmp_path: Path) -> None:
    procedure = """
        CREATE PROCEDURE p AS
        DECLARE @c CURSOR, @n int
        SET @c = CURSOR LOCAL SCROLL FOR SELECT x.n FROM (VALUES (1), (2)) AS x (n) ORDER BY x.n
        OPEN @c
        FETCH NEXT FROM @c INTO @n
        WHILE @@FETCH_STATUS = 0
        BEGIN
          PRINT @n
          FETCH NEXT FROM @c INTO @n
        END
        CLOSE @c
        DEALLOCATE @c
    """
    assert lines(f"{procedure}\nGO\nEXEC p") == ["1", "2"]
    assert "the cursor @c has no query" in refusal(
        tmp_path, "CREATE PROCEDURE p AS DECLARE @c CURSOR OPEN @c"
    )


def test_what_management_studio_writes_into_each_script_runs(lines: Lines) -> None:
    shown = lines("""
        IF (1 = FULLTEXTSERVICEPROPERTY('IsFullTextInstalled'))
        BEGIN
        EXEC [Shop].[dbo].[sp_fulltext_database] @action = 'enable'
        END
        ALTER DATABASE [Shop] SET FILESTREAM( NON_TRANSACTED_ACCESS = OFF )
        ALTER DATABASE [Shop] SET TARGET_RECOVERY_TIME = 60 SECONDS
        ALTER DATABASE [Shop] SET QUERY_STORE = ON (OPERATION_MODE = READ_WRITE, CLEANUP_POLICY = (STALE_DAYS = 30))
        PRINT 'done'
    """)
    assert shown == ["done"]


def test_a_name_in_brackets_is_no_keyword(lines: Lines) -> None:
    shown = lines("""
        CREATE TABLE [output] ([output] int, [select] int, [merge] int)
        INSERT [output] ([output]) VALUES (1)
        UPDATE [output] SET [output] = 2
        SELECT [output].[output] FROM [output] WHERE [output] = 2
        DELETE [output];
        WITH [delete] AS (SELECT 5 AS [insert]) SELECT [insert] FROM [delete]
        GO
        CREATE PROCEDURE dbo.p AS
        DECLARE @n bigint = @@PROCID
        IF @n = OBJECT_ID('dbo.p') PRINT 'own'
        GO
        EXEC p
    """)
    assert shown == ["2", "5", "own"]


def test_moments_of_catalog_views_are_datetimes(lines: Lines) -> None:
    shown = lines("""
        CREATE QUEUE q
        CREATE SERVICE s ON QUEUE q
        DECLARE @h uniqueidentifier
        BEGIN DIALOG @h FROM SERVICE s TO SERVICE 's' WITH LIFETIME = 864000, ENCRYPTION = OFF
        SELECT CASE WHEN DATEDIFF(day, GETDATE(), e.lifetime) BETWEEN 9 AND 11 THEN 'in ten days' END AS ends,
          LEN(CONVERT(varchar, e.lifetime, 120)) AS written
        FROM sys.conversation_endpoints e WHERE e.lifetime > GETDATE()
    """)
    assert shown == ["in ten days 19"]


def test_insert_gives_an_identity_column_values_and_it_counts_on_behind_them(lines: Lines) -> None:
    shown = lines("""
        CREATE TABLE t (id int IDENTITY(10, 5), v varchar(9))
        CREATE TABLE zero (id int IDENTITY(0, 1), v varchar(9))
        INSERT zero VALUES ('0'), ('1')
        SELECT id, v FROM zero ORDER BY id
        CREATE TABLE down (id int IDENTITY(0, -1), v varchar(9))
        SET IDENTITY_INSERT dbo.t ON
        INSERT t (id, v) VALUES (3, 'a')
        INSERT INTO t (id, v) SELECT 10, 'b'
        GO
        SET IDENTITY_INSERT t OFF
        INSERT t VALUES ('c')
        SET IDENTITY_INSERT down ON
        INSERT down (id, v) VALUES (-7, 'down'), (-3, 'up')
        SET IDENTITY_INSERT down OFF
        INSERT down VALUES ('next')
        GO
        CREATE PROCEDURE p AS
        IF 1 = 1
        BEGIN
          SET IDENTITY_INSERT t ON
          INSERT t (v, id) VALUES ('d', 40)
          SET IDENTITY_INSERT t OFF
        END
        INSERT t VALUES ('e')
        GO
        EXEC p
        SELECT id, v FROM t ORDER BY id
        SELECT id, v FROM down ORDER BY id DESC
    """)
    assert shown == ["0 0", "1 1", "3 a", "10 b", "15 c", "40 d", "45 e", "-3 up", "-7 down", "-8 next"]


@pytest.mark.parametrize(
    ("statements", "why"),
    [
        (
            "CREATE TABLE v (n int IDENTITY(1))",
            "(1) behind IDENTITY: write two whole numbers, a start and a step",
        ),
        ("SET IDENTITY_INSERT elsewhere ON", "3:1: refused: the columns of dbo.elsewhere are not known"),
        ("SET IDENTITY_INSERT t ON SET IDENTITY_INSERT u ON", "IDENTITY_INSERT is ON for dbo.t"),
        ("SET IDENTITY_INSERT t ON INSERT t VALUES (1)", "list the columns, with the one that has IDENTITY"),
        ("IF 1 = 1 SET IDENTITY_INSERT t ON", "write its ON and OFF beside each other"),
        (
            "SET IDENTITY_INSERT t ON INSERT t (n) VALUES (1) SELECT SCOPE_IDENTITY()",
            "the value that INSERT gives",
        ),
    ],
)
def test_identity_insert_that_is_not_followed_is_refused(tmp_path: Path, statements: str, why: str) -> None:
    tables = "CREATE TABLE t (n int IDENTITY)\nCREATE TABLE u (n int IDENTITY)\n"
    assert why in refusal(tmp_path, tables + statements)
    within = statements.replace("SELECT SCOPE", "SET @n = SCOPE")
    module = f"{tables}GO\nCREATE PROCEDURE p AS DECLARE @n int\n{within}"
    assert why.rpartition(": ")[2] in refusal(tmp_path, module)


def test_the_brokers_errors_are_messages(lines: Lines) -> None:
    shown = lines("""
        SELECT TOP (1) m.message_id, m.language_id, m.severity, m.is_event_logged
        FROM sys.messages AS m WHERE m.message_id = 9718 AND m.text LIKE '%activation%'
        GO
        SELECT TOP 1 text FROM sys.messages WHERE message_id = 9718
        DECLARE @n int = (SELECT COUNT(DISTINCT message_id) FROM sys.messages WHERE message_id > 0)
        IF @n > 50 PRINT 'many'
    """)
    assert shown[0] == "9718 1033 16 0"
    assert shown[1].startswith("Internal activation is on for the queue")
    assert shown[2] == "many"
