"""Texts of EXEC and sp_executesql in a module: where the shape is known, the statements stand in place.

A text is literals, variables that hold literals, and values between them. A value becomes a parameter, so
no value of it is ever read as SQL. Where a definition has a name or a text that is no expression, a mark
stands for the value until the statement is printed.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn

from pybroker.tsql.calls import declared, parameter_of
from pybroker.tsql.language import read, tree
from pybroker.tsql.language.jumps import Left, Repeated
from pybroker.tsql.language.words import words
from pybroker.tsql.procedures import flow
from pybroker.tsql.source import Batch, Position, ScriptError, batches, offset_of
from pybroker.tsql.tree import Statement

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_NUMBER_AS_TEXT = re.compile(
    r"""CAST\s*\(\s*(?P<cast>@\w+)\s+AS\s+N?(?:VAR)?CHAR\s*(?:\(\s*\w+\s*\))?\s*\)
      | CONVERT\s*\(\s*N?(?:VAR)?CHAR\s*(?:\(\s*\w+\s*\))?\s*,\s*(?P<convert>@\w+)\s*\)""",
    re.IGNORECASE | re.VERBOSE,
)
# Where a quote in them would be taken for that of a text.
_MISLEADING = re.compile(r"--|/\*|\[[^\]]*'|\"")
_CHARACTER = re.compile(r"N?CHAR\s*\(\s*(9|10|13|32|39)\s*\)", re.IGNORECASE)
_QUOTED_NAME = re.compile(r"QUOTENAME\s*\((?P<name>.*)\)", re.IGNORECASE | re.DOTALL)
_VARIABLE = re.compile(r"@\w+")
# What stands for a value in a name; a name that is folded has it in lower case.
_MARK = "__PYBROKER_{line}_{column}_{number}__"
ANY_MARK = re.compile(r"__PYBROKER_\d+_\d+_(\d+)__", re.IGNORECASE)
_OF_PRINCIPALS = ("execute_as", "grantor", "member", "owner", "principals", "role", "user")
_SHAPE = "the shape of the text is not known here: write the statement, or an IF for each"
# A variable's text may be run again and again, and hold others.
_MOST_CHARACTERS, _MOST_PARTS = 200_000, 100
_LONGEST, _DIGITS = 2**30, 4
_INSTEAD: dict[type, str] = {
    tree.Cursor: "a cursor in a text has no form here: write it outside of the text",
    tree.DeclareCursor: "a cursor in a text has no form here: write it outside of the text",
    tree.Fetch: "a cursor in a text has no form here: write it outside of the text",
    tree.Goto: "GOTO in a text has no form here: write IF",
    tree.Label: "a label in a text has no form here: write IF",
    tree.Return: "RETURN in a text has no form here: write IF around what follows it",
    tree.Transaction: "a transaction in a text has no form here: write it around EXEC",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A value that a text gets: a parameter's, or a part of it.

    Attributes:
        name: of the variable in the text.
        value: what it gets, in the scope around the text.
        type: as it is declared; None for that of the value.
        output: the variable around the text that gets its last value.
        is_part: whether it is a part of the text, which is NULL where the part is.
        is_number: whether the part must be a number, as it stands outside of quotes.
        mark: what stands for it in the text's names.
        pattern: what its value must match, as it is a name or a part of one.
    """

    name: str
    value: tree.Code
    type: tree.Type | None = None
    output: str | None = None
    is_part: bool = False
    is_number: bool = False
    mark: str | None = None
    pattern: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Text(tree.Block):
    """The statements of a text, with a scope of their own.

    Attributes:
        given: its values.
        place: tells where the script has what stands somewhere in the text.
    """

    given: tuple[Given, ...] = ()
    place: Callable[[Position], Position] = field(default=lambda position: position, compare=False)


@dataclass(frozen=True, slots=True)
class _Part:
    """A literal, or a value; a literal's `text` is what it says."""

    code: tree.Code
    text: str | None = None

    def place(self, offset: int) -> Position:
        """Return where a character of what a literal says stands."""
        if "'" not in self.code.text:
            return self.code.position
        at = self.code.text.index("'") + 1
        for _ in range(offset):
            at += 2 if self.code.text[at] == "'" else 1
        return self.code.place(at)


_Known = dict[str, tuple[_Part, ...]]


def expanded(body: Sequence[Statement]) -> tuple[Statement, ...]:
    """Return a module's statements with those of its texts in place.

    Raises:
        ScriptError: at a text whose shape is not known, or that is not understood.
    """
    if not any(
        isinstance(each, tree.Execute | tree.ExecuteText) for one in body for each in flow.statements(one)
    ):
        return tuple(body)
    return _Expanding(body, [_MOST_CHARACTERS]).all(body, {})


class _Expanding:
    def __init__(self, body: Sequence[Statement], left: list[int]) -> None:
        # How many characters of texts the module may still have.
        self._left = left
        self._lengths = {
            each.name.casefold(): _length(each.type)
            for one in body
            for each in flow.statements(one)
            if isinstance(each, tree.Variable)
        }

    def all(self, body: Sequence[Statement], known: _Known) -> tuple[Statement, ...]:
        return tuple(self._one(one, known) for one in body)

    def _one(self, one: Any, known: _Known) -> Statement:  # noqa: PLR0911 - a case for each class
        """Return a statement; `known` is what variables hold before it, and then behind it."""
        match one:
            case Left():
                inner = self.all(one.statements, dict(known))
                _forget(known, _written(one))
                return replace(one, statements=inner)
            case Repeated():
                _forget(known, _written(one))
                inner = self.all(one.statements, dict(known))
                return replace(one, statements=inner)
            case tree.Block():
                return replace(one, statements=self.all(one.statements, known))
            case tree.If():
                then = self._one(one.then, dict(known))
                otherwise = None if one.otherwise is None else self._one(one.otherwise, dict(known))
                _forget(known, _written(one))
                return replace(one, then=then, otherwise=otherwise)
            case tree.While():
                _forget(known, _written(one))
                return replace(one, body=self._one(one.body, dict(known)))
            case tree.TryCatch():
                body = self.all(one.body, dict(known))
                _forget(known, _written(one))
                return replace(one, body=body, handler=self.all(one.handler, dict(known)))
            case tree.ExecuteText():
                return self._text(one, one.text, known, [])
            case tree.Execute() if one.procedure.name.lower() == "sp_executesql":
                made = self._execute_sql(one, known)
                _forget(known, _written(one))
                return made
            case tree.InsertExecute():
                return replace(one, execute=self._one(one.execute, known))
        _remember(one, known, self._lengths)
        return one  # type: ignore[no-any-return]

    def _execute_sql(self, one: tree.Execute, known: _Known) -> Statement:
        if not one.arguments or one.arguments[0].value is None:
            raise ScriptError(one.position, "sp_executesql has a text")
        if one.result is not None:
            raise ScriptError(
                one.position, "sp_executesql returns the text's error: use TRY … CATCH around it"
            )
        parameters, given = declared(_with_parameters(one, known)), []
        for number, argument in enumerate(one.arguments[2:]):
            parameter = parameter_of(parameters, number, argument, one)
            if argument.value is None or "@@" in argument.value.text:
                raise ScriptError(
                    one.position,
                    f"the value of {parameter.name} has no form here: put it into a variable before",
                )
            given.append(
                Given(
                    name=parameter.name,
                    value=argument.value,
                    type=parameter.type,
                    output=argument.value.text.strip() if argument.is_output else None,
                )
            )
        return self._text(one, one.arguments[0].value, known, given)

    def _text(self, one: Statement, code: tree.Code, known: _Known, given: list[Given]) -> Statement:
        parts = list(_parts(code, known))
        marked: set[int] = set()
        while True:
            shape = _Shape(one.position, list(given), marked)
            for part in parts:
                shape.add(part)
            text = shape.finished()
            self._left[0] -= len(text)
            if self._left[0] < 0:
                raise ScriptError(
                    one.position, f"texts of more than {_MOST_CHARACTERS} characters: divide them"
                )
            try:
                statements = _read(text)
                inner = _Expanding(statements, self._left).all(statements, {})
            except ScriptError as error:
                number = shape.value_at(error.position)
                if number is not None:
                    # A definition has a text there, and no expression.
                    marked.add(number)
                    continue
                if shape.first_bare is not None:
                    raise ScriptError(shape.first_bare, _SHAPE) from None
                raise ScriptError(shape.place(error.position), f"in the text of EXEC: {error}") from None
            return Text(position=one.position, statements=inner, given=tuple(shape.given), place=shape.place)


def _with_parameters(one: tree.Execute, known: _Known) -> tree.Execute:
    """Return sp_executesql with the text of its parameters in place of a variable that holds it."""
    text, *rest = one.arguments
    if not rest or rest[0].value is None or not _VARIABLE.fullmatch(rest[0].value.text.strip()):
        return one
    code = rest[0].value
    pieces = [part.text for part in _parts(code, known)]
    if None in pieces:
        return one
    written = "".join(filter(None, pieces)).replace("'", "''")
    parameters = replace(rest[0], value=tree.Code(f"N'{written}'", code.position))
    return replace(one, arguments=(text, parameters, *rest[1:]))


class _Shape:
    """Joins the parts of a text; values become variables, and marks where a name has them.

    Args:
        position: of EXEC.
        given: the values of parameters.
        marked: the values within quotes that marks stand for, by their numbers.
    """

    def __init__(self, position: Position, given: list[Given], marked: set[int]) -> None:
        self.given = given
        # Where a value stands that is a whole name, as the text reads.
        self.first_bare: Position | None = None
        self._marked = marked
        self._values: list[tuple[int, int, int]] = []
        self._position = position
        self._in_brackets = False
        self._text = ""
        self._literals: list[tuple[int, _Part, int]] = []
        # Where the text that is open now begins; None outside of quotes.
        self._quote: int | None = None
        self._is_joined = False

    def add(self, part: _Part) -> None:
        if part.text is None:
            self._value(part.code)
            return
        text, skipped = part.text, 0
        if self._is_joined:
            self._is_joined = False
            if text.startswith("'") and not text.startswith("''"):
                text, skipped, self._quote = text[1:], 1, None
            else:
                self._text += " + N'"
                self._quote = len(self._text) - 1
        self._literals.append((len(self._text), part, skipped))
        for at, character in enumerate(text, len(self._text)):
            if self._quote is None and character in "[]":
                self._in_brackets = character == "["
            elif character == "'" and not self._in_brackets:
                self._quote = at if self._quote is None else None
        self._text += text

    def _value(self, code: tree.Code) -> None:
        count = len(self.given) + 1
        name, begin = f"@value{count}", len(self._text)
        if self._quote is None and not self._is_joined:
            number = _NUMBER_AS_TEXT.fullmatch(code.text)
            if number is None or self._in_brackets:
                self._name(name, code)
                return
            code = tree.Code(number["cast"] or number["convert"], code.position)
            self._text += name
            self.given.append(Given(name=name, value=code, is_part=True, is_number=True))
            return
        if count in self._marked and not self._is_joined:
            self._mark(name, code, None)
            return
        if self._is_joined:
            self._text += f" + {name}"
        elif self._quote == len(self._text) - 1:
            self._text = re.sub(r"(?:\bN)?'\Z", "", self._text, flags=re.IGNORECASE) + name
        else:
            self._text += f"' + {name}"
        self._values.append((begin, len(self._text), count))
        self._is_joined = True
        self.given.append(Given(name=name, value=code, is_part=True))

    def _name(self, name: str, code: tree.Code) -> None:
        """Add a value that stands where a name does."""
        if self._in_brackets:
            self._mark(name, code, "[^]]*")
            return
        quoted = _QUOTED_NAME.fullmatch(code.text)
        inner = list(words(Batch(quoted["name"]))) if quoted else []
        if quoted is None or not _is_one(inner):
            self.first_bare = self.first_bare or code.position
            self._mark(name, code, "[[:alpha:]_][[:alnum:]_@#$]*")
            return
        self._text += "["
        self._mark(name, tree.Code(quoted["name"], code.place(quoted.start("name"))), None)
        self._text += "]"

    def _mark(self, name: str, code: tree.Code, pattern: str | None) -> None:
        place, count = self._position, len(self.given) + 1
        mark = _MARK.format(line=place.line, column=place.column, number=count)
        self._text += mark
        self.given.append(Given(name=name, value=code, is_part=True, mark=mark, pattern=pattern))

    def value_at(self, position: Position) -> int | None:
        """Return the number of the value that stands within quotes at a place of the text, or near it."""
        offset = offset_of(Batch(self._text), position)
        for begin, end, number in self._values:
            if begin - 2 <= offset <= end + 1 and number not in self._marked:
                return number
        return None

    def finished(self) -> str:
        has_values = any(one.is_part for one in self.given)
        said = [part.text or "" for _, part, _ in self._literals]
        if self._is_joined or (has_values and any(map(_MISLEADING.search, said))):
            raise ScriptError(self._position, _SHAPE)
        return self._text

    def place(self, position: Position) -> Position:
        """Return where the script has what stands here in the text."""
        offset = offset_of(Batch(self._text), position)
        for begin, part, skipped in reversed(self._literals):
            if begin <= offset:
                return part.place(min(offset - begin + skipped, len(part.text or "")))
        return self._position


def _parts(code: tree.Code, known: _Known) -> Iterator[_Part]:
    """Yield what + joins in an expression."""
    operand: list[Any] = []
    depth = 0
    for one in [*words(Batch(code.text)), None]:
        if one is not None and (one.word != "+" or depth):
            depth += (one.word == "(") - (one.word == ")")
            operand.append(one)
            continue
        if not operand:
            raise ScriptError(code.position, _SHAPE)
        first = operand[0]
        piece = tree.Code(code.text[first.begin : operand[-1].end], code.place(first.begin))
        character = _CHARACTER.fullmatch(piece.text)
        if character is not None:
            yield _Part(piece, chr(int(character[1])))
        elif len(operand) == 1 and first.kind == "text":
            yield _Part(piece, first.written.partition("'")[2][:-1].replace("''", "'"))
        elif len(operand) == 1 and first.written.casefold() in known:
            yield from known[first.written.casefold()]
        else:
            yield _Part(piece)
        operand = []


def _is_one(inner: Sequence[Any]) -> bool:
    """Whether words are one argument of a function, which ends with them."""
    depth = 0
    for one in inner:
        depth += (one.word == "(") - (one.word == ")")
        if depth < 0 or (depth == 0 and one.word == ","):
            return False
    return bool(inner) and depth == 0


def code_and_principals(one: Text) -> Iterator[str]:
    """Yield a text's code, and the users, roles and owners that it names; some names mean others here."""
    for each in flow.statements(one):
        if isinstance(each, tree.Code):
            yield each.text
        for field_ in _OF_PRINCIPALS:
            named = getattr(each, field_, None) or ()
            yield from (named,) if isinstance(named, str) else named


def refuse_shape(one: Text) -> NoReturn:
    """Refuse a text with a value where it would be SQL.

    Raises:
        ScriptError: always.
    """
    first = next(each for each in one.given if each.mark is not None)
    raise ScriptError(first.value.position, _SHAPE)


def _remember(one: Any, known: _Known, lengths: dict[str, int]) -> None:
    """Note what variables hold behind a statement."""
    match one:
        case tree.Declare():
            pairs = [(each.name, "=", getattr(each, "default", None)) for each in one.variables]
        case tree.Assign():
            pairs = [(one.variable, one.operator, one.value)]
        case tree.SelectVariables(source=None, top=None):
            pairs = [(each.variable, each.operator, each.value) for each in one.assignments]
        case _:
            _forget(known, _written(one))
            return
    for name, operator, value in pairs:
        key = name.casefold()
        before = () if operator == "=" else known.get(key)
        parts: tuple[_Part, ...] = ()
        if value is not None and before is not None and operator in ("=", "+="):
            with suppress(ScriptError):
                parts = (*before, *_parts(value, known))
        _forget(known, {key})
        said = [part.text for part in parts if part.text is not None]
        # A text that its variable cuts off is another one.
        if (
            said
            and len(parts) <= _MOST_PARTS
            and sum(map(len, said)) <= lengths.get(key, 0)
            and not _names(parts, key)
        ):
            known[key] = parts


def _length(type_: tree.Type) -> int:
    if type_.name.name.lower() not in ("varchar", "nvarchar"):
        return 0
    written = "1" if not type_.arguments else type_.arguments[0]
    return int(written) if len(written) <= _DIGITS and written.isdigit() else _LONGEST


def _names(parts: Sequence[_Part], key: str) -> bool:
    """Whether a value of a text reads a variable."""
    values = (part.code.text for part in parts if part.text is None)
    return any(key == found.casefold() for value in values for found in _VARIABLE.findall(value))


def _forget(known: _Known, names: set[str]) -> None:
    for key in [
        one for one, parts in known.items() if one in names or any(_names(parts, name) for name in names)
    ]:
        del known[key]


def _written(one: Any) -> set[str]:
    """Return the variables that a statement may give a value, with those of the statements within it."""
    found: set[str] = set()
    for each in flow.statements(one):
        if isinstance(each, tree.Query):
            found.update(map(str.casefold, _VARIABLE.findall(each.code.text)))
        if isinstance(each, tree.Argument) and each.is_output and each.value is not None:
            found.add(each.value.text.strip().casefold())
        if is_dataclass(each) and not isinstance(each, tree.Code | tree.Argument):
            for item in fields(each):
                value = getattr(each, item.name)
                names = value if isinstance(value, tuple) else (value,)
                found.update(
                    name.casefold() for name in names if isinstance(name, str) and name.startswith("@")
                )
    return found


def _read(text: str) -> list[Statement]:
    """Read a text, and refuse what means something else within it."""
    found = list(batches(text))
    if len(found) > 1:
        raise ScriptError(Position(found[1].line, 1), "GO is no statement: leave it out")
    statements = [each for batch in found for each in read(batch)]
    for one in statements:
        for each in flow.statements(one):
            if type(each) in _INSTEAD:
                raise ScriptError(each.position, _INSTEAD[type(each)])
            if isinstance(each, tree.CreateTable) and each.name.name.startswith("#"):
                raise ScriptError(
                    each.position, "a temporary table of a text goes with it: use a table variable"
                )
    outside = list(statements)
    while outside:
        one = outside.pop()
        if isinstance(one, tree.Break | tree.Continue):
            raise ScriptError(one.position, "BREAK or CONTINUE stands in no WHILE of its text")
        if not isinstance(one, tree.While):
            outside += [each for each in flow.parts(one) if isinstance(each, Statement)]
    return statements
