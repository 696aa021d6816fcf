"""scripts.toml: the sets of public scripts in their order, what each shows, and the edits of a few."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

AS_SQL_SERVER, NOTHING_SHOWN, DIFFERS, STOPS = "as SQL Server", "nothing shown", "differs", "stops"


@dataclass(frozen=True)
class Script:
    """One file of a repository."""

    path: str
    # AS_SQL_SERVER, NOTHING_SHOWN, or DIFFERS or STOPS with a colon and why.
    verdict: str
    # The row counts in their order; "?" for one that depends on how fast activation is.
    rows: str = ""
    # Which of the set's servers it runs on.
    server: int = 0

    def stops(self) -> bool:
        return self.verdict.startswith(STOPS)


@dataclass(frozen=True)
class Edit:
    """A change of scripts before they run, such as a certificate's date."""

    # A regular expression that the script's repository and path match.
    files: str
    find: str
    replace: str
    why: str


@dataclass(frozen=True)
class ScriptSet:
    """Scripts that belong together, on databases of their own."""

    name: str
    repository: str
    scripts: tuple[Script, ...]
    databases: tuple[str, ...] = ()
    # Of scripts without USE: one of the databases, or the worker's home.
    default: str = ""
    encoding: str = "utf-8"
    # The files of a project, whose tool finds the order: what fails is run again behind the others.
    again: bool = False
    # Servers exchange certificates: all scripts up to their first FROM FILE, then the rest of each.
    two_passes: bool = False
    # Conversations and messages at the end, as `Instance.left` shows them; None: they depend on speed.
    left: tuple[str, ...] | None = None

    @classmethod
    def of(cls, entry: dict[str, Any]) -> Self:
        scripts = tuple(Script(**one) for one in entry.pop("scripts"))
        lists = {name: tuple(entry.pop(name)) for name in ("databases", "left") if name in entry}
        return cls(scripts=scripts, **lists, **entry)


@dataclass(frozen=True)
class Table:
    sets: tuple[ScriptSet, ...]
    edits: tuple[Edit, ...]

    @classmethod
    def read(cls, path: Path) -> Self:
        content = tomllib.loads(path.read_text())
        return cls(
            tuple(ScriptSet.of(entry) for entry in content["set"]),
            tuple(Edit(**entry) for entry in content.get("edit", ())),
        )

    def edited(self, file: str, text: str) -> str:
        for edit in self.edits:
            if re.search(edit.files, file):
                text = re.sub(edit.find, edit.replace, text)
        return text
