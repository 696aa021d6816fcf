"""python -m tests.fuzz [target ...]: fuzz the parsers of what peers send, each for its share of the time.

What fails one is written into build/fuzz; `python -m tests.fuzz TARGET --input FILE` plays it again.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Of one input: seconds, and megabytes that the whole process has. It begins with about 120.
INPUT_SECONDS, MEGABYTES = 5, 400
NAMES = ("frames", "batch_fields", "ack_fields", "array", "security", "sealed")
RUNS = re.compile(r"Done (\d+) (?:runs )?in (\d+) second")


def missing() -> str | None:
    """Return why nothing can be fuzzed here, or None."""
    return (
        None
        if importlib.util.find_spec("atheris")
        else "atheris is not installed; it has no build for this Python"
    )


def main() -> int:
    """Return 1 if an input fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="target", help=f"{', '.join(NAMES)}; all without one")
    parser.add_argument("--seconds", type=int, default=60, help="for all targets together (%(default)s)")
    parser.add_argument("--inputs", type=int, help="for all targets together, however long they take")
    parser.add_argument("--seed", type=int, default=1, help="of the fuzzer's choices (%(default)s)")
    parser.add_argument("--input", type=Path, help="a file that failed, to be played again")
    arguments = parser.parse_args()
    if unknown := set(arguments.targets) - set(NAMES):
        parser.error(f"there is no target {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    if (reason := missing()) is not None:
        print(reason)  # noqa: T201 - what it is for
        return 1
    chosen = arguments.targets or NAMES
    failures = 0
    for name in chosen:
        if arguments.input:
            failures += fuzz(name, [str(arguments.input)])
            continue
        bound = (
            f"-max_total_time={max(1, arguments.seconds // len(chosen))}"
            if arguments.inputs is None
            else f"-atheris_runs={max(1, arguments.inputs // len(chosen))}"
        )
        failures += fuzz(name, [bound, f"-seed={arguments.seed}"])
    return int(failures > 0)


def fuzz(name: str, options: list[str]) -> bool:
    """Fuzz one target in a process of its own, as the fuzzer ends its process; return whether an input failed."""
    found = ROOT / "build" / "fuzz"
    found.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as corpus:
        given = [] if "=" not in options[0] else [corpus]
        bounds = [
            f"-timeout={INPUT_SECONDS}",
            f"-rss_limit_mb={MEGABYTES}",
            f"-artifact_prefix={found}/{name}-",
        ]
        ran = subprocess.run(
            [sys.executable, "-m", "tests.fuzz.worker", name, *options, *bounds, *given],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            check=False,
            capture_output=True,
            text=True,
        )
    print(f"{name}: {verdict(ran)}", flush=True)  # noqa: T201
    return has_failed(ran)


def has_failed(ran: subprocess.CompletedProcess[str]) -> bool:
    """Whether an input failed: the fuzzer stops at it, and is never done.

    A signal that ends its process after it was done tells of no input.
    """
    return ran.returncode > 0 or (ran.returncode < 0 and RUNS.search(ran.stderr) is None)


def verdict(ran: subprocess.CompletedProcess[str]) -> str:
    """Return what to say of a fuzzer's end."""
    done = RUNS.search(ran.stderr)
    inputs = f"{int(done[1]):,} inputs in {done[2]} s" if done else "holds"
    if has_failed(ran):
        return f"FAILED with {ran.returncode}\n{ran.stdout[-4000:]}{ran.stderr[-4000:]}"
    return inputs if ran.returncode == 0 else f"{inputs}; then its process ended by signal {-ran.returncode}"


if __name__ == "__main__":
    sys.exit(main())
