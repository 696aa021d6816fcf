"""From a batch's text to its tree.

Definitions and administration are read by their grammars, at the word where they begin. All else
is read here, by the first word of a statement: `_TABLE` names the method for each.
An expression or a query ends where a word stands that can only begin the next statement.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from pybroker.tsql import administration, parsing
from pybroker.tsql.language import tree
from pybroker.tsql.language.words import Word, name_of, words
from pybroker.tsql.source import Batch, Position, ScriptError, position_of
from pybroker.tsql.tree import Name, Statement

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

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
_QUERIES = frozenset({"SELECT", "INSERT", "UPDATE", "DELETE", "MERGE"})
# Words that begin a statement only together with the next.
_WITH_NEXT = {"SEND": "ON", "GET": "CONVERSATION", "MOVE": "CONVERSATION"}
_GOES_ON = frozenset({"UNION", "ALL", "EXCEPT", "INTERSECT"})
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
_ASSIGNMENTS = ("=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=")
_ENDS_VALUE = frozenset({"word", "quoted", "text", "number", "variable"})
_MODULES = frozenset({"PROC", "PROCEDURE", "FUNCTION", "TRIGGER", "VIEW"})
_INSTEAD = {
    "DBCC": "DBCC is not translated: PostgreSQL has other ways to look into itself",
    "KILL": "KILL is not translated: use pg_terminate_backend, or END CONVERSATION",
    "CHECKPOINT": "CHECKPOINT is not translated: leave it out",
}


def read(batch: Batch) -> list[Statement]:
    """Return the statements of a batch; they stand where they stand in the script.

    Args:
        batch: its text has no block comments, as from `source.batches`.

    Raises:
        ScriptError: at the first word that is not understood.
    """
    return _Reader(batch).batch()


def read_parameters(batch: Batch) -> tuple[tree.Parameter, ...]:
    """Return the parameters that a text declares, as sp_executesql has them.

    Raises:
        ScriptError: at the first word that is not understood.
    """
    return _Reader(batch).parameters()


class _Reader:
    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._words = list(words(batch))
        self._at = 0
        self._depth = 0
        # Where the EXEC of an INSERT stands.
        self._exec_at: int | None = None

    def batch(self) -> list[Statement]:
        first = self._peek()
        is_call = first is not None and self._is_call_without_exec(first)
        statements = [self._called(self._place(0))] if is_call else []
        statements += self._statements()
        if self._peek() is not None:
            self._refuse("END without BEGIN" if self._is("END") else None)
        return statements

    def parameters(self) -> tuple[tree.Parameter, ...]:
        found = self._parameters()
        if self._peek() is not None:
            self._refuse(None, "a @variable")
        return found

    # Words.

    def _peek(self, ahead: int = 0) -> Word | None:
        at = self._at + ahead
        return self._words[at] if at < len(self._words) else None

    def _word(self, ahead: int = 0) -> str:
        one = self._peek(ahead)
        return one.word if one is not None and one.kind in ("word", "mark") else ""

    def _is(self, *expected: str) -> bool:
        return all(self._word(ahead) == word for ahead, word in enumerate(expected))

    def _skip(self, *expected: str) -> bool:
        if self._is(*expected):
            self._at += len(expected)
            return True
        return False

    def _skip_one(self, *expected: str) -> str | None:
        word = self._word()
        if word and word in expected:
            self._at += 1
            return word
        return None

    def _expect(self, *expected: str) -> None:
        for word in expected:
            if not self._skip(word):
                self._refuse(None, word)

    def _take(self) -> Word:
        one = self._peek()
        if one is None:
            self._refuse(None)
        self._at += 1
        return one

    def _place(self, offset: int) -> Position:
        return position_of(self._batch, offset)

    def _refuse(self, message: str | None, *expected: str) -> NoReturn:
        one = self._peek()
        if one is None:
            offset, found = (self._words[-1].end if self._words else 0), "the end of the batch"
        else:
            offset, found = one.begin, f'"{one.written[:40]}"'
        hint = f": expected {' or '.join(expected)}" if expected else ""
        raise ScriptError(self._place(offset), message or f"{found} is not understood here{hint}")

    # Names and values.

    def _identifier(self) -> str:
        one = self._peek()
        if one is None or one.kind not in ("word", "quoted"):
            self._refuse(None, "a name")
        name = name_of(one)
        if len(name) > _LONGEST_NAME:
            self._refuse(f"a name of {len(name)} characters: at most {_LONGEST_NAME} are allowed")
        self._at += 1
        return name

    def _name(self) -> Name:
        parts: list[str | None] = [self._identifier()]
        while self._skip("."):
            parts.append(None if self._is(".") else self._identifier())
        if len(parts) > 3 or parts[-1] is None:  # noqa: PLR2004 - database, schema, name
            self._refuse("a name of four parts: servers are not linked here")
        database = parts[0] if len(parts) > 2 else None  # noqa: PLR2004
        return Name(str(parts[-1]), parts[-2] if len(parts) > 1 else None, database)

    def _variable(self) -> str:
        one = self._peek()
        if one is None or one.kind != "variable" or one.written.startswith("@@"):
            self._refuse(None, "a @variable")
        self._at += 1
        return one.written

    def _exact(self) -> tree.Exact:
        one = self._peek()
        if one is not None and one.kind == "variable":
            self._at += 1
            return self._code_between(self._at - 1, self._at)
        return self._identifier()

    def _type(self) -> tree.Type:
        if self._peek() is None or self._begins_statement(self._at):
            self._refuse(None, "a type")
        name = self._name()
        arguments: list[str] = []
        if self._skip("("):
            while not self._skip(")"):
                one = self._take()
                if one.kind not in ("number", "word", "quoted") and one.word not in (",", "."):
                    self._at -= 1
                    self._refuse(None, ")")
                if one.word not in (",", "CONTENT", "DOCUMENT"):
                    arguments.append(one.written)
        elif name.name.upper() == "NATIONAL" or self._is("VARYING"):
            self._refuse(None, "a type's short name")
        return tree.Type(name, tuple(arguments))

    def _code_between(self, first: int, behind: int) -> tree.Code:
        begin, end = self._words[first].begin, self._words[behind - 1].end
        return tree.Code(self._batch.text[begin:end], self._place(begin))

    def _code(self, *stops: str, comma: bool = False) -> tree.Code:
        """Read an expression, up to one of these words, the next statement, or a comma."""
        first = self._at
        self._span(frozenset(stops), comma=comma, is_expression=True)
        if self._at == first:
            self._refuse(None, "an expression")
        return self._code_between(first, self._at)

    def _span(
        self,
        stops: Collection[str] = _NOTHING,
        *,
        comma: bool = False,
        is_expression: bool = False,
        goes_on: Callable[[int], bool] = lambda _: False,
    ) -> None:
        """Go to where an expression or query ends; `goes_on` knows words that stand inside of it."""
        first, cases = self._at, 0
        opened: list[int] = []
        while self._at < len(self._words):
            one = self._words[self._at]
            if one.kind == "mark" and (one.word == "(" or (one.word == ")" and opened)):
                if one.word == "(":
                    opened.append(self._at)
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
                one.word in stops or (self._begins_statement(self._at) and not goes_on(self._at))
            ):
                return
            if is_expression and not opened and not cases and self._at > first and self._is_over_here(one):
                return
            self._at += 1
        self._at = opened[-1] if opened else self._at
        if opened or cases:
            self._refuse("( has no )" if opened else "CASE has no END")

    def _is_over_here(self, one: Word) -> bool:
        """Whether a value stands behind a value, which no expression has."""
        before = self._words[self._at - 1]
        ended = before.kind in _VALUES or before.word in (")", "END", "NULL")
        ended = ended or (before.kind == "word" and before.word not in _OPERATORS)
        return ended and (one.kind in _VALUES or (one.kind == "word" and one.word not in _OPERATORS))

    def _begins_statement(self, at: int) -> bool:
        one = self._words[at]
        follower = self._words[at + 1] if at + 1 < len(self._words) else None
        before = self._words[at - 1].word if at else ""
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

    # Statements.

    def _statements(self) -> list[Statement]:
        """Read up to the end of the batch, or an END that is not of a conversation."""
        found: list[Statement] = []
        while True:
            while self._skip(";"):
                pass
            if self._peek() is None or (self._is("END") and self._word(1) != "CONVERSATION"):
                return found
            found.append(self._statement())

    def _statement(self) -> Statement:
        first = self._peek()
        if first is None:
            self._refuse(None, "a statement")
        self._depth += 1
        if self._depth > _DEEPEST:
            self._refuse(f"statements lie more than {_DEEPEST} deep in each other")
        try:
            return self._one_statement(first)
        finally:
            self._depth -= 1

    def _one_statement(self, first: Word) -> Statement:
        text = self._batch.text
        if administration.begins(text, first.begin):
            return self._by_grammar(administration.read, first)
        if parsing.begins(text, first.begin):
            return self._by_grammar(parsing.read, first)
        if first.kind == "word" and self._word(1) == ":":
            self._at += 2
            return tree.Label(position=self._place(first.begin), name=first.written)
        if first.kind != "word" or first.word not in self._TABLE:
            message = _INSTEAD.get(first.word)
            if self._is("(", "SELECT"):
                message = "a query in parentheses: leave them out"
            self._refuse(message, "a statement")
        self._at += 1
        return self._TABLE[first.word](self, self._place(first.begin))

    def _by_grammar(self, how: Callable[[Batch, int], tuple[Statement, int]], first: Word) -> Statement:
        statement, end = how(self._batch, first.begin)
        while self._at < len(self._words) and self._words[self._at].begin < end:
            self._at += 1
        return statement

    def _is_call_without_exec(self, first: Word) -> bool:
        """The first statement of a batch may be a procedure's name alone."""
        if first.kind == "quoted":
            return True
        return (
            first.kind == "word"
            and first.word not in self._TABLE
            and first.word not in _INSTEAD
            and self._word(1) != ":"
            and not administration.begins(self._batch.text, first.begin)
            and first.word.startswith(("SP_", "USP_", "XP_", "DBO"))
        )

    # Conversations.

    def _begin(self, position: Position) -> Statement:
        if self._skip_one("TRAN", "TRANSACTION"):
            return self._transaction("BEGIN", position)
        if self._skip("DIALOG"):
            self._skip("CONVERSATION")
            return self._begin_dialog(position)
        if self._skip("CONVERSATION", "TIMER"):
            self._expect("(")
            handle = self._code()
            self._expect(")", "TIMEOUT", "=")
            return tree.BeginTimer(position=position, handle=handle, timeout=self._code())
        if self._is("CONVERSATION"):
            self._at += 1
            return self._begin_dialog(position)
        if self._skip("TRY"):
            return self._try(position)
        if self._is("DISTRIBUTED") or self._is("ATOMIC"):
            self._refuse(f"BEGIN {self._word()} is not translated: write BEGIN TRANSACTION")
        statements = self._statements()
        self._expect("END")
        if not statements:
            self._at -= 1
            self._refuse("BEGIN and END hold no statement")
        return tree.Block(position=position, statements=tuple(statements))

    def _begin_dialog(self, position: Position) -> Statement:
        handle = self._variable()
        self._expect("FROM", "SERVICE")
        from_service = self._exact()
        self._expect("TO", "SERVICE")
        to_service = self._code("ON", "WITH", comma=True)
        instance = self._code("ON", "WITH") if self._skip(",") else None
        contract = self._exact() if self._skip("ON", "CONTRACT") else None
        options: dict[str, Any] = {}
        if self._is("WITH"):
            self._at += 1
            options = self._dialog_options()
        return tree.BeginDialog(
            position=position,
            handle=handle,
            from_service=from_service,
            to_service=to_service,
            broker_instance=instance,
            contract=contract,
            **options,
        )

    def _dialog_options(self) -> dict[str, Any]:
        names = ("RELATED_CONVERSATION", "RELATED_CONVERSATION_GROUP", "LIFETIME", "ENCRYPTION")
        found: dict[str, Any] = {}
        while True:
            name = self._skip_one(*names)
            if name is None:
                self._refuse(None, *names)
            if name.lower() in found:
                self._at -= 1
                self._refuse(f"{name} is given twice: leave one")
            self._expect("=")
            if name == "ENCRYPTION":
                found["encryption"] = self._switch()
            else:
                found[name.lower()] = self._code(*names, comma=True)
            if not self._skip(",") and self._word() not in names:
                return found

    def _switch(self) -> bool:
        found = self._skip_one("ON", "OFF")
        if found is None:
            self._refuse(None, "ON", "OFF")
        return found == "ON"

    def _handle(self) -> tree.Code:
        one = self._peek()
        if one is None or one.kind not in ("variable", "text"):
            self._refuse(None, "a conversation handle")
        self._at += 1
        return self._code_between(self._at - 1, self._at)

    def _send(self, position: Position) -> Statement:
        self._expect("ON", "CONVERSATION")
        if self._skip("("):
            handles = [self._code(comma=True)]
            while self._skip(","):
                handles.append(self._code(comma=True))
            self._expect(")")
        else:
            handles = [self._handle()]
            while self._skip(","):
                handles.append(self._handle())
        message_type = self._exact() if self._skip("MESSAGE", "TYPE") else None
        body = None
        if self._skip("("):
            body = self._code()
            self._expect(")")
        return tree.Send(position=position, handles=tuple(handles), message_type=message_type, body=body)

    def _receive(self, position: Position) -> tree.Receive:
        top = self._top()
        columns = [self._column()]
        while self._skip(","):
            columns.append(self._column())
        self._expect("FROM")
        queue = self._name()
        into = self._variable() if self._skip("INTO") else None
        where: dict[str, Any] = {}
        if self._skip("WHERE"):
            name = self._skip_one("CONVERSATION_HANDLE", "CONVERSATION_GROUP_ID")
            one = self._peek()
            if name is None and one is not None and one.kind == "quoted":
                name = name_of(one).upper()
                self._at += name in ("CONVERSATION_HANDLE", "CONVERSATION_GROUP_ID")
            if name not in ("CONVERSATION_HANDLE", "CONVERSATION_GROUP_ID"):
                self._refuse(None, "conversation_handle", "conversation_group_id")
            self._expect("=")
            where[name.lower()] = self._code("AND", "OR")
            if self._word() in ("AND", "OR"):
                self._refuse("RECEIVE asks for one conversation_handle or conversation_group_id, no more")
        return tree.Receive(
            position=position, top=top, columns=tuple(columns), queue=queue, into=into, **where
        )

    def _top(self) -> tree.Code | None:
        if not self._skip("TOP"):
            return None
        if self._skip("("):
            top = self._code()
            self._expect(")")
        else:
            self._take()
            top = self._code_between(self._at - 1, self._at)
        return top

    def _column(self) -> tree.Column:
        one, follower = self._peek(), self._word(1)
        if one is not None and one.kind == "variable" and follower == "=":
            variable = self._variable()
            self._at += 1
            return tree.Column(value=self._code("FROM", comma=True), variable=variable)
        if one is not None and one.kind in ("word", "quoted") and follower == "=":
            name = self._identifier()
            self._at += 1
            return tree.Column(value=self._code("FROM", comma=True), name=name)
        first = self._at
        self._span(frozenset({"AS", "FROM"}), comma=True)
        if self._at == first:
            self._refuse(None, "a column")
        behind = self._at
        if self._skip("AS"):
            return tree.Column(value=self._code_between(first, behind), name=self._alias())
        last, before = self._words[behind - 1], self._words[behind - 2]
        is_alias = (
            behind - first > 1
            and last.kind in ("word", "quoted", "text")
            and last.word != "END"
            and (before.kind in _ENDS_VALUE or before.word == ")")
        )
        if is_alias:
            self._at -= 1
            return tree.Column(value=self._code_between(first, behind - 1), name=self._alias())
        return tree.Column(value=self._code_between(first, behind))

    def _alias(self) -> str:
        one = self._peek()
        if one is not None and one.kind == "text":
            self._at += 1
            return one.written.partition("'")[2][:-1].replace("''", "'")
        return self._identifier()

    def _get(self, position: Position) -> tree.GetConversationGroup:
        self._expect("CONVERSATION", "GROUP")
        variable = self._variable()
        self._expect("FROM")
        return tree.GetConversationGroup(position=position, variable=variable, queue=self._name())

    def _waitfor(self, position: Position) -> Statement:
        kind = self._skip_one("DELAY", "TIME")
        if kind is not None:
            return tree.Delay(position=position, kind=kind, value=self._code())
        self._expect("(")
        one = self._peek()
        inner: tree.Receive | tree.GetConversationGroup
        if one is not None and self._skip("RECEIVE"):
            inner = self._receive(self._place(one.begin))
        elif one is not None and self._skip("GET"):
            inner = self._get(self._place(one.begin))
        else:
            self._refuse(None, "RECEIVE", "GET CONVERSATION GROUP")
        self._skip(";")
        self._expect(")")
        timeout = None
        if self._is(",", "TIMEOUT") or self._is("TIMEOUT"):
            self._skip(",")
            self._at += 1
            timeout = self._code()
        return tree.WaitFor(position=position, statement=inner, timeout=timeout)

    def _move(self, position: Position) -> Statement:
        self._expect("CONVERSATION")
        handle = self._code("TO")
        self._expect("TO")
        return tree.MoveConversation(position=position, handle=handle, group=self._code())

    def _end(self, position: Position) -> Statement:
        self._expect("CONVERSATION")
        handle = self._code("WITH")
        error = description = None
        cleanup = False
        while self._skip("WITH"):
            if self._skip("CLEANUP"):
                cleanup = True
                continue
            self._expect("ERROR", "=")
            error = self._code("DESCRIPTION")
            self._expect("DESCRIPTION", "=")
            description = self._code("WITH")
        return tree.EndConversation(
            position=position, handle=handle, error=error, description=description, cleanup=cleanup
        )

    # Variables.

    def _declare(self, position: Position) -> Statement:
        one = self._peek()
        if one is not None and one.kind in ("word", "quoted"):
            return self._declare_cursor(self._identifier(), position)
        if one is not None and self._word(1) == "CURSOR" and one.kind == "variable":
            name = self._variable()
            self._at += 1
            return tree.DeclareCursor(position=position, name=name)
        declared = [self._declared()]
        while self._skip(","):
            declared.append(self._declared())
        return tree.Declare(position=position, variables=tuple(declared))

    def _declared(self) -> tree.Variable | tree.TableVariable:
        name = self._variable()
        self._skip("AS")
        if self._skip("TABLE"):
            return tree.TableVariable(name=name, definition=self._parenthesised())
        kind = self._type()
        default = self._code(comma=True) if self._skip("=") else None
        return tree.Variable(name=name, type=kind, default=default)

    def _parenthesised(self) -> tree.Code:
        first = self._at
        self._expect("(")
        self._span()
        self._expect(")")
        return self._code_between(first, self._at)

    def _set(self, position: Position) -> Statement:
        one = self._peek()
        if one is None or one.kind != "variable":
            return self._set_option(position)
        name = self._variable()
        operator = self._skip_one(*_ASSIGNMENTS)
        if operator is None and self._is("."):
            self._refuse(f"{name}.{self._word(1).lower()} changes an XML variable: assign a new value to it")
        if operator is None:
            self._refuse(None, "=")
        if self._skip("CURSOR"):
            return self._cursor_query(name, position)
        return tree.Assign(position=position, variable=name, operator=operator, value=self._code())

    def _set_option(self, position: Position) -> Statement:
        option = self._identifier().upper()
        rest = []
        while True:
            one = self._peek()
            # Its value may be ON and a name of several words.
            if one is None or one.word == ";" or self._begins_statement(self._at):
                break
            rest.append(one.written)
            self._at += 1
        if not rest:
            self._refuse(None, "ON", "OFF")
        return tree.SetOption(position=position, option=option, value=" ".join(rest))

    def _select(self, position: Position) -> Statement:
        if self._assigns():
            return self._select_variables(position)
        self._at -= 1
        return self._query(position)

    def _assigns(self) -> bool:
        """Whether a list of variables with their values stands here, with TOP before it or without."""
        first = self._at
        self._top()
        one = self._peek()
        self._at, behind = first, self._at
        word = self._words[behind + 1].word if behind + 1 < len(self._words) else ""
        return one is not None and one.kind == "variable" and word in _ASSIGNMENTS

    def _select_variables(self, position: Position, with_: tree.Code | None = None) -> Statement:
        top = self._top()
        assignments = []
        while True:
            one = self._peek()
            place = self._place(one.begin) if one is not None else position
            name = self._variable()
            operator = self._skip_one(*_ASSIGNMENTS)
            if operator is None:
                self._refuse(None, "=")
            value = self._code("FROM", "WHERE", "ORDER", "OPTION", comma=True)
            assignments.append(tree.Assign(position=place, variable=name, operator=operator, value=value))
            if not self._skip(","):
                break
        source = None
        first = self._at
        self._span(goes_on=self._query_goes_on("SELECT", first))
        if self._at > first:
            source = self._code_between(first, self._at)
        return tree.SelectVariables(
            position=position, with_=with_, top=top, assignments=tuple(assignments), source=source
        )

    # Control flow.

    def _if(self, position: Position) -> Statement:
        condition = self._code()
        then = self._statement()
        before = self._at
        while self._skip(";"):
            pass
        if self._skip("ELSE"):
            return tree.If(position=position, condition=condition, then=then, otherwise=self._statement())
        self._at = before
        return tree.If(position=position, condition=condition, then=then)

    def _while(self, position: Position) -> Statement:
        condition = self._code()
        return tree.While(position=position, condition=condition, body=self._statement())

    def _break(self, position: Position) -> Statement:
        return tree.Break(position=position)

    def _continue(self, position: Position) -> Statement:
        return tree.Continue(position=position)

    def _goto(self, position: Position) -> Statement:
        return tree.Goto(position=position, label=self._identifier())

    def _return(self, position: Position) -> Statement:
        return tree.Return(position=position, value=None if self._is_over() else self._code())

    def _is_over(self) -> bool:
        """Whether a statement can have no further word here."""
        one = self._peek()
        return one is None or one.word in (";", ")") or self._begins_statement(self._at)

    def _try(self, position: Position) -> Statement:
        body = self._statements()
        self._expect("END", "TRY")
        self._skip(";")
        self._expect("BEGIN", "CATCH")
        handler = self._statements()
        self._expect("END", "CATCH")
        return tree.TryCatch(position=position, body=tuple(body), handler=tuple(handler))

    def _throw(self, position: Position) -> Statement:
        return tree.Throw(position=position, arguments=() if self._is_over() else self._arguments_alone())

    def _arguments_alone(self) -> tuple[tree.Code, ...]:
        found = [self._code(comma=True)]
        while self._skip(","):
            found.append(self._code(comma=True))
        return tuple(found)

    def _raiserror(self, position: Position) -> Statement:
        if not self._is("("):
            self._refuse("RAISERROR without parentheses: write RAISERROR (message, severity, state)")
        self._at += 1
        arguments = self._arguments_alone()
        self._expect(")")
        options: list[str] = []
        if self._skip("WITH"):
            options.append(self._identifier().upper())
            while self._skip(","):
                options.append(self._identifier().upper())
        return tree.RaiseError(position=position, arguments=arguments, options=tuple(options))

    def _print(self, position: Position) -> Statement:
        return tree.Print(position=position, value=self._code())

    # Transactions.

    def _transaction(self, verb: str, position: Position) -> Statement:
        one = self._peek()
        name = None
        if one is not None and one.kind == "variable":
            name = self._variable()
        elif (
            one is not None
            and one.kind in ("word", "quoted")
            and not self._is_over()
            and not self._is("WITH")
        ):
            name = self._identifier()
        if self._skip("WITH"):
            if self._skip("MARK"):
                self._skip_text()
            else:
                self._parenthesised()
        return tree.Transaction(position=position, verb=verb, name=name)

    def _skip_text(self) -> None:
        one = self._peek()
        self._at += one is not None and one.kind == "text"

    def _commit(self, position: Position) -> Statement:
        return self._ended("COMMIT", position)

    def _rollback(self, position: Position) -> Statement:
        return self._ended("ROLLBACK", position)

    def _ended(self, verb: str, position: Position) -> Statement:
        if self._skip_one("TRAN", "TRANSACTION"):
            return self._transaction(verb, position)
        self._skip("WORK")
        return tree.Transaction(position=position, verb=verb)

    def _save(self, position: Position) -> Statement:
        if self._skip_one("TRAN", "TRANSACTION") is None:
            self._refuse(None, "TRANSACTION")
        return self._transaction("SAVE", position)

    # Calls.

    def _exec(self, position: Position) -> Statement:
        if self._is("AS"):
            self._refuse(
                "EXECUTE AS as a statement is not translated: use SET ROLE, or EXECUTE AS on modules"
            )
        if self._is("("):
            self._at += 1
            text = self._code()
            self._expect(")")
            if self._is("AT"):
                self._refuse("EXEC … AT a linked server is not translated")
            return tree.ExecuteText(position=position, text=text)
        return self._called(position)

    def _called(self, position: Position) -> Statement:
        one = self._peek()
        result = None
        if one is not None and one.kind == "variable" and self._word(1) == "=":
            result = self._variable()
            self._at += 1
            one = self._peek()
        procedure = Name(self._variable()) if one is not None and one.kind == "variable" else self._name()
        if self._skip(";"):
            self._at -= 1
        arguments = []
        if not self._is_over() and not self._is("WITH"):
            arguments.append(self._argument())
            while self._skip(","):
                arguments.append(self._argument())
        if self._skip("WITH"):
            self._expect("RECOMPILE")
        return tree.Execute(position=position, result=result, procedure=procedure, arguments=tuple(arguments))

    def _argument(self) -> tree.Argument:
        one = self._peek()
        name = None
        if one is not None and one.kind == "variable" and self._word(1) == "=":
            name = self._variable()
            self._at += 1
        if self._skip("DEFAULT"):
            return tree.Argument(name=name, value=None)
        value = self._code("OUTPUT", "OUT", "WITH", comma=True)
        return tree.Argument(name=name, value=value, is_output=self._skip_one("OUTPUT", "OUT") is not None)

    # Queries.

    def _with(self, position: Position) -> Statement:
        self._at -= 1
        return self._query(position)

    def _data(self, position: Position) -> Statement:
        self._at -= 1
        return self._query(position)

    def _query(self, position: Position) -> Statement:
        first = self._at
        verb = self._main_verb()
        if verb == "SELECT" and self._words[first].word == "WITH" and self._assigns():
            return self._select_variables(position, self._code_between(first, self._at - 1))
        if verb == "MERGE":
            self._span(goes_on=lambda _: True)
        else:
            inner = self._query_goes_on(verb, self._at)
            self._span(goes_on=inner)
        target = self._insert_target(first, verb)
        if target is not None:
            return target
        return tree.Query(position=position, verb=verb, code=self._code_between(first, self._at))

    def _main_verb(self) -> str:
        """Go behind the verb of a query, and behind WITH before it; return it."""
        if self._skip("WITH"):
            self._span(_QUERIES)
        verb = self._word()
        if verb not in _QUERIES:
            self._refuse(None, *sorted(_QUERIES))
        self._at += 1
        return verb

    def _query_goes_on(self, verb: str, first: int) -> Callable[[int], bool]:
        """Return what knows the words that go on with a query."""
        found = {"SELECT": verb != "INSERT", "SET": verb != "UPDATE"}

        def goes_on(at: int) -> bool:
            word = self._words[at].word
            before = self._words[at - 1].word
            if word == "SELECT" and before in _GOES_ON:
                return True
            if word in ("EXEC", "EXECUTE") and not found["SELECT"] and not self._has_values(first, at):
                return before != "AS" and self._note_exec(at)
            if word in found and not found[word]:
                found[word] = True
                return word == "SET" or not self._has_values(first, at)
            if word == "FETCH":
                return before in ("ROW", "ROWS")
            return word == "MERGE" and self._words[min(at + 1, len(self._words) - 1)].word == "JOIN"

        self._exec_at = None
        return goes_on

    def _note_exec(self, at: int) -> bool:
        self._exec_at = at
        return False

    def _has_values(self, first: int, at: int) -> bool:
        depth = 0
        for one in self._words[first:at]:
            if one.kind == "mark":
                depth += (one.word == "(") - (one.word == ")")
            elif one.word == "VALUES" and not depth:
                return True
        return False

    def _insert_target(self, first: int, verb: str) -> Statement | None:
        if verb != "INSERT" or self._exec_at is None or self._exec_at != self._at:
            return None
        target = self._code_between(first + 1, self._at)
        place = self._place(self._words[self._at].begin)
        self._at += 1
        execute = self._exec(place)
        if not isinstance(execute, (tree.Execute, tree.ExecuteText)):
            self._refuse(None)
        return tree.InsertExecute(
            position=self._place(self._words[first].begin), target=target, execute=execute
        )

    def _truncate(self, position: Position) -> Statement:
        first = self._at - 1
        self._expect("TABLE")
        self._name()
        return tree.Query(position=position, verb="TRUNCATE", code=self._code_between(first, self._at))

    # Cursors.

    def _declare_cursor(self, name: str, position: Position) -> Statement:
        options = []
        while (option := self._skip_one("INSENSITIVE", "SCROLL")) is not None:
            options.append(option)
        self._expect("CURSOR")
        return self._cursor_query(name, position, options)

    def _cursor_query(self, name: str, position: Position, before: list[str] | None = None) -> Statement:
        options = list(before or [])
        while not self._is("FOR"):
            one = self._peek()
            if one is None or one.kind != "word" or self._begins_statement(self._at):
                self._refuse(None, "FOR")
            options.append(one.word)
            self._at += 1
        self._at += 1
        first = self._at
        verb = self._main_verb()
        if verb != "SELECT":
            self._at -= 1
            self._refuse(None, "SELECT")
        goes_on = self._query_goes_on(verb, first)
        self._span(goes_on=lambda at: goes_on(at) or self._words[at - 1].word == "FOR")
        return tree.DeclareCursor(
            position=position, name=name, options=tuple(options), query=self._code_between(first, self._at)
        )

    def _cursor_name(self) -> str:
        one = self._peek()
        if one is not None and one.kind == "variable":
            return self._variable()
        self._skip("GLOBAL")
        return self._identifier()

    def _open(self, position: Position) -> Statement:
        return tree.Cursor(position=position, verb="OPEN", name=self._cursor_name())

    def _close(self, position: Position) -> Statement:
        return tree.Cursor(position=position, verb="CLOSE", name=self._cursor_name())

    def _deallocate(self, position: Position) -> Statement:
        return tree.Cursor(position=position, verb="DEALLOCATE", name=self._cursor_name())

    def _fetch(self, position: Position) -> Statement:
        direction = self._skip_one("NEXT", "PRIOR", "FIRST", "LAST", "ABSOLUTE", "RELATIVE") or "NEXT"
        offset = self._code("FROM") if direction in ("ABSOLUTE", "RELATIVE") else None
        self._skip("FROM")
        name = self._cursor_name()
        variables = []
        if self._skip("INTO"):
            variables.append(self._variable())
            while self._skip(","):
                variables.append(self._variable())
        return tree.Fetch(
            position=position, direction=direction, offset=offset, name=name, variables=tuple(variables)
        )

    # Modules and tables.

    def _create(self, position: Position) -> Statement:
        return self._made("CREATE OR ALTER" if self._skip("OR", "ALTER") else "CREATE", position)

    def _alter(self, position: Position) -> Statement:
        return self._made("ALTER", position)

    def _made(self, verb: str, position: Position) -> Statement:
        word = self._word()
        if word in _MODULES:
            self._must_be_first(verb, word, position)
            self._at += 1
            return self._module(word, verb, position)
        if verb == "CREATE" and self._skip("TABLE"):
            return self._table(position)
        if verb == "CREATE" and self._skip("TYPE"):
            return self._user_type(position)
        if verb == "ALTER" and word == "TABLE":
            return self._alter_table(position)
        if verb != "CREATE":
            self._refuse(f"{verb} {word} is not translated")
        return self._index(position)

    def _module(self, word: str, verb: str, position: Position) -> Statement:
        if word == "FUNCTION":
            return self._function(verb, position)
        if word == "TRIGGER":
            return self._trigger(verb, position)
        if word == "VIEW":
            return self._view(verb, position)
        return self._procedure(verb, position)

    def _must_be_first(self, verb: str, kind: str, position: Position) -> None:
        begin = self._words[0]
        if self._place(begin.begin) != position or self._depth > 1:
            self._at -= 1
            self._refuse(f"{verb} {kind} must be the first statement of its batch: write GO before it")

    def _rest(self) -> tuple[Statement, ...]:
        """Read the statements up to the end of the batch."""
        found = self._statements()
        if self._peek() is not None:
            self._refuse("END without BEGIN" if self._is("END") else None)
        return tuple(found)

    def _parameters(self) -> tuple[tree.Parameter, ...]:
        found: list[tree.Parameter] = []
        one = self._peek()
        while one is not None and one.kind == "variable":
            found.append(self._parameter())
            if not self._skip(","):
                break
            one = self._peek()
        return tuple(found)

    def _parameter(self) -> tree.Parameter:
        name = self._variable()
        self._skip("AS")
        kind = self._type()
        self._skip("NULL")
        self._skip("NOT", "NULL")
        default = None
        if self._skip("="):
            default = self._code("OUTPUT", "OUT", "READONLY", "AS", "WITH", comma=True)
        is_output = self._skip_one("OUTPUT", "OUT") is not None
        is_readonly = self._skip("READONLY")
        return tree.Parameter(
            name=name, type=kind, default=default, is_output=is_output, is_readonly=is_readonly
        )

    def _module_options(self) -> tuple[str | None, tuple[str, ...]]:
        execute_as: str | None = None
        options: list[str] = []
        if not self._skip("WITH"):
            return None, ()
        while True:
            if self._skip_one("EXECUTE", "EXEC"):
                self._expect("AS")
                one = self._take()
                execute_as = one.word.upper()
                if one.kind == "text":
                    execute_as = f"[{one.written.partition(chr(39))[2][:-1].replace(chr(39) * 2, chr(39))}]"
            else:
                option = self._identifier().upper()
                while option in ("RETURNS", "CALLED") and not self._is(",") and not self._is("AS"):
                    option += " " + self._take().word
                    if option.endswith("INPUT"):
                        break
                options.append(option)
            if not self._skip(","):
                return execute_as, tuple(options)

    def _procedure(self, verb: str, position: Position) -> Statement:
        name = self._name()
        if self._skip(";"):
            self._refuse("a procedure's number is not translated: give it a name of its own")
        in_parentheses = self._skip("(")
        parameters = self._parameters()
        if in_parentheses:
            self._expect(")")
        execute_as, options = self._module_options()
        self._skip("FOR", "REPLICATION")
        self._expect("AS")
        if self._is("EXTERNAL"):
            self._refuse("EXTERNAL NAME is not translated: write the procedure in Python (pybroker.App)")
        return tree.CreateProcedure(
            position=position,
            verb=verb,
            name=name,
            parameters=parameters,
            execute_as=execute_as,
            options=options,
            body=self._rest(),
        )

    def _function(self, verb: str, position: Position) -> Statement:
        name = self._name()
        self._expect("(")
        parameters = self._parameters()
        self._expect(")", "RETURNS")
        returns: tree.Type | tree.TableVariable | None
        one = self._peek()
        if one is not None and one.kind == "variable":
            variable = self._variable()
            self._expect("TABLE")
            returns = tree.TableVariable(name=variable, definition=self._parenthesised())
        elif self._skip("TABLE"):
            returns = None
        else:
            returns = self._type()
        execute_as, options = self._module_options()
        self._skip("AS")
        query: tree.Code | None = None
        body: tuple[Statement, ...] = ()
        if returns is None:
            query = self._returned_query()
        else:
            if not self._is("BEGIN"):
                self._refuse(None, "BEGIN")
            body = self._rest()
        return tree.CreateFunction(
            position=position,
            verb=verb,
            name=name,
            parameters=parameters,
            returns=returns,
            execute_as=execute_as,
            options=options,
            query=query,
            body=body,
        )

    def _returned_query(self) -> tree.Code:
        self._expect("RETURN")
        in_parentheses = self._skip("(")
        first = self._at
        self._main_verb()
        self._span(goes_on=self._query_goes_on("SELECT", first))
        query = self._code_between(first, self._at)
        if in_parentheses:
            self._expect(")")
        self._skip(";")
        if self._peek() is not None:
            self._refuse(None)
        return query

    def _trigger(self, verb: str, position: Position) -> Statement:
        name = self._name()
        self._expect("ON")
        if self._is("DATABASE") or self._is("ALL", "SERVER"):
            self._refuse("a trigger ON DATABASE or ALL SERVER is not translated: use an event trigger")
        table = self._name()
        execute_as, options = self._module_options()
        timing = self._skip_one("FOR", "AFTER") or ("INSTEAD OF" if self._skip("INSTEAD", "OF") else None)
        if timing is None:
            self._refuse(None, "AFTER", "INSTEAD OF")
        events = []
        while True:
            event = self._skip_one("INSERT", "UPDATE", "DELETE")
            if event is None:
                self._refuse(None, "INSERT", "UPDATE", "DELETE")
            events.append(event)
            if not self._skip(","):
                break
        self._skip("NOT", "FOR", "REPLICATION")
        self._expect("AS")
        return tree.CreateTrigger(
            position=position,
            verb=verb,
            name=name,
            table=table,
            timing="AFTER" if timing == "FOR" else timing,
            events=tuple(events),
            execute_as=execute_as,
            options=options,
            body=self._rest(),
        )

    def _view(self, verb: str, position: Position) -> Statement:
        name = self._name()
        columns = []
        if self._skip("("):
            columns.append(self._identifier())
            while self._skip(","):
                columns.append(self._identifier())
            self._expect(")")
        self._module_options()
        self._expect("AS")
        first = self._at
        self._main_verb()
        self._span(goes_on=self._query_goes_on("SELECT", first))
        query = self._code_between(first, self._at)
        self._skip("WITH", "CHECK", "OPTION")
        return tree.CreateView(position=position, verb=verb, name=name, query=query, columns=tuple(columns))

    def _table(self, position: Position) -> Statement:
        name = self._name()
        definition = self._parenthesised()
        filegroup = None
        while True:
            if self._skip("ON") or self._skip("TEXTIMAGE_ON"):
                filegroup = self._identifier()
                if self._is("("):
                    self._parenthesised()
            elif self._is("WITH", "("):
                self._at += 1
                self._parenthesised()
            else:
                break
        return tree.CreateTable(position=position, name=name, definition=definition, filegroup=filegroup)

    def _user_type(self, position: Position) -> Statement:
        name = self._name()
        if self._skip("AS"):
            self._expect("TABLE")
            return tree.CreateType(position=position, name=name, definition=self._parenthesised())
        if not self._skip("FROM"):
            self._refuse(None, "FROM", "AS TABLE")
        base = self._type()
        is_null = False if self._skip("NOT", "NULL") else True if self._skip("NULL") else None
        return tree.CreateType(position=position, name=name, base=base, is_null=is_null)

    def _alter_table(self, position: Position) -> Statement:
        first = self._at - 1
        self._at += 1
        self._name()
        # What follows begins with words that begin statements elsewhere.
        begin = self._at
        self._span(
            goes_on=lambda at: (
                at == begin
                or self._words[at - 1].word in ("ON", ",")
                or (self._words[at].word == "SET" and self._words[at - 1].word in ("DELETE", "UPDATE"))
            )
        )
        return tree.Definition(
            position=position, kind="ALTER TABLE", code=self._code_between(first, self._at)
        )

    def _index(self, position: Position) -> Statement:
        first = self._at - 1
        while self._skip_one("UNIQUE", "CLUSTERED", "NONCLUSTERED", "PRIMARY", "XML"):
            pass
        if not self._is("INDEX"):
            self._refuse(f"CREATE {self._word()} is not translated")
        self._at += 1
        self._span()
        return tree.Definition(
            position=position, kind="CREATE INDEX", code=self._code_between(first, self._at)
        )

    def _drop(self, position: Position) -> Statement:
        first = self._at - 1
        kind = self._skip_one("PROC", "PROCEDURE", "FUNCTION", "TRIGGER", "VIEW", "TABLE", "TYPE", "INDEX")
        if kind is None:
            self._refuse(f"DROP {self._word()} is not translated")
        if kind == "INDEX":
            self._skip("IF", "EXISTS")
            self._span()
            return tree.Definition(
                position=position, kind="DROP INDEX", code=self._code_between(first, self._at)
            )
        if_exists = self._skip("IF", "EXISTS")
        names = [self._name()]
        while self._skip(","):
            names.append(self._name())
        return tree.DropThings(
            position=position,
            kind="PROCEDURE" if kind == "PROC" else kind,
            names=tuple(names),
            if_exists=if_exists,
        )

    # The first word of a statement, and what reads the rest of it.
    _TABLE: ClassVar[dict[str, Callable[[Any, Position], Statement]]] = {
        "ALTER": _alter,
        "BEGIN": _begin,
        "BREAK": _break,
        "CLOSE": _close,
        "COMMIT": _commit,
        "CONTINUE": _continue,
        "CREATE": _create,
        "DEALLOCATE": _deallocate,
        "DECLARE": _declare,
        "DELETE": _data,
        "DROP": _drop,
        "END": _end,
        "EXEC": _exec,
        "EXECUTE": _exec,
        "FETCH": _fetch,
        "GET": _get,
        "GOTO": _goto,
        "IF": _if,
        "INSERT": _data,
        "MERGE": _data,
        "MOVE": _move,
        "OPEN": _open,
        "PRINT": _print,
        "RAISERROR": _raiserror,
        "RECEIVE": _receive,
        "RETURN": _return,
        "ROLLBACK": _rollback,
        "SAVE": _save,
        "SELECT": _select,
        "SEND": _send,
        "SET": _set,
        "THROW": _throw,
        "TRUNCATE": _truncate,
        "UPDATE": _data,
        "WAITFOR": _waitfor,
        "WHILE": _while,
        "WITH": _with,
    }
