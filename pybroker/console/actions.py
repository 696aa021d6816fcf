"""What `--write` allows: each action is asked for, done as the role that logged in, and noted."""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

import psycopg
from anyio import to_thread
from psycopg.rows import class_row

from pybroker.console.answering import Page, Shown, missing, reason
from pybroker.console.forms import fields_of
from pybroker.console.quarantine import SHOWN as AT_ONCE
from pybroker.console.rendering import page as rendered
from pybroker.diagnosis.findings import findings_of
from pybroker.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from starlette.requests import Request
    from starlette.responses import Response

    from pybroker.console.accounts import Account, Target
    from pybroker.console.attempts import Attempts

_LONGEST = 4_000
_LISTED = 50
_QUEUE_ACTIONS = {
    "queue_on": ("Turn the queue on", "select broker.alter_queue(%s, status => true)"),
    "queue_off": ("Turn the queue off", "select broker.alter_queue(%s, status => false)"),
    "activation_on": ("Turn activation on", "select broker.alter_queue(%s, activation_status => true)"),
    "activation_off": ("Turn activation off", "select broker.alter_queue(%s, activation_status => false)"),
}
_CONVERSATION_ACTIONS = {
    "redrive": ("Redrive", "select broker.redrive(%s)"),
    "discard": ("Discard the failed message", "select broker.discard(%s)"),
}
_DESTRUCTIVE = {"discard"}
_NOTED = """
select a.acted_at, a.role::text, a.action, a.object, a.result
from broker.console_actions a
order by a.id desc
limit %s
"""


@dataclass(frozen=True)
class Step:
    """One statement, in a transaction of its own; `shown` is as a person types it."""

    action: str
    object: str
    statement: str
    parameters: tuple[str, ...]
    shown: str


@dataclass(frozen=True)
class Deed:
    """What is asked for."""

    title: str
    steps: tuple[Step, ...]
    is_destructive: bool


@dataclass(frozen=True)
class Outcome:
    """How a step ended."""

    step: Step
    is_done: bool
    result: str


@dataclass(frozen=True)
class Noted:
    """A line of the audit."""

    acted_at: datetime
    role: str
    action: str
    object: str
    result: str


def ask(request: Request) -> Response:
    """Show what would be run, and ask whether it shall be."""
    page = Page(request)
    given = {name: page.given(name, _LONGEST) for name in ("do", "what", "about")}

    def read() -> Shown:
        if not request.app.state.may_write:
            return _read_only()

        def question(connection: psycopg.Connection[Any]) -> Shown:
            deed = _deed(connection, given)
            return _nothing() if deed is None else Shown("ask.html", {"deed": deed, "given": given})

        return page.ask(question)

    return page.answer(read)


async def act(request: Request) -> Response:
    """Do what was asked for, if the form is one of this session."""
    sent = await fields_of(request)
    return await to_thread.run_sync(_act, request, sent)


def noted(request: Request) -> Response:
    """Show who did what from a console."""
    page = Page(request)

    def question(connection: psycopg.Connection[Any]) -> Shown:
        lines = connection.cursor(row_factory=class_row(Noted)).execute(_NOTED, (_LISTED,)).fetchall()
        return Shown("actions.html", {"lines": lines, "limit": _LISTED})

    return page.answer(lambda: page.ask(question))


def _act(request: Request, sent: dict[str, str]) -> Response:
    page = Page(request)
    attempts: Attempts = request.app.state.actions
    if not request.app.state.may_write:
        shown = _read_only()
    elif not hmac.compare_digest(sent.get("token", "").encode(), page.session.form_token.encode()):
        why = "The form is not one of this session."
        shown = Shown("trouble.html", {"title": "Refused", "why": why}, 403)
    elif page.target is None:
        shown = missing("The console shows no database of this number.")
    elif not attempts.is_allowed(f"role {page.account.role}"):
        why = "Too many actions of this role. Please wait a minute."
        shown = Shown("trouble.html", {"title": "Too many", "why": why}, 429)
    else:
        shown = _done(page.account, page.target, sent)
    return rendered(
        shown.template,
        shown.status,
        session=page.session,
        wait=page.account.readings.wait(),
        may_write=request.app.state.may_write,
        **shown.values,
    )


def _done(account: Account, target: Target, sent: Mapping[str, str]) -> Shown:
    try:
        deed = account.ask(target.number, lambda connection: _deed(connection, sent))
        if deed is None:
            return _nothing()
        outcomes = account.act(
            target.number, lambda connection: [_run(connection, step) for step in deed.steps]
        )
    except (psycopg.Error, BrokerError) as error:
        why = f"{reason(error)} Look whether it was done before you try again."
        return Shown("trouble.html", {"title": "No answer", "why": why}, 503)
    return Shown("done.html", {"target": target, "deed": deed, "outcomes": outcomes})


def _run(connection: psycopg.Connection[Any], step: Step) -> Outcome:
    """Run one statement and note it, both or neither; note a refusal by itself."""
    try:
        with connection.transaction():
            connection.execute("set transaction read write")
            cursor = connection.execute(step.statement.encode(), step.parameters or None)
            row = cursor.fetchone() if cursor.description is not None else None
            value = "" if row is None or row[0] in (None, "") else f": {str(row[0])[:200]}"
            result = f"done{value}"
            _note(connection, step, result)
    except psycopg.Error as error:
        if connection.closed:
            raise
        result = f"{error.sqlstate}: {reason(error)}"
        with connection.transaction():
            connection.execute("set transaction read write")
            _note(connection, step, f"refused, {result}")
        return Outcome(step, is_done=False, result=result)
    return Outcome(step, is_done=True, result=result)


def _note(connection: psycopg.Connection[Any], step: Step, result: str) -> None:
    connection.execute(
        "select broker.note_console_action(%s, %s, %s)", (step.action, step.object, result[:1000])
    )


def _deed(connection: psycopg.Connection[Any], given: Mapping[str, str]) -> Deed | None:
    """Return what is asked for; None for what the console does not do, or diagnose no longer proposes."""
    action, what = given.get("do", ""), given.get("what", "")
    # PostgreSQL has no text with a zero byte.
    if action in _QUEUE_ACTIONS and what and "\0" not in what:
        title, statement = _QUEUE_ACTIONS[action]
        return Deed(title, (_step(connection, action, what, statement),), is_destructive=False)
    if action in _CONVERSATION_ACTIONS:
        handles = _handles(what.split(","))
        title, statement = _CONVERSATION_ACTIONS[action]
        steps = tuple(_step(connection, action, str(handle), statement) for handle in handles[:AT_ONCE])
        return Deed(title, steps, action in _DESTRUCTIVE) if steps else None
    if action == "mend":
        about = _handles([given.get("about", "")])
        for finding in findings_of(connection, about[0] if about else None):
            for mend in finding.mend:
                if mend.is_sql and mend.statement == what:
                    # Only what diagnose proposes now: nothing that somebody wrote into a form is run.
                    step = Step(f"mend {finding.number}", finding.object, mend.statement, (), mend.statement)
                    return Deed(f"Mend: {finding.problem}", (step,), mend.is_destructive)
    return None


def _step(connection: psycopg.Connection[Any], action: str, what: str, statement: str) -> Step:
    shown = psycopg.ClientCursor(connection).mogrify(statement.encode(), (what,))
    return Step(action, what, statement, (what,), shown)


def _handles(given: list[str]) -> list[UUID]:
    try:
        return [UUID(one) for one in given]
    except ValueError:
        return []


def _read_only() -> Shown:
    why = "This console only reads. Whoever starts it with --write allows actions."
    return Shown("trouble.html", {"title": "Read only", "why": why}, 403)


def _nothing() -> Shown:
    return missing("There is nothing of this kind to do, or diagnose does not propose it any more.")
