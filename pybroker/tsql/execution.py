"""Takes the steps of a batch: its variables, its control flow, its transactions."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg

from pybroker.tsql.language import tree
from pybroker.tsql.numbers import DOOMING, RAISED
from pybroker.tsql.session import StatementError
from pybroker.tsql.steps import Shown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pybroker.tsql.expressions.types import Type
    from pybroker.tsql.session import Rows, Session
    from pybroker.tsql.steps import Step

_LONGEST_DELAY = timedelta(hours=24)
# Those that count rows themselves, and those within which statements do.
_COUNTING = (
    tree.ExecuteText,
    tree.Fetch,
    tree.GetConversationGroup,
    tree.InsertExecute,
    tree.Query,
    tree.Receive,
    tree.SelectVariables,
    tree.WaitFor,
)
_IN_DOUBT = (
    "The current transaction cannot be committed and cannot support operations that write: ROLLBACK it."
)


class BreakLoop(Exception):  # noqa: N818 - BREAK is no error
    """BREAK."""


class ContinueLoop(Exception):  # noqa: N818 - nor is CONTINUE
    """CONTINUE."""


class GoTo(Exception):  # noqa: N818 - nor is GOTO
    """GOTO."""

    def __init__(self, label: str) -> None:
        super().__init__(label)
        self.label = label


class ReturnFromBatch(Exception):  # noqa: N818 - nor is RETURN
    """RETURN."""


class _Values(dict[str, Any]):
    """What stands for variables in SQL."""

    def __missing__(self, name: str) -> Any:
        if name != "@@rowcount":
            raise KeyError(name)
        raise StatementError(
            "@@ROWCOUNT behind EXEC is that of the procedure, which is not known here.",
            hint="Use an OUTPUT parameter.",
        )


@dataclass(slots=True)
class OpenCursor:
    """A cursor's query, and its rows from OPEN to CLOSE."""

    sql: str
    rows: Sequence[Sequence[Any]] | None = None
    at: int = -1


@dataclass(slots=True)
class Execution:
    """One run of a batch.

    Attributes:
        session: where it runs.
        before: called with each statement, before it runs.
        values: of variables, by their folded names.
        error: what the innermost CATCH has caught.
        rowcount: of the last statement; None behind a procedure, which has its own.
        done: how many statements ran.
        failed: whether an error was shown that did not end the batch, as of RAISERROR.
        tries: how many TRY are open.
        table_variables: what makes them, by their names in SQL.
    """

    session: Session
    before: Callable[[Step], None]
    report: Callable[[Step, StatementError], None]
    values: dict[str, Any] = field(default_factory=dict)
    error: StatementError | None = None
    rowcount: int | None = 0
    error_number: int = 0
    done: int = 0
    failed: bool = False
    tries: int = 0
    table_variables: dict[str, str] = field(default_factory=dict)
    _raised: int = 0
    _step: Step | None = None

    def batch(self, steps: Sequence[Step]) -> None:
        """Run a batch's steps.

        Raises:
            StatementError: of a statement that no TRY holds; its `step` says which.
        """
        try:
            self.run(steps)
        except ReturnFromBatch:
            pass
        finally:
            self.session.drop_tables(self.table_variables)
        if self.session.is_doomed:
            self.session.rollback()
            raise StatementError(
                "Uncommittable transaction is detected at the end of the batch. It is rolled back.", 3998
            )

    def run(self, steps: Sequence[Step]) -> None:
        """Run steps one after the other."""
        for step in steps:
            self._one(step)

    def _one(self, step: Step) -> None:
        outer, self._step = self._step, step
        is_leaf = not step.inner and not step.otherwise
        try:
            if is_leaf:
                self.before(step)
            if step.act is not None:
                step.act(self)
                self._count(step)
            else:
                count = self.session.run(step)
                self.rowcount = 0 if step.shown is Shown.NOTHING else count
            if is_leaf:
                self.done += 1
                self.error_number, self._raised = self._raised, 0
        except StatementError as error:
            error.step = error.step or step
            self.error_number = error.number or RAISED
            raise
        except psycopg.Error as error:
            told = self.session.told(error)
            told.step = step
            raise told from None
        finally:
            self._step = outer

    def _count(self, step: Step) -> None:
        """Set @@ROWCOUNT behind a statement that does not set it itself."""
        one = step.statement
        if one is None or isinstance(one, _COUNTING):
            return
        if isinstance(one, tree.Execute):
            if one.procedure.name.lower() != "sp_executesql":
                self.rowcount = None
        elif isinstance(one, tree.Declare):
            if any(getattr(each, "default", None) is not None for each in one.variables):
                self.rowcount = 1
        else:
            self.rowcount = int(isinstance(one, tree.Assign))

    def parameters(self) -> dict[str, Any]:
        """Return what stands for variables in SQL."""
        error = self.error
        counted = {} if self.rowcount is None else {"@@rowcount": self.rowcount}
        return _Values(
            self.values
            | counted
            | {
                "@@error": self.error_number,
                "@@trancount": self.session.transactions,
                "xact_state": -1 if self.session.is_doomed else min(self.session.transactions, 1),
                "error_number": None if error is None else error.number or RAISED,
                "error_message": None if error is None else str(error),
                "error_severity": None if error is None else error.severity,
                "error_state": None if error is None else error.state,
                "error_line": None if error is None or error.step is None else error.step.position.line,
                "error_procedure": None,
                "scope_identity": self.session.identity,
            }
        )

    def query(self, sql: str, *, writes: bool = True, at_home: bool = False) -> Rows:
        """Run SQL in which variables stand as `%(@name)s`."""
        if writes and self.session.is_doomed:
            raise StatementError(_IN_DOUBT, 3930)
        return self.session.query(sql, self.parameters(), at_home=at_home)

    def value(self, sql: str) -> Any:
        """Return the value of an expression."""
        return self.query(f"select {sql}", writes=False).rows[0][0]

    def answer(self, sql: str) -> bool:
        """Return whether a condition holds."""
        return self.value(f"({sql})") is True

    def converted(self, value: Any, kind: Type) -> Any:
        """Return a value as a variable of a type has it."""
        found = self.session.query(f"select cast(%(value)s as {kind.sql})", {"value": value})
        return found.rows[0][0]

    def nested(self, values: dict[str, Any]) -> Execution:
        """Return an execution for a text, which has variables of its own."""
        return Execution(
            self.session, self.before, self.report, values, self.error, tries=self.tries, _step=self._step
        )

    def took(self, nested: Execution) -> None:
        """Take over what a text has done."""
        self.rowcount = nested.rowcount
        self.failed = self.failed or nested.failed

    # Control flow.

    def choose(self, *, answer: bool, then: Sequence[Step], otherwise: Sequence[Step]) -> None:
        """Run one of two."""
        self.rowcount = self.error_number = 0
        self.run(then if answer else otherwise)

    def loop(self, condition: str, body: Sequence[Step]) -> None:
        """Run steps while a condition holds."""
        while self.answer(condition):
            self.rowcount = self.error_number = 0
            try:
                self.run(body)
            except BreakLoop:
                return
            except ContinueLoop:
                continue
        self.rowcount = self.error_number = 0

    def attempt(self, body: Sequence[Step], handler: Sequence[Step]) -> None:
        """Run TRY, and CATCH if it fails."""
        self.tries += 1
        try:
            self.run(body)
        except StatementError as error:
            if not self.session.is_usable:
                raise
            caught = error
        else:
            return
        finally:
            self.tries -= 1
        if self.session.transactions and (self.session.aborts_on_error or caught.sqlstate in DOOMING):
            self.session.is_doomed = True
        outer, self.error = self.error, caught
        try:
            self.run(handler)
        finally:
            self.error = outer

    def throw(self) -> None:
        """Raise what CATCH has caught."""
        if self.error is None:
            raise StatementError(
                "To rethrow an error, a THROW statement must be used inside a CATCH block.", 10704
            )
        raise self.error

    def raise_error(self, message: str, severity: int, state: int) -> None:
        """Raise an error, or show a message, as the severity says."""
        error = StatementError(message, RAISED, severity=severity, state=state)
        if severity <= 10:  # noqa: PLR2004 - SQL Server's border between messages and errors
            self.session.console.show(message)
        elif self.tries or self._step is None:
            raise error
        else:
            self.failed = True
            self.report(self._step, error)
            self._raised = RAISED

    def delay(self, kind: str, written: Any) -> None:
        """Wait for a length of time, or until a time of the day."""
        length = _length(written)
        if length is None:
            raise StatementError(f"Incorrect time syntax in time string '{written}' used with WAITFOR.", 148)
        if kind == "TIME":
            now = datetime.now().astimezone()
            midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
            length = (midnight + length - now) % _LONGEST_DELAY
        time.sleep(length.total_seconds())


def _length(written: Any) -> timedelta | None:
    if isinstance(written, datetime):
        return timedelta(
            hours=written.hour,
            minutes=written.minute,
            seconds=written.second,
            microseconds=written.microsecond,
        )
    for form in ("%H:%M:%S.%f", "%H:%M:%S", "%H:%M"):
        try:
            found = datetime.strptime(str(written).strip(), form)
        except ValueError:
            continue
        return timedelta(
            hours=found.hour, minutes=found.minute, seconds=found.second, microseconds=found.microsecond
        )
    return None
