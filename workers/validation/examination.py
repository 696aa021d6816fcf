"""The worker's side of the process that examines bodies: starts, asks and kills it."""

from __future__ import annotations

import asyncio
import signal
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pybroker.workers.validation.questions import LENGTH_BYTES, Answer, Body, Schemas, answer, frame
from pybroker.xml import LARGEST_BODY, NOT_WELL_FORMED, Fault

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Limits:
    """What one message may cost.

    Attributes:
        largest_body: bytes.
        processor_seconds: of one message or one schema collection.
        memory: bytes of the examining process in all.
        patience: seconds of the clock on the wall after which the process counts as lost.
    """

    largest_body: int = LARGEST_BODY
    processor_seconds: float = 5.0
    memory: int = 1024 * 1024 * 1024
    patience: float = 120.0


class ExaminerLostError(Exception):
    """The process ended, or does not answer; a new one is started for the next question."""


class Examination:
    """Examines bodies in a process that is started when it is needed first, and again after it ended."""

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        self._process: asyncio.subprocess.Process | None = None
        self._known: set[int] = set()

    @property
    def limits(self) -> Limits:
        """What one message may cost."""
        return self._limits

    def knows(self, collection: int) -> bool:
        """Return whether the process has read that schema collection."""
        return collection in self._known and self._process is not None

    async def read_schemas(self, collection: int, documents: Sequence[str]) -> str | None:
        """Let the process read a schema collection; return why it can't be used, or None.

        Raises:
            ExaminerLostError: nobody knows.
        """
        found = await self._ask(Schemas(collection, list(documents)))
        if found is None:
            return f"To read it takes more than {self._limits.processor_seconds:g} seconds of processor time."
        if found.number:
            return found.reason
        self._known.add(collection)
        return None

    async def fault_of(self, body: bytes | None, size: int, collection: int | None) -> Fault | None:
        """Return why a body does not pass, or None.

        Args:
            body: the body; None if it is above the limit.
            size: its bytes.
            collection: a schema collection that the process knows, or None for well-formed XML.

        Raises:
            ExaminerLostError: nobody knows.
        """
        if body is None:
            return Fault(
                NOT_WELL_FORMED, f"It has {size} bytes; XML has at most {self._limits.largest_body} here."
            )
        found = await self._ask(Body(body, collection))
        if found is None:
            return Fault(
                NOT_WELL_FORMED,
                f"To read it takes more than {self._limits.processor_seconds:g} seconds of processor time.",
            )
        return Fault(found.number, found.reason) if found.number else None

    async def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        self._known.clear()
        if process is not None and process.returncode is None:
            process.kill()
            await process.wait()

    async def _ask(self, message: Schemas | Body) -> Answer | None:
        """Return the answer, or None if the process was ended for its processor time."""
        if self._process is None:
            self._process = await self._start()
        process = self._process
        reading, writing = process.stdout, process.stdin
        if reading is None or writing is None:
            raise RuntimeError("the examiner has no pipes")
        try:
            async with asyncio.timeout(self._limits.patience):
                writing.write(frame(message))
                await writing.drain()
                length = await reading.readexactly(LENGTH_BYTES)
                return answer(await reading.readexactly(int.from_bytes(length, "big")))
        except (asyncio.IncompleteReadError, ConnectionError):
            # The pipe ended, so the process has, or is about to.
            code = await process.wait()
            await self.close()
            if code == -signal.SIGPROF:
                return None
            raise ExaminerLostError(f"the examining process ended with {code}") from None
        except TimeoutError:
            await self.close()
            raise ExaminerLostError(f"no answer in {self._limits.patience:g} seconds") from None
        except BaseException:
            # An answer to a question that nobody remembers would be taken for that of the next.
            await self.close()
            raise

    async def _start(self) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "pybroker.workers.validation.examiner",
            str(self._limits.processor_seconds),
            str(self._limits.memory),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
