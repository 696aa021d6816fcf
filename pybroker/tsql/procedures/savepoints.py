"""SAVE TRANSACTION in PL/pgSQL: a block that an error leaves, and behind it what follows ROLLBACK.

PL/pgSQL has no savepoints but its blocks with EXCEPTION. So the statements from SAVE to the last one that
holds its ROLLBACK become such a block; ROLLBACK leaves it by an error of its own, which undoes the block.
What stands behind ROLLBACK stands behind the block too.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

from pybroker.tsql.expressions.types import Unfaithful
from pybroker.tsql.language import tree
from pybroker.tsql.language.jumps import Left, Repeated
from pybroker.tsql.source import ScriptError
from pybroker.tsql.tree import Statement

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pybroker.tsql.procedures.body import Body

# What follows a ROLLBACK is printed once for each.
_MOST = 20
UNDONE = '"@@undone"'
INSTEAD = "SAVE TRANSACTION: its ROLLBACK stands behind it in the same list of statements, or in IF and CATCH"


@dataclass(frozen=True, slots=True, kw_only=True)
class Undone(Statement):
    """ROLLBACK within what was saved: it leaves the block.

    Attributes:
        number: of `Resumed`.
        reads: the code of what follows it, which reads what CATCH knows.
    """

    number: int
    reads: tuple[tree.Code, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed(tree.Block):
    """What follows ROLLBACK.

    Attributes:
        number: of `Undone`.
    """

    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved(tree.Block):
    """Statements that ROLLBACK among them undoes.

    Attributes:
        resumed: what follows each ROLLBACK.
    """

    resumed: tuple[Resumed, ...]


def structured(body: Sequence[Statement]) -> tuple[Statement, ...]:
    """Return statements without SAVE TRANSACTION.

    Raises:
        ScriptError: at a SAVE whose ROLLBACK stands elsewhere.
    """
    if not any(_is_saving(each) for one in body for each in _statements(one)):
        return tuple(body)
    return _Saving().all(body)


class _Saving:
    def __init__(self) -> None:
        self._count = 0
        self._resumed: list[Resumed] = []

    def all(self, body: Sequence[Statement]) -> tuple[Statement, ...]:
        at = next((at for at, one in enumerate(body) if _is_saving(one)), None)
        if at is None:
            return tuple(self._inner(one) for one in body)
        save = body[at]
        assert isinstance(save, tree.Transaction)  # noqa: S101 - for the type checker
        before, behind = body[:at], body[at + 1 :]
        ends = [number for number, one in enumerate(behind) if _undoes(one, save.name)]
        if not ends:
            raise ScriptError(save.position, INSTEAD)
        inside, rest = behind[: ends[-1] + 1], behind[ends[-1] + 1 :]
        outer, self._resumed = self._resumed, []
        statements = self._cut(inside, (), save)
        for one in statements:
            for each in _statements(one):
                if isinstance(each, tree.Transaction):
                    raise ScriptError(each.position, f"{each.verb} between SAVE and its ROLLBACK has no form")
        saved = Saved(position=save.position, statements=statements, resumed=tuple(self._resumed))
        self._resumed = outer
        return (*(self._inner(one) for one in before), saved, *self.all(rest))

    def _inner(self, one: Statement) -> Statement:
        changed: dict[str, Any] = {name: self.all(value) for name, value in _lists(one)}
        changed |= {name: self.all((value,))[0] for name, value in _single(one)}
        return replace(one, **changed) if changed else one

    def _cut(
        self, body: Sequence[Statement], after: tuple[Statement, ...], save: tree.Transaction
    ) -> tuple[Statement, ...]:
        """Return statements in which ROLLBACK leaves the block, given those that would follow them."""
        done: list[Statement] = []
        for at, one in enumerate(body):
            rest = (*body[at + 1 :], *after)
            if isinstance(one, tree.Transaction) and one.verb == "ROLLBACK":
                return (*done, self._undone(one, rest, save))
            if not any(_is_rollback(each) for each in _statements(one)):
                done.append(self._inner(one))
                continue
            if isinstance(one, tree.TryCatch):
                if any(_is_rollback(each) for inner in one.body for each in _statements(inner)):
                    raise ScriptError(one.position, "ROLLBACK to a savepoint stands in CATCH, not in TRY")
                handler = self._cut(one.handler, rest, save)
                done.append(replace(one, body=self.all(one.body), handler=handler))
            elif isinstance(one, tree.If):
                then = self._block(one.then, rest, save)
                otherwise = None if one.otherwise is None else self._block(one.otherwise, rest, save)
                done.append(replace(one, then=then, otherwise=otherwise))
            elif isinstance(one, tree.Block) and not isinstance(one, Left | Repeated):
                done.append(replace(one, statements=self._cut(one.statements, rest, save)))
            else:
                raise ScriptError(one.position, INSTEAD)
        return tuple(done)

    def _block(self, one: Statement, after: tuple[Statement, ...], save: tree.Transaction) -> Statement:
        inner = one.statements if isinstance(one, tree.Block) else (one,)
        return tree.Block(position=one.position, statements=self._cut(inner, after, save))

    def _undone(
        self, one: tree.Transaction, rest: tuple[Statement, ...], save: tree.Transaction
    ) -> Statement:
        self._count += 1
        if len(self._resumed) >= _MOST:
            raise ScriptError(one.position, f"more than {_MOST} ROLLBACK behind one SAVE: divide them")
        is_whole = not _names(one, save.name)
        if not is_whole and any(_undoes(each, save.name) for each in rest):
            raise ScriptError(one.position, f"ROLLBACK to {save.name} twice: leave the second one out")
        behind = tuple(_without_savepoint(each, save) for each in rest)
        whole = (tree.Transaction(position=one.position, verb="ROLLBACK"),) if is_whole else ()
        self._resumed.append(Resumed(position=one.position, statements=(*whole, *behind), number=self._count))
        return Undone(position=one.position, number=self._count, reads=tuple(_code(behind)))


def _is_saving(one: Any) -> bool:
    return isinstance(one, tree.Transaction) and one.verb == "SAVE"


def _is_rollback(one: Any) -> bool:
    return isinstance(one, tree.Transaction) and one.verb == "ROLLBACK"


def _names(one: tree.Transaction, name: str | None) -> bool:
    return one.name is not None and name is not None and one.name.casefold() == name.casefold()


def _undoes(one: Statement, name: str | None) -> bool:
    return any(_is_rollback(each) and _names(each, name) for each in _statements(one))


def _without_savepoint(one: Any, save: tree.Transaction) -> Any:
    """Return a statement behind the end of a transaction: its savepoint is gone."""
    if _is_rollback(one) and _names(one, save.name):
        said = f"Cannot roll back {save.name}. No transaction or savepoint of that name was found."
        texts = ("6401", f"N'{said.replace(chr(39), chr(39) * 2)}'", "1")
        return tree.Throw(
            position=one.position, arguments=tuple(tree.Code(text, one.position) for text in texts)
        )
    changed = {name: tuple(_without_savepoint(each, save) for each in value) for name, value in _lists(one)}
    changed |= {name: _without_savepoint(value, save) for name, value in _single(one)}
    return replace(one, **changed) if changed else one


def _lists(one: Any) -> list[tuple[str, tuple[Statement, ...]]]:
    return [
        (item.name, value)
        for item in fields(one)
        if isinstance(value := getattr(one, item.name), tuple)
        and any(isinstance(each, Statement) for each in value)
    ]


def _single(one: Any) -> list[tuple[str, Statement]]:
    return [
        (item.name, value) for item in fields(one) if isinstance(value := getattr(one, item.name), Statement)
    ]


def _statements(one: Any) -> Iterator[Any]:
    yield one
    for _, value in [*_lists(one), *((name, (each,)) for name, each in _single(one))]:
        for each in value:
            yield from _statements(each)


def _code(one: Any) -> Iterator[tree.Code]:
    for each in one if isinstance(one, tuple) else (one,):
        if isinstance(each, tree.Code):
            yield each
        elif is_dataclass(each):
            for item in fields(each):
                yield from _code(getattr(each, item.name))


# What they become.


def saved(body: Body, one: Saved) -> None:
    """Print what was saved, and what follows its ROLLBACK."""
    if body.current_try is not None:
        # Printed as a part of TRY, a failure would undo more than the statement that failed.
        raise Unfaithful(
            "SAVE TRANSACTION in a TRY whose CATCH does not begin with ROLLBACK: write it before"
        )
    if body.within_tries and any(_is_rollback(each) for part in one.resumed for each in _statements(part)):
        raise Unfaithful("ROLLBACK of all behind SAVE TRANSACTION in TRY: write it in CATCH")
    body.declarations.setdefault(UNDONE, "integer")
    body.line(f"{UNDONE} := 0;")
    body.line("-- SAVE TRANSACTION")
    body.line("begin")
    body.block(one.statements)
    body.line("exception when sqlstate 'SAVED' then")
    with body.indented():
        body.line("null;")
    body.line("end;")
    for each in one.resumed:
        if not each.statements:
            continue
        body.line(f"if {UNDONE} = {each.number} then")
        kept = dict(body.scope.variables), body.catching, body.aborts
        body.scope.variables, body.catching, body.aborts = body.undone.pop(each.number, kept)
        body.block(each.statements)
        body.scope.variables, body.catching, body.aborts = kept
        body.line("end if;")


def undone(body: Body, one: Undone) -> None:
    """Print ROLLBACK to a savepoint, and what CATCH knows there."""
    body.undone[one.number] = (dict(body.scope.variables), body.catching, body.aborts)
    body.line("-- ROLLBACK TRANSACTION")
    body.line(f"{UNDONE} := {one.number};")
    body.line("raise exception using errcode = 'SAVED';")
