"""The images of docker/: the worker's holds the installed wheel, and neither of them runs as root."""

from __future__ import annotations

import json
import os
import tomllib
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.containers.images import ROOT, run

if TYPE_CHECKING:
    from tests.containers.images import Images

PACKAGE_OF = {
    "pybroker": "pybroker",
    "migrations": "pybroker/migrations",
    "sql": "pybroker/sql",
    "workers": "pybroker/workers",
}

pytestmark = [pytest.mark.containers, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def wheel(context: Path) -> Path:
    (built,) = (context / "wheels").glob("pybroker-*.whl")
    return built


def test_the_wheel_installs_pybroker_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    installed = {name.partition("/")[0] for name in names}
    assert {name for name in installed if not name.endswith(".dist-info")} == {"pybroker"}


def test_the_wheel_holds_every_module_and_every_sql_file(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        held = set(archive.namelist())
    expected = set()
    for folder, package in PACKAGE_OF.items():
        # os.walk follows no links: some in pybroker/ lead to the other folders.
        for directory, _, names in os.walk(ROOT / folder):
            inside = Path(package, Path(directory).relative_to(ROOT / folder))
            expected |= {
                (inside / name).as_posix() for name in names if name.endswith((".py", ".sql", "py.typed"))
            }
    assert expected <= held, sorted(expected - held)


def test_the_image_runs_the_command(built: Images) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert run("docker", "run", "--rm", built.worker, "--version") == f"pybroker {version}"


def test_the_image_is_not_root(built: Images) -> None:
    assert (
        json.loads(run("docker", "image", "inspect", "--format", "{{json .Config.User}}", built.worker))
        == "10001:10001"
    )
    assert run("docker", "run", "--rm", "--entrypoint", "id", built.worker, "-u") == "10001"


def test_the_image_keeps_neither_wheels_nor_a_writable_installation(built: Images) -> None:
    script = "ls -d /wheels /source 2>/dev/null; find /opt/pybroker -writable ! -type l"
    assert run("docker", "run", "--rm", "--entrypoint", "sh", built.worker, "-c", f"{script}; true") == ""


def test_a_stopped_worker_is_told_by_sigterm(built: Images) -> None:
    assert run("docker", "image", "inspect", "--format", "{{.Config.StopSignal}}", built.worker) == "SIGTERM"
