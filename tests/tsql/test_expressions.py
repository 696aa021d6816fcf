"""An expression or query of T-SQL has in PostgreSQL the value that it has in SQL Server, or is refused with its place."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

import psycopg
import pytest

from pybroker.tsql.expressions import translating
from pybroker.tsql.expressions.queue import MESSAGE
from pybroker.tsql.expressions.scope import Scope
from pybroker.tsql.expressions.tables import definition
from pybroker.tsql.expressions.types import BINARY, INTEGER, TEXT
from pybroker.tsql.expressions.types import UUID as UNIQUEIDENTIFIER
from pybroker.tsql.language.tree import Code
from pybroker.tsql.source import Position, ScriptError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.conftest import Database
    from tests.shop import Shop

HANDLE = "E7044BCF-CFFF-4526-810B-5A33EB763D0B"
VARIABLES = {
    "@n": ("int", "7"),
    "@none": ("int", "cast(null as integer)"),
    "@text": ("nvarchar(max)", "'It is  '::text"),
    "@short": ("varchar(5)", "'abc'::varchar(5)"),
    "@body": ("varbinary(max)", "convert_to('Grüße', 'UTF8')"),
    "@handle": ("uniqueidentifier", f"'{HANDLE}'::uuid"),
    "@when": ("datetime", "timestamp(3) '2026-03-05 09:07:08.123'"),
    "@later": ("datetime", "timestamp(3) '2026-04-01 00:00:00'"),
    "@day": ("date", "date '2026-01-31'"),
    "@price": ("decimal(10, 2)", "12.75::numeric(10, 2)"),
    "@on": ("bit", "1::smallint"),
}
# What SQL Server answers, for each of these.
VALUES: dict[str, Any] = {
    "@n + 1": 8,
    "@n / 2": 3,
    "-@n / 2": -3,
    "@n % 4 * (2 + 1)": 9,
    "@n & (3 + 1) | 8": 12,
    "5 - 1 & 6": 4,
    "str(2.0 / 3)": "0.666666",
    "str(@price / 3)": "4.250000",
    "str(@n / 2.0)": "3.500000",
    "str(3000000000 / 7)": "428571428.571428",
    "str(@price / @price * 2)": "2.0000000000000",
    "str(ROUND(12.345, 2))": "12.350",
    "str(POWER(2.0, 3))": "8.0",
    "str(CASE WHEN @n = 7 THEN 1.5 ELSE @price END)": "1.50",
    "SIGN(@n) / 2": 0,
    "CEILING(@n) / 2": 3,
    "(SELECT SUM(x.v) / 2 FROM (SELECT CAST(7 AS bigint) AS v) x)": 3,
    "str((SELECT AVG(x.v) FROM (SELECT 1.5 AS v UNION ALL SELECT 1 UNION ALL SELECT 1) x))": "1.166666",
    "(SELECT SUM(y.s) FROM (SELECT AVG(x.v) OVER (PARTITION BY x.v) AS s FROM (SELECT 1 AS v UNION SELECT 2) x) y)": 3,
    "CASE WHEN '5' IN (1, @n - 2) AND CAST('6' AS varchar(9)) BETWEEN 5 AND @n THEN 1 END": 1,
    "@n | 8": 15,
    "'a' + @short + N'é'": "aabcé",
    "@text + NULL": None,
    "'it''s \\ ' + 'x'": "it's \\ x",
    "'5' + @n": 12,
    "0x48 + 0x49": b"HI",
    "@when + 1": datetime(2026, 3, 6, 9, 7, 8, 123000),
    "CAST(@body AS nvarchar(max))": "Grüße",
    "CONVERT(nvarchar(3), @body)": "Grü",
    "CAST(N'Grüße' AS varbinary(max))": "Grüße".encode(),
    "CAST(@body AS varbinary(2))": b"Gr",
    "CAST(@handle AS nvarchar(36))": HANDLE,
    f"CAST('{HANDLE.lower()}' AS uniqueidentifier)": UUID(HANDLE),
    "CAST(@price AS int)": 12,
    "CAST(2.5 AS int)": 2,
    "CAST(-2.5 AS int)": -2,
    "CAST('12' AS int) + 1": 13,
    "CAST(@n AS varchar(10)) + '!'": "7!",
    "CAST('abcdef' AS char(3))": "abc",
    "CAST(@short AS nchar(5)) + '|'": "abc  |",
    "CAST('abcdefghij' AS varchar(4))": "abcd",
    "CAST(-12 AS nvarchar(3)) + CONVERT(varchar(4), 1.25) + CAST(@on AS char(2)) + '!'": "-121.251 !",
    "CAST(5 AS bit)": 1,
    "CAST('true' AS bit)": 1,
    "CAST(UPPER('false') AS bit) + CAST(CAST('2' AS varchar(9)) AS bit)": 1,
    "(SELECT SUM(y.a) FROM (SELECT TOP 34 PERCENT x.a FROM (SELECT 1 AS a UNION SELECT 2 UNION SELECT 3) x ORDER BY x.a DESC) y)": 5,
    "CAST(@when AS varchar(30))": "Mar  5 2026  9:07AM",
    "CONVERT(varchar(10), @when, 120)": "2026-03-05",
    "CONVERT(varchar(30), @when, 121)": "2026-03-05 09:07:08.123",
    "CONVERT(varchar(30), @when, 126)": "2026-03-05T09:07:08.123",
    "CONVERT(varchar(30), @when, 101)": "03/05/2026",
    "CONVERT(varchar(30), @later, 126)": "2026-04-01T00:00:00",
    "CONVERT(varchar(30), @when, 109)": "Mar  5 2026  9:07:08:123AM",
    "CONVERT(varchar(30), @when, 113)": "05 Mar 2026 09:07:08:123",
    "CONVERT(varchar(30), @when, 106)": "05 Mar 2026",
    "CONVERT(varchar(30), @when, 107)": "Mar 05, 2026",
    "CONVERT(char(12), @when, 112) + '|'": "20260305    |",
    "CONVERT(varchar(30), @day, 120)": "2026-01-31",
    "CONVERT(varchar(30), @day, 100)": "Jan 31 2026",
    "CONVERT(varchar(30), CAST(@when AS datetime2), 121)": "2026-03-05 09:07:08.1230000",
    "CONVERT(varchar(30), CAST(@when AS datetime2(3)), 126)": "2026-03-05T09:07:08.123",
    "CAST(CAST(@when AS datetime2(0)) AS varchar(30))": "2026-03-05 09:07:08",
    "LEN(CAST(SYSDATETIME() AS varchar(40))) + LEN(CONVERT(varchar(40), SYSUTCDATETIME(), 21))": 54,
    "CONVERT(varchar(4), 0x4a4b, 1)": "0x4A",
    "CONVERT(varbinary(1), '4a4b', 2)": b"J",
    "CONVERT(varchar(30), 0x4a4b, 2)": "4A4B",
    "CONVERT(varbinary(9), '0x4a4b', 1)": b"JK",
    "CAST(NULL AS int)": None,
    "ISNULL(@none, 5)": 5,
    "ISNULL(@short, 'longer than five')": "abc",
    "COALESCE(@none, @n, 1)": 7,
    "COALESCE(@none, '12')": 12,
    "NULLIF(@n, 7)": None,
    "CASE WHEN @n > 5 THEN 'big' WHEN @n > 3 THEN 'small' ELSE @text END": "big",
    "CASE @n WHEN 7 THEN 1 ELSE 0 END": 1,
    "IIF(@none IS NULL, 'none', 'some')": "none",
    "CHOOSE(2, 'a', 'b')": "b",
    "LEN(@text)": 5,
    "LEN(NULL)": None,
    "DATALENGTH(@body)": 7,
    "SUBSTRING(@text, 4, 2)": "is",
    "SUBSTRING(@short, 0, 2)": "a",
    "SUBSTRING(0x010203, 2, 1)": b"\2",
    "LEFT(@text, 2) + RIGHT('abc', 2)": "Itbc",
    "UPPER(@short) + LOWER('XY')": "ABCxy",
    "'[' + LTRIM(RTRIM(' a ')) + ']'": "[a]",
    "REPLACE(@short, 'b', '-')": "a-c",
    "STUFF('abcdef', 2, 3, 'xyz!')": "axyz!ef",
    "STUFF('abc', 9, 1, 'x')": None,
    "CHARINDEX('c', @short)": 3,
    "CHARINDEX('a', 'banana', 3)": 4,
    "CHARINDEX('x', 'banana', 3)": 0,
    "REPLICATE('x', 3) + SPACE(2) + REVERSE('ab')": "xxx  ba",
    "CHAR(65) + NCHAR(233)": "Aé",
    "ASCII('A')": 65,
    "CONCAT('a', NULL, @n, @handle)": f"a7{HANDLE}",
    "QUOTENAME('a]b')": "[a]]b]",
    "HASHBYTES('MD5', '')": bytes.fromhex("d41d8cd98f00b204e9800998ecf8427e"),
    "ABS(-5) + FLOOR(1.5) + CEILING(1.2)": Decimal(8),
    "ROUND(12.345, 2)": Decimal("12.35"),
    "POWER(2, 10)": 1024,
    "DATEADD(day, -1, @when)": datetime(2026, 3, 4, 9, 7, 8, 123000),
    "CAST(DATEADD(month, 1, @day) AS varchar(10))": "2026-02-28",
    "DATEADD(ms, 5, @when)": datetime(2026, 3, 5, 9, 7, 8, 128000),
    "DATEADD(minute, @n, '20260101')": datetime(2026, 1, 1, 0, 7),
    "DATEDIFF(day, @when, @later)": 27,
    "DATEDIFF(month, @when, @later)": 1,
    "DATEDIFF(year, '20251231', '20260101')": 1,
    "DATEDIFF(hour, '2026-01-01 00:59', '2026-01-01 01:01')": 1,
    "DATEDIFF(second, '2026-01-01 00:00:00.9', '2026-01-01 00:00:01.1')": 1,
    "DATEDIFF(ms, @when, DATEADD(second, 2, @when))": 2000,
    "DATEDIFF(week, '20260103', '20260104')": 1,
    "DATEPART(weekday, '20260104')": 1,
    "DATEPART(ms, @when)": 123,
    "YEAR(@when) + MONTH(@when) + DAY(@when)": 2026 + 3 + 5,
    "DATENAME(month, @when)": "March",
    "CASE WHEN GETDATE() > '20260101' AND SYSDATETIME() IS NOT NULL THEN 1 END": 1,
    "LEN(CAST(NEWID() AS varchar(40)))": 36,
    "CASE WHEN @handle = CAST(@handle AS nvarchar(36)) THEN 1 END": 1,
    "CASE WHEN @short LIKE 'a%' AND @short NOT LIKE '_' AND 'a%b' LIKE 'a!%b' ESCAPE '!' THEN 1 END": 1,
    "CASE WHEN 'a\\b' LIKE '%\\%' THEN 1 END": 1,
    "CASE WHEN @n IN (1, 7) AND @n NOT IN (8, 9) AND @n BETWEEN 7 AND 8 AND NOT (@n <> 7) THEN 1 END": 1,
    "CASE WHEN @on = 1 AND @text = 'It is  ' THEN 1 END": 1,
    "CASE WHEN EXISTS (SELECT 1 WHERE @n = 7) THEN 1 END": 1,
    "(SELECT MAX(x.v) FROM (SELECT 1 AS v UNION ALL SELECT 3) AS x)": 3,
    "(SELECT AVG(x.v) FROM (SELECT 1 AS v UNION ALL SELECT 2) AS x)": 1,
    "(SELECT TOP 1 x.v FROM (SELECT 1 AS v UNION ALL SELECT NULL) AS x ORDER BY v)": None,
    "(SELECT STRING_AGG(x.v, ',') WITHIN GROUP (ORDER BY x.v DESC) FROM (SELECT 'a' AS v UNION SELECT 'b') x)": "b,a",
}
REFUSED = {
    "@nope": "the variable @nope is not declared",
    "column": "there is no column",
    "'x' + @n": "write CAST(… AS nvarchar(20))",
    "@n + FOO(1)": "FOO",
    "TRY_CAST(@text AS int)": "TRY … CATCH",
    "TRY_CONVERT(int, @text)": "TRY … CATCH",
    "CAST(1.5E0 AS varchar(10))": "CAST it to decimal",
    "CAST(@n AS sql_variant)": "the type variant is not known here",
    "CAST(@n AS varbinary(4))": "is not converted",
    "CONVERT(varchar(20), @when, 130)": "style 130",
    "CONVERT(varchar(20), @day, 108)": "style 108",
    "CONVERT(varchar(40), SYSDATETIMEOFFSET(), 120)": "CAST it to datetime first",
    "CAST(@when AS smalldatetime)": "write datetime2(0)",
    "DATEADD(hour, 1, @day)": "CAST it to datetime",
    "4 & 3 + 1": "needs parentheses",
    "CAST(1 AS money) / 3": "CAST both sides to decimal",
    "CAST(1 AS decimal(38, 10)) / CAST(3 AS decimal(38, 10))": "more than 38 digits",
    "(SELECT SUM(x.v) FROM (SELECT @on AS v) x)": "CAST it to int",
    "CONVERT(varchar(20), @when, @n)": "style",
    "@n = 1": "a condition is no value",
    "@@SERVERNAME": "has no meaning here",
    "$1.50": "money",
    "'open": "can't be read",
    "@n +": "not understood",
    "1; 2": "one expression",
    "FORMAT(@when, 'd')": "CONVERT with a style",
    "@short LIKE '[a-c]%' ": "a condition is no value",
    "@text.value('/a', 'int')": "is a method of XML",
    "": "there is nothing here",
    "(" * 500: "nested too deeply",
    "(SELECT 1 FROM other.dbo.t)": "another database",
    "MAX(@handle)": "another order",
}


def scope() -> Scope:
    known = Scope()
    for name, (type_, sql) in VARIABLES.items():
        known.declare(name, type_, f"({sql})")
    return known


def code(text: str) -> Code:
    return Code(text, Position(10, 5))


@pytest.fixture(scope="module")
def value_of(request: pytest.FixtureRequest) -> Iterator[Callable[[str], Any]]:
    with psycopg.connect(request.getfixturevalue("server").url(), autocommit=True) as session:

        def value(text: str) -> Any:
            # str shows all digits of a number.
            inner = text.removeprefix("str") if text.startswith("str(") else text
            sql = f"select {translating.expression(code(inner), scope()).sql}"
            row = session.execute(sql.encode()).fetchone()
            assert row is not None
            return row[0] if inner is text else str(row[0])

        yield value


@pytest.mark.parametrize(
    "text",
    [
        "CONVERT(varchar(3), 12345)",
        "CAST(123456 AS nvarchar(2))",
        "CAST(@n + 1000 AS char(3))",
        "CAST(-1.25 AS varchar(4))",
    ],
)
def test_a_number_never_loses_digits_in_a_text(value_of: Callable[[str], Any], text: str) -> None:
    with pytest.raises(psycopg.errors.StringDataRightTruncation):
        value_of(text)


def test_digits_without_their_prefix_are_an_error(value_of: Callable[[str], Any]) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue):
        value_of("CONVERT(varbinary(9), @short, 1)")


@pytest.mark.parametrize("text", VALUES)
def test_an_expression_has_the_value_that_sql_server_gives_it(
    value_of: Callable[[str], Any], text: str
) -> None:
    assert value_of(text) == VALUES[text]


@pytest.mark.parametrize("text", REFUSED)
def test_what_has_no_faithful_form_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(ScriptError) as refused:
        translating.expression(code(text), scope())
    assert REFUSED[text] in str(refused.value)
    assert refused.value.position.line == 10
    assert refused.value.position.column >= 5


def test_a_refusal_names_the_place_in_a_long_statement() -> None:
    with pytest.raises(ScriptError) as refused:
        translating.query(code("SELECT a.id,\n  FOO(a.id)\nFROM dbo.T a"), scope())
    assert (refused.value.position.line, refused.value.position.column) == (11, 3)


def test_what_is_assigned_becomes_what_the_variable_holds() -> None:
    known = scope()
    short, whole, flag = (known.type(one) for one in ("varchar(3)", "int", "bit"))
    assert translating.expression(code("@text"), known, short).sql.endswith("as varchar(3))")
    assert "trunc" in translating.expression(code("@price"), known, whole).sql
    assert translating.expression(code("1"), known, flag).sql == "1"
    assert "sign" in translating.expression(code("@n"), known, flag).sql


def test_a_percent_sign_is_doubled_beside_placeholders() -> None:
    known = scope()
    known.placeholders = True
    assert translating.expression(code("@n % 2"), known).sql.endswith(" %% 2")
    assert translating.condition(code("@short LIKE 'a%'"), known).sql.endswith("like 'a%%'")
    known.declare("@x", "xml", "%(@x)s")
    path = """@x.value('(/a[@b="%(@n)s"])[1]', 'int')"""
    found = translating.expression(code(path), known).sql % {"@x": "x"}
    known.placeholders = False
    known.declare("@x", "xml", "x")
    assert found == translating.expression(code(path), known).sql


TABLES = """
    create schema dbo;
    create table dbo.orders (
      id integer generated always as identity primary key, note text, body bytea, handle uuid, amount integer default 5
    );
    create temporary table receive (message_type_name text, message_body bytea, dialog uuid);
"""
CHANGES: list[tuple[str, list[tuple[Any, ...]] | None]] = [
    # A body goes into a column of text as the text that its sender wrote.
    ("INSERT INTO orders (note, body) VALUES (@body, @body), (N'plain', DEFAULT)", None),
    (
        "SELECT id, note, CAST(body AS nvarchar(max)) AS b FROM dbo.Orders ORDER BY ID",
        [(1, "Grüße", "Grüße"), (2, "plain", None)],
    ),
    ("INSERT @receive VALUES ('t', @body, @handle)", None),
    ("INSERT INTO orders (note, handle) SELECT message_body, dialog FROM @receive", None),
    ("SELECT note FROM orders WHERE handle = @handle", [("Grüße",)]),
    ("UPDATE orders SET amount += 2 * 3, note = 'n' + note WHERE id = 1", None),
    ("SELECT amount, note FROM orders WHERE id = 1", [(11, "nGrüße")]),
    (
        "UPDATE o SET note = 'joined' FROM dbo.orders AS o INNER JOIN @receive AS r ON r.dialog = o.handle",
        None,
    ),
    ("SELECT id FROM orders WHERE note = 'joined'", [(3,)]),
    ("INSERT INTO orders (note) OUTPUT inserted.id, inserted.note AS Text VALUES ('out')", [(4, "out")]),
    ("UPDATE orders SET amount = 1 OUTPUT inserted.amount, deleted.id WHERE id = 4", [(1, 4)]),
    ("DELETE TOP (1) FROM orders OUTPUT deleted.id WHERE note = 'out'", [(4,)]),
    ("DELETE FROM orders OUTPUT deleted.note INTO @receive (message_type_name) WHERE id = 3", None),
    ("SELECT message_type_name FROM @receive ORDER BY message_type_name", [("joined",), ("t",)]),
    ("DELETE o FROM orders o JOIN @receive r ON r.message_type_name = o.note", None),
    (
        "WITH q AS (SELECT id, note FROM orders) SELECT TOP (1) q.note FROM q WITH (NOLOCK) ORDER BY q.id DESC",
        [("plain",)],
    ),
    (
        "SELECT COUNT(*) AS N, note FROM orders GROUP BY note HAVING COUNT(*) = 1 ORDER BY note DESC",
        [(1, "plain"), (1, "nGrüße")],
    ),
    (
        "SELECT o.id, r.dialog FROM orders o LEFT JOIN @receive r ON r.message_type_name = o.note ORDER BY o.id",
        [(1, None), (2, None)],
    ),
    ("SELECT o.id, x.n FROM orders o CROSS APPLY (SELECT o.id + 1 AS n) x ORDER BY 1", [(1, 2), (2, 3)]),
    ("SELECT id, ROW_NUMBER() OVER (ORDER BY id DESC) AS r FROM orders ORDER BY id", [(1, 2), (2, 1)]),
    ("SELECT id INTO #copy FROM orders", None),
    ("SELECT * FROM #copy ORDER BY id", [(1,), (2,)]),
    ("DELETE dbo.orders WHERE id = 99", None),
    ("DELETE TOP (1) orders OUTPUT deleted.id WHERE id > 98", []),
    ("DELETE @receive WHERE message_type_name = 'none'", None),
    ("SELECT COUNT(*) FROM orders", [(2,)]),
    ("DELETE @receive", None),
    ("SELECT COUNT(*) FROM @receive", [(0,)]),
    ("TRUNCATE TABLE orders", None),
    ("SELECT COUNT(*) FROM orders", [(0,)]),
]


def with_tables() -> Scope:
    known = scope()
    known.declare_table(
        "@receive",
        {"message_type_name": TEXT, "message_body": BINARY, "dialog": UNIQUEIDENTIFIER},
        "pg_temp.receive",
    )
    orders = {"id": INTEGER, "note": TEXT, "body": BINARY, "handle": UNIQUEIDENTIFIER, "amount": INTEGER}
    known.tables = lambda schema, name: orders if name.lower() == "orders" else None
    return known


def test_rows_are_read_and_changed_as_in_sql_server(database: Database) -> None:
    known = with_tables()
    with database.connect() as session:
        session.execute(TABLES.encode())
        for text, expected in CHANGES:
            found = session.execute(translating.query(code(text), known).sql.encode())
            if expected is not None:
                assert found.fetchall() == expected, text


REFUSED_QUERIES = {
    "SELECT DATABASEPROPERTYEX(DB_NAME(), 'Recovery')": "DATABASEPROPERTYEX knows Status, Updateability",
    "SELECT DATABASEPROPERTYEX(DB_NAME())": "DATABASEPROPERTYEX takes a database and a property",
    "SELECT 1 AS Tag, NULL AS Parent, 'x' AS [a!1!b] FOR XML EXPLICIT": "EXPLICIT of FOR XML has no form here",
    "SELECT 1 AS a, 2 AS [@b] FOR XML PATH('p')": "an attribute of p stands behind its content",
    "SELECT 1 AS a, 2 AS [a/b] FOR XML PATH('p')": "a is both a column and holds columns",
    "SELECT 'y' AS [data()] FOR XML PATH('p')": "data() of FOR XML has no form here",
    "SELECT a.n, b.m FROM a JOIN b ON a.n = b.m FOR XML AUTO": "nests the rows of several tables",
    "INSERT INTO unknown VALUES (@body)": "CREATE TABLE",
    "SELECT note + handle FROM unknown": "CAST one",
    "SELECT CAST(note AS nvarchar(9)) FROM unknown": "which is not known",
    "MERGE orders USING unknown u ON 1 = 1 WHEN MATCHED THEN DELETE OUTPUT deleted.id;": "write UPDATE and INSERT",
    "MERGE orders USING unknown u ON 1 = 1 WHEN NOT MATCHED BY SOURCE THEN DELETE"
    " WHEN NOT MATCHED BY SOURCE THEN DELETE;": "a second WHEN NOT MATCHED BY SOURCE",
    "SELECT * FROM orders WITH (HOLDLOCK)": "HOLDLOCK",
    "SELECT * FROM sys.dm_exec_requests": "sys.dm_exec_requests",
    "WITH q AS (SELECT 1 AS n) UPDATE orders SET note = 'x' OUTPUT deleted.note": "SELECT it before",
    "UPDATE o SET note = 'x' FROM orders o RIGHT JOIN unknown u ON u.a = o.id": "LEFT, and begin with",
    "SELECT @n = 1, note FROM orders": "divide it",
    "SELECT * FROM #nowhere": "not declared",
    "SELECT note FROM orders PIVOT (COUNT(id) FOR note IN (a)) p": "",
    "SELECT a, b FROM orders GROUP BY GROUPING SETS (a, b)": "",
}


@pytest.mark.parametrize("text", REFUSED_QUERIES)
def test_a_query_without_a_faithful_form_is_refused(text: str) -> None:
    with pytest.raises(ScriptError) as refused:
        translating.query(code(text), with_tables())
    assert REFUSED_QUERIES[text] in str(refused.value)


def test_variables_get_values_from_rows_and_stay_as_they_are_without() -> None:
    known = with_tables()
    given = translating.assignments(
        [("@n", code("id")), ("@short", code("note"))], code("FROM orders WHERE id > @n"), known
    )
    assert (
        given.sql
        == f"select id as c1, cast(note as varchar(5)) as c2 from dbo.orders where id > ({VARIABLES['@n'][1]})"
    )
    assert given.assigned == ("@n", "@short")
    given = translating.assignments([("@n", code("@n + 1")), ("@short", code("'x'"))], None, known)
    assert given.values == (f"({VARIABLES['@n'][1]}) + 1", "'x'")
    with pytest.raises(ScriptError, match="STRING_AGG"):
        translating.assignments([("@text", code("@text + note"))], code("FROM orders"), known)


def test_a_queue_is_read_as_a_table(shop: Shop) -> None:
    shop.psql.send(shop.psql.dialog(), body=b"text")
    known = Scope()
    known.tables = lambda schema, name: MESSAGE if name.lower() == "warehouse" else None
    text = "SELECT message_type_name, CAST(message_body AS nvarchar(max)) AS Body FROM public.Warehouse"
    assert shop.psql.rows(translating.query(code(text), known).sql) == [("order", "text")]


COLUMNS = """(
  id int IDENTITY(10, 5) NOT NULL PRIMARY KEY CLUSTERED, -- a comment
  [Order Note] nvarchar(20) NULL DEFAULT (N'none'), made datetime NOT NULL DEFAULT GETDATE(),
  is_done bit NOT NULL CONSTRAINT df DEFAULT 0, handle uniqueidentifier ROWGUIDCOL DEFAULT NEWID() UNIQUE,
  amount decimal(10, 2) CHECK (amount > 0), CONSTRAINT two UNIQUE NONCLUSTERED (id ASC, is_done) WITH (FILLFACTOR = 80) ON [PRIMARY]
)"""


def test_a_table_has_its_columns_and_their_defaults(database: Database) -> None:
    notes: list[str] = []
    made = definition(code(COLUMNS), Scope(), notes)
    assert made.columns["order note"].length == 20
    with database.connect() as session:
        session.execute(f"create table t ({made.sql})".encode())
        session.execute("insert into t (amount) values (1), (2)")
        found = session.execute(
            'select id, "order note", is_done, handle is not null from t order by id'
        ).fetchall()
        assert found == [(10, "none", 0, True), (15, "none", 0, True)]


@pytest.mark.parametrize(
    "text",
    [
        "(a int",
        "()",
        "(a)",
        "(a sql_variant)",
        "(a int AS b)",
        "a int",
        "(a AS b + 1)",
        "(a int,, b int)",
        "(,)",
    ],
)
def test_a_table_that_can_not_be_made_is_refused(text: str) -> None:
    with pytest.raises(ScriptError):
        definition(code(text), Scope(), [])


XML = {
    "SELECT @x.value('(/a/b)[2]', 'nvarchar(20)') + @x.value('(/a/@id)[1]', 'nvarchar(9)')": ["tw&o7"],
    "SELECT @x.value('(/a/none)[1]', 'int')": [None],
    "SELECT CAST(@x.query('/a/b') AS nvarchar(max))": ["<b>one</b><b>tw&amp;o</b>"],
    "SELECT T.c.value('.', 'nvarchar(9)') AS v FROM @x.nodes('/a/b') AS T(c)": ["one", "tw&o"],
    "SELECT 1 AS '@id', 'x<' AS v FOR XML PATH('row'), ROOT('rows')": [
        '<rows><row id="1"><v>x&lt;</v></row></rows>'
    ],
    "SELECT x.v AS v FROM (SELECT 1 AS v UNION ALL SELECT 2) x FOR XML RAW": ['<row v="1"/><row v="2"/>'],
    "WITH XMLNAMESPACES ('urn:b' AS b, DEFAULT 'urn:a') SELECT @s.value('(/a/b:c[x and @x = \"1\"]/x)[1]', 'nvarchar(9)')": [
        "yes"
    ],
    "WITH XMLNAMESPACES (DEFAULT 'urn:a'), q AS (SELECT 1 AS n) SELECT @s.value('count(//x)', 'int') + q.n FROM q": [
        2
    ],
    "SELECT @s.value('declare default element namespace \"urn:a\"; (//x)[1]', 'nvarchar(9)')": ["yes"],
    "SELECT @s.value('(//x)[1]', 'nvarchar(9)')": [None],
    "SELECT ',' + x.v FROM (SELECT 'a' AS v UNION ALL SELECT 'b') AS x FOR XML PATH('')": [",a,b"],
    "SELECT x.v + ',' AS [text()] FROM (SELECT '<' AS v) AS x FOR XML PATH('')": ["&lt;,"],
    "SELECT x.v AS v FROM (SELECT 1 AS v WHERE 1 = 0) x FOR XML RAW, ROOT('r')": [None],
    "SELECT Item.v FROM (SELECT 1 AS v) AS Item FOR XML AUTO": ['<Item v="1"/>'],
    "WITH XMLNAMESPACES ('urn:a' AS a, DEFAULT 'urn:d') SELECT 2 AS [@n], 1 AS [a:b] FOR XML PATH('a:r')": [
        '<a:r xmlns="urn:d" xmlns:a="urn:a" n="2"><a:b>1</a:b></a:r>'
    ],
    "WITH XMLNAMESPACES ('urn:a' AS a) SELECT 1 AS [a:b] FOR XML PATH('a:r'), ROOT('a:x'), TYPE": [
        '<a:x xmlns:a="urn:a"><a:r><a:b>1</a:b></a:r></a:x>'
    ],
    "WITH XMLNAMESPACES ('urn:a' AS a) SELECT 1 AS [a:b] FOR XML RAW('a:r')": [
        '<a:r xmlns:a="urn:a" a:b="1"/>'
    ],
    "SELECT 1 AS b, NULL AS c FOR XML PATH('r'), ELEMENTS XSINIL": [
        '<r xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"><b>1</b><c xsi:nil="true"/></r>'
    ],
    "SELECT 5 AS [@id], 'n' AS [name/first], 'm' AS [name/last], NULL AS [a/@zip], NULL AS [a/city], 'tail' FOR XML PATH('p')": [
        '<p id="5"><name><first>n</first><last>m</last></name>tail</p>'
    ],
    "SELECT 'a' AS [x/y/@z], 'b' AS [x/y], 3 AS [x/w] FOR XML PATH('p')": [
        '<p><x><y z="a">b</y><w>3</w></x></p>'
    ],
    "SELECT (SELECT ',' + v FROM (VALUES ('a'), ('<&')) t(v) FOR XML PATH(''), TYPE).value('.', 'nvarchar(max)')": [
        ",a,<&"
    ],
    "SELECT (SELECT ',' + v FROM (VALUES ('a')) t(v) FOR XML PATH(''), TYPE).value('(./text())[1]', 'nvarchar(9)')": [
        ",a"
    ],
    "SELECT ISNULL((SELECT 1 AS [text()] WHERE 1 = 0 FOR XML PATH(''), TYPE).value('.', 'nvarchar(9)'), 'none')": [
        "none"
    ],
    "SELECT @x.value('.', 'nvarchar(9)')": ["onetw&o"],
    "SELECT c.value('.', 'nvarchar(9)') + c.value('text()[1]', 'nvarchar(9)') FROM @x.nodes('/a/b') t(c)": [
        "oneone",
        "tw&otw&o",
    ],
    "SELECT (SELECT 1 AS i FOR XML PATH('c'), TYPE), CAST('<q/>' AS xml) FOR XML PATH('p')": [
        "<p><c><i>1</i></c><q/></p>"
    ],
}


def test_xml_is_read_and_made_where_the_server_has_libxml(any_database: Database) -> None:
    if not any_database.has_xml_parser:
        pytest.skip("this PostgreSQL was built without libxml")
    known = Scope()
    known.declare("@x", "xml", """'<a id="7"><b>one</b><b>tw&amp;o</b></a>'::xml""")
    known.declare("@s", "xml", """'<a xmlns="urn:a" xmlns:b="urn:b"><b:c x="1"><x>yes</x></b:c></a>'::xml""")
    with any_database.connect() as session:
        for text, expected in XML.items():
            found = session.execute(translating.query(code(text), known).sql.encode()).fetchall()
            assert [value for (value,) in found] == expected, text
