"""Secrets stay secret: passwords in no message, keys where nobody else can put or read them."""

from __future__ import annotations

import subprocess
import sys
import traceback

import psycopg
import pytest

import pybroker
from pybroker.connection_string import checked
from pybroker.migrations import migrate
from pybroker.workers.database import Database, ServingError
from tests.activated import CLI, PATIENCE

# Each holds a password with "hidden" in it, where libpq, or a later message, would quote what it takes for
# another part of the connection string.
MALFORMED = [
    "postgresql://clerk:hid%zzden@db/shop",
    "postgresql://clerk:hidden%@db/shop",
    "postgresql://clerk:hidden%00@db/shop",
    "postgresql://clerk:my hidden@db/shop",
    "mysql://clerk:hidden@db/shop",
    "postgresql//clerk:hidden@db/shop",
    "postgresql://clerk:hidden@[::1/shop",
    "postgresql://clerk:hidden@[::1]x/shop",
    "postgresql://clerk:my@hidden@db/shop",
    "postgresql://clerk:hidden/word@db/shop",
    "postgresql://127.0.0.1:12/hidden@db/shop",
    "host=db password=my hidden",
    "host=db password='hidden",
    "host=db hidden=word",
]


@pytest.mark.parametrize("url", MALFORMED)
def test_a_malformed_url_is_refused_without_a_word_of_its_password(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def shows_nothing(error: BaseException) -> None:
        told = "".join(traceback.format_exception(error))
        assert "hidden" not in told
        assert "zzden" not in told
        assert "percent-encode" in told

    for attempt in (pybroker.connect, pybroker.App, Database, migrate):
        with pytest.raises((psycopg.ProgrammingError, ServingError)) as refused:
            attempt(url)
        shows_nothing(refused.value)
    monkeypatch.setenv("PYBROKER_DATABASE_URL", url)
    for arguments, code in ((["status"], 2), (["worker", "--help"], 0)):
        process = subprocess.run(
            [sys.executable, "-c", CLI, "--debug", *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )
        assert process.returncode == code, process
        assert "hidden" not in process.stdout + process.stderr
        assert "zzden" not in process.stdout + process.stderr


def test_an_unusual_url_is_taken_as_libpq_takes_it() -> None:
    for url in (
        "postgresql:///shop?host=/run/pg",
        "postgresql://clerk:hid%40%2Fden@[::1]:5433,db.example/shop%40home?sslmode=disable",
        "postgresql://clerk@%40abstract/shop",
        "postgresql://clerk:12?hid#den@db/shop",
        "postgresql:///shop@home",
        "host=db password='a b' dbname=shop@home",
        "",
    ):
        assert checked(url) == url
