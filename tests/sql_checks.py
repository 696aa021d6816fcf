"""What holds for every SQL file of the project, read from PostgreSQL's own parser.

`python -m tests.sql_checks` lists what it finds and exits 1. pglast, and pgspot which is built on it, are
here alone: pglast is GPL, and nothing that is shipped may import it (`check_imports` says so).
"""

from __future__ import annotations

import ast as python_ast
import os
import re
import sys
import tomllib
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pglast
from pglast import ast, enums
from pgspot.codes import codes
from pgspot.state import Counter, State
from pgspot.visitors import visit_sql

from pybroker.sql import CHAPTERS
from pybroker.sql.letters import LETTERS, NAMED_LETTER
from tests.prose import MOST_WORDS, sentences

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

ROOT = Path(__file__).resolve().parent.parent
SCHEMAS = {"broker", "broker_private"}
SHIPPED = ("migrations", "pybroker", "sql", "workers")
GPL = {"pglast", "pgspot"}

HEADER_COLUMNS = 100
_SECTIONS = ("Locks", "Plan", "Errors", "Why")
_SECTION = re.compile(rf"({'|'.join(_SECTIONS)}): ")
# What is no prose: the signature that a header begins with, lists of error numbers, names that are pointed at.
_COMMENT = re.compile(r"\s*-- ?(?=\S)(?:- )?(.*)")
_NO_PROSE = re.compile(
    r"^(?:hot path )?broker(?:_private)?\.\w+(?:\([^)]*\))?:\s|(?:^|\s)Errors: [^.]*\.?|\([\w., /]+\)"
)
# The words for priority that docs/glossary.md rules out; what they name besides, and an argument's name.
_NOT_FOR_PRIORITY = re.compile(r"(?<!isolation )\blevels?\b(?!:)|\blevel below ten\b")
_OTHER_LEVELS = {"diagnosis", "monitoring", "events"}
CLOCKS = {"now", "clock_timestamp", "statement_timestamp", "transaction_timestamp", "timeofday"}

# Letters that no table of ours holds: of an SQLSTATE, and of a system catalog.
OTHER_LETTERS = {
    ("sql/foundation/broker_objects.sql", "A"),
    ("sql/foundation/broker_objects.sql", "S"),
    ("sql/foundation/broker_objects.sql", "T"),
    ("sql/foundation/refuse.sql", "S"),
    ("sql/foundation/refuse.sql", "T"),
    ("sql/poison/sweep_marks.sql", "S"),
}
_PARAMETER = re.compile(r"%(?:\(\w+\))?[sbt]|\{\w*\}")
# Prints what is translated, which means names as its session does; asks Spark.
_OTHERS_NAMES = ("pybroker/tsql/expressions/", "pybroker/tsql/procedures/", "pybroker/throughput/analysis.py")
# Stands for what an f-string puts in.
_INSERTED = "inserted"
_BARE_LETTER = re.compile(r"'([A-Z])'")
_COLUMNS_OF = {letter.name: {column.partition(".")[2] for column in letter.columns} for letter in LETTERS}
_LETTER_COLUMNS = set().union(*_COLUMNS_OF.values())

# One message each, by key alone, and each setting costs every call.
NEVER_COMPILED = {
    *(
        "broker_private.lock_next_group",
        "broker_private.receive",
        "broker_private.send",
        "broker_private.walk_to_group",
    ),
}

# How PL/pgSQL means the text of an expression to be parsed: parser.h's RawParseMode.
STATEMENT, TYPE_NAME, EXPRESSION = 0, 1, 2

CREATE_ROUTINE = re.compile(
    r"^\s*CREATE\s+(?:OR\s+REPLACE\s+)?(?:FUNCTION|PROCEDURE)\b", re.IGNORECASE | re.MULTILINE
)
COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
# A literal, or what may hold a quote and is none.
LITERAL = re.compile(
    rf"""{COMMENT.pattern}|\$\w*\$|(?<!\w)[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|"(?:[^"]|"")*\"""",
    re.DOTALL,
)
DECLARED_TYPE = re.compile(
    r"(?P<before>(?:^|;|\bDECLARE\b)\s*)(?P<name>\w+)(?P<constant>\s+CONSTANT)?\s+"
    r"(?P<type>(?:\w+\.)?\w+)(?P<rowtype>%ROWTYPE)?(?=\s*(?:NOT\s+NULL\b|DEFAULT\b|:=|=|;))",
    re.IGNORECASE | re.MULTILINE,
)


@dataclass(frozen=True, order=True)
class Finding:
    """One thing to mend."""

    path: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"


def descendants(node: Any) -> Iterator[ast.Node]:
    """The node and all that is in it, in the order of its fields."""
    if isinstance(node, ast.Node):
        yield node
        for name in node:
            yield from descendants(getattr(node, name))
    elif isinstance(node, tuple | list):
        for item in node:
            yield from descendants(item)


def dotted(names: Iterable[Any]) -> str:
    return ".".join(name.sval for name in names)


def body_nodes(tree: Any) -> Iterator[tuple[str, Any]]:
    """Every (kind, content) of a PL/pgSQL tree, which libpg_query gives as nested dictionaries."""
    if isinstance(tree, dict):
        for kind, content in tree.items():
            yield kind, content
            yield from body_nodes(content)
    elif isinstance(tree, list):
        for item in tree:
            yield from body_nodes(item)


def parse_embedded(query: str, mode: int) -> tuple[Any, ...]:
    """Parse the SQL that an expression of PL/pgSQL holds."""
    if mode == TYPE_NAME:
        return ()
    if mode == EXPRESSION:
        query = f"SELECT {query}"
    elif mode != STATEMENT:
        query = f"SELECT {re.split(':=|=', query, maxsplit=1)[1]}"
    return tuple(pglast.parse_sql(query))


@dataclass(frozen=True)
class Statement:
    """A parsed statement or expression, the line to report it at, and the table whose row it is read into."""

    line: int
    node: Any
    row: str | None = None


@dataclass
class Routine:
    """A CREATE FUNCTION or CREATE PROCEDURE, or the body of a DO."""

    node: Any
    source: str
    line: int
    rows: frozenset[str] = frozenset()

    @cached_property
    def name(self) -> str:
        return dotted(self.node.funcname) if self.is_created else "DO"

    @property
    def is_created(self) -> bool:
        return isinstance(self.node, ast.CreateFunctionStmt)

    @property
    def schema(self) -> str:
        return self.name.rpartition(".")[0]

    @cached_property
    def options(self) -> dict[str, Any]:
        given = self.node.options if self.is_created else self.node.args
        return {option.defname: option.arg for option in given or () if option.defname != "set"}

    @cached_property
    def settings(self) -> dict[str, Any]:
        given = self.node.options or () if self.is_created else ()
        return {option.arg.name: option.arg for option in given if option.defname == "set"}

    @property
    def language(self) -> str:
        stated = self.options.get("language")
        return stated.sval.lower() if stated else "sql" if self.has_standard_body else "plpgsql"

    @property
    def has_standard_body(self) -> bool:
        return self.is_created and self.node.sql_body is not None

    @property
    def is_definer(self) -> bool:
        return "security" in self.options and bool(self.options["security"].boolval)

    @property
    def commits(self) -> bool:
        return any(
            kind in {"PLpgSQL_stmt_commit", "PLpgSQL_stmt_rollback"} for kind, _ in body_nodes(self.tree)
        )

    @cached_property
    def tree(self) -> list[Any]:
        """The PL/pgSQL of the body; raises pglast's ParseError."""
        if self.language != "plpgsql":
            return []
        return list(pglast.parse_plpgsql(self.parsable))

    @property
    def parsable(self) -> str:
        """The source, with `record` for each variable of a row type.

        The parser has no catalog: it takes a declared type that it does not know for a scalar, and
        then refuses an assignment to a field of it.
        """

        def stand_in(match: re.Match[str]) -> str:
            is_row = match["rowtype"] or match["type"].lower() in self.rows
            return f"{match['before']}{match['name']}{match['constant'] or ''} record" if is_row else match[0]

        return DECLARED_TYPE.sub(stand_in, self.source)

    @cached_property
    def statements(self) -> list[Statement]:
        """All SQL of the body, parsed."""
        if self.has_standard_body:
            return [Statement(self.line, self.node.sql_body)]
        if self.language == "sql":
            return [Statement(self.line, node) for node in pglast.parse_sql(self.options["as"][0].sval)]
        found = []
        row = None
        for kind, content in body_nodes(self.tree):
            if kind == "PLpgSQL_stmt_execsql":
                target = content.get("target", {}).get("PLpgSQL_rec", {}).get("refname")
                row = self.row_variables.get(target)
            elif kind == "PLpgSQL_expr":
                nodes = parse_embedded(content["query"], content.get("parseMode", STATEMENT))
                found += [Statement(self.line, node, row) for node in nodes]
                row = None
        return found

    @cached_property
    def row_variables(self) -> dict[str, str]:
        """The type of each parameter and each variable that holds a row."""
        given = self.node.parameters or () if self.is_created else ()
        typed = [(parameter.name, dotted(parameter.argType.names)) for parameter in given if parameter.name]
        typed += [(match["name"], match["type"]) for match in DECLARED_TYPE.finditer(self.source)]
        return {name.lower(): kind.lower() for name, kind in typed if kind.lower() in self.rows}


@dataclass
class SqlFile:
    """A file, its statements and its routines. A file that does not parse has neither."""

    path: str
    text: str
    rows: frozenset[str] = frozenset()
    parse_error: str | None = None
    statements: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        try:
            self.statements = list(pglast.parse_sql(self.text))
        except pglast.parser.ParseError as error:
            self.parse_error = str(error)

    @property
    def is_migration(self) -> bool:
        return self.path.startswith("migrations/")

    @property
    def stem(self) -> str:
        return Path(self.path).stem

    @property
    def chapter(self) -> str:
        return Path(self.path).parent.name

    @property
    def header(self) -> list[str]:
        lines = []
        for line in self.text.splitlines():
            if not line.startswith("--"):
                break
            lines.append(line.removeprefix("--").strip())
        return lines

    @property
    def is_hot_path(self) -> bool:
        return any(re.match(r"hot path\b", line, re.IGNORECASE) for line in self.header)

    def source(self, statement: Any) -> str:
        start = statement.stmt_location
        return self.text[start : start + statement.stmt_len if statement.stmt_len else None]

    def line(self, statement: Any) -> int:
        """The line on which a statement begins, past the blanks and comments that its location includes."""
        start = statement.stmt_location
        skipped = re.match(rf"(?:\s|{COMMENT.pattern})*", self.text[start:], re.DOTALL)
        return self.text.count("\n", 0, start + (skipped.end() if skipped else 0)) + 1

    @cached_property
    def bodies(self) -> list[Routine]:
        """Routines and DO blocks."""
        return [
            Routine(statement.stmt, self.source(statement), self.line(statement), self.rows)
            for statement in self.statements
            if isinstance(statement.stmt, ast.CreateFunctionStmt | ast.DoStmt)
        ]

    @property
    def routines(self) -> list[Routine]:
        return [body for body in self.bodies if body.is_created]

    @cached_property
    def all_sql(self) -> list[Statement]:
        """Every statement, those inside bodies too where they parse."""
        found = [Statement(self.line(statement), statement.stmt) for statement in self.statements]
        for body in parsed(self):
            if not body.has_standard_body:
                found += body.statements
        return found

    def finding(self, line: int, text: str) -> Finding:
        return Finding(self.path, line, text)


def parse_failure(body: Routine) -> str | None:
    try:
        body.statements  # noqa: B018
    except pglast.parser.ParseError as error:
        return str(error)
    return None


def parsed(file: SqlFile) -> Iterator[Routine]:
    return (body for body in file.bodies if parse_failure(body) is None)


def row_types(texts: Iterable[str]) -> frozenset[str]:
    """The names of all types that have fields: composite types, tables and views."""
    found = set()
    for text in texts:
        try:
            statements = pglast.parse_sql(text)
        except pglast.parser.ParseError:
            continue
        for statement in statements:
            match statement.stmt:
                case (
                    ast.CompositeTypeStmt(typevar=row) | ast.CreateStmt(relation=row) | ast.ViewStmt(view=row)
                ):
                    found |= {f"{row.schemaname}.{row.relname}", row.relname}
    return frozenset(found)


def build(sources: dict[str, str]) -> list[SqlFile]:
    """The files of {path: text}."""
    rows = row_types(sources.values())
    return [SqlFile(path, text, rows) for path, text in sorted(sources.items())]


def project_files(root: Path = ROOT) -> list[SqlFile]:
    paths = [*root.glob("sql/*/*.sql"), *root.glob("migrations/versions/*.sql")]
    return build({path.relative_to(root).as_posix(): path.read_text(encoding="utf-8") for path in paths})


def check_parses(file: SqlFile) -> Iterator[Finding]:
    """Every file and every body parses, and no routine is missed."""
    if file.parse_error:
        yield file.finding(1, f"does not parse: {file.parse_error}")
        return
    for body in file.bodies:
        if body.language not in {"sql", "plpgsql"}:
            yield file.finding(body.line, f"{body.name}: language {body.language}, which is not read here")
        elif failure := parse_failure(body):
            yield file.finding(body.line, f"{body.name}: the body does not parse: {failure}")
    seen, written = len(file.routines), len(CREATE_ROUTINE.findall(COMMENT.sub("", file.text)))
    if seen != written:
        yield file.finding(
            1, f"{written} CREATE FUNCTION or PROCEDURE in the text, {seen} seen by the checks"
        )


def check_search_path(file: SqlFile) -> Iterator[Finding]:
    """A routine resolves names by itself, never by the caller's search_path."""
    for routine in parsed(file):
        if not routine.is_created:
            continue
        if routine.commits:
            if routine.schema == "broker":
                # What it names is looked for where its caller does. An operator that is found there, and put in
                # place by its body, calls the counterpart from the procedure's own frame, as anybody.
                yield file.finding(routine.line, f"{routine.name}: commits, so it belongs in broker_private")
            if routine.settings:
                yield file.finding(routine.line, f"{routine.name}: commits, so it can't have a SET clause")
            for name in sorted(unqualified_names(routine.statements)):
                yield file.finding(routine.line, f"{routine.name}: commits, so {name} must be qualified")
        elif "search_path" in routine.settings:
            if fault := search_path_fault(routine.settings["search_path"]):
                yield file.finding(routine.line, f"{routine.name}: {fault}")
        elif not routine.has_standard_body:
            yield file.finding(
                routine.line,
                f"{routine.name}: neither pins its search_path (SET search_path = pg_catalog, pg_temp)"
                " nor has an SQL-standard body",
            )
    for statement in file.statements:
        if isinstance(statement.stmt, ast.AlterFunctionStmt):
            yield file.finding(file.line(statement), "ALTER FUNCTION: say it in the CREATE")


def search_path_fault(setting: Any) -> str | None:
    if setting.kind != enums.VariableSetKind.VAR_SET_VALUE:
        return "search_path is not a list of schemas"
    schemas = [argument.val.sval for argument in setting.args]
    if any("," in schema for schema in schemas):
        return "search_path is one quoted name; write its schemas without quotes"
    if schemas[-1] != "pg_temp":
        return "search_path must end in pg_temp, or a caller's temporary objects come first"
    if strange := set(schemas) - SCHEMAS - {"pg_catalog", "pg_temp"}:
        return f"search_path has {', '.join(sorted(strange))}, where others may create objects"
    return None


def unqualified_names(statements: Iterable[Statement]) -> set[str]:
    """Relations and functions without a schema.

    Types and operators are left out: those that PostgreSQL spells by keyword are qualified by its
    grammar, and the others can only be hijacked by the caller, who then runs his own code as himself.
    In broker_private nothing believes that he is another.
    """
    found = set()
    for statement in statements:
        nodes = list(descendants(statement.node))
        ctes = cte_names(nodes)
        for node in nodes:
            if isinstance(node, ast.RangeVar) and not node.schemaname and node.relname not in ctes:
                found.add(node.relname)
            elif isinstance(node, ast.FuncCall) and len(node.funcname) == 1:
                found.add(f"{node.funcname[0].sval}()")
    return found


def cte_names(nodes: Iterable[Any]) -> set[str]:
    return {node.ctename for node in nodes if isinstance(node, ast.CommonTableExpr)}


def check_security(file: SqlFile) -> Iterator[Finding]:
    """Owner's rights are in broker_private only; what the public calls runs with the caller's."""
    for routine in file.routines:
        if routine.is_definer and routine.schema != "broker_private":
            yield file.finding(routine.line, f"{routine.name}: SECURITY DEFINER belongs in broker_private")
    for routine in parsed(file):
        if routine.is_definer and routine.commits:
            yield file.finding(routine.line, f"{routine.name}: a SECURITY DEFINER procedure can't commit")


def check_hot_path(file: SqlFile) -> Iterator[Finding]:
    """Nothing on a hot path makes a subtransaction, a plan at each call, a notification or a table."""
    if not file.is_hot_path:
        return
    for body in parsed(file):
        kinds = {kind for kind, _ in body_nodes(body.tree)}
        if "PLpgSQL_exception_block" in kinds:
            yield file.finding(body.line, f"{body.name}: an EXCEPTION block on a hot path")
        if kinds & {"PLpgSQL_stmt_dynexecute", "PLpgSQL_stmt_dynfors", "dynquery"}:
            yield file.finding(body.line, f"{body.name}: a dynamic EXECUTE on a hot path")
    for statement in file.all_sql:
        for node in descendants(statement.node):
            match node:
                case ast.NotifyStmt():
                    yield file.finding(statement.line, "NOTIFY on a hot path")
                case ast.FuncCall() if node.funcname[-1].sval == "pg_notify":
                    yield file.finding(statement.line, "pg_notify on a hot path")
                case ast.RangeVar(relpersistence="t"):
                    yield file.finding(statement.line, f"a temporary table ({node.relname}) on a hot path")


def check_compilation(file: SqlFile) -> Iterator[Finding]:
    """No call waits for LLVM: up to PostgreSQL 17 a scan that is off, and is taken as there is no other, counts as dear enough to compile."""
    for routine in parsed(file):
        if {"enable_seqscan"} == routine.settings.keys() & {
            "enable_seqscan",
            "jit",
        } and routine.name not in NEVER_COMPILED:
            yield file.finding(
                routine.line,
                f"{routine.name}: enable_seqscan is off, so SET jit = off as well, for what it calls too",
            )


def check_clock(file: SqlFile) -> Iterator[Finding]:
    """Time comes from broker_private.clock, so that a test can move it."""
    if any(routine.name == "broker_private.clock" for routine in file.routines):
        return
    for statement in file.all_sql:
        for node in descendants(statement.node):
            match node:
                case ast.FuncCall() if node.funcname[-1].sval in CLOCKS and dotted(node.funcname[:-1]) in {
                    "",
                    "pg_catalog",
                }:
                    clock = f"{node.funcname[-1].sval}()"
                case ast.SQLValueFunction() if "TIME" in node.op.name or "DATE" in node.op.name:
                    clock = node.op.name.removeprefix("SVFOP_").removesuffix("_N").lower()
                case _:
                    continue
            yield file.finding(statement.line, f"{clock}: take the time from broker_private.clock()")


def defined_name(statement: Any) -> str | None:
    match statement:
        case ast.CreateFunctionStmt(funcname=names):
            pass
        case ast.CreateEnumStmt(typeName=names) | ast.CreateRangeStmt(typeName=names):
            pass
        case ast.CreateDomainStmt(domainname=names) | ast.DefineStmt(defnames=names):
            pass
        case ast.ViewStmt(view=relation) | ast.CompositeTypeStmt(typevar=relation):
            return f"{relation.schemaname}.{relation.relname}"
        case _:
            return None
    return dotted(names)


def check_one_thing(file: SqlFile) -> Iterator[Finding]:
    """A file in sql/ defines what its name says. One that defines nothing (grants) may have any name."""
    if file.is_migration or file.parse_error:
        return
    if not file.statements:
        yield file.finding(1, "has no statement")
    for statement in file.statements:
        if isinstance(statement.stmt, ast.CreateStmt | ast.CreateSeqStmt | ast.IndexStmt):
            yield file.finding(file.line(statement), "tables, sequences and indexes belong in migrations/")
        if name := defined_name(statement.stmt):
            schema, _, plain = name.rpartition(".")
            if plain != file.stem:
                yield file.finding(file.line(statement), f"{name}: belongs in {plain}.sql")
            if schema not in SCHEMAS:
                yield file.finding(file.line(statement), f"{name}: in neither broker nor broker_private")


def check_header(file: SqlFile) -> Iterator[Finding]:
    """A file begins with its purpose in one line; what there is of Locks, Plan, Errors, Why ends its header."""
    if not any(file.header):
        yield file.finding(1, "does not start with a -- header comment")
        return
    if file.is_migration:
        return
    for number, line in enumerate(file.text.splitlines()[: len(file.header)], start=1):
        if len(line) > HEADER_COLUMNS:
            yield file.finding(number, f"header line of {len(line)} columns: at most {HEADER_COLUMNS}")
    first = 1 if file.header[0].startswith("hot path") else 0
    purpose, *others = file.header[first:] or [""]
    is_alone = not others or not others[0] or _SECTION.match(others[0])
    if not is_alone or not re.fullmatch(r".*[\w)'\"][.?]", purpose):
        yield file.finding(first + 1, "say the purpose in one line, which ends with a full stop")
    section = ""
    for number, line in enumerate(others, start=first + 2):
        if found := _SECTION.match(line):
            if section and _SECTIONS.index(found[1]) <= _SECTIONS.index(section):
                yield file.finding(number, f"{found[1]} comes once, in this order: {', '.join(_SECTIONS)}")
            section = found[1]
        elif not line and section not in {"", "Why"}:
            yield file.finding(number, f"after {section} comes another of {', '.join(_SECTIONS)}, or nothing")


def check_sentences(file: SqlFile) -> Iterator[Finding]:
    """A comment is read once: none of its sentences is long. A list's item begins another one."""
    if file.is_migration:
        return
    begins, text = 0, ""
    for number, line in enumerate([*file.text.splitlines(), ""], start=1):
        found = _COMMENT.fullmatch(line)
        if found is not None and text and not line.lstrip().startswith("-- - "):
            text = f"{text} {found[1]}"
            continue
        for sentence in sentences(_NO_PROSE.sub("", text)):
            if (words := len(sentence.split())) > MOST_WORDS:
                said = f"a sentence of {words} words, at most {MOST_WORDS}: {sentence[:60]}..."
                yield file.finding(begins, said)
        begins, text = (number, found[1]) if found is not None else (0, "")


def check_words(file: SqlFile) -> Iterator[Finding]:
    """Comments say priority, as docs/glossary.md does. A finding's level, or a log's, is another thing."""
    if file.is_migration or file.chapter in _OTHER_LEVELS:
        return
    for number, line in enumerate(file.text.splitlines(), start=1):
        found = _COMMENT.fullmatch(line)
        if found is not None and (word := _NOT_FOR_PRIORITY.search(_NO_PROSE.sub("", found[1]))):
            yield file.finding(number, f'"{word[0]}": docs/glossary.md says priority')


def check_star(file: SqlFile) -> Iterator[Finding]:
    """Columns of a table are named, so that a migration that adds one changes no function's result.

    A whole row may be read into a variable declared as the row of that table: the two change together.
    """
    for statement in file.all_sql:
        nodes = list(descendants(statement.node))
        ctes = cte_names(nodes)
        for node in nodes:
            for star, table in stars(node, ctes):
                if table != statement.row:
                    yield file.finding(statement.line, f"{star} from {table}: name the columns")


def check_backslashes(file: SqlFile) -> Iterator[Finding]:
    """A literal with a backslash says E: PL/pgSQL reads another one as the caller's standard_conforming_strings tells it to."""
    for statement in file.statements:
        if file.is_migration or isinstance(statement.stmt, ast.CommentStmt):
            continue
        text = file.source(statement)
        for token in LITERAL.finditer(text):
            if token[0].startswith("'") and "\\" in token[0]:
                line = file.text.count("\n", 0, statement.stmt_location + token.start()) + 1
                yield file.finding(line, f"{token[0]}: write E'…', with two backslashes for each")


def stars(node: Any, ctes: set[str]) -> Iterator[tuple[str, str]]:
    """Each `*` or `alias.*` in the result of a query, with the table that it stands for."""
    if isinstance(node, ast.SelectStmt):
        targets, sources = node.targetList, node.fromClause
    elif isinstance(node, ast.InsertStmt | ast.DeleteStmt | ast.UpdateStmt):
        others = getattr(node, "fromClause", None) or getattr(node, "usingClause", None) or ()
        targets, sources = node.returningList, (node.relation, *others)
    else:
        return
    for target in targets or ():
        if isinstance(target.val, ast.ColumnRef) and isinstance(target.val.fields[-1], ast.A_Star):
            alias = dotted(target.val.fields[-2:-1])
            for table in tables_of(sources):
                qualified = ".".join(filter(None, (table.schemaname, table.relname)))
                if qualified not in ctes and alias in {
                    "",
                    table.alias.aliasname if table.alias else table.relname,
                }:
                    yield f"{alias}.*" if alias else "*", qualified


def tables_of(sources: Any) -> Iterator[Any]:
    """The tables in a FROM clause, without those inside its subqueries."""
    for source in sources or ():
        match source:
            case ast.RangeVar():
                yield source
            case ast.JoinExpr():
                yield from tables_of((source.larg, source.rarg))


def check_floors(file: SqlFile) -> Iterator[Finding]:
    """Whoever gives a message an old id or another queue resets the queue's floors, or RECEIVE begins above it."""
    for routine in parsed(file):
        nodes = [node for statement in routine.statements for node in descendants(statement.node)]
        written = [
            column.name
            for node in nodes
            if isinstance(node, ast.InsertStmt | ast.UpdateStmt) and node.relation.relname == "messages"
            for column in (node.cols if isinstance(node, ast.InsertStmt) else node.targetList) or ()
            if isinstance(node, ast.UpdateStmt) or column.name == "id"
        ]
        resets = any(
            isinstance(node, ast.FuncCall) and node.funcname[-1].sval == "reset_floors" for node in nodes
        )
        if {"id", "queue_id", "precedence"} & set(written) and not resets:
            yield file.finding(
                routine.line, f"{routine.name}: a message with an old id, so call broker_private.reset_floors"
            )


OWN_FRAME = re.compile(r"broker_private\.(\w+)\([\w,]*\) line (\d+) at GET DIAGNOSTICS")


def check_own_frame(file: SqlFile) -> Iterator[Finding]:
    """A hot function that compares its stack with its own frame names the line where it takes the stack."""
    for name, line in OWN_FRAME.findall(file.text):
        _, _, body = file.text.partition(f"function broker_private.{name}(")[2].partition("as $$")
        before, taken, _ = body.partition("get diagnostics stack = pg_context;")
        true_line = before.count("\n") + 1
        if not taken or int(line) != true_line:
            yield file.finding(
                1, f"broker_private.{name}: it takes its stack in line {true_line}, not {line}"
            )


FILE_CHECKS: tuple[Callable[[SqlFile], Iterator[Finding]], ...] = (
    check_parses,
    check_search_path,
    check_security,
    check_hot_path,
    check_compilation,
    check_clock,
    check_floors,
    check_own_frame,
    check_one_thing,
    check_header,
    check_sentences,
    check_words,
    check_star,
    check_backslashes,
)

# The codes for an unpinned search_path and for CREATE over what somebody else may have made first. Left out
# are those for an unqualified name or operator (PS001, PS009, PS016, PS017): in a body they follow from an
# unpinned search_path, and outside of one pgspot can't know that migrate pins it for the session.
PGSPOT_CODES = {
    *("PS002", "PS003", "PS004", "PS005", "PS006", "PS007", "PS010", "PS011", "PS012", "PS013"),
    *("PS014", "PS015", "PS018"),
}


def check_pgspot(files: Iterable[SqlFile]) -> Iterator[Finding]:
    """Run pgspot over everything at once, as one script that also creates the two schemas.

    It gets no SQL-standard body (it looks for the AS of each function and breaks), no procedure that commits
    (which can't pin its path; see `check_search_path`), and does not look inside PL/pgSQL: its tree walk
    breaks on row types, and what it would find there is said by the codes for the search_path.
    """
    script = [f"CREATE SCHEMA {schema};" for schema in sorted(SCHEMAS)]
    origin: list[tuple[int, SqlFile, int]] = []
    length = len(script)
    for file in files:
        commits = {routine.name for routine in parsed(file) if routine.commits}
        for statement in file.statements:
            node = statement.stmt
            if isinstance(node, ast.CreateFunctionStmt) and (
                node.sql_body is not None or dotted(node.funcname) in commits
            ):
                continue
            source = file.source(statement).lstrip() + ";"
            origin.append((length + 1, file, file.line(statement)))
            length += source.count("\n") + 1
            script.append(source)
    issues = _PgspotIssues()
    try:
        visit_sql(State(issues), "\n".join(script), toplevel=True)
    except Exception as error:
        yield Finding("pgspot", 0, f"broke: {error!r}")
        return
    for found_at, code, text in issues.found:
        if code in PGSPOT_CODES:
            _, file, line = [place for place in origin if place[0] <= found_at][-1]
            yield file.finding(line, f"pgspot {code}: {text}")


class _PgspotIssues(Counter):
    """Keeps what pgspot's command would print: a process of its own for each script takes longer than the checks."""

    def __init__(self) -> None:
        options = {"proc_without_search_path": [], "ignore": [], "ignore_lang": [], "sql_fn": []}
        super().__init__(SimpleNamespace(plpgsql=False, summary_only=False, **options))
        self.found: list[tuple[int, str, str]] = []

    def print_issue(self, code: str, context: str) -> None:
        self.found.append((self.line_number(), code, f"{codes[code]['title']}: {context}"))

    def unknown(self, message: str) -> None:
        """What it does not know is no finding."""


def check_chapters(files: Iterable[SqlFile]) -> Iterator[Finding]:
    """A chapter of sql/ calls and reads itself and those before it, so that each can be read without the later ones."""
    shipped = [file for file in files if not file.is_migration]
    home = {
        name: file.chapter
        for file in shipped
        for each in file.statements
        if (name := defined_name(each.stmt))
    }
    for file in shipped:
        for statement in file.all_sql:
            for node in descendants(statement.node):
                there = home.get(called(node) or "")
                if there and CHAPTERS.index(there) > CHAPTERS.index(file.chapter):
                    yield file.finding(
                        statement.line,
                        f"{called(node)}: {file.chapter} comes before {there}, and can't call it",
                    )


def check_letters(files: Iterable[SqlFile]) -> Iterator[Finding]:
    """A letter of a hot row is said by its name in sql/letters.py, and beside a column that may hold it."""
    for file in files:
        if file.is_migration:
            continue
        for number, line in enumerate(file.text.splitlines(), start=1):
            code = line.partition("--")[0]
            for letter in _BARE_LETTER.findall(code):
                if (file.path, letter) not in OTHER_LETTERS:
                    yield file.finding(number, f"'{letter}': say its name, of those in sql/letters.py")
            for name in NAMED_LETTER.findall(code):
                if name not in _COLUMNS_OF:
                    yield file.finding(number, f"'<{name}>': no such name in sql/letters.py")
        for statement in file.all_sql:
            for column, name in (pair for node in descendants(statement.node) for pair in compared(node)):
                columns = _COLUMNS_OF.get(name, set())
                if column in _LETTER_COLUMNS and columns and column not in columns:
                    said = " or ".join(sorted(columns))
                    yield file.finding(statement.line, f"'<{name}>' is no value of {column}, but of {said}")


def compared(node: Any) -> Iterator[tuple[str, str]]:
    """Each column, and a named letter that a node compares it with or puts into it."""
    match node:
        case ast.A_Expr(lexpr=one, rexpr=other):
            pairs = [(one, other), (other, one)]
        case ast.CaseExpr(arg=one, args=whens):
            pairs = [(one, when.expr) for when in whens]
        case ast.UpdateStmt(targetList=targets):
            pairs = [(ast.String(sval=each.name), each.val) for each in targets]
        case ast.InsertStmt(cols=tuple(targets), selectStmt=ast.SelectStmt() as source):
            names = [ast.String(sval=each.name) for each in targets]
            rows = source.valuesLists or [[each.val for each in source.targetList or ()]]
            pairs = [pair for row in rows for pair in zip(names, row, strict=False)]
        case _:
            return
    for one, other in pairs:
        if column := column_of(one):
            yield from ((column, name) for name in names_in(other))


def column_of(node: Any) -> str | None:
    """The name of a column, without its table and its cast."""
    match node:
        case ast.TypeCast(arg=inner):
            return column_of(inner)
        case ast.String(sval=name):
            return str(name)
        case ast.ColumnRef(fields=[*_, ast.String(sval=name)]):
            return str(name)
        case ast.A_Indirection(indirection=[*_, ast.String(sval=name)]):
            return str(name)
    return None


def names_in(node: Any) -> Iterator[str]:
    """The names of letters, each a literal of its own, that a column is compared with."""
    match node:
        case ast.A_Const(val=ast.String(sval=text)):
            yield from NAMED_LETTER.findall(f"'{text}'")
        case ast.TypeCast(arg=inner) | ast.A_ArrayExpr(elements=inner):
            yield from names_in(inner)
        case ast.CaseExpr(args=whens, defresult=otherwise):
            yield from names_in([*(when.result for when in whens), otherwise])
        case tuple() | list():
            for each in node:
                yield from names_in(each)


def called(node: Any) -> str | None:
    """The function that a node calls, or the table or view that it reads, with its schema."""
    match node:
        case ast.FuncCall(funcname=names) | ast.CreateTrigStmt(funcname=names):
            return dotted(names)
        case ast.RangeVar(schemaname=str(schema), relname=name):
            return f"{schema}.{name}"
    return None


def check_imports(root: Path = ROOT) -> Iterator[Finding]:
    """No shipped module imports pglast or what is built on it, and no shipped dependency names it."""
    for folder in SHIPPED:
        for directory, folders, names in os.walk(root / folder):
            folders[:] = [name for name in folders if name != "__pycache__"]
            for name in names:
                path = Path(directory, name)
                if path.suffix == ".py":
                    yield from imported_gpl(
                        path.relative_to(root).as_posix(), path.read_text(encoding="utf-8")
                    )
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project.get("optional-dependencies", {}).values()
    for requirement in [*project.get("dependencies", []), *(one for extra in extras for one in extra)]:
        if re.split(r"[^\w-]", requirement)[0].lower() in GPL:
            yield Finding("pyproject.toml", 1, f"{requirement} is GPL: only the lint group may have it")


def check_python_queries(root: Path = ROOT) -> Iterator[Finding]:
    """What a worker or a command asks in Python names the schema of each function and table.

    Its session searches schema public. Who may create there could make a function that fits a call better than
    PostgreSQL's own, and would be called with the rights of the worker or the operator.
    """
    for folder in ("pybroker", "workers"):
        for path in sorted((root / folder).rglob("*.py")):
            name = path.relative_to(root).as_posix()
            if not name.startswith(_OTHERS_NAMES):
                yield from unqualified_calls(name, path.read_text(encoding="utf-8"))


def unqualified_calls(path: str, text: str) -> Iterator[Finding]:
    for line, query in queries_in(text):
        try:
            statements = pglast.parse_sql(query)
        except pglast.parser.ParseError:
            continue
        ctes = cte_names(descendants(statements))
        for node in descendants(statements):
            match node:
                # Of several arrays it is PostgreSQL's own by grammar, and only without its schema.
                case ast.FuncCall(funcname=(only,), args=args) if only.sval != _INSERTED and (
                    only.sval != "unnest" or len(args or ()) == 1
                ):
                    yield Finding(path, line, f"{only.sval}() needs its schema: the session searches others")
                case ast.RangeVar(schemaname=None, relname=name) if name != _INSERTED and name not in ctes:
                    yield Finding(path, line, f"{name} needs its schema: the session searches others")


def queries_in(text: str) -> Iterator[tuple[int, str]]:
    """The line and the SQL of each string that may be a query, with NULL for its parameters."""
    tree = python_ast.parse(text)
    parts = {
        id(part)
        for node in python_ast.walk(tree)
        if isinstance(node, python_ast.JoinedStr)
        for part in node.values
    }
    for node in python_ast.walk(tree):
        match node:
            case python_ast.Constant(value=str(said)) if id(node) not in parts:
                pass
            case python_ast.JoinedStr(values=values):
                said = "".join(
                    str(part.value) if isinstance(part, python_ast.Constant) else "inserted"
                    for part in values
                )
            case _:
                continue
        yield node.lineno, _PARAMETER.sub("NULL", said).replace("%%", "%")


def imported_gpl(path: str, text: str) -> Iterator[Finding]:
    for node in python_ast.walk(python_ast.parse(text)):
        match node:
            case python_ast.Import():
                modules = [alias.name for alias in node.names]
            case python_ast.ImportFrom(level=0):
                modules = [node.module or ""]
            case _:
                continue
        for module in modules:
            if module.partition(".")[0] in GPL:
                yield Finding(path, node.lineno, f"imports {module}, which is GPL or built on it")


def findings(files: list[SqlFile]) -> list[Finding]:
    found = {finding for file in files for check in FILE_CHECKS for finding in check(file)}
    return sorted(
        found
        | set(check_chapters(files))
        | set(check_letters(files))
        | set(check_pgspot(files))
        | set(check_imports())
        | set(check_python_queries())
    )


def main() -> int:
    files = project_files()
    found = findings(files)
    for finding in found:
        sys.stdout.write(f"{finding}\n")
    routines = [routine for file in files for routine in file.routines]
    procedural = sum(1 for routine in routines if routine.language == "plpgsql")
    sys.stdout.write(
        f"SQL checks: {len(files)} files, {len(routines)} functions ({procedural} in PL/pgSQL),"
        f" {len(found)} findings\n"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
