"""What `--write` allows: each action is asked for, done as the role that logged in, and noted."""

from __future__ import annotations

import hashlib
import hmac
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

import psycopg
from anyio import to_thread
from psycopg.rows import class_row

from pybroker.console import importing
from pybroker.console.answering import Page, Shown, if_room, missing, reason
from pybroker.console.catalogue import catalog_now
from pybroker.console.forms import fields_of
from pybroker.console.quarantine import SHOWN as AT_ONCE
from pybroker.console.rendering import page as rendered
from pybroker.definitions.planning import plan
from pybroker.diagnosis.findings import findings_of
from pybroker.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
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
# At most 50 at once: at the slowest that is less than a minute.
_RATES = ("0", "1", "5", "20")
_TEST = """select d.handle, broker.send(d.handle, %s, pg_catalog.convert_to(nullif(%s, ''), 'UTF8'))
from (select broker.begin_dialog(%s, %s, %s) as handle offset 0) d"""
_TRACED_TEST = """select d.handle, broker.send(d.handle, %s, pg_catalog.convert_to(nullif(%s, ''), 'UTF8'))
from (
  select b.handle, broker.start_trace(b.handle)
  from (select broker.begin_dialog(%s, %s, %s) as handle offset 0) b
  offset 0
) d"""
_GIVEN = ("do", "what", "about", "to", "contract", "type", "body", "trace", "rate")
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
    # So many steps a second; 0 for as fast as it goes.
    rate: int = 0
    # Of what was shown, where it depends on more than what was asked for.
    mark: str = ""


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
    given = {name: value for name in _GIVEN if (value := page.given(name, _LONGEST))}

    def read() -> Shown:
        if not request.app.state.may_write:
            return _read_only()
        return page.ask(lambda connection: _asked(connection, given))

    return page.answer(read)


async def plan_import(request: Request) -> Response:
    """Show what an import would do, and ask whether it shall be: it is too long for an address."""
    sent = await fields_of(request, 3 * importing.LONGEST)
    return await to_thread.run_sync(_planned, request, sent)


def _planned(request: Request, sent: dict[str, str]) -> Response:
    page = Page(request)

    def read() -> Shown:
        given = {"do": "import", "what": sent.get("what", "")}
        return page.ask(lambda connection: _asked(connection, given))

    def planned() -> Shown:
        try:
            return read()
        except (psycopg.Error, BrokerError) as error:
            return Shown("trouble.html", {"title": "Not imported", "why": reason(error)}, 422)

    shown = _unacceptable(page, request, sent) or _in_turn(page.account, planned)
    return _rendered(page, request, shown)


def _asked(connection: psycopg.Connection[Any], given: dict[str, str]) -> Shown:
    deed = _deed(connection, given)
    if deed is None:
        return _nothing()
    return Shown("ask.html", {"deed": deed, "given": {**given, "about": deed.mark or given.get("about", "")}})


async def act(request: Request) -> Response:
    """Do what was asked for, if the form is one of this session."""
    sent = await fields_of(request, 3 * importing.LONGEST)
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
    shown = _unacceptable(page, request, sent)
    target = page.target
    if shown is None and target is not None:
        shown = _in_turn(page.account, lambda: _done(page.account, target, sent))
    return _rendered(page, request, shown or _nothing())


def _in_turn(account: Account, deed: Callable[[], Shown]) -> Shown:
    """Do it, unless too much of what the role asked for is still being done."""
    why = "Other actions of this role are still being done. Nothing of this one was. Please try again."
    return if_room(account.deeds, deed, why)


def _unacceptable(page: Page, request: Request, sent: Mapping[str, str]) -> Shown | None:
    """Say why a form is not looked at; None if it is."""
    attempts: Attempts = request.app.state.actions
    if not request.app.state.may_write:
        return _read_only()
    if not hmac.compare_digest(sent.get("token", "").encode(), page.session.form_token.encode()):
        why = "The form is not one of this session, or too long."
        return Shown("trouble.html", {"title": "Refused", "why": why}, 403)
    if page.target is None:
        return missing("The console shows no database of this number.")
    if not attempts.is_allowed(f"role {page.account.role}"):
        why = "Too many actions of this role. Please wait a minute."
        return Shown("trouble.html", {"title": "Too many", "why": why}, 429)
    return None


def _rendered(page: Page, request: Request, shown: Shown) -> Response:
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
            return _changed() if sent.get("do") == "import" else _nothing()
    except (psycopg.Error, BrokerError) as error:
        return Shown("trouble.html", {"title": "No answer", "why": f"{reason(error)} Nothing was done."}, 503)
    outcomes: list[Outcome] = []
    began = time.monotonic()
    for number, step in enumerate(deed.steps):
        if deed.rate:
            # Between two steps the role's pages have the session.
            time.sleep(max(0.0, began + number / deed.rate - time.monotonic()))
        try:
            outcomes.append(account.act(target.number, partial(_run, step=step)))
        except (psycopg.Error, BrokerError) as error:
            done = f"{len(outcomes)} of {len(deed.steps)} were done before. " if outcomes else ""
            why = f"{reason(error)} {done}Look whether it was done before you try again."
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
        return Deed(title, (_step(connection, action, what, statement, what),), is_destructive=False)
    if action in _CONVERSATION_ACTIONS:
        return _release(connection, action, given)
    if action == "test":
        return _test(connection, given)
    if action == "import":
        return _import(connection, given)
    if action == "mend":
        about = _handles([given.get("about", "")])
        for finding in findings_of(connection, about[0] if about else None):
            for mend in finding.mend:
                if mend.is_sql and mend.statement == what:
                    # Only what diagnose proposes now: nothing that somebody wrote into a form is run.
                    step = Step(f"mend {finding.number}", finding.object, mend.statement, (), mend.statement)
                    return Deed(f"Mend: {finding.problem}", (step,), mend.is_destructive)
    return None


def _release(connection: psycopg.Connection[Any], action: str, given: Mapping[str, str]) -> Deed | None:
    """Let conversations out of quarantine, one by one."""
    handles = _handles(given.get("what", "").split(","))
    title, statement = _CONVERSATION_ACTIONS[action]
    steps = tuple(
        _step(connection, action, str(handle), statement, str(handle)) for handle in handles[:AT_ONCE]
    )
    rate = given.get("rate") or "0"
    if not steps or rate not in _RATES:
        return None
    return Deed(title, steps, action in _DESTRUCTIVE, int(rate))


def _test(connection: psycopg.Connection[Any], given: Mapping[str, str]) -> Deed | None:
    """A message on a dialog of its own."""
    what, to, contract, kind, body = (
        given.get(name, "") for name in ("what", "to", "contract", "type", "body")
    )
    if not (what and to and contract and kind) or "\0" in what + to + contract + kind + body:
        return None
    statement = _TRACED_TEST if given.get("trace") else _TEST
    about = f"{what} to {to}"[:1_000]
    step = _step(connection, "test", about, statement, kind, body, what, to, contract)
    return Deed("Send a test message", (step,), is_destructive=False)


def _import(connection: psycopg.Connection[Any], given: Mapping[str, str]) -> Deed | None:
    """The plan that makes the database have what is imported, as one statement: all of it or nothing."""
    # A browser sends each line's end so.
    text = given.get("what", "").replace("\r\n", "\n")
    if not text or len(text) > importing.LONGEST or "\0" in text:
        return None
    wanted = importing.definitions_of(connection, text)
    steps = plan(catalog_now(connection), wanted).steps
    cursor = psycopg.ClientCursor(connection)
    shown = ";\n".join(cursor.mogrify(step.statement.encode(), step.parameters) for step in steps)
    mark = hashlib.sha256(shown.encode()).hexdigest()
    if not steps or given.get("about", mark) != mark:
        # There is nothing to do, or it is not what was shown.
        return None
    about = f"{len(steps)}: {', '.join(step.summary for step in steps)}"[:1_000]
    is_destructive = any(step.is_destructive for step in steps)
    return Deed("Import definitions", (Step("import", about, shown, (), shown),), is_destructive, mark=mark)


def _step(
    connection: psycopg.Connection[Any], action: str, what: str, statement: str, *parameters: str
) -> Step:
    shown = psycopg.ClientCursor(connection).mogrify(statement.encode(), parameters)
    return Step(action, what, statement, parameters, shown)


def _handles(given: list[str]) -> list[UUID]:
    try:
        return [UUID(one) for one in given]
    except ValueError:
        return []


def _read_only() -> Shown:
    why = "This console only reads. Whoever starts it with --write allows actions."
    return Shown("trouble.html", {"title": "Read only", "why": why}, 403)


def _changed() -> Shown:
    why = "The database has all of it, or was changed since the plan was shown. Import it again to see."
    return Shown("trouble.html", {"title": "Not imported", "why": why}, 409)


def _nothing() -> Shown:
    return missing("There is nothing of this kind to do, or diagnose does not propose it any more.")
