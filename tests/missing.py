"""What a machine lacks: a test that needs it is skipped, and a run's end says what to type; in CI it fails."""

from __future__ import annotations

import os
import re
from collections import Counter
from typing import TYPE_CHECKING, NoReturn

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

    from _pytest.terminal import TerminalReporter

_APT = "apt-get install "
_REASON = re.compile(r"(?:Skipped: )?(.+) is not installed here: (.+)")


def reason(what: str, to_type: str) -> str:
    """Why a test is skipped: the summary finds in it what to type."""
    return f"{what} is not installed here: {to_type}"


def skip(what: str, to_type: str) -> NoReturn:
    """Skip the test that runs, or the file that is being imported; in CI, which has everything, fail."""
    __tracebackhide__ = True
    if os.environ.get("CI"):
        pytest.fail(reason(what, to_type))
    pytest.skip(reason(what, to_type), allow_module_level=True)


# Around all others: in the last two lines before pytest's own last one.
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: TerminalReporter) -> Generator[None, None, None]:
    yield
    lacking, typed, others = Counter[str](), list[str](), 0
    for report in terminalreporter.stats.get("skipped", ()):
        said = _REASON.fullmatch(report.longrepr[2])
        if said is None:
            others += 1
        else:
            lacking[said[1]] += 1
            typed.append(said[2])
    if lacking:
        counted = ", ".join(
            f"{lacking[what]} for {what}" for what in sorted(lacking, key=lambda each: (-lacking[each], each))
        )
        besides = f"; {others} for what is said above" if others else ""
        terminalreporter.write_line(f"Skipped, as it is not installed here: {counted}{besides}.")
        terminalreporter.write_line(f"To run them too, type: {_in_one(typed)}")


def _in_one(commands: list[str]) -> str:
    """All of these commands, those of apt-get as one."""
    packages = sorted(
        {name for each in commands if each.startswith(_APT) for name in each[len(_APT) :].split()}
    )
    others = [each for each in dict.fromkeys(commands) if not each.startswith(_APT)]
    return "; ".join([*([_APT + " ".join(packages)] if packages else []), *others])
