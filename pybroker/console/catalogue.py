"""The definitions of a database: what there is, a search through it, and all of it as SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg

from pybroker.console.answering import Page, Shown
from pybroker.definitions.catalog import IN_USE, QUERIES, Catalog, catalog_of
from pybroker.definitions.planning import ORDER, plan

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from pybroker.definitions.objects import Definition, Grant

_SHOWN = 200
_LONGEST_VALUE = 300


def definitions(request: Request) -> Response:
    """List the definitions whose name or values hold the words that are searched for."""
    page = Page(request)
    search = page.filter("search")

    def ask(connection: psycopg.Connection[Any]) -> Shown:
        catalog = catalog_now(connection)
        places = {kind.kind: place for place, kind in enumerate(ORDER)}
        rows = sorted(
            (_row(one) for one in catalog.objects.values()), key=lambda row: (places[row[0]], row[1])
        )
        rows += sorted(
            ("grant", one.securable_name, f"{one.permission} on {one.securable_class.lower()} to {one.role}")
            for one in catalog.grants
        )
        words = (search or "").casefold().split()
        found = [row for row in rows if all(word in " ".join(row).casefold() for word in words)]
        return Shown(
            "definitions.html",
            {"found": found[:_SHOWN], "count": len(found), "limit": _SHOWN, "search": search or ""},
        )

    return page.answer(lambda: page.ask(ask))


def export(request: Request) -> Response:
    """Send the definitions as SQL that makes them in another database, each after what it needs."""
    page = Page(request)

    return page.answer(lambda: page.ask(lambda connection: Shown("", text=_as_sql(connection))))


def catalog_now(connection: psycopg.Connection[Any]) -> Catalog:
    """Read what the database has, as of one moment."""
    with connection.transaction():
        connection.execute("set transaction isolation level repeatable read")
        rows = {kind: connection.execute(query).fetchall() for kind, query in QUERIES.items()}
        return catalog_of(rows, connection.execute(IN_USE).fetchall())


def _row(one: Definition) -> tuple[str, str, str]:
    """Kind, name, and what else it says, in words."""
    said = []
    for name, value in one.values.items():
        if name == "name" or value is None or value in ((), False):
            continue
        text = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
        said.append(f"{name.replace('_', ' ')} {text[:_LONGEST_VALUE]}")
    return one.kind, one.name, "; ".join(said)


def _as_sql(connection: psycopg.Connection[Any]) -> str:
    catalog = catalog_now(connection)
    wanted: list[Definition | Grant] = [*catalog.objects.values(), *catalog.grants]
    cursor = psycopg.ClientCursor(connection)
    lines = [cursor.mogrify(step.statement, step.parameters) + ";" for step in plan(Catalog(), wanted).steps]
    return "\n".join(["begin;", *lines, "commit;", ""])
