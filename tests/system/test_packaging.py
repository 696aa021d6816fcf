"""What a release is made of: real files, all of them, and nothing beside `pybroker` in site-packages."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pybroker.commands import EXTRAS

if TYPE_CHECKING:
    from tests.conftest import Database

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


# Runs a program as if only what `pip install pybroker` brings were installed.
CLIENT_ALONE = """
import sys
from importlib.metadata import packages_distributions, requires
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

brought, rest = set(), ["pybroker"]
while rest:
    name = canonicalize_name(rest.pop())
    brought.add(name)
    for each in map(Requirement, requires(name) or ()):
        wanted = {"binary", "pool"} if name == "psycopg" else {""}
        if any(each.marker is None or each.marker.evaluate({"extra": extra}) for extra in wanted):
            rest += {canonicalize_name(each.name)} - brought
brought |= {"setuptools", "packaging"}
# Of what is installed here, what the client does not bring.
beyond = {
    module for module, owners in packages_distributions().items()
    if brought.isdisjoint(map(canonicalize_name, owners))
}

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in beyond:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

for name in [each for each in sys.modules if each.partition(".")[0] in beyond - {"_distutils_hack"}]:
    sys.exit(f"{name} is there already")
sys.meta_path.insert(0, Missing())
"""


def without_extras(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", CLIENT_ALONE + program, *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_client_needs_no_extra(database: Database) -> None:
    program = f"""
import pybroker

with pybroker.connect({database.url!r}) as broker:
    broker.apply([pybroker.Queue("q"), pybroker.Service("s", queue="q", contracts=["DEFAULT"])])
    dialog = broker.begin_dialog("s", "s")
    dialog.send("DEFAULT", "hello")
    print(broker.receive("q")[0].message_body.decode())
"""
    done = without_extras(program)
    assert (done.returncode, done.stdout) == (0, "hello\n"), done.stderr


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        ("worker --database-url postgresql://a/b", "worker"),
        ("migrate --database-url postgresql://a/b", "migrate"),
        ("certificate create far --key-directory .", "worker"),
        ("activate --database-url postgresql://a/b --config pyproject.toml", "worker"),
        ("console --database-url postgresql://a/b", "console"),
        ("tsql check pyproject.toml", "tsql"),
        ("tsql translate pyproject.toml", "tsql"),
        ("tsql run pyproject.toml --database-url postgresql://a/b", "tsql"),
        ("tsql shell --database-url postgresql://a/b", "tsql"),
        ("demo", "embedded,worker"),
        ("throughput", "spark,embedded"),
    ],
)
def test_a_command_names_the_extra_that_it_needs(command: str, extra: str) -> None:
    program = "from pybroker.commands import main; main()"
    done = without_extras(program, *command.split())
    assert done.returncode in (1, 2)
    assert f'pip install "pybroker[{extra}]"' in done.stderr, done.stderr
    assert "Traceback" not in done.stderr


def test_every_extra_that_a_command_names_is_there() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    assert set(EXTRAS.values()) <= set(extras)
    assert {name for name in extras if name != "all"} == set(re.findall(r"\w+", extras["all"][0])) - {
        "pybroker"
    }
    base = {re.split(r"[^\w-]", each)[0] for each in project["dependencies"]}
    assert base.isdisjoint(EXTRAS)
