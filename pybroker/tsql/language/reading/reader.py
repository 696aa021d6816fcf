"""Reads a batch word by word: names, values, and expressions, which end where the next statement begins."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from pybroker.tsql import administration, parsing
from pybroker.tsql.language import tree
from pybroker.tsql.language.words import name_of, words
from pybroker.tsql.source import ScriptError, position_of
from pybroker.tsql.tree import Name

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from pybroker.tsql.language.words import Word
    from pybroker.tsql.source import Batch, Position
    from pybroker.tsql.tree import Statement

_LONGEST_NAME = 128
_DEEPEST = 100
_NOTHING: frozenset[str] = frozenset()
# Words that begin a statement wherever they stand outside of parentheses.
_BEGINNINGS = frozenset(
    [
        "ALTER",
        "BACKUP",
        "BEGIN",
        "BREAK",
        "CHECKPOINT",
        "CLOSE",
        "COMMIT",
        "CONTINUE",
        "CREATE",
        "DBCC",
        "DEALLOCATE",
        "DECLARE",
        "DELETE",
        "DENY",
        "DROP",
        "ELSE",
        "END",
        "EXEC",
        "EXECUTE",
        "FETCH",
        "GOTO",
        "GRANT",
        "IF",
        "INSERT",
        "KILL",
        "MERGE",
        "OPEN",
        "PRINT",
        "RAISERROR",
        "RECONFIGURE",
        "RESTORE",
        "RETURN",
        "REVOKE",
        "ROLLBACK",
        "SAVE",
        "SELECT",
        "SET",
        "TRUNCATE",
        "UPDATE",
        "USE",
        "WAITFOR",
        "WHILE",
    ]
)
# Words that begin a statement only together with the next.
_WITH_NEXT = {"SEND": "ON", "GET": "CONVERSATION", "MOVE": "CONVERSATION"}
_VALUES = frozenset({"quoted", "text", "number", "variable"})
_OPERATORS = frozenset(
    [
        "ALL",
        "AND",
        "ANY",
        "AT",
        "BETWEEN",
        "CASE",
        "COLLATE",
        "ELSE",
        "END",
        "ESCAPE",
        "EXISTS",
        "IN",
        "IS",
        "LIKE",
        "NOT",
        "OR",
        "OVER",
        "SOME",
        "THEN",
        "TIME",
        "WHEN",
        "WITHIN",
        "ZONE",
    ]
)
INSTEAD = {
    "DBCC": "DBCC is not translated: PostgreSQL has other ways to look into itself",
    "KILL": "KILL is not translated: use pg_terminate_backend, or END CONVERSATION",
    "CHECKPOINT": "CHECKPOINT is not translated: leave it out",
}


class Reader:
    """Where the reading of a batch is.

    Attributes:
        batch: what is read.
        words: those of the batch.
        at: the number of the next word.
        depth: how many statements lie around the one that is read.
        exec_at: where the EXEC of an INSERT stands.
    """

    def __init__(self, batch: Batch, table: Mapping[str, Callable[[Reader, Position], Statement]]) -> None:
        self.batch = batch
        self.words = list(words(batch))
        self.at = 0
        self.depth = 0
        self.exec_at: int | None = None
        self._table = table

    def peek(self, ahead: int = 0) -> Word | None:
        """Return the next word, or one behind it; None behind the last."""
        at = self.at + ahead
        return self.words[at] if at < len(self.words) else None

    def word(self, ahead: int = 0) -> str:
        """Return the next word, or one behind it, in capitals; empty if it is a name or a value."""
        one = self.peek(ahead)
        return one.word if one is not None and one.kind in ("word", "mark") else ""

    def is_(self, *expected: str) -> bool:
        """Whether these words come next."""
        return all(self.word(ahead) == word for ahead, word in enumerate(expected))

    def skip(self, *expected: str) -> bool:
        """Go behind these words, if they come next."""
        if self.is_(*expected):
            self.at += len(expected)
            return True
        return False

    def skip_one(self, *expected: str) -> str | None:
        """Go behind one of these words and return it; None if none comes next."""
        word = self.word()
        if word and word in expected:
            self.at += 1
            return word
        return None

    def expect(self, *expected: str) -> None:
        """Go behind these words."""
        for word in expected:
            if not self.skip(word):
                self.refuse(None, word)

    def take(self) -> Word:
        """Go behind the next word, whatever it is, and return it."""
        one = self.peek()
        if one is None:
            self.refuse(None)
        self.at += 1
        return one

    def place(self, offset: int) -> Position:
        """Return where an offset lies in the script."""
        return position_of(self.batch, offset)

    def refuse(self, message: str | None, *expected: str) -> NoReturn:
        """Refuse what stands here, in these words or by saying what was expected."""
        one = self.peek()
        if one is None:
            offset, found = (self.words[-1].end if self.words else 0), "the end of the batch"
        else:
            offset, found = one.begin, f'"{one.written[:40]}"'
        hint = f": expected {' or '.join(expected)}" if expected else ""
        raise ScriptError(self.place(offset), message or f"{found} is not understood here{hint}")

    def identifier(self) -> str:
        """Read a name of one part."""
        one = self.peek()
        if one is None or one.kind not in ("word", "quoted"):
            self.refuse(None, "a name")
        name = name_of(one)
        if len(name) > _LONGEST_NAME:
            self.refuse(f"a name of {len(name)} characters: at most {_LONGEST_NAME} are allowed")
        self.at += 1
        return name

    def name(self) -> Name:
        """Read a name of up to three parts."""
        parts: list[str | None] = [self.identifier()]
        while self.skip("."):
            parts.append(None if self.is_(".") else self.identifier())
        if len(parts) > 3 or parts[-1] is None:  # noqa: PLR2004 - database, schema, name
            self.refuse("a name of four parts: servers are not linked here")
        database = parts[0] if len(parts) > 2 else None  # noqa: PLR2004
        return Name(str(parts[-1]), parts[-2] if len(parts) > 1 else None, database)

    def variable(self) -> str:
        """Read a variable."""
        one = self.peek()
        if one is None or one.kind != "variable" or one.written.startswith("@@"):
            self.refuse(None, "a @variable")
        self.at += 1
        return one.written

    def exact(self) -> tree.Exact:
        """Read a name that matches exactly, or a variable that has it."""
        one = self.peek()
        if one is not None and one.kind == "variable":
            self.at += 1
            return self.code_between(self.at - 1, self.at)
        return self.identifier()

    def type_(self) -> tree.Type:
        """Read a type."""
        if self.peek() is None or self.begins_statement(self.at):
            self.refuse(None, "a type")
        name = self.name()
        arguments: list[str] = []
        if self.skip("("):
            while not self.skip(")"):
                one = self.take()
                if one.kind not in ("number", "word", "quoted") and one.word not in (",", "."):
                    self.at -= 1
                    self.refuse(None, ")")
                if one.word not in (",", "CONTENT", "DOCUMENT"):
                    arguments.append(one.written)
        elif name.name.upper() == "NATIONAL" or self.is_("VARYING"):
            self.refuse(None, "a type's short name")
        return tree.Type(name, tuple(arguments))

    def code_between(self, first: int, behind: int) -> tree.Code:
        """Return what is written from one word to another."""
        begin, end = self.words[first].begin, self.words[behind - 1].end
        return tree.Code(self.batch.text[begin:end], self.place(begin))

    def code(self, *stops: str, comma: bool = False) -> tree.Code:
        """Read an expression, up to one of these words, the next statement, or a comma."""
        first = self.at
        self.span(frozenset(stops), comma=comma, is_expression=True)
        if self.at == first:
            self.refuse(None, "an expression")
        return self.code_between(first, self.at)

    def span(
        self,
        stops: Collection[str] = _NOTHING,
        *,
        comma: bool = False,
        is_expression: bool = False,
        goes_on: Callable[[int], bool] = lambda _: False,
    ) -> None:
        """Go to where an expression or query ends; `goes_on` knows words that stand inside of it."""
        first, cases = self.at, 0
        opened: list[int] = []
        while self.at < len(self.words):
            one = self.words[self.at]
            if one.kind == "mark" and (one.word == "(" or (one.word == ")" and opened)):
                if one.word == "(":
                    opened.append(self.at)
                else:
                    opened.pop()
            elif opened or cases or one.word == "CASE":
                if one.kind == "mark" and one.word == ";":
                    break
                if not opened and one.kind == "word":
                    cases += (one.word == "CASE") - (one.word == "END")
            elif one.kind == "mark":
                if one.word in (")", ";") or (one.word == "," and comma):
                    return
            elif one.kind == "word" and (
                one.word in stops or (self.begins_statement(self.at) and not goes_on(self.at))
            ):
                return
            if is_expression and not opened and not cases and self.at > first and self._is_over_here(one):
                return
            self.at += 1
        self.at = opened[-1] if opened else self.at
        if opened or cases:
            self.refuse("( has no )" if opened else "CASE has no END")

    def _is_over_here(self, one: Word) -> bool:
        """Whether a value stands behind a value, which no expression has."""
        before = self.words[self.at - 1]
        ended = before.kind in _VALUES or before.word in (")", "END", "NULL")
        ended = ended or (before.kind == "word" and before.word not in _OPERATORS)
        return ended and (one.kind in _VALUES or (one.kind == "word" and one.word not in _OPERATORS))

    def begins_statement(self, at: int) -> bool:
        """Whether a statement begins at a word."""
        one = self.words[at]
        follower = self.words[at + 1] if at + 1 < len(self.words) else None
        before = self.words[at - 1].word if at else ""
        next_word = follower.word if follower is not None else ""
        if before == ".":
            return False
        if one.word in _WITH_NEXT:
            return next_word == _WITH_NEXT[one.word]
        if one.word == "UPDATE":
            return next_word != "("
        if one.word == "THROW":
            return follower is None or next_word in (";", "END") or follower.kind in ("number", "variable")
        if one.word == "RECEIVE":
            return follower is not None and (
                next_word == "*"
                or follower.kind in ("variable", "quoted")
                or (follower.kind == "word" and next_word not in ("AS", "FROM"))
            )
        return one.word in _BEGINNINGS or (next_word == ":" and one.kind == "word")

    def statements(self) -> list[Statement]:
        """Read up to the end of the batch, or an END that is not of a conversation."""
        found: list[Statement] = []
        while True:
            while self.skip(";"):
                pass
            if self.peek() is None or (self.is_("END") and self.word(1) != "CONVERSATION"):
                return found
            found.append(self.statement())

    def statement(self) -> Statement:
        """Read a statement, with those in it."""
        first = self.peek()
        if first is None:
            self.refuse(None, "a statement")
        self.depth += 1
        if self.depth > _DEEPEST:
            self.refuse(f"statements lie more than {_DEEPEST} deep in each other")
        try:
            return self._one_statement(first)
        finally:
            self.depth -= 1

    def _one_statement(self, first: Word) -> Statement:
        text = self.batch.text
        if administration.begins(text, first.begin):
            return self._by_grammar(administration.read, first)
        if parsing.begins(text, first.begin):
            return self._by_grammar(parsing.read, first)
        if first.kind == "word" and self.word(1) == ":":
            self.at += 2
            return tree.Label(position=self.place(first.begin), name=first.written)
        if first.kind != "word" or first.word not in self._table:
            message = INSTEAD.get(first.word)
            if self.is_("(", "SELECT"):
                message = "a query in parentheses: leave them out"
            self.refuse(message, "a statement")
        self.at += 1
        return self._table[first.word](self, self.place(first.begin))

    def _by_grammar(self, how: Callable[[Batch, int], tuple[Statement, int]], first: Word) -> Statement:
        statement, end = how(self.batch, first.begin)
        while self.at < len(self.words) and self.words[self.at].begin < end:
            self.at += 1
        return statement

    def top(self) -> tree.Code | None:
        """Read TOP and its number, if it stands here."""
        if not self.skip("TOP"):
            return None
        if self.skip("("):
            top = self.code()
            self.expect(")")
        else:
            self.take()
            top = self.code_between(self.at - 1, self.at)
        return top

    def parenthesised(self) -> tree.Code:
        """Read what stands in parentheses, with these."""
        first = self.at
        self.expect("(")
        self.span()
        self.expect(")")
        return self.code_between(first, self.at)

    def is_over(self) -> bool:
        """Whether a statement can have no further word here."""
        one = self.peek()
        return one is None or one.word in (";", ")") or self.begins_statement(self.at)
