"""What `make` installs is what was tested: a library's next release must not turn somebody's first try red."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]


def _asked_for() -> Iterator[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    for extra in (project["project"]["dependencies"], *project["project"]["optional-dependencies"].values()):
        yield from map(Requirement, extra)
    for group in project["dependency-groups"].values():
        yield from map(Requirement, group)


def test_each_library_that_is_asked_for_has_a_tested_version() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = {canonicalize_name(pin.name): pin for pin in map(Requirement, lines[1:])}
    assert len(pins) == len(lines) - 1, "a library has two versions"
    for pin in pins.values():
        assert [each.operator for each in pin.specifier] == ["=="], (
            f"{pin} is no version; run make constraints"
        )
    for asked in _asked_for():
        name = canonicalize_name(asked.name)
        if name != "pybroker":
            assert name in pins, f"{asked} has no version in constraints.txt; run make constraints"
            (version,) = (each.version for each in pins[name].specifier)
            assert version in asked.specifier, f"{asked} rules out the tested version {version}"
