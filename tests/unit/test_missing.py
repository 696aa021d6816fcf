"""Who runs the tests without something reads at the end what was skipped for it, and what to type."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest_plugins = ("pytester",)

ROOT = Path(__file__).parents[2]
TESTS = """
import pytest
from tests import missing

def test_pages():
    missing.skip("chromium", "apt-get install chromium chromium-driver")

@pytest.mark.parametrize("name", ["one", "two"])
def test_metrics(name):
    missing.skip("promtool", "apt-get install prometheus")

def test_types():
    pytest.skip("there is no type xml here")
"""
FILE = """
from tests import missing

missing.skip("pglast", "make .venv/.linters")
"""


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("CI", raising=False)
    pytester.makepyfile(test_many=TESTS, test_file=FILE)
    return pytester


def test_the_last_lines_say_what_was_skipped_and_what_to_type(run: pytest.Pytester) -> None:
    *before, skipped, typed, last = run.runpytest_subprocess("-ra", "-p", "tests.missing", "-n", "2").outlines
    assert (
        "SKIPPED [1] test_many.py:5: chromium is not installed here: apt-get install chromium chromium-driver"
        in before
    )
    assert skipped == (
        "Skipped, as it is not installed here: 2 for promtool, 1 for chromium, 1 for pglast; 1 for what is said above."
    )
    assert typed == (
        "To run them too, type: apt-get install chromium chromium-driver prometheus; make .venv/.linters"
    )
    assert " 5 skipped " in last


def test_ci_has_everything(run: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    done = run.runpytest_subprocess("-p", "tests.missing", "test_many.py")
    done.assert_outcomes(failed=3, skipped=1)
