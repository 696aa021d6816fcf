"""The statements of a module in PL/pgSQL: one table, from classes of the tree to what each becomes.

A variable keeps its name, with the @ and in quotes, so it is never a column. What PL/pgSQL has not is a
variable named as T-SQL names it: "@@rowcount", "error_message()".
"""

from __future__ import annotations

import re
from contextlib import contextmanager, nullcontext
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from pybroker.tsql import numbers
from pybroker.tsql.administration import tree as administration
from pybroker.tsql.expressions import tables, translating, types
from pybroker.tsql.expressions.names import MOST_BYTES, relation
from pybroker.tsql.expressions.queue import MESSAGE
from pybroker.tsql.expressions.scope import Variable
from pybroker.tsql.expressions.types import Family, Type, Unfaithful
from pybroker.tsql.language import tree
from pybroker.tsql.language.jumps import Left, structured
from pybroker.tsql.procedures import flow, locks, texts
from pybroker.tsql.procedures.codes import RETURNED, returning
from pybroker.tsql.procedures.errors import NUMBER, caught_values, raised
from pybroker.tsql.source import Position, ScriptError
from pybroker.tsql.translation import identifier, literal
from pybroker.tsql.tree import Statement

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pybroker.tsql.expressions.scope import Scope
    from pybroker.tsql.tree import Name

_SAFE = re.compile(
    r"(?:\s|[()=<>!]|@@?\w+|\d+|N?'(?:[^']|'')*'|\b(?:IS|NOT|NULL|AND|OR)\b|XACT_STATE\s*\(\s*\))*",
    re.IGNORECASE,
)
_SIMPLE = re.compile(r"@?\w+|N?'(?:[^']|'')*'")
_LITERAL = re.compile(r"\s*(?:-?\d+|N?'(?:[^']|'')*'|NULL)\s*", re.IGNORECASE)
_DELAY = re.compile(
    r"\s*N?'(?P<hours>\d{1,2}):(?P<minutes>\d{1,2})(?::(?P<seconds>\d{1,2}(?:\.\d{1,3})?))?'\s*",
    re.IGNORECASE,
)
_CURSOR_OPTIONS = frozenset(
    {"FAST_FORWARD", "FORWARD_ONLY", "GLOBAL", "INSENSITIVE", "LOCAL", "READ_ONLY", "STATIC", "TYPE_WARNING"}
)
# A variable that DECLARE made; it is not known within a text of EXEC.
_OWN = re.compile(r"@(?!@)")
# More than one transaction is open.
_INNER = 2
_COUNT, _ERROR, _TRANCOUNT = '"@@rowcount"', '"@@error"', '"@@trancount"'

_RETURN = "return;"
_IDENTITY = '"scope_identity()"'
_LEFT_BEHIND = {"@@rowcount": _COUNT, "@@error": _ERROR}


class Body:
    """Prints the statements of one module.

    Args:
        name: of the module, as PostgreSQL writes it.
        scope: the names that are known; its parameters are declared.
        procedures: the parameters of procedures that are known, by their names in PostgreSQL.
    """

    def __init__(self, name: str, scope: Scope, procedures: dict[str, Any]) -> None:
        self.name = name
        self.scope = scope
        self.procedures = procedures
        self.notes: list[tuple[Position, str]] = []
        self.declarations: dict[str, str] = {}
        self.lines: list[str] = []
        self.flow = flow.Flow()
        self._first: list[str] = []
        self._indent = 1
        self._tries = 0
        self._ended: flow.States = frozenset()
        self._returns = _RETURN
        self._calls = False
        self._value: Type | None = None
        self._within_tries = 0
        self._conditions: set[int] = set()
        # The TRY whose CATCH gets the errors of what is printed now outside of a block of its own.
        self._try: _Try | None = None
        self._aborts = False
        self._cursors: dict[str, tree.DeclareCursor] = {}
        self._open_cursors: set[str] = set()
        self._counts_transactions = False
        self.ends_transactions = False
        self._rolls_back = False
        self._texts = 0
        # What stands behind the names of variables in the text of EXEC that is printed now.
        self._suffix = ""
        self._tables: set[str] = set()
        # The procedures that it calls, each with a place.
        self.calls: dict[str, Position] = {}

    @property
    def has_tables(self) -> bool:
        """Whether it has table variables or temporary tables, which all its runs in a session share."""
        return bool(self._tables)

    def print(self, body: Sequence[Statement], returns: str = _RETURN, value: Type | None = None) -> None:
        """Print a module's body.

        Args:
            body: its statements.
            returns: what RETURN without a value becomes.
            value: the type that RETURN gives, in a function.

        Raises:
            ScriptError: at a statement without a faithful form.
        """
        self._returns, self._value = returns, value
        body = texts.expanded(structured(body))
        everything = [each for one in body for each in flow.statements(one)]
        self._calls = any(isinstance(one, tree.Execute) for one in everything)
        verbs = {one.verb for one in everything if isinstance(one, tree.Transaction)}
        self.ends_transactions, self._rolls_back = bool(verbs), "ROLLBACK" in verbs
        self._ended = self.flow.run(body, frozenset({flow.State()}))
        self.flow.look_back(body)
        special: frozenset[str] = frozenset()
        for one in everything:
            special |= flow.reads(one) if isinstance(one, Statement) else special
        counted = special & {"@@trancount", "xact_state()"}
        self._counts_transactions = bool(counted) or self._is_mixed(everything)
        self._declare_special(special)
        if any(flow.reads_identity(one) for one in everything if isinstance(one, Statement)):
            self.declarations[_IDENTITY] = types.IDENTITY.sql
            self.scope.declare("scope_identity()", types.IDENTITY, _IDENTITY)
        self._declare_all(body)
        for one in body:
            self.statement(one)
        if self._calls and self._ended and self._value is None and self._returns == _RETURN:
            # It is not the code of the procedure that was called last.
            self.line(returning("'0'"))
        if body and any(state.depth for state in self._ended):
            self._open_at_end(body[-1].position)
        if self._first and self.ends_transactions:
            self._first.append("  -- So that ROLLBACK leaves the tables.")
            self._first.append("  commit;")
        self.lines = self._owned() + self._first + self.lines

    def _open_at_end(self, position: Position) -> None:
        self.note(
            position,
            "a transaction is open where the procedure ends: activation commits it, and SQL Server undoes it:"
            " write COMMIT or ROLLBACK",
        )

    def _is_mixed(self, everything: list[Any]) -> bool:
        for one in everything:
            kinds = _kinds(self.flow.depths(one)) if isinstance(one, tree.Transaction) else set()
            inner = one.verb == "COMMIT" and _INNER in kinds if kinds else False
            if len(kinds) > 1 and (inner or (one.verb == "BEGIN" and self.flow.is_pending(one))):
                return True
        return False

    def _declare_special(self, special: frozenset[str]) -> None:
        for name in sorted(special - {"xact_state()"}):
            if name != "@@trancount":
                self._variable(name, "integer", " := 0")
        if self._counts_transactions:
            self._variable("@@trancount", "integer", " := 0")
        self.scope.declare("xact_state()", types.INTEGER, f"sign({_TRANCOUNT})")

    def _variable(self, name: str, type_: str, rest: str = "") -> str:
        written = '"' + name.replace('"', '""') + '"'
        if name.startswith("@@") and name.casefold() not in self.scope.variables:
            self.scope.declare(name, types.INTEGER)
        self.declarations.setdefault(written, f"{type_}{rest}")
        return written

    def _declare_all(self, body: Sequence[Statement]) -> None:
        for one in _own_statements(body):
            if isinstance(one, tree.Declare):
                for variable in one.variables:
                    with self._at(one.position):
                        self._declare(tables.as_table(variable, self.scope))

    def _declare(self, variable: tree.Variable | tree.TableVariable) -> None:
        if isinstance(variable, tree.TableVariable):
            lines: list[str] = []
            self._make_table(variable.name, variable.definition, lines)
            if self._suffix:
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
        if self._suffix:
            self.line(f"{one.sql} := null;")

    def take_rows(self, one: tree.Parameter, definition: tree.Code) -> str:
        """Make the table of a parameter of a table type from the rows that it gets; return the parameter."""
        self._make_table(one.name, definition, self._first)
        table = self.scope.table_variable(one.name).sql
        parameter = identifier(one.name)
        self._first += [
            f"  insert into {table} overriding system value",
            f"  select * from json_populate_recordset(null::{table}, {parameter});",
        ]
        return f"{parameter} json default '[]'"

    def _within_text(self, name: str) -> str | None:
        return f'"{name}{self._suffix}"' if self._suffix else None

    def _make_table(self, name: str, definition: tree.Code, lines: list[str]) -> None:
        notes: list[str] = []
        made = tables.definition(definition, self.scope, notes)
        own = self._own_name(name)
        self._tables.add(f"pg_temp.{own}")
        self.scope.declare_table(name, made.columns, f"pg_temp.{own}")
        self._note_all(definition.position, notes)
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
        whole = f"{self.name}.{name.lower()}{self._suffix}"
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

    def _note_all(self, position: Position, notes: Sequence[str]) -> None:
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
        self._note_all(code.position, found.notes)
        return found.sql

    def condition(self, code: tree.Code) -> str:
        """Print a condition."""
        found = translating.condition(code, self.scope)
        self._note_all(code.position, found.notes)
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
            raise ScriptError(one.position, f"{_said(one)} has no form within a procedure: run it before")
        with self._at(one.position):
            if self.flow.is_read(one, "@@error") and not isinstance(one, flow.COMPOUND):
                self._with_error(one, way)
            else:
                way(self, one)
                self._forget(one)

    def _forget(self, one: Statement) -> None:
        """Set @@ROWCOUNT behind a statement that does not set it itself."""
        if isinstance(one, (*flow.COMPOUND, *_COUNTING)) or not self.flow.is_read(one, "@@rowcount"):
            return
        if isinstance(one, tree.Declare) and all(
            getattr(each, "default", None) is None for each in one.variables
        ):
            return
        self.line(f"{_COUNT} := {1 if isinstance(one, tree.Assign | tree.Declare) else 0};")

    def _with_error(self, one: Statement, way: Callable[[Body, Any], None]) -> None:
        """A statement whose error the next one reads: it alone is undone, and the procedure goes on."""
        if isinstance(one, tree.Transaction):
            way(self, one)
            self.line(f"{_ERROR} := 0;")
            self._forget(one)
            return
        self.line("begin")
        with self.indented():
            way(self, one)
            self._forget(one)
            self.line(f"{_ERROR} := 0;")
        self.line("exception when others then")
        with self.indented():
            self.declarations.setdefault('"@@detail"', "text")
            self.line('get stacked diagnostics "@@detail" = pg_exception_detail;')
            number = NUMBER.format(state="sqlstate", detail='"@@detail"')
            self.line(f"{_ERROR} := {number};")
            self.line("raise notice '%', sqlerrm;")
        self.line("end;")

    def block(self, one: Statement | tuple[Statement, ...]) -> None:
        """Print what stands within another statement."""
        if isinstance(one, tree.Block):
            one = one.statements
        inner = one if isinstance(one, tuple) else (one,)
        with self.indented():
            before = len(self.lines)
            self._each(inner)
            if not any(line.strip() and not line.strip().startswith("--") for line in self.lines[before:]):
                self.line("null;")

    def _each(self, body: Sequence[Statement]) -> None:
        if self._try is None:
            for one in body:
                self.statement(one)
        else:
            self._guarded(body, self._try)

    # TRY and CATCH.

    def _guarded(self, body: Sequence[Statement], try_: _Try) -> None:
        """Print statements of TRY: each run between ends of transactions is a block that catches errors."""
        segment: list[Statement] = []
        for one in body:
            if not self._splits(one, try_):
                segment.append(one)
                if not try_.undoes and flow.has_effects(one):
                    self._segment(segment, try_)
                    segment = []
                continue
            self._segment(segment, try_)
            segment = []
            if isinstance(one, tree.If) and not _SAFE.fullmatch(one.condition.text):
                self._computed(one, try_)
            self.statement(one)
        self._segment(segment, try_)

    def _computed(self, one: tree.If | tree.While, try_: _Try) -> None:
        """Compute a condition that may fail in a block, as what stands behind it ends transactions."""
        self.declarations.setdefault('"@@condition"', "boolean")
        self.line("begin")
        with self.indented():
            self.line(f'"@@condition" := {self.condition(one.condition)};')
        self._catch(try_)
        self._conditions.add(id(one))

    def _catch(self, try_: _Try) -> None:
        self.line("exception when others then")
        with self.indented():
            for line in try_.catch:
                self.line(line)
        self.line("end;")
        self.line(f"exit {try_.label} when {try_.state} is not null;")

    @staticmethod
    def _splits(one: Statement, try_: _Try) -> bool:
        if flow.ends_transactions(one):
            return True
        return not try_.undoes and isinstance(one, flow.COMPOUND) and flow.has_effects(one)

    def _segment(self, segment: Sequence[Statement], try_: _Try) -> None:
        if not segment:
            return
        outer, self._try = self._try, None
        if all(_is_harmless(one) for one in segment):
            for one in segment:
                self.statement(one)
            self._try = outer
            return
        self.line("begin")
        with self.indented():
            for one in segment:
                self.statement(one)
        self._catch(try_)
        self._try = outer

    def try_catch(self, one: tree.TryCatch) -> None:
        """Print TRY … CATCH; CATCH stands behind the blocks, so it may end transactions."""
        self._tries += 1
        try_ = _Try(self._tries, undoes=flow.rolls_back_first(one.handler))
        outer = self._try
        self.declarations[try_.state] = "text"
        read = [code.text.lower() for each in one.handler for code in all_code(each)]
        for name, (type_, _) in try_.values.items():
            if any(name.partition("(")[0] in text for text in read):
                self.declarations[try_.variable(name)] = type_
                try_.used.add(name)
        if try_.used & {"error_number()", "error_severity()", "error_state()"} or _throws(one.handler):
            self.declarations[try_.detail] = "text"
            try_.needs_detail = True
        if _throws(one.handler):
            try_.used.add("error_message()")
            self.declarations[try_.variable("error_message()")] = "text"
        self.line(f"{try_.state} := null;")
        self.line("-- BEGIN TRY")
        self.line(f"<<{try_.label}>>")
        self.line("begin")
        self._try = try_
        self._within_tries += 1
        with self.indented():
            self._guarded(one.body, try_)
            if not one.body:
                self.line("null;")
        self._within_tries -= 1
        self._try = outer
        self.line(f"end {try_.label};")
        self._handler(one, try_)

    def _handler(self, one: tree.TryCatch, try_: _Try) -> None:
        saved = dict(self.scope.variables)
        self._catching, previous = try_, getattr(self, "_catching", None)
        for name, (type_, _) in try_.values.items():
            self.scope.declare(name, types.TEXT if type_ == "text" else types.INTEGER, try_.variable(name))
        states = ", ".join(literal(one) for one in numbers.DOOMING)
        doomed = f"when {try_.state} in ({states}) then -1 " if not self._aborts else ""
        self.scope.declare(
            "xact_state()",
            types.INTEGER,
            f"(case when {_TRANCOUNT} = 0 then 0 {doomed}else {-1 if self._aborts else 1} end)",
        )
        self.line("-- BEGIN CATCH")
        self.line(f"if {try_.state} is not null then")
        with self.indented():
            for line in try_.computed():
                self.line(line)
        self.block(one.handler)
        self.line("end if;")
        self.scope.variables.clear()
        self.scope.variables.update(saved)
        self._catching = previous

    _catching: _Try | None = None

    # Control flow.

    def if_(self, one: tree.If, word: str = "if") -> None:
        """Print IF with ELSE."""
        condition = '"@@condition"' if id(one) in self._conditions else self.condition(one.condition)
        self.line(f"{word} {condition} then")
        reset = self._reset(one)
        with self.indented():
            for line in reset:
                self.line(line)
        self.block(one.then)
        otherwise = one.otherwise
        if isinstance(otherwise, tree.If) and not reset and not self._needs_block(otherwise):
            self.if_(otherwise, "elsif")
            return
        if otherwise is not None or reset:
            self.line("else")
            with self.indented():
                for line in reset:
                    self.line(line)
            if otherwise is not None:
                self.block(otherwise)
        self.line("end if;")

    def _needs_block(self, one: tree.If) -> bool:
        if self._try is None:
            return False
        return not self._splits(one, self._try) or not _SAFE.fullmatch(one.condition.text)

    def while_(self, one: tree.While) -> None:
        """Print WHILE."""
        condition = self.condition(one.condition)
        is_computed = self._try is not None and not _SAFE.fullmatch(one.condition.text)
        always = flow.TRUE.fullmatch(one.condition.text) or is_computed
        self.line("loop" if always else f"while {condition} loop")
        if self._try is not None and is_computed:
            with self.indented():
                self._computed(one, self._try)
                self.line('exit when "@@condition" is not true;')
        reset = self._reset(one)
        with self.indented():
            for line in reset:
                self.line(line)
        self.block(one.body)
        self.line("end loop;")
        for what, variable in _LEFT_BEHIND.items():
            if self.flow.is_read(one, what):
                self.line(f"{variable} := 0;")

    def _reset(self, one: tree.If | tree.While) -> list[str]:
        """Return what a condition leaves behind: a statement of its own that neither has rows nor fails."""
        read = self.flow.in_branches.get(id(one), ())
        return [f"{variable} := 0;" for what, variable in _LEFT_BEHIND.items() if what in read]

    def left(self, one: Left) -> None:
        """Print statements that GOTO leaves."""
        label = identifier(f"{one.label}:")
        self.line(f"<<{label}>>")
        self.line("begin")
        with self.indented():
            self._each(one.statements)
            self.line("null;")
        self.line(f"end {label};")

    def goto(self, one: tree.Goto) -> None:
        """Print GOTO."""
        self.line(f"exit {identifier(f'{one.label.casefold()}:')};")

    def return_(self, one: tree.Return) -> None:
        """Print RETURN; the code has no reader here."""
        if self._value is not None:
            if one.value is None:
                raise Unfaithful("RETURN of a function needs a value")
            self.line(f"return {self.value(one.value, self._value)};")
            return
        if any(self.flow.depths(one)):
            self._open_at_end(one.position)
        if one.value is not None and self._returns != _RETURN:
            self.note(one.position, "the return code of a trigger has no meaning")
        elif one.value is not None and one.value.text.strip() != "0":
            value = self.value(one.value, types.INTEGER)
            self.line(returning(literal(value) if value.isdigit() else f"cast({value} as text)"))
        elif self._calls:
            self.line(returning("'0'"))
        self.line(self._returns)

    # Transactions.

    def transaction(self, one: tree.Transaction) -> None:
        """Print BEGIN, COMMIT and ROLLBACK."""
        if one.verb == "SAVE":
            raise Unfaithful("SAVE TRANSACTION has no form here: put what may fail into TRY … CATCH")
        if self._open_cursors:
            raise Unfaithful(f"{one.verb} while a cursor is open: read its rows into a table variable first")
        depths = _kinds(self.flow.depths(one)) or {0}
        if one.verb == "BEGIN":
            self._begin(one, depths)
        elif one.verb == "ROLLBACK":
            self.line("rollback;")
            if self._counts_transactions:
                self.line(f"{_TRANCOUNT} := 0;")
        else:
            self._commit(depths)

    def _begin(self, one: tree.Transaction, depths: set[int]) -> None:
        self.line("-- BEGIN TRANSACTION")
        if self.flow.is_pending(one):
            if len(depths) > 1:
                self.line(f"if {_TRANCOUNT} = 0 then")
                with self.indented():
                    self.line("commit;")
                self.line("end if;")
            else:
                # What ran outside of a transaction is not undone with this one.
                self.line("commit;")
        if self._counts_transactions:
            self.line(f"{_TRANCOUNT} := {_TRANCOUNT} + 1;")

    def _commit(self, depths: set[int]) -> None:
        if depths == {_INNER}:
            self.line("-- COMMIT of an inner transaction")
        elif _INNER in depths:
            self.line(f"if {_TRANCOUNT} <= 1 then")
            with self.indented():
                self.line("commit;")
            self.line("end if;")
        else:
            self.line("commit;")
        if self._counts_transactions:
            self.line(f"{_TRANCOUNT} := greatest({_TRANCOUNT} - 1, 0);")

    # Variables.

    def declare(self, one: tree.Declare) -> None:
        """Print the defaults of DECLARE; the names stand at the module's beginning."""
        for variable in one.variables:
            if isinstance(variable, tree.Variable) and variable.default is not None:
                known = self.scope.variable(variable.name)
                self.line(f"{known.sql} := {self.value(variable.default, known.type)};")

    def assign(self, one: tree.Assign) -> None:
        """Print SET @variable."""
        known = self.scope.variable(one.variable)
        value = one.value
        if one.operator != "=":
            is_simple = _SIMPLE.fullmatch(value.text)
            prefix = f"{one.variable} {one.operator[0]} {'' if is_simple else '('}"
            begin = value.position
            text = f"{prefix}{value.text}{'' if is_simple else ')'}"
            value = tree.Code(text, Position(begin.line, begin.column - len(prefix)))
        self.line(f"{known.sql} := {self.value(value, known.type)};")

    def select_variables(self, one: tree.SelectVariables) -> None:
        """Print SELECT @variable = …; where no row is found, the variables stay as they are."""
        pairs = [(each.variable, each.value) for each in one.assignments]
        if any(each.operator != "=" for each in one.assignments):
            for each in one.assignments:
                if one.source is not None:
                    raise Unfaithful("SELECT @variable += … FROM has no form here: write SUM or STRING_AGG")
                self.assign(each)
            self._set_count(one, "1")
            return
        found = translating.assignments(pairs, one.source, self.scope, one.top, one.with_)
        self._note_all(one.position, found.notes)
        if one.source is None:
            for name, value in zip(found.assigned, found.values, strict=True):
                self.line(f"{self.scope.variable(name).sql} := {value};")
            self._set_count(one, "1")
            return
        self._rows(one, found.sql, found.assigned)

    def _rows(self, one: Statement, sql: str, assigned: Sequence[str]) -> None:
        """Print a loop that assigns each row; the last one stays."""
        self.declarations.setdefault('"@@row"', "record")
        counts = self.flow.is_read(one, "@@rowcount")
        if counts:
            self.line(f"{_COUNT} := 0;")
        self.line(f'for "@@row" in {sql} loop')
        with self.indented():
            for number, name in enumerate(assigned, 1):
                self.line(f'{self.scope.variable(name).sql} := "@@row".c{number};')
            if counts:
                self.line(f"{_COUNT} := {_COUNT} + 1;")
        self.line("end loop;")

    def _set_count(self, one: Statement, count: str) -> None:
        if self.flow.is_read(one, "@@rowcount"):
            self.line(f"{_COUNT} := {count};")

    # Queries.

    def query(self, one: tree.Query) -> None:
        """Print SELECT, INSERT, UPDATE, DELETE and TRUNCATE."""
        found = translating.query(one.code, self.scope)
        self._note_all(one.position, found.notes)
        if found.assigned:
            self._rows(one, found.sql, found.assigned)
        elif found.returns_rows:
            self._result_set(one, found)
        else:
            self.line(f"{found.sql};")
            if self.flow.is_read(one, "@@rowcount"):
                self.line(f"get diagnostics {_COUNT} = row_count;")
        if found.inserts is not None and _IDENTITY in self.declarations:
            if found.returns_rows:
                raise Unfaithful(
                    "SCOPE_IDENTITY() beside INSERT with OUTPUT: take the value from OUTPUT INTO"
                )
            # lastval() may be that of a trigger, or of the broker.
            self.line("if found then")
            with self.indented():
                self.line(f"{_IDENTITY} := {types.identity_of(literal(found.inserts), _IDENTITY)};")
            self.line("end if;")

    def _result_set(self, one: Statement, found: translating.Statement) -> None:
        """Print a query whose rows a client sees: a notice has them, as a procedure returns none."""
        self.declarations.setdefault('"@@rows"', "json")
        names = [heading for heading, _ in found.columns]
        if "*" in names:
            shown, headings, columns = "to_json(r)", "null", ""
        else:
            cells = [
                f"'0x' || encode(r.c{number}, 'hex')" if type_.family is Family.BINARY else f"r.c{number}"
                for number, (_, type_) in enumerate(found.columns, 1)
            ]
            shown = f"json_build_array({', '.join(cells)})"
            headings = f"json_build_array({', '.join(literal(name or '') for name in names)})"
            columns = f" ({', '.join(f'c{number}' for number in range(1, len(cells) + 1))})"
        self.line("-- A result set: EXEC shows it, activation writes it to broker.activation_log.")
        self.line(f"with r{columns} as ({found.sql})")
        self.line(f"select json_build_object('names', {headings}, 'rows', coalesce(json_agg({shown}), '[]'))")
        self.line('into "@@rows" from r;')
        self.line("""raise notice using errcode = '01R01', message = "@@rows"::text;""")
        self._set_count(one, """json_array_length("@@rows" -> 'rows')""")

    def create_table(self, one: tree.CreateTable) -> None:
        """Print CREATE TABLE; a temporary one is made once in a session."""
        if one.name.name.startswith("#"):
            lines: list[str] = []
            self._make_table(one.name.name, one.definition, lines)
            for line in lines:
                self.line(line.removeprefix("  "))
            return
        notes: list[str] = []
        made = tables.definition(one.definition, self.scope, notes)
        self._note_all(one.position, notes)
        self.line(f"create table {relation(one.name.schema, one.name.name)} ({made.sql});")

    def drop(self, one: tree.DropThings) -> None:
        """Print DROP TABLE."""
        if one.kind != "TABLE":
            raise Unfaithful(f"DROP {one.kind} has no form within a procedure: run it before")
        names = [
            self.scope.table_variable(name.name).sql
            if name.name.startswith("#")
            else relation(name.schema, name.name)
            for name in one.names
        ]
        self.line(f"drop table {'if exists ' if one.if_exists else ''}{', '.join(names)};")

    # Conversations.

    def begin_dialog(self, one: tree.BeginDialog) -> None:
        """Print BEGIN DIALOG."""
        arguments = [self.exact(one.from_service), self.value(one.to_service, types.TEXT)]
        if one.contract is not None:
            arguments.append(f"contract => {self.exact(one.contract)}")
        if one.broker_instance is not None:
            instance = self.value(one.broker_instance, types.TEXT)
            if instance.upper() == "'CURRENT DATABASE'":
                instance = "'CURRENT DATABASE'"
            arguments.append(f"broker_instance => {instance}")
        if one.related_conversation is not None:
            arguments.append(f"related_conversation => {self.value(one.related_conversation, types.UUID)}")
        if one.related_conversation_group is not None:
            arguments.append(
                f"related_conversation_group => {self.value(one.related_conversation_group, types.UUID)}"
            )
        if one.lifetime is not None:
            arguments.append(f"lifetime => {self._seconds(one.lifetime)}")
        if one.encryption is not None:
            arguments.append(f"encryption => {'true' if one.encryption else 'false'}")
        handle = self.scope.variable(one.handle).sql
        self.line(f"{handle} := broker.begin_dialog({', '.join(arguments)});")

    def _seconds(self, code: tree.Code) -> str:
        if code.text.strip().isdigit():
            return f"'{int(code.text)} s'"
        return f"make_interval(secs => {self.value(code, types.INTEGER)})"

    def send(self, one: tree.Send) -> None:
        """Print SEND."""
        arguments = []
        if one.message_type is not None:
            arguments.append(self.exact(one.message_type))
        elif one.body is not None:
            arguments.append("'DEFAULT'")
        if one.body is not None:
            found = translating.body(one.body, self.scope)
            self._note_all(one.body.position, found.notes)
            body = f"cast({found.sql} as text)" if found.type.sql.startswith("varchar") else found.sql
            arguments.append(body)
        handles = [self.value(handle, types.UUID) for handle in one.handles]
        if len(handles) == 1:
            self.line(f"perform broker.send({', '.join([*handles, *arguments])});")
        else:
            self.line(
                f"perform broker.send_all(array[{', '.join(handles)}]::uuid[], {', '.join(arguments)});"
            )

    def receive(self, one: tree.Receive, timeout: str = "") -> None:
        """Print RECEIVE."""
        arguments = [literal(_queue(one.queue))]
        if one.top is not None:
            arguments.append(f"top => {self.value(one.top, types.INTEGER)}")
        for column, code in (
            ("conversation_handle", one.conversation_handle),
            ("conversation_group_id", one.conversation_group_id),
        ):
            if code is not None:
                value = self.value(code, types.UUID)
                # NULL would be no condition, and takes nothing in SQL Server.
                arguments.append(f"{column} => coalesce({value}, '00000000-0000-0000-0000-000000000000')")
        if timeout:
            arguments.append(f"timeout => {timeout}")
        source = f"broker.receive({', '.join(arguments)})"
        if one.into is not None:
            self._receive_into(one, source, one.into)
        elif any(column.variable for column in one.columns):
            self._receive_variables(one, source)
        else:
            self._receive_rows(one, source)

    def _receive_variables(self, one: tree.Receive, source: str) -> None:
        self.declarations.setdefault('"@@message"', "broker.message")
        counts = self.flow.is_read(one, "@@rowcount")
        if counts:
            self.line(f"{_COUNT} := 0;")
        self.line(f'for "@@message" in select * from {source} loop')
        with self.indented():
            for column in one.columns:
                if column.variable is None:
                    raise ScriptError(
                        column.value.position, "RECEIVE either assigns all of its columns or none"
                    )
                known = self.scope.variable(column.variable)
                value = self.value(column.value, known.type, ('"@@message".', MESSAGE))
                self.line(f"{known.sql} := {value};")
            if counts:
                self.line(f"{_COUNT} := {_COUNT} + 1;")
        self.line("end loop;")

    def _received(self, one: tree.Receive) -> list[tuple[str | None, str, Type]]:
        """Return the columns with their headings, values and types."""
        found: list[tuple[str | None, str, Type]] = []
        for column in one.columns:
            if column.value.text.strip() == "*":
                found += [(name, f"m.{name}", type_) for name, type_ in MESSAGE.items()]
                continue
            value = translating.expression(column.value, self.scope, None, ("m.", MESSAGE))
            self._note_all(column.value.position, value.notes)
            own = column.value.text.strip().strip("[]").lower() if value.sql.startswith("m.") else None
            heading = column.name or own
            found.append((heading, value.sql, value.type))
        return found

    def _receive_into(self, one: tree.Receive, source: str, into: str) -> None:
        target = self.scope.table_variable(into)
        columns = self._received(one)
        wanted = list((target.columns or {}).values())
        if len(columns) != len(wanted):
            raise Unfaithful(f"{into} has {len(wanted)} columns, and RECEIVE gives {len(columns)}: list them")
        items = [
            types.convert(sql, type_, other) for (_, sql, type_), other in zip(columns, wanted, strict=True)
        ]
        self.line(f"insert into {target.sql}")
        self.line(f"select {', '.join(items)}")
        self.line(f"from {source} m;")
        if self.flow.is_read(one, "@@rowcount"):
            self.line(f"get diagnostics {_COUNT} = row_count;")

    def _receive_rows(self, one: tree.Receive, source: str) -> None:
        columns = self._received(one)
        items = ", ".join(sql for _, sql, _ in columns)
        self._result_set(
            one,
            translating.Statement(
                f"select {items} from {source} m", tuple((heading, type_) for heading, _, type_ in columns)
            ),
        )

    def wait_for(self, one: tree.WaitFor) -> None:
        """Print WAITFOR (RECEIVE …) and WAITFOR (GET CONVERSATION GROUP …)."""
        timeout = "null"
        if one.timeout is not None:
            text = one.timeout.text.strip()
            if text.isdigit():
                count = int(text)
                timeout = f"'{count // 1000} s'" if count % 1000 == 0 else f"'{count} ms'"
            elif text.replace(" ", "") != "-1":
                value = self.value(one.timeout, types.INTEGER)
                timeout = f"case when {value} >= 0 then make_interval(secs => {value} / 1000.0) end"
        # Who reads @@ROWCOUNT behind WAITFOR reads that of what it waits for.
        self.flow.after[id(one.statement)] = self.flow.after.get(id(one), frozenset())
        if isinstance(one.statement, tree.Receive):
            self.receive(one.statement, timeout)
        else:
            self.get_conversation_group(one.statement, timeout)

    def get_conversation_group(self, one: tree.GetConversationGroup, timeout: str = "") -> None:
        """Print GET CONVERSATION GROUP; where there is none, the variable is NULL in both."""
        waits = f", timeout => {timeout}" if timeout else ""
        variable = self.scope.variable(one.variable).sql
        self.line(f"{variable} := broker.get_conversation_group({literal(_queue(one.queue))}{waits});")
        self._set_count(one, f"case when {variable} is null then 0 else 1 end")

    def move_conversation(self, one: tree.MoveConversation) -> None:
        """Print MOVE CONVERSATION."""
        handle, group = self.value(one.handle, types.UUID), self.value(one.group, types.UUID)
        self.line(f"perform broker.move_conversation({handle}, {group});")

    def end_conversation(self, one: tree.EndConversation) -> None:
        """Print END CONVERSATION."""
        arguments = [self.value(one.handle, types.UUID)]
        if one.error is not None:
            arguments.append(f"error_code => {self.value(one.error, types.INTEGER)}")
        if one.description is not None:
            arguments.append(f"error_description => {self.value(one.description, types.TEXT)}")
        if one.cleanup:
            arguments.append("cleanup => true")
        self.line(f"perform broker.end_conversation({', '.join(arguments)});")

    def begin_timer(self, one: tree.BeginTimer) -> None:
        """Print BEGIN CONVERSATION TIMER."""
        handle = self.value(one.handle, types.UUID)
        self.line(f"perform broker.begin_conversation_timer({handle}, {self._seconds(one.timeout)});")

    # Messages and errors.

    def print_(self, one: tree.Print) -> None:
        """Print PRINT."""
        self.line(f"raise notice '%', coalesce({self.value(one.value, types.TEXT)}, ' ');")

    def raise_error(self, one: tree.RaiseError) -> None:
        """Print RAISERROR; 10 and below is a message, above it is an error."""
        is_error, lines = raised(self, one)
        for line in lines:
            self.line(line)
        if is_error and not self._within_tries:
            self.note(
                one.position,
                "an error outside of TRY ends the procedure here, and undoes what is not committed",
            )

    def throw(self, one: tree.Throw) -> None:
        """Print THROW."""
        if not one.arguments:
            if self._catching is None:
                raise Unfaithful("THROW without arguments stands in CATCH")
            try_ = self._catching
            self.line(
                f"raise exception using errcode = {try_.state}, message = {try_.variable('error_message()')},"
                f" detail = coalesce({try_.detail}, '');"
            )
            return
        number, message, state = one.arguments
        text = self.value(message, types.TEXT)
        text = text if text.startswith("'") else f"coalesce({text}, '')"
        self.line(
            f"raise exception using message = {text}, detail = format('Msg %s, Level 16, State %s',"
            f" {self.value(number, types.INTEGER)}, {self.value(state, types.INTEGER)});"
        )

    def delay(self, one: tree.Delay) -> None:
        """Print WAITFOR DELAY."""
        found = _DELAY.fullmatch(one.value.text)
        if one.kind != "DELAY" or found is None:
            raise Unfaithful(
                "WAITFOR TIME, or a delay in a variable, has no form here: write DELAY 'hh:mm:ss'"
            )
        seconds = int(found["hours"]) * 3600 + int(found["minutes"]) * 60 + float(found["seconds"] or 0)
        self.line(f"perform pg_sleep({seconds:g});")

    def set_option(self, one: tree.SetOption) -> None:
        """Note XACT_ABORT, which decides what XACT_STATE() is in CATCH."""
        if one.option.upper() == "TRANSACTION" and flow.ISOLATION.fullmatch(one.value):
            self.note(one.position, "READ COMMITTED is what there is: no reader waits for a writer")
            return
        if one.option.upper() != "XACT_ABORT":
            raise Unfaithful(f"SET {one.option} has no form within a procedure")
        self._aborts = one.value.upper() == "ON"

    def no_meaning(self, one: Any) -> None:
        """Say that a statement has no meaning here."""
        self.note(one.position, f"{one.text} has no meaning here: {one.why}")

    # Calls.

    def execute(self, one: tree.Execute) -> None:
        """Print EXEC of a procedure."""
        if one.procedure.name.startswith("@"):
            raise Unfaithful("the name of a procedure in a variable has no form here: write an IF for each")
        name = relation(one.procedure.schema, one.procedure.name)
        if one.procedure.name.lower() in locks.PROCEDURES and name not in self.procedures:
            locks.print_call(self, one)
            return
        if one.procedure.name.lower().startswith(("sp_", "xp_")) and name not in self.procedures:
            raise Unfaithful(f"{one.procedure.name} is not known here: write what it does")
        if one.procedure.database:
            raise Unfaithful("a procedure of another database can't be called here: send it a message")
        if self.flow.is_read(one, "@@rowcount"):
            raise Unfaithful("@@ROWCOUNT behind EXEC is that of the procedure: use an OUTPUT parameter")
        known = self.procedures.get(name)
        self.calls.setdefault(name, one.position)
        if getattr(known, "ends_transactions", False) and max(self.flow.depths(one), default=0):
            raise Unfaithful(
                f"{name} ends transactions, so it can't be called within one: take BEGIN TRAN out of it"
            )
        parameters = list(known or ())
        arguments = []
        for at, argument in enumerate(one.arguments):
            parameter = _parameter(parameters, argument, at)
            arguments.append(self._argument(argument, parameter))
        if one.result is not None:
            self.line(returning("'0'"))
        self.line(f"call {name}({', '.join(arguments)});")
        if one.result is not None:
            self.set_result(one.result, f"cast(current_setting('{RETURNED}') as integer)")

    def set_result(self, variable: str, sql: str) -> None:
        """Give a variable what EXEC @variable = returns."""
        known = self.scope.variable(variable)
        self.line(f"{known.sql} := {types.convert(sql, types.INTEGER, known.type)};")

    def text(self, one: texts.Text) -> None:
        """Print the statements of a text that EXEC runs; it has variables of its own."""
        self._texts += 1
        suffix = f" {self._texts}"
        self.line("-- The text of EXEC.")
        inner = {name: known for name, known in self.scope.variables.items() if not _OWN.match(name)}
        found = [(each, *self._given(each)) for each in one.given]
        lines = []
        for each, value, type_ in found:
            known = Variable(f'"{each.name}{suffix}"', type_)
            if each.name.casefold() in inner:
                raise Unfaithful(f"{each.name} is given twice: leave one out")
            inner[each.name.casefold()] = known
            self.declarations[known.sql] = type_.sql
            lines.append(f"{known.sql} := {value};")
        self._computing(lines)
        parts = [inner[each.name.casefold()].sql for each in one.given if each.is_part]
        if parts:
            self.line(f"if {' and '.join(f'{part} is not null' for part in parts)} then")
        saved = self.scope.variables, self.scope.table_variables, self._suffix, self._aborts
        self.scope.variables, self._suffix = inner, suffix
        self.scope.table_variables = temporary = {
            name: table for name, table in saved[1].items() if name.startswith("#")
        }
        before, notes = len(temporary), len(self.notes)
        try:
            with self.indented() if parts else nullcontext():
                self._declare_all(one.statements)
                self._each(one.statements)
                if parts and not one.statements:
                    self.line("null;")
        except ScriptError as error:
            raise ScriptError(one.place(error.position), f"in the text of EXEC: {error}") from None
        self.notes[notes:] = [(one.place(position), note) for position, note in self.notes[notes:]]
        self.scope.variables, self.scope.table_variables, self._suffix, self._aborts = saved
        if len([name for name in temporary if name.startswith("#")]) > before:
            raise Unfaithful("a temporary table of a text goes with it: use a table variable")
        if parts:
            self.line("end if;")
        outputs = []
        for each in one.given:
            if each.output is not None:
                outer, own = self.scope.variable(each.output), inner[each.name.casefold()]
                outputs.append(f"{outer.sql} := {types.convert(own.sql, own.type, outer.type)};")
        self._computing(outputs)

    def _given(self, each: texts.Given) -> tuple[str, Type]:
        """Return what a text gets, and the type that it has there."""
        if each.type is not None:
            type_ = self.scope.type(tables.written(each.type))
            return self.value(each.value, type_), type_
        found = translating.expression(each.value, self.scope)
        if each.is_number and found.type.family not in types.NUMBERS:
            raise Unfaithful(f"{each.value.text} is no number, so it may be any SQL: write an IF for each")
        if not each.is_number and found.type.family is not Family.TEXT:
            raise Unfaithful(f"{each.value.text} is no text: CAST it to nvarchar")
        return (found.sql, found.type) if each.is_number else (self.value(each.value, types.TEXT), types.TEXT)

    def _computing(self, lines: Sequence[str]) -> None:
        """Print lines that may fail; in a TRY that has no block around them they get one."""
        if self._try is None or not lines:
            for line in lines:
                self.line(line)
            return
        self.line("begin")
        with self.indented():
            for line in lines:
                self.line(line)
        self._catch(self._try)

    def _argument(self, argument: tree.Argument, parameter: tree.Parameter | None) -> str:
        if argument.value is None:
            raise Unfaithful("DEFAULT as an argument has no form here: leave the argument out")
        if argument.value.text.strip().casefold() in self.scope.table_variables:
            rows = tables.rows_of(self.scope.table_variable(argument.value.text.strip()).sql)
            # CALL takes no query.
            value = f'"@@rows of {argument.value.text.strip().lower()}"'
            self.declarations[value] = "json"
            self._computing([f"{value} := {rows};"])
            name = None if argument.name is None else parameter.name if parameter else argument.name
            return value if name is None else f"{identifier(name)} => {value}"
        target = None if parameter is None else self.scope.type(tables.written(parameter.type))
        if argument.is_output or (parameter is not None and parameter.is_output):
            if not argument.is_output:
                name = "" if parameter is None else parameter.name
                raise Unfaithful(f"{name} is an OUTPUT parameter: write OUTPUT behind it")
            value = self.scope.variable(argument.value.text.strip()).sql
        else:
            value = self.value(argument.value, target)
            if target is not None and target.sql == "smallint":
                value = types.cast(value, target)
        if argument.name is None:
            return value
        name = parameter.name if parameter else argument.name
        return '"' + name.replace('"', '""') + f'" => {value}'

    # Cursors.

    def declare_cursor(self, one: tree.DeclareCursor) -> None:
        """Remember a cursor; its query is printed by OPEN."""
        others = {word.upper() for word in one.options} - _CURSOR_OPTIONS
        if others or one.query is None:
            said = ", ".join(sorted(others)) or "a variable"
            raise Unfaithful(f"a cursor with {said} has no form here: leave it out")
        if one.name.startswith("@"):
            raise Unfaithful(f"the cursor {one.name} has a variable's name: write it without the @")
        self._cursors[one.name.casefold()] = one
        self.declarations[identifier(one.name)] = "refcursor"

    def _cursor(self, name: str) -> tree.DeclareCursor:
        found = self._cursors.get(name.casefold())
        if found is None:
            raise Unfaithful(f"the cursor {name} is not declared above")
        return found

    def cursor(self, one: tree.Cursor) -> None:
        """Print OPEN, CLOSE and DEALLOCATE."""
        declared = self._cursor(one.name)
        name = identifier(declared.name)
        if one.verb == "OPEN" and declared.query is not None:
            found = translating.query(declared.query, self.scope)
            self._note_all(one.position, found.notes)
            if any(heading == "*" for heading, _ in found.columns):
                raise Unfaithful("a cursor over * needs its table's CREATE TABLE here: list the columns")
            columns = ", ".join(f"c{number}" for number in range(1, len(found.columns) + 1))
            self.line(f"open {name} for select * from ({found.sql}) r ({columns});")
            self._open_cursors.add(one.name.casefold())
        elif one.verb == "CLOSE":
            self.line(f"close {name};")
            self._open_cursors.discard(one.name.casefold())
        else:
            self._open_cursors.discard(one.name.casefold())

    def fetch(self, one: tree.Fetch) -> None:
        """Print FETCH NEXT; behind the last row the variables stay as they are."""
        declared = self._cursor(one.name)
        if one.direction != "NEXT":
            raise Unfaithful(f"FETCH {one.direction} has no form here: a cursor is read forwards")
        if declared.query is None or not one.variables:
            raise Unfaithful("FETCH without INTO has no form here: write INTO")
        columns = translating.query(declared.query, self.scope).columns
        if len(columns) != len(one.variables):
            raise Unfaithful(
                f"FETCH names {len(one.variables)} variables, and the cursor has {len(columns)} columns"
            )
        self.declarations.setdefault('"@@row"', "record")
        self.line(f'fetch {identifier(declared.name)} into "@@row";')
        if "@@fetch_status" in self.scope.variables:
            self.line('"@@fetch_status" := case when found then 0 else -1 end;')
        self.line("if found then")
        with self.indented():
            for number, (name, (_, type_)) in enumerate(zip(one.variables, columns, strict=True), 1):
                known = self.scope.variable(name)
                value = types.convert(f'"@@row".c{number}', type_, known.type)
                self.line(f"{known.sql} := {value};")
        self.line("end if;")
        self._set_count(one, "case when found then 1 else 0 end")


class _Try:
    """A TRY: the names of what PL/pgSQL keeps of its error."""

    def __init__(self, number: int, *, undoes: bool) -> None:
        self.label = "try" if number == 1 else f"try_{number}"
        self.undoes = undoes
        self._suffix = "" if number == 1 else f" {number}"
        self.state = f'"@@sqlstate{self._suffix}"'
        self.detail = f'"@@detail{self._suffix}"'
        self.values = caught_values(self.state, self.detail)
        self.used: set[str] = set()
        self.needs_detail = False

    def variable(self, name: str) -> str:
        return f'"{name}{self._suffix}"'

    @property
    def catch(self) -> list[str]:
        """The lines of the handler of each block."""
        diagnostics = [f"{self.state} = returned_sqlstate"]
        if "error_message()" in self.used:
            diagnostics.append(f"{self.variable('error_message()')} = message_text")
        if self.needs_detail:
            diagnostics.append(f"{self.detail} = pg_exception_detail")
        if self.used & {"error_line()", "error_procedure()"}:
            diagnostics.append(f"{self.variable('error_procedure()')} = pg_exception_context")
        return [f"get stacked diagnostics {', '.join(diagnostics)};"]

    def computed(self) -> list[str]:
        """The lines at the beginning of CATCH that compute the values it reads."""
        order = sorted(self.used, key=lambda name: name == "error_procedure()")
        return [
            f"{self.variable(name)} := {sql.format(context=self.variable('error_procedure()'))};"
            for name in order
            if (sql := self.values[name][1])
        ]


def _kinds(depths: set[int]) -> set[int]:
    """Return 0 for none, 1 for one and 2 for more transactions."""
    return {min(depth, _INNER) for depth in depths}


def _queue(name: Name) -> str:
    return name.name.lower()


def _said(one: Any) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(one).__name__).upper()


def _is_harmless(one: Any) -> bool:
    """Whether a statement can't fail."""
    match one:
        case tree.Break() | tree.Continue() | tree.Goto() | tree.Return(value=None) | tree.SetOption():
            return True
        case tree.Declare():
            return all(getattr(each, "default", None) is None for each in one.variables)
        case tree.Assign(operator="=", value=value) | tree.Print(value=value):
            return bool(_LITERAL.fullmatch(value.text))
        case _:
            return False


def _own_statements(body: Sequence[Statement]) -> Iterator[Statement]:
    """Yield statements and those within them, without those of texts."""
    for one in body:
        if isinstance(one, texts.Text):
            continue
        yield one
        yield from _own_statements([each for each in flow.parts(one) if isinstance(each, Statement)])


def all_code(one: Any) -> Iterator[tree.Code]:
    """Yield all code of a statement, and of those within it."""
    for each in flow.statements(one):
        if isinstance(each, tree.Code):
            yield each


def _throws(handler: Sequence[Statement]) -> bool:
    everything = (each for one in handler for each in flow.statements(one))
    return any(isinstance(each, tree.Throw) and not each.arguments for each in everything)


def _parameter(parameters: list[tree.Parameter], argument: tree.Argument, at: int) -> tree.Parameter | None:
    if not parameters:
        return None
    if argument.name is None:
        if at >= len(parameters):
            raise Unfaithful(f"the procedure has {len(parameters)} parameters")
        return parameters[at]
    for one in parameters:
        if one.name.casefold() == argument.name.casefold():
            return one
    raise Unfaithful(f"the procedure has no parameter {argument.name}")


# Those that count rows themselves.
_COUNTING = (
    tree.Fetch,
    tree.GetConversationGroup,
    tree.Query,
    tree.Receive,
    tree.SelectVariables,
    tree.WaitFor,
)

TABLE: dict[type, Callable[[Body, Any], None]] = {
    tree.Assign: Body.assign,
    tree.BeginDialog: Body.begin_dialog,
    tree.BeginTimer: Body.begin_timer,
    tree.Block: lambda body, one: body._each(one.statements),  # noqa: SLF001 - this module's own
    tree.Break: lambda body, _: body.line("exit;"),
    tree.Continue: lambda body, _: body.line("continue;"),
    tree.CreateTable: Body.create_table,
    tree.Cursor: Body.cursor,
    tree.Declare: Body.declare,
    tree.DeclareCursor: Body.declare_cursor,
    tree.Delay: Body.delay,
    tree.DropThings: Body.drop,
    tree.EndConversation: Body.end_conversation,
    tree.Execute: Body.execute,
    tree.Fetch: Body.fetch,
    tree.GetConversationGroup: Body.get_conversation_group,
    tree.Goto: Body.goto,
    tree.If: Body.if_,
    Left: Body.left,
    tree.MoveConversation: Body.move_conversation,
    administration.NoMeaning: Body.no_meaning,
    tree.Print: Body.print_,
    tree.Query: Body.query,
    tree.RaiseError: Body.raise_error,
    tree.Receive: Body.receive,
    tree.Return: Body.return_,
    tree.SelectVariables: Body.select_variables,
    tree.Send: Body.send,
    tree.SetOption: Body.set_option,
    texts.Text: Body.text,
    tree.Throw: Body.throw,
    tree.Transaction: Body.transaction,
    tree.TryCatch: Body.try_catch,
    tree.WaitFor: Body.wait_for,
    tree.While: Body.while_,
}
