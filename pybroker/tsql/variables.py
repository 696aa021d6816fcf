"""sqlcmd's variables and commands, and the placeholders of templates, replaced before a script is read."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pybroker.tsql.source import Position, ScriptError, comments, end_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    # From a placeholder's name, its type and its default to its value.
    Ask = Callable[[str, str, str], str]

# A placeholder has no blank behind its "<", as a comparison mostly has, and stands on one line.
_REPLACED = re.compile(
    r"""\$\( (?P<variable>[\w-]+) \)
      | <(?P<placeholder>[^\W\d][^<>,\n]*) , (?P<type>[^<>,\n]*) , (?P<default>[^<>\n]*)>
      | ^:(?P<command>\w+)[ \t]*(?P<rest>[^\n]*)$""",
    re.MULTILINE | re.VERBOSE,
)
_SETVAR = re.compile(r"""(?P<name>[\w-]+)(?:[ \t]+(?:"(?P<quoted>(?:[^"]|"")*)"|(?P<plain>\S+)))?[ \t]*""")
_NO_MEANING = {"error", "help", "list", "listvar", "out", "perftrace", "reset", "serverlist"}


@dataclass(frozen=True, slots=True)
class Script:
    """A text whose variables are replaced.

    Attributes:
        text: what is to be read, with as many lines as the file.
        goes_on_after_error: whether the script says `:on error ignore`.
    """

    text: str
    goes_on_after_error: bool = False
    # For each line: where in the new line a value begins and ends, and where the variable did in the old one.
    _values: Mapping[int, list[tuple[int, int, int, int]]] = field(default_factory=dict)

    def place(self, position: Position) -> Position:
        """Return where the file has what stands here in the text."""
        values = self._values.get(position.line, [])
        before = bisect_right(values, position.column, key=lambda value: value[0])
        if not before:
            return position
        _, new_end, old_begin, old_end = values[before - 1]
        behind = position.column - new_end
        return Position(position.line, old_begin if behind < 0 else old_end + behind)


def replace(text: str, defined: Mapping[str, str], ask: Ask | None = None) -> Script:
    """Replace `$(variable)` and `<name, type, default>`, and obey `:setvar` and `:on error`.

    Args:
        text: with newlines alone.
        defined: names in any case, with their values.
        ask: for the value of a placeholder that is not defined.

    Raises:
        ScriptError: at what has no value, and at a command of sqlcmd that is not known.
    """
    known = {name.casefold(): value for name, value in defined.items()}
    return _Replacing(text, known, ask).script()


class _Replacing:
    def __init__(self, text: str, known: dict[str, str], ask: Ask | None) -> None:
        self._text = text
        self._known = known
        self._given = frozenset(known)
        self._ask = ask
        self._goes_on = False
        self._comments: list[tuple[int, int]] | None = None

    def script(self) -> Script:
        parts: list[str] = []
        values: dict[int, list[tuple[int, int, int, int]]] = {}
        begin, line, line_begin, grown = 0, 1, 0, 0
        for found in _REPLACED.finditer(self._text):
            at = found.start()
            newlines = self._text.count("\n", begin, at)
            if newlines:
                line, line_begin, grown = line + newlines, self._text.rindex("\n", begin, at) + 1, 0
            parts.append(self._text[begin:at])
            begin = found.end()
            value = self._value(found)
            parts.append(value)
            old_begin = at - line_begin + 1
            old_end = found.end() - line_begin + 1
            values.setdefault(line, []).append(
                (old_begin + grown, old_begin + grown + len(value), old_begin, old_end)
            )
            grown += len(value) - len(found.group())
        return Script("".join([*parts, self._text[begin:]]), self._goes_on, values)

    def _value(self, found: re.Match[str]) -> str:
        if found["command"] is not None:
            return self._obey(found)
        name = (found["variable"] or found["placeholder"]).strip()
        value = self._known.get(name.casefold())
        if value is None and self._is_comment(found.start()):
            return found.group()
        if value is None and found["placeholder"] and self._ask is not None:
            value = self._ask(name, found["type"].strip(), found["default"].strip())
            self._known[name.casefold()] = value
        if value is None:
            raise self._refusal(found, f"{found.group()} has no value: give --define '{name}=…'")
        if "\n" in value or "\r" in value:
            raise self._refusal(found, f"the value of {name} has several lines: write it in one")
        return value

    def _obey(self, found: re.Match[str]) -> str:
        command, rest = found["command"].lower(), found["rest"].strip()
        if self._is_comment(found.start()):
            return found.group()
        if command == "setvar" and (set_to := _SETVAR.fullmatch(rest)):
            name = set_to["name"].casefold()
            value = set_to["plain"] or (set_to["quoted"] or "").replace('""', '"')
            # What the command line says is stronger than the script, as in sqlcmd.
            if name not in self._given:
                self._known[name] = value
        elif command == "on" and (action := rest.lower().split()) in (["error", "exit"], ["error", "ignore"]):
            self._goes_on = action[1] == "ignore"
        elif command not in _NO_MEANING:
            raise self._refusal(
                found, f":{command} is not understood here: of sqlcmd's commands use :setvar and :on error"
            )
        return ""

    def _is_comment(self, at: int) -> bool:
        if self._comments is None:
            self._comments = list(comments(self._text))
        before = bisect_right(self._comments, at, key=lambda span: span[0])
        return bool(before) and at < self._comments[before - 1][1]

    def _refusal(self, found: re.Match[str], message: str) -> ScriptError:
        return ScriptError(end_of(self._text[: found.start()]), message)
