"""The process that reads bodies which strangers sent: `python -m pybroker.workers.validation.examiner`.

It answers questions from its standard input, one at a time, until that ends. The kernel ends it when one
takes too much processor time (SIGPROF, which no C code can hold up), and refuses it memory above a limit.
"""

from __future__ import annotations

import resource
import signal
import sys

from pybroker.workers.validation.questions import LENGTH_BYTES, Answer, Schemas, frame, question
from pybroker.xml import NOT_VALID, NOT_WELL_FORMED, SchemaCollection, SchemaCollectionError, fault_of


def main() -> None:
    """Answer until the standard input ends; arguments: processor seconds a question, bytes of memory."""
    seconds, memory = float(sys.argv[1]), int(sys.argv[2])
    # Ctrl-C goes to the whole group of processes; this one ends when its worker has ended.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A worker that was killed leaves nobody to answer: a traceback would be the last words in its log.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    known: dict[int, SchemaCollection] = {}
    while length := sys.stdin.buffer.read(LENGTH_BYTES):
        content = sys.stdin.buffer.read(int.from_bytes(length, "big"))
        signal.setitimer(signal.ITIMER_PROF, seconds)
        answer = _answer(content, known)
        signal.setitimer(signal.ITIMER_PROF, 0)
        sys.stdout.buffer.write(frame(answer))
        sys.stdout.buffer.flush()


def _answer(content: bytes, known: dict[int, SchemaCollection]) -> Answer:
    asked = question(content)
    try:
        if isinstance(asked, Schemas):
            known[asked.number] = SchemaCollection(asked.documents)
            return Answer(0, "")
        fault = fault_of(asked.content, None if asked.schemas is None else known[asked.schemas])
    except SchemaCollectionError as error:
        return Answer(NOT_VALID, str(error))
    except MemoryError:
        return Answer(NOT_WELL_FORMED, "To read it takes more memory than it may.")
    return Answer(fault.number, fault.reason) if fault else Answer(0, "")


if __name__ == "__main__":
    main()
