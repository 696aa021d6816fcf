"""The process that fuzzes one target: its name, then options of libFuzzer, the last one a folder for inputs."""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["pybroker.workers.transport.protocol"]):
    from tests.fuzz import targets


def main() -> None:
    """Fuzz until the options say that it is enough."""
    name, *options = sys.argv[1:]
    corpus = Path(options[-1])
    if corpus.is_dir():
        for place, data in enumerate(targets.beginnings(name)):
            (corpus / str(place)).write_bytes(data)
        options.append(f"-max_len={targets.LONGEST}")
    atheris.Setup([sys.argv[0], *options], targets.TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
