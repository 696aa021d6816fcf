"""The specifications in tests/specs: TLC exhausts each, and finds each mistake that one can make."""

from __future__ import annotations

import os

import pytest

from tests.specs import tlc

if (reason := tlc.missing()) is not None and not os.environ.get("CI"):
    pytest.skip(reason, allow_module_level=True)


@pytest.mark.parametrize("name", tlc.names())
def test_a_specification_holds(name: str) -> None:
    outcome = tlc.check(name)
    assert outcome.broken is None, outcome.text
    # Fewer than this, and something keeps it from beginning.
    assert outcome.states > 100


@pytest.mark.parametrize(
    ("name", "mutant"), [(name, mutant) for name in tlc.names() for mutant in tlc.mutants(name)]
)
def test_a_specification_sees_a_mistake(name: str, mutant: str) -> None:
    assert tlc.check(name, mutant=mutant).broken is not None


@pytest.mark.parametrize(
    ("name", "witness"), [(name, witness) for name in tlc.names() for witness in tlc.witnesses(name)]
)
def test_a_specification_comes_to_what_it_is_about(name: str, witness: str) -> None:
    assert tlc.check(name, witness=witness).broken == witness
