"""The process that fuzzes one target: its name, a file for the input at work, then options of libFuzzer.

The last option may be a folder for inputs.
"""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["pybroker.workers.transport.protocol"]):
    from tests.fuzz import targets
from tests.fuzz.limits import limited

# Of one input, by a processor.
SECONDS = 5
# By the clock, which is what the fuzzer goes by: it has no option for none.
_NEVER = 10**7


def main() -> None:
    """Fuzz until the options say that it is enough."""
    name, kept, *options = sys.argv[1:]
    corpus = Path(options[-1])
    if corpus.is_dir():
        for place, data in enumerate(targets.beginnings(name)):
            (corpus / str(place)).write_bytes(data)
        options.append(f"-max_len={targets.LONGEST}")
    parse = limited(targets.TARGETS[name], Path(kept), seconds=SECONDS, longest=targets.LONGEST)
    atheris.Setup([sys.argv[0], *options, f"-timeout={_NEVER}"], parse)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
