"""docs/frameworks.md as a reader types it, from an empty directory: what is sent commits with the rows."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session as ORMSession

import pybroker
from tests.shop import Session, Shop
from tests.system.test_docs import blocks

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import Database

PAGE = "docs/frameworks.md"

CALLS_FASTAPI = """
from fastapi.testclient import TestClient
from shop import app

with TestClient(app) as client:
    print([client.post(f"/orders/{number}").status_code for number in (1, 2000, 3)])
"""


@pytest.fixture
def reader(database: Database) -> Iterator[Session]:
    with database.connect() as connection:
        yield Session(connection)


def run(database: Database, folder: Path, *command: str) -> str:
    environment = {**os.environ, "PYBROKER_DATABASE_URL": database.url}
    ended = subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def typed(database: Database, folder: Path, **files: str) -> None:
    """Type these blocks of the page into files, and apply its definitions."""
    for name, mark in {"definitions": "definitions", **files}.items():
        (block,) = blocks(PAGE, mark)
        (folder / f"{name}.py").write_text(block)
    run(database, folder, "-m", "pybroker", "apply", "definitions.py")


def sent(reader: Session) -> list[bytes | None]:
    bodies: list[bytes | None] = []
    # Each order is a conversation group of its own.
    while received := reader.bodies("warehouse"):
        bodies += received
    return bodies


def test_sqlalchemy(database: Database, reader: Session, tmp_path: Path) -> None:
    typed(database, tmp_path, shop="sqlalchemy")
    assert run(database, tmp_path, "-W", "error", "shop.py") == "rolled back: IntegrityError\n"
    assert sent(reader) == [b'{"id":1}']
    assert reader.rows("select id from sqlalchemy_orders") == [(1,)]


def test_sqlalchemy_with_asyncio(database: Database, reader: Session, tmp_path: Path) -> None:
    typed(database, tmp_path, shop="sqlalchemy async")
    run(database, tmp_path, "-W", "error", "shop.py")
    assert sent(reader) == [b'{"id":3}']
    assert reader.rows("select id from async_orders") == [(3,)]


def test_fastapi(database: Database, reader: Session, tmp_path: Path) -> None:
    typed(database, tmp_path, shop="fastapi")
    (tmp_path / "calls.py").write_text(CALLS_FASTAPI)
    assert run(database, tmp_path, "calls.py") == "[202, 400, 202]\n"
    assert sent(reader) == [b'{"id":1}', b'{"id":3}']


@pytest.fixture
def shop(database: Database) -> Iterator[Shop]:
    shop = Shop(database)
    yield shop
    shop.close()


def psycopg_url(database: Database) -> str:
    return database.url.replace("postgresql://", "postgresql+psycopg://")


@pytest.mark.parametrize("source", ["connection", "session"])
def test_a_block_of_the_broker_commits_nothing_that_sqlalchemy_rolls_back(shop: Shop, source: str) -> None:
    engine = create_engine(psycopg_url(shop.database))
    dialog = shop.psql.dialog()
    with ORMSession(engine) as session, engine.connect() as connection:
        theirs = session if source == "session" else connection
        broker = pybroker.connect(theirs)
        mine = broker.conversation(dialog)
        for end in (theirs.rollback, theirs.commit, theirs.rollback):
            # The first statement of its transaction is the broker's.
            with broker.transaction():
                mine.send("order", b"in a block")
            end()
        mine.send("order", b"alone")
        theirs.commit()
        # Nothing is left open: the pool's reset would roll it back without a word.
        assert not theirs.in_transaction()
    engine.dispose()
    assert shop.psql.bodies("warehouse") == [b"in a block", b"alone"]


def test_a_block_that_fails_is_rolled_back_alone(shop: Shop) -> None:
    engine = create_engine(psycopg_url(shop.database))
    shop.psql.rows("create table bookings (id integer)")
    mine = shop.psql.dialog()
    with ORMSession(engine) as session:
        broker = pybroker.connect(session)
        with pytest.raises(ZeroDivisionError), broker.transaction():  # noqa: PT012 - the block is what raises
            broker.conversation(mine).send("order", b"lost")
            raise ZeroDivisionError
        session.execute(text("insert into bookings values (1)"))
        session.commit()
    engine.dispose()
    assert shop.psql.rows("select id from bookings") == [(1,)]
    assert shop.psql.bodies("warehouse") == []


def test_another_driver_or_object_is_refused_with_what_to_do() -> None:
    engine = create_engine("sqlite://")
    with (
        engine.connect() as connection,
        pytest.raises(TypeError, match="must begin with postgresql\\+psycopg://"),
    ):
        pybroker.connect(connection).begin_dialog("a", "b")
    with pytest.raises(TypeError, match="SQLAlchemy's Connection or Session, not Engine"):
        pybroker.connect(engine)  # type: ignore[arg-type]
    engine.dispose()


DJANGO = """
import os, sys
import django
from django.conf import settings
from django.core.management import execute_from_command_line
from psycopg.conninfo import conninfo_to_dict

database = conninfo_to_dict(os.environ["PYBROKER_DATABASE_URL"])
settings.configure(
    INSTALLED_APPS=["shop"],
    USE_TZ=True,
    TEST_RUNNER="shop.runner.Runner",
    DATABASES={"default": {
        "ENGINE": "django.db.backends.postgresql", "NAME": database["dbname"], "USER": database["user"],
        "HOST": database["host"], "PORT": database["port"],
    }},
)
if sys.argv[1] == "place":
    django.setup()
    from django.db import IntegrityError, transaction
    from shop.models import place

    place(1)
    try:
        with transaction.atomic():
            place(2)
            place(1)
    except IntegrityError:
        print("rolled back")
else:
    execute_from_command_line(sys.argv)
"""


DJANGO_TESTS = """
import pybroker
from django.db import connection
from django.test import TestCase
from shop.models import place


class One(TestCase):
    def test_place(self):
        place(1)
        (message,) = pybroker.connect(connection.connection).receive("warehouse")
        self.assertEqual(message.json(), {"id": 1})


class Another(One):
    pass
"""


def test_django(database: Database, reader: Session, tmp_path: Path) -> None:
    for folder in ("shop", "shop/migrations", "shop/management", "shop/management/commands"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").touch()
    for name in (
        "shop/migrations/0001_initial.py",
        "shop/models.py",
        "shop/apps.py",
        "shop/runner.py",
        "shop/management/commands/warehouse.py",
    ):
        (block,) = blocks(PAGE, f"django: {name}")
        (tmp_path / name).write_text(block)
    (definitions,) = blocks(PAGE, "definitions")
    (tmp_path / "definitions.py").write_text(definitions)
    (tmp_path / "manage.py").write_text(DJANGO)
    (tmp_path / "shop" / "tests.py").write_text(DJANGO_TESTS)
    run(database, tmp_path, "manage.py", "migrate")
    run(database, tmp_path, "manage.py", "test", "--parallel", "2")
    assert run(database, tmp_path, "manage.py", "makemigrations", "--check") == "No changes detected\n"
    assert run(database, tmp_path, "manage.py", "place") == "rolled back\n"
    assert reader.rows("select id from shop_order") == [(1,)]
    environment = {**os.environ, "PYBROKER_DATABASE_URL": database.url}
    command = subprocess.Popen(
        [sys.executable, "manage.py", "warehouse"],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert command.stdout is not None
        assert command.stdout.readline() == "order 1\n"
        command.terminate()
        assert command.wait() == 0
    finally:
        command.kill()
        command.communicate()
    assert sent(reader) == []
