"""Reading, planning and applying, as statements without I/O: the client and migrations run them."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any

from pybroker.definitions.catalog import IN_USE, QUERIES, catalog_of
from pybroker.definitions.planning import plan

if TYPE_CHECKING:
    from pybroker.definitions.objects import Definition, Grant
    from pybroker.definitions.planning import Plan

Statement = tuple[str, Sequence[Any]]
Rows = list[tuple[Any, ...]]

# Of apply and of migrate, against each other too.
ONE_AT_A_TIME = f"select pg_catalog.pg_advisory_xact_lock({0x70796272})"  # "pybr"


def applying(
    definitions: Sequence[Definition | Grant], *, prune: bool, is_dry_run: bool
) -> Generator[Statement, Rows, Plan]:
    """Yield each statement with its parameters, be sent its rows, and return the plan.

    All statements belong in one transaction, so that the plan holds when its steps run, or nothing is done.

    Raises:
        DefinitionError: as :func:`pybroker.definitions.planning.plan`.
    """
    if not is_dry_run:
        # Processes of an application that start together have the same to do: the first one does it. Before
        # anything is read: a migration that has this lock would wait for what was read from.
        yield ONE_AT_A_TIME, ()
    rows = {}
    for kind, query in QUERIES.items():
        rows[kind] = yield query, ()
    uses = yield IN_USE, ()
    made = plan(catalog_of(rows, uses), definitions, prune=prune)
    if not is_dry_run:
        for step in made.steps:
            yield step.statement, step.parameters
    return made
