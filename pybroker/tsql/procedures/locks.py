"""sp_getapplock and sp_releaseapplock: advisory locks of PostgreSQL, in a key space of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pybroker.tsql.expressions import types
from pybroker.tsql.expressions.types import Unfaithful

if TYPE_CHECKING:
    from collections.abc import Callable

    from pybroker.tsql.language import tree

# The first of the two keys; the broker's own locks have another.
KEY_SPACE = 1885495664
PROCEDURES = ("sp_getapplock", "sp_releaseapplock")
_NAMES = {
    "sp_getapplock": ("resource", "lockmode", "lockowner", "locktimeout", "dbprincipal"),
    "sp_releaseapplock": ("resource", "lockowner", "dbprincipal"),
}
_SHARED = {"exclusive": "", "shared": "_shared"}


@dataclass(frozen=True, slots=True)
class Call:
    """A call of one of the two.

    Attributes:
        releases: whether it is sp_releaseapplock.
        keys: the two keys, in SQL.
        suffix: of the functions, by the lock's mode.
        is_of_session: whether the session holds the lock, and not its transaction.
        timeout: milliseconds in SQL, "0" for none; None for the session's own.
    """

    releases: bool
    keys: str
    suffix: str
    is_of_session: bool
    timeout: str | None

    def function(self, word: str) -> str:
        """Return a call of the function that locks."""
        owner = "" if self.is_of_session else "xact_"
        return f"{word}advisory_{owner}lock{self.suffix}({self.keys})"

    @property
    def unlocks(self) -> str:
        """Return a call of the function that unlocks what the session holds in either mode."""
        return f"(pg_advisory_unlock({self.keys}) or pg_advisory_unlock_shared({self.keys}))"


def read_call(one: tree.Execute, value: Callable[[tree.Code, types.Type], str]) -> Call:
    """Return what EXEC says.

    Args:
        one: EXEC of one of the two procedures.
        value: prints an argument in SQL.

    Raises:
        Unfaithful: an argument has no form here.
    """
    name = one.procedure.name.lower()
    given: dict[str, tree.Code] = {}
    for number, argument in enumerate(one.arguments):
        names = _NAMES[name]
        key = argument.name.lstrip("@").lower() if argument.name else "".join(names[number : number + 1])
        if key not in names or argument.value is None:
            raise Unfaithful(f"{name} has no such argument: it takes @{', @'.join(names)}")
        given[key] = argument.value
    if "resource" not in given:
        raise Unfaithful(f"{name} needs @Resource")
    mode = _word(given, "lockmode", "exclusive" if name == "sp_releaseapplock" else "")
    if mode not in _SHARED:
        raise Unfaithful("the mode of sp_getapplock is 'Exclusive' or 'Shared' here")
    owner = _word(given, "lockowner", "transaction")
    timeout = None
    if "locktimeout" in given:
        timeout = value(given["locktimeout"], types.INTEGER)
        timeout = None if timeout.replace(" ", "") == "-1" else timeout
    resource = value(given["resource"], types.TEXT)
    keys = f"{KEY_SPACE}, hashtext({resource})"
    return Call(name == "sp_releaseapplock", keys, _SHARED[mode], owner == "session", timeout)


def _word(given: dict[str, tree.Code], name: str, otherwise: str) -> str:
    if name not in given:
        return otherwise
    written = given[name].text.strip()
    return (written.partition("'")[2][:-1] if written.endswith("'") else written).lower()


def print_call(body: Any, one: tree.Execute) -> None:
    """Print EXEC of one of the two in PL/pgSQL; its code is 0, 1 after it has waited, or below 0."""
    call = read_call(one, body.value)
    body.declarations.setdefault(_CODE, "integer")
    if call.releases:
        if not call.is_of_session:
            body.note(one.position, "a lock of a transaction is held up to its end")
        body.line(
            f"{_CODE} := {f'case when {call.unlocks} then 0 else -999 end' if call.is_of_session else '0'};"
        )
    else:
        body.line(f"{_CODE} := case when {call.function('pg_try_')} then 0 else -1 end;")
        if call.timeout != "0":
            _waiting(body, call)
    if one.result is not None:
        body.set_result(one.result, _CODE)


def _waiting(body: Any, call: Call) -> None:
    body.line(f"if {_CODE} < 0 then")
    with body.indented():
        body.line("begin")
        with body.indented():
            if call.timeout is not None:
                body.declarations.setdefault(_TIMEOUT, "text")
                body.line(f"{_TIMEOUT} := current_setting('lock_timeout');")
                body.line(f"perform set_config('lock_timeout', cast({call.timeout} as text), true);")
            body.line(f"perform {call.function('pg_')};")
            if call.timeout is not None:
                body.line(f"perform set_config('lock_timeout', {_TIMEOUT}, true);")
            body.line(f"{_CODE} := 1;")
        body.line("exception")
        with body.indented():
            body.line("when lock_not_available then")
            body.line(f"  {_CODE} := -1;")
            body.line("when deadlock_detected then")
            body.line(f"  {_CODE} := -3;")
        body.line("end;")
    body.line("end if;")


_CODE, _TIMEOUT = '"@@applock"', '"@@lock_timeout"'
