"""What the tests cost in processor seconds, by folder and file: `make costs` prints it and writes the table in docs.

Each process of pytest is in a control group of its own, so what it costs includes the servers, workers and browsers
that it starts. A test costs what its group has used meanwhile. A busy machine takes longer for the same: it shares
caches and cores. So a reference loop is timed now and then, and costs are in seconds of a core on which it takes
REFERENCE_SECONDS. Containers are the engine's children: they are counted together, as a folder's file of their own.

`tests/costs.toml` has the budget of each tier and folder. A folder above SLACK times its budget turns the run red.
"""

from __future__ import annotations

import json
import os
import sys
import time
import tomllib
from collections import Counter
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).resolve().parent.parent
BUDGETS = ROOT / "tests" / "costs.toml"
LAST_RUN = ROOT / "build" / "costs"
PAGE = ROOT / "docs" / "testing.md"
MARKS = "<!-- make costs -->", "<!-- end of costs -->"
# Which budgets hold: `test`, `ci` or `check`. Nobody sets it for a part of a tier.
TIER = "PYBROKER_TEST_TIER"
SLACK = 1.25
# What the loop took on a core that was otherwise idle, of the machine on which the budgets were made.
REFERENCE_SECONDS = 0.0038
_TURNS = 50_000
_SECONDS_BETWEEN_LOOPS = 5
_DEAREST = 30
# What pytest itself does, and what it starts for all tests: no file's.
_OTHER = "collection, start and end"
_CONTAINERS = "containers/(containers)"
# Version 1 has a tree of its own for times; version 2 says them in each group.
_PREFIX = "pybroker-tests-"
_TREES = ((Path("/sys/fs/cgroup/cpuacct"), "cpuacct.usage"), (Path("/sys/fs/cgroup"), "cpu.stat"))


class ControlGroup:
    """A group of processes, by its folder in the kernel's tree."""

    def __init__(self, folder: Path, file: str) -> None:
        self.folder = folder
        self._usage = folder / file

    @classmethod
    def of_this_process(cls) -> ControlGroup | None:
        """Move this process, and all that it will start, into a new group; None where that is not allowed."""
        for tree, file in _TREES:
            for old in tree.glob(f"{_PREFIX}*"):
                # Of a run that is over; that of one that goes on has processes, and stays.
                with suppress(OSError):
                    old.rmdir()
            group = cls(tree / f"{_PREFIX}{os.getpid()}", file)
            try:
                group.folder.mkdir()
                (group.folder / "cgroup.procs").write_text(str(os.getpid()))
                group.seconds()
            except OSError:
                continue
            return group
        return None

    @classmethod
    def of_containers(cls) -> ControlGroup | None:
        """Return the group of a container engine's containers, if there is one."""
        groups = [cls(tree / "docker", file) for tree, file in _TREES]
        return next((group for group in groups if group.folder.is_dir()), None)

    def seconds(self) -> float:
        """Return what its processes have used, those that have ended too."""
        said = self._usage.read_text()
        if self._usage.name == "cpuacct.usage":
            return int(said) / 1e9
        return int(dict(line.split() for line in said.splitlines())["usage_usec"]) / 1e6


class Meter:
    """Adds up what each test costs in this process."""

    def __init__(self, group: ControlGroup) -> None:
        self.group = group
        self._by_test: Counter[str] = Counter()
        self._begun = group.seconds()
        self._loops = [_loop()]
        self._next_loop = 0.0

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Note what a test costs, with its fixtures."""
        begun = self.group.seconds()
        result = yield
        self._by_test[item.nodeid.removeprefix("tests/")] += self.group.seconds() - begun
        if time.monotonic() > self._next_loop:
            self._loops.append(_loop())
            self._next_loop = time.monotonic() + _SECONDS_BETWEEN_LOOPS
        return result

    def taken(self) -> dict[str, Any]:
        """Return what each test used, and all else, in seconds of the reference's core."""
        pace = REFERENCE_SECONDS / median(self._loops)
        other = self.group.seconds() - self._begun - self._by_test.total()
        tests = {**self._by_test, _OTHER: other}
        return {"pace": pace, "tests": {test: pace * seconds for test, seconds in tests.items()}}


class Report:
    """Gathers what pytest's processes cost, writes it down, and holds each folder to its budget."""

    def __init__(self) -> None:
        self._taken: list[dict[str, Any]] = []
        self._containers = ControlGroup.of_containers()
        self._before = self._containers.seconds() if self._containers else 0.0
        self._begun = time.monotonic()

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take what a process of xdist's says at its end."""
        if "costs" in getattr(node, "workeroutput", {}):
            self._taken.append(node.workeroutput["costs"])

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the run's costs down, and fail it if a folder costs too much."""
        if own := _meter(session.config):
            self._taken.append(own.taken())
        self._above: list[str] = []
        if not self._taken:
            return
        costs: Counter[str] = Counter()
        for taken in self._taken:
            costs.update(taken["tests"])
        pace = median(taken["pace"] for taken in self._taken)
        if self._containers:
            costs[_CONTAINERS] = pace * (self._containers.seconds() - self._before)
        tier = os.environ.get(TIER, "")
        self._costs = dict(costs)
        if tier:
            said = {"pace": pace, "minutes": (time.monotonic() - self._begun) / 60, "tests": self._costs}
            LAST_RUN.mkdir(parents=True, exist_ok=True)
            (LAST_RUN / f"{tier}.json").write_text(json.dumps(said, indent=1, sort_keys=True))
        self._above = above_budget(added_up(self._costs, "/"), budgets().get(tier, {}))
        if self._above and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say what the run cost, and which folder too much."""
        if not self._taken:
            terminalreporter.write_line("Costs were not counted: this process may not make a control group.")
            return
        whole = sum(self._costs.values())
        terminalreporter.write_line(f"The tests cost {whole:.0f} s of a quiet core.")
        for line in self._above:
            terminalreporter.write_line(line, red=True)


def pytest_configure(config: pytest.Config) -> None:
    """Begin to count in each process that runs tests, and to gather in the one that the user has started."""
    is_gatherer = not hasattr(config, "workerinput")
    runs_tests = not is_gatherer or not config.getoption("numprocesses", None)
    if runs_tests and not config.option.collectonly and (group := ControlGroup.of_this_process()):
        config.pluginmanager.register(Meter(group), "costs-meter")
    if is_gatherer and not config.option.collectonly:
        config.pluginmanager.register(Report(), "costs-report")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Say what a process of xdist's cost to the one that gathers."""
    if (meter := _meter(session.config)) and hasattr(session.config, "workeroutput"):
        session.config.workeroutput["costs"] = meter.taken()


def _meter(config: pytest.Config) -> Meter | None:
    meter: Meter | None = config.pluginmanager.get_plugin("costs-meter")
    return meter


def budgets() -> dict[str, dict[str, float]]:
    """Return the budget of each folder, by tier."""
    return tomllib.loads(BUDGETS.read_text(encoding="utf-8"))


def added_up(tests: Mapping[str, float], end: str) -> dict[str, float]:
    """Return what the tests cost whose names are the same up to here: of a folder up to `/`, of a file up to `::`."""
    together: Counter[str] = Counter()
    for test, seconds in tests.items():
        together[test.partition(end)[0]] += seconds
    return dict(together)


def above_budget(folders: Mapping[str, float], budget: Mapping[str, float]) -> list[str]:
    """Return a line for each folder that costs more than SLACK times its budget."""
    return [
        f"tests/{folder} cost {seconds:.0f} s of a quiet core; its budget is {budget[folder]:.0f} s, and {SLACK} times that the limit."
        " A new test pays by an old one: make costs."
        for folder, seconds in sorted(folders.items())
        if seconds > SLACK * budget.get(folder, float("inf"))
    ]


def _loop() -> float:
    """Return what the reference loop takes just now."""
    begun, x = time.thread_time(), 0
    for turn in range(_TURNS):
        x = (x * 31 + turn) & 0xFFFFFFFF
    return time.thread_time() - begun


def _sections(pace: float) -> dict[str, float]:
    """Return what else `.ci/run` has measured: user and system seconds of each of its sections, in a file each."""
    taken = {path.stem: path.read_text().split()[-2:] for path in LAST_RUN.glob("*.seconds")}
    return {name: pace * (float(user) + float(system)) for name, (user, system) in taken.items()}


def _main() -> int:
    """Print what the last run of a tier cost; of `test` write it into docs/testing.md, of `ci` compare it with the whole budget."""
    from tests.bench.figures import replaced  # noqa: PLC0415 - not for each process of pytest

    tier = sys.argv[1] if len(sys.argv) > 1 else "test"
    last = LAST_RUN / f"{tier}.json"
    if not last.exists():
        sys.exit(f"No run of the tier {tier} was measured here: type make costs.")
    run = json.loads(last.read_text())
    budget, folders = budgets()[tier], added_up(run["tests"], "/")
    files = sorted(added_up(run["tests"], "::").items(), key=lambda each: -each[1])
    table = Table("file", "s of a quiet core")
    for file, seconds in files[:_DEAREST]:
        table.add_row(file, f"{seconds:.1f}")
    Console().print(table)
    if tier == "ci":
        folders |= _sections(run["pace"])
    rows = [
        f"| `{folder}` | {seconds:.0f} | {budget.get(folder, '')} |"
        for folder, seconds in sorted(folders.items(), key=lambda each: -each[1])
    ]
    whole, most = sum(folders.values()), budget["all"]
    text = "\n".join(
        ["| folder | cost, s | budget, s |", "|---|---|---|", *rows, f"| all | {whole:.0f} | {most:.0f} |"]
    )
    Console().print(text, markup=False)
    if tier == "test":
        PAGE.write_text(replaced(PAGE.read_text(encoding="utf-8"), text, MARKS), encoding="utf-8")
    if whole > SLACK * most:
        Console().print(f"The whole costs {whole:.0f} s of a quiet core; its budget is {most:.0f} s.")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(_main())
