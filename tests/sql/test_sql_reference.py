"""Everything public explains itself in psql: what it is, each argument and column, errors that are so, examples that run."""

from __future__ import annotations

import re
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from pybroker.commands.certificate import certificate
from tests import missing

if find_spec("pglast") is None:
    missing.skip("pglast", "make .venv/.linters")

from tests import sql_checks
from tests.docs_site import errors, sql_reference

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.conftest import Database
    from tests.docs_site.errors import Refusal
    from tests.docs_site.sql_reference import Function, Relation

START = Path(sql_reference.__file__).with_name("start.sql")


@pytest.fixture(scope="module")
def catalogue() -> Mapping[int, Sequence[Refusal]]:
    """What sql/ refuses, by number."""
    return errors.by_number(errors.refusals(sql_checks.project_files()))


@pytest.fixture
def functions(database: Database) -> Sequence[Function]:
    """The public functions, as a migrated database has them."""
    with database.connect() as session:
        return sql_reference.functions(session)


@pytest.fixture
def relations(database: Database) -> Sequence[Relation]:
    """The public views and the type of RECEIVE's rows, as a migrated database has them."""
    with database.connect() as session:
        return sql_reference.relations(session)


def test_every_function_says_what_each_argument_is(functions: Sequence[Function]) -> None:
    assert len(functions) > 50
    assert [each.signature for each in functions if not each.purpose] == []
    assert {
        each.signature: set(each.names) ^ set(each.described)
        for each in functions
        if set(each.names) != set(each.described)
    } == {}


def test_every_function_says_whose_right_it_needs_and_shows_an_example(functions: Sequence[Function]) -> None:
    # Whoever sleeps may wake up.
    free = {"wake_up"}
    assert [
        each.signature
        for each in functions
        if "Example" not in each.sections
        or not (each.name in free or any(word.startswith("Rights") for word in each.sections))
    ] == []


def test_every_view_and_column_is_explained(relations: Sequence[Relation]) -> None:
    assert len(relations) > 30
    assert [each.name for each in relations if not each.comment] == []
    assert [
        f"{each.name}.{name}" for each in relations for name, (_, said) in each.columns.items() if not said
    ] == []


def test_no_explanation_repeats_the_name(
    functions: Sequence[Function], relations: Sequence[Relation]
) -> None:
    said = {f"{each.name}.{name}": text for each in functions for name, text in each.described.items()}
    said |= {f"{each.name}.{name}": text for each in relations for name, (_, text) in each.columns.items()}
    assert [place for place, text in said.items() if _says_nothing(place.partition(".")[2], text)] == []


def test_the_errors_named_are_those_that_can_be_raised(
    functions: Sequence[Function], catalogue: Mapping[int, Sequence[Refusal]]
) -> None:
    assert {
        each.signature: set(each.numbers) - set(catalogue)
        for each in functions
        if set(each.numbers) - set(catalogue)
    } == {}


def test_every_error_says_what_to_do(catalogue: Mapping[int, Sequence[Refusal]]) -> None:
    assert len(catalogue) > 60
    assert [
        number for number, all_of_it in catalogue.items() if not any(each.message for each in all_of_it)
    ] == []


def test_every_example_runs_in_psql(
    functions: Sequence[Function], database: Database, tmp_path: Path
) -> None:
    made = CliRunner().invoke(certificate, ["create", "far-worker", "--key-directory", str(tmp_path)])
    assert made.exit_code == 0, made.output
    script = f"{START.read_text()}create role clerk_of_examples;\n"
    for each in functions:
        script += f"\\echo {each.signature}\nbegin;\n{each.sections['Example']}\nrollback;\n"
    psql = subprocess.run(
        [
            database.server.binary("psql"),
            "-X",
            "-At",
            "-v",
            "VERBOSITY=sqlstate",
            "-v",
            "SHOW_CONTEXT=never",
            database.url,
        ],
        input=script.replace("'clerk'", "'clerk_of_examples'"),
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    with database.connect() as session:
        session.execute("drop role clerk_of_examples")
    # 0A000: this server was built without libxml.
    refused = [line for line in psql.stderr.splitlines() if "ERROR" in line and not line.endswith("0A000")]
    assert refused == []
    assert psql.stdout.count("ROLLBACK") == len(functions)


def test_the_pages_show_every_function_view_and_error(
    functions: Sequence[Function], relations: Sequence[Relation], catalogue: Mapping[int, Sequence[Refusal]]
) -> None:
    page = sql_reference.functions_page(functions, START.read_text())
    assert [each.name for each in functions if f"### broker.{each.name}\n" not in page] == []
    assert [
        each.name
        for each in relations
        if f"## broker.{each.name}\n" not in sql_reference.views_page(relations)
    ] == []
    table = sql_reference.errors_page(catalogue, functions)
    assert [number for number in catalogue if f"\n## {number}\n" not in table] == []


def _says_nothing(name: str, text: str) -> bool:
    words = set(re.findall(r"[a-z]+", text.lower())) - {"the", "a", "of", "its", "is", "whether"}
    return words <= set(name.lower().split("_"))
