"""What becomes of each statement of a script: it runs, with a note or without, or it is refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pybroker.tsql.parsing import parse
from pybroker.tsql.printing import print_statement
from pybroker.tsql.source import Position, ScriptError, batches, decode
from pybroker.tsql.translation import translate

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Finding:
    """One statement; `sql` is None where it is refused, and `notes` then say why."""

    file: str
    position: Position
    statement: str | None
    sql: str | None
    notes: tuple[str, ...]

    @property
    def place(self) -> str:
        """Return file:line:column."""
        return f"{self.file}:{self.position.line}:{self.position.column}"


def findings(path: Path) -> Iterator[Finding]:
    """Read a script; behind what is not understood it goes on with the next batch."""
    file = str(path)
    try:
        for batch in batches(decode(path.read_bytes())):
            try:
                statements = parse(batch)
            except ScriptError as error:
                yield Finding(file, error.position, None, None, (str(error),))
                continue
            for statement in statements:
                written = print_statement(statement)
                try:
                    done = translate(statement)
                except ScriptError as error:
                    yield Finding(file, error.position, written, None, (str(error),))
                else:
                    yield Finding(file, statement.position, written, done.sql, done.notes)
    except ScriptError as error:
        yield Finding(file, error.position, None, None, (str(error),))
