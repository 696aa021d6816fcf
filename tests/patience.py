"""Waiting for what others do, by looking again; whoever gives up says what was so at the last look."""

from __future__ import annotations

import ast
import inspect
import math
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pytest

# Seconds after which a wait for what takes none has failed, on the busiest machine; a test itself has 300.
PATIENCE = 240.0
# When a wait of the running test gives up: before the test's own limit ends it without a word.
_gives_up_at = math.inf


class NotStartedError(AssertionError):
    """What a test needs did not start in time, so nothing was sent yet: CI tries that test again."""


def begin(item: pytest.Item) -> None:
    """Note when the waits of this test are to give up."""
    global _gives_up_at  # noqa: PLW0603 - a process runs one test at a time
    marker = item.get_closest_marker("timeout")
    limit = marker.args[0] if marker and marker.args else item.config.getoption("timeout", None)
    seconds = float(limit if limit is not None else item.config.getini("timeout") or 0)
    _gives_up_at = time.monotonic() + 0.9 * seconds if seconds else math.inf


def until(
    condition: Callable[[], Any],
    *,
    seconds: float = math.inf,
    error: type[AssertionError] = AssertionError,
) -> Any:
    """Wait for what another session or process is about to do, and return the condition's first true value.

    It gives up after so many seconds, or when the test's own time is nearly over. `error` is NotStartedError
    where a message that is lost can't be why.
    """
    gives_up_at = min(time.monotonic() + seconds, _gives_up_at)
    pause, pause_seconds = threading.Event(), 0.01
    while not (value := condition()):
        if time.monotonic() >= gives_up_at:
            raise error(f"waited in vain: {state_of(condition)}")
        pause.wait(pause_seconds)
        # Whoever waits for long leaves the processor to what it waits for.
        pause_seconds = min(1.2 * pause_seconds, 0.1)
    return value


def state_of(condition: Callable[[], Any]) -> str:
    """Return a condition, the values of its parts now, and of the variables that it names."""
    if not inspect.isfunction(condition):
        return repr(condition)
    variables = inspect.getclosurevars(condition).nonlocals
    found = _lambda(condition)
    lines = [ast.unparse(found.body) if found else condition.__qualname__]
    names = {**condition.__globals__, **variables}
    for part in _leaves(found.body) if found else ():
        if not isinstance(part, ast.Constant):
            code = compile(ast.Expression(part), "<condition>", "eval")
            lines.append(f"{ast.unparse(part)} is {_shown(lambda code=code: eval(code, names))}")
    lines += [f"{name}: {_shown(lambda value=value: value)}" for name, value in variables.items()]
    return "\n  ".join(lines)


def _leaves(node: ast.expr) -> Iterator[ast.expr]:
    """Yield what a condition compares, or what it combines by and, or and not."""
    match node:
        case ast.BoolOp(values=parts):
            pass
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            parts = [operand]
        case ast.Compare(left=left, comparators=others):
            parts = [left, *others]
        case _:
            yield node
            return
    for part in parts:
        yield from _leaves(part)


def _lambda(condition: Callable[[], Any]) -> ast.Lambda | None:
    """Return the source of a lambda; None for any other function, or where two begin in its line."""
    if getattr(condition, "__name__", "") != "<lambda>":
        return None
    code, path = condition.__code__, Path(condition.__code__.co_filename)
    if not path.is_file():
        return None
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = [
        node for node in ast.walk(tree) if isinstance(node, ast.Lambda) and node.lineno == code.co_firstlineno
    ]
    return found[0] if len(found) == 1 else None


def _shown(evaluated: Callable[[], Any]) -> str:
    try:
        text = repr(evaluated())
    except Exception as error:
        text = f"not to be told: {error!r}"
    return text if len(text) <= 1000 else f"{text[:500]} … {text[-500:]}"
