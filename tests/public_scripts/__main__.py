"""python -m tests.public_scripts DIRECTORY: run public T-SQL scripts, and compare them with scripts.toml.

DIRECTORY has checkouts that the caller made, each as owner/name: docs/tsql.md names the repositories. A set runs on
databases of its own, with a worker. The exit code is 1 where one departs from the table. Nothing is fetched.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from pybroker.embedded import EmbeddedServer
from tests.public_scripts.running import departures, run_set
from tests.public_scripts.table import AS_SQL_SERVER, DIFFERS, NOTHING_SHOWN, STOPS, Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.public_scripts.running import Shown
    from tests.public_scripts.table import Script, ScriptSet

TABLE = Path(__file__).with_name("scripts.toml")


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 1 where a set departs from the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.public_scripts", description=__doc__)
    parser.add_argument("directory", type=Path, help="checkouts, each as owner/name")
    parser.add_argument("--only", default="", help="sets whose names match this regular expression")
    parser.add_argument("--version", type=int, default=15, help="of PostgreSQL, with libxml (default: 15)")
    parser.add_argument("--output", type=Path, help="keep there what each script prints")
    given = parser.parse_args(arguments)
    if not given.directory.is_dir():
        parser.error(f"{given.directory} is no directory: make one, with a checkout of each repository in it")
    table = Table.read(TABLE)
    departed = 0
    counts = dict.fromkeys((AS_SQL_SERVER, NOTHING_SHOWN, DIFFERS, STOPS), 0)
    with ExitStack() as stack:
        servers: dict[int, EmbeddedServer] = {}

        def server(number: int) -> EmbeddedServer:
            if number not in servers:
                servers[number] = stack.enter_context(
                    EmbeddedServer(version=given.version, listen=True, settings={"fsync": "off"})
                )
            return servers[number]

        for scripts in table.sets:
            if not re.search(given.only, scripts.name):
                continue
            if not (given.directory / scripts.repository).is_dir():
                _say(f"{scripts.name}: no checkout of {scripts.repository}")
                continue
            with tempfile.TemporaryDirectory() as folder:
                shown, left = run_set(table, scripts, given.directory, Path(folder) / "set", server)
            lines = list(departures(scripts, shown, left))
            departed += len(lines)
            for script in shown:
                counts[script.verdict.partition(":")[0]] += 1
            if given.output:
                _keep(given.output, scripts, shown, left)
            _say("\n  ".join((f"{scripts.name}: {len(shown)} scripts", *lines)))
    _say(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    return 1 if departed else 0


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - what it is for


def _keep(output: Path, scripts: ScriptSet, shown: dict[Script, Shown], left: list[str]) -> None:
    for script, now in shown.items():
        kept = output / scripts.repository / f"{script.path}.txt"
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(now.output)
    (output / f"{re.sub('[^A-Za-z0-9]+', '-', scripts.name)}.left.txt").write_text("\n".join(left))


if __name__ == "__main__":
    sys.exit(main())
