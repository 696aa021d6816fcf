"""`pybroker status`: monitors, readers, backlog, rates and age of a database's queues, once or live."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from pybroker.commands.options import DatabaseUrl, Json
from pybroker.commands.telling import say, say_json
from pybroker.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from pybroker.status_readings import Status


def status(
    *,
    database_url: DatabaseUrl,
    watch: Annotated[bool, typer.Option("--watch", help="Go on until Ctrl-C.")] = False,
    interval: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=0.1, help="Between two readings; rates are taken over it."),
    ] = 1.0,
    json: Json = False,
) -> None:
    """Show the queues of a database: monitors, readers, backlog, rates and age.

    Two readings are taken, an interval apart. With --json each line is one object: tasks_running,
    tasks_started_per_second and task_limit_reached_per_second of a queue are Service Broker's counters.
    Below the table: why messages wait, quarantine, programs, workers, connections, certificates' days left.
    A role sees the queues that it may receive from.

    \b
    Example:
      pybroker status --database-url postgresql://localhost/shop --watch
      pybroker status --json | jq '.queues[] | select(.ready > 1000)'
    """
    try:
        if json:
            for shown in _statuses(database_url, interval, watch=watch):
                say_json(shown)
            return
        from rich.console import Console
        from rich.live import Live

        console = Console()
        if not console.is_terminal:
            # A program reads it: nothing is cut.
            console = Console(width=_UNCUT)
        if not (watch and console.is_terminal):
            # One that is watched in a file stays there, below the one before.
            for shown in _statuses(database_url, interval, watch=watch):
                console.print(_table(shown))
                console.file.flush()
            return
        with Live(console=console, auto_refresh=False, screen=True) as live:
            for shown in _statuses(database_url, interval, watch=True):
                live.update(_table(shown), refresh=True)
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


def _statuses(url: str, interval: float, *, watch: bool) -> Iterator[Status]:
    import time

    from pybroker import database_version
    from pybroker.operator_session import broker_session
    from pybroker.status_readings import read, status_of

    with broker_session(url, "pybroker status") as connection:
        found = connection.execute(database_version.COMMENT.encode()).fetchone()
        wanted = database_version.newer(found[0] if found else None)
        if wanted is not None:
            say(f"pybroker: {database_version.advice(wanted)}", err=True)
        before = read(connection)
        while True:
            time.sleep(interval)
            now = read(connection)
            yield status_of(before, now)
            if not watch:
                return
            before = now


def _table(shown: Status) -> RenderableType:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    head = Text.assemble(
        (printable(shown.database), "bold"),
        f"  {shown.read_at:%H:%M:%S}  ",
        "" if shown.is_broker_enabled else ("broker disabled  ", "red"),
        f"in {shown.enqueued_per_second:,.0f}/s  out {shown.dequeued_per_second:,.0f}/s  ",
        f"in transmission {_count(shown.transmission_queue, shown.transmission_queue > _COUNTED)}",
    )
    table = Table(box=None, pad_edge=False)
    table.add_column("queue")
    table.add_column("monitor")
    for name in ("readers", "ready", "oldest", "set aside", "retained", "incomplete", "started/s", "limit/s"):
        table.add_column(name, justify="right")
    for queue in shown.queues:
        table.add_row(
            Text(printable(queue.queue)),
            (queue.monitor or "-") if queue.is_enabled else Text("off", style="red"),
            "-" if queue.max_readers is None else f"{queue.tasks_running}/{queue.max_readers}",
            _count(queue.ready, queue.ready > _COUNTED),
            "-" if queue.oldest_age_seconds is None else _age(queue.oldest_age_seconds),
            Text(
                _count(queue.quarantined, queue.quarantined > _COUNTED),
                style="red" if queue.quarantined else "",
            ),
            _count(queue.retained, queue.retained > _COUNTED),
            _count(queue.incomplete, queue.incomplete > _COUNTED),
            f"{queue.tasks_started_per_second:,.1f}",
            f"{queue.task_limit_reached_per_second:,.1f}",
        )
    return Group(head, table, *_remarks(shown))


def _remarks(shown: Status) -> Iterator[RenderableType]:
    """Say what keeps messages, and what is not shown."""
    for waiting in shown.waiting:
        reason = waiting.status or "on their way"
        age = _age(waiting.oldest_age_seconds)
        yield _line(
            f"{_count(waiting.messages, waiting.messages > _COUNTED)} for {waiting.service}, {age}: {reason}"
        )
    if shown.quarantined:
        yield _line(f"{shown.quarantined:,} quarantined: broker.quarantine lists them", style="red")
    if shown.retried:
        yield _line(f"{shown.retried:,} to be tried again: broker.quarantine says when")
    for program in shown.programs:
        what = f"{program.queue}: {program.readers} readers in process {program.process_id} on {program.host}"
        if program.is_alive:
            yield _line(what)
        else:
            yield _line(f"{what}, silent for {_age(program.seen_seconds_ago)}", style="red")
    served = "a worker serves it" if shown.has_worker else "no worker serves it"
    yield _line(
        served if shown.is_limited else f"{served}, {shown.connections:,} connections to other brokers"
    )
    for certificate in shown.certificates:
        is_urgent = certificate.days_left < _URGENT_DAYS
        what = "is over" if certificate.days_left < 0 else f"{certificate.days_left:,.0f} days left"
        yield _line(f"certificate {certificate.name}: {what}", style="red" if is_urgent else "")
    if shown.is_limited:
        yield _line(
            f'The role "{shown.role}" sees the queues that it may receive from, {len(shown.queues)} here;'
            " the owner of the database sees all."
        )


def _line(text: str, style: str = "") -> RenderableType:
    from rich.text import Text

    return Text(printable(text), style=style)


# Columns of what no terminal shows.
_UNCUT = 10_000
_URGENT_DAYS = 30
# Up to here what waits is counted.
_COUNTED = 10_000
_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400


def _count(number: int, is_estimate: bool) -> str:
    return f"{'~' if is_estimate else ''}{number:,}"


def _age(seconds: float) -> str:
    if seconds < _MINUTE:
        return f"{seconds:.1f} s"
    if seconds < _HOUR:
        return f"{seconds / _MINUTE:.0f} min"
    return f"{seconds / _HOUR:.0f} h" if seconds < _DAY else f"{seconds / _DAY:.0f} d"
