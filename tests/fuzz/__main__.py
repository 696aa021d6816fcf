"""python -m tests.fuzz [target ...]: fuzz the parsers of what peers send, each for its share of the time.

What fails one is written into build/fuzz; `python -m tests.fuzz TARGET --input FILE` plays it again.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.fuzz.limits import last_input

ROOT = Path(__file__).parents[2]
FOUND = ROOT / "build" / "fuzz"
# That the whole process may have had at once. It begins with about 120.
MEGABYTES = 400
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
    with tempfile.TemporaryDirectory() as folder:
        corpus, kept = Path(folder, "corpus"), Path(folder, "input")
        corpus.mkdir()
        given = [] if "=" not in options[0] else [str(corpus)]
        # The fuzzer leaves no input where a signal ends its process, so it is this process that does.
        bounds = [f"-rss_limit_mb={MEGABYTES}", f"-exact_artifact_path={folder}/artifact"]
        ran = subprocess.run(
            [sys.executable, "-m", "tests.fuzz.worker", name, str(kept), *options, *bounds, *given],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            check=False,
            capture_output=True,
            text=True,
        )
        left = f"\nThe input: {leave(name, kept)}" if has_failed(ran) else ""
    print(f"{name}: {verdict(ran)}{left}", flush=True)  # noqa: T201
    return has_failed(ran)


def leave(name: str, kept: Path) -> Path:
    """Return a file of the input that was at work, named by what is in it."""
    data = last_input(kept)
    FOUND.mkdir(parents=True, exist_ok=True)
    left = FOUND / f"{name}-{hashlib.sha256(data).hexdigest()[:16]}"
    left.write_bytes(data)
    return left


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
        reason = ": too long for one input" if ran.returncode == -signal.SIGPROF else ""
        return f"FAILED with {ran.returncode}{reason}\n{ran.stdout[-4000:]}{ran.stderr[-4000:]}"
    return inputs if ran.returncode == 0 else f"{inputs}; then its process ended by signal {-ran.returncode}"


if __name__ == "__main__":
    sys.exit(main())
