"""Which database a name of a script stands for."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pybroker.tsql.administration import tree

if TYPE_CHECKING:
    from pybroker.tsql.steps import Step

_QUOTED = re.compile(r"'(?:[^']|'')*+'|\"(?:[^\"]|\"\")*+\"|--[^\n]*")
_XML = re.compile(r"\bxml\b|\bxml\w+\(|\bxpath\(", re.IGNORECASE)
# What SQL Server keeps for all of its databases is in the worker's home database.
HOME_NAMES = ("master", "msdb")


@dataclass(slots=True)
class Databases:
    """The databases that scripts may use, by their names in any case.

    Attributes:
        server: where the databases are that have no URL of their own, and where CREATE DATABASE makes them.
        may_drop: whether DROP DATABASE may run.
    """

    server: str | None = None
    may_drop: bool = False
    _urls: dict[str, str] = field(default_factory=dict)
    _names: dict[str, str] = field(default_factory=dict)
    _on_server: dict[str, str] = field(default_factory=dict)

    def look_at_server(self) -> None:
        """Learn which databases the server has.

        Raises:
            psycopg.Error: it can't be reached.
        """
        if self.server is None:
            return
        with psycopg.connect(self.server, application_name="pybroker tsql") as connection:
            found = connection.execute(
                "select datname from pg_catalog.pg_database where not datistemplate and datallowconn"
            )
            self._on_server = {str(name).casefold(): str(name) for (name,) in found}

    def add(self, name: str, url: str) -> None:
        """Give a name its database; the first one that is given is the home database too."""
        self._urls[name.casefold()] = url
        self._names.setdefault(name.casefold(), name)

    def remove(self, name: str) -> None:
        """Forget a database that is dropped; its URL stays, so that CREATE DATABASE finds it."""
        self._names.pop(name.casefold(), None)
        self._on_server.pop(name.casefold(), None)

    @property
    def names(self) -> list[str]:
        """Return the names that were given, in their order, and those of the server's databases."""
        others = [name for key, name in self._on_server.items() if key not in self._names]
        return [*self._names.values(), *sorted(others)]

    def url(self, name: str) -> str | None:
        """Return where a database is; None if nobody said."""
        key = name.casefold()
        found = self._urls.get(key)
        if found is None and key in HOME_NAMES:
            return next(iter(self._urls.values()), None)
        if found is None and self.server is not None and key in self._on_server:
            return make_conninfo(self.server, dbname=self._on_server[key])
        return found

    def url_to_make(self, name: str) -> str | None:
        """Return where CREATE DATABASE finds or makes a database; None if nobody said."""
        known = self.url(name)
        if known is not None or self.server is None:
            return known
        return make_conninfo(self.server, dbname=name)

    @property
    def first(self) -> str:
        """Return where a session begins: the only database, or master if there are several."""
        named = [name for key, name in self._names.items() if key not in HOME_NAMES]
        return named[0] if len(named) == 1 else "master"


def name_of(url: str) -> str:
    """Return the name of a URL's database."""
    given = conninfo_to_dict(url)
    return str(given.get("dbname") or given.get("user") or "postgres")


class Foresight:
    """Looks for what can't run while nothing has run yet: databases that nobody named, and drops."""

    def __init__(self, databases: Databases, *, has_key_directory: bool, single_transaction: bool) -> None:
        self._databases = databases
        self._has_key_directory = has_key_directory
        self._is_single = single_transaction
        self._made: set[str] = set()
        self._current = databases.first
        # Whether a database's server reads XML.
        self._xml: dict[str, bool] = {}

    def refusal(self, step: Step) -> str | None:
        """Return why a step can't run, and what to give; None if it can, as far as it is known."""
        match step.statement:
            case tree.Use(database=name):
                found = self._use(name)
            case tree.AlterDatabase(database=name):
                found = None if name.upper() == "CURRENT" else self._unknown(name)
            case tree.CreateDatabase(database=name):
                found = self._create(name)
            case tree.DropDatabase(databases=names):
                found = self._drop(names)
            case tree.MasterKey() | tree.Certificate(file=None, binary=None):
                found = self._needs_keys()
            case tree.Certificate(private_key=key) | tree.BackupCertificate(private_key=key) if key:
                found = self._needs_keys()
            case _:
                found = self._needs_xml(step)
        return found

    def _needs_xml(self, step: Step) -> str | None:
        if _XML.search(_QUOTED.sub("", step.sql or "")) is None or self._has_xml(self._current):
            return None
        return "XML needs a server that was built with libxml, and this one was not: write nvarchar(max)"

    def _has_xml(self, name: str) -> bool:
        url = self._databases.url(name)
        if url is None:
            return True
        if url not in self._xml:
            self._xml[url] = True
            # What can't be reached is told of when it is used.
            with suppress(psycopg.OperationalError), psycopg.connect(url, autocommit=True) as connection:
                try:
                    connection.execute("select '<a/>'::xml")
                except psycopg.errors.FeatureNotSupported:
                    self._xml[url] = False
        return self._xml[url]

    def _use(self, name: str) -> str | None:
        if self._is_single and self._database(name) != self._database(self._current):
            return "--single-transaction is of one database: leave it out, or run this script by itself"
        self._current = name
        return self._unknown(name)

    def _database(self, name: str) -> str:
        return self._databases.url(name) or name.casefold()

    def _unknown(self, name: str) -> str | None:
        if name.casefold() in self._made or self._databases.url(name) is not None:
            return None
        return f"the database \"{name}\" is not known: give --database '{name}=URL'"

    def _create(self, name: str) -> str | None:
        if self._is_single:
            return "a database can't be made in a transaction: leave --single-transaction out"
        if self._databases.url_to_make(name) is None:
            return f"the database \"{name}\" is not known: give --database '{name}=URL' or --server URL"
        self._made.add(name.casefold())
        return None

    def _drop(self, names: tuple[str, ...]) -> str | None:
        if not self._databases.may_drop:
            return f"DROP DATABASE removes {', '.join(names)} for good: give --allow-drop"
        if self._is_single:
            return "a database can't be dropped in a transaction: leave --single-transaction out"
        if any(name.casefold() in (*HOME_NAMES, "model", "tempdb") for name in names):
            return "a system database can't be dropped"
        return None

    def _needs_keys(self) -> str | None:
        return None if self._has_key_directory else "private keys are files: give --key-directory"
