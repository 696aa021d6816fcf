"""What one input may cost, and a copy of it that outlives its process, however that ends."""

from __future__ import annotations

import faulthandler
import mmap
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_LENGTH_BYTES = 4


def limited(
    parse: Callable[[bytes], None], kept: Path, *, seconds: float, longest: int
) -> Callable[[bytes], None]:
    """Return it with a limit of a processor's seconds, after which SIGPROF ends the process with a traceback.

    The clock would count what other processes take, and the fuzzer's own limit goes by the clock: it ended
    processes that a busy machine had stopped, some without a word of the input. No handler in Python would be
    called while compiled code goes round in circles.

    Args:
        parse: what is fuzzed.
        kept: a file for the input at work; `last_input` reads it.
        seconds: of a processor, for one input.
        longest: bytes of an input that are kept.
    """
    kept.write_bytes(bytes(_LENGTH_BYTES + longest))
    with kept.open("r+b") as file:
        memory = mmap.mmap(file.fileno(), 0)
    faulthandler.register(signal.SIGPROF, all_threads=False, chain=True)

    def parse_within(data: bytes) -> None:
        copy = data[:longest]
        memory[: _LENGTH_BYTES + len(copy)] = len(copy).to_bytes(_LENGTH_BYTES, "big") + copy
        signal.setitimer(signal.ITIMER_PROF, seconds)
        try:
            parse(data)
        finally:
            # What the fuzzer does between two inputs is none of theirs.
            signal.setitimer(signal.ITIMER_PROF, 0)

    return parse_within


def last_input(kept: Path) -> bytes:
    """Return the last input that was begun; empty if there was none."""
    data = kept.read_bytes() if kept.exists() else b""
    return data[_LENGTH_BYTES:][: int.from_bytes(data[:_LENGTH_BYTES], "big")]
