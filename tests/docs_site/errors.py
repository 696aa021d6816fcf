"""The catalogue of errors: every refusal that stands in sql/, with its message and what to do about it."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pglast import ast

from tests.sql_checks import descendants

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tests.sql_checks import SqlFile

_PLACE = re.compile(r"%(?:\d+\$)?[sIL]")
_FIVE_DIGITS = 9999


@dataclass(frozen=True, order=True)
class Refusal:
    """One place that refuses.

    Attributes:
        number: Service Broker's.
        message: as it is raised, with … for what it names; empty where it is worked out.
        hint: what to do, likewise.
        file: where it stands, from the root of the checkout.
    """

    number: int
    message: str
    hint: str
    file: str

    @property
    def sqlstate(self) -> str:
        """The SQLSTATE that carries the number, as broker_private.refuse makes it."""
        return f"{'T' if self.number > _FIVE_DIGITS else 'S'}{self.number % 10000:04d}"


def refusals(files: Iterable[SqlFile]) -> Iterator[Refusal]:
    """Each call of broker_private.refuse in these files."""
    for file in files:
        for statement in file.all_sql:
            for node in descendants(statement.node):
                if isinstance(node, ast.FuncCall) and node.funcname[-1].sval == "refuse":
                    number, message, hint = node.args
                    if isinstance(number, ast.A_Const):
                        yield Refusal(number.val.ival, _words(message), _words(hint), file.path)


def by_number(found: Iterable[Refusal]) -> Mapping[int, list[Refusal]]:
    """The refusals of each number, each message once."""
    numbers: dict[int, dict[tuple[str, str], Refusal]] = defaultdict(dict)
    for refusal in found:
        numbers[refusal.number].setdefault((refusal.message, refusal.hint), refusal)
    return {number: sorted(numbers[number].values()) for number in sorted(numbers)}


def _words(node: Any) -> str:
    match node:
        case ast.A_Const(val=ast.String(sval=text)):
            return _PLACE.sub("…", text).replace("%%", "%")
        case ast.FuncCall(funcname=[*_, ast.String(sval="format")], args=[first, *_]):
            return _words(first)
        case ast.TypeCast(arg=inner):
            return _words(inner)
    return ""
