"""The parsers of what peers send, for a moment; `python -m tests.fuzz` fuzzes them by coverage, and for longer."""

from __future__ import annotations

import os
import random
import subprocess

import pytest

from tests.fuzz import __main__ as fuzz
from tests.fuzz import targets

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
    ],
)
def test_an_input_has_failed_unless_the_fuzzer_was_done(code: int, said: str, failed: bool) -> None:
    ran = subprocess.CompletedProcess([], code, "", said)
    assert fuzz.has_failed(ran) is failed
    assert ("FAILED" in fuzz.verdict(ran)) is failed
    assert code == 0 or str(abs(code)) in fuzz.verdict(ran)
