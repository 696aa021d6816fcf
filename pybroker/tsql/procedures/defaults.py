"""Which parameters a caller may leave out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pybroker.tsql.expressions import tables
from pybroker.tsql.expressions.types import Unfaithful

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pybroker.tsql.expressions.scope import Scope
    from pybroker.tsql.language import tree


def has_default(parameter: tree.Parameter, scope: Scope) -> bool:
    """Whether a caller may leave a parameter out; a table that is left out is empty."""
    return parameter.default is not None or scope.table_type(tables.written(parameter.type)) is not None


def require_values(parameters: Sequence[tree.Parameter], one: tree.Execute, scope: Scope) -> None:
    """Refuse EXEC that leaves out what has no default; PostgreSQL may have one for it.

    Raises:
        Unfaithful: a parameter gets no value.
    """
    given = [argument for argument in one.arguments if argument.value is not None]
    named = {argument.name.casefold() for argument in given if argument.name is not None}
    in_place = sum(argument.name is None for argument in given)
    for parameter in parameters[in_place:]:
        if parameter.name.casefold() not in named and not has_default(parameter, scope):
            raise Unfaithful(f"the procedure expects {parameter.name}: give it a value")
