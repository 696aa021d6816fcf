"""Applications: the service programs of one process, and the readers that run them."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar, overload

from pybroker.client.session import opened
from pybroker.connection_string import checked
from pybroker.errors import broker_errors
from pybroker.programs.attendant import attending
from pybroker.programs.reader import Reader
from pybroker.programs.reader_async import AsyncReader
from pybroker.programs.service_program import ServiceProgram

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator, Mapping, Sequence

    import psycopg

    from pybroker.duration import Duration

_State = TypeVar("_State")

_logger = logging.getLogger("pybroker.app")

# What the contracts of a queue's services let a far side send to them.
_EXPECTED_TYPES = """
select distinct t.name
from broker.service_queues q
join broker.services s on s.service_queue_id = q.object_id
join broker.service_contract_usages u on u.service_id = s.service_id
join broker.service_contract_message_usages m
  on m.service_contract_id = u.service_contract_id and m.is_sent_by_initiator
join broker.service_message_types t on t.message_type_id = m.message_type_id
where q.name = %s
order by t.name
"""
_QUARANTINES = (
    "select from broker.service_queues"
    " where name = %s and is_poison_message_handling_enabled and poison_action = 'QUARANTINE'"
)
_KNOWN_TYPES = "select name from broker.service_message_types where name = any (%s)"


class App:
    """The service programs of one process.

    ::

        app = pybroker.App("postgresql://localhost/shop")


        @app.service_program("fulfilment", max_queue_readers=4)
        def fulfil(conversation):
            for message in conversation.messages:
                conversation.send("//shop/ack", message.body)


        app.run()

    Any number of processes, on any hosts, can run the same program: a conversation group is one reader's at a
    time.
    """

    def __init__(self, database_url: str) -> None:
        """Make an application without programs; nothing is connected yet.

        Args:
            database_url: a libpq URL or connection string.

        Raises:
            psycopg.ProgrammingError: it is none.
        """
        self._url = checked(database_url)
        self._programs: dict[str, ServiceProgram[Any]] = {}
        self._stop = threading.Event()
        self._woken: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None

    @overload
    def service_program(
        self,
        queue: str,
        *,
        max_queue_readers: int = 1,
        top: int | None = 100,
        state: None = None,
        state_table: None = None,
        retry: Sequence[Duration] = (),
    ) -> ServiceProgram[None]: ...
    @overload
    def service_program(
        self,
        queue: str,
        *,
        max_queue_readers: int = 1,
        top: int | None = 100,
        state: type[_State],
        state_table: str,
        retry: Sequence[Duration] = (),
    ) -> ServiceProgram[_State]: ...
    def service_program(
        self,
        queue: str,
        *,
        max_queue_readers: int = 1,
        top: int | None = 100,
        state: type[Any] | None = None,
        state_table: str | None = None,
        retry: Sequence[Duration] = (),
    ) -> ServiceProgram[Any]:
        """Return the program of a queue: a decorator for its function, and with ``on`` for its handlers.

        EndDialog and Error are answered by ending the conversation, and a DialogTimer by nothing, unless the
        program has handlers for them.

        Args:
            queue: the queue that it reads.
            max_queue_readers: how many readers this process has, each with a connection and a transaction of
                its own.
            top: at most so many messages in one transaction; None for all of a group.
            state: a type whose instances JSON can hold, made without arguments: what the program keeps for
                each conversation group, as ``conversation.state``.
            state_table: a table of the program's own for it, with the columns ``conversation_group_id uuid
                primary key`` and ``state jsonb``.
            retry: seconds, or timedeltas: the pauses after which a message whose handler failed is tried
                again, ``[1, 60, 3600]``. Meanwhile what follows on its conversation waits behind it, and
                other conversations go on. When all are used up, the conversation is quarantined. The queue
                must have ``poison_action`` QUARANTINE.

        Raises:
            ValueError: an argument is out of range, or the queue has a program in this application already.
        """
        if queue in self._programs:
            raise ValueError(f'The queue "{queue}" has a program in this application already.')
        program = ServiceProgram(
            queue,
            max_queue_readers=max_queue_readers,
            top=top,
            state=state,
            state_table=state_table,
            retry=retry,
        )
        self._programs[queue] = program
        return program

    @property
    def queues(self) -> tuple[str, ...]:
        """The queues that it has programs for."""
        return tuple(self._programs)

    def run(self, *, metrics_port: int | None = None, metrics_address: str = "127.0.0.1") -> None:
        """Run all programs until :meth:`stop`, SIGTERM or SIGINT; what readers are doing then is finished.

        A second signal ends the process at once; the database rolls back what was not committed.

        Args:
            metrics_port: serve ``/metrics`` of the database, ``/healthz`` and ``/readyz`` here, as
                ``pybroker worker --metrics-port`` does; 0 is a free port. Needs the extra ``telemetry``.
            metrics_address: where it listens for that.

        Raises:
            BrokerError: a queue is not there (208), or the role has no RECEIVE on it (229).
            LookupError: a message type that can arrive has no handler, or a handler's does not exist.
            ValueError: a program has ``retry``, and its queue does not quarantine.
            ModuleNotFoundError: the extra ``telemetry`` is not installed.
            OSError: the address and port can't be listened on.
            psycopg.OperationalError: the database can't be reached at the start; later it is tried again.
        """
        asyncio.run(self.run_async(metrics_port=metrics_port, metrics_address=metrics_address))

    async def run_async(self, *, metrics_port: int | None = None, metrics_address: str = "127.0.0.1") -> None:
        """Run all programs; :meth:`run` in an event loop of the program's own.

        Raises:
            BrokerError, LookupError, ModuleNotFoundError, OSError, psycopg.OperationalError: as :meth:`run`.
        """
        if not self._programs:
            raise LookupError(
                "The application has no service program: add one with app.service_program(queue)."
            )
        await asyncio.to_thread(self._check)
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        self._woken = loop, stop
        if self._stop.is_set():
            stop.set()
        before = self._handle_signals(loop)
        try:
            with self._measured(metrics_address, metrics_port):
                await self._run_readers(stop)
        finally:
            for number, handler in before.items():
                loop.remove_signal_handler(number)
                signal.signal(number, handler)
            self._woken = None
            self._stop.clear()
        _logger.info("All readers have ended")

    def stop(self) -> None:
        """Let `run` return once the readers have finished what they are doing; from any thread."""
        self._stop.set()
        if self._woken is not None:
            loop, stop = self._woken
            loop.call_soon_threadsafe(stop.set)

    @contextmanager
    def _measured(self, address: str, port: int | None) -> Iterator[None]:
        if port is None:
            yield
            return
        try:
            from pybroker.metrics import endpoint  # noqa: PLC0415 - what it needs is in an extra
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                f'{error.name} is not installed: pip install "pybroker[telemetry]"', name=error.name
            ) from None
        is_alive = endpoint.turning(asyncio.get_running_loop())
        with endpoint.serving([self._url], address, port, is_alive) as listening:
            _logger.info("Serving metrics on %s, port %d", address, listening)
            yield

    def _handle_signals(self, loop: asyncio.AbstractEventLoop) -> Mapping[signal.Signals, Any]:
        """Stop at the first signal, end at the second; return what handled them before."""
        if threading.current_thread() is not threading.main_thread():
            return {}
        numbers = (signal.SIGTERM, signal.SIGINT)

        def signalled(number: signal.Signals) -> None:
            for each in numbers:
                loop.remove_signal_handler(each)
                # Not Python's own for SIGINT: its KeyboardInterrupt would wait for the readers' threads.
                signal.signal(each, signal.SIG_DFL)
            _logger.info("%s: stopping; a second one ends the process at once", number.name)
            self.stop()

        # None is one that was not set from Python.
        before = {number: signal.getsignal(number) or signal.SIG_DFL for number in numbers}
        for number in numbers:
            loop.add_signal_handler(number, signalled, number)
        return before

    async def _run_readers(self, stop: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        programs = list(self._programs.values())
        threads = sum(program.max_queue_readers for program in programs if not program.is_async)
        with (
            ThreadPoolExecutor(max(threads, 1), thread_name_prefix="reader") as executor,
            attending(programs, self._url),
        ):
            _logger.info(
                "Reading %s",
                ", ".join(
                    f"{program.queue} (max_queue_readers {program.max_queue_readers})" for program in programs
                ),
            )
            readers: list[Awaitable[None]] = []
            for program in programs:
                for _ in range(program.max_queue_readers):
                    if program.is_async:
                        readers.append(AsyncReader(program, self._url, stop).run())
                    else:
                        reader = Reader(program, self._url, self._stop)
                        readers.append(loop.run_in_executor(executor, reader.run))
            running = [asyncio.ensure_future(reader) for reader in readers]
            try:
                # One that can't go on ends all: a program that does half of its work should not look alive.
                await asyncio.wait(running, return_when=asyncio.FIRST_EXCEPTION)
            finally:
                self.stop()
                stop.set()
                await asyncio.wait(running)
        for task in running:
            task.result()

    def _check(self) -> None:
        with opened(self._url) as connection, broker_errors():
            for program in self._programs.values():
                # Names what is missing, a queue or a right, before the first message comes.
                connection.execute("select from broker.receive(%s::text, 0)", (program.queue,))
                expected = {row[0] for row in connection.execute(_EXPECTED_TYPES, (program.queue,))}
                known = {row[0] for row in connection.execute(_KNOWN_TYPES, (list(program.message_types),))}
                _require(
                    program.message_types - known,
                    f'The program of queue "{program.queue}" handles message types that do not exist: ',
                )
                if program.retry:
                    _require_quarantine(connection, program.queue)
                if not program.takes_every_type:
                    _require(
                        expected - program.message_types,
                        f'The program of queue "{program.queue}" has neither a function nor handlers for: ',
                    )


def _require_quarantine(connection: psycopg.Connection[Any], queue: str) -> None:
    if not connection.execute(_QUARANTINES, (queue,)).rowcount:
        raise ValueError(
            f'The program of queue "{queue}" has retry, and the queue does not quarantine: its owner runs'
            f" SELECT broker.alter_queue('{queue}', poison_message_handling => true,"
            " poison_action => 'QUARANTINE')."
        )


def _require(missing: frozenset[str] | set[str], text: str) -> None:
    if missing:
        raise LookupError(text + ", ".join(f'"{name}"' for name in sorted(missing)) + ".")
