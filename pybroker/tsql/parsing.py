"""From a script's text to its tree, by the grammar of grammar.lark."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, TypeVar

from lark import Lark, Token, Transformer, v_args
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken, VisitError

from pybroker.tsql import tree
from pybroker.tsql.source import Batch, Position, ScriptError

if TYPE_CHECKING:
    from collections.abc import Callable

# SQL Server's own limit for a name.
_LONGEST_NAME = 128
_LARGEST_NUMBER = 2**31 - 1
_MOST_EXPECTED = 6
Made = TypeVar("Made", bound=tree.Statement)


def parse(batch: Batch) -> list[tree.Statement]:
    """Return the statements of a batch; they stand where they stand in the script.

    Raises:
        ScriptError: at the first word that is not understood.
    """
    try:
        statements: list[tree.Statement] = _Builder(batch.line).transform(_parser().parse(batch.text))
    except UnexpectedInput as error:
        raise _refusal(error, batch) from None
    except VisitError as error:
        if isinstance(error.orig_exc, ScriptError):
            raise error.orig_exc from None
        raise
    return statements


@cache
def _parser() -> Lark:
    grammar = files("pybroker.tsql").joinpath("grammar.lark").read_text("utf-8")
    return Lark(grammar, parser="lalr", lexer="contextual", propagate_positions=True)


def _refusal(error: UnexpectedInput, batch: Batch) -> ScriptError:
    expected: set[str] = set()
    if isinstance(error, UnexpectedToken) and error.token.type == "$END":
        last_line = batch.text.rstrip().rpartition("\n")[2]
        position = Position(batch.line + batch.text.rstrip().count("\n"), len(last_line) + 1)
        found, expected = "the end of the batch", error.accepts or error.expected
    else:
        position = Position(batch.line + (error.line or 1) - 1, error.column or 1)
        if isinstance(error, UnexpectedToken):
            found, expected = f'"{str(error.token)[:40]}"', error.accepts or error.expected
        else:
            at = error.pos_in_stream or 0
            found = f'"{batch.text[at : at + 40].split(maxsplit=1)[0]}"'
            expected = error.allowed if isinstance(error, UnexpectedCharacters) else set()
    words = sorted(_PLAIN.get(one, one) for one in expected if one != "$END")
    if {"CREATE", "ALTER", "DROP"} <= set(words):
        hint = "only CREATE, ALTER and DROP of Service Broker's objects are translated"
    else:
        more = ", …" if len(words) > _MOST_EXPECTED else ""
        hint = f"expected {', '.join(words[:_MOST_EXPECTED])}{more}"
    return ScriptError(position, f"{found} is not understood here: {hint}")


_PLAIN = {
    "WORD": "a name",
    "BRACKETED": "[a name]",
    "DOUBLE_QUOTED": '"a name"',
    "STRING": "'text'",
    "NUMBER": "a number",
    "COMMA": ",",
    "DOT": ".",
    "EQUAL": "=",
    "LPAR": "(",
    "RPAR": ")",
    "SEMICOLON": ";",
}


def _field(name: str) -> Callable[..., tuple[str, Any]]:
    """Make the method of a clause that sets a field to its only value."""

    def method(_: _Builder, children: list[Any]) -> tuple[str, Any]:
        return name, children[0]

    return method


class _Builder(Transformer[Token, Any]):
    """Makes the tree; a clause is a pair of a field's name and its value."""

    def __init__(self, line: int) -> None:
        super().__init__()
        self._before = line - 1

    def start(self, children: list[Any]) -> list[tree.Statement]:
        return children

    def _position(self, meta: Any) -> Position:
        return Position(meta.line + self._before, meta.column)

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
                Position((token.line or 1) + self._before, token.column or 1),
                f"a name of {len(name)} characters: at most {_LONGEST_NAME} are allowed",
            )
        return name

    def exact(self, children: list[str]) -> str:
        return children[0]

    def name(self, children: list[str]) -> tree.Name:
        return tree.Name(children[-1], children[0] if len(children) > 1 else None)

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
                Position((token.line or 1) + self._before, token.column or 1),
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
