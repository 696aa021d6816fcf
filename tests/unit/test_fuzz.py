"""The parsers of what peers send, for a moment; `python -m tests.fuzz` fuzzes them by coverage, and for longer."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.fuzz import __main__ as fuzz
from tests.fuzz import targets
from tests.fuzz.limits import last_input

if TYPE_CHECKING:
    from pathlib import Path

INPUTS, SEED = 5000, 19


def changed(data: bytes, chance: random.Random) -> bytes:
    """Return it with some bytes set, removed or doubled."""
    mutable = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at = chance.randint(0, len(mutable))
        size = chance.choice([1, 4, 8])
        mutable[at : at + chance.choice([0, size])] = chance.choice(
            [b"", chance.randbytes(size), mutable[at : at + size] * 2, b"\xff" * size, bytes(size)]
        )
    return bytes(mutable)


@pytest.mark.parametrize("name", fuzz.NAMES)
def test_a_parser_understands_or_refuses(name: str) -> None:
    chance, parse = random.Random(SEED), targets.TARGETS[name]
    beginnings = targets.beginnings(name)
    for data in beginnings:
        parse(data)
    for _ in range(INPUTS):
        parse(changed(chance.choice(beginnings), chance))


@pytest.mark.skipif(fuzz.missing() is not None and "CI" not in os.environ, reason=str(fuzz.missing()))
# At each landing .ci/run has all targets fuzzed for a minute; one start beside four processes ended without a word.
@pytest.mark.nightly
def test_the_fuzzer_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert not fuzz.fuzz("array", ["-atheris_runs=200", f"-seed={SEED}"])
    assert "inputs in" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("code", "said", "failed"),
    [
        (0, "Done 200 in 1 second(s)", False),
        (77, "==1== Uncaught Python exception", True),
        (77, "Done 200 in 1 second(s)", True),
        (-9, "#131072 pulse  cov: 159", True),
        (-11, "Done 200 in 1 second(s)", False),
        (-signal.SIGPROF, "#131072 pulse  cov: 159", True),
    ],
)
def test_an_input_has_failed_unless_the_fuzzer_was_done(code: int, said: str, failed: bool) -> None:
    ran = subprocess.CompletedProcess([], code, "", said)
    assert fuzz.has_failed(ran) is failed
    assert ("FAILED" in fuzz.verdict(ran)) is failed
    assert code == 0 or str(abs(code)) in fuzz.verdict(ran)


# Of a processor. An input that sleeps takes none, so it may take longer.
LIMIT = 0.2
COSTS = f"""
import itertools, os, sys, time
from pathlib import Path
from tests.fuzz.limits import limited

def parse(data):
    if data == b"sleeps":
        time.sleep({3 * LIMIT})
    while data == b"spins":
        pass
    if data == b"spins in compiled code":
        sum(itertools.repeat(0))
    if data == b"is killed":
        os.kill(os.getpid(), 9)

parse = limited(parse, Path(sys.argv[1]), seconds={LIMIT}, longest=100)
for data in sys.argv[2:]:
    parse(data.encode())
"""


def cost(kept: Path, *inputs: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", COSTS, str(kept), *inputs],
        cwd=fuzz.ROOT,
        check=False,
        capture_output=True,
        text=True,
    )


def test_an_input_that_waits_while_others_have_the_processor_is_not_too_long(tmp_path: Path) -> None:
    ran = cost(tmp_path / "kept", "sleeps", "sleeps")
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize(
    ("last", "code"),
    [("spins", -signal.SIGPROF), ("spins in compiled code", -signal.SIGPROF), ("is killed", -signal.SIGKILL)],
)
def test_an_input_is_left_however_its_process_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: str, code: int
) -> None:
    monkeypatch.setattr(fuzz, "FOUND", tmp_path / "found")
    kept = tmp_path / "kept"
    ran = cost(
        kept, "an input that is much longer than the last one, and does no harm", last, "comes too late"
    )
    assert ran.returncode == code, ran.stderr
    assert last_input(kept) == last.encode()
    assert fuzz.leave("frames", kept).read_bytes() == last.encode()
    assert ("in parse" in ran.stderr) is (code == -signal.SIGPROF)


def test_no_input_was_left_before_the_first_one(tmp_path: Path) -> None:
    assert last_input(tmp_path / "kept") == b""
