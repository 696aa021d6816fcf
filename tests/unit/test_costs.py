"""A folder that costs too much turns the run red, and a test pays for the servers that it starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.costs import TIER

# The half second is a child's, as a server's is.
SUITE = """
import subprocess, sys
def test_a():
    burn = "import time\\nwhile time.process_time() < 0.5: pass"
    subprocess.run([sys.executable, "-c", burn], check=True)
"""


@pytest.mark.parametrize(
    ("budget", "code", "said"),
    [(0.1, 1, "its budget is 0 s"), (1000, 0, "")],
)
def test_a_folder_above_its_budget_is_red_with_both_figures(
    tmp_path: Path, budget: float, code: int, said: str
) -> None:
    tests = tmp_path / "tests" / "dear"
    tests.mkdir(parents=True)
    (tests / "test_a.py").write_text(SUITE)
    (tmp_path / "tests" / "costs.toml").write_text(f"[test]\ndear = {budget}\nall = 1000\n")
    (tmp_path / "conftest.py").write_text(
        "from pathlib import Path\n"
        "from tests import costs\n"
        f"costs.ROOT = Path({str(tmp_path)!r})\n"
        "costs.BUDGETS = costs.ROOT / 'tests' / 'costs.toml'\n"
        "costs.LAST_RUN = costs.ROOT / 'build'\n"
    )
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-n",
            "2",
            "-p",
            "no:cacheprovider",
            "-p",
            "tests.costs",
            tmp_path,
        ],
        cwd=tmp_path,
        env={**os.environ, TIER: "test", "PYTHONPATH": str(Path.cwd())},
        capture_output=True,
        text=True,
        check=False,
    )
    if "not counted" in run.stdout:
        pytest.skip("this process may not make a control group")
    assert run.returncode == code, run.stdout
    assert said in run.stdout
    assert "of a quiet core" in run.stdout
