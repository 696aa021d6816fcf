"""The images of docker/, built from a copy of the sources and from wheels that are fetched outside of the build."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
POSTGRES_IMAGE = os.environ.get("PYBROKER_TEST_POSTGRES_IMAGE", "postgres:18")
PYTHON_IMAGE = os.environ.get("PYBROKER_TEST_PYTHON_IMAGE", "python:3.13-slim")
PLATFORMS = ("manylinux2014", "manylinux_2_28")
_UPGRADED = """
ARG WORKER_IMAGE
FROM ${WORKER_IMAGE}
USER root
COPY wheels/pybroker-*.whl /tmp/
RUN PATH=${PATH#*:} python -m pip --python /opt/pybroker/bin/python install --no-index --no-deps --no-cache-dir /tmp/*.whl
USER 10001:10001
"""
_BUILD = ("docker", "build", "--quiet", "--build-arg")


@dataclass(frozen=True)
class Images:
    """Tags, and the build context that they came from."""

    worker: str
    database: str
    context: Path

    @property
    def tags(self) -> tuple[str, ...]:
        return self.worker, f"{self.worker}-build", self.database


def run(*command: str | Path, environment: dict[str, str] | None = None) -> str:
    """Run a command to its end; what it says is shown if it fails."""
    variables = {**os.environ, **(environment or {})}
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=False, env=variables
    )
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}"
    return done.stdout.strip()


def missing() -> str | None:
    """Say why no container can run here, or None: no engine, or one that has no base image and reaches no registry."""
    if shutil.which("docker") is None:
        return "docker is not installed"
    if said := _complaint("docker", "version"):
        return f"no Docker engine answers: {said}"
    for image in (POSTGRES_IMAGE, PYTHON_IMAGE):
        if _complaint("docker", "image", "inspect", image) and (
            said := _complaint("docker", "pull", "--quiet", image)
        ):
            return f"the Docker engine can't get {image}: {said}"
    return None


def _complaint(*command: str) -> str:
    """Return what a command says as it fails, or nothing."""
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if answer.returncode == 0 else answer.stderr.strip() or f"exit code {answer.returncode}"


def make_context(directory: Path, *, version: str | None = None) -> Path:
    """Copy the sources and gather the wheels; with a version, as a release of that number whose every function is new."""
    context = directory / "pybroker"
    # From a copy: setuptools leaves build/ behind, and takes from it what an earlier build left.
    hidden = shutil.ignore_patterns(".*", "build", "*.egg-info", "__pycache__", "tests", "docs")
    shutil.copytree(ROOT, context, symlinks=True, ignore=hidden)
    if version is not None:
        _rename(context, version)
    command = (sys.executable, "-m", "pip", "wheel", "-qq", "--no-deps", "--wheel-dir", context / "wheels")
    # The same bytes from the same sources, whatever the time: the engine's cache goes by them.
    run(*command, context, environment={"SOURCE_DATE_EPOCH": "1700000000"})
    shutil.rmtree(context / "build", ignore_errors=True)
    return context


def fetch_wheels(context: Path) -> None:
    """Fetch what the wheel of pybroker needs, for the Python of the base image."""
    version = run(
        *("docker", "run", "--rm", "--entrypoint", "python", PYTHON_IMAGE),
        *("-c", "import sys; print('%d.%d' % sys.version_info[:2])"),
    )
    (wheel,) = (context / "wheels").glob("pybroker-*.whl")
    run(
        *(sys.executable, "-m", "pip", "download", "-qq", "--only-binary=:all:", "--python-version", version),
        *(f"--platform={tag}_{platform.machine()}" for tag in PLATFORMS),
        *("--dest", wheel.parent, f"{wheel}[migrate,telemetry,worker]"),
    )


def build(context: Path, tag: str) -> Images:
    """Build both images."""
    worker, database = f"pybroker-worker-test:{tag}", f"pybroker-database-test:{tag}"
    _build_worker(context, worker)
    file = context / "docker/database.Dockerfile"
    run(*_BUILD, f"POSTGRES_IMAGE={POSTGRES_IMAGE}", "--file", file, "--tag", database, context)
    return Images(worker, database, context)


def build_upgraded(context: Path, worker: str, tag: str) -> None:
    """Build an image of this worker's with the context's pybroker in place of its own."""
    file = context / "upgraded.Dockerfile"
    file.write_text(_UPGRADED)
    run(*_BUILD, f"WORKER_IMAGE={worker}", "--file", file, "--tag", tag, context)


def _build_worker(context: Path, tag: str) -> None:
    build = (*_BUILD, f"PYTHON_IMAGE={PYTHON_IMAGE}", "--file", context / "docker/worker.Dockerfile")
    # The first stage gets a name as well: nameless, it would stay behind among other nameless images.
    run(*build, "--target", "build", "--tag", f"{tag}-build", context)
    run(*build, "--tag", tag, context)


def remove(*tags: str) -> None:
    run("docker", "image", "rm", "--force", *tags)


def _rename(context: Path, version: str) -> None:
    project = context / "pyproject.toml"
    lines = project.read_text().splitlines()
    project.write_text(
        "\n".join(f'version = "{version}"' if line.startswith("version = ") else line for line in lines)
    )
    for file in (context / "sql").glob("*/*.sql"):
        file.write_text(f"{file.read_text()}\n-- {version}\n")
