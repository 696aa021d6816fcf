"""python -m tests.simulation.hunt [text ...]: plant mistakes of transport and delivery, and run seeds until one fails.

Each is planted in a copy of the working tree, as `tests.mutation` does.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from tests.mutation.__main__ import copies
from tests.mutation.mistakes import MISTAKES

if TYPE_CHECKING:
    from pathlib import Path

AREAS = (
    "sql/delivery/",
    "sql/sending/",
    "sql/dialog/",
    "sql/wake_ups/",
    "sql/housekeeping/sweep",
    "workers/database",
    "workers/transport/outgoing/",
    "workers/transport/protocol/slices",
)
_SEED = re.compile(r"^seed (\d+): ", re.MULTILINE)
_FAILURE = re.compile(r"^  (\w+: .*)$", re.MULTILINE)


def main() -> int:
    """Return 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.hunt", description=__doc__)
    parser.add_argument("texts", nargs="*", metavar="text", help="what the mistake's name or file contains")
    parser.add_argument("--seeds", type=int, default=50, help="how many at most (%(default)s)")
    arguments = parser.parse_args()
    print("| mistake | found by seed | by what | after |\n|---|---|---|---|", flush=True)  # noqa: T201
    with copies(1) as free:
        copy = free.get()
        for mistake in MISTAKES:
            if not mistake.file.startswith(AREAS):
                continue
            if arguments.texts and not any(text in mistake.name + mistake.file for text in arguments.texts):
                continue
            whole = (copy / mistake.file).read_text()
            began = time.monotonic()
            try:
                mistake.plant(copy)
                found = hunt(copy, arguments.seeds)
            finally:
                (copy / mistake.file).write_text(whole)
            seconds = time.monotonic() - began
            print(f"| {mistake.name} | {found} | {seconds:.0f} s |", flush=True)  # noqa: T201 - what it is for
    return 0


def hunt(copy: Path, seeds: int) -> str:
    """Return which seed fails in a copy, and by what."""
    ran = subprocess.run(
        [sys.executable, "-m", "tests.simulation", "--seeds", str(seeds), "--until-failure", "--no-shrink"],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy), "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    failure = _FAILURE.search(ran.stdout)
    if failure is None:
        return f"**none of {seeds}** | {'' if ran.returncode == 0 else ran.stderr.splitlines()[-1]}"
    return f"{_SEED.findall(ran.stdout)[-1]} | {failure[1][:150]}"


if __name__ == "__main__":
    sys.exit(main())
