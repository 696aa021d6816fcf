"""The statements of a module in PL/pgSQL: one table, from classes of the tree to what each becomes.

A variable keeps its name, with the @ and in quotes, so it is never a column. What PL/pgSQL has not is a
variable named as T-SQL names it: "@@rowcount", "error_message()".
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from pybroker.tsql.administration import tree as administration
from pybroker.tsql.expressions import tables, translating, types
from pybroker.tsql.expressions.alterations import ENCLOSED, IDENTITY_STAYS, identity_insert
from pybroker.tsql.expressions.names import MOST_BYTES
from pybroker.tsql.expressions.types import Type, Unfaithful
from pybroker.tsql.language import tree
from pybroker.tsql.language.jumps import Again, Left, Repeated, structured
from pybroker.tsql.procedures import (
    calling,
    control,
    conversations,
    cursors,
    definitions,
    flow,
    inserting,
    messages,
    queries,
    savepoints,
    texts,
    transactions,
    trying,
)
from pybroker.tsql.procedures.codes import COUNT, ERROR, IDENTITY, JOINS, RETURN, TRANCOUNT, returning
from pybroker.tsql.procedures.errors import NUMBER
from pybroker.tsql.source import Position, ScriptError
from pybroker.tsql.translation import identifier, literal
from pybroker.tsql.tree import Statement

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from pybroker.tsql.expressions.scope import Scope
    from pybroker.tsql.procedures.signatures import Results, Signature


class Body:
    """Prints the statements of one module.

    Args:
        name: of the module, as PostgreSQL writes it.
        scope: the names that are known; its parameters are declared.
        procedures: the parameters of procedures that are known, by their names in PostgreSQL.
        promised: the names of others that the script makes.
    """

    def __init__(
        self, name: str, scope: Scope, procedures: dict[str, Signature], promised: Collection[str] = ()
    ) -> None:
        self.name = name
        self.scope = scope
        self.procedures = procedures
        self.promised = promised
        self.notes: list[tuple[Position, str]] = []
        self.declarations: dict[str, str] = {}
        self.lines: list[str] = []
        self.flow = flow.Flow()
        self._first: list[str] = []
        self._indent = 1
        self.tries = 0
        self._ended: flow.States = frozenset()
        self.returns = RETURN
        self.has_calls = False
        self.returned: Type | None = None
        self.within_tries = 0
        # Whether a block that catches errors stands around what is printed now: PL/pgSQL can't commit there.
        self.is_caught = False
        self.conditions: set[int] = set()
        # The TRY whose CATCH gets the errors of what is printed now outside of a block of its own.
        self.current_try: trying.Try | None = None
        self.aborts = False
        self.cursors: dict[str, tree.DeclareCursor] = {}
        # The loops around what is printed now: labels of WHILE, and "" of what GOTO begins anew.
        self.loops: list[str | None] = []
        self.open_cursors: set[str] = set()
        # What is known where ROLLBACK to a savepoint stands, by its number.
        self.undone: dict[int, tuple[dict[str, Any], trying.Try | None, bool]] = {}
        self.counts_transactions = False
        self.ends_transactions = False
        self.may_join = False
        self.joins = False
        self._rolls_back = False
        self.text_count = 0
        # What stands behind the names of variables in the text of EXEC that is printed now.
        self.suffix = ""
        self._tables: set[str] = set()
        # The procedures that it calls, each with a place.
        self.calls: dict[str, Position] = {}
        self.calls_in_try: set[str] = set()
        self.results: set[Results] = set()
        self.executes_inserts = False
        # How many TRY blocks stand around the INSERT … EXEC that is printed now.
        self.tries_around = 0

    @property
    def has_tables(self) -> bool:
        """Whether it has table variables or temporary tables, which all its runs in a session share."""
        return bool(self._tables)

    @property
    def first(self) -> Sequence[str]:
        """The lines that stand before the others."""
        return self._first

    @property
    def is_in_try(self) -> bool:
        """Whether an error behind what is printed now would take back what it shows to INSERT … EXEC."""
        return self.within_tries > self.tries_around

    def print(self, body: Sequence[Statement], returns: str = RETURN, value: Type | None = None) -> None:
        """Print a module's body.

        Args:
            body: its statements.
            returns: what RETURN without a value becomes.
            value: the type that RETURN gives, in a function.

        Raises:
            ScriptError: at a statement without a faithful form.
        """
        self.returns, self.returned = returns, value
        body = savepoints.structured(texts.expanded(structured(body)))
        everything = [each for one in body for each in flow.statements(one)]
        self.has_calls = any(isinstance(one, tree.Execute) for one in everything)
        verbs = {one.verb for one in everything if isinstance(one, tree.Transaction)}
        self.ends_transactions, self._rolls_back = bool(verbs), "ROLLBACK" in verbs
        self._ended = self.flow.run(body, frozenset({flow.State()}))
        self.flow.is_open_at_end |= any(state.depth for state in self._ended)
        self.flow.look_back(body)
        special: frozenset[str] = frozenset()
        for one in everything:
            special |= flow.reads(one) if isinstance(one, Statement) else special
        counted = special & {"@@trancount", "xact_state()"}
        self.joins = self.may_join and not counted and transactions.may_join(self, everything)
        if self.joins:
            self.declarations[JOINS] = f"boolean := {transactions.IS_IN_TRANSACTION}"
        self.counts_transactions = bool(counted) or self._is_mixed(everything)
        self._declare_special(special)
        if any(flow.reads_identity(one) for one in everything if isinstance(one, Statement)):
            self.declarations[IDENTITY] = types.IDENTITY.sql
            self.scope.declare("scope_identity()", types.IDENTITY, IDENTITY)
        self.declare_all(body)
        for one in body:
            self.statement(one)
        if self.has_calls and self._ended and self.returned is None and self.returns == RETURN:
            # It is not the code of the procedure that was called last.
            self.line(returning("'0'"))
        if body and any(state.depth for state in self._ended):
            self.open_at_end(body[-1].position)
        if self._first and self.ends_transactions and not self.joins:
            self._first.append("  -- So that ROLLBACK leaves the tables.")
            self._first.append("  commit;")
        self.lines = self._owned() + self._first + self.lines

    def open_at_end(self, position: Position) -> None:
        """Say that a transaction is open where the module ends."""
        self.note(
            position,
            "a transaction is open where the procedure ends: activation commits it, and SQL Server undoes it:"
            " write COMMIT or ROLLBACK",
        )

    def _is_mixed(self, everything: list[Any]) -> bool:
        if any(calling.joins_at_times(self, one) for one in everything if isinstance(one, tree.Execute)):
            return True
        for one in everything:
            kinds = transactions.kinds(self.flow.depths(one)) if isinstance(one, tree.Transaction) else set()
            inner = one.verb == "COMMIT" and transactions.INNER in kinds if kinds else False
            if len(kinds) > 1 and (inner or (one.verb == "BEGIN" and self.flow.is_pending(one))):
                return True
        return False

    def _declare_special(self, special: frozenset[str]) -> None:
        for name in sorted(special - {"xact_state()"}):
            if name != "@@trancount":
                self._variable(name, "integer", " := 0")
        if self.counts_transactions:
            self._variable("@@trancount", "integer", " := 0")
        self.scope.declare("xact_state()", types.INTEGER, f"sign({TRANCOUNT})")

    def _variable(self, name: str, type_: str, rest: str = "") -> str:
        written = '"' + name.replace('"', '""') + '"'
        if name.startswith("@@") and name.casefold() not in self.scope.variables:
            self.scope.declare(name, types.INTEGER)
        self.declarations.setdefault(written, f"{type_}{rest}")
        return written

    def declare_all(self, body: Sequence[Statement]) -> None:
        """Declare the variables of statements, without those of texts."""
        for one in _own_statements(body):
            if isinstance(one, tree.Declare):
                for variable in one.variables:
                    with self._at(one.position):
                        self._declare(tables.as_table(variable, self.scope))

    def _declare(self, variable: tree.Variable | tree.TableVariable) -> None:
        if isinstance(variable, tree.TableVariable):
            lines: list[str] = []
            self.make_table(variable.name, variable.definition, lines)
            if self.suffix:
                # It is made anew by each run of its text.
                for line in lines:
                    self.line(line.removeprefix("  "))
            else:
                self._first += lines
            if self._rolls_back:
                note = f"ROLLBACK empties the table variable {variable.name} here"
                self.note(variable.definition.position, note)
            return
        if variable.name.casefold() in self.scope.variables:
            raise Unfaithful(f"{variable.name} is declared twice: leave one out")
        one = self.scope.declare(
            variable.name, tables.written(variable.type), self._within_text(variable.name)
        )
        self.declarations[one.sql] = one.type.sql
        if self.suffix:
            self.line(f"{one.sql} := null;")

    def take_rows(self, one: tree.Parameter, definition: tree.Code) -> str:
        """Make the table of a parameter of a table type from the rows that it gets; return the parameter."""
        self.make_table(one.name, definition, self._first)
        table = self.scope.table_variable(one.name).sql
        parameter = identifier(one.name)
        self._first += [
            f"  insert into {table} overriding system value",
            f"  select * from json_populate_recordset(null::{table}, {parameter});",
        ]
        return f"{parameter} json default '[]'"

    def return_table(self, one: tree.TableVariable) -> dict[str, Type]:
        """Make the table variable that a function returns; return its columns."""
        self.make_table(one.name, one.definition, self._first)
        return dict(self.scope.table_variable(one.name).columns or {})

    def _within_text(self, name: str) -> str | None:
        return f'"{name}{self.suffix}"' if self.suffix else None

    def make_table(self, name: str, definition: tree.Code, lines: list[str]) -> None:
        """Add the lines that make a table variable or temporary table."""
        notes: list[str] = []
        made = tables.definition(definition, self.scope, notes)
        own = self._own_name(name)
        self._tables.add(f"pg_temp.{own}")
        self.scope.declare_table(name, made.columns, f"pg_temp.{own}")
        self.note_all(definition.position, notes)
        columns = made.sql.replace("\n", "\n    ")
        lines += [
            f"  if to_regclass({literal(f'pg_temp.{own}')}) is null then",
            f"    create temporary table {own} (",
            f"      {columns}",
            "    );",
            "  end if;",
            f"  truncate pg_temp.{own} restart identity;",
        ]

    def _own_name(self, name: str) -> str:
        """Name the temporary table of a table variable; no two have one."""
        whole = f"{self.name}.{name.lower()}{self.suffix}"
        if '"' in whole or whole.count(".") > 1 or len(whole.encode()) > MOST_BYTES:
            digest = sha256(whole.encode()).hexdigest()[:16]
            cut = whole.replace('"', "").encode()[: MOST_BYTES - len(digest) - 1]
            whole = f"{cut.decode(errors='ignore')}.{digest}"
        return f'"{whole}"'

    def _owned(self) -> list[str]:
        """Lines that refuse another role's temporary tables, before a TRY could catch it.

        All roles of a session share its temporary schema: a trigger or view of the caller would act with the
        rights of a module that has EXECUTE AS, or that such a module calls.
        """
        text = "\n".join([*self._first, *self.lines])
        used = {one.sql for one in self.scope.table_variables.values() if one.sql in text} | self._tables
        return [
            line
            for sql in sorted(used)
            if sql.startswith("pg_temp.")
            for line in (
                "  if exists (",
                "    select from pg_catalog.pg_class c",
                f"    where c.oid = to_regclass({literal(sql)})",
                "      and pg_get_userbyid(c.relowner) <> current_user",
                "  ) then",
                "    raise exception using errcode = 'insufficient_privilege', message =",
                f"      {literal(f'The temporary table {sql} is owned by another role.')},",
                "      hint = 'Drop it in this session, or open another session.';",
                "  end if;",
            )
        ]

    # Lines.

    def line(self, text: str) -> None:
        """Add a line."""
        self.lines.append("  " * self._indent + text if text else "")

    @contextmanager
    def indented(self) -> Iterator[None]:
        """Indent what is printed."""
        self._indent += 1
        yield
        self._indent -= 1

    def note(self, position: Position, text: str) -> None:
        """Say what has no meaning here."""
        self.notes.append((position, text))

    def note_all(self, position: Position, notes: Sequence[str]) -> None:
        """Say what has no meaning here."""
        self.notes += [(position, text) for text in notes]

    @contextmanager
    def _at(self, position: Position) -> Iterator[None]:
        try:
            yield
        except Unfaithful as reason:
            raise ScriptError(position, str(reason)) from None

    # Expressions.

    def value(self, code: tree.Code, target: Type | None = None, row: tuple[str, Any] | None = None) -> str:
        """Print an expression, converted to a type if one is given."""
        found = translating.expression(code, self.scope, target, row)
        self.note_all(code.position, found.notes)
        return found.sql

    def condition(self, code: tree.Code) -> str:
        """Print a condition."""
        found = translating.condition(code, self.scope)
        self.note_all(code.position, found.notes)
        # PL/pgSQL ends the condition of IF at the first THEN outside of parentheses.
        return f"({found.sql})" if " then " in found.sql else found.sql

    def exact(self, one: tree.Exact) -> str:
        """Print the name of a service, contract or message type."""
        return literal(one) if isinstance(one, str) else self.value(one, types.TEXT)

    # Statements.

    def statement(self, one: Statement) -> None:
        """Print a statement, and what others read of it."""
        way = TABLE.get(type(one))
        if way is None:
            raise ScriptError(one.position, f"{self.said(one)} has no form within a procedure: run it before")
        before = self.scope.identity_insert
        with self._at(one.position):
            if self.flow.is_read(one, "@@error") and not isinstance(one, flow.COMPOUND):
                self._with_error(one, way)
            else:
                way(self, one)
                self._forget(one)
            if isinstance(one, ENCLOSED) and self.scope.identity_insert != before:
                raise Unfaithful(IDENTITY_STAYS)

    @staticmethod
    def said(one: Any) -> str:
        """Name the kind of a statement."""
        return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(one).__name__).upper()

    def _forget(self, one: Statement) -> None:
        """Set @@ROWCOUNT behind a statement that does not set it itself."""
        if isinstance(one, (*flow.COMPOUND, *_COUNTING)) or not self.flow.is_read(one, "@@rowcount"):
            return
        if isinstance(one, tree.Declare) and all(
            getattr(each, "default", None) is None for each in one.variables
        ):
            return
        self.line(f"{COUNT} := {1 if isinstance(one, tree.Assign | tree.Declare) else 0};")

    def _with_error(self, one: Statement, way: Callable[[Body, Any], None]) -> None:
        """A statement whose error the next one reads: it alone is undone, and the procedure goes on."""
        if isinstance(one, tree.Transaction):
            way(self, one)
            self.line(f"{ERROR} := 0;")
            self._forget(one)
            return
        self.line("begin")
        with self.indented():
            way(self, one)
            self._forget(one)
            self.line(f"{ERROR} := 0;")
        self.line("exception when others then")
        with self.indented():
            self.declarations.setdefault('"@@detail"', "text")
            self.line('get stacked diagnostics "@@detail" = pg_exception_detail;')
            number = NUMBER.format(state="sqlstate", detail='"@@detail"')
            self.line(f"{ERROR} := {number};")
            self.line("raise notice '%', sqlerrm;")
        self.line("end;")

    def block(self, one: Statement | tuple[Statement, ...]) -> None:
        """Print what stands within another statement."""
        if isinstance(one, tree.Block):
            one = one.statements
        inner = one if isinstance(one, tuple) else (one,)
        with self.indented():
            before = len(self.lines)
            self.each(inner)
            if not any(line.strip() and not line.strip().startswith("--") for line in self.lines[before:]):
                self.line("null;")

    def each(self, body: Sequence[Statement]) -> None:
        """Print statements, each as it must stand in the TRY around it."""
        if self.current_try is None:
            for one in body:
                self.statement(one)
        else:
            trying.guarded(self, body, self.current_try)

    # TRY and CATCH.

    def catch(self, try_: trying.Try) -> None:
        """Print the end of a block that catches errors."""
        self.line("exception when others then")
        with self.indented():
            for line in try_.catch:
                self.line(line)
        self.line("end;")
        self.line(f"exit {try_.label} when {try_.state} is not null;")

    catching: trying.Try | None = None

    def set_count(self, one: Statement, count: str) -> None:
        """Set @@ROWCOUNT where it is read."""
        if self.flow.is_read(one, "@@rowcount"):
            self.line(f"{COUNT} := {count};")

    def keep_identity(self, table: str) -> None:
        """Give SCOPE_IDENTITY() the value of the last row that the statement before has inserted."""
        # lastval() may be that of a trigger, or of the broker.
        self.line("if found then")
        with self.indented():
            self.line(f"{IDENTITY} := {types.identity_of(literal(table), IDENTITY)};")
        self.line("end if;")

    def set_option(self, one: tree.SetOption) -> None:
        """Note XACT_ABORT, which decides what XACT_STATE() is in CATCH."""
        if one.option.upper() == "TRANSACTION" and flow.ISOLATION.fullmatch(one.value):
            self.note(one.position, "READ COMMITTED is what there is: no reader waits for a writer")
            return
        if one.option.upper() == "IDENTITY_INSERT":
            self.scope.identity_insert = identity_insert(one, self.scope)
            return
        if one.option.upper() != "XACT_ABORT":
            raise Unfaithful(f"SET {one.option} has no form within a procedure")
        self.aborts = one.value.upper() == "ON"

    def set_result(self, variable: str, sql: str) -> None:
        """Give a variable what EXEC @variable = returns."""
        known = self.scope.variable(variable)
        self.line(f"{known.sql} := {types.convert(sql, types.INTEGER, known.type)};")

    def computing(self, lines: Sequence[str]) -> None:
        """Print lines that may fail; in a TRY that has no block around them they get one."""
        if self.current_try is None or not lines:
            for line in lines:
                self.line(line)
            return
        self.line("begin")
        with self.indented():
            for line in lines:
                self.line(line)
        self.catch(self.current_try)


def _own_statements(body: Sequence[Statement]) -> Iterator[Statement]:
    """Yield statements and those within them, without those of texts."""
    for one in body:
        if isinstance(one, texts.Text):
            continue
        yield one
        yield from _own_statements([each for each in flow.parts(one) if isinstance(each, Statement)])


# Those that count rows themselves.
_COUNTING = (
    tree.Fetch,
    tree.GetConversationGroup,
    tree.InsertExecute,
    tree.Query,
    tree.Receive,
    tree.SelectVariables,
    tree.WaitFor,
)

TABLE: dict[type, Callable[[Body, Any], None]] = {
    **dict.fromkeys(definitions.STATEMENTS, definitions.definition),
    tree.Assign: queries.assign,
    tree.BeginDialog: conversations.begin_dialog,
    tree.BeginTimer: conversations.begin_timer,
    tree.Block: lambda body, one: body.each(one.statements),
    tree.Break: lambda body, _: control.leave(body, "exit"),
    tree.Continue: lambda body, _: control.leave(body, "continue"),
    tree.CreateTable: queries.create_table,
    tree.Cursor: cursors.cursor,
    tree.Declare: queries.declare,
    tree.DeclareCursor: cursors.declare_cursor,
    tree.Delay: messages.delay,
    tree.DropThings: queries.drop,
    tree.EndConversation: conversations.end_conversation,
    tree.Execute: calling.execute,
    tree.Fetch: cursors.fetch,
    tree.GetConversationGroup: conversations.get_conversation_group,
    tree.Goto: control.goto,
    tree.If: control.if_,
    tree.InsertExecute: inserting.insert_execute,
    Left: control.left,
    Repeated: control.repeated,
    Again: control.again,
    savepoints.Saved: savepoints.saved,
    savepoints.Undone: savepoints.undone,
    tree.MoveConversation: conversations.move_conversation,
    administration.NoMeaning: messages.no_meaning,
    tree.Print: messages.print_,
    tree.Query: queries.query,
    tree.RaiseError: messages.raise_error,
    tree.Receive: conversations.receive,
    tree.Return: control.return_,
    tree.SelectVariables: queries.select_variables,
    tree.Send: conversations.send,
    tree.SetOption: Body.set_option,
    texts.Text: calling.text,
    tree.Throw: messages.throw,
    tree.Transaction: transactions.transaction,
    tree.TryCatch: trying.try_catch,
    tree.WaitFor: conversations.wait_for,
    tree.While: control.while_,
}
