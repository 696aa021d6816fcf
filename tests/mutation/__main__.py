"""python -m tests.mutation [text ...]: plant mistakes one by one, and print which test finds each.

Each is planted in a copy of the working tree; the tree itself is never changed. A test that fails without the
mistake too has found nothing. The exit code is 1 if one survives.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, NamedTuple

from tests.mutation.detectors import detectors_of
from tests.mutation.mistakes import MISTAKES, Mistake

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
# It plants mistakes itself: where another one stands at the same place it fails, and has found nothing.
NO_DETECTOR = "tests/sql/test_hop.py::test_a_function_that_does_something_else_is_found"
FAILED = re.compile(r"^(?:FAILED|ERROR) (tests/\S+?(?:\[.*?\])?)(?: - |$)", re.MULTILINE)
SECONDS, GRACE_SECONDS = 400, 60
# pytest's: all passed; none was there.
PASSED, NOTHING = 0, 5


class Found(NamedTuple):
    """Which test has failed, after how many seconds; None: none has."""

    test: str | None
    seconds: float


def main() -> int:
    """Return 1 if a mistake survives."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("texts", nargs="*", metavar="text", help="what the mistake's name or file contains")
    parser.add_argument("--processes", type=int, default=2, help="how many mistakes at once (%(default)s)")
    parser.add_argument("--table", type=Path, help="where to write the table, in Markdown")
    arguments = parser.parse_args()
    chosen = [
        mistake
        for mistake in MISTAKES
        if not arguments.texts or any(text in mistake.name + mistake.file for text in arguments.texts)
    ]
    with copies(arguments.processes) as free, ThreadPoolExecutor(arguments.processes) as threads:
        found = dict(zip(chosen, threads.map(lambda mistake: look_for(mistake, free), chosen), strict=True))
        sound = passing(free, [each.test for each in found.values() if each.test])
    lines = ["| mistake | in | found by | after |", "|---|---|---|---|"]
    for mistake, (test, seconds) in found.items():
        by = "**nothing**" if test is None else f"`{test.removeprefix('tests/')}`"
        if test is not None and test not in sound:
            by = f"**nothing**: {by} fails without it too"
        lines.append(f"| {mistake.name} | `{mistake.file}` | {by} | {seconds:.0f} s |")
    table = "\n".join(lines) + "\n"
    print(table)  # noqa: T201 - what it is for
    if arguments.table:
        arguments.table.write_text(table)
    return int(any(each.test not in sound for each in found.values()))


@contextmanager
def copies(number: int) -> Iterator[SimpleQueue[Path]]:
    """Make copies of what is in the working tree and not ignored."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    free = SimpleQueue[Path]()
    with tempfile.TemporaryDirectory(prefix="pybroker-mutation-") as folder:
        for place in range(number):
            copy = Path(folder) / str(place)
            for name in filter(None, listed.stdout.split("\0")):
                source, target = ROOT / name, copy / name
                if source.is_symlink() or source.is_file():
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(source, target, follow_symlinks=False)
            free.put(copy)
        yield free


def look_for(mistake: Mistake, free: SimpleQueue[Path]) -> Found:
    """Plant a mistake in a copy that is free, run what may find it, and take it out again."""
    copy = free.get()
    began = time.monotonic()
    whole = (copy / mistake.file).read_text()
    try:
        mistake.plant(copy)
        test = next(filter(None, (first_failure(copy, file) for file in detectors_of(mistake.file))), None)
    finally:
        (copy / mistake.file).write_text(whole)
        free.put(copy)
    found = Found(test, time.monotonic() - began)
    print(f"{found.seconds:4.0f} s  {mistake.name}: {test or 'NOT FOUND'}", file=sys.stderr, flush=True)  # noqa: T201
    return found


def first_failure(copy: Path, *tests: str) -> str | None:
    """Return the first of these tests that fails; what does not end in time has failed, too."""
    try:
        ran = run(copy, ["--exitfirst", *tests])
    except subprocess.TimeoutExpired:
        return f"{tests[0]} (no end)"
    if ran.returncode in (PASSED, NOTHING):
        return None
    failed = FAILED.search(ran.stdout)
    return failed[1] if failed else tests[0]


def passing(free: SimpleQueue[Path], tests: list[str]) -> set[str]:
    """Return those of the tests that pass where nothing is planted."""
    files = [test for test in dict.fromkeys(tests) if not test.endswith("(no end)")]
    if not files:
        return set(tests)
    copy = free.get()
    ran = run(copy, files)
    free.put(copy)
    return set(tests) - set(FAILED.findall(ran.stdout))


def run(copy: Path, arguments: list[str]) -> subprocess.CompletedProcess[str]:
    """Run pytest in a copy.

    Raises:
        TimeoutExpired: It took too long, and was ended with all that it had started.
    """
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--tb=no",
        "-p",
        "no:cacheprovider",
        "--deselect",
        NO_DETECTOR,
        *arguments,
    ]
    with subprocess.Popen(
        command,
        cwd=copy,
        env={"PYBROKER_TEST_VERSIONS": "18", **os.environ, "PYTHONPATH": str(copy)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            said, _ = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            # So that pytest stops its servers.
            process.send_signal(signal.SIGINT)
            try:
                process.communicate(timeout=GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(command, process.returncode, said)


if __name__ == "__main__":
    sys.exit(main())
