"""A procedure of T-SQL does in the database what it does in SQL Server, and needs no client for it."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pybroker.tsql import modules
from pybroker.tsql.expressions.types import INTEGER, TEXT
from pybroker.tsql.known import Known
from pybroker.tsql.language import read
from pybroker.tsql.preparing import prepare
from pybroker.tsql.source import Batch, Position, ScriptError, batches
from tests.patience import until
from tests.shop import in_background

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import Database

DEFINITIONS = """
    create schema dbo;
    select broker.create_message_type(name) from unnest(array['//x/Request', '//x/Reply']) name;
    select broker.create_contract('//x/Contract', sent_by_initiator => array['//x/Request'], sent_by_target => array['//x/Reply']);
    select broker.create_queue('client', schema => 'dbo'), broker.create_queue('target', schema => 'dbo');
    select broker.create_service('Client', 'client'), broker.create_service('Target', 'target', array['//x/Contract']);
    create table dbo.done (n integer generated always as identity, body text);
    create table dbo.errors (number integer, message text, transactions integer, state integer);
"""
TABLES = {
    ("dbo", "done"): {"n": INTEGER, "body": TEXT},
    ("dbo", "errors"): {"number": INTEGER, "message": TEXT, "transactions": INTEGER, "state": INTEGER},
}


class Programs:
    """A database with a client, a target, and translated procedures."""

    def __init__(self, database: Database, session: psycopg.Connection[Any]) -> None:
        self.database = database
        self.session = session
        self.notices: list[str] = []
        self.known = Known(tables=dict(TABLES))
        session.add_notice_handler(lambda notice: self.notices.append(notice.message_primary or ""))
        session.execute(DEFINITIONS.encode())
        self.notices.clear()

    def create(self, text: str) -> list[str]:
        notes: list[str] = []
        for batch in batches(text):
            for step in prepare(read(batch), batch, self.known):
                self.session.execute((step.sql or "").encode())
                notes += step.notes
        self.notices.clear()
        return notes

    def call(self, text: str) -> list[str]:
        self.notices.clear()
        self.session.execute(f"call {text}".encode())
        return self.notices

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return self.session.execute(query.encode()).fetchall()

    def send(self, *bodies: str, handle: Any = None) -> Any:
        begin = "select broker.begin_dialog('Client', 'Target', '//x/Contract', encryption => false)"
        handle = handle or self.rows(begin)[0][0]
        for body in bodies:
            self.session.execute("select broker.send(%s, '//x/Request', %s::text)", (handle, body))
        return handle

    def waiting(self, queue: str = "target") -> list[str]:
        bodies = f"select convert_from(message_body, 'UTF8') from dbo.{queue} order by queuing_order"
        return [body for (body,) in self.rows(bodies)]

    def done(self) -> list[str]:
        return [body for (body,) in self.rows("select body from dbo.done order by n")]


@pytest.fixture
def programs(any_database: Database) -> Iterator[Programs]:
    with any_database.connect() as session:
        yield Programs(any_database, session)


LOOP = """
CREATE PROCEDURE dbo.HandleRequests AS
BEGIN
  SET NOCOUNT ON;
  DECLARE @h uniqueidentifier, @body nvarchar(max), @type sysname;
  WHILE (1 = 1)
  BEGIN
    BEGIN TRY
      BEGIN TRANSACTION;
      WAITFOR (
        RECEIVE TOP (1) @h = conversation_handle, @body = CAST(message_body AS nvarchar(max)), @type = message_type_name
        FROM dbo.Target
      ), TIMEOUT 100;
      IF (@@ROWCOUNT = 0)
      BEGIN
        ROLLBACK TRANSACTION;
        BREAK;
      END
      IF @type = N'//x/Request'
      BEGIN
        INSERT INTO dbo.Done (body) VALUES (@body);
        IF @body = N'bad' RAISERROR (N'%s is %d times bad', 16, 3, @body, 2);
        SEND ON CONVERSATION @h MESSAGE TYPE [//x/Reply] (N'<' + @body + N'>');
      END
      ELSE IF @type = 'http://schemas.microsoft.com/SQL/ServiceBroker/EndDialog'
        END CONVERSATION @h;
      COMMIT TRANSACTION;
    END TRY
    BEGIN CATCH
      IF XACT_STATE() <> 0 ROLLBACK TRANSACTION;
      INSERT INTO dbo.Errors VALUES (ERROR_NUMBER(), ERROR_MESSAGE(), @@TRANCOUNT, ERROR_STATE());
      END CONVERSATION @h WITH ERROR = 1 DESCRIPTION = N'bad';
    END CATCH
  END
END
"""


def test_the_receive_loop_commits_what_is_good_and_undoes_what_fails(programs: Programs) -> None:
    programs.create(LOOP)
    programs.send("a", "b")
    programs.send("bad")
    programs.send("é")
    programs.call("dbo.handlerequests()")
    assert programs.done() == ["a", "b", "é"]
    assert programs.rows("select number, message, transactions, state from dbo.errors") == [
        (50000, "bad is 2 times bad", 0, 3)
    ]
    assert programs.waiting() == []
    assert [one for one in programs.waiting("client") if "Error" not in one] == ["<a>", "<b>", "<é>"]


CHAPTER = """
CREATE PROCEDURE tradeEntryProc AS
DECLARE @dh uniqueidentifier
DECLARE @msg varbinary(max)
DECLARE @ack nvarchar(max)
DECLARE @cg uniqueidentifier
WHILE (1=1)
BEGIN
  BEGIN TRAN;
  SET @cg = NULL;
  WAITFOR (GET CONVERSATION GROUP @cg FROM Target), TIMEOUT 100
  IF @cg IS NULL
  BEGIN ROLLBACK TRANSACTION BREAK END;
  ;RECEIVE TOP(1) @dh=conversation_handle, @msg=message_body FROM Target WHERE conversation_group_id = @cg
  INSERT INTO done (body) VALUES (@msg)
  SET @ack='<id>1</id><ackid>1</ackid>'
  ;SEND ON CONVERSATION @dh MESSAGE TYPE [//x/Reply] (@ack)
  END CONVERSATION @dh
  COMMIT TRAN
END
"""


def test_the_chapters_service_program_answers_and_ends(programs: Programs) -> None:
    programs.create(CHAPTER)
    programs.send("<id>Order1</id>")
    programs.send("<id>Order2</id>")
    programs.call("dbo.tradeentryproc()")
    assert programs.done() == ["<id>Order1</id>", "<id>Order2</id>"]
    types = "select message_type_name from dbo.client where message_body is not null"
    assert programs.rows(types) == [("//x/Reply",), ("//x/Reply",)]


WHITEPAPER = """
create procedure [dbo].[SRPerf_Queue_LabTest]
as
begin
declare @receive table (message_type sysname,
                        message_body varbinary(max),
                        [dialog] uniqueidentifier)
while 1=1
begin
    begin tran
    waitfor (receive top (10000)
            message_type_name,
            message_body,
            conversation_handle
            from target
            into @receive
            ), timeout 100;
    if @@rowcount = 0
    begin
        rollback tran
        break
    end
    insert into dbo.done (body)
    select cast(message_body as varbinary(3))
    from @receive
    delete from @receive
    commit tran
end -- end while
end -- end procedure
"""


def test_the_whitepapers_procedure_receives_into_a_table_variable(programs: Programs) -> None:
    notes = programs.create(WHITEPAPER)
    assert any("ROLLBACK empties the table variable @receive" in note for note in notes)
    for _ in range(2):
        programs.send("first", "second")
        programs.call("dbo.srperf_queue_labtest()")
    assert programs.done() == ["fir", "sec"] * 2


GRANULAR = """
CREATE PROCEDURE dbo.KeepGoing AS
DECLARE @h uniqueidentifier, @body nvarchar(max)
BEGIN TRY
  BEGIN TRAN
  ;RECEIVE TOP (1) @h = conversation_handle, @body = message_body FROM target
  INSERT INTO dbo.done (body) VALUES (@body)
  INSERT INTO dbo.done (body) SELECT CAST(1 / (LEN(@body) - 3) AS varchar(9))
  INSERT INTO dbo.done (body) VALUES ('end')
  COMMIT
END TRY
BEGIN CATCH
  INSERT INTO dbo.errors (number, message, transactions, state)
  VALUES (ERROR_NUMBER(), ERROR_MESSAGE(), @@TRANCOUNT, XACT_STATE())
  COMMIT
END CATCH
"""


def test_catch_without_rollback_keeps_what_was_done_before_the_error(programs: Programs) -> None:
    programs.create(GRANULAR)
    programs.send("abc", "abcd")
    programs.call("dbo.keepgoing()")
    # The message is received, as in SQL Server: only the statement that failed is undone.
    assert (programs.done(), programs.waiting()) == (["abc"], ["abcd"])
    assert programs.rows("select number, transactions, state from dbo.errors") == [(8134, 1, 1)]
    programs.call("dbo.keepgoing()")
    assert programs.done() == ["abc", "abcd", "1", "end"]


def test_catch_still_holds_the_group_that_was_received(programs: Programs) -> None:
    text = GRANULAR.replace("  COMMIT\nEND CATCH", "  WAITFOR DELAY '00:00:02'\n  COMMIT\nEND CATCH")
    programs.create(text)
    programs.send("abc", "second")
    with programs.database.connect() as other, programs.database.connect() as third:
        running = in_background(lambda: other.execute("call dbo.keepgoing()"))
        sleeping = "select count(*) from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database()"
        until(lambda: third.execute(sleeping.encode()).fetchone() == (1,))
        assert third.execute("select * from broker.receive('target')").fetchall() == []
        running.result()
        assert len(third.execute("select * from broker.receive('target')").fetchall()) == 1


@pytest.mark.parametrize(
    "wait",
    [
        "DECLARE @d nvarchar(8) SET @d = N'00:00:05' WAITFOR DELAY @d",
        "DECLARE @d datetime SET @d = '1900-01-01T00:00:05' WAITFOR DELAY @d",
        # Tomorrow, if the day ends in the next seconds.
        "DECLARE @t datetime SET @t = DATEADD(second, 5, GETDATE()) WAITFOR TIME @t",
    ],
)
def test_waitfor_takes_a_time_from_a_variable(programs: Programs, wait: str) -> None:
    programs.create(f"CREATE PROCEDURE dbo.p AS\n{wait}\nINSERT INTO dbo.done (body) VALUES ('awake')")
    with programs.database.connect() as other, programs.database.connect() as third:
        running = in_background(lambda: other.execute("call dbo.p()"))
        sleeping = "select count(*) from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database()"
        until(lambda: running.done() or third.execute(sleeping.encode()).fetchone() == (1,))
        assert not running.done(), running.result()
        running.result()
        other.commit()
    assert programs.done() == ["awake"]


def test_what_ran_outside_of_a_transaction_is_not_undone_with_the_next(programs: Programs) -> None:
    programs.create("""
        CREATE PROCEDURE dbo.p AS
        INSERT INTO dbo.done (body) VALUES ('by itself')
        BEGIN TRAN
        INSERT INTO dbo.done (body) VALUES ('undone')
        ROLLBACK
        INSERT INTO dbo.done (body) VALUES ('at the end')
    """)
    programs.call("dbo.p()")
    assert programs.done() == ["by itself", "at the end"]


def test_an_inner_commit_commits_nothing(programs: Programs) -> None:
    programs.create("""
        CREATE PROCEDURE dbo.p @n int AS
        BEGIN TRAN
        INSERT INTO dbo.done (body) VALUES ('outer')
        IF @n > 0 BEGIN
          BEGIN TRAN
          INSERT INTO dbo.done (body) VALUES (CAST(@@TRANCOUNT AS varchar(9)))
        END
        COMMIT
        IF @@TRANCOUNT > 0 BEGIN PRINT 'open' ROLLBACK END
    """)
    assert programs.call("dbo.p(1)") == ["open"]
    assert programs.done() == []
    assert programs.call("dbo.p(0)") == []
    assert programs.done() == ["outer"]


ROW_COUNTS = """
CREATE PROCEDURE dbo.p AS
DECLARE @n int, @body nvarchar(20)
INSERT INTO dbo.done (body) VALUES ('a'), ('b')
PRINT @@ROWCOUNT
UPDATE dbo.done SET body = body + '!' WHERE body = 'a'
IF @@ROWCOUNT = 1 PRINT 'one'
SELECT @body = body FROM dbo.done ORDER BY n
PRINT CAST(@@ROWCOUNT AS varchar(9)) + @body
SELECT @body = 'same', @n = n FROM dbo.done WHERE n > 100
PRINT CAST(@@ROWCOUNT AS varchar(9)) + @body
SET @n = 5
PRINT @@ROWCOUNT
DELETE FROM dbo.done
IF @n = 5 PRINT @@ROWCOUNT
"""


def test_rows_are_counted_as_in_sql_server(programs: Programs) -> None:
    programs.create(ROW_COUNTS)
    # Each row assigns, the last one stays; SET counts one, IF none.
    assert programs.call("dbo.p()") == ["2", "one", "2b", "0b", "1", "0"]


def test_an_error_that_is_asked_for_undoes_its_statement_alone(programs: Programs) -> None:
    programs.session.execute("create unique index on dbo.done (body)")
    programs.create("""
        CREATE PROCEDURE dbo.p AS
        INSERT INTO dbo.done (body) VALUES ('once')
        INSERT INTO dbo.done (body) VALUES ('once')
        IF @@ERROR <> 0 PRINT 'twice'
        INSERT INTO dbo.done (body) VALUES ('more')
        IF @@ERROR = 0 PRINT 'good'
    """)
    assert [one for one in programs.call("dbo.p()") if "violates" not in one] == ["twice", "good"]
    assert programs.done() == ["once", "more"]


def test_errors_have_the_numbers_that_were_raised(programs: Programs) -> None:
    programs.create("""
        CREATE PROCEDURE dbo.p @what int AS
        DECLARE @h uniqueidentifier, @n int
        BEGIN TRY
          IF @what = 1 THROW 50123, 'thrown', 7;
          IF @what = 2 RAISERROR ('raised', 11, 2);
          IF @what = 3 BEGIN SET @h = NEWID(); END CONVERSATION @h END
          IF @what = 4 SET @n = CAST('x' + CAST(@what AS varchar(9)) AS int)
          IF @what = 5 RAISERROR ('only said', 10, 1) WITH NOWAIT;
          PRINT 'no error'
        END TRY
        BEGIN CATCH
          PRINT CONCAT(ERROR_NUMBER(), '/', ERROR_SEVERITY(), '/', ERROR_STATE(), ' ', XACT_STATE())
          IF @what = 1 THROW
        END CATCH
    """)
    with pytest.raises(psycopg.Error) as thrown:
        programs.call("dbo.p(1)")
    assert programs.notices == ["50123/16/7 0"]
    assert (thrown.value.diag.message_primary, thrown.value.diag.message_detail) == (
        "thrown",
        "Msg 50123, Level 16, State 7",
    )
    assert programs.call("dbo.p(2)") == ["50000/11/2 0"]
    assert programs.call("dbo.p(3)") == ["8426/16/1 0"]
    assert programs.call("dbo.p(4)") == ["245/16/1 0"]
    assert programs.call("dbo.p(5)") == ["only said", "no error"]


def test_a_condition_that_fails_is_caught_where_transactions_end_behind_it(programs: Programs) -> None:
    notes = programs.create("""
        CREATE PROCEDURE dbo.p @n int AS
        BEGIN TRY
          BEGIN TRAN
          INSERT INTO dbo.done (body) VALUES ('x')
          WHILE 6 / (@n - 3) > 1
          BEGIN
            IF 6 / @n > 5 BEGIN COMMIT RETURN END
            SET @n -= 1
          END
          ROLLBACK
        END TRY
        BEGIN CATCH
          ROLLBACK
          PRINT ERROR_MESSAGE()
        END CATCH
    """)
    assert notes == []
    assert programs.call("dbo.p(3)") == ["division by zero"]
    assert programs.call("dbo.p(5)") == ["division by zero"]
    assert programs.call("dbo.p(1)") == []
    assert programs.call("dbo.p(99)") == []
    assert programs.done() == []


def test_a_transaction_that_is_open_at_the_end_is_noted() -> None:
    known = Known()
    (batch,) = batches("CREATE PROCEDURE p @n int AS BEGIN TRAN\nIF @n = 1 RETURN\nCOMMIT")
    made = modules.translate(read(batch)[0], known)
    assert [note.partition(": ")[0] for note in made.notes] == ["2:11"]


def test_parameters_go_in_and_out(programs: Programs) -> None:
    programs.create(
        """
        CREATE PROCEDURE dbo.Inner_one @a int, @b nvarchar(5) = N'none', @sum int OUTPUT, @on bit = 0 AS
        SET @sum = @a + LEN(@b)
        IF @on = 1 SET @sum += 100
        RETURN 3
    """.replace("@sum int OUTPUT, @on bit = 0", "@on bit = 0, @sum int = 0 OUTPUT")
    )
    programs.create("""
        CREATE PROCEDURE dbo.Outer_one AS
        DECLARE @s int
        EXEC Inner_one 1, 'abcdefgh', 1, @s OUTPUT
        PRINT @s
        EXECUTE dbo.Inner_one @sum = @s OUTPUT, @a = 2
        PRINT @s
    """)
    assert programs.call("dbo.outer_one()") == ["106", "6"]


def test_a_procedure_returns_a_code(programs: Programs) -> None:
    programs.create("""
        CREATE PROCEDURE dbo.Inner1 @n int AS
        SET TRANSACTION ISOLATION LEVEL READ COMMITTED
        IF @n > 5 RETURN @n * 2
        IF @n = 5 RETURN -1
        GO
        CREATE PROCEDURE dbo.sp_Outer @n int AS
        EXEC dbo.Inner1 @n
        IF @n = 7 RETURN
        GO
        CREATE PROCEDURE dbo.p AS
        DECLARE @a int, @b nvarchar(9), @c int, @d int, @e int
        EXEC @a = dbo.Inner1 8
        EXEC @b = dbo.Inner1 @n = 5
        EXEC @c = dbo.Inner1 1
        EXEC @d = sp_Outer 6
        EXEC @e = sp_Outer 7
        PRINT CONCAT(@a, ' ', @b, ' ', @c, ' ', @d, ' ', @e)
    """)
    assert programs.call("dbo.p()") == ["16 -1 0 0 0"]


def test_a_lock_of_the_application_is_waited_for_and_given_back(programs: Programs) -> None:
    programs.create("""
        CREATE PROCEDURE dbo.Hold @owner nvarchar(9) AS
        DECLARE @r int
        IF @owner = 'S' EXEC @r = sp_getapplock @Resource = 'here', @LockMode = 'Exclusive', @LockOwner = 'Session'
        ELSE EXEC @r = sp_getapplock 'here', 'Shared', 'Transaction', 10
        PRINT CONCAT('got ', @r)
        GO
        CREATE PROCEDURE dbo.Free AS
        DECLARE @r int
        EXEC @r = sp_releaseapplock @Resource = 'here', @LockOwner = 'Session'
        PRINT CONCAT('freed ', @r)
    """)
    with programs.database.connect() as other:
        notices: list[str] = []
        other.add_notice_handler(lambda notice: notices.append(notice.message_primary or ""))
        assert programs.call("dbo.hold('S')") == ["got 0"]
        other.execute("call dbo.hold('T')")
        assert programs.call("dbo.free()") == ["freed 0"]
        assert programs.call("dbo.free()")[-1] == "freed -999"
        other.execute("call dbo.hold('T')")
        assert notices == ["got -1", "got 0"]


def test_goto_leaves_for_the_error_exit(programs: Programs) -> None:
    notes = programs.create("""
        CREATE PROCEDURE dbo.p @n int AS
        DECLARE @e int
        BEGIN TRAN
        WHILE 1 = 1
        BEGIN
          INSERT INTO dbo.done (body) VALUES (CAST(10 / @n AS nvarchar(9)))
          SET @e = @@ERROR
          IF @e <> 0 GOTO Failed
          IF @n = 5 GOTO TheEnd
          BEGIN TRY
            IF @n = 2 GOTO TheEnd
            SET @n += 1
          END TRY
          BEGIN CATCH SET @e = 9 END CATCH
        END
        TheEnd:
        COMMIT TRAN
        RETURN 0
        Failed:
        ROLLBACK TRAN
        PRINT CONCAT('failed ', @e)
        RETURN 1
    """)
    assert programs.call("dbo.p(0)")[-1] == "failed 8134"
    programs.call("dbo.p(2)")
    programs.call("dbo.p(4)")
    assert programs.done() == ["5", "2", "2"]
    assert notes == []


def test_goto_begins_anew_what_stands_behind_a_label_above(programs: Programs) -> None:
    notes = programs.create("""
        CREATE PROCEDURE dbo.p AS
        DECLARE @n int = 0, @rounds int = 0
        WHILE @rounds < 9
        BEGIN
          SET @rounds += 1
          BEGIN TRAN
          again:
          SET @n += 1
          INSERT INTO dbo.done (body) VALUES (CAST(@n AS nvarchar(9)))
          IF @n IN (1, 2, 5)
          BEGIN
            ROLLBACK
            BEGIN TRAN
            GOTO AGAIN
          END
          COMMIT
          IF @rounds = 2 CONTINUE
          IF @rounds = 3 BREAK
          WHILE 1 = 1 BREAK
          PRINT CONCAT('round ', @rounds)
        END
        retry:
        BEGIN TRY
          SET @n -= 1
          IF @n > 4 SET @rounds = 1 / 0
        END TRY
        BEGIN CATCH
          PRINT 'caught'
          GOTO retry
        END CATCH
        PRINT CONCAT(@n, ' after ', @rounds)
    """)
    assert programs.call("dbo.p()") == ["round 1", "caught", "4 after 3"]
    assert programs.done() == ["3", "4", "6"]
    assert notes == []


def test_merge_changes_what_the_target_alone_has(programs: Programs) -> None:
    programs.session.execute("create table dbo.stock (item text, amount integer)")
    programs.session.execute("insert into dbo.stock values ('tea', 1), ('salt', 9), ('rice', 4)")
    programs.known.tables["dbo", "stock"] = {"item": TEXT, "amount": INTEGER}
    notes = programs.create("""
        CREATE PROCEDURE dbo.p @item nvarchar(9), @amount int AS
        MERGE dbo.stock AS t USING (SELECT @item AS item, @amount AS amount) AS s ON t.item = s.item
        WHEN MATCHED THEN UPDATE SET amount = t.amount + s.amount
        WHEN NOT MATCHED BY TARGET THEN INSERT (item, amount) VALUES (s.item, s.amount)
        WHEN NOT MATCHED BY SOURCE AND t.amount > 3 THEN UPDATE SET amount = t.amount - 3;
        MERGE dbo.stock AS t USING (SELECT @item AS item) AS s ON t.item = s.item
        WHEN NOT MATCHED BY SOURCE AND t.amount < 3 THEN DELETE;
    """)
    programs.call("dbo.p('milk', 2)")
    stock = "select item, amount from dbo.stock order by 1"
    assert programs.session.execute(stock).fetchall() == [("milk", 2), ("salt", 6)]
    programs.call("dbo.p('salt', 1)")
    assert programs.session.execute(stock).fetchall() == [("salt", 7)]
    assert ["counts no rows of WHEN NOT MATCHED BY SOURCE" in note for note in notes] == [True]


def test_merge_changes_what_is_there_and_inserts_the_rest(programs: Programs) -> None:
    programs.session.execute(
        "create table dbo.stock (item text primary key, amount integer, note text default 'new')"
    )
    programs.session.execute("insert into dbo.stock values ('tea', 1, ''), ('salt', 9, '')")
    programs.known.tables["dbo", "stock"] = {"item": TEXT, "amount": INTEGER, "note": TEXT}
    programs.create("""
        CREATE PROCEDURE dbo.p @item nvarchar(9), @amount int AS
        MERGE INTO dbo.Stock AS s
        USING (SELECT @item AS Item, @amount AS amount UNION ALL SELECT 'salt', 0) AS new ON s.item = new.Item
        WHEN MATCHED AND new.amount = 0 THEN DELETE
        WHEN MATCHED THEN UPDATE SET amount += new.amount, s.note = 'more'
        WHEN NOT MATCHED BY TARGET AND new.amount > 0 THEN INSERT (item, amount, note) VALUES (new.item, new.amount, DEFAULT);
        PRINT @@ROWCOUNT
    """)
    assert programs.call("dbo.p('tea', 4)") == ["2"]
    assert programs.call("dbo.p('rice', 2)") == ["1"]
    assert programs.rows("select * from dbo.stock order by item") == [("rice", 2, "new"), ("tea", 5, "more")]


def test_a_table_is_given_to_a_procedure(programs: Programs) -> None:
    (made,) = read(
        next(
            iter(
                batches(
                    "CREATE TYPE dbo.Lines AS TABLE (n int IDENTITY(5, 5), body varbinary(9), at datetime)"
                )
            )
        )
    )
    programs.known.table_types["lines"] = made.definition  # type: ignore[attr-defined]
    programs.create("""
        CREATE PROCEDURE dbo.Take @first int, @lines dbo.Lines READONLY AS
        INSERT INTO dbo.done (body) SELECT CAST(n AS nvarchar(9)) + CAST(body AS nvarchar(9)) FROM @lines WHERE n > @first
        GO
        CREATE PROCEDURE dbo.p AS
        DECLARE @mine AS dbo.Lines
        INSERT INTO @mine (body, at) VALUES (0x41, '20260102'), (0x42, NULL)
        EXEC dbo.Take @first = 0, @lines = @mine
        DELETE FROM @mine WHERE n = 5
        EXEC Take 0, @mine
        EXEC Take 0
    """)
    programs.call("dbo.p()")
    assert programs.done() == ["5A", "10B", "10B"]


def test_variables_get_values_from_the_queries_of_with(programs: Programs) -> None:
    programs.create(
        """
        CREATE PROCEDURE dbo.p AS
        DECLARE @n int, @m int
        ;WITH few AS (SELECT 1 AS a UNION ALL SELECT 5), more AS (SELECT a FROM few WHERE a > 1)
        SELECT TOP (1) @n = more.a, @m = @n FROM more ORDER BY more.a DESC
        PRINT @n
    """.replace(", @m = @n", "")
    )
    assert programs.call("dbo.p()") == ["5"]


def test_a_text_runs_in_place_with_variables_of_its_own(programs: Programs) -> None:
    programs.create("""
        CREATE PROCEDURE dbo.p AS
        DECLARE @n int = 1, @s nvarchar(200)
        WHILE @n <= 2
        BEGIN
          EXEC (N'DECLARE @n int, @t TABLE (a int) SET @n = ISNULL(@n, 0) + 7 INSERT INTO @t VALUES (@n)
                  INSERT INTO dbo.done (body) SELECT CONCAT(''it''''s '', COUNT(*), '' '', MAX(a)) FROM @t')
          SET @n += 1
        END
        SET @s = N'SELECT @n = @n * 10'
        SET @s += ', @text = @text + ''!'' '
        DECLARE @text nvarchar(9) = 'x'
        EXEC sp_executesql @s, N'@text nvarchar(9) OUTPUT, @n int OUTPUT', @n = @n OUTPUT, @text = 'given'
        PRINT CONCAT(@n, @text)
        EXEC sp_executesql N'DELETE FROM dbo.done WHERE body <> @body', N'@body varchar(9)', N'it''s 1 7'
        PRINT @@ROWCOUNT
    """)
    # A text begins anew each time, and sees no variable of its procedure.
    assert programs.call("dbo.p()") == ["30x", "0"]
    assert programs.done() == ["it's 1 7", "it's 1 7"]


def test_a_variable_may_hold_the_parameters_of_a_text(programs: Programs) -> None:
    programs.create("""
        CREATE PROCEDURE dbo.p AS
        DECLARE @sql nvarchar(200), @params nvarchar(100) = N'@text nvarchar(9), ', @found int
        SET @sql = N'SELECT @n = LEN(@text) + @more'
        SET @params += N'@more int = 5, @n int OUTPUT'
        EXEC sp_executesql @sql, @params, @text = N'it''s', @n = @found OUTPUT, @more = 2
        PRINT @found
        EXECUTE sp_executesql @sql, @params, N'a', 7, @found OUTPUT
        PRINT @found
    """)
    assert programs.call("dbo.p()") == ["6", "8"]


def test_values_of_a_text_are_never_read_as_sql(programs: Programs) -> None:
    programs.create("""
        CREATE PROCEDURE dbo.p @name nvarchar(50), @n int AS
        DECLARE @sql nvarchar(max)
        SET @sql = N'INSERT INTO dbo.done (body) VALUES (''' + @name + N''')'
        EXEC (@sql)
        EXEC ('DELETE FROM dbo.done WHERE body LIKE ''%' + @name + '%'' AND n = ' + CAST(@n AS varchar(9)))
    """)
    hostile = "'); DELETE FROM dbo.done --"
    for name, n in ((hostile, 0), ("gone", 2), (None, 3)):
        programs.session.execute("call dbo.p(%s, %s)", (name, n))
    assert programs.done() == [hostile]


def test_a_procedure_makes_what_conversations_need(programs: Programs) -> None:
    programs.create("""
        CREATE PROCEDURE dbo.p AS
        CREATE MESSAGE TYPE [//y/select broker.x] VALIDATION = NONE
        CREATE CONTRACT [//y/Contract] ([//y/select broker.x] SENT BY ANY)
        CREATE QUEUE other.Made WITH STATUS = OFF
        CREATE SERVICE [//y/Service] ON QUEUE Made ([//y/Contract])
        BEGIN TRY
          GRANT SEND ON SERVICE::[//y/Service] TO PUBLIC
          DROP SERVICE [//y/Nowhere]
        END TRY
        BEGIN CATCH
          PRINT 'caught'
        END CATCH
    """)
    assert programs.call("dbo.p()") == ["caught"]
    names = "select m.name, s.name from broker.service_message_types m, broker.services s"
    assert programs.rows(f"{names} where m.name like '//y/%' and s.name like '//y/%'") == [
        ("//y/select broker.x", "//y/Service")
    ]
    assert programs.rows("select count(*) from other.made") == [(0,)]


def test_the_names_of_a_text_are_values(programs: Programs) -> None:
    programs.create("""
        CREATE PROCEDURE dbo.p @name nvarchar(60), @plain nvarchar(60), @address nvarchar(60) AS
        DECLARE @sql nvarchar(max) = N'CREATE QUEUE [dbo].[' + @name + '/Queue] WITH STATUS = ON;'
        EXECUTE sp_executesql @sql
        SET @sql = N'CREATE SERVICE ' + QUOTENAME(@name) + N' ON QUEUE [dbo].' + QUOTENAME(@name + N'/queue')
        EXEC (@sql)
        EXEC ('CREATE MESSAGE TYPE ' + @plain + '_Type VALIDATION = NONE')
        SET @sql = 'IF NOT EXISTS (SELECT * FROM sys.routes WHERE name = ''' + @name + ''') BEGIN '
        SET @sql = @sql + 'CREATE ROUTE ' + QUOTENAME(@name) + ' WITH SERVICE_NAME = ' + CHAR(39) + @name + CHAR(39)
        SET @sql += ', ADDRESS = ''' + @address + ''' END'
        EXEC (@sql)
        EXEC (@sql)
    """)
    hostile = "a''); drop table dbo.done; --"
    programs.session.execute("call dbo.p(%s, %s, %s)", (hostile, "Plain", "TCP://here:4022"))
    # Where a value is NULL, nothing runs.
    programs.session.execute("call dbo.p(%s, %s, %s)", (None, None, None))
    assert programs.rows("select name from broker.service_queues where name like '%/queue'") == [
        (f"{hostile}/queue",)
    ]
    assert programs.rows("select name from broker.services where name like 'a%'") == [(hostile,)]
    assert programs.rows("select name from broker.service_message_types where name like 'Plain%'") == [
        ("Plain_Type",)
    ]
    routes = "select name, remote_service_name, address from broker.routes where name like 'a%'"
    assert programs.rows(routes) == [(hostile, hostile, "tcp://here:4022")]


@pytest.mark.parametrize(
    ("text", "name"),
    [("CREATE QUEUE [' + @n + ']", "a] WITH STATUS = OFF --"), ("CREATE QUEUE ' + @n + '", "a WITH")],
)
def test_a_value_that_is_more_than_a_name_is_refused(programs: Programs, text: str, name: str) -> None:
    programs.create(f"CREATE PROCEDURE dbo.p @n nvarchar(60) AS EXEC ('{text}')")
    with pytest.raises(psycopg.Error, match="is no name of an object"):
        programs.session.execute("call dbo.p(%s)", (name,))


def test_a_text_receives_from_the_queue_that_a_variable_names(programs: Programs) -> None:
    programs.create("""
        CREATE PROCEDURE dbo.p @queue sysname AS
        DECLARE @h uniqueidentifier, @body nvarchar(99), @sql nvarchar(max), @params nvarchar(200)
        SET @params = '@h uniqueidentifier OUTPUT, @body nvarchar(99) OUTPUT'
        SET @sql = 'WAITFOR (RECEIVE TOP (1) @h = conversation_handle, @body = message_body
          FROM ' + QUOTENAME(@queue) + '), TIMEOUT 10'
        EXEC sp_executesql @sql, @params, @h = @h OUTPUT, @body = @body OUTPUT
        IF @@ROWCOUNT = 0 PRINT 'none' ELSE PRINT @body
    """)
    programs.send("here")
    assert programs.call("dbo.p('Client')") == ["none"]
    assert programs.call("dbo.p('TARGET')") == ["here"]


def test_an_error_in_a_text_is_caught_around_it(programs: Programs) -> None:
    programs.create("""
        CREATE PROCEDURE dbo.p AS
        BEGIN TRY
          INSERT INTO dbo.done (body) VALUES ('kept')
          EXEC sp_executesql N'INSERT INTO dbo.done (body) VALUES (CAST(1 / @n AS varchar(9)))', N'@n int', 0
          PRINT 'no error'
        END TRY
        BEGIN CATCH
          PRINT ERROR_NUMBER()
        END CATCH
    """)
    assert programs.call("dbo.p()") == ["8134"]
    assert programs.done() == ["kept"]


@pytest.mark.parametrize(
    "text",
    [
        "DECLARE @s nvarchar(max) = 'PRINT 1 '" + " SET @s = @s + @s" * 60 + " EXEC (@s)",
        "DECLARE @s nvarchar(max) = 'PRINT ''" + "x" * 10_000 + "''' " + "EXEC (@s) " * 100,
    ],
)
def test_texts_that_grow_are_refused_and_not_read_for_ever(text: str) -> None:
    (batch,) = batches(f"CREATE PROCEDURE p AS {text}")
    (statement,) = read(batch)
    with pytest.raises(ScriptError):
        modules.translate(statement, Known())


def test_a_cursor_is_read_to_its_end(programs: Programs) -> None:
    programs.create("""
        CREATE PROCEDURE dbo.p AS
        DECLARE @n int, @body nvarchar(10), @all nvarchar(100) = ''
        INSERT INTO dbo.done (body) VALUES ('a'), ('b'), ('c')
        DECLARE conv CURSOR LOCAL FAST_FORWARD FOR SELECT n, body FROM dbo.done ORDER BY n
        OPEN conv
        FETCH NEXT FROM conv INTO @n, @body
        WHILE @@FETCH_STATUS = 0
        BEGIN
          IF @body = 'b' BEGIN FETCH NEXT FROM conv INTO @n, @body CONTINUE END
          SET @all = @all + @body
          FETCH NEXT FROM conv INTO @n, @body
        END
        CLOSE conv
        DEALLOCATE conv
        PRINT @all + @body
    """)
    assert programs.call("dbo.p()") == ["acc"]


def test_a_cursor_has_any_name_and_no_name_is_code(programs: Programs) -> None:
    name = '[C" refcursor; "@n" text := pg_terminate_backend(1); "]'
    programs.create(f"""
        CREATE PROCEDURE dbo.p AS
        DECLARE @n int
        DECLARE {name} CURSOR FOR SELECT 7 AS a
        OPEN {name}
        FETCH NEXT FROM {name} INTO @n
        CLOSE {name}
        PRINT @n
        PRINT OBJECT_ID('tempdb..#q"z')
    """)
    assert programs.call("dbo.p()") == ["7", " "]


LONG = "n" * 62


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("dbo.p", f"@{LONG}a"), ("dbo.p", f"@{LONG}b")),
        (("dbo.p", "#t"), ("sales.p", "#t")),
        (("dbo.p", "[#x.#t]"), ("dbo.[p.#x]", "#t")),
        (('dbo.[p"q]', "@t"), ("dbo.pq", "@t")),
        (("dbo.[sales.p]", "@t"), ("sales.p", "@t")),
    ],
)
def test_each_table_of_each_module_is_one_of_its_own(
    programs: Programs, first: tuple[str, str], second: tuple[str, str]
) -> None:
    def define(table: str) -> str:
        written = f"DECLARE {table} TABLE" if table.startswith("@") else f"CREATE TABLE {table}"
        return f"{written} (n int); INSERT INTO {table} (n) VALUES (1);"

    def count(table: str) -> str:
        return f"PRINT (SELECT COUNT(*) FROM {table});"

    (module, table), (other, other_table) = first, second
    if module == other:
        text = f"CREATE PROCEDURE {module} AS {define(table)} {define(other_table)} {count(table)}"
    else:
        inner = f"CREATE PROCEDURE {other} AS {define(other_table)} DELETE FROM {other_table}\nGO\n"
        text = f"{inner}CREATE PROCEDURE {module} AS {define(table)} EXEC {other} {count(table)}"
    programs.create(text)
    programs.create("CREATE PROCEDURE dbo.called AS EXEC " + module)
    assert programs.call("dbo.called()") == ["1"]


def test_a_result_set_is_a_notice(programs: Programs) -> None:
    programs.create("""
        CREATE PROCEDURE dbo.p AS
        INSERT INTO dbo.done (body) OUTPUT inserted.body AS New VALUES ('x')
        SELECT n AS Number, 0x4A AS bin, body FROM dbo.done
        SELECT n FROM dbo.done WHERE n > 99
    """)
    assert [one.replace(" ", "") for one in programs.call("dbo.p()")] == [
        '{"names":["New"],"rows":[["x"]]}',
        '{"names":["Number","bin","body"],"rows":[[1,"0x4a","x"]]}',
        '{"names":["n"],"rows":[]}',
    ]


def test_all_statements_on_conversations_have_their_arguments(programs: Programs) -> None:
    programs.create("""
        CREATE PROCEDURE dbo.p AS
        DECLARE @a uniqueidentifier, @b uniqueidentifier, @c uniqueidentifier, @g uniqueidentifier, @life int = 600, @status nvarchar(max)
        BEGIN DIALOG CONVERSATION @a FROM SERVICE Client TO SERVICE 'Target', 'CURRENT DATABASE'
          ON CONTRACT [//x/Contract] WITH LIFETIME = @life, ENCRYPTION = OFF
        BEGIN DIALOG @b FROM SERVICE Client TO SERVICE N'Target' ON CONTRACT [//x/Contract]
          WITH RELATED_CONVERSATION = @a, LIFETIME = 60, ENCRYPTION = OFF;
        SEND ON CONVERSATION (@a, @b) MESSAGE TYPE [//x/Request] ('both');
        BEGIN CONVERSATION TIMER (@a) TIMEOUT = 300
        BEGIN DIALOG @c FROM SERVICE Client TO SERVICE N'Target' ON CONTRACT [//x/Contract]
        SELECT @g = conversation_group_id FROM sys.conversation_endpoints
        WHERE conversation_handle = @c AND is_initiator = 1
        MOVE CONVERSATION @b TO @g
        SELECT @status = GET_TRANSMISSION_STATUS(@a)
        PRINT ISNULL(@status, 'none')
        END CONVERSATION @b WITH CLEANUP
    """)
    assert programs.call("dbo.p()") == [""]
    assert programs.waiting() == ["both", "both"]
    states = "select count(*) from broker.conversation_endpoints where is_initiator"
    assert programs.rows(states) == [(2,)]


def test_a_parameter_cuts_what_is_too_long_as_a_variable_does(programs: Programs) -> None:
    programs.create("""
        CREATE FUNCTION dbo.Cut (@text nvarchar(3)) RETURNS nvarchar(9) AS BEGIN RETURN @text + N'!' END
        GO
        CREATE PROCEDURE dbo.p @text nvarchar(3), @amount decimal(5, 1) AS PRINT @text + CAST(@amount AS nvarchar(9)) + dbo.Cut(N'wxyz')
    """)
    assert programs.call("dbo.p('abcdef', 1.25)") == ["abc1.3wxy!"]


def test_the_identity_is_that_of_the_insert_whatever_else_counts(programs: Programs) -> None:
    programs.session.execute(
        "create table dbo.orders (id integer generated always as identity (start 70), body text)"
    )
    programs.known.tables["dbo", "orders"] = {"id": INTEGER, "body": TEXT}
    programs.create("""
        CREATE TRIGGER dbo.Logged ON dbo.Orders AFTER INSERT AS INSERT INTO dbo.done (body) SELECT body FROM inserted
        GO
        CREATE PROCEDURE dbo.p AS
        DECLARE @h uniqueidentifier, @body nvarchar(9)
        SELECT @body = 'a' WHERE SCOPE_IDENTITY() IS NULL
        INSERT INTO dbo.Orders (body) VALUES (@body)
        INSERT INTO dbo.errors (number) VALUES (1);
        RECEIVE TOP (1) @h = conversation_handle, @body = message_body FROM Target
        END CONVERSATION @h
        INSERT INTO dbo.Orders (body) SELECT 'b' WHERE 1 = 0
        PRINT CAST(SCOPE_IDENTITY() AS nvarchar(9))
    """)
    programs.send("x")
    assert programs.call("dbo.p()") == ["70"]
    assert programs.done() == ["a"]


def test_what_if_leaves_behind_is_no_error(programs: Programs) -> None:
    programs.create("""
        CREATE PROCEDURE dbo.p @none nvarchar(9) AS
        DECLARE @n int
        SET @n = 1 / 0
        IF @@ERROR <> 0 PRINT 'in IF: ' + CAST(@@ERROR AS nvarchar(9))
        BEGIN TRY
          RAISERROR ('%s is %d', 16, 1, @none, @n)
        END TRY
        BEGIN CATCH PRINT ERROR_MESSAGE() END CATCH
        BEGIN TRY THROW 50001, @none, 1 END TRY
        BEGIN CATCH PRINT 'thrown: ' + ERROR_MESSAGE() END CATCH
    """)
    assert programs.call("dbo.p(null)") == ["division by zero", "in IF: 0", "(null) is (null)", "thrown: "]


def test_functions_and_views_are_made_and_used(programs: Programs) -> None:
    programs.create("""
        CREATE FUNCTION dbo.Twice (@text nvarchar(20), @times int = 2) RETURNS nvarchar(40) AS
        BEGIN
          DECLARE @r nvarchar(40) = ''
          WHILE @times > 0 BEGIN SET @r += @text SET @times -= 1 END
          RETURN @r
        END
        GO
        CREATE VIEW dbo.Doubled AS SELECT n AS Number, dbo.Twice(body, 2) AS Body FROM dbo.done
        GO
        CREATE FUNCTION dbo.After (@n int) RETURNS TABLE AS RETURN (SELECT number, CAST(body AS nvarchar(9)) AS b FROM dbo.Doubled WHERE Number > @n)
        GO
        CREATE PROCEDURE dbo.p AS
        DECLARE @all nvarchar(50)
        INSERT INTO dbo.done (body) VALUES ('a'), ('b'), ('c')
        SELECT @all = (SELECT STRING_AGG(x.b, '') FROM dbo.After(1) AS x)
        PRINT @all + dbo.Twice('!', 3)
    """)
    assert programs.call("dbo.p()") == ["bbcc!!!"]


def test_arguments_of_functions_become_what_their_parameters_are(programs: Programs) -> None:
    programs.create("""
        CREATE FUNCTION dbo.Told (@flag bit, @text nvarchar(3), @at datetime, @n decimal(5, 1)) RETURNS nvarchar(40) AS
        BEGIN
          RETURN CASE WHEN @flag = 1 THEN N'yes ' ELSE N'no ' END + @text + CONVERT(nvarchar(8), @at, 112) + CAST(@n AS nvarchar(9))
        END
        GO
        CREATE FUNCTION dbo.Shown (@flag bit, @text nvarchar(9)) RETURNS TABLE AS RETURN (SELECT @text AS t WHERE @flag = 1)
        GO
        CREATE PROCEDURE dbo.p @on bit = 1, @number int = 12345 AS
        PRINT dbo.Told(5, N'ab', '20260102', 7)
        PRINT dbo.Told(0, N'abcd', '20260102', @number / 1000)
        PRINT dbo.Told(@on, NULL, '20260102', 1)
        INSERT INTO dbo.done (body) SELECT t FROM dbo.Shown(1, @number)
        INSERT INTO dbo.done (body) SELECT r.t FROM (VALUES (0), (1)) AS v (n) CROSS APPLY dbo.Shown(v.n, v.n) r
    """)
    assert programs.call("dbo.p()") == ["yes ab202601027.0", "no abc2026010212.0", " "]
    assert programs.done() == ["12345", "1"]


def test_a_function_returns_the_rows_of_a_table_variable(programs: Programs) -> None:
    programs.create("""
        CREATE FUNCTION dbo.Parts (@text nvarchar(20), @by nvarchar(1)) RETURNS @parts TABLE (n int PRIMARY KEY, part nvarchar(9)) AS
        BEGIN
          DECLARE @n int = 1, @at int
          IF @text IS NULL RETURN
          WHILE LEN(@text) > 0
          BEGIN
            SET @at = CHARINDEX(@by, @text + @by)
            INSERT INTO @parts (n, part) SELECT @n, SUBSTRING(@text, 1, @at - 1)
            SET @text = STUFF(@text, 1, @at, '')
            SET @n += 1
          END
          UPDATE @parts SET part = part + N'!' WHERE n = 2
          DELETE @parts WHERE part = N'x'
          RETURN
        END
        GO
        CREATE PROCEDURE dbo.p AS
        INSERT INTO dbo.done (body) SELECT part FROM dbo.Parts(N'x,b,c', ',') ORDER BY n
        INSERT INTO dbo.done (body) SELECT Part FROM dbo.Parts(NULL, ',')
        INSERT INTO dbo.done (body)
        SELECT v.t + N' ' + p.part FROM (VALUES (N'a-b'), (N'c')) AS v (t) CROSS APPLY dbo.Parts(v.t, N'-') p ORDER BY v.t, p.n
        INSERT INTO dbo.done (body)
        SELECT a.part + b.part FROM dbo.Parts(N'1,2', ',') a JOIN dbo.Parts(N'3,4', ',') b ON a.n = b.n ORDER BY a.n
    """)
    programs.call("dbo.p()")
    assert programs.done() == ["b!", "c", "a-b a", "a-b b!", "c c", "13", "2!4!"]


def test_a_trigger_sends_what_was_inserted(programs: Programs) -> None:
    programs.create("""
        CREATE TRIGGER dbo.Tell ON dbo.done AFTER INSERT, UPDATE AS
        BEGIN
          DECLARE @h uniqueidentifier, @body nvarchar(max)
          IF NOT EXISTS (SELECT * FROM inserted) RETURN
          SELECT @body = STRING_AGG(i.body, ',') FROM inserted i
          BEGIN DIALOG @h FROM SERVICE Client TO SERVICE 'Target' ON CONTRACT [//x/Contract] WITH ENCRYPTION = OFF;
          SEND ON CONVERSATION @h MESSAGE TYPE [//x/Request] (@body)
        END
    """)
    programs.session.execute("insert into dbo.done (body) values ('a'), ('b')")
    programs.session.execute("update dbo.done set body = 'c' where body = 'b'")
    programs.session.execute("update dbo.done set body = 'd' where body = 'none'")
    assert programs.waiting() == ["a,b", "c"]
    programs.create("DROP TRIGGER dbo.Tell")
    programs.session.execute("insert into dbo.done (body) values ('e')")
    assert programs.waiting() == ["a,b", "c"]


def test_a_trigger_of_several_events_sees_no_rows_where_an_event_has_none(programs: Programs) -> None:
    programs.session.execute("create table dbo.watched (n integer, body text)")
    programs.known.tables["dbo", "watched"] = {"n": INTEGER, "body": TEXT}
    programs.create("""
        CREATE TRIGGER dbo.Audit ON dbo.watched AFTER INSERT, UPDATE, DELETE AS
        BEGIN
          DECLARE @what nvarchar(9)
          IF EXISTS (SELECT * FROM inserted) AND EXISTS (SELECT * FROM deleted) SET @what = N'changed '
          ELSE IF EXISTS (SELECT * FROM inserted) SET @what = N'added '
          ELSE IF EXISTS (SELECT * FROM deleted) SET @what = N'removed '
          ELSE RETURN
          INSERT INTO dbo.done (body)
          SELECT @what + ISNULL(d.body, N'nothing') + N' ' + ISNULL(i.body, N'nothing')
          FROM inserted i FULL JOIN deleted d ON d.n = i.n
          INSERT INTO dbo.done (body) SELECT inserted.body FROM inserted
          WHERE NOT EXISTS (SELECT * FROM deleted WHERE deleted.n = inserted.n)
        END
    """)
    programs.session.execute("insert into dbo.watched values (1, 'a')")
    programs.session.execute("update dbo.watched set body = 'b'")
    programs.session.execute("delete from dbo.watched")
    programs.session.execute("delete from dbo.watched")
    assert programs.done() == ["added nothing a", "a", "changed a b", "removed b nothing"]


def test_a_trigger_that_is_altered_fires_at_its_new_events_alone(programs: Programs) -> None:
    programs.session.execute("create table dbo.watched (n integer)")
    text = "TRIGGER dbo.Tell ON dbo.watched AFTER {} AS INSERT INTO dbo.done (body) VALUES ('{}')"
    programs.create(f"CREATE {text.format('INSERT, DELETE', 'old')}")
    programs.create(f"ALTER {text.format('UPDATE, DELETE', 'new')}")
    programs.session.execute("insert into dbo.watched values (1)")
    assert programs.done() == []
    programs.session.execute("update dbo.watched set n = 2")
    programs.session.execute("delete from dbo.watched")
    assert programs.done() == ["new", "new"]


def test_a_parameter_without_a_default_may_stand_behind_one_that_has_it(programs: Programs) -> None:
    programs.create("""
        CREATE PROCEDURE dbo.Add3 @a int = 3, @b int, @sum int OUTPUT AS SET @sum = @a + @b
        GO
        CREATE PROCEDURE dbo.p AS
        DECLARE @n int
        EXEC dbo.Add3 @b = 4, @sum = @n OUTPUT
        PRINT @n
        EXEC dbo.Add3 1, 1, @n OUTPUT
        PRINT @n
    """)
    assert programs.call("dbo.p()") == ["7", "2"]
    with pytest.raises(ScriptError, match="expects @b: give it a value") as refused:
        programs.create("CREATE PROCEDURE dbo.q AS DECLARE @n int\nEXEC dbo.Add3 @sum = @n OUTPUT")
    assert refused.value.position == Position(2, 1)


REFUSED = {
    "CREATE TRIGGER t ON dbo.x AFTER UPDATE AS\nIF UPDATE(n) AND 'UPDATE(' = '' RETURN": (
        "compare inserted with deleted",
        2,
        4,
    ),
    "CREATE TRIGGER t ON dbo.x AFTER UPDATE AS\nIF 'UPDATE(' = '' OR COLUMNS_UPDATED() = 1 RETURN": (
        "compare inserted with deleted",
        2,
        22,
    ),
    "CREATE TRIGGER t ON dbo.x INSTEAD OF INSERT AS RETURN": ("write AFTER", 1, 1),
    "CREATE PROCEDURE p AS\nDELETE FROM t WHERE\n CURRENT OF c": ("FETCH the key INTO a variable", 3, 2),
    "CREATE PROCEDURE p AS\nUPDATE t SET a = 1 FROM t WHERE CURRENT OF GLOBAL c": ("WHERE key = @key", 2, 33),
    "CREATE FUNCTION f () RETURNS int AS BEGIN RETURN FOO(1) END": ("FOO", 1, 50),
    "CREATE FUNCTION f () RETURNS TABLE AS RETURN (SELECT a FROM unknown)": (
        "a column whose name or type",
        1,
        1,
    ),
    "CREATE PROCEDURE p AS SAVE TRAN a": ("SAVE TRANSACTION", 1, 23),
    "CREATE PROCEDURE p AS\nDECLARE @s nvarchar(9)\nEXEC (@s)": ("shape of the text", 3, 7),
    "CREATE PROCEDURE p @t sysname AS\nEXEC (N'SELECT * FROM ' + @t)": ("shape of the text", 2, 27),
    "CREATE PROCEDURE p @t sysname AS\nEXEC sp_executesql @t": ("shape of the text", 2, 20),
    "CREATE PROCEDURE p @with nvarchar(99) AS\nEXEC sp_executesql N'PRINT @n', @with, 1": (
        "the parameters of sp_executesql stand in a text",
        2,
        1,
    ),
    "CREATE PROCEDURE p AS\nDECLARE @s nvarchar(9) = 'PRINT ''much longer'''\nEXEC (@s)": (
        "shape of the text",
        3,
        7,
    ),
    "CREATE PROCEDURE p @on bit AS\nDECLARE @s varchar(9)\nIF @on = 1 SET @s = 'PRINT 1'\nEXEC (@s)": (
        "shape of the text",
        4,
        7,
    ),
    "CREATE PROCEDURE p AS\nDECLARE @n int\nEXEC ('PRINT ''it''''s''\nSET @n = 1')": (
        "@n is not declared",
        4,
        1,
    ),
    "CREATE PROCEDURE p AS\nEXEC ('PRINT ''it''''s'' PRINT FOO(1)')": ("FOO", 2, 32),
    "CREATE PROCEDURE p AS\nEXEC ('COMMIT')": ("a transaction in a text", 2, 8),
    "CREATE PROCEDURE p AS\nEXEC ('PRINT 1 RETURN')": ("RETURN in a text", 2, 16),
    "CREATE PROCEDURE p AS\nWHILE 1 = 1 EXEC ('BREAK')": ("BREAK or CONTINUE", 2, 20),
    "CREATE PROCEDURE p @n sysname AS\nEXEC ('SELECT 1 AS a WHERE 1 = ' + CAST(@n AS varchar(9)))": (
        "may be any SQL",
        2,
        1,
    ),
    "CREATE PROCEDURE p AS\nEXEC sp_who": ("sp_who is not known", 2, 1),
    "CREATE PROCEDURE p AS\nPRINT ERROR_MESSAGE()": ("ERROR_MESSAGE() is known within CATCH", 2, 7),
    "CREATE PROCEDURE p AS\nTHROW": ("stands in CATCH", 2, 1),
    "CREATE PROCEDURE p AS\nIF 1 = 1 BEGIN\nTHROW\nTHROW\nPRINT 1 END": ("stands in CATCH", 3, 1),
    "CREATE PROCEDURE p AS\nTHROW 50001, 'x'": ("a number, a message and a state", 2, 1),
    "CREATE PROCEDURE p AS\nSET @x = 1": ("@x is not declared", 2, 1),
    "CREATE PROCEDURE p AS\nDECLARE @x int\nSET @x =  1 + FOO(2)": ("FOO", 3, 15),
    "CREATE PROCEDURE p WITH EXECUTE AS OWNER AS BEGIN TRAN COMMIT": ("ACTIVATION", 1, 1),
    "CREATE PROCEDURE p AS\nDECLARE c CURSOR FOR SELECT 1 AS a\nOPEN c\nBEGIN TRAN\nCOMMIT": (
        "cursor is open",
        4,
        1,
    ),
    f"CREATE PROCEDURE {'n' * 64} AS RETURN": ("more than 63 bytes: write a shorter one", 1, 1),
    f"CREATE PROCEDURE p AS\nDELETE FROM dbo.{'é' * 32}": ("more than 63 bytes", 2, 13),
    f"CREATE PROCEDURE p AS\nCREATE TABLE dbo.t ({'n' * 64} int)": ("more than 63 bytes", 2, 1),
    f"CREATE VIEW v AS SELECT 1 AS {'n' * 64}": ("more than 63 bytes", 1, 25),
    "CREATE PROCEDURE p AS\nDECLARE [@c] CURSOR FOR SELECT 1 AS a": ("without the @", 2, 1),
    "CREATE PROCEDURE p AS\nEXEC sp_getapplock 'a', 'Update'": ("'Exclusive' or 'Shared'", 2, 1),
    "CREATE PROCEDURE p AS\nSET TRANSACTION ISOLATION LEVEL SERIALIZABLE": (
        "no form within a procedure",
        2,
        1,
    ),
    "CREATE PROCEDURE p AS\nWAITFOR DELAY 5": ("'hh:mm:ss'", 2, 1),
    "CREATE PROCEDURE p AS\nCREATE CERTIFICATE x WITH SUBJECT = 'x'": ("run it before", 2, 1),
    "CREATE PROCEDURE p AS\nALTER DATABASE CURRENT SET ENABLE_BROKER": ("run it before", 2, 1),
    "CREATE PROCEDURE p AS\nGRANT CONNECT ON ENDPOINT::e TO a": ("run it before", 2, 1),
    "CREATE PROCEDURE p @n sysname AS\nEXEC (N'DECLARE @' + @n + N' int')": ("shape of the text", 2, 22),
    "CREATE PROCEDURE p @n sysname AS\nEXEC (N'SELECT 1 AS ' + QUOTENAME(@n))": ("shape of the text", 2, 35),
    "CREATE PROCEDURE p @n sysname AS\nEXEC (N'DROP TABLE [' + @n + ']')": ("shape of the text", 2, 25),
    "CREATE PROCEDURE p @n sysname AS\nEXEC (N'DROP EVENT NOTIFICATION [' + @n + '] ON DATABASE')": (
        "shape of the text",
        2,
        38,
    ),
    "CREATE PROCEDURE p @n sysname AS\nEXEC (N'ALTER QUEUE q WITH STATUS = ' + @n)": (
        "shape of the text",
        2,
        41,
    ),
    "CREATE PROCEDURE p @n sysname AS\nEXEC (N'GRANT SEND ON SERVICE::a TO [' + @n + ']')": (
        "shape of the text",
        2,
        42,
    ),
    "CREATE PROCEDURE p @n sysname AS\nEXEC (N'DROP SERVICE ' + QUOTENAME(@n, '\"'))": (
        "QUOTENAME takes one argument",
        2,
        26,
    ),
    "CREATE PROCEDURE p AS\nRAISERROR (50001, 16, 1)": ("write the text", 2, 1),
    "CREATE PROCEDURE p AS\nRAISERROR ('%s %s', 16, 1, 'a')": ("2 places", 2, 1),
    "CREATE PROCEDURE p @t dbo.Rows READONLY AS RETURN": ("let its CREATE TYPE stand", 1, 1),
    "CREATE PROCEDURE p AS\nIF 1 = 2 BEGIN a: PRINT 2 END\nGOTO a": ("does not stand beside", 3, 1),
    "CREATE PROCEDURE p AS\nBEGIN TRY\n  BREAK\nEND TRY\nBEGIN CATCH RETURN END CATCH": (
        "stands in no WHILE",
        3,
        3,
    ),
    "CREATE PROCEDURE p AS\na: PRINT 1\nIF 1 = 2 CONTINUE\nGOTO a": ("stands in no WHILE", 3, 10),
    "CREATE PROCEDURE p AS\nGOTO nowhere": ("does not stand beside", 2, 1),
    "CREATE PROCEDURE p AS\na: PRINT 1\nA: PRINT 2": ("stands twice", 3, 1),
    "CREATE PROCEDURE p AS\nIF 1 = 1 GOTO a\nIF 1 = 2 BEGIN PRINT 1\na: PRINT 2 END": (
        "does not stand beside",
        2,
        10,
    ),
    "CREATE PROCEDURE p AS\nDECLARE @t TABLE (n int)\nIF @@TRANCOUNT = 9 EXEC p": (
        "share its table variables",
        3,
        20,
    ),
    "CREATE PROCEDURE p AS\nEXEC q\nIF @@ROWCOUNT = 0 RETURN": ("@@ROWCOUNT behind EXEC", 2, 1),
    "CREATE PROCEDURE p AS\nPRINT @@IDENTITY": ("write SCOPE_IDENTITY()", 2, 7),
    "CREATE FUNCTION f (@n int) RETURNS @t TABLE (n int) AS BEGIN\nINSERT @t SELECT n FROM dbo.F(@n) RETURN END": (
        "share its table variables",
        1,
        1,
    ),
    "CREATE FUNCTION f (@n int) RETURNS int AS BEGIN\nDECLARE @t TABLE (n int)\nRETURN dbo.F(@n - 1) END": (
        "share its table variables",
        1,
        1,
    ),
}


def test_procedures_that_call_each_other_share_no_table_variables() -> None:
    known = Known()
    first, second, third = (
        read(batch)[0]
        for batch in batches(
            "CREATE PROCEDURE a AS DECLARE @t TABLE (n int) EXEC b\nGO\n"
            "CREATE PROCEDURE b AS\nEXEC c\nGO\nCREATE PROCEDURE c AS\nPRINT 1\nEXEC a"
        )
    )
    modules.translate(first, known)
    modules.translate(second, known)
    with pytest.raises(ScriptError, match="share its table variables") as refused:
        modules.translate(third, known)
    assert refused.value.position == Position(8, 1)


@pytest.mark.parametrize("text", REFUSED)
def test_what_has_no_faithful_form_is_refused_before_anything_runs(text: str) -> None:
    message, line, column = REFUSED[text]
    (batch,) = batches(text)
    (statement,) = read(batch)
    with pytest.raises(ScriptError) as refused:
        modules.translate(statement, Known())
    assert message in str(refused.value)
    assert (refused.value.position.line, refused.value.position.column) == (line, column)


SHOWN = """
    CREATE TABLE dbo.kept (n int, name nvarchar(20), amount decimal(9, 2), bin varbinary(4), at datetime)
    GO
    CREATE PROCEDURE dbo.shown_last AS
    SELECT 3 AS n, N'three' AS name, CAST(2.5 AS decimal(9, 2)) AS amount, 0x03 AS bin,
      CAST('2026-01-02T03:04:05' AS datetime) AS at
    GO
    CREATE PROCEDURE dbo.shown @least int AS
    SELECT n, name, amount, bin, at FROM dbo.kept WHERE n >= @least
    EXEC dbo.shown_last
    SELECT n, name, amount, bin, at FROM dbo.kept WHERE 1 = 0
"""


def test_a_procedure_inserts_what_another_would_show(programs: Programs) -> None:
    programs.create(SHOWN)
    programs.create("""
        CREATE PROCEDURE dbo.taking AS
        DECLARE @t TABLE (id int IDENTITY, n int, name nvarchar(20)), @n int
        INSERT INTO dbo.kept VALUES (1, N'one', 1.25, 0x01, NULL), (2, NULL, NULL, NULL, NULL)
        INSERT INTO dbo.kept EXEC dbo.shown @least = 2
        SET @n = @@ROWCOUNT
        INSERT @t (n, name) EXEC (N'SELECT n, name FROM dbo.kept ORDER BY n DESC')
        INSERT dbo.done (body)
          SELECT CAST(@n AS varchar(9)) + ': ' + CAST(n AS varchar(9)) + name FROM @t WHERE id = 1
        INSERT INTO dbo.done (body)
          EXEC sp_executesql N'SELECT n FROM dbo.kept WHERE n < @most', N'@most int', @most = 2
        SELECT COUNT(*) AS shown FROM @t
    """)
    (shown,) = programs.call("dbo.taking()")
    assert json.loads(shown)["rows"] == [[4]]
    kept = programs.rows("select n, name, amount::text, bin, at::text from dbo.kept order by n")
    assert kept == [
        (1, "one", "1.25", b"\x01", None),
        (2, None, None, None, None),
        (2, None, None, None, None),
        (3, "three", "2.50", b"\x03", "2026-01-02 03:04:05"),
    ]
    assert programs.done() == ["2: 3three", "1"]
    # Elsewhere the same procedure shows its rows.
    assert len(programs.call("dbo.shown(1)")) == 3


def test_what_insert_exec_can_not_insert_leaves_nothing_behind(programs: Programs) -> None:
    programs.create(SHOWN)
    programs.create("""
        CREATE TABLE dbo.few (n int CHECK (n < 3))
        GO
        CREATE PROCEDURE dbo.writes AS INSERT INTO dbo.done (body) VALUES ('written') SELECT 3 AS n
        GO
        CREATE PROCEDURE dbo.taking AS
        BEGIN TRY INSERT INTO dbo.few EXEC dbo.writes END TRY
        BEGIN CATCH PRINT 'caught' EXEC dbo.shown_last END CATCH
    """)
    caught, shown = programs.call("dbo.taking()")
    assert caught == "caught"
    assert json.loads(shown)["names"] == ["n", "name", "amount", "bin", "at"]
    assert programs.done() == []


def test_a_trigger_can_neither_nest_insert_exec_nor_change_what_it_takes(programs: Programs) -> None:
    programs.create(SHOWN)
    programs.create("""
        CREATE TABLE dbo.few (n int)
        GO
        CREATE PROCEDURE dbo.one AS SELECT 1 AS n
        GO
        CREATE TRIGGER dbo.on_done ON dbo.done AFTER INSERT AS INSERT INTO dbo.few EXEC dbo.one
        GO
        CREATE PROCEDURE dbo.writes AS INSERT INTO dbo.done (body) VALUES ('written') SELECT 3 AS n
        GO
        CREATE PROCEDURE dbo.taking AS INSERT INTO dbo.few EXEC dbo.writes
    """)
    with pytest.raises(psycopg.errors.RaiseException, match="cannot be nested") as nested:
        programs.call("dbo.taking()")
    assert nested.value.diag.message_detail == "Msg 8164, Level 16, State 1"
    programs.create("ALTER TRIGGER dbo.on_done ON dbo.done AFTER INSERT AS SELECT 1 AS n, 2 AS m")
    with pytest.raises(psycopg.errors.RaiseException, match="number of supplied values"):
        programs.call("dbo.taking()")
    assert programs.rows("select * from dbo.few") == []
    assert len(programs.call("dbo.one()")) == 1


TAKES = (
    "CREATE TABLE t (n int)\nGO\nCREATE PROCEDURE q AS {}\nGO\nCREATE PROCEDURE p AS\nINSERT INTO t EXEC {}"
)


@pytest.mark.parametrize(
    ("shows", "called", "why"),
    [
        ("SELECT 1 AS n, 2 AS m", "q", "it shows 2 columns, and INSERT names 1"),
        ("SELECT 1 AS n SELECT 'a' AS n", "q", "columns of several types"),
        ("SELECT * FROM dbo.somewhere", "q", "the types of the columns that it shows are not known"),
        ("BEGIN TRY SELECT 1 AS n END TRY BEGIN CATCH END CATCH", "q", "let it stand behind END CATCH"),
        ("BEGIN TRAN SELECT 1 AS n COMMIT", "q", "ends transactions"),
        ("EXEC dbo.elsewhere", "q", "what dbo.elsewhere shows is not known here"),
        ("SELECT 1 AS n", "elsewhere", "let its CREATE PROCEDURE stand above"),
        ("DECLARE @t TABLE (n int) INSERT @t EXEC ('SELECT 1')", "q", "it can't be nested"),
        ("SELECT 1 AS n", "(N'SELECT 1 AS n, 2 AS m')", "it shows 2 columns"),
    ],
)
def test_insert_exec_of_what_is_not_known_is_refused(shows: str, called: str, why: str) -> None:
    known = Known()
    *before, last = batches(TAKES.format(shows, called))
    for batch in before:
        prepare(read(batch), batch, known)
    with pytest.raises(ScriptError, match=why) as refused:
        prepare(read(last), last, known)
    assert refused.value.position == Position(6, 1)


PAGE = Path("docs/tsql-procedures.md")


def shown(name: str) -> str:
    found = re.search(rf"<!-- {name} -->\n```sql\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert found is not None
    return found[1]


def test_the_page_shows_what_its_procedure_becomes_and_it_runs(programs: Programs) -> None:
    programs.session.execute("create table dbo.trades (entry text)")
    programs.session.execute(
        "select broker.create_queue('tradequeue'); select broker.alter_service('Target', queue => 'tradequeue')"
    )
    (batch,) = batches(shown("source"))
    (statement,) = read(batch)
    made = modules.translate(statement, Known(tables={("dbo", "trades"): {"entry": TEXT}}))
    assert made.sql + "\n" == shown("becomes")
    programs.session.execute(made.sql.encode())
    programs.send("<trade/>")
    programs.call("dbo.booktrades()")
    assert programs.rows("select entry from dbo.trades") == [("<trade/>",)]


def test_the_pages_texts_run_with_their_values(programs: Programs) -> None:
    programs.session.execute("create table dbo.trades (n integer, entry text)")
    programs.session.execute("insert into dbo.trades values (1, 'a'), (2, 'a')")
    programs.known.tables["dbo", "trades"] = {"n": INTEGER, "entry": TEXT}
    programs.create(
        "CREATE PROCEDURE dbo.p @entry nvarchar(max), @n int AS DECLARE @sql nvarchar(max)\n" + shown("texts")
    )
    programs.call("dbo.p('a', 2)")
    assert programs.rows("select n, entry from dbo.trades order by n") == [(1, "a"), (None, "a")]


def test_the_pages_texts_have_names_that_are_values(programs: Programs) -> None:
    programs.create(
        "CREATE PROCEDURE dbo.p @name sysname AS DECLARE @sql nvarchar(max), @entry nvarchar(max)\n"
        + shown("names")
    )
    programs.call("dbo.p('x')")
    assert programs.rows('select count(*) from dbo."x/queue"') == [(0,)]


@pytest.mark.parametrize(
    "text",
    re.findall(r"^\| `(.+)` \|", PAGE.read_text("utf-8").partition("## What is refused")[2], re.MULTILINE),
)
def test_what_the_page_says_is_refused_is_refused(text: str) -> None:
    (batch,) = batches(f"CREATE PROCEDURE p AS DECLARE @s nvarchar(9), @n int, @b varbinary(9) {text}")
    with pytest.raises(ScriptError):
        [modules.translate(statement, Known()) for statement in read(batch)]


WORDS = st.sampled_from(
    re.findall(r"\w+|N?'[^']*'|@@?\w+|[^\w\s]", LOOP + CHAPTER + WHITEPAPER + GRANULAR + ROW_COUNTS)
)


@given(st.lists(WORDS, max_size=40))
@settings(max_examples=150, deadline=None)
def test_any_words_are_translated_or_refused(words: list[str]) -> None:
    for batch in batches(
        f"CREATE PROCEDURE p AS DECLARE @h uniqueidentifier, @body nvarchar(9) {' '.join(words)}"
    ):
        with suppress(ScriptError):
            for statement in read(batch):
                modules.translate(statement, Known(tables=dict(TABLES)))


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_a_procedure_that_is_cut_off_or_mixed_up_is_refused_with_a_place(data: st.DataObject) -> None:
    words = re.findall(r"\S+", data.draw(st.sampled_from([LOOP, CHAPTER, WHITEPAPER, GRANULAR, ROW_COUNTS])))
    begin = data.draw(st.integers(3, len(words)))
    end = data.draw(st.integers(begin, len(words)))
    text = " ".join(words[:begin] + words[end:])
    position = Position(1, 1)
    try:
        for batch in batches(text):
            for statement in read(batch):
                modules.translate(statement, Known(tables=dict(TABLES)))
    except ScriptError as refused:
        position = refused.position
    assert position.line == 1
    assert 1 <= position.column <= len(text) + 1


LEAVES = """SET @i = @i + 1
PRINT @s
SELECT @i = COUNT(*) FROM dbo.t
INSERT INTO dbo.t (n) VALUES (@i)
UPDATE dbo.t SET n = 2 WHERE n = @i
BEGIN TRAN
COMMIT
ROLLBACK
IF @@TRANCOUNT > 0 ROLLBACK
IF @@ROWCOUNT = 0 BREAK
SET @i = @@ERROR
RETURN
BREAK
CONTINUE
GOTO again
GOTO theend
RAISERROR ('x %d', 16, 1, @i)
THROW
EXEC (N'DELETE FROM dbo.t')
SEND ON CONVERSATION @h MESSAGE TYPE m (@s)
END CONVERSATION @h
WAITFOR (RECEIVE TOP (1) @h = conversation_handle, @s = message_body FROM Target), TIMEOUT 100
RECEIVE TOP (1) @h = conversation_handle FROM Target
DECLARE c CURSOR LOCAL FOR SELECT n FROM dbo.t
OPEN c
FETCH NEXT FROM c INTO @i
CLOSE c
DEALLOCATE c""".splitlines()


def compound(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    block = st.lists(inner, min_size=1, max_size=4).map("\n".join)
    return st.one_of(
        block.map("IF @i = 1 BEGIN\n{}\nEND".format),
        block.map("WHILE @i < 10 BEGIN\n{}\nEND".format),
        st.tuples(block, block).map(
            lambda two: "BEGIN TRY\n{}\nEND TRY\nBEGIN CATCH\n{}\nEND CATCH".format(*two)
        ),
    )


@given(st.lists(st.recursive(st.sampled_from(LEAVES), compound, max_leaves=8), min_size=1, max_size=6))
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_postgresql_takes_each_procedure_that_is_not_refused(
    programs: Programs, statements: list[str]
) -> None:
    programs.session.execute("drop routine if exists dbo.mixed")
    programs.session.execute("create table if not exists dbo.t (n integer)")
    programs.known.tables["dbo", "t"] = {"n": INTEGER}
    body = "\n".join(statements)
    with suppress(ScriptError):
        programs.create(
            "CREATE PROCEDURE dbo.mixed AS\nDECLARE @i int, @s nvarchar(100), @h uniqueidentifier\n"
            f"again:\n{body}\ntheend:\nPRINT 'over'"
        )


NOTING = """
CREATE PROCEDURE Note @what nvarchar(20), @noted int OUTPUT AS
  BEGIN TRAN
  INSERT INTO done (body) VALUES (@what)
  SELECT @noted = COUNT(*) FROM done
  COMMIT
GO
"""


def test_a_procedures_own_transaction_is_a_part_of_its_callers(programs: Programs) -> None:
    programs.create(
        NOTING
        + """
        CREATE PROCEDURE Twice @what nvarchar(20), @first int OUTPUT AS
          DECLARE @n int
          INSERT INTO done (body) VALUES ('now')
          BEGIN TRANSACTION
          EXEC Note @what, @first OUTPUT
          EXEC Note @what, @n OUTPUT
          COMMIT TRANSACTION
          EXEC Note 'behind', @n OUTPUT
        GO
        CREATE PROCEDURE Undone @commits int AS
          DECLARE @n int
          IF @commits = 1 BEGIN TRAN
          EXEC Twice 'one', @n OUTPUT
          PRINT @n
          IF @@TRANCOUNT > 0 COMMIT
          BEGIN TRAN
          EXEC Twice 'two', @n OUTPUT
          EXEC Note 'two', @n OUTPUT
          PRINT @n
          ROLLBACK
          SELECT @n = 1 / (@commits - 1)
        """
    )
    # What is committed outlives the error at the end; what its caller undoes is gone.
    with pytest.raises(psycopg.errors.DivisionByZero):
        programs.call("dbo.undone(1)")
    assert programs.notices == ["2", "9"]
    assert programs.done() == ["now", "one", "one", "behind"]
    assert programs.call("dbo.undone(0)") == ["6", "13"]
    assert programs.done() == ["now", "one", "one", "behind"] * 2
    # Nothing of it is left for the next call: its own transaction is committed again.
    programs.create(
        "CREATE PROCEDURE Fails AS DECLARE @n int; EXEC Note 'kept', @n OUTPUT; SELECT @n = 1 / 0"
    )
    with pytest.raises(psycopg.errors.DivisionByZero):
        programs.call("dbo.fails()")
    assert programs.done()[-1] == "kept"


def test_what_is_called_by_what_is_called_is_a_part_of_the_transaction_too(programs: Programs) -> None:
    programs.create(
        NOTING
        + """
        CREATE PROCEDURE Between AS DECLARE @n int; EXEC Note 'between', @n OUTPUT
        GO
        CREATE PROCEDURE Undone AS
          BEGIN TRAN
          INSERT INTO done (body) VALUES ('undone')
          EXEC Between
          ROLLBACK
        """
    )
    programs.call("dbo.undone()")
    assert programs.done() == []
    programs.call("dbo.between()")
    assert programs.done() == ["between"]


@pytest.mark.parametrize(
    ("inner", "calls", "said"),
    [
        ("BEGIN TRAN IF @n = 1 ROLLBACK ELSE COMMIT", "BEGIN TRAN EXEC Middle COMMIT", "within one"),
        (
            "BEGIN TRAN COMMIT",
            "BEGIN TRY EXEC Middle END TRY BEGIN CATCH PRINT 'a' END CATCH",
            "a TRY of its own",
        ),
        (
            "BEGIN TRAN COMMIT",
            "BEGIN TRY EXEC Inner_ 1 END TRY BEGIN CATCH PRINT 'a' END CATCH",
            "a TRY of its own",
        ),
    ],
)
def test_a_transaction_that_would_end_where_none_can_is_refused(inner: str, calls: str, said: str) -> None:
    known = Known(tables=dict(TABLES))
    made = f"CREATE PROCEDURE Inner_ @n int AS {inner}", "CREATE PROCEDURE Middle AS EXEC Inner_ 1"
    for batch in map(Batch, made):
        prepare(read(batch), batch, known)
    last = Batch(f"CREATE PROCEDURE Outer_ AS {calls}")
    with pytest.raises(ScriptError, match=said) as refused:
        prepare(read(last), last, known)
    assert refused.value.position == Position(1, last.text.index("EXEC") + 1)


@pytest.mark.parametrize(
    "body",
    [
        "BEGIN TRAN IF @n = 1 ROLLBACK ELSE COMMIT",
        "COMMIT BEGIN TRAN",
        "BEGIN TRAN IF @n = 1 RETURN COMMIT",
        "BEGIN TRAN PRINT @@TRANCOUNT COMMIT",
        "BEGIN TRY BEGIN TRAN INSERT INTO done (body) VALUES ('a') COMMIT END TRY BEGIN CATCH PRINT 'b' END CATCH",
        "BEGIN TRAN WHILE @n < 3 BEGIN COMMIT BEGIN TRAN END",
    ],
)
def test_a_transaction_that_may_end_its_callers_is_refused_within_one(body: str) -> None:
    known = Known(tables=dict(TABLES))
    within = "CREATE PROCEDURE Outer_ AS BEGIN TRAN EXEC Inner_ 1 COMMIT"
    batch, another = Batch(f"CREATE PROCEDURE Inner_ @n int AS {body}"), Batch(within)
    prepare(read(batch), batch, known)
    with pytest.raises(ScriptError, match="ends transactions, so it can't be called within one") as refused:
        prepare(read(another), another, known)
    assert refused.value.position == Position(1, within.index("EXEC") + 1)
