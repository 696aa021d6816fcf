"""python -m tests.specs [--nightly] [name ...]: have TLC check the specifications, and print how far it went."""

from __future__ import annotations

import argparse
import os
import sys
import time

from tests.specs import tlc


def main() -> int:
    """Return 1 if a specification does not hold, or a mistake is not found."""
    parser = argparse.ArgumentParser(prog="python -m tests.specs", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help="specifications; all without one")
    parser.add_argument("--nightly", action="store_true", help="the larger bounds, which take minutes")
    arguments = parser.parse_args()
    if (reason := tlc.missing()) is not None:
        print(reason)  # noqa: T201 - what it is for
        return 1
    failures = 0
    for name in arguments.names or tlc.names():
        for bounds_of in ["", *(tlc.nightly(name) if arguments.nightly else ())]:
            begun = time.monotonic()
            outcome = tlc.check(name, bounds_of=bounds_of, workers=os.cpu_count() or 1)
            failures += outcome.broken is not None
            said = "holds" if outcome.broken is None else f"{outcome.broken} is broken:\n{outcome.text}"
            seconds = time.monotonic() - begun
            went = f"{outcome.states} states, depth {outcome.depth}, {seconds:.0f} s"
            print(f"{name}{bounds_of}: {went}: {said}", flush=True)  # noqa: T201
            for mutant in tlc.mutants(name, bounds_of):
                found = tlc.check(name, mutant=mutant, bounds_of=bounds_of).broken
                failures += found is None
                print(f'  "{mutant}": {found or "NOT FOUND"}', flush=True)  # noqa: T201
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
