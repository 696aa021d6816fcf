"""The cells one after the other, on servers that are started as they need them."""

from __future__ import annotations

import itertools
import shutil
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import msgspec
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from pybroker.spark.session import start_session
from pybroker.throughput.analysis import Outcome, analyse
from pybroker.throughput.cell import Run, run_cell
from pybroker.throughput.failures import ThroughputError
from pybroker.throughput.matrix import Cell, Effort, Timing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Future
    from contextlib import AbstractContextManager
    from pathlib import Path

    from pyspark.sql import SparkSession

    from pybroker.throughput.results import Results
    from pybroker.throughput.testbed import Bed

# Java waits and counts here; the processors are for the servers.
_MODEST_JAVA = {
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.sql.shuffle.partitions": "2",
    "spark.python.daemon.module": "pybroker.throughput.client_daemon",
}


# In the run's directory: what Spark would write to the terminal.
SPARK_LOG = "spark.log"


class Display(Protocol):
    """Who watches."""

    def begin(self, cell: Cell, done: int, total: int) -> None:
        """A cell begins; so many are done."""

    def rate(self, messages_per_second: float) -> None:
        """What the target processes now."""

    def end(self, outcome: Outcome) -> None:
        """A cell is over."""


def run_series(
    cells: Sequence[Cell],
    results: Results,
    *,
    timing: Timing,
    effort: Effort,
    bed_for: Callable[[Cell], AbstractContextManager[Bed]],
    display: Display,
    master: str | None = None,
) -> None:
    """Run the cells that are missing, all once, then all again that are to be repeated.

    So what changes slowly, such as other programs on the machine, meets all cells alike.

    Args:
        cells: In the order in which they share servers.
        results: Where the outcomes go.
        timing: How long each is.
        effort: How often.
        bed_for: Starts the servers of a cell. Of cells that share servers it is told of the one with most.
        display: Told what happens.
        master: Spark's master; None is this machine with a slot for each thread.

    Raises:
        ThroughputError: A cell could not be run.
    """
    due = results.due(cells, effort)
    if not due:
        return
    slots = max(cell.initiators * cell.threads for cell in due)
    done = 0
    with _spark(master or f"local[{slots + 1}]", results.path_of(SPARK_LOG)) as spark:
        _write_matrix(spark, cells, results)
        while due:
            least = min(due.values())
            # How often the others will run is not known yet: at most.
            total = done + sum(effort.repetitions - before for before in due.values())
            turn = [cell for cell, before in due.items() if before == least]
            for _, together in itertools.groupby(turn, key=lambda cell: (cell.version, cell.how.endpoint)):
                done = _run_group(
                    spark, list(together), least + 1, results,
                    timing=timing, bed_for=bed_for, display=display, done=done, total=total,
                )  # fmt: skip
            due = results.due(cells, effort)


def _run_group(
    spark: SparkSession,
    group: Sequence[Cell],
    repetition: int,
    results: Results,
    *,
    timing: Timing,
    bed_for: Callable[[Cell], AbstractContextManager[Bed]],
    display: Display,
    done: int,
    total: int,
) -> int:
    """Run cells that share servers; return how many runs are done then."""
    with bed_for(max(group, key=lambda cell: cell.initiators)) as bed:
        results.note_servers(group[0].version, bed.about)
        analyst = _Analyst(spark, results, display)
        try:
            for test, cell in enumerate(group, 1):
                display.begin(cell, done, total)
                _run_one(
                    spark,
                    bed.with_initiators(cell.initiators),
                    cell,
                    test=test,
                    timing=timing,
                    repetition=repetition,
                    directory=results.directory_of(cell, repetition),
                    display=display,
                    analyst=analyst,
                )
                done += 1
        finally:
            analyst.finish()
    return done


class _Analyst:
    """Analyses a cell while the next one opens its dialogs, which is not measured."""

    def __init__(self, spark: SparkSession, results: Results, display: Display) -> None:
        self._spark = spark
        self._results = results
        self._display = display
        self._pool = ThreadPoolExecutor(1)
        self._pending: Future[None] | None = None

    def begin(self, cell: Cell, run: Run, repetition: int, seconds: float) -> None:
        self.wait()
        self._pending = self._pool.submit(self._analyse, cell, run, repetition, seconds)

    def wait(self) -> None:
        """Return when the last cell is analysed, and raise what kept it from that."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def finish(self) -> None:
        try:
            self.wait()
        finally:
            self._pool.shutdown()

    def _analyse(self, cell: Cell, run: Run, repetition: int, seconds: float) -> None:
        directory = self._results.directory_of(cell, repetition)
        outcome = analyse(self._spark, cell, run, directory, seconds=seconds, repetition=repetition)
        self._results.add(outcome)
        self._display.end(outcome)


def _run_one(
    spark: SparkSession,
    bed: Bed,
    cell: Cell,
    *,
    test: int,
    timing: Timing,
    repetition: int,
    directory: Path,
    display: Display,
    analyst: _Analyst,
) -> None:
    began = time.monotonic()
    # What an interrupted attempt left.
    shutil.rmtree(directory, ignore_errors=True)
    run = run_cell(
        spark, bed, cell,
        test=test, timing=timing, directory=directory, tell=display.rate, before_load=analyst.wait,
    )  # fmt: skip
    analyst.begin(cell, run, repetition, time.monotonic() - began)


@contextmanager
def _spark(master: str, log: Path) -> Iterator[SparkSession]:
    # Spark puts a handler of its own in the place of this one, which knows nothing of servers to stop.
    handler = signal.getsignal(signal.SIGINT)
    try:
        session = start_session(master, "pybroker throughput", _MODEST_JAVA, log=log)
    except (Py4JError, PySparkException) as error:
        raise ThroughputError(f"Spark does not start with {master}") from error
    signal.signal(signal.SIGINT, handler)
    try:
        yield session
    finally:
        session.stop()


def _write_matrix(spark: SparkSession, cells: Sequence[Cell], results: Results) -> None:
    """Keep the matrix as a DataFrame beside the cells' own files."""
    rows = [(cell.name, *msgspec.structs.astuple(cell)) for cell in cells]
    columns = ["name", *Cell.__struct_fields__]
    spark.createDataFrame(rows, columns).coalesce(1).write.mode("overwrite").parquet(
        str(results.path_of("matrix"))
    )
