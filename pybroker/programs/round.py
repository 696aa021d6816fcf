"""Rounds: what the calls of handlers in one transaction of a reader share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic

if TYPE_CHECKING:
    from uuid import UUID

    from typing_extensions import TypeVar

    from pybroker.programs.group_state import GroupState

    # The default, so that an annotation may leave the type of the state out.
    State_co = TypeVar("State_co", covariant=True, default=Any)
else:
    from typing import TypeVar

    State_co = TypeVar("State_co", covariant=True)


@dataclass
class Round:
    """What the calls of one transaction share.

    Attributes:
        state: the group's state; None if the program keeps none.
        ended: handles of conversations that a handler has ended; what else was received of them is left out.
    """

    state: GroupState | None = None
    ended: set[UUID] = field(default_factory=set)


class InRound(Generic[State_co]):
    """What a conversation has of its round: the group's state."""

    _round: Round

    @property
    def state(self) -> State_co:
        """The state of the conversation group, to be changed in place; it is stored when the reader commits.

        Raises:
            LookupError: the program was made without ``state``.
        """
        state: State_co = self._known_state().value
        return state

    def forget_state(self) -> None:
        """Remove the group's state when the reader commits.

        Raises:
            LookupError: the program was made without ``state``.
        """
        self._known_state().forget()

    def _known_state(self) -> GroupState:
        if self._round.state is None:
            raise LookupError("The program keeps no state: give service_program() state and state_table.")
        return self._round.state
