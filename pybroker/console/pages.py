"""The overview, a queue, and one of its messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pybroker.console import bodies, queue_readings
from pybroker.console.answering import Page, Shown, missing, overview_of
from pybroker.console.trace_links import trace_of

if TYPE_CHECKING:
    import psycopg
    from starlette.requests import Request
    from starlette.responses import Response

    from pybroker.status_readings import QueueStatus

_LARGEST_NUMBER = 2**63 - 1
_PRIORITIES = range(1, 11)
# Findings that are about a queue.
_OF_QUEUES = range(201, 300)


def overview(request: Request) -> Response:
    """Show every database: problems first, then its queues."""
    page = Page(request)

    def read() -> Shown:
        seen = [(target, *overview_of(page.account, target)) for target in page.targets]
        return Shown("overview.html", {"databases": seen})

    return page.answer(read)


def queue(request: Request) -> Response:
    """Show a queue: its state, its first messages, what its activation logged."""
    page = Page(request)
    name = request.path_params["name"]
    after = place_of(page.filter("after"))

    def ask(connection: psycopg.Connection[Any], known: QueueStatus | None) -> Shown:
        found = queue_readings.queue_of(connection, name)
        if found is None:
            return missing("No queue has this name, or this role may not receive from it.")
        # The overview has just counted it.
        depth = (
            queue_readings.depth_of(connection, found) if known is None else queue_readings.Depth.of(known)
        )
        messages = queue_readings.messages_of(connection, found, depth, after)
        return Shown(
            "queue.html",
            {
                "queue": found,
                "depth": depth,
                "messages": messages,
                "after": after,
                "has_more": len(messages) == queue_readings.SHOWN,
                "groups": queue_readings.groups_of(connection, found) if after is None else [],
                "log": queue_readings.log_of(connection, found),
                "limit": queue_readings.SHOWN,
                "numbered": queue_readings.NUMBERED_MESSAGES,
            },
        )

    def read() -> Shown:
        about = [one for one in page.findings(*_OF_QUEUES) if one.object == name]
        seen = None if page.target is None else overview_of(page.account, page.target)[0]
        of_it = [] if seen is None else [one for one in seen.status.queues if one.queue == name]
        known = of_it[0] if of_it else None
        shown = page.ask(lambda connection: ask(connection, known))
        return shown.beside(
            findings=about, reading=known, trend=None if seen is None else seen.lately.of(name)
        )

    return page.answer(read)


def message(request: Request) -> Response:
    """Show one message, with the start of its body."""
    page = Page(request)

    def ask(connection: psycopg.Connection[Any]) -> Shown:
        priority, order = request.path_params["priority"], request.path_params["order"]
        found = queue_readings.queue_of(connection, request.path_params["name"])
        one = (
            None
            if found is None or not is_place(priority, order)
            else queue_readings.message_of(connection, found, priority, order)
        )
        if one is None:
            return missing("No such queue, or the message was received, or RECEIVE can't take it yet.")
        form, text = bodies.shown(one.start or b"", page.filter("as"))
        return Shown(
            "message.html",
            {
                "queue": found,
                "message": one,
                "trace": trace_of(connection, one.conversation_handle, order),
                "form": form,
                "text": text,
                "forms": bodies.FORMS,
                "limit": queue_readings.BODY_BYTES,
            },
        )

    return page.answer(lambda: page.ask(ask))


def place_of(given: str | None) -> tuple[int, int] | None:
    """Read a place in a queue, as priority-order; None for anything else."""
    priority, _, order = (given or "").partition("-")
    if not (priority.isdecimal() and order.isdecimal()) or len(given or "") > len(str(_LARGEST_NUMBER)) + 3:
        return None
    place = int(priority), int(order)
    return place if is_place(*place) else None


def is_place(priority: int, order: int) -> bool:
    """Whether PostgreSQL could have a message there."""
    return priority in _PRIORITIES and 1 <= order <= _LARGEST_NUMBER
