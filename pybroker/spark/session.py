"""Starting Spark."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from pybroker.spark.java import java_home

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


def start_session(
    master: str = "local[*]",
    name: str = "pybroker",
    settings: Mapping[str, str] | None = None,
    *,
    log: Path | None = None,
) -> SparkSession:
    """Start Spark, or return the session that this process has; without a web console and a progress bar.

    Args:
        master: Where Spark runs: `local[n]` for n threads of this machine, or a cluster's URL.
        name: The application's name.
        settings: Further Spark settings; they win over ours.
        log: Where Spark and its Python processes write what they would write to the terminal; for Spark in a
            process that has none yet. A process that starts at the same time is led there too.

    Raises:
        JavaNotFoundError: There is no Java 17 or later.
    """
    chosen = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
    }
    if master.startswith("local"):
        # A machine's name may lead to an address that nobody but the network knows.
        chosen |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    builder = SparkSession.builder.master(master).appName(name)
    for setting, value in (chosen | dict(settings or {})).items():
        builder = builder.config(setting, value)
    # Both are looked at only while Spark starts.
    python = os.environ.get("PYSPARK_PYTHON", sys.executable)
    with (
        java_home() as home,
        _environment({"JAVA_HOME": str(home), "PYSPARK_PYTHON": python}),
        _errors_to(log),
    ):
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


@contextmanager
def _errors_to(log: Path | None) -> Iterator[None]:
    """Let processes that start meanwhile write their errors to a file: Java keeps what it began with."""
    if log is None:
        yield
        return
    terminal = os.dup(2)
    try:
        with log.open("ab") as file:
            os.dup2(file.fileno(), 2)
            try:
                yield
            finally:
                os.dup2(terminal, 2)
    finally:
        os.close(terminal)


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
