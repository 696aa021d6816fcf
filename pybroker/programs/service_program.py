"""Service programs: which function handles which message of a queue, and what it is called with.

Nothing here does I/O: the readers, sync and async, ask a program for its calls and make them.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import groupby
from types import SimpleNamespace
from typing import Any, Generic, NamedTuple, ParamSpec, Protocol, TypeVar, overload

from lxml import etree

from pybroker.message import (
    DIALOG_TIMER_MESSAGE_TYPE,
    END_DIALOG_MESSAGE_TYPE,
    ERROR_MESSAGE_TYPE,
    ReceivedMessage,
)
from pybroker.programs.round import State_co

if typing.TYPE_CHECKING:
    from pybroker.client.conversation import Conversation, Message
    from pybroker.client.conversation_async import AsyncConversation, AsyncMessage
    from pybroker.duration import Duration
    from pybroker.programs.conversation import ProgramConversation
    from pybroker.programs.conversation_async import AsyncProgramConversation

Handler = Callable[..., Any]

_P = ParamSpec("_P")
_Shape = ParamSpec("_Shape")
_R = TypeVar("_R")
_R_co = TypeVar("_R_co", covariant=True)
_Result_co = TypeVar("_Result_co", covariant=True)

# As broker.announce_program has it.
_MOST_READERS = 32_767
# As broker.note_failure has them.
_MOST_RETRIES = 100
_LONGEST_PAUSE = 365 * 86_400

_SYSTEM_TYPES = (ERROR_MESSAGE_TYPE, END_DIALOG_MESSAGE_TYPE, DIALOG_TIMER_MESSAGE_TYPE)


class UnhandledMessageType(LookupError):  # noqa: N818
    """A message came of a type that the program has no handler for; it stays in the queue."""


class Call(NamedTuple):
    """One call of a handler.

    Attributes:
        function: the handler; None for a message that needs nothing.
        messages: what the call is for, all of one conversation, in their order.
        arguments: makes what the handler gets beside the conversation; raises if the body is not of its type.
    """

    function: Handler | None
    messages: Sequence[Any]
    arguments: Callable[[], tuple[Any, ...]]


class Shaped(Protocol[_P, _R_co, _Shape, _Result_co]):
    """A function of any signature, which is kept, that can also be called as its last two parameters say.

    A type variable's bound would keep the signature, too, but can't name the program's type of state.
    """

    @overload
    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R_co: ...
    @overload
    def __call__(self, *args: _Shape.args, **kwargs: _Shape.kwargs) -> _Result_co: ...


class HandlerDecorator(Protocol[State_co]):
    """What :meth:`ServiceProgram.on` returns: it takes a handler, and returns it as it is."""

    @overload
    def __call__(
        self, function: Shaped[_P, _R, [ProgramConversation[State_co]], None]
    ) -> Callable[_P, _R]: ...
    @overload
    def __call__(
        self, function: Shaped[_P, _R, [ProgramConversation[State_co], Any], None]
    ) -> Callable[_P, _R]: ...
    @overload
    def __call__(
        self,
        function: Shaped[_P, _R, [AsyncProgramConversation[State_co]], Coroutine[Any, Any, None]],
    ) -> Callable[_P, _R]: ...
    @overload
    def __call__(
        self,
        function: Shaped[_P, _R, [AsyncProgramConversation[State_co], Any], Coroutine[Any, Any, None]],
    ) -> Callable[_P, _R]: ...


@dataclass(frozen=True)
class _TypeHandler:
    function: Handler
    body_type: Any

    def arguments(self, message: ReceivedMessage) -> tuple[Any, ...]:
        if self.body_type is None:
            return ()
        if isinstance(self.body_type, type):
            if issubclass(self.body_type, ReceivedMessage):
                return (message,)
            if self.body_type is bytes:
                return (message.body,)
            if self.body_type is str:
                return (message.text,)
            if self.body_type is etree._Element:  # noqa: SLF001 - lxml's own name for the type of an element
                return (message.xml(),)
        return (message.json(self.body_type),)


class ServiceProgram(Generic[State_co]):
    """What is done with the messages of one queue. Made by :meth:`pybroker.App.service_program`.

    As a decorator it takes the function for whatever has no handler of its own; :meth:`on` takes a handler
    for one message type.

    Attributes:
        queue: the queue that is read.
        max_queue_readers: how many readers this process has, each with a connection of its own.
        top: at most so many messages in one transaction; None for all of a group.
        state: what the program keeps for each conversation group: a type whose instances JSON can hold.
        state_table: the program's own table of it.
        retry: the pauses after which a failing message is tried again.
    """

    def __init__(
        self,
        queue: str,
        *,
        max_queue_readers: int = 1,
        top: int | None = 100,
        state: type[State_co] | None = None,
        state_table: str | None = None,
        retry: Sequence[Duration] = (),
    ) -> None:
        if not 1 <= max_queue_readers <= _MOST_READERS:
            raise ValueError(
                f"max_queue_readers is {max_queue_readers}: a program has 1 to {_MOST_READERS:,} readers."
            )
        if top is not None and top < 1:
            raise ValueError(f"top is {top}: give 1 or more, or None for all of a group.")
        if (state is None) is not (state_table is None):
            raise ValueError("Give state and state_table together: the type, and the table that holds it.")
        if len(retry) > _MOST_RETRIES or any(not 0 <= _seconds(pause) <= _LONGEST_PAUSE for pause in retry):
            raise ValueError(
                f"retry is {retry!r}: give at most {_MOST_RETRIES} pauses, each from 0 seconds to a year."
            )
        self.queue = queue
        self.max_queue_readers = max_queue_readers
        self.top = top
        self.state = state
        self.state_table = state_table
        self.retry: tuple[Duration, ...] = tuple(retry)
        self._function: Handler | None = None
        self._handlers: dict[str, _TypeHandler] = {}
        self._is_async: bool | None = None

    def __call__(
        self,
        function: Callable[[ProgramConversation[State_co]], None]
        | Callable[[AsyncProgramConversation[State_co]], Coroutine[Any, Any, None]],
    ) -> ServiceProgram[State_co]:
        """Take the function that is called with each conversation and its ``messages``."""
        if self._function is not None:
            raise TypeError(
                f'The program of queue "{self.queue}" has a function already: {self._function!r}.'
            )
        self._note_kind(function)
        self._function = function
        return self

    def on(self, message_type: str) -> HandlerDecorator[State_co]:
        """Return a decorator for the handler of one message type.

        The handler gets the conversation, and the body as its second parameter's annotation says: ``Message``
        (or none: the message), ``bytes``, ``str``, ``lxml.etree._Element``, or whatever msgspec can read from
        JSON: a dataclass, a Struct, a TypedDict, dict. A body that does not fit is a failure of the message.

        Args:
            message_type: its name; that of Error, EndDialog or DialogTimer replaces what the program does
                with these by itself.
        """

        def register(function: Handler) -> Handler:
            if message_type in self._handlers:
                raise TypeError(
                    f'The program of queue "{self.queue}" has a handler for "{message_type}" already.'
                )
            self._note_kind(function)
            self._handlers[message_type] = _TypeHandler(function, _body_type(function))
            return function

        return register

    @property
    def is_async(self) -> bool:
        """Whether the handlers are coroutine functions."""
        return bool(self._is_async)

    @property
    def message_types(self) -> frozenset[str]:
        """The types that have a handler of their own."""
        return frozenset(self._handlers)

    @property
    def takes_every_type(self) -> bool:
        """Whether the program has a function for what has no handler."""
        return self._function is not None

    def calls(self, messages: Sequence[Message] | Sequence[AsyncMessage]) -> Iterator[Call]:
        """Yield the calls for messages of one group: conversation by conversation, in order.

        The call for a message that nothing handles raises UnhandledMessageType.
        """
        for _, received in groupby(messages, key=lambda message: message.conversation_handle):
            conversation_messages = tuple(received)
            for name, same in groupby(conversation_messages, key=self._handled_by):
                yield from self._calls(name, tuple(same))

    def _handled_by(self, message: ReceivedMessage) -> str | None:
        """Return the type whose handler takes the message; None for the program's function."""
        name = message.message_type_name
        return name if name in self._handlers or name in _SYSTEM_TYPES else None

    def _calls(self, name: str | None, messages: tuple[Any, ...]) -> Iterator[Call]:
        if name is None:
            yield Call(self._function or self._refuse, messages, tuple)
        elif name in self._handlers:
            handler = self._handlers[name]
            for message in messages:
                yield Call(handler.function, (message,), partial(handler.arguments, message))
        else:
            ends = name != DIALOG_TIMER_MESSAGE_TYPE
            yield Call((_end_async if self.is_async else _end) if ends else None, messages[:1], tuple)

    def _refuse(self, conversation: Any) -> typing.NoReturn:
        name = conversation.messages[0].message_type_name
        raise UnhandledMessageType(f'The program of queue "{self.queue}" has no handler for "{name}".')

    def _note_kind(self, function: Handler) -> None:
        is_async = inspect.iscoroutinefunction(function)
        if self._is_async not in (None, is_async):
            raise TypeError(
                f'The handlers of queue "{self.queue}" must all be async def, or all plain functions.'
            )
        self._is_async = is_async


def _seconds(pause: Duration) -> float:
    return pause.total_seconds() if isinstance(pause, timedelta) else pause


def _end(conversation: Conversation) -> None:
    conversation.end()


async def _end_async(conversation: AsyncConversation) -> None:
    await conversation.end()


def _body_type(function: Handler) -> Any:
    """Return what a handler's second parameter is to be; None if it has one parameter only."""
    parameters = list(inspect.signature(function).parameters.values())
    if len(parameters) not in (1, 2):
        raise TypeError(
            f"A handler takes the conversation, and maybe the body; {function!r} takes {len(parameters)}."
        )
    if len(parameters) == 1:
        return None
    annotation = parameters[1].annotation
    if annotation is inspect.Parameter.empty:
        return ReceivedMessage
    # Only this one: the conversation's may well be known to type checkers alone.
    wanted = SimpleNamespace(__annotations__={"body": annotation})
    try:
        return typing.get_type_hints(wanted, getattr(inspect.unwrap(function), "__globals__", {}))["body"]
    except NameError as error:
        raise TypeError(
            f"The type of {function!r}'s second parameter must be there when it runs, and be global: {error}."
        ) from error
