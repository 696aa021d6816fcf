"""The functions and views of pybroker, one file each, in the order in which they are applied."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from .letters import with_letters

# Each calls and reads those before it, and none after it: lint checks that. A view, and a function with an
# SQL-standard body, must also be applied after what it names; PL/pgSQL looks names up when it runs.
CHAPTERS = (
    "foundation",
    "catalog",
    "dialog",
    "queue",
    "poison",
    "validation",
    "sending",
    "wake_ups",
    "conversation",
    "delivery",
    "activation",
    "events",
    "housekeeping",
    "definition",
    "security",
    "monitoring",
    "diagnosis",
)


@dataclass(frozen=True)
class SqlFile:
    """One file below ``sql/``: its path there, its text with letters, and that text's SHA-256 as hex."""

    path: str
    text: str
    sha256: str


@cache
def sql_files() -> tuple[SqlFile, ...]:
    """Return every file in the order of its chapter and name."""
    here = Path(__file__).parent
    files = []
    for chapter in CHAPTERS:
        for path in sorted((here / chapter).glob("*.sql")):
            text = with_letters(path.read_text(encoding="utf-8"))
            digest = hashlib.sha256(text.encode()).hexdigest()
            files.append(SqlFile(f"{chapter}/{path.name}", text, digest))
    return tuple(files)
