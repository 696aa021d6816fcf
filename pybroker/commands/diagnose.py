"""`pybroker diagnose`: what keeps messages, and the statement that mends it."""

from __future__ import annotations

from contextlib import ExitStack
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, NoReturn
from uuid import UUID

import typer

from pybroker.commands.options import DatabaseUrl, Json, connection_string
from pybroker.commands.telling import say, say_json

if TYPE_CHECKING:
    import psycopg

    from pybroker.diagnosis.findings import Finding, Mend


class Scope(StrEnum):
    """What is looked at."""

    DATABASE = "database"
    CONFIGURATION = "configuration"
    RUNTIME = "runtime"


class Level(StrEnum):
    """The least grave level that is shown."""

    ERROR = "error"
    WARNING = "warning"
    INFORMATION = "information"


class Encryption(StrEnum):
    """How the dialog is to be secured."""

    ON = "on"
    OFF = "off"
    ANONYMOUS = "anonymous"


def diagnose(
    *,
    scope: Annotated[
        Scope,
        typer.Argument(
            metavar="[configuration|runtime]",
            help="configuration: whether two services can talk. runtime: one conversation, until its"
            " message has arrived. Without it: the database.",
        ),
    ] = Scope.DATABASE,
    database_url: DatabaseUrl,
    far_database_url: Annotated[
        str | None,
        typer.Option(metavar="URL", callback=connection_string, help="The other side's database."),
    ] = None,
    from_service: Annotated[str | None, typer.Option(metavar="NAME", help="The initiator.")] = None,
    to_service: Annotated[str | None, typer.Option(metavar="NAME", help="The target.")] = None,
    contract: Annotated[str, typer.Option(metavar="NAME")] = "DEFAULT",
    encryption: Annotated[Encryption, typer.Option(help="How the dialog is secured.")] = Encryption.ON,
    conversation: Annotated[
        UUID | None, typer.Option(metavar="HANDLE", help="One conversation, by its handle here.")
    ] = None,
    journey: Annotated[
        UUID | None,
        typer.Option(
            metavar="MESSAGE_OR_HANDLE",
            help="The life of one conversation, both ends on one time line, by its handle or a message's id.",
        ),
    ] = None,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", min=0, help="How long runtime watches.")
    ] = 60.0,
    level: Annotated[Level, typer.Option(help="Show nothing less grave.")] = Level.INFORMATION,
    ignore: Annotated[
        list[int] | None, typer.Option(metavar="NUMBER", help="Leave this finding out; more than once.")
    ] = None,
    fix: Annotated[
        bool, typer.Option("--fix", help="Show each statement, and run it if that is agreed to.")
    ] = False,
    destructive: Annotated[
        bool,
        typer.Option("--destructive", help="With --fix: also what loses messages or ends conversations."),
    ] = False,
    yes: Annotated[
        bool,
        typer.Option(
            "--yes", help="With --fix: ask nobody, and run only what may run again and again: 106 and 113."
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Say what keeps messages, since when, and the statement that mends it.

    Each finding has a number: docs/diagnose.md lists them. A role is told of what it may see.
    To see whether the disk is full it makes a temporary table and takes that back.

    \b
    Example:
      pybroker diagnose --database-url postgresql://localhost/shop
      pybroker diagnose configuration --from-service //shop --to-service //warehouse \\
        --contract ordering --far-database-url postgresql://far/warehouse
      pybroker diagnose --journey 6f1c2a52-8f51-4b5e-9b63-1f0c8a0e7c55
      pybroker diagnose runtime --conversation 6f1c2a52-8f51-4b5e-9b63-1f0c8a0e7c55 --timeout 30

    \b
    Exit codes:
      0  no error was found
      1  an error was found; a database that can't be reached is one, and a journey that nobody knows
      2  wrong usage
    """
    _check(scope, from_service, to_service, conversation, ignore or [])
    if json and fix:
        raise typer.BadParameter(
            "--fix is for a person to read; leave one of the two out", param_hint="--json"
        )
    if yes and (destructive or not fix):
        raise typer.BadParameter("goes with --fix, and without --destructive", param_hint="--yes")
    # Imported when it runs: the help of a command needs no client.
    from pybroker.diagnosis.asking import Services, ask_about_conversation
    from pybroker.diagnosis.configuration import configuration
    from pybroker.diagnosis.findings import Finding, connect, shown

    with ExitStack() as opened:
        found: list[Finding] = []
        sides: list[psycopg.Connection[Any] | None] = []
        for url in (database_url, far_database_url):
            one = None if url is None else connect(url)
            if isinstance(one, Finding):
                found.append(one)
                one = None
            sides.append(one)
            if one is not None:
                opened.enter_context(one)
        if journey is not None:
            _tell_journey(journey, [one for one in sides if one is not None], found, json=json)
        near, far = sides
        if near is not None:
            if scope is Scope.RUNTIME and conversation is not None:
                found += _watch(near, conversation, timeout, quiet=json)
                found += ask_about_conversation(near, conversation) if far is None else []
            else:
                found += _ask(near, conversation)
            found += _ask_far(far, found)
            if scope is Scope.CONFIGURATION and _has_broker(found):
                services = Services(from_service or "", to_service or "", contract, encryption.value)
                found += configuration(near, far, services)
        findings = shown(found, level=level.value, ignored=set(ignore or ()))
        if json:
            say_json({"findings": findings})
        else:
            _print(findings, sides, fix=fix, destructive=destructive, yes=yes)
    raise typer.Exit(1 if any(one.level == "error" for one in findings) else 0)


def _ask(connection: psycopg.Connection[Any], handle: UUID | None = None) -> list[Finding]:
    """Ask one database about a conversation, or about everything: certificates too."""
    from pybroker.diagnosis.certificates import expiring
    from pybroker.diagnosis.disk import full
    from pybroker.diagnosis.findings import findings_of

    found = findings_of(connection, handle)
    if handle is None and _has_broker(found):
        found += expiring(connection)
    return found + full(connection)


def _ask_far(connection: psycopg.Connection[Any] | None, near: list[Finding]) -> list[Finding]:
    """Ask the far database about everything, and whether it lacks the worker that the near one misses."""
    from pybroker.diagnosis.findings import far_worker_missing, of_far_side

    if connection is None:
        return []
    found = _ask(connection)
    return [of_far_side(one) for one in found + far_worker_missing(connection, near, found)]


def _has_broker(found: list[Finding]) -> bool:
    return not any(one.number in (2, 4, 5) for one in found)


def _check(
    scope: Scope,
    from_service: str | None,
    to_service: str | None,
    conversation: UUID | None,
    ignored: list[int],
) -> None:
    from pybroker.diagnosis.catalogue import KINDS

    if scope is Scope.CONFIGURATION and None in (from_service, to_service):
        raise typer.BadParameter(
            "configuration needs both services", param_hint="--from-service, --to-service"
        )
    if scope is Scope.RUNTIME and conversation is None:
        raise typer.BadParameter("runtime needs the handle", param_hint="--conversation")
    unknown = next((number for number in ignored if number not in KINDS), None)
    if unknown is not None:
        raise typer.BadParameter(f"no finding has the number {unknown}", param_hint="--ignore")


def _tell_journey(
    given: UUID, connections: list[psycopg.Connection[Any]], found: list[Finding], *, json: bool
) -> NoReturn:
    """Print the conversation's life, or why that can't be known, and end."""
    from pybroker.diagnosis.findings import not_installed
    from pybroker.diagnosis.journey import journey

    for connection in connections:
        found += not_installed(connection)
    if found:
        if json:
            say_json({"findings": found})
        else:
            _print(found, [])
        raise typer.Exit(1)
    told = journey(connections, given)
    if json:
        say_json({"journey": told})
    else:
        for step in told.steps:
            side = "initiator" if step.is_initiator else "target"
            line = f"{step.time:%Y-%m-%d %H:%M:%S.%f%z}  {step.database}  {side} {step.service_name}"
            say(f"{line}: {step.event} ({step.detail})")
        for line in told.gone:
            say(line)
    raise typer.Exit(0 if told.conversation_id is not None else 1)


def _watch(
    connection: psycopg.Connection[Any], handle: UUID, timeout: float, *, quiet: bool
) -> list[Finding]:
    """Ask again and again, until the message has arrived, something is wrong, or the time is over."""
    import time

    from pybroker.diagnosis.findings import findings_of

    end = time.monotonic() + timeout
    told: set[str] = set()
    while True:
        found = findings_of(connection, handle)
        if not quiet:
            for one in found:
                if one.problem not in told:
                    told.add(one.problem)
                    say(f"{one.level}: {one.problem}", err=True)
        is_known = any(one.level == "error" or one.number in _ENDS_WATCH for one in found)
        if is_known or time.monotonic() >= end:
            return found
        time.sleep(0.5)


# The message has arrived, or there is nothing that could come.
_ENDS_WATCH = {411, 413, 415}


def _print(
    findings: list[Finding],
    sides: list[psycopg.Connection[Any] | None],
    *,
    fix: bool = False,
    destructive: bool = False,
    yes: bool = False,
) -> None:
    if not findings:
        say("Nothing is wrong.")
    for one in findings:
        since = "" if one.since is None else f" (since {one.since:%Y-%m-%d %H:%M:%S%z})"
        say(f"{one.level} {one.number}: {one.object}: {one.problem}{since}")
        say(f"  {one.why}")
        for place, mend in enumerate(one.mend):
            role = "" if mend.role is None else f', as "{mend.role}"'
            loses = "; it loses messages or ends conversations" if mend.is_destructive else ""
            where = ("far " if mend.is_far else "") + "database"
            where += f' "{mend.database}"' if mend.database else ""
            say(f"  {'Or in' if place else 'In'} the {where}{role}{loses}:")
            say(f"    {mend.statement}")
            if fix and (destructive or not mend.is_destructive):
                _offer(one, mend, sides[mend.is_far], yes=yes)


def _offer(finding: Finding, mend: Mend, connection: psycopg.Connection[Any] | None, *, yes: bool) -> None:
    import psycopg

    from pybroker.diagnosis.catalogue import KINDS

    is_withheld = yes and not KINDS[finding.number].runs_unasked
    if not mend.is_sql or connection is None or is_withheld or len(finding.mend) > 1:
        say("  This one is yours to run.")
    elif yes or typer.confirm("  Run it?", default=False):
        try:
            connection.execute(mend.statement.encode())
        except psycopg.Error as error:
            say(f"  It failed: {error.diag.message_primary or error}")
        else:
            say("  Done.")
