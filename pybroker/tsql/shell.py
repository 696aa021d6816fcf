"""An interactive session: GO ends a batch, with history and completion."""

from __future__ import annotations

import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
from prompt_toolkit import PromptSession
from prompt_toolkit.completion import Completer, Completion
from prompt_toolkit.history import FileHistory, InMemoryHistory

from pybroker.tsql.found_tables import FoundTables
from pybroker.tsql.known import Known
from pybroker.tsql.running import Run, refusals
from pybroker.tsql.script import read_text
from pybroker.tsql.session import StatementError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from prompt_toolkit.completion import CompleteEvent
    from prompt_toolkit.document import Document
    from prompt_toolkit.history import History

    from pybroker.tsql.databases import Foresight
    from pybroker.tsql.session import Session

HISTORY = Path("~/.pybroker_tsql_history")
_GO = re.compile(r"[ \t]*GO[ \t]*\d*[ \t]*;?[ \t]*(?:--.*)?", re.IGNORECASE)
_LEAVE = {"exit", "quit"}
_LAST_WORD = re.compile(r"[\w@#$/:.\[\]-]+$")
_PLAIN = re.compile(r"[^\W\d][\w@$#]*")
_MOST_NAMES = 10_000
_STATEMENTS = (
    "ALTER DATABASE CURRENT SET ENABLE_BROKER",
    "ALTER QUEUE",
    "ALTER SERVICE",
    "BACKUP CERTIFICATE",
    "BEGIN CONVERSATION TIMER",
    "BEGIN DIALOG CONVERSATION",
    "CREATE BROKER PRIORITY",
    "CREATE CERTIFICATE",
    "CREATE CONTRACT",
    "CREATE ENDPOINT",
    "CREATE EVENT NOTIFICATION",
    "CREATE MASTER KEY",
    "CREATE MESSAGE TYPE",
    "CREATE QUEUE",
    "CREATE REMOTE SERVICE BINDING",
    "CREATE ROUTE",
    "CREATE SERVICE",
    "CREATE USER",
    "CREATE XML SCHEMA COLLECTION",
    "DROP CONTRACT",
    "DROP MESSAGE TYPE",
    "DROP QUEUE",
    "DROP ROUTE",
    "DROP SERVICE",
    "END CONVERSATION",
    "GET CONVERSATION GROUP",
    "GRANT SEND ON SERVICE::",
    "MOVE CONVERSATION",
    "RECEIVE TOP (1) * FROM",
    "SELECT * FROM",
    "SEND ON CONVERSATION",
    "SENT BY INITIATOR",
    "SENT BY TARGET",
    "USE",
    "VALIDATION = WELL_FORMED_XML",
    "WAITFOR",
)
_NAMES = """
select name, false from broker.service_message_types union all
select name, false from broker.service_contracts union all
select name, false from broker.services union all
select name, true from broker.service_queues union all
select name, false from broker.routes
limit %s
"""


class _Completer(Completer):
    """Completes a statement from its first words, and a name from a part of it."""

    def __init__(self, names: Callable[[], list[str]]) -> None:
        self._names = names

    def get_completions(self, document: Document, _: CompleteEvent) -> Iterator[Completion]:
        line = document.current_line_before_cursor.lstrip()
        for statement in _STATEMENTS:
            if line and statement.lower().startswith(line.lower()):
                yield Completion(statement, start_position=-len(line))
        found = _LAST_WORD.search(line)
        part = found.group().strip("[]").lower() if found else ""
        if found and part and found.start():
            for name in self._names():
                if part in name.lower():
                    yield Completion(name, start_position=-len(found.group()))


class Shell:
    """Reads lines from a person, or from a file at standard input."""

    def __init__(self, session: Session, foresight: Foresight, defined: Mapping[str, str]) -> None:
        self._session = session
        self._foresight = foresight
        self._defined = defined
        self._known = Known(found=FoundTables(session.databases), database=session.database)
        self.completer = _Completer(self._names)

    def run(self) -> None:
        """Run batches until the input ends, or says EXIT or QUIT."""
        lines: list[str] = []
        for line in self._lines(lines):
            word = line.strip().rstrip(";").lower()
            if word in _LEAVE:
                break
            if word == "reset":
                lines.clear()
            elif _GO.fullmatch(line):
                text = "\n".join([*lines, line])
                lines.clear()
                # What ends the statement ends not the session.
                with suppress(KeyboardInterrupt):
                    self._batch(text)
            else:
                lines.append(line)
        if self._session.is_in_transaction:
            self._session.console.note("a transaction is open: it is rolled back")

    def _batch(self, text: str) -> None:
        script = read_text("batch", text, self._defined, known=self._known)
        refused = list(refusals([script], self._foresight))
        for one in refused:
            self._session.console.note(f"{one.place}: {one.refusal}")
        if refused:
            return
        run = Run(self._session)
        for batch in script.batches:
            if not all(run.batch(batch) for _ in range(batch.count)):
                return

    def _lines(self, open_batch: list[str]) -> Iterator[str]:
        if not sys.stdin.isatty():
            yield from (line.rstrip("\n") for line in sys.stdin)
            return
        prompts: PromptSession[str] = PromptSession(
            history=_history(), completer=self.completer, complete_while_typing=False
        )
        while True:
            try:
                yield prompts.prompt(f"{self._session.database} {len(open_batch) + 1}> ")
            except KeyboardInterrupt:
                open_batch.clear()
            except EOFError:
                return

    def _names(self) -> list[str]:
        """Return the names of databases, and of this one's objects, as they are written."""
        names: list[str] = []
        if not self._session.is_in_transaction:
            with suppress(psycopg.Error, StatementError):
                found = self._session.connection(self._session.database).execute(_NAMES, (_MOST_NAMES,))
                names = [_written(name, is_folded=folded) for name, folded in found]
        return [*self._session.databases.names, *names]


def _written(name: str, *, is_folded: bool) -> str:
    plain = _PLAIN.fullmatch(name) and (is_folded or name.isascii())
    return name if plain else "[" + name.replace("]", "]]") + "]"


def _history() -> History:
    path = HISTORY.expanduser()
    try:
        # Statements may hold passwords.
        path.touch(mode=0o600)
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(path))
