"""python -m tests.simulation --seed N: run one seed, or many, and shrink what fails.

Each seed runs in a process of its own, forked from one that has everything loaded, so that it runs alike
whichever seeds were run before it.
"""

from __future__ import annotations

import argparse
import gc
import logging
import os
import pickle
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from tests.simulation.run import Result, Simulation
from tests.simulation.sites import made_sites

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from tests.simulation.faults import Fault
    from tests.simulation.sites import Sites


def main() -> int:
    """Return 1 if a seed fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first seed (%(default)s)")
    parser.add_argument("--seeds", type=int, default=1, help="how many, one after the other (%(default)s)")
    parser.add_argument("--processes", type=int, default=1, help="how many share the seeds (%(default)s)")
    parser.add_argument("--every", type=int, default=1, help="step from seed to seed (%(default)s)")
    parser.add_argument("--trace", action="store_true", help="print the whole trace")
    parser.add_argument("--until-failure", action="store_true", help="end with the first seed that fails")
    parser.add_argument("--no-shrink", action="store_true", help="do not look for the fewest faults")
    arguments = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.execve(
            sys.executable,
            [sys.executable, "-m", "tests.simulation", *sys.argv[1:]],
            {**os.environ, "PYTHONHASHSEED": "0"},
        )
    if arguments.processes > 1:
        return _share(arguments.seed, arguments.seeds, arguments.processes)
    failed = ran = 0
    with made_sites() as sites:
        began = time.monotonic()
        for seed in range(arguments.seed, arguments.seed + arguments.seeds, arguments.every):
            if failed and arguments.until_failure:
                break
            result = run_seed(sites, seed, is_whole=arguments.trace)
            ran += 1
            say(
                f"seed {seed}: {result.hash} {result.steps} events, {result.statements} statements,"
                f" {result.seconds:.0f} s simulated, {len(result.faults)} faults"
            )
            if arguments.trace:
                say("\n".join(result.lines))
            if result.failure is not None:
                failed += 1
                say(f"  {result.failure}")
                if not arguments.no_shrink:
                    result = shrink(sites, result)
                say("\n".join(f"  fault: {fault}" for fault in result.faults))
                if not arguments.trace:
                    say("\n".join(f"    {line}" for line in result.lines[-60:]))
        seconds = time.monotonic() - began
        say(f"{ran} seeds in {seconds:.0f} s, {failed} failed")
    return int(failed > 0)


def _share(first: int, seeds: int, processes: int) -> int:
    """Have each process run every so manieth seed, with a server of its own, both on one processor.

    They wait for each other by turns, so that two processors would only hand over what the other has in its cache.
    """
    # The last of each option counts.
    given = [sys.executable, "-m", "tests.simulation", *sys.argv[1:], "--processes", "1"]
    all_processors = sorted(os.sched_getaffinity(0))
    running = []
    for place in range(processes):
        os.sched_setaffinity(0, {all_processors[place % len(all_processors)]})
        running.append(
            subprocess.Popen(
                [
                    *(*given, "--seed", str(first + place), "--seeds", str(seeds - place)),
                    *("--every", str(processes)),
                ]
            )
        )
    return max(process.wait() for process in running)


def run_seed(
    sites: Sites,
    seed: int,
    *,
    without: Collection[int] = (),
    faults: Sequence[Fault] | None = None,
    is_whole: bool = False,
) -> Result:
    """Run a seed in a process of its own."""
    sites.reset()
    reader, writer = os.pipe()
    # What is frozen is not written to by the fork, which ends before it has much to collect.
    gc.freeze()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(reader)
            gc.disable()
            # What a pool says of lost connections.
            logging.disable(logging.CRITICAL)
            here = Simulation(sites, seed, without=without, faults=faults, is_whole=is_whole).run()
            with os.fdopen(writer, "wb") as out:
                pickle.dump((here, sites.spares.used()), out)
            code = 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stderr.flush()
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader, "rb") as came:
        content = came.read()
    os.waitpid(child, 0)
    if not content:
        # What it has left of the sessions nobody knows.
        sites.close()
        sites.open()
        raise RuntimeError(f"the simulation itself has failed at seed {seed}")
    ran: tuple[Result, tuple[dict[str, int], list[tuple[str, int]]]] = pickle.loads(content)
    result, used = ran
    sites.spares.renew(*used)
    return result


def shrink(sites: Sites, failed: Result) -> Result:
    """Return the run of the same seed with the fewest faults that still fails: each is left out if it can be."""
    without: set[int] = set()
    fewest = failed
    for place in range(len(failed.faults)):
        result = run_seed(sites, failed.seed, without={*without, place})
        if result.failure is not None:
            without.add(place)
            fewest = result
    say(f"  with {len(fewest.faults)} of {len(failed.faults)} faults: {fewest.failure}")
    return fewest


def say(text: str) -> None:
    """Print."""
    print(text, flush=True)  # noqa: T201 - what it is for


if __name__ == "__main__":
    sys.exit(main())
