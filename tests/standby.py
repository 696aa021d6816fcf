"""A streaming standby of a site's server, with a worker beside it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from pybroker.embedded import EmbeddedServer, EmbeddedServerError
from tests.brokers import Site
from tests.conftest import SETTINGS
from tests.patience import NotStartedError, until

if TYPE_CHECKING:
    from collections.abc import Iterator


class Standby(Site):
    """The same site on another server, which follows the first one until it is promoted."""

    def __init__(self, principal: Site, server: EmbeddedServer) -> None:
        self.name = principal.name
        self.server = server
        self.keys = principal.keys
        self.port = principal.port
        self.worker = None
        self.log = principal.log.with_name(f"{principal.name}_standby.log")
        self.url = server.url(self.name)
        self.psql = self.session()

    def promote(self) -> None:
        assert self.psql.value("select pg_promote()")


@contextmanager
def standby_of(principal: Site) -> Iterator[Standby]:
    """Yield a standby that has all that its principal has, and follows it."""
    server = principal.server
    try:
        pg_basebackup = server.binary("pg_basebackup")
    except EmbeddedServerError:
        pytest.skip(f"PostgreSQL {server.version} comes without pg_basebackup here")
    # Not in pytest's directory: as root the server's account does not get there.
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o711)
        copy = Path(directory) / "standby"
        run = [
            pg_basebackup,
            "--pgdata",
            copy,
            "--write-recovery-conf",
            "--checkpoint",
            "fast",
        ]
        subprocess.run([*run, "--dbname", server.url("postgres")], check=True, capture_output=True)
        if os.getuid() == 0:
            owner = server.data_directory.stat()
            for path in (copy, *copy.rglob("*")):
                shutil.chown(path, owner.st_uid, owner.st_gid)
        with EmbeddedServer(version=server.version, data_directory=copy, settings=SETTINGS) as follower:
            standby = Standby(principal, follower)
            try:
                yield standby
            finally:
                standby.close()


def follow_synchronously(principal: Site) -> None:
    """Have no commit of the principal return before its standby has it."""
    with psycopg.connect(principal.server.url("postgres"), autocommit=True) as session:
        session.execute("alter system set synchronous_standby_names = '*'")
        session.execute("select pg_reload_conf()")
    followers = "select count(*) from pg_stat_replication where sync_state = 'sync'"
    until(lambda: principal.psql.value(followers) == 1, error=NotStartedError)


def stop_following(standby: Standby) -> None:
    """Leave the standby behind from now on."""
    with psycopg.connect(standby.server.url("postgres"), autocommit=True) as session:
        session.execute("alter system set primary_conninfo = ''")
        session.execute("select pg_reload_conf()")
