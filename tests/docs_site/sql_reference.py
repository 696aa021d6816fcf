"""The SQL reference: what `\\df+` and `\\d+` say of the schema broker, as pages.

A comment on a function has a first paragraph, a line `name: …` for each argument, and then lines that begin
with Returns, Rights, Locks, Errors and Example. A line that is indented goes on with the one before.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import psycopg

    from tests.docs_site.errors import Refusal

_SECTIONS = ("Returns", "Rights", "Rights, locks and errors", "Locks", "Errors", "Example")
_LINE = re.compile(r"^([A-Za-z_][\w, ]*): (.*)$", re.DOTALL)
_VERBS = ("", "create_", "alter_", "drop_")
_COLUMNS = 100
_DEFAULTS = re.compile(r"::[a-z ]+(?:\[\])?(?=,|$)")

_CHAPTERS = {
    "Conversations": (
        "begin_dialog", "send", "send_all", "send_batch", "receive", "receive_groups", "get_conversation_group",
        "move_conversation", "end_conversation", "begin_conversation_timer", "get_transmission_status",
        "get_traceparent",
    ),
    "Message types, contracts and schemas": ("message_type", "contract", "schema_collection"),
    "Queues and services": ("queue", "service", "event_notification", "broker_priority"),
    "Between databases": ("route", "remote_service_binding", "certificate", "endpoint"),
    "Rights and the broker": ("grant", "revoke", "alter_authorization", "alter_broker"),
    "When something fails": ("diagnose", "query_service", "read_status", "peek", "queue_groups", "start_trace", "stop_trace", "redrive", "redrive_due", "discard", "note_failure", "announce_program", "note_console_action"),
    "For clients that wait": ("sleep_on", "wake_up"),
}  # fmt: skip


@dataclass(frozen=True)
class Function:
    """One public function, or one of its overloads.

    Attributes:
        name: without its schema.
        signature: its argument types, as COMMENT ON FUNCTION takes them.
        arguments: names, types and defaults, as PostgreSQL prints them.
        names: of its arguments, in order.
        result: its type.
        comment: as the database has it; empty without one.
    """

    name: str
    signature: str
    arguments: str
    names: tuple[str, ...]
    result: str
    comment: str

    @cached_property
    def _lines(self) -> Sequence[str]:
        _, _, rest = self.comment.partition("\n\n")
        return [line for line in rest.replace("\n  ", " ").splitlines() if line]

    @property
    def purpose(self) -> str:
        """The first paragraph: the statement of T-SQL that it stands for, and what it does."""
        return self.comment.partition("\n\n")[0].replace("\n", " ")

    @cached_property
    def sections(self) -> Mapping[str, str]:
        """What follows the arguments, by its word."""
        return {
            match[1]: match[2]
            for line in self._lines
            if (match := _LINE.match(line)) and match[1] in _SECTIONS
        }

    @cached_property
    def described(self) -> Mapping[str, str]:
        """What is said of each argument."""
        found = {}
        for line in self._lines:
            if (match := _LINE.match(line)) and match[1] not in _SECTIONS:
                found |= dict.fromkeys(match[1].split(", "), match[2])
        return found

    @property
    def numbers(self) -> Sequence[int]:
        """The errors that it names."""
        return [int(number) for number in re.findall(r"\d+", self.sections.get("Errors", ""))]


@dataclass(frozen=True)
class Relation:
    """One public view, or the type that RECEIVE returns: its comment, and each column's type and comment."""

    name: str
    comment: str
    columns: Mapping[str, tuple[str, str]] = field(default_factory=dict)


def functions(session: psycopg.Connection) -> Sequence[Function]:
    """The functions of the schema broker, by name."""
    rows = session.execute(
        "select p.proname::text, p.oid::regprocedure::text, pg_get_function_arguments(p.oid),"
        " coalesce(p.proargnames[:p.pronargs], '{}'), pg_get_function_result(p.oid),"
        " coalesce(obj_description(p.oid, 'pg_proc'), '')"
        " from pg_proc p where p.pronamespace = 'broker'::regnamespace order by p.proname, p.pronargs, p.oid"
    ).fetchall()
    return [
        Function(name, sig, arguments, tuple(names), *rest) for name, sig, arguments, names, *rest in rows
    ]


def relations(session: psycopg.Connection) -> Sequence[Relation]:
    """The views of the schema broker and the type broker.message, by name."""
    rows = session.execute(
        "select c.relname::text,"
        " coalesce(obj_description(c.oid, 'pg_class'), obj_description(c.reltype, 'pg_type'), ''),"
        " a.attname::text, format_type(a.atttypid, a.atttypmod), coalesce(col_description(c.oid, a.attnum), '')"
        " from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0"
        " where c.relnamespace = 'broker'::regnamespace and c.relkind in ('v', 'c') order by c.relname, a.attnum"
    ).fetchall()
    found: dict[str, Relation] = {}
    for name, comment, column, kind, said in rows:
        columns = found.setdefault(name, Relation(name, comment, {})).columns
        found[name] = Relation(name, comment, {**columns, column: (kind, said)})
    return list(found.values())


def chapters(every: Sequence[Function]) -> Mapping[str, Sequence[Function]]:
    """The functions in the chapters of the reference, in their order.

    Raises:
        LookupError: if a function is in no chapter.
    """
    found: dict[str, list[Function]] = {}
    for title, names in _CHAPTERS.items():
        order = {verb + name: place for place, (name, verb) in enumerate(product(names, _VERBS))}
        members = [function for function in every if function.name in order]
        found[title] = sorted(members, key=lambda function, order=order: order[function.name])
    named = {function for members in found.values() for function in members}
    if left := [function.signature for function in every if function not in named]:
        raise LookupError(f"in no chapter of tests/docs_site/sql_reference.py: {left}")
    return found


def functions_page(every: Sequence[Function], start: str) -> str:
    """The page of functions, in Markdown.

    Args:
        every: of the schema broker.
        start: the SQL that the examples begin with.
    """
    lines = [
        "# SQL functions",
        "",
        "Each call is one statement, in the caller's transaction. What psql's `\\df+ broker.*` says is what"
        " stands here. Arguments may be named: `broker.receive('warehouse', top => 10)`.",
        "",
        "The examples are for psql, after this start as the database's owner; far-worker.pem is the certificate"
        " of another worker ([pybroker certificate](dialog-security.md)):",
        "",
        "```sql",
        start.strip(),
        "```",
    ]
    for title, members in chapters(every).items():
        lines += ["", f"## {title}"]
        for function in members:
            lines += _function(function)
    return "\n".join(lines) + "\n"


def views_page(every: Iterable[Relation]) -> str:
    """The page of views and the type broker.message, in Markdown."""
    lines = ["# SQL views", "", "What a role sees in them: [permissions](permissions.md)."]
    for relation in every:
        lines += [
            "",
            f"## broker.{relation.name}",
            "",
            relation.comment,
            "",
            "| column | type | |",
            "|---|---|---|",
        ]
        lines += [f"| `{name}` | {kind} | {_cell(said)} |" for name, (kind, said) in relation.columns.items()]
    return "\n".join(lines) + "\n"


def errors_page(catalogue: Mapping[int, Sequence[Refusal]], every: Sequence[Function]) -> str:
    """The page of errors, in Markdown: what raises each, what it says, what to do."""
    raised: dict[int, dict[str, str]] = {}
    for function in every:
        for number in function.numbers:
            raised.setdefault(number, {}).setdefault(function.name, _anchor(function))
    lines = [
        "# Errors",
        "",
        "Every refusal has Service Broker's number. SQLSTATE is `S` and the number, for five digits `T` and the last"
        " four; in Python it is `error.number`. … stands for what the message names.",
        "",
    ]
    for number, refusals in catalogue.items():
        said = {(each.message, each.hint) for each in refusals if each.message}
        lines += ["", f"(error-{number})=", "", f"## {number}", "", f"SQLSTATE `{refusals[0].sqlstate}`.", ""]
        lines += [
            f"- {_prose(message)} *{_prose(hint)}*" if hint else f"- {_prose(message)}"
            for message, hint in sorted(said)
        ]
        if who := ", ".join(f"[{name}](#{anchor})" for name, anchor in raised.get(number, {}).items()):
            lines += ["", f"Raised by {who}."]
    return "\n".join(lines) + "\n"


def _function(function: Function) -> list[str]:
    lines = ["", f"({_anchor(function)})=", "", f"### broker.{function.name}", ""]
    lines += ["```text", _typed(function), "```", "", function.purpose, ""]
    lines += [f"- `{name}`: {said}" for name, said in function.described.items()]
    for word, said in function.sections.items():
        if word == "Example":
            lines += ["", "```sql", said, "```"]
        elif word == "Errors":
            links = re.sub(r"\d+", lambda number: f"[{number[0]}](#error-{number[0]})", said)
            lines += ["", f"**{word}**: {links}"]
        else:
            lines += ["", f"**{word}**: {said}"]
    return lines


def _typed(function: Function) -> str:
    """What psql's \\df shows, an argument a line where one line is too long."""
    arguments = _DEFAULTS.sub("", function.arguments.replace(" DEFAULT ", " => ")).replace("NULL", "null")
    one_line = f"broker.{function.name}({arguments}) → {function.result}"
    if len(one_line) <= _COLUMNS:
        return one_line
    folded = re.sub(r", (?=[a-z_]+ [a-z])", ",\n    ", arguments)
    return f"broker.{function.name}(\n    {folded}\n) → {function.result}"


def _anchor(function: Function) -> str:
    return re.sub(r"\W+", "-", function.signature).strip("-")


def _prose(text: str) -> str:
    """A message as it is, nothing of which Markdown or HTML takes for its own."""
    return re.sub(r"([\\`*_{}\[\]<>|#])", r"\\\1", text.replace("\n", " "))


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")
