"""What a release is made of: real files, all of them, and nothing beside `pybroker` in site-packages."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("migrations", "sql", "workers")
BUILD = "import sys; from setuptools import build_meta; print(getattr(build_meta, sys.argv[1])(sys.argv[2]))"


def modules_and_sql(folder: Path) -> set[str]:
    # rglob follows no links: those in pybroker/ are the folders that the test walks by themselves.
    return {
        path.relative_to(folder).as_posix()
        for pattern in ("*.py", "*.sql")
        for path in folder.rglob(pattern)
        if not path.is_symlink()
    }


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what a clone holds of the package, as setuptools leaves folders behind where it builds."""
    copy = tmp_path_factory.mktemp("packaging") / "pybroker"
    copy.mkdir()
    unwanted = shutil.ignore_patterns("__pycache__")
    for folder in ("pybroker", *FOLDERS):
        shutil.copytree(ROOT / folder, copy / folder, symlinks=True, ignore=unwanted)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    return copy


def built(sources: Path, what: str) -> Path:
    target = sources.parent / what
    target.mkdir(exist_ok=True)
    command = (sys.executable, "-c", BUILD, f"build_{what}", target)
    done = subprocess.run(command, cwd=sources, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return target / done.stdout.split()[-1]


def expected() -> set[str]:
    names = {f"pybroker/{name}" for name in modules_and_sql(ROOT / "pybroker")}
    for folder in FOLDERS:
        names |= {f"pybroker/{folder}/{name}" for name in modules_and_sql(ROOT / folder)}
    return names


def test_the_wheel_holds_every_file_and_only_pybroker(sources: Path) -> None:
    with zipfile.ZipFile(built(sources, "wheel")) as wheel:
        held = set(wheel.namelist())
    assert expected() <= held, sorted(expected() - held)
    tops = {name.partition("/")[0] for name in held}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"pybroker"}


def test_the_sdist_holds_files_where_a_clone_has_links(sources: Path) -> None:
    with tarfile.open(built(sources, "sdist")) as sdist:
        members = sdist.getmembers()
    links = [member.name for member in members if not (member.isfile() or member.isdir())]
    assert links == []
    held = {member.name.partition("/")[2] for member in members}
    assert expected() <= held, sorted(expected() - held)


def test_a_clone_has_each_folder_under_its_import_name() -> None:
    git = ("git", "ls-files", "--stage", "pybroker")
    done = subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("This is no clone.")
    kept = {line.split()[-1] for line in done.stdout.splitlines() if line.startswith("120000 ")}
    assert kept == {f"pybroker/{folder}" for folder in FOLDERS}
