"""GOTO as structure: down to a label it leaves a block, and up to a label it begins a loop anew."""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

from pybroker.tsql.language import tree
from pybroker.tsql.source import ScriptError
from pybroker.tsql.tree import Statement

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


# Their labels are their own: they are structured when they are translated.
_MODULES = (tree.CreateProcedure, tree.CreateFunction, tree.CreateTrigger)


@dataclass(frozen=True, slots=True, kw_only=True)
class Left(tree.Block):
    """Statements that GOTO leaves: it goes on behind them.

    Attributes:
        label: folded.
    """

    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeated(tree.Block):
    """Statements that a GOTO among them begins anew.

    Attributes:
        label: folded.
    """

    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Again(Statement):
    """GOTO to a label above: the innermost `Repeated` of its label begins anew.

    Attributes:
        label: folded.
    """

    label: str


def structured(body: Sequence[Statement]) -> tuple[Statement, ...]:
    """Return statements without labels.

    Raises:
        ScriptError: at GOTO into other statements, or to a label that is not there; at a label that stands
            twice.
    """
    everything = [each for one in body for each in _statements(one)]
    labels = [each for each in everything if isinstance(each, tree.Label)]
    if not labels and not any(isinstance(each, tree.Goto) for each in everything):
        return tuple(body)
    seen: set[str] = set()
    for one in labels:
        if one.name.casefold() in seen:
            raise ScriptError(one.position, f"the label {one.name} stands twice: rename one")
        seen.add(one.name.casefold())
    return _structured(body, frozenset(), frozenset())


def _structured(
    body: Sequence[Statement], open_: frozenset[str], above: frozenset[str]
) -> tuple[Statement, ...]:
    """Return statements where GOTO may lead down to the labels `open_`, and up to those `above`."""
    again = next((at for at in range(len(body)) if _is_begun_anew(body, at)), None)
    if again is not None:
        label = body[again]
        assert isinstance(label, tree.Label)  # noqa: S101 - for the type checker
        name = label.name.casefold()
        inner = _structured(body[again + 1 :], open_, above | {name})
        repeated = Repeated(position=label.position, label=name, statements=inner)
        before = _structured(body[:again], open_ | {name}, above)
        if not before:
            return (repeated,)
        return (Left(position=body[0].position, label=name, statements=before), repeated)
    at = next((at for at in reversed(range(len(body))) if isinstance(body[at], tree.Label)), None)
    if at is None:
        return tuple(_inner(one, open_, above) for one in body)
    label = body[at]
    assert isinstance(label, tree.Label)  # noqa: S101 - for the type checker
    name = label.name.casefold()
    before = _structured(body[:at], open_ | {name}, above)
    behind = tuple(_inner(one, open_, above) for one in body[at + 1 :])
    if not before:
        return behind
    return (Left(position=body[0].position, label=name, statements=before), *behind)


def _is_begun_anew(body: Sequence[Statement], at: int) -> bool:
    label = body[at]
    return isinstance(label, tree.Label) and any(
        isinstance(each, tree.Goto) and each.label.casefold() == label.name.casefold()
        for one in body[at + 1 :]
        for each in _statements(one)
    )


def _inner(one: Statement, open_: frozenset[str], above: frozenset[str]) -> Statement:
    """Return a statement whose own lists of statements are structured."""
    if isinstance(one, tree.Goto):
        label = one.label.casefold()
        if label in above:
            return Again(position=one.position, label=label)
        if label not in open_:
            raise ScriptError(
                one.position,
                f"GOTO {one.label}: its label does not stand beside GOTO or around it:"
                " write a loop with BREAK and CONTINUE",
            )
        return one
    if isinstance(one, tree.Label):
        return tree.Block(position=one.position, statements=())
    if isinstance(one, _MODULES):
        return one
    changed: dict[str, Any] = {}
    for item in fields(one):
        value = getattr(one, item.name)
        if isinstance(value, Statement):
            changed[item.name] = _inner(value, open_, above)
        elif isinstance(value, tuple) and any(isinstance(each, Statement) for each in value):
            changed[item.name] = _structured(value, open_, above)
    return replace(one, **changed) if changed else one


def _statements(one: Any) -> Iterator[Any]:
    yield one
    if is_dataclass(one) and not isinstance(one, (type, *_MODULES)):
        for item in fields(one):
            value = getattr(one, item.name)
            for each in value if isinstance(value, tuple) else (value,):
                if isinstance(each, Statement):
                    yield from _statements(each)
