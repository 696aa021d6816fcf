"""In CI a test that came to nothing, as a start was late or its time was over, is run once more by itself.

What qualifies is decided here, by the exception alone. It says of itself that something took too long, and
nothing that was sent can be what is missing:

- a server, a worker, Spark, chromium or a container did not start in time (`patience.NotStartedError`, and
  `LATE`: what other libraries raise then);
- the test's own limit was over (pytest-timeout), and nobody in its stack was waiting for what another session,
  process or thread does (`WAITS`): that could be a message.

An assertion never does, nor does `patience.until`: what it waited for in vain may be lost. So a message that is
lost, doubled, out of order or shown to whom it must not be is red at once. So is whatever comes with it, and more
than `MOST` that qualify. STRICT=1 turns all of it off; it is what is typed before a hand-in.
"""

from __future__ import annotations

import linecache
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests import costs
from tests.patience import NotStartedError

if TYPE_CHECKING:
    from collections.abc import Generator

    from _pytest._code import TracebackEntry
    from _pytest.terminal import TerminalReporter

MOST = 2
# By the names of their classes, as they are imported only where they are needed; with what they say.
LATE = {
    "psycopg.errors.ConnectionTimeout": "",
    "psycopg_pool.PoolTimeout": "",
    "pybroker.embedded.errors.EmbeddedServerError": "accepted no connections within",
    "requests.exceptions.ReadTimeout": "",
    "selenium.common.exceptions.SessionNotCreatedException": "",
    "selenium.common.exceptions.TimeoutException": "from renderer",
    "urllib3.exceptions.ReadTimeoutError": "",
}
SPARK_IS_LATE = "Python worker failed to connect back"
LIMIT_IS_OVER = re.compile(r"Timeout \(>[\d.]+s\) from pytest-timeout")
# The names of what waits, and of what is read from.
WAITS = re.compile(
    r"\b(?:bodies|communicate|get|join|next_event|notifies|readline|result|until|wait\w*)\(|receive|std(?:err|out)"
)


def qualifies(caught: pytest.ExceptionInfo[BaseException]) -> bool:
    """Whether a failure may be a slow machine's, and is no message's."""
    said = str(caught.value)
    if isinstance(caught.value, pytest.fail.Exception):
        return LIMIT_IS_OVER.search(said) is not None and not any(map(_waits, caught.traceback))
    if isinstance(caught.value, AssertionError):
        return isinstance(caught.value, NotStartedError)
    if isinstance(caught.value, TimeoutError):
        return str(caught.traceback[-1].frame.f_globals.get("__name__")).startswith("testcontainers.")
    names = {f"{kind.__module__}.{kind.__qualname__}" for kind in type(caught.value).__mro__}
    return SPARK_IS_LATE in said or any(name in names and text in said for name, text in LATE.items())


def _waits(entry: TracebackEntry) -> bool:
    line = linecache.getline(str(entry.path), entry.lineno + 1)
    return WAITS.search(f"{entry.frame.code.name}( {line}") is not None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    call: pytest.CallInfo[None],
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    # xdist takes it along.
    report.is_late = call.excinfo is not None and qualifies(call.excinfo)
    return report


class Again(NamedTuple):
    """The second run of what failed in the first."""

    reports: list[pytest.TestReport]
    has_passed: bool
    output: str


_AGAIN = pytest.StashKey[Again]()


# First: what another plugin finds wrong with the run stays red.
@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Run what qualifies once more; only then is it known whether the run has failed."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    is_on = (
        os.environ.get("CI") and not os.environ.get("STRICT") and not hasattr(session.config, "workerinput")
    )
    is_whole = exitstatus == pytest.ExitCode.TESTS_FAILED and not (session.shouldfail or session.shouldstop)
    if reporter is None or not (is_on and is_whole):
        return
    failed = [report for kind in ("failed", "error") for report in reporter.stats.get(kind, ())]
    tests = list(dict.fromkeys(report.nodeid for report in failed))
    if not 1 <= len(tests) <= MOST or not all(getattr(report, "is_late", False) for report in failed):
        return
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *tests],
        cwd=session.config.rootpath,
        env={**os.environ, "STRICT": "1", costs.TIER: ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    session.config.stash[_AGAIN] = Again(failed, done.returncode == 0, done.stdout)
    if done.returncode == 0:
        for kind in ("failed", "error"):
            reporter.stats.pop(kind, None)
        reporter.stats["flaky"] = failed
        session.exitstatus = pytest.ExitCode.OK


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(
    terminalreporter: TerminalReporter, config: pytest.Config
) -> Generator[None, None, None]:
    yield
    again = config.stash.get(_AGAIN, None)
    if again is None:
        return
    if again.has_passed:
        # As they are no failures any more, pytest has not shown them.
        for report in again.reports:
            terminalreporter.section(f"{report.nodeid}, the first time")
            terminalreporter.line(report.longreprtext)
            for title, content in report.sections:
                terminalreporter.line(f"--- {title}\n{content}")
    terminalreporter.section("once more, by itself")
    terminalreporter.line(again.output)
    verdict = "FLAKY" if again.has_passed else "failed twice:"
    for report in again.reports:
        terminalreporter.line(
            f"{verdict} {report.nodeid} - {report.longrepr.reprcrash.message.splitlines()[0]}"
        )
