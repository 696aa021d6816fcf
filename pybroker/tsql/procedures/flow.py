"""What a procedure's statements do to each other: transactions, @@ROWCOUNT and @@ERROR.

Nothing is printed here. `Flow` says, for a statement, in which transactions it may run and who reads
what it leaves behind.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields, is_dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from pybroker.tsql.language import tree
from pybroker.tsql.language.jumps import Again, Left, Repeated
from pybroker.tsql.procedures.savepoints import Saved, Undone
from pybroker.tsql.tree import Statement

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


_SPECIAL = re.compile(r"@@(?:ROWCOUNT|ERROR|TRANCOUNT|FETCH_STATUS)\b|\bXACT_STATE\s*\(", re.IGNORECASE)
_STRING = re.compile(r"'(?:[^']|'')*'")
TRUE = re.compile(r"\s*\(*\s*(\d+)\s*=\s*\1\s*\)*\s*")
_OPEN = re.compile(
    r"""[\s(]*(?:@@TRANCOUNT\s*(?:>\s*0|<>\s*0|!=\s*0|>=\s*1)
      |XACT_STATE\s*\(\s*\)\s*\)?\s*(?:<>|!=)\s*0)[\s)]*""",
    re.IGNORECASE | re.VERBOSE,
)
_DOOMED = re.compile(r"[\s(]*XACT_STATE\s*\(\s*\)\s*\)?\s*=\s*-\s*1[\s)]*", re.IGNORECASE)
_COMMITTABLE = re.compile(r"[\s(]*XACT_STATE\s*\(\s*\)\s*\)?\s*=\s*1[\s)]*", re.IGNORECASE)
ISOLATION = re.compile(r"ISOLATION LEVEL READ (?:UN)?COMMITTED", re.IGNORECASE)
_DEEPEST = 3

COMPOUND = (tree.Block, tree.If, tree.While, tree.TryCatch)
# Statements that change nothing that a rollback would undo.
PURE = (
    Again,
    tree.Assign,
    tree.Break,
    tree.Continue,
    tree.Cursor,
    tree.Declare,
    tree.DeclareCursor,
    tree.Delay,
    tree.Fetch,
    tree.Goto,
    tree.Print,
    tree.RaiseError,
    tree.Return,
    tree.SelectVariables,
    tree.SetOption,
    tree.Throw,
)


class State(NamedTuple):
    """Where a statement may run.

    Attributes:
        depth: how many transactions are open.
        pending: whether something was changed outside of them, which SQL Server has committed by itself.
        doomed: whether an error was caught that leaves only ROLLBACK.
    """

    depth: int = 0
    pending: bool = False
    doomed: bool = False


States = frozenset[State]


def parts(statement: Any) -> Iterator[Any]:
    """Yield what a part of the tree holds directly: code, statements and other parts."""
    if not is_dataclass(statement):
        return
    for one in fields(statement):
        value = getattr(statement, one.name)
        for item in value if isinstance(value, tuple) else (value,):
            if is_dataclass(item):
                yield item


def statements(one: Any) -> Iterator[Any]:
    """Yield a statement and all within it."""
    yield one
    for part in parts(one):
        yield from statements(part)


def code_of(one: Any) -> Iterator[tree.Code]:
    """Yield the code of a statement, without that of the statements within it."""
    for part in parts(one):
        if isinstance(part, tree.Code):
            yield part
        elif not isinstance(part, Statement):
            yield from code_of(part)


def reads(one: Any) -> frozenset[str]:
    """Return which of @@ROWCOUNT, @@ERROR, @@TRANCOUNT, @@FETCH_STATUS and XACT_STATE() code names."""
    found = set()
    for code in code_of(one):
        for word in _SPECIAL.findall(without_strings(code.text)):
            found.add("xact_state()" if not word.startswith("@") else word.lower())
    return frozenset(found)


def without_strings(text: str) -> str:
    """Return code with blanks in place of its texts."""
    return _STRING.sub(lambda found: " " * len(found[0]), text)


def reads_identity(one: Any) -> bool:
    """Whether code asks for SCOPE_IDENTITY()."""
    return any("scope_identity" in code.text.lower() for code in code_of(one))


def all_code(one: Any) -> Iterator[tree.Code]:
    """Yield all code of a statement, and of those within it."""
    for each in statements(one):
        if isinstance(each, tree.Code):
            yield each


def ends_transactions(one: Any) -> bool:
    """Whether COMMIT, ROLLBACK or BEGIN TRANSACTION is within."""
    return any(isinstance(each, tree.Transaction) for each in statements(one))


def has_effects(one: Any) -> bool:
    """Whether something is within that a rollback would undo."""
    return any(
        isinstance(each, Statement)
        and not isinstance(each, (*COMPOUND, *PURE, tree.Transaction))
        and not (isinstance(each, tree.Query) and each.verb == "SELECT")
        for each in statements(one)
    )


def rolls_back_first(handler: Sequence[Statement]) -> bool:
    """Whether CATCH undoes everything before it does anything else."""
    for one in handler:
        match one:
            case tree.Transaction(verb="ROLLBACK"):
                return True
            case tree.If(condition=condition, then=then, otherwise=None) if _OPEN.fullmatch(condition.text):
                return rolls_back_first((then,))
            case tree.Block(statements=inner):
                return rolls_back_first(inner)
            case tree.Declare() | tree.Assign() | tree.Print() | tree.SetOption():
                continue
            case tree.SelectVariables(source=None):
                continue
            case _:
                return False
    return False


@dataclass(slots=True)
class Flow:
    """What is known of the statements of one module, each by its identity."""

    before: dict[int, set[State]] = field(default_factory=dict)
    after: dict[int, frozenset[str]] = field(default_factory=dict)
    in_branches: dict[int, frozenset[str]] = field(default_factory=dict)
    # Whether RETURN, or the end, may leave a transaction open.
    is_open_at_end: bool = False
    _jumps: dict[str, set[State]] = field(default_factory=dict)
    _behind: dict[str, frozenset[str]] = field(default_factory=dict)
    _breaks: list[set[State]] = field(default_factory=list)
    _continues: list[set[State]] = field(default_factory=list)
    _caught: list[set[State]] = field(default_factory=list)

    # Transactions.

    def run(self, body: Iterable[Statement], states: States) -> States:
        """Follow statements, and note in which states each of them may begin."""
        for one in body:
            states = self._run_one(one, states)
        return states

    def _run_one(self, one: Any, states: States) -> States:  # noqa: PLR0911, PLR0912 - a case for each class
        self.before.setdefault(id(one), set()).update(states)
        for caught in self._caught[-1:]:
            caught.update(states)
        match one:
            case Left():
                self._jumps[one.label] = set()
                return self.run(one.statements, states) | self._jumps[one.label]
            case Repeated():
                return self._run_repeated(one, states)
            case Saved():
                return self._run_saved(one, states)
            case Undone():
                self._jumps[_undone(one.number)] = set(states)
                return frozenset()
            case tree.Goto() | Again():
                self._jumps[one.label.casefold()].update(states)
                return frozenset()
            case tree.Block():
                return self.run(one.statements, states)
            case tree.If():
                then, rest = _divided(one.condition, states)
                done = self._run_one(one.then, then)
                return done | (self._run_one(one.otherwise, rest) if one.otherwise is not None else rest)
            case tree.While():
                return self._run_loop(one, states)
            case tree.TryCatch():
                return self._run_try(one, states)
            case tree.InsertExecute():
                states = self._run_one(one.execute, states)
                return frozenset(each._replace(pending=each.pending or not each.depth) for each in states)
            case tree.Transaction():
                states = frozenset(_transaction(one.verb, state) for state in states)
            case tree.Break():
                for found in self._breaks[-1:]:
                    found.update(states)
                return frozenset()
            case tree.Continue():
                for found in self._continues[-1:]:
                    found.update(states)
                return frozenset()
            case tree.Return() | tree.Throw():
                if isinstance(one, tree.Return):
                    self.is_open_at_end |= any(state.depth for state in states)
                return frozenset()
            case _ if has_effects(one):
                states = frozenset(one._replace(pending=one.pending or not one.depth) for one in states)
        return states

    def _run_loop(self, one: tree.While, states: States) -> States:
        self._breaks.append(set())
        entry = states
        while True:
            self._continues.append(set())
            ended = self._run_one(one.body, entry) | self._continues.pop()
            if ended <= entry:
                break
            entry |= ended
        broken = frozenset(self._breaks.pop())
        return broken if TRUE.fullmatch(one.condition.text) else broken | entry

    def _run_repeated(self, one: Repeated, states: States) -> States:
        while True:
            self._jumps[one.label] = set()
            ended = self.run(one.statements, states)
            begun = frozenset(self._jumps[one.label])
            if begun <= states:
                return ended
            states |= begun

    def _run_saved(self, one: Saved, states: States) -> States:
        done = self.run(one.statements, states)
        for each in one.resumed:
            done |= self.run(each.statements, frozenset(self._jumps.get(_undone(each.number), ())))
        return done

    def _run_try(self, one: tree.TryCatch, states: States) -> States:
        self._caught.append(set(states))
        done = self.run(one.body, states)
        caught = self._caught.pop()
        doomed = {state._replace(doomed=True) for state in caught if state.depth}
        for outer in self._caught[-1:]:
            outer.update(caught)
        return done | self.run(one.handler, frozenset(caught | doomed))

    def depths(self, one: Statement) -> set[int]:
        """Return how many transactions may be open before a statement."""
        return {state.depth for state in self.before.get(id(one), ())}

    def is_pending(self, one: Statement) -> bool:
        """Whether something may be left that SQL Server has committed by itself."""
        return any(state.pending and not state.depth for state in self.before.get(id(one), ()))

    # What is read later.

    def look_back(self, body: Sequence[Statement], after: frozenset[str] = frozenset()) -> frozenset[str]:
        """Follow statements from the last to the first; return what is read of what was before them."""
        for one in reversed(body):
            after = self._look(one, after, frozenset(), frozenset())
        return after

    def _look_list(
        self, body: Sequence[Statement], after: frozenset[str], exit_: frozenset[str], again: frozenset[str]
    ) -> frozenset[str]:
        for one in reversed(body):
            after = self._look(one, after, exit_, again)
        return after

    def _look(  # noqa: PLR0911, PLR0912 - a case for each class
        self, one: Any, after: frozenset[str], exit_: frozenset[str], again: frozenset[str]
    ) -> frozenset[str]:
        own = reads(one) & {"@@rowcount", "@@error"}
        self.after[id(one)] = self.after.get(id(one), frozenset()) | after
        match one:
            case Left():
                self._behind[one.label] = after
                return self._look_list(one.statements, after, exit_, again)
            case Repeated():
                self._behind[one.label] = frozenset()
                self._behind[one.label] = self._look_list(one.statements, after, exit_, again)
                return self._look_list(one.statements, after, exit_, again)
            case Saved():
                for each in one.resumed:
                    self._behind[_undone(each.number)] = self._look_list(each.statements, after, exit_, again)
                return self._look_list(one.statements, after, exit_, again)
            case Undone():
                return self._behind[_undone(one.number)]
            case tree.Goto() | Again():
                return self._behind.get(one.label.casefold(), frozenset())
            case tree.Block():
                return self._look_list(one.statements, after, exit_, again)
            case tree.If():
                branches = self._look(one.then, after, exit_, again)
                branches |= after if one.otherwise is None else self._look(one.otherwise, after, exit_, again)
                self.in_branches[id(one)] = self.in_branches.get(id(one), frozenset()) | branches
                return own
            case tree.While():
                branches = self._look(one.body, own, after, own) | after
                self.in_branches[id(one)] = self.in_branches.get(id(one), frozenset()) | branches
                return own
            case tree.TryCatch():
                handler = self._look_list(one.handler, after, exit_, again)
                return self._look_list(one.body, after, exit_, again) | (handler - {"@@error"})
            case tree.InsertExecute():
                return self._look(one.execute, frozenset(), exit_, again) | own
            case tree.Break():
                return exit_
            case tree.Continue():
                return again
            case tree.Return() | tree.Throw():
                return own
            case tree.Declare() if not any(getattr(each, "default", None) for each in one.variables):
                return after
            case _:
                return own

    def is_read(self, one: Statement, what: str) -> bool:
        """Whether a later statement reads what this one leaves behind."""
        return what in self.after.get(id(one), ())


def _undone(number: int) -> str:
    # No label begins so.
    return f"@@{number}"


def _transaction(verb: str, state: State) -> State:
    if verb == "BEGIN":
        return State(min(state.depth + 1, _DEEPEST), pending=False, doomed=state.doomed)
    if verb == "COMMIT" and state.depth > 1:
        return state._replace(depth=state.depth - 1)
    if verb in ("COMMIT", "ROLLBACK"):
        return State()
    return state


def _divided(condition: tree.Code, states: States) -> tuple[States, States]:
    """Return the states in which a condition is true, and those in which it is false."""
    if _OPEN.fullmatch(condition.text):
        chosen = frozenset(state for state in states if state.depth)
    elif _DOOMED.fullmatch(condition.text):
        chosen = frozenset(state for state in states if state.depth and state.doomed)
    elif _COMMITTABLE.fullmatch(condition.text):
        chosen = frozenset(state for state in states if state.depth and not state.doomed)
    else:
        return states, states
    return chosen, states - chosen
