"""The specifications in tests/specs: TLC exhausts each, and finds each mistake that one can make."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from tests.specs import tlc

if TYPE_CHECKING:
    from collections.abc import Callable

if (reason := tlc.missing()) is not None and not os.environ.get("CI"):
    pytest.skip(reason, allow_module_level=True)


def first_of_each(texts_of: Callable[[str], list[str]]) -> list[Any]:
    """Each specification with each of its texts; at a landing the first one shows that TLC is asked."""
    return [
        pytest.param(name, text, marks=[pytest.mark.nightly] if place else [])
        for name in tlc.names()
        for place, text in enumerate(texts_of(name))
    ]


@pytest.mark.parametrize("name", tlc.names())
def test_a_specification_holds(name: str) -> None:
    outcome = tlc.check(name)
    assert outcome.broken is None, outcome.text
    # Fewer than this, and something keeps it from beginning.
    assert outcome.states > 100


@pytest.mark.parametrize(("name", "mutant"), first_of_each(tlc.mutants))
def test_a_specification_sees_a_mistake(name: str, mutant: str) -> None:
    assert tlc.check(name, mutant=mutant).broken is not None


@pytest.mark.parametrize(("name", "witness"), first_of_each(tlc.witnesses))
def test_a_specification_comes_to_what_it_is_about(name: str, witness: str) -> None:
    assert tlc.check(name, witness=witness).broken == witness
