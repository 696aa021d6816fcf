"""A late start or a time limit is tried again in CI, and what may be a lost message is red at once."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from pybroker.embedded import EmbeddedServerError
from tests.flaky import qualifies
from tests.patience import NotStartedError

pytest_plugins = ("pytester",)

ROOT = Path(__file__).parents[2]
TESTS = """
import os, time
from pathlib import Path
import pytest
from tests.patience import NotStartedError, until

def is_first(name):
    file = Path(__file__).with_name(name)
    was_there = file.exists()
    file.touch()
    return not was_there

def test_well():
    pass

@pytest.fixture
def server(request):
    if is_first(request.node.name):
        print("the log of the server")
        raise NotStartedError("the server did not start")

@pytest.mark.parametrize("number", range(3))
def test_start(server, number):
    pass

@pytest.mark.timeout(1)
def test_limit():
    if is_first("limit"):
        time.sleep(30)

def test_never():
    raise NotStartedError("it never starts")

def test_lost():
    if is_first("lost"):
        until(lambda: False, seconds=0)

def test_order():
    assert not is_first("order")
"""


@pytest.fixture
def ci(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("CI", "true")
    monkeypatch.delenv("STRICT", raising=False)
    pytester.makepyfile(test_all=TESTS)
    return pytester


def test_what_was_late_twice_and_passes_by_itself_is_named_with_both_outputs(ci: pytest.Pytester) -> None:
    chosen = "well or start and 0 or limit"
    done = ci.runpytest_subprocess("-p", "tests.flaky", "-n", "2", "-k", chosen)
    assert done.ret == 0
    *said, first, second, last = done.outlines
    assert sorted((first, second)) == [
        "FLAKY test_all.py::test_limit - Failed: Timeout (>1.0s) from pytest-timeout.",
        "FLAKY test_all.py::test_start[0] - tests.patience.NotStartedError: the server did not start",
    ]
    assert " 1 passed, 2 flaky in " in last
    assert "the log of the server" in said
    assert any(" 2 passed in " in line for line in said)


@pytest.mark.parametrize(
    ("chosen", "is_strict", "tried"),
    [
        ("never", False, ["test_all.py::test_never"]),
        ("start", False, []),
        ("lost", False, []),
        ("order", False, []),
        ("start and 0 or order", False, []),
        ("start and 0", True, []),
    ],
    ids=["fails again", "more than two", "waits in vain", "an assertion", "one of them is none", "STRICT"],
)
def test_a_run_is_red(
    ci: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, chosen: str, is_strict: bool, tried: list[str]
) -> None:
    if is_strict:
        monkeypatch.setenv("STRICT", "1")
    done = ci.runpytest_inprocess("-p", "tests.flaky", "-k", chosen)
    assert done.ret == pytest.ExitCode.TESTS_FAILED
    said = done.outlines
    assert [line.split()[2] for line in said if line.startswith("failed twice: ")] == tried
    assert not any("FLAKY" in line for line in said)
    assert " failed" in said[-1] or " error" in said[-1]


def test_what_another_plugin_finds_wrong_stays_red(ci: pytest.Pytester) -> None:
    ci.makeconftest(
        "import os\n"
        "def pytest_sessionfinish(session):\n"
        "    session.exitstatus = session.exitstatus if 'STRICT' in os.environ else 1"
    )
    done = ci.runpytest_inprocess("-p", "tests.flaky", "-k", "start and 0")
    assert done.outlines[-2].startswith("FLAKY ")
    assert done.ret == pytest.ExitCode.TESTS_FAILED


class Limit:
    """What is called while the limit of a test is over."""

    def over(self) -> None:
        pytest.fail("Timeout (>300.0s) from pytest-timeout.")

    readline = wait = open = over


def test_who_waits_for_another_when_the_limit_is_over_may_have_lost_a_message() -> None:
    limit = Limit()
    with pytest.raises(pytest.fail.Exception) as opened:
        limit.open()
    assert qualifies(opened)
    with pytest.raises(pytest.fail.Exception) as read:
        limit.readline()
    assert not qualifies(read)
    with pytest.raises(pytest.fail.Exception) as waited:
        limit.wait()
    assert not qualifies(waited)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (NotStartedError("no worker"), True),
        (psycopg.errors.ConnectionTimeout("connection timeout expired"), True),
        (EmbeddedServerError("PostgreSQL accepted no connections within 60 seconds:"), True),
        (EmbeddedServerError("initdb failed in /nowhere"), False),
        (RuntimeError("Job aborted: Python worker failed to connect back."), True),
        (psycopg.OperationalError("server closed the connection unexpectedly"), False),
        (TimeoutError(), False),
        (AssertionError("Python worker failed to connect back."), False),
    ],
)
def test_the_exception_alone_decides(error: Exception, expected: bool) -> None:
    with pytest.raises(type(error)) as caught:
        raise error
    assert qualifies(caught) == expected
