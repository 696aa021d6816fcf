"""Behaviours that TLC has written, done to PostgreSQL: after each action both must remember the same."""

from __future__ import annotations

from concurrent.futures import wait
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from tests.patience import PATIENCE, until
from tests.shop import Session, in_background

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    from tests.shop import Shop
    from tests.specs.tlc import Step


class DiffersError(AssertionError):
    """PostgreSQL came to another state than the specification."""


class Player(Protocol):
    """What a specification's actions and variables are in PostgreSQL, for one behaviour."""

    def act(self, action: str, *arguments: str) -> None:
        """Do what the specification did."""

    def state(self) -> str:
        """Return what is remembered now, as the specification's replay writes it."""

    def finish(self, last: str) -> None:
        """Look at what only the end of a behaviour shows, after this state."""


def replay(behaviours: Sequence[Sequence[Step]], begin: Callable[[], Player]) -> None:
    """Do each behaviour.

    Raises:
        DiffersError: with the actions up to the one after which the two differ.
    """
    for number, behaviour in enumerate(behaviours):
        player = begin()
        for place, step in enumerate(behaviour):
            done = [" ".join([each.action, *each.arguments]) for each in behaviour[: place + 1]]
            try:
                player.act(step.action, *step.arguments)
            except DiffersError as error:
                raise DiffersError(number, done, *error.args) from error
            if (state := player.state()) != step.state:
                raise DiffersError(number, done, f"has {state}, not {step.state}")
        player.finish(behaviour[-1].state)


def plant(session: Session, function: str, right: str, wrong: str) -> str:
    """Put another text in place of what a function of the broker says; return the statement that made it right."""
    text: str = session.value(
        "select pg_get_functiondef(p.oid) from pg_proc p"
        " where p.proname = %s and p.pronamespace = 'broker_private'::regnamespace",
        function,
    )
    assert right in text, function
    session.connection.execute(text.replace(right, wrong).encode())
    return text


# A gate counts who comes to it and lets him on when as many are allowed. Sequences, as these don't wait for a commit.
GATES = """
create schema replay;
create function replay.gate() returns boolean language plpgsql as $$
declare
  name constant text := current_setting('replay.session', true);
  number bigint;
begin
  if name <> '' then
    number := nextval(format('replay.%I', 'reached_' || name));
    while number > coalesce(pg_sequence_last_value(format('replay.%I', 'allowed_' || name)::regclass), 0) loop
      perform pg_sleep(0.001);
    end loop;
  end if;
  return true;
end
$$;
"""


class SteppedSession(Session):
    """A session that stops at each gate within a function, so that others act in between."""

    def __init__(self, shop: Shop, name: str, *, autocommit: bool = False) -> None:
        super().__init__(shop.session(autocommit=autocommit).connection)
        self.name = name
        self._observer = observer = shop.psql
        self._work: Future[Any] | None = None
        observer.rows(f"create sequence if not exists replay.reached_{name}")
        observer.rows(f"create sequence if not exists replay.allowed_{name}")
        # Another session of this name may have come so far.
        self._allowed: int = observer.value(self._reached)
        self.rows("select set_config('replay.session', %s, false)", name)
        self.connection.commit()

    @property
    def _reached(self) -> str:
        return f"select coalesce(pg_sequence_last_value('replay.reached_{self.name}'), 0)"

    @property
    def stands(self) -> bool:
        """Whether it is at a gate."""
        return self._work is not None and not self._work.done()

    def begin(self, query: str, *arguments: object) -> None:
        """Run a statement up to its first gate, or to its end."""
        self._work = in_background(partial(self.rows, query, *arguments))
        self._come_to_rest()

    def go_on(self) -> None:
        """Go on to the next gate, or to the end."""
        if not self.stands:
            raise DiffersError(f"{self.name} has ended already")
        self._allowed += 1
        self._observer.rows(f"select setval('replay.allowed_{self.name}', %s)", self._allowed)
        self._come_to_rest()

    def result(self) -> Any:
        """Return the value that the statement returned, which must be over."""
        if self._work is None or self.stands:
            raise DiffersError(f"{self.name} is still at work")
        ((value,),) = self._work.result(0)
        return value

    def let_go(self) -> None:
        """Go on to the end."""
        while self.stands:
            self.go_on()

    def crash(self) -> None:
        """End the session, wherever it is."""
        pid = self.connection.info.backend_pid
        assert self._observer.value("select pg_terminate_backend(%s, 60000)", pid)
        if self._work is not None:
            wait([self._work], timeout=PATIENCE)
        self.connection.close()

    def _come_to_rest(self) -> None:
        work = self._work
        assert work is not None

        def rests() -> bool:
            # Mostly it takes a millisecond or two.
            for _ in range(20):
                wait([work], timeout=0.001)
                if work.done() or self._observer.value(self._reached) > self._allowed:
                    return True
            return False

        until(rests, seconds=PATIENCE)
