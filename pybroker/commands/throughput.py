"""`pybroker throughput`: the whitepaper's tests, with Spark as the test clients."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from pybroker.commands.options import Json, connection_string, connection_strings
from pybroker.commands.telling import say, say_json, say_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from pybroker.throughput.analysis import Outcome
    from pybroker.throughput.equipment import Equipment
    from pybroker.throughput.matrix import Cell, Effort, Timing
    from pybroker.throughput.series import Display
    from pybroker.throughput.testbed import Bed


# Of Spark's log, that a failure shows.
_LOG_LINES = 20


def numbers(value: str | None) -> str | None:
    """Refuse what is no list of numbers."""
    if value is not None and not all(
        part.isascii() and part.isdigit() and int(part) for part in value.split(",")
    ):
        raise typer.BadParameter("give numbers above 0 with commas between them, such as 1,5,50")
    return value


def throughput(
    *,
    on: Annotated[
        Literal["embedded", "containers", "urls"], typer.Option(help="Which servers.")
    ] = "embedded",
    initiators: Annotated[
        str, typer.Option(metavar="N,N", callback=numbers, help="Initiator servers: 1 to 3.")
    ] = "1,2,3",
    threads: Annotated[
        str, typer.Option(metavar="N,N", callback=numbers, help="Test client threads for each initiator.")
    ] = "1,2,3,4,5,10,15,20,30,40,50",
    ratios: Annotated[
        str, typer.Option(metavar="N,N", callback=numbers, help="Dialogs opened for each that is used.")
    ] = "1,150",
    payloads: Annotated[
        str, typer.Option(metavar="N,N", callback=numbers, help="Bytes of a message, 24 or more.")
    ] = "100,1024,4096,8192",
    versions: Annotated[
        str, typer.Option(metavar="N,N", callback=numbers, help="PostgreSQL versions of the servers.")
    ] = "18",
    series: Annotated[
        str, typer.Option(metavar="NAME,NAME", help="Which variations; --list shows them.")
    ] = "whitepaper",
    recommendations: Annotated[
        bool,
        typer.Option("--recommendations", help="Run the cells behind rows 171 to 177 instead of a matrix."),
    ] = False,
    warm_up: Annotated[
        float, typer.Option(metavar="SECONDS", min=0, help="Load before the measurement.")
    ] = 6,
    seconds: Annotated[float, typer.Option(metavar="SECONDS", min=1, help="Of measurement a cell.")] = 10,
    repetitions: Annotated[
        int, typer.Option(metavar="N", min=1, help="Runs of a cell at most; 3 at least give an interval.")
    ] = 5,
    precision: Annotated[
        float,
        typer.Option(
            metavar="PERCENT",
            min=0,
            help="A cell is repeated until its interval of 95 % is within +- so much.",
        ),
    ] = 5,
    depth: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Messages sent before activation is on, in the deferred series; without it for --seconds.",
        ),
    ] = None,
    output: Annotated[
        Path, typer.Option(metavar="DIRECTORY", help="For results; finished cells in it are not run again.")
    ] = Path("throughput"),
    spark_master: Annotated[
        str | None,
        typer.Option(metavar="URL", help="A cluster for the test clients; default: threads of this machine."),
    ] = None,
    postgres_image: Annotated[
        str,
        typer.Option(
            metavar="IMAGE", help="With --on containers: the servers'; {version} is one of --versions."
        ),
    ] = "postgres:{version}",
    worker_image: Annotated[
        str,
        typer.Option(
            metavar="IMAGE", help="With --on containers: the workers', of docker/worker.Dockerfile."
        ),
    ] = "pybroker-worker",
    initiator_cores: Annotated[
        float,
        typer.Option(
            metavar="CORES",
            min=0,
            help="With --on containers: quota of an initiator and its worker; 0 is none.",
        ),
    ] = 0.45,
    initiator_url: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL", callback=connection_strings, help="With --on urls: an initiator's database."
        ),
    ] = None,
    target_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL", callback=connection_string, help="With --on urls: the target's database."
        ),
    ] = None,
    target_cores: Annotated[
        float | None,
        typer.Option(
            metavar="CORES",
            min=0,
            help="With --on containers: quota of the target and its worker, 0.45; with urls: its cores, 2.",
        ),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="Few cells, short and once: the shape of all figures in about ten minutes."
        ),
    ] = False,
    model: Annotated[
        bool,
        typer.Option(
            "--model",
            help="Run nothing: tell from --output what 1 to 16 initiators give on other hardware.",
        ),
    ] = False,
    server_cores: Annotated[
        float, typer.Option(metavar="CORES", min=0.1, help="With --model: processors of each server.")
    ] = 8,
    flush: Annotated[
        float, typer.Option(metavar="MS", min=0, help="With --model: what a disk needs to flush.")
    ] = 1,
    round_trip: Annotated[
        float, typer.Option(metavar="MS", min=0, help="With --model: from a client to its server and back.")
    ] = 0.2,
    show_list: Annotated[bool, typer.Option("--list", help="Print the cells and run none.")] = False,
    json: Json = False,
) -> None:
    """Run the tests of "Service Broker: Performance and Scalability Techniques" on PostgreSQL.

    Writes one page, report.html, with the whitepaper's figures 2 to 5. After Ctrl-C the same command goes on
    with the cells that are missing. The full matrix has 264 cells of about half a minute, and each runs up
    to five times. Needs the extra `spark`, and `embedded` or `containers`.

    \b
    Example:
      pybroker throughput --initiators 1 --threads 1,5,20 --payloads 100,1024
      pybroker throughput --quick --output quick
      pybroker throughput --model --output quick --server-cores 16
      pybroker throughput --recommendations --output recommendations
      pybroker throughput --on containers --series whitepaper,unlimited
      pybroker throughput --on urls --initiator-url postgresql://…/a --target-url postgresql://…/b

    \b
    Exit codes:
      0    every cell is finished, and every message of it was processed once and in order
      1    a cell lost, doubled or swapped a message, or could not be run
      2    wrong usage
      130  stopped by Ctrl-C; 143 by SIGTERM, 129 by the terminal's end
    """
    if model:
        _tell_model(output, server_cores, flush / 1000, round_trip / 1000, json=json)
        return
    from pybroker.throughput.equipment import Equipment
    from pybroker.throughput.matrix import QUICK, SERIES, Effort, Timing, cells
    from pybroker.throughput.matrix import recommendations as recommended

    if quick and recommendations:
        raise typer.BadParameter("--quick is a small matrix; --recommendations has none: give one of them")
    if quick:
        threads, payloads, warm_up, seconds, repetitions = QUICK
    names = series.split(",")
    if unknown := [name for name in names if name not in SERIES]:
        raise typer.BadParameter(f"there is no series {unknown[0]}; there are {', '.join(SERIES)}")
    if "unlimited" in names and on != "containers":
        raise typer.BadParameter("--series unlimited needs --on containers: nothing else has quotas")
    if on == "urls" and not (initiator_url and target_url):
        raise typer.BadParameter("--on urls needs --initiator-url, once for each initiator, and --target-url")
    if on == "urls" and (others := [name for name in names if name in {"tls", "plain"}]):
        raise typer.BadParameter(
            f"--series {others[0]} needs servers that the command makes: with --on urls the endpoints are"
            " yours, and dialogs are not encrypted in any series"
        )
    if depth and (recommendations or not any(SERIES[name].is_deferred for name in names)):
        raise typer.BadParameter("--depth needs --series deferred or deferred-batches")
    wanted = (0,) if on == "urls" else _numbers(versions)
    chosen = (
        recommended(versions=wanted)
        if recommendations
        else cells(
            series=names,
            versions=wanted,
            initiators=_numbers(initiators),
            threads=_numbers(threads),
            ratios=_numbers(ratios),
            payloads=_numbers(payloads),
            depth=depth or 0,
        )
    )
    most = max(cell.initiators for cell in chosen)
    if most > (len(initiator_url or ()) if on == "urls" else 3):
        raise typer.BadParameter(f"--initiators says {most}, and there are not so many servers")
    if min(cell.payload for cell in chosen) < 24:  # noqa: PLR2004
        raise typer.BadParameter("a payload has 24 bytes at least: each message carries its number")
    if show_list:
        for cell in chosen:
            say(f"{cell.name}: {cell.how.title}")
        return
    equipment = Equipment(
        postgres_image, worker_image, initiator_cores, 0.45 if target_cores is None else target_cores
    )
    _run(
        chosen,
        Timing(warm_up, seconds),
        Effort(repetitions, precision / 100),
        _bed_for(on, initiator_url or [], target_url or "", target_cores or 2.0, equipment),
        on=str(equipment) if on == "containers" else on,
        require_servers=lambda: _require_servers(on),
        output=output,
        spark_master=spark_master,
        json=json,
    )


def _run(
    chosen: list[Cell],
    timing: Timing,
    effort: Effort,
    bed_for: Callable[[Cell], AbstractContextManager[Bed]],
    *,
    on: str,
    require_servers: Callable[[], None],
    output: Path,
    spark_master: str | None,
    json: bool,
) -> None:
    """Run what is missing, write the report, and leave with the command's exit code."""
    from pybroker.commands.interruption import Interruption, interruptible
    from pybroker.demo.failures import DemoError
    from pybroker.embedded import EmbeddedServerError
    from pybroker.throughput.failures import ThroughputError

    try:
        from pybroker.spark import JavaNotFoundError
        from pybroker.throughput.report import write_report
        from pybroker.throughput.results import Results
        from pybroker.throughput.series import SPARK_LOG, run_series
    except ModuleNotFoundError as error:
        say(f'pybroker throughput: {error}; pip install "pybroker[spark,embedded]"', err=True)
        raise typer.Exit(1) from None
    try:
        require_servers()
        results = Results(output, on, timing)
        with interruptible(), _display() as display:
            run_series(
                chosen,
                results,
                timing=timing,
                effort=effort,
                bed_for=bed_for,
                display=display,
                master=spark_master,
            )
    except Interruption as interruption:
        say("Stopped: the servers have ended. The same command goes on from here.", err=True)
        raise typer.Exit(128 + interruption.number) from None
    except (ThroughputError, DemoError, EmbeddedServerError, JavaNotFoundError) as error:
        _show_end_of(output / SPARK_LOG)
        say_text(f"pybroker throughput: {error}", err=True)
        raise typer.Exit(1) from None
    finished = {outcome.cell: outcome for outcome in results.outcomes()}
    mine = [finished[cell] for cell in chosen]
    page = write_report(results, effort)
    if json:
        for outcome in mine:
            say_json(outcome)
    else:
        say(f"{len(mine)} cells, {sum(outcome.sent for outcome in mine):,} messages: {page}")
    if any(outcome.has_failed for outcome in mine):
        say("pybroker throughput: a cell lost, doubled or swapped messages; the report names it", err=True)
        raise typer.Exit(1)


def _tell_model(output: Path, cores: float, flush: float, round_trip: float, *, json: bool) -> None:
    """Fit the cells of a directory, and print what it means elsewhere; model.svg is the picture of it."""
    try:
        from pybroker.throughput.figures import model_figure
        from pybroker.throughput.model import WELL_PREDICTED, Hardware, Model
        from pybroker.throughput.results import read_finished
    except ModuleNotFoundError as error:
        say(f'pybroker throughput: {error}; pip install "pybroker[spark,embedded]"', err=True)
        raise typer.Exit(1) from None
    from pybroker.throughput.failures import ThroughputError

    if not (output / "conditions.json").exists():
        raise typer.BadParameter(f"{output} holds no run of pybroker throughput: name one with --output")
    try:
        fitted = Model(read_finished(output).outcomes)
    except ThroughputError as error:
        say_text(f"pybroker throughput: {error}", err=True)
        raise typer.Exit(1) from None
    hardware = Hardware(cores=cores, flush=flush, round_trip=round_trip)
    capacities = fitted.capacities(hardware, range(1, 17))
    (output / "model.svg").write_bytes(model_figure(capacities, hardware, with_legend=True).alone)
    if json:
        for one in capacities:
            say_json(one)
        return
    say(f"Fitted on {fitted.cells} cells of one and two initiators.")
    predictions = fitted.predictions()
    near = sum(abs(found.error) <= WELL_PREDICTED for found in predictions)
    if predictions:
        say(
            f"{near} of {len(predictions)} cells of three initiators are within ±{WELL_PREDICTED:.0%} of"
            " what it predicts:"
        )
    for found in predictions:
        say(
            f"  {found.cell.name}: {found.predicted:,.0f} messages per processor-second predicted,"
            f" {found.measured:,.0f} measured, {found.error:+.0%}"
        )
    say(
        f"Servers of {cores:g} processors like these, {hardware.threads} threads an initiator,"
        f" {hardware.payload} bytes:"
    )
    for one in capacities:
        say(
            f"  {one.initiators:2} initiators: {one.rate.mean:,.0f} messages/s"
            f" ({one.rate.low:,.0f} to {one.rate.high:,.0f}), bound by {one.bound_by}"
        )
    say(f"The picture: {output / 'model.svg'}")


def _show_end_of(log: Path) -> None:
    """Show what Spark said last: to a failure it may be the reason."""
    if log.exists():
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LOG_LINES:]
        say(f"The last lines of {log}:", *(f"  {line}" for line in lines), err=True)


def _require_servers(on: str) -> None:
    """Refuse what could never start, before Spark takes its time and leaves a directory."""
    if on == "containers":
        from pybroker.throughput.failures import ThroughputError

        try:
            from pybroker.throughput.containers import require_engine
        except ModuleNotFoundError as error:
            raise ThroughputError(f'{error}; pip install "pybroker[spark,containers]"') from None
        require_engine()


def _bed_for(
    on: str, initiator_urls: list[str], target_url: str, cores: float, equipment: Equipment
) -> Callable[[Cell], AbstractContextManager[Bed]]:
    def start(cell: Cell) -> AbstractContextManager[Bed]:
        from pybroker.throughput.testbed import embedded, urls

        if on == "urls":
            return urls(initiator_urls[: cell.initiators], target_url, cores=cores)
        if on == "containers":
            from pybroker.throughput.containers import containers

            return containers(
                cell.initiators, version=cell.version, endpoint=cell.how.endpoint, equipment=equipment
            )
        return embedded(cell.initiators, version=cell.version, endpoint=cell.how.endpoint)

    return start


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


@contextmanager
def _display() -> Iterator[Display]:
    """Show a bar to a person, and a line a cell to anybody else."""
    if not sys.stderr.isatty():
        yield _Lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    ) as progress:
        yield _Bar(progress)


class _Lines:
    def __init__(self) -> None:
        self._began = time.monotonic()

    def begin(self, cell: Cell, done: int, total: int) -> None:
        left = (time.monotonic() - self._began) / max(done, 1) * (total - done) / 60
        estimate = f", about {left:.0f} minutes left" if done else ""
        say(f"{done + 1} of {total}: {cell.name}{estimate}", err=True)

    def rate(self, messages_per_second: float) -> None:
        pass

    def end(self, outcome: Outcome) -> None:
        say(f"  {_line(outcome)}", err=True)


class _Bar:
    def __init__(self, progress: Any) -> None:
        self._progress = progress
        self._task: Any = None

    def begin(self, cell: Cell, done: int, total: int) -> None:
        if self._task is None:
            self._task = self._progress.add_task(cell.name, total=total, completed=done, rate="")
        self._progress.update(self._task, description=cell.name, total=total)

    def rate(self, messages_per_second: float) -> None:
        self._progress.update(self._task, rate=f"{messages_per_second:,.0f}/s")

    def end(self, outcome: Outcome) -> None:
        self._progress.advance(self._task)
        self._progress.console.print(_line(outcome))


def _line(outcome: Outcome) -> str:
    """Tell of a run in one line."""
    from pybroker.throughput.analysis import ALL_ROLES

    word = f"FAILED ({outcome.lost} lost, {outcome.doubled} doubled), " if outcome.has_failed else ""
    each = outcome.per_processor_second.get(ALL_ROLES)
    work = "" if each is None else f", {each:,.0f} per processor-second"
    disturbed = ", disturbed" if outcome.is_disturbed else ""
    return (
        f"{outcome.cell.name}, run {outcome.repetition}: {word}{outcome.rate:,.0f} messages/s{work},"
        f" {outcome.sent:,} sent, {outcome.seconds:.1f} s{disturbed}"
    )
