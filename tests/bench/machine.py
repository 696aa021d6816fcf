"""Where and on what it ran: what a reader needs to judge the figures."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import tempfile
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from tests.bench.stage import Bench

# A disk that says to have written more pages a second has hardly written them.
MOST_SYNCS = 20_000
IN_MEMORY = {"tmpfs", "ramfs"}
# Other programs using more of the processors than this make the messages/s worth nothing, the ratios less.
BUSY_PERCENT = 15
# What the figures depend on.
MEASURED = (
    "pybroker",
    "sql",
    "migrations",
    "workers",
    "tests/bench",
    ":(glob)tests/*.py",
    ":(glob,exclude)tests/test_*.py",
)
UNCOMMITTED = " with uncommitted changes"


@dataclass(frozen=True)
class Machine:
    """Where and on what it ran."""

    started: str
    revision: str
    system: str
    processor: str
    cores: int
    memory_gib: float
    busy_percent: float
    data_directory: str
    file_system: str
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def is_in_memory(self) -> bool:
        """Whether the data is where fsync costs nothing."""
        return self.file_system in IN_MEMORY

    def warnings(self, syncs: float | None = None) -> list[str]:
        """Return what a reader of the figures must know; `syncs` is how often a second a page was synced."""
        found = []
        if self.is_in_memory:
            found.append("The data is in memory, where fsync costs nothing: not a result.")
        if syncs is not None and syncs > MOST_SYNCS:
            found.append(
                f"The disk syncs {syncs:,.0f} pages a second: it, or what is before it, keeps them in memory, and may lose them."
            )
        if self.busy_percent > BUSY_PERCENT:
            found.append(
                f"Other programs used {self.busy_percent:.0f} % of the processors before the run began:"
                " look at the ratios only."
            )
        return found


def machine_of(bench: Bench, busy_percent: float) -> Machine:
    """Return what this machine and the bench's servers say of themselves."""
    directory = bench.server.data_directory
    return Machine(
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        revision=_revision(),
        system=f"{platform.system()} {platform.release()}, Python {platform.python_version()}",
        processor=_processor(),
        cores=os.cpu_count() or 1,
        memory_gib=round(psutil.virtual_memory().total / 2**30, 1),
        busy_percent=busy_percent,
        data_directory=str(directory),
        file_system=_file_system(directory),
        settings=bench.settings(),
    )


def _processor() -> str:
    try:
        found = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1] if found else platform.processor() or platform.machine()


def _file_system(path: Path) -> str:
    mounts = [
        (len(Path(mount.mountpoint).parts), mount.fstype)
        for mount in psutil.disk_partitions(all=True)
        if path.resolve().is_relative_to(mount.mountpoint)
    ]
    return max(mounts)[1] if mounts else "unknown"


def _revision() -> str:
    # Without optional locks git writes nothing, not even to its index.
    git = ["git", "--no-optional-locks", "-C", str(Path(__file__).parents[2])]
    try:
        head, changes = (
            subprocess.run([*git, *words], capture_output=True, text=True, check=True).stdout.strip()
            for words in (["rev-parse", "--short", "HEAD"], ["status", "--porcelain", "--", *MEASURED])
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{head}{UNCOMMITTED}" if changes else head


def is_in_memory() -> bool:
    """Whether temporary files are in memory."""
    return _file_system(Path(tempfile.gettempdir())) in IN_MEMORY


def use_a_disk() -> None:
    """Let temporary files be on a disk."""
    # On many systems /tmp is memory and /var/tmp is not. A TMPDIR that somebody set is obeyed.
    if "TMPDIR" not in os.environ and is_in_memory():
        tempfile.tempdir = "/var/tmp"
