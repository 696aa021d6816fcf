"""Runs scripts: first all of them are read, and nothing runs if a statement is refused."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from pybroker.tsql.administration import tree, without_passwords
from pybroker.tsql.execution import Execution
from pybroker.tsql.session import ACTIONS, StatementError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pybroker.tsql.databases import Foresight
    from pybroker.tsql.script import Finding, ReadBatch, ReadScript
    from pybroker.tsql.session import Session
    from pybroker.tsql.steps import Step
    from pybroker.tsql.tree import Statement


_VARIABLE = re.compile(r"%%|%\(([^)]+)\)s(?:::\w+(?: precision)?(?:\([\d,]+\))?(?: with time zone)?)?")


def refusals(scripts: Sequence[ReadScript], foresight: Foresight) -> Iterator[Finding]:
    """Yield what can't run: what has no form here, and what the command's options don't allow."""
    for script in scripts:
        for one in script.findings:
            if one.step is None:
                yield one
            elif refusal := foresight.refusal(one.step):
                yield replace(one, refusal=refusal)


class Run:
    """Runs scripts in a session, one after the other.

    Attributes:
        done: how many statements ran.
    """

    def __init__(self, session: Session, *, single_transaction: bool = False) -> None:
        self._session = session
        self._is_single = single_transaction
        self._noted: set[str] = set()
        self.done = 0

    def scripts(self, scripts: Sequence[ReadScript]) -> bool:
        """Run scripts; return whether all of their statements did what they say."""
        went_well = True
        for script in scripts:
            for batch in script.batches:
                if self._repeated(batch):
                    continue
                went_well = False
                if not script.goes_on_after_error or self._is_single:
                    return self._stopped()
        if self._is_single:
            return went_well and self._committed()
        if self._session.is_in_transaction:
            self._session.console.note("the scripts leave a transaction open: it is rolled back")
            return False
        return went_well

    def batch(self, batch: ReadBatch) -> bool:
        """Run a batch once; return whether all of its statements did what they say."""
        if any(one.step is None for one in batch.findings):
            return False

        def before(step: Step) -> None:
            self._note(batch.finding(step))

        def report(step: Step, error: StatementError) -> None:
            self._session.console.note(failure(batch.finding(step), error))

        execution = Execution(self._session, before, report)
        try:
            execution.batch(batch.steps)
        except StatementError as error:
            report(error.step or batch.steps[-1], error)
            return False
        finally:
            self.done += execution.done
        return not execution.failed

    def _repeated(self, batch: ReadBatch) -> bool:
        return all(self.batch(batch) for _ in range(batch.count))

    def _note(self, one: Finding) -> None:
        if one.step is not None and one.step.notes and one.place not in self._noted:
            self._noted.add(one.place)
            for note in one.step.notes:
                self._session.console.note(f"{one.place}: {note}")

    def _stopped(self) -> bool:
        if self._is_single:
            self._session.console.note("nothing stays of what ran before it, and nothing behind it runs")
        elif self.done:
            self._session.console.note(
                f"statements before it that are done and stay: {self.done}; nothing behind it runs."
                " --single-transaction leaves nothing"
            )
        return False

    def _committed(self) -> bool:
        try:
            self._session.commit()
        except StatementError as error:
            self._session.console.note(f"COMMIT: {error}")
            return False
        return True


def failure(one: Finding, error: StatementError) -> str:
    """Return what is said of a statement that failed: where, its number, and its PostgreSQL form."""
    number = f"Msg {error.number}: " if error.number else f"{error.sqlstate}: " if error.sqlstate else ""
    hint = f" HINT: {error.hint}" if error.hint else ""
    sql = "" if one.step is None else f"\n{displayed(one.step.sql or without_passwords(one.step.source))}"
    return f"{one.place}: {number}{error}{hint}{sql}"


def displayed(sql: str) -> str:
    """Return SQL with the names of its variables."""
    return _VARIABLE.sub(lambda found: found[1] or "%", sql)


class Writer:
    """Writes statements in the form that psql reads; what only this client does is a comment.

    Args:
        database: where the script begins; None if that is not known.
    """

    def __init__(self, database: str | None = None) -> None:
        self.database = database

    def batch(self, batch: ReadBatch) -> list[str]:
        """Return a batch's statements, each below its place; call it in the order of the script."""
        if batch.block is not None:
            return [f"{self._place(batch.finding(batch.steps[0]))}\n{batch.block}"]
        return [line for step in batch.steps for line in self._lines(batch, step)]

    def write(self, one: Finding) -> str:
        """Return a statement below its place."""
        step, place = one.step, self._place(one)
        if step is None:
            return place
        sql = self._connected(step.statement) if step.sql is None else step.sql
        if sql is not None and step.act is None:
            return f"{place}\n{sql}"
        source = " ".join(without_passwords(step.source).split())
        if sql is not None:
            lines = "\n".join(f"--   {line}" for line in displayed(sql).splitlines())
            return f"{place}\n-- pybroker tsql run does: {source}\n{lines}"
        does = "nothing to do" if step.notes and not _is_done(step) else "pybroker tsql run does"
        return f"{place}\n-- {does}: {source}"

    def _place(self, one: Finding) -> str:
        # The name is the file system's: a newline in it must not end the comment.
        return f"-- {' '.join(one.place.splitlines())}"

    def _lines(self, batch: ReadBatch, step: Step, depth: int = 0) -> Iterator[str]:
        if not step.inner and not step.otherwise:
            yield self.write(batch.finding(step))
            return
        asked = None if step.question is None else step.question.sql
        if asked is not None:
            yield self._place(batch.finding(step))
            yield f"select ({asked}) as answer{depth} \\gset\n\\if :answer{depth}"
        for one in step.inner:
            yield from self._lines(batch, one, depth + 1)
        if asked is not None and step.otherwise:
            yield "\\else"
        for one in step.otherwise:
            yield from self._lines(batch, one, depth + 1)
        if asked is not None:
            yield "\\endif"

    def _connected(self, statement: Statement | None) -> str | None:
        if isinstance(statement, tree.Use):
            self.database = statement.database
            return _connect(statement.database)
        if not isinstance(statement, tree.AlterDatabase) or statement.termination == "ROLLBACK IMMEDIATE":
            return None
        calls: list[str] = []
        if statement.action is not None:
            calls.append(f"select broker.alter_broker('{statement.action}');")
        if statement.honor_broker_priority is not None:
            honored = "true" if statement.honor_broker_priority else "false"
            calls.append(f"select broker.alter_broker(honor_broker_priority => {honored});")
        if not calls:
            return None
        if statement.database.upper() != "CURRENT" and statement.database != self.database:
            if self.database is None:
                return None
            calls = [_connect(statement.database), *calls, _connect(self.database)]
        return "\n".join(calls)


def _connect(database: str) -> str:
    quoted = database.replace('"', '""')
    return f'\\connect "{" ".join(quoted.splitlines())}"'


def _is_done(step: Step) -> bool:
    kind = type(step.statement)
    return kind in ACTIONS and kind is not tree.AlterDatabase
