"""Batches run as they are printed: conversations, variables, control flow, transactions, errors."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import psycopg
import pytest
from typer.testing import CliRunner

from pybroker.commands import application
from tests.conftest import migrated_database

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from click.testing import Result

    from pybroker.embedded import EmbeddedServer
    from tests.conftest import Database

    Run = Callable[..., Result]
    Shown = Callable[[str], list[str]]

DEFINED = """
CREATE MESSAGE TYPE [//shop/order] VALIDATION = NONE
CREATE MESSAGE TYPE [//shop/ack] VALIDATION = NONE
CREATE CONTRACT [//shop/contract] ([//shop/order] SENT BY INITIATOR, [//shop/ack] SENT BY TARGET)
CREATE QUEUE dbo.Orders
CREATE QUEUE Acks
CREATE SERVICE [//shop/orders] ON QUEUE Orders ([//shop/contract])
CREATE SERVICE [//shop/client] ON QUEUE Acks
GO
"""
BEGUN = """
DECLARE @dh uniqueidentifier
BEGIN DIALOG CONVERSATION @dh FROM SERVICE [//shop/client] TO SERVICE '//shop/orders'
  ON CONTRACT [//shop/contract] WITH ENCRYPTION = OFF;
"""


@pytest.fixture
def run(database: Database, tmp_path: Path) -> Run:
    def run_one(text: str, *options: str) -> Result:
        script = tmp_path / "script.sql"
        script.write_text(text, "utf-8")
        return CliRunner().invoke(
            application, ["tsql", "run", str(script), "--database", f"Shop={database.url}", *options]
        )

    return run_one


@pytest.fixture
def shown(run: Run) -> Shown:
    """Run a script, and return what is printed below the first statement that prints."""

    def run_one(text: str) -> list[str]:
        done = run(text)
        assert done.exit_code == 0, done.output
        return [line.rstrip() for line in done.stdout.splitlines() if line.strip()]

    return run_one


def test_a_message_goes_there_and_an_answer_comes_back(shown: Shown) -> None:
    lines = shown(
        DEFINED
        + BEGUN
        + """
        DECLARE @body nvarchar(max)
        SET @body = N'<order id="1"/>'
        ;SEND ON CONVERSATION @dh MESSAGE TYPE [//shop/order] (@body)
        GO
        DECLARE @dh uniqueidentifier, @body nvarchar(100), @type sysname
        BEGIN TRAN
        WAITFOR (
          RECEIVE TOP (1) @dh = conversation_handle, @body = message_body, @type = message_type_name FROM dbo.Orders
        ), TIMEOUT 5000
        IF @type = '//shop/order'
        BEGIN
          SELECT @type AS type, @body AS body
          ;SEND ON CONVERSATION @dh MESSAGE TYPE [//shop/ack] (N'taken')
          END CONVERSATION @dh
        END
        COMMIT
        GO
        RECEIVE CAST(message_body AS NVARCHAR(MAX)) AS body, message_type_name FROM Acks
        RECEIVE TOP (1) * FROM Acks
        """
    )
    assert lines == [
        "(1 rows affected)",
        "type         body",
        "------------ ---------------",
        '//shop/order <order id="1"/>',
        "(1 rows affected)",
        "body  message_type_name",
        "----- --------------------------------------------------------",
        "taken //shop/ack",
        "NULL  http://schemas.microsoft.com/SQL/ServiceBroker/EndDialog",
        "(2 rows affected)",
        *lines[-3:],
    ]
    assert lines[-1] == "(0 rows affected)"


XML = """
DECLARE @dh uniqueidentifier, @order XML
SET @order = N'<order id="1"><item>tea</item></order>'
BEGIN DIALOG @dh FROM SERVICE [//shop/client] TO SERVICE '//shop/orders' ON CONTRACT [//shop/contract]
  WITH ENCRYPTION = OFF
;SEND ON CONVERSATION @dh MESSAGE TYPE [//shop/order] (@order)
GO
DECLARE @body XML
RECEIVE CAST(message_body AS XML) AS body FROM Orders
"""


def test_xml_is_read_where_the_server_has_it(
    start_server: Callable[[int], EmbeddedServer], run: Run, database: Database
) -> None:
    done = run(DEFINED + XML)
    assert done.exit_code == 1
    assert "script.sql:11:1: XML needs a server that was built with libxml" in done.stderr
    with database.connect() as session:
        assert session.execute("select from broker.service_queues where name = 'orders'").fetchone() is None
    server = start_server(15)
    name = f"xml_{uuid.uuid4().hex[:8]}"
    other = migrated_database(server, name)
    done = run("USE Other\nGO\n" + DEFINED + XML, "--database", f"Other={other.url}")
    with psycopg.connect(server.url("postgres"), autocommit=True) as session:
        session.execute(f'drop database "{name}" with (force)'.encode())
    assert done.exit_code == 0, done.output
    assert '<order id="1"><item>tea</item></order>' in done.stdout


def test_a_rollback_puts_the_message_back(shown: Shown) -> None:
    lines = shown(
        DEFINED
        + BEGUN
        + """
        SEND ON CONVERSATION @dh MESSAGE TYPE [//shop/order] (N'<a/>')
        GO
        DECLARE @rounds int = 0, @group uniqueidentifier
        WHILE 1 = 1
        BEGIN
          BEGIN TRAN
          GET CONVERSATION GROUP @group FROM Orders
          IF @group IS NULL BEGIN ROLLBACK BREAK END
          DECLARE @t TABLE (handle uniqueidentifier, body nvarchar(max))
          ;RECEIVE conversation_handle, message_body FROM Orders INTO @t WHERE conversation_group_id = @group
          SET @rounds += 1
          IF @rounds < 3 BEGIN ROLLBACK CONTINUE END
          SELECT body, @@TRANCOUNT AS depth, @rounds AS round FROM @t
          COMMIT
        END
        PRINT 'left after ' + CAST(@rounds AS varchar(10))
        """
    )
    assert lines[-5:] == [
        "body depth round",
        "---- ----- -----",
        "<a/>     1     3",
        "(1 rows affected)",
        "left after 3",
    ]


def test_an_error_is_caught_and_the_transaction_goes_on(shown: Shown) -> None:
    assert shown(
        """
        CREATE TABLE dbo.Trade (id int PRIMARY KEY, note nvarchar(20))
        GO
        BEGIN TRAN
        INSERT INTO Trade VALUES (1, N'first')
        BEGIN TRY
          INSERT INTO Trade VALUES (2, N'second')
          INSERT INTO Trade VALUES (1, N'again')
          PRINT 'never'
        END TRY
        BEGIN CATCH
          SELECT ERROR_NUMBER() AS number, XACT_STATE() AS state, ERROR_LINE() AS line
          IF ERROR_NUMBER() <> 2627 THROW
        END CATCH
        COMMIT
        SELECT id FROM Trade ORDER BY id
        """
    )[2:] == [
        *("number state line", "------ ----- ----", "  2627     1    8", "(1 rows affected)"),
        *("id", "--", " 1", " 2", "(2 rows affected)"),
    ]


def test_xact_abort_leaves_nothing_to_commit(run: Run) -> None:
    done = run(
        """
        CREATE TABLE t (id int PRIMARY KEY)
        GO
        SET XACT_ABORT ON
        BEGIN TRAN
        BEGIN TRY
          INSERT INTO t VALUES (1)
          INSERT INTO t VALUES (1)
        END TRY
        BEGIN CATCH
          IF XACT_STATE() = -1 BEGIN PRINT 'doomed' ROLLBACK END
          INSERT INTO t VALUES (2)
        END CATCH
        SELECT id FROM t
        BEGIN TRAN
        BEGIN TRY
          RAISERROR (N'order %d of %s', 16, 3, 5, N'Ann')
        END TRY
        BEGIN CATCH
          PRINT ERROR_MESSAGE()
          COMMIT
        END CATCH
        """
    )
    lines = [line for line in done.stdout.splitlines() if line]
    assert lines[1:] == [
        "doomed",
        "(1 rows affected)",
        "id",
        "--",
        " 2",
        "(1 rows affected)",
        "order 5 of Ann",
    ]
    assert done.exit_code == 1
    assert "script.sql:21:11: Msg 3930: " in done.stderr


def test_raiserror_does_not_end_a_batch_and_throw_does(run: Run) -> None:
    done = run(
        "RAISERROR ('for information', 10, 1)\nRAISERROR ('goes on', 16, 1) PRINT 'here'\nGO\nPRINT 'not here'"
    )
    assert (done.exit_code, done.stdout) == (1, "for information\nhere\n")
    assert "script.sql:2:1: Msg 50000: goes on" in done.stderr
    done = run("BEGIN TRY THROW 50001, N'x', 2 END TRY\nBEGIN CATCH\n  THROW\nEND CATCH\nPRINT 'not here'")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "script.sql:1:11: Msg 50001: x" in done.stderr


def test_rows_and_errors_are_counted_as_in_sql_server(run: Run) -> None:
    done = run("""
        DECLARE @n int, @t TABLE (a int)
        INSERT INTO @t VALUES (1), (2), (3)
        DECLARE @m int
        PRINT 'insert ' + CAST(@@ROWCOUNT AS varchar(9))
        PRINT 'print ' + CAST(@@ROWCOUNT AS varchar(9))
        SET @n = 5
        PRINT 'set ' + CAST(@@ROWCOUNT AS varchar(9))
        DELETE FROM @t WHERE a < 3
        IF @@ROWCOUNT = 2 PRINT 'if ' + CAST(@@ROWCOUNT AS varchar(9))
        RAISERROR ('raised', 16, 1)
        IF @@ERROR = 50000 PRINT 'error ' + CAST(@@ERROR AS varchar(9))
        """)
    shown = [
        line
        for line in done.output.splitlines()
        if line.split(" ")[0] in ("insert", "print", "set", "if", "error")
    ]
    assert shown == ["insert 3", "print 0", "set 1", "if 0", "error 0"], done.output


def test_a_batch_knows_the_identity_and_not_a_procedures_count(run: Run) -> None:
    done = run(
        """
        CREATE TABLE dbo.t (id int IDENTITY(5, 1), a int)
        GO
        CREATE PROCEDURE dbo.p AS SELECT 1 AS a
        GO
        INSERT INTO dbo.t (a) VALUES (1), (2)
        GO
        DECLARE @h uniqueidentifier
        RECEIVE TOP (1) @h = conversation_handle FROM dbo.q
        PRINT 'identity ' + CAST(SCOPE_IDENTITY() AS varchar(9))
        EXEC dbo.p
        IF @@ROWCOUNT = 1 PRINT 'one'
        """.replace("CREATE TABLE", "CREATE QUEUE dbo.q\nGO\nCREATE TABLE")
    )
    assert "identity 6" in done.output
    assert done.exit_code == 1
    assert "script.sql:14:9: @@ROWCOUNT behind EXEC is that of the procedure" in done.output


def test_a_conversion_that_fails_dooms_its_transaction(run: Run) -> None:
    done = run("""
        DECLARE @n int, @text nvarchar(9) = 'x'
        BEGIN TRAN
        BEGIN TRY SET @n = CAST(@text AS int) END TRY
        BEGIN CATCH
          PRINT 'state ' + CAST(XACT_STATE() AS varchar(9))
          ROLLBACK
        END CATCH
        """)
    assert "state -1" in done.output, done.output


def test_a_batch_asks_for_codes_and_locks(shown: Shown) -> None:
    lines = shown("""
        CREATE PROCEDURE dbo.p @n int AS
        RETURN @n + 1
        GO
        DECLARE @r int, @text nvarchar(9), @code smallint
        EXEC @r = dbo.p 4
        EXEC @text = dbo.p @n = 5
        EXEC @code = sp_getapplock @Resource = N'x', @LockMode = 'Exclusive', @LockOwner = 'Session', @LockTimeout = 10
        PRINT CONCAT(@r, ' ', @text, ' ', @code)
        EXEC @code = sp_releaseapplock @Resource = N'x', @LockOwner = 'Session'
        PRINT @code
        SELECT TOP (30) PERCENT x.a FROM (VALUES (1), (2), (3), (4)) AS x (a) WHERE x.a > 1 ORDER BY x.a DESC
        CREATE QUEUE q
        SELECT CAST(message_body AS nvarchar(max)) AS body FROM q
        """)
    assert lines[:2] == ["5 6 0", "0"]
    assert [line for line in lines if line.isdigit()] == ["0", "4"]


def test_goto_and_tables_as_arguments_in_a_batch(shown: Shown) -> None:
    lines = shown("""
        CREATE TYPE Names AS TABLE (name nvarchar(20))
        GO
        CREATE PROCEDURE dbo.Say @names Names READONLY, @last nvarchar(20) OUTPUT AS
        SELECT name FROM @names SELECT @last = MAX(name) FROM @names
        GO
        DECLARE @n int = 1, @names Names
        INSERT @names VALUES (N'tea')
        WHILE 1 = 1
        BEGIN
          again:
          IF @n > 3 GOTO done
          SET @n += 1
          IF @n = 2 GOTO again
        END
        PRINT 'never'
        done:
        PRINT @n
        DECLARE @last nvarchar(20)
        EXEC dbo.Say @names, @last OUTPUT
        PRINT @last
        """)
    shown_rows = lines[lines.index("4") - 1 :]
    assert shown_rows == ["(1 rows affected)", "4", "name", "----", "tea", "(1 rows affected)", "tea"]


def test_savepoints_and_nested_transactions_are_counted(run: Run) -> None:
    done = run(
        """
        CREATE TABLE t (id int)
        BEGIN TRAN
        INSERT t VALUES (1)
        SAVE TRAN half
        INSERT t VALUES (2)
        ROLLBACK TRAN half
        BEGIN TRAN
        PRINT @@TRANCOUNT
        COMMIT
        PRINT @@TRANCOUNT
        COMMIT TRAN
        SELECT COUNT(*) AS n FROM t
        COMMIT
        """
    )
    lines = [line for line in done.stdout.splitlines() if line and "affected" not in line]
    assert lines == ["2", "1", "n", "-", "1"]
    assert "Msg 3902: " in done.stderr


def test_texts_run_with_variables_of_their_own(shown: Shown) -> None:
    assert shown(
        """
        CREATE TABLE t (id int, name nvarchar(20))
        DECLARE @n int, @sql nvarchar(200) = N'INSERT INTO t VALUES (@id, @name); SET @rows = @@ROWCOUNT'
        EXEC sp_executesql @sql, N'@id int, @name nvarchar(20), @rows int OUTPUT', @id = 1, @name = N'O''Neil', @rows = @n OUTPUT
        PRINT @n
        EXEC (N'DECLARE @n int = 7 SELECT name, @n AS n FROM t')
        PRINT @n
        """
    ) == ["(1 rows affected)", "1", "name   n", "------ -", "O'Neil 7", "(1 rows affected)", "1"]


def test_tables_are_altered_and_have_indexes(run: Run, database: Database) -> None:
    done = run(
        """
        CREATE TABLE Parents (id int PRIMARY KEY)
        CREATE TABLE Things (id int NOT NULL, name nvarchar(5), parent int, gone int)
        INSERT INTO Things VALUES (1, N'a', 7, 0), (2, N'b', NULL, 0)
        GO
        ALTER TABLE [dbo].[Things] ADD later int NULL CONSTRAINT DF_later DEFAULT (5), at_once int DEFAULT 6 WITH VALUES, [is on] bit NOT NULL DEFAULT 1
        ALTER TABLE Things ADD CONSTRAINT PK_Things PRIMARY KEY CLUSTERED (id ASC) WITH (PAD_INDEX = OFF) ON [PRIMARY]
        ALTER TABLE Things WITH NOCHECK ADD CONSTRAINT FK_Things FOREIGN KEY (parent) REFERENCES dbo.Parents (id) ON DELETE SET NULL
        ALTER TABLE Things CHECK CONSTRAINT FK_Things
        ALTER TABLE Things ADD CONSTRAINT DF_name DEFAULT N'none' FOR name, CHECK (LEN(name) > 0)
        ALTER TABLE Things ALTER COLUMN name nvarchar(20) NOT NULL
        ALTER TABLE Things DROP COLUMN gone
        ALTER TABLE Things SET (LOCK_ESCALATION = AUTO)
        CREATE UNIQUE NONCLUSTERED INDEX IX_parent ON dbo.Things (parent ASC, name DESC) INCLUDE (later) WHERE id > 1 WITH (FILLFACTOR = 80)
        CREATE INDEX IX_name ON Things (name)
        CREATE INDEX IX_other ON Things (name)
        DROP INDEX IX_name ON Things
        DROP INDEX IF EXISTS Things.IX_other
        INSERT INTO Things (id) VALUES (3)
        CREATE TABLE #t (a int)
        CREATE INDEX IX_t ON #t (a)
        ALTER TABLE #t ADD b int
        INSERT INTO #t (b) SELECT at_once FROM Things
        """
    )
    assert done.exit_code == 0, done.output
    with database.connect() as session:
        things = 'select id, name, parent, later, at_once, "is on" from dbo.things order by id'
        # A default is for rows to come, unless WITH VALUES says otherwise.
        assert session.execute(things.encode()).fetchall() == [
            (1, "a", 7, None, 6, 1),
            (2, "b", None, None, 6, 1),
            (3, "none", None, 5, 6, 1),
        ]
        indexes = "select indexname from pg_indexes where tablename = 'things' order by 1"
        assert session.execute(indexes.encode()).fetchall() == [("ix_parent",), ("pk_things",)]
        refusals = {
            "insert into dbo.things (id, parent) values (4, 8)": psycopg.errors.ForeignKeyViolation,
            "insert into dbo.things (id, name) values (4, '')": psycopg.errors.CheckViolation,
            # NULL is equal to NULL in an index.
            "insert into dbo.things (id) values (4)": psycopg.errors.UniqueViolation,
        }
        for sql, error in refusals.items():
            with pytest.raises(error):
                session.execute(sql.encode())


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("ALTER TABLE t NOCHECK CONSTRAINT c", "NOCHECK has no form"),
        ("ALTER TABLE t ALTER COLUMN a datetime", "change their kind"),
        ("ALTER TABLE t ADD DEFAULT 1 FOR unknown", "the type of unknown is not known"),
        ("ALTER TABLE t ADD a AS b + 1", "computed column"),
        ("ALTER TABLE other.dbo.t ADD a int", "write USE before"),
        ("ALTER TABLE t ADD", "a column is missing"),
        ("CREATE INDEX i ON t (a + 1)", "an index has columns alone"),
        ("CREATE INDEX i ON #t (a)", "#t is not declared"),
        ("DROP INDEX i", "ON and a table"),
    ],
)
def test_a_change_of_a_table_without_a_form_is_refused(run: Run, script: str, why: str) -> None:
    done = run(f"CREATE TABLE t (a int)\nGO\n{script}")
    assert done.exit_code == 1
    assert "script.sql:3:" in done.output
    assert why in done.output


def test_what_a_procedure_or_a_text_selects_is_inserted(run: Run, shown: Shown) -> None:
    made = """
        CREATE TABLE Things (id int, name nvarchar(9), bin varbinary(9), made datetime)
        CREATE TABLE Names (name nvarchar(9) NOT NULL CHECK (name <> 'bad'))
        INSERT INTO Things VALUES (1, N'it''s', 0x0AFF, '2020-01-02T03:04:05.006'), (2, NULL, NULL, NULL)
        GO
        CREATE PROCEDURE Copied @least int AS
        INSERT INTO Names VALUES ('called')
        SELECT id + 10 AS id, name, bin, made FROM Things WHERE id >= @least
        """
    assert "(2 rows affected)" in shown(
        made
        + """
        GO
        INSERT INTO dbo.Things EXEC Copied 1
        DECLARE @t TABLE (id int, bin varbinary(9))
        INSERT @t (bin, id) EXEC ('SELECT bin, id FROM Things WHERE id > 10')
        IF @@ROWCOUNT = 2 PRINT 'two'
        BEGIN TRAN
        BEGIN TRY
          INSERT INTO Names (name) EXEC (N'INSERT INTO Names VALUES (''text'') SELECT ''bad'' AS b')
        END TRY
        BEGIN CATCH
          PRINT ERROR_NUMBER()
        END CATCH
        COMMIT
        """
    )
    # A statement that fails leaves nothing, in a transaction or outside of one.
    failed = run("GO\nINSERT INTO Names (name) EXEC Copied 1")
    assert failed.exit_code == 1
    assert "Msg 213" in failed.output
    assert shown("SELECT name FROM Names SELECT id, bin FROM Things WHERE made IS NOT NULL ORDER BY id") == [
        "name",
        "------",
        "called",
        "(1 rows affected)",
        "id bin",
        "-- ------",
        " 1 0x0AFF",
        "11 0x0AFF",
        "(2 rows affected)",
    ]


def test_a_cursor_goes_over_its_rows(shown: Shown) -> None:
    assert shown(
        """
        CREATE TABLE #names (name nvarchar(10))
        INSERT #names VALUES (N'a'), (N'b')
        GO
        DECLARE @name nvarchar(10)
        DECLARE names CURSOR LOCAL FAST_FORWARD FOR SELECT name FROM #names ORDER BY name
        OPEN names
        FETCH NEXT FROM names INTO @name
        WHILE @@FETCH_STATUS = 0
        BEGIN
          PRINT @name
          FETCH NEXT FROM names INTO @name
        END
        CLOSE names
        DEALLOCATE names
        """
    ) == ["(2 rows affected)", "a", "b"]


def test_timers_moves_and_errors_of_conversations(shown: Shown) -> None:
    lines = shown(
        DEFINED
        + BEGUN
        + """
        DECLARE @other uniqueidentifier, @group uniqueidentifier = NEWID(), @type sysname, @seconds int = 60
        BEGIN DIALOG @other FROM SERVICE [//shop/client] TO SERVICE '//shop/orders', 'CURRENT DATABASE'
          ON CONTRACT [//shop/contract] WITH RELATED_CONVERSATION_GROUP = @group, LIFETIME = 60, ENCRYPTION = OFF
        MOVE CONVERSATION @dh TO @group
        BEGIN CONVERSATION TIMER (@dh) TIMEOUT = @seconds
        SEND ON CONVERSATION (@dh, @other) MESSAGE TYPE [//shop/order] (N'<a/>')
        END CONVERSATION @other WITH ERROR = 50001 DESCRIPTION = N'out of stock'
        PRINT '[' + GET_TRANSMISSION_STATUS(@dh) + ']'
        SELECT COUNT(*) AS n FROM Orders WHERE message_type_name = '//shop/order'
        END CONVERSATION @dh WITH CLEANUP
        """
    )
    assert lines == ["[]", "n", "-", "2", "(1 rows affected)"]


def test_a_missing_handle_is_no_wildcard(run: Run) -> None:
    done = run(
        DEFINED + "DECLARE @g uniqueidentifier; RECEIVE * FROM Orders WHERE conversation_group_id = @g"
    )
    assert done.exit_code == 1
    assert "Msg 8418: " in done.stderr


STATES = "SELECT is_initiator AS i, state AS s, state_desc AS d FROM sys.conversation_endpoints"


def test_a_conversations_rows_order_and_states_are_those_of_sql_server(shown: Shown) -> None:
    lines = shown(
        DEFINED
        + BEGUN
        + f"""
        {STATES}
        ;SEND ON CONVERSATION @dh MESSAGE TYPE [//shop/order] (N'one')
        ;SEND ON CONVERSATION @dh MESSAGE TYPE [//shop/order] (N'two')
        {STATES} ORDER BY i DESC
        GO
        DECLARE @dh uniqueidentifier
        SELECT TOP (1) @dh = conversation_handle FROM Orders
        ;RECEIVE message_sequence_number AS n, CAST(message_body AS nvarchar(9)) AS b FROM Orders
        ;SEND ON CONVERSATION @dh MESSAGE TYPE [//shop/ack] (N'done')
        END CONVERSATION @dh
        {STATES} ORDER BY i DESC
        GO
        DECLARE @dh uniqueidentifier
        SELECT TOP (1) @dh = conversation_handle FROM Acks
        ;RECEIVE CAST(message_body AS nvarchar(9)) AS b, message_type_name AS t FROM Acks
        END CONVERSATION @dh
        {STATES}
        GO
        """
        + BEGUN
        + f"""
        ;SEND ON CONVERSATION @dh MESSAGE TYPE [//shop/order] (N'three')
        END CONVERSATION @dh WITH ERROR = 7 DESCRIPTION = N'no more'
        {STATES} ORDER BY s
        SELECT message_type_name AS t FROM Orders ORDER BY queuing_order
        ;RECEIVE TOP (1) @dh = conversation_handle FROM Orders
        ;RECEIVE CAST(message_body AS nvarchar(9)) AS b FROM Orders
        END CONVERSATION @dh WITH CLEANUP
        {STATES}
        """
    )
    rows = [" ".join(one.split()) for one in lines if "affected" not in one and not one.startswith("-")]
    own = "http://schemas.microsoft.com/SQL/ServiceBroker"
    assert rows == [
        *("i s d", "1 SO STARTED_OUTBOUND"),
        *("i s d", "1 CO CONVERSING", "0 CO CONVERSING"),
        *("n b", "0 one", "1 two"),
        *("i s d", "1 DI DISCONNECTED_INBOUND", "0 CD CLOSED"),
        *("b t", "done //shop/ack", f"NULL {own}/EndDialog"),
        *("i s d", "0 CD CLOSED"),
        *("i s d", "0 CD CLOSED", "0 ER ERROR"),
        # An error overtakes what was sent before it.
        *("t", "//shop/order", f"{own}/Error"),
        *("b", "three"),
        *("i s d", "0 CD CLOSED"),
    ]


def test_the_name_of_the_scripts_own_database_may_stand_before_a_schema(shown: Shown, run: Run) -> None:
    lines = shown(
        """
        CREATE QUEUE SHOP.dbo.Waiting
        ALTER QUEUE shop..Waiting WITH RETENTION = ON
        CREATE SERVICE [//shop/waiting] ON QUEUE [Shop].[dbo].[Waiting] ([DEFAULT])
        CREATE TABLE shop.dbo.Parts (n int)
        INSERT INTO Shop.dbo.Parts VALUES (1)
        INSERT INTO shop..Parts SELECT 2
        GO
        CREATE PROCEDURE Counted @at_least int AS
          DECLARE @n int
          SELECT @n = COUNT(*) FROM [shop].dbo.Parts WHERE shop.dbo.Parts.n >= @at_least
          PRINT @n
        GO
        EXEC shop.dbo.Counted 2
        SELECT COUNT(*) AS waiting FROM Shop.sys.transmission_queue
        SELECT shop.dbo.Parts.n FROM shop.dbo.Parts ORDER BY n
        IF OBJECT_ID('shop..Parts') = OBJECT_ID('dbo.Parts') PRINT 'one table'
        """
    )
    assert [line.strip() for line in lines if "affected" not in line] == [
        "1", "waiting", "-------", "0", "n", "-", "1", "2", "one table"
    ]  # fmt: skip
    for text, column in (
        ("SELECT n FROM other.dbo.Parts", 8),
        ("EXEC other.dbo.Counted 2", 1),
        ("SELECT OBJECT_ID('other.dbo.Parts')", 8),
        ("CREATE QUEUE other.dbo.Waiting", 1),
        ("ALTER QUEUE Waiting WITH ACTIVATION (PROCEDURE_NAME = other..Counted)", 1),
    ):
        done = run(f"PRINT 'before'\n{text}")
        assert done.exit_code == 1
        assert "before" not in done.stdout
        assert f":2:{column}: " in done.output
        assert "another database" in done.output


def test_a_procedure_that_commits_is_a_part_of_the_batchs_transaction(shown: Shown) -> None:
    lines = shown(
        """
        CREATE TABLE Kept (n int)
        GO
        CREATE PROCEDURE Keep @n int AS BEGIN TRAN INSERT INTO Kept VALUES (@n) COMMIT
        GO
        BEGIN TRAN
        EXEC Keep 1
        PRINT @@TRANCOUNT
        ROLLBACK
        BEGIN TRAN
        BEGIN TRAN
        EXEC Keep 2
        COMMIT
        EXEC Keep 3
        COMMIT
        EXEC Keep 4
        BEGIN TRAN
        ROLLBACK
        SELECT n FROM Kept ORDER BY n
        """
    )
    assert [line for line in lines if "affected" not in line] == ["1", "n", "-", "2", "3", "4"]


def test_nothing_runs_where_a_later_batch_is_refused(run: Run, database: Database) -> None:
    done = run("CREATE QUEUE q\nGO\nDECLARE @a int\nSET @b = 1")
    assert done.exit_code == 1
    assert "script.sql:4:1: the variable @b is not declared" in done.stderr
    with database.connect() as session:
        assert session.execute("select from broker.service_queues where name = 'q'").fetchone() is None


def test_a_single_transaction_holds_the_scripts_own(run: Run, database: Database) -> None:
    script = "CREATE TABLE t (a int)\nBEGIN TRAN\nINSERT t VALUES (1)\nCOMMIT\nGO\nSELECT a FROM missing"
    assert run(script, "--single-transaction").exit_code == 1
    with database.connect() as session:
        assert session.execute("select to_regclass('dbo.t')").fetchone() == (None,)
    assert run(script.partition("\nGO")[0], "--single-transaction").exit_code == 0
    with database.connect() as session:
        assert session.execute("select a from dbo.t").fetchall() == [(1,)]


def test_a_percent_sign_in_a_name_or_text_is_itself(shown: Shown) -> None:
    lines = shown(
        r"""
        CREATE TABLE t1 (id int, [a%b] nvarchar(9), [a%%b] nvarchar(9), [x%(@n)s] int, [\%"] nvarchar(20) DEFAULT '5%')
        GO
        DECLARE @n int = 6
        INSERT INTO t1 (id, [a%%b]) VALUES (1, N'double')
        UPDATE t1 SET [a%b] = N'one' OUTPUT inserted.[a%b] AS o, deleted.id AS d WHERE id = 1
        UPDATE t1 SET [x%(@n)s] = @n + 7 % 4 WHERE [\%"] LIKE '5%' AND [a%%b] = 'double'
        SELECT id, [a%b], [a%%b], [x%(@n)s], [\%"] AS [%(@n)s%] FROM dbo.t1 AS [t%(@n)s] WHERE [t%(@n)s].id < @n
        CREATE TABLE [%(@n)s%%] (n int)
        SELECT COUNT(*) AS c FROM sys.schemas AS s WHERE s.name = 'dbo' AND @n = 6
        SELECT CASE WHEN OBJECT_ID('%(@n)s%%') IS NULL THEN 'no' ELSE 'yes' END AS found
        IF OBJECT_ID('%(@n)s%') IS NULL PRINT '%(@n)s'
        """
    )
    assert lines == [
        "(1 rows affected)",
        "o   d",
        "--- -",
        "one 1",
        "(1 rows affected)",
        "(1 rows affected)",
        "id a%b a%%b   x%(@n)s %(@n)s%",
        "-- --- ------ ------- -------",
        " 1 one double       9 5%",
        "(1 rows affected)",
        "c",
        "-",
        "1",
        "(1 rows affected)",
        "found",
        "-----",
        "yes",
        "(1 rows affected)",
        "%(@n)s",
    ]
