"""The project's SQL keeps its own rules, and the checks see what breaks them."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from tests import missing

if find_spec("pglast") is None:
    missing.skip("pglast", "make .venv/.linters")

from pybroker.sql import sql_files
from pybroker.sql.letters import LETTERS, NAMED_LETTER, with_letters
from tests import sql_checks

PINNED = "SET search_path = pg_catalog, pg_temp"

MESSAGES = "-- Messages.\nCREATE TABLE broker_private.messages (a int);"


def routine(
    body: str, *, name: str = "broker_private.probe", options: str = PINNED, hot: bool = False
) -> str:
    header = ("-- hot path: one row by its key\n" if hot else "") + "-- Probes.\n"
    return (
        f"{header}CREATE FUNCTION {name}(given uuid) RETURNS integer"
        f" LANGUAGE plpgsql {options}\nAS $$ {body} $$;\n"
    )


def procedure(body: str, options: str = "") -> str:
    return (
        "-- Probes.\nCREATE PROCEDURE broker_private.probe()"
        f" LANGUAGE plpgsql {options} AS $$ BEGIN {body} COMMIT; END $$;\n"
    )


def view(query: str) -> str:
    return f"-- Probes.\nCREATE VIEW broker.probe AS {query};\n"


def found_in(*texts: str, path: str = "sql/delivery/probe.sql") -> list[str]:
    sources = {path: texts[0], **{f"sql/other/other{n}.sql": text for n, text in enumerate(texts[1:])}}
    files = sql_checks.build(sources)
    found = [*sql_checks.check_pgspot(files)]
    found += [finding for file in files for check in sql_checks.FILE_CHECKS for finding in check(file)]
    return [str(finding) for finding in found if finding.path == path]


CLEAN = {
    "a pinned function": routine("BEGIN RETURN 1; END"),
    "more schemas, pg_temp last": routine(
        "BEGIN RETURN 1; END", options="SET search_path = pg_catalog, broker_private, pg_temp"
    ),
    "owner's rights in the private schema": routine(
        "BEGIN RETURN 1; END", options=f"SECURITY DEFINER {PINNED}"
    ),
    "an SQL-standard body": "-- P.\nCREATE FUNCTION broker.probe() RETURNS int BEGIN ATOMIC SELECT 1; END;",
    "a RETURN body": "-- Probes.\nCREATE FUNCTION broker.probe() RETURNS int RETURN 1;",
    "a scan that is off, and never compiled": routine(
        "BEGIN RETURN 1; END", options=f"{PINNED} SET enable_seqscan = off SET jit = off"
    ),
    "a procedure that commits, all names qualified": procedure(
        "PERFORM pg_catalog.pg_sleep(0); WITH a AS (SELECT 1) INSERT INTO broker_private.t SELECT 1 FROM a;"
    ),
    "overloads and the private counterpart": routine("BEGIN RETURN 1; END", name="broker.probe")
    + routine("BEGIN RETURN 2; END", name="broker_private.probe"),
    "grants": "-- Who may do what.\nGRANT USAGE ON SCHEMA broker TO PUBLIC;",
    "backslashes that say so, or are in no literal": routine(
        """BEGIN -- what's \\ here
        RETURN position(E'\\\\d' in "odd\\'name") + position('it''s' in e'\\''); END"""
    ),
    "a star from a function": view("SELECT * FROM broker.receive('q') r, pg_catalog.unnest('{1}'::int[]) u"),
    "a star from a common table expression": view(
        "WITH one AS (SELECT 1 AS a) SELECT one.*, count(*) FROM one"
    ),
    "a row into the row of its table": routine(
        "DECLARE m broker_private.messages%ROWTYPE; BEGIN"
        " SELECT x.* INTO m FROM broker_private.messages x;"
        " INSERT INTO broker_private.messages DEFAULT VALUES RETURNING * INTO m; RETURN m.a; END"
    ),
    "a row into a parameter that is the row of its table": (
        "-- Probes.\nCREATE FUNCTION broker_private.probe(m broker_private.messages) RETURNS integer"
        f" LANGUAGE plpgsql {PINNED} AS $$ BEGIN"
        " UPDATE broker_private.messages x SET a = 1 RETURNING * INTO m; RETURN m.a; END $$;"
    ),
    "fields of a composite": view("SELECT (f).* FROM (SELECT broker.f() AS f) s"),
    "an exception block off the hot path": routine(
        "BEGIN RETURN 1; EXCEPTION WHEN OTHERS THEN RETURN 2; END"
    ),
    "the clock itself": (
        "-- The clock.\nCREATE FUNCTION broker_private.probe() RETURNS int RETURN 1;"
        "\nCREATE FUNCTION broker_private.clock() RETURNS timestamptz RETURN now();"
    ),
    "text that is not ASCII before a function": "-- Größe.\n--\n" + routine("BEGIN /* ö */ RETURN 1; END"),
}
MISNAMED_ON_PURPOSE = {"the clock itself"}


@pytest.mark.parametrize("name", CLEAN)
def test_what_keeps_the_rules_is_left_alone(name: str) -> None:
    found = found_in(CLEAN[name], MESSAGES)
    assert [line for line in found if name not in MISNAMED_ON_PURPOSE or "belongs in" not in line] == []


FAULTS = {
    "a syntax error": ("-- Probes.\nSELEKT 1;", "does not parse"),
    "a syntax error in a body": (routine("BEGIN RETURN 1 +; END"), "the body does not parse"),
    "an unknown variable in a body": (routine("BEGIN nobody := 1; RETURN 1; END"), "the body does not parse"),
    "a function inside a string": (
        "-- P.\nDO $$ BEGIN EXECUTE $x$\nCREATE FUNCTION broker.probe() RETURNS int RETURN 1 $x$; END $$;",
        "1 CREATE FUNCTION or PROCEDURE in the text, 0 seen",
    ),
    "an unpinned function": (routine("BEGIN RETURN 1; END", options=""), "neither pins its search_path"),
    "pgspot agrees": (routine("BEGIN RETURN 1; END", options=""), "pgspot PS005"),
    "pg_temp not last": (
        routine("BEGIN RETURN 1; END", options="SET search_path = pg_temp, pg_catalog"),
        "must end in pg_temp",
    ),
    "an empty search_path": (
        routine("BEGIN RETURN 1; END", options="SET search_path = ''"),
        "must end in pg_temp",
    ),
    "a quoted list": (
        routine("BEGIN RETURN 1; END", options="SET search_path = 'pg_catalog, pg_temp'"),
        "one quoted",
    ),
    "a schema that others write to": (
        routine("BEGIN RETURN 1; END", options="SET search_path = public, pg_temp"),
        "search_path has public",
    ),
    "the creator's search_path": (
        routine("BEGIN RETURN 1; END", options="SET search_path FROM CURRENT"),
        "not a list of schemas",
    ),
    "a pin outside of the CREATE": (
        "-- Probes.\nALTER FUNCTION broker.probe() SET search_path = pg_catalog, pg_temp;",
        "say it in the CREATE",
    ),
    "a procedure that commits and everybody may call": (
        procedure("").replace("broker_private.", "broker."),
        "belongs in broker_private",
    ),
    "a procedure that commits and pins": (procedure("", PINNED), "can't have a SET clause"),
    "a procedure that commits with an unqualified table": (
        procedure("DELETE FROM messages;"),
        "so messages must be",
    ),
    "a procedure that commits with an unqualified function": (
        procedure("PERFORM pg_sleep(0);"),
        "so pg_sleep() must",
    ),
    "a procedure that commits with owner's rights": (procedure("", "SECURITY DEFINER"), "can't commit"),
    "owner's rights in the public schema": (
        routine("BEGIN RETURN 1; END", name="broker.probe", options=f"SECURITY DEFINER {PINNED}"),
        "SECURITY DEFINER belongs in broker_private",
    ),
    "a schema of somebody else": (
        routine("BEGIN RETURN 1; END", name="public.probe"),
        "in neither broker nor",
    ),
    "no schema": (routine("BEGIN RETURN 1; END", name="probe"), "in neither broker nor"),
    "an exception block on a hot path": (
        routine("BEGIN RETURN 1; EXCEPTION WHEN OTHERS THEN RETURN 2; END", hot=True),
        "an EXCEPTION block on a hot path",
    ),
    "a scan that is off, and would be compiled": (
        routine("BEGIN RETURN 1; END", options=f"{PINNED} SET enable_seqscan = off"),
        "SET jit = off as well",
    ),
    "a message that is put into another queue": (
        routine("BEGIN UPDATE broker_private.messages SET queue_id = 1; RETURN 1; END"),
        "call broker_private.reset_floors",
    ),
    "a message with an old id": (
        routine("BEGIN INSERT INTO broker_private.messages (id) VALUES (1); RETURN 1; END"),
        "call broker_private.reset_floors",
    ),
    "another line of the stack": (
        routine(
            "\ndeclare stack text; begin\nget diagnostics stack = pg_context;"
            "\nreturn (stack >= 'broker_private.probe(uuid) line 2 at GET DIAGNOSTICS')::integer; end"
        )
        .replace("AS $$", "as $$")
        .replace("CREATE FUNCTION", "create function"),
        "it takes its stack in line 3, not 2",
    ),
    "EXECUTE on a hot path": (
        routine("BEGIN EXECUTE 'SELECT 1'; RETURN 1; END", hot=True),
        "a dynamic EXECUTE",
    ),
    "a loop over EXECUTE on a hot path": (
        routine(
            "DECLARE r record; BEGIN FOR r IN EXECUTE 'SELECT 1' LOOP NULL; END LOOP; RETURN 1; END", hot=True
        ),
        "a dynamic EXECUTE",
    ),
    "a cursor over EXECUTE on a hot path": (
        routine("DECLARE c refcursor; BEGIN OPEN c FOR EXECUTE 'SELECT 1'; RETURN 1; END", hot=True),
        "a dynamic EXECUTE",
    ),
    "NOTIFY on a hot path": (routine("BEGIN NOTIFY a; RETURN 1; END", hot=True), "NOTIFY on a hot path"),
    "pg_notify on a hot path": (
        routine("BEGIN IF true THEN PERFORM pg_catalog.pg_notify('a', ''); END IF; RETURN 1; END", hot=True),
        "pg_notify on a hot path",
    ),
    "a temporary table on a hot path": (
        routine("BEGIN CREATE TEMP TABLE t AS SELECT 1; RETURN 1; END", hot=True),
        "a temporary table (t)",
    ),
    "now() in a view": (view("SELECT now() AS at"), "now(): take the time from"),
    "now() in an assignment": (
        routine("DECLARE at timestamptz; BEGIN at := now(); RETURN 1; END"),
        "now(): take the time from",
    ),
    "now() as a declared default": (
        routine("DECLARE at timestamptz := pg_catalog.clock_timestamp(); BEGIN RETURN 1; END"),
        "clock_timestamp(): take the time from",
    ),
    "now() in a condition": (
        routine("BEGIN IF false THEN RETURN 0; ELSIF now() > 'epoch' THEN RETURN 2; END IF; RETURN 1; END"),
        "now(): take the time from",
    ),
    "current_timestamp in an SQL-standard body": (
        "-- Probes.\nCREATE FUNCTION broker.probe() RETURNS timestamptz RETURN current_timestamp;",
        "current_timestamp: take the time from",
    ),
    "a file named otherwise": (routine("BEGIN RETURN 1; END", name="broker.other"), "belongs in other.sql"),
    "a type in a file named otherwise": ("-- Probes.\nCREATE TYPE broker.t AS (a int);", "belongs in t.sql"),
    "a domain in a file named otherwise": ("-- Probes.\nCREATE DOMAIN broker.d AS int;", "belongs in d.sql"),
    "a table in sql/": ("-- Probes.\nCREATE TABLE broker_private.probe (a int);", "belong in migrations/"),
    "an empty file": ("-- Probes.\n", "has no statement"),
    "no header": (routine("BEGIN RETURN 1; END").removeprefix("-- Probes.\n"), "does not start with"),
    "an empty header": (
        "--\n" + routine("BEGIN RETURN 1; END").removeprefix("-- Probes.\n"),
        "does not start",
    ),
    "a long sentence": (
        f"-- {'word ' * 13}\n-- {'word ' * 13}\n" + routine("BEGIN RETURN 1; END"),
        "a sentence of 27 words, at most 25",
    ),
    "a long sentence within a function": (
        routine(f"BEGIN\n  -- Short. {'Word ' * 26}\n  RETURN 1; END"),
        "a sentence of 26 words",
    ),
    "a wide header": (
        f"-- {'wide ' * 20}\n" + routine("BEGIN RETURN 1; END"),
        "header line of 103 columns: at most 100",
    ),
    "a literal with a backslash": (
        routine(r"BEGIN RETURN position('it''s \d' in E'\\d'); END"),
        r"'it''s \d': write E'…', with two backslashes",
    ),
    "a star from a table": (
        view("SELECT * FROM broker_private.messages"),
        "* from broker_private.messages: name the columns",
    ),
    "a star from one table of two": (
        view("SELECT m.* FROM broker.f() f JOIN broker_private.messages m ON true"),
        "m.* from broker_private.messages",
    ),
    "a star inside EXISTS in a body": (
        routine(
            "BEGIN IF EXISTS (SELECT * FROM broker_private.messages) THEN RETURN 0; END IF; RETURN 1; END"
        ),
        "* from broker_private.messages",
    ),
    "a star into the row of another table": (
        routine(
            "DECLARE g groups%ROWTYPE; BEGIN SELECT * INTO g FROM broker_private.messages; RETURN 1; END"
        ),
        "* from broker_private.messages",
    ),
    "a star that the next statement reads into a row": (
        routine(
            "DECLARE m broker_private.messages%ROWTYPE; BEGIN SELECT 1 INTO m;"
            " PERFORM * FROM broker_private.messages; RETURN 1; END"
        ),
        "* from broker_private.messages",
    ),
    "RETURNING a star": (
        routine(
            "DECLARE r record; BEGIN DELETE FROM broker_private.messages RETURNING * INTO r; RETURN 1; END"
        ),
        "* from broker_private.messages",
    ),
    "a table that somebody else may have made first": (
        "-- Probes.\nCREATE TABLE IF NOT EXISTS public.probe (a int);",
        "pgspot PS012",
    ),
    "a schema that somebody else may have made first": (
        "-- Probes.\nCREATE SCHEMA IF NOT EXISTS probe;",
        "pgspot PS010",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found(name: str) -> None:
    text, expected = FAULTS[name]
    found = found_in(text, MESSAGES)
    assert [line for line in found if expected in line], found


@pytest.mark.parametrize(
    "declared",
    [
        "taken broker.message",
        "taken broker.message%ROWTYPE",
        "CONSTANT_one CONSTANT int := 1; taken broker.message",
    ],
)
def test_a_body_with_variables_of_row_types_is_read(declared: str) -> None:
    text = routine(f"DECLARE {declared}; BEGIN taken.status := 1; taken.at := now(); RETURN 1; END")
    found = found_in(text, "-- A message.\nCREATE TYPE broker.message AS (status int, at timestamptz);")
    assert len(found) == 1
    assert "now(): take the time" in found[0]


def test_findings_name_the_line_of_the_statement() -> None:
    text = (
        routine("BEGIN\n\nRETURN 1; END") + "\n-- The second.\n" + routine("BEGIN RETURN 1; END", options="")
    )
    second = text.count("\n", 0, text.rindex("CREATE FUNCTION")) + 1
    own, pgspots = sorted(found_in(text))
    assert own.startswith(f"sql/delivery/probe.sql:{second}: broker_private.probe: neither")
    assert pgspots.startswith(f"sql/delivery/probe.sql:{second}: pgspot PS005")


def test_one_thing_per_file_does_not_bind_migrations() -> None:
    text = "-- Tables.\nCREATE TABLE broker_private.messages (a int);\nCREATE TYPE broker.message AS (a int);"
    assert found_in(text, path="migrations/versions/0001_foundation.sql") == []


@pytest.mark.parametrize("line", ["import pglast", "from pglast import ast", "import os, pgspot.cli"])
def test_an_import_of_pglast_is_found(line: str) -> None:
    assert [
        finding.line for finding in sql_checks.imported_gpl("pybroker/x.py", f"def f():\n    {line}\n")
    ] == [2]


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ('"select count(*) from broker.services where name = %s"', ["count()"]),
        ('"select pg_catalog.max(id) from broker.trace"', []),
        ('f"select {columns}, lower(name) from {view} where id = any(%(ids)s)"', ["lower()"]),
        ('f"call {procedure}()"', []),
        ('"select * from unnest(%s::text[], %b::text[]) u"', []),
        ('"select * from unnest(%s::text[]) u"', ["unnest()"]),
        ('"with w as (select 1) select from w, services, broker.queues"', ["services"]),
        ('"no query at all, count() or not"', []),
    ],
)
def test_a_function_or_table_without_its_schema_is_found_in_python(query: str, named: list[str]) -> None:
    found = sql_checks.unqualified_calls("workers/probe.py", f"def f():\n    return {query}\n")
    assert [(each.line, each.text.partition(" ")[0]) for each in found] == [(2, name) for name in named]


def test_no_query_of_the_project_names_a_function_or_table_without_its_schema() -> None:
    assert list(sql_checks.check_python_queries()) == []


def test_nothing_shipped_imports_pglast() -> None:
    assert list(sql_checks.check_imports()) == []


FILES = sql_checks.project_files()


def test_the_checks_see_the_project() -> None:
    assert len(FILES) > 1
    assert any(file.routines for file in FILES)


@pytest.mark.parametrize("check", sql_checks.FILE_CHECKS, ids=lambda check: check.__name__)
def test_the_project_keeps_its_rules(check: object) -> None:
    assert [str(finding) for file in FILES for finding in check(file)] == []


def test_a_call_of_a_later_chapter_is_found() -> None:
    early = routine("BEGIN PERFORM broker_private.later(); RETURN 1; END", name="broker_private.early")
    later = routine("BEGIN PERFORM broker_private.early(); RETURN 1; END", name="broker_private.later")
    files = sql_checks.build({"sql/queue/early.sql": early, "sql/conversation/later.sql": later})
    assert [str(found) for found in sql_checks.check_chapters(files)] == [
        "sql/queue/early.sql:2: broker_private.later: queue comes before conversation, and can't call it"
    ]


@pytest.mark.parametrize(
    ("header", "finding"),
    [
        ("-- Probes\n", "1: say the purpose in one line, which ends with a full stop"),
        ("-- Probes, and\n-- more.\n", "1: say the purpose in one line, which ends with a full stop"),
        ("-- hot path\n-- Probes\n", "2: say the purpose in one line, which ends with a full stop"),
        (
            "-- Probes.\n-- Plan: a.\n-- Locks: b.\n",
            "3: Locks comes once, in this order: Locks, Plan, Errors, Why",
        ),
        (
            "-- Probes.\n-- Why: a.\n-- Why: b.\n",
            "3: Why comes once, in this order: Locks, Plan, Errors, Why",
        ),
        (
            "-- Probes.\n-- Plan: a.\n--\n-- It does.\n",
            "3: after Plan comes another of Locks, Plan, Errors, Why, or nothing",
        ),
        ("-- hot path\n-- Probes.\n--\n-- It does.\n-- Locks: a.\n-- Why: b.\n--\n-- c.\n", None),
    ],
)
def test_a_header_has_its_purpose_in_one_line_and_its_sections_in_order(
    header: str, finding: str | None
) -> None:
    [file] = sql_checks.build({"sql/dialog/probe.sql": f"{header}SELECT 1;"})
    found = [str(each) for each in sql_checks.check_header(file)]
    assert found == ([f"sql/dialog/probe.sql:{finding}"] if finding else [])


@pytest.mark.parametrize(
    ("condition", "finding"),
    [
        ("e.path = 'L'", "3: 'L': say its name, of those in sql/letters.py"),
        ("e.path = '<nearby>'", "3: '<nearby>': no such name in sql/letters.py"),
        ("e.path IN ('<local>', '<far end>')", "2: '<far end>' is no value of path, but of event"),
        ("CASE e.path WHEN '<far end>' THEN true END", "2: '<far end>' is no value of path, but of event"),
        ("(e).path = '<far end>'", "2: '<far end>' is no value of path, but of event"),
        ("e.path = CASE WHEN true THEN '<far end>' END", "2: '<far end>' is no value of path, but of event"),
    ],
)
def test_a_letter_without_its_own_name_is_found(condition: str, finding: str) -> None:
    body = f"BEGIN PERFORM FROM broker_private.endpoints e WHERE {condition}; RETURN 1; END"
    files = sql_checks.build({"sql/dialog/probe.sql": routine(body)})
    assert [str(found) for found in sql_checks.check_letters(files)] == [f"sql/dialog/probe.sql:{finding}"]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE broker_private.endpoints x SET local_end = '<local>'",
        "INSERT INTO broker_private.endpoints (path, local_end) VALUES ('<local>', '<local>')",
        "INSERT INTO broker_private.endpoints (path, local_end) SELECT '<local>', '<local>'",
    ],
)
def test_a_letter_that_is_put_into_another_column_is_found(statement: str) -> None:
    body = f"BEGIN {statement}; RETURN 1; END"
    files = sql_checks.build({"sql/dialog/probe.sql": routine(body)})
    assert [str(found) for found in sql_checks.check_letters(files)] == [
        "sql/dialog/probe.sql:2: '<local>' is no value of local_end, but of path"
    ]


def test_the_project_says_every_letter_by_its_name() -> None:
    assert [str(finding) for finding in sql_checks.check_letters(FILES)] == []


def test_what_is_applied_has_the_letter_of_each_name() -> None:
    assert with_letters("e.path in ('<local>', '<behind incomplete>')") == "e.path in ('L', 'I')"
    with pytest.raises(ValueError, match="'<nearby>' is the name of no letter"):
        with_letters("e.path = '<nearby>'")
    assert [file.path for file in sql_files() if NAMED_LETTER.search(file.text)] == []


def test_each_letter_has_a_name_of_its_own_and_each_column_its_letters() -> None:
    assert len({letter.name for letter in LETTERS}) == len(LETTERS)
    pairs = [(column, letter.letter) for letter in LETTERS for column in letter.columns]
    assert len(set(pairs)) == len(pairs)


def test_no_chapter_of_the_project_calls_a_later_one() -> None:
    assert [str(finding) for finding in sql_checks.check_chapters(FILES)] == []


def test_pgspot_finds_nothing_in_the_project() -> None:
    assert [str(finding) for finding in sql_checks.check_pgspot(FILES)] == []
