"""GOTO to a label further down: what stands before the label becomes a block that GOTO leaves."""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

from pybroker.tsql.language import tree
from pybroker.tsql.source import ScriptError
from pybroker.tsql.tree import Statement

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Left(tree.Block):
    """Statements that GOTO leaves: it goes on behind them.

    Attributes:
        label: folded.
    """

    label: str


def structured(body: Sequence[Statement]) -> tuple[Statement, ...]:
    """Return statements without labels.

    Raises:
        ScriptError: at GOTO to a label above it, into other statements, or that is not there; at a label that
            stands twice.
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
    return _structured(body, frozenset())


def _structured(body: Sequence[Statement], open_: frozenset[str]) -> tuple[Statement, ...]:
    at = next((at for at in reversed(range(len(body))) if isinstance(body[at], tree.Label)), None)
    if at is None:
        return tuple(_inner(one, open_) for one in body)
    label = body[at]
    assert isinstance(label, tree.Label)  # noqa: S101 - for the type checker
    name = label.name.casefold()
    before = _structured(body[:at], open_ | {name})
    behind = tuple(_inner(one, open_) for one in body[at + 1 :])
    if not before:
        return behind
    return (Left(position=body[0].position, label=name, statements=before), *behind)


def _inner(one: Statement, open_: frozenset[str]) -> Statement:
    """Return a statement whose own lists of statements are structured."""
    if isinstance(one, tree.Goto):
        if one.label.casefold() not in open_:
            raise ScriptError(
                one.position,
                f"GOTO {one.label}: its label does not stand further down, beside GOTO or around it:"
                " write a loop with BREAK and CONTINUE",
            )
        return one
    if isinstance(one, tree.Label):
        return tree.Block(position=one.position, statements=())
    changed: dict[str, Any] = {}
    for item in fields(one):
        value = getattr(one, item.name)
        if isinstance(value, Statement):
            changed[item.name] = _inner(value, open_)
        elif isinstance(value, tuple) and any(isinstance(each, Statement) for each in value):
            changed[item.name] = _structured(value, open_)
    return replace(one, **changed) if changed else one


def _statements(one: Any) -> Iterator[Any]:
    yield one
    if is_dataclass(one) and not isinstance(one, type):
        for item in fields(one):
            value = getattr(one, item.name)
            for each in value if isinstance(value, tuple) else (value,):
                if isinstance(each, Statement):
                    yield from _statements(each)
