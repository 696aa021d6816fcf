"""The list of mistakes follows the code."""

from __future__ import annotations

from pathlib import Path

from tests.mutation.mistakes import MISTAKES

ROOT = Path(__file__).parents[2]


def test_each_mistake_can_still_be_made() -> None:
    """A mistake whose text is gone from its file is never planted, and nobody hears of it."""
    counts = {mistake.name: (ROOT / mistake.file).read_text().count(mistake.right) for mistake in MISTAKES}
    assert {name: count for name, count in counts.items() if count != 1} == {}
