"""What a batch becomes: steps that a session takes one after the other."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import TYPE_CHECKING

from pybroker.tsql import administration, conditions, parsing, printing, queries, translation
from pybroker.tsql.administration.translation import translate as translate_administration
from pybroker.tsql.source import Batch, ScriptError, offset_of, position_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from pybroker.tsql.conditions import Condition
    from pybroker.tsql.source import Position
    from pybroker.tsql.tree import Statement

# Statements of administration begin with words that T-SQL reserves, so a word outside of these is enough.
_PIECES = re.compile(
    r"""'[^']*(?:'|\Z) | "[^"]*(?:"|\Z) | \[(?:[^\]]|\]\])*(?:\]|\Z) | --[^\n]* | [\w@$#]+ | [^\s;]""",
    re.VERBOSE,
)
# DROP … IF EXISTS is a clause, not a question.
_QUESTION = re.compile(r"IF\b(?!\s+EXISTS\s*[^\s(])", re.IGNORECASE)
Conditions = tuple[tuple["Condition", bool], ...]


class Shown(Enum):
    """What a person sees of a step's result."""

    NOTHING = auto()
    ROWS = auto()
    COUNT = auto()


@dataclass(frozen=True, slots=True)
class Step:
    """One statement.

    Attributes:
        position: where it stands in the text that was read.
        source: its T-SQL.
        sql: its PostgreSQL form, without parameters; None for what only the client can do.
        notes: what of it has no meaning here.
        statement: its tree, where the client does it.
        at_home: whether it runs in the home database, wherever USE has led.
        conditions: what it hangs on, from outside to inside, each with the answer that lets it run.
    """

    position: Position
    source: str
    sql: str | None
    notes: tuple[str, ...] = ()
    shown: Shown = Shown.NOTHING
    statement: Statement | None = None
    at_home: bool = False
    conditions: tuple[tuple[Condition, bool], ...] = ()


def steps(batch: Batch, *, in_msdb: bool = False) -> list[Step]:
    """Return what a batch becomes.

    Args:
        batch: its text has no block comments, as from `source.batches`.
        in_msdb: whether the batch begins in msdb, whose routes are those of the worker.

    Raises:
        ScriptError: at the first statement that is not understood, or has no faithful form.
    """
    outline = _Outline(batch)
    found: list[tuple[Step, Statement | None]] = [(step, None) for step in outline.looks]
    found += [(_administered(statement), statement) for statement in outline.administration]
    found += [(Step(one.position, "", None), one) for one in outline.definitions]
    found.sort(key=lambda pair: (pair[0].position.line, pair[0].position.column))
    hanging = outline.hanging()
    done = []
    for step, statement in found:
        if isinstance(statement, administration.tree.Use):
            in_msdb = statement.database.lower() == "msdb"
        whole = step
        if statement is not None and not step.source:
            whole = _defined(statement, in_msdb=in_msdb)
        at = offset_of(batch, step.position)
        done.append(replace(whole, conditions=hanging(at)))
    return done


class _Outline:
    """A batch's statements of administration, and what hangs on which IF.

    Attributes:
        administration: these statements.
        looks: SELECT and PRINT.
        definitions: Service Broker's own.
    """

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self.administration: list[Statement] = []
        self.looks: list[Step] = []
        self.definitions: list[Statement] = []
        # Where a block begins and ends, and the statements that stand behind IF or ELSE alone.
        self._ended: list[tuple[int, int, Conditions]] = []
        self._alone: dict[int, Conditions] = {}
        self._blocks: list[tuple[int, Conditions]] = []
        self._pending: Conditions = ()
        self._last: Conditions = ()
        at = 0
        while found := _PIECES.search(batch.text, at):
            at = self._take(found)
        if self._blocks:
            raise ScriptError(position_of(batch, self._blocks[-1][0]), "BEGIN has no END")

    def hanging(self) -> Callable[[int], Conditions]:
        """Return a function that says what a statement hangs on; ask it by offsets that grow."""
        waiting = sorted(self._ended, key=lambda block: -block[0])
        open_blocks: list[tuple[int, int, Conditions]] = []

        def ask(at: int) -> Conditions:
            while waiting and waiting[-1][0] < at:
                open_blocks.append(waiting.pop())
            # A block that ended before the next began lies below it.
            open_blocks[:] = [block for block in open_blocks if block[1] > at]
            outer = [one for _, _, conditions in open_blocks for one in conditions]
            return (*outer, *self._alone.get(at, ()))

        return ask

    def _take(self, found: re.Match[str]) -> int:
        """Take a word, a name or a text; return the offset behind what is done."""
        at, word = found.start(), found.group().upper()
        if word.startswith("--"):
            return found.end()
        end = self._hang(at, word)
        if end is not None:
            return end
        if self._pending:
            self._alone[at] = self._pending
            self._pending, self._last = (), self._pending
        if word in ("SELECT", "PRINT"):
            return self._look(at, word)
        if administration.begins(self._batch.text, at):
            statement, end = administration.read(self._batch, at)
            self.administration.append(statement)
            return end
        if parsing.begins(self._batch.text, at):
            statement, end = parsing.read(self._batch, at)
            self.definitions.append(statement)
            return end
        raise ScriptError(position_of(self._batch, at), f'"{found.group()[:40]}" is not understood here')

    def _look(self, at: int, word: str) -> int:
        place = position_of(self._batch, at)
        if word == "PRINT":
            sql, end = queries.read_print(self._batch, at)
            step = Step(place, self._batch.text[at:end], sql)
        else:
            sql, at_home, has_hint, end = queries.read_query(self._batch, at)
            notes = ("NOLOCK has no meaning here: no reader waits for a writer",) if has_hint else ()
            step = Step(place, self._batch.text[at:end], sql, notes, Shown.ROWS, at_home=at_home)
        self.looks.append(step)
        return end

    def _hang(self, at: int, word: str) -> int | None:
        """Take a word of control; return the offset behind it, or None if it is another word."""
        end = at + len(word)
        if word == "IF" and _QUESTION.match(self._batch.text, at):
            condition, end = conditions.read(self._batch, at)
            self._pending = (*self._pending, (condition, True))
        elif word == "ELSE" and self._last:
            *outer, (condition, _) = self._last
            self._pending, self._last = (*outer, (condition, False)), ()
        elif word == "BEGIN" and self._pending:
            self._blocks.append((at, self._pending))
            self._pending = ()
        elif word == "END" and self._blocks:
            begin, self._last = self._blocks.pop()
            self._ended.append((begin, at, self._last))
        else:
            return None
        return end


def _administered(statement: Statement) -> Step:
    done = translate_administration(statement)
    return Step(
        statement.position,
        administration.print_statement(statement),
        done.sql,
        done.notes,
        statement=statement,
        at_home=done.at_home,
    )


def _defined(statement: Statement, *, in_msdb: bool) -> Step:
    done = translation.translate(statement, in_msdb=in_msdb)
    return Step(statement.position, printing.print_statement(statement), done.sql, done.notes)
