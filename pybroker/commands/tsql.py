"""`pybroker tsql`: scripts of SQL Server's Service Broker, checked, translated and run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pybroker.commands.options import Json, connection_string
from pybroker.commands.telling import say, say_json, say_text

if TYPE_CHECKING:
    from pybroker.tsql.databases import Databases
    from pybroker.tsql.script import Finding, ReadScript
    from pybroker.tsql.session import Session

Scripts = Annotated[
    list[Path],
    typer.Argument(metavar="FILE...", exists=True, help="Scripts, or directories with *.sql files."),
]
Defines = Annotated[
    list[str] | None,
    typer.Option(
        "--define",
        metavar="NAME=VALUE",
        help="The value of $(NAME), or of the placeholder <NAME, type, default>; any number of times.",
    ),
]


def _known_encoding(name: str) -> str:
    try:
        b" ".decode(name, "replace")
    except LookupError:
        raise typer.BadParameter(f'"{name}" is no encoding: write utf-8, cp1252 or the like') from None
    return name


Encoding = Annotated[
    str,
    typer.Option(
        "--encoding",
        metavar="NAME",
        callback=_known_encoding,
        help="Of scripts without a byte order mark, as cp1252.",
    ),
]
NamedDatabases = Annotated[
    list[str] | None,
    typer.Option(
        "--database",
        metavar="NAME=URL",
        help="A database that USE names; may be given more than once. The first is the home database too:"
        " master and msdb, if these are not given themselves.",
    ),
]
OneDatabase = Annotated[
    str | None,
    typer.Option(
        "--database-url",
        envvar="PYBROKER_DATABASE_URL",
        metavar="URL",
        callback=connection_string,
        help="One database, under its own name, where no --database is given.",
    ),
]
Server = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="URL",
        callback=connection_string,
        help="Where the databases are that no --database names, and where CREATE DATABASE makes them.",
    ),
]
KeyDirectory = Annotated[
    Path | None,
    typer.Option(
        "--key-directory",
        envvar="PYBROKER_KEY_DIRECTORY",
        metavar="DIRECTORY",
        file_okay=False,
        help="Where the worker's private keys are.",
    ),
]
Paths = Annotated[
    list[str] | None,
    typer.Option(
        "--path",
        metavar="THEIRS=OURS",
        help=r"A directory of certificates, as scripts write it and here: 'C:\Temp=./certs'.",
    ),
]
AllowDrop = Annotated[bool, typer.Option("--allow-drop", help="Let DROP DATABASE run.")]

tsql = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Check, translate and run Service Broker scripts of SQL Server.",
)


class _Terminal:
    """What scripts print goes to standard output, what is said about them to standard error."""

    def show(self, line: str) -> None:
        say_text(line)

    def note(self, line: str) -> None:
        _say(line, err=True)


def _say(text: str, *, err: bool = False) -> None:
    """Print what quotes a script, which may hold what moves a terminal's cursor."""
    from pybroker.tsql.showing import printable

    say_text(printable(text), err=err)


@tsql.command()
def check(
    files: Scripts, *, define: Defines = None, encoding: Encoding = "utf-8", json: Json = False
) -> None:
    """Say of each statement whether it runs, and if not, why; exit code 1 if one is refused.

    \b
    Example:
      pybroker tsql check scripts
    """
    scripts = _read(files, define, encoding, can_ask=False)
    found = [one for script in scripts for one in script.findings]
    if json:
        from pybroker.tsql.administration import without_passwords

        rows = [
            {
                "file": one.file,
                "line": one.position.line,
                "column": one.position.column,
                "answer": _answer(one),
                "statement": without_passwords(one.step.source) if one.step else None,
                "notes": list(one.step.notes) if one.step else [one.refusal],
            }
            for one in found
        ]
        say_json(rows)
    else:
        for one in found:
            _say(f"{one.place}: {_described(one)}")
        for script in scripts:
            refused = sum(one.step is None for one in script.findings)
            say(f"{script.file}: {len(script.findings)} statements, {refused} refused")
    if any(one.step is None for one in found):
        raise typer.Exit(1)


@tsql.command()
def translate(
    files: Scripts,
    *,
    define: Defines = None,
    encoding: Encoding = "utf-8",
    output: Annotated[
        Path | None,
        typer.Option("--output", metavar="FILE", dir_okay=False, help="Write it there, not to the terminal."),
    ] = None,
) -> None:
    """Print the PostgreSQL form, each statement below its place in the script.

    Nothing is printed if a statement is refused.

    \b
    Example:
      pybroker tsql translate trader.sql --output trader.psql
    """
    from pybroker.tsql.running import Writer

    scripts = _read(files, define, encoding)
    writer = Writer()
    _refuse([one for script in scripts for one in script.findings if one.step is None])
    lines = []
    for script in scripts:
        for batch in script.batches:
            for one in batch.findings:
                for note in one.step.notes if one.step else ():
                    _say(f"{one.place}: {note}", err=True)
            lines += writer.batch(batch) * batch.count
    text = "".join(f"{line}\n" for line in lines)
    if output is None:
        say_text(text)
    else:
        output.write_text(text, "utf-8")


@tsql.command()
def run(
    files: Scripts,
    *,
    database: NamedDatabases = None,
    database_url: OneDatabase = None,
    server: Server = None,
    define: Defines = None,
    encoding: Encoding = "utf-8",
    key_directory: KeyDirectory = None,
    path: Paths = None,
    allow_drop: AllowDrop = False,
    single_transaction: Annotated[
        bool, typer.Option("--single-transaction", help="All or nothing: one transaction in one database.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would run where, and run nothing.")
    ] = False,
) -> None:
    """Run scripts; nothing runs if a statement is refused, and nothing behind one that fails.

    \b
    Example:
      pybroker tsql run trader.sql --database Trader1=postgresql://… --database DMBrokerage=postgresql://…

    Exit codes: 0 all ran, 1 a statement is refused or failed, 2 wrong usage.
    """
    from pybroker.tsql.databases import Foresight
    from pybroker.tsql.running import Run, refusals

    databases = _databases(database, database_url, server, may_drop=allow_drop)
    scripts = _read(files, define, encoding, databases=databases)
    foresight = Foresight(
        databases, has_key_directory=key_directory is not None, single_transaction=single_transaction
    )
    _refuse(list(refusals(scripts, foresight)))
    if dry_run:
        _show_plan(scripts, databases)
        return
    session = _session(databases, key_directory, path, single_transaction=single_transaction)
    try:
        went_well = Run(session, single_transaction=single_transaction).scripts(scripts)
    finally:
        session.close()
    if not went_well:
        raise typer.Exit(1)


@tsql.command()
def shell(
    *,
    database: NamedDatabases = None,
    database_url: OneDatabase = None,
    server: Server = None,
    define: Defines = None,
    key_directory: KeyDirectory = None,
    path: Paths = None,
    allow_drop: AllowDrop = False,
) -> None:
    """Type T-SQL; GO runs what was typed since the last one, Ctrl-D leaves.

    \b
    Example:
      pybroker tsql shell --database-url postgresql://localhost/trader1
    """
    from pybroker.tsql.databases import Foresight
    from pybroker.tsql.shell import Shell

    databases = _databases(database, database_url, server, may_drop=allow_drop)
    foresight = Foresight(databases, has_key_directory=key_directory is not None, single_transaction=False)
    session = _session(databases, key_directory, path)
    try:
        Shell(session, foresight, _pairs(define, "--define")).run()
    finally:
        session.close()


def _session(
    databases: Databases,
    key_directory: Path | None,
    paths: list[str] | None,
    *,
    single_transaction: bool = False,
) -> Session:
    from pybroker.tsql.session import Session

    certificates = None
    pairs = {theirs: Path(ours) for theirs, ours in _pairs(paths, "--path").items()}
    if key_directory is not None or pairs:
        from pybroker.tsql.certificates import Certificates

        certificates = Certificates(key_directory, pairs)
    return Session(databases, _Terminal(), certificates, single_transaction=single_transaction)


def _databases(named: list[str] | None, url: str | None, server: str | None, *, may_drop: bool) -> Databases:
    from pybroker.tsql.databases import Databases, name_of

    databases = Databases(server, may_drop=may_drop)
    for name, one in _pairs(named, "--database").items():
        connection_string(one)
        databases.add(name, one)
    if not named and url is not None:
        databases.add(name_of(url), url)
    elif not named and server is not None:
        databases.add("master", server)
    databases.look_at_server()
    if not databases.names:
        raise typer.BadParameter(
            "give a database, or set PYBROKER_DATABASE_URL", param_hint="--database or --database-url"
        )
    return databases


def _pairs(given: list[str] | None, option: str) -> dict[str, str]:
    pairs = {}
    for one in given or ():
        name, equals, value = one.partition("=")
        if not name or not equals:
            raise typer.BadParameter(
                f"write NAME=VALUE instead of {one.partition('://')[0]}", param_hint=option
            )
        pairs[name] = value
    return pairs


def _read(
    files: list[Path],
    define: list[str] | None,
    encoding: str,
    *,
    can_ask: bool = True,
    databases: Databases | None = None,
) -> list[ReadScript]:
    from pybroker.tsql.known import Known
    from pybroker.tsql.script import read

    defined = _pairs(define, "--define")
    asks = can_ask and sys.stdin.isatty()
    scripts = [
        script for file in files for script in (sorted(file.rglob("*.sql")) if file.is_dir() else [file])
    ]
    known = Known()
    if databases is not None:
        from pybroker.tsql.found_tables import FoundTables

        known.found, known.database = FoundTables(databases), databases.first
    return [read(script, defined, _ask if asks else None, known, encoding) for script in scripts]


def _ask(name: str, kind: str, default: str) -> str:
    asked: str = typer.prompt(f"{name} ({kind})" if kind else name, default=default or None)
    return asked


def _refuse(refused: list[Finding]) -> None:
    for one in refused:
        _say(f"{one.place}: {one.refusal}", err=True)
    if refused:
        raise typer.Exit(1)


def _show_plan(scripts: list[ReadScript], databases: Databases) -> None:
    from pybroker.tsql.running import Writer

    writer = Writer(databases.first)
    for script in scripts:
        for batch in script.batches:
            times = f", {batch.count} times" if batch.count > 1 else ""
            for one in batch.findings:
                form = writer.write(one)
                where = "master" if one.step and one.step.at_home else writer.database
                say_text(f"-- in {where}{times}\n{form}")


def _answer(one: Finding) -> str:
    if one.step is None:
        return "refused"
    return "runs with a note" if one.step.notes else "runs"


def _described(one: Finding) -> str:
    if one.step is None:
        return f"refused: {one.refusal}"
    from pybroker.tsql.administration import without_passwords

    notes = "".join(f" ({note})" for note in one.step.notes)
    return f"{_answer(one)}: {' '.join(without_passwords(one.step.source).split())}{notes}"
