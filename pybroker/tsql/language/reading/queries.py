"""Reads SELECT, with assignments or without, and what changes rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pybroker.tsql.language import tree
from pybroker.tsql.language.reading import calls

if TYPE_CHECKING:
    from collections.abc import Callable

    from pybroker.tsql.language.reading.reader import Reader
    from pybroker.tsql.source import Position
    from pybroker.tsql.tree import Statement

_QUERIES = frozenset({"SELECT", "INSERT", "UPDATE", "DELETE", "MERGE"})
_GOES_ON = frozenset({"UNION", "ALL", "EXCEPT", "INTERSECT"})
ASSIGNMENTS = ("=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=")


def select(reader: Reader, position: Position) -> Statement:
    """Read SELECT."""
    if _assigns(reader):
        return _select_variables(reader, position)
    reader.at -= 1
    return _query(reader, position)


def _assigns(reader: Reader) -> bool:
    """Whether a list of variables with their values stands here, with TOP before it or without."""
    first = reader.at
    reader.top()
    one = reader.peek()
    reader.at, behind = first, reader.at
    word = reader.words[behind + 1].word if behind + 1 < len(reader.words) else ""
    return one is not None and one.kind == "variable" and word in ASSIGNMENTS


def _select_variables(reader: Reader, position: Position, with_: tree.Code | None = None) -> Statement:
    top = reader.top()
    assignments = []
    while True:
        one = reader.peek()
        place = reader.place(one.begin) if one is not None else position
        name = reader.variable()
        operator = reader.skip_one(*ASSIGNMENTS)
        if operator is None:
            reader.refuse(None, "=")
        value = reader.code("FROM", "WHERE", "ORDER", "OPTION", comma=True)
        assignments.append(tree.Assign(position=place, variable=name, operator=operator, value=value))
        if not reader.skip(","):
            break
    source = None
    first = reader.at
    reader.span(goes_on=query_goes_on(reader, "SELECT", first))
    if reader.at > first:
        source = reader.code_between(first, reader.at)
    return tree.SelectVariables(
        position=position, with_=with_, top=top, assignments=tuple(assignments), source=source
    )


def data(reader: Reader, position: Position) -> Statement:
    """Read INSERT, UPDATE, DELETE and MERGE, with WITH before them or without."""
    reader.at -= 1
    return _query(reader, position)


def _query(reader: Reader, position: Position) -> Statement:
    first = reader.at
    verb = main_verb(reader)
    if verb == "SELECT" and reader.words[first].word == "WITH" and _assigns(reader):
        return _select_variables(reader, position, reader.code_between(first, reader.at - 1))
    if verb == "MERGE":
        reader.span(goes_on=lambda _: True)
    else:
        inner = query_goes_on(reader, verb, reader.at)
        reader.span(goes_on=inner)
    target = _insert_target(reader, first, verb)
    if target is not None:
        return target
    return tree.Query(position=position, verb=verb, code=reader.code_between(first, reader.at))


def whole(reader: Reader) -> tree.Code:
    """Read a SELECT as it is written, with WITH before it or without."""
    first = reader.at
    main_verb(reader)
    reader.span(goes_on=query_goes_on(reader, "SELECT", first))
    return reader.code_between(first, reader.at)


def main_verb(reader: Reader) -> str:
    """Go behind the verb of a query, and behind WITH before it; return it."""
    if reader.skip("WITH"):
        reader.span(_QUERIES)
    verb = reader.word()
    if verb not in _QUERIES:
        reader.refuse(None, *sorted(_QUERIES))
    reader.at += 1
    return verb


def query_goes_on(reader: Reader, verb: str, first: int) -> Callable[[int], bool]:
    """Return what knows the words that go on with a query."""
    found = {"SELECT": verb != "INSERT", "SET": verb != "UPDATE"}

    def goes_on(at: int) -> bool:
        word = reader.words[at].word
        before = reader.words[at - 1].word
        if word == "SELECT" and before in _GOES_ON:
            return True
        if word in ("EXEC", "EXECUTE") and not found["SELECT"] and not _has_values(reader, first, at):
            return before != "AS" and _note_exec(reader, at)
        if word in found and not found[word]:
            found[word] = True
            return word == "SET" or not _has_values(reader, first, at)
        if word == "FETCH":
            return before in ("ROW", "ROWS")
        return word == "MERGE" and reader.words[min(at + 1, len(reader.words) - 1)].word == "JOIN"

    reader.exec_at = None
    return goes_on


def _note_exec(reader: Reader, at: int) -> bool:
    reader.exec_at = at
    return False


def _has_values(reader: Reader, first: int, at: int) -> bool:
    depth = 0
    for one in reader.words[first:at]:
        if one.kind == "mark":
            depth += (one.word == "(") - (one.word == ")")
        elif one.word == "VALUES" and not depth:
            return True
    return False


def _insert_target(reader: Reader, first: int, verb: str) -> Statement | None:
    if verb != "INSERT" or reader.exec_at is None or reader.exec_at != reader.at:
        return None
    target = reader.code_between(first + 1, reader.at)
    place = reader.place(reader.words[reader.at].begin)
    reader.at += 1
    execute = calls.exec_(reader, place)
    if not isinstance(execute, (tree.Execute, tree.ExecuteText)):
        reader.refuse(None)
    return tree.InsertExecute(
        position=reader.place(reader.words[first].begin), target=target, execute=execute
    )


def truncate(reader: Reader, position: Position) -> Statement:
    """Read TRUNCATE TABLE."""
    first = reader.at - 1
    reader.expect("TABLE")
    reader.name()
    return tree.Query(position=position, verb="TRUNCATE", code=reader.code_between(first, reader.at))
