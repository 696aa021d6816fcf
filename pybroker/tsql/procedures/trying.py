"""TRY and CATCH in PL/pgSQL: blocks between the ends of transactions, and CATCH behind them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pybroker.tsql import numbers
from pybroker.tsql.expressions import types
from pybroker.tsql.language import tree
from pybroker.tsql.language.jumps import Again
from pybroker.tsql.procedures import flow
from pybroker.tsql.procedures.codes import TRANCOUNT
from pybroker.tsql.procedures.errors import caught_values
from pybroker.tsql.translation import literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pybroker.tsql.procedures.body import Body
    from pybroker.tsql.tree import Statement

SAFE = re.compile(
    r"(?:\s|[()=<>!]|@@?\w+|\d+|N?'(?:[^']|'')*'|\b(?:IS|NOT|NULL|AND|OR)\b|XACT_STATE\s*\(\s*\))*",
    re.IGNORECASE,
)
_LITERAL = re.compile(r"\s*(?:-?\d+|N?'(?:[^']|'')*'|NULL)\s*", re.IGNORECASE)


class Try:
    """A TRY: the names of what PL/pgSQL keeps of its error."""

    def __init__(self, number: int, *, undoes: bool) -> None:
        self.label = "try" if number == 1 else f"try_{number}"
        self.undoes = undoes
        self._suffix = "" if number == 1 else f" {number}"
        self.state = f'"@@sqlstate{self._suffix}"'
        self.detail = f'"@@detail{self._suffix}"'
        self.values = caught_values(self.state, self.detail)
        self.used: set[str] = set()
        self.needs_detail = False

    def variable(self, name: str) -> str:
        """Return the variable that holds what a function of CATCH returns."""
        return f'"{name}{self._suffix}"'

    @property
    def catch(self) -> list[str]:
        """The lines of the handler of each block."""
        diagnostics = [f"{self.state} = returned_sqlstate"]
        if "error_message()" in self.used:
            diagnostics.append(f"{self.variable('error_message()')} = message_text")
        if self.needs_detail:
            diagnostics.append(f"{self.detail} = pg_exception_detail")
        if self.used & {"error_line()", "error_procedure()"}:
            diagnostics.append(f"{self.variable('error_procedure()')} = pg_exception_context")
        return [f"get stacked diagnostics {', '.join(diagnostics)};"]

    def computed(self) -> list[str]:
        """The lines at the beginning of CATCH that compute the values it reads."""
        order = sorted(self.used, key=lambda name: name == "error_procedure()")
        return [
            f"{self.variable(name)} := {sql.format(context=self.variable('error_procedure()'))};"
            for name in order
            if (sql := self.values[name][1])
        ]


def guarded(body: Body, statements: Sequence[Statement], try_: Try) -> None:
    """Print statements of TRY: each run between ends of transactions is a block that catches errors."""
    segment: list[Statement] = []
    for one in statements:
        if not splits(one, try_):
            segment.append(one)
            if not try_.undoes and flow.has_effects(one):
                _segment(body, segment, try_)
                segment = []
            continue
        _segment(body, segment, try_)
        segment = []
        if isinstance(one, tree.If) and not SAFE.fullmatch(one.condition.text):
            computed(body, one, try_)
        body.statement(one)
    _segment(body, segment, try_)


def computed(body: Body, one: tree.If | tree.While, try_: Try) -> None:
    """Compute a condition that may fail in a block, as what stands behind it ends transactions."""
    body.declarations.setdefault('"@@condition"', "boolean")
    body.line("begin")
    with body.indented():
        body.line(f'"@@condition" := {body.condition(one.condition)};')
    body.catch(try_)
    body.conditions.add(id(one))


def splits(one: Statement, try_: Try) -> bool:
    """Whether a statement of TRY stands in no block that catches errors, as parts of it do."""
    if flow.ends_transactions(one):
        return True
    return not try_.undoes and isinstance(one, flow.COMPOUND) and flow.has_effects(one)


def _segment(body: Body, segment: Sequence[Statement], try_: Try) -> None:
    if not segment:
        return
    outer, body.current_try = body.current_try, None
    if all(_is_harmless(one) for one in segment):
        for one in segment:
            body.statement(one)
        body.current_try = outer
        return
    was_caught, body.is_caught = body.is_caught, True
    body.line("begin")
    with body.indented():
        for one in segment:
            body.statement(one)
    body.is_caught = was_caught
    body.catch(try_)
    body.current_try = outer


def try_catch(body: Body, one: tree.TryCatch) -> None:
    """Print TRY … CATCH; CATCH stands behind the blocks, so it may end transactions."""
    body.tries += 1
    try_ = Try(body.tries, undoes=flow.rolls_back_first(one.handler))
    outer = body.current_try
    body.declarations[try_.state] = "text"
    read = [code.text.lower() for each in one.handler for code in flow.all_code(each)]
    for name, (type_, _) in try_.values.items():
        if any(name.partition("(")[0] in text for text in read):
            body.declarations[try_.variable(name)] = type_
            try_.used.add(name)
    if try_.used & {"error_number()", "error_severity()", "error_state()"} or _throws(one.handler):
        body.declarations[try_.detail] = "text"
        try_.needs_detail = True
    if _throws(one.handler):
        try_.used.add("error_message()")
        body.declarations[try_.variable("error_message()")] = "text"
    body.line(f"{try_.state} := null;")
    body.line("-- BEGIN TRY")
    body.line(f"<<{try_.label}>>")
    body.line("begin")
    body.current_try = try_
    body.within_tries += 1
    with body.indented():
        guarded(body, one.body, try_)
        if not one.body:
            body.line("null;")
    body.within_tries -= 1
    body.current_try = outer
    body.line(f"end {try_.label};")
    _handler(body, one, try_)


def _handler(body: Body, one: tree.TryCatch, try_: Try) -> None:
    saved = dict(body.scope.variables)
    body.catching, previous = try_, body.catching
    for name, (type_, _) in try_.values.items():
        body.scope.declare(name, types.TEXT if type_ == "text" else types.INTEGER, try_.variable(name))
    states = ", ".join(literal(one) for one in numbers.DOOMING)
    doomed = f"when {try_.state} in ({states}) then -1 " if not body.aborts else ""
    body.scope.declare(
        "xact_state()",
        types.INTEGER,
        f"(case when {TRANCOUNT} = 0 then 0 {doomed}else {-1 if body.aborts else 1} end)",
    )
    body.line("-- BEGIN CATCH")
    body.line(f"if {try_.state} is not null then")
    with body.indented():
        for line in try_.computed():
            body.line(line)
    body.block(one.handler)
    body.line("end if;")
    body.scope.variables.clear()
    body.scope.variables.update(saved)
    body.catching = previous


def _is_harmless(one: Any) -> bool:
    """Whether a statement can't fail."""
    match one:
        case (
            tree.Break()
            | tree.Continue()
            | tree.Goto()
            | Again()
            | tree.Return(value=None)
            | tree.SetOption()
        ):
            return True
        case tree.Declare():
            return all(getattr(each, "default", None) is None for each in one.variables)
        case tree.Assign(operator="=", value=value) | tree.Print(value=value):
            return bool(_LITERAL.fullmatch(value.text))
        case _:
            return False


def _throws(handler: Sequence[Statement]) -> bool:
    everything = (each for one in handler for each in flow.statements(one))
    return any(isinstance(each, tree.Throw) and not each.arguments for each in everything)
