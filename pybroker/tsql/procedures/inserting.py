"""INSERT … EXEC in PL/pgSQL: while it runs, result sets go into a setting, and then into the table.

A setting runs nobody's code, so a procedure with EXECUTE AS may write to it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pybroker.tsql.expressions import types
from pybroker.tsql.expressions.alterations import insert_target
from pybroker.tsql.expressions.changes import assigned_rows
from pybroker.tsql.expressions.names import relation
from pybroker.tsql.expressions.types import Family, Type, Unfaithful
from pybroker.tsql.language import tree
from pybroker.tsql.procedures import calling
from pybroker.tsql.procedures.codes import COUNT, IDENTITY
from pybroker.tsql.procedures.signatures import reached

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from pybroker.tsql.procedures.body import Body
    from pybroker.tsql.procedures.signatures import Results, Signature

_TAKEN = "pybroker_tsql.taken"
# A character that JSON never has.
_BETWEEN = "chr(30)"
TAKES = f"coalesce(current_setting('{_TAKEN}', true), '') <> ''"
_NESTED = "An INSERT EXEC statement cannot be nested."
_OTHER = "Column name or number of supplied values does not match table definition."


def take(rows: str) -> str:
    """Print what keeps a result set, a variable of JSON, for INSERT … EXEC."""
    return (
        f"perform set_config('{_TAKEN}', current_setting('{_TAKEN}') || {_BETWEEN} || {rows}::text, false);"
    )


def check(called: str, procedures: Mapping[str, Signature]) -> Collection[Results]:
    """Return the result sets of a procedure and those that it calls, as INSERT … EXEC takes them.

    Raises:
        Unfaithful: it can't, as it can't in SQL Server; or what they do is not known.
    """
    names = reached(called, procedures)
    for name in sorted(names):
        if name not in procedures:
            raise Unfaithful(
                f"what {name} shows is not known here: let its CREATE PROCEDURE stand above in these scripts"
            )
        if procedures[name].executes_inserts:
            raise Unfaithful(f"{name} has INSERT … EXEC: it can't be nested, in SQL Server either")
        if procedures[name].ends_transactions:
            raise Unfaithful(f"{name} ends transactions, so INSERT … EXEC can't call it: let it insert")
    inner = {
        each for name in names for one in procedures[name].calls_in_try for each in reached(one, procedures)
    }
    return frozenset(
        replace(one, is_in_try=one.is_in_try or name in inner)
        for name in names
        for one in procedures[name].results
    )


def insert_execute(body: Body, one: tree.InsertExecute) -> None:
    """Print INSERT … EXEC.

    Raises:
        Unfaithful: the columns of what it takes are not known, or are of several kinds.
    """
    table, columns, targets = insert_target(one.target, body.scope)
    body.executes_inserts = True
    body.line("-- INSERT … EXEC: what would be shown is kept in a setting.")
    body.line(f"if {TAKES} then")
    body.line(f"  raise exception '{_NESTED}' using detail = 'Msg 8164, Level 16, State 1';")
    body.line("end if;")
    body.line(f"perform set_config('{_TAKEN}', ' ', false);")
    found = _taken(body, one)
    body.declarations.setdefault('"@@taken"', "text[]")
    body.line(f""""@@taken" := (string_to_array(current_setting('{_TAKEN}'), {_BETWEEN}))[2:];""")
    body.line(f"perform set_config('{_TAKEN}', '', false);")
    sources = _columns(found, len(columns))
    body.line("if exists (")
    body.line('  select from unnest("@@taken") s (found)')
    body.line(f"  where json_array_length(s.found::json -> 'names') <> {len(columns)}")
    body.line(") then")
    body.line(f"  raise exception '{_OTHER}' using detail = 'Msg 213, Level 16, State 7';")
    body.line("end if;")
    cells = [_cell(number, type_) for number, type_ in enumerate(sources)]
    rows = (
        f'select {", ".join(cells)} from unnest("@@taken") with ordinality s (found, n),'
        " json_array_elements(s.found::json -> 'rows') with ordinality e (cells, m) order by s.n, e.m"
    )
    body.line(f"insert into {table} ({', '.join(columns)})")
    body.line(f"{assigned_rows(rows, sources, targets)};")
    if body.flow.is_read(one, "@@rowcount"):
        body.line(f"get diagnostics {COUNT} = row_count;")
    if IDENTITY in body.declarations:
        body.keep_identity(table)


def _taken(body: Body, one: tree.InsertExecute) -> Collection[Results]:
    """Print what is executed; return what it shows. A TRY around all of this takes back all of it."""
    outer = body.results, body.tries_around
    body.results, body.tries_around = set(), body.within_tries
    if isinstance(one.execute, tree.Execute):
        if one.execute.procedure.name.startswith("@"):
            raise Unfaithful("what a procedure that a variable names shows is not known here: write an IF")
        calling.execute(body, one.execute)
        name = relation(one.execute.procedure.schema, one.execute.procedure.name)
        found = check(name, body.procedures)
    else:
        body.statement(one.execute)
        found = body.results
    body.results, body.tries_around = outer
    return found


def _columns(found: Collection[Results], count: int) -> tuple[Type, ...]:
    """Return the types of the columns of all result sets."""
    kinds = [one.columns for one in found if one.columns is not None]
    if any(one.is_in_try for one in found):
        raise Unfaithful(
            "a result set in TRY would be taken back by an error behind it: let it stand behind END CATCH"
        )
    if len(kinds) < len(found):
        raise Unfaithful("the types of the columns that it shows are not known: list them, and CAST them")
    for kind in kinds:
        if len(kind) != count:
            raise Unfaithful(f"it shows {len(kind)} columns, and INSERT names {count}")
    return tuple(_common(each) for each in zip(*kinds, strict=True)) if kinds else (types.NULL,) * count


def _common(kinds: Sequence[Type]) -> Type:
    if len(set(kinds)) == 1:
        return kinds[0]
    for whole in (types.TEXT, types.BINARY):
        if {one.family for one in kinds} == {whole.family}:
            return whole
    raise Unfaithful("its result sets have columns of several types: CAST them alike")


def _cell(number: int, type_: Type) -> str:
    text = f"e.cells ->> {number}"
    if type_.family is Family.NULL:
        return "null"
    if type_.family is Family.BINARY:
        return f"decode(substr({text}, 3), 'hex')"
    return types.cast(f"({text})", type_)
