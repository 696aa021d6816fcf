"""A script read whole: what becomes of each statement, and where it stands in its file."""

from __future__ import annotations

import dataclasses
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pybroker.tsql.administration.tree import Use
from pybroker.tsql.expressions.names import relation
from pybroker.tsql.known import Known
from pybroker.tsql.language import read as parse
from pybroker.tsql.preparing import prepare
from pybroker.tsql.procedures import creating
from pybroker.tsql.source import Position, ScriptError, batches, decode
from pybroker.tsql.variables import replace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from pybroker.tsql.source import Batch
    from pybroker.tsql.steps import Step
    from pybroker.tsql.variables import Ask, Script


@dataclass(frozen=True, slots=True)
class Finding:
    """One statement, or the first one of a batch that is not understood.

    Attributes:
        file: the script's name.
        position: where the file has it.
        step: what it becomes; None where it is refused.
        refusal: why it is refused.
    """

    file: str
    position: Position
    step: Step | None = None
    refusal: str | None = None

    @property
    def place(self) -> str:
        """Return file:line:column."""
        return f"{self.file}:{self.position.line}:{self.position.column}"


@dataclass(frozen=True, slots=True)
class ReadBatch:
    """A batch, which runs `count` times.

    Attributes:
        findings: its statements, without BEGIN, IF, WHILE and TRY; or why it is refused.
        count: how often it runs.
        steps: its statements, with those within them.
        place: tells where the file has what stands somewhere in the text.
        file: the script's name.
        block: its PostgreSQL form as a whole, where its variables and control flow have one.
    """

    findings: tuple[Finding, ...]
    count: int = 1
    steps: tuple[Step, ...] = ()
    place: Callable[[Position], Position] = lambda position: position
    file: str = ""
    block: str | None = None

    def finding(self, step: Step) -> Finding:
        """Return one of its steps with its place in the file."""
        return Finding(self.file, self.place(step.position), step)


@dataclass(frozen=True, slots=True)
class ReadScript:
    """A script's batches."""

    file: str
    batches: tuple[ReadBatch, ...]
    goes_on_after_error: bool = False

    @property
    def findings(self) -> list[Finding]:
        """Return the statements of all batches."""
        return [one for batch in self.batches for one in batch.findings]


def read(
    path: Path,
    defined: Mapping[str, str] | None = None,
    ask: Ask | None = None,
    known: Known | None = None,
    encoding: str = "utf-8",
) -> ReadScript:
    """Read a script; behind what is not understood it goes on with the next batch.

    Args:
        path: of the script.
        defined: the values of variables and placeholders.
        ask: for the value of a placeholder that is not defined.
        known: what the scripts before it have made; what it makes is added.
        encoding: of a script without a byte order mark.
    """
    file = str(path)
    try:
        text = decode(path.read_bytes(), encoding)
    except ScriptError as error:
        return _unread(file, error)
    return read_text(file, text, defined, ask, known)


def read_text(
    file: str,
    text: str,
    defined: Mapping[str, str] | None = None,
    ask: Ask | None = None,
    known: Known | None = None,
) -> ReadScript:
    """Read a script's text, with newlines alone; as `read`."""
    known = known or Known()
    try:
        script = replace(text, defined or {}, ask)
    except ScriptError as error:
        return _unread(file, error)
    found: list[ReadBatch] = []
    in_msdb = False
    known.promised |= set(_promised(script.text))
    try:
        for batch in batches(script.text):
            read_one = _read_batch(file, script, batch, known, in_msdb=in_msdb)
            found.append(read_one)
            for one in read_one.findings:
                if one.step is not None and isinstance(one.step.statement, Use):
                    in_msdb = one.step.statement.database.lower() == "msdb"
    except ScriptError as error:
        found.append(ReadBatch((Finding(file, script.place(error.position), refusal=str(error)),)))
    return ReadScript(file, tuple(found), script.goes_on_after_error)


_PROCEDURE = re.compile(
    r"\b(?:CREATE|ALTER)\s+PROC(?:EDURE)?\s+(?:\[?(?P<schema>\w{1,63})\]?\.)?\[?(?P<name>[sx]p_\w{1,60})",
    re.IGNORECASE,
)


def _promised(text: str) -> Iterator[str]:
    """Yield the procedures of a script that have names as those of SQL Server's own."""
    for found in _PROCEDURE.finditer(text):
        yield relation(found["schema"], found["name"])


def _read_batch(file: str, script: Script, batch: Batch, known: Known, *, in_msdb: bool) -> ReadBatch:
    before = dataclasses.replace(known, procedures=dict(known.procedures))
    try:
        statements = parse(batch)
        steps = prepare(statements, batch, known, in_msdb=in_msdb)
    except ScriptError as error:
        return ReadBatch((Finding(file, script.place(error.position), refusal=str(error)),))
    leaves = [leaf for step in steps for leaf in step.leaves()]
    block = None
    if any(leaf.act is not None for leaf in leaves):
        with suppress(ScriptError):
            block = creating.block(tuple(statements), before).sql
    findings = tuple(Finding(file, script.place(leaf.position), leaf) for leaf in leaves)
    return ReadBatch(findings, batch.count, tuple(steps), script.place, file, block)


def _unread(file: str, error: ScriptError) -> ReadScript:
    return ReadScript(file, (ReadBatch((Finding(file, error.position, refusal=str(error)),)),))
