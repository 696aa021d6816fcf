"""Completion in a shell: what a user's Tab key finds."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PYBROKER = Path(sys.executable).with_name("pybroker")


@pytest.mark.parametrize(
    ("typed", "expected"),
    [("pybroker mig", "migrate"), ("pybroker migrate --database-", "--database-url")],
)
def test_bash_completes_commands_and_options(typed: str, expected: str) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash here")
    words = typed.split()
    # It tells the script of the shell that it is called from.
    presses_tab = (
        f'eval "$("{PYBROKER}" --show-completion)"; COMP_WORDS=({typed}); COMP_CWORD={len(words) - 1};'
        f' _pybroker_completion "{PYBROKER}"; echo "${{COMPREPLY[@]}}"'
    )
    found = subprocess.run([bash, "-c", presses_tab], capture_output=True, text=True, check=True)
    assert found.stdout.split() == [expected], found.stderr
