"""Whether a type checker knows the type of all that is public: pyright's own count of it.

    python -m tests.public_types

Not public are the packages of the commands, the console, the worker and the like: a program imports none of
them. Fails for each symbol whose type pyright does not know, or that another checker may take for another.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

ROOT = Path(__file__).resolve().parent.parent
INTERNAL = (
    "commands",
    "console",
    "demo",
    "diagnosis",
    "migrations.versions",
    "throughput",
    "tsql",
    "workers",
)
# A base class is pyspark's, which has no known type.
EXTERNAL = (
    "pybroker.spark.BrokerDataSource",
    "pybroker.spark.data_source.BrokerDataSource",
    "pybroker.spark.data_source.BrokerDataSource.streamReader",
    "pybroker.spark.source.StreamReader",
)


def counted() -> list[dict[str, Any]]:
    """Return what pyright says of each symbol of the package."""
    commands = Path(sys.executable).parent
    ran = subprocess.run(
        [commands / "pyright", "--verifytypes", "pybroker", "--ignoreexternal", "--outputjson"],
        cwd=ROOT,
        env={**os.environ, "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        check=False,
    )
    symbols: list[dict[str, Any]] = msgspec.json.decode(ran.stdout)["typeCompleteness"]["symbols"]
    return symbols


def is_public(name: str) -> bool:
    """Whether a symbol is one that a program may meet."""
    return not name.startswith(tuple(f"pybroker.{package}." for package in INTERNAL)) and name not in EXTERNAL


def main() -> int:
    """Print each symbol without a known type, and return how many there are."""
    public = [symbol for symbol in counted() if is_public(symbol["name"])]
    if not any(symbol["name"] == "pybroker.connect" for symbol in public):
        raise LookupError("pyright has not found the package pybroker.")
    unknown = [each for each in public if not each["isTypeKnown"] or each["isTypeAmbiguous"]]
    known = 100 * (1 - len(unknown) / len(public))
    lines = [
        *(f"{each['name']}: {' '.join(why['message'] for why in each['diagnostics'])}" for each in unknown),
        f"Public types: {len(public)} symbols, {known:.1f} % of known type",
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    return len(unknown)


if __name__ == "__main__":
    sys.exit(min(main(), 1))
