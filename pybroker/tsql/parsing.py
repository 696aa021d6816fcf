"""From the text of a definition to its tree, by the grammar of grammar.lark."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeVar

from lark import Token, Transformer, v_args

from pybroker.tsql import tree
from pybroker.tsql.grammars import read_statement
from pybroker.tsql.source import Batch, Position, ScriptError, position_of

if TYPE_CHECKING:
    from collections.abc import Callable

# SQL Server's own limit for a name.
_LONGEST_NAME = 128
_LARGEST_NUMBER = 2**31 - 1
_BEGINNINGS = re.compile(
    r"(?:CREATE|ALTER|DROP)(?:\s|--[^\n]*\n)+(?:MESSAGE|CONTRACT|QUEUE|SERVICE|ROUTE|REMOTE|BROKER)\b",
    re.IGNORECASE,
)
Made = TypeVar("Made", bound=tree.Statement)


def begins(text: str, at: int) -> bool:
    """Return whether one of these statements begins at this offset."""
    return _BEGINNINGS.match(text, at) is not None


def read(batch: Batch, at: int) -> tuple[tree.Statement, int]:
    """Return the definition that begins at this offset of a batch, and the offset behind it.

    Raises:
        ScriptError: at the word that is not understood.
    """
    return read_statement("pybroker.tsql", _Builder, batch, at)


def _field(name: str) -> Callable[..., tuple[str, Any]]:
    """Make the method of a clause that sets a field to its only value."""

    def method(_: _Builder, children: list[Any]) -> tuple[str, Any]:
        return name, children[0]

    return method


class _Builder(Transformer[Token, Any]):
    """Makes the tree; a clause is a pair of a field's name and its value."""

    def __init__(self, batch: Batch) -> None:
        super().__init__()
        self._batch = batch

    def start(self, children: list[Any]) -> tree.Statement:
        statement: tree.Statement = children[0]
        return statement

    def _position(self, meta: Any) -> Position:
        return position_of(self._batch, meta.start_pos)

    def _make(self, kind: type[Made], meta: Any, clauses: list[Any], **fields: Any) -> Made:
        position = self._position(meta)
        for name, value in clauses:
            if name in fields:
                raise ScriptError(position, f"{name.upper()} is given twice: leave one")
            fields[name] = value
        return kind(position=position, **fields)

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

    def name(self, children: list[str]) -> tree.Name:
        return tree.Name(*reversed(children))

    def name_in_dbo(self, children: list[str]) -> tree.Name:
        return tree.Name(children[1], database=children[0])

    def text(self, children: list[Token]) -> str:
        return children[0][:-1].partition("'")[2].replace("''", "'")

    def switch(self, children: list[Token]) -> bool:
        return children[0].upper() == "ON"

    def verb(self, children: list[Token]) -> str:
        return children[0].upper()

    def kind(self, children: list[Token]) -> str:
        return " ".join(children).upper()

    def NUMBER(self, token: Token) -> int:  # noqa: N802 - the terminal's name
        # The length first: int() of a million digits is not linear.
        if len(token) > len(str(_LARGEST_NUMBER)) or int(token) > _LARGEST_NUMBER:
            raise ScriptError(
                position_of(self._batch, token.start_pos or 0),
                f"a number above {_LARGEST_NUMBER}: write a smaller one",
            )
        return int(token)

    owner = _field("owner")
    to_service = _field("to_service")
    on_queue = _field("queue")
    filegroup = _field("filegroup")
    status = _field("status")
    retention = _field("retention")
    poison_message_handling = _field("poison_message_handling")
    procedure = _field("procedure")
    max_queue_readers = _field("max_queue_readers")
    service_name = _field("service_name")
    broker_instance = _field("broker_instance")
    lifetime = _field("lifetime")
    address = _field("address")
    mirror_address = _field("mirror_address")
    user = _field("user")
    anonymous = _field("anonymous")

    def execute_as(self, children: list[Any]) -> tuple[str, str]:
        # A user's name is in brackets, so that one called SELF stays apart from the keyword.
        value = children[0]
        return "execute_as", value.upper() if isinstance(value, Token) else f"[{value}]"

    def drop_activation(self, _: list[Any]) -> tuple[str, bool]:
        return "drop", True

    def contract_name(self, children: list[Any]) -> tuple[str, Any]:
        return "contract_name", "" if isinstance(children[0], Token) else children[0]

    def local_service_name(self, children: list[Any]) -> tuple[str, Any]:
        return "local_service_name", "" if isinstance(children[0], Token) else children[0]

    def remote_service_name(self, children: list[Any]) -> tuple[str, Any]:
        return "remote_service_name", "" if isinstance(children[0], Token) else children[0]

    def priority_level(self, children: list[Any]) -> tuple[str, int]:
        return "priority_level", 0 if isinstance(children[0], Token) else children[0]

    @v_args(meta=True)
    def activation(self, meta: Any, clauses: list[Any]) -> tuple[str, tree.Activation]:
        fields = dict(clauses)
        if len(fields) < len(clauses) or ("drop" in fields and len(fields) > 1):
            raise ScriptError(
                self._position(meta), "ACTIVATION has an option twice, or one beside DROP: leave one"
            )
        return "activation", tree.Activation(**fields)

    def validation(self, children: list[Any]) -> tuple[str, Any]:
        return "validation", (children[0].upper(), children[1] if len(children) > 1 else None)

    @v_args(meta=True)
    def message_type(self, meta: Any, children: list[Any]) -> tree.MessageType:
        verb, name, *clauses = children
        fields = dict(clauses)
        validation, collection = fields.pop("validation", (None, None))
        return tree.MessageType(
            position=self._position(meta),
            verb=verb,
            name=name,
            validation=validation,
            schema_collection=collection,
            **fields,
        )

    def usage(self, children: list[Any]) -> tuple[str, tuple[str, str]]:
        return "usage", (children[0], children[1].upper())

    @v_args(meta=True)
    def contract(self, meta: Any, children: list[Any]) -> tree.Contract:
        owner = [one for one in children[1:] if one[0] == "owner"]
        usages = tuple(one[1] for one in children[1:] if one[0] == "usage")
        return self._make(tree.Contract, meta, owner, name=children[0], usages=usages)

    def rebuild(self, children: list[Any]) -> tuple[str, str]:
        return "maintenance", "REBUILD" + "".join(f" WITH (MAXDOP = {one})" for one in children)

    def reorganize(self, children: list[Any]) -> tuple[str, str]:
        written = (f" WITH (LOB_COMPACTION = {'ON' if one else 'OFF'})" for one in children)
        return "maintenance", "REORGANIZE" + "".join(written)

    def move_to(self, children: list[str]) -> tuple[str, str]:
        return "maintenance", f"MOVE TO [{children[0].replace(']', ']]')}]"

    @v_args(meta=True)
    def queue(self, meta: Any, children: list[Any]) -> tree.Queue:
        return self._make(tree.Queue, meta, children[2:], verb=children[0], name=children[1])

    def contracts(self, children: list[str]) -> tuple[str, tuple[str, ...]]:
        return "contracts", tuple(children)

    @v_args(meta=True)
    def service(self, meta: Any, children: list[Any]) -> tree.Service:
        clauses = [("queue", one) if isinstance(one, tree.Name) else one for one in children[1:]]
        return self._make(tree.Service, meta, clauses, name=children[0])

    def change(self, children: list[Any]) -> tuple[str, str]:
        return children[0].upper(), children[1]

    @v_args(meta=True)
    def alter_service(self, meta: Any, children: list[Any]) -> tree.AlterService:
        clauses = [one for one in children[1:] if one[0] == "queue"]
        changes = tuple(one for one in children[1:] if one[0] != "queue")
        return self._make(tree.AlterService, meta, clauses, name=children[0], changes=changes or None)

    @v_args(meta=True)
    def route(self, meta: Any, children: list[Any]) -> tree.Route:
        return self._make(tree.Route, meta, children[2:], verb=children[0], name=children[1])

    @v_args(meta=True)
    def binding(self, meta: Any, children: list[Any]) -> tree.RemoteServiceBinding:
        return self._make(tree.RemoteServiceBinding, meta, children[2:], verb=children[0], name=children[1])

    @v_args(meta=True)
    def priority(self, meta: Any, children: list[Any]) -> tree.BrokerPriority:
        return self._make(tree.BrokerPriority, meta, children[2:], verb=children[0], name=children[1])

    @v_args(meta=True)
    def drop(self, meta: Any, children: list[Any]) -> tree.Drop:
        return tree.Drop(position=self._position(meta), kind=children[0], name=children[1])
