"""Conversations, control flow and modules are read whole, or refused where they go wrong."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.tsql.language import read, tree
from pybroker.tsql.language.printing import print_statement
from pybroker.tsql.source import Batch, Position, ScriptError, batches
from pybroker.tsql.tree import Name, Statement

NAMES = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"), min_size=1, max_size=8
).filter(lambda name: not name.startswith(("@", "#")))
OBJECTS = st.builds(Name, NAMES, st.none() | NAMES)
VARIABLES = st.sampled_from(["@a", "@Message", "@_1"])
EXPRESSIONS = st.sampled_from(
    [
        "1",
        "@a + N'it''s; END'",
        "CASE WHEN @a = 1 THEN 2 ELSE 3 END",
        "(SELECT TOP (1) a FROM t)",
        "CAST(@a AS xml)",
        "NOT EXISTS (SELECT 1 FROM [select]) AND @@ROWCOUNT <> 0",
        "-- why\n 1",
    ]
).map(lambda text: tree.Code(text.partition("\n ")[2] or text))
HANDLES = st.sampled_from(["@h", "(SELECT TOP (1) h FROM t)"]).map(tree.Code)
QUERIES = st.sampled_from(
    [
        ("SELECT", "SELECT 1 UNION ALL SELECT 2 ORDER BY 1 OFFSET 1 ROWS FETCH NEXT 1 ROWS ONLY"),
        ("INSERT", "INSERT INTO t (a) SELECT 1"),
        ("INSERT", "INSERT t OUTPUT inserted.a VALUES (1), (2)"),
        ("UPDATE", "UPDATE t SET a = CASE WHEN b = 1 THEN 2 END FROM t WHERE c = 1"),
        ("DELETE", "DELETE FROM t OUTPUT deleted.a INTO @t WHERE a = 1"),
        ("SELECT", "WITH c AS (SELECT 1 AS a) SELECT a FROM c"),
        ("TRUNCATE", "TRUNCATE TABLE t"),
    ]
).map(lambda pair: tree.Query(verb=pair[0], code=tree.Code(pair[1])))
TYPES = st.sampled_from(
    [
        tree.Type(Name("uniqueidentifier")),
        tree.Type(Name("nvarchar"), ("max",)),
        tree.Type(Name("decimal"), ("10", "2")),
    ]
).map(lambda kind: tree.Type(Name(kind.name.name), kind.arguments))
EXACT = NAMES | VARIABLES.map(tree.Code)


def optional(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


def some(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(strategy, min_size=1, max_size=3).map(tuple)


COLUMNS = st.sampled_from(["*", "message_body", "CAST(message_body AS XML)", "priority + 1"]).map(tree.Code)
RECEIVES = st.one_of(
    st.builds(
        tree.Receive,
        top=optional(EXPRESSIONS),
        columns=some(st.builds(tree.Column, value=COLUMNS, variable=VARIABLES)),
        queue=OBJECTS,
        conversation_group_id=optional(HANDLES),
    ),
    st.builds(
        tree.Receive,
        columns=some(
            st.builds(tree.Column, value=COLUMNS.filter(lambda one: one.text != "*"), name=optional(NAMES))
        ),
        queue=OBJECTS,
        into=optional(VARIABLES),
        conversation_handle=optional(HANDLES),
    ),
)
GETS = st.builds(tree.GetConversationGroup, variable=VARIABLES, queue=OBJECTS)
EXECUTES = st.builds(
    tree.Execute,
    result=optional(VARIABLES),
    procedure=OBJECTS,
    arguments=st.lists(
        st.builds(tree.Argument, name=optional(VARIABLES), value=optional(EXPRESSIONS))
        | st.builds(tree.Argument, name=VARIABLES, value=VARIABLES.map(tree.Code), is_output=st.booleans()),
        max_size=2,
    ).map(tuple),
)
LEAVES: st.SearchStrategy[Statement] = st.one_of(
    st.builds(
        tree.BeginDialog,
        handle=VARIABLES,
        from_service=EXACT,
        to_service=EXPRESSIONS,
        broker_instance=optional(EXPRESSIONS),
        contract=optional(EXACT),
        related_conversation=optional(EXPRESSIONS),
        related_conversation_group=optional(EXPRESSIONS),
        lifetime=optional(EXPRESSIONS),
        encryption=optional(st.booleans()),
    ),
    st.builds(tree.Send, handles=some(EXPRESSIONS), message_type=optional(EXACT), body=optional(EXPRESSIONS)),
    RECEIVES,
    GETS,
    st.builds(tree.WaitFor, statement=RECEIVES | GETS, timeout=optional(EXPRESSIONS)),
    st.builds(tree.MoveConversation, handle=EXPRESSIONS, group=EXPRESSIONS),
    st.builds(tree.EndConversation, handle=EXPRESSIONS, error=EXPRESSIONS, description=EXPRESSIONS),
    st.builds(tree.EndConversation, handle=EXPRESSIONS, cleanup=st.booleans()),
    st.builds(tree.BeginTimer, handle=EXPRESSIONS, timeout=EXPRESSIONS),
    st.builds(
        tree.Declare,
        variables=some(
            st.builds(tree.Variable, name=VARIABLES, type=TYPES, default=optional(EXPRESSIONS))
            | st.builds(tree.TableVariable, name=VARIABLES, definition=st.just(tree.Code("(a int, b text)")))
        ),
    ),
    st.builds(tree.Assign, variable=VARIABLES, operator=st.sampled_from(["=", "+="]), value=EXPRESSIONS),
    st.builds(
        tree.SelectVariables,
        top=optional(EXPRESSIONS),
        assignments=some(st.builds(tree.Assign, variable=VARIABLES, value=EXPRESSIONS)),
        source=st.sampled_from([None, tree.Code("FROM t WHERE a = 1")]),
    ),
    st.builds(tree.Break),
    st.builds(tree.Goto, label=st.just("done")),
    st.builds(tree.Label, name=st.just("done")),
    st.builds(tree.Continue),
    st.builds(tree.Return, value=optional(EXPRESSIONS)),
    st.builds(tree.Throw),
    st.builds(tree.Throw, arguments=st.just(tuple(map(tree.Code, ("50001", "@a", "1"))))),
    st.builds(tree.RaiseError, arguments=some(EXPRESSIONS), options=st.sampled_from([(), ("NOWAIT",)])),
    st.builds(tree.Print, value=EXPRESSIONS),
    st.builds(tree.Delay, kind=st.sampled_from(["DELAY", "TIME"]), value=EXPRESSIONS),
    st.just(tree.SetOption(option="XACT_ABORT", value="ON")),
    st.builds(
        tree.Transaction,
        verb=st.sampled_from(["BEGIN", "COMMIT", "ROLLBACK", "SAVE"]),
        name=optional(VARIABLES | NAMES),
    ),
    EXECUTES,
    st.builds(tree.ExecuteText, text=EXPRESSIONS),
    QUERIES,
    st.builds(tree.InsertExecute, target=st.just(tree.Code("INTO t (a)")), execute=EXECUTES),
    st.builds(
        tree.DeclareCursor,
        name=NAMES,
        options=st.sampled_from([(), ("LOCAL", "FAST_FORWARD"), ("INSENSITIVE",)]),
        query=st.just(tree.Code("SELECT a FROM t FOR UPDATE OF a")),
    ),
    st.builds(tree.Cursor, verb=st.sampled_from(["OPEN", "CLOSE", "DEALLOCATE"]), name=NAMES | VARIABLES),
    st.builds(tree.Fetch, name=NAMES, variables=some(VARIABLES)),
    st.builds(tree.Fetch, direction=st.just("ABSOLUTE"), offset=EXPRESSIONS, name=NAMES),
    st.builds(tree.CreateTable, name=OBJECTS, definition=st.just(tree.Code("(a int PRIMARY KEY)"))),
    st.builds(tree.CreateType, name=OBJECTS, base=TYPES, is_null=optional(st.booleans())),
    st.just(tree.Definition(kind="ALTER TABLE", code=tree.Code("ALTER TABLE t DROP COLUMN a"))),
    st.builds(
        tree.DropThings,
        kind=st.sampled_from(["PROCEDURE", "TABLE", "FUNCTION"]),
        names=some(OBJECTS),
        if_exists=st.booleans(),
    ),
)


def bodies(inner: st.SearchStrategy[Statement]) -> st.SearchStrategy[Statement]:
    # An ELSE belongs to the nearest IF, so one between IF and ELSE is in a block.
    blocks = st.builds(tree.Block, statements=some(inner))
    return st.one_of(
        blocks,
        st.builds(tree.If, condition=EXPRESSIONS, then=blocks, otherwise=optional(inner)),
        st.builds(tree.While, condition=EXPRESSIONS, body=inner),
        st.builds(tree.TryCatch, body=some(inner), handler=st.lists(inner, max_size=2).map(tuple)),
    )


STATEMENTS = st.recursive(LEAVES, bodies, max_leaves=6)
EXECUTE_AS = st.sampled_from([None, "SELF", "OWNER"]) | NAMES.map("[{}]".format)
PARAMETERS = st.lists(
    st.builds(
        tree.Parameter, name=VARIABLES, type=TYPES, default=optional(EXPRESSIONS), is_output=st.booleans()
    ),
    max_size=2,
).map(tuple)
VERBS = st.sampled_from(["CREATE", "ALTER", "CREATE OR ALTER"])
MODULES: st.SearchStrategy[Statement] = st.one_of(
    st.builds(
        tree.CreateProcedure,
        verb=VERBS,
        name=OBJECTS,
        parameters=PARAMETERS,
        execute_as=EXECUTE_AS,
        body=some(STATEMENTS),
    ),
    st.builds(
        tree.CreateFunction,
        verb=VERBS,
        name=OBJECTS,
        parameters=PARAMETERS,
        returns=TYPES | st.just(tree.TableVariable(name="@t", definition=tree.Code("(a int)"))),
        options=st.sampled_from([(), ("SCHEMABINDING",)]),
        body=st.builds(tree.Block, statements=some(STATEMENTS)).map(lambda block: (block,)),
    ),
    st.builds(tree.CreateFunction, verb=VERBS, name=OBJECTS, query=st.just(tree.Code("SELECT 1 AS a"))),
    st.builds(
        tree.CreateTrigger,
        verb=VERBS,
        name=OBJECTS,
        table=OBJECTS,
        timing=st.sampled_from(["AFTER", "INSTEAD OF"]),
        events=some(st.sampled_from(["INSERT", "UPDATE", "DELETE"])),
        body=some(STATEMENTS),
    ),
    st.builds(tree.CreateView, verb=VERBS, name=OBJECTS, query=st.just(tree.Code("SELECT a FROM t"))),
)


@given(some(STATEMENTS))
def test_what_is_printed_is_read_again_as_the_same(statements: tuple[Statement, ...]) -> None:
    assert tuple(read(Batch("\n".join(map(print_statement, statements))))) == statements


@given(MODULES)
def test_a_module_is_its_batch(module: Statement) -> None:
    assert read(Batch(print_statement(module))) == [module]


def place_of_refusal(text: str) -> Position | None:
    try:
        read(Batch(text))
    except ScriptError as error:
        return error.position
    return None


@given(STATEMENTS | MODULES, st.data())
def test_a_cut_off_batch_gets_an_error_inside_of_it(statement: Statement, data: st.DataObject) -> None:
    text = print_statement(statement)
    cut = text[: data.draw(st.integers(0, len(text)))]
    place = place_of_refusal(cut)
    assert place is None or (1 <= place.line <= cut.count("\n") + 1 and place.column >= 1)


@pytest.mark.parametrize(
    "text",
    ["BEGIN " * 20_000, "(" * 50_000, "IF 1 = 1 " * 20_000, "SELECT (" * 20_000, "x " * 50_000, "'" * 99_999],
)
def test_what_is_repeated_many_times_is_refused_and_not_tried_for_ever(text: str) -> None:
    with pytest.raises(ScriptError):
        read(Batch(text))


def kinds(script: str) -> list[str]:
    return [type(one).__name__ for batch in batches(script) for one in read(batch)]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("SET @a = 1 SELECT @a SEND ON CONVERSATION @h END CONVERSATION @h", "Assign Query Send EndConversation"),
        ("IF @a IS NULL BREAK ELSE CONTINUE RECEIVE * FROM q", "If Receive"),
        ("BEGIN END CONVERSATION @h END", "Block"),
        ("INSERT t VALUES (1) SELECT 2 INSERT t SELECT 3 SELECT 4", "Query Query Query Query"),
        ("INSERT INTO t (a) EXEC p 1; EXEC p", "InsertExecute Execute"),
        ("sp_help t", "Execute"),
        ("COMMIT TRAN GET CONVERSATION GROUP @g FROM q", "Transaction GetConversationGroup"),
        ("CREATE QUEUE q DECLARE @a int BEGIN DIALOG @h FROM SERVICE a TO SERVICE 'b'", "Queue Declare BeginDialog"),
        ("SELECT @a = 1, @b = b FROM t PRINT @a", "SelectVariables Print"),
        ("RETURN SELECT 1", "Return Query"),
        ("BEGIN TRY SELECT 1 END TRY BEGIN CATCH THROW END CATCH THROW 50001, 'x', 1", "TryCatch Throw"),
        ("IF UPDATE(a) UPDATE t SET a = 1 SET @b = 2", "If Assign"),
        ("RECEIVE TOP(1) @a = conversation_handle FROM dbo.q WHERE conversation_group_id = @g END CONVERSATION @a", "Receive EndConversation"),
    ],
)  # fmt: skip
def test_a_statement_ends_where_the_next_begins(script: str, expected: str) -> None:
    assert kinds(script) == expected.split()


@pytest.mark.parametrize(
    ("script", "place", "why"),
    [
        ("SELECT 1\nSET @a = 1 enable trigger t", (2, 12), "enable"),
        ("DECLARE @dh\nDECLARE @a int", (2, 1), "expected a type"),
        ("BEGIN\n  SELECT (1", (2, 10), "no )"),
        ("IF 1 = 1", (1, 9), "end of the batch"),
        ("GOTO", (1, 5), "expected a name"),
        ("SELECT 1\nCREATE PROCEDURE p AS SELECT 1", (2, 1), "write GO"),
        ("WAITFOR (SELECT 1)", (1, 10), "RECEIVE"),
        ("RECEIVE * FROM q WHERE priority = 1", (1, 24), "conversation_handle"),
        ("SELECT 'never", (1, 8), "not closed"),
        ("BEGIN DIALOG @h FROM SERVICE a TO SERVICE 'b' WITH LIFETIME = 1, LIFETIME = 2", (1, 66), "twice"),
        ("EXEC a.b.c.d", (1, 13), "four parts"),
        ("RAISERROR 50001 'x'", (1, 11), "parentheses"),
        ("END", (1, 1), "END without BEGIN"),
        ("SELECT CASE WHEN 1 = 1 THEN 2", (1, 30), "CASE has no END"),
        ("MERGE t USING u ON t.a = u.a WHEN MATCHED THEN DELETE\nOUTPUT $Action, deleted.a;", (2, 8), "UPDATE and INSERT"),
        ("DECLARE @x xml\nSET @x.modify('delete /a')", (2, 7), "assign a new value"),
    ],
)  # fmt: skip
def test_what_is_not_understood_is_refused_where_it_stands(
    script: str, place: tuple[int, int], why: str
) -> None:
    with pytest.raises(ScriptError) as caught:
        read(Batch(script))
    assert (caught.value.position.line, caught.value.position.column) == place
    assert why in str(caught.value)
