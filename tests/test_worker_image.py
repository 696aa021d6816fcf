"""The image of docker/worker.Dockerfile holds the installed wheel, and runs it without root."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import tomllib
import uuid
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
PYTHON_IMAGE = os.environ.get("PYBROKER_TEST_PYTHON_IMAGE", "python:3.13-slim")
PACKAGE_OF = {
    "pybroker": "pybroker",
    "migrations": "pybroker/migrations",
    "sql": "pybroker/sql",
    "workers": "pybroker/workers",
}

pytestmark = pytest.mark.containers


def run(*command: str | Path) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}"
    return done.stdout.strip()


def missing_engine() -> str | None:
    if shutil.which("docker") is None:
        return "docker is not installed"
    answer = subprocess.run(["docker", "version"], capture_output=True, text=True, check=False)
    return None if answer.returncode == 0 else f"no Docker engine answers: {answer.stderr.strip()}"


@pytest.fixture(scope="module")
def engine() -> None:
    if reason := missing_engine():
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # From a copy: setuptools leaves build/ behind, and takes from it what an earlier build left.
    source = tmp_path_factory.mktemp("source") / "pybroker"
    hidden = shutil.ignore_patterns(".*", "build", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT, source, symlinks=True, ignore=hidden)
    folder = tmp_path_factory.mktemp("context") / "wheels"
    run(sys.executable, "-m", "pip", "wheel", "-qq", "--no-deps", "--wheel-dir", folder, source)
    (built,) = folder.iterdir()
    return built


@pytest.fixture(scope="module")
def image(engine: None, wheel: Path) -> Iterator[str]:
    version = run(
        *("docker", "run", "--rm", "--entrypoint", "python", PYTHON_IMAGE),
        *("-c", "import sys; print('%d.%d' % sys.version_info[:2])"),
    )
    platforms = [f"--platform={tag}_{platform.machine()}" for tag in ("manylinux2014", "manylinux_2_28")]
    run(
        *(sys.executable, "-m", "pip", "download", "-qq", "--only-binary=:all:"),
        *("--python-version", version, *platforms, "--dest", wheel.parent, wheel),
    )
    tag = f"pybroker-worker-test:{uuid.uuid4().hex}"
    build = (
        *("docker", "build", "--quiet", "--build-arg", f"PYTHON_IMAGE={PYTHON_IMAGE}"),
        *("--file", ROOT / "docker/worker.Dockerfile"),
    )
    # The first stage gets a name as well: nameless, it would stay behind among other nameless images.
    run(*build, "--target", "build", "--tag", f"{tag}-build", wheel.parent.parent)
    run(*build, "--tag", tag, wheel.parent.parent)
    yield tag
    run("docker", "image", "rm", "--force", tag, f"{tag}-build")


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
        # os.walk follows no links: `make` puts some into pybroker/ that lead back to the other folders.
        for directory, _, names in os.walk(ROOT / folder):
            inside = Path(package, Path(directory).relative_to(ROOT / folder))
            expected |= {
                (inside / name).as_posix() for name in names if name.endswith((".py", ".sql", "py.typed"))
            }
    assert expected <= held, sorted(expected - held)


def test_the_image_runs_the_command(image: str) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert run("docker", "run", "--rm", image, "--version") == f"pybroker {version}"


def test_the_image_is_not_root(image: str) -> None:
    assert (
        json.loads(run("docker", "image", "inspect", "--format", "{{json .Config.User}}", image))
        == "10001:10001"
    )
    assert run("docker", "run", "--rm", "--entrypoint", "id", image, "-u") == "10001"


def test_the_image_keeps_neither_wheels_nor_a_writable_installation(image: str) -> None:
    script = "ls -d /wheels 2>/dev/null; find /opt/pybroker -writable ! -type l"
    assert run("docker", "run", "--rm", "--entrypoint", "sh", image, "-c", f"{script}; true") == ""


def test_a_stopped_worker_is_told_by_sigterm(image: str) -> None:
    assert run("docker", "image", "inspect", "--format", "{{.Config.StopSignal}}", image) == "SIGTERM"
