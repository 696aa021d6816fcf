"""One statement from a batch's text: where it ends is where no further word fits."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from lark import Token, Transformer, v_args

from pybroker.tsql.administration import tree
from pybroker.tsql.grammars import read_statement
from pybroker.tsql.source import Batch, ScriptError, position_of
from pybroker.tsql.tree import Name, Statement

if TYPE_CHECKING:
    from collections.abc import Callable

_LONGEST_NAME = 128
_LARGEST_NUMBER = 2**31 - 1

_BLANK = r"(?:\s|--[^\n]*\n)+"
_BEGINNINGS = re.compile(
    "(?:{})\\b".format(
        "|".join(
            beginning.replace(" ", _BLANK)
            for beginning in (
                "USE",
                "(?:CREATE|ALTER|DROP) (?:DATABASE|LOGIN|USER|ROLE|MASTER KEY|CERTIFICATE|ENDPOINT|SCHEMA"
                "|EVENT NOTIFICATION|XML SCHEMA COLLECTION)",
                "(?:OPEN|CLOSE) MASTER KEY",
                "ALTER AUTHORIZATION",
                "BACKUP",
                "RESTORE",
                "GRANT",
                "REVOKE",
                "DENY",
                "SET (?:ANSI_DEFAULTS|ANSI_NULLS|ANSI_NULL_DFLT_ON|ANSI_NULL_DFLT_OFF|ANSI_PADDING"
                "|ANSI_WARNINGS|ARITHABORT|ARITHIGNORE|CONCAT_NULL_YIELDS_NULL|NOCOUNT|NUMERIC_ROUNDABORT|QUOTED_IDENTIFIER"
                "|FORCEPLAN|DEADLOCK_PRIORITY|TEXTSIZE|QUERY_GOVERNOR_COST_LIMIT|STATISTICS"
                "|TRANSACTION ISOLATION LEVEL READ UNCOMMITTED)",
                "RECONFIGURE",
                "ADD (?:COUNTER )?SIGNATURE TO",
                "DROP (?:COUNTER )?SIGNATURE FROM",
                "EXEC(?:UTE)? SP_CONFIGURE",
            )
        )
    ),
    re.IGNORECASE,
)
# What is refused as a whole, and what to write instead.
_INSTEAD = (
    (r"BACKUP (?:DATABASE|LOG)", "take a backup with pg_dump or pg_basebackup"),
    (r"ALTER MASTER KEY (?:FORCE )?REGENERATE", "run pybroker certificate master-key --rotate"),
    (r"BACKUP MASTER KEY|RESTORE MASTER KEY", "copy dialog-master.key of the worker's key directory"),
    (
        r"(?:ADD|DROP) (?:COUNTER )?SIGNATURE",
        "create the module WITH EXECUTE AS a user, and grant that user what it needs",
    ),
    (r"RESTORE", "restore with pg_restore, then read docs/identity.md"),
    (
        r"ALTER XML SCHEMA COLLECTION",
        "drop the schema collection and create it with all of its schemas",
    ),
)
_REFUSED = [(re.compile(words.replace(" ", _BLANK) + r"\b", re.IGNORECASE), hint) for words, hint in _INSTEAD]


def begins(text: str, at: int) -> bool:
    """Return whether one of these statements begins at this offset."""
    return _BEGINNINGS.match(text, at) is not None


def read(batch: Batch, at: int) -> tuple[Statement, int]:
    """Return the statement that begins at this offset of a batch, and the offset behind it.

    Raises:
        ScriptError: at the word that is not understood.
    """
    for words, hint in _REFUSED:
        if found := words.match(batch.text, at):
            words_found = " ".join(found.group().upper().split())
            raise ScriptError(position_of(batch, at), f"{words_found} is not translated: {hint}")
    return read_statement("pybroker.tsql.administration", _Builder, batch, at)


def _field(name: str) -> Callable[..., tuple[str, Any]]:
    """Make the method of a clause that sets a field to its only value."""

    def method(_: _Builder, children: list[Any]) -> tuple[str, Any]:
        return name, children[0]

    return method


def _words(children: list[Any]) -> str:
    return " ".join(str(one) for one in children)


class _Builder(Transformer[Token, Any]):
    """Makes the tree; a clause is a pair of a field's name and its value."""

    def __init__(self, batch: Batch) -> None:
        super().__init__()
        self._batch = batch

    def start(self, children: list[Any]) -> Statement:
        statement: Statement = children[0]
        return statement

    def _made(
        self, made: Callable[..., Any], meta: Any, given: list[tuple[str, Any]], /, **fields: Any
    ) -> Any:
        position = position_of(self._batch, meta.start_pos)
        for name, value in given:
            if name in fields:
                raise ScriptError(position, f"{name.upper()} is given twice: leave one")
            fields[name] = value
        return made(position=position, **fields)

    def identifier(self, children: list[Token]) -> str:
        token = children[0]
        name = str(token)
        if token.type != "WORD":
            close = name[-1]
            name = name[1:-1].replace(close * 2, close)
        if len(name) > _LONGEST_NAME:
            raise ScriptError(
                position_of(self._batch, token.start_pos or 0),
                f"a name of {len(name)} characters: at most {_LONGEST_NAME} are allowed",
            )
        return name

    def exact(self, children: list[str]) -> str:
        return children[0]

    def name(self, children: list[str]) -> Name:
        return Name(children[-1], children[0] if len(children) > 1 else None)

    def text(self, children: list[Token]) -> str:
        return children[0][:-1].partition("'")[2].replace("''", "'")

    def switch(self, children: list[Token]) -> bool:
        return children[0].upper() == "ON"

    def NUMBER(self, token: Token) -> int:  # noqa: N802 - the terminal's name
        if len(token) > len(str(_LARGEST_NUMBER)) or int(token) > _LARGEST_NUMBER:
            raise ScriptError(
                position_of(self._batch, token.start_pos or 0),
                f"a number above {_LARGEST_NUMBER}: write a smaller one",
            )
        return int(token)

    owner = _field("owner")

    def if_exists(self, _: list[Any]) -> tuple[str, bool]:
        return "if_exists", True

    # What is kept as text.

    def loose_word(self, children: list[Token]) -> str:
        return str(children[0])

    loose_name = loose_word

    def loose_group(self, children: list[Any]) -> str:
        return f"({_words(children)})"

    def loose_option(self, children: list[Any]) -> str:
        return f"{children[0]} = {_words(children[1:])}"

    def with_options(self, children: list[str]) -> tuple[str, str]:
        return "clause", "WITH " + ", ".join(children)

    # Databases.

    @v_args(meta=True)
    def use(self, meta: Any, children: list[Any]) -> Any:
        return self._made(tree.Use, meta, [], database=children[0])

    def no_containment(self, children: list[Any]) -> tuple[str, str]:
        return "clause", f"CONTAINMENT = {children[0].upper()}"

    def files(self, children: list[Any]) -> tuple[str, str]:
        return "clause", "ON " + re.sub(r"\) (?=\(|filegroup )", "), ", _words(children), flags=re.IGNORECASE)

    def log_files(self, children: list[Any]) -> tuple[str, str]:
        return "clause", "LOG ON " + ", ".join(children)

    def attached(self, children: list[Any]) -> tuple[str, str]:
        first = children[0].upper()
        return "clause", f"FOR {first}" if len(children) == 1 else f"AS {first} OF {_bracketed(children[1])}"

    def collation(self, children: list[Any]) -> tuple[str, str]:
        return "clause", f"COLLATE {children[0]}"

    def simple_option(self, children: list[Any]) -> tuple[str, str]:
        name = str(children[0]).upper()
        if len(children) == 1:
            return "option", name
        value = children[1]
        is_word = isinstance(value, Token) and value.type in ("ON", "OFF", "RECOVERY_MODEL")
        between = " " if str(value).startswith("(") or (is_word and len(children) == 2) else " = "  # noqa: PLR2004 - a name and a word
        return "option", f"{name}{between}{_words(children[1:])}"

    def broker_action(self, children: list[Token]) -> tuple[str, str]:
        return "action", children[0].upper()

    def honor_broker_priority(self, children: list[bool]) -> tuple[str, bool]:
        return "honor_broker_priority", children[0]

    def database_options(self, children: list[tuple[str, str]]) -> list[tuple[str, str]]:
        return children

    def termination(self, children: list[Any]) -> tuple[str, str]:
        return "termination", _words(children).upper()

    @v_args(meta=True)
    def create_database(self, meta: Any, children: list[Any]) -> Any:
        clauses = [one for child in children[1:] for one in (child if isinstance(child, list) else [child])]
        kept = [value for name, value in clauses if name == "clause"]
        options = [value for name, value in clauses if name == "option"]
        written = (*kept, *(f"WITH {option}" for option in options))
        actions = [one for one in clauses if one[0] == "action"]
        return self._made(tree.CreateDatabase, meta, actions, database=children[0], clauses=written)

    def alter_option(self, children: list[Any]) -> Any:
        return children[0]

    @v_args(meta=True)
    def alter_database(self, meta: Any, children: list[Any]) -> Any:
        options = tuple(value for name, value in children[1:] if name == "option")
        clauses = [one for one in children[1:] if one[0] != "option"]
        return self._made(tree.AlterDatabase, meta, clauses, database=children[0], clauses=options)

    @v_args(meta=True)
    def drop_database(self, meta: Any, children: list[Any]) -> Any:
        names = tuple(one for one in children if isinstance(one, str))
        clauses = [one for one in children if isinstance(one, tuple)]
        return self._made(tree.DropDatabase, meta, clauses, databases=names)

    # Principals.

    def _principal(self, kind: str, meta: Any, children: list[Any]) -> Any:
        name, *rest = children
        clauses: list[str] = []
        mapped: list[str] = []
        windows = False
        for one in rest:
            if isinstance(one, tuple):
                clauses.append(one[1])
            elif isinstance(one, Token):
                windows = windows or one.type == "WINDOWS"
                mapped.append(one.upper())
            else:
                mapped.append(_bracketed(one))
        if mapped:
            text = " ".join(mapped)
            begin = "" if text.startswith("WITHOUT") else "FROM " if kind == "LOGIN" else "FOR "
            clauses.insert(0, begin + text)
        return self._made(
            tree.CreatePrincipal, meta, [], kind=kind, name=name, clauses=tuple(clauses), windows=windows
        )

    @v_args(meta=True)
    def create_login(self, meta: Any, children: list[Any]) -> Any:
        # A certificate's name alone: its keyword is filtered out.
        if len(children) > 1 and not isinstance(children[1], (tuple, Token)):
            children = [children[0], Token("CERTIFICATE", "CERTIFICATE"), children[1]]
        return self._principal("LOGIN", meta, children)

    @v_args(meta=True)
    def create_user(self, meta: Any, children: list[Any]) -> Any:
        return self._principal("USER", meta, children)

    @v_args(meta=True)
    def create_role(self, meta: Any, children: list[Any]) -> Any:
        return self._made(tree.CreatePrincipal, meta, children[1:], kind="ROLE", name=children[0])

    @v_args(meta=True)
    def alter_login(self, meta: Any, children: list[Any]) -> Any:
        how = children[1][1] if isinstance(children[1], tuple) else children[1].upper()
        return self._no_meaning(
            meta,
            f"ALTER LOGIN {_bracketed(children[0])} {how}",
            "the server's roles are changed by ALTER ROLE",
        )

    @v_args(meta=True)
    def alter_user(self, meta: Any, children: list[Any]) -> Any:
        return self._no_meaning(
            meta,
            f"ALTER USER {_bracketed(children[0])} {children[1][1]}",
            "a principal has neither a login nor a schema",
        )

    @v_args(meta=True)
    def member(self, meta: Any, children: list[Any]) -> Any:
        role, verb, member = children
        return self._made(tree.Member, meta, [], role=role, verb=verb.upper(), member=member)

    @v_args(meta=True)
    def drop_principal(self, meta: Any, children: list[Any]) -> Any:
        kind, *rest, name = children
        return self._made(tree.DropPrincipal, meta, rest, kind=kind.upper(), name=name)

    # Keys and certificates.

    @v_args(meta=True)
    def master_key(self, meta: Any, children: list[Any]) -> Any:
        return self._made(tree.MasterKey, meta, [("password", one) for one in children])

    @v_args(meta=True)
    def key_without_meaning(self, meta: Any, _: list[Any]) -> Any:
        words = self._batch.text[meta.start_pos : meta.end_pos]
        return self._no_meaning(
            meta, " ".join(words.split()), "the master key is a file of the worker's key directory"
        )

    def by_password(self, children: list[str]) -> tuple[str, str]:
        return "password", children[0]

    subject = _field("subject")
    start_date = _field("start_date")
    expiry_date = _field("expiry_date")
    key_file = _field("file")
    decryption = _field("decryption")
    encryption = _field("encryption")
    active = _field("active")

    def made(self, children: list[Any]) -> list[Any]:
        return children

    def from_file(self, children: list[Any]) -> list[Any]:
        return [("file", children[0]), *children[1:]]

    def from_binary(self, children: list[Any]) -> list[Any]:
        return [("binary", str(children[0])), *children[1:]]

    @v_args(meta=True)
    def private_key(self, meta: Any, children: list[Any]) -> tuple[str, tree.PrivateKey]:
        fields = dict(children)
        if len(fields) < len(children):
            raise ScriptError(
                position_of(self._batch, meta.start_pos), "PRIVATE KEY has an option twice: leave one"
            )
        return "private_key", tree.PrivateKey(**fields)

    @v_args(meta=True)
    def certificate(self, meta: Any, children: list[Any]) -> Any:
        name, *rest = children
        clauses = [one for child in rest for one in (child if isinstance(child, list) else [child])]
        return self._made(tree.Certificate, meta, clauses, name=name)

    @v_args(meta=True)
    def alter_certificate(self, meta: Any, children: list[Any]) -> Any:
        return self._made(tree.AlterCertificate, meta, children[1:], name=children[0])

    @v_args(meta=True)
    def backup_certificate(self, meta: Any, children: list[Any]) -> Any:
        return self._made(tree.BackupCertificate, meta, children[2:], name=children[0], file=children[1])

    # Endpoints.

    def tcp(self, children: list[Any]) -> list[Any]:
        return children

    def listener_port(self, children: list[int]) -> tuple[str, int]:
        return "port", children[0]

    def listener_ip(self, children: list[Any]) -> tuple[str, str]:
        one = children[0]
        return "ip", "ALL" if isinstance(one, Token) and one.type == "ALL" else str(one)

    def service_broker(self, children: list[Any]) -> list[Any]:
        flat = [one for child in children for one in (child if isinstance(child, list) else [child])]
        return [("service_broker", True), *flat]

    def authentication(self, children: list[Any]) -> Any:
        return children[0]

    def windows(self, children: list[Token]) -> tuple[str, str]:
        return "windows", _words(children).upper()

    def by_certificate(self, children: list[str]) -> tuple[str, str]:
        return "certificate", children[0]

    def authentications(self, children: list[Any]) -> list[Any]:
        return children

    def endpoint_encryption(self, children: list[Token]) -> list[tuple[str, str]]:
        mode, *algorithms = children
        found = [("encryption", mode.upper())]
        return [*found, ("algorithm", _words(algorithms).upper())] if algorithms else found

    def forwarding(self, children: list[Token]) -> tuple[str, str]:
        return "forwarding", children[0].upper()

    def forward_size(self, children: list[int]) -> tuple[str, int]:
        return "forward_size", children[0]

    @v_args(meta=True)
    def endpoint(self, meta: Any, children: list[Any]) -> Any:
        verb, name, *rest = children
        clauses: list[tuple[str, Any]] = []
        for child in rest:
            if isinstance(child, Token):
                clauses.append(("state", child.upper()))
            else:
                clauses += child if isinstance(child, list) else [child]
        return self._made(tree.Endpoint, meta, clauses, verb=verb.upper(), name=name)

    # Event notifications, schemas.

    def event(self, children: list[Token]) -> tuple[str, str]:
        return "event", children[0].upper()

    def fan_in(self, _: list[Any]) -> tuple[str, bool]:
        return "fan_in", True

    def event_scope(self, children: list[Any]) -> tuple[str, tuple[str, Name | None]]:
        return "scope", (children[0].upper(), children[1] if len(children) > 1 else None)

    @v_args(meta=True)
    def event_notification(self, meta: Any, children: list[Any]) -> Any:
        name, (_, (scope, queue)), *rest = children
        texts = [one for one in rest if isinstance(one, str)]
        return self._made(
            tree.EventNotification,
            meta,
            [one for one in rest if isinstance(one, tuple) and one[0] == "fan_in"],
            name=name,
            scope=scope,
            queue=queue,
            events=tuple(one[1] for one in rest if isinstance(one, tuple) and one[0] == "event"),
            service=texts[0],
            broker_instance=texts[1] if len(texts) > 1 else None,
        )

    @v_args(meta=True)
    def drop_event_notification(self, meta: Any, children: list[Any]) -> Any:
        *names, (_, (scope, queue)) = children
        return self._made(tree.DropEventNotification, meta, [], names=tuple(names), scope=scope, queue=queue)

    @v_args(meta=True)
    def schema_collection(self, meta: Any, children: list[Any]) -> Any:
        return self._made(tree.SchemaCollection, meta, [], name=children[0], text=children[1])

    @v_args(meta=True)
    def create_schema(self, meta: Any, children: list[Any]) -> Any:
        clauses = [("name", one) if isinstance(one, str) else one for one in children]
        return self._made(tree.Schema, meta, clauses)

    def drop_kind(self, children: list[Token]) -> str:
        return _words(children).upper()

    @v_args(meta=True)
    def drop_object(self, meta: Any, children: list[Any]) -> Any:
        kind, *rest, name = children
        return self._made(tree.DropObject, meta, rest, kind=kind, name=name)

    # Rights.

    def securable(self, children: list[Any]) -> tree.Securable:
        return tree.Securable(name=children[-1], kind=children[0] if len(children) > 1 else None)

    def securable_class(self, children: list[Token]) -> str:
        return _words(children).upper()

    def permission(self, children: list[Token]) -> str:
        return _words(children).upper()

    def permissions(self, children: list[str]) -> tuple[str, ...]:
        return tuple(children)

    def grant_option(self, _: list[Any]) -> tuple[str, bool]:
        return "option", True

    def as_grantor(self, children: list[str]) -> tuple[str, str]:
        return "grantor", children[0]

    @v_args(meta=True)
    def authorization(self, meta: Any, children: list[Any]) -> Any:
        owner = None if isinstance(children[1], Token) else children[1]
        return self._made(tree.Authorization, meta, [], securable=children[0], owner=owner)

    def _permission(self, verb: str, meta: Any, children: list[Any]) -> Any:
        permissions, *rest = children
        clauses: list[tuple[str, Any]] = []
        for one in rest:
            if isinstance(one, tree.Securable):
                clauses.append(("securable", one))
            elif isinstance(one, Token):
                clauses.append(("cascade", True))
            elif isinstance(one, tuple):
                clauses.append(one)
        principals = tuple(one for one in rest if isinstance(one, str) and not isinstance(one, Token))
        return self._made(
            tree.Permission, meta, clauses, verb=verb, permissions=permissions, principals=principals
        )

    @v_args(meta=True)
    def grant(self, meta: Any, children: list[Any]) -> Any:
        return self._permission("GRANT", meta, children)

    @v_args(meta=True)
    def revoke(self, meta: Any, children: list[Any]) -> Any:
        return self._permission("REVOKE", meta, children)

    @v_args(meta=True)
    def deny(self, meta: Any, children: list[Any]) -> Any:
        return self._permission("DENY", meta, children)

    # What has no meaning here.

    def _no_meaning(self, meta: Any, text: str, why: str) -> Any:
        return self._made(tree.NoMeaning, meta, [], text=text, why=why)

    @v_args(meta=True)
    def options(self, meta: Any, children: list[Any]) -> Any:
        *names, value = (str(one).upper() for one in children)
        why = _OPTIONS.get(names[0], "PostgreSQL has no such setting")
        if value == "OFF" and names[0] in _OPTIONS_OFF:
            why = _OPTIONS_OFF[names[0]]
        return self._no_meaning(meta, f"SET {', '.join(names)} {value}", why)

    @v_args(meta=True)
    def value_option(self, meta: Any, children: list[Any]) -> Any:
        name, *value = (str(one) for one in children)
        return self._no_meaning(
            meta, f"SET {name.upper()} {''.join(value)}", "PostgreSQL has no such setting"
        )

    @v_args(meta=True)
    def statistics(self, meta: Any, children: list[Any]) -> Any:
        *names, value = (str(one).upper() for one in children)
        return self._no_meaning(
            meta, f"SET STATISTICS {', '.join(names)} {value}", "PostgreSQL's EXPLAIN shows them"
        )

    @v_args(meta=True)
    def isolation(self, meta: Any, _: list[Any]) -> Any:
        return self._no_meaning(
            meta,
            "SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED",
            "no reader waits for a writer, and none sees what is not committed",
        )

    @v_args(meta=True)
    def reconfigure(self, meta: Any, children: list[Any]) -> Any:
        text = "RECONFIGURE WITH OVERRIDE" if children else "RECONFIGURE"
        return self._no_meaning(meta, text, "there is no configuration of SQL Server")

    @v_args(meta=True)
    def configure(self, meta: Any, children: list[Any]) -> Any:
        name = str(children[0])[:-1].partition("'")[2] if children else ""
        if name.lower().startswith("broker"):
            raise ScriptError(
                position_of(self._batch, meta.start_pos),
                f"sp_configure '{name[:40]}' was dropped before SQL Server 2005 was ready:"
                " write CREATE ENDPOINT … FOR SERVICE_BROKER",
            )
        text = "EXEC sp_configure" + ("" if not children else " " + ", ".join(map(str, children)))
        return self._no_meaning(meta, text, "there is no configuration of SQL Server")


def _bracketed(name: str) -> str:
    return "[" + name.replace("]", "]]") + "]"


_OPTIONS = {
    "ANSI_NULLS": "nothing equals NULL, as with ON",
    "CONCAT_NULL_YIELDS_NULL": "a text with NULL is NULL, as with ON",
    "NOCOUNT": "counts of rows are shown at top level, and never sent by a procedure",
    "QUOTED_IDENTIFIER": '"…" is a name, as with ON',
}
_OPTIONS_OFF = {
    "ANSI_NULLS": "OFF is not obeyed: nothing equals NULL",
    "CONCAT_NULL_YIELDS_NULL": "OFF is not obeyed: a text with NULL is NULL",
    "QUOTED_IDENTIFIER": 'OFF is not obeyed: "…" is a name',
}
